//! What the tests of the command share: the binary, short studies, waiting.

// Each test file uses its part of this.
#![allow(dead_code)]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The command under test. Servers and snapshots are those of the user's own home, as in other tests: builds are then
/// fetched once.
pub(crate) fn plimsoll() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command.stdin(Stdio::null()).env("NO_COLOR", "1").env_remove("RUST_BACKTRACE");
    command
}

/// Runs it to its end.
pub(crate) fn run(arguments: &[&str]) -> Done {
    Done::of(plimsoll().args(arguments).output().unwrap())
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    pub(crate) fn of(output: Output) -> Done {
        Done {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The exit code, words that its message must have, and no backtrace.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, words: &[&str]) -> Done {
        assert_eq!(self.code, Some(code), "stdout:\n{}\nstderr:\n{}", self.out, self.err);
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in\n{}", self.err);
        }
        assert!(!self.err.contains("panicked") && !self.err.contains("stack backtrace"), "{}", self.err);
        self
    }
}

/// Whether real servers may be used; says so when not.
pub(crate) fn servers_are_there() -> bool {
    let none = std::env::var_os("PLIMSOLL_TEST_SERVERS").is_some_and(|value| value == "none");
    if none {
        let test = std::thread::current().name().unwrap_or("a test").to_owned();
        eprintln!("NOT TESTED: {test} needs real servers, and PLIMSOLL_TEST_SERVERS=none");
    }
    !none
}

/// A study so short that its figures mean nothing.
pub(crate) fn tiny_study(dir: &Path, name: &str, servers: &str, sessions: &str, blocks: u32) -> String {
    let path = dir.join(format!("{name}.toml"));
    let text = format!(
        "title = \"tiny\"\nquestion = \"Does it run?\"\n[axes]\nserver = [{servers}]\nworkload = [\"oltp_point_select\", \
         \"oltp_read_write\"]\nsessions = [{sessions}]\n[options]\ntable_size = 1000\n[load]\nwarmup = \"100ms\"\n\
         duration = \"1s\"\nblocks = {blocks}\nseed = 1\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn wait_until(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
