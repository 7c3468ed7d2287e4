//! A cause that is planted outside the server: of two file systems that a study makes on the same disk, one is mounted with
//! `sync`, so that each write waits for the disk. The study must say that the server on it is slower, and the mount's
//! options must stand in the record of its runs.

use anyhow::{Context, Result};
use sandbox::Home;
use stats::Verdict;

use super::{duels, told, whole_study};

/// The log is written at each commit and synced once a second: what `sync` undoes.
const STUDY: &str = r#"
title = "sync"
question = "What does the mount option `sync` cost?"
[axes]
server = "mariadb"
workload = "oltp_write_only"
sessions = 8
settings = { name = "relaxed", mysql = { innodb_flush_log_at_trx_commit = 2 } }
storage = [
    { name = "plain", filesystem = "ext4", size = "2G" },
    { name = "planted", filesystem = "ext4", mount = "sync", size = "2G" },
]
[options]
tables = 1
table_size = 10_000
[load]
pairing = "duel"
warmup = "1s"
duration = "5s"
until = "decided"
blocks = { min = 5, max = 20 }
budget = "10m"
[compare]
axis = "storage"
base = "plain"
metrics = ["tps"]
margin = 0.05
"#;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    #[derive(clap::Parser)]
    struct Nothing {}
    let Nothing {} = crate::asked("bench sync-mount", arguments);
    let home = Home::find()?;
    duels::build(&home, "mariadb")?;
    let dir = tempfile::tempdir()?;
    let path = dir.path().join("sync.toml");
    std::fs::write(&path, STUDY)?;
    let (took, study) = whole_study::made(&home, &path, &dir.path().join("results"), "sync-mount")?;
    let verdict = study.verdicts.first().context("the study has no verdict")?;
    let result = &verdict.result;
    let ratio = result.ratio.map_or_else(|| "no ratio".to_owned(), report::ratio);
    println!(
        "{}: {} ({ratio}, {} blocks) in {:.0} s",
        study.verdict_name(verdict),
        result.verdict.word(),
        result.n,
        took.as_secs_f64()
    );
    let options = study.probes.iter().find(|(_, probe)| probe.place == "planted");
    let options = options.and_then(|(_, probe)| probe.facts.get("mount options")).map_or("", String::as_str);
    println!("recorded of the planted one: mounted with {options}");
    told(result.verdict == Verdict::Slower && options.split(',').any(|option| option == "sync"))
}
