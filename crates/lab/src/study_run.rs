//! `plimsoll run`: a study from its file to its last recorded run.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandbox::builds::Resolved;
use sandbox::{Build, Home, Sandbox};
use store::{BuildId, HostId, Purpose, RunStart, Status, Store, StudyId, StudyRecord};

use crate::bench::{Data, attached_name};
use crate::block::Queue;
use crate::cells::{Controlled, Life, SettingsNotes, sandbox_spec, server_facts};
use crate::ending::{self, Ended};
use crate::error::Error;
use crate::hooks::Attach;
use crate::host;
use crate::machine::{take_machine, take_results};
use crate::observe::{Event, Observer, RunLabel};
use crate::plan::{Cell, Pinned, Plan, PlannedRun, StoredPlan, draw_seed};
use crate::progress::{Detail, Progress};
use crate::provision::Place;
use crate::record;
use crate::recorded::{attempts, base_of, grow, planned_before, standing, statuses, study_row, unfinished};
use crate::run::{Around, Asked, Order, run};
use crate::servers::{self, Server};
use crate::stop::StopSwitch;
use crate::study::{Body, Ladder, Length, Study, one_of};
use crate::watch::Places;

/// What `run` is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The study.
    pub study: Study,
    /// Directory of the results.
    pub results: PathBuf,
    /// With the quick overrides.
    pub quick: bool,
    /// Only runs whose cells have these values; what is left out stays unfinished.
    pub only: Vec<(String, String)>,
    /// Begin anew although there is an unfinished or finished one.
    pub new: bool,
    /// The command line, without secrets.
    pub command: String,
    /// Version of plimsoll.
    pub version: String,
}

/// How a study stands after `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Its row in the results file.
    pub study: StudyId,
    /// Runs of the plan.
    pub runs: usize,
    /// Runs made by this call.
    pub made: usize,
    /// Runs of the plan that ended well.
    pub done: usize,
    /// Runs of the plan that ended and whose figures must not be used.
    pub invalid: usize,
    /// Runs of the plan whose last attempt failed.
    pub failed: usize,
    /// Why it ended before its last block: the runs of later blocks are none of those above.
    pub ended: Option<Ended>,
}

impl Outcome {
    /// Runs that have not ended yet.
    pub fn open(&self) -> usize {
        self.runs - self.done - self.invalid - self.failed
    }
}

/// A plan that has not been begun.
#[derive(Debug, Clone)]
pub struct Outline {
    /// The plan, with the seed that it would have, or has.
    pub plan: Plan,
    /// Servers that would have to be fetched, and where from.
    pub to_fetch: Vec<(String, String)>,
    /// Length of one run's warm-ups and measured phases, where the clock decides.
    pub run_length: Option<Duration>,
    /// The runs that `only` leaves.
    pub chosen: Vec<PlannedRun>,
    /// What is worth a second look before hours are spent on it.
    pub notes: Vec<String>,
}

/// A server of the study, looked up.
enum Subject {
    Build(Box<Build>),
    Sandbox(Box<Sandbox>),
    Attached { target: Box<wire::Target>, flavor: sandbox::Flavor },
}

impl Subject {
    fn flavor(&self) -> sandbox::Flavor {
        match self {
            Subject::Build(build) => build.flavor,
            Subject::Sandbox(sandbox) => sandbox.build().flavor,
            Subject::Attached { flavor, .. } => *flavor,
        }
    }

    fn build(&self) -> Option<&Build> {
        match self {
            Subject::Build(build) => Some(build),
            Subject::Sandbox(sandbox) => Some(sandbox.build()),
            Subject::Attached { .. } => None,
        }
    }
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
    let mut to_fetch = Vec::new();
    let mut found = Vec::new();
    for choice in &body.axes.server {
        let (name, flavor, build) = match servers::parse_argument(&choice.server)? {
            Server::Selector(selector) => match sandbox::builds::find(home, &selector)? {
                Resolved::Here(build) => (build.name(), build.flavor, Some(Some(build))),
                Resolved::Away(fetchable) => {
                    to_fetch.push((fetchable.name(), fetchable.source.clone()));
                    (fetchable.name(), selector.flavor, Some(None))
                }
            },
            Server::Sandbox(name) => {
                let sandbox = Sandbox::open(home, &name).ok();
                (name, sandbox.map_or(sandbox::Flavor::Mysql, |sandbox| sandbox.build().flavor), None)
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
    no_name_twice(&request.study, &pinned)?;
    let seed = body.load.seed.unwrap_or_else(draw_seed);
    let plan = Plan::new(&body, request.quick, seed, pinned);
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
    crate::cells::check(&request.study, &body.load, &plan, &controlled)?;
    let notes = SettingsNotes::of(&request.study, &body.load, &plan, &controlled)?;
    let notes = notes.all().cloned().collect();
    let chosen = choose(&plan, &request.only)?;
    Ok(Outline { chosen, plan, to_fetch, run_length: run_length(&body), notes })
}

/// A ladder that this process could not open the connections for is refused before its first rung.
fn sessions_are_possible(study: &Study, body: &Body) -> Result<(), Error> {
    let most = body.axes.ladder.levels().iter().copied().max().unwrap_or(1);
    crate::checks::descriptors(most).map_err(|error| {
        let message = format!("{most} sessions are not possible here");
        study.refuse("sessions", message, "too many for this machine as it is set", &error.to_string())
    })
}

fn pin(selector: &str, label: Option<&str>, build_name: &str, identity: &str) -> Pinned {
    Pinned {
        selector: wire::mask::value(selector),
        name: label.map_or_else(|| build_name.to_owned(), |label| format!("{build_name}+{label}")),
        build_name: build_name.to_owned(),
        build: identity.to_owned(),
    }
}

fn no_name_twice(study: &Study, pinned: &[Pinned]) -> Result<(), Error> {
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

/// Warm-ups and measured phases of one run of one level; the longest of the ladder for a climb.
fn run_length(body: &Body) -> Option<Duration> {
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

/// Makes all runs of the study that are not recorded yet.
///
/// # Errors
/// The study cannot be begun or gone on with. Runs that fail are no error: they are in the outcome.
pub fn run_study(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Outcome, Error> {
    let body = request.study.body(request.quick);
    sessions_are_possible(&request.study, &body)?;
    let machine = take_machine(observer, stop)?;
    let cleaned = sandbox::leftovers(home)?;
    if !cleaned.is_empty() {
        observer(Event::Cleaned(&cleaned));
    }
    let mut store = Store::open(&request.results)?;
    let _results = take_results(&request.results)?;
    let before = if request.new { None } else { unfinished(&store, request, &body)? };
    let (subjects, pinned) = look_up(home, request, &body, before.as_ref(), observer)?;
    no_name_twice(&request.study, &pinned)?;
    let controlled: Vec<Controlled<'_>> = subjects
        .iter()
        .map(|subject| Controlled {
            flavor: subject.flavor(),
            life: build_of(subject).map_or(Life::Foreign, Life::Own),
        })
        .collect();
    let (plan, id) = match before {
        Some(record) => {
            let plan = planned_before(&record, &body, request.quick)?;
            if plan.blocks() > record.study.blocks {
                grow(&mut store, request, &body, &plan, &record)?;
            }
            (plan, record.id)
        }
        None => {
            let seed = body.load.seed.unwrap_or_else(draw_seed);
            let plan = Plan::new(&body, request.quick, seed, pinned);
            crate::cells::check(&request.study, &body.load, &plan, &controlled)?;
            let id = store.add_study(&study_row(request, &body, &plan)?)?;
            (plan, id)
        }
    };
    let notes = SettingsNotes::of(&request.study, &body.load, &plan, &controlled)?;
    notes.all().for_each(|note| observer(Event::Warning(note)));
    let chosen = choose(&plan, &request.only)?;
    store.interrupt_running(id)?;
    if let Some(doubt) = &machine.doubt {
        store.add_note(id, load::time::unix_ms(), doubt)?;
    }
    let host = store.add_host(&host::facts())?;
    let builds = subjects
        .iter()
        .map(|subject| subject.build().map(|build| store.add_build(&record::build(build))).transpose())
        .collect::<Result<Vec<Option<BuildId>>, store::Error>>()?;
    // After the plan and its fingerprint, which are of the study and not of this machine.
    let body = crate::cells::with_client_apart(body)?;
    let work = Work {
        home,
        request,
        body: &body,
        plan: &plan,
        id,
        host,
        subjects: &subjects,
        builds: &builds,
        notes: &notes,
    };
    work.go_on(&mut store, &chosen, Around { stop, observer, attach })
}

fn build_of(subject: &Subject) -> Option<&Build> {
    match subject {
        Subject::Build(build) => Some(build),
        _ => None,
    }
}

/// The runs that a command has to make: those that have not ended, and those that failed, as what made them fail may
/// have been mended. Only when there are none of these, the invalid ones: a study is finished before parts of it are
/// repeated.
fn to_make(runs: &[PlannedRun], status_of: impl Fn(&PlannedRun) -> Option<Status>) -> Vec<&PlannedRun> {
    let unfinished: Vec<&PlannedRun> =
        runs.iter().filter(|run| !matches!(status_of(run), Some(Status::Done | Status::Invalid))).collect();
    if !unfinished.is_empty() {
        return unfinished;
    }
    runs.iter().filter(|run| status_of(run) != Some(Status::Done)).collect()
}

/// Looks up every server of the study: for a study that goes on, exactly those that it began with.
fn look_up(
    home: &Home,
    request: &Request,
    body: &Body,
    before: Option<&StudyRecord>,
    observer: Observer<'_>,
) -> Result<(Vec<Subject>, Vec<Pinned>), Error> {
    let stored: Option<StoredPlan> =
        before.and_then(|record| serde_json::from_value(record.study.plan.clone()).ok());
    let mut subjects = Vec::new();
    let mut pinned = Vec::new();
    for (index, choice) in body.axes.server.iter().enumerate() {
        let pin_before = stored.as_ref().and_then(|plan| plan.servers.get(index));
        let (subject, name, identity) = match servers::parse_argument(&choice.server)? {
            Server::Selector(selector) => {
                let selector = match pin_before {
                    Some(pin) => pin.build_name.parse()?,
                    None => selector,
                };
                let build = servers::obtain(home, &selector, observer)?;
                let (name, identity) = (build.name(), build.identity.clone());
                (Subject::Build(Box::new(build)), name, identity)
            }
            Server::Sandbox(name) => {
                let sandbox = servers::open_sandbox(home, &name)
                    .map_err(|error| in_study(&request.study, &choice.server, error))?;
                let (name, identity) = (sandbox.build().name(), sandbox.build().identity.clone());
                (Subject::Sandbox(Box::new(sandbox)), name, identity)
            }
            Server::Url(target) => {
                let (name, flavor) = attached_name(&target)?;
                (Subject::Attached { target, flavor }, name.clone(), name)
            }
        };
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

/// The runs that `--only` leaves: those with one of the values given for each axis that is named.
fn choose(plan: &Plan, only: &[(String, String)]) -> Result<Vec<PlannedRun>, Error> {
    let mut chosen = plan.runs.clone();
    let mut wanted: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    only.iter().for_each(|(axis, value)| wanted.entry(axis).or_default().push(value));
    for (axis, wanted) in wanted {
        let values = |run: &PlannedRun| -> Vec<String> {
            match axis {
                "sessions" | "climb" => run.levels.iter().map(u32::to_string).collect(),
                "block" => vec![run.block.to_string()],
                "server" => {
                    let pinned = &plan.servers[plan.cells[run.cell].server];
                    let flavor = pinned.name.split(['@', '+']).next().unwrap_or_default();
                    vec![pinned.name.clone(), pinned.selector.clone(), flavor.to_owned()]
                }
                axis => plan.key(run).get(axis).cloned().into_iter().collect(),
            }
        };
        let mut known: Vec<String> = plan.runs.iter().flat_map(&values).collect();
        known.sort();
        known.dedup();
        if known.is_empty() {
            let mut axes: Vec<String> =
                plan.runs.first().map(|run| plan.key(run).into_keys().collect()).unwrap_or_default();
            axes.extend(["sessions".to_owned(), "block".to_owned()]);
            let names = axes.iter().map(String::as_str);
            let hint = wire::spelling::nearest(axis, names.clone())
                .map_or_else(|| one_of(names), |near| format!("did you mean `{near}`?"));
            return Err(Error::Usage(format!(
                "--only {axis}={}: `{axis}` is not an axis of this study: {hint}",
                wanted[0]
            )));
        }
        if let Some(value) = wanted.iter().find(|value| !known.contains(value)) {
            let names = known.iter().map(String::as_str);
            let asked = wire::mask::value(value);
            return Err(Error::Usage(format!("--only {axis}={asked}: the axis has {}", one_of(names))));
        }
        chosen.retain(|run| values(run).iter().any(|value| wanted.contains(&value)));
    }
    if chosen.is_empty() {
        return Err(Error::Usage("--only leaves no run of this study".into()));
    }
    Ok(chosen)
}

/// Label of the place of a cell's data directories.
fn place_of(cell: &Cell) -> &str {
    cell.storage.as_ref().map_or("default", |storage| storage.label.as_str())
}

/// How the runs of the blocks up to `last` stand. A later block may have been begun before the study was found decided.
fn counted(runs: &[PlannedRun], stands: &BTreeMap<u32, Status>, last: u32, study: StudyId) -> Outcome {
    let runs: Vec<&PlannedRun> = runs.iter().filter(|run| run.block <= last).collect();
    let count = |wanted: Status| runs.iter().filter(|run| stands.get(&run.index) == Some(&wanted)).count();
    Outcome {
        study,
        runs: runs.len(),
        made: 0,
        done: count(Status::Done),
        invalid: count(Status::Invalid),
        failed: count(Status::Failed),
        ended: None,
    }
}

/// What a run of the plan is made for.
#[derive(Debug, Clone, Copy)]
struct Pass {
    purpose: Purpose,
    /// The canary before this block against the study's others.
    canary_ratio: Option<f64>,
}

/// A study that is being worked on.
struct Work<'a> {
    home: &'a Home,
    request: &'a Request,
    body: &'a Body,
    plan: &'a Plan,
    id: StudyId,
    host: HostId,
    subjects: &'a [Subject],
    builds: &'a [Option<BuildId>],
    notes: &'a SettingsNotes,
}

impl Work<'_> {
    fn go_on(&self, store: &mut Store, chosen: &[PlannedRun], around: Around<'_>) -> Result<Outcome, Error> {
        let heads = store.run_heads(self.id)?;
        let stands = statuses(store, &heads)?;
        let open = to_make(chosen, |run| stands.get(&run.index).copied());
        let left = to_make(&self.plan.runs, |run| stands.get(&run.index).copied()).len();
        let finished = self.plan.runs.len().saturating_sub(left);
        (around.observer)(Event::Planned {
            title: &self.request.study.title,
            runs: self.plan.runs.len(),
            finished,
            to_do: open.len(),
            cells: self.plan.cells.len(),
            blocks: self.plan.blocks(),
            seed: self.plan.seed,
            run_length: run_length(self.body),
        });
        if !heads.is_empty() && !open.is_empty() {
            store.add_command(self.id, load::time::unix_ms(), &self.request.command)?;
        }
        if !open.is_empty() {
            self.probe(store, around)?;
        }
        let mut made = 0;
        let mut ended = None;
        for runs in open.chunk_by(|one, next| one.block == next.block) {
            if around.stop.is_requested() {
                break;
            }
            if let Some(until) = self.body.load.until {
                ended = ending::before_block(store, self.id, until, runs[0].block, around.observer)?;
                if ended.is_some() {
                    break;
                }
            }
            made += self.make_block(store, runs, around)?;
        }
        if self.body.load.hot_locks {
            let begun = chosen.iter().filter(|run| ended.is_none_or(|ended| run.block <= ended.blocks()));
            made += self.lock_passes(store, &begun.collect::<Vec<_>>(), around)?;
        }
        let outcome = self.outcome(store, made, ended)?;
        if self.body.load.until.is_some() && ended.is_none() && outcome.open() == 0 {
            ending::look(store, self.id, self.plan.blocks(), around.observer)?;
        }
        let state = match (around.stop.is_requested(), outcome.open(), outcome.failed) {
            (true, ..) => "interrupted",
            (_, 0, 0) => "complete",
            (_, 0, _) => "complete, with failed runs",
            _ => "unfinished",
        };
        store.set_study_state(self.id, state)?;
        if around.stop.is_requested() { Err(Error::Interrupted) } else { Ok(outcome) }
    }

    /// Makes the runs of one block; those lost to a fault of the measurement again, in the same block. How many it made.
    fn make_block(
        &self,
        store: &mut Store,
        runs: &[&PlannedRun],
        around: Around<'_>,
    ) -> Result<usize, Error> {
        let block = runs[0].block;
        crate::machine::wait_until_quiet(block, around.observer, around.stop);
        let canary_ratios = self.canary(store, block, "before")?;
        let compared = self.body.compare.as_ref();
        let compared = compared.map(|c| (c.axis.as_str(), base_of(c, self.body, self.plan)));
        let mut queue = Queue::new(self.plan, compared, runs.iter().copied());
        let mut made = 0;
        while let Some(planned) = queue.next() {
            if around.stop.is_requested() {
                return Ok(made);
            }
            let canary_ratio = canary_ratios.get(place_of(&self.plan.cells[planned.cell])).copied();
            let pass = Pass { purpose: Purpose::Measure, canary_ratio };
            let attempt = attempts(store, self.id, planned.index, Purpose::Measure)? + 1;
            let status = self.make(store, planned, attempt, pass, around)?;
            made += 1;
            let again = queue.ended(planned, status == Status::Invalid, Instant::now());
            if again > 0 {
                (around.observer)(Event::Again { runs: again });
            }
        }
        self.canary(store, block, "after")?;
        Ok(made)
    }

    /// A pass for hot locks of each cell and level that has none yet, once all timed runs are settled.
    fn lock_passes(
        &self,
        store: &mut Store,
        chosen: &[&PlannedRun],
        around: Around<'_>,
    ) -> Result<usize, Error> {
        let heads = store.run_heads(self.id)?;
        let stands = standing(&heads);
        let last = chosen.iter().map(|run| run.block).max().unwrap_or_default();
        if self.plan.runs.iter().any(|run| run.block <= last && !stands.contains_key(&run.index)) {
            return Ok(0);
        }
        let mut made = 0;
        let mut known: Vec<(usize, &[u32])> = Vec::new();
        for planned in chosen {
            if around.stop.is_requested() {
                break;
            }
            if known.contains(&(planned.cell, &planned.levels)) {
                continue;
            }
            known.push((planned.cell, &planned.levels));
            let of_cell = self
                .plan
                .runs
                .iter()
                .filter(|run| run.cell == planned.cell && run.levels == planned.levels)
                .map(|run| run.index);
            let indexes: Vec<u32> = of_cell.collect();
            let passes = || {
                heads.iter().filter(|h| h.start.purpose == Purpose::Locks && indexes.contains(&h.start.index))
            };
            if passes().any(|head| head.status == Status::Done) {
                continue;
            }
            let attempt = passes().count() + 1;
            let around = Around { attach: &crate::locks::LockWatch, ..around };
            self.make(store, planned, attempt, Pass { purpose: Purpose::Locks, canary_ratio: None }, around)?;
            made += 1;
        }
        Ok(made)
    }

    /// Where the study's data directories are made.
    fn places(&self) -> Places {
        let of_cell = |cell: &Cell| {
            let dir = cell.storage.as_ref().and_then(|storage| storage.datadir.clone());
            (place_of(cell).to_owned(), dir.unwrap_or_else(|| self.home.sandboxes()))
        };
        self.plan.cells.iter().map(of_cell).collect()
    }

    /// Records what each place for data directories can do by itself. A place that cannot be probed is a warning: its
    /// runs will say more.
    fn probe(&self, store: &mut Store, around: Around<'_>) -> Result<(), Error> {
        let known = store.probes(self.id)?;
        for (label, dir) in self.places() {
            if known.iter().any(|(_, probe)| probe.place == label) {
                continue;
            }
            if dir.as_os_str() == "tmpfs" {
                store.add_probe(self.id, self.host, &crate::watch::memory_probe(&label))?;
                continue;
            }
            (around.observer)(Event::Doing(&format!("probing the storage under {}", dir.display())));
            let cache = self.home.path().join("probes");
            match crate::watch::storage_probe(&label, &dir, &cache, false) {
                Ok(probe) => store.add_probe(self.id, self.host, &probe)?,
                Err(error) => {
                    let text = format!("{}: the storage could not be probed: {error}", dir.display());
                    (around.observer)(Event::Warning(&text));
                }
            }
        }
        Ok(())
    }

    /// Runs the canary and records it; how fast the machine is, by place, against the study's other canaries.
    fn canary(&self, store: &mut Store, block: u32, when: &str) -> Result<BTreeMap<String, f64>, Error> {
        let others: Vec<store::Canary> = store
            .canaries(self.id)?
            .into_iter()
            .filter(|(host, _)| *host == self.host)
            .map(|(_, c)| c)
            .collect();
        let mut places = self.places();
        // A place in memory is mounted for each sandbox.
        places.retain(|_, dir| dir.as_os_str() != "tmpfs");
        if places.is_empty() {
            places.insert("default".to_owned(), self.home.sandboxes());
        }
        let (canary, ratios) = crate::watch::canary(&places, block, when, &others);
        store.add_canary(self.id, self.host, &canary)?;
        Ok(ratios)
    }

    fn outcome(&self, store: &Store, made: usize, ended: Option<Ended>) -> Result<Outcome, Error> {
        let heads = store.run_heads(self.id)?;
        let stands = statuses(store, &heads)?;
        let last = ended.map_or(u32::MAX, Ended::blocks);
        Ok(Outcome { made, ended, ..counted(&self.plan.runs, &stands, last, self.id) })
    }

    /// Makes one run and commits it. How it ended.
    fn make(
        &self,
        store: &mut Store,
        planned: &PlannedRun,
        attempt: usize,
        pass: Pass,
        around: Around<'_>,
    ) -> Result<Status, Error> {
        let cell = &self.plan.cells[planned.cell];
        let subject = &self.subjects[cell.server];
        let key = self.plan.key(planned);
        let label = RunLabel {
            number: planned.index as usize + 1,
            of: self.plan.runs.len(),
            block: planned.block,
            blocks: self.plan.blocks(),
            key: key.clone(),
            levels: planned.levels.clone(),
        };
        (around.observer)(Event::RunStarted(&label));
        let in_block =
            self.plan.runs.iter().filter(|run| run.block == planned.block && run.index <= planned.index);
        let start = RunStart {
            index: planned.index,
            key: key.into_iter().map(|(axis, value)| (axis, value.into())).collect(),
            levels: planned.levels.clone(),
            is_climb: matches!(self.body.axes.ladder, Ladder::Climb(_)),
            block: planned.block,
            repeat: planned.block,
            position: in_block.count() as u32,
            purpose: pass.purpose,
            seed: planned.seed,
            host: self.host,
            build: self.builds[cell.server],
            started_at_ms: load::time::unix_ms(),
        };
        let id = store.begin_run(self.id, &start)?;
        let load = crate::cells::load_plan(self.body, cell, planned)?;
        let assigned = crate::cells::assignment(cell, &self.body.load)?;
        let prime = crate::cells::priming_plan(self.body, &load);
        let (place, asked) = match subject {
            Subject::Build(build) => {
                let mut spec = sandbox_spec(build, cell, &self.body.load)?;
                if pass.purpose == Purpose::Locks {
                    spec.settings.extend(crate::locks::settings(build));
                }
                let asked = Asked::of(&spec);
                (Place::Own(Box::new(spec)), asked)
            }
            Subject::Sandbox(sandbox) => (Place::Deployed(sandbox), Asked::of_sandbox(sandbox)),
            Subject::Attached { target, .. } => (Place::Attached(target), Asked::default()),
        };
        let logs = self.request.results.join("logs");
        let order = Order {
            home: self.home,
            server_name: self.plan.servers[cell.server].name.clone(),
            flavor: subject.flavor(),
            workload: &cell.workload,
            options: &cell.options,
            engine: cell.engine.as_deref(),
            data: Data::Any,
            load: &load,
            prime: prime.as_ref(),
            is_cold: self.body.load.is_cold,
            is_lenient: self.body.load.is_lenient,
            seed: planned.seed,
            asked,
            server_facts: server_facts(subject.build(), cell, &self.body.load),
            log_file: Some((
                &logs,
                format!("{}-{}-run{}-{attempt}.log", self.request.study.name, self.id.0, planned.index + 1),
            )),
            canary_ratio: pass.canary_ratio,
            notes: if subject.build().is_some() {
                assigned.notes.into_iter().chain(self.notes.of_cell(cell).cloned()).collect()
            } else {
                Vec::new()
            },
        };
        let mut ended = run(&order, place, around, Progress::new(Detail::Recorded(store, id)));
        if !ended.end.log_file.is_empty() {
            ended.end.log_file = format!("logs/{}", ended.end.log_file);
        }
        store.finish_run(id, &ended.end)?;
        (around.observer)(Event::RunEnded { label: &label, summary: &ended.summary });
        Ok(ended.end.status)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_takes_alternatives_on_one_axis_and_all_of_several_axes() {
        let text = "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = [\"mariadb\", \"postgres\"]\n\
                    workload = \"oltp_read_only\"\nsessions = [1, 8, 64]\n[load]\nblocks = 1\n";
        let study = crate::study::parse(std::path::Path::new("s.toml"), text).unwrap();
        let servers = ["mariadb@10.11.1", "postgres@16.1"];
        let pins = servers.map(|name| pin(name, None, name, "x")).to_vec();
        let plan = Plan::new(&study.body, false, 1, pins);
        let chosen = |only: &[(&str, &str)]| -> Result<Vec<(usize, u32)>, String> {
            let only: Vec<(String, String)> =
                only.iter().map(|(axis, value)| ((*axis).to_owned(), (*value).to_owned())).collect();
            let mut runs: Vec<(usize, u32)> = choose(&plan, &only)
                .map_err(|error| error.to_string())?
                .iter()
                .map(|run| (run.cell, run.levels[0]))
                .collect();
            runs.sort_unstable();
            Ok(runs)
        };
        assert_eq!(
            chosen(&[("sessions", "1"), ("sessions", "64")]).unwrap(),
            [(0, 1), (0, 64), (1, 1), (1, 64)]
        );
        assert_eq!(
            chosen(&[("sessions", "1"), ("server", "postgres"), ("sessions", "8")]).unwrap(),
            [(1, 1), (1, 8)]
        );
        assert!(
            chosen(&[("sessions", "1"), ("sessions", "9")])
                .unwrap_err()
                .contains("sessions=9: the axis has 1")
        );
    }

    #[test]
    fn runs_of_a_block_that_was_begun_before_the_end_are_not_counted() {
        let run = |index: u32| PlannedRun { index, block: index / 2 + 1, cell: 0, levels: vec![1], seed: 1 };
        let runs: Vec<PlannedRun> = (0..6).map(run).collect();
        // Interrupted in the second block, and then found decided after the first.
        let stands = BTreeMap::from([(0, Status::Done), (1, Status::Invalid), (2, Status::Done)]);
        let early = counted(&runs, &stands, 1, StudyId(1));
        assert_eq!((early.runs, early.done, early.invalid, early.open()), (2, 1, 1, 0));
        let whole = counted(&runs, &stands, u32::MAX, StudyId(1));
        assert_eq!((whole.runs, whole.done, whole.invalid, whole.open()), (6, 2, 1, 3));
    }

    #[test]
    fn what_is_unfinished_comes_first_and_invalid_runs_last() {
        let runs: Vec<PlannedRun> =
            (0..4).map(|index| PlannedRun { index, block: 1, cell: 0, levels: vec![1], seed: 1 }).collect();
        let of = |statuses: [Option<Status>; 4]| -> Vec<u32> {
            to_make(&runs, |run| statuses[run.index as usize]).iter().map(|run| run.index).collect()
        };
        let (done, invalid, failed) = (Some(Status::Done), Some(Status::Invalid), Some(Status::Failed));
        assert_eq!(of([None; 4]), [0, 1, 2, 3]);
        assert_eq!(of([done, invalid, Some(Status::Interrupted), None]), [2, 3]);
        assert_eq!(of([done, invalid, failed, done]), [2]);
        assert_eq!(of([done, invalid, done, done]), [1]);
        assert_eq!(of([done; 4]), [0u32; 0]);
    }
}
