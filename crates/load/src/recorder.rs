//! Where a worker notes what happened: one for each session, all of them writing to the recording of their
//! worker, which is swapped out once per interval.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use wire::StatementKind;

use crate::recording::Ended;
use crate::state::WorkerState;
use crate::time::Moment;

/// A session's handle on the recording of its worker. Not `Send`.
pub struct Recorder {
    state: Rc<WorkerState>,
    /// When the transaction should have begun.
    intended: Cell<Moment>,
    /// When it began.
    began: Cell<Moment>,
    /// Where the next lap begins.
    mark: Cell<Moment>,
    /// Whether the transaction belongs to the figures (with a fixed number of transactions, those that began in
    /// the warm-up do not).
    is_counted: Cell<bool>,
}

impl Recorder {
    pub(crate) fn new(state: Rc<WorkerState>) -> Recorder {
        let now = state.executor.now();
        Recorder {
            state,
            intended: Cell::new(now),
            began: Cell::new(now),
            mark: Cell::new(now),
            is_counted: Cell::new(true),
        }
    }

    /// The clock that all times come from.
    pub fn now(&self) -> Moment {
        self.state.executor.now()
    }

    /// Notes one statement whose answer has just been completed: it began when the transaction did or when the
    /// one before it ended, and ends now. One reading of the clock for each statement.
    ///
    /// `class` indexes the names that the factory gave; a class out of range is a mistake of the program and
    /// panics.
    #[inline(always)]
    pub fn lap(&self, class: usize, kind: StatementKind) {
        let start = self.mark.get();
        let end = self.now();
        self.mark.set(end);
        self.statement(class, kind, start, end);
    }

    /// From here on the next [`Recorder::lap`] counts: after work of the client's own inside a transaction
    /// (a script's computing, a think time) that no statement shall be charged with.
    pub fn restart(&self) {
        self.mark.set(self.now());
    }

    /// The transaction ends here, with work of the client's own behind its last statement; answers how long it took.
    pub fn finish(&self) -> Duration {
        self.restart();
        self.mark.get() - self.began.get()
    }

    /// Notes one statement by its times: `start` and `end` enclose the exchange and nothing else.
    #[inline(always)]
    pub fn statement(&self, class: usize, kind: StatementKind, start: Moment, end: Moment) {
        self.state.roll_if_due(end);
        self.state.recording.borrow_mut().statement(
            class,
            kind,
            self.is_counted.get(),
            end.nanos_since(start),
        );
    }

    /// The transaction, whose last answer has just been completed, was of this class: notes its response time, from the
    /// intended start, beside those of all transactions. Statement counts do not change.
    pub fn transaction(&self, class: usize) {
        let (intended, start) = (self.intended.get(), self.began.get());
        let ended = Ended { intended, start, end: self.now(), is_counted: self.is_counted.get() };
        self.state.roll_if_due(ended.end);
        self.state.recording.borrow_mut().transaction(class, &ended);
    }

    /// A transaction begins that should have begun when it was `intended`.
    #[inline(always)]
    pub(crate) fn begin(&self, intended: Moment, start: Moment, is_counted: bool) {
        self.intended.set(intended);
        self.began.set(start);
        self.mark.set(start);
        self.is_counted.set(is_counted);
    }

    pub(crate) fn is_counted(&self) -> bool {
        self.is_counted.get()
    }
}
