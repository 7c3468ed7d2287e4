//! How servers behaved: the marks of a cell, which excludes nothing, and what faults of the measurement cost each side
//! of a comparison.

use std::collections::BTreeSet;

use serde::Serialize;
use store::{Finding, GateKind, Purpose, Status};

use crate::model::{Point, RunView, StudyReport};
use crate::order::{grouped, place};
use crate::text::listed;

/// A gate about the server that tripped in some of a cell's runs that count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// `not_steady`.
    pub gate: String,
    /// Runs in which it tripped.
    pub tripped: usize,
    /// Runs in which it could not be looked at.
    pub not_checked: usize,
    /// Runs that count.
    pub runs: usize,
}

impl Mark {
    /// The gate's name for people.
    pub fn name(&self) -> String {
        self.gate.replace('_', " ")
    }

    /// `not steady in 2 of 5 runs`.
    pub fn text(&self) -> String {
        format!("{} in {} of {}", self.name(), self.tripped, store::counted(self.runs, "run"))
    }
}

/// What stands with a writing cell whose steadiness nobody could look at.
pub(crate) const SHORT_TERM: &str = "short-term";

/// From this share of the response time on, a figure is as much the machine's as the server's.
const WAKEUP_SHARE_TOLD: f64 = 0.2;

/// The runs of some points that count, each once with the levels that it was counted at.
fn counted<'a>(study: &'a StudyReport, points: &[usize]) -> Vec<(&'a RunView, Vec<u32>)> {
    let all = points
        .iter()
        .map(|at| &study.points[*at])
        .flat_map(|point| study.counted(point).map(move |(run, _)| (run.id.as_str(), (run, point.sessions))));
    let of_run = |(_, found): (&str, Vec<(&'a RunView, u32)>)| {
        (found[0].0, found.into_iter().map(|(_, level)| level).collect())
    };
    grouped(all).into_iter().map(of_run).collect()
}

/// The marks of some points taken together (one, or the levels of a climb), in the order in which gates were looked at.
fn marks_of(study: &StudyReport, points: &[usize]) -> Vec<Mark> {
    let runs = counted(study, points);
    let mut marks: Vec<Mark> = Vec::new();
    for (run, levels) in &runs {
        let gates = run.end.iter().flat_map(|end| &end.gates);
        let gates = gates.filter(|gate| gate.kind() == GateKind::Server);
        let gates: Vec<_> = gates.filter(|gate| levels.iter().any(|level| gate.covers(*level))).collect();
        let names: BTreeSet<&str> = gates.iter().map(|gate| gate.name.as_str()).collect();
        for name in names {
            let has =
                |finding: Finding| gates.iter().any(|gate| gate.name == name && gate.finding == finding);
            let new = || Mark { gate: name.to_owned(), tripped: 0, not_checked: 0, runs: runs.len() };
            let known = place(&mut marks, |mark| mark.gate == name, new);
            if has(Finding::Tripped) {
                marks[known].tripped += 1;
            } else if has(Finding::NotChecked) {
                marks[known].not_checked += 1;
            }
        }
    }
    marks
}

impl StudyReport {
    /// Gates about the server that tripped in the runs of a point that count.
    pub fn marks(&self, point: &Point) -> Vec<Mark> {
        let Some(at) = self.points.iter().position(|known| known.id == point.id) else { return Vec::new() };
        marks_of(self, &[at]).into_iter().filter(|mark| mark.tripped > 0).collect()
    }

    /// It writes, and in some run that counts nobody could look whether its throughput lasts.
    pub fn is_short_term(&self, point: &Point) -> bool {
        self.counted(point).any(|(run, step)| {
            let is_looked_at = run.end.iter().flat_map(|end| &end.gates).any(|gate| {
                gate.name == "not_steady"
                    && gate.finding != Finding::NotChecked
                    && gate.covers(point.sessions)
            });
            step.writes > 0 && !is_looked_at
        })
    }

    /// About which share of the response time was the machine's waking up, where that is a fifth or more: two hand-overs
    /// a statement, as long as they took before the runs. `None` with more sessions than cpus: those are awake then.
    pub fn wakeup_share(&self, point: &Point) -> Option<f64> {
        let shares = self.counted(point).filter_map(|(run, step)| {
            let fact = |name: &str| run.end.as_ref()?.facts.get(name)?.parse::<f64>().ok();
            let (cpus, wakeup_us) = (fact("cpus")?, fact("wakeup_us")?);
            let mean_us = step.response.as_ref()?.mean * 1000.0;
            let statements = step.qps / step.tps;
            (f64::from(step.sessions) <= cpus).then_some(2.0 * wakeup_us * statements / mean_us)
        });
        let shares: Vec<f64> = shares.filter(|share| share.is_finite()).collect();
        stats::median(&shares).map(|share| share.min(1.0)).filter(|share| *share >= WAKEUP_SHARE_TOLD)
    }

    /// The marks of a point in words, the shortness of its runs among them.
    pub fn marks_text(&self, point: &Point) -> String {
        let short = self.is_short_term(point).then(|| SHORT_TERM.to_owned());
        let wakeups = self.wakeup_share(point);
        let wakeups =
            wakeups.map(|share| format!("wake-ups are {:.0} % of the response time", share * 100.0));
        let all: Vec<String> =
            short.into_iter().chain(wakeups).chain(self.marks(point).iter().map(Mark::text)).collect();
        all.join(", ")
    }

    /// Runs of a point that came to their end, whatever gates say of them and whether or not they were made again, with
    /// the step that reached the point.
    pub(crate) fn completed<'a>(
        &'a self,
        point: &'a Point,
    ) -> impl Iterator<Item = (&'a RunView, &'a crate::StepFigures)> {
        let is_completed = |run: &RunView| {
            run.head.start.purpose == Purpose::Measure
                && matches!(run.head.status, Status::Done | Status::Invalid)
        };
        self.measured(point).filter(move |(run, _)| is_completed(run))
    }

    /// Of the completed runs of some points: how many a fault of the measurement excludes, and how many there are.
    pub(crate) fn lost(&self, points: &[usize]) -> (usize, usize) {
        let (mut lost, mut all) = (BTreeSet::new(), BTreeSet::new());
        for point in points.iter().map(|at| &self.points[*at]) {
            for (run, _) in self.completed(point) {
                all.insert(run.id.as_str());
                if run.end.as_ref().is_some_and(|end| !end.counts_at(point.sessions)) {
                    lost.insert(run.id.as_str());
                }
            }
        }
        (lost.len(), all.len())
    }
}

/// How the servers of both sides of a comparison behaved, by gate: `not steady in 4 of 5 runs of b, 0 of 5 of a`.
pub(crate) fn of_sides(
    study: &StudyReport,
    (other, other_label): (&[usize], &str),
    (base, base_label): (&[usize], &str),
) -> Vec<String> {
    let (of_other, of_base) = (marks_of(study, other), marks_of(study, base));
    let names: BTreeSet<&String> =
        of_other.iter().chain(&of_base).filter(|mark| mark.tripped > 0).map(|mark| &mark.gate).collect();
    let share = |marks: &[Mark], points: &[usize], gate: &str| {
        let tripped = marks.iter().find(|mark| mark.gate == gate).map_or(0, |mark| mark.tripped);
        (tripped, counted(study, points).len())
    };
    let mut told: Vec<String> = names
        .into_iter()
        .map(|gate| {
            let (bad, all) = share(&of_other, other, gate);
            let (bad_base, all_base) = share(&of_base, base, gate);
            let name = gate.replace('_', " ");
            format!(
                "{name} in {bad} of {} of {other_label}, {bad_base} of {all_base} of {base_label}",
                store::counted(all, "run")
            )
        })
        .collect();
    let is_short = |points: &[usize]| points.iter().any(|at| study.is_short_term(&study.points[*at]));
    let sides = [(other, other_label), (base, base_label)];
    let short = sides.iter().filter(|(points, _)| is_short(points)).map(|(_, label)| (*label).to_owned());
    let short: Vec<String> = short.collect();
    if !short.is_empty() {
        told.push(format!(
            "{SHORT_TERM}: runs too short to tell whether the throughput of {} lasts",
            listed(&short)
        ));
    }
    told
}
