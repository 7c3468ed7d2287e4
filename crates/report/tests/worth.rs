//! What runs are worth: faults of the measurement exclude, behaviour of the server marks, and both are told by side.

mod common;

use report::{Report, Selection, Standing};
use store::*;

/// A study of servers a and b at 8 sessions, each run as `spoil` leaves it.
fn two_servers(blocks: u32, levels: &[u32], spoil: &dyn Fn(&mut RunEnd, u32, &str)) -> Report {
    compared(&["tps"], blocks, levels, spoil)
}

/// The same, compared by these metrics.
fn compared(metrics: &[&str], blocks: u32, levels: &[u32], spoil: &dyn Fn(&mut RunEnd, u32, &str)) -> Report {
    let results = tempfile::tempdir().unwrap();
    let mut store = Store::open(results.path()).unwrap();
    let axes = vec![Axis { name: "server".to_owned(), values: vec!["a".into(), "b".into()] }];
    let comparisons = vec![Comparison {
        axis: "server".to_owned(),
        base: "a".into(),
        metrics: metrics.iter().map(|metric| (*metric).to_owned()).collect(),
        margin: 0.05,
        primary: None,
        is_watched: false,
    }];
    let study_id = store.add_study(&common::study("worth", axes, comparisons, blocks, 2 * blocks)).unwrap();
    let host = store.add_host(&common::host("bench1", "Linux")).unwrap();
    let mut noise = common::Noise::new(3);
    for block in 1..=blocks {
        for (index, server) in ["a", "b"].into_iter().enumerate() {
            let start = RunStart {
                index: block * 2 + index as u32,
                is_climb: levels.len() > 1,
                block,
                repeat: block,
                host,
                ..RunStart::new(Key::from([("server".to_owned(), server.into())]), levels.to_vec(), 1, 0)
            };
            let step = |(at, sessions): (usize, &u32)| {
                let tps = if server == "a" { 1000.0 } else { 800.0 } * noise.around(0.02);
                let offset_s = 1.0 + 5.0 * at as f64;
                common::step(
                    &mut noise,
                    &common::Level { sessions: *sessions, tps, offset_s, seconds: 3 },
                    false,
                )
            };
            let steps = levels.iter().enumerate().map(step).collect();
            let mut end = common::end(server, "w", steps);
            spoil(&mut end, block, server);
            store.record_run(study_id, &start, &end).unwrap();
        }
    }
    Report::of_stores(&[&store], &Selection::Latest).unwrap()
}

/// The gate of that name trips.
fn trip(end: &mut RunEnd, name: &str, level: Option<u32>) {
    end.gates.retain(|gate| gate.name != name);
    end.gates.push(Gate {
        name: name.to_owned(),
        finding: Finding::Tripped,
        level,
        detail: format!("{name} was seen"),
        remedy: "look at it".to_owned(),
        is_allowed: false,
    });
}

fn make_invalid(end: &mut RunEnd) {
    end.status = Status::Invalid;
    end.error = Some("a fault".to_owned());
}

#[test]
fn how_a_server_behaved_marks_its_cell_and_excludes_nothing() {
    // Files of earlier versions called such runs invalid; they count as those of today do.
    for is_old in [false, true] {
        let report = two_servers(5, &[8], &|end, block, server| {
            if server == "b" && block > 1 {
                trip(end, "not_steady", None);
                if is_old {
                    make_invalid(end);
                }
            }
        });
        let study = &report.studies[0];
        assert!(study.runs.iter().all(|run| run.standing == Standing::Counted));
        let verdict = &study.verdicts[0];
        assert_eq!((verdict.result.n, verdict.result.verdict), (5, stats::Verdict::Slower));
        assert_eq!(verdict.marks, ["not steady in 4 of 5 runs of b, 0 of 5 of a"]);
        assert!(verdict.lost.is_none() && verdict.doubts.is_empty(), "{verdict:?}");
        assert_eq!(study.marks_text(&study.points[1]), "not steady in 4 of 5 runs");
        assert_eq!(study.marks_text(&study.points[0]), "");
        let json = report::json(&report);
        let mark = serde_json::json!([{"gate": "not_steady", "tripped": 4, "not_checked": 1, "runs": 5}]);
        assert_eq!(json["cells"][1]["marks"], mark);
        let run = &json["cells"][1]["runs"][1];
        assert_eq!((&run["status"], &run["error"]), (&"done".into(), &serde_json::Value::Null));
        assert_eq!(run["gates"]["not_steady"]["finding"], "tripped");
        assert_eq!(run["gates"]["not_steady"]["kind"], "server");
        assert_eq!(run["gates"]["cpu_frequency"]["finding"], "not_checked");
        let page = report::html(&report).unwrap();
        assert!(page.contains("not steady in 4 of 5 runs of b, 0 of 5 of a"));
        let markdown = report::markdown(&report);
        assert!(
            markdown.contains("Marked: TPS, b, 8 sessions: not steady in 4 of 5 runs of b"),
            "{markdown}"
        );
        assert!(markdown.contains("**the server, not steady, 4 runs:** not\\_steady was seen"), "{markdown}");
    }
}

#[test]
fn what_was_not_looked_at_is_never_drawn_as_good() {
    let report = two_servers(1, &[8], &|_, _, _| ());
    let page = report::html(&report).unwrap();
    assert!(page.contains(
        r#"<span class="line neutral">cpu frequency: not checked (the kernel shows no frequency here)"#
    ));
    assert!(page.contains(r#"<span class="line good">settings: held (nothing was wrong)"#));
    let markdown = report::markdown(&report);
    assert!(
        markdown.contains(
            "| cpu frequency | the measurement: excludes | the kernel shows no frequency here | 0 | 0 | 2 |"
        ),
        "{markdown}"
    );
}

#[test]
fn sides_that_lose_different_numbers_of_runs_get_a_second_answer_over_all() {
    let report = two_servers(7, &[8], &|end, block, server| {
        if server == "b" && block <= 2 {
            trip(end, "noisy_host", None);
            make_invalid(end);
        }
    });
    let study = &report.studies[0];
    let verdict = &study.verdicts[0];
    let lost = verdict.lost.as_ref().unwrap();
    assert_eq!((verdict.result.n, lost.base, lost.other, lost.over_all.n), (5, (0, 7), (2, 7), 7));
    let text = verdict.lost_text().unwrap();
    let wanted = "faults of the measurement cost 2 of 7 runs of b and 0 of 7 of a; over all completed runs: slower, ×0.";
    assert!(text.starts_with(wanted), "{text}");
    assert_eq!(report::json(&report)["comparisons"][0]["lost"]["other"]["lost"], 2);
    assert!(report::markdown(&report).contains("Runs lost: TPS, b, 8 sessions: faults"));
    assert!(report::html(&report).unwrap().contains("cost 2 of 7 runs of b"));
    assert!(study.answer[0].text.contains("lost different numbers of runs"), "{:?}", study.answer[0]);
    // The same number on both sides is no reason to doubt the comparison.
    let even = two_servers(7, &[8], &|end, block, _| {
        if block <= 2 {
            trip(end, "noisy_host", None);
            make_invalid(end);
        }
    });
    assert!(even.studies[0].verdicts[0].lost.is_none());
}

#[test]
fn a_level_at_fault_leaves_the_others_of_its_climb() {
    let report = two_servers(5, &[1, 8], &|end, block, server| {
        if server == "b" && block == 3 {
            trip(end, "client_bound", Some(8));
            make_invalid(end);
        }
    });
    let study = &report.studies[0];
    let counted = |sessions: u32| {
        let is_b = |point: &&report::Point| point.key["server"] == "b" && point.sessions == sessions;
        study.counted(study.points.iter().find(is_b).unwrap()).count()
    };
    assert_eq!((counted(1), counted(8)), (5, 4));
    let json = report::json(&report);
    let of = |sessions: u32| {
        let mut cells = json["cells"].as_array().unwrap().iter();
        let cell = cells.find(|cell| cell["key"]["server"] == "b" && cell["key"]["sessions"] == sessions);
        cell.unwrap()["runs"][2].clone()
    };
    assert_eq!((&of(1)["status"], &of(8)["status"]), (&"done".into(), &"invalid".into()));
    assert_eq!(of(8)["standing"], "invalid");
    assert_eq!(of(1)["gates"].get("client_bound"), None, "it was looked at for the other level");
}

#[test]
fn a_writing_cell_that_is_too_short_says_so() {
    let report = two_servers(1, &[8], &|end, _, server| {
        end.steps[0].writes = 100;
        if server == "a" {
            end.gates.iter_mut().for_each(|gate| gate.finding = Finding::Held);
        }
    });
    let study = &report.studies[0];
    let short = |at: usize| study.is_short_term(&study.points[at]);
    assert_eq!((short(0), short(1)), (false, true));
    let told = "short-term: runs too short to tell whether the throughput of b lasts";
    assert_eq!(study.verdicts[0].marks, [told]);
    assert_eq!(report::json(&report)["cells"][1]["short_term"], true);
    // Reading builds up nothing that could end it.
    let reading = two_servers(1, &[8], &|end, _, _| end.steps[0].writes = 0);
    assert!(!reading.studies[0].is_short_term(&reading.studies[0].points[0]));
}

#[test]
fn tables_that_do_not_fit_the_outcomes_are_told_on_top_of_everything() {
    let report = two_servers(5, &[8], &|end, block, server| match (block, server) {
        (2, "b") => {
            trip(end, "consistency", None);
            make_invalid(end);
        }
        (1, "a") => {
            end.status = Status::Failed;
            end.error = Some("it died".to_owned());
        }
        _ => {}
    });
    let study = &report.studies[0];
    let wanted =
        "Tables are not what the counted outcomes imply in 1 of 10 runs (r4): either the server lost";
    assert!(study.answer[0].text.starts_with(wanted), "{:?}", study.answer[0]);
    let markdown = report::markdown(&report);
    let first = markdown.split("## Warnings\n\n").nth(1).unwrap();
    assert!(first.starts_with("- **consistency:** consistency was seen"), "{first}");
}

#[test]
fn stalls_have_a_table_and_columns() {
    let report = two_servers(2, &[8], &|end, block, server| {
        let stalls = if (block, server) == (2, "b") { (2, 2.4) } else { (0, 0.1) };
        end.steps[0].stalls = Some(Stalls { seconds: stalls.0, longest_s: stalls.1 });
        end.steps[0].writes = 0;
        if stalls.0 > 0 {
            end.facts.insert("stalled/8/2".to_owned(), "for 2 s; its log: checkpoint starting".to_owned());
        }
    });
    let markdown = report::markdown(&report);
    assert!(markdown.contains("## Stalls and marks"), "{markdown}");
    assert!(markdown.contains("| for 2 s; its log: checkpoint starting | 2 |"), "{markdown}");
    assert!(markdown.contains("| b | – | 8 | 1 of 2 | 2 | 2.40 |"), "{markdown}");
    assert!(!markdown.contains("| a | – | 8 | 0 of 2"), "{markdown}");
    let out = tempfile::tempdir().unwrap();
    report::write_csv(&report, out.path()).unwrap();
    let runs = std::fs::read_to_string(out.path().join("runs.csv")).unwrap();
    let column = |name: &str| runs.lines().next().unwrap().split(',').position(|head| head == name).unwrap();
    let last: Vec<&str> = runs.lines().last().unwrap().split(',').collect();
    assert_eq!((last[column("stalled_s")], last[column("freeze_s")]), ("2", "2.4"));
    let gates = std::fs::read_to_string(out.path().join("gates.csv")).unwrap();
    assert!(
        gates.contains("worth,r1,,not_steady,server,not_checked,false,\"3 whole seconds, 10 are needed\",")
    );
}

/// A histogram of the step's transactions but for so many.
fn shorten(end: &mut RunEnd, count: u64) {
    let mut response = hdrhistogram::Histogram::new_with_bounds(1, 10_000_000, 3).unwrap();
    (0..count).for_each(|value| response.record(1000 + value).unwrap());
    end.steps[0].response = response;
}

#[test]
fn a_percentile_of_too_few_transactions_is_absent_with_the_reason() {
    // One run of b is short of one transaction; 2,400 or 3,000 are in all others.
    let report = compared(&["p95", "p99"], 5, &[8], &|end, block, server| {
        if (block, server) == (4, "b") {
            shorten(end, 999);
        }
    });
    let study = &report.studies[0];
    let of = |metric: &str| study.verdicts.iter().find(|verdict| verdict.metric == metric).unwrap();
    assert!(of("p95").result.ratio.is_some() && of("p95").absent.is_empty());
    // The runs that have enough are not like the others: they do not speak for them.
    assert!(of("p99").result.ratio.is_none());
    let why = "needs 1000 transactions in each run: 1 of 5 runs had fewer (999)";
    assert_eq!(of("p99").absent, [format!("no p99 of response time of b: it {why}")]);
    let points: Vec<_> = study.points.iter().map(|point| (point.p95_ms, point.p99_ms)).collect();
    assert!(points[0].0.is_some() && points[0].1.is_some() && points[1].0.is_some());
    assert_eq!(points[1].1, None);
    let json = report::json(&report);
    let latency = &json["cells"][1]["latency_ms"];
    assert_eq!((&latency["p99"], &latency["absent"]["p99"]), (&serde_json::Value::Null, &why.into()));
    let run = &json["cells"][1]["runs"][3]["latency_ms"];
    assert_eq!(run["p99"], serde_json::Value::Null);
    assert_eq!(run["absent"]["p99"], "needs 1000 transactions, there are 999");
    assert!(json["cells"][1]["runs"][0]["latency_ms"]["p99"].is_f64());
    let footnote = "no p99: it needs 1000 transactions in each run, and 1 cell has a run with fewer";
    let markdown = report::markdown(&report);
    assert!(markdown.contains(&format!("–: {footnote}.")), "{markdown}");
    assert!(markdown.contains(&format!(
        "Absent: p99 of response time, b, 8 sessions: no p99 of response time of b: it {why}"
    )));
    let page = report::html(&report).unwrap();
    assert!(page.contains(footnote) && page.contains(why));
    let said = study.answer.iter().map(|said| &said.text).find(|text| text.contains("p99")).unwrap();
    assert!(said.contains(&format!("nothing to compare: no p99 of response time of b: it {why}")), "{said}");
    let out = tempfile::tempdir().unwrap();
    report::write_csv(&report, out.path()).unwrap();
    let cells = std::fs::read_to_string(out.path().join("cells.csv")).unwrap();
    assert!(cells.contains(&format!("p99 {why}")), "{cells}");
}

/// Beside each statement the machine wakes up twice: the figure of a cell with few sessions says so when that is much.
#[test]
fn a_cell_in_which_wake_ups_are_a_fifth_of_the_response_time_says_so() {
    let report_with = |wakeup_us: f64, cpus: &str| {
        two_servers(1, &[8], &|end, _, _| {
            end.facts.insert("cpus".to_owned(), cpus.to_owned());
            end.facts.insert("wakeup_us".to_owned(), wakeup_us.to_string());
        })
    };
    let awake = report_with(0.0, "8");
    let step = &awake.studies[0].runs[0].steps[0];
    let (mean_us, statements) = (step.response.as_ref().unwrap().mean * 1000.0, step.qps / step.tps);
    let marked = |share: f64, cpus: &str| {
        let report = report_with(share * mean_us / statements / 2.0, cpus);
        let study = &report.studies[0];
        (study.marks_text(&study.points[0]), report::json(&report)["cells"][0]["wakeup_share"].clone())
    };
    let (text, json) = marked(0.25, "8");
    assert_eq!(text, "wake-ups are 25 % of the response time");
    assert!((json.as_f64().unwrap() - 0.25).abs() < 1e-6, "{json}");
    assert_eq!(marked(0.19, "8"), (String::new(), serde_json::Value::Null));
    // With more sessions than cpus these are awake.
    assert_eq!(marked(0.25, "7"), (String::new(), serde_json::Value::Null));
}

/// How the client was scheduled and how the cpus idled decide as the build does.
#[test]
fn runs_of_machines_that_idle_otherwise_are_never_pooled() {
    let report = two_servers(2, &[8], &|end, block, _| {
        let idle = if block == 1 { "awake" } else { "as-is" };
        end.facts.insert("cpus_idle".to_owned(), idle.to_owned());
    });
    let points = &report.studies[0].points;
    let mut idle: Vec<&str> = points.iter().map(|point| point.key["cpus_idle"].as_str().unwrap()).collect();
    idle.sort_unstable();
    assert_eq!(idle, ["as-is", "as-is", "awake", "awake"]);
}
