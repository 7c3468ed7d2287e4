//! The timers of a worker, and how late they were served.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::task::Waker;

use crate::histogram::Counts;
use crate::time::Moment;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    due: Moment,
    /// First set, first served.
    sequence: u64,
    slot: usize,
}

pub(crate) struct Timers {
    heap: RefCell<BinaryHeap<Reverse<Timer>>>,
    wakers: RefCell<Vec<Option<Waker>>>,
    free: RefCell<Vec<usize>>,
    sequence: Cell<u64>,
    /// How late timers were served.
    pub(crate) lag: RefCell<Counts>,
}

impl Timers {
    pub(super) fn new() -> Timers {
        Timers {
            heap: RefCell::default(),
            wakers: RefCell::default(),
            free: RefCell::default(),
            sequence: Cell::new(0),
            lag: RefCell::new(Counts::default()),
        }
    }

    pub(super) fn add(&self, due: Moment, waker: Waker) {
        let mut wakers = self.wakers.borrow_mut();
        let slot = match self.free.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                wakers.push(None);
                wakers.len() - 1
            }
        };
        wakers[slot] = Some(waker);
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.heap.borrow_mut().push(Reverse(Timer { due, sequence, slot }));
    }

    /// Wakes whoever waits for a time that has come.
    pub(super) fn fire(&self, now: Moment) {
        loop {
            let mut heap = self.heap.borrow_mut();
            match heap.peek() {
                Some(Reverse(timer)) if timer.due <= now => {}
                _ => return,
            }
            let Some(Reverse(timer)) = heap.pop() else { return };
            drop(heap);
            self.lag.borrow_mut().record(now.nanos_since(timer.due));
            let waker = self.wakers.borrow_mut()[timer.slot].take();
            self.free.borrow_mut().push(timer.slot);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// When the next timer is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.heap.borrow().peek().map(|Reverse(timer)| timer.due)
    }
}
