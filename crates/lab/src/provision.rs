//! A server with loaded tables: restored from a snapshot, loaded anew, or found as it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sandbox::{Build, Home, Sandbox, Spec, snapshot};
use wire::blocking::Client;
use wire::{Protocol, Target};
use workload::{Configured, Dialect, LoadAt, LoadMethod, LoadReport};

use crate::checks::{self, Shortage};
use crate::error::Error;
use crate::observe::{Event, Observer, Phase};
use crate::replicas::{self, Replicas};
use crate::run::{Around, Order};
use crate::stop::StopSwitch;

/// The database that workloads use when the user names none; sysbench's own name.
pub(crate) const DATABASE: &str = "sbtest";
/// Snapshots of all studies together stay below this.
pub(crate) const SNAPSHOTS_BYTES_MAX: u64 = 20 << 30;

/// Where the server of a run comes from.
#[derive(Debug)]
pub(crate) enum Place<'a> {
    /// A sandbox of the run's own.
    Own(Box<Spec>),
    /// A sandbox that the user deployed.
    Deployed(&'a Sandbox),
    /// A server that runs elsewhere.
    Attached(&'a Target),
    /// There is none, and why.
    Absent(&'a str),
}

/// What to do about tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// From a snapshot where there is one, else loaded (and, in a sandbox of the run's own, kept as a snapshot).
    Any,
    Fresh,
    /// As they are; missing ones are an error.
    Keep,
}

/// A running server with loaded tables.
pub(crate) struct Provisioned<'a> {
    server: Running<'a>,
    /// Control connections and sessions.
    pub(crate) target: Target,
    /// Its tables, and the workload that they are of.
    pub(crate) made: Made,
    /// Servers that follow it.
    pub(crate) replicas: Option<Replicas>,
}

/// The tables of a run, and how they came to be.
pub(crate) struct Made {
    pub(crate) configured: Box<dyn Configured>,
    /// Where the rows are from, in words.
    pub(crate) data_from: String,
    pub(crate) notes: Vec<String>,
    /// The rows of tables that were counted because they are kept.
    pub(crate) counted: BTreeMap<String, u64>,
}

impl Made {
    fn new(configured: Box<dyn Configured>, data_from: impl Into<String>, notes: Vec<String>) -> Made {
        Made { configured, data_from: data_from.into(), notes, counted: BTreeMap::new() }
    }
}

enum Running<'a> {
    Own(Box<Sandbox>),
    Deployed(&'a Sandbox),
    Attached,
}

impl Provisioned<'_> {
    /// The sandbox, unless the server is an attached one.
    pub(crate) fn sandbox(&self) -> Option<&Sandbox> {
        match &self.server {
            Running::Own(sandbox) => Some(sandbox),
            Running::Deployed(sandbox) => Some(sandbox),
            Running::Attached => None,
        }
    }

    /// Whether the server was started for this run, and goes with it.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.server, Running::Own(_))
    }

    /// Restarts a server of the run's own with an empty page cache; says what state the caches are in.
    pub(crate) fn start_cold(&mut self, stop: &StopSwitch) -> Result<String, Error> {
        let Running::Own(sandbox) = &mut self.server else {
            return Ok(
                "as found: Plimsoll does not restart a server that it did not start for this run".into()
            );
        };
        stop.set_server(None);
        let is_all = sandbox.restart_cold()?;
        stop.set_server(sandbox.pid());
        if let Some(replicas) = &self.replicas {
            replicas.go_on(sandbox, stop)?;
        }
        let what = if is_all { "the whole page cache" } else { "the page cache of the data directory" };
        Ok(format!("cold: server restarted, {what} emptied"))
    }

    /// Stops and removes a server of the run's own; leaves the others alone.
    pub(crate) fn release(self, stop: &StopSwitch) -> Result<(), Error> {
        stop.set_server(None);
        // Before it: a primary that stops waits for them.
        let replicas = self.replicas.map_or(Ok(()), Replicas::destroy);
        if let Running::Own(mut sandbox) = self.server {
            let stopped = sandbox.stop();
            sandbox.destroy()?;
            stopped?;
        }
        replicas
    }

    /// [`Replicas::rest`], where there are some.
    pub(crate) fn replicas_rest(&self, stop: &StopSwitch) -> bool {
        self.replicas.as_ref().is_none_or(|replicas| replicas.rest(&self.target, stop))
    }

    /// [`Replicas::owe`], where there are some.
    pub(crate) fn replicas_owe(
        &mut self,
        load_s: f64,
        stop: &StopSwitch,
        end: &mut store::RunEnd,
        each_second: &mut dyn FnMut(),
    ) -> Result<Vec<String>, Failed> {
        match (&mut self.replicas, &self.server) {
            (Some(replicas), Running::Own(primary)) => {
                replicas.owe((primary, &self.target), load_s, stop, end, each_second)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The sandbox of the run's own, to be taken elsewhere.
    pub(crate) fn into_sandbox(self) -> Option<Sandbox> {
        match self.server {
            Running::Own(sandbox) => Some(*sandbox),
            Running::Deployed(_) | Running::Attached => None,
        }
    }
}

/// What [`provision`] needs besides the place.
pub(crate) struct Wanted<'a> {
    pub(crate) order: &'a Order<'a>,
    pub(crate) around: Around<'a>,
    pub(crate) levels: &'a [u32],
    pub(crate) sessions_max: u32,
}

/// `phase` is told what goes on.
pub(crate) fn provision<'a>(
    place: Place<'a>,
    wanted: &Wanted<'_>,
    phase: &mut dyn FnMut(Phase),
) -> Result<Provisioned<'a>, Failed> {
    phase(Phase::Provision);
    match place {
        Place::Own(spec) => {
            let mut server = own(*spec, wanted, phase)?;
            if let (Some(order), Running::Own(primary)) = (&wanted.order.replicas, &mut server.server) {
                phase(Phase::Replicate);
                server.replicas = Some(replicas::begin(primary, &server.made, order, wanted, phase)?);
            }
            Ok(server)
        }
        Place::Deployed(sandbox) => {
            let target = sandbox.target(Some(DATABASE));
            let dialect = dialect_of(sandbox.build(), wanted.order.engine);
            let datadir = Some(sandbox.datadir());
            let made = on_existing(&target, datadir, dialect, wanted, phase)?;
            Ok(Provisioned { server: Running::Deployed(sandbox), target, made, replicas: None })
        }
        Place::Attached(given) => {
            let mut target = given.clone();
            target.database.get_or_insert_with(|| DATABASE.to_owned());
            let dialect = introduce(&target)?.1;
            let dialect = Dialect { engine: wanted.order.engine.map(str::to_owned), ..dialect };
            let datadir = telemetry::local_server(&target).and_then(|local| local.datadir);
            let made = on_existing(&target, datadir.as_deref(), dialect, wanted, phase)?;
            Ok(Provisioned { server: Running::Attached, target, made, replicas: None })
        }
        Place::Absent(why) => Err(Error::Server(why.to_owned()).into()),
    }
}

/// A server that could not be provided, with the last lines of its log where it has one.
pub(crate) struct Failed {
    pub(crate) error: Error,
    pub(crate) log_tail: Box<str>,
}

impl<E: Into<Error>> From<E> for Failed {
    fn from(error: E) -> Failed {
        let error = error.into();
        let log_tail = match &error {
            Error::Sandbox(sandbox::Error::Start { log, .. } | sandbox::Error::Init { log, .. }) => {
                log.clone()
            }
            _ => String::new(),
        };
        Failed { error, log_tail: log_tail.into() }
    }
}

pub(crate) fn dialect_of(build: &Build, engine: Option<&str>) -> Dialect {
    dialect_of_flavor(build.flavor, &build.version, engine)
}

pub(crate) fn dialect_of_flavor(flavor: sandbox::Flavor, version: &str, engine: Option<&str>) -> Dialect {
    Dialect { flavor, version: workload::Version::parse(version), engine: engine.map(str::to_owned) }
}

/// Asks an attached server who it is: version text and dialect.
pub(crate) fn introduce(target: &Target) -> Result<(String, Dialect), Error> {
    // The database may not exist yet: introduce ourselves without it.
    let anywhere = Target { database: administrative(target), ..target.clone() };
    let client = match connect(&anywhere) {
        Ok(client) => client,
        // A pooler may know no other databases than those in its configuration.
        Err(refused) => Client::connect(target).map_err(|_| refused)?,
    };
    let version = client.server().version.clone();
    let dialect = Dialect::of_server(target.protocol, &version);
    Ok((version, dialect))
}

/// A database that exists on every server of the protocol.
fn administrative(target: &Target) -> Option<String> {
    match target.protocol {
        Protocol::Mysql => None,
        Protocol::Postgres => Some("postgres".to_owned()),
    }
}

/// A control connection, or an error that says what to look at.
pub(crate) fn connect(target: &Target) -> Result<Client, Error> {
    Client::connect(target).map_err(|error| {
        let at = show(target);
        Error::Server(match &error {
            wire::Error::Server(server) => match server.code().as_str() {
                "1045" | "28P01" | "28000" => {
                    format!("{at} refused the log-in: {} (check user and password in the URL)", server.text)
                }
                "1049" | "3D000" => format!("{at} has no such database: {}", server.text),
                "1040" | "53300" => {
                    format!("{at} has no connection left: {} (raise max_connections)", server.text)
                }
                _ => format!("{at} refused the connection: {error}"),
            },
            wire::Error::Io(cause) => {
                format!("no server answers at {at}: {cause} (is it running, and is the address right?)")
            }
            _ => format!("cannot connect to {at}: {error}"),
        })
    })
}

/// A target for people, without its password.
pub(crate) fn show(target: &Target) -> String {
    let scheme = match target.protocol {
        Protocol::Mysql => "mysql",
        Protocol::Postgres => "postgres",
    };
    match &target.endpoint {
        wire::Endpoint::Unix(path) => format!("{scheme}://{}@{}", target.user, path.display()),
        wire::Endpoint::Tcp { host, port } => format!("{scheme}://{}@{host}:{port}", target.user),
    }
}

/// A server of a run's own.
pub(crate) fn own<'a>(
    mut spec: Spec,
    wanted: &Wanted<'_>,
    phase: &mut dyn FnMut(Phase),
) -> Result<Provisioned<'a>, Failed> {
    let configured = wanted
        .order
        .workload
        .configure(wanted.order.options, dialect_of(&spec.build, wanted.order.engine))?;
    crate::clients::check(wanted.order.clients, wanted.levels, &*configured)?;
    make_room(&mut spec, &*configured, wanted.sessions_max);
    let key = snapshot::key(&spec, &configured.dataset_key());
    // Sides of a duel load one after another: a load uses the whole machine, and the next one may find its snapshot.
    let loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    let beside = wanted.order.replicas.as_ref().map_or(0, |order| order.specs.len() as u64);
    let kept = kept_or_room(wanted.order.home, &spec, &*configured, wanted.order.data, beside)??;
    if let Some(snapshot) = kept {
        drop(loading);
        return restored(spec, snapshot, Made::new(configured, "snapshot", Vec::new()), wanted);
    }
    if wanted.order.data == Data::Any && has_limits(&spec) {
        // Limits are for the measured load. A load under them takes long, or dies of an index that is built in more
        // memory than there is.
        let (mut sandbox, loaded, notes) =
            loaded(&without_limits(&spec), configured.as_ref(), &key, wanted, phase)?;
        if let Some(snapshot) = snapshot::find(wanted.order.home, &key)? {
            wanted.around.stop.set_server(None);
            sandbox.stop()?;
            sandbox.destroy()?;
            phase(Phase::Provision);
            return restored(spec, snapshot, Made::new(configured, how(&loaded), notes), wanted);
        }
        wanted.around.stop.set_server(None);
        sandbox.destroy()?;
    }
    let (sandbox, loaded, notes) = loaded(&spec, configured.as_ref(), &key, wanted, phase)?;
    let target = sandbox.target(Some(DATABASE));
    let made = Made::new(configured, how(&loaded), notes);
    Ok(Provisioned { server: Running::Own(Box::new(sandbox)), target, made, replicas: None })
}

/// Room for the sessions of a load.
pub(crate) fn make_room(spec: &mut Spec, configured: &dyn Configured, sessions_max: u32) {
    let needs = configured.needs(sessions_max);
    spec.sessions = needs.connections.max(sessions_max) + checks::CONNECTIONS_BESIDE;
    let sessions = u64::from(sessions_max.max(1));
    spec.statements_per_session = needs.prepared_statements.div_ceil(sessions).clamp(1, 100_000) as u32;
}

/// The snapshot that a server of a run's own begins with, where there is one; else there has to be room for its tables, and
/// for as many copies `beside` them.
pub(crate) fn kept_or_room(
    home: &Home,
    spec: &Spec,
    configured: &dyn Configured,
    data: Data,
    beside: u64,
) -> Result<Result<Option<snapshot::Snapshot>, Shortage>, Error> {
    let place = place_of(home, spec.storage.as_ref().and_then(|storage| storage.datadir.as_deref()));
    let key = snapshot::key(spec, &configured.dataset_key());
    let kept = if data == Data::Any { snapshot::find(home, &key)? } else { None };
    let (bytes, copies) = match &kept {
        Some(snapshot) => (snapshot.bytes, 1),
        None => (configured.data_bytes(), copies_of(configured, data)),
    };
    Ok(checks::shortage(&place, bytes, copies + beside).map_or(Ok(kept), Err))
}

/// How often the tables of a load are on the disk. Those larger than all snapshots may be are not kept as one.
pub(crate) fn copies_of(configured: &dyn Configured, data: Data) -> u64 {
    let is_kept = data == Data::Any && configured.data_bytes() <= SNAPSHOTS_BYTES_MAX;
    if is_kept { 2 } else { 1 }
}

/// Where a sandbox's data directory will be.
pub(crate) fn place_of(home: &Home, datadir: Option<&Path>) -> PathBuf {
    match datadir {
        None => home.path().to_owned(),
        Some(datadir) if datadir.as_os_str() == "tmpfs" => "/dev/shm".into(),
        Some(datadir) => datadir.to_owned(),
    }
}

/// Held while tables are loaded.
static LOADING: Mutex<()> = Mutex::new(());

fn has_limits(spec: &Spec) -> bool {
    spec.storage.as_ref().is_some_and(|storage| !storage.limits.is_none())
}

/// The same server, its settings included, without the limits of its place.
fn without_limits(spec: &Spec) -> Spec {
    let mut free = Spec { settings: spec.effective_settings(), ..spec.clone() };
    if let Some(storage) = &mut free.storage {
        storage.limits = sandbox::Limits::default();
    }
    free
}

/// A server on a copy of a snapshot.
fn restored<'a>(
    mut spec: Spec,
    snapshot: snapshot::Snapshot,
    made: Made,
    wanted: &Wanted<'_>,
) -> Result<Provisioned<'a>, Failed> {
    spec.snapshot = Some(snapshot);
    let sandbox =
        Sandbox::deploy(wanted.order.home, &spec, &|progress| tell(wanted.around.observer, progress))?;
    wanted.around.stop.set_server(sandbox.pid());
    let target = sandbox.target(Some(DATABASE));
    Ok(Provisioned { server: Running::Own(Box::new(sandbox)), target, made, replicas: None })
}

pub(crate) fn tell(observer: Observer<'_>, progress: sandbox::Progress) {
    match progress {
        sandbox::Progress::Step(text) => observer(Event::Doing(&text)),
        sandbox::Progress::Bytes { done, total } => observer(Event::Bytes { done, total }),
    }
}

/// A fresh server with loaded tables, kept as a snapshot where there shall be one.
fn loaded(
    spec: &Spec,
    configured: &dyn Configured,
    key: &str,
    wanted: &Wanted<'_>,
    phase: &mut dyn FnMut(Phase),
) -> Result<(Sandbox, LoadReport, Vec<String>), Failed> {
    let mut sandbox =
        Sandbox::deploy(wanted.order.home, spec, &|progress| tell(wanted.around.observer, progress))?;
    wanted.around.stop.set_server(sandbox.pid());
    let target = sandbox.target(Some(DATABASE));
    let loaded = {
        // Half-loaded tables are worth nothing: the first Ctrl-C ends the server, and with it the loading.
        let _expendable = wanted.around.stop.expendable(sandbox.pid());
        load(configured, &target, Durability::Expendable, wanted, phase).and_then(|report| {
            workload::settle(&target).map(|()| report).map_err(|e| Error::Run(e.to_string()))
        })
    };
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(error) => {
            let log_tail = sandbox.log_tail(LOG_LINES).join("\n");
            wanted.around.stop.set_server(None);
            return Err(Failed { error, log_tail: log_tail.into() });
        }
    };
    let mut notes = loaded.notes.clone();
    if wanted.order.data == Data::Any && loaded.rows > 0 {
        phase(Phase::Snapshot);
        wanted.around.stop.set_server(None);
        let dataset = configured.dataset_key();
        let report = |progress| tell(wanted.around.observer, progress);
        match snapshot::save(wanted.order.home, &mut sandbox, key, &dataset, SNAPSHOTS_BYTES_MAX, &report) {
            Ok(Some(_)) => {}
            Ok(None) => notes.push(format!(
                "the tables are larger than all snapshots together may be ({} GB): the next run loads again",
                SNAPSHOTS_BYTES_MAX >> 30
            )),
            Err(error) => {
                notes.push(format!("no snapshot was kept, the next run loads again: {error}"));
                sandbox.start()?;
            }
        }
        wanted.around.stop.set_server(sandbox.pid());
    }
    Ok((sandbox, loaded, notes))
}

/// Lines of a server's log that are kept with a failure.
pub(crate) const LOG_LINES: usize = 20;

/// `datadir` is the server's, where it can be seen from here.
fn on_existing(
    target: &Target,
    datadir: Option<&Path>,
    dialect: Dialect,
    wanted: &Wanted<'_>,
    phase: &mut dyn FnMut(Phase),
) -> Result<Made, Error> {
    let configured = wanted.order.workload.configure(wanted.order.options, dialect)?;
    crate::clients::check(wanted.order.clients, wanted.levels, &*configured)?;
    introduce(target)?;
    let database = target.database.clone().unwrap_or_default();
    if wanted.order.data == Data::Keep {
        connect(target)?.close();
        let (counted, notes) = counted(&*configured, target)?;
        notes.iter().for_each(|note| (wanted.around.observer)(Event::Warning(note)));
        return Ok(Made { counted, ..Made::new(configured, "kept", notes) });
    }
    workload::create_database(target).map_err(|error| Error::Server(error.to_string()))?;
    let is_there = configured.is_loaded(target).map_err(|error| Error::Server(error.to_string()))?;
    if is_there && wanted.order.data == Data::Any {
        return Ok(Made::new(configured, "kept", Vec::new()));
    }
    // Tables that are there already give their room to those that replace them.
    if let Some(datadir) = datadir.filter(|_| !is_there)
        && let Some(shortage) = checks::shortage(datadir, configured.data_bytes(), 1)
    {
        return Err(shortage.into());
    }
    let loaded = load(configured.as_ref(), target, Durability::Kept, wanted, phase)?;
    let mut notes = loaded.notes.clone();
    if !is_there {
        notes.push(format!("the tables were loaded into the database {database} and stay there"));
    }
    Ok(Made::new(configured, how(&loaded), notes))
}

/// The rows of tables that are kept; and those that have fewer than the options say, in words: sessions would look for
/// rows that are not there.
///
/// # Errors
/// Not even half of a table's rows are there: the options are those of other tables.
fn counted(
    configured: &dyn Configured,
    target: &Target,
) -> Result<(BTreeMap<String, u64>, Vec<String>), Error> {
    let failed = |error: workload::Error| Error::Server(error.to_string());
    let (mut counted, mut notes) = (BTreeMap::new(), Vec::new());
    for (table, wanted) in configured.rows_by_table().map_err(failed)? {
        let found = workload::loader::rows_there(target, &table).map_err(failed)?;
        counted.extend(found.map(|found| (table.clone(), found)));
        let there = match found {
            Some(found) if found >= wanted => continue,
            Some(found) => format!("the table {table} has {}", store::counted(found, "row")),
            None => format!("there is no table {table}"),
        };
        let told = format!("{there}, and with these options a load makes {}", store::counted(wanted, "row"));
        // Some may have been deleted since the load.
        if found.is_none_or(|found| found < wanted / 2) {
            let remedy = "give the options (-o) that the tables were loaded with, or leave --keep out";
            return Err(Error::Usage(format!("--keep: {told}: {remedy}")));
        }
        notes.push(told);
    }
    Ok((counted, notes))
}

/// What a crash during a load may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Durability {
    /// Nothing but the tables that are loaded: the server is not of this run's own.
    Kept,
    /// The whole server, which holds nothing else.
    Expendable,
}

fn load(
    configured: &dyn Configured,
    target: &Target,
    durability: Durability,
    wanted: &Wanted<'_>,
    phase: &mut dyn FnMut(Phase),
) -> Result<LoadReport, Error> {
    phase(Phase::Load);
    workload::create_database(target).map_err(|error| Error::Server(error.to_string()))?;
    let at = LoadAt {
        target: target.clone(),
        connections: loaders(),
        is_own_server: durability == Durability::Expendable,
        stop: wanted.around.stop.load().clone(),
    };
    let report = |progress: workload::Progress| {
        let what = match progress.part {
            workload::LoadPart::Tables => "creating tables",
            workload::LoadPart::Rows => "loading rows",
            workload::LoadPart::Indexes => "building indexes",
            workload::LoadPart::Analyze => "gathering statistics",
        };
        (wanted.around.observer)(Event::Loaded { what, done: progress.done, total: progress.total });
    };
    let loaded = match durability {
        Durability::Kept => configured.load(&at, &report),
        Durability::Expendable => workload::without_redo_log(target, || configured.load(&at, &report)),
    };
    if wanted.around.stop.is_requested() {
        return Err(Error::Interrupted);
    }
    loaded.map_err(|error| Error::Run(format!("loading the tables failed: {error}")))
}

/// Connections that load at once: one for each cpu, as more of them only wait for each other.
fn loaders() -> usize {
    std::thread::available_parallelism().map_or(2, |cpus| cpus.get()).clamp(2, 8)
}

fn how(report: &LoadReport) -> String {
    match &report.method {
        LoadMethod::Stream => "loaded".into(),
        LoadMethod::Inserts { why } => format!("loaded by INSERT statements: {why}"),
        LoadMethod::Statements => "loaded by the workload's own statements".into(),
        LoadMethod::Nothing => "no tables".into(),
    }
}
