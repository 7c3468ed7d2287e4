//! Which server variables a stranger may set: those whose value is a number, a size, a switch or a word of a known list, and
//! whose name is not one of a file, a program, a plugin or a way in. What is not known to be plain is refused.

/// Words of a name that speak of files, programs, plugins, other servers, or who may come in.
const ANYWHERE: &str = "archive audit auth chroot component conninfo debug feedback grant gss hba ident keyring krb ldap \
     loose mysqlx pam plugin preload primary radius recovery replica replicate restore slave ssl tls wsrep \
     spider";
/// The same where they end a name: `innodb_log_file_size` is a size.
const AT_END: &str = "address addresses basename command commands cmd connect directories directory dirs file filename home \
     host infile libraries library password path paths plugins port priv program provider proxy socket url \
     user";
/// `skip_...` is no variable that a server lists, so that what follows could be the beginning of any name.
const SKIPS: &str = "skip_external_locking skip_innodb_doublewrite skip_log_bin skip_name_resolve";

/// Variables whose values are words.
const OF_WORDS: &str = "binlog_checksum binlog_format binlog_row_image binlog_transaction_dependency_tracking \
     character_set_server collation_server completion_type compute_query_id concurrent_insert \
     constraint_exclusion default_storage_engine default_toast_compression default_transaction_isolation \
     delay_key_write dynamic_shared_memory_type event_scheduler huge_pages innodb_change_buffering \
     innodb_checksum_algorithm innodb_compression_algorithm innodb_default_row_format innodb_doublewrite \
     innodb_file_format innodb_flush_method innodb_stats_method io_method log_min_messages log_output \
     log_statement optimizer_switch plan_cache_mode query_cache_type shared_memory_type sql_mode \
     synchronous_commit thread_handling track_functions transaction_isolation tx_isolation use_stat_tables \
     wal_compression wal_level wal_sync_method xmlbinary";

const SWITCHES: &str = "on off true false yes no default";

/// Whether a list of words, with blanks between them, has this one.
fn is_among(list: &str, wanted: &str) -> bool {
    list.split(' ').any(|word| word == wanted)
}

/// Why a stranger may not set this; `None`: it is plain.
pub(super) fn why_not(name: &str, value: &str, bytes_max: u64) -> Option<String> {
    let name = name.trim().trim_start_matches("--").to_ascii_lowercase().replace('-', "_");
    let words: Vec<&str> = name.split('_').collect();
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
        return Some("a variable of an extension, or no variable's name".to_owned());
    }
    let ends = words.last().is_some_and(|last| is_among(AT_END, last) || last.ends_with("dir"));
    let is_skip = words[0] == "skip" && !is_among(SKIPS, &name);
    if ends || is_skip || words[0] == "init" || words.iter().any(|word| is_among(ANYWHERE, word)) {
        return Some(
            "it may name a file, a directory, a program or a plugin, or say who may come in".to_owned(),
        );
    }
    if is_among(SWITCHES, &value.to_ascii_lowercase()) {
        return None;
    }
    if let Some(number) = number(value) {
        let bytes = number * bytes_of_one(&name, value);
        return (bytes > bytes_max as f64).then(|| {
            format!(
                "`{value}` is more than {} MiB, the largest size that a stranger may give",
                bytes_max >> 20
            )
        });
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_,=-".contains(&byte);
    if is_among(OF_WORDS, &name) && value.len() <= 500 && value.bytes().all(plain) {
        return None;
    }
    Some(format!("`{value}` is neither a number, a size nor a switch"))
}

/// How many bytes one of a unit of sizes is; 0 of a time or a share.
fn bytes_of_unit(unit: &str) -> Option<f64> {
    let power = match unit {
        "" | "b" => 0,
        "k" | "kb" => 1,
        "m" | "mb" => 2,
        "g" | "gb" => 3,
        "t" | "tb" => 4,
        "p" | "pb" => 5,
        "e" => 6,
        "us" | "ms" | "s" | "min" | "h" | "d" | "%" => return Some(0.0),
        _ => return None,
    };
    Some(1024_f64.powi(power))
}

fn split(value: &str) -> (&str, String) {
    let value = value.trim();
    let at = value.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-')).unwrap_or(value.len());
    (&value[..at], value[at..].trim().to_ascii_lowercase())
}

fn number(value: &str) -> Option<f64> {
    let (digits, unit) = split(value);
    bytes_of_unit(&unit)?;
    digits.parse::<f64>().ok().filter(|number| number.is_finite())
}

/// What one of a value's units is in bytes: PostgreSQL counts some variables in pages, kB or MB where no unit is given.
fn bytes_of_one(name: &str, value: &str) -> f64 {
    let (_, unit) = split(value);
    let of_unit = bytes_of_unit(&unit).unwrap_or(1.0);
    match name {
        _ if !unit.is_empty() => of_unit,
        "shared_buffers" | "temp_buffers" | "wal_buffers" => 8192.0,
        "work_mem" | "maintenance_work_mem" | "autovacuum_work_mem" | "logical_decoding_work_mem" => 1024.0,
        "max_wal_size" | "min_wal_size" | "wal_keep_size" | "min_dynamic_shared_memory" => 1048576.0,
        _ => of_unit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_values_of_plain_variables_are_taken() {
        for (name, value) in [
            ("innodb_buffer_pool_size", "1G"),
            ("innodb-log-file-size", "268435456"),
            ("innodb_file_per_table", "ON"),
            ("innodb_flush_log_at_trx_commit", "2"),
            ("innodb_flush_method", "O_DIRECT"),
            ("innodb_max_dirty_pages_pct", "75.5"),
            ("open_files_limit", "65535"),
            ("sql_mode", "STRICT_TRANS_TABLES,NO_ZERO_DATE"),
            ("optimizer_switch", "mrr=on,mrr_cost_based=off"),
            ("skip_log_bin", "on"),
            ("shared_buffers", "2GB"),
            ("shared_buffers", "262144"),
            ("wal_sync_method", "fdatasync"),
            ("checkpoint_timeout", "30min"),
            ("synchronous_commit", "remote_apply"),
        ] {
            assert_eq!(why_not(name, value, 8 << 30), None, "{name}={value}");
        }
    }

    #[test]
    fn what_names_files_programs_or_plugins_is_refused() {
        for (name, value) in [
            ("datadir", "x"),
            ("general_log_file", "1"),
            ("init_file", "x.sql"),
            ("init-connect", "1"),
            ("innodb_data_file_path", "ibdata1:12M"),
            ("innodb_undo_directory", "on"),
            ("plugin_load_add", "ha_archive"),
            ("--plugin-load", "on"),
            ("loose_plugin_loa", "1"),
            ("skip_gran", "on"),
            ("skip_grant_tables", "on"),
            ("archive_command", "false"),
            ("archive_library", "x"),
            ("restore_command", "true"),
            ("shared_preload_libraries", "auto_explain"),
            ("local_preload_libraries", "x"),
            ("jit_provider", "llvmjit"),
            ("dynamic_library_path", "on"),
            ("ssl_passphrase_command", "on"),
            ("ssl", "on"),
            ("wsrep_provider", "none"),
            ("secure_file_priv", "on"),
            ("local_infile", "on"),
            ("port", "3306"),
            ("unix_socket_directories", "on"),
            ("feedback_url", "on"),
            ("auto_explain.log_min_duration", "0"),
            ("event_scheduler", "/x"),
            ("character_set_server", "../../x"),
            ("log_bin", "/var/lib/x"),
            ("innodb_tmpdir", "/tmp"),
            ("some_new_variable", "word"),
        ] {
            assert!(why_not(name, value, 8 << 30).is_some(), "{name}={value} is taken");
        }
    }

    #[test]
    fn sizes_are_bounded_in_every_unit() {
        for (name, value) in [
            ("innodb_buffer_pool_size", "9G"),
            ("innodb_buffer_pool_size", "9663676416"),
            ("shared_buffers", "9GB"),
            ("shared_buffers", "1200000"),
            ("work_mem", "1TB"),
            ("max_wal_size", "9000"),
        ] {
            let why = why_not(name, value, 8 << 30);
            assert!(why.is_some_and(|why| why.contains("8192 MiB")), "{name}={value}");
        }
    }
}
