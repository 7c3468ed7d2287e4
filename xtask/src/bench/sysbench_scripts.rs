//! sysbench's own scripts by path under Debian's sysbench and under `plimsoll sysbench`, slice by slice: client CPU
//! per statement in the steady phase, as the kernel counts it; and what many sessions cost to start.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

use super::lab::{
    Server, Slice, in_turns, median, output, paired, print_slices, ratio_interval, resident_kib, steady_slice,
};
use super::{sysbench, told};

const ROWS: u64 = 1_000_000;
const SCRIPTS: [&str; 2] = ["oltp_read_write", "oltp_point_select"];
const START_S_MAX: f64 = 20.0;
const START_GIB_MAX: f64 = 2.0;

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    #[arg(long, default_value_t = 8)]
    settle: u64,
    #[arg(long = "sessions", value_delimiter = ',', default_values_t = [8, 64, 256, 1024])]
    levels: Vec<u32>,
    /// Sessions whose start is looked at; 0: none.
    #[arg(long, default_value_t = 5_000)]
    start: u32,
}

/// The largest part of sysbench's CPU per statement that is asked for, where any is.
fn cost_max(script: &str, sessions: u32) -> Option<f64> {
    match (script, sessions) {
        ("oltp_read_write", 64) => Some(0.9),
        ("oltp_read_write", 256) => Some(0.75),
        ("oltp_point_select", 8 | 64 | 256) => Some(1.0),
        _ => None,
    }
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let asked: Asked = crate::asked("bench sysbench-scripts", arguments);
    sysbench::check()?;
    let plimsoll = crate::plimsoll()?;
    let plimsoll = vec![plimsoll.display().to_string(), "sysbench".to_owned()];
    let server = Server::deploy(std::path::Path::new(&plimsoll[0]), "mariadb")?;
    server.load("oltp_read_write", ROWS)?;
    let mut is_reached = true;
    for script in SCRIPTS {
        for sessions in &asked.levels {
            is_reached &= level(&server, &plimsoll, script, *sessions, &asked)?;
        }
    }
    if asked.start > 0 {
        is_reached &= start(&server, &plimsoll, asked.start)?;
    }
    told(is_reached)
}

fn level(server: &Server, plimsoll: &[String], script: &str, sessions: u32, asked: &Asked) -> Result<bool> {
    let limit = cost_max(script, sessions);
    // Levels that nothing is asked of are there to be seen: once, for a shorter time.
    let (rounds, seconds) = match limit {
        Some(_) => (asked.rounds, asked.seconds),
        None => (1, asked.seconds.div_ceil(2)),
    };
    let theirs = ["sysbench".to_owned()];
    let programs: [&[String]; 2] = [&theirs, plimsoll];
    let measure = |at: usize| slice(server, programs[at], script, sessions, asked.settle, seconds);
    let [sysbench, plimsoll] = &in_turns(2, rounds, measure)?;
    println!("{script}, {sessions} sessions, {rounds} rounds of {seconds} s");
    print_slices("sysbench", sysbench);
    print_slices("plimsoll", plimsoll);
    let cost = median(paired(plimsoll, sysbench, |slice| slice.total_us));
    let speeds = paired(plimsoll, sysbench, |slice| slice.qps);
    let speed = median(speeds.clone());
    let Some(limit) = limit else {
        println!("  plimsoll / sysbench: cpu {cost:.3}, throughput {speed:.3}");
        return Ok(true);
    };
    let (_, _, high) = ratio_interval(&speeds);
    println!("  plimsoll / sysbench: cpu {cost:.3} (at most {limit})");
    println!("                       throughput {speed:.3} (no lower: its 95 % interval ends at {high:.3})");
    Ok(cost <= limit && high >= 1.0)
}

/// One slice of the steady phase.
fn slice(
    server: &Server,
    program: &[String],
    script: &str,
    sessions: u32,
    settle: u64,
    seconds: u64,
) -> Result<Slice> {
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).arg(format!("/usr/share/sysbench/{script}.lua"));
    command.args(server.sysbench_options()?);
    command.args([format!("--table-size={ROWS}"), format!("--threads={sessions}")]);
    steady_slice(command.arg("--rand-type=uniform"), settle, seconds)
}

/// Many sessions: from the start of the process to "Threads started!", and its largest memory.
fn start(server: &Server, plimsoll: &[String], sessions: u32) -> Result<bool> {
    let set = format!("set global max_connections={}", sessions + 100);
    let socket = server.socket();
    output(Command::new("mysql").args(["-uroot", "-S", &socket, "-e", &set]))?;
    println!("{sessions} sessions of oltp_point_select.lua");
    let mut figures = (f64::NAN, f64::NAN);
    for program in [&["sysbench".to_owned()][..], plimsoll] {
        let began = Instant::now();
        let mut child = Command::new(&program[0])
            .args(&program[1..])
            .arg("/usr/share/sysbench/oltp_point_select.lua")
            .args(server.sysbench_options()?)
            .args([format!("--table-size={ROWS}"), format!("--threads={sessions}")])
            .args(["--time=3", "run"])
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program[0]))?;
        let stdout = child.stdout.take().context("no standard output")?;
        let (mut started, mut gib) = (None, f64::NAN);
        for line in BufReader::new(stdout).lines() {
            if line?.starts_with("Threads started!") {
                started = Some(began.elapsed().as_secs_f64());
                gib = resident_kib(child.id())? as f64 / (1024.0 * 1024.0);
            }
        }
        child.wait()?;
        let name = if program.len() == 1 { "sysbench" } else { "plimsoll" };
        match started {
            Some(seconds) => println!("  {name:9} started in {seconds:.1} s, {gib:.2} GiB resident"),
            None => println!("  {name:9} did not start"),
        }
        figures = (started.unwrap_or(f64::NAN), gib);
    }
    println!("  plimsoll at most {START_S_MAX} s and {START_GIB_MAX} GiB");
    Ok(figures.0 <= START_S_MAX && figures.1 <= START_GIB_MAX)
}
