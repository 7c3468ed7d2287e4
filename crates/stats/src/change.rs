//! Change points of a series: where its level went to another one and stayed there.
//!
//! Candidates are the segmentation of least squares with a penalty for each segment (PELT: Killick, Fearnhead, Eckley
//! 2012), over values whose outliers are drawn in (Hampel's filter), because one bad run is no new level. The penalty is
//! mild, so that nothing real is missed; then the weakest candidate is taken out again and again until a test holds for
//! each of those that stay: Welch's t with variances that lean on the whole series' noise (Smyth 2004), times the number
//! of places where the change could have been seen, because a t-test at the place that looked best is not calibrated
//! (53 % of white-noise series of 100 points "change" at p = .01). A series that a straight line explains better than its
//! levels do drifts and does not change.
//!
//! Neighbouring points resemble each other: noise and its correlation come from differences of neighbours, which steps
//! hardly touch (as in Romano, Rigaill, Runge, Fearnhead 2022), and n correlated points count as fewer.
//!
//! E-divisive means, which Hunter and Otava use, were tried on the series of `cargo xtask bench change-points`: tested by
//! permutation at the same p they found as many of the steps, and a change in half of all quiet series that wander and in nearly
//! all that drift.

use crate::describe::{mean, median, variance};
use crate::multiple::benjamini_hochberg;
use crate::student::{two_sided_p, upper_quantile};

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangeRules {
    /// Fewest points between two change points, and before the first and after the last.
    pub segment_min: usize,
    /// Accept a change at or below this p.
    pub p_max: f64,
    /// Smallest relative change that counts, 0 for any: 0.05 ignores steps below 5 %.
    pub share_min: f64,
}

impl Default for ChangeRules {
    fn default() -> Self {
        Self { segment_min: 4, p_max: 0.03, share_min: 0.0 }
    }
}

/// A place where the level changed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Index of the first point of the new level.
    pub index: usize,
    /// Chance of so clear a step somewhere in the two segments where there is none.
    pub p: f64,
    /// Adjusted over all series searched together.
    pub p_adjusted: f64,
    /// Mean of the segment before, outliers drawn in.
    pub before: f64,
    /// Mean of the segment after, outliers drawn in.
    pub after: f64,
    /// `after / before`; NaN where `before` is 0.
    pub ratio: f64,
    /// 95 % interval of the ratio (delta method).
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl ChangePoint {
    /// Size of the step relative to the level before.
    pub fn share(&self) -> f64 {
        (self.ratio - 1.0).abs()
    }
}

/// Change points of one series, in order of their place. Points that are not finite must have been removed.
pub fn change_points(values: &[f64], rules: &ChangeRules) -> Vec<ChangePoint> {
    change_points_of_many(&[values], rules).remove(0)
}

/// Change points of several series (metrics, cells) searched together: p adjusted over all of them, then those above
/// [`ChangeRules::p_max`] and steps smaller than [`ChangeRules::share_min`] dropped.
pub fn change_points_of_many(series: &[&[f64]], rules: &ChangeRules) -> Vec<Vec<ChangePoint>> {
    let mut found: Vec<Vec<ChangePoint>> = series.iter().map(|values| search(values, rules)).collect();
    // A series without a change is a comparison too: it enters with the p that made the search stop.
    let p: Vec<f64> = found
        .iter()
        .flat_map(|points| {
            let stopped = points.is_empty().then_some(1.0);
            points.iter().map(|c| c.p).chain(stopped)
        })
        .collect();
    let mut adjusted = benjamini_hochberg(&p).into_iter();
    for points in &mut found {
        if points.is_empty() {
            adjusted.next();
        }
        for point in points.iter_mut() {
            point.p_adjusted = adjusted.next().unwrap_or(1.0);
        }
        // A ratio that is not a number comes from a level of 0: the size cannot be judged, so the step stays.
        points
            .retain(|c| c.p_adjusted <= rules.p_max && (c.share().is_nan() || c.share() >= rules.share_min));
    }
    found
}

fn search(values: &[f64], rules: &ChangeRules) -> Vec<ChangePoint> {
    let segment_min = rules.segment_min.max(2);
    if values.len() < 2 * segment_min {
        return vec![];
    }
    let noise = Noise::of(values);
    let series = Series::new(&noise.without_outliers(values), noise);
    let mut edges = series.segments(segment_min);
    loop {
        series.settle(&mut edges, segment_min);
        let weakest = (1..edges.len() - 1)
            .map(|at| (at, series.step(edges[at - 1], edges[at], edges[at + 1], segment_min).p))
            .max_by(|a, b| a.1.total_cmp(&b.1));
        match weakest {
            Some((at, p)) if p > rules.p_max => drop(edges.remove(at)),
            _ => break,
        }
    }
    if series.is_line(&edges) {
        return vec![];
    }
    edges
        .windows(3)
        .map(|around| series.step(around[0], around[1], around[2], segment_min).told(around[1]))
        .collect()
}

/// What is random in a series, apart from its levels.
#[derive(Debug, Clone, Copy)]
struct Noise {
    /// Standard deviation of a point around its level.
    sigma: f64,
    /// Correlated points that are worth one independent point, at least 1.
    points_per_independent: f64,
}

/// Points on either side that an outlier is held against.
const NEIGHBOURS: usize = 5;
/// Standard deviations beyond which a point is an outlier and is drawn in to there.
const OUTLIER_SIGMAS: f64 = 2.5;
/// What is taken off a correlation, in its standard errors.
const CHANCE: f64 = 1.0;
/// And beyond which it says nothing of its level.
const LOST_SIGMAS: f64 = 3.5;
/// Correlation of neighbours that is told from a wandering level.
const CORRELATION_MAX: f64 = 0.8;

impl Noise {
    /// With rho the correlation of neighbours (an autoregression of order 1), differences over k points have the variance
    /// 2 sigma^2 (1 - rho^k): those over 2 to 4 points say sigma, and those of neighbours rho. What chance makes of no
    /// correlation at all is not taken for one.
    fn of(values: &[f64]) -> Noise {
        let variance = |lag: usize| {
            let sizes: Vec<f64> = values.windows(lag + 1).map(|w| (w[lag] - w[0]).abs()).collect();
            clipped_rms(&sizes).powi(2) / 2.0
        };
        let next = variance(1);
        let apart = (2..=4).map(variance).sum::<f64>() / 3.0;
        // In a short series a step is a large part of the differences over several points.
        let n = values.len() as f64;
        let chance = CHANCE * (1.0 + 10.0 / n) / n.sqrt();
        let correlation = match apart > 0.0 {
            true => (1.0 - next / apart - chance).clamp(0.0, CORRELATION_MAX),
            false => 0.0,
        };
        Noise {
            sigma: (next / (1.0 - correlation)).sqrt(),
            points_per_independent: (1.0 + correlation) / (1.0 - correlation),
        }
    }

    /// The values, those far from their neighbourhood drawn in, and those farther off set to it (after Hampel's filter).
    /// The neighbourhood is the median of the points before or of those after, whichever is nearer: at a step one of them
    /// is the level that the point belongs to.
    fn without_outliers(&self, values: &[f64]) -> Vec<f64> {
        let reach = OUTLIER_SIGMAS * self.sigma;
        let drawn_in = |(at, value): (usize, &f64)| {
            let before = median(&values[at.saturating_sub(NEIGHBOURS)..at]);
            let after = median(&values[at + 1..(at + 1 + NEIGHBOURS).min(values.len())]);
            let far = |middle: &f64| (value - middle).abs();
            let nearest = before.into_iter().chain(after).min_by(|a, b| far(a).total_cmp(&far(b)));
            let middle = nearest.unwrap_or(*value);
            let is_lost = far(&middle) > LOST_SIGMAS * self.sigma;
            if is_lost { middle } else { value.clamp(middle - reach, middle + reach) }
        };
        values.iter().enumerate().map(drawn_in).collect()
    }
}

/// Standard deviation of normal noise from the sizes of its deviations, of which those beyond 2 robust standard deviations
/// are drawn in to there, so that steps and outliers hardly matter.
fn clipped_rms(sizes: &[f64]) -> f64 {
    /// E min(|z|, 2)^2 of a standard normal z.
    const OF_NORMAL: f64 = 0.920_5;
    let mut most = 2.0 * 1.4826 * median(sizes).unwrap_or(0.0);
    if most == 0.0 {
        // More than half of the neighbours are equal: counters, or figures that were rounded.
        most = mean(sizes).unwrap_or(0.0);
    }
    let squares: Vec<f64> = sizes.iter().map(|size| size.min(most).powi(2)).collect();
    (mean(&squares).unwrap_or(0.0) / OF_NORMAL).sqrt()
}

/// Values with sums that give any segment's mean and squares at once.
struct Series {
    values: Vec<f64>,
    sums: Vec<f64>,
    squares: Vec<f64>,
    /// Taken off before summing, so that squares of large levels lose no digits.
    centre: f64,
    noise: Noise,
}

/// A level that changes at one place, judged.
struct Step {
    before: f64,
    after: f64,
    p: f64,
    /// Standard errors of both levels.
    error_before: f64,
    error_after: f64,
    degrees: f64,
}

/// Degrees of freedom with which a segment's variance leans on that of the whole series.
const LEAN_DEGREES: f64 = 4.0;
/// What a change costs beside a straight line's slope, in sigma^2 ln(n).
const DRIFT_PRICE: f64 = 1.6;
/// Segments of the first cut cost so much, in 2 sigma^2 ln(n); 1 is Schwarz' criterion.
const PENALTY: f64 = 0.7;

impl Series {
    fn new(values: &[f64], noise: Noise) -> Series {
        let centre = median(values).unwrap_or(0.0);
        let mut sums = vec![0.0];
        let mut squares = vec![0.0];
        let (mut sum, mut square) = (0.0, 0.0);
        for value in values {
            sum += value - centre;
            square += (value - centre).powi(2);
            sums.push(sum);
            squares.push(square);
        }
        Series { values: values.to_vec(), sums, squares, centre, noise }
    }

    fn sum(&self, from: usize, to: usize) -> f64 {
        self.sums[to] - self.sums[from]
    }

    /// Squared deviations from the mean of `from..to`.
    fn cost(&self, from: usize, to: usize) -> f64 {
        let sum = self.sum(from, to);
        (self.squares[to] - self.squares[from] - sum * sum / (to - from) as f64).max(0.0)
    }

    /// The cheapest segmentation, as edges from 0 to the length (PELT).
    fn segments(&self, segment_min: usize) -> Vec<usize> {
        let len = self.values.len();
        let independent = self.noise.points_per_independent;
        let penalty = PENALTY * 2.0 * self.noise.sigma.powi(2) * independent * (len as f64).ln();
        // Where rounding is all the noise, splitting it must not pay.
        let penalty = penalty.max(1e-18 * self.squares[len]);
        let mut best = vec![f64::INFINITY; len + 1];
        let mut last = vec![0; len + 1];
        best[0] = -penalty;
        let mut starts: Vec<usize> = Vec::new();
        for end in segment_min..=len {
            let newest = end - segment_min;
            if newest == 0 || newest >= segment_min {
                starts.push(newest);
            }
            for start in &starts {
                let cost = best[*start] + self.cost(*start, end) + penalty;
                if cost < best[end] {
                    (best[end], last[end]) = (cost, *start);
                }
            }
            let bound = best[end];
            starts.retain(|start| best[*start] + self.cost(*start, end) <= bound);
        }
        let mut edges = vec![len];
        while let Some(edge) = edges.last().copied().filter(|edge| *edge > 0) {
            edges.push(last[edge]);
        }
        edges.reverse();
        edges
    }

    /// Moves each inner edge to where two levels explain most of the two segments beside it, until none moves.
    fn settle(&self, edges: &mut [usize], segment_min: usize) {
        for _ in 0..edges.len() {
            let mut has_moved = false;
            for at in 1..edges.len() - 1 {
                let (from, to) = (edges[at - 1], edges[at + 1]);
                let place = (from + segment_min..=to - segment_min)
                    .min_by(|a, b| self.two_levels(from, *a, to).total_cmp(&self.two_levels(from, *b, to)))
                    .unwrap_or(edges[at]);
                has_moved |= place != edges[at];
                edges[at] = place;
            }
            if !has_moved {
                return;
            }
        }
    }

    fn two_levels(&self, from: usize, place: usize, to: usize) -> f64 {
        self.cost(from, place) + self.cost(place, to)
    }

    /// Squared deviations from the straight line through all values.
    fn line(&self) -> f64 {
        let len = self.values.len();
        let n = len as f64;
        let middle = (n - 1.0) / 2.0;
        let level = self.sum(0, len) / n;
        let products: f64 = self
            .values
            .iter()
            .enumerate()
            .map(|(at, value)| (at as f64 - middle) * (value - self.centre - level))
            .sum();
        let times = n * (n * n - 1.0) / 12.0;
        (self.cost(0, len) - products * products / times).max(0.0)
    }

    /// Whether one straight line explains the series better than its levels do, by Schwarz' criterion: drift. A change is
    /// bought with two numbers, its size and its place, and the place dearly, for there are many.
    fn is_line(&self, edges: &[usize]) -> bool {
        let len = self.values.len();
        let levels: f64 = edges.windows(2).map(|edge| self.cost(edge[0], edge[1])).sum();
        let price = self.noise.sigma.powi(2) * self.noise.points_per_independent * (len as f64).ln();
        self.line() < levels + DRIFT_PRICE * (edges.len() - 2) as f64 * price
    }

    fn step(&self, from: usize, place: usize, to: usize, segment_min: usize) -> Step {
        let level = |from: usize, to: usize| self.centre + self.sum(from, to) / (to - from) as f64;
        // Squared standard error of the level, and its degrees of freedom.
        let error = |from: usize, to: usize| {
            let own = variance(&self.values[from..to]).unwrap_or(0.0);
            let degrees = (to - from - 1) as f64;
            let sigma2 = self.noise.sigma.powi(2);
            let pooled = (degrees * own + LEAN_DEGREES * sigma2) / (degrees + LEAN_DEGREES);
            let independent = ((to - from) as f64 / self.noise.points_per_independent).max(1.0);
            (pooled / independent, (independent - 1.0).max(0.0) + LEAN_DEGREES)
        };
        let (before, after) = (level(from, place), level(place, to));
        let ((error_before, degrees_before), (error_after, degrees_after)) =
            (error(from, place), error(place, to));
        let both = error_before + error_after;
        let degrees =
            both * both / (error_before.powi(2) / degrees_before + error_after.powi(2) / degrees_after);
        let places = (to - from + 1 - 2 * segment_min).max(1) as f64;
        let p = if both == 0.0 {
            // Levels without any noise: what is left is the chance of such an order.
            2.0 / ways(to - from, place - from)
        } else {
            (places * two_sided_p((after - before) / both.sqrt(), degrees)).min(1.0)
        };
        let degrees = if degrees.is_finite() { degrees } else { LEAN_DEGREES };
        Step { before, after, p, error_before: error_before.sqrt(), error_after: error_after.sqrt(), degrees }
    }
}

/// Ways to choose `k` of `n`.
fn ways(n: usize, k: usize) -> f64 {
    (0..k.min(n - k)).map(|i| (n - i) as f64 / (i + 1) as f64).product()
}

impl Step {
    fn told(&self, index: usize) -> ChangePoint {
        let ratio = if self.before == 0.0 { f64::NAN } else { self.after / self.before };
        let relative =
            ((self.error_before * ratio).powi(2) + self.error_after.powi(2)).sqrt() / self.before.abs();
        let reach = upper_quantile(0.025, self.degrees) * relative;
        ChangePoint {
            index,
            p: self.p,
            p_adjusted: self.p,
            before: self.before,
            after: self.after,
            ratio,
            low: ratio - reach,
            high: ratio + reach,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn noise(n: usize, seed: u64) -> Vec<f64> {
        let mut rng = Rng::new(seed);
        (0..n).map(|_| 100.0 + rng.normal()).collect()
    }

    #[test]
    fn a_step_is_found_where_it_is() {
        let mut values = noise(60, 4);
        for v in &mut values[35..] {
            *v += 6.0;
        }
        let found = change_points(&values, &ChangeRules::default());
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].index.abs_diff(35) <= 1);
        assert!(found[0].low < 1.06 && found[0].high > 1.06 && found[0].low > 1.04);
    }

    #[test]
    fn two_steps_are_two_points_in_order() {
        let mut values = noise(90, 9);
        for v in &mut values[30..60] {
            *v += 8.0;
        }
        let found = change_points(&values, &ChangeRules::default());
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].index.abs_diff(30) <= 1 && found[1].index.abs_diff(60) <= 1);
        assert!(found[0].ratio > 1.0 && found[1].ratio < 1.0);
    }

    #[test]
    fn small_steps_are_filtered_by_magnitude() {
        let mut values = noise(60, 4);
        for v in &mut values[30..] {
            *v += 3.0;
        }
        assert_eq!(change_points(&values, &ChangeRules::default()).len(), 1);
        assert!(
            change_points(&values, &ChangeRules { share_min: 0.05, ..ChangeRules::default() }).is_empty()
        );
    }

    #[test]
    fn short_and_constant_series_have_none() {
        assert!(change_points(&[1.0; 9], &ChangeRules::default()).is_empty());
        assert!(change_points(&[], &ChangeRules::default()).is_empty());
        assert!(change_points(&[5.0; 40], &ChangeRules::default()).is_empty());
    }

    #[test]
    fn white_noise_seldom_changes() {
        let rules = ChangeRules::default();
        let alarms = (0..200).filter(|seed| !change_points(&noise(60, *seed), &rules).is_empty()).count();
        assert!(alarms <= 7, "{alarms} of 200 at p = .01");
    }

    #[test]
    fn outliers_and_bursts_are_no_levels() {
        let alarms = (0..100).filter(|seed| {
            let mut values = noise(80, 3000 + seed);
            for at in [20, 41, 42, 60] {
                values[at] -= 12.0;
            }
            !change_points(&values, &ChangeRules::default()).is_empty()
        });
        assert!(alarms.count() <= 4);
    }

    #[test]
    fn a_level_of_four_points_at_the_end_is_seen_where_it_begins() {
        let values = [10.43, 10.23, 10.29, 10.91, 10.34, 10.69, 9.23, 9.11, 9.13, 9.03];
        let found = change_points(&values, &ChangeRules::default());
        assert_eq!(found.iter().map(|change| change.index).collect::<Vec<_>>(), [6]);
    }

    #[test]
    fn drift_is_no_change_and_a_step_in_it_is_one() {
        let drift = |seed: u64, step: f64| {
            let mut values = noise(100, 5000 + seed);
            for (at, value) in values.iter_mut().enumerate() {
                *value += 3.0 * at as f64 / 100.0 + if at < 50 { 0.0 } else { step };
            }
            change_points(&values, &ChangeRules::default())
        };
        let alarms = (0..60).filter(|seed| !drift(*seed, 0.0).is_empty()).count();
        let found =
            (0..60).filter(|seed| drift(*seed, -5.0).iter().any(|c| c.index.abs_diff(50) <= 3)).count();
        assert!(alarms <= 6 && found >= 55, "{alarms} alarms, {found} found, of 60");
    }

    #[test]
    fn neighbours_that_resemble_each_other_are_not_levels() {
        let correlated = |seed: u64| {
            let mut rng = Rng::new(seed);
            let mut state = 0.0;
            (0..100)
                .map(|_| {
                    state = 0.5 * state + rng.normal();
                    100.0 + state
                })
                .collect::<Vec<f64>>()
        };
        let alarms = (1000..1100)
            .filter(|seed| !change_points(&correlated(*seed), &ChangeRules::default()).is_empty());
        let alarms = alarms.count();
        assert!(alarms <= 20, "{alarms} of 100; permutation of single points gives 31");
    }

    #[test]
    fn levels_without_noise_change_where_they_do() {
        let values: Vec<f64> = (0..24).map(|at| if at < 12 { 5.0 } else { 7.0 }).collect();
        let found = change_points(&values, &ChangeRules::default());
        assert_eq!(found.iter().map(|change| change.index).collect::<Vec<_>>(), [12]);
    }

    #[test]
    fn ten_thousand_points_take_no_time() {
        let mut values = noise(10_000, 8);
        values[4000..].iter_mut().for_each(|value| *value += 3.0);
        let found = change_points(&values, &ChangeRules::default());
        assert!(found.len() == 1 && found[0].index.abs_diff(4000) <= 3, "{found:?}");
    }

    #[test]
    fn eight_points_of_two_sigma_are_mostly_seen() {
        let rules = ChangeRules { p_max: 0.1, ..ChangeRules::default() };
        let seen = (0..60)
            .filter(|seed| {
                let mut values = noise(60, 500 + seed);
                for v in &mut values[52..] {
                    *v += 2.0;
                }
                !change_points(&values, &rules).is_empty()
            })
            .count();
        assert!(seen >= 36, "{seen} of 60");
    }

    #[test]
    fn many_series_share_the_error() {
        let mut stepped = noise(40, 77);
        for v in &mut stepped[20..] {
            *v += 6.0;
        }
        let quiet: Vec<Vec<f64>> = (0..3).map(|s| noise(40, 900 + s)).collect();
        let mut series: Vec<&[f64]> = quiet.iter().map(Vec::as_slice).collect();
        series.push(&stepped);
        let rules = ChangeRules { p_max: 0.05, ..ChangeRules::default() };
        let found = change_points_of_many(&series, &rules);
        assert_eq!(found[3].len(), 1);
        assert!(found[3][0].p_adjusted > found[3][0].p);
    }
}
