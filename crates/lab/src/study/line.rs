//! `[line]`: each run is a search for load lines.

use std::ops::Range;
use std::time::Duration;

use super::axes::choice;
use super::model::*;
use super::read::{At, Problems, Table};
use crate::checks::SESSIONS_MAX;
use crate::line::{self, Asked, Debt, Promise};

/// What a search decides by itself: the table and the key, and why the two exclude each other.
const EXCLUDED: [(&str, &str, &str); 13] = [
    (
        "axes",
        "sessions",
        "a search takes the sessions that its rates need; `sessions_max` in [line] bounds them",
    ),
    ("axes", "climb", "a search begins with a climb of its own; `sessions_max` in [line] bounds it"),
    ("load", "rate", "a search finds the rate"),
    ("load", "arrivals", "a search offers Poisson arrivals"),
    ("load", "think_time", "sessions of a search do not think: arrivals are scheduled"),
    ("load", "duration", "a search says how long it tries each rate; `budget` in [line] is for all of them"),
    ("load", "transactions", "a search goes by the clock; `budget` in [line] is for all of it"),
    ("load", "hot_locks", "a search has no load level of which the locks could be looked at"),
    ("load", "cache", "caches are warm after the first rates of a search"),
    ("quick", "sessions", "a search takes the sessions that its rates need"),
    ("quick", "climb", "a search begins with a climb of its own"),
    (
        "quick",
        "duration",
        "a search says how long it tries each rate; `line = { budget = \"1m\" }` makes it shorter",
    ),
    ("quick", "transactions", "a search goes by the clock; `line = { budget = \"1m\" }` makes it shorter"),
];

/// Keys that stand in a study's tables and that [line] excludes.
#[derive(Debug, Default)]
pub(super) struct Beside(Vec<(Range<usize>, &'static str, &'static str)>);

impl Beside {
    /// Looks for them in a table before it is read.
    pub(super) fn look(&mut self, name: &str, table: &Table<'_>) {
        let given = EXCLUDED.iter().filter(|(of, key, _)| *of == name && table.has(key));
        self.0.extend(given.map(|(_, key, why)| (table.key_span(key), *key, *why)));
    }

    pub(super) fn refuse(self, problems: &mut Problems) {
        for (span, key, why) in self.0 {
            let message = format!("`{key}` and [line] exclude each other");
            problems.add_help(&span, message, "with [line]", why);
        }
    }
}

/// Where the keys of `[line]` stand.
#[derive(Debug, Default)]
pub(super) struct LineSpans {
    budget: Range<usize>,
    promises: Range<usize>,
    pub(super) sessions_max: Range<usize>,
}

/// `[line]`.
pub(super) fn read_line(mut table: Table<'_>, problems: &mut Problems) -> (Option<Asked>, LineSpans) {
    let mut promises: Vec<Promise> = Vec::new();
    let example = "promises = [\"p99 < 20ms\"]";
    for member in table.need("promises", problems, example).map_or_else(Vec::new, |item| item.list(problems))
    {
        let Some(At { value, span }) = member.text(problems) else { continue };
        match Promise::read(&value) {
            Ok(read) if read.iter().any(|promise| promises.contains(promise)) => {
                problems.add(&span, format!("the promise `{value}` stands twice"), "the second time");
            }
            Ok(read) => promises.extend(read),
            Err(error) => problems.add(&span, error.to_string(), "not a promise"),
        }
    }
    let spans = LineSpans {
        budget: table.key_span("budget"),
        promises: table.key_span("promises"),
        sessions_max: table.key_span("sessions_max"),
    };
    let (budget, hold) = read_times(&mut table, problems);
    let sessions_max =
        table.get("sessions_max").and_then(|item| item.count_within(problems, 1, SESSIONS_MAX));
    let sessions_max = sessions_max.map_or(line::SESSIONS_MAX, |at| at.value);
    let debt = match choice(table.get("debt"), problems, "what becomes of debt", ["counted", "drained"]) {
        Some(word) if word == "drained" => Debt::Drained,
        _ => Debt::Counted,
    };
    table.finish(problems);
    let asked =
        (!promises.is_empty()).then(|| Asked { debt, ..Asked::new(promises, budget, hold, sessions_max) });
    (asked, spans)
}

fn read_times(table: &mut Table<'_>, problems: &mut Problems) -> (Option<Duration>, Option<Duration>) {
    let mut time = |key| table.get(key).and_then(|item| item.duration(problems)).map(|at| at.value);
    (time("budget"), time("hold"))
}

/// `line = { budget = "1m", hold = "10s" }` of [quick].
pub(super) fn read_quick_line(mut table: Table<'_>, problems: &mut Problems) -> QuickLine {
    let (budget, hold) = read_times(&mut table, problems);
    table.finish(problems);
    QuickLine { budget, hold }
}

/// Refuses searches that cannot be. `quick` is where `[quick]` stands, if the body is as it makes it.
pub(super) fn check_line(
    body: &Body,
    spans: &LineSpans,
    (quick, when): (Option<&Range<usize>>, &str),
    problems: &mut Problems,
) {
    let Some(asked) = &body.line else { return };
    let span = quick.unwrap_or(&spans.promises);
    if let Err(error) = asked.check() {
        let span = quick.unwrap_or(&spans.budget);
        problems.add(span, format!("{when}{error}"), "too short");
    }
    let refused =
        body.axes.workload.iter().find_map(|workload| asked.check_classes(&*workload.workload).err());
    if let Some(error) = refused {
        problems.add(span, format!("{when}{error}"), "with these promises");
    }
    if let Some(workload) = body.axes.workload.iter().find(|workload| workload.length.is_some()) {
        let message = format!("{when}`{}` has a length of its own, and [line] decides it", workload.label);
        problems.add(span, message, "with [line]");
    }
}
