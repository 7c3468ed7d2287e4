//! Control work on a server: a blocking connection whose errors say what was being done.

use std::time::Duration;

use wire::blocking::Client;
use wire::{Done, Protocol, ResultSet, Target};

use crate::{Dialect, Error, Flavor};

/// Statements that write or read whole tables may take long: an index over a large table is one statement.
pub(crate) const STATEMENT_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// A connection for set-up, counting and checks.
#[derive(Debug)]
pub(crate) struct Control {
    client: Client,
    dialect: Dialect,
}

fn shortened(sql: &str) -> String {
    const LENGTH_MAX: usize = 300;
    match sql.char_indices().nth(LENGTH_MAX) {
        Some((at, _)) => format!("{} ...", &sql[..at]),
        None => sql.to_owned(),
    }
}

impl Control {
    /// Connects. `doing` completes "cannot connect to ... to ...".
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub(crate) fn connect(target: &Target, doing: &str) -> Result<Control, Error> {
        Self::of(Client::connect(target), target, doing)
    }

    /// The same; once `stop` is requested whatever it waits for fails, and the server is told to stop it.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub(crate) fn connect_until(target: &Target, doing: &str, stop: &load::Stop) -> Result<Control, Error> {
        Self::of(Client::connect_until(target, stop.flag()), target, doing)
    }

    fn of(client: Result<Client, wire::Error>, target: &Target, doing: &str) -> Result<Control, Error> {
        let client = client.map_err(|source| Error::Connect {
            at: target.endpoint.to_string(),
            doing: doing.to_owned(),
            source,
        })?;
        let dialect = Dialect::of_server(target.protocol, &client.server().version);
        Ok(Control { client, dialect })
    }

    /// The dialect of the server, as its version text tells it.
    pub(crate) fn dialect(&self) -> &Dialect {
        &self.dialect
    }

    /// The connection itself, for what has no wrapper here.
    pub(crate) fn client(&mut self) -> &mut Client {
        &mut self.client
    }

    /// Runs one statement.
    ///
    /// # Errors
    /// [`Error::Statement`].
    pub(crate) fn run(&mut self, doing: &str, sql: &str) -> Result<Done, Error> {
        self.client.query(sql).map_err(|source| statement_error(doing, sql, source))
    }

    /// The rows of one query.
    ///
    /// # Errors
    /// [`Error::Statement`].
    pub(crate) fn rows(&mut self, doing: &str, sql: &str) -> Result<ResultSet, Error> {
        let sets = self.client.query_sets(sql).map_err(|source| statement_error(doing, sql, source))?;
        Ok(sets.into_iter().next().unwrap_or_default())
    }

    /// The one whole number that a query returns; NULL is 0.
    ///
    /// # Errors
    /// [`Error::Statement`], or [`Error::Answer`] where it is no whole number.
    pub(crate) fn number(&mut self, doing: &str, sql: &str) -> Result<i128, Error> {
        let value = self.client.query_value(sql).map_err(|source| statement_error(doing, sql, source))?;
        let Some(text) = value else { return Ok(0) };
        text.parse().map_err(|_| Error::Answer {
            doing: doing.to_owned(),
            found: format!("\"{text}\""),
            wanted: "a whole number".to_owned(),
        })
    }

    /// Whether a table can be read, and if so how many rows it has.
    ///
    /// # Errors
    /// [`Error::Statement`] for anything but a missing table.
    pub(crate) fn rows_of(&mut self, table: &str) -> Result<Option<u64>, Error> {
        // PostgreSQL logs each statement about a table that is not there.
        if self.dialect.flavor == Flavor::Postgres {
            let sql = format!("SELECT to_regclass({})", literal(table));
            let found = self.client.query_value(&sql);
            if found.map_err(|source| statement_error("looking for a table", &sql, source))?.is_none() {
                return Ok(None);
            }
        }
        let sql = format!("SELECT COUNT(*) FROM {table}");
        match self.number("counting rows", &sql) {
            Ok(rows) => Ok(Some(rows as u64)),
            Err(Error::Statement { source, .. }) if self.dialect.is_missing_table(&source) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Does `work`, the loading of tables, with the server's redo log off where it can be switched (MySQL from 8.0.21 on;
/// elsewhere it just does the work). Only for a server whose tables may all be lost: one that crashes meanwhile does
/// not start again. When this returns the redo log is on, and every page that was changed without it is on disk.
///
/// # Errors
/// Those of `work`; no connection, or no right to switch (INNODB_REDO_LOG_ENABLE).
pub fn without_redo_log<T>(target: &Target, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let connect = || Control::connect(target, "switch the redo log");
    let mut control = connect()?;
    let Some([off, on]) = control.dialect().redo_log_switch() else { return work() };
    control.run("switching the redo log off", off)?;
    drop(control);
    let done = work();
    // Also after a failure, whose error is the one to tell. The work may take longer than a connection may be idle.
    let switched = connect().and_then(|mut control| {
        control.client().set_statement_timeout(STATEMENT_LIMIT);
        control.run("switching the redo log on", on)
    });
    done.and_then(|done| switched.map(|_| done))
}

/// Pays what a bulk load leaves owing, so that runs on a snapshot of it do not: has InnoDB's next stop be a slow one,
/// which purges all history and merges the change buffer; checkpoints PostgreSQL. Only for a server of one's own.
///
/// # Errors
/// No connection, or no right to.
pub fn settle(target: &Target) -> Result<(), Error> {
    let mut control = Control::connect(target, "settle the loaded tables")?;
    control.client().set_statement_timeout(STATEMENT_LIMIT);
    let sql = match target.protocol {
        Protocol::Mysql => "SET GLOBAL innodb_fast_shutdown = 0",
        Protocol::Postgres => "CHECKPOINT",
    };
    match control.run("settling the loaded tables", sql) {
        // A server without InnoDB has nothing to purge (ER_UNKNOWN_SYSTEM_VARIABLE).
        Err(Error::Statement { source: wire::Error::Server(refusal), .. }) if refusal.number == 1193 => {
            Ok(())
        }
        other => other.map(drop),
    }
}

/// A text as a literal of standard SQL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(crate) fn statement_error(doing: &str, sql: &str, source: wire::Error) -> Error {
    Error::Statement { doing: doing.to_owned(), sql: shortened(sql), source }
}

/// Creates the database that `target` names where it is missing, through the administrative database of the
/// server (`postgres`; none on MySQL). A target without a database is left alone.
///
/// # Errors
/// No connection, or no right to create it.
pub fn create_database(target: &Target) -> Result<(), Error> {
    let Some(name) = target.database.clone() else { return Ok(()) };
    let administrative = match target.protocol {
        Protocol::Mysql => None,
        Protocol::Postgres => Some("postgres".to_owned()),
    };
    let connect = || {
        let target = Target { database: administrative.clone(), ..target.clone() };
        Control::connect(&target, &format!("create the database {name}"))
    };
    let is_there = match target.protocol {
        // It is asked, and not tried: PostgreSQL logs each log-in to a database that is not there. Who may not look is left
        // with trying.
        Protocol::Postgres => connect().and_then(|mut control| {
            let sql = format!("SELECT count(*) FROM pg_database WHERE datname = {}", literal(&name));
            Ok(control.number("looking for the database", &sql)? > 0)
        }),
        Protocol::Mysql => Ok(false),
    };
    // Where it is there already no further rights are needed.
    let is_there = match (is_there, target.protocol) {
        (Ok(is_there), Protocol::Postgres) => is_there,
        _ => Client::connect(target).is_ok(),
    };
    if is_there {
        return Ok(());
    }
    let mut control = connect()?;
    let quoted = control.dialect().quote(&name);
    let doing = format!("creating the database {name}");
    if control.dialect().flavor == Flavor::Postgres {
        match control.run(&doing, &format!("CREATE DATABASE {quoted}")) {
            // Somebody else was faster.
            Err(Error::Statement { source: wire::Error::Server(error), .. }) if error.state() == "42P04" => {}
            other => drop(other?),
        }
    } else {
        control.run(&doing, &format!("CREATE DATABASE IF NOT EXISTS {quoted}"))?;
    }
    Ok(())
}
