//! Workloads of one's own, named by their path: run as they were read, and told apart by what is in them.

mod common;

use std::path::Path;

use common::{Done, SMACK, contract, plimsoll, run, servers_are_there};
use serde_json::Value;
use store::{Status, Store};

const BANK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/workloads/bank.sql");
const SHORT: [&str; 6] = ["--time", "1s", "--warmup", "100ms", "--seed", "7"];

fn line(out: &str) -> Value {
    let line: Value = serde_json::from_str(out.trim()).unwrap();
    // On a busy machine a run is invalid, but it is made.
    assert_ne!(line["status"], "failed", "{line}");
    contract::check_line(&line);
    line
}

#[test]
fn a_file_of_transactions_runs_by_its_path() {
    if !servers_are_there() {
        return;
    }
    for server in ["mariadb", "postgres"] {
        let bench = ["bench", BANK, "--server", server, "-o", "accounts=500", "--json", "-"];
        let line = line(&run(&[&bench[..], &SHORT[..]].concat()).expect(0, &[]).out);
        assert_eq!(line["workload"], "bank", "{line}");
        assert_eq!(line["options"]["accounts"], "500");
        assert!(line["by_statement"]["take"]["count"].as_u64().unwrap() > 0, "{line}");
        assert!(line["outcomes"]["rolled_back"].as_u64().unwrap() > 0, "{line}");
    }
}

#[test]
fn a_smack_runs_by_its_path_with_the_data_file_beside_it() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("colours.smack");
    std::fs::write(&path, SMACK).unwrap();
    std::fs::write(dir.path().join("colours.dat"), "red,1\ngreen,2\nblue,3\n").unwrap();
    let path = path.display().to_string();
    let bench = ["bench", &path, "--server", "mariadb", "--json", "-"];
    let line = line(&run(&[&bench[..], &SHORT[..]].concat()).expect(0, &[]).out);
    assert_eq!(line["workload"], "colours", "{line}");
    assert!(line["outcomes"]["committed"].as_u64().unwrap() > 0, "{line}");
}

#[test]
fn a_file_that_is_wrong_or_missing_is_refused_where_it_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("wrong.sql");
    std::fs::write(&path, "\\optoin n 1\nSELECT 1;\n").unwrap();
    let path = path.display().to_string();
    run(&["bench", &path, "--server", "mariadb"]).expect(2, &["wrong.sql:1:", "optoin"]);
    run(&["bench", "nowhere.sql", "--server", "mariadb"]).expect(2, &["nowhere.sql", "No such file"]);
}

/// A study of a file of its own beside it.
fn study(dir: &Path, transactions: &str) -> (String, String) {
    let workload = dir.join("own.sql").display().to_string();
    write_workload(&workload, transactions);
    let path = dir.join("own.toml").display().to_string();
    let text = format!(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"postgres\"\nworkload = {{ workload = \"{workload}\", \
         label = \"own\" }}\n[load]\nwarmup = \"100ms\"\nduration = \"1s\"\nblocks = 2\nseed = 1\ngates = \"warn\"\n"
    );
    std::fs::write(&path, text).unwrap();
    (path, workload)
}

fn write_workload(path: &str, transactions: &str) {
    let text = format!(
        "\\setup\nDROP TABLE IF EXISTS t;\nCREATE TABLE t (n BIGINT);\n\\fill t (n) 100: :row\n\\transaction only\n{transactions}\n"
    );
    std::fs::write(path, text).unwrap();
}

/// Status of each run with the hash of the workload that it ran.
fn contents(results: &Path) -> Vec<(Status, String)> {
    let store = Store::open_read_only(results).unwrap();
    let mut all = Vec::new();
    for study in store.studies().unwrap() {
        for head in store.run_heads(study.id).unwrap() {
            let end = store.run(head.id).unwrap().end.unwrap();
            all.push((end.status, end.facts["sha256 of the workload's file"].clone()));
        }
    }
    all
}

#[test]
fn a_workload_that_is_edited_between_two_resumes_never_mixes_with_what_it_was() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let (study, workload) = study(dir.path(), "SELECT n FROM t WHERE n = 1;");
    let run = |more: &[&str]| {
        Done::of(plimsoll().args(["run", &study, "--results"]).arg(&results).args(more).output().unwrap())
    };
    run(&["--only", "block=1"]).expect(0, &[]);
    write_workload(&workload, "SELECT SUM(n) FROM t;");
    run(&[]).expect(2, &["own.sql, a workload of", "own.toml, has changed", "--new", "bring the file back"]);
    assert_eq!(contents(&results).len(), 1, "nothing was run");

    write_workload(&workload, "SELECT n FROM t WHERE n = 1;");
    run(&[]).expect(0, &["1 of them recorded before"]);
    let first = contents(&results);
    assert_eq!(first.len(), 2);
    assert_eq!(first[0].1, first[1].1, "one workload in one cell");

    // Of a finished study the changed file makes another one.
    write_workload(&workload, "SELECT SUM(n) FROM t;");
    run(&[]).expect(0, &[]);
    let all = contents(&results);
    assert_eq!(all.len(), 4);
    assert!(all[2].1 == all[3].1 && all[2].1 != all[0].1, "{all:?}");
}
