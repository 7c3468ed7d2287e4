//! Where bundles and their reports lie: in a directory, or in the database where hubs share no directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::db::Sql;
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

    /// Keeps it in the database, within the transaction that lists it.
    pub(crate) fn keep_with(&self, sql: &mut Sql, id: &str, kind: &str, bytes: &[u8]) -> Result<(), Error> {
        if *self == Keeping::Database {
            let values = [id.into(), kind.into(), bytes.to_vec().into()];
            sql.execute("INSERT INTO file (bundle_id, kind, bytes) VALUES (?1, ?2, ?3)", &values)?;
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
