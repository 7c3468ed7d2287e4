//! Duels in studies, end to end: planned, told, recorded, and gone on with after every kind of interruption.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{Done, Running, plimsoll, run, servers_are_there, signal, wait_until};
use store::{RunHead, Status, Store};

const LIMIT: Duration = Duration::from_secs(300);

/// Two duels of a server with itself in each block.
fn study(dir: &Path, blocks: u32) -> String {
    let path = dir.join("duels.toml");
    let text = format!(
        "title = \"duels\"\nquestion = \"q\"\n[axes]\nserver = [{{ server = \"mariadb\", label = \"a\" }}, {{ server = \"mariadb\", \
         label = \"b\" }}]\nworkload = \"oltp_read_write\"\nsessions = [1, 2]\n[options]\ntable_size = 1000\n[load]\npairing = \
         \"duel\"\nwarmup = \"100ms\"\nduration = \"2s\"\nblocks = {blocks}\nseed = 1\ngates = \"warn\"\n[compare]\naxis = \
         \"server\"\nbase = \"a\"\nmetrics = [\"tps\"]\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn heads(results: &Path) -> Vec<RunHead> {
    let Ok(store) = Store::open_read_only(results) else { return Vec::new() };
    let studies = store.studies().unwrap_or_default();
    studies.last().map(|study| store.run_heads(study.id).unwrap_or_default()).unwrap_or_default()
}

fn statuses(results: &Path) -> Vec<Status> {
    heads(results).iter().map(|head| head.status).collect()
}

#[test]
fn a_dry_run_says_that_there_are_duels() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let done = run(&["run", &study(dir.path(), 1), "--dry-run"]).expect(0, &[]);
    assert!(done.out.contains("loaded in turns, 4 slices of half a second each"), "{}", done.out);
}

#[test]
fn a_kill_or_ctrl_c_in_a_duel_loses_that_duel_and_nothing_else() {
    if !servers_are_there() {
        return;
    }
    for (by, code) in [("KILL", None), ("INT", Some(4))] {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("results");
        let study = study(dir.path(), 1);
        let mut command = plimsoll();
        command.args(["run", &study, "--results"]).arg(&results).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = Running(command.spawn().unwrap());
        // Stopped while it is looked at: the second duel is under way.
        wait_until(LIMIT, "the second duel", || {
            signal(child.id(), "STOP");
            let found = statuses(&results);
            let is_under_way = found.len() == 4 && found[2..] == [Status::Running; 2];
            if !is_under_way {
                signal(child.id(), "CONT");
            }
            is_under_way
        });
        signal(child.id(), by);
        signal(child.id(), "CONT");
        assert_eq!(child.wait().unwrap().code(), code);
        let before = statuses(&results);
        assert!(
            before[..2].iter().all(|status| matches!(status, Status::Done | Status::Invalid)),
            "{before:?}"
        );
        assert!(!before[2..].contains(&Status::Done), "{before:?}");

        let again = plimsoll().args(["run", &study, "--results"]).arg(&results).output().unwrap();
        let again = Done::of(again);
        assert_ne!(again.code, Some(2), "{}", again.err);
        let after = heads(&results);
        let of =
            |index: u32| after.iter().filter(move |head| head.start.index == index).map(|head| head.status);
        for index in 0..4 {
            assert!(of(index).any(|status| status == Status::Done), "run {index}: {:?}", statuses(&results));
        }
        assert_eq!(of(2).chain(of(3)).filter(|status| *status == Status::Interrupted).count(), 2, "{by}");
        // Each is a run with its slices.
        let store = Store::open_read_only(&results).unwrap();
        for head in after.iter().filter(|head| head.status == Status::Done) {
            let duel = store.run(head.id).unwrap().end.unwrap().duel.unwrap();
            assert_eq!(duel.sides, 2);
            assert!((4..=8).contains(&duel.slices.len()), "{:?}", duel.slices);
        }
    }
}

#[test]
fn one_running_server_cannot_duel_with_itself_and_has_its_runs_side_by_side() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let text = std::fs::read_to_string(study(dir.path(), 1)).unwrap();
    let url = format!("mysql://root@localhost/?socket={}", server.socket().display());
    let path = dir.path().join("attached.toml");
    std::fs::write(&path, text.replace("\"mariadb\"", &format!("\"{url}\"")).replace("[1, 2]", "1")).unwrap();
    let done = plimsoll().arg("run").arg(&path).arg("--results").arg(&results).output().unwrap();
    let done = Done::of(done);
    assert!(done.err.contains("no duel: two sides are the same running server"), "{}", done.err);
    let store = Store::open_read_only(&results).unwrap();
    let heads = heads(&results);
    assert_eq!(heads.len(), 2);
    for head in heads {
        let end = store.run(head.id).unwrap().end.unwrap();
        assert!(end.duel.is_none() && end.warnings.iter().any(|text| text.contains("no duel")), "{end:?}");
    }
}
