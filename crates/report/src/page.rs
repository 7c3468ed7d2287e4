//! What the page's template is filled with: the view model as rows of ready texts. Drawings and links are made
//! here; the template escapes everything that is not marked as safe there.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use store::Purpose;

use crate::derived::{self, PER_TRANSACTION};
use crate::drawing::{RatioScale, ratio_axis, ratio_interval, sparkline};
use crate::load::label;
use crate::model::{Point, Report, RunView, Standing, StudyReport, VerdictView};
use crate::settings::settings;
use crate::text::{bytes, metric_name, number, p_value, percent, ratio, thousands, time_text};

/// The template's context.
pub(crate) fn context(report: &Report) -> Value {
    let studies: Vec<Value> =
        report.studies.iter().enumerate().map(|(at, study)| study_value(report, study, at)).collect();
    let hosts: Vec<Value> = report
        .hosts
        .iter()
        .map(|view| {
            let host = &view.host;
            json!({
                "label": view.label, "kernel": host.kernel, "os": host.os, "arch": host.arch,
                "cpu_model": host.cpu_model, "cpus": host.cpus, "memory": bytes(host.memory_bytes),
                "fingerprint": host.fingerprint, "facts": pairs(&host.facts),
            })
        })
        .collect();
    let title = match report.studies.as_slice() {
        [one] => one.title.clone(),
        several => several.iter().map(|study| study.title.as_str()).collect::<Vec<_>>().join(" / "),
    };
    json!({"title": title, "version": report.plimsoll_version, "studies": studies, "hosts": hosts})
}

fn pairs(map: &BTreeMap<String, String>) -> Vec<Value> {
    map.iter().map(|(name, value)| json!({"name": name, "value": value})).collect()
}

fn study_value(report: &Report, study: &StudyReport, at: usize) -> Value {
    let prefix = format!("s{}-", at + 1);
    json!({
        "prefix": prefix,
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "hosts": study_hosts(report, study),
        "started": study.runs.first().map(|run| time_text(run.head.start.started_at_ms)),
        "is_quick": study.records.iter().any(|view| view.record.study.is_quick),
        "answer": answer(study),
        "tally": tally(study),
        "inequalities": study.inequalities,
        "notes": notes(study),
        "alarms": crate::alarms::alarms(study),
        "is_long": study.question.len() > 120,
        "has_seconds": study.points.iter().flat_map(|p| study.measured(p)).any(|(_, step)| step.seconds().len() > 2),
        "cells": study.points.iter().map(|point| cell(study, point)).collect::<Vec<_>>(),
        "sections": crate::sections::values(study, at),
        "has_hosts": report.hosts.len() > 1,
        "verdicts": verdict_tables(study),
        "has_verdicts": study.has_verdicts(),
        "errors": errors(study),
        "statements": statements(study),
        "devices": devices(study),
        "headline": study.points.iter().find_map(|point| derived::headline(study, point)).map(|(n, u, _)| json!([n, u])),
        "per_transaction": per_transaction(study),
        "efficiency": efficiency(study),
        "hot_locks": hot_locks(study),
        "probes": probes(report, study),
        "canaries": canaries(report, study),
        "references": references(study),
        "durability": durability(study),
        "runs": study.runs.iter().map(|run| run_value(report, study, run)).collect::<Vec<_>>(),
        "records": records(study),
        "builds": builds(study),
        "settings": settings(study).iter().map(settings_value).collect::<Vec<_>>(),
    })
}

fn study_hosts(report: &Report, study: &StudyReport) -> String {
    let mut labels: Vec<&str> = Vec::new();
    for run in &study.runs {
        let label = report.hosts[run.host].label.as_str();
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels.join(", ")
}

/// A sentence with the verdict that colours it: the strongest one of its group.
fn answer(study: &StudyReport) -> Vec<Value> {
    study
        .answer
        .iter()
        .map(|sentence| {
            let has = |word: &str| {
                sentence.contains(&format!(": {word}")) || sentence.contains(&format!("; {word}"))
            };
            let verdict = match (has("faster"), has("slower"), has("equivalent"), has("undecided")) {
                (true, true, _, _) => "mixed",
                (true, false, _, _) => "faster",
                (false, true, _, _) => "slower",
                (_, _, true, false) => "equivalent",
                _ => "undecided",
            };
            json!({"text": sentence, "verdict": verdict})
        })
        .collect()
}

/// How many runs there are, by standing.
fn tally(study: &StudyReport) -> Value {
    let count = |standing: Standing| study.runs.iter().filter(|run| run.standing == standing).count();
    let planned: u32 = study.records.iter().map(|view| view.record.study.runs).sum();
    let blocks = study.records.iter().map(|view| view.record.study.blocks).max().unwrap_or(0);
    let others: Vec<String> = [
        Standing::Invalid,
        Standing::Failed,
        Standing::Interrupted,
        Standing::Running,
        Standing::Superseded,
        Standing::LockPass,
    ]
    .into_iter()
    .filter(|standing| count(*standing) > 0)
    .map(|standing| format!("{} {}", count(standing), standing.word()))
    .collect();
    json!({"counted": count(Standing::Counted), "planned": planned, "blocks": blocks, "others": others.join(", ")})
}

fn notes(study: &StudyReport) -> Vec<Value> {
    let notes = study.records.iter().flat_map(|view| &view.record.notes);
    notes.map(|(at, text)| json!({"at": time_text(*at), "text": text})).collect()
}

fn estimate(estimate: Option<crate::Estimate>) -> Value {
    match estimate {
        None => Value::Null,
        Some(e) if e.n < 2 => json!({"median": number(e.median)}),
        Some(e) => json!({"median": number(e.median), "low": number(e.low), "high": number(e.high),
                          "level": percent(e.level)}),
    }
}

fn cell(study: &StudyReport, point: &Point) -> Value {
    let runs: Vec<Value> = point
        .runs
        .iter()
        .map(|(run, _)| {
            let run = &study.runs[*run];
            json!({"id": run.id, "block": run.head.start.block, "standing": run.standing.word()})
        })
        .collect();
    let seconds: Vec<(Standing, Vec<f64>)> =
        study.measured(point).map(|(run, step)| (run.standing, step.seconds())).collect();
    let failed: Vec<f64> = study.counted(point).map(|(_, step)| step.failed_share()).collect();
    let little: Vec<f64> = study.counted(point).filter_map(|(_, step)| little(step)).collect();
    json!({
        "id": point.id,
        "label": point.label,
        "sessions": point.sessions,
        "tps": estimate(point.tps),
        "best": point.tps_max.map(|e| number(e.median)),
        "worst": point.tps_min.map(|e| number(e.median)),
        "qps": point.qps.map(|e| number(e.median)),
        "mean": point.mean_ms.map(|e| number(e.median)),
        "p50": point.p50_ms.map(|e| number(e.median)),
        "p95": estimate(point.p95_ms),
        "p99": estimate(point.p99_ms),
        "failed": stats::mean(&failed).map(percent),
        "little": stats::median(&little).map(|share| format!("{share:.2}")),
        "headline": derived::headline(study, point).map(|(_, _, value)| number(value)),
        "n": study.counted(point).count(),
        "runs": runs,
        "spark": sparkline(&seconds),
    })
}

/// Sessions that throughput and latency imply, over the real ones (Little's law). Think time is not known here and
/// makes it smaller; open loop has no fixed number of sessions in the system.
fn little(step: &crate::StepFigures) -> Option<f64> {
    if step.rate_tps.is_some() || step.duration_s <= 0.0 {
        return None;
    }
    let ended = step.outcomes.started() as f64 / step.duration_s;
    let check = stats::little(f64::from(step.sessions), ended, step.response?.mean / 1000.0, 0.0, 0.05)?;
    Some(check.ratio)
}

fn verdict_tables(study: &StudyReport) -> Vec<Value> {
    let mut metrics: Vec<&str> = Vec::new();
    for verdict in &study.verdicts {
        if !metrics.contains(&verdict.metric.as_str()) {
            metrics.push(&verdict.metric);
        }
    }
    metrics
        .into_iter()
        .map(|metric| {
            let rows: Vec<&VerdictView> = study.verdicts.iter().filter(|v| v.metric == metric).collect();
            let ends = rows.iter().flat_map(|v| [v.result.ratio, v.result.low, v.result.high]).flatten();
            let scale = RatioScale::of(ends);
            // What is unequal in every row is said once.
            let common: Vec<&String> =
                rows[0].flags.iter().filter(|flag| rows.iter().all(|row| row.flags.contains(flag))).collect();
            let bases: std::collections::BTreeSet<&str> =
                rows.iter().map(|row| row.base_label.as_str()).collect();
            json!({
                "metric": metric_name(metric),
                "base": if bases.len() == 1 { bases.first() } else { None },
                "axis": ratio_axis(scale),
                "has_at": rows.iter().any(|row| !row.at.is_empty()),
                "flags": common,
                "rows": rows.iter().map(|v| verdict_row(study, v, scale, &common)).collect::<Vec<_>>(),
            })
        })
        .collect()
}

fn verdict_row(study: &StudyReport, verdict: &VerdictView, scale: RatioScale, common: &[&String]) -> Value {
    let result = &verdict.result;
    let interval = result.low.zip(result.high);
    let judged = result.p_adjusted.is_some();
    let word = if judged { result.verdict.word() } else { "no verdict" };
    let class = if judged { result.verdict.word() } else { "undecided" };
    let sessions = match &verdict.climb {
        Some(_) => "whole climb".to_owned(),
        None => study.points[verdict.other].sessions.to_string(),
    };
    // That there are too few blocks stands in the word, and how many there are and should be beside it.
    let reason =
        result.reason.filter(|reason| *reason != stats::Reason::TooFewBlocks).map(stats::Reason::sentence);
    json!({
        "base": verdict.base_label, "other": verdict.other_label, "at": verdict.at, "sessions": sessions,
        "base_id": study.points[verdict.base].id, "other_id": study.points[verdict.other].id,
        "n": result.n, "margin": percent(verdict.margin),
        "ratio": result.ratio.map(ratio),
        "interval": interval.map(|(low, high)| format!("{} to {}", ratio(low), ratio(high))),
        "confidence": result.confidence.map(percent),
        "p": result.p_adjusted.map(p_value),
        "word": word, "class": class,
        "needed": result.blocks_needed,
        "reason": reason,
        "flags": verdict.flags.iter().filter(|flag| !common.contains(flag)).collect::<Vec<_>>(),
        "drawing": result.ratio.map(|r| ratio_interval(scale, r, interval, verdict.margin, class)),
    })
}

/// Errors by code over all runs of a point, retried ones included.
fn errors(study: &StudyReport) -> Vec<Value> {
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
fn statements(study: &StudyReport) -> Vec<Value> {
    let mut tables = Vec::new();
    for point in &study.points {
        let mut classes: Vec<(&str, Vec<f64>, [Vec<f64>; 5])> = Vec::new();
        for (_, step) in study.counted(point) {
            for statement in &step.by_statement {
                let at =
                    classes.iter().position(|(name, _, _)| *name == statement.name).unwrap_or_else(|| {
                        classes.push((&statement.name, vec![], Default::default()));
                        classes.len() - 1
                    });
                classes[at].1.push(statement.count as f64 / step.duration_s.max(1e-9));
                if let Some(l) = statement.latency {
                    for (values, value) in classes[at].2.iter_mut().zip([l.mean, l.p50, l.p95, l.p99, l.max])
                    {
                        values.push(value);
                    }
                }
            }
        }
        let median = |values: &[f64]| stats::median(values).map(number);
        let rows: Vec<Value> = classes
            .iter()
            .map(|(name, rates, [mean, p50, p95, p99, max])| {
                json!({"name": name, "rate": median(rates), "mean": median(mean), "p50": median(p50),
                       "p95": median(p95), "p99": median(p99), "max": median(max)})
            })
            .collect();
        if !rows.is_empty() {
            tables.push(
                json!({"cell": point.id, "label": point.label, "sessions": point.sessions, "rows": rows}),
            );
        }
    }
    tables
}

fn other_facts(facts: &BTreeMap<String, String>) -> Vec<Value> {
    let others = facts.iter().filter(|(name, _)| !name.starts_with(PER_TRANSACTION));
    others.map(|(name, value)| json!({"name": name.replace(['_', '/'], " "), "value": value})).collect()
}

/// One column for each figure; `null` where no run has any.
fn per_transaction(study: &StudyReport) -> Value {
    let mut heads: Vec<(String, String)> = Vec::new();
    let mut rows: Vec<(&Point, BTreeMap<String, Vec<f64>>)> = Vec::new();
    for point in &study.points {
        let prefix = format!("{PER_TRANSACTION}{}/", point.sessions);
        let mut values: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let facts = study.counted(point).filter_map(|(run, _)| run.end.as_ref()).flat_map(|end| &end.facts);
        for (name, text) in facts {
            let Some(name) = name.strip_prefix(&prefix) else { continue };
            let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
            let Ok(number) = number.parse::<f64>() else { continue };
            let head = (name.to_owned(), unit.to_owned());
            if !heads.contains(&head) {
                heads.push(head);
            }
            values.entry(name.to_owned()).or_default().push(number);
        }
        if !values.is_empty() {
            rows.push((point, values));
        }
    }
    // A column of zeros tells nothing.
    heads.retain(|(name, _)| {
        rows.iter().any(|(_, values)| values.get(name).is_some_and(|v| v.iter().any(|v| *v != 0.0)))
    });
    if heads.is_empty() {
        return Value::Null;
    }
    let texts: Vec<Value> = rows
        .iter()
        .map(|(point, values)| {
            let of = |name: &String| values.get(name).and_then(|values| stats::median(values)).map(number);
            let values: Vec<Option<String>> = heads.iter().map(|(name, _)| of(name)).collect();
            json!({"cell": point.id, "label": point.label, "sessions": point.sessions, "values": values})
        })
        .collect();
    let heads: Vec<String> =
        heads.iter().map(|(name, unit)| format!("{} {unit}", name.replace('_', " "))).collect();
    json!({"heads": heads, "rows": texts})
}

fn devices(study: &StudyReport) -> Vec<Value> {
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
fn efficiency(study: &StudyReport) -> Vec<Value> {
    study
        .points
        .iter()
        .filter_map(|point| {
            let of = |figure: &dyn Fn(&crate::StepFigures) -> f64| {
                let values: Vec<f64> = study.counted(point).map(|(_, step)| figure(step)).collect();
                stats::median(&values)
            };
            let per_statement = |step: &crate::StepFigures| {
                (step.client.cpu_user_s + step.client.cpu_sys_s) * 1e6 / (step.statements().max(1) as f64)
            };
            Some(json!({
                "cell": point.id, "label": point.label, "sessions": point.sessions,
                "share": percent(of(&|step| step.client.cpu_share)?),
                "queue": percent(of(&|step| step.client.run_queue_share)?),
                "lag": number(of(&|step| step.client.schedule_lag_p99_ms)?),
                "cpu_us": number(of(&per_statement)?),
            }))
        })
        .collect()
}

/// The hottest locks of each cell and level.
fn hot_locks(study: &StudyReport) -> Vec<Value> {
    let mut tables = Vec::new();
    for run in &study.runs {
        let Some(end) = &run.end else { continue };
        let mut levels: Vec<u32> = end.hot_locks.iter().map(|lock| lock.sessions).collect();
        levels.dedup();
        for sessions in levels {
            let mut locks: Vec<_> = end.hot_locks.iter().filter(|lock| lock.sessions == sessions).collect();
            locks.sort_by(|a, b| b.wait_total_s.total_cmp(&a.wait_total_s));
            let rows: Vec<Value> = locks.iter().take(20).map(|lock| lock_row(lock)).collect();
            let label = label(&run.head.start.key, &study.varying, &["sessions"]);
            let label = if label.is_empty() { end.server.name.clone() } else { label };
            tables.push(json!({"run": run.id, "label": label, "sessions": sessions, "rows": rows,
                               "more": locks.len().saturating_sub(20)}));
        }
    }
    tables
}

fn lock_row(lock: &store::HotLock) -> Value {
    let average_us =
        lock.count.filter(|count| *count > 0).map(|count| lock.wait_total_s * 1e6 / count as f64);
    let source = match lock.source {
        store::LockSource::PerformanceSchema => "performance_schema",
        store::LockSource::WaitEvents => "wait events, sampled",
        store::LockSource::Futex => "futex, sampled",
        store::LockSource::Perf => "perf",
    };
    json!({
        "lock": lock.lock, "caller": lock.caller, "source": source,
        "count": lock.count.map(|count| thousands(count as f64)),
        "average_us": average_us.map(number),
        "total_s": number(lock.wait_total_s),
        "interval": lock.wait_interval_s.map(|(low, high)| format!("{} to {}", number(low), number(high))),
        "share": if lock.observed_s > 0.0 { Some(number(lock.wait_total_s / lock.observed_s)) } else { None },
    })
}

fn probes(report: &Report, study: &StudyReport) -> Vec<Value> {
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
fn canaries(report: &Report, study: &StudyReport) -> Value {
    let mut names: Vec<(String, String)> = Vec::new();
    for figure in study.canaries.iter().flat_map(|(_, canary)| &canary.figures) {
        let name = (figure.name.clone(), figure.unit.clone());
        if !names.contains(&name) {
            names.push(name);
        }
    }
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
    let spread: Vec<Option<String>> = names
        .iter()
        .map(|(name, _)| {
            let values: Vec<f64> =
                study.canaries.iter().filter_map(|(_, canary)| value_of(canary, name)).collect();
            stats::coefficient_of_variation(&values).map(percent)
        })
        .collect();
    let heads: Vec<String> =
        names.iter().map(|(name, unit)| format!("{} ({unit})", name.replace('_', " "))).collect();
    json!({"heads": heads, "rows": rows, "spread": spread})
}

fn references(study: &StudyReport) -> Vec<Value> {
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
fn durability(study: &StudyReport) -> Vec<Value> {
    let mut rows: Vec<Value> = Vec::new();
    for point in &study.points {
        let Some((_, end)) = study.counted(point).find_map(|(run, _)| Some((run, run.end.as_ref()?))) else {
            continue;
        };
        let server = &end.server;
        let label = label(&point.identity, &study.varying, &["sessions", "workload"]);
        let storage: Vec<String> =
            server.storage.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let row = json!({
            "label": if label.is_empty() { server.name.clone() } else { label },
            "class": server.durability_class, "why": server.durability_why, "isolation": server.isolation,
            "charset": server.charset, "collation": server.collation, "engine": server.engine,
            "cpus": if server.cpus.is_empty() { "all" } else { &server.cpus },
            "client_cpus": if server.client_cpus.is_empty() { "all" } else { &server.client_cpus },
            "storage": storage.join(", "),
        });
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

fn run_value(report: &Report, study: &StudyReport, run: &RunView) -> Value {
    let start = &run.head.start;
    let label = label(&start.key, &study.varying, &["sessions"]);
    let levels: Vec<String> = start.levels.iter().map(u32::to_string).collect();
    let steps: Vec<Value> = run.steps.iter().map(step_value).collect();
    let cells: Vec<&str> = study
        .points
        .iter()
        .filter(|point| point.runs.iter().any(|(known, _)| study.runs[*known].id == run.id))
        .map(|point| point.id.as_str())
        .collect();
    let server = run.end.as_ref().map(|end| end.server.name.as_str());
    json!({
        "id": run.id,
        "label": if label.is_empty() { server.unwrap_or("").to_owned() } else { label },
        "levels": levels.join(", "),
        "is_climb": start.is_climb,
        "is_locks": start.purpose == Purpose::Locks,
        "block": start.block, "repeat": start.repeat, "position": start.position, "attempt": run.head.attempt,
        "standing": run.standing.word(),
        "error": run.head.error,
        "started": time_text(start.started_at_ms),
        "seed": start.seed.to_string(),
        "host": report.hosts[run.host].label,
        "boot_id": run.boot_id,
        "build": run.build.as_ref().map(|build| json!({"name": build.name(), "identity": build.identity})),
        "cells": cells,
        "steps": steps,
        "tps": run.steps.iter().map(|step| number(step.tps)).collect::<Vec<_>>().join(", "),
        "end": run.end.as_ref().map(end_value),
    })
}

fn end_value(end: &store::RunEnd) -> Value {
    let phases: Vec<Value> =
        end.phases.iter().map(|p| json!({"name": p.name, "s": number(p.duration_s)})).collect();
    json!({
        "ended": time_text(end.ended_at_ms), "server": end.server.name, "version": end.server.version_text,
        "command": end.server.command, "asked": pairs(&end.server.settings_asked),
        "workload": end.workload.name, "options": pairs(&end.workload.options),
        "data_from": end.workload.data_from, "data": end.workload.data_bytes.map(bytes),
        "headline": end.workload.headline.as_ref().map(|(n, u, v)| json!({"name": n, "unit": u, "value": number(*v)})),
        "phases": phases, "warnings": end.warnings, "gates": end.gates, "checks": end.checks,
        "log_tail": end.log_tail, "log_file": end.log_file, "facts": other_facts(&end.facts),
    })
}

fn step_value(step: &crate::StepFigures) -> Value {
    let outcomes = [
        ("committed", step.outcomes.committed),
        ("rolled back", step.outcomes.rolled_back),
        ("deadlock", step.outcomes.deadlock),
        ("serialization", step.outcomes.serialization),
        ("lock timeout", step.outcomes.lock_timeout),
        ("constraint", step.outcomes.constraint),
        ("connection", step.outcomes.connection),
        ("other", step.outcomes.other),
        ("skipped", step.outcomes.skipped),
    ];
    let outcomes: Vec<String> = outcomes
        .into_iter()
        .filter(|(name, count)| *count > 0 || *name == "committed")
        .map(|(name, count)| format!("{name} {}", thousands(count as f64)))
        .collect();
    let of = |name: &str| step.response.and_then(|latency| latency.by_name(name)).map(number);
    json!({
        "sessions": step.sessions, "duration": number(step.duration_s), "warmup": number(step.warmup_s),
        "rate": step.rate_tps.map(number), "arrivals": step.arrivals,
        "tps": number(step.tps), "best": number(step.tps_max), "worst": number(step.tps_min), "qps": number(step.qps),
        "mean": of("mean"), "p50": of("p50"), "p95": of("p95"), "p99": of("p99"), "p999": of("p999"), "max": of("max"),
        "service_p99": step.service.filter(|_| step.rate_tps.is_some()).map(|l| number(l.p99)),
        "outcomes": outcomes.join(", "), "retries": thousands(step.retries as f64),
        "in_flight": step.in_flight_at_end, "backlog": step.backlog_at_end,
        "client": format!("{} worker{}, busiest {} of a cpu, {} s user, {} s system", step.client.workers,
            if step.client.workers == 1 { "" } else { "s" }, percent(step.client.cpu_share),
            number(step.client.cpu_user_s), number(step.client.cpu_sys_s)),
        "ended_by": step.ended_by,
    })
}

fn records(study: &StudyReport) -> Vec<Value> {
    study
        .records
        .iter()
        .map(|view| {
            let stored = &view.record.study;
            let mut commands = vec![json!({"at": time_text(stored.created_at_ms), "text": stored.command})];
            let more = view.record.commands.iter();
            commands.extend(more.map(|(at, text)| json!({"at": time_text(*at), "text": text})));
            json!({
                "file": view.file, "state": view.record.state, "path": stored.file_path, "sha256": stored.file_sha256,
                "text": stored.file_text, "seed": stored.seed.to_string(), "version": stored.plimsoll_version,
                "commands": commands, "blocks": stored.blocks, "runs": stored.runs, "is_quick": stored.is_quick,
                "plan": serde_json::to_string_pretty(&stored.plan).unwrap_or_default(),
            })
        })
        .collect()
}

fn builds(study: &StudyReport) -> Vec<Value> {
    let mut builds: Vec<&store::Build> = Vec::new();
    for build in study.runs.iter().filter_map(|run| run.build.as_ref()) {
        if !builds.contains(&build) {
            builds.push(build);
        }
    }
    builds
        .into_iter()
        .map(|build| {
            json!({"name": build.name(), "identity": build.identity, "origin": build.origin,
                   "facts": pairs(&build.facts)})
        })
        .collect()
}

fn settings_value(flavor: &crate::settings::FlavorSettings) -> Value {
    let kinds: Vec<Value> = flavor
        .kinds
        .iter()
        .map(|kind| {
            json!({"labels": kind.labels.join("; "), "run": kind.run, "asked": pairs(&kind.asked),
                   "settings": pairs(&kind.settings), "count": kind.settings.len()})
        })
        .collect();
    let different: Vec<Value> =
        flavor.different.iter().map(|(name, values)| json!({"name": name, "values": values})).collect();
    json!({"flavor": flavor.flavor, "kinds": kinds, "different": different, "volatile": flavor.volatile.join(", ")})
}
