//! The runs of one block, and the passes for hot locks after the last one.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use sandbox::{Build, Listen, Spec};
use store::{INTERVENE, Purpose, RunStart, Status, Store};

use super::Work;
use super::places::place_of;
use super::queue::{Queue, Unit};
use crate::bench::Data;
use crate::cells::{replica_spec, sandbox_spec, server_facts};
use crate::duel::{self, room};
use crate::error::Error;
use crate::intervene::Phases;
use crate::intervene::timed::Moment;
use crate::line::{Earlier, LineOrder, goes_on};
use crate::make::{Making, make, make_life, make_together};
use crate::observe::{Event, RunLabel};
use crate::plan::{Cell, Plan, PlannedRun};
use crate::provision::Place;
use crate::recorded::{attempts, base_of, standing};
use crate::replicas::ReplicaOrder;
use crate::run::{Around, Order};
use crate::study::{Body, Ladder, Length, Pairing};
use crate::subject::Subject;

/// What a run of the plan is made for.
#[derive(Debug, Clone, Copy)]
struct Pass {
    purpose: Purpose,
    /// The canary before this block against the study's others.
    canary_ratio: Option<f64>,
}

/// The axis whose values are measured together: those that are in a duel, or are switched in one life.
fn together(body: &Body) -> Option<&str> {
    match (body.load.pairing, &body.compare) {
        _ if !body.axes.intervene.is_empty() => Some(INTERVENE),
        (Pairing::Duel, Some(compare)) => Some(&compare.axis),
        _ => None,
    }
}

/// What is made together never comes alone: the runs of `open` with all that they are made with.
pub(super) fn whole_units<'a>(body: &Body, plan: &'a Plan, open: Vec<&'a PlannedRun>) -> Vec<&'a PlannedRun> {
    let Some(axis) = together(body) else { return open };
    let unit = |run: &PlannedRun| (run.block, plan.group(run, axis));
    let wanted: BTreeSet<(u32, String)> = open.into_iter().map(unit).collect();
    plan.runs.iter().filter(|run| wanted.contains(&unit(run))).collect()
}

impl Work<'_> {
    /// Makes the runs of one block; those lost to a fault of the measurement again, in the same block. How many it made. With a
    /// budget, `spare` of it may be waited for a quiet machine.
    pub(super) fn make_block(
        &self,
        store: &mut Store,
        runs: &[&PlannedRun],
        spare: Option<Duration>,
    ) -> Result<usize, Error> {
        let block = runs[0].block;
        let block_length = super::run_length(self.body).map(|run| run.saturating_mul(runs.len() as u32));
        let patience = crate::machine::quiet_wait(block_length).min(spare.unwrap_or(Duration::MAX));
        crate::machine::wait_until_quiet(block, patience, self.around.observer, self.around.stop);
        let canary_ratios = self.canary(store, block, "before")?;
        let compared = self.body.compare.as_ref();
        let compared = compared.map(|c| (c.axis.as_str(), base_of(c, self.body, self.plan)));
        let mut queue = Queue::new(self.plan, compared, self.units(runs));
        let mut made = 0;
        while let Some(unit) = queue.next() {
            if self.around.stop.is_requested() {
                return Ok(made);
            }
            let ratio_of =
                |run: &PlannedRun| canary_ratios.get(place_of(&self.plan.cells[run.cell])).copied();
            let statuses = match unit.as_slice() {
                [planned] if !self.is_life(&unit) => {
                    let pass = Pass { purpose: Purpose::Measure, canary_ratio: ratio_of(planned) };
                    vec![self.make_run(store, planned, pass)?]
                }
                states if self.is_life(states) => self.make_life(store, states, &ratio_of)?,
                sides => self.make_duel(store, sides, &ratio_of)?,
            };
            made += unit.len();
            let is_lost = statuses.contains(&Status::Invalid);
            let again = queue.ended(&unit, is_lost, Instant::now());
            if again > 0 {
                (self.around.observer)(Event::Again { runs: again });
            }
        }
        self.canary(store, block, "after")?;
        Ok(made)
    }

    /// Makes a run; a search for lines whose server did not last on one server after the other.
    fn make_run(&self, store: &mut Store, planned: &PlannedRun, pass: Pass) -> Result<Status, Error> {
        loop {
            let attempt = attempts(store, self.id, planned.index, Purpose::Measure)? + 1;
            let making = self.making(planned, attempt, pass)?;
            let status = make(making, Some((&mut *store, self.id)), self.around)?.end.status;
            if !self.is_to_go_on(&[planned], &[status])? {
                return Ok(status);
            }
        }
    }

    /// Whether one of these searches is to go on with a fresh server.
    fn is_to_go_on(&self, sides: &[&PlannedRun], statuses: &[Status]) -> Result<bool, Error> {
        if self.around.stop.is_requested() || !statuses.contains(&Status::Failed) {
            return Ok(false);
        }
        let orders = sides.iter().filter_map(|planned| self.line_order(planned));
        orders.map(|order| goes_on(&order)).try_fold(false, |any, one| Ok(any || one?))
    }

    /// What of these runs is made together.
    fn units<'a>(&self, runs: &[&'a PlannedRun]) -> Vec<Unit<'a>> {
        let Some(axis) = together(self.body) else {
            return runs.iter().map(|run| vec![*run]).collect();
        };
        let group = |run: &PlannedRun| self.plan.group(run, axis);
        runs.chunk_by(|one, next| group(one) == group(next)).map(<[_]>::to_vec).collect()
    }

    /// Whether these runs are made in one life of a server that is switched between them.
    fn is_life(&self, runs: &[&PlannedRun]) -> bool {
        runs.iter().all(|run| self.plan.cells[run.cell].intervene.is_some())
    }

    /// The next attempts of runs that are made together.
    fn makings(
        &self,
        store: &Store,
        unit: &[&PlannedRun],
        ratio_of: &dyn Fn(&PlannedRun) -> Option<f64>,
    ) -> Result<Vec<Making<'_>>, Error> {
        let next = |planned: &&PlannedRun| {
            let attempt = attempts(store, self.id, planned.index, Purpose::Measure)? + 1;
            let pass = Pass { purpose: Purpose::Measure, canary_ratio: ratio_of(planned) };
            self.making(planned, attempt, pass)
        };
        unit.iter().map(next).collect()
    }

    /// Makes the runs of one life.
    fn make_life(
        &self,
        store: &mut Store,
        states: &[&PlannedRun],
        ratio_of: &dyn Fn(&PlannedRun) -> Option<f64>,
    ) -> Result<Vec<Status>, Error> {
        let mut makings = self.makings(store, states, ratio_of)?;
        let first = &self.plan.cells[states[0].cell];
        let values: Vec<&str> =
            states.iter().filter_map(|run| self.plan.cells[run.cell].intervene.as_deref()).collect();
        let length = first.length.unwrap_or(self.body.load.length);
        let seed = states[0].seed ^ u64::from(states[0].index);
        let flavor = self.subjects[first.server].flavor();
        let phases = Phases::new(self.body, flavor, &values, length, seed)?;
        let order = &mut makings[0].order;
        order.load.steps = order.load.steps.first().map(|level| phases.steps(*level)).unwrap_or_default();
        order.load.enough = load::Stop::new();
        order.phases = Some(phases);
        let ended = make_life(makings, Some((store, self.id)), self.around)?;
        Ok(ended.into_iter().map(|ended| ended.end.status).collect())
    }

    /// Makes the sides of a duel; searches for lines with fresh servers as long as one of them did not last.
    fn make_duel(
        &self,
        store: &mut Store,
        sides: &[&PlannedRun],
        ratio_of: &dyn Fn(&PlannedRun) -> Option<f64>,
    ) -> Result<Vec<Status>, Error> {
        loop {
            let statuses = self.make_sides(store, sides, ratio_of)?;
            if !self.is_to_go_on(sides, &statuses)? {
                return Ok(statuses);
            }
        }
    }

    /// Makes the sides of a duel at the same time; one after the other where they cannot live together, which is told.
    fn make_sides(
        &self,
        store: &mut Store,
        sides: &[&PlannedRun],
        ratio_of: &dyn Fn(&PlannedRun) -> Option<f64>,
    ) -> Result<Vec<Status>, Error> {
        let makings = self.makings(store, sides, ratio_of)?;
        let places: Vec<&Place<'_>> = makings.iter().map(|making| &making.place).collect();
        let replicas: Vec<&Spec> =
            makings.iter().flat_map(|making| &making.order.replicas).flat_map(|order| &order.specs).collect();
        if let Err(why) = room::together(&places, &replicas) {
            let note = format!("no duel: {why}; its runs were made next to each other instead");
            (self.around.observer)(Event::Warning(&note));
            let alone = |mut making: Making<'_>| {
                making.order.notes.push(note.clone());
                Ok(make(making, Some((&mut *store, self.id)), self.around)?.end.status)
            };
            return makings.into_iter().map(alone).collect();
        }
        let slices = self.slices(&self.plan.cells[sides[0].cell]);
        let ended = make_together(makings, slices, Some((store, self.id)), sides[0].seed, self.around)?;
        Ok(ended.into_iter().map(|ended| ended.end.status).collect())
    }

    /// Slices of each side of a duel, together as long as the cell's level.
    fn slices(&self, cell: &Cell) -> u32 {
        match cell.length.unwrap_or(self.body.load.length) {
            Length::Time(length) => duel::slices_in(length),
            // Refused with the study file.
            Length::Transactions(_) => 2,
        }
    }

    /// A pass for hot locks of each cell and level that has none yet, once all timed runs are settled.
    pub(super) fn lock_passes(&self, store: &mut Store, chosen: &[&PlannedRun]) -> Result<usize, Error> {
        let heads = store.run_heads(self.id)?;
        let stands = standing(&heads);
        let last = chosen.iter().map(|run| run.block).max().unwrap_or_default();
        if self.plan.runs.iter().any(|run| run.block <= last && !stands.contains_key(&run.index)) {
            return Ok(0);
        }
        let mut made = 0;
        let mut known: Vec<(usize, &[u32])> = Vec::new();
        for planned in chosen {
            if self.around.stop.is_requested() {
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
            let around = Around { attach: &crate::locks::LockWatch, ..self.around };
            let making =
                self.making(planned, attempt, Pass { purpose: Purpose::Locks, canary_ratio: None })?;
            make(making, Some((&mut *store, self.id)), around)?;
            made += 1;
        }
        Ok(made)
    }

    fn making(&self, planned: &PlannedRun, attempt: usize, pass: Pass) -> Result<Making<'_>, Error> {
        let cell = &self.plan.cells[planned.cell];
        let subject = &self.subjects[cell.server];
        let start = self.start_of(planned, pass.purpose);
        let load = crate::cells::load_plan(self.body, cell, planned)?;
        let assigned = crate::cells::assignment(cell, &self.body.load)?;
        let replicas = subject.build().map(|build| self.replicas(build, cell)).transpose()?.flatten();
        let (place, asked) = subject.place(|build| {
            let mut spec = sandbox_spec(build, cell, &self.body.load)?;
            if pass.purpose == Purpose::Locks {
                spec.settings.extend(crate::locks::settings(build));
            }
            if let Some(address) = self.request.client_hosts.server_address() {
                spec.listen = Listen::At(address);
            }
            Ok(spec)
        })?;
        let (place, replicas) = match replicas {
            Some(Err(why)) => (Place::Absent(why), None),
            Some(Ok(replicas)) => (place, Some(replicas)),
            None => (place, None),
        };
        let log_file =
            format!("logs/{}-{}-run{}-{attempt}.log", self.request.study.name, self.id.0, planned.index + 1);
        let line = match self.line_order(planned) {
            Some(line) => Some(LineOrder { earlier: self.earlier(planned)?, ..line }),
            None => None,
        };
        let timed = self.body.timed.iter().map(|timed| Moment::of(timed, subject.flavor()));
        let order = Order {
            clients: self.body.load.clients,
            client_hosts: &self.request.client_hosts,
            home: self.home,
            server_name: self.plan.servers[cell.server].name.clone(),
            flavor: subject.flavor(),
            workload: &cell.workload,
            options: &cell.options,
            engine: cell.engine.as_deref(),
            data: Data::Any,
            replicas,
            prime: crate::cells::priming_plan(self.body, &load),
            load,
            line,
            phases: None,
            timed: timed.collect::<Result<_, _>>()?,
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
        let label = RunLabel::of(&start, self.plan.runs.len(), self.plan.blocks());
        Ok(Making { start, label, order, place })
    }

    /// The replicas of a cell's server; or why one of them cannot be.
    fn replicas(&self, build: &Build, cell: &Cell) -> Result<Option<Result<ReplicaOrder, &str>>, Error> {
        let Some(choice) = cell.replicas.as_ref().filter(|choice| !choice.servers.is_empty()) else {
            return Ok(None);
        };
        let mut specs = Vec::new();
        for (server, number) in choice.servers.iter().zip(1..) {
            let index = server.as_ref().and_then(|server| self.plan.replica_server(server));
            let build = match index.map(|index| &self.subjects[index]) {
                None => build,
                Some(Subject::Absent { why, .. }) => return Ok(Some(Err(why))),
                Some(subject) => subject.build().unwrap_or(build),
            };
            specs.push(replica_spec(build, cell, &self.body.load, number)?);
        }
        Ok(Some(Ok(ReplicaOrder { mode: choice.mode, specs })))
    }

    /// The search that a run is, where the study has lines.
    fn line_order(&self, planned: &PlannedRun) -> Option<LineOrder<'_>> {
        let asked = self.body.line.as_ref()?;
        Some(LineOrder {
            asked,
            results: &self.request.results,
            fingerprint: self.search_of(planned),
            command: &self.request.command,
            is_new: false,
            earlier: None,
            seed: planned.seed,
        })
    }

    /// What the search of a run is found again by.
    fn search_of(&self, planned: &PlannedRun) -> String {
        format!("study {} seed {} run {}", self.id.0, self.plan.seed, planned.index)
    }

    /// What the searches of earlier lives of the same cell found; `None` where there are none, or a promise had no line.
    fn earlier(&self, planned: &PlannedRun) -> Result<Option<Earlier>, Error> {
        let searches = Store::open(&self.request.results)?.line_searches()?;
        let is_earlier = |run: &&PlannedRun| run.cell == planned.cell && run.block < planned.block;
        let names: BTreeSet<String> =
            self.plan.runs.iter().filter(is_earlier).map(|run| self.search_of(run)).collect();
        let (mut lines_tps, mut peak_sessions) = (Vec::new(), None);
        for search in searches.iter().filter(|search| names.contains(&search.start.fingerprint)) {
            let Some(found) = &search.found else { continue };
            let all: Option<Vec<f64>> = found.lines.iter().map(|line| line.line_tps).collect();
            lines_tps.extend(all.and_then(|lines_tps| lines_tps.first().copied()));
            peak_sessions = search.climb().map(|climb| climb.sessions).or(peak_sessions);
        }
        let line_tps = stats::describe::median(&lines_tps);
        Ok(line_tps.zip(peak_sessions).map(|(line_tps, peak_sessions)| Earlier { line_tps, peak_sessions }))
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
