//! What can go wrong, for whoever asked.

/// Why something could not be had or done.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such thing here.
    #[error("there is no such {0} here")]
    NotFound(&'static str),
    /// A flavour without histories, and those that have some.
    #[error("there are no histories of {flavor:?} here: {}", there_are(.there))]
    NoHistory { flavor: String, there: Vec<String> },
    /// What was asked for cannot be.
    #[error("{0}")]
    Wrong(String),
    /// No token, or not one that may do this.
    #[error("{0}")]
    Forbidden(String),
    /// The bundle is not taken, with the reason.
    #[error("{0}")]
    Refused(String),
    /// Larger than what is taken.
    #[error("the bundle is larger than {0} bytes")]
    TooLarge(u64),
    /// More than is taken in a while.
    #[error("{0}")]
    TooMany(String),
    /// It is here already, by this or another seal.
    #[error("what it measured is here already: {0}")]
    Known(String),
    /// What was here and was taken away.
    #[error("{0}: ask whoever keeps this hub")]
    Hidden(&'static str),
    /// A worker's lease that is over.
    #[error("this lease is over: the work is somebody else's now, or was asked back")]
    LeaseOver,
    /// A hub that does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// The database does not answer, or says no.
    #[error("the hub's database: {0}")]
    Database(String),
    /// A file of the hub.
    #[error("{what}: {source}")]
    File { what: String, source: std::io::Error },
    /// Of the hub's own making.
    #[error("{0}")]
    Inside(String),
}

fn there_are(flavors: &[String]) -> String {
    if flavors.is_empty() { "of nothing yet".to_owned() } else { format!("of {}", flavors.join(", ")) }
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Error {
        Error::Database(error.to_string())
    }
}

impl From<postgres::Error> for Error {
    fn from(error: postgres::Error) -> Error {
        if let Some(said) = error.as_db_error() {
            return Error::Database(said.to_string());
        }
        if let Some(why) = wire::tls::in_words(&error) {
            return Error::Database(why.to_string());
        }
        let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
        let all: Vec<String> = causes.map(ToString::to_string).collect();
        Error::Database(all.join(": "))
    }
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Error {
        Error::Inside(format!("what is kept cannot be read ({error})"))
    }
}

impl From<minijinja::Error> for Error {
    fn from(error: minijinja::Error) -> Error {
        Error::Inside(format!("a page cannot be made ({error:#})"))
    }
}
