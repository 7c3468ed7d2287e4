//! Watched studies of real servers, made on this machine: of two equal ones, which must not be called different, and of
//! one whose answers are slowed down by a known amount, which must be found.
//!
//! Every study is a line of JSON in `benches/live-verdicts.jsonl` the moment that it ends, with the throughput of each
//! slice of each life, so that parts can be made in several sessions: a command makes the studies of its kind that are
//! still missing. How much to plant for a percentage is measured first (`calibrate`), by duels of a server with itself
//! slowed down, and is a line of the same file.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::builder::BoolishValueParser;
use lab::duel::Life;
use sandbox::{Build, Home};
use serde_json::{Value, json};
use stats::{Comparison, Design, Question, Rules, Sample, Verdict, compare_one, geometric_mean};
use testkit::slow::{self, Slow};

use super::lab::FAMILIES;
use super::looking::no_blocks;
use super::{duels, told};

/// Studies are of the one and of the other in turns.
const SERVERS: [&str; 2] = FAMILIES;
/// Roughly what a life takes besides its slices, and a slice of each side, in seconds.
const LIFE_S: f64 = 8.0;
const PAIR_S: f64 = 1.3;

#[derive(clap::Parser)]
struct Arguments {
    /// `aa`: equal servers; `planted`: one that is slower; `calibrate`: how much to plant for that.
    #[arg(value_parser = ["aa", "calibrate", "planted"])]
    command: String,
    #[arg(long, default_value_t = 1)]
    studies: usize,
    /// Of a study.
    #[arg(long, required_unless_present = "minutes")]
    seconds: Option<f64>,
    #[arg(long)]
    minutes: Option<f64>,
    #[arg(long, default_value_t = 0.0)]
    percent: f64,
    /// `on` or `off`; on by default where something is planted.
    #[arg(long, value_parser = BoolishValueParser::new(), hide_possible_values = true)]
    neighbour: Option<bool>,
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/live-verdicts.jsonl"))]
    file: PathBuf,
}

impl Arguments {
    fn limit(&self) -> Duration {
        Duration::from_secs_f64(
            self.seconds.or(self.minutes.map(|minutes| 60.0 * minutes)).unwrap_or_default(),
        )
    }

    fn has_neighbour(&self) -> bool {
        self.neighbour.unwrap_or(self.command == "planted")
    }
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let given: Arguments = crate::asked("bench live-verdicts", arguments);
    ensure!(!given.limit().is_zero(), "studies need time: --seconds or --minutes");
    ensure!((given.percent > 0.0) == (given.command != "aa"), "--percent is what is planted: not of equals");
    if given.command == "calibrate" { calibrate(&given) } else { studies(&given) }
}

pub(super) fn lines(file: &Path) -> Result<Vec<Value>> {
    if !file.exists() {
        return Ok(vec![]);
    }
    BufReader::new(File::open(file)?)
        .lines()
        .map(|line| serde_json::from_str(&line?).with_context(|| file.display().to_string()))
        .collect()
}

pub(super) fn add_line(file: &Path, line: &Value) -> Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    file.write_all(format!("{line}\n").as_bytes())?;
    Ok(file.sync_all()?)
}

/// Makes the studies of a kind that are missing, and tells what all of them found.
fn studies(given: &Arguments) -> Result<bool> {
    let (kind, has_neighbour) = (given.command.as_str(), given.has_neighbour());
    let home = Home::find()?;
    let folder = tempfile::tempdir()?;
    let is_one_of_these = |line: &Value| {
        line["kind"] == kind
            && line["percent"] == given.percent
            && line["limit_s"] == given.limit().as_secs_f64()
            && line["neighbour"] == has_neighbour
    };
    let made = lines(&given.file)?.iter().filter(|line| is_one_of_these(line)).count();
    let is_disturbed = has_neighbour && made < given.studies;
    let at_work = is_disturbed.then(|| duels::neighbour(folder.path())).transpose()?;
    for number in made..given.studies {
        let build = duels::build(&home, SERVERS[number % SERVERS.len()])?;
        let cpu_us = if kind == "planted" { planned_us(&given.file, &build, given.percent)? } else { 0 };
        let line = study(&home, folder.path(), &build, cpu_us, given)?;
        println!(
            "study {} of {}, {}: {} after {} lives, {:.0} s",
            number + 1,
            given.studies,
            line["server"].as_str().unwrap_or_default(),
            line["verdict"].as_str().unwrap_or_default(),
            line["lives"].as_array().map_or(0, Vec::len),
            line["seconds"].as_f64().unwrap_or(f64::NAN),
        );
        add_line(&given.file, &line)?;
    }
    drop(at_work);
    let all = lines(&given.file)?;
    found(given, &all.iter().filter(|line| is_one_of_these(line)).collect::<Vec<_>>())
}

/// Limits: five of forty equal ones may be called different; 18 of 20 planted 5 % and 5 of 6 planted 2 % are found.
fn found(given: &Arguments, lines: &[&Value]) -> Result<bool> {
    let count = |word: &str| lines.iter().filter(|line| line["verdict"] == word).count();
    let [faster, slower, equivalent, undecided] = ["faster", "slower", "equivalent", "undecided"].map(count);
    println!(
        "{} studies: {faster} faster, {slower} slower, {equivalent} equivalent, {undecided} undecided",
        lines.len()
    );
    let of = lines.len() as f64;
    told(match given.command.as_str() {
        "aa" => (faster + slower) as f64 <= of * 5.0 / 40.0,
        _ if given.percent < 5.0 => slower as f64 >= of * 5.0 / 6.0,
        _ => slower as f64 >= of * 18.0 / 20.0,
    })
}

/// One study: lives until there is a verdict or no time for another life.
fn study(home: &Home, folder: &Path, build: &Build, cpu_us: u32, given: &Arguments) -> Result<Value> {
    // A study that is to find a difference must not call it none.
    let margin = if given.command == "planted" { given.percent / 200.0 } else { Rules::default().margin };
    let rules = Rules { design: Design::Watched, margin, ..Rules::default() };
    let limit = given.limit();
    let slices = ((limit.as_secs_f64() / 8.0 - LIFE_S) / PAIR_S).clamp(3.0, 30.0) as u32;
    let started_at_ms = duels::now_ms();
    let request = duels::request(build, slowed(folder, cpu_us)?, slices, 1000, started_at_ms as u64)?;
    let mut record = Record::default();
    let began = Instant::now();
    let mut look = None;
    duels::make(home, &request, &mut |life| {
        record.add(&life);
        let is_over = began.elapsed() + life.took > limit;
        let now = compare_one(&record.question, &Rules { is_over, ..rules });
        let is_decided = now.verdict != Verdict::Undecided;
        look = Some(now);
        if is_over || is_decided { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    let look = look.context("a study without a life")?;
    let mut line = line(&given.command, build, cpu_us, given, &record, &look);
    line["started_at_ms"] = started_at_ms.into();
    line["seconds"] = began.elapsed().as_secs_f64().round().into();
    line["margin"] = margin.into();
    Ok(line)
}

/// The lives of a study: as they are judged, and as they are kept.
struct Record {
    question: Question,
    lives: Vec<Value>,
}

impl Default for Record {
    fn default() -> Record {
        Record { question: no_blocks(), lives: vec![] }
    }
}

impl Record {
    /// A life's value is the mean of the logarithms of its slices.
    fn add(&mut self, life: &Life) {
        let slices: Vec<Vec<f64>> = life.sides.iter().map(lab::duel::SideLife::slices_tps).collect();
        let faults: Vec<&str> = life
            .sides
            .iter()
            .flat_map(|side| &side.end.gates)
            .filter(|gate| gate.is_tripped())
            .map(|gate| gate.name.as_str())
            .collect();
        self.lives.push(json!({
            "a": slices.first(), "b": slices.get(1), "is_valid": life.is_valid(), "tripped": faults,
            "took_s": life.took.as_secs_f64().round(),
        }));
        if let (true, [a, b]) = (life.is_valid(), &slices[..])
            && let (Some(a), Some(b)) = (geometric_mean(a), geometric_mean(b))
        {
            self.question.base.push(Sample { block: life.number, value: a });
            self.question.other.push(Sample { block: life.number, value: b });
        }
    }
}

fn line(
    kind: &str,
    build: &Build,
    cpu_us: u32,
    given: &Arguments,
    record: &Record,
    look: &Comparison,
) -> Value {
    json!({
        "kind": kind, "server": format!("{}@{}", build.flavor, build.version), "build": build.identity,
        "workload": duels::WORKLOAD, "sessions": duels::SESSIONS, "percent": given.percent, "cpu_us": cpu_us,
        "neighbour": given.has_neighbour(), "limit_s": given.limit().as_secs_f64(), "n": look.n,
        "ratio": look.ratio, "low": look.low, "high": look.high, "verdict": look.verdict.word(),
        "lives": record.lives,
    })
}

/// The environment of a server whose every answer costs so much more cpu.
fn slowed(folder: &Path, cpu_us: u32) -> Result<BTreeMap<String, String>> {
    if cpu_us == 0 {
        return Ok(BTreeMap::new());
    }
    let slow = Slow { cpu_us, ..Slow::default() };
    // Servers run under a uid of their own, which must be able to read it.
    let library = slow::library(folder, &slow)?;
    Ok(slow.env(&library).into())
}

/// Finds how many microseconds make a server slower by a percentage: a guess from its throughput, and steps from there,
/// each measured by duels for the given time, until the slow-down is within a fifth of what is wanted or no whole
/// microsecond is nearer.
fn calibrate(given: &Arguments) -> Result<bool> {
    let home = Home::find()?;
    let folder = tempfile::tempdir()?;
    for server in SERVERS {
        let build = duels::build(&home, server)?;
        let wanted = given.percent / 100.0;
        let mut cpu_us = 5;
        let mut tried: Vec<u32> = vec![];
        loop {
            let record = measure(&home, folder.path(), &build, cpu_us, given.limit())?;
            let look = compare_one(&record.question, &Rules::default());
            let ratio = look.ratio.context("no life was valid")?;
            println!(
                "{server}: {cpu_us} us in each answer: ratio {ratio:.4} [{:?}, {:?}]",
                look.low, look.high
            );
            add_line(&given.file, &line("calibration", &build, cpu_us, given, &record, &look))?;
            tried.push(cpu_us);
            // Throughput is what a transaction's time is the inverse of.
            let slower_by = (1.0 / ratio - 1.0).max(wanted / 10.0);
            let next = (f64::from(cpu_us) * wanted / slower_by).round().max(1.0) as u32;
            if tried.contains(&next) || tried.len() == 4 {
                break;
            }
            cpu_us = next;
        }
    }
    Ok(true)
}

/// Lives of a server beside itself slowed down, for so long.
fn measure(home: &Home, folder: &Path, build: &Build, cpu_us: u32, time: Duration) -> Result<Record> {
    let request = duels::request(build, slowed(folder, cpu_us)?, 15, 1000, duels::now_ms() as u64)?;
    let mut record = Record::default();
    let began = Instant::now();
    duels::make(home, &request, &mut |life| {
        record.add(&life);
        if began.elapsed() + life.took > time { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(record)
}

/// The measured microseconds that come nearest to a percentage.
fn planned_us(file: &Path, build: &Build, percent: f64) -> Result<u32> {
    let distance = |line: &Value| {
        let slower_by = line["ratio"].as_f64().map_or(f64::INFINITY, |ratio| 1.0 / ratio - 1.0);
        (slower_by - percent / 100.0).abs()
    };
    let lines = lines(file)?;
    let nearest = lines
        .iter()
        .filter(|line| line["kind"] == "calibration" && line["build"] == build.identity.as_str())
        .min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let cpu_us = nearest.and_then(|line| line["cpu_us"].as_u64());
    let Some(cpu_us) = cpu_us else {
        bail!(
            "how much to plant was not measured: cargo xtask bench live-verdicts calibrate --percent {percent} --minutes 4"
        )
    };
    Ok(u32::try_from(cpu_us)?)
}
