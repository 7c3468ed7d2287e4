//! A history as one page that needs nothing else: a drawing for each series, and below it the points that it is made of.

use std::fmt::Write;

use minijinja::value::Serde;
use minijinja::{Environment, context};
use serde_json::{Value, json};

use super::{History, HistorySeries};
use crate::error::Error;
use crate::text::{metric_name, number, percent, ratio, time_text};

const TEMPLATE: &str = include_str!("../../assets/history.html.jinja");
const CSS: &str = include_str!("../../assets/report.css");

/// Width, height and margins of a drawing.
const SIZE: (f64, f64) = (860.0, 220.0);
const LEFT: f64 = 64.0;
const BELOW: f64 = 22.0;

/// The page.
pub fn html(history: &History) -> Result<String, Error> {
    let mut environment = Environment::new();
    // The name's ending turns on the escaping of HTML.
    environment.add_template("history.html", TEMPLATE)?;
    let series: Vec<Value> = history.series.iter().map(shown).collect();
    let page = environment.get_template("history.html")?.render(context! {
        css => CSS,
        series => minijinja::Value::from(Serde(series)),
        version => env!("CARGO_PKG_VERSION"),
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
    json!({"label": series.label(), "metric": metric_name(&series.metric), "drawing": drawing(series),
           "points": points, "changes": changes})
}

/// Points with their intervals from zero, and a line at each change.
pub fn drawing(series: &HistorySeries) -> String {
    let (width, height) = SIZE;
    let top = series.points.iter().map(|point| point.high).fold(0.0, f64::max) * 1.08;
    let last = series.points.len().saturating_sub(1).max(1) as f64;
    let x = |at: f64| LEFT + at / last * (width - LEFT - 12.0);
    let y = |value: f64| 8.0 + (1.0 - value / top.max(f64::MIN_POSITIVE)) * (height - BELOW - 8.0);
    // A group and no image: the points within it are links.
    let mut svg = format!(
        "<svg class=\"history\" viewBox=\"0 0 {width} {height}\" role=\"group\" aria-label=\"{}\">",
        super::exports::xml(&format!("{} of {}", metric_name(&series.metric), series.label()))
    );
    for part in [0.0, 0.5, 1.0] {
        let value = top / 1.08 * part;
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{width}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>\
             <text x=\"{1:.1}\" y=\"{2:.1}\" text-anchor=\"end\">{3}</text>",
            y(value),
            LEFT - 6.0,
            y(value) + 4.0,
            number(value)
        );
    }
    for found in &series.changes {
        let at = x(found.change.index as f64 - 0.5);
        let class = if series.is_worse(found) { "worse" } else { "better" };
        let _ = write!(
            svg,
            "<line class=\"change {class}\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"8\" y2=\"{:.1}\"/>",
            height - BELOW
        );
    }
    let line: Vec<String> = series
        .points
        .iter()
        .enumerate()
        .map(|(at, point)| format!("{:.1},{:.1}", x(at as f64), y(point.value)))
        .collect();
    let _ = write!(svg, "<polyline points=\"{}\"/>", line.join(" "));
    for (at, point) in series.points.iter().enumerate() {
        let place = x(at as f64);
        let _ = write!(
            svg,
            "<a href=\"#{}-{at}\"><line class=\"reach\" x1=\"{place:.1}\" x2=\"{place:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/>\
             <circle cx=\"{place:.1}\" cy=\"{:.1}\" r=\"3.5\"><title>{}</title></circle></a>",
            series.id,
            y(point.low),
            y(point.high),
            y(point.value),
            super::exports::xml(&format!(
                "{}: {} ({})",
                point.build,
                number(point.value),
                time_text(point.at_ms)
            ))
        );
    }
    svg.push_str("</svg>");
    svg
}
