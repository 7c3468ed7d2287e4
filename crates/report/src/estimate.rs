//! The middle of the repeats with its interval.

use serde::{Deserialize, Serialize};

/// Median of the repeats with a distribution-free interval from their own order statistics.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    pub median: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Repeats.
    pub n: usize,
    /// Chance that such an interval holds the true median: 0 with one repeat, at least 0.95 from 6 repeats on. Below
    /// that the interval is the range of the repeats and cannot be wider.
    pub level: f64,
}

impl Estimate {
    /// The narrowest pair of order statistics with a level of at least 95 %, by the sign test's binomial
    /// distribution (Conover, Practical Nonparametric Statistics, 3.2); `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len();
        let median = stats::median(&sorted)?;
        // Level of (k-th smallest, k-th largest) is 1 - 2 P(at most k - 1 of n fair coins show heads).
        let mut tail = 0.5_f64.powi(n as i32);
        let (mut k, mut level) = (1, (1.0 - 2.0 * tail).max(0.0));
        let mut term = tail;
        while 2 * (k + 1) <= n {
            term *= (n - k + 1) as f64 / k as f64;
            tail += term;
            if 1.0 - 2.0 * tail < 0.95 {
                break;
            }
            k += 1;
            level = 1.0 - 2.0 * tail;
        }
        Some(Self { median, low: sorted[k - 1], high: sorted[n - k], n, level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_repeats_give_their_range_and_its_true_level() {
        let got = Estimate::of(&[3.0, 1.0, 2.0, 5.0, 4.0]).unwrap();
        assert_eq!((got.median, got.low, got.high, got.n), (3.0, 1.0, 5.0, 5));
        assert!((got.level - 0.9375).abs() < 1e-12);
        let one = Estimate::of(&[7.0]).unwrap();
        assert_eq!((one.median, one.low, one.high, one.level), (7.0, 7.0, 7.0, 0.0));
        assert_eq!(Estimate::of(&[]), None);
        assert_eq!(Estimate::of(&[f64::NAN]), None);
    }

    #[test]
    fn many_repeats_give_the_tabled_order_statistics() {
        // Tables of the sign test: n = 9 uses the 2nd and 8th (level 0.9609), n = 20 the 6th and 15th (0.9586).
        for (n, k, level) in [(6, 1, 0.96875), (9, 2, 0.9609), (20, 6, 0.9586)] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let got = Estimate::of(&values).unwrap();
            assert_eq!((got.low, got.high), (f64::from(k), f64::from(n + 1 - k)), "n = {n}");
            assert!((got.level - level).abs() < 1e-4, "n = {n}: {}", got.level);
        }
    }
}
