//! Durability audits: how often a server went down, and what was left of acknowledged transactions. Kept by build and
//! settings, apart from studies: an audit holds for every study with the same two.

use std::collections::BTreeMap;

use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::open::Store;
use crate::read::{Sql, json};
use crate::study::{BuildId, HostId};
use crate::write::to_json;

/// Row of an audit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AuditId(pub i64);

/// How the server goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditKind {
    /// SIGKILL for all of its processes; the machine stays.
    ProcessCrash,
    /// What was not flushed to the disk is gone ([`AuditRound::unflushed`]).
    PowerCut,
}

impl AuditKind {
    /// The word that is stored and typed.
    pub fn word(self) -> &'static str {
        match self {
            Self::ProcessCrash => "process-crash",
            Self::PowerCut => "power-cut",
        }
    }
}

/// What a power cut made of what the disk had been handed and not been told to flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditUnflushed {
    /// All of it is gone.
    Dropped,
    /// Of each write all of it is there, or nothing, or some of its sectors.
    Torn,
}

/// What the settings promise for one way of going down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditPromise {
    pub kind: AuditKind,
    /// In words.
    pub text: String,
    /// Acknowledged transactions of the last second or so may be gone.
    pub may_lose: bool,
    /// Nothing at all is promised.
    pub may_corrupt: bool,
}

impl AuditPromise {
    /// Something is promised at all.
    pub fn can_be_broken(&self) -> bool {
        !(self.may_lose && self.may_corrupt)
    }

    /// Something is gone, or not whole, that is promised to be there.
    pub fn is_broken_by(&self, round: &AuditRound) -> bool {
        (round.lost > 0 && !self.may_lose) || (!round.is_consistent() && !self.may_corrupt)
    }
}

/// What is known when an audit begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AuditStart {
    /// `flavor@version[+label]`.
    pub server: String,
    /// Storage engine of the tables, in the spelling of its makers.
    pub engine: String,
    pub profile: Option<String>,
    /// Variables asked for beside it.
    pub settings: BTreeMap<String, String>,
    /// The settings that decide what a crash may lose, as the server was started with them: a study whose runs have
    /// the same ones is spoken for.
    pub deciding: BTreeMap<String, String>,
    pub class: String,
    /// What it promises, by way of going down.
    pub promises: Vec<AuditPromise>,
    /// Sessions that commit.
    pub sessions: u32,
    /// Decides moments and work.
    pub seed: u64,
    /// Milliseconds since 1970.
    pub started_at_ms: i64,
    /// Who audited.
    pub plimsoll_version: String,
    /// Why it may not have had the machine to itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubt: Option<String>,
}

/// One time that the server went down.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditRound {
    /// From 1.
    pub number: u32,
    /// How long the sessions had been committing.
    pub ran_s: f64,
    /// Transactions acknowledged in this round before the server went down.
    pub acknowledged: u64,
    /// Of all acknowledged until then, those that this round took.
    pub lost: u64,
    /// How long before the end the oldest lost one had been acknowledged.
    pub lost_window_s: f64,
    /// Transactions of which only a part is there.
    pub partial: u64,
    /// Transactions that nobody ever sent.
    pub invented: u64,
    /// Sums that must agree and do not.
    pub broken: Vec<String>,
    /// From start to the first answer; `None` where the server did not come up again.
    pub recovery_s: Option<f64>,
    /// Why it did not, with its last lines.
    pub failure: Option<String>,
    /// Of a power cut, what became of unflushed writes; `None` of a round that was recorded by a version that let the
    /// disk keep all that it had been handed.
    #[serde(default)]
    pub unflushed: Option<AuditUnflushed>,
    /// What the disk held unflushed when the power went.
    #[serde(default)]
    pub unflushed_bytes: u64,
    /// Of it, what was gone.
    #[serde(default)]
    pub dropped_bytes: u64,
}

impl AuditRound {
    /// Whatever is there is whole.
    pub fn is_consistent(&self) -> bool {
        self.partial == 0 && self.invented == 0 && self.broken.is_empty() && self.failure.is_none()
    }
}

/// What the settings promise, held against what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditVerdict {
    /// Nothing was lost: rounds cannot prove that nothing can be, they can only fail to show it.
    Consistent,
    /// Consistent, and the loss that the settings permit was seen.
    ConsistentWithLoss,
    /// Something was lost that the settings promise to keep.
    Contradicted,
}

impl AuditVerdict {
    /// As shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Consistent => "consistent with the promise",
            Self::ConsistentWithLoss => "consistent with the promise, with the loss that it permits",
            Self::Contradicted => "CONTRADICTED",
        }
    }

    /// Of one promise; `None` without a round.
    pub fn of(promise: &AuditPromise, rounds: &[AuditRound]) -> Option<Self> {
        let is_lossy = rounds.iter().any(|round| round.lost > 0);
        let is_consistent = rounds.iter().all(AuditRound::is_consistent);
        if rounds.is_empty() {
            return None;
        }
        let breaks = rounds.iter().any(|round| promise.is_broken_by(round));
        Some(match () {
            () if breaks => Self::Contradicted,
            () if is_lossy || !is_consistent => Self::ConsistentWithLoss,
            () => Self::Consistent,
        })
    }
}

/// An audit as read back: it may have been stopped at any round.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    pub id: AuditId,
    pub host: HostId,
    /// The server's binaries.
    pub build: BuildId,
    pub start: AuditStart,
    /// All rounds, in order.
    pub rounds: Vec<(AuditKind, AuditRound)>,
    /// Ways of going down that could not be had here, and why.
    pub not_done: Vec<(AuditKind, String)>,
}

impl Audit {
    /// The rounds of one way of going down.
    pub fn rounds_of(&self, kind: AuditKind) -> Vec<AuditRound> {
        self.rounds.iter().filter(|(of, _)| *of == kind).map(|(_, round)| round.clone()).collect()
    }
}

impl Store {
    pub fn begin_audit(
        &mut self,
        host: HostId,
        build: BuildId,
        start: &AuditStart,
    ) -> Result<AuditId, Error> {
        self.transaction("an audit", |sql| {
            let values = params![host.0, build.0, to_json(start)?];
            sql.execute("INSERT INTO audit (host_id, build_id, start) VALUES (?,?,?)", values)?;
            Ok(AuditId(sql.last_insert_rowid()))
        })
    }

    /// Records a round the moment it is over.
    pub fn add_audit_round(
        &mut self,
        audit: AuditId,
        kind: AuditKind,
        round: &AuditRound,
    ) -> Result<(), Error> {
        self.transaction("a round of an audit", |sql| {
            let values = params![audit.0, kind.word(), round.number, to_json(round)?];
            sql.execute("INSERT INTO audit_round (audit_id, kind, number, round) VALUES (?,?,?,?)", values)
                .map(drop)
        })
    }

    /// Records that one way of going down cannot be had here, and why.
    pub fn add_audit_gap(&mut self, audit: AuditId, kind: AuditKind, why: &str) -> Result<(), Error> {
        self.transaction("what an audit could not do", |sql| {
            let values = params![audit.0, kind.word(), why];
            sql.execute("INSERT INTO audit_gap (audit_id, kind, why) VALUES (?,?,?)", values).map(drop)
        })
    }

    /// All audits, oldest first.
    pub fn audits(&self) -> Result<Vec<Audit>, Error> {
        self.read("the audits", || {
            let mut audits = self.rows("SELECT * FROM audit ORDER BY id", &[], |row| {
                Ok(Audit {
                    id: AuditId(row.get("id")?),
                    host: HostId(row.get("host_id")?),
                    build: BuildId(row.get("build_id")?),
                    start: json(row, "start")?,
                    rounds: vec![],
                    not_done: vec![],
                })
            })?;
            for audit in &mut audits {
                let rounds =
                    "SELECT kind, round FROM audit_round WHERE audit_id=? ORDER BY kind DESC, number";
                audit.rounds =
                    self.rows(rounds, &[&audit.id.0], |row| Ok((kind(row)?, json(row, "round")?)))?;
                let gaps = "SELECT kind, why FROM audit_gap WHERE audit_id=? ORDER BY kind DESC";
                audit.not_done = self.rows(gaps, &[&audit.id.0], |row| Ok((kind(row)?, row.get("why")?)))?;
            }
            Ok(audits)
        })
    }
}

fn kind(row: &rusqlite::Row<'_>) -> Sql<AuditKind> {
    let word: String = row.get("kind")?;
    [AuditKind::ProcessCrash, AuditKind::PowerCut]
        .into_iter()
        .find(|kind| kind.word() == word)
        .ok_or_else(|| crate::read::damaged(format!("kind of an audit: {word}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(lost: u64, partial: u64) -> AuditRound {
        AuditRound {
            number: 1,
            ran_s: 1.0,
            acknowledged: 100,
            lost,
            partial,
            recovery_s: Some(0.1),
            ..AuditRound::default()
        }
    }

    #[test]
    fn losses_are_held_against_what_is_promised() {
        use AuditVerdict::{Consistent, ConsistentWithLoss, Contradicted};
        let check = |(may_lose, may_corrupt), (lost, partial), want| {
            let promise =
                AuditPromise { kind: AuditKind::PowerCut, text: String::new(), may_lose, may_corrupt };
            let found = AuditVerdict::of(&promise, &[round(0, 0), round(lost, partial)]);
            assert_eq!(found, Some(want), "{promise:?} {lost} {partial}");
            assert_eq!(AuditVerdict::of(&promise, &[]), None);
            assert_eq!(promise.can_be_broken(), !(may_lose && may_corrupt));
        };
        check((false, false), (0, 0), Consistent);
        check((false, false), (1, 0), Contradicted);
        check((true, false), (1, 0), ConsistentWithLoss);
        check((true, false), (0, 0), Consistent);
        check((true, false), (50, 1), Contradicted);
        check((true, true), (50, 1), ConsistentWithLoss);
    }

    #[test]
    fn a_server_that_does_not_come_back_is_not_consistent() {
        let dead = AuditRound { failure: Some("it did not start".into()), ..round(0, 0) };
        assert!(!dead.is_consistent() && round(5, 0).is_consistent());
    }
}
