//! Comparing climbs: a run that steps through several load levels is one sample, whatever the number of levels.
//!
//! The levels of one climb share a server life, so they are not independent runs. The whole climb is judged by the
//! mean log-ratio over its levels, one value a block.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::{Better, Question, Sample};

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

/// The question of the whole climb: one sample a block and side, the geometric mean over the levels that both sides
/// reached in that block. Blocks where a level of the climb is missing on either side are left out, because a climb
/// without its highest level is not comparable with one that has it. Put it beside other questions into
/// [`crate::compare()`] to adjust over all of them.
pub fn whole_climb(base: &[ClimbPoint], other: &[ClimbPoint], better: Better) -> Question {
    let levels: BTreeSet<u32> = base.iter().chain(other).map(|p| p.level).collect();
    Question { base: means(base, &levels), other: means(other, &levels), better }
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
    use crate::compare::{Comparison, Rules, Verdict, compare_one};

    fn compared(base: &[ClimbPoint], other: &[ClimbPoint]) -> Comparison {
        compare_one(&whole_climb(base, other, Better::Higher), &Rules::default())
    }

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
    fn a_climb_better_everywhere_is_faster_as_a_whole() {
        let got = compared(&climb(&|_| 1.0), &climb(&|_| 1.5));
        assert_eq!(got.verdict, Verdict::Faster);
        assert_eq!(got.n, 6);
    }

    #[test]
    fn the_ratio_of_a_climb_is_the_mean_of_its_levels() {
        let other = climb(&|level| if level == 1 { 0.5 } else { 2.0 });
        let got = compared(&climb(&|_| 1.0), &other);
        assert!((got.ratio.unwrap() - 2f64.powf(1.0 / 3.0)).abs() < 1e-6);
    }

    #[test]
    fn a_block_whose_climb_ended_early_does_not_enter_the_whole() {
        let mut other = climb(&|_| 1.5);
        other.retain(|p| !(p.block == 0 && p.level == 4));
        let got = compared(&climb(&|_| 1.0), &other);
        assert_eq!(got.n, 5);
    }
}
