//! Progress as lines: for pipes, logs and terminals that cannot draw. On a terminal the current second is shown in a
//! line that is overwritten.

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use lab::Event;
use store::counted;

use super::state::{State, ended_line, looked_line};
use super::terminal::{draw, tell};
use super::{number, time};

/// How often a pipe is told that something slow still goes on.
const REMINDER: Duration = Duration::from_secs(10);

/// Writes events to standard error.
pub(crate) struct Plain {
    inner: Mutex<Inner>,
}

struct Inner {
    state: State,
    is_terminal: bool,
    /// A line of the terminal waits to be overwritten.
    is_open: bool,
    reminded: Instant,
    /// Ended runs are told by somebody else (the table of `bench`).
    without_runs: bool,
}

impl Plain {
    /// For `run`: each run is a line.
    pub(crate) fn new() -> Plain {
        Plain {
            inner: Mutex::new(Inner {
                state: State::default(),
                is_terminal: super::is_capable(&std::io::stderr()),
                is_open: false,
                reminded: Instant::now(),
                without_runs: false,
            }),
        }
    }

    /// For `bench`, whose figures go to standard output.
    pub(crate) fn without_runs() -> Plain {
        let plain = Plain::new();
        plain.lock().without_runs = true;
        plain
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn event(&self, event: &Event<'_>) {
        self.lock().event(event);
    }

    /// Says, at the end, what made runs invalid.
    pub(crate) fn finish(&self) {
        let mut inner = self.lock();
        for line in inner.state.gates() {
            inner.line(&line);
        }
        inner.close();
    }

    /// Clears the line that would have been overwritten.
    pub(crate) fn clear(&self) {
        self.lock().close();
    }
}

impl Inner {
    fn event(&mut self, event: &Event<'_>) {
        let now = Instant::now();
        let warnings = self.state.warnings.len();
        self.state.event(event, now);
        match event {
            Event::Waiting { .. } => {
                let text = format!("{} (Ctrl-C to give up)", self.state.doing);
                self.line(&text);
            }
            Event::Cleaned(names) => {
                self.line(&format!("removed what a crashed plimsoll left: {}", names.join(", ")))
            }
            Event::Planned { title, runs, finished, to_do, cells, blocks, seed, .. } => {
                self.line(title);
                let before = if *finished > 0 {
                    format!(", {finished} of them recorded before")
                } else {
                    String::new()
                };
                let (cells, blocks) = (counted(*cells, "cell"), counted(*blocks, "block"));
                self.line(&format!("{} ({cells}, {blocks}, seed {seed}){before}", counted(*runs, "run")));
                if *to_do > 0
                    && let Some(left) = self.state.left(now)
                {
                    self.line(&format!("{to_do} to go, about {}", time(left)));
                }
            }
            // Each change has a line of its own already.
            Event::Fleet(_) => self.passing(),
            Event::Doing(what) if self.state.label.is_none() => self.line(what),
            Event::Bytes { .. } | Event::Loaded { .. } | Event::Doing(_) => self.remind(now),
            // Said once, however many runs it is about: the report has it with each of them.
            Event::Warning(text) if self.state.warnings.len() > warnings => {
                self.line(&format!("warning: {text}"));
            }
            Event::Warning(_) => {}
            Event::Again { runs: 1 } => self.line("  it is made again later in its block"),
            Event::Again { runs } => {
                self.line(&format!(
                    "  it and {} that it is compared with are made again in its block",
                    runs - 1
                ));
            }
            Event::Looked { number, look } => self.line(&looked_line(*number, look)),
            Event::RunEnded { label, summary } => {
                if !self.without_runs {
                    let left = self.state.left(now).filter(|left| !left.is_zero());
                    let left = left.map_or_else(String::new, |left| format!(", {} left", time(left)));
                    self.line(&format!("{}{left}", ended_line(label, summary)));
                }
                if !summary.log_tail.is_empty() {
                    let log: Vec<String> =
                        summary.log_tail.lines().map(|line| format!("    | {line}")).collect();
                    self.line(&format!("  the server's log ends with\n{}", log.join("\n")));
                }
            }
            Event::RunStarted(_) | Event::Phase(_) => {
                self.reminded = now;
                self.passing();
            }
            Event::StepStarted { .. } | Event::Interval { .. } => self.passing(),
        }
    }

    /// A line that stays.
    fn line(&mut self, text: &str) {
        self.close();
        tell!("{text}");
    }

    fn close(&mut self) {
        if self.is_open {
            draw("\r\x1b[K");
            self.is_open = false;
        }
    }

    fn remind(&mut self, now: Instant) {
        if self.is_terminal {
            self.passing();
        } else if now.duration_since(self.reminded) >= REMINDER {
            self.reminded = now;
            let text = self.current();
            self.line(&text);
        }
    }

    /// A line that the next one overwrites; nothing where that is not possible.
    fn passing(&mut self) {
        if !self.is_terminal {
            return;
        }
        let text = self.current();
        let shown: String = text.chars().take(width().saturating_sub(1)).collect();
        draw(&format!("\r\x1b[K{}", wire::shown(&shown)));
        self.is_open = true;
    }

    fn current(&self) -> String {
        let state = &self.state;
        let head = state
            .label
            .as_ref()
            .map_or_else(String::new, |label| format!("[{}/{}] {}: ", label.number, label.of, label.text()));
        if let Some(second) = state.second {
            let warmup = if second.is_warmup { " (warm-up)" } else { "" };
            let p95 = second.p95_ms.map_or_else(|| "-".to_owned(), number);
            return format!(
                "{head}{} TPS, p95 {p95} ms, {} errors{warmup}",
                number(second.tps),
                second.errors
            );
        }
        let progress = match state.progress {
            Some((done, total)) if total > 0 => format!(" {:.0} %", done as f64 / total as f64 * 100.0),
            _ => String::new(),
        };
        format!("{head}{}{progress}", state.doing)
    }
}

fn width() -> usize {
    if !std::io::stderr().is_terminal() {
        return 80;
    }
    ratatui::crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns))
}
