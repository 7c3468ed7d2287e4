//! Unpacking archives: jar and zip, tar plain or packed by gzip, xz or zstd, and archives within archives.
//!
//! An archive is not trusted: members that would land outside the target folder are refused, by their name, through
//! a symbolic link, or as one.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use super::catalogue::Take;
use crate::{Error, OnProgress, Progress};

/// Archives in archives in archives: deeper than any real one.
const DEPTH_MAX: u32 = 3;

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
    let mut unpacker = Unpacker { archive, into, progress, depth: 0, done: 0, total: None };
    unpacker.unpack(archive, take)
}

struct Unpacker<'a> {
    archive: &'a Path,
    into: &'a Path,
    progress: OnProgress<'a>,
    depth: u32,
    done: u64,
    total: Option<u64>,
}

impl Unpacker<'_> {
    fn refuse(&self, why: impl Into<String>) -> Error {
        Error::Archive { path: self.archive.to_owned(), why: why.into() }
    }

    fn corrupt(&self, error: &io::Error) -> Error {
        self.refuse(format!("it is corrupt or cut short ({error}); fetch it again"))
    }

    fn unpack(&mut self, path: &Path, take: &[Take]) -> Result<(), Error> {
        let mut file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let mut head = [0u8; 264];
        let length = read_up_to(&mut file, &mut head).map_err(|e| Error::io("read", path, e))?;
        file.seek(SeekFrom::Start(0)).map_err(|e| Error::io("read", path, e))?;
        let head = &head[..length];
        let reader = BufReader::with_capacity(1 << 16, file);
        match head {
            [b'P', b'K', 3, 4, ..] => self.unpack_zip(reader, take),
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
        }
    }

    fn unpack_zip(&mut self, reader: impl Read + Seek, take: &[Take]) -> Result<(), Error> {
        let mut zip = zip::ZipArchive::new(reader).map_err(|e| self.refuse(format!("it is corrupt: {e}")))?;
        let mut wanted = Vec::new();
        let mut bytes = 0;
        for index in 0..zip.len() {
            let member = zip.by_index_raw(index).map_err(|e| self.refuse(format!("it is corrupt: {e}")))?;
            let name =
                member.name().map_err(|e| self.refuse(format!("it has a name that cannot be read: {e}")))?;
            if let Some(place) = place_of(&name, take).filter(|_| !member.is_dir()) {
                bytes += member.size();
                wanted.push((index, place));
            }
        }
        if self.depth == 0 {
            check_space(self.into, bytes)?;
            self.total = Some(bytes);
        }
        for (index, (name, is_archive)) in wanted {
            let mut member = zip.by_index(index).map_err(|e| self.refuse(format!("it is corrupt: {e}")))?;
            let mode = member.unix_mode().unwrap_or(0);
            if mode & libc::S_IFMT == libc::S_IFLNK {
                let mut target = String::new();
                member.by_ref().take(4096).read_to_string(&mut target).map_err(|e| self.corrupt(&e))?;
                self.member(&name, Kind::Symlink(target.into()), &mut io::empty())?;
            } else if is_archive {
                self.inner(&mut member, &name)?;
            } else {
                self.member(&name, Kind::File { is_executable: mode & 0o111 != 0 }, &mut member)?;
            }
        }
        Ok(())
    }

    fn unpack_tar(&mut self, reader: impl Read, take: &[Take]) -> Result<(), Error> {
        let mut tar = tar::Archive::new(reader);
        let entries = tar.entries().map_err(|e| self.corrupt(&e))?;
        let mut count = 0;
        for entry in entries {
            let mut entry = entry.map_err(|e| self.corrupt(&e))?;
            count += 1;
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
                other => {
                    return Err(
                        self.refuse(format!("its member {name} is of a kind no build has ({other:?})"))
                    );
                }
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
        let spool = self.into.join(format!(".inner-{}", self.depth));
        let mut file = File::create(&spool).map_err(|e| Error::io("write", &spool, e))?;
        self.copy(member, &mut file, &spool)?;
        drop(file);
        let to = name.rsplit_once('/').map_or(String::new(), |(dir, _)| format!("{dir}/"));
        let take = [Take { from: String::new(), to, unpack: false }];
        self.depth += 1;
        let result = self.unpack(&spool, &take);
        self.depth -= 1;
        fs::remove_file(&spool).map_err(|e| Error::io("remove", &spool, e))?;
        result
    }

    fn member(&mut self, name: &str, kind: Kind, content: &mut impl Read) -> Result<(), Error> {
        let path = self.checked(Path::new(name))?;
        let parent = path.parent().unwrap_or(self.into);
        fs::create_dir_all(parent).map_err(|e| Error::io("create", parent, e))?;
        // A later member of the same name replaces the earlier one, as tar does; it never writes through a link.
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(Error::io("replace", &path, e)),
            _ => {}
        }
        match kind {
            Kind::File { is_executable } => {
                let mut file = File::options()
                    .write(true)
                    .create_new(true)
                    .open(&path)
                    .map_err(|e| Error::io("write", &path, e))?;
                self.copy(content, &mut file, &path)?;
                let mode = if is_executable { 0o755 } else { 0o644 };
                file.set_permissions(fs::Permissions::from_mode(mode))
                    .map_err(|e| Error::io("write", &path, e))
            }
            Kind::Symlink(target) => {
                self.check_link(name, &target)?;
                symlink(&target, &path).map_err(|e| Error::io("link", &path, e))
            }
            Kind::Hardlink(target) => {
                let target = self.checked(&target)?;
                fs::hard_link(&target, &path).map_err(|e| Error::io("link", &path, e))
            }
        }
    }

    fn copy(&mut self, from: &mut impl Read, to: &mut File, path: &Path) -> Result<(), Error> {
        let mut buffer = vec![0u8; 1 << 16];
        loop {
            let length = match from.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.corrupt(&e)),
            };
            to.write_all(&buffer[..length]).map_err(|e| Error::io("write", path, e))?;
            let before = self.done >> 24;
            self.done += length as u64;
            if self.done >> 24 != before {
                (self.progress)(Progress::Bytes { done: self.done, total: self.total });
            }
        }
    }

    /// The full path of a member that stays inside: plain names only, and none of its folders is a link.
    fn checked(&self, name: &Path) -> Result<PathBuf, Error> {
        let outside =
            || self.refuse(format!("its member {} would be written outside of its folder", name.display()));
        let mut path = self.into.to_owned();
        let mut count = 0;
        for component in name.components() {
            match component {
                Component::CurDir => {}
                Component::Normal(part) => {
                    if count > 0 && fs::symlink_metadata(&path).is_ok_and(|m| m.is_symlink()) {
                        return Err(outside());
                    }
                    path.push(part);
                    count += 1;
                }
                _ => return Err(outside()),
            }
        }
        if count == 0 { Err(outside()) } else { Ok(path) }
    }

    /// A link may climb no further than to the root of the folder, and only at its beginning: once it goes down, a step
    /// up could leave through another link.
    fn check_link(&self, name: &str, target: &Path) -> Result<(), Error> {
        let depth = Path::new(name).components().filter(|c| matches!(c, Component::Normal(_))).count() - 1;
        let mut ups = 0;
        let mut is_down = false;
        let mut is_safe = !target.as_os_str().is_empty();
        for component in target.components() {
            match component {
                Component::CurDir => {}
                Component::ParentDir if !is_down => ups += 1,
                Component::Normal(_) => is_down = true,
                _ => is_safe = false,
            }
        }
        if is_safe && ups <= depth {
            return Ok(());
        }
        Err(self.refuse(format!("its link {name} points outside of its folder ({})", target.display())))
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
    const FOLDERS: [&str; 10] = [
        "mysql-test",
        "mariadb-test",
        "sql-bench",
        "man",
        "docs",
        "include",
        "META-INF",
        "pgxs",
        "pkgconfig",
        "inc",
    ];
    const PROGRAMS: [&str; 8] = [
        "mysqld-debug",
        "mysql_client_test",
        "mysqltest",
        "mysqlxtest",
        "mariadb-test",
        "mariadb-client-test",
        "mysqlrouter",
        "mysql_upgrade_shell",
    ];
    let parts: Vec<&str> = place.split('/').collect();
    let Some((file, folders)) = parts.split_last() else { return true };
    folders.iter().any(|folder| FOLDERS.contains(folder))
        || folders.ends_with(&["plugin", "debug"])
        || PROGRAMS.contains(file)
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
/// not at all.
pub(crate) fn repair(root: &Path) -> Result<(), Error> {
    for folder in ["bin", "sbin", "libexec", "scripts"] {
        for path in files_in(&root.join(folder)) {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
                .map_err(|e| Error::io("open up", &path, e))?;
        }
    }
    for folder in ["lib", "lib/private", "lib/plugin", "lib/mysql", "libs", "bin"] {
        let folder = root.join(folder);
        for path in files_in(&folder).into_iter().filter(|p| is_library(p)) {
            repair_library(&folder, &path)?;
        }
    }
    Ok(())
}

fn files_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|e| e.file_type().is_ok_and(|t| t.is_file())).map(|e| e.path()).collect()
}

fn is_library(path: &Path) -> bool {
    path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.ends_with(".so") || n.contains(".so."))
}

fn repair_library(folder: &Path, path: &Path) -> Result<(), Error> {
    let fail = |e| Error::io("repair", path, e);
    let length = fs::metadata(path).map_err(fail)?.len();
    if length < 256 {
        // A link that became a file holding the name it pointed to.
        let text = fs::read_to_string(path).unwrap_or_default();
        let target = text.trim();
        let is_plain = !target.is_empty() && !target.contains('/') && target != path.to_string_lossy();
        if is_plain && folder.join(target).is_file() {
            fs::remove_file(path).map_err(fail)?;
            symlink(target, path).map_err(fail)?;
        }
        return Ok(());
    }
    if let Some(name) = super::libraries::soname(path)
        && !name.contains('/')
        && fs::symlink_metadata(folder.join(&name)).is_err()
        && let Some(file) = path.file_name()
    {
        symlink(file, folder.join(&name)).map_err(fail)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    enum Put<'a> {
        File(&'a str, &'a [u8]),
        Link(&'a str, &'a str),
    }

    fn tar_of(members: &[Put<'_>]) -> Vec<u8> {
        let mut tar = tar::Builder::new(Vec::new());
        for member in members {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            // Written by hand: the library's own setter refuses the names that the tests are about.
            let name = |header: &mut tar::Header, text: &str| {
                header.as_gnu_mut().unwrap().name[..text.len()].copy_from_slice(text.as_bytes());
            };
            match member {
                Put::File(path, content) => {
                    header.set_size(content.len() as u64);
                    name(&mut header, path);
                    header.set_cksum();
                    tar.append(&header, *content).unwrap();
                }
                Put::Link(path, target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    header.set_size(0);
                    header.as_gnu_mut().unwrap().linkname[..target.len()].copy_from_slice(target.as_bytes());
                    name(&mut header, path);
                    header.set_cksum();
                    tar.append(&header, io::empty()).unwrap();
                }
            }
        }
        tar.into_inner().unwrap()
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Unpacks and says what came out or why not; nothing may appear outside.
    fn check(archive: &[u8], take: &[Take]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let into = dir.path().join("deep/into");
        fs::create_dir_all(&into).unwrap();
        let path = dir.path().join("archive");
        fs::write(&path, archive).unwrap();
        let result = unpack(&path, take, &into, &|_| ());
        let outside = fs::read_dir(dir.path()).unwrap().count()
            + fs::read_dir(dir.path().join("deep")).unwrap().count();
        assert_eq!(outside, 3, "something was written outside");
        result.map_err(|e| e.to_string())?;
        let mut found = Vec::new();
        let mut folders = vec![into.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().flatten() {
                if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                } else {
                    found.push(entry.path().strip_prefix(&into).unwrap().display().to_string());
                }
            }
        }
        found.sort();
        Ok(found)
    }

    #[test]
    fn members_that_escape_are_refused() {
        let hostile: [&[Put<'_>]; 8] = [
            &[Put::File("../evil", b"x")],
            &[Put::File("a/../../evil", b"x")],
            &[Put::File("/tmp/plimsoll-evil", b"x")],
            &[Put::Link("out", "/tmp"), Put::File("out/evil", b"x")],
            &[Put::Link("a", ".."), Put::File("a/evil", b"x")],
            &[Put::Link("a/b/up", "../.."), Put::File("a/b/up/evil", b"x")],
            &[Put::Link("a/s", "../a/../.."), Put::File("b", b"x")],
            &[Put::Link("a/s", "../../x")],
        ];
        for members in hostile {
            for archive in [tar_of(members), gz(&tar_of(members))] {
                let why = check(&archive, &[]).unwrap_err();
                assert!(why.contains("outside"), "{why}");
            }
        }
    }

    #[test]
    fn ordinary_members_links_and_ballast() {
        let members = [
            Put::File("m/bin/mysqld", b"server"),
            Put::File("m/bin/mysqld-debug", b"x"),
            Put::File("m/lib/libx.so.1", b"lib"),
            Put::Link("m/lib/libx.so", "libx.so.1"),
            Put::Link("m/bin/libx.so", "../lib/libx.so.1"),
            Put::File("m/lib/libx.a", b"x"),
            Put::File("m/mysql-test/t/a.test", b"x"),
            Put::File("m/lib/plugin/debug/x.so", b"x"),
        ];
        let expected = ["m/bin/libx.so", "m/bin/mysqld", "m/lib/libx.so", "m/lib/libx.so.1"];
        assert_eq!(check(&gz(&tar_of(&members)), &[]).unwrap(), expected);
        let take = [Take { from: "m/bin/".into(), to: "sbin/".into(), unpack: false }];
        // The link climbs no higher than before.
        assert_eq!(check(&tar_of(&members), &take).unwrap(), ["sbin/libx.so", "sbin/mysqld"]);
    }

    #[test]
    fn archives_within_archives() {
        let inner = gz(&tar_of(&[Put::File("bin/postgres", b"p"), Put::File("lib/libpq.a", b"x")]));
        let outer = tar_of(&[Put::File("META-INF/x", b"x"), Put::File("a.tgz", &inner)]);
        let take = [Take { from: "*.tgz".into(), to: "".into(), unpack: true }];
        assert_eq!(check(&outer, &take).unwrap(), ["bin/postgres"]);
    }

    #[test]
    fn damage_is_noticed() {
        let whole = gz(&tar_of(&[Put::File("bin/postgres", &[7u8; 5000])]));
        for archive in [&whole[..whole.len() / 2], &whole[..whole.len() - 4], b"no archive at all", b""] {
            assert!(check(archive, &[]).is_err());
        }
        let mut flipped = whole.clone();
        let middle = flipped.len() / 2;
        flipped[middle] ^= 0x40;
        assert!(check(&flipped, &[]).is_err());
    }

    #[test]
    fn lost_execute_bits_and_links_come_back() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        fs::create_dir_all(dir.path().join("lib")).unwrap();
        fs::write(dir.path().join("bin/mysqld"), "x").unwrap();
        fs::write(dir.path().join("lib/libz.so.1.2"), vec![0u8; 300]).unwrap();
        fs::write(dir.path().join("lib/libz.so"), "libz.so.1.2").unwrap();
        repair(dir.path()).unwrap();
        assert_eq!(fs::metadata(dir.path().join("bin/mysqld")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_link(dir.path().join("lib/libz.so")).unwrap(), Path::new("libz.so.1.2"));
    }
}
