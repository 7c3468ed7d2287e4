//! Queries per second by load level, their mean from some level up, and what more cpus bring: the tables of the
//! server tests of 2005 and 2006.

use std::collections::BTreeMap;

use serde_json::Value;
use stats::Sample;

use super::{Cell, Ratio, Section, Table, dash, groups, heads, name, ratio_of, values_of};
use crate::model::{Point, StudyReport};
use crate::text::{number, value_text};
use crate::wishes::Wishes;

/// Levels below are left out of the mean where the study does not say.
const MEAN_FROM: u32 = 5;

pub(super) fn section(study: &StudyReport, wishes: &Wishes) -> Option<Section> {
    let from = wishes.mean_from.unwrap_or(MEAN_FROM);
    let mut levels: Vec<u32> = study.points.iter().map(|point| point.sessions).collect();
    levels.sort_unstable();
    levels.dedup();
    if !levels.iter().any(|level| *level >= from) {
        return None;
    }
    let mut tables: Vec<Table> = groups(study, &["server", "cpus", "sessions"])
        .into_iter()
        .flat_map(|(key, points)| tables(study, name(study, &key, &[]), &points, &levels, from))
        .collect();
    tables.extend(published(study, from));
    Some(Section {
        id: "levels",
        title: "Queries per second by load level",
        hint: format!(
            "Medians of the counted runs by number of sessions. The headline is the mean of the levels from {from} up; \
             the speed-up compares it with that of the fewest cpus."
        ),
        tables,
        ..Section::default()
    })
}

/// A server with a number of cpus.
struct Column {
    head: String,
    /// Queries per second by level.
    values: Vec<Option<f64>>,
    mean: Option<f64>,
    /// Over the mean with the fewest cpus.
    speed_up: Option<f64>,
    by_blocks: Option<Ratio>,
}

fn tables(study: &StudyReport, caption: String, points: &[&Point], levels: &[u32], from: u32) -> Vec<Table> {
    let columns: Vec<Column> = values_of(study, "server")
        .iter()
        .flat_map(|server| {
            let is_of = |point: &&Point| point.identity.get("server") == Some(server);
            let of_server: Vec<&Point> = points.iter().copied().filter(is_of).collect();
            columns_of(study, &value_text(server), &of_server, levels, from)
        })
        .collect();
    let mut heads = vec!["Sessions".to_owned()];
    heads.extend(columns.iter().map(|column| column.head.clone()));
    let row = |of: String, cell: &dyn Fn(&Column) -> Cell| -> Vec<Cell> {
        std::iter::once(of.into()).chain(columns.iter().map(cell)).collect()
    };
    let at_level = |at: usize, level: &u32| {
        row(level.to_string(), &|column| Cell::number(&column.head, column.values[at]))
    };
    let mut rows: Vec<Vec<Cell>> = levels.iter().enumerate().map(|(at, level)| at_level(at, level)).collect();
    rows.push(row(format!("mean from {from} up"), &|column| Cell::number(&column.head, column.mean)));
    if columns.iter().any(|column| column.speed_up.is_some()) {
        rows.push(row("speed-up".into(), &|column| Cell::written(&column.head, column.speed_up, gain_text)));
    }
    let by_blocks =
        |column: &Column| Some(vec![column.head.as_str().into(), column.by_blocks.as_ref()?.cell("change")]);
    let speed_ups = Table {
        id: "speed_ups",
        caption: format!(
            "Speed-up of the mean from {from} up, by the blocks that have all of its levels{}{caption}",
            if caption.is_empty() { "" } else { ": " }
        ),
        heads: super::heads("Server | Change"),
        words: 1,
        rows: columns.iter().filter_map(by_blocks).collect(),
        notes: Vec::new(),
    };
    let levels = Table { id: "levels", caption, heads, words: 1, rows, notes: Vec::new() };
    if speed_ups.rows.is_empty() { vec![levels] } else { vec![levels, speed_ups] }
}

/// A server's columns, the fewest cpus first.
fn columns_of(
    study: &StudyReport,
    server: &str,
    points: &[&Point],
    levels: &[u32],
    from: u32,
) -> Vec<Column> {
    let cpus = values_of(study, "cpus");
    let choices = if cpus.is_empty() { vec![None] } else { cpus.iter().map(Some).collect() };
    let mut columns: Vec<Column> = Vec::new();
    let mut first: Option<(Option<f64>, Vec<Sample>)> = None;
    for choice in choices {
        let of = |level: &u32| {
            let is_it = |point: &&&Point| {
                point.sessions == *level && (choice.is_none() || point.identity.get("cpus") == choice)
            };
            points.iter().find(is_it).copied()
        };
        let at: Vec<Option<&Point>> = levels.iter().map(of).collect();
        let values: Vec<Option<f64>> = at.iter().map(|point| Some((*point)?.qps?.median)).collect();
        if values.iter().all(Option::is_none) {
            continue;
        }
        let mean = mean_from(levels, &values, from);
        let averaged: Option<Vec<&Point>> =
            at.iter().zip(levels).filter(|(_, level)| **level >= from).map(|(point, _)| *point).collect();
        let means = block_means(study, &averaged.unwrap_or_default());
        let cpus = choice.map_or_else(String::new, |cpus| format!(", {} cpus", value_text(cpus)));
        let (speed_up, by_blocks) = match &first {
            Some((before, of_blocks)) => (
                before.zip(mean).map(|(before, mean)| mean / before),
                ratio_of(study, of_blocks.clone(), means.clone()),
            ),
            None => (None, None),
        };
        first.get_or_insert((mean, means));
        columns.push(Column { head: format!("{server}{cpus}"), values, mean, speed_up, by_blocks });
    }
    columns
}

/// By block, the mean over points: of the blocks that have a run that counts at each of them.
fn block_means(study: &StudyReport, points: &[&Point]) -> Vec<Sample> {
    let mut by_block: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for sample in points.iter().flat_map(|point| study.samples(point, "qps")) {
        by_block.entry(sample.block).or_default().push(sample.value);
    }
    let whole = by_block.into_iter().filter(|(_, values)| values.len() == points.len());
    whole.filter_map(|(block, values)| Some(Sample { block, value: stats::mean(&values)? })).collect()
}

/// `+53 %` of a ratio.
fn gain_text(ratio: f64) -> String {
    format!("{:+.0} %", (ratio - 1.0) * 100.0)
}

/// The published headlines at half and at all cores, with their speed-up.
fn published(study: &StudyReport, from: u32) -> Option<Table> {
    let metric = format!("mean from {from} up");
    let headlines: Vec<_> = study.references.iter().filter(|figure| figure.metric == metric).collect();
    let of = |series: &str, cpus: &str| {
        let mut all = headlines.iter().filter(|figure| figure.series == series);
        all.find(|figure| figure.key.get("cpus").and_then(Value::as_str) == Some(cpus)).map(|f| f.value)
    };
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    for figure in &headlines {
        let series = format!("{} ({})", figure.series, figure.year);
        if rows.iter().any(|row| row[0].text == series) {
            continue;
        }
        let (half, all) = (of(&figure.series, "half"), of(&figure.series, "all"));
        let gain = half.zip(all).map(|(half, all)| gain_text(all / half));
        let texts = [half.map(number), all.map(number), gain];
        rows.push(std::iter::once(series).chain(texts.map(dash)).map(Cell::from).collect());
    }
    (!rows.is_empty()).then(|| Table {
        id: "published",
        caption: format!("Published: {metric}, at half and at all cores"),
        heads: heads("Server and machine | half | all | speed-up"),
        words: 1,
        rows,
        notes: vec![
            "Other machines and another catalogue: how the speed-up compares, not how the rates do."
                .to_owned(),
        ],
    })
}

/// `None` where a level is missing: a mean over other levels would not be the same figure.
fn mean_from(levels: &[u32], values: &[Option<f64>], from: u32) -> Option<f64> {
    let counted = levels.iter().zip(values).filter(|(level, _)| **level >= from);
    let values: Option<Vec<f64>> = counted.map(|(_, value)| *value).collect();
    stats::mean(&values?)
}

#[cfg(test)]
mod tests {
    use super::mean_from;

    #[test]
    fn the_headline_is_that_of_the_article() {
        let levels = [1, 2, 5, 10, 20, 35, 50];
        let values = [243.0, 357.0, 466.0, 505.0, 496.0, 508.0, 497.0].map(Some);
        assert!((mean_from(&levels, &values, 5).unwrap() - 494.4).abs() < 1e-9);
        let mut gap = values;
        gap[4] = None;
        assert_eq!(mean_from(&levels, &gap, 5), None);
        gap = values;
        gap[0] = None;
        assert!(mean_from(&levels, &gap, 5).is_some());
    }
}
