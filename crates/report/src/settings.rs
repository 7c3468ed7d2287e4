//! The servers' settings, compared: what differs between cells, and what changes with each run.

use std::collections::{BTreeMap, BTreeSet};

use crate::load::label_or;
use crate::model::StudyReport;

/// Servers of one flavour: settings of different flavours have nothing in common to compare.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FlavorSettings {
    /// mysql, mariadb, percona, postgres, or empty where it is not known.
    pub(crate) flavor: String,
    /// Kinds of server, each with its settings.
    pub(crate) kinds: Vec<Kind>,
    /// Settings that differ between the kinds, with a value for each.
    pub(crate) different: Vec<(String, Vec<String>)>,
    /// Settings left out of the comparison: they differ between runs of one cell (ports, paths).
    pub(crate) volatile: Vec<String>,
}

/// Cells whose servers report the same settings.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Kind {
    pub(crate) labels: Vec<String>,
    /// A run that reported them.
    pub(crate) run: String,
    /// As the server reports them.
    pub(crate) settings: BTreeMap<String, String>,
    /// As the study asked for them.
    pub(crate) asked: BTreeMap<String, String>,
}

pub(crate) fn settings(study: &StudyReport) -> Vec<FlavorSettings> {
    let mut flavors: BTreeMap<String, FlavorSettings> = BTreeMap::new();
    let volatile = volatile(study);
    for point in &study.points {
        for (run, _) in study.counted(point) {
            let Some(end) = &run.end else { continue };
            if end.server.settings.is_empty() {
                continue;
            }
            let flavor = match &run.build {
                Some(build) => build.flavor.clone(),
                None => end.server.name.split(['@', ':']).next().unwrap_or_default().to_owned(),
            };
            let without = ["sessions", "workload"];
            let label = label_or(&point.identity, &study.varying, &without, &end.server.name);
            let entry = flavors.entry(flavor.clone()).or_insert_with(|| FlavorSettings {
                flavor,
                kinds: vec![],
                different: vec![],
                volatile: vec![],
            });
            add_kind(entry, label, &run.id, end, &volatile);
        }
    }
    for flavor in flavors.values_mut() {
        flavor.different = different(&flavor.kinds, &volatile);
        let names: BTreeSet<&String> = flavor.kinds.iter().flat_map(|kind| kind.settings.keys()).collect();
        flavor.volatile = volatile.iter().filter(|name| names.contains(name)).cloned().collect();
    }
    flavors.into_values().collect()
}

fn add_kind(
    flavor: &mut FlavorSettings,
    label: String,
    run: &str,
    end: &store::RunEnd,
    volatile: &BTreeSet<String>,
) {
    let stable = |settings: &BTreeMap<String, String>| -> BTreeMap<String, String> {
        settings.iter().filter(|(n, _)| !volatile.contains(*n)).map(|(n, v)| (n.clone(), v.clone())).collect()
    };
    let mine = stable(&end.server.settings);
    match flavor.kinds.iter_mut().find(|kind| stable(&kind.settings) == mine) {
        Some(kind) => {
            if !kind.labels.contains(&label) {
                kind.labels.push(label);
            }
        }
        None => flavor.kinds.push(Kind {
            labels: vec![label],
            run: run.to_owned(),
            settings: end.server.settings.clone(),
            asked: end.server.settings_asked.clone(),
        }),
    }
}

/// Settings with more than one value among the runs of one point.
pub(crate) fn volatile(study: &StudyReport) -> BTreeSet<String> {
    let mut volatile = BTreeSet::new();
    for point in &study.points {
        let runs: Vec<_> = study.counted(point).filter_map(|(run, _)| run.end.as_ref()).collect();
        let Some(first) = runs.first() else { continue };
        for end in &runs[1..] {
            for (name, value) in &end.server.settings {
                if first.server.settings.get(name) != Some(value) {
                    volatile.insert(name.clone());
                }
            }
        }
    }
    volatile
}

fn different(kinds: &[Kind], volatile: &BTreeSet<String>) -> Vec<(String, Vec<String>)> {
    let names: BTreeSet<&String> = kinds.iter().flat_map(|kind| kind.settings.keys()).collect();
    names
        .into_iter()
        .filter(|name| !volatile.contains(*name))
        .filter_map(|name| {
            let values: Vec<String> =
                kinds.iter().map(|kind| kind.settings.get(name).cloned().unwrap_or_default()).collect();
            values.windows(2).any(|pair| pair[0] != pair[1]).then(|| (name.clone(), values))
        })
        .collect()
}
