//! What is written comes back; what is recorded stays; what is not ours is refused.

mod common;

use common::{build, end, host, read_back, start, study};
use store::*;

#[test]
fn everything_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(&directory.path().join("made/on the way")).unwrap();
    let study_id = store.add_study(&study("a")).unwrap();
    store.add_note(study_id, 5, "cell left out").unwrap();
    store.add_command(study_id, 6, "plimsoll run a.toml").unwrap();
    store.set_study_state(study_id, "complete").unwrap();
    let host_id = store.add_host(&host()).unwrap();
    assert_eq!(store.add_host(&host()).unwrap(), host_id, "the same facts give the same row");
    let rebooted = store.add_host(&Host { boot_id: "b2".to_owned(), ..host() }).unwrap();
    assert_ne!(rebooted, host_id);
    let build_id = store.add_build(&build()).unwrap();
    assert_eq!(store.add_build(&build()).unwrap(), build_id);
    let probe = Probe {
        place: "default".to_owned(),
        path: "/var/lib".to_owned(),
        facts: [("fs".to_owned(), "ext4".to_owned())].into(),
        tool: "fio 3.33".to_owned(),
        measured_at_ms: 9,
        figures: vec![Quantity { name: "fsync".to_owned(), value: 59.0, unit: "us".to_owned() }],
    };
    store.add_probe(study_id, host_id, &probe).unwrap();
    let canary =
        Canary { block: 1, when: "before".to_owned(), measured_at_ms: 8, figures: probe.figures.clone() };
    store.add_canary(study_id, host_id, &canary).unwrap();
    let reference = Reference {
        series: "MySQL 5.1".to_owned(),
        source: "Maxia".to_owned(),
        year: 2009,
        machine: "E5450".to_owned(),
        metric: "tps".to_owned(),
        unit: "1/s".to_owned(),
        key: Key::from([("sessions".to_owned(), 8.into())]),
        value: 1000.0,
    };
    store.add_references(study_id, std::slice::from_ref(&reference)).unwrap();
    let run_start = start(host_id, Some(build_id), 1);
    let run = store.begin_run(study_id, &run_start).unwrap();
    let running = store.run(run).unwrap();
    assert_eq!((running.head.status, running.end), (Status::Running, None));
    let run_end = end(10);
    store.finish_run(run, &run_end).unwrap();
    let path = store.path().to_owned();
    drop(store);

    let store = Store::open_read_only(&path).unwrap();
    let studies = store.studies().unwrap();
    assert_eq!(studies.len(), 1);
    assert_eq!(studies[0].study, study("a"));
    assert_eq!(studies[0].state, "complete");
    assert_eq!(studies[0].notes, vec![(5, "cell left out".to_owned())]);
    assert_eq!(studies[0].commands, vec![(6, "plimsoll run a.toml".to_owned())]);
    assert_eq!(store.host(host_id).unwrap(), host());
    assert_eq!(store.build(build_id).unwrap(), build());
    assert_eq!(store.build(build_id).unwrap().name(), "mariadb@11.4.5+gcc14");
    assert_eq!(store.probes(study_id).unwrap(), vec![(host_id, probe)]);
    assert_eq!(store.canaries(study_id).unwrap(), vec![(host_id, canary)]);
    assert_eq!(store.references(study_id).unwrap(), vec![reference]);
    let back = store.run(run).unwrap();
    assert_eq!(back.head.start, run_start);
    assert_eq!(back.head.attempt, 1);
    assert_eq!(store.intervals(run, 0).unwrap(), run_end.steps[0].intervals);
    assert_eq!(back.end, Some(read_back(run_end)));
}

#[test]
fn what_was_recorded_while_a_run_went_on_is_part_of_it() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let study_id = store.add_study(&study("soak")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let run = store.begin_run(study_id, &start(host_id, None, 1)).unwrap();
    let whole = end(100);
    let mut rest = whole.clone();
    for _ in 0..3 {
        let batch: Vec<_> = rest.steps[0].intervals.drain(..30).collect();
        store.add_intervals(run, (0, 8), &batch).unwrap();
    }
    let point = rest.series[0].points.remove(0);
    store.add_series(run, &[store::Series { points: vec![point], ..rest.series[0].clone() }]).unwrap();
    assert_eq!(store.run(run).unwrap().end, None, "it goes on");
    store.finish_run(run, &rest).unwrap();
    assert_eq!(store.intervals(run, 0).unwrap(), whole.steps[0].intervals);
    let back = store.run(run).unwrap().end.unwrap();
    assert_eq!((&back.steps[0].seconds, &back.series), (&whole.steps[0].seconds, &whole.series));
    assert_eq!(back.steps[0].response, whole.steps[0].response);
    assert!(store.add_intervals(run, (0, 8), &[]).is_err(), "a recorded run is left alone");
}

#[test]
fn series_of_a_long_run_are_read_as_means_over_spans() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let study_id = store.add_study(&study("soak")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let mut long = end(1);
    long.series[0].points = (0..10_000).map(|t| (f64::from(t), f64::from(t % 2))).collect();
    let run = store.record_run(study_id, &start(host_id, None, 1), &long).unwrap();
    let points = store.run(run).unwrap().end.unwrap().series.remove(0).points;
    assert_eq!(points.len(), 3334, "spans of three");
    assert_eq!((points[0], points[3333]), ((2.0, 1.0 / 3.0), (9999.0, 1.0)));
}

#[test]
fn a_step_that_a_run_broke_off_in_leaves_its_seconds_and_no_figures() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let study_id = store.add_study(&study("soak")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let run = store.begin_run(study_id, &start(host_id, None, 1)).unwrap();
    let seconds = end(10).steps.remove(0).intervals;
    store.add_intervals(run, (0, 8), &seconds).unwrap();
    let failed = store::RunEnd::new(Status::Failed, 5);
    store.finish_run(run, &failed).unwrap();
    assert_eq!(store.run(run).unwrap().end, Some(failed));
    assert_eq!(store.intervals(run, 0).unwrap(), seconds);
}

#[test]
fn a_recorded_run_is_never_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let study_id = store.add_study(&study("a")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let run_start = start(host_id, None, 1);
    let run = store.record_run(study_id, &run_start, &end(1)).unwrap();
    let other = RunEnd { status: Status::Failed, error: Some("no".to_owned()), ..end(3) };
    assert!(matches!(store.finish_run(run, &other), Err(Error::Recorded { .. })));
    assert_eq!(store.run(run).unwrap().end, Some(read_back(end(1))));
    // The same cell again is another attempt.
    let again = store.begin_run(study_id, &run_start).unwrap();
    store.finish_run(again, &other).unwrap();
    let heads = store.run_heads(study_id).unwrap();
    let seen: Vec<_> = heads.iter().map(|head| (head.id, head.attempt, head.status)).collect();
    assert_eq!(seen, vec![(run, 1, Status::Done), (again, 2, Status::Failed)]);
    assert!(matches!(store.finish_run(RunId(99), &other), Err(Error::Absent { .. })));
    assert!(matches!(store.run(RunId(99)), Err(Error::Absent { .. })));
}

#[test]
fn runs_left_running_become_interrupted_and_only_those_of_the_study() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let (a, b) = (store.add_study(&study("a")).unwrap(), store.add_study(&study("b")).unwrap());
    let host_id = store.add_host(&host()).unwrap();
    let done = store.record_run(a, &start(host_id, None, 1), &end(1)).unwrap();
    let left = store.begin_run(a, &start(host_id, None, 2)).unwrap();
    let elsewhere = store.begin_run(b, &start(host_id, None, 1)).unwrap();
    assert_eq!(store.interrupt_running(a).unwrap(), 1);
    assert_eq!(store.run(done).unwrap().head.status, Status::Done);
    assert_eq!(store.run(left).unwrap().head.status, Status::Interrupted);
    assert_eq!(store.run(elsewhere).unwrap().head.status, Status::Running);
    assert!(store.finish_run(left, &end(1)).is_err(), "an interrupted run is recorded");
}

#[test]
fn what_is_not_ours_is_refused_untouched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE_NAME);
    let missing = Store::open_read_only(directory.path()).unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");

    let text = b"this is a text file, long enough to be read as a header of a database".repeat(20);
    std::fs::write(&path, &text).unwrap();
    for error in [Store::open(directory.path()).unwrap_err(), Store::open_read_only(&path).unwrap_err()] {
        assert!(matches!(error, Error::Foreign { .. }), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), text);

    std::fs::remove_file(&path).unwrap();
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE song (id INTEGER)").unwrap();
    drop(other);
    let error = Store::open(directory.path()).unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
}

#[test]
fn a_newer_file_is_refused_with_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let path = Store::open(directory.path()).unwrap().path().to_owned();
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.pragma_update(None, "user_version", 999).unwrap();
    drop(connection);
    for error in [Store::open(directory.path()).unwrap_err(), Store::open_read_only(&path).unwrap_err()] {
        assert!(matches!(error, Error::Newer { found: 999, .. }), "{error}");
        assert!(error.to_string().contains("999") && error.to_string().contains("newer"), "{error}");
    }
}

#[test]
fn a_step_of_an_earlier_version_is_kept_and_says_nothing_of_what_it_did_not_measure() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let study_id = store.add_study(&study("a")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let run = store.record_run(study_id, &start(host_id, None, 1), &end(3)).unwrap();
    let path = store.path().to_owned();
    drop(store);
    // As version 3 wrote it.
    let old = rusqlite::Connection::open(&path).unwrap();
    for column in ["arrivals_offered", "failed", "unended", "unended_from_ms", "stalled_s", "freeze_s"] {
        old.execute_batch(&format!("ALTER TABLE step DROP COLUMN {column}")).unwrap();
    }
    for table in ["look", "change_decision", "line_probe", "line_search"] {
        old.execute_batch(&format!("DROP TABLE {table}")).unwrap();
    }
    for column in ["duel", "line_id", "interventions"] {
        old.execute_batch(&format!("ALTER TABLE run DROP COLUMN {column}")).unwrap();
    }
    old.execute_batch("ALTER TABLE study DROP COLUMN ended_at_ms").unwrap();
    old.pragma_update(None, "user_version", 3).unwrap();
    drop(old);
    let mut expected = read_back(end(3)).steps;
    for step in &mut expected {
        step.arrivals_offered = None;
        step.failed = None;
        step.unended = None;
        step.stalls = None;
    }
    let read_only = Store::open_read_only(&path).unwrap();
    assert_eq!(read_only.run(run).unwrap().end.unwrap().steps, expected);
    drop(read_only);
    let migrated = Store::open(directory.path()).unwrap();
    assert_eq!(migrated.run(run).unwrap().end.unwrap().steps, expected);
}

#[test]
fn a_count_that_cannot_be_is_an_error_not_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let study_id = store.add_study(&study("a")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let run = store.record_run(study_id, &start(host_id, None, 1), &end(2)).unwrap();
    let connection = rusqlite::Connection::open(store.path()).unwrap();
    // Found by fuzzing: read as the bits of a large number, they were added up.
    for (table, column) in [("interval", "reads"), ("interval", "deadlock"), ("step", "committed")] {
        for value in ["-1", "9223372036854775807"] {
            connection.execute_batch(&format!("UPDATE {table} SET {column}={value}")).unwrap();
            let error = store.run(run).unwrap_err();
            assert!(matches!(error, Error::Damaged { .. }), "{table}.{column}={value}: {error}");
            assert!(error.to_string().contains("is no count"), "{error}");
            connection.execute_batch(&format!("UPDATE {table} SET {column}=1")).unwrap();
        }
    }
}

#[test]
fn a_damaged_histogram_is_an_error_not_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let study_id = store.add_study(&study("a")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let run = store.record_run(study_id, &start(host_id, None, 1), &end(1)).unwrap();
    let connection = rusqlite::Connection::open(store.path()).unwrap();
    connection.execute("UPDATE step SET response = x'00112233'", []).unwrap();
    let error = store.run(run).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

#[test]
fn reading_does_not_write_and_works_while_a_writer_holds_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Store::open(directory.path()).unwrap();
    let study_id = writer.add_study(&study("a")).unwrap();
    let host_id = writer.add_host(&host()).unwrap();
    let before = std::fs::read(writer.path()).unwrap();
    let reader = Store::open_read_only(directory.path()).unwrap();
    assert_eq!(reader.studies().unwrap().len(), 1);
    assert_eq!(std::fs::read(writer.path()).unwrap(), before);
    writer.record_run(study_id, &start(host_id, None, 1), &end(1)).unwrap();
    assert_eq!(reader.run_heads(study_id).unwrap().len(), 1);
}

#[test]
fn audits_are_kept_round_by_round() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let build_id = store.add_build(&build()).unwrap();
    let promise =
        |kind| AuditPromise { kind, text: "nothing is lost".to_owned(), may_lose: false, may_corrupt: false };
    let audited = AuditStart {
        server: "mariadb@11.4.5+gcc14".to_owned(),
        engine: "InnoDB".to_owned(),
        profile: Some("safest".to_owned()),
        settings: [("sync_binlog".to_owned(), "1".to_owned())].into(),
        deciding: [("log_bin".to_owned(), "on".to_owned())].into(),
        class: "full".to_owned(),
        promises: vec![promise(AuditKind::ProcessCrash), promise(AuditKind::PowerCut)],
        sessions: 8,
        seed: u64::MAX,
        started_at_ms: 1_795_000_000_000,
        plimsoll_version: "0.1.0".to_owned(),
        doubt: Some("another user's process holds the lock".to_owned()),
    };
    let id = store.begin_audit(host_id, build_id, &audited).unwrap();
    let round = |number| AuditRound {
        number,
        ran_s: 0.75,
        acknowledged: 1000,
        lost: 3,
        lost_window_s: 0.25,
        broken: vec!["the accounts add up to 1, the ledger to 2".to_owned()],
        recovery_s: Some(0.5),
        unflushed: Some(AuditUnflushed::Torn),
        unflushed_bytes: 4096,
        dropped_bytes: 512,
        ..AuditRound::default()
    };
    for number in [1, 2] {
        store.add_audit_round(id, AuditKind::ProcessCrash, &round(number)).unwrap();
    }
    store.add_audit_gap(id, AuditKind::PowerCut, "it needs root").unwrap();
    // An audit that was stopped at once is an audit too.
    store.begin_audit(host_id, build_id, &audited).unwrap();
    assert!(store.add_audit_round(id, AuditKind::ProcessCrash, &round(2)).is_err(), "a round stays as it is");
    drop(store);

    let audits = Store::open_read_only(directory.path()).unwrap().audits().unwrap();
    assert_eq!(audits.len(), 2);
    assert_eq!((audits[0].host, audits[0].build, &audits[0].start), (host_id, build_id, &audited));
    assert_eq!(audits[0].rounds_of(AuditKind::ProcessCrash), [round(1), round(2)]);
    assert_eq!(audits[0].not_done, [(AuditKind::PowerCut, "it needs root".to_owned())]);
    assert_eq!(audits[1].rounds, []);
}

#[test]
fn a_search_of_an_earlier_version_is_kept_and_has_found_nothing_yet() {
    let directory = tempfile::tempdir().unwrap();
    let mut store = Store::open(directory.path()).unwrap();
    let begun = LineStart { fingerprint: "f".into(), command: "line".into(), started_at_ms: 1, seed: 2 };
    let line = store.begin_line(&begun).unwrap();
    let study_id = store.add_study(&study("a")).unwrap();
    let host_id = store.add_host(&host()).unwrap();
    let run = store.record_run(study_id, &start(host_id, None, 1), &end(3)).unwrap();
    let path = store.path().to_owned();
    drop(store);
    // As version 8 wrote it: without the intervals of percentiles, too.
    let old = rusqlite::Connection::open(&path).unwrap();
    let newer =
        [("run", "line_id"), ("run", "interventions"), ("line_search", "found"), ("study", "ended_at_ms")];
    for (table, column) in newer {
        old.execute_batch(&format!("ALTER TABLE {table} DROP COLUMN {column}")).unwrap();
    }
    let probe = r#"{"purpose":"climb","rate":9.5,"sessions":4,"tps":9.5,"seconds":2.0,"p50_ms":null,"p95_ms":null,
        "p99_ms":null,"is_overloaded":false,"limited_by":null,"focus":0,"seen":[],"took_s":2.5,"error":null,"broken":[null]}"#;
    old.execute("INSERT INTO line_probe VALUES (?,0,?)", (line.0, probe)).unwrap();
    old.pragma_update(None, "user_version", 8).unwrap();
    drop(old);
    let store = Store::open(directory.path()).unwrap();
    let kept = store.last_line("f").unwrap().unwrap();
    assert_eq!((kept.found.clone(), kept.climb().unwrap().rate, kept.tried().len()), (None, 9.5, 0));
    let end = store.run(run).unwrap().end.unwrap();
    assert_eq!((end.line, end.interventions), (None, Vec::new()));
}
