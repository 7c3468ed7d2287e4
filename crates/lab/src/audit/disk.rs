//! A disk with a volatile write cache: what it was told to flush is there after a power cut, of the rest it keeps what
//! the cut leaves.
//!
//! The kernel sees it as the one file of a FUSE file system, and a loop device over that file hands each flush of its
//! file system down as an fsync. So everything that counts in truth counts here: fsync, fdatasync, O_SYNC and O_DSYNC
//! of the server reach the disk as the flushes that ext4 makes of them, and what ext4 writes of its own accord (data of
//! files, its journal) is kept or lost by the same rule.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, LockOwner,
    MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    Session, WriteFlags,
};
use store::AuditUnflushed;

/// What a disk writes at once or not at all.
const SECTOR: usize = 512;
/// More than this a disk's cache does not hold: the oldest goes to its medium.
const CACHE_BYTES: usize = 64 << 20;
const NAME: &str = "disk";
const FILE: INodeNo = INodeNo(2);

/// The medium and its cache.
#[derive(Debug)]
struct Disk {
    medium: File,
    /// Written and not flushed, in the order in which it came.
    cache: VecDeque<(u64, Vec<u8>)>,
    cache_bytes: usize,
    /// Takes whatever comes, and forgets it.
    is_dead: bool,
    opened: u32,
}

/// What a power cut found in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cut {
    /// Written, and not flushed.
    pub(super) unflushed_bytes: u64,
    /// Of them, what did not reach the medium.
    pub(super) dropped_bytes: u64,
}

impl Disk {
    fn new(medium: File) -> Disk {
        Disk { medium, cache: VecDeque::new(), cache_bytes: 0, is_dead: false, opened: 0 }
    }

    fn read(&self, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        self.medium.read_exact_at(&mut bytes, offset)?;
        for (at, written) in &self.cache {
            let (from, to) = (offset.max(*at), (offset + size as u64).min(at + written.len() as u64));
            if from < to {
                let part = &written[(from - at) as usize..(to - at) as usize];
                bytes[(from - offset) as usize..(to - offset) as usize].copy_from_slice(part);
            }
        }
        Ok(bytes)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_dead {
            return Ok(());
        }
        self.cache_bytes += bytes.len();
        self.cache.push_back((offset, bytes.to_vec()));
        while self.cache_bytes > CACHE_BYTES
            && let Some((at, oldest)) = self.cache.pop_front()
        {
            self.cache_bytes -= oldest.len();
            self.medium.write_all_at(&oldest, at)?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        for (at, bytes) in self.cache.drain(..) {
            self.medium.write_all_at(&bytes, at)?;
        }
        self.cache_bytes = 0;
        Ok(())
    }

    /// Nothing, or of each write all of it, nothing or some of its sectors.
    fn cut(&mut self, unflushed: AuditUnflushed, random: &mut stats::rng::Rng) -> io::Result<Cut> {
        let unflushed_bytes = self.cache_bytes as u64;
        let mut kept = 0;
        for (at, bytes) in self.cache.drain(..) {
            let fate = if unflushed == AuditUnflushed::Dropped { 0 } else { random.below(3) };
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                if fate == 1 || (fate == 2 && random.below(2) == 0) {
                    self.medium.write_all_at(sector, at + (index * SECTOR) as u64)?;
                    kept += sector.len() as u64;
                }
            }
        }
        self.cache_bytes = 0;
        self.is_dead = true;
        Ok(Cut { unflushed_bytes, dropped_bytes: unflushed_bytes - kept })
    }
}

#[derive(Debug)]
struct Shared {
    disk: Mutex<Disk>,
    /// Somebody closed the file.
    closed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The disk while the kernel sees it as a file. Whoever has it unmounts it before it is dropped.
#[derive(Debug)]
pub(super) struct ServedDisk {
    shared: Arc<Shared>,
    server: Option<JoinHandle<io::Result<()>>>,
}

impl ServedDisk {
    /// Serves `medium` as a file in `folder` ([`ServedDisk::path`]).
    ///
    /// # Errors
    /// FUSE is not to be had here.
    pub(super) fn new(medium: File, folder: &Path) -> io::Result<ServedDisk> {
        let (bytes, number) = (medium.metadata()?.len(), medium.as_raw_fd());
        let shared = Arc::new(Shared { disk: Mutex::new(Disk::new(medium)), closed: Condvar::new() });
        let served = OneFile { shared: Arc::clone(&shared), bytes };
        let folder = folder.to_owned();
        let (tell, is_there) = mpsc::channel();
        let server = std::thread::Builder::new().name("disk".to_owned()).spawn(move || {
            let session = own_files(number).and_then(|()| Session::new(served, &folder, &config()));
            match session {
                Ok(session) => {
                    // Its receiver waits for nothing else.
                    let _ = tell.send(Ok(()));
                    session.run()
                }
                Err(error) => {
                    let _ = tell.send(Err(io::Error::new(error.kind(), format!("no FUSE here: {error}"))));
                    Ok(())
                }
            }
        })?;
        is_there.recv().unwrap_or_else(|_| Err(io::Error::other("the disk's thread ended")))?;
        Ok(ServedDisk { shared, server: Some(server) })
    }

    /// The file within its folder.
    pub(super) fn path(folder: &Path) -> std::path::PathBuf {
        folder.join(NAME)
    }

    /// The power goes: from now on nothing that is written is there later.
    ///
    /// # Errors
    /// The medium cannot be written: its own disk is full.
    pub(super) fn cut(&self, unflushed: AuditUnflushed, random: &mut stats::rng::Rng) -> io::Result<Cut> {
        self.shared.lock().cut(unflushed, random)
    }

    /// The power comes back, once nobody has the disk open any more.
    ///
    /// # Errors
    /// The loop device is still there after 10 seconds.
    pub(super) fn power_on(&self) -> io::Result<()> {
        let is_open = |disk: &mut Disk| disk.opened > 0;
        let disk = self.shared.lock();
        let (mut disk, wait) = self
            .shared
            .closed
            .wait_timeout_while(disk, Duration::from_secs(10), is_open)
            .unwrap_or_else(PoisonError::into_inner);
        if wait.timed_out() {
            return Err(io::Error::other("its loop device is still in use"));
        }
        disk.is_dead = false;
        Ok(())
    }

    /// Waits until the kernel has let go of it.
    pub(super) fn end(&mut self) {
        if let Some(server) = self.server.take() {
            // It has no result that anybody could use.
            let _ = server.join();
        }
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config.mount_options =
        vec![MountOption::FSName("plimsoll-disk".to_owned()), MountOption::NoDev, MountOption::NoSuid];
    config
}

/// Gives this thread a table of open files of its own, with the standard ones and `medium`, which keeps its number.
/// Were it the process's table, a process that is killed while another of its threads waits for this disk could not
/// end: that thread would wait for an answer, and the descriptor that the answer comes from would stay open until it
/// has ended.
fn own_files(medium: RawFd) -> io::Result<()> {
    // SAFETY: only this thread's table changes, and of what is closed in it this thread uses nothing.
    unsafe {
        if libc::unshare(libc::CLONE_FILES) != 0 {
            return Err(io::Error::last_os_error());
        }
        let medium = medium as libc::c_uint;
        // Linux 5.9; without it the others stay open until the disk goes.
        libc::syscall(libc::SYS_close_range, 3, medium - 1, 0);
        libc::syscall(libc::SYS_close_range, medium + 1, libc::c_uint::MAX, 0);
    }
    Ok(())
}

/// A file system of a folder with the disk in it.
#[derive(Debug)]
struct OneFile {
    shared: Arc<Shared>,
    bytes: u64,
}

impl OneFile {
    fn facts(&self, inode: INodeNo) -> FileAttr {
        let is_folder = inode == INodeNo::ROOT;
        FileAttr {
            ino: inode,
            size: if is_folder { 0 } else { self.bytes },
            blocks: if is_folder { 0 } else { self.bytes / SECTOR as u64 },
            atime: SystemTime::UNIX_EPOCH,
            mtime: SystemTime::UNIX_EPOCH,
            ctime: SystemTime::UNIX_EPOCH,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if is_folder { FileType::Directory } else { FileType::RegularFile },
            perm: if is_folder { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

const FOR_EVER: Duration = Duration::from_secs(1 << 30);

impl Filesystem for OneFile {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if parent == INodeNo::ROOT && name == NAME {
            reply.entry(&FOR_EVER, &self.facts(FILE), Generation(0));
        } else {
            reply.error(Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&FOR_EVER, &self.facts(inode));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.shared.lock().opened += 1;
        // The kernel keeps no pages of it, which would outlive the power cut.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let mut disk = self.shared.lock();
        disk.opened = disk.opened.saturating_sub(1);
        drop(disk);
        self.shared.closed.notify_all();
        reply.ok();
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = u64::from(size).min(self.bytes.saturating_sub(offset));
        match self.shared.lock().read(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.into()),
        }
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        bytes: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > self.bytes) {
            return reply.error(Errno::ENOSPC);
        }
        match self.shared.lock().write(offset, bytes) {
            Ok(()) => reply.written(bytes.len() as u32),
            Err(error) => reply.error(error.into()),
        }
    }

    /// A flush of the disk, whichever it is called.
    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        match self.shared.lock().flush() {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(error.into()),
        }
    }

    /// A close is no flush.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> Disk {
        let medium = tempfile::tempfile().unwrap();
        medium.set_len(1 << 20).unwrap();
        Disk::new(medium)
    }

    #[test]
    fn what_was_flushed_stays_and_the_rest_goes() {
        let mut disk = disk();
        disk.write(0, &[1; 1024]).unwrap();
        disk.flush().unwrap();
        disk.write(512, &[2; 1024]).unwrap();
        assert_eq!(disk.read(0, 2048).unwrap(), [[1; 512], [2; 512], [2; 512], [0; 512]].concat());
        let cut = disk.cut(AuditUnflushed::Dropped, &mut stats::rng::Rng::new(1)).unwrap();
        assert_eq!(cut, Cut { unflushed_bytes: 1024, dropped_bytes: 1024 });
        // Too late: there is no power.
        disk.write(0, &[3; 512]).unwrap();
        disk.flush().unwrap();
        assert_eq!(disk.read(0, 2048).unwrap(), [[1; 1024], [0; 1024]].concat());
    }

    #[test]
    fn a_torn_cut_keeps_whole_sectors_of_some_writes() {
        let (mut whole, mut gone, mut torn) = (0, 0, 0);
        for seed in 0..100 {
            let mut disk = disk();
            disk.write(4096, &[7; 4096]).unwrap();
            let cut = disk.cut(AuditUnflushed::Torn, &mut stats::rng::Rng::new(seed)).unwrap();
            let bytes = disk.read(4096, 4096).unwrap();
            let kept: usize = bytes
                .chunks(SECTOR)
                .map(|sector| {
                    assert!(sector.iter().all(|byte| *byte == sector[0]), "a sector is torn");
                    usize::from(sector[0] == 7)
                })
                .sum();
            assert_eq!(cut.dropped_bytes as usize, 4096 - kept * SECTOR);
            match kept {
                0 => gone += 1,
                8 => whole += 1,
                _ => torn += 1,
            }
        }
        assert!(whole > 10 && gone > 10 && torn > 10, "{whole} {gone} {torn}");
    }

    #[test]
    fn a_full_cache_gives_its_oldest_to_the_medium() {
        let medium = tempfile::tempfile().unwrap();
        medium.set_len(2 * CACHE_BYTES as u64).unwrap();
        let mut disk = Disk::new(medium);
        let block = vec![5; 1 << 20];
        for at in 0..(CACHE_BYTES >> 20) + 3 {
            disk.write((at << 20) as u64, &block).unwrap();
        }
        let cut = disk.cut(AuditUnflushed::Dropped, &mut stats::rng::Rng::new(1)).unwrap();
        assert_eq!(cut.unflushed_bytes as usize, CACHE_BYTES);
        assert_eq!(disk.read(2 << 20, 1).unwrap(), [5]);
        assert_eq!(disk.read(3 << 20, 1).unwrap(), [0]);
    }
}
