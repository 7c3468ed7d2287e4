//! A transport with what both protocols need around it: TLS, reused buffers, deadlines.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, Waker};
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
    /// Why [`Channel::post`] could not send, for [`Channel::flush`] to tell.
    post_error: Option<Box<Error>>,
    /// A request under construction, or what is left of it. [`Channel::flush`] sends it and keeps its memory.
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
            post_error: None,
            output: Vec::new(),
        }
    }

    /// From now on reads and writes give up after `limit`.
    #[inline(always)]
    pub(crate) fn arm(&mut self, limit: Duration) {
        self.limit = limit;
        self.reads = 0;
        self.watched_since = None;
        self.tunnel.transport_mut().set_limit(limit);
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
    #[inline]
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
    ///
    /// The buffer grows only after it has been filled, never by a length that the server claims.
    #[inline]
    pub(crate) async fn fill(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_fill(cx)).await
    }

    #[inline]
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
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
            Ok(count @ 1..) => {
                self.end += count.min(room_bytes);
                Ok(())
            }
            other => Err(self.read_failed(other)),
        })
    }

    #[cold]
    #[inline(never)]
    fn read_failed(&mut self, read: io::Result<usize>) -> Error {
        match read {
            Ok(_) => {
                Error::Io(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection"))
            }
            Err(error) => self.failed(Error::Io(error)),
        }
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
            self.input = shared_input();
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

    /// Sends [`Channel::output`], or as much of it as the transport takes at once: [`Channel::flush`] must follow.
    #[inline]
    pub(crate) fn post(&mut self) {
        if self.tunnel.holds_back() {
            return;
        }
        // Should it have to wait, `flush` polls again with a waker that somebody listens to.
        let mut cx = Context::from_waker(Waker::noop());
        match self.tunnel.poll_write(&mut cx, &self.output) {
            Poll::Ready(Ok(count)) if count >= self.output.len() => self.output.clear(),
            Poll::Ready(Ok(count)) => drop(self.output.drain(..count)),
            Poll::Ready(Err(error)) => self.post_error = Some(Box::new(Error::Io(error))),
            Poll::Pending => {}
        }
    }

    /// Whether everything has been sent, as it nearly always is after [`Channel::post`].
    #[inline]
    pub(crate) fn is_flushed(&self) -> bool {
        self.output.is_empty() && self.post_error.is_none()
    }

    /// Sends [`Channel::output`] and empties it.
    pub(crate) async fn flush(&mut self) -> Result<(), Error> {
        let sent = match self.post_error.take() {
            Some(error) => Err(*error),
            None => send_all(&mut self.tunnel, &self.output).await,
        };
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

thread_local! {
    /// The read buffer of all connections of a thread that have nothing unread: one that is in the caches, where one of
    /// each connection's own would have left them.
    static INPUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Takes [`INPUT`], or new memory where a connection has kept it.
#[inline]
fn shared_input() -> Vec<u8> {
    let input = INPUT.take();
    if input.is_empty() { vec![0; INPUT_BYTES] } else { input }
}

fn timed_out(error: Error, limit: Duration) -> Error {
    match error {
        Error::Io(cause) if cause.kind() == io::ErrorKind::TimedOut => {
            Error::Timeout { waited_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) }
        }
        other => other,
    }
}
