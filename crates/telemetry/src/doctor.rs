//! What this machine can and cannot measure, and what that means for a study. Looking only: nothing is changed.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::device::Device;

/// How good it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Good,
    /// Works, with a limit that the meaning states.
    Limited,
    Absent,
}

/// One line of the doctor's screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// `cores`, `perf`, `cgroups`.
    pub name: &'static str,
    pub state: State,
    pub found: String,
    /// What it means for a study, and what would change it.
    pub meaning: String,
}

fn fact(name: &'static str, state: State, found: impl Into<String>, meaning: impl Into<String>) -> Fact {
    Fact { name, state, found: found.into(), meaning: meaning.into() }
}

/// Looks at everything; `place` is where data directories would be.
pub fn examine(place: &Path) -> Vec<Fact> {
    vec![
        user(),
        cores(),
        frequency(),
        virtualisation(),
        clock(),
        wake_up_fact(),
        memory(),
        files(),
        pressure(),
        page_cache(),
        cgroups(),
        io_limits(),
        perf(),
        device(place),
        fio(),
    ]
}

fn is_root() -> bool {
    // SAFETY: no pointers involved.
    unsafe { libc::geteuid() == 0 }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn user() -> Fact {
    if is_root() {
        fact(
            "user",
            State::Good,
            "root",
            "servers run under a uid of their own; cold starts, limits, power cuts and lock sampling are possible",
        )
    } else {
        let meaning = "servers run as you; no I/O limits, no power cuts in audits, futexes sampled only of your own \
                       processes";
        fact("user", State::Limited, "not root", meaning)
    }
}

fn cores() -> Fact {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    let found = format!("{allowed} logical cpus may be used{}", if has_smt() { ", with SMT" } else { "" });
    match allowed {
        0..=3 => fact(
            "cores",
            State::Limited,
            found,
            "client and server share cores: figures include the client's cost; compare servers with each other, not with \
             published ones",
        ),
        _ => fact(
            "cores",
            State::Good,
            found,
            "the client can be kept on cores of its own (--cpus for the server)",
        ),
    }
}

fn has_smt() -> bool {
    read("/sys/devices/system/cpu/smt/active").is_some_and(|text| text == "1")
}

fn frequency() -> Fact {
    let governor = read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    let boost = read("/sys/devices/system/cpu/cpufreq/boost").or_else(|| {
        read("/sys/devices/system/cpu/intel_pstate/no_turbo")
            .map(|v| if v == "0" { "1".into() } else { "0".into() })
    });
    let boost = match boost.as_deref() {
        Some("1") => ", boost on",
        Some(_) => ", boost off",
        None => "",
    };
    match governor {
        None => fact(
            "cpu frequency",
            State::Limited,
            "not visible",
            "usual on virtual machines: throttling cannot be seen, only the canary shows a slower machine",
        ),
        Some(governor) if governor == "performance" => fact(
            "cpu frequency",
            State::Good,
            format!("governor performance{boost}"),
            "frequency is watched during runs",
        ),
        Some(governor) => fact(
            "cpu frequency",
            State::Limited,
            format!("governor {governor}{boost}"),
            "frequency may change with the load: set the performance governor (cpupower frequency-set -g performance)",
        ),
    }
}

fn virtualisation() -> Fact {
    let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
    let is_guest = cpuinfo.lines().any(|l| l.starts_with("flags") && l.split(' ').any(|f| f == "hypervisor"));
    if is_guest {
        let meaning = "neighbours on the host slow runs down without showing: trust interleaved blocks and the canary, and \
                       expect wide intervals";
        fact("virtualisation", State::Limited, "a virtual machine", meaning)
    } else {
        fact("virtualisation", State::Good, "none seen", "the machine's speed is its own")
    }
}

fn clock() -> Fact {
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_else(|| "unknown".into());
    let ns = clock_cost_ns();
    let found = format!("{source}, {ns:.0} ns a reading");
    if ns < 200.0 {
        fact("clock", State::Good, found, "timestamps cost next to nothing against a statement")
    } else {
        let meaning =
            "a slow clock source adds to every measured statement: prefer tsc where the machine has it";
        fact("clock", State::Limited, found, meaning)
    }
}

fn clock_cost_ns() -> f64 {
    let began = Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(Instant::now());
    }
    began.elapsed().as_secs_f64() * 1e6
}

/// Sleeps whose ends are looked at, and how long each is: rare enough that processors go to sleep in between.
const SLEEPS: usize = 100;
const SLEEP: Duration = Duration::from_millis(2);
/// Later than that, wake-ups stand visibly in latencies of milliseconds.
const LATE_US: f64 = 300.0;

/// How late threads are that slept, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WakeUps {
    pub p50_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
}

/// How late this machine's wake-ups are now: looks for a fifth of a second. `None` where no thread can be had.
pub fn wake_ups() -> Option<WakeUps> {
    let late: Vec<f64> = late_wake_ups().iter().map(|late| late.as_secs_f64() * 1e6).collect();
    let at = |share: f64| stats::quantile(&late, share);
    Some(WakeUps { p50_us: at(0.5)?, p95_us: at(0.95)?, p99_us: at(0.99)? })
}

fn wake_up_fact() -> Fact {
    let Some(late) = wake_ups() else {
        return fact("wake-ups", State::Absent, "not measured", "no thread could be started");
    };
    let found = format!("{:.0} us late, 95 % within {:.0} us", late.p50_us, late.p95_us);
    if late.p95_us <= LATE_US {
        return fact("wake-ups", State::Good, found, "arrivals of open loops start in time");
    }
    let meaning = "processors are slow to wake: with few sessions and at low rates latencies contain it, the server's part \
                   and the client's; as root Plimsoll keeps them awake while it measures (`idle` in a study's [machine])";
    fact("wake-ups", State::Limited, found, meaning)
}

/// By how much a thread that slept was awake too late.
fn late_wake_ups() -> Vec<Duration> {
    let sleep = || {
        // SAFETY: a plain system call without memory. Timers of this thread fire when they are due.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        let late = |_| {
            let began = Instant::now();
            thread::sleep(SLEEP);
            began.elapsed().saturating_sub(SLEEP)
        };
        (0..SLEEPS).map(late).collect()
    };
    thread::spawn(sleep).join().unwrap_or_default()
}

/// Round trips looked at for a hand-over, and the pause before each, in which processors may go to sleep.
const ROUND_TRIPS: usize = 100;
const ROUND_TRIP_PAUSE: Duration = Duration::from_micros(500);

/// How long it takes until a thread that waits on a socket goes on once another has written to it, in microseconds: the
/// median of half a round trip between two threads that both sleep, which is what each statement pays twice when the
/// machine has nothing else to do. `None` where no thread or socket can be had.
pub fn hand_over_us() -> Option<f64> {
    let (mut near, mut far) = UnixStream::pair().ok()?;
    let echo = thread::Builder::new().spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let echo = echo.ok()?;
    let mut halves_us = Vec::new();
    for _ in 0..ROUND_TRIPS {
        thread::sleep(ROUND_TRIP_PAUSE);
        let began = Instant::now();
        let mut byte = [1];
        near.write_all(&byte).and_then(|()| near.read_exact(&mut byte)).ok()?;
        halves_us.push(began.elapsed().as_secs_f64() * 1e6 / 2.0);
    }
    drop(near);
    echo.join().ok()?;
    stats::median(&halves_us)
}

fn memory() -> Fact {
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let total = crate::procfs::field(&meminfo, "MemTotal").unwrap_or(0);
    let available = crate::procfs::field(&meminfo, "MemAvailable").unwrap_or(0);
    let gib = |bytes: u64| bytes as f64 / (1u64 << 30) as f64;
    let found = format!("{:.1} GiB, {:.1} available", gib(total), gib(available));
    let swap = crate::procfs::field(&meminfo, "SwapTotal").unwrap_or(0);
    if available < 2 << 30 {
        fact("memory", State::Limited, found, "small buffers only: data sets must be small to be in memory")
    } else if swap > 0 {
        fact("memory", State::Good, format!("{found}, swap on"), "swap use is watched during runs")
    } else {
        fact("memory", State::Good, found, "buffers are sized from it")
    }
}

fn files() -> Fact {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for the length of the call.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    let sessions = limit.rlim_max.saturating_sub(200);
    let found = format!("{} open files, at most {}", limit.rlim_cur, limit.rlim_max);
    let meaning =
        format!("up to about {sessions} sessions in one process; ladders above are refused before the run");
    fact("file limit", if sessions >= 10_000 { State::Good } else { State::Limited }, found, meaning)
}

fn pressure() -> Fact {
    match read("/proc/pressure/cpu") {
        Some(_) => fact(
            "pressure (PSI)",
            State::Good,
            "/proc/pressure",
            "waiting for cpu, memory and disk is sampled",
        ),
        None => fact(
            "pressure (PSI)",
            State::Absent,
            "no /proc/pressure",
            "the machine's stalls do not show (kernel option CONFIG_PSI, boot option psi=1)",
        ),
    }
}

fn page_cache() -> Fact {
    let path = Path::new("/proc/sys/vm/drop_caches");
    // Opening for writing tells whether it may be written, and drops nothing.
    let can = fs::OpenOptions::new().write(true).open(path).is_ok();
    if can {
        fact("page cache", State::Good, "may be dropped", "cold starts are possible")
    } else {
        fact(
            "page cache",
            State::Limited,
            "may be dropped file by file only",
            "a cold start empties it of the data directory, and a gate looks whether that worked",
        )
    }
}

/// Controllers: version and names, from /proc/self/mountinfo and cgroup.controllers.
fn controllers() -> (Option<u8>, Vec<String>) {
    if let Some(text) = read("/sys/fs/cgroup/cgroup.controllers") {
        return (Some(2), text.split_ascii_whitespace().map(str::to_owned).collect());
    }
    let mounts = read("/proc/self/mountinfo").unwrap_or_default();
    let names: Vec<String> = mounts
        .lines()
        .filter_map(|line| line.split_once(" - cgroup ").map(|(_, right)| right))
        .filter_map(|right| right.rsplit(' ').next())
        .flat_map(|options| options.split(',').map(str::to_owned).collect::<Vec<_>>())
        .filter(|name| ["cpu", "cpuset", "cpuacct", "memory", "blkio"].contains(&name.as_str()))
        .collect();
    (if names.is_empty() { None } else { Some(1) }, names)
}

fn cgroups() -> Fact {
    let (version, names) = controllers();
    let writable = Path::new("/sys/fs/cgroup").exists() && is_root();
    match version {
        None => fact(
            "cgroups",
            State::Absent,
            "none",
            "no limits of cpu, memory or I/O for servers; --cpus still pins",
        ),
        Some(version) if !writable => fact(
            "cgroups",
            State::Limited,
            format!("version {version}: {}", names.join(" ")),
            "not writable for you: no limits of cpu, memory or I/O for servers; --cpus still pins",
        ),
        Some(version) => fact(
            "cgroups",
            State::Good,
            format!("version {version}: {}", names.join(" ")),
            "servers can be limited in cpu and memory",
        ),
    }
}

fn io_limits() -> Fact {
    let (version, names) = controllers();
    let has = |name: &str| names.iter().any(|n| n == name);
    match version {
        Some(2) if has("io") => fact(
            "I/O limits",
            State::Good,
            "cgroup v2 io",
            "slower devices can be imitated, buffered writes included",
        ),
        Some(1) if has("blkio") && is_root() => fact(
            "I/O limits",
            State::Limited,
            "cgroup v1 blkio",
            "limits reach direct and synced writes only: buffered writes escape them, so a relaxed durability level would \
             run unlimited where a strict one pays; use real devices to compare durability",
        ),
        _ => fact(
            "I/O limits",
            State::Absent,
            "no io controller",
            "a device is as fast as it is: use real places or tmpfs",
        ),
    }
}

fn perf() -> Fact {
    let is_installed = Command::new("perf")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !is_installed {
        return fact(
            "perf",
            State::Absent,
            "not installed",
            "hot locks by sampling only: waiting time without counts and callers (install linux-perf)",
        );
    }
    let paranoid: i32 =
        read("/proc/sys/kernel/perf_event_paranoid").and_then(|v| v.parse().ok()).unwrap_or(2);
    if paranoid > -1 && !is_root() {
        let found = format!("installed; perf_event_paranoid is {paranoid}");
        return fact("perf", State::Limited, found, "system calls of servers cannot be traced: run as root");
    }
    fact("perf", State::Good, "installed", "hot locks with counts and callers")
}

fn device(place: &Path) -> Fact {
    let existing = place.ancestors().find(|p| p.exists()).unwrap_or(Path::new("/"));
    match Device::of(existing) {
        Ok(device) => {
            let mut found = format!("{} on {}", device.filesystem, device.name);
            if let Some(scheduler) = &device.scheduler {
                found.push_str(&format!(", scheduler {scheduler}"));
            }
            let is_sharing = matches!(device.filesystem.as_str(), "xfs" | "btrfs" | "bcachefs");
            let meaning = match (device.filesystem.as_str(), is_sharing) {
                ("tmpfs", _) => "memory, not a disk: durability costs nothing here",
                (_, true) => "snapshots are copied by reference, in milliseconds",
                _ => "snapshots are copied byte by byte",
            };
            fact("data directories", State::Good, format!("{found} ({})", existing.display()), meaning)
        }
        Err(error) => {
            fact("data directories", State::Absent, error.to_string(), "choose another place (PLIMSOLL_HOME)")
        }
    }
}

fn fio() -> Fact {
    let version = Command::new("fio").arg("--version").output().ok().filter(|o| o.status.success());
    match version {
        Some(output) => {
            let found = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            fact("fio", State::Good, found, "the storage probe uses it")
        }
        None => fact(
            "fio",
            State::Limited,
            "not installed",
            "the built-in storage probe is used: one request at a time",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_says_what_it_means() {
        let facts = examine(Path::new("/tmp/not/there/yet"));
        assert!(facts.len() >= 12);
        for fact in &facts {
            assert!(!fact.found.is_empty() && !fact.meaning.is_empty(), "{fact:?}");
        }
        let names: std::collections::BTreeSet<&str> = facts.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), facts.len());
    }
}
