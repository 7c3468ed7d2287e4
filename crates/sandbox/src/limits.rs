//! Limits through control groups, version 1 or 2, believed only after they were seen to hold.
//!
//! Version 1 throttles what a process writes itself (O_DIRECT, fsync) but not the kernel's later writeback of what it
//! left in the page cache, so that a server that syncs rarely would escape a limit that a careful one pays. A limit on
//! writes is therefore proved with such writeback before a server is put under it.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::storage::disk_of;

/// Limits on what a server may use. Everything `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Memory, page cache included, in bytes.
    pub memory_bytes: Option<u64>,
    /// Reads a second on the data directory's device.
    pub read_iops: Option<u64>,
    /// Writes a second on the data directory's device.
    pub write_iops: Option<u64>,
    /// Bytes read a second from the data directory's device.
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written a second to the data directory's device.
    pub write_bytes_per_s: Option<u64>,
}

impl Limits {
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }

    fn has_io(&self) -> bool {
        Limits { memory_bytes: None, ..*self } != Limits::default()
    }

    fn has_writes(&self) -> bool {
        self.write_iops.is_some() || self.write_bytes_per_s.is_some()
    }
}

impl std::fmt::Display for Limits {
    /// `memory 512 MiB, 200 reads/s, writes of 2 MiB/s`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = |bytes: u64| match bytes {
            bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
            bytes => format!("{} KiB", bytes >> 10),
        };
        let all = [
            self.memory_bytes.map(|bytes| format!("memory {}", size(bytes))),
            self.read_iops.map(|iops| format!("{iops} reads/s")),
            self.write_iops.map(|iops| format!("{iops} writes/s")),
            self.read_bytes_per_s.map(|bytes| format!("reads of {}/s", size(bytes))),
            self.write_bytes_per_s.map(|bytes| format!("writes of {}/s", size(bytes))),
        ];
        f.write_str(&all.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

/// Where control groups are.
const ROOT: &str = "/sys/fs/cgroup";

fn refuse(what: &str, why: impl Into<String>) -> Error {
    Error::Limit { what: what.to_owned(), why: why.into() }
}

/// Makes the control groups of a sandbox, not yet with any process in them. The caller keeps the paths and removes them
/// with [`remove_group`], also when this fails: those made so far are in `groups`.
pub(crate) fn make(
    limits: &Limits,
    name: &str,
    datadir: &Path,
    groups: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let device = if limits.has_io() { Some(device_of(datadir)?) } else { None };
    let name = format!("plimsoll-{name}-{}", crate::record::serial());
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return make_v2(limits, &name, device.as_deref(), groups);
    }
    make_v1(limits, &name, device.as_deref(), groups)
}

/// `major:minor` of the disk under a directory.
fn device_of(dir: &Path) -> Result<String, Error> {
    disk_of(dir)?.ok_or_else(|| {
        refuse(
            "on the device",
            format!("{} is on a file system without a block device of its own", dir.display()),
        )
    })
}

fn make_v1(
    limits: &Limits,
    name: &str,
    device: Option<&str>,
    groups: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let mut group = |controller: &str| -> Result<PathBuf, Error> {
        let path = Path::new(ROOT).join(controller).join(name);
        fs::create_dir(&path).map_err(|e| {
            refuse(
                controller,
                format!("{} cannot be made ({e}): limits need root and the controller", path.display()),
            )
        })?;
        groups.push(path.clone());
        Ok(path)
    };
    if let Some(device) = device {
        let blkio = group("blkio")?;
        for (file, value) in [
            ("blkio.throttle.read_iops_device", limits.read_iops),
            ("blkio.throttle.write_iops_device", limits.write_iops),
            ("blkio.throttle.read_bps_device", limits.read_bytes_per_s),
            ("blkio.throttle.write_bps_device", limits.write_bytes_per_s),
        ] {
            if let Some(value) = value {
                set(&blkio.join(file), &format!("{device} {value}"))?;
            }
        }
    }
    if let Some(bytes) = limits.memory_bytes {
        set(&group("memory")?.join("memory.limit_in_bytes"), &bytes.to_string())?;
    }
    Ok(())
}

fn make_v2(
    limits: &Limits,
    name: &str,
    device: Option<&str>,
    groups: &mut Vec<PathBuf>,
) -> Result<(), Error> {
    let root = Path::new(ROOT);
    // Controllers are handed to the groups below by the one above; where they are already, this changes nothing.
    for controller in ["+io", "+memory"] {
        let _ = fs::write(root.join("cgroup.subtree_control"), controller);
    }
    let path = root.join(name);
    fs::create_dir(&path).map_err(|e| {
        refuse("by control group", format!("{} cannot be made ({e}): limits need root", path.display()))
    })?;
    groups.push(path.clone());
    if let Some(device) = device {
        let mut line = device.to_owned();
        for (key, value) in [
            ("riops", limits.read_iops),
            ("wiops", limits.write_iops),
            ("rbps", limits.read_bytes_per_s),
            ("wbps", limits.write_bytes_per_s),
        ] {
            if let Some(value) = value {
                line.push_str(&format!(" {key}={value}"));
            }
        }
        set(&path.join("io.max"), &line)?;
    }
    if let Some(bytes) = limits.memory_bytes {
        set(&path.join("memory.max"), &bytes.to_string())?;
    }
    Ok(())
}

fn set(path: &Path, value: &str) -> Result<(), Error> {
    fs::write(path, value).map_err(|e| refuse(value, format!("{} does not take it ({e})", path.display())))
}

/// Least time that a limit must cost for it to be believed, as a share of what it should cost.
const PROOF_SHARE: f64 = 0.5;
/// Largest write of the proof.
const PROOF_BYTES_MAX: u64 = 64 << 20;

/// Proves limits on writes: a process in the groups writes into the page cache and ends, and the time until the device
/// has it all is compared with what the limit allows.
pub(crate) fn prove(limits: &Limits, groups: &[PathBuf], datadir: &Path) -> Result<(), Error> {
    if !limits.has_writes() {
        return Ok(());
    }
    let path = datadir.join("plimsoll-limit-probe");
    let proved = probe(limits, groups, &path);
    let _ = fs::remove_file(&path);
    let (took, expected) = proved.map_err(|e| Error::io("try the limit on", &path, e))?;
    if took.as_secs_f64() >= expected.as_secs_f64() * PROOF_SHARE {
        return Ok(());
    }
    Err(refuse(
        "on writes",
        format!(
            "it does not hold for writeback in the background here: what should take {:.1} s took {:.2} s, so a server \
             that syncs rarely would escape it. Use a kernel with control groups version 2, or a real slower place \
             (storage = {{ datadir = ... }})",
            expected.as_secs_f64(),
            took.as_secs_f64()
        ),
    ))
}

fn probe(limits: &Limits, groups: &[PathBuf], path: &Path) -> io::Result<(Duration, Duration)> {
    const BLOCK: u64 = 4096;
    // About a second's worth under the tighter of the two limits.
    let by_bytes = limits.write_bytes_per_s.map_or(u64::MAX, |bps| bps / BLOCK);
    let by_operations = limits.write_iops.unwrap_or(u64::MAX);
    let blocks = by_bytes.min(by_operations).clamp(8, PROOF_BYTES_MAX / BLOCK);
    // Far apart, so that the kernel cannot join them to fewer operations.
    let stride = if limits.write_iops.is_some() { 1 << 20 } else { BLOCK };
    let expected_s = [
        limits.write_bytes_per_s.map(|bps| (blocks * BLOCK) as f64 / bps as f64),
        limits.write_iops.map(|iops| blocks as f64 / iops as f64),
    ]
    .into_iter()
    .flatten()
    .fold(0.0, f64::max);
    let file = File::options().write(true).create_new(true).open(path)?;
    let entries = groups
        .iter()
        .map(|group| File::options().write(true).open(group.join("cgroup.procs")))
        .collect::<io::Result<Vec<File>>>()?;
    let mut writer = Command::new("/bin/true");
    let target = file.try_clone()?;
    let block = [0x5au8; BLOCK as usize];
    // The writing is done between fork and exec, by a process that is in the groups and then ends.
    let write = move || {
        for entry in &entries {
            // SAFETY: an open descriptor and one readable byte.
            if unsafe { libc::write(entry.as_raw_fd(), c"0".as_ptr().cast(), 1) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        for index in 0..blocks {
            target.write_all_at(&block, index * stride)?;
        }
        Ok(())
    };
    // SAFETY: the closure only writes to open descriptors, which is async-signal-safe.
    unsafe { writer.pre_exec(write) };
    let begin = Instant::now();
    writer.status()?;
    // From outside of the groups: the writeback must be charged to who wrote, not to who waits.
    // SAFETY: the descriptor is open.
    if unsafe { libc::fdatasync(file.as_raw_fd()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((begin.elapsed(), Duration::from_secs_f64(expected_s)))
}

/// Removes a control group whose processes are gone.
pub(crate) fn remove_group(group: &Path) -> Result<(), Error> {
    // The kernel lets go of ended processes a moment after their parent saw them end.
    for _ in 0..200 {
        match fs::remove_dir(group) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => std::thread::sleep(Duration::from_millis(10)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("remove", group, e)),
            _ => return Ok(()),
        }
    }
    Err(Error::io("remove", group, io::Error::from_raw_os_error(libc::EBUSY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_told_in_words() {
        assert_eq!(Limits::default().to_string(), "");
        let limits = Limits {
            memory_bytes: Some(512 << 20),
            read_iops: Some(200),
            write_bytes_per_s: Some(64 << 10),
            ..Limits::default()
        };
        assert_eq!(limits.to_string(), "memory 512 MiB, 200 reads/s, writes of 64 KiB/s");
    }
}
