//! Server variables: the defaults of a benchmark, what a version knows, what the server runs with.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

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
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl Isolation {
    /// All of them.
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
