//! What people said of changes of level in a history. The changes themselves are computed, never stored.

use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::open::Store;

/// What somebody said of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeState {
    /// It is known and wanted, or lived with.
    Accepted,
    /// It is none: the machine, the neighbours, a mistake.
    Ignored,
}

impl ChangeState {
    /// As stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Ignored => "ignored",
        }
    }
}

/// A decision about one change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeDecision {
    /// Identity of the series, as the report names it.
    pub series: String,
    /// When the first point of the new level was measured, in milliseconds since 1970.
    pub at_ms: i64,
    pub state: ChangeState,
    /// The reason, in somebody's words.
    pub why: String,
    /// Milliseconds since 1970.
    pub decided_at_ms: i64,
}

impl Store {
    /// Keeps a decision. A later one about the same change stands in for it; both stay in the file.
    pub fn add_change_decision(&mut self, decision: &ChangeDecision) -> Result<(), Error> {
        self.transaction("a decision about a change", |sql| {
            let sentence =
                "INSERT INTO change_decision (series, at_ms, state, why, decided_at_ms) VALUES (?,?,?,?,?)";
            let ChangeDecision { series, at_ms, state, why, decided_at_ms } = decision;
            sql.execute(sentence, params![series, at_ms, state.word(), why, decided_at_ms]).map(drop)
        })
    }

    /// All decisions, oldest first.
    pub fn change_decisions(&self) -> Result<Vec<ChangeDecision>, Error> {
        self.read("decisions about changes", || {
            self.rows("SELECT * FROM change_decision ORDER BY id", &[], |row| {
                let word: String = row.get("state")?;
                let state = [ChangeState::Accepted, ChangeState::Ignored]
                    .into_iter()
                    .find(|state| state.word() == word)
                    .ok_or_else(|| crate::read::damaged(format!("state of a change: {word}")))?;
                Ok(ChangeDecision {
                    series: row.get("series")?,
                    at_ms: row.get("at_ms")?,
                    state,
                    why: row.get("why")?,
                    decided_at_ms: row.get("decided_at_ms")?,
                })
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_come_back_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::open(dir.path()).unwrap();
        let accepted = ChangeDecision {
            series: "ab12".into(),
            at_ms: 5,
            state: ChangeState::Accepted,
            why: "checksums are on".into(),
            decided_at_ms: 9,
        };
        let ignored = ChangeDecision { state: ChangeState::Ignored, decided_at_ms: 10, ..accepted.clone() };
        store.add_change_decision(&accepted).unwrap();
        store.add_change_decision(&ignored).unwrap();
        assert_eq!(store.change_decisions().unwrap(), [accepted, ignored]);
    }
}
