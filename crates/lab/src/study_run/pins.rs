//! The servers of a study, looked up once and pinned: a study that goes on has exactly those that it began with.

use std::collections::BTreeSet;

use sandbox::builds::Resolved;
use sandbox::builds::source::{Made, Recipe};
use sandbox::{Flavor, Home};

use super::Request;
use crate::error::{Class, Error};
use crate::observe::{Event, Observer};
use crate::plan::{Cell, Pinned, Plan};
use crate::servers::{self, Server};
use crate::stop::StopSwitch;
use crate::study::{Body, ServerChoice, SourceChoice, Study};
use crate::subject::Subject;

pub(super) fn pin(selector: &str, label: Option<&str>, build_name: &str, identity: &str) -> Pinned {
    Pinned {
        selector: wire::mask::value(selector),
        name: label.map_or_else(|| build_name.to_owned(), |label| format!("{build_name}+{label}")),
        build_name: build_name.to_owned(),
        build: identity.to_owned(),
    }
}

pub(super) fn no_name_twice(study: &Study, body: &Body, pinned: &[Pinned]) -> Result<(), Error> {
    // Those of replicas may be the same.
    for (index, one) in pinned.iter().take(body.axes.server.len()).enumerate() {
        if let Some(other) = pinned[..index].iter().find(|other| other.name == one.name) {
            let message =
                format!("`{}` and `{}` are the same server, {}", other.selector, one.selector, one.name);
            let help = format!(
                "leave one out, or give it a label to measure it against itself ({{ server = \"{}\", label = \"again\" }})",
                one.selector
            );
            let place = format!("server/{}", body.axes.server[index].key());
            return Err(study.refuse(&place, message, "the second time", &help));
        }
    }
    Ok(())
}

/// The servers that the runs which are asked for need, by their places in the study.
pub(super) fn needed(request: &Request, body: &Body, plan: &Plan) -> Result<BTreeSet<usize>, Error> {
    let chosen = super::chosen(plan, request)?;
    let whole = super::block::whole_units(body, plan, chosen.iter().collect());
    let cells = whole.into_iter().map(|run| &plan.cells[run.cell]);
    let of_cell = |cell: &Cell| {
        let replicas = cell.replicas().iter().flatten();
        let replicas = replicas.filter_map(|server| plan.replica_server(server));
        std::iter::once(cell.server).chain(replicas).collect::<Vec<_>>()
    };
    Ok(cells.flat_map(of_cell).collect())
}

/// One that stays where it is: the runs that are asked for do without it.
fn unneeded(pin: &Pinned) -> Option<Subject> {
    let flavor = pin.build_name.split(['@', '+']).next().unwrap_or_default();
    let flavor = Flavor::ALL.into_iter().find(|known| known.name() == flavor)?;
    let name = pin.build_name.clone();
    let why = format!("{name} was not looked up: no run that was asked for needs it");
    Some(Subject::Absent { name, flavor, why })
}

/// Looks up the servers of the study. For one that goes on these are exactly those that it began with, and only those that
/// the runs asked for need.
pub(super) fn look_up(
    home: &Home,
    request: &Request,
    body: &Body,
    before: Option<&Plan>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<(Vec<Subject>, Vec<Pinned>), Error> {
    let needed = before.map(|plan| needed(request, body, plan)).transpose()?;
    let mut subjects = Vec::new();
    let (mut pinned, mut unbuilt) = (Vec::new(), 0);
    for (index, choice) in body.axes.pinned_servers().iter().enumerate() {
        let pin_before = before.and_then(|plan| plan.servers.get(index));
        let is_needed = needed.as_ref().is_none_or(|needed| needed.contains(&index));
        if let Some(pin) = pin_before.filter(|_| !is_needed)
            && let Some(subject) = unneeded(pin)
        {
            pinned.push(pin.clone());
            subjects.push(subject);
            continue;
        }
        let subject = match &choice.source {
            Some(source) => {
                let flavor = flavor_of(source, &body.axes.server);
                built(home, (choice, source, flavor), pin_before, observer, stop)?
            }
            None => found(home, &request.study, choice, pin_before, observer)?,
        };
        unbuilt += usize::from(choice.source.is_some() && subject.build().is_none());
        let name = subject.name();
        let identity = subject.build().map_or_else(|| name.clone(), |build| build.identity.clone());
        if let Some(pin) = pin_before
            && pin.build != identity
        {
            return Err(Error::Server(format!(
                "{} is not the build that this study began with (it was {}, now {}): bring the old one back, or begin \
                 anew with --new",
                pin.name, pin.build, identity
            )));
        }
        pinned.push(pin(&choice.server, choice.label.as_deref(), &name, &identity));
        subjects.push(subject);
    }
    match subjects.first() {
        Some(Subject::Absent { why, .. }) if unbuilt == subjects.len() => {
            Err(Error::Server(format!("no server of the study builds: {why}")))
        }
        _ => Ok((subjects, pinned)),
    }
}

fn found(
    home: &Home,
    study: &Study,
    choice: &ServerChoice,
    pin_before: Option<&Pinned>,
    observer: Observer<'_>,
) -> Result<Subject, Error> {
    let mut server = servers::parse_argument(&choice.server)?;
    if let (Server::Selector(selector), Some(pin)) = (&mut server, pin_before) {
        *selector = pin.build_name.parse()?;
    }
    Subject::find(home, &server, observer).map_err(|error| in_study(study, choice, error))
}

/// A server that is built from source, unless it has been. What its commit was when the study began is kept to, whatever
/// its name means by now.
fn built(
    home: &Home,
    (choice, source, flavor): (&ServerChoice, &SourceChoice, Flavor),
    pin_before: Option<&Pinned>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Subject, Error> {
    let unbuilt = |why: String| Subject::Absent { name: choice.server.clone(), flavor, why };
    if let Some(pin) = pin_before {
        if pin.build == pin.build_name {
            let why = format!("{} did not build when this study began: --new builds it again", choice.server);
            return Ok(unbuilt(why));
        }
        if let Resolved::Here(build) = sandbox::builds::find(home, &pin.build_name.parse()?)? {
            return Ok(Subject::Build(Box::new(build)));
        }
    }
    Ok(match crate::source::of_study(home, source, &choice.server, observer, stop)? {
        Made::Build(build) => Subject::Build(Box::new(build)),
        Made::Broken { commit, step, log, log_file } => {
            let why = format!(
                "{} (commit {commit}) does not build: {step} failed; its log, {}, ends with\n{log}",
                choice.server,
                log_file.display()
            );
            observer(Event::Warning(&format!("{why}\nIts runs fail; the others are made")));
            unbuilt(why)
        }
    })
}

/// What the checkout of a clone is, by its recipe; where that does not tell, what another server of the study is. Only
/// checks of settings ask.
pub(super) fn flavor_of(source: &SourceChoice, servers: &[ServerChoice]) -> Flavor {
    let recipe = Recipe::of_source(&source.clone).map(|recipe| recipe.name).unwrap_or_default();
    let of_other = |choice: &ServerChoice| match servers::parse_argument(&choice.server) {
        Ok(Server::Selector(selector)) if choice.source.is_none() => Some(selector.flavor),
        _ => None,
    };
    let of_recipe = Flavor::ALL.into_iter().find(|flavor| recipe.starts_with(flavor.name()));
    of_recipe.or_else(|| servers.iter().find_map(of_other)).unwrap_or(Flavor::Postgres)
}

/// An error about a server of the study, shown where the study names it.
pub(super) fn in_study(study: &Study, choice: &ServerChoice, error: Error) -> Error {
    let place = format!("server/{}", choice.key());
    let no_build = "`plimsoll servers` lists what there is";
    match error {
        Error::Study(_) => error,
        Error::Sandbox(error @ sandbox::Error::NoBuild { .. }) => {
            match study.refuse(&place, error.to_string(), "no such build", no_build) {
                Error::Study(problems) => Error::StudyServer(problems),
                _ => error.into(),
            }
        }
        error if error.class() == Class::Usage => {
            let help = format!("a server is {}", servers::FORMS);
            study.refuse(&place, error.to_string(), "no such server", &help)
        }
        error => error,
    }
}
