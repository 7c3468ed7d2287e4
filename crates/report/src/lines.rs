//! Load lines in reports: what searches found, by run and over the repeats.

use serde_json::{Value, json};
use store::{Line, LineProbe};

use crate::estimate::Estimate;
use crate::load::label_or;
use crate::model::{Point, RunView, Sentence, StudyReport};
use crate::order::distinct;
use crate::text::{listed, number, percent, value_text};

/// A promise is a metric by its own text (`p99 < 20ms`): the line under it is the figure.
pub(crate) fn is_line(metric: &str) -> bool {
    metric.contains('<')
}

/// Of a line without a rate: the promise itself ended the search, not its budget or the server.
const BROKEN_EVERYWHERE: &str = "promise";

/// What a run found under a promise.
pub(crate) fn line_of<'a>(run: &'a RunView, promise: &str) -> Option<&'a Line> {
    let found = run.line.as_ref()?.found.as_ref()?;
    found.lines.iter().find(|line| line.promise == promise)
}

/// Where a probe is drawn.
pub(crate) struct Tried<'a> {
    pub(crate) probe: &'a LineProbe,
    /// Whether the run that made it counts.
    pub(crate) counts: bool,
}

impl StudyReport {
    /// The promises whose lines were searched for, in the order of the study.
    pub fn promises(&self) -> Vec<String> {
        let found = self.runs.iter().filter_map(|run| run.line.as_ref()?.found.as_ref());
        distinct(found.flat_map(|found| &found.lines).map(|line| line.promise.clone()))
    }

    /// Whether cells were loaded as the study says, and can be drawn beside each other. What stands for a search as its level is the
    /// rate at which its line was held, which the server chose.
    pub(crate) fn has_levels(&self) -> bool {
        self.promises().is_empty()
    }

    /// Where a line of the counted runs was not kept when it was held, or never held: which of both, or how many were kept.
    pub(crate) fn not_held(&self, point: &Point, promise: &str) -> Option<String> {
        let lines = self.counted(point).filter_map(|(run, _)| line_of(run, promise));
        let found: Vec<&Line> = lines.filter(|line| line.line_tps.is_some()).collect();
        let kept = found.iter().filter(|line| line.hold.is_some_and(|hold| hold.held)).count();
        let held_s = found.iter().filter_map(|line| line.hold).map(|hold| hold.seconds);
        match kept {
            0 if !found.is_empty() => Some(match held_s.max_by(f64::total_cmp) {
                None => "not held".to_owned(),
                Some(held_s) => format!("not kept when held for {held_s:.0} s"),
            }),
            _ if kept < found.len() => Some(format!("held in {kept} of {} runs", found.len())),
            _ => None,
        }
    }

    /// The rate up to which a point keeps all promises, and the promise that sets it: where they are of several kinds, as a
    /// percentile and the share of errors. Of one kind the tightest does, as everybody sees.
    pub(crate) fn line_of_all(&self, point: &Point) -> Option<(f64, String)> {
        let promises = self.promises();
        let kind = |promise: &String| promise.split('<').next().map(|kind| kind.trim().to_owned());
        if promises.iter().all(|promise| kind(promise) == kind(&promises[0])) {
            return None;
        }
        let lines =
            promises.into_iter().map(|promise| Some((self.estimate(point, &promise)?.median, promise)));
        let lines: Option<Vec<(f64, String)>> = lines.collect();
        lines?.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// The closed loop's peak over the counted runs of a point.
    pub fn peak(&self, point: &Point) -> Option<Estimate> {
        let peaks = self.counted(point).filter_map(|(run, _)| Some(run.line.as_ref()?.climb()?.rate));
        Estimate::of(&peaks.collect::<Vec<_>>())
    }

    /// Why a point with runs that count has no line: runs that found none.
    pub(crate) fn why_no_line(&self, point: &Point, promise: &str) -> Option<String> {
        let lines: Vec<Option<&Line>> = self.counted(point).map(|(run, _)| line_of(run, promise)).collect();
        let without: Vec<_> = lines.iter().filter(|line| line.and_then(|l| l.line_tps).is_none()).collect();
        let first = without.first()?;
        let why = first.and_then(|line| line.warnings.first()).cloned().unwrap_or_default();
        Some(format!("was not found in {} of {}: {why}", without.len(), store::counted(lines.len(), "run")))
    }

    /// All counted runs of a point saw the promise broken wherever they looked: more is known than that no line was found.
    fn is_never_kept(&self, point: &Point, promise: &str) -> bool {
        let mut lines = self.counted(point).map(|(run, _)| line_of(run, promise)).peekable();
        lines.peek().is_some()
            && lines.all(|line| {
                line.is_some_and(|line| line.line_tps.is_none() && line.ended_by == BROKEN_EVERYWHERE)
            })
    }

    /// All rates that were tried at a point.
    pub(crate) fn tried<'a>(&'a self, point: &'a Point) -> Vec<Tried<'a>> {
        let runs = point.runs.iter().filter_map(|(run, _)| self.runs.get(*run));
        let of = |run: &'a RunView| {
            let counts = run.standing == crate::model::Standing::Counted;
            let search = run.line.as_ref().filter(|_| run.standing != crate::model::Standing::Superseded);
            let tried = search.map_or(&[][..], |search| search.tried());
            tried.iter().filter(|probe| probe.seconds > 0.0).map(move |probe| Tried { probe, counts })
        };
        runs.flat_map(of).collect()
    }
}

/// What each server carries, where nothing is compared or nothing can be yet.
pub(crate) fn sentences(study: &StudyReport) -> Vec<Sentence> {
    let promises = study.promises();
    let mut all = Vec::new();
    for point in &study.points {
        let name = label_or(&point.identity, &study.varying, &["sessions"], &point.label);
        let workload = match study.varying.iter().any(|axis| axis == "workload") {
            true => String::new(),
            false => {
                point.key.get("workload").map(|name| format!(" on {}", value_text(name))).unwrap_or_default()
            }
        };
        let parts: Vec<String> = promises.iter().filter_map(|promise| told(study, point, promise)).collect();
        let absent = absent(study, point, &promises);
        if parts.is_empty() && absent.is_empty() {
            continue;
        }
        let peak = study
            .peak(point)
            .map_or_else(String::new, |peak| format!("; the closed loop's peak is {}", number(peak.median)));
        let all_kept = study.line_of_all(point).map_or_else(String::new, |(line_tps, promise)| {
            format!("; all are kept up to {}, where {promise} ends", number(line_tps))
        });
        let known = match parts.is_empty() {
            true => format!("{name}{workload}"),
            false => format!("{name} carries {} transactions/s{workload}", listed(&parts)),
        };
        let absent: String = absent.iter().map(|text| format!("; {text}")).collect();
        all.push(Sentence::plain(&format!("{known}{all_kept}{absent}{peak}.")));
    }
    all
}

/// Of the promises without a line: those that no rate keeps, and those whose line was not found and may be there.
fn absent(study: &StudyReport, point: &Point, promises: &[String]) -> Vec<String> {
    let without = promises.iter().filter(|promise| {
        study.estimate(point, promise).is_none() && study.why_no_line(point, promise).is_some()
    });
    let (never, unknown): (Vec<String>, Vec<String>) =
        without.cloned().partition(|promise| study.is_never_kept(point, promise));
    let never = (!never.is_empty()).then(|| format!("no rate keeps {}", listed(&never)));
    let unknown = (!unknown.is_empty()).then(|| format!("no line under {} was found", listed(&unknown)));
    never.into_iter().chain(unknown).collect()
}

/// `6,100 [5,900, 6,300] under p99 < 20ms (61 % of its peak, not kept when held for 8 s)`.
fn told(study: &StudyReport, point: &Point, promise: &str) -> Option<String> {
    let line = study.estimate(point, promise)?;
    let interval = spread(study, point, promise, line);
    let interval =
        interval.map_or_else(String::new, |(low, high)| format!(" [{}, {}]", number(low), number(high)));
    let share = study.peak(point).map(|peak| format!("{} of its peak", percent(line.median / peak.median)));
    let rest: Vec<String> = share.into_iter().chain(study.not_held(point, promise)).collect();
    let rest = if rest.is_empty() { String::new() } else { format!(" ({})", rest.join(", ")) };
    Some(format!("{}{interval} under {promise}{rest}", number(line.median)))
}

/// The interval of the repeats; of a single run that of its own search.
pub(crate) fn spread(
    study: &StudyReport,
    point: &Point,
    promise: &str,
    line: Estimate,
) -> Option<(f64, f64)> {
    if line.n > 1 {
        return Some((line.low, line.high));
    }
    let (run, _) = study.counted(point).next()?;
    let found = line_of(run, promise)?;
    found.low.zip(found.high)
}

/// The lines of a cell for the JSON, where the study has some.
pub(crate) fn json_of_point(study: &StudyReport, point: &Point) -> Option<Value> {
    let promises = study.promises();
    let line = |promise: &String| {
        json!({
            "promise": promise, "line_tps": study.estimate(point, promise), "peak_tps": study.peak(point),
            "absent": study.why_no_line(point, promise),
        })
    };
    (!promises.is_empty()).then(|| promises.iter().map(line).collect())
}

/// The search of a run for the JSON, where it was one.
pub(crate) fn json_of_run(run: &RunView) -> Option<Value> {
    let search = run.line.as_ref()?;
    let found = search.found.as_ref()?;
    let climb = search.climb();
    let lines: Vec<Value> = found
        .lines
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let held: Vec<Option<bool>> =
                search.tried().iter().map(|probe| search.held(probe, at, line.allowed)).collect();
            json!({
                "promise": line.promise, "line_tps": line.line_tps, "middle_tps": line.middle_tps, "low": line.low, "high": line.high,
                "ended_by": line.ended_by, "confirmation": line.hold, "held": held, "warnings": line.warnings,
            })
        })
        .collect();
    let probes: Vec<Value> = search
        .tried()
        .iter()
        .map(|probe| {
            json!({
                "purpose": probe.purpose, "rate": probe.rate, "sessions": probe.sessions, "tps": probe.tps,
                "seconds": probe.seconds, "p50_ms": probe.p50_ms, "p95_ms": probe.p95_ms, "p99_ms": probe.p99_ms,
                "overloaded": probe.is_overloaded, "limited_by": probe.limited_by, "error": probe.error,
            })
        })
        .collect();
    Some(json!({
        "peak_tps": climb.map(|climb| climb.rate), "peak_sessions": climb.map(|climb| climb.sessions),
        "seconds_total": found.seconds_total, "lines": lines, "probes": probes,
    }))
}
