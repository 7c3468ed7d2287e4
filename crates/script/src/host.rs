//! What a script asks of servers: connections, statements, results. Generic over how sockets wait, so that the same
//! code serves sessions on the load engine and commands that simply block.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::messages::{Asked, refusal, tell_failure, tell_refusal};
use crate::symbols::{Counter, Counters};
use load::Recorder;
use wire::limits::{Budget, kept_bytes};
use wire::{
    Connection, Done, Endpoint, Error, ParamType, Protocol, ResultSet, StatementKind, Target, Transport,
    Value,
};

/// How a connection's socket comes to be.
pub(crate) trait Open {
    type Socket: Transport;
    /// Connects within `limit`.
    fn open(&self, endpoint: &Endpoint, limit: Duration) -> impl Future<Output = io::Result<Self::Socket>>;
    fn pause(&self, duration: Duration) -> impl Future<Output = ()>;
}

/// On the load engine's executor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnEngine;

impl Open for OnEngine {
    type Socket = load::net::Socket;
    async fn open(&self, endpoint: &Endpoint, limit: Duration) -> io::Result<load::net::Socket> {
        load::net::connect(endpoint, limit).await
    }
    async fn pause(&self, duration: Duration) {
        load::time::sleep(duration).await;
    }
}

/// Blocking this thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocking;

impl Open for Blocking {
    type Socket = wire::blocking::Socket;
    async fn open(&self, endpoint: &Endpoint, limit: Duration) -> io::Result<wire::blocking::Socket> {
        wire::blocking::Socket::connect(endpoint, limit)
    }
    async fn pause(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A future over blocking sockets is ready when it is first asked.
pub(crate) fn now_or_never<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

/// A parameter as the Lua side lays it out in C memory (`plimsoll_param` in sql.lua).
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Param {
    /// Value of kinds 1 and 2.
    pub whole: i64,
    /// Value of kind 3.
    pub real: f64,
    /// Value of kind 4.
    pub text: *const u8,
    /// Bytes of the text.
    pub length: u32,
    /// 2: a whole number, 3: a double, 4: text.
    pub kind: u8,
    /// Not 0 for NULL.
    pub is_null: u8,
}

/// What sysbench's `--mysql-ignore-errors` and PostgreSQL's fixed list say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ignored {
    /// MySQL error numbers.
    pub numbers: Vec<u16>,
    /// All of MySQL's errors.
    pub all: bool,
}

/// PostgreSQL's deadlock, duplicate key and serialization failure restart the event.
const POSTGRES_IGNORED: [&str; 3] = ["40P01", "23505", "40001"];

/// MySQL client errors that mean a lost connection: server gone, connection failed, server lost (twice).
const LOST: [u16; 4] = [2006, 2011, 2013, 2055];

/// Where the sessions of a run connect; sessions take targets in turn.
#[derive(Debug, Clone)]
pub(crate) struct Databases {
    /// Servers of the driver `mysql`.
    pub mysql: Vec<Target>,
    /// Servers of the driver `pgsql`.
    pub pgsql: Vec<Target>,
    /// Errors that restart the event.
    pub ignored: Ignored,
    /// `--db-driver`.
    pub driver: String,
    /// `--db-ps-mode=disable`: statements are emulated by the text protocol.
    pub is_emulated: bool,
    /// `--db-debug`: statements are told to standard error.
    pub is_debugged: bool,
    /// Whether a script has connected to any server: reports speak of SQL only then.
    pub is_used: Arc<AtomicBool>,
    /// `--mysql-dry-run`: nothing is sent to MySQL servers, and everything succeeds.
    pub is_dry: bool,
    /// What is counted beside the load engine.
    pub counters: Arc<Counters>,
}

impl Databases {
    /// The servers of a driver.
    pub(crate) fn targets(&self, driver: &str) -> &[Target] {
        match driver {
            "mysql" => &self.mysql,
            "pgsql" => &self.pgsql,
            _ => &[],
        }
    }
}

/// An SQL error as scripts see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// MySQL's number; 0 on PostgreSQL.
    pub number: u16,
    /// SQLSTATE.
    pub state: String,
    /// The server's words.
    pub text: String,
    /// The event is to be restarted.
    pub is_ignorable: bool,
    /// The connection must be opened again first.
    pub wants_reconnect: bool,
}

/// How a request ended: rows, columns, and a handle for fetching rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Answer {
    /// Rows returned or changed.
    pub rows: u64,
    /// Columns; 0 without a result set.
    pub fields: usize,
    /// The result's number, for rows that can be fetched.
    pub handle: usize,
}

struct Prepared {
    text: String,
    /// The server does not prepare it: it is sent as text.
    is_text: bool,
    server: Option<wire::Statement>,
    /// C memory of the Lua side, which keeps it alive as long as the statement can be executed.
    params: Vec<*const Param>,
}

struct Live<T: Transport> {
    connection: Connection<T>,
    target: Target,
    statements: Vec<Option<Prepared>>,
    pending: std::collections::VecDeque<ResultSet>,
}

impl<T: Transport> Live<T> {
    fn is_mysql(&self) -> bool {
        matches!(self.connection, Connection::Mysql(_))
    }
}

/// Rows that scripts may fetch, by connection: shared with the Lua functions that read them.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// The last results of each connection; freed ones are `None`.
    sets: Vec<Vec<Option<ResultSet>>>,
    /// Whether `more_results` has more.
    pub more: Vec<bool>,
}

impl Results {
    fn keep(&mut self, connection: usize, set: ResultSet) -> usize {
        let slots = &mut self.sets[connection];
        match slots.iter().position(Option::is_none) {
            Some(free) => {
                slots[free] = Some(set);
                free
            }
            None => {
                slots.push(Some(set));
                slots.len() - 1
            }
        }
    }

    /// A row of a result, `row` from 1.
    pub(crate) fn row(&self, connection: usize, handle: usize, row: usize) -> Option<&[Option<Vec<u8>>]> {
        let set = self.sets.get(connection)?.get(handle)?.as_ref()?;
        set.rows.get(row.checked_sub(1)?).map(Vec::as_slice)
    }

    /// Forgets a result.
    pub(crate) fn free(&mut self, connection: usize, handle: usize) {
        if let Some(slot) = self.sets.get_mut(connection).and_then(|sets| sets.get_mut(handle)) {
            *slot = None;
        }
    }
}

/// All connections of one session.
pub(crate) struct Host<O: Open> {
    opener: O,
    databases: Arc<Databases>,
    index: usize,
    live: Vec<Option<Live<O::Socket>>>,
    /// Connections that are open and only pretend to be some.
    pretending: BTreeSet<usize>,
    results: Rc<RefCell<Results>>,
    /// Statements run without a recorder: reads, writes, others.
    pub unrecorded: [u64; 3],
}

impl<O: Open> Host<O> {
    /// No connection yet; session `index` begins with server `index` modulo the number of servers.
    pub(crate) fn new(opener: O, databases: Arc<Databases>, index: u32) -> Host<O> {
        Host {
            opener,
            databases,
            index: index as usize,
            live: Vec::new(),
            pretending: BTreeSet::new(),
            results: Rc::default(),
            unrecorded: [0; 3],
        }
    }

    /// The rows that Lua may read.
    pub(crate) fn results(&self) -> Rc<RefCell<Results>> {
        self.results.clone()
    }

    /// How many numbers sysbench draws for the name of a prepared statement: two on PostgreSQL.
    pub(crate) fn name_draws(&self, id: usize) -> u32 {
        let is_postgres = self.live.get(id).and_then(Option::as_ref).is_some_and(|live| !live.is_mysql());
        if is_postgres && !self.databases.is_emulated { 2 } else { 0 }
    }

    /// Opens a connection of a driver and returns its number.
    ///
    /// # Errors
    /// As the server or the system says.
    pub(crate) async fn connect(&mut self, driver: &str) -> Result<usize, Problem> {
        let targets = self.databases.targets(driver);
        let Some(target) = targets.get((self.index + self.live.len()) % targets.len().max(1)).cloned() else {
            return Err(closed());
        };
        self.databases.is_used.store(true, Ordering::Relaxed);
        let fresh = if self.databases.is_dry && target.protocol == Protocol::Mysql {
            self.pretending.insert(self.live.len());
            None
        } else {
            let connection =
                self.dial(&target).await.inspect_err(|problem| tell_refusal(&target, problem))?;
            Some(Live { connection, target, statements: Vec::new(), pending: Default::default() })
        };
        let mut results = self.results.borrow_mut();
        results.sets.push(Vec::new());
        results.more.push(false);
        self.live.push(fresh);
        Ok(self.live.len() - 1)
    }

    /// Whether a connection only pretends: `--mysql-dry-run`.
    fn is_dry(&self, id: usize) -> bool {
        self.pretending.contains(&id)
    }

    /// What a statement gives that is not sent.
    fn pretended(&mut self, recorder: Option<&Recorder>) -> Answer {
        if let Some(recorder) = recorder {
            recorder.restart();
        }
        note(recorder, Done::default(), &mut self.unrecorded);
        Answer::default()
    }

    async fn dial(&self, target: &Target) -> Result<Connection<O::Socket>, Problem> {
        let opened = match self.opener.open(&target.endpoint, target.connect_timeout).await {
            Ok(socket) => Connection::open(socket, target).await,
            Err(error) => Err(Error::Io(error)),
        };
        opened.map_err(|error| refusal(target, &error))
    }

    /// Closes a connection.
    pub(crate) async fn disconnect(&mut self, id: usize) {
        self.pretending.remove(&id);
        if let Some(live) = self.live.get_mut(id).and_then(Option::take) {
            live.connection.close().await;
        }
    }

    /// Opens a connection again under the same number. Prepared statements are gone, as on the server.
    ///
    /// # Errors
    /// It cannot be opened.
    async fn reconnect(&mut self, id: usize) -> Result<(), Problem> {
        if self.is_dry(id) {
            return Ok(());
        }
        let Some(target) = self.live.get(id).and_then(Option::as_ref).map(|live| live.target.clone()) else {
            return Err(closed());
        };
        let connection = self.dial(&target).await?;
        self.databases.counters.add(Counter::Reconnect, 1);
        self.live[id] =
            Some(Live { connection, target, statements: Vec::new(), pending: Default::default() });
        Ok(())
    }

    /// Opens a connection again, with growing pauses: sysbench tries every millisecond for ever.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(crate) async fn reopen(&mut self, id: usize) -> Result<(), Problem> {
        let mut pause_ms = 1;
        loop {
            match self.reconnect(id).await {
                Ok(()) => return Ok(()),
                Err(problem) if pause_ms > 16_000 => return Err(problem),
                Err(_) => self.opener.pause(Duration::from_millis(pause_ms)).await,
            }
            pause_ms *= 2;
        }
    }

    /// Where it connects, and what it ignores.
    pub(crate) fn databases(&self) -> &Databases {
        &self.databases
    }

    /// Closes everything.
    pub(crate) async fn close(&mut self) {
        for id in 0..self.live.len() {
            self.disconnect(id).await;
        }
    }

    /// Runs statements by the text protocol; rows are kept for `fetch_row`.
    ///
    /// # Errors
    /// As the server says.
    pub(crate) async fn query(
        &mut self,
        id: usize,
        sql: &str,
        recorder: Option<&Recorder>,
    ) -> Result<Answer, Problem> {
        self.debug(sql);
        if self.is_dry(id) {
            return Ok(self.pretended(recorder));
        }
        let live = self.live.get_mut(id).and_then(Option::as_mut).ok_or_else(closed)?;
        if let Some(recorder) = recorder {
            recorder.restart();
        }
        // Several statements in one text want their results apart; one needs only its rows.
        let several = sql.trim_end().trim_end_matches(';').contains(';');
        let answered = if several {
            live.connection.query_sets(sql).await
        } else {
            let mut set = ResultSet::default();
            let (mut budget, mut kept) = (Budget::default(), Ok(()));
            let mut keep = |row: &wire::Row<'_>| {
                if kept.is_ok() {
                    let row = row.to_owned_row();
                    kept = budget.take(kept_bytes(&row));
                    set.rows.push(row);
                }
            };
            let done = live.connection.query_rows(sql, &mut keep).await;
            done.and_then(|done| kept.map(|()| done)).map(|done| {
                set.done = done;
                vec![set]
            })
        };
        match answered {
            Ok(sets) => {
                live.pending = sets.into();
                let last = live.pending.back().map(|set| set.done).unwrap_or_default();
                note(recorder, last, &mut self.unrecorded);
                Ok(self.next_result(id).unwrap_or_default())
            }
            Err(error) => Err(self.failed(id, error, Asked::Query(sql)).await),
        }
    }

    /// The next result of a multi-statement query.
    pub(crate) fn next_result(&mut self, id: usize) -> Option<Answer> {
        let live = self.live.get_mut(id)?.as_mut()?;
        let set = live.pending.pop_front()?;
        let more = !live.pending.is_empty();
        let mut results = self.results.borrow_mut();
        results.more[id] = more;
        if !set.done.has_result_set {
            return Some(Answer { rows: set.done.affected_rows, ..Answer::default() });
        }
        let fields = set.columns.len().max(set.rows.first().map_or(1, Vec::len));
        let rows = set.rows.len() as u64;
        let handle = results.keep(id, set);
        Some(Answer { rows, fields, handle })
    }

    /// Prepares a statement and returns its number. PostgreSQL wants the types of parameters: there a statement that
    /// has some goes to the server with [`Host::bind`].
    ///
    /// # Errors
    /// As the server says.
    pub(crate) async fn prepare(&mut self, id: usize, sql: &str) -> Result<usize, Problem> {
        let is_emulated = self.databases.is_emulated;
        if self.is_dry(id) {
            return Ok(0);
        }
        let live = self.live.get_mut(id).and_then(Option::as_mut).ok_or_else(closed)?;
        let (mut server, mut is_text) = (None, is_emulated);
        let parameters = placeholders(sql).len();
        if !is_emulated && (parameters == 0 || live.is_mysql()) {
            match live.connection.prepare(sql, &vec![ParamType::Text; parameters]).await {
                Ok(statement) => server = Some(statement),
                // "This command is not supported in the prepared statement protocol yet": sent as text instead.
                Err(Error::Server(error)) if error.number == 1295 => is_text = true,
                // A question mark in a comment is none of the server's placeholders: the binding knows.
                Err(Error::Unsupported(_)) => {}
                Err(error) => return Err(self.failed(id, error, Asked::Prepare).await),
            }
        }
        live.statements.push(Some(Prepared { text: sql.to_owned(), is_text, server, params: Vec::new() }));
        Ok(live.statements.len() - 1)
    }

    /// Binds parameters and prepares on the server.
    ///
    /// # Errors
    /// As the server says.
    ///
    /// # Safety
    /// Each address is that of a [`Param`] that lives as long as the statement can be executed.
    pub(crate) async unsafe fn bind(
        &mut self,
        id: usize,
        statement: usize,
        addresses: &[usize],
    ) -> Result<(), Problem> {
        if self.is_dry(id) {
            return Ok(());
        }
        let live = self.live.get_mut(id).and_then(Option::as_mut).ok_or_else(closed)?;
        let prepared = live.statements.get_mut(statement).and_then(Option::as_mut).ok_or_else(closed)?;
        prepared.params = addresses.iter().map(|address| *address as *const Param).collect();
        // SAFETY: the caller's promise.
        let kinds: Vec<ParamType> =
            prepared.params.iter().map(|p| param_type(unsafe { (**p).kind })).collect();
        if let Some(wire::Statement::Mysql(server)) = &mut prepared.server {
            server.retype(&kinds);
        }
        if prepared.is_text || prepared.server.is_some() {
            return Ok(());
        }
        let sql = match &live.connection {
            Connection::Mysql(_) => prepared.text.clone(),
            Connection::Postgres(_) => numbered(&prepared.text),
        };
        match live.connection.prepare(&sql, &kinds).await {
            Ok(made) => {
                prepared.server = Some(made);
                Ok(())
            }
            Err(error) => Err(self.failed(id, error, Asked::Prepare).await),
        }
    }

    /// Executes a prepared statement.
    ///
    /// # Errors
    /// As the server says.
    pub(crate) async fn execute(
        &mut self,
        id: usize,
        statement: usize,
        recorder: Option<&Recorder>,
    ) -> Result<Answer, Problem> {
        if self.is_dry(id) {
            return Ok(self.pretended(recorder));
        }
        let live = self.live.get_mut(id).and_then(Option::as_mut).ok_or_else(closed)?;
        let prepared = live.statements.get_mut(statement).and_then(Option::as_mut).ok_or_else(closed)?;
        let Some(server) = &mut prepared.server else {
            let sql = literal(prepared, &live.connection);
            return self.query(id, &sql, recorder).await;
        };
        if let Some(recorder) = recorder {
            recorder.restart();
        }
        // SAFETY: `bind` was promised that the memory lives.
        let started =
            unsafe { with_values(&prepared.params, |values| live.connection.start(server, values)) };
        let done = match started {
            Ok(started) => live.connection.finish(Some(server), started).await,
            Err(error) => Err(error),
        };
        match done {
            Ok(done) => {
                note(recorder, done, &mut self.unrecorded);
                let rows = if done.has_result_set { done.rows } else { done.affected_rows };
                // Rows of prepared statements cannot be fetched, as in sysbench on MySQL: no handle is kept.
                Ok(Answer { rows, fields: usize::from(done.has_result_set), handle: usize::MAX })
            }
            Err(error) => {
                let sql = prepared.text.clone();
                Err(self.failed(id, error, Asked::Execute(&sql)).await)
            }
        }
    }

    /// Closes a prepared statement.
    pub(crate) async fn close_statement(&mut self, id: usize, statement: usize) {
        let Some(live) = self.live.get_mut(id).and_then(Option::as_mut) else { return };
        let prepared = live.statements.get_mut(statement).and_then(Option::take);
        if let Some(server) = prepared.and_then(|prepared| prepared.server) {
            // A connection that is gone has no statements either.
            let _ = live.connection.close_statement(server).await;
        }
    }

    fn debug(&self, sql: &str) {
        if self.databases.is_debugged {
            eprintln!("DEBUG: {}", wire::shown(sql));
        }
    }

    /// Says what an error means, and tells it if it cannot be ignored. On PostgreSQL an ignorable error leaves a
    /// transaction to roll back.
    async fn failed(&mut self, id: usize, error: Error, asked: Asked<'_>) -> Problem {
        let is_mysql = self.live.get(id).and_then(Option::as_ref).is_none_or(Live::is_mysql);
        let problem = self.problem(is_mysql, &error);
        if !problem.is_ignorable {
            tell_failure(if is_mysql { Protocol::Mysql } else { Protocol::Postgres }, asked, &problem);
        }
        if problem.is_ignorable
            && !is_mysql
            && let Some(Some(live)) = self.live.get_mut(id)
        {
            let _ = live.connection.query("ROLLBACK").await;
        }
        problem
    }

    fn problem(&self, is_mysql: bool, error: &Error) -> Problem {
        let (number, state, text) = match error {
            Error::Server(e) => (e.number, e.state().to_owned(), e.text.clone()),
            // The client library's number for parameters that do not fit the statement.
            Error::Unsupported(text) => (2031, "HY000".to_owned(), text.clone()),
            other if is_mysql => {
                (2013, "HY000".to_owned(), format!("Lost connection to server during query ({other})"))
            }
            other => (0, "08006".to_owned(), other.to_string()),
        };
        let ignored = &self.databases.ignored;
        let is_ignorable = if is_mysql {
            ignored.all || ignored.numbers.contains(&number)
        } else {
            POSTGRES_IGNORED.contains(&state.as_str())
        };
        Problem { number, state, text, is_ignorable, wants_reconnect: is_mysql && LOST.contains(&number) }
    }
}

/// Nothing is there to be asked.
pub(crate) fn closed() -> Problem {
    Problem {
        number: 2006,
        state: "HY000".into(),
        text: "the connection or statement is closed".into(),
        is_ignorable: false,
        wants_reconnect: false,
    }
}

/// A statement has ended that [`Recorder::restart`] marked the beginning of.
fn note(recorder: Option<&Recorder>, done: Done, unrecorded: &mut [u64; 3]) {
    let class = match done.kind() {
        StatementKind::Read => 0,
        StatementKind::Write => 1,
        StatementKind::Other => 2,
    };
    match recorder {
        Some(recorder) => recorder.lap(class, done.kind()),
        None => unrecorded[class] += 1,
    }
}

fn param_type(kind: u8) -> ParamType {
    match kind {
        1 => ParamType::Int,
        2 => ParamType::BigInt,
        3 => ParamType::Double,
        _ => ParamType::Text,
    }
}

/// # Safety
/// The text of a text parameter lives as long as the parameter.
unsafe fn value(param: &Param) -> Value<'_> {
    match param.kind {
        _ if param.is_null != 0 => Value::Null,
        1 | 2 => Value::Int(param.whole),
        3 => Value::Double(param.real),
        // SAFETY: the caller's promise; the Lua side never sets a length beyond its buffer.
        _ => Value::Bytes(unsafe { std::slice::from_raw_parts(param.text, param.length as usize) }),
    }
}

/// Lends the values of parameters.
///
/// # Safety
/// As [`value`], for each.
unsafe fn with_values<R>(params: &[*const Param], lend: impl FnOnce(&[Value<'_>]) -> R) -> R {
    let mut few = [Value::Null; 16];
    if params.len() > few.len() {
        // SAFETY: the caller's promise.
        let many: Vec<Value<'_>> = params.iter().map(|param| unsafe { value(&**param) }).collect();
        return lend(&many);
    }
    for (slot, param) in few.iter_mut().zip(params) {
        // SAFETY: as above.
        *slot = unsafe { value(&**param) };
    }
    lend(&few[..params.len()])
}

/// Positions of `?` outside of quotes.
fn placeholders(sql: &str) -> Vec<usize> {
    let mut found = Vec::new();
    let mut quote = None;
    for (at, c) in sql.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"' | '`') => quote = Some(c),
            (None, '?') => found.push(at),
            _ => {}
        }
    }
    found
}

fn replaced(sql: &str, mut with: impl FnMut(usize, &mut String)) -> String {
    let mut out = String::with_capacity(sql.len() + 16);
    let mut from = 0;
    for (index, at) in placeholders(sql).into_iter().enumerate() {
        out.push_str(&sql[from..at]);
        with(index, &mut out);
        from = at + 1;
    }
    out.push_str(&sql[from..]);
    out
}

fn numbered(sql: &str) -> String {
    replaced(sql, |index, out| out.push_str(&format!("${}", index + 1)))
}

/// The statement with its parameters written into it, for `--db-ps-mode=disable`.
fn literal<T: Transport>(prepared: &Prepared, connection: &Connection<T>) -> String {
    let backslash = matches!(connection, Connection::Mysql(_));
    replaced(&prepared.text, |index, out| {
        let Some(param) = prepared.params.get(index) else {
            out.push('?');
            return;
        };
        // SAFETY: `bind` was promised that the memory lives.
        match unsafe { value(&**param) } {
            Value::Null => out.push_str("NULL"),
            Value::Int(number) => out.push_str(&number.to_string()),
            Value::Double(number) => out.push_str(&number.to_string()),
            Value::Bytes(bytes) => {
                out.push('\'');
                for c in String::from_utf8_lossy(bytes).chars() {
                    match c {
                        '\'' => out.push_str("''"),
                        '\\' if backslash => out.push_str("\\\\"),
                        c => out.push(c),
                    }
                }
                out.push('\'');
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_outside_of_quotes() {
        assert_eq!(numbered("a=? and b='?' and c=?"), "a=$1 and b='?' and c=$2");
        assert!(placeholders("select '?'").is_empty());
    }
}
