//! Errors that users make: each gets one clear message with a remedy and the documented exit code.

mod common;

use common::{plimsoll, run, servers_are_there, tiny_study, wait_until};
use std::time::Duration;

fn study(text: &str) -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("typo.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (dir, path)
}

#[test]
fn a_study_with_a_typo_is_shown_where_it_is() {
    let (_dir, path) = study(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariadb\"\nworkload = \"oltp_read_only\"\n[load]\nduratoin = \"1s\"\n",
    );
    let done = run(&["run", &path]).expect(2, &["typo.toml:7:1", "duratoin", "did you mean `duration`?"]);
    assert_eq!(done.out, "");
}

#[test]
fn a_study_that_is_not_there() {
    run(&["run", "nowhere.toml"]).expect(2, &["cannot read the study file nowhere.toml"]);
    run(&["run", "/"]).expect(2, &["cannot read the study file"]);
}

#[test]
fn a_mistyped_server_in_a_study_is_shown_where_it_is() {
    if !servers_are_there() {
        return;
    }
    let (dir, path) = study(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"mariabd\"\nworkload = \"oltp_read_only\"\n",
    );
    let results = dir.path().join("r").display().to_string();
    run(&["run", &path, "--results", &results])
        .expect(2, &["typo.toml:4:10", "no sandbox named `mariabd`", "did you mean `mariadb`?"]);
}

/// A study of one server with a line more in its [axes].
fn with_axis(server: &str, axis: &str) -> (tempfile::TempDir, String) {
    study(&format!(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"{server}\"\nworkload = \"oltp_read_only\"\n{axis}\n"
    ))
}

#[test]
fn an_impossible_server_variable_is_shown_where_it_stands_before_anything_runs() {
    if !servers_are_there() {
        return;
    }
    // Only a build that is here says what it takes.
    run(&["fetch", "mysql@8.0"]).expect(0, &[]);
    for (server, variable, words) in [
        ("mariadb", "innodb_buffer_pool_sise = \"1G\"", &["innodb_buffer_pool_size?"][..]),
        ("mariadb", "innodb_buffer_pool_size = \"abc\"", &["`abc` is not a value"]),
        ("mariadb", "innodb_flush_log_at_trx_commit = 9", &["the server would take 3 instead"]),
        ("mysql@8.0", "max_connections = -5", &["the server would take 1 instead"]),
        ("postgres", "work_mem = 1", &["outside the valid range"]),
        ("postgres", "wal_level = \"foo\"", &["Available values: minimal, replica, logical"]),
        ("postgres", "wal_level = \"minimal\"", &["max_wal_senders = 0 beside it"]),
        ("mariadb", "innodb_page_size = 5000", &["4k, 8k, 16k, 32k or 64k"]),
        ("mariadb", "innodb_data_file_path = \"nonsense\"", &["such as ibdata1:12M:autoextend"]),
    ] {
        let axis = format!("settings = {{ name = \"mine\", set = {{ {variable} }} }}");
        let (dir, path) = with_axis(server, &axis);
        let results = dir.path().join("r").display().to_string();
        for more in [&["--dry-run"][..], &["--results", &results]] {
            let done =
                run(&[&["run", &path][..], more].concat()).expect(2, words).expect(2, &["typo.toml:6:"]);
            assert_eq!(done.out, "");
        }
    }
}

/// What no server or no machine can be, with the column of the value that asks for it.
#[test]
fn an_impossible_value_of_an_axis_is_shown_where_it_stands_before_anything_runs() {
    if !servers_are_there() {
        return;
    }
    for (server, axis, place, words) in [
        ("mariadb", "engine = [\"InnoDB\", \"InnoBD\"]", "6:21", &["engine `InnoBD`", "is it innodb?"][..]),
        ("mariadb", "engine = \"archive\"", "6:10", &["it has no such engine"]),
        ("postgres", "engine = \"InnoDB\"", "6:10", &["`heap` or `unlogged`"]),
        ("mariadb", "charset = [\"utf8mb4\", \"utf9\"]", "6:23", &["charset `utf9` is not possible"]),
        ("mariadb", "charset = \"utf8mb4/latin1_bin\"", "6:11", &["charset `utf8mb4/latin1_bin`"]),
        ("postgres", "charset = \"latin1\"", "6:11", &["are UTF8"]),
        ("postgres", "cpus = [1, 99]", "6:12", &["cpus `99`", "this process may use"]),
        ("postgres", "cpus = \"0,4000\"", "6:8", &["4000 is not among them"]),
        ("postgres", "[load]\nclient_cpus = \"4000\"", "7:15", &["4000 is not among them"]),
        (
            "postgres",
            "env = [\"none\", { name = \"x\", preload = \"nomalloc\" }]",
            "6:16",
            &["jemalloc, tcmalloc"],
        ),
        ("postgres", "env = { name = \"x\", set = { \"A=B\" = 1 } }", "6:7", &["no name of a variable"]),
        (
            "postgres",
            "settings = { name = \"x\", logging = \"binlog\" }",
            "6:36",
            &["logging binlog", "PostgreSQL has none and general-file"],
        ),
        (
            "mariadb",
            "options = { table_size = [1000, 1000000000000] }",
            "6:33",
            &["free, the tables need about", "smaller tables"],
        ),
        ("postgres", "[options]\ntable_size = \"900G\"", "7:14", &["free, the tables need about"]),
        ("mariadb@99", "", "4:10", &["there is no server mariadb@99", "plimsoll servers"]),
        ("postgres", "storage = { name = \"x\", datadir = \"/dev/null\" }", "6:11", &["is no directory"]),
    ] {
        let code = if server == "mariadb@99" { 3 } else { 2 };
        let (_dir, path) = with_axis(server, axis);
        let at = format!("typo.toml:{place}");
        run(&["run", &path, "--dry-run"]).expect(code, words).expect(code, &[&at]);
    }
    // Whoever measures is told the same.
    for (server, axis, code, at) in [
        ("mariadb@99", "", 3, "typo.toml:4:10"),
        ("postgres", "cpus = [1, 99]", 2, "typo.toml:6:12"),
        ("postgres", "[options]\ntable_size = \"900G\"", 2, "typo.toml:7:14"),
    ] {
        let (dir, path) = with_axis(server, axis);
        let results = dir.path().join("r").display().to_string();
        let done = run(&["run", &path, "--results", &results]).expect(code, &[at]);
        assert!(!done.err.contains("initialising"), "{}", done.err);
    }
}

#[test]
fn what_nothing_heeds_is_told() {
    if !servers_are_there() {
        return;
    }
    let (_dir, path) = with_axis(
        "postgres",
        "settings = { name = \"tuned\", set = {} }\n[options]\nmysql_storage_engine = \"myisam\"",
    );
    let done = run(&["run", &path, "--dry-run"]).expect(0, &[]);
    for words in [
        "the settings `tuned` change nothing on postgres@",
        "typo.toml:8:24: the option `mysql_storage_engine` changes nothing on postgres@",
    ] {
        assert!(done.out.contains(words), "{words} is not in\n{}", done.out);
    }
    let (_dir, path) = with_axis("postgres", "[load]\nbackoff = \"5ms\"");
    run(&["run", &path, "--dry-run"]).expect(2, &["typo.toml:7:1", "`backoff`", "retries = 3"]);
    // One of two families heeds it.
    let (_dir, path) = study(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = [\"postgres\", \"mariadb\"]\nworkload = \"oltp_read_only\"\n\
         [options]\nmysql_storage_engine = \"myisam\"\n",
    );
    let done = run(&["run", &path, "--dry-run"]).expect(0, &[]);
    assert!(!done.out.contains("changes nothing"), "{}", done.out);
}

#[test]
fn one_of_each_is_singular() {
    if !servers_are_there() {
        return;
    }
    let (_dir, path) = with_axis("postgres", "[load]\nblocks = 1");
    let done = run(&["run", &path, "--dry-run"]).expect(0, &[]);
    assert!(done.out.contains("1 cell, 1 block, 1 run, seed"), "{}", done.out);
}

#[test]
fn a_budget_that_no_verdict_fits_into_is_told_before_the_study_begins() {
    if !servers_are_there() {
        return;
    }
    let told = |budget: &str| {
        let load = format!(
            "settings = [\"default\", {{ name = \"more\", postgres = {{ work_mem = \"64MB\" }} }}]\n[load]\n\
             warmup = \"10s\"\nduration = \"50s\"\nblocks = {{ min = 5, max = 10 }}\nuntil = \"decided\"\n\
             budget = \"{budget}\"\n[compare]\naxis = \"settings\"\nbase = \"default\""
        );
        let (_dir, path) = with_axis("postgres", &load);
        run(&["run", &path, "--dry-run"]).expect(0, &[]).out
    };
    let short = told("8m");
    for words in [
        "load alone: 1 min 0 s a run, 20 min 0 s for all; starting, loading,",
        "no block is begun that is not likely to end within 8 min 0 s: the 5 blocks that it may not be decided before are \
         10 min 0 s of load alone",
    ] {
        assert!(short.contains(words), "{words} is not in\n{short}");
    }
    let long = told("12m");
    assert!(long.contains("within 12 min 0 s\n") && !long.contains("raise `budget`"), "{long}");
}

/// A pipe that nobody writes into would be waited for, for ever.
#[test]
fn a_pipe_is_no_file_of_anything() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = |name: &str| {
        let path = dir.path().join(name).display().to_string();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        path
    };
    let (study, sql, smack) = (pipe("s.toml"), pipe("w.sql"), pipe("w.smack"));
    let (lua, token, recipe) = (pipe("w.lua"), pipe("token"), pipe("r.toml"));
    run(&["run", &study]).expect(2, &["s.toml", "it is a pipe, not a file"]);
    run(&["run", "/dev/zero"]).expect(2, &["/dev/zero", "it is a device, not a file"]);
    for workload in [&sql, &smack] {
        run(&["bench", workload, "--server", "mariadb"]).expect(2, &["it is a pipe, not a file"]);
    }
    run(&["super-smack", &smack, "1", "1", "--server", "mariadb"]).expect(2, &["it is a pipe"]);
    let done = run(&["sysbench", &lua, "run"]);
    assert!(done.code != Some(0) && (done.err + &done.out).contains("it is a pipe"));
    run(&["hub", "worker", "--hub", "http://127.0.0.1:1", "--token-file", &token])
        .expect(2, &["it is a pipe"]);
    run(&["build", "--from", "/usr", "--recipe", &recipe]).expect(2, &["it is a pipe"]);
}

#[test]
fn settings_that_change_nothing_are_told() {
    if !servers_are_there() {
        return;
    }
    let settings = "settings = [\"default\", { name = \"tuned\", postgres = { work_mem = \"64MB\" } }]";
    let (_dir, path) = with_axis("mariadb", settings);
    let done = run(&["run", &path, "--dry-run"]).expect(0, &[]);
    for words in ["typo.toml:6:24: `postgres` of the settings `tuned`", "`tuned` change nothing on mariadb@"]
    {
        assert!(done.out.contains(words), "{words} is not in\n{}", done.out);
    }
    // What postgres heeds is none, and neither is what a server does anyway where it is held against something else.
    let flushed = "settings = [{ name = \"buffered\", set = { innodb_flush_method = \"fsync\" } }, { name = \"direct\", set \
                   = { innodb_flush_method = \"O_DIRECT\" } }]";
    for (server, settings) in [("postgres", settings), ("mariadb", flushed)] {
        let (_dir, path) = with_axis(server, settings);
        let done = run(&["run", &path, "--dry-run"]).expect(0, &[]);
        assert!(!done.out.contains("warning"), "{}", done.out);
    }
}

/// A disk that is not mounted: made anew, its place would be on another disk.
#[test]
fn a_place_that_is_not_there_is_refused_before_anything_runs() {
    if !servers_are_there() {
        return;
    }
    let (_dir, path) = with_axis("postgres", "storage = { name = \"x\", datadir = \"/nonexistent/nvme\" }");
    run(&["run", &path, "--dry-run"])
        .expect(2, &["/nonexistent/nvme is no directory", "mount the disk", ":"]);
    assert!(!std::path::Path::new("/nonexistent").exists());
}

#[test]
fn a_server_that_is_none_is_refused_in_a_dry_run() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.toml");
    let axes =
        "title = \"a\"\nquestion = \"b?\"\n[axes]\nserver = \"oracle\"\nworkload = \"oltp_point_select\"\n";
    std::fs::write(&path, format!("{axes}[load]\nduration = \"1s\"\n")).unwrap();
    run(&["run", path.to_str().unwrap(), "--dry-run"])
        .expect(2, &["no sandbox named `oracle`", "a.toml:4:10"]);
}

#[test]
fn a_device_is_no_archive() {
    run(&["fetch", "--archive", "/dev/zero"]).expect(3, &["neither a file nor a directory"]);
}

#[test]
fn a_long_plan_is_summarised() {
    if !servers_are_there() {
        return;
    }
    let levels = (1..=100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let (_dir, path) = with_axis("postgres", &format!("sessions = [{levels}]\n[load]\nblocks = 100"));
    let done = run(&["run", &path, "--dry-run"]).expect(0, &[]);
    assert!(done.out.contains("10000 runs") && done.out.contains("... and 9800 more runs"), "{}", done.out);
    assert!(done.out.lines().count() < 250);
}

#[test]
fn a_smack_file_with_a_mistake_starts_no_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.smack");
    std::fs::write(&path, "nonsense\n").unwrap();
    let done = run(&["super-smack", path.to_str().unwrap(), "--server", "mariadb"])
        .expect(2, &["x.smack:1:1", "no section"]);
    assert!(!done.err.contains("initialising"), "{}", done.err);
}

#[test]
fn an_argument_of_a_smack_file_that_cannot_be_starts_no_server() {
    for (arguments, words) in
        [(["0", "10"], "$1 is `0`, and create_threads takes 1 to 100000"), (["4", "none"], "$2 is `none`")]
    {
        let given = [&["super-smack", "select-key"][..], &arguments, &["--server", "mariadb"]].concat();
        let done = run(&given).expect(2, &["select-key:5", words]);
        assert!(!done.err.contains("initialising"), "{}", done.err);
    }
}

#[test]
fn an_argument_that_a_smack_file_lacks_is_said_without_a_line_that_is_none() {
    if !servers_are_there() {
        return;
    }
    let done = run(&["super-smack", "select-key", "--server", "mariadb"]).expect(2, &["the file uses $"]);
    assert!(!done.err.contains("line 0"), "{}", done.err);
}

#[test]
fn a_place_for_results_that_cannot_be_written_is_said_before_anything_is_fetched() {
    let dir = tempfile::tempdir().unwrap();
    let study = tiny_study(dir.path(), "early", "\"mysql@3.21\"", "1", 1);
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let done = run(&["run", &study, "--results", file.to_str().unwrap()]).expect(2, &["--results"]);
    assert!(!done.err.contains("mysql@3.21"), "{}", done.err);
    // A disk that is mounted read-only; only a user's own namespace of mounts can be made so without root.
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" || exit 77; exec \"$2\" run \"$3\" --results \"$1\"";
    let results = dir.path().join("results");
    for is_recorded in [false, true] {
        std::fs::create_dir_all(&results).unwrap();
        if is_recorded {
            drop(store::Store::open(&results).unwrap());
        }
        let output = std::process::Command::new("unshare")
            .args(["--mount", "--map-root-user", "sh", "-c", script, "sh"])
            .arg(&results)
            .args([env!("CARGO_BIN_EXE_plimsoll"), &study])
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        if output.status.code() == Some(77) {
            testkit::not_tested("a read-only disk", "it needs a mount namespace");
            return;
        }
        let done = common::Done::of(output).expect(2, &["results.db cannot be written", "--results"]);
        assert!(
            !done.err.contains("mysql@3.21") && done.err.matches("read-only").count() < 2,
            "{}",
            done.err
        );
    }
}

#[test]
fn results_that_are_not_there_or_not_ours() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    run(&["report", "--results", &at("nothing")]).expect(2, &["does not exist"]);
    std::fs::write(dir.path().join("other.db"), "this is no database, but it is long enough to be looked at")
        .unwrap();
    run(&["report", &at("other.db")]).expect(2, &["not a results file"]);
}

#[test]
fn a_server_that_nobody_has() {
    run(&["bench", "oltp_read_only", "--server", "mysql@3.21"])
        .expect(3, &["mysql@3.21", "plimsoll servers"]);
    run(&["fetch", "postgres@7"]).expect(3, &["postgres@7"]);
    run(&["bench", "oltp_read_only", "--server", "oracle@23"]).expect(2, &["names no server"]);
    run(&["bench", "oltp_read_only", "--server", "no-such-sandbox"])
        .expect(2, &["no sandbox named `no-such-sandbox`", "plimsoll sandbox list"]);
    run(&["sandbox", "start", "no-such-sandbox"]).expect(2, &["no sandbox named no-such-sandbox"]);
    run(&["fetch", "--archive", "no-such-file.tar"]).expect(2, &["there is no file no-such-file.tar"]);
    let done = run(&["bench", "oltp_read_only", "--server", "mysql@9.9"]).expect(
        3,
        &["there is no server mysql@9.9: ", "`plimsoll fetch` can get mysql@8.4", "plimsoll servers mysql"],
    );
    assert!(!done.err.contains("here: here"), "{}", done.err);
    run(&["sandbox", "deploy", "mariadb", "--name", "../up"]).expect(2, &["cannot name a sandbox"]);
}

#[test]
fn a_sandbox_that_cannot_be_is_refused_before_anything_is_made_for_it() {
    if !servers_are_there() {
        return;
    }
    let deploy = ["sandbox", "deploy", "mariadb"];
    for (more, words) in [
        (["--cpus", "99"], ["--cpus", "this process may use"]),
        (["--cpus", "-1"], ["--cpus", "such as \"0-3,8\""]),
        (["--datadir", "/none"], ["/none is no directory of this machine", "make the directory"]),
        (["--datadir", "/dev/null"], ["/dev/null is no directory", "mount the disk"]),
        (["--datadir", "/proc"], ["/proc cannot hold data directories", "name another directory"]),
        (["--name", "MySQL"], ["a sandbox named MySQL", "choose another --name"]),
    ] {
        let done = run(&[&deploy[..], &more].concat()).expect(2, &words);
        assert!(!done.err.contains("initialising"), "{}", done.err);
    }
}

#[test]
fn levels_that_cannot_be_are_refused_before_anything_is_made_for_them() {
    let bench = ["bench", "oltp_point_select", "--server", "mysql@3.21"];
    for (more, words) in [
        (&["--sessions", "2000000"][..], &["2000000 sessions", "open files"][..]),
        (&["--sessions", "1", "--clients", "4"], &["1 session cannot be shared out to 4 clients"]),
    ] {
        run(&[&bench[..], more].concat()).expect(2, words);
    }
    // By its socket a server lets in as many as there are files for.
    let by_port = ["bench", "oltp_point_select", "--server", "mysql://root@127.0.0.1:1/x"];
    run(&[&by_port[..], &["--sessions", "100000", "--clients", "1000"]].concat())
        .expect(2, &["100000 sessions", "at most 65000"]);
    let line = ["line", "oltp_point_select", "--server", "mysql@3.21", "--promise", "p99 < 5ms"];
    run(&[&line[..], &["--sessions-max", "2000000"]].concat()).expect(2, &["2000000 sessions", "open files"]);
}

#[test]
fn a_workload_or_option_that_is_not_there() {
    run(&["bench", "oltp_raed_only", "--server", "mariadb"]).expect(2, &["did you mean `oltp_read_only`?"]);
    run(&["bench", "oltp_read_only", "--server", "mariadb", "-o", "tabels=2"])
        .expect(2, &["did you mean `tables`?"]);
    if servers_are_there() {
        run(&["bench", "oltp_read_only", "--server", "mariadb", "-o", "tables=zero"]).expect(2, &["zero"]);
    }
}

#[test]
fn an_address_where_nobody_answers() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for scheme in ["mysql", "postgres"] {
        let url = format!("{scheme}://root@127.0.0.1:{free}/db");
        run(&["bench", "oltp_read_only", "--server", &url])
            .expect(3, &["no server answers", "is it running"]);
    }
    run(&["bench", "oltp_read_only", "--server", "mysql://["]).expect(2, &["not a server's URL"]);
}

#[test]
fn a_wrong_password_is_said_and_never_shown() {
    for flavor in ["mariadb", "postgres"] {
        let Some(server) =
            sandbox::testing::server_with(flavor, |spec| spec.listen = sandbox::Listen::FreePort)
        else {
            return;
        };
        let target = server.tcp_target(None).unwrap();
        let wire::Endpoint::Tcp { port, .. } = target.endpoint else { panic!("no port") };
        let scheme = if flavor == "postgres" { "postgres" } else { "mysql" };
        let url = format!("{scheme}://{}:hunter2@127.0.0.1:{port}/sbtest", target.user);
        let done = run(&["bench", "oltp_read_only", "--server", &url])
            .expect(3, &["refused the log-in", "password"]);
        assert!(!done.err.contains("hunter2"), "{}", done.err);
    }
}

#[test]
fn the_password_of_a_url_does_not_stand_in_the_process_list() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("mysql://root:hunter2@127.0.0.1:{}/db", listener.local_addr().unwrap().port());
    // Nobody speaks at the other end, so the command stays for a while.
    let mut child = plimsoll()
        .args(["bench", "oltp_read_only", "--server", &url])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let shown = || std::fs::read(format!("/proc/{}/cmdline", child.id())).unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    wait_until(Duration::from_secs(10), "the password to be masked", || {
        text(shown()).contains("root:*******@")
    });
    assert!(!text(shown()).contains("hunter2"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// A URL of a test server's socket.
fn url(server: &sandbox::Sandbox, database: &str) -> String {
    let socket = server.socket().display().to_string();
    match server.build().flavor {
        sandbox::Flavor::Postgres => {
            let (dir, port) = socket.rsplit_once("/.s.PGSQL.").unwrap();
            format!("postgres://postgres@localhost:{port}/{database}?host={dir}")
        }
        _ => format!("mysql://root@localhost/{database}?socket={socket}"),
    }
}

#[test]
fn a_database_that_is_not_there_is_an_error_with_keep_and_made_without() {
    for flavor in ["mariadb", "postgres"] {
        let Some(server) = sandbox::testing::server(flavor) else { return };
        let url = url(&server, "nowhere");
        let short = ["--time", "200ms", "--warmup", "0s", "-o", "table_size=100", "--seed", "1"];
        let bench = ["bench", "oltp_point_select", "--server", &url];
        let keep: Vec<&str> = bench.iter().chain(&["--keep"]).chain(&short).copied().collect();
        run(&keep).expect(3, &["nowhere"]);
        let load: Vec<&str> = bench.iter().chain(&short).copied().collect();
        let done = run(&load).expect(0, &["loaded into the database nowhere and stay there"]);
        assert!(done.out.contains("TPS"), "{}", done.out);
        run(&keep).expect(0, &[]);
    }
}

#[test]
fn tables_that_are_kept_are_those_that_the_options_say() {
    for flavor in ["mariadb", "postgres"] {
        let Some(server) = sandbox::testing::server(flavor) else { return };
        let url = url(&server, "sbtest");
        let bench = ["bench", "oltp_point_select", "--server", &url, "--time", "200ms", "--warmup", "0s"];
        let with = |more: &[&str]| run(&[&bench[..], more].concat());
        with(&["-o", "table_size=100"]).expect(0, &[]);
        with(&["--keep", "-o", "table_size=100"]).expect(0, &[]);
        with(&["--keep", "-o", "table_size=120"])
            .expect(0, &["the table sbtest1 has 100 rows", "makes 120 rows"]);
        with(&["--keep", "-o", "table_size=10k"])
            .expect(2, &["--keep: the table sbtest1 has 100 rows", "makes 10000 rows", "options (-o)"]);
        with(&["--keep", "-o", "table_size=100", "-o", "tables=2"]).expect(2, &["there is no table sbtest2"]);
    }
}

#[test]
fn a_server_with_too_few_connections_is_refused_before_the_run() {
    let Some(server) = sandbox::testing::server_with("mariadb", |spec| spec.sessions = 20) else { return };
    let url = url(&server, "sbtest");
    run(&["bench", "oltp_point_select", "--server", &url, "--sessions", "2000", "-o", "table_size=100"])
        .expect(3, &["max_connections", "2000 sessions", "use fewer sessions"]);
}

#[test]
fn too_few_prepared_statements_are_refused_before_the_run() {
    let change = |spec: &mut sandbox::Spec| {
        spec.settings.insert("max_prepared_stmt_count".into(), "20".into());
    };
    let Some(server) = sandbox::testing::server_with("mariadb", change) else { return };
    let url = url(&server, "sbtest");
    run(&["bench", "oltp_read_write", "--server", &url, "--sessions", "8", "-o", "table_size=100"])
        .expect(3, &["max_prepared_stmt_count", "use fewer sessions"]);
}

#[test]
fn more_sessions_than_file_descriptors() {
    if !servers_are_there() {
        return;
    }
    let script = format!(
        "ulimit -n 100; exec {} bench oltp_point_select --server mariadb --sessions 200",
        env!("CARGO_BIN_EXE_plimsoll")
    );
    let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
    common::Done::of(output).expect(2, &["open files", "ulimit -Hn"]);
}

#[test]
fn a_server_that_does_not_start_shows_its_log() {
    if !servers_are_there() {
        return;
    }
    let done = run(&[
        "bench",
        "oltp_point_select",
        "--server",
        "mariadb",
        "--set",
        "innodb_data_file_path=nonsense",
        "--time",
        "1s",
    ]);
    // What the server did not like, in one line, and not its log.
    assert_eq!(done.code, Some(3), "{}", done.err);
    let said: Vec<&str> = done.err.lines().filter(|line| line.to_lowercase().contains("innodb")).collect();
    assert_eq!(said.len(), 1, "{}", done.err);
}

#[test]
fn a_variable_that_the_server_does_not_know() {
    if !servers_are_there() {
        return;
    }
    run(&["bench", "oltp_point_select", "--server", "mariadb", "--set", "innodb_bufer_pool_size=1G"])
        .expect(2, &["innodb_bufer_pool_size"]);
}

#[test]
fn tables_that_no_disk_holds() {
    if !servers_are_there() {
        return;
    }
    run(&["bench", "oltp_point_select", "--server", "mariadb", "-o", "table_size=1000000000000"])
        .expect(1, &["free", "smaller tables"]);
}

#[test]
fn a_port_in_use() {
    if !servers_are_there() {
        return;
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let name = format!("port-{}", std::process::id());
    run(&["sandbox", "deploy", "mariadb", "--name", &name, "--port", &port]).expect(3, &["in use"]);
    let list = run(&["sandbox", "list", "--json"]).expect(0, &[]);
    assert!(!list.out.contains(&name), "{}", list.out);
}

#[test]
fn an_attached_server_that_vanishes_in_the_middle() {
    for flavor in ["mariadb", "postgres"] {
        let Some(mut server) = sandbox::testing::server(flavor) else { return };
        let url = url(&server, "sbtest");
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("err");
        let child = plimsoll()
            .args(["bench", "oltp_point_select", "--server", &url, "--time", "600s", "--warmup", "0s"])
            .args(["-o", "table_size=1000", "--json", "-", "--sessions", "4"])
            .stdout(std::process::Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        // As soon as the load has done more than any loading and checking does, the server goes.
        let done_so_far = if flavor == "postgres" {
            "SELECT xact_commit FROM pg_stat_database WHERE datname = 'sbtest'"
        } else {
            "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_STMT_EXECUTE'"
        };
        let mut client = wire::blocking::Client::connect(&server.target(None)).unwrap();
        wait_until(Duration::from_secs(300), "the load", || {
            let count = client.query_value(done_so_far).unwrap().unwrap_or_default();
            count.parse::<u64>().unwrap_or(0) >= 500
        });
        server.kill().unwrap();
        let done = common::Done::of(child.wait_with_output().unwrap());
        let told = std::fs::read_to_string(&log).unwrap();
        assert_eq!(done.code, Some(1), "{told}");
        assert!(told.contains("4 sessions"), "{told}");
        let line: serde_json::Value = serde_json::from_str(done.out.trim()).unwrap();
        assert_eq!(line["status"], "failed", "{line}");
        assert!(line["transactions"].as_u64().unwrap() > 0, "what was measured before is kept: {line}");
    }
}

#[test]
fn only_and_compare_name_axes_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = tiny_study(dir.path(), "only", "\"mariadb\"", "1, 2", 1);
    if !servers_are_there() {
        return;
    }
    run(&["run", &path, "--dry-run", "--only", "sesions=1"]).expect(2, &["did you mean `sessions`?"]);
    run(&["run", &path, "--dry-run", "--only", "sessions=3"]).expect(2, &["the axis has 1 or 2"]);
    let done = run(&["run", &path, "--dry-run", "--only", "sessions=2"]).expect(0, &[]);
    assert!(done.out.contains("4 runs") && !dir.path().join("plimsoll-results").exists(), "{}", done.out);
}

#[test]
fn a_rate_that_nobody_could_count_is_refused() {
    for rate in ["1e12", "1e308", "inf", "0", "NaN"] {
        run(&["bench", "oltp_point_select", "--server", "mariadb", "--rate", rate])
            .expect(2, &["above 0 and at most 1000000000"]);
    }
}
