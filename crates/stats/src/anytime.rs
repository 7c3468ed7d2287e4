//! Evidence that may be looked at after every block: e-values of a t-test whose expectation stays at most 1 under the
//! null hypothesis whenever one looks, stops, resumes or adds blocks (Ville's inequality).
//!
//! The test: log-ratios are normal with unknown mean and spread; under the alternative the effect size, mean / spread,
//! is drawn from the positive half of a normal distribution with variance [`EFFECT_VARIANCE`], and the spread has the
//! right Haar prior, which makes the ratio of the two marginal likelihoods a test martingale of the t statistics alone
//! (Pérez-Ortiz, Lardy, de Heide, Grünwald: "E-statistics, group invariance and anytime-valid testing", Annals of
//! Statistics 52, 2024; the two-sided form is the t-test Bayes factor of Gönen et al., The American Statistician 59,
//! 2005; Wang and Ramdas: "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance",
//! 2024). One-sided hypotheses keep the guarantee inside of them, because shifting all values shifts every t the same
//! way. Several questions: Benjamini and Hochberg's procedure on 1 / e, which is e-BH (Wang and Ramdas: "False discovery
//! rate control with e-values", JRSS B 84, 2022).

use crate::student::cdf;

/// Variance of the effect sizes (mean / spread of the blocks' log-ratios) that the test is made for. With 2 the median
/// number of blocks to a verdict of difference is 1.0 to 1.2 times that of the fixed design with 80 % power for
/// effect sizes from 1 to 2.4 (`cargo xtask bench verdicts`); 1 is slower for large effects, 4 for small ones.
pub(crate) const EFFECT_VARIANCE: f64 = 2.0;

/// Natural logarithm of the e-value against "the mean is 0 or less", from the t statistic of `n` values. 0 for fewer
/// than two values, which tell nothing.
pub(crate) fn ln_e_above(t: f64, n: usize) -> f64 {
    if n < 2 || t.is_nan() {
        return 0.0;
    }
    let n = n as f64;
    let shrink = 1.0 + n * EFFECT_VARIANCE;
    let df = n - 1.0;
    // Both forms stay finite for a t without bound: values without any spread are strong evidence, not endless one.
    let two_sided = -0.5 * shrink.ln() + 0.5 * n * ln_of_ratio(t, df, shrink);
    let argument = n * (EFFECT_VARIANCE / shrink).sqrt() * sine(t, df, shrink);
    two_sided + (2.0 * cdf(argument, n)).max(f64::MIN_POSITIVE).ln()
}

/// ln((df + t^2) / (df + t^2 / shrink)).
fn ln_of_ratio(t: f64, df: f64, shrink: f64) -> f64 {
    let square = t * t;
    if square.is_finite() { (square / df).ln_1p() - (square / (df * shrink)).ln_1p() } else { shrink.ln() }
}

/// t / sqrt(df + t^2 / shrink).
fn sine(t: f64, df: f64, shrink: f64) -> f64 {
    if (t * t).is_finite() { t / (df + t * t / shrink).sqrt() } else { t.signum() * shrink.sqrt() }
}

/// How far the mean may lie below `centre` before the evidence against it reaches `1 / alpha`, in standard errors: the
/// half-width of a one-sided confidence sequence. Infinite where so few values can exclude nothing at that level.
pub(crate) fn half_width(n: usize, alpha: f64) -> f64 {
    let wanted = -alpha.ln();
    if ln_e_above(f64::INFINITY, n) < wanted {
        return f64::INFINITY;
    }
    let (mut low, mut high) = (0.0, 1.0);
    while ln_e_above(high, n) < wanted {
        low = high;
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if ln_e_above(middle, n) < wanted {
            low = middle
        } else {
            high = middle
        }
        if high - low <= 1e-12 * high {
            break;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The e-value by its definition: the non-central t density over the central one, averaged over the positive half
    /// of the normal distribution of effect sizes. The density by Gauss's integral over the spread.
    fn by_integration(t: f64, n: usize) -> f64 {
        let n = n as f64;
        let df = n - 1.0;
        // Proportional to the density of t under effect size d: integral over y of y^df exp(-(y - a d)^2 / 2), where
        // a = t sqrt(n / (t^2 + df)), times exp(-n d^2 df / (2 (t^2 + df))) (Johnson, Kotz: Continuous Univariate
        // Distributions 2, ch. 31).
        let density = |d: f64| {
            let a = t * (n / (t * t + df)).sqrt() * d;
            let step = 0.005;
            let sum: f64 = (1..6000)
                .map(|i| f64::from(i) * step)
                .map(|y| (df * y.ln() - 0.5 * (y - a).powi(2)).exp() * step)
                .sum();
            sum * (-0.5 * n * d * d * df / (t * t + df)).exp()
        };
        let null = density(0.0);
        let step = 0.01;
        (0..1200)
            .map(|i| (f64::from(i) + 0.5) * step)
            .map(|d| {
                let prior = 2.0 * (-0.5 * d * d / EFFECT_VARIANCE).exp()
                    / (2.0 * std::f64::consts::PI * EFFECT_VARIANCE).sqrt();
                prior * density(d) / null * step
            })
            .sum()
    }

    #[test]
    fn the_closed_form_is_the_integral_that_it_stands_for() {
        for (t, n) in [(0.0, 5), (1.3, 5), (4.0, 6), (-2.0, 8), (3.1, 12)] {
            let (got, want) = (ln_e_above(t, n).exp(), by_integration(t, n));
            assert!((got / want - 1.0).abs() < 2e-3, "t {t}, n {n}: {got} against {want}");
        }
    }

    /// The guarantee itself: looked at after every value from the second to the 200th, the e-value of a true null
    /// hypothesis reaches 20 in at most one of 20 sequences.
    #[test]
    fn looking_after_every_value_misleads_in_at_most_one_of_twenty() {
        let mut rng = crate::rng::Rng::new(7);
        let sequences = 1500;
        let misled = (0..sequences)
            .filter(|_| {
                let (mut sum, mut squares) = (0.0, 0.0);
                (1..=200usize).any(|n| {
                    let x = rng.normal();
                    sum += x;
                    squares += x * x;
                    let mean = sum / n as f64;
                    let variance = (squares - sum * mean) / (n as f64 - 1.0);
                    n > 1 && ln_e_above(mean / (variance / n as f64).sqrt(), n) >= 20f64.ln()
                })
            })
            .count();
        let share = misled as f64 / f64::from(sequences);
        assert!((0.015..=0.05).contains(&share), "{share}");
    }

    #[test]
    fn values_without_spread_are_finite_evidence() {
        assert!(ln_e_above(f64::INFINITY, 5).is_finite());
        assert!(ln_e_above(f64::INFINITY, 5) > ln_e_above(1e6, 5) - 1e-6);
        assert!(ln_e_above(f64::NEG_INFINITY, 5) < 0.0);
        assert_eq!(half_width(2, 1e-9), f64::INFINITY);
    }

    proptest! {
        #[test]
        fn evidence_grows_with_t(n in 2usize..60, t in -20f64..20.0, more in 0.001f64..5.0) {
            prop_assert!(ln_e_above(t + more, n) > ln_e_above(t, n));
        }

        #[test]
        fn the_half_width_is_where_the_evidence_suffices(n in 4usize..60, alpha in 0.01f64..0.2) {
            let half = half_width(n, alpha);
            prop_assert!(half.is_infinite() || (ln_e_above(half, n) + alpha.ln()).abs() < 1e-6);
        }
    }
}
