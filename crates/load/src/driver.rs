//! The life of a session: open, wait for a turn, run a transaction, note the outcome, again.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::recorder::Recorder;
use crate::recording::Ended;
use crate::retry;
use crate::session::{Completion, Failure, Session};
use crate::state::{SessionSlot, WorkerState};
use crate::time::{self, Moment};

/// Waits between attempts to open a connection: from the first to the longest.
const REOPEN_PAUSE: Duration = Duration::from_millis(10);
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What connects a session's task to the pacing and recording of its worker. Opaque to sessions.
pub struct Driver {
    state: Rc<WorkerState>,
    slot: Rc<SessionSlot>,
    recorder: Recorder,
}

/// Permission to run one transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Turn {
    /// When it should have begun: response time counts from here.
    pub(crate) intended: Moment,
    /// When it began.
    pub(crate) start: Moment,
    /// Whether it belongs to the figures of the step.
    pub(crate) is_counted: bool,
}

/// Why a session stopped running transactions.
enum Break {
    Leave,
    /// It has lost its connection.
    Lost,
    /// Nothing that follows can work.
    Fatal,
}

/// Drives one session until it is told to leave.
pub(crate) async fn drive<S: Session>(mut session: S, driver: Driver) {
    time::sleep_until(driver.slot.opens_at).await;
    let mut was_connected = false;
    while driver.connect(&mut session, was_connected).await {
        was_connected = true;
        match driver.work(&mut session).await {
            Break::Lost => driver.state.slots.set_connected(&driver.slot, false),
            Break::Leave => {
                driver.leave();
                return session.close().await;
            }
            Break::Fatal => break,
        }
    }
    driver.leave();
}

impl Driver {
    pub(crate) fn new(state: Rc<WorkerState>, slot: Rc<SessionSlot>) -> Driver {
        Driver { recorder: Recorder::new(state.clone()), state, slot }
    }

    /// Its index is free from here on, even while the connection is still being closed.
    fn leave(&self) {
        self.state.slots.set_connected(&self.slot, false);
        self.state.slots.remove(self.slot.index);
    }

    /// Opens the connection, again and again with growing pauses. False: there is no use.
    async fn connect<S: Session>(&self, session: &mut S, is_reopening: bool) -> bool {
        let state = &self.state;
        for attempt in 1.. {
            let opened = {
                let _opening = poll_fn(|cx| state.opening_limit.poll(cx)).await;
                if state.slots.is_leaving(&self.slot) {
                    return false;
                }
                session.open().await
            };
            let Err(failure) = opened else { break };
            if failure.fatal {
                self.end_run(&failure);
                return false;
            }
            state.note_refusal(&failure);
            let pause = retry::backoff(REOPEN_PAUSE, REOPEN_PAUSE_MAX, attempt, &mut state.rng.borrow_mut());
            time::sleep(pause).await;
        }
        state.slots.set_connected(&self.slot, true);
        if is_reopening {
            state.note_reconnect();
        }
        true
    }

    /// Runs transactions until something breaks the loop.
    async fn work<S: Session>(&self, session: &mut S) -> Break {
        let state = &self.state;
        loop {
            session.draw();
            let pause = session.pause();
            if !pause.is_zero() && !state.is_open_loop() {
                self.pause(pause).await;
            }
            let Some(turn) = poll_fn(|cx| state.poll_turn(&self.slot, cx)).await else { return Break::Leave };
            self.recorder.begin(turn.intended, turn.start, turn.is_counted);
            let result = session.transaction(&self.recorder).await;
            let over = match result {
                Ok(completion) => {
                    self.completed(completion, &turn);
                    None
                }
                Err(failure) => self.mend_boxed(session, &turn, failure).await,
            };
            if let Some(over) = over {
                return over;
            }
            if !state.rules.think_time.is_zero() {
                time::sleep(state.rules.think_time).await;
            }
        }
    }

    /// Waits in slices, so that a session that is to leave does not sit out a long pause.
    async fn pause(&self, pause: Duration) {
        const SLICE: Duration = Duration::from_secs(1);
        let until = time::now() + pause;
        while !self.state.slots.is_leaving(&self.slot) {
            let left = until - time::now();
            if left.is_zero() {
                return;
            }
            time::sleep(left.min(SLICE)).await;
        }
    }

    #[inline(always)]
    fn completed(&self, completion: Completion, turn: &Turn) {
        let ended = self.ended(turn);
        if completion == Completion::Finished {
            self.state.finish(&self.slot, turn, ended.end);
        } else {
            self.state.recording.borrow_mut().completed(completion, &ended);
            self.state.release(&self.slot, turn, ended.end);
        }
    }

    fn failed(&self, failure: &Failure, turn: &Turn, ended: &Ended) {
        self.state.recording.borrow_mut().failed(failure, ended);
        self.state.release(&self.slot, turn, ended.end);
    }

    #[inline(always)]
    fn ended(&self, turn: &Turn) -> Ended {
        let end = self.recorder.now();
        self.state.roll_if_due(end);
        Ended { intended: turn.intended, start: turn.start, end, is_counted: self.recorder.is_counted() }
    }

    /// [`Driver::mend`], out of the way of what goes well: boxed, and made where its size widens no hot stack frame.
    #[cold]
    #[inline(never)]
    fn mend_boxed<'a, S: Session>(
        &'a self,
        session: &'a mut S,
        turn: &'a Turn,
        first: Failure,
    ) -> Pin<Box<dyn Future<Output = Option<Break>> + 'a>> {
        Box::pin(self.mend(session, turn, first))
    }

    /// After a failure: brings the session back, tries the transaction again where the rules allow it, and
    /// notes how it ended. The time of recovering belongs to the transaction only if it is tried again.
    async fn mend<S: Session>(&self, session: &mut S, turn: &Turn, first: Failure) -> Option<Break> {
        let state = &self.state;
        let mut failure = first;
        for attempt in 1.. {
            let ended = self.ended(turn);
            state.recording.borrow_mut().error(&failure);
            if failure.fatal {
                self.failed(&failure, turn, &ended);
                self.end_run(&failure);
                return Some(Break::Fatal);
            }
            if failure.connection_lost {
                self.failed(&failure, turn, &ended);
                return Some(Break::Lost);
            }
            let is_last = !failure.retryable || attempt > state.rules.retry.retries_max;
            if is_last {
                self.failed(&failure, turn, &ended);
            }
            if let Err(broken) = session.recover().await {
                state.recording.borrow_mut().error(&broken);
                if !is_last {
                    self.failed(&failure, turn, &ended);
                }
                if broken.fatal {
                    self.end_run(&broken);
                    return Some(Break::Fatal);
                }
                // A session that could not be brought back starts over with a new connection.
                return Some(Break::Lost);
            }
            if is_last {
                return None;
            }
            let pause = state.rules.retry.wait(attempt, &mut state.rng.borrow_mut());
            time::sleep(pause).await;
            self.note_retry();
            self.recorder.restart();
            match session.transaction(&self.recorder).await {
                Ok(completion) => {
                    self.completed(completion, turn);
                    return None;
                }
                Err(again) => failure = again,
            }
        }
        None
    }

    fn note_retry(&self) {
        self.state.roll_if_due(self.state.executor.now());
        if self.recorder.is_counted() {
            self.state.recording.borrow_mut().retry();
        }
    }

    fn end_run(&self, failure: &Failure) {
        self.state.shared.end_with(format!("{}: {}", failure.code, failure.text));
        self.state.note_fatal(failure);
    }
}
