//! Builds (catalogue, fetch, unpack) and sandboxes (init, start, stop, settings, snapshots, cpus, limits).
//!
//! A [`Build`] is the unpacked binaries of a server; [`builds::resolve`] turns a [`Selector`] such as
//! `mariadb@10.11` into one and fetches it where needed. A [`Sandbox`] is a private instance of a build: data
//! directory, socket, log, settings and, when the caller is root, an unprivileged uid of its own. A
//! [`snapshot`] is a loaded data directory kept for reuse, a [`filesystem`] one that is made for data directories. With
//! [`replication`] sandboxes follow another one.
//!
//! Never here: workloads, SQL beyond what a server needs to be set up and asked for its settings, measuring.

pub mod build;
pub mod builds;
mod copy;
pub mod cpus;
pub mod engines;
mod error;
pub mod filesystem;
mod home;
mod limits;
pub mod lock;
pub mod preload;
mod process;
mod profile;
mod progress;
mod record;
pub mod replication;
mod sandbox;
pub mod scheduler;
mod server;
mod settings;
pub mod snapshot;
mod spec;
pub mod storage;
pub mod testing;
mod tls;

pub use build::{Build, Flavor, Origin, Selector};
pub use cpus::{Assignment, CpuRequest, Cpus};
pub use error::Error;
pub use filesystem::{Filesystem, FilesystemWish, MadeFilesystem};
pub use home::Home;
pub use limits::Limits;
pub use profile::{Durability, Logging, Profile};
pub use progress::{OnProgress, Progress};
pub use record::is_root;
pub use sandbox::{Sandbox, State, Status, StopReport, check_env, leftovers};
pub use settings::{Isolation, Settings};
pub use spec::{Life, Listen, Spec};
pub use storage::{Storage, StorageFacts};
