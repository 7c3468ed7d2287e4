//! A watched study that is over by its blocks or its budget is looked at a last time; more blocks do not bring that back.

mod common;

use report::{Report, Selection};
use stats::{Method, Verdict};
use store::{Axis, Comparison, Key, RunStart, Store, StudyId};

const SERVERS: [&str; 2] = ["a", "b"];
/// Their mean is 3.1 standard errors from 0: enough for a t-test, and too little for one that is looked at after each block.
const LOG_RATIOS: [f64; 8] = [0.10, 0.02, 0.06, -0.02, 0.09, 0.03, 0.08, 0.01];

/// Of one block, begun at a time in milliseconds.
fn add_block(store: &mut Store, study: StudyId, block: u32, log_ratio: f64, at_ms: i64) {
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    for (server, log) in SERVERS.into_iter().zip([0.0f64, log_ratio]) {
        let key = Key::from([("server".to_owned(), server.into())]);
        let start = RunStart { block, repeat: block, host, ..RunStart::new(key, vec![8], 1, at_ms) };
        let level = common::Level { sessions: 8, tps: 500.0, offset_s: 0.0, seconds: 3 };
        let mut step = common::step(&mut common::Noise::new(3), &level, false);
        step.outcomes.committed = (1e6 * f64::exp(log)) as u64;
        store.record_run(study, &start, &common::end(server, "w", vec![step])).unwrap();
    }
}

/// Method and verdict of the one comparison that was asked for.
fn judged(store: &Store) -> (Method, Verdict) {
    let report = Report::of_stores(&[store], &Selection::Latest).unwrap();
    let result = &report.studies[0].verdicts[0].result;
    let json = &report::json(&report)["comparisons"][0];
    assert_eq!(json["method"], "anytime t");
    assert_eq!(json["last_look"] == true, result.method == Method::LastLook);
    let is_told = report::html(&report).unwrap().contains("judged by the last look");
    assert_eq!(is_told, result.method == Method::LastLook);
    (result.method, result.verdict)
}

#[test]
fn a_study_that_is_over_gets_one_last_look() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let axes = vec![Axis { name: "server".to_owned(), values: SERVERS.map(Into::into).to_vec() }];
    let comparison = Comparison {
        axis: "server".to_owned(),
        base: "a".into(),
        metrics: vec!["tps".to_owned()],
        margin: 0.001,
        primary: None,
        is_watched: true,
    };
    let study = store.add_study(&common::study("watched", axes, vec![comparison], 20, 40)).unwrap();
    for (block, log_ratio) in (1..).zip(LOG_RATIOS) {
        add_block(&mut store, study, block, log_ratio, 1000 * i64::from(block));
    }
    let before = (Method::Anytime, Verdict::Undecided);
    assert_eq!(judged(&store), before);
    store.end_study(study, 9000).unwrap();
    assert_eq!(judged(&store), (Method::LastLook, Verdict::Faster));
    // More blocks, whatever they say and however often it is over again.
    add_block(&mut store, study, 9, 0.04, 10_000);
    assert_eq!(judged(&store).0, before.0);
    store.end_study(study, 20_000).unwrap();
    assert_eq!(judged(&store).0, before.0);
}
