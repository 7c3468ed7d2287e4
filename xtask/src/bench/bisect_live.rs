//! A whole search on this machine: 64 labelled builds of one server, of which those from a secret one on make each answer
//! later, by cpu, by a pause, by an fsync now and then, or by a lock that sessions hold longer.
//!
//! How much to plant for the percentage is measured first, by duels of the server with itself slowed down. What is judged:
//! the guilty build is found within 45 minutes, and where its sessions spend more time is named right.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use lab::StopSwitch;
use lab::bisect::{Candidate, Request, Told, bisect};
use lab::watch::Watch;
use sandbox::{Build, Home, Selector, builds};
use stats::BisectStatus;
use stats::rng::Rng;
use testkit::slow::{self, Slow};

use super::{duels, told};

const LIMIT: Duration = Duration::from_secs(45 * 60);
/// Duels of a measurement of how much to plant.
const LIVES: u32 = 4;
const SLICES: u32 = 15;
/// Steps to the amount that is to be planted.
const TRIES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, clap::ValueEnum)]
enum Cause {
    Cpu,
    Sleep,
    Fsync,
    Lock,
}

impl Cause {
    /// `amount` is in microseconds of each answer; of flushes it is their number in 1,000 answers.
    fn slow(self, amount: u32) -> Slow {
        match self {
            Cause::Cpu => Slow { cpu_us: amount, ..Slow::default() },
            Cause::Sleep => Slow { sleep_us: amount, ..Slow::default() },
            Cause::Lock => Slow { lock_us: amount, ..Slow::default() },
            Cause::Fsync => Slow { fsync_every: 1000u32.checked_div(amount).unwrap_or(0), ..Slow::default() },
        }
    }

    fn first_guess(self) -> u32 {
        match self {
            Cause::Cpu | Cause::Lock | Cause::Fsync => 5,
            Cause::Sleep => 20,
        }
    }

    /// What a search must name first.
    fn named(self) -> &'static str {
        match self {
            Cause::Cpu => "session_at_cpu_us_per_transaction",
            Cause::Sleep => "session_asleep_us_per_transaction",
            Cause::Fsync => "session_at_disk_us_per_transaction",
            Cause::Lock => "session_at_locks_us_per_transaction",
        }
    }
}

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, value_enum)]
    cause: Cause,
    #[arg(long, default_value = "postgres")]
    server: String,
    #[arg(long, default_value_t = 5.0)]
    percent: f64,
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..))]
    builds: u32,
    /// How much to plant, where it is known: microseconds of each answer, or flushes in 1,000 answers.
    #[arg(long)]
    amount: Option<u32>,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let asked: Asked = crate::asked("bench bisect-live", arguments);
    let original = duels::build(&Home::find()?, &asked.server)?;
    let folder = tempfile::tempdir()?;
    // Servers run under uids of their own.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let amount = match asked.amount {
        Some(amount) => amount,
        None => amount_for(&original, folder.path(), &asked)?,
    };
    let home = Home::at(folder.path().join("home"))?;
    let guilty = 1 + Rng::new(duels::now_ms() as u64).below(asked.builds as usize - 1);
    let names = plant(&home, &original, folder.path(), &asked, (guilty, amount))?;
    println!("{} builds, {amount} planted from a secret one on", names.len());
    let candidates: Result<Vec<Candidate>> = names
        .iter()
        .map(|name| Ok(Candidate::Build(name.parse::<Selector>().map_err(anyhow::Error::msg)?)))
        .collect();
    let study = folder.path().join("labelled.toml");
    std::fs::write(&study, study_of(&names[0]))?;
    let request = Request {
        study: lab::study::read(&study)?,
        is_quick: false,
        results: folder.path().join("results"),
        candidates: candidates?,
        metric: "tps".to_owned(),
        margin: 0.02,
        is_new: true,
    };
    let tell = |told: &Told| match told {
        Told::Ends(lives, comparison) => {
            println!("  good and bad, {lives}: {:?}, {}", comparison.ratio, comparison.verdict.word());
        }
        Told::Asked { candidate, log_ratio, .. } => {
            println!("  {}: {:.3}", names[*candidate], log_ratio.exp())
        }
        Told::Skipped { candidate, why } => println!("  {} left out: {why}", names[*candidate]),
    };
    let outcome = bisect(&home, &request, &Watch::default(), &duels::tell, &StopSwitch::default(), &tell)?;
    let is_right = outcome.status == BisectStatus::Found && outcome.guilty == Some(guilty);
    println!(
        "{:?} {}, planted {}; {} steps in {:.0} s",
        outcome.status,
        outcome.guilty.map_or("nothing", |at| &names[at]),
        names[guilty],
        outcome.steps,
        outcome.seconds
    );
    for why in outcome.why.iter().take(6) {
        println!("  {}: {:?} us more, ratio {:?}", why.what, why.more_us, why.ratio);
    }
    let is_named = outcome.why.first().is_some_and(|why| why.what == asked.cause.named());
    println!("guilty {}, cause {}", right(is_right), right(is_named));
    told(is_right && is_named && outcome.seconds <= LIMIT.as_secs_f64())
}

fn right(is_right: bool) -> &'static str {
    if is_right { "right" } else { "WRONG" }
}

fn study_of(server: &str) -> String {
    format!(
        "title = \"A slow build\"\nquestion = \"Which build is slower?\"\n[axes]\nserver = [\"{server}\"]\n\
         workload = [\"{}\"]\nsessions = [{}]\n[options]\ntable_size = 100000\n[load]\nwarmup = \"1s\"\n\
         duration = \"10s\"\nblocks = 5\n",
        duels::WORKLOAD,
        duels::SESSIONS
    )
}

/// Names of the labelled builds, from good to bad.
fn plant(
    home: &Home,
    original: &Build,
    folder: &Path,
    asked: &Asked,
    (guilty, amount): (usize, u32),
) -> Result<Vec<String>> {
    let files = &original.files;
    let mut names = Vec::new();
    for at in 0..asked.builds as usize {
        let slow = asked.cause.slow(if at >= guilty { amount } else { 0 });
        let into = folder.join("next");
        slow::build(&files.base, &files.server, &into, &slow)?;
        let name = format!("{}@{}+b{at:02}", original.flavor, original.version);
        let named: Selector = name.parse().map_err(anyhow::Error::msg)?;
        let build = builds::fetch_archive(home, &into, Some(&named), &|_| ())?;
        std::fs::remove_dir_all(&into)?;
        names.push(build.name());
    }
    Ok(names)
}

/// Finds how much makes a server slower by the percentage: a guess, and steps from there, each measured by duels, until the
/// slow-down is within a fifth of what is wanted.
fn amount_for(original: &Build, folder: &Path, asked: &Asked) -> Result<u32> {
    let home = Home::find()?;
    let wanted = asked.percent / 100.0;
    let mut amount = asked.cause.first_guess();
    let mut nearest: Option<(f64, u32)> = None;
    for _ in 0..TRIES {
        let slow = asked.cause.slow(amount);
        let library = slow::library(folder, &slow)?;
        let env = BTreeMap::from(slow.env(&library));
        let request = duels::request(original, env, SLICES, LIVES, duels::now_ms() as u64)?;
        let mut logs = Vec::new();
        duels::make(&home, &request, &mut |life| {
            logs.extend(life.log_ratio(0, 1));
            ControlFlow::Continue(())
        })?;
        let slower_by = (-stats::mean(&logs).context("no life was valid")?).exp() - 1.0;
        println!("{amount} planted: slower by {:.1} %", 100.0 * slower_by);
        let distance = (slower_by - wanted).abs();
        if nearest.is_none_or(|(least, _)| distance < least) {
            nearest = Some((distance, amount));
        }
        let next = (f64::from(amount) * wanted / slower_by.max(wanted / 5.0)).round().max(1.0) as u32;
        if distance < wanted / 5.0 || next == amount {
            break;
        }
        amount = next;
    }
    let (distance, amount) = nearest.context("nothing was measured")?;
    ensure!(distance < wanted / 2.0, "no amount makes {} slower by {} %", original.name(), asked.percent);
    Ok(amount)
}
