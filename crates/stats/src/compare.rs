//! Is `other` faster than `base`? Paired t on the blocks' log-ratios, Welch as the fall-back, equivalence by two
//! one-sided tests (Schuirmann 1987), and one adjustment for all questions of a study.
//!
//! The repeat is the block (a fresh data directory and server life), never a second of a run: seconds are not
//! independent samples (Kalibera and Jones, ISMM 2013). The ratio of logs makes "twice" and "half" symmetric.
//!
//! Verdicts follow from the interval that is shown with them, whatever the number of comparisons:
//! - *equivalent*: the interval lies within 1 / (1 + margin) .. 1 + margin;
//! - *faster*, *slower*: it excludes 1, and it is not equivalent;
//! - *undecided*: it includes 1 and reaches beyond the margin.
//!
//! For that the level of the interval is that of the Benjamini-Hochberg step that decided (the intervals of Benjamini
//! and Yekutieli 2005 for selected parameters), so it is wider than 95 % where many comparisons share the error.

use std::collections::BTreeMap;

use crate::describe::{mean, standard_deviation};
use crate::multiple::benjamini_hochberg;
use crate::student::{two_sided_p, upper_quantile};

/// Which values of a metric mean "faster".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Throughput: faster is a ratio above 1.
    Higher,
    /// Latency, CPU per transaction, debt: faster is a ratio below 1.
    Lower,
}

/// One run's value, with the block it belongs to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Number of the block; samples of one block are compared with each other.
    pub block: u32,
    /// Value of the metric; must be positive and finite to count.
    pub value: f64,
}

/// One comparison that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What `other` is measured against.
    pub base: Vec<Sample>,
    /// What the verdict speaks about.
    pub other: Vec<Sample>,
    /// Direction of the metric.
    pub better: Better,
}

/// How strict to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Differences up to this share count as none: 0.05 makes 1/1.05 .. 1.05 equivalent.
    pub margin: f64,
    /// Accepted share of false statements among those made.
    pub alpha: f64,
    /// No verdict below this many blocks (3 against 3 decides nothing at the noise of real machines).
    pub blocks_min: usize,
    /// Chance to decide that `blocks_needed` is computed for.
    pub power: f64,
}

impl Default for Rules {
    fn default() -> Self {
        Self { margin: 0.05, alpha: 0.05, blocks_min: 5, power: 0.8 }
    }
}

/// What can be said about `other` against `base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verdict {
    /// `other` is better than `base` in the direction of the metric (more throughput, less latency).
    Faster,
    /// `other` is worse.
    Slower,
    /// Any difference is within the margin.
    Equivalent,
    /// Neither could be shown.
    Undecided,
}

impl Verdict {
    /// The word of the JSON and of reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Equivalent => "equivalent",
            Self::Undecided => "undecided",
        }
    }
}

/// How the ratio was estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Paired t on the log-ratios of blocks that have both sides.
    Paired,
    /// Welch's t on logs: too few blocks have both sides, but each side has enough runs.
    Welch,
}

impl Method {
    /// The word of reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Paired => "paired",
            Self::Welch => "welch",
        }
    }
}

/// Why there is no verdict, or what weakens it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// No pair of values at all.
    NoData,
    /// Fewer blocks than [`Rules::blocks_min`].
    TooFewBlocks,
    /// Values that are zero, negative or not finite were left out.
    ValuesLeftOut,
    /// Not the same blocks on both sides: Welch's test, which does not cancel the machine's drift.
    NotPaired,
}

impl Reason {
    /// A sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NoData => "no block has a valid value on both sides",
            Self::TooFewBlocks => "too few blocks for a verdict: add blocks",
            Self::ValuesLeftOut => "values that are not positive were left out",
            Self::NotPaired => "the two sides do not share enough blocks: compared unpaired, which is weaker",
        }
    }
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Pairs of blocks (paired) or the smaller number of runs of the two sides (Welch).
    pub n: usize,
    /// How it was computed.
    pub method: Method,
    /// Geometric mean of other / base; `None` without data.
    pub ratio: Option<f64>,
    /// Lower end of the interval of the ratio.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Level of the interval, for example 0.95; higher where many comparisons share the error.
    pub confidence: Option<f64>,
    /// Two-sided p of "no difference", not adjusted.
    pub p: Option<f64>,
    /// The same, adjusted over all questions asked together.
    pub p_adjusted: Option<f64>,
    /// p of "the difference is as large as the margin", adjusted over all questions.
    pub p_equivalence_adjusted: Option<f64>,
    /// What can be said.
    pub verdict: Verdict,
    /// For an undecided one: blocks in all (those there are included) that would decide it with
    /// [`Rules::power`], if the ratio and its spread stay what they are. `None` when decided, unknown or beyond 10,000.
    pub blocks_needed: Option<usize>,
    /// What weakens or prevents the verdict.
    pub reason: Option<Reason>,
}

/// Estimate of a log-ratio.
#[derive(Debug, Clone, Copy)]
struct LogRatio {
    n: usize,
    method: Method,
    centre: f64,
    /// Standard error; NaN with fewer than two values.
    error: f64,
    df: f64,
    reason: Option<Reason>,
}

impl LogRatio {
    fn p_difference(&self) -> f64 {
        if self.error == 0.0 {
            return if self.centre == 0.0 { 1.0 } else { 0.0 };
        }
        two_sided_p(self.centre / self.error, self.df)
    }

    /// The larger p of the two one-sided tests.
    fn p_equivalence(&self, log_margin: f64) -> f64 {
        let room = log_margin - self.centre.abs();
        if self.error == 0.0 {
            return if room > 0.0 { 0.0 } else { 1.0 };
        }
        crate::student::cdf(-room / self.error, self.df)
    }

    /// Interval of the log-ratio that misses with probability `alpha`.
    fn interval(&self, alpha: f64) -> (f64, f64) {
        let half = if self.error == 0.0 { 0.0 } else { upper_quantile(alpha / 2.0, self.df) * self.error };
        (self.centre - half, self.centre + half)
    }
}

/// Answers one question on its own.
pub fn compare_one(question: &Question, rules: &Rules) -> Comparison {
    answer(&[estimate(question, rules)], &[question.better], rules).remove(0)
}

/// Answers all questions of a study, adjusting for their number. In the order of the input. Questions below
/// [`Rules::blocks_min`] get no verdict and do not count as comparisons.
pub fn compare(questions: &[Question], rules: &Rules) -> Vec<Comparison> {
    let estimates: Vec<Option<LogRatio>> = questions.iter().map(|q| estimate(q, rules)).collect();
    let better: Vec<Better> = questions.iter().map(|q| q.better).collect();
    answer(&estimates, &better, rules)
}

fn answer(estimates: &[Option<LogRatio>], better: &[Better], rules: &Rules) -> Vec<Comparison> {
    let log_margin = rules.margin.max(0.0).ln_1p();
    let judged = |e: &Option<LogRatio>| e.filter(|e| e.n >= rules.blocks_min.max(2));
    let p: Vec<f64> = estimates.iter().map(|e| judged(e).map_or(f64::NAN, |e| e.p_difference())).collect();
    let p_equal: Vec<f64> =
        estimates.iter().map(|e| judged(e).map_or(f64::NAN, |e| e.p_equivalence(log_margin))).collect();
    let family = Family::new(&p, &p_equal, rules.alpha);
    estimates
        .iter()
        .zip(better)
        .enumerate()
        .map(|(i, (estimate, better))| match estimate {
            None => nothing(),
            Some(e) if p[i].is_nan() => without_verdict(e, rules, log_margin),
            Some(e) => family.judge(i, e, *better, rules, log_margin),
        })
        .collect()
}

/// What the questions asked together share: the levels at which the step-up procedures stopped.
struct Family {
    difference: Vec<f64>,
    equivalence: Vec<f64>,
    /// Two-sided level of an interval that excludes 1 exactly when the difference is declared.
    alpha_difference: f64,
    /// Two-sided level of an interval within the margin exactly when equivalence is declared (twice the one-sided).
    alpha_equivalence: f64,
    alpha: f64,
}

impl Family {
    fn new(p: &[f64], p_equal: &[f64], alpha: f64) -> Self {
        let m = p.iter().filter(|p| !p.is_nan()).count().max(1) as f64;
        let difference = benjamini_hochberg(p);
        let equivalence = benjamini_hochberg(p_equal);
        let rejected = |adjusted: &[f64]| adjusted.iter().filter(|p| **p <= alpha).count().max(1) as f64;
        Self {
            alpha_difference: alpha * rejected(&difference) / m,
            alpha_equivalence: 2.0 * alpha * rejected(&equivalence) / m,
            difference,
            equivalence,
            alpha,
        }
    }

    fn judge(&self, i: usize, e: &LogRatio, better: Better, rules: &Rules, log_margin: f64) -> Comparison {
        let within = |(low, high): (f64, f64)| low >= -log_margin && high <= log_margin;
        let is_equal = self.equivalence[i] <= self.alpha;
        let is_different = self.difference[i] <= self.alpha;
        let alpha = match (is_equal, is_different) {
            (true, _) => self.alpha_equivalence,
            (false, true) => self.alpha_difference,
            (false, false) => self.alpha_difference.min(self.alpha_equivalence),
        };
        let interval = e.interval(alpha);
        // A difference whose own interval lies within the margin is one that the study calls none.
        let verdict = if is_equal || (is_different && within(interval)) {
            Verdict::Equivalent
        } else if is_different {
            if (e.centre > 0.0) == (better == Better::Higher) { Verdict::Faster } else { Verdict::Slower }
        } else {
            Verdict::Undecided
        };
        let blocks_needed =
            if verdict == Verdict::Undecided { blocks_needed(e, alpha, rules, log_margin) } else { None };
        Comparison {
            n: e.n,
            method: e.method,
            ratio: Some(e.centre.exp()),
            low: Some(interval.0.exp()),
            high: Some(interval.1.exp()),
            confidence: Some(1.0 - alpha),
            p: Some(e.p_difference()),
            p_adjusted: Some(self.difference[i]),
            p_equivalence_adjusted: Some(self.equivalence[i]),
            verdict,
            blocks_needed,
            reason: e.reason,
        }
    }
}

fn nothing() -> Comparison {
    Comparison {
        n: 0,
        method: Method::Paired,
        ratio: None,
        low: None,
        high: None,
        confidence: None,
        p: None,
        p_adjusted: None,
        p_equivalence_adjusted: None,
        verdict: Verdict::Undecided,
        blocks_needed: None,
        reason: Some(Reason::NoData),
    }
}

/// Below the smallest number of blocks: an interval where there are two, no p and no verdict.
fn without_verdict(e: &LogRatio, rules: &Rules, log_margin: f64) -> Comparison {
    let interval = (e.n >= 2).then(|| e.interval(rules.alpha));
    let needed =
        if e.n >= 2 { blocks_needed(e, rules.alpha, rules, log_margin) } else { Some(rules.blocks_min) };
    Comparison {
        n: e.n,
        method: e.method,
        ratio: Some(e.centre.exp()),
        low: interval.map(|i| i.0.exp()),
        high: interval.map(|i| i.1.exp()),
        confidence: interval.map(|_| 1.0 - rules.alpha),
        p: None,
        p_adjusted: None,
        p_equivalence_adjusted: None,
        verdict: Verdict::Undecided,
        blocks_needed: needed,
        reason: Some(Reason::TooFewBlocks),
    }
}

/// Smallest number of blocks at which either test decides with the wanted power, taking centre and spread as they
/// are: sqrt(n) x distance / spread >= t(1 - alpha / 2) + t(power) (Cohen 1988, the t approximation).
fn blocks_needed(e: &LogRatio, alpha: f64, rules: &Rules, log_margin: f64) -> Option<usize> {
    let least = rules.blocks_min.max(e.n + 1);
    let spread = e.error * (e.n as f64).sqrt();
    let distance = e.centre.abs().max(log_margin - e.centre.abs());
    if spread.is_nan() || distance <= 0.0 {
        return None;
    }
    let decides = |n: usize| {
        let df = n as f64 - 1.0;
        let needed = upper_quantile(alpha / 2.0, df) + upper_quantile(1.0 - rules.power.max(0.5), df);
        distance * (n as f64).sqrt() >= needed * spread
    };
    let most = 10_000;
    if !decides(most) {
        return None;
    }
    let (mut low, mut high) = (least.saturating_sub(1), most);
    while high - low > 1 {
        let middle = usize::midpoint(low, high);
        if middle >= 2 && decides(middle) { high = middle } else { low = middle }
    }
    Some(high.max(least))
}

/// Logs by block, several values of a block averaged; and whether any value had to be left out.
fn logs_by_block(samples: &[Sample]) -> (BTreeMap<u32, f64>, bool) {
    let mut by_block: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let mut is_left_out = false;
    for sample in samples {
        if sample.value.is_finite() && sample.value > 0.0 {
            by_block.entry(sample.block).or_default().push(sample.value.ln());
        } else {
            is_left_out = true;
        }
    }
    let means = by_block.into_iter().filter_map(|(block, logs)| Some((block, mean(&logs)?))).collect();
    (means, is_left_out)
}

fn estimate(question: &Question, rules: &Rules) -> Option<LogRatio> {
    let (base, left_out_base) = logs_by_block(&question.base);
    let (other, left_out_other) = logs_by_block(&question.other);
    let reason = (left_out_base || left_out_other).then_some(Reason::ValuesLeftOut);
    let ratios: Vec<f64> = base
        .iter()
        .filter_map(|(block, b)| other.get(block).map(|o| without_rounding_noise(o - b)))
        .collect();
    let enough = rules.blocks_min.max(2);
    if ratios.len() < enough && base.len() >= enough && other.len() >= enough {
        let base: Vec<f64> = base.into_values().collect();
        let other: Vec<f64> = other.into_values().collect();
        return welch(&base, &other);
    }
    let centre = mean(&ratios)?;
    let n = ratios.len();
    let error = standard_deviation(&ratios).map_or(f64::NAN, |sd| sd / (n as f64).sqrt());
    Some(LogRatio { n, method: Method::Paired, centre, error, df: n as f64 - 1.0, reason })
}

/// Equal values must give a ratio of exactly 1, and a constant ratio no spread: differences of logs carry an error
/// of some 1e-16 of the logs' size.
fn without_rounding_noise(x: f64) -> f64 {
    (x * 1e12).round() / 1e12
}

/// Welch (1947), with the degrees of freedom of Welch and Satterthwaite.
fn welch(base: &[f64], other: &[f64]) -> Option<LogRatio> {
    let (n, m) = (base.len() as f64, other.len() as f64);
    let a = standard_deviation(base)?.powi(2) / n;
    let b = standard_deviation(other)?.powi(2) / m;
    let df =
        if a + b == 0.0 { n + m - 2.0 } else { (a + b).powi(2) / (a * a / (n - 1.0) + b * b / (m - 1.0)) };
    Some(LogRatio {
        n: base.len().min(other.len()),
        method: Method::Welch,
        centre: without_rounding_noise(mean(other)? - mean(base)?),
        error: (a + b).sqrt(),
        df,
        reason: Some(Reason::NotPaired),
    })
}

#[cfg(test)]
mod tests;
