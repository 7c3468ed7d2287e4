//! Loading one table of a million rows against `sysbench oltp_read_write prepare` on the same server, in turns;
//! and the same table from a snapshot.
//!
//! All turns meet the same running server with a benchmark's usual settings. Plimsoll loads it in the two ways it has:
//! as it would any server, and as a sandbox of its own, whose redo log is off meanwhile where it can be switched
//! (MySQL 8) and on again before the clock stops, and where a stand-in takes the rows of a large table (MariaDB).

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sandbox::{Home, Progress, Sandbox, Spec, builds, snapshot};
use wire::{Protocol, Target};
use workload::{Configured, LoadAt, LoadReport};

use super::lab::{configured, each_server, load_at, median};
use super::sysbench;

const SERVERS: [&str; 3] = ["mariadb", "mysql@8.0.33", "postgres"];
const SNAPSHOT_RATIO_MIN: f64 = 15.0;
/// Turns of what is loaded from a snapshot.
const SNAPSHOT_TURNS: usize = 5;

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    #[arg(default_values_t = SERVERS.map(str::to_owned))]
    servers: Vec<String>,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    sysbench::check()?;
    let asked: Asked = crate::asked("bench load-speed", arguments);
    warn_if_busy();
    each_server(&asked.servers, |home, selector| one_server(home, selector, &asked))
}

/// The load uses all cpus where sysbench's prepare uses one: on a machine that is busy with other things the ratio
/// says more about those.
fn warn_if_busy() {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0.0);
    if load > 1.0 {
        println!("the machine is busy (load average {load}): repeat this when it is not");
    }
}

/// Who loads, and how.
#[derive(Clone, Copy, PartialEq)]
enum Loader {
    /// `sysbench prepare`.
    Sysbench,
    /// Plimsoll, a server that it does not own.
    Attached,
    /// Plimsoll, a sandbox of its own.
    Own,
}

/// Seconds of one load, and of its parts.
#[derive(Clone, Copy, Default)]
struct Took {
    total_s: f64,
    rows_s: f64,
    indexes_s: f64,
}

fn one_server(home: &Home, selector: &str, asked: &Asked) -> Result<bool> {
    let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
    let mut spec = Spec::new(format!("load-speed-{}", std::process::id()), build);
    let begin = Instant::now();
    let server = Sandbox::deploy(home, &spec, &|_| ())?;
    let empty_s = begin.elapsed().as_secs_f64();
    let target = server.target(Some("load"));
    let version = wire::blocking::Client::connect(&server.target(None))?.server().version.clone();
    println!("{selector} ({version}), {} rows, {} rounds in turns", asked.rows, asked.rounds);
    let loaders = [Loader::Own, Loader::Sysbench, Loader::Attached];
    recreate(&target)?;
    let rows = asked.rows.to_string();
    let configured = configured(&target, "oltp_read_write", &[("table_size", &rows)])?;
    let mut took: Vec<(Loader, Took)> = Vec::new();
    for round in 0..asked.rounds {
        // Whoever comes second may find the server still writing; the turns take turns.
        for turn in 0..loaders.len() {
            let loader = loaders[(round + turn) % loaders.len()];
            recreate(&target)?;
            took.push((loader, load(loader, &*configured, &target, &rows)?));
            thread::sleep(Duration::from_secs(1));
        }
    }
    server.destroy()?;
    let restored = from_snapshot(home, &mut spec, &*configured, &rows)?;
    let of = |loader| took.iter().filter(|(l, _)| *l == loader).map(|(_, took)| *took).collect::<Vec<_>>();
    let theirs: Vec<f64> = of(Loader::Sysbench).iter().map(|took| took.total_s).collect();
    println!("  sysbench prepare             {:.2} s (median)", median(theirs.clone()));
    let ratio_min = if target.protocol == Protocol::Mysql { 2.0 } else { 3.0 };
    let ratio = judge("plimsoll, its own sandbox", &theirs, &of(Loader::Own), ratio_min);
    judge("plimsoll, another's server", &theirs, &of(Loader::Attached), ratio_min);
    let pairs = of(Loader::Attached).into_iter().zip(of(Loader::Own));
    let gains: Vec<f64> = pairs.map(|(attached, own)| attached.total_s / own.total_s).collect();
    println!("    another's / its own {:.2} (median of the rounds {gains:.2?})", median(gains.clone()));
    let is_restored_fast = judge_snapshot(median(theirs), empty_s, &restored);
    Ok(ratio >= ratio_min && is_restored_fast)
}

/// Shows the rounds of one way of loading; how many times faster than sysbench it was.
fn judge(who: &str, theirs: &[f64], ours: &[Took], ratio_min: f64) -> f64 {
    let ratios: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours.total_s).collect();
    let ratio = median(ratios.clone());
    let part = |part: fn(&Took) -> f64| median(ours.iter().map(part).collect());
    println!(
        "  {who:28} {:.2} s (rows {:.2} s, index {:.2} s)",
        part(|took| took.total_s),
        part(|took| took.rows_s),
        part(|took| took.indexes_s)
    );
    println!("    ratio {ratio:.2} (median of the rounds {ratios:.2?}; at least {ratio_min})");
    ratio
}

/// Seconds that a snapshot takes.
struct Restored {
    /// Writing its files.
    files_s: f64,
    /// That, and what the first start on them takes longer than the second.
    copy_s: f64,
    /// That, and the start of the server on it.
    whole_s: f64,
}

/// sysbench's prepare meets a server that is up, a snapshot comes with the start of its own; a server that is loaded
/// has to be set up and started before, too. Which of it to count is a matter of what is asked, so all of it is shown.
fn judge_snapshot(theirs_s: f64, empty_s: f64, restored: &[Restored]) -> bool {
    let copy_s = median(restored.iter().map(|restored| restored.copy_s).collect());
    let files_s = median(restored.iter().map(|restored| restored.files_s).collect());
    let whole_s = median(restored.iter().map(|restored| restored.whole_s).collect());
    let ratio = theirs_s / copy_s;
    println!(
        "  snapshot, the data alone     {copy_s:.3} s (files {files_s:.3} s), ratio to prepare {ratio:.1} \
         (at least {SNAPSHOT_RATIO_MIN})"
    );
    println!("  snapshot and server's start  {whole_s:.3} s, ratio to prepare {:.1}", theirs_s / whole_s);
    println!(
        "    ratio to an empty server's deploy ({empty_s:.2} s) and prepare {:.1}",
        (empty_s + theirs_s) / whole_s
    );
    ratio >= SNAPSHOT_RATIO_MIN
}

/// Loads a fresh sandbox and keeps its snapshot, as a run does; deploys sandboxes from that, and starts each a second
/// time, which says how much of the first was the start.
fn from_snapshot(
    home: &Home,
    spec: &mut Spec,
    configured: &dyn Configured,
    rows: &str,
) -> Result<Vec<Restored>> {
    let mut server = Sandbox::deploy(home, spec, &|_| ())?;
    let target = server.target(Some("load"));
    recreate(&target)?;
    load(Loader::Own, configured, &target, rows)?;
    workload::settle(&target)?;
    let dataset = configured.dataset_key();
    let key = snapshot::key(spec, &dataset);
    let kept = snapshot::save(home, &mut server, &key, &dataset, u64::MAX, &|_| ())?;
    let kept = kept.context("the snapshot is kept")?;
    server.destroy()?;
    let mut times = Vec::new();
    for turn in 0..SNAPSHOT_TURNS {
        spec.name = format!("load-speed-{}-{turn}", std::process::id());
        spec.snapshot = Some(kept.clone());
        let steps = Mutex::new(Vec::new());
        let note = |progress| {
            if matches!(progress, Progress::Step(_)) {
                steps.lock().unwrap_or_else(PoisonError::into_inner).push(Instant::now());
            }
        };
        let started = Instant::now();
        let mut copy = Sandbox::deploy(home, spec, &note)?;
        let whole_s = started.elapsed().as_secs_f64();
        let steps = steps.into_inner().unwrap_or_else(PoisonError::into_inner);
        let &[restoring, starting] = &steps[..] else { bail!("{} steps instead of two", steps.len()) };
        let files_s = (starting - restoring).as_secs_f64();
        let is_loaded = configured.is_loaded(&copy.target(Some("load")))?;
        copy.stop()?;
        let started = Instant::now();
        copy.start()?;
        times.push(Restored { files_s, copy_s: whole_s - started.elapsed().as_secs_f64(), whole_s });
        copy.destroy()?;
        ensure!(is_loaded, "the snapshot does not hold the tables");
    }
    snapshot::remove(&kept)?;
    Ok(times)
}

fn load(loader: Loader, configured: &dyn Configured, target: &Target, rows: &str) -> Result<Took> {
    let connections = thread::available_parallelism().map_or(2, usize::from);
    let is_own_server = matches!(loader, Loader::Own);
    let at = LoadAt { is_own_server, ..load_at(target, connections) };
    let started = Instant::now();
    let report: Option<LoadReport> = match loader {
        Loader::Sysbench => {
            sysbench::call("oltp_read_write", target, &[&format!("--table-size={rows}")], "prepare")?;
            None
        }
        Loader::Attached => Some(configured.load(&at, &|_| ())?),
        Loader::Own => Some(workload::without_redo_log(target, || configured.load(&at, &|_| ()))?),
    };
    let mut took = Took { total_s: started.elapsed().as_secs_f64(), ..Took::default() };
    if let Some(report) = report {
        ensure!(report.notes.is_empty(), "{:?}", report.notes);
        took.rows_s = report.rows_time.as_secs_f64();
        took.indexes_s = report.indexes_time.as_secs_f64();
    }
    Ok(took)
}

/// An empty database in place of the old one.
fn recreate(target: &Target) -> Result<()> {
    let administrative = Target {
        database: (target.protocol == Protocol::Postgres).then(|| "postgres".to_owned()),
        ..target.clone()
    };
    let name = target.database.as_deref().context("a database is named")?;
    let mut client = wire::blocking::Client::connect(&administrative)?;
    client.query(&format!("DROP DATABASE IF EXISTS {}", quoted(target, name)))?;
    client.close();
    workload::create_database(target)?;
    Ok(())
}

fn quoted(target: &Target, name: &str) -> String {
    if target.protocol == Protocol::Mysql { format!("`{name}`") } else { format!("\"{name}\"") }
}
