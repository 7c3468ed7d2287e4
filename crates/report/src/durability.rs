//! What a commit survives: the class that the settings promise, and what audits of the same build with the same
//! settings found.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};
use stats::binomial::CONFIDENCE;
use store::{AuditKind, AuditPromise, AuditRound, AuditVerdict, ServerFacts};

use crate::load::label_or;
use crate::model::{AuditView, RunView, StudyReport};
use crate::text::{thousands, time_text};

/// What audits say of a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Finding {
    /// What the settings promise to keep was kept in every round, of each way of going down.
    Consistent,
    /// It was kept, but not each way of going down was tried.
    PartlyChecked,
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
    /// `full`, `process-crash`, `lossy`, `corruptible`, `volatile`.
    pub(crate) class: String,
    /// What the class means.
    pub(crate) why: String,
    /// What audits say.
    pub(crate) finding: Finding,
    /// The same in a sentence, with the figures or the command line that audits.
    pub(crate) text: String,
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
            let label = label_or(&point.identity, &study.varying, &["sessions", "workload"], &server.name);
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

/// Of data in memory, whatever the settings promise.
const VOLATILE: &str = "volatile";

/// Runs of versions that took the class from the settings alone: data in memory are volatile.
pub(crate) fn of_place(server: &mut ServerFacts) {
    let filesystem = server.storage.get("filesystem").map(String::as_str);
    if matches!(filesystem, Some("tmpfs" | "ramfs")) && !server.durability_class.is_empty() {
        VOLATILE.clone_into(&mut server.durability_class);
        "the data directory is in memory: everything is lost when the machine dies, whatever the settings say"
            .clone_into(&mut server.durability_why);
    }
}

/// What audits say of one run's server.
pub(crate) fn finding(study: &StudyReport, run: &RunView, server: &ServerFacts) -> (Finding, String) {
    let audits: Vec<&AuditView> = study.audits.iter().filter(|view| speaks_for(view, run, server)).collect();
    let mut found = Vec::new();
    let mut ways_checked = 0;
    let mut is_contradicted = false;
    let is_volatile = server.durability_class == VOLATILE;
    let ways: &[Way] = if is_volatile { &[Way::ProcessCrash] } else { &Way::ALL };
    for &way in ways {
        let checked = Checked::of(&audits, way);
        if checked.rounds.is_empty() {
            // The power cut of before is not missed.
            if way != Way::PowerCutKept && !audits.is_empty() {
                let why = audits.iter().find_map(|view| gap(view, way.kind()));
                let why = why.map_or_else(String::new, |why| format!(": {why}"));
                found.push(format!("{}: not checked{why}", way.words()));
            }
            continue;
        }
        ways_checked += usize::from(way != Way::PowerCutKept);
        is_contradicted |= checked.broken > 0;
        found.push(checked.text(way));
    }
    if audits.iter().all(|view| view.audit.rounds.is_empty()) {
        return (Finding::NotAudited, not_audited(study, run, server));
    }
    let finding = match (is_contradicted, ways_checked) {
        (true, _) => Finding::Contradicted,
        (false, 2) => Finding::Consistent,
        // There is no disk whose power could be cut.
        (false, 1) if is_volatile => Finding::Consistent,
        (false, _) => Finding::PartlyChecked,
    };
    (finding, found.join("; "))
}

/// How a server went down, and what its disk then kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    ProcessCrash,
    PowerCut,
    /// As versions recorded it whose disk kept all that it had been handed.
    PowerCutKept,
}

impl Way {
    const ALL: [Way; 3] = [Way::ProcessCrash, Way::PowerCut, Way::PowerCutKept];

    fn kind(self) -> AuditKind {
        match self {
            Way::ProcessCrash => AuditKind::ProcessCrash,
            Way::PowerCut | Way::PowerCutKept => AuditKind::PowerCut,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Way::ProcessCrash => "process crash",
            Way::PowerCut => "power cut",
            Way::PowerCutKept => "power cut of a disk that keeps what was not flushed",
        }
    }

    fn is_of(self, round: &AuditRound) -> bool {
        match self {
            Way::ProcessCrash => true,
            Way::PowerCut => round.unflushed.is_some(),
            Way::PowerCutKept => round.unflushed.is_none(),
        }
    }
}

/// All rounds of one way of going down, of audits that promise the same.
struct Checked {
    rounds: Vec<AuditRound>,
    promise: String,
    can_be_broken: bool,
    broken: u64,
}

impl Checked {
    fn of(audits: &[&AuditView], way: Way) -> Checked {
        let mut checked =
            Checked { rounds: Vec::new(), promise: String::new(), can_be_broken: true, broken: 0 };
        for view in audits {
            let Some(promise) = promise(view, way.kind()) else { continue };
            for round in view.audit.rounds_of(way.kind()).into_iter().filter(|round| way.is_of(round)) {
                checked.broken += u64::from(promise.is_broken_by(&round));
                checked.promise.clone_from(&promise.text);
                checked.can_be_broken = promise.can_be_broken();
                checked.rounds.push(round);
            }
        }
        checked
    }

    fn text(&self, way: Way) -> String {
        let count = self.rounds.len() as u64;
        let rounds = store::counted(count, "round");
        let losses = losses(&self.rounds);
        if self.broken > 0 {
            let of = format!("in {} of {rounds}", self.broken);
            return format!("{}: contradicted {of} ({losses})", way.words());
        }
        if !self.can_be_broken {
            return format!("{}: {} in {rounds} ({losses})", way.words(), self.promise);
        }
        let bound = stats::binomial::upper_bound(self.broken, count, CONFIDENCE);
        format!(
            "{}: consistent with \"{}\" in {rounds} ({losses}; at most {:.0} % of such crashes break it, {:.0} % \
             confidence)",
            way.words(),
            self.promise,
            bound * 100.0,
            CONFIDENCE * 100.0
        )
    }
}

/// The same build with the same deciding settings, and an engine that they are about.
fn speaks_for(view: &AuditView, run: &RunView, server: &ServerFacts) -> bool {
    let start = &view.audit.start;
    run.build.as_ref().is_some_and(|build| build.identity == view.build.identity)
        && !start.deciding.is_empty()
        && start.deciding == server.deciding
        && server.engine.starts_with(&start.engine)
}

fn promise(view: &AuditView, kind: AuditKind) -> Option<&AuditPromise> {
    view.audit.start.promises.iter().find(|promise| promise.kind == kind)
}

fn gap(view: &AuditView, kind: AuditKind) -> Option<&str> {
    view.audit.not_done.iter().find(|(of, _)| *of == kind).map(|(_, why)| why.as_str())
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

/// `innodb_flush_log_at_trx_commit=1 sync_binlog=1`.
pub(crate) fn deciding(settings: &BTreeMap<String, String>) -> String {
    settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// One line for each audit and way of going down, newest last.
pub(crate) fn audits(study: &StudyReport) -> Vec<Value> {
    let mut lines = Vec::new();
    for view in &study.audits {
        let start = &view.audit.start;
        for (way, promise) in Way::ALL.iter().filter_map(|way| Some((way, promise(view, way.kind())?))) {
            let mut rounds = view.audit.rounds_of(promise.kind);
            rounds.retain(|round| way.is_of(round));
            let why = gap(view, promise.kind).filter(|_| *way != Way::PowerCutKept);
            if rounds.is_empty() && why.is_none() {
                continue;
            }
            let verdict = AuditVerdict::of(promise, &rounds);
            let broken = rounds.iter().filter(|round| promise.is_broken_by(round)).count() as u64;
            let bound = (promise.can_be_broken() && !rounds.is_empty())
                .then(|| stats::binomial::upper_bound(broken, rounds.len() as u64, CONFIDENCE));
            lines.push(json!({
                "server": start.server,
                "build": view.build.identity,
                "class": start.class,
                "settings": deciding(&start.deciding),
                "way": way.words(),
                "promise": promise.text,
                "rounds": rounds,
                "not_done": why,
                "acknowledged": rounds.iter().map(|round| round.acknowledged).sum::<u64>(),
                "lost": rounds.iter().map(|round| round.lost).sum::<u64>(),
                "lost_window_s": rounds.iter().map(|round| round.lost_window_s).fold(0.0, f64::max),
                "recovery_s_max": rounds.iter().filter_map(|round| round.recovery_s).fold(0.0, f64::max),
                "verdict": verdict,
                "verdict_text": verdict.map_or("not checked", AuditVerdict::word),
                "broken_rounds": broken,
                "broken_share_at_most": bound,
                "unflushed_bytes": rounds.iter().map(|round| round.unflushed_bytes).sum::<u64>(),
                "dropped_bytes": rounds.iter().map(|round| round.dropped_bytes).sum::<u64>(),
                "sessions": start.sessions,
                "seed": start.seed,
                "at": time_text(start.started_at_ms),
                "plimsoll": start.plimsoll_version,
                "doubt": start.doubt,
            }));
        }
    }
    lines
}
