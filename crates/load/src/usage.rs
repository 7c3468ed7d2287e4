//! What the client itself costs, and what it may use: CPU time, waiting for a CPU, descriptors, priority.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::result::ClientUsage;

/// CPU time of the whole process.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct ProcessCpu {
    pub(crate) user_s: f64,
    pub(crate) sys_s: f64,
}

impl ProcessCpu {
    pub(crate) fn read() -> ProcessCpu {
        // SAFETY: all zeros is a valid rusage, and the kernel fills it.
        let usage = unsafe {
            let mut usage: libc::rusage = mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage
        };
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        ProcessCpu { user_s: seconds(usage.ru_utime), sys_s: seconds(usage.ru_stime) }
    }
}

/// CPU time and waiting time of one thread.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct ThreadTime {
    pub(crate) cpu: Duration,
    /// Runnable, but on no cpu.
    pub(crate) queued: Duration,
}

impl ThreadTime {
    pub(crate) fn since(self, before: ThreadTime) -> ThreadTime {
        ThreadTime {
            cpu: self.cpu.saturating_sub(before.cpu),
            queued: self.queued.saturating_sub(before.queued),
        }
    }
}

/// Reads the calling thread's times; holds the kernel's file open, since it is read in the measured phase.
#[derive(Debug)]
pub(crate) struct ThreadMeter {
    /// `None` where the kernel does not keep scheduler statistics.
    schedstat: Option<File>,
}

impl ThreadMeter {
    pub(crate) fn new() -> ThreadMeter {
        // SAFETY: a plain system call.
        let tid = unsafe { libc::gettid() };
        ThreadMeter { schedstat: File::open(format!("/proc/self/task/{tid}/schedstat")).ok() }
    }

    pub(crate) fn read(&self) -> ThreadTime {
        // SAFETY: the kernel fills the timespec.
        let cpu = unsafe {
            let mut time: libc::timespec = mem::zeroed();
            libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time);
            Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
        };
        ThreadTime { cpu, queued: Duration::from_nanos(self.queued_ns().unwrap_or(0)) }
    }

    /// The second figure of schedstat (Documentation/scheduler/sched-stats.rst).
    fn queued_ns(&self) -> Option<u64> {
        let mut text = [0; 96];
        let length = self.schedstat.as_ref()?.read_at(&mut text, 0).ok()?;
        std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
    }
}

impl ClientUsage {
    /// The rule behind `is_bound`. The client set the limit if
    /// - its busiest worker used at least 90 % of a cpu, or
    /// - it used at least half a cpu and was, running or waiting to run, never idle (95 %), or
    /// - in open loop, its own wake-ups were later (p99) than half of the response times are long, and by more than
    ///   a millisecond: then the client's delay stands in the figures.
    ///
    /// Waiting for a cpu alone does not make it so: where client and server share cpus and the server keeps them
    /// busy, every thread waits, and letting the client go first lowers the throughput (see
    /// [`crate::LoadPlan::raise_priority`]).
    pub fn judge(&self, open_loop_response_p50_ms: Option<f64>) -> bool {
        let is_never_idle = self.cpu_share >= 0.5 && self.cpu_share + self.run_queue_share >= 0.95;
        let is_late = |p50_ms: f64| self.schedule_lag_p99_ms > p50_ms.max(1.0);
        self.cpu_share >= 0.9 || is_never_idle || open_loop_response_p50_ms.is_some_and(is_late)
    }
}

/// Makes room for `wanted` descriptors: raises the soft limit as far as the hard one allows. Answers how many
/// there are now.
pub(crate) fn raise_descriptors(wanted: u64) -> io::Result<u64> {
    // SAFETY: the kernel fills, then reads, the struct.
    unsafe {
        let mut limit: libc::rlimit = mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) < 0 {
            return Err(io::Error::last_os_error());
        }
        if limit.rlim_cur < wanted && limit.rlim_cur < limit.rlim_max {
            limit.rlim_cur = limit.rlim_max;
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limit) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(limit.rlim_cur)
    }
}

/// The cpus that this process may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    // SAFETY: all zeros is a valid, empty set; the kernel fills it; CPU_ISSET stays within it.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        if libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) < 0 {
            return Vec::new();
        }
        (0..libc::CPU_SETSIZE as usize).filter(|cpu| libc::CPU_ISSET(*cpu, &set)).collect()
    }
}

/// Keeps the calling thread on one cpu.
pub(crate) fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: all zeros is a valid, empty set; `cpu` was checked to lie within it.
    let done = unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, mem::size_of_val(&set), &set)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives the calling thread a table of descriptors of its own, empty but for the standard three: with a table that
/// threads share, the kernel counts a reference up and down in each system call on a socket. The thread can use
/// only what it opens itself from here on. Kernels before 5.9 refuse; then the table stays shared.
pub(crate) fn own_descriptors() {
    // SAFETY: a plain system call. Descriptors of other threads stay open in their table; this thread owns none.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_UNSHARE) };
}

/// Timers of the calling thread fire when they are due, not up to 50 us later.
pub(crate) fn no_timer_slack() {
    // SAFETY: a plain system call without memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// When the calling thread runs, beside others that want the same cpu.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It takes its turn without cutting short that of another (SCHED_BATCH). For closed loops: a client that preempts
    /// the server at each answer takes the answers one by one, and pays for two changes of context each time.
    Patient,
    /// As any thread: what was asleep may preempt what is running.
    Ordinary,
    /// Before all ordinary threads of the machine (round robin, lowest real-time priority). A nice value would not
    /// do: with autogroups it counts among the threads of one's own session only.
    Urgent,
}

impl Urgency {
    /// Makes it the calling thread's.
    pub(crate) fn set(self) -> io::Result<()> {
        let (policy, sched_priority) = match self {
            Urgency::Patient => (libc::SCHED_BATCH, 0),
            Urgency::Ordinary => (libc::SCHED_OTHER, 0),
            Urgency::Urgent => (libc::SCHED_RR, 1),
        };
        // SAFETY: the parameter lives through the call.
        let done = unsafe {
            let parameter = libc::sched_param { sched_priority };
            libc::sched_setscheduler(0, policy | libc::SCHED_RESET_ON_FORK, &parameter)
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_thread_sees_its_own_cpu_time() {
        let meter = ThreadMeter::new();
        let before = meter.read();
        let mut sum = 0u64;
        for i in 0..3_000_000u64 {
            sum = std::hint::black_box(sum ^ i.wrapping_mul(31));
        }
        assert!(meter.read().since(before).cpu > Duration::ZERO);
        assert!(ProcessCpu::read().user_s + ProcessCpu::read().sys_s > 0.0);
    }

    #[test]
    fn bound_by_cpu_or_by_being_late() {
        let usage = |cpu_share, run_queue_share, schedule_lag_p99_ms| ClientUsage {
            cpu_share,
            run_queue_share,
            schedule_lag_p99_ms,
            ..ClientUsage::default()
        };
        assert!(usage(0.95, 0.0, 0.0).judge(None));
        assert!(usage(0.55, 0.42, 0.0).judge(None));
        assert!(!usage(0.6, 0.2, 0.0).judge(None));
        // A saturated machine is not a slow client.
        assert!(!usage(0.2, 0.79, 40.0).judge(None));
        assert!(usage(0.2, 0.3, 4.0).judge(Some(3.0)));
        assert!(!usage(0.2, 0.3, 0.9).judge(Some(0.2)));
    }

    #[test]
    fn this_process_may_use_a_cpu() {
        assert!(!allowed_cpus().is_empty());
        assert!(pin_to(usize::MAX).is_err());
    }
}
