//! What is written down about a sandbox, so that any later process can look after it.

use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use crate::build::Build;
use crate::cpus::Cpus;
use crate::limits::Limits;
use crate::process::{self, Family, Ids};
use crate::profile::{Durability, Logging, Profile};
use crate::settings::{Isolation, Settings};
use crate::{Error, Home, scheduler};

/// The record's format; a record of an unknown one is left alone. In the first one all paths were absolute.
const SCHEMA: u32 = 2;

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
    /// Where it listens on its port, if not on 127.0.0.1.
    #[serde(default)]
    pub(crate) address: Option<IpAddr>,
    /// Password of the administrator over TCP.
    pub(crate) password: String,
    pub(crate) datadir: PathBuf,
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
    /// What the disk's I/O scheduler was, where it was changed for this one.
    #[serde(default)]
    pub(crate) scheduler_before: Option<scheduler::Before>,
    /// The home that it was written in.
    #[serde(default)]
    pub(crate) home: Option<PathBuf>,
    /// It is a copy, in a copied home, of a sandbox that is still there: what is outside of the home belongs to that one.
    #[serde(skip)]
    pub(crate) is_copy: bool,
}

impl Record {
    /// Where it listens on its port, if it has one.
    pub(crate) fn address(&self) -> IpAddr {
        self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
    }

    /// A record of the present schema with the fields that always matter.
    pub(crate) fn schema() -> u32 {
        SCHEMA
    }

    /// Reads the record of a sandbox's directory.
    pub(crate) fn read(dir: &Path) -> Result<Record, Error> {
        let path = dir.join("sandbox.json");
        let fail = |e| Error::io("read the record of a sandbox", &path, e);
        let mut file = File::open(&path).map_err(fail)?;
        // Once everybody could read it, and the password in it.
        if file.metadata().map_err(fail)?.permissions().mode() & 0o077 != 0 {
            // Whoever may read but not change it is not the owner.
            let _ = file.set_permissions(Permissions::from_mode(0o600));
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(fail)?;
        let corrupt = |why: String| Error::io("read", &path, std::io::Error::other(why));
        let mut record: Record = serde_json::from_slice(&text).map_err(|e| corrupt(e.to_string()))?;
        if !(1..=SCHEMA).contains(&record.schema) {
            return Err(corrupt(format!(
                "written by another version of plimsoll (schema {})",
                record.schema
            )));
        }
        record.schema = SCHEMA;
        if let Some(home) = home_of(dir) {
            let name = record.build.name();
            if record.build.is_in_a_home() {
                record.build.files.each_path(&mut |path| *path = here(path, home, &["builds", &name]));
            }
            let name = record.name.clone();
            record.each_path(&mut |path| *path = here(path, home, &["sandboxes", &name]));
            let original = record.home.as_deref().filter(|first| *first != home);
            record.is_copy = original
                .is_some_and(|first| first.join("sandboxes").join(&name).join("sandbox.json").exists());
        }
        Ok(record)
    }

    /// The paths of its own that may lie in the home.
    fn each_path(&mut self, change: &mut dyn FnMut(&mut PathBuf)) {
        [&mut self.datadir, &mut self.run_dir].into_iter().chain(&mut self.outside).for_each(change);
    }

    /// The processes of its server, and of the programs that make its data directory.
    pub(crate) fn family(&self) -> Family {
        let files = &self.build.files;
        let is_another_s = self.is_copy && self.datadir_is_outside();
        Family {
            dir: self.datadir.clone(),
            // SAFETY: geteuid has no preconditions and cannot fail.
            uid: self.ids.map_or_else(|| unsafe { libc::geteuid() }, |ids| ids.uid),
            programs: std::iter::once(&files.server)
                .chain(&files.initdb)
                .filter(|_| !is_another_s)
                .cloned()
                .collect(),
        }
    }

    fn datadir_is_outside(&self) -> bool {
        self.outside.iter().any(|outside| self.datadir.starts_with(outside))
    }

    /// Refuses a server on directories that belong to the sandbox that this one is a copy of.
    pub(crate) fn check_own(&self) -> Result<(), Error> {
        match self.outside.first().filter(|_| self.is_copy) {
            None => Ok(()),
            Some(outside) => Err(Error::Unsupported {
                what: format!("the sandbox {} of a copied home", self.name),
                why: format!(
                    "its directory {} belongs to the first home's, which is still there: destroy it here (that leaves \
                     the directory alone) and deploy it anew",
                    outside.display()
                ),
            }),
        }
    }

    /// Writes it, whole or not at all, for its owner alone. What is in the home is written down from there on, so that a
    /// home that was moved or copied is one of its own.
    pub(crate) fn write(&self, dir: &Path) -> Result<(), Error> {
        let mut record = self.clone();
        if let Some(home) = home_of(dir) {
            record.build.files.each_path(&mut |path| *path = from_home(path, home));
            record.each_path(&mut |path| *path = from_home(path, home));
            record.home.get_or_insert_with(|| home.to_owned());
        }
        let text = serde_json::to_vec_pretty(&record).map_err(|e| Error::io("write", dir, e.into()))?;
        write_with_mode(&dir.join("sandbox.json"), &text, 0o600)
    }
}

/// The home of a build's or a sandbox's directory.
pub(crate) fn home_of(dir: &Path) -> Option<&Path> {
    dir.parent()?.parent()
}

/// A path as it is written down: from the home on, where it lies in it.
pub(crate) fn from_home(path: &Path, home: &Path) -> PathBuf {
    path.strip_prefix(home).unwrap_or(path).to_owned()
}

/// A path as it was written down, in the home where the record is now. Earlier records had all of it, whose part from
/// `folder` on (`builds/NAME`) is what lies in the home; one that is not there was another home's to begin with.
pub(crate) fn here(path: &Path, home: &Path, folder: &[&str; 2]) -> PathBuf {
    if path.is_relative() {
        return home.join(path);
    }
    let parts: Vec<_> = path.iter().collect();
    let at = parts.windows(2).rposition(|two| two[0] == folder[0] && two[1] == folder[1]);
    let inside = at.map(|at| parts[at..].iter().fold(home.to_owned(), |to, part| to.join(part)));
    inside.filter(|inside| inside.exists() || !path.exists()).unwrap_or_else(|| path.to_owned())
}

/// Writes a file beside its place and renames it, so that a reader sees the old one or the new one.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    write_with_mode(path, bytes, 0o644)
}

fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> Result<(), Error> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}-{}", std::process::id(), serial()));
    let beside = PathBuf::from(beside);
    let write = || -> std::io::Result<()> {
        let mut file = File::options().write(true).create_new(true).mode(mode).open(&beside)?;
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
            // Whoever can open it can keep it.
            .mode(0o600)
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

    /// The lock of a directory that a crashed plimsoll may have left; `None` where it is no leftover: another holds it,
    /// or its owner has removed it since it was listed.
    pub(crate) fn of_leftover(dir: &Path) -> Result<Option<Lock>, Error> {
        match Lock::take(dir, Duration::ZERO) {
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            taken => taken,
        }
    }
}

/// Uids of the sandboxes of root: a range that Debian leaves free (it is neither "system" nor "user" nor 65534).
const UIDS: std::ops::Range<u32> = 64001..64990;

/// Whether we are root, whose servers run under a uid of their own.
pub fn is_root() -> bool {
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
        .ok_or_else(|| Error::Busy {
            what: "every uid for sandboxes (64001 to 64989)".to_owned(),
            holder: None,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_from_the_home_on_and_older_ones_are_found_in_the_home_they_are_in() {
        let (old, new) = (Path::new("/nowhere/plimsoll"), Path::new("/copy/of/it"));
        let folder = ["builds", "mysql@8.0.33"];
        let written = from_home(&old.join("builds/mysql@8.0.33/bin/mysqld"), old);
        assert_eq!(written, Path::new("builds/mysql@8.0.33/bin/mysqld"));
        assert_eq!(here(&written, new, &folder), new.join(&written));
        // As they were written before.
        assert_eq!(here(&old.join(&written), new, &folder), new.join(&written));
        assert_eq!(here(&old.join(&written), old, &folder), old.join(&written));
        // What is not in a home stays where it is.
        for path in ["/usr/sbin/mysqld", "/mnt/nvme/plimsoll-a-1/data", "/x/builds/other/bin/mysqld"] {
            assert_eq!(from_home(Path::new(path), old), Path::new(path));
            assert_eq!(here(Path::new(path), new, &folder), Path::new(path));
        }
    }

    #[test]
    fn a_directory_that_its_owner_removed_meanwhile_is_no_leftover() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("test-1-2");
        assert!(Lock::of_leftover(&dir).unwrap().is_none());
        std::fs::create_dir(&dir).unwrap();
        let lock = Lock::of_leftover(&dir).unwrap();
        assert!(lock.is_some());
        assert!(Lock::of_leftover(&dir).unwrap().is_none(), "another looks after it");
    }
}
