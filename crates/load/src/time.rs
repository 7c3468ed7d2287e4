//! The engine's clock, as sessions see it.

use std::cell::Cell;
use std::future::poll_fn;
use std::ops::{Add, Sub};
use std::task::Poll;
use std::time::Duration;

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

use crate::executor::Executor;

/// Where time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    #[default]
    Monotonic,
    /// Jumps to the next timer whenever nothing else can be done: an hour of load passes in no time. For tests
    /// of pacing with sessions that sleep instead of talking to a server; each worker has its own.
    Simulated,
}

/// A reading of the engine's clock: nanoseconds of CLOCK_MONOTONIC, which last for 584 years.
///
/// One number, where [`std::time::Instant`] is seconds and nanoseconds whose every difference and comparison has branches
/// and is a call out of the crate: a statement takes half a dozen of them. Ends of the range are kept to, never crossed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment(u64);

/// What is longer than 584 years is as long as that.
#[inline]
fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos().into())
}

impl Moment {
    /// The beginning of the range: over.
    pub(crate) const START: Moment = Moment(0);
    /// The end of the range.
    pub(crate) const NEVER: Moment = Moment(u64::MAX);

    /// CLOCK_MONOTONIC, whatever the engine's clock is.
    #[inline]
    pub fn now() -> Moment {
        // Not by the C library, whose wrapper is code and data more that a wait drives out of the caches.
        let time = rustix::time::clock_gettime(ClockId::Monotonic);
        Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// The same moment on a clock that shows so much more. Ends of the range are no moments of any clock, and stay.
    pub(crate) fn on_clock(self, more_ns: i64) -> Moment {
        match self {
            Moment::START | Moment::NEVER => self,
            Moment(ns) => Moment(ns.saturating_add_signed(more_ns)),
        }
    }

    /// Nanoseconds since `earlier`; 0 if that is later.
    #[inline]
    pub fn nanos_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    #[inline]
    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    #[inline]
    fn sub(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(duration)))
    }
}

impl Sub for Moment {
    type Output = Duration;

    /// Time since `earlier`; zero if that is later.
    #[inline]
    fn sub(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

/// A worker's running clock.
#[derive(Debug)]
pub(crate) enum Ticker {
    Monotonic,
    Simulated(Cell<Moment>),
}

impl Ticker {
    pub(crate) fn new(clock: Clock, now: Moment) -> Ticker {
        match clock {
            Clock::Monotonic => Ticker::Monotonic,
            Clock::Simulated => Ticker::Simulated(Cell::new(now)),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        match self {
            Ticker::Monotonic => Moment::now(),
            Ticker::Simulated(at) => at.get(),
        }
    }

    /// Moves a simulated clock forward; the real one needs no help.
    pub(crate) fn advance_to(&self, when: Moment) {
        if let Ticker::Simulated(at) = self {
            at.set(at.get().max(when));
        }
    }

    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Ticker::Simulated(_))
    }
}

/// What time it is for the session that asks: CLOCK_MONOTONIC, or the simulated time under
/// [`Clock::Simulated`].
pub fn now() -> Moment {
    Executor::current().map_or_else(Moment::now, |executor| executor.now())
}

/// Waits until then. Only inside a session's task: elsewhere it would wait for ever.
pub async fn sleep_until(when: Moment) {
    let mut is_set = false;
    poll_fn(|cx| {
        let Some(executor) = Executor::current() else { return Poll::Pending };
        if executor.now() >= when {
            return Poll::Ready(());
        }
        if !is_set {
            executor.wake_at(when, cx.waker().clone());
            is_set = true;
        }
        Poll::Pending
    })
    .await;
}

/// Waits for so long. Only inside a session's task.
pub async fn sleep(duration: Duration) {
    if !duration.is_zero() {
        sleep_until(now() + duration).await;
    }
}

/// Milliseconds since 1970 UTC, for records: nothing is timed by it.
pub fn unix_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_apart_to_the_nanosecond_and_keep_to_their_range() {
        let now = Moment::now();
        let later = now + Duration::new(3, 7);
        assert_eq!(later - now, Duration::new(3, 7));
        assert_eq!(later.nanos_since(now), 3_000_000_007);
        assert_eq!(later - Duration::new(3, 7), now);
        assert_eq!(now - later, Duration::ZERO, "never negative");
        assert_eq!(now + Duration::MAX, Moment::NEVER);
        assert!(now < later && later < Moment::NEVER);
        assert!(Moment::now() >= now);
    }
}
