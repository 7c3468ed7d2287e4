//! Classes of durability, confirmed or contradicted by audits of the same build with the same settings.

mod common;

use report::{Report, Selection};
use serde_json::Value;
use store::*;

#[derive(Clone, Copy, PartialEq)]
enum Power {
    NotCut,
    /// By a version whose disk kept what was not flushed.
    Kept,
    Cut,
}

fn audit(store: &mut Store, version: &str, deciding: &str, lost: u64) {
    audit_with(store, version, deciding, lost, Power::NotCut);
}

fn audit_with(store: &mut Store, version: &str, deciding: &str, lost: u64, power: Power) {
    let host = store.add_host(&common::host("bench1", "Linux 6.1.0-30-amd64")).unwrap();
    let build = store.add_build(&common::build("mariadb", version)).unwrap();
    let promise =
        |kind| AuditPromise { kind, text: "nothing is lost".to_owned(), may_lose: false, may_corrupt: false };
    let start = AuditStart {
        server: format!("mariadb@{version}"),
        engine: "InnoDB".to_owned(),
        profile: None,
        settings: [].into(),
        deciding: [("innodb_flush_log_at_trx_commit".to_owned(), deciding.to_owned())].into(),
        class: "full".to_owned(),
        promises: vec![promise(AuditKind::ProcessCrash), promise(AuditKind::PowerCut)],
        sessions: 8,
        seed: lost,
        started_at_ms: 1_795_000_000_000,
        plimsoll_version: "0.1.0".to_owned(),
        doubt: None,
    };
    let id = store.begin_audit(host, build, &start).unwrap();
    for number in 1..=3 {
        let round = AuditRound {
            number,
            ran_s: 1.0,
            acknowledged: 1000,
            lost: if number == 2 { lost } else { 0 },
            lost_window_s: if number == 2 && lost > 0 { 0.5 } else { 0.0 },
            recovery_s: Some(0.2),
            ..AuditRound::default()
        };
        store.add_audit_round(id, AuditKind::ProcessCrash, &round).unwrap();
        let cut = AuditRound { lost: 0, lost_window_s: 0.0, ..round };
        match power {
            Power::NotCut => {}
            Power::Kept => store.add_audit_round(id, AuditKind::PowerCut, &cut).unwrap(),
            Power::Cut => {
                let unflushed = Some(AuditUnflushed::Dropped);
                let cut = AuditRound { unflushed, unflushed_bytes: 2048, dropped_bytes: 2048, ..cut };
                store.add_audit_round(id, AuditKind::PowerCut, &cut).unwrap();
            }
        }
    }
    if power == Power::NotCut {
        store.add_audit_gap(id, AuditKind::PowerCut, "a power cut needs root").unwrap();
    }
}

/// A study of MariaDB and PostgreSQL, with the audits that `prepare` adds.
fn report(prepare: impl FnOnce(&mut Store)) -> Report {
    let results = tempfile::tempdir().unwrap();
    let mut store = common::ladder(results.path(), 1, 3);
    prepare(&mut store);
    Report::of_stores(&[&store], &Selection::Latest).unwrap()
}

/// Finding and text of the first server with this beginning.
fn said(report: &Report, server: &str) -> (String, String) {
    let json = report::json(report);
    let rows = json["studies"][0]["durability"].as_array().unwrap().clone();
    let row = rows.iter().find(|row| row["label"].as_str().unwrap().starts_with(server)).unwrap();
    let text = |name: &str| row[name].as_str().unwrap().to_owned();
    (text("finding"), text("text"))
}

#[test]
fn what_nobody_audited_is_said_with_the_command_that_does() {
    let report = report(|_| ());
    let (finding, text) = said(&report, "postgres");
    assert_eq!(finding, "not_audited");
    assert!(text.starts_with("not audited: run `plimsoll audit postgres@18.6 --results "), "{text}");
    assert!(report::markdown(&report).contains("plimsoll audit postgres@18.6"));
    assert!(report::html(&report).unwrap().contains("plimsoll audit postgres@18.6"));
}

const CRASHES: &str = "process crash: consistent with \"nothing is lost\" in 3 rounds (0 of 3,000 lost; at most 63 % \
                       of such crashes break it, 95 % confidence)";

#[test]
fn kills_alone_do_not_speak_for_a_power_cut() {
    let report = report(|store| audit(store, "11.4.5", "1", 0));
    let (finding, text) = said(&report, "mariadb");
    assert_eq!(finding, "partly_checked");
    let text = text.replace('\u{202f}', ",");
    assert_eq!(text, format!("{CRASHES}; power cut: not checked: a power cut needs root"));
    for format in [report::markdown(&report), report::html(&report).unwrap()] {
        assert!(format.contains("power cut: not checked"));
        assert!(!format.contains("confirmed by"), "rounds confirm nothing");
        assert!(!format.contains("plimsoll audit mariadb"));
    }
    assert_eq!(said(&report, "postgres").0, "not_audited", "an audit speaks for its own build only");
    let json: Value = report::json(&report);
    let lines = json["studies"][0]["audits"].as_array().unwrap();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (&lines[0]["verdict"], lines[0]["rounds"].as_array().unwrap().len()),
        (&"consistent".into(), 3)
    );
    assert!((lines[0]["broken_share_at_most"].as_f64().unwrap() - 0.6316).abs() < 1e-4);
    assert_eq!(lines[1]["not_done"], "a power cut needs root");
}

#[test]
fn each_way_of_going_down_has_its_own_word_and_bound() {
    let report = report(|store| audit_with(store, "11.4.5", "1", 0, Power::Cut));
    let (finding, text) = said(&report, "mariadb");
    assert_eq!(finding, "consistent");
    let (crash, cut) = text.split_once("; power cut: ").unwrap();
    assert_eq!(crash.replace('\u{202f}', ","), CRASHES);
    assert!(cut.starts_with("consistent with \"nothing is lost\" in 3 rounds"), "{cut}");
}

#[test]
fn a_disk_that_kept_everything_is_no_power_cut() {
    let report = report(|store| audit_with(store, "11.4.5", "1", 0, Power::Kept));
    let (finding, text) = said(&report, "mariadb");
    assert_eq!(finding, "partly_checked");
    assert!(
        text.contains("; power cut: not checked; power cut of a disk that keeps what was not flushed: "),
        "{text}"
    );
}

#[test]
fn a_lost_transaction_contradicts_a_class_and_is_an_alarm() {
    let report = report(|store| audit(store, "11.4.5", "1", 7));
    let (finding, text) = said(&report, "mariadb");
    assert_eq!(finding, "contradicted");
    assert!(text.contains("7 of 3") && text.contains("at most the last 0.50 s"), "{text}");
    let markdown = report::markdown(&report);
    let alarms = markdown.split("## Warnings").nth(1).unwrap().split("## ").next().unwrap();
    assert!(alarms.contains("process crash: contradicted in 1 of 3 rounds"), "{alarms}");
}

#[test]
fn other_settings_and_other_builds_speak_for_nobody_else() {
    let other_settings = report(|store| audit(store, "11.4.5", "2", 7));
    assert_eq!(said(&other_settings, "mariadb").0, "not_audited");
    let other_build = report(|store| audit(store, "10.11.5", "1", 7));
    assert_eq!(said(&other_build, "mariadb").0, "not_audited");
    assert_eq!(report::json(&other_build)["studies"][0]["audits"], Value::Array(vec![]));
}

/// Recorded by a version that looked at the settings alone.
#[test]
fn data_in_memory_are_volatile_whatever_the_settings_promise() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let axes = vec![Axis { name: "storage".to_owned(), values: vec!["default".into(), "memory".into()] }];
    let comparisons = vec![common::compared("storage", "default")];
    let id = store.add_study(&common::study("places", axes, comparisons, 1, 2)).unwrap();
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    let build = store.add_build(&common::build("mariadb", "11.4.5")).unwrap();
    for (place, filesystem) in [("default", "ext4"), ("memory", "tmpfs")] {
        let start = RunStart {
            host,
            build: Some(build),
            ..RunStart::new(Key::from([("storage".to_owned(), place.into())]), vec![8], 1, 0)
        };
        let level = common::Level { sessions: 8, tps: 500.0, offset_s: 0.0, seconds: 2 };
        let step = common::step(&mut common::Noise::new(1), &level, true);
        let mut end = common::end("mariadb@11.4.5", "w", vec![step]);
        end.server.storage.insert("filesystem".to_owned(), filesystem.to_owned());
        end.server.deciding = [("innodb_flush_log_at_trx_commit".to_owned(), "1".to_owned())].into();
        store.record_run(id, &start, &end).unwrap();
    }
    audit_with(&mut store, "11.4.5", "1", 0, Power::Cut);
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let json = report::json(&report);
    let rows = json["studies"][0]["durability"].as_array().unwrap();
    let class = |at: usize| (rows[at]["class"].as_str().unwrap(), rows[at]["finding"].as_str().unwrap());
    assert_eq!(class(0), ("full", "consistent"));
    assert_eq!(class(1), ("volatile", "consistent"), "of a killed server: that much was audited");
    assert!(!rows[1]["text"].as_str().unwrap().contains("power cut"), "{}", rows[1]["text"]);
    assert_eq!(json["cells"][1]["runs"][0]["durability_class"], "volatile");
    assert_eq!(json["cells"][1]["key"]["durability"], "volatile");
    assert_eq!(report.studies[0].verdicts[0].flags, ["durability class: volatile against full"]);
    for format in [report::markdown(&report), report::html(&report).unwrap()] {
        assert!(format.contains("volatile") && format.contains("the data directory is in memory"));
    }
}
