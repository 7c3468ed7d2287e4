//! What counts, what is compared, what is said.

mod common;

use report::{Report, Selection, Standing, StudyReport};
use serde_json::Value;
use store::*;

fn ladder(blocks: u32) -> Report {
    let results = tempfile::tempdir().unwrap();
    let store = common::ladder(results.path(), blocks, 3);
    Report::of_stores(&[&store], &Selection::Latest).unwrap()
}

fn point<'a>(study: &'a StudyReport, server: &str, workload: &str, sessions: u32) -> &'a report::Point {
    let is = |point: &&report::Point| {
        point.key["server"] == server && point.key["workload"] == workload && point.sessions == sessions
    };
    study.points.iter().find(is).unwrap()
}

#[test]
fn points_follow_the_study_file_and_hold_all_runs() {
    let report = ladder(5);
    let study = &report.studies[0];
    let order: Vec<String> = study.points.iter().map(|p| format!("{} {}", p.label, p.sessions)).collect();
    assert_eq!(order[0], "mariadb@11.4.5 · oltp_read_only 1");
    assert_eq!(order[2], "mariadb@11.4.5 · oltp_read_only 64");
    assert_eq!(order[11], "postgres@18.6 · oltp_read_write 64");
    assert_eq!(study.varying, ["server", "workload", "sessions"]);
    assert!(study.points.iter().all(|point| point.runs.len() == 5));
}

#[test]
fn invalid_and_failed_runs_are_there_and_enter_no_figure() {
    let report = ladder(5);
    let study = &report.studies[0];
    let invalid = point(study, "mariadb@11.4.5", "oltp_read_only", 64);
    assert_eq!(invalid.tps.unwrap().n, 4);
    assert_eq!(study.measured(invalid).count(), 5, "the invalid run is shown");
    let failed = point(study, "postgres@18.6", "oltp_read_write", 1);
    assert_eq!((failed.tps.unwrap().n, study.measured(failed).count(), failed.runs.len()), (4, 4, 5));
    let count = |standing| study.runs.iter().filter(|run| run.standing == standing).count();
    assert_eq!((count(Standing::Invalid), count(Standing::Failed), count(Standing::Counted)), (1, 1, 58));
    // The verdict of the invalid cell rests on the four blocks that both sides have, and is therefore none.
    let verdict = study.verdicts.iter().find(|v| v.metric == "tps" && v.at == "oltp_read_only").unwrap();
    assert_eq!(verdict.result.n, 5);
    let spoilt = study
        .verdicts
        .iter()
        .find(|v| v.metric == "tps" && v.at == "oltp_read_only" && study.points[v.other].sessions == 64)
        .unwrap();
    assert_eq!((spoilt.result.n, spoilt.result.p_adjusted), (4, None));
}

#[test]
fn a_real_difference_is_found_and_said() {
    let report = ladder(6);
    let study = &report.studies[0];
    let verdict = study
        .verdicts
        .iter()
        .find(|v| v.metric == "tps" && v.at == "oltp_read_only" && study.points[v.other].sessions == 8)
        .unwrap();
    assert_eq!(verdict.result.verdict, stats::Verdict::Faster);
    assert!((verdict.result.ratio.unwrap() - 1.25).abs() < 0.05);
    assert_eq!(
        (verdict.other_label.as_str(), verdict.base_label.as_str()),
        ("postgres@18.6", "mariadb@11.4.5")
    );
    let sentence = &study.answer[0];
    let wanted = "postgres@18.6 carries ×1.";
    assert!(sentence.text.starts_with(wanted), "{sentence:?}");
    let wanted = " of mariadb@11.4.5's TPS on oltp_read_only at 1 to 64 sessions (faster, 5 to 6 blocks)";
    assert!(sentence.text.contains(wanted), "{sentence:?}");
    assert_eq!(sentence.tone, "faster");
    let slower =
        |text: &str| text.contains("oltp_read_write") && text.contains(" at 64 sessions (slower, 6 blocks)");
    assert!(study.answer.iter().any(|said| slower(&said.text)), "{:?}", study.answer);
}

#[test]
fn below_five_blocks_there_is_no_verdict_and_it_says_so() {
    let report = ladder(4);
    let study = &report.studies[0];
    assert!(!study.has_verdicts());
    assert!(study.verdicts.iter().all(|verdict| verdict.result.p_adjusted.is_none()));
    // One run of each workload does not count, so that the ratio at its level rests on fewer blocks than the others.
    assert!(
        study.answer[0].text.contains("(no verdict: 3 to 4 blocks of at least 5)"),
        "{:?}",
        study.answer[0]
    );
    let other = study
        .answer
        .iter()
        .map(|said| &said.text)
        .find(|text| text.contains("TPS on oltp_read_write"))
        .unwrap();
    assert!(other.contains("(no verdict: 3 to 4 blocks of at least 5)"), "{other}");
    let json = report::json(&report);
    assert!(json["comparisons"].as_array().unwrap().iter().all(|c| c["verdict"] == "undecided"));
    assert!(report::html(&report).unwrap().contains("Fewer than 5 blocks: no verdicts."));
}

#[test]
fn two_hosts_are_never_pooled() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let a = common::ladder(one.path(), 5, 3);
    let mut b = Store::open(two.path()).unwrap();
    common::add_ladder(&mut b, &common::host("bench2", "FreeBSD 14.1"), 5, 3, 99);
    let report = Report::of_stores(&[&a, &b], &Selection::Latest).unwrap();
    let study = &report.studies[0];
    assert_eq!((report.studies.len(), report.hosts.len(), study.points.len()), (1, 2, 24));
    assert!(study.points.iter().all(|point| point.runs.len() == 5));
    assert!(study.points[0].label.contains("bench1"), "{}", study.points[0].label);
    assert!(study.runs.iter().any(|run| run.id == "2-r1"));
    let same_host = |v: &report::VerdictView| {
        study.points[v.base].identity["host"] == study.points[v.other].identity["host"]
    };
    assert!(!study.verdicts.is_empty() && study.verdicts.iter().all(same_host));
    let json = report::json(&report);
    assert_eq!(json["studies"].as_array().unwrap().len(), 2);
}

#[test]
fn hosts_of_one_name_are_told_apart_by_kernel_and_then_by_fingerprint() {
    let results = tempfile::tempdir().unwrap();
    let mut store = common::ladder(results.path(), 1, 3);
    common::add_ladder(&mut store, &common::host("bench1", "Linux 6.12"), 1, 3, 5);
    let other = Host { fingerprint: "another".to_owned(), ..common::host("bench1", "Linux 6.12") };
    common::add_ladder(&mut store, &other, 1, 3, 6);
    let all: Vec<StudyId> = store.studies().unwrap().iter().map(|record| record.id).collect();
    let report = Report::of_stores(&[&store], &Selection::Records(all)).unwrap();
    let labels: Vec<&str> = report.hosts.iter().map(|view| view.label.as_str()).collect();
    assert_eq!(
        labels,
        ["bench1 (Linux 6.1.0-30-amd64)", "bench1 (Linux 6.12, fingerpr)", "bench1 (Linux 6.12, another)"]
    );
}

#[test]
fn the_last_attempt_counts() {
    let results = tempfile::tempdir().unwrap();
    let mut store = common::ladder(results.path(), 5, 3);
    let study_id = store.studies().unwrap()[0].id;
    let failed = store.run_heads(study_id).unwrap().into_iter().find(|h| h.status == Status::Failed).unwrap();
    let steps = store.run(RunId(1)).unwrap().end.unwrap().steps;
    let end = common::end("postgres@18.6", "oltp_read_write", steps);
    store.record_run(study_id, &failed.start, &end).unwrap();
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let study = &report.studies[0];
    let again = point(study, "postgres@18.6", "oltp_read_write", 1);
    assert_eq!((again.runs.len(), again.tps.unwrap().n), (6, 5));
    let first = study.runs.iter().find(|run| run.head.id == failed.id).unwrap();
    assert_eq!(first.standing, Standing::Superseded);
}

#[test]
fn a_climb_is_judged_as_a_whole_and_by_level() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    common::add_climb(&mut store, 5, 3);
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let study = &report.studies[0];
    assert_eq!(study.points.len(), 8);
    assert!(study.points.iter().all(|point| point.is_climb && point.runs.len() == 5));
    let whole: Vec<_> = study.verdicts.iter().filter(|verdict| verdict.climb.is_some()).collect();
    assert_eq!((whole.len(), study.verdicts.len()), (1, 5));
    assert_eq!(whole[0].climb.as_deref(), Some([1, 4, 16, 64].as_slice()));
    assert_eq!(whole[0].result.verdict, stats::Verdict::Faster);
    assert!(study.answer[0].text.contains("over the whole climb"), "{:?}", study.answer[0]);
    let passes = study.runs.iter().filter(|run| run.standing == Standing::LockPass).count();
    assert_eq!(passes, 2);
}

#[test]
fn unequal_durability_is_said_with_each_verdict() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let axes = vec![Axis { name: "server".to_owned(), values: vec!["a".into(), "b".into()] }];
    let comparisons = vec![common::compared("server", "a")];
    let study_id = store.add_study(&common::study("unequal", axes, comparisons, 1, 2)).unwrap();
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    for (server, class, isolation, charset) in
        [("a", "full", "READ-COMMITTED", "utf8mb4"), ("b", "server-crash", "read committed", "UTF8")]
    {
        let start = RunStart {
            host,
            ..RunStart::new(Key::from([("server".to_owned(), server.into())]), vec![8], 1, 0)
        };
        let mut end = common::end(server, "w", vec![]);
        end.server.durability_class = class.to_owned();
        end.server.isolation = isolation.to_owned();
        end.server.charset = charset.to_owned();
        store.record_run(study_id, &start, &end).unwrap();
    }
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let study = &report.studies[0];
    assert_eq!(study.verdicts[0].flags, ["durability class: server-crash against full"]);
    assert_eq!(study.inequalities, ["Not the same durability class everywhere: full (a); server-crash (b)."]);
}

#[test]
fn json_keeps_the_contract() {
    let report = ladder(5);
    let json = report::json(&report);
    assert_eq!(json["schema"], 2);
    let cells = json["cells"].as_array().unwrap();
    let keys = ["study", "host", "server", "workload", "settings", "engine", "cpus", "sessions"];
    for cell in cells {
        for key in keys {
            assert!(!cell["key"][key].is_null(), "{key} is missing in {}", cell["key"]);
        }
        assert!(["median", "low", "high"].iter().all(|part| cell["tps"][part].is_f64()));
    }
    let run = &cells[0]["runs"][0];
    for name in [
        "repeat",
        "block",
        "started_at",
        "host",
        "schema",
        "status",
        "error",
        "workload",
        "options",
        "server",
        "build",
        "seed",
        "sessions",
        "rate",
        "duration_s",
        "transactions",
        "statements",
        "reads",
        "writes",
        "other",
        "in_flight_at_end",
        "backlog_at_end",
        "tps",
        "tps_max",
        "tps_min",
        "qps",
        "outcomes",
        "retries",
        "errors",
        "latency_ms",
        "service_ms",
        "by_statement",
        "intervals",
        "client",
        "warnings",
        "gates",
    ] {
        assert!(run.get(name).is_some(), "{name} is missing in a run");
    }
    for name in ["name", "fingerprint", "boot_id"] {
        assert!(run["host"][name].is_string());
    }
    for name in ["min", "mean", "p50", "p90", "p95", "p99", "max"] {
        assert!(run["latency_ms"][name].is_f64(), "{name}");
    }
    assert_eq!(run["latency_ms"]["p999"], Value::Null);
    let why = format!("needs 10000 transactions, there are {}", run["latency_ms"]["count"]);
    assert_eq!(run["latency_ms"]["absent"]["p999"], why);
    let tps = run["tps"].as_f64().unwrap();
    assert_eq!(run["transactions"].as_f64().unwrap() / run["duration_s"].as_f64().unwrap(), tps);
    assert_eq!(run["intervals"].as_array().unwrap().len(), 3, "measured seconds only");
    assert_eq!(run["intervals"][0]["second"], 1);
    assert!(run["tps_min"].as_f64().unwrap() <= tps && tps <= run["tps_max"].as_f64().unwrap());
    let failed =
        cells.iter().flat_map(|cell| cell["runs"].as_array().unwrap()).find(|r| r["status"] == "failed");
    let failed = failed.unwrap();
    assert_eq!((&failed["tps"], &failed["transactions"]), (&Value::Null, &Value::from(0)));
    let comparison = &json["comparisons"][0];
    for name in [
        "metric",
        "base",
        "other",
        "n",
        "margin",
        "ratio",
        "low",
        "high",
        "p_adjusted",
        "verdict",
        "blocks_needed",
    ] {
        assert!(comparison.get(name).is_some(), "{name} is missing in a comparison");
    }
    assert_eq!(comparison["base"]["server"], "mariadb@11.4.5");
}

#[test]
fn an_unknown_study_and_an_empty_file_have_their_own_words() {
    let results = tempfile::tempdir().unwrap();
    let store = common::ladder(results.path(), 1, 3);
    let error = Report::of_stores(&[&store], &Selection::Studies(vec!["quikstart".to_owned()])).unwrap_err();
    assert_eq!(error.to_string(), "no study quikstart: there is only quickstart");
    let empty = tempfile::tempdir().unwrap();
    let store = Store::open(empty.path()).unwrap();
    let error = Report::of_stores(&[&store], &Selection::Latest).unwrap_err();
    assert_eq!(error.to_string(), "no study to report: there is none recorded yet");
}

#[test]
fn a_study_without_a_finished_run_can_be_reported() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let study = store.add_study(&common::study("early", vec![], vec![], 5, 60)).unwrap();
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    assert!(report::html(&report).unwrap().contains("No run has given figures yet."));
    assert!(report::markdown(&report).contains("0 of 60 planned runs counted"));
    // And one whose only run is going on.
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    let start =
        RunStart { host, ..RunStart::new(Key::from([("server".to_owned(), "a".into())]), vec![8], 1, 0) };
    store.begin_run(study, &start).unwrap();
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    assert_eq!(report.studies[0].runs[0].standing, Standing::Running);
    assert!(report::html(&report).is_ok());
    assert_eq!(report::json(&report)["cells"][0]["tps"], Value::Null);
}

/// Runs that count although a gate tripped: their study has `gates = "warn"`.
#[test]
fn runs_that_a_study_lets_pass_are_told_and_mark_the_verdicts_that_rest_on_them() {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let axes = vec![Axis { name: "server".to_owned(), values: vec!["a".into(), "b".into()] }];
    let comparisons = vec![common::compared("server", "a")];
    let study_id = store.add_study(&common::study("lenient", axes, comparisons, 5, 10)).unwrap();
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    let mut noise = common::Noise::new(3);
    for block in 1..=5 {
        for (index, server) in ["a", "b"].into_iter().enumerate() {
            let start = RunStart {
                index: block * 2 + index as u32,
                block,
                repeat: block,
                host,
                ..RunStart::new(Key::from([("server".to_owned(), server.into())]), vec![8], 1, 0)
            };
            let level = common::Level { sessions: 8, tps: 1000.0, offset_s: 1.0, seconds: 3 };
            let mut end = common::end(server, "w", vec![common::step(&mut noise, &level, false)]);
            if block == 2 && server == "b" {
                let detail = "other processes used 52 % of the machine";
                end.gates = vec![store::Gate {
                    name: "noisy_host".to_owned(),
                    finding: Finding::Tripped,
                    level: None,
                    detail: detail.to_owned(),
                    remedy: "stop what else runs".to_owned(),
                    is_allowed: true,
                }];
                end.warnings
                    .push(format!("noisy_host, allowed by this study: {detail} (stop what else runs)"));
            }
            store.record_run(study_id, &start, &end).unwrap();
        }
    }
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let study = &report.studies[0];
    let doubt = "1 of the 10 runs that it rests on are in doubt (noisy host)";
    assert_eq!(study.verdicts[0].doubts, [doubt]);
    assert!(study.verdicts[0].word().ends_with(", in doubt"), "{}", study.verdicts[0].word());
    assert!(study.answer[0].text.contains(doubt), "{:?}", study.answer[0]);
    let markdown = report::markdown(&report);
    for wanted in [
        "**in doubt, noisy host:** other processes used 52 % of the machine. stop what else runs",
        ", in doubt |",
        &format!("In doubt: TPS, b, 8 sessions: {doubt}"),
    ] {
        assert!(markdown.contains(wanted), "{wanted} is not in\n{markdown}");
    }
    let page = report::html(&report).unwrap();
    assert!(page.contains("in doubt, noisy host") && page.contains(doubt), "the page says it too");
    assert_eq!(report::json(&report)["comparisons"][0]["in_doubt"][0], doubt);
    // The same runs, called invalid, leave the cell without figures, and that is said with its reason.
    assert_eq!(study.why_none_counts(&study.points[0]), None);
}

#[test]
fn a_cell_without_a_run_that_counts_says_why() {
    let results = tempfile::tempdir().unwrap();
    let mut store = common::ladder(results.path(), 1, 3);
    let study_id = store.studies().unwrap()[0].id;
    let head = store.run_heads(study_id).unwrap().into_iter().next().unwrap();
    let mut end = store.run(head.id).unwrap().end.unwrap();
    end.status = Status::Invalid;
    end.error = Some("other processes used 52 % of the machine (stop what else runs)".to_owned());
    store.record_run(study_id, &head.start, &end).unwrap();
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let study = &report.studies[0];
    let said: Vec<String> = study.points.iter().filter_map(|point| study.why_none_counts(point)).collect();
    assert!(
        said.contains(
            &"1 invalid: other processes used 52 % of the machine (stop what else runs)".to_owned()
        ),
        "{said:?}"
    );
    assert!(report::markdown(&report).contains("1 invalid: other processes used 52 %"));
}

#[test]
fn runs_that_are_not_alike_are_cells_of_their_own() {
    let results = tempfile::tempdir().unwrap();
    let (store, _) = common::ladder_changed(results.path(), &|end, block, server, workload, sessions| {
        // The study went on after somebody had changed an option of the workload, which no axis tells.
        if (server, workload, sessions) == ("postgres@18.6", "oltp_read_only", 8) && block > 3 {
            end.workload.options.insert("table_size".to_owned(), "1000000".to_owned());
        }
        // A run that failed early says nothing of its options.
        if (server, workload, sessions, block) == ("postgres@18.6", "oltp_read_only", 8, 6) {
            (end.status, end.workload.options) = (Status::Failed, Default::default());
        }
    });
    let report = Report::of_stores(&[&store], &Selection::Latest).unwrap();
    let study = &report.studies[0];
    let is = |point: &&report::Point| {
        point.key["server"] == "postgres@18.6"
            && point.key["workload"] == "oltp_read_only"
            && point.sessions == 8
    };
    let apart: Vec<(usize, &Value)> =
        study.points.iter().filter(is).map(|point| (point.runs.len(), &point.key["options"])).collect();
    assert_eq!(apart.len(), 2, "{apart:?}");
    assert!(apart.contains(&(3, &"table_size=10000".into())), "{apart:?}");
    assert!(apart.contains(&(3, &"table_size=1000000".into())), "{apart:?}");
    assert!(
        study.inequalities.iter().any(|text| text.contains("not alike in: options")),
        "{:?}",
        study.inequalities
    );
    // The other cells are what they were.
    assert_eq!(study.points.len(), 13);
    assert!(study.points.iter().filter(|point| !is(point)).all(|point| point.runs.len() == 6));
}

#[test]
fn a_later_first_look_does_not_stand_for_the_study() {
    let results = tempfile::tempdir().unwrap();
    let (mut store, full) = common::ladder_changed(results.path(), &|_, _, _, _, _| ());
    let mut quick = store.studies().unwrap()[0].study.clone();
    quick.is_quick = true;
    let quick = store.add_study(&quick).unwrap();
    let shown = |selection: &Selection| -> Vec<StudyId> {
        let report = Report::of_stores(&[&store], selection).unwrap();
        report.studies[0].records.iter().map(|view| view.record.id).collect()
    };
    assert_eq!(shown(&Selection::Latest), [full]);
    assert_eq!(shown(&Selection::Records(vec![quick])), [quick]);
}
