//! The server's one thread: epoll, connections, and answers that leave when they are due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::answer::{Dialogue, Reply, body_length, greeting};
use super::latency::{Latency, Shape, Stall};
use super::log::{Exchange, write_log};

/// Longer requests than this are not this server's subject.
const REQUEST_MAX: usize = 1 << 20;
/// So close to the next answer the thread polls instead of sleeping: waking up takes about as long.
const SPIN: Duration = Duration::from_micros(60);
/// Connections that may wait to be accepted. The kernel cuts it to net.core.somaxconn.
const BACKLOG: libc::c_int = 4096;
const LISTENER: u64 = u64::MAX;
const STDIN: u64 = u64::MAX - 1;

/// What to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where to listen.
    pub socket: PathBuf,
    /// Where to write the log when serving is over.
    pub log: Option<PathBuf>,
    /// How late answers are.
    pub latency: Shape,
    /// When nothing is answered.
    pub stall: Option<Stall>,
    /// Seed of the latencies.
    pub seed: u64,
    /// Takes a cpu for itself and asks all the time: what arrives is then seen at once, however long a thread that
    /// sleeps would take to wake up.
    pub never_sleeps: bool,
    /// Processes that accept on the socket, where one may not have as many files open as there are connections. Each has a
    /// log of its own (see [`log_of`]) and draws its own latencies.
    pub processes: u32,
}

/// The log of a process of several, from 0.
pub fn log_of(log: &Path, process: u32) -> PathBuf {
    match process {
        0 => log.to_owned(),
        _ => PathBuf::from(format!("{}.{process}", log.display())),
    }
}

struct Peer {
    stream: UnixStream,
    dialogue: Dialogue,
    /// Bytes of a packet that is not complete.
    partial: Vec<u8>,
}

/// An answer that waits for its time.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at_ns: u64,
    connection: u32,
    arrived_ns: u64,
    answer: Vec<u8>,
}

struct Server {
    options: Options,
    epoll: i32,
    listener: UnixListener,
    peers: Vec<Option<Peer>>,
    due: BinaryHeap<Reverse<Due>>,
    latency: Latency,
    /// When the first delayed request arrived: stalls count from here.
    began_ns: Option<u64>,
    log: Vec<Exchange>,
}

/// Serves until standard input ends, then writes the log. Prints `ready` once connections are accepted.
pub fn serve(mut options: Options) -> io::Result<()> {
    raise_descriptors();
    let listener = UnixListener::bind(&options.socket)?;
    let (mut others, mut number) = (Vec::new(), 0);
    for next in 1..options.processes {
        // SAFETY: this process has one thread and holds no locks.
        match unsafe { libc::fork() } {
            -1 => return Err(io::Error::last_os_error()),
            0 => {
                number = next;
                break;
            }
            child => others.push(child),
        }
    }
    options.log = options.log.map(|log| log_of(&log, number));
    options.seed += u64::from(number);
    let served = serve_on(options, listener, number == 0);
    if number > 0 {
        std::process::exit(i32::from(served.is_err()));
    }
    for pid in others {
        let mut status = 0;
        // SAFETY: waits for a child of this process.
        let is_well = unsafe { libc::waitpid(pid, &raw mut status, 0) } == pid && status == 0;
        if !is_well {
            return Err(io::Error::other("one of the processes failed"));
        }
    }
    served
}

fn serve_on(options: Options, listener: UnixListener, is_first: bool) -> io::Result<()> {
    // The standard library asks for a queue of 128; calling listen(2) again sets a longer one.
    // SAFETY: plain system calls on descriptors that outlive them.
    let epoll = unsafe {
        libc::listen(listener.as_raw_fd(), BACKLOG);
        libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        // Where it is allowed: a request that waits for this thread to get a cpu would be logged late.
        libc::setpriority(libc::PRIO_PROCESS, 0, -20);
        libc::epoll_create1(libc::EPOLL_CLOEXEC)
    };
    if epoll < 0 {
        return Err(io::Error::last_os_error());
    }
    listener.set_nonblocking(true)?;
    let latency = Latency::new(options.latency, options.seed);
    let log = Vec::with_capacity(if options.log.is_some() { 1 << 20 } else { 0 });
    let mut server = Server {
        options,
        epoll,
        listener,
        peers: Vec::new(),
        due: BinaryHeap::new(),
        latency,
        began_ns: None,
        log,
    };
    server.watch(server.listener.as_raw_fd(), LISTENER)?;
    server.watch(io::stdin().as_raw_fd(), STDIN)?;
    if is_first {
        println!("ready");
        io::stdout().flush()?;
    }
    let served = server.run();
    // SAFETY: closes the descriptor made above, once.
    unsafe { libc::close(epoll) };
    if is_first {
        remove(&server.options.socket);
    }
    served?;
    match &server.options.log {
        Some(path) => write_log(path, &server.log),
        None => Ok(()),
    }
}

fn remove(socket: &Path) {
    // Somebody else may have cleaned up; nothing depends on it.
    let _ = std::fs::remove_file(socket);
}

fn raise_descriptors() {
    // SAFETY: the kernel fills, then reads, the struct.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

fn now_ns() -> u64 {
    // SAFETY: the kernel fills the timespec.
    unsafe {
        let mut time: libc::timespec = mem::zeroed();
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

impl Server {
    fn watch(&self, fd: i32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: data };
        // SAFETY: the event lives through the call.
        match unsafe { libc::epoll_ctl(self.epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } {
            // A file or /dev/null as standard input cannot be watched: then a signal ends the server.
            -1 if data == STDIN => Ok(()),
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn forget(&self, fd: i32) -> io::Result<()> {
        // SAFETY: takes no event.
        match unsafe { libc::epoll_ctl(self.epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 256];
        loop {
            let named = self.wait(&mut events);
            let now = now_ns();
            for event in &events[..named] {
                match event.u64 {
                    LISTENER => self.accept()?,
                    STDIN if io::stdin().lock().read(&mut [0; 64])? == 0 => return Ok(()),
                    STDIN => {}
                    connection => self.read(connection as u32, now),
                }
            }
            self.send_due();
        }
    }

    /// Until something arrives or an answer is nearly due; at once for a server that never sleeps.
    fn wait(&self, events: &mut [libc::epoll_event]) -> usize {
        let mut sleep = Duration::from_secs(1);
        if self.options.never_sleeps {
            sleep = Duration::ZERO;
        } else if let Some(Reverse(due)) = self.due.peek() {
            sleep = Duration::from_nanos(due.at_ns.saturating_sub(now_ns())).saturating_sub(SPIN).min(sleep);
        }
        let limit =
            libc::timespec { tv_sec: sleep.as_secs() as i64, tv_nsec: i64::from(sleep.subsec_nanos()) };
        // SAFETY: the kernel writes at most `events.len()` events; the other pointers are valid or null.
        let named = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll,
                events.as_mut_ptr(),
                events.len() as libc::c_int,
                &limit,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        usize::try_from(named).unwrap_or(0)
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The others have room.
                Err(error) if error.raw_os_error() == Some(libc::EMFILE) && self.options.processes > 1 => {
                    return self.forget(self.listener.as_raw_fd());
                }
                Err(error) => return Err(error),
            };
            let connection = self.peers.len() as u32;
            stream.set_nonblocking(true)?;
            let peer = Peer { stream, dialogue: Dialogue::default(), partial: Vec::new() };
            self.watch(peer.stream.as_raw_fd(), connection.into())?;
            self.peers.push(Some(peer));
            self.send(connection, &greeting(connection));
        }
    }

    fn read(&mut self, connection: u32, now: u64) {
        let Some(Some(peer)) = self.peers.get_mut(connection as usize) else { return };
        let mut buffer = [0; 4096];
        let got = match peer.stream.read(&mut buffer) {
            Ok(0) => return self.drop_peer(connection),
            Ok(got) => got,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(_) => return self.drop_peer(connection),
        };
        let mut bytes = mem::take(&mut peer.partial);
        bytes.extend_from_slice(&buffer[..got]);
        let mut rest = &bytes[..];
        while let Some(length) = body_length(rest) {
            if length > REQUEST_MAX {
                return self.drop_peer(connection);
            }
            let Some(body) = rest.get(4..4 + length) else { break };
            let Some(Some(peer)) = self.peers.get_mut(connection as usize) else { return };
            match peer.dialogue.answer(rest[3], body) {
                Reply::Now(answer) => self.send(connection, &answer),
                Reply::Late(answer) => self.delay(connection, now, answer),
                Reply::Nothing => {}
                Reply::Close => return self.drop_peer(connection),
            }
            rest = &rest[4 + length..];
        }
        if let Some(Some(peer)) = self.peers.get_mut(connection as usize) {
            peer.partial = rest.to_vec();
        }
    }

    fn delay(&mut self, connection: u32, arrived_ns: u64, answer: Vec<u8>) {
        let began_ns = *self.began_ns.get_or_insert(arrived_ns);
        let mut since = arrived_ns - began_ns + self.latency.draw().as_nanos() as u64;
        if let Some(stall) = &self.options.stall {
            since = stall.postpone(since);
        }
        self.due.push(Reverse(Due { at_ns: began_ns + since, connection, arrived_ns, answer }));
    }

    fn send_due(&mut self) {
        while let Some(Reverse(due)) = self.due.peek() {
            let now = now_ns();
            if due.at_ns > now {
                return;
            }
            let Some(Reverse(due)) = self.due.pop() else { return };
            if self.options.log.is_some() {
                let Due { connection, arrived_ns, .. } = due;
                self.log.push(Exchange { connection, arrived_ns, left_ns: now });
            }
            self.send(due.connection, &due.answer);
        }
    }

    /// Answers are small and clients read them: a full socket is a broken client.
    fn send(&mut self, connection: u32, answer: &[u8]) {
        let Some(Some(peer)) = self.peers.get_mut(connection as usize) else { return };
        if peer.stream.write(answer).ok() != Some(answer.len()) {
            self.drop_peer(connection);
        }
    }

    fn drop_peer(&mut self, connection: u32) {
        if let Some(peer) = self.peers.get_mut(connection as usize) {
            *peer = None;
        }
    }
}
