//! Was the measured phase steady? A slope over its seconds and a change of level, both aware that neighbouring
//! seconds resemble each other; and how long the start-up lasted.

use crate::change::{ChangePoint, ChangeRules, change_points};
use crate::describe::mean;
use crate::student::{two_sided_p, upper_quantile};

/// What counts as not steady. Both the evidence and the size must be there: with enough seconds any real server
/// shows some slope.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyRules {
    /// Fewer seconds than this cannot be judged.
    pub seconds_min: usize,
    /// Evidence asked of a slope or a change of level.
    pub p_max: f64,
    /// Rise or fall of the fitted line over the phase, relative to the mean, that counts.
    pub slope_share_min: f64,
    /// Change of level, relative to the level before, that counts.
    pub level_share_min: f64,
}

impl SteadyRules {
    /// Those for throughput.
    pub const DEFAULT: Self =
        Self { seconds_min: 10, p_max: 0.01, slope_share_min: 0.15, level_share_min: 0.20 };
}

impl Default for SteadyRules {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteadyState {
    Steady,
    /// It rose or fell over the phase.
    Slope,
    LevelChange,
    /// Too few seconds to judge.
    TooShort,
}

/// How the seconds of a measured phase behaved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Steadiness {
    /// The judgement.
    pub state: SteadyState,
    /// Change of the fitted line from the first to the last second, relative to the mean (-0.2: fell by 20 %).
    pub slope_share: f64,
    /// 95 % interval of it.
    pub slope_low: f64,
    /// Its upper end.
    pub slope_high: f64,
    /// p of "no slope".
    pub slope_p: f64,
    /// Lag-1 autocorrelation of the residuals, corrected for its bias in short series.
    pub autocorrelation: f64,
    /// Number of independent seconds that the phase is worth.
    pub effective_seconds: f64,
    /// The clearest change of level, where there is one.
    pub change: Option<ChangePoint>,
}

/// Judges the seconds of one measured phase (any positive metric, usually TPS).
pub fn steadiness(per_second: &[f64], rules: &SteadyRules) -> Steadiness {
    let Some(slope) = slope(per_second).filter(|_| per_second.len() >= rules.seconds_min.max(5)) else {
        return Steadiness {
            state: SteadyState::TooShort,
            slope_share: 0.0,
            slope_low: f64::NEG_INFINITY,
            slope_high: f64::INFINITY,
            slope_p: 1.0,
            autocorrelation: 0.0,
            effective_seconds: per_second.len() as f64,
            change: None,
        };
    };
    let change_rules =
        ChangeRules { p_max: rules.p_max, share_min: rules.level_share_min, ..ChangeRules::default() };
    let change = change_points(per_second, &change_rules)
        .into_iter()
        .max_by(|a, b| a.share().total_cmp(&b.share()))
        .or_else(|| clear_split(per_second, rules));
    let is_sloped = slope.p <= rules.p_max && slope.share.abs() >= rules.slope_share_min;
    let state = match (change, is_sloped) {
        // A ramp looks like a change of level in its middle; a real jump leaves the line a poor description.
        (Some(change), true) if slope.fits_better_than(per_second, change.index) => SteadyState::Slope,
        (Some(_), _) => SteadyState::LevelChange,
        (None, true) => SteadyState::Slope,
        (None, false) => SteadyState::Steady,
    };
    Steadiness {
        state,
        slope_share: slope.share,
        slope_low: slope.low,
        slope_high: slope.high,
        slope_p: slope.p,
        autocorrelation: slope.autocorrelation,
        effective_seconds: slope.effective,
        change,
    }
}

/// Only phases below so many seconds are looked at so.
const SHORT_SECONDS: usize = 30;

/// A change of level in a short phase, whose tests have little power: every second on one side is beyond every
/// second on the other. By chance that happens to one place in C(n, k) / 2 of n exchangeable seconds of which k lie on
/// one side, and there are n places; seconds that resemble their neighbours make it likelier, but hardly with levels as
/// far apart as [`SteadyRules::level_share_min`] asks.
fn clear_split(values: &[f64], rules: &SteadyRules) -> Option<ChangePoint> {
    let n = values.len();
    if n >= SHORT_SECONDS {
        return None;
    }
    let of_place = |index: usize| {
        let (left, right) = values.split_at(index);
        let least = |part: &[f64]| part.iter().copied().fold(f64::INFINITY, f64::min);
        let most = |part: &[f64]| part.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        if most(left) >= least(right) && most(right) >= least(left) {
            return None;
        }
        let (before, after) = (mean(left)?, mean(right)?);
        let ways: f64 = (0..index.min(n - index)).map(|i| (n - i) as f64 / (i + 1) as f64).product();
        let p = (2.0 * n as f64 / ways).min(1.0);
        // The least and the largest ratio of a second after to one before.
        let ratios = if before > 0.0 {
            [after / before, least(right) / most(left), most(right) / least(left).max(f64::MIN_POSITIVE)]
        } else {
            [f64::NAN; 3]
        };
        let [ratio, low, high] = ratios;
        let change = ChangePoint { index, p, p_adjusted: p, before, after, ratio, low, high };
        (p <= rules.p_max && change.share() >= rules.level_share_min).then_some(change)
    };
    let scattered = |change: &ChangePoint| {
        let (left, right) = values.split_at(change.index);
        scatter(left) + scatter(right)
    };
    (1..n).filter_map(of_place).min_by(|a, b| scattered(a).total_cmp(&scattered(b)))
}

struct Slope {
    share: f64,
    low: f64,
    high: f64,
    p: f64,
    autocorrelation: f64,
    effective: f64,
    residual_sum: f64,
}

impl Slope {
    fn fits_better_than(&self, values: &[f64], step: usize) -> bool {
        let (before, after) = values.split_at(step.min(values.len()));
        self.residual_sum < scatter(before) + scatter(after)
    }
}

fn scatter(values: &[f64]) -> f64 {
    mean(values).map_or(0.0, |centre| values.iter().map(|x| (x - centre).powi(2)).sum())
}

/// Least squares over the seconds; the error is widened for first-order autocorrelation of the residuals by the
/// effective number of points n (1 - r) / (1 + r) (Santer et al. 2000, J. Geophys. Res. 105, section 4), with r
/// corrected for its bias in short series, r + (1 + 4 r) / n (Kendall 1954), and never below 0.
fn slope(values: &[f64]) -> Option<Slope> {
    let n = values.len();
    let centre = mean(values).filter(|m| *m != 0.0 && m.is_finite())?;
    if n < 5 {
        return None;
    }
    let count = n as f64;
    let middle = (count - 1.0) / 2.0;
    let sum_xx: f64 = (0..n).map(|i| (i as f64 - middle).powi(2)).sum();
    let sum_xy: f64 = values.iter().enumerate().map(|(i, y)| (i as f64 - middle) * (y - centre)).sum();
    let per_second = sum_xy / sum_xx;
    let residuals: Vec<f64> =
        values.iter().enumerate().map(|(i, y)| y - centre - per_second * (i as f64 - middle)).collect();
    let residual_sum: f64 = residuals.iter().map(|r| r * r).sum();
    let raw = if residual_sum > 0.0 {
        residuals.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / residual_sum
    } else {
        0.0
    };
    // A fitted line takes two degrees of freedom, which makes the bias of r about -(2 + 4 r) / n.
    let autocorrelation = (raw + (2.0 + 4.0 * raw) / count).clamp(0.0, 0.9);
    let effective = (count * (1.0 - autocorrelation) / (1.0 + autocorrelation)).max(3.0);
    let error = (residual_sum / (effective - 2.0) / sum_xx).sqrt();
    let scale = (count - 1.0) / centre;
    let (p, half) = if error > 0.0 {
        let df = effective - 2.0;
        (two_sided_p(per_second / error, df), upper_quantile(0.025, df) * error)
    } else {
        (if per_second == 0.0 { 1.0 } else { 0.0 }, 0.0)
    };
    let ends = [(per_second - half) * scale, (per_second + half) * scale];
    Some(Slope {
        share: per_second * scale,
        low: ends[0].min(ends[1]),
        high: ends[0].max(ends[1]),
        p,
        autocorrelation,
        effective,
        residual_sum,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn series(n: usize, seed: u64, r: f64, level: impl Fn(usize) -> f64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        let mut state = 0.0;
        (0..n)
            .map(|i| {
                state = r * state + rng.normal();
                level(i) * (1.0 + 0.04 * state)
            })
            .collect()
    }

    #[test]
    fn a_flat_run_is_steady_and_a_falling_one_slopes() {
        let rules = SteadyRules::default();
        assert_eq!(steadiness(&series(30, 1, 0.0, |_| 5000.0), &rules).state, SteadyState::Steady);
        let falling = steadiness(&series(30, 1, 0.0, |i| 5000.0 * (1.0 - 0.02 * i as f64)), &rules);
        assert_eq!(falling.state, SteadyState::Slope, "{falling:?}");
        assert!(falling.slope_share < -0.4 && falling.slope_high < 0.0);
    }

    #[test]
    fn a_jump_is_a_change_of_level() {
        let jump = steadiness(
            &series(40, 3, 0.0, |i| if i < 20 { 5000.0 } else { 3000.0 }),
            &SteadyRules::default(),
        );
        assert_eq!(jump.state, SteadyState::LevelChange, "{jump:?}");
        assert!(jump.change.unwrap().index.abs_diff(20) <= 1);
    }

    #[test]
    fn a_jump_within_a_short_phase_is_seen_too() {
        let rules = SteadyRules::default();
        let of = |n: usize, seed| series(n, seed, 0.2, |i| if i < n / 2 { 5000.0 } else { 2500.0 });
        for n in [16, 20, 25, 29] {
            let jump = steadiness(&of(n, 5), &rules);
            assert_eq!(jump.state, SteadyState::LevelChange, "{n}: {jump:?}");
            assert_eq!(jump.change.unwrap().index, n / 2);
        }
        // What chance does in one of a hundred is no evidence.
        assert_eq!(clear_split(&of(10, 5), &rules), None);
        let wrong =
            (0..500).filter(|seed| clear_split(&series(20, *seed, 0.5, |_| 1000.0), &rules).is_some());
        assert_eq!(wrong.count(), 0);
    }

    #[test]
    fn few_seconds_cannot_be_judged() {
        assert_eq!(steadiness(&[1.0; 4], &SteadyRules::default()).state, SteadyState::TooShort);
        assert_eq!(steadiness(&[], &SteadyRules::default()).state, SteadyState::TooShort);
        assert_eq!(steadiness(&[0.0; 30], &SteadyRules::default()).state, SteadyState::TooShort);
    }

    #[test]
    fn a_constant_run_is_steady() {
        assert_eq!(steadiness(&[5000.0; 30], &SteadyRules::default()).state, SteadyState::Steady);
    }

    /// p alone, without the size that the gate also asks for.
    #[test]
    fn slopes_of_noise_are_seldom_significant_with_or_without_autocorrelation() {
        for (r, most) in [(0.0, 0.07), (0.2, 0.08), (0.5, 0.10)] {
            let rounds = 1000;
            let wrong = (0..rounds)
                .filter(|seed| slope(&series(30, *seed, r, |_| 1000.0)).unwrap().p <= 0.05)
                .count() as f64;
            assert!(wrong / f64::from(rounds as u32) <= most, "r {r}: {wrong} of {rounds}");
        }
    }

    /// With the autocorrelation measured on real seconds (0.2 at lag 1) and their noise.
    #[test]
    fn steady_runs_are_seldom_called_unsteady() {
        let rules = SteadyRules::default();
        let wrong = (0..200)
            .filter(|seed| {
                let state = steadiness(&series(30, 7000 + seed, 0.2, |_| 1000.0), &rules).state;
                state != SteadyState::Steady
            })
            .count();
        assert!(wrong <= 6, "{wrong} of 200");
    }
}
