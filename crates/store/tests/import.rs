//! Runs of another results file come once, whole, and change nothing that is here.

mod common;

use common::{build, end, host, start, study};
use store::*;

/// A results file with one ended run of `block` on a machine of that name, and one that goes on.
fn part(dir: &std::path::Path, name: &str, block: u32, at_ms: i64) -> (Store, StudyId) {
    let mut store = Store::open(&dir.join(name)).unwrap();
    let id = store.add_study(&study("a")).unwrap();
    let machine = store.add_host(&Host { name: name.to_owned(), ..host() }).unwrap();
    let build = store.add_build(&build()).unwrap();
    let of_block = RunStart { block, repeat: block, started_at_ms: at_ms, ..start(machine, Some(build), 1) };
    let run = store.begin_run(id, &of_block).unwrap();
    store.finish_run(run, &RunEnd { log_file: "logs/a.log".to_owned(), ..end(10) }).unwrap();
    let going_on = RunStart { block: block + 50, ..of_block };
    store.begin_run(id, &going_on).unwrap();
    let canary = Canary { block, when: "before".to_owned(), measured_at_ms: at_ms, figures: vec![] };
    store.add_canary(id, machine, &canary).unwrap();
    store.add_note(id, at_ms, "a note").unwrap();
    (store, id)
}

#[test]
fn runs_come_whole_and_once_however_often_they_are_imported() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Store::open(&dir.path().join("all")).unwrap();
    let into = all.add_study(&study("a")).unwrap();
    let (one, one_id) = part(dir.path(), "n1", 1, 1000);
    let (two, two_id) = part(dir.path(), "n2", 2, 2000);
    let log = |file: &str| format!("logs/n/{file}");
    for round in 0..3 {
        for (store, id) in [(&one, one_id), (&two, two_id)] {
            let got = all.import(into, store, id, &log).unwrap();
            let wanted = if round == 0 { (1, 0) } else { (0, 1) };
            assert_eq!((got.runs, got.known), wanted);
        }
    }
    let heads = all.run_heads(into).unwrap();
    assert_eq!(heads.iter().map(|head| head.start.block).collect::<Vec<_>>(), [1, 2]);
    for (head, source, id) in [(&heads[0], &one, one_id), (&heads[1], &two, two_id)] {
        let original = source.run_heads(id).unwrap().remove(0);
        let (mut wanted, got) = (source.run(original.id).unwrap(), all.run(head.id).unwrap());
        wanted.end.as_mut().unwrap().log_file = "logs/n/logs/a.log".to_owned();
        assert_eq!(got.end, wanted.end);
        assert_eq!(all.host(head.start.host).unwrap(), source.host(original.start.host).unwrap());
        assert_eq!(all.build(head.start.build.unwrap()).unwrap(), build());
        let steps = wanted.end.as_ref().unwrap().steps.len();
        assert!(steps > 0);
        for step in 0..steps {
            let seconds = all.intervals(head.id, step).unwrap();
            assert_eq!(seconds, source.intervals(original.id, step).unwrap());
        }
    }
    assert_eq!(all.canaries(into).unwrap().len(), 2);
    assert_eq!(all.studies().unwrap()[0].notes.len(), 2);
}

/// The same block once more, on other machines: all are kept, and the one that was begun last is the last attempt, although
/// a task that its scheduler took for lost tells of its own after that.
#[test]
fn a_block_that_was_repeated_is_a_later_attempt_in_whatever_order_they_come() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Store::open(&dir.path().join("all")).unwrap();
    let into = all.add_study(&study("a")).unwrap();
    for (name, at_ms) in [("n2", 2000), ("n3", 3000), ("n1", 1000)] {
        let (from, id) = part(dir.path(), name, 1, at_ms);
        all.import(into, &from, id, &str::to_owned).unwrap();
    }
    let mut attempts: Vec<(i64, u32)> =
        all.run_heads(into).unwrap().iter().map(|head| (head.start.started_at_ms, head.attempt)).collect();
    attempts.sort_unstable();
    assert_eq!(attempts, [(1000, 1), (2000, 2), (3000, 3)]);
}

/// What another file says is not trusted to be whole: nothing of it comes when a part of it cannot be read.
#[test]
fn a_damaged_file_gives_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut all = Store::open(&dir.path().join("all")).unwrap();
    let into = all.add_study(&study("a")).unwrap();
    let (one, one_id) = part(dir.path(), "n1", 1, 1000);
    let sql = "UPDATE run SET gates='[' WHERE status<>'running'";
    store::testing::connection(&one).execute_batch(sql).unwrap();
    assert!(all.import(into, &one, one_id, &str::to_owned).is_err());
    assert_eq!(all.run_heads(into).unwrap(), []);
    assert_eq!(all.canaries(into).unwrap(), []);
}

#[test]
fn rows_of_one_plan_are_known_by_what_was_planned() {
    let one = study("a");
    let later = Study { created_at_ms: 5, command: "again".to_owned(), blocks: 9, ..study("a") };
    assert!(one.is_same_plan(&later));
    for other in [
        Study { seed: 1, ..study("a") },
        Study { fingerprint: "other".to_owned(), ..study("a") },
        Study { is_quick: true, ..study("a") },
        Study { plan: serde_json::json!({"servers": ["other"]}), ..study("a") },
        study("b"),
    ] {
        assert!(!one.is_same_plan(&other), "{other:?}");
    }
}
