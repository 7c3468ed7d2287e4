//! kill -9 of a writer and a full disk lose at most the run in progress.

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{end, host, read_back, start, study};
use store::*;

const DIRECTORY: &str = "PLIMSOLL_TEST_STORE_DIRECTORY";

/// Not a test: the process that [`a_killed_writer_loses_nothing_that_it_was_told_is_recorded`] kills.
#[test]
#[ignore = "started by another test as a process of its own"]
fn writer_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let mut store = Store::open(Path::new(&directory)).unwrap();
    let study_id = match store.studies().unwrap().first() {
        Some(record) => record.id,
        None => store.add_study(&study("a")).unwrap(),
    };
    store.interrupt_running(study_id).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    loop {
        let run = store.begin_run(study_id, &start(host_id, None, 1)).unwrap();
        store.finish_run(run, &end(20)).unwrap();
        println!("recorded {}", run.0);
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_was_told_is_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let mut recorded = Vec::new();
    for round in 0..6_u64 {
        let mut writer = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "writer_process", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let run_of = |line: std::io::Result<String>| {
            line.unwrap().rsplit_once("recorded ").map(|(_, run)| RunId(run.parse().unwrap()))
        };
        // At least one run, then the kill comes at another point of the next one in each round.
        recorded.push(lines.by_ref().find_map(run_of).expect("the writer records a run"));
        std::thread::sleep(Duration::from_micros(round * 1700));
        writer.kill().unwrap();
        writer.wait().unwrap();
        recorded.extend(lines.filter_map(run_of));

        let store = Store::open_read_only(directory.path()).unwrap();
        let heads = store.run_heads(store.studies().unwrap()[0].id).unwrap();
        let running: Vec<_> = heads.iter().filter(|head| head.status == Status::Running).collect();
        assert!(running.len() <= 1, "{running:?}");
        for run in &recorded {
            let run = store.run(*run).unwrap();
            assert_eq!(run.head.status, Status::Done);
            assert_eq!(run.end, Some(read_back(end(20))));
        }
        for head in heads.iter().filter(|head| head.status != Status::Done) {
            assert_eq!(store.run(head.id).unwrap().end, None, "half a run was stored");
        }
    }
}

/// Not a test: runs on a small file system of its own, mounted by [`a_full_disk_is_reported_and_survived`].
#[test]
#[ignore = "started by another test on a small file system"]
fn full_disk_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let directory = Path::new(&directory);
    let mut store = Store::open(directory).unwrap();
    let study_id = store.add_study(&study("a")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let first = store.record_run(study_id, &start(host_id, None, 1), &end(20)).unwrap();
    let ballast = directory.join("ballast");
    let _ = std::fs::write(&ballast, vec![1_u8; 64 << 20]).expect_err("the file system is small");
    let mut recorded = vec![first];
    let error = loop {
        match store.record_run(study_id, &start(host_id, None, 2), &end(200)) {
            Ok(run) => recorded.push(run),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    for run in &recorded {
        assert_eq!(store.run(*run).unwrap().head.status, Status::Done);
    }
    std::fs::remove_file(ballast).unwrap();
    let after = store.record_run(study_id, &start(host_id, None, 3), &end(20)).unwrap();
    assert_eq!(store.run(after).unwrap().end, Some(read_back(end(20))));
    println!("full disk survived");
}

#[test]
fn a_full_disk_is_reported_and_survived() {
    let directory = tempfile::tempdir().unwrap();
    let script = r#"mount -t tmpfs -o size=4m none "$1" || exit 77
        exec "$2" --exact full_disk_process --ignored --nocapture"#;
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .env(DIRECTORY, directory.path())
        .output();
    let Ok(output) = output else {
        testkit::not_tested("a full disk below a results file", "it needs the command unshare (util-linux)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && !text.contains("running 1 test") {
        testkit::not_tested(
            "a full disk below a results file",
            format!("it needs a mount namespace: {errors}"),
        );
        return;
    }
    assert!(output.status.success() && text.contains("full disk survived"), "{text}\n{errors}");
}
