//! One rate on a running server: Poisson arrivals, cut where the search has seen enough.

use std::time::{Duration, Instant};

use load::{Length, LoadError, LoadPlan, LoadResult, Pacing, Step, StepResult, Stop};
use stats::line::{Purpose, Seen, is_over};
use workload::Ran;

use super::Promise;
use super::promise::longest_limit;
use crate::duel::in_parts;
use crate::error::Error;
use crate::stop::StopSwitch;

#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    /// A closed loop for the climb, Poisson arrivals for all else.
    pub pacing: Pacing,
    pub sessions: u32,
    /// Before it, not counted.
    pub warmup: Duration,
    /// Measured for so long, unless it is plain before on which side of the line it lies.
    pub length: Duration,
    /// In so many parts; 1 is in one piece. In a duel the other sides have theirs in between.
    pub parts: u32,
    /// Before each part but the first, not counted.
    pub part_warmup: Duration,
    pub purpose: Purpose,
    /// Place of the promise whose line it confirms, where it does: it ends where that is broken whatever comes.
    pub held: Option<usize>,
    /// Of its arrivals and of what the sessions draw.
    pub seed: u64,
}

impl Wanted {
    /// The level as a whole.
    pub fn step(&self) -> Step {
        let Wanted { sessions, warmup, length, pacing, .. } = *self;
        Step { sessions, warmup, length: Length::Time(length), pacing }
    }

    /// As many are to come, of an open loop.
    fn arrivals(&self) -> f64 {
        match self.pacing {
            Pacing::Open { rate_tps, .. } => rate_tps * self.length.as_secs_f64(),
            Pacing::Closed => f64::INFINITY,
        }
    }

    /// The levels as the engine takes them: one for each part.
    fn steps(&self) -> Vec<Step> {
        in_parts(self.step(), self.parts, self.length / self.parts, self.part_warmup)
    }
}

#[derive(Debug, Clone)]
pub struct Tried {
    pub step: StepResult,
    pub ran: Ran,
    /// By promise.
    pub seen: Vec<Seen>,
    /// More arrived than were served, beyond chance, and what waits is a part of the probe's time.
    pub is_overloaded: bool,
    /// Connecting, drain and rest included, and what `told` took.
    pub took: Duration,
}

/// Between two probes.
pub const REST: Duration = Duration::from_secs(1);
/// What is waited for when a probe ends is let go after so many times the longest limit, within these bounds.
const DRAIN_LIMITS: f64 = 4.0;
const DRAIN_S: (f64, f64) = (1.0, 5.0);
/// Share of a probe's time that its end may lag behind.
const BEHIND_MAX: f64 = 0.05;

/// Runs a load as [`load::run`] does, wherever its sessions live.
pub type RunLoad<'a> =
    dyn FnMut(&LoadPlan, &mut dyn FnMut(load::Event<'_>), &Stop) -> Result<LoadResult, LoadError> + 'a;

/// Tries a rate. `names` are the classes of what is sent; `base` has what is the same for all probes: worker threads, cpus,
/// retries. `told` takes what the load tells.
///
/// # Errors
/// The server was lost, or the user stopped it ([`Error::Interrupted`]).
pub fn probe(
    (run_load, names): (&mut RunLoad<'_>, &[String]),
    base: &LoadPlan,
    promises: &[Promise],
    wanted: Wanted,
    told: &mut dyn FnMut(&load::Event<'_>),
    stop: &StopSwitch,
) -> Result<Tried, Error> {
    let began = Instant::now();
    let longest_s = longest_limit(promises).unwrap_or_default().as_secs_f64();
    let plan = LoadPlan {
        steps: wanted.steps(),
        drain: Duration::from_secs_f64((DRAIN_LIMITS * longest_s).clamp(DRAIN_S.0, DRAIN_S.1)),
        seed: wanted.seed,
        raise_priority: true,
        ..base.clone()
    };
    let classes: Vec<Option<usize>> = promises.iter().map(|promise| promise.class_in(names)).collect();
    let allowed: Vec<f64> = promises.iter().map(Promise::allowed).collect();
    let enough = Stop::new();
    let mut seen = vec![Seen::default(); promises.len()];
    let watched = &mut |event: load::Event<'_>| {
        told(&event);
        if let load::Event::Interval { interval, .. } = event
            && interval.second >= 1
        {
            for ((seen, promise), class) in seen.iter_mut().zip(promises).zip(&classes) {
                seen.seconds.push(promise.of_second(interval, *class));
            }
            let held = wanted.held.map(|at| (at, wanted.arrivals()));
            if is_over(&seen, &allowed, wanted.purpose, held) {
                enough.request();
            }
        }
        if stop.is_requested() {
            enough.request();
        }
    };
    let result = match run_load(&plan, watched, &enough) {
        Err(LoadError::Plan(text)) => return Err(Error::Usage(text)),
        Err(error) => return Err(Error::Server(error.to_string())),
        Ok(result) => result,
    };
    let ran = Ran::of(&result);
    if stop.is_requested() {
        return Err(Error::Interrupted);
    }
    if result.steps.is_empty() {
        return Err(Error::Run("the load ended before its first step".into()));
    }
    let step = StepResult::merged(&result.steps);
    if let Some(reason) = &step.ended_by {
        return Err(Error::Server(reason.clone()));
    }
    for (seen, promise) in seen.iter_mut().zip(promises) {
        seen.total = promise.of_step(&step);
    }
    let is_overloaded = falls_behind(&step);
    // After one in parts another side's is the rest.
    if matches!(wanted.pacing, Pacing::Open { .. }) && wanted.parts == 1 {
        std::thread::sleep(REST);
    }
    Ok(Tried { step, ran, seen, is_overloaded, took: began.elapsed() })
}

/// What was left at the end is more than chance makes of Poisson arrivals, and more than a part of the probe's time.
fn falls_behind(step: &StepResult) -> bool {
    let Some(arrivals) = step.arrivals else { return false };
    let (arrivals, left) = (arrivals as f64, step.backlog_at_end as f64);
    left > 6.0 * arrivals.sqrt() && left > BEHIND_MAX * arrivals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_probe_are_as_long_as_it_is() {
        let s = Duration::from_secs;
        let of = |parts| {
            let wanted = Wanted {
                pacing: Pacing::Closed,
                sessions: 4,
                warmup: s(2),
                length: s(8),
                parts,
                part_warmup: s(1),
                purpose: Purpose::Refine,
                held: None,
                seed: 0,
            };
            let times = wanted.steps().into_iter().map(|step| (step.warmup, step.length));
            times.collect::<Vec<_>>()
        };
        assert_eq!(of(1), [(s(2), Length::Time(s(8)))]);
        let later = (s(1), Length::Time(s(2)));
        assert_eq!(of(4), [(s(2), Length::Time(s(2))), later, later, later]);
    }

    #[test]
    fn a_backlog_beyond_chance_is_overload() {
        let step = |arrivals, backlog_at_end| StepResult {
            arrivals: Some(arrivals),
            backlog_at_end,
            ..StepResult::default()
        };
        assert!(falls_behind(&step(10_000, 1_000)));
        assert!(!falls_behind(&step(10_000, 400)), "within chance");
        assert!(!falls_behind(&step(1_000_000, 20_000)), "two hundredths of the time");
        assert!(!falls_behind(&StepResult { backlog_at_end: 9, ..StepResult::default() }), "a closed loop");
    }
}
