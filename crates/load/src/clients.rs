//! A load whose sessions live in several client processes, which this one leads: what one process cannot hold (open files,
//! a table of descriptors, one allocator) several can, and histograms are merged as those of threads are.
//!
//! The workers of all clients are the workers of one load: session `s` is the same session, and draws the same numbers, as
//! it would in one process. A client hears and answers lines of JSON; who starts the process, on which machine, and by which
//! way the lines go, is not decided here. How far a client's clock is from the leader's is measured before each load. Those
//! of another machine show another time: the leader translates what it tells them and what they tell it.

mod lead;
mod serve;

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use self::lead::{Ran, run_on_clients};
pub use self::serve::{Serving, serve};
use crate::recording::Timeline;
use crate::run::Team;
use crate::schedule::Share;
use crate::time::Moment;
use crate::worker::Report;

/// A client process, as its leader has it.
pub struct Client {
    /// For people: `client 2 (process 4711)`.
    pub name: String,
    /// What it reads.
    pub orders: Box<dyn Write + Send>,
    /// What it answers.
    pub answers: Box<dyn BufRead + Send>,
    /// The process itself.
    pub process: Box<dyn Process>,
    /// The name of its machine, of which it may use all cpus; `None`: it is the leader's.
    pub host: Option<String>,
}

/// What can be done about a process that does not answer.
pub trait Process: Send + Sync {
    /// Ends it at once.
    fn kill(&self);

    /// How it ended, with its last words; waits for the end.
    fn how_it_ended(&self) -> String;
}

/// How far the clocks of a client and its leader agree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockAgreement {
    /// The client's reading less the leader's at the same time, as well as it can be told.
    pub offset_ns: i64,
    /// Half of the time that question and answer took: the offset is known no better.
    pub within_ns: u64,
}

/// Readings that differ by less than this, beyond what the answers took, are of one clock.
const SAME_CLOCK: Duration = Duration::from_millis(1);

impl ClockAgreement {
    /// What the client's clock shows more: 0 where it is the leader's own clock, which a measurement could only blur.
    fn more_ns(self) -> i64 {
        let could_be_same = self.within_ns.saturating_add(SAME_CLOCK.as_nanos() as u64);
        if self.offset_ns.unsigned_abs() <= could_be_same { 0 } else { self.offset_ns }
    }
}

/// What a client is told.
#[derive(Serialize, Deserialize)]
pub(crate) enum Order {
    /// To say what its clock shows.
    Clock,
    /// Which workers to have; `sessions` is the largest number of sessions that live in the process.
    Team { team: Team, sessions: u64 },
    /// See [`crate::worker::Command::Connect`].
    Connect { sessions: u32, ramp: Duration },
    /// Run a step, which begins and ends by the client's clock: `quota` is the client's part of the transactions, `shares`
    /// has one for each of its workers.
    Begin { timeline: Timeline, quota: Option<u64>, shares: Vec<Option<Share>> },
    /// End the step with this reason; `None`: the user stopped it.
    Halt { reason: Option<String> },
    /// The load is over.
    End,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
pub(crate) enum Answer {
    Clock {
        now: Moment,
    },
    /// It has its workers, or why not.
    Team {
        refusal: Option<String>,
    },
    /// What a worker tells.
    Report(Report),
    /// One of its sessions met what ends the load.
    Ending {
        reason: String,
    },
    /// Why a connection could not be opened, the last time.
    Refusal {
        text: String,
    },
    /// Nothing else to tell.
    Alive,
    /// The load is over and all sessions are gone; `text` is for whoever started the process.
    Farewell {
        text: String,
    },
}

/// Sends a message: one a line, in JSON.
///
/// # Errors
/// Nobody reads any more.
pub fn send(message: &impl Serialize, to: &mut dyn Write) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)?;
    to.flush()
}

/// The next message; `None`: nothing more will come.
///
/// # Errors
/// It cannot be read, or is no such message.
pub fn receive<M: DeserializeOwned>(from: &mut dyn BufRead) -> io::Result<Option<M>> {
    let mut line = Vec::new();
    // A process that was killed leaves half a line.
    if from.read_until(b'\n', &mut line)? == 0 || !line.ends_with(b"\n") {
        return Ok(None);
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// The leader's way to a client.
pub(crate) struct Line<'a> {
    name: &'a str,
    /// See [`Client::host`].
    host: Option<&'a str>,
    orders: Mutex<&'a mut (dyn Write + Send)>,
    process: &'a dyn Process,
    /// When it last told something.
    heard: AtomicU64,
    /// It was told to halt.
    is_halted: AtomicBool,
    /// It took its leave, was lost, or was ended.
    is_gone: AtomicBool,
    /// Of its clock with the leader's, once that was measured.
    clock: OnceLock<ClockAgreement>,
}

impl Line<'_> {
    /// What its clock shows more than the leader's, in nanoseconds.
    fn clock_more_ns(&self) -> i64 {
        self.clock.get().map_or(0, |clock| clock.more_ns())
    }

    /// How long an order is under way, about.
    pub(crate) fn order_takes(&self) -> Duration {
        self.clock.get().map_or(Duration::ZERO, |clock| Duration::from_nanos(clock.within_ns))
    }

    /// Has the client run a step.
    pub(crate) fn begin(&self, timeline: Timeline, quota: Option<u64>, shares: Vec<Option<Share>>) {
        let timeline = timeline.on_clock(self.clock_more_ns());
        self.order(&Order::Begin { timeline, quota, shares });
    }

    /// Tells the client. One that is gone is found out by those who listen to it.
    pub(crate) fn order(&self, order: &Order) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = send(order, &mut **orders);
    }

    fn note_heard(&self) {
        self.heard.store(Moment::now().nanos_since(Moment::START), Ordering::Relaxed);
    }
}
