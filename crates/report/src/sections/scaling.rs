//! How throughput follows the server's cpus, with the server's cpu time per transaction beside it: a client that shares
//! cpus with the server makes scaling look different from what it is.

use super::{Cell, Ratio, Section, Table, groups, heads, name, ratio, values_of};
use crate::charts::{Ladder, Line, gaps, published_by_point};
use crate::derived;
use crate::model::{Point, StudyReport};
use crate::order::place;
use crate::text::{number, value_text};
use crate::wishes::Wishes;

/// A cell with fewer and with more cpus.
struct Pair<'a> {
    label: String,
    /// The greater number of cpus, as the study says it.
    cpus: String,
    base: &'a Point,
    point: &'a Point,
    ratio: Ratio,
}

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let cpus = values_of(study, "cpus");
    let (first, others) = cpus.split_first().filter(|(_, others)| !others.is_empty())?;
    let mut pairs: Vec<Pair<'_>> = Vec::new();
    for (key, points) in groups(study, &["cpus"]) {
        let of = |wanted| points.iter().copied().find(|point| point.identity.get("cpus") == Some(wanted));
        for other in others {
            let (Some(base), Some(point)) = (of(first), of(other)) else { continue };
            let Some(ratio) = ratio(study, base, point, "tps") else { continue };
            let label = name(study, &key, &[]);
            pairs.push(Pair { label, cpus: value_text(other), base, point, ratio });
        }
    }
    let table = Table {
        id: "pairs",
        heads: heads(
            "Cell | Cpus | TPS before | TPS after | Change | Server cpu per transaction before | after",
        ),
        words: 2,
        rows: pairs.iter().map(|pair| row(study, &value_text(first), pair)).collect(),
        ..Table::default()
    };
    Some(Section {
        id: "scaling",
        title: "Scaling with cpus",
        hint: format!(
            "Throughput with more cpus as percent of that with {} (100 %: no gain; 200 %: twice as much). Where the \
             server spends more cpu time on a transaction than before, or the client has less room, that is no \
             scaling of the server.",
            value_text(first)
        ),
        charts: others
            .iter()
            .filter_map(|other| chart(study, &value_text(first), &value_text(other), &pairs))
            .collect(),
        tables: if table.rows.is_empty() { Vec::new() } else { vec![table] },
        ..Section::default()
    })
}

fn row(study: &StudyReport, before: &str, pair: &Pair<'_>) -> Vec<Cell> {
    let cpu = |name: &str, point| {
        let figure = derived::per_transaction(study, point, "server_cpu");
        let write = |(value, unit): (f64, String)| {
            Cell::written(name, Some(value), |value| {
                format!("{} {}", number(value), unit.replace("us", "µs"))
            })
        };
        figure.map_or_else(Cell::dash, write)
    };
    let tps = |name: &str, point: &Point| Cell::number(name, point.tps.map(|tps| tps.median));
    vec![
        pair.label.clone().into(),
        format!("{before} to {}", pair.cpus).into(),
        tps("tps_before", pair.base),
        tps("tps_after", pair.point),
        pair.ratio.cell("change"),
        cpu("server_cpu_before", pair.base),
        cpu("server_cpu_after", pair.point),
    ]
}

/// Categories are all that is not the server; a bar for each server.
fn chart(study: &StudyReport, before: &str, after: &str, pairs: &[Pair<'_>]) -> Option<Ladder> {
    let mut categories: Vec<String> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut drawn = Vec::new();
    // One point of each category tells which published figures belong to it.
    let mut of_category: Vec<&Point> = Vec::new();
    for Pair { point, ratio, .. } in pairs.iter().filter(|pair| pair.cpus == after) {
        let category = name(study, &point.identity, &["cpus", "server"]);
        let category = if category.is_empty() { "all".to_owned() } else { category };
        let server = point.identity.get("server").map(value_text).unwrap_or_default();
        let at_name =
            |list: &mut Vec<String>, text: String| place(list, |known| *known == text, || text.clone());
        let at = (at_name(&mut names, server), at_name(&mut categories, category));
        if categories.len() > of_category.len() {
            of_category.push(point);
        }
        let (low, high) = ratio.interval.unwrap_or((ratio.value, ratio.value));
        drawn.push((at, (ratio.value * 100.0, low * 100.0, high * 100.0, ratio.n, point.id.clone())));
    }
    let mut lines: Vec<Line> = names
        .iter()
        .enumerate()
        .map(|(line, name)| {
            let mut points = vec![None; categories.len()];
            for ((of, category), point) in &drawn {
                if *of == line {
                    points[*category] = Some(point.clone());
                }
            }
            let gaps = gaps(&points, |_| true);
            Line { name: name.clone(), style: line, points, gaps, ..Line::default() }
        })
        .collect();
    lines.extend(published_by_point(study, &of_category, "scaling"));
    (!lines.is_empty()).then(|| Ladder {
        metric: "scaling".into(),
        title: format!("From {before} to {after} cpus"),
        unit: "throughput, percent of that with fewer cpus",
        bars: true,
        categories,
        lines,
        ..Ladder::default()
    })
}
