//! A single-threaded executor: tasks are boxed futures, polled when epoll names their socket or a timer is due.
//!
//! Everything here belongs to one thread. Wakers carry nothing but the index of their task; called on another
//! thread they do nothing, which is safe, and useless: sessions never hand their wakers out.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::histogram::Counts;
use crate::memory;
use crate::time::{Clock, Moment, Ticker};

/// How often deadlines of waiting sockets are looked at: a statement's time limit is kept to this precision and
/// costs neither a timer nor a system call.
pub(crate) const SWEEP: Duration = Duration::from_millis(50);
/// A timer so far away may be served late by what has passed since the last reading of the clock.
const FAR_NS: u64 = 5_000_000;
/// No timer is aimed earlier than this: a machine whose wake-ups are later than that is late, and says so.
const HEAD_START_MAX_NS: u64 = 200_000;
/// By how much one wake-up changes the head start of the next.
const HEAD_START_STEP_NS: u64 = 1_000;
/// Sockets that one call of epoll may name.
const EVENTS_MAX: usize = 512;
/// Transactions that a task may finish without waiting before others get their turn.
const TURNS_MAX: u32 = 64;

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct TaskSlot {
    /// `None`: free, or being polled.
    future: Option<Task>,
    is_queued: bool,
    is_live: bool,
}

/// What the executor knows of a socket.
#[derive(Debug)]
pub(crate) struct SocketSlot {
    /// Grows when the slot is used again: late events of the last owner are told apart.
    generation: u32,
    pub(crate) is_readable: bool,
    pub(crate) is_writable: bool,
    /// The other side has hung up: what is left must be read to the end without waiting for another event.
    pub(crate) is_hung_up: bool,
    /// A sweep found the deadline passed.
    pub(crate) is_expired: bool,
    /// [`Moment::NEVER`] where there is none.
    pub(crate) deadline: Moment,
    /// Who waits.
    pub(crate) waker: Option<Waker>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    due: Moment,
    /// First set, first served.
    sequence: u64,
    slot: usize,
}

/// One worker's executor.
pub(crate) struct Core {
    epoll: OwnedFd,
    ticker: Ticker,
    /// The last reading of the clock, whoever took it.
    last_read: Cell<Moment>,
    /// Whether the clock was read in this turn of the loop.
    was_read: Cell<bool>,
    /// Timers fire right after the wait, before the sessions that epoll named: for arrivals.
    pub(crate) is_punctual: Cell<bool>,
    head_start: HeadStart,
    tasks: RefCell<Vec<TaskSlot>>,
    free_tasks: RefCell<Vec<usize>>,
    live_tasks: Cell<usize>,
    ready: RefCell<VecDeque<usize>>,
    sockets: RefCell<Vec<SocketSlot>>,
    free_sockets: RefCell<Vec<usize>>,
    /// Until then nobody but the task that is being polled has anything to do, and it only for the one socket there is.
    alone_until: Cell<Moment>,
    timers: RefCell<BinaryHeap<Reverse<Timer>>>,
    timer_wakers: RefCell<Vec<Option<Waker>>>,
    free_timers: RefCell<Vec<usize>>,
    timer_sequence: Cell<u64>,
    sweep_due: Cell<Moment>,
    /// Counts polls: two clock readings with the same number have nothing but the task's own code between them.
    poll_number: Cell<u64>,
    turns: Cell<u32>,
    /// How late timers were served.
    pub(crate) lag: RefCell<Counts>,
}

thread_local! {
    static CURRENT: Cell<*const Core> = const { Cell::new(std::ptr::null()) };
}

/// Makes a core the current one of its thread for as long as it lives.
pub(crate) struct Entered(Rc<Core>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(std::ptr::null());
    }
}

impl std::ops::Deref for Entered {
    type Target = Rc<Core>;
    fn deref(&self) -> &Rc<Core> {
        &self.0
    }
}

impl Core {
    pub(crate) fn new(clock: Clock) -> io::Result<Rc<Core>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let now = Moment::now();
        Ok(Rc::new(Core {
            epoll,
            ticker: Ticker::new(clock, now),
            last_read: Cell::new(now),
            was_read: Cell::new(false),
            is_punctual: Cell::new(true),
            head_start: HeadStart::new(),
            tasks: RefCell::default(),
            free_tasks: RefCell::default(),
            live_tasks: Cell::new(0),
            ready: RefCell::default(),
            sockets: RefCell::default(),
            free_sockets: RefCell::default(),
            alone_until: Cell::new(Moment::START),
            timers: RefCell::default(),
            timer_wakers: RefCell::default(),
            free_timers: RefCell::default(),
            timer_sequence: Cell::new(0),
            sweep_due: Cell::new(now + SWEEP),
            poll_number: Cell::new(0),
            turns: Cell::new(0),
            lag: RefCell::new(Counts::new()),
        }))
    }

    /// Makes this core the one that wakers and [`crate::time`] of this thread mean.
    pub(crate) fn enter(self: Rc<Core>) -> Entered {
        CURRENT.set(Rc::as_ptr(&self));
        Entered(self)
    }

    /// The core that runs on this thread.
    #[inline]
    pub(crate) fn current<'a>() -> Option<&'a Core> {
        // SAFETY: the pointer is set by `enter` and cleared when `Entered`, which keeps the core alive, is
        // dropped. Callers use the reference within one poll, during which the worker holds `Entered`.
        unsafe { CURRENT.get().as_ref() }
    }

    /// An owned handle on the core that runs on this thread.
    pub(crate) fn current_rc() -> Option<Rc<Core>> {
        let core = CURRENT.get();
        if core.is_null() {
            return None;
        }
        // SAFETY: the pointer came from an Rc that `Entered` keeps alive; the count is raised for the new one.
        unsafe {
            Rc::increment_strong_count(core);
            Some(Rc::from_raw(core))
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Moment {
        let now = self.ticker.now();
        self.last_read.set(now);
        self.was_read.set(true);
        now
    }

    /// The last reading of the clock, at most two turns of the loop old: good for deadlines.
    #[inline]
    pub(crate) fn coarse_now(&self) -> Moment {
        self.last_read.get()
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.ticker
    }

    #[inline]
    pub(crate) fn poll_number(&self) -> u64 {
        self.poll_number.get()
    }

    /// Whether the task that is being polled may begin another transaction now; if not it must wake itself and
    /// wait, so that a session that never waits cannot starve the others.
    #[inline]
    pub(crate) fn take_turn(&self) -> bool {
        self.turns.set(self.turns.get() + 1);
        self.turns.get() <= TURNS_MAX
    }

    // ---- tasks ----

    /// Adds a task; it is polled at the next turn of the loop.
    pub(crate) fn spawn(&self, task: Task) -> usize {
        let slot = TaskSlot { future: Some(task), is_queued: false, is_live: true };
        let mut tasks = self.tasks.borrow_mut();
        let id = match self.free_tasks.borrow_mut().pop() {
            Some(id) => {
                tasks[id] = slot;
                id
            }
            None => {
                tasks.push(slot);
                tasks.len() - 1
            }
        };
        drop(tasks);
        self.live_tasks.set(self.live_tasks.get() + 1);
        self.queue(id);
        id
    }

    /// Drops a task wherever it waits. Not from inside itself.
    pub(crate) fn cancel(&self, id: usize) {
        let mut tasks = self.tasks.borrow_mut();
        let Some(slot) = tasks.get_mut(id).filter(|slot| slot.is_live) else { return };
        let future = slot.future.take();
        slot.is_live = false;
        drop(tasks);
        // Its sockets deregister themselves, hence after the borrow.
        drop(future);
        self.free_tasks.borrow_mut().push(id);
        self.live_tasks.set(self.live_tasks.get() - 1);
    }

    /// Tasks that have not ended.
    pub(crate) fn live_tasks(&self) -> usize {
        self.live_tasks.get()
    }

    fn queue(&self, id: usize) {
        let mut tasks = self.tasks.borrow_mut();
        if let Some(slot) = tasks.get_mut(id)
            && slot.is_live
            && !slot.is_queued
        {
            slot.is_queued = true;
            self.alone_until.set(Moment::START);
            self.ready.borrow_mut().push_back(id);
        }
    }

    #[inline(always)]
    fn poll_task(&self, id: usize) {
        let mut tasks = self.tasks.borrow_mut();
        let slot = &mut tasks[id];
        slot.is_queued = false;
        let Some(mut future) = slot.future.take() else { return };
        let next = self.ready.borrow().front().copied();
        if let Some(TaskSlot { future: Some(next), .. }) = next.and_then(|next| tasks.get(next)) {
            memory::fetch(&**next);
        }
        let is_alone = next.is_none() && self.open_sockets() == 1 && !self.ticker.is_simulated();
        self.alone_until.set(if is_alone { self.next_due() } else { Moment::START });
        drop(tasks);
        self.poll_number.set(self.poll_number.get() + 1);
        self.turns.set(0);
        let waker = waker_of(id);
        let is_over = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        if is_over {
            drop(future);
            self.tasks.borrow_mut()[id].is_live = false;
            self.free_tasks.borrow_mut().push(id);
            self.live_tasks.set(self.live_tasks.get() - 1);
        } else {
            self.tasks.borrow_mut()[id].future = Some(future);
        }
    }

    /// Waits for the only socket without a way back through the loop, for the task that is being polled and would do
    /// nothing else: with one session on a worker that is how nearly every answer comes. Returns at once where others
    /// may want the thread before long; comes back with nothing when they do.
    ///
    /// It counts as a wait between two polls. Only a task that has read the clock since the last one may wait so:
    /// else it would not be noticed that time goes by.
    #[inline(always)]
    pub(crate) fn wait_in_place(&self) {
        let timeout_ns = self.alone_until.get().nanos_since(self.coarse_now());
        if timeout_ns <= FAR_NS || !self.was_read.replace(false) {
            return;
        }
        self.poll_number.set(self.poll_number.get() + 1);
        self.turns.set(0);
        let mut events = [NO_EVENT; 1];
        // An error will be met again, and told, by the loop.
        if let Ok(1) = epoll_wait(&self.epoll, &mut events, timeout_ns)
            && let Some(task) = self.note_event(&events[0])
        {
            self.queue(task);
        }
    }

    // ---- timers ----

    /// Calls the waker once the time has come.
    pub(crate) fn wake_at(&self, due: Moment, waker: Waker) {
        let mut wakers = self.timer_wakers.borrow_mut();
        let slot = match self.free_timers.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                wakers.push(None);
                wakers.len() - 1
            }
        };
        wakers[slot] = Some(waker);
        let sequence = self.timer_sequence.get();
        self.timer_sequence.set(sequence + 1);
        self.timers.borrow_mut().push(Reverse(Timer { due, sequence, slot }));
        self.alone_until.set(Moment::START);
    }

    fn fire_timers(&self, now: Moment) {
        loop {
            let mut timers = self.timers.borrow_mut();
            match timers.peek() {
                Some(Reverse(timer)) if timer.due <= now => {}
                _ => return,
            }
            let Some(Reverse(timer)) = timers.pop() else { return };
            drop(timers);
            self.lag.borrow_mut().record(now.nanos_since(timer.due));
            let waker = self.timer_wakers.borrow_mut()[timer.slot].take();
            self.free_timers.borrow_mut().push(timer.slot);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn next_due(&self) -> Moment {
        let sweep = self.sweep_due.get();
        self.timers.borrow().peek().map_or(sweep, |Reverse(timer)| timer.due.min(sweep))
    }

    /// Finds the waiting sockets whose deadline has passed.
    fn sweep(&self, now: Moment) {
        self.sweep_due.set(now + SWEEP);
        let mut expired = Vec::new();
        for slot in self.sockets.borrow_mut().iter_mut() {
            if slot.waker.is_some() && slot.deadline <= now {
                slot.is_expired = true;
                expired.extend(slot.waker.take());
            }
        }
        expired.into_iter().for_each(Waker::wake);
    }

    // ---- sockets ----

    /// Watches a socket. Edge-triggered: what is already there is reported too.
    pub(crate) fn register(&self, fd: &OwnedFd, is_writable: bool) -> io::Result<usize> {
        let mut sockets = self.sockets.borrow_mut();
        let slot = match self.free_sockets.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                sockets.push(SocketSlot::free());
                sockets.len() - 1
            }
        };
        let generation = sockets[slot].generation;
        sockets[slot] = SocketSlot { is_writable, generation, ..SocketSlot::free() };
        drop(sockets);
        let (data, flags) = watched(slot, generation, !is_writable);
        if let Err(error) = epoll::add(&self.epoll, fd, data, flags) {
            self.free_sockets.borrow_mut().push(slot);
            return Err(error.into());
        }
        self.alone_until.set(Moment::START);
        Ok(slot)
    }

    /// Asks for (or no longer for) the moment at which the socket can be written to. Not asked for all the
    /// time: the kernel would report each request that the server has read.
    pub(crate) fn watch_writable(&self, fd: &OwnedFd, slot: usize, wanted: bool) -> io::Result<()> {
        let generation = self.sockets.borrow()[slot].generation;
        let (data, flags) = watched(slot, generation, wanted);
        Ok(epoll::modify(&self.epoll, fd, data, flags)?)
    }

    /// Forgets a socket that is about to be closed (closing removes it from epoll).
    pub(crate) fn deregister(&self, slot: usize) {
        let mut sockets = self.sockets.borrow_mut();
        let generation = sockets[slot].generation.wrapping_add(1);
        sockets[slot] = SocketSlot { generation, ..SocketSlot::free() };
        self.free_sockets.borrow_mut().push(slot);
    }

    fn open_sockets(&self) -> usize {
        self.sockets.borrow().len() - self.free_sockets.borrow().len()
    }

    /// Looks at or changes what is known of a socket.
    #[inline(always)]
    pub(crate) fn with_socket<R>(&self, slot: usize, use_it: impl FnOnce(&mut SocketSlot) -> R) -> R {
        use_it(&mut self.sockets.borrow_mut()[slot])
    }

    /// Notes what epoll says of a socket; the task that waits for it, to be polled.
    #[inline]
    fn note_event(&self, event: &Event) -> Option<usize> {
        let (data, flags) = (event.data.u64(), event.flags);
        let (slot, generation) = ((data & 0xffff_ffff) as usize, (data >> 32) as u32);
        let mut sockets = self.sockets.borrow_mut();
        let known = sockets.get_mut(slot).filter(|known| known.generation == generation)?;
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            known.is_hung_up = true;
            known.is_readable = true;
            known.is_writable = true;
        }
        known.is_readable |= flags.contains(EventFlags::IN);
        known.is_writable |= flags.contains(EventFlags::OUT);
        let waker = known.waker.take();
        drop(sockets);
        let waker = waker?;
        let task = task_of(&waker);
        match task {
            Some(_) => std::mem::forget(waker),
            None => waker.wake(),
        }
        task
    }

    /// Notes all events of a wait. One alone with nothing else to do names the task to be polled next, past the queue.
    #[inline]
    fn note_events(&self, events: &[Event]) -> Option<usize> {
        if let [event] = events
            && self.ready.borrow().is_empty()
        {
            let task = self.note_event(event)?;
            // It was asleep, and so its memory has left the caches.
            if let Some(TaskSlot { future: Some(future), .. }) = self.tasks.borrow().get(task) {
                memory::fetch(&**future);
            }
            return Some(task);
        }
        for event in events {
            if let Some(task) = self.note_event(event) {
                self.queue(task);
            }
        }
        None
    }

    // ---- the loop ----

    /// Runs tasks until `is_done` says so; it is asked after each turn. `on_sweep` is called at least every
    /// [`SWEEP`].
    pub(crate) fn run(
        &self,
        mut on_sweep: impl FnMut(Moment),
        mut is_done: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let mut events = [NO_EVENT; EVENTS_MAX];
        let mut first = None;
        loop {
            // Only what is ready now: tasks that wake themselves wait for the next turn.
            let mut ready_now = self.ready.borrow().len();
            while let Some(id) = first.take().or_else(|| self.next_of(&mut ready_now)) {
                self.poll_task(id);
            }
            if is_done() {
                return Ok(());
            }
            let named = self.wait(&mut events)?;
            // While sessions read the clock themselves in each turn, the loop need not: what is due is then found
            // one turn later.
            let was_read = self.was_read.replace(false);
            let now = if named == 0 || self.is_punctual.get() || !was_read {
                self.now()
            } else {
                self.coarse_now()
            };
            first = self.note_events(&events[..named]);
            self.fire_timers(now);
            if now >= self.sweep_due.get() {
                self.sweep(now);
                on_sweep(now);
            }
        }
    }

    /// The next task of so many that are in the queue.
    #[inline]
    fn next_of(&self, left: &mut usize) -> Option<usize> {
        *left = left.checked_sub(1)?;
        self.ready.borrow_mut().pop_front()
    }

    /// Waits for sockets, no longer than until the next timer. Where timers are to be punctual it sleeps until shortly
    /// before; what is left of the time then passes in turns of the loop, which look at the sockets without sleeping.
    #[inline(always)]
    fn wait(&self, events: &mut [Event]) -> io::Result<usize> {
        let mut timeout_ns = 0;
        if self.ready.borrow().is_empty() {
            let due = self.next_due();
            if self.ticker.is_simulated() {
                self.ticker.advance_to(due);
            } else if self.is_punctual.get() {
                return self.wait_punctually(events, due);
            } else {
                timeout_ns = due.nanos_since(self.coarse_now());
                if timeout_ns <= FAR_NS {
                    timeout_ns = due.nanos_since(self.now());
                }
            }
        }
        uninterrupted(epoll_wait(&self.epoll, events, timeout_ns))
    }

    #[inline(never)]
    fn wait_punctually(&self, events: &mut [Event], due: Moment) -> io::Result<usize> {
        let now = self.now();
        let until = self.head_start.before(due, now);
        let timeout_ns = until.nanos_since(now);
        let named = uninterrupted(epoll_wait(&self.epoll, events, timeout_ns))?;
        if named == 0 && timeout_ns > 0 {
            self.head_start.learn(self.now().nanos_since(until));
        }
        Ok(named)
    }
}

/// How much earlier than a timer's time the thread is to be woken, since it takes as long to get going: from the
/// kernel's timer through a processor that slept to the code here, in most cases 30 to 100 us. Learnt from the wake-ups
/// themselves: a late one raises it by three steps, one in time lowers it by one, so that three in four are in time.
#[derive(Debug)]
struct HeadStart {
    learnt_ns: Cell<u64>,
    /// The timer that was last asked for, and when the thread is to be woken for it.
    aim: Cell<(Moment, Moment)>,
}

impl HeadStart {
    fn new() -> HeadStart {
        HeadStart { learnt_ns: Cell::new(0), aim: Cell::new((Moment::START, Moment::START)) }
    }

    /// When to wake the thread for a timer. At most an eighth of the time until then is given away: where arrivals
    /// follow each other closely, the thread would otherwise never sleep, and take a cpu that the server may need.
    fn before(&self, due: Moment, now: Moment) -> Moment {
        let (aimed_at, until) = self.aim.get();
        if aimed_at == due {
            return until;
        }
        let head_start_ns = self.learnt_ns.get().min(due.nanos_since(now) / 8);
        let until = due - Duration::from_nanos(head_start_ns);
        self.aim.set((due, until));
        until
    }

    /// Takes in that a thread which was to be woken at some time was awake `late_ns` later.
    fn learn(&self, late_ns: u64) {
        let now_ns = self.learnt_ns.get();
        let next_ns = if late_ns > now_ns {
            now_ns + 3 * HEAD_START_STEP_NS
        } else {
            now_ns.saturating_sub(HEAD_START_STEP_NS)
        };
        self.learnt_ns.set(next_ns.min(HEAD_START_MAX_NS));
    }
}

/// A wait that a signal cut short has named nothing.
#[inline(always)]
fn uninterrupted(named: io::Result<usize>) -> io::Result<usize> {
    match named {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        other => other,
    }
}

impl SocketSlot {
    fn free() -> SocketSlot {
        SocketSlot {
            generation: 0,
            is_readable: false,
            is_writable: false,
            is_hung_up: false,
            is_expired: false,
            deadline: Moment::NEVER,
            waker: None,
        }
    }
}

const NO_EVENT: Event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };

/// How epoll is told of a socket.
fn watched(slot: usize, generation: u32, wants_write: bool) -> (EventData, EventFlags) {
    let mut flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    flags.set(EventFlags::OUT, wants_write);
    (EventData::new_u64(u64::from(generation) << 32 | slot as u64), flags)
}

/// epoll with a time limit in ns: whole milliseconds would make arrivals late by half of one on average.
#[inline(always)]
fn epoll_wait(epoll: &OwnedFd, events: &mut [Event], timeout_ns: u64) -> io::Result<usize> {
    let limit = Timespec {
        tv_sec: (timeout_ns / 1_000_000_000) as i64,
        tv_nsec: (timeout_ns % 1_000_000_000) as i64,
    };
    match epoll::wait(epoll, &mut *events, Some(&limit)) {
        Ok(named) => Ok(named),
        Err(Errno::NOSYS) => wait_by_millis(epoll, events, timeout_ns),
        Err(error) => Err(error.into()),
    }
}

/// Before Linux 5.11, which has no epoll_pwait2: until the next whole millisecond.
#[cold]
#[inline(never)]
fn wait_by_millis(epoll: &OwnedFd, events: &mut [Event], timeout_ns: u64) -> io::Result<usize> {
    let limit_ms = timeout_ns.div_ceil(1_000_000) as libc::c_int;
    let room = events.len() as libc::c_int;
    // SAFETY: `Event` has the layout of epoll_event, which rustix hands to the kernel as it is; at most `room` of
    // them are written.
    let named = unsafe { libc::epoll_wait(epoll.as_raw_fd(), events.as_mut_ptr().cast(), room, limit_ms) };
    if named < 0 { Err(io::Error::last_os_error()) } else { Ok(named as usize) }
}

static VTABLE: RawWakerVTable =
    RawWakerVTable::new(|task| RawWaker::new(task, &VTABLE), wake_task, wake_task, |_task| {});

/// The task that a waker of this executor stands for: what its functions would do is then done without calling them,
/// for each call by address is one that the processor cannot foresee after a sleep.
#[inline]
fn task_of(waker: &Waker) -> Option<usize> {
    std::ptr::eq(waker.vtable(), &VTABLE).then(|| waker.data().addr())
}

/// Another of the same.
#[inline]
pub(crate) fn clone_of(waker: &Waker) -> Waker {
    task_of(waker).map_or_else(|| waker.clone(), waker_of)
}

/// A waker is the index of its task: nothing to count, nothing to free.
#[inline]
fn waker_of(task: usize) -> Waker {
    // SAFETY: the data pointer is never followed; `wake_task` may be called on any thread and as often as one
    // likes, since it looks only at the core of the thread it runs on.
    unsafe { Waker::from_raw(RawWaker::new(std::ptr::without_provenance(task), &VTABLE)) }
}

fn wake_task(task: *const ()) {
    if let Some(core) = Core::current() {
        core.queue(task.addr());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time;

    #[test]
    fn simulated_time_costs_none() {
        let core = Core::new(Clock::Simulated).unwrap().enter();
        let began = core.now();
        let log = Rc::new(RefCell::new(Vec::new()));
        for hours in [3u64, 1, 2] {
            let log = log.clone();
            core.spawn(Box::pin(async move {
                time::sleep(Duration::from_secs(hours * 60)).await;
                log.borrow_mut().push((hours, time::now()));
            }));
        }
        let real = Moment::now();
        core.run(|_| {}, || core.live_tasks() == 0).unwrap();
        assert!(Moment::now() - real < Duration::from_secs(10));
        let log: Vec<_> = log.borrow().iter().map(|(h, at)| (*h, (*at - began).as_secs())).collect();
        assert_eq!(log, [(1, 60), (2, 120), (3, 180)]);
    }

    #[test]
    fn a_cancelled_task_is_dropped_and_its_slot_used_again() {
        let core = Core::new(Clock::Simulated).unwrap().enter();
        let witness = Rc::new(());
        let held = witness.clone();
        let id = core.spawn(Box::pin(async move {
            time::sleep(Duration::from_secs(1)).await;
            drop(held);
        }));
        core.cancel(id);
        assert_eq!((Rc::strong_count(&witness), core.live_tasks()), (1, 0));
        assert_eq!(core.spawn(Box::pin(async {})), id);
        core.run(|_| {}, || core.live_tasks() == 0).unwrap();
    }

    #[test]
    fn a_task_that_wakes_itself_does_not_starve_timers() {
        let core = Core::new(Clock::Monotonic).unwrap().enter();
        let over = Rc::new(Cell::new(false));
        let (set, seen) = (over.clone(), over.clone());
        core.spawn(Box::pin(async move {
            time::sleep(Duration::from_millis(5)).await;
            set.set(true);
        }));
        core.spawn(Box::pin(std::future::poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            if seen.get() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })));
        core.run(|_| {}, || core.live_tasks() == 0).unwrap();
        assert!(over.get());
    }

    #[test]
    fn a_head_start_settles_where_three_in_four_wake_ups_are_in_time() {
        let head_start = HeadStart::new();
        let late = |n: u64| if n % 4 == 3 { 90_000 } else { 60_000 };
        (0..1_000).for_each(|n| head_start.learn(late(n)));
        assert!((58_000..=66_000).contains(&head_start.learnt_ns.get()), "{head_start:?}");
        (0..1_000).for_each(|n| head_start.learn(1_000_000 + n));
        assert_eq!(head_start.learnt_ns.get(), HEAD_START_MAX_NS);
        (0..1_000).for_each(|_| head_start.learn(0));
        assert_eq!(head_start.learnt_ns.get(), 0);
    }

    #[test]
    fn a_head_start_never_keeps_the_thread_from_sleeping() {
        let head_start = HeadStart::new();
        (0..100).for_each(|_| head_start.learn(1_000_000));
        let micros = |n: u64| Moment::START + Duration::from_micros(n);
        // Far: what was learnt. The aim stays while the thread is woken by answers in between.
        assert_eq!(head_start.before(micros(10_000), micros(0)), micros(9_800));
        assert_eq!(head_start.before(micros(10_000), micros(9_900)), micros(9_800));
        // Near: an eighth.
        assert_eq!(head_start.before(micros(10_080), micros(10_000)), micros(10_070));
        // Over.
        assert_eq!(head_start.before(micros(10_100), micros(10_200)), micros(10_100));
    }

    #[test]
    fn wakers_called_elsewhere_do_nothing() {
        let waker = waker_of(7);
        std::thread::spawn(move || waker.wake()).join().unwrap();
    }
}
