//! A workload of one's own: a file of SQL transactions with weights, variables and random functions, in the spirit
//! of `pgbench -f`. [`FORMAT`] documents it.

mod draw;
mod expression;
mod parse;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use load::SessionFactory;
use wire::{Target, Value};

use crate::control::Control;
use crate::engine::statements::push_value;
use crate::engine::{self, DrawnWorkload};
use crate::loader::{self, LoadPlan, TableLoad};
use crate::options::{DATA_SEED, OptionKind, Options, PS_MODE};
use crate::random::{Rng, SplitMix64, digits};
use crate::{
    Baseline, Check, Configured, Dialect, Error, Given, LoadAt, LoadMethod, LoadReport, Needs, OptionError,
    OptionSpec, Progress, Ran, StatementDoc, Workload,
};
use draw::FileTransactions;
use expression::{Scope, Type, Val};
use parse::{Script, Sql};

pub use parse::SyntaxError;

/// The file format, for users.
pub const FORMAT: &str = "\
A workload file holds SQL statements, each ended by `;`, and directives, lines that begin with a backslash. \
Comments begin with `--`; those on top of the file describe the workload. A file without `\\transaction` is one \
transaction, so simple pgbench scripts run as they are.

  \\option NAME DEFAULT [help]          an option, set by -o NAME=VALUE, used as :NAME everywhere
  \\setup                               the statements that follow make the tables
  \\fill TABLE (COLUMNS) ROWS: EXPR, .. generated rows, bulk-loaded; :row counts from 1
  \\after                               the statements that follow run once the rows are there (indexes)
  \\check NAME                          the next statement returns true when NAME holds; asked after each run
  \\transaction NAME [weight N]         a transaction begins; N of the sum of all weights is its share (1)
  \\set NAME EXPR                       a variable, used as :NAME; drawn before the transaction is timed
  \\sleep EXPR [us|ms|s]                a pause inside the transaction
  \\name NAME                           the statement class of the next statement in the figures
  \\only mysql|postgres                 the next statement is for one family of servers

Expressions: whole numbers, doubles, 'text', :variables, + - * / % ( ); random(low, high), \
random_gaussian(low, high, parameter), random_exponential(low, high, parameter), \
random_zipfian(low, high, exponent) as pgbench defines them; abs, least, greatest, int, double, sqrt, ln, exp, \
pow; digits(n) and letters(n) make random text. :session_id is the session's number from 0.

Statements are prepared, with variables as parameters (-o db_ps_mode=disable: sent as text). BEGIN (or START \
TRANSACTION), COMMIT (or END) and ROLLBACK are understood: a transaction that ends in ROLLBACK counts as rolled \
back. The SQL itself is the server's own.";

/// Whether a text uses directives that pgbench has not.
pub fn has_directives(text: &str) -> bool {
    const OWN: [&str; 8] =
        ["\\option", "\\setup", "\\fill", "\\after", "\\check", "\\transaction", "\\name", "\\only"];
    text.lines().any(|line| {
        let first = line.split_whitespace().next().unwrap_or_default();
        OWN.contains(&first)
    })
}

/// A workload read from a file.
#[derive(Debug)]
pub struct SqlFile {
    name: String,
    summary: String,
    description: String,
    options: Vec<OptionSpec>,
    script: Arc<Script>,
    /// Decides the dataset together with the options.
    text: String,
}

/// What every file has beside its own options.
const OWN_OPTIONS: [OptionSpec; 2] = [PS_MODE, DATA_SEED];

impl SqlFile {
    /// Parses the text of a file; `file` is what errors call it and its stem is the workload's name.
    ///
    /// # Errors
    /// A line is wrong; the error names line and column.
    pub fn parse(file: &str, text: &str) -> Result<SqlFile, SyntaxError> {
        let stem = Path::new(file).file_stem().map_or_else(|| file.into(), |stem| stem.to_string_lossy());
        let script = parse::parse(file, &stem, text)?;
        let declared = script.options.iter().map(|option| OptionSpec {
            name: Cow::Owned(option.name.clone()),
            default: Cow::Owned(option.default.clone()),
            kind: match option.kind {
                Type::Int if !option.default.starts_with('-') => {
                    OptionKind::Count { min: 0, max: i64::MAX as u64 }
                }
                Type::Int | Type::Double => OptionKind::Real { min: f64::MIN, max: f64::MAX },
                Type::Text => OptionKind::Text,
            },
            help: Cow::Owned(option.help.clone()),
            protocol: None,
        });
        let options = declared.chain(OWN_OPTIONS).collect();
        let names: Vec<&str> = script.transactions.iter().map(|t| t.name.as_str()).collect();
        Ok(SqlFile {
            summary: format!("transactions of {file}: {}", names.join(", ")),
            description: format!("{}\n{FORMAT}", script.description),
            name: stem.into_owned(),
            options,
            script: Arc::new(script),
            text: text.to_owned(),
        })
    }
}

impl Workload for SqlFile {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        &self.summary
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn options(&self) -> &[OptionSpec] {
        &self.options
    }

    fn transaction_classes(&self) -> Vec<String> {
        let names: Vec<String> = self.script.transactions.iter().map(|one| one.name.clone()).collect();
        if names.len() > 1 { names } else { Vec::new() }
    }

    fn configure(&self, given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError> {
        Ok(Box::new(self.configured(given, dialect)?))
    }
}

impl SqlFile {
    fn configured(&self, given: &Given, dialect: Dialect) -> Result<ConfiguredFile, OptionError> {
        let options = Options::parse(&self.name, &self.options, given)?;
        let values = self.script.options.iter().map(|option| match option.kind {
            Type::Int => OptionValue::Int(options.real(&option.name) as i64),
            Type::Double => OptionValue::Double(options.real(&option.name)),
            Type::Text => OptionValue::Text(options.text(&option.name).to_owned()),
        });
        let values: Arc<Vec<OptionValue>> = Arc::new(values.collect());
        let transactions = FileTransactions {
            script: Arc::clone(&self.script),
            values: Arc::clone(&values),
            dialect: dialect.clone(),
        };
        let classes = draw::classes(&self.script, &dialect);
        let workload = DrawnWorkload {
            transactions: self.transaction_classes(),
            is_prepared: options.is_prepared(),
            ..DrawnWorkload::new(transactions, dialect.clone(), classes)
        };
        Ok(ConfiguredFile {
            data_seed: options.count("data_seed"),
            workload: Arc::new(workload),
            script: Arc::clone(&self.script),
            text: self.text.clone(),
            name: self.name.clone(),
            values,
            options,
            dialect,
        })
    }
}

#[derive(Debug, Clone, PartialEq)]
enum OptionValue {
    Int(i64),
    Double(f64),
    Text(String),
}

impl OptionValue {
    fn as_value(&self) -> Value<'_> {
        match self {
            OptionValue::Int(number) => Value::Int(*number),
            OptionValue::Double(number) => Value::Double(*number),
            OptionValue::Text(text) => Value::Bytes(text.as_bytes()),
        }
    }
}

/// The variables of a script with the options filled in; texts of options stand at the start of the buffer.
fn variables(script: &Script, values: &[OptionValue], text: &mut Vec<u8>) -> Vec<Val> {
    let mut variables = vec![Val::Int(0); script.variables.len()];
    for (variable, value) in variables.iter_mut().zip(values) {
        *variable = match value {
            OptionValue::Int(number) => Val::Int(*number),
            OptionValue::Double(number) => Val::Double(*number),
            OptionValue::Text(words) => {
                let start = text.len() as u32;
                text.extend_from_slice(words.as_bytes());
                Val::Text { start, length: words.len() as u32 }
            }
        };
    }
    variables
}

#[derive(Debug)]
struct ConfiguredFile {
    name: String,
    text: String,
    script: Arc<Script>,
    workload: Arc<DrawnWorkload<FileTransactions>>,
    options: Options,
    values: Arc<Vec<OptionValue>>,
    dialect: Dialect,
    data_seed: u64,
}

impl ConfiguredFile {
    /// Whether a statement is for this family of servers.
    fn is_for(&self, sql: &Sql) -> bool {
        draw::is_for(sql.only, &self.dialect)
    }

    /// The statement with the values of options in it.
    fn rendered(&self, sql: &Sql) -> String {
        let mut out = Vec::new();
        let mut params = sql.params.iter();
        for part in sql.text.split_inclusive('?') {
            match (part.strip_suffix('?'), params.as_slice().first()) {
                (Some(head), Some(&index)) => {
                    params.next();
                    out.extend_from_slice(head.as_bytes());
                    push_value(&self.dialect, &self.values[index].as_value(), &mut out);
                }
                _ => out.extend_from_slice(part.as_bytes()),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    fn fill_rows(&self, index: usize) -> Result<u64, Error> {
        let fill = &self.script.fills[index];
        let mut text = Vec::new();
        let variables = variables(&self.script, &self.values, &mut text);
        let mut rng = Rng::stream(self.data_seed, 0);
        let mut scope = Scope { variables: &variables, rng: &mut rng, text: &mut text };
        match scope.value(&fill.rows) {
            Ok(Val::Int(rows)) if rows >= 0 => Ok(rows as u64),
            Ok(other) => Err(Error::Unsupported(format!(
                "{}, line {}: the number of rows is {other:?}",
                self.name, fill.line
            ))),
            Err(text) => Err(Error::Unsupported(format!("{}, line {}: {text}", self.name, fill.line))),
        }
    }

    /// One row of a `\fill` as a line of tab-separated text.
    fn push_row(&self, fill: usize, start: &[Val], words: &[u8], row: u64, out: &mut Vec<u8>) {
        let seed = SplitMix64::new(self.data_seed ^ ((fill as u64 + 1) << 40)).next();
        let mut rng = Rng::stream(seed, row);
        let mut text = words.to_vec();
        let mut variables = start.to_vec();
        variables[self.script.options.len()] = Val::Int(row as i64 + 1);
        for (column, expr) in self.script.fills[fill].values.iter().enumerate() {
            if column > 0 {
                out.push(b'\t');
            }
            let mut scope = Scope { variables: &variables, rng: &mut rng, text: &mut text };
            match scope.value(expr) {
                Ok(Val::Int(number)) => {
                    if number < 0 {
                        out.push(b'-');
                    }
                    digits(number.unsigned_abs(), out);
                }
                // Writing to a Vec cannot fail.
                Ok(Val::Double(number)) => out.extend_from_slice(format!("{number:?}").as_bytes()),
                Ok(Val::Text { start, length }) => {
                    for &byte in &text[start as usize..(start + length) as usize] {
                        if byte == b'\\' {
                            out.push(b'\\');
                        }
                        out.push(byte);
                    }
                }
                // A row that cannot be computed is NULL, which NOT NULL columns refuse.
                Err(_) => out.extend_from_slice(b"\\N"),
            }
        }
        out.push(b'\n');
    }

    fn run_all(&self, control: &mut Control, doing: &str, statements: &[Sql]) -> Result<(), Error> {
        for sql in statements.iter().filter(|sql| self.is_for(sql)) {
            let doing = format!("{doing} ({}, line {})", self.name, sql.line);
            control.run(&doing, &self.rendered(sql))?;
        }
        Ok(())
    }
}

impl Configured for ConfiguredFile {
    fn options(&self) -> BTreeMap<String, String> {
        self.options.all().clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        self.workload.class_names()
    }

    fn statements(&self) -> Vec<StatementDoc> {
        self.workload.documentation("")
    }

    fn dataset_key(&self) -> String {
        // Transactions do not change what a load makes, but telling them apart is not worth a wrong snapshot.
        let mut key = format!("sqlfile v1 data_seed={}", self.data_seed);
        for (option, value) in self.script.options.iter().zip(self.values.iter()) {
            let _ = write!(key, " {}={value:?}", option.name);
        }
        key.push('\n');
        key.push_str(&self.text);
        key
    }

    fn data_bytes(&self) -> u64 {
        let rows = (0..self.script.fills.len()).map(|fill| self.fill_rows(fill).unwrap_or(0));
        // The width of a user's rows is not known; 200 bytes with their indexes.
        rows.sum::<u64>().saturating_mul(200).saturating_add(1_000_000)
    }

    fn needs(&self, sessions: u32) -> Needs {
        self.workload.needs(sessions)
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error> {
        let started = Instant::now();
        let mut control = Control::connect_until(&at.target, "set up the tables", &at.stop)?;
        control.client().set_statement_timeout(Duration::from_secs(24 * 3600));
        self.run_all(&mut control, "setting up", &self.script.setup)?;
        let mut words = Vec::new();
        let start = variables(&self.script, &self.values, &mut words);
        let (start, words) = (&start, &words);
        let mut tables = Vec::new();
        for (index, fill) in self.script.fills.iter().enumerate() {
            tables.push(TableLoad {
                name: fill.table.clone(),
                create: Vec::new(),
                columns: fill.columns.clone(),
                rows: self.fill_rows(index)?,
                push_row: Box::new(move |row, out: &mut Vec<u8>| {
                    self.push_row(index, start, words, row, out)
                }),
                after: Vec::new(),
            });
        }
        let has_rows = !tables.is_empty();
        let mut report = loader::load(at, &self.dialect, LoadPlan { tables }, progress)?;
        if !has_rows {
            report.method =
                if self.script.setup.is_empty() { LoadMethod::Nothing } else { LoadMethod::Statements };
            report.rows_time = started.elapsed();
        }
        let indexing = Instant::now();
        self.run_all(&mut control, "finishing the tables", &self.script.after)?;
        report.indexes_time += indexing.elapsed();
        Ok(report)
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error> {
        let mut tables = BTreeMap::new();
        for (index, fill) in self.script.fills.iter().enumerate() {
            *tables.entry(fill.table.clone()).or_default() += self.fill_rows(index)?;
        }
        Ok(tables.into_iter().collect())
    }

    fn is_loaded(&self, target: &Target) -> Result<bool, Error> {
        if self.script.setup.is_empty() && self.script.fills.is_empty() {
            return Ok(true);
        }
        // Without generated rows nothing tells whether the set-up has been run.
        if self.script.fills.is_empty() {
            return Ok(false);
        }
        loader::is_loaded(target, self.rows_by_table()?)
    }

    fn baseline(&self, _target: &Target, _counted: &BTreeMap<String, u64>) -> Result<Baseline, Error> {
        Ok(Baseline::default())
    }

    fn check(&self, target: &Target, _before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, Error> {
        let mut checks = Vec::new();
        if self.script.checks.is_empty() {
            return Ok(checks);
        }
        let mut control = Control::connect(target, "check the tables after the run")?;
        for (name, sql) in self.script.checks.iter().filter(|(_, sql)| self.is_for(sql)) {
            let rows = control.rows(&format!("checking {name}"), &self.rendered(sql))?;
            let found = rows.text(0, 0).unwrap_or("nothing").to_owned();
            checks.push(Check {
                name: name.clone(),
                passed: matches!(found.as_str(), "1" | "t" | "true"),
                expected: "true".to_owned(),
                found,
            });
        }
        Ok(checks)
    }

    fn sessions(&self, target: &Target, seed: u64) -> Box<dyn SessionFactory> {
        engine::sessions(&self.workload, target, seed)
    }
}

#[cfg(test)]
impl SqlFile {
    /// What is drawn, for the test of all workloads.
    pub(crate) fn drawn(&self, given: &Given, dialect: Dialect) -> u64 {
        engine::seen::checksum(&self.configured(given, dialect).expect("good options").workload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Flavor;
    use crate::engine::{Draw, seen};

    fn check_error(text: &str, line: usize, column: usize, says: &str) {
        let error = SqlFile::parse("my.sql", text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{error}");
        assert!(error.message.contains(says), "{error}");
        assert!(error.to_string().starts_with(&format!("my.sql:{line}:{column}: ")), "{error}");
    }

    /// The tree of one is as high, and the stack has to bear it.
    #[test]
    fn expressions_of_any_size_are_mistakes() {
        for deep in [
            format!("{}1{}", "(".repeat(20_000), ")".repeat(20_000)),
            "- ".repeat(20_000) + "1",
            "1+".repeat(20_000) + "1",
        ] {
            let error =
                SqlFile::parse("my.sql", &format!("\\set a {deep}\nSELECT :a;\n")).expect_err("too deep");
            assert!(error.to_string().contains("too many operators"), "{error}");
        }
        SqlFile::parse("my.sql", &format!("\\set a {}1\nSELECT :a;\n", "1+".repeat(499)))
            .expect("a long sum");
    }

    #[test]
    fn mistakes_are_named_with_line_and_column() {
        check_error("SELECT 1", 1, 1, "`;` is missing");
        check_error("-- nothing\n", 1, 1, "no statement");
        check_error("SELECT :id;", 1, 8, "no variable id");
        check_error("SELECT 1;\nSELECT\n  :id;", 3, 3, "no variable id");
        check_error("\\sett x 1\nSELECT 1;", 1, 1, "unknown directive \\sett");
        check_error("\\set x 1 +\nSELECT 1;", 1, 11, "a number");
        check_error("\\set x rnd(1, 2)\nSELECT 1;", 1, 8, "no function rnd");
        check_error("\\set x random(1)\nSELECT 1;", 1, 8, "wants 2 arguments, not 1");
        check_error("\\set x 1 2\nSELECT 1;", 1, 10, "operator");
        check_error("\\set x 'a' + 1\nSELECT 1;", 1, 8, "text cannot be calculated");
        check_error("\\set x 1\n\\set x 1.5\nSELECT :x;", 2, 8, "was Int before");
        check_error("\\transaction a weight many\nSELECT 1;", 1, 23, "whole number");
        check_error("\\transaction a\nSELECT 1;\n\\transaction a\nSELECT 2;", 3, 14, "already");
        check_error("\\option n\nSELECT 1;", 1, 9, "no default");
        check_error("\\only oracle\nSELECT 1;", 1, 1, "mysql or postgres");
        check_error("\\fill t (a, b) 5: 1\nSELECT 1;", 1, 18, "1 values for 2 columns");
        check_error("SELECT ?;", 1, 1, ":name");
        check_error("\\set x 1\n\\setup\nDELETE FROM t WHERE a = :x;\n", 3, 1, "only options");
    }

    fn file(text: &str) -> SqlFile {
        SqlFile::parse("dir/my.sql", text).expect(text)
    }

    fn configured(text: &str, flavor: Flavor) -> Box<dyn Configured> {
        let dialect = Dialect { flavor, version: crate::Version::default(), engine: None };
        file(text).configure(&BTreeMap::new(), dialect).expect("defaults")
    }

    #[test]
    fn a_pgbench_script_is_one_transaction() {
        let text = "\\set aid random(1, 100000)\nBEGIN;\nSELECT abalance FROM t WHERE aid = :aid AND x::int = 1;\nEND;\n";
        let configured = configured(text, Flavor::Postgres);
        assert_eq!(configured.statement_classes(), ["my_1", "my_2", "my_3"]);
        let docs = configured.statements();
        assert_eq!(docs[1].sql, "SELECT abalance FROM t WHERE aid = $1 AND x::int = 1");
        assert_eq!(docs[1].parameters, ":aid");
    }

    #[test]
    fn a_text_lives_as_long_as_its_variable() {
        let text = "\\transaction set\n\\set t letters(9)\nSELECT :t;\n\\transaction use\nSELECT :t, 1;\n";
        let dialect = Dialect { flavor: Flavor::Mysql, version: crate::Version::default(), engine: None };
        let configured = file(text).configured(&BTreeMap::new(), dialect).expect("defaults");
        let mut memory = configured.workload.draw.memory(1, 0);
        let (mut last, mut used) = ("0".to_owned(), 0);
        for _ in 0..50 {
            let (name, values) = seen::transaction(&configured.workload, &mut memory).remove(0);
            if name == "use_1" && last != "0" {
                assert_eq!(values[0], last);
                used += 1;
            } else {
                last.clone_from(&values[0]);
            }
        }
        assert!(used > 5, "{used} of 50");
    }

    #[test]
    fn quotes_comments_and_several_statements_on_a_line() {
        let text = "SELECT ':no; ' ; SELECT 2 -- ; no\n;\n\\name named\nSELECT\n 3;";
        let configured = configured(text, Flavor::Mariadb);
        let sql: Vec<String> = configured.statements().into_iter().map(|doc| doc.sql).collect();
        assert_eq!(sql, ["SELECT ':no; '", "SELECT 2 -- ; no", "SELECT\n 3"]);
        assert_eq!(configured.statement_classes()[2], "named");
    }

    #[test]
    fn statements_for_one_family_only() {
        let text = "\\only mysql\nSELECT 1;\n\\only postgres\nSELECT 2;\nSELECT 3;";
        assert_eq!(configured(text, Flavor::Mysql).statements().len(), 2);
        assert_eq!(configured(text, Flavor::Postgres).statements()[0].sql, "SELECT 2");
    }

    #[test]
    fn options_have_types_and_help() {
        let workload = file("-- What it is.\n\\option n 10 how many\n\\option who bob\nSELECT :n, :who;");
        assert!(workload.description().starts_with("What it is."));
        assert_eq!(workload.name(), "my");
        let specs = workload.options();
        assert_eq!((specs[0].name.as_ref(), specs[0].help.as_ref()), ("n", "how many"));
        let dialect = Dialect { flavor: Flavor::Mysql, version: crate::Version::default(), engine: None };
        let given = BTreeMap::from([("n".to_owned(), "ten".to_owned())]);
        assert!(workload.configure(&given, dialect).is_err());
    }

    #[test]
    fn datasets_differ_by_options_and_text() {
        let one = configured("\\option n 10\nSELECT :n;", Flavor::Mysql).dataset_key();
        assert_ne!(one, configured("\\option n 11\nSELECT :n;", Flavor::Mysql).dataset_key());
        assert_eq!(one, configured("\\option n 10\nSELECT :n;", Flavor::Mysql).dataset_key());
    }

    proptest::proptest! {
        #[test]
        fn any_text_gives_a_workload_or_an_error(text in "[\\\\a-z0-9 :;'\"`$?(),+*/%.\n-]{0,120}") {
            let _ = SqlFile::parse("any.sql", &text);
            let _ = SqlFile::parse("any.sql", &format!("\\set x {text}\nSELECT 1;"));
            let _ = SqlFile::parse("any.sql", &format!("\\fill t (a) {text}: {text}\nSELECT 1;"));
        }
    }
}
