//! Sections that a study gets beside the common ones: by its axes, or because its `[report]` table asks for them. A
//! section is tables and charts of plain data.

mod again;
mod behaviour;
mod cost;
mod interventions;
mod levels;
mod lines;
mod ranking;
mod replication;
mod scaling;
mod stability;
mod storage;
mod table;
mod versions;

use serde_json::{Map, Value, json};
use store::Key;

use crate::charts::{Ladder, Spot};
use crate::load::label;
use crate::model::{Point, StudyReport};
use crate::order::{distinct, grouped};
use crate::wishes::Wishes;

use table::heads;
pub(crate) use table::{Cell, Table};

/// A section of the report.
#[derive(Debug, Clone, Default)]
pub(crate) struct Section {
    /// Its name in links and in [`Ladder::metric`] of its charts.
    pub(crate) id: &'static str,
    pub(crate) title: &'static str,
    /// What it shows and how to read it.
    pub(crate) hint: String,
    pub(crate) charts: Vec<Ladder>,
    /// Pictures that need no script, each with its caption.
    pub(crate) drawings: Vec<(String, String)>,
    pub(crate) tables: Vec<Table>,
}

/// Whether the study's axes call for a section.
type Calls = fn(&StudyReport) -> bool;
/// How it is made.
type Make = fn(&StudyReport, &Wishes) -> Option<Section>;

/// Name, whether the study's axes call for it, and how it is made.
const ALL: [(&str, Calls, Make); 6] = [
    ("scaling", |study| varies(study, "cpus"), scaling::section),
    ("versions", |_| false, versions::section),
    ("cost", |study| compares(study, "settings"), cost::section),
    ("levels", |study| has_ladder(study) && varies(study, "cpus"), levels::section),
    ("stability", |study| study.points.iter().any(|point| point.is_climb), stability::section),
    ("storage", |study| varies(study, "storage"), storage::section),
];

/// The sections of a study: those that it asks for in its own order, those that its axes call for, and what was looked
/// at in every run.
pub(crate) fn sections(study: &StudyReport) -> &[Section] {
    study.sections.get_or_init(|| made(study))
}

fn made(study: &StudyReport) -> Vec<Section> {
    let wishes = wishes(study);
    let wish = |name: &str| wishes.sections.iter().position(|wish| wish == name);
    let mut all: Vec<_> =
        ALL.iter().filter(|(name, calls, _)| wish(name).is_some() || calls(study)).collect();
    all.sort_by_key(|(name, _, _)| wish(name).unwrap_or(usize::MAX));
    again::section(study)
        .into_iter()
        .chain(lines::section(study))
        .chain(ranking::section(study))
        .chain(all.into_iter().filter_map(|(_, _, make)| make(study, &wishes)))
        .chain(interventions::section(study))
        .chain(replication::section(study))
        .chain([behaviour::stalls(study), behaviour::gates(study)].into_iter().flatten())
        .filter(|section| {
            !section.charts.is_empty() || !section.drawings.is_empty() || !section.tables.is_empty()
        })
        .collect()
}

/// The `[report]` table of a study.
pub(crate) fn wishes(study: &StudyReport) -> Wishes {
    study.newest().map(|view| Wishes::of(&view.record.study.file_text)).unwrap_or_default()
}

/// The figures that the study's sections tell, for JSON: by section, by table. Those of lines, rankings and claims stand
/// elsewhere in it.
pub(crate) fn json_line(study: &StudyReport) -> Value {
    figures_of(study, false)
}

/// With those that bundles were sealed with and that are defined otherwise since.
pub(crate) fn earlier_json_line(study: &StudyReport) -> Value {
    figures_of(study, true)
}

fn figures_of(study: &StudyReport, with_earlier: bool) -> Value {
    let figures = |section: &Section| (section.id.to_owned(), table::json_of(&section.tables, with_earlier));
    let all: Map<String, Value> = sections(study)
        .iter()
        .map(figures)
        .filter(|(_, tables)| !tables.is_empty())
        .map(|(id, tables)| (id, Value::Object(tables)))
        .collect();
    json!({"study": study.name, "sections": all})
}

/// For the page's template; `study` is the study's place in the report.
pub(crate) fn values(report: &StudyReport, study: usize) -> Vec<Value> {
    sections(report)
        .iter()
        .map(|section| {
            let tables = section.tables.iter().map(|table| {
                let row = |row: &Vec<Cell>| row.iter().map(|cell| json!(cell.text)).collect::<Value>();
                json!({"caption": table.caption, "heads": table.heads, "rows": table.rows.iter().map(row).collect::<Value>(),
                       "words": table.words, "notes": table.notes})
            });
            json!({"id": section.id, "title": section.title, "hint": section.hint, "study": study,
                   "has_charts": !section.charts.is_empty(), "tables": tables.collect::<Value>(),
                   "drawings": section.drawings.iter().map(|(caption, svg)| json!([caption, svg])).collect::<Vec<_>>()})
        })
        .collect()
}

fn varies(study: &StudyReport, axis: &str) -> bool {
    study.varying.iter().any(|name| name == axis)
}

fn has_ladder(study: &StudyReport) -> bool {
    varies(study, "sessions")
}

fn compares(study: &StudyReport, axis: &str) -> bool {
    study.newest().is_some_and(|view| view.record.study.comparisons.iter().any(|c| c.axis == axis))
}

/// Values of an axis in the order of the study file, as far as there are points of them.
fn values_of(study: &StudyReport, axis: &str) -> Vec<Value> {
    let mut values = distinct(study.points.iter().filter_map(|point| point.identity.get(axis)).cloned());
    let place = |value: &Value| {
        let axis = study.axes.iter().find(|known| known.name == axis);
        axis.and_then(|axis| axis.values.iter().position(|known| known == value)).unwrap_or(usize::MAX)
    };
    values.sort_by_key(place);
    values
}

/// Points by all that tells them apart but for these axes, in order.
fn groups<'a>(study: &'a StudyReport, without: &[&str]) -> Vec<(Key, Vec<&'a Point>)> {
    grouped(study.points.iter().map(|point| {
        let mut key = point.identity.clone();
        key.retain(|name, _| !without.contains(&name.as_str()));
        (key, point)
    }))
}

/// The varying axes' values of a key, without these.
fn name(study: &StudyReport, key: &Key, without: &[&str]) -> String {
    label(key, &study.varying, without)
}

/// One ratio of two points: other over base, with its interval where there are repeats.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ratio {
    value: f64,
    interval: Option<(f64, f64)>,
    n: usize,
}

impl Ratio {
    /// As a change in percent, with its sign.
    fn change(&self) -> String {
        let signed = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
        let interval = self
            .interval
            .map_or_else(String::new, |(low, high)| format!(" ({} to {})", signed(low), signed(high)));
        format!("{} %{interval}", signed(self.value))
    }

    /// The change in percent; as a figure it is the ratio itself.
    fn cell(&self, name: &str) -> Cell {
        let mut figures = vec![("ratio", self.value.into()), ("blocks", self.n.into())];
        if let Some((low, high)) = self.interval {
            figures.extend([("low", low.into()), ("high", high.into())]);
        }
        Cell::several(name, self.change(), figures)
    }
}

/// Other over base by blocks that have both; without pairs, of the medians.
fn ratio(study: &StudyReport, base: &Point, other: &Point, metric: &str) -> Option<Ratio> {
    ratio_of(study, study.samples(base, metric), study.samples(other, metric))
}

/// The same of values that are no metric's.
fn ratio_of(study: &StudyReport, base: Vec<stats::Sample>, other: Vec<stats::Sample>) -> Option<Ratio> {
    let question = stats::Question { base, other, better: stats::Better::Higher };
    let rules = stats::Rules { blocks_min: 2, ..stats::Rules::default() };
    let answer = stats::compare_on(&[question], &study.nodes(), &rules).remove(0);
    // Two pairs leave one degree of freedom: an interval that says nothing.
    let interval = answer.low.zip(answer.high).filter(|_| answer.n >= 3);
    Some(Ratio { value: answer.ratio?, interval, n: answer.n })
}

fn dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// A point of a chart.
fn drawn(point: &Point) -> Option<Spot> {
    let tps = point.tps?;
    Some((tps.median, tps.low, tps.high, tps.n, point.id.clone()))
}
