//! What a reader must be warned of, grouped: twenty runs with the same trouble are one line with the range of its
//! figures, not twenty lines that bury the twenty-first.

use serde::Serialize;

use crate::durability::Finding;
use crate::model::{RunView, Standing, StudyReport};
use crate::order::distinct;

/// One kind of trouble.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Alarm {
    /// `invalid`, `failed`, `interrupted`, `warning`: how it is drawn.
    pub(crate) kind: &'static str,
    /// The same for people, with the gate's name where one tripped.
    pub(crate) word: String,
    /// What was found; figures that differ between the runs as ranges.
    pub(crate) text: String,
    /// What to do about it.
    pub(crate) remedy: String,
    pub(crate) runs: Vec<String>,
}

/// The gravest first, then in the order of the runs.
pub(crate) fn alarms(study: &StudyReport) -> Vec<Alarm> {
    let mut groups: Vec<Group> = Vec::new();
    for run in &study.runs {
        for (kind, word, text, remedy) in of_run(run) {
            let shape = shape(&text);
            let known = groups
                .iter_mut()
                .find(|group| (group.kind, &group.word, &group.shape) == (kind, &word, &shape));
            match known {
                Some(group) => {
                    group.add(&text);
                    if !group.runs.contains(&run.id) {
                        group.runs.push(run.id.clone());
                    }
                }
                None => {
                    let runs = vec![run.id.clone()];
                    groups.push(Group { runs, ..Group::new(kind, word, &text, remedy) });
                }
            }
        }
    }
    let order = ["failed", "invalid", "interrupted", "warning"];
    groups.sort_by_key(|group| order.iter().position(|kind| *kind == group.kind));
    let found = folded(groups.into_iter().map(Group::finish).collect());
    let mut alarms: Vec<Alarm> = contradicted(study).chain(found).collect();
    alarms.sort_by_key(|alarm| alarm.word != CONSISTENCY);
    alarms
}

/// More wordings of one gate than this are one alarm: on a noisy host each process that disturbed has one of its own.
const WORDINGS_MAX: usize = 2;

fn folded(alarms: Vec<Alarm>) -> Vec<Alarm> {
    let mut kept: Vec<Alarm> = Vec::new();
    for alarm in &alarms {
        let alike: Vec<&Alarm> =
            alarms.iter().filter(|one| (one.kind, &one.word) == (alarm.kind, &alarm.word)).collect();
        // What is called a warning and no more is of any kind.
        if alike.len() <= WORDINGS_MAX || alarm.word == alarm.kind {
            kept.push(alarm.clone());
            continue;
        }
        if kept.iter().any(|one| (one.kind, &one.word) == (alarm.kind, &alarm.word)) {
            continue;
        }
        let Some(most) = alike.iter().max_by_key(|one| one.runs.len()) else { continue };
        let mut runs = distinct(alike.iter().flat_map(|one| &one.runs).cloned());
        // `r2` before `r11`.
        runs.sort_by_key(|run| (run.len(), run.clone()));
        let text = format!("most often: {}", most.text);
        kept.push(Alarm { text, runs, ..(*most).clone() });
    }
    kept
}

/// Servers that lost in an audit what their settings promise to keep.
fn contradicted(study: &StudyReport) -> impl Iterator<Item = Alarm> {
    let rows = crate::durability::rows(study).into_iter();
    rows.filter(|row| row.finding == Finding::Contradicted).map(|row| Alarm {
        kind: "failed",
        word: "durability".to_owned(),
        text: format!("{}, class {}: {}", row.label, row.class, row.text),
        remedy: "it is not of the class that its settings say: do not rank it among servers of that class"
            .to_owned(),
        runs: row.runs,
    })
}

/// Tables that are not what the counted outcomes imply: told on top of everything.
pub(crate) const CONSISTENCY: &str = "consistency";

/// What a gate that tripped did to its run.
fn of_gate(gate: &store::Gate) -> (&'static str, String, String, String) {
    let name = gate.name.replace('_', " ");
    let (kind, word) = match gate.kind() {
        _ if gate.name == CONSISTENCY => ("failed", name),
        store::GateKind::Server => ("warning", format!("the server, {name}")),
        store::GateKind::Measurement if gate.is_allowed => ("warning", format!("in doubt, {name}")),
        store::GateKind::Measurement => ("invalid", format!("invalid, {name}")),
    };
    (kind, word, gate.text(), gate.remedy.clone())
}

/// Kind, word, text and remedy of everything about one run.
fn of_run(run: &RunView) -> Vec<(&'static str, String, String, String)> {
    let mut found = Vec::new();
    let gates = || run.end.iter().flat_map(|end| &end.gates);
    let faults: Vec<&store::Gate> = gates().filter(|gate| gate.excludes()).collect();
    let error = || run.head.error.clone().unwrap_or_else(|| "no reason recorded".to_owned());
    match run.standing {
        Standing::Invalid if faults.is_empty() => {
            found.push(("invalid", "invalid".to_owned(), error(), String::new()))
        }
        Standing::Failed => found.push(("failed", "failed".to_owned(), error(), String::new())),
        Standing::Interrupted => {
            found.push(("interrupted", "interrupted".to_owned(), error(), String::new()));
        }
        // Superseded runs are in the list of runs; what counts in their place speaks for itself.
        Standing::Superseded => return found,
        Standing::Invalid | Standing::Counted => {
            for gate in gates().filter(|gate| gate.is_tripped()) {
                found.push(of_gate(gate));
            }
        }
        Standing::Running | Standing::LockPass => {}
    }
    if let Some(end) = &run.end {
        for warning in &end.warnings {
            // A warning that repeats a gate's words is not said twice: the gate was told above.
            let is_told = matches!(run.standing, Standing::Invalid | Standing::Counted);
            if !is_told || !end.gates.iter().any(|gate| gate.is_tripped() && warning.contains(&gate.detail)) {
                found.push(("warning", "warning".to_owned(), warning.clone(), String::new()));
            }
        }
        // The gate has told them already.
        let is_told = faults.iter().any(|gate| gate.name == CONSISTENCY);
        for check in end.checks.iter().filter(|check| !check.is_ok && !is_told) {
            let text = format!("{}: expected {}, found {}", check.name, check.expected, check.found);
            found.push(("failed", CONSISTENCY.to_owned(), text, String::new()));
        }
    }
    found
}

struct Group {
    kind: &'static str,
    word: String,
    /// The text with a mark in the place of each figure.
    shape: String,
    remedy: String,
    /// Smallest and largest of each figure, as written.
    ranges: Vec<(String, String)>,
    runs: Vec<String>,
}

/// Stands for a figure; no text of a server or of ours has it.
const MARK: char = '\u{1}';

impl Group {
    fn new(kind: &'static str, word: String, text: &str, remedy: String) -> Group {
        let ranges = figures(text).into_iter().map(|figure| (figure.clone(), figure)).collect();
        Group { kind, word, shape: shape(text), remedy, ranges, runs: Vec::new() }
    }

    fn add(&mut self, text: &str) {
        let value = |figure: &String| figure.replace(',', "").parse::<f64>().unwrap_or(0.0);
        for ((low, high), figure) in self.ranges.iter_mut().zip(figures(text)) {
            if value(&figure) < value(low) {
                low.clone_from(&figure);
            }
            if value(&figure) > value(high) {
                *high = figure;
            }
        }
    }

    fn finish(self) -> Alarm {
        let mut ranges = self.ranges.into_iter();
        let mut text = String::new();
        for c in self.shape.chars() {
            match (c, if c == MARK { ranges.next() } else { None }) {
                (_, Some((low, high))) if low == high => text.push_str(&low),
                (_, Some((low, high))) => text.push_str(&format!("{low}–{high}")),
                (c, None) => text.push(c),
            }
        }
        Alarm { kind: self.kind, word: self.word, text, remedy: self.remedy, runs: self.runs }
    }
}

/// The pieces of a text: a figure (`18`, `1,234`, `0.5`) that stands by itself, or anything else. Digits within a word
/// (`sbtest1`, `10.11.19`) are part of that word.
fn pieces(text: &str) -> Vec<(&str, bool)> {
    text.split_inclusive([' ', '\n'])
        .flat_map(|word| {
            let bare = word.trim_end_matches([' ', '\n', '%', ';', ':', ',', '.', ')']);
            let start = bare.len() - bare.trim_start_matches(['(', '~']).len();
            let core = &bare[start..];
            let is_figure = core.starts_with(|c: char| c.is_ascii_digit())
                && core.chars().all(|c| c.is_ascii_digit() || c == '.' || c == ',')
                && core.matches('.').count() < 2;
            if is_figure {
                vec![(&word[..start], false), (core, true), (&word[bare.len()..], false)]
            } else {
                vec![(word, false)]
            }
        })
        .collect()
}

fn figures(text: &str) -> Vec<String> {
    pieces(text).into_iter().filter(|(_, is_figure)| *is_figure).map(|(piece, _)| piece.to_owned()).collect()
}

/// Texts that differ in their figures only as one, with the figures' ranges; the most frequent first.
pub(crate) fn grouped<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut groups: Vec<(Group, usize)> = Vec::new();
    for text in texts {
        let shape = shape(text);
        match groups.iter_mut().find(|(group, _)| group.shape == shape) {
            Some((group, count)) => {
                group.add(text);
                *count += 1;
            }
            None => groups.push((Group::new("", String::new(), text, String::new()), 1)),
        }
    }
    groups.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    groups.into_iter().map(|(group, _)| group.finish().text).collect()
}

fn shape(text: &str) -> String {
    let mark = MARK.to_string();
    pieces(text).into_iter().map(|(piece, is_figure)| if is_figure { mark.as_str() } else { piece }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_told_from_names() {
        let text = "mariadb@10.11.19: other processes used 52.5 % of sbtest1 (3 of 1,234), 7.";
        assert_eq!(figures(text), ["52.5", "3", "1,234", "7"]);
        assert_eq!(shape(text).matches(MARK).count(), 4);
        assert!(shape(text).contains("mariadb@10.11.19: other"));
    }

    #[test]
    fn many_wordings_of_one_gate_are_one_alarm() {
        let alarm = |word: &str, text: &str, runs: &[&str]| Alarm {
            kind: "warning",
            word: word.to_owned(),
            text: text.to_owned(),
            remedy: String::new(),
            runs: runs.iter().map(|run| (*run).to_owned()).collect(),
        };
        let noisy = |text: &str, runs: &[&str]| alarm("in doubt, noisy host", text, runs);
        let told = folded(vec![
            noisy("cargo", &["r1"]),
            alarm("warning", "a", &["r1"]),
            noisy("rustc", &["r2", "r3"]),
            noisy("bash", &["r3"]),
            alarm("warning", "b", &["r1"]),
            alarm("warning", "c", &["r1"]),
        ]);
        let texts: Vec<&str> = told.iter().map(|one| one.text.as_str()).collect();
        assert_eq!(texts, ["most often: rustc", "a", "b", "c"]);
        assert_eq!(told[0].runs, ["r1", "r2", "r3"]);
    }

    #[test]
    fn groups_span_their_figures() {
        let text = |used: &str| format!("other processes used {used} % of the machine");
        let texts = ["idle".to_owned(), text("9"), text("66.5"), text("18")];
        assert_eq!(
            grouped(texts.iter().map(String::as_str)),
            ["other processes used 9–66.5 % of the machine", "idle"]
        );
    }
}
