//! Which CPUs a server and its client may use.

use serde::{Deserialize, Serialize};

use crate::Error;

/// What a study asks for: a count, or a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CpuRequest {
    /// That many CPUs, chosen by Plimsoll.
    Count(u32),
    /// These: `"0-3,8"`.
    List(String),
}

/// CPUs by number, ascending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cpus(pub Vec<u32>);

impl Cpus {
    /// Reads `0-3,8`.
    pub fn parse(list: &str) -> Result<Cpus, Error> {
        let refuse = || Error::Unsupported {
            what: format!("cpus \"{list}\""),
            why: "a list is numbers and ranges with commas, such as \"0-3,8\"".to_owned(),
        };
        let mut cpus = Vec::new();
        for part in list.trim().split(',') {
            let (low, high) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let low: u32 = low.trim().parse().map_err(|_| refuse())?;
            let high: u32 = high.trim().parse().map_err(|_| refuse())?;
            if low > high || high > 8191 {
                return Err(refuse());
            }
            cpus.extend(low..=high);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Cpus(cpus))
    }
}
