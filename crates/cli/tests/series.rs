//! `changes` and `history`: the command line around them. No server is needed.

mod common;
#[path = "../../report/tests/common/mod.rs"]
mod recorded;

use common::run;
use serde_json::Value;

fn file(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("series.csv");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (dir, path)
}

#[test]
fn a_step_in_a_column_of_numbers() {
    let lines: Vec<String> =
        (0..60).map(|at| format!("{}", if at < 30 { 100 + at % 4 } else { 90 + at % 4 })).collect();
    let (_dir, path) = file(&lines.join("\n"));
    let found: Value =
        serde_json::from_str(&run(&["changes", &path, "--json", "-"]).expect(0, &[]).out).unwrap();
    assert_eq!((&found["schema"], &found["n"]), (&Value::from(2), &Value::from(60)));
    let change = &found["changes"][0];
    assert_eq!((&change["index"], &change["state"]), (&Value::from(30), &Value::from("new")));
    assert_eq!(found["changes"].as_array().unwrap().len(), 1);
    for field in ["before", "after", "ratio", "low", "high", "p"] {
        assert!(change[field].is_number(), "{field}: {change}");
    }
    let told = run(&["changes", &path]).expect(0, &[]).out;
    assert!(told.contains("30") && told.contains("%"), "{told}");
}

#[test]
fn a_table_as_otava_reads_it() {
    let mut text = String::from("time,commit,metric1,metric2\n");
    let second = [10.43, 10.23, 10.29, 10.91, 10.34, 10.69, 9.23, 9.11, 9.13, 9.03];
    let first = [154023, 138455, 143112, 149190, 132098, 151344, 155145, 148889, 149466, 148209];
    for (at, (one, two)) in first.iter().zip(second).enumerate() {
        text.push_str(&format!("2026.01.{:02} 3:00:00 +0100,aaa{at},{one},{two}\n", at + 1));
    }
    let (_dir, path) = file(&text);
    let found: Value =
        serde_json::from_str(&run(&["changes", &path, "--json", "-"]).expect(0, &[]).out).unwrap();
    let changes = found["changes"].as_array().unwrap();
    assert_eq!(changes.len(), 1, "{found}");
    assert_eq!(
        (&changes[0]["metric"], &changes[0]["label"]),
        (&Value::from("metric2"), &Value::from("aaa6"))
    );
    assert_eq!(changes[0]["index"], 6);
}

#[test]
fn what_is_no_series_is_said_in_one_line() {
    for (text, wanted) in [
        ("1\n2\n", "a series of 2 points shows no change"),
        ("", "it holds no points"),
        ("a\nb\n", "no column of numbers"),
        ("1\n2\n3\nx\n5\n6\n7\n8\n", "line 4: `x` is not a number"),
    ] {
        let (_dir, path) = file(text);
        run(&["changes", &path]).expect(2, &[wanted]);
    }
    run(&["changes", "nowhere.csv"]).expect(2, &["cannot read nowhere.csv"]);
}

#[test]
fn a_history_is_a_table_and_json_and_takes_decisions() {
    let dir = tempfile::tempdir().unwrap();
    drop(recorded::nights(dir.path()));
    let place = dir.path().display().to_string();
    let json = |place: &str| -> Value {
        let done = run(&["history", "--results", place, "--json", "-"]).expect(0, &[]);
        serde_json::from_str(&done.out).unwrap()
    };
    let before = json(&place);
    let series = &before["series"][0];
    assert_eq!(series["metric"], "tps");
    let point = &series["points"][0];
    assert!(point["build"].is_string() && point["at"].is_string() && point["value"].is_number());
    let id = series["changes"][0]["id"].as_str().unwrap();
    run(&["history", "--results", &place]).expect(0, &[]).out.contains(id).then_some(()).unwrap();
    run(&["history", "accept", id, "--why", "checksums are on", "--results", &place]).expect(0, &[]);
    let after = json(&place);
    assert_eq!(after["series"][0]["changes"][0]["state"], "accepted");
    run(&["history", "accept", "nothing", "--why", "x", "--results", &place])
        .expect(2, &["no change nothing", id]);
    run(&["history", "--results", &place, "--study", "nigthly"]).expect(2, &["no study nigthly"]);
    run(&["history", "--results", &place, "--since", "yesterday"]).expect(2, &["2026-11-24"]);
    let page = dir.path().join("h.html").display().to_string();
    run(&["history", "--results", &place, "--html", &page]).expect(0, &["wrote"]);
    assert!(std::fs::read_to_string(&page).unwrap().contains("data-history=\"0\""));
}
