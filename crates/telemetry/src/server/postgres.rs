//! PostgreSQL 9.6 to 18: the statistics views, whose columns moved between versions.

use wire::Error;
use wire::blocking::Client;

use super::{Meaning, counter, gauge, note};
use crate::sampler::Missing;
use crate::track::Tracks;

/// Column aliases of [`parts`], which already are the common names.
const MEANINGS: &[Meaning] = &[
    counter("commits", "commits", ""),
    counter("rollbacks", "rollbacks", ""),
    counter("buffer_reads", "buffer_reads", ""),
    counter("buffer_read_requests", "buffer_read_requests", ""),
    counter("rows_read", "rows_read", ""),
    counter("rows_inserted", "rows_inserted", ""),
    counter("rows_updated", "rows_updated", ""),
    counter("rows_deleted", "rows_deleted", ""),
    counter("deadlocks", "deadlocks", ""),
    counter("temp_bytes", "temp_bytes", "B"),
    counter("pages_written", "pages_written", ""),
    counter("pages_written_by_sessions", "pages_written_by_sessions", ""),
    counter("checkpoints_timed", "checkpoints_timed", ""),
    counter("checkpoints_requested", "checkpoints_requested", ""),
    counter("log_bytes", "log_bytes", "B"),
    counter("log_writes", "log_writes", ""),
    counter("log_syncs", "log_syncs", ""),
    counter("log_waits", "log_waits", ""),
    counter("log_full_pages", "log_full_pages", ""),
    gauge("checkpoint_age_bytes", "checkpoint_age_bytes", "B"),
    gauge("dead_tuples", "dead_tuples", "rows"),
    gauge("live_tuples", "live_tuples", "rows"),
    gauge("sessions_connected", "sessions_connected", "sessions"),
    gauge("sessions_running", "sessions_running", "sessions"),
    gauge("row_lock_waiting", "row_lock_waiting", "sessions"),
    gauge("started_unix_s", "started_unix_s", "s"),
];

/// Statements that this version understands and this user may run.
#[derive(Debug, Default)]
pub(super) struct Counters {
    parts: Vec<String>,
}

impl Counters {
    pub(super) fn open(&mut self, client: &mut Client) -> Result<Vec<Missing>, Error> {
        let version =
            client.query_value("SHOW server_version_num")?.and_then(|v| v.parse().ok()).unwrap_or(90_600);
        let mut missing = Vec::new();
        self.parts.clear();
        for (what, sql) in parts(version) {
            match client.query(&sql) {
                Ok(_) => self.parts.push(sql),
                Err(error @ Error::Server(_)) => missing.push(Missing::new(what, error.to_string())),
                Err(error) => return Err(error),
            }
        }
        Ok(missing)
    }

    pub(super) fn sample(&mut self, client: &mut Client, t: f64, tracks: &mut Tracks) -> Result<(), Error> {
        for sql in &self.parts {
            for set in client.query_sets(sql)? {
                for (column, name) in set.columns.iter().enumerate() {
                    if let Some(Ok(value)) = set.text(0, column).map(str::parse::<f64>) {
                        note(MEANINGS, name, value, t, tracks);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The log's end, the difference of two places in it, and where the last checkpoint began: 10 renamed them.
fn log_functions(version: u32) -> (&'static str, &'static str, &'static str) {
    match version {
        100_000.. => ("pg_current_wal_lsn()", "pg_wal_lsn_diff", "redo_lsn"),
        _ => ("pg_current_xlog_location()", "pg_xlog_location_diff", "redo_location"),
    }
}

/// Bytes of log since the last checkpoint began.
pub(crate) fn checkpoint_age(version: u32) -> String {
    let (lsn, difference, redo) = log_functions(version);
    format!("SELECT {difference}({lsn}, {redo}) AS checkpoint_age_bytes FROM pg_control_checkpoint()")
}

/// What to ask a version (`server_version_num`), each part on its own so that a missing privilege costs only its part
/// (PostgreSQL documentation, "The Cumulative Statistics System", of each version).
fn parts(version: u32) -> Vec<(&'static str, String)> {
    let (lsn, difference, _) = log_functions(version);
    let writing = if version >= 170_000 {
        "SELECT c.num_timed AS checkpoints_timed, c.num_requested AS checkpoints_requested, \
         c.buffers_written + b.buffers_clean AS pages_written FROM pg_stat_checkpointer c, pg_stat_bgwriter b"
    } else {
        "SELECT checkpoints_timed, checkpoints_req AS checkpoints_requested, \
         buffers_checkpoint + buffers_clean + buffers_backend AS pages_written, \
         buffers_backend AS pages_written_by_sessions FROM pg_stat_bgwriter"
    };
    let mut parts = vec![
        (
            "database counters",
            "SELECT sum(xact_commit) AS commits, sum(xact_rollback) AS rollbacks, sum(blks_read) AS buffer_reads, \
             sum(blks_read + blks_hit) AS buffer_read_requests, sum(tup_returned) AS rows_read, \
             sum(tup_inserted) AS rows_inserted, sum(tup_updated) AS rows_updated, sum(tup_deleted) AS rows_deleted, \
             sum(deadlocks) AS deadlocks, sum(temp_bytes) AS temp_bytes, \
             extract(epoch FROM pg_postmaster_start_time()) AS started_unix_s FROM pg_stat_database"
                .to_owned(),
        ),
        ("checkpoints and pages written", writing.to_owned()),
        ("log bytes", format!("SELECT {difference}({lsn}, '0/0') AS log_bytes")),
        ("checkpoint age", checkpoint_age(version)),
        (
            "dead tuples",
            "SELECT coalesce(sum(n_dead_tup), 0) AS dead_tuples, coalesce(sum(n_live_tup), 0) AS live_tuples \
             FROM pg_stat_user_tables"
                .to_owned(),
        ),
        (
            "sessions and lock waits",
            "SELECT count(*) AS sessions_connected, \
             sum(CASE WHEN state = 'active' THEN 1 ELSE 0 END) AS sessions_running, \
             sum(CASE WHEN wait_event_type = 'Lock' THEN 1 ELSE 0 END) AS row_lock_waiting \
             FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
                .to_owned(),
        ),
    ];
    // 18 moved writes and syncs of the log to pg_stat_io.
    match version {
        180_000.. => {
            parts.push((
                "log writes and waits",
                "SELECT wal_fpi AS log_full_pages, wal_buffers_full AS log_waits FROM pg_stat_wal".to_owned(),
            ));
            parts.push((
                "log syncs",
                "SELECT sum(writes) AS log_writes, sum(fsyncs) AS log_syncs FROM pg_stat_io WHERE object = 'wal'"
                    .to_owned(),
            ));
        }
        140_000.. => parts.push((
            "log writes and waits",
            "SELECT wal_write AS log_writes, wal_sync AS log_syncs, wal_fpi AS log_full_pages, \
             wal_buffers_full AS log_waits FROM pg_stat_wal"
                .to_owned(),
        )),
        _ => {}
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alias_has_a_meaning() {
        for version in [90_624, 120_022, 150_018, 170_011, 180_006] {
            for (_, sql) in parts(version) {
                let selected = sql.split(" FROM pg_").next().unwrap_or(&sql);
                for alias in selected.split(" AS ").skip(1) {
                    let alias = alias.split([',', ' ']).next().unwrap();
                    assert!(MEANINGS.iter().any(|m| m.native == alias), "{alias} of {version}");
                }
            }
        }
    }

    #[test]
    fn versions_ask_where_their_columns_are() {
        let has = |version, text: &str| parts(version).iter().any(|(_, sql)| sql.contains(text));
        assert!(has(90_600, "pg_current_xlog_location") && !has(100_000, "xlog"));
        assert!(has(160_000, "buffers_backend") && has(170_000, "pg_stat_checkpointer"));
        assert!(!has(130_000, "pg_stat_wal") && has(180_000, "pg_stat_io"));
    }
}
