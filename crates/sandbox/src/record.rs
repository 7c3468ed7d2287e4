//! What is written down about a sandbox, so that any later process can look after it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::build::Build;
use crate::cpus::Cpus;
use crate::limits::Limits;
use crate::process::{self, Ids};
use crate::profile::{Durability, Logging, Profile};
use crate::settings::{Isolation, Settings};
use crate::{Error, Home};

/// The record's format; a record of another one is left alone.
const SCHEMA: u32 = 1;

/// `sandbox.json` in a sandbox's directory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) schema: u32,
    pub(crate) name: String,
    pub(crate) build: Build,
    /// Settings it is started with, paths and ports apart.
    pub(crate) settings: Settings,
    pub(crate) profile: Option<Profile>,
    pub(crate) logging: Option<Logging>,
    pub(crate) isolation: Isolation,
    pub(crate) durability: Durability,
    /// Who the server runs as; `None` is whoever starts it.
    pub(crate) ids: Option<Ids>,
    /// Whether the process that deployed it looks after it.
    pub(crate) of_run: bool,
    /// Whether the data directory is complete.
    pub(crate) ready: bool,
    pub(crate) port: Option<u16>,
    /// Password of the administrator over TCP.
    pub(crate) password: String,
    pub(crate) datadir: PathBuf,
    /// Directory of the socket.
    pub(crate) run_dir: PathBuf,
    pub(crate) cpus: Option<Cpus>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) tls: bool,
    pub(crate) storage: Option<String>,
    pub(crate) limits: Limits,
    /// Directories outside the sandbox's own that go with it.
    pub(crate) outside: Vec<PathBuf>,
    /// Control groups that go with it.
    pub(crate) cgroups: Vec<PathBuf>,
}

impl Record {
    /// A record of the present schema with the fields that always matter.
    pub(crate) fn schema() -> u32 {
        SCHEMA
    }

    /// Reads the record of a sandbox's directory.
    pub(crate) fn read(dir: &Path) -> Result<Record, Error> {
        let path = dir.join("sandbox.json");
        let text = std::fs::read(&path).map_err(|e| Error::io("read the record of a sandbox", &path, e))?;
        let corrupt = |why: String| Error::io("read", &path, std::io::Error::other(why));
        let record: Record = serde_json::from_slice(&text).map_err(|e| corrupt(e.to_string()))?;
        if record.schema != SCHEMA {
            return Err(corrupt(format!(
                "written by another version of plimsoll (schema {})",
                record.schema
            )));
        }
        Ok(record)
    }

    /// Writes it, whole or not at all.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec_pretty(self).map_err(|e| Error::io("write", dir, e.into()))?;
        write_atomically(&dir.join("sandbox.json"), &text)
    }
}

/// Writes a file beside its place and renames it, so that a reader sees the old one or the new one.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = PathBuf::from(beside);
    let write = || -> std::io::Result<()> {
        let mut file = File::create(&beside)?;
        file.write_all(bytes)?;
        std::fs::rename(&beside, path)
    };
    write().map_err(|e| {
        // What was written beside is of no use to anyone.
        let _ = std::fs::remove_file(&beside);
        Error::io("write", path, e)
    })
}

/// A lock on a directory's `lock` file; the kernel releases it when the holder dies.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `dir` within `patience`; `None` when another holds it.
    pub(crate) fn take(dir: &Path, patience: Duration) -> Result<Option<Lock>, Error> {
        let path = dir.join("lock");
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(|e| Error::io("open", &path, e))?;
        let deadline = Instant::now() + patience;
        loop {
            // SAFETY: the descriptor is open for as long as `file` lives.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                return Ok(Some(Lock { _file: file }));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Uids of the sandboxes of root: a range that Debian leaves free (it is neither "system" nor "user" nor 65534).
const UIDS: std::ops::Range<u32> = 64001..64990;

/// Whether we are root, whose servers run under a uid of their own.
pub(crate) fn is_root() -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// The records of all sandboxes of a home that can be read.
pub(crate) fn all(home: &Home) -> impl Iterator<Item = Record> + use<> {
    let entries = std::fs::read_dir(home.sandboxes()).into_iter().flatten().flatten();
    entries.filter_map(|entry| Record::read(&entry.path()).ok())
}

/// A number that depends on home and name, so that two homes, or two deploys at once, rarely begin at the same uid or
/// port (FNV-1a).
pub(crate) fn hash(home: &Home, name: &str) -> u32 {
    let bytes = home.path().as_os_str().as_encoded_bytes().iter().chain(name.as_bytes());
    bytes.fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(16_777_619))
}

/// A uid that no sandbox of this home, no process and no user of this machine has; `None` when we are not root.
pub(crate) fn free_ids(home: &Home, name: &str) -> Result<Option<Ids>, Error> {
    if !is_root() {
        return Ok(None);
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut taken: Vec<u32> = passwd.lines().filter_map(|l| l.split(':').nth(2)?.parse().ok()).collect();
    taken.extend(all(home).filter_map(|record| Some(record.ids?.uid)));
    // Sandboxes of other homes.
    taken.extend(uids_of_processes().map(|(_, uid)| uid));
    let start = hash(home, name);
    let count = UIDS.end - UIDS.start;
    (0..count)
        .map(|i| UIDS.start + start.wrapping_add(i) % count)
        .find(|uid| !taken.contains(uid))
        .map(|uid| Some(Ids { uid, gid: uid }))
        .ok_or_else(|| Error::Busy { what: "every uid for sandboxes (64001 to 64989)".to_owned(), pid: None })
}

/// The processes of this machine, each with its uid; those that only wait to be reaped are among them.
fn uids_of_processes() -> impl Iterator<Item = (u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.metadata().ok()?.uid()))
    })
}

/// The ids of a user of this machine.
pub(crate) fn ids_of_user(name: &str) -> Option<Ids> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
    let mut numbers = line.split(':').skip(2).map(str::parse);
    Some(Ids { uid: numbers.next()?.ok()?, gid: numbers.next()?.ok()? })
}

/// A number that no other call of this process gets, and hardly one of another: for names of passing things.
pub(crate) fn serial() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.subsec_nanos());
    format!("{:x}{:x}", nanos, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// PostgreSQL's POSIX shared-memory files of a uid that no process has any more: two homes may have given the same one.
pub(crate) fn shared_memory_of_uid(uid: u32) -> Vec<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let is_used = || uids_of_processes().any(|(pid, other)| other == uid && process::is_alive(pid));
    if !UIDS.contains(&uid) || is_used() {
        return Vec::new();
    }
    let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("PostgreSQL."))
        .filter(|entry| entry.metadata().is_ok_and(|meta| meta.uid() == uid))
        .map(|entry| entry.path())
        .collect()
}
