//! How studies are looked at by people who want a result, and what they must not be told falsely. The studies are
//! simulated (`verdicts`) or drawn from a record of real lives (`lives`).

use stats::{Comparison, Question, Rules, Verdict, compare_one};

/// Limit of the share of false verdicts.
pub(super) const FALSE_SHARE_MAX: f64 = 0.05;
/// More than this no study makes: its look is the last.
pub(super) const BLOCKS_MAX: usize = 40;

/// A study that goes on.
pub(super) trait Blocks {
    fn add_block(&mut self);
    /// How many there are, lost ones included.
    fn blocks(&self) -> usize;
    fn question(&self) -> &Question;
}

/// How a study is looked at; every one ends with [`BLOCKS_MAX`] blocks at the latest.
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

/// Makes blocks and looks, until `is_wanted` or there are as many as there may be. The last look.
pub(super) fn watch(
    study: &mut impl Blocks,
    looking: Looking,
    rules: &Rules,
    is_wanted: &dyn Fn(&Comparison) -> bool,
) -> Comparison {
    let mut next_look = rules.blocks_min;
    loop {
        while study.blocks() < next_look {
            study.add_block();
        }
        let look = compare_one(study.question(), rules);
        if is_wanted(&look) || study.blocks() >= BLOCKS_MAX {
            return look;
        }
        next_look = match (looking, look.blocks_needed) {
            (Looking::AsAsked, Some([_, likely, _])) => likely.max(study.blocks() + 1),
            (Looking::AsAsked, None) => study.blocks() + 5,
            _ => study.blocks() + 1,
        }
        .min(BLOCKS_MAX);
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
    pub(super) fn is_told_by(&self, study: &mut impl Blocks, looking: Looking, rules: &Rules) -> bool {
        let is_wanted = |look: &Comparison| match looking {
            Looking::UntilHoped => (self.is_told)(look),
            _ => look.verdict != Verdict::Undecided || (self.is_told)(look),
        };
        (self.is_told)(&watch(study, looking, rules, &is_wanted))
    }
}
