//! How many sessions of a worker open their connections at the same time.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// More would only queue at the server and hold log-in buffers.
const OPENING_MAX: u32 = 32;

#[derive(Default)]
pub(crate) struct OpeningLimit {
    opening: Cell<u32>,
    waiting: RefCell<VecDeque<Waker>>,
}

impl OpeningLimit {
    /// Waits until this session may open its connection.
    pub(crate) fn poll(self: &Rc<Self>, cx: &Context<'_>) -> Poll<Opening> {
        if self.opening.get() < OPENING_MAX {
            self.opening.set(self.opening.get() + 1);
            return Poll::Ready(Opening(self.clone()));
        }
        self.waiting.borrow_mut().push_back(cx.waker().clone());
        Poll::Pending
    }

    /// Lets in those who wait. Called at each sweep as well: a waiter that was cancelled takes its wake-up with it.
    pub(crate) fn serve(&self) {
        for _ in self.opening.get()..OPENING_MAX {
            let Some(waker) = self.waiting.borrow_mut().pop_front() else { break };
            waker.wake();
        }
    }
}

/// The right to open a connection; given back when dropped.
pub(crate) struct Opening(Rc<OpeningLimit>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.set(self.0.opening.get() - 1);
        self.0.serve();
    }
}
