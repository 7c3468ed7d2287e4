//! Writing below one folder and nowhere else.
//!
//! What is in an archive is somebody else's: each step of a member's path is opened by itself, from the descriptor of
//! the folder above it, and no step follows a link (what openat2(2) calls RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, on
//! every kernel).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;

/// The folder.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
}

/// How a folder is opened: not through a link, and only if it is one.
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A name that leads nowhere but down.
fn parts(name: &Path) -> io::Result<Vec<&OsStr>> {
    let mut parts = Vec::new();
    for component in name.components() {
        match component {
            Component::CurDir => {}
            Component::Normal(part) => parts.push(part),
            _ => return Err(io::ErrorKind::InvalidFilename.into()),
        }
    }
    if parts.is_empty() { Err(io::ErrorKind::InvalidFilename.into()) } else { Ok(parts) }
}

impl Root {
    /// The folder `path`, which exists.
    pub(crate) fn open(path: &Path) -> io::Result<Root> {
        Ok(Root { dir: rustix::fs::open(path, FOLDER, Mode::empty())? })
    }

    /// The folder that a member lies in, and the member's name in it. Folders on the way are made, passable for
    /// other uids whatever the umask is, when `is_made`.
    fn place<'a>(&self, name: &'a Path, is_made: bool) -> io::Result<(OwnedFd, &'a OsStr)> {
        let mut parts = parts(name)?;
        let last = parts.pop().ok_or(io::ErrorKind::InvalidFilename)?;
        let mut dir = self.dir.try_clone()?;
        for part in parts {
            let open = |dir: &OwnedFd| rustix::fs::openat(dir, part, FOLDER, Mode::empty());
            dir = match open(&dir) {
                Err(Errno::NOENT) if is_made => {
                    rustix::fs::mkdirat(&dir, part, Mode::from_raw_mode(0o755))?;
                    let made = open(&dir)?;
                    rustix::fs::fchmod(&made, Mode::from_raw_mode(0o755))?;
                    made
                }
                other => other?,
            };
        }
        Ok((dir, last))
    }

    /// The same, and whatever had the name before is gone: a later member replaces an earlier one, as with tar.
    fn free_place<'a>(&self, name: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let (dir, last) = self.place(name, true)?;
        match rustix::fs::unlinkat(&dir, last, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok((dir, last)),
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn create(&self, name: &Path) -> io::Result<File> {
        let (dir, last) = self.free_place(name)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(dir, last, flags, Mode::from_raw_mode(0o644))?.into())
    }

    /// A symbolic link; where it may lead is for [`stray_link`] to say.
    pub(crate) fn symlink(&self, target: &Path, name: &Path) -> io::Result<()> {
        let (dir, last) = self.free_place(name)?;
        Ok(rustix::fs::symlinkat(target, dir, last)?)
    }

    /// A second name of a plain file. One of a link would take the link to another depth, from where it leads
    /// elsewhere.
    pub(crate) fn hard_link(&self, target: &Path, name: &Path) -> io::Result<()> {
        let (from, from_name) = self.place(target, false)?;
        let what = rustix::fs::statat(&from, from_name, AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(what.st_mode) != FileType::RegularFile {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (dir, last) = self.free_place(name)?;
        Ok(rustix::fs::linkat(from, from_name, dir, last, AtFlags::empty())?)
    }

    pub(crate) fn read(&self, name: &Path) -> io::Result<File> {
        let (dir, last) = self.place(name, false)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file: File = rustix::fs::openat(dir, last, flags, Mode::empty())?.into();
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::ErrorKind::InvalidInput.into()) }
    }

    /// Whether something has the name, be it a link.
    pub(crate) fn has(&self, name: &Path) -> bool {
        let place = self.place(name, false);
        place.is_ok_and(|(dir, last)| rustix::fs::statat(dir, last, AtFlags::SYMLINK_NOFOLLOW).is_ok())
    }

    /// Names of the plain files in a folder; none where it is a link or is not there.
    pub(crate) fn files_in(&self, folder: &Path) -> Vec<OsString> {
        let named = |(dir, last): (OwnedFd, &OsStr)| rustix::fs::openat(dir, last, FOLDER, Mode::empty());
        let Ok(dir) = self.place(folder, false).and_then(|place| Ok(named(place)?)) else {
            return Vec::new();
        };
        let is_file = |kind: FileType| kind == FileType::RegularFile;
        entries(&dir)
            .unwrap_or_default()
            .into_iter()
            .filter(|(_, kind)| is_file(*kind))
            .map(|(n, _)| n)
            .collect()
    }

    pub(crate) fn remove(&self, name: &Path) -> io::Result<()> {
        let (dir, last) = self.place(name, false)?;
        Ok(rustix::fs::unlinkat(dir, last, AtFlags::empty())?)
    }

    /// The first link below the folder that leads out of it, with its target. Links are looked at where they really
    /// lie, and none is followed.
    pub(crate) fn stray_link(&self) -> io::Result<Option<(OsString, OsString)>> {
        stray_link_below(&self.dir.try_clone()?, 0)
    }
}

/// Names and kinds of what is in a folder.
fn entries(dir: &OwnedFd) -> io::Result<Vec<(OsString, FileType)>> {
    use std::os::unix::ffi::OsStrExt;
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(dir)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name == "." || name == ".." {
            continue;
        }
        // Some file systems do not tell kinds in a listing.
        let what = rustix::fs::statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        found.push((name.to_owned(), FileType::from_raw_mode(what.st_mode)));
    }
    Ok(found)
}

/// Deeper folders than a server's build has, and than a recursion should go.
const FOLDERS_MAX: usize = 64;

fn stray_link_below(dir: &OwnedFd, depth: usize) -> io::Result<Option<(OsString, OsString)>> {
    use std::os::unix::ffi::OsStrExt;
    if depth > FOLDERS_MAX {
        return Err(io::Error::other(format!("folders are nested more than {FOLDERS_MAX} deep")));
    }
    for (name, kind) in entries(dir)? {
        let stray = match kind {
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(dir, &name, Vec::new())?;
                let target = OsStr::from_bytes(target.as_bytes()).to_owned();
                (!stays_below(depth, Path::new(&target))).then_some((name, target))
            }
            FileType::Directory => {
                stray_link_below(&rustix::fs::openat(dir, &name, FOLDER, Mode::empty())?, depth + 1)?
            }
            _ => None,
        };
        if stray.is_some() {
            return Ok(stray);
        }
    }
    Ok(None)
}

/// A link in a folder so many steps below the root may climb no further than to the root, and only at its beginning:
/// once it goes down, a step up could leave through another link.
pub(crate) fn stays_below(depth: usize, target: &Path) -> bool {
    let mut ups = 0;
    let mut is_down = false;
    for component in target.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir if !is_down => ups += 1,
            Component::Normal(_) => is_down = true,
            _ => return false,
        }
    }
    !target.as_os_str().is_empty() && ups <= depth
}
