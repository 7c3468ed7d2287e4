//! Opening a results file, for writing and for reading.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::Error;
use crate::schema::{APPLICATION_ID, MIGRATIONS, migrate};

/// Name of the results file within a results directory.
pub const FILE_NAME: &str = "results.db";

/// Another plimsoll may be committing a run; a commit takes milliseconds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// An open results file.
#[derive(Debug)]
pub struct Store {
    pub(crate) connection: Connection,
    pub(crate) path: PathBuf,
}

impl Store {
    /// Opens `results.db` in `directory` for writing; both are created where they are missing, and a file with
    /// an older schema is migrated.
    ///
    /// Each commit is on the disk when the call returns: a rollback journal, synchronised with its directory, so
    /// that the one file is the whole truth after `kill -9` too.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        std::fs::create_dir_all(directory)
            .map_err(|source| Error::Create { path: directory.to_owned(), source })?;
        Self::open_at(directory.join(FILE_NAME))
    }

    fn open_at(path: PathBuf) -> Result<Self, Error> {
        let connection = Connection::open(&path).map_err(|source| for_writing(&path, "the file", source))?;
        let mut store = Self { connection, path };
        store
            .connection
            .execute_batch("PRAGMA foreign_keys = ON; PRAGMA cell_size_check = ON;")
            .and_then(|()| store.connection.busy_timeout(BUSY_TIMEOUT))
            .map_err(|source| store.sqlite("the file", source))?;
        let version = store.version()?;
        // DELETE, not WAL: results.db can be copied away at any moment without a second file. EXTRA also
        // synchronises the directory, without which a power cut could bring the journal back.
        store
            .connection
            .execute_batch("PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA;")
            .map_err(|source| store.sqlite("the file", source))?;
        store.try_writing(version)?;
        if version < MIGRATIONS.len() {
            migrate(&mut store.connection, version, MIGRATIONS)
                .map_err(|source| for_writing(&store.path, "its tables", source))?;
        }
        Ok(store)
    }

    /// Opens a results file, or the one in a results directory, for reading. Nothing is written: a file with an
    /// older schema is migrated in memory.
    pub fn open_read_only(path: &Path) -> Result<Self, Error> {
        let path = if path.is_dir() { path.join(FILE_NAME) } else { path.to_owned() };
        if !path.is_file() {
            return Err(Error::Missing { path });
        }
        let connection = match open_for_reading(&path) {
            Ok(connection) => connection,
            Err(source) => return Err(sqlite(&path, "the file", source)),
        };
        let mut store = Self { connection, path };
        let version = store.version()?;
        if version < MIGRATIONS.len() {
            if version == 0 {
                return Err(Error::Foreign { path: store.path, reason: "it is empty".to_owned() });
            }
            store.connection = migrated_copy(&store.connection, version)
                .map_err(|source| sqlite(&store.path, "its tables", source))?;
        }
        Ok(store)
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The schema's version, after checking that the file is ours and not newer than this code.
    pub(crate) fn version(&self) -> Result<usize, Error> {
        let read = |pragma: &str| -> rusqlite::Result<i64> {
            self.connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))
        };
        let application = read("application_id").map_err(|source| self.sqlite("its header", source))?;
        let version = read("user_version").map_err(|source| self.sqlite("its header", source))?;
        let tables: i64 = self
            .connection
            .query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
            .map_err(|source| self.sqlite("its header", source))?;
        if application != APPLICATION_ID && (application != 0 || tables > 0) {
            let reason = "it is a SQLite file of another program".to_owned();
            return Err(Error::Foreign { path: self.path.clone(), reason });
        }
        let known = MIGRATIONS.len() as i64;
        if version > known {
            return Err(Error::Newer { path: self.path.clone(), found: version, known });
        }
        Ok(version.max(0) as usize)
    }

    /// Begins a change and takes it back: what cannot be written is to be known before hours are spent on measuring.
    fn try_writing(&self, version: usize) -> Result<(), Error> {
        self.connection
            .execute_batch(&format!("BEGIN IMMEDIATE; PRAGMA user_version = {version}; ROLLBACK;"))
            .map_err(|source| for_writing(&self.path, "the file", source))
    }

    pub(crate) fn sqlite(&self, what: &'static str, source: rusqlite::Error) -> Error {
        sqlite(&self.path, what, source)
    }
}

/// Read-only where that is possible. A journal left by a killed writer has to be rolled back first, which needs
/// to write; SQLite does it by itself on a connection that may.
fn open_for_reading(path: &Path) -> rusqlite::Result<Connection> {
    let journal = PathBuf::from(format!("{}-journal", path.display()));
    let access =
        if journal.exists() { OpenFlags::SQLITE_OPEN_READ_WRITE } else { OpenFlags::SQLITE_OPEN_READ_ONLY };
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

fn migrated_copy(file: &Connection, version: usize) -> rusqlite::Result<Connection> {
    let mut copy = Connection::open_in_memory()?;
    rusqlite::backup::Backup::new(file, &mut copy)?.run_to_completion(1024, Duration::ZERO, None)?;
    migrate(&mut copy, version, MIGRATIONS)?;
    Ok(copy)
}

pub(crate) fn sqlite(path: &Path, what: &'static str, source: rusqlite::Error) -> Error {
    let path = path.to_owned();
    if let rusqlite::Error::SqliteFailure(failure, _) = &source
        && failure.extended_code == rusqlite::ffi::SQLITE_READONLY_DBMOVED
    {
        return Error::Changed { path, how: "it was moved or replaced".to_owned() };
    }
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => Error::Full { path, what },
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Error::Busy { path },
        Some(ErrorCode::NotADatabase) => Error::Foreign { path, reason: "it is no SQLite file".to_owned() },
        _ => Error::Sqlite { path, what, cause: source },
    }
}

/// As [`sqlite`], of a file that is to be written to.
fn for_writing(path: &Path, what: &'static str, source: rusqlite::Error) -> Error {
    match source.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            Error::ReadOnly { path: path.to_owned(), reason: source.to_string() }
        }
        _ => sqlite(path, what, source),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrations_keep_data_and_happen_once() {
        let mut connection = Connection::open_in_memory().unwrap();
        let first = ["CREATE TABLE run (id INTEGER PRIMARY KEY, tps REAL) STRICT;"];
        migrate(&mut connection, 0, &first).unwrap();
        connection.execute("INSERT INTO run (tps) VALUES (12.5)", []).unwrap();
        let both = [first[0], "ALTER TABLE run ADD COLUMN unit TEXT NOT NULL DEFAULT '1/s';"];
        migrate(&mut connection, 1, &both).unwrap();
        migrate(&mut connection, 1, &both).unwrap();
        let row: (f64, String) = connection
            .query_row("SELECT tps, unit FROM run", [], |row| Ok((row.get(0)?, row.get(1)?)))
            .unwrap();
        assert_eq!(row, (12.5, "1/s".to_owned()));
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let first = ["CREATE TABLE run (id INTEGER PRIMARY KEY) STRICT;"];
        migrate(&mut connection, 0, &first).unwrap();
        let broken = [first[0], "CREATE TABLE step (id INTEGER) STRICT; CREATE TABLE run (again INTEGER);"];
        assert!(migrate(&mut connection, 1, &broken).is_err());
        let version: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        let tables: i64 =
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0)).unwrap();
        assert_eq!((version, tables), (1, 1));
    }

    #[test]
    fn a_file_that_changes_while_it_is_open_is_not_written_on() {
        let host = |name: &str| crate::Host {
            name: name.to_owned(),
            fingerprint: String::new(),
            boot_id: String::new(),
            kernel: String::new(),
            os: String::new(),
            arch: String::new(),
            cpu_model: String::new(),
            cpus: 1,
            memory_bytes: 1,
            facts: std::collections::BTreeMap::new(),
        };
        // A newer plimsoll migrates it.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let mut store = Store::open(directory.path()).unwrap();
        store.add_host(&host("a")).unwrap();
        let newer = Connection::open(&path).unwrap();
        newer.pragma_update(None, "user_version", MIGRATIONS.len() as i64 + 1).unwrap();
        let error = store.add_host(&host("b")).unwrap_err();
        assert!(matches!(error, Error::Changed { .. }), "{error}");
        assert!(error.to_string().contains("its schema is now"), "{error}");
        let hosts: i64 = newer.query_row("SELECT count(*) FROM host", [], |row| row.get(0)).unwrap();
        assert_eq!(hosts, 1);
        // Another file takes its place.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let mut store = Store::open(directory.path()).unwrap();
        store.add_host(&host("a")).unwrap();
        std::fs::rename(&path, directory.path().join("aside")).unwrap();
        let other = Store::open(directory.path()).unwrap();
        let error = store.add_host(&host("b")).unwrap_err();
        assert!(error.to_string().contains("it was moved or replaced"), "{error}");
        drop(other);
    }

    #[test]
    fn every_commit_is_synchronised_with_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let synchronous: i64 =
            store.connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).unwrap();
        let journal: String =
            store.connection.query_row("PRAGMA journal_mode", [], |row| row.get(0)).unwrap();
        assert_eq!((synchronous, journal.as_str()), (3, "delete"));
    }

    #[test]
    fn an_older_file_is_read_through_a_migrated_copy() {
        let mut old = Connection::open_in_memory().unwrap();
        migrate(&mut old, 0, &MIGRATIONS[..1]).unwrap();
        old.execute("INSERT INTO build VALUES (7,'mariadb','1','','id','here','{}')", []).unwrap();
        let copy = migrated_copy(&old, 1).unwrap();
        let flavor: String =
            copy.query_row("SELECT flavor FROM build WHERE id=7", [], |row| row.get(0)).unwrap();
        assert_eq!(flavor, "mariadb");
    }

    #[test]
    fn a_file_of_the_first_version_keeps_what_it_has_and_takes_audits() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE_NAME);
        let mut old = Connection::open(&path).unwrap();
        migrate(&mut old, 0, &MIGRATIONS[..1]).unwrap();
        old.execute("INSERT INTO build VALUES (7,'mariadb','1','','id','here','{}')", []).unwrap();
        drop(old);
        let before = std::fs::read(&path).unwrap();
        let read = Store::open_read_only(&path).unwrap();
        assert_eq!(read.audits().unwrap(), []);
        assert_eq!(std::fs::read(&path).unwrap(), before, "reading changes nothing");
        drop(read);
        let written = Store::open(directory.path()).unwrap();
        assert_eq!(written.audits().unwrap(), []);
        assert_eq!(written.build(crate::BuildId(7)).unwrap().flavor, "mariadb");
    }
}
