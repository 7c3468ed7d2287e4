//! What workers share. Touched when something goes wrong, and once per batch of transactions.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::run::Stop;
use crate::session::Failure;
use crate::usage::ProcessCpu;

/// Largest batch of transactions that a worker claims from the common count.
const BATCH_MAX: u64 = 256;

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
    pub(super) fn note_refusal(&self, failure: &Failure) {
        self.set_last_refusal(format!("{}: {}", failure.code, failure.text));
    }

    /// [`Shared::note_refusal`] for what a session of another process met.
    pub(crate) fn set_last_refusal(&self, text: String) {
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
    pub(super) quota: Option<AtomicU64>,
    workers: u64,
    /// Workers whose measured phase is not over.
    pub(super) measuring: AtomicU32,
    pub(crate) cpu: Mutex<(Option<ProcessCpu>, Option<ProcessCpu>)>,
}

impl StepShared {
    pub(crate) fn new(quota: Option<u64>, workers: u32) -> StepShared {
        StepShared {
            quota: quota.map(AtomicU64::new),
            workers: workers.into(),
            measuring: AtomicU32::new(workers),
            cpu: Mutex::default(),
        }
    }

    /// What this process used in the measured phase; `None` unless that is over.
    pub(crate) fn used(&self) -> Option<ProcessCpu> {
        let (before, after) = *self.cpu.lock().unwrap_or_else(PoisonError::into_inner);
        let (before, after) = (before?, after?);
        Some(ProcessCpu { user_s: after.user_s - before.user_s, sys_s: after.sys_s - before.sys_s })
    }

    /// Takes a batch: large while there are many, single ones at the end, so that no worker sits on
    /// transactions that another could run.
    pub(super) fn claim(&self) -> u64 {
        let Some(quota) = &self.quota else { return 0 };
        let share = |left: u64| (left / (self.workers * 8)).clamp(1, BATCH_MAX).min(left);
        quota
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left - share(left)))
            .map_or(0, share)
    }
}
