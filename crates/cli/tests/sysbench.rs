//! `plimsoll sysbench` as the released command: what it keeps beyond sysbench's output. Its scripts, options and servers
//! are tested in the script room.

mod common;
#[path = "common/hlog.rs"]
mod hlog;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Done, plimsoll};
use serde_json::Value;

/// A script that needs no server.
const EMPTY: &str = "sysbench.cmdline.options = {}\nfunction event() end";

fn folder_with(script: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("empty.lua");
    std::fs::write(&path, script).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

fn sysbench(arguments: &[&str]) -> Done {
    Done::of(plimsoll().arg("sysbench").args(arguments).output().unwrap())
}

#[test]
fn a_link_named_sysbench_is_sysbench() {
    let (folder, script) = folder_with(EMPTY);
    let link = folder.path().join("sysbench");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plimsoll"), &link).unwrap();
    let version = Done::of(Command::new(&link).arg("--version").output().unwrap()).expect(0, &[]);
    assert_eq!(version.out, "sysbench 1.0.20\n");
    let ran = Done::of(Command::new(&link).args(["--events=3", &script, "run"]).output().unwrap());
    assert!(ran.expect(0, &[]).out.contains("total number of events:              3\n"));
    Done::of(Command::new(&link).args(["--thread=3", &script, "run"]).output().unwrap())
        .expect(1, &["invalid option: --thread=3; did you mean --threads?"]);
}

#[test]
fn json_is_the_line_of_bench_with_the_percentiles_asked_for() {
    let (folder, script) = folder_with(EMPTY);
    let file = folder.path().join("out.json");
    let json = format!("--json={}", file.display());
    sysbench(&[
        "--events=1000",
        "--threads=2",
        "--percentile=50,99,99.9",
        "--rand-seed=5",
        &json,
        &script,
        "run",
    ])
    .expect(0, &[]);
    let line: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let fields = ["workload", "sessions", "seed", "transactions", "status", "native", "statements"];
    let found: Vec<String> = fields.iter().map(|field| line[field].to_string()).collect();
    assert_eq!(found, ["\"empty.lua\"", "2", "5", "1000", "\"done\"", "false", "0"], "{line}");
    let percentiles = line["percentiles_ms"].as_object().unwrap();
    assert_eq!(percentiles.keys().collect::<Vec<_>>(), ["50", "99", "99.9"]);
    assert!(percentiles["50"].as_f64() <= percentiles["99"].as_f64(), "{line}");
    // Ten transactions have to lie beyond one.
    assert_eq!(percentiles["99.9"], Value::Null, "{line}");
    assert!(line["latency_ms"]["p95"].as_f64().is_some(), "{line}");
}

#[test]
fn interval_logs_hold_every_event() {
    let (folder, script) = folder_with(EMPTY);
    let file = folder.path().join("out.hlog");
    let hdr = format!("--hdr={}", file.display());
    sysbench(&["--events=100", &hdr, &script, "run"]).expect(0, &[]);
    let events: u64 = hlog::read(&file).iter().map(|(_, count)| count).sum();
    assert_eq!(events, 100);
}

#[test]
fn runs_are_kept_and_reported_as_cells_and_repeats() {
    let (folder, script) =
        folder_with("sysbench.cmdline.options = {colour = {'a colour', 'red'}}\nfunction event() end");
    let results = folder.path().join("results");
    let keep = format!("--results={}", results.display());
    // Two repeats of one cell, one of another option, one of another session count.
    for more in [&[][..], &[], &["--colour=blue"], &["--threads=2"]] {
        let words =
            [&["--events=50", "--mysql-password=geheim", &keep][..], more, &[&script, "run"]].concat();
        sysbench(&words).expect(0, &[]);
    }
    // One that fails is kept too.
    let failing = folder.path().join("failing.lua");
    std::fs::write(&failing, "n = 0\nfunction event() n = n + 1 if n == 5 then error('enough') end end")
        .unwrap();
    sysbench(&[&keep, failing.to_str().unwrap(), "run"]).expect(1, &[]);
    let report = |arguments: &[&str]| {
        let folder = results.display().to_string();
        Done::of(plimsoll().args(["report", "--results", &folder]).args(arguments).output().unwrap())
            .expect(0, &[])
    };
    let json: Value = serde_json::from_str(&report(&["--json", "-"]).out).unwrap();
    assert_eq!(json["studies"][0]["name"], "sysbench");
    let cells = json["cells"].as_array().unwrap();
    let runs = |workload: &str, sessions: u64, colour: Option<&str>| {
        let is_it = |cell: &&Value| {
            cell["key"]["workload"] == workload
                && cell["key"]["sessions"] == sessions
                && cell["key"]["colour"].as_str() == colour
        };
        cells.iter().find(is_it).map(|cell| cell["runs"].as_array().unwrap().clone()).unwrap_or_default()
    };
    assert_eq!(runs("empty.lua", 1, None).len(), 2, "{json}");
    assert_eq!(runs("empty.lua", 1, Some("blue")).len(), 1, "{json}");
    assert_eq!(runs("empty.lua", 2, None).len(), 1, "{json}");
    assert_eq!(runs("empty.lua", 1, None)[0]["transactions"], 50);
    let failed = runs("failing.lua", 1, None);
    assert_eq!(failed[0]["status"], "failed");
    assert!(failed[0]["error"].as_str().unwrap().contains("enough"), "{failed:?}");
    let markdown = report(&["--md", "-"]).out;
    assert!(markdown.contains("4 runs counted"), "{markdown}");
    let html = report(&["--html", "-"]).out;
    assert!(!html.contains("geheim") && html.contains("--mysql-password=***"), "the password is masked");
}

/// How to reach a sandbox, in sysbench's options.
fn connection(server: &sandbox::Sandbox) -> Vec<String> {
    let target = server.target(Some("sbtest"));
    workload::create_database(&target).unwrap();
    let wire::Endpoint::Unix(path) = &target.endpoint else { panic!("a sandbox listens on a socket") };
    match target.protocol {
        wire::Protocol::Mysql => {
            vec![format!("--mysql-socket={}", path.display()), format!("--mysql-user={}", target.user)]
        }
        wire::Protocol::Postgres => vec![
            "--db-driver=pgsql".to_owned(),
            format!("--pgsql-host={}", path.parent().unwrap().display()),
            format!("--pgsql-port={}", path.extension().unwrap().to_str().unwrap()),
            format!("--pgsql-user={}", target.user),
        ],
    }
}

#[test]
fn tables_that_no_disk_holds_are_not_begun() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let mut words = vec!["oltp_point_select".to_owned()];
    words.extend(connection(&server));
    words.extend(["--table-size=100000000000".to_owned(), "prepare".to_owned()]);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = sysbench(&words);
    assert!(done.code == Some(1) && done.out.contains("use smaller tables"), "{done:?}");
}

#[test]
fn kept_runs_have_what_machine_and_server_did() {
    let script = "function thread_init() con = sysbench.sql.driver():connect() end\nfunction event() con:query('SELECT 1') end";
    for (flavor, counter) in [("mariadb", "statements"), ("postgres", "commits")] {
        let Some(server) = sandbox::testing::server(flavor) else { return };
        let (folder, script) = folder_with(script);
        let results = folder.path().join("results").display().to_string();
        let connection = connection(&server);
        let sysbench = |words: &[&str]| {
            let options = connection.iter().map(String::as_str);
            let words: Vec<&str> = options.chain(words.iter().copied()).collect();
            sysbench(&words).expect(0, &[])
        };
        let keep = format!("--results={results}");
        sysbench(&["--table-size=1000", "oltp_read_only", "prepare"]);
        sysbench(&["--table-size=1000", "--time=3", &keep, "oltp_read_only", "run"]);
        sysbench(&["--time=3", &keep, &script, "run"]);
        let tables = folder.path().join("csv");
        let page = folder.path().join("report.html");
        let outputs = ["--csv", tables.to_str().unwrap(), "--html", page.to_str().unwrap()];
        let report = [&["report", "--results", &results][..], &outputs].concat();
        Done::of(plimsoll().args(report).output().unwrap()).expect(0, &[]);

        let telemetry = std::fs::read_to_string(tables.join("telemetry.csv")).unwrap();
        let page = std::fs::read_to_string(&page).unwrap();
        for run in ["r1", "r2"] {
            for (source, name) in [
                ("host", "cpu_busy"),
                ("process", "cpu_user"),
                ("process", "rss_bytes"),
                ("client", "cpu_user"),
                ("server", counter),
            ] {
                let of = format!("sysbench,{run},{source},{name},");
                let samples = telemetry.lines().filter(|line| line.starts_with(&of)).count();
                assert!(samples > 0, "{flavor}: nothing of {of} in\n{telemetry}");
            }
        }
        for chart in ["host · run queue", "process · cpu user", "client · cpu user", "server · "] {
            assert!(page.contains(chart), "{flavor}: no chart of {chart}");
        }
        // Where no server is used, none is looked at, whatever listens at the default address.
        let (idle, empty) = folder_with(EMPTY);
        let keep = format!("--results={}", idle.path().display());
        sysbench(&["--time=2", &keep, &empty, "run"]);
        let tables = idle.path().join("csv");
        let place = idle.path().display().to_string();
        let report = ["report", "--results", &place, "--csv", tables.to_str().unwrap()];
        Done::of(plimsoll().args(report).output().unwrap()).expect(0, &[]);
        let telemetry = std::fs::read_to_string(tables.join("telemetry.csv")).unwrap();
        let has = |source: &str| telemetry.lines().any(|line| line.contains(&format!(",{source},")));
        assert_eq!(
            ["host", "client", "server", "process"].map(has),
            [true, true, false, false],
            "{telemetry}"
        );
    }
}

/// Begins a command, waits until it has printed a line, sends signals and answers how long it lived on.
fn signalled(script: &str, words: &[&str], signals: u32) -> (Done, Duration) {
    let (_folder, path) = folder_with(script);
    let mut command = plimsoll();
    command.args(["sysbench", "--time=60"]).args(words).args([&path, "run"]);
    let mut child = common::Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("begun") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "ended too early");
    }
    let began = Instant::now();
    for number in 0..signals {
        if number > 0 {
            // Two signals of one kind that wait together are one.
            std::thread::sleep(Duration::from_millis(500));
        }
        common::signal(child.id(), "TERM");
    }
    let mut code = None;
    common::wait_until(Duration::from_secs(40), "the end", || {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    let took = began.elapsed();
    let (mut out_text, mut err) = (line, String::new());
    out.read_to_string(&mut out_text).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    (Done { code: code.and_then(|code| code.code()), out: out_text, err }, took)
}

const BEGUN: &str = "sysbench.cmdline.options = {}\nfunction say() print('begun') io.flush() end\n";

#[test]
fn endless_scripts_end_at_the_first_signal() {
    // At top level, in thread_init, in an event; as machine code and interpreted.
    let places = [
        "say() while true do end",
        "say() while true do pcall(error) end",
        "function thread_init() say() while true do end end function event() end",
        "function event() say() while true do end end",
    ];
    std::thread::scope(|scope| {
        for place in places {
            scope.spawn(move || {
                let (done, took) = signalled(&format!("{BEGUN}{place}"), &[], 1);
                done.expect(4, &["stopping", "Ctrl-C again leaves at once", "the script computes"]);
                assert!(took < Duration::from_secs(20), "{place}: {took:?}");
            });
        }
    });
}

#[test]
fn a_second_signal_leaves_at_once_and_says_so() {
    let endless = format!("{BEGUN}function event() say() while true do end end");
    let (done, took) = signalled(&endless, &["--threads=4"], 2);
    done.expect(4, &["stopping", "left at once"]);
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// LuaJIT has compiled the loop by then, and never ended a collection of garbage in it.
#[test]
fn a_script_that_asks_a_server_in_a_loop_ends_at_the_first_signal() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let options = connection(&server);
    let words: Vec<&str> = options.iter().map(String::as_str).collect();
    let asking = "function init()
   local con = sysbench.sql.driver():connect()
   local n = 0
   while true do con:query('SELECT 1') n = n + 1 if n == 10000 then say() end end
end
function event() end";
    let (done, took) = signalled(&format!("{BEGUN}{asking}"), &words, 1);
    assert!(!done.expect(4, &["stopping"]).err.contains("the script computes"));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn a_script_that_ends_by_itself_is_not_cut_off_by_the_first_signal() {
    let (done, took) =
        signalled(&format!("{BEGUN}n = 0 function event() if n == 0 then say() end n = 1 end"), &[], 1);
    assert!(done.expect(0, &["stopping"]).out.contains("total number of events"), "the report is told");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
