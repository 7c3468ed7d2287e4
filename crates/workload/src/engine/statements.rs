//! The statements of one session: prepared once for each table, or rendered as text where the user wants no
//! prepared statements.

use std::collections::{HashMap, VecDeque};
use std::io::Write as _;
use std::sync::Arc;

use load::net::Socket;
use wire::{Connection, Done, ParamType, Row, Started, Statement, Value};

use crate::Dialect;
use crate::random::digits;

/// A session keeps at most this many statements prepared. Beyond it statements are prepared when they are first
/// wanted and the oldest is closed, so that thousands of tables do not exhaust the server
/// (`max_prepared_stmt_count` is for all sessions together).
pub(crate) const PREPARED_MAX: usize = 512;

/// One statement of a workload, written once; `{table}` stands for the table's name, `?` for a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    /// The text.
    pub(crate) sql: String,
    /// One type for each `?`.
    pub(crate) params: Vec<ParamType>,
    /// Sent by the text protocol whatever the user wants (what cannot be prepared everywhere, or is not by the
    /// workload's definition).
    pub(crate) is_text: bool,
}

impl Template {
    /// A statement that is prepared.
    pub(crate) fn new(sql: impl Into<String>, params: &[ParamType]) -> Template {
        Template { sql: sql.into(), params: params.to_vec(), is_text: false }
    }
}

/// The statements of a workload for a number of tables: what all its sessions share.
#[derive(Debug)]
pub(crate) struct StatementPlan {
    templates: Vec<Template>,
    tables: Vec<String>,
    dialect: Dialect,
    is_prepared: bool,
}

impl StatementPlan {
    /// `tables` are the names that `{table}` stands for; at least one, be it unused.
    pub(crate) fn new(
        dialect: &Dialect,
        templates: Vec<Template>,
        tables: Vec<String>,
        is_prepared: bool,
    ) -> StatementPlan {
        debug_assert!(templates.iter().all(|t| t.sql.matches('?').count() == t.params.len()));
        StatementPlan { templates, tables, dialect: dialect.clone(), is_prepared }
    }

    /// The statement's text for a table as it is sent to prepare it.
    pub(crate) fn sql(&self, template: usize, table: usize) -> String {
        self.dialect.placeholders(&self.templates[template].sql.replace("{table}", &self.tables[table]))
    }

    fn tables_of(&self, template: &Template) -> usize {
        if template.sql.contains("{table}") { self.tables.len() } else { 1 }
    }

    /// Statements that each session prepares when it has seen all tables.
    pub(crate) fn prepared_per_session(&self) -> usize {
        if !self.is_prepared {
            return 0;
        }
        let all: usize = self.templates.iter().filter(|t| !t.is_text).map(|t| self.tables_of(t)).sum();
        all.min(PREPARED_MAX)
    }
}

/// The statements of one session.
#[derive(Debug)]
pub(crate) struct Statements {
    plan: Arc<StatementPlan>,
    /// How many the plan has: here, because the plan's memory is another line to wait for with each statement.
    tables: usize,
    /// By template, then table; filled when the connection is opened, where all statements fit.
    all: Vec<Option<Statement>>,
    /// The same by number, filled when wanted, where they do not.
    late: HashMap<usize, Statement>,
    /// The keys of `late`, oldest first.
    order: VecDeque<usize>,
    text: Vec<u8>,
}

impl Statements {
    /// None prepared yet.
    pub(crate) fn new(plan: Arc<StatementPlan>) -> Statements {
        let tables = plan.tables.len();
        let (all, late, order) = (Vec::new(), HashMap::new(), VecDeque::new());
        Statements { plan, tables, all, late, order, text: Vec::new() }
    }

    /// Prepares all statements where they fit; called with each new connection.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) async fn open(&mut self, connection: &mut Connection<Socket>) -> Result<(), wire::Error> {
        self.all.clear();
        self.late.clear();
        self.order.clear();
        let plan = Arc::clone(&self.plan);
        let wanted: usize = plan.templates.iter().filter(|t| !t.is_text).map(|t| plan.tables_of(t)).sum();
        if !plan.is_prepared || wanted > PREPARED_MAX {
            return Ok(());
        }
        let tables = self.tables;
        self.all.resize_with(plan.templates.len() * tables, || None);
        for (index, template) in plan.templates.iter().enumerate().filter(|(_, t)| !t.is_text) {
            for table in 0..plan.tables_of(template) {
                let statement = connection.prepare(&plan.sql(index, table), &template.params).await?;
                self.all[index * tables + table] = Some(statement);
            }
        }
        Ok(())
    }

    fn is_sent_as_text(&self, template: usize) -> bool {
        !self.plan.is_prepared || self.plan.templates[template].is_text
    }

    #[inline]
    fn slot(&self, template: usize, table: usize) -> usize {
        template * self.tables + table
    }

    /// Whether [`Statements::start`] can be called: otherwise after [`Statements::prepare`].
    #[inline]
    pub(crate) fn is_ready(&self, template: usize, table: usize) -> bool {
        let slot = self.slot(template, table);
        slot < self.all.len() || self.is_sent_as_text(template) || self.late.contains_key(&slot)
    }

    /// Prepares a statement, and makes room for it.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) async fn prepare(
        &mut self,
        connection: &mut Connection<Socket>,
        template: usize,
        table: usize,
    ) -> Result<(), wire::Error> {
        if self.is_ready(template, table) {
            return Ok(());
        }
        if self.order.len() >= PREPARED_MAX
            && let Some(oldest) = self.order.pop_front().and_then(|slot| self.late.remove(&slot))
        {
            connection.close_statement(oldest).await?;
        }
        let params = &self.plan.templates[template].params;
        let statement = connection.prepare(&self.plan.sql(template, table), params).await?;
        let slot = self.slot(template, table);
        self.late.insert(slot, statement);
        self.order.push_back(slot);
        Ok(())
    }

    /// The prepared statement, if there is one.
    #[inline]
    pub(crate) fn find(&mut self, template: usize, table: usize) -> Option<&mut Statement> {
        let slot = self.slot(template, table);
        match self.all.get_mut(slot) {
            Some(statement) => statement.as_mut(),
            None => self.late.get_mut(&slot),
        }
    }

    fn prepared(&mut self, template: usize, table: usize) -> Result<&mut Statement, wire::Error> {
        let found = self.find(template, table);
        found.ok_or_else(not_prepared)
    }

    /// Sends a statement on a table, as far as that goes without waiting: the values need not live as long as the
    /// answer takes. [`Statements::finish`] must follow.
    ///
    /// # Errors
    /// A value does not fit; nothing was sent.
    #[inline(always)]
    pub(crate) fn start(
        &mut self,
        connection: &mut Connection<Socket>,
        template: usize,
        table: usize,
        values: &[Value<'_>],
    ) -> Result<Started, wire::Error> {
        match self.all.get(self.slot(template, table)) {
            Some(Some(statement)) => connection.start(statement, values),
            _ => self.start_other(connection, template, table, values),
        }
    }

    /// [`Statements::start`] of what is sent as text or was prepared late.
    #[inline(never)]
    fn start_other(
        &mut self,
        connection: &mut Connection<Socket>,
        template: usize,
        table: usize,
        values: &[Value<'_>],
    ) -> Result<Started, wire::Error> {
        if self.is_sent_as_text(template) {
            self.render(template, table, values);
            return connection.start_query(as_text(&self.text)?);
        }
        connection.start(self.prepared(template, table)?, values)
    }

    /// Reads the answer to a statement that was started; rows are skipped.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub(crate) fn finish<'a>(
        &'a mut self,
        connection: &'a mut Connection<Socket>,
        template: usize,
        table: usize,
        started: Started,
    ) -> impl Future<Output = Result<Done, wire::Error>> + 'a {
        connection.finish(self.find(template, table), started)
    }

    /// Runs a statement on a table; rows are skipped.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub(crate) async fn execute(
        &mut self,
        connection: &mut Connection<Socket>,
        template: usize,
        table: usize,
        values: &[Value<'_>],
    ) -> Result<Done, wire::Error> {
        self.prepare(connection, template, table).await?;
        let started = self.start(connection, template, table, values)?;
        self.finish(connection, template, table, started).await
    }

    /// [`Statements::execute`] that shows each row.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) async fn execute_rows(
        &mut self,
        connection: &mut Connection<Socket>,
        template: usize,
        table: usize,
        values: &[Value<'_>],
        on_row: &mut dyn FnMut(&Row<'_>),
    ) -> Result<Done, wire::Error> {
        if self.is_sent_as_text(template) {
            self.render(template, table, values);
            return connection.query_rows(as_text(&self.text)?, on_row).await;
        }
        self.prepare(connection, template, table).await?;
        let statement = self.prepared(template, table)?;
        connection.execute_rows(statement, values, on_row).await
    }

    /// Writes the statement with its values as literals into the text buffer.
    fn render(&mut self, template: usize, table: usize, values: &[Value<'_>]) {
        let Statements { plan, text, .. } = self;
        text.clear();
        render(&plan.dialect, &plan.templates[template].sql, &plan.tables[table], values, text);
    }
}

#[cold]
fn not_prepared() -> wire::Error {
    wire::Error::Unsupported("a statement was not prepared".to_owned())
}

fn as_text(bytes: &[u8]) -> Result<&str, wire::Error> {
    std::str::from_utf8(bytes)
        .map_err(|_| wire::Error::Unsupported("a statement that is not UTF-8".to_owned()))
}

/// Appends `sql` with `{table}` and the parameters filled in.
fn render(dialect: &Dialect, sql: &str, table: &str, values: &[Value<'_>], out: &mut Vec<u8>) {
    let mut values = values.iter();
    let mut rest = sql;
    while let Some(at) = rest.find(['?', '{']) {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("{table}") {
            out.extend_from_slice(table.as_bytes());
            rest = after;
        } else if let Some(after) = rest.strip_prefix('?') {
            push_value(dialect, values.next().unwrap_or(&Value::Null), out);
            rest = after;
        } else {
            out.push(rest.as_bytes()[0]);
            rest = &rest[1..];
        }
    }
    out.extend_from_slice(rest.as_bytes());
}

/// Appends a value as a literal.
pub(crate) fn push_value(dialect: &Dialect, value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => out.extend_from_slice(b"NULL"),
        Value::Int(number) => {
            if *number < 0 {
                out.push(b'-');
            }
            digits(number.unsigned_abs(), out);
        }
        // Writing to a Vec cannot fail; `{:?}` keeps every digit that tells doubles apart.
        Value::Double(number) => {
            let _ = write!(out, "{number:?}");
        }
        Value::Bytes(text) => dialect.push_literal(text, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Flavor, Version};

    fn dialect(flavor: Flavor) -> Dialect {
        Dialect { flavor, version: Version::default(), engine: None }
    }

    #[test]
    fn text_statements_carry_their_values() {
        let mut out = Vec::new();
        let values = [Value::Int(-5), Value::Bytes(b"o'clock"), Value::Null, Value::Double(0.5)];
        render(
            &dialect(Flavor::Mysql),
            "INSERT INTO {table} VALUES (?, ?, ?, ?) -- {x}",
            "t1",
            &values,
            &mut out,
        );
        assert_eq!(String::from_utf8_lossy(&out), "INSERT INTO t1 VALUES (-5, 'o''clock', NULL, 0.5) -- {x}");
    }

    #[test]
    fn prepared_statements_are_counted_and_bounded() {
        let templates = |tables: usize, is_prepared| {
            let templates = vec![
                Template::new("SELECT c FROM {table} WHERE id=?", &[ParamType::Int]),
                Template {
                    is_text: true,
                    ..Template::new("INSERT INTO {table} VALUES (?)", &[ParamType::Int])
                },
                Template::new("SELECT 1", &[]),
            ];
            let names = (1..=tables).map(|n| format!("sbtest{n}")).collect();
            StatementPlan::new(&dialect(Flavor::Postgres), templates, names, is_prepared)
        };
        assert_eq!(templates(10, true).prepared_per_session(), 11);
        assert_eq!(templates(10, false).prepared_per_session(), 0);
        assert_eq!(templates(100_000, true).prepared_per_session(), PREPARED_MAX);
        assert_eq!(templates(3, true).sql(0, 2), "SELECT c FROM sbtest3 WHERE id=$1");
    }
}
