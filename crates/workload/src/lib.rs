//! What a session does: the built-in workloads, generated data and its bulk load, consistency checks, and the one
//! [`dialect`] module that holds all differences between servers.
//!
//! Never here: sockets, timing, pacing, the life of a server.

mod builtin;
mod control;
mod dialect;
mod engine;
mod error;
pub mod loader;
mod options;
mod outcome;
pub mod pgbench;
pub mod random;
pub mod scripted;
pub mod sqlfile;

use std::collections::BTreeMap;

pub use builtin::{all, oltp_members};
pub use control::{create_database, settle, without_redo_log};
pub use dialect::{Dialect, Flavor, Version, class_of_code};
pub use engine::ids;
pub use engine::link::cancel;
pub use engine::tally::{Change, Tally, Totals};
pub use error::{Error, OptionError};
pub use options::{OptionKind, OptionSpec};
pub use outcome::{
    Baseline, Check, Figure, LoadAt, LoadMethod, LoadPart, LoadReport, Needs, Progress, Ran, StatementDoc,
};

/// Options as the user gave them: values by name.
pub type Given = BTreeMap<String, String>;

/// The built-in workload of that name (`-` and `_` are the same).
pub fn find(name: &str) -> Option<&'static dyn Workload> {
    let name = name.replace('-', "_");
    all().iter().copied().find(|workload| workload.name() == name)
}

/// Something that sessions can run: a name, options and, once configured for a server, data and transactions.
pub trait Workload: Sync {
    /// Name on the command line and in studies (`oltp_read_write`).
    fn name(&self) -> &str;
    /// One line for lists.
    fn summary(&self) -> &str;
    /// Some paragraphs: schema, transaction, where it comes from, what is our own reconstruction.
    fn description(&self) -> &str;
    /// All `-o key=value` options with their defaults.
    fn options(&self) -> &[OptionSpec];
    /// Names of its classes of transactions that have response times of their own, each a class of
    /// [`Configured::statement_classes`]; none where all transactions are alike.
    fn transaction_classes(&self) -> Vec<String> {
        Vec::new()
    }
    /// Fixes the options for one kind of server.
    ///
    /// # Errors
    /// An unknown key or a value that the key does not allow; the error names what is allowed.
    fn configure(&self, given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError>;
}

/// A workload with its options fixed for one kind of server.
pub trait Configured: Send + Sync {
    /// Every option with the value in force, defaults included.
    fn options(&self) -> BTreeMap<String, String>;
    /// Names of the statement classes, in the order of the indices given to the recorder.
    fn statement_classes(&self) -> Vec<String>;
    /// Each statement as it is sent, for people.
    fn statements(&self) -> Vec<StatementDoc>;
    /// Everything that decides the loaded bytes: workload family, options of the data (its seed is one of them),
    /// version of the generator. Workloads that share tables (the `oltp_*` family) share keys.
    fn dataset_key(&self) -> String;
    /// Estimate of the size on disk, with indexes, for the disk check before a load.
    fn data_bytes(&self) -> u64;
    /// What so many sessions will ask of the server.
    fn needs(&self, sessions: u32) -> Needs;
    /// Creates the tables in the target's database (which must exist, see [`create_database`]), replacing those
    /// of the same names, and fills them.
    ///
    /// # Errors
    /// The server refused something that no fallback covers, or the connection was lost.
    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error>;
    /// The tables that tell whether a load was made, with as many rows as it makes; none where nothing tells.
    ///
    /// # Errors
    /// An expression for their number cannot be computed.
    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error>;
    /// Whether the tables are there with as many rows as a load makes (they may have been run on since).
    ///
    /// # Errors
    /// No connection. A missing table or database is `Ok(false)`.
    fn is_loaded(&self, target: &wire::Target) -> Result<bool, Error> {
        loader::is_loaded(target, self.rows_by_table()?)
    }
    /// Takes the figures that [`Configured::check`] compares with. Call it after the load and before the run. `counted`
    /// are the rows of tables that were counted just before: those are not counted again.
    ///
    /// # Errors
    /// No connection or no tables.
    fn baseline(&self, target: &wire::Target, counted: &BTreeMap<String, u64>) -> Result<Baseline, Error>;
    /// Whether the tables are what the outcomes imply. Call it when all sessions of the run have been dropped,
    /// on the same `Configured` that made them: it has counted what they changed.
    ///
    /// # Errors
    /// No connection or no tables. A check that does not hold is not an error but a [`Check`] with `passed` off.
    fn check(&self, target: &wire::Target, before: &Baseline, ran: &Ran) -> Result<Vec<Check>, Error>;
    /// The sessions of a run. Session `i` draws the same stream of transactions for the same seed.
    fn sessions(&self, target: &wire::Target, seed: u64) -> Box<dyn load::SessionFactory>;
    /// What its sessions changed, where [`Configured::check`] looks at that: sessions of other processes add theirs.
    fn tally(&self) -> Option<&Tally> {
        None
    }
    /// Why so many sessions cannot live in several processes, and what to do about it; `None`: they can.
    fn one_process_only(&self, _sessions: u32) -> Option<String> {
        None
    }
    /// Figures of the workload's own, from one step (TPC-C: new orders per minute, response-time limits).
    fn figures(&self, _step: &load::StepResult) -> Vec<Figure> {
        Vec::new()
    }
}
