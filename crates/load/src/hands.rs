//! Who drives the sessions for the coordinator: threads of this process, or those of client processes.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use crate::clients::{Line, Order};
use crate::memory;
use crate::plan::{Length, Pacing, Step};
use crate::recording::{IntervalData, Timeline};
use crate::schedule::Share;
use crate::state::StepShared;
use crate::worker::Command;

/// What connects the coordinator, or a client process, to a worker in the same process.
pub(crate) struct Link {
    pub(crate) commands: Sender<Command>,
    /// Emptied intervals go back to be filled again.
    pub(crate) spares: Sender<Box<IntervalData>>,
}

impl Link {
    /// Has the worker do something. One that is gone has said so, or will.
    pub(crate) fn command(&self, command: Command) {
        let _ = self.commands.send(command);
    }
}

/// All workers of a load.
pub(crate) enum Hands<'a> {
    /// Threads of this process, which end when these are dropped.
    Own(Vec<Link>),
    /// Worker `w` of the load lives in client `w % clients`, where it is number `w / clients`: so sessions, which are
    /// dealt out to workers in turn, are spread evenly over clients, too.
    Clients { lines: &'a [Line<'a>], workers: usize },
}

impl Hands<'_> {
    /// All of them.
    pub(crate) fn workers(&self) -> usize {
        match self {
            Hands::Own(links) => links.len(),
            Hands::Clients { workers, .. } => *workers,
        }
    }

    /// Processes that they live in.
    pub(crate) fn clients(&self) -> usize {
        match self {
            Hands::Own(_) => 1,
            Hands::Clients { lines, .. } => lines.len(),
        }
    }

    /// From the command to the start of a step: all of them must have heard of it. Through pipes it takes longer, and who
    /// reads them may have to wait for a cpu.
    pub(crate) fn head_start(&self) -> Duration {
        match self {
            Hands::Own(_) => Duration::from_millis(2),
            Hands::Clients { lines, .. } => {
                let slowest = lines.iter().map(|line| line.order_takes()).max().unwrap_or_default();
                Duration::from_millis(30) + 4 * slowest
            }
        }
    }

    /// See [`Command::Connect`].
    pub(crate) fn connect(&self, sessions: u32, ramp: Duration) {
        match self {
            Hands::Own(links) => {
                links.iter().for_each(|link| link.command(Command::Connect { sessions, ramp }));
            }
            Hands::Clients { lines, .. } => {
                lines.iter().for_each(|line| line.order(&Order::Connect { sessions, ramp }));
            }
        }
    }

    /// All sessions are connected and none of them runs. Clients have done it when they say so.
    pub(crate) fn gather_memory(&self) {
        if let Hands::Own(_) = self {
            memory::gather();
        }
    }

    /// Begins a step. `quota`: transactions of a step that has a fixed number of them. Answers what the workers of this
    /// process share.
    pub(crate) fn begin(
        &self,
        step: &Step,
        timeline: Timeline,
        quota: Option<u64>,
    ) -> Option<Arc<StepShared>> {
        let workers = self.workers();
        match self {
            Hands::Own(links) => {
                let shared = Arc::new(StepShared::new(quota, workers as u32));
                for (worker, link) in links.iter().enumerate() {
                    let share = share_of(step, worker, workers);
                    link.command(Command::Begin { timeline, shared: shared.clone(), share });
                }
                Some(shared)
            }
            Hands::Clients { lines, .. } => {
                let clients = lines.len();
                for (client, line) in lines.iter().enumerate() {
                    let shares =
                        (client..workers).step_by(clients).map(|worker| share_of(step, worker, workers));
                    // What one has not begun, another one cannot: each has its own part of the transactions.
                    let of = |worker: usize| {
                        (worker % clients == client).then(|| sessions_of(step, worker, workers))
                    };
                    let mine: u64 = (0..workers).filter_map(of).sum();
                    let of = |worker: usize| {
                        (worker % clients < client).then(|| sessions_of(step, worker, workers))
                    };
                    let before: u64 = (0..workers).filter_map(of).sum();
                    let quota = quota.map(|count| part_of(count, before, mine, step.sessions));
                    line.begin(timeline, quota, shares.collect());
                }
                None
            }
        }
    }

    /// An interval that was merged.
    pub(crate) fn give_back(&self, worker: usize, mut data: Box<IntervalData>) {
        if let Hands::Own(links) = self {
            data.clear();
            let _ = links[worker].spares.send(data);
        }
    }
}

/// Sessions of a worker: they are dealt out in turn.
fn sessions_of(step: &Step, worker: usize, workers: usize) -> u64 {
    (worker..step.sessions as usize).step_by(workers).count() as u64
}

/// The part of `count` that falls to `mine` sessions of `of`, after `before` that have had theirs. Rounded so that the
/// parts sum up.
fn part_of(count: u64, before: u64, mine: u64, of: u32) -> u64 {
    let until = |sessions: u64| u128::from(count) * u128::from(sessions) / u128::from(of);
    (until(before + mine) - until(before)) as u64
}

/// A worker's part of the arrivals: as large as its part of the sessions.
fn share_of(step: &Step, worker: usize, workers: usize) -> Option<Share> {
    let Pacing::Open { rate_tps, arrivals } = step.pacing else { return None };
    let before: u64 = (0..worker).map(|worker| sessions_of(step, worker, workers)).sum();
    let mine = sessions_of(step, worker, workers);
    let part = mine as f64 / f64::from(step.sessions);
    let count = match step.length {
        Length::Time(_) => None,
        Length::Transactions { count, .. } => Some(part_of(count, before, mine, step.sessions)),
    };
    // A worker without sessions gets arrivals that never come.
    let rate_tps = (rate_tps * part).max(f64::MIN_POSITIVE);
    Some(Share { rate_tps, offset: worker as f64 / workers as f64, arrivals, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Arrivals;

    #[test]
    fn shares_sum_up_however_uneven_the_parts_are() {
        for (sessions, workers, count) in
            [(8, 2, 100), (7, 3, 100), (100_000, 5, 12_345), (3, 3, 2), (5, 4, 1)]
        {
            let step = Step {
                sessions,
                warmup: Duration::ZERO,
                length: Length::Transactions { count, at_most: None },
                pacing: Pacing::Open { rate_tps: 1_000.0, arrivals: Arrivals::Poisson },
            };
            let shares: Vec<Share> = (0..workers).filter_map(|w| share_of(&step, w, workers)).collect();
            assert_eq!(shares.iter().filter_map(|share| share.count).sum::<u64>(), count);
            let rate: f64 = shares.iter().map(|share| share.rate_tps).sum();
            assert!((rate - 1_000.0).abs() < 1e-6, "{rate}");
            let all: u64 = (0..workers).map(|worker| sessions_of(&step, worker, workers)).sum();
            assert_eq!(all, u64::from(sessions));
        }
    }
}
