//! Does the engine report what happened? A fake server injects latencies and stalls and logs when each answer left;
//! every percentile reported up to p99.9 must be within 2 % of the truth computed from that log: in closed loop the
//! server's own times, in open loop the response times that Kiefer's and Wolfowitz's recursion (Lindley's, with one
//! session) gives for the arrival schedule and those times.
//!
//! What is judged is the engine, not the machine: how long a processor takes to wake up from its sleep stands in what
//! any client sees, in no server's log, and is a multiple of all else on a virtual machine whose host is busy. Where
//! the kernel allows it (PM QoS: Documentation/power/pm_qos_interface.rst) processors therefore wait awake while the
//! benchmark runs, as in cyclictest, and the server takes one for itself; `--idle` lets processors and server sleep, and
//! so shows what the machine adds. A host that takes the processors away now and then does so in some rounds and not in
//! others: the median of the rounds is judged, and the largest error stands beside it.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use load::{Arrivals, Histogram, Length, LoadPlan, Pacing, Step, StepResult, Stop};
use testkit::latency_server::truth::{quantile_ns, response_times_ns};

use super::fake::{FakeServer, exchanges};

const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];
const ERROR_MAX: f64 = 0.02;
/// Median 10 ms, p99 32 ms: far above what a wake-up costs, far below what a stall lasts.
const LATENCY: &str = "lognormal:10000:0.5";
const SECONDS: u64 = 25;

struct Case {
    name: &'static str,
    sessions: u32,
    /// Arrivals per second; `None`: closed loop.
    rate_tps: Option<f64>,
    stall: Option<&'static str>,
    /// p99 of the response time must show the stall, in ms.
    p99_ms_min: f64,
}

const CASES: [Case; 6] = [
    Case { name: "closed, 1 session", sessions: 1, rate_tps: None, stall: None, p99_ms_min: 0.0 },
    Case {
        name: "closed, 32 sessions, stalls of 50 ms",
        sessions: 32,
        rate_tps: None,
        stall: Some("2000:50"),
        p99_ms_min: 0.0,
    },
    Case { name: "open, 1 session, 50/s", sessions: 1, rate_tps: Some(50.0), stall: None, p99_ms_min: 0.0 },
    Case {
        name: "open, 16 sessions, 800/s, stalls of 50 ms",
        sessions: 16,
        rate_tps: Some(800.0),
        stall: Some("2000:50"),
        p99_ms_min: 0.0,
    },
    Case {
        name: "open, 16 sessions, 600/s, one stall of 1 s",
        sessions: 16,
        rate_tps: Some(600.0),
        stall: Some("10000:1000:1"),
        p99_ms_min: 500.0,
    },
    Case {
        name: "open, 16 sessions, 500/s, a stall of 1.5 s that outlasts the measured phase",
        sessions: 16,
        rate_tps: Some(500.0),
        stall: Some("23800:1500:1"),
        p99_ms_min: 500.0,
    },
];

/// What was reported of one percentile in one round, in ms.
struct Finding {
    what: &'static str,
    quantile: f64,
    reported_ms: f64,
    truth_ms: f64,
}

impl Finding {
    fn error(&self) -> f64 {
        self.reported_ms / self.truth_ms - 1.0
    }
}

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Lets processors and server sleep.
    #[arg(long)]
    idle: bool,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { rounds, idle: is_idle } = crate::asked("bench measurement-error", arguments);
    let awake = if is_idle { None } else { Some(keep_awake()?) };
    let wait = if is_idle { "asleep" } else { "awake" };
    println!("processors and server wait {wait}");
    let mut findings: Vec<Vec<Vec<Finding>>> = CASES.iter().map(|_| Vec::new()).collect();
    let mut is_reached = true;
    for round in 0..rounds {
        for (number, case) in CASES.iter().enumerate() {
            eprintln!("round {}, {}", round + 1, case.name);
            let found = run_case(case, wait, round * CASES.len() as u64 + number as u64 + 1)?;
            is_reached &= shows_stall(case, &found);
            findings[number].push(found);
        }
    }
    drop(awake);
    for (case, rounds) in CASES.iter().zip(&findings) {
        println!("{}", case.name);
        is_reached &= judge(rounds);
    }
    println!("{}", if is_reached { "reached: every percentile within 2 %" } else { "NOT reached" });
    Ok(is_reached)
}

/// Keeps all processors from sleeping for as long as the answer lives.
pub(super) fn keep_awake() -> Result<File> {
    let path = "/dev/cpu_dma_latency";
    let hold = || -> std::io::Result<File> {
        let mut file = File::options().write(true).open(path)?;
        file.write_all(&0i32.to_ne_bytes())?;
        Ok(file)
    };
    hold().with_context(|| {
        format!("{path}: run as root, or with --idle where the machine's own sleep may count")
    })
}

/// One round of one case, with a server that waits `wait`.
fn run_case(case: &Case, wait: &str, seed: u64) -> Result<Vec<Finding>> {
    let directory = tempfile::tempdir()?;
    let log = directory.path().join("log");
    let seed = seed.to_string();
    let mut arguments = vec!["--latency", LATENCY, "--seed", &seed, "--wait", wait];
    arguments.extend(case.stall.iter().flat_map(|stall| ["--stall", stall]));
    let server = FakeServer::start_logged(&log, &arguments)?;
    let pacing = case
        .rate_tps
        .map_or(Pacing::Closed, |rate_tps| Pacing::Open { rate_tps, arrivals: Arrivals::Constant });
    let step = Step {
        sessions: case.sessions,
        warmup: Duration::ZERO,
        length: Length::Time(Duration::from_secs(SECONDS)),
        pacing,
    };
    // One worker: one queue, as the recursion has it.
    let plan = LoadPlan { steps: vec![step], workers: Some(1), raise_priority: true, ..LoadPlan::default() };
    let result = load::run(&plan, &server.factory(), &mut |_| {}, &Stop::new())?;
    let step = &result.steps[0];
    ensure!(step.ended_by.is_none() && step.errors.is_empty(), "{:?} {:?}", step.ended_by, step.errors);
    let services: Vec<u64> = exchanges(server, &log)?.iter().map(|exchange| exchange.service_ns()).collect();
    ensure!(
        services.len() as u64 == step.outcomes_whole.committed,
        "the log and the engine count differently"
    );
    Ok(compare(case, step, &services))
}

/// What was reported beside the truth.
fn compare(case: &Case, step: &StepResult, services: &[u64]) -> Vec<Finding> {
    let Some(rate_tps) = case.rate_tps else {
        return find("service", &step.latency.response, &mut services.to_vec());
    };
    let arrivals: Vec<u64> = (0..services.len()).map(|k| (k as f64 / rate_tps * 1e9) as u64).collect();
    let mut responses = response_times_ns(&arrivals, services, case.sessions as usize);
    let empty = Histogram::default();
    let service = step.latency.service.as_ref().unwrap_or(&empty);
    let mut found = find("service", service, &mut services.to_vec());
    found.extend(find("response", &step.latency.response, &mut responses));
    found
}

fn find(what: &'static str, reported: &Histogram, truth_ns: &mut [u64]) -> Vec<Finding> {
    let find_one = |quantile| Finding {
        what,
        quantile,
        reported_ms: reported.quantile_ns(quantile) as f64 / 1e6,
        truth_ms: quantile_ns(truth_ns, quantile) as f64 / 1e6,
    };
    QUANTILES.map(find_one).into()
}

fn shows_stall(case: &Case, found: &[Finding]) -> bool {
    let p99_of = |finding: &&Finding| finding.what == "response" && finding.quantile == 0.99;
    let p99_ms = found.iter().find(p99_of).map_or(0.0, |finding| finding.reported_ms);
    if p99_ms < case.p99_ms_min {
        println!("{}: response p99 {p99_ms:.1} ms does not show the stall", case.name);
    }
    p99_ms >= case.p99_ms_min
}

/// Prints and judges one case: its percentiles in the round whose error is the median one.
fn judge(rounds: &[Vec<Finding>]) -> bool {
    let mut is_right = true;
    for row in 0..rounds.first().map_or(0, Vec::len) {
        let mut found: Vec<&Finding> = rounds.iter().map(|round| &round[row]).collect();
        found.sort_by(|a, b| a.error().abs().total_cmp(&b.error().abs()));
        let median = found[found.len() / 2];
        let largest = found[found.len() - 1];
        is_right &= median.error().abs() <= ERROR_MAX;
        println!(
            "  {:8} p{:<5} reported {:9.3} ms  truth {:9.3} ms  {:+6.2} %  (largest {:+6.2} %)",
            median.what,
            median.quantile * 100.0,
            median.reported_ms,
            median.truth_ms,
            median.error() * 100.0,
            largest.error() * 100.0
        );
    }
    is_right
}
