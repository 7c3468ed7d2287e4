//! `plimsoll changes`.

use std::io::Read;
use std::path::Path;

use lab::changes::{self, MetricChange, SeriesFile};
use serde_json::{Value, json};
use stats::ChangeRules;

use crate::args::ChangesArgs;
use crate::commands::out::Out;
use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::{Align, Table, number};

pub(crate) fn changes(args: &ChangesArgs) -> Result<End, Failure> {
    let mut file = changes::read(&args.file, &text_of(&args.file)?)?;
    if let Some(wanted) = &args.metric {
        let names: Vec<String> = file.metrics.iter().map(|metric| metric.name.clone()).collect();
        file.metrics.retain(|metric| metric.name == *wanted);
        if file.metrics.is_empty() {
            let names = names.join(", ");
            return Err(Failure::Usage(format!(
                "{}: no metric `{wanted}`: it has {names}",
                args.file.display()
            )));
        }
    }
    let found = changes::find(&file, &ChangeRules::default())?;
    let Some(path) = &args.json else { return print(&text(&file, &found)) };
    let mut out = Out::create(path)?;
    out.write(&format!("{}\n", as_json(&file, &found)))?;
    out.finish()?;
    if path.as_os_str() == "-" { Ok(End::Done) } else { print(&text(&file, &found)) }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let read = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    let bytes = read.map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))?;
    String::from_utf8(bytes)
        .map_err(|_| Failure::Usage(format!("{}: it is not text: give a CSV file", path.display())))
}

fn as_json(file: &SeriesFile, found: &[MetricChange]) -> Value {
    let changes: Vec<Value> = found
        .iter()
        .map(|MetricChange { metric, change }| {
            let mut value = json!({
                "index": change.index, "before": change.before, "after": change.after, "ratio": change.ratio,
                "low": change.low, "high": change.high, "p": change.p_adjusted, "state": "new",
            });
            if !metric.is_empty() {
                value["metric"] = json!(metric);
            }
            if let Some(labels) = &file.labels {
                value["label"] = json!(labels[change.index]);
            }
            value
        })
        .collect();
    json!({"schema": 2, "n": file.points, "changes": changes})
}

fn text(file: &SeriesFile, found: &[MetricChange]) -> String {
    if found.is_empty() {
        return format!("no change of level in {} points\n", file.points);
    }
    let mut table = Table::new(&[
        ("metric", Align::Left),
        ("index", Align::Right),
        ("point", Align::Left),
        ("before", Align::Right),
        ("after", Align::Right),
        ("change", Align::Right),
        ("95 % interval", Align::Right),
        ("p", Align::Right),
    ]);
    let percent = |ratio: f64| match ratio.is_finite() {
        true => format!("{:+.1} %", 100.0 * (ratio - 1.0)),
        false => "-".to_owned(),
    };
    for MetricChange { metric, change } in found {
        table.row([
            metric.clone(),
            change.index.to_string(),
            file.labels.as_ref().map(|labels| labels[change.index].clone()).unwrap_or_default(),
            number(change.before),
            number(change.after),
            percent(change.ratio),
            format!("{} to {}", percent(change.low), percent(change.high)),
            if change.p_adjusted < 0.0001 { "< 0.0001".into() } else { format!("{:.4}", change.p_adjusted) },
        ]);
    }
    table.text()
}
