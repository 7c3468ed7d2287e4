//! Wakers carry nothing but the index of their task. Called on another thread they do nothing, which is safe, and
//! useless: sessions never hand their wakers out.

use std::task::{RawWaker, RawWakerVTable, Waker};

use super::Executor;

static VTABLE: RawWakerVTable =
    RawWakerVTable::new(|task| RawWaker::new(task, &VTABLE), wake_task, wake_task, |_task| {});

/// A waker is the index of its task: nothing to count, nothing to free.
#[inline]
pub(super) fn waker_of(task: usize) -> Waker {
    // SAFETY: the data pointer is never followed; `wake_task` may be called on any thread and as often as one
    // likes, since it looks only at the executor of the thread it runs on.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::without_provenance(task), &VTABLE)) }
}

fn wake_task(task: *const ()) {
    if let Some(executor) = Executor::current() {
        executor.queue(task.addr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wakers_called_elsewhere_do_nothing() {
        let waker = waker_of(7);
        std::thread::spawn(move || waker.wake()).join().unwrap();
    }
}
