//! Studies that end when they are decided, or out of time, that get more blocks later, and whose runs are lost.

mod common;

use std::path::Path;

use common::{Done, plimsoll, run, servers_are_there};
use store::Store;

/// A range of 2,000 rows takes many times as long as one of 10, on however busy a machine.
const FILE: &str = r#"
title = "Until decided"
question = "Does a long range cost?"
[axes]
server = "mariadb"
workload = "oltp_read_only"
options = { range_size = [10, 2000] }
climb = [1, 2]
[options]
tables = 1
table_size = 3000
[load]
warmup = "100ms"
duration = "400ms"
gates = "warn"
LOAD
[compare]
axis = "range_size"
base = "10"
metrics = ["tps", "mean"]
primary = { metric = "tps", climb = 2 }
"#;

fn run_study(dir: &Path, load: &str) -> Done {
    let path = dir.join("watched.toml");
    std::fs::write(&path, FILE.replace("LOAD", load)).unwrap();
    let results = dir.join("results");
    Done::of(plimsoll().arg("run").arg(path).arg("--results").arg(results).output().unwrap())
}

/// The study's blocks, its looks, and for each comparison whether it is primary, its method and its verdict.
fn found(dir: &Path) -> (u32, usize, Vec<(bool, String, String)>) {
    let results = dir.join("results");
    let store = Store::open_read_only(&results).unwrap();
    let studies = store.studies().unwrap();
    assert_eq!(studies.len(), 1, "it is one study");
    let blocks = store.run_heads(studies[0].id).unwrap().iter().map(|head| head.start.block).max();
    let looks = store.looks(studies[0].id).unwrap().len();
    let done = run(&["report", "--json", "-", "--results", results.to_str().unwrap()]).expect(0, &[]);
    let json: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    // What is asked for: the server's CPU per transaction stands beside it.
    let comparisons = json["comparisons"].as_array().unwrap().iter();
    let comparisons = comparisons.filter(|c| c["metric"] != "cpu_us_per_transaction");
    let method =
        |c: &serde_json::Value| text(&c["method"]) + if c["last_look"] == true { ", last look" } else { "" };
    let comparisons =
        comparisons.map(|c| (c["is_primary"] == true, method(c), text(&c["verdict"]))).collect();
    (blocks.unwrap(), looks, comparisons)
}

#[test]
fn a_study_ends_when_its_primary_comparison_is_decided() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let watched = "until = \"decided\"\nblocks = { min = 5, max = 12 }";
    let done = run_study(dir.path(), watched).expect(0, &["look 1, after block 5"]);
    assert!(done.out.contains("decided after "), "{}", done.out);
    let (blocks, looks, comparisons) = found(dir.path());
    assert!((5..12).contains(&blocks), "{blocks} blocks");
    assert_eq!(looks, blocks as usize - 4);
    let primary: Vec<bool> = comparisons.iter().map(|comparison| comparison.0).collect();
    // Throughput and mean at both levels and over the climb, one of them what it is about.
    assert_eq!(primary, [true, false, false, false, false, false], "{comparisons:?}");
    assert!(comparisons.iter().all(|comparison| comparison.1 == "anytime t"), "{comparisons:?}");
    assert_eq!(comparisons[0].2, "slower");

    // The same command has nothing to do, and has seen nothing new.
    let again = run_study(dir.path(), watched).expect(0, &[]);
    assert!(again.out.contains("Everything was recorded before"), "{}", again.out);
    // A budget is no other study; what was spent counts, over all commands.
    let budget = "until = \"decided\"\nblocks = { min = 9, max = 12 }\nbudget = \"1s\"";
    let over = run_study(dir.path(), budget).expect(0, &[]);
    assert!(over.out.contains("its budget is used up"), "{}", over.out);
    assert_eq!((found(dir.path()).0, found(dir.path()).1), (blocks, looks));
    // Whoever moves the end has seen what there is: it is no last look.
    assert!(found(dir.path()).2.iter().all(|comparison| comparison.1 == "anytime t"));
}

#[test]
fn a_study_that_is_over_by_its_blocks_is_looked_at_a_last_time() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    run_study(dir.path(), "until = \"decided\"\nblocks = { min = 5, max = 5 }")
        .expect(0, &["look 1, after block 5"]);
    let (blocks, looks, comparisons) = found(dir.path());
    assert_eq!((blocks, looks), (5, 1));
    assert!(comparisons.iter().all(|comparison| comparison.1 == "anytime t, last look"), "{comparisons:?}");
}

#[test]
fn a_study_whose_blocks_grew_keeps_those_it_has_and_is_judged_as_watched() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    run_study(dir.path(), "blocks = 5").expect(0, &[]);
    let (blocks, _, comparisons) = found(dir.path());
    assert_eq!((blocks, comparisons[0].1.as_str()), (5, "paired t"));
    let grown = run_study(dir.path(), "blocks = 6").expect(0, &["10 of them recorded before"]);
    assert!(!grown.out.contains("still to be made"), "{}", grown.out);
    let (blocks, _, comparisons) = found(dir.path());
    assert_eq!((blocks, comparisons[0].1.as_str()), (6, "anytime t"));
}

/// MariaDB rounds this size down to 128, so that the gate `settings` excludes each run of the second cell.
const LOST: &str = r#"
title = "Lost runs"
question = "What becomes of runs that do not count?"
[axes]
server = "mariadb"
workload = "oltp_point_select"
settings = ["default", { name = "odd", mysql = { join_buffer_size = 129 } }]
[options]
tables = 1
table_size = 1000
[load]
warmup = "100ms"
duration = "300ms"
gates = "warn"
blocks = 5
[compare]
axis = "settings"
base = "default"
"#;

#[test]
fn lost_runs_are_made_again_in_their_block_and_a_comparison_without_them_is_an_end_with_1() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, results) = (dir.path().join("lost.toml"), dir.path().join("results"));
    std::fs::write(&file, LOST).unwrap();
    let done = Done::of(plimsoll().arg("run").arg(&file).arg("--results").arg(&results).output().unwrap())
        .expect(1, &["it is made again later in its block"]);
    assert!(done.out.contains("left fewer than 5 blocks"), "{}", done.out);
    assert!(done.out.contains("tps of odd against default"), "{}", done.out);
    let store = Store::open_read_only(&results).unwrap();
    let heads = store.run_heads(store.studies().unwrap()[0].id).unwrap();
    let blocks: Vec<u32> = heads.iter().map(|head| head.start.block).collect();
    assert!(blocks.is_sorted(), "in the same block: {blocks:?}");
    for index in 0..10 {
        let attempts: Vec<_> = heads.iter().filter(|head| head.start.index == index).collect();
        let is_odd = attempts[0].start.key["settings"] == "odd";
        assert_eq!(attempts.len(), if is_odd { 3 } else { 1 }, "run {index}");
    }
}
