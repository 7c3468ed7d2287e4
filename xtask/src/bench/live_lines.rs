//! Load lines of real servers on this machine: how far repeats of one search scatter, and whether lines tell a server from
//! an equal one (they must not) and from one whose statements take 10 % more cpu (they must).
//!
//! Each study is a line of JSON in a file the moment that it ends, so that parts can be made in several sessions: a command
//! makes the studies of its kind that are still missing. What is judged: the confirmations of repeats keep their promise in
//! at least 9 of 10; the interval of two equal servers' ratio has 1 in it in at least 5 of 6; the slower one is told from
//! its twin in at least 5 of 6, all within ten minutes of measuring.
//!
//! What is planted is cpu, so pairs only read, and the servers have a cpu that the client does not have. 90 % of the transactions
//! are promised: on this machine most of the latest one in a hundred are late by a burst that has nothing to do with the rate.
//! The limit is 10 ms: with 20 the line lies where more sessions make the server slower (on one cpu PostgreSQL answers 800
//! transactions per second with two sessions and 500 with 24), so that it tips over and stays there, at a rate that is another one
//! each time (six lives: 481 to 605/s with 20 ms, 442 to 462/s with 10). `benches/live-lines.jsonl` keeps pairs made before that was
//! known, and repeats of searches that held a line again elsewhere, or not at all; they are not judged.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result};
use report::StudyReport;
use sandbox::Home;
use serde_json::{Value, json};
use stats::{Verdict, coefficient_of_variation, mean};
use testkit::slow::{self, Slow};

use super::lab::FAMILIES;
use super::live_verdicts::{add_line, lines};
use super::{duels, told, whole_study};

/// 2026-11-30, 11:00: since then a hold that was plainly broken makes the probes before it count less, and a hold that is lost is
/// ended. Repeats of before are of another search.
const SINCE_MS: i64 = 1_796_036_400_000;
/// What is promised by whom.
const REPEATED: (&str, &str) = (duels::WORKLOAD, "p99 < 20ms");
const COMPARED: (&str, &str) = ("oltp_read_only", "p90 < 10ms");
/// Of the servers of pairs; the client has the others, so that what is planted is not diluted by its cpu time.
const CPUS: &str = "half";
/// Of each server.
const REPEATS: usize = 5;
const STUDIES: usize = 6;
/// What each statement of the slower server takes more of the cpu.
const MORE_CPU: f64 = 0.1;
const HELD_MIN: f64 = 0.9;

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
enum Kind {
    Repeats,
    Twins,
    Slower,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Repeats => "repeats",
            Kind::Twins => "twins",
            Kind::Slower => "slower",
        }
    }

    fn studies(self) -> usize {
        if self == Kind::Repeats { REPEATS * FAMILIES.len() } else { STUDIES }
    }

    /// Of each search, in seconds.
    fn budget_s(self) -> u32 {
        if self == Kind::Repeats { 300 } else { 60 }
    }

    fn promised(self) -> (&'static str, &'static str) {
        if self == Kind::Repeats { REPEATED } else { COMPARED }
    }
}

#[derive(clap::Parser)]
struct Arguments {
    #[arg(value_enum)]
    kind: Kind,
    /// No more than so many studies in this session.
    #[arg(long, default_value_t = usize::MAX, hide_default_value = true)]
    at_most: usize,
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/live-lines.jsonl"))]
    file: PathBuf,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Arguments { kind, at_most, file } = crate::asked("bench live-lines", arguments);
    let home = Home::find()?;
    let of_kind = || -> Result<Vec<Value>> {
        let (workload, promise) = kind.promised();
        let is_asked = |line: &Value| {
            line["kind"] == kind.name()
                && (&line["workload"], &line["promise"], &line["budget_s"])
                    == (&workload.into(), &promise.into(), &kind.budget_s().into())
                && if kind == Kind::Repeats {
                    line["started_at_ms"].as_i64() > Some(SINCE_MS)
                } else {
                    line["cpus"] == CPUS
                }
        };
        Ok(lines(&file)?.into_iter().filter(is_asked).collect())
    };
    let first = of_kind()?.len();
    for number in first..kind.studies().min(first.saturating_add(at_most)) {
        let server = FAMILIES[number % FAMILIES.len()];
        // Builds are not part of the time.
        duels::build(&home, server)?;
        let line = match kind {
            Kind::Repeats => repeat(&home, server)?,
            Kind::Twins => pair(&home, server, None)?,
            Kind::Slower => pair(&home, server, Some(cpu_us(&home, server)?))?,
        };
        println!("{} {} of {}: {line}", kind.name(), number + 1, kind.studies());
        add_line(&file, &line)?;
    }
    let made = of_kind()?;
    let is_as_asked = if kind == Kind::Repeats { judge_repeats(&made) } else { judge_pairs(kind, &made) };
    if made.len() < kind.studies() {
        println!("{} of {} studies made: the same command goes on", made.len(), kind.studies());
    }
    told(is_as_asked && made.len() == kind.studies())
}

/// One search of five minutes, its line held for a minute at the end.
fn repeat(home: &Home, server: &str) -> Result<Value> {
    let axes = format!("server = \"{server}\"");
    let budget_s = Kind::Repeats.budget_s();
    let load = format!("[load]\nblocks = 1\n[line]\nbudget = \"{budget_s}s\"\nhold = \"1m\"\n");
    let study = made(home, &axes, REPEATED, &load, "")?;
    let search = study.runs.iter().find_map(|run| run.line.as_ref()).context("the study left no search")?;
    let found = search.found.as_ref().context("the search did not end")?;
    let line = found.lines.first().context("the search has no line")?;
    let holds: Vec<Value> = search
        .tried()
        .iter()
        .filter(|probe| probe.purpose == "hold")
        .map(|probe| json!({ "rate": probe.rate, "held": search.held(probe, 0, line.allowed), "seconds": probe.seconds }))
        .collect();
    let mut canary: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for figure in study.canaries.iter().flat_map(|(_, canary)| &canary.figures) {
        canary.entry(&figure.name).or_default().push(figure.value);
    }
    let canary: BTreeMap<&str, Option<f64>> =
        canary.into_iter().map(|(name, values)| (name, mean(&values))).collect();
    Ok(json!({
        "kind": Kind::Repeats.name(), "budget_s": budget_s, "workload": REPEATED.0, "server": server, "promise": REPEATED.1,
        "started_at_ms": search.start.started_at_ms,
        "peak_tps": search.climb().map(|climb| climb.rate), "line": line, "holds": holds, "seconds": found.seconds_total, "canary": canary,
    }))
}

/// Two of one server, in duels: five lives with a search of a minute on each side.
fn pair(home: &Home, server: &str, cpu_us: Option<u32>) -> Result<Value> {
    let kind = if cpu_us.is_some() { Kind::Slower } else { Kind::Twins };
    let budget_s = kind.budget_s();
    let load =
        format!("[load]\npairing = \"duel\"\nblocks = 5\n[line]\nbudget = \"{budget_s}s\"\nhold = \"5s\"\n");
    let cpus = format!("cpus = \"{CPUS}\"\n");
    let (workload, promise) = COMPARED;
    let folder = tempfile::tempdir()?;
    let (axes, axis, base) = match cpu_us {
        None => (
            format!("{cpus}server = [\"{server}\", {{ server = \"{server}\", label = \"twin\" }}]"),
            "server",
            server,
        ),
        Some(cpu_us) => {
            let slow = Slow { cpu_us, ..Slow::default() };
            // Servers run under a uid of their own, which must be able to read it.
            let library = slow::library(folder.path(), &slow)?;
            let set: Vec<String> = slow
                .env(&library)
                .iter()
                .filter(|(name, _)| name != "LD_PRELOAD")
                .map(|(name, value)| format!("{name} = {value:?}"))
                .collect();
            let (preload, set) = (library.display().to_string(), set.join(", "));
            let slow = format!("{{ name = \"slower\", preload = {preload:?}, set = {{ {set} }} }}");
            (format!("{cpus}server = \"{server}\"\nenv = [\"none\", {slow}]"), "env", "none")
        }
    };
    let compare = format!("[compare]\naxis = \"{axis}\"\nbase = \"{base}\"\nmetrics = [\"{promise}\"]\n");
    let study = made(home, &axes, COMPARED, &load, &compare)?;
    let verdict = study.verdicts.iter().find(|verdict| verdict.is_asked && verdict.metric == promise);
    let result = &verdict.context("the study has no verdict")?.result;
    let searches: Vec<Value> = study
        .runs
        .iter()
        .filter_map(|run| Some((run, run.line.as_ref()?)))
        .map(|(run, search)| {
            let found = search.found.as_ref();
            json!({
                "side": run.head.start.key.get(axis), "block": run.block, "counts": run.standing.word(),
                "line_tps": found.and_then(|found| found.lines.first()?.line_tps),
                "middle_tps": found.and_then(|found| found.lines.first()?.middle_tps),
                "seconds": found.map(|found| found.seconds_total),
            })
        })
        .collect();
    let started_at_ms = study.runs.first().map(|run| run.head.start.started_at_ms);
    Ok(json!({
        "kind": kind.name(), "budget_s": budget_s, "cpus": CPUS, "workload": workload, "server": server,
        "promise": promise, "cpu_us": cpu_us, "n": result.n,
        "started_at_ms": started_at_ms, "ratio": result.ratio, "low": result.low, "high": result.high,
        "verdict": result.verdict.word(), "searches": searches,
    }))
}

/// What an answer of the server costs it of the cpu, as it is, and of that the tenth, in whole microseconds.
fn cpu_us(home: &Home, server: &str) -> Result<u32> {
    let axes = format!("cpus = \"{CPUS}\"\nserver = \"{server}\"\nsessions = {}", duels::SESSIONS);
    let study = made(home, &axes, COMPARED, "[load]\nblocks = 1\nwarmup = \"2s\"\nduration = \"10s\"\n", "")?;
    let point = study.points.first().context("the study left no cell")?;
    let per_transaction = study.samples(point, "cpu_us_per_transaction").first().map(|sample| sample.value);
    let per_transaction = per_transaction.context("the server's cpu was not measured")?;
    let (_, step) = study.counted(point).next().context("no run counts")?;
    let answers = step.statements() as f64 / step.outcomes.committed as f64;
    let more = (MORE_CPU * per_transaction / answers).round().max(1.0);
    println!(
        "{server}: {per_transaction:.0} us of cpu and {answers:.1} answers in a transaction, {more} us more in each"
    );
    Ok(more as u32)
}

/// Runs a study in a folder of its own.
fn made(
    home: &Home,
    axes: &str,
    (workload, promise): (&str, &str),
    load: &str,
    compare: &str,
) -> Result<StudyReport> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("live-lines.toml");
    let load = load.replace("[line]\n", &format!("[line]\npromises = [\"{promise}\"]\nsessions_max = 256\n"));
    let text = format!(
        "title = \"Lines\"\nquestion = \"What does it carry?\"\n[axes]\n{axes}\nworkload = \"{workload}\"\n\
         [options]\ntable_size = 100000\n{load}{compare}"
    );
    std::fs::write(&path, text)?;
    let (_, study) = whole_study::made(home, &path, &folder.path().join("results"), "live-lines")?;
    Ok(study)
}

fn judge_repeats(made: &[Value]) -> bool {
    for server in FAMILIES {
        let of: Vec<&Value> = made.iter().filter(|line| line["server"] == server).collect();
        let spread = |pointer: &str| {
            let values: Vec<f64> = of.iter().filter_map(|line| line.pointer(pointer)?.as_f64()).collect();
            let text = coefficient_of_variation(&values).map(|spread| format!("{:.1} %", 100.0 * spread));
            (text.unwrap_or_else(|| "not known".to_owned()), values)
        };
        let (line, values) = spread("/line/line_tps");
        println!("{server}: lines {values:.0?} spread by {line}, peaks by {}", spread("/peak_tps").0);
        let names = of.first().and_then(|line| line["canary"].as_object());
        for name in names.into_iter().flat_map(|figures| figures.keys()) {
            println!("  canary {name}: {}", spread(&format!("/canary/{name}")).0);
        }
    }
    let held = made.iter().filter(|line| line["line"]["hold"]["held"] == true).count();
    let at_once = made.iter().filter(|line| line["holds"][0]["held"] == true).count();
    let longest = made.iter().filter_map(|line| line["seconds"].as_f64()).fold(0.0, f64::max);
    println!(
        "{held} of {} confirmations kept the promise, {at_once} of them at once; the longest search took {longest:.0} s",
        made.len()
    );
    held as f64 >= HELD_MIN * made.len() as f64
}

fn judge_pairs(kind: Kind, made: &[Value]) -> bool {
    let mut right = 0;
    for line in made {
        let bound = |name: &str| line[name].as_f64();
        let is_right = match (kind, bound("low"), bound("high")) {
            (Kind::Slower, ..) => line["verdict"] == Verdict::Slower.word(),
            (_, Some(low), Some(high)) => low <= 1.0 && 1.0 <= high,
            _ => false,
        };
        right += usize::from(is_right);
        println!(
            "{}: x {:.3} [{:.3}, {:.3}] of {} lives, {}{}",
            line["server"].as_str().unwrap_or_default(),
            bound("ratio").unwrap_or(f64::NAN),
            bound("low").unwrap_or(f64::NAN),
            bound("high").unwrap_or(f64::NAN),
            line["n"],
            line["verdict"].as_str().unwrap_or_default(),
            if is_right { "" } else { ": WRONG" }
        );
    }
    println!("{right} of {} right", made.len());
    right * STUDIES >= made.len() * (STUDIES - 1)
}
