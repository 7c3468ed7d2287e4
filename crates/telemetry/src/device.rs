//! Which block device is under a directory, and what it is.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The device under a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// Numbers as `/proc/diskstats` has them; `None` where no block device is behind the file system (tmpfs).
    pub numbers: Option<(u32, u32)>,
    /// `vda`, `nvme0n1p2`; the file system's name where there is no device.
    pub name: String,
    /// `ext4`, `xfs`, `tmpfs`.
    pub filesystem: String,
    pub options: String,
    /// I/O scheduler in use, where the kernel says.
    pub scheduler: Option<String>,
    /// Whether it is a disk that spins, where the kernel says.
    pub is_rotational: Option<bool>,
    /// Model as the device names itself, where it does.
    pub model: Option<String>,
    /// The file behind a loop device.
    pub backing_file: Option<String>,
}

impl Device {
    /// Finds the device of an existing directory or file. What cannot be found out stays empty.
    pub(crate) fn of(path: &Path) -> std::io::Result<Device> {
        let dev = fs::metadata(path)?.dev();
        let numbers = (libc::major(dev), libc::minor(dev));
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let mount = find_mount(&mounts, numbers, &real);
        let (filesystem, options, source) = mount.unwrap_or_default();
        // File systems with anonymous numbers (btrfs, overlay) name their device as the source of the mount.
        let numbers = if numbers.0 != 0 {
            Some(numbers)
        } else {
            fs::metadata(&source)
                .ok()
                .filter(|m| m.rdev() != 0)
                .map(|m| (libc::major(m.rdev()), libc::minor(m.rdev())))
        };
        let sys = numbers.map(|(major, minor)| PathBuf::from(format!("/sys/dev/block/{major}:{minor}")));
        let name = sys
            .as_ref()
            .and_then(|sys| fs::canonicalize(sys).ok()?.file_name().map(|n| n.to_string_lossy().into_owned()))
            .unwrap_or_else(|| filesystem.clone());
        let queue = |file: &str| read_queue(sys.as_deref()?, file);
        Ok(Device {
            numbers,
            name,
            filesystem,
            options,
            scheduler: queue("scheduler").and_then(|s| chosen(&s)),
            is_rotational: queue("rotational").map(|s| s == "1"),
            model: sys
                .as_deref()
                .and_then(|sys| Some(fs::read_to_string(sys.join("device/model")).ok()?.trim().to_owned())),
            backing_file: sys
                .as_deref()
                .and_then(|sys| fs::read_to_string(sys.join("loop/backing_file")).ok())
                .map(|path| path.trim().to_owned()),
        })
    }

    /// The same device, whatever mount point leads to it: what probe results are kept by.
    pub(crate) fn identity(&self) -> String {
        // A loop device's number says little: its file is what comes back.
        match (self.numbers, &self.backing_file) {
            (_, Some(file)) => format!("loop-{file}-{}", self.filesystem),
            (Some((major, minor)), None) => format!("{}-{major}-{minor}-{}", self.name, self.filesystem),
            (None, None) => self.filesystem.clone(),
        }
    }

    /// Why figures of this place are not those of a disk; `None` where they are.
    pub(crate) fn caveat(&self) -> Option<String> {
        match self.filesystem.as_str() {
            "tmpfs" | "ramfs" => Some("memory, not a disk: a sync costs nothing here".to_owned()),
            "overlay" => Some(
                "an overlay file system hides the device below: figures are those of the overlay".to_owned(),
            ),
            "nfs" | "nfs4" | "cifs" | "9p" | "virtiofs" => {
                Some(format!("{}: the device is on another machine", self.filesystem))
            }
            name if name.starts_with("fuse") => {
                Some(format!("{name}: a program stands between the device and the figures"))
            }
            _ => self.backing_file.as_ref().map(|file| {
                format!("a loop device on {file}: figures are those of a file system on a file system")
            }),
        }
    }

    /// Figures of one such place say nothing about another one, and cannot be kept by device.
    pub(crate) fn has_device(&self) -> bool {
        self.numbers.is_some()
    }
}

/// A file of the device's queue; a partition has none and shares that of its disk.
fn read_queue(sys: &Path, file: &str) -> Option<String> {
    let own = fs::read_to_string(sys.join("queue").join(file));
    let text = own.or_else(|_| fs::read_to_string(sys.join("../queue").join(file))).ok()?;
    Some(text.trim().to_owned())
}

/// `none [mq-deadline] kyber` has chosen mq-deadline.
fn chosen(schedulers: &str) -> Option<String> {
    let inside = schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    inside.or(Some(schedulers).filter(|s| !s.is_empty())).map(str::to_owned)
}

/// File system, options and source of the mount with these device numbers that holds `path` (the longest mount point
/// that is its beginning: one device may be mounted several times).
fn find_mount(mountinfo: &str, numbers: (u32, u32), path: &Path) -> Option<(String, String, String)> {
    let wanted = format!("{}:{}", numbers.0, numbers.1);
    mountinfo
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let left: Vec<&str> = left.split(' ').collect();
            let right: Vec<&str> = right.split(' ').collect();
            let point = unescape(left.get(4)?);
            if *left.get(2)? != wanted || !path.starts_with(&point) {
                return None;
            }
            let options = format!("{},{}", left.get(5)?, right.get(2).copied().unwrap_or(""));
            Some((point.len(), (right.first()?.to_string(), options, unescape(right.get(1)?))))
        })
        .max_by_key(|(length, _)| *length)
        .map(|(_, found)| found)
}

/// Spaces and such stand as `\040` in mountinfo.
fn unescape(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        match after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                out.push(char::from(byte));
                rest = &after[3..];
            }
            None => {
                out.push('\\');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard\n\
        40 27 7:3 / /mnt/my\\040disk rw,noatime - xfs /dev/loop3 rw,attr2\n\
        41 27 254:0 /sub /srv rw,relatime - ext4 /dev/vda rw,discard\n";

    #[test]
    fn mount_of_a_path_is_the_longest_with_its_device() {
        let (fs, options, source) = find_mount(MOUNTS, (7, 3), Path::new("/mnt/my disk/data")).unwrap();
        assert_eq!(
            (fs.as_str(), options.as_str(), source.as_str()),
            ("xfs", "rw,noatime,rw,attr2", "/dev/loop3")
        );
        assert!(find_mount(MOUNTS, (254, 0), Path::new("/srv/data")).is_some());
        assert_eq!(find_mount(MOUNTS, (8, 0), Path::new("/")), None);
    }

    #[test]
    fn scheduler_in_brackets_is_the_chosen_one() {
        assert_eq!(chosen("none [mq-deadline] kyber").as_deref(), Some("mq-deadline"));
        assert_eq!(chosen("none").as_deref(), Some("none"));
        assert_eq!(chosen(""), None);
    }

    #[test]
    fn escapes_of_mountinfo() {
        assert_eq!(unescape("a\\040b\\\\x"), "a b\\\\x");
    }

    #[test]
    fn what_is_no_disk_says_so() {
        let of = |filesystem: &str, backing_file: Option<&str>| Device {
            numbers: Some((7, 3)),
            name: "loop3".to_owned(),
            filesystem: filesystem.to_owned(),
            options: String::new(),
            scheduler: None,
            is_rotational: None,
            model: None,
            backing_file: backing_file.map(str::to_owned),
        };
        assert_eq!(of("ext4", None).caveat(), None);
        for (filesystem, file, word) in [
            ("tmpfs", None, "memory"),
            ("overlay", None, "overlay"),
            ("nfs4", None, "another machine"),
            ("fuse.sshfs", None, "program"),
            ("xfs", Some("/images/a.img"), "/images/a.img"),
        ] {
            assert!(of(filesystem, file).caveat().unwrap().contains(word), "{filesystem}");
        }
        // The same loop device with another file behind it is another device.
        assert_ne!(of("xfs", Some("/images/a.img")).identity(), of("xfs", Some("/images/b.img")).identity());
    }

    #[test]
    fn the_test_directory_has_a_file_system() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!Device::of(dir.path()).unwrap().filesystem.is_empty());
        assert!(Device::of(&dir.path().join("none")).is_err());
    }
}
