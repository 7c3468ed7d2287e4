//! The report as CSV files, one for each kind of row: for spreadsheets, R and pandas. Every row names its run.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::Error;
use crate::estimate::Estimate;
use crate::figures::{Latency, StepFigures};
use crate::model::{Point, Report, RunView, StudyReport, VerdictView};
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

    /// With these columns behind those that say where a row belongs.
    fn of<T>(name: &'static str, place: &[&str], columns: &[Column<T>]) -> Self {
        Self::new(name, &[place, &heads(columns).collect::<Vec<_>>()].concat())
    }

    fn push<T>(&mut self, place: &[String], columns: &[Column<T>], of: &T) {
        self.rows.push(place.iter().cloned().chain(values(columns, of)).collect());
    }
}

/// A column: its head, and what stands in it.
type Column<T> = (&'static str, fn(&T) -> String);

fn heads<T>(columns: &[Column<T>]) -> impl Iterator<Item = &'static str> {
    columns.iter().map(|(head, _)| *head)
}

fn values<T>(columns: &[Column<T>], of: &T) -> impl Iterator<Item = String> {
    columns.iter().map(move |(_, column)| column(of))
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

const OF_PROBE: [Column<store::LineProbe>; 11] = [
    ("purpose", |probe| probe.purpose.clone()),
    ("rate", |probe| text(probe.rate)),
    ("sessions", |probe| text(probe.sessions)),
    ("tps", |probe| text(probe.tps)),
    ("seconds", |probe| text(probe.seconds)),
    ("p50_ms", |probe| maybe(probe.p50_ms)),
    ("p95_ms", |probe| maybe(probe.p95_ms)),
    ("p99_ms", |probe| maybe(probe.p99_ms)),
    ("overloaded", |probe| text(probe.is_overloaded)),
    ("limited_by", |probe| probe.limited_by.clone().unwrap_or_default()),
    ("error", |probe| probe.error.clone().unwrap_or_default()),
];

/// A line that was found, with the highest throughput of the climb before: rate and sessions.
type FoundLine<'a> = (&'a RunView, &'a store::Line, Option<(f64, u32)>);

/// Load lines and the rates that were tried, by run: only where there were searches.
fn lines(report: &Report) -> [Table; 2] {
    let of_line: &[Column<FoundLine<'_>>] = &[
        ("standing", |(run, ..)| run.standing.word().to_owned()),
        ("promise", |(_, line, _)| line.promise.clone()),
        ("line_tps", |(_, line, _)| maybe(line.line_tps)),
        ("low", |(_, line, _)| maybe(line.low)),
        ("high", |(_, line, _)| maybe(line.high)),
        ("peak_tps", |(.., peak)| maybe(peak.map(|peak| peak.0))),
        ("peak_sessions", |(.., peak)| maybe(peak.map(|peak| peak.1))),
        ("ended_by", |(_, line, _)| line.ended_by.clone()),
        ("held", |(_, line, _)| maybe(line.hold.map(|hold| hold.held))),
        ("held_s", |(_, line, _)| maybe(line.hold.map(|hold| hold.seconds))),
        ("warnings", |(_, line, _)| line.warnings.join("; ")),
    ];
    let mut lines = Table::of("lines.csv", &["study", "cell", "run"], of_line);
    let mut probes = Table::of("probes.csv", &["study", "cell", "run"], &OF_PROBE);
    for (study, point) in points(report) {
        for run in point.runs.iter().filter_map(|(run, _)| study.runs.get(*run)) {
            let Some(search) = &run.line else { continue };
            let place = [study.name.clone(), point.id.clone(), run.id.clone()];
            let peak = search.climb().map(|climb| (climb.rate, climb.sessions));
            for line in search.found.iter().flat_map(|found| &found.lines) {
                lines.push(&place, of_line, &(run, line, peak));
            }
            search.tried().iter().for_each(|probe| probes.push(&place, &OF_PROBE, probe));
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

const OF_STEP: [Column<StepFigures>; 27] = [
    ("duration_s", |step| text(step.duration_s)),
    ("rate_tps", |step| maybe(step.rate_tps)),
    ("tps", |step| text(step.tps)),
    ("tps_max", |step| text(step.tps_max)),
    ("tps_min", |step| text(step.tps_min)),
    ("qps", |step| text(step.qps)),
    ("reads", |step| text(step.reads)),
    ("writes", |step| text(step.writes)),
    ("other", |step| text(step.other)),
    ("retries", |step| text(step.retries)),
    ("in_flight_at_end", |step| text(step.in_flight_at_end)),
    ("backlog_at_end", |step| text(step.backlog_at_end)),
    ("stalled_s", |step| maybe(step.stalls.map(|stalls| stalls.seconds))),
    ("freeze_s", |step| maybe(step.stalls.map(|stalls| stalls.longest_s))),
    ("committed", |step| text(step.outcomes.committed)),
    ("rolled_back", |step| text(step.outcomes.rolled_back)),
    ("deadlock", |step| text(step.outcomes.deadlock)),
    ("serialization", |step| text(step.outcomes.serialization)),
    ("lock_timeout", |step| text(step.outcomes.lock_timeout)),
    ("constraint", |step| text(step.outcomes.constraint)),
    ("connection", |step| text(step.outcomes.connection)),
    ("other_failed", |step| text(step.outcomes.other)),
    ("skipped", |step| text(step.outcomes.skipped)),
    ("client_workers", |step| text(step.client.workers)),
    ("client_cpu_user_s", |step| text(step.client.cpu_user_s)),
    ("client_cpu_sys_s", |step| text(step.client.cpu_sys_s)),
    ("client_cpu_share", |step| text(step.client.cpu_share)),
];

fn runs(report: &Report) -> Table {
    // What a run says, at a load level, apart from its figures.
    let of_run: &[Column<(&RunView, u32)>] = &[
        ("standing", |(run, level)| run.standing_at(*level).word().to_owned()),
        ("status", |(run, _)| run.head.status.as_str().to_owned()),
        ("error", |(run, _)| run.head.error.clone().unwrap_or_default()),
        ("block", |(run, _)| text(run.head.start.block)),
        ("repeat", |(run, _)| text(run.head.start.repeat)),
        ("position", |(run, _)| text(run.head.start.position)),
        ("attempt", |(run, _)| text(run.head.attempt)),
        ("started_at", |(run, _)| time_text(run.head.start.started_at_ms)),
        ("seed", |(run, _)| text(run.head.start.seed)),
        ("build", |(run, _)| maybe(run.build.as_ref().map(|build| &build.identity))),
        ("boot_id", |(run, _)| run.boot_id.clone()),
    ];
    let names = key_names(report);
    let mut table = Table::new("runs.csv", &["study", "cell", "run"]);
    table.heads.extend(names.iter().cloned());
    table.heads.push("sessions".to_owned());
    table.heads.extend(heads(of_run).chain(heads(&OF_STEP)).map(str::to_owned));
    table.heads.extend(LATENCY.map(|name| format!("latency_{name}_ms")));
    table.heads.extend(LATENCY.map(|name| format!("service_{name}_ms")));
    table.heads.push("absent".to_owned());
    for (study, point) in points(report) {
        for (run, step) in &point.runs {
            let run = &study.runs[*run];
            let mut row = vec![study.name.clone(), point.id.clone(), run.id.clone()];
            row.extend(key_values(point, &names));
            row.push(text(point.sessions));
            row.extend(values(of_run, &(run, point.sessions)));
            match step.and_then(|step| run.steps.get(step)) {
                Some(step) => {
                    row.extend(values(&OF_STEP, step));
                    row.extend(latency(step.response).chain(latency(step.service)));
                    let absent = step.response.map(|latency| latency.absent()).unwrap_or_default();
                    let absent = absent.into_iter().map(|(name, why)| format!("{name} {why}"));
                    row.push(absent.collect::<Vec<_>>().join("; "));
                }
                None => row.resize(table.heads.len(), String::new()),
            }
            table.rows.push(row);
        }
    }
    table
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
    let columns: &[Column<(&StudyReport, &VerdictView)>] = &[
        ("study", |(study, _)| study.name.clone()),
        ("metric", |(_, verdict)| verdict.metric.clone()),
        ("axis", |(_, verdict)| verdict.axis.clone()),
        ("base", |(_, verdict)| verdict.base_label.clone()),
        ("other", |(_, verdict)| verdict.other_label.clone()),
        ("on", |(_, verdict)| verdict.at.clone()),
        ("sessions", |(study, verdict)| match &verdict.climb {
            Some(_) => "climb".to_owned(),
            None => text(study.points[verdict.other].sessions),
        }),
        ("base_cell", |(study, verdict)| study.points[verdict.base].id.clone()),
        ("other_cell", |(study, verdict)| study.points[verdict.other].id.clone()),
        ("n", |(_, verdict)| text(verdict.result.n)),
        ("margin", |(_, verdict)| text(verdict.margin)),
        ("ratio", |(_, verdict)| maybe(verdict.result.ratio)),
        ("low", |(_, verdict)| maybe(verdict.result.low)),
        ("high", |(_, verdict)| maybe(verdict.result.high)),
        ("confidence", |(_, verdict)| maybe(verdict.result.confidence)),
        ("p", |(_, verdict)| maybe(verdict.result.p)),
        ("p_adjusted", |(_, verdict)| maybe(verdict.result.p_adjusted)),
        ("verdict", |(_, verdict)| verdict.result.verdict.word().to_owned()),
        ("blocks_needed_low", |(_, verdict)| maybe(verdict.result.blocks_needed.map(|blocks| blocks[0]))),
        ("blocks_needed", |(_, verdict)| maybe(verdict.result.blocks_needed.map(|blocks| blocks[1]))),
        ("blocks_needed_high", |(_, verdict)| maybe(verdict.result.blocks_needed.map(|blocks| blocks[2]))),
        ("method", |(_, verdict)| verdict.result.method.word().to_owned()),
        ("unequal", |(_, verdict)| verdict.flags.join("; ")),
        ("in_doubt", |(_, verdict)| verdict.doubts.join("; ")),
        ("marks", |(_, verdict)| verdict.marks.join("; ")),
        ("lost", |(_, verdict)| verdict.lost_text().unwrap_or_default()),
        ("absent", |(_, verdict)| verdict.absent.join("; ")),
    ];
    let mut table = Table::of("verdicts.csv", &[], columns);
    for study in &report.studies {
        study.verdicts.iter().for_each(|verdict| table.push(&[], columns, &(study, verdict)));
    }
    table
}

/// Settings, telemetry, locks and gates, by run.
fn run_facts(report: &Report) -> [Table; 4] {
    let mut settings = Table::new("settings.csv", &["study", "run", "name", "value", "asked"]);
    let mut telemetry =
        Table::new("telemetry.csv", &["study", "run", "source", "name", "instance", "unit", "at_s", "value"]);
    let mut gates = Table::of("gates.csv", &["study", "run"], &OF_GATE);
    let mut locks = Table::of("hot_locks.csv", &["study", "run"], &OF_LOCK);
    for study in &report.studies {
        for run in &study.runs {
            let Some(end) = &run.end else { continue };
            let place = [study.name.clone(), run.id.clone()];
            for (name, value) in &end.server.settings {
                let mut row = place.to_vec();
                row.extend([name.clone(), value.clone(), maybe(end.server.settings_asked.get(name))]);
                settings.rows.push(row);
            }
            for series in &end.series {
                for (at, value) in &series.points {
                    let mut row = place.to_vec();
                    row.extend(
                        [&series.source, &series.name, &series.instance, &series.unit].map(Clone::clone),
                    );
                    row.extend([text(at), text(value)]);
                    telemetry.rows.push(row);
                }
            }
            end.gates.iter().for_each(|gate| gates.push(&place, &OF_GATE, gate));
            end.hot_locks.iter().for_each(|lock| locks.push(&place, &OF_LOCK, lock));
        }
    }
    [settings, telemetry, locks, gates]
}

/// A gate of a run: what is empty under `sessions` speaks about all levels of the run.
const OF_GATE: [Column<store::Gate>; 7] = [
    ("sessions", |gate| maybe(gate.level)),
    ("gate", |gate| gate.name.clone()),
    ("kind", |gate| gate.kind().as_str().to_owned()),
    ("finding", |gate| gate.finding.as_str().to_owned()),
    ("allowed", |gate| text(gate.is_allowed)),
    ("detail", |gate| gate.detail.clone()),
    ("remedy", |gate| gate.remedy.clone()),
];

const OF_LOCK: [Column<store::HotLock>; 9] = [
    ("sessions", |lock| text(lock.sessions)),
    ("source", |lock| serde_json::to_value(lock.source).map(|value| value_text(&value)).unwrap_or_default()),
    ("lock", |lock| lock.lock.clone()),
    ("caller", |lock| lock.caller.clone()),
    ("count", |lock| maybe(lock.count)),
    ("wait_total_s", |lock| text(lock.wait_total_s)),
    ("wait_low_s", |lock| maybe(lock.wait_interval_s.map(|interval| interval.0))),
    ("wait_high_s", |lock| maybe(lock.wait_interval_s.map(|interval| interval.1))),
    ("observed_s", |lock| text(lock.observed_s)),
];

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
