//! What the sessions of one worker share: turns, the transactions left, arrivals, the recording, what it is at.
//!
//! Everything is single-threaded but [`Shared`] and [`StepShared`].

mod opening;
mod quota;
mod shared;
mod slots;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use self::opening::OpeningLimit;
use self::quota::Quota;
pub(crate) use self::shared::{Shared, StepShared};
pub(crate) use self::slots::SessionSlot;
use self::slots::SessionSlots;
use crate::driver::Turn;
use crate::executor::Executor;
use crate::plan::RetryPolicy;
use crate::recording::{IntervalData, Phase, Recording, Timeline};
use crate::result::Outcomes;
use crate::rng::Rng;
use crate::schedule::{Arrival, Schedule};
use crate::session::Failure;
use crate::time::Moment;
use crate::usage::{ProcessCpu, ThreadMeter, ThreadTime};
use crate::worker::Report;

/// Parts of the plan that sessions need.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Rules {
    pub(crate) retry: RetryPolicy,
    pub(crate) think_time: Duration,
    pub(crate) drain: Duration,
}

/// What a worker is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Sessions connect, leave, wait for the next step.
    Between,
    /// Warm-up and measured phase.
    Running,
    /// What has begun (and in open loop: what has arrived) may finish.
    Draining,
}

/// The running step of a worker.
pub(crate) struct StepState {
    pub(crate) timeline: Timeline,
    pub(crate) shared: Arc<StepShared>,
    /// What has not begun is not begun any more.
    pub(crate) is_hopeless: bool,
    /// When its sessions were let go.
    pub(crate) started: Option<Moment>,
    pub(crate) thread_before: ThreadTime,
    pub(crate) end: Option<StepEnd>,
}

/// Where a worker stood when its measured phase ended.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct StepEnd {
    pub(crate) at: Moment,
    pub(crate) in_flight: u64,
    pub(crate) backlog: u64,
    /// Arrivals of the measured phase, in open loop.
    pub(crate) arrivals: Option<u64>,
    pub(crate) thread: ThreadTime,
}

/// What the sessions of a worker share.
pub(crate) struct WorkerState {
    pub(crate) executor: Rc<Executor>,
    pub(crate) worker: usize,
    pub(crate) rules: Rules,
    pub(crate) shared: Arc<Shared>,
    reports: Sender<Report>,
    spares: Receiver<Box<IntervalData>>,
    meter: ThreadMeter,
    classes: usize,
    pub(crate) activity: Cell<Activity>,
    pub(crate) slots: SessionSlots,
    pub(crate) opening_limit: Rc<OpeningLimit>,
    quota: Quota,
    /// Open loop: sessions without work, the longest idle first.
    idle: RefCell<VecDeque<Rc<SessionSlot>>>,
    pub(crate) schedule: RefCell<Option<Schedule>>,
    arrivals_waker: RefCell<Option<Waker>>,
    pub(crate) step: RefCell<Option<StepState>>,
    /// When the present interval ends: looked at with each reading of the clock.
    boundary: Cell<Moment>,
    interval_began: Cell<Moment>,
    pub(crate) recording: RefCell<Recording>,
    pub(crate) rng: RefCell<Rng>,
    /// While connecting: when the server first refused, and the last refusal.
    pub(crate) refusal: RefCell<Option<(Moment, Failure)>>,
}

impl WorkerState {
    #[expect(clippy::too_many_arguments, reason = "called once, by the worker that owns all of it")]
    pub(crate) fn new(
        executor: Rc<Executor>,
        worker: usize,
        rules: Rules,
        shared: Arc<Shared>,
        reports: Sender<Report>,
        spares: Receiver<Box<IntervalData>>,
        classes: usize,
        rng: Rng,
    ) -> WorkerState {
        let now = executor.now();
        WorkerState {
            executor,
            worker,
            rules,
            shared,
            reports,
            spares,
            meter: ThreadMeter::new(),
            classes,
            activity: Cell::new(Activity::Between),
            slots: SessionSlots::default(),
            opening_limit: Rc::default(),
            quota: Quota::new(),
            idle: RefCell::default(),
            schedule: RefCell::new(None),
            arrivals_waker: RefCell::new(None),
            step: RefCell::new(None),
            boundary: Cell::new(far_from(now)),
            interval_began: Cell::new(now),
            recording: RefCell::new(Recording::new(classes)),
            rng: RefCell::new(rng),
            refusal: RefCell::new(None),
        }
    }

    pub(crate) fn report(&self, report: Report) {
        // The coordinator is gone only when the run is over for another reason.
        let _ = self.reports.send(report);
    }

    /// Whether transactions arrive by a schedule in this step.
    pub(crate) fn is_open_loop(&self) -> bool {
        self.schedule.borrow().is_some()
    }

    /// The server, or the way to it, refused a connection.
    pub(crate) fn note_refusal(&self, failure: &Failure) {
        self.recording.borrow_mut().error(failure);
        self.shared.note_refusal(failure);
        let mut refusal = self.refusal.borrow_mut();
        let since = refusal.as_ref().map_or_else(|| self.executor.now(), |(since, _)| *since);
        *refusal = Some((since, failure.clone()));
    }

    /// Something that no repetition can mend; the coordinator wants the words.
    pub(crate) fn note_fatal(&self, failure: &Failure) {
        let now = self.executor.now();
        *self.refusal.borrow_mut() = Some((now, failure.clone()));
    }

    /// A session that had been connected is so again.
    pub(crate) fn note_reconnect(&self) {
        self.recording.borrow_mut().reconnected();
    }

    // ---- turns ----

    /// Waits until the session is to run a transaction. `None`: it is to leave.
    pub(crate) fn poll_turn(&self, slot: &Rc<SessionSlot>, cx: &Context<'_>) -> Poll<Option<Turn>> {
        if self.slots.is_leaving(slot) {
            return Poll::Ready(None);
        }
        if self.activity.get() == Activity::Between || slot.has_finished.get() {
            return slot.wait(cx);
        }
        if !self.executor.take_turn() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let now = self.executor.now();
        self.roll_if_due(now);
        let turn = match &mut *self.schedule.borrow_mut() {
            None => self.closed_turn(now),
            Some(schedule) => self.open_turn(slot, schedule, now),
        };
        match turn {
            Some(turn) => {
                self.slots.occupy(slot, turn.intended, turn.is_counted);
                Poll::Ready(Some(turn))
            }
            None => {
                self.end_if_used_up();
                slot.wait(cx)
            }
        }
    }

    /// Without a transaction left to give out or to wait for, the measured phase of this worker is over.
    pub(crate) fn end_if_used_up(&self) {
        if !self.quota.is_limited.get() {
            return;
        }
        if self.recording.borrow().phase != Phase::Measured {
            return;
        }
        let is_exhausted = self.schedule.borrow().as_ref().map(Schedule::is_exhausted);
        let is_out = is_exhausted.unwrap_or(self.quota.is_used_up.get()) && self.quota.busy.get() == 0;
        if self.activity.get() == Activity::Running && self.step.borrow().is_some() && is_out {
            self.end_measured(self.quota.last_end.get());
        }
    }

    #[inline]
    fn closed_turn(&self, now: Moment) -> Option<Turn> {
        if self.activity.get() != Activity::Running {
            return None;
        }
        let is_counted = self.take_from_quota()?;
        Some(Turn { intended: now, start: now, is_counted })
    }

    #[inline(never)]
    fn open_turn(&self, slot: &Rc<SessionSlot>, schedule: &mut Schedule, now: Moment) -> Option<Turn> {
        if let Some(Arrival { intended, is_counted }) =
            slot.assigned.take().or_else(|| self.take_arrival(schedule, now))
        {
            return Some(Turn { intended, start: now, is_counted });
        }
        if !slot.is_idle.replace(true) {
            self.idle.borrow_mut().push_back(slot.clone());
        }
        if let Some(waker) = self.arrivals_waker.borrow_mut().take() {
            waker.wake();
        }
        None
    }

    /// Hands arrivals that are due to idle sessions. Ready with the time of the next arrival, or pending while
    /// nobody is idle: then whoever becomes idle looks at the schedule first.
    pub(crate) fn poll_arrivals(&self, cx: &Context<'_>) -> Poll<Moment> {
        let now = self.executor.now();
        self.roll_if_due(now);
        let mut guard = self.schedule.borrow_mut();
        let Some(schedule) = guard.as_mut() else { return Poll::Pending };
        loop {
            let next = schedule.next();
            let mut idle = self.idle.borrow_mut();
            while idle.front().is_some_and(|slot| self.slots.is_leaving(slot)) {
                idle.pop_front();
            }
            let (Some(next), Some(slot)) = (next, idle.front()) else {
                *self.arrivals_waker.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            };
            if next > now {
                return Poll::Ready(next);
            }
            let Some(arrival) = self.take_arrival(schedule, now) else {
                *self.arrivals_waker.borrow_mut() = Some(cx.waker().clone());
                return Poll::Pending;
            };
            slot.is_idle.set(false);
            slot.assigned.set(Some(arrival));
            slot.wake();
            idle.pop_front();
        }
    }

    /// Takes the next arrival if it is due. One of a fixed number is busy from here on, even while it is handed over.
    fn take_arrival(&self, schedule: &mut Schedule, now: Moment) -> Option<Arrival> {
        if self.activity.get() == Activity::Draining && self.is_given_up() {
            return None;
        }
        let arrival = schedule.take_due(now)?;
        if self.quota.is_limited.get() && arrival.is_counted {
            self.quota.begin();
        }
        Some(arrival)
    }

    /// Whether the next transaction is counted; `None` when the last one has been given out.
    #[inline]
    fn take_from_quota(&self) -> Option<bool> {
        if !self.quota.is_limited.get() {
            return Some(true);
        }
        self.take_counted()
    }

    #[inline(never)]
    fn take_counted(&self) -> Option<bool> {
        let step = self.step.borrow();
        let step = step.as_ref()?;
        if self.recording.borrow().phase == Phase::Warmup {
            return Some(false);
        }
        self.quota.take(&step.shared).then_some(true)
    }

    /// A transaction is over, whatever its outcome.
    #[inline]
    pub(crate) fn release(&self, slot: &SessionSlot, turn: &Turn, end: Moment) {
        if self.slots.vacate(slot) && self.quota.is_limited.get() {
            self.release_counted(turn, end);
        }
    }

    #[inline(never)]
    fn release_counted(&self, turn: &Turn, end: Moment) {
        if turn.is_counted {
            self.quota.end(end);
        }
        self.end_if_used_up();
    }

    /// The session has no more to do in this step; what it took a turn for counts as nothing.
    pub(crate) fn finish(&self, slot: &SessionSlot, turn: &Turn, now: Moment) {
        if self.slots.vacate(slot) && self.quota.is_limited.get() && turn.is_counted {
            let mut schedule = self.schedule.borrow_mut();
            self.quota.give_back(schedule.is_some());
            if let Some(schedule) = schedule.as_mut() {
                schedule.give_back();
            }
        }
        let have_all_finished = self.slots.finish(slot);
        if self.activity.get() == Activity::Running && have_all_finished {
            self.end_measured(now);
        }
    }

    // ---- steps ----

    /// A step begins: sets the clockwork; sessions start when `timeline.start` has come.
    pub(crate) fn begin(&self, timeline: Timeline, shared: Arc<StepShared>, schedule: Option<Schedule>) {
        let is_limited = shared.quota.is_some();
        let (second, boundary) = timeline.first_interval();
        self.recording.borrow_mut().begin(schedule.is_some(), second);
        self.boundary.set(boundary);
        self.interval_began.set(timeline.start);
        self.quota.reset(is_limited, timeline.measured);
        self.executor.is_punctual.set(schedule.is_some());
        *self.schedule.borrow_mut() = schedule;
        *self.step.borrow_mut() = Some(StepState {
            timeline,
            shared,
            is_hopeless: false,
            started: None,
            thread_before: ThreadTime::default(),
            end: None,
        });
        self.idle.borrow_mut().clear();
        self.slots.reset();
        if timeline.measured <= timeline.start {
            self.begin_measured();
        }
    }

    /// Sessions may run.
    pub(crate) fn start(&self) {
        self.activity.set(Activity::Running);
        if let Some(step) = self.step.borrow_mut().as_mut() {
            step.started = Some(self.executor.now());
        }
        self.slots.wake_all();
        if self.slots.count() == 0 {
            // A worker without sessions has nothing to measure; the others go on.
            self.end_measured(self.executor.now());
        }
    }

    fn begin_measured(&self) {
        self.executor.timers.lag.borrow_mut().clear();
        if let Some(step) = self.step.borrow_mut().as_mut() {
            self.recording.borrow_mut().begin_measured(step.timeline.measured);
            step.thread_before = self.meter.read();
            let mut cpu = step.shared.cpu.lock().unwrap_or_else(PoisonError::into_inner);
            cpu.0.get_or_insert_with(ProcessCpu::read);
        }
    }

    /// When the present interval ends, while a step runs.
    pub(crate) fn next_boundary(&self) -> Option<Moment> {
        (self.step.borrow().is_some() && self.activity.get() == Activity::Running)
            .then(|| self.boundary.get())
    }

    /// Ends the intervals that are over at `now`. Every reading of the clock that is noted comes through here
    /// first, so that each note falls into the interval of its own time (but for a failure that only a failed recovery made
    /// final, which falls into that of the recovery's end).
    #[inline]
    pub(crate) fn roll_if_due(&self, now: Moment) {
        if now >= self.boundary.get() {
            self.roll(now);
        }
    }

    #[cold]
    fn roll(&self, now: Moment) {
        while self.activity.get() == Activity::Running && now >= self.boundary.get() {
            let boundary = self.boundary.get();
            let Some(timeline) = self.step.borrow().as_ref().map(|step| step.timeline) else { break };
            if timeline.end.is_some_and(|end| boundary >= end) {
                return self.end_measured(boundary);
            }
            self.emit(boundary);
            if boundary == timeline.measured {
                self.begin_measured();
            }
            self.boundary.set(timeline.after(boundary));
        }
    }

    /// Sends the present interval, which ends at `at`, and takes an empty one.
    fn emit(&self, at: Moment) {
        let fresh = self.spares.try_recv().unwrap_or_else(|_| Box::new(IntervalData::new(self.classes)));
        let backlog = self.schedule.borrow().as_ref().map_or(0, |schedule| schedule.due(at));
        let mut full = self.recording.borrow_mut().turn_over(fresh);
        full.duration = at - self.interval_began.replace(at);
        full.backlog = backlog;
        full.connected = self.slots.connected_count();
        full.in_flight = self.slots.busy.get();
        full.waiting_since = self.waiting_since(at);
        self.report(Report::Interval { worker: self.worker, data: full });
    }

    /// Since when the transaction that has waited longest waits: for its answer, or in open loop for a session.
    fn waiting_since(&self, now: Moment) -> Option<Moment> {
        let next = self.schedule.borrow().as_ref().and_then(Schedule::next).filter(|next| *next < now);
        self.slots.waiting_since().into_iter().chain(next).min()
    }

    /// The measured phase of this worker ends: on time, with the last transaction, or because it was stopped.
    pub(crate) fn end_measured(&self, at: Moment) {
        if self.activity.get() != Activity::Running {
            return;
        }
        if let Some(schedule) = self.schedule.borrow_mut().as_mut() {
            schedule.end_at(at);
        }
        self.emit(at);
        self.activity.set(Activity::Draining);
        self.boundary.set(far_from(at));
        self.recording.borrow_mut().begin_drain();
        let backlog = self.schedule.borrow().as_ref().map_or(0, |schedule| schedule.due(at));
        if let Some(step) = self.step.borrow_mut().as_mut() {
            let thread = self.meter.read().since(step.thread_before);
            // Of a fixed number only those that belong to it: what the warm-up began is no part of the figures.
            let in_flight =
                if self.quota.is_limited.get() { self.quota.busy.get() } else { self.slots.busy.get() };
            let measured = step.timeline.measured;
            let arrivals = self.schedule.borrow().as_ref().map(|schedule| schedule.between(measured, at));
            step.end = Some(StepEnd { at, in_flight: in_flight.into(), backlog, arrivals, thread });
            let served_s = (at - measured).as_secs_f64();
            if let Some(arrivals) = arrivals {
                // At the rate that was served, the backlog would take longer than anybody waits: none of it is begun,
                // which leaves every part of it its lower bound.
                let served = arrivals.saturating_sub(backlog) as f64 / served_s.max(1e-9);
                step.is_hopeless = backlog as f64 > served * self.rules.drain.as_secs_f64();
            }
            let mut cpu = step.shared.cpu.lock().unwrap_or_else(PoisonError::into_inner);
            if step.shared.measuring.fetch_sub(1, Ordering::AcqRel) == 1 {
                cpu.1 = Some(ProcessCpu::read());
            }
        }
    }

    /// Ends the step at once (stopped, or something fatal): nothing new begins, not even what has arrived.
    pub(crate) fn halt(&self, now: Moment) {
        self.end_measured(now);
    }

    /// Whether everything that the step began, and in open loop everything that had arrived, is over.
    pub(crate) fn is_drained(&self) -> bool {
        if self.activity.get() != Activity::Draining || self.slots.busy.get() > 0 {
            return false;
        }
        let has_backlog =
            || self.schedule.borrow().as_ref().is_some_and(|schedule| schedule.next().is_some());
        self.is_given_up() || !(has_backlog() || self.slots.has_assigned())
    }

    /// What has arrived and not begun does not begin any more.
    fn is_given_up(&self) -> bool {
        self.shared.must_halt() || self.step.borrow().as_ref().is_some_and(|step| step.is_hopeless)
    }

    /// The step is over: forgets it and answers what is left of it.
    pub(crate) fn close_step(&self) -> Option<(StepState, Outcomes, u64)> {
        let step = self.step.borrow_mut().take()?;
        self.quota.is_limited.set(false);
        self.activity.set(Activity::Between);
        let now = self.executor.now();
        let mut recording = self.recording.borrow_mut();
        let mut censored = 0;
        self.slots.for_each(|slot| {
            if let Some(arrival) = slot.assigned.take() {
                censored += 1;
                recording.unended(arrival.intended, now);
            }
        });
        if let Some(schedule) = self.schedule.borrow_mut().take() {
            censored += schedule.due(now);
            schedule.waits(step.timeline.measured, now, &mut recording.beside.unended);
        }
        self.idle.borrow_mut().clear();
        recording.phase = Phase::Off;
        Some((step, recording.whole, censored))
    }

    /// Gives up the sessions that still hang in a transaction; they are made anew for the next step.
    pub(crate) fn drop_busy(&self) {
        let now = self.executor.now();
        for (slot, task) in self.slots.take_busy() {
            self.executor.cancel(task);
            let (intended, is_counted) = slot.turn.get();
            if is_counted {
                self.recording.borrow_mut().unended(intended, now);
            }
            self.slots.set_connected(&slot, false);
            self.slots.vacate(&slot);
        }
    }
}

/// A time that does not come.
fn far_from(now: Moment) -> Moment {
    now + Duration::from_secs(100 * 365 * 86_400)
}
