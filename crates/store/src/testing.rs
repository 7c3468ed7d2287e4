//! For tests that damage what is stored behind the store's back.

use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, Result};

use crate::open::Store;

/// A results file's content in memory, with nothing in SQLite's way that keeps it in itself consistent.
///
/// # Errors
/// What SQLite says.
pub fn in_memory(file: &Store) -> Result<Store> {
    let mut connection = Connection::open_in_memory()?;
    Backup::new(&file.connection, &mut connection)?.run_to_completion(1024, Duration::ZERO, None)?;
    connection.execute_batch("PRAGMA foreign_keys = OFF; PRAGMA journal_mode = MEMORY;")?;
    Ok(Store { connection, path: file.path.clone() })
}

/// What the store reads from.
pub fn connection(store: &Store) -> &Connection {
    &store.connection
}
