//! Help, completions, manual pages and what is said about wrong command lines. No server is needed.

mod common;

use common::{plimsoll, run};

fn help_of(arguments: &[&str]) -> String {
    let mut command = plimsoll();
    // The width of the terminal must not matter.
    let output = command.args(arguments).arg("--help").env("COLUMNS", "100").output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_help_of_commands() {
    for command in [
        "run",
        "bench",
        "report",
        "workloads",
        "servers",
        "fetch",
        "builds",
        "sandbox",
        "snapshots",
        "doctor",
    ] {
        insta::assert_snapshot!(format!("help_{command}"), help_of(&[command]));
    }
    for command in
        ["deploy", "list", "status", "start", "stop", "restart", "use", "exec", "log", "env", "destroy"]
    {
        let text = help_of(&["sandbox", command]);
        assert!(text.contains("Example"), "sandbox {command}:\n{text}");
    }
}

#[test]
fn the_exit_codes_are_documented() {
    let text = help_of(&[]);
    for line in
        ["0  done", "1  a run failed", "2  the command line", "3  a server could not", "4  interrupted"]
    {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn completions_and_manual_pages_are_made() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = run(&["completions", shell]).expect(0, &[]);
        assert!(done.out.contains("plimsoll") && done.out.contains("bench"), "{shell}");
    }
    let done = run(&["man"]).expect(0, &[]);
    assert!(done.out.contains(".TH plimsoll 1"));
    let dir = tempfile::tempdir().unwrap();
    // A folder that is not there yet is made.
    let pages = dir.path().join("new/man");
    run(&["man", "--dir", pages.to_str().unwrap()]).expect(0, &[]);
    let page = pages.join("plimsoll-bench.1");
    assert!(page.is_file());
    // Whoever reads an old page goes on reading it: a new one takes its place when it is whole.
    std::fs::write(&page, "old").unwrap();
    std::fs::hard_link(&page, dir.path().join("open")).unwrap();
    run(&["man", "--dir", pages.to_str().unwrap()]).expect(0, &[]);
    assert_eq!(std::fs::read_to_string(dir.path().join("open")).unwrap(), "old");
    assert!(std::fs::read_to_string(&page).unwrap().contains(".TH plimsoll-bench 1"));
    assert!(
        !std::fs::read_dir(&pages).unwrap().any(|entry| entry.unwrap().path().extension().unwrap() != "1")
    );
    run(&["man", "--dir", page.to_str().unwrap()]).expect(2, &["--dir"]);
}

#[test]
fn wrong_flags_are_usage_errors() {
    run(&[]).expect(2, &["Usage"]);
    run(&["bnech"]).expect(2, &["bench"]);
    run(&["bench", "oltp_read_only"]).expect(2, &["--server"]);
    run(&["bench", "x", "--server", "mariadb", "--sessions", "0"]).expect(2, &["--sessions"]);
    run(&["bench", "x", "--server", "mariadb", "--time", "10"]).expect(2, &["no unit", "10s"]);
    // Without a limit it would remove everything.
    run(&["snapshots", "prune"]).expect(2, &["--max", "--all"]);
    let done =
        run(&["snapshots", "prune", "--max", "-5"]).expect(2, &["'-5' for '--max <SIZE>'", "500M, 5G"]);
    assert!(!done.err.contains("-- -5"), "{}", done.err);
    run(&["snapshots", "prune", "--max", "5G", "--all"]).expect(2, &["cannot be used with"]);
    run(&["builds", "remove"]).expect(2, &["BUILD"]);
    run(&["bench", "x", "--server", "mariadb", "--keep", "--fresh"]).expect(2, &["cannot be used with"]);
    run(&["bench", "x", "--server", "mariadb", "--arrivals", "poisson"]).expect(2, &["--rate"]);
    run(&["bench", "x", "--server", "mariadb", "--profile", "fsat"]).expect(2, &["safest"]);
    run(&["bench", "x", "--server", "mariadb", "-o", "tables"]).expect(2, &["key=value"]);
    run(&["--version"]).expect(0, &[]);
    run(&["bench", "x", "--server", "mariadb", "--time", "0s"])
        .expect(2, &["--time", "nothing can be measured"]);
    // A number below zero is refused as a value, without clap's advice to put it behind `--`, which helps nobody.
    for (option, value) in
        [("--rate", "-5"), ("--sessions", "-1"), ("--time", "-5s"), ("--transactions", "-3")]
    {
        let done = run(&["bench", "x", "--server", "mariadb", option, value]).expect(2, &[option, value]);
        assert!(done.err.contains("invalid value") && !done.err.contains("tip"), "{}", done.err);
    }
    let done = run(&["bench", "x", "-t", "5"]).expect(2, &["-t"]);
    assert!(!done.err.contains("as a value"), "{}", done.err);
}

#[test]
fn workloads_are_listed_with_options_defaults_and_statements() {
    let done = run(&["workloads"]).expect(0, &[]);
    let row =
        |name: &str| done.out.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
    for name in ["oltp_read_only", "oltp_point_select", "bulk_insert", "tpcc"] {
        assert!(row(name).split_whitespace().count() > 3, "{name} is a line with what it does\n{}", done.out);
    }
    assert!(done.out.lines().all(|line| line.chars().count() <= 120), "{}", done.out);
    let done = run(&["workloads", "oltp_read_only"]).expect(0, &[]);
    for wanted in ["table_size", "10000", "SELECT c FROM"] {
        assert!(done.out.contains(wanted), "{wanted} is not in\n{}", done.out);
    }
    let done = run(&["workloads", "oltp_read_write", "--server", "postgres"]).expect(0, &[]);
    assert!(done.out.contains("$1"), "{}", done.out);
    let done = run(&["workloads", "--json"]).expect(0, &[]);
    let all: serde_json::Value = serde_json::from_str(&done.out).unwrap();
    assert!(all.as_array().unwrap().len() >= 11);
    run(&["workloads", "oltp_read_onyl"]).expect(2, &["did you mean `oltp_read_only`"]);
}

#[test]
fn output_goes_to_whoever_still_reads() {
    // `plimsoll workloads | head -1` is no error.
    let script = format!("{} workloads | head -1", env!("CARGO_BIN_EXE_plimsoll"));
    let output = std::process::Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
}

#[test]
fn servers_are_listed_as_asked() {
    let list = |arguments: &[&str]| -> Vec<(String, String)> {
        let done = run(&[&["servers", "--json"], arguments].concat()).expect(0, &[]);
        let all: serde_json::Value = serde_json::from_str(&done.out).unwrap();
        let text = |one: &serde_json::Value, name: &str| one[name].as_str().unwrap().to_owned();
        all.as_array().unwrap().iter().map(|one| (text(one, "name"), text(one, "state"))).collect()
    };
    let all = list(&[]);
    let of = |keep: &dyn Fn(&(String, String)) -> bool| -> Vec<(String, String)> {
        all.iter().filter(|one| keep(one)).cloned().collect()
    };
    assert_eq!(list(&["--installed"]), of(&|one| one.1 == "installed"));
    assert_eq!(list(&["--installed", "--fetched"]), of(&|one| one.1 != "fetchable"));
    assert_eq!(list(&["mysql"]), of(&|one| one.0.starts_with("mysql@")));
    let both = of(&|one| one.0.starts_with("percona@") || one.0.starts_with("mysql@8.4"));
    assert_eq!(list(&["mysql@8.4", "percona"]), both);
    assert!(!both.is_empty(), "the catalogue has them");
    run(&["servers", "oracle"]).expect(2, &["oracle", "mariadb"]);
    let done = run(&["servers", "--fetched", "mysql@1.0"]).expect(0, &[]);
    assert!(done.out.contains("no such builds"), "{}", done.out);
}

#[test]
fn a_disk_is_looked_at_where_there_is_one() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    run(&["doctor", "--datadir", none.to_str().unwrap()]).expect(2, &["there is no directory", "none"]);
    assert!(!none.exists(), "a mistyped place was made");
}
