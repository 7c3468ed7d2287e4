//! A disk whose power can be cut: what the file system above it had not yet written to it is gone, what it had is
//! there, at one moment.
//!
//! The data directory lies on an ext4 file system in an image file (the disk), and that file on an ext4 of its own in
//! an outer image. Freezing the outer one (FIFREEZE) stops every write to the disk at one moment, while the server and
//! its operating system go on believing; the frozen image is copied, and the server is later started on the copy. Dirty
//! pages of the inner file system, the last writes without fsync, are not in it.
//!
//! This needs root and loop devices, and nothing that a Debian base system lacks (no reflink, no device-mapper). It
//! proves what a machine with an honest disk keeps. It does not imitate disks that forget what they confirmed.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Sparse: only what is written takes space.
const INNER_BYTES: u64 = 3 << 30;
const OUTER_BYTES: u64 = 4 << 30;

/// `_IOWR('X', 119, int)` and 120 of linux/fs.h.
const FIFREEZE: libc::c_ulong = 0xc004_5877;
const FITHAW: libc::c_ulong = 0xc004_5878;

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
    outer: PathBuf,
    data: PathBuf,
}

impl PowerDisk {
    /// Makes it in a directory of its own under `place`.
    ///
    /// # Errors
    /// No loop devices, no space; the text says which.
    pub fn create(place: &Path, _mounts: &PrivateMounts) -> io::Result<PowerDisk> {
        remove_what_others_left(place);
        let scratch = place.join(std::process::id().to_string());
        let disk = PowerDisk { outer: scratch.join("outer"), data: scratch.join("data"), scratch };
        fs::create_dir_all(&disk.outer)?;
        fs::create_dir_all(&disk.data)?;
        image(&disk.scratch.join("outer.img"), OUTER_BYTES)?;
        mount_image(&disk.scratch.join("outer.img"), &disk.outer)?;
        image(&disk.inner(), INNER_BYTES)?;
        mount_image(&disk.inner(), &disk.data)?;
        Ok(disk)
    }

    /// Where data directories go.
    pub fn path(&self) -> &Path {
        &self.data
    }

    /// Writes everything to the disk, as time does for what is old: a fresh data directory is not synced by the programs
    /// that make it.
    ///
    /// # Errors
    /// The disk is full.
    pub fn settle(&self) -> io::Result<()> {
        let mount = File::open(&self.data)?;
        // SAFETY: the descriptor is open.
        if unsafe { libc::syncfs(mount.as_raw_fd()) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn inner(&self) -> PathBuf {
        self.outer.join("inner.img")
    }

    fn kept(&self) -> PathBuf {
        self.scratch.join("cut.img")
    }

    /// The power goes: keeps the disk as it is at this moment. The server goes on until it is killed, on a disk that
    /// nobody will look at again.
    ///
    /// # Errors
    /// The file system cannot be frozen, or the copy fails.
    pub fn cut(&mut self) -> io::Result<()> {
        let frozen = Frozen::new(&self.outer)?;
        let copied = copy_sparse(&self.inner(), &self.kept());
        drop(frozen);
        copied
    }

    /// The power comes back: the disk is what was kept. All processes that use it must have ended.
    ///
    /// # Errors
    /// Something still uses it, or the kept image cannot be mounted.
    pub fn restore(&mut self) -> io::Result<()> {
        unmount(&self.data)?;
        fs::remove_file(self.inner())?;
        copy_sparse(&self.kept(), &self.inner())?;
        fs::remove_file(self.kept())?;
        mount_image(&self.inner(), &self.data)
    }
}

impl Drop for PowerDisk {
    fn drop(&mut self) {
        // The namespace would take them along, but its end may be far: the server's processes live in it too.
        let _ = unmount(&self.data);
        let _ = unmount(&self.outer);
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Images of audits that were killed: their mounts went with their namespace. What cannot be removed is in nobody's way.
fn remove_what_others_left(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_string_lossy().parse::<u32>();
        if owner.is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A file system that takes no write until this is dropped.
struct Frozen(File);

impl Frozen {
    fn new(mount: &Path) -> io::Result<Frozen> {
        let file = File::open(mount)?;
        // SAFETY: the descriptor is open, and the argument is ignored by the kernel.
        if unsafe { libc::ioctl(file.as_raw_fd(), FIFREEZE as _, 0) } != 0 {
            let error = io::Error::last_os_error();
            return Err(io::Error::new(error.kind(), format!("freezing {}: {error}", mount.display())));
        }
        Ok(Frozen(file))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // SAFETY: as above. A failure would mean that somebody else thawed it.
        unsafe { libc::ioctl(self.0.as_raw_fd(), FITHAW as _, 0) };
    }
}

fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> io::Result<()> {
    let output = Command::new(program)
        .args(arguments)
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

fn image(path: &Path, bytes: u64) -> io::Result<()> {
    File::create(path)?.set_len(bytes)?;
    // No blocks kept back for anybody, and tables written now rather than by a thread of the kernel later.
    let options = ["-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0"];
    let mut arguments: Vec<&std::ffi::OsStr> = options.iter().map(std::ffi::OsStr::new).collect();
    arguments.push(path.as_os_str());
    run("mkfs.ext4", &arguments)
}

/// The loop device goes by itself when the file system is unmounted.
fn mount_image(image: &Path, at: &Path) -> io::Result<()> {
    run("mount", &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()])
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

fn copy_sparse(from: &Path, to: &Path) -> io::Result<()> {
    run("cp", &["--sparse=always".as_ref(), from.as_os_str(), to.as_os_str()])
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// In a thread of its own, because its mounts are its own.
    #[test]
    fn synced_writes_survive_and_others_do_not() {
        let outcome = std::thread::spawn(|| {
            let place = tempfile::tempdir().unwrap();
            // Of a process that there cannot be: numbers end at 4194304.
            fs::create_dir(place.path().join("4194399")).unwrap();
            let made = PrivateMounts::enter().and_then(|mounts| PowerDisk::create(place.path(), &mounts));
            let mut disk = match made {
                Ok(disk) => disk,
                Err(why) => return Some(why.to_string()),
            };
            let mut synced = File::create(disk.path().join("synced")).unwrap();
            synced.write_all(b"kept").unwrap();
            synced.sync_all().unwrap();
            File::open(disk.path()).unwrap().sync_all().unwrap();
            drop(synced);
            // Somebody else on the machine may say `sync` between the write and the cut, but hardly each time.
            let is_lost = (0..5).any(|attempt| {
                let mut lazy = File::create(disk.path().join(format!("lazy{attempt}"))).unwrap();
                lazy.write_all(b"lost").unwrap();
                disk.cut().unwrap();
                // Too late: the power is gone.
                lazy.sync_all().unwrap();
                drop(lazy);
                disk.restore().unwrap();
                assert_eq!(fs::read(disk.path().join("synced")).unwrap(), b"kept");
                fs::read(disk.path().join(format!("lazy{attempt}"))).unwrap_or_default().is_empty()
            });
            assert!(is_lost);
            drop(disk);
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
            None
        })
        .join()
        .unwrap();
        if let Some(why) = outcome {
            eprintln!("no disk with a power switch here: power cuts are NOT tested: {why}");
        }
    }
}
