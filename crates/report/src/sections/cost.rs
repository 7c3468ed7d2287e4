//! What each set of settings costs against the one that the study compares with.

use serde_json::Value;
use store::INTERVENE;

use super::{Cell, Section, Table, groups, name, ratio, values_of};
use crate::model::StudyReport;
use crate::text::value_text;
use crate::wishes::Wishes;

/// What has a cost: the axis, and the caption of its table.
const AXES: [(&str, &str); 2] = [("settings", ""), (INTERVENE, "What was switched on and off within a life")];

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let tables: Vec<Table> =
        AXES.into_iter().filter_map(|(axis, caption)| table(study, axis, caption)).collect();
    let base = value_text(&base(study, "settings")?);
    (!tables.is_empty()).then(|| Section {
        id: "cost",
        title: "What the settings cost",
        hint: format!(
            "Change of throughput against {base}, with the 95 % interval over the blocks where there are at least three. \
             Where the study compares settings, the verdicts below take the number of comparisons into account."
        ),
        tables,
        ..Section::default()
    })
}

/// The value of an axis that the others are held against.
fn base(study: &StudyReport, axis: &str) -> Option<Value> {
    let comparisons = &study.newest()?.record.study.comparisons;
    let values = values_of(study, axis);
    let base = comparisons.iter().find(|c| c.axis == axis).map(|c| c.base.clone());
    base.filter(|base| values.contains(base)).or_else(|| values.first().cloned())
}

fn table(study: &StudyReport, axis: &str, caption: &str) -> Option<Table> {
    let (values, base) = (values_of(study, axis), base(study, axis)?);
    let others = || values.iter().filter(|other| **other != base);
    let mut rows = Vec::new();
    for (key, points) in groups(study, &[axis]) {
        let of = |wanted| points.iter().copied().find(|point| point.identity.get(axis) == Some(wanted));
        let Some(start) = of(&base) else { continue };
        let tps = Cell::number("tps", start.tps.map(|tps| tps.median));
        let mut cells = vec![name(study, &key, &[]).into(), tps];
        let named = |other| format!("{axis}={}", value_text(other));
        let change = |other| Some(ratio(study, start, of(other)?, "tps")?.cell(&named(other)));
        let changes: Vec<Option<Cell>> = others().map(change).collect();
        // A cell without any other value (excluded, or none ran) has no cost.
        if changes.iter().any(Option::is_some) {
            cells.extend(changes.into_iter().map(|change| change.unwrap_or_else(Cell::dash)));
            rows.push(cells);
        }
    }
    rows.extend(published_rows(study, axis, &values, &base));
    let start = if axis == INTERVENE { "without".to_owned() } else { format!("with {}", value_text(&base)) };
    let mut heads = vec!["Cell".to_owned(), format!("TPS {start}")];
    heads.extend(others().map(value_text));
    (values.len() > 1 && !rows.is_empty()).then(|| Table {
        id: if axis == INTERVENE { "states" } else { "settings" },
        caption: caption.to_owned(),
        heads,
        words: 1,
        rows,
        notes: Vec::new(),
    })
}

/// Published changes of throughput by the same values.
fn published_rows(study: &StudyReport, axis: &str, settings: &[Value], base: &Value) -> Vec<Vec<Cell>> {
    let figures = study.references.iter().filter(|reference| reference.metric == "cost");
    figures
        .filter(|figure| figure.key.get(axis).is_some_and(|known| settings.contains(known)))
        .map(|figure| {
            let series = format!("published {}: {}", figure.year, figure.series);
            let mut row = vec![series.into(), Cell::dash()];
            row.extend(settings.iter().filter(|other| *other != base).map(|other| {
                let is_this = figure.key.get(axis) == Some(other);
                if is_this { format!("{:+.1} %", figure.value).into() } else { Cell::dash() }
            }));
            row
        })
        .collect()
}
