//! The one seam between the protocols and whatever moves bytes.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

/// A byte stream that a connection speaks over. Two implementations exist: the blocking one in
/// [`crate::blocking`] (control work, tests) and the socket of `load`'s executor.
///
/// `Pending` means: the waker of `cx` will be called when the stream may be ready or the deadline has passed.
pub trait Transport {
    /// Reads what is there into `buf`; `Ok(0)` is the end of the stream.
    /// Past the deadline: `ErrorKind::TimedOut`.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Waits until a read is worth its preparation. Ready at once where that is not known; errors are left to the read.
    fn poll_readable(&mut self, _cx: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }

    /// Writes some of `buf`. Past the deadline: `ErrorKind::TimedOut`.
    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;

    /// When reads and writes from now on give up. `None`: never.
    fn set_deadline(&mut self, deadline: Option<Instant>);

    /// The time that deadlines are computed from. It may lag by a turn of an executor's loop: for deadlines
    /// only, never for measuring.
    fn now(&self) -> Instant {
        Instant::now()
    }

    /// Whether both ends are on this machine and the bytes cannot be overheard (a unix socket):
    /// passwords may then be sent as they are.
    fn is_private(&self) -> bool;
}
