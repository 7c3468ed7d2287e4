//! A client's cost by slices that take turns: sysbench's steady phase, the floor in C, Plimsoll and, where one is named,
//! another build of it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::lab::{
    DATABASE, Server, Slice, family, in_turns, median, output, paired, print_slices, ratio_interval,
    steady_slice,
};
use super::told;

pub(super) const ROWS: u64 = 1_000_000;
/// Of a statement's cost by another build.
const VS_OTHER_MAX: f64 = 1.15;
const FLOOR_SOURCE: &str = "benches/floor/floor.c";

/// What is measured.
#[derive(clap::Parser)]
pub(super) struct Asked {
    #[arg(skip)]
    pub(super) workload: &'static str,
    #[arg(long)]
    pub(super) rounds: usize,
    #[arg(long)]
    pub(super) seconds: u64,
    /// Seconds of sysbench that are not counted: thread start-up and LuaJIT's warm-up.
    #[arg(long)]
    pub(super) settle: u64,
    #[arg(long = "sessions", value_delimiter = ',')]
    pub(super) levels: Vec<u32>,
    #[arg(long, value_delimiter = ',')]
    pub(super) servers: Vec<String>,
    /// Another plimsoll to take turns with.
    #[arg(long)]
    pub(super) against: Option<PathBuf>,
}

impl Asked {
    /// Changes what the arguments name.
    pub(super) fn read(mut self, command: &str, arguments: &[&str]) -> Result<Asked> {
        crate::update(&mut self, command, arguments);
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
    let floor = build_floor(directory.path())?;
    let plimsoll = crate::plimsoll()?;
    let mut is_reached = true;
    for selector in &asked.servers {
        let server = Server::deploy(&plimsoll, selector)?;
        server.load(asked.workload, ROWS)?;
        for &sessions in &asked.levels {
            println!("{selector}, {sessions} sessions, {} rounds of {} s", asked.rounds, asked.seconds);
            let slices = level(&server, &plimsoll, &floor, sessions, asked)?;
            is_reached &= judge(&slices, sessions);
        }
    }
    told(is_reached)
}

/// Compiles the floor.
pub(super) fn build_floor(directory: &Path) -> Result<PathBuf> {
    let floor = directory.join("floor");
    output(Command::new("cc").args(["-O2", "-o"]).arg(&floor).arg(FLOOR_SOURCE))?;
    Ok(floor)
}

type Measure<'a> = Box<dyn Fn() -> Result<Slice> + 'a>;

fn level(server: &Server, plimsoll: &Path, floor: &Path, sessions: u32, asked: &Asked) -> Result<Slices> {
    let ours = |plimsoll: &Path| server.slice(plimsoll, asked.workload, ROWS, sessions, asked.seconds);
    let mut who: Vec<(&str, Measure<'_>)> = vec![
        ("sysbench", Box::new(|| sysbench(server, sessions, asked))),
        // It has nothing to settle and varies little: half a slice will do.
        ("floor", Box::new(|| run_floor(server, floor, asked.workload, ROWS, sessions, asked.seconds))),
        ("plimsoll", Box::new(|| ours(plimsoll))),
    ];
    if let Some(other) = &asked.against {
        who.push(("other", Box::new(|| ours(other))));
    }
    let slice = |at: usize| who[at].1().with_context(|| format!("{} at {sessions} sessions", who[at].0));
    let slices: [Vec<Slice>; 4] = in_turns(who.len(), asked.rounds, slice)?;
    who.iter().zip(&slices).for_each(|((who, _), slices)| print_slices(who, slices));
    let [sysbench, floor, plimsoll, other] = slices;
    Ok(Slices { sysbench, floor, plimsoll, other })
}

/// The floor with one of its workloads, for half of a slice's seconds.
pub(super) fn run_floor(
    server: &Server,
    floor: &Path,
    workload: &str,
    rows: u64,
    sessions: u32,
    seconds: u64,
) -> Result<Slice> {
    let target = server.target();
    let text =
        output(
            Command::new(floor)
                .args([workload, family(target.protocol), &server.socket(), &target.user])
                .args([sessions.to_string(), seconds.div_ceil(2).to_string(), rows.to_string()]),
        )?;
    Slice::from_json(&text)
}

/// sysbench's steady phase.
fn sysbench(server: &Server, sessions: u32, asked: &Asked) -> Result<Slice> {
    ensure!(DATABASE == "sbtest", "sysbench's default");
    let mut command = Command::new("sysbench");
    command.arg(asked.workload).args(server.sysbench_options()?);
    command.args([format!("--table-size={ROWS}"), format!("--threads={sessions}")]);
    steady_slice(command.arg("--rand-type=uniform"), asked.settle, asked.seconds)
}
