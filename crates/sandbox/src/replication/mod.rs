//! Replication: what a primary and its replicas are started with, and what they are told so that the replicas follow.
//!
//! Replicas of the MySQL family begin at a position of the primary's binary log rather than by GTID: that is what every
//! version has, and what goes from one version or flavour to another. Those of PostgreSQL are streaming standbys with a
//! slot of their own.

mod mysql;
mod postgres;

use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use mysql::Position;

use crate::build::Version;
use crate::process::Ids;
use crate::record::Record;
use crate::sandbox::random_password;
use crate::settings::canonical;
use crate::{Build, Error, Flavor, Listen, Sandbox, Settings, Spec};

/// Whom the replicas log in as.
const USER: &str = "plimsoll_replica";

/// What a commit on the primary waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Nothing.
    Async,
    /// MySQL family: a replica has received the transaction.
    SemiSync,
    /// PostgreSQL: a replica has flushed the transaction, or what `synchronous_commit` says.
    Sync,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Async, Mode::SemiSync, Mode::Sync];

    /// `async`, `semi-sync`, `sync`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Async => "async",
            Mode::SemiSync => "semi-sync",
            Mode::Sync => "sync",
        }
    }

    /// Why no server of the flavour replicates so.
    pub fn refusal(self, flavor: Flavor) -> Option<&'static str> {
        match (self, flavor == Flavor::Postgres) {
            (Mode::SemiSync, true) => Some("PostgreSQL replicates `async` or `sync`"),
            (Mode::Sync, false) => Some("MySQL and MariaDB replicate `async` or `semi-sync`"),
            _ => None,
        }
    }
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mode, Error> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| Error::Unsupported {
            what: format!("replication \"{text}\""),
            why: "the modes are async, semi-sync and sync".to_owned(),
        })
    }
}

/// Where a replica gets the primary's log, and as whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    port: u16,
    password: wire::Secret,
    /// Which replica, from 1.
    number: u32,
}

impl Source {
    /// The replica's name at the primary: that of its slot.
    fn name(&self) -> String {
        format!("{USER}_{}", self.number)
    }
}

/// Why no server of the one build can be a replica of one of the other, where that is known without trying.
pub fn refusal(primary: &Build, replica: &Build) -> Option<String> {
    let major = |build: &Build| match build.numbers() {
        Version(old @ ..=9, minor, ..) => (old, minor),
        Version(major, ..) => (major, 0),
    };
    match (primary.flavor, replica.flavor) {
        (Flavor::Postgres, Flavor::Postgres) if major(primary) != major(replica) => Some(format!(
            "streaming replication copies files, so that a replica has the primary's major version ({primary})"
        )),
        (Flavor::Postgres, Flavor::Postgres) => None,
        (Flavor::Postgres, _) | (_, Flavor::Postgres) => {
            Some(format!("{} and {} do not read each other's logs", primary.flavor, replica.flavor))
        }
        (Flavor::Mariadb, Flavor::Mysql | Flavor::Percona) => Some(
            "MariaDB's binary log has events that MySQL does not know; the other way round is possible"
                .to_owned(),
        ),
        _ => None,
    }
}

/// Why a build cannot take part in a mode of replication, where that is known without trying.
pub fn lacks(build: &Build, mode: Mode) -> Option<String> {
    mode.refusal(build.flavor).map(str::to_owned).or_else(|| match mode {
        Mode::SemiSync => mysql::lacks_semi_sync(build),
        Mode::Async | Mode::Sync => None,
    })
}

/// Why a primary as it is asked for cannot take part in a mode of replication, where that is known without trying.
pub fn refused_primary(spec: &Spec, mode: Mode) -> Option<String> {
    lacks(&spec.build, mode).or_else(|| refused_setting(spec, mode))
}

/// Why a primary with these settings would have nothing to send, or would not wait for what it sends.
fn refused_setting(spec: &Spec, mode: Mode) -> Option<String> {
    let settings = spec.effective_settings();
    let value = |name: &str| settings.get(name).map(|value| value.to_ascii_lowercase());
    let is_off =
        |name: &str| value(name).is_some_and(|value| matches!(&*value, "off" | "0" | "false" | "no"));
    if spec.build.flavor != Flavor::Postgres {
        return is_off("log_bin").then(|| "log_bin = OFF: replicas read the binary log".to_owned());
    }
    if value("wal_level").as_deref() == Some("minimal") {
        return Some("wal_level = minimal: replicas need `replica`".to_owned());
    }
    let commit = value("synchronous_commit").unwrap_or_default();
    let waits = !is_off("synchronous_commit") && commit != "local";
    (mode == Mode::Sync && !waits).then(|| {
        format!("synchronous_commit = {commit}: no commit waits for a replica (`async` is what that is)")
    })
}

/// Whether a replica begins with a copy of the primary's files. One of another version of the MySQL family has to load
/// the tables itself.
pub fn is_copied(primary: &Build, replica: &Build) -> bool {
    primary.flavor == Flavor::Postgres
        || (primary.flavor, primary.numbers()) == (replica.flavor, replica.numbers())
}

/// Makes a server that is to be deployed one that replicas can follow. What its user set stays.
pub fn make_primary(spec: &mut Spec) {
    spec.listen = Listen::FreePort;
    let wanted = match spec.build.flavor {
        Flavor::Postgres => postgres::of_primary(spec.build.numbers()),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => crate::settings::defaults::binlog_settings(),
    };
    for (name, value) in wanted {
        if !spec.settings.keys().any(|given| canonical(given) == name) {
            spec.settings.insert(name, value);
        }
    }
}

/// Makes a server that is to be deployed the replica of that number, from 1: like its primary, and read-only. It has a
/// binary log of its own only where its settings ask for one.
pub fn make_replica(spec: &mut Spec, number: u32) {
    spec.logging = None;
    let own = match spec.build.flavor {
        Flavor::Postgres => postgres::OF_REPLICA.map(|(name, value)| (name.to_owned(), value.to_owned())),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => {
            // The primary is 1.
            [("server_id", (number + 1).to_string()), ("read_only", "ON".to_owned())]
                .map(|(name, value)| (name.to_owned(), value))
        }
    };
    spec.settings.retain(|given, _| !own.iter().any(|(name, _)| canonical(given) == *name));
    spec.settings.extend(Settings::from(own));
}

/// Makes the account of the replicas on a primary that runs. Of the MySQL family its binary log begins anew: it may hold the
/// loading of the tables, which no replica needs.
pub fn prepare(primary: &Sandbox, replicas: &[&Build]) -> Result<wire::Secret, Error> {
    let password = random_password()?;
    match primary.build().flavor {
        Flavor::Postgres => {
            postgres::let_in(primary.datadir())?;
            primary.tell(&postgres::account(&password))?;
        }
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => {
            primary.tell(&mysql::account(primary.build(), replicas, &password))?;
        }
    }
    Ok(wire::Secret::new(password))
}

/// Where the replica of that number gets the primary's log.
///
/// # Errors
/// The primary has no port.
pub fn source(primary: &Sandbox, password: &wire::Secret, number: u32) -> Result<Source, Error> {
    let port = primary.port().ok_or_else(|| Error::Unsupported {
        what: format!("replicas of {}", primary.name()),
        why: "it listens on its socket alone".to_owned(),
    })?;
    Ok(Source { port, password: password.clone(), number })
}

/// Makes a primary that runs ready to be followed by so many replicas, once more after each of its starts. Where its log
/// ends; none of PostgreSQL, whose replicas know by themselves.
pub fn open(primary: &Sandbox, mode: Mode, replicas: u32) -> Result<Option<Position>, Error> {
    if primary.build().flavor == Flavor::Postgres {
        let names = (1..=replicas).map(|number| format!("{USER}_{number}"));
        primary.tell(&names.map(|name| postgres::slot(&name)).collect::<Vec<_>>())?;
        return Ok(None);
    }
    if mode == Mode::SemiSync {
        mysql::switch_semi_sync(primary, mysql::Side::Primary)?;
    }
    mysql::end_of_log(primary).map(Some)
}

/// Has a replica of the MySQL family that runs follow its primary from `position` on. PostgreSQL's follow from their start.
pub fn follow(replica: &Sandbox, source: &Source, position: &Position, mode: Mode) -> Result<(), Error> {
    if mode == Mode::SemiSync {
        mysql::switch_semi_sync(replica, mysql::Side::Replica)?;
    }
    replica.tell(&mysql::follow(replica.build(), source, position))
}

/// From now on the primary waits for its replicas, which follow it, as the mode says.
///
/// # Errors
/// It does not, although it was told to.
pub fn hold(primary: &Sandbox, mode: Mode) -> Result<(), Error> {
    match mode {
        Mode::Async => Ok(()),
        Mode::SemiSync => mysql::is_semi_sync(primary),
        Mode::Sync => postgres::hold(primary),
    }
}

/// Commits that waited for a replica since the primary was told to, and those that went on without: a server stops waiting
/// for one that does not answer. `None` where the server does not count them.
pub fn waited(primary: &Sandbox, mode: Mode) -> Result<Option<(u64, u64)>, Error> {
    match mode {
        Mode::SemiSync => mysql::waited(primary).map(Some),
        Mode::Async | Mode::Sync => Ok(None),
    }
}

/// Makes a copied data directory that of a replica, before its first start.
pub(crate) fn adopt(record: &Record, source: &Source) -> Result<(), Error> {
    match record.build.flavor {
        Flavor::Postgres => postgres::adopt(record, source),
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => mysql::adopt(&record.datadir),
    }
}

/// Writes a file of a server's own, for it alone.
fn write_private(path: &Path, text: &str, ids: Option<Ids>) -> Result<(), Error> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let fail = |e| Error::io("write", path, e);
    let mut file = std::fs::File::options().create(true).append(true).mode(0o600).open(path).map_err(fail)?;
    file.write_all(text.as_bytes()).map_err(fail)?;
    if let Some(Ids { uid, gid }) = ids {
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).map_err(|e| Error::io("give away", path, e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::build_of;

    #[test]
    fn who_cannot_follow_whom_is_known_before_anything_is_started() {
        let check = |primary: &str, replica: &str, why: Option<&str>| {
            let found = refusal(&build_of(primary), &build_of(replica));
            match why {
                None => assert_eq!(found, None, "{primary} {replica}"),
                Some(why) => assert!(found.unwrap().contains(why), "{primary} {replica}"),
            }
        };
        check("mariadb@10.11.19", "mariadb@10.2.11", None);
        check("mariadb@10.2.11", "mariadb@10.11.19", None);
        check("mysql@5.6.14", "mariadb@10.11.19", None);
        check("mariadb@10.11.19", "mysql@8.0.33", Some("the other way round"));
        check("postgres@15.18", "postgres@15.2", None);
        check("postgres@9.6.24", "postgres@9.5.1", Some("major version"));
        check("postgres@15.18", "postgres@16.1", Some("major version"));
        check("postgres@15.18", "mariadb@10.11.19", Some("each other's logs"));
        assert!(is_copied(&build_of("postgres@15.18"), &build_of("postgres@15.2")));
        assert!(!is_copied(&build_of("mariadb@10.11.19"), &build_of("mariadb@10.11.5")));
    }

    #[test]
    fn a_primary_keeps_what_its_user_set_and_a_replica_is_another_server() {
        let mut spec = Spec::new("p", build_of("mariadb@10.11.19"));
        spec.settings.insert("binlog-format".into(), "ROW".into());
        spec.settings.insert("server-id".into(), "7".into());
        let mut replica = spec.clone();
        make_primary(&mut spec);
        let settings = spec.effective_settings();
        let of = |name: &str| settings.get(name).map(String::as_str);
        assert_eq!(
            (of("log_bin"), of("binlog_format"), of("server_id")),
            (Some("ON"), Some("ROW"), Some("7"))
        );
        assert_eq!(spec.listen, Listen::FreePort);
        make_replica(&mut replica, 2);
        let settings = replica.effective_settings();
        let of = |name: &str| settings.get(name).map(String::as_str);
        assert_eq!((of("log_bin"), of("server_id"), of("read_only")), (Some("OFF"), Some("3"), Some("ON")));
        assert_eq!(replica.listen, Listen::SocketOnly);
    }

    #[test]
    fn settings_under_which_replication_would_be_none_are_named() {
        let with = |build: &str, pairs: &[(&str, &str)], mode| {
            let mut spec = Spec::new("p", build_of(build));
            spec.settings = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            make_primary(&mut spec);
            refused_setting(&spec, mode)
        };
        assert_eq!(with("mariadb@10.11.19", &[], Mode::SemiSync), None);
        assert!(with("mysql@8.0.33", &[("log_bin", "OFF")], Mode::Async).unwrap().contains("binary log"));
        assert_eq!(with("postgres@15.18", &[], Mode::Sync), None);
        let lazy = &[("synchronous_commit", "local")];
        assert!(with("postgres@15.18", lazy, Mode::Sync).unwrap().contains("no commit waits"));
        assert_eq!(with("postgres@15.18", lazy, Mode::Async), None);
        assert!(
            with("postgres@15.18", &[("wal_level", "minimal")], Mode::Async).unwrap().contains("replica")
        );
        assert!(
            Mode::SemiSync.refusal(Flavor::Postgres).is_some() && Mode::Sync.refusal(Flavor::Mysql).is_some()
        );
    }
}
