//! Searches in real time against the fake server, a process of its own: its sessions are the servers of a queue whose
//! service times are known, so the line is, too. A session is busy with more than the service, though: sockets, wake-ups, and
//! whatever the machine does to both processes. How much that was on average is seen in the search itself, as what its
//! transactions took from their start less the mean that is drawn from, and the recursion is told of it.
//!
//! Each search is a line in a file; a command that was stopped goes on with those that are missing.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use lab::line::Promise;
use lab::line::probe::{REST, RunLoad, Tried, Wanted, probe};
use load::{Arrivals, Histogram, LatencyPair, LoadPlan, Pacing, SessionFactory};
use stats::line::{Count, Next, Probe, Purpose, Rules, Search};

use super::super::fake::FakeServer;
use super::super::measurement_error::keep_awake;
use super::queue::{Habit, Model, Service};
use super::{Case, WITHIN};

pub(super) const SEARCHES: usize = 12;
pub(super) const BUDGET_S: f64 = 300.0;
const MEDIAN_S_MAX: f64 = 300.0;
const WARMUP_S: f64 = 2.0;
/// Of the service times, whose logarithm is normal with the standard deviation `SIGMA`.
const MEDIAN_MS: f64 = 5.0;
const SIGMA: f64 = 0.5;

/// The case of a search, were a session busy with the service only.
fn case(number: usize) -> Result<Case> {
    let mean_s = MEDIAN_MS / 1e3 * (0.5 * SIGMA.powi(2)).exp();
    let servers = [2, 4, 8, 16][number % 4];
    let service = Service::LogNormal(SIGMA);
    let model = Model { servers, service, habit: Habit::Plain, mean_s, beside_s: 0.0 };
    super::case(model, [0.95, 0.9][number / 4 % 2], 0.5).context("no load is steep enough for this model")
}

/// Those of all searches.
pub(super) fn cases() -> Result<Vec<Case>> {
    (0..SEARCHES).map(case).collect()
}

/// The searches that `file` does not have yet, at most `at_most` of them; whether all of them are as they should be.
pub(super) fn run(file: &Path, at_most: usize) -> Result<bool> {
    let _awake = keep_awake()?;
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let known: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    let mut out = File::options().append(true).create(true).open(file)?;
    let is_missing = |number: &usize| !known.contains(&(number + 1).to_string().as_str());
    for number in (0..SEARCHES).filter(is_missing).take(at_most) {
        let case = case(number)?;
        let Found { line, seconds, beside_s } = search(&case, number as u64 + 1)?;
        let truth = Model { beside_s, ..case.model }.line(case.quantile, case.promised[0].limit_s);
        let error = line.map_or(f64::NAN, |line| line / truth - 1.0);
        let promise = format!("p{} < {:.1} ms", case.quantile * 100.0, case.promised[0].limit_s * 1e3);
        let told = format!(
            "{} {error} {seconds} {promise} of {} servers, true line {truth:.1}/s, {:.0} us beside each service",
            number + 1,
            case.model.servers,
            beside_s * 1e6
        );
        println!("{:+.1} % in {seconds:.0} s, search {told}", error * 100.0);
        writeln!(out, "{told}")?;
    }
    judge(file)
}

fn judge(file: &Path) -> Result<bool> {
    let text = std::fs::read_to_string(file)?;
    let figure = |line: &str, at: usize| line.split(' ').nth(at).and_then(|word| word.parse::<f64>().ok());
    let errors: Vec<f64> = text.lines().map(|line| figure(line, 1).unwrap_or(f64::NAN)).collect();
    let seconds: Vec<f64> = text.lines().filter_map(|line| figure(line, 2)).collect();
    let within = errors.iter().filter(|error| error.abs() <= WITHIN).count();
    let median_s = stats::median(&seconds).unwrap_or(f64::NAN);
    println!("{within} of {} within 5 %, median {median_s:.0} s (at most {MEDIAN_S_MAX:.0})", errors.len());
    if errors.len() < SEARCHES {
        println!("{} of {SEARCHES} searches made: the same command goes on", errors.len());
    }
    Ok(within == SEARCHES && median_s <= MEDIAN_S_MAX)
}

/// A probe beside what is known.
fn told_of(case: &Case, rate: f64, purpose: Purpose, tried: &Tried) -> String {
    let total: Count = tried.seen.iter().map(|seen| seen.total).sum();
    format!(
        "{purpose:?}: x{:.3} of the line by the services alone, {:.0} s, x{:.2} of the share that may be late, {:.0} us beside{}",
        rate / case.promised[0].line,
        tried.step.duration_s,
        total.share() / (1.0 - case.quantile),
        beside_s(case, std::slice::from_ref(&tried.step.latency)) * 1e6,
        if tried.is_overloaded { ", overloaded" } else { "" }
    )
}

/// What transactions took from their start on average, less what is drawn.
fn beside_s(case: &Case, latencies: &[LatencyPair]) -> f64 {
    let services = || latencies.iter().filter_map(|latency| latency.service.as_ref());
    let count: u64 = services().map(Histogram::len).sum();
    services().map(Histogram::sum_ns).sum::<u64>() as f64 / 1e9 / count.max(1) as f64 - case.model.mean_s
}

/// What a search came to.
struct Found {
    line: Option<f64>,
    /// How long it took.
    seconds: f64,
    beside_s: f64,
}

fn search(case: &Case, seed: u64) -> Result<Found> {
    let latency = format!("lognormal:{:.0}:{SIGMA}", MEDIAN_MS * 1e3);
    let server = FakeServer::start(&["--latency", &latency, "--seed", &seed.to_string()])?;
    let factory = server.factory();
    let names = factory.statement_classes();
    let run_load: &mut RunLoad<'_> = &mut |plan, told, stop| load::run(plan, &factory, told, stop);
    let text = format!("p{} < {}us", case.quantile * 100.0, (case.promised[0].limit_s * 1e6).round());
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
        purpose: Purpose::Hold,
        held: None,
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
    let mut latencies = Vec::new();
    let mut search = Search::new(rules, Vec::new(), began.elapsed().as_secs_f64());
    while let Next::Probe { rate, seconds, focus, purpose } = search.next() {
        wanted.pacing = Pacing::Open { rate_tps: rate, arrivals: Arrivals::Poisson };
        (wanted.warmup, wanted.length) =
            (Duration::from_secs_f64(WARMUP_S), Duration::from_secs_f64(seconds));
        (wanted.purpose, wanted.seed) = (purpose, wanted.seed + 1);
        wanted.held = (purpose == Purpose::Hold).then_some(focus);
        let tried = probe((run_load, &names), &base, &promises, wanted, told, &stop)?;
        let took_s = tried.took.as_secs_f64();
        let is_overloaded = tried.is_overloaded;
        println!("  {}", told_of(case, rate, purpose, &tried));
        latencies.push(tried.step.latency);
        search.record(Probe { rate, seen: tried.seen, is_overloaded, took_s, purpose, focus });
    }
    let line = search.answers()[0].line;
    server.stop()?;
    Ok(Found { line, seconds: began.elapsed().as_secs_f64(), beside_s: beside_s(case, &latencies) })
}
