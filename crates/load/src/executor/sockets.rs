//! The sockets of a worker, and epoll, which watches them.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::task::Waker;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::time::Moment;

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

pub(super) struct Sockets {
    epoll: OwnedFd,
    slots: RefCell<Vec<SocketSlot>>,
    free: RefCell<Vec<usize>>,
}

impl Sockets {
    pub(super) fn new() -> io::Result<Sockets> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Sockets { epoll, slots: RefCell::default(), free: RefCell::default() })
    }

    /// Watches a socket. Edge-triggered: what is already there is reported too.
    pub(super) fn register(&self, fd: &OwnedFd, is_writable: bool) -> io::Result<usize> {
        let mut slots = self.slots.borrow_mut();
        let slot = match self.free.borrow_mut().pop() {
            Some(slot) => slot,
            None => {
                slots.push(SocketSlot::free());
                slots.len() - 1
            }
        };
        let generation = slots[slot].generation;
        slots[slot] = SocketSlot { is_writable, generation, ..SocketSlot::free() };
        drop(slots);
        let (data, flags) = watched(slot, generation, !is_writable);
        if let Err(error) = epoll::add(&self.epoll, fd, data, flags) {
            self.free.borrow_mut().push(slot);
            return Err(error.into());
        }
        Ok(slot)
    }

    /// Asks for (or no longer for) the moment at which the socket can be written to. Not asked for all the
    /// time: the kernel would report each request that the server has read.
    pub(super) fn watch_writable(&self, fd: &OwnedFd, slot: usize, wanted: bool) -> io::Result<()> {
        let generation = self.slots.borrow()[slot].generation;
        let (data, flags) = watched(slot, generation, wanted);
        Ok(epoll::modify(&self.epoll, fd, data, flags)?)
    }

    /// Forgets a socket that is about to be closed (closing removes it from epoll).
    pub(super) fn deregister(&self, slot: usize) {
        let mut slots = self.slots.borrow_mut();
        let generation = slots[slot].generation.wrapping_add(1);
        slots[slot] = SocketSlot { generation, ..SocketSlot::free() };
        self.free.borrow_mut().push(slot);
    }

    /// Looks at or changes what is known of a socket.
    #[inline(always)]
    pub(super) fn with<R>(&self, slot: usize, use_it: impl FnOnce(&mut SocketSlot) -> R) -> R {
        use_it(&mut self.slots.borrow_mut()[slot])
    }

    /// Notes what epoll says of a socket, and wakes the task that waits for it.
    #[inline]
    pub(super) fn note_event(&self, event: &Event) {
        let (data, flags) = (event.data.u64(), event.flags);
        let (slot, generation) = ((data & 0xffff_ffff) as usize, (data >> 32) as u32);
        let mut slots = self.slots.borrow_mut();
        let Some(known) = slots.get_mut(slot).filter(|known| known.generation == generation) else { return };
        if flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
            known.is_hung_up = true;
            known.is_readable = true;
            known.is_writable = true;
        }
        known.is_readable |= flags.contains(EventFlags::IN);
        known.is_writable |= flags.contains(EventFlags::OUT);
        let waker = known.waker.take();
        drop(slots);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Wakes whoever waits for a socket whose deadline has passed.
    pub(super) fn expire(&self, now: Moment) {
        let mut expired = Vec::new();
        for slot in self.slots.borrow_mut().iter_mut() {
            if slot.waker.is_some() && slot.deadline <= now {
                slot.is_expired = true;
                expired.extend(slot.waker.take());
            }
        }
        expired.into_iter().for_each(Waker::wake);
    }

    /// Waits for events; a wait that a signal cut short has named nothing.
    #[inline(always)]
    pub(super) fn wait(&self, events: &mut [Event], timeout_ns: u64) -> io::Result<usize> {
        match epoll_wait(&self.epoll, events, timeout_ns) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }
}

pub(super) const NO_EVENT: Event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };

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
