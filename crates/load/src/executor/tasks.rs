//! The tasks of a worker, and the queue of those that are to be polled.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;

use crate::memory;

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct TaskSlot {
    /// `None`: free, or being polled.
    future: Option<Task>,
    is_queued: bool,
    is_live: bool,
}

#[derive(Default)]
pub(super) struct Tasks {
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<usize>>,
    live: Cell<usize>,
    ready: RefCell<VecDeque<usize>>,
}

impl Tasks {
    /// Adds a task, which is not queued yet.
    pub(super) fn add(&self, task: Task) -> usize {
        let slot = TaskSlot { future: Some(task), is_queued: false, is_live: true };
        let mut slots = self.slots.borrow_mut();
        let id = match self.free.borrow_mut().pop() {
            Some(id) => {
                slots[id] = slot;
                id
            }
            None => {
                slots.push(slot);
                slots.len() - 1
            }
        };
        self.live.set(self.live.get() + 1);
        id
    }

    /// Drops a task wherever it waits. Not from inside itself.
    pub(super) fn cancel(&self, id: usize) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(id).filter(|slot| slot.is_live) else { return };
        let future = slot.future.take();
        slot.is_live = false;
        drop(slots);
        // Its sockets deregister themselves, hence after the borrow.
        drop(future);
        self.free_slot(id);
    }

    /// Tasks that have not ended.
    pub(super) fn live_count(&self) -> usize {
        self.live.get()
    }

    /// Puts a task into the queue unless it is there.
    pub(super) fn queue(&self, id: usize) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(id).filter(|slot| slot.is_live && !slot.is_queued) else {
            return;
        };
        slot.is_queued = true;
        self.ready.borrow_mut().push_back(id);
    }

    /// Tasks in the queue.
    pub(super) fn queued_count(&self) -> usize {
        self.ready.borrow().len()
    }

    /// Takes the first task of the queue.
    #[inline]
    pub(super) fn pop(&self) -> Option<usize> {
        self.ready.borrow_mut().pop_front()
    }

    /// Takes a task out to poll it, and has the memory of the next one fetched meanwhile.
    #[inline(always)]
    pub(super) fn take(&self, id: usize) -> Option<Task> {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[id];
        slot.is_queued = false;
        let task = slot.future.take()?;
        let next = self.ready.borrow().front().copied();
        if let Some(TaskSlot { future: Some(next), .. }) = next.and_then(|next| slots.get(next)) {
            memory::fetch(&**next);
        }
        Some(task)
    }

    /// A task that was taken out waits again.
    #[inline(always)]
    pub(super) fn put_back(&self, id: usize, task: Task) {
        self.slots.borrow_mut()[id].future = Some(task);
    }

    /// A task has ended; its slot may be used again.
    pub(super) fn end(&self, id: usize) {
        self.slots.borrow_mut()[id].is_live = false;
        self.free_slot(id);
    }

    fn free_slot(&self, id: usize) {
        self.free.borrow_mut().push(id);
        self.live.set(self.live.get() - 1);
    }
}
