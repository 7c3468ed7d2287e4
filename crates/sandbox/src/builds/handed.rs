//! A build handed from one machine's home to another's, by way of a directory that both see: packed once, with its
//! checksum, and unpacked where it is not yet.

use std::fs::{self, File};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::fetch::Passing;
use super::{inspect, read_record, unpack};
use crate::{Build, Error, Home, storage};

/// A packed build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// `flavor@version[+label]`.
    pub name: String,
    /// Of its server's program and where it came from.
    pub identity: String,
    /// The archive's name in its directory.
    pub file: String,
    /// Of the archive.
    pub sha256: String,
}

/// Whether the home has a build of this name and identity.
pub fn has(home: &Home, name: &str, identity: &str) -> bool {
    let there = read_record(&home.builds().join(name));
    there.is_some_and(|build| build.identity == identity && build.files.server.is_file())
}

/// Packs a build into `directory`. `None`: its files are not all in the home (a package, a directory of the user's, a
/// build from source), so other machines must have it by themselves.
///
/// # Errors
/// It cannot be read, or the directory not be written.
pub fn pack(home: &Home, build: &Build, directory: &Path) -> Result<Option<Handed>, Error> {
    let (name, identity) = (build.name(), build.identity.clone());
    let place = home.builds().join(&name);
    if !build.files.server.starts_with(&place) {
        return Ok(None);
    }
    let file = format!("{name}.tar");
    let path = directory.join(&file);
    let beside = path.with_extension("new");
    let write = || -> std::io::Result<()> {
        let mut archive = tar::Builder::new(File::create(&beside)?);
        archive.follow_symlinks(false);
        archive.append_dir_all(".", &place)?;
        archive.into_inner()?.sync_all()?;
        fs::rename(&beside, &path)
    };
    write().map_err(|e| Error::io("write", &path, e))?;
    Ok(Some(Handed { name, identity, sha256: inspect::sha256_file(&path)?, file }))
}

/// Unpacks a build from `directory` into the home, unless it has one of that name. Whether it did.
///
/// # Errors
/// The archive is not what was packed, the home has no room for what is in it, or it cannot be unpacked.
pub fn take(home: &Home, handed: &Handed, directory: &Path) -> Result<bool, Error> {
    let (builds, archive) = (home.builds(), directory.join(&handed.file));
    let place = builds.join(&handed.name);
    // Another one of that name is refused where it is to be used.
    if read_record(&place).is_some() {
        return Ok(false);
    }
    let got = inspect::sha256_file(&archive)?;
    if got != handed.sha256 {
        let why = format!("its checksum is {got}, {} was packed: another file, or half of it", handed.sha256);
        return Err(Error::Archive { path: archive, why });
    }
    let new = Passing::new_in(&builds)?;
    // It is packed without compression.
    let needed = fs::metadata(&archive).map_err(|e| Error::io("read", &archive, e))?.len();
    let free = storage::free_bytes(&builds)?;
    if free < needed {
        return Err(Error::NoRoom {
            place: builds,
            build: handed.name.clone(),
            free_mb: free >> 20,
            needed_mb: needed.div_ceil(1 << 20),
        });
    }
    unpack::unpack(&archive, &[], &new.path, &|_| ())?;
    match fs::rename(&new.path, &place) {
        Ok(()) => Ok(true),
        // Another task of this machine was faster.
        Err(_) if has(home, &handed.name, &handed.identity) => Ok(false),
        Err(e) => Err(Error::io("put in place", &place, e)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::fetch::write_record;
    use super::*;
    use crate::{Flavor, Origin};

    /// A home with a build whose server is a file of some bytes.
    fn home_with(dir: &Path, name: &str) -> (Home, Build) {
        let home = Home::at(dir.join(name)).unwrap();
        let place = home.builds().join("mariadb@11.4.5");
        fs::create_dir_all(place.join("bin")).unwrap();
        let server = place.join("bin/mariadbd");
        fs::write(&server, "a server").unwrap();
        fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
        std::os::unix::fs::symlink("mariadbd", place.join("bin/mysqld")).unwrap();
        let build = Build {
            flavor: Flavor::Mariadb,
            version: "11.4.5".to_owned(),
            label: None,
            identity: "1234".to_owned(),
            origin: Origin::Archive(dir.join("a.tar.gz")),
            archive_sha256: None,
            facts: std::collections::BTreeMap::new(),
            files: inspect::files_around(&server),
        };
        write_record(&place, &build).unwrap();
        (home, build)
    }

    #[test]
    fn a_build_gets_into_another_home_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (home, build) = home_with(dir.path(), "one");
        let between = dir.path().join("between");
        fs::create_dir(&between).unwrap();
        let handed = pack(&home, &build, &between).unwrap().unwrap();
        let other = Home::at(dir.path().join("other")).unwrap();
        assert!(!has(&other, &handed.name, &handed.identity));
        assert!(take(&other, &handed, &between).unwrap());
        assert!(!take(&other, &handed, &between).unwrap(), "it is there");
        assert!(has(&other, &handed.name, &handed.identity));
        let [got] = super::super::fetched(&other).unwrap().try_into().unwrap();
        let place = other.builds().join("mariadb@11.4.5");
        assert_eq!(got.files.server, place.join("bin/mariadbd"));
        assert_eq!(fs::metadata(&got.files.server).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_link(place.join("bin/mysqld")).unwrap(), Path::new("mariadbd"));
    }

    #[test]
    fn what_is_not_what_was_packed_is_refused_and_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (home, build) = home_with(dir.path(), "one");
        let handed = pack(&home, &build, dir.path()).unwrap().unwrap();
        let archive = dir.path().join(&handed.file);
        let whole = fs::read(&archive).unwrap();
        fs::write(&archive, &whole[..whole.len() / 2]).unwrap();
        let other = Home::at(dir.path().join("other")).unwrap();
        let error = take(&other, &handed, dir.path()).unwrap_err().to_string();
        assert!(error.contains("its checksum is"), "{error}");
        assert_eq!(fs::read_dir(other.builds()).into_iter().flatten().count(), 0);
        // A package of the distribution is not in the home.
        let package = Build { files: inspect::files_around(Path::new("/usr/sbin/mariadbd")), ..build };
        assert_eq!(pack(&home, &package, dir.path()).unwrap(), None);
    }
}
