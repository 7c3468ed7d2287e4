//! Queries per second by load level, their mean from some level up, and what more cpus bring: the tables of the
//! server tests of 2005 and 2006.

use serde_json::Value;

use super::{Cell, Section, Table, dash, groups, heads, name, values_of};
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
        .map(|(key, points)| table(study, name(study, &key, &[]), &points, &levels, from))
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

fn table(study: &StudyReport, caption: String, points: &[&Point], levels: &[u32], from: u32) -> Table {
    let cpus = values_of(study, "cpus");
    let mut columns: Vec<(String, Vec<Option<f64>>)> = Vec::new();
    let mut speed_ups: Vec<Option<f64>> = Vec::new();
    for server in values_of(study, "server") {
        let mut first_mean = None;
        let of_server: Vec<&&Point> =
            points.iter().filter(|p| p.identity.get("server") == Some(&server)).collect();
        let choices = if cpus.is_empty() { vec![None] } else { cpus.iter().map(Some).collect() };
        for choice in choices {
            let of = |level: u32| {
                let point = of_server.iter().find(|point| {
                    point.sessions == level && (choice.is_none() || point.identity.get("cpus") == choice)
                })?;
                point.qps.map(|qps| qps.median)
            };
            let values: Vec<Option<f64>> = levels.iter().map(|level| of(*level)).collect();
            if values.iter().all(Option::is_none) {
                continue;
            }
            let mean = mean_from(levels, &values, from);
            let before: Option<f64> = *first_mean.get_or_insert(mean);
            let gain = before.zip(mean).filter(|(before, mean)| before != mean);
            speed_ups.push(gain.map(|(before, mean)| mean / before));
            let cpus = choice.map_or_else(String::new, |cpus| format!(", {} cpus", value_text(cpus)));
            columns.push((format!("{}{cpus}", value_text(&server)), values));
        }
    }
    let mut heads = vec!["Sessions".to_owned()];
    heads.extend(columns.iter().map(|(head, _)| head.clone()));
    let row = |of: String, cells: &dyn Fn(&str, &[Option<f64>]) -> Cell| -> Vec<Cell> {
        let cells = columns.iter().map(|(head, values)| cells(head, values));
        std::iter::once(of.into()).chain(cells).collect()
    };
    let at_level = |at: usize, level: &u32| row(level.to_string(), &|head, of| Cell::number(head, of[at]));
    let mut rows: Vec<Vec<Cell>> = levels.iter().enumerate().map(|(at, level)| at_level(at, level)).collect();
    let mean = |head: &str, of: &[Option<f64>]| Cell::number(head, mean_from(levels, of, from));
    rows.push(row(format!("mean from {from} up"), &mean));
    if speed_ups.iter().any(Option::is_some) {
        let gains =
            columns.iter().zip(&speed_ups).map(|((head, _), gain)| Cell::written(head, *gain, gain_text));
        rows.push(std::iter::once("speed-up".into()).chain(gains).collect());
    }
    Table { id: "levels", caption, heads, words: 1, rows, notes: Vec::new() }
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
