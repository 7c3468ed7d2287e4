//! A verdict that somebody asks for, as words of the command line and of study files say it.

use std::fmt;
use std::str::FromStr;

use crate::{Comparison, Verdict};

/// What every comparison has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Faster,
    /// Not slower by the margin or more: the one-sided test of non-inferiority, which needs fewer blocks than a verdict.
    NotSlower,
    /// Equivalent within the margin.
    Equivalent,
}

impl Wanted {
    pub const ALL: [Wanted; 3] = [Wanted::NotSlower, Wanted::Faster, Wanted::Equivalent];

    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Wanted::Faster => "faster",
            Wanted::NotSlower => "not-slower",
            Wanted::Equivalent => "equivalent",
        }
    }

    pub fn holds(self, result: &Comparison) -> bool {
        match self {
            Wanted::Faster => result.verdict == Verdict::Faster,
            Wanted::NotSlower => result.is_not_slower,
            Wanted::Equivalent => result.verdict == Verdict::Equivalent,
        }
    }
}

/// A verdict that is asked for: `not-slower`, or `p99:not-slower` for one metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gate {
    /// Only comparisons of this metric; `None`: all.
    pub metric: Option<String>,
    /// What they have to be.
    pub wanted: Wanted,
}

impl FromStr for Gate {
    type Err = String;

    fn from_str(text: &str) -> Result<Gate, String> {
        let (metric, word) = match text.split_once(':') {
            Some((metric, word)) => (Some(metric.trim()), word.trim()),
            None => (None, text.trim()),
        };
        let wanted = Wanted::ALL.into_iter().find(|wanted| wanted.word() == word);
        match (wanted, metric) {
            (Some(wanted), metric) if metric != Some("") => {
                Ok(Gate { metric: metric.map(str::to_owned), wanted })
            }
            _ => Err("write not-slower, faster or equivalent, or one of them for one metric: p99:not-slower"
                .into()),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(metric) = &self.metric {
            write!(f, "{metric}:")?;
        }
        f.write_str(self.wanted.word())
    }
}
