//! What a study can tell before it is made: the smallest difference that it finds with some power, from the spread of
//! earlier blocks and the time that a block takes.

use crate::anytime::{FIRST_LOOK, half_width, last_level, ln_boost};
use crate::compare::{Design, Rules};
use crate::components::Components;
use crate::rng::Rng;
use crate::student::upper_quantile;

/// Simulated studies behind a smallest effect: its error is about 2 %.
const STUDIES: usize = 2000;
/// More blocks than this are not planned for: from there on a difference shrinks as the root of the time.
const PLANNED_BLOCKS_MAX: usize = 200;

/// What time a block of a study takes, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlockCosts {
    /// Everything but slices: both servers' data, start, warm-up and stop.
    pub life_s: f64,
    /// One more pair of slices, one on each server, with what is lost between them.
    pub pair_s: f64,
}

/// How to spend a time on blocks and slices, and what it tells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Layout {
    /// Blocks: a life of each server.
    pub blocks: usize,
    /// Pairs of slices in each block.
    pub pairs: usize,
    /// The smallest difference told with the power asked for: 0.03 is "3 % faster, or slower by as much".
    pub difference: f64,
}

/// For each number of blocks from `rules.blocks_min` to `blocks`: the smallest effect, mean / spread of the blocks'
/// log-ratios, that a study of at most so many blocks calls a difference with the chance `rules.power`, under
/// `rules.alpha` and `rules.design`, the last look included. By simulation with a seed of its own: in each study a shift of
/// all values moves every t the same way, so the shift at which it is decided is known without trying.
fn smallest_effects(blocks: usize, rules: &Rules) -> Vec<f64> {
    let first = rules.blocks_min.max(2);
    let boost = if first >= FIRST_LOOK { ln_boost(1) } else { 0.0 };
    let mut rng = Rng::new(0x706c_616e);
    // Sum, sum of squares, and the shift that suffices so far, by study.
    let mut studies = vec![(0.0f64, 0.0f64, f64::INFINITY); STUDIES];
    let mut effects = Vec::new();
    for n in 1..=blocks.max(first) {
        let df = n as f64 - 1.0;
        // Of a look on the way, and of the last.
        let (half, last) = match rules.design {
            _ if n < first => (f64::INFINITY, f64::INFINITY),
            Design::Watched => {
                let level = if first >= FIRST_LOOK { last_level(n, rules.alpha / 2.0) } else { 0.0 };
                (half_width(n, rules.alpha / 2.0, boost), upper_quantile(level, df))
            }
            Design::Fixed => (f64::INFINITY, upper_quantile(rules.alpha / 2.0, df)),
        };
        let mut shifts = Vec::with_capacity(STUDIES);
        for (sum, squares, shift) in &mut studies {
            let x = rng.normal();
            *sum += x;
            *squares += x * x;
            if n >= first {
                let count = n as f64;
                let mean = *sum / count;
                let error = ((*squares - *sum * mean) / (count - 1.0) / count).sqrt();
                *shift = shift.min(half * error - mean);
                shifts.push(shift.min(last * error - mean));
            }
        }
        if n >= first {
            let at = ((rules.power.clamp(0.0, 1.0) * STUDIES as f64) as usize).min(STUDIES - 1);
            effects.push(*shifts.select_nth_unstable_by(at, f64::total_cmp).1);
        }
    }
    effects
}

/// The smallest difference (0.03 is 3 %) that a study of at most `blocks` blocks finds with the chance `rules.power`,
/// where `spread` is the standard deviation of a block's log-ratio. `None` below `rules.blocks_min` blocks, or where so
/// few blocks can tell none.
pub fn difference_told(spread: f64, blocks: usize, rules: &Rules) -> Option<f64> {
    if blocks < rules.blocks_min.max(2) {
        return None;
    }
    let effect = *smallest_effects(blocks, rules).last()?;
    Some((effect * spread).exp_m1()).filter(|difference| difference.is_finite())
}

/// The best use of `seconds`: blocks and pairs of slices that tell the smallest difference, where `ratios` are the
/// components of the log-ratios of pairs of slices (between lives, within a life). `None` where the time is not enough
/// for `rules.blocks_min` blocks of one pair, or tells nothing.
pub fn best_layout(ratios: &Components, costs: &BlockCosts, seconds: f64, rules: &Rules) -> Option<Layout> {
    let first = rules.blocks_min.max(2);
    let blocks_max = (seconds / (costs.life_s + costs.pair_s)).floor();
    // A time or costs that are no numbers afford nothing.
    let blocks_max = if blocks_max.is_finite() { (blocks_max as usize).min(PLANNED_BLOCKS_MAX) } else { 0 };
    if blocks_max < first {
        return None;
    }
    (first..=blocks_max)
        .zip(smallest_effects(blocks_max, rules))
        .filter_map(|(blocks, effect)| {
            let pairs = ((seconds / blocks as f64 - costs.life_s) / costs.pair_s).floor().max(1.0) as usize;
            let difference = (effect * ratios.of_a_mean(pairs).sqrt()).exp_m1();
            difference.is_finite().then_some(Layout { blocks, pairs, difference })
        })
        .min_by(|a, b| a.difference.total_cmp(&b.difference))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::{Better, Question, Sample, Verdict, compare_one};

    const WATCHED: Rules = Rules {
        margin: 0.05,
        alpha: 0.05,
        blocks_min: 5,
        power: 0.8,
        design: Design::Watched,
        is_over: false,
    };

    /// Share of studies of at most `blocks` blocks that call `difference` one, judged as a study is.
    fn share_found(difference: f64, spread: f64, blocks: u32, rules: &Rules) -> f64 {
        let mut rng = Rng::new(11);
        // No margin: whether a difference is small enough to be none is not the question here.
        let rules = Rules { margin: 0.0, ..*rules };
        let found = (0..600)
            .filter(|_| {
                let mut question = Question { base: vec![], other: vec![], better: Better::Higher };
                let first_look = if rules.design == Design::Watched { 5 } else { blocks };
                (1..=blocks).any(|block| {
                    let log_ratio = difference.ln_1p() + spread * rng.normal();
                    question.base.push(Sample { block, value: 1000.0 });
                    question.other.push(Sample { block, value: 1000.0 * log_ratio.exp() });
                    let rules = Rules { is_over: block == blocks, ..rules };
                    block >= first_look && compare_one(&question, &rules).verdict == Verdict::Faster
                })
            })
            .count();
        found as f64 / 600.0
    }

    #[test]
    fn the_difference_told_is_found_four_times_in_five() {
        for (rules, blocks) in [(WATCHED, 8), (WATCHED, 20), (Rules { design: Design::Fixed, ..WATCHED }, 8)]
        {
            let difference = difference_told(0.04, blocks, &rules).unwrap();
            let share = share_found(difference, 0.04, blocks as u32, &rules);
            assert!((share - 0.8).abs() < 0.05, "{rules:?} {blocks} blocks: {difference} found in {share}");
        }
    }

    /// Guenther's approximation for the fixed design: effect = (1.960 + 0.842) / sqrt(n - 1.960^2 / 2).
    #[test]
    fn a_fixed_design_needs_the_effect_of_the_textbook() {
        let told = difference_told(0.01, 20, &Rules { design: Design::Fixed, ..WATCHED }).unwrap();
        let textbook = (2.802f64 / (20.0 - 1.92f64).sqrt() * 0.01).exp_m1();
        assert!((told / textbook - 1.0).abs() < 0.04, "{told} {textbook}");
    }

    #[test]
    fn more_time_tells_smaller_differences_and_too_little_none() {
        let ratios = Components { mean: 0.0, between: 0.0004, within: 0.0046, groups: 20, values: 400 };
        let costs = BlockCosts { life_s: 12.0, pair_s: 2.2 };
        let told: Vec<Layout> = [120.0, 300.0, 600.0, 1800.0]
            .iter()
            .map(|seconds| best_layout(&ratios, &costs, *seconds, &WATCHED).unwrap())
            .collect();
        assert!(told.windows(2).all(|pair| pair[1].difference < pair[0].difference), "{told:?}");
        for (layout, seconds) in told.iter().zip([120.0, 300.0, 600.0, 1800.0]) {
            assert!(layout.blocks as f64 * (12.0 + 2.2 * layout.pairs as f64) <= seconds, "{layout:?}");
        }
        assert_eq!(best_layout(&ratios, &costs, 60.0, &WATCHED), None);
        assert_eq!(best_layout(&ratios, &costs, f64::NAN, &WATCHED), None);
        assert_eq!(difference_told(0.04, 4, &WATCHED), None);
    }
}
