//! pgbench's command line, initialisation, logs and report, on Plimsoll's load engine.
//!
//! Never here: the script language (`pgscript`), what a session does with a script (`workload::scripted`), the life of a
//! server.

mod figures;
mod initialise;
mod log;
mod options;
mod report;
mod run;
mod session;
mod target;

use std::io::Write;

use load::Stop;

pub use options::HELP;

/// Exit code of what was asked for wrongly or could not be begun.
const FAILED: u8 = 1;
/// Exit code of a run in which clients were aborted.
const ABORTED: u8 = 2;

/// Why nothing was run, in pgbench's words: an error, and maybe a detail and a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Refusal {
    text: String,
    /// `hint: ...` or `detail: ...`
    more: Option<String>,
}

impl Refusal {
    pub(crate) fn new(text: impl Into<String>) -> Refusal {
        Refusal { text: text.into(), more: None }
    }

    pub(crate) fn interrupted() -> Refusal {
        Refusal::new("interrupted")
    }

    /// What fails after somebody asked for the end fails because of that.
    pub(crate) fn or_interrupted(self, stop: &Stop) -> Refusal {
        if stop.is_requested() { Refusal::interrupted() } else { self }
    }
}

/// Says why a server has no room on its disk for so many bytes.
pub type Room = fn(&wire::Target, u64) -> Result<(), String>;

/// Runs a command line (without the program's name): the report goes to `out`, everything else to standard error. Before
/// tables are filled `room` is asked. Answers the exit code: 0, 1 where nothing could be run, 2 where clients were aborted.
pub fn run(arguments: &[String], out: &mut dyn Write, room: Room, stop: &Stop) -> u8 {
    match go(arguments, out, room, stop) {
        Ok(code) => code,
        Err(refusal) => {
            tell(&format!("pgbench: error: {}", refusal.text));
            if let Some(more) = refusal.more {
                tell(&format!("pgbench: {more}"));
            }
            FAILED
        }
    }
}

fn go(arguments: &[String], out: &mut dyn Write, room: Room, stop: &Stop) -> Result<u8, Refusal> {
    match options::parse(arguments)? {
        options::Asked::Text(text) => write(out, &text).map(|()| 0),
        options::Asked::List(text) => {
            tell(text.trim_end_matches('\n'));
            Ok(0)
        }
        options::Asked::Initialise(target, asked) => {
            initialise::initialise(&target, &asked, room, stop).map(|()| 0)
        }
        options::Asked::Run(target, run) => run::run(&target, &run, out, stop),
    }
}

/// A reader that has gone away is no reason to fail.
fn write(out: &mut dyn Write, text: &str) -> Result<(), Refusal> {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// A line on standard error, whole. What comes from a server or a script loses control characters.
pub(crate) fn tell(line: &str) {
    let mut shown: String = line.lines().map(wire::shown).collect::<Vec<_>>().join("\n");
    shown.push('\n');
    // Whoever reads it may have gone.
    let _ = std::io::stderr().write_all(shown.as_bytes());
}
