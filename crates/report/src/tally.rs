//! How many runs and blocks a study has, in words for its head.

use std::collections::BTreeSet;

use store::counted;

use crate::model::{RunView, Standing, StudyReport};

/// `48 of 48 planned runs counted; 2 invalid. 6 blocks.` Of a study that ends when its questions are decided, what was planned
/// is the most that it would have made: `48 runs counted. 6 blocks, 12 at most.`
pub(crate) fn told(study: &StudyReport) -> String {
    let count = |standing: Standing| study.runs.iter().filter(|run| run.standing == standing).count();
    let planned: u32 = study.records.iter().map(|view| view.record.study.runs).sum();
    let is_watched = study
        .records
        .iter()
        .any(|view| view.record.study.comparisons.iter().any(|comparison| comparison.is_watched));
    let runs = match (planned, is_watched) {
        // Runs that were kept without a plan are a study of their own, and none of them can be missing.
        (0, _) | (_, true) => counted(count(Standing::Counted), "run"),
        (planned, false) => format!("{} of {planned} planned runs", count(Standing::Counted)),
    };
    let others: String = [
        Standing::Invalid,
        Standing::Failed,
        Standing::Interrupted,
        Standing::Running,
        Standing::Superseded,
        Standing::LockPass,
    ]
    .into_iter()
    .filter(|standing| count(*standing) > 0)
    .map(|standing| format!("; {} {}", count(standing), standing.word()))
    .collect();
    let blocks = match planned {
        0 => String::new(),
        _ => format!(" {}.", blocks(study, is_watched)),
    };
    format!("{runs} counted{others}.{blocks}")
}

fn blocks(study: &StudyReport, is_watched: bool) -> String {
    let planned = study.blocks_planned();
    if !is_watched {
        return counted(planned, "block");
    }
    let of_runs = |run: &&RunView| run.standing == Standing::Counted;
    let made: BTreeSet<u32> = study.runs.iter().filter(of_runs).map(|run| run.block).collect();
    format!("{}, {planned} at most", counted(made.len(), "block"))
}
