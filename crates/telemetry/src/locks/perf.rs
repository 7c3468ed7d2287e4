//! Counts, waiting times and callers of futex waits through `perf record`, where it is installed and permitted: each
//! entry into the system call is paired with the exit of the same thread.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::symbols::Symbols;
use super::{LockTable, LockWait, Missing, Source};

/// What is missing where perf could not look.
const WHAT: &str = "lock counts and callers";

/// How long perf may take to attach to all threads of a server.
const ATTACH_WAIT: Duration = Duration::from_secs(20);

/// Where perf is told to begin and says that it has (`perf record --control`): until then it lists threads and attaches to
/// one after the other, which takes as long as the machine is busy, and a thread that begins meanwhile may be missed.
struct Control {
    paths: [PathBuf; 2],
    /// Answers "ack".
    answers: fs::File,
    /// Holds the request that was written into it.
    _requests: fs::File,
}

impl Control {
    fn new(scratch: &Path, name: &str) -> std::io::Result<Control> {
        let paths = ["ctl", "ack"].map(|end| scratch.join(format!("{name}.{end}")));
        let open = |path: &Path| {
            let _ = fs::remove_file(path);
            let c_path = CString::new(path.as_os_str().as_bytes())?;
            // SAFETY: a string that ends with a zero.
            if unsafe { libc::mkfifo(c_path.as_ptr(), 0o600) } != 0 {
                return Err(std::io::Error::last_os_error());
            }
            // For both directions, so that neither side waits for the other to open it.
            fs::OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(path)
        };
        let (mut requests, answers) = (open(&paths[0])?, open(&paths[1])?);
        requests.write_all(b"enable\n")?;
        Ok(Control { paths, answers, _requests: requests })
    }

    /// perf's argument.
    fn argument(&self) -> std::ffi::OsString {
        let [requests, answers] = &self.paths;
        [b"fifo:", requests.as_os_str().as_bytes(), b",", answers.as_os_str().as_bytes()]
            .map(std::ffi::OsStr::from_bytes)
            .into_iter()
            .collect()
    }

    /// Waits until perf has begun; why it has not, where it did not.
    fn wait(mut self, perf: &mut Child) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.answers.read(&mut [0; 16]) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("{}: {error}", self.paths[1].display())),
            }
            if let Ok(Some(status)) = perf.try_wait() {
                return Err(format!("perf record ended at once with {status}"));
            }
            if began.elapsed() > ATTACH_WAIT {
                return Err(format!(
                    "perf has not attached to all threads within {} s",
                    ATTACH_WAIT.as_secs()
                ));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.paths.iter().for_each(|path| drop(fs::remove_file(path)));
    }
}

#[derive(Debug)]
pub struct Recording {
    pid: u32,
    child: Child,
    file: PathBuf,
    /// What `perf record` says while it runs.
    log: PathBuf,
    began: Instant,
    with_callers: bool,
}

impl Recording {
    /// Begins, and returns when every thread is looked at. `with_callers` unwinds the stack of each wait, which costs much
    /// more: for short looks.
    ///
    /// # Errors
    /// perf is not there or not permitted; the table says so instead.
    pub fn start(pid: u32, scratch: &Path, with_callers: bool) -> Result<Recording, LockTable> {
        let name = format!("perf-{pid}-{}", std::process::id());
        let file = scratch.join(format!("{name}.data"));
        let log = scratch.join(format!("{name}.log"));
        let control = Control::new(scratch, &name)
            .map_err(|error| refused(format!("{}: {error}", scratch.display())))?;
        let mut command = Command::new("perf");
        command.args(["record", "-q", "-m", "1024", "-o"]).arg(&file);
        command.args(["-D", "-1", "--control"]).arg(control.argument());
        if with_callers {
            command.args(["--call-graph", "dwarf,4096"]);
        }
        // FUTEX_WAIT and FUTEX_WAIT_BITSET, private or shared, with any clock.
        let filter = "op == 0 || op == 128 || op == 9 || op == 137 || op == 265 || op == 393";
        command.args(["-e", "syscalls:sys_enter_futex", "--filter", filter, "-e", "syscalls:sys_exit_futex"]);
        command.arg("-p").arg(pid.to_string());
        let errors =
            fs::File::create(&log).map_err(|error| refused(format!("{}: {error}", log.display())))?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn();
        let mut child = child.map_err(|error| refused(format!("perf: {error} (install linux-perf)")))?;
        let Err(why) = control.wait(&mut child) else {
            return Ok(Recording { pid, child, file, log, began: Instant::now(), with_callers });
        };
        let _ = child.kill();
        let _ = child.wait();
        let text = fs::read_to_string(&log).unwrap_or_default();
        [&log, &file].into_iter().for_each(|path| drop(fs::remove_file(path)));
        let said = text.lines().find(|line| !line.trim().is_empty());
        Err(refused(said.map_or(why, str::to_owned)))
    }

    /// Ends the recording and reads it. Locks are named while the process still lives.
    pub fn stop(mut self) -> LockTable {
        let symbols = Symbols::of_process(self.pid);
        let observed_s = self.began.elapsed().as_secs_f64();
        // SAFETY: no pointers involved; the child is this recording's own and has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGINT) };
        let waited = self.child.wait();
        let fields = if self.with_callers { "tid,time,event,trace,ip,sym" } else { "tid,time,event,trace" };
        let output = Command::new("perf")
            .args(["script", "--force", "--show-lost-events", "-F", fields, "-i"])
            .arg(&self.file)
            .stdin(Stdio::null())
            .output();
        // A leftover recording would be megabytes; it is gone whether or not it could be read.
        let _ = fs::remove_file(&self.file);
        let said = fs::read_to_string(&self.log).unwrap_or_default();
        let _ = fs::remove_file(&self.log);
        match (waited, output) {
            (Ok(recorded), Ok(script)) => {
                let mut pairs = Pairs::default();
                String::from_utf8_lossy(&script.stdout).lines().for_each(|line| pairs.line(line));
                let errors = String::from_utf8_lossy(&script.stderr);
                let why = format!(
                    "perf record ended with {recorded} and said \"{}\", perf script with {} and \"{}\"",
                    last_line(&said),
                    script.status,
                    last_line(&errors)
                );
                pairs.table(&symbols, observed_s, &why)
            }
            (Err(error), _) | (_, Err(error)) => refused(format!("perf: {error}")),
        }
    }
}

fn refused(why: String) -> LockTable {
    LockTable::nothing(Source::Perf, WHAT, why)
}

fn last_line(text: &str) -> &str {
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim()
}

/// Waits that are going on, by thread, and those that have ended, by lock.
#[derive(Debug, Default)]
struct Pairs {
    open: HashMap<u32, Open>,
    closed: HashMap<(u64, bool), Closed>,
    /// The thread whose entry is being read: stack lines that follow belong to it.
    current: Option<u32>,
    /// Entries and exits that were read. Of a server that works there are always some.
    events: u64,
    /// What perf could not keep up with.
    lost: u64,
}

#[derive(Debug)]
struct Open {
    address: u64,
    is_mutex: bool,
    at_s: f64,
    caller: Option<String>,
}

#[derive(Debug, Default)]
struct Closed {
    count: u64,
    wait_s: f64,
    callers: HashMap<String, u64>,
}

/// Parts of the names of functions that wait on behalf of others: glibc's, and those of MySQL and InnoDB.
const WRAPPERS: &str = "pthread_ lll_ futex syscall [unknown] mysql_mutex_lock mysql_rwlock safe_mutex_lock \
                        psi_mutex_lock psi_rwlock rw_pr_ my_rw_ srw_mutex srw_lock ssux_lock os_event os_cond_wait \
                        sync_array_wait_event mutex_spin_wait TTASEventMutex PolicyMutex";

impl Pairs {
    /// A line of `perf script`: an event, or a frame of its stack.
    fn line(&mut self, line: &str) {
        let Some((head, rest)) = line.split_once("syscalls:sys_") else {
            if let Some((_, lost)) = line.split_once("PERF_RECORD_LOST lost ") {
                self.lost += lost.trim().parse::<u64>().unwrap_or(1);
                return;
            }
            self.frame(line.trim());
            return;
        };
        self.current = None;
        self.events += 1;
        let mut head = head.split_ascii_whitespace();
        let thread = head.next().and_then(|t| t.parse::<u32>().ok());
        let at_s = head.next().and_then(|t| t.trim_end_matches(':').parse::<f64>().ok());
        let (Some(thread), Some(at_s)) = (thread, at_s) else { return };
        if let Some(arguments) = rest.strip_prefix("enter_futex:") {
            let value = |name: &str| {
                let after = &arguments[arguments.find(name)? + name.len()..];
                let text = after.trim_start_matches(": ").split([',', ' ']).next()?;
                u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
            };
            let (Some(address), Some(operation)) = (value("uaddr"), value("op")) else { return };
            let is_mutex = operation & 0x7f == 0 && value("val") == Some(2);
            self.open.insert(thread, Open { address, is_mutex, at_s, caller: None });
            self.current = Some(thread);
        } else if let Some(result) = rest.strip_prefix("exit_futex:")
            && let Some(open) = self.open.remove(&thread)
        {
            // EAGAIN: the lock was free again before the kernel looked; nobody waited.
            if result.trim() == "0xfffffffffffffff5" {
                return;
            }
            let closed = self.closed.entry((open.address, open.is_mutex)).or_default();
            closed.count += 1;
            closed.wait_s += (at_s - open.at_s).max(0.0);
            if let Some(caller) = open.caller {
                *closed.callers.entry(caller).or_default() += 1;
            }
        }
    }

    /// The first frame that is neither the threads' library nor a server's wrapper of it is the caller.
    fn frame(&mut self, text: &str) {
        let Some(open) = self.current.and_then(|thread| self.open.get_mut(&thread)) else { return };
        let Some((_, symbol)) = text.split_once(' ') else { return };
        let symbol = symbol.split("+0x").next().unwrap_or(symbol).trim().trim_end_matches(" (inlined)");
        if open.caller.is_none()
            && !symbol.is_empty()
            && !WRAPPERS.split(' ').any(|part| symbol.contains(part))
        {
            open.caller = Some(symbol.to_owned());
        }
    }

    /// `why_nothing`: how perf itself ended. A recording without a single event is no proof that nothing waited, and one
    /// that lost events counts too few.
    fn table(self, symbols: &Symbols, observed_s: f64, why_nothing: &str) -> LockTable {
        if self.events == 0 {
            return refused(format!("perf saw no futex call: {why_nothing}"));
        }
        let (events, lost) = (self.events, self.lost);
        let waits = self
            .closed
            .into_iter()
            .map(|((address, is_mutex), closed)| {
                let name = symbols.name(address).unwrap_or_else(|| format!("allocated at {address:#x}"));
                let kind = if is_mutex { "" } else { " (condition or rw-lock)" };
                let caller =
                    closed.callers.into_iter().max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
                LockWait {
                    lock: format!("{name}{kind}"),
                    is_lock: is_mutex,
                    caller: caller.map(|c| c.0).unwrap_or_default(),
                    count: Some(closed.count),
                    wait_s: closed.wait_s,
                    interval_s: None,
                }
            })
            .collect();
        let mut table = LockTable { source: Source::Perf, observed_s, waits, missing: Vec::new() }.sorted();
        if lost > 0 {
            let why = format!("perf lost {lost} events and kept {events}: counts and times are too low");
            table.missing.push(Missing::new(WHAT, why));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCRIPT: &str = "\
 4711  100.000000: syscalls:sys_enter_futex: uaddr: 0x55d0c8d0, op: 0x00000080, val: 0x00000002, utime: 0x00000000, uaddr2: 0x00000000, val3: 0x00000000
            7f01aa __GI___lll_lock_wait (inlined)
            7f01bb pthread_mutex_lock+0x10
            55d010 open_table+0x1a0

 4712  100.001000: syscalls:sys_enter_futex: uaddr: 0x55d0c8d0, op: 0x00000080, val: 0x00000002, utime: 0x00000000, uaddr2: 0x00000000, val3: 0x00000000
 4711  100.010000: syscalls:sys_exit_futex: 0x0
 4712  100.003000: syscalls:sys_exit_futex: 0xfffffffffffffff5
 4713  100.004000: syscalls:sys_exit_futex: 0x0
";

    #[test]
    fn entries_are_paired_with_exits_of_their_thread() {
        let mut pairs = Pairs::default();
        SCRIPT.lines().for_each(|line| pairs.line(line));
        let table = pairs.table(&Symbols::default(), 1.0, "");
        assert_eq!(table.waits.len(), 1);
        let wait = &table.waits[0];
        assert_eq!((wait.count, wait.caller.as_str()), (Some(1), "open_table"));
        assert!((wait.wait_s - 0.010).abs() < 1e-9);
        assert_eq!(wait.lock, "allocated at 0x55d0c8d0");
    }

    #[test]
    fn a_recording_without_an_event_is_no_proof_that_nothing_waited() {
        let table = Pairs::default().table(&Symbols::default(), 1.0, "perf record ended with exit status: 1");
        assert!(table.waits.is_empty());
        assert_eq!(table.missing[0].why, "perf saw no futex call: perf record ended with exit status: 1");
    }

    #[test]
    fn events_that_perf_lost_are_told() {
        let mut pairs = Pairs::default();
        SCRIPT.lines().for_each(|line| pairs.line(line));
        pairs.line(" 4711  100.020000: PERF_RECORD_LOST lost 12");
        let table = pairs.table(&Symbols::default(), 1.0, "");
        assert_eq!(table.missing[0].why, "perf lost 12 events and kept 5: counts and times are too low");
    }
}
