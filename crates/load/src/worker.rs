//! A worker: the thread that drives its share of the sessions through the steps.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::Driver;
use crate::executor::{Entered, Executor};
use crate::histogram::Counts;
use crate::recording::{Beside, IntervalData, Timeline};
use crate::result::{ErrorTally, Outcomes};
use crate::rng::Rng;
use crate::schedule::{Schedule, Share};
use crate::session::{Failure, SessionFactory};
use crate::state::{Activity, Rules, SessionSlot, Shared, StepEnd, StepShared, WorkerState};
use crate::time::{self, Clock, Moment};
use crate::tuning::{Trick, is_on};
use crate::usage::{self, ProcessCpu, Urgency};

/// How long sessions may take to say good-bye.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

/// What a worker is to do next.
pub(crate) enum Command {
    /// Bring the number of sessions, over all workers, to `sessions`; open new ones evenly over `ramp`.
    Connect { sessions: u32, ramp: Duration },
    /// Run a step.
    Begin { timeline: Timeline, shared: Arc<StepShared>, share: Option<Share> },
}

/// What a worker tells the coordinator.
#[derive(Serialize, Deserialize)]
pub(crate) enum Report {
    /// All sessions of this worker are connected, or `refusal` says why not.
    Connected { connected: u32, refusal: Option<Failure>, now: Moment },
    /// An interval is over.
    Interval { worker: usize, data: Box<IntervalData> },
    /// The step is over, drained.
    Done { worker: usize, step: Box<WorkerStep> },
    /// Nothing more will come from this worker.
    Lost { reason: String },
    /// Something the user should know.
    Warning(String),
    /// What a whole client process used in the measured phase, before its last worker is done.
    Cpu { client: usize, used: ProcessCpu },
}

impl Report {
    /// See [`Moment::on_clock`].
    pub(crate) fn on_clock(mut self, more_ns: i64) -> Report {
        let shift = |moment: &mut Moment| *moment = moment.on_clock(more_ns);
        match &mut self {
            Report::Connected { now, .. } => shift(now),
            Report::Interval { data, .. } => {
                let IntervalData { commits, waiting_since, .. } = &mut **data;
                commits.iter_mut().for_each(|(first, last)| {
                    shift(first);
                    shift(last);
                });
                waiting_since.iter_mut().for_each(shift);
            }
            Report::Done { step, .. } => {
                // All are named, so that a moment that is new is not forgotten.
                let WorkerStep {
                    end,
                    started,
                    whole: _,
                    drained: _,
                    censored: _,
                    errors: _,
                    lag: _,
                    beside: _,
                    first_drained,
                    closed,
                } = &mut **step;
                let ended = end.as_mut().map(|end| &mut end.at);
                started.iter_mut().chain(first_drained).chain(ended).for_each(shift);
                shift(closed);
            }
            Report::Lost { .. } | Report::Warning(_) | Report::Cpu { .. } => {}
        }
        self
    }
}

/// A worker's sums of one step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct WorkerStep {
    pub(crate) end: Option<StepEnd>,
    /// When its sessions were let go.
    pub(crate) started: Option<Moment>,
    pub(crate) whole: Outcomes,
    pub(crate) drained: u64,
    /// Arrived and never started.
    pub(crate) censored: u64,
    pub(crate) errors: BTreeMap<String, ErrorTally>,
    pub(crate) lag: Counts,
    pub(crate) beside: Beside,
    /// When the first transaction after the measured phase was committed.
    pub(crate) first_drained: Option<Moment>,
    /// When nothing more was waited for.
    pub(crate) closed: Moment,
}

/// What a worker is made of.
pub(crate) struct WorkerSetup {
    pub(crate) worker: usize,
    pub(crate) workers: usize,
    pub(crate) cpu: Option<usize>,
    pub(crate) raise_priority: bool,
    pub(crate) clock: Clock,
    pub(crate) rules: Rules,
    pub(crate) connect_limit: Duration,
    pub(crate) seed: u64,
    pub(crate) classes: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) reports: Sender<Report>,
    pub(crate) spares: Receiver<Box<IntervalData>>,
    pub(crate) commands: Receiver<Command>,
}

/// The thread's body. Ends when the commands do.
pub(crate) fn work(setup: WorkerSetup, factory: &dyn SessionFactory) -> io::Result<()> {
    let WorkerSetup { worker, workers, cpu, raise_priority, clock, connect_limit, seed, classes, .. } = setup;
    if let Some(cpu) = cpu
        && let Err(error) = usage::pin_to(cpu)
    {
        let text = format!("worker {worker} could not be pinned to cpu {cpu} ({error}): it runs on any cpu");
        let _ = setup.reports.send(Report::Warning(text));
    }
    usage::no_timer_slack();
    if clock == Clock::Monotonic && is_on(Trick::OwnDescriptors) {
        usage::own_descriptors();
    }
    let executor = Executor::new(clock)?.enter();
    let rng = Rng::new(seed, worker as u64);
    let state = Rc::new(WorkerState::new(
        executor.clone(),
        worker,
        setup.rules,
        setup.shared,
        setup.reports,
        setup.spares,
        classes,
        rng,
    ));
    let worker =
        Worker { executor: &executor, state, factory, worker, workers, connect_limit, seed, raise_priority };
    for command in setup.commands {
        match command {
            Command::Connect { sessions, ramp } => worker.connect(sessions, ramp)?,
            Command::Begin { timeline, shared, share } => worker.step(timeline, shared, share)?,
        }
    }
    worker.say_goodbye()
}

struct Worker<'a> {
    executor: &'a Entered,
    state: Rc<WorkerState>,
    factory: &'a dyn SessionFactory,
    worker: usize,
    workers: usize,
    connect_limit: Duration,
    seed: u64,
    raise_priority: bool,
}

impl Worker<'_> {
    /// Adds or removes sessions and waits until all are connected.
    fn connect(&self, sessions: u32, ramp: Duration) -> io::Result<()> {
        let state = &self.state;
        let before = state.slots.keep.replace(sessions);
        state.refusal.borrow_mut().take();
        state.slots.wake_all();
        let mine = || (self.worker as u32..sessions).step_by(self.workers);
        let now = self.executor.now();
        for index in mine() {
            if state.slots.holds(index) {
                continue;
            }
            let added = sessions.saturating_sub(before).max(1);
            let opens_at = now + ramp.mul_f64(f64::from(index.saturating_sub(before)) / f64::from(added));
            let slot = Rc::new(SessionSlot::new(index, opens_at));
            let driver = Driver::new(state.clone(), slot.clone());
            let task = self.executor.spawn(self.factory.session(index).task(driver));
            state.slots.add(slot, task);
        }
        let wanted = mine().count() as u32;
        let has_failed = std::cell::Cell::new(false);
        self.executor.run(
            |now| {
                state.opening_limit.serve();
                let since = state.refusal.borrow().as_ref().map(|(since, _)| *since);
                let is_refused = since.is_some_and(|since| now >= since + self.connect_limit);
                has_failed.set(is_refused || state.shared.must_halt());
            },
            || state.slots.connected_count() == wanted || has_failed.get(),
        )?;
        let connected = state.slots.connected_count();
        let refusal = (connected != wanted).then(|| {
            let refusal = state.refusal.borrow();
            refusal.as_ref().map_or_else(stopped_while_connecting, |(_, failure)| failure.clone())
        });
        state.report(Report::Connected { connected, refusal, now: self.executor.now() });
        Ok(())
    }

    /// Runs a step to its drained end.
    fn step(&self, timeline: Timeline, shared: Arc<StepShared>, share: Option<Share>) -> io::Result<()> {
        let state = &self.state;
        self.executor.ticker().advance_to(timeline.start);
        let urgency = match share {
            None if is_on(Trick::Patience) => Urgency::Patient,
            None => Urgency::Ordinary,
            Some(_) if self.raise_priority => Urgency::Urgent,
            Some(_) => Urgency::Ordinary,
        };
        if let Err(error) = urgency.set()
            && urgency == Urgency::Urgent
        {
            state.report(Report::Warning(format!(
                "the workers could not be given priority ({error}): arrivals may start late; run as root or with \
                 CAP_SYS_NICE, or give the client cpus of its own"
            )));
        }
        let stream = 1_000 + self.worker as u64;
        let mut schedule =
            share.map(|share| Schedule::new(timeline.start, share, Rng::new(self.seed, stream)));
        if let (Some(schedule), Some(end)) = (&mut schedule, timeline.end) {
            schedule.end_at(end);
        }
        if let (Some(schedule), Some(count)) = (&mut schedule, share.and_then(|share| share.count)) {
            schedule.count_from(timeline.measured, count);
        }
        state.begin(timeline, shared, schedule);
        let timeline_task = self.executor.spawn(Box::pin(follow_timeline(state.clone(), timeline.start)));
        let arrivals_task = share
            .is_some()
            .then(|| self.executor.spawn(Box::pin(hand_out_arrivals(state.clone(), timeline.start))));
        let is_over = std::cell::Cell::new(false);
        self.executor.run(
            |now| {
                state.opening_limit.serve();
                if state.shared.must_halt() {
                    state.halt(now);
                }
                is_over.set(state.drain_ends_at().is_some_and(|limit| now >= limit));
            },
            || is_over.get() || state.is_drained(),
        )?;
        // Back to what every thread may have: this cannot be refused.
        let _ = Urgency::Ordinary.set();
        self.executor.cancel(timeline_task);
        if let Some(task) = arrivals_task {
            self.executor.cancel(task);
        }
        state.drop_busy();
        let first_drained = state.recording.borrow().first_drained();
        let Some((step, whole, censored)) = state.close_step() else { return Ok(()) };
        let mut recording = state.recording.borrow_mut();
        let step = WorkerStep {
            end: step.end,
            started: step.started,
            whole,
            drained: recording.drained,
            censored,
            errors: std::mem::take(&mut recording.errors),
            lag: self.executor.timers.lag.borrow().clone(),
            beside: std::mem::take(&mut recording.beside),
            first_drained,
            closed: self.executor.now(),
        };
        drop(recording);
        state.report(Report::Done { worker: self.worker, step: Box::new(step) });
        Ok(())
    }

    /// Closes all sessions.
    fn say_goodbye(&self) -> io::Result<()> {
        self.state.slots.keep.set(0);
        self.state.slots.wake_all();
        let limit = self.executor.now() + CLOSE_LIMIT;
        let is_late = std::cell::Cell::new(false);
        self.executor
            .run(|now| is_late.set(now >= limit), || is_late.get() || self.executor.live_tasks() == 0)
    }
}

fn stopped_while_connecting() -> Failure {
    Failure {
        class: crate::session::FailureClass::Connection,
        code: "stopped".into(),
        text: "stopped while sessions were being opened".into(),
        retryable: false,
        connection_lost: true,
        fatal: false,
    }
}

/// Starts the step on time and ends each interval on time, however quiet the sessions are.
async fn follow_timeline(state: Rc<WorkerState>, start: Moment) {
    time::sleep_until(start).await;
    state.start();
    while let Some(boundary) = state.next_boundary() {
        time::sleep_until(boundary).await;
        let now = state.executor.now();
        state.roll_if_due(now);
        // A worker whose part of a fixed number of transactions is none.
        state.end_if_used_up();
    }
}

/// Hands arrivals to idle sessions when they are due.
async fn hand_out_arrivals(state: Rc<WorkerState>, start: Moment) {
    time::sleep_until(start).await;
    loop {
        let next = poll_fn(|cx| state.poll_arrivals(cx)).await;
        time::sleep_until(next).await;
    }
}

impl WorkerState {
    /// When what is still going on is given up.
    fn drain_ends_at(&self) -> Option<Moment> {
        if self.activity.get() != Activity::Draining {
            return None;
        }
        self.step.borrow().as_ref().and_then(|step| step.end).map(|end| end.at + self.rules.drain)
    }
}
