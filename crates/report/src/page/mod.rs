//! What the page's template is filled with: the view model as rows of ready texts. Drawings and links are made
//! here; the template escapes everything that is not marked as safe there.

mod facts;
mod runs;
mod verdicts;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::derived;
use crate::drawing::sparkline;
use crate::model::{Point, Report, Standing, StudyReport};
use crate::settings::settings;
use crate::text::{bytes, number, percent, time_text};

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
    let answer = study.answer.iter();
    let answer: Vec<Value> = answer.map(|said| json!({"text": said.text, "verdict": said.tone})).collect();
    json!({
        "prefix": prefix,
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "hosts": study_hosts(report, study),
        "started": study.runs.first().map(|run| time_text(run.head.start.started_at_ms)),
        "is_quick": study.records.iter().any(|view| view.record.study.is_quick),
        "answer": answer,
        "tally": crate::tally::told(study),
        "inequalities": study.inequalities,
        "notes": notes(study),
        "alarms": crate::alarms::alarms(study),
        "is_long": study.question.len() > 120,
        "has_levels": study.has_levels(),
        "has_seconds": study.points.iter().flat_map(|p| study.measured(p)).any(|(_, step)| step.seconds().len() > 2),
        "cells": study.points.iter().map(|point| cell(study, point)).collect::<Vec<_>>(),
        "absent": study.absent_percentiles(),
        "sections": crate::sections::values(study, at),
        "has_hosts": report.hosts.len() > 1,
        "verdicts": verdicts::verdict_tables(study),
        "has_verdicts": study.has_verdicts(),
        "errors": facts::errors(study),
        "statements": facts::statements(study),
        "devices": facts::devices(study),
        "headline": study.points.iter().find_map(|point| derived::headline(study, point)).map(|(n, u, _)| json!([n, u])),
        "per_transaction": facts::per_transaction(study),
        "efficiency": facts::efficiency(study),
        "hot_locks": facts::hot_locks(study),
        "lock_ladder": facts::lock_ladder(study),
        "probes": facts::probes(report, study),
        "canaries": facts::canaries(report, study),
        "references": facts::references(study),
        "durability": facts::durability(study),
        "audits": crate::durability::audits(study),
        "runs": study.runs.iter().map(|run| runs::run_value(report, study, run)).collect::<Vec<_>>(),
        "records": runs::records(study),
        "builds": runs::builds(study),
        "settings": settings(study).iter().map(runs::settings_value).collect::<Vec<_>>(),
    })
}

fn study_hosts(report: &Report, study: &StudyReport) -> String {
    crate::nodes::hosts(report, study).join(", ")
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
            let standing = run.standing_at(point.sessions).word();
            json!({"id": run.id, "block": run.head.start.block, "standing": standing})
        })
        .collect();
    let seconds: Vec<(Standing, Vec<f64>)> =
        study.measured(point).map(|(run, step)| (run.standing_at(point.sessions), step.seconds())).collect();
    json!({
        "id": point.id,
        "label": point.label,
        "sessions": point.sessions,
        "pacing": study.pacing(point),
        "tps": estimate(point.tps),
        "best": point.tps_max.map(|e| number(e.median)),
        "worst": point.tps_min.map(|e| number(e.median)),
        "qps": point.qps.map(|e| number(e.median)),
        "mean": point.mean_ms.map(|e| number(e.median)),
        "p50": point.p50_ms.map(|e| number(e.median)),
        "p95": estimate(point.p95_ms),
        "p99": estimate(point.p99_ms),
        "failed": derived::failed_share(study, point).map(percent),
        "little": derived::little(study, point).map(|share| format!("{share:.2}")),
        "headline": derived::headline(study, point).map(|(_, _, value)| number(value)),
        "n": study.counted(point).count(),
        "marks": study.marks_text(point),
        "freeze": point.freeze_s.filter(|longest_s| *longest_s >= 1.0).map(number),
        "runs": runs,
        "spark": sparkline(&seconds),
    })
}
