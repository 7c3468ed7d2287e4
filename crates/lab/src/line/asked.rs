//! What a search is asked for, and what follows from it.

use std::time::Duration;

use serde::Serialize;
use stats::line::Rules;
use workload::Workload;

use super::Promise;
use super::probe::REST;
use super::promise::{longest_limit, rounded, within_budget};
use crate::error::Error;

/// What a search is asked for, whoever asks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// What the server is to keep; at least one.
    pub promises: Vec<Promise>,
    /// For climb, probes and confirmations together; provisioning is beside it.
    pub budget: Duration,
    /// How long a line is held.
    pub hold: Duration,
    /// No more sessions than this.
    pub sessions_max: u32,
    #[serde(skip_serializing_if = "Debt::is_counted")]
    pub debt: Debt,
}

/// What becomes of the debt that rates leave behind: dirty pages, undo to be purged, dead rows, log without a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Debt {
    /// The rates that follow meet it, so that it counts.
    #[default]
    Counted,
    /// The server pays it before each rate, as before a run; the time is of the budget.
    Drained,
}

impl Debt {
    fn is_counted(&self) -> bool {
        *self == Debt::Counted
    }
}

/// Where the budget is not said: for one search, and for what is held longer than a minute.
const BUDGET: Duration = Duration::from_secs(600);
const HOLD: Duration = Duration::from_secs(60);
/// Of the budget, where the hold is not said.
const HOLD_PART: u32 = 5;
/// Where the sessions are not said.
pub const SESSIONS_MAX: u32 = 256;

/// Before each probe; with a short budget a hundredth of it.
const WARMUP_S: (f64, f64) = (0.5, 2.0);
/// A probe of a duel is made in turns of about so long. What one of two equal servers makes in 20 s over what the other makes
/// in its 20 s spreads here, in turns of 2, 4 and 8 s, by 2.1, 2.5 and 5.4 % (MariaDB) and 2.9, 5.1 and 5.9 % (PostgreSQL:
/// `cargo xtask bench lives turns`); shorter ones would pay more for their warm-up.
const TURN: Duration = Duration::from_secs(2);
/// A turn is so many times the longest limit at least, and its warm-up one: a queue that keeps the promise has forgotten by
/// then most of how it began.
const TURN_LIMITS: u32 = 8;
/// Before each turn, at least and, where the limits are long, at most as before a probe.
const TURN_WARMUP_MIN: Duration = Duration::from_millis(250);
/// Half of the interval that is good enough, relative to the rate.
const PRECISION: f64 = 0.025;
/// Each level of the climb; with a short budget a sixtieth of it. A quarter as long before it.
const CLIMB_S: (f64, f64) = (0.5, 2.0);
/// The first rate, as a share of the peak: queues are short there, and most lines are not far.
const START: f64 = 0.7;
/// Rates that are tried, as shares of the peak.
const FLOOR: f64 = 0.01;
const CEILING: f64 = 20.0;
/// What a sandbox can do at most, for a promise that is refused before one is started.
const RATE_HOPED_TPS: f64 = 10_000.0;
/// The budget is for the climb, a bracket, some probes near the line and the hold.
const BUDGET_MIN: Duration = Duration::from_secs(20);
/// Of sessions beyond those that Little's law asks for.
const HEADROOM: f64 = 1.5;
const SESSIONS_MIN: u32 = 4;
/// Of the time that a session takes for an error promise, which has no limit of its own.
const LIMIT_UNKNOWN: Duration = Duration::from_millis(100);

impl Asked {
    /// With what is not said as it is usual.
    pub fn new(
        promises: Vec<Promise>,
        budget: Option<Duration>,
        hold: Option<Duration>,
        sessions_max: u32,
    ) -> Asked {
        let hold = hold.unwrap_or_else(|| budget.map_or(HOLD, |budget| HOLD.min(budget / HOLD_PART)));
        let budget = budget.unwrap_or(BUDGET + hold.saturating_sub(HOLD));
        Asked { promises, budget, hold, sessions_max, debt: Debt::default() }
    }

    /// Refuses what cannot be searched for, before a server is started.
    ///
    /// # Errors
    /// The budget is too short.
    pub fn check(&self) -> Result<(), Error> {
        if self.budget < BUDGET_MIN || self.hold > self.budget / 2 {
            let needed = BUDGET_MIN.max(self.hold * 2);
            return Err(Error::Usage(format!(
                "a search with a hold of {} takes at least {}: give it a budget of {}, or a shorter hold",
                rounded(self.hold.as_secs_f64()),
                rounded(needed.as_secs_f64()),
                rounded(needed.as_secs_f64())
            )));
        }
        within_budget(&self.promises, self.budget, RATE_HOPED_TPS, ", which is a fast server's rate,")
    }

    /// Refuses promises about classes of transactions that the workload does not have.
    ///
    /// # Errors
    /// Names the class, and those that there are.
    pub fn check_classes(&self, workload: &dyn Workload) -> Result<(), Error> {
        self.promises.iter().try_for_each(|promise| promise.check(workload))
    }

    /// Before each probe.
    pub(super) fn warmup(&self) -> Duration {
        Duration::from_secs_f64((self.budget.as_secs_f64() / 100.0).clamp(WARMUP_S.0, WARMUP_S.1))
    }

    /// In how many turns a side of a duel makes a probe, the whole length of them, and the warm-up of each but
    /// the first.
    pub(super) fn turns(&self, length: Duration) -> (u32, Duration, Duration) {
        let turn = TURN.max(self.limit() * TURN_LIMITS);
        let warmup = self.limit().clamp(TURN_WARMUP_MIN, self.warmup());
        match (length.as_secs_f64() / turn.as_secs_f64()) as u32 {
            0 | 1 => (1, length, warmup),
            turns => (turns, turn * turns, warmup),
        }
    }

    /// The longest time that a promise gives to a transaction.
    fn limit(&self) -> Duration {
        longest_limit(&self.promises).unwrap_or(LIMIT_UNKNOWN)
    }

    /// Each level of the climb.
    pub(super) fn climb_level(&self) -> Duration {
        Duration::from_secs_f64((self.budget.as_secs_f64() / 60.0).clamp(CLIMB_S.0, CLIMB_S.1))
    }

    /// The rules of a search for these of the promises, from what the climb found, and from where the search is to begin.
    pub(super) fn rules(&self, promises: &[Promise], peak_tps: f64, start_tps: Option<f64>) -> Rules {
        Rules {
            allowed: promises.iter().map(Promise::allowed).collect(),
            budget_s: self.budget.as_secs_f64(),
            hold_s: self.hold.as_secs_f64(),
            warmup_s: self.warmup().as_secs_f64(),
            rest_s: 2.0 * REST.as_secs_f64(),
            precision: PRECISION,
            start: start_tps.unwrap_or(START * peak_tps),
            floor: FLOOR * peak_tps,
            ceiling: CEILING * peak_tps,
        }
    }

    /// So many as are busy when all transactions take as long as the longest limit lets them (Little's law), and half as
    /// many again: with all of them busy, whoever arrives breaks the promise wherever he waits.
    pub(super) fn sessions(&self, rate_tps: f64) -> u32 {
        let needed = (HEADROOM * rate_tps * self.limit().as_secs_f64()).ceil();
        (needed.min(f64::from(u32::MAX)) as u32).max(SESSIONS_MIN).min(self.sessions_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_is_made_in_turns_that_are_long_beside_the_limit() {
        let s = Duration::from_secs;
        let of = |limit: &str, length| {
            let promise = Promise::parse(&format!("p99 < {limit}")).unwrap();
            Asked::new(vec![promise], Some(s(300)), None, 8).turns(length)
        };
        assert_eq!(of("20ms", s(8)), (4, s(8), Duration::from_millis(250)));
        assert_eq!(of("20ms", Duration::from_millis(7500)), (3, s(6), Duration::from_millis(250)));
        assert_eq!(of("20ms", s(3)), (1, s(3), Duration::from_millis(250)));
        assert_eq!(of("500ms", s(8)), (2, s(8), Duration::from_millis(500)));
        assert_eq!(of("1s", s(15)), (1, s(15), s(1)));
        assert_eq!(of("10s", s(15)), (1, s(15), s(2)), "no longer than before a probe");
    }

    #[test]
    fn a_longer_hold_gets_a_longer_budget_and_a_short_budget_a_shorter_hold() {
        let s = Duration::from_secs;
        let of = |budget, hold| {
            let asked = Asked::new(Vec::new(), budget, hold, 8);
            (asked.budget, asked.hold)
        };
        assert_eq!(of(None, None), (s(600), s(60)));
        assert_eq!(of(None, Some(s(1800))), (s(2340), s(1800)));
        assert_eq!(of(Some(s(120)), None), (s(120), s(24)));
        assert!(Asked::new(Vec::new(), Some(s(60)), Some(s(50)), 8).check().is_err());
    }
}
