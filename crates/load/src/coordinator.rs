//! Tells the workers which step begins and merges what they recorded. It works for a moment each second: what it costs is
//! part of the client's cost.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use crate::hands::Hands;
use crate::histogram::{Histogram, Total};
use crate::plan::{Length, LoadPlan, Step};
use crate::recording::{IntervalData, Timeline};
use crate::result::{
    ClientUsage, ErrorTally, IntervalResult, LatencyPair, LoadResult, StatementResult, StepResult,
};
use crate::run::{Event, LoadError};
use crate::session::Failure;
use crate::state::Shared;
use crate::time::{Clock, Moment};
use crate::usage::ProcessCpu;
use crate::worker::{Report, WorkerStep};

pub(crate) struct Coordinator<'a> {
    plan: &'a LoadPlan,
    hands: Hands<'a>,
    reports: Receiver<Report>,
    shared: Arc<Shared>,
    classes: Vec<String>,
    clock: Clock,
    /// Where one interval of all workers is merged.
    scratch: Merger,
}

/// Latencies of several workers or intervals, summed.
#[derive(Default)]
struct Merger {
    response: Total,
    service: Option<Total>,
    classes: Vec<Total>,
    /// By class: ended in these intervals, and intended before the measured phase.
    earlier_by_class: BTreeMap<usize, u64>,
}

impl Merger {
    fn new(classes: usize) -> Merger {
        Merger { classes: (0..classes).map(|_| Total::default()).collect(), ..Merger::default() }
    }

    /// What belongs to the warm-up by its beginning.
    fn add_earlier(&mut self, data: &IntervalData) {
        if let Some(earlier) = &data.earlier {
            let [response, service] = &**earlier;
            self.response.add(response);
            if !service.is_empty() {
                self.service.get_or_insert_default().add(service);
            }
        }
    }

    fn add(&mut self, data: &IntervalData) {
        self.response.add(&data.response);
        if let Some(service) = &data.service {
            self.service.get_or_insert_default().add(service);
        }
        for (sum, counts) in self.classes.iter_mut().zip(&data.classes) {
            sum.add(counts);
        }
        for (class, count) in &data.earlier_by_class {
            *self.earlier_by_class.entry(*class).or_default() += count;
        }
    }

    fn latency(&self) -> LatencyPair {
        LatencyPair {
            response: self.response.to_histogram(),
            service: self.service.as_ref().map(Total::to_histogram),
        }
    }

    fn by_class(&self) -> Vec<Histogram> {
        self.classes.iter().map(Total::to_histogram).collect()
    }

    fn clear(&mut self) {
        self.response.clear();
        self.service = None;
        self.classes.iter_mut().for_each(Total::clear);
        self.earlier_by_class.clear();
    }
}

/// One step while it runs.
struct Running {
    index: usize,
    timeline: Timeline,
    /// Intervals of each worker that have not been merged yet.
    queues: Vec<VecDeque<Box<IntervalData>>>,
    done: Vec<Option<Box<WorkerStep>>>,
    totals: Merger,
    result: StepResult,
    freezes: Freezes,
    /// Seconds in a row without a single connection.
    silent_s: f64,
    /// What each process used in the measured phase.
    used: Vec<Option<ProcessCpu>>,
}

/// Finds the longest time without a commit that somebody waited through, of those with a second's end in them.
#[derive(Debug, Default)]
struct Freezes {
    last_commit: Option<Moment>,
    /// The freeze that goes on.
    since: Option<Moment>,
    longest: Duration,
}

impl Freezes {
    /// A second is over: its first and last commit, and since when somebody waits at its end.
    fn interval(
        &mut self,
        commits: Option<(Moment, Moment)>,
        waiting_since: Option<Moment>,
        is_measured: bool,
    ) {
        if let Some((first, last)) = commits {
            self.ended(first, is_measured);
            self.last_commit = Some(last);
        }
        let begun = waiting_since.map(|since| self.last_commit.map_or(since, |last| last.max(since)));
        self.since = match (self.since, begun) {
            (Some(known), Some(begun)) => Some(known.min(begun)),
            (_, begun) => begun,
        };
    }

    fn ended(&mut self, at: Moment, is_measured: bool) {
        if let Some(since) = self.since.take()
            && is_measured
        {
            self.longest = self.longest.max(at - since);
        }
    }
}

impl<'a> Coordinator<'a> {
    pub(crate) fn new(
        plan: &'a LoadPlan,
        hands: Hands<'a>,
        reports: Receiver<Report>,
        shared: Arc<Shared>,
        classes: Vec<String>,
        clock: Clock,
    ) -> Coordinator<'a> {
        let scratch = Merger::new(classes.len());
        Coordinator { plan, hands, reports, shared, classes, clock, scratch }
    }

    /// All steps, in order.
    pub(crate) fn climb(mut self, observer: &mut dyn FnMut(Event<'_>)) -> Result<LoadResult, LoadError> {
        let mut result = LoadResult::default();
        for (index, step) in self.plan.steps.iter().enumerate() {
            let (connect_s, now) = match self.connect(index, step, observer)? {
                _ if self.shared.stop.is_requested() => break,
                Connected::All { took, now } => (took.as_secs_f64(), now),
                Connected::Not { connected, failure } if index == 0 => {
                    return Err(LoadError::Connect {
                        connected,
                        sessions: step.sessions,
                        code: failure.code,
                        text: failure.text,
                    });
                }
                Connected::Not { connected, failure } => {
                    let Failure { code, text, .. } = failure;
                    let sessions = step.sessions;
                    result.steps.push(StepResult {
                        sessions,
                        by_statement: self.by_statement(&Merger::new(self.classes.len())),
                        ended_by: Some(format!(
                            "{connected} of {sessions} sessions connected; {code}: {text}"
                        )),
                        ..StepResult::default()
                    });
                    break;
                }
            };
            observer(Event::StepStarted { index, step });
            if self.plan.enough.is_requested() {
                break;
            }
            let ended = self.run_step(index, step, now, connect_s, observer);
            observer(Event::StepEnded { step: index, result: &ended });
            let is_over = ended.ended_by.is_some();
            result.steps.push(ended);
            if is_over || self.shared.must_halt() {
                break;
            }
        }
        result.interrupted = self.shared.stop.is_requested();
        Ok(result)
    }

    fn connect(
        &self,
        index: usize,
        step: &Step,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> Result<Connected, LoadError> {
        let began = Moment::now();
        self.hands.connect(step.sessions, self.plan.ramp);
        let (mut connected, mut failure, mut now) = (0, None, began);
        let mut waiting = self.hands.workers();
        while waiting > 0 {
            match self.reports.recv() {
                Ok(Report::Connected { connected: some, refusal, now: theirs, .. }) => {
                    waiting -= 1;
                    connected += some;
                    now = now.max(theirs);
                    if let Some(refusal) = refusal {
                        // The others need not wait for their own refusals.
                        self.shared.end_with(format!("{}: {}", refusal.code, refusal.text));
                        // A worker that only stopped because another was refused has nothing to add.
                        if failure.is_none() || refusal.code != "stopped" {
                            failure = Some(refusal);
                        }
                    }
                }
                Ok(Report::Warning(text)) => observer(Event::Warning(&text)),
                Ok(Report::Lost { reason }) => {
                    self.shared.end_with(reason.clone());
                    return Err(LoadError::Worker(reason));
                }
                Ok(Report::Interval { .. } | Report::Done { .. } | Report::Cpu { .. }) => {}
                Err(_) => return Err(LoadError::Worker("all workers are gone".into())),
            }
        }
        if let Some(failure) = failure {
            return Ok(Connected::Not { connected, failure });
        }
        let took = Moment::now() - began;
        // All that the sessions allocate is there, and none of them is running.
        if index == 0 || self.plan.steps[index - 1].sessions != step.sessions {
            self.hands.gather_memory();
        }
        observer(Event::Connected { step: index, sessions: connected, took });
        Ok(Connected::All { took, now })
    }

    fn run_step(
        &mut self,
        index: usize,
        step: &Step,
        now: Moment,
        connect_s: f64,
        observer: &mut dyn FnMut(Event<'_>),
    ) -> StepResult {
        let now = if self.clock == Clock::Simulated { now } else { Moment::now() };
        let start = now + self.hands.head_start();
        let measured = start + step.warmup;
        let (end, quota) = match step.length {
            Length::Time(length) => (Some(measured + length), None),
            Length::Transactions { count, at_most } => (at_most.map(|most| measured + most), Some(count)),
        };
        let timeline = Timeline { start, measured, end };
        let workers = self.hands.workers();
        let shared = self.hands.begin(step, timeline, quota);
        let mut running = Running {
            index,
            timeline,
            queues: (0..workers).map(|_| VecDeque::new()).collect(),
            done: (0..workers).map(|_| None).collect(),
            totals: Merger::new(self.classes.len()),
            result: StepResult { sessions: step.sessions, connect_s, ..StepResult::default() },
            freezes: Freezes::default(),
            silent_s: 0.0,
            used: vec![None; self.hands.clients()],
        };
        self.listen(&mut running, observer);
        self.merge_ready(&mut running, observer);
        if let Some(shared) = shared {
            running.used[0] = shared.used();
        }
        self.conclude(running)
    }

    /// Takes reports until every worker has drained.
    fn listen(&mut self, running: &mut Running, observer: &mut dyn FnMut(Event<'_>)) {
        while running.done.iter().any(Option::is_none) {
            match self.reports.recv() {
                Ok(Report::Interval { worker, data }) => {
                    running.queues[worker].push_back(data);
                    self.merge_ready(running, observer);
                }
                Ok(Report::Done { worker, step }) => {
                    running.done[worker] = Some(step);
                    self.merge_ready(running, observer);
                }
                Ok(Report::Warning(text)) => observer(Event::Warning(&text)),
                Ok(Report::Cpu { client, used }) => running.used[client] = Some(used),
                Ok(Report::Connected { .. }) => {}
                Ok(Report::Lost { reason }) => return self.shared.end_with(reason),
                Err(_) => return self.shared.end_with("all workers are gone".into()),
            }
        }
    }

    /// Merges the intervals that no worker can add to any more.
    fn merge_ready(&mut self, running: &mut Running, observer: &mut dyn FnMut(Event<'_>)) {
        loop {
            let fronts = running.queues.iter().map(|queue| queue.front().map(|data| data.second));
            let is_open =
                fronts.clone().zip(&running.done).any(|(front, done)| front.is_none() && done.is_none());
            let Some(second) = fronts.flatten().min().filter(|_| !is_open) else { return };
            let interval = self.merge_second(running, second);
            observer(Event::Interval { step: running.index, interval: &interval });
            self.watch_silence(running, &interval);
        }
    }

    fn merge_second(&mut self, running: &mut Running, second: i64) -> IntervalResult {
        self.scratch.clear();
        let mut interval = IntervalResult { second, ..IntervalResult::default() };
        let is_measured = second >= 1;
        let (mut commits, mut waiting_since): (Option<(Moment, Moment)>, Option<Moment>) = (None, None);
        for (worker, queue) in running.queues.iter_mut().enumerate() {
            if queue.front().is_none_or(|data| data.second != second) {
                continue;
            }
            let Some(data) = queue.pop_front() else { continue };
            self.scratch.add(&data);
            self.scratch.add_earlier(&data);
            commits = match (commits, data.commits) {
                (Some((first, last)), Some((other, later))) => Some((other.min(first), later.max(last))),
                (one, other) => one.or(other),
            };
            waiting_since = match (waiting_since, data.waiting_since) {
                (Some(one), Some(other)) => Some(one.min(other)),
                (one, other) => one.or(other),
            };
            if is_measured {
                running.totals.add(&data);
            }
            interval.duration_s = interval.duration_s.max(data.duration.as_secs_f64());
            interval.outcomes += data.outcomes;
            interval.reads += data.reads;
            interval.writes += data.writes;
            interval.other += data.other;
            interval.retries += data.retries;
            interval.reconnects += data.reconnects;
            interval.connected += data.connected;
            interval.backlog += data.backlog;
            interval.in_flight += data.in_flight;
            self.hands.give_back(worker, data);
        }
        running.freezes.interval(commits, waiting_since, is_measured);
        let is_whole = interval.duration_s > 0.99;
        if is_measured && is_whole && interval.outcomes.committed == 0 && waiting_since.is_some() {
            running.result.stalls.seconds += 1;
        }
        interval.latency = self.scratch.latency();
        interval.by_statement = self.scratch.by_class();
        if is_measured {
            let result = &mut running.result;
            result.outcomes += interval.outcomes;
            result.reads += interval.reads;
            result.writes += interval.writes;
            result.other += interval.other;
            result.retries += interval.retries;
            result.reconnects += interval.reconnects;
        }
        interval
    }

    /// Ends a step whose server is gone for good.
    fn watch_silence(&self, running: &mut Running, interval: &IntervalResult) {
        if interval.connected > 0 || running.done.iter().all(Option::is_some) {
            running.silent_s = 0.0;
            return;
        }
        running.silent_s += interval.duration_s;
        if running.silent_s >= self.plan.silence_limit.as_secs_f64() {
            let why = self.shared.last_refusal().unwrap_or_else(|| "no answer".into());
            self.shared.end_with(format!(
                "all {} sessions lost their connection and none could be opened again for {:.0} s ({why})",
                running.result.sessions, running.silent_s
            ));
        }
    }

    /// Makes the step's result of what was summed.
    fn conclude(&self, running: Running) -> StepResult {
        let Running { timeline, done, mut totals, mut result, mut freezes, used, .. } = running;
        let (mut failed, mut unended) = (Total::default(), Total::default());
        let mut late_by_class: BTreeMap<usize, Total> = BTreeMap::new();
        let (mut thawed, mut closed) = (None, timeline.measured);
        let mut end = timeline.measured;
        let mut efforts: Vec<Effort> = used.iter().map(|_| Effort::default()).collect();
        let clients = efforts.len();
        let done = done.into_iter().enumerate().filter_map(|(worker, step)| Some((worker % clients, step?)));
        for (client, step) in done {
            efforts[client].add(&step, &timeline);
            result.drained += step.drained;
            result.outcomes_whole += step.whole;
            result.outcomes.skipped += step.censored;
            result.outcomes_whole.skipped += step.censored;
            ErrorTally::add(&mut result.errors, step.errors);
            totals.response.add(&step.beside.response);
            if !step.beside.service.is_empty() {
                totals.service.get_or_insert_default().add(&step.beside.service);
            }
            for (class, late) in &step.beside.classes {
                late_by_class.entry(*class).or_default().add(late);
            }
            failed.add(&step.beside.failed);
            unended.add(&step.beside.unended);
            thawed = [thawed, step.first_drained].into_iter().flatten().min();
            closed = closed.max(step.closed);
            if let Some(theirs) = step.end {
                end = end.max(theirs.at);
                result.in_flight_at_end += theirs.in_flight;
                result.backlog_at_end += theirs.backlog;
                if let Some(arrivals) = theirs.arrivals {
                    *result.arrivals.get_or_insert(0) += arrivals;
                }
            }
        }
        result.duration_s = (end - timeline.measured).as_secs_f64();
        freezes.ended(thawed.unwrap_or(closed), true);
        result.stalls.longest_s = freezes.longest.as_secs_f64();
        result.failed = failed.to_histogram();
        result.unended = unended.to_histogram();
        totals.response.add(&unended);
        result.latency = totals.latency();
        result.by_statement = self.by_statement(&totals);
        // What ended in the phase is counted, what ended after it is timed only.
        for (class, late) in late_by_class {
            let latency = &mut result.by_statement[class].latency;
            *latency = Histogram::merged([&*latency, &late.to_histogram()]);
        }
        let open_loop_p50_ms =
            result.latency.service.as_ref().map(|_| result.latency.response.quantile_ms(0.5));
        let usage = |(effort, used): (&Effort, &Option<ProcessCpu>)| {
            effort.usage(*used, result.duration_s, open_loop_p50_ms)
        };
        let each: Vec<ClientUsage> = efforts.iter().zip(&used).map(usage).collect();
        result.client = Effort::together(&efforts, &each);
        result.clients = if clients > 1 { each } else { Vec::new() };
        result.ended_by = self.shared.reason();
        result
    }

    fn by_statement(&self, totals: &Merger) -> Vec<StatementResult> {
        let named = self.classes.iter().zip(totals.by_class()).enumerate();
        let result = |(class, (name, latency)): (usize, (&String, Histogram))| {
            let earlier = totals.earlier_by_class.get(&class).copied().unwrap_or(0);
            StatementResult { name: name.clone(), count: latency.len() + earlier, latency }
        };
        named.map(result).collect()
    }
}

/// What the workers of one process did in the measured phase of a step.
#[derive(Default)]
struct Effort {
    workers: u32,
    busiest_s: f64,
    queued_s: f64,
    worker_s: f64,
    lag: Total,
    start_lag: Duration,
}

impl Effort {
    fn add(&mut self, step: &WorkerStep, timeline: &Timeline) {
        self.workers += 1;
        self.lag.add(&step.lag);
        self.start_lag = self.start_lag.max(step.started.map_or(Duration::ZERO, |at| at - timeline.start));
        if let Some(end) = step.end {
            self.busiest_s = self.busiest_s.max(end.thread.cpu.as_secs_f64());
            self.queued_s += end.thread.queued.as_secs_f64();
            self.worker_s += (end.at - timeline.measured).as_secs_f64();
        }
    }

    /// `used`: what the whole process used.
    fn usage(&self, used: Option<ProcessCpu>, duration_s: f64, open_loop_p50_ms: Option<f64>) -> ClientUsage {
        let ProcessCpu { user_s, sys_s } = used.unwrap_or_default();
        let mut usage = ClientUsage {
            workers: self.workers,
            cpu_user_s: user_s,
            cpu_sys_s: sys_s,
            cpu_share: ratio(self.busiest_s, duration_s),
            run_queue_share: ratio(self.queued_s, self.worker_s),
            schedule_lag_p99_ms: self.lag.to_histogram().quantile_ms(0.99),
            start_lag_ms: self.start_lag.as_secs_f64() * 1e3,
            clock: None,
            host: None,
            is_bound: false,
        };
        usage.is_bound = usage.judge(open_loop_p50_ms);
        usage
    }

    /// All processes as one client: it set the limit where one of them did.
    fn together(efforts: &[Effort], each: &[ClientUsage]) -> ClientUsage {
        let most = |of: fn(&ClientUsage) -> f64| each.iter().map(of).fold(0.0, f64::max);
        let sum = |of: fn(&Effort) -> f64| efforts.iter().map(of).sum::<f64>();
        let mut lag = Total::default();
        efforts.iter().for_each(|effort| lag.add(&effort.lag));
        ClientUsage {
            workers: each.iter().map(|usage| usage.workers).sum(),
            cpu_user_s: each.iter().map(|usage| usage.cpu_user_s).sum(),
            cpu_sys_s: each.iter().map(|usage| usage.cpu_sys_s).sum(),
            cpu_share: most(|usage| usage.cpu_share),
            run_queue_share: ratio(sum(|effort| effort.queued_s), sum(|effort| effort.worker_s)),
            schedule_lag_p99_ms: lag.to_histogram().quantile_ms(0.99),
            start_lag_ms: most(|usage| usage.start_lag_ms),
            clock: None,
            host: None,
            is_bound: each.iter().any(|usage| usage.is_bound),
        }
    }
}

enum Connected {
    All { took: Duration, now: Moment },
    Not { connected: u32, failure: Failure },
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
