//! Searches for load lines whose truth is known.
//!
//! On the simulated clock: servers of several service-time distributions, 1 to 16 of them at a queue, some with a knee, a
//! stall once a minute or a capacity that drifts. The limit of each promise is the percentile that a long run of the
//! recursion has at the rate that is to be the line, so the line is known without a search. Where the share over the limit
//! hardly depends on the rate (most transactions that break the promise are long by themselves, and would be on an idle
//! server) there is no line to find within 5 % by anybody; models are taken at the lowest load at which it rises by a
//! factor of 1.3 for 5 % of the rate. What is judged: answers within 5 % of the true line in at least 95 %, intervals that
//! cover it in at least 93 %, none above its budget.
//!
//! With `--curve`: four lines at once ([`curve`]).
//!
//! In real time, with `--real FILE`: 12 searches against the fake server, all within 5 %, the median within 5 minutes.

mod curve;
mod queue;
mod real;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use stats::line::{Answer, Count, End, Next, Probe, Purpose, Rules, Search, Seen, is_over};
use stats::rng::Rng;

use self::queue::{Habit, Model, Queue, SLOWS_TO, Service};
use super::told;

const WITHIN: f64 = 0.05;
const WITHIN_SHARE_MIN: f64 = 0.95;
const COVERED_SHARE_MIN: f64 = 0.93;
const BUDGET_S: f64 = 600.0;
const HOLD_S: f64 = 60.0;
/// Log-odds by the logarithm of the rate: a factor of 1.3 for 5 %.
const SLOPE_MIN: f64 = 5.4;
/// Utilisations that are tried for the line, the lowest that is steep enough being taken.
const LOADS: [f64; 5] = [0.5, 0.6, 0.7, 0.8, 0.88];
/// The same for lines that are nearer to what the server can do at all: harder to find.
const LOADS_HARD: [f64; 4] = [0.9, 0.92, 0.94, 0.96];
const SERVICES: [Service; 5] =
    [Service::Exponential, Service::Erlang4, Service::LogNormal(1.0), Service::TwoKinds, Service::Constant];
const HABITS: [Habit; 4] = [Habit::Plain, Habit::Knee, Habit::Stall, Habit::Drift];
/// Between two probes: drain and rest.
const REST_S: f64 = 1.0;

/// A server and what is promised of it.
struct Case {
    model: Model,
    quantile: f64,
    /// The limits of the promises, ascending, and their true lines.
    promised: Vec<Promised>,
}

#[derive(Debug, Clone, Copy)]
struct Promised {
    limit_s: f64,
    /// 0 where no rate keeps it.
    line: f64,
}

fn case(model: Model, quantile: f64, load_min: f64) -> Option<Case> {
    let steep = LOADS.into_iter().chain(LOADS_HARD).filter(|load| *load >= load_min).find_map(|load| {
        let line = load * model.capacity();
        let (_, slope) = model.limit_s(line, quantile, 400_000);
        (slope >= SLOPE_MIN).then_some(line)
    })?;
    let (limit_s, _) = model.limit_s(steep, quantile, 6_000_000);
    Some(Case { model, quantile, promised: vec![Promised { limit_s, line: steep }] })
}

/// `is_hard`: lines at 0.9 to 0.96 of the capacity.
fn cases(is_hard: bool) -> Vec<Case> {
    let mut wanted = Vec::new();
    for (at, service) in SERVICES.into_iter().enumerate() {
        for (row, habit) in HABITS.into_iter().enumerate() {
            for (column, servers) in [1, 2, 4, 16].into_iter().enumerate() {
                let number = at * 16 + row * 4 + column;
                // 500 to 2,000 transactions per second, of many servers more.
                let capacity = [500.0, 1_000.0, 2_000.0][number % 3] * (servers as f64).sqrt();
                let mean_s = servers as f64 / capacity;
                let model = Model { servers, service, habit, mean_s, beside_s: 0.0 };
                let loads = if is_hard { LOADS_HARD } else { [LOADS[0], LOADS[1], LOADS[2], LOADS[3]] };
                wanted.push((model, [0.99, 0.95][number % 2], loads[number / 2 % 4]));
            }
        }
    }
    in_threads(&wanted, |(model, quantile, load_min)| case(*model, *quantile, *load_min))
        .into_iter()
        .flatten()
        .collect()
}

/// The same servers, faster at first: what was their line is the line that they have afterwards.
fn slowing(cases: Vec<Case>) -> Vec<Case> {
    let slower = |model: Model| Model { habit: Habit::Slows, mean_s: model.mean_s / SLOWS_TO, ..model };
    cases.into_iter().map(|case| Case { model: slower(case.model), ..case }).collect()
}

/// Maps in as many threads as there are cpus, in order.
fn in_threads<T: Sync, R: Send>(items: &[T], map: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut found: Vec<(usize, R)> = std::thread::scope(|scope| {
        let work = |first: usize| {
            let map = &map;
            move || {
                let mine = items.iter().enumerate().skip(first).step_by(threads);
                mine.map(|(at, item)| (at, map(item))).collect::<Vec<_>>()
            }
        };
        let handles: Vec<_> = (0..threads).map(|first| scope.spawn(work(first))).collect();
        handles.into_iter().flat_map(|handle| handle.join().unwrap_or_default()).collect()
    });
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, result)| result).collect()
}

/// One rate on the simulated clock.
fn probe(queue: &mut Queue, case: &Case, rules: &Rules, next: (f64, f64, usize, Purpose)) -> Probe {
    let (rate, seconds, focus, purpose) = next;
    let began = queue.now();
    let measured = began + rules.warmup_s;
    let mut seen = vec![Seen::default(); case.promised.len()];
    while queue.now() < measured {
        queue.arrival(rate);
    }
    for second in 0..seconds.ceil() as usize {
        let end = measured + (second as f64 + 1.0).min(seconds);
        let mut counts = vec![Count::default(); case.promised.len()];
        while queue.now() < end {
            let (_, response) = queue.arrival(rate);
            for (count, promised) in counts.iter_mut().zip(&case.promised) {
                count.transactions += 1;
                count.over += u64::from(response >= promised.limit_s);
            }
        }
        seen.iter_mut().zip(counts).for_each(|(seen, count)| seen.seconds.push(count));
        let held = (purpose == Purpose::Hold).then_some((focus, rate * seconds));
        if is_over(&seen, &rules.allowed, purpose, held) {
            break;
        }
    }
    seen.iter_mut().for_each(|seen| seen.total = seen.seconds.iter().copied().sum());
    let longest_s = case.promised.last().map_or(0.0, |promised| promised.limit_s);
    let is_overloaded = queue.backlog_s() > 10.0 * longest_s;
    queue.rest(REST_S);
    Probe { rate, seen, is_overloaded, took_s: queue.now() - began, purpose, focus }
}

/// How a search ended.
struct Outcome {
    /// By promise.
    answers: Vec<Answer>,
    spent_s: f64,
    probes: usize,
}

fn search(case: &Case, (budget_s, hold_s): (f64, f64), seed: u64) -> Outcome {
    let mut queue = Queue::new(case.model, seed);
    let mut rng = Rng::new(seed ^ 0x6c69_6e65);
    let capacity = case.model.capacity();
    let rules = Rules {
        allowed: vec![1.0 - case.quantile; case.promised.len()],
        budget_s,
        hold_s,
        warmup_s: 2.0,
        rest_s: REST_S,
        precision: 0.025,
        // What a short climb finds, and a share of it.
        start: 0.7 * capacity * (0.9 + 0.2 * rng.unit()),
        floor: 0.001 * capacity,
        ceiling: 10.0 * capacity,
    };
    const CLIMB_S: f64 = 15.0;
    let mut search = Search::new(rules, Vec::new(), CLIMB_S);
    while let Next::Probe { rate, seconds, focus, purpose } = search.next() {
        let probe = probe(&mut queue, case, search.rules(), (rate, seconds, focus, purpose));
        search.record(probe);
    }
    Outcome { answers: search.answers(), spent_s: search.spent_s(), probes: search.probes().len() }
}

fn is_within(answer: &Answer, promised: &Promised) -> bool {
    answer.line.is_some_and(|line| (line / promised.line - 1.0).abs() <= WITHIN)
}

fn is_covered(answer: &Answer, promised: &Promised) -> bool {
    answer.low.is_none_or(|low| low <= promised.line) && answer.high.is_none_or(|high| promised.line <= high)
}

fn is_held(answer: &Answer) -> bool {
    answer.hold.is_some_and(|hold| hold.is_kept)
}

fn share(outcomes: &[&(usize, Outcome)], is: impl Fn(&(usize, Outcome)) -> bool) -> f64 {
    outcomes.iter().filter(|outcome| is(outcome)).count() as f64 / outcomes.len().max(1) as f64
}

/// On the simulated clock; `first` is the seed of the first search. The table's `error` is that of the middle of the interval.
fn simulated(cases: &[Case], budget_s: f64, searches: usize, first: u64) -> bool {
    let began = Instant::now();
    println!("{} servers whose line is known", cases.len());
    let seeds: Vec<usize> = (0..searches).collect();
    let outcomes = in_threads(&seeds, |seed| {
        let at = seed % cases.len();
        (at, search(&cases[at], (budget_s, HOLD_S), first + *seed as u64 + 1))
    });
    println!(
        "{:34} {:>8} {:>7} {:>8} {:>7} {:>7} {:>7} {:>7}",
        "", "searches", "within", "covered", "held", "error", "s", "probes"
    );
    let row = |name: String, is: &dyn Fn(&Case) -> bool| {
        let mine: Vec<&(usize, Outcome)> = outcomes.iter().filter(|(at, _)| is(&cases[*at])).collect();
        let median = |of: &dyn Fn(&Outcome) -> f64| {
            stats::median(&mine.iter().map(|(_, outcome)| of(outcome)).collect::<Vec<_>>())
                .unwrap_or(f64::NAN)
        };
        let within = share(&mine, |(at, outcome)| is_within(&outcome.answers[0], &cases[*at].promised[0]));
        let covered = share(&mine, |(at, outcome)| is_covered(&outcome.answers[0], &cases[*at].promised[0]));
        let held = share(&mine, |(_, outcome)| is_held(&outcome.answers[0]));
        let errors = mine
            .iter()
            .filter_map(|(at, outcome)| Some(outcome.answers[0].middle? / cases[*at].promised[0].line - 1.0));
        let error = stats::median(&errors.collect::<Vec<_>>()).unwrap_or(f64::NAN) * 100.0;
        println!(
            "{name:34} {:>8} {within:>7.3} {covered:>8.3} {held:>7.3} {error:>+6.1}% {:>7.0} {:>7.0}",
            mine.len(),
            median(&|outcome| outcome.spent_s),
            median(&|outcome| outcome.probes as f64),
        );
        (within, covered)
    };
    for habit in HABITS {
        row(format!("{habit:?}"), &|case| case.model.habit == habit);
    }
    for servers in [1, 2, 4, 8, 16] {
        row(format!("{servers} at the queue"), &|case| case.model.servers == servers);
    }
    for service in SERVICES {
        row(format!("{service:?}"), &|case| case.model.service == service);
    }
    let (within, covered) = row("all".to_owned(), &|_| true);
    let longest = outcomes.iter().map(|(_, outcome)| outcome.spent_s).fold(0.0, f64::max);
    let unended = outcomes.iter().filter(|(_, outcome)| outcome.answers[0].end != End::Found).count();
    println!("ended without the precision asked for: {unended}");
    println!("within 5 %: {within:.4} (at least {WITHIN_SHARE_MIN})");
    println!("interval covers: {covered:.4} (at least {COVERED_SHARE_MIN})");
    println!(
        "longest: {longest:.0} s of {budget_s:.0} s; {:.0} s of real time",
        began.elapsed().as_secs_f64()
    );
    within >= WITHIN_SHARE_MIN && covered >= COVERED_SHARE_MIN && longest <= budget_s
}

#[derive(clap::Parser)]
struct Arguments {
    /// By default 2,000 on the simulated clock and 12 in real time.
    #[arg(long)]
    searches: Option<usize>,
    /// Of the first search; the search was tuned on those from 0 on.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Lines at 0.9 to 0.96 of the capacity.
    #[arg(long)]
    hard: bool,
    /// On the simulated clock, the cases and the budget of those in real time.
    #[arg(long, conflicts_with_all = ["hard", "real"])]
    as_real: bool,
    /// On the simulated clock, servers that become slower while they are searched; the line is that of afterwards.
    #[arg(long, conflicts_with_all = ["hard", "real", "as_real"])]
    slows: bool,
    /// Searches for four lines at once, within 300 s.
    #[arg(long, conflicts_with_all = ["hard", "as_real", "slows"])]
    curve: bool,
    /// In real time: each search becomes a line of this file.
    #[arg(long, conflicts_with = "curve")]
    real: Option<PathBuf>,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let asked: Arguments = crate::asked("bench line-search", arguments);
    let is_reached = match &asked.real {
        Some(file) => real::run(file, asked.searches.unwrap_or(real::SEARCHES))?,
        None if asked.curve => curve::run(asked.searches.unwrap_or(curve::SEARCHES), asked.seed),
        None => {
            let (cases, budget_s) = match (asked.as_real, asked.slows) {
                (true, _) => (real::cases()?, real::BUDGET_S),
                (_, true) => (slowing(real::cases()?), real::BUDGET_S),
                _ => (cases(asked.hard), BUDGET_S),
            };
            simulated(&cases, budget_s, asked.searches.unwrap_or(2_000), asked.seed)
        }
    };
    told(is_reached)
}
