//! `[compare]` and `[[exclude]]`: what names axes and their values.

use std::collections::BTreeMap;
use std::ops::Range;

use stats::{Gate, Wanted};
use wire::spelling::nearest;

use super::model::*;
use super::problem::one_of;
use super::read::{At, Item, Problems, Table, word};
use crate::line::Asked;

/// Axes that are named in `[axes]`, `[[exclude]]` and `[compare]`; options of workloads come to them.
pub(crate) const AXES: [&str; 13] = [
    "server",
    "workload",
    "settings",
    "engine",
    "storage",
    "cpus",
    "isolation",
    "charset",
    "env",
    "replicas",
    "intervene",
    "sessions",
    "climb",
];
const METRICS: [&str; 8] = ["tps", "qps", "mean", "p50", "p95", "p99", "max", "cpu_us_per_transaction"];

pub(super) fn read_compare(
    mut table: Table<'_>,
    axes: &Axes,
    (load, line): (&Load, Option<&Asked>),
    problems: &mut Problems,
) -> Option<Compare> {
    let axis = table.need("axis", problems, "axis = \"server\"").and_then(|item| item.text(problems));
    let base = table.need("base", problems, "base = \"mariadb\"").and_then(|item| item.scalar(problems));
    let metrics = read_metrics(table.get("metrics"), line, problems);
    let margin = match table.get("margin") {
        Some(item) => {
            let at = item.number(problems)?;
            if !(0.0..1.0).contains(&at.value) || at.value == 0.0 {
                let help = "0.05 means: differences below 5 % count as none";
                problems.add_help(
                    &at.span,
                    format!("a margin of {} is not possible", at.value),
                    "between 0 and 1",
                    help,
                );
            }
            at.value
        }
        None => MARGIN,
    };
    let gates = table.get("gate").map_or_else(Vec::new, |item| read_gates(item, &metrics, load, problems));
    let primary = table.get("primary").and_then(|item| read_primary(item, &metrics, axes, problems));
    table.finish(problems);
    let (axis, base) = (axis?, base?);
    let names: Vec<&str> =
        axis_names(axes).into_iter().filter(|&name| name != "sessions" && name != "climb").collect();
    if !names.contains(&axis.value.as_str()) {
        no_axis(&axis, &names, problems);
        return None;
    }
    let values = axis_values(axes, &axis.value);
    if !values.iter().any(|names| names.contains(&base.value)) {
        let shown: Vec<&str> = values.iter().filter_map(|names| names.first()).map(String::as_str).collect();
        let message =
            format!("`{}` is not a value of the axis `{}`", wire::mask::value(&base.value), axis.value);
        problems.add_help(&base.span, message, "unknown", format!("it has {}", one_of(shown)));
    } else if values.len() < 2 {
        let message = format!("the axis `{}` has one value: there is nothing to compare", axis.value);
        problems.add(&axis.span, message, "add a second value, or leave [compare] out");
    }
    if let Some(cells) = primary.as_ref().map(|primary| &primary.cells)
        && cells.contains_key(&axis.value)
        && !cells[&axis.value].iter().any(|value| *value != base.value)
    {
        let message = format!("`primary` leaves nothing that `{}` is compared with", base.value);
        problems.add(&axis.span, message, "the axis whose values are compared");
    }
    Some(Compare { axis: axis.value, base: base.value, metrics, primary, margin, gates })
}

/// Of searches for load lines, the lines are what is compared.
fn read_metrics(item: Option<Item<'_>>, line: Option<&Asked>, problems: &mut Problems) -> Vec<String> {
    let promises: Option<Vec<String>> =
        line.map(|asked| asked.promises.iter().map(|promise| promise.text.clone()).collect());
    let Some(item) = item else { return promises.unwrap_or_else(|| vec!["tps".to_owned()]) };
    let mut metrics = Vec::new();
    for member in item.list(problems) {
        let Some(text) = member.text(problems) else { continue };
        match &promises {
            None if word(problems, &text, "a metric", METRICS) => metrics.push(text.value),
            None => {}
            Some(promises) if promises.contains(&text.value) => metrics.push(text.value),
            Some(promises) => {
                let message = format!("`{}` is not a promise of this study", text.value);
                let help = format!(
                    "the metrics of a study with [line] are its lines: {}",
                    one_of(promises.iter().map(String::as_str))
                );
                problems.add_help(&text.span, message, "unknown", help);
            }
        }
    }
    metrics
}

/// `gate = "p95:not-slower"`, or a list: refused where no outcome of the study could meet it.
fn read_gates(item: Item<'_>, metrics: &[String], load: &Load, problems: &mut Problems) -> Vec<Gate> {
    let mut gates = Vec::new();
    for member in item.list(problems) {
        let Some(text) = member.text(problems) else { continue };
        let gate = match text.value.parse::<Gate>() {
            Ok(gate) => gate,
            Err(allowed) => {
                let typed = text.value.rsplit(':').next().unwrap_or_default().trim();
                let help = match nearest(typed, Wanted::ALL.map(Wanted::word)) {
                    Some(near) if near != typed => format!("did you mean `{near}`?"),
                    _ => allowed,
                };
                let message = format!("`{}` is not a verdict to ask for", text.value);
                problems.add_help(&text.span, message, "unknown", help);
                continue;
            }
        };
        if let Some(metric) = &gate.metric {
            is_compared(metric, &text.span, metrics, problems);
        }
        gates.push(gate);
    }
    let least = stats::Rules::default().blocks_min;
    if (load.blocks as usize) < least {
        let message = format!("a verdict needs at least {least} blocks, and [load] has {}", load.blocks);
        problems.add_help(&item.span(), message, "can never be met", "raise `blocks` in [load]");
    }
    gates
}

fn is_compared(metric: &String, span: &Range<usize>, metrics: &[String], problems: &mut Problems) {
    if !metrics.contains(metric) {
        let message = format!("this study does not compare `{metric}`");
        let help = format!("its metrics are {}", one_of(metrics.iter().map(String::as_str)));
        problems.add_help(span, message, "not among the metrics", help);
    }
}

fn no_axis(key: &At<String>, axes: &[&str], problems: &mut Problems) {
    let help = match nearest(&key.value, axes.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("the axes of this study are {}", one_of(axes.iter().copied())),
    };
    let message = format!("`{}` is not an axis of this study", key.value);
    problems.add_help(&key.span, message, "unknown", help);
}

/// `primary = "tps"`, or `{ metric = "tps", sessions = 8 }`.
fn read_primary(item: Item<'_>, metrics: &[String], axes: &Axes, problems: &mut Problems) -> Option<Primary> {
    let mut cells = BTreeMap::new();
    let metric = if item.is_table() {
        let mut table = item.table(problems, "`primary`")?;
        let metric = table.get("metric").and_then(|item| item.text(problems));
        for (key, item) in table.entries() {
            if key.value == "metric" {
                continue;
            }
            if let Some((axis, values)) = read_values(&key, item, axes, &[], problems) {
                cells.insert(axis, values);
            }
        }
        metric
    } else {
        Some(item.text(problems)?)
    };
    if let Some(metric) = &metric {
        is_compared(&metric.value, &metric.span, metrics, problems);
    }
    let metric = metric.map(|metric| metric.value).or_else(|| metrics.first().cloned())?;
    Some(Primary { metric, cells })
}

/// An axis of the study with some of its values, as `[[exclude]]` and `primary` name them. `more`: values that the axis
/// may have elsewhere, each with all its names.
fn read_values(
    key: &At<String>,
    item: Item<'_>,
    axes: &Axes,
    more: &[Vec<String>],
    problems: &mut Problems,
) -> Option<(String, Vec<String>)> {
    let name = if key.value == "climb" { "sessions" } else { key.value.as_str() };
    let known: Vec<&str> = axis_names(axes);
    if !known.contains(&key.value.as_str()) && !known.contains(&name) {
        no_axis(key, &known, problems);
        return None;
    }
    let mut known = axis_values(axes, name);
    known.extend_from_slice(more);
    let mut given = Vec::new();
    for value in item.list(problems) {
        let Some(text) = value.scalar(problems) else { continue };
        if !known.iter().any(|names| names.contains(&text.value)) {
            let shown: Vec<&str> =
                known.iter().filter_map(|names| names.first()).map(String::as_str).collect();
            let shown_value = wire::mask::value(&text.value);
            let message = format!("`{shown_value}` is not a value of the axis `{name}`");
            problems.add_help(&text.span, message, "matches nothing", format!("it has {}", one_of(shown)));
        }
        given.push(text.value);
    }
    Some((name.to_owned(), given))
}

pub(super) fn read_excludes(
    item: Item<'_>,
    axes: &Axes,
    quick: &Quick,
    problems: &mut Problems,
) -> Vec<Exclude> {
    let mut all = Vec::new();
    for member in item.list(problems) {
        let Some(table) = member.table(problems, "[[exclude]]") else { continue };
        if table.entries().is_empty() {
            problems.add(
                &table.span(),
                "an [[exclude]] without a key would leave nothing to measure",
                "empty",
            );
        }
        let mut keys = BTreeMap::new();
        for (key, item) in table.entries() {
            let name = if key.value == "climb" { "sessions" } else { key.value.as_str() };
            let ladder = quick.ladder.iter().flat_map(|ladder| ladder.levels()).map(|n| vec![n.to_string()]);
            let more: Vec<Vec<String>> = axis_values(&quick.axes, name).into_iter().chain(ladder).collect();
            keys.extend(read_values(&key, item, axes, &more, problems));
        }
        all.push(Exclude(keys));
    }
    all
}

/// The axes that a study has, those with an implied single value included.
fn axis_names(axes: &Axes) -> Vec<&str> {
    let given = |name: &&str| match *name {
        "sessions" => matches!(axes.ladder, Ladder::Sessions(_)),
        "climb" => matches!(axes.ladder, Ladder::Climb(_)),
        name => !axis_values(axes, name).is_empty(),
    };
    AXES.into_iter().filter(given).chain(axes.options.iter().map(|(name, _)| name.as_str())).collect()
}

/// The values of an axis, each with all names that it may be called by; the first is the shown one.
pub(crate) fn axis_values(axes: &Axes, axis: &str) -> Vec<Vec<String>> {
    let single = |names: &[String]| names.iter().map(|name| vec![name.clone()]).collect();
    match axis {
        "server" => axes
            .server
            .iter()
            .map(|choice| match &choice.label {
                Some(label) => vec![format!("{}+{label}", choice.server), label.clone()],
                None => vec![choice.server.clone()],
            })
            .collect(),
        "workload" => axes.workload.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "settings" => axes.settings.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "engine" => single(&axes.engine),
        "storage" => axes.storage.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "cpus" => axes.cpus.iter().map(|choice| vec![choice.label()]).collect(),
        "isolation" => single(&axes.isolation),
        "charset" => single(&axes.charset),
        "intervene" => single(&axes.interventions()),
        "replicas" => axes.replicas.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "env" => axes.env.iter().map(|choice| vec![choice.label.clone()]).collect(),
        "sessions" | "climb" => axes.ladder.levels().iter().map(|level| vec![level.to_string()]).collect(),
        option => axes
            .options
            .iter()
            .find(|(name, _)| name == option)
            .map(|(_, values)| single(values))
            .unwrap_or_default(),
    }
}

/// Which value of its axis the base of a comparison is.
pub(crate) fn position_on_axis(axes: &Axes, compare: &Compare) -> Option<usize> {
    axis_values(axes, &compare.axis).iter().position(|names| names.contains(&compare.base))
}
