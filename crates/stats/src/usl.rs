//! The Universal Scalability Law (Gunther, "Guerrilla Capacity Planning", 2007): X(N) = gamma N / (1 + alpha (N - 1)
//! + beta N (N - 1)), by weighted least squares within bounds, with a bootstrap over the repeats.
//!
//! A ladder of sessions and a ladder of cores are different models; which of them N is, the caller must say beside
//! the result.

use thiserror::Error;

use crate::describe::{mean, quantile_of_sorted, variance};
use crate::rng::Rng;

/// One load level and what it carried.
#[derive(Debug, Clone, PartialEq)]
pub struct UslPoint {
    /// N: sessions or cores, at least 1.
    pub level: f64,
    /// Throughput of each repeat, in the order of the blocks.
    pub throughputs: Vec<f64>,
}

/// How much each level counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weighting {
    /// By 1 / variance of its mean: estimated from the repeats, shrunk half-way towards the levels' common relative
    /// spread, because the variance of five repeats is itself uncertain. Without repeats, relative errors count
    /// alike at every level. What measurements should use: equal weights ignore small levels.
    ByVariance,
    /// All alike, as `nls` does by default: to compare with published fits.
    Equal,
}

/// A fitted curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UslFit {
    /// Contention: the share that is serialized.
    pub alpha: Estimate,
    /// Coherency: the cost of keeping N participants consistent, by pair.
    pub beta: Estimate,
    /// Throughput of one.
    pub gamma: Estimate,
    /// sqrt((1 - alpha) / beta): the level with the highest throughput.
    pub peak_level: Estimate,
    pub peak_throughput: Estimate,
    /// gamma / alpha: where it would level off without the coherency term.
    pub ceiling: f64,
    /// Share of the (weighted) variation explained.
    pub r_squared: f64,
    /// Largest level that was measured.
    pub level_max: f64,
}

/// A parameter with its uncertainty.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Least-squares value.
    pub value: f64,
    /// Standard error from the curvature; NaN for derived figures.
    pub error: f64,
    /// 95 % percentile interval of the bootstrap over repeats; equal to `value` -+ 1.96 `error` where there are no
    /// repeats to resample.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Why there is no curve.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum UslError {
    /// Three parameters need more points than this.
    #[error("{levels} load levels are too few for the Universal Scalability Law: measure at least 6")]
    TooFewLevels {
        /// Distinct levels given.
        levels: usize,
    },
    /// Nothing bends: beta would be extrapolated.
    #[error(
        "throughput was still rising at the highest level ({level_max}): add levels past the peak, the curve beyond it would be a guess"
    )]
    NotPastThePeak {
        /// Highest level given.
        level_max: f64,
    },
    /// The best curve is on the edge of what the model means.
    #[error("the best fit has {parameter} at its bound ({bound}): the model does not describe these points")]
    BoundActive { parameter: &'static str, bound: f64 },
    #[error("level {level} has a throughput that is not positive, or is below 1")]
    BadValue {
        /// Level as given.
        level: f64,
    },
}

/// Fits the curve. `rounds` bootstrap resamples with `seed` (500 is plenty).
pub fn fit_usl(
    points: &[UslPoint],
    weighting: Weighting,
    rounds: usize,
    seed: u64,
) -> Result<UslFit, UslError> {
    let data = prepare(points, weighting)?;
    let best = minimise(&data);
    if let Some(error) = active_bound(&best) {
        return Err(error);
    }
    let errors = standard_errors(&data, &best);
    let samples = bootstrap(points, weighting, rounds, seed);
    let estimate = |value: f64, error: f64, of: &dyn Fn(&Parameters) -> f64| {
        let mut values: Vec<f64> = samples.iter().map(of).filter(|v| v.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let fallback = (value - 1.96 * error, value + 1.96 * error);
        let (low, high) = match (quantile_of_sorted(&values, 0.025), quantile_of_sorted(&values, 0.975)) {
            (Some(low), Some(high)) => (low, high),
            _ => fallback,
        };
        Estimate { value, error, low, high }
    };
    Ok(UslFit {
        alpha: estimate(best.alpha, errors[1], &|p| p.alpha),
        beta: estimate(best.beta, errors[2], &|p| p.beta),
        gamma: estimate(best.gamma, errors[0], &|p| p.gamma),
        peak_level: estimate(best.peak_level(), f64::NAN, &Parameters::peak_level),
        peak_throughput: estimate(best.at(best.peak_level()), f64::NAN, &|p| p.at(p.peak_level())),
        ceiling: best.gamma / best.alpha,
        r_squared: r_squared(&data, &best),
        level_max: data.iter().map(|d| d.level).fold(0.0, f64::max),
    })
}

impl UslFit {
    /// Throughput at `level`; `None` beyond twice the largest level measured, where it would be a guess.
    pub fn at(&self, level: f64) -> Option<f64> {
        let parameters =
            Parameters { gamma: self.gamma.value, alpha: self.alpha.value, beta: self.beta.value };
        (level >= 0.0 && level <= 2.0 * self.level_max).then(|| parameters.at(level))
    }
}

#[derive(Debug, Clone, Copy)]
struct Datum {
    level: f64,
    throughput: f64,
    weight: f64,
}

#[derive(Debug, Clone, Copy)]
struct Parameters {
    gamma: f64,
    alpha: f64,
    beta: f64,
}

impl Parameters {
    fn denominator(&self, n: f64) -> f64 {
        1.0 + self.alpha * (n - 1.0) + self.beta * n * (n - 1.0)
    }

    fn at(&self, n: f64) -> f64 {
        self.gamma * n / self.denominator(n)
    }

    fn peak_level(&self) -> f64 {
        ((1.0 - self.alpha) / self.beta).sqrt()
    }

    /// Derivatives by gamma, alpha, beta.
    fn gradient(&self, n: f64) -> [f64; 3] {
        let d = self.denominator(n);
        let by_d = -self.gamma * n / (d * d);
        [n / d, by_d * (n - 1.0), by_d * n * (n - 1.0)]
    }
}

fn prepare(points: &[UslPoint], weighting: Weighting) -> Result<Vec<Datum>, UslError> {
    let mut levels: Vec<f64> = points.iter().map(|p| p.level).collect();
    levels.sort_by(f64::total_cmp);
    levels.dedup();
    for point in points {
        let is_bad = point.level.is_nan()
            || point.level < 1.0
            || point.throughputs.is_empty()
            || point.throughputs.iter().any(|x| !x.is_finite() || *x <= 0.0);
        if is_bad {
            return Err(UslError::BadValue { level: point.level });
        }
    }
    if levels.len() < 6 {
        return Err(UslError::TooFewLevels { levels: levels.len() });
    }
    let data = weigh(points, weighting);
    let level_max = levels[levels.len() - 1];
    let highest = data.iter().max_by(|a, b| a.throughput.total_cmp(&b.throughput));
    if highest.is_none_or(|d| d.level >= level_max) {
        return Err(UslError::NotPastThePeak { level_max });
    }
    Ok(data)
}

fn weigh(points: &[UslPoint], weighting: Weighting) -> Vec<Datum> {
    let relative: Vec<Option<f64>> =
        points.iter().map(|p| Some(variance(&p.throughputs)? / mean(&p.throughputs)?.powi(2))).collect();
    let known: Vec<f64> = relative.iter().copied().flatten().collect();
    // Any constant will do where there are no repeats at all: only the proportions of weights matter.
    let common = mean(&known).filter(|c| *c > 0.0).unwrap_or(1.0);
    points
        .iter()
        .zip(relative)
        .map(|(point, relative)| {
            let throughput = mean(&point.throughputs).unwrap_or(0.0);
            let weight = match weighting {
                Weighting::Equal => 1.0,
                Weighting::ByVariance => {
                    let spread = 0.5 * relative.unwrap_or(common) + 0.5 * common;
                    point.throughputs.len() as f64 / (spread * throughput * throughput)
                }
            };
            Datum { level: point.level, throughput, weight }
        })
        .collect()
}

fn loss(data: &[Datum], p: &Parameters) -> f64 {
    data.iter().map(|d| d.weight * (d.throughput - p.at(d.level)).powi(2)).sum()
}

/// Levenberg-Marquardt within the bounds: alpha and beta in [0, 1], gamma not negative. Started from several places
/// (gamma = max(X / N) with alpha = .01, beta = 1e-4 first), since the valley is long and flat.
fn minimise(data: &[Datum]) -> Parameters {
    let gamma = data.iter().map(|d| d.throughput / d.level).fold(0.0, f64::max);
    let starts = [(0.01, 1e-4), (0.1, 1e-3), (0.001, 1e-6), (0.3, 1e-2), (0.5, 1e-5)];
    starts
        .iter()
        .map(|(alpha, beta)| descend(data, Parameters { gamma, alpha: *alpha, beta: *beta }))
        .min_by(|a, b| loss(data, a).total_cmp(&loss(data, b)))
        .unwrap_or(Parameters { gamma, alpha: 0.0, beta: 0.0 })
}

fn descend(data: &[Datum], start: Parameters) -> Parameters {
    let mut at = start;
    let mut value = loss(data, &at);
    let mut damping = 1e-3;
    for _ in 0..500 {
        let (matrix, vector) = normal_equations(data, &at);
        let mut damped = matrix;
        for (i, row) in damped.iter_mut().enumerate() {
            row[i] *= 1.0 + damping;
        }
        let next = solve(damped, vector).map(|step| Parameters {
            gamma: (at.gamma + step[0]).max(0.0),
            alpha: (at.alpha + step[1]).clamp(0.0, 1.0),
            beta: (at.beta + step[2]).clamp(0.0, 1.0),
        });
        let better = next.map(|p| (p, loss(data, &p))).filter(|(_, v)| *v < value);
        match better {
            Some((p, v)) => {
                let gain = (value - v) / value.max(f64::MIN_POSITIVE);
                (at, value) = (p, v);
                damping = (damping * 0.3).max(1e-12);
                if gain < 1e-14 {
                    break;
                }
            }
            None => {
                damping *= 4.0;
                if damping > 1e12 {
                    break;
                }
            }
        }
    }
    at
}

type Matrix = [[f64; 3]; 3];

fn normal_equations(data: &[Datum], p: &Parameters) -> (Matrix, [f64; 3]) {
    let mut matrix = [[0.0; 3]; 3];
    let mut vector = [0.0; 3];
    for d in data {
        let g = p.gradient(d.level);
        let residual = d.throughput - p.at(d.level);
        for i in 0..3 {
            vector[i] += d.weight * g[i] * residual;
            for j in 0..3 {
                matrix[i][j] += d.weight * g[i] * g[j];
            }
        }
    }
    (matrix, vector)
}

/// Gauss with pivoting; columns are scaled by the diagonal, because beta's is some 1e8 times gamma's.
fn solve(mut matrix: Matrix, vector: [f64; 3]) -> Option<[f64; 3]> {
    let mut scale = [0.0; 3];
    for i in 0..3 {
        scale[i] = matrix[i][i].sqrt();
        if scale[i] == 0.0 || !scale[i].is_finite() {
            return None;
        }
    }
    let mut right = [0.0; 3];
    for i in 0..3 {
        right[i] = vector[i] / scale[i];
        for j in 0..3 {
            matrix[i][j] /= scale[i] * scale[j];
        }
    }
    for column in 0..3 {
        let pivot =
            (column..3).max_by(|a, b| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs()))?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        if matrix[column][column].abs() < 1e-300 {
            return None;
        }
        for row in column + 1..3 {
            let factor = matrix[row][column] / matrix[column][column];
            let from = matrix[column];
            for (cell, above) in matrix[row].iter_mut().zip(from).skip(column) {
                *cell -= factor * above;
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solution = [0.0; 3];
    for i in (0..3).rev() {
        let known: f64 = (i + 1..3).map(|j| matrix[i][j] * solution[j]).sum();
        solution[i] = (right[i] - known) / matrix[i][i];
    }
    for i in 0..3 {
        solution[i] /= scale[i];
    }
    solution.iter().all(|x| x.is_finite()).then_some(solution)
}

/// Square roots of the diagonal of s^2 (J' W J)^-1, as `nls` reports them: gamma, alpha, beta.
fn standard_errors(data: &[Datum], p: &Parameters) -> [f64; 3] {
    let (matrix, _) = normal_equations(data, p);
    let variance = loss(data, p) / (data.len() as f64 - 3.0);
    let mut errors = [f64::NAN; 3];
    for (i, error) in errors.iter_mut().enumerate() {
        let mut unit = [0.0; 3];
        unit[i] = 1.0;
        if let Some(column) = solve(matrix, unit) {
            *error = (variance * column[i]).sqrt();
        }
    }
    errors
}

fn active_bound(p: &Parameters) -> Option<UslError> {
    let bound = |parameter, bound| Some(UslError::BoundActive { parameter, bound });
    if p.alpha <= 1e-9 {
        bound("alpha (contention)", 0.0)
    } else if p.alpha >= 1.0 {
        bound("alpha (contention)", 1.0)
    } else if p.beta <= 1e-12 {
        bound("beta (coherency)", 0.0)
    } else if p.beta >= 1.0 {
        bound("beta (coherency)", 1.0)
    } else if p.gamma <= 0.0 {
        bound("gamma", 0.0)
    } else {
        None
    }
}

fn r_squared(data: &[Datum], p: &Parameters) -> f64 {
    let weights: f64 = data.iter().map(|d| d.weight).sum();
    let centre = data.iter().map(|d| d.weight * d.throughput).sum::<f64>() / weights;
    let total: f64 = data.iter().map(|d| d.weight * (d.throughput - centre).powi(2)).sum();
    1.0 - loss(data, p) / total
}

/// Whole blocks are resampled where every level has the same number of repeats, since the levels of one block share
/// the machine's state; otherwise each level's repeats on their own. Nothing where no level has two.
fn bootstrap(points: &[UslPoint], weighting: Weighting, rounds: usize, seed: u64) -> Vec<Parameters> {
    let repeats = points.iter().map(|p| p.throughputs.len()).max().unwrap_or(0);
    if repeats < 2 {
        return Vec::new();
    }
    let is_even = points.iter().all(|p| p.throughputs.len() == repeats);
    let weights: Vec<f64> = weigh(points, weighting).iter().map(|d| d.weight).collect();
    let mut rng = Rng::new(seed);
    (0..rounds)
        .map(|_| {
            let blocks: Vec<usize> = (0..repeats).map(|_| rng.below(repeats)).collect();
            let data: Vec<Datum> = points
                .iter()
                .zip(&weights)
                .map(|(point, weight)| {
                    let from = &point.throughputs;
                    let drawn: Vec<f64> = if is_even {
                        blocks.iter().map(|b| from[*b]).collect()
                    } else {
                        (0..from.len()).map(|_| from[rng.below(from.len())]).collect()
                    };
                    let throughput = mean(&drawn).unwrap_or(0.0);
                    Datum { level: point.level, throughput, weight: *weight }
                })
                .collect();
            minimise(&data)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rng::Rng;

    fn single(levels: &[f64], throughputs: &[f64]) -> Vec<UslPoint> {
        levels.iter().zip(throughputs).map(|(l, x)| UslPoint { level: *l, throughputs: vec![*x] }).collect()
    }

    fn curve(gamma: f64, alpha: f64, beta: f64, levels: &[f64]) -> Vec<f64> {
        levels.iter().map(|n| Parameters { gamma, alpha, beta }.at(*n)).collect()
    }

    const LEVELS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

    /// The SPEC SDM91 figures that the field fits (Gunther 2007, chapter 5).
    #[test]
    fn golden_sdm91() {
        let points = single(
            &[1.0, 18.0, 36.0, 72.0, 108.0, 144.0, 216.0],
            &[64.9, 995.9, 1652.4, 1853.2, 1828.9, 1775.0, 1702.2],
        );
        let fit = fit_usl(&points, Weighting::Equal, 0, 1).unwrap();
        let close = |got: f64, want: f64, tolerance: f64| {
            assert!((got / want - 1.0).abs() < tolerance, "{got} instead of {want}: {fit:?}");
        };
        close(fit.alpha.value, 0.02773, 0.001);
        close(fit.alpha.error, 0.00912, 0.01);
        close(fit.beta.value, 1.0437e-4, 0.001);
        close(fit.beta.error, 1.99e-5, 0.01);
        close(fit.gamma.value, 90.0, 0.001);
        close(fit.gamma.error, 14.2, 0.01);
        close(fit.peak_level.value, 96.5, 0.001);
        close(fit.peak_throughput.value, 1884.0, 0.001);
        // Weighted by relative error, the measured single-user figure counts.
        let weighted = fit_usl(&points, Weighting::ByVariance, 0, 1).unwrap();
        assert!((weighted.gamma.value / 64.9 - 1.0).abs() < 0.2, "{weighted:?}");
    }

    #[test]
    fn refusals_say_why() {
        let few = single(&LEVELS[..5], &[1.0, 2.0, 3.0, 2.0, 1.0]);
        assert_eq!(fit_usl(&few, Weighting::Equal, 0, 1), Err(UslError::TooFewLevels { levels: 5 }));
        let rising = single(&LEVELS, &curve(100.0, 0.02, 1e-7, &LEVELS));
        assert_eq!(
            fit_usl(&rising, Weighting::Equal, 0, 1),
            Err(UslError::NotPastThePeak { level_max: 128.0 })
        );
        let zero = single(&LEVELS, &[1.0, 2.0, 0.0, 4.0, 5.0, 6.0, 7.0, 6.0]);
        assert_eq!(fit_usl(&zero, Weighting::Equal, 0, 1), Err(UslError::BadValue { level: 4.0 }));
    }

    #[test]
    fn a_bound_that_is_active_is_refused() {
        // Better than linear, then a cliff: no contention term can describe the first part.
        let points = single(&LEVELS, &[10.0, 25.0, 60.0, 140.0, 300.0, 620.0, 1250.0, 1000.0]);
        let got = fit_usl(&points, Weighting::Equal, 0, 1);
        assert!(matches!(got, Err(UslError::BoundActive { .. })), "{got:?}");
    }

    #[test]
    fn no_far_extrapolation() {
        let fit = fit_usl(&single(&LEVELS, &curve(1000.0, 0.05, 5e-4, &LEVELS)), Weighting::ByVariance, 0, 1)
            .unwrap();
        assert!(fit.at(256.0).is_some() && fit.at(257.0).is_none());
    }

    #[test]
    fn bootstrap_interval_covers_the_truth_and_depends_on_the_seed_only() {
        let mut rng = Rng::new(21);
        let truth = curve(1000.0, 0.05, 5e-4, &LEVELS);
        let points: Vec<UslPoint> = LEVELS
            .iter()
            .zip(&truth)
            .map(|(level, x)| UslPoint {
                level: *level,
                throughputs: (0..6).map(|_| x * (1.0 + 0.05 * rng.normal())).collect(),
            })
            .collect();
        let fit = fit_usl(&points, Weighting::ByVariance, 300, 5).unwrap();
        assert!(fit.alpha.low < 0.05 && 0.05 < fit.alpha.high, "{fit:?}");
        assert!(fit.beta.low < 5e-4 && 5e-4 < fit.beta.high, "{fit:?}");
        assert_eq!(fit_usl(&points, Weighting::ByVariance, 300, 5).unwrap().alpha, fit.alpha);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn exact_curves_are_recovered(gamma in 10f64..1e5, alpha in 0.005f64..0.3, beta in 2e-4f64..5e-3) {
            let points = single(&LEVELS, &curve(gamma, alpha, beta, &LEVELS));
            for weighting in [Weighting::Equal, Weighting::ByVariance] {
                let fit = fit_usl(&points, weighting, 0, 1).unwrap();
                prop_assert!((fit.gamma.value / gamma - 1.0).abs() < 1e-4);
                prop_assert!((fit.alpha.value - alpha).abs() < 1e-4);
                prop_assert!((fit.beta.value / beta - 1.0).abs() < 1e-3);
            }
        }
    }
}
