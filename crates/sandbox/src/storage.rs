//! Places for data directories.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::limits::Limits;

/// A named place for data directories.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Its name in reports: `nvme`.
    pub name: String,
    /// The directory under which sandboxes make their data directories; `None` is the home, `tmpfs` is one mounted
    /// for the sandbox.
    #[serde(default)]
    pub datadir: Option<PathBuf>,
    /// Limits that make it slower than it is.
    #[serde(default)]
    pub limits: Limits,
}

/// What a place is made of, for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFacts {
    /// File system: `ext4`.
    pub filesystem: String,
    /// Mount point.
    pub mount: PathBuf,
    /// Mount options.
    pub options: String,
    /// Device as the mount names it.
    pub device: String,
    /// I/O scheduler of the device, where it has one.
    pub scheduler: Option<String>,
    /// Whether it spins, where known.
    pub rotational: Option<bool>,
}

/// Bytes that the files below `dir` take on disk.
pub(crate) fn bytes_below(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?)))
        .map(|(path, meta)| if meta.is_dir() { bytes_below(&path) } else { meta.blocks() * 512 })
        .sum()
}

/// Unmounts what we mounted; what is not mounted any more is as good.
pub(crate) fn unmount(mount: &Path) -> Result<(), Error> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(mount.as_os_str().as_bytes())
        .map_err(|e| Error::io("unmount", mount, e.into()))?;
    // SAFETY: a valid C string.
    let rc = unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    let error = std::io::Error::last_os_error();
    if rc == 0 || matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) {
        return Ok(());
    }
    Err(Error::io("unmount", mount, error))
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
