//! Hot locks: what sessions waited for, as count, average wait, total wait, lock, caller.
//!
//! Four sources, each in a pass of its own because all of them cost throughput: performance_schema (MySQL, MariaDB:
//! exact counts), wait events (PostgreSQL, sampled), futex addresses (any process, sampled: waiting time with an
//! interval, no counts), perf (any process: counts and callers).

pub mod futex;
pub mod perf;
pub mod performance_schema;
pub mod symbols;
pub mod wait_events;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::sampler::Missing;
use crate::student_interval::over_batches;

/// Where figures come from; it decides which of them are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// MySQL's and MariaDB's instruments.
    PerformanceSchema,
    /// PostgreSQL's `pg_stat_activity`, sampled.
    WaitEvents,
    /// `/proc/PID/task/*/syscall`, sampled.
    Futex,
    /// `perf record` of the futex system call.
    Perf,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LockWait {
    /// Its name: `mutex/sql/LOCK_open`, `LWLock/WALWrite`, a symbol, or an address.
    pub lock: String,
    /// A mutex or another lock; `false` for condition variables and what cannot be told from them, at which threads
    /// without work wait too.
    pub is_lock: bool,
    /// Who waited for it most; empty where unknown.
    pub caller: String,
    /// Waits (performance_schema: acquisitions, uncontended ones included); `None` where sampling cannot tell.
    pub count: Option<u64>,
    /// Seconds waited by all threads together.
    pub wait_s: f64,
    /// 95 % interval of `wait_s`, where it was sampled.
    pub interval_s: Option<(f64, f64)>,
}

impl LockWait {
    fn sampled(lock: String, is_lock: bool, wait_s: f64, interval_s: (f64, f64)) -> LockWait {
        LockWait { lock, is_lock, caller: String::new(), count: None, wait_s, interval_s: Some(interval_s) }
    }

    /// Mean wait in microseconds, where the count is known.
    pub fn average_us(&self) -> Option<f64> {
        self.count.filter(|n| *n > 0).map(|n| 1e6 * self.wait_s / n as f64)
    }
}

/// All locks of one observation, the longest waited for first.
#[derive(Debug, Clone, PartialEq)]
pub struct LockTable {
    pub source: Source,
    pub observed_s: f64,
    pub waits: Vec<LockWait>,
    /// What could not be had.
    pub missing: Vec<Missing>,
}

impl LockTable {
    fn nothing(source: Source, what: &str, why: impl Into<String>) -> Self {
        Self { source, observed_s: 0.0, waits: Vec::new(), missing: vec![Missing::new(what, why)] }
    }

    fn sorted(mut self) -> Self {
        self.waits.sort_by(|a, b| b.wait_s.total_cmp(&a.wait_s));
        self
    }
}

/// A sampler at work, on a thread of its own.
#[derive(Debug)]
pub struct LockSampler {
    of: (Source, &'static str),
    stop: Arc<AtomicBool>,
    thread: JoinHandle<LockTable>,
}

impl LockSampler {
    /// `sample` goes on until what it is given is true.
    fn start(
        source: Source,
        what: &'static str,
        sample: impl FnOnce(&AtomicBool) -> LockTable + Send + 'static,
    ) -> LockSampler {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        LockSampler { of: (source, what), stop, thread: std::thread::spawn(move || sample(&flag)) }
    }

    /// Ends the observation.
    pub fn stop(self) -> LockTable {
        self.stop.store(true, Ordering::Relaxed);
        let (source, what) = self.of;
        self.thread.join().unwrap_or_else(|_| LockTable::nothing(source, what, "the sampler panicked"))
    }
}

/// Waiting time found by sampling, by lock. Samples carry the time that passed since the one before, so that a
/// sampler that was held up loses nothing.
#[derive(Debug)]
struct Sampled<K> {
    totals: std::collections::HashMap<K, Waited>,
    batch: usize,
    batch_s: f64,
    observed_s: f64,
}

#[derive(Debug, Default)]
struct Waited {
    total_s: f64,
    /// Seconds waited by batch, sparse: batch number and time.
    batches: Vec<(usize, f64)>,
}

/// Length of the batches that the interval is computed from.
const BATCH_S: f64 = 0.5;

impl<K: std::hash::Hash + Eq> Sampled<K> {
    fn new() -> Self {
        Self { totals: std::collections::HashMap::new(), batch: 0, batch_s: 0.0, observed_s: 0.0 }
    }

    /// A sample begins that stands for `seconds`.
    fn advance(&mut self, seconds: f64) {
        self.observed_s += seconds;
        self.batch_s += seconds;
        if self.batch_s >= BATCH_S {
            self.batch_s = 0.0;
            self.batch += 1;
        }
    }

    /// `threads` were seen waiting for it in a sample that stands for `seconds`.
    fn waiting(&mut self, lock: K, threads: f64, seconds: f64) {
        let waited = self.totals.entry(lock).or_default();
        waited.total_s += threads * seconds;
        match waited.batches.last_mut() {
            Some((batch, time)) if *batch == self.batch => *time += threads * seconds,
            _ => waited.batches.push((self.batch, threads * seconds)),
        }
    }

    /// Each lock with its waiting time and the 95 % interval of it, from the scatter of the batches.
    fn into_waits(self) -> Vec<(K, f64, (f64, f64))> {
        // The last batch is rarely whole: a short one would look like a lull, so it joins the one before.
        let batches = (self.batch + usize::from(self.batch_s > BATCH_S / 2.0)).max(1);
        self.totals
            .into_iter()
            .map(|(lock, waited)| {
                let mut times: Vec<f64> = Vec::new();
                for (batch, time) in waited.batches {
                    match times.last_mut() {
                        Some(last) if batch >= batches => *last += time,
                        _ => times.push(time),
                    }
                }
                let interval = over_batches(&times, batches, waited.total_s);
                (lock, waited.total_s, interval)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_waiting_has_a_narrow_interval_and_bursts_a_wide_one() {
        let mut sampled = Sampled::new();
        for i in 0..1000 {
            sampled.advance(0.01);
            sampled.waiting("steady", 2.0, 0.01);
            if (300..400).contains(&i) {
                sampled.waiting("burst", 20.0, 0.01);
            }
        }
        let waits = sampled.into_waits();
        let of = |name: &str| *waits.iter().find(|w| w.0 == name).unwrap();
        let (_, total, (low, high)) = of("steady");
        assert!((total - 20.0).abs() < 1e-6 && high - low < 3.0, "{low} {high}");
        let (_, total, (low, high)) = of("burst");
        assert!((total - 20.0).abs() < 1e-6 && low >= 0.0 && high - low > 15.0, "{low} {high}");
    }
}
