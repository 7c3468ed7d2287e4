//! What can go wrong, in words for the user.

/// An option that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// There is no such key.
    #[error("{workload} has no option \"{name}\"; it has: {known}")]
    Unknown {
        workload: String,
        /// The key as given.
        name: String,
        /// All keys, joined by commas.
        known: String,
    },
    /// The value is not allowed.
    #[error("option {name} = \"{value}\": {allowed}")]
    Invalid {
        /// The key.
        name: String,
        /// The value as given.
        value: String,
        /// What is allowed, as a sentence part ("wants a whole number from 1 to 10").
        allowed: String,
    },
}

/// A failure of control work: loading, counting, checking.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A connection could not be opened.
    #[error("cannot connect to {at} to {doing}: {source}")]
    Connect {
        /// The server.
        at: String,
        /// What for.
        doing: String,
        /// Why not.
        source: wire::Error,
    },
    /// A statement failed.
    #[error("{doing}: {source}\n  statement: {sql}")]
    Statement {
        /// What was being done.
        doing: String,
        /// The statement, shortened.
        sql: String,
        /// Why.
        source: wire::Error,
    },
    /// An answer was not what the statement returns.
    #[error("{doing}: the server returned {found}, wanted {wanted}")]
    Answer {
        /// What was being done.
        doing: String,
        /// What came.
        found: String,
        wanted: String,
    },
    /// The options ask for what this server cannot do.
    #[error("{0}")]
    Unsupported(String),
    /// The user stopped it.
    #[error("stopped: the tables are not complete")]
    Stopped,
}
