//! How far replicas were behind while their primary was loaded, and how long they took to catch up after it.

use store::CAUGHT_UP_S;

use super::{Cell, Section, Table, heads};
use crate::model::{Point, StudyReport};
use crate::order::distinct;

pub(super) fn section(study: &StudyReport) -> Option<Section> {
    let rows: Vec<Vec<Cell>> = study.points.iter().flat_map(|point| rows(study, point)).collect();
    let heads = heads(
        "Cell | Replica | Sessions | Lag, median second (s) | Lag, worst second (s) | Caught up after the load (s) | Lives",
    );
    (!rows.is_empty()).then(|| Section {
        id: "replication",
        title: "How far replicas were behind",
        hint: "Lag is how long ago the primary's log ended where the replica has come to, once a second; its series stand with \
               each run. What a replica had not applied when the load ended is debt: the time until it had is shown, and what \
               the tables must hold was checked on it then. Replicas share the machine with their primary: what they cost it is \
               their cpu time and their writing, too."
            .to_owned(),
        tables: vec![Table {
            id: "lag",
            caption: "Medians over the lives".to_owned(),
            heads,
            words: 2,
            rows,
            notes: Vec::new(),
        }],
        ..Section::default()
    })
}

/// One for each replica of a point.
fn rows(study: &StudyReport, point: &Point) -> Vec<Vec<Cell>> {
    let series = || {
        let ends = study.counted(point).filter_map(|(run, step)| Some((run, step, run.end.as_ref()?)));
        ends.flat_map(|(run, step, end)| {
            let lags = end.series.iter().filter(|it| it.source == "replica" && it.name == "lag");
            lags.map(move |lag| (run, step, end, lag))
        })
    };
    let names = distinct(series().map(|(.., lag)| lag.instance.clone()));
    let row = |name: &String| {
        let (mut middle_s, mut most_s, mut caught_up_s, mut server) = (vec![], vec![], vec![], "");
        for (run, step, end, lag) in series().filter(|(.., lag)| lag.instance == *name) {
            // A sample belongs to the second that it ends, with half a second of tolerance.
            let (from, to) = (step.offset_s + 0.5, step.offset_s + step.duration_s + 0.5);
            let inside = lag.points.iter().filter(|(t, _)| *t > from && *t <= to);
            let lags_s: Vec<f64> = inside.map(|(_, lag_s)| *lag_s).collect();
            middle_s.extend(stats::median(&lags_s));
            most_s.extend(lags_s.into_iter().reduce(f64::max));
            // What is owed after a climb is owed by its last level.
            if run.steps.last().is_some_and(|last| last.sessions == step.sessions) {
                let took = end.facts.get(&format!("{CAUGHT_UP_S}/{name}"));
                caught_up_s.extend(took.and_then(|took| took.parse::<f64>().ok()));
            }
            let fact = end.facts.get(&format!("replica {name}"));
            server = fact.and_then(|fact| fact.split(',').next()).unwrap_or(server);
        }
        vec![
            point.label.clone().into(),
            format!("{name}: {server}").into(),
            Cell::count("sessions", point.sessions as usize),
            Cell::number("lag_s", stats::median(&middle_s)),
            Cell::number("lag_s_max", stats::median(&most_s)),
            Cell::number("caught_up_s", stats::median(&caught_up_s)),
            Cell::count("lives", most_s.len()),
        ]
    };
    names.iter().map(row).collect()
}
