//! Replicas in studies, end to end on real servers: they follow, are watched, catch up, and leave nothing behind.

mod common;

use std::path::Path;

use common::{Done, plimsoll, servers_are_there};
use store::{Finding, RunEnd, Status, Store};

fn run(study: &Path, results: &Path, more: &[&str]) -> Done {
    Done::of(plimsoll().arg("run").arg(study).arg("--results").arg(results).args(more).output().unwrap())
}

fn written(dir: &Path, axes: &str) -> std::path::PathBuf {
    let path = dir.join("replicas.toml");
    let text = format!(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nworkload = \"oltp_read_write\"\nsessions = 2\n{axes}\n[options]\ntables = 1\n\
         table_size = 1000\n[load]\nwarmup = \"200ms\"\nduration = \"2s\"\nblocks = 1\nseed = 1\ngates = \"warn\"\n"
    );
    std::fs::write(&path, text).unwrap();
    path
}

/// What no server or build has to be asked for.
#[test]
fn what_replicas_cannot_be_is_refused_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |axes: &str, says: &[&str]| {
        let done = run(&written(dir.path(), axes), &dir.path().join("r"), &["--dry-run"]);
        done.expect(2, says);
    };
    if servers_are_there() {
        refused("server = \"mariadb\"\nreplicas = \"sync\"", &["replicas.toml:7:", "`async` or `semi-sync`"]);
        refused("server = \"postgres@15\"\nreplicas = \"semi-sync\"", &["`async` or `sync`", "[[exclude]]"]);
        let other = "server = \"postgres@15\"\nreplicas = { name = \"m\", server = \"mariadb\" }";
        refused(other, &["do not read each other's logs"]);
        let silent = "server = \"mariadb\"\nreplicas = \"async\"\nsettings = { name = \"n\", set = { log_bin = \"OFF\" } }";
        refused(silent, &["replicas read the binary log"]);
    }
    refused("server = \"mysql://root@127.0.0.1:1/x\"\nreplicas = 1", &["did not start this server"]);
}

#[test]
fn replicas_follow_catch_up_and_go() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let axes = "server = [\"mariadb\", \"postgres@15\"]\nreplicas = [\"semi-sync\", \"sync\"]\n[[exclude]]\nserver = \
                \"mariadb\"\nreplicas = \"sync\"\n[[exclude]]\nserver = \"postgres@15\"\nreplicas = \"semi-sync\"";
    let done = run(&written(dir.path(), axes), &results, &[]);
    assert_eq!(done.code, Some(0), "{}", done.err);

    let store = Store::open_read_only(&results).unwrap();
    let study = store.studies().unwrap().pop().unwrap();
    let heads = store.run_heads(study.id).unwrap();
    assert_eq!(heads.len(), 2);
    for head in &heads {
        let end = store.run(head.id).unwrap().end.unwrap();
        assert_eq!(end.status, Status::Done, "{:?}", end.error);
        looked_at(&end, head.start.key["replicas"].as_str().unwrap());
    }
    let report = plimsoll().args(["report", "--json", "-", "--results"]).arg(&results).output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let rows = report["sections"][0]["sections"]["replication"]["lag"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.iter().all(|row| row["lag_s"].is_number() && row["caught_up_s"].is_number()), "{rows:?}");
    // Nothing of them is left, neither processes nor directories.
    let left = plimsoll().args(["sandbox", "list"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&left.stdout).contains("replica-"));
}

/// What a run with one replica has to have in its record.
fn looked_at(end: &RunEnd, mode: &str) {
    let fact = &end.facts["replica 1"];
    assert!(fact.contains(mode) && fact.contains("copied from the primary"), "{fact}");
    assert!(end.facts["caught_up_s/1"].parse::<f64>().unwrap() < 60.0);
    let of = |name: &str| end.series.iter().find(|it| it.source == "replica" && it.name == name).unwrap();
    assert!(of("lag").points.len() >= 2 && of("lag").instance == "1");
    assert!(
        of("lag_bytes").points.iter().all(|(_, bytes)| *bytes >= 0.0) && !of("cpu_user").points.is_empty()
    );
    // The tables are right on the replica, too.
    let gate = end.gates.iter().find(|gate| gate.name == "consistency").unwrap();
    assert_eq!(gate.finding, Finding::Held, "{gate:?}");
    let of_replica = end.checks.iter().filter(|check| check.name.starts_with("replica 1: ")).count();
    assert!(of_replica > 0 && 2 * of_replica == end.checks.len(), "{:?}", end.checks);
    if mode == "semi-sync" {
        let waited = &end.facts["semi-synchronous"];
        assert!(waited.contains(", 0 went on without") && !waited.starts_with("0 "), "{waited}");
    }
    let phases: Vec<&str> = end.phases.iter().map(|phase| phase.name.as_str()).collect();
    assert!(phases.contains(&"replicate") && phases.contains(&"catch_up"), "{phases:?}");
}
