//! What can go wrong with a report.

use std::path::PathBuf;

/// Why a report could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A results file could not be read.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The files hold no such study.
    #[error("no study {wanted}: there {}", there(known))]
    NoStudy {
        /// What was asked for.
        wanted: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A bundle that is none, or was changed.
    #[error("{name}: {source}")]
    Bundle {
        /// The file.
        name: String,
        /// What is wrong with it; said above.
        source: Box<store::bundle::BundleError>,
    },
    /// A file of the report could not be written.
    #[error("{} could not be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: std::io::Error,
    },
    /// An export that cannot hold what was asked for.
    #[error("{0}")]
    Table(String),
    /// The page's template and its data do not fit: a mistake in this crate.
    #[error("the report's page could not be filled in")]
    Template(#[from] minijinja::Error),
}

fn there(known: &[String]) -> String {
    match known {
        [] => "is none recorded yet".to_owned(),
        [one] => format!("is only {one}"),
        several => format!("are {}", several.join(", ")),
    }
}
