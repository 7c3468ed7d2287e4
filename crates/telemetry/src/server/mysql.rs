//! MySQL and MariaDB: global status, and the InnoDB monitor where the status lacks the debt figures.

use wire::Error;
use wire::blocking::Client;

use super::{Meaning, counter, gauge, note, unix_now_s};
use crate::sampler::Missing;
use crate::track::{Kind, Tracks};

/// Status variables (MySQL Reference Manual, "Server Status Variables"; MariaDB "InnoDB Status Variables"). Those that
/// a version does not have simply do not come.
const STATUS: &[Meaning] = &[
    counter("Innodb_rows_read", "rows_read", ""),
    counter("Innodb_rows_inserted", "rows_inserted", ""),
    counter("Innodb_rows_updated", "rows_updated", ""),
    counter("Innodb_rows_deleted", "rows_deleted", ""),
    counter("Innodb_buffer_pool_read_requests", "buffer_read_requests", ""),
    counter("Innodb_buffer_pool_reads", "buffer_reads", ""),
    counter("Innodb_buffer_pool_wait_free", "buffer_waits", ""),
    counter("Innodb_pages_written", "pages_written", ""),
    counter("Innodb_data_read", "data_read_bytes", "B"),
    counter("Innodb_data_written", "data_written_bytes", "B"),
    counter("Innodb_data_fsyncs", "data_syncs", ""),
    counter("Innodb_os_log_written", "log_bytes", "B"),
    counter("Innodb_log_writes", "log_writes", ""),
    counter("Innodb_log_waits", "log_waits", ""),
    counter("Innodb_os_log_fsyncs", "log_syncs", ""),
    counter("Innodb_row_lock_waits", "row_lock_waits", ""),
    // Summed over all waiting sessions, hence not the unit "s" of cpu time.
    Meaning {
        native: "Innodb_row_lock_time",
        name: "row_lock_wait",
        unit: "waited_s",
        kind: Kind::Counter,
        factor: 1e-3,
    },
    gauge("Innodb_row_lock_current_waits", "row_lock_waiting", "sessions"),
    counter("Innodb_deadlocks", "deadlocks", ""),
    gauge("Innodb_checkpoint_age", "checkpoint_age_bytes", "B"),
    gauge("Innodb_checkpoint_max_age", "checkpoint_age_limit_bytes", "B"),
    gauge("Innodb_history_list_length", "history_list_length", "transactions"),
    counter("Binlog_bytes_written", "binlog_bytes", "B"),
    counter("Binlog_cache_use", "binlog_transactions", ""),
    counter("Binlog_cache_disk_use", "binlog_cache_spills", ""),
    counter("Com_commit", "commits", ""),
    counter("Com_rollback", "rollbacks", ""),
    counter("Questions", "statements", ""),
    counter("Created_tmp_disk_tables", "temp_tables_on_disk", ""),
    gauge("Threads_running", "sessions_running", "sessions"),
    gauge("Threads_connected", "sessions_connected", "sessions"),
];

/// Asked for beside [`STATUS`], used to compute others.
const RAW: &[&str] = &[
    "Uptime",
    "Innodb_page_size",
    "Innodb_buffer_pool_pages_dirty",
    "Innodb_buffer_pool_pages_total",
    "Innodb_buffer_pool_pages_data",
];

/// MariaDB 10.6 and later do not count InnoDB's rows; the handlers' calls, of all engines, come close.
const HANDLERS: &[(&str, &str)] = &[
    ("Handler_write", "rows_inserted"),
    ("Handler_update", "rows_updated"),
    ("Handler_delete", "rows_deleted"),
    ("Handler_read_first", "rows_read"),
    ("Handler_read_key", "rows_read"),
    ("Handler_read_last", "rows_read"),
    ("Handler_read_next", "rows_read"),
    ("Handler_read_prev", "rows_read"),
    ("Handler_read_rnd", "rows_read"),
    ("Handler_read_rnd_next", "rows_read"),
];

/// What is known after the first connection.
#[derive(Debug, Default)]
pub(super) struct Counters {
    status_sql: String,
    needs_monitor: bool,
    needs_handlers: bool,
    checkpoint_limit_bytes: Option<f64>,
}

impl Counters {
    pub(super) fn open(&mut self, client: &mut Client) -> Result<Vec<Missing>, Error> {
        let known = STATUS.iter().map(|m| m.native).chain(RAW.iter().copied());
        self.status_sql = status_sql(known.clone());
        self.needs_handlers = true;
        let mut missing = Vec::new();
        let mut has_history = false;
        let mut has_age = false;
        client.query_rows(&self.status_sql, &mut |row| {
            let name = row.text(0).unwrap_or("");
            self.needs_handlers &= !name.eq_ignore_ascii_case("Innodb_rows_read");
            has_history |= name.eq_ignore_ascii_case("Innodb_history_list_length");
            has_age |= name.eq_ignore_ascii_case("Innodb_checkpoint_age");
        })?;
        if self.needs_handlers {
            self.status_sql = status_sql(known.clone().chain(HANDLERS.iter().map(|(native, _)| *native)));
        }
        self.needs_monitor = !(has_history && has_age);
        if self.needs_monitor
            && let Err(error) = client.query("SHOW ENGINE INNODB STATUS")
        {
            if !matches!(error, Error::Server(_)) {
                return Err(error);
            }
            self.needs_monitor = false;
            missing.push(Missing::new("history list and checkpoint age", error.to_string()));
        }
        self.checkpoint_limit_bytes = if has_age { None } else { checkpoint_limit(client)? };
        Ok(missing)
    }

    pub(super) fn sample(&mut self, client: &mut Client, t: f64, tracks: &mut Tracks) -> Result<(), Error> {
        let mut raw = [f64::NAN; RAW.len()];
        let mut rows =
            [("rows_read", 0.0), ("rows_inserted", 0.0), ("rows_updated", 0.0), ("rows_deleted", 0.0)];
        client.query_rows(&self.status_sql, &mut |row| {
            let (Some(name), Some(Ok(value))) = (row.text(0), row.text(1).map(str::parse::<f64>)) else {
                return;
            };
            if let Some(at) = RAW.iter().position(|n| n.eq_ignore_ascii_case(name)) {
                raw[at] = value;
            } else if let Some((_, common)) = HANDLERS.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)) {
                rows.iter_mut().filter(|row| row.0 == *common).for_each(|row| row.1 += value);
            } else {
                note(STATUS, name, value, t, tracks);
            }
        })?;
        if self.needs_handlers {
            for (name, value) in rows {
                tracks.counter(t, "server", name, "", "", value);
            }
        }
        let [uptime_s, page_bytes, dirty, total, data] = raw;
        tracks.gauge(t, "server", "started_unix_s", "", "s", unix_now_s() - uptime_s);
        tracks.gauge(t, "server", "dirty_bytes", "", "B", dirty * page_bytes);
        tracks.gauge(t, "server", "buffer_bytes", "", "B", total * page_bytes);
        tracks.gauge(t, "server", "buffer_data_bytes", "", "B", data * page_bytes);
        if self.needs_monitor {
            let sets = client.query_sets("SHOW ENGINE INNODB STATUS")?;
            let text = sets.first().and_then(|set| set.text(0, 2)).unwrap_or("");
            let monitor = parse_monitor(text);
            tracks.gauge(t, "server", "history_list_length", "", "transactions", monitor.history_length);
            tracks.gauge(t, "server", "checkpoint_age_bytes", "", "B", monitor.checkpoint_age_bytes);
        }
        if let Some(limit) = self.checkpoint_limit_bytes {
            tracks.gauge(t, "server", "checkpoint_age_limit_bytes", "", "B", limit);
        }
        Ok(())
    }
}

fn status_sql<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("'{name}'")).collect();
    format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({})", names.join(","))
}

/// What InnoDB lets the checkpoint age grow to, where it does not say: about four fifths of the redo log (8.0.30 has
/// one capacity, older ones files of a size).
fn checkpoint_limit(client: &mut Client) -> Result<Option<f64>, Error> {
    let sql = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
               ('innodb_redo_log_capacity', 'innodb_log_file_size', 'innodb_log_files_in_group')";
    let (mut capacity, mut size, mut files) = (None, None, 1.0);
    client.query_rows(sql, &mut |row| {
        let Some(Ok(value)) = row.text(1).map(str::parse::<f64>) else { return };
        match row.text(0) {
            Some("innodb_redo_log_capacity") => capacity = Some(value),
            Some("innodb_log_file_size") => size = Some(value),
            Some("innodb_log_files_in_group") => files = value,
            _ => {}
        }
    })?;
    Ok(capacity.or(size.map(|s| s * files)).map(|bytes| 0.8 * bytes))
}

/// Debt figures of the InnoDB monitor; NaN where a line is missing.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Monitor {
    history_length: f64,
    checkpoint_age_bytes: f64,
}

fn parse_monitor(text: &str) -> Monitor {
    let after = |name: &str| {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        line.trim_start_matches([':', ' ', '\t']).split_ascii_whitespace().next()?.parse::<f64>().ok()
    };
    let current = after("Log sequence number");
    let checkpoint = after("Last checkpoint at");
    Monitor {
        history_length: after("History list length").unwrap_or(f64::NAN),
        checkpoint_age_bytes: current.zip(checkpoint).map_or(f64::NAN, |(c, k)| c - k),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monitor_of_old_and_new_versions() {
        let old = "---TRANSACTIONS\nTrx id counter 2D11\nHistory list length 361\n---\nLOG\n---\nLog sequence number 1617229\nLog flushed up to   1617229\nLast checkpoint at  1617000\n";
        assert_eq!(parse_monitor(old), Monitor { history_length: 361.0, checkpoint_age_bytes: 229.0 });
        let new = "History list length 5\nLog sequence number          19534723\nLog buffer assigned up to    1\nLast checkpoint at           19534000\n";
        assert_eq!(parse_monitor(new), Monitor { history_length: 5.0, checkpoint_age_bytes: 723.0 });
        assert!(parse_monitor("").history_length.is_nan());
    }
}
