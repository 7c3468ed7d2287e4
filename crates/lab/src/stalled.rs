//! What a server's log and counters said while it committed nothing, for the results file.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use telemetry::Telemetry;
use telemetry::gates::three_digits;

/// How far a server's log had been written, each second. The time of a line is when it was there, which is the same for all
/// servers; how they write it down is not.
#[derive(Debug)]
pub(crate) struct LogMarks {
    file: PathBuf,
    /// Seconds since the run began, and bytes.
    marks: Vec<(f64, u64)>,
}

impl LogMarks {
    pub(crate) fn new(file: PathBuf) -> LogMarks {
        LogMarks { file, marks: Vec::new() }
    }

    /// `at_s`: seconds since the run began.
    pub(crate) fn mark(&mut self, at_s: f64) {
        if let Ok(about) = self.file.metadata() {
            self.marks.push((at_s, about.len()));
        }
    }

    /// What was written in this time, give or take a second: the last lines of it.
    fn between(&self, from_s: f64, to_s: f64) -> Vec<String> {
        let before =
            self.marks.iter().rev().find(|(at_s, _)| *at_s <= from_s).map_or(0, |(_, length)| *length);
        let after = self.marks.iter().find(|(at_s, _)| *at_s >= to_s).or(self.marks.last());
        let length = after.map_or(0, |(_, length)| length.saturating_sub(before)).min(LOG_BYTES_MAX);
        let read = || -> std::io::Result<Vec<u8>> {
            let mut file = File::open(&self.file)?;
            file.seek(SeekFrom::Start(before))?;
            let mut bytes = Vec::new();
            file.take(length).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let text = read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        let lines: Vec<String> = text.lines().filter(|line| !line.trim().is_empty()).map(plain).collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].to_vec()
    }
}

/// A line as it may be shown and kept.
fn plain(line: &str) -> String {
    let shown: String = line.trim().chars().filter(|c| !c.is_control()).take(LINE_CHARS_MAX).collect();
    wire::mask::prose(&shown)
}

const LOG_BYTES_MAX: u64 = 64 << 10;
const LINES_MAX: usize = 3;
const LINE_CHARS_MAX: usize = 200;
/// The longest of a level; more say nothing new.
const STALLS_MAX: usize = 3;
const COUNTERS_MAX: usize = 4;

/// A fact for each of the longest stalls of each level: `stalled/SESSIONS/SECOND`.
pub(crate) fn facts(
    seen: &Telemetry,
    steps: &[store::Step],
    log: Option<&LogMarks>,
) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for step in steps.iter().filter(|step| step.stalls.is_some_and(|stalls| stalls.seconds > 0)) {
        let level = (step.offset_s, step.offset_s + step.duration_s);
        for (first, seconds) in stalls(&step.seconds) {
            let from_s = step.offset_s + (first - 1) as f64;
            let told = told(seen, level, (from_s, from_s + f64::from(seconds)), log);
            facts.push((format!("stalled/{}/{first}", step.sessions), format!("for {seconds} s; {told}")));
        }
    }
    facts
}

fn told(seen: &Telemetry, level: (f64, f64), stall: (f64, f64), log: Option<&LogMarks>) -> String {
    let Some(log) = log else { return counters(seen, level, stall) };
    let lines = log.between(stall.0, stall.1);
    let lines = if lines.is_empty() { "nothing".to_owned() } else { lines.join(" | ") };
    format!("its log: {lines}; {}", counters(seen, level, stall))
}

/// The longest times without a commit: first second, and how many.
fn stalls(seconds: &[store::Second]) -> Vec<(i64, u32)> {
    let mut all: Vec<(i64, u32)> = Vec::new();
    for second in seconds.iter().filter(|second| second.second >= 1 && second.committed == 0) {
        match all.last_mut() {
            Some((first, seconds)) if *first + i64::from(*seconds) == second.second => *seconds += 1,
            _ => all.push((second.second, 1)),
        }
    }
    all.sort_by_key(|(_, seconds)| std::cmp::Reverse(*seconds));
    all.truncate(STALLS_MAX);
    all.sort_unstable();
    all
}

/// Counters that were higher than in any other second of the level: work that took the place of commits. What falls because
/// nothing is done explains nothing.
fn counters(seen: &Telemetry, level: (f64, f64), stall: (f64, f64)) -> String {
    let mut higher: Vec<(f64, String)> = Vec::new();
    let mut has_any = false;
    for track in seen.tracks.iter().filter(|track| matches!(track.source, "server" | "device" | "host")) {
        let inside = track.shown_between(stall.0, stall.1);
        let outside = [track.shown_between(level.0, stall.0), track.shown_between(stall.1, level.1)].concat();
        has_any |= track.source == "server" && !inside.is_empty();
        let most = |values: &[f64]| values.iter().copied().reduce(f64::max);
        let (Some(during), Some(else_most)) = (most(&inside), most(&outside)) else { continue };
        if during <= 2.0 * else_most.max(0.0) || outside.len() < 3 {
            continue;
        }
        let unit = track.shown_unit();
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let name = track.name.replace('_', " ");
        let text =
            format!("{name} {}{unit} (else at most {})", three_digits(during), three_digits(else_most));
        higher.push((during / else_most.max(f64::MIN_POSITIVE), text));
    }
    higher.sort_by(|a, b| b.0.total_cmp(&a.0));
    higher.truncate(COUNTERS_MAX);
    let texts: Vec<String> = higher.into_iter().map(|(_, text)| text).collect();
    match (texts.is_empty(), has_any) {
        (false, _) => format!("higher than in all other seconds: {}", texts.join(", ")),
        (true, true) => "none of its counters stood out".to_owned(),
        (true, false) => "its counters could not be read meanwhile".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use telemetry::{Kind, Track};

    use super::*;

    fn second(second: i64, committed: u64) -> store::Second {
        let (failed, statements, backlog, response) = Default::default();
        store::Second { second, duration_s: 1.0, committed, failed, statements, backlog, response }
    }

    fn gauge(name: &'static str, value: impl Fn(f64) -> f64) -> Track {
        let points = (0..=14).map(f64::from).map(|t| (t, value(t))).collect();
        Track { source: "server", name, instance: String::new(), unit: "sessions", kind: Kind::Gauge, points }
    }

    #[test]
    fn the_longest_stalls_of_a_level_are_told_in_order() {
        let committed = [0, 0, 5, 0, 7, 0, 0, 0, 9, 0, 4, 0, 0];
        let seconds: Vec<store::Second> =
            committed.iter().zip(-1..).map(|(committed, at)| second(at, *committed)).collect();
        assert_eq!(stalls(&seconds), [(2, 1), (4, 3), (10, 2)]);
        assert_eq!(stalls(&seconds[2..3]), []);
    }

    /// Ten seconds from 3 s on, of which the fifth and sixth have no commit.
    const LEVEL: (f64, f64) = (3.0, 13.0);
    const STALL: (f64, f64) = (7.0, 9.0);

    #[test]
    fn a_stall_has_what_its_server_said_meanwhile() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut log = LogMarks::new(file.path().to_owned());
        for second in 0..14 {
            let line = if second == 8 { "checkpoint \u{1b}[31mstarting" } else { "" };
            writeln!(file.as_file(), "{line}").unwrap();
            log.mark(f64::from(second));
        }
        let waiting = gauge("row_lock_waiting", |t| if (7.5..=9.5).contains(&t) { 7.0 } else { 1.0 });
        let seen =
            Telemetry { tracks: vec![waiting, gauge("sessions_connected", |_| 8.0)], ..Telemetry::default() };
        assert_eq!(
            told(&seen, LEVEL, STALL, Some(&log)),
            "its log: checkpoint [31mstarting; higher than in all other seconds: row lock waiting 7.00 sessions (else at \
             most 1.00)"
        );
        assert!(
            told(&seen, LEVEL, (4.0, 5.0), Some(&log)).starts_with("its log: nothing; none of its counters")
        );
    }

    #[test]
    fn a_server_that_does_not_answer_says_nothing() {
        let none = Telemetry::default();
        assert_eq!(told(&none, LEVEL, STALL, None), "its counters could not be read meanwhile");
    }
}
