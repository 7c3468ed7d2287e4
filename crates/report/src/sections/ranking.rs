//! Where more than two values are compared: their order at each load level.

use super::{Section, Table, dash};
use crate::model::{RankingView, StudyReport};
use crate::ranking::HINT;
use crate::text::{metric_name, number};

pub(super) fn section(study: &StudyReport) -> Option<Section> {
    let tables: Vec<Table> = study.rankings.iter().map(table).collect();
    (!tables.is_empty()).then(|| Section {
        id: "ranking",
        title: "Ranking",
        hint: HINT.to_owned(),
        charts: Vec::new(),
        tables,
    })
}

fn table(ranking: &RankingView) -> Table {
    let metric = metric_name(&ranking.metric);
    let caption = if ranking.at.is_empty() { metric } else { format!("{metric}, {}", ranking.at) };
    let mut heads = vec![ranking.axis.clone()];
    heads.extend(ranking.levels.iter().map(|level| match level.sessions {
        1 => "1 session".to_owned(),
        sessions => format!("{sessions} sessions"),
    }));
    let rows = ranking
        .rows(number)
        .into_iter()
        .map(|(label, cells)| std::iter::once(label).chain(cells.into_iter().map(dash)).collect())
        .collect();
    let notes = match ranking.has_groups() {
        true => Vec::new(),
        false => vec!["Too few blocks to tell values apart: an order without groups.".to_owned()],
    };
    Table { caption, heads, words: 1, rows, notes }
}
