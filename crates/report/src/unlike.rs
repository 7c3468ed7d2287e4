//! Runs of one cell that are not alike in what else decides (the build, options, a workload's file, Plimsoll's version,
//! what the client may do): they become cells of their own and are never averaged with each other.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use store::Key;

use crate::model::RunView;

/// A name for the cell's key, and what a run says of it; empty: nothing.
type Trait = (&'static str, fn(&RunView) -> String);

const TRAITS: [Trait; 7] = [
    ("build", |run| run.build.as_ref().map_or_else(String::new, |build| short(&build.identity))),
    ("options", options),
    ("workload_file", |run| short(&fact(run, "sha256 of the workload's file"))),
    ("plimsoll", |run| fact(run, "plimsoll")),
    ("client_runs_as", |run| fact(run, "client_runs_as")),
    ("client_scheduling", |run| fact(run, "client_scheduling")),
    ("cpus_idle", |run| fact(run, "cpus_idle")),
];

fn fact(run: &RunView, name: &str) -> String {
    run.end.as_ref().and_then(|end| end.facts.get(name).cloned()).unwrap_or_default()
}

/// As many digits of a hash as tell two apart.
fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}

fn options(run: &RunView) -> String {
    let options = run.end.iter().flat_map(|end| &end.workload.options);
    options.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
}

/// For each run what is to be added to the key of its cell: nothing where all runs of the cell are alike. A run that says
/// nothing (it did not get that far, or an earlier version did not record it) goes with the last one that does.
/// `hosts`: the name of the host in each run's key.
pub(crate) fn additions(runs: &[RunView], hosts: &[String]) -> Vec<Key> {
    let mut cells: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, run) in runs.iter().enumerate() {
        let start = &run.head.start;
        let of = serde_json::json!([hosts[index], start.key, start.levels, start.is_climb]);
        cells.entry(of.to_string()).or_default().push(index);
    }
    let mut additions = vec![Key::new(); runs.len()];
    for members in cells.values() {
        for (name, of) in TRAITS {
            let values: Vec<String> = members.iter().map(|at| of(&runs[*at])).collect();
            let known: BTreeSet<&String> = values.iter().filter(|value| !value.is_empty()).collect();
            if known.len() < 2 {
                continue;
            }
            let last = values.iter().rfind(|value| !value.is_empty()).cloned().unwrap_or_default();
            for (at, value) in members.iter().zip(&values) {
                let value = if value.is_empty() { &last } else { value };
                let value = if name == "options" { differing(value, &known) } else { value.clone() };
                additions[*at].insert(name.to_owned(), Value::from(value));
            }
        }
    }
    additions
}

/// Of `options` those that are not the same everywhere.
fn differing(options: &str, all: &BTreeSet<&String>) -> String {
    let is_common = |option: &str| all.iter().all(|other| other.split(' ').any(|known| known == option));
    options.split(' ').filter(|option| !is_common(option)).collect::<Vec<_>>().join(" ")
}

/// What a reader has to know of cells that were taken apart.
pub(crate) fn sentence(additions: &[Key]) -> Option<String> {
    let names: BTreeSet<&str> = additions.iter().flat_map(Key::keys).map(String::as_str).collect();
    let names: Vec<String> = names.into_iter().map(|name| name.replace('_', " ")).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Runs of one cell are not alike in: {}. They are shown as cells of their own, and never averaged.",
            names.join(", ")
        )
    })
}
