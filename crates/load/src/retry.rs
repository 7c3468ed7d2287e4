//! How long to wait before trying again.

use std::time::Duration;

use crate::plan::RetryPolicy;
use crate::rng::Rng;

/// Exponential back-off with jitter: attempt 1 waits half to one and a half of `first`, each further one twice
/// as long, never more than `longest`. The jitter keeps sessions that failed together from failing together
/// again.
pub(crate) fn backoff(first: Duration, longest: Duration, attempt: u32, rng: &mut Rng) -> Duration {
    let doubled = first.saturating_mul(1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX));
    doubled.min(longest).mul_f64(0.5 + rng.unit()).min(longest)
}

impl RetryPolicy {
    /// The wait before the `attempt`-th retry (1 is the first).
    pub(crate) fn wait(&self, attempt: u32, rng: &mut Rng) -> Duration {
        if self.backoff.is_zero() {
            return Duration::ZERO;
        }
        backoff(self.backoff, self.backoff_max, attempt, rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_with_jitter_up_to_the_limit() {
        let mut rng = Rng::new(1, 1);
        let (first, longest) = (Duration::from_millis(2), Duration::from_millis(100));
        for attempt in 1..200 {
            let wait = backoff(first, longest, attempt, &mut rng);
            let middle = first.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX)).min(longest);
            assert!(wait >= middle / 2 && wait <= longest && wait <= middle * 3 / 2, "{attempt}: {wait:?}");
        }
    }

    #[test]
    fn none_means_at_once() {
        let policy = RetryPolicy { retries_max: 3, backoff: Duration::ZERO, backoff_max: Duration::ZERO };
        assert_eq!(policy.wait(3, &mut Rng::new(1, 1)), Duration::ZERO);
    }
}
