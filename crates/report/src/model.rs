//! The view model: everything that a report says, built once from the stores, before any format is thought of.

use std::sync::OnceLock;

use store::{
    Audit, Axis, Build, Canary, Host, Key, LineSearch, Look, Probe, Reference, RunEnd, RunHead, Status,
    StudyRecord,
};

use crate::bundle::Claim;
use crate::estimate::Estimate;
use crate::figures::StepFigures;
use crate::lines::{is_line, line_of};
use crate::order::grouped;
use crate::sections::Section;

/// A report over one or more studies.
#[derive(Debug, Clone)]
pub struct Report {
    pub plimsoll_version: String,
    /// All machines, each once.
    pub hosts: Vec<HostView>,
    pub studies: Vec<StudyReport>,
}

/// A machine. Results of two are never pooled, but for nodes of one class that made parts of one plan.
#[derive(Debug, Clone)]
pub struct HostView {
    /// Its name, with more where two would be alike.
    pub label: String,
    /// Its facts.
    pub host: Host,
}

/// One study, from one or several results files.
#[derive(Debug, Clone, Default)]
pub struct StudyReport {
    /// Short name.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it asks.
    pub question: String,
    /// Where it was recorded: one for each results file.
    pub records: Vec<RecordView>,
    /// All axes in the order of the study file; their values likewise.
    pub axes: Vec<Axis>,
    /// Axes (and `host`, `sessions`) along which the points really differ.
    pub varying: Vec<String>,
    /// All runs, in the order in which they began.
    pub runs: Vec<RunView>,
    /// Cells by load level, in the order of the axes.
    pub points: Vec<Point>,
    /// Answers to `[compare]`.
    pub verdicts: Vec<VerdictView>,
    /// The order of compared values, where there are more than two.
    pub rankings: Vec<RankingView>,
    /// The direct answer.
    pub answer: Vec<Sentence>,
    /// What makes cells unequal beside the axes, in sentences: durability, isolation, character set ...
    pub inequalities: Vec<String>,
    /// Devices, with the index of their host.
    pub probes: Vec<(usize, Probe)>,
    /// The machine's own drift, with the index of the host.
    pub canaries: Vec<(usize, Canary)>,
    /// Published figures.
    pub references: Vec<Reference>,
    /// Durability audits of the builds that ran, from the same results files.
    pub audits: Vec<AuditView>,
    /// What became of what was published, where this measures it again.
    pub claims: Vec<Claim>,
    /// Its sections, made once for all formats when the first one asks: a curve is fitted hundreds of times for its
    /// interval. What is changed above after that is not in them.
    pub(crate) sections: OnceLock<Vec<Section>>,
}

/// A durability audit.
#[derive(Debug, Clone)]
pub struct AuditView {
    /// Index of its machine.
    pub host: usize,
    /// The server's binaries.
    pub build: Build,
    /// What was audited and found.
    pub audit: Audit,
}

/// A study's row in one results file.
#[derive(Debug, Clone)]
pub struct RecordView {
    /// The results file.
    pub file: String,
    /// The study as stored.
    pub record: StudyRecord,
    /// Inspections of its verdicts while it ran.
    pub looks: Vec<Look>,
}

/// Whether a run's figures count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// They do.
    Counted,
    /// A gate says that they must not be used: shown, hatched.
    Invalid,
    /// It did not end.
    Failed,
    /// Its process was killed, or it was stopped.
    Interrupted,
    /// It is going on, or its process was killed and nobody has resumed yet.
    Running,
    /// A later attempt at the same run counts instead.
    Superseded,
    /// A pass for hot locks, not for figures.
    LockPass,
}

impl Standing {
    /// The word of the report.
    pub fn word(self) -> &'static str {
        match self {
            Self::Counted => "counted",
            Self::Invalid => "invalid",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
            Self::Running => "running",
            Self::Superseded => "superseded",
            Self::LockPass => "lock pass",
        }
    }
}

#[derive(Debug, Clone)]
pub struct RunView {
    /// Name within the report: `r12`, or `2-r12` where several files are read.
    pub id: String,
    /// Index of its machine.
    pub host: usize,
    /// The boot of the machine that it ran in.
    pub boot_id: String,
    /// What it is.
    pub head: RunHead,
    /// What it gave, its steps folded into `steps`.
    pub end: Option<RunEnd>,
    /// Its levels, in order.
    pub steps: Vec<StepFigures>,
    /// The server's binaries.
    pub build: Option<Build>,
    /// Whether its figures count.
    pub standing: Standing,
    /// The search that it was, where it was one.
    pub line: Option<LineSearch>,
    /// Its block, unique over all files and machines: pairs are made within one of each only.
    pub block: u32,
    /// Which of the study's plans it is of: records with the same one have the same number.
    pub plan: usize,
}

/// A cell at one load level.
#[derive(Debug, Clone, Default)]
pub struct Point {
    /// Name within the report: `c3`.
    pub id: String,
    /// What makes it this point: axes of the study, `host`, `sessions`.
    pub identity: Key,
    /// The same and what is known besides (engine, cpus ...): the key of the JSON.
    pub key: Key,
    /// The varying axes' values but for the load level.
    pub label: String,
    /// Load level.
    pub sessions: u32,
    /// A step of a climb.
    pub is_climb: bool,
    /// Its runs, counted or not: index of the run, and of the step where it was reached.
    pub runs: Vec<(usize, Option<usize>)>,
    /// Over the counted runs.
    pub tps: Option<Estimate>,
    /// Best second of each run.
    pub tps_max: Option<Estimate>,
    /// Worst second of each run.
    pub tps_min: Option<Estimate>,
    /// Statements per second.
    pub qps: Option<Estimate>,
    /// Mean response time in ms.
    pub mean_ms: Option<Estimate>,
    /// 50th percentile of the response time in ms.
    pub p50_ms: Option<Estimate>,
    /// 95th percentile of the response time in ms.
    pub p95_ms: Option<Estimate>,
    /// 99th percentile of the response time in ms.
    pub p99_ms: Option<Estimate>,
    /// The longest time without a commit in any run, in seconds; `None` where it was not measured.
    pub freeze_s: Option<f64>,
}

/// The server's cpu time for each committed transaction, in microseconds: a metric of every comparison.
pub(crate) const CPU_PER_TRANSACTION: &str = "cpu_us_per_transaction";

/// An answer to one question of `[compare]`.
#[derive(Debug, Clone)]
pub struct VerdictView {
    /// `tps`, `p95` ...
    pub metric: String,
    pub axis: String,
    /// Index of the point that is compared with (of the first level, for a whole climb).
    pub base: usize,
    /// Index of the point that the verdict speaks about.
    pub other: usize,
    /// Levels that the verdict covers, where it covers a whole climb.
    pub climb: Option<Vec<u32>>,
    /// What counts as equivalent.
    pub margin: f64,
    /// The study compares by this metric; what is not asked for stands beside it and fails no gate.
    pub is_asked: bool,
    /// The study is about it; the others are secondary and share no error with it.
    pub is_primary: bool,
    /// The axis' value that is compared with.
    pub base_label: String,
    /// The axis' value that the verdict speaks about.
    pub other_label: String,
    /// The other varying axes' values, without the load level.
    pub at: String,
    /// The answer.
    pub result: stats::Comparison,
    /// Why the two sides are not equal beside the axis.
    pub flags: Vec<String>,
    /// How many of the runs that it rests on are in doubt, and why: gates that the study lets pass with a warning.
    pub doubts: Vec<String>,
    /// How the servers of both sides behaved, with the share of the runs on either side.
    pub marks: Vec<String>,
    /// Why there is no value of the metric on one side or both: too few transactions for a percentile.
    pub absent: Vec<String>,
    /// Where faults of the measurement cost the sides different numbers of runs.
    pub lost: Option<Lost>,
}

/// A sentence of the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sentence {
    pub text: String,
    /// The verdict that colours it: `faster`, `slower`, `mixed`, `equivalent`, `undecided`.
    pub tone: &'static str,
}

impl Sentence {
    pub(crate) fn plain(text: &str) -> Sentence {
        Sentence { text: text.to_owned(), tone: "undecided" }
    }
}

/// More than two values of an axis in order, by one metric.
#[derive(Debug, Clone)]
pub struct RankingView {
    /// `tps`, `p95` ...
    pub metric: String,
    pub axis: String,
    /// The other varying axes' values, without the load level.
    pub at: String,
    /// By load level, ascending.
    pub levels: Vec<LevelRanking>,
}

/// The values at one load level, the best first.
#[derive(Debug, Clone)]
pub struct LevelRanking {
    pub sessions: u32,
    pub places: Vec<Place>,
}

/// One value's place.
#[derive(Debug, Clone)]
pub struct Place {
    /// Index of its point.
    pub point: usize,
    /// The axis' value.
    pub label: String,
    /// The metric over the counted runs.
    pub figure: Option<Estimate>,
    /// Its groups: values that share a letter cannot be told apart. None below the blocks of a verdict.
    pub letters: String,
}

/// What faults of the measurement cost the two sides of a comparison, and what all completed runs together say.
#[derive(Debug, Clone)]
pub struct Lost {
    /// Runs of the base that are excluded, and all that came to their end.
    pub base: (usize, usize),
    /// The same of the other side.
    pub other: (usize, usize),
    /// The answer over all completed runs: what is excluded may not have been excluded by chance.
    pub over_all: stats::Comparison,
}

impl VerdictView {
    /// What faults of the measurement cost the sides, where that is not the same, with the answer over all runs.
    pub fn lost_text(&self) -> Option<String> {
        let lost = self.lost.as_ref()?;
        let result = &lost.over_all;
        let word = if result.p_adjusted.is_some() { result.verdict.word() } else { "no verdict" };
        let interval = result.low.zip(result.high);
        let interval =
            interval.map_or_else(String::new, |ends| format!(" ({})", crate::text::ratio_ends(ends)));
        let ratio = result.ratio.map_or_else(|| "–".to_owned(), crate::text::ratio);
        Some(format!(
            "faults of the measurement cost {} of {} of {} and {} of {} of {}; over all completed runs: {word}, \
             {ratio}{interval}",
            lost.other.0,
            store::counted(lost.other.1, "run"),
            self.other_label,
            lost.base.0,
            lost.base.1,
            self.base_label
        ))
    }

    /// The verdict's word, or that there is none; marked where it rests on runs in doubt.
    pub fn word(&self) -> String {
        let word = if self.result.p_adjusted.is_some() { self.result.verdict.word() } else { "no verdict" };
        if self.doubts.is_empty() { word.to_owned() } else { format!("{word}, in doubt") }
    }
}

impl RunView {
    /// Faults of the measurement although the run counts: its study lets them pass with a warning.
    pub fn doubted_by(&self) -> impl Iterator<Item = &store::Gate> {
        let gates = self.end.iter().flat_map(|end| &end.gates);
        gates.filter(|gate| gate.is_tripped() && gate.is_allowed && self.standing == Standing::Counted)
    }

    /// How it stands at one of its levels: a level at fault does not take the others of its climb along.
    pub fn standing_at(&self, level: u32) -> Standing {
        match &self.end {
            Some(end) if self.standing == Standing::Counted && !end.counts_at(level) => Standing::Invalid,
            _ => self.standing,
        }
    }
}

impl StudyReport {
    /// The newest record: the one whose file and plan are printed first.
    pub fn newest(&self) -> Option<&RecordView> {
        self.records.iter().max_by_key(|view| view.record.study.created_at_ms)
    }

    /// Primary comparisons that have a verdict, and those that have none.
    pub fn decided(&self) -> (usize, usize) {
        let primary = self.verdicts.iter().filter(|view| view.is_primary);
        let (decided, open): (Vec<_>, Vec<_>) =
            primary.partition(|view| view.result.verdict != stats::Verdict::Undecided);
        (decided.len(), open.len())
    }

    /// Values of a metric over the counted runs of a point, with the block of each. None at all where one of these runs
    /// has too few transactions for the metric: those that have enough are not like the others.
    pub fn samples(&self, point: &Point, metric: &str) -> Vec<stats::Sample> {
        let values = self.counted(point).map(|(run, step)| sample(run, step, metric));
        values.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// The median of a metric, or of the line under a promise, over the counted runs of a point.
    pub fn estimate(&self, point: &Point, metric: &str) -> Option<Estimate> {
        let value = |run: &RunView, step: &StepFigures| match metric {
            // What was held, and not what lines are compared by.
            line if is_line(line) => line_of(run, line)?.line_tps,
            _ => Some(sample(run, step, metric)?.value),
        };
        let values: Option<Vec<f64>> = self.counted(point).map(|(run, step)| value(run, step)).collect();
        Estimate::of(&values.unwrap_or_default())
    }

    /// Why a point with runs that count has no value of a metric: too few transactions in some of them.
    pub fn why_absent(&self, point: &Point, metric: &str) -> Option<String> {
        if is_line(metric) {
            return self.why_no_line(point, metric);
        }
        let quantile = crate::figures::quantile_of(metric)?;
        let needed = stats::quantile_needs(quantile);
        let counts: Vec<u64> =
            self.counted(point).map(|(_, step)| step.response.map_or(0, |latency| latency.count)).collect();
        let few: Vec<u64> = counts.iter().copied().filter(|count| *count < needed).collect();
        let (least, most) = (few.iter().min()?, few.iter().max()?);
        let span = if least == most { least.to_string() } else { format!("{least} to {most}") };
        Some(format!(
            "needs {needed} transactions in each run: {} of {} had fewer ({span})",
            few.len(),
            store::counted(counts.len(), "run")
        ))
    }

    /// A line for each percentile that cells lack, for below their table: `p99: 3 cells have ...`.
    pub fn absent_percentiles(&self) -> Vec<String> {
        let line = |(name, metric): (&str, &str)| {
            let lacking = self.points.iter().filter(|point| self.why_absent(point, metric).is_some()).count();
            let needed = stats::quantile_needs(crate::figures::quantile_of(metric)?);
            let cells = if lacking == 1 { "1 cell has".to_owned() } else { format!("{lacking} cells have") };
            (lacking > 0).then(|| {
                format!("no {name}: it needs {needed} transactions in each run, and {cells} a run with fewer")
            })
        };
        [("p50", "p50"), ("p95", "p95"), ("p99", "p99")].into_iter().filter_map(line).collect()
    }

    /// The same over all completed runs, those that gates exclude among them.
    pub(crate) fn all_samples(&self, point: &Point, metric: &str) -> Vec<stats::Sample> {
        let values = self.completed(point).map(|(run, step)| sample(run, step, metric));
        values.collect::<Option<Vec<_>>>().unwrap_or_default()
    }

    /// The counted runs of a point with the step that reached it.
    pub fn counted<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = (&'a RunView, &'a StepFigures)> {
        self.measured(point).filter(|(run, _)| run.standing_at(point.sessions) == Standing::Counted)
    }

    /// All runs of a point that reached it, with the step.
    pub fn measured<'a>(&'a self, point: &'a Point) -> impl Iterator<Item = (&'a RunView, &'a StepFigures)> {
        point.runs.iter().filter_map(|(run, step)| {
            let run = self.runs.get(*run)?;
            Some((run, run.steps.get((*step)?)?))
        })
    }

    /// Of an open loop, the rate that a point was offered and how its arrivals were spread: `2,000/s poisson`.
    pub fn pacing(&self, point: &Point) -> Option<String> {
        let (_, step) = self.measured(point).find(|(_, step)| step.rate_tps.is_some())?;
        let arrivals = step.arrivals.as_deref().unwrap_or_default();
        Some(format!("{}/s {arrivals}", crate::text::number(step.rate_tps?)).trim_end().to_owned())
    }

    /// Why a point has no run that counts: how its runs stand, and the reason of the last that gives one.
    pub fn why_none_counts(&self, point: &Point) -> Option<String> {
        let runs: Vec<&RunView> = point.runs.iter().filter_map(|(run, _)| self.runs.get(*run)).collect();
        if runs.is_empty() || self.counted(point).next().is_some() {
            return None;
        }
        let tried = runs.iter().filter(|run| run.standing != Standing::Superseded);
        let counts = grouped(tried.map(|run| (run.standing_at(point.sessions).word(), run)));
        let counts: Vec<String> =
            counts.iter().map(|(word, runs)| format!("{} {word}", runs.len())).collect();
        let reason = runs.iter().rev().find_map(|run| run.head.error.as_deref()?.lines().next());
        Some(match reason {
            Some(reason) => format!("{}: {reason}", counts.join(", ")),
            None => counts.join(", "),
        })
    }

    /// There are verdicts (from at least five blocks).
    pub fn has_verdicts(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.result.p_adjusted.is_some())
    }
}

fn sample(run: &RunView, step: &StepFigures, metric: &str) -> Option<stats::Sample> {
    let value = match metric {
        line if is_line(line) => line_of(run, line).and_then(|line| line.middle_tps.or(line.line_tps)),
        CPU_PER_TRANSACTION => crate::derived::per_transaction_of(run, step.sessions, "server_cpu"),
        _ => step.metric(metric),
    };
    Some(stats::Sample { block: run.block, value: value? })
}

/// The standing of a run that no later attempt replaces; it counts where any of its levels does.
pub(crate) fn standing_of(status: Status, levels: &[u32], end: Option<&RunEnd>) -> Standing {
    match status {
        Status::Invalid if end.is_some_and(|end| levels.iter().any(|level| end.counts_at(*level))) => {
            Standing::Counted
        }
        Status::Done => Standing::Counted,
        Status::Invalid => Standing::Invalid,
        Status::Failed => Standing::Failed,
        Status::Interrupted => Standing::Interrupted,
        Status::Running => Standing::Running,
    }
}
