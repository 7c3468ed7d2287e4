//! The reference against the parser.

use std::path::Path;

use super::*;
use crate::study::{Body, parse};

/// A study with a line in one of its tables.
fn study_with(section: &str, line: &str) -> String {
    let axes = |more: &str| {
        format!("[axes]\nserver = [\"mariadb\", \"postgres@16\"]\nworkload = \"oltp_read_only\"\n{more}\n")
    };
    let head = "title = \"t\"\nquestion = \"q\"\n";
    let entry = |axis: &str, inner: &str| {
        let others = [("server", "\"mariadb\""), ("workload", "\"oltp_read_only\"")];
        let others = others.iter().filter(|(name, _)| *name != axis);
        let others: String = others.map(|(name, value)| format!("{name} = {value}\n")).collect();
        format!("{head}[axes]\n{others}{axis} = {{ {inner} }}\n")
    };
    let named = |line: &str, needed: &str| {
        let name = needed.split('=').next().unwrap_or_default();
        if line.starts_with(name) { line.to_owned() } else { format!("{needed}, {line}") }
    };
    match section {
        "the file" => {
            let given = line.split(' ').next().unwrap_or_default();
            let tables = [
                ("title", "title = \"t\"\n"),
                ("question", "question = \"q\"\n"),
                (
                    "axes",
                    "axes = { server = [\"mariadb\", \"postgres\"], workload = \"oltp_read_only\", sessions = [1, 2] }\n",
                ),
            ];
            let others: String =
                tables.iter().filter(|(name, _)| *name != given).map(|(_, text)| *text).collect();
            // A search takes the sessions that it needs.
            let others = if given == "line" { others.replace(", sessions = [1, 2]", "") } else { others };
            format!("{others}{line}\n")
        }
        "[axes]" => {
            let given = line.split(' ').next().unwrap_or_default();
            let needed =
                [("server", "server = \"mariadb\"\n"), ("workload", "workload = \"oltp_read_only\"\n")];
            let others: String =
                needed.iter().filter(|(name, _)| *name != given).map(|(_, text)| *text).collect();
            format!("{head}[axes]\n{others}{line}\n")
        }
        "a server" => entry("server", &named(line, "server = \"mariadb\"")),
        "a server from source" => {
            let line = named(line, "git = \"..\"");
            let has_commit = line.contains("ref = ") || line.contains("refs = ");
            entry("server", &if has_commit { line } else { named(&line, "ref = \"main\"") })
        }
        "a workload" if line.starts_with("pgbench") => entry("workload", line),
        // One that is there.
        "a workload" if line.starts_with("init") => {
            let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/workloads/bank.sql");
            entry("workload", &format!("pgbench = \"select-only\", init = \"{path}\""))
        }
        "a workload" => entry("workload", &named(line, "workload = \"oltp_read_only\"")),
        "a set of settings" => entry("settings", &named(line, "name = \"n\"")),
        // A made file system needs both.
        "a place" if line.starts_with("filesystem") => {
            entry("storage", &named(line, "name = \"n\", size = \"4G\""))
        }
        "a place" if ["mount", "size", "on"].contains(&line.split(' ').next().unwrap_or_default()) => {
            let size = if line.starts_with("size") { "" } else { ", size = \"4G\"" };
            entry("storage", &named(line, &format!("name = \"n\", filesystem = \"xfs\"{size}")))
        }
        "a place" => entry("storage", &named(line, "name = \"n\"")),
        "an environment" => entry("env", &named(line, "name = \"n\"")),
        "a set of replicas" => entry("replicas", &named(line, "name = \"n\"")),
        // Arrivals are those of an open loop.
        "[load]" if line.starts_with("arrivals") => {
            format!("{head}{}[load]\nrate = 5\n{line}\n", axes(""))
        }
        // There is no wait before a retry without one.
        "[load]" if line.starts_with("backoff") => {
            format!("{head}{}[load]\nretries = 3\n{line}\n", axes(""))
        }
        // The end of a study that decides needs a bound, and something to decide.
        "[load]" if line.starts_with("until") || line.starts_with("budget") => {
            let other = if line.starts_with("until") { "budget = \"9m\"" } else { "until = \"decided\"" };
            let compare = "[compare]\naxis = \"server\"\nbase = \"mariadb\"\n";
            format!("{head}{}[load]\n{other}\n{line}\n{compare}", axes(""))
        }
        // Each needs a session.
        "[load]" if line == "clients = 4" => {
            format!("{head}{}[load]\n{line}\n", axes("sessions = [4, 64]"))
        }
        "[load]" if line.starts_with("pairing") => {
            format!("{head}{}[load]\n{line}\n[compare]\naxis = \"server\"\nbase = \"mariadb\"\n", axes(""))
        }
        "[[intervene]]" => {
            let name = if line.starts_with("name") { "" } else { "name = \"n\"\n" };
            let others = match line.split(' ').next().unwrap_or_default() {
                "on" => "off = \"SET GLOBAL general_log = OFF\"\n",
                "off" => "on = \"SET GLOBAL general_log = ON\"\n",
                "at" => "sql = \"SET GLOBAL general_log = ON\"\n",
                "sql" => "at = \"5s\"\n",
                "settings" => "",
                _ => "settings = { general_log = \"ON\" }\n",
            };
            format!("{head}{}[[intervene]]\n{name}{others}{line}\n", axes(""))
        }
        table @ ("[load]" | "[quick]") if line.starts_with("phase") => {
            format!(
                "{head}{}{table}\n{line}\n[[intervene]]\nname = \"n\"\nsettings = {{ general_log = \"ON\" }}\n",
                axes("")
            )
        }
        "[line]" => {
            let others = if line.starts_with("promises") { "" } else { "promises = \"p99 < 20ms\"\n" };
            format!("{head}{}[line]\n{others}{line}\n", axes(""))
        }
        "[compare]" => {
            let needed = [("axis", "axis = \"server\"\n"), ("base", "base = \"mariadb\"\n")];
            let others = needed.iter().filter(|(name, _)| !line.starts_with(&format!("{name} ")));
            let others: String = others.map(|(_, text)| *text).collect();
            format!("{head}{}[compare]\n{others}{line}\n", axes(""))
        }
        "[quick]" if line.starts_with("exclude") => {
            format!("{head}{}[quick]\n{line}\n", axes("sessions = [1, 9]"))
        }
        table => format!("{head}{}{table}\n{line}\n", axes("")),
    }
}

fn body(text: &str) -> Body {
    parse(Path::new("s.toml"), text).unwrap_or_else(|error| panic!("{error}")).body(false)
}

#[test]
fn the_parser_knows_exactly_these_keys() {
    for section in &*SECTIONS {
        let error = parse(Path::new("s.toml"), &study_with(&section.name, "zzzzzzzzzz = 1"));
        let error = error.err().map(|error| error.to_string()).unwrap_or_default();
        let known = error.lines().find_map(|line| line.split_once("known here: "));
        let known = known.unwrap_or_else(|| panic!("{}: {error}", section.name)).1;
        let mut asked: Vec<&str> = known.trim().split(", ").collect();
        let mut here: Vec<&str> = section.keys.iter().map(|key| key.name()).collect();
        asked.sort_unstable();
        here.sort_unstable();
        assert_eq!(here, asked, "{}", section.name);
    }
}

#[test]
fn every_example_is_accepted_and_every_default_is_what_holds_without_the_key() {
    for section in &*SECTIONS {
        for key in &section.keys {
            assert!(key.example.starts_with(&format!("{} = ", key.name())), "{}", key.example);
            body(&study_with(&section.name, &key.example));
            if key.default.is_empty() {
                continue;
            }
            let explicit = body(&study_with(&section.name, &format!("{} = {}", key.name(), key.default)));
            if section.name == "[axes]" && key.default.starts_with('"') {
                // The default's cells are those of no axis at all, but for the name.
                assert_eq!(crate::plan::cells(&explicit).len(), 1, "{}", key.name());
                continue;
            }
            let without = match key.name() {
                "arrivals" => "rate = 5",
                "backoff" => "retries = 3",
                _ => "",
            };
            assert_eq!(
                explicit,
                body(&study_with(&section.name, without)),
                "{} {}",
                section.name,
                key.name()
            );
        }
    }
}

#[test]
fn the_document_is_this_reference() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/study-file.md");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, markdown()).expect("a writable document");
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, markdown(), "UPDATE_DOCS=1 cargo test -p lab@0.1.0 writes it anew");
}
