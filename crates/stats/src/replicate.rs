//! Whether what was measured on one machine is measured on another: the ratio of two ratios with its interval.

/// A ratio with its confidence interval, all positive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioSpan {
    pub ratio: f64,
    pub low: f64,
    pub high: f64,
}

/// What a measurement elsewhere says of a published ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// The two ratios are the same, up to the margin.
    Reproduced,
    /// They differ by more than the margin.
    NotReproduced,
    /// The intervals allow for both.
    Undecided,
}

impl Replication {
    /// As shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Reproduced => "reproduced",
            Self::NotReproduced => "not reproduced",
            Self::Undecided => "undecided",
        }
    }
}

/// The ratio here divided by the published one, with its interval, and what follows. `margin` (0.05 is 5 % either way) is
/// what counts as the same: the interval within it says reproduced, the interval outside of it not reproduced. `None`
/// where a ratio or a limit is not positive and finite.
///
/// The interval of the difference of the logarithms is put together of the two intervals by the method of variance
/// estimates recovery (Zou and Donner: "Construction of confidence limits about effect measures", Statistics in Medicine 27,
/// 2008), which asks neither how they were made nor that they are symmetric, and has their level of confidence.
pub fn replicated(published: RatioSpan, here: RatioSpan, margin: f64) -> Option<(RatioSpan, Replication)> {
    let [old, new] = [published, here].map(|span| [span.ratio, span.low, span.high].map(f64::ln));
    if !old.iter().chain(&new).all(|figure| figure.is_finite()) {
        return None;
    }
    let difference = new[0] - old[0];
    let low = difference - (new[0] - new[1]).hypot(old[2] - old[0]);
    let high = difference + (new[2] - new[0]).hypot(old[0] - old[1]);
    let band = (1.0 + margin).ln();
    let verdict = match () {
        () if low > band || high < -band => Replication::NotReproduced,
        () if low >= -band && high <= band => Replication::Reproduced,
        () => Replication::Undecided,
    };
    Some((RatioSpan { ratio: difference.exp(), low: low.exp(), high: high.exp() }, verdict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::mean;
    use crate::rng::Rng;
    use crate::student::quantile;

    const fn span(ratio: f64, low: f64, high: f64) -> RatioSpan {
        RatioSpan { ratio, low, high }
    }

    /// `n` blocks of a ratio with a relative spread, as a 95 % interval of their mean logarithm.
    fn measured(rng: &mut Rng, ratio: f64, spread: f64, n: usize) -> RatioSpan {
        let logs: Vec<f64> = (0..n).map(|_| ratio.ln() + spread * rng.normal()).collect();
        let middle = mean(&logs).unwrap();
        let variance = logs.iter().map(|x| (x - middle).powi(2)).sum::<f64>() / (n - 1) as f64;
        let half = quantile(0.975, (n - 1) as f64) * (variance / n as f64).sqrt();
        span(middle.exp(), (middle - half).exp(), (middle + half).exp())
    }

    /// Shares of reproduced and not reproduced, and of intervals that hold the truth.
    fn simulated(old: f64, new: f64, spreads: (f64, f64), n: (usize, usize)) -> [f64; 3] {
        let mut rng = Rng::new(5);
        let mut counts = [0_u32; 3];
        const STUDIES: u32 = 4000;
        for _ in 0..STUDIES {
            let published = measured(&mut rng, old, spreads.0, n.0);
            let here = measured(&mut rng, new, spreads.1, n.1);
            let (found, verdict) = replicated(published, here, 0.05).unwrap();
            counts[0] += u32::from(verdict == Replication::Reproduced);
            counts[1] += u32::from(verdict == Replication::NotReproduced);
            counts[2] += u32::from(found.low <= new / old && new / old <= found.high);
        }
        counts.map(|count| f64::from(count) / f64::from(STUDIES))
    }

    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        for (spreads, n) in [((0.03, 0.03), (5, 5)), ((0.01, 0.05), (10, 5)), ((0.02, 0.02), (20, 20))] {
            let [_, _, covered] = simulated(1.4, 1.2, spreads, n);
            assert!((0.94..=0.995).contains(&covered), "{spreads:?} {n:?}: {covered}");
        }
    }

    #[test]
    fn what_is_the_same_is_seldom_called_different() {
        let [reproduced, not, _] = simulated(1.3, 1.3, (0.02, 0.02), (10, 10));
        assert!(reproduced > 0.9 && not < 0.001, "{reproduced} {not}");
        // At the edge of the margin each of the two errors has its level.
        let [reproduced, not, _] = simulated(1.0, 1.05, (0.02, 0.02), (10, 10));
        assert!(reproduced < 0.035 && not < 0.035, "{reproduced} {not}");
    }

    #[test]
    fn what_differs_is_found_and_what_is_too_noisy_is_undecided() {
        let [reproduced, not, _] = simulated(1.3, 1.6, (0.02, 0.02), (5, 5));
        assert!(not > 0.95 && reproduced < 0.001, "{not} {reproduced}");
        let [reproduced, not, _] = simulated(1.3, 1.3, (0.3, 0.3), (5, 5));
        assert!(reproduced < 0.02 && not < 0.05, "{reproduced} {not}");
    }

    #[test]
    fn what_is_no_ratio_has_no_verdict() {
        assert_eq!(replicated(span(1.0, 0.0, 2.0), span(1.0, 0.9, 1.1), 0.05), None);
        assert_eq!(replicated(span(1.0, 0.9, 1.1), span(1.0, 0.9, f64::INFINITY), 0.05), None);
        let (same, verdict) = replicated(span(2.0, 2.0, 2.0), span(2.0, 2.0, 2.0), 0.05).unwrap();
        assert_eq!((same, verdict), (span(1.0, 1.0, 1.0), Replication::Reproduced));
    }
}
