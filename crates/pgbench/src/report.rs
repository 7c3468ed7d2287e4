//! The report on standard output, in the form that parsers of pgbench's read.

use std::fmt::Write as _;

use pgscript::Script;
use workload::scripted::QueryMode;

use crate::figures::{CommandFigures, Counts, Figures};
use crate::options::Run;

/// What a report tells beside the figures.
pub(crate) struct Told<'a> {
    pub(crate) run: &'a Run,
    pub(crate) scripts: &'a [Script],
    pub(crate) weights: &'a [u64],
    pub(crate) scale: u64,
    /// Method and number of the partitions of accounts.
    pub(crate) partitions: Option<(String, u64)>,
    /// From the first transaction to the end of the last, in seconds.
    pub(crate) took_s: f64,
    /// Until all clients were connected, in seconds.
    pub(crate) connected_s: f64,
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn per_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}

/// The report.
pub(crate) fn report(told: &Told<'_>, figures: &Figures) -> String {
    let mut out = String::new();
    head(told, &mut out);
    let all = figures.all();
    transactions(told, &all, &mut out);
    if all.total() == 0 {
        return out;
    }
    times(told, &all, figures, &mut out);
    let are_several = told.scripts.len() > 1;
    if are_several || told.run.reports_commands {
        for (at, script) in told.scripts.iter().enumerate() {
            if are_several {
                of_script(told, at, &figures.scripts[at], &all, &mut out);
            }
            if told.run.reports_commands {
                commands(told, script, &figures.commands[at], are_several, &mut out);
            }
        }
    }
    out
}

/// Writes a line; writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($text:tt)*) => {
        let _ = writeln!($out, $($text)*);
    };
}

fn head(told: &Told<'_>, out: &mut String) {
    let run = told.run;
    let kind = match told.scripts {
        [only] => only.name.as_str(),
        _ => "multiple scripts",
    };
    line!(out, "transaction type: {kind}\nscaling factor: {}", told.scale);
    if let Some((method, count)) = &told.partitions {
        line!(out, "partition method: {method}\npartitions: {count}");
    }
    let mode = match run.mode {
        QueryMode::Simple => "simple",
        QueryMode::Extended => "extended",
        QueryMode::Prepared => "prepared",
    };
    line!(out, "query mode: {mode}\nnumber of clients: {}\nnumber of threads: {}", run.clients, run.threads);
    if run.tries_max > 0 {
        line!(out, "maximum number of tries: {}", run.tries_max);
    }
}

fn transactions(told: &Told<'_>, all: &Counts, out: &mut String) {
    let run = told.run;
    match run.duration_s {
        Some(duration) => {
            line!(out, "duration: {duration} s\nnumber of transactions actually processed: {}", all.done());
        }
        None => {
            line!(out, "number of transactions per client: {}", run.transactions);
            let wanted = run.transactions * u64::from(run.clients);
            line!(out, "number of transactions actually processed: {}/{wanted}", all.done());
        }
    }
    failures(told, all, "", out);
}

/// A count with its share of all transactions.
fn share(out: &mut String, indent: &str, name: &str, count: u64, total: u64) {
    line!(out, "{indent}number of {name}: {count} ({:.3}%)", percent(count, total));
}

/// What failed and what was tried again.
fn failures(told: &Told<'_>, counts: &Counts, indent: &str, out: &mut String) {
    let total = counts.total();
    share(out, indent, "failed transactions", counts.failed(), total);
    if told.run.details_failures {
        share(out, indent, "serialization failures", counts.serialization, total);
        share(out, indent, "deadlock failures", counts.deadlock, total);
    }
    if told.run.tries_max != 1 {
        share(out, indent, "transactions retried", counts.retried, total);
        line!(out, "{indent}total number of retries: {}", counts.retries);
    }
}

fn skipped(told: &Told<'_>, counts: &Counts, indent: &str, out: &mut String) {
    if told.run.rate_tps.is_some() && told.run.latency_limit_ms.is_some() {
        share(out, indent, "transactions skipped", counts.skipped, counts.total());
    }
}

fn times(told: &Told<'_>, all: &Counts, figures: &Figures, out: &mut String) {
    let run = told.run;
    skipped(told, all, "", out);
    if let Some(limit) = run.latency_limit_ms {
        let (late, done) = (all.late, all.done());
        let share = percent(late, done);
        line!(
            out,
            "number of transactions above the {limit:.1} ms latency limit: {late}/{done} ({share:.3}%)"
        );
    }
    let is_detailed = run.rate_tps.is_some() || run.latency_limit_ms.is_some() || run.progress_s.is_some();
    if is_detailed {
        latency(all, "", out);
    } else {
        let spent_ms = told.took_s * 1000.0 * f64::from(run.clients);
        let including = if all.failed() > 0 { " (including failures)" } else { "" };
        line!(out, "latency average = {:.3} ms{including}", spent_ms / all.total() as f64);
    }
    if run.rate_tps.is_some() {
        let (mean, most) = (all.lag.mean() / 1000.0, all.lag.most / 1000.0);
        line!(out, "rate limit schedule lag: avg {mean:.3} (max {most:.3}) ms");
    }
    let tps = per_second(all.done(), told.took_s);
    if run.is_reconnecting {
        line!(out, "average connection time = {:.3} ms", figures.connecting.mean() * 1000.0);
        line!(out, "tps = {tps:.6} (including reconnection times)");
    } else {
        line!(out, "initial connection time = {:.3} ms", told.connected_s * 1000.0);
        line!(out, "tps = {tps:.6} (without initial connection time)");
    }
}

fn latency(counts: &Counts, indent: &str, out: &mut String) {
    if counts.done() > 0 {
        line!(out, "{indent}latency average = {:.3} ms", counts.latency.mean() / 1000.0);
        line!(out, "{indent}latency stddev = {:.3} ms", counts.latency.deviation() / 1000.0);
    }
}

fn of_script(told: &Told<'_>, at: usize, counts: &Counts, all: &Counts, out: &mut String) {
    let weights: u64 = told.weights.iter().sum();
    let weight = told.weights[at];
    line!(out, "SQL script {}: {}", at + 1, told.scripts[at].name);
    line!(out, " - weight: {weight} (targets {:.1}% of total)", percent(weight, weights));
    let (share, tps) = (percent(counts.done(), all.done()), per_second(counts.done(), told.took_s));
    line!(out, " - {} transactions ({share:.1}% of total, tps = {tps:.6})", counts.done());
    failures(told, counts, " - ", out);
    skipped(told, counts, " - ", out);
    latency(counts, " - ", out);
}

fn commands(
    told: &Told<'_>,
    script: &Script,
    figures: &[CommandFigures],
    are_several: bool,
    out: &mut String,
) {
    let has_retries = told.run.tries_max != 1;
    let indent = if are_several { " - " } else { "" };
    let what = if has_retries { ", failures and retries" } else { " and failures" };
    line!(out, "{indent}statement latencies in milliseconds{what}:");
    for (command, figures) in script.commands.iter().zip(figures) {
        let ms = figures.took_s.mean() * 1000.0;
        let retries = if has_retries { format!("  {:10}", figures.retries) } else { String::new() };
        line!(out, "   {ms:11.3}  {:10}{retries}  {}", figures.failures, command.line);
    }
}
