//! Which measurements a bundle holds: a mark of each run, which is the same however and by whomever it is sealed.

use serde::{Deserialize, Serialize};
use store::bundle::sha256;
use store::{Step, Store};

use crate::error::Error;

/// A run that was measured, told from every other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RunMark {
    /// SHA-256 of what was counted: outcomes and response times of each level, and nothing that words of a study, a
    /// machine or an author could change.
    pub run: String,
    /// Fingerprint of the machine, as the bundle has it.
    pub host: String,
}

/// Response times that make a run one of its own. Of a few transactions two runs may have the same.
const RESPONSES_MIN: u64 = 200;

/// Marks of all runs that have enough response times, in order.
pub(super) fn marks(results: &Store) -> Result<Vec<RunMark>, Error> {
    let mut all = Vec::new();
    for record in results.studies()? {
        for head in results.run_heads(record.id)? {
            let Some(end) = results.run(head.id)?.end else { continue };
            if end.steps.iter().map(|step| step.response.len()).sum::<u64>() < RESPONSES_MIN {
                continue;
            }
            let counted: Vec<u8> = end.steps.iter().flat_map(counted).flat_map(u64::to_le_bytes).collect();
            all.push(RunMark { run: sha256(&counted), host: results.host(head.start.host)?.fingerprint });
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

/// Outcomes, then values and counts of the response times.
fn counted(step: &Step) -> Vec<u64> {
    let outcomes = [step.outcomes.committed, step.outcomes.rolled_back, step.outcomes.failed()];
    let times = step.response.iter_recorded().flat_map(|it| [it.value_iterated_to(), it.count_at_value()]);
    outcomes.into_iter().chain(times).collect()
}
