//! The order of more than two sides, with groups that cannot be told apart.
//!
//! Every pair is compared on the blocks that both have; Holm's procedure (1979) keeps the chance of any false difference
//! among all pairs at [`Rules::alpha`]. Sides that share a letter are not told apart: the compact letter display of
//! Piepho (Journal of Computational and Graphical Statistics 13, 2004) by insertion and absorption.

use std::collections::BTreeSet;

use super::estimate::{LogRatio, estimate};
use super::nodes::Nodes;
use super::{Better, Question, Rules, Sample};
use crate::multiple::holm;

/// One side's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// Its index among the sides that were given.
    pub side: usize,
    /// The groups that it belongs to, 0 first: sides of one group cannot be told apart. Empty where a side has too few
    /// blocks for that.
    pub groups: Vec<usize>,
}

impl Ranked {
    /// The groups as letters: `a`, `bc`.
    pub fn letters(&self) -> String {
        self.groups.iter().map(|group| char::from(b'a' + (*group % 26) as u8)).collect()
    }
}

/// Orders the sides that have values, the best first.
pub fn rank(sides: &[Vec<Sample>], better: Better, rules: &Rules) -> Vec<Ranked> {
    rank_on(sides, better, &Nodes::default(), rules)
}

/// [`rank`] of blocks that ran on several nodes.
pub fn rank_on(sides: &[Vec<Sample>], better: Better, nodes: &Nodes, rules: &Rules) -> Vec<Ranked> {
    let pairs = Pairs::of(sides, better, nodes, rules);
    let mut order: Vec<usize> = (0..sides.len()).filter(|side| pairs.has_values(*side)).collect();
    let score: Vec<f64> = (0..sides.len()).map(|side| pairs.score(side)).collect();
    let sign = if better == Better::Higher { -1.0 } else { 1.0 };
    order.sort_by(|a, b| (sign * score[*a]).total_cmp(&(sign * score[*b])));
    let judged: Vec<usize> = order.iter().copied().filter(|side| pairs.is_judged(*side, &order)).collect();
    let groups = groups(judged.len(), |a, b| pairs.is_different(judged[a], judged[b], rules.alpha));
    order
        .into_iter()
        .map(|side| {
            let place = judged.iter().position(|known| *known == side);
            let has = |(number, group): (usize, &BTreeSet<usize>)| group.contains(&place?).then_some(number);
            Ranked { side, groups: groups.iter().enumerate().filter_map(has).collect() }
        })
        .collect()
}

/// The comparisons of all pairs, `[i][j]` with i below j.
struct Pairs {
    estimates: Vec<Vec<Option<LogRatio>>>,
    p_adjusted: Vec<Vec<f64>>,
}

impl Pairs {
    fn of(sides: &[Vec<Sample>], better: Better, nodes: &Nodes, rules: &Rules) -> Pairs {
        let n = sides.len();
        let estimates: Vec<Vec<Option<LogRatio>>> = (0..n)
            .map(|i| {
                let question =
                    |j: usize| Question { base: sides[j].clone(), other: sides[i].clone(), better };
                let of_all =
                    |j: usize| Some(estimate(&question(j), nodes, rules)?.one_of(n * (n - 1) / 2, rules));
                (0..n).map(|j| if i < j { of_all(j) } else { None }).collect()
            })
            .collect();
        let enough = |e: &LogRatio| e.n >= rules.blocks_min.max(2);
        let p: Vec<f64> = estimates
            .iter()
            .flatten()
            .map(|e| e.as_ref().filter(|e| enough(e)).map_or(f64::NAN, LogRatio::p_difference))
            .collect();
        let p_adjusted = holm(&p).chunks(n.max(1)).map(<[f64]>::to_vec).collect();
        Pairs { estimates, p_adjusted }
    }

    /// The log-ratio of i to j.
    fn centre(&self, i: usize, j: usize) -> Option<f64> {
        let (low, high, sign) = if i < j { (i, j, 1.0) } else { (j, i, -1.0) };
        self.estimates[low][high].as_ref().map(|e| sign * e.centre)
    }

    fn has_values(&self, side: usize) -> bool {
        (0..self.estimates.len()).any(|other| self.centre(side, other).is_some())
    }

    /// The mean log-ratio to the others: what blocks share cancels, although sides may lack some of them.
    fn score(&self, side: usize) -> f64 {
        let ratios: Vec<f64> =
            (0..self.estimates.len()).filter_map(|other| self.centre(side, other)).collect();
        ratios.iter().sum::<f64>() / (ratios.len() + 1) as f64
    }

    fn p(&self, i: usize, j: usize) -> f64 {
        self.p_adjusted[i.min(j)][i.max(j)]
    }

    /// It has blocks enough for a verdict against at least one other side.
    fn is_judged(&self, side: usize, others: &[usize]) -> bool {
        others.iter().any(|other| *other != side && !self.p(side, *other).is_nan())
    }

    /// What was not compared was not told apart.
    fn is_different(&self, i: usize, j: usize, alpha: f64) -> bool {
        self.p(i, j) <= alpha
    }
}

/// Groups of places `0..n`, each as large as possible, so that two places share one exactly where they do not differ.
fn groups(n: usize, is_different: impl Fn(usize, usize) -> bool) -> Vec<BTreeSet<usize>> {
    let mut groups: Vec<BTreeSet<usize>> = if n == 0 { vec![] } else { vec![(0..n).collect()] };
    for (i, j) in (0..n).flat_map(|i| (i + 1..n).map(move |j| (i, j))).filter(|(i, j)| is_different(*i, *j)) {
        let split = |group: BTreeSet<usize>| -> Vec<BTreeSet<usize>> {
            if !(group.contains(&i) && group.contains(&j)) {
                return vec![group];
            }
            let without = |place: usize| group.iter().copied().filter(|at| *at != place).collect();
            vec![without(j), without(i)]
        };
        let parts: Vec<BTreeSet<usize>> = groups.into_iter().flat_map(split).collect();
        groups = absorbed(parts);
    }
    groups.sort_by_key(|group| group.iter().copied().collect::<Vec<_>>());
    groups
}

/// Without those that lie within another.
fn absorbed(groups: Vec<BTreeSet<usize>>) -> Vec<BTreeSet<usize>> {
    let mut kept: Vec<BTreeSet<usize>> = Vec::new();
    for group in groups {
        if kept.iter().any(|known| group.is_subset(known)) {
            continue;
        }
        kept.retain(|known| !known.is_subset(&group));
        kept.push(group);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use proptest::prelude::*;

    fn sides(values: &[&[f64]]) -> Vec<Vec<Sample>> {
        let side = |values: &&[f64]| {
            let sample = |(block, value): (usize, &f64)| Sample { block: block as u32, value: *value };
            values.iter().enumerate().map(sample).collect()
        };
        values.iter().map(side).collect()
    }

    fn shown(ranked: &[Ranked]) -> Vec<(usize, String)> {
        ranked.iter().map(|one| (one.side, one.letters())).collect()
    }

    #[test]
    fn sides_that_cannot_be_told_apart_share_a_letter() {
        let sides = sides(&[
            &[100.0, 101.0, 99.0, 102.0, 100.0],
            &[200.0, 203.0, 198.0, 201.0, 203.0],
            &[101.0, 99.0, 100.0, 101.0, 101.0],
        ]);
        let higher = rank(&sides, Better::Higher, &Rules::default());
        assert_eq!(shown(&higher), [(1, "a".to_owned()), (2, "b".to_owned()), (0, "b".to_owned())]);
        let lower = rank(&sides, Better::Lower, &Rules::default());
        assert_eq!(shown(&lower), [(0, "a".to_owned()), (2, "a".to_owned()), (1, "b".to_owned())]);
    }

    /// Piepho's point: groups overlap, for "not told apart" is not transitive.
    #[test]
    fn one_in_the_middle_belongs_to_both_groups() {
        let groups = groups(3, |i, j| (i, j) == (0, 2));
        assert_eq!(groups, [BTreeSet::from([0, 1]), BTreeSet::from([1, 2])]);
    }

    #[test]
    fn too_few_blocks_give_an_order_and_no_groups() {
        let ranked =
            rank(&sides(&[&[100.0; 4], &[300.0; 4], &[200.0; 4], &[]]), Better::Higher, &Rules::default());
        assert_eq!(shown(&ranked), [(1, String::new()), (2, String::new()), (0, String::new())]);
    }

    /// A/A: six equal sides on blocks that drift; any letter but one is a false difference.
    #[test]
    fn equal_sides_are_told_apart_no_more_often_than_alpha() {
        let mut rng = Rng::new(7);
        let studies = 2000;
        let is_false = |_: &usize| {
            let drift: Vec<f64> = (0..6).map(|_| 0.3 * rng.normal()).collect();
            let sides: Vec<Vec<Sample>> = (0..6)
                .map(|_| {
                    let sample = |(block, drift): (usize, &f64)| Sample {
                        block: block as u32,
                        value: (drift + 0.05 * rng.normal()).exp(),
                    };
                    drift.iter().enumerate().map(sample).collect()
                })
                .collect();
            rank(&sides, Better::Higher, &Rules::default()).iter().any(|one| one.letters() != "a")
        };
        let wrong = (0..studies).filter(is_false).count();
        assert!(wrong <= studies * 6 / 100, "{wrong} of {studies}");
        assert!(wrong > 0, "a test that tells nothing apart controls nothing");
    }

    proptest! {
        #[test]
        fn a_letter_is_shared_exactly_where_no_difference_was_shown(
            differs in prop::collection::vec(any::<bool>(), 36),
        ) {
            let n = 6;
            let is_different = |i: usize, j: usize| differs[i * n + j];
            let groups = groups(n, is_different);
            for i in 0..n {
                prop_assert!(groups.iter().any(|group| group.contains(&i)));
                for j in i + 1..n {
                    let share = groups.iter().any(|group| group.contains(&i) && group.contains(&j));
                    prop_assert_eq!(share, !is_different(i, j));
                }
            }
        }
    }
}
