//! Where a worker notes what happened. One per worker, shared by its sessions, swapped out once per interval.

use std::time::Instant;

use wire::StatementKind;

/// A session's handle on the recording of its worker. Not `Send`.
#[derive(Debug)]
pub struct Recorder {}

impl Recorder {
    /// The clock that all times come from.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Notes one statement whose answer has just been completed: it began when the transaction did or when the
    /// one before it ended, and ends now. One reading of the clock for each statement.
    ///
    /// `class` indexes the names that the factory gave; a class out of range is a mistake of the program and
    /// panics.
    pub fn lap(&self, _class: usize, _kind: StatementKind) {}

    /// From here on the next [`Recorder::lap`] counts: after work of the client's own inside a transaction
    /// (a script's computing, a think time) that no statement shall be charged with.
    pub fn restart(&self) {}

    /// Notes a latency that is not a statement's (the response time of a type of transaction) under a class of
    /// its own: statement counts do not change.
    pub fn span(&self, _class: usize, _start: Instant, _end: Instant) {}

    /// Notes one statement by its times: `start` and `end` enclose the exchange and nothing else.
    pub fn statement(&self, _class: usize, _kind: StatementKind, _start: Instant, _end: Instant) {}
}
