//! The tables of verdicts.

use serde_json::{Value, json};

use crate::drawing::{RatioScale, ratio_axis, ratio_interval};
use crate::model::{StudyReport, VerdictView};
use crate::order::distinct;
use crate::text::{metric_name, p_value, percent, ratio, ratio_ends, would_decide};

pub(super) fn verdict_tables(study: &StudyReport) -> Vec<Value> {
    distinct(study.verdicts.iter().map(|verdict| verdict.metric.as_str()))
        .into_iter()
        .map(|metric| {
            let all: Vec<&VerdictView> = study.verdicts.iter().filter(|v| v.metric == metric).collect();
            // Without a valid run on both sides there is nothing to draw: they are counted below the table.
            let rows: Vec<&VerdictView> = all.iter().copied().filter(|v| v.result.ratio.is_some()).collect();
            let ends = rows.iter().flat_map(|v| [v.result.ratio, v.result.low, v.result.high]).flatten();
            let scale = RatioScale::of(ends);
            // What is unequal in every row is said once.
            let common: Vec<&String> = rows
                .first()
                .map_or(&[][..], |row| &row.flags)
                .iter()
                .filter(|flag| rows.iter().all(|row| row.flags.contains(flag)))
                .collect();
            let bases: std::collections::BTreeSet<&str> =
                rows.iter().map(|row| row.base_label.as_str()).collect();
            json!({
                "metric": metric_name(metric),
                "base": if bases.len() == 1 { bases.first() } else { None },
                "axis": ratio_axis(scale),
                "missing": all.len() - rows.len(),
                // Why there is nothing to compare, or less than there could be: each reason once.
                "absent": distinct(all.iter().flat_map(|verdict| &verdict.absent)),
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
    let class = if judged { result.verdict.word() } else { "undecided" };
    let sessions = match &verdict.climb {
        Some(_) => "whole climb".to_owned(),
        None => study.points[verdict.other].sessions.to_string(),
    };
    // That there are too few blocks stands in the word, and how many there are and should be beside it.
    let reason =
        result.reason.filter(|reason| *reason != stats::Reason::TooFewBlocks).map(stats::Reason::sentence);
    let is_last = result.method == stats::Method::LastLook;
    json!({
        "base": verdict.base_label, "other": verdict.other_label, "at": verdict.at, "sessions": sessions,
        "base_id": study.points[verdict.base].id, "other_id": study.points[verdict.other].id,
        "n": result.n, "margin": percent(verdict.margin),
        "ratio": result.ratio.map(ratio),
        "interval": interval.map(ratio_ends),
        "confidence": result.confidence.map(percent),
        "p": result.p_adjusted.map(p_value),
        "word": verdict.word(), "class": class,
        "needed": result.blocks_needed.map(|blocks| would_decide(blocks, result.n)),
        "reason": reason,
        "last_look": is_last.then_some("judged by the last look, when the study was over"),
        "flags": verdict.flags.iter().filter(|flag| !common.contains(flag)).collect::<Vec<_>>(),
        "doubts": verdict.doubts,
        "marks": verdict.marks.iter().cloned().chain(verdict.lost_text()).collect::<Vec<_>>(),
        "drawing": result.ratio.map(|r| ratio_interval(scale, r, interval, verdict.margin, class)),
    })
}
