//! What `--dry-run` shows of a study.

use std::time::Duration;

use sandbox::Home;
use sandbox::builds::Resolved;

use super::pins::{flavor_of, in_study, no_name_twice, pin};
use super::{Request, sessions_are_possible};
use crate::cells::{Controlled, Life, SettingsNotes};
use crate::error::Error;
use crate::intervene::{phase_of, phases_in};
use crate::plan::{Plan, PlannedRun};
use crate::servers::{self, Server};
use crate::study::{Body, Ladder, Length, Pairing};

/// A plan that has not been begun.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The plan, with the seed that it would have, or has.
    pub plan: Plan,
    /// Servers that would have to be fetched or built, and where from.
    pub to_obtain: Vec<(String, String)>,
    /// Length of one run's warm-ups and measured phases, where the clock decides.
    pub run_length: Option<Duration>,
    /// The runs that `only` leaves.
    pub chosen: Vec<PlannedRun>,
    /// What is worth a second look before hours are spent on it.
    pub notes: Vec<String>,
}

/// What `--dry-run` shows. Fetches nothing, connects to nothing, writes nothing; builds that are here are asked whether
/// they take the study's settings.
///
/// # Errors
/// The study asks for what there is not.
pub fn outline(home: &Home, request: &Request) -> Result<Outline, Error> {
    let body = request.study.body(request.quick);
    sessions_are_possible(&request.study, &body)?;
    let mut pinned = Vec::new();
    let mut to_obtain = Vec::new();
    let mut found = Vec::new();
    for choice in &body.axes.pinned_servers() {
        if let Some(source) = &choice.source {
            let commit = sandbox::builds::commit_of(&source.clone, &choice.server)
                .map_err(|error| in_study(&request.study, choice, error.into()))?;
            let from = format!(
                "to be built, unless it has been, from commit {commit} of {}",
                source.clone.display()
            );
            to_obtain.push((choice.server.clone(), from));
            pinned.push(pin(&choice.server, choice.label.as_deref(), &choice.server, ""));
            found.push((flavor_of(source, &body.axes.server), Some(None)));
            continue;
        }
        let (name, flavor, build) = match servers::parse_argument(&choice.server)? {
            Server::Selector(selector) => match sandbox::builds::find(home, &selector)
                .map_err(|error| in_study(&request.study, choice, error.into()))?
            {
                Resolved::Here(build) => (build.name(), build.flavor, Some(Some(build))),
                Resolved::Away(fetchable) => {
                    let from = format!("to be fetched from {}", fetchable.source);
                    to_obtain.push((fetchable.name(), from));
                    (fetchable.name(), selector.flavor, Some(None))
                }
            },
            Server::Sandbox(name) => {
                let sandbox = servers::open_sandbox(home, &name)
                    .map_err(|error| in_study(&request.study, choice, error))?;
                (name, sandbox.build().flavor, None)
            }
            Server::Url(target) => {
                let flavor = match target.protocol {
                    wire::Protocol::Mysql => sandbox::Flavor::Mysql,
                    wire::Protocol::Postgres => sandbox::Flavor::Postgres,
                };
                (wire::mask::value(&choice.server), flavor, None)
            }
        };
        pinned.push(pin(&choice.server, choice.label.as_deref(), &name, ""));
        found.push((flavor, build));
    }
    no_name_twice(&request.study, &body, &pinned)?;
    let plan = Plan::new(&body, request.quick, super::seed(request, &body), pinned);
    let controlled: Vec<Controlled<'_>> = found
        .iter()
        .map(|(flavor, build)| Controlled {
            flavor: *flavor,
            life: match build {
                Some(Some(build)) => Life::Own(build),
                Some(None) => Life::ToFetch,
                None => Life::Foreign,
            },
        })
        .collect();
    crate::possible::check(home, &request.study, &body.load, &plan, &controlled)?;
    super::places::check(home, &request.study, &body, &plan)?;
    let notes = SettingsNotes::of(&request.study, &body.load, &plan, &controlled)?;
    let mut notes: Vec<String> = notes.all().cloned().collect();
    notes.extend(duels_note(&body));
    notes.extend(phases_note(&body));
    notes.extend(plan.uneven_lives(&body));
    notes.extend(crate::calibrate::note(home, &request.study, &body, &plan));
    super::has_blocks(request, &plan)?;
    let chosen = super::chosen(&plan, request)?;
    Ok(Outline { chosen, plan, to_obtain, run_length: run_length(&body), notes })
}

/// How duels go, where the study has them.
fn duels_note(body: &Body) -> Option<String> {
    let (Pairing::Duel, Some(compare), Length::Time(length)) =
        (body.load.pairing, &body.compare, body.load.length)
    else {
        return None;
    };
    let sides = crate::study::axis_values(&body.axes, &compare.axis).len();
    if body.line.is_some() {
        return Some(format!(
            "duels: the {sides} values of `{}` live at the same time and try their rates in turns",
            compare.axis
        ));
    }
    Some(format!(
        "duels: the {sides} values of `{}` live at the same time and are loaded in turns, {} of half a second each",
        compare.axis,
        store::counted(crate::duel::slices_in(length), "slice")
    ))
}

/// How a server is switched, where the study does so.
fn phases_note(body: &Body) -> Option<String> {
    if body.axes.intervene.is_empty() {
        return None;
    }
    let (phase, states) = (phase_of(body), body.axes.interventions());
    Some(format!(
        "interventions: in each life {} take turns, {} phases of {} each",
        states.join(", "),
        phases_in(body.load.length, phase),
        crate::study::units::show(phase)
    ))
}

/// Warm-ups and measured phases of one run of one level; the longest of the ladder for a climb.
pub(crate) fn run_length(body: &Body) -> Option<Duration> {
    if let Some(asked) = &body.line {
        return Some(asked.budget);
    }
    let Length::Time(length) = body.load.length else { return None };
    if body.axes.workload.iter().any(|workload| workload.length.is_some()) {
        return None;
    }
    let levels = match &body.axes.ladder {
        Ladder::Sessions(_) => 1,
        Ladder::Climb(levels) => levels.len() as u32,
    };
    Some((body.load.warmup + length) * levels)
}
