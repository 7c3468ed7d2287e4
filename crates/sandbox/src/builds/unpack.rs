//! Unpacking archives: jar and zip, tar plain or packed by gzip, xz or zstd, and archives within archives.
//!
//! An archive is not trusted: members that would land outside the target folder are refused, by their name, through
//! a link, or as one, and so is one that unpacks to more than any server does.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

use super::beneath::{self, Root};
use super::catalogue::Take;
use crate::{Error, OnProgress, Progress};

/// Archives in archives in archives: deeper than any real one.
const DEPTH_MAX: u32 = 3;
/// More members than any real one: the catalogue's have up to 9,600.
const MEMBERS_MAX: u64 = 1 << 19;
/// A build unpacks to at most so many times its archive, beside [`GROWTH_FREE_BYTES`]: the catalogue's do to four times;
/// what grows so much is zeros, made to fill a disk.
const GROWTH_MAX: u64 = 60;
/// So much may come of the smallest archive.
const GROWTH_FREE_BYTES: u64 = 64 << 20;

/// What a member is.
enum Kind {
    File { is_executable: bool },
    Symlink(PathBuf),
    Hardlink(PathBuf),
}

/// Unpacks what `take` names (everything when it is empty) into `into`, which exists.
pub(crate) fn unpack(
    archive: &Path,
    take: &[Take],
    into: &Path,
    progress: OnProgress<'_>,
) -> Result<(), Error> {
    let fail = |e| Error::io("unpack into", into, e);
    let packed = fs::metadata(archive).map_err(|e| Error::io("open", archive, e))?.len();
    let most = GROWTH_FREE_BYTES.saturating_add(packed.saturating_mul(GROWTH_MAX));
    let mut unpacker = Unpacker {
        archive,
        into,
        root: Root::open(into).map_err(fail)?,
        progress,
        meter: Rc::new(Meter { read: Cell::new(0), left: Cell::new(most) }),
        room: most,
        free: crate::storage::free_bytes(into)?,
        depth: 0,
        stage: Stage::Written,
        shown: 0,
        done: 0,
        total: None,
        members: 0,
    };
    unpacker.unpack(archive, take)?;
    let stray = unpacker.root.stray_link().map_err(fail)?;
    stray.map_or(Ok(()), |(name, target)| Err(unpacker.stray(&name.to_string_lossy(), Path::new(&target))))
}

/// What went through the readers.
#[derive(Debug)]
struct Meter {
    /// Bytes of the archive that is being read, for the progress.
    read: Cell<u64>,
    /// Bytes that its streams may still unpack to.
    left: Cell<u64>,
}

/// Counts what is read of an archive.
struct Counted<R> {
    from: R,
    meter: Rc<Meter>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        self.meter.read.set(self.meter.read.get() + length as u64);
        Ok(length)
    }
}

/// Ends a stream that unpacks to more than any server does: members that are left out cost time, too.
struct Bounded<R> {
    from: R,
    meter: Rc<Meter>,
}

const TOO_MUCH: &str =
    "it unpacks to far more than a server's build, as archives do that are made to fill a disk";

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.from.read(buffer)?;
        let left = self.meter.left.get().checked_sub(length as u64);
        self.meter.left.set(left.ok_or_else(|| io::Error::new(io::ErrorKind::QuotaExceeded, TOO_MUCH))?);
        Ok(length)
    }
}

struct Unpacker<'a> {
    archive: &'a Path,
    into: &'a Path,
    root: Root,
    progress: OnProgress<'a>,
    meter: Rc<Meter>,
    /// Bytes that may still be written: of a sparse member more is written than is read.
    room: u64,
    /// Bytes that the disk had free at the beginning and were not written since.
    free: u64,
    depth: u32,
    stage: Stage,
    /// What was last shown, in [`SHOWN_EVERY`].
    shown: u64,
    /// Bytes of steps that are over: a member written, an archive read to its end.
    done: u64,
    total: Option<u64>,
    members: u64,
}

/// What tells how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Bytes written of a zip's members.
    Written,
    Read,
    /// An archive around this one.
    Outer,
}

/// Between two reports of the progress.
const SHOWN_EVERY: u64 = 1 << 24;

impl Unpacker<'_> {
    fn refuse(&self, why: impl Into<String>) -> Error {
        Error::Archive { path: self.archive.to_owned(), why: why.into() }
    }

    fn corrupt(&self, error: &io::Error) -> Error {
        if error.kind() == io::ErrorKind::QuotaExceeded {
            return self.refuse(TOO_MUCH);
        }
        self.refuse(format!("it is corrupt or cut short ({error}); fetch it again"))
    }

    fn outside(&self, name: &Path) -> Error {
        self.refuse(format!("its member {} would be written outside of its folder", name.display()))
    }

    fn stray(&self, name: &str, target: &Path) -> Error {
        self.refuse(format!("its link {name} points outside of its folder ({})", target.display()))
    }

    /// What an operation below the root says of a member: a folder on its way that is a link shows as NOTDIR or LOOP.
    fn failed(&self, action: &str, name: &Path, error: io::Error) -> Error {
        match error.raw_os_error() {
            Some(libc::ENOTDIR | libc::ELOOP) => self.outside(name),
            _ if error.kind() == io::ErrorKind::InvalidFilename => self.outside(name),
            _ => Error::io(action, self.into.join(name), error),
        }
    }

    fn unpack(&mut self, path: &Path, take: &[Take]) -> Result<(), Error> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        self.unpack_file(file, path, take)
    }

    fn unpack_file(&mut self, mut file: File, path: &Path, take: &[Take]) -> Result<(), Error> {
        let mut head = [0u8; 264];
        let length = read_up_to(&mut file, &mut head).map_err(|e| Error::io("read", path, e))?;
        file.seek(SeekFrom::Start(0)).map_err(|e| Error::io("read", path, e))?;
        let bytes = file.metadata().map_err(|e| Error::io("read", path, e))?.len();
        let head = &head[..length];
        let is_shown = self.stage != Stage::Outer;
        if let [b'P', b'K', 3, 4, ..] = head {
            if self.depth > 0 {
                self.stage = Stage::Outer;
            }
            self.unpack_zip(BufReader::with_capacity(1 << 16, file), take)?;
            if self.depth > 0 && is_shown {
                self.step(bytes);
            }
            return Ok(());
        }
        if self.depth == 0 {
            self.total = Some(bytes);
        }
        if is_shown {
            self.stage = Stage::Read;
        }
        self.meter.read.set(0);
        let counted = Counted { from: file, meter: self.meter.clone() };
        let reader = BufReader::with_capacity(1 << 16, counted);
        match head {
            [0x1f, 0x8b, ..] => self.unpack_tar(flate2::read::MultiGzDecoder::new(reader), take),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
                self.unpack_tar(liblzma::read::XzDecoder::new(reader), take)
            }
            [0x28, 0xb5, 0x2f, 0xfd, ..] => {
                let decoder = ruzstd::decoding::StreamingDecoder::new(reader)
                    .map_err(|e| self.refuse(format!("its zstd stream cannot be read: {e}")))?;
                self.unpack_tar(decoder, take)
            }
            _ if head.get(257..262) == Some(b"ustar") => self.unpack_tar(reader, take),
            _ => Err(self.refuse("it is neither a jar, a zip nor a tar (plain, gz, xz, zst)")),
        }?;
        if is_shown {
            self.step(bytes);
        }
        Ok(())
    }

    fn unpack_zip(&mut self, reader: impl Read + Seek, take: &[Take]) -> Result<(), Error> {
        let mut zip = zip::ZipArchive::new(reader).map_err(|e| self.refuse(format!("it is corrupt: {e}")))?;
        let mut wanted = Vec::new();
        let (mut bytes, mut work): (u64, u64) = (0, 0);
        for index in 0..zip.len() {
            self.count_member()?;
            let member = zip.by_index_raw(index).map_err(|e| self.refuse(format!("it is corrupt: {e}")))?;
            let name =
                member.name().map_err(|e| self.refuse(format!("it has a name that cannot be read: {e}")))?;
            if let Some(place) = place_of(&name, take).filter(|_| !member.is_dir()) {
                bytes = bytes.saturating_add(member.size());
                // An archive within is written, and then read.
                work = work.saturating_add(member.size().saturating_mul(1 + u64::from(place.1)));
                wanted.push((index, place));
            }
        }
        check_space(self.into, bytes)?;
        if self.depth == 0 {
            self.total = Some(work);
        }
        for (index, (name, is_archive)) in wanted {
            let mut member = zip.by_index(index).map_err(|e| self.refuse(format!("it is corrupt: {e}")))?;
            let mode = member.unix_mode().unwrap_or(0);
            let bytes = member.size();
            match mode & libc::S_IFMT {
                libc::S_IFLNK => {
                    let mut target = String::new();
                    member.by_ref().take(4096).read_to_string(&mut target).map_err(|e| self.corrupt(&e))?;
                    self.member(&name, Kind::Symlink(target.into()), &mut io::empty())?;
                }
                // Systems without kinds in their modes leave them out.
                0 | libc::S_IFREG => {
                    let mut member = Bounded { from: &mut member, meter: self.meter.clone() };
                    if is_archive {
                        self.inner(&mut member, &name)?;
                    } else {
                        self.member(&name, Kind::File { is_executable: mode & 0o111 != 0 }, &mut member)?;
                    }
                }
                other => return Err(self.odd_kind(&name, format!("mode {other:o}"))),
            }
            // An archive's steps are told where it is unpacked.
            if self.stage == Stage::Written && !is_archive {
                self.step(bytes);
            }
        }
        Ok(())
    }

    fn odd_kind(&self, name: &str, kind: String) -> Error {
        self.refuse(format!("its member {name} is of a kind no build has ({kind})"))
    }

    fn count_member(&mut self) -> Result<(), Error> {
        self.members += 1;
        if self.members > MEMBERS_MAX {
            Err(self.refuse("it has more members than any build"))
        } else {
            Ok(())
        }
    }

    fn unpack_tar(&mut self, reader: impl Read, take: &[Take]) -> Result<(), Error> {
        let mut tar = tar::Archive::new(Bounded { from: reader, meter: self.meter.clone() });
        let entries = tar.entries().map_err(|e| self.corrupt(&e))?;
        let mut count = 0;
        for entry in entries {
            let mut entry = entry.map_err(|e| self.corrupt(&e))?;
            count += 1;
            self.count_member()?;
            let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let Some((name, is_archive)) = place_of(&name, take) else { continue };
            let link = || entry.link_name().ok().flatten().map(|l| l.into_owned()).unwrap_or_default();
            let kind = match entry.header().entry_type() {
                tar::EntryType::Regular | tar::EntryType::Continuous | tar::EntryType::GNUSparse => {
                    Kind::File { is_executable: entry.header().mode().unwrap_or(0) & 0o111 != 0 }
                }
                tar::EntryType::Symlink => Kind::Symlink(link()),
                tar::EntryType::Link => {
                    let target = link();
                    let Some((target, _)) = place_of(&target.to_string_lossy(), take) else { continue };
                    Kind::Hardlink(target.into())
                }
                tar::EntryType::Directory | tar::EntryType::XGlobalHeader => continue,
                other => return Err(self.odd_kind(&name, format!("{other:?}"))),
            };
            if is_archive { self.inner(&mut entry, &name)? } else { self.member(&name, kind, &mut entry)? }
        }
        // To the very end, where the checksum of the compressed stream is.
        io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(|e| self.corrupt(&e))?;
        if count == 0 { Err(self.refuse("it is empty, or no tar inside")) } else { Ok(()) }
    }

    /// An archive within the archive: spooled to disk, since most formats cannot be read from a stream.
    fn inner(&mut self, member: &mut impl Read, name: &str) -> Result<(), Error> {
        if self.depth + 1 >= DEPTH_MAX {
            return Err(self.refuse("archives are nested too deep"));
        }
        let spool = PathBuf::from(format!(".inner-{}", self.depth));
        let mut file = self.root.create(&spool).map_err(|e| self.failed("write", &spool, e))?;
        self.copy(member, &mut file, &spool)?;
        let bytes = file.metadata().map_or(0, |meta| meta.len());
        drop(file);
        let (stage, read) = (self.stage, self.meter.read.get());
        match stage {
            Stage::Written => self.step(bytes),
            Stage::Read | Stage::Outer => self.stage = Stage::Outer,
        }
        let to = name.rsplit_once('/').map_or(String::new(), |(dir, _)| format!("{dir}/"));
        let take = [Take { from: String::new(), to, unpack: false }];
        // By its descriptor: a member may have the spool's name.
        let file = self.root.read(&spool).map_err(|e| self.failed("read", &spool, e))?;
        self.root.remove(&spool).map_err(|e| self.failed("remove", &spool, e))?;
        self.depth += 1;
        let result = self.unpack_file(file, &self.into.join(&spool), &take);
        self.depth -= 1;
        self.stage = stage;
        self.meter.read.set(read);
        result
    }

    fn member(&mut self, name: &str, kind: Kind, content: &mut impl Read) -> Result<(), Error> {
        let path = Path::new(name);
        match kind {
            Kind::File { is_executable } => {
                let mut file = self.root.create(path).map_err(|e| self.failed("write", path, e))?;
                self.copy(content, &mut file, path)?;
                // None of the archive's own bits: no setuid, nothing that others may write.
                let mode = if is_executable { 0o755 } else { 0o644 };
                file.set_permissions(fs::Permissions::from_mode(mode)).map_err(|e| self.failed("write", path, e))
            }
            Kind::Symlink(target) => {
                let folders = path.components().filter(|c| matches!(c, Component::Normal(_))).count();
                if !beneath::stays_below(folders.saturating_sub(1), &target) {
                    return Err(self.stray(name, &target));
                }
                self.root.symlink(&target, path).map_err(|e| self.failed("link", path, e))
            }
            Kind::Hardlink(target) => self.root.hard_link(&target, path).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidInput => self.refuse(format!(
                    "its hard link {name} leads to {}, which is no plain file: it could be taken outside of its folder",
                    target.display()
                )),
                _ => self.failed("link", path, error),
            }),
        }
    }

    fn copy(&mut self, from: &mut impl Read, to: &mut File, name: &Path) -> Result<(), Error> {
        let mut buffer = vec![0u8; 1 << 16];
        let mut written: u64 = 0;
        loop {
            let length = match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.corrupt(&e)),
            };
            written += length as u64;
            self.room = self.room.checked_sub(length as u64).ok_or_else(|| self.refuse(TOO_MUCH))?;
            self.free = (self.free.checked_sub(length as u64))
                .ok_or_else(|| self.failed("write", name, io::ErrorKind::StorageFull.into()))?;
            to.write_all(&buffer[..length]).map_err(|e| self.failed("write", name, e))?;
            match self.stage {
                Stage::Written => self.show(written),
                Stage::Read => self.show(self.meter.read.get()),
                Stage::Outer => {}
            }
        }
    }

    /// Tells how far it is: what is over, and so much of what goes on.
    fn show(&mut self, going_on: u64) {
        let done = self.done + going_on;
        if done / SHOWN_EVERY != self.shown {
            self.shown = done / SHOWN_EVERY;
            (self.progress)(Progress::Bytes { done, total: self.total });
        }
    }

    fn step(&mut self, bytes: u64) {
        self.done += bytes;
        self.meter.read.set(0);
        self.show(0);
    }
}

fn read_up_to(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut length = 0;
    while length < buffer.len() {
        match file.read(&mut buffer[length..])? {
            0 => break,
            n => length += n,
        }
    }
    Ok(length)
}

/// Where a member goes, and whether it is an archive to be unpacked there; `None` leaves it out.
fn place_of(name: &str, take: &[Take]) -> Option<(String, bool)> {
    let name = name.trim_start_matches("./");
    let (place, is_archive) = match take {
        [] => (name.to_owned(), false),
        _ => take.iter().find_map(|take| {
            let rest = match take.from.strip_prefix('*') {
                Some(suffix) => name.ends_with(suffix).then_some(name)?,
                None => name.strip_prefix(&take.from)?,
            };
            Some((format!("{}{rest}", take.to), take.unpack))
        })?,
    };
    // An archive taken by its whole name leaves no rest: its members go to `to` itself.
    let is_wanted = is_archive || !is_ballast(&place);
    is_wanted.then_some((place, is_archive))
}

/// Debug binaries, test suites, static libraries, headers, documentation.
fn is_ballast(place: &str) -> bool {
    const FOLDERS: &str = "mysql-test mariadb-test sql-bench man docs include META-INF pgxs pkgconfig inc";
    const PROGRAMS: &str = "mysqld-debug mysql_client_test mysqltest mysqlxtest mariadb-test mariadb-client-test \
                            mysqlrouter mysql_upgrade_shell";
    let parts: Vec<&str> = place.split('/').collect();
    let Some((file, folders)) = parts.split_last() else { return true };
    folders.iter().any(|folder| FOLDERS.split(' ').any(|known| known == *folder))
        || folders.ends_with(&["plugin", "debug"])
        || PROGRAMS.split(' ').any(|known| known == *file)
        || file.ends_with("_embedded")
        || file.ends_with("-embedded")
        || [".a", ".debug"].iter().any(|suffix| file.ends_with(suffix))
}

/// Refuses before the first byte is written when the disk cannot hold it all.
fn check_space(dir: &Path, bytes: u64) -> Result<(), Error> {
    let free = crate::storage::free_bytes(dir)?;
    if free < bytes {
        return Err(Error::io("unpack into", dir, io::ErrorKind::StorageFull.into()));
    }
    Ok(())
}

/// Repairs what a zip loses: execute bits of programs, and links between libraries, which arrive as small text files or
/// not at all. Follows no link.
pub(crate) fn repair(root: &Path) -> Result<(), Error> {
    let fail = |name: &Path, e| Error::io("repair", root.join(name), e);
    let below = Root::open(root).map_err(|e| fail(Path::new(""), e))?;
    for folder in ["bin", "sbin", "libexec", "scripts"].map(Path::new) {
        for name in below.files_in(folder) {
            let name = folder.join(name);
            let file = below.read(&name).map_err(|e| fail(&name, e))?;
            file.set_permissions(fs::Permissions::from_mode(0o755)).map_err(|e| fail(&name, e))?;
        }
    }
    for folder in ["lib", "lib/private", "lib/plugin", "lib/mysql", "libs", "bin"].map(Path::new) {
        for name in below.files_in(folder).into_iter().filter(|name| is_library(Path::new(name))) {
            let name = folder.join(name);
            repair_library(&below, folder, &name).map_err(|e| fail(&name, e))?;
        }
    }
    Ok(())
}

fn is_library(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.ends_with(".so") || n.contains(".so."))
}

fn repair_library(root: &Root, folder: &Path, path: &Path) -> io::Result<()> {
    let mut file = root.read(path)?;
    if file.metadata()?.len() < 256 {
        // A link that became a file holding the name it pointed to.
        let mut text = String::new();
        if file.read_to_string(&mut text).is_err() {
            return Ok(());
        }
        let target = text.trim();
        let is_plain = !target.is_empty() && !target.contains('/') && !target.starts_with('.');
        let beside = folder.join(target);
        if is_plain && beside != path && root.read(&beside).is_ok() {
            root.symlink(Path::new(target), path)?;
        }
        return Ok(());
    }
    if let Some(name) = super::libraries::soname_of(file)
        && !name.contains('/')
        && !name.starts_with('.')
        && !root.has(&folder.join(&name))
        && let Some(file) = path.file_name()
    {
        root.symlink(Path::new(file), &folder.join(&name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
