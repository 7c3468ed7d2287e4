//! Follows a run: interval lines, checkpoints, the final report, and the script's own report hooks.

use std::io::Write;
use std::rc::Rc;

use load::{Event, Histogram, IntervalResult, LoadResult};
use mlua::{Function, Table, Value};

use crate::error::Error;
use crate::options::Values;
use crate::output::{Form, Stat, histogram_text};
use crate::session::Tally;
use crate::state::{Bytecode, Callbacks, Program, State};

/// What a run has shown so far.
pub struct Watch<'a> {
    out: &'a mut (dyn Write + Send),
    form: Form,
    state: State,
    interval_s: u64,
    checkpoints: Vec<u64>,
    wants_histogram: bool,
    threads: u32,
    gathering: Gathering,
    since_checkpoint: Gathering,
    problem: Option<Error>,
}

/// Sums over some seconds.
#[derive(Debug, Default)]
struct Gathering {
    seconds: f64,
    stat: Stat,
    parts: Vec<Histogram>,
}

impl Gathering {
    fn add(&mut self, interval: &IntervalResult, errors: u64) {
        self.seconds += interval.duration_s;
        let stat = &mut self.stat;
        stat.events += interval.outcomes.committed + interval.outcomes.rolled_back;
        stat.reads += interval.reads;
        stat.writes += interval.writes;
        stat.other += interval.other;
        stat.errors += errors;
        stat.queue_length = interval.backlog;
        self.parts.push(interval.latency.response.clone());
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
    /// Prepares reports; a Lua state of its own serves the script's hooks.
    ///
    /// # Errors
    /// The script fails, or checkpoints are no numbers.
    pub fn new(
        program: &Program,
        bytecode: &Bytecode,
        values: &Values,
        form: Form,
        out: &'a mut (dyn Write + Send),
    ) -> Result<Watch<'a>, Error> {
        let shown = form.clone();
        let callbacks = Callbacks {
            format_interval: Rc::new(move |table| Ok(stat_of(table)?.interval_line(&shown))),
            ..Callbacks::default()
        };
        let mut checkpoints = Vec::new();
        for text in values.list("report-checkpoints") {
            checkpoints.push(text.parse().map_err(|_| {
                Error::Usage(format!("Invalid value for --report-checkpoints: '{text}'"))
            })?);
        }
        Ok(Watch {
            state: State::new(program, bytecode, 0, callbacks)?,
            interval_s: values.count("report-interval"),
            wants_histogram: values.is_on("histogram"),
            out,
            form,
            checkpoints,
            threads: 0,
            gathering: Gathering::default(),
            since_checkpoint: Gathering::default(),
            problem: None,
        })
    }

    /// Takes an event of the load engine.
    pub fn on(&mut self, event: Event<'_>) {
        match event {
            Event::StepStarted { step, .. } => {
                self.threads = step.sessions;
                self.print("Threads started!\n\n");
            }
            Event::Interval { interval, .. } if interval.second >= 1 => self.second(interval),
            Event::Warning(text) => eprintln!("WARNING: {text}"),
            _ => {}
        }
    }

    fn second(&mut self, interval: &IntervalResult) {
        // Every restart of an event is an ignored error, and so is an event that ran out of restarts.
        let errors = interval.retries + interval.outcomes.failed();
        self.gathering.add(interval, errors);
        self.since_checkpoint.add(interval, errors);
        let second = interval.second.unsigned_abs();
        if self.interval_s > 0 && second.is_multiple_of(self.interval_s) {
            let stat = self.gathering.take(self.threads, second as f64);
            self.intermediate(&stat);
        }
        if self.checkpoints.contains(&second) {
            let stat = self.since_checkpoint.take(self.threads, second as f64);
            self.print(&format!("[ {second}s ] Checkpoint report:\n"));
            self.cumulative(&stat, &[]);
        }
    }

    fn intermediate(&mut self, stat: &Stat) {
        if let Some(hook) = self.hook("report_intermediate") {
            self.call(&hook, stat, None);
        } else {
            let line = stat.interval_line(&self.form);
            self.print(&line);
        }
    }

    fn cumulative(&mut self, stat: &Stat, tallies: &[Tally]) {
        if let Some(hook) = self.hook("report_cumulative") {
            self.call(&hook, stat, Some(()));
            return;
        }
        let mut text = String::new();
        if self.wants_histogram {
            text.push_str(&histogram_text(&stat.latency));
        }
        text.push_str(&stat.final_report(&self.form, tallies));
        self.print(&text);
    }

    /// The final report.
    ///
    /// # Errors
    /// A hook of the script failed, or the output is gone.
    pub fn finish(&mut self, load: &LoadResult, tallies: &[Tally]) -> Result<(), Error> {
        let Some(step) = load.steps.last() else { return Ok(()) };
        let errors: u64 = step.intervals.iter().filter(|i| i.second >= 1).map(|i| i.retries + i.outcomes.failed()).sum();
        let counted: u64 = tallies.iter().map(|t| t.counted_errors).sum();
        let whole = Stat {
            threads_running: step.sessions,
            time_interval: step.duration_s,
            time_total: step.duration_s,
            events: step.outcomes.committed + step.outcomes.rolled_back,
            reads: step.reads,
            writes: step.writes,
            other: step.other,
            errors: errors + counted,
            reconnects: tallies.iter().map(|t| t.reconnects).sum(),
            latency: step.latency.response.clone(),
            ..Stat::default()
        };
        // After a checkpoint the report covers what came since.
        let stat = if self.checkpoints.iter().any(|c| (*c as f64) < step.duration_s) {
            self.since_checkpoint.take(step.sessions, step.duration_s)
        } else {
            whole
        };
        self.cumulative(&stat, tallies);
        if let Ok(end) = self.state.native("end_json") {
            end.call::<()>(()).map_err(Error::lua)?;
        }
        self.problem.take().map_or(Ok(()), Err)
    }

    fn print(&mut self, text: &str) {
        crate::run::flush_lua();
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        if let Err(source) = written
            && self.problem.is_none()
        {
            self.problem = Some(Error::File { path: "standard output".into(), source });
        }
    }

    fn hook(&self, name: &str) -> Option<Function> {
        let sysbench: Table = self.state.lua.globals().get("sysbench").ok()?;
        let hooks: Table = sysbench.get("hooks").ok()?;
        hooks.get(name).ok()
    }

    fn call(&mut self, hook: &Function, stat: &Stat, is_cumulative: Option<()>) {
        let percent = self.form.percentiles.first().copied();
        let called = stat_table(&self.state, stat, percent, is_cumulative.is_some())
            .and_then(|table| hook.call::<Value>(table));
        if let Err(error) = called
            && self.problem.is_none()
        {
            self.problem = Some(Error::lua(error));
        }
    }
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

/// Back from a table that a hook hands to `sysbench.report_default`.
fn stat_of(table: &Table) -> mlua::Result<Stat> {
    let count = |name: &str| table.get::<Option<f64>>(name).map(|n| n.unwrap_or(0.0) as u64);
    let latency_ns = table.get::<Option<f64>>("latency_pct")?.unwrap_or(0.0) * 1e9;
    Ok(Stat {
        threads_running: count("threads_running")? as u32,
        time_interval: table.get("time_interval")?,
        time_total: table.get("time_total")?,
        events: count("events")?,
        reads: count("reads")?,
        writes: count("writes")?,
        other: count("other")?,
        errors: count("errors")?,
        reconnects: count("reconnects")?,
        queue_length: count("queue_length")?,
        concurrency: count("concurrency")?,
        latency: Histogram::of([latency_ns as u64]),
    })
}
