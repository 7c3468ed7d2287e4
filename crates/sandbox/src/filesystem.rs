//! File systems that are made for a study: an image on a given disk, reached through a loop device that does direct I/O, and
//! mounted for as long as somebody measures on it.
//!
//! The image's blocks are written before the file system is made: a server whose first writes had to give the image its
//! blocks would wait for the disk's own file system. For the same reason nothing is discarded.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::record::{Lock, is_root, serial};
use crate::{Error, Home, OnProgress, Progress, storage};

/// What is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FilesystemWish {
    /// ext4, xfs or btrfs.
    pub filesystem: Filesystem,
    /// Mount options, as mount(8) takes them: `noatime`.
    pub options: Vec<String>,
    pub size_bytes: u64,
    /// The directory, on the disk that is meant, where the image is made; `None`: Plimsoll's home.
    pub on: Option<PathBuf>,
}

/// A file system that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Filesystem {
    Ext4,
    Xfs,
    Btrfs,
}

/// Names of those that can be made.
pub const NAMES: [&str; 3] = ["ext4", "xfs", "btrfs"];

/// Least size of an image: what an empty server takes, beside the gibibyte that is left free on each place.
pub const IMAGE_BYTES_MIN: u64 = 2 << 30;

/// Left free on the disk beside the image.
const SPARE_BYTES: u64 = 1 << 30;

impl Filesystem {
    /// `ext4`.
    pub fn name(self) -> &'static str {
        NAMES[self as usize]
    }

    /// The program that makes it, with arguments that keep what was written of the image and leave nothing to be done
    /// in the background later.
    fn maker(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Filesystem::Ext4 => {
                ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"])
            }
            Filesystem::Xfs => ("mkfs.xfs", &["-q", "-f", "-K"]),
            Filesystem::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"]),
        }
    }

    /// Debian's package of its program.
    fn package(self) -> &'static str {
        match self {
            Filesystem::Ext4 => "e2fsprogs",
            Filesystem::Xfs => "xfsprogs",
            Filesystem::Btrfs => "btrfs-progs",
        }
    }

    /// Options that keep the image's blocks written, where its default is to give them back.
    fn own_options(self, asked: &[String]) -> Vec<String> {
        let is_asked = asked.iter().any(|option| option.contains("discard"));
        if self == Filesystem::Btrfs && !is_asked { vec!["nodiscard".to_owned()] } else { Vec::new() }
    }
}

impl std::str::FromStr for Filesystem {
    type Err = Error;

    fn from_str(name: &str) -> Result<Filesystem, Error> {
        let all = [Filesystem::Ext4, Filesystem::Xfs, Filesystem::Btrfs];
        all.into_iter().find(|one| one.name() == name).ok_or_else(|| Error::Unsupported {
            what: format!("the file system {name}"),
            why: format!("one of {} can be made", NAMES.join(", ")),
        })
    }
}

/// Whether a mount option is about the file system alone: not about who may mount it, where, or on which devices.
pub fn is_allowed_option(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or_default();
    const NOT_OURS: &str = "bind rbind move remount ro loop offset sizelimit user users owner group noauto defaults \
                            device journal_dev journal_path logdev";
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_=.:-".contains(c);
    !name.is_empty()
        && option.chars().all(is_plain)
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !NOT_OURS.split(' ').any(|option| option == name)
        && name != "rtdev"
        && !name.starts_with("x-")
}

/// Whether such a file system can be made on this machine, before anything is measured.
///
/// # Errors
/// We are not root, a program is missing, or there is no such directory.
pub fn check(wish: &FilesystemWish) -> Result<(), Error> {
    let refuse = |why: String| {
        let what = format!("making a file system ({})", wish.filesystem.name());
        Err(Error::Unsupported { what, why })
    };
    if !is_root() {
        return refuse("only root can mount one: run plimsoll as root".to_owned());
    }
    for (program, package) in [
        (wish.filesystem.maker().0, wish.filesystem.package()),
        ("losetup", "mount"),
        ("mount", "mount"),
        ("umount", "mount"),
    ] {
        if program_path(program).is_none() {
            return refuse(format!("there is no {program}: install it (apt-get install {package})"));
        }
    }
    let Some(on) = &wish.on else { return Ok(()) };
    let Some(about) = fs::metadata(on).ok().filter(fs::Metadata::is_dir) else {
        return refuse(format!("{} is no directory: name one on the disk that is meant", on.display()));
    };
    // Whoever could put another file in the place of the image would have it mounted by root.
    let is_sticky = about.mode() & 0o1000 != 0;
    if about.uid() != 0 || (about.mode() & 0o022 != 0 && !is_sticky) {
        return refuse(format!("others than root can write {}: name a directory of root's", on.display()));
    }
    Ok(())
}

/// What is written down about one, so that any later process can remove it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    /// Name of the machine that mounted it: a home may be shared.
    host: String,
    image: PathBuf,
}

/// A file system of ours, mounted; dropping it unmounts and removes it.
#[derive(Debug)]
pub struct MadeFilesystem {
    dir: PathBuf,
    record: Record,
    /// Options that were asked for and that the kernel does not show.
    pub unseen: Vec<String>,
    is_closed: bool,
    _lock: Lock,
}

impl MadeFilesystem {
    /// Makes and mounts one. `is_stopped` is asked while the image is written.
    ///
    /// # Errors
    /// What [`check`] refuses; the disk has no room; a program failed, with its own words; direct I/O is not possible.
    pub fn make(
        home: &Home,
        name: &str,
        wish: &FilesystemWish,
        progress: OnProgress<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<MadeFilesystem, Error> {
        check(wish)?;
        let on = wish.on.as_deref().unwrap_or(home.path());
        let on = on.canonicalize().map_err(|e| Error::io("find", on, e))?;
        let free = storage::free_bytes(&on)?;
        if free < wish.size_bytes + SPARE_BYTES {
            let mib = |bytes: u64| bytes >> 20;
            return Err(Error::Unsupported {
                what: format!("a file system of {} MiB on {}", mib(wish.size_bytes), on.display()),
                why: format!(
                    "{} MiB are free there, and 1 GiB is left so: make `size` smaller, or place it `on` another disk",
                    mib(free)
                ),
            });
        }
        let places = home.filesystems();
        fs::create_dir_all(&places).map_err(|e| Error::io("create", &places, e))?;
        let unique = format!("{name}-{}-{}", std::process::id(), serial());
        let dir = places.join(&unique);
        fs::DirBuilder::new().mode(0o711).create(&dir).map_err(|e| Error::io("create", &dir, e))?;
        let busy = || Error::Busy { what: format!("the file system {unique}"), holder: None };
        let lock = Lock::take(&dir, std::time::Duration::ZERO)?.ok_or_else(busy)?;
        let record = Record { host: host_name(), image: on.join(format!("plimsoll-{unique}.img")) };
        let made = MadeFilesystem { dir, record, unseen: Vec::new(), is_closed: false, _lock: lock };
        made.write_record()?;
        made.fill(wish, progress, is_stopped)
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.dir.join("mount")
    }

    /// Unmounts and removes it.
    ///
    /// # Errors
    /// Somebody still uses it; what is left is tried again by the next plimsoll.
    pub fn close(mut self) -> Result<(), Error> {
        self.is_closed = true;
        remove(&self.dir, &self.record)
    }

    fn write_record(&self) -> Result<(), Error> {
        let path = self.dir.join("filesystem.json");
        let text = serde_json::to_vec(&self.record).map_err(|e| Error::io("write", &path, e.into()))?;
        fs::write(&path, text).map_err(|e| Error::io("write", &path, e))
    }

    fn fill(
        mut self,
        wish: &FilesystemWish,
        progress: OnProgress<'_>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<MadeFilesystem, Error> {
        let (name, image) = (wish.filesystem.name(), self.record.image.clone());
        progress(Progress::Step(format!("writing an image for {name} on {}", image.display())));
        write_zeros(&image, wish.size_bytes, progress, is_stopped)?;
        progress(Progress::Step(format!("making {name}")));
        let arguments: [&std::ffi::OsStr; 4] =
            ["--find".as_ref(), "--show".as_ref(), "--direct-io=on".as_ref(), image.as_ref()];
        let device = run("losetup", &arguments)?.trim().to_owned();
        let (program, arguments) = wish.filesystem.maker();
        let mut all: Vec<&std::ffi::OsStr> = arguments.iter().map(|text| text.as_ref()).collect();
        all.push(device.as_ref());
        run(program, &all)?;
        let mount = self.path();
        fs::create_dir(&mount).map_err(|e| Error::io("create", &mount, e))?;
        let mut options = wish.options.clone();
        options.extend(wish.filesystem.own_options(&wish.options));
        options.push("rw".to_owned());
        let options = options.join(",");
        run(
            "mount",
            &["-t".as_ref(), name.as_ref(), "-o".as_ref(), options.as_ref(), device.as_ref(), mount.as_ref()],
        )?;
        // From now on the device goes when the file system is unmounted.
        run("losetup", &["--detach".as_ref(), device.as_ref()])?;
        self.read_back(wish)?;
        Ok(self)
    }

    /// What was asked for, held against what the kernel says.
    fn read_back(&mut self, wish: &FilesystemWish) -> Result<(), Error> {
        let facts = storage::facts(&self.path())?;
        let what = format!("a file system ({}) on {}", wish.filesystem.name(), self.record.image.display());
        if facts.filesystem != wish.filesystem.name() {
            return Err(Error::Unsupported { what, why: format!("{} was mounted", facts.filesystem) });
        }
        if !facts.image.as_ref().is_some_and(|image| image.direct_io) {
            return Err(Error::Unsupported {
                what,
                why: "direct I/O is not possible there, and without it the disk's page cache would be measured: place \
                      it `on` another disk"
                    .to_owned(),
            });
        }
        let shown: Vec<&str> = facts.options.split(',').collect();
        self.unseen = wish.options.iter().filter(|o| !shown.contains(&o.as_str())).cloned().collect();
        Ok(())
    }
}

impl Drop for MadeFilesystem {
    fn drop(&mut self) {
        if !self.is_closed {
            // What cannot be removed now is tried again by the next plimsoll.
            let _ = remove(&self.dir, &self.record);
        }
    }
}

/// Unmounts and removes what crashed plimsolls left on this machine. Returns their names.
pub(crate) fn leftovers(home: &Home) -> Result<Vec<String>, Error> {
    let Ok(entries) = fs::read_dir(home.filesystems()) else { return Ok(Vec::new()) };
    let mut removed = Vec::new();
    for dir in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        // Whoever measures on it holds its lock.
        let Some(_lock) = Lock::of_leftover(&dir)? else { continue };
        let text = fs::read(dir.join("filesystem.json")).unwrap_or_default();
        let Ok(record) = serde_json::from_slice::<Record>(&text) else { continue };
        if record.host == host_name() {
            remove(&dir, &record)?;
            removed.extend(dir.file_name().map(|name| format!("file system {}", name.to_string_lossy())));
        }
    }
    Ok(removed)
}

fn remove(dir: &Path, record: &Record) -> Result<(), Error> {
    let mount = dir.join("mount");
    let is_mounted = storage::facts(&mount).is_ok_and(|facts| facts.mount == mount);
    if is_mounted {
        run("umount", &[mount.as_ref()])?;
    }
    if record.image.exists() {
        // One whose process died before it was mounted.
        let devices = run("losetup", &["--associated".as_ref(), record.image.as_ref()])?;
        for device in devices.lines().filter_map(|line| line.split(':').next()) {
            run("losetup", &["--detach".as_ref(), device.as_ref()])?;
        }
        fs::remove_file(&record.image).map_err(|e| Error::io("remove", &record.image, e))?;
    }
    if mount.exists() {
        // Never recursively: if it were mounted after all, its data are not ours to remove here.
        fs::remove_dir(&mount).map_err(|e| Error::io("remove", &mount, e))?;
    }
    fs::remove_dir_all(dir).map_err(|e| Error::io("remove", dir, e))
}

/// Writes the image's blocks, past the page cache in the end.
fn write_zeros(
    path: &Path,
    bytes: u64,
    progress: OnProgress<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<(), Error> {
    const PIECE: usize = 8 << 20;
    let fail = |e| Error::io("write", path, e);
    let mut file: File =
        fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
    let zeros = vec![0; PIECE];
    let mut done = 0;
    while done < bytes {
        if is_stopped() {
            return Err(Error::Interrupted);
        }
        let piece = usize::try_from(bytes - done).map_or(PIECE, |left| left.min(PIECE));
        file.write_all(&zeros[..piece]).map_err(fail)?;
        done += piece as u64;
        progress(Progress::Bytes { done, total: Some(bytes) });
    }
    file.sync_all().map_err(fail)?;
    storage::forget(&file);
    Ok(())
}

/// Where a program is: administrators' directories are not on everybody's path.
fn program_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(administrators)
        .map(|dir| dir.join(program))
        .find(|path| path.is_file())
}

/// Runs a program of the system; what it prints.
fn run(program: &str, arguments: &[&std::ffi::OsStr]) -> Result<String, Error> {
    let path = program_path(program).unwrap_or_else(|| program.into());
    let fail = |e| Error::io("run", &path, e);
    let output = Command::new(&path).args(arguments).stdin(Stdio::null()).output().map_err(fail)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let arguments: Vec<_> = arguments.iter().map(|text| text.to_string_lossy()).collect();
    let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
    Err(Error::Unsupported {
        what: format!("{program} {}", arguments.join(" ")),
        why: if said.is_empty() { output.status.to_string() } else { said },
    })
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_of_the_file_system_alone() {
        for option in ["noatime", "sync", "data=writeback", "commit=60", "compress=zstd:3", "logbsize=256k"] {
            assert!(is_allowed_option(option), "{option}");
        }
        for option in
            ["", "ro", "remount", "x-mount.mkdir", "loop", "logdev=sdb", "a,b", "-o", "data=/dev/vda", "Bind"]
        {
            assert!(!is_allowed_option(option), "{option}");
        }
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused() {
        let wish = FilesystemWish {
            filesystem: Filesystem::Ext4,
            options: Vec::new(),
            size_bytes: IMAGE_BYTES_MIN,
            on: Some("/no/such/disk".into()),
        };
        let error = check(&wish).unwrap_err().to_string();
        assert!(error.contains("/no/such/disk is no directory") || error.contains("only root"), "{error}");
    }
}
