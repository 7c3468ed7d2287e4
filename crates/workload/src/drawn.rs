//! Sessions of workloads whose transactions are drawn whole before they are sent: statements with their parameters
//! in a list. Such a workload consists of its statement [`Kind`]s and a [`Script`] that draws.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use load::{AnySession, Completion, Failure, Recorder, Session, SessionFactory};
use wire::{Done, ParamType, Target, Value};

use crate::link::{Link, LinkPlan};
use crate::random::Rng;
use crate::statements::{StatementPlan, Statements, Template};
use crate::tally::{Change, SessionTally, Tally};
use crate::{Dialect, Needs, StatementDoc};

/// Statements with more parameters than this pay for an allocation.
const VALUES_INLINE: usize = 16;

/// What a statement does for the transaction around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The work itself.
    Statement,
    /// BEGIN.
    Begin,
    /// COMMIT.
    Commit,
    /// LOCK TABLES, in place of BEGIN.
    Lock,
    /// UNLOCK TABLES, in place of COMMIT.
    Unlock,
}

/// A statement class with all that is known about it; its index is that of its figures.
#[derive(Debug, Clone)]
pub(crate) struct Kind {
    name: &'static str,
    sql: String,
    params: Vec<ParamType>,
    role: Role,
    per_transaction: String,
    parameters: &'static str,
    /// What one affected row stands for.
    change: Change,
}

impl Kind {
    /// A statement; `?` for each parameter, `{table}` for the table that is drawn.
    pub(crate) fn statement(
        name: &'static str,
        sql: impl Into<String>,
        params: &[ParamType],
        per_transaction: impl Into<String>,
        parameters: &'static str,
    ) -> Kind {
        Kind {
            name,
            sql: sql.into(),
            params: params.to_vec(),
            role: Role::Statement,
            per_transaction: per_transaction.into(),
            parameters,
            change: Change::default(),
        }
    }

    /// What stands around the statements of a transaction.
    pub(crate) fn bracket(role: Role, name: &'static str, sql: impl Into<String>, per: &str) -> Kind {
        Kind { role, ..Kind::statement(name, sql, &[], per, "") }
    }

    /// The same, with what each affected row changes in the figures of the checks.
    pub(crate) fn changing(self, change: Change) -> Kind {
        Kind { change, ..self }
    }
}

/// A parameter that was drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Drawn {
    Int(i64),
    Text { start: u32, length: u32 },
}

/// A statement that was drawn: its kind, its table, its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Op {
    kind: u32,
    table: u32,
    first: u32,
    count: u32,
}

/// A transaction that was drawn. Its buffers are kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Program {
    ops: Vec<Op>,
    params: Vec<Drawn>,
    text: Vec<u8>,
    /// Parameters that belong to statements already.
    taken: usize,
    span: Option<usize>,
}

impl Program {
    /// Adds a whole number to the parameters of the next statement.
    pub(crate) fn int(&mut self, number: u64) {
        self.params.push(Drawn::Int(number as i64));
    }

    /// Adds what `write` appends to the parameters of the next statement.
    pub(crate) fn text(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.params.push(Drawn::Text { start: start as u32, length: (self.text.len() - start) as u32 });
    }

    /// Ends a statement: of this kind, on this table, with the parameters since the last one.
    pub(crate) fn push(&mut self, kind: usize, table: usize) {
        let (first, count) = (self.taken as u32, (self.params.len() - self.taken) as u32);
        self.ops.push(Op { kind: kind as u32, table: table as u32, first, count });
        self.taken = self.params.len();
    }

    /// The class (counted after the kinds) whose latency is that of the whole transaction.
    pub(crate) fn span(&mut self, class: usize) {
        self.span = Some(class);
    }

    fn clear(&mut self) {
        self.ops.clear();
        self.params.clear();
        self.text.clear();
        self.taken = 0;
        self.span = None;
    }

    fn value(&self, op: Op, index: usize) -> Value<'_> {
        match self.params[op.first as usize + index] {
            Drawn::Int(number) => Value::Int(number),
            Drawn::Text { start, length } => {
                Value::Bytes(&self.text[start as usize..(start + length) as usize])
            }
        }
    }
}

/// What one session remembers between its transactions.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Its stream of random numbers.
    pub(crate) rng: Rng,
    /// Transactions drawn before this one.
    pub(crate) turn: u64,
    /// For the script's own use.
    pub(crate) note: u64,
}

/// Draws transactions.
pub(crate) trait Script: fmt::Debug + Send + Sync + 'static {
    /// Writes the next transaction of a session into an empty program.
    fn draw(&self, memory: &mut Memory, program: &mut Program);
}

/// A workload that is drawn, ready to run.
#[derive(Debug)]
pub(crate) struct Drawing<S> {
    /// Draws.
    pub(crate) script: S,
    /// The server's kind.
    pub(crate) dialect: Dialect,
    /// All statements.
    pub(crate) kinds: Vec<Kind>,
    /// Classes of whole transactions, after those of the statements.
    pub(crate) spans: &'static [&'static str],
    /// The tables that `{table}` may stand for.
    pub(crate) tables: Vec<String>,
    /// Whether statements are prepared.
    pub(crate) is_prepared: bool,
    /// Whether what stands between BEGIN and COMMIT happens as a whole or not at all.
    pub(crate) is_atomic: bool,
    /// Error codes after which the same transaction may be tried again, beyond deadlocks and their like.
    pub(crate) retryable: &'static [&'static str],
    /// A pause of random length after each statement, from and to.
    pub(crate) pause: Option<(Duration, Duration)>,
    /// A pause after each connection.
    pub(crate) connect_pause: Duration,
    /// What sessions changed.
    pub(crate) tally: Arc<Tally>,
}

impl<S: Script> Drawing<S> {
    fn templates(&self) -> Vec<Template> {
        let template = |(class, kind): (usize, &Kind)| match kind.role {
            Role::Statement => Template::new(class, kind.sql.clone(), &kind.params),
            _ => Template::text(class, kind.sql.clone(), &kind.params),
        };
        self.kinds.iter().enumerate().map(template).collect()
    }

    fn statement_plan(&self) -> StatementPlan {
        let tables = if self.tables.is_empty() { vec![String::new()] } else { self.tables.clone() };
        StatementPlan::new(&self.dialect, self.templates(), tables, self.is_prepared)
    }

    /// What so many sessions will ask of the server.
    pub(crate) fn needs(&self, sessions: u32) -> Needs {
        Needs {
            connections: sessions,
            prepared_statements: self.statement_plan().prepared_per_session() as u64 * u64::from(sessions),
            local_infile: self.dialect.syntax().has_engines,
        }
    }

    /// Names of the classes.
    pub(crate) fn classes(&self) -> Vec<String> {
        self.kinds.iter().map(|kind| kind.name).chain(self.spans.iter().copied()).map(str::to_owned).collect()
    }

    /// The statements for people. `table` stands for what is drawn.
    pub(crate) fn documentation(&self, table: &str) -> Vec<StatementDoc> {
        let doc = |kind: &Kind| StatementDoc {
            class: kind.name.to_owned(),
            sql: self.dialect.placeholders(&kind.sql.replace("{table}", table)),
            per_transaction: kind.per_transaction.clone(),
            parameters: kind.parameters.to_owned(),
        };
        self.kinds.iter().map(doc).collect()
    }
}

/// The sessions of a run.
pub(crate) fn sessions<S: Script>(
    drawing: &Arc<Drawing<S>>,
    target: &Target,
    seed: u64,
) -> Box<dyn SessionFactory> {
    let link = LinkPlan {
        target: target.clone(),
        dialect: drawing.dialect.clone(),
        setup: Vec::new(),
        retryable: drawing.retryable,
    };
    Box::new(Factory {
        statements: Arc::new(drawing.statement_plan()),
        link: Arc::new(link),
        drawing: Arc::clone(drawing),
        seed,
    })
}

struct Factory<S> {
    drawing: Arc<Drawing<S>>,
    link: Arc<LinkPlan>,
    statements: Arc<StatementPlan>,
    seed: u64,
}

impl<S: Script> SessionFactory for Factory<S> {
    fn statement_classes(&self) -> Vec<String> {
        self.drawing.classes()
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        Box::new(DrawnSession {
            memory: Memory { rng: Rng::stream(self.seed, u64::from(index)), turn: 0, note: 0 },
            link: Link::new(Arc::clone(&self.link)),
            statements: Statements::new(Arc::clone(&self.statements)),
            tally: SessionTally::new(Arc::clone(&self.drawing.tally)),
            drawing: Arc::clone(&self.drawing),
            program: Program::default(),
            unlock: None,
        })
    }
}

struct DrawnSession<S> {
    drawing: Arc<Drawing<S>>,
    memory: Memory,
    link: Link,
    statements: Statements,
    tally: SessionTally,
    program: Program,
    /// What takes back the locks that are held.
    unlock: Option<usize>,
}

impl<S: Script> DrawnSession<S> {
    /// One statement on the wire, nothing else.
    async fn send(&mut self, op: Op) -> Result<Done, Failure> {
        let DrawnSession { link, statements, program, .. } = self;
        let (kind, table, count) = (op.kind as usize, op.table as usize, op.count as usize);
        let connection = link.connection()?;
        let sent = if count <= VALUES_INLINE {
            let mut values = [Value::Null; VALUES_INLINE];
            for (index, value) in values[..count].iter_mut().enumerate() {
                *value = program.value(op, index);
            }
            statements.execute(connection, kind, table, &values[..count]).await
        } else {
            let values: Vec<Value<'_>> = (0..count).map(|index| program.value(op, index)).collect();
            statements.execute(connection, kind, table, &values).await
        };
        sent.map_err(|error| link.failed(error))
    }

    /// A statement of the work: what it changes counts at once, or with the COMMIT.
    async fn work(&mut self, op: Op, is_held: bool) -> Result<Done, Failure> {
        let change = self.drawing.kinds[op.kind as usize].change;
        if !is_held {
            self.tally.sending(change);
        }
        let done = self.send(op).await?;
        let rows = done.affected_rows as i64;
        let changed = Change { rows: change.rows * rows, k: change.k * rows };
        if is_held {
            self.tally.changed(changed);
        } else {
            self.tally.sent(changed);
        }
        Ok(done)
    }

    async fn step(&mut self, op: Op, is_held: &mut bool) -> Result<Done, Failure> {
        match self.drawing.kinds[op.kind as usize].role {
            Role::Statement => self.work(op, *is_held).await,
            Role::Begin => {
                *is_held = self.drawing.is_atomic;
                self.tally.begin();
                self.link.begin().await
            }
            Role::Commit => {
                if *is_held {
                    self.tally.committing();
                }
                let done = self.link.commit().await?;
                if *is_held {
                    self.tally.committed();
                }
                *is_held = false;
                Ok(done)
            }
            Role::Lock => {
                self.unlock = self.drawing.kinds.iter().position(|kind| kind.role == Role::Unlock);
                self.send(op).await
            }
            Role::Unlock => {
                let done = self.send(op).await?;
                self.unlock = None;
                Ok(done)
            }
        }
    }

    async fn attempt(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        let start = self.program.span.map(|class| (class, recorder.now()));
        let mut is_held = false;
        for index in 0..self.program.ops.len() {
            let op = self.program.ops[index];
            let done = self.step(op, &mut is_held).await?;
            recorder.lap(op.kind as usize, done.kind());
            if let Some((shortest, longest)) = self.drawing.pause {
                let pause_us =
                    self.memory.rng.uniform(shortest.as_micros() as u64, longest.as_micros() as u64);
                load::time::sleep(Duration::from_micros(pause_us)).await;
                recorder.restart();
            }
        }
        if let Some((class, start)) = start {
            recorder.span(self.drawing.kinds.len() + class, start, recorder.now());
        }
        Ok(())
    }
}

impl<S: Script> Session for DrawnSession<S> {
    async fn open(&mut self) -> Result<(), Failure> {
        self.unlock = None;
        self.link.open().await?;
        let opened = self.statements.open(self.link.connection()?).await;
        opened.map_err(|error| self.link.failure(&error))?;
        if !self.drawing.connect_pause.is_zero() {
            load::time::sleep(self.drawing.connect_pause).await;
        }
        Ok(())
    }

    fn prepare(&mut self) {
        self.program.clear();
        self.drawing.script.draw(&mut self.memory, &mut self.program);
        self.memory.turn += 1;
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        match self.attempt(recorder).await {
            Ok(()) => Ok(Completion::Committed),
            Err(failure) => {
                self.tally.failed(failure.connection_lost);
                Err(failure)
            }
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        if let Some(kind) = self.unlock.take() {
            let sql = self.drawing.kinds[kind].sql.clone();
            self.link.text(&sql).await?;
        }
        self.link.recover().await
    }

    async fn close(&mut self) {
        self.link.close().await;
    }
}

/// What tests look at in a drawn transaction.
#[cfg(test)]
pub(crate) mod seen {
    use super::{Drawing, Memory, Program, Script};
    use crate::random::Rng;
    use wire::Value;

    /// A session's memory, fresh.
    pub(crate) fn memory(seed: u64) -> Memory {
        Memory { rng: Rng::stream(seed, 0), turn: 0, note: 0 }
    }

    /// The next transaction: names of the statements with their parameters as text.
    pub(crate) fn transaction<S: Script>(
        drawing: &Drawing<S>,
        memory: &mut Memory,
    ) -> Vec<(&'static str, Vec<String>)> {
        let mut program = Program::default();
        drawing.script.draw(memory, &mut program);
        memory.turn += 1;
        let text = |value: Value<'_>| match value {
            Value::Int(number) => number.to_string(),
            Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        };
        let ops = program.ops.iter();
        ops.map(|op| {
            let kind = &drawing.kinds[op.kind as usize];
            assert_eq!(kind.params.len(), op.count as usize, "parameters of {}", kind.name);
            (kind.name, (0..op.count as usize).map(|index| text(program.value(*op, index))).collect())
        })
        .collect()
    }
}
