//! `plimsoll pgbench` beside pgbench on one server, slice by slice: client CPU per transaction as the kernel counts it for
//! the whole process, and transactions per second as each of them reports them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::lab::{DATABASE, Server, Slice, in_turns, median, output, paired, print_slices, ratio_interval};
use super::{sysbench, told};

/// Of pgbench's CPU per transaction at 64 clients.
const COST_MAX: f64 = 0.8;
const COST_CLIENTS: u32 = 64;
const SCALE: u32 = 10;

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
    let ours = vec![plimsoll.display().to_string(), "pgbench".to_owned()];
    let theirs = vec![pgbench.display().to_string()];
    let (program, first) = ours.split_first().context("no command")?;
    output(Command::new(program).args(first).args(["-i", "-q", "-s", &SCALE.to_string()]).args(&place))?;
    let mut is_reached = true;
    for &clients in &asked.clients {
        is_reached &= level(&[theirs.clone(), ours.clone()], &place, clients, &asked)?;
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

fn level(programs: &[Vec<String>; 2], place: &[String], clients: u32, asked: &Asked) -> Result<bool> {
    let [theirs, ours] = &in_turns(2, asked.rounds, |at| slice(&programs[at], place, clients, asked))?;
    println!(
        "{} ({}), {clients} clients, {} rounds of {} s",
        asked.builtin, asked.protocol, asked.rounds, asked.seconds
    );
    print_slices("pgbench", theirs);
    print_slices("plimsoll", ours);
    let cost = median(paired(ours, theirs, |slice| slice.total_us));
    let (mean, low, high) = ratio_interval(&paired(ours, theirs, |slice| slice.qps));
    let limit = if clients == COST_CLIENTS { COST_MAX } else { f64::INFINITY };
    println!("  cpu of a transaction, plimsoll / pgbench: {cost:.3} (at most {limit})");
    println!("  tps, plimsoll / pgbench: {mean:.3} [{low:.3}, {high:.3}] (must reach 1)");
    Ok(cost <= limit && high >= 1.0)
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

fn slice(program: &[String], place: &[String], clients: u32, asked: &Asked) -> Result<Slice> {
    let (first, rest) = program.split_first().context("no command")?;
    let before = cpu_of_children_s();
    let text = output(
        Command::new(first)
            .args(rest)
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
