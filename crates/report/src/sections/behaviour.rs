//! What was looked at in the runs, and how the servers behaved: stalls and marks.

use std::collections::BTreeMap;

use store::{Finding, GateKind, Purpose};

use super::{Cell, Section, Table, heads};
use crate::model::{Point, Standing, StudyReport};
use crate::text::listed;

/// More reasons than this for not looking at a gate are not told one by one.
const REASONS_MAX: usize = 3;

/// Each gate over all runs: how often it held, tripped, and could not be looked at, and why.
pub(super) fn gates(study: &StudyReport) -> Option<Section> {
    #[derive(Default)]
    struct Row<'a> {
        kind: Option<GateKind>,
        counts: [usize; 3],
        reasons: Vec<&'a str>,
    }
    let mut rows: BTreeMap<&str, Row<'_>> = BTreeMap::new();
    let is_asked = |run: &&crate::RunView| matches!(run.standing, Standing::Counted | Standing::Invalid);
    let runs = study.runs.iter().filter(|run| run.head.start.purpose == Purpose::Measure).filter(is_asked);
    for gate in runs.filter_map(|run| run.end.as_ref()).flat_map(|end| &end.gates) {
        let row = rows.entry(&gate.name).or_default();
        row.kind = Some(gate.kind());
        match gate.finding {
            Finding::Held => row.counts[0] += 1,
            Finding::Tripped => row.counts[1] += 1,
            Finding::NotChecked => {
                row.counts[2] += 1;
                row.reasons.push(&gate.detail);
            }
        }
    }
    if rows.is_empty() {
        return None;
    }
    let mut rows: Vec<(&str, Row<'_>)> = rows.into_iter().collect();
    rows.sort_by_key(|(_, row)| row.kind);
    let rows = rows.into_iter().map(|(name, row)| {
        let about = match row.kind {
            Some(GateKind::Server) => "the server: counts",
            _ => "the measurement: excludes",
        };
        let mut told = crate::alarms::grouped(row.reasons.into_iter());
        let more = told.len().saturating_sub(REASONS_MAX);
        told.truncate(REASONS_MAX);
        if more > 0 {
            told.push(format!("and {more} more"));
        }
        let words = [name.replace('_', " "), about.to_owned(), told.join("; ")];
        let counts = ["held", "tripped", "not_checked"].into_iter().zip(row.counts);
        let counts = counts.map(|(name, count)| Cell::count(name, count));
        words.map(Cell::from).into_iter().chain(counts).collect()
    });
    Some(Section {
        id: "gates",
        title: "What was looked at",
        hint: "Checks of each run, by load level. A fault of the measurement excludes the level; how the server behaved is \
               the result, and counts. What could not be checked is neither good nor bad."
            .to_owned(),
        tables: vec![Table {
            id: "gates",
            heads: heads("Gate | About | Not checked because | held | tripped | not checked"),
            words: 3,
            rows: rows.collect(),
            ..Table::default()
        }],
        ..Section::default()
    })
}

/// Times without a commit in the runs that count, and what else their servers did.
pub(super) fn stalls(study: &StudyReport) -> Option<Section> {
    let is_known = |point: &Point| study.counted(point).any(|(_, step)| step.stalls.is_some());
    let is_marked = |point: &Point| !study.marks(point).is_empty();
    if !study.points.iter().any(|point| is_known(point) || is_marked(point)) {
        return None;
    }
    let rows: Vec<Vec<Cell>> = study.points.iter().filter_map(|point| stall_row(study, point)).collect();
    let unmeasured = study.points.iter().filter(|point| study.counted(point).next().is_some());
    let unmeasured: Vec<String> =
        unmeasured.filter(|point| !is_known(point)).map(|point| point.label.clone()).collect();
    let mut notes = Vec::new();
    if rows.is_empty() {
        notes.push("No run that counts had a second without a commit, and none is marked.".to_owned());
    }
    if !unmeasured.is_empty() {
        notes.push(format!("Not measured when these were recorded: {}.", listed(&unmeasured)));
    }
    Some(Section {
        id: "stalls",
        title: "Stalls and marks",
        hint: "Seconds in which nothing was committed while sessions waited, and the longest time from one commit to the \
               next; cells without any are left out. Marks tell how a server behaved and in how many of its runs; these \
               runs count like the others."
            .to_owned(),
        tables: std::iter::once(Table {
            id: "stalls",
            heads: heads("Cell | Marks | Sessions | Runs with such seconds | Seconds | Longest freeze s"),
            words: 2,
            rows,
            notes,
            ..Table::default()
        })
        .chain(meanwhile(study))
        .collect(),
        ..Section::default()
    })
}

/// Stalls of a report that are told one by one.
const MEANWHILE_MAX: usize = 12;

/// What servers said of themselves while they committed nothing (the facts `stalled/SESSIONS/SECOND` of their runs).
fn meanwhile(study: &StudyReport) -> Option<Table> {
    let mut rows = Vec::new();
    for point in &study.points {
        let prefix = format!("stalled/{}/", point.sessions);
        for (run, _) in study.counted(point) {
            for (name, said) in run.end.iter().flat_map(|end| &end.facts) {
                let Some(second) = name.strip_prefix(&prefix) else { continue };
                let texts = [point.label.clone(), run.id.clone(), said.clone(), second.to_owned()];
                rows.push(texts.map(Cell::from).to_vec());
            }
        }
    }
    let more = rows.len().saturating_sub(MEANWHILE_MAX);
    rows.truncate(MEANWHILE_MAX);
    (!rows.is_empty()).then(|| Table {
        id: "meanwhile",
        caption: "What the server said meanwhile".to_owned(),
        heads: heads("Cell | Run | Stall | From second"),
        words: 3,
        rows,
        notes: (more > 0)
            .then(|| format!("{more} more stand among the facts of their runs."))
            .into_iter()
            .collect(),
    })
}

fn stall_row(study: &StudyReport, point: &Point) -> Option<Vec<Cell>> {
    let stalls: Vec<store::Stalls> = study.counted(point).filter_map(|(_, step)| step.stalls).collect();
    let seconds: u32 = stalls.iter().map(|stall| stall.seconds).sum();
    let marks = study.marks_text(point);
    if seconds == 0 && marks.is_empty() {
        return None;
    }
    let with = stalls.iter().filter(|stall| stall.seconds > 0).count();
    let all = study.counted(point).count();
    let runs = vec![("with", with.into()), ("all", all.into())];
    Some(vec![
        point.label.clone().into(),
        if marks.is_empty() { Cell::dash() } else { marks.into() },
        Cell::count("sessions", point.sessions as usize),
        Cell::several("runs", format!("{with} of {all}"), runs),
        Cell::count("stalled_s", seconds as usize),
        Cell::number("longest_s", point.freeze_s),
    ])
}
