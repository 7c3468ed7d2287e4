//! The same script under Debian's sysbench and under Plimsoll, with the same seed and one thread: the same output,
//! the same statements at the server, the same tables.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{connection, sysbench_is_installed};
use wire::Protocol;
use wire::blocking::Client;

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/api.lua")
}

/// What the server logged since `from` bytes: statements only, without times, thread ids and statement names.
fn statements(log: &Path, from: usize, protocol: Protocol) -> Vec<String> {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap()[from..]).into_owned();
    let lines = text.lines();
    match protocol {
        Protocol::Mysql => lines
            .filter_map(|line| {
                let (_, rest) = line.split_once('\t')?;
                let rest = rest.trim_start_matches('\t').trim_start();
                let (_, rest) = rest.split_once(' ')?;
                let (command, sql) = rest.split_once('\t')?;
                // Who closes a statement first, client or server, is a matter of the client library.
                (!matches!(command, "Connect" | "Quit" | "Close stmt")).then(|| format!("{command} {sql}"))
            })
            .collect(),
        Protocol::Postgres => lines
            .filter_map(|line| {
                let at = line.find("LOG:  ").or_else(|| line.find("DETAIL:  "))?;
                let rest = &line[at..];
                let (kind, sql) = rest.split_once(":  ")?;
                let sql = match sql.split_once(": ") {
                    Some((head, sql)) if head.starts_with("execute ") => format!("execute {sql}"),
                    Some(("statement", sql)) => sql.to_owned(),
                    _ if kind == "DETAIL" => sql.to_ascii_lowercase(),
                    _ => return None,
                };
                Some(sql)
            })
            .filter(|sql| !sql.starts_with("DEALLOCATE"))
            .collect(),
    }
}

fn table(server: &sandbox::Sandbox) -> Vec<Vec<Option<Vec<u8>>>> {
    let mut client = Client::connect(&server.target(Some("sbtest"))).unwrap();
    client.query_sets("SELECT id, a, b, c, d FROM api ORDER BY id").unwrap().remove(0).rows
}

/// The script's own lines and the report's lines without figures that are times.
fn comparable(text: &str) -> Vec<String> {
    text.lines()
        .map(str::trim_end)
        .filter(|line| !line.starts_with("sysbench "))
        .map(|line| {
            let is_figure =
                ["min:", "avg:", "max:", "percentile:", "sum:", "total time:", "execution time", "per sec"];
            if !is_figure.iter().any(|f| line.contains(f)) {
                return line.to_owned();
            }
            let keep_until = if line.contains("per sec") {
                line.find('(')
            } else {
                line.find(|c: char| c.is_ascii_digit())
            };
            let label =
                if line.contains("percentile") { "percentile" } else { &line[..keep_until.unwrap_or(0)] };
            label.trim_end().to_owned()
        })
        .filter(|line| !line.is_empty())
        .collect()
}

fn check(selector: &str, log_setting: (&str, &str), log_of: impl Fn(&sandbox::Sandbox) -> PathBuf) {
    if !sysbench_is_installed("one script under sysbench and under plimsoll") {
        return;
    }
    let (name, value) = log_setting;
    let server = sandbox::testing::server_with(selector, |spec| {
        spec.settings.insert(name.to_owned(), value.to_owned());
    });
    let Some(server) = server else { return };
    let log = log_of(&server);
    for mode in ["--db-ps-mode=auto", "--db-ps-mode=disable"] {
        let mut connection = connection(&server);
        connection.push(mode.to_owned());
        compare(&server, &connection, &log);
    }
}

fn compare(server: &sandbox::Sandbox, connection: &[String], log: &Path) {
    let protocol = server.target(None).protocol;
    let arguments = |command: &str| {
        let mut words = connection.to_vec();
        words.extend(["--rand-seed=7".into(), "--events=3".into(), "--time=60".into()]);
        words.extend([script().display().to_string(), command.to_owned()]);
        words
    };
    let ours = |command: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_sysbench-here")).args(arguments(command)).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let mut seen = Vec::new();
    for is_ours in [false, true] {
        // sysbench's own prepare ignores the seed, so both runs begin with the tables that Plimsoll makes.
        ours("prepare");
        let from = std::fs::metadata(log).unwrap().len() as usize;
        let text = if is_ours {
            ours("run")
        } else {
            let output = Command::new("sysbench").args(arguments("run")).output().unwrap();
            assert!(output.status.success(), "{output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        let rows = table(server);
        let sent: Vec<String> = statements(log, from, protocol)
            .into_iter()
            .take_while(|sql| !sql.contains("SELECT id, a, b, c, d FROM api"))
            .collect();
        assert!(sent.len() > 20, "the log has only {sent:?}");
        seen.push((comparable(&text), sent, rows));
    }
    let (theirs, mine) = (&seen[0], &seen[1]);
    assert_eq!(theirs.0, mine.0, "output of {connection:?}");
    assert_eq!(theirs.1, mine.1, "statements of {connection:?}");
    assert_eq!(theirs.2, mine.2, "tables of {connection:?}");
}

#[test]
fn mariadb_sees_the_same_from_sysbench_and_from_plimsoll() {
    check("mariadb", ("general_log", "1"), |server| {
        let mut client = Client::connect(&server.target(None)).unwrap();
        let directory = client.query_value("select @@datadir").unwrap().unwrap();
        let file = client.query_value("select @@general_log_file").unwrap().unwrap();
        Path::new(&directory).join(file)
    });
}

#[test]
fn postgres_sees_the_same_from_sysbench_and_from_plimsoll() {
    check("postgres", ("log_statement", "all"), sandbox::Sandbox::log_path);
}
