//! Which measurements a bundle holds: a mark of each run, which is the same however and by whomever it is sealed.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
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
            let mut hash = Sha256::new();
            end.steps.iter().for_each(|step| add(&mut hash, step));
            let run = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            all.push(RunMark { run, host: results.host(head.start.host)?.fingerprint });
        }
    }
    all.sort();
    all.dedup();
    Ok(all)
}

fn add(hash: &mut Sha256, step: &Step) {
    let counts = [step.outcomes.committed, step.outcomes.rolled_back, step.outcomes.failed()];
    for count in counts {
        hash.update(count.to_le_bytes());
    }
    for recorded in step.response.iter_recorded() {
        hash.update(recorded.value_iterated_to().to_le_bytes());
        hash.update(recorded.count_at_value().to_le_bytes());
    }
}
