//! Studies drawn from recorded lives.
//!
//! The servers of a record are equal, so every difference that a study calls one is false; and a study whose one side is
//! shifted by the margin must not call the two equivalent. A study's block is a pair of whole lives.

use std::path::Path;

use anyhow::Result;
use stats::{Design, Question, Rules, Sample, mean};

use super::drawn::{Drawn, Duel, Kind, Pairing};
use crate::bench::looking::{Blocks, FALSE_SHARE_MAX, FALSEHOODS, Falsehood, LOOKINGS, end_of};
use crate::bench::told;

/// Parts of the record, each of which is left out once.
const PARTS: usize = 10;

/// A study of drawn duels, whose other side is so much faster than it was.
struct Study<'a> {
    drawn: Drawn<'a>,
    log_ratio: f64,
}

impl Blocks for Study<'_> {
    fn add_block(&mut self, block: u32, to: &mut Question) {
        let ([base, other], _) = self.drawn.next();
        to.base.push(Sample { block, value: base.exp() });
        to.other.push(Sample { block, value: (other + self.log_ratio).exp() });
    }
}

const PAIRINGS: [Pairing; 2] = [Pairing::Duel, Pairing::NextDuel];

/// Share of `studies` that tell a falsehood, for each way of looking.
fn false_shares(
    duels: &[Duel],
    pairing: Pairing,
    falsehood: &Falsehood,
    rules: &Rules,
    studies: u64,
    seed: u64,
) -> [f64; LOOKINGS.len()] {
    LOOKINGS.map(|looking| {
        let told = (0..studies).filter(|study| {
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(*study);
            let drawn = Drawn::new(duels, pairing, seed);
            let blocks_max = end_of(*study);
            let mut study = Study { drawn, log_ratio: (falsehood.log_ratio)(rules.margin) };
            falsehood.is_told_by(&mut study, blocks_max, looking, rules)
        });
        told.count() as f64 / studies as f64
    })
}

/// A share that the record gives, and its standard error: what it is where each tenth of the record's time is left out
/// (Künsch: "The jackknife and the bootstrap for general stationary observations", Annals of Statistics 17, 1989).
/// Studies drawn again and again from the same lives are no new evidence, so their number says little about it.
fn with_error(duels: &[Duel], share: &dyn Fn(&[Duel], u64) -> f64, studies: u64) -> (f64, f64) {
    let parts: Vec<f64> = (0..PARTS)
        .map(|part| {
            let (from, to) = (part * duels.len() / PARTS, (part + 1) * duels.len() / PARTS);
            share(&[&duels[..from], &duels[to..]].concat(), studies.div_ceil(PARTS as u64))
        })
        .collect();
    let centre = mean(&parts).unwrap_or(f64::NAN);
    let squares: f64 = parts.iter().map(|part| (part - centre).powi(2)).sum();
    (share(duels, studies), (squares * (PARTS - 1) as f64 / PARTS as f64).sqrt())
}

pub(super) fn run(file: &Path, studies_in_all: u64) -> Result<bool> {
    let drawn_from = super::recorded(file)?;
    let rules = Rules { design: Design::Watched, ..Rules::default() };
    let ways = (drawn_from.len() * PAIRINGS.len() * FALSEHOODS.len() * LOOKINGS.len()) as u64;
    let studies = studies_in_all.div_ceil(ways).max(1);
    println!("{} studies, {studies} for each figure; margin {}", studies * ways, rules.margin);
    println!("shares of false verdicts (limit {FALSE_SHARE_MAX}): looked at {LOOKINGS:?}");
    let mut all = Vec::new();
    let mut seed = 0;
    for kind in &drawn_from {
        for pairing in PAIRINGS {
            for falsehood in &FALSEHOODS {
                seed += 1;
                let shares = false_shares(&kind.duels, pairing, falsehood, &rules, studies, seed);
                let told = shares.map(|share| format!("{share:.4}")).join(" ");
                let pairing = format!("{pairing:?}");
                println!("  {:44} {pairing:9} {:30} {told}", kind.name, falsehood.what);
                all.extend(shares);
            }
        }
    }
    let share = mean(&all).unwrap_or(f64::NAN);
    let error = error_of_all(&drawn_from, &rules, studies);
    let (low, high) = ((share - 2.0 * error).max(0.0), share + 2.0 * error);
    println!("false verdicts in all: {share:.4}, from {low:.4} to {high:.4} (two standard errors)");
    let by_looking: Vec<f64> = (0..LOOKINGS.len())
        .map(|at| {
            mean(&all.iter().copied().skip(at).step_by(LOOKINGS.len()).collect::<Vec<_>>())
                .unwrap_or(f64::NAN)
        })
        .collect();
    for (looking, share) in LOOKINGS.iter().zip(&by_looking) {
        println!("  looked at {looking:?}: {share:.4}");
    }
    let is_reached = by_looking.iter().all(|share| *share <= FALSE_SHARE_MAX);
    told(is_reached)
}

/// Standard error of the mean share: kinds were recorded at other times, so their errors are independent.
fn error_of_all(kinds: &[Kind], rules: &Rules, studies: u64) -> f64 {
    let squares: f64 = kinds
        .iter()
        .map(|kind| {
            let share = |duels: &[Duel], studies: u64| {
                let shares = PAIRINGS.iter().flat_map(|pairing| {
                    FALSEHOODS.iter().flat_map(move |falsehood| {
                        false_shares(duels, *pairing, falsehood, rules, studies, 1)
                    })
                });
                mean(&shares.collect::<Vec<f64>>()).unwrap_or(f64::NAN)
            };
            with_error(&kind.duels, &share, studies).1.powi(2)
        })
        .sum();
    squares.sqrt() / kinds.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::lives::drawn::kinds;
    use crate::bench::lives::drawn::tests::recorded;

    #[test]
    fn studies_of_equal_servers_seldom_err_and_those_of_unequal_ones_find_it() {
        let rules = Rules { design: Design::Watched, ..Rules::default() };
        for (bias, range) in [(0.0, 0.0..=0.05), (0.10, 0.95..=1.0)] {
            let kinds = kinds(&recorded(60, bias));
            assert_eq!((kinds.len(), kinds[0].duels.len()), (1, 60));
            let shares = false_shares(&kinds[0].duels, Pairing::Duel, &FALSEHOODS[0], &rules, 100, 3);
            assert!(shares.iter().all(|share| range.contains(share)), "{bias}: {shares:?}");
        }
    }

    #[test]
    fn a_record_can_be_replayed_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lives.jsonl.gz");
        store::lives::add(&file, &recorded(20, 0.0)).unwrap();
        // Too few studies to judge by: that they can be drawn.
        assert!(run(&file, 90).is_ok());
        store::lives::add(&folder.path().join("few"), &recorded(4, 0.0)).unwrap();
        assert!(run(&folder.path().join("few"), 180).is_err());
    }
}
