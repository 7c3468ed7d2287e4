//! What can go wrong between a client and a server.

use std::io;

/// An error that the server sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerError {
    /// MySQL's error number (1213); 0 on PostgreSQL, which has only SQLSTATEs.
    pub number: u16,
    /// Five characters, as the SQL standard has them; `HY000` where MySQL sends none.
    pub sqlstate: [u8; 5],
    /// The server's own words.
    pub text: String,
}

impl ServerError {
    /// What the field calls this error by: `1213` on MySQL, `40P01` on PostgreSQL.
    pub fn code(&self) -> String {
        if self.number != 0 { self.number.to_string() } else { self.state().to_owned() }
    }

    /// The SQLSTATE as text.
    pub fn state(&self) -> &str {
        std::str::from_utf8(&self.sqlstate).unwrap_or("HY000")
    }
}

/// A SQLSTATE as the standard allows it: digits and capital letters. Anything else is `HY000`.
pub(crate) fn sqlstate(sent: [u8; 5]) -> [u8; 5] {
    let is_one = sent.iter().all(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
    if is_one { sent } else { *b"HY000" }
}

/// Any failure of a connection.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server refused a statement or the log-in; the connection may still be usable.
    #[error("server error {} ({}): {}", .0.code(), .0.state(), .0.text)]
    Server(ServerError),
    /// The socket failed or the server closed it; the connection is gone.
    #[error("connection lost: {0}")]
    Io(#[from] io::Error),
    /// A connect or a statement took longer than allowed; the connection must be dropped.
    #[error("no answer from the server within {waited_ms} ms")]
    Timeout {
        /// How long the deadline allowed.
        waited_ms: u64,
    },
    /// The other side sent what the protocol does not allow.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// Log-in cannot be done (an unknown method, a method that this transport makes unsafe).
    #[error("authentication: {0}")]
    Auth(String),
    /// TLS could not be agreed on.
    #[error("TLS: {0}")]
    Tls(String),
    /// The caller asked for what this server or protocol cannot do.
    #[error("unsupported: {0}")]
    Unsupported(String),
}

impl Error {
    /// A prepared statement was executed with too few or too many values.
    #[cold]
    pub(crate) fn miscounted(params: usize, values: usize) -> Error {
        Error::Unsupported(format!("the statement takes {params} values and was given {values}"))
    }

    /// Whether the connection cannot be used any more.
    pub fn is_fatal(&self) -> bool {
        !matches!(self, Error::Server(_) | Error::Unsupported(_))
    }
}
