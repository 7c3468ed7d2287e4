//! Hot locks of any process without instruments: which futex address each thread waits at, sampled.
//!
//! `/proc/PID/task/TID/syscall` (proc(5)) shows the system call that a thread is in, with its arguments. For a futex
//! (futex(2)) that is waited for, the first is the address, the second the operation, the third the value expected.
//! A wait of glibc's mutex is FUTEX_WAIT for the value 2 (`lll_lock_wait`, nptl/lowlevellock.c); condition variables,
//! rw-locks and semaphores wait with FUTEX_WAIT_BITSET or other values.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::symbols::Symbols;
use super::{LockSampler, LockTable, LockWait, Sampled, Source};
use crate::procfs::Reader;
use crate::sampler::Missing;

/// System call number of futex.
#[cfg(target_arch = "x86_64")]
const SYS_FUTEX: u64 = 202;
#[cfg(not(target_arch = "x86_64"))]
const SYS_FUTEX: u64 = libc::SYS_futex as u64;

/// What a thread waits at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Wait {
    address: u64,
    is_mutex: bool,
}

/// Samples all threads of a process every `period`, or less often where a pass takes longer than a third of it. Locks are
/// named while the process still lives.
pub fn start(pid: u32, period: Duration) -> LockSampler {
    LockSampler::start(Source::Futex, "futex waits", move |stop| sample(pid, period, stop))
}

fn sample(pid: u32, period: Duration, stop: &AtomicBool) -> LockTable {
    let mut reader = Reader::default();
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    if let Err(error) = reader.read(&tasks.join(pid.to_string()).join("syscall")) {
        let why = format!("/proc/{pid}/task/{pid}/syscall: {error}: run as root or as the server's user");
        return LockTable::nothing(Source::Futex, "futex waits", why);
    }
    let mut sampled = Sampled::new();
    let mut threads: Vec<PathBuf> = Vec::new();
    let mut listed_at: Option<Instant> = None;
    let mut last = Instant::now();
    let mut symbols = None;
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        // Threads come and go seldom; listing them each time would double the cost.
        if listed_at.is_none_or(|at| began - at > Duration::from_millis(100)) {
            listed_at = Some(began);
            let Ok(entries) = fs::read_dir(&tasks) else { break };
            threads = entries.flatten().map(|entry| entry.path().join("syscall")).collect();
        }
        let seconds = (began - last).as_secs_f64();
        last = began;
        sampled.advance(seconds);
        for thread in &threads {
            let wait = reader.read(thread).ok().and_then(parse);
            if let Some(wait) = wait {
                sampled.waiting(wait, 1.0, seconds);
            }
        }
        if symbols.is_none() {
            symbols = Some(Symbols::of_process(pid));
            // Reading the files took its time, in which nothing was sampled.
            last = Instant::now();
        }
        let took = began.elapsed();
        std::thread::sleep(period.saturating_sub(took).max(2 * took));
    }
    // Later mappings (plugins) may have come since.
    let at_end = Symbols::of_process(pid);
    table(sampled, &symbols.unwrap_or_default(), &at_end)
}

fn table(sampled: Sampled<Wait>, symbols: &Symbols, at_end: &Symbols) -> LockTable {
    let observed_s = sampled.observed_s;
    let mut missing = Vec::new();
    if observed_s == 0.0 {
        missing.push(Missing::new("futex waits", "the process ended before the first sample"));
    }
    let waits = sampled
        .into_waits()
        .into_iter()
        .map(|(wait, wait_s, interval)| {
            let name = at_end
                .name(wait.address)
                .or_else(|| symbols.name(wait.address))
                .unwrap_or_else(|| format!("allocated at {:#x}", wait.address));
            let kind = if wait.is_mutex { "" } else { " (condition or rw-lock)" };
            LockWait::sampled(format!("{name}{kind}"), wait.is_mutex, wait_s, interval)
        })
        .collect();
    LockTable { source: Source::Futex, observed_s, waits, missing }.sorted()
}

/// A line of `/proc/PID/task/TID/syscall`: `202 0x55d0c8 0x80 0x2 0x0 ...`, `running`, or `-1 ...`.
fn parse(line: &str) -> Option<Wait> {
    let mut fields = line.split_ascii_whitespace();
    if fields.next()?.parse::<u64>().ok()? != SYS_FUTEX {
        return None;
    }
    let mut argument = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (address, operation, value) = (argument()?, argument()?, argument()?);
    match operation & 0x7f {
        0 => Some(Wait { address, is_mutex: value & 0xffff_ffff == 2 }),
        9 => Some(Wait { address, is_mutex: false }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_the_kernel() {
        let mutex = parse("202 0x55d0c8d0 0x80 0x2 0x0 0x0 0x0 0x7ffd 0x7f01\n");
        assert_eq!(mutex, Some(Wait { address: 0x55d0_c8d0, is_mutex: true }));
        let condition = parse("202 0x7f00aa 0x189 0x0 0x0 0x0 0xffffffff 0x7ffd 0x7f01\n");
        assert_eq!(condition, Some(Wait { address: 0x7f_00aa, is_mutex: false }));
        assert_eq!(parse("202 0x7f00aa 0x81 0x1 0x0 0x0 0x0 0x7ffd 0x7f01\n"), None);
        assert_eq!(parse("running\n"), None);
        assert_eq!(parse("-1 0x7ffd 0x7f\n"), None);
        assert_eq!(parse("7 0x1 0x2\n"), None);
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_process_that_may_not_be_looked_at_says_why() {
        let table = start(0x7fff_fff0, Duration::from_millis(1)).stop();
        assert!(table.waits.is_empty() && table.missing[0].why.contains("syscall"));
    }

    proptest! {
        #[test]
        fn no_line_panics(line in "[ -~]{0,80}") {
            parse(&line);
        }
    }
}
