//! Reads a workload file. Every complaint names line and column.

use super::expression::{Expr, FUNCTIONS, Type};

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}\n  {text}\n  {marker}^", marker = " ".repeat(column.saturating_sub(1)))]
pub struct SyntaxError {
    pub file: String,
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong and what is allowed.
    pub message: String,
    /// The line itself.
    pub text: String,
}

/// An option that the file declares.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) default: String,
    pub(super) kind: Type,
    pub(super) help: String,
}

/// Which servers a statement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Only {
    Any,
    Mysql,
    Postgres,
}

/// A statement with its parameters taken out.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sql {
    /// With `?` for each parameter.
    pub(super) text: String,
    /// Index of the variable of each `?`.
    pub(super) params: Vec<usize>,
    pub(super) only: Only,
    pub(super) line: usize,
    /// Its class, where `\name` gave one.
    pub(super) name: Option<String>,
}

/// A step of a transaction.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Set { variable: usize, expr: Expr, line: usize },
    Sleep { expr: Expr, unit_us: u64, line: usize },
    Run(Sql),
}

/// A transaction of the file.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Transaction {
    pub(super) name: String,
    pub(super) weight: u32,
    pub(super) steps: Vec<Step>,
}

/// `\fill`: rows made by expressions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fill {
    pub(super) table: String,
    pub(super) columns: String,
    pub(super) rows: Expr,
    pub(super) values: Vec<Expr>,
    pub(super) line: usize,
}

/// A file as read.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Script {
    pub(super) description: String,
    pub(super) options: Vec<Declared>,
    /// Names of variables: options first, then `row` and `session_id`, then those of `\set`.
    pub(super) variables: Vec<String>,
    pub(super) types: Vec<Type>,
    pub(super) setup: Vec<Sql>,
    pub(super) fills: Vec<Fill>,
    pub(super) after: Vec<Sql>,
    pub(super) checks: Vec<(String, Sql)>,
    pub(super) transactions: Vec<Transaction>,
}

/// Variables that every file has.
pub(super) const ROW: &str = "row";
pub(super) const SESSION: &str = "session_id";

/// Where statements go.
#[derive(Debug, Clone, PartialEq)]
enum Section {
    Setup,
    After,
    Check(String),
    Transaction,
}

struct Parser<'a> {
    file: &'a str,
    lines: Vec<&'a str>,
    /// Of the line being read, from 0.
    line: usize,
    script: Script,
    section: Section,
    only: Only,
    name: Option<String>,
    /// A statement that has not ended yet, and its first line.
    open: Option<(String, usize)>,
}

const DIRECTIVES: &str =
    "\\option, \\setup, \\fill, \\after, \\check, \\transaction, \\set, \\sleep, \\name, \\only";

/// Parses a whole file. `stem` names the transaction of a file without `\transaction`.
pub(super) fn parse(file: &str, stem: &str, text: &str) -> Result<Script, SyntaxError> {
    let mut parser = Parser {
        file,
        lines: text.lines().collect(),
        line: 0,
        script: Script::default(),
        section: Section::Transaction,
        only: Only::Any,
        name: None,
        open: None,
    };
    parser.declare_options()?;
    for name in [ROW, SESSION] {
        parser.script.variables.push(name.to_owned());
        parser.script.types.push(Type::Int);
    }
    for line in 0..parser.lines.len() {
        parser.line = line;
        parser.read_line(stem)?;
    }
    if let Some((_, line)) = parser.open {
        parser.line = line;
        return Err(parser.error(1, "this statement does not end: a `;` is missing"));
    }
    if parser.script.transactions.iter().all(|t| !t.steps.iter().any(|s| matches!(s, Step::Run(_)))) {
        parser.line = parser.lines.len().saturating_sub(1);
        return Err(parser.error(1, "the file has no statement to run"));
    }
    Ok(parser.script)
}

/// The first word of a text and the rest.
fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl Parser<'_> {
    fn error(&self, column: usize, message: impl Into<String>) -> SyntaxError {
        SyntaxError {
            file: self.file.to_owned(),
            line: self.line + 1,
            column,
            message: message.into(),
            text: self.lines.get(self.line).unwrap_or(&"").to_string(),
        }
    }

    /// An error at a part of the current line.
    fn error_at(&self, part: &str, message: impl Into<String>) -> SyntaxError {
        let line = self.lines.get(self.line).copied().unwrap_or("");
        let offset = (part.as_ptr() as usize).wrapping_sub(line.as_ptr() as usize);
        let column = if offset <= line.len() { line[..offset].chars().count() + 1 } else { 1 };
        self.error(column, message)
    }

    /// Options come first, because statements anywhere may use them.
    fn declare_options(&mut self) -> Result<(), SyntaxError> {
        for line in 0..self.lines.len() {
            self.line = line;
            let text = self.lines[line];
            let Some(rest) = text.trim_start().strip_prefix("\\option ") else { continue };
            let (name, rest) = word(rest);
            let (default, help) = word(rest);
            if !is_name(name) || name != name.to_ascii_lowercase() {
                return Err(self.error_at(name, "\\option wants a lower-case name and a default"));
            }
            if default.is_empty() {
                return Err(self.error_at(name, format!("the option {name} has no default")));
            }
            if self.script.variables.iter().any(|known| known == name) || [ROW, SESSION].contains(&name) {
                return Err(self.error_at(name, format!("the name {name} is taken")));
            }
            let kind = if default.parse::<i64>().is_ok() {
                Type::Int
            } else if default.parse::<f64>().is_ok() {
                Type::Double
            } else {
                Type::Text
            };
            self.script.variables.push(name.to_owned());
            self.script.types.push(kind);
            self.script.options.push(Declared {
                name: name.to_owned(),
                default: default.to_owned(),
                kind,
                help: help.to_owned(),
            });
        }
        Ok(())
    }

    fn read_line(&mut self, stem: &str) -> Result<(), SyntaxError> {
        let text = self.lines[self.line];
        let trimmed = text.trim();
        if self.open.is_none() {
            if trimmed.is_empty() {
                return Ok(());
            }
            if let Some(comment) = trimmed.strip_prefix("--") {
                // The comment on top of the file describes the workload.
                if self.script.transactions.is_empty()
                    && self.lines[..self.line].iter().all(|l| l.trim().starts_with("--"))
                {
                    self.script.description.push_str(comment.trim());
                    self.script.description.push('\n');
                }
                return Ok(());
            }
            if trimmed.starts_with('\\') {
                return self.directive(text.trim_start(), stem);
            }
        }
        let (mut sql, first) = self.open.take().unwrap_or((String::new(), self.line));
        if !sql.is_empty() {
            sql.push('\n');
        }
        sql.push_str(text);
        self.statements(sql, first, stem)
    }

    /// Takes complete statements off the front; what is left stays open.
    fn statements(&mut self, mut sql: String, first: usize, stem: &str) -> Result<(), SyntaxError> {
        while let Some(end) = end_of_statement(&sql) {
            let rest = sql.split_off(end + 1);
            sql.truncate(end);
            self.statement(sql.trim(), first, stem)?;
            sql = rest;
        }
        let is_empty = sql.lines().all(|line| line.trim().is_empty() || line.trim().starts_with("--"));
        self.open = (!is_empty).then_some((sql, first));
        Ok(())
    }

    fn statement(&mut self, text: &str, first: usize, stem: &str) -> Result<(), SyntaxError> {
        if text.is_empty() {
            return Ok(());
        }
        let (text, params) = self.take_parameters(text, first)?;
        if self.section != Section::Transaction
            && let Some(&own) = params.iter().find(|&&index| index >= self.script.options.len())
        {
            let mut error =
                self.error(1, format!("only options may be used here, not :{}", self.script.variables[own]));
            error.line = first + 1;
            return Err(error);
        }
        let sql = Sql {
            text,
            params,
            only: std::mem::replace(&mut self.only, Only::Any),
            line: first + 1,
            name: self.name.take(),
        };
        match self.section.clone() {
            Section::Setup => self.script.setup.push(sql),
            Section::After => self.script.after.push(sql),
            Section::Check(name) => {
                self.script.checks.push((name, sql));
                self.section = Section::After;
            }
            Section::Transaction => self.transaction(stem).steps.push(Step::Run(sql)),
        }
        Ok(())
    }

    /// The transaction being written; one of the file's name where there is none.
    fn transaction(&mut self, stem: &str) -> &mut Transaction {
        if self.script.transactions.is_empty() {
            self.script.transactions.push(Transaction {
                name: stem.to_owned(),
                weight: 1,
                steps: Vec::new(),
            });
        }
        let last = self.script.transactions.len() - 1;
        &mut self.script.transactions[last]
    }

    /// Replaces `:name` by `?`, outside of quotes and comments; `::` is PostgreSQL's cast.
    fn take_parameters(&self, sql: &str, first: usize) -> Result<(String, Vec<usize>), SyntaxError> {
        let mut out = String::with_capacity(sql.len());
        let mut params = Vec::new();
        let mut rest = sql;
        while let Some(at) = rest.find([':', '\'', '"', '`', '?']) {
            out.push_str(&rest[..at]);
            rest = &rest[at..];
            let mut chars = rest.chars();
            match chars.next() {
                Some(':') => {
                    let name_length = rest[1..]
                        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                        .unwrap_or(rest.len() - 1);
                    let name = &rest[1..=name_length];
                    if rest.starts_with("::") {
                        out.push_str("::");
                        rest = &rest[2..];
                    } else if is_name(name) {
                        params.push(self.variable(name).ok_or_else(|| {
                            let line = first + sql[..sql.len() - rest.len()].matches('\n').count();
                            self.unknown(name, line)
                        })?);
                        out.push('?');
                        rest = &rest[1 + name_length..];
                    } else {
                        out.push(':');
                        rest = &rest[1..];
                    }
                }
                Some('?') => {
                    let mut error = self.error(1, "write :name for a parameter, not ?");
                    error.line = first + 1;
                    return Err(error);
                }
                Some(quote) => {
                    let end = rest[1..].find(quote).map_or(rest.len(), |end| end + 2);
                    out.push_str(&rest[..end]);
                    rest = &rest[end..];
                }
                None => break,
            }
        }
        out.push_str(rest);
        Ok((out, params))
    }

    fn variable(&self, name: &str) -> Option<usize> {
        self.script.variables.iter().position(|known| known == name)
    }

    fn unknown(&self, name: &str, line: usize) -> SyntaxError {
        let text = self.lines.get(line).copied().unwrap_or("");
        let column = text.find(&format!(":{name}")).map_or(1, |at| text[..at].chars().count() + 1);
        SyntaxError {
            file: self.file.to_owned(),
            line: line + 1,
            column,
            message: format!(
                "no variable {name} has been set before; there are: {}",
                self.script.variables.join(", ")
            ),
            text: text.to_owned(),
        }
    }

    fn directive(&mut self, text: &str, stem: &str) -> Result<(), SyntaxError> {
        // The line's own text, so that columns can be told.
        let line = self.lines[self.line];
        let line = &line[line.len() - text.len()..];
        let (directive, rest) = word(line);
        match directive {
            "\\option" => Ok(()),
            "\\setup" => {
                self.section = Section::Setup;
                self.expect_end(rest)
            }
            "\\after" => {
                self.section = Section::After;
                self.expect_end(rest)
            }
            "\\check" => {
                if rest.is_empty() {
                    return Err(self.error_at(directive, "\\check wants a name for what must hold"));
                }
                self.section = Section::Check(rest.trim().to_owned());
                Ok(())
            }
            "\\transaction" => self.begin_transaction(directive, rest),
            "\\name" => {
                if !is_name(rest.trim()) {
                    return Err(self.error_at(directive, "\\name wants a name for the next statement"));
                }
                self.name = Some(rest.trim().to_owned());
                Ok(())
            }
            "\\only" => {
                self.only = match rest.trim() {
                    "mysql" => Only::Mysql,
                    "postgres" => Only::Postgres,
                    _ => return Err(self.error_at(directive, "\\only wants mysql or postgres")),
                };
                Ok(())
            }
            "\\set" => self.set(directive, rest, stem),
            "\\sleep" => self.sleep(rest, stem),
            "\\fill" => self.fill(directive, rest),
            _ => {
                Err(self
                    .error_at(directive, format!("unknown directive {directive}; there are {DIRECTIVES}")))
            }
        }
    }

    fn expect_end(&self, rest: &str) -> Result<(), SyntaxError> {
        if rest.trim().is_empty() || rest.trim_start().starts_with("--") {
            Ok(())
        } else {
            Err(self.error_at(rest, "nothing is expected here"))
        }
    }

    /// `\transaction NAME [weight N]`
    fn begin_transaction(&mut self, directive: &str, rest: &str) -> Result<(), SyntaxError> {
        let (name, rest) = word(rest);
        if !is_name(name) {
            return Err(self.error_at(directive, "\\transaction wants a name"));
        }
        let (keyword, number) = word(rest);
        let weight = match keyword {
            "" => 1,
            "weight" => number
                .trim()
                .parse::<u32>()
                .map_err(|_| self.error_at(number, "a weight is a whole number from 0 up"))?,
            _ => return Err(self.error_at(keyword, "\\transaction NAME [weight N]")),
        };
        if self.script.transactions.iter().any(|known| known.name == name) {
            return Err(self.error_at(name, format!("there is a transaction {name} already")));
        }
        self.section = Section::Transaction;
        self.script.transactions.push(Transaction { name: name.to_owned(), weight, steps: Vec::new() });
        Ok(())
    }

    /// `\set NAME EXPRESSION`
    fn set(&mut self, directive: &str, rest: &str, stem: &str) -> Result<(), SyntaxError> {
        let (name, source) = word(rest);
        if !is_name(name) {
            return Err(self.error_at(directive, "\\set wants a name and an expression"));
        }
        if self.section != Section::Transaction {
            return Err(self.error_at(directive, "\\set belongs into a transaction"));
        }
        let expr = self.expression(source)?;
        let kind = self.kind(&expr, source)?;
        let variable = match self.variable(name) {
            Some(known) if self.script.types[known] == kind => known,
            Some(known) => {
                let was = self.script.types[known];
                return Err(self.error_at(source, format!("{name} was {was:?} before and is {kind:?} here")));
            }
            None => {
                self.script.variables.push(name.to_owned());
                self.script.types.push(kind);
                self.script.variables.len() - 1
            }
        };
        let line = self.line + 1;
        self.transaction(stem).steps.push(Step::Set { variable, expr, line });
        Ok(())
    }

    /// `\sleep EXPRESSION [us|ms|s]`
    fn sleep(&mut self, rest: &str, stem: &str) -> Result<(), SyntaxError> {
        let trimmed = rest.trim_end();
        let units = [(" us", 1), (" ms", 1000), (" s", 1_000_000)];
        let (source, unit_us) = units
            .iter()
            .find_map(|(unit, us)| trimmed.strip_suffix(unit).map(|source| (source, *us)))
            .unwrap_or((trimmed, 1_000_000));
        let expr = self.expression(source)?;
        if self.kind(&expr, source)? == Type::Text {
            return Err(self.error_at(source, "\\sleep wants a number"));
        }
        let line = self.line + 1;
        self.transaction(stem).steps.push(Step::Sleep { expr, unit_us, line });
        Ok(())
    }

    /// `\fill TABLE (COLUMNS) ROWS: EXPRESSION, EXPRESSION ...`
    fn fill(&mut self, directive: &str, rest: &str) -> Result<(), SyntaxError> {
        let form = "\\fill TABLE (COLUMN, ...) ROWS: EXPRESSION, ...";
        let malformed = || self.error_at(directive, format!("wants {form}"));
        let open = rest.find('(').ok_or_else(malformed)?;
        let close = rest.find(')').filter(|close| *close > open).ok_or_else(malformed)?;
        let colon = rest[close..].find(": ").map(|at| close + at).ok_or_else(malformed)?;
        let table = rest[..open].trim().to_owned();
        let columns = rest[open + 1..close].trim().to_owned();
        if table.is_empty() || columns.is_empty() {
            return Err(malformed());
        }
        let rows = self.expression(&rest[close + 1..colon])?;
        let mut values = Vec::new();
        let source = &rest[colon + 1..];
        let mut reader = Reader { parser: self, source, at: 0, operations: 0 };
        loop {
            values.push(reader.sum()?);
            match reader.peek() {
                Some(',') => reader.at += 1,
                None => break,
                Some(_) => return Err(reader.complain("a comma or the end of the line is expected")),
            }
        }
        let wanted = columns.split(',').count();
        if values.len() != wanted {
            return Err(self.error_at(source, format!("{} values for {wanted} columns", values.len())));
        }
        for expr in &values {
            self.kind(expr, source)?;
        }
        let line = self.line + 1;
        self.script.fills.push(Fill { table, columns, rows, values, line });
        Ok(())
    }

    fn kind(&self, expr: &Expr, source: &str) -> Result<Type, SyntaxError> {
        expr.kind(&self.script.types).ok_or_else(|| self.error_at(source, "text cannot be calculated with"))
    }

    fn expression(&self, source: &str) -> Result<Expr, SyntaxError> {
        let mut reader = Reader { parser: self, source, at: 0, operations: 0 };
        let expr = reader.sum()?;
        match reader.peek() {
            None => Ok(expr),
            Some(_) => Err(reader.complain("an operator or the end of the line is expected")),
        }
    }
}

/// Where the first statement of `sql` ends: a `;` outside of quotes and comments.
fn end_of_statement(sql: &str) -> Option<usize> {
    let bytes = sql.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b';' => return Some(at),
            quote @ (b'\'' | b'"' | b'`') => {
                at += 1 + sql[at + 1..].find(char::from(quote))?;
            }
            b'-' if bytes.get(at + 1) == Some(&b'-') => at += sql[at..].find('\n')?,
            _ => {}
        }
        at += 1;
    }
    None
}

/// Reads one expression from a line.
struct Reader<'a, 'p> {
    parser: &'a Parser<'p>,
    source: &'a str,
    at: usize,
    /// Operators, parentheses and functions so far: no tree of them is higher, which the stack has to bear.
    operations: usize,
}

/// Of one line.
const OPERATIONS_MAX: usize = 500;

impl<'a> Reader<'a, '_> {
    fn operation(&mut self) -> Result<(), SyntaxError> {
        self.operations += 1;
        if self.operations > OPERATIONS_MAX {
            return Err(self.complain(
                "too many operators, parentheses and functions: set a variable to a part of it first",
            ));
        }
        Ok(())
    }

    fn peek(&mut self) -> Option<char> {
        let rest = &self.source[self.at..];
        let trimmed = rest.trim_start();
        self.at += rest.len() - trimmed.len();
        if trimmed.starts_with("--") { None } else { trimmed.chars().next() }
    }

    fn complain(&self, message: &str) -> SyntaxError {
        self.parser.error_at(&self.source[self.at..], message.to_owned())
    }

    fn sum(&mut self) -> Result<Expr, SyntaxError> {
        let mut left = self.product()?;
        while let Some(operator @ ('+' | '-')) = self.peek() {
            self.operation()?;
            self.at += 1;
            left = Expr::Binary(operator, Box::new(left), Box::new(self.product()?));
        }
        Ok(left)
    }

    fn product(&mut self) -> Result<Expr, SyntaxError> {
        let mut left = self.factor()?;
        while let Some(operator @ ('*' | '/' | '%')) = self.peek() {
            self.operation()?;
            self.at += 1;
            left = Expr::Binary(operator, Box::new(left), Box::new(self.factor()?));
        }
        Ok(left)
    }

    fn factor(&mut self) -> Result<Expr, SyntaxError> {
        const WANTED: &str = "a number, a :variable, 'text', a function or ( is expected";
        match self.peek() {
            Some('-') => {
                self.operation()?;
                self.at += 1;
                Ok(Expr::Neg(Box::new(self.factor()?)))
            }
            Some('(') => {
                self.operation()?;
                self.at += 1;
                let inner = self.sum()?;
                self.expect(')')?;
                Ok(inner)
            }
            Some(':') => {
                self.at += 1;
                let name = self.take_name();
                match self.parser.variable(name) {
                    Some(index) => Ok(Expr::Var(index)),
                    None => Err(self.parser.unknown(name, self.parser.line)),
                }
            }
            Some('\'') => {
                let rest = &self.source[self.at + 1..];
                let Some(end) = rest.find('\'') else { return Err(self.complain("the text does not end")) };
                self.at += end + 2;
                Ok(Expr::Text(rest[..end].to_owned()))
            }
            Some(c) if c.is_ascii_digit() || c == '.' => self.number(),
            Some(c) if c.is_ascii_alphabetic() => self.call(),
            _ => Err(self.complain(WANTED)),
        }
    }

    fn expect(&mut self, wanted: char) -> Result<(), SyntaxError> {
        if self.peek() == Some(wanted) {
            self.at += wanted.len_utf8();
            Ok(())
        } else {
            Err(self.complain(&format!("`{wanted}` is expected")))
        }
    }

    fn take_name(&mut self) -> &'a str {
        let rest: &'a str = &self.source[self.at..];
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    fn number(&mut self) -> Result<Expr, SyntaxError> {
        let rest = &self.source[self.at..];
        let length = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let text = &rest[..length];
        let parsed = match text.parse::<i64>() {
            Ok(number) => Some(Expr::Int(number)),
            Err(_) => text.parse::<f64>().ok().map(Expr::Double),
        };
        let parsed = parsed.ok_or_else(|| self.complain("this is no number"))?;
        self.at += length;
        Ok(parsed)
    }

    fn call(&mut self) -> Result<Expr, SyntaxError> {
        self.operation()?;
        let start = self.at;
        let name = self.take_name().to_owned();
        let found = FUNCTIONS.iter().find(|(known, ..)| *known == name);
        let Some((_, function, least, most)) = found else {
            let known: Vec<&str> = FUNCTIONS.iter().map(|(known, ..)| *known).collect();
            self.at = start;
            return Err(self.complain(&format!(
                "there is no function {name}; there are: {} (variables are written :{name})",
                known.join(", ")
            )));
        };
        self.expect('(')?;
        let mut arguments = Vec::new();
        if self.peek() != Some(')') {
            arguments.push(self.sum()?);
            while self.peek() == Some(',') {
                self.at += 1;
                arguments.push(self.sum()?);
            }
        }
        self.expect(')')?;
        if !(*least..=*most).contains(&arguments.len()) {
            self.at = start;
            let wanted = if least == most { least.to_string() } else { format!("{least} to {most}") };
            return Err(self.complain(&format!("{name} wants {wanted} arguments, not {}", arguments.len())));
        }
        Ok(Expr::Call(*function, arguments))
    }
}
