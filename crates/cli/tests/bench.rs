//! `bench` against real servers: its lines of JSON, its tables, its interval log, its end.

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Done, plimsoll, run, servers_are_there, wait_until};
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
            for field in [
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
                assert!(line.get(field).is_some(), "{field} is missing: {line}");
            }
            assert_eq!(line["schema"], 1);
            assert_eq!(line["seed"], 7);
            assert_eq!(line["workload"], "oltp_read_write");
            assert!(line["server"].as_str().unwrap().starts_with(&format!("{server}@")), "{line}");
            let count = |field: &str| line[field].as_u64().unwrap();
            assert_eq!(count("statements"), count("reads") + count("writes") + count("other"));
            assert_eq!(count("transactions"), line["outcomes"]["committed"].as_u64().unwrap());
            let tps = count("transactions") as f64 / line["duration_s"].as_f64().unwrap();
            assert!((line["tps"].as_f64().unwrap() / tps - 1.0).abs() < 0.01, "{line}");
            let latency = |name: &str| line["latency_ms"][name].as_f64().unwrap();
            assert!(latency("min") <= latency("p50") && latency("p50") <= latency("p99"));
            assert!(latency("p999") <= latency("max") * 1.001);
            assert_eq!(line["gates"]["consistency"], false, "{line}");
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
    assert_eq!(rows.len(), 3, "{}", done.out);
    assert!(
        rows[0].starts_with("oltp_point_select on mariadb@") && rows[0].ends_with("seed 7"),
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
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    let text = std::fs::read(&log).unwrap();
    let mut transactions = 0;
    let mut tags = Vec::new();
    for entry in IntervalLogIterator::new(&text) {
        let LogEntry::Interval(interval) = entry.unwrap() else { continue };
        tags.push(interval.tag().unwrap().as_str().to_owned());
        let bytes = base64(interval.encoded_histogram());
        transactions += Deserializer::new().deserialize::<u64, _>(&mut bytes.as_slice()).unwrap().len();
    }
    tags.dedup();
    assert_eq!(tags, ["1", "2"]);
    let lines = lines(&std::fs::read_to_string(&json).unwrap());
    let counted: u64 = lines.iter().map(|line| line["transactions"].as_u64().unwrap()).sum();
    assert_eq!(transactions, counted);
}

/// Standard base64 to bytes.
fn base64(text: &str) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for symbol in text.bytes().filter(|&symbol| symbol != b'=') {
        bits = bits << 6 | ALPHABET.iter().position(|&known| known == symbol).unwrap() as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
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
        run(&["sandbox", "deploy", flavor, "--name", &name]).expect(3, &["exists already", "destroy"]);
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
        assert_eq!(lines(&first.out)[0]["gates"]["consistency"], false);
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
        run(&["sandbox", "status", &name]).expect(3, &["no sandbox named"]);
    }
}

#[test]
fn ctrl_c_ends_a_bench_with_what_was_measured() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let child = plimsoll()
        .args(["bench", "oltp_point_select", "--server", "mariadb", "--time", "120s", "--warmup", "0s"])
        .args(["-o", "table_size=1000", "--json"])
        .arg(&json)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let head = format!("bench-{}-", child.id());
    wait_until(Duration::from_secs(300), "the sandbox", || run(&["sandbox", "list"]).out.contains(&head));
    std::thread::sleep(Duration::from_secs(4));
    let begun = Instant::now();
    let id = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    Done::of(child.wait_with_output().unwrap()).expect(4, &["stopping"]);
    assert!(begun.elapsed() < Duration::from_secs(60));
    assert!(!run(&["sandbox", "list"]).out.contains(&head));
    let line = &lines(&std::fs::read_to_string(&json).unwrap())[0];
    assert!(["interrupted", "failed"].contains(&line["status"].as_str().unwrap()), "{line}");
}
