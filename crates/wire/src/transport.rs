//! The one seam between the protocols and whatever moves bytes.

use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

/// A byte stream that a connection speaks over. Two implementations exist: the blocking one in
/// [`crate::blocking`] (control work, tests) and the socket of `load`'s executor.
///
/// `Pending` means: the waker of `cx` will be called when the stream may be ready or the deadline has passed.
pub trait Transport {
    /// Reads what is there into `buf`; `Ok(0)` is the end of the stream.
    /// Past the deadline: `ErrorKind::TimedOut`.
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Writes some of `buf`. Past the deadline: `ErrorKind::TimedOut`.
    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;

    /// From now on reads and writes give up after `limit`, all of them together. A limit beyond what the clock can
    /// express is none.
    fn set_limit(&mut self, limit: Duration);

    /// Whether both ends are on this machine and the bytes cannot be overheard (a unix socket):
    /// passwords may then be sent as they are.
    fn is_private(&self) -> bool;
}
