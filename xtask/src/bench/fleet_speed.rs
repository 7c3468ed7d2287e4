//! What a fleet saves: a study of 24 blocks on a Slurm of eight nodes, and the same one on one of them. Its server only
//! sleeps, so eight blocks at a time fit into two cores.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use testkit::slurm::Cluster;

use super::fake::FakeServer;
use super::told;

const NODES: u32 = 8;
const BLOCKS: u32 = 24;
/// Of the wall time on one node.
const SHARE_MAX: f64 = 1.0 / 6.0;

#[derive(clap::Parser)]
struct Arguments {
    /// Of a block; what Slurm and plimsoll take to begin one is beside it
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Arguments { seconds } = crate::asked("bench fleet-speed", arguments);
    let plimsoll = crate::plimsoll()?.canonicalize()?;
    let dir = tempfile::tempdir()?;
    let server = FakeServer::start(&["--latency", "fixed:20000"])?;
    let study = study(dir.path(), &server.url(), seconds)?;
    let cluster = Cluster::try_start(&dir.path().join("slurm"), NODES as usize, false)
        .map_err(|why| anyhow!("there can be no Slurm here: {why}"))?;
    let mut took_s = [0.0; 2];
    for (took_s, nodes) in took_s.iter_mut().zip([NODES, 1]) {
        *took_s = made(&cluster, &plimsoll, &study, (dir.path(), nodes))?;
        println!("{}: {took_s:.0} s", store::counted(nodes, "node"));
    }
    let share = took_s[0] / took_s[1];
    println!(
        "{BLOCKS} blocks of {seconds} s on {NODES} nodes take {share:.3} of the time that one takes (at most {SHARE_MAX:.3})"
    );
    told(share <= SHARE_MAX)
}

/// One cell whose runs sleep.
fn study(dir: &Path, url: &str, seconds: u32) -> Result<PathBuf> {
    let sql = dir.join("ask.sql");
    fs::write(&sql, "-- name: ask\nSELECT 1;\n")?;
    let path = dir.join("speed.toml");
    let text = format!(
        "title = \"speed\"\nquestion = \"How long does it take?\"\n[axes]\nserver = \"{url}\"\nworkload = \"{}\"\n\
         [load]\nwarmup = \"100ms\"\nduration = \"{seconds}s\"\nblocks = {BLOCKS}\ngates = \"warn\"\n\
         [machine]\nidle = \"as-is\"\n",
        sql.display()
    );
    fs::write(&path, text)?;
    Ok(path)
}

/// The study on so many nodes at a time, each of its blocks once: seconds from the command to its end.
fn made(cluster: &Cluster, plimsoll: &Path, study: &Path, (dir, nodes): (&Path, u32)) -> Result<f64> {
    let results = dir.join(format!("results-{nodes}"));
    let began = Instant::now();
    let done = cluster
        .command(plimsoll)
        .arg("run")
        .arg(study)
        .args(["--on", "slurm", "--nodes", &nodes.to_string(), "--results"])
        .arg(&results)
        .stdout(Stdio::null())
        .output()
        .with_context(|| plimsoll.display().to_string())?;
    let took_s = began.elapsed().as_secs_f64();
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let store = store::Store::open_read_only(&results)?;
    let study = store.studies()?.into_iter().next().context("the study left no record")?;
    let runs = store.run_heads(study.id)?;
    ensure!(runs.len() == BLOCKS as usize, "{} runs of {BLOCKS}", runs.len());
    Ok(took_s)
}
