//! Reads backslash commands.

use crate::expression::{Expr, Mistake};
use crate::script::{Action, Argument, Command, Names, SyntaxError};
use crate::sql::{Sql, Store};
use crate::token::skip_blanks;

/// Where an expression's place is not known yet: `link` in `script.rs` fills it in.
const UNKNOWN: usize = usize::MAX;

/// Reads commands out of a script's text.
pub(crate) struct Reader<'a> {
    pub(crate) script: &'a str,
    pub(crate) text: &'a str,
    pub(crate) names: &'a mut Names,
    pub(crate) commands: Vec<Command>,
}

/// A word of a command and where it stands in the line.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    start: usize,
}

impl Reader<'_> {
    fn number_at(&self, at: usize) -> usize {
        1 + self.text[..at].matches('\n').count()
    }

    /// A statement that the bytes from `start` to `end` are.
    pub(crate) fn push_sql(&mut self, statement: String, start: usize, end: usize) {
        // What was left out stands in front.
        let begins = self.text[start..end].find(first_line(&statement)).unwrap_or(0);
        let number = self.number_at(start + begins);
        let line = first_line(&statement).to_owned();
        let action = Action::Sql(Sql::new(statement, self.names));
        self.commands.push(Command { action, line, number });
    }

    /// The command whose backslash is at byte `start`; answers where the next line begins.
    pub(crate) fn backslash(&mut self, start: usize) -> Result<usize, SyntaxError> {
        let end = line_end(self.text, start);
        let line = self.text[start..end].trim_end_matches(['\n', '\r']);
        let next = (end + 1).min(self.text.len());
        let (name, behind) =
            word(line, 0).map_or(("", line.len()), |word| (word.text, word.start + word.text.len()));
        let command = Line { number: self.number_at(start), line, name: name.trim_start_matches('\\') };
        // pgbench takes commands in capitals, too.
        match command.name.to_ascii_lowercase().as_str() {
            "gset" | "aset" => self.store(&command, behind)?,
            _ => {
                let action = self.action(&command, behind)?;
                self.commands.push(Command { action, line: line.to_owned(), number: command.number });
            }
        }
        Ok(next)
    }

    fn action(&mut self, command: &Line<'_>, behind: usize) -> Result<Action, SyntaxError> {
        let words = words(command.line, behind);
        let name = command.name.to_ascii_lowercase();
        match name.as_str() {
            "set" => {
                let Some(variable) = words.first() else {
                    // The one mistake whose line pgbench does not show.
                    return Err(SyntaxError { shown: None, ..self.lacks(command) });
                };
                let value = self.expression(command, variable.start + variable.text.len())?;
                Ok(Action::Set { slot: self.names.slot(variable.text), value })
            }
            "if" => Ok(Action::If { condition: self.expression(command, behind)?, otherwise: UNKNOWN }),
            "elif" => {
                let condition = self.expression(command, behind)?;
                Ok(Action::Elif { condition, otherwise: UNKNOWN, end: UNKNOWN })
            }
            "sleep" => self.sleep(command, &words),
            "setshell" => match words.as_slice() {
                [name, rest @ ..] if !rest.is_empty() => {
                    Ok(Action::SetShell { slot: self.names.slot(name.text), words: self.arguments(rest) })
                }
                _ => Err(self.lacks(command)),
            },
            "shell" if words.is_empty() => Err(self.complain(command, "missing command", None)),
            "shell" => Ok(Action::Shell { words: self.arguments(&words) }),
            "else" | "endif" | "startpipeline" | "syncpipeline" | "endpipeline" => {
                if !words.is_empty() {
                    return Err(self.complain(command, "unexpected argument", None));
                }
                Ok(match name.as_str() {
                    "else" => Action::Else { end: UNKNOWN },
                    "endif" => Action::Endif,
                    "startpipeline" => Action::StartPipeline,
                    "syncpipeline" => Action::SyncPipeline,
                    _ => Action::EndPipeline,
                })
            }
            _ => Err(self.complain(command, "invalid command", None)),
        }
    }

    /// `\gset` and `\aset` belong to the statement before them.
    fn store(&mut self, command: &Line<'_>, behind: usize) -> Result<(), SyntaxError> {
        let words = words(command.line, behind);
        if words.len() > 1 {
            return Err(self.complain(command, "too many arguments", None));
        }
        let prefix = words.first().map_or("", |word| word.text).to_owned();
        let of_all = command.name.eq_ignore_ascii_case("aset");
        match self.commands.last_mut().map(|last| &mut last.action) {
            Some(Action::Sql(sql)) if sql.store.is_none() => {
                sql.store = Some(Store { prefix, of_all });
                Ok(())
            }
            _ => Err(SyntaxError {
                script: self.script.to_owned(),
                line: Some(command.number),
                message: format!("\\{} must follow an SQL command", command.name),
                shown: None,
            }),
        }
    }

    fn sleep(&mut self, command: &Line<'_>, words: &[Word<'_>]) -> Result<Action, SyntaxError> {
        let Some(&first) = words.first() else { return Err(self.lacks(command)) };
        if let Some(extra) = words.get(2) {
            return Err(self.complain(command, "too many arguments", Some(extra.start)));
        }
        let digits = first.text.find(|c: char| !(c.is_ascii_digit() || c == '-' || c == '+'));
        let (amount, unit, at) = match (words.get(1), digits) {
            (Some(unit), _) => (first.text, unit.text, unit.start),
            (None, Some(split)) if split > 0 => (&first.text[..split], &first.text[split..], first.start),
            (None, _) => (first.text, "s", first.start),
        };
        let unit_us = match unit.to_ascii_lowercase().as_str() {
            "us" => 1,
            "ms" => 1000,
            "s" => 1_000_000,
            _ => {
                let message = format!("unrecognized time unit, must be us, ms or s ({unit})");
                return Err(self.complain(command, &message, Some(at)));
            }
        };
        Ok(Action::Sleep { amount: self.argument(amount), unit_us })
    }

    fn arguments(&mut self, words: &[Word<'_>]) -> Vec<Argument> {
        words.iter().map(|word| self.argument(word.text)).collect()
    }

    /// `:name` is a variable, `::name` is `:name`.
    fn argument(&mut self, word: &str) -> Argument {
        match word.strip_prefix(':') {
            Some(escaped) if escaped.starts_with(':') => Argument::Word(escaped.to_owned()),
            Some(name) if !name.is_empty() => Argument::Variable(self.names.slot(name)),
            _ => Argument::Word(word.to_owned()),
        }
    }

    fn expression(&mut self, command: &Line<'_>, start: usize) -> Result<Expr, SyntaxError> {
        Expr::parse(command.line, start, self.names).map_err(|mistake| {
            let Mistake { message, more, at } = mistake;
            let message = more.map_or(message.clone(), |more| format!("{message} ({more})"));
            self.complain(command, &message, Some(at.saturating_sub(1)))
        })
    }

    fn lacks(&self, command: &Line<'_>) -> SyntaxError {
        self.complain(command, "missing argument", None)
    }

    fn complain(&self, command: &Line<'_>, message: &str, at: Option<usize>) -> SyntaxError {
        SyntaxError {
            script: self.script.to_owned(),
            line: Some(command.number),
            message: format!("{message} in command \"{}\"", command.name),
            shown: Some((command.line.to_owned(), at)),
        }
    }
}

/// A line with a backslash command.
struct Line<'a> {
    number: usize,
    line: &'a str,
    name: &'a str,
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("")
}

/// Where the line ends that goes on behind each backslash at an end.
fn line_end(text: &str, start: usize) -> usize {
    let mut at = start;
    while let Some(length) = text[at..].find('\n') {
        let line = text[start..at + length].trim_end_matches('\r');
        if !line.ends_with('\\') || line.len() < 2 {
            return at + length;
        }
        at += length + 1;
    }
    text.len()
}

fn word(line: &str, from: usize) -> Option<Word<'_>> {
    let start = skip_blanks(line, from);
    let rest = &line[start..];
    let ends = |(at, c): (usize, char)| {
        let is_continued =
            c == '\\' && (rest[at + 1..].starts_with('\n') || rest[at + 1..].starts_with("\r\n"));
        (c.is_whitespace() || is_continued).then_some(at)
    };
    let length = rest.char_indices().find_map(ends).unwrap_or(rest.len());
    (length > 0).then(|| Word { text: &rest[..length], start })
}

fn words(line: &str, mut from: usize) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    while let Some(next) = word(line, from) {
        from = next.start + next.text.len();
        found.push(next);
    }
    found
}
