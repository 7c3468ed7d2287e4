//! Duels drawn from recorded lives: what a study of real servers would have measured, again and again.
//!
//! Duels follow each other as they did in time, from a random start on, and go on elsewhere after ten on average, so that
//! the machine's drift is in them (the stationary bootstrap of Politis and Romano, JASA 89, 1994).

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use stats::rng::Rng;
use stats::{mean, median, variance_components};
use store::lives::Life;

/// Duels that follow each other as recorded, on average.
const STRETCH: f64 = 10.0;
/// Fewer duels of a kind are too few to draw studies of five blocks and more from.
const DUELS_MIN: usize = 10;

/// From the end of a duel's last slice to the next duel's start, in seconds: the end of its servers.
const END_S: f64 = 3.0;

/// Two equal servers that were alive at the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::bench) struct Duel {
    /// Of each, the mean logarithm of its slices' TPS.
    pub(in crate::bench) log_tps: [f64; 2],
    /// From its start to the next one's, in seconds.
    pub(in crate::bench) took_s: f64,
}

/// Which lives make a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::bench) enum Pairing {
    /// Two that were alive at the same time.
    Duel,
    /// One of a duel and the other side of the next: a minute or so apart.
    NextDuel,
}

/// A record's duels of one server, in the order of time.
pub(in crate::bench) struct Kind {
    pub(in crate::bench) name: String,
    pub(in crate::bench) is_beside_neighbour: bool,
    pub(in crate::bench) duels: Vec<Duel>,
    /// Log-ratios of the slices that followed each other, by duel.
    ratios: Vec<Vec<f64>>,
}

/// The two lives of a duel, and what kind of duel it was.
pub(super) struct Pair<'a> {
    pub(super) name: String,
    is_beside_neighbour: bool,
    pub(super) lives: [&'a Life; 2],
}

/// By server, with or without the neighbour, and in the order of time. Lives that a study would have thrown away are left
/// out, and those whose rival was.
pub(super) fn pairs(lives: &[Life]) -> Vec<Pair<'_>> {
    let mut by_duel: BTreeMap<(String, bool, i64), Vec<&Life>> = BTreeMap::new();
    let has_slices = |life: &&Life| life.is_valid && life.slices.iter().any(|slice| slice.committed > 0);
    for life in lives.iter().filter(has_slices) {
        let beside = if life.neighbour { "beside the neighbour" } else { "quiet" };
        let name = format!("{} {}, {beside}", life.server, life.workload);
        by_duel.entry((name, life.neighbour, life.duel)).or_default().push(life);
    }
    let mut pairs = Vec::new();
    for ((name, is_beside_neighbour, _), mut sides) in by_duel {
        sides.sort_by_key(|life| life.side);
        if let Ok(lives) = <[&Life; 2]>::try_from(sides) {
            pairs.push(Pair { name, is_beside_neighbour, lives });
        }
    }
    pairs
}

/// By server, and with or without the neighbour.
pub(in crate::bench) fn kinds(lives: &[Life]) -> Vec<Kind> {
    let logs = |life: &Life| -> Vec<f64> {
        let counted = life.slices.iter().filter(|slice| slice.committed > 0);
        counted.map(|slice| slice.tps().ln()).collect()
    };
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for Pair { name, is_beside_neighbour, lives: [base, other] } in pairs(lives) {
        let ends = [base, other].map(|life| life.slices.last().map_or(0.0, |last| last.at_s + last.length_s));
        let (base, other) = (logs(base), logs(other));
        if let (Some(a), Some(b)) = (mean(&base), mean(&other)) {
            let kind = kinds.entry(name.clone()).or_insert_with(|| Kind {
                name,
                is_beside_neighbour,
                duels: vec![],
                ratios: vec![],
            });
            kind.duels.push(Duel { log_tps: [a, b], took_s: ends[0].max(ends[1]) + END_S });
            kind.ratios.push(base.iter().zip(&other).map(|(a, b)| b - a).collect());
        }
    }
    kinds.into_values().collect()
}

/// Says what a record has, and leaves the kinds that studies can be drawn from.
pub(in crate::bench) fn told(kinds: Vec<Kind>) -> Result<Vec<Kind>> {
    for kind in &kinds {
        let spread = variance_components(&kind.ratios).map_or_else(String::new, |found| {
            let (between, within) = (found.between.sqrt() * 100.0, found.within.sqrt() * 100.0);
            format!("; the ratio's spread: {between:.1} % between lives, {within:.1} % between slices")
        });
        let is_few = if kind.duels.len() < DUELS_MIN { ": too few to draw from" } else { "" };
        let took = median(&kind.duels.iter().map(|duel| duel.took_s).collect::<Vec<_>>()).unwrap_or(f64::NAN);
        println!("  {}: {} duels of {took:.0} s{is_few}{spread}", kind.name, kind.duels.len());
    }
    let many: Vec<Kind> = kinds.into_iter().filter(|kind| kind.duels.len() >= DUELS_MIN).collect();
    ensure!(!many.is_empty(), "no kind has {DUELS_MIN} duels: record more of them");
    Ok(many)
}

/// A study that is being drawn.
pub(in crate::bench) struct Drawn<'a> {
    duels: &'a [Duel],
    pairing: Pairing,
    pub(in crate::bench) rng: Rng,
    /// Which side is the base.
    base: usize,
    /// The duel drawn last.
    at: Option<usize>,
}

impl<'a> Drawn<'a> {
    pub(in crate::bench) fn new(duels: &'a [Duel], pairing: Pairing, seed: u64) -> Drawn<'a> {
        let mut rng = Rng::new(seed);
        let base = rng.below(2);
        Drawn { duels, pairing, rng, base, at: None }
    }

    /// Log TPS of base and other, and how long it took to know them, in seconds.
    pub(in crate::bench) fn next(&mut self) -> ([f64; 2], f64) {
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
        let (base, other) = (&self.duels[at], &self.duels[other_at]);
        ([base.log_tps[self.base], other.log_tps[1 - self.base]], base.took_s)
    }
}

#[cfg(test)]
pub(in crate::bench) mod tests {
    use super::*;
    use store::lives::Slice;

    /// Equal servers whose lives differ by 1 % and slices by 5 %, on a machine that wanders by 10 %.
    pub(in crate::bench) fn recorded(duels: i64, bias: f64) -> Vec<Life> {
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
    fn lives_that_do_not_count_are_not_drawn() {
        let mut lives = recorded(12, 0.0);
        lives[3].is_valid = false;
        assert_eq!(kinds(&lives)[0].duels.len(), 11);
    }
}
