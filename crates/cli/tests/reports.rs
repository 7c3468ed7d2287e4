//! `report` over recorded results: several studies and files at once, verdicts as gates. No server is needed.

mod common;
#[path = "../../report/tests/common/mod.rs"]
mod recorded;

use std::path::Path;

use common::{Done, contract, plimsoll, run};
use serde_json::Value;

/// Results with the studies `quickstart` (a ladder on two servers, of which one is faster at 8 sessions and slower at
/// 64) and `stress` (a climb).
fn results(dir: &Path, blocks: u32) -> String {
    let mut store = recorded::ladder(dir, blocks, 3);
    recorded::add_climb(&mut store, blocks, 3);
    dir.display().to_string()
}

fn json(arguments: &[&str]) -> Value {
    let done = run(&[&["report", "--json", "-"], arguments].concat()).expect(0, &[]);
    serde_json::from_str(&done.out).unwrap()
}

fn names(report: &Value) -> Vec<&str> {
    report["studies"].as_array().unwrap().iter().map(|study| study["name"].as_str().unwrap()).collect()
}

#[test]
fn one_study_several_or_all() {
    let dir = tempfile::tempdir().unwrap();
    let place = results(dir.path(), 5);
    assert_eq!(names(&json(&["--results", &place])), ["quickstart", "stress"]);
    assert_eq!(names(&json(&["stress", "--results", &place])), ["stress"]);
    assert_eq!(names(&json(&["stress", "quickstart", "--results", &place])), ["quickstart", "stress"]);
    // A study file stands for its study.
    assert_eq!(names(&json(&["studies/stress.toml", "--results", &place])), ["stress"]);
    run(&["report", "stress", "qiuckstart", "--results", &place])
        .expect(2, &["no study qiuckstart: there are quickstart, stress"]);
}

#[test]
fn several_results_files_and_some_of_their_studies() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = [results(one.path(), 5), results(two.path(), 6)];
    let both = [files[0].as_str(), &format!("{}/results.db", files[1])];
    assert_eq!(names(&json(&both)), ["quickstart", "quickstart", "stress", "stress"]);
    let report = json(&[both[0], both[1], "stress"]);
    assert_eq!(names(&report), ["stress", "stress"]);
    let have = |report: &Value, blocks: usize| {
        let cells = report["cells"].as_array().unwrap();
        assert!(cells.iter().all(|cell| cell["runs"].as_array().unwrap().len() == blocks), "{blocks} blocks");
    };
    // The second file has the runs of the first and a block more: a run that two files have counts once.
    have(&report, 6);
    let other = rusqlite::Connection::open(two.path().join("results.db")).unwrap();
    other.execute("UPDATE run SET started_at_ms = started_at_ms + 86400000", []).unwrap();
    drop(other);
    have(&json(&[both[0], both[1], "stress"]), 11);
    // Without an output the page is written beside the first of them.
    let done = run(&["report", both[0], both[1]]).expect(0, &[]);
    assert!(done.out.contains("report: ") && one.path().join("report.html").is_file(), "{}", done.out);
}

#[test]
fn every_output_at_once_and_the_contract_of_the_json() {
    let dir = tempfile::tempdir().unwrap();
    let place = results(dir.path(), 5);
    let at = |name: &str| dir.path().join(name).display().to_string();
    let outputs =
        ["--html", &at("x.html"), "--md", &at("x.md"), "--csv", &at("csv"), "--json", &at("x.json")];
    run(&[&["report", "--results", &place], &outputs[..]].concat()).expect(0, &["wrote "]);
    assert!(std::fs::read_to_string(dir.path().join("x.md")).unwrap().starts_with("# "));
    assert!(std::fs::read_dir(dir.path().join("csv")).unwrap().count() > 3);
    contract::check_report(
        &serde_json::from_str(&std::fs::read_to_string(dir.path().join("x.json")).unwrap()).unwrap(),
    );
}

#[test]
fn verdicts_as_gates() {
    let dir = tempfile::tempdir().unwrap();
    let place = results(dir.path(), 6);
    let gate = |gates: &[&str]| -> Done {
        let arguments: Vec<&str> = gates.iter().flat_map(|gate| ["--gate", gate]).collect();
        run(&[&["report", "quickstart", "--results", &place, "--md", "-"], &arguments[..]].concat())
    };
    // PostgreSQL is slower at 64 sessions, and two cells have too few valid blocks.
    let done =
        gate(&["tps:not-slower"]).expect(1, &["gate tps:not-slower: not met by", "slower", "at 64 sessions"]);
    assert!(done.out.starts_with("# "), "the report is written all the same");
    gate(&["tps:fast"]).expect(2, &["not-slower, faster or equivalent"]);
    gate(&["p99:faster"]).expect(2, &["there is no such comparison", "[compare]"]);

    // Of each gate that is met, it is said how much it covers.
    let climb = |gates: &[&str]| {
        let arguments: Vec<&str> = gates.iter().flat_map(|gate| ["--gate", gate]).collect();
        run(&[&["report", "stress", "--results", &place], &arguments[..]].concat())
    };
    let report = json(&["stress", "--results", &place]);
    let verdicts: Vec<&str> = report["comparisons"]
        .as_array()
        .unwrap()
        .iter()
        .map(|comparison| comparison["verdict"].as_str().unwrap())
        .collect();
    for (gate, good) in [
        ("faster", &["faster"][..]),
        ("not-slower", &["faster", "equivalent"]),
        ("equivalent", &["equivalent"]),
    ] {
        let unmet = verdicts.iter().filter(|verdict| !good.contains(verdict)).count();
        let all = verdicts.len();
        let said = match unmet {
            0 => format!("gate {gate}: met by all {all} comparisons"),
            _ => format!("gate {gate}: not met by {unmet} of {all} comparisons"),
        };
        climb(&[gate]).expect(i32::from(unmet > 0), &[&said]);
    }
}

#[test]
fn what_is_undecided_is_no_pass() {
    let dir = tempfile::tempdir().unwrap();
    let place = results(dir.path(), 4);
    run(&["report", "--results", &place, "--gate", "not-slower"])
        .expect(1, &["no verdict, 4 valid blocks of at least 5"]);
}

#[test]
fn a_gate_that_cannot_be_met_is_said_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let path = common::tiny_study(dir.path(), "gated", "\"mariadb\", \"postgres\"", "1", 5);
    let results = dir.path().join("results");
    let gated = |gate: &str, more: &[&str]| {
        plimsoll()
            .args(["run", &path, "--gate", gate, "--results"])
            .arg(&results)
            .args(more)
            .output()
            .map(Done::of)
            .unwrap()
    };
    gated("not-slower", &[]).expect(2, &["compares nothing", "[compare]"]);
    let text = std::fs::read_to_string(&path).unwrap();
    let text = format!(
        "{text}[compare]\naxis = \"server\"\nbase = \"mariadb\"\nmetrics = [\"tps\"]\n[quick]\nblocks = 2\n"
    );
    std::fs::write(&path, text).unwrap();
    gated("p99:faster", &[]).expect(2, &["does not compare p99", "tps"]);
    gated("not-slower", &["--quick"]).expect(2, &["at least 5 blocks", "leave --quick out"]);
    assert!(!results.exists());
}

/// Results of the study `quickstart` whose file asked for `gate`.
fn asking(gate: &str, blocks: u32) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = format!("[compare]\ngate = {gate}\n");
    recorded::ladder_of(dir.path(), blocks, 3, &file);
    let place = dir.path().display().to_string();
    (dir, place)
}

#[test]
fn a_study_asks_for_its_verdicts_itself() {
    let (_dir, place) = asking("\"tps:not-slower\"", 6);
    let done = run(&["report", "--results", &place])
        .expect(1, &["gate tps:not-slower: not met by", "slower", "at 64 sessions"]);
    assert!(done.out.contains("report: "), "the report is written all the same");
    // As the flag says it, to the letter; and the flag stands in for the key.
    let (_dir_without, without) = asking("[]", 6);
    let flagged = run(&["report", "--results", &without, "--gate", "tps:not-slower"]).expect(1, &[]);
    let gates = |done: &Done| -> Vec<String> {
        done.err.lines().filter(|line| !line.starts_with("wrote ")).map(str::to_owned).collect()
    };
    assert_eq!(gates(&done), gates(&flagged));
    let other = run(&["report", "--results", &place, "--gate", "p95:faster"]);
    assert!(!other.err.contains("not-slower"), "{}", other.err);
    run(&["report", "--results", &without]).expect(0, &[]);
    // A first look is not held to it.
    let (_dir_quick, quick) = asking("[\"not-slower\", \"p95:faster\"]", 2);
    run(&["report", "--results", &quick])
        .expect(0, &["gate p95:faster: not asked", "at least 5 blocks, and this has 2"]);
}

#[test]
fn a_gate_of_the_study_that_cannot_be_met_is_shown_where_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let path = common::tiny_study(dir.path(), "gated", "\"mariadb\", \"postgres\"", "1", 5);
    let text = std::fs::read_to_string(&path).unwrap();
    let compare = "[compare]\naxis = \"server\"\nbase = \"mariadb\"\nmetrics = [\"tps\"]\n";
    let results = dir.path().join("results").display().to_string();
    for (gate, wanted) in [
        ("gate = \"p95:not-slower\"", "does not compare `p95`"),
        ("gate = [\"tps:quicker\"]", "not a verdict to ask for"),
    ] {
        std::fs::write(&path, format!("{text}{compare}{gate}\n")).unwrap();
        let lines = format!("{text}{compare}").lines().count();
        let column = gate.find('"').unwrap() + 1;
        let place = format!("gated.toml:{}:{column}", lines + 1);
        run(&["run", &path, "--results", &results]).expect(2, &[wanted, &place]);
    }
    assert!(!dir.path().join("results").exists());
}

#[test]
fn a_file_that_cannot_be_written_whole_leaves_what_was_there_and_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let place = results(dir.path(), 5);
    let (page, csv) = (dir.path().join("x.html"), dir.path().join("csv"));
    std::fs::create_dir(&csv).unwrap();
    for old in [page.clone(), csv.join("runs.csv")] {
        std::fs::write(old, "the report of yesterday").unwrap();
    }
    // No file may grow beyond a block of 1 KiB, as on a disk that fills up.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" \"$@\"";
    for (output, path) in [("--html", &page), ("--csv", &csv), ("--json", &page), ("--md", &page)] {
        let output = std::process::Command::new("bash")
            .args(["-c", script, env!("CARGO_BIN_EXE_plimsoll"), "report", "--results", &place, output])
            .arg(path)
            .output()
            .unwrap();
        let named = path.file_name().unwrap().to_str().unwrap();
        Done::of(output).expect(1, &[named, "could not be written", "File too large"]);
    }
    assert_eq!(std::fs::read_to_string(&page).unwrap(), "the report of yesterday");
    assert_eq!(std::fs::read_to_string(csv.join("runs.csv")).unwrap(), "the report of yesterday");
    let left = std::fs::read_dir(dir.path()).unwrap().chain(std::fs::read_dir(&csv).unwrap());
    let names: Vec<_> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.ends_with(".part")), "{names:?}");
}

#[test]
fn the_terminal_has_the_verdicts_with_what_they_rest_on() {
    let dir = tempfile::tempdir().unwrap();
    let place = results(dir.path(), 5);
    let done = run(&["report", "quickstart", "--results", &place]).expect(0, &[]);
    let at = |text: &str| done.out.find(text).unwrap_or_else(|| panic!("no {text} in {}", done.out));
    assert!(at("- postgres@18.6 carries \u{d7}") < at("\ncell "), "the answer comes first");
    assert!(
        at("TPS against mariadb@11.4.5:\ncompared ")
            < at("p95 of response time against mariadb@11.4.5:\ncompared ")
    );
    let head = done.out.lines().find(|line| line.starts_with("compared")).unwrap();
    for column in ["verdict", "ratio", "interval", "p", "blocks"] {
        assert!(head.split_whitespace().any(|word| word == column), "{head}");
    }
    let row = done.out.lines().find(|line| line.contains(" slower ")).unwrap();
    assert!(row.contains("0.77 .. 0.85") && row.contains("< 0.001"), "{row}");
    // Levels of like verdicts are one row, and a lost run names workload and level.
    assert!(done.out.lines().any(|line| line.contains(" 1 and 8  faster ")), "{}", done.out);
    at(
        "TPS, postgres@18.6 on oltp_read_only, 64 sessions: faults of the measurement cost 0 of 5 runs of postgres@18.6 and 1 of 5 of",
    );
}
