//! The results file: one SQLite database that holds studies, hosts, builds, runs, steps, intervals, histograms
//! and telemetry. The only home of stored formats, and the only crate that knows SQLite.
//!
//! The types here are the stored ones; they are plain data, apart from the types that other rooms work with.
//!
//! Never here: measuring, statistics, anything drawn; passwords (a command line is stored without secrets by
//! whoever hands it in).

mod audit;
pub mod bundle;
mod calibration;
mod change;
mod codec;
mod error;
mod gate;
mod import;
mod line;
pub mod lives;
mod open;
mod read;
mod run;
mod schema;
mod study;
#[doc(hidden)]
pub mod testing;
mod words;
mod write;

pub use audit::{
    Audit, AuditId, AuditKind, AuditPromise, AuditRound, AuditStart, AuditUnflushed, AuditVerdict,
};
pub use calibration::{Calibrations, EqualLife};
pub use change::{ChangeDecision, ChangeState};
pub use codec::PackedHistogram;
pub use error::Error;
pub use gate::{Finding, GATES_OF_EVERY_RUN, Gate, GateKind};
pub use import::{Imported, RunIdentity};
pub use line::{Line, LineCount, LineFound, LineHold, LineId, LineProbe, LineSearch, LineSeen, LineStart};
pub use open::{FILE_NAME, Store};
pub use run::{
    Check, ClientUsage, Duel, ErrorTally, HotLock, INTERVENE, Interval, Intervention, LatencyUnit,
    LockSource, NO_INTERVENTION, Outcomes, Phase, Purpose, Run, RunEnd, RunHead, RunStart, Second,
    SecondResponse, Series, ServerFacts, Slice, Stalls, Statement, Status, Step, Unended, WorkloadFacts,
    intervention_text,
};
pub use study::{
    Axis, Build, BuildId, CAUGHT_UP_S, CLOUD, Canary, Comparison, Host, HostId, INSTANCE_TYPE, Key, Look,
    PRICE, PUBLISHED, Primary, Probe, Quantity, Reference, RunId, SECTIONS, Study, StudyId, StudyRecord,
    is_file_name,
};
pub use words::counted;
