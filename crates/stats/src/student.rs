//! Student's t distribution and its limit, the normal one, as thin words over `statrs`.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// P(T <= t) with `df` degrees of freedom (positive, may be fractional).
pub fn cdf(t: f64, df: f64) -> f64 {
    // Only a df that is not positive is refused; no statement can be made then.
    StudentsT::new(0.0, 1.0, df).map_or(f64::NAN, |d| d.cdf(t))
}

/// Two-sided p of a t statistic.
pub fn two_sided_p(t: f64, df: f64) -> f64 {
    if t.is_nan() { f64::NAN } else { (2.0 * cdf(-t.abs(), df)).min(1.0) }
}

/// The t that P(T <= t) = `p` holds for; `p` in (0, 1).
///
/// By bisection on [`cdf`], whose error is known, over the symmetric half: exact to 1e-12 relative where it is used
/// (p down to 1e-9), and independent of how well a closed inverse behaves in the far tail of few degrees of freedom.
pub fn quantile(p: f64, df: f64) -> f64 {
    if !(p > 0.0 && p < 1.0 && df > 0.0) {
        return f64::NAN;
    }
    if p < 0.5 {
        return -quantile(1.0 - p, df);
    }
    upper_quantile(1.0 - p, df)
}

/// The t that P(T > t) = `tail` holds for, `tail` in (0, 0.5]: no cancellation for small tails.
pub fn upper_quantile(tail: f64, df: f64) -> f64 {
    let mut high = 1.0;
    while cdf(-high, df) > tail {
        high *= 2.0;
        if high > 1e18 {
            return f64::INFINITY;
        }
    }
    let mut low = 0.0;
    for _ in 0..200 {
        let middle = 0.5 * (low + high);
        if cdf(-middle, df) > tail {
            low = middle;
        } else {
            high = middle;
        }
        if high - low <= 1e-13 * high {
            break;
        }
    }
    0.5 * (low + high)
}

/// The z that P(Z <= z) = `p` holds for, `p` in (0, 1), Z standard normal.
pub fn normal_quantile(p: f64) -> f64 {
    Normal::standard().inverse_cdf(p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Values of the printed tables (e.g. NIST/SEMATECH e-Handbook, 1.3.6.7.2).
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (p, df, want) in [
            (0.975, 1.0, 12.706),
            (0.975, 2.0, 4.303),
            (0.975, 4.0, 2.776),
            (0.975, 9.0, 2.262),
            (0.975, 30.0, 2.042),
            (0.95, 4.0, 2.132),
            (0.995, 4.0, 4.604),
            (0.9995, 4.0, 8.610),
            (0.999, 100.0, 3.174),
        ] {
            assert!((quantile(p, df) - want).abs() < 6e-4, "{p} {df}: {}", quantile(p, df));
        }
    }

    #[test]
    fn impossible_arguments_give_nan() {
        assert!(quantile(0.0, 3.0).is_nan() && quantile(0.5, 0.0).is_nan() && cdf(1.0, -1.0).is_nan());
    }

    proptest! {
        #[test]
        fn quantile_and_cdf_are_inverse(p in 1e-6f64..1.0 - 1e-6, df in 1f64..200.0) {
            prop_assert!((cdf(quantile(p, df), df) - p).abs() < 1e-9);
        }
    }
}
