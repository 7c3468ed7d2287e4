//! What can go wrong with a results file, in words for whoever has to mend it.

use std::path::PathBuf;

/// Why a results file could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is none.
    #[error("{} does not exist: name a results file or a directory that holds {}", path.display(), crate::FILE_NAME)]
    Missing { path: PathBuf },
    /// The directory could not be made.
    #[error("{} could not be created: choose another place with --results", path.display())]
    Create {
        path: PathBuf,
        /// The system's words.
        #[source]
        source: std::io::Error,
    },
    /// SQLite's, but not ours, or not SQLite's at all.
    #[error("{} is not a results file of plimsoll: {reason}", path.display())]
    Foreign { path: PathBuf, reason: String },
    /// Written by a newer plimsoll.
    #[error(
        "{} has schema {found}, this plimsoll knows up to {known}: read it with the plimsoll that wrote it or a newer one; nothing was changed",
        path.display()
    )]
    Newer {
        path: PathBuf,
        /// Schema of the file.
        found: i64,
        /// Newest schema known here.
        known: i64,
    },
    /// No space left.
    #[error(
        "no space left in {} for {what}: everything recorded before is safe; free some space and run the same command again",
        path.display()
    )]
    Full {
        path: PathBuf,
        /// What was being written: "a run".
        what: &'static str,
    },
    /// Another process holds the file.
    #[error("{} is in use by another process: wait for it to end, or choose another --results", path.display())]
    Busy { path: PathBuf },
    /// Another program changed the file while it was open.
    #[error(
        "{} was changed under this plimsoll ({how}): nothing more is written to it, what it held is as it was; run the same command again with the plimsoll that its schema needs, or choose another --results",
        path.display()
    )]
    Changed { path: PathBuf, how: String },
    /// A run that has ended is never written again.
    #[error("run {run} is already recorded as {status}: a recorded run is never overwritten")]
    Recorded { run: i64, status: String },
    /// No such row.
    #[error("{} has no {what} {id}", path.display())]
    Absent {
        path: PathBuf,
        /// `study`, `run`.
        what: &'static str,
        id: i64,
    },
    /// A value in the file cannot be understood.
    #[error("{} is damaged: {what} cannot be read: {reason}", path.display())]
    Damaged {
        path: PathBuf,
        /// What was being read: "a run".
        what: String,
        reason: String,
    },
    /// A file of recorded lives.
    #[error("{} is no file of recorded lives, or could not be read or written: {what}", path.display())]
    Lives {
        path: PathBuf,
        /// Which life, and the system's words.
        what: String,
    },
    /// It stands where nothing can be written.
    #[error("{} cannot be written ({reason}): choose another place with --results", path.display())]
    ReadOnly {
        path: PathBuf,
        /// SQLite's words.
        reason: String,
    },
    /// Anything else that SQLite says.
    #[error("{}: {what} could not be read or written: {cause}", path.display())]
    Sqlite {
        path: PathBuf,
        /// What was being read or written: "a run".
        what: &'static str,
        /// SQLite's words; not a `source`, whose own source says the same once more.
        cause: rusqlite::Error,
    },
}
