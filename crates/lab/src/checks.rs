//! What is looked at before a run, so that a ladder does not end at its last rung.

use std::path::Path;

use wire::Protocol;
use wire::blocking::Client;
use workload::Needs;

use crate::error::Error;

/// File descriptors that the process needs beside one for each session: epolls, pipes, logs, the results file.
const DESCRIPTORS_BESIDE: u64 = 64;
/// Connections beside those of the load: control work, samplers, loaders.
pub(crate) const CONNECTIONS_BESIDE: u32 = 8;
/// Disk that a server needs beside its tables: system tables, logs, temporary files.
const DISK_BESIDE_BYTES: u64 = 512 << 20;

/// Raises this process's limit of open files as far as it goes, and says whether it is enough for so many sessions. That
/// of its client processes is the same.
pub fn descriptors(sessions: u32) -> Result<(), Error> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for both calls.
    let raised = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        let wanted = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        if limit.rlim_cur < limit.rlim_max && libc::setrlimit(libc::RLIMIT_NOFILE, &raw const wanted) == 0 {
            limit.rlim_max
        } else {
            limit.rlim_cur
        }
    };
    let needed = u64::from(sessions) + DESCRIPTORS_BESIDE;
    if raised >= needed {
        return Ok(());
    }
    Err(Error::Usage(format!(
        "{sessions} sessions in one process need {needed} open files, it may have {raised}: raise the hard limit \
         (`ulimit -Hn`, or nofile in /etc/security/limits.conf), use fewer sessions, or more client processes (--clients)"
    )))
}

/// A machine has 65,535 ports, and control work needs some of them.
pub(crate) const SESSIONS_MAX: u32 = 65_000;

/// Refuses load levels that this machine cannot open the connections for, or that so many clients cannot share: before
/// anything is started for them. `machines`: those that connect to a port; `None`: to a socket, which takes none of theirs.
///
/// # Errors
/// Names the first such level, and what to do.
pub(crate) fn levels(sessions: &[u32], clients: u32, machines: Option<u32>) -> Result<(), Error> {
    if let Some(too_few) = sessions.iter().find(|sessions| **sessions < clients) {
        return Err(Error::Usage(format!(
            "{} cannot be shared out to {clients} clients: use at least {clients} sessions, or fewer clients",
            store::counted(*too_few, "session")
        )));
    }
    let most = sessions.iter().max().copied().unwrap_or(1);
    descriptors(most.div_ceil(clients.max(1)))?;
    let Some(machines) = machines else { return Ok(()) };
    let allowed = SESSIONS_MAX.saturating_mul(machines);
    if most <= allowed {
        return Ok(());
    }
    let have = if machines == 1 { "a machine has".to_owned() } else { format!("{machines} machines have") };
    Err(Error::Usage(format!("{most} sessions are more than {have} ports: use at most {allowed}")))
}

/// Why there is no room for tables, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) message: String,
    pub(crate) remedy: String,
}

impl From<Shortage> for Error {
    fn from(shortage: Shortage) -> Error {
        Error::Run(format!("{}: {}", shortage.message, shortage.remedy))
    }
}

/// Whether there is room for tables of so many bytes; `copies` of them when a snapshot is kept too. `None`: there is.
pub(crate) fn shortage(path: &Path, data_bytes: u64, copies: u64) -> Option<Shortage> {
    shortage_of(&path.display().to_string(), available_bytes(path)?, data_bytes, copies)
}

/// The same for a place that is not there yet.
pub(crate) fn shortage_of(place: &str, available: u64, data_bytes: u64, copies: u64) -> Option<Shortage> {
    let needed = data_bytes.saturating_mul(copies).saturating_add(DISK_BESIDE_BYTES);
    if available >= needed {
        return None;
    }
    let twice = match copies {
        0 | 1 => String::new(),
        2 => " and as much again for the snapshot that later runs begin with".to_owned(),
        more => format!(" and {} times as much again for replicas and the snapshot", more - 1),
    };
    let message = format!(
        "{place} has {} free, the tables need about {}{twice}",
        megabytes(available),
        megabytes(data_bytes.saturating_add(DISK_BESIDE_BYTES))
    );
    let remedy = "use smaller tables (by the workload's options), free some space (`plimsoll snapshots prune --all` \
                  where those are large), or take a larger disk (PLIMSOLL_HOME, or the data directory's)";
    Some(Shortage { message, remedy: remedy.to_owned() })
}

/// Whether a server that runs on this machine has room for tables of so many bytes; of one that runs elsewhere or hides
/// its data directory nothing is known.
///
/// # Errors
/// There is not enough.
pub fn room(target: &wire::Target, data_bytes: u64) -> Result<(), Error> {
    match crate::watch::process_of(target) {
        (_, Some(datadir)) => {
            shortage(&datadir, data_bytes, 1).map_or(Ok(()), |shortage| Err(shortage.into()))
        }
        _ => Ok(()),
    }
}

/// Free space for unprivileged processes; `None` where the system does not say.
pub fn available_bytes(path: &Path) -> Option<u64> {
    // What is not made yet will be in the file system of what it is made in.
    let existing = path.ancestors().find(|path| path.exists())?;
    sandbox::storage::free_bytes(existing).ok()
}

pub(crate) fn megabytes(bytes: u64) -> String {
    if bytes >= 10 << 30 { format!("{} GB", bytes >> 30) } else { format!("{} MB", bytes >> 20) }
}

/// Whether the server lets so many sessions and statements in.
pub(crate) fn server(client: &mut Client, protocol: Protocol, needs: Needs) -> Result<(), Error> {
    let connections_sql = match protocol {
        Protocol::Mysql => "SELECT @@global.max_connections",
        Protocol::Postgres => "SELECT setting FROM pg_settings WHERE name = 'max_connections'",
    };
    if let Some(allowed) = number(client, connections_sql) {
        let needed = u64::from(needs.connections) + u64::from(CONNECTIONS_BESIDE);
        if allowed < needed {
            return Err(Error::Server(format!(
                "the server allows {allowed} connections (max_connections), {} and control work need \
                 {needed}: raise max_connections, or use fewer sessions",
                store::counted(needs.connections, "session")
            )));
        }
    }
    if protocol == Protocol::Mysql
        && let Some(allowed) = number(client, "SELECT @@global.max_prepared_stmt_count")
        && allowed < needs.prepared_statements
    {
        return Err(Error::Server(format!(
            "the server allows {allowed} prepared statements (max_prepared_stmt_count), and {} would prepare {}: \
             raise max_prepared_stmt_count, or use fewer sessions",
            store::counted(needs.connections, "session"),
            needs.prepared_statements
        )));
    }
    Ok(())
}

/// A server that does not know the variable has no such limit.
fn number(client: &mut Client, sql: &str) -> Option<u64> {
    client.query_value(sql).ok().flatten()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_sessions_name_the_limit_and_the_remedy() {
        descriptors(1).unwrap();
        let text = descriptors(u32::MAX - 1000).unwrap_err().to_string();
        assert!(text.contains("open files") && text.contains("ulimit -Hn"), "{text}");
    }

    #[test]
    fn levels_that_cannot_be_are_told_before_anything_is_started() {
        levels(&[1, 8], 1, None).unwrap();
        levels(&[100_000], 1000, None).unwrap();
        levels(&[100_000], 1000, Some(2)).unwrap();
        let text = |sessions: &[u32], clients| levels(sessions, clients, Some(1)).unwrap_err().to_string();
        assert!(text(&[8, 1], 4).contains("1 session cannot be shared out to 4 clients"));
        assert!(text(&[8, 100_000], 1024).contains("8 sessions cannot be shared out to 1024 clients"));
        assert!(text(&[100_000], 1000).contains("at most 65000"));
    }

    #[test]
    fn a_disk_too_small_is_refused_before_anything_is_written() {
        assert_eq!(shortage(Path::new("/tmp"), 1, 1), None);
        let short = shortage(Path::new("/tmp/not/there/yet"), u64::MAX / 4, 2).unwrap();
        assert!(short.message.contains("for the snapshot") && short.remedy.contains("smaller tables"));
        let made = shortage_of("a file system of 2048 MB", 2 << 30, 3 << 30, 1).unwrap();
        assert!(made.message.starts_with("a file system of 2048 MB has 2048 MB free"), "{made:?}");
    }
}
