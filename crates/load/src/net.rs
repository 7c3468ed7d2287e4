//! Sockets on the executor.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use wire::{Endpoint, Transport};

/// A connected, non-blocking socket of the worker that opened it. It cannot leave its thread.
#[derive(Debug)]
pub struct Socket {}

/// Connects to a server: a unix socket, or TCP without Nagle's delay. Gives up at the deadline with
/// `ErrorKind::TimedOut`. Only inside a session's task.
///
/// A host name is looked up once for each process and then remembered; the look-up blocks the worker, which is
/// why the caller should connect once before the load starts.
pub async fn connect(_endpoint: &Endpoint, _deadline: Instant) -> io::Result<Socket> {
    Err(io::ErrorKind::Unsupported.into())
}

impl Transport for Socket {
    fn poll_read(&mut self, _cx: &mut Context<'_>, _buf: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_write(&mut self, _cx: &mut Context<'_>, _buf: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn set_deadline(&mut self, _deadline: Option<Instant>) {}

    fn is_private(&self) -> bool {
        false
    }
}
