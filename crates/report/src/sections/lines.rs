//! Load lines: the lines of each cell under each promise, and the picture of response times against the offered rate.

use super::{Cell, Section, Table, dash, heads};
use crate::lines::{line_of, spread};
use crate::load_line::{Axes, Picture, picture};
use crate::model::StudyReport;
use crate::order::{distinct, grouped};
use crate::text::{number, percent};

pub(super) fn section(study: &StudyReport) -> Option<Section> {
    let promises = study.promises();
    if promises.is_empty() {
        return None;
    }
    let pictures: Vec<Picture<'_>> =
        study.points.iter().filter_map(|point| Picture::of(study, point)).collect();
    let axes = Axes::of(&pictures);
    let drawings = pictures.iter().map(|one| (one.caption.clone(), picture(one, &axes))).collect();
    Some(Section {
        id: "lines",
        title: "Load lines",
        hint: "The highest rate of arrivals at which a promise is kept, in transactions per second. Rates are offered \
               whether or not the server keeps up, and response times count from when a transaction was due. The peak \
               is that of a closed loop, in which everybody waits."
            .to_owned(),
        drawings,
        tables: vec![cells(study, &promises), searches(study, &promises)],
        ..Section::default()
    })
}

/// Medians over the counted runs.
fn cells(study: &StudyReport, promises: &[String]) -> Table {
    let mut heads = vec!["Cell".to_owned(), "Peak TPS".to_owned()];
    heads.extend(promises.iter().cloned());
    let together: Vec<Option<(f64, String)>> =
        study.points.iter().map(|point| study.line_of_all(point)).collect();
    let has_together = together.iter().any(Option::is_some);
    if has_together {
        heads.push("All of them".to_owned());
    }
    let rows = study.points.iter().zip(&together).map(|(point, together)| {
        let peak = study.peak(point);
        let mut row = vec![point.label.clone(), dash(peak.map(|peak| number(peak.median)))];
        row.extend(
            promises
                .iter()
                .map(|promise| {
                    let line = study.estimate(point, promise)?;
                    let interval = spread(study, point, promise, line);
                    let interval = interval.map_or_else(String::new, |(low, high)| {
                        format!(" ({} – {})", number(low), number(high))
                    });
                    let share = peak
                        .map_or_else(String::new, |peak| format!(", {}", percent(line.median / peak.median)));
                    let not_held = study
                        .not_held(point, promise)
                        .map_or_else(String::new, |how_many| format!(", {how_many}"));
                    Some(format!("{}{interval}{share}{not_held}", number(line.median)))
                })
                .map(dash),
        );
        if has_together {
            let by = |(line_tps, promise): &(f64, String)| format!("{}, by {promise}", number(*line_tps));
            row.push(dash(together.as_ref().map(by)));
        }
        row.into_iter().map(Cell::from).collect()
    });
    let rows = rows.collect();
    let notes = study.points.iter().flat_map(|point| {
        let why = |promise: &String| {
            let why = study.why_no_line(point, promise)?;
            Some(format!("No line of {} under {promise}: it {why}", point.label))
        };
        promises.iter().filter_map(why).collect::<Vec<_>>()
    });
    Table {
        id: "lines",
        caption: "Lines, and their share of the peak".to_owned(),
        heads,
        words: 1,
        rows,
        notes: notes.collect(),
    }
}

/// Each search: what it found, and what ended it.
fn searches(study: &StudyReport, promises: &[String]) -> Table {
    let heads = heads("Cell | Run | Promise | Ended by | Held | Line | 95 % interval | Probes");
    let mut rows: Vec<Vec<Cell>> = Vec::new();
    let mut said: Vec<(&str, (&str, &str))> = Vec::new();
    for point in &study.points {
        for run in point.runs.iter().filter_map(|(run, _)| study.runs.get(*run)) {
            for line in promises.iter().filter_map(|promise| line_of(run, promise)) {
                let interval = match (line.low, line.high) {
                    (None, None) => None,
                    (low, high) => {
                        let end = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), number);
                        Some(format!("{} – {}", end(low), end(high)))
                    }
                };
                let held = line
                    .hold
                    .map(|hold| format!("{}{:.0} s", if hold.held { "" } else { "not for " }, hold.seconds));
                let row = [
                    point.label.clone(),
                    run.id.clone(),
                    line.promise.clone(),
                    line.ended_by.clone(),
                    dash(held),
                    dash(line.line_tps.map(number)),
                    dash(interval),
                    run.line.as_ref().map_or(0, |search| search.tried().len()).to_string(),
                ];
                rows.push(row.map(Cell::from).to_vec());
                let of = (run.id.as_str(), line.promise.as_str());
                said.extend(line.warnings.iter().map(|warning| (warning.as_str(), of)));
            }
        }
    }
    Table { id: "searches", caption: "Searches".to_owned(), heads, words: 5, rows, notes: notes(said) }
}

/// Each warning once, after the runs and promises that it was said of; `said` has warnings with run and promise.
fn notes(said: Vec<(&str, (&str, &str))>) -> Vec<String> {
    let note = |(warning, of): (&str, Vec<(&str, &str)>)| {
        let who = grouped(of).into_iter().map(|(run, promises)| {
            let promises = distinct(promises);
            format!("{run} ({})", promises.join(", "))
        });
        format!("{}: {warning}", who.collect::<Vec<_>>().join(", "))
    };
    grouped(said).into_iter().map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_of_many_searches_is_told_once() {
        let said = vec![
            ("too short", ("r1", "p99 < 5ms")),
            ("too short", ("r1", "p99 < 9ms")),
            ("sank", ("r1", "p99 < 9ms")),
            ("too short", ("r2", "p99 < 5ms")),
        ];
        let want = ["r1 (p99 < 5ms, p99 < 9ms), r2 (p99 < 5ms): too short", "r1 (p99 < 9ms): sank"];
        assert_eq!(notes(said), want);
    }
}
