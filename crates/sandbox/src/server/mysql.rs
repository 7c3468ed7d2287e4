//! MySQL, MariaDB, Percona Server.

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::path::Path;

use super::{launch_of, run_init};
use crate::Error;
use crate::build::{Flavor, Version};
use crate::builds;
use crate::process::{Ids, Launch};
use crate::record::Record;
use crate::settings::known::NAMES;

/// Makes the data directory: MySQL from 5.7 on does it itself; before, and in every MariaDB, the server reads the SQL
/// of the system tables from its standard input (`--bootstrap`), which needs neither Perl nor an install script.
pub(crate) fn init(record: &Record, dir: &Path) -> Result<(), Error> {
    let log = dir.join("init.log");
    let mut launch = launch_of(record, &log)?;
    launch.args = basics(record, dir);
    for (name, value) in record.settings.iter().filter(|(name, _)| NAMES.structural.contains(name)) {
        // Early 5.5 wants numbers for booleans.
        let value = if value == "ON" { "1" } else { value };
        launch.args.push(format!("--{name}={value}").into());
    }
    // The data directory is thrown away if the machine dies now, so nothing needs to be synchronised.
    launch.args.push("--innodb_flush_log_at_trx_commit=0".into());
    let is_mariadb = record.build.flavor == Flavor::Mariadb;
    if !is_mariadb && record.build.numbers() >= Version(5, 7, 0, 0) {
        launch.args.push("--initialize-insecure".into());
        return run_init(record, launch, &log);
    }
    launch.args.extend(["--loose-sync-frm=0", "--max_allowed_packet=16M", "--bootstrap"].map(OsString::from));
    with_bootstrap_sql(record, dir, &mut launch)?;
    run_init(record, launch, &log)
}

fn with_bootstrap_sql(record: &Record, dir: &Path, launch: &mut Launch) -> Result<(), Error> {
    let share = record.build.files.share.as_deref();
    let Some((share, prefix)) = share.and_then(|share| Some((share, builds::system_tables(share)?))) else {
        return Err(Error::Init {
            build: record.build.name(),
            why: "the build lacks the SQL files of the system tables (share/*_system_tables.sql)".to_owned(),
            log: String::new(),
        });
    };
    // One statement a line: 5.6 refuses several.
    let mut sql = Vec::from(&b"CREATE DATABASE mysql;\nUSE mysql;\n"[..]);
    let is_mariadb = record.build.flavor == Flavor::Mariadb;
    if is_mariadb {
        // root logs in without password rather than by the name of the operating system's user.
        sql.extend_from_slice(b"SET @auth_root_socket=NULL;\n");
    }
    let files = ["system_tables.sql", "performance_tables.sql", "system_tables_data.sql", "sys_schema.sql"];
    for file in files {
        let path = share.join(format!("{prefix}{file}"));
        match std::fs::read(&path) {
            Ok(text) => {
                sql.extend_from_slice(&text);
                sql.push(b'\n');
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(Error::io("read", &path, e)),
        }
    }
    // No anonymous users, and no administrator without password for whoever reaches a TCP port.
    let users =
        if is_mariadb && record.build.numbers() >= Version(10, 4, 0, 0) { "global_priv" } else { "user" };
    write!(sql, "DELETE FROM mysql.{users} WHERE User='' OR Host<>'localhost';\nDELETE FROM mysql.db;\n")
        .map_err(|e| Error::io("write", dir, e))?;
    let path = dir.join("bootstrap.sql");
    std::fs::write(&path, &sql).map_err(|e| Error::io("write", &path, e))?;
    launch.stdin = Some(File::open(&path).map_err(|e| Error::io("read", &path, e))?);
    // The open file is enough.
    std::fs::remove_file(&path).map_err(|e| Error::io("remove", &path, e))
}

/// Where things are.
fn basics(record: &Record, dir: &Path) -> Vec<OsString> {
    let files = &record.build.files;
    let option = |name: &str, path: &Path| {
        let mut arg = OsString::from(format!("--{name}="));
        arg.push(path);
        arg
    };
    let mut args = vec![
        OsString::from("--no-defaults"),
        option("basedir", &files.base),
        option("datadir", &record.datadir),
        option("tmpdir", &dir.join("tmp")),
    ];
    if let Some(messages) = &files.messages {
        args.push(option("lc-messages-dir", messages));
    }
    if let Some(plugins) = &files.plugins {
        args.push(option("plugin-dir", plugins));
    }
    if record.ids == Some(Ids { uid: 0, gid: 0 }) {
        args.push("--user=root".into());
    }
    // Packaged builds insist on a directory that only their package makes.
    if record.build.flavor != Flavor::Mariadb && record.build.numbers() >= Version(5, 7, 0, 0) {
        args.push(option("secure-file-priv", &dir.join("tmp")));
    }
    args
}

/// The arguments of a running server.
pub(crate) fn arguments(record: &Record, dir: &Path) -> Vec<OsString> {
    let mut args = basics(record, dir);
    let version = record.build.numbers();
    let is_mysql = record.build.flavor != Flavor::Mariadb;
    let mut push = |arg: String| args.push(arg.into());
    push(format!("--socket={}", record.run_dir.join(SOCKET).display()));
    push(format!("--pid-file={}", record.run_dir.join("mysql.pid").display()));
    match record.port {
        Some(port) => {
            push(format!("--port={port}"));
            push(format!("--bind-address={}", record.address()));
        }
        None => push("--skip-networking".to_owned()),
    }
    if record.tls {
        for (option, file) in [("ssl-ca", "ca.pem"), ("ssl-cert", "server.pem"), ("ssl-key", "server.key")] {
            push(format!("--{option}={}", dir.join("tls").join(file).display()));
        }
    } else if is_mysql && version >= Version(8, 4, 0, 0) {
        push("--tls-version=".to_owned());
    } else {
        // "loose": 5.5 may be built without.
        push("--loose-skip-ssl".to_owned());
    }
    for (name, value) in &record.settings {
        // Early 5.5 wants numbers for booleans; no variable of its is an enumeration with ON among its values.
        let value = match value.as_str() {
            "ON" if version < Version(5, 6, 0, 0) => "1",
            "OFF" if version < Version(5, 6, 0, 0) => "0",
            other => other,
        };
        if let Some(arg) = argument(name, value, is_mysql && version >= Version(8, 0, 0, 0)) {
            push(arg);
        }
    }
    args
}

/// Name of the socket in its directory.
pub(crate) const SOCKET: &str = "mysql.sock";

/// A setting as an argument; `None` where leaving it out is the only way to say it.
fn argument(name: &str, value: &str, has_binlog_by_default: bool) -> Option<String> {
    let is_off = matches!(value.to_ascii_lowercase().as_str(), "off" | "0" | "false");
    let is_on = matches!(value.to_ascii_lowercase().as_str(), "on" | "1" | "true");
    match name {
        // The option takes a file name: `--log-bin=OFF` would log to a file of that name.
        "log_bin" if is_off => has_binlog_by_default.then(|| "--skip-log-bin".to_owned()),
        "log_bin" if is_on => Some("--log-bin=binlog".to_owned()),
        // Flags without a value in old versions.
        "skip_name_resolve" | "skip_networking" | "skip_external_locking" if is_off => None,
        "skip_name_resolve" | "skip_networking" | "skip_external_locking" if is_on => {
            Some(format!("--{}", name.replace('_', "-")))
        }
        _ => Some(format!("--{name}={value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_arguments_that_old_versions_understand() {
        let check = |name: &str, value: &str, modern: bool, expected: Option<&str>| {
            assert_eq!(argument(name, value, modern).as_deref(), expected, "{name}={value}");
        };
        check("log_bin", "OFF", false, None);
        check("log_bin", "0", true, Some("--skip-log-bin"));
        check("log_bin", "ON", false, Some("--log-bin=binlog"));
        check("log_bin", "other", false, Some("--log_bin=other"));
        check("skip_name_resolve", "ON", true, Some("--skip-name-resolve"));
        check("skip_name_resolve", "OFF", true, None);
        check("innodb_doublewrite", "OFF", true, Some("--innodb_doublewrite=OFF"));
    }
}
