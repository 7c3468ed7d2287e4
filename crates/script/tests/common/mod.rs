//! What the tests of this room share: the command line in a process of its own, a server's options, figures.

// Each test file uses its part of this.
#![allow(dead_code)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use wire::{Endpoint, Protocol};

/// Where Debian's package puts sysbench's own scripts.
pub(crate) const SYSBENCH: &str = "/usr/share/sysbench";

/// Whether Debian's sysbench and its scripts are installed; where not, it is said what is not tested for that.
pub(crate) fn sysbench_is_installed(what: &str) -> bool {
    let is_there = Command::new("sysbench").arg("--version").output().is_ok_and(|o| o.status.success())
        && Path::new(SYSBENCH).is_dir();
    if !is_there {
        testkit::not_tested(what, "no sysbench is installed (the Debian package sysbench)");
    }
    is_there
}

/// The options that lead to a sandbox, whose database `sbtest` is made.
pub(crate) fn connection(server: &sandbox::Sandbox) -> Vec<String> {
    let target = server.target(Some("sbtest"));
    workload::create_database(&target).unwrap();
    let Endpoint::Unix(path) = &target.endpoint else { panic!("a sandbox listens on a socket") };
    match target.protocol {
        Protocol::Mysql => {
            vec![format!("--mysql-socket={}", path.display()), format!("--mysql-user={}", target.user)]
        }
        Protocol::Postgres => {
            let port = path.extension().unwrap().to_str().unwrap().to_owned();
            vec![
                "--db-driver=pgsql".into(),
                format!("--pgsql-host={}", path.parent().unwrap().display()),
                format!("--pgsql-port={port}"),
                format!("--pgsql-user={}", target.user),
            ]
        }
    }
}

/// A script in a folder of its own.
pub(crate) struct Script {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
}

pub(crate) fn script(text: &str) -> Script {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("test.lua");
    std::fs::write(&path, text).unwrap();
    Script { folder, path }
}

/// How a command line ended: exit code, standard output, standard error.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    #[track_caller]
    pub(crate) fn ok(self) -> Done {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    /// It failed as sysbench does, with these words.
    #[track_caller]
    pub(crate) fn fails(self, words: &[&str]) -> Done {
        assert_eq!(self.code, Some(1), "{}\n{}", self.out, self.err);
        for word in words {
            assert!(self.out.contains(word) || self.err.contains(word), "no {word:?} in {self:?}");
        }
        self
    }

    /// The lines that scripts print: those that begin with `name: `.
    pub(crate) fn told(&self, name: &str) -> Vec<String> {
        let prefix = format!("{name}: ");
        self.out.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect()
    }

    #[track_caller]
    pub(crate) fn figure(&self, label: &str) -> f64 {
        figure(&self.out, label)
    }
}

/// The number behind a label of the report.
#[track_caller]
pub(crate) fn figure(text: &str, label: &str) -> f64 {
    let line =
        text.lines().find(|l| l.trim().starts_with(label)).unwrap_or_else(|| panic!("no {label} in {text}"));
    line.trim()[label.len()..].split_whitespace().next().unwrap().trim_end_matches('s').parse().unwrap()
}

pub(crate) fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sysbench-here"));
    command.stdin(Stdio::null()).env_remove("LUA_PATH").env_remove("LUA_CPATH");
    command
}

pub(crate) fn done(command: &mut Command) -> Done {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Runs a script with options.
pub(crate) fn run(path: &Path, options: &[&str]) -> Done {
    done(command().args(options).arg(path).arg("run"))
}

/// Runs a script on a server.
pub(crate) fn run_on(connection: &[String], path: &Path, options: &[&str]) -> Done {
    done(command().args(connection).args(options).arg(path).arg("run"))
}

/// Runs with a script on standard input.
pub(crate) fn piped(text: &str, arguments: &[&str]) -> Done {
    let mut child = command()
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}
