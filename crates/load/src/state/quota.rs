//! The transactions of a step that has a fixed number of them.

use std::cell::Cell;

use super::shared::StepShared;
use crate::time::Moment;

/// A worker's part of the step's transactions.
pub(super) struct Quota {
    /// The step has a fixed number of transactions.
    pub(super) is_limited: Cell<bool>,
    /// Claimed and not used.
    held: Cell<u64>,
    /// The common count is used up too.
    pub(super) is_used_up: Cell<bool>,
    /// Transactions of that number that have not ended.
    pub(super) busy: Cell<u32>,
    /// When the last one of them ended.
    pub(super) last_end: Cell<Moment>,
}

impl Quota {
    pub(super) fn new() -> Quota {
        Quota {
            is_limited: Cell::new(false),
            held: Cell::new(0),
            is_used_up: Cell::new(false),
            busy: Cell::new(0),
            last_end: Cell::new(Moment::START),
        }
    }

    /// A step begins.
    pub(super) fn reset(&self, is_limited: bool, measured: Moment) {
        self.is_limited.set(is_limited);
        self.held.set(0);
        self.is_used_up.set(false);
        self.busy.set(0);
        self.last_end.set(measured);
    }

    /// Takes one for a transaction that begins; false: none is left.
    pub(super) fn take(&self, shared: &StepShared) -> bool {
        if self.held.get() == 0 {
            self.held.set(shared.claim());
            self.is_used_up.set(self.held.get() == 0);
        }
        let Some(held) = self.held.get().checked_sub(1) else { return false };
        self.held.set(held);
        self.begin();
        true
    }

    /// A transaction of that number is busy.
    pub(super) fn begin(&self) {
        self.busy.set(self.busy.get() + 1);
    }

    /// It has ended.
    pub(super) fn end(&self, at: Moment) {
        self.busy.set(self.busy.get() - 1);
        self.last_end.set(self.last_end.get().max(at));
    }

    /// It never began.
    pub(super) fn give_back(&self, in_open_loop: bool) {
        self.busy.set(self.busy.get() - 1);
        if !in_open_loop {
            self.held.set(self.held.get() + 1);
        }
    }
}
