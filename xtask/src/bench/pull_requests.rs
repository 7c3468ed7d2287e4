//! Pull requests drawn from recorded lives (`lives record`): base and change are measured as a duel in the same job until
//! there is a verdict or ten minutes are over, and the gate `not-slower` lets them pass or stops them. Half of them change
//! nothing, half are slower by 5 %.
//!
//! What is judged, beside the neighbour: of those that change nothing at most 1 in 100 is called slower; of those that are
//! slower at least 90 in 100. What stays undecided does not pass either, and is shown: it says nothing of the change, so it
//! counts neither as an alarm nor as a slow one found. The same pull requests by one run of each side and "2.5 % worse than the base
//! fails" stand beside it.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use stats::{Comparison, Design, Rules, Sample, Verdict, Wanted, compare_one};

use super::lives::{self, Drawn, Kind, Pairing};
use super::looking::no_blocks;
use super::told;

const BUDGET_S: f64 = 600.0;
const PLANTED: f64 = 0.95;
const FALSE_ALARMS_MAX: f64 = 0.01;
const STOPPED_MIN: f64 = 0.90;
/// What a check without statistics calls worse.
const THRESHOLD: f64 = 0.975;

/// How a pull request went.
struct Checked {
    look: Comparison,
    minutes: f64,
    /// One run of each side, minutes apart as two jobs of a pipeline are, is worse by more than the threshold.
    fails_by_threshold: bool,
}

/// The rules of a check: a study's, watched, with a margin below what is to be stopped.
fn rules() -> Rules {
    Rules { design: Design::Watched, margin: 0.025, ..Rules::default() }
}

fn check(kind: &Kind, seed: u64, ratio: f64) -> Checked {
    let mut drawn = Drawn::new(&kind.duels, Pairing::Duel, seed);
    let mut question = no_blocks();
    let mut took_s = 0.0;
    let look = loop {
        let ([base, other], duel_s) = drawn.next();
        took_s += duel_s;
        let block = question.base.len() as u32 + 1;
        question.base.push(Sample { block, value: base.exp() });
        question.other.push(Sample { block, value: other.exp() * ratio });
        // A block that would be likely to end after the budget is not begun.
        let is_over = took_s + duel_s > BUDGET_S;
        let look = compare_one(&question, &Rules { is_over, ..rules() });
        if look.verdict != Verdict::Undecided || is_over {
            break look;
        }
    };
    let ([base, other], _) = Drawn::new(&kind.duels, Pairing::NextDuel, seed).next();
    Checked { look, minutes: took_s / 60.0, fails_by_threshold: (other - base).exp() * ratio < THRESHOLD }
}

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 1000)]
    requests: u64,
    /// Of `lives record`.
    #[arg(long, default_value = lives::KEPT)]
    file: PathBuf,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { requests, file } = crate::asked("bench pull-requests", arguments);
    let kinds = lives::recorded(&file)?;
    ensure!(
        kinds.iter().any(|kind| kind.is_beside_neighbour),
        "the record has no lives beside the neighbour"
    );
    let each = requests.div_ceil(2 * kinds.len() as u64).max(1);
    println!("{} pull requests, {:.0} minutes each at most", each * 2 * kinds.len() as u64, BUDGET_S / 60.0);
    println!("{:56} ratio  slower  undecided  passes  minutes  by {THRESHOLD}", "");
    let (mut alarms, mut stopped) = (vec![], vec![]);
    for kind in &kinds {
        for ratio in [1.0, PLANTED] {
            let all: Vec<Checked> = (0..each).map(|seed| check(kind, seed, ratio)).collect();
            let share = |is: &dyn Fn(&Checked) -> bool| {
                all.iter().filter(|checked| is(checked)).count() as f64 / all.len() as f64
            };
            let slower = share(&|checked| checked.look.verdict == Verdict::Slower);
            let passes = share(&|checked| Wanted::NotSlower.holds(&checked.look));
            let open = share(&|checked| checked.look.verdict == Verdict::Undecided);
            let threshold = share(&|checked| checked.fails_by_threshold);
            let minutes: Vec<f64> = all.iter().map(|checked| checked.minutes).collect();
            let minutes = stats::median(&minutes).unwrap_or(f64::NAN);
            println!(
                "{:56} {ratio:5.2} {slower:7.3} {open:10.3} {passes:7.3} {minutes:8.1} {threshold:9.3}",
                kind.name
            );
            if kind.is_beside_neighbour {
                if ratio < 1.0 { stopped.push(slower) } else { alarms.push(slower) }
            }
        }
    }
    let mean = |shares: &[f64]| stats::mean(shares).unwrap_or(f64::NAN);
    let (alarms, stopped) = (mean(&alarms), mean(&stopped));
    println!(
        "beside the neighbour: {alarms:.3} false alarms (at most {FALSE_ALARMS_MAX}), {stopped:.3} of the slower ones stopped (at least {STOPPED_MIN})"
    );
    told(alarms <= FALSE_ALARMS_MAX && stopped >= STOPPED_MIN)
}
