//! Studies of load lines in every format: what the report says of lines whose truth is known.

mod common;

use std::path::Path;

use common::{Level, Noise, SERVERS, end, host, step, study};
use report::{Report, Selection};
use serde_json::json;
use store::*;

const PROMISES: [&str; 2] = ["p99 < 20ms", "p99 < 50ms"];

fn probe(purpose: &str, rate: f64, p99_ms: f64) -> LineProbe {
    LineProbe {
        purpose: purpose.to_owned(),
        rate,
        sessions: 32,
        tps: rate,
        seconds: 30.0,
        p50_ms: Some(p99_ms / 8.0),
        p95_ms: Some(p99_ms / 2.0),
        p99_ms: Some(p99_ms),
        spreads: [Some((p99_ms / 9.0, p99_ms / 7.0)), None, Some((p99_ms * 0.9, p99_ms * 1.1))],
        is_overloaded: false,
        limited_by: None,
        focus: 0,
        seen: PROMISES
            .map(|promise| {
                let is_over = p99_ms > if promise == PROMISES[0] { 20.0 } else { 50.0 };
                let total = LineCount { transactions: 1000, over: if is_over { 30 } else { 2 } };
                LineSeen { seconds: vec![total; 3], total }
            })
            .to_vec(),
        took_s: 33.0,
        error: None,
        broken: vec![None, None],
        unmet: vec![],
    }
}

fn line(promise: &str, limit_ms: f64, line_tps: Option<f64>) -> Line {
    Line {
        promise: promise.to_owned(),
        allowed: 0.01,
        limit_ms: Some(limit_ms),
        line_tps,
        // Held a little below it.
        middle_tps: line_tps.map(|line_tps| 1.02 * line_tps),
        low: line_tps.map(|tps| 0.97 * tps),
        high: line_tps.map(|tps| 1.04 * tps),
        ended_by: "promise".to_owned(),
        hold: line_tps.map(|_| LineHold { seconds: 60.0, held: true, p99_ms: Some(limit_ms * 0.9) }),
        warnings: line_tps
            .is_none()
            .then(|| "broken already at one session's pace".to_owned())
            .into_iter()
            .collect(),
    }
}

/// Two servers of which the other one carries 1.18 times as much under 20 ms; nothing is known under 50 ms of one.
fn lines(directory: &Path, blocks: u32) -> Store {
    recorded(directory, blocks, PROMISES, true)
}

fn recorded(directory: &Path, blocks: u32, promises: [&str; 2], is_compared: bool) -> Store {
    ended(directory, blocks, promises, &Case { is_compared, ..Case::default() })
}

struct Case {
    is_compared: bool,
    /// What ended the search of the line that is not there.
    no_line_by: &'static str,
    /// In this block, and no other, lines were broken when they were held.
    broken_in: Option<u32>,
    /// Lines were held at all.
    is_held: bool,
}

impl Default for Case {
    fn default() -> Self {
        Self { is_compared: false, no_line_by: "promise", broken_in: None, is_held: true }
    }
}

fn ended(directory: &Path, blocks: u32, promises: [&str; 2], case: &Case) -> Store {
    let mut store = Store::open(directory).unwrap();
    let axis = |name: &str, values: &[&str]| Axis {
        name: name.to_owned(),
        values: values.iter().map(|value| (*value).into()).collect(),
    };
    let axes = vec![axis("server", &SERVERS), axis("workload", &["oltp_read_only"])];
    let comparison = Comparison {
        axis: "server".to_owned(),
        base: SERVERS[0].into(),
        metrics: promises.map(str::to_owned).to_vec(),
        margin: 0.05,
        primary: None,
        is_watched: false,
    };
    let comparisons = case.is_compared.then_some(comparison).into_iter().collect();
    let id = store.add_study(&study("lines", axes, comparisons, blocks, 2 * blocks)).unwrap();
    let machine = store.add_host(&host("bench1", "Linux 6.1")).unwrap();
    let mut noise = Noise::new(7);
    for block in 1..=blocks {
        for (at, server) in SERVERS.iter().enumerate() {
            let tps = if at == 0 { 1000.0 } else { 1180.0 } * noise.around(0.01);
            let fingerprint = format!("study {} run {}", id.0, 2 * block + at as u32);
            let begun = LineStart { fingerprint, command: "run".into(), started_at_ms: 1, seed: 1 };
            let search = store.begin_line(&begun).unwrap();
            let climb = LineProbe { seen: vec![], ..probe("climb", 2.0 * tps, 30.0) };
            let probes = [climb, probe("bracket", 1.3 * tps, 200.0), probe("refine", 0.9 * tps, 12.0)];
            let probes = probes.into_iter().chain([probe("hold", tps, 18.0)]);
            probes.enumerate().for_each(|(at, probe)| store.add_line_probe(search, at, &probe).unwrap());
            let under_50 = (at == 0).then_some(1.1 * tps);
            let mut second = line(promises[1], 50.0, under_50);
            if under_50.is_none() {
                second.ended_by = case.no_line_by.to_owned();
            }
            let mut first = line(promises[0], 20.0, Some(tps));
            first.hold = first.hold.filter(|_| case.is_held);
            if let Some(hold) = first.hold.as_mut() {
                hold.held = case.broken_in != Some(block);
            }
            let found = LineFound { lines: vec![first, second], seconds_total: 120.0 };
            store.finish_line(search, &found).unwrap();
            let key = Key::from([
                ("server".to_owned(), (*server).into()),
                ("workload".to_owned(), "oltp_read_only".into()),
            ]);
            let start = RunStart {
                index: 2 * (block - 1) + at as u32,
                block,
                repeat: block,
                host: machine,
                ..RunStart::new(key, vec![256], 1, 1_795_000_000_000)
            };
            let level = Level { sessions: 32, tps, offset_s: 3.0, seconds: 3 };
            let end = end(server, "oltp_read_only", vec![step(&mut noise, &level, false)]);
            store.record_run(id, &start, &RunEnd { line: Some(search), ..end }).unwrap();
        }
    }
    store
}

fn report(blocks: u32) -> Report {
    let directory = tempfile::tempdir().unwrap();
    let store = lines(directory.path(), blocks);
    Report::of_stores(&[&store], &Selection::Latest).unwrap()
}

#[test]
fn the_answer_says_what_a_server_carries_of_what_another_one_carries_under_a_promise() {
    let report = report(8);
    let answer: Vec<&str> = report.studies[0].answer.iter().map(|sentence| sentence.text.as_str()).collect();
    let first = answer[0];
    assert!(first.starts_with("postgres@18.6 carries ×1.1"), "{answer:?}");
    assert!(
        first.contains(" of what mariadb@11.4.5 carries under p99 < 20ms (faster, 8 blocks)"),
        "{answer:?}"
    );
    assert!(!first.contains("sessions"), "{first}");
    let second = answer[1];
    assert!(second.contains("line under p99 < 50ms of postgres@18.6"), "{answer:?}");
    assert!(second.contains("not found in 8 of 8 runs: broken already at one session's pace"), "{answer:?}");
}

#[test]
fn without_a_verdict_each_cell_has_its_line_and_its_peak() {
    let directory = tempfile::tempdir().unwrap();
    let store = lines(directory.path(), 1);
    let mut report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let study = &mut report.studies[0];
    study.verdicts.clear();
    let promises = study.promises();
    assert_eq!(promises, PROMISES);
    let (line, peak) =
        (study.estimate(&study.points[0], "p99 < 20ms").unwrap(), study.peak(&study.points[0]).unwrap());
    assert!((peak.median / line.median - 2.0).abs() < 1e-9);
    assert!(study.estimate(&study.points[1], "p99 < 50ms").is_none());
}

/// Promises of two kinds: the rate up to which both are kept, and which of them ends there.
#[test]
fn a_cell_says_up_to_where_all_promises_are_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = recorded(directory.path(), 1, ["p99 < 20ms", "errors < 0.1%"], false);
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let answer: Vec<&str> = report.studies[0].answer.iter().map(|sentence| sentence.text.as_str()).collect();
    assert!(answer[0].contains("; all are kept up to "), "{answer:#?}");
    assert!(answer[0].contains(", where p99 < 20ms ends; the closed loop's peak"), "{answer:#?}");
    // The other server has no line under the second: nothing is known of both.
    assert!(!answer[1].contains("all are kept"), "{answer:#?}");
    assert!(report::markdown(&report).contains("| All of them |"));
    // Of one kind the tightest ends the rest, as everybody sees.
    assert!(!report::markdown(&self::report(1)).contains("All of them"));
}

#[test]
fn a_line_that_was_not_found_is_not_said_to_be_none() {
    let said = |no_line_by: &'static str| {
        let directory = tempfile::tempdir().unwrap();
        let store = ended(directory.path(), 1, PROMISES, &Case { no_line_by, ..Case::default() });
        let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
        report.studies[0].answer[1].text.clone()
    };
    let (broken, unknown) = (said("promise"), said("budget"));
    assert!(broken.contains("; no rate keeps p99 < 50ms; the closed loop's peak"), "{broken}");
    assert!(unknown.contains("; no line under p99 < 50ms was found; the closed loop's peak"), "{unknown}");
}

#[test]
fn a_line_that_was_broken_when_it_was_held_says_so_wherever_it_stands() {
    let said = |blocks: u32, case: Case| {
        let directory = tempfile::tempdir().unwrap();
        let store = ended(directory.path(), blocks, PROMISES, &case);
        let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
        let table = report::markdown(&report).split("## Load lines").nth(1).unwrap().to_owned();
        (report.studies[0].answer[0].text.clone(), table)
    };
    let (answer, table) = said(1, Case { broken_in: Some(1), ..Case::default() });
    assert!(answer.contains(" of its peak, not kept when held for 60 s) and "), "{answer}");
    assert!(table.contains(", not kept when held for 60 s |"), "{table}");
    let (answer, table) = said(1, Case { is_held: false, ..Case::default() });
    assert!(answer.contains(" of its peak, not held) and "), "{answer}");
    assert!(table.contains(", not held |"), "{table}");
    let (answer, table) = said(3, Case { broken_in: Some(2), ..Case::default() });
    assert!(answer.contains("of its peak, held in 2 of 3 runs)"), "{answer}");
    assert!(table.contains(", held in 2 of 3 runs |"), "{table}");
    let (answer, table) = said(3, Case::default());
    assert!(!answer.contains("held") && !table.contains("held in"), "{answer}\n{table}");
}

/// What stands for a search as its level has another rate in each run: no chart draws them beside each other.
#[test]
fn a_page_of_lines_has_no_charts_of_levels() {
    let html = report::html(&report(5)).unwrap();
    assert!(!html.contains("id=\"s1-throughput\"") && !html.contains("href=\"#s1-throughput\""));
    assert!(!html.contains("data-metric=\"tps\"") && html.contains("class=\"timeline\""));
    assert!(html.contains("what is compared are the lines"));
}

#[test]
fn json_markdown_and_page_have_lines_probes_and_the_picture() {
    let report = report(5);
    let value = report::json(&report);
    let cell = &value["cells"][0];
    assert_eq!(cell["lines"][0]["promise"], "p99 < 20ms");
    assert!(cell["lines"][0]["line_tps"]["median"].as_f64().unwrap() > 900.0, "{}", cell["lines"]);
    let run = &cell["runs"][0]["line"];
    assert_eq!(run["lines"][0]["held"], json!([false, true, true]), "{run}");
    assert_eq!(run["probes"].as_array().unwrap().len(), 3);
    let metrics: Vec<&str> =
        value["comparisons"].as_array().unwrap().iter().map(|one| one["metric"].as_str().unwrap()).collect();
    assert_eq!(metrics, PROMISES);
    let text = report::markdown(&report);
    assert!(text.contains("## Load lines") && text.contains("Lines, and their share of the peak"), "{text}");
    let html = report::html(&report).unwrap();
    assert_eq!(html.matches("<svg class=\"loadline\"").count(), 2);
    // Both promises are levels, also where no line is known.
    assert_eq!(html.matches("<line class=\"promise\"").count(), 4);
    assert!(html.contains("closed loop: 2"));
}
