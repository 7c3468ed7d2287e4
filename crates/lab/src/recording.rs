//! What is known of a run while it goes on, and the record that it becomes: the same for every run, whoever drives its
//! load.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use load::{Length, LoadResult, StepResult};
use store::{RunEnd, Slice, Status};

use crate::clients::Clients;
use crate::duel::crowd::Taken;
use crate::hooks::{Found, Hook, Part};
use crate::judge;
use crate::observe::Phase;
use crate::progress::{Detail, Progress, append};

pub(crate) struct Recording<'a> {
    pub(crate) began: Instant,
    pub(crate) end: RunEnd,
    progress: Progress<'a>,
    pub(crate) hooks: Vec<Box<dyn Hook>>,
    /// What of it is of the other runs that this life is recorded as.
    others: Vec<Other>,
    /// Of a load in slices: by run, which of them are its own, of those that there were.
    parts: Vec<Vec<bool>>,
    /// When the measured phase of each level began, in seconds since the run did.
    offsets_s: Vec<f64>,
    phase: Option<(Phase, Instant)>,
    /// What machines that have only clients say of the whole run.
    of_client_hosts: Vec<store::Gate>,
}

impl<'a> Recording<'a> {
    /// A run begins.
    pub(crate) fn new(end: RunEnd, detail: Detail<'a>) -> Recording<'a> {
        Recording {
            began: Instant::now(),
            end,
            progress: Progress::new(detail),
            hooks: Vec::new(),
            others: Vec::new(),
            parts: Vec::new(),
            offsets_s: Vec::new(),
            phase: None,
            of_client_hosts: Vec::new(),
        }
    }

    /// The phase before this one has ended; `None`: the last one has.
    pub(crate) fn phase(&mut self, phase: Option<Phase>) {
        let now = Instant::now();
        if let Some((before, began)) = self.phase.take() {
            let duration_s = (now - began).as_secs_f64();
            self.end.phases.push(store::Phase { name: before.name().to_owned(), duration_s });
        }
        self.phase = phase.map(|phase| (phase, now));
    }

    /// Takes what the load tells.
    ///
    /// # Errors
    /// A batch of seconds could not be recorded; they are kept and tried again.
    pub(crate) fn event(&mut self, event: &load::Event<'_>) -> Result<(), store::Error> {
        if let load::Event::StepStarted { step, .. } = event {
            self.offsets_s.push((self.began.elapsed() + step.warmup).as_secs_f64());
        }
        let hooks = &mut self.hooks;
        hooks.iter_mut().for_each(|hook| hook.event(event));
        let series = || hooks.iter_mut().flat_map(|hook| hook.take_series()).collect();
        self.progress.event(event, series).map(|_| ())
    }

    /// The load is over: what there is to say of its client processes and their machines.
    pub(crate) fn clients_ended(&mut self, clients: &mut Clients, result: &LoadResult) {
        self.end.facts.extend(clients.facts(result));
        self.of_client_hosts = clients.take_gates();
    }

    /// The load is over: its levels, as they were planned, are part of the record.
    pub(crate) fn load_ended(&mut self, planned: &[load::Step], result: &LoadResult) {
        self.end.steps = self.progress.steps(planned, result, &self.offsets_s);
    }

    /// [`Recording::load_ended`] for a load in slices. Those of each run are recorded, and answered, as one level: `of` has for
    /// each slice the run that it is of, from 0, and what others took of the machine meanwhile.
    pub(crate) fn slices_ended(
        &mut self,
        planned: &[load::Step],
        result: LoadResult,
        of: &[(usize, Taken)],
        runs: usize,
    ) -> Vec<LoadResult> {
        let slices = self.offsets_s.iter().zip(&result.steps).enumerate();
        let slices: Vec<(usize, Slice)> = slices
            .map(|(at, (&at_s, step))| {
                let (run, Taken { share, is_counted }) = of.get(at).copied().unwrap_or((0, Taken::UNSEEN));
                let (duration_s, committed) = (step.duration_s, step.outcomes.committed);
                (run, Slice { at_s, duration_s, committed, taken_share: share, is_counted })
            })
            .collect();
        let is_of = |run: usize| slices.iter().map(move |(of, slice)| *of == run && slice.is_counted);
        self.parts = (0..runs).map(|run| is_of(run).collect()).collect();
        let mut counted: Vec<Vec<StepResult>> = vec![Vec::new(); runs];
        let mut cut_short: Vec<Option<String>> = vec![None; runs];
        for (step, (run, slice)) in result.steps.into_iter().zip(&slices) {
            if slice.is_counted {
                counted[*run].push(step);
            } else {
                cut_short[*run] = cut_short[*run].take().or(step.ended_by);
            }
        }
        let merged = counted.iter().zip(cut_short).map(|(counted, cut_short)| {
            let mut merged = StepResult::merged(counted);
            merged.ended_by = merged.ended_by.or(cut_short);
            LoadResult { steps: vec![merged], interrupted: result.interrupted }
        });
        let merged: Vec<LoadResult> = merged.collect();
        self.progress.splice(&self.parts);
        let first = |run: usize| slices.iter().find(|(of, slice)| *of == run && slice.is_counted);
        self.offsets_s = (0..runs).map(|run| first(run).map_or(0.0, |(_, slice)| slice.at_s)).collect();
        let level = |result: &LoadResult| {
            let whole = Length::Time(Duration::from_secs_f64(result.steps[0].duration_s));
            planned.first().map(|step| load::Step { length: whole, ..*step })
        };
        let levels: Vec<load::Step> = merged.iter().filter_map(level).collect();
        let all = LoadResult {
            steps: merged.iter().flat_map(|result| result.steps.iter().cloned()).collect(),
            ..LoadResult::default()
        };
        let mut recorded = self.progress.steps(&levels, &all, &self.offsets_s).into_iter();
        for run in 0..runs {
            // One that was never begun has no level.
            let steps: Vec<store::Step> =
                recorded.next().filter(|_| first(run).is_some()).into_iter().collect();
            let of_run = slices.iter().filter(|(of, _)| *of == run).map(|(_, slice)| *slice);
            let duel = store::Duel { sides: runs as u32, side: run as u32, slices: of_run.collect() };
            match run {
                0 => (self.end.steps, self.end.duel) = (steps, Some(duel)),
                _ => self.others.push(Other { steps, duel: Some(duel), ..Other::default() }),
            }
        }
        merged
    }

    /// The records of the runs that the life became, the own one first, where they may differ.
    pub(crate) fn each(&mut self) -> impl Iterator<Item = Own<'_>> {
        let own = Own {
            duel: &mut self.end.duel,
            headline: &mut self.end.workload.headline,
            interventions: &mut self.end.interventions,
            facts: &mut self.end.facts,
        };
        let others = self.others.iter_mut().map(|other| Own {
            duel: &mut other.duel,
            headline: &mut other.headline,
            interventions: &mut other.interventions,
            facts: &mut other.facts,
        });
        std::iter::once(own).chain(others)
    }

    /// Adds what the load says about itself, by run of the life: whether the client set the limit, and how the server answered.
    pub(crate) fn judge_load(&mut self, results: &[LoadResult]) {
        let Some((own, others)) = results.split_first() else { return };
        self.end.gates.extend(judge::of_load(own, &self.end.steps));
        for (other, result) in self.others.iter_mut().zip(others) {
            other.gates.extend(judge::of_load(result, &other.steps));
        }
    }

    /// Adds what those who watched have found. Their suspicions are answered, for they have to be told.
    pub(crate) fn look(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        for hook in std::mem::take(&mut self.hooks) {
            let steps = std::iter::once(&self.end.steps).chain(self.others.iter().map(|other| &other.steps));
            let parts = steps.enumerate().map(|(run, steps)| {
                let slices = self.parts.get(run).map(Vec::as_slice);
                Part { steps, slices }
            });
            let mut found = hook.finish(&parts.collect::<Vec<_>>()).into_iter();
            if let Some(Found { series, hot_locks, gates, warnings, facts }) = found.next() {
                append(&mut self.progress.series, series);
                self.end.hot_locks.extend(hot_locks);
                self.end.gates.extend(gates);
                self.end.facts.extend(facts);
                told.extend(warnings);
            }
            for (other, Found { gates, facts, warnings, .. }) in self.others.iter_mut().zip(found) {
                other.gates.extend(gates);
                other.facts.extend(facts);
                told.extend(warnings);
            }
        }
        self.end.series = std::mem::take(&mut self.progress.series);
        told
    }

    /// The run is over: `Ok` where its load came to its end, else how the run stands. `why` tells of the gates that nobody
    /// has looked at. The records of all runs that the life became, the own one first; never none.
    pub(crate) fn close(mut self, ended: Result<(), Status>, is_lenient: bool, why: &str) -> Vec<RunEnd> {
        self.phase(None);
        let others = std::mem::take(&mut self.others).into_iter().map(|other| other.of(&self.end));
        let mut all: Vec<RunEnd> = others.collect();
        all.insert(0, self.end);
        for end in &mut all {
            judge::beside(&mut end.gates, &self.of_client_hosts);
            end.status = match ended {
                Ok(()) => judge::judge(end, is_lenient),
                Err(status) => status,
            };
            judge::complete(end, why);
            end.ended_at_ms = load::time::unix_ms();
        }
        all
    }
}

/// What one of several runs of a life has for itself.
#[derive(Debug, Default)]
struct Other {
    steps: Vec<store::Step>,
    duel: Option<store::Duel>,
    headline: Option<(String, String, f64)>,
    interventions: Vec<store::Intervention>,
    gates: Vec<store::Gate>,
    facts: BTreeMap<String, String>,
}

impl Other {
    /// Its record: the rest is that of the life.
    fn of(self, life: &RunEnd) -> RunEnd {
        let Other { steps, duel, headline, interventions, mut gates, facts } = self;
        let own: BTreeSet<String> = gates.iter().map(|gate| gate.name.clone()).collect();
        gates.extend(life.gates.iter().filter(|gate| !own.contains(&gate.name)).cloned());
        let mut end = RunEnd { steps, duel, interventions, gates, ..life.clone() };
        end.workload.headline = headline;
        end.facts.extend(facts);
        end
    }
}

/// See [`Recording::each`].
pub(crate) struct Own<'a> {
    pub(crate) duel: &'a mut Option<store::Duel>,
    pub(crate) headline: &'a mut Option<(String, String, f64)>,
    pub(crate) interventions: &'a mut Vec<store::Intervention>,
    pub(crate) facts: &'a mut BTreeMap<String, String>,
}
