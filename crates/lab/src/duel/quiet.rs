//! What the server of a duel does while it is not its turn: its sessions rest, but flushing, purge and vacuum may not.

use std::fs;

use telemetry::gates::{self, WaitingServer};

use crate::judge;

/// What a server had used by a moment, children included.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    /// User and system time.
    pub(crate) cpu_s: f64,
    written_bytes: Option<u64>,
}

impl Used {
    /// Of the process and its children; `None` where it is gone.
    pub(crate) fn of(pid: u32) -> Option<Used> {
        let mut all = Used { cpu_s: 0.0, written_bytes: Some(0) };
        let mut pids = vec![pid];
        let mut at = 0;
        while let Some(&pid) = pids.get(at) {
            at += 1;
            let Some(cpu_s) = cpu_s(pid) else {
                // A child may end while it is looked at.
                if at == 1 {
                    return None;
                }
                continue;
            };
            all.cpu_s += cpu_s;
            all.written_bytes = all.written_bytes.zip(written_bytes(pid)).map(|(sum, more)| sum + more);
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            pids.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        Some(all)
    }

    /// Of a server and its replicas together; `None` where there is none, or one of them is gone.
    pub(crate) fn of_all(pids: &[u32]) -> Option<Used> {
        let mut each = pids.iter().map(|pid| Used::of(*pid));
        let first = each.next()??;
        each.try_fold(first, |sum, more| {
            let more = more?;
            let written_bytes = sum.written_bytes.zip(more.written_bytes).map(|(sum, more)| sum + more);
            Some(Used { cpu_s: sum.cpu_s + more.cpu_s, written_bytes })
        })
    }

    /// Of this process alone: its servers are its children, and asked for by themselves.
    pub(crate) fn of_this_process() -> Option<Used> {
        Some(Used { cpu_s: cpu_s(std::process::id())?, written_bytes: None })
    }
}

/// User and system time of a process, in seconds: by its own clock, since /proc counts whole ticks of 10 ms, of which a
/// server of a hundred processes loses a second.
fn cpu_s(pid: u32) -> Option<f64> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both write one value, into variables of ours.
    let is_known = unsafe {
        libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0
    };
    is_known.then_some(time.tv_sec as f64 + time.tv_nsec as f64 / 1e9)
}

fn written_bytes(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
}

/// What a server did in all slices that were others'.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Waited {
    /// How long they lasted.
    pub(crate) for_s: f64,
    pub(crate) cpu_s: f64,
    pub(crate) written_bytes: u64,
    /// Slices in which it could not be looked at.
    pub(crate) unseen: u32,
}

impl Waited {
    pub(crate) fn add(&mut self, slice_s: f64, before: Option<Used>, after: Option<Used>) {
        let Some((before, after)) = before.zip(after) else {
            self.unseen += 1;
            return;
        };
        self.for_s += slice_s;
        self.cpu_s += (after.cpu_s - before.cpu_s).max(0.0);
        let written = after.written_bytes.zip(before.written_bytes);
        self.written_bytes += written.map_or(0, |(after, before)| after.saturating_sub(before));
    }

    /// Whether it was quiet enough for the ones that were loaded meanwhile.
    pub(crate) fn gate(&self) -> store::Gate {
        let cpus = std::thread::available_parallelism().map_or(1.0, |cpus| cpus.get() as f64);
        let Waited { for_s, cpu_s, written_bytes, .. } = *self;
        judge::stored(&gates::waiting_server(&WaitingServer { for_s, cpu_s, cpus, written_bytes }), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_uses_cpu_and_a_dead_one_cannot_be_seen() {
        let before = Used::of(std::process::id()).unwrap();
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 60 {
            std::hint::black_box(began.elapsed());
        }
        let after = Used::of(std::process::id()).unwrap();
        assert!(after.cpu_s > before.cpu_s);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(Used::of(child.id()).is_none());
        let this = std::process::id();
        assert!(Used::of_all(&[this, this]).unwrap().cpu_s >= 2.0 * after.cpu_s);
        assert!(Used::of_all(&[this, child.id()]).is_none() && Used::of_all(&[]).is_none());
        let mut waited = Waited::default();
        waited.add(1.0, Some(before), None);
        assert_eq!((waited.unseen, waited.for_s), (1, 0.0));
    }
}
