//! Load lines: the highest rate at which a server keeps its promises, for `plimsoll line` and for studies with `[line]`.
//!
//! A search is a run like any other: a server's life from fresh or restored data to stop, watched and checked. In place of
//! one load it has a short closed-loop climb, which finds the peak, and then the rates that [`stats::line::Search`] asks
//! for, each a step of Poisson arrivals, drained before the next. What stands in the run's record as its level is the line
//! that was held; the probes are kept as a search of their own the moment each is over, so that another life goes on with
//! it.

mod asked;
mod found;
pub mod probe;
mod promise;
mod seek;

use std::path::PathBuf;

use sandbox::Home;
use store::bundle::sha256;
use store::{RunStart, Status, Store, StudyId};

use crate::error::{Class, Error};
use crate::hooks::Attach;
use crate::kept::{Gathering, study_of};
use crate::machine::{take_for_measuring, take_results};
use crate::make::{Making, make};
use crate::observe::{Observer, RunLabel};
use crate::on_server::{OnServer, add_options, key};
use crate::run::{Around, Ended, Order};
use crate::stop::StopSwitch;
use crate::study::MachineWishes;
use crate::subject::Subject;

pub use self::asked::{Asked, Debt, SESSIONS_MAX};
pub use self::found::{EndedBy, Found};
pub use self::promise::Promise;
pub(crate) use self::seek::{Earlier, LineOrder, Sought, goes_on, seek};

/// What `line` is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub on: OnServer,
    /// Promises, budget and hold.
    pub asked: Asked,
    /// Directory of the results: probes are kept there, and a search that was interrupted goes on after the last.
    pub results: PathBuf,
    /// Begin anew although there is an unfinished one.
    pub new: bool,
    /// The command line, without secrets.
    pub command: String,
    pub version: String,
}

/// The study that gathers the searches of `plimsoll line` in a results file.
const STUDY: (&str, &str, &str) =
    ("line", "Load lines", "What is the highest rate of arrivals at which a server keeps its promises?");

/// Searches for the line of each promise.
///
/// # Errors
/// Nothing could be searched for: the request is wrong, there is no such server, or the user stopped it.
pub fn line(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Found, Error> {
    request.asked.check()?;
    crate::checks::levels(&[request.asked.sessions_max], request.on.clients, request.on.machines_by_port())?;
    request.asked.check_classes(&*request.on.workload)?;
    let machine = take_for_measuring(home, Some(&MachineWishes::default()), observer, stop)?;
    let subject = Subject::find(home, &request.on.server, observer)?;
    subject.tell_unheeded(&request.on.workload, &request.on.options, observer);
    let mut store = Store::open(&request.results)?;
    let _results = take_results(&request.results)?;
    let around = Around { stop, observer, attach, seat: None };
    let search = Search { home, request, subject: &subject, notes: machine.doubt.iter().cloned().collect() };
    let (study, ended) = search.run(&mut store, around)?;
    // There is no plan that more runs could be missing from.
    store.set_study_state(study, "complete")?;
    let known = store.last_line(&search.fingerprint())?;
    let text = || ended.end.error.clone().unwrap_or_default();
    let Some(found) = known.filter(|known| known.found.is_some()) else {
        return Err(match ended.failure {
            Some(Class::Interrupted) => Error::Interrupted,
            Some(Class::Usage) => Error::Usage(text()),
            Some(Class::Server) => Error::Server(text()),
            Some(Class::Run) | None => Error::Run(text()),
        });
    };
    let mut warnings = ended.end.warnings.clone();
    warnings.extend((ended.end.status == Status::Invalid).then(text));
    Ok(Found {
        workload: request.on.workload.name().to_owned(),
        server: subject.name(),
        build: subject.build().map(|build| build.identity.clone()),
        search: found,
        warnings,
        is_sound: ended.end.status != Status::Invalid,
    })
}

/// The search of a command line.
struct Search<'a> {
    home: &'a Home,
    request: &'a Request,
    subject: &'a Subject,
    notes: Vec<String>,
}

impl Search<'_> {
    /// Runs it on one server's life after the other, where they do not last.
    fn run(&self, store: &mut Store, around: Around<'_>) -> Result<(StudyId, Ended), Error> {
        let (name, title, question) = STUDY;
        let (command, version) = (self.request.command.as_str(), self.request.version.as_str());
        let gathering = Gathering { name, title, question, command, version, goes_on: true };
        let mut is_new = self.request.new;
        let (study, mut start) = study_of(store, &gathering, self.start())?;
        start.build =
            self.subject.build().map(|build| store.add_build(&crate::record::build(build))).transpose()?;
        loop {
            let making = self.making(start.clone(), is_new)?;
            let line = self.order(is_new);
            let ended = make(making, Some((store, study)), around)?;
            if ended.failure.is_none() || around.stop.is_requested() || !goes_on(&line)? {
                return Ok((study, ended));
            }
            is_new = false;
        }
    }

    fn order(&self, is_new: bool) -> LineOrder<'_> {
        LineOrder {
            asked: &self.request.asked,
            results: &self.request.results,
            fingerprint: self.fingerprint(),
            command: &self.request.command,
            is_new,
            earlier: None,
            seed: self.request.on.seed,
        }
    }

    fn start(&self) -> RunStart {
        let OnServer { workload, options, settings, profile, replicas, seed, .. } = &self.request.on;
        let mut key = key(&self.subject.name(), workload);
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}"));
        let profile = profile.map(|profile| profile.name().to_owned());
        let settings: Vec<String> = profile.into_iter().chain(settings).collect();
        if !settings.is_empty() {
            key.insert("settings".to_owned(), settings.join(", ").into());
        }
        if !replicas.servers.is_empty() {
            key.insert("replicas".to_owned(), replicas.label.as_str().into());
        }
        add_options(&mut key, options);
        RunStart::new(key, vec![self.request.asked.sessions_max], *seed, load::time::unix_ms())
    }

    fn making(&self, start: RunStart, is_new: bool) -> Result<Making<'_>, Error> {
        let request = self.request;
        // Whatever was searched for before it: it is one search.
        let mut label = RunLabel { number: 1, block: 1, ..RunLabel::of(&start, 1, 1) };
        label.key.retain(|axis, _| axis == "server" || axis == "workload");
        let (place, asked) = self.subject.place(|build| Ok(request.on.spec("line", build)))?;
        let order = Order {
            line: Some(self.order(is_new)),
            is_lenient: true,
            asked,
            notes: self.notes.clone(),
            ..request.on.order(self.home, self.subject, request.on.load(level(&request.asked)))?
        };
        Ok(Making { start, label, order, place })
    }

    /// What two searches have to have in common for one to go on with the other.
    fn fingerprint(&self) -> String {
        let Request { asked, on, .. } = self.request;
        let promises: Vec<&str> = asked.promises.iter().map(|promise| promise.text.as_str()).collect();
        let text = format!(
            "{}\n{:?}\n{}\n{:?}\n{:?}\n{:?} {:?}\n{} {:?}\n{:?} {:?} {:?}\n{}",
            self.subject.name(),
            self.subject.build().map(|build| &build.identity),
            on.workload.name(),
            on.workload.content_sha256(),
            on.options,
            promises,
            asked.budget,
            asked.sessions_max,
            asked.hold,
            on.settings,
            on.profile,
            on.replicas,
            on.clients,
        );
        sha256(text.as_bytes())
    }
}

/// The level of the load whose workers and seed all probes have; it says for how many sessions the server is made.
fn level(asked: &Asked) -> load::Step {
    load::Step {
        sessions: asked.sessions_max,
        warmup: asked.warmup(),
        length: load::Length::Time(asked.hold),
        pacing: load::Pacing::Closed,
    }
}
