//! One API over both protocols.

use std::time::Duration;

use crate::cancel::Abandoned;
use crate::error::Error;
use crate::target::{Protocol, Target};
use crate::tls::login_error;
use crate::transport::Transport;
use crate::value::{Done, ParamType, ResultSet, Row, RowSource, ServerInfo, Value};
use crate::{mysql, postgres};

/// A session with a server. Any error with [`Error::is_fatal`] leaves it unusable: drop it and open anew.
#[derive(Debug)]
pub enum Connection<T: Transport> {
    /// MySQL, MariaDB, Percona Server.
    Mysql(mysql::Connection<T>),
    /// PostgreSQL.
    Postgres(postgres::Connection<T>),
}

/// A server-side prepared statement. It belongs to the connection that prepared it.
#[derive(Debug)]
pub enum Statement {
    /// MySQL, MariaDB, Percona Server.
    Mysql(mysql::Statement),
    /// PostgreSQL.
    Postgres(postgres::Statement),
}

/// A statement that was sent and whose answer is still to be read: [`Connection::finish`] must follow.
#[derive(Debug)]
#[must_use = "the answer has to be read"]
pub struct Started(());

/// What both protocols have under one name.
macro_rules! either {
    ($connection:expr, $it:ident => $call:expr) => {
        match $connection {
            Connection::Mysql($it) => $call,
            Connection::Postgres($it) => $call,
        }
    };
}

#[cold]
fn foreign_statement<R>() -> Result<R, Error> {
    Err(Error::Unsupported("the statement was prepared on a connection of the other protocol".into()))
}

impl<T: Transport> Connection<T> {
    /// Agrees on TLS and logs in on a connected `transport`, within the target's connect timeout.
    pub async fn open(transport: T, target: &Target) -> Result<Self, Error> {
        let opened = match target.protocol {
            Protocol::Mysql => mysql::Connection::open(transport, target).await.map(Connection::Mysql),
            Protocol::Postgres => {
                postgres::Connection::open(transport, target).await.map(Connection::Postgres)
            }
        };
        opened.map_err(|error| login_error(error, target))
    }

    /// What the server said about itself.
    pub fn server(&self) -> &ServerInfo {
        either!(self, c => c.server())
    }

    /// Runs `sql` by the text protocol; rows are skipped unread. Of several statements all results are consumed
    /// and their rows and affected rows summed. The first error ends it.
    pub async fn query(&mut self, sql: &str) -> Result<Done, Error> {
        let started = self.start_query(sql)?;
        self.finish(None, started).await
    }

    /// The first half of [`Connection::query`]: sends the statement, as far as that goes without waiting.
    #[inline]
    pub fn start_query(&mut self, sql: &str) -> Result<Started, Error> {
        either!(self, c => c.start_query(sql)).map(Started)
    }

    /// [`Connection::query`] that shows each row to `on_row`.
    pub async fn query_rows(&mut self, sql: &str, on_row: &mut dyn FnMut(&Row<'_>)) -> Result<Done, Error> {
        either!(self, c => c.query_rows(sql, on_row).await)
    }

    /// Runs `sql` by the text protocol and keeps everything: one entry for each statement.
    pub async fn query_sets(&mut self, sql: &str) -> Result<Vec<ResultSet>, Error> {
        either!(self, c => c.query_sets(sql).await)
    }

    /// Prepares `sql`, whose placeholders are `?` on MySQL and `$1` on PostgreSQL, with one type each.
    pub async fn prepare(&mut self, sql: &str, params: &[ParamType]) -> Result<Statement, Error> {
        match self {
            Connection::Mysql(c) => c.prepare(sql, params).await.map(Statement::Mysql),
            Connection::Postgres(c) => c.prepare(sql, params).await.map(Statement::Postgres),
        }
    }

    /// Executes a prepared statement; rows are skipped by length. Does not allocate.
    pub async fn execute(&mut self, statement: &mut Statement, values: &[Value<'_>]) -> Result<Done, Error> {
        let started = self.start(statement, values)?;
        self.finish(Some(statement), started).await
    }

    /// The first half of [`Connection::execute`]: encodes the request and sends it, as far as that goes without
    /// waiting. The values need not live as long as the answer takes. [`Connection::finish`] must follow.
    #[inline(always)]
    pub fn start(&mut self, statement: &Statement, values: &[Value<'_>]) -> Result<Started, Error> {
        match (self, statement) {
            (Connection::Mysql(c), Statement::Mysql(s)) => c.start(s, values),
            (Connection::Postgres(c), Statement::Postgres(s)) => c.start(s, values),
            _ => foreign_statement(),
        }
        .map(Started)
    }

    /// The second half: reads the answer. `statement`: the prepared statement that was started.
    #[inline]
    pub async fn finish(
        &mut self,
        statement: Option<&mut Statement>,
        Started(()): Started,
    ) -> Result<Done, Error> {
        match self {
            Connection::Mysql(c) => {
                let statement = match statement {
                    Some(Statement::Mysql(statement)) => Some(statement),
                    _ => None,
                };
                c.finish(statement).await
            }
            Connection::Postgres(c) => c.finish().await,
        }
    }

    /// [`Connection::execute`] that shows each row to `on_row`, with all values as text.
    pub async fn execute_rows(
        &mut self,
        statement: &mut Statement,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, Error> {
        match (self, statement) {
            (Connection::Mysql(c), Statement::Mysql(s)) => c.execute_rows(s, values, on_row).await,
            (Connection::Postgres(c), Statement::Postgres(s)) => c.execute_rows(s, values, on_row).await,
            _ => foreign_statement(),
        }
    }

    /// Frees the statement on the server.
    pub async fn close_statement(&mut self, statement: Statement) -> Result<(), Error> {
        match (self, statement) {
            (Connection::Mysql(c), Statement::Mysql(s)) => c.close_statement(s).await,
            (Connection::Postgres(c), Statement::Postgres(s)) => c.close_statement(s).await,
            _ => foreign_statement(),
        }
    }

    /// Runs a `LOAD DATA LOCAL INFILE` (MySQL; the file's name is ignored) or `COPY ... FROM STDIN` (PostgreSQL)
    /// with what `source` appends; `false` from it means that this chunk is the last. Each chunk has the
    /// statement timeout to itself. Where the server refuses local files: [`Error::Server`].
    pub async fn load_rows(&mut self, sql: &str, source: RowSource<'_>) -> Result<Done, Error> {
        either!(self, c => c.load_rows(sql, source).await)
    }

    /// Whether [`Connection::execute_bulk`] works: on MariaDB from 10.2.7 on.
    pub fn has_bulk(&self) -> bool {
        match self {
            Connection::Mysql(c) => c.has_bulk(),
            Connection::Postgres(_) => false,
        }
    }

    /// Executes a prepared statement, usually an INSERT, once for each of many rows, whose values `source` pushes
    /// row by row, all as text; `false` from it means that these rows are the last. The rows travel in packets
    /// of some hundred KiB, each of which has the statement timeout to itself and is a statement to the server:
    /// put a transaction around it. After an error rows of one more packet may have been inserted.
    pub async fn execute_bulk(
        &mut self,
        statement: &Statement,
        source: mysql::BulkSource<'_>,
    ) -> Result<Done, Error> {
        match (self, statement) {
            (Connection::Mysql(c), Statement::Mysql(s)) => c.execute_bulk(s, source).await,
            _ => Err(Error::Unsupported("PostgreSQL has no bulk execution: use COPY".into())),
        }
    }

    /// Asks the server for a sign of life.
    pub async fn ping(&mut self) -> Result<(), Error> {
        either!(self, c => c.ping().await)
    }

    /// Says good-bye. Errors do not matter any more.
    pub async fn close(mut self) {
        self.say_good_bye().await;
    }

    pub(crate) async fn say_good_bye(&mut self) {
        either!(self, c => c.say_good_bye().await)
    }

    /// After [`Error::Timeout`]: what tells the server to stop working on the statement that nobody waits for.
    pub fn abandoned(&self) -> Option<Abandoned> {
        either!(self, c => c.abandoned())
    }

    /// Limit for each statement from now on.
    pub fn set_statement_timeout(&mut self, limit: Duration) {
        either!(self, c => c.set_statement_timeout(limit))
    }
}
