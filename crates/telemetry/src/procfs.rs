//! Parsers of `/proc` text (proc(5), Documentation/filesystems/proc.rst, Documentation/admin-guide/iostats.rst,
//! Documentation/accounting/psi.rst), and a reader that allocates nothing once warm. Lines and fields that are
//! missing, as on older kernels and in containers, give `None` or 0, never a panic.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Reads small files again and again into one buffer.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// The whole file as text; bytes that are not UTF-8 end it.
    pub(crate) fn read(&mut self, path: &Path) -> io::Result<&str> {
        let path = CString::new(path.as_os_str().as_bytes())?;
        // SAFETY: a valid C string; the descriptor is closed below.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let result = self.read_all(fd);
        // SAFETY: `fd` was opened above and belongs to nobody else.
        unsafe { libc::close(fd) };
        let length = result?;
        let bytes = &self.buffer[..length];
        let valid = match std::str::from_utf8(bytes) {
            Ok(text) => return Ok(text),
            Err(error) => error.valid_up_to(),
        };
        Ok(std::str::from_utf8(&bytes[..valid]).unwrap_or(""))
    }

    fn read_all(&mut self, fd: i32) -> io::Result<usize> {
        if self.buffer.is_empty() {
            self.buffer.resize(8192, 0);
        }
        let mut length = 0;
        loop {
            if length == self.buffer.len() {
                self.buffer.resize(2 * length, 0);
            }
            let rest = &mut self.buffer[length..];
            // SAFETY: `rest` is writable for its whole length.
            let n = unsafe { libc::read(fd, rest.as_mut_ptr().cast(), rest.len()) };
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            length += n as usize;
            // Files of /proc give all they have in one read when there is room: a second read would only say 0.
            if n == 0 || length < self.buffer.len() {
                return Ok(length);
            }
        }
    }
}

fn number(text: Option<&str>) -> u64 {
    text.and_then(|t| t.parse().ok()).unwrap_or(0)
}

/// Times of one cpu (or all) in clock ticks: the `cpu` lines of `/proc/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct CpuTicks {
    /// User and nice.
    pub user: u64,
    /// Of that, at a low priority (nice above 0).
    pub nice: u64,
    /// Kernel.
    pub system: u64,
    pub idle: u64,
    /// Idle while a disk request was outstanding.
    pub iowait: u64,
    /// Hard and soft interrupts.
    pub irq: u64,
    /// Given to other guests by the hypervisor.
    pub steal: u64,
}

impl CpuTicks {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.user + self.system + self.idle + self.iowait + self.irq + self.steal
    }

    /// What has come to these since `last`.
    pub(crate) fn since(&self, last: &CpuTicks) -> CpuTicks {
        let of = |field: fn(&CpuTicks) -> u64| field(self).saturating_sub(field(last));
        CpuTicks {
            user: of(|t| t.user),
            nice: of(|t| t.nice),
            system: of(|t| t.system),
            idle: of(|t| t.idle),
            iowait: of(|t| t.iowait),
            irq: of(|t| t.irq),
            steal: of(|t| t.steal),
        }
    }

    pub(crate) fn add(&mut self, more: &CpuTicks) {
        self.user += more.user;
        self.nice += more.nice;
        self.system += more.system;
        self.idle += more.idle;
        self.iowait += more.iowait;
        self.irq += more.irq;
        self.steal += more.steal;
    }

    /// Neither idle nor waiting nor stolen.
    pub(crate) fn busy(&self) -> u64 {
        self.user + self.system + self.irq
    }
}

/// The cpus that a task may run on, from its `/proc/.../status`.
pub(crate) fn allowed_cpus(status: &str) -> Vec<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let ranges = list.unwrap_or_default().trim().split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<u32>().ok()?..=to.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// `/proc/stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// All cpus together.
    pub all: CpuTicks,
    /// By cpu: number and times.
    pub cpus: Vec<(u32, CpuTicks)>,
    /// Context switches since boot.
    pub context_switches: u64,
    /// Tasks that run or could run now.
    pub running: u64,
    /// Tasks waiting for a disk now.
    pub blocked: u64,
}

pub(crate) fn parse_stat(text: &str) -> Stat {
    let mut stat = Stat::default();
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(name) = fields.next() else { continue };
        if let Some(which) = name.strip_prefix("cpu") {
            let v: Vec<u64> = fields.take(8).map(|f| number(Some(f))).collect();
            let at = |i: usize| v.get(i).copied().unwrap_or(0);
            let ticks = CpuTicks {
                user: at(0) + at(1),
                nice: at(1),
                system: at(2),
                idle: at(3),
                iowait: at(4),
                irq: at(5) + at(6),
                steal: at(7),
            };
            match which.parse() {
                Ok(cpu) => stat.cpus.push((cpu, ticks)),
                Err(_) => stat.all = ticks,
            }
        } else {
            match name {
                "ctxt" => stat.context_switches = number(fields.next()),
                "procs_running" => stat.running = number(fields.next()),
                "procs_blocked" => stat.blocked = number(fields.next()),
                _ => {}
            }
        }
    }
    stat
}

/// Microseconds since boot during which some or all tasks waited: one file of `/proc/pressure`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Pressure {
    /// At least one task waited.
    pub some_us: u64,
    /// No task could work.
    pub full_us: u64,
}

/// Parses a file of `/proc/pressure`.
pub(crate) fn parse_pressure(text: &str) -> Pressure {
    let mut pressure = Pressure::default();
    for line in text.lines() {
        let total = number(line.split_ascii_whitespace().find_map(|f| f.strip_prefix("total=")));
        match line.split_ascii_whitespace().next() {
            Some("some") => pressure.some_us = total,
            Some("full") => pressure.full_us = total,
            _ => {}
        }
    }
    pressure
}

/// The value of `name` in `/proc/meminfo` or `/proc/PID/status`, in bytes where the file says kB.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let mut parts = line.split_ascii_whitespace();
    let value: u64 = parts.next()?.parse().ok()?;
    Some(if parts.next() == Some("kB") { value * 1024 } else { value })
}

/// One line of `/proc/diskstats`. Times are summed over requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskStats {
    pub reads: u64,
    pub read_bytes: u64,
    /// Milliseconds that reads took, queueing included.
    pub read_ms: u64,
    pub writes: u64,
    pub written_bytes: u64,
    /// Milliseconds that writes took.
    pub write_ms: u64,
    pub in_flight: u64,
    /// Milliseconds with at least one request in flight.
    pub busy_ms: u64,
    /// Flushes completed (kernel 5.5 and later).
    pub flushes: u64,
    /// Milliseconds that flushes took.
    pub flush_ms: u64,
}

/// The line of device `major:minor` in `/proc/diskstats`. Sectors there are always 512 bytes.
pub(crate) fn parse_diskstats(text: &str, major: u32, minor: u32) -> Option<DiskStats> {
    text.lines().find_map(|line| {
        let v: Vec<&str> = line.split_ascii_whitespace().collect();
        if number(v.first().copied()) != u64::from(major) || number(v.get(1).copied()) != u64::from(minor) {
            return None;
        }
        // Field 1 of the documentation is the fourth of the line.
        let at = |field: usize| number(v.get(field + 2).copied());
        Some(DiskStats {
            reads: at(1),
            read_bytes: at(3) * 512,
            read_ms: at(4),
            writes: at(5),
            written_bytes: at(7) * 512,
            write_ms: at(8),
            in_flight: at(9),
            busy_ms: at(10),
            flushes: at(16),
            flush_ms: at(17),
        })
    })
}

/// Bytes received and sent over all interfaces of one kind: `lo`, or all others.
pub(crate) fn parse_net_dev(text: &str, is_loopback: bool) -> (u64, u64) {
    let mut sum = (0, 0);
    for line in text.lines() {
        let Some((name, counters)) = line.split_once(':') else { continue };
        if (name.trim() == "lo") != is_loopback {
            continue;
        }
        let v: Vec<u64> = counters.split_ascii_whitespace().map(|f| number(Some(f))).collect();
        sum.0 += v.first().copied().unwrap_or(0);
        sum.1 += v.get(8).copied().unwrap_or(0);
    }
    sum
}

/// What is needed of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PidStat {
    /// State letter: `Z` is dead and not yet waited for.
    pub state: char,
    pub parent: u32,
    /// User time in ticks, all threads, ended ones included.
    pub user_ticks: u64,
    /// Kernel time in ticks.
    pub system_ticks: u64,
    /// User time of ended and waited-for children in ticks, theirs included.
    pub children_user_ticks: u64,
    /// Kernel time of them.
    pub children_system_ticks: u64,
    pub threads: u64,
    /// Start in ticks since boot: tells a process from a later one with the same id.
    pub start_ticks: u64,
    /// Resident pages.
    pub rss_pages: u64,
    pub major_faults: u64,
}

/// Parses `/proc/PID/stat`; the name in parentheses may hold anything, so fields count from the last `)`.
pub(crate) fn parse_pid_stat(text: &str) -> Option<PidStat> {
    let rest = &text[text.rfind(')')? + 1..];
    let v: Vec<&str> = rest.split_ascii_whitespace().collect();
    // v[0] is field 3 of proc(5).
    let at = |field: usize| number(v.get(field - 3).copied());
    Some(PidStat {
        state: v.first()?.chars().next()?,
        parent: at(4) as u32,
        major_faults: at(12),
        user_ticks: at(14),
        system_ticks: at(15),
        children_user_ticks: at(16),
        children_system_ticks: at(17),
        threads: at(20),
        start_ticks: at(22),
        rss_pages: at(24),
    })
}

/// What is needed of `/proc/PID/io`: bytes that went to and came from the storage layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PidIo {
    /// Read from storage.
    pub read_bytes: u64,
    /// Sent (or to be sent) to storage.
    pub written_bytes: u64,
}

pub(crate) fn parse_pid_io(text: &str) -> PidIo {
    PidIo {
        read_bytes: field(text, "read_bytes").unwrap_or(0),
        written_bytes: field(text, "write_bytes")
            .unwrap_or(0)
            .saturating_sub(field(text, "cancelled_write_bytes").unwrap_or(0)),
    }
}

/// Voluntary and involuntary switches of one task: the last two lines of `/proc/PID/task/TID/status`. Searched from
/// the end, since this is read for every thread of a server each second.
pub(crate) fn parse_switches(status: &str) -> (u64, u64) {
    let after = |name: &str| {
        let at = status.rfind(name)? + name.len();
        status[at..].split_ascii_whitespace().next()?.parse().ok()
    };
    // "nonvoluntary_ctxt_switches:" ends in the same words, hence the line break before.
    (after("\nvoluntary_ctxt_switches:").unwrap_or(0), after("\nnonvoluntary_ctxt_switches:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STAT: &str = "cpu  21419 10 2823 263049 706 1 99 181 0 0\n\
        cpu0 9846 0 1279 132856 84 0 24 89 0 0\n\
        cpu1 11572 10 1544 130193 622 1 74 91 0 0\n\
        intr 407967 0 0\nctxt 654203\nbtime 1\nprocesses 5\nprocs_running 3\nprocs_blocked 1\n";

    #[test]
    fn stat_by_mode_and_cpu() {
        let stat = parse_stat(STAT);
        assert_eq!(stat.all.user, 21429);
        assert_eq!(stat.all.irq, 100);
        assert_eq!(stat.all.steal, 181);
        assert_eq!(stat.cpus.len(), 2);
        assert_eq!(stat.cpus[1].1.iowait, 622);
        assert_eq!((stat.context_switches, stat.running, stat.blocked), (654_203, 3, 1));
    }

    #[test]
    fn stat_of_an_old_kernel_has_fewer_columns() {
        let stat = parse_stat("cpu 1 2 3 4\nctxt 5\n");
        assert_eq!((stat.all.user, stat.all.idle, stat.all.steal), (3, 4, 0));
    }

    #[test]
    fn pressure_totals() {
        let text = "some avg10=9.95 avg60=4.24 avg300=3.09 total=20701647\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(parse_pressure(text), Pressure { some_us: 20_701_647, full_us: 7 });
        assert_eq!(parse_pressure(""), Pressure::default());
    }

    #[test]
    fn diskstats_of_one_device() {
        let text = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n \
            254       0 vda 60216 11894 6747010 34578 30297 26851 7750808 4525 2 9712 42484 11828 0 1163000 3326 3693 54\n";
        let disk = parse_diskstats(text, 254, 0).unwrap();
        assert_eq!((disk.reads, disk.read_bytes, disk.read_ms), (60216, 6_747_010 * 512, 34578));
        assert_eq!((disk.writes, disk.written_bytes, disk.write_ms), (30297, 7_750_808 * 512, 4525));
        assert_eq!((disk.in_flight, disk.busy_ms, disk.flushes, disk.flush_ms), (2, 9712, 3693, 54));
        assert_eq!(parse_diskstats(text, 8, 0), None);
    }

    #[test]
    fn diskstats_of_an_old_kernel_have_no_flushes() {
        let disk = parse_diskstats(" 8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n", 8, 0).unwrap();
        assert_eq!((disk.writes, disk.busy_ms, disk.flushes), (5, 10, 0));
    }

    #[test]
    fn net_dev_apart_from_loopback() {
        let text = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo:    3193      29    0    0    0     0          0         0     3193      29    0    0    0     0       0          0\n  eth0: 2076075369   53582    0    0    0     0          0         0  2832441   32868    0    0    0     0       0          0\n";
        assert_eq!(parse_net_dev(text, true), (3193, 3193));
        assert_eq!(parse_net_dev(text, false), (2_076_075_369, 2_832_441));
    }

    #[test]
    fn pid_stat_with_a_hostile_name() {
        let text = "4242 (mysqld) S 1 (x) S 77 4242 4242 0 -1 4194560 1 2 9 4 111 222 33 44 20 0 38 0 5555 1000000 2048 18446744073709551615";
        let stat = parse_pid_stat(text).unwrap();
        assert_eq!((stat.state, stat.parent, stat.threads), ('S', 77, 38));
        assert_eq!((stat.user_ticks, stat.system_ticks, stat.start_ticks), (111, 222, 5555));
        assert_eq!((stat.children_user_ticks, stat.children_system_ticks), (33, 44));
        assert_eq!((stat.rss_pages, stat.major_faults), (2048, 9));
        assert_eq!(parse_pid_stat(""), None);
    }

    #[test]
    fn pid_io_subtracts_what_was_cancelled() {
        let text = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n";
        assert_eq!(parse_pid_io(text), PidIo { read_bytes: 4096, written_bytes: 4096 });
    }

    #[test]
    fn switches_of_both_kinds() {
        let text = "Name:\tx\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t150\nnonvoluntary_ctxt_switches:\t545\n";
        assert_eq!(parse_switches(text), (150, 545));
        assert_eq!(parse_switches("Name:\tx\n"), (0, 0));
    }

    #[test]
    fn fields_in_kilobytes_become_bytes() {
        assert_eq!(field("MemTotal:       100 kB\nThreads:\t7\n", "MemTotal"), Some(102_400));
        assert_eq!(field("MemTotal:       100 kB\nThreads:\t7\n", "Threads"), Some(7));
        assert_eq!(field("MemTotalX: 1 kB\n", "MemTotal"), None);
    }

    #[test]
    fn reader_reads_real_files_of_any_size() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big");
        std::fs::write(&path, "x".repeat(100_000)).unwrap();
        let mut reader = Reader::default();
        assert_eq!(reader.read(&path).unwrap().len(), 100_000);
        assert!(parse_stat(reader.read(Path::new("/proc/stat")).unwrap()).context_switches > 0);
        assert!(reader.read(&dir.path().join("none")).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "[ -~\n\t]{0,400}") {
            parse_stat(&text);
            parse_pressure(&text);
            parse_diskstats(&text, 1, 2);
            parse_net_dev(&text, false);
            parse_pid_stat(&text);
            parse_pid_io(&text);
            parse_switches(&text);
            field(&text, "MemTotal");
        }

        #[test]
        fn cut_recordings_do_not_panic(cut in 0usize..200) {
            let cut = cut.min(STAT.len());
            parse_stat(&STAT[..cut]);
        }
    }
}
