//! Gates as they are stored, and what older files wrote in their place.

use serde::{Deserialize, Serialize};

/// What a gate says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finding {
    /// Looked at, nothing wrong.
    Held,
    /// Looked at, and it is wrong.
    Tripped,
    /// Could not be looked at: neither good nor bad.
    NotChecked,
}

impl Finding {
    /// The word of the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Tripped => "tripped",
            Self::NotChecked => "not_checked",
        }
    }
}

/// What a gate that trips says something about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateKind {
    /// A fault of the measurement: the figures must not be used.
    Measurement,
    /// How the server behaved: that is what was to be found out, and the figures count.
    Server,
}

impl GateKind {
    /// The word of the JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Measurement => "measurement",
            Self::Server => "server",
        }
    }
}

/// Gates about the server. An open loop that offers more than the server carries is one of them: that it does not keep
/// up is what was asked, and leaving such runs out would make it look like its rival in those where it just did.
const OF_SERVER: [&str; 6] =
    ["overloaded", "not_steady", "debt_growing", "errors", "server_restarted", "stalls"];

/// Gates that every run that was measured answers, be it that they could not be looked at. Others depend on the run:
/// `overloaded` on an open loop, `storage_limit` on a limit.
pub const GATES_OF_EVERY_RUN: [&str; 12] = [
    "client_bound",
    "noisy_host",
    "swapping",
    "cpu_frequency",
    "settings",
    "cache_state",
    "consistency",
    "not_steady",
    "debt_growing",
    "errors",
    "stalls",
    "server_restarted",
];

/// A check of a run: whether it was well measured, and how the server behaved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct Gate {
    /// `client_bound`, `not_steady`, `debt_growing`, `noisy_host`, `errors`, ...
    pub name: String,
    pub finding: Finding,
    /// The load level that it speaks about, by its sessions; `None`: the whole run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub level: Option<u32>,
    /// What was found, with the figures; or why it could not be looked at.
    pub detail: String,
    /// What to do about it; empty unless it tripped.
    pub remedy: String,
    /// It tripped on a fault of the measurement that the study lets pass (`gates = "warn"`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_allowed: bool,
}

impl Gate {
    /// What its tripping says something about.
    pub fn kind(&self) -> GateKind {
        if OF_SERVER.contains(&self.name.as_str()) { GateKind::Server } else { GateKind::Measurement }
    }

    /// It tripped, whatever follows from that.
    pub fn is_tripped(&self) -> bool {
        self.finding == Finding::Tripped
    }

    /// A fault of the measurement: figures of its level must not be used.
    pub fn excludes(&self) -> bool {
        self.is_tripped() && self.kind() == GateKind::Measurement && !self.is_allowed
    }

    /// It speaks about that level: by itself, or as it speaks about the whole run.
    pub fn covers(&self, level: u32) -> bool {
        self.level.is_none_or(|of| of == level)
    }

    /// What was found, with the level where it speaks about one of several: `at 64 sessions: ...`.
    pub fn text(&self) -> String {
        match self.level {
            Some(level) => format!("at {}: {}", crate::counted(level, "session"), self.detail),
            None => self.detail.clone(),
        }
    }
}

/// A gate in any file. Those of the first schemas had `is_tripped`, which is `false` for what held and for what was not
/// looked at; but the text of the latter always began with "not checked: " (after the level, in a climb).
#[derive(Deserialize)]
struct Stored {
    name: String,
    finding: Option<Finding>,
    is_tripped: Option<bool>,
    level: Option<u32>,
    detail: String,
    remedy: String,
    #[serde(default)]
    is_allowed: bool,
}

const NOT_CHECKED: &str = "not checked: ";

impl From<Stored> for Gate {
    fn from(stored: Stored) -> Gate {
        let Stored { name, finding, is_tripped, level, mut detail, remedy, is_allowed } = stored;
        let finding = finding.unwrap_or_else(|| {
            let at = detail.find(NOT_CHECKED).filter(|at| is_level(&detail[..*at]));
            match at {
                _ if is_tripped == Some(true) => Finding::Tripped,
                Some(at) => {
                    detail.replace_range(at..at + NOT_CHECKED.len(), "");
                    Finding::NotChecked
                }
                None => Finding::Held,
            }
        });
        Gate { name, finding, level, detail, remedy, is_allowed }
    }
}

/// Nothing, or `at 64 sessions: `.
fn is_level(text: &str) -> bool {
    let number = text.strip_prefix("at ").and_then(|rest| rest.strip_suffix(" sessions: "));
    text.is_empty() || number.is_some_and(|number| number.parse::<u32>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Gate {
        serde_json::from_str(json).unwrap()
    }

    fn old(is_tripped: bool, detail: &str) -> Gate {
        read(&format!(r#"{{"name":"x","is_tripped":{is_tripped},"detail":"{detail}","remedy":""}}"#))
    }

    #[test]
    fn gates_of_older_files_tell_what_was_not_looked_at_by_their_text() {
        let unseen = old(false, "not checked: 3 seconds are too few");
        assert_eq!((unseen.finding, unseen.detail.as_str()), (Finding::NotChecked, "3 seconds are too few"));
        let climbed = old(false, "at 64 sessions: not checked: 3 seconds are too few");
        let detail = "at 64 sessions: 3 seconds are too few";
        assert_eq!((climbed.finding, climbed.detail.as_str()), (Finding::NotChecked, detail));
        assert_eq!(old(false, "changed by 1.0 % over the phase").finding, Finding::Held);
        // Some other text that happens to have the words.
        assert_eq!(old(false, "autocommit is not checked: 1").finding, Finding::Held);
        assert_eq!(old(true, "5 of 10 failed").finding, Finding::Tripped);
    }

    #[test]
    fn a_gate_comes_back_as_it_was_written() {
        let plain = Gate {
            name: "errors".to_owned(),
            finding: Finding::NotChecked,
            level: None,
            detail: "not checked: by nobody".to_owned(),
            remedy: String::new(),
            is_allowed: false,
        };
        let full = Gate { level: Some(64), is_allowed: true, finding: Finding::Tripped, ..plain.clone() };
        for gate in [plain, full] {
            assert_eq!(read(&serde_json::to_string(&gate).unwrap()), gate);
        }
    }

    #[test]
    fn faults_exclude_and_behaviour_does_not() {
        let tripped = |name: &str| Gate { name: name.to_owned(), ..old(true, "") };
        for name in OF_SERVER {
            assert!(!tripped(name).excludes(), "{name}");
        }
        for name in GATES_OF_EVERY_RUN.into_iter().filter(|name| !OF_SERVER.contains(name)) {
            assert!(tripped(name).excludes(), "{name}");
            assert!(!Gate { is_allowed: true, ..tripped(name) }.excludes(), "{name}");
        }
        assert!(tripped("storage_limit").excludes());
        assert!(!old(false, "").excludes());
    }
}
