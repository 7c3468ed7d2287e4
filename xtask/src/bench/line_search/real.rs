//! Searches in real time against the fake server, a process of its own: its sessions are the servers of a queue whose
//! service times are known, so the line is, too.
//!
//! Each search is a line in a file; a command that was stopped goes on with those that are missing.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::line::Promise;
use lab::line::probe::{REST, RunLoad, Wanted, probe};
use load::{Arrivals, LoadPlan, Pacing, SessionFactory};
use stats::line::{Next, Probe, Rules, Search};

use super::super::fake::FakeServer;
use super::super::measurement_error::keep_awake;
use super::queue::{Habit, Model, Service};
use super::{Case, WITHIN};

pub(super) const SEARCHES: usize = 12;
const BUDGET_S: f64 = 300.0;
const MEDIAN_S_MAX: f64 = 300.0;
const WARMUP_S: f64 = 2.0;
/// Far above what a wake-up costs.
const MEDIAN_MS: f64 = 10.0;

fn case(number: usize) -> Option<Case> {
    let servers = [2, 4, 8, 16][number % 4];
    // The mean of a logarithm with a standard deviation of 1.
    let mean_s = MEDIAN_MS / 1e3 * 0.5f64.exp();
    let model = Model { servers, service: Service::LogNormal, habit: Habit::Plain, mean_s };
    super::case(model, [0.95, 0.9][number / 4 % 2], 0.5)
}

/// The searches that `file` does not have yet, at most `at_most` of them; whether all of them are as they should be.
pub(super) fn run(file: &Path, at_most: usize) -> Result<bool> {
    // The line that is known is that of the service times alone.
    let _awake = keep_awake()?;
    let known = std::fs::read_to_string(file).unwrap_or_default();
    let mut out = File::options().append(true).create(true).open(file)?;
    let first = known.lines().count();
    for number in first..SEARCHES.min(first + at_most) {
        let case = case(number).context("no load is steep enough for this model")?;
        let (line, seconds) = search(&case, number as u64 + 1)?;
        let error = line.map_or(f64::NAN, |line| line / case.line - 1.0);
        let promise = format!("p{} < {:.1} ms", case.quantile * 100.0, case.limit_s * 1e3);
        let told = format!(
            "{error} {seconds} {promise} of {} servers, true line {:.1}",
            case.model.servers, case.line
        );
        println!("search {}: {:+.1} % in {seconds:.0} s: {told}", number + 1, error * 100.0);
        writeln!(out, "{told}")?;
    }
    judge(file)
}

fn judge(file: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(file)?;
    let figure = |line: &str, at: usize| line.split(' ').nth(at).and_then(|word| word.parse::<f64>().ok());
    let errors: Vec<f64> = text.lines().map(|line| figure(line, 0).unwrap_or(f64::NAN)).collect();
    let seconds: Vec<f64> = text.lines().filter_map(|line| figure(line, 1)).collect();
    let within = errors.iter().filter(|error| error.abs() <= WITHIN).count();
    let median_s = stats::median(&seconds).unwrap_or(f64::NAN);
    println!("{within} of {} within 5 %, median {median_s:.0} s (at most {MEDIAN_S_MAX:.0})", errors.len());
    if errors.len() < SEARCHES {
        println!("{} of {SEARCHES} searches made: the same command goes on", errors.len());
    }
    Ok(within == SEARCHES && median_s <= MEDIAN_S_MAX)
}

/// One search: its line, and how long it took.
fn search(case: &Case, seed: u64) -> Result<(Option<f64>, f64)> {
    let latency = format!("lognormal:{:.0}:1", MEDIAN_MS * 1e3);
    let server = FakeServer::start(&["--latency", &latency, "--seed", &seed.to_string()])?;
    let factory = server.factory();
    let names = factory.statement_classes();
    let run_load: &mut RunLoad<'_> = &mut |plan, told, stop| load::run(plan, &factory, told, stop);
    let text = format!("p{} < {}us", case.quantile * 100.0, (case.limit_s * 1e6).round());
    let promises = [Promise::parse(&text)?];
    let stop = lab::StopSwitch::default();
    let told = &mut |_: &load::Event<'_>| {};
    let began = Instant::now();
    let mut wanted = Wanted {
        pacing: Pacing::Closed,
        sessions: case.model.servers as u32,
        warmup: Duration::from_secs(1),
        length: Duration::from_secs(5),
        parts: 1,
        part_warmup: Duration::ZERO,
        purpose: stats::line::Purpose::Hold,
        seed,
    };
    // One queue, as the recursion has it.
    let base = LoadPlan { workers: Some(1), ..LoadPlan::default() };
    let closed = probe((run_load, &names), &base, &[], wanted, told, &stop)?;
    let peak_tps = closed.step.outcomes.committed as f64 / closed.step.duration_s;
    let rules = Rules {
        allowed: vec![promises[0].allowed()],
        budget_s: BUDGET_S,
        hold_s: 60.0,
        warmup_s: WARMUP_S,
        rest_s: 2.0 * REST.as_secs_f64(),
        precision: 0.025,
        start: 0.7 * peak_tps,
        floor: 0.01 * peak_tps,
        ceiling: 10.0 * peak_tps,
    };
    let mut search = Search::new(rules, Vec::new(), began.elapsed().as_secs_f64());
    while let Next::Probe { rate, seconds, focus, purpose } = search.next() {
        wanted.pacing = Pacing::Open { rate_tps: rate, arrivals: Arrivals::Poisson };
        (wanted.warmup, wanted.length) =
            (Duration::from_secs_f64(WARMUP_S), Duration::from_secs_f64(seconds));
        (wanted.purpose, wanted.seed) = (purpose, wanted.seed + 1);
        let tried = probe((run_load, &names), &base, &promises, wanted, told, &stop)?;
        let took_s = tried.took.as_secs_f64();
        let is_overloaded = tried.is_overloaded;
        search.record(Probe { rate, seen: tried.seen, is_overloaded, took_s, purpose, focus });
    }
    let line = search.answers()[0].line;
    server.stop()?;
    Ok((line, began.elapsed().as_secs_f64()))
}
