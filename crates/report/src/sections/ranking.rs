//! Where more than two values are compared: their order at each load level.

use std::collections::BTreeSet;

use super::{Section, Table, dash};
use crate::model::{RankingView, StudyReport};
use crate::ranking::HINT;
use crate::text::{metric_name, number};

pub(super) fn section(study: &StudyReport) -> Option<Section> {
    let is_alike = |a: &RankingView, b: &RankingView| (&a.metric, &a.axis) == (&b.metric, &b.axis);
    let tables: Vec<Table> = study.rankings.chunk_by(is_alike).map(table).collect();
    (!tables.is_empty()).then(|| Section {
        id: "ranking",
        title: "Ranking",
        hint: HINT.to_owned(),
        tables,
        ..Section::default()
    })
}

/// Rankings of one axis by one metric, one below the other.
fn table(rankings: &[RankingView]) -> Table {
    let has_at = rankings.iter().any(|ranking| !ranking.at.is_empty());
    let first = &rankings[0];
    let mut heads: Vec<String> = has_at.then(|| "On".to_owned()).into_iter().collect();
    heads.push(first.axis.clone());
    let levels: BTreeSet<u32> =
        rankings.iter().flat_map(|ranking| &ranking.levels).map(|level| level.sessions).collect();
    heads.extend(levels.iter().map(|level| store::counted(*level, "session")));
    let words = if has_at { 2 } else { 1 };
    let rows = rankings.iter().flat_map(|ranking| {
        let places: Vec<Option<usize>> = levels
            .iter()
            .map(|level| ranking.levels.iter().position(|known| known.sessions == *level))
            .collect();
        ranking.rows(number).into_iter().enumerate().map(move |(at, (label, cells))| {
            // Said once for the rows below it.
            let place = if at == 0 { ranking.at.clone() } else { String::new() };
            let mut row: Vec<String> = has_at.then_some(place).into_iter().collect();
            row.push(label);
            row.extend(places.iter().map(|place| dash(place.and_then(|place| cells[place].clone()))));
            row.into_iter().map(Into::into).collect()
        })
    });
    let notes = match rankings.iter().any(RankingView::has_groups) {
        true => Vec::new(),
        false => vec!["Too few blocks to tell values apart: an order without groups.".to_owned()],
    };
    Table { id: "ranking", caption: metric_name(&first.metric), heads, words, rows: rows.collect(), notes }
}
