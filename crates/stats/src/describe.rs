//! One-sample figures. Empty input gives `None`, never a made-up number.

/// Arithmetic mean.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Unbiased sample variance (divisor n - 1); `None` below two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let centre = mean(values)?;
    Some(values.iter().map(|x| (x - centre).powi(2)).sum::<f64>() / (values.len() - 1) as f64)
}

/// Sample standard deviation; `None` below two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    variance(values).map(f64::sqrt)
}

/// Standard deviation divided by the mean; `None` below two values or where the mean is 0.
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    if centre == 0.0 { None } else { Some(standard_deviation(values)? / centre.abs()) }
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

/// Quantile by linear interpolation between order statistics (Hyndman and Fan 1996, type 7; what R and NumPy do by
/// default). `p` is clamped to [0, 1].
pub fn quantile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    quantile_of_sorted(&sorted, p)
}

/// [`quantile`] where the values are already in ascending order.
pub fn quantile_of_sorted(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = p.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * (at - below as f64))
}

/// How many values a quantile needs so that about ten lie beyond it: 20 for the median, 200 for p95, 1,000 for p99. Of
/// fewer it would be one of the few largest values, which differ from run to run by themselves.
pub fn quantile_needs(quantile: f64) -> u64 {
    (10.0 / (1.0 - quantile.clamp(0.0, 1.0 - 1e-9))).round() as u64
}

/// Geometric mean; `None` when empty or when a value is not positive.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.iter().any(|x| x.is_nan() || *x <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|x| x.ln()).collect();
    mean(&logs).map(f64::exp)
}

/// Autocorrelation at lag 1 of the deviations from the mean; `None` below three values or without variation.
pub fn autocorrelation(values: &[f64]) -> Option<f64> {
    if values.len() < 3 {
        return None;
    }
    let centre = mean(values)?;
    let total: f64 = values.iter().map(|x| (x - centre).powi(2)).sum();
    if total == 0.0 {
        return None;
    }
    Some(values.windows(2).map(|w| (w[0] - centre) * (w[1] - centre)).sum::<f64>() / total)
}

/// How even the seconds of a step were: the best and the worst second against the average ("if it jumps between
/// 2,000 and 6,000 you will miss it looking at 4,000").
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stability {
    /// Average over the seconds.
    pub avg: f64,
    /// Best second.
    pub max: f64,
    /// Worst second.
    pub min: f64,
    /// `max / avg`; 1 is perfectly even.
    pub max_over_avg: f64,
    /// `min / avg`; 1 is perfectly even, 0 a stall of a whole second.
    pub min_over_avg: f64,
    /// Coefficient of variation of the seconds.
    pub cv: f64,
    /// Seconds below half of the average.
    pub stalled_seconds: usize,
}

/// [`Stability`] of whole seconds; `None` below two seconds or when nothing happened at all.
pub fn stability(per_second: &[f64]) -> Option<Stability> {
    let avg = mean(per_second)?;
    let cv = coefficient_of_variation(per_second)?;
    let max = per_second.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let min = per_second.iter().copied().fold(f64::INFINITY, f64::min);
    Some(Stability {
        avg,
        max,
        min,
        max_over_avg: max / avg,
        min_over_avg: min / avg,
        cv,
        stalled_seconds: per_second.iter().filter(|x| **x < avg / 2.0).count(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_quantile_needs_ten_values_beyond_it() {
        let needed = [0.5, 0.9, 0.95, 0.99, 0.999].map(quantile_needs);
        assert_eq!(needed, [20, 100, 200, 1_000, 10_000]);
    }

    #[test]
    fn empty_slices_have_no_figures() {
        assert_eq!(mean(&[]), None);
        assert_eq!(median(&[]), None);
        assert_eq!(geometric_mean(&[]), None);
        assert_eq!(stability(&[]), None);
        assert_eq!(variance(&[1.0]), None);
    }

    #[test]
    fn quantiles_follow_type_seven() {
        let xs = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(median(&xs), Some(2.5));
        assert_eq!(quantile(&xs, 0.25), Some(1.75));
        assert_eq!(quantile(&xs, 0.0), Some(1.0));
        assert_eq!(quantile(&xs, 1.0), Some(4.0));
    }

    #[test]
    fn geometric_mean_refuses_zero() {
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert!((geometric_mean(&[2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
    }

    #[test]
    fn a_stall_shows_in_the_worst_second_and_not_in_the_average_of_a_jumpy_run() {
        let even = stability(&[4000.0, 4010.0, 3990.0, 4000.0]).unwrap();
        let jumpy = stability(&[2000.0, 6000.0, 2000.0, 6000.0]).unwrap();
        assert_eq!(even.avg, jumpy.avg);
        assert!(even.min_over_avg > 0.99 && jumpy.min_over_avg == 0.5 && jumpy.max_over_avg == 1.5);
        assert_eq!(stability(&[10.0, 10.0, 1.0, 10.0]).unwrap().stalled_seconds, 1);
    }

    proptest! {
        #[test]
        fn quantiles_are_monotone_and_within_the_range(mut xs in prop::collection::vec(-1e6f64..1e6, 1..50), p in 0f64..1.0, q in 0f64..1.0) {
            let (lo, hi) = (p.min(q), p.max(q));
            let a = quantile(&xs, lo).unwrap();
            let b = quantile(&xs, hi).unwrap();
            prop_assert!(a <= b + 1e-9);
            xs.sort_by(f64::total_cmp);
            prop_assert!(a >= xs[0] && b <= xs[xs.len() - 1]);
        }

        #[test]
        fn geometric_mean_is_not_above_the_arithmetic(xs in prop::collection::vec(1e-3f64..1e6, 1..50)) {
            prop_assert!(geometric_mean(&xs).unwrap() <= mean(&xs).unwrap() * (1.0 + 1e-9));
        }
    }
}
