//! A transport with what both protocols need around it: TLS, reused buffers, deadlines.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::ops::{Deref, DerefMut};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::target::Target;
use crate::transport::Transport;
use crate::tunnel::Tunnel;

/// Size of the read buffer, so that few reads fetch an answer.
const INPUT_BYTES: usize = 64 * 1024;
/// A buffer that a huge packet made larger than this is freed when it is empty.
const INPUT_BYTES_KEPT: usize = 1024 * 1024;

/// A transport notices its deadline when it has to wait. A server that never stops sending never makes it wait,
/// so after this many reads the clock is looked at here.
const READS_UNWATCHED: u32 = 64;

/// A request on its way: whether all of it was sent.
pub(crate) type Posted = Result<bool, Box<Error>>;

/// Bytes to and from one server.
#[derive(Debug)]
pub(crate) struct Channel<T: Transport> {
    tunnel: Tunnel<T>,
    /// Of no length unless something is unread: then it lies in [`INPUT`].
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// What the deadline now in force allowed, for error texts.
    limit: Duration,
    /// Reads since the deadline was set.
    reads: u32,
    /// A deadline has passed with something under way.
    has_timed_out: bool,
    /// When [`READS_UNWATCHED`] of them were over.
    watched_since: Option<Instant>,
    /// A request under construction. [`Channel::flush`] sends it and keeps its memory.
    pub(crate) output: Vec<u8>,
}

impl<T: Transport> Channel<T> {
    /// Wraps a connected transport.
    pub(crate) fn new(transport: T) -> Channel<T> {
        Channel {
            tunnel: Tunnel::plain(transport),
            input: Vec::new(),
            start: 0,
            end: 0,
            limit: Duration::ZERO,
            reads: 0,
            has_timed_out: false,
            watched_since: None,
            output: Vec::new(),
        }
    }

    /// From now on reads and writes give up after `limit`.
    pub(crate) fn arm(&mut self, limit: Duration) {
        self.limit = limit;
        self.reads = 0;
        self.watched_since = None;
        // A limit beyond what the clock can express is no limit.
        let transport = self.tunnel.transport_mut();
        let deadline = transport.now().checked_add(limit);
        transport.set_deadline(deadline);
    }

    /// Whether the bytes cannot be overheard without being on this machine.
    pub(crate) fn is_private(&self) -> bool {
        self.tunnel.transport().is_private()
    }

    /// The TLS version and cipher suite in use.
    pub(crate) fn tls(&self) -> Option<String> {
        self.tunnel.description()
    }

    /// Hash of the server's certificate for `tls-server-end-point`; `None` without TLS, or where the certificate's
    /// signature defines no hash.
    pub(crate) fn end_point_hash(&self) -> Option<Vec<u8>> {
        self.tunnel.end_point_hash()
    }

    /// Whether a deadline has passed: the server may still be at work.
    pub(crate) fn has_timed_out(&self) -> bool {
        self.has_timed_out
    }

    #[cold]
    fn failed(&mut self, error: Error) -> Error {
        let error = timed_out(error, self.limit);
        self.has_timed_out |= matches!(error, Error::Timeout { .. });
        error
    }

    /// Encrypts everything from here on. Called where the protocol says so, with nothing unread:
    /// bytes that came before the handshake are unauthenticated, hence refused.
    pub(crate) async fn start_tls(&mut self, target: &Target) -> Result<(), Error> {
        if self.start != self.end {
            return Err(Error::Protocol("the server sent bytes before the TLS handshake".into()));
        }
        let limit = self.limit;
        self.tunnel.start_tls(target).await.map_err(|error| timed_out(error, limit))
    }

    /// Compresses everything from here on. Called where the protocol says so, with nothing unread.
    pub(crate) fn start_compression(&mut self) -> Result<(), Error> {
        if self.start != self.end {
            return Err(Error::Protocol("the server went on after the log-in was over".into()));
        }
        self.tunnel.start_compression();
        Ok(())
    }

    /// What has been received and not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.input[self.start..self.end]
    }

    /// [`Channel::unread`], to be changed in place (joining split packets).
    pub(crate) fn unread_mut(&mut self) -> &mut [u8] {
        &mut self.input[self.start..self.end]
    }

    /// Drops the first `count` unread bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.end - self.start);
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.give_back();
        }
    }

    /// Reads at least one more byte. The end of the stream is an error.
    pub(crate) async fn fill(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_fill(cx)).await
    }

    /// [`Channel::fill`], for whoever is polled itself.
    ///
    /// The buffer grows only after it has been filled, never by a length that the server claims.
    #[inline]
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        // A buffer is not fetched for an answer that has not come.
        if self.input.is_empty() {
            ready!(self.tunnel.poll_readable(cx));
        }
        self.make_room();
        let room = &mut self.input[self.end..];
        let room_bytes = room.len();
        let Poll::Ready(read) = self.tunnel.poll_read(cx, room) else {
            if self.start == self.end {
                self.give_back();
            }
            return Poll::Pending;
        };
        self.reads = self.reads.wrapping_add(1);
        if self.reads.is_multiple_of(READS_UNWATCHED) {
            self.check_limit()?;
        }
        Poll::Ready(match read {
            Ok(0) => Err(Error::Io(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            ))),
            Ok(count) => {
                self.end += count.min(room_bytes);
                Ok(())
            }
            Err(error) => Err(self.failed(Error::Io(error))),
        })
    }

    #[cold]
    fn check_limit(&mut self) -> Result<(), Error> {
        let since = *self.watched_since.get_or_insert_with(Instant::now);
        if since.elapsed() <= self.limit {
            return Ok(());
        }
        Err(self.failed(Error::Io(io::ErrorKind::TimedOut.into())))
    }

    #[inline]
    fn make_room(&mut self) {
        if self.input.is_empty() {
            self.input = INPUT.take();
            if self.input.is_empty() {
                self.input = vec![0; INPUT_BYTES];
            }
        } else if self.end == self.input.len() {
            if self.start > self.end / 2 {
                self.input.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                self.input.resize(self.end * 2, 0);
            }
        }
    }

    /// With nothing unread: the next connection of the thread that reads may have the buffer.
    #[inline]
    fn give_back(&mut self) {
        (self.start, self.end) = (0, 0);
        let input = std::mem::take(&mut self.input);
        if !input.is_empty() && input.len() <= INPUT_BYTES_KEPT {
            INPUT.set(input);
        }
    }

    /// Sends `bytes`, or as many as the transport takes at once; the rest is kept in [`Channel::output`], for
    /// [`Channel::flush`]. False: there is a rest. Nothing of the request has to live on while it is waited for.
    pub(crate) fn post(&mut self, bytes: &[u8]) -> Posted {
        let mut sent = 0;
        if !self.tunnel.holds_back() {
            // Should it have to wait, `flush` polls again with a waker that somebody listens to.
            let mut cx = Context::from_waker(Waker::noop());
            while sent < bytes.len() {
                match self.tunnel.poll_write(&mut cx, &bytes[sent..]) {
                    Poll::Ready(Ok(0)) => return Err(Box::new(takes_nothing())),
                    Poll::Ready(Ok(count)) => sent += count,
                    Poll::Ready(Err(error)) => return Err(Box::new(self.failed(Error::Io(error)))),
                    Poll::Pending => break,
                }
            }
        }
        if sent >= bytes.len() {
            return Ok(true);
        }
        self.output.clear();
        self.output.extend_from_slice(&bytes[sent..]);
        Ok(false)
    }

    /// Sends [`Channel::output`] and empties it.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        let sent = send_all(&mut self.tunnel, &self.output).await;
        self.output.clear();
        if self.output.capacity() > INPUT_BYTES_KEPT {
            self.output = Vec::new();
        }
        sent.map_err(|error| self.failed(error))
    }
}

async fn send_all<T: Transport>(tunnel: &mut Tunnel<T>, bytes: &[u8]) -> Result<(), Error> {
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = &bytes[sent..];
        match poll_fn(|cx| tunnel.poll_write(cx, rest)).await? {
            0 => return Err(takes_nothing()),
            count => sent += count,
        }
    }
    if tunnel.holds_back() {
        poll_fn(|cx| tunnel.poll_flush(cx)).await?;
    }
    Ok(())
}

#[cold]
fn takes_nothing() -> Error {
    Error::Io(io::Error::new(io::ErrorKind::WriteZero, "the socket takes no bytes"))
}

/// Memory for one request that is encoded and sent at once, shared by all connections of a thread: with many sessions
/// a buffer of each one's own has left the cache when its turn comes.
#[derive(Debug)]
pub(crate) struct Scratch(Vec<u8>);

thread_local! {
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// The read buffer of all connections of a thread that have nothing unread: one that is in the caches, where one of
    /// each connection's own would have left them.
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Scratch {
    /// Empty.
    #[inline]
    pub(crate) fn take() -> Scratch {
        let mut bytes = SCRATCH.take();
        bytes.clear();
        Scratch(bytes)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.0.capacity() <= INPUT_BYTES_KEPT {
            SCRATCH.set(std::mem::take(&mut self.0));
        }
    }
}

impl Deref for Scratch {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

fn timed_out(error: Error, limit: Duration) -> Error {
    match error {
        Error::Io(cause) if cause.kind() == io::ErrorKind::TimedOut => {
            Error::Timeout { waited_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
        }
        other => other,
    }
}
