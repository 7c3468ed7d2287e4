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
    for command in
        ["run", "bench", "report", "workloads", "servers", "fetch", "sandbox", "snapshots", "doctor"]
    {
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
    run(&["man", "--dir", dir.path().to_str().unwrap()]).expect(0, &[]);
    assert!(dir.path().join("plimsoll-bench.1").is_file());
}

#[test]
fn wrong_flags_are_usage_errors() {
    run(&[]).expect(2, &["Usage"]);
    run(&["bnech"]).expect(2, &["bench"]);
    run(&["bench", "oltp_read_only"]).expect(2, &["--server"]);
    run(&["bench", "x", "--server", "mariadb", "--sessions", "0"]).expect(2, &["--sessions"]);
    run(&["bench", "x", "--server", "mariadb", "--time", "10"]).expect(2, &["no unit", "10s"]);
    run(&["bench", "x", "--server", "mariadb", "--keep", "--fresh"]).expect(2, &["cannot be used with"]);
    run(&["bench", "x", "--server", "mariadb", "--arrivals", "poisson"]).expect(2, &["--rate"]);
    run(&["bench", "x", "--server", "mariadb", "--profile", "fsat"]).expect(2, &["safest"]);
    run(&["bench", "x", "--server", "mariadb", "-o", "tables"]).expect(2, &["key=value"]);
    run(&["--version"]).expect(0, &[]);
}

#[test]
fn workloads_are_listed_with_options_defaults_and_statements() {
    let done = run(&["workloads"]).expect(0, &[]);
    for wanted in
        ["oltp_read_only", "oltp_point_select", "bulk_insert", "table_size", "10000", "SELECT c FROM"]
    {
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
