//! PostgreSQL: places in the write-ahead log. What is flushed counts, for no more is sent to replicas.

use wire::blocking::Client;
use wire::{Error, ResultSet};

use super::{Place, Told};

pub(super) fn version(client: &mut Client) -> Result<u32, Error> {
    Ok(client.query_value("SHOW server_version_num")?.and_then(|text| text.parse().ok()).unwrap_or(90_600))
}

/// A place as a number of bytes; 10 renamed the functions.
fn bytes(version: u32, place: &str) -> String {
    let difference = if version >= 100_000 { "pg_wal_lsn_diff" } else { "pg_xlog_location_diff" };
    format!("{difference}({place}, '0/0')")
}

fn function(version: u32, new: &'static str, old: &'static str) -> String {
    bytes(version, if version >= 100_000 { new } else { old })
}

pub(super) fn of_primary(version: u32) -> String {
    let flushed = function(version, "pg_current_wal_flush_lsn()", "pg_current_xlog_flush_location()");
    format!("SELECT {flushed}")
}

pub(super) fn of_replica(version: u32) -> String {
    let received = function(version, "pg_last_wal_receive_lsn()", "pg_last_xlog_receive_location()");
    let applied = function(version, "pg_last_wal_replay_lsn()", "pg_last_xlog_replay_location()");
    format!("SELECT {received}, {applied}, (SELECT status FROM pg_stat_wal_receiver LIMIT 1)")
}

fn place(sets: &[ResultSet], column: usize) -> Place {
    let offset = sets.first().and_then(|set| set.text(0, column)).and_then(|text| text.parse().ok());
    Place { file: String::new(), offset: offset.unwrap_or(0) }
}

pub(super) fn end(sets: &[ResultSet]) -> Place {
    place(sets, 0)
}

pub(super) fn told(sets: &[ResultSet]) -> Told {
    let status = sets.first().and_then(|set| set.text(0, 2));
    Told {
        received: place(sets, 0),
        applied: place(sets, 1),
        is_following: status == Some("streaming"),
        // It always tries again, and tells its log why.
        has_stopped: false,
        trouble: None,
    }
}

/// Of the write-ahead log.
const PAGE_BYTES: u64 = 8192;
/// The longest piece of a record that is taken for one: it holds three whole pages of tables, compressed or not.
const RECORD_BYTES_MAX: u64 = 4 * PAGE_BYTES;

/// Whether a replica has applied all that can be. A server that has nothing to do flushes whole pages, the last of which may
/// end in the middle of a record, and no replica applies a piece of one.
pub(super) fn is_all(applied: u64, end: u64) -> bool {
    applied >= end || end.is_multiple_of(PAGE_BYTES) && end - applied < RECORD_BYTES_MAX
}

/// Writes something that follows all that was committed, and says where.
pub(super) fn mark(primary: &mut Client) -> Result<u64, Error> {
    // Flushed at once, and without a wait for the replicas.
    primary.query("SET synchronous_commit = local")?;
    let version = version(primary)?;
    let sql = format!("SELECT {}", bytes(version, "pg_logical_emit_message(true, 'plimsoll', 'end')"));
    Ok(primary.query_value(&sql)?.and_then(|text| text.parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_ask_in_their_words() {
        assert_eq!(of_primary(150_018), "SELECT pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')");
        assert!(of_replica(90_624).contains("pg_xlog_location_diff(pg_last_xlog_replay_location(), '0/0')"));
    }

    #[test]
    fn a_piece_of_a_record_at_the_end_of_a_page_is_no_lag() {
        assert!(is_all(9000, 9000) && is_all(9001, 9000));
        assert!(!is_all(8999, 9000));
        assert!(is_all(2 * 8192 - 100, 2 * 8192));
        assert!(!is_all(0, 10 * 8192));
    }
}
