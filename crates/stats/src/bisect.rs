//! The first bad one in a row of builds, from noisy comparisons with the good one: probabilistic bisection (Waeber,
//! Frazier, Henderson 2013) with the size of each answer and not only its sign.
//!
//! Builds are numbered from 0, the good one; the last is bad. Each candidate (1 to the last) has a probability of being
//! the first bad one. A comparison of build m with the good one gives the logarithm of a ratio and its standard error: near
//! 0 where m is before the guilty one, near the difference of good and bad from there on. Every answer may be wrong
//! altogether, by a bad life of a server or a machine that was disturbed, so that no single one excludes a candidate and a
//! later one takes a wrong turn back.

use crate::compare::{Better, Comparison, Design, Question, Rules, Sample, Verdict, compare_one};
use crate::describe::{mean, median, standard_deviation};

/// How to search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BisectRules {
    /// Pairs of lives of good and bad after which they are not compared on. Alike within 2 %, they take 80 beside a busy
    /// neighbour and 9 on a quiet machine (medians of `cargo xtask bench bisect-search`).
    pub ends_max: u32,
    /// Pairs of lives of an answer.
    pub lives: u32,
    /// Answers after which a search is given up.
    pub answers_max: usize,
    /// Probability of the guilty one at which the search ends.
    pub confidence: f64,
    /// Share of answers that say nothing of the build.
    pub lapse: f64,
    /// Standard deviation, as a logarithm, by which builds differ that are not guilty.
    pub drift: f64,
}

impl Default for BisectRules {
    fn default() -> Self {
        Self { ends_max: 240, lives: 2, answers_max: 100, confidence: 0.98, lapse: 0.05, drift: 0.003 }
    }
}

/// A ratio to the good build, as it was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Answer {
    /// Logarithm of the ratio.
    pub log_ratio: f64,
    /// Its standard error.
    pub error: f64,
}

/// What a search wants to know next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ask {
    /// A pair of lives of good and bad.
    Ends,
    /// [`BisectRules::lives`] pairs of lives of the good build and this one.
    Build(usize),
}

/// How a search ended, or how it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BisectStatus {
    Found,
    /// Good and bad are equivalent within the margin.
    NoDifference,
    /// What was asked did not decide it.
    Undecided,
}

/// A search from its first life on: whether good and bad differ, and then which build is guilty. Whoever measures, or
/// draws, asks for what [`GuiltySearch::next`] wants and gives the log-ratios back.
#[derive(Debug, Clone)]
pub struct GuiltySearch {
    builds: usize,
    better: Better,
    margin: f64,
    rules: BisectRules,
    ends: Vec<f64>,
    comparison: Comparison,
    skipped: Vec<usize>,
    /// From when on good and bad are known to differ.
    bisection: Option<Bisection>,
}

impl GuiltySearch {
    /// A search among `builds` of which the first is good and the last is said to be bad; they are alike where they differ
    /// by less than `margin`.
    ///
    /// # Panics
    /// With fewer than two builds.
    pub fn new(builds: usize, better: Better, margin: f64, rules: BisectRules) -> GuiltySearch {
        assert!(builds >= 2, "a good and a bad build");
        let comparison = compared(&[], better, margin);
        GuiltySearch {
            builds,
            better,
            margin,
            rules,
            ends: vec![],
            comparison,
            skipped: vec![],
            bisection: None,
        }
    }

    /// Bad over good, as their lives so far have it: a test that may be looked at after each of them.
    pub fn comparison(&self) -> &Comparison {
        &self.comparison
    }

    /// What to ask next; `None` when the search has ended.
    pub fn next(&self) -> Option<Ask> {
        let Some(bisection) = &self.bisection else {
            let is_open = self.comparison.verdict == Verdict::Undecided;
            return (is_open && self.ends.len() < self.rules.ends_max as usize).then_some(Ask::Ends);
        };
        let goes_on = bisection.answers() < self.rules.answers_max;
        bisection.next().filter(|_| goes_on).map(Ask::Build)
    }

    /// The log-ratio of a pair of lives of good and bad.
    pub fn end(&mut self, log_ratio: f64) {
        self.ends.push(log_ratio);
        self.comparison = compared(&self.ends, self.better, self.margin);
        if matches!(self.comparison.verdict, Verdict::Faster | Verdict::Slower) {
            let mut bisection = Bisection::new(self.builds, bisect_effect(&self.ends), self.rules);
            self.skipped.iter().for_each(|build| bisection.skip(*build));
            self.bisection = Some(bisection);
        }
    }

    /// What pairs of lives of the good build and this one gave, as one answer. Its error is that of lives of good and
    /// bad, or larger where the answer's own lives do not agree, because the machine has become noisier since. `None`
    /// without lives.
    pub fn answer_of(&self, log_ratios: &[f64]) -> Option<Answer> {
        let spread = standard_deviation(&self.ends).unwrap_or(0.0);
        let own = standard_deviation(log_ratios).unwrap_or(0.0);
        let error = spread.max(own) / (log_ratios.len() as f64).sqrt();
        Some(Answer { log_ratio: mean(log_ratios)?, error })
    }

    /// An answer, this one's or one that was kept.
    ///
    /// # Panics
    /// Before good and bad are known to differ.
    pub fn answer(&mut self, build: usize, answer: Answer) {
        self.bisection.as_mut().expect("good and bad differ").answer(build, answer);
    }

    /// A build that cannot be asked: it does not build, or does not start.
    pub fn skip(&mut self, build: usize) {
        self.skipped.push(build);
        if let Some(bisection) = &mut self.bisection {
            bisection.skip(build);
        }
    }

    pub fn status(&self) -> BisectStatus {
        match &self.bisection {
            Some(bisection) if bisection.is_decided() => BisectStatus::Found,
            None if self.comparison.verdict == Verdict::Equivalent => BisectStatus::NoDifference,
            _ => BisectStatus::Undecided,
        }
    }

    /// The likeliest build; `None` before good and bad are known to differ.
    pub fn guilty(&self) -> Option<Guilty> {
        self.bisection.as_ref().map(Bisection::guilty)
    }

    /// Probability of each build to be the first bad one; empty before good and bad are known to differ.
    pub fn probabilities(&self) -> Vec<f64> {
        self.bisection.as_ref().map_or_else(Vec::new, Bisection::probabilities)
    }
}

fn compared(log_ratios: &[f64], better: Better, margin: f64) -> Comparison {
    let side = |of: &dyn Fn(f64) -> f64| -> Vec<Sample> {
        (0u32..).zip(log_ratios).map(|(block, log)| Sample { block, value: of(*log) }).collect()
    };
    // Only ratios are known, so that the base is whatever it may be.
    let (base, other) = (side(&|_| 1000.0), side(&|log| 1000.0 * log.exp()));
    let rules = Rules { design: Design::Watched, margin, ..Rules::default() };
    compare_one(&Question { base, other, better }, &rules)
}

/// The difference of good and bad from the log-ratios of pairs of lives: a mean that a few wrong lives do not move
/// (Huber's, at 1.5 robust standard deviations), with its standard error.
fn bisect_effect(log_ratios: &[f64]) -> Answer {
    let mut centre = median(log_ratios).unwrap_or(0.0);
    let sizes: Vec<f64> = log_ratios.iter().map(|value| (value - centre).abs()).collect();
    let reach = 1.5 * 1.4826 * median(&sizes).unwrap_or(0.0).max(1e-6);
    for _ in 0..20 {
        let drawn_in: Vec<f64> =
            log_ratios.iter().map(|value| value.clamp(centre - reach, centre + reach)).collect();
        centre = mean(&drawn_in).unwrap_or(centre);
    }
    let error = standard_deviation(log_ratios).unwrap_or(0.0) / (log_ratios.len().max(1) as f64).sqrt();
    Answer { log_ratio: centre, error }
}

/// The search for the guilty one of builds whose ends differ.
#[derive(Debug, Clone)]
struct Bisection {
    rules: BisectRules,
    /// Of the bad build.
    effect: Answer,
    /// Logarithms, not normalised, by candidate; the first is never used.
    weights: Vec<f64>,
    /// Builds that cannot be asked.
    skipped: Vec<bool>,
    answers: usize,
}

/// The likeliest first bad build.
#[derive(Debug, Clone, PartialEq)]
pub struct Guilty {
    /// Candidates that cannot be told apart, because the builds between them cannot be asked; nearly always one. The last
    /// of them is a build that was seen to be bad, or can be asked.
    pub candidates: std::ops::RangeInclusive<usize>,
    /// Their probability.
    pub probability: f64,
}

impl Bisection {
    /// A search among `builds` of which the first is good and the last differs from it by `effect`.
    ///
    /// # Panics
    /// With fewer than two builds.
    fn new(builds: usize, effect: Answer, rules: BisectRules) -> Bisection {
        assert!(builds >= 2, "a good and a bad build");
        Bisection { rules, effect, weights: vec![0.0; builds], skipped: vec![false; builds], answers: 0 }
    }

    /// A build that cannot be asked: it does not build, or does not start.
    fn skip(&mut self, build: usize) {
        self.skipped[build] = true;
    }

    /// What a comparison of `build` with the good one gave.
    fn answer(&mut self, build: usize, answer: Answer) {
        self.answers += 1;
        let of_good = self.likelihood(answer, 0.0, 0.0);
        let of_bad = self.likelihood(answer, self.effect.log_ratio, self.effect.error);
        for candidate in 1..self.weights.len() {
            self.weights[candidate] += if candidate <= build { of_bad.ln() } else { of_good.ln() };
        }
    }

    fn likelihood(&self, answer: Answer, mean: f64, error: f64) -> f64 {
        let normal = |mean: f64, variance: f64| {
            (-(answer.log_ratio - mean).powi(2) / (2.0 * variance)).exp() / variance.sqrt()
        };
        let variance = answer.error.powi(2) + error.powi(2) + self.rules.drift.powi(2);
        // An answer that says nothing lies anywhere where answers lie.
        let reach = self.effect.log_ratio.abs() + 3.0 * answer.error;
        let nothing = normal(self.effect.log_ratio / 2.0, reach * reach);
        (1.0 - self.rules.lapse) * normal(mean, variance) + self.rules.lapse * nothing
    }

    /// Probability of each build to be the first bad one; 0 for the good one.
    fn probabilities(&self) -> Vec<f64> {
        let most = self.weights[1..].iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mut all: Vec<f64> = self.weights.iter().map(|weight| (weight - most).exp()).collect();
        all[0] = 0.0;
        let sum: f64 = all.iter().sum();
        all.iter_mut().for_each(|one| *one /= sum);
        all
    }

    /// The likeliest candidate, with those that cannot be told from it.
    fn guilty(&self) -> Guilty {
        let probabilities = self.probabilities();
        let last = self.weights.len() - 1;
        let mut best = Guilty { candidates: last..=last, probability: 0.0 };
        let mut first = 1;
        for build in 1..=last {
            // Build m tells candidates up to m from those behind it.
            if build < last && self.skipped[build] {
                continue;
            }
            let probability = probabilities[first..=build].iter().sum();
            if probability > best.probability {
                best = Guilty { candidates: first..=build, probability };
            }
            first = build + 1;
        }
        best
    }

    /// Whether the guilty one is known well enough.
    fn is_decided(&self) -> bool {
        self.guilty().probability >= self.rules.confidence
    }

    /// The build to ask next: the one that halves the probability best. `None` when it is decided, or nothing is left to ask.
    fn next(&self) -> Option<usize> {
        if self.is_decided() {
            return None;
        }
        let mut sum = 0.0;
        let mut best: Option<(usize, f64)> = None;
        for (build, probability) in
            self.probabilities().into_iter().enumerate().take(self.weights.len() - 1).skip(1)
        {
            sum += probability;
            let off = (sum - 0.5f64).abs();
            if !self.skipped[build] && best.is_none_or(|(_, least)| off < least) {
                best = Some((build, off));
            }
        }
        best.map(|(build, _)| build)
    }

    fn answers(&self) -> usize {
        self.answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    const EFFECT: Answer = Answer { log_ratio: -0.05, error: 0.005 };

    fn search(builds: usize) -> Bisection {
        Bisection::new(builds, EFFECT, BisectRules::default())
    }

    fn truth(guilty: usize, build: usize) -> Answer {
        Answer { log_ratio: if build >= guilty { -0.05 } else { 0.0 }, error: 0.008 }
    }

    #[test]
    fn clear_answers_find_any_guilty_one_in_few_steps() {
        for guilty in 1..64 {
            let mut search = search(64);
            while let Some(build) = search.next() {
                search.answer(build, truth(guilty, build));
            }
            assert_eq!(search.guilty().candidates, guilty..=guilty);
            assert!(search.answers() <= 16, "{guilty}: {}", search.answers());
        }
    }

    #[test]
    fn a_wrong_answer_is_taken_back() {
        let mut search = search(32);
        let first = search.next().unwrap();
        search.answer(first, Answer { log_ratio: 0.0, error: 0.008 });
        while let Some(build) = search.next() {
            search.answer(build, truth(5, build));
        }
        assert!(first >= 5);
        assert_eq!(search.guilty().candidates, 5..=5);
    }

    #[test]
    fn builds_that_cannot_be_asked_leave_a_range() {
        let mut search = search(16);
        for build in [6, 7, 8] {
            search.skip(build);
        }
        while let Some(build) = search.next() {
            assert!(!(6..=8).contains(&build));
            search.answer(build, truth(8, build));
        }
        assert_eq!(search.guilty().candidates, 6..=9);
        assert!(search.is_decided());
    }

    #[test]
    fn two_builds_need_no_answer() {
        assert_eq!(search(2).next(), None);
        assert_eq!(search(2).guilty(), Guilty { candidates: 1..=1, probability: 1.0 });
    }

    #[test]
    fn where_all_between_is_skipped_there_is_nothing_to_ask() {
        let mut search = search(4);
        search.skip(1);
        search.skip(2);
        assert_eq!(search.next(), None);
        assert_eq!(search.guilty().candidates, 1..=3);
    }

    #[test]
    fn good_and_bad_that_are_alike_end_the_search() {
        let mut rng = Rng::new(4);
        let mut search = GuiltySearch::new(8, Better::Higher, 0.02, BisectRules::default());
        while let Some(ask) = search.next() {
            assert_eq!(ask, Ask::Ends);
            search.end(0.004 * rng.normal());
        }
        assert_eq!((search.status(), search.guilty()), (BisectStatus::NoDifference, None));
    }

    #[test]
    fn a_whole_search_finds_the_guilty_one_and_goes_on_from_what_was_kept() {
        let (mut rng, mut kept) = (Rng::new(9), (vec![], vec![]));
        let begun = || {
            let mut search = GuiltySearch::new(40, Better::Higher, 0.02, BisectRules::default());
            search.skip(20);
            search
        };
        let mut search = begun();
        while let Some(ask) = search.next() {
            match ask {
                Ask::Ends => {
                    kept.0.push(-0.05 + 0.008 * rng.normal());
                    search.end(*kept.0.last().unwrap());
                }
                Ask::Build(build) => {
                    let level = if build >= 31 { -0.05 } else { 0.0 };
                    let lives = [level + 0.008 * rng.normal(), level + 0.008 * rng.normal()];
                    kept.1.push((build, search.answer_of(&lives).unwrap()));
                    let (build, answer) = *kept.1.last().unwrap();
                    search.answer(build, answer);
                }
            }
        }
        assert_eq!(search.status(), BisectStatus::Found);
        assert_eq!(search.guilty().unwrap().candidates, 31..=31);
        let mut again = begun();
        kept.0.iter().for_each(|end| again.end(*end));
        kept.1.iter().for_each(|(build, answer)| again.answer(*build, *answer));
        assert_eq!((again.next(), again.probabilities()), (None, search.probabilities()));
    }

    #[test]
    fn probabilities_are_those_of_all_candidates() {
        let mut search = search(10);
        let mut rng = Rng::new(3);
        for _ in 0..50 {
            let build = 1 + rng.below(8);
            search.answer(build, Answer { log_ratio: -0.05 * rng.unit(), error: 0.01 });
            assert!((search.probabilities().iter().sum::<f64>() - 1.0).abs() < 1e-9);
        }
    }

    /// From a search over real commits beside compilers: of a slow build (-24 %), one life said +26 %, the other -18 %, and
    /// the search took the mean for a proof that it is a good one.
    #[test]
    fn lives_that_do_not_agree_prove_little() {
        let mut search = GuiltySearch::new(3, Better::Higher, 0.02, BisectRules::default());
        for end in [-0.2, -0.25, -0.3] {
            search.end(end);
        }
        let error = |lives: &[f64]| search.answer_of(lives).unwrap().error;
        assert!((error(&[-0.25, -0.26]) - 0.05 / 2f64.sqrt()).abs() < 1e-9);
        assert!((error(&[-0.25]) - 0.05).abs() < 1e-9);
        assert!(error(&[0.26, -0.18]) > 0.2);
        assert_eq!(search.answer_of(&[]), None);
        let probability = |error: f64| {
            let ends = [-0.24, -0.30, -0.22, -0.25, -0.27];
            let mut search = Bisection::new(3, bisect_effect(&ends), BisectRules::default());
            search.answer(1, Answer { log_ratio: 0.04, error });
            search.probabilities()[1]
        };
        // Whether the middle one is guilty stays nearly as open as it was.
        assert!(probability(0.05) < 0.1, "{}", probability(0.05));
        assert!(probability(error(&[0.26, -0.18])) > 0.25);
    }
}
