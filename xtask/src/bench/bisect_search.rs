//! Bisections drawn from recorded lives: 64 builds, of which those from a secret one on are slower by 2, 5 or 10 %, in the
//! noise of duels of equal servers as they were recorded (`lives record`), where any life may be wrong altogether.
//!
//! The search is that of `plimsoll bisect`: first good and bad are compared life by life until that is decided, then the
//! guilty one is searched. What is judged: the right build in at least 95 % of the searches for 5 %; "no difference" in at
//! least 95 % where good and bad are alike.

use std::path::PathBuf;

use anyhow::Result;
use stats::rng::Rng;
use stats::{Ask, Better, BisectRules, BisectStatus, GuiltySearch};

use super::lives::{self, Drawn, Kind, Pairing};
use super::told;

const RIGHT_SHARE_MIN: f64 = 0.95;
const BUILDS: usize = 64;
/// Ratios from the guilty build on; 1 is no difference at all.
const RATIOS: [f64; 4] = [0.98, 0.95, 0.90, 1.0];
/// `plimsoll bisect` has it where none is given.
const MARGIN: f64 = 0.02;
/// Share of lives that say nothing of their build: they are what either a good or a bad one would be.
const WRONG: f64 = 0.03;

struct End {
    status: BisectStatus,
    is_right: bool,
    duels: u32,
    minutes: f64,
}

fn bisect(kind: &Kind, seed: u64, ratio: f64) -> End {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(17));
    let guilty = 1 + rng.below(BUILDS - 1);
    let mut drawn = Drawn::new(&kind.duels, Pairing::Duel, seed);
    let (mut duels, mut took_s) = (0, 0.0);
    let mut life = |is_bad: bool| {
        let ([base, other], duel_s) = drawn.next();
        duels += 1;
        took_s += duel_s;
        let is_wrong = rng.unit() < WRONG;
        let is_bad = if is_wrong { rng.below(2) == 0 } else { is_bad };
        other - base + if is_bad { ratio.ln() } else { 0.0 }
    };
    let rules = BisectRules::default();
    let mut search = GuiltySearch::new(BUILDS, Better::Higher, MARGIN, rules);
    while let Some(ask) = search.next() {
        match ask {
            Ask::Ends => search.end(life(true)),
            Ask::Build(build) => {
                let lives: Vec<f64> = (0..rules.lives).map(|_| life(build >= guilty)).collect();
                match search.answer_of(&lives) {
                    Some(answer) => search.answer(build, answer),
                    None => search.skip(build),
                }
            }
        }
    }
    let is_right = search.guilty().is_some_and(|found| found.candidates == (guilty..=guilty));
    End { status: search.status(), is_right, duels, minutes: took_s / 60.0 }
}

/// Shares of searches that found the right one, a wrong one, no difference, nothing.
fn shares(ends: &[&End]) -> [f64; 4] {
    let share = |is: &dyn Fn(&End) -> bool| {
        ends.iter().filter(|end| is(end)).count() as f64 / ends.len().max(1) as f64
    };
    [
        share(&|end| end.status == BisectStatus::Found && end.is_right),
        share(&|end| end.status == BisectStatus::Found && !end.is_right),
        share(&|end| end.status == BisectStatus::NoDifference),
        share(&|end| end.status == BisectStatus::Undecided),
    ]
}

fn line(name: &str, ratio: f64, ends: &[&End]) {
    let [right, wrong, alike, open] = shares(ends);
    let median = |of: &dyn Fn(&End) -> f64| {
        stats::median(&ends.iter().map(|end| of(end)).collect::<Vec<_>>()).unwrap_or(f64::NAN)
    };
    let (duels, minutes) = (median(&|end| f64::from(end.duels)), median(&|end| end.minutes));
    println!(
        "{name:56} {ratio:5.2} {right:7.3} {wrong:7.3} {alike:14.3} {open:10.3} {duels:6.0} {minutes:8.0}"
    );
}

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 2000)]
    searches: u64,
    /// Of `lives record`.
    #[arg(long, default_value = lives::KEPT)]
    file: PathBuf,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { searches, file } = crate::asked("bench bisect-search", arguments);
    let kinds = lives::recorded(&file)?;
    let each = searches.div_ceil((RATIOS.len() * kinds.len()) as u64).max(1);
    println!("{} bisections of {BUILDS} builds for each ratio", each * kinds.len() as u64);
    println!("{:56} ratio   right   wrong  no difference  undecided  duels  minutes", "");
    let mut is_reached = true;
    for ratio in RATIOS {
        let ends: Vec<Vec<End>> =
            kinds.iter().map(|kind| (0..each).map(|seed| bisect(kind, seed, ratio)).collect()).collect();
        for (kind, ends) in kinds.iter().zip(&ends) {
            line(&kind.name, ratio, &ends.iter().collect::<Vec<_>>());
        }
        let all: Vec<&End> = ends.iter().flatten().collect();
        line("all", ratio, &all);
        let [right, _, alike, _] = shares(&all);
        is_reached &= match ratio {
            1.0 => alike >= RIGHT_SHARE_MIN,
            0.95 => right >= RIGHT_SHARE_MIN,
            _ => true,
        };
    }
    println!("asked: {RIGHT_SHARE_MIN} right for 0.95, {RIGHT_SHARE_MIN} without a difference for 1");
    told(is_reached)
}
