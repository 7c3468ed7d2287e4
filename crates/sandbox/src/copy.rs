//! Copying data directories: by reference where the file system can, by several threads where it cannot.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::process::Ids;
use crate::{Error, OnProgress, Progress};

/// `FICLONE` of linux/fs.h: the new file shares the old one's blocks until either is written to.
const FICLONE: libc::c_ulong = 0x4004_9409;

/// One file to copy.
struct Job {
    from: PathBuf,
    to: PathBuf,
    bytes: u64,
}

/// Copies a tree of directories, files and links to `to`, which must not exist; owner as given, modes as they are.
/// Returns the bytes of its files.
pub(crate) fn tree(from: &Path, to: &Path, ids: Option<Ids>, progress: OnProgress<'_>) -> Result<u64, Error> {
    let mut jobs = Vec::new();
    plan(from, to, ids, &mut jobs)?;
    // Large files first, so that the threads end together.
    jobs.sort_by_key(|job| job.bytes);
    let total = jobs.iter().map(|job| job.bytes).sum();
    let (queue, done, failed) = (Mutex::new(jobs), AtomicU64::new(0), Mutex::new(None));
    let work = || {
        // A poisoned queue only means that another thread panicked; its jobs are still whole.
        while let Some(job) = queue.lock().unwrap_or_else(|e| e.into_inner()).pop() {
            if let Err(error) = file(&job, ids) {
                queue.lock().unwrap_or_else(|e| e.into_inner()).clear();
                failed.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
                return;
            }
            let done = done.fetch_add(job.bytes, Ordering::Relaxed) + job.bytes;
            progress(Progress::Bytes { done, total: Some(total) });
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8));
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    match failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some(error) => Err(error),
        None => Ok(total),
    }
}

fn plan(from: &Path, to: &Path, ids: Option<Ids>, jobs: &mut Vec<Job>) -> Result<(), Error> {
    let meta = fs::metadata(from).map_err(|e| Error::io("copy", from, e))?;
    fs::create_dir(to).map_err(|e| Error::io("create", to, e))?;
    give(to, meta.permissions().mode(), ids)?;
    for entry in fs::read_dir(from).map_err(|e| Error::io("read", from, e))? {
        let entry = entry.map_err(|e| Error::io("read", from, e))?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(|e| Error::io("copy", &from, e))?;
        if kind.is_dir() {
            plan(&from, &to, ids, jobs)?;
        } else if kind.is_symlink() {
            let target = fs::read_link(&from).map_err(|e| Error::io("copy", &from, e))?;
            std::os::unix::fs::symlink(target, &to).map_err(|e| Error::io("link", &to, e))?;
        } else if kind.is_file() {
            let bytes = entry.metadata().map_err(|e| Error::io("copy", &from, e))?.size();
            jobs.push(Job { from, to, bytes });
        }
        // Sockets and pipes belong to a running server, not to its data.
    }
    Ok(())
}

fn file(job: &Job, ids: Option<Ids>) -> Result<(), Error> {
    let source = File::open(&job.from).map_err(|e| Error::io("copy", &job.from, e))?;
    let mode = source.metadata().map_err(|e| Error::io("copy", &job.from, e))?.permissions().mode();
    let fail = |e| Error::io("write", &job.to, e);
    let mut to = File::options().write(true).create_new(true).open(&job.to).map_err(fail)?;
    // SAFETY: both descriptors are open.
    let is_cloned = unsafe { libc::ioctl(to.as_raw_fd(), FICLONE as _, source.as_raw_fd()) } == 0;
    if !is_cloned {
        // In the kernel where it can (copy_file_range).
        io::copy(&mut &source, &mut to).map_err(fail)?;
    }
    drop(to);
    give(&job.to, mode, ids)
}

fn give(path: &Path, mode: u32, ids: Option<Ids>) -> Result<(), Error> {
    let fail = |e| Error::io("give away", path, e);
    if let Some(Ids { uid, gid }) = ids {
        chown(path, Some(uid), Some(gid)).map_err(fail)?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_comes_out_the_same_and_an_existing_target_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("a/b")).unwrap();
        fs::write(from.join("a/big"), vec![7u8; 3_000_000]).unwrap();
        fs::write(from.join("a/b/small"), "x").unwrap();
        fs::set_permissions(from.join("a/b/small"), fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("b/small", from.join("a/link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
        assert_eq!(tree(&from, &to, None, &|_| ()).unwrap(), 3_000_001);
        assert_eq!(fs::read(to.join("a/big")).unwrap(), vec![7u8; 3_000_000]);
        assert_eq!(fs::read_to_string(to.join("a/link")).unwrap(), "x");
        assert_eq!(fs::metadata(to.join("a/b/small")).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!to.join("socket").exists());
        assert!(tree(&from, &to, None, &|_| ()).is_err());
    }
}
