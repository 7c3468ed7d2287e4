//! The trait that the engine drives. `workload`, `script` and `smack` implement it on top of `wire`.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::{self, Driver};
use crate::recorder::Recorder;

/// How a transaction ended when nothing went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completion {
    /// The server has confirmed it.
    Committed,
    /// Rolled back on purpose (TPC-C's 1 % of new orders).
    RolledBack,
    /// The session decided not to run it.
    Skipped,
    /// The session has no more to do and leaves the step.
    Finished,
}

/// The exclusive classes of failed transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FailureClass {
    /// The server chose this transaction as the victim.
    Deadlock,
    /// It could not be serialized with others.
    Serialization,
    /// It waited too long for a lock.
    LockTimeout,
    /// A key or another constraint was violated.
    Constraint,
    /// The connection was lost, could not be had, or fell silent.
    Connection,
    /// Anything else.
    Other,
}

/// Why a transaction failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    pub class: FailureClass,
    /// What the field calls the error by: `1213`, `40P01`, `timeout`, `io`.
    pub code: String,
    /// The server's own words.
    pub text: String,
    /// The workload allows the same transaction to be tried again.
    pub retryable: bool,
    /// The connection is gone; the engine calls [`Session::open`] before the next transaction.
    pub connection_lost: bool,
    /// Nothing that follows can work (wrong password, missing table): the engine ends the step with this error.
    pub fatal: bool,
}

/// One connection that runs transactions in a loop. It lives on one worker and is never sent to another.
pub trait Session {
    /// Opens the connection (again) and prepares statements. Called before the first transaction and after a
    /// failure with `connection_lost`. On the executor: sockets come from [`crate::net`].
    fn open(&mut self) -> impl Future<Output = Result<(), Failure>>;

    /// Draws the parameters of the next transaction: everything that is not the exchange with the server and can be done before
    /// belongs here. It is outside of service times, and of response times but in the backlog of an open loop, where whoever
    /// waits waits for it, too.
    fn draw(&mut self) {}

    /// How long the session waits, in closed loop, before it starts the transaction that [`Session::draw`] drew:
    /// the keying and thinking of a terminal. Outside of all timing, beside the plan's think time.
    fn pause(&mut self) -> Duration {
        Duration::ZERO
    }

    /// Runs the transaction that [`Session::draw`] drew, from its first statement to the confirmed end.
    /// A retry calls this again with the same parameters. Each statement is told to `recorder` as soon as its
    /// answer is complete ([`Recorder::lap`]).
    fn transaction(&mut self, recorder: &Recorder) -> impl Future<Output = Result<Completion, Failure>>;

    /// After a failure that left the connection usable: brings the session back to where a transaction can
    /// start (ROLLBACK where the server wants one).
    fn recover(&mut self) -> impl Future<Output = Result<(), Failure>>;

    /// Says good-bye. Errors do not matter any more.
    fn close(&mut self) -> impl Future<Output = ()>;
}

/// Makes the sessions of a run. Called on the workers' threads, once for each session and once more for each
/// session that had to be given up (it hung past the drain limit).
///
/// A worker has a table of file descriptors of its own, which costs less with each system call: beside standard
/// input, output and error, sessions can use only descriptors that they open themselves, on their worker.
pub trait SessionFactory: Sync {
    /// Names of the statement classes; [`Recorder::lap`] takes their index.
    fn statement_classes(&self) -> Vec<String>;

    /// The session with this index, 0 to the number of sessions - 1. The same index always means the same
    /// stream of transactions.
    fn session(&self, index: u32) -> Box<dyn AnySession>;
}

/// A [`Session`] whose type has been forgotten. Implemented for every `Session`; nothing else needs it.
pub trait AnySession {
    /// The session's whole life as one task of its worker.
    fn task(self: Box<Self>, driver: Driver) -> Pin<Box<dyn Future<Output = ()>>>;
}

impl<S: Session + 'static> AnySession for S {
    fn task(self: Box<Self>, driver: Driver) -> Pin<Box<dyn Future<Output = ()>>> {
        // One allocation for the session and what drives it: close together in memory.
        Box::pin(driver::drive(*self, driver))
    }
}
