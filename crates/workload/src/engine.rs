//! How workloads run whose transactions are drawn whole before they are sent. Such a workload is data, a
//! [`DrawnWorkload`], and a [`Draw`] that writes a transaction into a [`Program`]; [`runner`] sends it.

pub mod ids;
pub(crate) mod link;
pub(crate) mod program;
mod runner;
pub(crate) mod statements;
pub(crate) mod sums;
pub(crate) mod tally;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use load::SessionFactory;
use wire::{ParamType, Target};

use crate::{Dialect, Needs, StatementDoc};
use link::LinkPlan;
pub(crate) use program::Program;
use statements::{StatementPlan, Template};
use tally::{Change, Tally};

/// What a statement does to the transaction around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The work itself.
    Work,
    Begin,
    Commit,
    Rollback,
    /// LOCK TABLES, in place of BEGIN.
    Lock,
    /// UNLOCK TABLES, in place of COMMIT.
    Unlock,
}

/// A statement with all that is known about it; its index is that of its figures.
#[derive(Debug, Clone)]
pub(crate) struct StatementClass {
    pub(crate) name: String,
    pub(crate) template: Template,
    pub(crate) role: Role,
    /// How often it is run, for people.
    pub(crate) per_transaction: String,
    /// What its parameters are, for people.
    pub(crate) parameters: String,
    /// What one affected row changes in the figures of the checks.
    pub(crate) change: Change,
}

impl StatementClass {
    /// A statement of the work; `?` for each parameter, `{table}` for the table that is drawn.
    pub(crate) fn work(
        name: impl Into<String>,
        sql: impl Into<String>,
        params: &[ParamType],
        per_transaction: impl Into<String>,
        parameters: impl Into<String>,
    ) -> StatementClass {
        StatementClass {
            name: name.into(),
            template: Template::new(sql, params),
            role: Role::Work,
            per_transaction: per_transaction.into(),
            parameters: parameters.into(),
            change: Change::default(),
        }
    }

    /// What stands around the statements of a transaction. Sent as text: MySQL does not prepare it.
    pub(crate) fn bracket(role: Role, name: &str, sql: impl Into<String>, per: &str) -> StatementClass {
        StatementClass { role, ..StatementClass::work(name, sql, &[], per, "").never_prepared() }
    }

    pub(crate) fn begin(per: &str) -> StatementClass {
        StatementClass::bracket(Role::Begin, "begin", "BEGIN", per)
    }

    pub(crate) fn commit(per: &str) -> StatementClass {
        StatementClass::bracket(Role::Commit, "commit", "COMMIT", per)
    }

    /// The same, with what each affected row changes in the figures of the checks.
    pub(crate) fn changing(self, rows: i64, k: i64) -> StatementClass {
        StatementClass { change: Change { rows, k }, ..self }
    }

    /// The same, sent as text whatever the user wants.
    pub(crate) fn never_prepared(mut self) -> StatementClass {
        self.template.is_text = true;
        self
    }
}

/// Draws transactions.
pub(crate) trait Draw: fmt::Debug + Send + Sync + 'static {
    /// What a session remembers from one transaction to the next: its random numbers at least.
    type Memory: 'static;

    /// That of a session before its first transaction.
    fn memory(&self, seed: u64, session: u32) -> Self::Memory;

    /// Adds a session's next transaction to the program.
    fn draw(&self, memory: &mut Self::Memory, program: &mut Program);
}

/// A workload that is drawn, with its options fixed for one kind of server.
#[derive(Debug)]
pub(crate) struct DrawnWorkload<D> {
    pub(crate) draw: D,
    pub(crate) dialect: Dialect,
    pub(crate) classes: Vec<StatementClass>,
    /// Classes of whole transactions, after those of the statements.
    pub(crate) transactions: Vec<String>,
    /// The tables that `{table}` may stand for.
    pub(crate) tables: Vec<String>,
    /// Whether statements are prepared.
    pub(crate) is_prepared: bool,
    /// Whether what stands between BEGIN and COMMIT happens as a whole or not at all.
    pub(crate) is_atomic: bool,
    /// Statements of each new connection.
    pub(crate) setup: Vec<String>,
    /// Error codes after which the same transaction may be tried again, beyond deadlocks and their like.
    pub(crate) retryable: &'static [&'static str],
    /// A pause after each connection.
    pub(crate) connect_pause: Duration,
    /// After so many transactions the connection is opened anew. 0: never.
    pub(crate) reconnect: u64,
    /// What sessions changed.
    pub(crate) tally: Arc<Tally>,
}

impl<D> DrawnWorkload<D> {
    /// One of prepared statements, without tables to choose from, set-up or pauses.
    pub(crate) fn new(draw: D, dialect: Dialect, classes: Vec<StatementClass>) -> DrawnWorkload<D> {
        DrawnWorkload {
            draw,
            dialect,
            classes,
            transactions: Vec::new(),
            tables: Vec::new(),
            is_prepared: true,
            is_atomic: true,
            setup: Vec::new(),
            retryable: &[],
            connect_pause: Duration::ZERO,
            reconnect: 0,
            tally: Arc::default(),
        }
    }

    fn statement_plan(&self) -> StatementPlan {
        let templates = self.classes.iter().map(|class| class.template.clone()).collect();
        let tables = if self.tables.is_empty() { vec![String::new()] } else { self.tables.clone() };
        StatementPlan::new(&self.dialect, templates, tables, self.is_prepared)
    }

    /// What so many sessions will ask of the server.
    pub(crate) fn needs(&self, sessions: u32) -> Needs {
        Needs {
            connections: sessions,
            prepared_statements: self.statement_plan().prepared_per_session() as u64 * u64::from(sessions),
        }
    }

    /// Names of the classes.
    pub(crate) fn class_names(&self) -> Vec<String> {
        let statements = self.classes.iter().map(|class| class.name.clone());
        statements.chain(self.transactions.iter().cloned()).collect()
    }

    /// The statements for people. `table` stands for what is drawn.
    pub(crate) fn documentation(&self, table: &str) -> Vec<StatementDoc> {
        let doc = |class: &StatementClass| StatementDoc {
            class: class.name.clone(),
            sql: self.dialect.placeholders(&class.template.sql.replace("{table}", table)),
            per_transaction: class.per_transaction.clone(),
            parameters: class.parameters.clone(),
        };
        self.classes.iter().map(doc).collect()
    }
}

/// The sessions of a run.
pub(crate) fn sessions<D: Draw>(
    workload: &Arc<DrawnWorkload<D>>,
    target: &Target,
    seed: u64,
) -> Box<dyn SessionFactory> {
    let link = LinkPlan {
        target: target.clone(),
        dialect: workload.dialect.clone(),
        setup: workload.setup.clone(),
        retryable: workload.retryable,
    };
    Box::new(runner::Factory {
        statements: Arc::new(workload.statement_plan()),
        link: Arc::new(link),
        workload: Arc::clone(workload),
        seed,
    })
}

/// What tests look at in drawn transactions.
#[cfg(test)]
pub(crate) mod seen {
    use super::program::Step;
    use super::{Draw, DrawnWorkload, Program};
    use wire::Value;

    fn text(value: Value<'_>) -> String {
        match value {
            Value::Int(number) => number.to_string(),
            Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            other => format!("{other:?}"),
        }
    }

    /// The next transaction: names of the statements with their parameters as text.
    pub(crate) fn transaction<'w, D: Draw>(
        workload: &'w DrawnWorkload<D>,
        memory: &mut D::Memory,
    ) -> Vec<(&'w str, Vec<String>)> {
        let mut program = Program::default();
        workload.draw.draw(memory, &mut program);
        let mut statements = Vec::new();
        for step in program.steps() {
            let Step::Statement(statement) = *step else { continue };
            let class = &workload.classes[statement.class as usize];
            let values: Vec<String> =
                program.with_values(statement, |values| values.iter().copied().map(text).collect());
            assert_eq!(class.template.params.len(), values.len(), "parameters of {}", class.name);
            statements.push((class.name.as_str(), values));
        }
        statements
    }

    /// FNV-1a over everything that session 3 draws from seed 7 in 300 transactions.
    pub(crate) fn checksum<D: Draw>(workload: &DrawnWorkload<D>) -> u64 {
        let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |line: String| {
            for byte in line.bytes().chain([b'\n']) {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        let mut memory = workload.draw.memory(7, 3);
        let mut program = Program::default();
        for _ in 0..300 {
            program.advance(|program| workload.draw.draw(&mut memory, program));
            assert_eq!(program.present_mistake(), None);
            for index in program.present() {
                match program.step(index) {
                    Step::Pause { us } => add(format!("pause {us}")),
                    Step::Statement(statement) => program.with_values(statement, |values| {
                        let values: String = values.iter().map(|value| text(*value) + ";").collect();
                        let name = &workload.classes[statement.class as usize].name;
                        add(format!("{name}|{}|{values}", statement.table));
                    }),
                }
            }
            add(format!("-- {:?}", program.present_class()));
        }
        sum
    }
}
