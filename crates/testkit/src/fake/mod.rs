//! A fake server that speaks enough of either protocol to be logged in to and asked, and lets a script spoil any
//! of its answers: cut, replace, delay for ever, hang up.
//!
//! Every connection has a thread of its own; a server ends, with all its connections, when it is dropped.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

pub mod mysql;
pub mod postgres;

/// Which language a fake server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// MySQL.
    Mysql,
    /// PostgreSQL.
    Postgres,
}

/// What a client has asked for, or done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// It has connected. MySQL greets; PostgreSQL's honest reply is empty.
    Connect,
    /// PostgreSQL: it asks for TLS. The honest reply is `N`.
    Tls,
    /// It logs in. The honest reply lets anybody in.
    Login,
    /// PostgreSQL: it wants what another session does cancelled. The honest reply is empty; the connection ends.
    Cancel {
        /// The session.
        process_id: u32,
        /// What that session was given to prove itself.
        key: [u8; 4],
    },
    /// Text protocol. Statements that begin with SELECT return one row of one column (`value`), LOAD DATA and
    /// COPY ask for rows, others change one row.
    Query(String),
    /// All rows of a LOAD DATA or COPY have come.
    Loaded {
        /// Bytes of them.
        bytes: u64,
    },
    /// A statement is to be prepared.
    Prepare(String),
    /// A prepared statement is to be run.
    Execute,
    /// A prepared statement is not needed any more. No reply on MySQL.
    Close,
    /// A sign of life is wanted.
    Ping,
    /// Any other command, by its first byte.
    Other(u8),
}

/// What a server does after its bytes are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// Waits for the next request.
    GoOn,
    /// Closes the connection.
    HangUp,
    /// Says nothing more, whatever comes, until the client gives up.
    FallSilent,
    /// Sends these bytes again and again until the client gives up.
    Repeat(Vec<u8>),
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The bytes on the wire.
    pub bytes: Vec<u8>,
    /// What follows.
    pub then: Then,
}

impl Reply {
    /// These bytes, then the next request.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { bytes: bytes.into(), then: Then::GoOn }
    }

    /// Only the first `count` bytes.
    pub fn cut(mut self, count: usize) -> Reply {
        self.bytes.truncate(count);
        self
    }

    /// The same bytes, followed by something else.
    pub fn then(self, then: Then) -> Reply {
        Reply { then, ..self }
    }
}

/// Gets each request with the honest reply and returns the one that is sent.
pub type Script = dyn Fn(&Request, Reply) -> Reply + Send + Sync;

/// Where a fake server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A port of 127.0.0.1.
    Tcp(u16),
}

/// A running fake server.
#[derive(Debug)]
pub struct FakeServer {
    address: Address,
    shared: Arc<Shared>,
    listener: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    is_ending: AtomicBool,
    connections: Mutex<Vec<(Stream, JoinHandle<()>)>>,
}

impl FakeServer {
    /// Listens on a unix socket in the directory for temporary files.
    ///
    /// # Errors
    /// Where the socket cannot be made.
    pub fn on_socket(
        language: Language,
        script: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> io::Result<FakeServer> {
        static COUNTER: AtomicU32 = AtomicU32::new(0);
        let number = COUNTER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("plimsoll-fake-{}-{number}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path)?;
        let accept = move || listener.accept().map(|(stream, _)| Stream::Unix(stream));
        Ok(FakeServer::start(Address::Unix(path), language, Arc::new(script), accept))
    }

    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// Where no port can be had.
    pub fn on_port(
        language: Language,
        script: impl Fn(&Request, Reply) -> Reply + Send + Sync + 'static,
    ) -> io::Result<FakeServer> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let accept = move || {
            let (stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream))
        };
        Ok(FakeServer::start(Address::Tcp(port), language, Arc::new(script), accept))
    }

    fn start(
        address: Address,
        language: Language,
        script: Arc<Script>,
        accept: impl Fn() -> io::Result<Stream> + Send + 'static,
    ) -> FakeServer {
        let shared = Arc::new(Shared::default());
        let for_listener = Arc::clone(&shared);
        let listener = std::thread::spawn(move || {
            while let Ok(stream) = accept() {
                if for_listener.is_ending.load(Ordering::Acquire) {
                    break;
                }
                let Ok(copy) = stream.try_clone() else { break };
                let script = Arc::clone(&script);
                let thread = std::thread::spawn(move || {
                    // The client may vanish at any time: that is what such tests are about.
                    let _ = serve(Peer { stream: copy, script }, language);
                });
                lock(&for_listener.connections).push((stream, thread));
            }
        });
        FakeServer { address, shared, listener: Some(listener) }
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// The path of its socket; `None` on TCP.
    pub fn path(&self) -> Option<&Path> {
        match &self.address {
            Address::Unix(path) => Some(path),
            Address::Tcp(_) => None,
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.shared.is_ending.store(true, Ordering::Release);
        // One more connection wakes the listener, which then sees that it is to end.
        let is_awake = match &self.address {
            Address::Unix(path) => UnixStream::connect(path).is_ok(),
            Address::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).is_ok(),
        };
        if is_awake {
            let _ = self.listener.take().map(JoinHandle::join);
        }
        for (stream, thread) in lock(&self.shared.connections).drain(..) {
            stream.shut_down();
            let _ = thread.join();
        }
        if let Address::Unix(path) = &self.address {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(mut peer: Peer, language: Language) -> io::Result<()> {
    let ended = match language {
        Language::Mysql => mysql::serve(&mut peer),
        Language::Postgres => postgres::serve(&mut peer),
    };
    // The copy that the server keeps would hold the socket open.
    peer.stream.shut_down();
    ended
}

/// The other end of one connection, with the script that decides what it gets.
struct Peer {
    stream: Stream,
    script: Arc<Script>,
}

impl Peer {
    /// Sends what the script makes of the honest `reply`. An error ends the connection.
    fn answer(&mut self, request: &Request, honest: Vec<u8>) -> io::Result<()> {
        let reply = (self.script)(request, Reply::new(honest));
        self.stream.write_all(&reply.bytes)?;
        match reply.then {
            Then::GoOn => Ok(()),
            Then::HangUp => Err(io::ErrorKind::ConnectionAborted.into()),
            Then::FallSilent => {
                let mut ignored = [0; 4096];
                while self.stream.read(&mut ignored)? > 0 {}
                Err(io::ErrorKind::UnexpectedEof.into())
            }
            Then::Repeat(bytes) => loop {
                self.stream.write_all(&bytes)?;
            },
        }
    }

    fn read_exact<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn read_vec(&mut self, count: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    fn try_clone(&self) -> io::Result<Stream> {
        Ok(match self {
            Stream::Unix(stream) => Stream::Unix(stream.try_clone()?),
            Stream::Tcp(stream) => Stream::Tcp(stream.try_clone()?),
        })
    }

    fn shut_down(&self) {
        // Already closed is closed.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.read(buf),
            Stream::Tcp(stream) => stream.read(buf),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => stream.write(buf),
            Stream::Tcp(stream) => stream.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
