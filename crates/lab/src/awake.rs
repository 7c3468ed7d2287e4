//! Keeping this machine's cpus awake while it is measured, and its frequency governor and turbo as a study wants them.
//!
//! A cpu that sleeps answers late, and with few sessions most of a response time is then the machine's wake-up. Nothing
//! stays changed, however this process ends: the kernel takes a latency request back when its file is closed, and what
//! stands in /sys is put back by a process that waits for our end. Processes that spin at idle priority were tried as well: with
//! several sessions they take half of the throughput (docs/shared-runners.md).

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::study::{Idle, MachineWishes, Turbo};

/// What this process holds now. A process measures once at a time (the machine's lock).
static HELD: Mutex<Held> = Mutex::new(Held { state: String::new(), wakeup_us: None });

#[derive(Debug, Clone, Default)]
struct Held {
    state: String,
    wakeup_us: Option<f64>,
}

/// How the cpus of this machine idle and are clocked while this process measures, and how late they wake up, for the
/// record of a run.
pub(crate) fn facts() -> Vec<(String, String)> {
    let held = HELD.lock().map(|held| held.clone()).unwrap_or_default();
    let state = if held.state.is_empty() { "as-is".to_owned() } else { held.state };
    let mut facts = vec![("cpus_idle".to_owned(), state)];
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    facts.push(("cpus".to_owned(), cpus.to_string()));
    facts.extend(held.wakeup_us.map(|us| ("wakeup_us".to_owned(), format!("{us:.1}"))));
    facts
}

/// The machine as a study wants it; dropping it puts back what was there.
#[derive(Debug)]
pub(crate) struct Awake {
    /// Held open: the kernel keeps to the latency of 0 as long.
    _latency: Option<File>,
    _changed: Option<Changed>,
    /// What of the wishes could not be had, and why.
    pub(crate) doubts: Vec<String>,
}

impl Awake {
    /// Has the machine as it is wished. What cannot be had is a doubt, never an error.
    pub(crate) fn hold(wishes: &MachineWishes) -> Awake {
        let mut awake = Awake { _latency: None, _changed: None, doubts: Vec::new() };
        let mut held = Vec::new();
        if wishes.idle == Idle::Awake {
            match wake() {
                Ok(latency) => awake._latency = latency,
                Err(why) => awake.doubts.push(format!(
                    "cpus that sleep between requests cannot be kept awake: {DMA_LATENCY}: {why}; run it as root, or say \
                     idle = \"as-is\" under [machine]"
                )),
            }
            held.extend(awake._latency.as_ref().map(|_| "awake".to_owned()));
        }
        match Changed::make(Path::new("/sys/devices/system/cpu"), wishes) {
            Ok(changed) => {
                held.extend(changed.iter().map(|changed| changed.shown.clone()));
                awake._changed = changed;
            }
            Err(why) => awake.doubts.push(format!("governor and turbo stay as they are: {why}")),
        }
        let wakeup_us = telemetry::hand_over_us();
        if let Ok(mut known) = HELD.lock() {
            *known = Held { state: held.join(", "), wakeup_us };
        }
        awake
    }
}

const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// By the kernel's own request. `None` where it has no driver that heeds it, as in most virtual machines: there the host puts
/// cpus to sleep, which nobody in it can change.
fn wake() -> io::Result<Option<File>> {
    let driver = fs::read_to_string("/sys/devices/system/cpu/cpuidle/current_driver").unwrap_or_default();
    if matches!(driver.trim(), "" | "none") {
        return Ok(None);
    }
    let mut file = OpenOptions::new().write(true).open(DMA_LATENCY)?;
    file.write_all(&0i32.to_ne_bytes())?;
    Ok(Some(file))
}

impl Drop for Awake {
    fn drop(&mut self) {
        if let Ok(mut known) = HELD.lock() {
            *known = Held::default();
        }
    }
}

/// Settings of /sys that differ from what was there, and the process that puts them back.
#[derive(Debug)]
struct Changed {
    /// Its other end is the keeper's: it is closed with this process, whatever ends it.
    _pipe: OwnedFd,
    _keeper: Reaped,
    shown: String,
}

/// A child that is waited for when dropped; declared behind the pipe whose end it waits for.
#[derive(Debug)]
struct Reaped(libc::pid_t);

impl Drop for Reaped {
    fn drop(&mut self) {
        // SAFETY: a child of this process that nobody else waits for.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// A file of /sys, what stands there, and what is to.
struct Setting {
    path: PathBuf,
    before: String,
    during: &'static str,
}

impl Changed {
    fn make(cpus: &Path, wishes: &MachineWishes) -> Result<Option<Changed>, String> {
        let settings = settings(cpus, wishes);
        if settings.is_empty() {
            return Ok(None);
        }
        let keeper = keep(&settings).map_err(|error| error.to_string())?;
        for setting in &settings {
            fs::write(&setting.path, setting.during)
                .map_err(|error| format!("{} cannot be written ({error})", setting.path.display()))?;
        }
        let mut shown: Vec<&str> = Vec::new();
        for setting in &settings {
            let is_governor = setting.path.ends_with("scaling_governor");
            let word = if is_governor { "governor performance" } else { "turbo off" };
            if !shown.contains(&word) {
                shown.push(word);
            }
        }
        let (pipe, pid) = keeper;
        Ok(Some(Changed { _pipe: pipe, _keeper: Reaped(pid), shown: shown.join(", ") }))
    }
}

/// What differs from what is wished, of what this machine has.
fn settings(cpus: &Path, wishes: &MachineWishes) -> Vec<Setting> {
    let read = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let mut found = Vec::new();
    if wishes.idle == Idle::Awake
        && let Ok(policies) = fs::read_dir(cpus.join("cpufreq"))
    {
        for policy in policies.flatten() {
            let path = policy.path().join("scaling_governor");
            let can = read(&policy.path().join("scaling_available_governors"));
            let before = read(&path);
            if can.split(' ').any(|name| name == "performance") && before != "performance" {
                found.push(Setting { path, before, during: "performance" });
            }
        }
    }
    if wishes.turbo == Turbo::Off {
        for (name, off) in [("cpufreq/boost", "0"), ("intel_pstate/no_turbo", "1")] {
            let path = cpus.join(name);
            let before = read(&path);
            if !before.is_empty() && before != off {
                found.push(Setting { path, before, during: off });
            }
        }
    }
    found
}

/// Starts the process that writes what stood there once the pipe's other end, which is returned, is closed.
fn keep(settings: &[Setting]) -> io::Result<(OwnedFd, libc::pid_t)> {
    let texts: Vec<(CString, &[u8])> = settings
        .iter()
        .map(|setting| Ok((CString::new(setting.path.as_os_str().as_bytes())?, setting.before.as_bytes())))
        .collect::<io::Result<_>>()?;
    let mut ends = [0; 2];
    // SAFETY: `ends` has room for two descriptors, which become ours alone.
    let (reading, writing) = unsafe {
        if libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) != 0 {
            return Err(io::Error::last_os_error());
        }
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    };
    // SAFETY: the child makes only async-signal-safe calls on memory that was there before the fork, and never returns.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => unsafe {
            libc::setsid();
            libc::dup2(reading.as_raw_fd(), 0);
            libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0);
            let mut byte = 0u8;
            while libc::read(0, (&raw mut byte).cast(), 1) != 0 {}
            for (path, text) in &texts {
                let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_TRUNC);
                libc::write(file, text.as_ptr().cast(), text.len());
                libc::close(file);
            }
            libc::_exit(0);
        },
        pid => Ok((writing, pid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with two policies and a turbo.
    fn sysfs() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for policy in ["policy0", "policy1"] {
            let policy = dir.path().join("cpufreq").join(policy);
            fs::create_dir_all(&policy).unwrap();
            fs::write(policy.join("scaling_available_governors"), "performance powersave\n").unwrap();
            fs::write(policy.join("scaling_governor"), "powersave\n").unwrap();
        }
        fs::write(dir.path().join("cpufreq/boost"), "1\n").unwrap();
        dir
    }

    fn state(dir: &Path) -> String {
        ["policy0/scaling_governor", "policy1/scaling_governor", "boost"]
            .map(|name| fs::read_to_string(dir.join("cpufreq").join(name)).unwrap().trim().to_owned())
            .join(" ")
    }

    const WISHES: MachineWishes = MachineWishes { idle: Idle::Awake, turbo: Turbo::Off };

    #[test]
    fn what_was_changed_in_sys_is_put_back() {
        let dir = sysfs();
        let changed = Changed::make(dir.path(), &WISHES).unwrap().unwrap();
        assert_eq!(state(dir.path()), "performance performance 0");
        assert_eq!(changed.shown, "governor performance, turbo off");
        drop(changed);
        assert_eq!(state(dir.path()), "powersave powersave 1");
        let as_is = MachineWishes { idle: Idle::AsIs, turbo: Turbo::AsIs };
        assert!(Changed::make(dir.path(), &as_is).unwrap().is_none());
    }

    /// Runs `f` in a forked process that is killed (-9) as soon as it has ended, so that no destructor runs.
    fn killed(f: impl FnOnce()) {
        // SAFETY: the child runs `f` and then waits for its end; this test starts no other thread that it could need.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                f();
                libc::kill(libc::getpid(), libc::SIGKILL);
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }

    fn wait_until(what: &str, is_so: impl Fn() -> bool) {
        let began = std::time::Instant::now();
        while !is_so() {
            assert!(began.elapsed().as_secs() < 20, "{what}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn what_was_changed_in_sys_is_put_back_after_a_kill() {
        let dir = sysfs();
        let path = dir.path().to_owned();
        killed(|| {
            let changed = Changed::make(&path, &WISHES);
            fs::write(path.join("seen"), state(&path)).unwrap();
            std::mem::forget(changed);
        });
        assert_eq!(fs::read_to_string(dir.path().join("seen")).unwrap(), "performance performance 0");
        wait_until("it stays changed", || state(dir.path()) == "powersave powersave 1");
    }
}
