//! Study file -> plan -> provision, load, run, record, resume; the only room that sees all others.
//!
//! Never here: terminal output (everything that a user may want to see is an [`Event`] to an observer), flags,
//! exit codes.

mod asked;
pub mod audit;
mod awake;
pub mod bench;
pub mod bisect;
pub mod calibrate;
mod cells;
pub mod changes;
pub mod checks;
pub mod clients;
mod described;
pub mod duel;
mod ending;
mod error;
pub mod fleet;
mod hooks;
pub mod host;
mod intervene;
mod judge;
pub mod kept;
pub mod line;
mod locks;
mod machine;
mod make;
pub mod observe;
mod on_server;
pub mod plan;
mod possible;
pub mod progress;
mod provision;
mod record;
mod recorded;
mod recording;
mod replicas;
pub mod rerun;
mod run;
pub mod servers;
mod session_time;
pub mod source;
mod stalled;
mod stop;
pub mod study;
pub mod study_run;
mod subject;
pub mod watch;
pub mod workloads;

pub use ending::Ended;
pub use error::{Class, Error};
pub use hooks::{Attach, Found, Hook, NoHooks, Part, RunContext};
pub use observe::{Event, Observer, Phase};
pub use on_server::OnServer;
pub use plan::Plan;
pub use stop::StopSwitch;
pub use study::Study;
