//! What a load gave: plain data, complete enough that nothing has to be measured again.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

/// How transactions ended. Exclusive; retries are counted apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcomes {
    /// Confirmed by the server.
    pub committed: u64,
    /// Rolled back on purpose.
    pub rolled_back: u64,
    /// Failed: deadlock victim.
    pub deadlock: u64,
    /// Failed: serialization.
    pub serialization: u64,
    /// Failed: lock wait timeout.
    pub lock_timeout: u64,
    /// Failed: constraint.
    pub constraint: u64,
    /// Failed: connection.
    pub connection: u64,
    /// Failed: anything else.
    pub other: u64,
    /// Never started: the session declined, or it was scheduled and censored at the end of the step.
    pub skipped: u64,
}

/// Response and service time of the same transactions. In closed loop they are equal and `service` is `None`.
/// Values are units of 100 ns, 3 significant digits, up to 1 hour ([`crate::recorder`] has the bounds).
#[derive(Debug, Clone)]
pub struct LatencyPair {
    /// End minus intended start.
    pub response: Histogram<u64>,
    /// End minus start.
    pub service: Option<Histogram<u64>>,
}

/// One statement class of a workload over a step.
#[derive(Debug, Clone)]
pub struct StatementResult {
    /// Its name (`point_select`).
    pub name: String,
    /// How many.
    pub count: u64,
    /// From send to the complete answer.
    pub latency: Histogram<u64>,
}

/// One second of a step.
#[derive(Debug, Clone)]
pub struct IntervalResult {
    /// 1 for the first second of the measured phase; 0 and below are warm-up.
    pub second: i64,
    /// Length; 1.0 but for the last one of a step.
    pub duration_s: f64,
    /// Outcomes of transactions that ended in it.
    pub outcomes: Outcomes,
    /// Statements that ended in it.
    pub reads: u64,
    /// Statements that ended in it.
    pub writes: u64,
    /// Statements that ended in it.
    pub other: u64,
    /// Retries in it.
    pub retries: u64,
    /// Scheduled and not yet started when it ended (open loop).
    pub backlog: u64,
    /// Latency of the transactions that ended in it.
    pub latency: LatencyPair,
    /// Latency by statement class, in the order of [`StepResult::by_statement`].
    pub by_statement: Vec<Histogram<u64>>,
}

/// How often an error occurred, by its code.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorTally {
    /// Times, retried ones included.
    pub count: u64,
    /// The text of the first one.
    pub text: String,
}

/// What the client itself used during the measured phase.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ClientUsage {
    /// Worker threads.
    pub workers: u32,
    /// User CPU of the whole process.
    pub cpu_user_s: f64,
    /// System CPU of the whole process.
    pub cpu_sys_s: f64,
    /// CPU of the busiest worker divided by the phase's length.
    pub cpu_share: f64,
    /// Time that workers were runnable and not running (`/proc/self/task/*/schedstat`), per worker-second.
    pub run_queue_share: f64,
    /// 99th percentile of how late a due wake-up was served, in ms.
    pub schedule_lag_p99_ms: f64,
    /// The client, not the server, set the limit.
    pub is_bound: bool,
}

/// One load level.
#[derive(Debug, Clone)]
pub struct StepResult {
    /// Sessions.
    pub sessions: u32,
    /// Length of the measured phase.
    pub duration_s: f64,
    /// How long connecting took.
    pub connect_s: f64,
    /// Outcomes of the transactions that ended in the measured phase.
    pub outcomes: Outcomes,
    /// Statements in the measured phase.
    pub reads: u64,
    /// Statements in the measured phase.
    pub writes: u64,
    /// Statements in the measured phase.
    pub other: u64,
    /// Attempts after the first.
    pub retries: u64,
    /// Started and not ended at the end of the measured phase.
    pub in_flight_at_end: u64,
    /// Scheduled and not started at the end of the measured phase.
    pub backlog_at_end: u64,
    /// Of in-flight and backlog together: finished while draining, hence known but not in the figures.
    pub drained: u64,
    /// Transactions of the whole step, warm-up and drain included: what the tables must account for.
    pub outcomes_whole: Outcomes,
    /// Latency of the measured phase.
    pub latency: LatencyPair,
    /// By statement class.
    pub by_statement: Vec<StatementResult>,
    /// By code.
    pub errors: BTreeMap<String, ErrorTally>,
    /// Second by second, warm-up included.
    pub intervals: Vec<IntervalResult>,
    /// The client itself.
    pub client: ClientUsage,
    /// What ended the step early, if anything did.
    pub ended_by: Option<String>,
}

/// All levels of one run.
#[derive(Debug, Clone, Default)]
pub struct LoadResult {
    /// In the order of the plan.
    pub steps: Vec<StepResult>,
    /// Stopped by the user.
    pub interrupted: bool,
}
