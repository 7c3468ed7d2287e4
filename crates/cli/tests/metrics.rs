//! `--metrics` while a study runs, read as Prometheus would read it.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::Duration;

use common::{plimsoll, servers_are_there};

/// A page by metric: its type, and its values by labels. Panics where the page is not of the text format 0.0.4.
fn parsed(page: &str) -> BTreeMap<String, (String, BTreeMap<String, f64>)> {
    let mut metrics: BTreeMap<String, (String, BTreeMap<String, f64>)> = BTreeMap::new();
    let mut helped = BTreeSet::new();
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, words) = help.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && !words.is_empty(), "{line}");
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, kind) = typed.split_once(' ').unwrap();
            assert!(helped.contains(name), "no HELP before {line}");
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            let before = metrics.insert(name.to_owned(), (kind.to_owned(), BTreeMap::new()));
            assert_eq!(before, None, "twice: {line}");
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.starts_with("plimsoll_") && name.chars().all(is_name), "{line}");
            assert!(
                labels.is_empty() || (labels.starts_with("instance=\"") && labels.ends_with("\"}")),
                "{line}"
            );
            let (_, values) = metrics.get_mut(name).unwrap_or_else(|| panic!("no TYPE before {line}"));
            let before = values.insert(labels.to_owned(), value.parse().unwrap());
            assert_eq!(before, None, "twice: {line}");
        }
    }
    metrics
}

fn get(address: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: {address}\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    Some(body.to_owned())
}

#[test]
fn a_study_can_be_watched_by_prometheus() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let study = dir.path().join("watched.toml");
    let text = "title = \"watched\"\nquestion = \"Is it seen?\"\n[axes]\nserver = [\"mariadb\"]\nworkload = [\"oltp_read_write\"]\nsessions = [2]\n\
                [options]\ntable_size = 1000\n[load]\nwarmup = \"1s\"\nduration = \"4s\"\nblocks = 1\ngates = \"warn\"\n";
    std::fs::write(&study, text).unwrap();
    let mut child = plimsoll()
        .arg("run")
        .arg(&study)
        .args(["--metrics", "127.0.0.1:0", "--results"])
        .arg(dir.path().join("results"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = lines
        .by_ref()
        .find_map(|line| {
            Some(line.unwrap().strip_prefix("metrics: http://")?.strip_suffix("/metrics")?.to_owned())
        })
        .expect("the address is told");
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>().join("\n"));
    // Everything that was ever there: how often it is looked is no matter.
    let mut seen = BTreeSet::new();
    while child.try_wait().unwrap().is_none() {
        if let Some(page) = get(&address) {
            seen.extend(parsed(&page).into_keys());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let err = rest.join().unwrap();
    assert!(child.wait().unwrap().success(), "{err}");
    for name in [
        "plimsoll_load_tps",
        "plimsoll_load_sessions",
        "plimsoll_load_response_p99_ms",
        "plimsoll_host_cpu_busy_seconds_total",
        "plimsoll_process_cpu_user_seconds_total",
        "plimsoll_process_rss_bytes",
        "plimsoll_client_cpu_user_seconds_total",
        "plimsoll_device_written_bytes_total",
        "plimsoll_server_log_bytes_total",
        "plimsoll_server_dirty_bytes",
    ] {
        assert!(seen.contains(name), "{name} is not among {seen:?}\n{err}");
    }
}
