//! The report as CSV files, one for each kind of row: for spreadsheets, R and pandas. Every row names its run.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::error::Error;
use crate::estimate::Estimate;
use crate::figures::Latency;
use crate::model::{Point, Report, RunView, StudyReport};
use crate::text::{time_text, value_text};

/// A file in the making.
struct Table {
    name: &'static str,
    heads: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(name: &'static str, heads: &[&str]) -> Self {
        Self { name, heads: heads.iter().map(|head| (*head).to_owned()).collect(), rows: vec![] }
    }
}

/// Writes `cells.csv`, `runs.csv`, `intervals.csv`, `statements.csv`, `errors.csv`, `verdicts.csv`, `settings.csv`,
/// `telemetry.csv`, `hot_locks.csv` and `gates.csv`, of searches `lines.csv` and `probes.csv`, into `directory`, which is created where it is missing.
pub fn write_csv(report: &Report, directory: &Path) -> Result<(), Error> {
    let failed = |path: &Path, source: std::io::Error| Error::Write { path: path.to_owned(), source };
    std::fs::create_dir_all(directory).map_err(|source| failed(directory, source))?;
    for table in tables(report) {
        let path = directory.join(table.name);
        let bytes = to_bytes(&table).map_err(|source| failed(&path, source))?;
        crate::write_file(&path, &bytes).map_err(|source| failed(&path, source))?;
    }
    Ok(())
}

fn to_bytes(table: &Table) -> std::io::Result<Vec<u8>> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&table.heads)?;
    for row in &table.rows {
        writer.write_record(row.iter().map(|value| harmless(value)))?;
    }
    writer.into_inner().map_err(|error| error.into_error())
}

/// A text that a spreadsheet would take for a formula gets an apostrophe in front, which makes it a text again. Numbers
/// stay as they are.
fn harmless(value: &str) -> String {
    let is_formula = value.starts_with(['=', '+', '-', '@', '\t', '\r']) && value.parse::<f64>().is_err();
    if is_formula { format!("'{value}") } else { value.to_owned() }
}

fn tables(report: &Report) -> Vec<Table> {
    let mut tables = vec![cells(report), runs(report)];
    tables.extend(details(report));
    tables.push(verdicts(report));
    tables.extend(run_facts(report));
    tables.extend(lines(report).into_iter().filter(|table| !table.rows.is_empty()));
    tables
}

/// Load lines and the rates that were tried, by run: only where there were searches.
fn lines(report: &Report) -> [Table; 2] {
    let mut lines = Table::new(
        "lines.csv",
        &[
            "study",
            "cell",
            "run",
            "standing",
            "promise",
            "line_tps",
            "low",
            "high",
            "peak_tps",
            "peak_sessions",
            "ended_by",
            "held",
            "held_s",
            "warnings",
        ],
    );
    let mut probes = Table::new(
        "probes.csv",
        &[
            "study",
            "cell",
            "run",
            "purpose",
            "rate",
            "sessions",
            "tps",
            "seconds",
            "p50_ms",
            "p95_ms",
            "p99_ms",
            "overloaded",
            "limited_by",
            "error",
        ],
    );
    for (study, point) in points(report) {
        for run in point.runs.iter().filter_map(|(run, _)| study.runs.get(*run)) {
            let Some(search) = &run.line else { continue };
            let place = [study.name.clone(), point.id.clone(), run.id.clone()];
            let climb = search.climb();
            for line in search.found.iter().flat_map(|found| &found.lines) {
                let mut row = place.to_vec();
                row.extend([run.standing.word().to_owned(), line.promise.clone()]);
                row.extend([line.line_tps, line.low, line.high, climb.map(|climb| climb.rate)].map(maybe));
                row.extend([maybe(climb.map(|climb| climb.sessions)), line.ended_by.clone()]);
                row.extend([
                    maybe(line.hold.map(|hold| hold.held)),
                    maybe(line.hold.map(|hold| hold.seconds)),
                ]);
                row.push(line.warnings.join("; "));
                lines.rows.push(row);
            }
            for probe in search.tried() {
                let mut row = place.to_vec();
                row.extend([probe.purpose.clone(), text(probe.rate), text(probe.sessions)]);
                row.extend([text(probe.tps), text(probe.seconds)]);
                row.extend([probe.p50_ms, probe.p95_ms, probe.p99_ms].map(maybe));
                row.extend([text(probe.is_overloaded), probe.limited_by.clone().unwrap_or_default()]);
                row.push(probe.error.clone().unwrap_or_default());
                probes.rows.push(row);
            }
        }
    }
    [lines, probes]
}

fn text(value: impl ToString) -> String {
    value.to_string()
}

fn maybe<T: ToString>(value: Option<T>) -> String {
    value.map(text).unwrap_or_default()
}

/// Columns for every name of any key, without those that have one of their own.
fn key_names(report: &Report) -> Vec<String> {
    let points = report.studies.iter().flat_map(|study| &study.points);
    let names: BTreeSet<&String> = points.flat_map(|point| point.key.keys()).collect();
    names.into_iter().filter(|name| !["study", "sessions"].contains(&name.as_str())).cloned().collect()
}

fn key_values(point: &Point, names: &[String]) -> impl Iterator<Item = String> {
    names
        .iter()
        .map(|name| point.key.get(name).map(value_text).unwrap_or_default())
        .collect::<Vec<_>>()
        .into_iter()
}

fn cells(report: &Report) -> Table {
    let names = key_names(report);
    let mut table = Table::new("cells.csv", &["study", "cell"]);
    table.heads.extend(names.iter().cloned());
    table.heads.push("sessions".to_owned());
    table.heads.extend(["runs_counted", "marks", "short_term", "freeze_s", "absent"].map(str::to_owned));
    for metric in ["tps", "tps_max", "tps_min", "qps", "mean_ms", "p50_ms", "p95_ms", "p99_ms"] {
        table.heads.extend(["median", "low", "high"].map(|part| format!("{metric}_{part}")));
    }
    for (study, point) in points(report) {
        let mut row = vec![study.name.clone(), point.id.clone()];
        row.extend(key_values(point, &names));
        row.push(text(point.sessions));
        row.push(text(study.counted(point).count()));
        row.push(study.marks(point).iter().map(crate::Mark::text).collect::<Vec<_>>().join("; "));
        row.push(text(study.is_short_term(point)));
        row.push(maybe(point.freeze_s));
        let absent = ["p50", "p95", "p99"].into_iter();
        let absent = absent.filter_map(|name| Some(format!("{name} {}", study.why_absent(point, name)?)));
        row.push(absent.collect::<Vec<_>>().join("; "));
        let estimates: [Option<Estimate>; 8] = [
            point.tps,
            point.tps_max,
            point.tps_min,
            point.qps,
            point.mean_ms,
            point.p50_ms,
            point.p95_ms,
            point.p99_ms,
        ];
        for estimate in estimates {
            row.extend([
                maybe(estimate.map(|e| e.median)),
                maybe(estimate.map(|e| e.low)),
                maybe(estimate.map(|e| e.high)),
            ]);
        }
        table.rows.push(row);
    }
    table
}

fn points(report: &Report) -> impl Iterator<Item = (&StudyReport, &Point)> {
    report.studies.iter().flat_map(|study| study.points.iter().map(move |point| (study, point)))
}

const LATENCY: [&str; 8] = ["min", "mean", "p50", "p90", "p95", "p99", "p999", "max"];

fn latency(latency: Option<Latency>) -> impl Iterator<Item = String> {
    LATENCY.into_iter().map(move |name| maybe(latency.and_then(|latency| latency.by_name(name))))
}

fn runs(report: &Report) -> Table {
    let names = key_names(report);
    let mut table = Table::new("runs.csv", &["study", "cell", "run"]);
    table.heads.extend(names.iter().cloned());
    let plain = [
        "sessions",
        "standing",
        "status",
        "error",
        "block",
        "repeat",
        "position",
        "attempt",
        "started_at",
        "seed",
        "build",
        "boot_id",
        "duration_s",
        "rate_tps",
        "tps",
        "tps_max",
        "tps_min",
        "qps",
        "reads",
        "writes",
        "other",
        "retries",
        "in_flight_at_end",
        "backlog_at_end",
        "stalled_s",
        "freeze_s",
        "committed",
        "rolled_back",
        "deadlock",
        "serialization",
        "lock_timeout",
        "constraint",
        "connection",
        "other_failed",
        "skipped",
        "client_workers",
        "client_cpu_user_s",
        "client_cpu_sys_s",
        "client_cpu_share",
    ];
    table.heads.extend(plain.map(str::to_owned));
    table.heads.extend(LATENCY.map(|name| format!("latency_{name}_ms")));
    table.heads.extend(LATENCY.map(|name| format!("service_{name}_ms")));
    table.heads.push("absent".to_owned());
    for (study, point) in points(report) {
        for (run, step) in &point.runs {
            let run = &study.runs[*run];
            let mut row = vec![study.name.clone(), point.id.clone(), run.id.clone()];
            row.extend(key_values(point, &names));
            row.push(text(point.sessions));
            row.extend(run_columns(run, point.sessions));
            match step.and_then(|step| run.steps.get(step)) {
                Some(step) => row.extend(step_columns(step)),
                None => row.resize(table.heads.len(), String::new()),
            }
            table.rows.push(row);
        }
    }
    table
}

fn run_columns(run: &RunView, level: u32) -> Vec<String> {
    let start = &run.head.start;
    vec![
        run.standing_at(level).word().to_owned(),
        run.head.status.as_str().to_owned(),
        run.head.error.clone().unwrap_or_default(),
        text(start.block),
        text(start.repeat),
        text(start.position),
        text(run.head.attempt),
        time_text(start.started_at_ms),
        text(start.seed),
        maybe(run.build.as_ref().map(|build| &build.identity)),
        run.boot_id.clone(),
    ]
}

fn step_columns(step: &crate::StepFigures) -> Vec<String> {
    let outcomes = &step.outcomes;
    let mut row = vec![
        text(step.duration_s),
        maybe(step.rate_tps),
        text(step.tps),
        text(step.tps_max),
        text(step.tps_min),
        text(step.qps),
    ];
    row.extend(
        [step.reads, step.writes, step.other, step.retries, step.in_flight_at_end, step.backlog_at_end]
            .map(text),
    );
    row.extend([maybe(step.stalls.map(|s| s.seconds)), maybe(step.stalls.map(|s| s.longest_s))]);
    row.extend(
        [
            outcomes.committed,
            outcomes.rolled_back,
            outcomes.deadlock,
            outcomes.serialization,
            outcomes.lock_timeout,
            outcomes.constraint,
            outcomes.connection,
            outcomes.other,
            outcomes.skipped,
        ]
        .map(text),
    );
    row.push(text(step.client.workers));
    row.extend([step.client.cpu_user_s, step.client.cpu_sys_s, step.client.cpu_share].map(text));
    row.extend(latency(step.response));
    row.extend(latency(step.service));
    let absent = step.response.map(|latency| latency.absent()).unwrap_or_default();
    row.push(absent.into_iter().map(|(name, why)| format!("{name} {why}")).collect::<Vec<_>>().join("; "));
    row
}

/// Seconds, statements and errors.
fn details(report: &Report) -> [Table; 3] {
    let heads = ["study", "cell", "run", "sessions"];
    let with = |name: &'static str, more: &[&str]| Table::new(name, &[heads.as_slice(), more].concat());
    let mut intervals = with(
        "intervals.csv",
        &["second", "duration_s", "tps", "qps", "p50_ms", "p95_ms", "p99_ms", "max_ms", "errors", "backlog"],
    );
    let mut statements = with("statements.csv", &["statement", "count"]);
    statements.heads.extend(LATENCY.map(|name| format!("latency_{name}_ms")));
    let mut errors = with("errors.csv", &["code", "count", "text"]);
    for (study, point) in points(report) {
        for (run, step) in study.measured(point) {
            let place = [study.name.clone(), point.id.clone(), run.id.clone(), text(point.sessions)];
            for i in &step.intervals {
                let mut row = place.to_vec();
                row.extend([text(i.second), text(i.duration_s), text(i.tps), text(i.qps)]);
                row.extend(["p50", "p95", "p99"].map(|name| maybe(i.percentile(name))));
                row.push(maybe(i.latency.map(|latency| latency.max)));
                row.extend([text(i.errors), text(i.backlog)]);
                intervals.rows.push(row);
            }
            for statement in &step.by_statement {
                let mut row = place.to_vec();
                row.extend([statement.name.clone(), text(statement.count)]);
                row.extend(latency(statement.latency));
                statements.rows.push(row);
            }
            for (code, tally) in &step.errors {
                let mut row = place.to_vec();
                row.extend([code.clone(), text(tally.count), tally.text.clone()]);
                errors.rows.push(row);
            }
        }
    }
    [intervals, statements, errors]
}

fn verdicts(report: &Report) -> Table {
    let mut table = Table::new(
        "verdicts.csv",
        &[
            "study",
            "metric",
            "axis",
            "base",
            "other",
            "on",
            "sessions",
            "base_cell",
            "other_cell",
            "n",
            "margin",
            "ratio",
            "low",
            "high",
            "confidence",
            "p",
            "p_adjusted",
            "verdict",
            "blocks_needed_low",
            "blocks_needed",
            "blocks_needed_high",
            "method",
            "unequal",
            "in_doubt",
            "marks",
            "lost",
            "absent",
        ],
    );
    for study in &report.studies {
        for verdict in &study.verdicts {
            let result = &verdict.result;
            let sessions = match &verdict.climb {
                Some(_) => Value::from("climb"),
                None => Value::from(study.points[verdict.other].sessions),
            };
            table.rows.push(vec![
                study.name.clone(),
                verdict.metric.clone(),
                verdict.axis.clone(),
                verdict.base_label.clone(),
                verdict.other_label.clone(),
                verdict.at.clone(),
                value_text(&sessions),
                study.points[verdict.base].id.clone(),
                study.points[verdict.other].id.clone(),
                text(result.n),
                text(verdict.margin),
                maybe(result.ratio),
                maybe(result.low),
                maybe(result.high),
                maybe(result.confidence),
                maybe(result.p),
                maybe(result.p_adjusted),
                result.verdict.word().to_owned(),
                maybe(result.blocks_needed.map(|blocks| blocks[0])),
                maybe(result.blocks_needed.map(|blocks| blocks[1])),
                maybe(result.blocks_needed.map(|blocks| blocks[2])),
                result.method.word().to_owned(),
                verdict.flags.join("; "),
                verdict.doubts.join("; "),
                verdict.marks.join("; "),
                verdict.lost_text().unwrap_or_default(),
                verdict.absent.join("; "),
            ]);
        }
    }
    table
}

/// Settings, telemetry, locks and gates, by run.
fn run_facts(report: &Report) -> [Table; 4] {
    let mut settings = Table::new("settings.csv", &["study", "run", "name", "value", "asked"]);
    let mut telemetry =
        Table::new("telemetry.csv", &["study", "run", "source", "name", "instance", "unit", "at_s", "value"]);
    let mut gates = Table::new(
        "gates.csv",
        &["study", "run", "sessions", "gate", "kind", "finding", "allowed", "detail", "remedy"],
    );
    let mut locks = Table::new(
        "hot_locks.csv",
        &[
            "study",
            "run",
            "sessions",
            "source",
            "lock",
            "caller",
            "count",
            "wait_total_s",
            "wait_low_s",
            "wait_high_s",
            "observed_s",
        ],
    );
    for study in &report.studies {
        for run in &study.runs {
            let Some(end) = &run.end else { continue };
            let place = || vec![study.name.clone(), run.id.clone()];
            for (name, value) in &end.server.settings {
                let mut row = place();
                row.extend([name.clone(), value.clone(), maybe(end.server.settings_asked.get(name))]);
                settings.rows.push(row);
            }
            for series in &end.series {
                for (at, value) in &series.points {
                    let mut row = place();
                    row.extend(
                        [&series.source, &series.name, &series.instance, &series.unit].map(Clone::clone),
                    );
                    row.extend([text(at), text(value)]);
                    telemetry.rows.push(row);
                }
            }
            for gate in &end.gates {
                let mut row = place();
                row.extend(gate_columns(gate));
                gates.rows.push(row);
            }
            for lock in &end.hot_locks {
                let mut row = place();
                let source =
                    serde_json::to_value(lock.source).map(|value| value_text(&value)).unwrap_or_default();
                row.extend([
                    text(lock.sessions),
                    source,
                    lock.lock.clone(),
                    lock.caller.clone(),
                    maybe(lock.count),
                ]);
                let (low, high) = lock.wait_interval_s.unzip();
                row.extend([text(lock.wait_total_s), maybe(low), maybe(high), text(lock.observed_s)]);
                locks.rows.push(row);
            }
        }
    }
    [settings, telemetry, locks, gates]
}

/// A gate of a run: what is empty under `sessions` speaks about all levels of the run.
fn gate_columns(gate: &store::Gate) -> [String; 7] {
    [
        maybe(gate.level),
        gate.name.clone(),
        gate.kind().as_str().to_owned(),
        gate.finding.as_str().to_owned(),
        text(gate.is_allowed),
        gate.detail.clone(),
        gate.remedy.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn texts_are_no_formulas_and_numbers_stay_numbers() {
        assert_eq!(harmless("=cmd|' /C calc'!A0"), "'=cmd|' /C calc'!A0");
        assert_eq!(["@x", "+x", "-x"].map(harmless), ["'@x", "'+x", "'-x"]);
        assert_eq!(["-1.5", "+3", "-1e9", "oltp", ""].map(harmless), ["-1.5", "+3", "-1e9", "oltp", ""]);
    }
}
