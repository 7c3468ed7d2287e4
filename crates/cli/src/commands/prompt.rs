//! SQL without a client program: statements from standard input, results as tables.

use std::io::{BufRead, IsTerminal};

use sandbox::{Flavor, Sandbox};
use wire::ResultSet;
use wire::blocking::Client;

use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::terminal::{draw, tell};
use crate::show::{Align, Table};

/// Opens the prompt; `-e SQL`, `-c SQL` or `--execute SQL` among the arguments run just that, `-D NAME` or `-d NAME`
/// choose the database.
pub(crate) fn prompt(sandbox: &Sandbox, arguments: &[String]) -> Result<End, Failure> {
    let asked = Asked::read(arguments)?;
    let mut session = Session::open(sandbox, asked.database.as_deref())?;
    if !asked.statements.is_empty() {
        for statement in &asked.statements {
            session.run(statement)?;
        }
        return Ok(End::Done);
    }
    let is_asking = std::io::stdin().is_terminal();
    if is_asking {
        tell!(
            "{}, Plimsoll's own prompt. A statement ends with `;` at the end of a line; \
             \\c NAME changes the database, \\q leaves",
            sandbox.build().name()
        );
    }
    session.read_all(std::io::stdin().lock(), is_asking)
}

/// What the arguments ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    statements: Vec<String>,
    database: Option<String>,
}

impl Asked {
    fn read(arguments: &[String]) -> Result<Asked, Failure> {
        let mut asked = Asked::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .cloned()
                    .ok_or_else(|| Failure::Usage(format!("`{word}` needs a value behind it")))
            };
            match word.as_str() {
                "-e" | "-c" | "--execute" | "--command" => asked.statements.push(value()?),
                "-D" | "-d" | "--database" | "--dbname" => asked.database = Some(value()?),
                _ if !word.starts_with('-') && asked.database.is_none() => {
                    asked.database = Some(word.clone());
                }
                _ => {
                    return Err(Failure::Usage(format!(
                        "the built-in prompt does not know `{word}`: it takes -e SQL and -D DATABASE. Install \
                         mariadb-client or postgresql-client for the rest"
                    )));
                }
            }
        }
        Ok(asked)
    }
}

struct Session<'a> {
    sandbox: &'a Sandbox,
    client: Client,
}

impl<'a> Session<'a> {
    fn open(sandbox: &'a Sandbox, database: Option<&str>) -> Result<Session<'a>, Failure> {
        Ok(Session { sandbox, client: connect(sandbox, database)? })
    }

    /// Reads statements to the end of the input. Someone who types sees an error and goes on; a script ends there.
    fn read_all(&mut self, input: impl BufRead, is_asking: bool) -> Result<End, Failure> {
        let mut statement = String::new();
        show_prompt(is_asking, &statement);
        for line in input.lines() {
            let line =
                line.map_err(|e| Failure::Other(anyhow::Error::new(e).context("reading standard input")))?;
            if statement.is_empty() {
                match Line::of(&line) {
                    Line::Nothing => {}
                    Line::End => return Ok(End::Done),
                    Line::Database(name) => match connect(self.sandbox, Some(name)) {
                        Ok(client) => self.client = client,
                        Err(failure) if !is_asking => return Err(failure),
                        Err(failure) => tell!("{}", words(&failure)),
                    },
                    Line::Sql => statement.push_str(&line),
                }
            } else {
                statement.push('\n');
                statement.push_str(&line);
            }
            if statement.trim_end().ends_with(';') {
                let complete = std::mem::take(&mut statement);
                match self.run(&complete) {
                    // Going on makes no sense when the server is gone.
                    Err(failure) if is_asking && self.sandbox.pid().is_some() => {
                        tell!("{}", words(&failure));
                    }
                    other => {
                        other?;
                    }
                }
            }
            show_prompt(is_asking, &statement);
        }
        if statement.trim().is_empty() {
            return Ok(End::Done);
        }
        self.run(&statement)
    }

    fn run(&mut self, statement: &str) -> Result<End, Failure> {
        let statement = statement.trim().trim_end_matches(';');
        let sets =
            self.client.query_sets(statement).map_err(|error| Failure::Other(anyhow::Error::new(error)))?;
        print(&sets.iter().map(shown).collect::<String>())
    }
}

fn words(failure: &Failure) -> String {
    match failure {
        Failure::Other(error) => format!("{error:#}"),
        Failure::Lab(error) => error.to_string(),
        Failure::Usage(text) => text.clone(),
        other => format!("{other:?}"),
    }
}

fn connect(sandbox: &Sandbox, database: Option<&str>) -> Result<Client, Failure> {
    let source = |source| sandbox::Error::Wire { build: sandbox.build().name(), source };
    let mut client = Client::connect(&sandbox.target(database)).map_err(source)?;
    // A person decides how long is too long.
    client.set_statement_timeout(std::time::Duration::from_secs(24 * 3600));
    if sandbox.build().flavor != Flavor::Postgres {
        // What is typed and shown is UTF-8, whatever the server's own character set.
        client.query("SET NAMES utf8").map_err(source)?;
    }
    Ok(client)
}

fn show_prompt(is_asking: bool, statement: &str) {
    if is_asking {
        // A terminal that is gone shows itself when its input ends.
        draw(if statement.is_empty() { "sql> " } else { "  -> " });
    }
}

/// What a line at the beginning of a statement is.
enum Line<'a> {
    Nothing,
    End,
    Database(&'a str),
    Sql,
}

impl Line<'_> {
    fn of(line: &str) -> Line<'_> {
        let text = line.trim();
        match text.trim_end_matches(';') {
            "" => Line::Nothing,
            "\\q" | "quit" | "exit" => Line::End,
            other => match other.strip_prefix("\\c ") {
                Some(name) => Line::Database(name.trim()),
                None => Line::Sql,
            },
        }
    }
}

/// A result as a table, or how many rows were changed.
fn shown(set: &ResultSet) -> String {
    if !set.done.has_result_set {
        return format!("ok, {} changed\n", store::counted(set.done.affected_rows, "row"));
    }
    let columns: Vec<(&str, Align)> = set.columns.iter().map(|name| (name.as_str(), Align::Left)).collect();
    let mut table = Table::new(&columns);
    for row in &set.rows {
        table.row(row.iter().map(|cell| {
            match cell {
                None => "NULL".to_owned(),
                // A line feed or an escape sequence in the data must not draw on the terminal.
                Some(bytes) => String::from_utf8_lossy(bytes)
                    .chars()
                    .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
                    .collect(),
            }
        }));
    }
    let count = set.rows.len();
    format!("{}({})\n", table.text(), store::counted(count, "row"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_both_families_clients_are_read() {
        let read = |given: &[&str]| {
            Asked::read(&given.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
                .map_err(|failure| words(&failure))
        };
        let asked = |statements: &[&str], database: Option<&str>| Asked {
            statements: statements.iter().map(|s| (*s).to_owned()).collect(),
            database: database.map(str::to_owned),
        };
        assert_eq!(read(&[]).unwrap(), asked(&[], None));
        assert_eq!(read(&["-e", "SELECT 1", "-D", "x"]).unwrap(), asked(&["SELECT 1"], Some("x")));
        assert_eq!(read(&["-d", "x", "-c", "a", "-c", "b"]).unwrap(), asked(&["a", "b"], Some("x")));
        assert_eq!(read(&["sbtest"]).unwrap(), asked(&[], Some("sbtest")));
        assert!(read(&["-e"]).unwrap_err().contains("needs a value"));
        assert!(read(&["--batch"]).unwrap_err().contains("--batch"));
    }

    #[test]
    fn results_are_tables_and_their_data_cannot_draw() {
        let set = ResultSet {
            columns: vec!["a".into(), "name".into()],
            rows: vec![
                vec![Some(b"1".to_vec()), Some(b"x\x1b[2J\ny".to_vec())],
                vec![Some(b"20".to_vec()), None],
            ],
            done: wire::Done { has_result_set: true, ..wire::Done::default() },
        };
        assert_eq!(shown(&set), "a   name\n1   x\\u{1b}[2J\\ny\n20  NULL\n(2 rows)\n");
        let changed = ResultSet {
            done: wire::Done { affected_rows: 3, ..wire::Done::default() },
            ..ResultSet::default()
        };
        assert_eq!(shown(&changed), "ok, 3 rows changed\n");
    }
}
