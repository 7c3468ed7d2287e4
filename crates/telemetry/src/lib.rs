//! What the machine and the server did while a load ran: samplers of host, processes and server counters, hot
//! locks, the storage probe, the canary, gates, and what this machine can measure at all.
//!
//! Everything missing (no root, no perf, no performance_schema) is a [`Missing`] with its reason, never an error of
//! the run.
//!
//! Never here: load, the plan of a study, stored formats, terminal output.

pub mod agent;
pub mod canary;
mod device;
pub mod doctor;
pub mod drain;
mod foreign;
pub mod gates;
mod host;
mod local;
pub mod locks;
pub mod metrics;
pub mod per_transaction;
pub mod probe;
mod process;
mod procfs;
pub mod replication;
pub mod residency;
mod sampler;
mod server;
pub mod session_time;
mod student_interval;
mod track;

pub use doctor::{WakeUps, hand_over_us, wake_ups};
pub use gates::{Finding, Gate};
pub use host::{CpuTime, taken_by_others};
pub use local::{LocalServer, local_server};
pub use per_transaction::{PerTransaction, per_transaction};
pub use sampler::{Config, Cost, Missing, Sampler, Telemetry};
pub use track::{Kind, Track, Tracks};
