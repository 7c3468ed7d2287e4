//! Whether a node is quiet enough for a study: before its first block it is calibrated, which is a server measured against
//! itself, and what that says is held against the smallest difference that the study must tell.

use std::time::Duration;

use sandbox::Home;
use serde::{Deserialize, Serialize};

use super::Wishes;
use crate::calibrate;
use crate::error::Error;
use crate::hooks::Attach;
use crate::observe::{Event, Observer};
use crate::plan::Plan;
use crate::stop::StopSwitch;
use crate::study::Body;
use crate::subject::Subject;

/// How long a node is calibrated where nobody says it.
const BUDGET: Duration = Duration::from_secs(180);

/// What a node must be able to tell before it gets blocks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bound {
    /// The build that is measured against itself.
    pub server: String,
    pub budget_s: u64,
    /// The smallest difference that the study tells on the node is at most this: 0.05 is 5 %.
    pub noise_max: f64,
    /// What the study has for telling it.
    pub precision: calibrate::Precision,
}

impl Bound {
    /// Of a study; `Err` says why its nodes are not calibrated.
    pub(super) fn of(
        wishes: &Wishes,
        body: &Body,
        plan: &Plan,
        subjects: &[Subject],
    ) -> Result<Bound, String> {
        let budget = wishes.calibrate.unwrap_or(BUDGET);
        if budget.is_zero() {
            return Err("a time of 0 was asked for".to_owned());
        }
        let margin = body.compare.as_ref().map(|compare| compare.margin);
        let Some(noise_max) = wishes.noise_max.or(margin) else {
            return Err("the study compares nothing, and no noise_max says how quiet they must be".to_owned());
        };
        let Some(build) = subjects.iter().find_map(Subject::own_build) else {
            return Err("the study's servers are not started on them".to_owned());
        };
        let precision = calibrate::Precision::of(body, plan);
        let blocks_min = stats::Rules::default().blocks_min;
        if precision.blocks < blocks_min {
            return Err(format!(
                "with {} there is no verdict, which takes {blocks_min}",
                store::counted(precision.blocks, "block")
            ));
        }
        Ok(Bound { server: build.name(), budget_s: budget.as_secs(), noise_max, precision })
    }

    /// Why a machine of which that was found gets no blocks; `None`: it does.
    fn judge(&self, found: &calibrate::Summary) -> Option<String> {
        let noise = self.precision.told_by(found);
        if noise.is_some_and(|noise| noise <= self.noise_max) {
            return None;
        }
        let bound =
            format!("the bound is {:.1} % (noise_max, else the study's margin)", self.noise_max * 100.0);
        Some(match noise {
            Some(noise) => {
                let blocks = store::counted(self.precision.blocks, "block");
                format!("{blocks} tell no difference below {:.1} % there, {bound}", noise * 100.0)
            }
            None => format!(
                "calibrated with {}, of whose lives {} count, it tells no difference, {bound}",
                found.server, found.lives
            ),
        })
    }
}

/// Looks whether this node is quiet enough: by what is known of it, or, where that is too little, by calibrating it now.
///
/// # Errors
/// The server cannot be had, or somebody stopped it.
pub(super) fn judge(
    home: &Home,
    bound: &Bound,
    seed: u64,
    (attach, observer, stop): (&dyn Attach, Observer<'_>, &StopSwitch),
) -> Result<Option<String>, Error> {
    let is_known = |found: &calibrate::Summary| found.server == bound.server && found.ratios.is_some();
    if let Some(known) = calibrate::known(home).into_iter().find(is_known) {
        return Ok(bound.judge(&known));
    }
    observer(Event::Doing(&format!("calibrating this node with {}", bound.server)));
    let budget = Duration::from_secs(bound.budget_s);
    let request = calibrate::Request { server: Some(bound.server.clone()), budget, seed };
    let found = calibrate::calibrate(home, &request, attach, observer, stop);
    if stop.is_requested() {
        return Err(Error::Interrupted);
    }
    match found {
        Ok(found) => Ok(bound.judge(&found)),
        // Of the noisiest nodes no life counts.
        Err(Error::Run(why)) => Ok(Some(format!("it cannot be calibrated: {why}"))),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(noise_max: f64) -> Bound {
        let precision = calibrate::Precision { blocks: 10, pairs: 10, is_watched: false };
        Bound { server: "mariadb@11.4.5".to_owned(), budget_s: 60, noise_max, precision }
    }

    #[test]
    fn a_node_that_cannot_tell_what_the_study_asks_is_set_aside_and_says_why() {
        let found = calibrate::summary(&store::testing::calibrations(20, 1.0));
        let noise = bound(1.0).precision.told_by(&found).unwrap();
        assert_eq!(bound(noise).judge(&found), None);
        let why = bound(noise / 2.0).judge(&found).unwrap();
        assert!(why.starts_with("10 blocks tell no difference below ") && why.contains("noise_max"), "{why}");
        // Too few of its lives counted.
        let few = calibrate::summary(&store::testing::calibrations(3, 1.0));
        let why = bound(0.9).judge(&few).unwrap();
        assert!(why.contains("of whose lives 3 count"), "{why}");
    }
}
