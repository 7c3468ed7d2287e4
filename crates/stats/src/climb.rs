//! Comparing climbs: a run that steps through several load levels is one sample, whatever the number of levels.
//!
//! The levels of one climb share a server life, so they are not independent runs. The whole climb is judged by the
//! mean log-ratio over its levels, one value a block; then each level on its own, adjusted for their number.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Better, Comparison, Question, Rules, Sample, compare, compare_one};

/// One step of one climb.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClimbPoint {
    /// Number of the block.
    pub block: u32,
    /// Load level (sessions).
    pub level: u32,
    /// Value of the metric.
    pub value: f64,
}

/// Two climbs compared.
#[derive(Debug, Clone, PartialEq)]
pub struct ClimbComparison {
    /// The whole climb: geometric mean of the levels' ratios in each block, then as any other comparison.
    pub overall: Comparison,
    /// Each level, in ascending order, adjusted for the number of levels.
    pub levels: Vec<(u32, Comparison)>,
}

/// The question of the whole climb: one sample a block and side, the geometric mean over the levels that both sides
/// reached in that block. Blocks where a level of the climb is missing on either side are left out, because a climb
/// without its highest level is not comparable with one that has it. Put it beside other questions into
/// [`compare`] to adjust over all of them.
pub fn whole_climb(base: &[ClimbPoint], other: &[ClimbPoint], better: Better) -> Question {
    let levels: BTreeSet<u32> = base.iter().chain(other).map(|p| p.level).collect();
    Question { base: means(base, &levels), other: means(other, &levels), better }
}

/// The questions level by level, in ascending order.
pub fn by_level(base: &[ClimbPoint], other: &[ClimbPoint], better: Better) -> Vec<(u32, Question)> {
    let levels: BTreeSet<u32> = base.iter().chain(other).map(|p| p.level).collect();
    let of = |points: &[ClimbPoint], level: u32| {
        points
            .iter()
            .filter(|p| p.level == level)
            .map(|p| Sample { block: p.block, value: p.value })
            .collect()
    };
    levels
        .into_iter()
        .map(|level| (level, Question { base: of(base, level), other: of(other, level), better }))
        .collect()
}

/// Compares two climbs on their own.
pub fn compare_climbs(
    base: &[ClimbPoint],
    other: &[ClimbPoint],
    better: Better,
    rules: &Rules,
) -> ClimbComparison {
    let overall = compare_one(&whole_climb(base, other, better), rules);
    let (levels, questions): (Vec<u32>, Vec<Question>) = by_level(base, other, better).into_iter().unzip();
    ClimbComparison { overall, levels: levels.into_iter().zip(compare(&questions, rules)).collect() }
}

fn means(points: &[ClimbPoint], levels: &BTreeSet<u32>) -> Vec<Sample> {
    let mut by_block: BTreeMap<u32, BTreeMap<u32, f64>> = BTreeMap::new();
    for point in points {
        by_block.entry(point.block).or_default().insert(point.level, point.value);
    }
    by_block
        .into_iter()
        .filter(|(_, steps)| steps.len() == levels.len())
        .map(|(block, steps)| {
            let values: Vec<f64> = steps.into_values().collect();
            // Zero where a level's value is not positive: `compare` leaves it out and says so.
            Sample { block, value: crate::describe::geometric_mean(&values).unwrap_or(0.0) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Verdict;

    fn climb(level_factor: &dyn Fn(u32) -> f64) -> Vec<ClimbPoint> {
        let mut points = Vec::new();
        for block in 0..6 {
            for level in [1, 2, 4] {
                let wobble = 1.0 + 0.01 * f64::from((block * 7 + level) % 5);
                let value = 1000.0 * f64::from(level) * wobble * level_factor(level);
                points.push(ClimbPoint { block, level, value });
            }
        }
        points
    }

    #[test]
    fn a_climb_better_everywhere_is_faster_as_a_whole_and_on_each_level() {
        let got = compare_climbs(&climb(&|_| 1.0), &climb(&|_| 1.5), Better::Higher, &Rules::default());
        assert_eq!(got.overall.verdict, Verdict::Faster);
        assert_eq!(got.overall.n, 6);
        assert_eq!(got.levels.len(), 3);
        assert!(got.levels.iter().all(|(_, c)| c.verdict == Verdict::Faster));
    }

    #[test]
    fn levels_that_cross_show_level_by_level() {
        let other = climb(&|level| if level == 1 { 0.5 } else { 2.0 });
        let got = compare_climbs(&climb(&|_| 1.0), &other, Better::Higher, &Rules::default());
        assert_eq!(got.levels[0].1.verdict, Verdict::Slower);
        assert_eq!(got.levels[2].1.verdict, Verdict::Faster);
        assert!((got.overall.ratio.unwrap() - 2f64.powf(1.0 / 3.0)).abs() < 1e-6);
    }

    #[test]
    fn a_block_whose_climb_ended_early_does_not_enter_the_whole() {
        let mut other = climb(&|_| 1.5);
        other.retain(|p| !(p.block == 0 && p.level == 4));
        let got = compare_climbs(&climb(&|_| 1.0), &other, Better::Higher, &Rules::default());
        assert_eq!(got.overall.n, 5);
        assert_eq!(got.levels[0].1.n, 6);
    }
}
