//! Which variables a version knows, asked of the server program itself before anything is started.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::sync::LazyLock;

use serde::Deserialize;

use super::{Settings, canonical};
use crate::build::{Build, Flavor, Version};
use crate::{Error, builds, record, server};

/// See known.toml.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Names {
    ours: Vec<String>,
    synonyms: Vec<String>,
    pub(crate) harmless: Vec<String>,
    pub(crate) structural: Vec<String>,
    /// By family: a name that a variable had, the newer one, and what to know.
    mysql: Vec<[String; 3]>,
    postgres: Vec<[String; 3]>,
}

pub(crate) static NAMES: LazyLock<Names> =
    LazyLock::new(|| toml::from_str(include_str!("known.toml")).expect("the tests read known.toml"));

/// Refuses settings that this build does not know, with the name that it knows instead, and those that are Plimsoll's
/// own. Asks the program only when there is something to check.
pub(crate) fn check(build: &Build, asked: &Settings) -> Result<(), Error> {
    if asked.is_empty() {
        return Ok(());
    }
    let known = known(build)?;
    for (name, value) in asked {
        judge(build, &known, name, value, &|name| is_taken_by_postgres(build, name))?;
    }
    match refused_value(build, asked)? {
        Some((name, why)) => Err(Error::Setting { build: build.name(), name, is_value: true, why }),
        None => Ok(()),
    }
}

/// Refuses values that programs take when they are asked, and servers refuse when they are initialised or started. It is for
/// those who would hear of it late: a server that is deployed says so itself.
pub(crate) fn check_start(build: &Build, asked: &Settings) -> Result<(), Error> {
    let refused = match build.flavor {
        Flavor::Postgres => refused_by_postgres(build, asked),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => refused_by_innodb(asked),
    };
    let refused =
        refused.map(|(name, why)| Error::Setting { build: build.name(), name, is_value: true, why });
    refused.map_or(Ok(()), Err)
}

fn value_of<'a>(asked: &'a Settings, wanted: &str) -> Option<(&'a String, &'a String)> {
    asked.iter().find(|(name, _)| canonical(name) == wanted)
}

/// Pages that no file has, and files that say no size.
fn refused_by_innodb(asked: &Settings) -> Option<(String, String)> {
    if let Some((name, text)) = value_of(asked, "innodb_page_size") {
        let sizes = ["4k", "8k", "16k", "32k", "64k", "4096", "8192", "16384", "32768", "65536"];
        if !sizes.contains(&text.trim().to_ascii_lowercase().as_str()) {
            let why = format!("`{text}` is not a size of pages, which is 4k, 8k, 16k, 32k or 64k");
            return Some((name.clone(), why));
        }
    }
    let (name, text) = value_of(asked, "innodb_data_file_path")?;
    let has_size = |file: &str| {
        file.split(':').nth(1).is_some_and(|size| size.starts_with(|c: char| c.is_ascii_digit()))
    };
    let is_bad = text.split(';').any(|file| !has_size(file));
    is_bad.then(|| {
        (name.clone(), format!("`{text}` is no list of files with sizes, such as ibdata1:12M:autoextend"))
    })
}

/// A log that says too little for those that would read it.
fn refused_by_postgres(build: &Build, asked: &Settings) -> Option<(String, String)> {
    let (name, level) = value_of(asked, "wal_level")?;
    let default = if build.numbers() >= Version(10, 0, 0, 0) { "10" } else { "0" };
    let senders = value_of(asked, "max_wal_senders").map_or(default, |(_, senders)| senders.trim());
    let is_bad = level.trim().eq_ignore_ascii_case("minimal") && senders != "0";
    is_bad
        .then(|| (name.clone(), format!("`{level}` needs max_wal_senders = 0 beside it, which is {senders}")))
}

/// The variable whose value the program does not take, with what it says; `None` where it takes all of them, or does
/// not look at values before it serves (5.5 to 10.1 with words of InnoDB).
fn refused_value(build: &Build, asked: &Settings) -> Result<Option<(String, String)>, Error> {
    if build.flavor == Flavor::Postgres {
        for (name, value) in asked.iter().filter(|(name, _)| !name.contains('.')) {
            let set = format!("{}={value}", canonical(name));
            let (is_taken, text) = ask_postgres(build, "work_mem", Some(set))?;
            if !is_taken {
                return Ok(Some((name.clone(), said_by_postgres(value, &text))));
            }
        }
        return Ok(None);
    }
    let checked: Vec<(&String, &String)> =
        asked.iter().filter(|(name, _)| !is_extra(&canonical(name))).collect();
    if checked.is_empty() {
        return Ok(None);
    }
    let mut args = help_of_mysql(build);
    args.push("--loose-log-error-verbosity=3".into());
    args.extend(checked.iter().map(|(name, value)| format!("--{}={value}", name.replace('_', "-")).into()));
    args.extend(["--verbose".into(), "--help".into()]);
    let (_, text) = ask(build, args)?;
    Ok(complaint_of_mysql(&checked, &text))
}

/// What `mysqld --verbose --help` said of a value: refused, or changed to another one, with which a run would not be
/// the one that was asked for.
fn complaint_of_mysql(asked: &[(&String, &String)], text: &str) -> Option<(String, String)> {
    let words = [
        "Error while setting value",
        "adjusted to",
        "Unknown suffix",
        "Incorrect ",
        "Unknown collation: ",
        "is not valid for CHARACTER SET",
        "is not a compiled character set",
    ];
    let lines = || text.lines().filter(|line| words.iter().any(|word| line.contains(word)));
    let about = |line: &str, name: &str| {
        let (line, name) = (canonical(line), canonical(name));
        [format!("'{name}'"), format!("for {name}")].iter().any(|form| line.contains(form.as_str()))
    };
    // These have the value and not the name.
    let about_charset = |line: &str, name: &str, value: &str| match name {
        "character_set_server" => line.contains(&format!("Character set '{value}' is not")),
        "collation_server" => {
            line.contains(&format!("Unknown collation: '{value}'"))
                || line.contains(&format!("COLLATION '{value}' is not valid"))
        }
        _ => false,
    };
    let is_named = |(name, value): &&(&String, &String)| {
        lines().any(|line| about(line, name) || about_charset(line, &canonical(name), value))
    };
    let (name, value) = asked.iter().find(is_named)?;
    let adjusted = lines().find(|line| about(line, name) && line.contains("adjusted to"));
    let is_refused = lines().any(|line| about(line, name) && line.contains("Error while setting value"));
    let why = match adjusted.and_then(|line| line.split_once("adjusted to ")) {
        Some((_, made)) if !is_refused => {
            format!("`{value}` is not possible, the server would take {} instead", made.trim_end_matches('.'))
        }
        _ => format!("`{value}` is not a value that it takes"),
    };
    Some(((*name).clone(), why))
}

/// PostgreSQL's own words after FATAL, with its hint.
fn said_by_postgres(value: &str, text: &str) -> String {
    let after = |mark: &str| text.lines().find_map(|line| line.split_once(mark)).map(|(_, said)| said.trim());
    match (after("FATAL:"), after("HINT:")) {
        (Some(said), Some(hint)) => format!("{said} ({})", hint.trim_end_matches('.')),
        (Some(said), None) => said.to_owned(),
        (None, _) => format!("`{value}` is not a value that it takes"),
    }
}

/// A variable of an extension or a plugin, known only once that is loaded; "loose_" asks to be let through.
fn is_extra(name: &str) -> bool {
    ["loose_", "rocksdb_", "tokudb_", "skip_", "plugin_load"].iter().any(|prefix| name.starts_with(prefix))
}

/// `is_hidden` is asked about a name that PostgreSQL does not list: it keeps developers' options to itself.
fn judge(
    build: &Build,
    known: &[String],
    given: &str,
    value: &str,
    is_hidden: &dyn Fn(&str) -> Result<bool, Error>,
) -> Result<(), Error> {
    let name = canonical(given);
    let setting =
        |is_value, why| Error::Setting { build: build.name(), name: given.to_owned(), is_value, why };
    let refuse = |why: String| Err(setting(false, why));
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.')) || name.is_empty() {
        return refuse("a variable's name is letters, digits and underscores".to_owned());
    }
    if value.contains(['\0', '\n']) {
        return Err(setting(true, "its value has a line break in it".to_owned()));
    }
    if NAMES.ours.contains(&name) {
        return refuse(
            "Plimsoll sets it itself; see --port, --datadir and `plimsoll sandbox deploy --help`".to_owned(),
        );
    }
    let is_postgres = build.flavor == Flavor::Postgres;
    let renamed = if is_postgres { &NAMES.postgres } else { &NAMES.mysql };
    let has = |candidate: &str| known.iter().any(|k| k == candidate);
    let is_extra = if is_postgres { name.contains('.') } else { is_extra(&name) };
    let is_synonym =
        NAMES.synonyms.contains(&name) && renamed.iter().any(|[old, new, _]| *old == name && has(new));
    if (has(&name) && !is_synonym) || is_extra {
        return Ok(());
    }
    for [old, new, note] in renamed.iter().filter(|[old, new, _]| *old == name || *new == name) {
        let note = if note.is_empty() { String::new() } else { format!(" ({note})") };
        let other = if *old == name { new } else { old };
        if other.is_empty() {
            return refuse(format!("this version does not have it any more{note}"));
        }
        if has(other) {
            return refuse(format!("this version calls it {other}{note}"));
        }
    }
    if is_postgres && is_hidden(&name)? {
        return Ok(());
    }
    match wire::spelling::nearest(&name, known.iter().map(String::as_str)) {
        Some(near) => refuse(format!("this version knows no such variable; is it {near}?")),
        None => refuse("this version knows no such variable".to_owned()),
    }
}

/// The names of all variables and options that the program takes.
fn known(build: &Build) -> Result<Vec<String>, Error> {
    let files = &build.files;
    let mut args: Vec<std::ffi::OsString> = Vec::new();
    if build.flavor == Flavor::Postgres {
        args.push("--describe-config".into());
    } else {
        args = help_of_mysql(build);
        args.extend(["--verbose".into(), "--help".into()]);
    }
    let (_, text) = ask(build, args)?;
    let names = if build.flavor == Flavor::Postgres { names_postgres(&text) } else { names_mysql(&text) };
    if names.len() < 50 {
        let why =
            format!("it does not list its variables: {}", text.lines().next().unwrap_or("it says nothing"));
        return Err(Error::Archive { path: files.server.clone(), why });
    }
    Ok(names)
}

/// The plugins that a server of the MySQL family has in its program, engines among them, in lower case: each is an option
/// that switches it.
pub(crate) fn plugins(build: &Build) -> Result<Vec<String>, Error> {
    let mut args = help_of_mysql(build);
    args.extend(["--verbose".into(), "--help".into()]);
    Ok(names_of_plugins(&ask(build, args)?.1))
}

/// From `mysqld --verbose --help`: `Enable or disable ARCHIVE plugin. One of: ON, OFF`.
fn names_of_plugins(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| line.split_once("Enable or disable "));
    let names = names.filter_map(|(_, rest)| rest.split_once(" plugin").map(|(name, _)| name));
    names.map(str::to_ascii_lowercase).collect()
}

/// What `mysqld --verbose --help` needs to be asked.
fn help_of_mysql(build: &Build) -> Vec<std::ffi::OsString> {
    let mut args: Vec<std::ffi::OsString> =
        vec!["--no-defaults".into(), format!("--basedir={}", build.files.base.display()).into()];
    if let Some(messages) = &build.files.messages {
        args.push(format!("--lc-messages-dir={}", messages.display()).into());
    }
    args
}

/// What the server program says to some arguments with which it does not serve, and whether it ended well.
fn ask(build: &Build, args: Vec<std::ffi::OsString>) -> Result<(bool, String), Error> {
    let server = &build.files.server;
    let env = server::environment(build, &std::collections::BTreeMap::new());
    let said =
        builds::ask(server, &args, &env).map_err(|e| Error::io("ask for the variables of", server, e))?;
    Ok((said.status.success(), said.out + &said.err))
}

/// Whether PostgreSQL has a variable.
fn is_taken_by_postgres(build: &Build, name: &str) -> Result<bool, Error> {
    Ok(ask_postgres(build, name, None)?.0)
}

/// Whether PostgreSQL prints a variable with `-C`, for which an empty configuration file is enough, while another one
/// is set (`name=value`); and what it said.
fn ask_postgres(build: &Build, name: &str, set: Option<String>) -> Result<(bool, String), Error> {
    let dir = std::env::temp_dir().join(format!("plimsoll-ask-{}-{}", std::process::id(), record::serial()));
    let fail = |e| Error::io("write", &dir, e);
    let config = dir.join("postgresql.conf");
    let make = || -> std::io::Result<()> {
        std::fs::create_dir(&dir)?;
        File::create(&config)?;
        // For another uid to read, whatever the umask is.
        std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o644))?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755))
    };
    let mut args = vec!["-D".into(), dir.clone().into_os_string(), "-C".into(), name.into()];
    args.extend(set.into_iter().flat_map(|set| ["-c".into(), set.into()]));
    let answer = make().map_err(fail).and_then(|()| ask(build, args));
    // Ours, and empty but for that file.
    let _ = std::fs::remove_dir_all(&dir);
    answer
}

/// From `postgres --describe-config`: the first column.
fn names_postgres(text: &str) -> Vec<String> {
    let names =
        text.lines().filter_map(|line| line.split_once('\t')).map(|(name, _)| name.to_ascii_lowercase());
    names.filter(|name| !name.contains(' ')).collect()
}

/// From `mysqld --verbose --help`: the options ("  --name=#", "  -b, --name") and the table of variables at the end.
fn names_mysql(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_table = false;
    for line in text.lines() {
        let found = if is_table {
            line.split_whitespace().next().filter(|_| !line.starts_with(' '))
        } else if line.starts_with("---------") {
            is_table = true;
            None
        } else if line.starts_with("  -") {
            line.split_once("--")
                .and_then(|(_, rest)| rest.split(|c: char| c.is_whitespace() || "[=".contains(c)).next())
        } else {
            None
        };
        if let Some(name) = found.filter(|name| !name.is_empty()) {
            names.push(canonical(name));
        }
        if is_table && line.trim().is_empty() {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::build_of;

    fn build(flavor: Flavor, version: &str) -> Build {
        build_of(&format!("{}@{version}", flavor.name()))
    }

    #[test]
    fn a_name_of_another_version_is_refused_with_the_one_it_has() {
        let check = |flavor: Flavor, known: &[&str], name: &str, expected: Option<&str>| {
            let known: Vec<String> = known.iter().map(|k| (*k).to_owned()).collect();
            let hidden = |name: &str| Ok(name == "zero_damaged_pages");
            match (judge(&build(flavor, "1.2.3"), &known, name, "1", &hidden), expected) {
                (Ok(()), None) => {}
                (Err(error), Some(expected)) => {
                    assert!(error.to_string().contains(expected), "{error}");
                    assert!(error.is_usage());
                }
                (result, expected) => panic!("{name}: {result:?}, expected {expected:?}"),
            }
        };
        let my = Flavor::Mysql;
        check(my, &["general_log"], "log", Some("calls it general_log"));
        check(my, &["table_cache", "table_open_cache"], "table_cache", Some("calls it table_open_cache"));
        check(my, &["expire_logs_days", "binlog_expire_logs_seconds"], "expire_logs_days", None);
        check(my, &["transaction_isolation"], "tx-isolation", Some("calls it transaction_isolation"));
        check(my, &["tx_isolation"], "transaction_isolation", Some("calls it tx_isolation"));
        check(
            my,
            &["innodb_log_file_size"],
            "innodb_redo_log_capacity",
            Some("calls it innodb_log_file_size"),
        );
        check(
            my,
            &["x"],
            "query_cache_size",
            Some("does not have it any more (MySQL 8.0 has no query cache)"),
        );
        check(
            my,
            &["innodb_buffer_pool_size"],
            "innodb_bufer_pool_size",
            Some("is it innodb_buffer_pool_size?"),
        );
        check(my, &["max_connections"], "MAX-CONNECTIONS", None);
        check(my, &["x"], "wholly_unknown", Some("knows no such variable"));
        check(my, &["x"], "rocksdb_block_size", None);
        check(my, &["socket"], "socket", Some("sets it itself"));
        check(my, &["x"], "a;b", Some("letters, digits"));
        let pg = Flavor::Postgres;
        check(pg, &["max_wal_size"], "checkpoint_segments", Some("calls it max_wal_size"));
        check(pg, &["wal_keep_segments"], "wal_keep_size", Some("calls it wal_keep_segments"));
        check(pg, &["shared_buffers"], "shared_bufers", Some("is it shared_buffers?"));
        check(pg, &["x"], "pg_stat_statements.max", None);
        check(pg, &["x"], "zero_damaged_pages", None);
        check(pg, &["max_connections"], "io_method", Some("knows no such variable"));
    }

    #[test]
    fn what_a_server_says_of_a_value_is_told_of_its_variable() {
        let said = |name: &str, value: &str, text: &str| {
            let (name, value) = (name.to_owned(), value.to_owned());
            complaint_of_mysql(&[(&name, &value)], text).map(|(_, why)| why)
        };
        let mariadb = "2026-11-23 17:20:14 0 [Warning] Could not increase number of max_open_files to more than 20000\n\
                       0 [ERROR] Unknown suffix 'a' used for variable 'innodb-buffer-pool-size' (value 'abc').\n\
                       0 [ERROR] bin/mariadbd: Error while setting value 'abc' to 'innodb-buffer-pool-size'\n";
        let pool = "innodb_buffer_pool_size";
        assert_eq!(said(pool, "abc", mariadb).unwrap(), "`abc` is not a value that it takes");
        assert_eq!(said("innodb_buffer_pool_instances", "1", mariadb), None);
        assert_eq!(said("max_open_files", "1", mariadb), None);
        let adjusted = "[Warning] option 'innodb-flush-log-at-trx-commit': unsigned value 9 adjusted to 2.\n";
        let why = said("innodb_flush_log_at_trx_commit", "9", adjusted).unwrap();
        assert_eq!(why, "`9` is not possible, the server would take 2 instead");
        let charset = "mysqld: Character set 'utf9' is not a compiled character set and is not specified in the \
                       '/usr/share/mysql/charsets/Index.xml' file\n";
        assert!(said("character_set_server", "utf9", charset).unwrap().contains("`utf9`"));
        let collation = "0 [ERROR] COLLATION 'latin1_bin' is not valid for CHARACTER SET 'utf8mb4'\n";
        assert!(said("collation_server", "latin1_bin", collation).is_some());
        assert_eq!(said("collation_server", "utf8mb4_bin", collation), None);
        let buffered = "[ERROR] Buffered error: Incorrect unsigned value: '-5' for max_connections\n";
        assert!(said("max_connections", "-5", buffered).unwrap().contains("`-5`"));

        let text = "GMT [1] FATAL:  invalid value for parameter \"wal_level\": \"foo\"\n\
                    GMT [1] HINT:  Available values: minimal, replica, logical.\n";
        let why = "invalid value for parameter \"wal_level\": \"foo\" (Available values: minimal, replica, logical)";
        assert_eq!(said_by_postgres("foo", text), why);
    }

    #[test]
    fn what_a_start_would_refuse_is_refused_before() {
        let refused = |flavor: Flavor, version: &str, asked: &[(&str, &str)]| {
            let asked = asked.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            match check_start(&build(flavor, version), &asked) {
                Err(Error::Setting { name, is_value: true, .. }) => Some(name),
                other => other.map(|()| None).unwrap(),
            }
        };
        let (mysql, postgres) = (Flavor::Mysql, Flavor::Postgres);
        assert_eq!(refused(mysql, "8.0.33", &[("innodb_page_size", "16K")]), None);
        assert_eq!(refused(mysql, "8.0.33", &[("innodb-page-size", "5000")]).unwrap(), "innodb-page-size");
        let path = "innodb_data_file_path";
        assert_eq!(refused(mysql, "8.0.33", &[(path, "ibdata1:12M;/x/b:50M:autoextend:max:1G")]), None);
        assert_eq!(refused(mysql, "8.0.33", &[(path, "nonsense")]).unwrap(), path);
        assert_eq!(refused(postgres, "15.18", &[("wal_level", "replica")]), None);
        assert_eq!(refused(postgres, "15.18", &[("wal_level", "minimal")]).unwrap(), "wal_level");
        assert_eq!(refused(postgres, "15.18", &[("wal_level", "minimal"), ("max_wal_senders", "0")]), None);
        assert_eq!(refused(postgres, "9.6.24", &[("wal_level", "minimal")]), None);
    }

    #[test]
    fn the_lists_of_both_families_are_read() {
        let help = "mysqld  Ver 8\nUsage\n  --general-log       Log\n  -b, --basedir=name  Path\n  --log-bin[=name]    Log\n\
                    \nVariables (--variable-name=value)\nand boolean\n--------- -----\nabort-slave-event-count   0\n\
                    big-tables   FALSE\n\nTo see what\n";
        assert_eq!(
            names_mysql(help),
            ["general_log", "basedir", "log_bin", "abort_slave_event_count", "big_tables"]
        );
        let help = "  --archive[=name]    Enable or disable ARCHIVE plugin. Possible values are ON,\n                      \
                    Enable or disable INNODB_LOCKS plugin. One of: ON, OFF,\n";
        assert_eq!(names_of_plugins(help), ["archive", "innodb_locks"]);
        let config = "shared_buffers\tpostmaster\tx\nTimeZone\tuser\ty\nnot a line\n";
        assert_eq!(names_postgres(config), ["shared_buffers", "timezone"]);
    }
}
