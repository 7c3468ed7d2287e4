//! What is told when a server refuses something, in the words that parsers of sysbench's output know.

use wire::{Endpoint, Error, Protocol, Target};

use crate::host::Problem;
use crate::output::{level, tell};

/// What the server was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asked<'a> {
    /// A statement by the text protocol.
    Query(&'a str),
    /// To prepare a statement.
    Prepare,
    /// To execute the prepared statement with this text.
    Execute(&'a str),
}

/// Tells why a statement failed.
pub(crate) fn tell_failure(protocol: Protocol, asked: Asked<'_>, problem: &Problem) {
    let (number, text) = (problem.number, &problem.text);
    let fatal = |line: String| tell(level::FATAL, &line);
    match (protocol, asked) {
        (Protocol::Mysql, Asked::Query(sql)) => {
            fatal(format!("mysql_drv_query() returned error {number} ({text}) for query '{sql}'"));
        }
        (Protocol::Mysql, Asked::Execute(sql)) => {
            fatal(format!("mysql_stmt_execute() returned error {number} ({text}) for query '{sql}'"));
        }
        (Protocol::Mysql, Asked::Prepare) => {
            fatal("mysql_stmt_prepare() failed".into());
            fatal(format!("MySQL error: {number} \"{text}\""));
        }
        // 7 is libpq's number for any error of a statement.
        (Protocol::Postgres, Asked::Query(sql)) => {
            fatal(format!("PQexec() failed: 7 {text}"));
            fatal(format!("failed query was: {sql}"));
        }
        (Protocol::Postgres, Asked::Execute(_)) => fatal(format!("PQexecPrepared() failed: 7 {text}")),
        (Protocol::Postgres, Asked::Prepare) => fatal(format!("PQprepare() failed: ERROR:  {text}\n")),
    }
    // Another session's prepared statement, or one of this session over another of the pooler's connections.
    if protocol == Protocol::Postgres && ["42P05", "26000"].contains(&problem.state.as_str()) {
        fatal(
            "behind a pooler whose sessions share the server's (PgBouncer in transaction mode) statements cannot be \
             prepared: --db-ps-mode=disable sends them as text"
                .into(),
        );
    }
}

/// Tells why there is no connection.
pub(crate) fn tell_refusal(target: &Target, problem: &Problem) {
    match target.protocol {
        Protocol::Mysql => {
            let place = match &target.endpoint {
                Endpoint::Unix(path) => format!("socket '{}'", path.display()),
                Endpoint::Tcp { host, port } => format!("host '{host}', port {port}"),
            };
            tell(level::FATAL, &format!("unable to connect to MySQL server on {place}, aborting..."));
            tell(level::FATAL, &format!("error {}: {}", problem.number, problem.text));
        }
        Protocol::Postgres => {
            tell(level::FATAL, &format!("Connection to database failed: {}\n", problem.text));
        }
    }
}

/// A connection that could not be opened, as scripts see it.
pub(crate) fn refusal(target: &Target, error: &Error) -> Problem {
    let (number, state, text) = match (target.protocol, error) {
        (Protocol::Mysql, Error::Server(error)) => {
            (error.number, error.state().to_owned(), error.text.clone())
        }
        (Protocol::Mysql, error) => {
            let (number, text) = mysql_refusal(target, error);
            (number, "HY000".to_owned(), text)
        }
        (Protocol::Postgres, Error::Server(error)) => (
            0,
            error.state().to_owned(),
            format!("{} failed: FATAL:  {}", postgres_place(target), error.text),
        ),
        (Protocol::Postgres, error) => {
            let text = format!("{} failed: {}", postgres_place(target), bare(error));
            (0, "08001".to_owned(), text)
        }
    };
    Problem { number, state, text, is_ignorable: false, wants_reconnect: false }
}

/// Number and words of the client library.
fn mysql_refusal(target: &Target, error: &Error) -> (u16, String) {
    let code = match error {
        Error::Io(error) => error.raw_os_error(),
        _ => None,
    };
    match (&target.endpoint, code) {
        (Endpoint::Unix(path), Some(code)) => {
            (2002, format!("Can't connect to local server through socket '{}' ({code})", path.display()))
        }
        (Endpoint::Tcp { host, .. }, Some(code)) => {
            (2002, format!("Can't connect to server on '{host}' ({code})"))
        }
        (Endpoint::Tcp { host, .. }, None) if is_unknown_host(error) => {
            (2005, format!("Unknown server host '{host}' ({})", bare(error)))
        }
        _ => (2002, format!("Can't connect to server: {}", bare(error))),
    }
}

/// Names that cannot be resolved end in an error of the resolver, which is none of the system's.
fn is_unknown_host(error: &Error) -> bool {
    matches!(error, Error::Io(error) if error.to_string().contains("lookup"))
}

fn postgres_place(target: &Target) -> String {
    match &target.endpoint {
        Endpoint::Unix(path) => format!("connection to server on socket \"{}\"", path.display()),
        Endpoint::Tcp { host, port } => format!("connection to server at \"{host}\", port {port}"),
    }
}

/// An error without the number that the standard library adds.
fn bare(error: &Error) -> String {
    let text = match error {
        Error::Io(error) => error.to_string(),
        other => other.to_string(),
    };
    text.split(" (os error").next().unwrap_or_default().to_owned()
}
