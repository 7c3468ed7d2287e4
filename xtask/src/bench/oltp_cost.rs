//! What oltp_read_write costs the client on both protocols, beside sysbench's steady phase and a floor.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::lab::{
    DATABASE, Server, Slice, build_plimsoll, median, output, paired, print_slices, steady_slice,
};

const ROWS: u64 = 1_000_000;
const FLOOR_SOURCE: &str = "benches/floor/oltp_read_write.c";
const VS_FLOOR_MAX: f64 = 1.2;
const USAGE: &str =
    "oltp-cost [--servers mariadb,postgres] [--rounds 3] [--seconds 20] [--settle 8] [--sessions 64,256]";

/// Sessions, and the largest part of sysbench's cost that is asked for.
fn vs_sysbench_max(sessions: u32) -> f64 {
    if sessions >= 256 { 0.65 } else { 0.8 }
}

struct Asked<'a> {
    rounds: usize,
    seconds: u64,
    settle: u64,
    levels: Vec<u32>,
    servers: Vec<&'a str>,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let mut asked = Asked {
        rounds: 3,
        seconds: 20,
        settle: 8,
        levels: vec![64, 256],
        servers: vec!["mariadb", "postgres"],
    };
    for pair in arguments.chunks(2) {
        match *pair {
            ["--servers", list] => asked.servers = list.split(',').collect(),
            ["--rounds", count] => asked.rounds = count.parse().context(USAGE)?,
            ["--seconds", count] => asked.seconds = count.parse().context(USAGE)?,
            ["--settle", count] => asked.settle = count.parse().context(USAGE)?,
            ["--sessions", list] => {
                asked.levels = list.split(',').map(str::parse).collect::<Result<_, _>>().context(USAGE)?;
            }
            _ => bail!("{USAGE}"),
        }
    }
    let directory = tempfile::tempdir()?;
    let floor = directory.path().join("floor");
    output(Command::new("cc").args(["-O2", "-o"]).arg(&floor).arg(FLOOR_SOURCE))?;
    let plimsoll = build_plimsoll()?;
    let mut is_reached = true;
    for selector in &asked.servers {
        let server = Server::deploy(&plimsoll, selector)?;
        server.load("oltp_read_write", ROWS)?;
        for sessions in asked.levels.clone() {
            is_reached &= level(&server, selector, &floor, sessions, &asked)?;
        }
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
}

type Measure<'a> = Box<dyn Fn() -> Result<Slice> + 'a>;

fn level(server: &Server, name: &str, floor: &Path, sessions: u32, asked: &Asked<'_>) -> Result<bool> {
    let who: [(&str, Measure<'_>); 3] = [
        ("sysbench", Box::new(|| sysbench(server, sessions, asked.settle, asked.seconds))),
        // It has nothing to settle and varies little: half a slice will do.
        ("floor", Box::new(|| run_floor(server, floor, sessions, asked.seconds.div_ceil(2)))),
        ("plimsoll", Box::new(|| run_plimsoll(server, sessions, asked.seconds))),
    ];
    let mut slices: [Vec<Slice>; 3] = Default::default();
    for round in 0..asked.rounds {
        // Each begins one round in three: what follows whom evens out.
        for turn in 0..who.len() {
            let at = (round + turn) % who.len();
            slices[at].push(who[at].1().with_context(|| format!("{} at {sessions} sessions", who[at].0))?);
        }
    }
    println!("{name}, {sessions} sessions, {} rounds of {} s", asked.rounds, asked.seconds);
    who.iter().zip(&slices).for_each(|((who, _), slices)| print_slices(who, slices));
    let [sysbench, floor, plimsoll] = &slices;
    let ratio = |base: &[Slice], what| median(paired(plimsoll, base, what));
    let cost = |slice: &Slice| slice.total_us;
    let (vs_sysbench, vs_floor) = (ratio(sysbench, cost), ratio(floor, cost));
    println!("  plimsoll / sysbench {vs_sysbench:.3} (at most {})", vs_sysbench_max(sessions));
    println!("  plimsoll / floor    {vs_floor:.3} (at most {VS_FLOOR_MAX})");
    let speed = ratio(sysbench, |slice| slice.qps);
    println!("  throughput: plimsoll / sysbench {speed:.3}, / floor {:.3}", ratio(floor, |slice| slice.qps));
    Ok(vs_sysbench <= vs_sysbench_max(sessions) && vs_floor <= VS_FLOOR_MAX)
}

fn run_floor(server: &Server, floor: &Path, sessions: u32, seconds: u64) -> Result<Slice> {
    let protocol = if server.is_postgres { "postgres" } else { "mysql" };
    let text = output(
        Command::new(floor)
            .args([protocol, &server.socket()?, server.user(), &sessions.to_string()])
            .args([seconds.to_string(), ROWS.to_string()]),
    )?;
    Slice::from_json(&text)
}

fn run_plimsoll(server: &Server, sessions: u32, seconds: u64) -> Result<Slice> {
    let command = server.bench_command("oltp_read_write", ROWS, sessions, seconds)?;
    let (program, arguments) = command.split_first().context("no command")?;
    Slice::from_json(&output(Command::new(program).args(arguments))?)
}

/// sysbench's steady phase.
fn sysbench(server: &Server, sessions: u32, settle: u64, seconds: u64) -> Result<Slice> {
    ensure!(DATABASE == "sbtest", "sysbench's default");
    let mut command = Command::new("sysbench");
    command.arg("oltp_read_write").args(server.sysbench_options()?);
    command.args([format!("--table-size={ROWS}"), format!("--threads={sessions}")]);
    steady_slice(command.arg("--rand-type=uniform"), settle, seconds)
}
