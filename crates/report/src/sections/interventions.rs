//! What was changed of servers while they were loaded: by which statements, and what they said of themselves then.

use store::INTERVENE;

use super::{Section, Table, dash, values_of};
use crate::interventions::Moment;
use crate::model::{Point, RunView, Standing, StudyReport};
use crate::text::{number, value_text};

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
    let rows: Vec<Vec<String>> = values_of(study, INTERVENE)
        .iter()
        .filter_map(|value| {
            let name = value_text(value);
            let runs: Vec<&RunView> = study.runs.iter().filter(|run| is_of(run, &name)).collect();
            Some(row(&name, &runs, runs.iter().find_map(|run| run.end.as_ref()?.interventions.first())?))
        })
        .collect();
    let heads = ["State", "Switched on by", "Switched off by", "Read back", "Lives", "Phases"];
    (!rows.is_empty()).then(|| Table {
        caption: "States of one server life".to_owned(),
        heads: heads.map(str::to_owned).to_vec(),
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
        ["Cell", "Change", "Statements", "Second", "TPS before", "TPS after", "After over before", "Lives"];
    (!rows.is_empty()).then(|| Table {
        caption: "Changes at a moment".to_owned(),
        heads: heads.map(str::to_owned).to_vec(),
        words: 3,
        rows,
        notes: vec![
            "Medians over the lives, of the whole seconds before and after; in brackets the lowest and the highest ratio. No \
             verdict: the order is always the same, and what would have changed by itself looks alike."
                .to_owned(),
        ],
    })
}

fn moment_row(point: &Point, of: &Moment<'_>) -> Vec<String> {
    let sides = of.sides_tps();
    vec![
        point.label.clone(),
        of.name.to_owned(),
        of.statements.join("; "),
        dash(stats::median(&of.at_s).map(number)),
        dash(sides.map(|(before, _)| number(before))),
        dash(sides.map(|(_, after)| number(after))),
        dash(of.ratio_text()),
        of.lives().to_string(),
    ]
}

fn is_of(run: &RunView, name: &str) -> bool {
    let mut interventions = run.end.iter().flat_map(|end| &end.interventions);
    run.standing == Standing::Counted && interventions.any(|one| one.at_s.is_none() && one.name == name)
}

fn row(name: &str, runs: &[&RunView], of: &store::Intervention) -> Vec<String> {
    let slices =
        || runs.iter().filter_map(|run| run.end.as_ref()?.duel.as_ref()).flat_map(|duel| &duel.slices);
    let counted = slices().filter(|slice| slice.is_counted).count();
    let readings: Vec<String> = of.readings.iter().map(|(name, value)| format!("{name} = {value}")).collect();
    let state = store::intervention_text(name);
    let text = |parts: &[String], between: &str| {
        if parts.is_empty() { "\u{2013}".to_owned() } else { parts.join(between) }
    };
    vec![
        state,
        text(&of.on, "; "),
        text(&of.off, "; "),
        text(&readings, ", "),
        runs.len().to_string(),
        format!("{counted} of {}", slices().count()),
    ]
}
