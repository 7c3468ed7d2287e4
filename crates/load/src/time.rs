//! The engine's clock, as sessions see it.

use std::cell::Cell;
use std::future::poll_fn;
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::executor::Core;

/// Where time comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    #[default]
    Monotonic,
    /// Jumps to the next timer whenever nothing else can be done: an hour of load passes in no time. For tests
    /// of pacing with sessions that sleep instead of talking to a server; each worker has its own.
    Simulated,
}

/// A worker's running clock.
#[derive(Debug)]
pub(crate) enum Ticker {
    Monotonic,
    Simulated(Cell<Instant>),
}

impl Ticker {
    pub(crate) fn new(clock: Clock, now: Instant) -> Ticker {
        match clock {
            Clock::Monotonic => Ticker::Monotonic,
            Clock::Simulated => Ticker::Simulated(Cell::new(now)),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Ticker::Monotonic => Instant::now(),
            Ticker::Simulated(at) => at.get(),
        }
    }

    /// Moves a simulated clock forward; the real one needs no help.
    pub(crate) fn advance_to(&self, when: Instant) {
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
pub fn now() -> Instant {
    Core::current().map_or_else(Instant::now, |core| core.now())
}

/// Waits until then. Only inside a session's task: elsewhere it would wait for ever.
pub async fn sleep_until(when: Instant) {
    let mut is_set = false;
    poll_fn(|cx| {
        let Some(core) = Core::current() else { return Poll::Pending };
        if core.now() >= when {
            return Poll::Ready(());
        }
        if !is_set {
            core.wake_at(when, cx.waker().clone());
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
