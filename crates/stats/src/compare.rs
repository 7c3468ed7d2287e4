//! Is `other` faster than `base`? Paired t on the blocks' log-ratios, Welch as the fall-back, equivalence by two
//! one-sided tests (Schuirmann 1987), and one adjustment for all questions of a study. A study that is looked at after
//! every block ([`Design::Watched`]) is judged by e-values instead ([`crate::anytime`]).
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

mod estimate;
mod needed;
mod nodes;
mod rank;

use self::estimate::{LogRatio, estimate};
use self::needed::blocks_needed;
use self::nodes::agreement;
pub use self::nodes::{AcrossNodes, NodeRatio, Nodes, OddNode};
pub use self::rank::{Ranked, rank, rank_on};
use crate::multiple::benjamini_hochberg;

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
    pub better: Better,
}

/// Whether the number of blocks was fixed before the first was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Design {
    /// It was: t-tests, which hold for one look at its end.
    Fixed,
    /// Every block may be looked at, and the study may end, go on or grow because of what was seen.
    Watched,
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
    /// Chance to decide that `blocks_needed` is computed for, in a fixed design.
    pub power: f64,
    /// How often one may look.
    pub design: Design,
    /// Of a watched study: it is over for the first time, by its blocks or its budget. One last look is taken then, which is
    /// allowed what the looks before it left of the error; few nodes are judged then, and not before.
    pub is_over: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { margin: 0.05, alpha: 0.05, blocks_min: 5, power: 0.8, design: Design::Fixed, is_over: false }
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Paired t on the log-ratios of blocks that have both sides.
    Paired,
    /// Welch's t on logs: too few blocks have both sides, but each side has enough runs.
    Welch,
    /// Anytime-valid t on the log-ratios of blocks that have both sides ([`crate::anytime`]).
    Anytime,
    /// The same, and the last look: what the looks before it left of the error is a t-test's.
    LastLook,
    /// Ratios of several nodes, each from its own blocks, combined with the node as a random effect ([`Nodes`]).
    Nodes,
}

impl Method {
    /// The word of reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Paired => "paired t",
            Self::Welch => "welch",
            Self::Anytime | Self::LastLook => "anytime t",
            Self::Nodes => "random effect of the node",
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
    /// Hardly anything is known of how nodes differ.
    FewNodes,
    /// Few nodes, of a watched study that is not over.
    FewNodesBeforeEnd,
}

impl Reason {
    /// A sentence for people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::NoData => "no block has a valid value on both sides",
            Self::TooFewBlocks => "too few blocks for a verdict: add blocks",
            Self::ValuesLeftOut => "values that are not positive were left out",
            Self::NotPaired => "the two sides do not share enough blocks: compared unpaired, which is weaker",
            Self::FewNodesBeforeEnd => {
                "few nodes are judged once, when the study is over: looks on the way would cost all that they can tell"
            }
            Self::FewNodes => {
                "few nodes say little of how nodes differ, and the interval allows for that: add nodes, not blocks"
            }
        }
    }
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// Pairs of blocks (paired) or the smaller number of runs of the two sides (Welch).
    pub n: usize,
    pub method: Method,
    /// Geometric mean of other / base; `None` without data.
    pub ratio: Option<f64>,
    /// Lower end of the interval of the ratio.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Level of the interval, for example 0.95; higher where many comparisons share the error.
    pub confidence: Option<f64>,
    /// Two-sided p of "no difference", not adjusted; 1 / e for [`Method::Anytime`], and the smaller one of that and
    /// the t-test's for [`Method::LastLook`], here and below.
    pub p: Option<f64>,
    /// The same, adjusted over all questions asked together.
    pub p_adjusted: Option<f64>,
    /// p of "the difference is as large as the margin", adjusted over all questions.
    pub p_equivalence_adjusted: Option<f64>,
    /// p of "worse by the margin or more", adjusted over all questions: the one-sided test of non-inferiority.
    pub p_not_slower_adjusted: Option<f64>,
    /// Whether non-inferiority was shown at [`Rules::alpha`].
    pub is_not_slower: bool,
    pub verdict: Verdict,
    /// For an undecided one: blocks in all (those there are included) that would decide it: the tenth, fiftieth and
    /// ninetieth of a hundred ratios and spreads that the blocks so far allow, each at most [`BLOCKS_MAX`]. `None` when
    /// decided, unknown, or when even the fiftieth is beyond that.
    pub blocks_needed: Option<[usize; 3]>,
    /// What weakens or prevents the verdict.
    pub reason: Option<Reason>,
    /// Where its blocks ran on several nodes: what each says, and which disagree.
    pub nodes: Option<AcrossNodes>,
}

/// No study is told to make more blocks than this.
pub const BLOCKS_MAX: usize = 10_000;

/// Answers one question on its own.
pub fn compare_one(question: &Question, rules: &Rules) -> Comparison {
    compare(std::slice::from_ref(question), rules).remove(0)
}

/// Answers all questions of a study, adjusting for their number. In the order of the input. Questions below
/// [`Rules::blocks_min`] get no verdict and do not count as comparisons.
pub fn compare(questions: &[Question], rules: &Rules) -> Vec<Comparison> {
    compare_on(questions, &Nodes::default(), rules)
}

/// [`compare`] of blocks that ran on several nodes: pairs are made within a node, the nodes' ratios combined.
pub fn compare_on(questions: &[Question], nodes: &Nodes, rules: &Rules) -> Vec<Comparison> {
    let estimates: Vec<Option<LogRatio>> = questions.iter().map(|q| estimate(q, nodes, rules)).collect();
    let better: Vec<Better> = questions.iter().map(|q| q.better).collect();
    let mut answers = answer(estimates, &better, rules);
    for (answer, question) in answers.iter_mut().zip(questions) {
        answer.nodes = agreement(question, nodes, rules);
    }
    answers
}

fn answer(estimates: Vec<Option<LogRatio>>, better: &[Better], rules: &Rules) -> Vec<Comparison> {
    let log_margin = rules.margin.max(0.0).ln_1p();
    let is_judged = |e: &LogRatio| e.n >= rules.blocks_min.max(2);
    let questions = estimates.iter().flatten().filter(|e| is_judged(e)).count();
    let of_family = |e: LogRatio| if is_judged(&e) { e.one_of(questions, rules) } else { e };
    let estimates: Vec<Option<LogRatio>> = estimates.into_iter().map(|e| e.map(of_family)).collect();
    let p_of = |e: &Option<LogRatio>, p: &dyn Fn(&LogRatio) -> f64| {
        e.as_ref().filter(|e| is_judged(e)).map_or(f64::NAN, p)
    };
    let p: Vec<f64> = estimates.iter().map(|e| p_of(e, &LogRatio::p_difference)).collect();
    let p_equal: Vec<f64> = estimates.iter().map(|e| p_of(e, &|e| e.p_equivalence(log_margin))).collect();
    let p_not_slower: Vec<f64> = estimates
        .iter()
        .zip(better)
        .map(|(e, better)| p_of(e, &|e| p_not_slower(e, *better, log_margin)))
        .collect();
    let family = Family::new(&p, &p_equal, &p_not_slower, rules.alpha);
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

/// p of "worse by the margin or more" in the direction of the metric.
fn p_not_slower(e: &LogRatio, better: Better, log_margin: f64) -> f64 {
    match better {
        Better::Higher => e.p_one_sided(-log_margin, 1.0),
        Better::Lower => e.p_one_sided(log_margin, -1.0),
    }
}

/// What the questions asked together share: the levels at which the step-up procedures stopped.
struct Family {
    difference: Vec<f64>,
    equivalence: Vec<f64>,
    not_slower: Vec<f64>,
    /// Two-sided level of an interval that excludes 1 exactly when the difference is declared.
    alpha_difference: f64,
    /// Two-sided level of an interval within the margin exactly when equivalence is declared (twice the one-sided).
    alpha_equivalence: f64,
    alpha: f64,
}

impl Family {
    fn new(p: &[f64], p_equal: &[f64], p_not_slower: &[f64], alpha: f64) -> Self {
        let m = p.iter().filter(|p| !p.is_nan()).count().max(1) as f64;
        let difference = benjamini_hochberg(p);
        let equivalence = benjamini_hochberg(p_equal);
        let rejected = |adjusted: &[f64]| adjusted.iter().filter(|p| **p <= alpha).count().max(1) as f64;
        Self {
            alpha_difference: alpha * rejected(&difference) / m,
            alpha_equivalence: 2.0 * alpha * rejected(&equivalence) / m,
            difference,
            equivalence,
            not_slower: benjamini_hochberg(p_not_slower),
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
            low: finite(interval.0.exp()),
            high: finite(interval.1.exp()),
            confidence: Some(1.0 - alpha),
            p: Some(e.p_difference()),
            p_adjusted: Some(self.difference[i]),
            p_equivalence_adjusted: Some(self.equivalence[i]),
            p_not_slower_adjusted: Some(self.not_slower[i]),
            is_not_slower: self.not_slower[i] <= self.alpha,
            verdict,
            blocks_needed,
            reason: e.reason,
            nodes: None,
        }
    }
}

/// An end of an interval that excludes nothing is none.
fn finite(end: f64) -> Option<f64> {
    (end.is_finite() && end > 0.0).then_some(end)
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
        p_not_slower_adjusted: None,
        is_not_slower: false,
        verdict: Verdict::Undecided,
        blocks_needed: None,
        reason: Some(Reason::NoData),
        nodes: None,
    }
}

/// Below the smallest number of blocks: an interval where there are two, no p and no verdict.
fn without_verdict(e: &LogRatio, rules: &Rules, log_margin: f64) -> Comparison {
    let interval = (e.n >= 2).then(|| e.interval(rules.alpha));
    let needed = match e.n {
        0 | 1 => Some([rules.blocks_min; 3]),
        _ => blocks_needed(e, rules.alpha, rules, log_margin),
    };
    Comparison {
        n: e.n,
        method: e.method,
        ratio: Some(e.centre.exp()),
        low: interval.and_then(|i| finite(i.0.exp())),
        high: interval.and_then(|i| finite(i.1.exp())),
        confidence: interval.map(|_| 1.0 - rules.alpha),
        blocks_needed: needed,
        reason: Some(Reason::TooFewBlocks),
        ..nothing()
    }
}

#[cfg(test)]
mod tests;
