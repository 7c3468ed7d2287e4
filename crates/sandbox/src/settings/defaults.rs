//! The settings of a benchmark: every server of a study gets the same memory, durability, isolation, character set and
//! room for sessions, whatever its version's own defaults are.

use crate::build::{Flavor, Version};
use crate::profile::{Durability, Logging, Profile};
use crate::settings::{Isolation, Settings};
use crate::spec::Spec;

/// MiB.
const MIB: u64 = 1 << 20;

/// Buffer pool or shared_buffers when a spec does not say: an eighth of the memory, between 128 MiB and 8 GiB. An
/// eighth leaves room for the page cache, for PostgreSQL's page tables (each backend maps the buffers it touches) and
/// for several sandboxes at once.
pub(crate) fn buffer_bytes(memory_bytes: u64) -> u64 {
    (memory_bytes / 8 / (128 * MIB) * (128 * MIB)).clamp(128 * MIB, 8192 * MIB)
}

/// Memory that the server may use: the machine's, or the limit that its storage place sets.
pub(crate) fn memory_bytes(spec: &Spec) -> u64 {
    let machine = machine_memory_bytes();
    spec.storage.as_ref().and_then(|s| s.limits.memory_bytes).map_or(machine, |limit| limit.min(machine))
}

/// Memory of this machine in bytes; 1 GiB where it cannot be read.
fn machine_memory_bytes() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total_kib = meminfo.lines().find_map(|line| {
        line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    total_kib.map_or(1024 * MIB, |kib| kib * 1024)
}

/// Defaults, then profile, then logging, then what was asked for.
pub(crate) fn effective(spec: &Spec, memory_bytes: u64, open_files_max: u64) -> Settings {
    let mut settings = match spec.build.flavor {
        Flavor::Postgres => postgres(spec, memory_bytes),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => mysql(spec, memory_bytes, open_files_max),
    };
    if let Some(profile) = spec.profile {
        settings.extend(profile_settings(spec.build.flavor, profile));
    }
    if let Some(logging) = spec.logging {
        settings.extend(logging_settings(spec.build.flavor, logging));
    }
    if let Some(engine) = &spec.engine {
        // One that the build lacks is refused by `deploy`, which can say so.
        settings.extend(crate::engines::settings_for(&spec.build, engine).unwrap_or_default());
    }
    settings.extend(spec.settings.iter().map(|(name, value)| (super::canonical(name), value.clone())));
    settings
}

fn collect(pairs: &[(&str, String)]) -> Settings {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

/// MySQL, MariaDB, Percona Server. Section references are to the manuals' "Server System Variables".
fn mysql(spec: &Spec, memory_bytes: u64, open_files_max: u64) -> Settings {
    let version = spec.build.numbers();
    let is_mariadb = spec.build.flavor == Flavor::Mariadb;
    let sessions = u64::from(spec.sessions);
    // Telemetry, loading and a user's own client come on top of the ladder.
    let connections = (sessions + 50).max(151);
    // MyISAM opens two files for each table, and connections, logs and tablespaces need theirs.
    let table_cache = ((open_files_max.saturating_sub(connections + 500)) / 3).clamp(400, 4000);
    let statements = (sessions * u64::from(spec.statements_per_session) * 2).clamp(16_382, 1_048_576);
    let buffer = spec.buffer_bytes.unwrap_or_else(|| buffer_bytes(memory_bytes));
    let mut settings = collect(&[
        ("back_log", "1024".to_owned()),
        ("character_set_server", "utf8mb4".to_owned()),
        ("collation_server", "utf8mb4_bin".to_owned()),
        ("default_storage_engine", "InnoDB".to_owned()),
        // MySQL 8's default; the older one holds a lock on the table for all of a bulk load.
        ("innodb_autoinc_lock_mode", "2".to_owned()),
        ("innodb_buffer_pool_size", buffer.to_string()),
        ("innodb_doublewrite", "ON".to_owned()),
        ("innodb_file_per_table", "ON".to_owned()),
        ("innodb_flush_log_at_trx_commit", "1".to_owned()),
        // Without it the page cache holds the data a second time, on some versions by default and on others not.
        ("innodb_flush_method", "O_DIRECT".to_owned()),
        // Read-only at run time. MariaDB sorts an index in runs of this size and merges them: those that fit into a
        // cache of the cpu are faster than long ones (4 million rows, 10.11: 2.1 s with 1 MiB, 2.9 s with 12, 3.4 s
        // with 64). MySQL has not been measured with others.
        ("innodb_sort_buffer_size", (if is_mariadb { MIB } else { 64 * MIB }).to_string()),
        ("local_infile", "ON".to_owned()),
        ("log_bin", "OFF".to_owned()),
        ("max_allowed_packet", (64 * MIB).to_string()),
        ("max_connections", connections.to_string()),
        ("max_prepared_stmt_count", statements.to_string()),
        // The cost of its instruments differs by version; the pass that looks for hot locks turns it on.
        ("performance_schema", "OFF".to_owned()),
        ("skip_name_resolve", "ON".to_owned()),
        ("sync_binlog", "1".to_owned()),
        ("table_open_cache", table_cache.to_string()),
        ("thread_cache_size", "256".to_owned()),
        ("transaction_isolation", isolation_mysql(spec.isolation).to_owned()),
    ]);
    if version < Version(5, 6, 0, 0) {
        settings.remove("innodb_sort_buffer_size");
    }
    if version >= Version(5, 6, 0, 0) {
        // What is in the buffer when a load begins is the study's business: a quarter of what the last life used,
        // read in the background while the first seconds are measured, would be neither cold nor warm.
        for name in ["innodb_buffer_pool_dump_at_shutdown", "innodb_buffer_pool_load_at_startup"] {
            settings.insert(name.to_owned(), "OFF".to_owned());
        }
    }
    // 512 MiB of redo log in all, under the names it has had.
    if !is_mariadb && version >= Version(8, 0, 30, 0) {
        settings.insert("innodb_redo_log_capacity".to_owned(), (512 * MIB).to_string());
    } else if is_mariadb && version >= Version(10, 5, 0, 0) {
        settings.insert("innodb_log_file_size".to_owned(), (512 * MIB).to_string());
    } else {
        settings.insert("innodb_log_file_size".to_owned(), (256 * MIB).to_string());
        settings.insert("innodb_log_files_in_group".to_owned(), "2".to_owned());
    }
    // MySQL 8.0 has no query cache; elsewhere it serialises all statements.
    if is_mariadb || version < Version(8, 0, 0, 0) {
        settings.insert("query_cache_size".to_owned(), "0".to_owned());
        settings.insert("query_cache_type".to_owned(), "0".to_owned());
    }
    if !is_mariadb && version >= Version(8, 0, 0, 0) {
        settings.insert("mysqlx".to_owned(), "OFF".to_owned());
    }
    settings
}

fn isolation_mysql(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadUncommitted => "READ-UNCOMMITTED",
        Isolation::ReadCommitted => "READ-COMMITTED",
        Isolation::RepeatableRead => "REPEATABLE-READ",
        Isolation::Serializable => "SERIALIZABLE",
    }
}

fn postgres(spec: &Spec, memory_bytes: u64) -> Settings {
    let buffer = spec.buffer_bytes.unwrap_or_else(|| buffer_bytes(memory_bytes));
    let connections = (u64::from(spec.sessions) + 50).max(151);
    collect(&[
        ("default_transaction_isolation", spec.isolation.name().replace('-', " ")),
        ("effective_cache_size", format!("{}MB", (memory_bytes / 2 / MIB).max(256))),
        ("fsync", "on".to_owned()),
        ("full_page_writes", "on".to_owned()),
        ("max_connections", connections.to_string()),
        // The default of 1 GB makes a checkpoint every few seconds under a write load.
        ("max_wal_size", "4GB".to_owned()),
        ("shared_buffers", format!("{}MB", buffer / MIB)),
        ("synchronous_commit", "on".to_owned()),
    ])
}

/// The levels of a profile, see [`Profile`].
pub(crate) fn profile_settings(flavor: Flavor, profile: Profile) -> Settings {
    let on_off = |is_on: bool| if is_on { "ON" } else { "OFF" }.to_owned();
    if flavor == Flavor::Postgres {
        let is_safe = !matches!(profile, Profile::Unsafe);
        let is_sync = matches!(profile, Profile::Safest | Profile::CharmUnsafe);
        let on_off = |is_on: bool| if is_on { "on" } else { "off" }.to_owned();
        return collect(&[
            ("fsync", on_off(is_safe)),
            ("full_page_writes", on_off(is_safe)),
            ("synchronous_commit", on_off(is_sync)),
        ]);
    }
    let (flush, sync, has_binlog, doublewrite) = match profile {
        Profile::Safest | Profile::CharmUnsafe => ("1", "1", true, true),
        Profile::Fast => ("2", "0", false, true),
        Profile::Unsafe => ("0", "0", false, false),
    };
    let mut settings = collect(&[
        ("innodb_doublewrite", on_off(doublewrite)),
        ("innodb_flush_log_at_trx_commit", flush.to_owned()),
        ("log_bin", on_off(has_binlog)),
        ("sync_binlog", sync.to_owned()),
    ]);
    if has_binlog {
        settings.extend(binlog_settings());
    }
    settings
}

/// What goes with a binary log: its format differs by version, so it is pinned.
pub(crate) fn binlog_settings() -> Settings {
    collect(&[
        ("binlog_format", "MIXED".to_owned()),
        ("log_bin", "ON".to_owned()),
        ("server_id", "1".to_owned()),
    ])
}

/// A logging variant; the log's destination is set in each, since its default moved between versions.
pub(crate) fn logging_settings(flavor: Flavor, logging: Logging) -> Settings {
    if flavor == Flavor::Postgres {
        // Those that it has nothing like are refused by `deploy`, which can say so.
        let logged = if logging == Logging::GeneralFile { "all" } else { "none" };
        return collect(&[("log_statement", logged.to_owned())]);
    }
    let general = |is_on: &str, output: &str| {
        collect(&[
            ("general_log", is_on.to_owned()),
            ("log_bin", "OFF".to_owned()),
            ("log_output", output.to_owned()),
        ])
    };
    match logging {
        Logging::None => general("OFF", "FILE"),
        Logging::GeneralFile => general("ON", "FILE"),
        Logging::GeneralTable => general("ON", "TABLE"),
        Logging::Binlog => {
            let mut settings = general("OFF", "FILE");
            settings.extend(binlog_settings());
            settings
        }
    }
}

fn is_off(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "off" | "0" | "false" | "no")
}

/// The settings that [`durability`] looks at, in one notation: two servers of one build with the same ones lose the same.
pub(crate) fn deciding(flavor: Flavor, settings: &Settings) -> Settings {
    let text = |name: &str| settings.get(name).map(|value| value.to_ascii_lowercase());
    let switch = |name: &str| text(name).map(|value| if is_off(&value) { "off" } else { "on" }.to_owned());
    let found = if flavor == Flavor::Postgres {
        vec![
            ("fsync", switch("fsync")),
            ("full_page_writes", switch("full_page_writes")),
            // `local` and the remote ones are levels of their own.
            (
                "synchronous_commit",
                text("synchronous_commit").filter(|value| !is_off(value)).or(switch("synchronous_commit")),
            ),
        ]
    } else {
        let log_bin = switch("log_bin");
        // Without a log its syncing decides nothing.
        let sync_binlog = text("sync_binlog").filter(|_| log_bin.as_deref() == Some("on"));
        vec![
            ("innodb_doublewrite", switch("innodb_doublewrite")),
            ("innodb_flush_log_at_trx_commit", text("innodb_flush_log_at_trx_commit")),
            // O_DIRECT or not is no matter of durability; leaving out the sync is.
            ("innodb_flush_method", text("innodb_flush_method").filter(|method| method == "nosync")),
            ("log_bin", log_bin),
            ("sync_binlog", sync_binlog),
        ]
    };
    found.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// What the settings promise. MySQL family: the manual on innodb_flush_log_at_trx_commit and sync_binlog, where a lost
/// tail of the binary log counts as a loss only while the log is on. PostgreSQL: chapter "Reliability"; an asynchronous
/// commit is lost when the database crashes, too, within three times wal_writer_delay.
pub(crate) fn durability(flavor: Flavor, settings: &Settings) -> Durability {
    let value = |name: &str| settings.get(name).map(|v| v.to_ascii_lowercase()).unwrap_or_default();
    let is_off = |name: &str| is_off(&value(name));
    if flavor == Flavor::Postgres {
        return match () {
            () if is_off("fsync") || is_off("full_page_writes") => Durability::Corruptible,
            () if is_off("synchronous_commit") => Durability::Lossy,
            () => Durability::Full,
        };
    }
    let flush = value("innodb_flush_log_at_trx_commit");
    let flushes_rarely = flush == "2" || (!is_off("log_bin") && value("sync_binlog") != "1");
    match () {
        () if is_off("innodb_doublewrite") || value("innodb_flush_method") == "nosync" => {
            Durability::Corruptible
        }
        () if flush == "0" => Durability::Lossy,
        () if flushes_rarely => Durability::ProcessCrash,
        () => Durability::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_decides_is_written_in_one_notation() {
        let of = |flavor, pairs: &[(&str, &str)]| -> Vec<String> {
            let settings =
                collect(&pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<Vec<_>>());
            deciding(flavor, &settings).iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        let spelled = [
            ("innodb_flush_log_at_trx_commit", "1"),
            ("log_bin", "mysql-bin"),
            ("sync_binlog", "1"),
            ("innodb_doublewrite", "TRUE"),
            ("innodb_flush_method", "O_DIRECT"),
            ("max_connections", "100"),
        ];
        assert_eq!(
            of(Flavor::Mysql, &spelled),
            ["innodb_doublewrite=on", "innodb_flush_log_at_trx_commit=1", "log_bin=on", "sync_binlog=1"]
        );
        // Without a binary log its syncing decides nothing.
        assert_eq!(of(Flavor::Mariadb, &[("log_bin", "OFF"), ("sync_binlog", "0")]), ["log_bin=off"]);
        assert_eq!(
            of(Flavor::Postgres, &[("fsync", "on"), ("synchronous_commit", "False")]),
            ["fsync=on", "synchronous_commit=off"]
        );
        assert_eq!(
            of(Flavor::Postgres, &[("synchronous_commit", "remote_write")]),
            ["synchronous_commit=remote_write"]
        );
    }
}
