//! What can go wrong with a .smack file and while it runs.

use std::path::PathBuf;

use crate::syntax::Place;

/// A mistake in a .smack file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParseError {
    /// Where.
    pub place: Place,
    /// What, and what was expected.
    pub message: String,
}

impl ParseError {
    pub(crate) fn at(place: Place, message: impl Into<String>) -> ParseError {
        ParseError { place, message: message.into() }
    }

    /// The error with the file's name, line, column and the line itself.
    pub(crate) fn in_file(self, file: &str, source: &str) -> Error {
        let line = source.lines().nth(self.place.line.saturating_sub(1) as usize).unwrap_or("");
        Error::Parse {
            file: file.to_owned(),
            line: self.place.line,
            column: self.place.column,
            message: self.message,
            shown: format!("{line}\n{}^", " ".repeat(self.place.column.saturating_sub(1) as usize)),
        }
    }
}

/// Any failure of a smack.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be understood.
    #[error("{file}:{line}:{column}: {message}\n{shown}")]
    Parse {
        /// File as named by the caller.
        file: String,
        /// Line, from 1.
        line: u32,
        /// Column, from 1.
        column: u32,
        /// What is wrong.
        message: String,
        /// The line and a mark under the column.
        shown: String,
    },
    /// A file that the smack needs.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A shell command stands in the file and was not allowed.
    #[error(
        "table {table}: its rows come from the shell command `{command}`, which is not run unless you allow it: \
         read it, then add --allow-shell"
    )]
    ShellNotAllowed { table: String, command: String },
    /// The allowed shell command failed.
    #[error("the command `{command}` of table {table} failed: {reason}")]
    Shell {
        table: String,
        command: String,
        /// Exit status or message.
        reason: String,
    },
    /// Its rows would fill the server's disk.
    #[error("client {client}: table {table} is not loaded: {why}")]
    NoRoom {
        /// Which client of the file.
        client: String,
        table: String,
        /// Why, with a remedy.
        why: String,
    },
    /// The user had enough.
    #[error("stopped while table {table} was loaded: it has a part of its rows")]
    Stopped { table: String },
    /// A server refused, or could not be reached.
    #[error("client {client}: {source}")]
    Server {
        /// Which client of the file.
        client: String,
        /// Why.
        source: wire::Error,
    },
    /// The file takes more from the command line than it was given.
    #[error("the file uses ${number}, and the command line has {given} arguments behind the file's name")]
    Argument {
        /// Which.
        number: usize,
        /// How many there are.
        given: usize,
    },
    /// The database of the command line's server cannot be had.
    #[error(transparent)]
    Database(#[from] workload::Error),
    /// A statement of `main` cannot be carried out.
    #[error("{}{message}", line.map(|line| format!("line {line}: ")).unwrap_or_default())]
    Main {
        /// Line in the file, where it is about one.
        line: Option<u32>,
        /// What is wrong.
        message: String,
    },
    /// The load engine failed.
    #[error(transparent)]
    Load(#[from] load::LoadError),
    /// A dictionary cannot be made.
    #[error("dictionary {name}: {message}")]
    Dictionary {
        /// Which.
        name: String,
        /// What is wrong.
        message: String,
    },
    /// Output could not be written.
    #[error("output: {0}")]
    Output(#[from] std::io::Error),
    /// Queries failed.
    #[error("client {client}: {count} queries failed; the first: {text}")]
    Queries {
        client: String,
        /// How many.
        count: u64,
        /// The server's words.
        text: String,
    },
}
