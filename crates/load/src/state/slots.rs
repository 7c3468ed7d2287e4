//! The sessions of a worker: who is connected, busy, finished, or to leave.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::driver::Turn;
use crate::schedule::Arrival;
use crate::time::Moment;

/// What its worker knows of one session.
#[derive(Debug)]
pub(crate) struct SessionSlot {
    pub(crate) index: u32,
    /// Open loop: the arrival that was handed to it while it was idle.
    pub(super) assigned: Cell<Option<Arrival>>,
    pub(super) is_idle: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    pub(crate) is_connected: Cell<bool>,
    pub(crate) is_busy: Cell<bool>,
    /// The transaction that it is busy with: when it should have begun, and whether it is counted.
    pub(super) turn: Cell<(Moment, bool)>,
    pub(crate) has_finished: Cell<bool>,
    /// When it may begin to connect.
    pub(crate) opens_at: Moment,
}

impl SessionSlot {
    pub(crate) fn new(index: u32, opens_at: Moment) -> SessionSlot {
        SessionSlot {
            index,
            assigned: Cell::new(None),
            is_idle: Cell::new(false),
            waker: RefCell::new(None),
            is_connected: Cell::new(false),
            is_busy: Cell::new(false),
            turn: Cell::new((Moment::START, false)),
            has_finished: Cell::new(false),
            opens_at,
        }
    }

    pub(super) fn wait(&self, cx: &Context<'_>) -> Poll<Option<Turn>> {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }
}

/// All sessions of a worker, by their index.
#[derive(Default)]
pub(crate) struct SessionSlots {
    /// With the task of each.
    taken: RefCell<BTreeMap<u32, (Rc<SessionSlot>, usize)>>,
    /// Sessions from this index on leave.
    pub(crate) keep: Cell<u32>,
    pub(super) connected: Cell<u32>,
    pub(super) busy: Cell<u32>,
    pub(super) finished: Cell<u32>,
}

impl SessionSlots {
    pub(crate) fn holds(&self, index: u32) -> bool {
        self.taken.borrow().contains_key(&index)
    }

    pub(crate) fn add(&self, slot: Rc<SessionSlot>, task: usize) {
        self.taken.borrow_mut().insert(slot.index, (slot, task));
    }

    pub(crate) fn remove(&self, index: u32) {
        self.taken.borrow_mut().remove(&index);
    }

    pub(super) fn count(&self) -> usize {
        self.taken.borrow().len()
    }

    pub(crate) fn connected_count(&self) -> u32 {
        self.connected.get()
    }

    pub(crate) fn is_leaving(&self, slot: &SessionSlot) -> bool {
        slot.index >= self.keep.get()
    }

    /// Wakes every session that waits for a turn.
    pub(crate) fn wake_all(&self) {
        self.for_each(SessionSlot::wake);
    }

    pub(super) fn for_each(&self, mut act: impl FnMut(&SessionSlot)) {
        self.taken.borrow().values().for_each(|(slot, _)| act(slot));
    }

    pub(crate) fn set_connected(&self, slot: &SessionSlot, is_connected: bool) {
        if slot.is_connected.replace(is_connected) != is_connected {
            let change = |count: u32| if is_connected { count + 1 } else { count - 1 };
            self.connected.set(change(self.connected.get()));
        }
    }

    #[inline]
    pub(super) fn occupy(&self, slot: &SessionSlot, intended: Moment, is_counted: bool) {
        slot.is_busy.set(true);
        slot.turn.set((intended, is_counted));
        self.busy.set(self.busy.get() + 1);
    }

    /// The session is no longer busy; whether it was.
    #[inline]
    pub(super) fn vacate(&self, slot: &SessionSlot) -> bool {
        let was_busy = slot.is_busy.replace(false);
        if was_busy {
            self.busy.set(self.busy.get() - 1);
        }
        was_busy
    }

    /// The session has no more to do in this step; whether that holds for all now.
    pub(super) fn finish(&self, slot: &SessionSlot) -> bool {
        if !slot.has_finished.replace(true) {
            self.finished.set(self.finished.get() + 1);
        }
        self.finished.get() as usize >= self.count()
    }

    /// A step begins.
    pub(super) fn reset(&self) {
        self.finished.set(0);
        self.for_each(|slot| {
            slot.has_finished.set(false);
            slot.assigned.set(None);
            slot.is_idle.set(false);
        });
    }

    /// Since when the transaction that has waited longest waits: for its answer, or for its session to begin it.
    pub(super) fn waiting_since(&self) -> Option<Moment> {
        let in_seat = |(slot, _): &(Rc<SessionSlot>, usize)| {
            let busy = Some(slot.turn.get().0).filter(|_| slot.is_busy.get());
            busy.or(slot.assigned.get().map(|arrival| arrival.intended))
        };
        self.taken.borrow().values().filter_map(in_seat).min()
    }

    /// Whether an arrival was handed to a session that has not begun it.
    pub(super) fn has_assigned(&self) -> bool {
        self.taken.borrow().values().any(|(slot, _)| slot.assigned.get().is_some())
    }

    /// Removes the sessions that are busy and answers them and their tasks.
    pub(super) fn take_busy(&self) -> Vec<(Rc<SessionSlot>, usize)> {
        let mut taken = self.taken.borrow_mut();
        let (busy, others) =
            std::mem::take(&mut *taken).into_iter().partition(|(_, (slot, _))| slot.is_busy.get());
        *taken = others;
        let busy: BTreeMap<u32, (Rc<SessionSlot>, usize)> = busy;
        busy.into_values().collect()
    }
}
