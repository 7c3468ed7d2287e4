//! Where the line lies, given what probes near it saw: a posterior over a grid.
//!
//! With x the logarithm of the rate, the log-odds of breaking the promise are those of its allowed share at the line, and
//! rise by `slope` for each unit of x. What a probe saw is as likely as its binomial deviance says, divided by a
//! dispersion (the extended quasi-likelihood of Nelder and Pregibon, Biometrika 74, 1987). One part of the dispersion is
//! what the queue's autocorrelation makes of the binomial variance: the long-run variance of the seconds' counts
//! (Bartlett's window: Newey and West, Econometrica 55, 1987). The other is the machine, whose capacity is another one
//! from probe to probe by `wander` of its logarithm. Slope and wander are integrated over, hence the tails of the interval
//! are about those of Student's t where there are few probes.
//!
//! A logistic function is right near the line only, so probes count less the farther they lie (Cleveland, "Robust locally
//! weighted regression", Journal of the American Statistical Association 74, 1979); probes far away have bounded the grid.

use super::{Probe, Seen};
use crate::student;

/// Where a line lies, in transactions per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// As likely above as below.
    pub middle: f64,
    /// Upper end.
    pub high: f64,
}

/// Where a promise stands at a probe's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    Kept,
    Broken,
    Open,
}

/// The posterior of one promise's line.
#[derive(Debug, Clone)]
pub(super) struct Fit {
    /// Logarithms of rates, ascending.
    grid: Vec<f64>,
    /// Probability that the line is not above each.
    cumulated: Vec<f64>,
    /// Mean of the slope.
    pub(super) slope: f64,
    /// How many seconds the dispersion is known from.
    seconds: usize,
}

const GRID: usize = 81;
const SLOPES: usize = 14;
const SLOPE_MIN: f64 = 2.0;
const SLOPE_MAX: f64 = 120.0;
const WANDERS: [f64; 4] = [0.003, 0.008, 0.016, 0.032];
/// Probes farther than this in the logarithm of the rate say nothing about the fit.
const REACH: f64 = 0.18;
/// The same where there are so many near the line that no others are needed.
const REACH_DENSE: f64 = 0.09;
const DENSE: usize = 4;
/// Counts of a queue are never less dispersed than chance; where nothing is known yet they are taken for this much more.
pub(super) const DISPERSION_START: f64 = 4.0;
/// How many transactions over the limit that prior is worth.
const PRIOR_OVER: f64 = 15.0;
/// Seconds apart that counts may still resemble each other.
const LAGS_MAX: usize = 5;
/// Standard deviations beyond which a probe alone says where a promise stands.
const CLEAR: f64 = 2.6;

impl Fit {
    /// The rate that the line is below with this probability.
    pub(super) fn quantile(&self, p: f64) -> f64 {
        let at = self.cumulated.partition_point(|cumulated| *cumulated < p);
        let Some(above) = self.cumulated.get(at) else { return self.grid[self.grid.len() - 1].exp() };
        if at == 0 {
            return self.grid[0].exp();
        }
        let below = self.cumulated[at - 1];
        let share = if *above > below { (p - below) / (above - below) } else { 1.0 };
        (self.grid[at - 1] + share * (self.grid[at] - self.grid[at - 1])).exp()
    }

    pub(super) fn interval(&self) -> Interval {
        let middle = self.quantile(0.5);
        let longer = tail(self.seconds);
        let end = |p: f64| middle * (self.quantile(p) / middle).powf(longer);
        Interval { low: end(0.025), middle, high: end(0.975) }
    }

    /// Half of the length that holds 95 % of the posterior, relative to the rate. [`Fit::interval`] is longer where that rests on
    /// few seconds.
    pub(super) fn half_width(&self) -> f64 {
        0.5 * (self.quantile(0.975) / self.quantile(0.025)).ln()
    }
}

/// How much more the counts of these seconds vary than those of independent transactions: the sum over them of the
/// long-run variance, and of the binomial one.
fn variances(seen: &Seen) -> (f64, f64) {
    let share = seen.total.share();
    let left: Vec<f64> =
        seen.seconds.iter().map(|count| count.over as f64 - share * count.transactions as f64).collect();
    let count = left.len();
    if count < 4 {
        return (0.0, 0.0);
    }
    let product = |lag: usize| left.iter().zip(&left[lag..]).map(|(a, b)| a * b).sum::<f64>();
    let lags = LAGS_MAX.min(count / 4);
    let long_run =
        (1..=lags).map(|lag| 2.0 * (1.0 - lag as f64 / (lags + 1) as f64) * product(lag)).sum::<f64>()
            + product(0);
    // Residuals from a mean that was estimated, with the window's own loss.
    let scale = count as f64 / (count - 1 - lags.min(count - 2)) as f64;
    let binomial = seen.total.transactions as f64 * share * (1.0 - share);
    ((long_run * scale).max(0.0), binomial)
}

/// Whether a probe was not far above the line.
pub(super) fn is_near(seen: &Seen, allowed: f64) -> bool {
    seen.total.share() < (6.0 * allowed).min(0.5)
}

/// The dispersion that these probes show together. Those far above the line are of another kind: they count only where
/// there are no others.
pub(super) fn dispersion<'a>(probes: impl Iterator<Item = &'a Seen> + Clone, allowed: f64) -> f64 {
    let (mut long_run, mut binomial) = (DISPERSION_START * PRIOR_OVER, PRIOR_OVER);
    for seen in probes.filter(|seen| is_near(seen, allowed)) {
        let (theirs, chance) = variances(seen);
        long_run += theirs;
        binomial += chance;
    }
    (long_run / binomial).max(1.0)
}

/// What a probe alone says.
pub(super) fn stand(seen: &Seen, is_overloaded: bool, allowed: f64, dispersion: f64) -> Stand {
    let expected = allowed * seen.total.transactions as f64;
    let off = seen.total.over as f64 - expected;
    let score = off / (dispersion * expected.max(1.0) * (1.0 - allowed)).sqrt();
    if is_overloaded || score > CLEAR {
        Stand::Broken
    } else if score < -CLEAR || seen.total.over == 0 && expected >= 7.0 {
        Stand::Kept
    } else {
        Stand::Open
    }
}

/// What Student's t has beyond the normal distribution where a variance is known from so many seconds: Bartlett's window
/// leaves about a degree of freedom of [`LAGS_MAX`] + 1 of them.
fn tail(seconds: usize) -> f64 {
    let freedom = (seconds as f64 / (LAGS_MAX + 1) as f64).max(2.0);
    student::quantile(0.975, freedom) / student::normal_quantile(0.975)
}

fn log_odds(share: f64) -> f64 {
    (share / (1.0 - share)).ln()
}

/// One probe as the fit sees it.
struct Point {
    x: f64,
    transactions: f64,
    over: f64,
    /// Logarithms of the share that was over, and of its complement.
    share_ln: f64,
    complement_ln: f64,
    /// Binomial variance of the count at the line.
    expected: f64,
    weight: f64,
}

fn point(x: f64, seen: &Seen, allowed: f64, weight: f64) -> Point {
    let [transactions, over] = [seen.total.transactions, seen.total.over].map(|count| count as f64);
    let share = over / transactions;
    Point {
        x,
        transactions,
        over,
        // Without any there is nothing to multiply by.
        share_ln: if share > 0.0 { share.ln() } else { 0.0 },
        complement_ln: if share < 1.0 { f64::ln_1p(-share) } else { 0.0 },
        expected: transactions * allowed * (1.0 - allowed),
        weight,
    }
}

/// What a promise saw of a probe. At a rate beyond what the server carries, all that comes later waits longer and longer:
/// those that did not in the probe's time must not speak for that rate.
fn of_promise(probe: &Probe, index: usize) -> Seen {
    let mut seen = probe.seen[index].clone();
    if probe.is_overloaded {
        seen.total.over = seen.total.over.max(seen.total.transactions / 2);
    }
    seen
}

/// The posterior of the line of the promise at `index`, which lies between two logarithms of rates. `worth`: how much each probe
/// counts, within (0, 1].
pub(super) fn fit(probes: &[Probe], worth: &[f64], index: usize, allowed: f64, range: (f64, f64)) -> Fit {
    let all: Vec<(f64, f64, Seen)> = probes
        .iter()
        .zip(worth)
        .map(|(probe, worth)| (probe.rate.ln(), *worth, of_promise(probe, index)))
        .collect();
    let middle = 0.5 * (range.0 + range.1);
    let nearest =
        all.iter().map(|(x, ..)| *x).min_by(|a, b| (a - middle).abs().total_cmp(&(b - middle).abs()));
    let mut centre = nearest.filter(|x| (x - middle).abs() >= REACH).unwrap_or(middle);
    let mut found = None;
    // The weights depend on where the line is thought to be.
    for turn in 0..3 {
        let within = |reach: f64| all.iter().filter(move |(x, ..)| (x - centre).abs() < reach);
        let is_dense = turn > 0 && within(0.7 * REACH_DENSE).count() >= DENSE;
        let reach = if is_dense { REACH_DENSE } else { REACH };
        let near: Vec<&(f64, f64, Seen)> = within(reach).collect();
        let dispersion = dispersion(near.iter().map(|(.., seen)| seen), allowed);
        let weight = |x: f64| (1.0 - ((x - centre) / reach).powi(2)).powi(2);
        let points: Vec<Point> = near
            .iter()
            .filter(|(.., seen)| seen.total.transactions > 0)
            .map(|(x, worth, seen)| point(*x, seen, allowed, worth * weight(*x)))
            .collect();
        let seconds = near
            .iter()
            .filter(|(.., seen)| is_near(seen, allowed))
            .map(|(.., seen)| seen.seconds.len())
            .sum();
        let fit = posterior(&points, allowed, (dispersion, seconds), range);
        centre = fit.quantile(0.5).ln();
        found = Some(fit);
    }
    found.unwrap_or_else(|| posterior(&[], allowed, (DISPERSION_START, 0), range))
}

/// `dispersion`, and how many seconds it is known from.
fn posterior(points: &[Point], allowed: f64, (dispersion, seconds): (f64, usize), range: (f64, f64)) -> Fit {
    let grid: Vec<f64> =
        (0..GRID).map(|at| range.0 + (range.1 - range.0) * at as f64 / (GRID - 1) as f64).collect();
    let base = log_odds(allowed);
    let slopes: Vec<f64> = (0..SLOPES)
        .map(|at| SLOPE_MIN * (SLOPE_MAX / SLOPE_MIN).powf(at as f64 / (SLOPES - 1) as f64))
        .collect();
    let mut logs = Vec::with_capacity(GRID * SLOPES * WANDERS.len());
    for line in &grid {
        for slope in &slopes {
            let mut sums = [0.0; WANDERS.len()];
            for point in points {
                let odds = base + slope * (point.x - line);
                // Logarithms of the share and of its complement, exact where either is tiny.
                let over = -f64::ln_1p((-odds).exp());
                let under = -f64::ln_1p(odds.exp());
                let deviance = point.over * (point.share_ln - over)
                    + (point.transactions - point.over) * (point.complement_ln - under);
                for (sum, wander) in sums.iter_mut().zip(WANDERS) {
                    let dispersion = dispersion + point.expected * (slope * wander).powi(2);
                    *sum -= point.weight * (deviance / dispersion + 0.5 * dispersion.ln());
                }
            }
            logs.extend(sums);
        }
    }
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (mut total, mut slope_sum) = (0.0, 0.0);
    let mut masses = vec![0.0; GRID];
    for (at, log) in logs.iter().enumerate() {
        let mass = (log - most).exp();
        masses[at / (SLOPES * WANDERS.len())] += mass;
        slope_sum += mass * slopes[at / WANDERS.len() % SLOPES];
        total += mass;
    }
    let mut sum = 0.0;
    // A point of the grid stands for half a step on each side.
    let cumulated = masses
        .iter()
        .map(|mass| {
            sum += mass / total;
            sum - 0.5 * mass / total
        })
        .collect();
    Fit { grid, cumulated, slope: slope_sum / total, seconds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Count, Purpose};

    #[test]
    fn an_interval_is_longer_where_its_dispersion_is_known_from_few_seconds() {
        // Student's t of 2 and 10 degrees of freedom over the normal quantile, from tables.
        for (seconds, factor) in [(0, 4.3027 / 1.96), (60, 2.2281 / 1.96), (6_000, 1.9623 / 1.96)] {
            assert!((tail(seconds) - factor).abs() < 1e-3, "{seconds}: {}", tail(seconds));
        }
        let probe = |rate: f64, share: f64| {
            let second = Count { transactions: rate as u64, over: (rate * share).round() as u64 };
            let seen = vec![Seen { total: [second; 5].into_iter().sum(), seconds: vec![second; 5] }];
            Probe { rate, seen, is_overloaded: false, took_s: 8.0, purpose: Purpose::Refine, focus: 0 }
        };
        let probes = [probe(480.0, 0.008), probe(500.0, 0.012)];
        let fit = fit(&probes, &[1.0; 2], 0, 0.01, (400f64.ln(), 600f64.ln()));
        let Interval { low, middle, high } = fit.interval();
        let half = 0.5 * (high / low).ln();
        assert!((half / fit.half_width() - tail(10)).abs() < 1e-9 && low < middle && middle < high, "{half}");
    }
}
