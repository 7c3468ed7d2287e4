//! Studies with `[line]` on real servers: runs that are searches, their resuming, duels, and what is refused.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{plimsoll, run, servers_are_there};
use serde_json::Value;

const HEAD: &str = "title = \"Lines\"\nquestion = \"Who carries more?\"\n";

fn study(dir: &Path, rest: &str) -> String {
    let path = dir.join("lines.toml");
    std::fs::write(&path, format!("{HEAD}{rest}")).unwrap();
    path.display().to_string()
}

#[test]
fn what_a_search_decides_by_itself_is_refused_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |axes: &str, rest: &str, told: &[&str]| {
        let text = format!("[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n{axes}{rest}");
        run(&["run", &study(dir.path(), &text), "--dry-run"]).expect(2, told);
    };
    let line = "[line]\npromises = \"p99 < 20ms\"\n";
    refused(
        "sessions = [1, 8]\n",
        line,
        &["lines.toml:6:1", "`sessions` and [line] exclude each other", "sessions_max"],
    );
    refused("climb = [1, 8]\n", line, &["lines.toml:6:1", "`climb` and [line] exclude each other"]);
    refused("[load]\nrate = 500\n", line, &["lines.toml:7:1", "`rate` and [line] exclude each other"]);
    refused("[load]\nduration = \"9s\"\n", line, &["`duration` and [line]", "`budget`"]);
    refused(line, "[quick]\nsessions = 4\n", &["lines.toml:9:1", "`sessions` and [line]"]);
    refused("[line]\npromises = [\"p99 < 20\"]\n", "", &["lines.toml:7:13", "the unit is missing"]);
    refused("[line]\npromises = [\"p99 < 20ms\", \"p99 < 20ms\"]\n", "", &["lines.toml:7:27", "twice"]);
    refused("[line]\nbudget = \"5m\"\n", "", &["`promises` is missing in [line]"]);
    refused(line, "budget = \"10s\"\n", &["lines.toml:8:1", "takes at least 20s"]);
    refused(
        line,
        "debt = \"paid\"\n",
        &["lines.toml:8:8", "`paid` is not what becomes of debt", "counted or drained"],
    );
    refused(
        line,
        "budget = \"5m\"\n[quick]\nline = { budget = \"5s\" }\n",
        &["with --quick", "takes at least 20s"],
    );
    let compare = "[compare]\naxis = \"server\"\nbase = \"mariadb\"\nmetrics = \"tps\"\n";
    refused(line, compare, &["`tps` is not a promise of this study", "p99 < 20ms"]);
}

#[test]
fn the_time_of_a_study_of_lines_is_told_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[axes]\nserver = [\"mariadb\", \"postgres@16\"]\nworkload = \"oltp_read_only\"\n[load]\nblocks = 5\n\
                [line]\npromises = [\"p99 < 5ms\", \"p99 < 20ms\"]\nbudget = \"3m\"\n\
                [compare]\naxis = \"server\"\nbase = \"mariadb\"\n[quick]\nblocks = 1\nline = { budget = \"30s\" }\n";
    let path = study(dir.path(), text);
    let told = run(&["run", &path, "--dry-run"]).expect(0, &[]).out;
    assert!(
        told.contains("10 runs") && told.contains("load alone: 3 min 0 s a run, 30 min 0 s for all"),
        "{told}"
    );
    let told = run(&["run", &path, "--dry-run", "--quick"]).expect(0, &[]).out;
    assert!(told.contains("load alone: 30.0 s a run"), "{told}");
}

fn report(results: &str) -> Value {
    let out = run(&["report", "--results", results, "--json", "-"]).expect(0, &[]).out;
    serde_json::from_str(&out).unwrap()
}

const SHORT: &str = "[options]\ntable_size = 1000\n[load]\nblocks = 1\ngates = \"warn\"\n\
                     [line]\npromises = [\"p95 < 50ms\", \"p99 < 200ms\"]\nbudget = \"25s\"\nhold = \"5s\"\nsessions_max = 32\n";

#[test]
fn each_run_of_a_block_is_a_search_and_the_report_has_lines_ratios_and_the_picture() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results").display().to_string();
    let axes = "[axes]\nserver = [\"mariadb\", { server = \"mariadb\", label = \"again\" }]\nworkload = \"oltp_point_select\"\n";
    let compare = "[compare]\naxis = \"server\"\nbase = \"mariadb\"\n";
    let path = study(dir.path(), &format!("{axes}{SHORT}{compare}"));
    run(&["run", &path, "--results", &results]).expect(0, &[]);
    let report_json = report(&results);
    let cells = report_json["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 2, "{report_json}");
    for cell in cells {
        let line = &cell["runs"][0]["line"];
        assert!(line["peak_tps"].as_f64().unwrap() > 100.0, "{line}");
        assert!(line["seconds_total"].as_f64().unwrap() <= 26.0, "{line}");
        assert!(!line["probes"].as_array().unwrap().is_empty(), "{line}");
        let promises: Vec<&Value> = cell["lines"].as_array().unwrap().iter().map(|l| &l["promise"]).collect();
        assert_eq!(promises, ["p95 < 50ms", "p99 < 200ms"], "{cell}");
    }
    let metrics: Vec<&Value> =
        report_json["comparisons"].as_array().unwrap().iter().map(|one| &one["metric"]).collect();
    assert_eq!(metrics[..2], ["p95 < 50ms", "p99 < 200ms"]);
    let page = dir.path().join("page.html").display().to_string();
    run(&["report", "--results", &results, "--html", &page]).expect(0, &[]);
    let csv = dir.path().join("csv").display().to_string();
    run(&["report", "--results", &results, "--csv", &csv]).expect(0, &[]);
    for (name, head) in [("lines.csv", "line_tps"), ("probes.csv", "p99_ms")] {
        let text = std::fs::read_to_string(Path::new(&csv).join(name)).unwrap();
        assert!(text.contains(head) && text.lines().count() >= 3, "{name}: {text}");
    }
    let html = std::fs::read_to_string(&page).unwrap();
    assert_eq!(html.matches("<svg class=\"loadline\"").count(), 2);
    assert!(html.contains("Load lines") && html.contains("class=\"promise\""));
    let markdown = run(&["report", "--results", &results, "--md", "-"]).expect(0, &[]).out;
    assert!(markdown.contains("## Load lines") && markdown.contains("p99 &lt; 200ms"), "{markdown}");
}

/// Starts a command and kills it with everything that it holds once `is_time` says so.
fn killed_when(arguments: &[&str], is_time: impl Fn() -> bool) {
    let mut command = plimsoll();
    let mut child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while !is_time() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was killed");
        assert!(began.elapsed() < Duration::from_secs(900), "nothing was recorded");
        std::thread::sleep(Duration::from_millis(50));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Probes of all searches, the climbs included.
fn probes(results: &str) -> Vec<Vec<store::LineProbe>> {
    let Ok(store) = store::Store::open_read_only(Path::new(results)) else { return Vec::new() };
    store.line_searches().map_or_else(|_| Vec::new(), |all| all.into_iter().map(|one| one.probes).collect())
}

#[test]
fn a_search_that_was_killed_goes_on_after_its_last_probe() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results").display().to_string();
    let axes = "[axes]\nserver = \"mariadb\"\nworkload = \"oltp_point_select\"\n";
    let path = study(dir.path(), &format!("{axes}{SHORT}"));
    let arguments = ["run", &path, "--results", &results];
    killed_when(&arguments, || probes(&results).first().is_some_and(|probes| probes.len() >= 2));
    let before = probes(&results);
    run(&arguments).expect(0, &[]);
    let after = probes(&results);
    assert_eq!(after.len(), 1, "one search, made by two commands");
    assert_eq!(after[0][..before[0].len()], before[0][..], "what was there is there");
    assert!(after[0].len() > before[0].len(), "and more");
    let report = report(&results);
    let runs = report["cells"][0]["runs"].as_array().unwrap();
    let standings: Vec<&Value> = runs.iter().map(|run| &run["standing"]).collect();
    assert_eq!(standings, ["superseded", "counted"], "{report}");
    assert!(runs[1]["line"]["lines"][0]["promise"] == "p95 < 50ms", "{report}");
    // The same for a command line.
    let results = dir.path().join("line").display().to_string();
    let line = [
        "line",
        "oltp_point_select",
        "--server",
        "mariadb",
        "-o",
        "table_size=1000",
        "--promise",
        "p95 < 50ms",
        "--budget",
        "25s",
        "--sessions-max",
        "32",
        "--seed",
        "7",
        "--results",
        &results,
        "--json",
        "-",
    ];
    killed_when(&line, || probes(&results).first().is_some_and(|probes| probes.len() >= 2));
    let before = probes(&results);
    let done = run(&line);
    assert!(matches!(done.code, Some(0 | 1)), "{}", done.err);
    let after = probes(&results);
    assert_eq!((after.len(), &after[0][..before[0].len()]), (1, &before[0][..]));
}

#[test]
fn the_search_of_a_later_block_begins_at_the_line_of_the_first() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results").display().to_string();
    let axes = "[axes]\nserver = \"mariadb\"\nworkload = \"oltp_point_select\"\n";
    let path = study(dir.path(), &format!("{axes}{}", SHORT.replace("blocks = 1\n", "blocks = 2\n")));
    run(&["run", &path, "--results", &results]).expect(0, &[]);
    let all = store::Store::open_read_only(Path::new(&results)).unwrap().line_searches().unwrap();
    let [first, second] = &all[..] else { panic!("{} searches", all.len()) };
    let line_tps = first.found.as_ref().unwrap().lines[0].line_tps.expect("a server that answers has a line");
    let begun_tps = second.probes[1].rate;
    assert!((begun_tps / line_tps - 1.0).abs() < 0.001, "{begun_tps} after {line_tps}");
    // It climbs at the sessions of the first one's peak alone.
    let (whole, one_level) = (&first.probes[0], &second.probes[0]);
    assert_eq!((whole.purpose.as_str(), one_level.purpose.as_str()), ("climb", "climb"));
    assert_eq!(one_level.sessions, whole.sessions);
    assert!(one_level.took_s < whole.took_s / 2.0, "{} s after {} s", one_level.took_s, whole.took_s);
}

#[test]
fn debt_is_paid_before_each_rate_where_the_study_says_so() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let facts = |debt: &str| {
        let results = dir.path().join(debt).display().to_string();
        let axes = "[axes]\nserver = [\"mariadb\", \"postgres\"]\nworkload = \"oltp_write_only\"\n";
        let path = study(dir.path(), &format!("{axes}{SHORT}debt = \"{debt}\"\n"));
        run(&["run", &path, "--results", &results]).expect(0, &[]);
        let store = store::Store::open_read_only(Path::new(&results)).unwrap();
        let heads = store.run_heads(store.studies().unwrap()[0].id).unwrap();
        let facts: Vec<String> = heads
            .iter()
            .filter_map(|head| store.run(head.id).unwrap().end.unwrap().facts.remove("drained/between rates"))
            .collect();
        let searches = store.line_searches().unwrap();
        (facts, searches.iter().map(|search| search.tried().len()).collect::<Vec<usize>>())
    };
    let (drained, tried) = facts("drained");
    assert_eq!(drained.len(), 2);
    for (fact, count) in drained.iter().zip(tried) {
        assert!(fact.starts_with(&format!("before {count} rates, ")), "{fact}: {count}");
    }
    assert_eq!(facts("counted").0, Vec::<String>::new());
}

#[test]
fn a_server_that_dies_under_the_search_gets_another_life_and_its_death_is_told() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results").display().to_string();
    let axes = "[axes]\nserver = \"mariadb\"\nworkload = \"oltp_point_select\"\n";
    let path = study(dir.path(), &format!("{axes}{}", SHORT.replace("25s", "120s")));
    let child = plimsoll()
        .args(["run", &path, "--results", &results])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while probes(&results).first().is_none_or(|probes| probes.len() < 2) {
        assert!(began.elapsed() < Duration::from_secs(900), "nothing was recorded");
        std::thread::sleep(Duration::from_millis(50));
    }
    // The next probe is under way.
    std::thread::sleep(Duration::from_secs(1));
    common::signal(common::own_server(&child).expect("its server"), "KILL");
    let done = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(0), "{told}");
    let all = probes(&results);
    assert_eq!(all.len(), 1, "one search");
    assert_eq!(all[0].iter().filter(|probe| probe.error.is_some()).count(), 1, "{told}");
    assert!(all[0].last().is_some_and(|probe| probe.error.is_none()), "it went on: {told} {:?}", all[0]);
    let report = report(&results);
    let runs = report["cells"][0]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{report}");
    assert_eq!((&runs[0]["status"], &runs[1]["standing"]), (&"failed".into(), &"counted".into()), "{report}");
    let warnings = runs[1]["line"]["lines"][0]["warnings"].to_string();
    assert!(warnings.contains("the server was lost at"), "{warnings}");
}

#[test]
fn the_searches_of_a_duel_alternate_on_servers_that_live_together() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results").display().to_string();
    let axes = "[axes]\nserver = [\"mariadb\", { server = \"mariadb\", label = \"again\" }]\nworkload = \"oltp_point_select\"\n";
    let compare = "[compare]\naxis = \"server\"\nbase = \"mariadb\"\n";
    let duel = SHORT.replace("blocks = 1\n", "blocks = 1\npairing = \"duel\"\n");
    let path = study(dir.path(), &format!("{axes}{duel}{compare}"));
    run(&["run", &path, "--results", &results]).expect(0, &[]);
    let report = report(&results);
    let cells = report["cells"].as_array().unwrap();
    for cell in cells {
        assert_eq!(cell["runs"][0]["standing"], "counted", "{report}");
        assert!(cell["runs"][0]["line"]["peak_tps"].as_f64().unwrap() > 100.0, "{cell}");
    }
    // Both searches began with their climbs before either had ended.
    let all = probes(&results);
    assert_eq!(all.len(), 2);
}
