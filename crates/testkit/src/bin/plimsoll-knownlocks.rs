//! A program with known mutexes and hold times, which counts its own waits: what lock samplers are measured against.
//!
//! `plimsoll-knownlocks SECONDS`: waits for a line on its input, contends for SECONDS, then prints a line for each lock:
//! name, acquisitions, acquisitions that had to wait, seconds waited by all threads.

use std::cell::UnsafeCell;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A mutex of the C library at an address that has a symbol.
#[repr(transparent)]
struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: pthread_mutex_t is made to be used by many threads at once.
unsafe impl Sync for Mutex {}

impl Mutex {
    const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
}

/// Held for 4 ms by six threads: always a queue.
#[unsafe(no_mangle)]
static KNOWN_LOCK_HOT: Mutex = Mutex::new();
/// Held for 3 ms by three threads that also do other things.
#[unsafe(no_mangle)]
static KNOWN_LOCK_WARM: Mutex = Mutex::new();
/// Never contended.
#[unsafe(no_mangle)]
static KNOWN_LOCK_COLD: Mutex = Mutex::new();

struct Lock {
    name: &'static str,
    mutex: &'static Mutex,
    threads: usize,
    hold: Duration,
    pause: Duration,
    acquisitions: AtomicU64,
    waits: AtomicU64,
    waited_ns: AtomicU64,
}

impl Lock {
    fn new(name: &'static str, mutex: &'static Mutex, threads: usize, hold_us: u64, pause_us: u64) -> Self {
        Self {
            name,
            mutex,
            threads,
            hold: Duration::from_micros(hold_us),
            pause: Duration::from_micros(pause_us),
            acquisitions: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            waited_ns: AtomicU64::new(0),
        }
    }

    fn contend(&self, until: Instant) {
        while Instant::now() < until {
            let mutex = self.mutex.0.get();
            // SAFETY: the mutex is static and initialised, and unlocked below by the thread that locked it.
            unsafe {
                if libc::pthread_mutex_trylock(mutex) != 0 {
                    let began = Instant::now();
                    libc::pthread_mutex_lock(mutex);
                    self.waited_ns.fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    self.waits.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.acquisitions.fetch_add(1, Ordering::Relaxed);
            // Asleep, not busy: two cores are enough for all threads, so that waiting is for locks only.
            std::thread::sleep(self.hold);
            // SAFETY: locked above by this thread.
            unsafe { libc::pthread_mutex_unlock(mutex) };
            std::thread::sleep(self.pause);
        }
    }
}

fn main() -> std::io::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse::<f64>().ok()).unwrap_or(5.0);
    let locks = [
        Lock::new("KNOWN_LOCK_HOT", &KNOWN_LOCK_HOT, 6, 4000, 1000),
        Lock::new("KNOWN_LOCK_WARM", &KNOWN_LOCK_WARM, 3, 3000, 2000),
        Lock::new("KNOWN_LOCK_COLD", &KNOWN_LOCK_COLD, 1, 500, 5000),
    ];
    std::io::stdin().lock().read_line(&mut String::new())?;
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    std::thread::scope(|scope| {
        for lock in &locks {
            for _ in 0..lock.threads {
                scope.spawn(|| lock.contend(until));
            }
        }
    });
    let mut out = std::io::stdout().lock();
    for lock in &locks {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let waited_s = get(&lock.waited_ns) as f64 / 1e9;
        writeln!(out, "{} {} {} {waited_s:.6}", lock.name, get(&lock.acquisitions), get(&lock.waits))?;
    }
    out.flush()?;
    // Until the input ends: samplers name their locks from the mappings of the living process.
    std::io::stdin().lock().read_line(&mut String::new())?;
    Ok(())
}
