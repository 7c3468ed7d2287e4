//! `bench` against real servers: its lines of JSON, its tables, its interval log, its end.

mod common;
#[path = "common/hlog.rs"]
mod hlog;

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Running, contract, plimsoll, run, servers_are_there, signal, stop_under_load, wait_until};
use serde_json::Value;

const SHORT: [&str; 8] = ["--time", "1s", "--warmup", "100ms", "-o", "table_size=1000", "--seed", "7"];

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_session_count_is_a_line_with_all_fields() {
    if !servers_are_there() {
        return;
    }
    for server in ["mariadb", "postgres"] {
        let bench = ["bench", "oltp_read_write", "--server", server, "--sessions", "1,3", "--json", "-"];
        let done = run(&[&bench[..], &SHORT[..]].concat()).expect(0, &[]);
        let lines = lines(&done.out);
        assert_eq!(lines.iter().map(|line| line["sessions"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 3]);
        for line in &lines {
            contract::check_line(line);
            assert_eq!(line["seed"], 7);
            assert_eq!(line["workload"], "oltp_read_write");
            assert!(line["server"].as_str().unwrap().starts_with(&format!("{server}@")), "{line}");
            let count = |field: &str| line[field].as_u64().unwrap();
            assert_eq!(count("statements"), count("reads") + count("writes") + count("other"));
            assert_eq!(count("transactions"), line["outcomes"]["committed"].as_u64().unwrap());
            let tps = count("transactions") as f64 / line["duration_s"].as_f64().unwrap();
            assert!((line["tps"].as_f64().unwrap() / tps - 1.0).abs() < 0.01, "{line}");
            // Too few transactions for the higher percentiles: these say so, which the contract looks at.
            let latency = |name: &str| line["latency_ms"][name].as_f64();
            let known: Vec<f64> =
                ["min", "p50", "p90", "p95", "p99", "p999"].into_iter().filter_map(latency).collect();
            assert!(
                known.is_sorted() && known.last() <= latency("max").map(|max| max * 1.001).as_ref(),
                "{line}"
            );
            assert_eq!(line["gates"]["consistency"]["finding"], "held", "{line}");
            assert_eq!(line["options"]["table_size"], "1000");
            assert!(line["by_statement"]["point_select"]["count"].as_u64().unwrap() > 0, "{line}");
        }
    }
}

#[test]
fn people_get_a_table() {
    if !servers_are_there() {
        return;
    }
    let bench = ["bench", "oltp_point_select", "--server", "mariadb"];
    let done = run(&[&bench[..], &SHORT[..]].concat()).expect(0, &[]);
    let rows: Vec<&str> = done.out.lines().collect();
    // A dash has its footnote.
    let dashes = rows[2].split_whitespace().filter(|cell| *cell == "-").count();
    assert_eq!(rows.len(), 3 + usize::from(dashes > 0), "{}", done.out);
    assert!(rows[3..].iter().all(|note| note.starts_with("- at 1 session: p")), "{}", done.out);
    assert!(
        rows[0].starts_with("oltp_point_select on mariadb@") && rows[0].ends_with(", seed 7"),
        "{}",
        rows[0]
    );
    assert!(rows[1].contains("TPS") && rows[1].contains("p99 ms"), "{}", rows[1]);
}

#[test]
fn an_open_loop_keeps_its_rate_and_tells_service_from_response_time() {
    if !servers_are_there() {
        return;
    }
    let bench = ["bench", "oltp_point_select", "--server", "mariadb", "--sessions", "4", "--json", "-"];
    let open = ["--rate", "200", "--arrivals", "constant"];
    let done = run(&[&bench[..], &open[..], &SHORT[..]].concat()).expect(0, &[]);
    let line = &lines(&done.out)[0];
    assert_eq!(line["rate"], 200.0);
    let table = run(&[&bench[..6], &open[..], &SHORT[..]].concat()).expect(0, &[]).out;
    assert!(table.contains(", 200 transactions/s offered, constant arrivals, seed 7\n"), "{table}");
    // The schedule decides, not the machine: 200 arrivals in a second.
    let all = line["transactions"].as_u64().unwrap()
        + line["in_flight_at_end"].as_u64().unwrap()
        + line["backlog_at_end"].as_u64().unwrap();
    assert!((150..=250).contains(&all), "{line}");
    assert!(
        line["service_ms"]["p50"].as_f64().unwrap() <= line["latency_ms"]["p50"].as_f64().unwrap() * 1.01
    );
}

#[test]
fn a_number_of_transactions_is_kept_to() {
    if !servers_are_there() {
        return;
    }
    let done = run(&[
        "bench",
        "oltp_point_select",
        "--server",
        "mariadb",
        "--transactions",
        "500",
        "--warmup",
        "0s",
        "-o",
        "table_size=1000",
        "--sessions",
        "2",
        "--json",
        "-",
        "--fresh",
    ])
    .expect(0, &["seed "]);
    assert_eq!(lines(&done.out)[0]["transactions"], 500);
}

#[test]
fn the_interval_log_can_be_read() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (log, json) = (dir.path().join("log.hlog"), dir.path().join("out.json"));
    let (log_text, json_text) = (log.display().to_string(), json.display().to_string());
    let bench = ["bench", "oltp_point_select", "--server", "mariadb", "--sessions", "1,2"];
    let files = ["--hdr", &log_text, "--json", &json_text];
    run(&[&bench[..], &files[..], &SHORT[..]].concat()).expect(0, &[]);
    let intervals = hlog::read(&log);
    let transactions: u64 = intervals.iter().map(|(_, count)| count).sum();
    let mut tags: Vec<&str> = intervals.iter().map(|(tag, _)| tag.as_str()).collect();
    tags.dedup();
    assert_eq!(tags, ["1", "2"]);
    let lines = lines(&std::fs::read_to_string(&json).unwrap());
    let counted: u64 = lines.iter().map(|line| line["transactions"].as_u64().unwrap()).sum();
    assert_eq!(transactions, counted);
}

#[test]
fn a_sandbox_by_hand_is_deployed_used_kept_and_destroyed() {
    if !servers_are_there() {
        return;
    }
    for flavor in ["mariadb", "postgres"] {
        let name = format!("hand-{flavor}-{}", std::process::id());
        let deployed = run(&["sandbox", "deploy", flavor, "--name", &name])
            .expect(0, &["connect: plimsoll sandbox use"]);
        assert!(deployed.out.contains("running"), "{}", deployed.out);
        run(&["sandbox", "deploy", flavor, "--name", &name]).expect(2, &["exists already", "destroy"]);
        let env = run(&["sandbox", "env", &name]).expect(0, &[]);
        let wanted: &[&str] = match flavor {
            "postgres" => {
                &["export PGHOST=/", "export PGPORT=", "export PGUSER=postgres", "export PGDATABASE="]
            }
            _ => &[
                "export MYSQL_UNIX_PORT=/",
                ".sock\n",
                "export MYSQL_HOST=",
                "export MYSQL_TCP_PORT=",
                "export MYSQL_USER=root",
            ],
        };
        for line in wanted {
            assert!(env.out.contains(line), "{line} is not in\n{}", env.out);
        }
        let bench = ["bench", "oltp_point_select", "--server", &name, "--json", "-"];
        let first = run(&[&bench[..], &SHORT[..]].concat()).expect(0, &["loaded into the database sbtest"]);
        assert_eq!(lines(&first.out)[0]["gates"]["consistency"]["finding"], "held");
        let kept = run(&[&bench[..], &["--keep"], &SHORT[..]].concat()).expect(0, &[]);
        assert!(!kept.err.contains("loaded into"), "{}", kept.err);
        let exec =
            run(&["sandbox", "exec", &name, "--", "sh", "-c", "echo $MYSQL_USER$PGUSER"]).expect(0, &[]);
        assert!(["root\n", "postgres\n"].contains(&exec.out.as_str()), "{}", exec.out);
        let log = run(&["sandbox", "log", &name, "-n", "3"]).expect(0, &[]);
        assert_eq!(log.out.lines().count(), 3, "{}", log.out);
        run(&["sandbox", "stop", &name]).expect(0, &[]);
        run(&[&bench[..], &SHORT[..]].concat()).expect(3, &["is not running", "sandbox start"]);
        run(&["sandbox", "start", &name]).expect(0, &[]);
        run(&["sandbox", "restart", &name]).expect(0, &[]);
        let status = run(&["sandbox", "status", &name]).expect(0, &[]);
        assert!(status.out.contains("running"), "{}", status.out);
        run(&["sandbox", "destroy", &name]).expect(0, &[]);
        run(&["sandbox", "status", &name]).expect(2, &["no sandbox named"]);
    }
}

#[test]
fn a_level_that_fails_has_a_line_too_and_the_others_go_on() {
    if !servers_are_there() {
        return;
    }
    let bench =
        ["bench", "oltp_point_select", "--server", "mariadb", "--sessions", "2000000,2", "--json", "-"];
    let done = run(&[&bench[..], &SHORT[..]].concat()).expect(2, &["2000000 sessions", "open files"]);
    let lines = lines(&done.out);
    assert_eq!(lines.len(), 2);
    lines.iter().for_each(contract::check_line);
    assert_eq!((&lines[0]["status"], &lines[0]["tps"]), (&Value::from("failed"), &Value::Null));
    assert_ne!(lines[1]["status"], "failed");
    assert!(lines[1]["transactions"].as_u64() > Some(0));
}

#[test]
fn a_server_that_cannot_be_had_gives_a_line_for_each_level() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("mysql://root:hunter2@127.0.0.1:{free}/db");
    let done = run(&["bench", "oltp_point_select", "--server", &url, "--sessions", "1,8", "--json", "-"])
        .expect(3, &["no server answers"]);
    let lines = lines(&done.out);
    assert_eq!(lines.iter().map(|line| line["sessions"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 8]);
    for line in &lines {
        contract::check_line(line);
        assert!(line["error"].as_str().unwrap().contains("no server answers"), "{line}");
    }
    assert!(!done.out.contains("hunter2") && !done.err.contains("hunter2"));
    assert_eq!(done.err.matches("no server answers").count(), 1, "said once: {}", done.err);
}

/// A bench that would last for ten minutes; its messages go to a file that can be read meanwhile.
fn long_bench(dir: &Path) -> Running {
    let child = plimsoll()
        .args(["bench", "oltp_point_select", "--server", "mariadb", "--time", "600s", "--warmup", "0s"])
        .args(["-o", "table_size=1000", "--sessions", "11,2", "--json"])
        .arg(dir.join("out.json"))
        .stdout(Stdio::null())
        .stderr(File::create(dir.join("err")).unwrap())
        .spawn()
        .unwrap();
    Running(child)
}

/// Presses Ctrl-C and waits until it is said that it was noticed.
#[track_caller]
fn press(child: &Child, dir: &Path, said: &str) {
    signal(child.id(), "INT");
    wait_until(Duration::from_secs(300), said, || {
        std::fs::read_to_string(dir.join("err")).unwrap().contains(said)
    });
}

#[test]
fn ctrl_c_ends_a_bench_with_what_was_measured() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = long_bench(dir.path());
    let server = stop_under_load(&child, 11);
    signal(child.id(), "CONT");
    press(&child, dir.path(), "stopping: transactions in flight may finish");
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert!(!run(&["sandbox", "list"]).out.contains(&server.name));
    let lines = lines(&std::fs::read_to_string(dir.path().join("out.json")).unwrap());
    let said = std::fs::read_to_string(dir.path().join("err")).unwrap();
    for word in ["the server's log", "same command", "goes on from", "resume"] {
        assert!(!said.contains(word), "a bench does not resume, and its server was well: {said}");
    }
    assert_eq!(lines.len(), 2, "the level that was never begun has a line too");
    for line in &lines {
        contract::check_line(line);
        assert_eq!(line["status"], "failed");
        assert!(line["error"].as_str().unwrap().starts_with("interrupted: "), "{line}");
    }
    assert!(lines[0]["transactions"].is_u64() && lines[1]["tps"].is_null(), "{lines:?}");
}

/// A server that does not answer keeps the graceful end from coming; the second press ends it.
#[test]
fn a_second_ctrl_c_ends_the_server() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mut child = long_bench(dir.path());
    let server = stop_under_load(&child, 11);
    signal(server.pid, "STOP");
    signal(child.id(), "CONT");
    press(&child, dir.path(), "stopping: transactions in flight may finish");
    press(&child, dir.path(), "stopping at once");
    assert_eq!(child.wait().unwrap().code(), Some(4));
    let is_gone = |pid: u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.is_empty() || state.rsplit(')').next().unwrap_or_default().trim_start().starts_with(['Z', 'X'])
    };
    assert!(is_gone(server.pid), "the server still runs");
    assert!(!run(&["sandbox", "list"]).out.contains(&server.name));
}

/// An output that nobody takes keeps the command from ending at all; the third press does not wait for it.
#[test]
fn a_third_ctrl_c_ends_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("out.json");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Opening it waits for a reader, who never comes.
    let mut child = long_bench(dir.path());
    wait_until(Duration::from_secs(300), "the handler of SIGINT", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
        u64::from_str_radix(caught, 16).unwrap() & 0b10 != 0
    });
    press(&child, dir.path(), "stopping: transactions in flight may finish");
    press(&child, dir.path(), "stopping at once");
    assert!(child.try_wait().unwrap().is_none(), "it still waits for its reader");
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(4));
    let said = std::fs::read_to_string(dir.path().join("err")).unwrap();
    assert!(!said.contains('\x1b'), "escape codes are for terminals: {said:?}");
}

/// A sandbox that goes with its test.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        // It may have been destroyed.
        let _ = plimsoll().args(["sandbox", "destroy", &self.0]).output();
    }
}

#[test]
fn a_servers_log_holds_nothing_of_our_own_looking() {
    if !servers_are_there() {
        return;
    }
    for server in ["mariadb", "postgres"] {
        let named = Named(format!("quiet-{server}-{}", std::process::id()));
        run(&["sandbox", "deploy", server, "--name", &named.0, "--profile", "fast"]).expect(0, &[]);
        let bench = ["bench", "oltp_read_write", "--server", &named.0];
        run(&[&bench[..], &SHORT[..]].concat()).expect(0, &[]);
        run(&["sandbox", "restart", &named.0]).expect(0, &[]);
        let log = run(&["sandbox", "log", &named.0]).expect(0, &[]).out;
        for word in ["Aborted connection", "FATAL", "ERROR:", "reset by peer", "unexpected EOF"] {
            let found: Vec<&str> = log.lines().filter(|line| line.contains(word)).collect();
            assert!(found.is_empty(), "{server}: {found:#?}");
        }
    }
}
