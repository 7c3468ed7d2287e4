//! What one transaction cost: the figures that explain a throughput.

use crate::sampler::Telemetry;

#[derive(Debug, Clone, PartialEq)]
pub struct PerTransaction {
    /// `server_cpu`, `server_switches_voluntary`, `log_written`.
    pub name: &'static str,
    /// Per committed transaction.
    pub value: f64,
    /// `us`, `kB`; empty for plain counts.
    pub unit: &'static str,
}

/// Source, names of tracks to add up, name here, factor, unit.
type Row = (&'static str, &'static [&'static str], &'static str, f64, &'static str);

const ROWS: &[Row] = &[
    ("process", &["cpu_user", "cpu_system"], "server_cpu", 1e6, "us"),
    ("process", &["cpu_system"], "server_cpu_system", 1e6, "us"),
    ("client", &["cpu_user", "cpu_system"], "client_cpu", 1e6, "us"),
    ("process", &["context_switches_voluntary"], "server_switches_voluntary", 1.0, ""),
    ("process", &["context_switches_involuntary"], "server_switches_involuntary", 1.0, ""),
    ("process", &["read_bytes"], "server_read", 1e-3, "kB"),
    ("process", &["written_bytes"], "server_written", 1e-3, "kB"),
    ("device", &["read_bytes"], "device_read", 1e-3, "kB"),
    ("device", &["written_bytes"], "device_written", 1e-3, "kB"),
    ("device", &["flushes"], "device_flushes", 1.0, ""),
    ("server", &["log_bytes"], "log_written", 1e-3, "kB"),
    ("server", &["log_syncs"], "log_syncs", 1.0, ""),
    ("server", &["binlog_bytes"], "binlog_written", 1e-3, "kB"),
    ("server", &["rows_read"], "rows_read", 1.0, ""),
    ("server", &["buffer_reads"], "buffer_reads", 1.0, ""),
    ("server", &["row_lock_waits"], "row_lock_waits", 1.0, ""),
];

/// Figures between two times (seconds since the epoch) in which `transactions` were committed. What was not sampled is
/// left out; nothing without transactions.
pub fn per_transaction(telemetry: &Telemetry, from: f64, to: f64, transactions: u64) -> Vec<PerTransaction> {
    if transactions == 0 {
        return Vec::new();
    }
    ROWS.iter()
        .filter_map(|(source, names, name, factor, unit)| {
            let mut sum = 0.0;
            for track in *names {
                sum += telemetry.track(source, track)?.increase(from, to)?;
            }
            Some(PerTransaction { name, value: sum * factor / transactions as f64, unit })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track::Tracks;

    #[test]
    fn two_tracks_add_up_to_microseconds_of_a_transaction() {
        let mut tracks = Tracks::default();
        for second in 0..12 {
            let t = f64::from(second);
            tracks.counter(t, "process", "cpu_user", "", "s", 0.5 * t);
            tracks.counter(t, "process", "cpu_system", "", "s", 0.25 * t);
            tracks.counter(t, "server", "log_bytes", "", "B", 1_000_000.0 * t);
        }
        let telemetry = Telemetry { tracks: tracks.into_vec(), ..Telemetry::default() };
        let figures = per_transaction(&telemetry, 1.0, 11.0, 10_000);
        let of = |name: &str| figures.iter().find(|f| f.name == name).unwrap().value;
        assert!((of("server_cpu") - 750.0).abs() < 1e-6);
        assert!((of("server_cpu_system") - 250.0).abs() < 1e-6);
        assert!((of("log_written") - 1.0).abs() < 1e-9);
        assert!(!figures.iter().any(|f| f.name == "client_cpu"));
        assert!(per_transaction(&telemetry, 1.0, 11.0, 0).is_empty());
    }
}
