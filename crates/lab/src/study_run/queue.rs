//! The runs of one block that a command makes, and makes again where a fault of the measurement cost them.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::plan::{Plan, PlannedRun, mix};

/// Attempts of one command at one run.
const ATTEMPTS_MAX: u32 = 3;
/// Runs that are compared and would lie further apart than this are made again together: a machine drifts.
const APART_MAX: Duration = Duration::from_secs(300);

/// What is still to be made of a block, in order.
pub(crate) struct Queue<'a> {
    plan: &'a Plan,
    /// The axis along which the study compares, and the server or other value that the rest is compared with.
    compared: Option<(&'a str, String)>,
    waiting: VecDeque<&'a PlannedRun>,
    attempts: BTreeMap<u32, u32>,
    /// When runs of this block ended, by index: of those that this command made.
    ended: BTreeMap<u32, (&'a PlannedRun, Instant)>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        compared: Option<(&'a str, String)>,
        runs: impl IntoIterator<Item = &'a PlannedRun>,
    ) -> Queue<'a> {
        Queue {
            plan,
            compared,
            waiting: runs.into_iter().collect(),
            attempts: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// The next run.
    pub(crate) fn next(&mut self) -> Option<&'a PlannedRun> {
        let run = self.waiting.pop_front()?;
        *self.attempts.entry(run.index).or_default() += 1;
        Some(run)
    }

    /// A run has ended at `now`; `is_lost`: to a fault of the measurement. How many runs are made again because of that:
    /// none when it had its attempts.
    pub(crate) fn ended(&mut self, run: &'a PlannedRun, is_lost: bool, now: Instant) -> usize {
        self.ended.insert(run.index, (run, now));
        let attempts = self.attempts.get(&run.index).copied().unwrap_or_default();
        if !is_lost || attempts >= ATTEMPTS_MAX {
            return 0;
        }
        let mut again = vec![run];
        let ended = self.ended.values().copied().collect::<Vec<_>>();
        again.extend(ended.into_iter().filter_map(|(other, at)| {
            let is_far = now.duration_since(at) > APART_MAX;
            let has_attempts = self.attempts.get(&other.index).is_none_or(|made| *made < ATTEMPTS_MAX);
            (is_far && has_attempts && self.are_compared(run, other)).then_some(other)
        }));
        // A later place, drawn; next to each other.
        let draw = mix(run.seed ^ u64::from(run.index) ^ (u64::from(attempts) << 32));
        let place = (draw % (self.waiting.len() as u64 + 1)) as usize;
        again.iter().rev().for_each(|run| self.waiting.insert(place, run));
        again.len()
    }

    /// Cells that differ along the compared axis alone, of which one is the base, at the same level.
    fn are_compared(&self, one: &PlannedRun, other: &PlannedRun) -> bool {
        let Some((axis, base)) = &self.compared else { return false };
        let (mut one_key, mut other_key) = (self.plan.key(one), self.plan.key(other));
        let values = (one_key.remove(*axis), other_key.remove(*axis));
        let is_base = |value: &Option<String>| value.as_ref() == Some(base);
        one.levels == other.levels
            && one_key == other_key
            && values.0 != values.1
            && (is_base(&values.0) || is_base(&values.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Pinned;

    fn plan() -> Plan {
        let text = "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = [\"mariadb\", \"postgres\"]\n\
                    workload = \"oltp_read_only\"\nsessions = [1, 8]\n[load]\nblocks = 1\n";
        let study = crate::study::parse(std::path::Path::new("s.toml"), text).unwrap();
        let pin = |name: &str| Pinned {
            selector: name.to_owned(),
            name: name.to_owned(),
            build_name: name.to_owned(),
            build: "x".to_owned(),
        };
        Plan::new(&study.body, false, 1, vec![pin("mariadb"), pin("postgres")])
    }

    fn queue(plan: &Plan) -> Queue<'_> {
        Queue::new(plan, Some(("server", "mariadb".to_owned())), &plan.runs)
    }

    #[test]
    fn a_lost_run_is_made_again_later_in_its_block_and_at_most_three_times() {
        let plan = plan();
        let mut queue = queue(&plan);
        let now = Instant::now();
        let mut made = Vec::new();
        while let Some(run) = queue.next() {
            made.push(run.index);
            queue.ended(run, run.index == 1, now);
        }
        assert_eq!(made.len(), 6, "{made:?}");
        assert_eq!(made.iter().filter(|index| **index == 1).count(), 3, "{made:?}");
        for index in [0, 2, 3] {
            assert_eq!(made.iter().filter(|made| **made == index).count(), 1, "{made:?}");
        }
    }

    #[test]
    fn what_it_is_compared_with_is_made_again_where_it_lies_far_back() {
        let plan = plan();
        let began = Instant::now();
        let partner = |run: &PlannedRun| {
            let is = |other: &&PlannedRun| other.levels == run.levels && other.cell != run.cell;
            plan.runs.iter().find(is).unwrap().index
        };
        for (later, with_partner) in [(Duration::from_secs(60), false), (Duration::from_secs(301), true)] {
            let mut queue = queue(&plan);
            let all: Vec<&PlannedRun> = std::iter::from_fn(|| queue.next()).collect();
            let (lost, others) = all.split_last().unwrap();
            others.iter().for_each(|run| assert_eq!(queue.ended(run, false, began), 0));
            let again = queue.ended(lost, true, began + later);
            let waiting: Vec<u32> = std::iter::from_fn(|| queue.next()).map(|run| run.index).collect();
            let wanted = if with_partner { vec![lost.index, partner(lost)] } else { vec![lost.index] };
            assert_eq!((again, waiting), (wanted.len(), wanted));
        }
    }
}
