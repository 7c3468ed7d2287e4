//! What the servers' error codes mean for a transaction.

use load::{Failure, FailureClass};
use wire::ServerError;

use super::{Dialect, Flavor};

/// What follows from an error, beyond its class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The transaction failed; the session goes on.
    Transaction,
    /// The connection is of no use any more, or could not be had just now.
    Connection,
    /// Nothing that follows can work.
    Fatal,
}

use Effect::{Connection, Fatal, Transaction};
use FailureClass as Class;

/// MySQL and MariaDB error numbers (MySQL 8.0 Error Message Reference; MariaDB error code reference). What is not
/// here is `Other` and costs one transaction.
static MYSQL: &[(u16, FailureClass, Effect)] = &[
    (1020, Class::Serialization, Transaction), // record changed since last read (MariaDB snapshot isolation)
    (1021, Class::Other, Fatal),               // disk full
    (1022, Class::Constraint, Transaction),    // duplicate key
    (1040, Class::Connection, Connection),     // too many connections
    (1044, Class::Other, Fatal),               // no right to the database
    (1045, Class::Other, Fatal),               // wrong user or password
    (1047, Class::Connection, Transaction),    // Galera: not prepared for application use
    (1048, Class::Constraint, Transaction),    // NULL in a NOT NULL column
    (1049, Class::Other, Fatal),               // no such database
    (1053, Class::Connection, Connection),     // shutdown in progress
    (1054, Class::Other, Fatal),               // no such column
    (1062, Class::Constraint, Transaction),    // duplicate key
    (1064, Class::Other, Fatal),               // syntax
    (1114, Class::Other, Fatal),               // table full
    (1129, Class::Other, Fatal),               // host blocked
    (1130, Class::Other, Fatal),               // host not allowed
    (1142, Class::Other, Fatal),               // no right to the table
    (1146, Class::Other, Fatal),               // no such table
    (1153, Class::Other, Fatal),               // statement over max_allowed_packet
    (1158, Class::Connection, Connection),     // network read error
    (1159, Class::Connection, Connection),     // network read timeout
    (1160, Class::Connection, Connection),     // network write error
    (1161, Class::Connection, Connection),     // network write timeout
    (1169, Class::Constraint, Transaction),    // duplicate key on update
    (1203, Class::Connection, Connection),     // max_user_connections
    (1205, Class::LockTimeout, Transaction),
    (1213, Class::Deadlock, Transaction),
    (1216, Class::Constraint, Transaction), // foreign key, parent missing
    (1217, Class::Constraint, Transaction), // foreign key, child there
    (1290, Class::Other, Fatal),            // read-only server
    (1364, Class::Constraint, Transaction), // no default value
    (1451, Class::Constraint, Transaction), // foreign key, child there
    (1452, Class::Constraint, Transaction), // foreign key, parent missing
    (1461, Class::Other, Fatal),            // max_prepared_stmt_count
    (1586, Class::Constraint, Transaction), // duplicate key
    (1614, Class::Deadlock, Transaction),   // XA branch rolled back: deadlock
    (1792, Class::Other, Fatal),            // write in a read-only transaction
    (1927, Class::Connection, Connection),  // connection killed
    (3024, Class::LockTimeout, Transaction), // max_execution_time
    (3058, Class::Deadlock, Transaction),   // user-level lock deadlock
    (3101, Class::Serialization, Transaction), // group replication certification
    (3169, Class::Connection, Connection),  // session killed
    (3572, Class::LockTimeout, Transaction), // NOWAIT
    (3819, Class::Constraint, Transaction), // CHECK
    (4025, Class::Constraint, Transaction), // CHECK (MariaDB)
    (4031, Class::Connection, Connection),  // idle too long
];

/// SQLSTATEs of PostgreSQL (manual, appendix A). A two-character entry stands for its whole class; the first
/// entry that fits decides.
static POSTGRES: &[(&str, FailureClass, Effect)] = &[
    ("40P01", Class::Deadlock, Transaction),
    ("40001", Class::Serialization, Transaction),
    ("55P03", Class::LockTimeout, Transaction),
    ("25P04", Class::LockTimeout, Connection),  // transaction timeout
    ("57014", Class::LockTimeout, Transaction), // statement timeout
    ("23", Class::Constraint, Transaction),
    ("08", Class::Connection, Connection),
    ("57P", Class::Connection, Connection), // shutdown, crash, cannot connect now, database dropped, idle timeout
    ("53300", Class::Connection, Connection), // too many connections
    ("53100", Class::Other, Fatal),         // disk full
    ("28", Class::Other, Fatal),            // authentication
    ("3D", Class::Other, Fatal),            // no such database
    ("42", Class::Other, Fatal), // syntax, missing table or right, prepared statement there already
    ("26000", Class::Other, Fatal), // no such prepared statement
    ("25006", Class::Other, Fatal), // read-only server
];

/// PostgreSQL's errors for a prepared statement that another session has made, or that this one made over another of the
/// pooler's connections.
static SHARED_STATEMENTS: &[&str] = &["42P05", "26000"];
/// What helps then.
const SHARED_STATEMENTS_HINT: &str = "behind a pooler whose sessions share the server's (PgBouncer in transaction mode) \
     statements cannot be prepared: -o db_ps_mode=disable sends them as text";

/// MySQL errors that mean: this server does not take LOAD DATA LOCAL.
static NO_LOCAL_INFILE: &[u16] = &[
    1148, // the used command is not allowed with this MySQL version
    3948, // loading local data is disabled (8.0)
    4166, // the used command is not allowed because local_infile is off (MariaDB)
    2068, // the client library's own refusal, sent on by proxies
    1105, // unknown error: what servers that are not MySQL say (go-mysql-server: local_infile needs to be set to 1)
    1235, // not supported yet
];

/// Errors of MySQL's client library (MySQL 8.0 Client Error Message Reference), which scripts meet in place of a server's.
static CLIENT: &[(&str, FailureClass)] = &[
    ("2002", Class::Connection), // cannot connect through the socket
    ("2003", Class::Connection), // cannot connect to the host
    ("2006", Class::Connection), // server has gone away
    ("2011", Class::Connection), // TCP/IP connection lost
    ("2013", Class::Connection), // lost connection during query
    ("2055", Class::Connection), // lost connection, with the system's error
];

/// The class of an error by its code alone, as scripts know it: a number of MySQL's server or client, or an SQLSTATE.
pub fn class_of_code(code: &str) -> FailureClass {
    let by_number = code.parse::<u16>().ok().filter(|_| code.len() == 4);
    let of_client = CLIENT.iter().find(|(known, _)| *known == code).map(|(_, class)| *class);
    let of_server = || match by_number {
        Some(number) => MYSQL.iter().find(|(known, ..)| *known == number).map(|(_, class, _)| *class),
        None => POSTGRES.iter().find(|(prefix, ..)| code.starts_with(prefix)).map(|(_, class, _)| *class),
    };
    of_client.or_else(of_server).unwrap_or(FailureClass::Other)
}

fn class_of(flavor: Flavor, error: &ServerError) -> (FailureClass, Effect) {
    let found = if flavor == Flavor::Postgres {
        let state = error.state();
        POSTGRES
            .iter()
            .find(|(prefix, ..)| state.starts_with(prefix))
            .map(|&(_, class, effect)| (class, effect))
    } else {
        MYSQL.iter().find(|(number, ..)| *number == error.number).map(|&(_, class, effect)| (class, effect))
    };
    found.unwrap_or((FailureClass::Other, Effect::Transaction))
}

impl Dialect {
    /// What an error means for the transaction that met it. Deadlocks, serialization failures and lock timeouts
    /// may be retried; of constraint violations only those whose code stands in `retryable_too`, for a workload
    /// knows which of its own races cause them.
    pub fn failure(&self, error: &wire::Error, retryable_too: &[&str]) -> Failure {
        let lost = |code: &str| Failure {
            class: FailureClass::Connection,
            code: code.to_owned(),
            text: error.to_string(),
            retryable: false,
            connection_lost: true,
            fatal: false,
        };
        match error {
            wire::Error::Server(server) => {
                let (class, effect) = class_of(self.flavor, server);
                let code = server.code();
                let is_transient = matches!(
                    class,
                    FailureClass::Deadlock | FailureClass::Serialization | FailureClass::LockTimeout
                ) || retryable_too.contains(&code.as_str());
                let mut text = server.text.clone();
                if self.flavor == Flavor::Postgres && SHARED_STATEMENTS.contains(&server.state()) {
                    text = format!("{text} ({SHARED_STATEMENTS_HINT})");
                }
                Failure {
                    class,
                    code,
                    text,
                    retryable: is_transient && effect == Effect::Transaction,
                    connection_lost: effect == Effect::Connection,
                    fatal: effect == Effect::Fatal,
                }
            }
            wire::Error::Io(_) => lost("io"),
            wire::Error::Timeout { .. } => lost("timeout"),
            wire::Error::Protocol(_) => lost("protocol"),
            wire::Error::Auth(_) | wire::Error::Tls(_) | wire::Error::Unsupported(_) => Failure {
                class: FailureClass::Other,
                code: "client".to_owned(),
                text: error.to_string(),
                retryable: false,
                connection_lost: error.is_fatal(),
                fatal: true,
            },
        }
    }

    /// Whether the server refused LOAD DATA LOCAL as such (and would take multi-row INSERTs).
    pub fn refuses_local_infile(&self, error: &wire::Error) -> bool {
        matches!(error, wire::Error::Server(server)
            if self.flavor != Flavor::Postgres && NO_LOCAL_INFILE.contains(&server.number))
    }

    /// Whether a statement failed because its table (or the database) is not there.
    pub fn is_missing_table(&self, error: &wire::Error) -> bool {
        let wire::Error::Server(server) = error else { return false };
        if self.flavor == Flavor::Postgres {
            matches!(server.state(), "42P01" | "3D000" | "3F000")
        } else {
            matches!(server.number, 1146 | 1049 | 1932)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    fn dialect(flavor: Flavor) -> Dialect {
        Dialect { flavor, version: Version::default(), engine: None }
    }

    fn server_error(number: u16, state: &str) -> wire::Error {
        let mut sqlstate = *b"HY000";
        sqlstate.copy_from_slice(state.as_bytes());
        wire::Error::Server(ServerError { number, sqlstate, text: "words".to_owned() })
    }

    fn check(
        flavor: Flavor,
        number: u16,
        state: &str,
        class: FailureClass,
        retryable: bool,
        lost: bool,
        fatal: bool,
    ) {
        let failure = dialect(flavor).failure(&server_error(number, state), &[]);
        assert_eq!(
            (failure.class, failure.retryable, failure.connection_lost, failure.fatal),
            (class, retryable, lost, fatal),
            "{number} {state}"
        );
    }

    #[test]
    fn a_code_alone_tells_the_class() {
        for (code, class) in [
            ("1213", FailureClass::Deadlock),
            ("40P01", FailureClass::Deadlock),
            ("40001", FailureClass::Serialization),
            ("1205", FailureClass::LockTimeout),
            ("23505", FailureClass::Constraint),
            ("1062", FailureClass::Constraint),
            ("2013", FailureClass::Connection),
            ("57P01", FailureClass::Connection),
            ("1064", FailureClass::Other),
            ("", FailureClass::Other),
        ] {
            assert_eq!(class_of_code(code), class, "{code}");
        }
    }

    #[test]
    fn codes_fall_into_their_classes() {
        use FailureClass::*;
        check(Flavor::Mariadb, 1213, "40001", Deadlock, true, false, false);
        check(Flavor::Mysql, 1205, "HY000", LockTimeout, true, false, false);
        check(Flavor::Mysql, 1062, "23000", Constraint, false, false, false);
        check(Flavor::Mysql, 1053, "08S01", Connection, false, true, false);
        check(Flavor::Mysql, 1146, "42S02", Other, false, false, true);
        check(Flavor::Mysql, 1317, "70100", Other, false, false, false);
        check(Flavor::Postgres, 0, "40P01", Deadlock, true, false, false);
        check(Flavor::Postgres, 0, "40001", Serialization, true, false, false);
        check(Flavor::Postgres, 0, "23505", Constraint, false, false, false);
        check(Flavor::Postgres, 0, "57P01", Connection, false, true, false);
        check(Flavor::Postgres, 0, "42P01", Other, false, false, true);
        check(Flavor::Postgres, 0, "XX000", Other, false, false, false);
    }

    #[test]
    fn a_poolers_shared_statements_name_the_remedy() {
        for state in ["42P05", "26000"] {
            check(Flavor::Postgres, 0, state, FailureClass::Other, false, false, true);
            let failure = dialect(Flavor::Postgres).failure(&server_error(0, state), &[]);
            assert!(failure.text.contains("-o db_ps_mode=disable"), "{}", failure.text);
        }
        let other = dialect(Flavor::Postgres).failure(&server_error(0, "42601"), &[]);
        assert_eq!(other.text, "words");
    }

    #[test]
    fn a_workload_may_allow_more_retries() {
        let error = server_error(0, "23505");
        assert!(dialect(Flavor::Postgres).failure(&error, &["23505"]).retryable);
        assert!(!dialect(Flavor::Postgres).failure(&error, &["1062"]).retryable);
    }

    #[test]
    fn a_silent_or_closed_connection_is_lost() {
        let io = wire::Error::Io(std::io::ErrorKind::BrokenPipe.into());
        let failure = dialect(Flavor::Mysql).failure(&io, &[]);
        assert!(failure.connection_lost && failure.class == FailureClass::Connection && failure.code == "io");
        let silent = dialect(Flavor::Mysql).failure(&wire::Error::Timeout { waited_ms: 5 }, &[]);
        assert!(silent.connection_lost && silent.code == "timeout");
    }
}
