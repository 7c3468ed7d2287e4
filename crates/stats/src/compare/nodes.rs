//! Ratios of several nodes combined: pairs are made within a node only, and the node is a random effect, for which node a
//! block ran on is chance, and the next node would be another one.
//!
//! The model: log-ratio of a block = mean + node + block, both random. The spread of blocks is pooled over the nodes (they
//! are of one class); that between nodes is estimated by moments (DerSimonian and Laird, Controlled Clinical Trials 7,
//! 1986). The interval is that of Hartung, Knapp, Sidik and Jonkman (Statistics in Medicine 20, 2001, and 21, 2002): t with
//! one degree of freedom fewer than nodes, never narrower than what the blocks' own spread allows (Röver, Knapp and Friede,
//! BMC Medical Research Methodology 15, 2015). Two nodes have one degree of freedom, and an interval as wide as that. With
//! nodes of equal numbers of blocks that differ it is the t-test on the nodes' means.
//!
//! A study that is watched spends its error over the looks: the look after the n-th block that may be the last gets
//! 1 / (n (n + 1)) of it, which sums to 1 however long it goes on, and asks nothing of how looks depend on each other. Fewer
//! than four nodes have too few degrees of freedom to spend any (two nodes at the eighth look: an interval of 900 standard
//! errors to each side): they are looked at once, when the study is over, which their verdicts then cannot have ended.

use std::collections::BTreeMap;

use super::estimate::{LogRatio, pairs};
use super::{Design, Method, Question, Reason, Rules};
use crate::describe::{mean, standard_deviation, variance};
use crate::student::two_sided_p;

/// The node of each block. Blocks that are not in it are of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Nodes(pub BTreeMap<u32, u32>);

impl Nodes {
    fn of(&self, block: u32) -> u32 {
        self.0.get(&block).copied().unwrap_or(u32::MAX)
    }
}

/// What one node says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeRatio {
    pub node: u32,
    /// Pairs of this node.
    pub blocks: usize,
    /// Geometric mean of other / base.
    pub ratio: f64,
}

/// A node that says something else than all others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OddNode {
    pub node: u32,
    pub ratio: f64,
    /// The ratio of all others, combined.
    pub elsewhere: f64,
    /// p of "it is one of them", times the number of nodes.
    pub p: f64,
}

/// How a question's answer rests on several nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct AcrossNodes {
    /// In the order of their numbers; at least two.
    pub nodes: Vec<NodeRatio>,
    /// Standard deviation of the nodes' true ratios, as a share: 0.03 is 3 %. 0 where blocks alone explain how they differ.
    pub spread: f64,
    /// Nodes that disagree with the others by more than chance and the margin allow.
    pub odd: Vec<OddNode>,
}

/// A node's mean log-ratio and its number of blocks.
#[derive(Debug, Clone, Copy)]
struct Group {
    node: u32,
    mean: f64,
    blocks: usize,
}

/// The groups, and the variance of blocks within them with its degrees of freedom, where some node has two.
fn groups(question: &Question, nodes: &Nodes) -> (Vec<Group>, Option<(f64, usize)>) {
    let mut by_node: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for (block, ratio) in pairs(question).0 {
        by_node.entry(nodes.of(block)).or_default().push(ratio);
    }
    let squares: f64 = by_node.values().filter_map(|all| Some(variance(all)? * (all.len() - 1) as f64)).sum();
    let df = by_node.values().map(|all| all.len() - 1).sum::<usize>();
    let group = |(node, all): (u32, Vec<f64>)| Some(Group { node, mean: mean(&all)?, blocks: all.len() });
    let within = (df > 0).then(|| (squares / df as f64, df));
    (by_node.into_iter().filter_map(group).collect(), within)
}

/// Mean of the nodes, its standard error and the variance between them.
struct Combined {
    centre: f64,
    error: f64,
    between: f64,
}

/// `None` for fewer than two nodes. `within`: variance of a block; 0 where it is not known.
fn combine(groups: &[Group], within: f64) -> Option<Combined> {
    let k = groups.len();
    if k < 2 {
        return None;
    }
    if within <= 0.0 {
        // Nothing tells blocks from nodes: each node's mean is one value.
        let means: Vec<f64> = groups.iter().map(|group| group.mean).collect();
        let deviation = standard_deviation(&means)?;
        let error = deviation / (k as f64).sqrt();
        return Some(Combined { centre: mean(&means)?, error, between: deviation * deviation });
    }
    let weighted = |between: f64| {
        let weights: Vec<f64> =
            groups.iter().map(|group| (within / group.blocks as f64 + between).recip()).collect();
        let sum: f64 = weights.iter().sum();
        let centre = weights.iter().zip(groups).map(|(w, group)| w * group.mean).sum::<f64>() / sum;
        let squares =
            weights.iter().zip(groups).map(|(w, group)| w * (group.mean - centre).powi(2)).sum::<f64>();
        let squared_weights: f64 = weights.iter().map(|w| w * w).sum();
        (centre, squares, sum, squared_weights)
    };
    let df = (k - 1) as f64;
    let (_, squares, sum, squared_weights) = weighted(0.0);
    let between = ((squares - df) / (sum - squared_weights / sum)).max(0.0);
    let (centre, squares, sum, _) = weighted(between);
    Some(Combined { centre, error: ((squares / df).max(1.0) / sum).sqrt(), between })
}

/// The estimate over several nodes; `None` where the blocks are of one.
pub(super) fn across(question: &Question, nodes: &Nodes, rules: &Rules) -> Option<LogRatio> {
    let (groups, within) = groups(question, nodes);
    let combined = combine(&groups, within.map_or(0.0, |(variance, _)| variance))?;
    let n: usize = groups.iter().map(|group| group.blocks).sum();
    let looks = (n + 1).saturating_sub(rules.blocks_min.max(2)) as f64;
    let are_few = groups.len() < NODES_FEW;
    let spent = match rules.design {
        Design::Watched if !are_few => (looks * (looks + 1.0)).max(1.0),
        Design::Watched | Design::Fixed => 1.0,
    };
    let is_early = rules.design == Design::Watched && are_few && !rules.is_over;
    let reason = match (is_early, are_few) {
        (true, _) => Some(Reason::FewNodesBeforeEnd),
        (false, true) => Some(Reason::FewNodes),
        (false, false) => pairs(question).1,
    };
    Some(LogRatio {
        n,
        method: Method::Nodes,
        centre: combined.centre,
        error: combined.error,
        df: (groups.len() - 1) as f64,
        ln_boost: 0.0,
        earlier: Vec::new(),
        spent,
        is_early,
        reason,
    })
}

/// With fewer nodes the spread between them is hardly known.
const NODES_FEW: usize = 4;

/// How the nodes agree; `None` where the blocks are of one.
pub(super) fn agreement(question: &Question, nodes: &Nodes, rules: &Rules) -> Option<AcrossNodes> {
    let (groups, within) = groups(question, nodes);
    let (variance, df) = within.unwrap_or((0.0, 0));
    let combined = combine(&groups, variance)?;
    let odd = (0..groups.len()).filter_map(|at| odd(&groups, at, (variance, df), rules)).collect();
    let ratio = |group: &Group| NodeRatio { node: group.node, blocks: group.blocks, ratio: group.mean.exp() };
    // Where no node has two blocks, what looks like nodes may be blocks.
    let spread = if df == 0 { 0.0 } else { combined.between.sqrt().exp_m1() };
    Some(AcrossNodes { nodes: groups.iter().map(ratio).collect(), spread, odd })
}

/// Whether node `at` could be one of the others: its mean against theirs, as a prediction of one node more.
fn odd(groups: &[Group], at: usize, (within, df): (f64, usize), rules: &Rules) -> Option<OddNode> {
    let this = groups[at];
    let others: Vec<Group> = groups.iter().filter(|group| group.node != this.node).copied().collect();
    let rest = combine(&others, within)?;
    let error = (within / this.blocks as f64 + rest.between + rest.error * rest.error).sqrt();
    // Others that differ by their blocks alone: what is known of the error is what is known of those.
    let df = if df > 0 && rest.between == 0.0 { df } else { others.len() - 1 };
    let difference = this.mean - rest.centre;
    let p =
        if error > 0.0 { two_sided_p(difference / error, df as f64) } else { f64::from(difference == 0.0) };
    let p = (p * groups.len() as f64).min(1.0);
    let is_odd = p <= rules.alpha && difference.abs() > rules.margin.max(0.0).ln_1p();
    is_odd.then(|| OddNode { node: this.node, ratio: this.mean.exp(), elsewhere: rest.centre.exp(), p })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Better, Sample, Verdict, compare_on};
    use crate::rng::Rng;

    /// Blocks of `ratios` by node, in order, and where they ran.
    fn question(ratios: &[Vec<f64>]) -> (Question, Nodes) {
        let mut question = Question { base: vec![], other: vec![], better: Better::Higher };
        let mut nodes = Nodes::default();
        let mut block = 0;
        for (node, ratios) in ratios.iter().enumerate() {
            for log_ratio in ratios {
                // What a node is fast or slow by itself cancels.
                let own = 1000.0 * (1.0 + node as f64);
                question.base.push(Sample { block, value: own });
                question.other.push(Sample { block, value: own * log_ratio.exp() });
                nodes.0.insert(block, node as u32);
                block += 1;
            }
        }
        (question, nodes)
    }

    fn answer(ratios: &[Vec<f64>], rules: &Rules) -> crate::Comparison {
        let (question, nodes) = question(ratios);
        compare_on(&[question], &nodes, rules).remove(0)
    }

    /// By hand: equal numbers of blocks and nodes that differ: the t-test on the nodes' means 0.1, 0.2, 0.3: 0.2 plus or
    /// minus 4.303 * 0.1 / sqrt(3).
    #[test]
    fn balanced_nodes_that_differ_are_a_t_test_on_their_means() {
        let got = answer(&[vec![0.09, 0.11], vec![0.19, 0.21], vec![0.29, 0.31]], &Rules::default());
        let half = 4.302_65 * 0.1 / 3f64.sqrt();
        assert_eq!((got.n, got.method), (6, Method::Nodes));
        assert!((got.ratio.unwrap().ln() - 0.2).abs() < 1e-9, "{got:?}");
        assert!((got.low.unwrap().ln() - (0.2 - half)).abs() < 1e-5, "{got:?}");
        assert!((got.high.unwrap().ln() - (0.2 + half)).abs() < 1e-5, "{got:?}");
        let across = got.nodes.unwrap();
        assert_eq!(across.nodes.iter().map(|node| node.blocks).collect::<Vec<_>>(), [2, 2, 2]);
        // DerSimonian and Laird's: 0.01 - 0.0002 / 2.
        assert!((across.spread.ln_1p().powi(2) - 0.0099).abs() < 1e-6, "{}", across.spread);
    }

    #[test]
    fn one_node_is_judged_as_before_and_two_are_honestly_wide() {
        let blocks = [0.05, 0.06, 0.04, 0.05, 0.07, 0.03].to_vec();
        let one = answer(std::slice::from_ref(&blocks), &Rules::default());
        assert_eq!((one.method, one.verdict), (Method::Paired, Verdict::Faster));
        assert_eq!(one.nodes, None);
        let two = answer(&[blocks[..3].to_vec(), blocks[3..].to_vec()], &Rules::default());
        assert_eq!((two.method, two.verdict), (Method::Nodes, Verdict::Undecided));
        assert_eq!(two.reason, Some(Reason::FewNodes));
        let width = |got: &crate::Comparison| (got.high.unwrap() / got.low.unwrap()).ln();
        assert!(width(&two) > 4.0 * width(&one), "{two:?}");
    }

    /// Three nodes that tell a difference: not while the study is watched, and at its end as if nobody had looked before.
    #[test]
    fn few_nodes_of_a_watched_study_are_judged_at_its_end() {
        let like = |centre: f64| vec![centre - 0.004, centre, centre + 0.004];
        let nodes = [like(0.30), like(0.31), like(0.29)];
        let watched = Rules { design: Design::Watched, ..Rules::default() };
        let before = answer(&nodes, &watched);
        assert_eq!((before.verdict, before.reason), (Verdict::Undecided, Some(Reason::FewNodesBeforeEnd)));
        assert_eq!(before.p_adjusted, Some(1.0));
        let over = answer(&nodes, &Rules { is_over: true, ..watched });
        let fixed = answer(&nodes, &Rules::default());
        assert_eq!((over.verdict, over.low, over.high), (Verdict::Faster, fixed.low, fixed.high));
        let four = [&nodes[..], &[like(0.30)]].concat();
        assert_eq!(answer(&four, &watched).verdict, Verdict::Faster, "enough nodes are judged on the way");
    }

    #[test]
    fn a_node_that_disagrees_is_named_with_what_the_others_say() {
        let like = |centre: f64| vec![centre - 0.004, centre, centre + 0.004];
        let got =
            answer(&[like(0.04), like(0.035), like(-0.094), like(0.042), like(0.039)], &Rules::default());
        let across = got.nodes.unwrap();
        assert_eq!(across.odd.len(), 1, "{across:?}");
        let odd = across.odd[0];
        assert_eq!(odd.node, 2);
        assert!((odd.ratio - 0.91).abs() < 0.001 && (odd.elsewhere - 1.04).abs() < 0.001, "{odd:?}");
        let alike = answer(&[like(0.04), like(0.035), like(0.037), like(0.042)], &Rules::default());
        assert!(alike.nodes.unwrap().odd.is_empty());
    }

    /// Pairs are within a node: a block whose sides ran on two nodes is two blocks that have one side each.
    #[test]
    fn sides_on_two_nodes_are_no_pair() {
        let (mut question, mut nodes) = question(&[vec![0.1, 0.1, 0.1], vec![0.1, 0.1, 0.1]]);
        question.base.push(Sample { block: 90, value: 1.0 });
        question.other.push(Sample { block: 91, value: 9.0 });
        nodes.0.extend([(90, 0), (91, 1)]);
        let got = compare_on(&[question], &nodes, &Rules::default()).remove(0);
        assert_eq!(got.n, 6);
        assert!((got.ratio.unwrap().ln() - 0.1).abs() < 1e-9);
    }

    /// Of intervals that say 95 %, 95 % and not much more hold the truth, whether nodes differ or not and with unequal
    /// numbers of blocks. 4,000 draws: three standard errors are 1 %.
    #[test]
    fn intervals_hold_the_truth_as_often_as_they_say() {
        let mut rng = Rng::new(11);
        for (node_count, between) in [(3, 0.0), (4, 0.03), (8, 0.0), (8, 0.02), (8, 0.1)] {
            let mut held = 0;
            for _ in 0..4000 {
                let ratios: Vec<Vec<f64>> = (0..node_count)
                    .map(|node| {
                        let own = between * rng.normal();
                        (0..2 + node % 3).map(|_| 0.07 + own + 0.02 * rng.normal()).collect()
                    })
                    .collect();
                let (question, nodes) = question(&ratios);
                let got = across(&question, &nodes, &Rules::default()).unwrap().interval(0.05);
                held += u32::from(got.0 <= 0.07 && 0.07 <= got.1);
            }
            let share = f64::from(held) / 4000.0;
            assert!(share > 0.935, "{node_count} nodes, {between} between: {share}");
        }
    }

    /// Looked at after every block, equal sides are called different in at most 5 of 100 studies.
    #[test]
    fn looks_after_every_block_spend_one_error() {
        let mut rng = Rng::new(5);
        let rules = Rules { design: Design::Watched, margin: 0.0, ..Rules::default() };
        let mut wrong = 0;
        for _ in 0..600 {
            let own: Vec<f64> = (0..6).map(|_| 0.02 * rng.normal()).collect();
            let mut ratios: Vec<Vec<f64>> = vec![vec![]; 6];
            let is_wrong = (0..30).any(|block| {
                ratios[block % 6].push(own[block % 6] + 0.02 * rng.normal());
                let begun: Vec<Vec<f64>> = ratios.iter().filter(|one| !one.is_empty()).cloned().collect();
                block >= 5 && matches!(answer(&begun, &rules).verdict, Verdict::Faster | Verdict::Slower)
            });
            wrong += u32::from(is_wrong);
        }
        assert!(wrong <= 30, "{wrong} of 600");
    }
}
