//! One run: a server's life from fresh or restored data to stop, with all that was measured in it.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::codec::PackedHistogram;
use crate::gate::Gate;
use crate::line::LineId;
use crate::study::{BuildId, HostId, Key, RunId, StudyId};

/// Latency histograms count in units of 100 ns.
#[derive(Debug, Clone, Copy)]
pub struct LatencyUnit;

impl LatencyUnit {
    /// Nanoseconds of one unit.
    pub const NS: u64 = 100;
    /// A histogram value in milliseconds.
    pub fn to_ms(value: f64) -> f64 {
        value * Self::NS as f64 / 1e6
    }
}

/// What a run was for. Only [`Purpose::Measure`] enters figures and verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A timed run of the plan.
    Measure,
    /// A pass of its own for hot locks, whose instruments slow the server down.
    Locks,
}

/// How a run stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Begun and not ended: it is going on, or its process was killed.
    #[default]
    Running,
    /// Ended, and no gate found a fault of the measurement: how the server behaved is the result.
    Done,
    /// Could not be brought to its end; what was measured before is kept.
    Failed,
    /// Ended, but gates say that figures of it must not be used: all of them, or those of some levels of a climb.
    Invalid,
    /// Was found running by a later plimsoll, or stopped by the user.
    Interrupted,
}

impl Status {
    /// The word that is stored and printed.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Interrupted => "interrupted",
        }
    }
}

/// A run whose load was cut into slices, with those of others between them. In a duel the others are those of the same study,
/// cell but for the compared axis, block and attempt; where one server was switched ([`Intervention`]), those of its other
/// states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Duel {
    /// Servers that were alive at once and loaded in turns, or states of one.
    pub sides: u32,
    /// Which of them this was, from 0.
    pub side: u32,
    /// In order of time.
    pub slices: Vec<Slice>,
}

/// The axis of what is switched on and off within one life of a server.
pub const INTERVENE: &str = "intervene";
/// Its value while nothing is switched on.
pub const NO_INTERVENTION: &str = "none";

/// `without`, or `with log`: a value of [`INTERVENE`] for people.
pub fn intervention_text(value: &str) -> String {
    if value == NO_INTERVENTION { "without".to_owned() } else { format!("with {value}") }
}

/// What was changed of a server while it was loaded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// As the study calls it; [`NO_INTERVENTION`] for the run with nothing switched on.
    pub name: String,
    pub on: Vec<String>,
    /// The statements that switch it off; none where nothing takes it back.
    pub off: Vec<String>,
    /// The variables that are looked at, with the values that the server said they had in this run, or had afterwards.
    pub readings: BTreeMap<String, String>,
    /// Where it came once in the middle of a level: when, in seconds since the run's start. `None` where it was switched on and
    /// off: then the run is one state of a server's life, its phases are the slices of [`RunEnd::duel`], and between them lie
    /// those of the other runs of that life, which are of the same study, cell but for the axis `intervene`, block and attempt.
    pub at_s: Option<f64>,
    /// How long its statements took, where it came once.
    pub took_s: Option<f64>,
}

/// A second or so of load in a duel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// From the run's start to that of the slice's measured phase.
    pub at_s: f64,
    /// Length of the measured phase.
    pub duration_s: f64,
    /// Transactions committed in it.
    pub committed: u64,
    /// What others took meanwhile of the cpu that server and client wanted, as a share; `None` where it was not seen.
    #[serde(default)]
    pub taken_share: Option<f64>,
    /// It is part of the run's figures: a disturbed slice is left out where enough others were quiet.
    #[serde(default = "yes")]
    pub is_counted: bool,
}

fn yes() -> bool {
    true
}

impl Slice {
    /// Committed transactions per second.
    pub fn tps(&self) -> f64 {
        self.committed as f64 / self.duration_s.max(1e-9)
    }
}

/// What is known when a run begins.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStart {
    /// Place in the whole plan, from 0; 0 where there is no plan.
    pub index: u32,
    /// Point of the axes' product, without the load level.
    pub key: Key,
    /// Session counts of its steps: one for a run of the `sessions` axis, the whole ladder for a climb.
    pub levels: Vec<u32>,
    /// The levels are ordered steps of one server life.
    pub is_climb: bool,
    /// Block, from 1.
    pub block: u32,
    /// Repeat of this cell and level, from 1.
    pub repeat: u32,
    /// Place within the block's random order, from 1.
    pub position: u32,
    pub purpose: Purpose,
    /// Seed of this run's load.
    pub seed: u64,
    pub host: HostId,
    /// The server's binaries; `None` for an attached server.
    pub build: Option<BuildId>,
    /// Milliseconds since 1970.
    pub started_at_ms: i64,
}

impl RunStart {
    /// A timed run that belongs to no plan, and begins now: the first of its block, on a host and a build that nobody has
    /// named yet.
    pub fn new(key: Key, levels: Vec<u32>, seed: u64, started_at_ms: i64) -> RunStart {
        RunStart {
            index: 0,
            key,
            levels,
            is_climb: false,
            block: 1,
            repeat: 1,
            position: 1,
            purpose: Purpose::Measure,
            seed,
            host: HostId(0),
            build: None,
            started_at_ms,
        }
    }
}

/// The server as it says itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerFacts {
    /// `flavor@version[+label]`, a sandbox's name, or the URL without its password.
    pub name: String,
    /// What the server answers to `SELECT version()`.
    pub version_text: String,
    /// All settings as the server reports them after the run.
    pub settings: BTreeMap<String, String>,
    pub settings_asked: BTreeMap<String, String>,
    /// The command line and environment of the server process, without secrets.
    pub command: String,
    /// Storage engine, with the name of its build where that matters (`InnoDB (XtraDB 5.6.37-82.2)`).
    pub engine: String,
    /// `full`, `server-crash` ... : what a committed transaction survives, see `durability_why`.
    pub durability_class: String,
    /// The settings that decide the class and what they mean.
    pub durability_why: String,
    /// The settings that decide the class, as the server was started with them: an audit of the same build with the
    /// same ones speaks for this run.
    #[serde(default)]
    pub deciding: BTreeMap<String, String>,
    /// The command line that audits them; empty for a server that is not ours to kill.
    #[serde(default)]
    pub audit_command: String,
    /// Transaction isolation level of the sessions.
    pub isolation: String,
    /// Character set of the tables.
    pub charset: String,
    /// Collation of the tables.
    pub collation: String,
    /// Cpus that the server may use, as a list (`0-3,8`); empty: all.
    pub cpus: String,
    /// Cpus that the client may use, as a list; empty: all.
    pub client_cpus: String,
    /// Place of the data directory: name, path, file system, limits.
    pub storage: BTreeMap<String, String>,
}

/// The work as it was configured.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadFacts {
    /// `oltp_read_only`.
    pub name: String,
    /// Every option with its value, defaults included.
    pub options: BTreeMap<String, String>,
    /// What decides the loaded bytes.
    pub dataset_key: String,
    /// How the tables came to be: `loaded` (with which statement), `snapshot`, `kept`.
    pub data_from: String,
    /// Size on disk before the run, where known.
    pub data_bytes: Option<u64>,
    /// The headline that the workload itself defines, where it has one (NOPM of TPC-C), with its unit.
    pub headline: Option<(String, String, f64)>,
}

/// How long a phase took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// provision, load, prime, warm up, measure, drain ...
    pub name: String,
    /// Seconds.
    pub duration_s: f64,
}

/// A consistency check of the tables after a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// What was compared: `rows of sbtest1`.
    pub name: String,
    pub is_ok: bool,
    /// What the counted outcomes imply.
    pub expected: String,
    pub found: String,
}

/// How transactions ended; exclusive. As in `load`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcomes {
    pub committed: u64,
    pub rolled_back: u64,
    pub deadlock: u64,
    pub serialization: u64,
    pub lock_timeout: u64,
    pub constraint: u64,
    pub connection: u64,
    pub other: u64,
    pub skipped: u64,
}

impl Outcomes {
    /// All transactions that ended as failed.
    pub fn failed(&self) -> u64 {
        self.deadlock
            + self.serialization
            + self.lock_timeout
            + self.constraint
            + self.connection
            + self.other
    }
    pub fn started(&self) -> u64 {
        self.committed + self.rolled_back + self.failed()
    }
}

/// How often an error occurred.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTally {
    /// Times, retried ones included.
    pub count: u64,
    /// The text of the first one.
    pub text: String,
}

/// What the client used during the measured phase.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientUsage {
    pub workers: u32,
    /// User cpu of the whole process.
    pub cpu_user_s: f64,
    /// System cpu of the whole process.
    pub cpu_sys_s: f64,
    /// Cpu of the busiest worker divided by the phase's length.
    pub cpu_share: f64,
    /// Share of the time that workers could have run and did not.
    pub run_queue_share: f64,
    /// 99th percentile of the lag of a due wake-up.
    pub schedule_lag_p99_ms: f64,
    /// The client set the limit.
    pub is_bound: bool,
    /// Of one of several processes: the name of its machine, where that is not the one that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Of one of several processes: how long after the agreed instant it let its sessions go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_lag_ms: Option<f64>,
    /// Of one of several processes: how far its clock was from that of the one that measured, and how well that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_offset_us: Option<f64>,
    /// See [`ClientUsage::clock_offset_us`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_within_us: Option<f64>,
    /// Processes that had the sessions, where it was not the one that measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clients: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<ClientUsage>,
}

/// One statement class of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Statement {
    /// `point_select`.
    pub name: String,
    pub count: u64,
    /// From send to complete answer, in [`LatencyUnit`].
    pub latency: Histogram<u64>,
}

/// One second of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Interval {
    /// 1 for the first second of the measured phase; 0 and below are warm-up.
    pub second: i64,
    pub duration_s: f64,
    pub outcomes: Outcomes,
    pub reads: u64,
    pub writes: u64,
    pub other: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Scheduled and not started at its end (open loop).
    pub backlog: u64,
    /// Response times in it, in [`LatencyUnit`].
    pub response: PackedHistogram,
    /// Service times, where they differ (open loop).
    pub service: Option<PackedHistogram>,
    /// Statements that ended in it, by their place in [`Step::by_statement`]; those that none ended of are absent.
    pub by_statement: BTreeMap<u32, PackedHistogram>,
}

/// What reports show of one second: its histograms stay in the results file, because those of a long run would not fit
/// into memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Second {
    /// As [`Interval::second`].
    pub second: i64,
    pub duration_s: f64,
    /// Transactions that were committed in it.
    pub committed: u64,
    /// Transactions that failed in it.
    pub failed: u64,
    /// Statements that ended in it.
    pub statements: u64,
    /// Scheduled and not started at its end (open loop).
    pub backlog: u64,
    /// Response times in it; `None` where nothing ended.
    pub response: Option<SecondResponse>,
}

/// Response times of one second in ms.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SecondResponse {
    /// Transactions that they are of.
    pub count: u64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl Step {
    /// The seconds that are whole.
    pub fn whole_seconds(&self) -> impl Iterator<Item = &Second> {
        let is_whole = self.whole();
        self.seconds.iter().filter(move |second| is_whole(second))
    }

    /// Which seconds are whole: measured ones that are as long as they are to be, a second, in a duel a slice. The last one
    /// of a phase may be shorter; timers are not exact to the last digit.
    pub fn whole(&self) -> impl Fn(&Second) -> bool {
        let measured = self.seconds.iter().filter(|second| second.second >= 1);
        let longest_s = measured.map(|second| second.duration_s).fold(0.0, f64::max).min(1.0);
        move |second| second.second >= 1 && second.duration_s > 0.95 * longest_s
    }
}

impl Interval {
    /// What reports show of it. `response` is its histogram: whoever has it at hand need not unpack it.
    pub fn figures(&self, response: &Histogram<u64>) -> Second {
        let at = |quantile: f64| LatencyUnit::to_ms(response.value_at_quantile(quantile) as f64);
        Second {
            second: self.second,
            duration_s: self.duration_s,
            committed: self.outcomes.committed,
            failed: self.outcomes.failed(),
            statements: self.reads + self.writes + self.other,
            backlog: self.backlog,
            response: (!response.is_empty()).then(|| SecondResponse {
                count: response.len(),
                p50: at(0.50),
                p95: at(0.95),
                p99: at(0.99),
                max: LatencyUnit::to_ms(response.max() as f64),
            }),
        }
    }
}

/// One load level.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub sessions: u32,
    /// Arrivals per second of an open loop; `None`: closed.
    pub rate_tps: Option<f64>,
    /// `constant` or `poisson`, in open loop.
    pub arrivals: Option<String>,
    /// From the run's start to the start of this step's measured phase: one time axis for climbs and telemetry.
    pub offset_s: f64,
    /// Warm-up before it.
    pub warmup_s: f64,
    /// Length of the measured phase.
    pub duration_s: f64,
    pub connect_s: f64,
    /// Transactions that ended in the measured phase.
    pub outcomes: Outcomes,
    /// Transactions of the whole step, warm-up and drain included.
    pub outcomes_whole: Outcomes,
    pub reads: u64,
    pub writes: u64,
    pub other: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Started and not ended at the end of the measured phase.
    pub in_flight_at_end: u64,
    /// Scheduled and not started at the end of the measured phase.
    pub backlog_at_end: u64,
    /// Of both: finished while draining.
    pub drained: u64,
    /// Response times of the measured phase, in [`LatencyUnit`].
    pub response: Histogram<u64>,
    /// Service times, where they differ.
    pub service: Option<Histogram<u64>>,
    pub by_statement: Vec<Statement>,
    /// By the field's code (`1213`, `40P01`).
    pub errors: BTreeMap<String, ErrorTally>,
    /// Second by second, warm-up included.
    pub seconds: Vec<Second>,
    /// Of these, in full, those that [`crate::Store::add_intervals`] has not recorded yet; none when read back.
    pub intervals: Vec<Interval>,
    pub client: ClientUsage,
    /// What ended the step early, if anything did.
    pub ended_by: Option<String>,
    /// Arrivals of the measured phase, in open loop.
    pub arrivals_offered: Option<u64>,
    /// Response times of transactions that failed, in [`LatencyUnit`].
    pub failed: Option<Histogram<u64>>,
    /// Transactions that never ended.
    pub unended: Option<Unended>,
    /// Times without a commit.
    pub stalls: Option<Stalls>,
}

/// Transactions that never ended: they stand in the response times with the time that they had waited.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Unended {
    /// How many; 0: every percentile is exact.
    pub transactions: u64,
    /// The shortest time that one of them had waited: percentiles from there on are lower bounds.
    pub from_ms: f64,
}

/// Times in which no transaction was committed while at least one waited. As in `load`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalls {
    /// Whole seconds without a commit.
    pub seconds: u32,
    /// The longest time without a commit, among those of a second or longer and those that a second's end lies in.
    pub longest_s: f64,
}

/// A telemetry series over a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// `host`, `server`, `client`, `process`, `device`.
    pub source: String,
    /// Common name, with its unit last where it has one: `dirty_pages`, `cpu_user_share`, `checkpoint_age_bytes`.
    pub name: String,
    /// Which one of several: a cpu, a device; empty where there is one.
    pub instance: String,
    /// Unit as shown: `share`, `B/s`, `1/s`, `B`.
    pub unit: String,
    /// Seconds since the run's start, and the value. Read back, those of a run of hours are means over spans.
    pub points: Vec<(f64, f64)>,
}

/// Where figures on a lock come from; it decides which of them are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LockSource {
    /// MySQL's performance_schema: exact counts and waits.
    PerformanceSchema,
    /// Sampled `pg_stat_activity`: waits only.
    WaitEvents,
    /// Sampled futex addresses: waits with an interval, no counts.
    Futex,
    /// `perf`: counts, waits and callers.
    Perf,
}

/// One line of a hot-lock table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotLock {
    /// Step of the run, by its sessions.
    pub sessions: u32,
    pub source: LockSource,
    pub lock: String,
    /// Who took it; empty where unknown.
    pub caller: String,
    /// Waits (or acquisitions, with [`LockSource::PerformanceSchema`]); `None` where sampling cannot tell.
    pub count: Option<u64>,
    /// Seconds waited by all threads together.
    pub wait_total_s: f64,
    /// 95 % interval of `wait_total_s`, where it was sampled.
    pub wait_interval_s: Option<(f64, f64)>,
    pub observed_s: f64,
}

/// What is known when a run has ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunEnd {
    /// Anything but [`Status::Running`].
    pub status: Status,
    /// Why it failed or is invalid, with a remedy.
    pub error: Option<String>,
    /// The server's last log lines, where it failed.
    pub log_tail: String,
    /// File of the whole log, within the results directory; empty where none was kept.
    pub log_file: String,
    /// Milliseconds since 1970.
    pub ended_at_ms: i64,
    pub server: ServerFacts,
    pub workload: WorkloadFacts,
    /// How long each phase took, in order.
    pub phases: Vec<Phase>,
    /// Suspicions with a remedy.
    pub warnings: Vec<String>,
    /// All gates, those that could not be looked at included.
    pub gates: Vec<Gate>,
    pub checks: Vec<Check>,
    /// Load levels, in order.
    pub steps: Vec<Step>,
    pub series: Vec<Series>,
    pub hot_locks: Vec<HotLock>,
    /// Anything else worth printing.
    pub facts: BTreeMap<String, String>,
    /// Where it was a side of a duel. Its one step is all of its slices.
    pub duel: Option<Duel>,
    /// What was changed of its server while it was loaded.
    pub interventions: Vec<Intervention>,
    /// Where it was a search for load lines. Its one step is a line that was held.
    pub line: Option<LineId>,
}

impl RunEnd {
    /// An end of which nothing more is known.
    pub fn new(status: Status, ended_at_ms: i64) -> RunEnd {
        RunEnd { status, ended_at_ms, ..RunEnd::default() }
    }

    /// Adds a warning, unless it is there; whether it was new.
    pub fn warn(&mut self, text: String) -> bool {
        let is_new = !self.warnings.contains(&text);
        if is_new {
            self.warnings.push(text);
        }
        is_new
    }

    /// Whether the figures of a load level may be used. In files of earlier versions a run is invalid, too, for how its
    /// server behaved: that is a result like any other, and it counts.
    pub fn counts_at(&self, level: u32) -> bool {
        match self.status {
            Status::Done => true,
            Status::Invalid => {
                self.gates.iter().any(Gate::is_tripped)
                    && !self.gates.iter().any(|gate| gate.excludes() && gate.covers(level))
            }
            Status::Running | Status::Failed | Status::Interrupted => false,
        }
    }
}

/// What resuming needs to know of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct RunHead {
    pub id: RunId,
    pub study: StudyId,
    pub start: RunStart,
    /// 1 for the first try of this cell, levels, block and purpose.
    pub attempt: u32,
    pub status: Status,
    /// Why it failed or is invalid.
    pub error: Option<String>,
    /// In milliseconds since 1970; `None` while it runs or where its process was killed.
    pub ended_at_ms: Option<i64>,
}

/// A whole run, as read back.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub head: RunHead,
    /// What it gave; `None` while it runs or where its process was killed.
    pub end: Option<RunEnd>,
}
