//! What a commit survives: the class that the settings promise, and what audits of the same build with the same
//! settings found.

use serde::Serialize;
use serde_json::{Value, json};
use store::{AuditKind, AuditRound, AuditVerdict, ServerFacts};

use crate::load::label;
use crate::model::{AuditView, RunView, StudyReport};
use crate::text::{thousands, time_text};

/// What audits say of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    /// What the settings promise to keep was kept in every round.
    Confirmed,
    /// Something was lost that they promise to keep.
    Contradicted,
    /// Nobody has looked.
    NotAudited,
}

/// Cells whose servers promise the same.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Row {
    /// The cells' label.
    pub(crate) label: String,
    /// `full`, `process-crash`, `lossy`, `corruptible`.
    pub(crate) class: String,
    /// What the class means.
    pub(crate) why: String,
    /// What audits say.
    pub(crate) finding: Finding,
    /// The same in a sentence, with the figures or the command line that audits.
    pub(crate) text: String,
    /// Their runs.
    pub(crate) runs: Vec<String>,
}

/// One row for each kind of server, in the order of the cells.
pub(crate) fn rows(study: &StudyReport) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for point in &study.points {
        // Invalid runs too: what is doubted of them is their speed.
        for (run, _) in study.measured(point) {
            let Some(end) = &run.end else { continue };
            let server = &end.server;
            let label = label(&point.identity, &study.varying, &["sessions", "workload"]);
            let label = if label.is_empty() { server.name.clone() } else { label };
            let known =
                rows.iter_mut().find(|row| row.label == label && row.class == server.durability_class);
            match known {
                Some(row) if row.runs.contains(&run.id) => {}
                Some(row) => row.runs.push(run.id.clone()),
                None => {
                    let (finding, text) = finding(study, run, server);
                    rows.push(Row {
                        label,
                        class: server.durability_class.clone(),
                        why: server.durability_why.clone(),
                        finding,
                        text,
                        runs: vec![run.id.clone()],
                    });
                }
            }
        }
    }
    rows
}

/// What audits say of one run's server.
pub(crate) fn finding(study: &StudyReport, run: &RunView, server: &ServerFacts) -> (Finding, String) {
    let audits: Vec<&AuditView> = study.audits.iter().filter(|view| speaks_for(view, run, server)).collect();
    let mut found = Vec::new();
    let mut rounds_of_all = 0;
    let mut is_contradicted = false;
    for kind in [AuditKind::ProcessCrash, AuditKind::PowerCut] {
        let rounds: Vec<AuditRound> = audits.iter().flat_map(|view| view.audit.rounds_of(kind)).collect();
        let verdicts = audits.iter().filter_map(|view| verdict(view, kind));
        is_contradicted |= verdicts.into_iter().any(|verdict| verdict == AuditVerdict::Contradicted);
        rounds_of_all += rounds.len();
        if !rounds.is_empty() {
            found.push(format!("{}: {}", words(kind), losses(&rounds)));
        } else if let Some(why) = audits.iter().find_map(|view| gap(view, kind)) {
            found.push(format!("{} not audited: {why}", words(kind)));
        } else if !audits.is_empty() {
            found.push(format!("{} not audited", words(kind)));
        }
    }
    if rounds_of_all == 0 {
        return (Finding::NotAudited, not_audited(study, run, server));
    }
    let rounds = if rounds_of_all == 1 { "1 round".to_owned() } else { format!("{rounds_of_all} rounds") };
    let (finding, word) = match is_contradicted {
        true => (Finding::Contradicted, "contradicted"),
        false => (Finding::Confirmed, "confirmed"),
    };
    (finding, format!("{word} by {rounds} ({})", found.join("; ")))
}

/// The same build with the same deciding settings, and an engine that they are about.
fn speaks_for(view: &AuditView, run: &RunView, server: &ServerFacts) -> bool {
    let start = &view.audit.start;
    run.build.as_ref().is_some_and(|build| build.identity == view.build.identity)
        && !start.deciding.is_empty()
        && start.deciding == server.deciding
        && server.engine.starts_with(&start.engine)
}

fn verdict(view: &AuditView, kind: AuditKind) -> Option<AuditVerdict> {
    let promise = view.audit.start.promises.iter().find(|promise| promise.kind == kind)?;
    AuditVerdict::of(promise, &view.audit.rounds_of(kind))
}

fn gap(view: &AuditView, kind: AuditKind) -> Option<&str> {
    view.audit.not_done.iter().find(|(of, _)| *of == kind).map(|(_, why)| why.as_str())
}

fn words(kind: AuditKind) -> &'static str {
    match kind {
        AuditKind::ProcessCrash => "process crash",
        AuditKind::PowerCut => "power cut",
    }
}

fn losses(rounds: &[AuditRound]) -> String {
    let sum = |of: &dyn Fn(&AuditRound) -> u64| rounds.iter().map(of).sum::<u64>();
    let (acknowledged, lost) = (sum(&|round| round.acknowledged), sum(&|round| round.lost));
    let mut text = format!("{} of {} lost", thousands(lost as f64), thousands(acknowledged as f64));
    let window = rounds.iter().map(|round| round.lost_window_s).fold(0.0, f64::max);
    if lost > 0 {
        text.push_str(&format!(", at most the last {window:.2} s"));
    }
    let dead = rounds.iter().filter(|round| round.failure.is_some()).count();
    if dead > 0 {
        text.push_str(&format!(", {dead} time{} no server came up again", if dead == 1 { "" } else { "s" }));
    }
    let torn = rounds.iter().filter(|round| round.failure.is_none() && !round.is_consistent()).count();
    if torn > 0 {
        text.push_str(&format!(", {torn} time{} with torn data", if torn == 1 { "" } else { "s" }));
    }
    text
}

fn not_audited(study: &StudyReport, run: &RunView, server: &ServerFacts) -> String {
    if server.audit_command.is_empty() && run.build.is_some() {
        return "not audited: recorded by a version that did not keep what decides it".to_owned();
    }
    if server.audit_command.is_empty() {
        return "not audited: a server that Plimsoll did not start is not killed".to_owned();
    }
    let newest = study.newest().map(|view| std::path::Path::new(&view.file));
    let place = newest.and_then(std::path::Path::parent).map(|dir| dir.display().to_string());
    // The default place needs no word.
    let place = place.filter(|dir| dir != "plimsoll-results" && !dir.is_empty());
    let place = place.map_or_else(String::new, |dir| format!(" --results {dir}"));
    format!("not audited: run `{}{place}`", server.audit_command)
}

/// One line for each audit and way of going down, newest last.
pub(crate) fn audits(study: &StudyReport) -> Vec<Value> {
    let mut lines = Vec::new();
    for view in &study.audits {
        let start = &view.audit.start;
        for promise in &start.promises {
            let rounds = view.audit.rounds_of(promise.kind);
            let why = gap(view, promise.kind);
            if rounds.is_empty() && why.is_none() {
                continue;
            }
            let deciding: Vec<String> =
                start.deciding.iter().map(|(name, value)| format!("{name}={value}")).collect();
            lines.push(json!({
                "server": start.server,
                "build": view.build.identity,
                "class": start.class,
                "settings": deciding.join(" "),
                "way": words(promise.kind),
                "promise": promise.text,
                "rounds": rounds,
                "not_done": why,
                "acknowledged": rounds.iter().map(|round| round.acknowledged).sum::<u64>(),
                "lost": rounds.iter().map(|round| round.lost).sum::<u64>(),
                "lost_window_s": rounds.iter().map(|round| round.lost_window_s).fold(0.0, f64::max),
                "recovery_s_max": rounds.iter().filter_map(|round| round.recovery_s).fold(0.0, f64::max),
                "verdict": verdict(view, promise.kind),
                "verdict_text": verdict(view, promise.kind).map_or("not audited", AuditVerdict::word),
                "sessions": start.sessions,
                "seed": start.seed,
                "at": time_text(start.started_at_ms),
                "plimsoll": start.plimsoll_version,
            }));
        }
    }
    lines
}
