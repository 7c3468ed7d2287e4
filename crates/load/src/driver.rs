//! The life of a session: open, wait for a turn, run a transaction, note the outcome, again.

use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::crew::{Crew, Seat};
use crate::recorder::Recorder;
use crate::recording::Ended;
use crate::retry;
use crate::session::{Completion, Failure, Session};
use crate::time::{self, Moment};

/// Waits between attempts to open a connection: from the first to the longest.
const REOPEN_PAUSE: Duration = Duration::from_millis(10);
const REOPEN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// What connects a session's task to the pacing and recording of its worker. Opaque to sessions.
pub struct Driver {
    crew: Rc<Crew>,
    seat: Rc<Seat>,
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
    /// It is to leave.
    Leave,
    /// It has lost its connection.
    Lost,
    /// Nothing that follows can work.
    Fatal,
}

/// Drives one session until it is told to leave.
pub(crate) async fn drive<S: Session>(mut session: S, driver: Driver) {
    time::sleep_until(driver.seat.opens_at).await;
    let mut was_connected = false;
    while driver.connect(&mut session, was_connected).await {
        was_connected = true;
        match driver.work(&mut session).await {
            Break::Lost => driver.crew.seats.set_connected(&driver.seat, false),
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
    pub(crate) fn new(crew: Rc<Crew>, seat: Rc<Seat>) -> Driver {
        Driver { recorder: Recorder::new(crew.clone()), crew, seat }
    }

    /// The seat is free from here on, even while the connection is still being closed.
    fn leave(&self) {
        self.crew.seats.set_connected(&self.seat, false);
        self.crew.seats.remove(self.seat.index);
    }

    /// Opens the connection, again and again with growing pauses. False: there is no use.
    async fn connect<S: Session>(&self, session: &mut S, is_reopening: bool) -> bool {
        let crew = &self.crew;
        for attempt in 1.. {
            let opened = {
                let _opening = poll_fn(|cx| crew.door.poll(cx)).await;
                if crew.seats.is_leaving(&self.seat) {
                    return false;
                }
                session.open().await
            };
            let Err(failure) = opened else { break };
            if failure.fatal {
                self.end_run(&failure);
                return false;
            }
            crew.note_refusal(&failure);
            let pause = retry::backoff(REOPEN_PAUSE, REOPEN_PAUSE_MAX, attempt, &mut crew.rng.borrow_mut());
            time::sleep(pause).await;
        }
        crew.seats.set_connected(&self.seat, true);
        if is_reopening {
            crew.note_reconnect();
        }
        true
    }

    /// Runs transactions until something breaks the loop.
    async fn work<S: Session>(&self, session: &mut S) -> Break {
        let crew = &self.crew;
        loop {
            session.prepare();
            let pause = session.pause();
            if !pause.is_zero() && !crew.is_open_loop() {
                self.pause(pause).await;
            }
            let Some(turn) = poll_fn(|cx| crew.poll_turn(&self.seat, cx)).await else { return Break::Leave };
            self.recorder.begin(turn.start, turn.is_counted);
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
            if !crew.rules.think_time.is_zero() {
                time::sleep(crew.rules.think_time).await;
            }
        }
    }

    /// Waits in slices, so that a session that is to leave does not sit out a long pause.
    async fn pause(&self, pause: Duration) {
        const SLICE: Duration = Duration::from_secs(1);
        let until = time::now() + pause;
        while !self.crew.seats.is_leaving(&self.seat) {
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
            self.crew.finish(&self.seat, turn, ended.end);
        } else {
            self.crew.recording.borrow_mut().completed(completion, &ended);
            self.crew.release(&self.seat, turn, ended.end);
        }
    }

    fn failed(&self, failure: &Failure, turn: &Turn, ended: &Ended) {
        self.crew.recording.borrow_mut().failed(failure, ended);
        self.crew.release(&self.seat, turn, ended.end);
    }

    #[inline(always)]
    fn ended(&self, turn: &Turn) -> Ended {
        let end = self.recorder.end(turn.start);
        self.crew.roll_if_due(end);
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
        let crew = &self.crew;
        let mut failure = first;
        for attempt in 1.. {
            let ended = self.ended(turn);
            crew.recording.borrow_mut().error(&failure);
            if failure.fatal {
                self.failed(&failure, turn, &ended);
                self.end_run(&failure);
                return Some(Break::Fatal);
            }
            if failure.connection_lost {
                self.failed(&failure, turn, &ended);
                return Some(Break::Lost);
            }
            let is_last = !failure.retryable || attempt > crew.rules.retry.retries_max;
            if is_last {
                self.failed(&failure, turn, &ended);
            }
            if let Err(broken) = session.recover().await {
                crew.recording.borrow_mut().error(&broken);
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
            let pause = crew.rules.retry.wait(attempt, &mut crew.rng.borrow_mut());
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
        self.crew.roll_if_due(self.crew.core.now());
        if self.recorder.is_counted() {
            self.crew.recording.borrow_mut().retry();
        }
    }

    fn end_run(&self, failure: &Failure) {
        self.crew.shared.end_with(format!("{}: {}", failure.code, failure.text));
        self.crew.note_fatal(failure);
    }
}
