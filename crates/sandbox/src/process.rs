//! Starting a server process as someone else, watching it, and ending it with everything it started.

use std::ffi::{CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use crate::cpus::Cpus;

/// Who a server runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ids {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// How to start a server, or a program that prepares its data directory.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<OsString>,
    /// Its environment, beside a clean one.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// Its working directory; the data directory, by which its processes are found again.
    pub(crate) cwd: PathBuf,
    /// Who to run as; `None` stays who we are.
    pub(crate) ids: Option<Ids>,
    /// A file to show as /etc/passwd, to this process only.
    pub(crate) passwd: Option<PathBuf>,
    /// Standard input; `None` is /dev/null.
    pub(crate) stdin: Option<File>,
    /// Where standard output and standard error go.
    pub(crate) log: File,
    pub(crate) cpus: Option<Cpus>,
    /// The signal it gets when this process dies; `None` survives.
    pub(crate) dies_with_us: Option<i32>,
    /// `cgroup.procs` (v2) or `tasks` files to enter.
    pub(crate) cgroups: Vec<PathBuf>,
}

impl Launch {
    /// A program in a directory, as who we are, whose death is not ours.
    pub(crate) fn new(program: impl Into<PathBuf>, cwd: &Path, log: File) -> Launch {
        Launch {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: cwd.to_owned(),
            ids: None,
            passwd: None,
            stdin: None,
            log,
            cpus: None,
            dies_with_us: None,
            cgroups: Vec::new(),
        }
    }
}

/// Starts it, in a session of its own so that a Ctrl-C on the terminal does not reach it.
pub(crate) fn spawn(launch: Launch) -> io::Result<Child> {
    let mut command = Command::new(&launch.program);
    command
        .args(&launch.args)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("LC_ALL", "C")
        .envs(launch.env)
        .current_dir(&launch.cwd)
        .stdin(launch.stdin.map_or_else(Stdio::null, Stdio::from))
        .stdout(launch.log.try_clone()?)
        .stderr(launch.log);
    let passwd = launch.passwd.map(|path| CString::new(path.as_os_str().as_bytes())).transpose()?;
    let affinity = launch.cpus.map(|cpus| affinity_mask(&cpus));
    let cgroups = launch
        .cgroups
        .iter()
        .map(|path| File::options().write(true).open(path))
        .collect::<io::Result<Vec<File>>>()?;
    let maps = id_maps();
    let (ids, dies_with_us) = (launch.ids, launch.dies_with_us);
    let parent = std::process::id() as i32;
    let prepare = move || {
        // Only async-signal-safe calls from here: another thread may have held any lock when we forked.
        // SAFETY: every pointer below refers to memory owned by this closure.
        unsafe {
            libc::setsid();
            for group in &cgroups {
                check(libc::write(group.as_raw_fd(), c"0".as_ptr().cast(), 1))?;
            }
            if let Some(mask) = &affinity {
                check(libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), mask) as isize)?;
            }
            if let Some(file) = &passwd {
                if let Some(maps) = &maps {
                    // Only the root of a namespace of its own may mount; the ids stay what they are.
                    check(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) as isize)?;
                    for (path, text) in maps {
                        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                        check(file as isize)?;
                        check(libc::write(file, text.as_ptr().cast(), text.as_bytes().len()))?;
                        libc::close(file);
                    }
                } else {
                    check(libc::unshare(libc::CLONE_NEWNS) as isize)?;
                }
                let private = libc::MS_REC | libc::MS_PRIVATE;
                check(libc::mount(
                    c"none".as_ptr(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    private,
                    std::ptr::null(),
                ) as isize)?;
                let target = c"/etc/passwd".as_ptr();
                check(libc::mount(file.as_ptr(), target, std::ptr::null(), libc::MS_BIND, std::ptr::null())
                    as isize)?;
            }
            raise_open_files();
            libc::umask(0o077);
            if let Some(Ids { uid, gid }) = ids {
                check(libc::setgroups(0, std::ptr::null()) as isize)?;
                check(libc::setresgid(gid, gid, gid) as isize)?;
                check(libc::setresuid(uid, uid, uid) as isize)?;
            }
            if let Some(signal) = dies_with_us {
                // After the change of uid, which clears it.
                check(libc::prctl(libc::PR_SET_PDEATHSIG, signal as libc::c_ulong) as isize)?;
                if libc::getppid() != parent {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes only async-signal-safe calls.
    unsafe { command.pre_exec(prepare) };
    if dies_with_us.is_some() { spawn_on_lasting_thread(command) } else { command.spawn() }
}

/// What a process without privileges writes to keep its ids in a user namespace of its own; `None` for root, who needs
/// none to mount (user_namespaces(7)).
fn id_maps() -> Option<[(CString, CString); 3]> {
    // SAFETY: neither has preconditions, and neither can fail.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    let map = |id: u32| CString::new(format!("{id} {id} 1")).ok();
    Some([
        (c"/proc/self/setgroups".to_owned(), c"deny".to_owned()),
        (c"/proc/self/uid_map".to_owned(), map(uid)?),
        (c"/proc/self/gid_map".to_owned(), map(gid)?),
    ])
    .filter(|_| uid != 0)
}

fn check(rc: isize) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Servers with many sessions need more descriptors than the usual soft limit.
fn raise_open_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for reads and writes.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// The hard limit of open files, which [`spawn`] makes the soft one.
pub(crate) fn open_files_max() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 { limit.rlim_max } else { 1024 }
}

fn affinity_mask(cpus: &Cpus) -> libc::cpu_set_t {
    // SAFETY: an all-zero cpu_set_t is the empty set; CPU_SET ignores numbers beyond its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &cpu in &cpus.0 {
            if (cpu as usize) < libc::CPU_SETSIZE as usize {
                libc::CPU_SET(cpu as usize, &mut set);
            }
        }
        set
    }
}

/// The kernel sends the parent-death signal when the *thread* that forked ends, so such children are forked by a thread
/// that lasts as long as the process.
fn spawn_on_lasting_thread(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static FORKER: OnceLock<Option<mpsc::Sender<Job>>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts servers is gone");
    let forker = FORKER.get_or_init(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        let work = move || {
            for (mut command, answer) in inbox {
                // The asker waits for the answer, so it is still there.
                let _ = answer.send(command.spawn());
            }
        };
        std::thread::Builder::new().name("forker".to_owned()).spawn(work).ok().map(|_| jobs)
    });
    let (answer, inbox) = mpsc::channel();
    forker.as_ref().ok_or_else(gone)?.send((command, answer)).map_err(|_| gone())?;
    inbox.recv().map_err(|_| gone())?
}

/// Whether a process is there and not merely waiting to be reaped.
pub(crate) fn is_alive(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The name in brackets may hold anything; the state follows the last bracket.
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    !matches!(state, None | Some('Z' | 'X' | 'x'))
}

pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// When a process began, in clock ticks since the machine's start: with the pid it names one process for ever.
pub(crate) fn started_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Field 22 of proc_pid_stat(5), of which the bracket closes the second.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// How long a process is there.
pub(crate) fn age_of(pid: u32) -> Option<Duration> {
    let uptime: f64 =
        std::fs::read_to_string("/proc/uptime").ok()?.split_whitespace().next()?.parse().ok()?;
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    let age_s = uptime - started_ticks(pid)? as f64 / ticks_per_s;
    Some(Duration::from_secs_f64(age_s.max(0.0)))
}

/// Which processes are those of a sandbox: they work in its data directory, as its user, and run a program of its build,
/// or were started by one that does. Anybody's shell may stand in that directory and is none of them.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    pub(crate) dir: PathBuf,
    pub(crate) uid: u32,
    pub(crate) programs: Vec<PathBuf>,
}

impl Family {
    /// Its living processes, whoever their parent is now.
    pub(crate) fn living(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let here: Vec<u32> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
            .filter(|pid| std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == self.dir))
            .filter(|&pid| is_alive(pid) && uid_of(pid) == Some(self.uid))
            .collect();
        let (mut family, mut others): (Vec<u32>, Vec<u32>) =
            here.into_iter().partition(|&pid| self.programs.iter().any(|program| is_running(pid, program)));
        // A command that a server runs for itself (archiving, COPY FROM PROGRAM) is its child.
        loop {
            let is_child = |pid: &u32| parent_of(*pid).is_some_and(|parent| family.contains(&parent));
            let (children, rest): (Vec<u32>, Vec<u32>) = others.into_iter().partition(is_child);
            if children.is_empty() {
                return family;
            }
            family.extend(children);
            others = rest;
        }
    }

    /// The server among its processes: the one whose parent is not a member.
    pub(crate) fn head(&self) -> Option<u32> {
        let family = self.living();
        let is_head = |pid: u32| parent_of(pid).is_none_or(|parent| !family.contains(&parent));
        family.iter().copied().find(|&pid| is_head(pid))
    }

    /// Sends a signal to one of its processes. A number that belongs to another process by now gets nothing, and one
    /// that is gone is no error: the caller waits for the end.
    pub(crate) fn signal(&self, pid: u32, signal: Signal) {
        let Some(number) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
        // Held by its descriptor first, then looked at: what is looked at is what gets the signal.
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(process) if self.living().contains(&pid) => {
                // Ended by itself meanwhile.
                let _ = rustix::process::pidfd_send_signal(process, signal);
            }
            // Before Linux 5.3.
            Err(rustix::io::Errno::NOSYS) if self.living().contains(&pid) => {
                let _ = rustix::process::kill_process(number, signal);
            }
            _ => {}
        }
    }
}

/// The effective uid of a process, which its entry's owner in /proc is not for one that may not be traced.
fn uid_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Whether a process runs a program: the same file, or one that was there under its name and has been replaced since.
fn is_running(pid: u32, program: &Path) -> bool {
    let link = format!("/proc/{pid}/exe");
    let same = |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    if let (Ok(running), Ok(program)) = (std::fs::metadata(&link), std::fs::metadata(program))
        && same(running, program)
    {
        return true;
    }
    let Ok(running) = std::fs::read_link(&link) else { return false };
    let mut replaced = program.canonicalize().unwrap_or_else(|_| program.to_owned()).into_os_string();
    replaced.push(" (deleted)");
    running == Path::new(&replaced)
}

/// Longest pause between two looks at a process or a socket: short beside what a deploy takes, and a look costs
/// microseconds.
pub(crate) const PAUSE_MAX: Duration = Duration::from_millis(4);

/// Longest wait for the end of one process, which wakes the waiter, before all are looked at again.
const PATROL: Duration = Duration::from_millis(100);

/// Waits for the end of a process, at most so long. A kernel that cannot tell (pidfd_open(2), from Linux 5.3 on) makes
/// it a short pause.
fn pause_for_end(pid: u32, longest: Duration) {
    // SAFETY: only `poll` takes memory, an array of one that outlives the call; the descriptor is ours alone.
    unsafe {
        let end = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        let Some(end) = i32::try_from(end).ok().filter(|&end| end >= 0) else {
            return std::thread::sleep(longest.min(PAUSE_MAX));
        };
        let end = OwnedFd::from_raw_fd(end);
        let mut polled = libc::pollfd { fd: end.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        libc::poll(&raw mut polled, 1, longest.as_millis() as libc::c_int);
    }
}

/// Waits until none of its processes is left, reaping `child` on the way; `false` when time is up.
pub(crate) fn wait_gone(
    family: &Family,
    pid: Option<u32>,
    mut child: Option<&mut Child>,
    patience: Duration,
) -> bool {
    let deadline = Instant::now() + patience;
    let mut pause = Duration::from_millis(1);
    // With its start: a number that another process gets meanwhile is not waited for.
    let begun = pid.and_then(started_ticks);
    loop {
        let child_gone = child.as_mut().is_none_or(|c| matches!(c.try_wait(), Ok(Some(_)) | Err(_)));
        let living = pid.filter(|&pid| is_alive(pid) && started_ticks(pid) == begun);
        if child_gone && living.is_none() && family.living().is_empty() {
            return true;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        if let Some(pid) = living {
            pause_for_end(pid, left.min(PATROL));
        } else {
            // Its children follow it.
            std::thread::sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Kills all of a family, again and again until nothing of it lives, and removes the POSIX shared memory that PostgreSQL
/// leaves behind when killed.
pub(crate) fn kill_all_of(family: &Family, mut child: Option<&mut Child>) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut segments = Vec::new();
    loop {
        let pids = family.living();
        let child_gone = child.as_mut().is_none_or(|c| matches!(c.try_wait(), Ok(Some(_)) | Err(_)));
        if (pids.is_empty() && child_gone) || Instant::now() >= deadline {
            break;
        }
        for pid in pids {
            segments.extend(shared_memory_of(pid));
            family.signal(pid, Signal::KILL);
        }
        if let Some(child) = child.as_mut() {
            // Already ended is as good.
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for segment in segments {
        // Another process of the same server may have removed it.
        let _ = std::fs::remove_file(segment);
    }
}

/// PostgreSQL's own POSIX shared-memory files mapped by a process.
pub(crate) fn shared_memory_of(pid: u32) -> Vec<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.split_once("/dev/shm/PostgreSQL."))
        .filter(|(_, tail)| tail.bytes().all(|b| b.is_ascii_digit()))
        .map(|(_, tail)| PathBuf::from(format!("/dev/shm/PostgreSQL.{tail}")))
        .collect();
    files.dedup();
    files
}

/// The end of a log, of so many bytes at most; empty where it cannot be read.
pub(crate) fn end_of(log: &Path, bytes_max: u64) -> String {
    use std::io::{Read, Seek, SeekFrom};
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The last `lines` lines of a log, at most its last 64 KiB.
pub(crate) fn tail(path: &Path, lines: usize) -> Vec<String> {
    let text = end_of(path, 64 << 10);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(program: &str, args: &[&str], dir: &Path, log: &Path) -> Launch {
        Launch {
            args: args.iter().map(Into::into).collect(),
            dies_with_us: Some(libc::SIGKILL),
            ..Launch::new(program, dir, File::create(log).unwrap())
        }
    }

    /// Processes of ours that run these programs in a directory.
    fn family(dir: &Path, programs: &[&str]) -> Family {
        let programs = programs.iter().map(|name| Path::new("/bin").join(name)).collect();
        Family { dir: dir.to_owned(), uid: rustix::process::geteuid().as_raw(), programs }
    }

    #[test]
    fn a_process_is_found_by_its_directory_and_ended() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let spawned = std::thread::spawn({
            let launch = launch("sleep", &["100"], &home, &home.join("log"));
            move || spawn(launch).unwrap()
        });
        let mut child = spawned.join().unwrap();
        let family = family(&home, &["sleep"]);
        // The asking thread has ended: the child must not have died with it.
        std::thread::sleep(Duration::from_millis(30));
        assert_eq!(family.living(), [child.id()]);
        assert_eq!(family.head(), Some(child.id()));
        assert!(!wait_gone(&family, Some(child.id()), Some(&mut child), Duration::from_millis(5)));
        kill_all_of(&family, Some(&mut child));
        assert!(family.living().is_empty());
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn a_stranger_in_the_directory_is_no_member_and_gets_no_signal() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let mut stranger = Command::new("sleep").arg("100").current_dir(&home).spawn().unwrap();
        let server = family(&home, &["tail"]);
        let of_another = Family { uid: 4242, ..family(&home, &["sleep"]) };
        for family in [&server, &of_another] {
            assert!(family.living().is_empty() && family.head().is_none(), "{family:?}");
            // What a server's number has become.
            family.signal(stranger.id(), Signal::KILL);
            kill_all_of(family, None);
            assert!(wait_gone(family, None, None, Duration::ZERO));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(matches!(stranger.try_wait(), Ok(None)), "it was ended");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn what_a_member_starts_belongs_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let mut child = spawn(launch("sh", &["-c", "sleep 100; true"], &home, &home.join("log"))).unwrap();
        let family = family(&home, &["sh"]);
        let deadline = Instant::now() + Duration::from_secs(10);
        while family.living().len() < 2 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!((family.living().len(), family.head()), (2, Some(child.id())));
        kill_all_of(&family, Some(&mut child));
        assert!(family.living().is_empty());
    }

    #[test]
    fn one_that_ends_by_itself_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        // What it starts outlives it, and is waited for too.
        let script = "sleep 0.2 & exec sleep 0.1";
        let mut child = spawn(launch("sh", &["-c", script], &home, &home.join("log"))).unwrap();
        let family = family(&home, &["sh", "sleep"]);
        let pid = child.id();
        assert!(wait_gone(&family, Some(pid), Some(&mut child), Duration::from_secs(60)));
        assert!(!is_alive(pid) && family.living().is_empty());
        // One that is gone already is no reason to wait.
        assert!(wait_gone(&family, Some(pid), None, Duration::ZERO));
    }

    #[test]
    fn the_environment_is_clean_and_the_log_has_the_output() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().canonicalize().unwrap();
        let mut with_env =
            launch("sh", &["-c", "echo $CARGO_PKG_NAME-$NEW; echo no >&2"], &home, &home.join("log"));
        with_env.env.push(("NEW".into(), "1".into()));
        spawn(with_env).unwrap().wait().unwrap();
        assert_eq!(tail(&home.join("log"), 10), ["-1", "no"]);
        assert_eq!(tail(&home.join("log"), 1), ["no"]);
        assert!(tail(&home.join("none"), 1).is_empty());
    }
}
