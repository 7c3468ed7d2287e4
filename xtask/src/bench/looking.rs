//! How studies are looked at by people who want a result, and what they must not be told falsely. The studies are
//! simulated (`verdicts`) or drawn from a record of real lives (`lives`).

use stats::{Better, Comparison, Question, Rules, Verdict, compare_one};

/// Limit of the share of false verdicts.
pub(super) const FALSE_SHARE_MAX: f64 = 0.05;
/// More than this no study makes: its look is the last.
pub(super) const BLOCKS_MAX: usize = 40;
/// After so many blocks studies of which the false verdicts are counted are over, by turns.
const ENDS: [usize; 3] = [10, 20, BLOCKS_MAX];

/// Where the study of that number is over.
pub(super) fn end_of(study: u64) -> usize {
    ENDS[(study % ENDS.len() as u64) as usize]
}

/// A study that goes on.
pub(super) trait Blocks {
    /// Measures both sides once more; what is lost adds nothing.
    fn add_block(&mut self, block: u32, to: &mut Question);
}

/// Nothing measured yet.
pub(super) fn no_blocks() -> Question {
    Question { base: vec![], other: vec![], better: Better::Higher }
}

/// How a study is looked at, until it is over.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Looking {
    /// After each block, until there is a verdict.
    UntilDecided,
    /// After each block, and on until there is what somebody hopes for. No way of looking finds more: whoever stops
    /// earlier, leaves looks out or comes back later sees some of these looks.
    UntilHoped,
    /// After five blocks, then as many more as `blocks_needed` asks for, again and again.
    AsAsked,
}

pub(super) const LOOKINGS: [Looking; 3] = [Looking::UntilDecided, Looking::UntilHoped, Looking::AsAsked];

/// Makes blocks and looks, until `is_wanted` or there are as many as there may be. The last look, and how many blocks there
/// are then, lost ones included.
pub(super) fn watch(
    study: &mut impl Blocks,
    blocks_max: usize,
    looking: Looking,
    rules: &Rules,
    is_wanted: &dyn Fn(&Comparison) -> bool,
) -> (Comparison, usize) {
    let mut question = no_blocks();
    let (mut blocks, mut next_look) = (0, rules.blocks_min);
    loop {
        while blocks < next_look {
            blocks += 1;
            study.add_block(blocks as u32, &mut question);
        }
        let is_over = blocks >= blocks_max;
        let look = compare_one(&question, &Rules { is_over, ..*rules });
        if is_wanted(&look) || is_over {
            return (look, blocks);
        }
        next_look = match (looking, look.blocks_needed) {
            (Looking::AsAsked, Some([_, likely, _])) => likely.max(blocks + 1),
            (Looking::AsAsked, None) => blocks + 5,
            _ => blocks + 1,
        }
        .min(blocks_max);
    }
}

/// A statement that may be false, the log-ratio at which it is, and how it is told.
pub(super) struct Falsehood {
    pub(super) what: &'static str,
    pub(super) log_ratio: fn(margin: f64) -> f64,
    pub(super) is_told: fn(&Comparison) -> bool,
}

pub(super) const FALSEHOODS: [Falsehood; 3] = [
    Falsehood {
        what: "a difference of equal servers",
        log_ratio: |_| 0.0,
        is_told: |look| matches!(look.verdict, Verdict::Faster | Verdict::Slower),
    },
    Falsehood {
        what: "equivalence at the margin",
        log_ratio: |margin| -margin.ln_1p(),
        is_told: |look| look.verdict == Verdict::Equivalent,
    },
    Falsehood {
        what: "not slower at the margin",
        log_ratio: |margin| -margin.ln_1p(),
        is_told: |look| look.is_not_slower,
    },
];

impl Falsehood {
    /// Whether a study, whose truth is [`Falsehood::log_ratio`], tells it at the end of being looked at.
    pub(super) fn is_told_by(
        &self,
        study: &mut impl Blocks,
        blocks_max: usize,
        looking: Looking,
        rules: &Rules,
    ) -> bool {
        let is_wanted = |look: &Comparison| match looking {
            Looking::UntilHoped => (self.is_told)(look),
            _ => look.verdict != Verdict::Undecided || (self.is_told)(look),
        };
        (self.is_told)(&watch(study, blocks_max, looking, rules, &is_wanted).0)
    }
}
