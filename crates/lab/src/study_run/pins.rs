//! The servers of a study, looked up once and pinned: a study that goes on has exactly those that it began with.

use std::collections::BTreeSet;

use sandbox::{Flavor, Home};

use super::Request;
use crate::error::Error;
use crate::observe::Observer;
use crate::plan::{Pinned, Plan};
use crate::servers::{self, Server};
use crate::study::{Body, Study};
use crate::subject::Subject;

pub(super) fn pin(selector: &str, label: Option<&str>, build_name: &str, identity: &str) -> Pinned {
    Pinned {
        selector: wire::mask::value(selector),
        name: label.map_or_else(|| build_name.to_owned(), |label| format!("{build_name}+{label}")),
        build_name: build_name.to_owned(),
        build: identity.to_owned(),
    }
}

pub(super) fn no_name_twice(study: &Study, pinned: &[Pinned]) -> Result<(), Error> {
    for (index, one) in pinned.iter().enumerate() {
        if let Some(other) = pinned[..index].iter().find(|other| other.name == one.name) {
            return Err(Error::Usage(format!(
                "{}: `{}` and `{}` are the same server, {}: leave one out, or give it a label to measure it against \
                 itself ({{ server = \"{}\", label = \"again\" }})",
                study.path.display(),
                other.selector,
                one.selector,
                one.name,
                one.selector
            )));
        }
    }
    Ok(())
}

/// The servers that the runs which are asked for need, by their places in the study.
pub(super) fn needed(request: &Request, body: &Body, plan: &Plan) -> Result<BTreeSet<usize>, Error> {
    let chosen = super::chosen(plan, request)?;
    let whole = super::block::whole_units(body, plan, chosen.iter().collect());
    Ok(whole.into_iter().map(|run| plan.cells[run.cell].server).collect())
}

/// One that stays where it is: the runs that are asked for do without it.
fn unneeded(pin: &Pinned) -> Option<Subject> {
    let flavor = pin.build_name.split(['@', '+']).next().unwrap_or_default();
    let flavor = Flavor::ALL.into_iter().find(|known| known.name() == flavor)?;
    Some(Subject::Unneeded { name: pin.build_name.clone(), flavor })
}

/// Looks up the servers of the study. For one that goes on these are exactly those that it began with, and only those that
/// the runs asked for need.
pub(super) fn look_up(
    home: &Home,
    request: &Request,
    body: &Body,
    before: Option<&Plan>,
    observer: Observer<'_>,
) -> Result<(Vec<Subject>, Vec<Pinned>), Error> {
    let needed = before.map(|plan| needed(request, body, plan)).transpose()?;
    let mut subjects = Vec::new();
    let mut pinned = Vec::new();
    for (index, choice) in body.axes.server.iter().enumerate() {
        let pin_before = before.and_then(|plan| plan.servers.get(index));
        let is_needed = needed.as_ref().is_none_or(|needed| needed.contains(&index));
        if let Some(pin) = pin_before.filter(|_| !is_needed)
            && let Some(subject) = unneeded(pin)
        {
            pinned.push(pin.clone());
            subjects.push(subject);
            continue;
        }
        let mut server = servers::parse_argument(&choice.server)?;
        if let (Server::Selector(selector), Some(pin)) = (&mut server, pin_before) {
            *selector = pin.build_name.parse()?;
        }
        let subject = Subject::find(home, &server, observer)
            .map_err(|error| in_study(&request.study, &choice.server, error))?;
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
    Ok((subjects, pinned))
}

/// An error about a name in the study file, shown where the name stands.
fn in_study(study: &Study, name: &str, error: Error) -> Error {
    let Error::Usage(message) = error else { return error };
    let quoted = format!("\"{name}\"");
    let Some(at) = study.text.find(&quoted) else { return Error::Usage(message) };
    Error::Study(Box::new(crate::study::StudyError {
        path: study.path.clone(),
        text: study.text.clone(),
        problems: vec![crate::study::Problem {
            message,
            span: at..at + quoted.len(),
            label: "no such server".into(),
            help: Some(format!("a server is {}", servers::FORMS)),
        }],
    }))
}
