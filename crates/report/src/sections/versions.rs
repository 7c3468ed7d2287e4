//! Throughput by version, one line for each set of settings: one chart for each of the other axes' combinations.

use super::{Section, drawn, groups, name, values_of};
use crate::charts::{Ladder, Line, gaps, published};
use crate::model::StudyReport;
use crate::text::value_text;
use crate::wishes::Wishes;

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let servers = values_of(study, "server");
    let settings = values_of(study, "settings");
    if servers.len() < 2 {
        return None;
    }
    let charts = groups(study, &["server", "settings"])
        .into_iter()
        .map(|(key, points)| {
            let line = |(style, variant): (usize, &serde_json::Value)| {
                let point_of = |server| {
                    points.iter().find(|point| {
                        point.identity.get("server") == Some(server)
                            && point.identity.get("settings") == Some(variant)
                    })
                };
                let found: Vec<_> = servers.iter().map(point_of).collect();
                let spots: Vec<_> = found.iter().map(|point| point.and_then(|point| drawn(point))).collect();
                Line {
                    name: value_text(variant),
                    style,
                    reference: false,
                    is_named_before: false,
                    gaps: gaps(&spots, |at| found[at].is_some()),
                    points: spots,
                    invalid: vec![],
                }
            };
            let facet = name(study, &key, &[]);
            let categories: Vec<String> = servers.iter().map(value_text).collect();
            let mut lines: Vec<Line> = settings
                .iter()
                .enumerate()
                .map(line)
                .filter(|line| line.points.iter().any(Option::is_some))
                .collect();
            lines.extend(published(study, &points, ("server", &categories), "tps"));
            Ladder {
                scale: crate::scale::Scale::default(),
                metric: "versions".into(),
                title: if facet.is_empty() {
                    "TPS by version".to_owned()
                } else {
                    format!("TPS by version, {facet}")
                },
                facet,
                unit: "committed transactions per second",
                x: String::new(),
                categories,
                bars: false,
                lines,
            }
        })
        .collect();
    Some(Section {
        drawings: Vec::new(),
        id: "versions",
        title: "Throughput by version",
        hint: "Versions in the order of the study, one line for each variant of the settings; axes start at zero.".to_owned(),
        charts,
        tables: Vec::new(),
    })
}
