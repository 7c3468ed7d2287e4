//! Sessions that run the transactions of a file.

use std::sync::Arc;
use std::time::Duration;

use load::{AnySession, Completion, Failure, FailureClass, Recorder, Session, SessionFactory};
use wire::{Done, ParamType, Value};

use super::expression::{Scope, Type, Val};
use super::parse::{Only, Script, Step};
use super::{OptionValue, variables};
use crate::link::{Link, LinkPlan};
use crate::random::Rng;
use crate::statements::{StatementPlan, Statements, Template};
use crate::{Dialect, Flavor};

/// What a statement does to the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    None,
    Begin,
    Commit,
    Rollback,
}

fn bracket_of(sql: &str) -> Bracket {
    let mut words = sql.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or("").to_ascii_lowercase();
    let second = words.next().unwrap_or("").to_ascii_lowercase();
    match (first.as_str(), second.as_str()) {
        ("begin", _) | ("start", "transaction") => Bracket::Begin,
        ("commit" | "end", _) => Bracket::Commit,
        // ROLLBACK TO SAVEPOINT ends nothing.
        ("rollback", "to") => Bracket::None,
        ("rollback" | "abort", _) => Bracket::Rollback,
        _ => Bracket::None,
    }
}

/// Whether a statement marked so is for this family.
pub(super) fn is_for(only: Only, dialect: &Dialect) -> bool {
    match only {
        Only::Any => true,
        Only::Mysql => dialect.flavor != Flavor::Postgres,
        Only::Postgres => dialect.flavor == Flavor::Postgres,
    }
}

/// The statements of a file for one kind of server.
#[derive(Debug)]
pub(super) struct Plan {
    classes: Vec<String>,
    brackets: Vec<Bracket>,
    statements: Arc<StatementPlan>,
    dialect: Dialect,
    weights_total: u64,
}

impl Plan {
    pub(super) fn new(script: &Script, dialect: &Dialect, is_prepared: bool) -> Plan {
        let (mut classes, mut brackets, mut templates) = (Vec::new(), Vec::new(), Vec::new());
        for transaction in &script.transactions {
            let statements = transaction.steps.iter().filter_map(|step| match step {
                Step::Run(sql) if is_for(sql.only, dialect) => Some(sql),
                _ => None,
            });
            for (number, sql) in (1..).zip(statements) {
                let class = sql.name.clone().unwrap_or_else(|| format!("{}_{number}", transaction.name));
                let bracket = bracket_of(&sql.text);
                let params: Vec<ParamType> = sql
                    .params
                    .iter()
                    .map(|&index| match script.types[index] {
                        Type::Int => ParamType::BigInt,
                        Type::Double => ParamType::Double,
                        Type::Text => ParamType::Text,
                    })
                    .collect();
                let template = Template::new(classes.len(), sql.text.clone(), &params);
                templates.push(Template { is_text: is_text_only(&sql.text, bracket), ..template });
                classes.push(class);
                brackets.push(bracket);
            }
        }
        let statements = StatementPlan::new(dialect, templates, vec![String::new()], is_prepared);
        Plan {
            classes,
            brackets,
            statements: Arc::new(statements),
            dialect: dialect.clone(),
            weights_total: script.transactions.iter().map(|t| u64::from(t.weight)).sum(),
        }
    }

    pub(super) fn classes(&self) -> &[String] {
        &self.classes
    }

    pub(super) fn prepared_per_session(&self) -> usize {
        self.statements.prepared_per_session()
    }
}

/// Statements that servers do not prepare: transaction brackets on MySQL, and on both what is not data
/// manipulation (PostgreSQL prepares only SELECT, INSERT, UPDATE, DELETE, MERGE and VALUES; MySQL manual,
/// "SQL Syntax Permitted in Prepared Statements").
fn is_text_only(sql: &str, bracket: Bracket) -> bool {
    const PREPARED: [&str; 8] = ["select", "insert", "update", "delete", "replace", "with", "values", "call"];
    let first = sql.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let first = first.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    bracket != Bracket::None || !PREPARED.contains(&first.to_ascii_lowercase().as_str())
}

/// Makes the sessions of a run.
#[derive(Debug)]
pub(super) struct Factory {
    pub(super) plan: Arc<Plan>,
    pub(super) script: Arc<Script>,
    pub(super) values: Arc<Vec<OptionValue>>,
    pub(super) link: Arc<LinkPlan>,
    pub(super) seed: u64,
}

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        self.plan.classes.clone()
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        let mut text = Vec::new();
        let mut variables = variables(&self.script, &self.values, &mut text);
        variables[self.script.options.len() + 1] = Val::Int(i64::from(index));
        Box::new(FileSession {
            rng: Rng::stream(self.seed, u64::from(index)),
            link: Link::new(Arc::clone(&self.link)),
            statements: Statements::new(Arc::clone(&self.plan.statements)),
            plan: Arc::clone(&self.plan),
            script: Arc::clone(&self.script),
            text_kept: text.len(),
            text,
            variables,
            ops: Vec::new(),
            params: Vec::new(),
            mistake: None,
        })
    }
}

/// A step that was drawn.
#[derive(Debug, Clone, Copy)]
enum Op {
    /// Template and its parameters.
    Run { template: usize, first: usize, count: usize },
    /// Microseconds.
    Sleep(u64),
}

struct FileSession {
    rng: Rng,
    link: Link,
    statements: Statements,
    plan: Arc<Plan>,
    script: Arc<Script>,
    variables: Vec<Val>,
    text: Vec<u8>,
    /// The texts of options, which stay.
    text_kept: usize,
    ops: Vec<Op>,
    params: Vec<Val>,
    /// What is wrong with an expression for the values that were drawn.
    mistake: Option<String>,
}

impl FileSession {
    /// Draws the next transaction's steps.
    fn draw(&mut self) -> Result<(), String> {
        let FileSession { rng, plan, script, variables, text, ops, params, .. } = self;
        let mut ticket = rng.uniform(0, plan.weights_total.saturating_sub(1));
        let mut template = 0;
        for transaction in &script.transactions {
            let is_drawn = ticket < u64::from(transaction.weight);
            for step in &transaction.steps {
                match step {
                    Step::Run(sql) if is_for(sql.only, &plan.dialect) => {
                        if is_drawn {
                            let first = params.len();
                            params.extend(sql.params.iter().map(|&index| variables[index]));
                            ops.push(Op::Run { template, first, count: sql.params.len() });
                        }
                        template += 1;
                    }
                    Step::Set { variable, expr, line } if is_drawn => {
                        let mut scope = Scope { variables, rng, text };
                        let value = scope.value(expr).map_err(|what| format!("line {line}: {what}"))?;
                        variables[*variable] = value;
                    }
                    Step::Sleep { expr, unit_us, line } if is_drawn => {
                        let mut scope = Scope { variables, rng, text };
                        let value = scope.value(expr).map_err(|what| format!("line {line}: {what}"))?;
                        let us = match value {
                            Val::Int(number) => number as f64 * *unit_us as f64,
                            Val::Double(number) => number * *unit_us as f64,
                            Val::Text { .. } => 0.0,
                        };
                        ops.push(Op::Sleep(us.max(0.0) as u64));
                    }
                    _ => {}
                }
            }
            if is_drawn {
                return Ok(());
            }
            ticket -= u64::from(transaction.weight);
        }
        Ok(())
    }

    async fn send(&mut self, template: usize, first: usize, count: usize) -> Result<Done, Failure> {
        let FileSession { link, statements, plan, params, text, .. } = self;
        let sql = plan.statements.templates()[template].sql.as_str();
        match plan.brackets[template] {
            Bracket::Begin => return link.begin_as(sql).await,
            Bracket::Commit => return link.commit_as(sql).await,
            Bracket::Rollback => return link.rollback().await,
            Bracket::None => {}
        }
        let connection = link.connection()?;
        let drawn = &params[first..first + count];
        let sent = if count <= VALUES_INLINE {
            let mut values = [Value::Null; VALUES_INLINE];
            for (value, val) in values.iter_mut().zip(drawn) {
                *value = as_value(*val, text);
            }
            statements.execute(connection, template, 0, &values[..count]).await
        } else {
            let values: Vec<Value<'_>> = drawn.iter().map(|val| as_value(*val, text)).collect();
            statements.execute(connection, template, 0, &values).await
        };
        sent.map_err(|error| link.failed(error))
    }
}

/// Statements with more parameters than this pay for an allocation.
const VALUES_INLINE: usize = 16;

fn as_value(val: Val, text: &[u8]) -> Value<'_> {
    match val {
        Val::Int(number) => Value::Int(number),
        Val::Double(number) => Value::Double(number),
        Val::Text { start, length } => Value::Bytes(&text[start as usize..(start + length) as usize]),
    }
}

impl Session for FileSession {
    async fn open(&mut self) -> Result<(), Failure> {
        self.link.open().await?;
        let opened = self.statements.open(self.link.connection()?).await;
        opened.map_err(|error| self.link.failure(&error))
    }

    fn prepare(&mut self) {
        self.text.truncate(self.text_kept);
        self.ops.clear();
        self.params.clear();
        self.mistake = self.draw().err();
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        if let Some(mistake) = &self.mistake {
            return Err(Failure {
                class: FailureClass::Other,
                code: "expression".to_owned(),
                text: mistake.clone(),
                retryable: false,
                connection_lost: false,
                fatal: true,
            });
        }
        let mut completion = Completion::Committed;
        for index in 0..self.ops.len() {
            match self.ops[index] {
                Op::Run { template, first, count } => {
                    let done = self.send(template, first, count).await?;
                    recorder.lap(template, done.kind());
                    completion = match self.plan.brackets[template] {
                        Bracket::Rollback => Completion::RolledBack,
                        _ => Completion::Committed,
                    };
                }
                Op::Sleep(us) => {
                    load::time::sleep(Duration::from_micros(us)).await;
                    recorder.restart();
                }
            }
        }
        if self.link.is_in_transaction() {
            // A file that begins and does not end leaves nothing behind for the next transaction.
            self.link.rollback().await?;
            completion = Completion::RolledBack;
        }
        Ok(completion)
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        self.link.recover().await
    }

    async fn close(&mut self) {
        self.link.close().await;
    }
}
