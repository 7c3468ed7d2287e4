//! Locks between plimsolls whose holder can be named: one measures on a machine, one writes to a results directory.
//!
//! A lock is flock(2) on a file: it works across network and mount namespaces that share the file, any user who can
//! open the file can ask for it, and the kernel releases it when its holder dies and says who holds it (/proc/locks).

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

use crate::Error;

/// Who holds a lock, as the kernel tells it: nothing here is the holder's own claim but its name and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub uid: u32,
    /// The name of that user, where /etc/passwd has one.
    pub user: Option<String>,
    /// Program and subcommand, such as `plimsoll run`.
    pub command: String,
    /// How long the process is there already.
    pub age: Option<Duration>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, `{}`, user ", self.pid, self.command)?;
        match &self.user {
            Some(user) => f.write_str(user)?,
            None => write!(f, "{}", self.uid)?,
        }
        match self.age.map(|age| age.as_secs()) {
            None => Ok(()),
            Some(seconds) if seconds < 120 => write!(f, ", for {seconds} s"),
            Some(seconds) if seconds < 7200 => write!(f, ", for {} min", seconds / 60),
            Some(seconds) => write!(f, ", for {} h", seconds / 3600),
        }
    }
}

/// Held until dropped, or until the process dies.
#[derive(Debug)]
pub struct FileLock {
    _file: File,
}

/// What came of asking for a lock.
#[derive(Debug)]
pub enum Tried {
    /// It is ours.
    Taken(FileLock),
    /// Another process has it; `None` where that one cannot be seen from here (another pid namespace).
    Held(Option<Holder>),
}

/// Where the machine's lock may be, the first that can be used: a directory that belongs to the machine and not to a
/// user. Where only root may write to /run/lock, root's first measuring makes the file for everybody.
const MACHINE_PLACES: [&str; 3] = ["/run/lock", "/var/lock", "/tmp"];
const MACHINE_NAME: &str = "plimsoll-measuring.lock";

/// Asks for the machine, to measure on it.
///
/// # Errors
/// No place can have the lock, with what is in the way in each: another user may have put it there.
pub fn try_lock_machine() -> Result<Tried, Error> {
    let places: Vec<PathBuf> =
        MACHINE_PLACES.iter().map(Path::new).filter(|dir| dir.is_dir()).map(Path::to_owned).collect();
    try_lock_in(&places, MACHINE_NAME)
}

fn try_lock_in(dirs: &[PathBuf], name: &str) -> Result<Tried, Error> {
    let mut first = None;
    for dir in dirs {
        match try_lock(&dir.join(name), Readers::All) {
            Ok(tried) => return Ok(tried),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| Error::io("find", "/run/lock", io::ErrorKind::NotFound.into())))
}

/// Who may open a lock's file, and with it ask for the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readers {
    /// Every user, whatever the umask is.
    All,
    /// Its owner and root: whoever can open it can keep it.
    Owner,
}

/// Asks for the lock on a file, which is made where it is missing and stays.
///
/// # Errors
/// The file cannot be opened or is not a plain file with one name: a link could lead to a file of somebody else.
pub fn try_lock(path: &Path, readers: Readers) -> Result<Tried, Error> {
    let fail = |e: io::Error| Error::io("take the lock", path, e);
    loop {
        let Some(file) = open(path, readers).map_err(fail)? else { continue };
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() || meta.nlink() > 1 {
            let odd = "it is not a plain file of one name: its owner or root must remove it";
            return Err(fail(io::Error::other(odd)));
        }
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(Tried::Held(holder_of(&meta))),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(fail(error.into())),
        }
        // Its owner may have removed it meanwhile, and another process may have made it anew and locked that one.
        match std::fs::symlink_metadata(path) {
            Ok(now) if (now.dev(), now.ino()) == (meta.dev(), meta.ino()) => {
                return Ok(Tried::Taken(FileLock { _file: file }));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
            _ => {}
        }
    }
}

/// `None` when it came or went between two looks.
fn open(path: &Path, readers: Readers) -> io::Result<Option<File>> {
    // Not followed and not waited for: in a directory that everybody may write to it can be a link or a pipe.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let mode = if readers == Readers::All { 0o644 } else { 0o600 };
    let options = |is_writable| {
        let mut options = File::options();
        options.read(true).write(is_writable).custom_flags(flags).mode(mode);
        options
    };
    // Without O_CREAT first: the kernel refuses that in sticky directories for another user's file, to root too
    // (fs.protected_regular). Network file systems want it writable; to lock another user's, reading is enough.
    let opened = options(true).open(path).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => options(false).open(path),
        _ => Err(error),
    });
    match opened {
        Ok(file) => return Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    match options(true).create_new(true).open(path) {
        Ok(file) => {
            if readers == Readers::All {
                file.set_permissions(std::fs::Permissions::from_mode(mode))?;
            }
            Ok(Some(file))
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

/// The process that holds the flock on a file, by the kernel's list.
fn holder_of(meta: &Metadata) -> Option<Holder> {
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let (major, minor) = (rustix::fs::major(meta.dev()), rustix::fs::minor(meta.dev()));
    let pid = pid_in(&locks, &format!("{major:02x}:{minor:02x}:{}", meta.ino()), meta.ino())?;
    let uid = std::fs::metadata(format!("/proc/{pid}")).ok()?.uid();
    Some(Holder { pid, uid, user: user_of(uid), command: command_of(pid), age: crate::process::age_of(pid) })
}

/// Reads `1: FLOCK  ADVISORY  WRITE 4711 00:19:1234 0 EOF` (proc_locks(5)). Some file systems show another device there
/// than to stat(2): then the inode decides, if it is the only one.
fn pid_in(locks: &str, file: &str, inode: u64) -> Option<u32> {
    let held: Vec<(u32, &str)> = locks
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(1) == Some(&"FLOCK"))
        .filter_map(|fields| Some((fields.get(4)?.parse().ok()?, *fields.get(5)?)))
        .filter(|&(pid, _)| pid > 0)
        .collect();
    if let Some((pid, _)) = held.iter().find(|(_, name)| *name == file) {
        return Some(*pid);
    }
    let suffix = format!(":{inode}");
    let mut same = held.iter().filter(|(_, name)| name.ends_with(&suffix));
    same.next().filter(|_| same.next().is_none()).map(|(pid, _)| *pid)
}

fn user_of(uid: u32) -> Option<String> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut lines = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    lines.find(|fields| fields.get(2) == Some(&uid.to_string().as_str())).map(|fields| fields[0].to_owned())
}

/// Program and subcommand: what follows may hold a password, and any of it control characters.
fn command_of(pid: u32) -> String {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    let mut words = line.split('\0').filter(|word| !word.is_empty());
    let program = words.next().and_then(|path| path.rsplit('/').next()).unwrap_or("?");
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let program: String = program.chars().filter(|&c| plain(c)).take(32).collect();
    let is_subcommand = |word: &&str| {
        word.len() <= 24
            && word.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
            && !word.starts_with('-')
    };
    match words.next().filter(is_subcommand) {
        Some(subcommand) => format!("{program} {subcommand}"),
        None => program,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// Another process that holds a lock; it lives for a minute if nobody ends it.
    struct Other(Child);

    impl Other {
        /// `prefix` runs it elsewhere or as somebody else.
        fn hold(prefix: &[&str], path: &Path) -> Other {
            let mut words = prefix.to_vec();
            let path_text = path.display().to_string();
            words.extend(["flock", "--no-fork", &path_text, "sleep", "60"]);
            let child = Command::new(words[0]).args(&words[1..]).stdin(Stdio::null()).spawn().unwrap();
            let other = Other(child);
            for _ in 0..1000 {
                if matches!(try_lock(path, Readers::Owner), Ok(Tried::Held(_))) {
                    return other;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("{words:?} did not take the lock");
        }
    }

    impl Drop for Other {
        fn drop(&mut self) {
            // It has most often ended by itself.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn held(path: &Path) -> Option<Holder> {
        match try_lock(path, Readers::Owner).unwrap() {
            Tried::Held(holder) => holder,
            Tried::Taken(_) => panic!("nobody holds it"),
        }
    }

    #[test]
    fn one_process_has_it_is_named_and_loses_it_with_its_life() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let other = Other::hold(&[], &path);
        let holder = held(&path).unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert_eq!((holder.pid, holder.uid, holder.command.as_str()), (other.0.id(), me, "sleep"));
        assert!(holder.to_string().starts_with(&format!("pid {}, `sleep`, user ", holder.pid)), "{holder}");
        drop(other);
        assert!(matches!(try_lock(&path, Readers::Owner), Ok(Tried::Taken(_))));
    }

    #[test]
    fn a_network_namespace_of_its_own_is_no_way_around() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let other = Other::hold(&["unshare", "--net", "--map-root-user"], &path);
        assert_eq!(held(&path).unwrap().pid, other.0.id());
    }

    #[test]
    fn every_user_may_ask_for_it_and_is_named() {
        if !crate::record::is_root() {
            testkit::not_tested("the lock of another user", "it needs root");
            return;
        }
        let dir = tempfile::tempdir_in("/tmp").unwrap();
        // As /run/lock is on Debian.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o1777)).unwrap();
        let path = dir.path().join("lock");
        let as_nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
        // The file is that user's own.
        let made = Command::new(as_nobody[0]).args(&as_nobody[1..]).arg("touch").arg(&path).status().unwrap();
        assert!(made.success());
        let other = Other::hold(&as_nobody, &path);
        let holder = held(&path).unwrap();
        assert_eq!((holder.pid, holder.uid), (other.0.id(), 65534));
        drop(other);
        // One that root made, under a strict umask or not, is there for others.
        std::fs::remove_file(&path).unwrap();
        drop(try_lock(&path, Readers::All).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
    }

    #[test]
    fn nothing_is_followed_and_the_next_place_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        let precious = dir.path().join("precious");
        std::fs::write(&precious, "x").unwrap();
        let plant: [fn(&Path, &Path); 4] = [
            |precious, place| symlink(precious, place).unwrap(),
            |precious, place| symlink(precious.with_extension("new"), place).unwrap(),
            |precious, place| std::fs::hard_link(precious, place).unwrap(),
            |_, place| std::fs::create_dir(place).unwrap(),
        ];
        for plant in plant {
            std::fs::create_dir(&one).unwrap();
            std::fs::create_dir(&two).unwrap();
            plant(&precious, &one.join("x"));
            assert!(try_lock(&one.join("x"), Readers::All).is_err());
            let tried = try_lock_in(&[one.clone(), two.clone()], "x").unwrap();
            assert!(matches!(tried, Tried::Taken(_)) && two.join("x").is_file());
            assert!(!precious.with_extension("new").exists(), "a link was followed");
            std::fs::remove_dir_all(&one).unwrap();
            std::fs::remove_dir_all(&two).unwrap();
        }
    }

    #[test]
    fn the_kernels_list_is_read() {
        let list = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n2: FLOCK  ADVISORY  WRITE 12 00:19:77 0 EOF\n\
                    2: -> FLOCK  ADVISORY  WRITE 13 00:19:77 0 EOF\n3: FLOCK  ADVISORY  WRITE 14 fe:00:78 0 EOF\n";
        assert_eq!(pid_in(list, "00:19:77", 77), Some(12));
        assert_eq!(pid_in(list, "00:2a:78", 78), Some(14), "another device, the only one of this inode");
        assert_eq!(pid_in(list, "fe:00:79", 79), None);
        let twice = "1: FLOCK  ADVISORY  WRITE 1 00:19:5 0 EOF\n2: FLOCK  ADVISORY  WRITE 2 00:20:5 0 EOF\n";
        assert_eq!(pid_in(twice, "00:21:5", 5), None);
    }
}
