//! Why a study or a bench could not go on, sorted by what the caller has to tell the user.

use crate::study::StudyError;

/// What kind of end it is; the command line turns it into its exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The request itself was wrong: a study file, an option, a name.
    Usage,
    /// A server could not be had, started or reached.
    Server,
    /// A run, or the recording of it, failed.
    Run,
    /// The user stopped it; a study's command goes on from there.
    Interrupted,
}

/// An error of this room. Every message says what happened, where, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A study file that was refused; the problems point into it.
    #[error("{0}")]
    Study(Box<StudyError>),
    /// A server of a study that could not be had, shown where the study names it.
    #[error("{0}")]
    StudyServer(Box<StudyError>),
    /// Anything else that was asked for wrongly.
    #[error("{0}")]
    Usage(String),
    /// The study file, or the file of a workload, is not the one that the unfinished study was planned from.
    #[error(
        "{what} has changed since the unfinished study of {when} was planned from it: `--new` starts the study anew \
         (what is recorded stays), or bring the file back to finish the old one"
    )]
    Changed {
        what: String,
        /// When the old one was planned.
        when: String,
    },
    /// A server could not be had or started.
    #[error("{0}")]
    Server(String),
    /// A server could not be had or started, for a reason that the sandbox gives.
    #[error(transparent)]
    Sandbox(#[from] sandbox::Error),
    #[error("{0}")]
    Run(String),
    /// The results could not be written or read.
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error(transparent)]
    Options(#[from] workload::OptionError),
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    /// What kind of end it is.
    pub fn class(&self) -> Class {
        match self {
            Error::Study(_) | Error::Usage(_) | Error::Changed { .. } | Error::Options(_) => Class::Usage,
            Error::Sandbox(sandbox::Error::Interrupted) => Class::Interrupted,
            Error::Sandbox(error) if error.is_usage() => Class::Usage,
            Error::Sandbox(_) | Error::Server(_) | Error::StudyServer(_) => Class::Server,
            Error::Store(
                store::Error::Missing { .. }
                | store::Error::Create { .. }
                | store::Error::ReadOnly { .. }
                | store::Error::Foreign { .. }
                | store::Error::Newer { .. },
            ) => Class::Usage,
            Error::Store(_) | Error::Run(_) => Class::Run,
            Error::Interrupted => Class::Interrupted,
        }
    }
}
