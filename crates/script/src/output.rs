//! What sysbench prints while and after a run, in its form, so that existing parsers work.

use std::fmt::Write;
use std::sync::atomic::{AtomicU8, Ordering};

use load::Histogram;

use crate::histogram::StepHistogram;
use crate::options::Compat;
use crate::session::Tally;
use crate::symbols::{Counted, Counter};

/// Levels of `--verbosity`.
pub(crate) mod level {
    /// Ends the run.
    pub(crate) const FATAL: u8 = 0;
    /// Something is wrong with a call.
    pub(crate) const ALERT: u8 = 1;
    /// Worth knowing.
    pub(crate) const WARNING: u8 = 2;
    /// Reports.
    pub(crate) const NOTICE: u8 = 3;
}

/// What is told at all: one command line runs in a process.
static VERBOSITY: AtomicU8 = AtomicU8::new(level::NOTICE);

pub(crate) fn set_verbosity(verbosity: u8) {
    VERBOSITY.store(verbosity, Ordering::Relaxed);
}

/// Whether messages of a level are told.
pub(crate) fn is_told(level: u8) -> bool {
    level <= VERBOSITY.load(Ordering::Relaxed)
}

/// Tells something on standard output, where sysbench tells everything, after what scripts have printed.
pub(crate) fn tell(level: u8, text: &str) {
    if !is_told(level) {
        return;
    }
    // Tracebacks are for people; with a lower verbosity a line is a line.
    let shown =
        if is_told(level::NOTICE) { text } else { text.split("\nstack traceback:").next().unwrap_or(text) };
    let prefix = match level {
        level::FATAL => "FATAL: ",
        level::ALERT => "ALERT: ",
        level::WARNING => "WARNING: ",
        _ => "",
    };
    crate::run::flush_lua();
    println!("{prefix}{}", wire::shown(shown));
}

/// Figures of an interval or of a whole run, in the terms of sysbench's report hooks. Times are seconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stat {
    /// Sessions that run.
    pub threads_running: u32,
    /// Length of the interval.
    pub time_interval: f64,
    /// Since the start of the measured phase.
    pub time_total: f64,
    /// Events completed.
    pub events: u64,
    /// Statements with a result set.
    pub reads: u64,
    /// Statements that changed rows.
    pub writes: u64,
    pub other: u64,
    /// Ignorable errors.
    pub errors: u64,
    /// Connections opened again.
    pub reconnects: u64,
    /// Events that wait for a session (with a rate).
    pub queue_length: u64,
    /// Sessions that work on an event (with a rate).
    pub concurrency: u64,
    /// Whether the script uses a server; without one there are no statements to report.
    pub is_sql: bool,
    /// Latencies of the events.
    pub latency: Histogram,
}

/// What the reports need to know of the command line.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// Which release's final report.
    pub compat: Compat,
    /// Percentiles to print; empty for none.
    pub percentiles: Vec<f64>,
    /// Whether a rate was asked for.
    pub has_rate: bool,
    /// Sessions of the run.
    pub threads: u32,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

impl Stat {
    /// Adds what is counted beside the load engine.
    pub(crate) fn count(&mut self, counted: &Counted) {
        self.other += counted.of(Counter::Other);
        self.reads += counted.of(Counter::Read);
        self.writes += counted.of(Counter::Write);
        self.events += counted.of(Counter::Event);
        self.errors += counted.of(Counter::Error);
        self.reconnects += counted.of(Counter::Reconnect);
    }

    /// The percentile in milliseconds.
    pub(crate) fn percentile_ms(&self, percent: f64) -> f64 {
        if self.latency.is_empty() { 0.0 } else { self.latency.quantile_ms(percent / 100.0) }
    }

    /// `[ 10s ] thds: ...`, with a second line where there is a rate.
    pub(crate) fn interval_line(&self, form: &Form) -> String {
        let per_second = |count: u64| count as f64 / self.time_interval.max(1e-9);
        let queries = self.reads + self.writes + self.other;
        let percentiles: Vec<String> = form.percentiles.iter().map(|p| format!("{p}%")).collect();
        let values: Vec<String> =
            form.percentiles.iter().map(|p| format!("{:4.2}", self.percentile_ms(*p))).collect();
        let (percentiles, values) = match percentiles.is_empty() {
            true => ("0%".to_owned(), "0.00".to_owned()),
            false => (percentiles.join("/"), values.join("/")),
        };
        if !self.is_sql {
            let mut text = format!(
                "[ {:.0}s ] thds: {} eps: {:4.2} lat (ms,{percentiles}): {values}\n",
                self.time_total,
                self.threads_running,
                per_second(self.events)
            );
            if form.has_rate {
                // Without a comma here, as in sysbench.
                let _ = writeln!(
                    text,
                    "[ {:.0}s ] queue length: {} concurrency: {}",
                    self.time_total, self.queue_length, self.concurrency
                );
            }
            return text;
        }
        let mut text = format!(
            "[ {:.0}s ] thds: {} tps: {:4.2} qps: {:4.2} (r/w/o: {:4.2}/{:4.2}/{:4.2}) lat (ms,{percentiles}): {values} \
             err/s: {:4.2} reconn/s: {:4.2}\n",
            self.time_total,
            self.threads_running,
            per_second(self.events),
            per_second(queries),
            per_second(self.reads),
            per_second(self.writes),
            per_second(self.other),
            per_second(self.errors),
            per_second(self.reconnects),
        );
        if form.has_rate {
            let _ = writeln!(
                text,
                "[ {:.0}s ] queue length: {}, concurrency: {}",
                self.time_total, self.queue_length, self.concurrency
            );
        }
        text
    }

    /// The cumulative report.
    pub(crate) fn final_report(&self, form: &Form, tallies: &[Tally]) -> String {
        let per_second = |count: u64| count as f64 / self.time_interval.max(1e-9);
        let mut text = String::new();
        if self.is_sql {
            self.sql_lines(&mut text);
        }
        match form.compat {
            Compat::V1_0 => {
                let _ = write!(
                    text,
                    "\nGeneral statistics:\n    total time:                          {:.4}s\n    \
                     total number of events:              {}\n",
                    self.time_interval, self.events
                );
            }
            Compat::Master => {
                let _ = write!(
                    text,
                    "\nThroughput:\n    events/s (eps):                      {:.4}\n    \
                     time elapsed:                        {:.4}s\n    \
                     total number of events:              {}\n",
                    per_second(self.events),
                    self.time_interval,
                    self.events
                );
            }
        }
        self.latency_lines(form, &mut text);
        fairness_lines(tallies, self.events as f64 / f64::from(form.threads.max(1)), &mut text);
        text
    }

    fn sql_lines(&self, text: &mut String) {
        let total = self.reads + self.writes + self.other;
        let per_second = |count: u64| count as f64 / self.time_interval.max(1e-9);
        text.push_str("SQL statistics:\n    queries performed:\n");
        for (name, count) in
            [("read", self.reads), ("write", self.writes), ("other", self.other), ("total", total)]
        {
            let _ = writeln!(text, "        {:<33}{count}", format!("{name}:"));
        }
        for (name, count) in [
            ("transactions", self.events),
            ("queries", total),
            ("ignored errors", self.errors),
            ("reconnects", self.reconnects),
        ] {
            let _ = writeln!(
                text,
                "    {:<37}{count:<6} ({:.2} per sec.)",
                format!("{name}:"),
                per_second(count)
            );
        }
    }

    fn latency_lines(&self, form: &Form, text: &mut String) {
        text.push_str("\nLatency (ms):\n");
        let mut line = |name: String, value: f64| {
            let _ = writeln!(text, "         {name:<26}{value:>18.2}");
        };
        let empty = self.latency.is_empty();
        let ms = |ns: u64| if empty { 0.0 } else { seconds(ns) * 1000.0 };
        line("min:".into(), ms(self.latency.min_ns()));
        line("avg:".into(), if empty { 0.0 } else { self.latency.mean_ms() });
        line("max:".into(), ms(self.latency.max_ns()));
        for percent in &form.percentiles {
            // sysbench writes `95th` whatever the number.
            line(format!("{percent}th percentile:"), self.percentile_ms(*percent));
        }
        if form.percentiles.is_empty() {
            text.push_str("         percentile stats:               disabled\n");
        }
        let _ = writeln!(text, "         {:<26}{:>18.2}", "sum:", ms(self.latency.sum_ns()));
    }
}

/// Without tallies (checkpoints, native workloads) only the mean of the events is known.
fn fairness_lines(tallies: &[Tally], mean_events: f64, text: &mut String) {
    if tallies.is_empty() {
        let _ = write!(
            text,
            "\nThreads fairness:\n    events (avg/stddev):           {mean_events:.4}/nan\n    \
             execution time (avg/stddev):   nan/nan\n\n"
        );
        return;
    }
    let (events_avg, events_sd) = spread(tallies.iter().map(|t| t.events as f64));
    let (time_avg, time_sd) = spread(tallies.iter().map(|t| t.execution_s));
    let _ = write!(
        text,
        "\nThreads fairness:\n    events (avg/stddev):           {events_avg:.4}/{events_sd:3.2}\n    \
         execution time (avg/stddev):   {time_avg:.4}/{time_sd:3.2}\n\n"
    );
}

/// Mean and standard deviation of a whole population.
fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|v| (v - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// `--histogram`: the distribution of latencies.
pub(crate) fn histogram_text(latency: &Histogram) -> String {
    let mut text = String::from("Latency histogram (values are in milliseconds)\n");
    // Neighbouring buckets of the fine histogram are joined into the steps of sysbench's.
    let mut steps = StepHistogram::new(1024, 1e-3, 1e5);
    for (value_ns, count) in latency.buckets() {
        steps.add(value_ns as f64 / 1e6, count);
    }
    text.push_str(&steps.text());
    text.push_str(" \n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat() -> Stat {
        Stat {
            threads_running: 24,
            time_interval: 10.0,
            time_total: 10.0,
            events: 3752,
            reads: 52_528,
            writes: 15_008,
            other: 7_504,
            errors: 4,
            reconnects: 0,
            queue_length: 3,
            concurrency: 2,
            is_sql: true,
            latency: Histogram::of([1_000_000, 2_000_000, 3_000_000]),
        }
    }

    #[test]
    fn interval_lines_have_sysbenchs_form() {
        let form = Form { compat: Compat::V1_0, percentiles: vec![95.0], has_rate: true, threads: 24 };
        let text = stat().interval_line(&form);
        let mut lines = text.lines();
        let first = lines.next().unwrap();
        assert!(first.starts_with(
            "[ 10s ] thds: 24 tps: 375.20 qps: 7504.00 (r/w/o: 5252.80/1500.80/750.40) lat (ms,95%): 3.00"
        ));
        assert!(first.ends_with("err/s: 0.40 reconn/s: 0.00"), "{first}");
        assert_eq!(lines.next(), Some("[ 10s ] queue length: 3, concurrency: 2"));
    }

    #[test]
    fn the_final_report_has_sysbenchs_form() {
        let form = Form { compat: Compat::V1_0, percentiles: vec![95.0], has_rate: false, threads: 2 };
        let tallies = [
            Tally { events: 10, execution_s: 9.9, ..Tally::default() },
            Tally { events: 14, execution_s: 9.9, ..Tally::default() },
        ];
        let text = stat().final_report(&form, &tallies);
        for line in [
            "        read:                            52528",
            "    transactions:                        3752   (375.20 per sec.)",
            "    ignored errors:                      4      (0.40 per sec.)",
            "    total time:                          10.0000s",
            "         min:                                    1.00",
            "         95th percentile:                        3.00",
            "    events (avg/stddev):           12.0000/2.00",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
