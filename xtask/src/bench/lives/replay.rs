//! Studies drawn from recorded lives.
//!
//! The servers of a record are equal, so every difference that a study calls one is false; and a study whose one side is
//! shifted by the margin must not call the two equivalent. A study's block is a pair of whole lives. Blocks follow each
//! other as they did in time, from a random start on, and go on elsewhere after ten on average, so that the machine's
//! drift is in them (the stationary bootstrap of Politis and Romano, JASA 89, 1994).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};
use stats::rng::Rng;
use stats::{Design, Question, Rules, Sample, mean, variance_components};
use store::lives::{self, Life};

use crate::bench::looking::{Blocks, FALSE_SHARE_MAX, FALSEHOODS, Falsehood, LOOKINGS};
use crate::bench::told;

/// Blocks that follow each other as recorded, on average.
const STRETCH: f64 = 10.0;
/// Fewer duels of a kind are too few to draw studies of five blocks and more from.
const DUELS_MIN: usize = 10;
/// Parts of the record, each of which is left out once.
const PARTS: usize = 10;

/// Two equal servers that were alive at the same time: of each, the mean logarithm of its slices' TPS.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Duel {
    log_tps: [f64; 2],
}

/// Which lives make a block.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Pairing {
    /// Two that were alive at the same time.
    Duel,
    /// One of a duel and the other side of the next: a minute or so apart.
    NextDuel,
}

/// A record's duels by what was measured, in the order of time.
struct Kind {
    name: String,
    duels: Vec<Duel>,
    /// Log-ratios of the slices that followed each other, by duel.
    ratios: Vec<Vec<f64>>,
}

fn kinds(lives: &[Life]) -> Vec<Kind> {
    let mut by_duel: BTreeMap<(String, i64), Vec<&Life>> = BTreeMap::new();
    for life in lives.iter().filter(|life| life.slices.iter().any(|slice| slice.committed > 0)) {
        let beside = if life.neighbour { "beside the neighbour" } else { "quiet" };
        let name = format!("{} {}, {beside}", life.server, life.workload);
        by_duel.entry((name, life.duel)).or_default().push(life);
    }
    let logs = |life: &Life| -> Vec<f64> {
        let counted = life.slices.iter().filter(|slice| slice.committed > 0);
        counted.map(|slice| slice.tps().ln()).collect()
    };
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for ((name, _), mut sides) in by_duel {
        sides.sort_by_key(|life| life.side);
        let [base, other] = sides[..] else { continue };
        let (base, other) = (logs(base), logs(other));
        if let (Some(a), Some(b)) = (mean(&base), mean(&other)) {
            let empty = Kind { name: name.clone(), duels: vec![], ratios: vec![] };
            let kind = kinds.entry(name).or_insert(empty);
            kind.duels.push(Duel { log_tps: [a, b] });
            kind.ratios.push(base.iter().zip(&other).map(|(a, b)| b - a).collect());
        }
    }
    kinds.into_values().collect()
}

/// A study that is being drawn.
struct Drawn<'a> {
    duels: &'a [Duel],
    pairing: Pairing,
    rng: Rng,
    /// Which side is the base.
    base: usize,
    log_ratio: f64,
    /// The duel of the block drawn last.
    at: Option<usize>,
}

impl<'a> Drawn<'a> {
    fn new(duels: &'a [Duel], pairing: Pairing, log_ratio: f64, seed: u64) -> Drawn<'a> {
        let mut rng = Rng::new(seed);
        let base = rng.below(2);
        Drawn { duels, pairing, rng, base, log_ratio, at: None }
    }
}

impl Blocks for Drawn<'_> {
    fn add_block(&mut self, block: u32, to: &mut Question) {
        let count = self.duels.len();
        let at = match self.at {
            Some(at) if self.rng.unit() >= 1.0 / STRETCH => (at + 1) % count,
            _ => self.rng.below(count),
        };
        let other_at = match self.pairing {
            Pairing::Duel => at,
            Pairing::NextDuel => (at + 1) % count,
        };
        self.at = Some(at);
        let base = self.duels[at].log_tps[self.base];
        let other = self.duels[other_at].log_tps[1 - self.base] + self.log_ratio;
        to.base.push(Sample { block, value: base.exp() });
        to.other.push(Sample { block, value: other.exp() });
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
            let mut drawn = Drawn::new(duels, pairing, (falsehood.log_ratio)(rules.margin), seed);
            falsehood.is_told_by(&mut drawn, looking, rules)
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
    let (lives, is_cut) = lives::read(file)?;
    let kinds = kinds(&lives);
    let hours: f64 =
        lives.iter().flat_map(|life| &life.slices).map(|slice| slice.length_s).sum::<f64>() / 3600.0;
    println!("{}: {} lives, {hours:.1} hours of slices", file.display(), lives.len());
    if is_cut {
        println!("its last life is cut off and left out");
    }
    let drawn_from: Vec<&Kind> = kinds.iter().filter(|kind| kind.duels.len() >= DUELS_MIN).collect();
    for kind in &kinds {
        let spread = variance_components(&kind.ratios).map_or_else(String::new, |found| {
            let (between, within) = (found.between.sqrt() * 100.0, found.within.sqrt() * 100.0);
            format!("; the ratio's spread: {between:.1} % between lives, {within:.1} % between slices")
        });
        let is_few = if kind.duels.len() < DUELS_MIN { ": too few to draw from" } else { "" };
        println!("  {}: {} duels{is_few}{spread}", kind.name, kind.duels.len());
    }
    ensure!(!drawn_from.is_empty(), "no kind has {DUELS_MIN} duels: record more of them");
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
fn error_of_all(kinds: &[&Kind], rules: &Rules, studies: u64) -> f64 {
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
    use store::lives::Slice;

    /// Equal servers whose lives differ by 1 % and slices by 5 %, on a machine that wanders by 10 %.
    fn recorded(duels: i64, bias: f64) -> Vec<Life> {
        let mut rng = Rng::new(5);
        let mut machine = 0.0;
        let mut lives = Vec::new();
        for duel in 0..duels {
            machine = 0.9 * machine + 0.04 * rng.normal();
            for side in 0..2u8 {
                let life = machine + 0.01 * rng.normal() + bias * f64::from(side);
                let slice = |k: u32, noise: f64| Slice {
                    at_s: f64::from(2 * k),
                    length_s: 1.0,
                    committed: (1000.0 * (life + 0.05 * noise).exp()) as u64,
                    p50_ms: Some(8.0),
                    p95_ms: None,
                };
                lives.push(Life {
                    server: "mariadb@11.4.5".into(),
                    build: "0".into(),
                    workload: "oltp_read_write".into(),
                    sessions: 8,
                    neighbour: false,
                    duel,
                    side,
                    started_at_ms: duel,
                    is_valid: true,
                    slices: (0..20).map(|k| slice(k, rng.normal())).collect(),
                });
            }
        }
        lives
    }

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
    fn a_record_tells_the_spread_of_lives_and_slices_and_skips_lives_without_a_rival() {
        let mut lives = recorded(60, 0.0);
        lives.pop();
        let kinds = kinds(&lives);
        assert_eq!(kinds[0].duels.len(), 59);
        let found = variance_components(&kinds[0].ratios).unwrap();
        // Two sides: variances of 2 x 1 % and 2 x 5 % squared.
        assert!((found.between.sqrt() - 0.0141).abs() < 0.006, "{found:?}");
        assert!((found.within.sqrt() - 0.0707).abs() < 0.004, "{found:?}");
    }

    #[test]
    fn a_record_can_be_replayed_from_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("lives.jsonl.gz");
        lives::add(&file, &recorded(20, 0.0)).unwrap();
        // Too few studies to judge by: that they can be drawn.
        assert!(run(&file, 90).is_ok());
        lives::add(&folder.path().join("few"), &recorded(4, 0.0)).unwrap();
        assert!(run(&folder.path().join("few"), 180).is_err());
    }
}
