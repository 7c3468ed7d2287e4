//! A history as one page that needs nothing else: a chart for each series, and below it the points that it is made of.

use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde_json::{Value, json};

use super::{History, HistorySeries};
use crate::error::Error;
use crate::html::{charts_of, script_safe};
use crate::text::{metric_name, number, percent, ratio, time_text};

const TEMPLATE: &str = include_str!("../../assets/history.html.jinja");

/// The page.
pub fn html(history: &History) -> Result<String, Error> {
    let mut environment = Environment::new();
    // The name's ending turns on the escaping of HTML.
    environment.add_template("history.html", TEMPLATE)?;
    let series: Vec<Value> = history.series.iter().map(shown).collect();
    let page = environment.get_template("history.html")?.render(context! {
        series => minijinja::Value::from(Serde(series)),
        version => env!("CARGO_PKG_VERSION"),
        ..charts_of(charts(history))
    })?;
    Ok(page)
}

fn shown(series: &HistorySeries) -> Value {
    let points: Vec<Value> = series
        .points
        .iter()
        .enumerate()
        .map(|(at, point)| {
            json!({"id": format!("{}-{at}", series.id), "at": time_text(point.at_ms), "build": point.build,
                   "identity": point.identity, "value": number(point.value), "low": number(point.low),
                   "high": number(point.high), "runs": point.runs.join(", "), "file": point.file,
                   "host": point.host})
        })
        .collect();
    let changes: Vec<Value> = series
        .changes
        .iter()
        .map(|found| {
            let (good, bad) = series.builds_around(found);
            let change = &found.change;
            json!({"id": found.id, "point": format!("{}-{}", series.id, change.index), "good": good.build,
                   "bad": bad.build, "before": number(change.before), "after": number(change.after),
                   "change": percent(change.ratio - 1.0), "low": ratio(change.low), "high": ratio(change.high),
                   "state": found.state, "why": found.why, "is_worse": series.is_worse(found)})
        })
        .collect();
    json!({"label": series.label(), "metric": metric_name(&series.metric),
           "points": points, "changes": changes})
}

/// What the chart of a series draws: value, low, high, build and time of each point, and where its level changed.
fn chart(series: &HistorySeries) -> Value {
    let points = series
        .points
        .iter()
        .map(|point| json!([point.value, point.low, point.high, point.build, time_text(point.at_ms)]));
    let changes = series.changes.iter().map(|found| json!([found.change.index, series.is_worse(found)]));
    json!({"id": series.id, "metric": metric_name(&series.metric), "points": points.collect::<Value>(),
           "changes": changes.collect::<Value>()})
}

/// The charts of a history for [`chart_script`](crate::chart_script), as the text of an element `data`: safe within HTML.
/// They are drawn into elements of class `charts` whose `data-history` is the place of a series. A click on a point leads to
/// the element `SERIES-POINT`.
pub fn charts(history: &History) -> String {
    let charts: Value = history.series.iter().map(chart).collect();
    script_safe(&json!({"studies": [], "histories": charts}).to_string())
}
