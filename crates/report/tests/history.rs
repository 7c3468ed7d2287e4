//! Histories over recorded studies: one series over builds, its change, what was said of it, and boundaries.

mod common;

use report::history::{History, HistoryQuery, bencher, github_action, html, junit, otava};
use store::{ChangeDecision, ChangeState};

fn load(dir: &std::path::Path, metric: &str) -> History {
    let query = HistoryQuery { metrics: vec![metric.to_owned()], ..HistoryQuery::default() };
    History::load(&[dir.to_owned()], &query).unwrap()
}

#[test]
fn nights_on_new_builds_are_one_series_with_one_change() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = common::nights(dir.path());
    let history = load(dir.path(), "tps");
    assert_eq!(history.series.len(), 1);
    let series = &history.series[0];
    assert_eq!(series.points.len(), 20);
    assert_eq!(series.key["server"], "mariadb");
    assert_eq!(series.changes.len(), 1);
    let found = &series.changes[0];
    assert_eq!((found.change.index, found.state), (10, "new"));
    assert!(series.is_worse(found));
    let (good, bad) = series.builds_around(found);
    assert_eq!((good.build.as_str(), bad.build.as_str()), ("mariadb@11.4.5+c9", "mariadb@11.4.5+c10"));
    // What is said of it stays with it, also when more nights move its place by one.
    let decision = ChangeDecision {
        series: series.id.clone(),
        at_ms: series.points[11].at_ms,
        state: ChangeState::Accepted,
        why: "checksums are on".to_owned(),
        decided_at_ms: 5,
    };
    store.add_change_decision(&decision).unwrap();
    let found = &load(dir.path(), "tps").series[0].changes[0];
    assert_eq!((found.state, found.why.as_deref()), ("accepted", Some("checksums are on")));
}

#[test]
fn what_was_taken_back_is_fixed() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = common::nights(dir.path());
    let machine = common::host("bench1", "Linux 6.1.0-30-amd64");
    for night in 20..30 {
        common::add_night(&mut store, &machine, night, &format!("c{night}"), 1000.0);
    }
    let states: Vec<&str> =
        load(dir.path(), "tps").series[0].changes.iter().map(|change| change.state).collect();
    assert_eq!(states, ["fixed", "new"]);
}

#[test]
fn another_machine_is_another_series() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = common::nights(dir.path());
    for night in 20..24 {
        common::add_night(&mut store, &common::host("bench2", "Linux 6.1.0-30-amd64"), night, "x", 2000.0);
    }
    let mut points: Vec<usize> =
        load(dir.path(), "tps").series.iter().map(|series| series.points.len()).collect();
    points.sort_unstable();
    assert_eq!(points, [4, 20]);
}

#[test]
fn builds_that_are_measured_again_and_again_are_series_over_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = store::Store::open(dir.path()).unwrap();
    let machine = common::host("bench1", "Linux 6.1.0-30-amd64");
    for _ in 0..3 {
        common::add_ladder(&mut store, &machine, 5, 2, 1);
    }
    let history = load(dir.path(), "tps");
    // Two flavours are two series anyway, and each has a point a study.
    assert!(history.series.iter().all(|series| series.points.len() == 3), "{history:?}");
    assert_eq!(history.series.len(), 12);
}

#[test]
fn exports_say_what_their_readers_expect() {
    let dir = tempfile::tempdir().unwrap();
    drop(common::nights(dir.path()));
    let history = load(dir.path(), "tps");
    let table = otava(&history).unwrap();
    let mut lines = table.lines();
    assert_eq!(lines.next(), Some("time,commit,nightly.mariadb.oltp_read_only.s8.tps"));
    assert!(lines.next().unwrap().contains(" +0000,mariadb@11.4.5+c0,"), "{table}");
    assert_eq!(table.lines().count(), 21);
    let metric = &bencher(&history)["nightly.mariadb.oltp_read_only.s8"]["throughput"];
    assert!(metric["lower_value"].as_f64() <= metric["value"].as_f64());
    let lines = github_action(&history).unwrap();
    assert_eq!(lines[0]["unit"], "1/s");
    let tests = junit(&history);
    assert!(
        tests.contains("failures=\"1\"") && tests.contains("from mariadb@11.4.5+c9 to mariadb@11.4.5+c10")
    );
    let page = html(&history).unwrap();
    assert!(page.contains("data-history=\"0\"") && page.contains("mariadb@11.4.5+c10"));
    let both = HistoryQuery { metrics: vec!["tps".into(), "p95".into()], ..HistoryQuery::default() };
    let both = History::load(&[dir.path().to_owned()], &both).unwrap();
    assert!(github_action(&both).unwrap_err().to_string().contains("--metric tps"));
}
