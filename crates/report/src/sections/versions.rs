//! Throughput by version, one line for each set of settings and for what was switched on: one chart for each of the other axes' combinations.

use serde_json::Value;
use store::{INTERVENE, Key, NO_INTERVENTION};

use super::{Section, drawn, groups, name, values_of};
use crate::charts::{Ladder, Line, gaps, published};
use crate::model::StudyReport;
use crate::text::value_text;
use crate::wishes::Wishes;

pub(super) fn section(study: &StudyReport, _wishes: &Wishes) -> Option<Section> {
    let servers = values_of(study, "server");
    if servers.len() < 2 {
        return None;
    }
    let variants = variants(study);
    let charts = groups(study, &["server", "settings", INTERVENE])
        .into_iter()
        .map(|(key, points)| {
            let line = |(style, variant): (usize, &Variant)| {
                let point_of = |server| {
                    let mut of_server =
                        points.iter().filter(|point| point.identity.get("server") == Some(server));
                    of_server.find(|point| variant.is_of(&point.identity))
                };
                let found: Vec<_> = servers.iter().map(point_of).collect();
                let spots: Vec<_> = found.iter().map(|point| point.and_then(|point| drawn(point))).collect();
                let gaps = gaps(&spots, |at| found[at].is_some());
                Line { name: variant.name.clone(), style, gaps, points: spots, ..Line::default() }
            };
            let facet = name(study, &key, &[]);
            let categories: Vec<String> = servers.iter().map(value_text).collect();
            let mut lines: Vec<Line> = variants
                .iter()
                .enumerate()
                .map(line)
                .filter(|line| line.points.iter().any(Option::is_some))
                .collect();
            lines.extend(published(study, &points, ("server", &categories), "tps"));
            Ladder {
                metric: "versions".into(),
                title: if facet.is_empty() {
                    "TPS by version".to_owned()
                } else {
                    format!("TPS by version, {facet}")
                },
                facet,
                unit: "committed transactions per second",
                categories,
                lines,
                ..Ladder::default()
            }
        })
        .collect();
    Some(Section {
        id: "versions",
        title: "Throughput by version",
        hint: "Versions in the order of the study, one line for each variant of the settings; axes start at zero.".to_owned(),
        charts,
        ..Section::default()
    })
}

/// A set of settings, and what was switched on beside it.
struct Variant {
    settings: Value,
    switched: Option<Value>,
    name: String,
}

impl Variant {
    fn is_of(&self, key: &Key) -> bool {
        key.get("settings") == Some(&self.settings) && key.get(INTERVENE) == self.switched.as_ref()
    }
}

/// Those that there are points of. What is switched on is named by itself beside the first set of settings.
fn variants(study: &StudyReport) -> Vec<Variant> {
    let (all, switched) = (values_of(study, "settings"), values_of(study, INTERVENE));
    let states: Vec<Option<&Value>> =
        if switched.is_empty() { vec![None] } else { switched.iter().map(Some).collect() };
    let mut variants = Vec::new();
    for (at, settings) in all.iter().enumerate() {
        for state in &states {
            let set = value_text(settings);
            let name = match state.map(value_text).filter(|name| name != NO_INTERVENTION) {
                None => set,
                Some(state) if at == 0 => state,
                Some(state) => format!("{set} with {state}"),
            };
            variants.push(Variant { settings: settings.clone(), switched: state.cloned(), name });
        }
    }
    variants.retain(|variant| study.points.iter().any(|point| variant.is_of(&point.identity)));
    variants
}
