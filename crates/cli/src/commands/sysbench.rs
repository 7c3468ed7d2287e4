//! `plimsoll sysbench`: the script room's command line, and what it gives beyond sysbench's output.

use std::path::Path;

use load::{Histogram, StepResult};
use script::Finished;
use serde_json::{Value, json};

use crate::commands::hdr::HdrLog;
use crate::commands::{sink, stop_on_signals};
use crate::exit::{End, Failure, output};

pub(crate) fn sysbench(arguments: &[String]) -> Result<End, Failure> {
    let stop = stop_on_signals()?;
    // What failed has been told, in sysbench's form.
    let outcome = script::run(arguments, &mut std::io::stdout(), stop.load());
    if let Some(finished) = &outcome.result {
        keep(finished)?;
    }
    Ok(if outcome.exit_code == 0 { End::Done } else { End::RunFailed })
}

/// `--json` and `--hdr`.
fn keep(finished: &Finished) -> Result<(), Failure> {
    let file = |name: &str| finished.options.get(name).filter(|path| !path.is_empty());
    if let Some(path) = file("json") {
        let mut out = sink(Path::new(path))?;
        writeln!(out, "{}", as_json(finished)).and_then(|()| out.flush()).map_err(output)?;
    }
    if let Some(path) = file("hdr") {
        let mut log = HdrLog::create(Path::new(path))?;
        log.add(&finished.load)?;
        log.finish()?;
    }
    Ok(())
}

/// One object for the run; latencies are milliseconds, times seconds.
fn as_json(finished: &Finished) -> Value {
    let Some(step) = finished.load.steps.last() else { return Value::Null };
    let intervals: Vec<Value> = step
        .intervals
        .iter()
        .filter(|interval| interval.second >= 1)
        .map(|interval| {
            json!({
                "second": interval.second,
                "events": interval.outcomes.committed + interval.outcomes.rolled_back,
                "reads": interval.reads,
                "writes": interval.writes,
                "other": interval.other,
                "errors": interval.retries + interval.outcomes.failed(),
                "backlog": interval.backlog,
                "latency_ms": latency(&interval.latency.response),
            })
        })
        .collect();
    let errors: serde_json::Map<String, Value> = step
        .errors
        .iter()
        .map(|(code, tally)| (code.clone(), json!({"count": tally.count, "text": tally.text})))
        .collect();
    json!({
        "test": finished.test,
        "native": finished.is_native,
        "seed": finished.seed,
        "options": finished.options,
        "sessions": step.sessions,
        "duration_s": step.duration_s,
        "events": step.outcomes.committed + step.outcomes.rolled_back,
        "reads": step.reads,
        "writes": step.writes,
        "other": step.other,
        "statements": step.reads + step.writes + step.other,
        "latency_ms": latency(&step.latency.response),
        "service_ms": step.latency.service.as_ref().map(latency),
        "errors": errors,
        "client": client(step),
        "intervals": intervals,
    })
}

fn client(step: &StepResult) -> Value {
    let client = &step.client;
    json!({
        "workers": client.workers,
        "cpu_user_s": client.cpu_user_s,
        "cpu_sys_s": client.cpu_sys_s,
        "cpu_share": client.cpu_share,
        "bound": client.is_bound,
    })
}

fn latency(histogram: &Histogram) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let ms = |ns: u64| ns as f64 / 1e6;
    json!({
        "min": ms(histogram.min_ns()),
        "mean": histogram.mean_ms(),
        "p50": histogram.quantile_ms(0.5),
        "p90": histogram.quantile_ms(0.9),
        "p95": histogram.quantile_ms(0.95),
        "p99": histogram.quantile_ms(0.99),
        "p999": histogram.quantile_ms(0.999),
        "max": ms(histogram.max_ns()),
    })
}
