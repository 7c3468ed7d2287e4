//! Simulated bisections: 64 builds, of which those from a secret one on are slower by 2, 5 or 10 %, in the noise of duels
//! as measured, where any answer may be wrong altogether.
//!
//! First good and bad are compared life by life until that is decided, as `plimsoll bisect` does; then the guilty one is
//! searched. What is judged: the right build in at least 95 % of the searches for 5 %; "no difference" in at least 95 %
//! where good and bad are alike.

use anyhow::Result;
use stats::rng::Rng;
use stats::{Answer, BisectRules, Bisection, Design, Rules, Sample, Verdict, compare_one};

use super::looking::no_blocks;
use super::told;

const RIGHT_SHARE_MIN: f64 = 0.95;
const BUILDS: usize = 64;
/// Ratios from the guilty build on; 1 is no difference at all.
const RATIOS: [f64; 4] = [0.98, 0.95, 0.90, 1.0];
/// A pair of lives in a duel: neighbouring slices' log-ratios spread by 6.8 % (two equal servers, one second each in
/// turns), and twenty pairs of them make a life; lives of one build spread by 1.2 % on either side.
const SLICE: f64 = 0.068;
const SLICES: f64 = 20.0;
const LIFE: f64 = 0.012;
/// Share of lives that say nothing of their build: they are what either a good or a bad one would be.
const WRONG: f64 = 0.03;
/// Lives of a step.
const LIVES: usize = 3;
/// Pairs of lives after which good and bad are not compared on.
const LIVES_MAX: usize = 40;
/// Steps after which a search is given up.
const STEPS_MAX: usize = 200;

struct Machine {
    rng: Rng,
    log_ratio: f64,
}

impl Machine {
    /// Log-ratio of a pair of lives.
    fn life(&mut self, is_bad: bool) -> f64 {
        let is_wrong = self.rng.unit() < WRONG;
        let is_bad = if is_wrong { self.rng.below(2) == 0 } else { is_bad };
        let spread = (2.0 * LIFE * LIFE + SLICE * SLICE / SLICES).sqrt();
        // Lives lie far off now and then: Student's t with 5 degrees of freedom, whose variance is 5/3.
        let squares: f64 = (0..5).map(|_| self.rng.normal().powi(2)).sum();
        let tailed = self.rng.normal() / (squares / 5.0).sqrt() / (5.0f64 / 3.0).sqrt();
        (if is_bad { self.log_ratio } else { 0.0 }) + spread * tailed
    }
}

#[derive(Debug, PartialEq)]
enum End {
    Found { is_right: bool, lives: usize },
    NoDifference,
    Undecided,
}

fn bisect(seed: u64, ratio: f64) -> End {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(17));
    let guilty = 1 + rng.below(BUILDS - 1);
    let mut machine = Machine { rng, log_ratio: ratio.ln() };
    let rules = Rules { design: Design::Watched, margin: 0.02, ..Rules::default() };
    let mut question = no_blocks();
    let mut lives: Vec<f64> = Vec::new();
    loop {
        let value = machine.life(true);
        lives.push(value);
        question.base.push(Sample { block: lives.len() as u32, value: 1000.0 });
        question.other.push(Sample { block: lives.len() as u32, value: 1000.0 * value.exp() });
        match compare_one(&question, &rules).verdict {
            Verdict::Slower | Verdict::Faster => break,
            Verdict::Equivalent => return End::NoDifference,
            Verdict::Undecided if lives.len() >= LIVES_MAX => return End::Undecided,
            Verdict::Undecided => {}
        }
    }
    let effect = stats::bisect_effect(&lives);
    let spread = effect.error * (lives.len() as f64).sqrt();
    let mut search = Bisection::new(BUILDS, effect, BisectRules::default());
    let mut asked = lives.len();
    while let Some(build) = search.next().filter(|_| search.answers() < STEPS_MAX) {
        let mean = (0..LIVES).map(|_| machine.life(build >= guilty)).sum::<f64>() / LIVES as f64;
        asked += LIVES;
        search.answer(build, Answer { log_ratio: mean, error: spread / (LIVES as f64).sqrt() });
    }
    if !search.is_decided() {
        return End::Undecided;
    }
    End::Found { is_right: search.guilty().candidates == (guilty..=guilty), lives: asked }
}

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 2000)]
    searches: u64,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { searches } = crate::asked("bench bisect-search", arguments);
    let each = searches.div_ceil(RATIOS.len() as u64).max(1);
    println!("{each} bisections of {BUILDS} builds for each ratio");
    println!("ratio   right   wrong   no difference   undecided   pairs of lives (median)");
    let mut is_reached = true;
    for ratio in RATIOS {
        let ends: Vec<End> = (0..each).map(|seed| bisect(seed, ratio)).collect();
        let share =
            |is: &dyn Fn(&End) -> bool| ends.iter().filter(|end| is(end)).count() as f64 / each as f64;
        let right = share(&|end| matches!(end, End::Found { is_right: true, .. }));
        let wrong = share(&|end| matches!(end, End::Found { is_right: false, .. }));
        let (alike, open) = (share(&|end| *end == End::NoDifference), share(&|end| *end == End::Undecided));
        let lives: Vec<f64> = ends
            .iter()
            .filter_map(|end| if let End::Found { lives, .. } = end { Some(*lives as f64) } else { None })
            .collect();
        let lives = stats::median(&lives).map_or_else(|| "-".to_owned(), |lives| format!("{lives:.0}"));
        println!("{ratio:.2} {right:>9.3} {wrong:>7.3} {alike:>15.3} {open:>11.3} {lives:>10}");
        is_reached &= match ratio {
            1.0 => alike >= RIGHT_SHARE_MIN,
            0.95 => right >= RIGHT_SHARE_MIN,
            _ => true,
        };
    }
    println!("asked: {RIGHT_SHARE_MIN} right for 0.95, {RIGHT_SHARE_MIN} without a difference for 1");
    told(is_reached)
}
