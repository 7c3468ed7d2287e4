//! Server variables: the defaults of a benchmark, what a version knows, what the server runs with.

pub(crate) mod defaults;
pub(crate) mod known;

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Build, Error, Flavor};

/// Server variables by name, in the server's own spelling with underscores.
pub type Settings = BTreeMap<String, String>;

/// Transaction isolation, set the same on every server of a study unless it is an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// READ UNCOMMITTED (PostgreSQL treats it as READ COMMITTED).
    ReadUncommitted,
    /// READ COMMITTED: the level at which both families do the same work. Under REPEATABLE READ PostgreSQL aborts a
    /// transaction whose row another one changed, and InnoDB changes the newest version of the row.
    #[default]
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

impl Isolation {
    pub const ALL: [Isolation; 4] = [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ];

    /// `read-uncommitted`, `read-committed`, `repeatable-read`, `serializable`.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read-uncommitted",
            Isolation::ReadCommitted => "read-committed",
            Isolation::RepeatableRead => "repeatable-read",
            Isolation::Serializable => "serializable",
        }
    }
}

impl FromStr for Isolation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Isolation, Error> {
        let plain = text.to_ascii_lowercase().replace([' ', '_'], "-");
        Isolation::ALL.into_iter().find(|i| i.name() == plain).ok_or_else(|| Error::Unsupported {
            what: format!("isolation \"{text}\""),
            why: "the levels are read-uncommitted, read-committed, repeatable-read, serializable".to_owned(),
        })
    }
}

/// A variable's name as the server spells it: lower case with underscores (PostgreSQL's own have neither dashes nor
/// capitals, but for a few such as `TimeZone` that it takes in any case).
pub(crate) fn canonical(name: &str) -> String {
    name.trim().trim_start_matches("--").to_ascii_lowercase().replace('-', "_")
}

/// All variables as a running server reports them.
pub(crate) fn reported(build: &Build, target: &wire::Target) -> Result<Settings, Error> {
    let fail = |source| Error::Wire { build: build.name(), source };
    let sql = match build.flavor {
        // current_setting gives the value with its unit, as SHOW does.
        Flavor::Postgres => "SELECT name, current_setting(name, true) FROM pg_settings",
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => "SHOW GLOBAL VARIABLES",
    };
    let mut client = wire::blocking::Client::connect(target).map_err(fail)?;
    let sets = client.query_sets(sql).map_err(fail)?;
    client.close();
    let text =
        |value: &Option<Vec<u8>>| String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
    let rows = sets.iter().flat_map(|set| &set.rows);
    Ok(rows.filter(|row| row.len() >= 2).map(|row| (text(&row[0]), text(&row[1]))).collect())
}
