//! The server's process tree: one process of many threads (MySQL, MariaDB) or one process a session (PostgreSQL).
//!
//! Never `smaps`: a pass over 256 PostgreSQL backends takes half a second. Shared memory is counted once from
//! `RssShmem` instead.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::host::ticks_per_second;
use crate::procfs::{Reader, field, parse_pid_io, parse_pid_stat, parse_switches};
use crate::sampler::Missing;
use crate::track::Tracks;

/// Above this many tasks, switches and bytes are read from a part of them each second, in turn.
const TASKS_PER_PASS: usize = 512;

/// Samples a process and all its descendants.
#[derive(Debug)]
pub(crate) struct ProcessSampler {
    proc: PathBuf,
    root: u32,
    source: &'static str,
    /// Which one of several; empty where there is one.
    instance: String,
    /// The client's children are servers, not the client.
    with_children: bool,
    /// More processes beside the root, alone.
    others: Vec<u32>,
    reader: Reader,
    /// Cumulative figures survive the end of the process that they were read from.
    sums: Sums,
    last: HashMap<u32, Sums>,
    pass: usize,
    can_read_io: bool,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    user_ticks: u64,
    system_ticks: u64,
    voluntary: u64,
    involuntary: u64,
    read_bytes: u64,
    written_bytes: u64,
    major_faults: u64,
}

impl ProcessSampler {
    /// For the server's process and all its descendants; tracks of source `process`.
    pub(crate) fn server(root: u32) -> (Self, Vec<Missing>) {
        Self::new(root, "process", true)
    }

    /// For a replica's process and all its descendants; tracks of source `replica`.
    pub(crate) fn replica(root: u32, name: &str) -> Self {
        Self { instance: name.to_owned(), ..Self::new(root, "replica", true).0 }
    }

    /// For the process that calls it, without its children, and those `others` that apply the load with it: what the load
    /// itself costs, samplers included. Tracks of source `client`.
    pub(crate) fn client(others: &[u32]) -> Self {
        Self { others: others.to_vec(), ..Self::new(std::process::id(), "client", false).0 }
    }

    fn new(root: u32, source: &'static str, with_children: bool) -> (Self, Vec<Missing>) {
        let proc = PathBuf::from("/proc");
        let mut missing = Vec::new();
        let can_read_io = fs::read(proc.join(root.to_string()).join("io")).is_ok();
        if !can_read_io {
            let why = format!("/proc/{root}/io cannot be read: run as root or as the server's user");
            missing.push(Missing::new("bytes read and written by the server's processes", why));
        }
        let sampler = Self {
            proc,
            root,
            source,
            instance: String::new(),
            with_children,
            others: Vec::new(),
            reader: Reader::default(),
            sums: Sums::default(),
            last: HashMap::new(),
            pass: 0,
            can_read_io,
        };
        (sampler, missing)
    }

    /// One pass, at `t` seconds since the epoch. Nothing is noted once the process is gone.
    pub(crate) fn sample(&mut self, t: f64, tracks: &mut Tracks) {
        let root_dir = self.proc.join(self.root.to_string());
        let Some(root) = self.reader.read(&root_dir.join("stat")).ok().and_then(parse_pid_stat) else {
            return;
        };
        if root.state == 'Z' {
            return;
        }
        let tree = self.tree();
        let tasks: usize = tree.len() + root.threads as usize;
        let turn = Turn { pass: self.pass, of: 1 + tasks / TASKS_PER_PASS };
        self.pass += 1;
        let mut level = Level::default();
        for (index, pid) in tree.iter().enumerate() {
            self.sample_one(*pid, turn.has(index), turn, &mut level);
        }
        // A child that ended between two passes went on working after the last one: its parent inherits all of its
        // time, so times are summed anew in each pass. Between its end and its parent's wait they would shrink.
        self.sums.user_ticks = self.sums.user_ticks.max(level.user_ticks);
        self.sums.system_ticks = self.sums.system_ticks.max(level.system_ticks);
        // Switches of ended processes stay in the sums; their entries would only grow the map.
        if self.last.len() > 4 * (tasks + 64) {
            let alive = &tree;
            let proc = &self.proc;
            self.last.retain(|id, _| alive.contains(id) || proc.join(id.to_string()).exists());
        }
        let second = 1.0 / ticks_per_second();
        let (source, instance, sums) = (self.source, self.instance.as_str(), self.sums);
        tracks.counter(t, source, "cpu_user", instance, "s", sums.user_ticks as f64 * second);
        tracks.counter(t, source, "cpu_system", instance, "s", sums.system_ticks as f64 * second);
        tracks.gauge(t, source, "rss_bytes", instance, "B", level.rss() as f64);
        tracks.gauge(t, source, "threads", instance, "tasks", level.threads as f64);
        tracks.gauge(t, source, "processes", instance, "tasks", tree.len() as f64);
        tracks.counter(t, source, "context_switches_voluntary", instance, "", sums.voluntary as f64);
        tracks.counter(t, source, "context_switches_involuntary", instance, "", sums.involuntary as f64);
        tracks.counter(t, source, "major_faults", instance, "", sums.major_faults as f64);
        if self.can_read_io {
            tracks.counter(t, source, "read_bytes", instance, "B", sums.read_bytes as f64);
            tracks.counter(t, source, "written_bytes", instance, "B", sums.written_bytes as f64);
        }
        tracks.gauge(t, source, "started", instance, "ticks", root.start_ticks as f64);
    }

    fn sample_one(&mut self, pid: u32, is_its_turn: bool, turn: Turn, level: &mut Level) {
        let dir = self.proc.join(pid.to_string());
        let Some(stat) = self.reader.read(&dir.join("stat")).ok().and_then(parse_pid_stat) else { return };
        level.threads += stat.threads;
        level.user_ticks += stat.user_ticks;
        level.system_ticks += stat.system_ticks;
        if self.with_children {
            level.user_ticks += stat.children_user_ticks;
            level.system_ticks += stat.children_system_ticks;
        }
        let mut now = self.last.get(&pid).copied().unwrap_or_default();
        now.major_faults = stat.major_faults;
        if is_its_turn || stat.threads > 1 {
            if let Ok(status) = self.reader.read(&dir.join("status")) {
                level.note_memory(status);
                if stat.threads <= 1 {
                    (now.voluntary, now.involuntary) = parse_switches(status);
                }
            }
            if self.can_read_io
                && let Ok(io) = self.reader.read(&dir.join("io"))
            {
                let io = parse_pid_io(io);
                now.read_bytes = io.read_bytes;
                now.written_bytes = io.written_bytes;
            }
        }
        if stat.threads > 1 {
            self.sample_threads(pid, &dir, turn);
        }
        self.add(pid, now);
    }

    /// `/proc/PID/status` counts the switches of the main thread only, hence each thread's own.
    fn sample_threads(&mut self, pid: u32, dir: &Path, turn: Turn) {
        let Ok(entries) = fs::read_dir(dir.join("task")) else { return };
        for (index, entry) in entries.flatten().enumerate() {
            let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if !turn.has(index) {
                continue;
            }
            let Ok(status) = self.reader.read(&entry.path().join("status")) else { continue };
            let (voluntary, involuntary) = parse_switches(status);
            // Thread ids share the number space of processes; the main thread's is its process's.
            let key = if tid == pid { u32::MAX - pid } else { tid };
            self.add(key, Sums { voluntary, involuntary, ..Sums::default() });
        }
    }

    /// Adds what grew since the last pass; an id that is new, or was used again, counts in full.
    fn add(&mut self, id: u32, now: Sums) {
        let last = self.last.insert(id, now).unwrap_or_default();
        let grown = |now: u64, last: u64| if now >= last { now - last } else { now };
        self.sums.voluntary += grown(now.voluntary, last.voluntary);
        self.sums.involuntary += grown(now.involuntary, last.involuntary);
        self.sums.read_bytes += grown(now.read_bytes, last.read_bytes);
        self.sums.written_bytes += grown(now.written_bytes, last.written_bytes);
        self.sums.major_faults += grown(now.major_faults, last.major_faults);
    }

    /// All processes that are looked at.
    fn tree(&mut self) -> Vec<u32> {
        let roots = [&[self.root], &self.others[..]].concat();
        if self.with_children { descendants(&self.proc, roots, &mut self.reader) } else { roots }
    }
}

/// A process and its descendants.
pub(crate) fn tree(root: u32, reader: &mut Reader) -> Vec<u32> {
    descendants(Path::new("/proc"), vec![root], reader)
}

/// Through the kernel's own lists of children (CONFIG_PROC_CHILDREN; without it, the given ones alone). A forking server
/// forks from its main thread, so the other threads are not asked.
fn descendants(proc: &Path, mut tree: Vec<u32>, reader: &mut Reader) -> Vec<u32> {
    let mut at = 0;
    while at < tree.len() {
        let pid = tree[at];
        at += 1;
        if let Ok(text) = reader.read(&proc.join(format!("{pid}/task/{pid}/children"))) {
            tree.extend(text.split_ascii_whitespace().filter_map(|id| id.parse::<u32>().ok()));
        }
    }
    tree
}

/// Which part of the tasks is read in this pass.
#[derive(Debug, Clone, Copy)]
struct Turn {
    pass: usize,
    of: usize,
}

impl Turn {
    fn has(self, index: usize) -> bool {
        index % self.of == self.pass % self.of
    }
}

#[derive(Debug, Default)]
struct Level {
    user_ticks: u64,
    system_ticks: u64,
    threads: u64,
    private_bytes: u64,
    shared_bytes: u64,
}

impl Level {
    fn note_memory(&mut self, status: &str) {
        self.private_bytes += field(status, "RssAnon").unwrap_or(0);
        let shared = field(status, "RssShmem").unwrap_or(0) + field(status, "RssFile").unwrap_or(0);
        self.shared_bytes = self.shared_bytes.max(shared);
    }

    fn rss(&self) -> u64 {
        self.private_bytes + self.shared_bytes
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::track::Track;

    fn of<'a>(tracks: &'a [Track], name: &str) -> &'a Track {
        tracks.iter().find(|t| t.name == name).unwrap_or_else(|| panic!("no {name}"))
    }

    #[test]
    fn a_child_and_its_children_are_one_tree() {
        // A shell that works a little in a child of its own.
        let mut child = Command::new("sh")
            .args(["-c", "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; sleep 60' & wait"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let (mut sampler, _) = ProcessSampler::server(child.id());
        let mut tracks = Tracks::default();
        let began = Instant::now();
        let mut seen = (0, 0.0);
        while began.elapsed() < Duration::from_secs(20) && (seen.0 < 2 || seen.1 < 0.02) {
            std::thread::sleep(Duration::from_millis(20));
            sampler.sample(began.elapsed().as_secs_f64(), &mut tracks);
            seen =
                (sampler.tree().len(), (sampler.sums.user_ticks + sampler.sums.system_ticks) as f64 / 100.0);
        }
        let processes = sampler.tree();
        for pid in processes.into_iter().rev() {
            // SAFETY: no pointers involved; these are this test's own children.
            unsafe { libc::kill(pid as i32, libc::SIGKILL) };
        }
        child.wait().unwrap();
        sampler.sample(100.0, &mut tracks);
        let tracks = tracks.into_vec();
        assert!(seen.0 >= 2 && seen.1 >= 0.02, "{seen:?}");
        assert!(of(&tracks, "rss_bytes").points.iter().all(|p| p.1 > 0.0 && p.0 < 100.0));
        let cpu = of(&tracks, "cpu_user");
        assert!(cpu.points.windows(2).all(|w| w[0].1 <= w[1].1));
    }

    #[test]
    fn threads_of_this_process_and_their_switches_are_counted() {
        let mut sampler = ProcessSampler::client(&[]);
        let mut tracks = Tracks::default();
        sampler.sample(0.0, &mut tracks);
        let before = sampler.sums.voluntary;
        std::thread::spawn(|| (0..20).for_each(|_| std::thread::sleep(Duration::from_millis(1))))
            .join()
            .unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..20).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
                sampler.sample(1.0, &mut tracks);
            });
        });
        assert!(sampler.sums.voluntary >= before + 20);
        let tracks = tracks.into_vec();
        assert!(of(&tracks, "threads").points[0].1 >= 1.0);
    }

    #[test]
    fn a_process_that_does_not_exist_gives_nothing() {
        let (mut sampler, missing) = ProcessSampler::server(0x7fff_fff0);
        let mut tracks = Tracks::default();
        sampler.sample(0.0, &mut tracks);
        assert!(tracks.into_vec().is_empty());
        assert_eq!(missing.len(), 1);
    }

    #[test]
    fn many_tasks_take_turns_and_each_gets_one() {
        let of = 4;
        for index in 0..20 {
            let turns = (0..of).filter(|pass| Turn { pass: *pass, of }.has(index)).count();
            assert_eq!(turns, 1);
        }
    }
}
