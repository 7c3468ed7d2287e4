//! Where samplers and gates attach to a run. The load's events are their clock.

use std::path::PathBuf;

/// What a hook may want to know about a run.
#[derive(Debug, Clone)]
pub struct RunContext {
    /// How to connect for control work.
    pub target: wire::Target,
    /// `mysql`, `mariadb`, `percona` or `postgres`.
    pub flavor: sandbox::Flavor,
    /// The server's process; `None` for an attached server that runs elsewhere or does not show itself.
    pub server_pid: Option<u32>,
    /// Processes that have the sessions in place of this one.
    pub client_pids: Vec<u32>,
    /// Its replicas.
    pub replicas: Vec<telemetry::replication::Replica>,
    /// Its data directory; `None` where it is not on this machine or cannot be seen.
    pub datadir: Option<PathBuf>,
    /// Its log; `None` where it is not ours.
    pub log_file: Option<PathBuf>,
    /// It is a sandbox: its settings may be changed for a moment, its tables vacuumed.
    pub is_ours: bool,
    /// Limits that it runs under.
    pub limits: sandbox::Limits,
    /// When the run began: zero of all times in series.
    pub began: std::time::Instant,
    /// The machine's speed before this block against the study's other canaries; `None` where there are none.
    pub canary_ratio: Option<f64>,
    /// The caches were emptied before the load: reading is what is measured.
    pub is_cold: bool,
    /// None of the workload's statements changes anything.
    pub only_reads: bool,
    /// Each step of the load is a slice, and many of them are recorded as one level: in a duel, or while the server is
    /// switched.
    pub is_sliced: bool,
}

/// What a hook has found when the run is over.
#[derive(Debug, Default, Clone)]
pub struct Found {
    /// Series for the results file: what [`Hook::take_series`] has not given yet.
    pub series: Vec<store::Series>,
    pub hot_locks: Vec<store::HotLock>,
    pub gates: Vec<store::Gate>,
    /// Suspicions with a remedy.
    pub warnings: Vec<String>,
    /// Anything else worth printing.
    pub facts: Vec<(String, String)>,
}

/// What became one run's record of the steps that a hook was told.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The levels, as they will be stored.
    pub steps: &'a [store::Step],
    /// Of a level that was measured in slices: by step that the hook was told, whether it is one of them.
    pub slices: Option<&'a [bool]>,
}

/// Watches one run, or the runs of one server life.
pub trait Hook {
    /// Called on the coordinator's thread with everything that the load tells, once a second at least.
    fn event(&mut self, event: &load::Event<'_>);

    /// What its series have gained since the last call: a load that goes on for days must not have all of it in memory.
    fn take_series(&mut self) -> Vec<store::Series> {
        Vec::new()
    }

    /// The load is over and the server still runs. What was found of each part, in their order.
    fn finish(self: Box<Self>, parts: &[Part<'_>]) -> Vec<Found>;
}

/// Makes hooks for runs.
pub trait Attach: Sync {
    /// The server is up and loaded, the load is about to begin. `told` takes what is waited for, for people.
    fn attach(&self, context: &RunContext, told: &dyn Fn(&str)) -> Vec<Box<dyn Hook>>;
}

#[derive(Debug, Clone, Copy)]
pub struct NoHooks;

impl Attach for NoHooks {
    fn attach(&self, _context: &RunContext, _told: &dyn Fn(&str)) -> Vec<Box<dyn Hook>> {
        Vec::new()
    }
}
