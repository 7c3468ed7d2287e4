//! How often a verdict errs, and how many blocks it takes: simulated studies whose truth is known, over spreads of 2 to
//! 15 %, under noise that real machines have, and looked at by people who want a result.
//!
//! A study is a row of blocks; in each, both servers are measured once, in random order. What is judged: the share of
//! studies with a false verdict at any look ("faster" or "slower" of equal servers; "equivalent" or "not slower" of a
//! server that is worse by exactly the margin), at most 5 % for each way of noise and of looking; and the median
//! number of blocks to a verdict, at most 1.25 times that of a fixed design with 80 % power.

use anyhow::Result;
use stats::rng::Rng;
use stats::{Comparison, Design, Question, Rules, Sample, Verdict, compare_one};

use super::looking::{
    BLOCKS_MAX, Blocks, FALSE_SHARE_MAX, FALSEHOODS, Falsehood, LOOKINGS, Looking, end_of, no_blocks, watch,
};
use super::told;

const BLOCKS_SHARE_MAX: f64 = 1.25;

/// What a run's throughput has in it besides the server.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Noise {
    /// Each run on its own, normal.
    Independent,
    /// Each run on its own; now and then one lies far off (Student's t with 4 degrees of freedom).
    HeavyTails,
    /// The machine's speed goes up and down: each run's with a correlation of 0.8 to the run's before it.
    Wandering,
    /// The machine becomes slower from run to run by a tenth of the spread.
    Drift,
    /// One side spreads twice as much as the other.
    UnequalSides,
    /// Each run is lost to a fault with a chance of one in five; one made again later takes its place half of the time.
    Losses,
}

const NOISES: [Noise; 6] = [
    Noise::Independent,
    Noise::HeavyTails,
    Noise::Wandering,
    Noise::Drift,
    Noise::UnequalSides,
    Noise::Losses,
];

/// A study that goes on.
struct Study {
    rng: Rng,
    noise: Noise,
    spread: f64,
    log_ratio: f64,
    machine: f64,
}

impl Study {
    /// `spread`: standard deviation of a block's log-ratio where runs are independent.
    fn new(seed: u64, noise: Noise, spread: f64, log_ratio: f64) -> Study {
        Study { rng: Rng::new(seed), noise, spread, log_ratio, machine: 0.0 }
    }

    /// What the next run's logarithm has in it besides the server.
    fn noise_of_run(&mut self, is_other: bool) -> f64 {
        let sigma = self.spread / 2f64.sqrt();
        let normal = self.rng.normal();
        match self.noise {
            Noise::Independent | Noise::Losses => sigma * normal,
            Noise::HeavyTails => {
                let squares: f64 = (0..4).map(|_| self.rng.normal().powi(2)).sum();
                // Variance 2 for 4 degrees of freedom.
                sigma * normal / (squares / 4.0).sqrt() / 2f64.sqrt()
            }
            Noise::Wandering => {
                self.machine = 0.8 * self.machine + 0.6 * self.rng.normal();
                sigma * (normal + self.machine) / 2f64.sqrt()
            }
            Noise::Drift => {
                self.machine -= 0.1;
                sigma * (normal + self.machine)
            }
            Noise::UnequalSides => sigma * normal * if is_other { 1.6f64.sqrt() } else { 0.4f64.sqrt() },
        }
    }
}

impl Blocks for Study {
    fn add_block(&mut self, block: u32, to: &mut Question) {
        let is_other_first = self.rng.below(2) == 1;
        for is_other in [is_other_first, !is_other_first] {
            let shift = if is_other { self.log_ratio } else { 0.0 };
            let value = (1000f64.ln() + shift + self.noise_of_run(is_other)).exp();
            let is_lost = self.noise == Noise::Losses && self.rng.below(10) == 0;
            if !is_lost {
                let side = if is_other { &mut to.other } else { &mut to.base };
                side.push(Sample { block, value });
            }
        }
    }
}

/// Share of `studies` in which a falsehood is told at a look.
fn false_share(
    falsehood: &Falsehood,
    noise: Noise,
    looking: Looking,
    rules: &Rules,
    studies: u64,
    seed: u64,
) -> f64 {
    let told = (0..studies).filter(|study| {
        let spread = 0.02 + 0.13 * (*study as f64 + 0.5) / studies as f64;
        let log_ratio = (falsehood.log_ratio)(rules.margin);
        let blocks_max = end_of(*study);
        let mut study =
            Study::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(*study), noise, spread, log_ratio);
        falsehood.is_told_by(&mut study, blocks_max, looking, rules)
    });
    told.count() as f64 / studies as f64
}

/// Ratio and spread of studies whose number of blocks is looked at.
const EFFECTS: [(f64, f64); 10] = [
    (1.10, 0.05),
    (1.05, 0.05),
    (1.10, 0.10),
    (1.05, 0.03),
    (1.05, 0.02),
    (1.05, 0.08),
    (1.0, 0.08),
    (1.0, 0.05),
    (1.0, 0.03),
    (1.0, 0.02),
];

/// Median of blocks to a verdict, looked at after each.
fn median_blocks(ratio: f64, spread: f64, rules: &Rules, studies: u64) -> f64 {
    let mut blocks: Vec<f64> = (0..studies)
        .map(|seed| {
            let mut study = Study::new(seed, Noise::Independent, spread, ratio.ln());
            let is_decided = |look: &Comparison| look.verdict != Verdict::Undecided;
            let (look, blocks) = watch(&mut study, BLOCKS_MAX, Looking::UntilDecided, rules, &is_decided);
            if is_decided(&look) { blocks as f64 } else { f64::INFINITY }
        })
        .collect();
    blocks.sort_by(f64::total_cmp);
    blocks[blocks.len() / 2]
}

/// The fewest blocks with which four of five fixed studies end with a verdict.
fn fixed_blocks(ratio: f64, spread: f64, studies: u64) -> usize {
    let rules = Rules::default();
    let decides = |blocks: usize| {
        let decided = (0..studies).filter(|seed| {
            let mut study = Study::new(*seed, Noise::Independent, spread, ratio.ln());
            let mut question = no_blocks();
            (1..=blocks as u32).for_each(|block| study.add_block(block, &mut question));
            compare_one(&question, &rules).verdict != Verdict::Undecided
        });
        decided.count() as f64 >= 0.8 * studies as f64
    };
    (rules.blocks_min..BLOCKS_MAX).find(|blocks| decides(*blocks)).unwrap_or(BLOCKS_MAX)
}

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 100_000)]
    studies: u64,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { studies: studies_in_all } = crate::asked("bench verdicts", arguments);
    let rules = Rules { design: Design::Watched, ..Rules::default() };
    let is_never_misled = false_shares(&rules, studies_in_all);
    let is_quick = blocks_to_a_verdict(&rules);
    told(is_never_misled && is_quick)
}

fn false_shares(rules: &Rules, studies_in_all: u64) -> bool {
    let rows = (FALSEHOODS.len() * NOISES.len() * LOOKINGS.len()) as u64;
    let studies = studies_in_all.div_ceil(rows).max(1);
    println!("{} simulated studies, {studies} for each row; margin {}", studies * rows, rules.margin);
    println!("{:34} {:14} {:16} false, of 0.05", "told falsely", "noise", "looked at");
    let ways: Vec<(&Falsehood, Noise, Looking)> = FALSEHOODS
        .iter()
        .flat_map(|falsehood| {
            NOISES.iter().flat_map(move |noise| LOOKINGS.map(|looking| (falsehood, *noise, looking)))
        })
        .collect();
    let share = |(seed, (falsehood, noise, looking)): (usize, &(&Falsehood, Noise, Looking))| {
        false_share(falsehood, *noise, *looking, rules, studies, seed as u64 + 1)
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<f64> = Vec::new();
    for some in ways.iter().enumerate().collect::<Vec<_>>().chunks(threads) {
        let shares: Vec<f64> = std::thread::scope(|scope| {
            let at_work: Vec<_> = some.iter().map(|way| scope.spawn(|| share(*way))).collect();
            at_work.into_iter().map(|thread| thread.join().expect("a simulation panicked")).collect()
        });
        for ((_, (falsehood, noise, looking)), share) in some.iter().zip(shares) {
            let (noise, looking) = (format!("{noise:?}"), format!("{looking:?}"));
            println!("{:34} {noise:14} {looking:16} {share:.4}", falsehood.what);
            all.push(share);
        }
    }
    let in_all = stats::mean(&all).unwrap_or(f64::NAN);
    let worst = all.into_iter().fold(0.0, f64::max);
    println!(
        "false verdicts: {in_all:.4} in all; largest share of a row: {worst:.4} (limit {FALSE_SHARE_MAX})"
    );
    worst <= FALSE_SHARE_MAX
}

fn blocks_to_a_verdict(rules: &Rules) -> bool {
    println!(
        "blocks to a verdict: watched (median), fixed with 80 % power, ratio (limit {BLOCKS_SHARE_MAX})"
    );
    let mut shares = Vec::new();
    for (ratio, spread) in EFFECTS {
        let (watched, fixed) = (median_blocks(ratio, spread, rules, 1001), fixed_blocks(ratio, spread, 1000));
        let share = watched / fixed as f64;
        println!("x {ratio:.2}, spread {:>2.0} %: {watched:>3} {fixed:>3} {share:.2}", spread * 100.0);
        shares.push(share);
    }
    let is_each = shares.iter().all(|share| *share <= BLOCKS_SHARE_MAX);
    shares.sort_by(f64::total_cmp);
    println!(
        "median over these: {:.2}; each within the limit: {is_each}",
        stats::median(&shares).unwrap_or(f64::NAN)
    );
    is_each
}
