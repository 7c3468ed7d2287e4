//! `plimsoll line` on real servers, and what it refuses.

mod common;

use common::{run, servers_are_there};
use serde_json::Value;

const LINE: [&str; 4] = ["line", "oltp_point_select", "--server", "mariadb"];

fn line(arguments: &[&str]) -> common::Done {
    run(&[&LINE[..], arguments].concat())
}

#[test]
fn promises_without_a_unit_and_budgets_that_cannot_do_are_refused_with_what_would() {
    line(&["--promise", "p99 < 20"]).expect(2, &["the unit is missing", "`20ms` or `20s`?"]);
    line(&["--promise", "errors < 0.1"]).expect(2, &["write `0.1%`"]);
    line(&["--promise", "speed < 20ms"]).expect(2, &["`speed` is no percentile"]);
    line(&["--promise", "p99.99 < 20ms", "--budget", "30s"])
        .expect(2, &["p99.99 < 20ms", "cannot be judged within 30s", "a budget of 3m"]);
    line(&["--promise", "p99 < 20ms", "--budget", "5s"]).expect(2, &["takes at least 20s"]);
    line(&["--promise", "p99 < 20ms", "--budget", "1m", "--hold", "50s"]).expect(2, &["a budget of 2m"]);
    line(&[]).expect(2, &["--promise"]);
}

fn lines(done: &common::Done) -> Vec<Value> {
    done.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_of_a_real_server_have_what_the_contract_says() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().display().to_string();
    let done = line(&[
        "-o",
        "table_size=1000",
        "--promise",
        "p95 < 50ms",
        "--promise",
        "p50 < 1us",
        "--budget",
        "30s",
        "--results",
        &results,
        "--json",
        "-",
    ])
    // One session breaks the second promise.
    .expect(1, &[]);
    let lines = lines(&done);
    assert_eq!(lines.len(), 2, "{}", done.out);
    let kept = &lines[0];
    assert_eq!((kept["schema"].as_u64(), kept["promise"].as_str()), (Some(2), Some("p95 < 50ms")), "{kept}");
    // A machine that is busy with other tests may keep it at no rate that half a minute has room for.
    match kept["status"].as_str() {
        Some("done") => assert!(kept["line_tps"].as_f64().unwrap() > 100.0, "{kept}"),
        Some("failed") => assert!(kept["line_tps"].is_null() && kept["ended_by"] == "budget", "{kept}"),
        other => panic!("{other:?}: {kept}"),
    }
    assert!(kept["peak_tps"].as_f64().unwrap() > 100.0, "{kept}");
    assert!(kept["seconds_total"].as_f64().unwrap() <= 30.0, "{kept}");
    assert!(
        kept["build"].is_string() && kept["warnings"].is_array() && kept["ended_by"].is_string(),
        "{kept}"
    );
    let probe = &kept["probes"][0];
    for name in ["rate", "tps", "seconds", "p50_ms"] {
        assert!(probe[name].is_number(), "{name}: {probe}");
    }
    assert!(["p95_ms", "p99_ms", "held"].iter().all(|name| probe.get(name).is_some()), "{probe}");
    let broken = &lines[1];
    assert_eq!((broken["status"].as_str(), broken["ended_by"].as_str()), (Some("failed"), Some("promise")));
    assert!(broken["line_tps"].is_null() && broken["confirmation"].is_null(), "{broken}");
    assert!(broken["warnings"].to_string().contains("broken already at one session's pace"), "{broken}");
}
