//! What a collection of bundles lists of one: enough for pages, searches and comparisons, without opening it again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::bundle::{Author, LeftOut};
use store::{ChangeDecision, Key};

use super::claims::{identity, key};
use super::marks::{RunMark, marks};
use super::{Opened, study_of};
use crate::error::Error;
use crate::estimate::Estimate;
use crate::history::{HistoryQuery, PointOfSeries, points_of, shape};
use crate::load::Selection;
use crate::model::{Report, StudyReport, VerdictView};
use crate::text::{metric_name, value_text};

/// A bundle as it is listed. Hubs keep it: what later versions add has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Listing {
    pub study: String,
    pub title: String,
    pub question: String,
    pub answer: Vec<String>,
    pub author: Author,
    /// Fingerprint of the key that signed it.
    pub signer: Option<String>,
    /// Version that sealed it.
    pub plimsoll: String,
    /// Two bundles with the same one measured the same, on whatever servers.
    pub shape: String,
    /// When it was planned, in milliseconds since 1970.
    pub measured_at_ms: i64,
    pub is_quick: bool,
    /// Runs whose figures count, and all of them.
    pub runs: (usize, usize),
    pub left_out: Vec<LeftOut>,
    pub hosts: Vec<ListedHost>,
    pub cells: Vec<ListedCell>,
    pub claims: Vec<ListedClaim>,
    /// Durability audits of the builds that ran, as the report's JSON has them.
    pub audits: Vec<Value>,
    /// Of histories.
    pub points: Vec<PointOfSeries>,
    /// What was decided of changes in histories, where it was measured.
    #[serde(default)]
    pub decisions: Vec<ChangeDecision>,
    /// Which runs it holds.
    #[serde(default)]
    pub marks: Vec<RunMark>,
}

/// A machine that measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedHost {
    pub fingerprint: String,
    pub name: String,
    pub cpu_model: String,
    pub cpus: u32,
    pub memory_bytes: u64,
    pub kernel: String,
    pub os: String,
    pub arch: String,
    pub facts: BTreeMap<String, String>,
    pub calibrations: Vec<ListedCalibration>,
}

/// What the machine was found to tell of one server measured against itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedCalibration {
    pub server: String,
    pub workload: String,
    pub sessions: u32,
    pub lives: usize,
    /// Standard deviation of a life's ratio of two equal servers, as a share; `None` below two lives.
    pub spread: Option<f64>,
    pub wakeup_p99_us: Option<f64>,
}

/// A cell at one load level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedCell {
    /// Axes, and what is known besides.
    pub key: Key,
    pub server: String,
    pub workload: String,
    pub sessions: u32,
    /// Fingerprint of the machine.
    pub host: String,
    pub durability: String,
    pub engine: String,
    pub tps: Option<Estimate>,
    pub p95_ms: Option<Estimate>,
    pub p99_ms: Option<Estimate>,
    /// Settings that the study asked for.
    pub settings_asked: BTreeMap<String, String>,
}

/// A published comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedClaim {
    /// The same for the same question about the same study, on whatever machine.
    pub id: String,
    pub metric: String,
    /// `throughput of b against a, 8 sessions`.
    pub text: String,
    pub base: Key,
    pub other: Key,
    pub verdict: String,
    pub ratio: Option<f64>,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub margin: f64,
    pub is_primary: bool,
    /// Fingerprint of the machine.
    pub host: String,
}

/// Metrics of which histories are kept.
const OF_HISTORY: [&str; 3] = ["tps", "p95", "p99"];

/// What is listed of a bundle, with its report.
///
/// # Errors
/// Its results cannot be read.
pub fn listing(opened: &Opened) -> Result<(Listing, Report), Error> {
    let stored = study_of(&opened.results)?;
    let record = opened.results.studies()?.remove(0);
    let report = Report::of_stores(&[&opened.results], &Selection::Latest)?;
    let study = &report.studies[0];
    let shape = shape(&stored.file_text);
    let counted = study.runs.iter().filter(|run| run.standing == crate::Standing::Counted).count();
    let query = HistoryQuery { metrics: OF_HISTORY.map(str::to_owned).to_vec(), ..HistoryQuery::default() };
    let listing = Listing {
        study: stored.name.clone(),
        title: stored.title.clone(),
        question: stored.question.clone(),
        answer: study.answer.iter().map(|sentence| sentence.text.clone()).collect(),
        author: opened.manifest.author.clone(),
        signer: opened.signer.clone(),
        plimsoll: opened.manifest.plimsoll.clone(),
        measured_at_ms: stored.created_at_ms,
        is_quick: stored.is_quick,
        runs: (counted, study.runs.len()),
        left_out: opened.manifest.left_out.clone(),
        hosts: hosts(&report, opened)?,
        cells: cells(&report, study),
        claims: study.verdicts.iter().map(|view| claim(&report, study, view, &shape)).collect(),
        audits: crate::durability::audits(study),
        points: points_of(&opened.results, 0, &record, &query)?,
        decisions: opened.results.change_decisions()?,
        marks: marks(&opened.results)?,
        shape,
    };
    Ok((listing, report))
}

fn hosts(report: &Report, opened: &Opened) -> Result<Vec<ListedHost>, Error> {
    let calibrations = opened.calibrations().map_err(super::refused)?;
    let of = |fingerprint: &str| {
        let all = calibrations.get(fingerprint).map_or(&[][..], Vec::as_slice);
        all.iter().map(calibration).collect()
    };
    let each = report.hosts.iter().map(|view| {
        let host = view.host.clone();
        ListedHost {
            calibrations: of(&host.fingerprint),
            fingerprint: host.fingerprint,
            name: host.name,
            cpu_model: host.cpu_model,
            cpus: host.cpus,
            memory_bytes: host.memory_bytes,
            kernel: host.kernel,
            os: host.os,
            arch: host.arch,
            facts: host.facts,
        }
    });
    Ok(each.collect())
}

fn calibration(made: &store::Calibrations) -> ListedCalibration {
    let mean = |side: &[f64]| side.iter().sum::<f64>() / side.len() as f64;
    let logs: Vec<f64> = made
        .lives
        .iter()
        .map(|life| (mean(&life.tps[1]) / mean(&life.tps[0])).ln())
        .filter(|log| log.is_finite())
        .collect();
    let middle = mean(&logs);
    let square = |log: &f64| (log - middle) * (log - middle);
    let spread =
        (logs.len() > 1).then(|| (logs.iter().map(square).sum::<f64>() / (logs.len() - 1) as f64).sqrt());
    ListedCalibration {
        server: made.server.clone(),
        workload: made.workload.clone(),
        sessions: made.sessions,
        lives: made.lives.len(),
        spread,
        wakeup_p99_us: made.wakeup_us.map(|(_, p99)| p99),
    }
}

fn cells(report: &Report, study: &StudyReport) -> Vec<ListedCell> {
    let text = |key: &Key, name: &str| key.get(name).map(value_text).unwrap_or_default();
    let each = study.points.iter().filter_map(|point| {
        let (run, _) = point.runs.first()?;
        let run = &study.runs[*run];
        Some(ListedCell {
            server: text(&point.key, "server"),
            workload: text(&point.key, "workload"),
            sessions: point.sessions,
            host: report.hosts[run.host].host.fingerprint.clone(),
            durability: text(&point.key, "durability"),
            engine: text(&point.key, "engine"),
            tps: point.tps,
            p95_ms: point.p95_ms,
            p99_ms: point.p99_ms,
            settings_asked: run.end.as_ref().map(|end| end.server.settings_asked.clone()).unwrap_or_default(),
            key: point.key.clone(),
        })
    });
    each.collect()
}

fn claim(report: &Report, study: &StudyReport, view: &VerdictView, shape: &str) -> ListedClaim {
    let (base, other) = (key(study, view.base), key(study, view.other));
    let host = study.points[view.other].runs.first().map(|(run, _)| study.runs[*run].host);
    let level = match &view.climb {
        Some(levels) => format!("climb over {} levels", levels.len()),
        None => format!("{} sessions", study.points[view.other].sessions),
    };
    let place = if view.at.is_empty() { String::new() } else { format!(", {}", view.at) };
    ListedClaim {
        id: identity(shape, study, view),
        metric: view.metric.clone(),
        text: format!(
            "{} of {} against {}{place}, {level}",
            metric_name(&view.metric),
            view.other_label,
            view.base_label
        ),
        base,
        other,
        verdict: view.result.verdict.word().to_owned(),
        ratio: view.result.ratio,
        low: view.result.low,
        high: view.result.high,
        margin: view.margin,
        is_primary: view.is_primary,
        host: host.map(|host| report.hosts[host].host.fingerprint.clone()).unwrap_or_default(),
    }
}
