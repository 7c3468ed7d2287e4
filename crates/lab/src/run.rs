//! One run: a server's life from fresh or restored data to stop, with everything that is recorded of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use load::{LoadPlan, LoadResult};
use sandbox::Home;
use store::{LineFound, RunEnd, ServerFacts, Status, WorkloadFacts};
use workload::Ran;

use crate::asked::Asked;
use crate::checks;
use crate::clients::{Clients, Hosts};
use crate::described::{describe, engine_of, of_storage, reported_settings, summary};
use crate::duel::crowd::Taken;
use crate::duel::turns::Seat;
use crate::error::{Class, Error};
use crate::hooks::{Attach, RunContext};
use crate::intervene::timed::{Coming, Moment};
use crate::intervene::{Phases, Switching};
use crate::judge;
use crate::line::{LineOrder, Sought, seek};
use crate::observe::{Event, Observer, Phase, RunSummary};
use crate::progress::Detail;
use crate::provision::{Data, Failed, LOG_LINES, Place, Provisioned, Wanted, connect, provision};
use crate::record;
use crate::recording::Recording;
use crate::replicas::{self, ReplicaOrder, Replicas};
use crate::stop::StopSwitch;
use crate::workloads::Resolved;

/// What to run.
pub(crate) struct Order<'a> {
    pub(crate) home: &'a Home,
    /// Processes that have the sessions; 1: this one.
    pub(crate) clients: u32,
    /// Where those are.
    pub(crate) client_hosts: &'a Hosts,
    /// `flavor@version[+label]`.
    pub(crate) server_name: String,
    pub(crate) flavor: sandbox::Flavor,
    pub(crate) workload: &'a Resolved,
    pub(crate) options: &'a BTreeMap<String, String>,
    pub(crate) engine: Option<&'a str>,
    pub(crate) data: Data,
    /// Servers that follow it.
    pub(crate) replicas: Option<ReplicaOrder>,
    pub(crate) load: LoadPlan,
    /// In place of `load`, whose workers, cpus and retries it keeps: a search for load lines.
    pub(crate) line: Option<LineOrder<'a>>,
    /// Cuts `load` into phases between which the server is switched; the run becomes one for each of its states.
    pub(crate) phases: Option<Phases>,
    /// Changes of the server that come at a moment of its one level.
    pub(crate) timed: Vec<Moment>,
    /// What runs before it and is not recorded.
    pub(crate) prime: Option<LoadPlan>,
    /// The server is restarted before the load, and the page cache emptied.
    pub(crate) is_cold: bool,
    /// Gates that doubt machine and client warn, and do not call the run invalid.
    pub(crate) is_lenient: bool,
    pub(crate) seed: u64,
    /// What was asked of the server's variables.
    pub(crate) asked: Asked,
    /// Facts of the server that are known beforehand (isolation, cpus, storage).
    pub(crate) server_facts: ServerFacts,
    /// The results' directory and, in it, the file that keeps the server's log of a failed run.
    pub(crate) log_file: Option<(&'a Path, String)>,
    /// The canary before this block against the study's others.
    pub(crate) canary_ratio: Option<f64>,
    /// What a reader has to know about the run's surroundings (cpus that are shared).
    pub(crate) notes: Vec<String>,
}

impl<'a> Order<'a> {
    /// A load and nothing beside it: by this process, on tables that may come from a snapshot, with all gates. `server` is
    /// `flavor@version[+label]`.
    pub(crate) fn new(
        home: &'a Home,
        (server, flavor): (String, sandbox::Flavor),
        (workload, options): (&'a Resolved, &'a BTreeMap<String, String>),
        load: LoadPlan,
    ) -> Order<'a> {
        Order {
            home,
            clients: 1,
            client_hosts: &Hosts::This,
            server_name: server,
            flavor,
            workload,
            options,
            engine: None,
            data: Data::Any,
            replicas: None,
            seed: load.seed,
            load,
            line: None,
            phases: None,
            timed: Vec::new(),
            prime: None,
            is_cold: false,
            is_lenient: false,
            asked: Asked::default(),
            server_facts: ServerFacts::default(),
            log_file: None,
            canary_ratio: None,
            notes: Vec::new(),
        }
    }
}

/// What a run needs of its surroundings.
#[derive(Clone, Copy)]
pub(crate) struct Around<'a> {
    pub(crate) stop: &'a StopSwitch,
    pub(crate) observer: Observer<'a>,
    pub(crate) attach: &'a dyn Attach,
    /// In a duel: this run's place among those that go on at the same time.
    pub(crate) seat: Option<&'a Seat<'a>>,
}

impl Around<'_> {
    /// Waits until all sides of the duel have come as far as this one.
    fn meet(&self) -> Result<(), Error> {
        let Some(seat) = self.seat else { return Ok(()) };
        seat.meet(&|| self.stop.is_requested());
        if !self.stop.is_requested() && seat.is_alone() {
            return Err(Error::Run(
                "another side of its duel failed: there is nothing to compare this run with".into(),
            ));
        }
        Ok(())
    }
}

/// How a run ended.
pub(crate) struct Ended {
    pub(crate) end: RunEnd,
    /// The other runs that its life became, where its server was switched.
    pub(crate) others: Vec<RunEnd>,
    /// For people.
    pub(crate) summary: RunSummary,
    /// What kind of failure it was, if it was one.
    pub(crate) failure: Option<Class>,
    /// What the engine gave, where it got so far.
    pub(crate) result: Option<LoadResult>,
    /// What a search for load lines found.
    pub(crate) found: Option<LineFound>,
}

/// The record of a run that has found nothing yet.
fn nothing_yet(order: &Order<'_>) -> RunEnd {
    RunEnd {
        server: ServerFacts {
            name: order.server_name.clone(),
            settings_asked: order.asked.all.clone(),
            ..order.server_facts.clone()
        },
        workload: WorkloadFacts {
            name: order.workload.name().to_owned(),
            options: order.options.clone(),
            ..WorkloadFacts::default()
        },
        ..RunEnd::new(Status::Failed, 0)
    }
}

/// A life that is lived: what is known of it, and where that is told.
struct Lived<'a> {
    order: &'a Order<'a>,
    recording: Recording<'a>,
    around: Around<'a>,
    result: Option<LoadResult>,
    found: Option<LineFound>,
    sessions: u32,
    /// Where its server is switched.
    switching: Option<Switching<'a>>,
    /// Where changes come at a moment.
    coming: Option<Coming>,
}

impl Lived<'_> {
    fn phase(&mut self, phase: Phase) {
        self.recording.phase(Some(phase));
        (self.around.observer)(Event::Phase(phase));
    }

    fn warn(&mut self, text: impl Into<String>) {
        let text = text.into();
        if self.recording.end.warn(text.clone()) {
            (self.around.observer)(Event::Warning(&text));
        }
    }
}

/// Makes the run. Whatever happens is in what is returned, apart from what `detail` has passed on already: there is no
/// way for a run not to be recorded.
pub(crate) fn run<'a>(
    order: &'a Order<'a>,
    place: Place<'_>,
    around: Around<'a>,
    detail: Detail<'a>,
) -> Ended {
    let recording = Recording::new(nothing_yet(order), detail);
    let mut lived = Lived {
        order,
        recording,
        around,
        result: None,
        found: None,
        sessions: 0,
        switching: None,
        coming: None,
    };
    let result = life(&mut lived, place);
    let Lived { mut recording, result: load, found, .. } = lived;
    let mut failure = None;
    // An error of a start says the cause that the log has, or holds the log.
    let mut is_log_told = false;
    let ended = result.map_err(|failed| {
        let stopped = around.stop.is_requested();
        let class = if stopped { Class::Interrupted } else { failed.error.class() };
        failure = Some(class);
        is_log_told = matches!(
            failed.error,
            Error::Sandbox(sandbox::Error::Start { .. } | sandbox::Error::Init { .. })
        );
        recording.end.error =
            Some(if stopped { "stopped by the user".to_owned() } else { failed.error.to_string() });
        // A server that was well until the user had enough of it has nothing to tell.
        if !stopped && !failed.log_tail.is_empty() {
            recording.end.log_tail = failed.log_tail.into();
        }
        if class == Class::Interrupted { Status::Interrupted } else { Status::Failed }
    });
    let (began, told) = (recording.began, recording.end.warnings.len());
    let mut ends = recording.close(ended, order.is_lenient, "the run ended before it could be looked at");
    let end = ends.remove(0);
    end.warnings[told..].iter().for_each(|text| (around.observer)(Event::Warning(text)));
    // One that failed before its load was cut into phases is each of them.
    let sides = order.phases.as_ref().map_or(1, Phases::sides);
    while ends.len() + 1 < sides {
        ends.push(end.clone());
    }
    let log_tail = if is_log_told { String::new() } else { end.log_tail.clone() };
    let summary = RunSummary { log_tail, ..summary(&end, found.as_ref(), began.elapsed()) };
    Ended { end, others: ends, summary, failure, result: load, found }
}

/// The fact of a run that tells which version of a workload's file it ran: the SHA-256 of its content.
const WORKLOAD_CONTENT: &str = "sha256 of the workload's file";

fn life(lived: &mut Lived<'_>, place: Place<'_>) -> Result<(), Failed> {
    let Lived { order, around, .. } = *lived;
    let sessions_max = order.load.steps.iter().map(|step| step.sessions).max().unwrap_or(1);
    let levels: Vec<u32> = order.load.steps.iter().map(|step| step.sessions).collect();
    let attached = if let Place::Attached(target) = &place { Some(*target) } else { None };
    checks::levels(&levels, order.clients, order.client_hosts.machines_by_port(order.clients, attached))?;
    let wanted = Wanted { order, around, levels: &levels, sessions_max };
    let mut server = provision(place, &wanted, &mut |phase| lived.phase(phase))?;
    let outcome = measured_life(lived, &mut server, sessions_max);
    if let Err(failed) = &outcome
        && !matches!(failed.error, Error::Interrupted)
        && let (Some((folder, name)), Some(sandbox)) = (&order.log_file, server.sandbox())
    {
        // The log goes with the sandbox; a failure without it could not be explained.
        let kept = folder.join(name);
        let copied = std::fs::create_dir_all(kept.parent().unwrap_or(folder))
            .and_then(|()| std::fs::copy(sandbox.log_path(), kept));
        if copied.is_ok() {
            lived.recording.end.log_file.clone_from(name);
        }
    }
    // Its connection ends before the server does.
    (lived.switching, lived.coming) = (None, None);
    lived.phase(Phase::Stop);
    let released = server.release(around.stop);
    outcome?;
    Ok(released?)
}

fn measured_life(
    lived: &mut Lived<'_>,
    server: &mut Provisioned<'_>,
    sessions_max: u32,
) -> Result<(), Failed> {
    let Lived { order, around, .. } = *lived;
    lived.phase(Phase::Check);
    describe_life(lived, server);
    let mut control = connect(&server.target)?;
    lived.recording.end.server.version_text = control.server().version.clone();
    checks::server(&mut control, server.target.protocol, server.made.configured.needs(sessions_max))?;
    control.close();
    let made = &server.made;
    let baseline = made
        .configured
        .baseline(&server.target, &made.counted)
        .map_err(|error| Error::Run(format!("the tables cannot be used: {error}")))?;
    if around.stop.is_requested() {
        return Err(Error::Interrupted.into());
    }

    // After the baseline, whose counting fills the caches.
    if order.is_cold {
        let state = server.start_cold(around.stop)?;
        lived.recording.end.facts.insert("cache".to_owned(), state);
    }
    let mut clients = Clients::start(order, server)?;
    if let Some(phases) = &order.phases {
        lived.switching = Some(Switching::open(phases, &server.target)?);
    }
    if !order.timed.is_empty() {
        lived.coming = Some(Coming::open(&order.timed, &server.target, lived.recording.began)?);
    }
    let primed = prime(lived, server, clients.as_mut())?;
    if let Some(replicas) = server.replicas.as_ref().filter(|_| order.prime.is_some()) {
        lived.phase(Phase::CatchUp);
        replicas.settle(&server.target, around.stop)?;
    }

    lived.phase(Phase::Drain);
    let (server_pid, datadir) = match server.sandbox() {
        Some(sandbox) => (sandbox.pid(), Some(sandbox.datadir().to_owned())),
        None => crate::watch::process_of(&server.target),
    };
    let context = RunContext {
        target: server.target.clone(),
        flavor: order.flavor,
        server_pid,
        client_pids: clients.as_ref().map(Clients::pids).unwrap_or_default(),
        replicas: server.replicas.as_ref().map(Replicas::watched).unwrap_or_default(),
        datadir,
        log_file: server.sandbox().map(|sandbox| sandbox.log_path()),
        is_ours: server.sandbox().is_some(),
        limits: server.sandbox().map(|sandbox| *sandbox.limits()).unwrap_or_default(),
        began: lived.recording.began,
        canary_ratio: order.canary_ratio,
        is_cold: order.is_cold,
        only_reads: only_reads(&server.made.configured.statements()),
        // The level of a search is one probe, not slices that others' lie between.
        is_sliced: around.seat.is_some() && order.line.is_none() || order.phases.is_some(),
    };
    lived.recording.hooks = around.attach.attach(&context, &|text| (around.observer)(Event::Doing(text)));
    let replicas = server.replicas.iter().flat_map(Replicas::pids);
    let servers: Vec<u32> = server_pid.into_iter().chain(replicas).collect();
    if let Some(seat) = around.seat {
        seat.servers(&servers);
    }
    if let Some(switching) = &lived.switching {
        switching.servers(&servers);
    }
    around.meet()?;
    lived.phase(Phase::Measure);
    let result = match &order.line {
        None => drive(lived, server, clients.as_mut()).map(|result| (Ran::of(&result), result)),
        Some(line) => search(lived, line, server, clients.as_mut()),
    };
    let result = switched_back(lived, result, server.is_own());
    if let Some(seat) = around.seat
        && !result.as_ref().is_ok_and(|(_, result)| how_it_ended(result).is_ok())
    {
        seat.fail();
    }
    // Looking at the tables is work, too; and which slices count depends on those of all sides.
    drop(clients);
    let owed = result.as_ref().map_or(Ok(()), |(_, result)| replicas_owe(lived, server, result));
    let met = around.meet();
    if let Some(seat) = around.seat {
        lived.recording.end.gates.push(seat.waited().gate());
    }
    let result = result.map(|(ran, result)| match order.line {
        None => (ran, record_load(lived, server, result)),
        Some(_) => (ran, vec![result]),
    });
    let result = result.and_then(|result| met.map(|()| result)).map_err(Failed::from);
    let result = result.and_then(|result| owed.map(|()| result));

    lived.phase(Phase::Verify);
    if let Ok((_, results)) = &result {
        judge_load(lived, results);
    }
    lived.recording.look().into_iter().for_each(|warning| lived.warn(warning));
    let ended = match result {
        Ok((ran, results)) => {
            let interrupted = results.iter().any(|result| result.interrupted) || around.stop.is_requested();
            let mut ended = results.iter().try_for_each(how_it_ended);
            if !interrupted && ended.is_ok() {
                ended = verify(lived, server, &baseline, &add(primed, ran));
            }
            lived.result = results.into_iter().next();
            if interrupted { Err(Error::Interrupted.into()) } else { ended.map_err(Failed::from) }
        }
        Err(failed) => Err(failed),
    };
    ended.map_err(|failed| Failed {
        error: match server.sandbox() {
            Some(sandbox) if sandbox.pid().is_none() => of_ended_server(failed.error),
            _ => failed.error,
        },
        // A replica's, where that is what it failed of.
        log_tail: Some(failed.log_tail).filter(|log| !log.is_empty()).unwrap_or_else(|| {
            let own = server.sandbox().map(|sandbox| sandbox.log_tail(LOG_LINES).join("\n").into());
            own.unwrap_or_default()
        }),
    })
}

/// Waits for what the replicas still have to apply, where there are some and the load came to its end.
fn replicas_owe(
    lived: &mut Lived<'_>,
    server: &mut Provisioned<'_>,
    result: &LoadResult,
) -> Result<(), Failed> {
    let stop = lived.around.stop;
    let load_s = result.steps.iter().map(|step| step.duration_s).sum();
    if server.replicas.is_none() || stop.is_requested() {
        return Ok(());
    }
    lived.phase(Phase::CatchUp);
    let Recording { end, hooks, .. } = &mut lived.recording;
    let tick = load::Event::Connected { step: 0, sessions: 0, took: Duration::ZERO };
    let told =
        server.replicas_owe(load_s, stop, end, &mut || hooks.iter_mut().for_each(|hook| hook.event(&tick)));
    told?.into_iter().for_each(|text| lived.warn(text));
    Ok(())
}

/// What can be said of the server, its tables and the client before the load.
fn describe_life(lived: &mut Lived<'_>, server: &Provisioned<'_>) {
    let order = lived.order;
    let end = &mut lived.recording.end;
    end.workload.options = server.made.configured.options();
    end.workload.dataset_key = server.made.configured.dataset_key();
    end.workload.data_from = server.made.data_from.clone();
    end.facts.insert("plimsoll".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    // Root's load threads may run before all others, which changes an open loop's figures.
    let runs_as = if sandbox::is_root() { "root" } else { "an ordinary user" };
    end.facts.insert("client_runs_as".to_owned(), runs_as.to_owned());
    end.facts.insert("client_scheduling".to_owned(), order.load.scheduling().to_owned());
    end.facts.extend(crate::awake::facts());
    if let Some(hash) = order.workload.content_sha256() {
        end.facts.insert(WORKLOAD_CONTENT.to_owned(), hash.to_owned());
    }
    if end.server.engine.is_empty() {
        let engine = engine_of(order.flavor, &end.workload.options);
        let build = server.sandbox().map(sandbox::Sandbox::build);
        end.server.engine = build.map_or(engine.clone(), |build| build.engine_label(&engine));
    }
    if let Some(sandbox) = server.sandbox() {
        if let Ok(facts) = sandbox.storage_facts() {
            end.server.storage.extend(of_storage(&facts));
        }
        if !sandbox.limits().is_none() {
            end.server.storage.insert("limited to".to_owned(), sandbox.limits().to_string());
        }
        end.facts.extend(sandbox::preload::facts(sandbox.env()));
        end.facts.extend(server.replicas.iter().flat_map(Replicas::facts));
        let durability = sandbox.durability();
        end.server.durability_class = durability.name().to_owned();
        end.server.durability_why = durability.meaning().to_owned();
        end.server.deciding = sandbox.deciding_settings();
        end.server.audit_command = crate::audit::command(sandbox.build(), &end.server.deciding);
    }
    for note in order.notes.iter().chain(&server.made.notes) {
        lived.warn(note);
    }
}

/// A workload that does not say what it sends may do anything.
pub(crate) fn only_reads(statements: &[workload::StatementDoc]) -> bool {
    !statements.is_empty() && statements.iter().all(workload::StatementDoc::only_reads)
}

/// What went wrong, where the server's process is gone: whatever the sessions saw of it, that is the reason. A server
/// may end before they were connected, too.
fn of_ended_server(error: Error) -> Error {
    match error {
        Error::Run(text) | Error::Server(text) => {
            Error::Run(format!("the server ended during the run: {text}"))
        }
        error => error,
    }
}

/// Runs what comes before the load; gives its outcomes, which the checks of the tables count too.
fn prime(
    lived: &mut Lived<'_>,
    server: &Provisioned<'_>,
    mut clients: Option<&mut Clients>,
) -> Result<Ran, Failed> {
    let Lived { order, around: Around { stop, .. }, .. } = *lived;
    let Some(plan) = &order.prime else { return Ok(Ran::default()) };
    lived.phase(Phase::Prime);
    let result =
        run_load(plan, order.seed ^ 0x5052_494d, server, clients.as_deref_mut(), &mut |_| (), stop.load())
            .map_err(|error| Error::Run(format!("priming failed: {error}")))?;
    if result.interrupted || stop.is_requested() {
        return Err(Error::Interrupted.into());
    }
    how_it_ended(&result)?;
    if let Some(clients) = clients {
        // What the machines had to do beside priming is no matter of the measurement.
        clients.take_gates();
    }
    let ran = Ran::of(&result);
    lived.recording.end.facts.insert("primed".to_owned(), store::counted(ran.committed, "transaction"));
    Ok(ran)
}

pub(crate) fn add(one: Ran, other: Ran) -> Ran {
    Ran {
        committed: one.committed + other.committed,
        rolled_back: one.rolled_back + other.rolled_back,
        failed: one.failed + other.failed,
        in_doubt: one.in_doubt + other.in_doubt,
    }
}

/// Runs a load in this process, or on its clients.
pub(crate) fn run_load(
    plan: &LoadPlan,
    seed: u64,
    server: &Provisioned<'_>,
    clients: Option<&mut Clients>,
    observer: &mut dyn FnMut(load::Event<'_>),
    stop: &load::Stop,
) -> Result<LoadResult, load::LoadError> {
    match clients {
        Some(clients) => clients.run(plan, seed, &*server.made.configured, observer, stop),
        None => {
            let factory = server.made.configured.sessions(&server.target, seed);
            load::run(plan, factory.as_ref(), observer, stop)
        }
    }
}

/// Runs the load, telling those who watch what happens.
fn drive(
    lived: &mut Lived<'_>,
    server: &Provisioned<'_>,
    mut clients: Option<&mut Clients>,
) -> Result<LoadResult, Error> {
    let Lived { order, around: Around { stop, .. }, .. } = *lived;
    let told = &mut |event: load::Event<'_>| load_told(lived, server, &event);
    let result = run_load(&order.load, order.seed, server, clients.as_deref_mut(), told, stop.load());
    if let (Some(clients), Ok(result)) = (clients, &result) {
        lived.recording.clients_ended(clients, result);
    }
    result.map_err(|error| match error {
        load::LoadError::Connect { .. } => Error::Server(error.to_string()),
        load::LoadError::Plan(_) => Error::Usage(error.to_string()),
        load::LoadError::System { .. } | load::LoadError::Worker(_) => Error::Run(error.to_string()),
    })
}

/// The load of a server that is changed meanwhile is over: it is changed back, and a change that it refused is what the run
/// failed of.
fn switched_back<T>(lived: &mut Lived<'_>, result: Result<T, Error>, is_own: bool) -> Result<T, Error> {
    let (mut told, mut failed) = (Vec::new(), None);
    if let Some(switching) = &mut lived.switching {
        (told, failed) = (switching.restore(), switching.failed());
        lived.recording.end.gates.push(judge::stored(&switching.gate(), None));
    }
    if let Some(coming) = &mut lived.coming {
        let (came, ended, more) = coming.end(is_own);
        lived.recording.end.interventions = came;
        told.extend(more);
        failed = failed.or(ended.err());
    }
    told.into_iter().for_each(|text| lived.warn(text));
    match failed {
        Some(error) if result.is_ok() => Err(error),
        _ => result,
    }
}

/// Makes the load's result part of the record; gives it with the slices of each run that the life becomes as one level.
fn record_load(lived: &mut Lived<'_>, server: &Provisioned<'_>, result: LoadResult) -> Vec<LoadResult> {
    let Lived { order, recording, around, switching, .. } = lived;
    let planned = &order.load.steps;
    let results = match (around.seat, switching) {
        (Some(seat), _) => {
            let of: Vec<(usize, Taken)> = seat.slices().into_iter().map(|taken| (0, taken)).collect();
            let results = recording.slices_ended(planned, result, &of, 1);
            if let Some(duel) = &mut recording.end.duel {
                (duel.sides, duel.side) = (seat.sides(), seat.side());
            }
            results
        }
        (None, Some(switching)) => {
            let results = recording.slices_ended(planned, result, &switching.phases(), switching.sides());
            for (side, own) in recording.each().enumerate() {
                *own.interventions = vec![switching.record(side)];
            }
            results
        }
        (None, None) => {
            recording.load_ended(planned, &result);
            vec![result]
        }
    };
    for (own, result) in recording.each().zip(&results) {
        if let Some(duel) = own.duel {
            let counted = duel.slices.iter().filter(|slice| slice.is_counted).count();
            let text = match duel.slices.len() {
                all if all == counted => format!("all {all} count"),
                all => format!("{counted} of {all} count, the others were disturbed by other processes"),
            };
            let name = if !own.interventions.is_empty() { "phases" } else { "duel_slices" };
            own.facts.insert(name.to_owned(), text);
        }
        let headline =
            result.steps.last().and_then(|step| server.made.configured.figures(step).into_iter().next());
        *own.headline = headline.map(|figure| (figure.name, figure.unit, figure.value));
    }
    results
}

/// Searches for load lines. The level that stands for it becomes the run's.
fn search(
    lived: &mut Lived<'_>,
    line: &LineOrder<'_>,
    server: &Provisioned<'_>,
    mut clients: Option<&mut Clients>,
) -> Result<(Ran, LoadResult), Error> {
    let (recording, around, found) = (&mut lived.recording, lived.around, &mut lived.found);
    let base = &lived.order.load;
    let on = (server, clients.as_deref_mut());
    let Sought { result, ran, found: lines } = seek(line, base, on, recording, around, found)?;
    if let Some(clients) = clients {
        recording.clients_ended(clients, &result);
    }
    lived.found = Some(lines);
    Ok((ran, result))
}

/// Records what the load tells, and tells people of it.
fn load_told(lived: &mut Lived<'_>, server: &Provisioned<'_>, event: &load::Event<'_>) {
    let order = lived.order;
    // The load does not begin with a step before these answer.
    if let (Some(switching), load::Event::StepStarted { .. }) = (&mut lived.switching, event) {
        let stop = lived.around.stop;
        if !switching.begin(&|| stop.is_requested()) {
            order.load.enough.request();
            return;
        }
    }
    if let (Some(seat), load::Event::StepStarted { .. }) = (lived.around.seat, event) {
        let stop = lived.around.stop;
        if !seat.take(&|| stop.is_requested()) {
            order.load.enough.request();
            return;
        }
    }
    if let Err(error) = lived.recording.event(event) {
        lived.warn(format!("{error}: the seconds of this run are kept in memory and tried again"));
    }
    let observer = lived.around.observer;
    match *event {
        load::Event::StepStarted { step, .. } => {
            lived.sessions = step.sessions;
            if let Some(coming) = &mut lived.coming {
                coming.begin(step.warmup);
            }
            let length = match step.length {
                load::Length::Time(length) => Some(step.warmup + length),
                load::Length::Transactions { .. } => None,
            };
            observer(Event::StepStarted { sessions: step.sessions, length });
        }
        load::Event::Interval { interval, .. } => {
            observer(Event::Interval { sessions: lived.sessions, interval });
        }
        load::Event::Warning(text) => lived.warn(text),
        load::Event::StepEnded { .. } => turn_over(lived, server),
        load::Event::Connected { .. } => {}
    }
}

/// The turn goes to another side of the duel, or to another state of the server, when the replicas have nothing left to do.
fn turn_over(lived: &mut Lived<'_>, server: &Provisioned<'_>) {
    let Around { seat, stop, .. } = lived.around;
    if (seat.is_some() || lived.switching.is_some()) && !server.replicas_rest(stop) {
        lived.warn(replicas::LATE);
    }
    if let Some(seat) = seat {
        seat.pass();
    }
    if let Some(switching) = &mut lived.switching {
        switching.end();
    }
}

/// A load that came to its end, or why it did not.
fn how_it_ended(result: &LoadResult) -> Result<(), Error> {
    for step in &result.steps {
        if let Some(reason) = &step.ended_by {
            return Err(Error::Run(reason.clone()));
        }
        if step.outcomes.committed == 0 && step.outcomes.failed() > 0 {
            let most = step.errors.iter().max_by_key(|(_, tally)| tally.count);
            let most = most.map_or_else(String::new, |(code, tally)| format!(": {} ({code})", tally.text));
            return Err(Error::Run(format!(
                "no transaction of {} was committed, {} failed{most}",
                store::counted(step.sessions, "session"),
                step.outcomes.failed()
            )));
        }
    }
    Ok(())
}

/// Waiting for a cpu beyond this share of the time is worth a word.
const RUN_QUEUE_SHARE_MAX: f64 = 0.25;

/// What the load itself says about the run.
fn judge_load(lived: &mut Lived<'_>, results: &[LoadResult]) {
    let is_waiting = |step: &load::StepResult| step.client.run_queue_share > RUN_QUEUE_SHARE_MAX;
    let mut steps = results.iter().flat_map(|result| &result.steps);
    if steps.any(|step| is_waiting(step) && !step.client.is_bound) {
        lived.warn(
            "client and server shared cpus that were busy: the client waited more than a quarter of the time for \
             one, and response times include that wait; more cpus, or client_cpus in the study's [load], tell them \
             apart",
        );
    }
    lived.recording.judge_load(results);
    results.iter().flat_map(judge::waits).for_each(|told| lived.warn(told));
}

/// Looks whether the tables are what the outcomes imply, and reads back what the server really ran with.
fn verify(
    lived: &mut Lived<'_>,
    server: &Provisioned<'_>,
    baseline: &workload::Baseline,
    ran: &Ran,
) -> Result<(), Error> {
    let looked_at = |target: &wire::Target| {
        let checks = server.made.configured.check(target, baseline, ran);
        checks.map_err(|error| Error::Run(format!("the tables could not be checked after the run: {error}")))
    };
    let mut checks = looked_at(&server.target)?;
    for (name, target) in server.replicas.iter().flat_map(Replicas::caught_up) {
        let of_replica = looked_at(&target)?.into_iter();
        checks.extend(of_replica.map(|it| workload::Check { name: format!("{name}: {}", it.name), ..it }));
    }
    let failed: Vec<String> = checks
        .iter()
        .filter(|check| !check.passed)
        .map(|check| format!("{}: {} expected, {} found", check.name, check.expected, check.found))
        .collect();
    let gate = telemetry::gates::consistency(checks.len(), &failed);
    lived.recording.end.gates.push(judge::stored(&gate, None));
    lived.recording.end.checks = checks.iter().map(record::check).collect();
    let reported = match server.sandbox() {
        Some(sandbox) => sandbox.reported_settings()?,
        None => match reported_settings(&server.target) {
            Ok(reported) => reported,
            Err(error) => {
                lived.warn(format!("{error}: reports show none of its settings"));
                BTreeMap::new()
            }
        },
    };
    let pairs = |map: &BTreeMap<String, String>| -> Vec<(String, String)> {
        map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
    };
    let asked = pairs(&lived.order.asked.by_user);
    let gate = telemetry::gates::settings(&asked, &pairs(&reported));
    lived.recording.end.gates.push(judge::stored(&gate, None));
    describe(&mut lived.recording.end.server, &reported);
    lived.recording.end.server.settings = reported;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_gone_is_the_reason_before_and_after_its_sessions_were_connected() {
        let refused = "0 of 11 sessions could be opened, then: connection refused";
        for error in [Error::Server(refused.into()), Error::Run(refused.into())] {
            let text = of_ended_server(error).to_string();
            assert_eq!(text, format!("the server ended during the run: {refused}"));
        }
        assert!(matches!(of_ended_server(Error::Interrupted), Error::Interrupted));
        assert!(matches!(of_ended_server(Error::Usage("no".into())), Error::Usage(text) if text == "no"));
    }
}
