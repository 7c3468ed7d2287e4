//! A transport that blocks the calling thread, and a client over it: control work, bulk loading, tests.

use std::future::Future;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::connection::{Connection, Statement};
use crate::error::Error;
use crate::limits::Budget;
use crate::mysql::BulkSource;
use crate::target::{Endpoint, Target};
use crate::transport::Transport;
use crate::value::{Done, ParamType, ResultSet, Row, RowSource, ServerInfo, Value};

/// A connected socket whose reads and writes wait. It never answers `Pending`.
#[derive(Debug)]
pub struct Socket {
    stream: Stream,
    deadline: Option<Instant>,
    /// Set by whoever wants all waiting to end.
    stop: Option<Arc<AtomicBool>>,
}

/// Between two looks at whether somebody wants the waiting to end.
const STOP_LOOK: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Connects within `limit`; TCP without Nagle's delay.
    pub fn connect(endpoint: &Endpoint, limit: Duration) -> io::Result<Socket> {
        let deadline = Instant::now().checked_add(limit);
        let stream = match endpoint {
            Endpoint::Unix(path) => Stream::Unix(connect_unix(path, deadline)?),
            Endpoint::Tcp { host, port } => Stream::Tcp(connect_tcp(host, *port, limit)?),
        };
        Ok(Socket { stream, deadline, stop: None })
    }

    fn fd(&self) -> i32 {
        match &self.stream {
            Stream::Unix(s) => s.as_raw_fd(),
            Stream::Tcp(s) => s.as_raw_fd(),
        }
    }

    /// Waits until the socket is ready for `events` or the deadline has passed.
    fn wait(&self, events: i16) -> io::Result<()> {
        loop {
            if self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let look_ms = STOP_LOOK.as_millis() as i32;
            let timeout_ms = match self.deadline {
                None => -1,
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    // Rounded up, or the last millisecond would be spent spinning.
                    i32::try_from(left.as_millis() + 1).unwrap_or(i32::MAX)
                }
            };
            let timeout_ms = match &self.stop {
                Some(_) if timeout_ms < 0 => look_ms,
                Some(_) => timeout_ms.min(look_ms),
                None => timeout_ms,
            };
            let mut poll = libc::pollfd { fd: self.fd(), events, revents: 0 };
            // SAFETY: one valid pollfd, for the length of the call.
            let ready = unsafe { libc::poll(&mut poll, 1, timeout_ms) };
            if ready > 0 {
                return Ok(());
            }
            if ready < 0 {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

fn connect_tcp(host: &str, port: u16, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, limit.max(Duration::from_millis(1))) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// `UnixStream::connect` waits without limit while the server's backlog is full; this gives up at `deadline`.
fn connect_unix(path: &Path, deadline: Option<Instant>) -> io::Result<UnixStream> {
    let name = path.as_os_str().as_bytes();
    // SAFETY: all-zero bytes are a valid sockaddr_un.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if name.len() >= address.sun_path.len() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{}: a socket's path must be shorter than 108 bytes", path.display()),
        ));
    }
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in address.sun_path.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: no pointers involved.
    let fd = unsafe {
        libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just opened and belongs to nobody else.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    loop {
        // SAFETY: `address` is a filled sockaddr_un and its size is given.
        let status = unsafe {
            libc::connect(fd, (&raw const address).cast(), size_of::<libc::sockaddr_un>() as libc::socklen_t)
        };
        if status == 0 {
            return Ok(UnixStream::from(owned));
        }
        let error = io::Error::last_os_error();
        match error.kind() {
            io::ErrorKind::Interrupted => {}
            // The backlog is full; a unix socket cannot be polled for that.
            io::ErrorKind::WouldBlock => {
                if deadline.is_some_and(|d| Instant::now() >= d) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return Err(error),
        }
    }
}

impl Transport for Socket {
    fn poll_read(&mut self, _cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let read = match &mut self.stream {
                Stream::Unix(s) => s.read(buf),
                Stream::Tcp(s) => s.read(buf),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(libc::POLLIN)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return Poll::Ready(other),
            }
        }
    }

    fn poll_write(&mut self, _cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let written = match &mut self.stream {
                Stream::Unix(s) => s.write(buf),
                Stream::Tcp(s) => s.write(buf),
            };
            match written {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait(libc::POLLOUT)?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return Poll::Ready(other),
            }
        }
    }

    fn set_limit(&mut self, limit: Duration) {
        self.deadline = Instant::now().checked_add(limit);
    }

    fn is_private(&self) -> bool {
        matches!(self.stream, Stream::Unix(_))
    }
}

/// Runs a future of a connection over a [`Socket`]: its first poll ends it, for the socket waits by itself.
fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
    }
}

/// A connection whose calls wait. The methods are those of [`Connection`].
#[derive(Debug)]
pub struct Client {
    connection: Connection<Socket>,
    /// Where to cancel a statement that timed out.
    target: Target,
}

/// Rows as they are shown to whoever asked. Control work keeps what it is shown, so that there is an end to it.
struct Shown<'a> {
    budget: Budget,
    on_row: &'a mut dyn FnMut(&Row<'_>),
    ended: Result<(), Error>,
}

impl Shown<'_> {
    fn row(&mut self, row: &Row<'_>) {
        if self.ended.is_ok() {
            let bytes = (0..row.len()).filter_map(|column| row.get(column)).map(<[u8]>::len).sum::<usize>();
            self.ended = self.budget.take(bytes + row.len());
        }
        if self.ended.is_ok() {
            (self.on_row)(row);
        }
    }
}

/// How long a request to cancel a statement may take.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

impl Client {
    /// Connects and logs in within the target's connect timeout.
    pub fn connect(target: &Target) -> Result<Client, Error> {
        Self::connect_with(target, None)
    }

    /// The same, for work that somebody may stop: soon after `stop` is set whatever the connection waits for ends in
    /// [`Error::Timeout`], and the server is told to give up the statement, as after any timeout.
    pub fn connect_until(target: &Target, stop: Arc<AtomicBool>) -> Result<Client, Error> {
        Self::connect_with(target, Some(stop))
    }

    fn connect_with(target: &Target, stop: Option<Arc<AtomicBool>>) -> Result<Client, Error> {
        let start = Instant::now();
        let limit = target.connect_timeout;
        let timeout = || Error::Timeout { waited_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX) };
        let socket = Socket::connect(&target.endpoint, limit).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => timeout(),
            kind => Error::Io(io::Error::new(kind, format!("{}: {error}", target.endpoint))),
        })?;
        let socket = Socket { stop, ..socket };
        let left = Target { connect_timeout: limit.saturating_sub(start.elapsed()), ..target.clone() };
        match wait_for(Connection::open(socket, &left)) {
            Ok(connection) => Ok(Client { connection, target: target.clone() }),
            Err(Error::Timeout { .. }) => Err(timeout()),
            Err(error) => Err(error),
        }
    }

    /// A statement that ran into its timeout is cancelled, or the server would go on with it. Whether that works is
    /// not waited for any longer than [`CANCEL_LIMIT`], and changes nothing for the caller.
    fn settle<R>(&self, result: Result<R, Error>) -> Result<R, Error> {
        if matches!(result, Err(Error::Timeout { .. }))
            && let Some(abandoned) = self.connection.abandoned()
        {
            let limit = CANCEL_LIMIT.min(self.target.connect_timeout);
            let target = Target { connect_timeout: limit, ..self.target.clone() };
            if let Ok(socket) = Socket::connect(&target.endpoint, limit) {
                let _ = wait_for(abandoned.cancel(socket, &target));
            }
        }
        result
    }

    /// The connection itself.
    pub fn connection(&mut self) -> &mut Connection<Socket> {
        &mut self.connection
    }

    /// See [`Connection::server`].
    pub fn server(&self) -> &ServerInfo {
        self.connection.server()
    }

    /// See [`Connection::query`].
    pub fn query(&mut self, sql: &str) -> Result<Done, Error> {
        let result = wait_for(self.connection.query(sql));
        self.settle(result)
    }

    /// See [`Connection::query_rows`]. Not more than [`limits::RESULT_BYTES_MAX`] of values are shown.
    ///
    /// [`limits::RESULT_BYTES_MAX`]: crate::limits::RESULT_BYTES_MAX
    pub fn query_rows(&mut self, sql: &str, on_row: &mut dyn FnMut(&Row<'_>)) -> Result<Done, Error> {
        let mut shown = Shown { budget: Budget::default(), on_row, ended: Ok(()) };
        let result = wait_for(self.connection.query_rows(sql, &mut |row| shown.row(row)));
        let done = self.settle(result)?;
        shown.ended.map(|()| done)
    }

    /// See [`Connection::query_sets`].
    pub fn query_sets(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        let result = wait_for(self.connection.query_sets(sql));
        self.settle(result)
    }

    /// The first value of the first row of `sql` as text; `None` where there is no row or it is NULL.
    pub fn query_value(&mut self, sql: &str) -> Result<Option<String>, Error> {
        let mut value = None;
        let mut is_first = true;
        self.query_rows(sql, &mut |row| {
            if std::mem::take(&mut is_first) {
                value = row.get(0).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
            }
        })?;
        Ok(value)
    }

    /// See [`Connection::prepare`].
    pub fn prepare(&mut self, sql: &str, params: &[ParamType]) -> Result<Statement, Error> {
        let result = wait_for(self.connection.prepare(sql, params));
        self.settle(result)
    }

    /// See [`Connection::execute`].
    pub fn execute(&mut self, statement: &mut Statement, values: &[Value<'_>]) -> Result<Done, Error> {
        let result = wait_for(self.connection.execute(statement, values));
        self.settle(result)
    }

    /// See [`Connection::execute_rows`].
    pub fn execute_rows(
        &mut self,
        statement: &mut Statement,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, Error> {
        let mut shown = Shown { budget: Budget::default(), on_row, ended: Ok(()) };
        let result = wait_for(self.connection.execute_rows(statement, values, &mut |row| shown.row(row)));
        let done = self.settle(result)?;
        shown.ended.map(|()| done)
    }

    /// See [`Connection::close_statement`].
    pub fn close_statement(&mut self, statement: Statement) -> Result<(), Error> {
        let result = wait_for(self.connection.close_statement(statement));
        self.settle(result)
    }

    /// See [`Connection::load_rows`].
    pub fn load_rows(&mut self, sql: &str, source: RowSource<'_>) -> Result<Done, Error> {
        let result = wait_for(self.connection.load_rows(sql, source));
        self.settle(result)
    }

    /// See [`Connection::has_bulk`].
    pub fn has_bulk(&self) -> bool {
        self.connection.has_bulk()
    }

    /// See [`Connection::execute_bulk`].
    pub fn execute_bulk(&mut self, statement: &Statement, source: BulkSource<'_>) -> Result<Done, Error> {
        let result = wait_for(self.connection.execute_bulk(statement, source));
        self.settle(result)
    }

    /// See [`Connection::ping`].
    pub fn ping(&mut self) -> Result<(), Error> {
        let result = wait_for(self.connection.ping());
        self.settle(result)
    }

    /// See [`Connection::close`].
    pub fn close(self) {}

    /// See [`Connection::set_statement_timeout`].
    pub fn set_statement_timeout(&mut self, limit: Duration) {
        self.connection.set_statement_timeout(limit);
    }
}

impl Drop for Client {
    /// A server notes in its log whoever leaves without a word.
    fn drop(&mut self) {
        wait_for(self.connection.say_good_bye());
    }
}
