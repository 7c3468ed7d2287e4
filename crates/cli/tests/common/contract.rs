//! The contract of the JSON output, field by field.

use serde_json::Value;

const COUNTS: [&str; 8] = [
    "transactions",
    "statements",
    "reads",
    "writes",
    "other",
    "in_flight_at_end",
    "backlog_at_end",
    "retries",
];
const OUTCOMES: [&str; 9] = [
    "committed",
    "rolled_back",
    "deadlock",
    "serialization",
    "lock_timeout",
    "constraint",
    "connection",
    "other",
    "skipped",
];
const LATENCY: [&str; 8] = ["min", "mean", "p50", "p90", "p95", "p99", "p999", "max"];

#[track_caller]
fn field<'a>(of: &'a Value, name: &str) -> &'a Value {
    of.get(name).unwrap_or_else(|| panic!("{name} is missing in {of}"))
}

#[track_caller]
fn latency(of: &Value) {
    let count = field(of, "count").as_u64().unwrap();
    let needs = [("p50", 20), ("p90", 100), ("p95", 200), ("p99", 1_000), ("p999", 10_000)];
    for name in LATENCY {
        let needed = needs.iter().find(|(known, _)| *known == name).map_or(1, |(_, needed)| *needed);
        let figure = field(of, name);
        assert_eq!(figure.is_f64(), count >= needed, "{name} of {count} in {of}");
        assert_eq!(
            field(of, "absent").get(name).is_some(),
            figure.is_null(),
            "{name} says why it is absent: {of}"
        );
    }
}

/// A line of `bench`, or a run of `report`.
#[track_caller]
pub(crate) fn check_line(line: &Value) {
    assert_eq!(field(line, "schema"), 2);
    let status = field(line, "status").as_str().unwrap();
    assert!(["done", "failed", "invalid"].contains(&status), "{line}");
    let error = field(line, "error");
    assert_eq!(error.is_string(), status != "done", "a run that is not done says why: {line}");
    for name in ["workload", "server"] {
        assert!(field(line, name).as_str().is_some_and(|text| !text.is_empty()), "{name}: {line}");
    }
    for name in ["options", "errors", "by_statement", "gates", "client"] {
        assert!(field(line, name).is_object(), "{name}: {line}");
    }
    assert!(field(line, "build").is_string() || line["build"].is_null(), "{line}");
    assert!(field(line, "rate").is_null() || line["rate"].is_f64(), "{line}");
    for name in COUNTS.into_iter().chain(["seed", "sessions"]) {
        assert!(field(line, name).is_u64(), "{name}: {line}");
    }
    for name in OUTCOMES {
        assert!(field(field(line, "outcomes"), name).is_u64(), "{name}: {line}");
    }
    assert!(field(line, "duration_s").is_f64());
    // What was never measured is null, and not nought.
    let is_measured = field(line, "tps").is_f64();
    assert!(is_measured || status == "failed", "{line}");
    for name in ["tps", "qps"] {
        assert_eq!(field(line, name).is_f64(), is_measured, "{name}: {line}");
    }
    for name in ["tps_max", "tps_min"] {
        assert!(field(line, name).is_f64() || line[name].is_null(), "{name}: {line}");
    }
    let has_latency = field(line, "latency_ms").is_object();
    if has_latency {
        latency(&line["latency_ms"]);
        latency(field(line, "service_ms"));
    }
    for (name, statement) in line["by_statement"].as_object().unwrap() {
        assert!(field(statement, "count").is_u64(), "{name}: {statement}");
        if statement["count"].as_u64() > Some(0) {
            latency(field(statement, "latency_ms"));
        }
    }
    for (code, error) in line["errors"].as_object().unwrap() {
        assert!(field(error, "count").is_u64() && field(error, "text").is_string(), "{code}: {error}");
    }
    for interval in field(line, "intervals").as_array().unwrap() {
        assert!(field(interval, "second").as_i64() >= Some(1), "{interval}");
        assert!(field(interval, "tps").is_f64() && field(interval, "qps").is_f64(), "{interval}");
        assert!(field(interval, "p99_ms").is_f64() || interval["p99_ms"].is_null(), "{interval}");
        assert!(field(interval, "errors").is_u64(), "{interval}");
    }
    let client = &line["client"];
    assert!(field(client, "workers").is_u64(), "{client}");
    for name in ["cpu_user_s", "cpu_sys_s", "cpu_share"] {
        assert!(field(client, name).is_f64(), "{name}: {client}");
    }
    assert!(field(line, "warnings").as_array().unwrap().iter().all(Value::is_string), "{line}");
    gates(&line["gates"]);
    if is_measured {
        // Every run that was measured answers for the same gates, be it that they could not be looked at.
        for name in store::GATES_OF_EVERY_RUN {
            assert!(line["gates"].get(name).is_some(), "{name}: {line}");
        }
        let is_fault = |gate: &Value| {
            gate["finding"] == "tripped" && gate["kind"] == "measurement" && gate["allowed"] == false
        };
        let has_fault = line["gates"].as_object().unwrap().values().any(is_fault);
        assert!(
            status == "failed" || has_fault == (status == "invalid"),
            "faults of the measurement make it invalid, and nothing else does: {line}"
        );
    }
}

/// Each gate says what it found, what it is about, and why.
#[track_caller]
fn gates(of: &Value) {
    for (name, gate) in of.as_object().unwrap() {
        let finding = field(gate, "finding").as_str().unwrap();
        assert!(["held", "tripped", "not_checked"].contains(&finding), "{name}: {gate}");
        let kind = field(gate, "kind").as_str().unwrap();
        assert!(["measurement", "server"].contains(&kind), "{name}: {gate}");
        assert!(field(gate, "detail").as_str().is_some_and(|text| !text.is_empty()), "{name}: {gate}");
        assert_eq!(gate.get("remedy").is_some(), finding == "tripped", "{name}: {gate}");
    }
}

/// The JSON of `report`.
#[track_caller]
pub(crate) fn check_report(report: &Value) {
    assert_eq!(field(report, "schema"), 2);
    assert!(field(report, "plimsoll").is_string());
    for study in field(report, "studies").as_array().unwrap() {
        for name in ["name", "title", "question", "file_sha256"] {
            assert!(field(study, name).is_string(), "{name}: {study}");
        }
    }
    for cell in field(report, "cells").as_array().unwrap() {
        let key = field(cell, "key");
        for name in ["study", "host", "server", "workload", "settings", "engine", "cpus"] {
            assert!(field(key, name).is_string(), "{name}: {key}");
        }
        assert!(field(key, "sessions").is_u64(), "{key}");
        for run in field(cell, "runs").as_array().unwrap() {
            check_line(run);
            assert!(field(run, "repeat").is_u64() && field(run, "block").is_u64(), "{run}");
            assert!(field(run, "started_at").is_string(), "{run}");
            for name in ["name", "fingerprint", "boot_id"] {
                assert!(field(field(run, "host"), name).is_string(), "{run}");
            }
        }
        let tps = field(cell, "tps");
        assert!(
            tps.is_null() || ["median", "low", "high"].iter().all(|name| field(tps, name).is_f64()),
            "{tps}"
        );
    }
    for comparison in field(report, "comparisons").as_array().unwrap() {
        assert!(field(comparison, "metric").is_string());
        assert!(field(comparison, "base").is_object() && field(comparison, "other").is_object());
        assert!(field(comparison, "n").is_u64() && field(comparison, "margin").is_f64());
        let needed = field(comparison, "blocks_needed");
        let is_range = needed.as_array().is_some_and(|blocks| blocks.len() == 3);
        assert!(is_range || needed.is_null(), "blocks_needed: {comparison}");
        for name in ["ratio", "low", "high", "p_adjusted"] {
            assert!(
                field(comparison, name).is_number() || comparison[name].is_null(),
                "{name}: {comparison}"
            );
        }
        let verdict = field(comparison, "verdict").as_str().unwrap();
        assert!(["faster", "slower", "equivalent", "undecided"].contains(&verdict), "{comparison}");
    }
}
