//! Hot locks side by side, along a climb and between servers.

mod common;

use report::{Report, Selection};
use store::*;

fn report() -> Report {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    common::add_climb(&mut store, 1, 3);
    Report::of_stores(&[&store], &Selection::Latest).unwrap()
}

#[test]
fn each_source_has_its_table_with_a_column_for_each_cell_and_level() {
    let markdown = report::markdown(&report());
    let section = markdown.split("## Hot locks (performance_schema)").nth(1).unwrap();
    let table: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).take(4).collect();
    assert_eq!(table[0].matches("16 sessions").count(), 2, "{}", table[0]);
    assert_eq!(table[0].matches("64 sessions").count(), 2, "{}", table[0]);
    // 8.8 s of waits in a pass of 10 s, and 26.3; the hottest lock first.
    assert!(table[2].starts_with("| `LOCK_open` | 0.880 | 2.63 |"), "{}", table[2]);
    // Not seen at 64 sessions.
    assert!(table[3].starts_with("| `buf_pool_mutex` | 0.120 | – |"), "{}", table[3]);
    assert!(markdown.contains("## Hot locks (futex, sampled)"));
}

#[test]
fn the_page_and_the_json_have_them_too() {
    let report = report();
    let html = report::html(&report).unwrap();
    assert!(html.contains("Side by side (performance_schema)"));
    let json = report::json(&report);
    let lines = json["studies"][0]["hot_locks"].as_array().unwrap();
    let first = lines.iter().find(|line| line["lock"] == "LOCK_open" && line["sessions"] == 64).unwrap();
    assert_eq!((first["count"].as_u64(), first["caller"].as_str()), (Some(48_526), Some("open_table")));
}
