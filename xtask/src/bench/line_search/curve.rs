//! Searches for four lines at once, of the same percentile below four limits, as `studies/lines.toml` has them: the lowest lies
//! where the share of late transactions hardly depends on the rate. Every second search has a limit before them that no rate
//! keeps. What is judged: promises that can be kept have a line in at least 95 %, and the intervals cover the true one in at least
//! 93 %; the one that cannot be kept has a line in at most 5 %.

use stats::line::Answer;

use super::queue::{Habit, Model, Service};
use super::{
    COVERED_SHARE_MIN, Case, Outcome, Promised, WITHIN_SHARE_MIN, in_threads, is_covered, is_held, is_within,
    search,
};

pub(super) const SEARCHES: usize = 1_000;
const UNKEPT_KNOWN_MAX: f64 = 0.05;
const BUDGET_S: f64 = 300.0;
const HOLD_S: f64 = 20.0;
const LINES: usize = 4;
const QUANTILE: f64 = 0.99;
/// Of the lowest line: log-odds by the logarithm of the rate.
const SLOPE_MIN: f64 = 2.5;
/// Where the lowest line may lie, and where the highest does, as utilisations.
const LOADS: [f64; 6] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6];
const LOAD_MAX: f64 = 0.85;
/// What no rate keeps: so many transactions are over the limit on a server that is nearly idle.
const IDLE_LOAD: f64 = 0.02;
const IDLE_OVER: f64 = 0.02;

fn case(model: Model) -> Option<Case> {
    let promised = |load: f64, transactions: usize| {
        let line = load * model.capacity();
        let (limit_s, slope) = model.limit_s(line, QUANTILE, transactions);
        (Promised { limit_s, line }, slope)
    };
    let first = LOADS.into_iter().find(|load| promised(*load, 400_000).1 >= SLOPE_MIN)?;
    let step = (LOAD_MAX - first) / (LINES - 1) as f64;
    let lines = (0..LINES).map(|at| promised(first + step * at as f64, 4_000_000).0);
    Some(Case { model, quantile: QUANTILE, promised: lines.collect() })
}

/// The same with a limit that is broken at any rate.
fn with_one_that_none_keeps(case: &Case) -> Case {
    let (limit_s, _) = case.model.limit_s(IDLE_LOAD * case.model.capacity(), 1.0 - IDLE_OVER, 400_000);
    let unkept = Promised { limit_s, line: 0.0 };
    let promised = std::iter::once(unkept).chain(case.promised.iter().copied()).collect();
    Case { promised, ..*case }
}

fn cases() -> Vec<Case> {
    let mut models = Vec::new();
    for service in [Service::Exponential, Service::Erlang4, Service::LogNormal(0.5), Service::LogNormal(1.0)]
    {
        for habit in [Habit::Plain, Habit::Stall, Habit::Drift] {
            for servers in [1, 4, 16] {
                let capacity = [500.0, 1_000.0, 2_000.0][models.len() % 3];
                let mean_s = f64::from(servers) / capacity;
                models.push(Model { servers: servers as usize, service, habit, mean_s, beside_s: 0.0 });
            }
        }
    }
    let cases = in_threads(&models, |model| case(*model)).into_iter().flatten();
    cases.flat_map(|case| [with_one_that_none_keeps(&case), case]).collect()
}

pub(super) fn run(searches: usize, first: u64) -> bool {
    let cases = cases();
    println!("{} servers with {LINES} lines each", cases.len() / 2);
    let seeds: Vec<usize> = (0..searches).collect();
    let outcomes = in_threads(&seeds, |seed| {
        let case = &cases[seed % cases.len()];
        (case, search(case, (BUDGET_S, HOLD_S), first + *seed as u64 + 1))
    });
    println!(
        "{:>4} {:>9} {:>7} {:>8} {:>12} {:>7} {:>7}",
        "line", "searches", "known", "covered", "half width", "within", "held"
    );
    let (unkept, _) = row(&outcomes, LINES);
    let rows: Vec<(f64, f64)> = (0..LINES).rev().map(|above| row(&outcomes, above)).collect();
    let longest_s = outcomes.iter().map(|(_, outcome)| outcome.spent_s).fold(0.0, f64::max);
    println!("longest: {longest_s:.0} s of {BUDGET_S:.0} s");
    let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / LINES as f64;
    let (known, covered) = (mean(|row| row.0), mean(|row| row.1));
    println!("known: {known:.4} (at least {WITHIN_SHARE_MIN})");
    println!("interval covers: {covered:.4} (at least {COVERED_SHARE_MIN})");
    println!("a line for what no rate keeps: {unkept:.4} (at most {UNKEPT_KNOWN_MAX})");
    known >= WITHIN_SHARE_MIN
        && covered >= COVERED_SHARE_MIN
        && unkept <= UNKEPT_KNOWN_MAX
        && longest_s <= BUDGET_S
}

/// Prints what became of the line that has so many above it; the shares of searches that know it, and that cover it.
fn row(outcomes: &[(&Case, Outcome)], above: usize) -> (f64, f64) {
    let answer = |(case, outcome): &(&Case, Outcome)| {
        let at = case.promised.len().checked_sub(above + 1)?;
        Some((outcome.answers[at], case.promised[at]))
    };
    let mine: Vec<(Answer, Promised)> = outcomes.iter().filter_map(answer).collect();
    let share = |is: &dyn Fn(&Answer, &Promised) -> bool| {
        mine.iter().filter(|(answer, promised)| is(answer, promised)).count() as f64
            / mine.len().max(1) as f64
    };
    let known = share(&|answer, _| answer.line.is_some());
    let covered = share(&|answer, promised| is_covered(answer, promised));
    let halves = mine.iter().filter_map(|(answer, _)| Some(0.5 * (answer.high? / answer.low?).ln()));
    let half = stats::median(&halves.collect::<Vec<_>>()).unwrap_or(f64::NAN);
    let within = share(&|answer, promised| is_within(answer, promised));
    let held = share(&|answer, _| is_held(answer));
    let name = if above == LINES { "none".to_owned() } else { (LINES - above).to_string() };
    println!(
        "{name:>4} {:>9} {known:>7.3} {covered:>8.3} {:>11.1}% {within:>7.3} {held:>7.3}",
        mine.len(),
        100.0 * half
    );
    (known, covered)
}
