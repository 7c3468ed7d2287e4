//! Logs of transactions: one line each, or one for each interval.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::figures::Counts;

/// How a transaction ended, as the log has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Done,
    Skipped,
    Serialization,
    Deadlock,
}

/// One line of a log.
pub(crate) struct Entry {
    pub(crate) client: u32,
    /// Of the client, from 0.
    pub(crate) number: u64,
    pub(crate) script: usize,
    pub(crate) ended: Ended,
    pub(crate) latency_us: f64,
    pub(crate) lag_us: f64,
    pub(crate) tries: u32,
}

/// Which columns a log has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) interval_s: Option<u64>,
    pub(crate) has_lag: bool,
    pub(crate) has_retries: bool,
    pub(crate) details_failures: bool,
}

/// The log of one thread. What is written in the end, is when it is dropped.
pub(crate) struct Log {
    out: BufWriter<File>,
    form: Form,
    /// The interval that is being summed: its start in seconds since 1970, and what it has.
    interval: (u64, Counts),
}

/// The file of a thread: the prefix and the process, and but for the first the thread.
pub(crate) fn path(prefix: &str, thread: usize) -> PathBuf {
    let process = std::process::id();
    let name =
        if thread == 0 { format!("{prefix}.{process}") } else { format!("{prefix}.{process}.{thread}") };
    PathBuf::from(name)
}

fn unix_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

impl Log {
    pub(crate) fn new(file: File, form: Form) -> Log {
        Log { out: BufWriter::new(file), form, interval: (unix_us() / 1_000_000, Counts::default()) }
    }

    /// A disk that is full ends no measurement.
    pub(crate) fn note(&mut self, entry: &Entry) {
        let now_us = unix_us();
        let _ = match self.form.interval_s {
            Some(interval_s) => self.sum(entry, now_us / 1_000_000, interval_s),
            None => self.line(entry, now_us),
        };
    }

    fn line(&mut self, entry: &Entry, now_us: u64) -> std::io::Result<()> {
        let Entry { client, number, script, .. } = entry;
        let (seconds, micros) = (now_us / 1_000_000, now_us % 1_000_000);
        let failed = |name| if self.form.details_failures { name } else { "failed" };
        let latency = match entry.ended {
            Ended::Done => format!("{:.0}", entry.latency_us),
            Ended::Skipped => "skipped".to_owned(),
            Ended::Serialization => failed("serialization").to_owned(),
            Ended::Deadlock => failed("deadlock").to_owned(),
        };
        write!(self.out, "{client} {number} {latency} {script} {seconds} {micros}")?;
        if self.form.has_lag {
            write!(self.out, " {:.0}", entry.lag_us)?;
        }
        if self.form.has_retries {
            write!(self.out, " {}", entry.tries.saturating_sub(1))?;
        }
        writeln!(self.out)
    }

    fn sum(&mut self, entry: &Entry, now_s: u64, interval_s: u64) -> std::io::Result<()> {
        while self.interval.0 + interval_s <= now_s {
            self.end_interval()?;
            self.interval = (self.interval.0 + interval_s, Counts::default());
        }
        let counts = &mut self.interval.1;
        match entry.ended {
            Ended::Done => {
                counts.latency.add(entry.latency_us);
                if self.form.has_lag {
                    counts.lag.add(entry.lag_us);
                }
            }
            Ended::Skipped => counts.skipped += 1,
            Ended::Serialization => counts.serialization += 1,
            Ended::Deadlock => counts.deadlock += 1,
        }
        if entry.tries > 1 {
            counts.retried += 1;
            counts.retries += u64::from(entry.tries - 1);
        }
        Ok(())
    }

    fn end_interval(&mut self) -> std::io::Result<()> {
        let (start, counts) = &self.interval;
        let (latency, lag) = (&counts.latency, &counts.lag);
        let failures =
            if self.form.details_failures { (counts.serialization, counts.deadlock) } else { (0, 0) };
        writeln!(
            self.out,
            "{start} {} {:.0} {:.0} {:.0} {:.0} {:.0} {:.0} {:.0} {:.0} {} {} {} {} {}",
            latency.count,
            latency.sum,
            latency.squares,
            latency.least,
            latency.most,
            lag.sum,
            lag.squares,
            lag.least,
            lag.most,
            counts.skipped,
            counts.retried,
            counts.retries,
            failures.0,
            failures.1
        )
    }
}
