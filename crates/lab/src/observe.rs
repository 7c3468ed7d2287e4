//! What happens, told to whoever shows it.

use std::collections::BTreeMap;
use std::time::Duration;

use store::{INTERVENE, RunStart, Status, intervention_text};

/// Receives events, from the lab's thread and from those that load data.
pub type Observer<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// A phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Making or restoring the data directory and starting the server.
    Provision,
    Load,
    /// Keeping the loaded data directory for later runs.
    Snapshot,
    /// Looking whether the server can carry the load.
    Check,
    /// Making replicas of the server, and waiting until they follow it.
    Replicate,
    /// Running what is not recorded, so that caches are filled.
    Prime,
    /// Letting the server pay what it has put off: purge, dirty pages, dead rows, a checkpoint.
    Drain,
    /// Opening connections, warm-up and measured phase.
    Measure,
    /// Waiting until replicas have what the load changed.
    CatchUp,
    /// Comparing the tables with the outcomes, reading settings back.
    Verify,
    /// Stopping and removing the server.
    Stop,
}

impl Phase {
    /// As shown.
    pub fn text(self) -> &'static str {
        match self {
            Phase::Provision => "starting the server",
            Phase::Load => "loading",
            Phase::Snapshot => "keeping a snapshot",
            Phase::Check => "checking",
            Phase::Replicate => "starting replicas",
            Phase::Prime => "priming",
            Phase::Drain => "waiting for what the server has put off",
            Phase::Measure => "measuring",
            Phase::CatchUp => "waiting for the replicas",
            Phase::Verify => "verifying",
            Phase::Stop => "stopping the server",
        }
    }

    /// As the results file names the phase.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Provision => "provision",
            Phase::Load => "load",
            Phase::Snapshot => "snapshot",
            Phase::Check => "check",
            Phase::Replicate => "replicate",
            Phase::Prime => "prime",
            Phase::Drain => "drain",
            Phase::Measure => "measure",
            Phase::CatchUp => "catch_up",
            Phase::Verify => "verify",
            Phase::Stop => "stop",
        }
    }
}

/// A run as shown to people.
#[derive(Debug, Clone, PartialEq)]
pub struct RunLabel {
    /// Place in the plan, from 1.
    pub number: usize,
    pub of: usize,
    /// Block, from 1.
    pub block: u32,
    pub blocks: u32,
    /// Axis to value.
    pub key: BTreeMap<String, String>,
    /// Session counts.
    pub levels: Vec<u32>,
    /// In a duel: what the other sides have in place of this one's value.
    pub against: Vec<String>,
}

impl RunLabel {
    /// Of a run in a plan of so many runs and blocks.
    pub(crate) fn of(start: &RunStart, of: usize, blocks: u32) -> RunLabel {
        RunLabel {
            number: start.index as usize + 1,
            of,
            block: start.block,
            blocks,
            key: start.key.iter().map(|(axis, value)| (axis.clone(), shown(value))).collect(),
            levels: start.levels.clone(),
            against: Vec::new(),
        }
    }

    /// `mariadb@10.11.19 oltp_read_only, 8 sessions`.
    pub fn text(&self) -> String {
        let mut parts: Vec<&str> = ["server", "workload"]
            .iter()
            .filter_map(|axis| self.key.get(*axis))
            .map(String::as_str)
            .collect();
        let rest = self.key.iter().filter(|(axis, value)| {
            !["server", "workload"].contains(&axis.as_str())
                && value.as_str() != crate::plan::DEFAULT_SETTINGS
        });
        let rest: Vec<String> = rest
            .map(|(axis, value)| match axis.as_str() {
                INTERVENE => intervention_text(value),
                _ => format!("{axis} {value}"),
            })
            .collect();
        parts.extend(rest.iter().map(String::as_str));
        let sessions = match self.levels.as_slice() {
            [one] => store::counted(*one, "session"),
            many => format!("climb {} to {}", many[0], many[many.len() - 1]),
        };
        let against = match self.against.as_slice() {
            [] => String::new(),
            others => format!(", against {}", others.join(" and ")),
        };
        format!("{}, {sessions}{against}", parts.join(" "))
    }
}

/// A value of a key as text.
pub(crate) fn shown(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// How a run ended, in a line.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSummary {
    pub status: Status,
    /// Why it failed or is invalid.
    pub error: Option<String>,
    pub tripped: Vec<Tripped>,
    /// The server's last lines, where it failed.
    pub log_tail: String,
    /// By step: sessions, committed transactions per second, p95 in ms; `None` where it has too few for one.
    pub steps: Vec<(u32, f64, Option<f64>)>,
    /// Of a search for load lines: the promises, and the line of each in transactions per second.
    pub lines: Vec<(String, Option<f64>)>,
    /// Suspicions with a remedy.
    pub warnings: Vec<String>,
    /// From start to end.
    pub took: Duration,
    /// Of it, before the load: waiting for what the server had put off.
    pub drained: Duration,
}

/// What a gate that tripped does to its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// A fault of the measurement: it makes the run invalid.
    Excluded,
    /// The same, which the study lets pass.
    Allowed,
    /// How the server behaved: the run counts.
    Noted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tripped {
    /// `noisy_host`.
    pub name: String,
    pub remedy: String,
    pub effect: Effect,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event<'a> {
    /// Another process holds this machine's measuring lock; this one waits.
    Waiting {
        /// Who, where it can be seen from here.
        holder: Option<&'a sandbox::lock::Holder>,
        /// How long a holder that is another user's is waited for before this one goes on beside it.
        goes_on_after: Option<Duration>,
    },
    /// Leftovers of crashed plimsolls were removed.
    Cleaned(&'a [String]),
    /// Something slow goes on outside of a run (a fetch).
    Doing(&'a str),
    Fleet(&'a crate::fleet::FleetStanding),
    /// How far the slow thing is.
    Bytes {
        done: u64,
        /// Of so much, where known.
        total: Option<u64>,
    },
    /// The study is planned, or an unfinished one was found.
    Planned {
        title: &'a str,
        runs: usize,
        /// Of them recorded before.
        finished: usize,
        /// Runs to be made now.
        to_do: usize,
        cells: usize,
        blocks: u32,
        seed: u64,
        /// Length of one run's measured phases and warm-ups.
        run_length: Option<Duration>,
    },
    RunStarted(&'a RunLabel),
    /// A run goes on to its next phase.
    Phase(Phase),
    Loaded {
        what: &'a str,
        done: u64,
        total: u64,
    },
    /// A level begins with its warm-up.
    StepStarted {
        sessions: u32,
        /// Of the measured phase, where the clock decides.
        length: Option<Duration>,
    },
    Interval {
        sessions: u32,
        interval: &'a load::IntervalResult,
    },
    /// A run was lost to a fault of the measurement: it is made again later in its block, with those that it is compared
    /// with where they lie far back.
    Again {
        runs: usize,
    },
    /// The verdicts of a study that may be watched were looked at.
    Looked {
        /// From 1, over all commands that went on with the study.
        number: usize,
        look: &'a store::Look,
    },
    /// Suspicion, with a remedy.
    Warning(&'a str),
    /// A run has ended and is recorded.
    RunEnded {
        label: &'a RunLabel,
        summary: &'a RunSummary,
    },
}
