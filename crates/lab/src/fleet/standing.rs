//! How a fleet stands, for whoever looks.

use std::collections::BTreeMap;
use std::path::Path;

use super::desk::{Desk, Ended, Try};
use super::slurm::{self, Queued, State};
use crate::error::Error;

/// Where a block is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the queue, for Slurm's reason.
    Waiting(String),
    /// On this node.
    Running(String),
    Ended(String),
    /// Its last try, on this node, ended without making it whole.
    Lost(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockStanding {
    pub block: u32,
    pub tries: usize,
    pub place: Place,
    /// Why the last try could not make it, where it says so.
    pub error: Option<String>,
}

/// All blocks of a fleet that somebody has heard of, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FleetStanding {
    pub blocks: Vec<BlockStanding>,
    pub planned: u32,
    /// Nodes that get no block, and why: too noisy, or unable.
    pub aside: BTreeMap<String, String>,
    /// Slurm could not be asked: in its words.
    pub queue_error: Option<String>,
}

/// Why its node was too noisy for it.
fn set_aside(one: &Try) -> Option<&String> {
    one.ended.as_ref()?.set_aside.as_ref()
}

/// Nodes that were too noisy for the last block that they were given.
fn aside(tries: &[Try]) -> BTreeMap<String, String> {
    let mut last: BTreeMap<&str, &Try> = BTreeMap::new();
    for one in tries {
        let known = last.entry(&one.started.node).or_insert(one);
        if one.started.at_ms > known.started.at_ms {
            *known = one;
        }
    }
    let why = |(node, one): (&str, &Try)| Some((node.to_owned(), set_aside(one)?.clone()));
    last.into_iter().filter_map(why).collect()
}

impl FleetStanding {
    /// From what the queue and the tries say.
    pub(super) fn of(queue: &[Queued], tries: &[Try], planned: u32) -> FleetStanding {
        let mut blocks: BTreeMap<u32, BlockStanding> = BTreeMap::new();
        for one in tries.iter().filter(|one| set_aside(one).is_none()) {
            let (block, node) = (one.started.block, one.started.node.clone());
            let tries = blocks.get(&block).map_or(0, |known| known.tries) + 1;
            let is_whole = one.ended.as_ref().is_some_and(Ended::is_whole);
            let place = if is_whole { Place::Ended(node) } else { Place::Lost(node) };
            let error = one.ended.as_ref().and_then(|ended| ended.refused.clone().or(ended.error.clone()));
            blocks.insert(block, BlockStanding { block, tries, place, error });
        }
        for queued in queue {
            let known = blocks.get(&queued.task);
            if known.is_some_and(|known| matches!(known.place, Place::Ended(_))) {
                continue;
            }
            let place = match queued.state {
                State::Waiting => Place::Waiting(queued.reason.clone()),
                State::Running | State::Ending => Place::Running(queued.node.clone()),
            };
            let tries = known.map_or(0, |known| known.tries);
            blocks.insert(queued.task, BlockStanding { block: queued.task, tries, place, error: None });
        }
        FleetStanding {
            blocks: blocks.into_values().collect(),
            planned,
            aside: aside(tries),
            queue_error: None,
        }
    }

    /// Blocks that are made.
    pub fn ended(&self) -> usize {
        self.blocks.iter().filter(|one| matches!(one.place, Place::Ended(_))).count()
    }

    /// Blocks that run, with their nodes.
    pub fn running(&self) -> Vec<(u32, &str)> {
        let running = self.blocks.iter().filter_map(|one| match &one.place {
            Place::Running(node) => Some((one.block, node.as_str())),
            _ => None,
        });
        running.collect()
    }

    /// `5 of 8 blocks; n1: block 6, n2: block 7; 1 waits (Resources)`.
    pub fn text(&self) -> String {
        let mut parts = vec![format!("{} of {}", self.ended(), store::counted(self.planned, "block"))];
        let running: Vec<String> =
            self.running().iter().map(|(block, node)| format!("{node}: block {block}")).collect();
        if !running.is_empty() {
            parts.push(running.join(", "));
        }
        let mut waiting: BTreeMap<&str, usize> = BTreeMap::new();
        for one in &self.blocks {
            if let Place::Waiting(reason) = &one.place {
                *waiting.entry(reason).or_default() += 1;
            }
        }
        let all: usize = waiting.values().sum();
        if all > 0 {
            let verb = if all == 1 { "waits" } else { "wait" };
            let reasons: Vec<&str> = waiting.into_keys().collect();
            parts.push(format!("{all} {verb} ({})", reasons.join(", ")));
        }
        if !self.aside.is_empty() {
            let nodes: Vec<&str> = self.aside.keys().map(String::as_str).collect();
            let verb = if nodes.len() == 1 { "is" } else { "are" };
            parts.push(format!("{} {verb} set aside", nodes.join(", ")));
        }
        if let Some(error) = &self.queue_error {
            parts.push(format!("the queue cannot be asked: {error}"));
        }
        parts.join("; ")
    }
}

/// How the newest fleet of a study stands.
///
/// # Errors
/// There is none.
pub fn standing(results: &Path, name: &str) -> Result<FleetStanding, Error> {
    let (desk, fleet) = Desk::newest(results, name)?;
    let (queue, queue_error) = match slurm::queue(&fleet.jobs) {
        Ok(queue) => (queue, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let planned = desk.study()?.blocks;
    Ok(FleetStanding { queue_error, ..FleetStanding::of(&queue, &desk.tries(), planned) })
}

/// Cancels the jobs of the newest fleet of a study: how many tasks there were.
///
/// # Errors
/// There is none, or Slurm cannot be asked.
pub fn cancel(results: &Path, name: &str) -> Result<usize, Error> {
    let (_, fleet) = Desk::newest(results, name)?;
    let queue = slurm::queue(&fleet.jobs)?;
    slurm::cancel(&fleet.jobs, false)?;
    Ok(queue.len())
}

#[cfg(test)]
mod tests {
    use super::super::desk::Started;
    use super::*;

    fn a_try(block: u32, restart: u32, node: &str, is_whole: Option<bool>) -> Try {
        let ended = is_whole.map(|whole| Ended { is_interrupted: !whole, ..Ended::default() });
        let started = Started { block, job: 1, restart, node: node.to_owned(), at_ms: 0 };
        Try { dir: "/t".into(), started, ended }
    }

    fn too_noisy(one: Try) -> Try {
        let set_aside = Some("20.0 %".to_owned());
        Try { ended: Some(Ended { set_aside, ..Ended::default() }), ..one }
    }

    fn queued(task: u32, state: State, node: &str, reason: &str) -> Queued {
        Queued { job: 1, task, state, node: node.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn blocks_are_where_their_last_news_are_from() {
        let tries = [
            a_try(1, 0, "n1", Some(true)),
            a_try(2, 0, "n2", None),
            a_try(2, 1, "n3", None),
            a_try(3, 0, "n4", Some(false)),
            a_try(4, 0, "n4", None),
            too_noisy(a_try(5, 0, "n5", Some(false))),
        ];
        let queue = [
            queued(2, State::Running, "n3", "None"),
            queued(4, State::Waiting, "", "BeginTime"),
            queued(5, State::Waiting, "", "Resources"),
            // Its node is being cleaned.
            queued(1, State::Ending, "n1", "None"),
        ];
        let got = FleetStanding::of(&queue, &tries, 8);
        let places: Vec<(u32, usize, Place)> =
            got.blocks.iter().map(|one| (one.block, one.tries, one.place.clone())).collect();
        let wanted = [
            (1, 1, Place::Ended("n1".into())),
            (2, 2, Place::Running("n3".into())),
            (3, 1, Place::Lost("n4".into())),
            (4, 1, Place::Waiting("BeginTime".into())),
            (5, 0, Place::Waiting("Resources".into())),
        ];
        assert_eq!(places, wanted);
        assert_eq!(got.text(), "1 of 8 blocks; n3: block 2; 2 wait (BeginTime, Resources); n5 is set aside");
    }
}
