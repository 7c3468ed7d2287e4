//! What a load gave: plain data, complete enough that nothing has to be measured again.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use serde::{Deserialize, Serialize};

use crate::clients::ClockAgreement;
use crate::histogram::Histogram;
use crate::session::FailureClass;

/// How transactions ended. Exclusive; retries are counted apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Never run: the session declined, or it was scheduled and censored at the end of the step.
    pub skipped: u64,
}

impl StepResult {
    /// The slices of a level that was measured in several, as if they were one: counts summed, histograms added, shares of
    /// the client weighted by length. Without slices there is nothing.
    pub fn merged(slices: &[StepResult]) -> StepResult {
        let Some((first, rest)) = slices.split_first() else { return StepResult::default() };
        let mut all = first.clone();
        for slice in rest {
            all.duration_s += slice.duration_s;
            all.connect_s += slice.connect_s;
            all.outcomes += slice.outcomes;
            all.outcomes_whole += slice.outcomes_whole;
            all.reads += slice.reads;
            all.writes += slice.writes;
            all.other += slice.other;
            all.retries += slice.retries;
            all.reconnects += slice.reconnects;
            all.in_flight_at_end += slice.in_flight_at_end;
            all.backlog_at_end += slice.backlog_at_end;
            all.drained += slice.drained;
            if let Some(arrivals) = slice.arrivals {
                *all.arrivals.get_or_insert(0) += arrivals;
            }
            all.stalls.seconds += slice.stalls.seconds;
            all.stalls.longest_s = all.stalls.longest_s.max(slice.stalls.longest_s);
            ErrorTally::add(&mut all.errors, slice.errors.clone());
            all.ended_by = all.ended_by.or(slice.ended_by.clone());
        }
        let merged = |of: &dyn Fn(&StepResult) -> &Histogram| Histogram::merged(slices.iter().map(of));
        all.latency.response = merged(&|slice| &slice.latency.response);
        if slices.iter().any(|slice| slice.latency.service.is_some()) {
            let service = |slice: &StepResult| {
                slice.latency.service.clone().unwrap_or_else(|| slice.latency.response.clone())
            };
            all.latency.service = Some(Histogram::merged(&slices.iter().map(service).collect::<Vec<_>>()));
        }
        all.failed = merged(&|slice| &slice.failed);
        all.unended = merged(&|slice| &slice.unended);
        for (at, statement) in all.by_statement.iter_mut().enumerate() {
            let parts = || slices.iter().filter_map(move |slice| slice.by_statement.get(at));
            statement.count = parts().map(|part| part.count).sum();
            statement.latency = Histogram::merged(parts().map(|part| &part.latency));
        }
        let of_slices = |of: &dyn Fn(&StepResult) -> Option<&ClientUsage>| {
            let usages = slices.iter().filter_map(|slice| Some((of(slice)?, slice.duration_s)));
            ClientUsage::merged(&usages.collect::<Vec<_>>())
        };
        all.client = of_slices(&|slice| Some(&slice.client));
        all.clients = (0..first.clients.len()).map(|at| of_slices(&|slice| slice.clients.get(at))).collect();
        all
    }

    /// Whether a percentile (0 to 1) of the response time is but a lower bound: some that never ended had waited no
    /// longer than it.
    pub fn is_at_least(&self, quantile: f64) -> bool {
        !self.unended.is_empty() && self.latency.response.quantile_ns(quantile) >= self.unended.min_ns()
    }
}

impl Outcomes {
    /// Deadlock, serialization, lock timeout, constraint, connection and other.
    pub fn failed(&self) -> u64 {
        self.deadlock
            + self.serialization
            + self.lock_timeout
            + self.constraint
            + self.connection
            + self.other
    }

    /// All of them, skipped ones included.
    pub fn total(&self) -> u64 {
        self.committed + self.rolled_back + self.failed() + self.skipped
    }

    /// The counter of a failure's class.
    pub(crate) fn of_failure(&mut self, class: FailureClass) -> &mut u64 {
        match class {
            FailureClass::Deadlock => &mut self.deadlock,
            FailureClass::Serialization => &mut self.serialization,
            FailureClass::LockTimeout => &mut self.lock_timeout,
            FailureClass::Constraint => &mut self.constraint,
            FailureClass::Connection => &mut self.connection,
            FailureClass::Other => &mut self.other,
        }
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, more: Outcomes) {
        self.committed += more.committed;
        self.rolled_back += more.rolled_back;
        self.deadlock += more.deadlock;
        self.serialization += more.serialization;
        self.lock_timeout += more.lock_timeout;
        self.constraint += more.constraint;
        self.connection += more.connection;
        self.other += more.other;
        self.skipped += more.skipped;
    }
}

/// Response and service time of the same transactions. In closed loop they are equal and `service` is `None`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatencyPair {
    /// End minus intended start.
    pub response: Histogram,
    /// End minus start.
    pub service: Option<Histogram>,
}

/// One class of statements of a workload, or of whole transactions, over a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StatementResult {
    /// Its name (`point_select`).
    pub name: String,
    /// How many ended in it.
    pub count: u64,
    /// Of a statement, from send to the complete answer. Of a class of transactions the response time from the intended
    /// start, of those that were to begin in the measured phase; what ended after it is among them.
    pub latency: Histogram,
}

/// One second of a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct IntervalResult {
    /// 1 for the first second of the measured phase; 0 and below are warm-up. Negative without bound when the
    /// warm-up is long.
    pub second: i64,
    /// Length; 1.0 but for the last one of a step and, where the warm-up is not of whole seconds, the first.
    pub duration_s: f64,
    /// Outcomes of transactions that ended in it.
    pub outcomes: Outcomes,
    /// Statements that ended in it.
    pub reads: u64,
    /// Statements that ended in it.
    pub writes: u64,
    /// Statements that ended in it.
    pub other: u64,
    pub retries: u64,
    /// Connections lost and opened again in it.
    pub reconnects: u64,
    /// Sessions that had a connection when it ended.
    pub connected: u32,
    /// Scheduled and not yet started when it ended (open loop).
    pub backlog: u64,
    /// Started and not ended when it ended.
    pub in_flight: u32,
    /// Latency of the transactions that ended in it.
    pub latency: LatencyPair,
    /// Latency by statement class, in the order of [`StepResult::by_statement`].
    pub by_statement: Vec<Histogram>,
}

/// How often an error occurred, by its code.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorTally {
    /// Times, retried ones included.
    pub count: u64,
    /// The text of the first one.
    pub text: String,
}

impl ErrorTally {
    /// Adds more of them to the sums; each code keeps its first text.
    pub(crate) fn add(sums: &mut BTreeMap<String, ErrorTally>, more: BTreeMap<String, ErrorTally>) {
        for (code, tally) in more {
            let sum = sums.entry(code).or_insert(ErrorTally { count: 0, text: tally.text });
            sum.count += tally.count;
        }
    }
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
    /// 99th percentile of how late a due wake-up (an arrival, a timer) was served, in ms.
    pub schedule_lag_p99_ms: f64,
    /// How long after the instant that all workers were told the last of them let its sessions go, in ms.
    pub start_lag_ms: f64,
    /// Of one of several client processes: how far its clock agrees with the leader's.
    pub clock: Option<ClockAgreement>,
    /// Of one of several client processes: the name of its machine, where that is not the leader's.
    pub host: Option<String>,
    /// The client, not the server, set the limit; [`ClientUsage::judge`] has the rule.
    pub is_bound: bool,
}

impl ClientUsage {
    /// That of one client in slices of so many seconds.
    fn merged(slices: &[(&ClientUsage, f64)]) -> ClientUsage {
        let whole_s: f64 = slices.iter().map(|(_, duration_s)| duration_s).sum();
        let mean = |of: fn(&ClientUsage) -> f64| {
            let sum: f64 = slices.iter().map(|(client, duration_s)| of(client) * duration_s).sum();
            if whole_s > 0.0 { sum / whole_s } else { 0.0 }
        };
        let clients = || slices.iter().map(|(client, _)| *client);
        let bound = clients().filter(|client| client.is_bound).count();
        ClientUsage {
            workers: clients().map(|client| client.workers).max().unwrap_or(0),
            cpu_user_s: clients().map(|client| client.cpu_user_s).sum(),
            cpu_sys_s: clients().map(|client| client.cpu_sys_s).sum(),
            cpu_share: mean(|client| client.cpu_share),
            run_queue_share: mean(|client| client.run_queue_share),
            // Percentiles cannot be added: that of the slice in the middle.
            schedule_lag_p99_ms: middle(clients().map(|client| client.schedule_lag_p99_ms).collect()),
            start_lag_ms: clients().map(|client| client.start_lag_ms).fold(0.0, f64::max),
            clock: clients().find_map(|client| client.clock),
            host: clients().find_map(|client| client.host.clone()),
            is_bound: 2 * bound > slices.len(),
        }
    }
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// One load level.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepResult {
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
    /// Connections lost and opened again in the measured phase.
    pub reconnects: u64,
    /// Started and not ended at the end of the measured phase.
    pub in_flight_at_end: u64,
    /// Scheduled and not started at the end of the measured phase.
    pub backlog_at_end: u64,
    /// Of in-flight and backlog together: finished while draining, hence known but not in the figures.
    pub drained: u64,
    /// Transactions of the whole step, warm-up and drain included: what the tables must account for.
    pub outcomes_whole: Outcomes,
    /// Arrivals of the measured phase, in open loop.
    pub arrivals: Option<u64>,
    /// Latency of the transactions that were to begin in the measured phase and were committed or rolled back: those
    /// that ended after it, while draining, included, and in the response times those that never ended, by the time that
    /// they had waited (see [`StepResult::unended`]).
    pub latency: LatencyPair,
    /// Response times of those that failed.
    pub failed: Histogram,
    /// Those that never ended, by the time that they had waited.
    pub unended: Histogram,
    /// Times without a commit while somebody waited for one.
    pub stalls: Stalls,
    /// By statement class.
    pub by_statement: Vec<StatementResult>,
    /// By code: what went wrong in the measured phase.
    pub errors: BTreeMap<String, ErrorTally>,
    /// The client itself; all of them together where there are several processes.
    pub client: ClientUsage,
    /// Each of several client processes; empty where there is but one, this one.
    pub clients: Vec<ClientUsage>,
    /// What ended the step early, if anything did.
    pub ended_by: Option<String>,
}

/// Times in which no transaction was committed while at least one waited: the server stood still, or all that was asked of
/// it takes so long.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stalls {
    /// Whole seconds of the measured phase without a commit and with somebody waiting at their end.
    pub seconds: u32,
    /// The longest time from one commit (or from when somebody began to wait, if that was later) to the next, of those
    /// that a second's end lies in: all that last a second or longer. A freeze at the end lasts until the first commit
    /// while draining, or until nothing more was waited for.
    pub longest_s: f64,
}

/// All levels of one run. What happened second by second is told while it runs ([`crate::Event::Interval`]) and not kept: the
/// histograms of a week's seconds would take gigabytes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoadResult {
    /// In the order of the plan.
    pub steps: Vec<StepResult>,
    /// Stopped by the user.
    pub interrupted: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_summed_and_their_histograms_added() {
        let slice = |committed: u64, ms: u64, cpu_share: f64| StepResult {
            sessions: 8,
            duration_s: 1.0,
            outcomes: Outcomes { committed, ..Outcomes::default() },
            latency: LatencyPair { response: Histogram::of(vec![ms * 1_000_000; 10]), service: None },
            by_statement: vec![StatementResult {
                name: "begin".to_owned(),
                count: 10,
                latency: Histogram::of(vec![ms * 1_000; 10]),
            }],
            errors: BTreeMap::from([("1213".to_owned(), ErrorTally { count: 2, text: "deadlock".into() })]),
            stalls: Stalls { seconds: 1, longest_s: ms as f64 },
            client: ClientUsage { cpu_share, cpu_user_s: 0.1, ..ClientUsage::default() },
            ..StepResult::default()
        };
        let all = StepResult::merged(&[slice(100, 1, 0.2), slice(50, 3, 0.4)]);
        assert_eq!((all.sessions, all.duration_s, all.outcomes.committed), (8, 2.0, 150));
        assert_eq!(all.latency.response.len(), 20);
        assert!((all.latency.response.quantile_ms(0.25) - 1.0).abs() < 0.01);
        assert!((all.latency.response.quantile_ms(0.75) - 3.0).abs() < 0.03);
        assert_eq!(all.by_statement[0].count, 20);
        assert_eq!(all.by_statement[0].latency.len(), 20);
        assert_eq!(all.errors["1213"].count, 4);
        assert_eq!((all.stalls.seconds, all.stalls.longest_s), (2, 3.0));
        assert!((all.client.cpu_share - 0.3).abs() < 1e-9 && (all.client.cpu_user_s - 0.2).abs() < 1e-9);
        assert_eq!(StepResult::merged(&[]), StepResult::default());
    }
}
