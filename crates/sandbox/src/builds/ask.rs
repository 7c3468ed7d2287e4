//! Asking a program out of a build: as somebody without rights, for a short time, and listening to a little only.
//!
//! Nothing is known about it yet: it may be anything. It gets no rights of ours (root's program runs under a uid that
//! nothing else has), cannot gain any (no_new_privs), and is ended when it says too much or nothing.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Error;
use crate::record;

/// The uid under which root's programs are asked: next to those of sandboxes (64001 to 64989), so that what is asked
/// reaches none of their files.
const ASKED_UID: u32 = 64_990;
/// Longest wait for an answer: a cold disk reads a server of 200 MB in seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest answer of each stream.
const ANSWER_MAX: u64 = 4 << 20;

/// What a program said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `program` with nothing in its environment but `env`.
pub(crate) fn ask(program: &Path, args: &[OsString], env: &[(OsString, OsString)]) -> io::Result<Said> {
    ask_within(program, args, env, PATIENCE)
}

fn ask_within(
    program: &Path,
    args: &[OsString],
    env: &[(OsString, OsString)],
    patience: Duration,
) -> io::Result<Said> {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("LC_ALL", "C")
        .envs(env.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let is_root = record::is_root();
    let give_up_rights = move || {
        let check = |rc: libc::c_int| if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
        // SAFETY: none takes memory that is not static, and all are async-signal-safe.
        unsafe {
            // A group of its own, so that whatever it starts can be ended with it.
            libc::setsid();
            if is_root {
                check(libc::setgroups(0, std::ptr::null()))?;
                check(libc::setresgid(ASKED_UID, ASKED_UID, ASKED_UID))?;
                check(libc::setresuid(ASKED_UID, ASKED_UID, ASKED_UID))?;
            }
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            check(libc::setrlimit(libc::RLIMIT_CORE, &raw const none))
        }
    };
    // SAFETY: the closure makes only async-signal-safe calls.
    unsafe { command.pre_exec(give_up_rights) };
    let mut child = command.spawn()?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let listening = (std::thread::spawn(move || hear(out)), std::thread::spawn(move || hear(err)));
    let deadline = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() >= deadline || listening.0.is_finished() && listening.1.is_finished() {
            // Both streams are closed, or said too much: it has a moment left to end by itself.
            break wait_shortly(&mut child)?;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    // The child is not reaped as long as it lives, so its group is still its own.
    if status.is_none() {
        // SAFETY: kill takes no pointers; the group is that of a child that this function started and has not reaped.
        unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
        child.wait()?;
        let why = format!("it said too much, or did not end within {} s", patience.as_secs());
        return Err(io::Error::new(io::ErrorKind::TimedOut, why));
    }
    let text = |heard: std::thread::JoinHandle<Option<Vec<u8>>>| -> Option<String> {
        // What outlives it and keeps its streams open is not waited for.
        let deadline = Instant::now() + Duration::from_secs(1);
        while !heard.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        if !heard.is_finished() {
            return None;
        }
        Some(String::from_utf8_lossy(&heard.join().ok()??).into_owned())
    };
    match (status, text(listening.0), text(listening.1)) {
        (Some(status), Some(out), Some(err)) => Ok(Said { status, out, err }),
        _ => Err(io::Error::other("it said too much, or left something running")),
    }
}

fn wait_shortly(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    for _ in 0..100 {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(None)
}

/// What comes out of a stream; `None` when it is too much.
fn hear(stream: Option<impl Read>) -> Option<Vec<u8>> {
    let mut heard = Vec::new();
    stream?.take(ANSWER_MAX + 1).read_to_end(&mut heard).ok()?;
    (heard.len() as u64 <= ANSWER_MAX).then_some(heard)
}

/// Refuses, as root, a program that somebody else could exchange: one in a folder, or below one, that others may write
/// to. `is_ours` is a place that Plimsoll keeps itself, which must be root's, too; in one that a user has named its
/// owner is that user's affair.
pub(crate) fn check_place(program: &Path, is_ours: bool) -> Result<(), Error> {
    if !record::is_root() {
        return Ok(());
    }
    match first_writable(program, is_ours) {
        None => Ok(()),
        Some((place, why)) => Err(Error::Unsupported {
            what: format!("{} as root", program.display()),
            why: format!(
                "{} {why}, who could put another program there: chown root and chmod go-w it, or set PLIMSOLL_HOME to \
                 a place of root's",
                place.display()
            ),
        }),
    }
}

/// The first of a file and the folders above it that others may write to.
fn first_writable(program: &Path, is_ours: bool) -> Option<(PathBuf, String)> {
    let real = program.canonicalize().unwrap_or_else(|_| program.to_owned());
    real.ancestors().find_map(|place| {
        let meta = std::fs::metadata(place).ok()?;
        let mode = meta.permissions().mode();
        // In a sticky folder (/tmp) others may not replace what is not theirs.
        let is_safe_folder = meta.is_dir() && mode & 0o1000 != 0;
        let why = if mode & 0o002 != 0 && !is_safe_folder {
            "can be written to by every user".to_owned()
        } else if is_ours && mode & 0o020 != 0 && meta.gid() != 0 && !is_safe_folder {
            format!("can be written to by the group {}", meta.gid())
        } else if is_ours && meta.uid() != 0 {
            format!("belongs to the user {}", meta.uid())
        } else {
            return None;
        };
        Some((place.to_owned(), why))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script in a folder that others may enter.
    fn script(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("program");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, path)
    }

    #[test]
    fn it_has_no_rights_and_no_environment() {
        let (_dir, path) =
            script("/usr/bin/id -u; /usr/bin/id -G; echo \"$HOME$CARGO_PKG_NAME$A\" >&2; exit 3");
        let said = ask(&path, &[], &[("A".into(), "a".into())]).unwrap();
        assert_eq!((said.status.code(), said.err.as_str()), (Some(3), "a\n"));
        let expected = if record::is_root() { "64990\n64990\n".to_owned() } else { String::new() };
        assert!(!record::is_root() || said.out == expected, "{}", said.out);
    }

    #[test]
    fn one_that_never_ends_or_never_stops_talking_is_ended() {
        for text in ["exec sleep 1000", "while :; do echo yes; done", "sleep 1000 & echo $!; wait"] {
            let (_dir, path) = script(text);
            let begin = Instant::now();
            assert!(ask_within(&path, &[], &[], Duration::from_millis(500)).is_err(), "{text}");
            assert!(begin.elapsed() < Duration::from_secs(20), "{text}");
        }
    }

    #[test]
    fn a_place_that_others_may_write_to_is_named() {
        let (dir, path) = script("true");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let me_is_root = record::is_root();
        assert_eq!(first_writable(&path, me_is_root), None);
        mode(dir.path(), 0o777);
        let (place, why) = first_writable(&path, false).unwrap();
        assert_eq!((place, why.as_str()), (dir.path().to_owned(), "can be written to by every user"));
        mode(dir.path(), 0o1777);
        assert_eq!(first_writable(&path, false), None);
        mode(&path, 0o757);
        assert_eq!(first_writable(&path, false).unwrap().0, path);
        mode(&path, 0o755);
        if me_is_root {
            std::os::unix::fs::chown(dir.path(), Some(4242), None).unwrap();
            assert!(first_writable(&path, true).unwrap().1.contains("belongs to the user 4242"));
            assert_eq!(first_writable(&path, false), None);
            assert!(check_place(&path, true).unwrap_err().to_string().contains("chown root"));
        }
    }
}
