//! Follows a run: interval lines, checkpoints, the final report, and the script's own report hooks.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use load::{Event, Histogram, IntervalResult, LoadResult};
use mlua::Table;

use crate::course::Course;
use crate::error::Error;
use crate::host::Blocking;
use crate::options::Values;
use crate::output::{Form, Stat, histogram_text, is_told, level, tell};
use crate::script::run_blocking;
use crate::session::Tally;
use crate::settings;
use crate::state::State;
use crate::symbols::{Counted, Counters};

/// The script's own reports: `hooks.report_intermediate` in a state of its own, `hooks.report_cumulative` in the
/// global one, as in sysbench.
pub(crate) struct Hooks<'a> {
    /// The state that has loaded the script and run its `init`.
    pub global: &'a mut Course<Blocking>,
    /// Where intermediate reports run; `None` without such a hook.
    pub intermediate: Option<Course<Blocking>>,
    pub has_cumulative: bool,
}

/// What a run has shown so far.
pub(crate) struct Watch<'a> {
    out: &'a mut (dyn Write + Send),
    form: Form,
    hooks: Option<Hooks<'a>>,
    is_used: Arc<AtomicBool>,
    interval_s: u64,
    checkpoints: Vec<u64>,
    wants_histogram: bool,
    threads: u32,
    /// Of the measured seconds.
    errors: u64,
    gathering: Gathering,
    since_checkpoint: Gathering,
    problem: Option<Error>,
    counters: Arc<Counters>,
    /// Where the counters stood when the measured phase began, and at its last second.
    counted_before: Counted,
    counted_last: Counted,
}

/// Sums over some seconds.
#[derive(Debug, Default)]
struct Gathering {
    seconds: f64,
    stat: Stat,
    parts: Vec<Histogram>,
}

/// Histograms of seconds that are merged into one, because nobody may ever ask for them.
const PARTS_MAX: usize = 60;

impl Gathering {
    fn add(&mut self, interval: &IntervalResult, counted: &Counted) {
        self.seconds += interval.duration_s;
        let stat = &mut self.stat;
        stat.events += interval.outcomes.committed + interval.outcomes.rolled_back;
        stat.reads += interval.reads;
        stat.writes += interval.writes;
        stat.other += interval.other;
        stat.errors += errors(interval);
        stat.reconnects += interval.reconnects;
        stat.count(counted);
        stat.queue_length = interval.backlog;
        stat.concurrency = interval.in_flight.into();
        self.parts.push(interval.latency.response.clone());
        if self.parts.len() >= PARTS_MAX {
            self.parts = vec![Histogram::merged(&self.parts)];
        }
    }

    fn take(&mut self, threads: u32, total_s: f64) -> Stat {
        let gathered = std::mem::take(self);
        Stat {
            threads_running: threads,
            time_interval: gathered.seconds,
            time_total: total_s,
            latency: Histogram::merged(&gathered.parts),
            ..gathered.stat
        }
    }
}

impl<'a> Watch<'a> {
    /// Prepares reports. `is_used` tells whether there are statements to report.
    ///
    /// # Errors
    /// Checkpoints are no numbers.
    pub(crate) fn new(
        values: &Values,
        form: Form,
        is_used: Arc<AtomicBool>,
        counters: Arc<Counters>,
        hooks: Option<Hooks<'a>>,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Watch<'a>, Error> {
        let checkpoints = settings::checkpoints(values)?;
        Ok(Watch {
            hooks,
            is_used,
            interval_s: values.count("report-interval"),
            wants_histogram: values.is_on("histogram"),
            out,
            form,
            checkpoints,
            threads: 0,
            errors: 0,
            gathering: Gathering::default(),
            since_checkpoint: Gathering::default(),
            problem: None,
            counted_before: counters.now(),
            counted_last: counters.now(),
            counters,
        })
    }

    /// Takes an event of the load engine.
    pub(crate) fn on(&mut self, event: Event<'_>) {
        match event {
            Event::StepStarted { step, .. } => {
                self.threads = step.sessions;
                self.print("Threads started!\n\n");
            }
            Event::Interval { interval, .. } if interval.second >= 1 => self.second(interval),
            // What is counted in the warm-up is none of the figures.
            Event::Interval { .. } => {
                self.counted_before = self.counters.now();
                self.counted_last = self.counted_before;
            }
            Event::Warning(text) => tell(level::WARNING, text),
            _ => {}
        }
    }

    fn second(&mut self, interval: &IntervalResult) {
        let now = self.counters.now();
        let counted = now.since(&self.counted_last);
        self.counted_last = now;
        self.errors += errors(interval);
        self.gathering.add(interval, &counted);
        self.since_checkpoint.add(interval, &counted);
        let second = interval.second.unsigned_abs();
        let is_sql = self.is_used.load(Ordering::Relaxed);
        if self.interval_s > 0 && second.is_multiple_of(self.interval_s) {
            let stat = Stat { is_sql, ..self.gathering.take(self.threads, second as f64) };
            self.intermediate(&stat);
        }
        if self.checkpoints.contains(&second) {
            let stat = Stat { is_sql, ..self.since_checkpoint.take(self.threads, second as f64) };
            self.print(&format!("[ {second}s ] Checkpoint report:\n"));
            self.cumulative(&stat, &[]);
        }
    }

    fn intermediate(&mut self, stat: &Stat) {
        let percent = self.form.percentiles.first().copied();
        if let Some(course) = self.hooks.as_mut().and_then(|hooks| hooks.intermediate.as_mut()) {
            let called = call(course, "report_intermediate", stat, percent, false);
            self.note(called);
        } else {
            let line = stat.interval_line(&self.form);
            self.print(&line);
        }
    }

    fn cumulative(&mut self, stat: &Stat, tallies: &[Tally]) {
        let percent = self.form.percentiles.first().copied();
        if let Some(hooks) = self.hooks.as_mut().filter(|hooks| hooks.has_cumulative) {
            let called = call(hooks.global, "report_cumulative", stat, percent, true);
            self.note(called);
            return;
        }
        let mut text = String::new();
        if self.wants_histogram {
            text.push_str(&histogram_text(&stat.latency));
        }
        text.push_str(&stat.final_report(&self.form, tallies));
        self.print(&text);
    }

    fn note(&mut self, called: Result<(), Error>) {
        if let Err(error) = called {
            self.problem.get_or_insert(error);
        }
    }

    /// The final report.
    ///
    /// # Errors
    /// A hook of the script failed, or the output is gone.
    pub(crate) fn finish(&mut self, load: &LoadResult, tallies: &[Tally]) -> Result<(), Error> {
        let Some(step) = load.steps.last() else { return Ok(()) };
        let counted = self.counters.now().since(&self.counted_before);
        // What `thread_init` and `thread_done` did counts too, as in sysbench: bulk_insert sends its last statements there.
        let late = |class: usize| tallies.iter().map(|t| t.late[class]).sum::<u64>();
        let is_sql = self.is_used.load(Ordering::Relaxed);
        let mut whole = Stat {
            is_sql,
            // All sessions have ended.
            threads_running: 0,
            time_interval: step.duration_s,
            time_total: step.duration_s,
            events: step.outcomes.committed + step.outcomes.rolled_back,
            reads: step.reads + late(0),
            writes: step.writes + late(1),
            other: step.other + late(2),
            errors: self.errors,
            reconnects: step.reconnects,
            latency: step.latency.response.clone(),
            ..Stat::default()
        };
        whole.count(&counted);
        // After a checkpoint the report covers what came since.
        let stat = if self.checkpoints.iter().any(|c| (*c as f64) < step.duration_s) {
            Stat { is_sql, ..self.since_checkpoint.take(0, step.duration_s) }
        } else {
            whole
        };
        if let Some(course) = self.hooks.as_ref().and_then(|hooks| hooks.intermediate.as_ref()) {
            course.state().native("end_json")?.call::<()>(()).map_err(Error::lua)?;
        }
        self.cumulative(&stat, tallies);
        self.problem.take().map_or(Ok(()), Err)
    }

    fn print(&mut self, text: &str) {
        if !is_told(level::NOTICE) {
            return;
        }
        crate::run::flush_lua();
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        self.note(written.map_err(|source| Error::File { path: "standard output".into(), source }));
    }
}

/// Every restart of an event is an ignored error, and so is an event that ran out of restarts.
fn errors(interval: &IntervalResult) -> u64 {
    interval.retries + interval.outcomes.failed()
}

/// Calls a hook of the script, which may wait for servers.
fn call(
    course: &mut Course<Blocking>,
    name: &str,
    stat: &Stat,
    percent: Option<f64>,
    is_cumulative: bool,
) -> Result<(), Error> {
    let table = stat_table(course.state(), stat, percent, is_cumulative).map_err(Error::lua)?;
    course.state().set_native("stat", table)?;
    course.state().set_native("report_hook", name)?;
    course.begin("report")?;
    run_blocking(course)
}

/// The stat table of report hooks. Latencies are seconds.
fn stat_table(state: &State, stat: &Stat, percent: Option<f64>, is_cumulative: bool) -> mlua::Result<Table> {
    let table = state.lua.create_table()?;
    table.set("threads_running", stat.threads_running)?;
    table.set("time_interval", stat.time_interval)?;
    table.set("time_total", stat.time_total)?;
    table.set("latency_pct", percent.map_or(0.0, |p| stat.percentile_ms(p) / 1000.0))?;
    for (name, count) in [
        ("events", stat.events),
        ("reads", stat.reads),
        ("writes", stat.writes),
        ("other", stat.other),
        ("errors", stat.errors),
        ("reconnects", stat.reconnects),
    ] {
        table.set(name, count as f64)?;
    }
    if is_cumulative {
        let seconds = |ns: u64| if stat.latency.is_empty() { 0.0 } else { ns as f64 / 1e9 };
        table.set("latency_min", seconds(stat.latency.min_ns()))?;
        table.set("latency_max", seconds(stat.latency.max_ns()))?;
        table.set("latency_avg", if stat.latency.is_empty() { 0.0 } else { stat.latency.mean_ns() / 1e9 })?;
        table.set("latency_sum", seconds(stat.latency.sum_ns()))?;
    } else {
        table.set("queue_length", stat.queue_length as f64)?;
        table.set("concurrency", stat.concurrency as f64)?;
    }
    Ok(table)
}
