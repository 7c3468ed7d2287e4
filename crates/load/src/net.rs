//! Sockets on the executor.
//!
//! Edge-triggered reading without futile system calls: a read that gives less than was asked for has drained the
//! socket, so the next one waits for epoll at once; only a full buffer or a hung-up peer is read again.
//!
//! A session that is alone on its worker calls epoll itself instead of going back through the executor.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};
use wire::{Endpoint, Transport};

use crate::executor::Executor;
use crate::time::{self, Moment};
use crate::tuning::{Trick, is_on};

/// First and longest pause before a unix socket whose queue of connections is full is tried again.
const QUEUE_FULL_PAUSE: Duration = Duration::from_millis(1);
const QUEUE_FULL_PAUSE_MAX: Duration = Duration::from_millis(50);

/// A connected, non-blocking socket of the worker that opened it. It cannot leave its thread.
pub struct Socket {
    fd: OwnedFd,
    executor: Rc<Executor>,
    slot: usize,
    is_private: bool,
}

/// Connects to a server: a unix socket, or TCP without Nagle's delay. Gives up after `limit` with
/// `ErrorKind::TimedOut`. Only inside a session's task.
///
/// A host name is looked up once for each process and then remembered; the look-up blocks the worker, which is
/// why the caller should connect once before the load starts.
pub async fn connect(endpoint: &Endpoint, limit: Duration) -> io::Result<Socket> {
    let deadline = time::now() + limit;
    match endpoint {
        Endpoint::Unix(path) => connect_unix(path, deadline).await,
        Endpoint::Tcp { host, port } => connect_tcp(&look_up(host, *port)?, deadline).await,
    }
}

async fn connect_unix(path: &Path, deadline: Moment) -> io::Result<Socket> {
    let address = unix_address(path)?;
    let fd = new_socket(AddressFamily::UNIX)?;
    let mut pause = QUEUE_FULL_PAUSE;
    loop {
        match net::connect(&fd, &address) {
            Ok(()) => return Socket::new(fd, true, true),
            Err(Errno::INTR) => {}
            // The server has not accepted as fast as we ask; nothing tells when it will.
            Err(Errno::AGAIN) => {
                if time::now() >= deadline {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                time::sleep(pause).await;
                pause = (pause * 2).min(QUEUE_FULL_PAUSE_MAX);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

async fn connect_tcp(addresses: &[SocketAddr], deadline: Moment) -> io::Result<Socket> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
    for address in addresses {
        match connect_address(address, deadline).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn connect_address(address: &SocketAddr, deadline: Moment) -> io::Result<Socket> {
    let fd = new_socket(if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    sockopt::set_tcp_nodelay(&fd, true)?;
    match net::connect(&fd, address) {
        Ok(()) => return Socket::new(fd, false, true),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(error.into()),
    }
    let socket = Socket::new(fd, false, false)?;
    socket.set_deadline(deadline);
    poll_fn(|cx| socket.wait(cx, |known| known.is_writable)).await?;
    // How the connection that was being made ended.
    sockopt::socket_error(&socket.fd)??;
    socket.executor.watch_writable(&socket.fd, socket.slot, false)?;
    Ok(socket)
}

/// Names are looked up once: a look-up in the middle of a load would stop a worker.
fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    type Known = HashMap<(String, u16), Vec<SocketAddr>>;
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = (host.to_owned(), port);
    if let Some(addresses) = known.get(&name) {
        return Ok(addresses.clone());
    }
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    known.insert(name, addresses.clone());
    Ok(addresses)
}

fn new_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

fn unix_address(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|error| match error {
        Errno::NAMETOOLONG => io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{}: longer than the 108 bytes a socket's path may have", path.display()),
        ),
        other => other.into(),
    })
}

impl Socket {
    fn new(fd: OwnedFd, is_private: bool, is_writable: bool) -> io::Result<Socket> {
        let executor = Executor::current_rc()
            .ok_or_else(|| io::Error::other("load::net::connect outside of a session's task"))?;
        let slot = executor.register(&fd, is_writable)?;
        Ok(Socket { fd, executor, slot, is_private })
    }

    /// Ready when `is_ready` holds; else the waker is kept for epoll or for the sweep that finds the deadline
    /// passed.
    #[inline(always)]
    fn wait(
        &self,
        cx: &mut Context<'_>,
        is_ready: impl Fn(&crate::executor::SocketSlot) -> bool,
    ) -> Poll<io::Result<()>> {
        self.executor.with_socket(self.slot, |known| {
            if is_ready(known) {
                return Poll::Ready(Ok(()));
            }
            if known.is_expired {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            match &known.waker {
                Some(waker) if waker.will_wake(cx.waker()) => {}
                _ => known.waker = Some(cx.waker().clone()),
            }
            Poll::Pending
        })
    }

    #[inline(always)]
    fn set_deadline(&self, deadline: Moment) {
        self.executor.with_socket(self.slot, |known| {
            known.deadline = deadline;
            known.is_expired = false;
        });
    }
}

impl Transport for Socket {
    #[inline(always)]
    fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            std::task::ready!(self.wait(cx, |known| known.is_readable))?;
            match net::recv(&self.fd, &mut *buf, RecvFlags::empty()) {
                Ok((got, _)) => {
                    if got < buf.len() && is_on(Trick::Drained) {
                        self.executor.with_socket(self.slot, |known| known.is_readable = known.is_hung_up);
                    }
                    return Poll::Ready(Ok(got));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.executor.with_socket(self.slot, |known| known.is_readable = false);
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    #[inline(always)]
    fn poll_write(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            std::task::ready!(self.wait(cx, |known| known.is_writable))?;
            // A peer that is gone gives EPIPE, not a signal.
            match net::send(&self.fd, buf, SendFlags::NOSIGNAL) {
                Ok(put) => return Poll::Ready(Ok(put)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.executor.with_socket(self.slot, |known| known.is_writable = false);
                    self.executor.watch_writable(&self.fd, self.slot, true)?;
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    #[inline(always)]
    fn set_limit(&mut self, limit: Duration) {
        // Coarse: a deadline may lag by a turn of the loop.
        self.set_deadline(self.executor.coarse_now() + limit);
    }

    fn is_private(&self) -> bool {
        self.is_private
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.executor.deregister(self.slot);
    }
}
