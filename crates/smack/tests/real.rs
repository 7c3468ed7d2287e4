//! The smacks of the 2005 study against real servers.

use std::sync::{Arc, Mutex};

use load::Stop;
use smack::program::DataDir;
use smack::{Options, Printer, Timing, builtin, run};
use wire::blocking::Client;

#[derive(Clone, Default)]
struct Captured(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Captured {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Captured {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

fn options(server: &sandbox::Sandbox, data: &std::path::Path, arguments: &[&str]) -> Options {
    let target = server.target(Some("test_smack"));
    Options {
        protocol: target.protocol,
        data: DataDir { path: data.to_owned(), allow_shell: false, elsewhere: Default::default() },
        arguments: arguments.iter().map(|text| (*text).to_owned()).collect(),
        timing: Timing::Faithful,
        server: Some(target),
        seed: 1,
        workers: None,
        create_suffix: String::new(),
        room: |_, _| Ok(()),
    }
}

fn both_smacks(selector: &str) {
    let Some(server) = sandbox::testing::server(selector) else { return };
    let data = tempfile::tempdir().unwrap();
    let options = options(&server, data.path(), &["3", "20"]);
    let out = Captured::default();
    for (name, source) in builtin::ALL {
        run(name, source, &options, &Printer::new(out.clone()), &Stop::new()).unwrap();
    }
    let text = out.text();
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();
    let queries =
        |group: &str| -> Vec<&str> { words.iter().filter(|w| w[0] == group).map(|w| w[1]).collect() };
    // 3 clients, 20 rounds: 2 selects each in the first, 1 select and 1 update each in the second.
    assert_eq!(queries("select_index"), ["120", "60"], "{text}");
    assert_eq!(queries("update_index"), ["60"], "{text}");
    assert!(text.contains("connect: max="), "{text}");
    let mut client = Client::connect(&server.target(Some("test_smack"))).unwrap();
    assert_eq!(client.query_value("select count(*) from http_auth").unwrap().as_deref(), Some("90000"));
    // The updates set passwords to dictionary words, which are 13 to 17 characters long; the original ones have 25.
    let updated =
        client.query_value("select count(*) from http_auth where length(pass) < 20").unwrap().unwrap();
    assert!((1..=60).contains(&updated.parse::<u32>().unwrap()), "{updated} rows updated");
}

#[test]
fn mariadb_runs_both_smacks() {
    both_smacks("mariadb");
}

#[test]
fn postgres_runs_both_smacks() {
    both_smacks("postgres");
}

#[test]
fn several_clients_run_at_once_and_figures_are_values() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    // Clients print when they come to it, the result is saved at once: before they have anything to print.
    let source = r#"
        client "one" { db "x"; query_barrel ""; }
        query "ping" { query "select 1"; type "ping"; has_result_set "y"; }
        query "pong" { query "select 2, '$w'"; type "pong"; }
        client "a" { db "x"; query_barrel "3 ping -0.001"; }
        client "b" { db "x"; query_barrel "1 pong 1 ping"; }
        main {
          a.init(); b.init();
          a.set_num_rounds($1); b.set_num_rounds(7);
          a.create_threads(2); b.create_threads(3);
          a.connect(); b.connect();
          b.run_save_result("ping", "-");
          a.unload_query_barrel(); b.unload_query_barrel();
          a.collect_threads(); b.collect_threads();
          a.print("a made " . a::ping::num_queries . "|");
          a.disconnect(); b.disconnect();
        }"#;
    let data = tempfile::tempdir().unwrap();
    let out = Captured::default();
    let options = options(&server, data.path(), &["5"]);
    let reports = run("both", source, &options, &Printer::new(out.clone()), &Stop::new()).unwrap();
    let text = out.text();
    let figures = |client: &str, group: &str| {
        reports.iter().find(|r| r.client == client).unwrap().groups[group].num_queries
    };
    assert_eq!((figures("a", "ping"), figures("b", "ping"), figures("b", "pong")), (30, 21, 21), "{text}");
    assert!(text.contains("a made 30|"), "{text}");
    assert!(text.contains("\n1\n") || text.starts_with("1\n"), "{text}");
}

#[test]
fn shell_commands_are_refused_unless_allowed() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let data = tempfile::tempdir().unwrap();
    let mut options = options(&server, data.path(), &[]);
    let source = r#"
        client "a" { db "x"; }
        table "t" { client "a"; create "create table t (id int, v char(5))"; min_rows "2";
                    data_file "t.dat"; gen_data_file "echo 1,a; echo 2,b"; }
        main { a.init(); }"#;
    let error = run("shell", source, &options, &Printer::new(std::io::sink()), &Stop::new()).unwrap_err();
    assert!(error.to_string().contains("--allow-shell"), "{error}");
    assert!(!data.path().join("t.dat").exists());
    options.data.allow_shell = true;
    run("shell", source, &options, &Printer::new(std::io::sink()), &Stop::new()).unwrap();
    let mut client = Client::connect(&server.target(Some("test_smack"))).unwrap();
    assert_eq!(client.query_value("select count(*) from t").unwrap().as_deref(), Some("2"));
}

/// The client gives up a statement by its timeout; the server must not go on with it for nobody.
#[test]
fn a_statement_that_timed_out_ends_on_the_server_too() {
    for (flavor, sleep, running) in [
        (
            "mariadb",
            // A sleep would notice that nobody is there any more.
            "select benchmark(1000000000000, md5(1))",
            "select count(*) from information_schema.processlist where info like 'select benchmark%'",
        ),
        (
            "postgres",
            "select pg_sleep(1000)",
            "select count(*) from pg_stat_activity where state = 'active' and query = 'select pg_sleep(1000)'",
        ),
    ] {
        let Some(server) = sandbox::testing::server(flavor) else { return };
        let source = format!(
            r#"
            query "nap" {{ query "{sleep}"; type "nap"; has_result_set "y"; }}
            client "a" {{ db "x"; query_barrel "1 nap"; }}
            main {{ a.init(); a.set_num_rounds(2); a.create_threads(1); a.connect();
                   a.unload_query_barrel(); a.collect_threads(); a.disconnect(); }}"#
        );
        // Nothing but the nap may take long: a database can, on a machine that is writing.
        Client::connect(&server.target(None)).unwrap().query("create database test_smack").unwrap();
        let data = tempfile::tempdir().unwrap();
        let mut options = options(&server, data.path(), &[]);
        options.server = options
            .server
            .map(|target| wire::Target { statement_timeout: std::time::Duration::from_secs(3), ..target });
        let ended = run("naps", &source, &options, &Printer::new(std::io::sink()), &Stop::new());
        let mut client = Client::connect(&server.target(None)).unwrap();
        assert!(format!("{ended:?}").contains("timeout: no answer"), "{flavor}: {ended:?}");
        // It is told to stop at once, and stops a moment later.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while client.query_value(running).unwrap().as_deref() != Some("0") {
            assert!(std::time::Instant::now() < deadline, "{flavor} goes on: {ended:?}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_load_heeds_the_disk_and_the_user() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let data = tempfile::tempdir().unwrap();
    std::fs::write(data.path().join("t.dat"), "1,a\n".repeat(200_000)).unwrap();
    let mut options = options(&server, data.path(), &[]);
    let source = r#"
        client "a" { db "x"; }
        table "t" { client "a"; create "create table t (id int, v char(5))"; min_rows "200000"; data_file "t.dat"; }
        main { a.init(); }"#;
    let printer = Printer::new(std::io::sink());
    options.room = |_, bytes| Err(format!("{bytes} bytes are too many"));
    let error = run("full", source, &options, &printer, &Stop::new()).unwrap_err().to_string();
    assert!(error.contains("table t is not loaded: 800000 bytes are too many"), "{error}");
    options.room = |_, _| Ok(());
    let stop = Stop::new();
    stop.request();
    let error = run("stopped", source, &options, &printer, &stop).unwrap_err();
    assert!(matches!(error, smack::Error::Stopped { .. }), "{error}");
    let mut client = Client::connect(&server.target(Some("test_smack"))).unwrap();
    let rows: u64 = client.query_value("select count(*) from t").unwrap().unwrap().parse().unwrap();
    assert!(rows < 200_000, "{rows}");
}
