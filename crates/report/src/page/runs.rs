//! Each run with all it gave, and what it takes to repeat the study.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use store::{Finding, GateKind, Purpose};

use super::pairs;
use crate::derived::PER_TRANSACTION;
use crate::load::label_or;
use crate::model::{Report, RunView, StudyReport};
use crate::order::distinct;
use crate::text::{bytes, number, percent, thousands, time_text};

fn other_facts(facts: &BTreeMap<String, String>) -> Vec<Value> {
    let others = facts.iter().filter(|(name, _)| !name.starts_with(PER_TRANSACTION));
    others.map(|(name, value)| json!({"name": name.replace(['_', '/'], " "), "value": value})).collect()
}

pub(super) fn run_value(report: &Report, study: &StudyReport, run: &RunView) -> Value {
    let start = &run.head.start;
    let levels: Vec<String> = start.levels.iter().map(u32::to_string).collect();
    let steps: Vec<Value> = run.steps.iter().map(step_value).collect();
    let cells: Vec<&str> = study
        .points
        .iter()
        .filter(|point| point.runs.iter().any(|(known, _)| study.runs[*known].id == run.id))
        .map(|point| point.id.as_str())
        .collect();
    let server = run.end.as_ref().map_or("", |end| end.server.name.as_str());
    json!({
        "id": run.id,
        "label": label_or(&start.key, &study.varying, &["sessions"], server),
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
    let mut facts = other_facts(&end.facts);
    facts.extend(end.interventions.iter().flat_map(intervention_facts));
    json!({
        "ended": time_text(end.ended_at_ms), "server": end.server.name, "version": end.server.version_text,
        "command": end.server.command, "asked": pairs(&end.server.settings_asked),
        "workload": end.workload.name, "options": pairs(&end.workload.options),
        "data_from": end.workload.data_from, "data": end.workload.data_bytes.map(bytes),
        "headline": end.workload.headline.as_ref().map(|(n, u, v)| json!({"name": n, "unit": u, "value": number(*v)})),
        "phases": phases, "warnings": end.warnings, "gates": end.gates.iter().map(gate_value).collect::<Vec<_>>(), "checks": end.checks,
        "log_tail": end.log_tail, "log_file": end.log_file, "facts": facts,
    })
}

/// What was changed meanwhile, for people: the statements, and what the server said of itself.
fn intervention_facts(intervention: &store::Intervention) -> Vec<Value> {
    let readings: Vec<String> =
        intervention.readings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let all = [
        ("intervention", intervention.name.clone()),
        (
            "came at",
            intervention.at_s.map_or_else(String::new, |at| format!("{at:.1} s since the start of the run")),
        ),
        ("changed by", intervention.on.join("; ")),
        ("taken back by", intervention.off.join("; ")),
        ("read back", readings.join(", ")),
    ];
    let known = all.into_iter().filter(|(_, text)| !text.is_empty());
    known.map(|(name, value)| json!({"name": name, "value": value})).collect()
}

/// Green only for what was looked at and held; what could not be looked at is neither good nor bad.
fn gate_value(gate: &store::Gate) -> Value {
    let (class, word) = match (gate.finding, gate.kind()) {
        (Finding::Held, _) => ("good", "held"),
        (Finding::NotChecked, _) => ("neutral", "not checked"),
        (Finding::Tripped, GateKind::Measurement) if gate.is_allowed => {
            ("bad", "tripped, allowed by the study")
        }
        (Finding::Tripped, GateKind::Measurement) => ("bad", "tripped"),
        (Finding::Tripped, GateKind::Server) => ("mark", "tripped, the server's behaviour"),
    };
    json!({"name": gate.name.replace('_', " "), "class": class, "word": word, "text": gate.text(),
           "remedy": gate.remedy})
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
    let failed = step.failed.map_or_else(String::new, |times| {
        let (mean, max) = (number(times.mean), number(times.max));
        format!("; those that failed took {mean} ms on average, {max} ms at most")
    });
    let of = |name: &str| step.response.and_then(|latency| latency.by_name(name)).map(number);
    json!({
        "sessions": step.sessions, "duration": number(step.duration_s), "warmup": number(step.warmup_s),
        "rate": step.rate_tps.map(number), "arrivals": step.arrivals,
        "tps": number(step.tps), "best": number(step.tps_max), "worst": number(step.tps_min), "qps": number(step.qps),
        "mean": of("mean"), "p50": of("p50"), "p95": of("p95"), "p99": of("p99"), "p999": of("p999"), "max": of("max"),
        "service_p99": step.service.filter(|_| step.rate_tps.is_some()).and_then(|l| l.p99).map(number),
        "outcomes": format!("{}{failed}", outcomes.join(", ")), "retries": thousands(step.retries as f64),
        "in_flight": step.in_flight_at_end, "backlog": step.backlog_at_end,
        "client": format!("{} worker{}{}, busiest {} of a cpu, {} s user, {} s system", step.client.workers,
            if step.client.workers == 1 { "" } else { "s" },
            step.client.clients.map_or_else(String::new, |clients| format!(" in {clients} processes")), percent(step.client.cpu_share),
            number(step.client.cpu_user_s), number(step.client.cpu_sys_s)),
        "ended_by": step.ended_by,
    })
}

pub(super) fn records(study: &StudyReport) -> Vec<Value> {
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

pub(super) fn builds(study: &StudyReport) -> Vec<Value> {
    distinct(study.runs.iter().filter_map(|run| run.build.as_ref()))
        .into_iter()
        .map(|build| {
            json!({"name": build.name(), "identity": build.identity, "origin": build.origin,
                   "facts": pairs(&build.facts)})
        })
        .collect()
}

pub(super) fn settings_value(flavor: &crate::settings::FlavorSettings) -> Value {
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
