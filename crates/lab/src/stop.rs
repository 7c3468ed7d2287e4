//! Stopping: gently, then harder.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// What Ctrl-C turns. Clones share the state.
#[derive(Debug, Clone, Default)]
pub struct StopSwitch {
    load: load::Stop,
    inner: Arc<Inner>,
    /// Which of the runs that go on at the same time.
    side: usize,
}

/// Runs that go on at the same time.
pub(crate) const SIDES_MAX: usize = 8;

#[derive(Debug, Default)]
struct Inner {
    presses: AtomicU32,
    /// By run: the process whose end makes whatever goes on fail at once; 0 for none.
    expendable: [AtomicI32; SIDES_MAX],
    /// The same, but only for the second press.
    server: [AtomicI32; SIDES_MAX],
}

impl StopSwitch {
    /// One more press. The first lets transactions in flight finish and keeps what was measured; the second ends
    /// the run's own server, so that everything waiting for it fails now. Returns how many presses there were.
    pub fn press(&self) -> u32 {
        let presses = self.inner.presses.fetch_add(1, Ordering::SeqCst) + 1;
        self.load.request();
        for (expendable, server) in self.inner.expendable.iter().zip(&self.inner.server) {
            let mut kill = expendable.load(Ordering::SeqCst);
            if presses > 1 && kill == 0 {
                kill = server.load(Ordering::SeqCst);
            }
            if kill > 0 {
                // SAFETY: kill takes no pointers; the pid is of a server that this process started and has not reaped.
                unsafe { libc::kill(kill, libc::SIGKILL) };
            }
        }
        presses
    }

    /// The same switch for one of the runs that go on at the same time, from 0.
    pub(crate) fn of_side(&self, side: usize) -> StopSwitch {
        StopSwitch { side: side.min(SIDES_MAX - 1), ..self.clone() }
    }

    pub fn presses(&self) -> u32 {
        self.inner.presses.load(Ordering::SeqCst)
    }

    /// Whether somebody wants it to end.
    pub fn is_requested(&self) -> bool {
        self.load.is_requested()
    }

    /// The engine's own flag.
    pub fn load(&self) -> &load::Stop {
        &self.load
    }

    /// While the guard lives, the first press ends this server: nothing that it does now would be kept.
    pub(crate) fn expendable(&self, pid: Option<u32>) -> Expendable<'_> {
        self.inner.expendable[self.side].store(pid.unwrap_or(0) as i32, Ordering::SeqCst);
        Expendable(self)
    }

    /// Tells which server the second press ends; `None` when there is none any more.
    pub(crate) fn set_server(&self, pid: Option<u32>) {
        self.inner.server[self.side].store(pid.unwrap_or(0) as i32, Ordering::SeqCst);
    }
}

/// See [`StopSwitch::expendable`].
pub(crate) struct Expendable<'a>(&'a StopSwitch);

impl Drop for Expendable<'_> {
    fn drop(&mut self) {
        self.0.inner.expendable[self.0.side].store(0, Ordering::SeqCst);
    }
}
