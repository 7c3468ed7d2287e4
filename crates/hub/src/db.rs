//! One way of asking both databases. Statements are written once, with `?1`; PostgreSQL reads `$1`.
//!
//! Everything here waits for the database: call it from threads that may.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use postgres::config::SslMode;
use postgres::types::{IsNull, ToSql, Type, to_sql_checked};
use rusqlite::types::ValueRef;
use tokio_postgres_rustls::MakeRustlsConnect;
use wire::{Endpoint, Target, TlsMode};

use crate::error::Error;
use crate::schema;

/// Where metadata are kept.
#[derive(Debug, Clone)]
pub enum Place {
    /// A file of SQLite.
    Sqlite(PathBuf),
    /// `postgres://...`, as SERVER of the other commands.
    Postgres(Box<Target>),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Place::Sqlite(PathBuf::from(path))),
            Some(("postgres" | "postgresql", rest)) if rest.starts_with("//") => {
                let target = Target::parse(text).map_err(|error| error.to_string())?;
                if target.statement_timeout != Target::STATEMENT_TIMEOUT {
                    return Err("the hub's own statements have no statement-timeout: leave it out".to_owned());
                }
                Ok(Place::Postgres(Box::new(target)))
            }
            _ => Err("write sqlite:FILE or postgres://USER@HOST/DATABASE".to_owned()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Sqlite(path) => write!(out, "sqlite:{}", path.display()),
            Place::Postgres(_) => out.write_str("a PostgreSQL database"),
        }
    }
}

/// A value of a statement or a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Cell {
    Null,
    Int(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        text.to_owned().into()
    }
}
impl From<String> for Cell {
    /// PostgreSQL has no text with a NUL, and SQLite compares up to it: whoever asks with one finds nothing.
    fn from(text: String) -> Cell {
        Cell::Text(if text.contains('\0') { text.replace('\0', "\u{fffd}") } else { text })
    }
}
impl From<i64> for Cell {
    fn from(number: i64) -> Cell {
        Cell::Int(number)
    }
}
impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Cell {
        number.map_or(Cell::Null, Cell::Real)
    }
}
impl From<Option<i64>> for Cell {
    fn from(number: Option<i64>) -> Cell {
        number.map_or(Cell::Null, Cell::Int)
    }
}
impl From<Vec<u8>> for Cell {
    fn from(bytes: Vec<u8>) -> Cell {
        Cell::Blob(bytes)
    }
}

/// Values of a statement, each of what a cell is made of.
macro_rules! cells {
    ($($value:expr),* $(,)?) => { [$($crate::db::Cell::from($value)),*] };
}
pub(crate) use cells;

impl rusqlite::ToSql for Cell {
    fn to_sql(&self) -> rusqlite::Result<rusqlite::types::ToSqlOutput<'_>> {
        let value = match self {
            Cell::Null => ValueRef::Null,
            Cell::Int(number) => ValueRef::Integer(*number),
            Cell::Real(number) => ValueRef::Real(*number),
            Cell::Text(text) => ValueRef::Text(text.as_bytes()),
            Cell::Blob(bytes) => ValueRef::Blob(bytes),
        };
        Ok(rusqlite::types::ToSqlOutput::Borrowed(value))
    }
}

impl ToSql for Cell {
    fn to_sql(
        &self,
        kind: &Type,
        out: &mut postgres::types::private::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Cell::Null => Ok(IsNull::Yes),
            Cell::Int(number) => number.to_sql(kind, out),
            Cell::Real(number) => number.to_sql(kind, out),
            Cell::Text(text) => text.to_sql(kind, out),
            Cell::Blob(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    to_sql_checked!();
}

/// A row of an answer, by place.
#[derive(Debug)]
pub(crate) struct Row(Vec<Cell>);

impl Row {
    pub(crate) fn text(&self, at: usize) -> String {
        match &self.0[at] {
            Cell::Text(text) => text.clone(),
            _ => String::new(),
        }
    }

    pub(crate) fn int(&self, at: usize) -> i64 {
        self.maybe_int(at).unwrap_or_default()
    }

    pub(crate) fn maybe_int(&self, at: usize) -> Option<i64> {
        match self.0[at] {
            Cell::Int(number) => Some(number),
            _ => None,
        }
    }

    pub(crate) fn bytes(self, at: usize) -> Vec<u8> {
        match self.0.into_iter().nth(at) {
            Some(Cell::Blob(bytes)) => bytes,
            _ => Vec::new(),
        }
    }
}

/// A connection to either.
pub(crate) enum Sql {
    Sqlite(rusqlite::Connection),
    Postgres(Box<postgres::Client>),
}

impl Sql {
    pub(crate) fn rows(&mut self, sql: &str, values: &[Cell]) -> Result<Vec<Row>, Error> {
        match self {
            Sql::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql)?;
                let columns = statement.column_count();
                let mut rows = statement.query(rusqlite::params_from_iter(values))?;
                let mut found = Vec::new();
                while let Some(row) = rows.next()? {
                    let cells = (0..columns).map(|at| Ok(of_sqlite(row.get_ref(at)?)));
                    found.push(Row(cells.collect::<rusqlite::Result<_>>()?));
                }
                Ok(found)
            }
            Sql::Postgres(client) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                let rows = client.query(&dollars(sql), &values)?;
                let each = rows.iter().map(|row| {
                    Ok(Row((0..row.len()).map(|at| of_postgres(row, at)).collect::<Result<_, Error>>()?))
                });
                each.collect()
            }
        }
    }

    /// Returns how many rows it changed.
    pub(crate) fn execute(&mut self, sql: &str, values: &[Cell]) -> Result<u64, Error> {
        match self {
            Sql::Sqlite(connection) => {
                let mut statement = connection.prepare_cached(sql)?;
                Ok(statement.execute(rusqlite::params_from_iter(values))? as u64)
            }
            Sql::Postgres(client) => {
                let values: Vec<&(dyn ToSql + Sync)> =
                    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
                Ok(client.execute(&dollars(sql), &values)?)
            }
        }
    }

    /// Adds a row to a `table (columns)`.
    pub(crate) fn insert(&mut self, into: &str, values: &[Cell]) -> Result<(), Error> {
        self.execute(&format!("INSERT INTO {into} {}", values_of(values)), values).map(drop)
    }

    /// Adds a row unless it is there.
    pub(crate) fn insert_new(&mut self, into: &str, values: &[Cell]) -> Result<(), Error> {
        let sentence = format!("INSERT INTO {into} {} ON CONFLICT DO NOTHING", values_of(values));
        self.execute(&sentence, values).map(drop)
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Error> {
        match self {
            Sql::Sqlite(connection) => Ok(connection.execute_batch(sql)?),
            Sql::Postgres(client) => Ok(client.batch_execute(sql)?),
        }
    }

    /// All or nothing, one writer after the other: what is counted in it is true when it is over.
    pub(crate) fn transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Sql) -> Result<T, Error>,
    ) -> Result<T, Error> {
        match self {
            Sql::Sqlite(_) => self.batch("BEGIN IMMEDIATE")?,
            Sql::Postgres(_) => self.batch(&format!("BEGIN; SELECT pg_advisory_xact_lock({WRITERS})"))?,
        }
        let done = work(self).and_then(|done| self.batch("COMMIT").map(|()| done));
        if done.is_err() {
            // A connection that is gone has rolled back by itself.
            drop(self.batch("ROLLBACK"));
        }
        done
    }

    fn is_gone(&self) -> bool {
        matches!(self, Sql::Postgres(client) if client.is_closed())
    }
}

/// "Plms", the lock of PostgreSQL that writers of a hub take in turn.
const WRITERS: i64 = 0x506c_6d73;

/// `?2, ?3`: places of so many values.
pub(crate) fn places_of_values(first: usize, count: usize) -> String {
    (first..first + count).map(|at| format!("?{at}")).collect::<Vec<_>>().join(", ")
}

fn values_of(values: &[Cell]) -> String {
    format!("VALUES ({})", places_of_values(1, values.len()))
}

fn dollars(sql: &str) -> String {
    sql.replace('?', "$")
}

fn of_sqlite(value: ValueRef<'_>) -> Cell {
    match value {
        ValueRef::Null => Cell::Null,
        ValueRef::Integer(number) => Cell::Int(number),
        ValueRef::Real(number) => Cell::Real(number),
        ValueRef::Text(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Blob(bytes) => Cell::Blob(bytes.to_vec()),
    }
}

fn of_postgres(row: &postgres::Row, at: usize) -> Result<Cell, Error> {
    Ok(match *row.columns()[at].type_() {
        Type::INT8 => row.try_get::<_, Option<i64>>(at)?.map_or(Cell::Null, Cell::Int),
        Type::INT4 => row.try_get::<_, Option<i32>>(at)?.map_or(Cell::Null, |it| Cell::Int(it.into())),
        Type::FLOAT8 => row.try_get::<_, Option<f64>>(at)?.map_or(Cell::Null, Cell::Real),
        Type::BYTEA => row.try_get::<_, Option<Vec<u8>>>(at)?.map_or(Cell::Null, Cell::Blob),
        _ => row.try_get::<_, Option<String>>(at)?.map_or(Cell::Null, Cell::Text),
    })
}

/// The database, with connections that are used again.
pub(crate) struct Db {
    place: Place,
    idle: Mutex<Vec<Sql>>,
}

/// All statements of the pages, with a few for lists of different lengths.
const STATEMENTS: usize = 64;
/// So much of a file is mapped into memory by each connection; they share it.
const MAPPED_BYTES: u64 = 4 << 30;
/// A writer of SQLite waits for the other so long.
const PATIENCE: Duration = Duration::from_secs(20);

impl Db {
    /// Opens it and brings its tables to this version.
    ///
    /// # Errors
    /// It cannot be had, or is of a newer version.
    pub(crate) fn open(place: &Place) -> Result<Db, Error> {
        let db = Db::new(place);
        db.with(schema::migrate)?;
        Ok(db)
    }

    /// With whatever tables it has.
    pub(crate) fn new(place: &Place) -> Db {
        Db { place: place.clone(), idle: Mutex::new(Vec::new()) }
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Sql) -> Result<T, Error>) -> Result<T, Error> {
        let idle = self.idle.lock().map_err(|_| Error::Inside("a page broke off".to_owned()))?.pop();
        let mut sql = match idle.filter(|sql| !sql.is_gone()) {
            Some(sql) => sql,
            None => self.connect()?,
        };
        let done = work(&mut sql);
        if let Ok(mut idle) = self.idle.lock() {
            match &done {
                // The server was restarted: the others are gone as well, and would each fail once.
                Err(Error::Database(_)) if sql.is_gone() => idle.clear(),
                Err(Error::Database(_)) => {}
                _ => idle.push(sql),
            }
        }
        done
    }

    fn connect(&self) -> Result<Sql, Error> {
        match &self.place {
            Place::Sqlite(path) => {
                let connection = rusqlite::Connection::open(path)?;
                connection.busy_timeout(PATIENCE)?;
                connection.set_prepared_statement_cache_capacity(STATEMENTS);
                in_wal_mode(&connection)?;
                // Full: what is acknowledged survives a loss of power.
                connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;")?;
                // Read where the system has it: a third of a page's time went into copies.
                connection.execute_batch(&format!("PRAGMA mmap_size = {MAPPED_BYTES}"))?;
                Ok(Sql::Sqlite(connection))
            }
            Place::Postgres(target) => {
                let at = |error: Error| match error {
                    Error::Database(why) => Error::Database(format!("{}: {why}", target.endpoint)),
                    error => error,
                };
                Ok(Sql::Postgres(Box::new(to_postgres(target).map_err(at)?)))
            }
        }
    }
}

/// Two hubs that begin at once both turn it on, and for that SQLite does not wait as it does for a writer.
fn in_wal_mode(connection: &rusqlite::Connection) -> Result<(), rusqlite::Error> {
    let until = Instant::now() + PATIENCE;
    loop {
        match connection.execute_batch("PRAGMA journal_mode = WAL") {
            Err(error)
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy)
                    && Instant::now() < until =>
            {
                std::thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Connects as the target says, with a password from where the other commands find theirs. Files are read anew each time,
/// so that a certificate or password may change while a hub runs.
fn to_postgres(target: &Target) -> Result<postgres::Client, Error> {
    let mut target = target.clone();
    wire::passwords::complete(&mut target).map_err(|error| Error::Database(error.to_string()))?;
    let mut config = postgres::Config::new();
    config.connect_timeout(target.connect_timeout).application_name("plimsoll hub").user(&target.user);
    match &target.endpoint {
        Endpoint::Tcp { host, port } => config.host(host).port(*port),
        // DIRECTORY/.s.PGSQL.PORT
        Endpoint::Unix(socket) => {
            let port = socket.extension().and_then(|port| port.to_str()?.parse().ok());
            config.host_path(socket.parent().unwrap_or(socket)).port(port.unwrap_or(5432))
        }
    };
    if !target.password.is_empty() {
        config.password(target.password.reveal());
    }
    if let Some(name) = &target.database {
        config.dbname(name);
    }
    config.ssl_mode(match target.tls {
        TlsMode::Disabled => SslMode::Disable,
        TlsMode::Preferred => SslMode::Prefer,
        // What is checked is the verifier's business.
        TlsMode::Required | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
    });
    let tls = wire::tls::client_config(&target).map_err(|error| Error::Database(error.to_string()))?;
    Ok(config.connect(MakeRustlsConnect::new(Arc::unwrap_or_clone(tls)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hubs_that_begin_at_once_find_one_database() {
        for _ in 0..20 {
            let dir = tempfile::tempdir().unwrap();
            let place = Place::Sqlite(dir.path().join("hub.db"));
            let begun = std::sync::Barrier::new(4);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        begun.wait();
                        Db::open(&place).map(drop).unwrap();
                    });
                }
            });
        }
    }
}
