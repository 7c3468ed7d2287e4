//! The JSON of `report`, as the command line's contract has it. Readers ignore what they do not know, so that
//! fields may be added here and never change.

use serde_json::{Map, Value, json};

use crate::bench::{Ran, extend, fields};
use crate::model::{HostView, Lost, Point, Report, RunView, StudyReport, VerdictView};
use crate::text::time_text;

/// The whole report as one JSON value.
pub fn json(report: &Report) -> Value {
    let studies: Vec<Value> = report.studies.iter().flat_map(studies).collect();
    let cells: Vec<Value> = report
        .studies
        .iter()
        .flat_map(|study| study.points.iter().map(|point| cell(report, study, point)))
        .collect();
    let comparisons: Vec<Value> = report
        .studies
        .iter()
        .flat_map(|study| study.verdicts.iter().map(|verdict| comparison(&report.hosts, study, verdict)))
        .collect();
    let sections: Vec<Value> = report.studies.iter().map(crate::sections::json_line).collect();
    let rankings: Vec<Value> = report.studies.iter().flat_map(crate::ranking::json_lines).collect();
    json!({
        "schema": crate::bench::SCHEMA,
        "plimsoll": report.plimsoll_version,
        "studies": studies,
        "cells": cells,
        "comparisons": comparisons,
        "rankings": rankings,
        "sections": sections,
    })
}

fn studies(study: &StudyReport) -> Vec<Value> {
    study
        .records
        .iter()
        .map(|view| {
            let stored = &view.record.study;
            json!({
                "name": stored.name, "title": stored.title, "question": stored.question,
                "file_sha256": stored.file_sha256, "results": view.file, "state": view.record.state,
                "quick": stored.is_quick, "seed": stored.seed, "plimsoll": stored.plimsoll_version,
                "command": stored.command, "planned_at": time_text(stored.created_at_ms),
                "blocks": stored.blocks, "runs_planned": stored.runs, "answer": study.answer.iter().map(|sentence| &sentence.text).collect::<Vec<_>>(),
                "inequalities": study.inequalities,
                "canary_spread": crate::derived::canary_spreads(study),
                "hot_locks": crate::hot_locks::json_lines(study),
                "lock_waits": crate::hot_locks::json_tables(study),
                "durability": crate::durability::rows(study), "audits": crate::durability::audits(study),
            })
        })
        .collect()
}

fn cell(report: &Report, study: &StudyReport, point: &Point) -> Value {
    let runs: Vec<Value> = point
        .runs
        .iter()
        .map(|(run, step)| run_of(report, &study.runs[*run], *step, point.sessions))
        .collect();
    let absent: Map<String, Value> = ["p50", "p95", "p99"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), json!(study.why_absent(point, name)?))))
        .collect();
    let mut cell = json!({
        "key": point.key,
        "runs": runs,
        "tps": point.tps,
        "tps_max": point.tps_max,
        "tps_min": point.tps_min,
        "qps": point.qps,
        "marks": study.marks(point),
        "short_term": study.is_short_term(point),
        "wakeup_share": study.wakeup_share(point),
        "freeze_s": point.freeze_s,
        "latency_ms": {"mean": point.mean_ms, "p50": point.p50_ms, "p95": point.p95_ms, "p99": point.p99_ms,
                       "absent": absent},
    });
    if let Value::Object(cell) = &mut cell {
        cell.extend(crate::derived::json_of_point(study, point));
    }
    if let Some(lines) = crate::lines::json_of_point(study, point) {
        cell["lines"] = lines;
    }
    cell
}

fn run_of(report: &Report, run: &RunView, step: Option<usize>, sessions: u32) -> Value {
    let build = run.build.as_ref().map(|build| build.identity.as_str());
    let ran = Ran::of_head(&run.head, run.end.as_ref(), build);
    let mut map: Map<String, Value> = fields(&ran, sessions, step.and_then(|step| run.steps.get(step)));
    let host = &report.hosts[run.host].host;
    let start = &run.head.start;
    extend(
        &mut map,
        json!({
            "run": run.id,
            "standing": run.standing_at(sessions).word(),
            "repeat": start.repeat,
            "block": start.block,
            "position": start.position,
            "attempt": run.head.attempt,
            "started_at": time_text(start.started_at_ms),
            "host": {"name": host.name, "fingerprint": host.fingerprint, "boot_id": run.boot_id},
        }),
    );
    if let Some(line) = crate::lines::json_of_run(run) {
        map.insert("line".to_owned(), line);
    }
    if let Some(end) = &run.end {
        let server = &end.server;
        extend(
            &mut map,
            json!({
                "ended_at": time_text(end.ended_at_ms),
                "server_version": server.version_text,
                "durability_class": server.durability_class,
                "isolation": server.isolation,
                "settings_asked": server.settings_asked,
                "checks": end.checks,
                "headline": end.workload.headline,
            }),
        );
        if !end.interventions.is_empty() {
            let all = end.interventions.iter().map(|intervention| intervention_of(intervention, run, end));
            map.insert("interventions".to_owned(), all.collect());
        }
    }
    Value::Object(map)
}

/// What was changed of a server while it was loaded: with its phases where it was switched on and off, with what was before
/// and after it where it came once. Times are from the run's start.
fn intervention_of(intervention: &store::Intervention, run: &RunView, end: &store::RunEnd) -> Value {
    let mut value = json!({
        "name": intervention.name, "on": intervention.on, "off": intervention.off, "readings": intervention.readings,
    });
    if let Some(at_s) = intervention.at_s {
        let sides = crate::interventions::before_after(run, intervention);
        value["at_s"] = json!(at_s);
        value["took_s"] = json!(intervention.took_s);
        value["tps_before"] = json!(sides.map(|sides| sides.0));
        value["tps_after"] = json!(sides.map(|sides| sides.1));
    } else {
        let phases = end.duel.iter().flat_map(|duel| &duel.slices).map(|phase| {
            json!({"at_s": phase.at_s, "duration_s": phase.duration_s, "tps": phase.tps(), "is_counted": phase.is_counted})
        });
        value["phases"] = phases.collect();
    }
    value
}

/// What each node says, and which disagree.
fn across(nodes: &stats::AcrossNodes, hosts: &[HostView]) -> Value {
    let name = |node: u32| hosts.get(node as usize).map(|host| host.label.as_str());
    let each = nodes.nodes.iter();
    let each: Vec<Value> =
        each.map(|one| json!({"host": name(one.node), "blocks": one.blocks, "ratio": one.ratio})).collect();
    let odd = nodes.odd.iter();
    let odd: Vec<Value> = odd
        .map(
            |one| json!({"host": name(one.node), "ratio": one.ratio, "elsewhere": one.elsewhere, "p": one.p}),
        )
        .collect();
    json!({"each": each, "spread": nodes.spread, "disagree": odd})
}

fn comparison(hosts: &[HostView], study: &StudyReport, verdict: &VerdictView) -> Value {
    let key = |point: usize| {
        let mut key = study.points[point].key.clone();
        if verdict.climb.is_some() {
            key.remove("sessions");
        }
        key
    };
    let result = &verdict.result;
    let mut view = json!({
        "metric": verdict.metric,
        "axis": verdict.axis,
        "base": key(verdict.base),
        "other": key(verdict.other),
        "climb": verdict.climb,
        "n": result.n,
        "margin": verdict.margin,
        "is_primary": verdict.is_primary,
        "looks": study.newest().map(|view| view.looks.len()).filter(|&looks| looks > 0),
        "ratio": result.ratio,
        "low": result.low,
        "high": result.high,
        "confidence": result.confidence,
        "p": result.p,
        "p_adjusted": result.p_adjusted,
        "p_not_slower": result.p_not_slower_adjusted,
        "verdict": result.verdict.word(),
        "blocks_needed": result.blocks_needed,
        "method": result.method.word(),
        "reason": result.reason.map(stats::Reason::sentence),
        "nodes": result.nodes.as_ref().map(|nodes| across(nodes, hosts)),
        "unequal": verdict.flags,
        "in_doubt": verdict.doubts,
        "marks": verdict.marks,
        "absent": verdict.absent,
        "lost": verdict.lost.as_ref().map(lost),
    });
    if result.method == stats::Method::LastLook {
        view["last_look"] = json!(true);
    }
    view
}

/// What faults of the measurement cost the sides, and the verdict over all completed runs.
fn lost(lost: &Lost) -> Value {
    let side = |(lost, completed): (usize, usize)| json!({"lost": lost, "completed": completed});
    let result = &lost.over_all;
    json!({
        "base": side(lost.base),
        "other": side(lost.other),
        "over_all": {
            "n": result.n, "ratio": result.ratio, "low": result.low, "high": result.high,
            "p_adjusted": result.p_adjusted, "verdict": result.verdict.word(), "method": result.method.word(),
        },
    })
}
