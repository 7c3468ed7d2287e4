//! Copying data directories: by reference where the file system can, by several threads where it cannot.
//!
//! A copy is laid out as what it is made of. Servers set space aside for their logs before they write to it (MySQL's
//! spare redo files, MariaDB's one large one); such space is set aside in the copy and not filled with zeros, which
//! would be most of the bytes written, and another state than that of the server that loaded the data.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use crate::process::Ids;
use crate::{Error, OnProgress, Progress};

/// Bytes copied at once: enough to hide the cost of the calls, and no more. A piece of 1 MiB makes the kernel cache it
/// in large folios, which on a virtual machine come from memory that the host has taken back: five times slower, where
/// that was measured, than pieces of 64 KiB.
const PIECE_BYTES: usize = 64 << 10;

/// Bytes after which writing to the device begins: beside the copying, not when the server first waits for it.
const WRITEBACK_BYTES: u64 = 8 << 20;

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
    let done = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8));
    side_by_side(jobs, threads, |job, buffer| {
        file(&job, ids, buffer)?;
        let done = done.fetch_add(job.bytes, Ordering::Relaxed) + job.bytes;
        progress(Progress::Bytes { done, total: Some(total) });
        Ok(())
    })?;
    Ok(total)
}

/// Does jobs on so many threads, the last one first, each thread with a buffer of its own. After the first that fails no
/// other one is begun.
fn side_by_side<J: Send>(
    jobs: Vec<J>,
    threads: usize,
    work: impl Fn(J, &mut [u8]) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let (queue, failed) = (Mutex::new(jobs), Mutex::new(None));
    // A poisoned queue only means that another thread panicked; its jobs are still whole. The queue is let go before a
    // job is done: held in the head of a loop it would be held through its body.
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let run = || {
        let mut buffer = vec![0; PIECE_BYTES];
        while let Some(job) = next() {
            if let Err(error) = work(job, &mut buffer) {
                queue.lock().unwrap_or_else(PoisonError::into_inner).clear();
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(run);
        }
        run();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
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

fn file(job: &Job, ids: Option<Ids>, buffer: &mut [u8]) -> Result<(), Error> {
    let source = File::open(&job.from).map_err(|e| Error::io("copy", &job.from, e))?;
    let meta = source.metadata().map_err(|e| Error::io("copy", &job.from, e))?;
    let fail = |e| Error::io("write", &job.to, e);
    let to = File::options().write(true).create_new(true).open(&job.to).map_err(fail)?;
    if rustix::fs::ioctl_ficlone(&to, &source).is_err() {
        set_aside(&to, &meta).map_err(fail)?;
        copy_data(&source, &to, meta.len(), buffer).map_err(fail)?;
    }
    drop(to);
    give(&job.to, meta.permissions().mode(), ids)
}

/// Gives a new file the length of the other, and its space where that one has all of its own. Where it has holes, all
/// that is not data becomes a hole.
fn set_aside(to: &File, from: &fs::Metadata) -> io::Result<()> {
    let (len, allocated) = (from.len(), from.blocks() * 512);
    if len == 0 {
        return Ok(());
    }
    if allocated >= len {
        match rustix::fs::fallocate(to, FallocateFlags::empty(), 0, len) {
            Ok(()) => return Ok(()),
            // Some file systems cannot.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
    }
    to.set_len(len)
}

/// Copies the parts of a file that hold data: not its holes, and not what is set aside and was never written
/// (lseek(2), SEEK_DATA).
fn copy_data(from: &File, to: &File, len: u64, buffer: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < len {
        at = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            Ok(start) => start,
            // No more data.
            Err(Errno::NXIO) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(at))?.min(len);
        while at < end {
            let wanted = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            let piece = &mut buffer[..wanted];
            from.read_exact_at(piece, at)?;
            to.write_all_at(piece, at)?;
            at += wanted as u64;
            if at.is_multiple_of(WRITEBACK_BYTES) {
                start_writeback(to, at - WRITEBACK_BYTES);
            }
        }
    }
    Ok(())
}

/// Has the kernel begin to write the last [`WRITEBACK_BYTES`] to the device, without waiting for it.
fn start_writeback(to: &File, from: u64) {
    // What fails here fails again, and is told, when the file is synced. SAFETY: the descriptor is open.
    unsafe {
        libc::sync_file_range(
            to.as_raw_fd(),
            from as libc::off64_t,
            WRITEBACK_BYTES as libc::off64_t,
            libc::SYNC_FILE_RANGE_WRITE,
        )
    };
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
    fn jobs_are_done_at_the_same_time() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let receiver = Mutex::new(receiver);
        // Each waits for a word of the other: one at a time they would wait for ever.
        let meet = |is_first: bool, _: &mut [u8]| {
            if is_first {
                receiver.lock().unwrap().recv_timeout(std::time::Duration::from_secs(20)).expect("the other");
            } else {
                sender.send(()).unwrap();
            }
            Ok(())
        };
        // The last one is begun first.
        side_by_side(vec![false, true], 2, meet).unwrap();
    }

    #[test]
    fn the_first_failure_ends_it_and_is_told() {
        let begun = AtomicU64::new(0);
        let fail = |number: u32, _: &mut [u8]| {
            begun.fetch_add(1, Ordering::Relaxed);
            let full = io::Error::from(io::ErrorKind::StorageFull);
            if number == 99 { Err(Error::io("write", Path::new("/full"), full)) } else { Ok(()) }
        };
        let error = side_by_side((0..100).collect(), 1, fail).unwrap_err().to_string();
        assert!(error.contains("/full"), "{error}");
        assert_eq!(begun.into_inner(), 1);
    }

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

    #[test]
    fn space_set_aside_stays_so_and_holes_stay_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        let redo = File::create(from.join("redo")).unwrap();
        rustix::fs::fallocate(&redo, FallocateFlags::empty(), 0, 8 << 20).unwrap();
        redo.write_all_at(&[3; 5000], 3 << 20).unwrap();
        let holes = File::create(from.join("holes")).unwrap();
        holes.write_all_at(&[4; 5000], 7 << 20).unwrap();
        holes.set_len(9 << 20).unwrap();
        for file in [&redo, &holes] {
            file.sync_all().unwrap();
        }
        tree(&from, &to, None, &|_| ()).unwrap();
        for name in ["redo", "holes"] {
            assert!(fs::read(from.join(name)).unwrap() == fs::read(to.join(name)).unwrap(), "{name} differs");
            let copy = File::open(to.join(name)).unwrap();
            copy.sync_all().unwrap();
            let there = File::open(from.join(name)).unwrap();
            assert_eq!(copy.metadata().unwrap().blocks(), there.metadata().unwrap().blocks(), "{name}");
            assert_eq!(data_parts(&copy), data_parts(&there), "{name}");
        }
        assert!(fs::metadata(to.join("redo")).unwrap().blocks() * 512 >= 8 << 20);
        assert!(fs::metadata(to.join("holes")).unwrap().blocks() * 512 < 1 << 20);
    }

    /// Where each part with data begins and ends.
    fn data_parts(file: &File) -> Vec<(u64, u64)> {
        let (mut parts, mut at) = (Vec::new(), 0);
        while let Ok(start) = rustix::fs::seek(file, SeekFrom::Data(at)) {
            at = rustix::fs::seek(file, SeekFrom::Hole(start)).unwrap();
            parts.push((start, at));
        }
        parts
    }
}
