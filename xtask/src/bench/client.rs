//! A client's cost by slices that take turns: sysbench's steady phase, the floor in C, Plimsoll and, where one is named,
//! another build of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::lab::{
    DATABASE, Server, Slice, build_plimsoll, in_turns, median, output, paired, print_slices, ratio_interval,
    steady_slice,
};

pub(super) const ROWS: u64 = 1_000_000;
/// Of a statement's cost by another build.
const VS_OTHER_MAX: f64 = 1.15;
const FLOOR_SOURCE: &str = "benches/floor/floor.c";

/// What is measured, from the command line.
pub(super) struct Asked {
    pub(super) workload: &'static str,
    pub(super) rounds: usize,
    pub(super) seconds: u64,
    /// Seconds of sysbench that are not counted: thread start-up and LuaJIT's warm-up.
    pub(super) settle: u64,
    pub(super) levels: Vec<u32>,
    pub(super) servers: Vec<String>,
    /// Another plimsoll to take turns with.
    pub(super) against: Option<PathBuf>,
}

impl Asked {
    /// Changes what the arguments name.
    pub(super) fn read(mut self, arguments: &[&str]) -> Result<Asked> {
        let usage = || {
            format!(
                "--servers {} --rounds {} --seconds {} --settle {} --sessions 1,8,64,256 [--against PLIMSOLL]",
                self.servers.join(","),
                self.rounds,
                self.seconds,
                self.settle
            )
        };
        let usage = usage();
        for pair in arguments.chunks(2) {
            match *pair {
                ["--servers", list] => self.servers = list.split(',').map(str::to_owned).collect(),
                ["--rounds", count] => self.rounds = count.parse().context(usage.clone())?,
                ["--seconds", count] => self.seconds = count.parse().context(usage.clone())?,
                ["--settle", count] => self.settle = count.parse().context(usage.clone())?,
                ["--sessions", list] => {
                    let levels = list.split(',').map(str::parse).collect::<Result<_, _>>();
                    self.levels = levels.context(usage.clone())?;
                }
                ["--against", path] => self.against = Some(path.into()),
                _ => bail!("{usage}"),
            }
        }
        if let Some(other) = &self.against {
            ensure!(other.exists(), "{} is not there", other.display());
        }
        Ok(self)
    }
}

/// The slices of one level, in the order in which they were measured.
pub(super) struct Slices {
    pub(super) sysbench: Vec<Slice>,
    pub(super) floor: Vec<Slice>,
    pub(super) plimsoll: Vec<Slice>,
    /// Of the other build.
    pub(super) other: Vec<Slice>,
}

impl Slices {
    /// Whether a statement costs no more than 1.15 times what it costs the other build, and no fewer are made a second;
    /// true without another build.
    pub(super) fn is_as_cheap_as_other(&self) -> bool {
        if self.other.is_empty() {
            return true;
        }
        let cost = median(paired(&self.plimsoll, &self.other, |slice| slice.total_us));
        let (mean, low, high) = ratio_interval(&paired(&self.plimsoll, &self.other, |slice| slice.qps));
        println!("  plimsoll / other    {cost:.3} (at most {VS_OTHER_MAX})");
        println!("  qps / other         {mean:.3} [{low:.3}, {high:.3}] (must reach 1)");
        cost <= VS_OTHER_MAX && high >= 1.0
    }
}

/// Measures all levels on all servers and lets `judge` say whether the figure was reached.
pub(super) fn run(asked: &Asked, judge: impl Fn(&Slices, u32) -> bool) -> Result<bool> {
    let directory = tempfile::tempdir()?;
    let floor = directory.path().join("floor");
    output(Command::new("cc").args(["-O2", "-o"]).arg(&floor).arg(FLOOR_SOURCE))?;
    let plimsoll = build_plimsoll()?;
    let mut is_reached = true;
    for selector in &asked.servers {
        let server = Server::deploy(&plimsoll, selector)?;
        server.load(asked.workload, ROWS)?;
        for &sessions in &asked.levels {
            println!("{selector}, {sessions} sessions, {} rounds of {} s", asked.rounds, asked.seconds);
            let slices = level(&server, &floor, sessions, asked)?;
            is_reached &= judge(&slices, sessions);
        }
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
}

type Measure<'a> = Box<dyn Fn() -> Result<Slice> + 'a>;

fn level(server: &Server, floor: &Path, sessions: u32, asked: &Asked) -> Result<Slices> {
    let mut who: Vec<(&str, Measure<'_>)> = vec![
        ("sysbench", Box::new(|| sysbench(server, sessions, asked))),
        // It has nothing to settle and varies little: half a slice will do.
        ("floor", Box::new(|| run_floor(server, floor, sessions, asked))),
        ("plimsoll", Box::new(|| run_plimsoll(server, None, sessions, asked))),
    ];
    if let Some(other) = &asked.against {
        who.push(("other", Box::new(|| run_plimsoll(server, Some(other), sessions, asked))));
    }
    let slice = |at: usize| who[at].1().with_context(|| format!("{} at {sessions} sessions", who[at].0));
    let slices: [Vec<Slice>; 4] = in_turns(who.len(), asked.rounds, slice)?;
    who.iter().zip(&slices).for_each(|((who, _), slices)| print_slices(who, slices));
    let [sysbench, floor, plimsoll, other] = slices;
    Ok(Slices { sysbench, floor, plimsoll, other })
}

fn run_floor(server: &Server, floor: &Path, sessions: u32, asked: &Asked) -> Result<Slice> {
    let protocol = if server.is_postgres { "postgres" } else { "mysql" };
    let text = output(
        Command::new(floor)
            .args([asked.workload, protocol, &server.socket()?, server.user(), &sessions.to_string()])
            .args([asked.seconds.div_ceil(2).to_string(), ROWS.to_string()]),
    )?;
    Slice::from_json(&text)
}

fn run_plimsoll(server: &Server, other: Option<&PathBuf>, sessions: u32, asked: &Asked) -> Result<Slice> {
    let command = server.bench_command(asked.workload, ROWS, sessions, asked.seconds)?;
    let (program, arguments) = command.split_first().context("no command")?;
    let program = other.cloned().unwrap_or_else(|| program.into());
    Slice::from_json(&output(Command::new(program).args(arguments))?)
}

/// sysbench's steady phase.
fn sysbench(server: &Server, sessions: u32, asked: &Asked) -> Result<Slice> {
    ensure!(DATABASE == "sbtest", "sysbench's default");
    let mut command = Command::new("sysbench");
    command.arg(asked.workload).args(server.sysbench_options()?);
    command.args([format!("--table-size={ROWS}"), format!("--threads={sessions}")]);
    steady_slice(command.arg("--rand-type=uniform"), asked.settle, asked.seconds)
}
