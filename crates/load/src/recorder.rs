//! Where a worker notes what happened. One per worker, shared by its sessions, swapped out once per interval.

use std::time::Instant;

use wire::StatementKind;

/// A session's handle on the recording of its worker. Cheap to clone; not `Send`.
#[derive(Debug, Clone)]
pub struct Recorder {}

impl Recorder {
    /// The clock that all times come from.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Notes one statement: `class` indexes the names that the factory gave, `start` and `end` enclose the
    /// exchange and nothing else.
    pub fn statement(&self, _class: usize, _kind: StatementKind, _start: Instant, _end: Instant) {}
}
