//! A disk whose power can be cut: what it was told to flush is there afterwards, and of the rest nothing, or some of
//! it.
//!
//! The data directory lies on an ext4 file system with its default options, on a loop device over a file that this
//! process serves and that remembers flushes (`disk.rs`). When the power goes, what the operating system has not yet
//! written is gone (dirty pages, a journal's last transactions), and so is what it wrote and did not flush: all of it,
//! or of each write all, nothing or some sectors of 512 bytes, as disks with a volatile cache lose it. Whether a file
//! that was created, renamed or cut short is there is decided by ext4's own journal on what is left.
//!
//! What it does not imitate: a disk that forgets what it confirmed as flushed, one that tears within a sector, and
//! other file systems than ext4. A flush is the disk's, not a file's: what one file asks for keeps what others wrote
//! before.
//!
//! This needs root, /dev/fuse, loop devices and mkfs.ext4.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use store::AuditUnflushed;

use super::disk::{Cut, ServedDisk};

/// Sparse: only what is written takes space.
const DISK_BYTES: u64 = 3 << 30;

/// That this process has a mount namespace of its own: whatever happens to it, its mounts go when it and the servers
/// that it started are gone.
#[derive(Debug)]
pub struct PrivateMounts(());

impl PrivateMounts {
    /// Takes the calling thread, the threads that it starts from now on and their processes into a namespace of their
    /// own. To be called before the process has other threads: servers are started by a thread of their own.
    ///
    /// # Errors
    /// Not root, or namespaces are not permitted here.
    pub fn enter() -> io::Result<PrivateMounts> {
        // SAFETY: affects the calling thread only; no pointers but C strings that outlive the call.
        unsafe {
            if libc::geteuid() != 0 {
                return Err(io::Error::other("a power cut needs root, to mount a disk of its own"));
            }
            if libc::unshare(libc::CLONE_NEWNS) != 0 {
                return Err(io::Error::last_os_error());
            }
            let flags = libc::MS_REC | libc::MS_PRIVATE;
            if libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), flags, std::ptr::null()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(PrivateMounts(()))
    }
}

/// The disk. Dropping it unmounts and removes everything.
#[derive(Debug)]
pub struct PowerDisk {
    scratch: PathBuf,
    /// Where the disk is seen as a file.
    served: PathBuf,
    data: PathBuf,
    disk: Option<ServedDisk>,
    random: stats::rng::Rng,
}

impl PowerDisk {
    /// Makes it in a directory of its own under `place`; `seed` decides what the cuts leave.
    ///
    /// # Errors
    /// No FUSE, no loop devices, no space; the text says which.
    pub fn create(place: &Path, seed: u64, _mounts: &PrivateMounts) -> io::Result<PowerDisk> {
        remove_what_others_left(place);
        let scratch = place.join(std::process::id().to_string());
        let (served, data) = (scratch.join("served"), scratch.join("data"));
        // From here on what was made goes when this is dropped.
        let mut power = PowerDisk { scratch, served, data, disk: None, random: stats::rng::Rng::new(seed) };
        fs::create_dir_all(&power.served)?;
        fs::create_dir_all(&power.data)?;
        let image = power.scratch.join("disk.img");
        format(&image)?;
        let medium = File::options().read(true).write(true).open(&image)?;
        power.disk = Some(ServedDisk::new(medium, &power.served)?);
        power.mount()?;
        Ok(power)
    }

    /// Where data directories go.
    pub fn path(&self) -> &Path {
        &self.data
    }

    /// Writes everything to the disk, as time does for what is old: a fresh data directory is not synced by the
    /// programs that make it.
    ///
    /// # Errors
    /// The disk is full.
    pub fn settle(&self) -> io::Result<()> {
        let mount = File::open(&self.data)?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::syncfs(mount.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The power goes. The server goes on until it is killed, on a disk that keeps nothing any more.
    ///
    /// # Errors
    /// What is left cannot be written.
    pub(super) fn cut(&mut self, unflushed: AuditUnflushed) -> io::Result<Cut> {
        match &self.disk {
            Some(disk) => disk.cut(unflushed, &mut self.random),
            None => Err(io::Error::other("there is no disk")),
        }
    }

    /// The power comes back: ext4 recovers what is left. All processes that use the disk must have ended.
    ///
    /// # Errors
    /// Something still uses it, or what is left cannot be mounted.
    pub(super) fn restore(&mut self) -> io::Result<()> {
        unmount(&self.data)?;
        if let Some(disk) = &self.disk {
            disk.power_on()?;
        }
        self.mount()
    }

    /// The loop device goes by itself when the file system is unmounted.
    fn mount(&self) -> io::Result<()> {
        let disk = ServedDisk::path(&self.served);
        run("mount", &["-t", "ext4", "-o", "loop"].map(AsRef::as_ref), &[&disk, &self.data])
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        // The namespace would take them along, but its end may be far: the server's processes live in it too.
        let _ = unmount(&self.data);
        if let Some(disk) = &mut self.disk {
            // Where a server still has files open the disk's thread ends with us.
            if unmount(&self.served).is_ok() {
                disk.end();
            }
        }
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Images of audits that were killed: their mounts went with their namespace. What cannot be removed is in nobody's
/// way.
fn remove_what_others_left(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_string_lossy().parse::<u32>();
        if owner.is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn run(program: &str, options: &[&std::ffi::OsStr], paths: &[&Path]) -> io::Result<()> {
    let output = Command::new(program)
        .args(options)
        .args(paths)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| io::Error::new(error.kind(), format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("failed");
    Err(io::Error::other(format!("{program}: {first}")))
}

fn format(image: &Path) -> io::Result<()> {
    File::create(image)?.set_len(DISK_BYTES)?;
    // No blocks kept back for anybody, and tables written now rather than by a thread of the kernel later.
    let options = ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    run("mkfs.ext4", &options.map(AsRef::as_ref), &[image])
}

fn unmount(at: &Path) -> io::Result<()> {
    let path = CString::new(at.as_os_str().as_bytes())?;
    // The server's last process may still be on its way out.
    for _ in 0..100 {
        // SAFETY: a C string that outlives the call.
        if unsafe { libc::umount2(path.as_ptr(), 0) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    Err(io::Error::other(format!("{} is still in use", at.display())))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    use super::*;

    /// What is left after a cut of: a file that was synced, one whose pages the system had not written, and blocks that
    /// went past its pages (O_DIRECT) to a disk that nobody told to flush, then flushed, and once with O_DSYNC.
    fn cut_once(disk: &mut PowerDisk) {
        let path = |name: &str| disk.path().join(name);
        let mut synced = File::create(path("synced")).unwrap();
        synced.write_all(b"kept").unwrap();
        synced.sync_all().unwrap();
        let direct = |name: &str, flags: i32| {
            let file = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .custom_flags(libc::O_DIRECT | flags)
                .open(path(name))
                .unwrap();
            file.set_len(1 << 20).unwrap();
            file
        };
        let (handed, flushed, dsync) =
            (direct("handed", 0), direct("flushed", 0), direct("dsync", libc::O_DSYNC));
        let files = ["handed", "flushed", "dsync"];
        // Blocks that are there, so that writing them needs no more than themselves.
        for name in files {
            fs::write(path(name), vec![b'.'; 1 << 20]).unwrap();
        }
        disk.settle().unwrap();
        #[repr(align(4096))]
        struct Block([u8; 4096]);
        let block = Block([b'x'; 4096]);
        flushed.write_all_at(&block.0, 0).unwrap();
        flushed.sync_data().unwrap();
        dsync.write_all_at(&block.0, 0).unwrap();
        handed.write_all_at(&block.0, 0).unwrap();
        let mut lazy = File::create(path("lazy")).unwrap();
        lazy.write_all(b"lost").unwrap();
        let cut = disk.cut(AuditUnflushed::Dropped).unwrap();
        assert!(cut.unflushed_bytes >= 4096 && cut.dropped_bytes == cut.unflushed_bytes, "{cut:?}");
        // Too late: the power is gone.
        lazy.sync_all().unwrap();
        handed.sync_all().unwrap();
        drop((synced, lazy, handed, flushed, dsync));
        disk.restore().unwrap();
        assert_eq!(fs::read(disk.path().join("synced")).unwrap(), b"kept");
        assert!(!disk.path().join("lazy").exists());
        let first = |name: &str| fs::read(disk.path().join(name)).unwrap()[0];
        assert_eq!(files.map(first).map(char::from), ['.', 'x', 'x']);
    }

    /// In a thread of its own, because its mounts are its own.
    #[test]
    fn what_was_flushed_survives_and_what_was_only_written_does_not() {
        let outcome = std::thread::spawn(|| {
            let place = tempfile::tempdir().unwrap();
            // Of a process that there cannot be: numbers end at 4194304.
            fs::create_dir(place.path().join("4194399")).unwrap();
            let made = PrivateMounts::enter().and_then(|mounts| PowerDisk::create(place.path(), 1, &mounts));
            let mut disk = match made {
                Ok(disk) => disk,
                Err(why) => return Some(why.to_string()),
            };
            // Twice: the second cut is of a file system that recovered from the first.
            for _ in 0..2 {
                cut_once(&mut disk);
            }
            drop(disk);
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
            None
        })
        .join()
        .unwrap();
        if let Some(why) = outcome {
            testkit::not_tested("power cuts of an audit", why);
        }
    }
}
