//! MySQL, MariaDB, Percona Server: what each version calls the same things, from their manuals' chapters on replication.

use std::path::Path;

use super::{Source, USER};
use crate::build::{Build, Flavor, Version};
use crate::{Error, Sandbox};

/// A place in a primary's binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    pub file: String,
    pub offset: u64,
}

fn is_mariadb(build: &Build) -> bool {
    build.flavor == Flavor::Mariadb
}

/// The account of the replicas, which is not for them to repeat, and a log that begins anew.
pub(super) fn account(primary: &Build, replicas: &[&Build], password: &str) -> Vec<String> {
    let version = primary.numbers();
    // Replication of older servers, and MariaDB's, does not know how MySQL 8 asks for passwords.
    let is_new = |build: &&Build| !is_mariadb(build) && build.numbers() >= Version(8, 0, 4, 0);
    let asks_anew = !is_mariadb(primary) && version >= Version(8, 0, 4, 0);
    let how = match asks_anew && !replicas.iter().all(is_new) {
        true => "IDENTIFIED WITH mysql_native_password BY",
        false => "IDENTIFIED BY",
    };
    let reset = match !is_mariadb(primary) && version >= Version(8, 2, 0, 0) {
        true => "RESET BINARY LOGS AND GTIDS",
        false => "RESET MASTER",
    };
    vec![
        "SET SESSION sql_log_bin = 0".to_owned(),
        format!("CREATE USER '{USER}'@'127.0.0.1' {how} '{password}'"),
        format!("GRANT REPLICATION SLAVE ON *.* TO '{USER}'@'127.0.0.1'"),
        reset.to_owned(),
    ]
}

/// What has a replica begin.
pub(super) fn follow(replica: &Build, source: &Source, position: &Position) -> Vec<String> {
    let version = replica.numbers();
    let is_renamed = !is_mariadb(replica) && version >= Version(8, 0, 23, 0);
    let (change, word, start) = match is_renamed {
        true => ("CHANGE REPLICATION SOURCE TO", "SOURCE", "START REPLICA"),
        false => ("CHANGE MASTER TO", "MASTER", "START SLAVE"),
    };
    let Position { file, offset } = position;
    let mut parts = vec![
        format!("{word}_HOST = '127.0.0.1'"),
        format!("{word}_PORT = {}", source.port),
        format!("{word}_USER = '{USER}'"),
        format!("{word}_PASSWORD = '{}'", source.password.reveal()),
        format!("{word}_LOG_FILE = '{file}'"),
        format!("{word}_LOG_POS = {offset}"),
        // A primary that was restarted is not waited for a minute.
        format!("{word}_CONNECT_RETRY = 1"),
    ];
    if is_mariadb(replica) && version >= Version(10, 0, 2, 0) {
        // The default became another one with 10.10.
        parts.push("MASTER_USE_GTID = no".to_owned());
    }
    if is_mariadb(replica) && version >= Version(11, 3, 0, 0) {
        // From then on it insists on TLS, which sandboxes do without.
        parts.extend(["MASTER_SSL = 0", "MASTER_SSL_VERIFY_SERVER_CERT = 0"].map(str::to_owned));
    }
    if !is_mariadb(replica) && version >= Version(8, 0, 4, 0) {
        // Without TLS the password is sent under a key of the primary's.
        parts.push(format!("GET_{word}_PUBLIC_KEY = 1"));
    }
    vec![format!("{change} {}", parts.join(", ")), start.to_owned()]
}

/// Who of the two a server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Primary,
    Replica,
}

/// Semi-synchronous replication, as a version has it.
struct SemiSync {
    /// Name and library of the plugin; `None` where it is built in.
    plugin: Option<(&'static str, &'static str)>,
    /// The variable that switches it, without `_enabled`: its status begins so, too.
    name: &'static str,
}

impl SemiSync {
    fn of(build: &Build, side: Side) -> SemiSync {
        let is_primary = side == Side::Primary;
        let (name, library) = match !is_mariadb(build) && build.numbers() >= Version(8, 0, 26, 0) {
            true if is_primary => ("rpl_semi_sync_source", "semisync_source.so"),
            true => ("rpl_semi_sync_replica", "semisync_replica.so"),
            false if is_primary => ("rpl_semi_sync_master", "semisync_master.so"),
            false => ("rpl_semi_sync_slave", "semisync_slave.so"),
        };
        let is_built_in = is_mariadb(build) && build.numbers() >= Version(10, 3, 3, 0);
        SemiSync { plugin: (!is_built_in).then_some((name, library)), name }
    }
}

/// Why a build has no semi-synchronous replication.
pub(super) fn lacks_semi_sync(build: &Build) -> Option<String> {
    let (_, library) = SemiSync::of(build, Side::Primary).plugin?;
    let has = build.files.plugins.as_ref().is_some_and(|dir| dir.join(library).is_file());
    (!has).then(|| {
        format!("{build} has no plugin {library}, and plugins work only with the build they were made for")
    })
}

/// Has a server that runs take its side in semi-synchronous replication.
pub(super) fn switch_semi_sync(server: &Sandbox, side: Side) -> Result<(), Error> {
    let SemiSync { plugin, name } = SemiSync::of(server.build(), side);
    let mut statements = Vec::new();
    if let Some((plugin, library)) = plugin {
        let known = format!("SELECT 1 FROM information_schema.plugins WHERE plugin_name = '{plugin}'");
        if server.ask(&known)?.is_none() {
            statements.push(format!("INSTALL PLUGIN {plugin} SONAME '{library}'"));
        }
    }
    statements.push(format!("SET GLOBAL {name}_enabled = 1"));
    server.tell(&statements)
}

/// A status variable of the primary's as a text.
fn status(primary: &Sandbox, what: &str) -> Result<Option<String>, Error> {
    let name = SemiSync::of(primary.build(), Side::Primary).name;
    primary.ask_column(&format!("SHOW GLOBAL STATUS LIKE '{name}_{what}'"), 1)
}

/// Whether the primary waits for replicas.
pub(super) fn is_semi_sync(primary: &Sandbox) -> Result<(), Error> {
    let (state, clients) = (status(primary, "status")?, status(primary, "clients")?);
    let is_on = state.as_deref() == Some("ON");
    let has_any = clients.as_deref().is_some_and(|clients| clients != "0");
    if is_on && has_any {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: format!("semi-synchronous replication of {}", primary.build()),
        why: format!(
            "it says that it is {} with {} replicas, so that no commit waits for one",
            state.unwrap_or_else(|| "not there".to_owned()),
            clients.unwrap_or_else(|| "no".to_owned())
        ),
    })
}

pub(super) fn waited(primary: &Sandbox) -> Result<(u64, u64), Error> {
    let count = |what| Ok(status(primary, what)?.and_then(|text| text.parse().ok()).unwrap_or(0));
    Ok((count("yes_tx")?, count("no_tx")?))
}

/// Where a primary's log ends.
pub(super) fn end_of_log(primary: &Sandbox) -> Result<Position, Error> {
    let build = primary.build();
    let sql = match !is_mariadb(build) && build.numbers() >= Version(8, 2, 0, 0) {
        true => "SHOW BINARY LOG STATUS",
        false => "SHOW MASTER STATUS",
    };
    let (file, offset) = (primary.ask_column(sql, 0)?, primary.ask_column(sql, 1)?);
    let position = file.zip(offset.and_then(|text| text.parse().ok()));
    position.map(|(file, offset)| Position { file, offset }).ok_or_else(|| Error::Unsupported {
        what: format!("replicas of {build}"),
        why: "it has no binary log".to_owned(),
    })
}

/// A server of its own has an id of its own, which MySQL keeps in a file from 5.6 on.
pub(super) fn adopt(datadir: &Path) -> Result<(), Error> {
    let path = datadir.join("auto.cnf");
    match std::fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &path, e)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::build_of;

    fn source() -> Source {
        Source { port: 20_001, password: wire::Secret::new("geheim"), number: 1 }
    }

    #[test]
    fn each_version_is_told_in_its_own_words() {
        let position = Position { file: "binlog.000002".to_owned(), offset: 157 };
        let told = |build: &str| follow(&build_of(build), &source(), &position).join("; ");
        let new = told("mysql@8.0.33");
        for part in [
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = 20001",
            "SOURCE_LOG_FILE = 'binlog.000002', SOURCE_LOG_POS = 157",
            "GET_SOURCE_PUBLIC_KEY = 1",
            "START REPLICA",
        ] {
            assert!(new.contains(part), "{new}");
        }
        assert!(told("mysql@8.0.12").contains("GET_MASTER_PUBLIC_KEY = 1; START SLAVE"));
        let old = told("mysql@5.5.34");
        assert!(old.starts_with("CHANGE MASTER TO") && !old.contains("GTID") && !old.contains("PUBLIC"));
        assert!(told("mariadb@10.11.19").contains("MASTER_USE_GTID = no; START SLAVE"));
        assert!(
            told("mariadb@11.4.5").contains("MASTER_SSL = 0, MASTER_SSL_VERIFY_SERVER_CERT = 0; START SLAVE")
        );
        assert!(!format!("{:?}", source()).contains("geheim"));
    }

    #[test]
    fn passwords_are_asked_for_as_the_oldest_replica_knows() {
        let told = |primary: &str, replicas: &[&str]| {
            let replicas: Vec<Build> = replicas.iter().map(|name| build_of(name)).collect();
            account(&build_of(primary), &replicas.iter().collect::<Vec<_>>(), "x").join("; ")
        };
        assert!(!told("mysql@8.0.33", &["mysql@8.0.33"]).contains("native"));
        assert!(told("mysql@8.0.33", &["mysql@8.0.33", "mariadb@10.11.19"]).contains("native"));
        assert!(!told("mariadb@10.11.19", &["mariadb@10.2.11"]).contains("native"));
        assert!(told("mysql@8.4.0", &["mysql@8.4.0"]).ends_with("RESET BINARY LOGS AND GTIDS"));
        assert!(told("mysql@5.5.34", &[]).ends_with("RESET MASTER"));
    }

    #[test]
    fn semi_sync_is_a_plugin_by_the_name_of_its_time_or_built_in() {
        let of = |build: &str, side| {
            let SemiSync { plugin, name } = SemiSync::of(&build_of(build), side);
            (plugin.map(|(_, library)| library), name)
        };
        assert_eq!(of("mariadb@10.11.19", Side::Primary), (None, "rpl_semi_sync_master"));
        assert_eq!(of("mariadb@10.2.11", Side::Replica), (Some("semisync_slave.so"), "rpl_semi_sync_slave"));
        assert_eq!(of("mysql@8.0.33", Side::Primary), (Some("semisync_source.so"), "rpl_semi_sync_source"));
        assert_eq!(of("mysql@8.0.12", Side::Primary), (Some("semisync_master.so"), "rpl_semi_sync_master"));
        assert!(lacks_semi_sync(&build_of("mysql@8.0.33")).unwrap().contains("no plugin"));
        assert_eq!(lacks_semi_sync(&build_of("mariadb@10.11.19")), None);
    }
}
