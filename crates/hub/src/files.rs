//! Where bundles and their reports lie: in a directory, or in the database where hubs share no directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::db::{Sql, cells};
use crate::error::Error;

/// Where bundles are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keeping {
    Directory(PathBuf),
    Database,
}

/// The bundle as it was submitted.
pub(crate) const BUNDLE: &str = "plimsoll";
/// Its report as a page.
pub(crate) const REPORT: &str = "html";

/// No file takes so long to be written.
const HALF_WRITTEN: Duration = Duration::from_secs(3600);

impl Keeping {
    fn path(folder: &Path, id: &str, kind: &str) -> PathBuf {
        folder.join(&id[..2]).join(format!("{id}.{kind}"))
    }

    /// Keeps a file in a directory, durable when this returns. What nothing refers to later does no harm: the same bundle
    /// has the same name.
    pub(crate) fn keep_before(&self, id: &str, kind: &str, bytes: &[u8]) -> Result<(), Error> {
        let Keeping::Directory(folder) = self else { return Ok(()) };
        let path = Self::path(folder, id, kind);
        let fail = |source| Error::File { what: path.display().to_string(), source };
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent).map_err(fail)?;
        let new =
            parent.join(format!(".{id}.{kind}.{}.{:?}", std::process::id(), std::thread::current().id()));
        let mut file = std::fs::File::create(&new).map_err(fail)?;
        file.write_all(bytes).and_then(|()| file.sync_all()).map_err(fail)?;
        std::fs::rename(&new, &path).map_err(fail)?;
        for folder in [parent, folder] {
            std::fs::File::open(folder).and_then(|it| it.sync_all()).map_err(fail)?;
        }
        Ok(())
    }

    /// Takes away what hubs left half written when they were killed; what another one is writing now is younger.
    pub(crate) fn sweep(&self) {
        let Keeping::Directory(folder) = self else { return };
        let entries = |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten();
        let is_half = |file: &std::fs::DirEntry| {
            let age = file.metadata().ok().and_then(|facts| facts.modified().ok()?.elapsed().ok());
            file.file_name().as_encoded_bytes().starts_with(b".") && age.is_some_and(|age| age > HALF_WRITTEN)
        };
        for file in entries(folder).flat_map(|parent| entries(&parent.path())).filter(is_half) {
            // Another hub may have taken it away.
            drop(std::fs::remove_file(file.path()));
        }
    }

    /// Keeps it in the database, within the transaction that lists it.
    pub(crate) fn keep_with(&self, sql: &mut Sql, id: &str, kind: &str, bytes: &[u8]) -> Result<(), Error> {
        if *self == Keeping::Database {
            sql.insert("file (bundle_id, kind, bytes)", &cells![id, kind, bytes.to_vec()])?;
        }
        Ok(())
    }

    pub(crate) fn read(&self, sql: &mut Sql, id: &str, kind: &str) -> Result<Vec<u8>, Error> {
        match self {
            Keeping::Directory(folder) => {
                let path = Self::path(folder, id, kind);
                std::fs::read(&path)
                    .map_err(|source| Error::File { what: format!("a file of bundle {id}"), source })
            }
            Keeping::Database => {
                let sentence = "SELECT bytes FROM file WHERE bundle_id = ?1 AND kind = ?2";
                let found = sql.rows(sentence, &[id.into(), kind.into()])?;
                found.into_iter().next().map(|row| row.bytes(0)).ok_or(Error::NotFound("file"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_hub_left_half_written_is_swept() {
        let folder = tempfile::tempdir().unwrap();
        let keeping = Keeping::Directory(folder.path().to_owned());
        keeping.keep_before("ab12", BUNDLE, b"whole").unwrap();
        let [old, new] = ["old", "new"].map(|name| folder.path().join(format!("ab/.ab34.{name}")));
        for path in [&old, &new] {
            std::fs::write(path, b"half").unwrap();
        }
        let long_ago = std::time::SystemTime::now() - 2 * HALF_WRITTEN;
        std::fs::File::options().write(true).open(&old).unwrap().set_modified(long_ago).unwrap();
        keeping.sweep();
        assert!(!old.exists() && new.exists() && folder.path().join("ab/ab12.plimsoll").exists());
    }
}
