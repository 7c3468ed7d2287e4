//! The runs of one block, and the passes for hot locks after the last one.

use std::time::Instant;

use store::{Purpose, RunStart, Status, Store};

use super::Work;
use super::places::place_of;
use super::queue::Queue;
use crate::bench::Data;
use crate::cells::{sandbox_spec, server_facts};
use crate::error::Error;
use crate::make::{Making, make};
use crate::observe::{Event, RunLabel};
use crate::plan::PlannedRun;
use crate::recorded::{attempts, base_of, standing};
use crate::run::{Around, Order};
use crate::study::Ladder;

/// What a run of the plan is made for.
#[derive(Debug, Clone, Copy)]
struct Pass {
    purpose: Purpose,
    /// The canary before this block against the study's others.
    canary_ratio: Option<f64>,
}

impl Work<'_> {
    /// Makes the runs of one block; those lost to a fault of the measurement again, in the same block. How many it made.
    pub(super) fn make_block(
        &self,
        store: &mut Store,
        runs: &[&PlannedRun],
        around: Around<'_>,
    ) -> Result<usize, Error> {
        let block = runs[0].block;
        crate::machine::wait_until_quiet(block, around.observer, around.stop);
        let canary_ratios = self.canary(store, block, "before")?;
        let compared = self.body.compare.as_ref();
        let compared = compared.map(|c| (c.axis.as_str(), base_of(c, self.body, self.plan)));
        let mut queue = Queue::new(self.plan, compared, runs.iter().copied());
        let mut made = 0;
        while let Some(planned) = queue.next() {
            if around.stop.is_requested() {
                return Ok(made);
            }
            let canary_ratio = canary_ratios.get(place_of(&self.plan.cells[planned.cell])).copied();
            let pass = Pass { purpose: Purpose::Measure, canary_ratio };
            let attempt = attempts(store, self.id, planned.index, Purpose::Measure)? + 1;
            let status = self.make(store, planned, attempt, pass, around)?;
            made += 1;
            let again = queue.ended(planned, status == Status::Invalid, Instant::now());
            if again > 0 {
                (around.observer)(Event::Again { runs: again });
            }
        }
        self.canary(store, block, "after")?;
        Ok(made)
    }

    /// A pass for hot locks of each cell and level that has none yet, once all timed runs are settled.
    pub(super) fn lock_passes(
        &self,
        store: &mut Store,
        chosen: &[&PlannedRun],
        around: Around<'_>,
    ) -> Result<usize, Error> {
        let heads = store.run_heads(self.id)?;
        let stands = standing(&heads);
        let last = chosen.iter().map(|run| run.block).max().unwrap_or_default();
        if self.plan.runs.iter().any(|run| run.block <= last && !stands.contains_key(&run.index)) {
            return Ok(0);
        }
        let mut made = 0;
        let mut known: Vec<(usize, &[u32])> = Vec::new();
        for planned in chosen {
            if around.stop.is_requested() {
                break;
            }
            if known.contains(&(planned.cell, &planned.levels)) {
                continue;
            }
            known.push((planned.cell, &planned.levels));
            let of_cell = self
                .plan
                .runs
                .iter()
                .filter(|run| run.cell == planned.cell && run.levels == planned.levels)
                .map(|run| run.index);
            let indexes: Vec<u32> = of_cell.collect();
            let passes = || {
                heads.iter().filter(|h| h.start.purpose == Purpose::Locks && indexes.contains(&h.start.index))
            };
            if passes().any(|head| head.status == Status::Done) {
                continue;
            }
            let attempt = passes().count() + 1;
            let around = Around { attach: &crate::locks::LockWatch, ..around };
            self.make(store, planned, attempt, Pass { purpose: Purpose::Locks, canary_ratio: None }, around)?;
            made += 1;
        }
        Ok(made)
    }

    /// Makes one run and commits it. How it ended.
    fn make(
        &self,
        store: &mut Store,
        planned: &PlannedRun,
        attempt: usize,
        pass: Pass,
        around: Around<'_>,
    ) -> Result<Status, Error> {
        let making = self.making(planned, attempt, pass)?;
        let ended = make(making, Some((store, self.id)), around)?;
        Ok(ended.end.status)
    }

    fn making(&self, planned: &PlannedRun, attempt: usize, pass: Pass) -> Result<Making<'_>, Error> {
        let cell = &self.plan.cells[planned.cell];
        let subject = &self.subjects[cell.server];
        let label = RunLabel {
            number: planned.index as usize + 1,
            of: self.plan.runs.len(),
            block: planned.block,
            blocks: self.plan.blocks(),
            key: self.plan.key(planned),
            levels: planned.levels.clone(),
        };
        let load = crate::cells::load_plan(self.body, cell, planned)?;
        let assigned = crate::cells::assignment(cell, &self.body.load)?;
        let (place, asked) = subject.place(|build| {
            let mut spec = sandbox_spec(build, cell, &self.body.load)?;
            if pass.purpose == Purpose::Locks {
                spec.settings.extend(crate::locks::settings(build));
            }
            Ok(spec)
        })?;
        let log_file =
            format!("logs/{}-{}-run{}-{attempt}.log", self.request.study.name, self.id.0, planned.index + 1);
        let order = Order {
            home: self.home,
            server_name: self.plan.servers[cell.server].name.clone(),
            flavor: subject.flavor(),
            workload: &cell.workload,
            options: &cell.options,
            engine: cell.engine.as_deref(),
            data: Data::Any,
            prime: crate::cells::priming_plan(self.body, &load),
            load,
            is_cold: self.body.load.is_cold,
            is_lenient: self.body.load.is_lenient,
            seed: planned.seed,
            asked,
            server_facts: server_facts(subject.build(), cell, &self.body.load),
            log_file: Some((&self.request.results, log_file)),
            canary_ratio: pass.canary_ratio,
            notes: if subject.build().is_some() {
                assigned.notes.into_iter().chain(self.notes.of_cell(cell).cloned()).collect()
            } else {
                Vec::new()
            },
        };
        Ok(Making { start: self.start_of(planned, pass.purpose), label, order, place })
    }

    fn start_of(&self, planned: &PlannedRun, purpose: Purpose) -> RunStart {
        let key = self.plan.key(planned).into_iter().map(|(axis, value)| (axis, value.into())).collect();
        let in_block =
            self.plan.runs.iter().filter(|run| run.block == planned.block && run.index <= planned.index);
        RunStart {
            index: planned.index,
            is_climb: matches!(self.body.axes.ladder, Ladder::Climb(_)),
            block: planned.block,
            repeat: planned.block,
            position: in_block.count() as u32,
            purpose,
            host: self.host,
            build: self.builds[self.plan.cells[planned.cell].server],
            ..RunStart::new(key, planned.levels.clone(), planned.seed, load::time::unix_ms())
        }
    }
}
