//! The machine: cpus, scheduler, memory, pressure, the data directory's device, network.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::device::Device;
use crate::procfs::{
    CpuTicks, DiskStats, Reader, allowed_cpus, field, parse_diskstats, parse_net_dev, parse_pressure,
    parse_stat,
};
use crate::residency::page_bytes;
use crate::sampler::Missing;
use crate::track::Tracks;

/// More cpus than this are not shown one by one.
const CPUS_SHOWN_MAX: usize = 64;

/// Samples `/proc` of the whole machine.
#[derive(Debug)]
pub(crate) struct HostSampler {
    proc: PathBuf,
    reader: Reader,
    device: Option<Device>,
    last_cpus: Vec<(u32, CpuTicks)>,
    last_all: CpuTicks,
    server_pid: Option<u32>,
    /// What the cpus did that server and client may run on, since the first pass.
    ours: CpuTicks,
    last_disk: Option<(f64, DiskStats)>,
    has_pressure: bool,
    frequencies: Vec<PathBuf>,
    throttles: Vec<PathBuf>,
}

/// The cpus on which the server's process or any thread of this one may run.
fn allowed_to_us(proc: &Path, server_pid: Option<u32>) -> BTreeSet<u32> {
    let tasks = std::fs::read_dir(proc.join("self/task")).into_iter().flatten().flatten();
    let server = server_pid.map(|pid| proc.join(pid.to_string()));
    let status = |dir: PathBuf| std::fs::read_to_string(dir.join("status")).unwrap_or_default();
    tasks.map(|task| task.path()).chain(server).flat_map(|dir| allowed_cpus(&status(dir))).collect()
}

/// What the cpus did, since they were started, on which this process and a server may run; in seconds of a cpu.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuTime {
    /// All that there was.
    pub there_s: f64,
    /// Used by whomever.
    pub busy_s: f64,
    /// Of that, at a low priority, which gives way.
    pub low_priority_s: f64,
    /// Given to others by the hypervisor while something here wanted to run.
    pub stolen_s: f64,
}

impl CpuTime {
    /// Up to now; `None` without /proc. Its figures are counted in ticks, of 10 ms as a rule.
    pub fn now(server_pids: &[u32]) -> Option<CpuTime> {
        let proc = Path::new("/proc");
        let mut ours = allowed_to_us(proc, None);
        server_pids.iter().for_each(|pid| ours.extend(allowed_to_us(proc, Some(*pid))));
        let stat = parse_stat(&std::fs::read_to_string(proc.join("stat")).ok()?);
        let mut sum = CpuTicks::default();
        let counted = stat.cpus.iter().filter(|(cpu, _)| ours.is_empty() || ours.contains(cpu));
        counted.for_each(|(_, ticks)| sum.add(ticks));
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second();
        Some(CpuTime {
            there_s: seconds(sum.total()),
            busy_s: seconds(sum.busy()),
            low_priority_s: seconds(sum.nice),
            stolen_s: seconds(sum.steal),
        })
    }

    /// What passed in two spans together.
    pub fn and(&self, other: &CpuTime) -> CpuTime {
        CpuTime {
            there_s: self.there_s + other.there_s,
            busy_s: self.busy_s + other.busy_s,
            low_priority_s: self.low_priority_s + other.low_priority_s,
            stolen_s: self.stolen_s + other.stolen_s,
        }
    }

    /// What passed since an earlier look.
    pub fn since(&self, before: &CpuTime) -> CpuTime {
        CpuTime {
            there_s: (self.there_s - before.there_s).max(0.0),
            busy_s: (self.busy_s - before.busy_s).max(0.0),
            low_priority_s: (self.low_priority_s - before.low_priority_s).max(0.0),
            stolen_s: (self.stolen_s - before.stolen_s).max(0.0),
        }
    }
}

/// What others take of the cpus on which this process may run, while it only waits here for `length`: their part at no
/// low priority, and the hypervisor's. `None` without /proc.
pub fn taken_by_others(length: Duration) -> Option<f64> {
    let before = CpuTime::now(&[])?;
    std::thread::sleep(length);
    let passed = CpuTime::now(&[])?.since(&before);
    let taken_s = passed.busy_s - passed.low_priority_s + passed.stolen_s;
    (passed.there_s > 0.0).then(|| taken_s / passed.there_s)
}

impl HostSampler {
    /// For the machine that this runs on; `datadir` decides which device is watched.
    pub(crate) fn new(datadir: Option<&Path>, server_pid: Option<u32>) -> (Self, Vec<Missing>) {
        Self::with_proc(PathBuf::from("/proc"), datadir, server_pid)
    }

    fn with_proc(proc: PathBuf, datadir: Option<&Path>, server_pid: Option<u32>) -> (Self, Vec<Missing>) {
        let mut missing = Vec::new();
        let device = datadir.and_then(|dir| match Device::of(dir) {
            Ok(device) if device.numbers.is_some() => Some(device),
            Ok(device) => {
                let why = format!("{} is {}, which has no block device", dir.display(), device.filesystem);
                missing.push(Missing::new("disk figures", why));
                None
            }
            Err(error) => {
                missing.push(Missing::new("disk figures", format!("{}: {error}", dir.display())));
                None
            }
        });
        let has_pressure = proc.join("pressure/cpu").exists();
        if !has_pressure {
            missing
                .push(Missing::new("pressure (PSI)", "the kernel has no /proc/pressure (CONFIG_PSI, psi=1)"));
        }
        let frequencies = cpu_files("cpufreq/scaling_cur_freq");
        if frequencies.is_empty() {
            let why = "the kernel shows no cpufreq (usual on virtual machines)";
            missing.push(Missing::new("cpu frequency", why));
        }
        let sampler = Self {
            proc,
            reader: Reader::default(),
            device,
            last_cpus: Vec::new(),
            last_all: CpuTicks::default(),
            server_pid,
            ours: CpuTicks::default(),
            last_disk: None,
            has_pressure,
            frequencies,
            throttles: cpu_files("thermal_throttle/core_throttle_count"),
        };
        (sampler, missing)
    }

    /// One pass, at `t` seconds since the epoch.
    pub(crate) fn sample(&mut self, t: f64, tracks: &mut Tracks) {
        self.sample_cpus(t, tracks);
        self.sample_memory(t, tracks);
        if self.has_pressure {
            self.sample_pressure(t, tracks);
        }
        self.sample_disk(t, tracks);
        self.sample_network(t, tracks);
        self.sample_frequency(t, tracks);
    }

    fn sample_cpus(&mut self, t: f64, tracks: &mut Tracks) {
        let Ok(text) = self.reader.read(&self.proc.join("stat")) else { return };
        let stat = parse_stat(text);
        let total = stat.all.total().saturating_sub(self.last_all.total()) as f64;
        // Shares need two samples; the first pass only remembers.
        if self.last_all.total() > 0 && total > 0.0 {
            let share = |now: u64, last: u64| now.saturating_sub(last) as f64 / total;
            let (now, last) = (stat.all, self.last_all);
            for (name, value) in [
                ("cpu_user_share", share(now.user, last.user)),
                ("cpu_system_share", share(now.system, last.system)),
                ("cpu_iowait_share", share(now.iowait, last.iowait)),
                ("cpu_irq_share", share(now.irq, last.irq)),
                ("cpu_steal_share", share(now.steal, last.steal)),
                ("cpu_busy_share", share(now.busy(), last.busy())),
            ] {
                tracks.gauge(t, "host", name, "", "share", value);
            }
            if stat.cpus.len() <= CPUS_SHOWN_MAX {
                for ((cpu, now), (_, last)) in stat.cpus.iter().zip(&self.last_cpus) {
                    let total = now.total().saturating_sub(last.total());
                    if total > 0 {
                        let busy = now.busy().saturating_sub(last.busy()) as f64 / total as f64;
                        tracks.gauge(t, "host", "cpu_busy_share", &cpu.to_string(), "share", busy);
                    }
                }
            }
        }
        let counted = allowed_to_us(&self.proc, self.server_pid);
        for ((cpu, now), (_, last)) in stat.cpus.iter().zip(&self.last_cpus) {
            if counted.is_empty() || counted.contains(cpu) {
                self.ours.add(&now.since(last));
            }
        }
        // Seconds of the cpus that server and client may run on, to subtract what these two used.
        let tick = 1.0 / ticks_per_second();
        for (name, ticks) in [
            ("cpu_busy", self.ours.busy()),
            ("cpu_low_priority", self.ours.nice),
            ("cpu_steal", self.ours.steal),
            ("cpu_there", self.ours.total()),
        ] {
            tracks.counter(t, "host", name, "", "s", ticks as f64 * tick);
        }
        tracks.counter(t, "host", "context_switches", "", "", stat.context_switches as f64);
        // This thread runs while it looks.
        tracks.gauge(t, "host", "run_queue", "", "tasks", stat.running.saturating_sub(1) as f64);
        tracks.gauge(t, "host", "blocked", "", "tasks", stat.blocked as f64);
        self.last_all = stat.all;
        self.last_cpus = stat.cpus;
    }

    fn sample_memory(&mut self, t: f64, tracks: &mut Tracks) {
        let Ok(text) = self.reader.read(&self.proc.join("meminfo")) else { return };
        for (name, of) in [
            ("memory_available_bytes", "MemAvailable"),
            ("page_cache_bytes", "Cached"),
            ("page_cache_dirty_bytes", "Dirty"),
            ("page_cache_writeback_bytes", "Writeback"),
        ] {
            if let Some(bytes) = field(text, of) {
                tracks.gauge(t, "host", name, "", "B", bytes as f64);
            }
        }
        if let (Some(total), Some(free)) = (field(text, "SwapTotal"), field(text, "SwapFree")) {
            tracks.gauge(t, "host", "swap_used_bytes", "", "B", total.saturating_sub(free) as f64);
        }
        let Ok(text) = self.reader.read(&self.proc.join("vmstat")) else { return };
        // Pages of the machine's size. Where there is no swap they stand at 0.
        for (name, of) in [("swapped_in", "pswpin"), ("swapped_out", "pswpout")] {
            let count = text.lines().find_map(|line| line.strip_prefix(of)?.trim().parse::<u64>().ok());
            if let Some(pages) = count {
                tracks.counter(t, "host", name, "", "B", (pages * page_bytes()) as f64);
            }
        }
    }

    fn sample_pressure(&mut self, t: f64, tracks: &mut Tracks) {
        for (file, some, full) in [
            ("pressure/cpu", "pressure_cpu_some", ""),
            ("pressure/memory", "pressure_memory_some", "pressure_memory_full"),
            ("pressure/io", "pressure_io_some", "pressure_io_full"),
        ] {
            let Ok(text) = self.reader.read(&self.proc.join(file)) else { continue };
            let pressure = parse_pressure(text);
            tracks.counter(t, "host", some, "", "stalled_s", pressure.some_us as f64 / 1e6);
            if !full.is_empty() {
                tracks.counter(t, "host", full, "", "stalled_s", pressure.full_us as f64 / 1e6);
            }
        }
    }

    fn sample_disk(&mut self, t: f64, tracks: &mut Tracks) {
        let Some((device, (major, minor))) = self.device.as_ref().and_then(|d| Some((d, d.numbers?))) else {
            return;
        };
        let Ok(text) = self.reader.read(&self.proc.join("diskstats")) else { return };
        let Some(disk) = parse_diskstats(text, major, minor) else { return };
        let name = device.name.as_str();
        for (what, unit, value) in [
            ("reads", "", disk.reads),
            ("read_bytes", "B", disk.read_bytes),
            ("writes", "", disk.writes),
            ("written_bytes", "B", disk.written_bytes),
            ("flushes", "", disk.flushes),
        ] {
            tracks.counter(t, "device", what, name, unit, value as f64);
        }
        tracks.gauge(t, "device", "in_flight", name, "requests", disk.in_flight as f64);
        if let Some((then, last)) = self.last_disk {
            let since = |now: u64, last: u64| now.saturating_sub(last) as f64;
            let busy = since(disk.busy_ms, last.busy_ms) / 1000.0 / (t - then).max(1e-6);
            tracks.gauge(t, "device", "utilisation_share", name, "share", busy.min(1.0));
            for (what, requests, ms) in [
                ("read_await_ms", since(disk.reads, last.reads), since(disk.read_ms, last.read_ms)),
                ("write_await_ms", since(disk.writes, last.writes), since(disk.write_ms, last.write_ms)),
                ("flush_await_ms", since(disk.flushes, last.flushes), since(disk.flush_ms, last.flush_ms)),
            ] {
                if requests > 0.0 {
                    tracks.gauge(t, "device", what, name, "ms", ms / requests);
                }
            }
        }
        self.last_disk = Some((t, disk));
    }

    fn sample_network(&mut self, t: f64, tracks: &mut Tracks) {
        let Ok(text) = self.reader.read(&self.proc.join("net/dev")) else { return };
        for (instance, is_loopback) in [("lo", true), ("other", false)] {
            let (received, sent) = parse_net_dev(text, is_loopback);
            tracks.counter(t, "host", "network_received_bytes", instance, "B", received as f64);
            tracks.counter(t, "host", "network_sent_bytes", instance, "B", sent as f64);
        }
    }

    fn sample_frequency(&mut self, t: f64, tracks: &mut Tracks) {
        let mut khz = Vec::new();
        for path in &self.frequencies {
            if let Some(value) = self.reader.read(path).ok().and_then(|text| text.trim().parse::<f64>().ok())
            {
                khz.push(value);
            }
        }
        if let Some(mean) = stats::mean(&khz) {
            tracks.gauge(t, "host", "cpu_frequency_mhz", "", "MHz", mean / 1000.0);
        }
        let mut count = 0.0;
        for path in &self.throttles {
            count +=
                self.reader.read(path).ok().and_then(|text| text.trim().parse::<f64>().ok()).unwrap_or(0.0);
        }
        if !self.throttles.is_empty() {
            tracks.counter(t, "host", "throttled", "", "", count);
        }
    }
}

/// Clock ticks of `/proc/stat` a second (USER_HZ).
pub(crate) fn ticks_per_second() -> f64 {
    // SAFETY: no pointers involved.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    if ticks > 0 { ticks as f64 } else { 100.0 }
}

fn cpu_files(file: &str) -> Vec<PathBuf> {
    (0..CPUS_SHOWN_MAX)
        .map(|cpu| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/{file}")))
        .filter(|path| path.exists())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::track::Track;

    fn of<'a>(tracks: &'a [Track], name: &str) -> &'a Track {
        tracks.iter().find(|t| t.name == name && t.instance.is_empty()).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn two_passes_over_recorded_files_give_shares_and_rates() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("stat", "cpu 100 0 50 800 50 0 0 0\ncpu0 100 0 50 800 50 0 0 0\nctxt 1000\nprocs_running 3\n");
        write(
            "meminfo",
            "MemAvailable: 1000 kB\nCached: 10 kB\nDirty: 1 kB\nSwapTotal: 8 kB\nSwapFree: 8 kB\n",
        );
        write("vmstat", "nr_free_pages 5\npswpin 100\npswpout 7\n");
        write("pressure/cpu", "some avg10=0 avg60=0 avg300=0 total=1000000\n");
        write("net/dev", "a\nb\n lo: 5 0 0 0 0 0 0 0 5 0\n");
        let (mut sampler, _) = HostSampler::with_proc(dir.path().to_owned(), None, None);
        let mut tracks = Tracks::default();
        sampler.sample(1.0, &mut tracks);
        write(
            "stat",
            "cpu 150 0 70 820 50 0 0 10\ncpu0 150 0 70 820 50 0 0 10\nctxt 3000\nprocs_running 1\n",
        );
        write("pressure/cpu", "some avg10=0 avg60=0 avg300=0 total=1500000\n");
        write("vmstat", "nr_free_pages 5\npswpin 103\npswpout 7\n");
        sampler.sample(2.0, &mut tracks);
        let tracks = tracks.into_vec();
        assert_eq!(of(&tracks, "cpu_user_share").points, vec![(2.0, 0.5)]);
        assert_eq!(of(&tracks, "cpu_steal_share").points, vec![(2.0, 0.1)]);
        assert_eq!(of(&tracks, "context_switches").shown(), vec![(2.0, 2000.0)]);
        assert_eq!(of(&tracks, "pressure_cpu_some").shown(), vec![(2.0, 0.5)]);
        let page = page_bytes() as f64;
        assert_eq!(of(&tracks, "swapped_in").increase(1.0, 2.0), Some(3.0 * page));
        assert_eq!(of(&tracks, "swapped_out").increase(1.0, 2.0), Some(0.0));
        assert_eq!(of(&tracks, "run_queue").points[0].1, 2.0);
        assert_eq!(of(&tracks, "memory_available_bytes").points[0].1, 1_024_000.0);
    }

    #[test]
    fn only_cpus_that_server_and_client_may_use_count() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("self/task/7/status", "Name:\tplimsoll\nCpus_allowed_list:\t0\n");
        write("44/status", "Name:\tmariadbd\nCpus_allowed_list:\t2-3\n");
        let cpus = |busy: u64, stolen: u64| {
            let line = |cpu: u64| format!("cpu{cpu} {} {cpu} 0 100 0 0 0 {stolen}\n", busy * (cpu + 1));
            format!("cpu 0 0 0 0 0 0 0 0\n{}", (0..8).map(line).collect::<String>())
        };
        write("stat", &cpus(100, 0));
        let (mut sampler, _) = HostSampler::with_proc(dir.path().to_owned(), None, Some(44));
        let mut tracks = Tracks::default();
        sampler.sample(1.0, &mut tracks);
        write("stat", &cpus(200, 10));
        sampler.sample(2.0, &mut tracks);
        let tracks = tracks.into_vec();
        let tick = 1.0 / ticks_per_second();
        // 100 ticks more of cpu 0, 300 of cpu 2, 400 of cpu 3.
        assert_eq!(of(&tracks, "cpu_busy").points.last().unwrap().1, 800.0 * tick);
        assert_eq!(of(&tracks, "cpu_steal").points.last().unwrap().1, 30.0 * tick);
        assert_eq!(of(&tracks, "cpu_there").points.last().unwrap().1, 830.0 * tick);
    }

    #[test]
    fn an_empty_proc_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let (mut sampler, missing) =
            HostSampler::with_proc(dir.path().to_owned(), Some(Path::new("/nowhere")), None);
        let mut tracks = Tracks::default();
        sampler.sample(1.0, &mut tracks);
        assert!(missing.iter().any(|m| m.what == "disk figures"));
        assert!(missing.iter().any(|m| m.what.starts_with("pressure")));
    }
}
