//! What differs between the servers' programs: how a data directory is made, how the server is started, asked whether
//! it answers, and stopped.

pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod probe;

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;

use crate::build::{Build, Flavor};
use crate::process::{self, Launch};
use crate::record::Record;
use crate::{Error, builds};

/// How long a program that prepares a data directory may take.
const INIT_PATIENCE: Duration = Duration::from_secs(300);

/// Makes the data directory, which exists and is empty.
pub(crate) fn init(record: &Record, dir: &Path) -> Result<(), Error> {
    match record.build.flavor {
        Flavor::Postgres => postgres::init(record, dir),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => mysql::init(record, dir),
    }
}

pub(crate) fn launch(record: &Record, dir: &Path) -> Result<Launch, Error> {
    let mut launch = launch_of(record, &dir.join("server.log"))?;
    launch.args = match record.build.flavor {
        Flavor::Postgres => postgres::arguments(record, dir),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => mysql::arguments(record, dir),
    };
    launch.cpus = record.cpus.clone();
    launch.cgroups = record.cgroups.iter().map(|group| group.join("cgroup.procs")).collect();
    if record.of_run {
        launch.dies_with_us = Some(match record.build.flavor {
            // On SIGQUIT the postmaster ends its children and removes its shared memory.
            Flavor::Postgres => libc::SIGQUIT,
            Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => libc::SIGKILL,
        });
    }
    Ok(launch)
}

/// The signal for a graceful stop: for PostgreSQL the "fast" one, which does not wait for clients to leave.
pub(crate) fn stop_signal(flavor: Flavor) -> Signal {
    match flavor {
        Flavor::Postgres => Signal::INT,
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => Signal::TERM,
    }
}

/// The environment of a build's programs: its own libraries, then what was asked for.
pub(crate) fn environment(
    build: &Build,
    env: &std::collections::BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = Vec::new();
    if !build.files.libraries.is_empty() {
        all.push(("LD_LIBRARY_PATH".into(), builds::library_path(&build.files.libraries)));
    }
    all.extend(env.iter().map(|(name, value)| (name.into(), value.into())));
    all
}

/// A launch of the server in the data directory of a sandbox, without arguments.
fn launch_of(record: &Record, log: &Path) -> Result<Launch, Error> {
    // A log may hold statements, and with them what is in them.
    let log = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(log)
        .map_err(|e| Error::io("write", log, e))?;
    Ok(Launch {
        env: environment(&record.build, &record.env),
        ids: record.ids,
        ..Launch::new(&record.build.files.server, &record.datadir, log)
    })
}

/// What to say when a server failed because its disk is full, which servers bury in their logs under the number of the
/// error (ENOSPC is 28). One that is refused the space for a large file leaves the disk as free as it was.
pub(crate) fn out_of_space(datadir: &Path, log: &str) -> &'static str {
    const LEAST_BYTES: u64 = 4 << 20;
    let is_full = crate::storage::free_bytes(datadir).is_ok_and(|free| free < LEAST_BYTES);
    let words = ["No space left", "error 28", "errno: 28", "errno 28", "Errcode: 28", "error number 28"];
    if is_full || words.iter().any(|word| log.contains(word)) {
        return "; its disk is full: free some space, or give it a larger place (PLIMSOLL_HOME, --datadir, storage)";
    }
    ""
}

/// The line of a log that says why a server ended: its first error; what follows are its consequences. PostgreSQL's
/// hint goes with it.
pub(crate) fn cause_in(log: &str) -> Option<String> {
    let marks = ["[ERROR]", "FATAL:", "PANIC:"];
    let mut lines = log.lines();
    let is_summary = |said: &str| said.ends_with("Aborting") || said.contains("Parsing options for plugin");
    // "/usr/sbin/mariadbd: Character set 'x' is not a compiled character set": said before there is a log.
    let by_program = |line: &'_ str| -> Option<usize> {
        let (program, _) = line.split_once(": ").filter(|_| line.starts_with('/'))?;
        ["/mysqld", "/mariadbd", "/postgres", "/initdb"]
            .iter()
            .any(|name| program.ends_with(name))
            .then_some(program.len() + 2)
    };
    let first = lines.by_ref().find_map(|line| {
        let marked = marks.iter().find_map(|mark| line.split_once(mark)).map(|(_, said)| said.trim());
        let said = marked.or_else(|| by_program(line).map(|at| line[at..].trim()))?;
        (!is_summary(said)).then_some(said)
    })?;
    // MySQL 8: "[MY-000077] [Server] ...".
    let mut said = first;
    while let Some((_, rest)) = said.strip_prefix('[').and_then(|tail| tail.split_once(']')) {
        said = rest.trim_start();
    }
    let hint = lines.next().and_then(|line| line.split_once("HINT:")).map(|(_, hint)| hint.trim());
    Some(hint.map_or_else(|| said.to_owned(), |hint| format!("{said} ({})", hint.trim_end_matches('.'))))
}

/// Runs a program that prepares the data directory, to its end.
fn run_init(record: &Record, launch: Launch, log: &Path) -> Result<(), Error> {
    let fail = |why: String| {
        let log = process::tail(log, 20).join("\n");
        let cause = cause_in(&log).map_or_else(String::new, |cause| format!(": {cause}"));
        let why = why + &cause;
        Error::Init { build: record.build.name(), why: why + out_of_space(&record.datadir, &log), log }
    };
    let program = launch.program.clone();
    let hint = if launch.passwd.is_some() {
        "; its user has no name here and cannot be given one: add one to /etc/passwd"
    } else {
        ""
    };
    let mut child = process::spawn(launch)
        .map_err(|e| fail(format!("{} cannot be started ({e}){hint}", program.display())))?;
    let pid = child.id();
    let family = record.family();
    if !process::wait_gone(&family, Some(pid), Some(&mut child), INIT_PATIENCE) {
        process::kill_all_of(&family, Some(&mut child));
        return Err(fail(format!("it took more than {} s", INIT_PATIENCE.as_secs())));
    }
    let status = child.wait().map_err(|e| fail(e.to_string()))?;
    if status.success() { Ok(()) } else { Err(fail(format!("{} ended with {status}", program.display()))) }
}

#[cfg(test)]
mod tests {
    use super::cause_in;

    #[test]
    fn the_first_error_of_a_log_is_the_cause() {
        let mysql = "2026 0 [System] [MY-010116] [Server] mysqld starting\n\
                     2026 0 [ERROR] [MY-000077] [Server] mysqld: Error while setting value 'x' to 'innodb-flush-method'.\n\
                     2026 0 [ERROR] [MY-010746] [Server] Parsing options for plugin 'InnoDB' failed.\n\
                     2026 0 [ERROR] [MY-010119] [Server] Aborting\n";
        let cause = "mysqld: Error while setting value 'x' to 'innodb-flush-method'.";
        assert_eq!(cause_in(mysql).as_deref(), Some(cause));
        let postgres = "LOG:  starting\n[7] FATAL:  invalid value for parameter \"wal_level\": \"foo\"\n\
                        [7] HINT:  Available values: minimal, replica, logical.\n";
        assert!(
            cause_in(postgres).unwrap().ends_with("\"foo\" (Available values: minimal, replica, logical)")
        );
        let early = "/usr/sbin/mariadbd: Character set 'nosuch' is not a compiled character set\n";
        assert_eq!(
            cause_in(early).as_deref(),
            Some("Character set 'nosuch' is not a compiled character set")
        );
        assert_eq!(cause_in("[Note] all is well"), None);
    }
}
