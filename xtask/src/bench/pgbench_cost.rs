//! `plimsoll pgbench` beside pgbench on one server, slice by slice: client CPU per transaction as the kernel counts it for
//! the whole process, and transactions per second as each of them reports them. For select-only the floor takes turns with
//! them: what the same statements cost a client that does nothing but send them and skip the answers.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::client::{build_floor, run_floor};
use super::lab::{DATABASE, Server, Slice, in_turns, median, output, paired, print_slices, ratio_interval};
use super::{sysbench, told};

/// Of pgbench's CPU per transaction at 64 clients.
const COST_MAX: f64 = 0.8;
const COST_CLIENTS: u32 = 64;
const SCALE: u32 = 10;
/// pgbench's accounts at this scale.
const ACCOUNTS: u64 = SCALE as u64 * 100_000;

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, value_delimiter = ',', default_values_t = [1, COST_CLIENTS])]
    clients: Vec<u32>,
    #[arg(long, default_value = "simple")]
    protocol: String,
    #[arg(long, default_value = "select-only")]
    builtin: String,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let asked: Asked = crate::asked("bench pgbench-cost", arguments);
    let plimsoll = crate::plimsoll()?;
    let pgbench = pgbench()?;
    let server = Server::deploy(&plimsoll, "postgres")?;
    workload::create_database(&server.target())?;
    let place = place(&server)?;
    output(Command::new(&plimsoll).args(["pgbench", "-i", "-q", "-s", &SCALE.to_string()]).args(&place))?;
    let directory = tempfile::tempdir()?;
    let floor = build_floor(directory.path())?;
    let floor_workload = format!("pgbench_{}", asked.protocol);
    let has_floor = asked.builtin == "select-only" && asked.protocol != "extended";
    let mut is_reached = true;
    for &clients in &asked.clients {
        let one = |at| match at {
            0 => slice(&mut Command::new(&pgbench), &place, clients, &asked),
            1 => slice(Command::new(&plimsoll).arg("pgbench"), &place, clients, &asked),
            _ => run_floor(&server, &floor, &floor_workload, ACCOUNTS, clients, asked.seconds),
        };
        let slices = in_turns(if has_floor { 3 } else { 2 }, asked.rounds, one)?;
        is_reached &= judge(&slices, clients, &asked);
    }
    told(is_reached)
}

/// Where the server is, as programs of libpq are told.
fn place(server: &Server) -> Result<Vec<String>> {
    let (directory, port) = sysbench::place_of(Path::new(&server.socket()))?;
    let words = ["-h", &directory, "-p", &port, "-U", &server.target().user, DATABASE];
    Ok(words.iter().map(|word| (*word).to_owned()).collect())
}

/// The newest pgbench that Debian has installed, else the one of the PATH.
fn pgbench() -> Result<PathBuf> {
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest = installed.map(|entry| entry.path().join("bin/pgbench")).filter(|path| path.exists()).max();
    let found = newest.unwrap_or_else(|| "pgbench".into());
    output(Command::new(&found).arg("--version"))
        .context("pgbench is needed: apt-get install postgresql-contrib")?;
    Ok(found)
}

/// Whether the figures of one level are reached; what was measured is told.
fn judge([theirs, ours, floor]: &[Vec<Slice>; 3], clients: u32, asked: &Asked) -> bool {
    println!(
        "{} ({}), {clients} clients, {} rounds of {} s",
        asked.builtin, asked.protocol, asked.rounds, asked.seconds
    );
    print_slices("pgbench", theirs);
    print_slices("plimsoll", ours);
    let cost_of = |who: &[Slice]| median(paired(who, theirs, |slice| slice.total_us));
    let cost = cost_of(ours);
    let (mean, low, high) = ratio_interval(&paired(ours, theirs, |slice| slice.qps));
    let limit = if clients == COST_CLIENTS { COST_MAX } else { f64::INFINITY };
    println!("  cpu of a transaction, plimsoll / pgbench: {cost:.3} (at most {limit})");
    if !floor.is_empty() {
        print_slices("floor", floor);
        println!("  cpu of a transaction, floor / pgbench: {:.3}", cost_of(floor));
    }
    println!("  tps, plimsoll / pgbench: {mean:.3} [{low:.3}, {high:.3}] (must reach 1)");
    cost <= limit && high >= 1.0
}

/// What ended children of this process have used, in seconds: user and system.
fn cpu_of_children_s() -> (f64, f64) {
    // SAFETY: all-zero bytes are a valid rusage, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

fn slice(program: &mut Command, place: &[String], clients: u32, asked: &Asked) -> Result<Slice> {
    let before = cpu_of_children_s();
    let text = output(
        program
            .args(["-n", "-c", &clients.to_string(), "-T", &asked.seconds.to_string()])
            .args(["-b", &asked.builtin, "-M", &asked.protocol])
            .args(place),
    )?;
    let after = cpu_of_children_s();
    let number = |label: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(label));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.and_then(|word| word.parse::<f64>().ok()).with_context(|| format!("no `{label}` in\n{text}"))
    };
    let done = number("number of transactions actually processed: ")?;
    let seconds = done / number("tps = ")?;
    Ok(Slice::new(done, seconds, after.0 - before.0, after.1 - before.1))
}
