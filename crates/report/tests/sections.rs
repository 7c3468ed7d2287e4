//! The sections that a study gets beside the common ones: chosen by axes and by its `[report]` table, with figures that
//! are known.

mod common;

use common::{Level, Noise};
use report::bundle::{Bundling, bundle, verify};
use report::{Report, Selection};
use serde_json::Value;
use store::bundle::{FIGURES, Limits, Manifest, pack, unpack};
use store::*;

/// A study over the product of its axes; `tps` says what each cell carries.
struct Made<'a> {
    file_text: &'a str,
    axes: &'a [(&'a str, &'a [&'a str])],
    levels: &'a [u32],
    is_climb: bool,
    compare: (&'a str, &'a str),
    tps: &'a dyn Fn(&Key, u32) -> f64,
}

const BLOCKS: u32 = 5;

/// Its page.
fn made(of: &Made<'_>) -> String {
    report::html(&report_of(of)).expect("a page")
}

fn report_of(of: &Made<'_>) -> Report {
    Report::of_stores(&[&store_of(of)], &Selection::Latest).expect("a report")
}

fn store_of(of: &Made<'_>) -> Store {
    let directory = tempfile::tempdir().expect("a directory");
    let mut store = Store::open(directory.path()).expect("a store");
    let mut axes: Vec<Axis> = of
        .axes
        .iter()
        .map(|(name, values)| Axis {
            name: (*name).to_owned(),
            values: values.iter().map(|v| (*v).into()).collect(),
        })
        .collect();
    let ladder = if of.is_climb { "climb" } else { "sessions" };
    axes.push(Axis {
        name: ladder.to_owned(),
        values: of.levels.iter().map(|level| (*level).into()).collect(),
    });
    let comparison = Comparison {
        axis: of.compare.0.to_owned(),
        base: of.compare.1.into(),
        metrics: vec!["tps".to_owned()],
        margin: 0.05,
        primary: None,
        is_watched: false,
    };
    let mut study = common::study("made", axes, vec![comparison], BLOCKS, 1);
    of.file_text.clone_into(&mut study.file_text);
    let id = store.add_study(&study).expect("a study");
    let host = store.add_host(&common::host("bench1", "Linux 6.1")).expect("a host");
    let mut cells = vec![Key::new()];
    for (name, values) in of.axes {
        cells = cells
            .into_iter()
            .flat_map(|cell| {
                values.iter().map(move |value| {
                    let mut cell = cell.clone();
                    cell.insert((*name).to_owned(), (*value).into());
                    cell
                })
            })
            .collect();
    }
    let mut noise = Noise::new(3);
    let runs: Vec<&[u32]> = if of.is_climb { vec![of.levels] } else { of.levels.chunks(1).collect() };
    let mut index = 0;
    for block in 1..=BLOCKS {
        for cell in &cells {
            for levels in &runs {
                let start = RunStart {
                    index,
                    is_climb: of.is_climb,
                    block,
                    repeat: block,
                    host,
                    ..RunStart::new(cell.clone(), levels.to_vec(), 1, 1_795_000_000_000 + i64::from(index))
                };
                index += 1;
                let steps = levels.iter().enumerate().map(|(at, sessions)| {
                    let offset_s = 2.0 + at as f64 * 6.0;
                    let level =
                        Level { sessions: *sessions, tps: (of.tps)(cell, *sessions), offset_s, seconds: 4 };
                    common::step(&mut noise, &level, true)
                });
                let steps: Vec<Step> = steps.collect();
                let server = cell.get("server").and_then(Value::as_str).unwrap_or("mariadb@11.4.5");
                let mut end = common::end(server, "oltp_04", steps);
                for level in *levels {
                    end.facts.insert(format!("per_transaction/{level}/server_cpu"), "412 us".to_owned());
                }
                store.record_run(id, &start, &end).expect("a run");
            }
        }
    }
    store::testing::in_memory(&store).expect("a store in memory")
}

/// The text of a section, without the page's markup.
fn section(page: &str, id: &str) -> Option<String> {
    let from = page.find(&format!("<section id=\"s1-{id}\">"))?;
    let piece = &page[from..from + page[from..].find("</section>")?];
    let mut text = String::new();
    let mut is_inside = false;
    for c in piece.chars() {
        match c {
            '<' => is_inside = true,
            '>' => {
                is_inside = false;
                text.push(' ');
            }
            c if !is_inside => text.push(c),
            _ => {}
        }
    }
    Some(text.split_whitespace().collect::<Vec<_>>().join(" ").replace("&#x2f;", "/"))
}

/// What the page's charts draw.
fn charts(page: &str) -> Value {
    let data = page.split("id=\"data\">").nth(1).expect("data");
    let data = data.split("</script>").next().expect("an end");
    let data: Value = serde_json::from_str(data).expect("JSON");
    data["studies"][0].clone()
}

fn ladders_of(page: &str, metric: &str) -> Vec<Value> {
    let ladders = charts(page)["ladders"].as_array().expect("charts").clone();
    ladders.into_iter().filter(|ladder| ladder["metric"] == metric).collect()
}

/// Names of the lines in the charts of a section.
fn lines_of(page: &str, metric: &str) -> Vec<String> {
    ladders_of(page, metric)
        .into_iter()
        .flat_map(|ladder| ladder["lines"].as_array().expect("lines").clone())
        .map(|line| line["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn is(key: &Key, axis: &str, value: &str) -> bool {
    key.get(axis).and_then(Value::as_str) == Some(value)
}

/// Settings of two servers in two places: each chart has the settings side by side, all charts one scale, and Israel's
/// response times of another machine, thirty times ours, do not press it down.
#[test]
fn charts_put_side_by_side_what_is_compared() {
    let page = made(&Made {
        file_text: "[report]\npublished = \"israel-2015\"\n",
        axes: &[
            ("server", &["mariadb@11.4.5", "postgres@18.6"]),
            ("settings", &["safest", "fast", "unsafe"]),
            ("storage", &["default", "memory"]),
        ],
        levels: &[16, 64],
        is_climb: false,
        compare: ("settings", "safest"),
        tps: &|key, _| if is(key, "storage", "memory") { 30_000.0 } else { 7_000.0 },
    });
    for metric in ["tps", "p95", "p99"] {
        let ladders = ladders_of(&page, metric);
        assert_eq!(ladders.len(), 4, "two servers in two places");
        for ladder in &ladders {
            let lines = ladder["lines"].as_array().expect("lines");
            let measured = lines.iter().filter(|line| line["reference"] == false);
            let names: Vec<&str> = measured.filter_map(|line| line["name"].as_str()).collect();
            assert_eq!(names, ["safest", "fast", "unsafe"]);
            assert_eq!(ladder["scale"], ladders[0]["scale"], "{metric}");
        }
    }
    let top = |metric: &str| ladders_of(&page, metric)[0]["scale"]["top"].as_f64().expect("a top");
    assert!((30_000.0..50_000.0).contains(&top("tps")), "{}", top("tps"));
    // 64 sessions at 7,000/s take 9 ms, their p95 some 30; his took 47 to 400.
    assert!(top("p95") < 60.0, "{}", top("p95"));
    let names = lines_of(&page, "p95");
    assert!(names.contains(&"IOPS safest (published 2015), beyond the scale".to_owned()), "{names:?}");
    // Small multiples name them once.
    let named = |ladder: &Value| {
        let lines = ladder["lines"].as_array().expect("lines").iter();
        lines.filter(|line| line["is_named_before"] == false).count()
    };
    let of_each: Vec<usize> = ladders_of(&page, "p95").iter().map(named).collect();
    assert!(of_each[0] > 3 && of_each[1..] == [3; 3], "{of_each:?}");
    // Average, best and worst second: a box for each of the compared, not a chart.
    let charts = charts(&page);
    let seconds = charts["seconds"].as_array().expect("charts");
    assert_eq!(seconds.len(), 4);
    assert!(seconds.iter().all(|chart| chart["lines"].as_array().is_some_and(|lines| lines.len() == 3)));
    assert!(seconds.iter().all(|chart| chart["scale"] == seconds[0]["scale"]));
}

#[test]
fn scaling_stands_beside_the_servers_cpu_time() {
    let page = made(&Made {
        file_text: "[report]\npublished = \"bourke-2005\"\n",
        axes: &[
            ("server", &["mariadb@11.4.5"]),
            ("workload", &["select-key", "OLTP"]),
            ("cpus", &["1", "2"]),
        ],
        levels: &[10],
        is_climb: false,
        compare: ("cpus", "1"),
        tps: &|key, _| match (is(key, "cpus", "2"), is(key, "workload", "OLTP")) {
            (false, _) => 1000.0,
            (true, true) => 1000.0,
            (true, false) => 1900.0,
        },
    });
    let text = section(&page, "scaling").expect("cpus vary");
    assert!(text.contains("select-key 1 to 2") && text.contains("412 µs"), "{text}");
    // Noise of some percent around 1.9.
    assert!(text.contains("+9") || text.contains("+8"), "{text}");
    assert!(page.contains("data-metric=\"scaling\"") && page.contains("forcedirectio"));
    // Published figures stand in the chart where their workload is, and nowhere else.
    assert!(
        lines_of(&page, "scaling").iter().any(|name| name.starts_with("Linux 2.4 and 2.6")),
        "select-key"
    );
    assert!(
        !lines_of(&page, "scaling").iter().any(|name| name.starts_with("NetBSD")),
        "no such workload here"
    );
    assert!(section(&page, "stability").is_none() && section(&page, "storage").is_none());
}

#[test]
fn versions_and_the_cost_of_settings() {
    let page = made(&Made {
        file_text: "[report]\nsections = [\"versions\"]\npublished = [\"maxia-2009\", \"mysql-bug-30414\"]\n",
        axes: &[
            ("server", &["mysql@5.5.34", "mysql@5.6.14", "mariadb@10.11.5"]),
            ("settings", &["no-log", "binlog"]),
            ("intervene", &["none", "general-table"]),
            ("workload", &["read-write"]),
        ],
        levels: &[8],
        is_climb: false,
        compare: ("settings", "no-log"),
        tps: &|key, _| match (is(key, "settings", "no-log"), is(key, "intervene", "none")) {
            (true, true) => 2000.0,
            (true, false) => 1000.0,
            (false, _) => 500.0,
        },
    });
    assert!(page.contains("TPS by version"));
    let cost = section(&page, "cost").expect("settings are compared");
    assert!(cost.contains("TPS with no-log") && cost.contains("-5") | cost.contains("-4"), "{cost}");
    // The interval stands with it.
    assert!(cost.contains(" to -"), "{cost}");
    assert!(cost.contains("published 2009: MySQL 5.1 (about) – -50.0 %"), "{cost}");
    assert!(cost.contains("TPS without") && cost.contains("What was switched on and off"), "{cost}");
    let lines = lines_of(&page, "versions");
    for name in ["no-log", "general-table", "binlog", "binlog with general-table"] {
        assert!(lines.contains(&name.to_owned()), "{name} in {lines:?}");
    }
    // A version that is not on the axis is a level to compare with.
    assert!(lines_of(&page, "versions").contains(&"MySQL 5.1.21, no log (published 2007)".to_owned()));
}

#[test]
fn levels_end_with_their_mean_and_the_speed_up() {
    let page = made(&Made {
        file_text: "[report]\nmean_from = 5\npublished = \"anandtech-2006\"\n",
        axes: &[("server", &["mariadb@11.4.5", "postgres@18.6"]), ("cpus", &["half", "all"])],
        levels: &[1, 5, 10],
        is_climb: true,
        compare: ("cpus", "half"),
        tps: &|key, _| if is(key, "cpus", "all") { 300.0 } else { 200.0 },
    });
    let text = section(&page, "levels").expect("cpus vary over a ladder");
    assert!(text.contains("mean from 5 up") && text.contains("speed-up"), "{text}");
    assert!(text.contains("mariadb@11.4.5, half cpus"), "{text}");
    assert!(text.contains("+4") || text.contains("+5"), "{text}");
    assert!(text.contains("MySQL, Opteron 275 (2006) 749 590 -21 %"), "{text}");
}

#[test]
fn climbs_have_a_curve_where_one_holds() {
    let usl = |n: f64| 90.0 * n / (1.0 + 0.03 * (n - 1.0) + 0.0005 * n * (n - 1.0));
    let page = made(&Made {
        file_text: "",
        axes: &[("server", &["mariadb@11.4.5", "mysql@8.0.33", "postgres@18.6"])],
        levels: &[1, 4, 8, 16, 32, 64, 128],
        is_climb: true,
        compare: ("server", "mariadb@11.4.5"),
        tps: &|key, sessions| {
            let n = f64::from(sessions);
            if is(key, "server", "postgres@18.6") {
                90.0 * n
            } else if is(key, "server", "mysql@8.0.33") {
                usl(n) * if [4, 16, 64].contains(&sessions) { 3.0 } else { 1.0 }
            } else {
                usl(n)
            }
        },
    });
    let text = section(&page, "stability").expect("a climb");
    assert!(text.contains("Seconds of each level") && text.contains("MAX / AVG"), "{text}");
    assert!(text.contains("mariadb@11.4.5 0.03") || text.contains("mariadb@11.4.5 0.02"), "{text}");
    assert!(text.contains("No curve of postgres@18.6: throughput was still rising"), "{text}");
    // A climb that jumps up and down has no shape to speak of, though a curve goes through it.
    assert!(text.contains("No curve of mysql@8.0.33: the best one explains"), "{text}");
    assert_eq!(lines_of(&page, "stability"), ["measured", "fit"]);
    assert!(page.contains("data-metric=\"stability\""));
}

#[test]
fn storages_stand_beside_durability_and_littles_law() {
    let page = made(&Made {
        file_text: "[report]\nsections = \"storage\"\npublished = \"israel-2015\"\n",
        axes: &[
            ("server", &["mariadb@11.4.5"]),
            ("settings", &["safest", "fast"]),
            ("storage", &["default", "memory"]),
        ],
        levels: &[16, 64],
        is_climb: false,
        compare: ("settings", "safest"),
        tps: &|key, _| if is(key, "settings", "fast") { 1200.0 } else { 300.0 },
    });
    let text = section(&page, "storage").expect("storage varies");
    for wanted in ["Durability", "Little", "TPS per fsync", "memory safest"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    // What a study asks for comes first, and the way to it is at the top.
    let at = |id: &str| page.find(&format!("<section id=\"s1-{id}\">")).expect("a section");
    assert!(at("storage") < at("cost") && page.contains("<a href=\"#s1-storage\">By storage</a>"));
    // The published table with the check that two of its rows fail.
    assert!(text.contains("EBS safest 32 73.0 69.0 357 0.81 (does not add up)"), "{text}");
    // The sample's places were never probed.
    assert!(text.contains("default was not probed"), "{text}");
}

#[test]
fn wishes_can_be_told_from_axes() {
    let plain = Made {
        file_text: "",
        axes: &[("server", &["mariadb@11.4.5", "postgres@18.6"])],
        levels: &[1, 8],
        is_climb: false,
        compare: ("server", "mariadb@11.4.5"),
        tps: &|_, sessions| 100.0 * f64::from(sessions),
    };
    let page = made(&plain);
    for id in ["scaling", "versions", "cost", "storage", "levels", "stability"] {
        assert!(section(&page, id).is_none(), "{id}");
    }
    let page = made(&Made { file_text: "[report]\nsections = \"levels\"\nmean_from = 8\n", ..plain });
    assert!(section(&page, "levels").expect("asked for").contains("mean from 8 up"));
}

/// What the sections tell is in JSON, by names that stay: bundles are sealed with them.
#[test]
fn figures_of_sections_are_in_json() {
    let of = |axes, levels, is_climb, compare, tps: &dyn Fn(&Key, u32) -> f64| {
        let made = Made { file_text: "[report]\nmean_from = 5\n", axes, levels, is_climb, compare, tps };
        let json = report::json(&report_of(&made));
        assert_eq!(json["sections"][0]["study"], "made");
        (json["sections"][0]["sections"].clone(), json["cells"][0].clone())
    };
    let near = |value: &Value, wanted: f64| {
        let value = value.as_f64().unwrap_or_else(|| panic!("{value} is a number"));
        assert!((value / wanted - 1.0).abs() < 0.2, "{value}, wanted {wanted}");
    };

    let doubled = |key: &Key, _| if is(key, "cpus", "all") { 300.0 } else { 200.0 };
    let (sections, cell) = of(
        &[("server", &["mariadb@11.4.5"]), ("cpus", &["half", "all"])],
        &[1, 5, 10],
        true,
        ("cpus", "half"),
        &doubled,
    );
    let pair = &sections["scaling"]["pairs"][0]["rows"][0];
    near(&pair["change"]["ratio"], 1.5);
    assert!(pair["change"]["low"].is_number() && pair["change"]["high"].is_number(), "{pair}");
    near(&pair["server_cpu_before"], 412.0);
    let levels = sections["levels"]["levels"][0]["rows"].as_array().expect("rows");
    let of_row = |name: &str| {
        let row =
            levels.iter().find(|row| row["of"] == name).unwrap_or_else(|| panic!("{name} in {levels:?}"));
        row["mariadb@11.4.5, all cpus"].clone()
    };
    near(&of_row("speed-up"), 1.5);
    let by_blocks = &sections["levels"]["speed_ups"][0]["rows"][0];
    near(&by_blocks["change"]["ratio"], 1.5);
    assert!(by_blocks["change"]["low"].as_f64() < by_blocks["change"]["high"].as_f64(), "{by_blocks}");
    near(&sections["stability"]["seconds"][0]["rows"][0]["avg_tps"], 200.0);
    assert!(sections["gates"]["gates"][0]["rows"][0]["held"].is_number(), "{}", sections["gates"]);
    near(&cell["per_transaction"]["server_cpu"]["median"], 412.0);
    assert!(cell["client"]["cpu_us_per_statement"].is_number() && cell["little"].is_number(), "{cell}");

    let axes: [(&str, &[&str]); 2] = [("settings", &["safest", "fast"]), ("storage", &["default", "memory"])];
    let fast = |key: &Key, _| if is(key, "settings", "fast") { 1200.0 } else { 300.0 };
    let (sections, _) = of(&axes, &[16], false, ("settings", "safest"), &fast);
    near(&sections["cost"]["settings"][0]["rows"][0]["settings=fast"]["ratio"], 4.0);
    near(&sections["storage"]["places"][0]["rows"][0]["tps"], 300.0);

    let usl = |_: &Key, n: u32| {
        90.0 * f64::from(n) / (1.0 + 0.03 * (f64::from(n) - 1.0) + 0.0005 * f64::from(n * (n - 1)))
    };
    let servers: [(&str, &[&str]); 1] = [("server", &["mariadb@11.4.5"])];
    let (sections, _) = of(&servers, &[1, 4, 8, 16, 32, 64, 128], true, ("server", "mariadb@11.4.5"), &usl);
    let fit = &sections["stability"]["usl"][0]["rows"][0];
    near(&fit["gamma"]["value"], 90.0);
    near(&fit["r_squared"], 1.0);
}

/// Who was rolled back was in the system, too. Bundles that were sealed with the law of committed transactions still verify.
#[test]
fn littles_law_is_the_same_one_in_cells_and_by_storage() {
    let store = store_of(&Made {
        file_text: "[report]\nsections = \"storage\"\n",
        axes: &[("storage", &["default", "memory"])],
        levels: &[16],
        is_climb: false,
        compare: ("storage", "default"),
        tps: &|_, _| 300.0,
    });
    let study = store.studies().expect("studies")[0].id;
    let limits = Limits::default();
    let sealed = bundle(&store, study, Bundling::default()).expect("a bundle");
    // As an earlier version sealed it: no names of rows, and another figure.
    let earlier = |little: &dyn Fn(usize) -> Value| {
        let mut members = unpack(&sealed.bytes, &limits).expect("members");
        let figures = members.iter_mut().find(|(name, _)| name == FIGURES).expect("figures");
        let mut json: Value = serde_json::from_slice(&figures.1).expect("JSON");
        let rows = &mut json["sections"][0]["sections"]["storage"]["places"][0]["rows"];
        for (at, row) in rows.as_array_mut().expect("rows").iter_mut().enumerate() {
            let row = row.as_object_mut().expect("a row");
            assert!(row.remove("row").is_some() && row.remove("little_started").is_some(), "{row:?}");
            row.insert("little".to_owned(), little(at));
        }
        figures.1 = serde_json::to_vec(&json).expect("JSON");
        let manifest: Manifest = serde_json::from_slice(&members[0].1).expect("a manifest");
        members[0].1 = Manifest::new(&manifest.study, manifest.author, &members[1..], vec![]).bytes();
        verify(&pack(&members).expect("a bundle"), &limits)
    };
    let found = earlier(&|_| 7.into()).different;
    let recomputed: Vec<Value> = found.iter().map(|one| one.recomputed.clone()).collect();
    assert_eq!(recomputed.len(), 2, "{found:?}");
    let proof = earlier(&|at| recomputed[at].clone());
    assert!(proof.is_verified(), "{:?} {:?}", proof.refused, proof.different);
    let report = Report::of_stores(&[&store], &Selection::Latest).expect("a report");
    let row = report::json(&report)["sections"][0]["sections"]["storage"]["places"][0]["rows"][0].clone();
    let of_committed = row["tps"].as_f64().unwrap() * row["mean_ms"].as_f64().unwrap() / 1000.0 / 16.0;
    assert!((recomputed[0].as_f64().unwrap() / of_committed - 1.0).abs() < 0.02, "{recomputed:?} {row}");

    let connection = store::testing::connection(&store);
    connection.execute_batch("UPDATE step SET rolled_back = committed / 4").expect("more outcomes");
    let report = Report::of_stores(&[&store], &Selection::Latest).expect("a report");
    let json = report::json(&report);
    let of_cell = json["cells"][0]["little"].as_f64().expect("the law");
    let row = &json["sections"][0]["sections"]["storage"]["places"][0]["rows"][0];
    assert_eq!(row["little_started"].as_f64(), Some(of_cell), "{row}");
    assert!(row.get("little").is_none(), "{row}");
}
