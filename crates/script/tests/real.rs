//! sysbench's own scripts, as installed, and scripts of our own against real servers.

mod common;

use common::{SYSBENCH, connection, figure, sysbench_is_installed};
use load::Stop;
use wire::blocking::Client;

fn sysbench(arguments: &[&str], connection: &[String]) -> (i32, String) {
    let mut words = connection.to_vec();
    words.extend(arguments.iter().map(|a| (*a).to_owned()));
    let mut out = Vec::new();
    let done = script::run(&words, &mut out, &Stop::new(), &mut ());
    (done.exit_code, String::from_utf8(out).unwrap())
}

fn whole_life(selector: &str) {
    if !sysbench_is_installed("sysbench's installed scripts under plimsoll") {
        return;
    }
    let Some(server) = sandbox::testing::server(selector) else { return };
    let connection = connection(&server);
    for test in [
        "oltp_read_write",
        "oltp_point_select",
        "oltp_read_only",
        "oltp_write_only",
        "oltp_update_index",
        "oltp_update_non_index",
        "oltp_delete",
        "oltp_insert",
        "select_random_points",
        "select_random_ranges",
    ] {
        let path = format!("{SYSBENCH}/{test}.lua");
        let sysbench =
            |more: &[&str]| sysbench(&[&["--tables=2", "--table-size=500"], more].concat(), &connection);
        let tables = if test.starts_with("select") { "--tables=1" } else { "--tables=2" };
        let (code, text) = sysbench(&["--threads=2", tables, &path, "prepare"]);
        assert_eq!(code, 0, "{text}");
        let (code, text) = sysbench(&["--threads=4", tables, "--events=60", "--time=30", &path, "run"]);
        assert_eq!(code, 0, "{text}");
        assert_eq!(figure(&text, "total number of events:"), 60.0, "{text}");
        if test == "oltp_read_write" {
            // 14 reads in each event; retried events read again.
            assert!(figure(&text, "read:") >= 840.0, "{text}");
        }
        let (code, _) = sysbench(&[tables, &path, "cleanup"]);
        assert_eq!(code, 0);
    }
    let bulk = format!("{SYSBENCH}/bulk_insert.lua");
    for command in ["prepare", "run", "cleanup"] {
        let (code, text) = sysbench(&["--threads=2", "--events=1000", &bulk, command], &connection);
        assert_eq!(code, 0, "{text}");
        // Each thread sends what it has gathered at its end.
        assert!(command != "run" || figure(&text, "write:") >= 1.0, "{text}");
    }
    let mut client = Client::connect(&server.target(Some("sbtest"))).unwrap();
    let left = "select count(*) from information_schema.tables where table_name like 'sbtest%'";
    assert_eq!(client.query_value(left).unwrap().as_deref(), Some("0"));
}

/// A bare name is the native workload: the same life, the same report.
fn native_life(selector: &str) {
    let Some(server) = sandbox::testing::server(selector) else { return };
    let connection = connection(&server);
    let sysbench = |command: &str| {
        let words =
            ["--tables=2", "--table-size=500", "--threads=2", "--events=60", "oltp_read_write", command];
        sysbench(&words, &connection)
    };
    assert_eq!(sysbench("prepare").0, 0);
    let (code, text) = sysbench("run");
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("native workload"), "{text}");
    assert_eq!(figure(&text, "total number of events:"), 60.0, "{text}");
    assert!(figure(&text, "read:") >= 840.0, "{text}");
    assert_eq!(sysbench("cleanup").0, 0);
    assert_eq!(sysbench("run").0, 1, "without tables");
    let (code, _) = sysbench("flush");
    assert_eq!(code, 1, "an unknown command");
}

#[test]
fn bare_names_run_native_workloads_on_mariadb() {
    native_life("mariadb");
}

#[test]
fn bare_names_run_native_workloads_on_postgres() {
    native_life("postgres");
}

#[test]
fn installed_scripts_live_their_whole_life_on_mariadb() {
    whole_life("mariadb");
}

#[test]
fn installed_scripts_live_their_whole_life_on_postgres() {
    whole_life("postgres");
}
