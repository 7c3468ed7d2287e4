//! Tables beside throughput: statements, errors, cost, locks, devices, durability.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::pairs;
use crate::derived;
use crate::load::label_or;
use crate::model::{Point, Report, StudyReport};
use crate::order::distinct;
use crate::text::{metric_name, number, percent, thousands, time_text};

/// Errors by code over all runs of a point, retried ones included.
pub(super) fn errors(study: &StudyReport) -> Vec<Value> {
    let mut rows = Vec::new();
    for point in &study.points {
        let mut by_code: BTreeMap<&str, (u64, &str, Vec<&str>)> = BTreeMap::new();
        for (run, step) in study.measured(point) {
            for (code, tally) in &step.errors {
                let entry = by_code.entry(code).or_insert((0, &tally.text, vec![]));
                entry.0 += tally.count;
                entry.2.push(&run.id);
            }
        }
        for (code, (count, text, runs)) in by_code {
            rows.push(
                json!({"cell": point.id, "label": point.label, "sessions": point.sessions, "code": code,
                             "count": thousands(count as f64), "text": text, "runs": runs}),
            );
        }
    }
    rows
}

/// Medians over the counted runs, by statement class.
pub(super) fn statements(study: &StudyReport) -> Vec<Value> {
    let mut tables = Vec::new();
    for point in &study.points {
        let text = |value: Option<f64>| value.map(number);
        let row = |class: derived::StatementClass| {
            json!({"name": class.name, "rate": text(class.per_second), "mean": text(class.mean_ms),
                   "p50": text(class.p50_ms), "p95": text(class.p95_ms), "p99": text(class.p99_ms),
                   "max": text(class.max_ms)})
        };
        let rows: Vec<Value> = derived::statements(study, point).into_iter().map(row).collect();
        if !rows.is_empty() {
            tables.push(
                json!({"cell": point.id, "label": point.label, "sessions": point.sessions, "rows": rows}),
            );
        }
    }
    tables
}

/// Figures per transaction in the order of their columns.
const FIGURES: [&str; 16] = [
    "server_cpu",
    "server_cpu_system",
    "client_cpu",
    "server_switches_voluntary",
    "server_switches_involuntary",
    "server_read",
    "server_written",
    "log_written",
    "log_syncs",
    "binlog_written",
    "device_read",
    "device_written",
    "device_flushes",
    "rows_read",
    "buffer_reads",
    "row_lock_waits",
];

/// One column for each figure; `null` where no run has any.
pub(super) fn per_transaction(study: &StudyReport) -> Value {
    let all = study.points.iter().map(|point| (point, derived::all_per_transaction(study, point)));
    let rows: Vec<(&Point, _)> = all.filter(|(_, values)| !values.is_empty()).collect();
    let all = rows.iter().flat_map(|(_, values)| values);
    let mut heads = distinct(all.map(|(name, (_, unit))| (name, unit)));
    // A column of runs that all have zero tells nothing.
    heads.retain(|(name, _)| {
        let of_run = |point: &Point, run| derived::per_transaction_of(run, point.sessions, name);
        let runs = rows.iter().flat_map(|(point, _)| study.counted(point).map(move |(run, _)| (*point, run)));
        runs.into_iter().any(|(point, run)| of_run(point, run).is_some_and(|value| value != 0.0))
    });
    if heads.is_empty() {
        return Value::Null;
    }
    // What a transaction costs the processor first, then what it moves; unknown ones last.
    heads.sort_by_key(|(name, _)| FIGURES.iter().position(|known| known == name).unwrap_or(FIGURES.len()));
    let texts: Vec<Value> = rows
        .iter()
        .map(|(point, values)| {
            let of = |name: &String| values.get(name).map(|(value, _)| number(*value));
            let values: Vec<Option<String>> = heads.iter().map(|(name, _)| of(name)).collect();
            json!({"cell": point.id, "label": point.label, "sessions": point.sessions, "values": values})
        })
        .collect();
    let heads: Vec<String> =
        heads.iter().map(|(name, unit)| format!("{} {unit}", name.replace('_', " "))).collect();
    json!({"heads": heads, "rows": texts})
}

pub(super) fn devices(study: &StudyReport) -> Vec<Value> {
    study
        .points
        .iter()
        .filter_map(|point| {
            let used = derived::device_use(study, point)?;
            Some(json!({"cell": point.id, "label": point.label, "sessions": point.sessions, "place": used.place,
                        "written": number(used.written_mb_per_s), "sequential": used.share_of_sequential.map(percent),
                        "flushes": used.flushes_per_s.map(number), "syncs": used.share_of_syncs.map(percent),
                        "tps": used.tps_per_mb_per_s.map(number)}))
        })
        .collect()
}

/// The client's own cost, by point: medians over the counted runs.
pub(super) fn efficiency(study: &StudyReport) -> Vec<Value> {
    study
        .points
        .iter()
        .filter_map(|point| {
            let cost = derived::client_cost(study, point)?;
            Some(json!({
                "cell": point.id, "label": point.label, "sessions": point.sessions,
                "share": percent(cost.cpu_share), "queue": percent(cost.run_queue_share),
                "lag": number(cost.schedule_lag_p99_ms), "cpu_us": number(cost.cpu_us_per_statement),
            }))
        })
        .collect()
}

/// The hottest locks of each cell and level.
pub(super) fn hot_locks(study: &StudyReport) -> Vec<Value> {
    let mut tables = Vec::new();
    for run in &study.runs {
        let Some(end) = &run.end else { continue };
        let mut levels: Vec<u32> = end.hot_locks.iter().map(|lock| lock.sessions).collect();
        levels.dedup();
        for sessions in levels {
            let mut locks: Vec<_> = end.hot_locks.iter().filter(|lock| lock.sessions == sessions).collect();
            locks.sort_by(|a, b| b.wait_total_s.total_cmp(&a.wait_total_s));
            let rows: Vec<Value> = locks.iter().take(20).map(|lock| lock_row(lock)).collect();
            let label = label_or(&run.head.start.key, &study.varying, &["sessions"], &end.server.name);
            tables.push(json!({"run": run.id, "label": label, "sessions": sessions, "rows": rows,
                               "more": locks.len().saturating_sub(20)}));
        }
    }
    tables
}

/// The same side by side: waiting seconds a second, by cell and sessions.
pub(super) fn lock_ladder(study: &StudyReport) -> Vec<Value> {
    crate::hot_locks::tables(study)
        .into_iter()
        // One column has nothing beside it.
        .filter(|table| table.columns.len() > 1)
        .map(|table| {
            let rows: Vec<Value> = table
                .rows
                .iter()
                .map(|(lock, values)| {
                    let values: Vec<Option<String>> = values.iter().map(|value| value.map(number)).collect();
                    json!({"lock": lock, "values": values})
                })
                .collect();
            json!({"source": table.source, "columns": table.columns, "rows": rows})
        })
        .collect()
}

fn lock_row(lock: &store::HotLock) -> Value {
    let average_us =
        lock.count.filter(|count| *count > 0).map(|count| lock.wait_total_s * 1e6 / count as f64);
    let source = crate::hot_locks::source_text(lock.source);
    json!({
        "lock": lock.lock, "caller": lock.caller, "source": source,
        "count": lock.count.map(|count| thousands(count as f64)),
        "average_us": average_us.map(number),
        "total_s": number(lock.wait_total_s),
        "interval": lock.wait_interval_s.map(|(low, high)| format!("{} to {}", number(low), number(high))),
        "share": if lock.observed_s > 0.0 { Some(number(lock.wait_total_s / lock.observed_s)) } else { None },
    })
}

pub(super) fn probes(report: &Report, study: &StudyReport) -> Vec<Value> {
    study
        .probes
        .iter()
        .map(|(host, probe)| {
            let figures: Vec<Value> = probe
                .figures
                .iter()
                .map(|f| json!({"name": f.name.replace('_', " "), "value": number(f.value), "unit": f.unit}))
                .collect();
            json!({"host": report.hosts[*host].label, "place": probe.place, "path": probe.path, "tool": probe.tool,
                   "at": time_text(probe.measured_at_ms), "facts": pairs(&probe.facts), "figures": figures})
        })
        .collect()
}

/// One column for each figure; the spread tells how much the machine itself drifted.
pub(super) fn canaries(report: &Report, study: &StudyReport) -> Value {
    let figures = study.canaries.iter().flat_map(|(_, canary)| &canary.figures);
    let names = distinct(figures.map(|figure| (&figure.name, &figure.unit)));
    let value_of = |canary: &store::Canary, name: &str| {
        canary.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    };
    let rows: Vec<Value> = study
        .canaries
        .iter()
        .map(|(host, canary)| {
            let values: Vec<Option<String>> =
                names.iter().map(|(name, _)| value_of(canary, name).map(number)).collect();
            json!({"host": report.hosts[*host].label, "block": canary.block, "when": canary.when, "values": values})
        })
        .collect();
    let spreads = derived::canary_spreads(study);
    let spread: Vec<Option<String>> =
        names.iter().map(|(name, _)| spreads.get(name.as_str()).copied().map(percent)).collect();
    let heads: Vec<String> =
        names.iter().map(|(name, unit)| format!("{} ({unit})", name.replace('_', " "))).collect();
    json!({"heads": heads, "rows": rows, "spread": spread})
}

pub(super) fn references(study: &StudyReport) -> Vec<Value> {
    study
        .references
        .iter()
        .map(|r| {
            let key: Vec<String> =
                r.key.iter().map(|(name, value)| format!("{name} {}", crate::text::value_text(value))).collect();
            json!({"series": r.series, "source": r.source, "year": r.year, "machine": r.machine,
                   "metric": metric_name(&r.metric), "unit": r.unit, "key": key.join(", "), "value": number(r.value)})
        })
        .collect()
}

/// Durability class, isolation, character set by kind of cell.
pub(super) fn durability(study: &StudyReport) -> Vec<Value> {
    let row = |point: &Point| {
        let (run, end) = study.counted(point).find_map(|(run, _)| Some((run, run.end.as_ref()?)))?;
        let server = &end.server;
        let (finding, audit) = crate::durability::finding(study, run, server);
        let storage: Vec<String> =
            server.storage.iter().map(|(name, value)| format!("{name} {value}")).collect();
        Some(json!({
            "label": label_or(&point.identity, &study.varying, &["sessions", "workload"], &server.name),
            "class": server.durability_class, "why": server.durability_why,
            "finding": finding, "audit": audit, "isolation": server.isolation,
            "charset": server.charset, "collation": server.collation, "engine": server.engine,
            "cpus": if server.cpus.is_empty() { "all" } else { &server.cpus },
            "client_cpus": if server.client_cpus.is_empty() { "all" } else { &server.client_cpus },
            "storage": storage.join(", "),
        }))
    };
    distinct(study.points.iter().filter_map(row))
}
