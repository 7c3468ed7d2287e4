//! What is known of the work that goes on, gathered from events. The live view draws it.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use lab::Event;
use lab::observe::{Effect, Phase, RunLabel, RunSummary};
use store::Status;

use super::{number, time};

/// Seconds of throughput that the chart shows.
pub(crate) const CHART_S: usize = 60;
/// A shorter wait for a server's debt is not worth words.
const DRAIN_TOLD: Duration = Duration::from_millis(500);
/// Ended runs and warnings that are kept for the view.
const LINES_MAX: usize = 200;

/// The last second.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Second {
    pub(crate) tps: f64,
    pub(crate) qps: f64,
    pub(crate) errors: u64,
    /// Percentiles of the response time; `None` where too few ended in that second for one.
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) is_warmup: bool,
}

impl Second {
    pub(crate) fn of(interval: &load::IntervalResult) -> Second {
        let per_second =
            |count: u64| if interval.duration_s > 0.0 { count as f64 / interval.duration_s } else { 0.0 };
        let response = &interval.latency.response;
        let at = |quantile: f64| {
            (response.len() >= stats::quantile_needs(quantile)).then(|| response.quantile_ms(quantile))
        };
        Second {
            tps: per_second(interval.outcomes.committed),
            qps: per_second(interval.reads + interval.writes + interval.other),
            errors: interval.outcomes.failed(),
            p50_ms: at(0.5),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            is_warmup: interval.second < 1,
        }
    }
}

/// What a gate did to the runs so far.
#[derive(Debug, Default)]
struct TrippedRuns {
    remedy: String,
    invalid: usize,
    doubted: usize,
    /// The server's behaviour: these count.
    marked: usize,
}

/// The work as a whole, and what goes on now.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) title: String,
    pub(crate) runs: usize,
    pub(crate) finished: usize,
    pub(crate) to_do: usize,
    pub(crate) made: usize,
    pub(crate) failed: usize,
    pub(crate) invalid: usize,
    pub(crate) blocks: u32,
    pub(crate) cells: usize,
    pub(crate) run_length: Option<Duration>,
    pub(crate) began: Option<Instant>,
    pub(crate) label: Option<RunLabel>,
    pub(crate) phase: Option<Phase>,
    pub(crate) doing: String,
    /// Done and total of what goes on, where known.
    pub(crate) progress: Option<(u64, u64)>,
    pub(crate) sessions: u32,
    pub(crate) step_began: Option<(Instant, Option<Duration>)>,
    /// Throughput of the last minute, warm-up included; `None` between runs.
    pub(crate) tps: VecDeque<Option<f64>>,
    /// The last second of the level that is measured now.
    pub(crate) second: Option<Second>,
    pub(crate) errors: u64,
    pub(crate) warnings: Vec<String>,
    pub(crate) ended: VecDeque<String>,
    pub(crate) stop_presses: u32,
    /// Gates that have tripped: remedy, and how many runs they made invalid, or only doubt or mark.
    tripped: BTreeMap<String, TrippedRuns>,
}

impl State {
    pub(crate) fn event(&mut self, event: &Event<'_>, now: Instant) {
        match event {
            Event::Waiting { holder, goes_on_after } => {
                let who =
                    holder.map_or("a process that cannot be seen from here".to_owned(), |h| h.to_string());
                self.doing = format!("waiting for another plimsoll ({who}) to end its measuring");
                if let Some(wait) = goes_on_after {
                    let minutes = wait.as_secs().div_ceil(60);
                    self.doing.push_str(&format!(
                        "; it is not this user's: after {minutes} min this goes on beside it"
                    ));
                }
            }
            Event::Cleaned(names) => {
                self.push(format!("removed what a crashed plimsoll left: {}", names.join(", ")));
            }
            Event::Doing(what) => {
                self.doing = (*what).to_owned();
                self.progress = None;
            }
            Event::Bytes { done, total } => self.progress = total.map(|total| (*done, total)),
            Event::Planned { title, runs, finished, to_do, cells, blocks, run_length, .. } => {
                self.title = (*title).to_owned();
                (self.runs, self.finished, self.to_do) = (*runs, *finished, *to_do);
                (self.cells, self.blocks, self.run_length) = (*cells, *blocks, *run_length);
                self.began = Some(now);
            }
            Event::RunStarted(label) => {
                self.label = Some((*label).clone());
                self.phase = None;
                self.doing.clear();
                self.progress = None;
            }
            Event::Phase(phase) => {
                self.phase = Some(*phase);
                self.doing = phase.text().to_owned();
                self.progress = None;
                self.step_began = None;
                self.second = None;
            }
            Event::Loaded { what, done, total } => {
                self.doing = (*what).to_owned();
                self.progress = Some((*done, *total));
            }
            Event::StepStarted { sessions, length } => {
                self.sessions = *sessions;
                self.step_began = Some((now, *length));
                self.chart(None);
            }
            Event::Interval { interval, .. } => {
                let second = Second::of(interval);
                self.errors += second.errors;
                self.chart(Some(second.tps));
                self.second = Some(second);
            }
            Event::Fleet(standing) => self.doing = standing.text(),
            Event::Again { runs } => self.to_do += runs,
            Event::Looked { number, look } => self.push(looked_line(*number, look)),
            Event::Warning(text) => {
                if !self.warnings.iter().any(|known| known == text) {
                    self.warnings.push((*text).to_owned());
                }
            }
            Event::RunEnded { label, summary } => {
                self.made += 1;
                match summary.status {
                    Status::Failed => self.failed += 1,
                    Status::Invalid => self.invalid += 1,
                    _ => {}
                }
                // A run that failed says by itself why.
                let judged = matches!(summary.status, Status::Invalid | Status::Done);
                for gate in summary.tripped.iter().filter(|_| judged) {
                    let known = self.tripped.entry(gate.name.clone()).or_default();
                    known.remedy.clone_from(&gate.remedy);
                    *match gate.effect {
                        Effect::Excluded => &mut known.invalid,
                        Effect::Allowed => &mut known.doubted,
                        Effect::Noted => &mut known.marked,
                    } += 1;
                }
                self.step_began = None;
                self.push(ended_line(label, summary));
            }
        }
    }

    /// What made runs invalid or doubtful, and what to do about it: a line for each gate.
    pub(crate) fn gates(&self) -> Vec<String> {
        let runs = |count: usize| store::counted(count, "run");
        let line = |(name, known): (&String, &TrippedRuns)| {
            let invalid = (known.invalid > 0).then(|| format!("made {} invalid", runs(known.invalid)));
            let doubted = (known.doubted > 0)
                .then(|| format!("doubts {}, which this study allows", runs(known.doubted)));
            let marked = (known.marked > 0)
                .then(|| format!("marks {}, which counts all the same", runs(known.marked)));
            let said: Vec<String> = [invalid, doubted, marked].into_iter().flatten().collect();
            format!("{name} {}: {}", said.join(" and "), known.remedy)
        };
        self.tripped.iter().map(line).collect()
    }

    fn push(&mut self, line: String) {
        self.ended.push_back(line);
        if self.ended.len() > LINES_MAX {
            self.ended.pop_front();
        }
    }

    fn chart(&mut self, tps: Option<f64>) {
        self.tps.push_back(tps);
        while self.tps.len() > CHART_S {
            self.tps.pop_front();
        }
    }

    /// How long the rest may take: by the runs made so far, before the first one by the plan alone.
    pub(crate) fn left(&self, now: Instant) -> Option<Duration> {
        let elapsed = now.checked_duration_since(self.began?)?;
        let open = self.to_do.saturating_sub(self.made) as u32;
        if self.made == 0 {
            // Starting, checking and stopping a server take some seconds beside the load.
            return Some((self.run_length? + Duration::from_secs(3)) * open)
                .map(|all| all.saturating_sub(elapsed));
        }
        Some(elapsed / self.made as u32 * open)
    }
}

/// `look 2, after block 6: 3 of 4 comparisons have a verdict`.
pub(crate) fn looked_line(number: usize, look: &store::Look) -> String {
    let of = look.decided + look.open;
    format!("look {number}, after block {}: {} of {of} comparisons have a verdict", look.block, look.decided)
}

/// `[ 3/60] mariadb@10.11.19 oltp_read_only, 8 sessions: 1,234 TPS, p95 3.20 ms (5.8 s)`.
pub(crate) fn ended_line(label: &RunLabel, summary: &RunSummary) -> String {
    let width = label.of.to_string().len();
    let head = format!("[{:>width$}/{}] {}", label.number, label.of, label.text());
    let figures: Vec<String> = summary
        .steps
        .iter()
        .map(|(sessions, tps, p95)| {
            let level = if label.levels.len() > 1 { format!("{sessions}: ") } else { String::new() };
            let p95 =
                p95.map_or("p95 - (too few for one)".to_owned(), |p95| format!("p95 {} ms", number(p95)));
            format!("{level}{} TPS, {p95}", number(*tps))
        })
        .collect();
    let lines = summary.lines.iter().map(|(promise, tps)| {
        format!("line {} under {promise}", tps.map_or_else(|| "unknown".to_owned(), number))
    });
    let lines: Vec<String> = lines.collect();
    let figures = if lines.is_empty() { figures.join("; ") } else { lines.join("; ") };
    let mut took = time(summary.took);
    if summary.drained >= DRAIN_TOLD {
        took.push_str(&format!(", {} of it to drain", time(summary.drained)));
    }
    let reason = summary.error.as_deref().unwrap_or_default();
    let gates = |effect: Effect| {
        let of_effect = summary.tripped.iter().filter(|gate| gate.effect == effect);
        of_effect.map(|gate| gate.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let marks = match gates(Effect::Noted) {
        none if none.is_empty() => none,
        marks => format!(", marked ({marks})"),
    };
    match summary.status {
        Status::Done => format!("{head}: {figures}{marks} ({took})"),
        Status::Invalid => {
            format!("{head}: {figures}, invalid ({}){marks} ({took})", gates(Effect::Excluded))
        }
        Status::Failed => format!("{head}: failed ({took}): {reason}"),
        Status::Interrupted | Status::Running => format!("{head}: stopped ({took})"),
    }
}

#[cfg(test)]
mod tests {
    use lab::observe::Tripped;

    use super::*;

    fn label() -> RunLabel {
        RunLabel {
            number: 3,
            of: 60,
            block: 1,
            blocks: 5,
            key: BTreeMap::from([
                ("server".into(), "mariadb@10.11.19".into()),
                ("workload".into(), "oltp_read_only".into()),
                ("settings".into(), "default".into()),
            ]),
            levels: vec![8],
            against: Vec::new(),
        }
    }

    fn summary(status: Status, error: Option<&str>) -> RunSummary {
        RunSummary {
            status,
            error: error.map(str::to_owned),
            tripped: vec![Tripped {
                name: "noisy_host".into(),
                remedy: "stop what else runs".into(),
                effect: if status == Status::Invalid { Effect::Excluded } else { Effect::Allowed },
            }],
            log_tail: String::new(),
            steps: vec![(8, 1234.4, Some(3.2))],
            lines: vec![],
            warnings: vec![],
            took: Duration::from_millis(5800),
            drained: Duration::ZERO,
        }
    }

    #[test]
    fn a_run_is_one_line() {
        assert_eq!(
            ended_line(&label(), &summary(Status::Done, None)),
            "[ 3/60] mariadb@10.11.19 oltp_read_only, 8 sessions: 1,234 TPS, p95 3.20 ms (5.8 s)"
        );
        let drained = RunSummary { drained: Duration::from_millis(1900), ..summary(Status::Done, None) };
        let line = ended_line(&label(), &drained);
        assert!(line.ends_with("(5.8 s, 1.9 s of it to drain)"), "{line}");
        assert_eq!(
            ended_line(&label(), &summary(Status::Failed, Some("it did not start"))),
            "[ 3/60] mariadb@10.11.19 oltp_read_only, 8 sessions: failed (5.8 s): it did not start"
        );
    }

    #[test]
    fn invalid_runs_name_their_gates_and_share_the_remedy() {
        let (label, summary) = (label(), summary(Status::Invalid, Some("a long story")));
        let line = ended_line(&label, &summary);
        assert!(
            line.contains("8 sessions: 1,234 TPS") && line.contains(", invalid (noisy_host) ("),
            "{line}"
        );
        let mut state = State::default();
        for _ in 0..2 {
            state.event(&Event::RunEnded { label: &label, summary: &summary }, Instant::now());
        }
        assert_eq!(state.gates(), ["noisy_host made 2 runs invalid: stop what else runs"]);
        let allowed = self::summary(Status::Done, None);
        state.event(&Event::RunEnded { label: &label, summary: &allowed }, Instant::now());
        assert_eq!(
            state.gates(),
            ["noisy_host made 2 runs invalid and doubts 1 run, which this study allows: stop what else runs"]
        );
    }

    #[test]
    fn a_run_that_counts_says_how_its_server_behaved() {
        let mut summary = summary(Status::Done, None);
        summary.tripped[0] =
            Tripped { name: "not_steady".into(), remedy: "measure longer".into(), effect: Effect::Noted };
        let line = ended_line(&label(), &summary);
        assert!(line.ends_with("p95 3.20 ms, marked (not_steady) (5.8 s)"), "{line}");
        let mut state = State::default();
        state.event(&Event::RunEnded { label: &label(), summary: &summary }, Instant::now());
        assert_eq!(state.gates(), ["not_steady marks 1 run, which counts all the same: measure longer"]);
        assert_eq!(state.invalid, 0);
    }

    #[test]
    fn the_time_left_follows_the_runs_made() {
        let start = Instant::now();
        let mut state = State::default();
        let planned = Event::Planned {
            title: "t",
            runs: 60,
            finished: 20,
            to_do: 40,
            cells: 4,
            blocks: 5,
            seed: 1,
            run_length: Some(Duration::from_secs(3)),
        };
        state.event(&planned, start);
        assert_eq!(state.left(start), Some(Duration::from_secs(240)));
        let (label, summary) = (label(), summary(Status::Done, None));
        state.event(&Event::RunEnded { label: &label, summary: &summary }, start);
        assert_eq!(state.left(start + Duration::from_secs(5)), Some(Duration::from_secs(195)));
    }

    #[test]
    fn the_chart_keeps_a_minute() {
        let mut state = State::default();
        let interval = load::IntervalResult { second: 1, duration_s: 1.0, ..load::IntervalResult::default() };
        for _ in 0..100 {
            state.event(&Event::Interval { sessions: 1, interval: &interval }, Instant::now());
        }
        assert_eq!(state.tps.len(), CHART_S);
    }
}
