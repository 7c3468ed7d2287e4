//! What so many trials say of the probability of an event, above all when it never happened.

use statrs::distribution::{Beta, ContinuousCDF};

/// Of bounds that are shown to people.
pub const CONFIDENCE: f64 = 0.95;

/// The largest probability of an event that is still consistent with having seen it so often: the one-sided upper bound
/// of Clopper and Pearson ("The use of confidence or fiducial limits", Biometrika 26, 1934), which is exact. Without an
/// event it is 1 - (1 - confidence)^(1/trials), about 3 / trials at 95 % (the "rule of three").
///
/// 1 without trials; NaN when there are more events than trials or `confidence` is not within (0, 1).
pub fn upper_bound(events: u64, trials: u64, confidence: f64) -> f64 {
    if events > trials || !(confidence > 0.0 && confidence < 1.0) {
        return f64::NAN;
    }
    if events == trials {
        return 1.0;
    }
    if events == 0 {
        return -f64::exp_m1(f64::ln_1p(-confidence) / trials as f64);
    }
    let quantile = |beta: Beta| beta.inverse_cdf(confidence);
    Beta::new(events as f64 + 1.0, (trials - events) as f64).map_or(f64::NAN, quantile)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a binomial distribution, summed term by term.
    fn at_most(events: u64, trials: u64, p: f64) -> f64 {
        let mut term = (1.0 - p).powi(trials as i32);
        let mut sum = term;
        for k in 0..events {
            term *= (trials - k) as f64 / (k + 1) as f64 * p / (1.0 - p);
            sum += term;
        }
        sum
    }

    #[test]
    fn the_bound_leaves_the_chance_that_was_asked_for() {
        for (events, trials) in [(0, 1), (0, 5), (0, 10), (0, 3000), (1, 10), (3, 20), (9, 10)] {
            for confidence in [0.5, 0.95, 0.99] {
                let p = upper_bound(events, trials, confidence);
                let left = at_most(events, trials, p);
                assert!((left - (1.0 - confidence)).abs() < 1e-6, "{events} of {trials}: {p} leaves {left}");
            }
        }
    }

    #[test]
    fn no_event_in_many_trials_is_the_rule_of_three() {
        let bound = upper_bound(0, 1000, 0.95);
        assert!((bound * 1000.0 - 3.0).abs() < 0.01, "{bound}");
        assert!((upper_bound(0, 5, 0.95) - 0.4507).abs() < 1e-4);
    }

    #[test]
    fn nothing_is_known_without_trials() {
        assert_eq!(upper_bound(0, 0, 0.95), 1.0);
        assert_eq!(upper_bound(4, 4, 0.95), 1.0);
        assert!(upper_bound(2, 1, 0.95).is_nan() && upper_bound(0, 1, 1.0).is_nan());
    }
}
