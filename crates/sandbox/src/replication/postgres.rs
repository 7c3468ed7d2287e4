//! PostgreSQL: streaming standbys on copied data directories ("High Availability, Load Balancing, and Replication").

use std::path::Path;
use std::time::{Duration, Instant};

use super::{Source, USER, write_private};
use crate::build::Version;
use crate::record::Record;
use crate::{Error, Sandbox, Settings};

/// What a primary needs where it is not the default: from 10 on it is.
pub(super) fn of_primary(version: Version) -> Settings {
    if version >= Version(10, 0, 0, 0) {
        return Settings::new();
    }
    let pairs = [("wal_level", "replica"), ("max_wal_senders", "10"), ("max_replication_slots", "10")];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// It answers, and tries again soon where the primary is not there yet.
pub(super) const OF_REPLICA: [(&str, &str); 2] =
    [("hot_standby", "on"), ("wal_retrieve_retry_interval", "100ms")];

/// Lets the replicas' account in over TCP.
pub(super) fn let_in(datadir: &Path) -> Result<(), Error> {
    let rule = format!("host replication {USER} 127.0.0.1/32 md5\n");
    write_private(&datadir.join("pg_hba.conf"), &rule, None)
}

pub(super) fn account(password: &str) -> Vec<String> {
    vec![
        format!("CREATE ROLE {USER} LOGIN REPLICATION PASSWORD '{password}'"),
        "SELECT pg_reload_conf()".to_owned(),
    ]
}

/// A slot keeps the log that its replica has not had yet, beginning now.
pub(super) fn slot(name: &str) -> String {
    format!(
        "SELECT pg_create_physical_replication_slot('{name}', true) \
         WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_name = '{name}')"
    )
}

/// A standby, which gets its primary's log from its first start on.
pub(super) fn adopt(record: &Record, source: &Source) -> Result<(), Error> {
    let datadir = &record.datadir;
    // Slots of the primary's own would keep log here for ever.
    let slots = datadir.join("pg_replslot");
    for slot in std::fs::read_dir(&slots).map_err(|e| Error::io("read", &slots, e))?.flatten() {
        std::fs::remove_dir_all(slot.path()).map_err(|e| Error::io("remove", slot.path(), e))?;
    }
    let password = source.password.reveal();
    let version = record.build.numbers();
    let pgpass = datadir.join("plimsoll.pgpass");
    let secret = match version >= Version(10, 0, 0, 0) {
        true => {
            write_private(&pgpass, &format!("127.0.0.1:{}:*:{USER}:{password}\n", source.port), record.ids)?;
            format!("passfile=''{}''", pgpass.display())
        }
        // It takes no file's name, and shows nobody what stands in recovery.conf.
        false => format!("password={password}"),
    };
    for (file, text) in files(version, source, &secret) {
        write_private(&datadir.join(file), &text, record.ids)?;
    }
    Ok(())
}

/// What makes it a standby: a file of its own before 12, an empty one and settings since.
fn files(version: Version, source: &Source, secret: &str) -> Vec<(&'static str, String)> {
    let (port, name) = (source.port, source.name());
    let settings = format!(
        "primary_conninfo = 'host=127.0.0.1 port={port} user={USER} {secret} application_name={name}'\n\
         primary_slot_name = '{name}'\n"
    );
    match version >= Version(12, 0, 0, 0) {
        true => vec![("postgresql.auto.conf", settings), ("standby.signal", String::new())],
        false => {
            vec![(
                "recovery.conf",
                format!("standby_mode = 'on'\nrecovery_target_timeline = 'latest'\n{settings}"),
            )]
        }
    }
}

/// How long a primary may take to notice that it is to wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// Any replica will do: one that is lost does not stop the others.
pub(super) fn hold(primary: &Sandbox) -> Result<(), Error> {
    primary.tell(&[
        "ALTER SYSTEM SET synchronous_standby_names = '*'".to_owned(),
        "SELECT pg_reload_conf()".to_owned(),
    ])?;
    let until = Instant::now() + PATIENCE;
    let sql = "SELECT 1 FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum') LIMIT 1";
    while primary.ask(sql)?.is_none() {
        if Instant::now() >= until {
            return Err(Error::Unsupported {
                what: format!("synchronous replication of {}", primary.build()),
                why: format!("after {} s none of its replicas is synchronous", PATIENCE.as_secs()),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_is_told_by_the_files_of_its_version() {
        let source = Source { port: 20_001, password: wire::Secret::new("geheim"), number: 2 };
        let of = |version| files(version, &source, "passfile=''/x''");
        let new = of(Version(15, 18, 0, 0));
        assert_eq!(
            new.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            ["postgresql.auto.conf", "standby.signal"]
        );
        assert_eq!(
            new[0].1,
            "primary_conninfo = 'host=127.0.0.1 port=20001 user=plimsoll_replica passfile=''/x'' \
             application_name=plimsoll_replica_2'\nprimary_slot_name = 'plimsoll_replica_2'\n"
        );
        let old = of(Version(9, 6, 24, 0));
        assert_eq!(old.len(), 1);
        assert!(old[0].0 == "recovery.conf" && old[0].1.starts_with("standby_mode = 'on'\n"));
        assert!(of_primary(Version(15, 0, 0, 0)).is_empty());
        assert_eq!(of_primary(Version(9, 6, 24, 0))["wal_level"], "replica");
    }
}
