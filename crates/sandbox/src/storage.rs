//! Places for data directories: what they are made of, and how warm they are.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::limits::Limits;

/// A named place for data directories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Its name in reports: `nvme`.
    pub name: String,
    /// The directory under which sandboxes make their data directories; `None` is the home, `tmpfs` is memory
    /// (/dev/shm).
    #[serde(default)]
    pub datadir: Option<PathBuf>,
    /// Limits that make it slower than it is.
    #[serde(default)]
    pub limits: Limits,
    /// I/O scheduler of its disk while the sandbox lives; `None` leaves it as it is.
    #[serde(default)]
    pub scheduler: Option<String>,
}

/// Least space of /dev/shm for it to be a place for data: containers have 64 MiB by default.
const TMPFS_BYTES_MIN: u64 = 1 << 30;

impl Storage {
    /// A directory as it is.
    pub fn at(name: impl Into<String>, datadir: PathBuf) -> Storage {
        Storage { name: name.into(), datadir: Some(datadir), ..Storage::default() }
    }

    /// Refuses a place that is not there, or that nothing can be made in.
    ///
    /// # Errors
    /// Says which, and what to do.
    pub fn check(&self) -> Result<(), Error> {
        self.place().map(drop)
    }

    /// The directory under which data directories are made, if it is not the home.
    pub(crate) fn place(&self) -> Result<Option<PathBuf>, Error> {
        let Some(datadir) = &self.datadir else { return Ok(None) };
        let is_tmpfs = datadir.as_os_str() == "tmpfs";
        let place = if is_tmpfs { Path::new("/dev/shm") } else { datadir };
        let refuse = |what: &str, why: &str| {
            Err(Error::Unsupported { what: format!("{} {what}", place.display()), why: why.to_owned() })
        };
        // One that is missing is a name misspelt or a disk that is not mounted: made anew it would be on another disk.
        let Some(place) = place.canonicalize().ok().filter(|place| place.is_dir()) else {
            return refuse("is no directory of this machine", "mount the disk, or make the directory");
        };
        if let Err(error) = rustix::fs::access(&place, Access::WRITE_OK | Access::EXEC_OK) {
            return refuse("cannot be written", &format!("{error}: name a directory that can"));
        }
        if is_tmpfs && free_bytes(&place)? < TMPFS_BYTES_MIN {
            return Err(Error::Unsupported {
                what: "storage in memory".to_owned(),
                why: "/dev/shm has less than 1 GiB free: mount a tmpfs elsewhere and name its directory"
                    .to_owned(),
            });
        }
        Ok(Some(place))
    }
}

/// What a place is made of, for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFacts {
    /// File system: `ext4`.
    pub filesystem: String,
    pub mount: PathBuf,
    pub options: String,
    /// Device as the mount names it.
    pub device: String,
    /// Its number, `major:minor`; that of the whole disk where it is a partition.
    pub number: String,
    /// I/O scheduler of the device, where it has one.
    pub scheduler: Option<String>,
    /// Whether it spins, where known.
    pub rotational: Option<bool>,
    /// The file that it lies in, where its device is a loop device.
    #[serde(default)]
    pub image: Option<ImageFacts>,
}

/// What a file is made of that a loop device shows as a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageFacts {
    pub filesystem: String,
    /// The device of that, as the mount names it.
    pub device: String,
    /// Number of the whole disk, `major:minor`.
    pub number: String,
    /// I/O scheduler of the disk, where it has one.
    pub scheduler: Option<String>,
    /// Whether the loop device goes past the page cache.
    pub direct_io: bool,
}

impl StorageFacts {
    /// No device keeps what is here when the power goes.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.filesystem.as_str(), "tmpfs" | "ramfs")
    }
}

/// What the place of `path` is made of.
pub fn facts(path: &Path) -> Result<StorageFacts, Error> {
    let path = path.canonicalize().map_err(|e| Error::io("find", path, e))?;
    let mount = mount_over(&path)?;
    let device = device_of(&path, &mount)?;
    let number = whole_disk(device).unwrap_or_else(|| number_of(device));
    let queue = Path::new("/sys/dev/block").join(&number).join("queue");
    let read = |name: &str| fs::read_to_string(queue.join(name)).ok().map(|text| text.trim().to_owned());
    Ok(StorageFacts {
        scheduler: read("scheduler").map(|line| chosen(&line)),
        rotational: read("rotational").map(|text| text == "1"),
        image: image_of(&number),
        number,
        ..mount
    })
}

fn mount_over(path: &Path) -> Result<StorageFacts, Error> {
    let table = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| Error::io("read", "/proc/self/mountinfo", e))?;
    mount_of(&table, path)
        .ok_or_else(|| Error::io("find the mount of", path, std::io::ErrorKind::NotFound.into()))
}

/// The number of the device below. What btrfs gives its files is no device's (major number 0): its mount names the device.
fn device_of(path: &Path, mount: &StorageFacts) -> Result<u64, Error> {
    let device = fs::metadata(path).map_err(|e| Error::io("look at", path, e))?.dev();
    let named = || fs::metadata(&mount.device).ok().map(|of| of.rdev()).filter(|number| *number != 0);
    Ok(if libc::major(device) == 0 { named().unwrap_or(device) } else { device })
}

/// `major:minor` of the disk that an existing directory or file lies on; `None` for file systems without one.
pub(crate) fn disk_of(path: &Path) -> Result<Option<String>, Error> {
    let path = path.canonicalize().map_err(|e| Error::io("find", path, e))?;
    Ok(whole_disk(device_of(&path, &mount_over(&path)?)?))
}

/// The file of a loop device, by the device's number.
fn image_of(number: &str) -> Option<ImageFacts> {
    let device = Path::new("/sys/dev/block").join(number).join("loop");
    let read = |name: &str| fs::read_to_string(device.join(name)).ok().map(|text| text.trim().to_owned());
    let below = facts(Path::new(&read("backing_file")?)).ok()?;
    Some(ImageFacts {
        direct_io: read("dio")? == "1",
        filesystem: below.filesystem,
        device: below.device,
        number: below.number,
        scheduler: below.scheduler,
    })
}

/// `major:minor` of a device number.
fn number_of(device: u64) -> String {
    format!("{}:{}", libc::major(device), libc::minor(device))
}

/// `major:minor` of the disk that a block device is, or is a part of; `None` for file systems without one.
fn whole_disk(device: u64) -> Option<String> {
    let own = Path::new("/sys/dev/block").join(number_of(device)).canonicalize().ok()?;
    let disk = if own.join("partition").exists() { own.parent()?.to_owned() } else { own };
    Some(fs::read_to_string(disk.join("dev")).ok()?.trim().to_owned())
}

/// The scheduler in brackets: `none [mq-deadline] kyber`.
pub(crate) fn chosen(line: &str) -> String {
    let inside = line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(inside, _)| inside);
    inside.unwrap_or(line).to_owned()
}

/// The innermost mount that holds `path`; of two at one point the later one (proc(5), mountinfo).
fn mount_of(table: &str, path: &Path) -> Option<StorageFacts> {
    let mut best: Option<StorageFacts> = None;
    for line in table.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let (left, right): (Vec<&str>, Vec<&str>) = (left.split(' ').collect(), right.split(' ').collect());
        let (Some(mount), Some(options), Some(number)) = (left.get(4), left.get(5), left.get(2)) else {
            continue;
        };
        let (Some(filesystem), Some(device)) = (right.first(), right.get(1)) else { continue };
        let mount = PathBuf::from(mount.replace("\\040", " "));
        let depth = |m: &Path| m.components().count();
        if !path.starts_with(&mount) || best.as_ref().is_some_and(|b| depth(&b.mount) > depth(&mount)) {
            continue;
        }
        // Options of the mount, then those of the file system that it does not repeat.
        let mut all: Vec<&str> = options.split(',').collect();
        all.extend(
            right
                .get(2)
                .unwrap_or(&"")
                .split(',')
                .filter(|o| !o.is_empty() && !options.split(',').any(|x| x == *o)),
        );
        best = Some(StorageFacts {
            filesystem: (*filesystem).to_owned(),
            mount,
            options: all.join(","),
            device: (*device).to_owned(),
            number: (*number).to_owned(),
            scheduler: None,
            rotational: None,
            image: None,
        });
    }
    best
}

/// Empties the page cache of what is below `dir`, for a cold start: all of the machine's as root, else the files' own,
/// one by one. The server must not run. Returns whether the whole cache was dropped.
pub fn drop_caches(dir: &Path) -> Result<bool, Error> {
    // Dirty pages cannot be dropped.
    // SAFETY: sync has no preconditions.
    unsafe { libc::sync() };
    if fs::write("/proc/sys/vm/drop_caches", "3").is_ok() {
        return Ok(true);
    }
    evict_files(dir)?;
    Ok(false)
}

/// Empties the page cache of the files below `dir`, whoever brought them there.
pub(crate) fn evict(dir: &Path) -> Result<(), Error> {
    // Dirty pages cannot be dropped.
    sync_filesystem(dir)?;
    evict_files(dir)
}

/// Has the file system of a directory on the disk, with all that was written to it.
pub(crate) fn sync_filesystem(dir: &Path) -> Result<(), Error> {
    use std::os::fd::AsRawFd;
    let file = fs::File::open(dir).map_err(|e| Error::io("open", dir, e))?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::syncfs(file.as_raw_fd()) } != 0 {
        return Err(Error::io("write", dir, std::io::Error::last_os_error()));
    }
    Ok(())
}

fn evict_files(dir: &Path) -> Result<(), Error> {
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).map_err(|e| Error::io("read", &folder, e))?.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file()
                && let Ok(file) = fs::File::open(entry.path())
            {
                forget(&file);
            }
        }
    }
    Ok(())
}

/// Asks the kernel to drop a file's clean pages. It is advice: what the kernel keeps, it keeps.
pub(crate) fn forget(file: &fs::File) {
    // A failure leaves the cache as it is.
    let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
}

/// Bytes that the files below `dir` take on disk.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
        .map(|(path, meta)| if meta.is_dir() { bytes_below(&path) } else { meta.blocks() * 512 })
        .sum()
}

/// Bytes that may still be written to the file system of `dir` (by whoever asks: root has a reserve).
pub fn free_bytes(dir: &Path) -> Result<u64, Error> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(dir.as_os_str().as_bytes())
        .map_err(|e| Error::io("look at", dir, e.into()))?;
    // SAFETY: an all-zero statvfs is valid, and both pointers are for the time of the call.
    let (rc, facts) = unsafe {
        let mut facts: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut facts), facts)
    };
    if rc != 0 {
        return Err(Error::io("look at the space of", dir, std::io::Error::last_os_error()));
    }
    Ok(facts.f_bavail * facts.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_mount_is_taken() {
        let table = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                     30 22 0:25 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1k\n\
                     31 22 259:1 / /mnt/my\\040disk rw,noatime - xfs /dev/nvme0n1p1 rw\n";
        let check = |path: &str, filesystem: &str, device: &str, options: &str| {
            let facts = mount_of(table, Path::new(path)).unwrap();
            assert_eq!((facts.filesystem.as_str(), facts.device.as_str()), (filesystem, device), "{path}");
            assert_eq!(facts.options, options);
        };
        check("/var/lib/x", "ext4", "/dev/vda", "rw,relatime,discard");
        check("/dev/shm/x", "tmpfs", "tmpfs", "rw,nosuid,size=1k");
        check("/mnt/my disk/x", "xfs", "/dev/nvme0n1p1", "rw,noatime");
        check("/mnt", "ext4", "/dev/vda", "rw,relatime,discard");
        assert_eq!(chosen("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(chosen("none"), "none");
    }

    #[test]
    fn this_machine_has_facts_and_space() {
        let facts = facts(Path::new("/")).unwrap();
        assert!(!facts.filesystem.is_empty() && facts.mount == Path::new("/"));
        assert!(free_bytes(Path::new("/tmp")).unwrap() > 0);
    }
}
