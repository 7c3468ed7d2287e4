//! Series over builds or time: every recorded run of a cell, from any number of results files, and where its level
//! changed.
//!
//! A point is what one recorded study says of a cell on one build. A series never crosses a boundary: another machine,
//! or a study that measures something else (anything in its file but its servers, words, comparisons and number of
//! blocks), is another series.

mod exports;
mod page;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stats::{ChangePoint, ChangeRules};
use store::{ChangeDecision, ChangeState, Key, Store, StudyId, StudyRecord};

use crate::error::Error;
use crate::load::Selection;
use crate::model::Report;
use crate::text::{time_text, value_text};

pub use crate::text::time_text as time;
pub(crate) use exports::xml;
pub use exports::{bencher, github_action, junit, otava};
pub use page::{charts, html};

/// What a series can be of.
pub const METRICS: [&str; 10] =
    ["tps", "qps", "tps_max", "tps_min", "mean", "p50", "p90", "p95", "p99", "p999"];

/// Which series.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Only of this study.
    pub study: Option<String>,
    /// `tps`, `p95` ...; one series for each cell and metric.
    pub metrics: Vec<String>,
    /// Only runs from here on, in milliseconds since 1970.
    pub since_ms: Option<i64>,
}

/// All series that were asked for.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub series: Vec<HistorySeries>,
}

/// One metric of a cell over builds or time.
#[derive(Debug, Clone)]
pub struct HistorySeries {
    /// Its identity: the same for the same cell, machine and way of measuring, in any results file.
    pub id: String,
    /// What makes it this cell; `server` is a flavour where builds follow each other.
    pub key: Key,
    pub metric: String,
    /// Oldest first.
    pub points: Vec<HistoryPoint>,
    /// In order of their place.
    pub changes: Vec<HistoryChange>,
}

/// What one recorded study says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryPoint {
    /// `flavor@version+label`, or the server's name where it was attached.
    pub build: String,
    /// The build's identity; empty where it was attached.
    pub identity: String,
    /// When its first run began, in milliseconds since 1970.
    pub at_ms: i64,
    /// Median over the runs that count.
    pub value: f64,
    /// Ends of its interval, as the report has it.
    pub low: f64,
    pub high: f64,
    /// Names of its runs in the report of that file.
    pub runs: Vec<String>,
    /// The results file.
    pub file: String,
    /// The machine.
    pub host: String,
}

/// A change of level.
#[derive(Debug, Clone)]
pub struct HistoryChange {
    /// What `history accept` and `ignore` call it.
    pub id: String,
    pub change: ChangePoint,
    /// `new`, `accepted`, `ignored` or `fixed` (a later change took it back).
    pub state: &'static str,
    /// Why it was accepted or ignored.
    pub why: Option<String>,
}

impl HistorySeries {
    /// Whether more of the metric is better.
    pub fn is_more_better(&self) -> bool {
        crate::figures::quantile_of(&self.metric).is_none()
            && !["mean", "max"].contains(&self.metric.as_str())
    }

    /// Whether a change made it worse.
    pub fn is_worse(&self, change: &HistoryChange) -> bool {
        (change.change.after < change.change.before) == self.is_more_better()
    }

    /// The build before a change, and the first with it.
    pub fn builds_around<'a>(&'a self, change: &HistoryChange) -> (&'a HistoryPoint, &'a HistoryPoint) {
        let first = change.change.index;
        (&self.points[first - 1], &self.points[first])
    }

    /// The cell in words: the values of its key.
    pub fn label(&self) -> String {
        label_of(&self.key)
    }
}

fn label_of(key: &Key) -> String {
    let first = ["study", "server", "workload", "sessions"];
    let named = |name: &str, value: &Value| match name {
        "study" | "server" | "workload" => value_text(value),
        name => format!("{name} {}", value_text(value)),
    };
    let head = first.iter().filter_map(|name| Some(named(name, key.get(*name)?)));
    let rest = key.iter().filter(|(name, _)| !first.contains(&name.as_str()));
    head.chain(rest.map(|(name, value)| named(name, value))).collect::<Vec<_>>().join(" · ")
}

/// One point with what decides where it belongs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointOfSeries {
    pub key: Key,
    /// Machine and shape of the study, which no series crosses.
    pub boundary: String,
    /// File and record: points of one are of one time.
    pub record: (usize, i64),
    pub metric: String,
    pub point: HistoryPoint,
}

impl PointOfSeries {
    /// Its key with the flavour in the place of the build: what builds that follow each other have in common.
    fn cell(&self) -> Key {
        let mut cell = self.key.clone();
        let server = server_of(&cell);
        let flavor = server.split('@').next().unwrap_or_default().to_owned();
        cell.insert("server".to_owned(), Value::from(flavor));
        cell
    }

    /// What it belongs to, as a hash: points with the same one are a series, or several where each build is one.
    pub fn group(&self) -> String {
        hash(&json!([self.cell(), self.boundary, self.metric]).to_string())
    }

    /// That in words: the values of its key.
    pub fn group_label(&self) -> String {
        label_of(&self.cell())
    }
}

impl History {
    /// Reads results files, results directories, or bundles.
    pub fn load(paths: &[PathBuf], query: &HistoryQuery) -> Result<History, Error> {
        let mut found = Vec::new();
        let mut decisions = Vec::new();
        let mut names = BTreeSet::new();
        for (file, path) in paths.iter().enumerate() {
            let store = crate::load::open(path)?;
            decisions.extend(store.change_decisions()?);
            for record in store.studies()? {
                names.insert(record.study.name.clone());
                if query.study.as_ref().is_none_or(|name| *name == record.study.name) {
                    found.extend(points_of(&store, file, &record, query)?);
                }
            }
        }
        if let Some(wanted) = query.study.as_ref().filter(|name| !names.contains(*name)) {
            return Err(Error::NoStudy { wanted: wanted.clone(), known: names.into_iter().collect() });
        }
        decisions.sort_by_key(|decision| decision.decided_at_ms);
        Ok(History::of_points(found, &decisions))
    }

    /// Of points that were gathered before, in any order.
    pub fn of_points(points: Vec<PointOfSeries>, decisions: &[ChangeDecision]) -> History {
        let mut series = in_series(points);
        find_changes(&mut series, decisions);
        History { series }
    }

    /// A change by its name, with its series.
    pub fn change(&self, id: &str) -> Option<(&HistorySeries, &HistoryChange)> {
        self.series
            .iter()
            .find_map(|series| Some((series, series.changes.iter().find(|change| change.id == id)?)))
    }

    /// As the command line's contract has it.
    pub fn json(&self) -> Value {
        let series: Vec<Value> = self
            .series
            .iter()
            .map(|series| {
                let points = series.points.iter().map(|point| {
                    json!({"build": point.build, "identity": point.identity, "at": time_text(point.at_ms),
                           "value": point.value, "low": point.low, "high": point.high, "runs": point.runs,
                           "results": point.file, "host": point.host})
                });
                let changes = series.changes.iter().map(|found| {
                    let change = &found.change;
                    let (good, bad) = series.builds_around(found);
                    json!({"id": found.id, "index": change.index, "before": change.before, "after": change.after,
                           "ratio": change.ratio, "low": change.low, "high": change.high, "p": change.p_adjusted,
                           "state": found.state, "why": found.why, "last_before": good.build,
                           "first_after": bad.build, "is_worse": series.is_worse(found)})
                });
                json!({"id": series.id, "key": series.key, "metric": series.metric,
                       "points": points.collect::<Vec<_>>(), "changes": changes.collect::<Vec<_>>()})
            })
            .collect();
        json!({"schema": crate::bench::SCHEMA, "series": series})
    }
}

/// Which series of those that somebody decided something of have points of this record.
pub(crate) fn decided_series_of(store: &Store, record: StudyId) -> Result<BTreeSet<String>, Error> {
    let decided: BTreeSet<String> =
        store.change_decisions()?.into_iter().map(|decision| decision.series).collect();
    if decided.is_empty() {
        return Ok(decided);
    }
    let records = store.studies()?;
    let name = records.iter().find(|known| known.id == record).map(|known| &known.study.name);
    let query = HistoryQuery {
        metrics: METRICS.iter().map(|metric| (*metric).to_owned()).collect(),
        ..HistoryQuery::default()
    };
    let mut found = Vec::new();
    for known in records.iter().filter(|known| Some(&known.study.name) == name) {
        found.extend(points_of(store, 0, known, &query)?);
    }
    let runs: BTreeSet<String> =
        store.run_heads(record)?.into_iter().map(|head| format!("r{}", head.id.0)).collect();
    let is_of_record = |series: &HistorySeries| {
        series.points.iter().any(|point| point.runs.iter().any(|run| runs.contains(run)))
    };
    let all = in_series(found).into_iter().filter(is_of_record).map(|series| series.id);
    Ok(all.filter(|id| decided.contains(id)).collect())
}

/// The points of one recorded study.
pub(crate) fn points_of(
    store: &Store,
    file: usize,
    record: &StudyRecord,
    query: &HistoryQuery,
) -> Result<Vec<PointOfSeries>, Error> {
    let report = Report::of_stores(&[store], &Selection::Records(vec![record.id]))?;
    let mut found = Vec::new();
    for study in &report.studies {
        for point in &study.points {
            let Some((first, _)) = study.counted(point).next() else { continue };
            let host = &report.hosts[first.host];
            let at_ms = first.head.start.started_at_ms;
            if query.since_ms.is_some_and(|since| at_ms < since) {
                continue;
            }
            let mut key = point.key.clone();
            if record.study.is_quick {
                key.insert("quick".to_owned(), Value::from(true));
            }
            let boundary = format!("{}\n{}", host.host.fingerprint, shape(&record.study.file_text));
            for metric in &query.metrics {
                let Some(of_metric) = study.estimate(point, metric) else { continue };
                let build = first.build.as_ref();
                found.push(PointOfSeries {
                    key: key.clone(),
                    boundary: boundary.clone(),
                    record: (file, record.id.0),
                    metric: metric.clone(),
                    point: HistoryPoint {
                        build: build.map_or_else(|| server_of(&key), store::Build::name),
                        identity: build.map(|build| build.identity.clone()).unwrap_or_default(),
                        at_ms,
                        value: of_metric.median,
                        low: of_metric.low,
                        high: of_metric.high,
                        runs: study.counted(point).map(|(run, _)| run.id.clone()).collect(),
                        file: store.path().display().to_string(),
                        host: host.label.clone(),
                    },
                });
            }
        }
    }
    Ok(found)
}

fn server_of(key: &Key) -> String {
    key.get("server").map(value_text).unwrap_or_default()
}

/// What a study measures, as a hash: its file without its servers, words, author, price, comparisons and number of blocks.
pub(crate) fn shape(file_text: &str) -> String {
    let Ok(mut table) = file_text.parse::<toml::Table>() else { return hash(file_text) };
    let beside =
        ["title", "question", "author", "compare", "report", "blocks", "plan", "quick", "refs", "server"];
    for name in beside {
        table.remove(name);
    }
    if let Some(machine) = table.get_mut("machine").and_then(toml::Value::as_table_mut) {
        machine.remove("price");
        if machine.is_empty() {
            table.remove("machine");
        }
    }
    if let Some(axes) = table.get_mut("axes").and_then(toml::Value::as_table_mut) {
        axes.remove("server");
        axes.remove("refs");
    }
    hash(&table.to_string())
}

pub(crate) fn hash(text: &str) -> String {
    Sha256::digest(text).iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Points of one cell are one series over builds; where a study has several builds and measures them again and again,
/// each build is a series of its own over time.
fn in_series(found: Vec<PointOfSeries>) -> Vec<HistorySeries> {
    let mut cells: BTreeMap<(String, String, String), Vec<PointOfSeries>> = BTreeMap::new();
    for point in found {
        let name = (json!(point.cell()).to_string(), point.boundary.clone(), point.metric.clone());
        cells.entry(name).or_default().push(point);
    }
    let mut all = Vec::new();
    for ((cell, boundary, metric), found) in cells {
        let mut builds: BTreeMap<&str, BTreeSet<(usize, i64)>> = BTreeMap::new();
        let mut records: BTreeMap<(usize, i64), usize> = BTreeMap::new();
        for point in &found {
            builds.entry(&point.point.build).or_default().insert(point.record);
            *records.entry(point.record).or_default() += 1;
        }
        let repeats = builds.values().any(|records| records.len() > 1);
        let is_split = repeats && records.values().any(|points| *points > 1);
        let mut groups: BTreeMap<String, Vec<PointOfSeries>> = BTreeMap::new();
        for point in found {
            let group = if is_split { server_of(&point.key) } else { String::new() };
            groups.entry(group).or_default().push(point);
        }
        for (server, mut group) in groups {
            // Builds of one study stand in the order of its file, studies in that of time.
            group.sort_by_key(|point| point.record);
            let mut ordered: BTreeMap<i64, Vec<PointOfSeries>> = BTreeMap::new();
            let mut firsts: BTreeMap<(usize, i64), i64> = BTreeMap::new();
            for point in &group {
                let first = firsts.entry(point.record).or_insert(i64::MAX);
                *first = point.point.at_ms.min(*first);
            }
            for point in group {
                ordered.entry(firsts[&point.record]).or_default().push(point);
            }
            let mut key: Key = serde_json::from_str(&cell).unwrap_or_default();
            if is_split {
                key.insert("server".to_owned(), Value::from(server.clone()));
            }
            all.push(HistorySeries {
                id: hash(&format!("{cell}\n{boundary}\n{metric}\n{server}")),
                key,
                metric: metric.clone(),
                points: ordered.into_values().flatten().map(|point| point.point).collect(),
                changes: vec![],
            });
        }
    }
    all
}

/// A decision holds for the change within so many points of the one that it was made for: more points move a place.
const PLACES: usize = 3;

fn find_changes(series: &mut [HistorySeries], decisions: &[ChangeDecision]) {
    let values: Vec<Vec<f64>> =
        series.iter().map(|series| series.points.iter().map(|point| point.value).collect()).collect();
    let slices: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
    let found = stats::change_points_of_many(&slices, &ChangeRules::default());
    for (series, changes) in series.iter_mut().zip(found) {
        let all = changes.iter().enumerate().map(|(at, change)| {
            let place_of = |at_ms: i64| series.points.iter().position(|point| point.at_ms == at_ms);
            let decided = decisions.iter().rev().find(|decision| {
                decision.series == series.id
                    && place_of(decision.at_ms).is_some_and(|at| at.abs_diff(change.index) <= PLACES)
            });
            let step = change.after - change.before;
            let is_taken_back =
                changes[at + 1..].iter().any(|later| (later.after - change.before).abs() < step.abs() / 2.0);
            let state = match decided {
                Some(decision) if decision.state == ChangeState::Ignored => "ignored",
                _ if is_taken_back => "fixed",
                Some(_) => "accepted",
                None => "new",
            };
            let first = series.points[change.index].at_ms;
            HistoryChange {
                id: hash(&format!("{} {first}", series.id))[..8].to_owned(),
                change: *change,
                state,
                why: decided.map(|decision| decision.why.clone()),
            }
        });
        series.changes = all.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_measured_on_what_and_at_which_price_is_no_part_of_the_question() {
        let study = "title = \"t\"\n[axes]\nserver = \"mariadb\"\nworkload = \"tpcb\"\n";
        let with = |more: &str| shape(&format!("{study}{more}"));
        assert_eq!(with("[author]\nname = \"Ada\"\n[machine]\nprice = \"1 USD/h\"\n"), with(""));
        assert_ne!(with("[machine]\nidle = \"as-is\"\n"), with(""));
    }
}
