//! Several client processes on one server: 100,000 sessions, of which 1 % are active at a time, and whether four clients
//! report what one does at the same rate. Both against the fake server, whose log has the truth.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::latency_server::truth::quantile_ns;

use super::fake::{FakeServer, exchanges};
use super::lab::{ratio_interval, resident_kib};
use super::told;

/// Of the fake server: each may have as many files open as a client may.
const SERVERS: u32 = 8;
const GIB_MAX: f64 = 4.0;
const ERROR_MAX: f64 = 0.02;
/// Median 400 ms, mean 453 ms: at this rate 1 % of 100,000 sessions are active.
const LATENCY_CROWD: &str = "lognormal:400000:0.5";
const RATE_CROWD: u32 = 2_200;
/// Control work and samplers ask the server, too.
const OTHERS_MAX: u64 = 500;

/// Of the comparison, whose p99.9 would need more transactions than it has.
const LATENCY_PAIR: &str = "lognormal:10000:0.5";
const SESSIONS_PAIR: u32 = 64;
const RATE_PAIR: u32 = 800;
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];

/// The first so many are compared.
const PAIRED: usize = 4;

#[derive(clap::Parser)]
struct Arguments {
    #[arg(long, default_value_t = 100_000)]
    sessions: u32,
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Arguments { sessions, clients, seconds, rounds } = crate::asked("bench many-clients", arguments);
    ensure!(sessions >= clients, "{sessions} sessions are fewer than {clients} clients");
    let plimsoll = crate::plimsoll()?;
    let is_crowd_held = crowd(&plimsoll, (sessions, clients), seconds)?;
    let are_alike = alike(&plimsoll, rounds)?;
    told(is_crowd_held && are_alike)
}

/// What a bench says.
struct Asked<'a> {
    plimsoll: &'a Path,
    server: &'a FakeServer,
    sessions: u32,
    clients: u32,
    rate: u32,
    seconds: u32,
}

/// Runs it: its line of JSON, and the most memory that all of its processes had together, in bytes.
fn ask(asked: &Asked<'_>) -> Result<(Value, u64)> {
    let directory = tempfile::tempdir()?;
    let sql = directory.path().join("ask.sql");
    fs::write(&sql, "-- name: ask\n\\set id random(1, 10000)\nSELECT c FROM sbtest1 WHERE id = :id;\n")?;
    let number = |count: u32| count.to_string();
    let mut child = Command::new(asked.plimsoll)
        .arg("bench")
        .arg(&sql)
        .args(["--server", &asked.server.url(), "--keep", "--warmup", "0s", "--seed", "1", "--json", "-"])
        .args(["--sessions", &number(asked.sessions), "--clients", &number(asked.clients)])
        .args(["--rate", &number(asked.rate), "--time", &format!("{}s", asked.seconds)])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting plimsoll")?;
    let mut most = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        most = most.max(memory_bytes(child.id()));
        std::thread::sleep(Duration::from_millis(500));
    };
    let (mut out, mut told) = (String::new(), String::new());
    child.stdout.take().context("no output")?.read_to_string(&mut out)?;
    child.stderr.take().context("no output")?.read_to_string(&mut told)?;
    // A run that is invalid on a noisy machine has its figures all the same.
    let line: Value = out
        .lines()
        .next()
        .and_then(|line| serde_json::from_str(line).ok())
        .with_context(|| format!("plimsoll ended with {status}: {told}"))?;
    ensure!(line["status"] != "failed", "the run failed: {}", line["error"]);
    Ok((line, most))
}

/// Resident memory of a process and its children.
fn memory_bytes(pid: u32) -> u64 {
    let mut pids = vec![pid];
    if let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) {
        for task in tasks.flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
    }
    // One that has just ended has none.
    1024 * pids.into_iter().filter_map(|pid| resident_kib(pid).ok()).sum::<u64>()
}

fn crowd(plimsoll: &Path, (sessions, clients): (u32, u32), seconds: u32) -> Result<bool> {
    let directory = tempfile::tempdir()?;
    let log: PathBuf = directory.path().join("log");
    let server = FakeServer::start_logged(
        &log,
        &["--latency", LATENCY_CROWD, "--seed", "7", "--processes", &SERVERS.to_string()],
    )?;
    let asked = Asked { plimsoll, server: &server, sessions, clients, rate: RATE_CROWD, seconds };
    let (line, most) = ask(&asked)?;
    let mut services: Vec<u64> = exchanges(server, &log)?.iter().map(|one| one.service_ns()).collect();
    let transactions = line["transactions"].as_u64().context("no transactions")?;
    let late = line["in_flight_at_end"].as_u64().unwrap_or(0) + line["backlog_at_end"].as_u64().unwrap_or(0);
    let others = (services.len() as u64).saturating_sub(transactions + late);
    ensure!(
        others <= OTHERS_MAX,
        "the log has {} exchanges, the client {transactions} and {late}",
        services.len()
    );
    let gib = most as f64 / f64::from(1 << 30);
    let errors: u64 =
        line["errors"].as_object().into_iter().flatten().filter_map(|(_, e)| e["count"].as_u64()).sum();
    let active = services.iter().sum::<u64>() as f64 / 1e9 / f64::from(seconds);
    println!(
        "sessions        {sessions} in {clients} clients, {active:.0} of them active ({})",
        line["status"]
    );
    println!(
        "memory          {gib:.2} GiB in all processes ({GIB_MAX} at most), {:.1} KiB a session",
        most as f64 / 1024.0 / f64::from(sessions)
    );
    println!("errors          {errors} (none)");
    println!("transactions    {transactions}, {late} more while draining");
    let mut is_held = gib <= GIB_MAX && errors == 0;
    for (name, quantile) in QUANTILES {
        let reported = line["latency_ms"][name].as_f64().with_context(|| format!("no {name}"))?;
        let truth = quantile_ns(&mut services, quantile) as f64 / 1e6;
        let error = reported / truth - 1.0;
        is_held &= error.abs() <= ERROR_MAX;
        println!("response {name:5}  {reported:9.2} ms, truth {truth:9.2} ms, {:+.2} %", 100.0 * error);
    }
    Ok(is_held)
}

/// Whether four clients report what one does: percentiles at the same rate, in turns.
fn alike(plimsoll: &Path, rounds: u32) -> Result<bool> {
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); PAIRED];
    for round in 0..rounds {
        let mut found = [Vec::new(), Vec::new()];
        let turns = if round.is_multiple_of(2) { [0, 1] } else { [1, 0] };
        for side in turns {
            let server = FakeServer::start(&["--latency", LATENCY_PAIR, "--seed", &round.to_string()])?;
            let clients = [1, 4][side];
            let asked = Asked {
                plimsoll,
                server: &server,
                sessions: SESSIONS_PAIR,
                clients,
                rate: RATE_PAIR,
                seconds: 10,
            };
            let (line, _) = ask(&asked)?;
            server.stop()?;
            let latency = |name: &str| line["latency_ms"][name].as_f64().unwrap_or(f64::NAN);
            found[side] = QUANTILES[..PAIRED].iter().map(|(name, _)| latency(name)).collect();
        }
        for (at, ratios) in ratios.iter_mut().enumerate() {
            ratios.push(found[1][at] / found[0][at]);
        }
    }
    println!("4 clients against 1, {SESSIONS_PAIR} sessions at {RATE_PAIR}/s, {rounds} rounds in turns");
    let mut are_alike = true;
    for ((name, _), ratios) in QUANTILES.iter().zip(&ratios) {
        let (mid, low, high) = ratio_interval(ratios);
        let is_alike = low <= 1.0 && high >= 1.0;
        are_alike &= is_alike;
        println!(
            "response {name:5}  x {mid:.4} (95 % from {low:.4} to {high:.4}){}",
            if is_alike { "" } else { " NOT 1" }
        );
    }
    Ok(are_alike)
}
