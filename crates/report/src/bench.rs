//! One load level of one run as JSON: the line of `bench`, and the runs within the JSON of `report`. Written once,
//! so that the two cannot differ.

use serde_json::{Map, Value, json};
use store::{Gate, RunEnd, RunHead, RunStart, Status};

use crate::figures::StepFigures;

/// Who ran, for the fields that a run's own record does not hold.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    /// As begun.
    pub start: &'a RunStart,
    /// What it gave; `None` where its process was killed.
    pub end: Option<&'a RunEnd>,
    /// How it stands.
    pub status: Status,
    /// Why it failed or is invalid.
    pub error: Option<&'a str>,
    /// Identity of the build; `None` for an attached server.
    pub build: Option<&'a str>,
}

impl<'a> Ran<'a> {
    /// Of a run that is not in a store (`bench`).
    pub fn new(start: &'a RunStart, end: &'a RunEnd, build: Option<&'a str>) -> Self {
        Self { start, end: Some(end), status: end.status, error: end.error.as_deref(), build }
    }

    pub(crate) fn of_head(head: &'a RunHead, end: Option<&'a RunEnd>, build: Option<&'a str>) -> Self {
        Self { start: &head.start, end, status: head.status, error: head.error.as_deref(), build }
    }
}

/// The lines of `bench` for one run, one for each of its levels, also for those that it did not reach.
pub fn bench_lines(start: &RunStart, end: &RunEnd, build: Option<&str>) -> Vec<Value> {
    let ran = Ran::new(start, end, build);
    let steps: Vec<StepFigures> = end.steps.iter().map(StepFigures::of).collect();
    start
        .levels
        .iter()
        .enumerate()
        .map(|(index, sessions)| Value::Object(fields(&ran, *sessions, steps.get(index))))
        .collect()
}

/// Version of the JSON: what a reader may rely on. 2: gates say what they found, and percentiles may be null.
pub(crate) const SCHEMA: u32 = 2;

/// The fields of one level; a level without a step has zeros for counts and null for what was never measured.
pub(crate) fn fields(ran: &Ran<'_>, sessions: u32, step: Option<&StepFigures>) -> Map<String, Value> {
    let (status, error) = status_and_error(ran, sessions);
    let from_key = |name: &str| ran.start.key.get(name).cloned().unwrap_or(Value::Null);
    let workload = ran.end.map(|end| &end.workload);
    let name = workload.map(|workload| &workload.name).filter(|name| !name.is_empty());
    let server = ran.end.map(|end| &end.server.name).filter(|name| !name.is_empty());
    let mut map = Map::new();
    extend(
        &mut map,
        json!({
            "schema": SCHEMA,
            "status": status,
            "error": error,
            "workload": name.map_or_else(|| from_key("workload"), |name| json!(name)),
            "options": workload.map_or_else(|| json!({}), |workload| json!(workload.options)),
            "server": server.map_or_else(|| from_key("server"), |name| json!(name)),
            "build": ran.build,
            "seed": ran.start.seed,
            "sessions": sessions,
            "rate": step.and_then(|step| step.rate_tps),
        }),
    );
    match step {
        Some(step) => measured(step, &mut map),
        None => unmeasured(&mut map),
    }
    let warnings = ran.end.map(|end| end.warnings.clone()).unwrap_or_default();
    let gates: Map<String, Value> = ran
        .end
        .map(|end| end.gates.iter().filter(|gate| gate.covers(sessions)).map(gate_field).collect())
        .unwrap_or_default();
    map.insert("warnings".to_owned(), json!(warnings));
    let replicas = ran.end.map(replicas).unwrap_or_default();
    if !replicas.is_empty() {
        map.insert("replicas".to_owned(), json!(replicas));
    }
    map.insert("gates".to_owned(), Value::Object(gates));
    map
}

/// The servers that followed, and what each still had to apply when the load was over.
fn replicas(end: &RunEnd) -> Vec<Value> {
    let one = |number: u32| {
        Some(json!({
            "replica": number,
            "what": end.facts.get(&format!("replica {number}"))?,
            "debt": end.facts.get(&format!("debt/replica {number}")),
            "caught_up_s": end.facts.get(&format!("{}/{number}", store::CAUGHT_UP_S)).and_then(|took| took.parse::<f64>().ok()),
        }))
    };
    (1..).map_while(one).collect()
}

fn gate_field(gate: &Gate) -> (String, Value) {
    let mut fields = json!({
        "finding": gate.finding.as_str(), "kind": gate.kind().as_str(), "detail": gate.detail,
    });
    if gate.is_tripped() {
        fields["remedy"] = json!(gate.remedy);
        fields["allowed"] = json!(gate.is_allowed);
    }
    (gate.name.clone(), fields)
}

/// The contract has three states: done, failed and invalid. What was stopped half-way has failed, and its error
/// says that it was interrupted. A level of a climb is invalid for its own faults, not for those of other levels.
fn status_and_error(ran: &Ran<'_>, sessions: u32) -> (&'static str, Option<String>) {
    let said = ran.error.map(str::to_owned);
    match ran.status {
        Status::Done => ("done", said),
        Status::Invalid if ran.end.is_some_and(|end| end.counts_at(sessions)) => ("done", None),
        Status::Invalid => ("invalid", said),
        Status::Failed => ("failed", said.or_else(|| Some("failed for an unknown reason".to_owned()))),
        Status::Interrupted => {
            let why = said.unwrap_or_else(|| "its process was killed before the run ended".to_owned());
            ("failed", Some(format!("interrupted: {why}")))
        }
        Status::Running => {
            ("failed", Some("interrupted: it is still going on, or its process was killed".to_owned()))
        }
    }
}

fn measured(step: &StepFigures, map: &mut Map<String, Value>) {
    let by_statement: Map<String, Value> = step
        .by_statement
        .iter()
        .map(|s| (s.name.clone(), json!({"count": s.count, "latency_ms": s.latency})))
        .collect();
    let intervals: Vec<Value> = step
        .intervals
        .iter()
        .filter(|interval| interval.second >= 1)
        .map(|i| {
            json!({"second": i.second, "tps": i.tps, "qps": i.qps, "p99_ms": i.percentile("p99"),
                   "errors": i.errors})
        })
        .collect();
    extend(
        map,
        json!({
            "duration_s": step.duration_s,
            "transactions": step.outcomes.committed,
            "statements": step.statements(),
            "reads": step.reads,
            "writes": step.writes,
            "other": step.other,
            "in_flight_at_end": step.in_flight_at_end,
            "backlog_at_end": step.backlog_at_end,
            "tps": step.tps,
            "tps_max": step.tps_max,
            "tps_min": step.tps_min,
            "qps": step.qps,
            "outcomes": step.outcomes,
            "retries": step.retries,
            "errors": step.errors,
            "latency_ms": step.response,
            "service_ms": step.service,
            "failed_ms": step.failed,
            "unended": step.unended,
            "stalls": step.stalls,
            "by_statement": by_statement,
            "intervals": intervals,
            "client": step.client,
        }),
    );
}

/// Adds the fields of an object.
pub(crate) fn extend(map: &mut Map<String, Value>, fields: Value) {
    if let Value::Object(fields) = fields {
        map.extend(fields);
    }
}

fn unmeasured(map: &mut Map<String, Value>) {
    extend(
        map,
        json!({
            "duration_s": 0.0, "transactions": 0, "statements": 0, "reads": 0, "writes": 0, "other": 0,
            "in_flight_at_end": 0, "backlog_at_end": 0, "tps": null, "tps_max": null, "tps_min": null, "qps": null,
            "outcomes": store::Outcomes::default(), "retries": 0, "errors": {}, "latency_ms": null, "service_ms": null,
            "failed_ms": null, "unended": null, "stalls": null,
            "by_statement": {}, "intervals": [], "client": store::ClientUsage::default(),
        }),
    );
}
