//! The order of more than two compared values at each load level, with groups that cannot be told apart.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use stats::{Design, Rules, Sample, rank_on};
use store::Comparison;

use crate::estimate::Estimate;
use crate::load::label;
use crate::model::{LevelRanking, Place, Point, RankingView, StudyReport, VerdictView};
use crate::order::{distinct, grouped};
use crate::verdict::better;

/// Two values have a verdict; an order begins with three.
const VALUES_MIN: usize = 3;

impl RankingView {
    /// It orders the sides of that comparison, and others.
    pub(crate) fn is_of(&self, verdict: &VerdictView) -> bool {
        (&self.metric, &self.axis, &self.at) == (&verdict.metric, &verdict.axis, &verdict.at)
    }

    /// A row for each value, the best on the mean of its places first: its label, and the figure at each level with the
    /// letters of its groups.
    pub fn rows(&self, number: fn(f64) -> String) -> Vec<(String, Vec<Option<String>>)> {
        let places = self.levels.iter().flat_map(|level| &level.places);
        let mut labels = distinct(places.map(|place| place.label.as_str()));
        let mean_place = |label: &str| {
            let of = |level: &LevelRanking| level.places.iter().position(|place| place.label == label);
            let places: Vec<f64> = self.levels.iter().filter_map(of).map(|place| place as f64).collect();
            stats::mean(&places).unwrap_or(f64::MAX)
        };
        labels.sort_by(|a, b| mean_place(a).total_cmp(&mean_place(b)));
        let cell = |level: &LevelRanking, label: &str| {
            let place = level.places.iter().find(|place| place.label == label)?;
            let figure = place.figure.map_or_else(|| "–".to_owned(), |figure| number(figure.median));
            Some(format!("{figure} {}", place.letters).trim_end().to_owned())
        };
        labels
            .iter()
            .map(|label| ((*label).to_owned(), self.levels.iter().map(|level| cell(level, label)).collect()))
            .collect()
    }

    /// Some level has groups.
    pub fn has_groups(&self) -> bool {
        self.levels.iter().flat_map(|level| &level.places).any(|place| !place.letters.is_empty())
    }
}

impl LevelRanking {
    /// Those in the first group, in the order of the study file.
    pub(crate) fn leading(&self) -> Vec<String> {
        let mut leading: Vec<&Place> =
            self.places.iter().filter(|place| place.letters.starts_with('a')).collect();
        leading.sort_by_key(|place| place.point);
        leading.into_iter().map(|place| place.label.clone()).collect()
    }
}

/// How to read the letters.
pub const HINT: &str = "Values that share a letter in a column cannot be told apart; those with an a are the best or not \
    told apart from it. Every pair is compared on the same blocks; Holm's procedure keeps the chance of any \
    false difference in a column at 5 %.";

/// The rankings that the comparisons of the newest record call for.
pub(crate) fn rankings(study: &StudyReport) -> Vec<RankingView> {
    let Some(newest) = study.newest() else { return vec![] };
    let mut rankings: Vec<RankingView> = Vec::new();
    for comparison in newest.record.study.comparisons.iter().filter(|one| one.axis != "sessions") {
        for metric in &comparison.metrics {
            for ranking in of_metric(study, comparison, metric) {
                let is_known = |known: &RankingView| {
                    (&known.metric, &known.axis, &known.at) == (&ranking.metric, &ranking.axis, &ranking.at)
                };
                if !rankings.iter().any(is_known) {
                    rankings.push(ranking);
                }
            }
        }
    }
    rankings
}

fn of_metric(study: &StudyReport, comparison: &Comparison, metric: &str) -> Vec<RankingView> {
    let of_axis = |(_, point): &(usize, &Point)| point.identity.contains_key(&comparison.axis);
    let cells = grouped(study.points.iter().enumerate().filter(of_axis).map(|(index, point)| {
        let mut key = point.identity.clone();
        key.remove(&comparison.axis);
        (key, index)
    }));
    let mut rankings: Vec<RankingView> = Vec::new();
    for (_, points) in cells.into_iter().filter(|(_, points)| points.len() >= VALUES_MIN) {
        let first = &study.points[points[0]];
        let at = label(&first.identity, &study.varying, &[&comparison.axis, "sessions"]);
        let level = level(study, comparison, metric, &points);
        if level.places.len() < VALUES_MIN {
            continue;
        }
        match rankings.iter_mut().find(|known| known.at == at) {
            Some(known) => known.levels.push(level),
            None => rankings.push(RankingView {
                metric: metric.to_owned(),
                axis: comparison.axis.clone(),
                at,
                levels: vec![level],
            }),
        }
    }
    for ranking in &mut rankings {
        ranking.levels.sort_by_key(|level| level.sessions);
    }
    rankings
}

fn level(study: &StudyReport, comparison: &Comparison, metric: &str, points: &[usize]) -> LevelRanking {
    let of = |at: &usize| &study.points[*at];
    let sides: Vec<Vec<Sample>> = points.iter().map(|at| study.samples(of(at), metric)).collect();
    let figure =
        |side: usize| Estimate::of(&sides[side].iter().map(|sample| sample.value).collect::<Vec<_>>());
    let design = if comparison.is_watched { Design::Watched } else { Design::Fixed };
    let places = rank_on(&sides, better(metric), &study.nodes(), &Rules { design, ..Rules::default() })
        .into_iter()
        .map(|ranked| Place {
            point: points[ranked.side],
            label: label(&of(&points[ranked.side]).identity, std::slice::from_ref(&comparison.axis), &[]),
            figure: figure(ranked.side),
            letters: ranked.letters(),
        })
        .collect();
    LevelRanking { sessions: of(&points[0]).sessions, places }
}

/// For the JSON: one entry for each ranking and load level.
pub(crate) fn json_lines(study: &StudyReport) -> Vec<Value> {
    let line = |ranking: &RankingView, level: &LevelRanking| {
        let places: Vec<Value> = level
            .places
            .iter()
            .map(|place| {
                let groups: BTreeSet<String> = place.letters.chars().map(String::from).collect();
                json!({"cell": study.points[place.point].key, "value": place.label,
                       "median": place.figure.map(|figure| figure.median), "groups": groups})
            })
            .collect();
        json!({"study": study.name, "metric": ranking.metric, "axis": ranking.axis, "at": ranking.at,
               "sessions": level.sessions, "alpha": Rules::default().alpha, "method": "holm",
               "places": places})
    };
    let all = study.rankings.iter();
    all.flat_map(|ranking| ranking.levels.iter().map(move |level| line(ranking, level))).collect()
}

impl StudyReport {
    /// The load levels, ascending.
    pub(crate) fn ladder(&self) -> Vec<u32> {
        let levels: BTreeSet<u32> = self.points.iter().map(|point: &Point| point.sessions).collect();
        levels.into_iter().collect()
    }
}
