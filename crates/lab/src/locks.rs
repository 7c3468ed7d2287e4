//! Passes for hot locks: runs of their own, whose instruments slow the server down and whose figures therefore enter
//! no average and no verdict.

use std::collections::BTreeMap;
use std::thread::JoinHandle;
use std::time::Duration;

use sandbox::{Build, Flavor};
use telemetry::locks::perf::Recording;
use telemetry::locks::performance_schema::{self, Observation};
use telemetry::locks::{LockSampler, LockTable, Source, futex, wait_events};

use crate::hooks::{Attach, Found, Hook, Part, RunContext};

/// Locks kept of each source and level: what follows is never hot.
const LOCKS_KEPT: usize = 25;
/// Between two looks at where threads wait.
const PERIOD: Duration = Duration::from_millis(10);
/// Unwinding the stack of each wait costs much more than the rest: callers are looked at for so long.
const CALLERS_FOR: Duration = Duration::from_millis(1500);

/// Watches the locks of a run, level by level; those of a run in slices, between which its server has nothing to do, as one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct LockWatch;

impl Attach for LockWatch {
    fn attach(&self, context: &RunContext, _told: &dyn Fn(&str)) -> Vec<Box<dyn Hook>> {
        vec![Box::new(Watching { context: context.clone(), sessions: 0, at_work: None, seen: Vec::new() })]
    }
}

/// What a server must be started with for its locks to be counted.
pub(crate) fn settings(build: &Build) -> BTreeMap<String, String> {
    if build.flavor == Flavor::Postgres {
        return BTreeMap::new();
    }
    let version = build.numbers();
    performance_schema::settings(build.flavor == Flavor::Mariadb, (version.0, version.1))
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

struct Watching {
    context: RunContext,
    sessions: u32,
    at_work: Option<AtWork>,
    seen: Vec<(u32, LockTable)>,
}

#[derive(Default)]
struct AtWork {
    schema: Option<Observation>,
    events: Option<LockSampler>,
    futex: Option<LockSampler>,
    perf: Option<Recording>,
    /// A short look with callers.
    callers: Option<JoinHandle<LockTable>>,
    refused: Vec<LockTable>,
}

impl AtWork {
    fn begin(context: &RunContext) -> AtWork {
        let mut at_work = AtWork::default();
        if context.flavor == Flavor::Postgres {
            at_work.events = Some(wait_events::start(&context.target, PERIOD));
            return at_work;
        }
        match Observation::start(&context.target) {
            Ok(observation) => at_work.schema = Some(observation),
            Err(table) => at_work.refused.push(table),
        }
        if let Some(pid) = context.server_pid {
            at_work.futex = Some(futex::start(pid, PERIOD));
            // Counts come from the performance schema where it is on, and callers where its build has kept them; perf
            // is asked for who waits.
            if at_work.schema.is_some() {
                let look = move || match Recording::start(pid, &std::env::temp_dir(), true) {
                    Ok(recording) => {
                        std::thread::sleep(CALLERS_FOR);
                        recording.stop()
                    }
                    Err(table) => table,
                };
                at_work.callers = Some(std::thread::spawn(look));
            } else {
                match Recording::start(pid, &std::env::temp_dir(), false) {
                    Ok(recording) => at_work.perf = Some(recording),
                    Err(table) => at_work.refused.push(table),
                }
            }
        }
        at_work
    }

    fn end(self) -> Vec<LockTable> {
        // Futexes first: their observation has no query of its own at the end.
        let mut tables = self.refused;
        tables.extend(self.futex.map(LockSampler::stop));
        tables.extend(self.perf.map(Recording::stop));
        // A look that panicked has seen nothing.
        tables.extend(self.callers.and_then(|look| look.join().ok()));
        tables.extend(self.schema.map(Observation::stop));
        tables.extend(self.events.map(LockSampler::stop));
        tables
    }
}

impl Watching {
    fn begin(&mut self) {
        if self.at_work.is_none() {
            self.at_work = Some(AtWork::begin(&self.context));
        }
    }

    fn end(&mut self) {
        if let Some(at_work) = self.at_work.take() {
            let sessions = self.sessions;
            self.seen.extend(at_work.end().into_iter().map(|table| (sessions, table)));
        }
    }
}

impl Hook for Watching {
    fn event(&mut self, event: &load::Event<'_>) {
        match event {
            load::Event::StepStarted { step, .. } => {
                if !self.context.is_sliced {
                    self.end();
                }
                self.sessions = step.sessions;
                if step.warmup.is_zero() {
                    self.begin();
                }
            }
            // Second 0 is the last one of the warm-up: what follows is measured.
            load::Event::Interval { interval, .. } if interval.second >= 0 => self.begin(),
            load::Event::StepEnded { .. } if !self.context.is_sliced => self.end(),
            load::Event::StepEnded { .. }
            | load::Event::Connected { .. }
            | load::Event::Interval { .. }
            | load::Event::Warning(_) => {}
        }
    }

    fn finish(mut self: Box<Self>, parts: &[Part<'_>]) -> Vec<Found> {
        self.end();
        let mut found = Found::default();
        for (sessions, table) in self.seen {
            for missing in &table.missing {
                found.facts.push((format!("not measured/{}", missing.what), missing.why.clone()));
            }
            found.hot_locks.extend(stored(sessions, &table));
        }
        vec![found; parts.len()]
    }
}

fn stored(sessions: u32, table: &LockTable) -> Vec<store::HotLock> {
    let source = match table.source {
        Source::PerformanceSchema => store::LockSource::PerformanceSchema,
        Source::WaitEvents => store::LockSource::WaitEvents,
        Source::Futex => store::LockSource::Futex,
        Source::Perf => store::LockSource::Perf,
    };
    // Threads without work wait at conditions all the time, and would head every list.
    let hot = table.waits.iter().filter(|wait| wait.is_lock).take(LOCKS_KEPT);
    hot.map(|wait| store::HotLock {
        sessions,
        source,
        lock: wait.lock.clone(),
        caller: wait.caller.clone(),
        count: wait.count,
        wait_total_s: wait.wait_s,
        wait_interval_s: wait.interval_s,
        observed_s: table.observed_s,
    })
    .collect()
}
