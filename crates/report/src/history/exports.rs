//! Histories in the formats of tools that keep or watch series: Otava, Bencher, github-action-benchmark, JUnit.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::{History, HistorySeries};
use crate::error::Error;
use crate::text::{metric_name, time_text};

/// A series' name for tools: `study.server.workload.s8.tps`, with more of its key where two would be alike.
fn names(history: &History) -> Vec<String> {
    let short = |series: &HistorySeries| {
        let part = |name: &str| series.key.get(name).map(crate::text::value_text);
        let sessions = part("sessions").map(|sessions| format!("s{sessions}"));
        let parts = [part("study"), part("server"), part("workload"), sessions, Some(series.metric.clone())];
        parts.into_iter().flatten().collect::<Vec<_>>().join(".")
    };
    let shorts: Vec<String> = history.series.iter().map(short).collect();
    let is_alone = |name: &String| shorts.iter().filter(|other| *other == name).count() == 1;
    let name = |(series, name): (&HistorySeries, &String)| {
        if is_alone(name) { name.clone() } else { format!("{name}.{}", series.id) }
    };
    history.series.iter().zip(&shorts).map(name).collect()
}

/// The table that Otava (Hunter) reads: `time`, `commit` (the build), and a column for each series; `nan` where one has
/// no point.
pub fn otava(history: &History) -> Result<String, Error> {
    let mut rows: BTreeMap<(i64, &str), BTreeMap<usize, f64>> = BTreeMap::new();
    for (at, series) in history.series.iter().enumerate() {
        for point in &series.points {
            rows.entry((point.at_ms, &point.build)).or_default().insert(at, point.value);
        }
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    let head = ["time".to_owned(), "commit".to_owned()].into_iter().chain(names(history));
    writer.write_record(head).map_err(of_csv)?;
    for ((at_ms, build), values) in rows {
        let time = time_text(at_ms).replace('T', " ").replace('Z', " +0000");
        let figures = (0..history.series.len())
            .map(|at| values.get(&at).map_or_else(|| "nan".to_owned(), |value| format!("{value}")));
        writer.write_record([time, build.to_owned()].into_iter().chain(figures)).map_err(of_csv)?;
    }
    let bytes = writer.into_inner().map_err(|error| of_csv(error.into_error().into()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn of_csv(source: csv::Error) -> Error {
    Error::Table(source.to_string())
}

/// The newest point of each series in Bencher Metric Format.
pub fn bencher(history: &History) -> Value {
    let mut benchmarks: Map<String, Value> = Map::new();
    for (series, name) in history.series.iter().zip(names(history)) {
        let Some(point) = series.points.last() else { continue };
        let benchmark = name.strip_suffix(&format!(".{}", series.metric)).unwrap_or(&name).to_owned();
        let measure = if series.metric == "tps" { "throughput" } else { &series.metric };
        let of_benchmark = benchmarks.entry(benchmark).or_insert_with(|| json!({}));
        of_benchmark[measure] =
            json!({"value": point.value, "lower_value": point.low, "upper_value": point.high});
    }
    Value::Object(benchmarks)
}

/// The newest point of each series as github-action-benchmark takes it: `customBiggerIsBetter` of throughput,
/// `customSmallerIsBetter` of response times.
///
/// # Errors
/// Series of both kinds, which one file cannot hold.
pub fn github_action(history: &History) -> Result<Value, Error> {
    let kinds: Vec<bool> = history.series.iter().map(HistorySeries::is_more_better).collect();
    if kinds.contains(&true) && kinds.contains(&false) {
        let text = "github-action-benchmark takes throughput and response times in files of their own: ask for one \
                    with --metric tps, and for the other with --metric p95";
        return Err(Error::Table(text.to_owned()));
    }
    let lines = history.series.iter().zip(names(history)).filter_map(|(series, name)| {
        let point = series.points.last()?;
        let unit = if series.is_more_better() { "1/s" } else { "ms" };
        let range = format!("{} to {}", point.low, point.high);
        Some(json!({"name": name, "unit": unit, "value": point.value, "range": range,
                    "extra": format!("{} on {}, {}", point.build, point.host, time_text(point.at_ms))}))
    });
    Ok(lines.collect())
}

/// A test for each series, which fails where a change for the worse is new.
pub fn junit(history: &History) -> String {
    let mut cases = String::new();
    let mut failures = 0;
    for (series, name) in history.series.iter().zip(names(history)) {
        let name = xml(&name);
        let worse: Vec<String> = series
            .changes
            .iter()
            .filter(|change| change.state == "new" && series.is_worse(change))
            .map(|found| {
                let (good, bad) = series.builds_around(found);
                format!(
                    "{} {:+.1} % ({:+.1} to {:+.1} %) from {} to {} (change {})",
                    metric_name(&series.metric),
                    100.0 * (found.change.ratio - 1.0),
                    100.0 * (found.change.low - 1.0),
                    100.0 * (found.change.high - 1.0),
                    good.build,
                    bad.build,
                    found.id
                )
            })
            .collect();
        let _ = match worse.is_empty() {
            true => writeln!(cases, "  <testcase classname=\"plimsoll.history\" name=\"{name}\"/>"),
            false => {
                failures += 1;
                let text = xml(&worse.join("; "));
                writeln!(
                    cases,
                    "  <testcase classname=\"plimsoll.history\" name=\"{name}\">\n    <failure message=\"{text}\"/>\n  </testcase>"
                )
            }
        };
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"plimsoll history\" tests=\"{}\" \
         failures=\"{failures}\" errors=\"0\">\n{cases}</testsuite>\n",
        history.series.len()
    )
}

/// Text within XML: escaped, and without the control characters that XML cannot hold.
pub(crate) fn xml(text: &str) -> String {
    let mut safe = String::new();
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\n' | '\t' => safe.push(' '),
            c if c.is_control() => {}
            c => safe.push(c),
        }
    }
    safe
}
