//! For tests of other rooms: damage behind the store's back, and what they would have to measure for minutes.

use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, Result};

use crate::bundle::{BundleError, Member};
use crate::calibration::{Calibrations, EqualLife};
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

/// Lives whose second side is faster by `ratio`, with slices that alternate around their mean.
pub fn calibrations(lives: u32, ratio: f64) -> Calibrations {
    let mut made = Calibrations::new("mariadb@11.4.5", "b", "oltp_read_write", 8, 2.2);
    for life in 0..lives {
        let level = 1000.0 * (1.0 + 0.02 * f64::from(life % 3));
        let noise =
            |at: i32| 1.0 + 0.03 * f64::from(at * 7 % 5 - 2) + 0.004 * f64::from(life * 5 % 7) - 0.012;
        let side = |ratio: f64, shift: i32| (0..8).map(|at| level * ratio * noise(at + shift)).collect();
        let tps = [side(1.0, 0), side(ratio, 1)];
        made.lives.push(EqualLife { tps, took_s: 30.0, at_ms: i64::from(life), calibration: 1 + life / 16 });
    }
    made
}

/// What [`bundle::pack`](crate::bundle::pack) puts around a frame of zstd.
pub fn sealed(frame: Vec<u8>) -> Vec<u8> {
    crate::bundle::archive::sealed(frame)
}

/// The tar of a bundle.
///
/// # Errors
/// A name that no bundle has.
pub fn archive(members: &[Member]) -> std::result::Result<Vec<u8>, BundleError> {
    crate::bundle::archive::archive(members)
}
