//! What belongs to a study as a whole: its text and plan, the host, the builds, probes and published figures.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of a cell: axis to value, an open map. Numbers stay numbers (`"sessions": 8`).
pub type Key = BTreeMap<String, Value>;

/// A row of `study`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StudyId(pub i64);

/// A row of `host`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HostId(pub i64);

/// A row of `build`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BuildId(pub i64);

/// A row of `run`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub i64);

/// Whether a word out of a results file or a bundle, which may be somebody else's, names one file or folder within another:
/// no path, and not `..`. Ask before it becomes part of a path.
pub fn is_file_name(word: &str) -> bool {
    Path::new(word).file_name() == Some(OsStr::new(word)) && !word.contains('\0')
}

/// One axis of a study, in the order and with the values of the study file: reports keep that order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// `server`, `workload`, `settings`, `sessions`, ...
    pub name: String,
    /// As pinned by the plan: selectors are resolved (`mariadb` became `mariadb@11.4.5`).
    pub values: Vec<Value>,
}

/// What a study asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The axis along which cells are compared.
    pub axis: String,
    /// The value of the axis that the others are compared with, as pinned by the plan.
    pub base: Value,
    /// `tps`, `p95`, `p99`, ...
    pub metrics: Vec<String>,
    /// What counts as equivalent: 0.05 is 5 % either way.
    pub margin: f64,
    /// What the study is about; `None`: all metrics in all cells alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<Primary>,
    /// The number of blocks was not fixed before the first: it is judged by tests that allow for looks after each.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_watched: bool,
}

/// The comparisons that a study is about: they alone share the error, the others are secondary.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Primary {
    /// One of the comparison's metrics.
    pub metric: String,
    /// Axes with the values of the cells that are meant, `sessions` among them; an axis that is not named: all.
    pub cells: BTreeMap<String, Vec<Value>>,
}

/// One inspection of the verdicts of a study that may be watched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// In milliseconds since 1970.
    pub at_ms: i64,
    /// The last block that had ended.
    pub block: u32,
    /// Primary comparisons that had a verdict.
    pub decided: u32,
    /// Primary comparisons that had none.
    pub open: u32,
}

/// A planned study: everything that was known before the first run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Short name: the study file's stem.
    pub name: String,
    /// One line.
    pub title: String,
    /// What it asks, in the words of its author.
    pub question: String,
    /// Where the study file was, for the reader only.
    pub file_path: String,
    /// The study file, to the letter.
    pub file_text: String,
    /// SHA-256 of `file_text`, lower-case hex.
    pub file_sha256: String,
    /// Hash of what the file means: comments and white space do not count. Decides whether a study is resumed.
    pub fingerprint: String,
    /// The plan in the planner's own terms; the report prints it and reads nothing out of it.
    pub plan: Value,
    /// All axes, pinned, the load axis included (`sessions` or `climb`).
    pub axes: Vec<Axis>,
    /// What is compared.
    pub comparisons: Vec<Comparison>,
    pub blocks: u32,
    /// Runs planned (of purpose [`Measure`](crate::Purpose::Measure)).
    pub runs: u32,
    pub is_quick: bool,
    /// Seed of the order of the runs; each run has its own.
    pub seed: u64,
    /// Version of plimsoll that planned it.
    pub plimsoll_version: String,
    /// The command line as typed, without secrets.
    pub command: String,
    /// Milliseconds since 1970 UTC.
    pub created_at_ms: i64,
}

/// A study as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StudyRecord {
    pub id: StudyId,
    /// What was planned.
    pub study: Study,
    /// Its last state, in the lab's words (`planned`, `complete`, `interrupted` ...).
    pub state: String,
    /// When it was first over by its blocks or its budget, in milliseconds since 1970: one last look was taken then, which
    /// more blocks do not bring back. `created_at_ms` where its end was moved while it went on.
    pub ended_at_ms: Option<i64>,
    /// What happened to the study as a whole and a reader has to know (a cell left out, the file changed, a
    /// resumption), each with the time in milliseconds since 1970.
    pub notes: Vec<(i64, String)>,
    /// Command lines that have worked on this study after the first, without secrets, with their time.
    pub commands: Vec<(i64, String)>,
}

/// The fact of a host that names its cloud provider.
pub const CLOUD: &str = "cloud";
/// The fact that names what the provider sells the host as.
pub const INSTANCE_TYPE: &str = "instance type";
/// The fact that says what the host costs, as the study has it.
pub const PRICE: &str = "price";

/// Begins the name of the fact of a run how many seconds after its load a replica had caught up: `caught_up_s/1`.
pub const CAUGHT_UP_S: &str = "caught_up_s";

/// The machine that measures (and, but for attached servers, serves).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    pub name: String,
    /// Hash of what makes the machine comparable with itself: never pool results over two of them.
    pub fingerprint: String,
    /// Changes with each boot.
    pub boot_id: String,
    /// `Linux 6.1.0-30-amd64`.
    pub kernel: String,
    /// `Debian GNU/Linux 12`.
    pub os: String,
    /// `x86_64`.
    pub arch: String,
    /// As the cpu names itself.
    pub cpu_model: String,
    /// Logical cpus that this process may use.
    pub cpus: u32,
    /// Memory, or the control group's limit where that is lower.
    pub memory_bytes: u64,
    /// Anything else worth printing: governor, boost, SMT, virtualisation, file systems ...
    pub facts: BTreeMap<String, String>,
}

/// The unpacked binaries of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// mysql, mariadb, percona, postgres.
    pub flavor: String,
    /// `11.4.5`.
    pub version: String,
    /// Tells two builds of one version apart; empty where there is nothing to tell apart.
    pub label: String,
    /// Hash of the server binary with where it came from.
    pub identity: String,
    /// Where it came from, in words: `installed: /usr/sbin/mariadbd (Debian 1:10.11.14-0+deb12u2)`.
    pub origin: String,
    /// Anything else worth printing: compiler, flags, commit, checksum of the archive.
    pub facts: BTreeMap<String, String>,
}

impl Build {
    /// `flavor@version[+label]`.
    pub fn name(&self) -> String {
        let plus = if self.label.is_empty() { "" } else { "+" };
        format!("{}@{}{plus}{}", self.flavor, self.version, self.label)
    }
}

/// A measured value with its unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quantity {
    /// `sequential_write`, `random_read_4k`, `fsync` ...
    pub name: String,
    pub value: f64,
    /// `MB/s`, `1/s`, `us` ...
    pub unit: String,
}

/// What the device under a data directory can do by itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    /// Name of the storage axis' value; `default` where the study names none.
    pub place: String,
    /// Directory probed.
    pub path: String,
    /// Device, file system, mount options, scheduler, limits.
    pub facts: BTreeMap<String, String>,
    /// `fio 3.33`, or the built-in probe.
    pub tool: String,
    /// Milliseconds since 1970.
    pub measured_at_ms: i64,
    pub figures: Vec<Quantity>,
}

/// A fixed loop run before or after a block: shows the drift of the machine itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// Block that it belongs to, from 1.
    pub block: u32,
    /// `before` or `after` the block.
    pub when: String,
    /// Milliseconds since 1970.
    pub measured_at_ms: i64,
    /// Loops per second of cpu, disk ...
    pub figures: Vec<Quantity>,
}

/// A published figure that is shown beside ours and never enters a verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Name of the line or bar: `MySQL 5.1.33, table log`.
    pub series: String,
    /// Who published it, with a place to find it.
    pub source: String,
    /// Year of publication.
    pub year: u32,
    /// What it ran on.
    pub machine: String,
    /// `tps`, `p95_ms`, `qps` ...
    pub metric: String,
    /// Unit as shown.
    pub unit: String,
    /// Which of our cells it stands beside: the axes that match, and `sessions`.
    pub key: Key,
    /// The figure.
    pub value: f64,
}

/// Sections beyond those that its axes ask for, by the words of a study's `[report]` table. Study files are stored, and
/// reports read what was wished for out of them.
pub const SECTIONS: &[&str] = &["scaling", "versions", "cost", "storage", "levels", "stability"];

/// Sets of published figures that a study may ask for in that table.
pub const PUBLISHED: &[&str] = &[
    "bourke-2005",
    "maxia-2009",
    "mysql-bug-30414",
    "israel-2015",
    "anandtech-2005",
    "anandtech-2006",
    "dbstress-2009",
];
