//! What can go wrong, with what to do next.

use std::io;
use std::path::{Path, PathBuf};

/// An error of this room. Each message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Neither PLIMSOLL_HOME, XDG_DATA_HOME nor HOME is set.
    #[error("no place for builds and sandboxes: set PLIMSOLL_HOME to a directory")]
    NoHome,
    /// A file operation failed.
    #[error("could not {action} {}: {source}{}", .path.display(), remedy(.source))]
    Io { action: String, path: PathBuf, source: io::Error },
    /// A selector that cannot be read.
    #[error("\"{text}\" names no server: {why}")]
    Selector { text: String, why: String },
    /// Nothing installed, fetched or fetchable matches.
    #[error("there is no server {selector}: {detail}")]
    NoBuild {
        selector: String,
        /// What there is, and how to get one.
        detail: String,
    },
    /// A build could not be fetched.
    #[error("could not fetch {what}: {why}")]
    Fetch {
        /// Coordinate, URL or file.
        what: String,
        /// Why, and what to do.
        why: String,
    },
    /// An archive that is corrupt, hostile or not a server.
    #[error("{} cannot be used: {why}", .path.display())]
    Archive { path: PathBuf, why: String },
    /// A disk that is too small for a build.
    #[error(
        "{} has {free_mb} MB free, {build} takes {needed_mb} MB there: free some space, or set PLIMSOLL_HOME to a larger disk",
        .place.display()
    )]
    NoRoom { place: PathBuf, build: String, free_mb: u64, needed_mb: u64 },
    /// A checksum that differs from the one expected.
    #[error(
        "{what} has SHA-256 {found}, expected {expected}: it was removed; fetch it again, and if it differs again do not trust its source"
    )]
    Checksum {
        /// Coordinate, URL or file.
        what: String,
        /// From the catalogue.
        expected: String,
        /// Of the file.
        found: String,
    },
    /// Shared libraries that the build needs and the machine lacks.
    #[error("{build} needs {}", .missing.iter().map(|m| m.to_string()).collect::<Vec<_>>().join(", "))]
    Libraries { build: String, missing: Vec<crate::builds::MissingLibrary> },
    /// A setting that this build does not know, or whose value is impossible.
    #[error("{build} cannot take the setting {name}: {why}")]
    Setting {
        build: String,
        name: String,
        /// Whether its value is what is wrong, rather than its name.
        is_value: bool,
        /// Why, and the name it has now.
        why: String,
    },
    /// Something asked for that this build or machine cannot do.
    #[error("{what}: {why}")]
    Unsupported {
        what: String,
        /// Why not, and what to do instead.
        why: String,
    },
    /// A sandbox name that is not allowed.
    #[error(
        "\"{name}\" cannot name a sandbox: use up to 40 letters, digits, '.', '_' and '-', beginning with a letter or digit"
    )]
    Name { name: String },
    /// The name is taken.
    #[error(
        "a sandbox named {name} exists already ({state}): choose another --name, or `plimsoll sandbox destroy {name}`"
    )]
    Exists { name: String, state: String },
    #[error("no sandbox named {name}: `plimsoll sandbox list` shows those there are")]
    NoSandbox { name: String },
    /// Another plimsoll holds it.
    #[error("{what} is in use by another plimsoll{}: wait until it ends", .holder.as_ref().map(|h| format!(" ({h})")).unwrap_or_default())]
    Busy {
        /// The machine, the sandbox, the results directory.
        what: String,
        /// Who holds it, where known.
        holder: Option<crate::lock::Holder>,
    },
    /// Initialising the data directory failed.
    #[error("{build} could not initialise its data directory: {why}{}", unexplained(.log))]
    Init {
        build: String,
        /// Exit status or cause.
        why: String,
        /// Its last lines.
        log: String,
    },
    /// The server ended or stayed silent instead of answering.
    #[error("{build} did not start: {why}{}", unexplained(.log))]
    Start {
        build: String,
        /// Exit status, a port in use, a timeout.
        why: String,
        /// The last lines of its log.
        log: String,
    },
    #[error("the sandbox {name} is not running: `plimsoll sandbox start {name}`")]
    NotRunning { name: String },
    /// A statement that sets up or asks the server failed.
    #[error("{build}: {source}")]
    Wire { build: String, source: wire::Error },
    /// A limit could not be set, or does not hold.
    #[error("limit {what}: {why}")]
    Limit {
        what: String,
        /// Why, and what to do instead.
        why: String,
    },
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// An [`Error::Io`]; `action` completes "could not ...".
    pub fn io(action: &str, path: impl AsRef<Path>, source: io::Error) -> Error {
        Error::Io { action: action.to_owned(), path: path.as_ref().to_owned(), source }
    }

    /// Whether the request itself was wrong (exit code 2), rather than the server or the machine (exit code 3).
    pub fn is_usage(&self) -> bool {
        matches!(
            self,
            Error::Selector { .. }
                | Error::Setting { .. }
                | Error::Name { .. }
                | Error::Exists { .. }
                | Error::NoSandbox { .. }
                | Error::Unsupported { .. }
        )
    }
}

/// The log, where it does not say in one line why.
fn unexplained(log: &str) -> String {
    if log.is_empty() || crate::server::cause_in(log).is_some() { String::new() } else { format!("\n{log}") }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            " (free some space, or set PLIMSOLL_HOME to a larger disk; `plimsoll snapshots prune --all` frees snapshots)"
        }
        io::ErrorKind::PermissionDenied => " (check its owner and mode, or set PLIMSOLL_HOME elsewhere)",
        io::ErrorKind::ReadOnlyFilesystem => " (set PLIMSOLL_HOME to a writable disk)",
        _ => "",
    }
}
