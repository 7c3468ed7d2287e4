//! Which process that is neither the server nor the client used most cpu while a load ran.
//!
//! The processes are looked at twice, before the load and after it, for a look at all of them takes milliseconds. What
//! began and ended between counts for its parent, which has waited for it.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::host::ticks_per_second;
use crate::procfs::{PidStat, parse_pid_stat};

/// Less cpu than this names nobody.
const CPU_S_MIN: f64 = 0.1;

/// A process that belongs neither to the server nor to the client.
#[derive(Debug, Clone, PartialEq)]
pub struct ForeignProcess {
    /// Its name, at most 15 bytes of it as the kernel keeps them, without control characters.
    pub name: String,
    pub pid: u32,
    /// What it and its ended children used between the two looks, in seconds.
    pub cpu_s: f64,
}

/// The first look.
#[derive(Debug)]
pub(crate) struct Foreign {
    proc: PathBuf,
    /// Processes whose descendants are not foreign.
    ours: Vec<u32>,
    before: HashMap<(u32, u64), u64>,
}

impl Foreign {
    /// Looks at all processes; this one, the servers' and all that descend from them are ours.
    pub(crate) fn look(servers: &[u32]) -> Foreign {
        Foreign::with_proc(PathBuf::from("/proc"), std::process::id(), servers)
    }

    fn with_proc(proc: PathBuf, own: u32, servers: &[u32]) -> Foreign {
        let before =
            processes(&proc).iter().map(|(pid, stat)| ((*pid, stat.start_ticks), ticks(stat))).collect();
        Foreign { proc, ours: [&[own], servers].concat(), before }
    }

    /// Looks again: the foreign process that used most cpu meanwhile, where one used any to speak of.
    pub(crate) fn busiest(self) -> Option<ForeignProcess> {
        let now = processes(&self.proc);
        let mut ours: HashSet<u32> = self.ours.iter().copied().collect();
        // Parents stand before their children only most of the time: process ids wrap around.
        loop {
            let count = ours.len();
            ours.extend(
                now.iter()
                    .filter(|(_, stat)| ours.contains(&stat.parent))
                    .map(|(pid, _)| *pid)
                    .collect::<Vec<_>>(),
            );
            if ours.len() == count {
                break;
            }
        }
        let used = |pid: u32, stat: &PidStat| {
            ticks(stat).saturating_sub(self.before.get(&(pid, stat.start_ticks)).copied().unwrap_or_default())
        };
        let (pid, used) = now
            .iter()
            .filter(|(pid, _)| !ours.contains(pid))
            .map(|(pid, stat)| (*pid, used(*pid, stat)))
            .max_by_key(|(_, used)| *used)?;
        let cpu_s = used as f64 / ticks_per_second();
        let name = fs::read(self.proc.join(pid.to_string()).join("comm")).ok()?;
        let name = String::from_utf8_lossy(&name).trim_end().replace(char::is_control, "?");
        (cpu_s >= CPU_S_MIN).then_some(ForeignProcess { name, pid, cpu_s })
    }
}

fn processes(proc: &Path) -> Vec<(u32, PidStat)> {
    let Ok(entries) = fs::read_dir(proc) else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let stat = |pid: u32| {
        let text = fs::read(proc.join(pid.to_string()).join("stat")).ok()?;
        Some((pid, parse_pid_stat(&String::from_utf8_lossy(&text))?))
    };
    pids.filter_map(stat).collect()
}

fn ticks(stat: &PidStat) -> u64 {
    stat.user_ticks + stat.system_ticks + stat.children_user_ticks + stat.children_system_ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/proc` of four processes: us (10), our server (20) with a child (21), and somebody else (30).
    fn write(proc: &Path, ticks: [(u32, u32, u64); 4]) {
        for (pid, parent, ticks) in ticks {
            let dir = proc.join(pid.to_string());
            fs::create_dir_all(&dir).unwrap();
            let zeros = "0 ".repeat(9);
            let stat = format!("{pid} (a) b) S {parent} {zeros}{ticks} 0 0 0 20 0 1 0 {pid} 0 0 0");
            fs::write(dir.join("stat"), stat).unwrap();
            fs::write(dir.join("comm"), format!("of \u{1b}{pid}\n")).unwrap();
        }
    }

    #[test]
    fn the_busiest_is_neither_client_nor_server_nor_a_child_of_theirs() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), [(10, 1, 5), (20, 1, 5), (21, 20, 5), (30, 1, 90_000)]);
        let foreign = Foreign::with_proc(dir.path().to_owned(), 10, &[20]);
        write(dir.path(), [(10, 1, 900), (20, 1, 900), (21, 20, 900), (30, 1, 90_050)]);
        let busiest = foreign.busiest().unwrap();
        assert_eq!((busiest.name.as_str(), busiest.pid), ("of ?30", 30));
        assert!((busiest.cpu_s - 50.0 / ticks_per_second()).abs() < 1e-9, "{busiest:?}");
    }

    #[test]
    fn who_did_nothing_is_not_named() {
        let dir = tempfile::tempdir().unwrap();
        let same = [(10, 1, 5), (20, 1, 5), (21, 20, 5), (30, 1, 90_000)];
        write(dir.path(), same);
        let foreign = Foreign::with_proc(dir.path().to_owned(), 10, &[20]);
        write(dir.path(), [(10, 1, 900), (20, 1, 900), (21, 20, 900), (30, 1, 90_001)]);
        assert_eq!(foreign.busiest(), None);
    }
}
