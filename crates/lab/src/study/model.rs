//! A study as the file says it: plain data, checked, not yet resolved against any server.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use store::{INTERVENE, NO_INTERVENTION};

use super::problem::{Problem, StudyError};
use super::source::SourceChoice;
use crate::error::Error;
use crate::line::Asked;
use crate::workloads::Resolved;

#[derive(Debug, Clone, PartialEq)]
pub struct Study {
    /// The file's stem: `quickstart` for `studies/quickstart.toml`.
    pub name: String,
    pub path: PathBuf,
    /// Its text as it stands, passwords in URLs masked.
    pub text: String,
    /// SHA-256 of the file, hexadecimal.
    pub file_sha256: String,
    /// One line.
    pub title: String,
    pub question: String,
    pub body: Body,
    pub quick: Quick,
    /// Where its blocks are made. It decides nothing of what is measured, and so is no part of the meaning.
    pub fleet: crate::fleet::Wishes,
    /// What the machine costs, which decides nothing either.
    pub price: Option<String>,
    /// Where what is checked later stands in the text: `client_cpus` and other keys; values of axes as in
    /// `engine/NAME`, `level/SESSIONS`, `option/NAME/VALUE`; of settings also `settings/NAME/logging`, `settings/NAME/VARIABLE/name` and
    /// `/value`.
    pub(crate) places: BTreeMap<String, Range<usize>>,
}

impl Study {
    /// Something that is wrong with what stands at `place`, shown there.
    pub(crate) fn refuse(&self, place: &str, message: String, label: &str, help: &str) -> Error {
        let Some(span) = self.places.get(place).cloned() else {
            return Error::Usage(format!("{}: {message}; {help}", self.path.display()));
        };
        let problem = Problem { message, span, label: label.to_owned(), help: Some(help.to_owned()) };
        let (path, text) = (self.path.clone(), self.text.clone());
        Error::Study(Box::new(StudyError { path, text, problems: vec![problem] }))
    }

    /// `studies/s.toml:7:12`, or the path alone where the place is not known.
    pub(crate) fn position(&self, place: &str) -> String {
        let path = self.path.display();
        let Some(span) = self.places.get(place) else { return path.to_string() };
        let (line, column) = super::problem::position(&self.text, span.start);
        format!("{path}:{line}:{column}")
    }

    /// The study as `--quick` or in full.
    pub fn body(&self, quick: bool) -> Body {
        if quick { self.quick.apply_to(&self.body) } else { self.body.clone() }
    }
}

/// What decides the plan.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Body {
    pub axes: Axes,
    /// Options of every workload of the study.
    pub options: BTreeMap<String, String>,
    pub load: Load,
    /// In place of a load: each run is a search for load lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<Asked>,
    pub machine: MachineWishes,
    pub compare: Option<Compare>,
    /// Cells that are left out.
    pub excludes: Vec<Exclude>,
    /// Changes of the server that come at a moment of each run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub timed: Vec<Timed>,
}

impl Body {
    /// All comparisons: what the study asks for, and what is switched on against nothing of it. That one has the metrics
    /// and the margin of the other, where there is one, but none of its gates.
    pub(crate) fn comparisons(&self) -> Vec<Compare> {
        let asked = self.compare.clone();
        let is_asked = asked.as_ref().is_some_and(|compare| compare.axis == INTERVENE);
        let own = (!self.axes.intervene.is_empty() && !is_asked).then(|| {
            let like = asked.clone().unwrap_or_else(|| Compare {
                axis: String::new(),
                base: String::new(),
                metrics: vec!["tps".to_owned()],
                primary: None,
                margin: MARGIN,
                gates: Vec::new(),
            });
            Compare {
                axis: INTERVENE.to_owned(),
                base: NO_INTERVENTION.to_owned(),
                gates: Vec::new(),
                ..like
            }
        });
        asked.into_iter().chain(own).collect()
    }
}

/// Differences below this share count as none where a study says nothing else.
pub(super) const MARGIN: f64 = 0.05;

/// How the machine is to be while a study measures on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct MachineWishes {
    /// What its cpus do when nobody wants them.
    pub idle: Idle,
    /// Frequencies above the nominal one.
    pub turbo: Turbo,
}

/// What cpus do when nobody wants them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Idle {
    /// They stay awake, at the frequency of the performance governor.
    #[default]
    Awake,
    AsIs,
}

/// Frequencies above the nominal one, which come and go with temperature and with the number of busy cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Turbo {
    Off,
    #[default]
    AsIs,
}

/// What varies. An empty list: the study does not vary it and the default is used.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Axes {
    pub server: Vec<ServerChoice>,
    pub workload: Vec<WorkloadChoice>,
    /// Options of the workloads that vary: name and values, in the order of the file.
    pub options: Vec<(String, Vec<String>)>,
    /// Named sets of server variables.
    pub settings: Vec<SettingsChoice>,
    pub engine: Vec<String>,
    /// Places of the data directory.
    pub storage: Vec<StorageChoice>,
    pub cpus: Vec<CpusChoice>,
    /// Isolation levels, as in `read-committed`.
    pub isolation: Vec<String>,
    /// Character sets, with or without collation (`utf8mb4/utf8mb4_bin`).
    pub charset: Vec<String>,
    /// Environments of the server process.
    pub env: Vec<EnvChoice>,
    /// Servers that follow the server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<ReplicasChoice>,
    /// What is switched on and off while a server lives: values of the axis `intervene`, beside [`NO_INTERVENTION`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervene: Vec<Intervention>,
    pub ladder: Ladder,
}

impl Axes {
    /// All servers that a plan pins: those of the axis, and after them those that only replicas are of.
    pub(crate) fn pinned_servers(&self) -> Vec<ServerChoice> {
        let mut all = self.server.clone();
        for server in self.replicas.iter().flat_map(|choice| choice.servers.iter().flatten()) {
            if !all[self.server.len()..].iter().any(|known| known.server == *server) {
                all.push(ServerChoice { server: server.clone(), label: None, source: None });
            }
        }
        all
    }

    /// The values of the axis `intervene`; none where the study switches nothing.
    pub fn interventions(&self) -> Vec<String> {
        if self.intervene.is_empty() {
            return Vec::new();
        }
        let names = self.intervene.iter().map(|intervention| intervention.name.clone());
        std::iter::once(NO_INTERVENTION.to_owned()).chain(names).collect()
    }
}

/// What is switched on and off again while the server is loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Intervention {
    pub name: String,
    #[serde(flatten)]
    pub change: Changes,
}

/// A change that comes at a moment of each run, once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Timed {
    pub name: String,
    /// From the start of the measured phase.
    pub at: Duration,
    #[serde(flatten)]
    pub change: Changes,
}

/// A change in the words of each server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Changes {
    /// On every server that has none of its own; `None`: not possible there.
    #[serde(rename = "change")]
    pub any: Option<Change>,
    /// By flavour; `mysql` holds for MariaDB and Percona Server too, their own entries win.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub by_flavor: BTreeMap<String, Change>,
}

impl Changes {
    /// That of a flavour.
    pub(crate) fn of(&self, flavor: sandbox::Flavor) -> Option<&Change> {
        let families = crate::cells::families(flavor);
        families.iter().rev().find_map(|family| self.by_flavor.get(*family)).or(self.any.as_ref())
    }
}

/// How a server is changed while it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Change {
    /// By statements: those that switch it on, and those that switch it off.
    Sql {
        /// In their order.
        on: Vec<String>,
        /// In their order; none for a change that nothing takes back.
        off: Vec<String>,
    },
    /// By variables, which get back the values that they had.
    Settings(BTreeMap<String, String>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum Ladder {
    /// Each level is a run of its own, shuffled with the others.
    Sessions(Vec<u32>),
    /// Ordered steps of one run.
    Climb(Vec<u32>),
}

impl Default for Ladder {
    fn default() -> Ladder {
        Ladder::Sessions(vec![1])
    }
}

impl Ladder {
    /// All levels, in the order of the file.
    pub fn levels(&self) -> &[u32] {
        match self {
            Ladder::Sessions(levels) | Ladder::Climb(levels) => levels,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerChoice {
    /// `flavor[@version]`, a sandbox's name, or a URL (the password stays in memory); the commit of one that is built.
    #[serde(serialize_with = "masked")]
    pub server: String,
    /// Tells two entries of the same build apart.
    pub label: Option<String>,
    /// Where it is built from, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceChoice>,
}

impl ServerChoice {
    /// What tells it from the other servers of the study.
    pub(crate) fn key(&self) -> String {
        self.label.as_ref().map_or(self.server.clone(), |label| format!("{}+{label}", self.server))
    }
}

fn masked<S: serde::Serializer>(server: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&wire::mask::value(server))
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WorkloadChoice {
    /// What the study calls it; the workload's own name unless given.
    pub label: String,
    /// The workload, as the study names it.
    pub name: String,
    /// What that name meant when the study was read. Of a file's the content counts.
    #[serde(rename = "content_sha256", skip_serializing_if = "Resolved::is_built_in")]
    pub workload: Resolved,
    /// Options of this entry alone; they win over those of the study.
    pub options: BTreeMap<String, String>,
    /// How long a level of this entry is measured; `None`: as the study says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<Length>,
}

/// A named set of server variables.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SettingsChoice {
    /// Its name; `default` for none.
    pub label: String,
    /// A profile to start from: safest, fast or unsafe.
    pub profile: Option<String>,
    /// A logging variant: none, general-file, general-table or binlog.
    pub logging: Option<String>,
    /// Variables for every server.
    pub set: BTreeMap<String, String>,
    /// Variables by flavour; `mysql` holds for MariaDB and Percona Server too, their own entries win.
    pub by_flavor: BTreeMap<String, BTreeMap<String, String>>,
}

/// A place for data directories.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct StorageChoice {
    pub label: String,
    /// The directory under which data directories are made; `None`: Plimsoll's own. Of a made file system it is known
    /// when that is mounted.
    pub datadir: Option<PathBuf>,
    /// A file system that is made for the study.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made: Option<sandbox::FilesystemWish>,
    /// I/O scheduler of the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler: Option<String>,
    /// Limit of the device, operations per second.
    pub read_iops: Option<u64>,
    /// Limit of the device, operations per second.
    pub write_iops: Option<u64>,
    /// Limit of the device, bytes per second.
    pub read_bytes_s: Option<u64>,
    /// Limit of the device, bytes per second.
    pub write_bytes_s: Option<u64>,
    /// Limit of the server's memory, page cache included, in bytes.
    pub memory_bytes: Option<u64>,
}

/// Cpus of the server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub enum CpusChoice {
    /// So many of those that there are.
    Count(u32),
    /// These, as in `0-3,8`.
    List(String),
    /// Half of those that there are, at least one.
    Half,
    All,
}

impl CpusChoice {
    /// As it stands in a cell's key.
    pub fn label(&self) -> String {
        match self {
            CpusChoice::Count(count) => count.to_string(),
            CpusChoice::List(list) => list.clone(),
            CpusChoice::Half => "half".to_owned(),
            CpusChoice::All => "all".to_owned(),
        }
    }
}

/// An environment of the server process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct EnvChoice {
    /// Its name; `none` for no additions.
    pub label: String,
    pub set: BTreeMap<String, String>,
    /// Libraries that the server is started with: allocators by name, or paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub preload: Vec<String>,
}

/// Servers that follow a server, and live as long as it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicasChoice {
    /// Its name; `none` for a server alone.
    pub label: String,
    pub mode: sandbox::replication::Mode,
    /// What each is, `flavor[@version]`; `None`: what the server itself is.
    pub servers: Vec<Option<String>>,
}

/// How the load is applied.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Load {
    /// Run but not recorded, before each level.
    pub warmup: Duration,
    /// How long a level is measured.
    pub length: Length,
    /// How runs that are compared are brought together.
    #[serde(skip_serializing_if = "Pairing::is_adjacent")]
    pub pairing: Pairing,
    /// Repeats of all cells; at most so many where the study ends when it is decided.
    pub blocks: u32,
    /// When the study ends before that. How long it may go on is no part of what it measures: a study that gets more
    /// blocks or time keeps what it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Until>,
    /// Pause between two transactions of a session (closed loop).
    pub think_time: Duration,
    /// Arrivals per second over all sessions: an open loop.
    pub rate_tps: Option<f64>,
    /// How they are spread: constant or poisson.
    pub arrivals: Arrivals,
    /// Attempts after the first one.
    pub retries_max: u32,
    /// Wait before the first retry.
    pub backoff: Duration,
    /// Worker threads; `None`: the engine decides.
    pub workers: Option<usize>,
    /// Processes that have the sessions; 1: the one that measures.
    #[serde(skip_serializing_if = "is_one")]
    pub clients: u32,
    /// Seed of the order of runs and of all that is random in them; `None`: drawn, and recorded.
    pub seed: Option<u64>,
    /// Cpus of the client, as in `0-3,8`.
    pub client_cpus: Option<String>,
    /// Connections of a level are opened evenly over this time.
    pub ramp: Duration,
    /// How long in-flight transactions may take to end after the measured phase.
    pub drain: Duration,
    /// Run before the first level with the sessions of the largest one, checked but not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prime: Option<Length>,
    /// Each run begins with a server that has just been restarted and an empty page cache.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_cold: bool,
    /// Gates that doubt the machine or the length of the run warn, and do not call it invalid.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_lenient: bool,
    /// After the blocks, a pass of its own for each cell and level that finds the hot locks.
    pub hot_locks: bool,
    /// How long one state of the server lasts before the next one is switched, where the study intervenes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Duration>,
}

fn is_one(clients: &u32) -> bool {
    *clients == 1
}

impl Default for Load {
    fn default() -> Load {
        Load {
            warmup: Duration::from_secs(2),
            length: Length::Time(Duration::from_secs(10)),
            pairing: Pairing::Adjacent,
            blocks: 5,
            until: None,
            think_time: Duration::ZERO,
            rate_tps: None,
            arrivals: Arrivals::Poisson,
            retries_max: 0,
            backoff: Duration::ZERO,
            workers: None,
            clients: 1,
            seed: None,
            client_cpus: None,
            ramp: Duration::ZERO,
            drain: Duration::from_secs(5),
            prime: None,
            is_cold: false,
            is_lenient: false,
            hot_locks: false,
            phase: None,
        }
    }
}

/// How the runs of a block that are compared with each other are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Pairing {
    /// One after the other, in the opposite order in the next block.
    Adjacent,
    /// At the same time, in slices of half a second by turns.
    Duel,
}

impl Pairing {
    fn is_adjacent(&self) -> bool {
        *self == Pairing::Adjacent
    }
}

/// `until = "decided"`: the study ends as soon as every primary comparison has a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Until {
    /// Before so many blocks the verdicts are not looked at.
    #[serde(skip)]
    pub blocks_min: u32,
    /// No block is begun that is not likely to end within this time of runs, over all commands that went on with the
    /// study.
    #[serde(skip)]
    pub budget: Option<Duration>,
}

/// How long a level is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Length {
    /// By the clock.
    Time(Duration),
    /// By transactions, over all sessions.
    Transactions(u64),
}

/// How the arrivals of an open loop are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Arrivals {
    /// At equal distances.
    Constant,
    /// A Poisson process.
    Poisson,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compare {
    pub axis: String,
    /// The value that the others are compared with.
    pub base: String,
    pub metrics: Vec<String>,
    /// What the study is about; `None`: all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<Primary>,
    /// Differences smaller than this share count as none.
    pub margin: f64,
    /// Verdicts without which the command does not end well. They judge what was measured and are no part of it: an
    /// other gate does not begin the study anew.
    #[serde(skip)]
    pub gates: Vec<stats::Gate>,
}

/// The one metric, and the cells, that a study is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Primary {
    pub metric: String,
    /// Axes (`sessions` among them) with the values that are meant; all values of the others.
    pub cells: BTreeMap<String, Vec<String>>,
}

/// Cells to leave out: those where each named axis has one of the values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exclude(pub BTreeMap<String, Vec<String>>);

/// What `--quick` changes. `None`: as in the full study.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Quick {
    pub warmup: Option<Duration>,
    pub length: Option<Length>,
    pub blocks: Option<u32>,
    pub prime: Option<Length>,
    /// See [`Load::phase`].
    pub phase: Option<Duration>,
    /// See [`Load::is_lenient`].
    pub is_lenient: bool,
    pub ladder: Option<Ladder>,
    /// Searches for load lines.
    pub line: Option<QuickLine>,
    /// Axes that get other values.
    pub axes: Axes,
    pub options: BTreeMap<String, String>,
    /// Cells that are left out, instead of those of the full study.
    pub excludes: Option<Vec<Exclude>>,
}

/// What `--quick` changes of searches for load lines.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct QuickLine {
    pub budget: Option<Duration>,
    /// How long a line is held.
    pub hold: Option<Duration>,
}

impl Quick {
    /// The full study with these changes.
    pub(crate) fn apply_to(&self, full: &Body) -> Body {
        let mut body = full.clone();
        self.apply(&mut body);
        body
    }

    fn apply(&self, body: &mut Body) {
        if let Some(excludes) = &self.excludes {
            body.excludes = excludes.clone();
        }
        body.load.warmup = self.warmup.unwrap_or(body.load.warmup);
        body.load.length = self.length.unwrap_or(body.load.length);
        if let Some(blocks) = self.blocks {
            (body.load.blocks, body.load.until) = (blocks, None);
        }
        body.load.prime = self.prime.or(body.load.prime);
        body.load.phase = self.phase.or(body.load.phase);
        body.load.is_lenient |= self.is_lenient;
        if self.length.is_some() {
            // A shorter study is shorter everywhere, unless its own workloads say otherwise.
            body.axes.workload.iter_mut().for_each(|workload| workload.length = None);
        }
        if let (Some(asked), Some(quick)) = (&mut body.line, self.line) {
            let budget = quick.budget.or(Some(asked.budget));
            let hold = quick.hold.or_else(|| quick.budget.is_none().then_some(asked.hold));
            let shorter = Asked::new(asked.promises.clone(), budget, hold, asked.sessions_max);
            *asked = Asked { debt: asked.debt, ..shorter };
        }
        if let Some(ladder) = &self.ladder {
            body.axes.ladder = ladder.clone();
        }
        let (axes, quick) = (&mut body.axes, &self.axes);
        replace(&mut axes.server, &quick.server);
        replace(&mut axes.workload, &quick.workload);
        replace(&mut axes.settings, &quick.settings);
        replace(&mut axes.engine, &quick.engine);
        replace(&mut axes.storage, &quick.storage);
        replace(&mut axes.cpus, &quick.cpus);
        replace(&mut axes.isolation, &quick.isolation);
        replace(&mut axes.charset, &quick.charset);
        replace(&mut axes.env, &quick.env);
        replace(&mut axes.replicas, &quick.replicas);
        for (name, value) in &self.options {
            body.options.insert(name.clone(), value.clone());
            axes.options.retain(|(axis, _)| axis != name);
            for workload in &mut axes.workload {
                workload.options.remove(name);
            }
        }
    }
}

fn replace<T: Clone>(full: &mut Vec<T>, quick: &[T]) {
    if !quick.is_empty() {
        *full = quick.to_vec();
    }
}
