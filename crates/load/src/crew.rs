//! The sessions of one worker and what they share: turns, tickets, arrivals, the recording, the phase.
//!
//! Everything is single-threaded but [`Shared`] and [`StepShared`], which are touched when something goes wrong,
//! and once per batch of transactions.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::driver::Turn;
use crate::executor::Core;
use crate::plan::RetryPolicy;
use crate::recording::{IntervalData, Recording, Stage, Timeline};
use crate::result::Outcomes;
use crate::rng::Rng;
use crate::run::Stop;
use crate::schedule::{Arrival, Schedule};
use crate::session::Failure;
use crate::time::Moment;
use crate::usage::{ProcessCpu, ThreadMeter, ThreadTime};
use crate::worker::Report;

/// Connections that a worker opens at the same time: more would only queue at the server and hold log-in
/// buffers.
const OPENING_MAX: u32 = 32;
/// Largest batch of transactions that a worker claims from the common count.
const TICKETS_MAX: u64 = 256;

/// What all workers look at when something goes wrong.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) stop: Stop,
    /// The step is to end; set with `reason`.
    has_ended: AtomicBool,
    reason: Mutex<Option<String>>,
    last_refusal: Mutex<Option<String>>,
}

impl Shared {
    pub(crate) fn new(stop: Stop) -> Shared {
        Shared { stop, ..Shared::default() }
    }

    /// Ends the step, and the run, with this reason, unless there is one already.
    pub(crate) fn end_with(&self, reason: String) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.has_ended.store(true, Ordering::Release);
    }

    pub(crate) fn reason(&self) -> Option<String> {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Remembers why a connection could not be opened.
    fn note_refusal(&self, failure: &Failure) {
        let text = format!("{}: {}", failure.code, failure.text);
        *self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(text);
    }

    /// Why a connection could not be opened, the last time.
    pub(crate) fn last_refusal(&self) -> Option<String> {
        self.last_refusal.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn must_halt(&self) -> bool {
        self.stop.is_requested() || self.has_ended.load(Ordering::Acquire)
    }
}

/// What the workers share in one step.
#[derive(Debug)]
pub(crate) struct StepShared {
    /// Transactions that nobody has claimed; only in a closed loop with a fixed number of them (in open loop each
    /// worker's schedule has its own).
    tickets: Option<AtomicU64>,
    workers: u64,
    /// Workers whose measured phase is not over.
    measuring: AtomicU32,
    pub(crate) cpu: Mutex<(Option<ProcessCpu>, Option<ProcessCpu>)>,
}

impl StepShared {
    pub(crate) fn new(tickets: Option<u64>, workers: u32) -> StepShared {
        StepShared {
            tickets: tickets.map(AtomicU64::new),
            workers: workers.into(),
            measuring: AtomicU32::new(workers),
            cpu: Mutex::default(),
        }
    }

    /// Takes a batch: large while there are many, single ones at the end, so that no worker sits on
    /// transactions that another could run.
    fn claim(&self) -> u64 {
        let Some(tickets) = &self.tickets else { return 0 };
        let share = |left: u64| (left / (self.workers * 8)).clamp(1, TICKETS_MAX).min(left);
        tickets
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - share(left)))
            .map_or(0, share)
    }
}

/// Parts of the plan that sessions need.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) retry: RetryPolicy,
    pub(crate) think_time: Duration,
    pub(crate) drain: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Sessions connect, leave, wait for the next step.
    Between,
    /// Warm-up and measured phase.
    Running,
    /// What has begun (and in open loop: what has arrived) may finish.
    Draining,
}

/// A session's place in its crew.
#[derive(Debug)]
pub(crate) struct Seat {
    pub(crate) index: u32,
    /// Open loop: the arrival that was handed to it while it was idle.
    assigned: Cell<Option<Arrival>>,
    is_idle: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    pub(crate) is_connected: Cell<bool>,
    pub(crate) is_busy: Cell<bool>,
    /// The transaction that it is busy with: when it should have begun, and whether it is counted.
    turn: Cell<(Moment, bool)>,
    pub(crate) has_finished: Cell<bool>,
    /// When it may begin to connect.
    pub(crate) opens_at: Moment,
}

impl Seat {
    pub(crate) fn new(index: u32, opens_at: Moment) -> Seat {
        Seat {
            index,
            assigned: Cell::new(None),
            is_idle: Cell::new(false),
            waker: RefCell::new(None),
            is_connected: Cell::new(false),
            is_busy: Cell::new(false),
            turn: Cell::new((Moment::START, false)),
            has_finished: Cell::new(false),
            opens_at,
        }
    }

    fn wait(&self, cx: &Context<'_>) -> Poll<Option<Turn>> {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// The running step of a worker.
pub(crate) struct StepState {
    pub(crate) timeline: Timeline,
    pub(crate) shared: Arc<StepShared>,
    /// Tickets claimed and not used.
    pub(crate) tickets: u64,
    /// The common count is used up too.
    pub(crate) is_out_of_tickets: bool,
    /// Transactions with a ticket that have not ended.
    pub(crate) counted_busy: u32,
    pub(crate) last_end: Moment,
    /// What has not begun is not begun any more.
    pub(crate) is_hopeless: bool,
    pub(crate) thread_before: ThreadTime,
    pub(crate) end: Option<StepEnd>,
}

/// Where a worker stood when its measured phase ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepEnd {
    pub(crate) at: Moment,
    pub(crate) in_flight: u64,
    pub(crate) backlog: u64,
    /// Arrivals of the measured phase, in open loop.
    pub(crate) arrivals: Option<u64>,
    pub(crate) thread: ThreadTime,
}

/// What the sessions of a worker share.
pub(crate) struct Crew {
    pub(crate) core: Rc<Core>,
    pub(crate) worker: usize,
    pub(crate) rules: Rules,
    pub(crate) shared: Arc<Shared>,
    reports: Sender<Report>,
    spares: Receiver<Box<IntervalData>>,
    meter: ThreadMeter,
    classes: usize,
    pub(crate) phase: Cell<Phase>,
    /// Sessions from this index on leave.
    pub(crate) keep: Cell<u32>,
    pub(crate) seats: RefCell<BTreeMap<u32, (Rc<Seat>, usize)>>,
    pub(crate) connected: Cell<u32>,
    busy: Cell<u32>,
    finished: Cell<u32>,
    opening: Cell<u32>,
    door: RefCell<VecDeque<Waker>>,
    /// Open loop: sessions without work, the longest idle first.
    idle: RefCell<VecDeque<Rc<Seat>>>,
    pub(crate) schedule: RefCell<Option<Schedule>>,
    arrivals_waker: RefCell<Option<Waker>>,
    pub(crate) step: RefCell<Option<StepState>>,
    /// The step's transactions are counted out. Beside [`Crew::step`], which closed loops without a fixed number of
    /// transactions have no other need to look at.
    has_tickets: Cell<bool>,
    /// A closed loop, and not counted out: whoever has ended a transaction begins the next.
    is_plain_loop: Cell<bool>,
    /// When the present interval ends: looked at with each reading of the clock.
    boundary: Cell<Moment>,
    interval_began: Cell<Moment>,
    pub(crate) recording: RefCell<Recording>,
    pub(crate) rng: RefCell<Rng>,
    /// While connecting: when the server first refused, and the last refusal.
    pub(crate) refusal: RefCell<Option<(Moment, Failure)>>,
}

impl Crew {
    #[expect(clippy::too_many_arguments, reason = "called once, by the worker that owns all of it")]
    pub(crate) fn new(
        core: Rc<Core>,
        worker: usize,
        rules: Rules,
        shared: Arc<Shared>,
        reports: Sender<Report>,
        spares: Receiver<Box<IntervalData>>,
        classes: usize,
        rng: Rng,
    ) -> Crew {
        let now = core.now();
        Crew {
            core,
            worker,
            rules,
            shared,
            reports,
            spares,
            meter: ThreadMeter::new(),
            classes,
            phase: Cell::new(Phase::Between),
            keep: Cell::new(0),
            seats: RefCell::default(),
            connected: Cell::new(0),
            busy: Cell::new(0),
            finished: Cell::new(0),
            opening: Cell::new(0),
            door: RefCell::default(),
            idle: RefCell::default(),
            schedule: RefCell::new(None),
            arrivals_waker: RefCell::new(None),
            step: RefCell::new(None),
            has_tickets: Cell::new(false),
            is_plain_loop: Cell::new(false),
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

    pub(crate) fn is_leaving(&self, seat: &Seat) -> bool {
        seat.index >= self.keep.get()
    }

    /// Wakes every session that waits for a turn.
    pub(crate) fn wake_all(&self) {
        for (seat, _) in self.seats.borrow().values() {
            seat.wake();
        }
    }

    // ---- connecting ----

    /// Waits until this session may open its connection.
    pub(crate) fn poll_door(self: &Rc<Self>, cx: &Context<'_>) -> Poll<Opening> {
        if self.opening.get() < OPENING_MAX {
            self.opening.set(self.opening.get() + 1);
            return Poll::Ready(Opening(self.clone()));
        }
        self.door.borrow_mut().push_back(cx.waker().clone());
        Poll::Pending
    }

    /// Lets in whoever waits at the door. Called at each sweep as well: a waiter that was cancelled takes its
    /// wake-up with it.
    pub(crate) fn serve_door(&self) {
        for _ in self.opening.get()..OPENING_MAX {
            let Some(waker) = self.door.borrow_mut().pop_front() else { break };
            waker.wake();
        }
    }

    pub(crate) fn set_connected(&self, seat: &Seat, is_connected: bool) {
        if seat.is_connected.replace(is_connected) != is_connected {
            let change = |count: u32| if is_connected { count + 1 } else { count - 1 };
            self.connected.set(change(self.connected.get()));
        }
    }

    /// The server, or the way to it, refused a connection.
    pub(crate) fn note_refusal(&self, failure: &Failure) {
        self.recording.borrow_mut().error(failure);
        self.shared.note_refusal(failure);
        let mut refusal = self.refusal.borrow_mut();
        let since = refusal.as_ref().map_or_else(|| self.core.now(), |(since, _)| *since);
        *refusal = Some((since, failure.clone()));
    }

    /// Something that no repetition can mend; the coordinator wants the words.
    pub(crate) fn note_fatal(&self, failure: &Failure) {
        let now = self.core.now();
        *self.refusal.borrow_mut() = Some((now, failure.clone()));
    }

    /// A session that had been connected is so again.
    pub(crate) fn note_reconnect(&self) {
        self.recording.borrow_mut().reconnected();
    }

    // ---- turns ----

    /// Waits until the session is to run a transaction. `None`: it is to leave.
    #[inline(always)]
    pub(crate) fn poll_turn(&self, seat: &Rc<Seat>, cx: &Context<'_>) -> Poll<Option<Turn>> {
        let is_plain = self.phase.get() == Phase::Running
            && self.is_plain_loop.get()
            && !seat.has_finished.get()
            && !self.is_leaving(seat);
        if !is_plain || !self.core.take_turn() {
            return self.poll_turn_slowly(seat, is_plain, cx);
        }
        let now = self.core.now();
        self.roll_if_due(now);
        // The end of an interval may have been that of the measured phase.
        if self.phase.get() != Phase::Running {
            return seat.wait(cx);
        }
        self.occupy(seat, now, true);
        Poll::Ready(Some(Turn { intended: now, start: now, is_counted: true }))
    }

    /// [`Crew::poll_turn`] where there is more to it than to go on.
    #[inline(never)]
    fn poll_turn_slowly(&self, seat: &Rc<Seat>, was_refused: bool, cx: &Context<'_>) -> Poll<Option<Turn>> {
        if self.is_leaving(seat) {
            return Poll::Ready(None);
        }
        if self.phase.get() == Phase::Between || seat.has_finished.get() {
            return seat.wait(cx);
        }
        if was_refused || !self.core.take_turn() {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let now = self.core.now();
        self.roll_if_due(now);
        let turn = match &mut *self.schedule.borrow_mut() {
            None => self.closed_turn(now),
            Some(schedule) => self.open_turn(seat, schedule, now),
        };
        match turn {
            Some(turn) => {
                self.occupy(seat, turn.intended, turn.is_counted);
                Poll::Ready(Some(turn))
            }
            None => {
                self.end_if_out_of_tickets(now);
                seat.wait(cx)
            }
        }
    }

    #[inline]
    fn occupy(&self, seat: &Seat, intended: Moment, is_counted: bool) {
        seat.is_busy.set(true);
        seat.turn.set((intended, is_counted));
        self.busy.set(self.busy.get() + 1);
    }

    /// Without a transaction left to give out or to wait for, the measured phase of this worker is over.
    pub(crate) fn end_if_out_of_tickets(&self, now: Moment) {
        if !self.has_tickets.get() {
            return;
        }
        if self.recording.borrow().stage != Stage::Measured {
            return;
        }
        let is_exhausted = self.schedule.borrow().as_ref().map(Schedule::is_exhausted);
        let is_out =
            |step: &StepState| is_exhausted.unwrap_or(step.is_out_of_tickets) && step.counted_busy == 0;
        if self.phase.get() == Phase::Running && self.step.borrow().as_ref().is_some_and(is_out) {
            let last_end = self.step.borrow().as_ref().map_or(now, |step| step.last_end);
            self.end_measured(last_end);
        }
    }

    #[inline]
    fn closed_turn(&self, now: Moment) -> Option<Turn> {
        if self.phase.get() != Phase::Running {
            return None;
        }
        let is_counted = self.take_ticket()?;
        Some(Turn { intended: now, start: now, is_counted })
    }

    #[inline(never)]
    fn open_turn(&self, seat: &Rc<Seat>, schedule: &mut Schedule, now: Moment) -> Option<Turn> {
        if let Some(Arrival { intended, is_counted }) =
            seat.assigned.take().or_else(|| self.take_arrival(schedule, now))
        {
            return Some(Turn { intended, start: now, is_counted });
        }
        if !seat.is_idle.replace(true) {
            self.idle.borrow_mut().push_back(seat.clone());
        }
        if let Some(waker) = self.arrivals_waker.borrow_mut().take() {
            waker.wake();
        }
        None
    }

    /// Hands arrivals that are due to idle sessions. Ready with the time of the next arrival, or pending while
    /// nobody is idle: then whoever becomes idle looks at the schedule first.
    pub(crate) fn poll_arrivals(&self, cx: &Context<'_>) -> Poll<Moment> {
        let now = self.core.now();
        self.roll_if_due(now);
        let mut guard = self.schedule.borrow_mut();
        let Some(schedule) = guard.as_mut() else { return Poll::Pending };
        loop {
            let next = schedule.next();
            let mut idle = self.idle.borrow_mut();
            while idle.front().is_some_and(|seat| self.is_leaving(seat)) {
                idle.pop_front();
            }
            let (Some(next), Some(seat)) = (next, idle.front()) else {
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
            seat.is_idle.set(false);
            seat.assigned.set(Some(arrival));
            seat.wake();
            idle.pop_front();
        }
    }

    /// Takes the next arrival if it is due. One of a fixed number is busy from here on, even while it is handed over.
    fn take_arrival(&self, schedule: &mut Schedule, now: Moment) -> Option<Arrival> {
        if self.phase.get() == Phase::Draining && self.is_given_up() {
            return None;
        }
        let arrival = schedule.take_due(now)?;
        if self.has_tickets.get()
            && arrival.is_counted
            && let Some(step) = self.step.borrow_mut().as_mut()
        {
            step.counted_busy += 1;
        }
        Some(arrival)
    }

    /// Whether the next transaction is counted; `None` when the last one has been given out.
    #[inline]
    fn take_ticket(&self) -> Option<bool> {
        if !self.has_tickets.get() {
            return Some(true);
        }
        self.take_counted_ticket()
    }

    #[inline(never)]
    fn take_counted_ticket(&self) -> Option<bool> {
        let mut step = self.step.borrow_mut();
        let step = step.as_mut()?;
        if self.recording.borrow().stage == Stage::Warmup {
            return Some(false);
        }
        if step.tickets == 0 {
            step.tickets = step.shared.claim();
            step.is_out_of_tickets = step.tickets == 0;
        }
        step.tickets = step.tickets.checked_sub(1)?;
        step.counted_busy += 1;
        Some(true)
    }

    /// A transaction is over, whatever its outcome.
    #[inline]
    pub(crate) fn release(&self, seat: &Seat, turn: &Turn, end: Moment) {
        if !seat.is_busy.replace(false) {
            return;
        }
        self.busy.set(self.busy.get() - 1);
        if self.has_tickets.get() {
            self.release_ticket(turn, end);
        }
    }

    #[inline(never)]
    fn release_ticket(&self, turn: &Turn, end: Moment) {
        if let Some(step) = self.step.borrow_mut().as_mut().filter(|_| turn.is_counted) {
            step.counted_busy -= 1;
            step.last_end = step.last_end.max(end);
        }
        self.end_if_out_of_tickets(end);
    }

    /// The session has no more to do in this step; what it took a turn for counts as nothing.
    pub(crate) fn finish(&self, seat: &Seat, turn: &Turn, now: Moment) {
        if seat.is_busy.replace(false) {
            self.busy.set(self.busy.get() - 1);
            let is_ticket = self.has_tickets.get() && turn.is_counted;
            if let Some(step) = self.step.borrow_mut().as_mut().filter(|_| is_ticket) {
                step.counted_busy -= 1;
                match self.schedule.borrow_mut().as_mut() {
                    Some(schedule) => schedule.give_back(),
                    None => step.tickets += 1,
                }
            }
        }
        if !seat.has_finished.replace(true) {
            self.finished.set(self.finished.get() + 1);
        }
        if self.phase.get() == Phase::Running && self.finished.get() as usize >= self.seats.borrow().len() {
            self.end_measured(now);
        }
    }

    // ---- phases ----

    /// A step begins: sets the clockwork; sessions start when `timeline.start` has come.
    pub(crate) fn begin(&self, timeline: Timeline, shared: Arc<StepShared>, schedule: Option<Schedule>) {
        let has_tickets = shared.tickets.is_some();
        let (second, boundary) = timeline.first_interval();
        self.recording.borrow_mut().begin(schedule.is_some(), second);
        self.boundary.set(boundary);
        self.interval_began.set(timeline.start);
        self.has_tickets.set(has_tickets);
        self.is_plain_loop.set(schedule.is_none() && !has_tickets);
        self.core.is_punctual.set(schedule.is_some());
        *self.schedule.borrow_mut() = schedule;
        *self.step.borrow_mut() = Some(StepState {
            timeline,
            shared,
            tickets: 0,
            is_out_of_tickets: false,
            counted_busy: 0,
            last_end: timeline.measured,
            is_hopeless: false,
            thread_before: ThreadTime::default(),
            end: None,
        });
        self.idle.borrow_mut().clear();
        self.finished.set(0);
        for (seat, _) in self.seats.borrow().values() {
            seat.has_finished.set(false);
            seat.assigned.set(None);
            seat.is_idle.set(false);
        }
        if timeline.measured <= timeline.start {
            self.begin_measured();
        }
    }

    /// Sessions may run.
    pub(crate) fn start(&self) {
        self.phase.set(Phase::Running);
        self.wake_all();
        let has_work = !self.seats.borrow().is_empty();
        if !has_work {
            // A worker without sessions has nothing to measure; the others go on.
            self.end_measured(self.core.now());
        }
    }

    fn begin_measured(&self) {
        self.core.timers.lag.borrow_mut().clear();
        if let Some(step) = self.step.borrow_mut().as_mut() {
            self.recording.borrow_mut().begin_measured(step.timeline.measured);
            step.thread_before = self.meter.read();
            let mut cpu = step.shared.cpu.lock().unwrap_or_else(PoisonError::into_inner);
            cpu.0.get_or_insert_with(ProcessCpu::read);
        }
    }

    /// When the present interval ends, while a step runs.
    pub(crate) fn next_boundary(&self) -> Option<Moment> {
        (self.step.borrow().is_some() && self.phase.get() == Phase::Running).then(|| self.boundary.get())
    }

    /// Ends the intervals that are over at `now`. Every reading of the clock that is noted comes through here
    /// first, so that each note falls into the interval of its own time.
    #[inline]
    pub(crate) fn roll_if_due(&self, now: Moment) {
        if now >= self.boundary.get() {
            self.roll(now);
        }
    }

    #[cold]
    fn roll(&self, now: Moment) {
        while self.phase.get() == Phase::Running && now >= self.boundary.get() {
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
        full.connected = self.connected.get();
        full.in_flight = self.busy.get();
        full.waiting_since = self.waiting_since(at);
        self.report(Report::Interval { worker: self.worker, data: full });
    }

    /// Since when the transaction that has waited longest waits: for its answer, or in open loop for a session.
    fn waiting_since(&self, now: Moment) -> Option<Moment> {
        let next = self.schedule.borrow().as_ref().and_then(Schedule::next).filter(|next| *next < now);
        let seats = self.seats.borrow();
        let in_seat = |(seat, _): &(Rc<Seat>, usize)| {
            let busy = Some(seat.turn.get().0).filter(|_| seat.is_busy.get());
            busy.or(seat.assigned.get().map(|arrival| arrival.intended))
        };
        seats.values().filter_map(in_seat).chain(next).min()
    }

    /// The measured phase of this worker ends: on time, with the last transaction, or because it was stopped.
    pub(crate) fn end_measured(&self, at: Moment) {
        if self.phase.get() != Phase::Running {
            return;
        }
        if let Some(schedule) = self.schedule.borrow_mut().as_mut() {
            schedule.end_at(at);
        }
        self.emit(at);
        self.phase.set(Phase::Draining);
        self.boundary.set(far_from(at));
        self.recording.borrow_mut().begin_drain();
        let backlog = self.schedule.borrow().as_ref().map_or(0, |schedule| schedule.due(at));
        if let Some(step) = self.step.borrow_mut().as_mut() {
            let thread = self.meter.read().since(step.thread_before);
            // Of a fixed number only those that belong to it: what the warm-up began is no part of the figures.
            let in_flight = if self.has_tickets.get() { step.counted_busy } else { self.busy.get() };
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
        if self.phase.get() != Phase::Draining || self.busy.get() > 0 {
            return false;
        }
        let is_assigned = || self.seats.borrow().values().any(|(seat, _)| seat.assigned.get().is_some());
        let has_backlog =
            || self.schedule.borrow().as_ref().is_some_and(|schedule| schedule.next().is_some());
        self.is_given_up() || !(has_backlog() || is_assigned())
    }

    /// What has arrived and not begun does not begin any more.
    fn is_given_up(&self) -> bool {
        self.shared.must_halt() || self.step.borrow().as_ref().is_some_and(|step| step.is_hopeless)
    }

    /// The step is over: forgets it and answers what is left of it.
    pub(crate) fn close_step(&self) -> Option<(StepState, Outcomes, u64)> {
        let step = self.step.borrow_mut().take()?;
        self.has_tickets.set(false);
        self.is_plain_loop.set(false);
        self.phase.set(Phase::Between);
        let now = self.core.now();
        let mut recording = self.recording.borrow_mut();
        let mut censored = 0;
        for (seat, _) in self.seats.borrow().values() {
            if let Some(arrival) = seat.assigned.take() {
                censored += 1;
                recording.unended(arrival.intended, now);
            }
        }
        if let Some(schedule) = self.schedule.borrow_mut().take() {
            censored += schedule.due(now);
            schedule.waits(step.timeline.measured, now, &mut recording.late.unended);
        }
        self.idle.borrow_mut().clear();
        recording.stage = Stage::Off;
        Some((step, recording.whole, censored))
    }

    /// Gives up the sessions that still hang in a transaction; they are made anew for the next step.
    pub(crate) fn drop_busy(&self) {
        let hanging: Vec<(u32, usize)> = self
            .seats
            .borrow()
            .iter()
            .filter(|(_, (seat, _))| seat.is_busy.get())
            .map(|(index, (_, task))| (*index, *task))
            .collect();
        let now = self.core.now();
        for (index, task) in hanging {
            self.core.cancel(task);
            if let Some((seat, _)) = self.seats.borrow_mut().remove(&index) {
                let (intended, is_counted) = seat.turn.get();
                if is_counted {
                    self.recording.borrow_mut().unended(intended, now);
                }
                self.set_connected(&seat, false);
                self.busy.set(self.busy.get() - 1);
            }
        }
    }
}

/// The right to open a connection; given back when dropped.
pub(crate) struct Opening(Rc<Crew>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get() - 1);
        self.0.serve_door();
    }
}

/// A time that does not come.
fn far_from(now: Moment) -> Moment {
    now + Duration::from_secs(100 * 365 * 86_400)
}
