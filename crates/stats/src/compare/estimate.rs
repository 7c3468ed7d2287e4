//! The log-ratio of a question with its standard error, and what can be said of it under either design.

use std::collections::BTreeMap;

use super::nodes::{Nodes, across};
use super::{Design, Method, Question, Reason, Rules, Sample};
use crate::anytime::{FIRST_LOOK, half_width, last_level, last_p, ln_boost, ln_e_above};
use crate::describe::{mean, standard_deviation};
use crate::student::{two_sided_p, upper_quantile};

/// What was seen after the first `n` blocks that have both sides.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    n: usize,
    centre: f64,
    /// Standard error.
    error: f64,
}

impl Look {
    fn of(ratios: &[f64]) -> Option<Look> {
        let n = ratios.len();
        let error = standard_deviation(ratios).map_or(f64::NAN, |sd| sd / (n as f64).sqrt());
        Some(Look { n, centre: mean(ratios)?, error })
    }

    /// The mean's distance above `point`, in standard errors.
    fn t_above(&self, point: f64) -> f64 {
        let distance = self.centre - point;
        if distance == 0.0 { 0.0 } else { distance / self.error }
    }
}

/// Estimate of a log-ratio.
#[derive(Debug, Clone)]
pub(super) struct LogRatio {
    pub(super) n: usize,
    pub(super) method: Method,
    pub(super) centre: f64,
    /// Standard error; NaN with fewer than two values.
    pub(super) error: f64,
    pub(super) df: f64,
    /// What the e-values of [`Method::Anytime`] and [`Method::LastLook`] are multiplied by, as a logarithm
    /// ([`crate::anytime::ln_boost`]).
    pub(super) ln_boost: f64,
    /// Looks before this one whose evidence counts, too, oldest first ([`LogRatio::one_of`]).
    pub(super) earlier: Vec<Look>,
    /// What every p of [`Method::Nodes`] is multiplied by, because there were looks before; 1: there were none.
    pub(super) spent: f64,
    /// It is too early for any statement of [`Method::Nodes`]: every p is 1.
    pub(super) is_early: bool,
    pub(super) reason: Option<Reason>,
}

impl LogRatio {
    /// As one of `questions` that are judged together.
    ///
    /// Without boost where verdicts are told earlier than it allows. A question that stands alone keeps what earlier looks
    /// have excluded: a confidence sequence holds at all looks at once, so that what they have in common holds, too (Howard,
    /// Ramdas, McAuliffe and Sekhon: "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals of Statistics
    /// 49, 2021). Several questions share their error by e-values of one moment, of which the largest so far is none. Where
    /// the ratio has left what the looks have in common, this look speaks alone: its interval is a wider one.
    pub(super) fn one_of(self, questions: usize, rules: &Rules) -> LogRatio {
        let is_watched = matches!(self.method, Method::Anytime | Method::LastLook);
        let may_be = is_watched && rules.blocks_min >= FIRST_LOOK;
        let boosted = LogRatio { ln_boost: if may_be { ln_boost(questions) } else { 0.0 }, ..self };
        if may_be && questions == 1 && boosted.is_within_its_looks(rules.alpha) {
            return boosted;
        }
        LogRatio { earlier: Vec::new(), ..boosted }
    }

    /// Whether no earlier look has excluded what is the ratio now, on one side at the level `alpha`: that is the narrowest
    /// interval from which a verdict follows.
    fn is_within_its_looks(&self, alpha: f64) -> bool {
        let excludes = |look: &Look| self.decides(look.n, look.t_above(self.centre).abs(), alpha);
        !self.earlier.iter().any(excludes)
    }

    /// Whether the evidence of this t of `n` values suffices at the level `alpha`.
    fn decides(&self, n: usize, t: f64, alpha: f64) -> bool {
        ln_e_above(t, n) + self.ln_boost >= -alpha.ln()
    }

    fn look(&self) -> Look {
        Look { n: self.n, centre: self.centre, error: self.error }
    }

    /// p of "the mean is not above `point`" (`sign` 1) or "not below" (-1): 1 / e for [`Method::Anytime`].
    pub(super) fn p_one_sided(&self, point: f64, sign: f64) -> f64 {
        let t = sign * self.look().t_above(point);
        match self.method {
            _ if self.is_early => 1.0,
            Method::Anytime => self.p_of_evidence(point, sign),
            Method::LastLook => {
                self.p_of_evidence(point, sign).min(last_p(self.n, crate::student::cdf(-t, self.df)))
            }
            _ if self.error == 0.0 => f64::from(u8::from(t <= 0.0)),
            Method::Paired | Method::Welch => crate::student::cdf(-t, self.df),
            Method::Nodes => (self.spent * crate::student::cdf(-t, self.df)).min(1.0),
        }
    }

    /// 1 / e of the look that says most.
    fn p_of_evidence(&self, point: f64, sign: f64) -> f64 {
        let ln_e = |look: &Look| ln_e_above(sign * look.t_above(point), look.n);
        let most = self.earlier.iter().map(ln_e).fold(ln_e(&self.look()), f64::max);
        (-most - self.ln_boost).exp().min(1.0)
    }

    /// p of "no difference".
    pub(super) fn p_difference(&self) -> f64 {
        match self.method {
            _ if self.is_early => 1.0,
            Method::Anytime | Method::LastLook => {
                (2.0 * self.p_one_sided(0.0, 1.0).min(self.p_one_sided(0.0, -1.0))).min(1.0)
            }
            _ if self.error == 0.0 => f64::from(u8::from(self.centre == 0.0)),
            Method::Paired | Method::Welch => two_sided_p(self.centre / self.error, self.df),
            Method::Nodes => (self.spent * two_sided_p(self.centre / self.error, self.df)).min(1.0),
        }
    }

    /// The larger p of the two one-sided tests.
    pub(super) fn p_equivalence(&self, log_margin: f64) -> f64 {
        self.p_one_sided(-log_margin, 1.0).max(self.p_one_sided(log_margin, -1.0))
    }

    /// Interval of the log-ratio that misses with probability `alpha`: at this look, or at any ([`Method::Anytime`]).
    pub(super) fn interval(&self, alpha: f64) -> (f64, f64) {
        let excludes = |look: &Look, point: f64, sign: f64| {
            self.decides(look.n, sign * look.t_above(point), alpha / 2.0)
        };
        let half = |look: &Look| half_width(look.n, alpha / 2.0, self.ln_boost) * look.error;
        self.earlier.iter().fold(self.interval_now(alpha), |(low, high), look| {
            (
                if excludes(look, low, 1.0) { look.centre - half(look) } else { low },
                if excludes(look, high, -1.0) { look.centre + half(look) } else { high },
            )
        })
    }

    /// That of this look alone.
    fn interval_now(&self, alpha: f64) -> (f64, f64) {
        let errors = match self.method {
            Method::Anytime => half_width(self.n, alpha / 2.0, self.ln_boost),
            Method::LastLook => half_width(self.n, alpha / 2.0, self.ln_boost)
                .min(upper_quantile(last_level(self.n, alpha / 2.0), self.df)),
            _ if self.error == 0.0 => 0.0,
            Method::Paired | Method::Welch => upper_quantile(alpha / 2.0, self.df),
            Method::Nodes => upper_quantile(alpha / 2.0 / self.spent, self.df),
        };
        let half = if self.error == 0.0 && errors.is_finite() { 0.0 } else { errors * self.error };
        // Too few values to exclude anything at this level, though they do not differ at all.
        let half = if half.is_nan() { f64::INFINITY } else { half };
        (self.centre - half, self.centre + half)
    }
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

/// The log-ratios of the blocks that have both sides; and why not of all values.
pub(super) fn pairs(question: &Question) -> (Vec<(u32, f64)>, Option<Reason>) {
    let (base, left_out_base) = logs_by_block(&question.base);
    let (other, left_out_other) = logs_by_block(&question.other);
    let reason = (left_out_base || left_out_other).then_some(Reason::ValuesLeftOut);
    let pair = |(block, b): (&u32, &f64)| Some((*block, without_rounding_noise(other.get(block)? - b)));
    (base.iter().filter_map(pair).collect(), reason)
}

/// The estimate that a question allows; `None` without a single pair.
pub(super) fn estimate(question: &Question, nodes: &Nodes, rules: &Rules) -> Option<LogRatio> {
    if let Some(across) = across(question, nodes, rules) {
        return Some(across);
    }
    let (pairs, reason) = pairs(question);
    let ratios: Vec<f64> = pairs.into_iter().map(|(_, ratio)| ratio).collect();
    let ((base, _), (other, _)) = (logs_by_block(&question.base), logs_by_block(&question.other));
    let enough = rules.blocks_min.max(2);
    // Welch's test is not made for being watched.
    let may_be_unpaired = rules.design == Design::Fixed;
    if may_be_unpaired && ratios.len() < enough && base.len() >= enough && other.len() >= enough {
        let base: Vec<f64> = base.into_values().collect();
        let other: Vec<f64> = other.into_values().collect();
        return welch(&base, &other);
    }
    let Look { n, centre, error } = Look::of(&ratios)?;
    let method = match rules.design {
        Design::Fixed => Method::Paired,
        // The share that is left to a last look is known for looks from a fixed block on. What does not vary at all is no
        // proof to a t-test of few values.
        Design::Watched
            if rules.is_over
                && rules.blocks_min >= FIRST_LOOK
                && error > 0.0
                && last_level(n, rules.alpha) > 0.0 =>
        {
            Method::LastLook
        }
        Design::Watched => Method::Anytime,
    };
    let df = n as f64 - 1.0;
    let earlier = match rules.design {
        Design::Fixed => Vec::new(),
        Design::Watched => (enough..n).filter_map(|blocks| Look::of(&ratios[..blocks])).collect(),
    };
    let estimate = LogRatio {
        n,
        method,
        centre,
        error,
        df,
        ln_boost: 0.0,
        earlier,
        spent: 1.0,
        is_early: false,
        reason,
    };
    Some(estimate)
}

/// Equal values must give a ratio of exactly 1, and a constant ratio no spread: differences of logs carry an error
/// of some 1e-16 of the logs' size.
fn without_rounding_noise(x: f64) -> f64 {
    (x * 1e12).round() / 1e12
}

/// Welch (1947), with the degrees of freedom of Welch and Satterthwaite.
pub(super) fn welch(base: &[f64], other: &[f64]) -> Option<LogRatio> {
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
        ln_boost: 0.0,
        earlier: Vec::new(),
        spent: 1.0,
        is_early: false,
        reason: Some(Reason::NotPaired),
    })
}
