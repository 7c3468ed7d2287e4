//! What is said first, and the order of more than two values.

mod common;

use report::{Report, Selection, StudyReport};
use serde_json::json;
use store::*;

/// A study of these servers with their true TPS at 4, 8, 16 and 32 sessions, compared with the first.
fn study(servers: &[(&str, [f64; 4])], blocks: u32, metrics: &[&str]) -> Report {
    about(servers, blocks, metrics, None)
}

fn about(servers: &[(&str, [f64; 4])], blocks: u32, metrics: &[&str], primary: Option<Primary>) -> Report {
    of_axis("server", servers, blocks, metrics, primary)
}

/// The same of the values of any axis.
fn of_axis(
    axis: &str,
    servers: &[(&str, [f64; 4])],
    blocks: u32,
    metrics: &[&str],
    primary: Option<Primary>,
) -> Report {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let names = servers.iter().map(|(name, _)| (*name).into()).collect();
    let axis = axis.to_owned();
    let axes = vec![Axis { name: axis.clone(), values: names }];
    let metrics = metrics.iter().map(|metric| (*metric).to_owned()).collect();
    let base = servers[0].0.into();
    let comparisons =
        vec![Comparison { axis: axis.clone(), base, metrics, margin: 0.05, primary, is_watched: false }];
    let runs = blocks * servers.len() as u32 * 4;
    let id = store.add_study(&common::study("many", axes, comparisons, blocks, runs)).unwrap();
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    let mut noise = common::Noise::new(1);
    for block in 1..=blocks {
        for (server, tps) in servers {
            for (level, tps) in [4, 8, 16, 32].into_iter().zip(tps) {
                let start = RunStart {
                    block,
                    repeat: block,
                    host,
                    ..RunStart::new(
                        Key::from([(axis.clone(), (*server).into())]),
                        vec![level],
                        1,
                        i64::from(block),
                    )
                };
                let tps = tps * noise.around(0.01);
                let level = common::Level { sessions: level, tps, offset_s: 0.0, seconds: 3 };
                let step = common::step(&mut noise, &level, false);
                store.record_run(id, &start, &common::end(server, "w", vec![step])).unwrap();
            }
        }
    }
    Report::of_stores(&[&store], &Selection::Latest).unwrap()
}

const SIX: [(&str, [f64; 4]); 6] = [
    ("a", [400.0, 500.0, 600.0, 700.0]),
    ("b", [600.0, 750.0, 900.0, 1000.0]),
    ("c", [600.0, 750.0, 900.0, 1200.0]),
    ("d", [300.0, 400.0, 500.0, 600.0]),
    ("e", [400.0, 500.0, 600.0, 700.0]),
    ("f", [500.0, 500.0, 500.0, 500.0]),
];

fn said(study: &StudyReport) -> Vec<&str> {
    study.answer.iter().map(|said| said.text.as_str()).collect()
}

#[test]
fn six_servers_are_answered_in_three_sentences() {
    let report = study(&SIX, 16, &["tps", "p95"]);
    let said = said(&report.studies[0]);
    assert_eq!(said.len(), 3, "{said:#?}");
    assert_eq!(said[0], "Most TPS: b and c (not told apart) at 4 to 16 sessions; c at 32 sessions.");
    assert!(
        said[1].starts_with("TPS against a (16 blocks): faster at 4 to 32 sessions: b (×1.4"),
        "{}",
        said[1]
    );
    for wanted in [
        "; slower",
        ": d (×0.7",
        "equivalent within 5\u{202f}% at 4 to 32 sessions: e (×",
        "different by load level",
    ] {
        assert!(said[1].contains(wanted), "{wanted}: {}", said[1]);
    }
    assert!(said[2].starts_with("20 more comparisons (p95 of response time): "), "{}", said[2]);
    let tones: Vec<&str> = report.studies[0].answer.iter().map(|said| said.tone).collect();
    assert_eq!(tones[..2], ["faster", "mixed"]);
}

#[test]
fn a_pair_of_servers_has_a_sentence_for_each_metric_with_ranges() {
    let report = study(&[SIX[0], SIX[1]], 8, &["tps", "p95"]);
    let said = said(&report.studies[0]);
    assert_eq!(said.len(), 2);
    assert!(said[0].starts_with("b carries ×1.4"), "{}", said[0]);
    assert!(said[0].ends_with("] of a's TPS at 4 to 32 sessions (faster, 8 blocks)."), "{}", said[0]);
    assert!(said[1].starts_with("b's p95 of response time is ×0."), "{}", said[1]);
}

#[test]
fn no_study_gets_more_than_five_sentences() {
    let report = study(&SIX, 3, &["tps", "p95", "p99", "mean"]);
    let study = &report.studies[0];
    assert!(said(study).len() <= 5, "{:#?}", study.answer);
    let wanted =
        "TPS against a (3 blocks): no verdict below 5 blocks at 4 to 32 sessions: b, c, d, e and f (×0.7";
    assert!(said(study)[0].starts_with(wanted), "{}", said(study)[0]);
    assert!(!study.rankings[0].has_groups(), "three blocks tell nothing apart");
}

#[test]
fn a_ranking_has_groups_in_every_format() {
    let report = study(&SIX, 8, &["tps"]);
    let ranking = &report.studies[0].rankings[0];
    let places = |level: usize| -> Vec<(String, String)> {
        let places = ranking.levels[level].places.iter();
        places.map(|place| (place.label.clone(), place.letters.clone())).collect()
    };
    let labels: Vec<String> =
        places(3).into_iter().map(|(label, letters)| format!("{label} {letters}")).collect();
    assert_eq!(labels[..2], ["c a", "b b"]);
    assert_eq!(labels[4..], ["d d", "f e"]);
    let json = report::json(&report);
    let lines = json["rankings"].as_array().unwrap();
    assert_eq!(lines.len(), 4);
    assert_eq!((&lines[3]["sessions"], &lines[3]["metric"]), (&json!(32), &json!("tps")));
    assert_eq!(lines[3]["places"][0]["groups"], json!(["a"]));
    assert_eq!(lines[3]["places"][0]["cell"]["server"], "c");
    assert!(report::markdown(&report).contains("## Ranking"));
    assert!(report::html(&report).unwrap().contains("<h2>Ranking</h2>"));
    // Two values have a verdict, and need no order.
    assert!(study(&[SIX[0], SIX[1]], 8, &["tps"]).studies[0].rankings.is_empty());
}

/// Too many cells for a sentence each: how often, and by how much; a few cells are named.
#[test]
fn a_comparison_in_many_cells_is_counted() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let servers = ["a", "b", "c", "d", "e", "f"];
    let axes = vec![
        Axis { name: "server".to_owned(), values: servers.map(Into::into).to_vec() },
        Axis { name: "settings".to_owned(), values: vec!["safe".into(), "fast".into()] },
    ];
    let metrics = vec!["tps".to_owned()];
    let comparisons = vec![Comparison {
        axis: "settings".to_owned(),
        base: "safe".into(),
        metrics,
        margin: 0.05,
        primary: None,
        is_watched: false,
    }];
    let id = store.add_study(&common::study("cells", axes, comparisons, 5, 60)).unwrap();
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    let mut noise = common::Noise::new(3);
    for block in 1..=5 {
        for (server, settings) in servers.iter().flat_map(|server| [(*server, "safe"), (*server, "fast")]) {
            let key = [("server".to_owned(), server.into()), ("settings".to_owned(), settings.into())];
            let start = RunStart {
                block,
                repeat: block,
                host,
                ..RunStart::new(Key::from(key), vec![8], 1, i64::from(block))
            };
            let gain = match (settings, server) {
                ("fast", "f") => 0.5,
                ("fast", _) => 2.0,
                _ => 1.0,
            };
            let tps = 500.0 * gain * noise.around(0.01);
            let level = common::Level { sessions: 8, tps, offset_s: 0.0, seconds: 3 };
            let step = common::step(&mut noise, &level, false);
            store.record_run(id, &start, &common::end(server, "w", vec![step])).unwrap();
        }
    }
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let said = said(&report.studies[0]);
    assert_eq!(said.len(), 1, "{said:#?}");
    assert!(
        said[0].starts_with("fast against safe, TPS in 6 cells (5 blocks): faster in 5 (×"),
        "{}",
        said[0]
    );
    assert!(said[0].contains("; slower in f (×0."), "{}", said[0]);
}

#[test]
fn what_is_no_server_carries_nothing() {
    let report = of_axis("settings", &[SIX[0], SIX[1]], 8, &["tps"], None);
    let said = said(&report.studies[0]);
    assert!(said[0].starts_with("With b, TPS is ×1."), "{}", said[0]);
    assert!(said[0].contains("] of that with a at 4 to "), "{}", said[0]);
}

/// What the study says it is about comes first, although its file asks for another metric before it.
#[test]
fn the_primary_comparison_is_told_first() {
    let primary =
        Primary { metric: "p95".to_owned(), cells: [("sessions".to_owned(), vec![16.into()])].into() };
    let report = about(&[SIX[0], SIX[1]], 8, &["tps", "p95"], Some(primary));
    let said = said(&report.studies[0]);
    assert!(said[0].starts_with("b's p95 of response time is ×0."), "{}", said[0]);
    assert!(said[0].contains("] of a's at 16 sessions (faster, 8 blocks); ×0."), "{}", said[0]);
    assert!(said[1].starts_with("b carries ×1."), "{}", said[1]);
}

/// A change at a moment is what such a study is about: the before and after is said first, without a verdict.
#[test]
fn a_change_at_a_moment_is_answered_by_what_was_before_and_after() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let axes = vec![Axis { name: "server".to_owned(), values: vec!["a".into()] }];
    let id = store.add_study(&common::study("moment", axes, Vec::new(), 3, 3)).unwrap();
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    let mut noise = common::Noise::new(1);
    for block in 1..=3 {
        let key =
            Key::from([("server".to_owned(), "a".into()), ("workload".to_owned(), "oltp_read_write".into())]);
        let start =
            RunStart { block, repeat: block, host, ..RunStart::new(key, vec![8], 1, i64::from(block)) };
        let level = common::Level { sessions: 8, tps: 1000.0, offset_s: 3.0, seconds: 10 };
        let mut step = common::step(&mut noise, &level, false);
        for interval in step.intervals.iter_mut().filter(|interval| interval.second > 5) {
            interval.outcomes.committed /= 2;
        }
        let changed = Intervention {
            name: "drop_index".to_owned(),
            on: vec!["DROP INDEX k".to_owned()],
            off: Vec::new(),
            readings: Default::default(),
            at_s: Some(8.0),
            took_s: Some(0.0),
        };
        let ended = common::end("a", "oltp_read_write", vec![step]);
        store.record_run(id, &start, &RunEnd { interventions: vec![changed], ..ended }).unwrap();
    }
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let said = said(&report.studies[0]);
    assert!(said[0].starts_with("drop_index after 5 s: "), "{said:#?}");
    assert!(said[0].contains("(×0.5"), "{said:#?}");
    assert!(said[0].ends_with("], median of 3 lives; a before and after, no verdict)."), "{said:#?}");
    assert!(!said.iter().any(|one| one.contains("Highest throughput")), "{said:#?}");
}

/// A study that ends with its decision may have made half of what was planned at most: that is not what it made.
#[test]
fn a_watched_study_says_how_many_blocks_it_made() {
    let mut report = study(&[SIX[0], SIX[1]], 6, &["tps"]);
    let head =
        |report: &Report| report::markdown(report).contains("48 of 48 planned runs counted. 6 blocks.");
    assert!(head(&report));
    let stored = &mut report.studies[0].records[0].record.study;
    (stored.blocks, stored.runs, stored.comparisons[0].is_watched) = (12, 96, true);
    for text in [report::markdown(&report), report::html(&report).unwrap()] {
        assert!(text.contains("48 runs counted. 6 blocks, 12 at most."), "{text}");
    }
}
