//! The load line: the highest rate of arrivals at which a promise is kept, searched for under noise.
//!
//! A promise allows a share of the transactions to break it: `p99 < 20 ms` is broken by each that takes 20 ms or longer,
//! and kept where those are no more than 1 %. That share is a monotone function of the rate, and each probe sees it with
//! noise. [`Search`] holds what the probes saw and says which rate to try next, for how long, when a probe may be cut, and
//! what the lines are; it is a function of the probes alone, so that a search goes on where its record ends.
//!
//! First the line is bracketed: steps, then halves, of the logarithm of the rate. Then the share is fitted as a logistic
//! function of the logarithm of the rate near the line ([`fit`]), and the next probe is made where that fit expects the
//! line, now a little below and now a little above: Robbins and Monro, "A stochastic approximation method" (Annals of
//! Mathematical Statistics 22, 1951), with the fitted response of Wu, "Efficient sequential designs with binary data"
//! (Journal of the American Statistical Association 80, 1985), and a posterior over the place of the line as in Waeber,
//! Frazier and Henderson, "Bisection search with noisy responses" (SIAM Journal on Control and Optimization 51, 2013).
//! Transactions of a queue resemble their neighbours; their variance is that of sums over seconds
//! ([`fit`]).

mod fit;
mod search;
#[cfg(test)]
mod tests;
mod watch;

pub use fit::Interval;
pub use search::{Answer, End, Hold, Next, Purpose, Rules, Search};
pub use watch::is_over;

/// Transactions and those of them that broke a promise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Count {
    pub transactions: u64,
    /// Those that broke it.
    pub over: u64,
}

impl Count {
    /// Share that broke it; 0 without transactions.
    pub fn share(self) -> f64 {
        if self.transactions == 0 { 0.0 } else { self.over as f64 / self.transactions as f64 }
    }
}

/// What one promise saw of a probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    pub seconds: Vec<Count>,
    /// All transactions that were to begin in the probe, those that ended after it included.
    pub total: Count,
}

/// A rate that was tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Probe {
    /// Arrivals per second.
    pub rate: f64,
    /// By promise.
    pub seen: Vec<Seen>,
    /// What was waited for only grew: the rate is beyond what the server carries.
    pub is_overloaded: bool,
    /// Of the budget, warm-up, drain and rest included.
    pub took_s: f64,
    pub purpose: Purpose,
    /// Whose line it was about.
    pub focus: usize,
}
