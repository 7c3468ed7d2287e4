//! Runs scripts of pgbench's language on a connection: one [`Client`] is one session's variables, random numbers and
//! prepared statements.
//!
//! What a MySQL server has no words for, it gets as text: it has no extended protocol of PostgreSQL's, so that pipelines
//! are refused there and results that a script keeps come by the text protocol.

use std::sync::Arc;
use std::time::Duration;

use load::Failure;
use load::net::Socket;
use pgscript::random::Random;
use pgscript::{Action, Argument, Names, Place, Scope, Script, Sql, Value};
use wire::postgres::{Executed, TransactionStatus};
use wire::{Connection, ParamType, ResultSet, ServerError, Statement, StatementKind, Target};

use crate::engine::link::cancel;

/// How statements are sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum QueryMode {
    /// As text, with variables written into it.
    #[default]
    Simple,
    /// By the extended protocol, parsed each time.
    Extended,
    /// By the extended protocol, prepared once for each session.
    Prepared,
}

/// What all clients of a run share.
#[derive(Debug)]
pub struct Plan {
    /// The scripts.
    pub scripts: Vec<Script>,
    /// The variables of all of them.
    pub names: Names,
    /// How statements are sent.
    pub mode: QueryMode,
    /// Whether scripts may run shell commands.
    pub allows_shell: bool,
    /// Where clients connect.
    pub target: Target,
}

/// Why a script could not be run to its end.
#[derive(Debug)]
pub struct Abort {
    /// Index of the command; the number of commands at the script's end.
    pub command: usize,
    /// What happened.
    pub cause: Cause,
}

/// What ends a script early.
#[derive(Debug)]
pub enum Cause {
    /// The server refused a statement, or the connection was lost.
    Sql(wire::Error),
    /// A backslash command failed: why, as far as that is told apart, and what of it, in pgbench's words.
    Meta {
        /// Why.
        detail: Option<String>,
        /// `evaluation of meta-command failed`
        what: String,
    },
    /// A result did not fit `\gset`.
    Result(String),
    /// The script's end was reached in the middle of something.
    End(&'static str),
}

/// Hears of each command that has ended; of a statement with how it counts.
pub trait Watch {
    /// A command has ended.
    fn ended(&mut self, command: usize, kind: Option<StatementKind>);
    /// What `debug` of a command shows.
    fn debug(&mut self, command: usize, text: &str);
}

/// One session that runs scripts.
pub struct Client {
    plan: Arc<Plan>,
    connection: Option<Connection<Socket>>,
    /// By the indices of the plan's names.
    pub variables: Vec<Option<Value>>,
    /// Where random numbers come from.
    pub random: Random,
    /// By script and command.
    prepared: Vec<Vec<Option<Statement>>>,
    /// Memory for a statement's text.
    sql: String,
    pipeline: Option<Pipeline>,
}

/// What is under way between `\startpipeline` and `\endpipeline`.
#[derive(Default)]
struct Pipeline {
    /// The commands in flight.
    commands: Vec<usize>,
    syncs: u32,
}

impl Client {
    /// Not connected yet.
    pub fn new(plan: Arc<Plan>, variables: Vec<Option<Value>>, random: Random) -> Client {
        let prepared = plan.scripts.iter().map(|script| script.commands.iter().map(|_| None).collect());
        Client {
            prepared: prepared.collect(),
            connection: None,
            variables,
            random,
            sql: String::new(),
            pipeline: None,
            plan,
        }
    }

    /// Connects anew; an old connection is dropped.
    ///
    /// # Errors
    /// Connecting or logging in failed.
    pub async fn open(&mut self) -> Result<(), wire::Error> {
        let abandoned = self.connection.take().and_then(|connection| connection.abandoned());
        let target = &self.plan.target;
        cancel(abandoned, target).await;
        self.prepared.iter_mut().flatten().for_each(|statement| *statement = None);
        self.pipeline = None;
        let socket = load::net::connect(&target.endpoint, target.connect_timeout).await?;
        self.connection = Some(Connection::open(socket, target).await?);
        Ok(())
    }

    /// Says good-bye.
    pub async fn close(&mut self) {
        self.prepared.iter_mut().flatten().for_each(|statement| *statement = None);
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }

    /// Whether the session is connected.
    pub fn is_open(&self) -> bool {
        self.connection.is_some()
    }

    /// Whether a transaction is open; a MySQL server does not tell.
    pub fn is_in_transaction(&self) -> bool {
        match &self.connection {
            Some(Connection::Postgres(connection)) => {
                connection.transaction_status() != TransactionStatus::Idle
            }
            _ => false,
        }
    }

    /// After a failed script: the session is outside of pipelines and transactions again.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn recover(&mut self) -> Result<(), wire::Error> {
        self.leave_pipeline().await?;
        if self.is_in_transaction() || matches!(self.connection, Some(Connection::Mysql(_))) {
            self.connection()?.query("ROLLBACK").await?;
        }
        Ok(())
    }

    async fn leave_pipeline(&mut self) -> Result<(), wire::Error> {
        if let (Some(pipeline), Some(Connection::Postgres(connection))) =
            (self.pipeline.take(), &mut self.connection)
            && (pipeline.syncs > 0 || !pipeline.commands.is_empty())
        {
            connection.queue_sync()?;
            connection.read_queued(pipeline.syncs + 1, false).await?;
        }
        Ok(())
    }

    fn connection(&mut self) -> Result<&mut Connection<Socket>, wire::Error> {
        self.connection.as_mut().ok_or_else(gone)
    }

    /// Runs a script's first commands up to the first one that is not `\set` or a condition: what needs no server and
    /// no time. The place where [`Client::run`] goes on.
    ///
    /// # Errors
    /// A command that cannot be carried out.
    pub fn begin(&mut self, script: usize, watch: &mut impl Watch) -> Result<Place, Abort> {
        self.calculate(script, Script::START, watch)
    }

    /// Carries out conditions and `\set` from `place` on.
    fn calculate(&mut self, script: usize, place: Place, watch: &mut impl Watch) -> Result<Place, Abort> {
        let plan = Arc::clone(&self.plan);
        let script = &plan.scripts[script];
        let mut place = place;
        loop {
            let here = place.at;
            let mut debug = |text: &str| watch.debug(here, text);
            let mut scope = Scope {
                names: &plan.names,
                variables: &self.variables,
                random: &mut self.random,
                debug: &mut debug,
            };
            place = script.resolve(place, &mut scope).map_err(|(command, detail)| {
                meta(command, Some(detail), "evaluation of meta-command failed")
            })?;
            let at = place.at;
            let Some(Action::Set { slot, value }) = script.commands.get(at).map(|command| &command.action)
            else {
                return Ok(place);
            };
            let mut debug = |text: &str| watch.debug(at, text);
            let mut scope = Scope {
                names: &plan.names,
                variables: &self.variables,
                random: &mut self.random,
                debug: &mut debug,
            };
            let found = scope
                .value(value)
                .map_err(|detail| meta(at, Some(detail), "evaluation of meta-command failed"))?;
            self.set(*slot, found, "set", at)?;
            watch.ended(at, None);
            place = place.behind();
        }
    }

    fn set(&mut self, slot: usize, value: Value, who: &str, command: usize) -> Result<(), Abort> {
        let name = self.plan.names.name(slot);
        if !Names::is_valid(name) {
            let detail = format!("{who}: invalid variable name: \"{name}\"");
            return Err(meta(command, Some(detail), "assignment of meta-command failed"));
        }
        self.variables[slot] = Some(value);
        Ok(())
    }

    /// Runs a script from `place` to its end.
    ///
    /// # Errors
    /// What ended it early; the session may be inside of a transaction or a pipeline then.
    pub async fn run(&mut self, script: usize, place: Place, watch: &mut impl Watch) -> Result<(), Abort> {
        let plan = Arc::clone(&self.plan);
        let mut place = place;
        while let Some(command) = plan.scripts[script].commands.get(place.at) {
            let at = place.at;
            match &command.action {
                Action::Sql(sql) => self.statement(script, at, sql, watch).await?,
                Action::Sleep { amount, unit_us } => {
                    let units = self.sleep_units(amount, at)?;
                    load::time::sleep(Duration::from_micros(units.saturating_mul(*unit_us))).await;
                    watch.ended(at, None);
                }
                Action::Shell { words } => {
                    self.shell(words, None, at)?;
                    watch.ended(at, None);
                }
                Action::SetShell { slot, words } => {
                    self.shell(words, Some(*slot), at)?;
                    watch.ended(at, None);
                }
                Action::StartPipeline => self.start_pipeline(script, at).await?,
                Action::SyncPipeline => self.sync_pipeline(at)?,
                Action::EndPipeline => self.end_pipeline(at, watch).await?,
                // `calculate` below has carried them out.
                _ => {}
            }
            place = self.calculate(script, place.behind(), watch)?;
        }
        if self.pipeline.is_some() {
            return Err(Abort {
                command: place.at,
                cause: Cause::End("end of script reached with pipeline open"),
            });
        }
        if self.is_in_transaction() {
            let what = "end of script reached without completing the last transaction";
            return Err(Abort { command: place.at, cause: Cause::End(what) });
        }
        Ok(())
    }

    /// A SQL command.
    async fn statement(
        &mut self,
        script: usize,
        at: usize,
        sql: &Sql,
        watch: &mut impl Watch,
    ) -> Result<(), Abort> {
        let refused = |error| Abort { command: at, cause: Cause::Sql(error) };
        if self.pipeline.is_some() {
            if let Some(store) = &sql.store {
                let name = if store.of_all { "aset" } else { "gset" };
                return Err(meta_named(at, format!("\\{name} is not allowed in pipeline mode")));
            }
            self.queue(script, at, sql).await.map_err(refused)?;
            if let Some(pipeline) = &mut self.pipeline {
                pipeline.commands.push(at);
            }
            return Ok(());
        }
        if let Some(store) = &sql.store {
            let sets = self.sets(script, at, sql).await.map_err(refused)?;
            self.store(at, &sets, &store.prefix, store.of_all)?;
            watch.ended(at, Some(StatementKind::Read));
            return Ok(());
        }
        let kind = match (self.plan.mode, &self.connection) {
            (QueryMode::Simple, _) => self.as_text(sql).await,
            (QueryMode::Extended, Some(Connection::Postgres(_))) => self.extended(script, at, sql).await,
            _ => self.as_prepared(script, at, sql).await,
        };
        watch.ended(at, Some(kind.map_err(refused)?));
        Ok(())
    }

    async fn as_text(&mut self, sql: &Sql) -> Result<StatementKind, wire::Error> {
        sql.fill(&self.plan.names, &self.variables, &mut self.sql);
        let Some(connection) = &mut self.connection else { return Err(gone()) };
        let started = connection.start_query(&self.sql)?;
        Ok(connection.finish(None, started).await?.kind())
    }

    async fn as_prepared(
        &mut self,
        script: usize,
        at: usize,
        sql: &Sql,
    ) -> Result<StatementKind, wire::Error> {
        if self.prepared[script][at].is_none() {
            self.prepare_all(script).await?;
        }
        let texts = texts(sql, &self.variables);
        let values: Vec<wire::Value<'_>> = texts.iter().map(value_of).collect();
        let Some(connection) = &mut self.connection else { return Err(gone()) };
        let Some(statement) = &mut self.prepared[script][at] else { return Err(gone()) };
        let started = connection.start(statement, &values)?;
        Ok(connection.finish(Some(statement), started).await?.kind())
    }

    /// Prepares all statements of a script when the first of them is wanted: one within a pipeline cannot be prepared.
    async fn prepare_all(&mut self, script: usize) -> Result<(), wire::Error> {
        let plan = Arc::clone(&self.plan);
        for (at, command) in plan.scripts[script].commands.iter().enumerate() {
            if let Action::Sql(sql) = &command.action
                && self.prepared[script][at].is_none()
            {
                self.prepare(script, at, sql).await?;
            }
        }
        Ok(())
    }

    async fn prepare(&mut self, script: usize, at: usize, sql: &Sql) -> Result<(), wire::Error> {
        let types = vec![ParamType::Text; sql.params.len()];
        let connection = self.connection()?;
        let text = match connection {
            Connection::Postgres(_) => sql.numbered.clone(),
            Connection::Mysql(_) => sql.with_marks(),
        };
        let statement = connection.prepare(&text, &types).await?;
        self.prepared[script][at] = Some(statement);
        Ok(())
    }

    async fn extended(&mut self, script: usize, at: usize, sql: &Sql) -> Result<StatementKind, wire::Error> {
        self.queue(script, at, sql).await?;
        let answered = self.answers(1, false).await?;
        Ok(answered.done.kind())
    }

    /// Queues a statement's execution.
    async fn queue(&mut self, script: usize, at: usize, sql: &Sql) -> Result<(), wire::Error> {
        let is_wanted = self.plan.mode == QueryMode::Prepared && self.pipeline.is_none();
        if is_wanted && self.prepared[script][at].is_none() {
            self.prepare_all(script).await?;
        }
        let texts = texts(sql, &self.variables);
        let params: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        let Some(Connection::Postgres(connection)) = &mut self.connection else {
            return Err(wire::Error::Unsupported("this server has no extended protocol to queue in".into()));
        };
        let executed = match &self.prepared[script][at] {
            Some(Statement::Postgres(statement)) => Executed::Prepared(statement),
            _ => Executed::Text(&sql.numbered),
        };
        connection.queue(executed, &params)
    }

    async fn answers(&mut self, syncs: u32, keeps: bool) -> Result<wire::postgres::Answered, wire::Error> {
        let Some(Connection::Postgres(connection)) = &mut self.connection else { return Err(gone()) };
        connection.queue_sync()?;
        let mut answered = connection.read_queued(syncs, keeps).await?;
        match answered.error.take() {
            Some(error) => Err(wire::Error::Server(error)),
            None => Ok(answered),
        }
    }

    /// A statement whose results are kept.
    async fn sets(&mut self, script: usize, at: usize, sql: &Sql) -> Result<Vec<ResultSet>, wire::Error> {
        if self.plan.mode != QueryMode::Simple && matches!(self.connection, Some(Connection::Postgres(_))) {
            self.queue(script, at, sql).await?;
            return Ok(self.answers(1, true).await?.sets);
        }
        sql.fill(&self.plan.names, &self.variables, &mut self.sql);
        let text = std::mem::take(&mut self.sql);
        let sets = self.connection()?.query_sets(&text).await;
        self.sql = text;
        sets
    }

    /// Puts results into variables: `\gset` the last one, which must have one row, `\aset` the last row of each.
    fn store(&mut self, at: usize, sets: &[ResultSet], prefix: &str, of_all: bool) -> Result<(), Abort> {
        let count = sets.len();
        for (query, set) in sets.iter().enumerate() {
            if !of_all && query + 1 < count {
                continue;
            }
            let wrong =
                |text: String| Abort { command: at, cause: Cause::Result(format!("query {query}: {text}")) };
            if set.columns.is_empty() && !of_all {
                return Err(wrong("expected one row, got 0".to_owned()));
            }
            if !of_all && set.rows.len() != 1 {
                return Err(wrong(format!("expected one row, got {}", set.rows.len())));
            }
            let Some(row) = set.rows.last() else { continue };
            for (column, cell) in set.columns.iter().zip(row) {
                let name = format!("{prefix}{column}");
                if !Names::is_valid(&name) {
                    return Err(wrong(format!("error storing into variable {name}")));
                }
                // One that no script mentions need not be kept.
                let Some(slot) = self.plan.names.find(&name) else { continue };
                let text = cell.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
                self.variables[slot] = Some(Value::Text(text.into()));
            }
        }
        Ok(())
    }

    async fn start_pipeline(&mut self, script: usize, at: usize) -> Result<(), Abort> {
        if self.plan.mode == QueryMode::Simple {
            return Err(meta_named(at, "cannot use pipeline mode with the simple query protocol".to_owned()));
        }
        if matches!(self.connection, Some(Connection::Mysql(_))) {
            return Err(meta_named(at, "this server's protocol has no pipelines".to_owned()));
        }
        if self.plan.mode == QueryMode::Prepared && self.pipeline.is_none() {
            // Its answer would come behind those in flight.
            let prepared = self.prepare_all(script).await;
            prepared.map_err(|error| Abort { command: at, cause: Cause::Sql(error) })?;
        }
        if self.pipeline.replace(Pipeline::default()).is_some() {
            return Err(meta_named(at, "already in pipeline mode".to_owned()));
        }
        Ok(())
    }

    fn sync_pipeline(&mut self, at: usize) -> Result<(), Abort> {
        let (Some(pipeline), Some(Connection::Postgres(connection))) =
            (&mut self.pipeline, &mut self.connection)
        else {
            return Err(meta_named(at, "not in pipeline mode".to_owned()));
        };
        pipeline.syncs += 1;
        connection.queue_sync().map_err(|error| Abort { command: at, cause: Cause::Sql(error) })
    }

    async fn end_pipeline(&mut self, at: usize, watch: &mut impl Watch) -> Result<(), Abort> {
        let Some(pipeline) = self.pipeline.take() else {
            return Err(meta_named(at, "not in pipeline mode".to_owned()));
        };
        let answered = self.answers(pipeline.syncs + 1, false).await;
        answered.map_err(|error| Abort { command: at, cause: Cause::Sql(error) })?;
        for command in pipeline.commands {
            watch.ended(command, Some(StatementKind::Other));
        }
        watch.ended(at, None);
        Ok(())
    }

    fn sleep_units(&self, amount: &Argument, at: usize) -> Result<u64, Abort> {
        let failed = |detail| meta(at, detail, "execution of meta-command failed");
        let text = match amount {
            Argument::Word(word) => word.clone(),
            Argument::Variable(slot) => match &self.variables[*slot] {
                Some(value) => value.to_string(),
                None => {
                    let name = self.plan.names.name(*slot);
                    return Err(failed(Some(format!("sleep: undefined variable \"{name}\""))));
                }
            },
        };
        // Its whole number, as C reads it: what follows is left out.
        let digits = text.trim().find(|c: char| !(c.is_ascii_digit() || c == '-' || c == '+'));
        let number = &text.trim()[..digits.unwrap_or(text.trim().len())];
        Ok(number.parse::<i64>().unwrap_or(0).max(0) as u64)
    }

    /// Runs a shell command; blocks the worker, as it blocks a thread of pgbench's.
    fn shell(&mut self, words: &[Argument], into: Option<usize>, at: usize) -> Result<(), Abort> {
        let failed = |detail: String| meta(at, Some(detail), "execution of meta-command failed");
        let who = if into.is_some() { "setshell" } else { "shell" };
        if !self.plan.allows_shell {
            return Err(failed(format!("\\{who} runs a shell command, which --allow-shell must permit")));
        }
        let mut line = String::new();
        for word in words {
            if !line.is_empty() {
                line.push(' ');
            }
            match word {
                Argument::Word(word) => line.push_str(word),
                Argument::Variable(slot) => match &self.variables[*slot] {
                    Some(value) => line.push_str(&value.to_string()),
                    None => {
                        let name = self.plan.names.name(*slot);
                        return Err(failed(format!("{who}: undefined variable \"{name}\"")));
                    }
                },
            }
        }
        let mut command = std::process::Command::new("sh");
        command.arg("-c").arg(&line);
        let could_not =
            |error: std::io::Error| failed(format!("{line}: could not launch shell command: {error}"));
        let Some(slot) = into else {
            let status = command.status().map_err(could_not)?;
            return if status.success() {
                Ok(())
            } else {
                Err(failed(format!("{line}: the command failed: {status}")))
            };
        };
        let output = command.output().map_err(could_not)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let number = text.trim().parse::<i64>();
        let number = number.map_err(|_| {
            failed(format!("{line}: shell command must return an integer (not \"{}\")", text.trim_end()))
        })?;
        self.set(slot, Value::Int(number), who, at)
    }
}

/// A lost connection.
fn gone() -> wire::Error {
    wire::Error::Io(std::io::Error::new(std::io::ErrorKind::NotConnected, "not connected"))
}

fn meta(command: usize, detail: Option<String>, what: &str) -> Abort {
    Abort { command, cause: Cause::Meta { detail, what: what.to_owned() } }
}

fn meta_named(command: usize, what: String) -> Abort {
    Abort { command, cause: Cause::Meta { detail: None, what } }
}

/// Values of the parameters; `None` was never set.
fn texts(sql: &Sql, variables: &[Option<Value>]) -> Vec<Option<String>> {
    sql.params.iter().map(|slot| variables[*slot].as_ref().map(Value::to_string)).collect()
}

fn value_of(text: &Option<String>) -> wire::Value<'_> {
    text.as_ref().map_or(wire::Value::Null, |text| wire::Value::Bytes(text.as_bytes()))
}

/// The server's error, where that is what ended a script.
impl Abort {
    /// The server's error.
    pub fn server(&self) -> Option<&ServerError> {
        match &self.cause {
            Cause::Sql(wire::Error::Server(error)) => Some(error),
            _ => None,
        }
    }

    /// What it means for the load engine.
    pub fn failure(&self, dialect: &crate::Dialect, script: &Script) -> Failure {
        let own = |text: String| Failure {
            class: load::FailureClass::Other,
            code: "script".to_owned(),
            text,
            retryable: false,
            connection_lost: false,
            fatal: true,
        };
        let at = script.commands.get(self.command);
        let place = at.map_or_else(String::new, |command| format!("{}:{}: ", script.name, command.number));
        match &self.cause {
            Cause::Sql(error) => dialect.failure(error, &[]),
            Cause::Meta { detail, what } => own(format!("{place}{}", detail.as_ref().unwrap_or(what))),
            Cause::Result(what) => own(format!("{place}{what}")),
            Cause::End(what) => own(format!("{}: {what}", script.name)),
        }
    }
}
