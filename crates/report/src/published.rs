//! Published figures of the studies that are repeated here: shown beside ours, never in a verdict.

use std::collections::BTreeMap;

use serde::Deserialize;
use store::{Key, Reference};

const FIGURES: &str = include_str!("../assets/published.toml");

#[derive(Debug, Deserialize)]
struct Set {
    source: String,
    year: u32,
    machine: String,
    figures: Vec<Figure>,
}

#[derive(Debug, Deserialize)]
struct Figure {
    series: String,
    metric: String,
    unit: String,
    value: f64,
    key: Key,
}

/// The figures of these sets.
pub(crate) fn figures(sets: &[String]) -> Vec<Reference> {
    // The file is part of the program: a test reads it.
    let all: BTreeMap<String, Set> = toml::from_str(FIGURES).unwrap_or_default();
    let wanted = sets.iter().filter_map(|name| all.get(name));
    let figures = wanted.flat_map(|set| set.figures.iter().map(move |figure| (set, figure)));
    figures
        .map(|(set, figure)| Reference {
            series: figure.series.clone(),
            source: set.source.clone(),
            year: set.year,
            machine: set.machine.clone(),
            metric: figure.metric.clone(),
            unit: figure.unit.clone(),
            key: figure.key.clone(),
            value: figure.value,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use store::PUBLISHED;

    use super::*;

    #[test]
    fn every_set_has_its_figures() {
        let counts: Vec<usize> = PUBLISHED.iter().map(|name| figures(&[(*name).to_owned()]).len()).collect();
        assert_eq!(counts, [7, 1, 6, 57, 63, 17, 5]);
    }

    #[test]
    fn averages_of_the_ladder_are_those_of_the_article() {
        // AnandTech's own averages are of the levels from 5 up: 494 and 635 for two of the machines.
        let all = figures(&["anandtech-2005".to_owned()]);
        let mean = |series: &str| {
            let values: Vec<f64> = all
                .iter()
                .filter(|f| f.series == series && f.key["sessions"].as_u64().is_some_and(|n| n >= 5))
                .map(|f| f.value)
                .collect();
            values.iter().sum::<f64>() / values.len() as f64
        };
        assert!((mean("2x Gallatin") - 494.4).abs() < 0.01);
        assert!((mean("2x Opteron 250") - 635.2).abs() < 0.01);
    }

    #[test]
    fn the_published_table_obeys_littles_law_but_for_two_rows() {
        let all = figures(&["israel-2015".to_owned()]);
        let of = |series: &str, sessions: u64, metric: &str| {
            let is = |f: &&Reference| {
                f.series == series
                    && f.metric == metric
                    && f.key.get("sessions").and_then(|s| s.as_u64()) == Some(sessions)
            };
            all.iter().find(is).expect("a figure").value
        };
        for place in ["EBS safest", "EBS fast", "SSD safest", "SSD fast", "IOPS safest", "IOPS fast"] {
            for sessions in [16, 32, 64] {
                let implied = of(place, sessions, "tps") * of(place, sessions, "mean_ms") / 1000.0;
                let holds = (implied / sessions as f64 - 1.0).abs() < 0.02;
                let is_known = place == "EBS safest" && sessions < 64;
                assert_eq!(holds, !is_known, "{place} {sessions}: {implied}");
            }
        }
    }
}
