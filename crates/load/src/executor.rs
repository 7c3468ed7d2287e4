//! A single-threaded executor: tasks are boxed futures, polled when epoll names their socket or a timer is due.
//!
//! Everything here belongs to one thread.

mod head_start;
mod sockets;
mod tasks;
mod timers;
mod wakers;

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use rustix::event::epoll::Event;

use self::head_start::HeadStart;
pub(crate) use self::sockets::SocketSlot;
use self::sockets::{NO_EVENT, Sockets};
use self::tasks::{Task, Tasks};
use self::timers::Timers;
use self::wakers::waker_of;
use crate::time::{Clock, Moment, Ticker};

/// How often deadlines of waiting sockets are looked at: a statement's time limit is kept to this precision and
/// costs neither a timer nor a system call.
pub(crate) const SWEEP: Duration = Duration::from_millis(50);
/// Sockets that one call of epoll may name.
const EVENTS_MAX: usize = 512;
/// Transactions that a task may finish without waiting before others get their turn.
const TURNS_MAX: u32 = 64;

/// One worker's executor.
pub(crate) struct Executor {
    tasks: Tasks,
    sockets: Sockets,
    pub(crate) timers: Timers,
    head_start: HeadStart,
    ticker: Ticker,
    /// The last reading of the clock, whoever took it.
    last_read: Cell<Moment>,
    /// Timers fire right after the wait, before the sessions that epoll named: for arrivals.
    pub(crate) is_punctual: Cell<bool>,
    sweep_due: Cell<Moment>,
    /// Transactions that the task that is being polled has begun in this poll.
    turns: Cell<u32>,
}

thread_local! {
    static CURRENT: Cell<*const Executor> = const { Cell::new(std::ptr::null()) };
}

/// Makes a executor the current one of its thread for as long as it lives.
pub(crate) struct Entered(Rc<Executor>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
    }
}

impl std::ops::Deref for Entered {
    type Target = Rc<Executor>;
    fn deref(&self) -> &Rc<Executor> {
        &self.0
    }
}

impl Executor {
    pub(crate) fn new(clock: Clock) -> io::Result<Rc<Executor>> {
        let now = Moment::now();
        Ok(Rc::new(Executor {
            tasks: Tasks::default(),
            sockets: Sockets::new()?,
            timers: Timers::new(),
            head_start: HeadStart::new(),
            ticker: Ticker::new(clock, now),
            last_read: Cell::new(now),
            is_punctual: Cell::new(true),
            sweep_due: Cell::new(now + SWEEP),
            turns: Cell::new(0),
        }))
    }

    /// Makes this executor the one that wakers and [`crate::time`] of this thread mean.
    pub(crate) fn enter(self: Rc<Executor>) -> Entered {
        CURRENT.set(Rc::as_ptr(&self));
        Entered(self)
    }

    /// The executor that runs on this thread.
    #[inline]
    pub(crate) fn current<'a>() -> Option<&'a Executor> {
        // SAFETY: the pointer is set by `enter` and cleared when `Entered`, which keeps the executor alive, is
        // dropped. Callers use the reference within one poll, during which the worker holds `Entered`.
        unsafe { CURRENT.get().as_ref() }
    }

    /// An owned handle on the executor that runs on this thread.
    pub(crate) fn current_rc() -> Option<Rc<Executor>> {
        let executor = CURRENT.get();
        if executor.is_null() {
            return None;
        }
        // SAFETY: the pointer came from an Rc that `Entered` keeps alive; the count is raised for the new one.
        unsafe {
            Rc::increment_strong_count(executor);
            Some(Rc::from_raw(executor))
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        let now = self.ticker.now();
        self.last_read.set(now);
        now
    }

    /// The last reading of the clock, at most a turn of the loop old: good for deadlines.
    #[inline]
    pub(crate) fn coarse_now(&self) -> Moment {
        self.last_read.get()
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.ticker
    }

    /// Whether the task that is being polled may begin another transaction now; if not it must wake itself and
    /// wait, so that a session that never waits cannot starve the others.
    #[inline]
    pub(crate) fn take_turn(&self) -> bool {
        self.turns.set(self.turns.get() + 1);
        self.turns.get() <= TURNS_MAX
    }

    /// Adds a task; it is polled at the next turn of the loop.
    pub(crate) fn spawn(&self, task: Task) -> usize {
        let id = self.tasks.add(task);
        self.queue(id);
        id
    }

    /// Drops a task wherever it waits. Not from inside itself.
    pub(crate) fn cancel(&self, id: usize) {
        self.tasks.cancel(id);
    }

    /// Tasks that have not ended.
    pub(crate) fn live_tasks(&self) -> usize {
        self.tasks.live_count()
    }

    fn queue(&self, id: usize) {
        self.tasks.queue(id);
    }

    /// Calls the waker once the time has come.
    pub(crate) fn wake_at(&self, due: Moment, waker: Waker) {
        self.timers.add(due, waker);
    }

    /// Watches a socket. Edge-triggered: what is already there is reported too.
    pub(crate) fn register(&self, fd: &OwnedFd, is_writable: bool) -> io::Result<usize> {
        self.sockets.register(fd, is_writable)
    }

    pub(crate) fn watch_writable(&self, fd: &OwnedFd, slot: usize, wanted: bool) -> io::Result<()> {
        self.sockets.watch_writable(fd, slot, wanted)
    }

    pub(crate) fn deregister(&self, slot: usize) {
        self.sockets.deregister(slot);
    }

    #[inline(always)]
    pub(crate) fn with_socket<R>(&self, slot: usize, use_it: impl FnOnce(&mut SocketSlot) -> R) -> R {
        self.sockets.with(slot, use_it)
    }

    /// When the loop has something to do of its own accord.
    fn next_due(&self) -> Moment {
        let sweep = self.sweep_due.get();
        self.timers.next_due().map_or(sweep, |due| due.min(sweep))
    }

    #[inline(always)]
    fn poll_task(&self, id: usize) {
        let Some(mut task) = self.tasks.take(id) else { return };
        self.turns.set(0);
        let waker = waker_of(id);
        if task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
            drop(task);
            self.tasks.end(id);
        } else {
            self.tasks.put_back(id, task);
        }
    }

    /// Runs tasks until `is_done` says so; it is asked after each turn. `on_sweep` is called at least every
    /// [`SWEEP`].
    pub(crate) fn run(
        &self,
        mut on_sweep: impl FnMut(Moment),
        mut is_done: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let mut events = [NO_EVENT; EVENTS_MAX];
        loop {
            // Only what is ready now: tasks that wake themselves wait for the next turn.
            for _ in 0..self.tasks.queued_count() {
                let Some(id) = self.tasks.pop() else { break };
                self.poll_task(id);
            }
            if is_done() {
                return Ok(());
            }
            let named = self.wait(&mut events)?;
            let now = self.now();
            for event in &events[..named] {
                self.sockets.note_event(event);
            }
            self.timers.fire(now);
            if now >= self.sweep_due.get() {
                self.sweep_due.set(now + SWEEP);
                self.sockets.expire(now);
                on_sweep(now);
            }
        }
    }

    /// Waits for sockets, no longer than until the next timer. Where timers are to be punctual it sleeps until shortly
    /// before; what is left of the time then passes in turns of the loop, which look at the sockets without sleeping.
    #[inline(always)]
    fn wait(&self, events: &mut [Event]) -> io::Result<usize> {
        let mut timeout_ns = 0;
        if self.tasks.queued_count() == 0 {
            let due = self.next_due();
            if self.ticker.is_simulated() {
                self.ticker.advance_to(due);
            } else if self.is_punctual.get() {
                return self.wait_punctually(events, due);
            } else {
                timeout_ns = due.nanos_since(self.now());
            }
        }
        self.sockets.wait(events, timeout_ns)
    }

    #[inline(never)]
    fn wait_punctually(&self, events: &mut [Event], due: Moment) -> io::Result<usize> {
        let now = self.now();
        let until = self.head_start.before(due, now);
        let timeout_ns = until.nanos_since(now);
        let named = self.sockets.wait(events, timeout_ns)?;
        if named == 0 && timeout_ns > 0 {
            self.head_start.learn(self.now().nanos_since(until));
        }
        Ok(named)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::time;

    #[test]
    fn simulated_time_costs_none() {
        let executor = Executor::new(Clock::Simulated).unwrap().enter();
        let began = executor.now();
        let log = Rc::new(RefCell::new(Vec::new()));
        for hours in [3u64, 1, 2] {
            let log = log.clone();
            executor.spawn(Box::pin(async move {
                time::sleep(Duration::from_secs(hours * 60)).await;
                log.borrow_mut().push((hours, time::now()));
            }));
        }
        let real = Moment::now();
        executor.run(|_| {}, || executor.live_tasks() == 0).unwrap();
        assert!(Moment::now() - real < Duration::from_secs(10));
        let log: Vec<_> = log.borrow().iter().map(|(h, at)| (*h, (*at - began).as_secs())).collect();
        assert_eq!(log, [(1, 60), (2, 120), (3, 180)]);
    }

    #[test]
    fn a_cancelled_task_is_dropped_and_its_slot_used_again() {
        let executor = Executor::new(Clock::Simulated).unwrap().enter();
        let witness = Rc::new(());
        let held = witness.clone();
        let id = executor.spawn(Box::pin(async move {
            time::sleep(Duration::from_secs(1)).await;
            drop(held);
        }));
        executor.cancel(id);
        assert_eq!((Rc::strong_count(&witness), executor.live_tasks()), (1, 0));
        assert_eq!(executor.spawn(Box::pin(async {})), id);
        executor.run(|_| {}, || executor.live_tasks() == 0).unwrap();
    }

    #[test]
    fn a_task_that_wakes_itself_does_not_starve_timers() {
        let executor = Executor::new(Clock::Monotonic).unwrap().enter();
        let over = Rc::new(Cell::new(false));
        let (set, seen) = (over.clone(), over.clone());
        executor.spawn(Box::pin(async move {
            time::sleep(Duration::from_millis(5)).await;
            set.set(true);
        }));
        executor.spawn(Box::pin(std::future::poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if seen.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })));
        executor.run(|_| {}, || executor.live_tasks() == 0).unwrap();
        assert!(over.get());
    }
}
