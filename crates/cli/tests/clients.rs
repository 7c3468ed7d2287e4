//! `--clients N`: several processes that share the sessions of one server.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Done, Running, plimsoll, run, servers_are_there, signal, wait_until};
use serde_json::Value;

/// A server that sleeps for each answer.
struct FakeServer {
    _child: Running,
    dir: tempfile::TempDir,
}

impl FakeServer {
    fn start() -> FakeServer {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("fake.sock");
        let program = Path::new(env!("CARGO_BIN_EXE_plimsoll")).with_file_name("plimsoll-fakeserver");
        let child = Command::new(&program)
            .args(["--latency", "fixed:5000", "--socket"])
            .arg(&socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}: cargo build -p testkit", program.display()));
        let child = Running(child);
        wait_until(Duration::from_secs(20), "the fake server", || socket.exists());
        fs::write(dir.path().join("ask.sql"), "-- name: ask\nSELECT 1;\n").unwrap();
        FakeServer { _child: child, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn url(&self) -> String {
        format!("mysql://root:geheim@localhost/fake?socket={}", self.path("fake.sock").display())
    }

    /// A bench of it with these words at the end.
    fn bench(&self, more: &[&str]) -> Command {
        let mut command = plimsoll();
        command.arg("bench").arg(self.path("ask.sql")).args(["--server", &self.url(), "--keep"]);
        command.args(["--warmup", "0s", "--json", "-"]).args(more);
        command
    }
}

/// The clients of that process.
fn clients_of(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let is_client = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.starts_with(b"plimsoll\0load-client")
    };
    children.split_whitespace().filter_map(|pid| pid.parse().ok()).filter(is_client).collect()
}

fn are_gone(pids: &[u32]) -> bool {
    pids.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists())
}

fn started(mut command: Command) -> Running {
    Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
}

fn ended(mut child: Running) -> Done {
    // What is left of the guard finds nothing to kill.
    let output = std::process::Output {
        stdout: read(child.0.stdout.take().unwrap()),
        stderr: read(child.0.stderr.take().unwrap()),
        status: child.0.wait().unwrap(),
    };
    Done::of(output)
}

fn read(mut from: impl std::io::Read) -> Vec<u8> {
    let mut all = Vec::new();
    from.read_to_end(&mut all).unwrap();
    all
}

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn clients_share_a_fixed_number_and_are_told_of_in_the_json() {
    let server = FakeServer::start();
    let ran =
        server.bench(&["--sessions", "5,9", "--clients", "3", "--transactions", "301"]).output().unwrap();
    let done = Done::of(ran);
    let levels = lines(&done.out);
    assert_eq!(levels.len(), 2, "{done:?}");
    for level in levels {
        assert_eq!(level["transactions"], 301, "{level}");
        assert_eq!(level["latency_ms"]["count"], 301);
        assert_eq!((&level["client"]["clients"], &level["client"]["workers"]), (&3.into(), &3.into()));
        let each = level["client"]["each"].as_array().unwrap();
        assert!(
            each.iter()
                .all(|client| client["start_lag_ms"].is_number() && client["clock_within_us"].is_number())
                && each.len() == 3
        );
        let gate = &level["gates"]["client_bound"];
        assert!(gate["detail"].as_str().unwrap().contains("of 3: busiest worker"), "{gate}");
    }
}

#[test]
fn a_client_that_is_killed_makes_the_run_a_fault_and_leaves_nobody_behind() {
    let server = FakeServer::start();
    let child = started(server.bench(&["--sessions", "8", "--clients", "4", "--time", "60s"]));
    let clients = || clients_of(child.id());
    wait_until(Duration::from_secs(60), "four clients", || clients().len() == 4);
    let pids = clients();
    for pid in &pids {
        for what in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{what}")).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains("geheim"), "{what} of {pid}");
        }
    }
    // Into the load.
    std::thread::sleep(Duration::from_millis(500));
    signal(pids[1], "KILL");
    let done = ended(child).expect(1, &["client 2 of 4", "killed by signal 9"]);
    let level = &lines(&done.out)[0];
    assert_eq!(level["status"], "failed", "{level}");
    assert!(are_gone(&pids));
}

#[test]
fn clients_end_with_whoever_started_them() {
    let server = FakeServer::start();
    // By Ctrl-C what was measured is kept, and by a kill nothing is told.
    for how in ["INT", "KILL"] {
        let child = started(server.bench(&["--sessions", "4", "--clients", "2", "--time", "60s"]));
        wait_until(Duration::from_secs(60), "two clients", || clients_of(child.id()).len() == 2);
        let pids = clients_of(child.id());
        std::thread::sleep(Duration::from_millis(500));
        signal(child.id(), how);
        if how == "INT" {
            let done = ended(child);
            assert_eq!(done.code, Some(4), "{done:?}");
        } else {
            ended(child);
        }
        wait_until(Duration::from_secs(20), "the end of the clients", || are_gone(&pids));
    }
}

#[test]
fn a_study_shares_its_climb_out() {
    let server = FakeServer::start();
    let study = server.path("fake.toml");
    let text = format!(
        "title = \"fake\"\nquestion = \"Does it run?\"\n[axes]\nserver = \"{}\"\nworkload = \"{}\"\nclimb = [2, 6]\n\
             [load]\nclients = 2\nwarmup = \"0s\"\nduration = \"1s\"\nrate = 100\nblocks = 1\ngates = \"warn\"\nprime = 50\n\
             [machine]\nidle = \"as-is\"\n",
        server.url(),
        server.path("ask.sql").display()
    );
    fs::write(&study, text).unwrap();
    let (study, results) = (study.display().to_string(), server.path("results").display().to_string());
    run(&["run", &study, "--results", &results]).expect(0, &[]);
    let report = run(&["report", "--results", &results, "--json", "-"]).expect(0, &[]).out;
    let report: Value = serde_json::from_str(&report).unwrap();
    for cell in report["cells"].as_array().unwrap() {
        let run = &cell["runs"][0];
        assert_eq!(run["client"]["clients"], 2, "{run}");
        assert!(run["client"]["each"][1]["clock_within_us"].is_number(), "{run}");
        assert!((50..200).contains(&run["transactions"].as_u64().unwrap()), "{run}");
    }
}

/// A client that dies is a fault of the measurement, and no death of the server: nothing of that rate is kept, and the same
/// command begins the search again.
#[test]
fn a_search_for_a_line_is_driven_by_clients() {
    let server = FakeServer::start();
    let results = server.path("results").display().to_string();
    let search = || {
        let mut command = plimsoll();
        command.arg("line").arg(server.path("ask.sql")).args(["--server", &server.url(), "--clients", "2"]);
        command.args(["--promise", "p90 < 50ms", "--sessions-max", "8", "--budget", "20s"]);
        command.args(["--results", &results, "--json", "-"]);
        command
    };
    let child = started(search());
    wait_until(Duration::from_secs(60), "two clients", || clients_of(child.id()).len() == 2);
    let pids = clients_of(child.id());
    // Into the climb.
    std::thread::sleep(Duration::from_secs(1));
    signal(pids[0], "KILL");
    ended(child).expect(1, &["client 1 of 2", "killed by signal 9"]);
    assert!(are_gone(&pids));
    let done = Done::of(search().output().unwrap());
    let line = &lines(&done.out)[0];
    assert!(!line["warnings"].to_string().contains("the server was lost"), "{line}");
    // Eight sessions of 5 ms each carry 1,600/s.
    let peak_tps = line["peak_tps"].as_f64().unwrap();
    assert!((100.0..1_700.0).contains(&peak_tps) && !line["probes"].as_array().unwrap().is_empty(), "{line}");
    let report = run(&["report", "--results", &results, "--json", "-"]).expect(0, &[]).out;
    let report: Value = serde_json::from_str(&report).unwrap();
    let runs = report["cells"][0]["runs"].as_array().unwrap();
    let last = runs.iter().find(|run| run["status"] != "failed").unwrap_or_else(|| panic!("{report}"));
    assert_eq!(last["client"]["clients"], 2, "{last}");
    let few = ["line", "oltp_point_select", "--server", "mariadb", "--promise", "p99 < 9ms"];
    run(&[&few[..], &["--sessions-max", "4", "--clients", "5"]].concat())
        .expect(2, &["4 sessions cannot be shared out to 5 clients"]);
}

#[test]
fn what_cannot_be_shared_out_is_refused_with_a_remedy() {
    let server = FakeServer::start();
    let few = Done::of(server.bench(&["--sessions", "8,2", "--clients", "3"]).output().unwrap());
    few.expect(2, &["2 sessions cannot be shared out to 3 clients", "fewer clients"]);
    let url = server.url();
    for (workload, option, says) in [
        ("bulk_insert", "tables=4", "-o tables=32"),
        ("oltp_04", "test_mode=nontrx", "must live in one process"),
    ] {
        let words =
            ["bench", workload, "--server", &url, "--keep", "--sessions", "32", "--clients", "2", "-o"];
        let mode = ["-o", "nontrx_mode=delete"];
        let more = if workload == "oltp_04" { &mode[..] } else { &[] };
        run(&[&words[..], &[option], more].concat()).expect(2, &[says]);
    }
    run(&["load-client"]).expect(2, &["started by plimsoll itself", "--clients"]);
}

#[test]
fn rows_that_clients_insert_and_change_are_all_accounted_for() {
    if !servers_are_there() {
        return;
    }
    let common = ["--sessions", "4,6", "--clients", "2", "--time", "1s", "--warmup", "0s", "--json", "-"];
    for (workload, server) in [("oltp_insert", "postgres"), ("oltp_read_write", "mariadb")] {
        let words = [
            &["bench", workload, "--server", server, "-o", "table_size=2000", "-o", "auto_inc=off"],
            &common[..],
        ];
        let done = run(&words.concat());
        for level in lines(&done.out) {
            assert_eq!(level["gates"]["consistency"]["finding"], "held", "{level}");
            assert_eq!(level["outcomes"]["constraint"], 0, "{level}");
            assert!(level["transactions"].as_u64().unwrap() > 50, "{level}");
        }
    }
}
