//! What a collection of bundles lists of one: enough for pages, searches and comparisons, without opening it again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use store::bundle::{Author, LeftOut};
use store::{ChangeDecision, Key};

use super::claims::{identity, key};
use super::marks::{RunMark, marks};
use super::reported::ReportedSettings;
use super::{Opened, study_of};
use crate::calibration::{TIMES, summary};
use crate::error::Error;
use crate::estimate::Estimate;
use crate::history::{HistoryQuery, PointOfSeries, points_of, shape};
use crate::load::Selection;
use crate::model::{Report, StudyReport, VerdictView};
use crate::order::distinct;
use crate::settings::volatile;
use crate::text::{metric_name, time_text, value_text};

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
    /// By server: all other settings as it reported them, the same in all of its cells.
    #[serde(default)]
    pub reported: BTreeMap<String, BTreeMap<String, String>>,
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
    /// Places of data, as they were probed.
    #[serde(default)]
    pub storage: Vec<ListedStorage>,
    pub calibrations: Vec<ListedCalibration>,
}

/// A place of data directories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedStorage {
    /// As the study calls it.
    pub place: String,
    /// `filesystem`, `mount options`, `device`, `model` ...
    pub facts: BTreeMap<String, String>,
}

/// What the machine was found to tell of one server measured against itself: the figures of `plimsoll calibrate`. A listing
/// of before has some of them only.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListedCalibration {
    pub server: String,
    pub workload: String,
    pub sessions: u32,
    pub lives: usize,
    /// Smallest difference told, as a share, by the time that there is for it: `5m`, `10m`, `30m`.
    pub resolvable: BTreeMap<String, Option<f64>>,
    /// A/A studies, and those that called a difference.
    pub studies: usize,
    pub false_verdicts: usize,
    /// Standard deviations as shares: of the ratio from life to life and from slice to slice, and of a server's seconds.
    pub spread_life: Option<f64>,
    pub spread_slice: Option<f64>,
    pub spread_second: Option<f64>,
    pub wakeup_p50_us: Option<f64>,
    pub wakeup_p99_us: Option<f64>,
    /// When its last life ended, RFC 3339; empty where there is none.
    pub calibrated_at: String,
}

/// A cell at one load level.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ListedCell {
    /// Axes, and what is known besides.
    pub key: Key,
    pub server: String,
    /// Identity of its binaries.
    #[serde(default)]
    pub build: String,
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
    /// As the server reported them: those that it was started with, that decide the durability, or that differ between cells
    /// of this server.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
    /// The settings that decide the durability, as audits have them.
    #[serde(default)]
    pub deciding: String,
    /// What audits in this bundle say of the durability.
    #[serde(default)]
    pub durability_found: String,
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
    let (cells, reported) = cells(&report, study);
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
        hosts: hosts(&report, study, opened)?,
        cells,
        reported,
        claims: study.verdicts.iter().map(|view| claim(&report, study, view, &shape)).collect(),
        audits: crate::durability::audits(study),
        points: points_of(&opened.results, 0, &record, &query)?,
        decisions: opened.results.change_decisions()?,
        marks: marks(&opened.results)?,
        shape,
    };
    Ok((listing, report))
}

fn hosts(report: &Report, study: &StudyReport, opened: &Opened) -> Result<Vec<ListedHost>, Error> {
    let calibrations = opened.calibrations().map_err(super::refused)?;
    let of = |fingerprint: &str| {
        let all = calibrations.get(fingerprint).map_or(&[][..], Vec::as_slice);
        all.iter().map(calibration).collect()
    };
    let storage = |at: usize| -> Vec<ListedStorage> {
        let probes = study.probes.iter().filter(|(host, _)| *host == at);
        distinct(
            probes.map(|(_, probe)| ListedStorage { place: probe.place.clone(), facts: probe.facts.clone() }),
        )
    };
    let each = report.hosts.iter().enumerate().map(|(at, view)| {
        let host = view.host.clone();
        ListedHost {
            storage: storage(at),
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
    let found = summary(made);
    let resolvable = TIMES.iter().map(|(name, _)| (*name).to_owned()).zip(found.resolvable);
    ListedCalibration {
        server: found.server,
        workload: made.workload.clone(),
        sessions: made.sessions,
        lives: found.lives,
        resolvable: resolvable.collect(),
        studies: found.studies,
        false_verdicts: found.false_verdicts,
        spread_life: found.ratios.map(|ratios| ratios.between.sqrt()),
        spread_slice: found.ratios.map(|ratios| ratios.within.sqrt()),
        spread_second: found.second,
        wakeup_p50_us: found.wakeup_us.map(|(p50, _)| p50),
        wakeup_p99_us: found.wakeup_us.map(|(_, p99)| p99),
        calibrated_at: if found.lives > 0 { time_text(found.at_ms) } else { String::new() },
    }
}

/// Cells, and what their servers reported besides.
fn cells(
    report: &Report,
    study: &StudyReport,
) -> (Vec<ListedCell>, BTreeMap<String, BTreeMap<String, String>>) {
    let text = |key: &Key, name: &str| key.get(name).map(value_text).unwrap_or_default();
    let servers = study.points.iter().filter_map(|point| {
        let (run, _) = point.runs.first()?;
        Some((text(&point.key, "server"), &study.runs[*run].end.as_ref()?.server))
    });
    let settings = ReportedSettings::of(servers, volatile(study));
    let each = study.points.iter().filter_map(|point| {
        let (run, _) = point.runs.first()?;
        let run = &study.runs[*run];
        let server = run.end.as_ref().map(|end| &end.server);
        let name = text(&point.key, "server");
        Some(ListedCell {
            build: run.build.as_ref().map(|build| build.identity.clone()).unwrap_or_default(),
            workload: text(&point.key, "workload"),
            sessions: point.sessions,
            host: report.hosts[run.host].host.fingerprint.clone(),
            durability: text(&point.key, "durability"),
            engine: text(&point.key, "engine"),
            tps: point.tps,
            p95_ms: point.p95_ms,
            p99_ms: point.p99_ms,
            settings_asked: server.map(|server| server.settings_asked.clone()).unwrap_or_default(),
            settings: server.map(|server| settings.of_cell(&name, server)).unwrap_or_default(),
            deciding: server.map(|server| crate::durability::deciding(&server.deciding)).unwrap_or_default(),
            durability_found: server
                .map(|server| crate::durability::finding(study, run, server).1)
                .unwrap_or_default(),
            key: point.key.clone(),
            server: name,
        })
    });
    (each.collect(), settings.others)
}

fn claim(report: &Report, study: &StudyReport, view: &VerdictView, shape: &str) -> ListedClaim {
    let (base, other) = (key(study, view.base), key(study, view.other));
    let host = study.points[view.other].runs.first().map(|(run, _)| study.runs[*run].host);
    let level = match &view.climb {
        Some(levels) => format!("climb over {}", store::counted(levels.len(), "level")),
        None => store::counted(study.points[view.other].sessions, "session"),
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
