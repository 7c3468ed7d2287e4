//! Which axis runs along a chart, which becomes lines, and which becomes charts of their own.

use std::collections::BTreeSet;

use store::Key;

use crate::load::label;
use crate::model::{Point, StudyReport};
use crate::order::place;
use crate::text::value_text;

/// More lines than colours that can be told apart are split into several charts.
const LINES_MAX: usize = 8;

/// The roles of the varying axes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    /// Along the chart.
    pub(crate) x: String,
    /// Its values, in order.
    pub(crate) categories: Vec<String>,
    /// One chart for each combination of these.
    pub(crate) facets: Vec<String>,
    /// One line for each combination of these.
    pub(crate) lines: Vec<String>,
}

/// One chart's worth of points.
#[derive(Debug)]
pub(crate) struct Facet<'a> {
    pub(crate) label: String,
    /// Values of the facet axes.
    pub(crate) key: Key,
    /// Lines in order: label, and for each category the point.
    pub(crate) lines: Vec<(String, Vec<Option<&'a Point>>)>,
}

impl Layout {
    pub(crate) fn of(study: &StudyReport) -> Self {
        let levels: BTreeSet<u32> = study.points.iter().map(|point| point.sessions).collect();
        let mut rest: Vec<String> =
            study.varying.iter().filter(|name| *name != "sessions").cloned().collect();
        let x = match (levels.len(), rest.iter().position(|name| name == "server")) {
            (2.., _) => "sessions".to_owned(),
            (_, Some(at)) => rest.remove(at),
            (_, None) => {
                let most = (0..rest.len()).max_by_key(|at| values(study, &rest[*at]).len());
                most.map_or_else(|| "sessions".to_owned(), |at| rest.remove(at))
            }
        };
        let compared = study.newest().map(|view| view.record.study.comparisons.clone()).unwrap_or_default();
        let is_compared = |name: &String| compared.iter().any(|comparison| comparison.axis == *name);
        // What is compared is read side by side, as the lines of one chart; what is not is another chart. Without a
        // comparison along lines there are as many lines as can be told apart. Machines are always beside each other.
        let is_line = |name: &String| is_compared(name) || name == "host";
        let has_compared = rest.iter().any(is_compared);
        let (mut lines, mut facets): (Vec<String>, Vec<String>) =
            rest.into_iter().partition(|name| if has_compared { is_line(name) } else { name != "workload" });
        while lines.len() > 1 && combinations(study, &lines) > LINES_MAX {
            let is_last = |name: &String| is_compared(name) || name == "server";
            let moved =
                (0..lines.len()).min_by_key(|at| (is_last(&lines[*at]), values(study, &lines[*at]).len()));
            facets.push(lines.remove(moved.unwrap_or(0)));
        }
        let categories = values(study, &x);
        Self { x, categories, facets, lines }
    }

    /// The charts in the order of the points.
    pub(crate) fn facets<'a>(&self, study: &'a StudyReport) -> Vec<Facet<'a>> {
        let mut facets: Vec<Facet<'a>> = Vec::new();
        for point in &study.points {
            let key: Key = self
                .facets
                .iter()
                .filter_map(|name| Some((name.clone(), point.identity.get(name)?.clone())))
                .collect();
            let label = || label(&point.identity, &self.facets, &[]);
            let new = || Facet { label: label(), key: key.clone(), lines: Vec::new() };
            let at = place(&mut facets, |facet| facet.key == key, new);
            let name = self.line_label(point);
            let new = || (name.clone(), vec![None; self.categories.len()]);
            let lines = &mut facets[at].lines;
            let line = place(lines, |(known, _)| *known == name, new);
            let category = self.category(&point.identity);
            if let Some(slot) = category.and_then(|category| lines[line].1.get_mut(category)) {
                *slot = Some(point);
            }
        }
        facets
    }

    /// The place of a key along the chart.
    pub(crate) fn category(&self, key: &Key) -> Option<usize> {
        let text = value_text(key.get(&self.x)?);
        self.categories.iter().position(|category| *category == text)
    }

    fn line_label(&self, point: &Point) -> String {
        let text = label(&point.identity, &self.lines, &[]);
        if text.is_empty() { point.key.get("server").map(value_text).unwrap_or_default() } else { text }
    }
}

/// Distinct values of an axis, in the order of the points; load levels ascend.
fn values(study: &StudyReport, axis: &str) -> Vec<String> {
    if axis == "sessions" {
        let levels: BTreeSet<u32> = study.points.iter().map(|point| point.sessions).collect();
        return levels.into_iter().map(|level| level.to_string()).collect();
    }
    let mut values = Vec::new();
    for point in &study.points {
        if let Some(value) = point.identity.get(axis).map(value_text)
            && !values.contains(&value)
        {
            values.push(value);
        }
    }
    values
}

fn combinations(study: &StudyReport, names: &[String]) -> usize {
    let labels: BTreeSet<String> =
        study.points.iter().map(|point| label(&point.identity, names, &[])).collect();
    labels.len()
}
