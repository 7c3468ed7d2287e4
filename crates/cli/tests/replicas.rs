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

/// Whoever is loaded in turns has replicas that have caught up before it is another's turn.
#[test]
fn replicas_of_duels_and_states_have_caught_up_before_others_are_loaded() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let duel = "server = \"mariadb\"\nreplicas = [\"none\", \"async\"]\nsettings = { name = \"b\", logging = \"binlog\" }\n\
                [compare]\naxis = \"replicas\"\nbase = \"none\"";
    let switched = "server = \"mariadb\"\nreplicas = \"async\"\n[[intervene]]\nname = \"log\"\nsettings = { general_log = \"ON\" }";
    for (name, axes, load) in
        [("duel", duel, "pairing = \"duel\""), ("switched", switched, "phase = \"500ms\"")]
    {
        let path = written(dir.path(), axes);
        let text = std::fs::read_to_string(&path).unwrap().replace("seed = 1", &format!("seed = 1\n{load}"));
        std::fs::write(&path, text).unwrap();
        let results = dir.path().join(name);
        run(&path, &results, &[]).expect(0, &[]);
        let store = Store::open_read_only(&results).unwrap();
        let study = store.studies().unwrap().pop().unwrap();
        let heads = store.run_heads(study.id).unwrap();
        assert_eq!(heads.len(), 2, "{name}");
        for head in &heads {
            let end = store.run(head.id).unwrap().end.unwrap();
            assert_eq!(end.status, Status::Done, "{name}: {:?}", end.error);
            assert!(!end.warnings.iter().any(|told| told.contains("worked on while")), "{:?}", end.warnings);
            assert!(end.duel.is_some_and(|duel| duel.slices.len() >= 2), "{name}");
            if head.start.key["replicas"] == "async" {
                assert!(end.facts["debt/replica 1"].contains("caught up"), "{name}: {:?}", end.facts);
            }
            // In a duel the replica's work beside the other side is looked at as its primary's.
            let waiting = end.gates.iter().find(|gate| gate.name == "waiting_server");
            assert_eq!(
                waiting.map(|gate| gate.finding),
                (name == "duel").then_some(Finding::Held),
                "{waiting:?}"
            );
        }
    }
}

#[test]
fn a_command_line_has_replicas_too() {
    if !servers_are_there() {
        return;
    }
    let bench = |words: &[&str]| {
        let always = [
            "bench",
            "oltp_read_write",
            "-o",
            "table_size=1000",
            "--sessions",
            "2",
            "--time",
            "1s",
            "--json",
            "-",
        ];
        Done::of(plimsoll().args(always).args(words).output().unwrap())
    };
    let done = bench(&["--server", "mariadb", "--replicas", "semi-sync"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let line: serde_json::Value = serde_json::from_str(done.out.trim()).unwrap();
    let replica = &line["replicas"][0];
    assert!(replica["what"].as_str().unwrap().contains("semi-sync"), "{replica}");
    assert!(replica["caught_up_s"].as_f64().is_some_and(|took_s| took_s < 60.0), "{replica}");
    bench(&["--server", "postgres", "--replicas", "semi-sync"])
        .expect(2, &["`semi-sync`", "`async` or `sync`"]);
    bench(&["--server", "mysql://root@127.0.0.1:1/x", "--replicas", "1"])
        .expect(2, &["--replicas", "runs already"]);
    bench(&["--server", "mariadb", "--replicas", "assync"]).expect(2, &["none, async, semi-sync, sync"]);
    let results = tempfile::tempdir().unwrap();
    let line = Done::of(
        plimsoll()
            .args([
                "line",
                "oltp_read_write",
                "-o",
                "table_size=1000",
                "--server",
                "mariadb",
                "--replicas",
                "async",
            ])
            .args(["--promise", "p95 < 200ms", "--budget", "20s", "--hold", "2s", "--results"])
            .arg(results.path())
            .output()
            .unwrap(),
    );
    assert!(matches!(line.code, Some(0 | 1)), "{}", line.err);
    let store = Store::open_read_only(results.path()).unwrap();
    let study = store.studies().unwrap().pop().unwrap();
    let head = store.run_heads(study.id).unwrap().pop().unwrap();
    assert_eq!(head.start.key["replicas"], "async");
    assert!(store.run(head.id).unwrap().end.unwrap().facts.contains_key("debt/replica 1"));
}
