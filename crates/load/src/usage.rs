//! What the client itself costs, and what it may use: CPU time, waiting for a CPU, descriptors, priority.

use std::fs::File;
use std::io;
use std::mem;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::result::ClientUsage;

/// CPU time of the whole process.
#[derive(Debug, Clone, Copy, Default)]
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
#[derive(Debug, Clone, Copy, Default)]
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
    /// The rule behind `is_bound`: the busiest worker used at least 90 % of a cpu (the client ran out of cpu), or
    /// workers waited for a cpu at least 25 % of the time and cpu and waiting together took at least 90 % (the
    /// scheduler starved the client).
    pub fn judge(cpu_share: f64, run_queue_share: f64) -> bool {
        cpu_share >= 0.9 || (run_queue_share >= 0.25 && cpu_share + run_queue_share >= 0.9)
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

/// Lets the calling thread run before others of the same machine: one client thread among hundreds of runnable
/// server threads would get one thread's share.
pub(crate) fn raise_priority() -> io::Result<()> {
    const NICE: libc::c_int = -20;
    // SAFETY: plain system calls without memory.
    let done = unsafe { libc::setpriority(libc::PRIO_PROCESS, libc::gettid() as libc::id_t, NICE) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
    fn bound_by_cpu_or_by_the_run_queue() {
        assert!(ClientUsage::judge(0.95, 0.0));
        assert!(ClientUsage::judge(0.5, 0.45));
        assert!(!ClientUsage::judge(0.6, 0.2));
        assert!(!ClientUsage::judge(0.3, 0.3));
    }

    #[test]
    fn this_process_may_use_a_cpu() {
        assert!(!allowed_cpus().is_empty());
        assert!(pin_to(usize::MAX).is_err());
    }
}
