//! What was changed of servers while they were loaded: by which statements, and what they said of themselves then.

use store::INTERVENE;

use super::{Cell, Section, Table, heads, values_of};
use crate::interventions::Moment;
use crate::model::{Point, RunView, Standing, StudyReport};
use crate::text::value_text;

pub(super) fn section(study: &StudyReport) -> Option<Section> {
    let tables: Vec<Table> = [states(study), moments(study)].into_iter().flatten().collect();
    (!tables.is_empty()).then(|| Section {
        id: "interventions",
        title: "What was changed while the server was loaded",
        tables,
        ..Section::default()
    })
}

/// What was switched on and off.
fn states(study: &StudyReport) -> Option<Table> {
    let rows: Vec<Vec<Cell>> = values_of(study, INTERVENE)
        .iter()
        .filter_map(|value| {
            let name = value_text(value);
            let runs: Vec<&RunView> = study.runs.iter().filter(|run| is_of(run, &name)).collect();
            Some(row(&name, &runs, runs.iter().find_map(|run| run.end.as_ref()?.interventions.first())?))
        })
        .collect();
    let heads = heads("State | Switched on by | Switched off by | Read back | Lives | Phases");
    (!rows.is_empty()).then(|| Table {
        id: "states",
        caption: "States of one server life".to_owned(),
        heads,
        words: 4,
        rows,
        notes: vec![
            "The states of a life are measured in phases, in rounds of a random order that are each followed by one in the \
             opposite order; a life is one value of each state's sample. Phases: those that count, of those that there were; \
             the others were disturbed."
                .to_owned(),
        ],
    })
}

/// What came once, in the middle of a level.
fn moments(study: &StudyReport) -> Option<Table> {
    let mut rows = Vec::new();
    for point in &study.points {
        rows.extend(Moment::of(study, point).iter().map(|moment| moment_row(point, moment)));
    }
    let heads =
        heads("Cell | Change | Statements | Second | TPS before | TPS after | After over before | Lives");
    (!rows.is_empty()).then(|| Table {
        id: "moments",
        caption: "Changes at a moment".to_owned(),
        heads,
        words: 3,
        rows,
        notes: vec![
            "Medians over the lives, of the whole seconds before and after; in brackets the lowest and the highest ratio. No \
             verdict: the order is always the same, and what would have changed by itself looks alike."
                .to_owned(),
        ],
    })
}

fn moment_row(point: &Point, of: &Moment<'_>) -> Vec<Cell> {
    let sides = of.sides_tps();
    let ratio = |(text, [middle, low, high]): (String, [f64; 3])| {
        Cell::several(
            "ratio",
            text,
            vec![("value", middle.into()), ("low", low.into()), ("high", high.into())],
        )
    };
    vec![
        point.label.clone().into(),
        of.name.into(),
        of.statements.join("; ").into(),
        Cell::number("at_s", stats::median(&of.at_s)),
        Cell::number("tps_before", sides.map(|(before, _)| before)),
        Cell::number("tps_after", sides.map(|(_, after)| after)),
        of.ratio_text().zip(of.ratio()).map_or_else(Cell::dash, ratio),
        Cell::count("lives", of.lives()),
    ]
}

fn is_of(run: &RunView, name: &str) -> bool {
    let mut interventions = run.end.iter().flat_map(|end| &end.interventions);
    run.standing == Standing::Counted && interventions.any(|one| one.at_s.is_none() && one.name == name)
}

fn row(name: &str, runs: &[&RunView], of: &store::Intervention) -> Vec<Cell> {
    let slices =
        || runs.iter().filter_map(|run| run.end.as_ref()?.duel.as_ref()).flat_map(|duel| &duel.slices);
    let counted = slices().filter(|slice| slice.is_counted).count();
    let readings: Vec<String> = of.readings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let state = store::intervention_text(name);
    let text = |parts: &[String], between: &str| {
        if parts.is_empty() { "\u{2013}".to_owned() } else { parts.join(between) }
    };
    let all = slices().count();
    let phases = vec![("counted", counted.into()), ("all", all.into())];
    vec![
        state.into(),
        text(&of.on, "; ").into(),
        text(&of.off, "; ").into(),
        text(&readings, ", ").into(),
        Cell::count("lives", runs.len()),
        Cell::several("phases", format!("{counted} of {all}"), phases),
    ]
}
