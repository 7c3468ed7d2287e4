//! Where a server's sessions are while they have work: at a lock, at a disk, asleep, or on a cpu (or waiting for one).
//!
//! `/proc/PID/task/TID/syscall` (proc(5)) shows the system call that a blocked thread is in; for one that runs, or could,
//! it says `running`. All threads of the server are looked at every few milliseconds. Sessions are those that were seen
//! waiting for a client at least once: background threads wait for no client, or for nothing else.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::process;
use crate::procfs::Reader;

/// Threads come and go seldom; listing them each time would double the cost.
const LISTED_EVERY: Duration = Duration::from_millis(200);

/// What a thread is doing, or waiting for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// Its client's next statement.
    Client,
    /// A futex or a semaphore.
    Lock,
    /// Reading, writing, or flushing files.
    Disk,
    /// A pause that it asked for.
    Sleep,
    /// Nothing: it runs, or would if there were a cpu.
    Cpu,
}

/// Time of the sessions since the sampling began, by place; [`Place::Client`] is left out.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// When it was taken.
    pub at: Instant,
    /// Seconds since the last sample, times the sessions that were there.
    pub places: Vec<(Place, f64)>,
}

/// Looks at a server's sessions until it is stopped.
#[derive(Debug)]
pub struct SessionSampler {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Sample>>,
}

impl SessionSampler {
    /// Samples all threads of a process and its descendants every `period`, or less often where a pass takes longer than a
    /// third of it.
    ///
    /// # Errors
    /// Why the system calls of this process cannot be seen.
    pub fn start(pid: u32, period: Duration) -> Result<SessionSampler, String> {
        let first = PathBuf::from(format!("/proc/{pid}/task/{pid}/syscall"));
        Reader::default()
            .read(&first)
            .map_err(|error| format!("{}: {error}: run as root or as the server's user", first.display()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        Ok(SessionSampler { stop, thread: std::thread::spawn(move || sample(pid, period, &flag)) })
    }

    /// Ends the sampling; nothing where the sampler panicked.
    pub fn stop(self) -> Vec<Sample> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Thread {
    path: PathBuf,
    is_session: bool,
}

fn sample(pid: u32, period: Duration, stop: &AtomicBool) -> Vec<Sample> {
    let mut reader = Reader::default();
    let mut threads: HashMap<u32, Thread> = HashMap::new();
    let mut listed_at: Option<Instant> = None;
    let mut last = Instant::now();
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        if listed_at.is_none_or(|at| began - at > LISTED_EVERY) {
            listed_at = Some(began);
            list(pid, &mut reader, &mut threads);
        }
        let passed_s = (began - last).as_secs_f64();
        last = began;
        let mut places: HashMap<Place, f64> = HashMap::new();
        for thread in threads.values_mut() {
            let Some(place) = reader.read(&thread.path).ok().and_then(place) else { continue };
            thread.is_session |= place == Place::Client;
            if thread.is_session && place != Place::Client {
                *places.entry(place).or_default() += passed_s;
            }
        }
        seen.push(Sample { at: began, places: places.into_iter().collect() });
        let took = began.elapsed();
        std::thread::sleep(period.saturating_sub(took).max(2 * took));
    }
    seen
}

/// Notes threads that are new, and forgets those that have ended.
fn list(pid: u32, reader: &mut Reader, threads: &mut HashMap<u32, Thread>) {
    let mut before = std::mem::take(threads);
    for process in process::tree(pid, reader) {
        let Ok(entries) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
        for entry in entries.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let known = before.remove(&id);
            let new = || Thread { path: entry.path().join("syscall"), is_session: false };
            threads.insert(id, known.unwrap_or_else(new));
        }
    }
}

/// The place by a line of `/proc/PID/task/TID/syscall`: `202 0x55d0c8 0x80 ...`, `running`, or `-1 ...` for a thread that is
/// blocked outside of a call, by a page that is not in memory.
fn place(line: &str) -> Option<Place> {
    let mut fields = line.split_ascii_whitespace();
    let first = fields.next()?;
    if first == "running" {
        return Some(Place::Cpu);
    }
    let number = first.parse::<i64>().ok()?;
    let is_one_of = |calls: &[i64]| calls.contains(&number);
    Some(if is_one_of(&[libc::SYS_futex, libc::SYS_semop, libc::SYS_semtimedop]) {
        Place::Lock
    } else if is_one_of(&[libc::SYS_nanosleep, libc::SYS_clock_nanosleep]) {
        Place::Sleep
    } else if is_one_of(&[libc::SYS_pselect6]) || is_select(number) {
        // A wait for no descriptor is a pause.
        if fields.next() == Some("0x0") { Place::Sleep } else { Place::Client }
    } else if is_one_of(FROM_CLIENTS) {
        Place::Client
    } else {
        // What blocks besides is done to files.
        Place::Disk
    })
}

/// Newer architectures have pselect6 alone.
fn is_select(number: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    return number == libc::SYS_select;
    #[cfg(not(target_arch = "x86_64"))]
    return number < -1;
}

/// Calls that wait for a client, or send to it.
const FROM_CLIENTS: &[i64] = &[
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_ppoll,
    libc::SYS_epoll_pwait,
    libc::SYS_accept,
    libc::SYS_accept4,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
];

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let call = |number: i64| place(&format!("{number} 0x5 0x80 0x2\n"));
        assert_eq!(call(libc::SYS_futex), Some(Place::Lock));
        assert_eq!(call(libc::SYS_fdatasync), Some(Place::Disk));
        assert_eq!(call(libc::SYS_pread64), Some(Place::Disk));
        assert_eq!(call(-1), Some(Place::Disk));
        assert_eq!(call(libc::SYS_recvfrom), Some(Place::Client));
        assert_eq!(call(libc::SYS_clock_nanosleep), Some(Place::Sleep));
        assert_eq!(call(libc::SYS_pselect6), Some(Place::Client));
        assert_eq!(place(&format!("{} 0x0 0x0", libc::SYS_pselect6)), Some(Place::Sleep));
        assert_eq!(place("running\n"), Some(Place::Cpu));
        assert_eq!((place(""), place("what")), (None, None));
    }

    /// A thread of this process that waits for a client first and sleeps then is a session; the others are none.
    #[test]
    fn sessions_are_known_by_their_waits_for_a_client() {
        let (mut here, there) = UnixStream::pair().unwrap();
        let session = std::thread::spawn(move || {
            use std::io::Read;
            let mut byte = [0];
            let mut there = there;
            there.read_exact(&mut byte).unwrap();
            std::thread::sleep(Duration::from_millis(400));
        });
        let sampler = SessionSampler::start(std::process::id(), Duration::from_millis(5)).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        {
            use std::io::Write;
            here.write_all(&[1]).unwrap();
        }
        session.join().unwrap();
        let seen = sampler.stop();
        let slept: f64 = seen
            .iter()
            .flat_map(|sample| &sample.places)
            .filter(|(place, _)| *place == Place::Sleep)
            .map(|(_, seconds)| seconds)
            .sum();
        // The test's own main thread and others may sleep, too, but were never seen at a socket.
        assert!((0.2..0.8).contains(&slept), "{slept}");
    }

    #[test]
    fn a_process_that_is_not_there_is_told() {
        let why = SessionSampler::start(0x7fff_fff0, Duration::from_millis(1)).unwrap_err();
        assert!(why.contains("syscall"), "{why}");
    }
}
