//! Loading one table of a million rows against `sysbench oltp_read_write prepare` on the same server, in turns;
//! and the same table from a snapshot.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandbox::{Home, Sandbox, Spec, builds, snapshot};
use wire::{Protocol, Target};
use workload::{Configured, Dialect, LoadAt};

use super::yardstick;

const ROUNDS: usize = 5;
const SNAPSHOT_RATIO_MIN: f64 = 15.0;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    yardstick::check()?;
    let mut servers: Vec<&str> = vec!["mariadb", "postgres"];
    let mut rows = "1000000";
    for argument in arguments {
        match argument.split_once('=') {
            Some(("rows", number)) => rows = number,
            None => {
                if servers == ["mariadb", "postgres"] {
                    servers.clear();
                }
                servers.push(argument);
            }
            Some(_) => anyhow::bail!("load-speed takes [rows=N] [SERVER ...]"),
        }
    }
    warn_if_busy();
    let home = Home::find()?;
    let mut is_reached = true;
    for selector in servers {
        is_reached &= one_server(&home, selector, rows).with_context(|| selector.to_owned())?;
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
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

fn one_server(home: &Home, selector: &str, rows: &str) -> Result<bool> {
    let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
    let mut spec = Spec::new(format!("load-speed-{}", std::process::id()), build);
    spec.buffer_bytes = Some(1 << 30);
    let mut server = Sandbox::deploy(home, &spec, &|_| ())?;
    let target = server.target(Some("load"));
    let version = wire::blocking::Client::connect(&server.target(None))?.server().version.clone();
    let dialect = Dialect::of_server(target.protocol, &version);
    println!("{selector} ({version}), {rows} rows, {ROUNDS} rounds in turns");
    let options = BTreeMap::from([("table_size".to_owned(), rows.to_owned())]);
    let configured =
        workload::find("oltp_read_write").context("the workload")?.configure(&options, dialect)?;
    let (mut theirs, mut ours) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        // Whoever comes second may find the server still writing; the turns take turns.
        for is_ours in [round % 2 == 0, round % 2 == 1] {
            recreate(&target)?;
            if is_ours {
                ours.push(load(&*configured, &target)?);
            } else {
                let option = format!("--table-size={rows}");
                let started = Instant::now();
                yardstick::sysbench("oltp_read_write", &target, &[&option], "prepare")?;
                theirs.push(started.elapsed().as_secs_f64());
            }
            thread::sleep(Duration::from_secs(1));
        }
    }
    recreate(&target)?;
    load(&*configured, &target)?;
    let restored = from_snapshot(home, &mut spec, &mut server, &*configured)?;
    server.destroy()?;
    Ok(judge(target.protocol, &theirs, &ours, &restored))
}

fn judge(protocol: Protocol, theirs: &[f64], ours: &[f64], restored: &[f64]) -> bool {
    let ratio_min = if protocol == Protocol::Mysql { 2.0 } else { 3.0 };
    let mut ratios: Vec<f64> = theirs.iter().zip(ours).map(|(theirs, ours)| theirs / ours).collect();
    let ratio = median(&mut ratios);
    let theirs = median(&mut theirs.to_vec());
    let snapshot_ratio = theirs / median(&mut restored.to_vec());
    println!("  sysbench prepare  {theirs:.2} s (median)");
    println!("  plimsoll load     {:.2} s", median(&mut ours.to_vec()));
    println!("  ratio             {ratio:.2} (median of the rounds {ratios:.2?}; at least {ratio_min})");
    println!(
        "  from a snapshot   {:.3} s, ratio {snapshot_ratio:.1} (at least {SNAPSHOT_RATIO_MIN})",
        median(&mut restored.to_vec())
    );
    ratio >= ratio_min && snapshot_ratio >= SNAPSHOT_RATIO_MIN
}

/// What a snapshot takes in the place of a load, three times: deploying a sandbox with it, less the start of the
/// server, which every run pays.
fn from_snapshot(
    home: &Home,
    spec: &mut Spec,
    server: &mut Sandbox,
    configured: &dyn Configured,
) -> Result<Vec<f64>> {
    let dataset = configured.dataset_key();
    let key = snapshot::key(spec, &dataset);
    let kept = snapshot::save(home, server, &key, &dataset, u64::MAX, &|_| ())?;
    let kept = kept.context("the snapshot is kept")?;
    let mut times = Vec::new();
    for turn in 0..3 {
        spec.name = format!("load-speed-{}-{turn}", std::process::id());
        spec.snapshot = Some(kept.clone());
        let started = Instant::now();
        let mut copy = Sandbox::deploy(home, spec, &|_| ())?;
        let deployed = started.elapsed().as_secs_f64();
        let is_loaded = configured.is_loaded(&copy.target(Some("load")))?;
        copy.stop()?;
        let started = Instant::now();
        copy.start()?;
        times.push(deployed - started.elapsed().as_secs_f64());
        copy.destroy()?;
        ensure!(is_loaded, "the snapshot does not hold the tables");
    }
    snapshot::remove(&kept)?;
    Ok(times)
}

fn load(configured: &dyn Configured, target: &Target) -> Result<f64> {
    let connections = thread::available_parallelism().map_or(2, usize::from);
    let started = Instant::now();
    let report = configured.load(&LoadAt { target: target.clone(), connections }, &|_| ())?;
    let took = started.elapsed().as_secs_f64();
    ensure!(report.notes.is_empty(), "{:?}", report.notes);
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

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
