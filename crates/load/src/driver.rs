//! The life of a session: open, wait for a turn, run a transaction, note the outcome, again.

use crate::session::Session;

/// What connects a session's task to the pacing and recording of its worker. Opaque to sessions.
#[derive(Debug)]
pub struct Driver {}

/// Drives one session until it is told to leave.
pub(crate) async fn drive<S: Session>(_session: Box<S>, _driver: Driver) {}
