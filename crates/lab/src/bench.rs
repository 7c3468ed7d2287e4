//! One workload on one server at some session counts: `plimsoll bench`.

use std::time::Duration;

use sandbox::{Assignment, CpuRequest, Cpus, Home, Spec};
use store::{RunEnd, RunStart, Status, WorkloadFacts};

use crate::error::{Class, Error};
use crate::hooks::Attach;
use crate::machine::{Machine, take_for_measuring};
use crate::make::{Making, make};
use crate::observe::{Event, Observer, Phase, RunLabel};
use crate::on_server::{OnServer, key};
use crate::run::{Around, Order};
use crate::stop::StopSwitch;
use crate::study::MachineWishes;
use crate::subject::Subject;

pub use crate::provision::Data;

/// What `bench` is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub on: OnServer,
    /// Session counts, in order.
    pub sessions: Vec<u32>,
    /// How long each is measured.
    pub length: load::Length,
    /// Run before and not recorded.
    pub warmup: Duration,
    pub pacing: load::Pacing,
    /// Cpus of a sandbox of its own.
    pub cpus: Option<Cpus>,
    /// About tables.
    pub data: Data,
}

/// One session count, measured or failed.
#[derive(Debug)]
pub struct Level {
    pub start: RunStart,
    pub end: RunEnd,
    /// Identity of the build; `None` for an attached server.
    pub build: Option<String>,
    /// What kind of failure it was, if it was one.
    pub failure: Option<Class>,
    pub result: Option<load::LoadResult>,
    /// `false`: the bench ended before it was this level's turn.
    pub is_begun: bool,
}

impl Level {
    /// One that was asked for and never begun.
    fn unreached(request: &Request, index: usize, error: &Error) -> Level {
        let is_interrupted = error.class() == Class::Interrupted;
        let (status, why) = match is_interrupted {
            true => (Status::Interrupted, "stopped by the user before this level began".to_owned()),
            false => (Status::Failed, error.to_string()),
        };
        let OnServer { workload, options, .. } = &request.on;
        let (name, options) = (workload.name().to_owned(), options.clone());
        let workload = WorkloadFacts { name, options, ..WorkloadFacts::default() };
        let end = RunEnd { error: Some(why), workload, ..RunEnd::new(status, load::time::unix_ms()) };
        Level {
            start: start_of(request, &request.on.server.shown(), index),
            end,
            build: None,
            failure: Some(error.class()),
            result: None,
            is_begun: false,
        }
    }
}

/// Runs all session counts in order and hands each to `done` the moment it ends. A level that fails does not end
/// the others; a server that cannot be had does, and then `done` gets the levels that were never begun too.
///
/// # Errors
/// Nothing could be run at all: the request is wrong, or there is no such server.
pub fn bench(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
    done: &mut dyn FnMut(Level),
) -> Result<(), Error> {
    let mut ended = 0;
    let mut count = |level: Level| {
        ended += 1;
        done(level);
    };
    let result = levels(home, request, Around { stop, observer, attach, seat: None }, &mut count);
    if let Err(error) = &result
        && error.class() != Class::Usage
    {
        (ended..request.sessions.len()).for_each(|index| done(Level::unreached(request, index, error)));
    }
    result
}

fn levels(
    home: &Home,
    request: &Request,
    around: Around<'_>,
    done: &mut dyn FnMut(Level),
) -> Result<(), Error> {
    let Around { stop, observer, .. } = around;
    levels_are_possible(request, observer)?;
    let machine = take_for_measuring(home, Some(&MachineWishes::default()), observer, stop)?;
    let subject = Subject::find(home, &request.on.server, observer)?;
    subject.tell_unheeded(&request.on.workload, &request.on.options, observer);
    let mut data = request.data;
    for index in 0..request.sessions.len() {
        let making = making(home, request, (&subject, data), &machine, index)?;
        let start = making.start.clone();
        let ended = make(making, None, around)?;
        // Loaded once anew is enough for a server that keeps its tables between levels.
        if subject.own_build().is_none() && data == Data::Fresh && ended.failure.is_none() {
            data = Data::Any;
        }
        done(Level {
            start,
            end: ended.end,
            build: subject.build().map(|build| build.identity.clone()),
            failure: ended.failure,
            result: ended.result,
            is_begun: true,
        });
        if stop.is_requested() {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// A bench of nothing but impossible levels is refused before anything is fetched or made for it. Where others are
/// possible they are measured, and it is told at once which are not.
fn levels_are_possible(request: &Request, observer: Observer<'_>) -> Result<(), Error> {
    let look = |sessions: &u32| {
        crate::checks::levels(&[*sessions], request.on.clients, request.on.machines_by_port()).err()
    };
    let impossible: Vec<Error> = request.sessions.iter().filter_map(look).collect();
    let is_all = impossible.len() == request.sessions.len();
    for error in impossible {
        if is_all {
            return Err(error);
        }
        observer(Event::Warning(&format!("{error}; the other levels are measured")));
    }
    Ok(())
}

/// The run of one session count.
fn making<'a>(
    home: &'a Home,
    request: &'a Request,
    (subject, data): (&'a Subject, Data),
    machine: &Machine,
    index: usize,
) -> Result<Making<'a>, Error> {
    let sessions = request.sessions[index];
    let start = start_of(request, &subject.name(), index);
    let Request { warmup, length, pacing, .. } = *request;
    let mut load = request.on.load(load::Step { sessions, warmup, length, pacing });
    let pinned = request.cpus.as_ref().filter(|_| subject.own_build().is_some());
    let assigned = pinned.map(cpus_beside).transpose()?;
    let client = assigned.as_ref().and_then(|assigned| assigned.client.as_ref());
    load.cpus = client.map_or_else(Vec::new, |cpus| cpus.0.iter().map(|&cpu| cpu as usize).collect());
    let (place, asked) =
        subject.place(|build| Ok(Spec { cpus: request.cpus.clone(), ..request.on.spec("bench", build) }))?;
    let notes = assigned.map(|assigned| assigned.notes).unwrap_or_default();
    let mut order = Order {
        data,
        asked,
        notes: machine.doubt.iter().cloned().chain(notes).collect(),
        ..request.on.order(home, subject, load)?
    };
    // They are like it.
    let replicas = order.replicas.iter_mut().flat_map(|replicas| &mut replicas.specs);
    replicas.for_each(|spec| spec.cpus.clone_from(&request.cpus));
    Ok(Making { label: RunLabel::of(&start, request.sessions.len(), 1), start, order, place })
}

/// The server's cpus as asked for, and for the client those that are left.
fn cpus_beside(server: &Cpus) -> Result<Assignment, Error> {
    let server = CpuRequest::List(server.to_string());
    let client = sandbox::cpus::rest(std::slice::from_ref(&server))?;
    let client = client.map(|cpus| CpuRequest::List(cpus.to_string()));
    Ok(sandbox::cpus::assign(Some(&server), client.as_ref())?)
}

fn start_of(request: &Request, server: &str, index: usize) -> RunStart {
    let (key, now) = (key(server, &request.on.workload), load::time::unix_ms());
    let of_level = RunStart::new(key, vec![request.sessions[index]], request.on.seed, now);
    RunStart { index: index as u32, position: index as u32 + 1, ..of_level }
}

/// Shorter waits are not worth a line.
const WAIT_TOLD_S: f64 = 0.5;

/// How long a level waited, before its load, for what the server had put off, and what that was; `None` where it was
/// hardly noticed.
pub fn waited(level: &Level) -> Option<String> {
    let drain = level.end.phases.iter().find(|phase| phase.name == Phase::Drain.name())?;
    let what = level.end.facts.get("drained")?;
    (drain.duration_s >= WAIT_TOLD_S).then(|| format!("debt of earlier work was drained {what}"))
}

/// The lines of the level as the command line prints them.
pub fn lines(level: &Level) -> Vec<serde_json::Value> {
    report::bench_lines(&level.start, &level.end, level.build.as_deref())
}
