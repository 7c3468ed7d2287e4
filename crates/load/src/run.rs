//! The coordinator: starts workers, walks through the steps, merges what they recorded.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::plan::{LoadPlan, Step};
use crate::result::{IntervalResult, LoadResult, StepResult};
use crate::session::SessionFactory;

/// What happens while the load runs, in order. Observers are called on the coordinator's thread.
#[derive(Debug)]
pub enum Event<'a> {
    /// All sessions of a step are connected.
    Connected {
        /// Index of the step in the plan.
        step: usize,
        /// Sessions.
        sessions: u32,
        /// How long it took.
        took: Duration,
    },
    /// A step begins with its warm-up.
    StepStarted {
        /// Index of the step in the plan.
        index: usize,
        /// The step.
        step: &'a Step,
    },
    /// A second has passed and all workers have told about it.
    Interval {
        /// Index of the step in the plan.
        step: usize,
        /// What happened in it.
        interval: &'a IntervalResult,
    },
    /// A step is over, drained and counted.
    StepEnded {
        /// Index of the step in the plan.
        step: usize,
        /// Its result.
        result: &'a StepResult,
    },
    /// Something the user should know, with a remedy.
    Warning(&'a str),
}

/// Asks a run to stop: transactions in flight may finish within the drain limit, what was measured is kept.
/// Clones share the flag. [`Stop::request`] only stores to an atomic, so signal handlers may call it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Not stopped.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Stops the run at the next look (within 0.1 s).
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why there is no result at all. Whatever happens after the first step began is in the result instead.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan cannot be run.
    #[error("the load plan is impossible: {0}")]
    Plan(String),
    /// The sessions of the first step could not be connected.
    #[error("{connected} of {sessions} sessions could be opened, then: {text}")]
    Connect {
        /// Sessions that were.
        connected: u32,
        /// Sessions wanted.
        sessions: u32,
        /// What the field calls the error by.
        code: String,
        /// The error.
        text: String,
    },
    /// The machine refused something (threads, epoll, descriptors).
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// Runs a load. Returns when all steps are done, one of them ended early for a reason that later steps would
/// share, or `stop` was requested.
pub fn run(
    _plan: &LoadPlan,
    _factory: &dyn SessionFactory,
    _observer: &mut dyn FnMut(Event<'_>),
    _stop: &Stop,
) -> Result<LoadResult, LoadError> {
    Err(LoadError::Plan("the engine is being written".into()))
}
