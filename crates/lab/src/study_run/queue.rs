//! The runs of one block that a command makes, and makes again where a fault of the measurement cost them. What is made
//! together (one run, or the sides of a duel) is lost together.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::plan::{Plan, PlannedRun, mix};

/// Attempts of one command at one run.
const ATTEMPTS_MAX: u32 = 3;
/// Runs that are compared and would lie further apart than this are made again together: a machine drifts.
const APART_MAX: Duration = Duration::from_secs(300);

/// What is made together.
pub(crate) type Unit<'a> = Vec<&'a PlannedRun>;

/// What is still to be made of a block, in order.
pub(crate) struct Queue<'a> {
    plan: &'a Plan,
    /// The axis along which the study compares, and the server or other value that the rest is compared with.
    compared: Option<(&'a str, String)>,
    waiting: VecDeque<Unit<'a>>,
    attempts: BTreeMap<u32, u32>,
    /// When runs of this block ended, by index: of those that this command made.
    ended: BTreeMap<u32, (&'a PlannedRun, Instant)>,
}

impl<'a> Queue<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        compared: Option<(&'a str, String)>,
        units: impl IntoIterator<Item = Unit<'a>>,
    ) -> Queue<'a> {
        Queue {
            plan,
            compared,
            waiting: units.into_iter().collect(),
            attempts: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    pub(crate) fn next(&mut self) -> Option<Unit<'a>> {
        let unit = self.waiting.pop_front()?;
        unit.iter().for_each(|run| *self.attempts.entry(run.index).or_default() += 1);
        Some(unit)
    }

    fn made(&self, run: &PlannedRun) -> u32 {
        self.attempts.get(&run.index).copied().unwrap_or_default()
    }

    /// A unit has ended at `now`; `is_lost`: to a fault of the measurement. How many runs are made again because of that:
    /// none when it had its attempts.
    pub(crate) fn ended(&mut self, unit: &Unit<'a>, is_lost: bool, now: Instant) -> usize {
        for run in unit {
            self.ended.insert(run.index, (*run, now));
        }
        let Some(first) = unit.first() else { return 0 };
        let attempts = self.made(first);
        if !is_lost || attempts >= ATTEMPTS_MAX {
            return 0;
        }
        let mut again = vec![unit.clone()];
        if let [run] = unit.as_slice() {
            let far = self.ended.values().filter(|(other, at)| {
                let is_far = now.duration_since(*at) > APART_MAX;
                is_far && self.made(other) < ATTEMPTS_MAX && self.are_compared(run, other)
            });
            again.extend(far.map(|(other, _)| vec![*other]));
        }
        // A later place, drawn; next to each other.
        let draw = mix(first.seed ^ u64::from(first.index) ^ (u64::from(attempts) << 32));
        let place = (draw % (self.waiting.len() as u64 + 1)) as usize;
        let runs = again.iter().map(Vec::len).sum();
        again.into_iter().rev().for_each(|unit| self.waiting.insert(place, unit));
        runs
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
        Queue::new(plan, Some(("server", "mariadb".to_owned())), plan.runs.iter().map(|run| vec![run]))
    }

    #[test]
    fn a_lost_run_is_made_again_later_in_its_block_and_at_most_three_times() {
        let plan = plan();
        let mut queue = queue(&plan);
        let now = Instant::now();
        let mut made = Vec::new();
        while let Some(unit) = queue.next() {
            made.push(unit[0].index);
            queue.ended(&unit, unit[0].index == 1, now);
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
            let all: Vec<Unit<'_>> = std::iter::from_fn(|| queue.next()).collect();
            let (lost, others) = all.split_last().unwrap();
            others.iter().for_each(|unit| assert_eq!(queue.ended(unit, false, began), 0));
            let again = queue.ended(lost, true, began + later);
            let waiting: Vec<u32> = std::iter::from_fn(|| queue.next()).map(|unit| unit[0].index).collect();
            let wanted =
                if with_partner { vec![lost[0].index, partner(lost[0])] } else { vec![lost[0].index] };
            assert_eq!((again, waiting), (wanted.len(), wanted));
        }
    }

    #[test]
    fn a_duel_is_made_again_as_a_whole() {
        let plan = plan();
        let units: Vec<Unit<'_>> = plan.runs.chunks(2).map(|pair| pair.iter().collect()).collect();
        let mut queue = Queue::new(&plan, None, units);
        let first = queue.next().unwrap();
        assert_eq!(queue.ended(&first, true, Instant::now()), 2);
        let rest: Vec<Unit<'_>> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!(rest.len(), 2);
        assert!(rest.contains(&first));
    }
}
