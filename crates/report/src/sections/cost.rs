//! What each set of settings costs against the one that the study compares with.

use serde_json::Value;

use super::{Section, Table, dash, groups, name, ratio, values_of};
use crate::model::StudyReport;
use crate::text::{number, value_text};
use crate::wishes::Wishes;

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let comparisons = &study.newest()?.record.study.comparisons;
    let settings = values_of(study, "settings");
    let base = comparisons.iter().find(|c| c.axis == "settings").map(|c| c.base.clone());
    let base = base.filter(|base| settings.contains(base)).or_else(|| settings.first().cloned())?;
    let mut rows = Vec::new();
    for (key, points) in groups(study, &["settings"]) {
        let of = |wanted| points.iter().copied().find(|point| point.identity.get("settings") == Some(wanted));
        let Some(start) = of(&base) else { continue };
        let mut cells = vec![name(study, &key, &[]), dash(start.tps.map(|tps| number(tps.median)))];
        let changes: Vec<Option<String>> = settings
            .iter()
            .filter(|other| **other != base)
            .map(|other| Some(ratio(study, start, of(other)?, "tps")?.change()))
            .collect();
        // A cell without any other setting (excluded, or none ran) has no cost.
        if changes.iter().any(Option::is_some) {
            cells.extend(changes.into_iter().map(dash));
            rows.push(cells);
        }
    }
    rows.extend(published_rows(study, &settings, &base));
    let mut heads = vec!["Cell".to_owned(), format!("TPS with {}", value_text(&base))];
    heads.extend(settings.iter().filter(|other| **other != base).map(value_text));
    let table = Table { caption: String::new(), heads, words: 1, rows, notes: Vec::new() };
    (settings.len() > 1 && !table.rows.is_empty()).then(|| Section {
        drawings: Vec::new(),
        id: "cost",
        title: "What the settings cost",
        hint: format!(
            "Change of throughput against {}, with the 95 % interval over the blocks where there are at least three. \
             Where the study compares settings, the verdicts below take the number of comparisons into account.",
            value_text(&base)
        ),
        charts: Vec::new(),
        tables: vec![table],
    })
}

/// Published changes of throughput by the same settings.
fn published_rows(study: &StudyReport, settings: &[Value], base: &Value) -> Vec<Vec<String>> {
    let figures = study.references.iter().filter(|reference| reference.metric == "cost");
    figures
        .filter(|figure| figure.key.get("settings").is_some_and(|known| settings.contains(known)))
        .map(|figure| {
            let mut row = vec![format!("published {}: {}", figure.year, figure.series), dash(None)];
            row.extend(settings.iter().filter(|other| *other != base).map(|other| {
                let is_this = figure.key.get("settings") == Some(other);
                dash(is_this.then(|| format!("{:+.1} %", figure.value)))
            }));
            row
        })
        .collect()
}
