//! Named sets of settings: how durable a commit is, and what the server logs.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{Error, Flavor};

/// How much a commit costs and promises. The levels are those of the Juju MySQL charm and of the 2015 study that used
/// it; [`Profile::Unsafe`] is what its name says, [`Profile::CharmUnsafe`] is what the charm really did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// MySQL family: flush_log_at_trx_commit 1, sync_binlog 1, binary log on (MIXED). PostgreSQL: fsync,
    /// synchronous_commit, full_page_writes on.
    Safest,
    /// MySQL family: flush_log_at_trx_commit 2, no binary log (the charm removes it). PostgreSQL:
    /// synchronous_commit off.
    Fast,
    /// MySQL family: flush_log_at_trx_commit 0, no binary log, no doublewrite. PostgreSQL: fsync, full_page_writes
    /// and synchronous_commit off.
    Unsafe,
    /// The charm's own "unsafe", which has no branch in its code and therefore equals [`Profile::Safest`].
    CharmUnsafe,
}

impl Profile {
    pub const ALL: [Profile; 4] = [Profile::Safest, Profile::Fast, Profile::Unsafe, Profile::CharmUnsafe];

    /// `safest`, `fast`, `unsafe`, `charm-unsafe`.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Safest => "safest",
            Profile::Fast => "fast",
            Profile::Unsafe => "unsafe",
            Profile::CharmUnsafe => "charm-unsafe",
        }
    }
}

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Profile, Error> {
        Profile::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| Error::Unsupported {
            what: format!("profile \"{text}\""),
            why: "the profiles are safest, fast, unsafe, charm-unsafe".to_owned(),
        })
    }
}

/// What the server logs beside its error log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Logging {
    None,
    /// Every statement, to a file.
    GeneralFile,
    /// Every statement, to the table mysql.general_log.
    GeneralTable,
    /// The binary log, format MIXED.
    Binlog,
}

impl Logging {
    pub const ALL: [Logging; 4] =
        [Logging::None, Logging::GeneralFile, Logging::GeneralTable, Logging::Binlog];

    /// `none`, `general-file`, `general-table`, `binlog`.
    pub fn name(self) -> &'static str {
        match self {
            Logging::None => "none",
            Logging::GeneralFile => "general-file",
            Logging::GeneralTable => "general-table",
            Logging::Binlog => "binlog",
        }
    }
}

impl Logging {
    /// Refuses what a flavour does not have.
    ///
    /// # Errors
    /// Says what it has.
    pub fn check(self, flavor: Flavor) -> Result<(), Error> {
        let is_possible = flavor != Flavor::Postgres || matches!(self, Logging::None | Logging::GeneralFile);
        if is_possible {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: format!("logging {} on {flavor}", self.name()),
            why: "PostgreSQL has none and general-file (every statement, to its log)".to_owned(),
        })
    }
}

impl FromStr for Logging {
    type Err = Error;

    fn from_str(text: &str) -> Result<Logging, Error> {
        Logging::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| Error::Unsupported {
            what: format!("logging \"{text}\""),
            why: "the variants are none, general-file, general-table, binlog".to_owned(),
        })
    }
}

/// What is lost at worst when the process dies and when the power goes, as the settings and the place of the data say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Nothing is lost either way.
    Full,
    /// Nothing when the process dies; about a second of commits when the power goes.
    ProcessCrash,
    /// Commits of about a second either way; the data stay consistent.
    Lossy,
    /// The data may be corrupt after a power cut.
    Corruptible,
    /// All data are gone after a power cut: their directory is in memory.
    Volatile,
}

impl Durability {
    /// `full`, `process-crash`, `lossy`, `corruptible`, `volatile`.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Full => "full",
            Durability::ProcessCrash => "process-crash",
            Durability::Lossy => "lossy",
            Durability::Corruptible => "corruptible",
            Durability::Volatile => "volatile",
        }
    }

    /// One sentence for a report.
    pub fn meaning(self) -> &'static str {
        match self {
            Durability::Full => "no acknowledged commit is lost when the server or the machine dies",
            Durability::ProcessCrash => {
                "nothing is lost when the server dies; up to about a second of commits when the machine does"
            }
            Durability::Lossy => {
                "up to about a second of commits is lost when the server or the machine dies"
            }
            Durability::Corruptible => "the data may be corrupt after the machine dies",
            Durability::Volatile => {
                "the data directory is in memory: everything is lost when the machine dies, whatever the settings say"
            }
        }
    }
}
