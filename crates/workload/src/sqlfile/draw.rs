//! Draws the transactions of a file.

use std::sync::Arc;

use wire::ParamType;

use super::expression::{Scope, Type, Val};
use super::parse::{Only, Script, Sql, Step, Transaction};
use super::{OptionValue, variables};
use crate::engine::statements::Template;
use crate::engine::{Draw, Program, Role, StatementClass};
use crate::random::Rng;
use crate::{Dialect, Flavor};

fn role_of(sql: &str) -> Role {
    let mut words = sql.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    let first = words.next().unwrap_or("").to_ascii_lowercase();
    let second = words.next().unwrap_or("").to_ascii_lowercase();
    match (first.as_str(), second.as_str()) {
        ("begin", _) | ("start", "transaction") => Role::Begin,
        ("commit" | "end", _) => Role::Commit,
        // ROLLBACK TO SAVEPOINT ends nothing.
        ("rollback", "to") => Role::Work,
        ("rollback" | "abort", _) => Role::Rollback,
        _ => Role::Work,
    }
}

/// Statements that servers do not prepare: transaction brackets on MySQL, and on both what is not data
/// manipulation (PostgreSQL prepares only SELECT, INSERT, UPDATE, DELETE, MERGE and VALUES; MySQL manual,
/// "SQL Syntax Permitted in Prepared Statements").
fn is_text_only(sql: &str, role: Role) -> bool {
    const PREPARED: [&str; 8] = ["select", "insert", "update", "delete", "replace", "with", "values", "call"];
    let first = sql.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let first = first.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or("");
    role != Role::Work || !PREPARED.contains(&first.to_ascii_lowercase().as_str())
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
pub(super) fn classes(script: &Script, dialect: &Dialect) -> Vec<StatementClass> {
    let total: u32 = script.transactions.iter().map(|transaction| transaction.weight).sum();
    let of_transaction = |transaction: &Transaction| {
        let per = format!("{} of {total} transactions", transaction.weight);
        let statements = transaction.steps.iter().filter_map(|step| match step {
            Step::Run(sql) if is_for(sql.only, dialect) => Some(sql),
            _ => None,
        });
        let class = |(number, sql)| class(script, transaction, number, sql, &per);
        (1..).zip(statements).map(class).collect::<Vec<_>>()
    };
    script.transactions.iter().flat_map(of_transaction).collect()
}

fn class(script: &Script, transaction: &Transaction, number: usize, sql: &Sql, per: &str) -> StatementClass {
    let name = sql.name.clone().unwrap_or_else(|| format!("{}_{number}", transaction.name));
    let param = |&index: &usize| match script.types[index] {
        Type::Int => ParamType::BigInt,
        Type::Double => ParamType::Double,
        Type::Text => ParamType::Text,
    };
    let params: Vec<ParamType> = sql.params.iter().map(param).collect();
    let names: Vec<String> =
        sql.params.iter().map(|&index| format!(":{}", script.variables[index])).collect();
    let role = role_of(&sql.text);
    let template =
        Template { is_text: is_text_only(&sql.text, role), ..Template::new(sql.text.clone(), &params) };
    StatementClass { role, template, ..StatementClass::work(name, "", &[], per, names.join(", ")) }
}

/// The transactions of a file for one kind of server.
#[derive(Debug)]
pub(super) struct FileTransactions {
    pub(super) script: Arc<Script>,
    /// Of the file's options.
    pub(super) values: Arc<Vec<OptionValue>>,
    pub(super) dialect: Dialect,
}

/// The variables of a session.
#[derive(Debug)]
pub(super) struct Memory {
    rng: Rng,
    variables: Vec<Val>,
    /// Texts of variables, those of options first.
    text: Vec<u8>,
    text_of_options: usize,
    /// Kept for [`Memory::keep_texts`].
    moved: Vec<u8>,
}

impl Memory {
    /// Leaves in the buffer only what variables, of which the first are options, refer to.
    fn keep_texts(&mut self, options: usize) {
        let Memory { variables, text, text_of_options, moved, .. } = self;
        moved.clear();
        for variable in &mut variables[options..] {
            if let Val::Text { start, length } = variable {
                let words = &text[*start as usize..(*start + *length) as usize];
                *start = (*text_of_options + moved.len()) as u32;
                moved.extend_from_slice(words);
            }
        }
        text.truncate(*text_of_options);
        text.extend_from_slice(moved);
    }

    fn push(&self, variable: usize, program: &mut Program) {
        match self.variables[variable] {
            Val::Int(number) => program.signed(number),
            Val::Double(number) => program.double(number),
            Val::Text { start, length } => {
                let words = &self.text[start as usize..(start + length) as usize];
                program.text(|out| out.extend_from_slice(words));
            }
        }
    }
}

impl FileTransactions {
    fn draw_step(
        &self,
        step: &Step,
        class: usize,
        memory: &mut Memory,
        program: &mut Program,
    ) -> Result<(), String> {
        let (expr, line) = match step {
            Step::Run(sql) => {
                sql.params.iter().for_each(|&variable| memory.push(variable, program));
                program.push(class, 0);
                return Ok(());
            }
            Step::Set { expr, line, .. } | Step::Sleep { expr, line, .. } => (expr, line),
        };
        let Memory { variables, rng, text, .. } = memory;
        let mut scope = Scope { variables, rng, text };
        let value = scope.value(expr).map_err(|what| format!("line {line}: {what}"))?;
        match step {
            Step::Set { variable, .. } => variables[*variable] = value,
            Step::Sleep { unit_us, .. } => {
                let us = match value {
                    Val::Int(number) => number as f64 * *unit_us as f64,
                    Val::Double(number) => number * *unit_us as f64,
                    Val::Text { .. } => 0.0,
                };
                program.pause(us.max(0.0) as u64);
            }
            Step::Run(_) => {}
        }
        Ok(())
    }

    fn draw_transaction(&self, memory: &mut Memory, program: &mut Program) -> Result<(), String> {
        let transactions = &self.script.transactions;
        let weights: u64 = transactions.iter().map(|transaction| u64::from(transaction.weight)).sum();
        let mut ticket = memory.rng.uniform(0, weights.saturating_sub(1));
        let mut class = 0;
        for (number, transaction) in transactions.iter().enumerate() {
            let is_drawn = ticket < u64::from(transaction.weight);
            if is_drawn && transactions.len() > 1 {
                program.class(number);
            }
            for step in &transaction.steps {
                let is_statement = match step {
                    Step::Run(sql) if !is_for(sql.only, &self.dialect) => continue,
                    Step::Run(_) => true,
                    Step::Set { .. } | Step::Sleep { .. } => false,
                };
                if is_drawn {
                    self.draw_step(step, class, memory, program)?;
                }
                class += usize::from(is_statement);
            }
            if is_drawn {
                return Ok(());
            }
            ticket -= u64::from(transaction.weight);
        }
        Ok(())
    }
}

impl Draw for FileTransactions {
    type Memory = Memory;

    fn memory(&self, seed: u64, session: u32) -> Memory {
        let mut text = Vec::new();
        let mut variables = variables(&self.script, &self.values, &mut text);
        variables[self.script.options.len() + 1] = Val::Int(i64::from(session));
        Memory {
            rng: Rng::stream(seed, u64::from(session)),
            variables,
            text_of_options: text.len(),
            text,
            moved: Vec::new(),
        }
    }

    fn draw(&self, memory: &mut Memory, program: &mut Program) {
        memory.keep_texts(self.script.options.len());
        if let Err(what) = self.draw_transaction(memory, program) {
            program.mistake(what);
        }
    }
}
