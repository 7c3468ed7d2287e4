//! `plimsoll changes`.

use std::io::ErrorKind;
use std::path::Path;

use lab::changes::{self, MetricChange, SeriesFile};
use serde_json::{Value, json};
use stats::ChangeRules;
use wire::files::{self, Limit};

use crate::args::ChangesArgs;
use crate::commands::out::Out;
use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::{Align, Table, number};

/// Of a file of series: ten million points.
const SERIES: Limit = Limit { mib_max: 256, remedy: "keep fewer points or fewer columns in it" };

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
    Out::create(path)?.end(&format!("{}\n", as_json(&file, &found)))?;
    if path.as_os_str() == "-" { Ok(End::Done) } else { print(&text(&file, &found)) }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    let read = match path.as_os_str() == "-" {
        true => files::read_text_from(std::io::stdin(), &SERIES),
        false => files::read_text(path, &SERIES),
    };
    read.map_err(|error| {
        let remedy = if error.kind() == ErrorKind::InvalidData { ": give a CSV file" } else { "" };
        Failure::Usage(format!("cannot read {}: {error}{remedy}", path.display()))
    })
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
        return format!("no change of level in {}\n", store::counted(file.points, "point"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_end_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("large.csv");
        std::fs::File::create(&path).unwrap().set_len((SERIES.mib_max << 20) + 1).unwrap();
        let Err(Failure::Usage(text)) = text_of(&path) else { panic!("it is read") };
        assert!(text.contains("larger than 256 MiB") && text.contains("fewer points"), "{text}");
    }
}
