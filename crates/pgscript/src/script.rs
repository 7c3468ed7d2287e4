//! A script as read: its commands, and where control goes from each.

use crate::commands;
use crate::evaluate::Scope;
use crate::expression::Expr;
use crate::sql::{self, End, Sql};
use crate::value::Value;

/// The names of variables of all scripts of a run. A variable is known by its index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names(Vec<String>);

impl Names {
    /// The index of a name, which is taken up where it is new.
    pub fn slot(&mut self, name: &str) -> usize {
        self.find(name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }

    /// The index of a name that some script has.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known == name)
    }

    /// The name of an index.
    pub fn name(&self, slot: usize) -> &str {
        self.0.get(slot).map_or("", String::as_str)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a variable may be called so: letters, digits and underscores, no digit first.
    pub fn is_valid(name: &str) -> bool {
        let is_inside = |c: char| crate::token::is_word(c) || !c.is_ascii();
        !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()) && name.chars().all(is_inside)
    }
}

/// A word of a command that may be a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// As written.
    Word(String),
    /// By the index of [`Names`].
    Variable(usize),
}

/// What a command does.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Sends SQL.
    Sql(Sql),
    /// Sets a variable, whose name may be no valid one: pgbench complains when it runs.
    Set {
        /// The variable.
        slot: usize,
        /// Its value.
        value: Expr,
    },
    /// Sets a variable to what a shell command writes.
    SetShell {
        /// The variable.
        slot: usize,
        /// The command's words.
        words: Vec<Argument>,
    },
    /// Runs a shell command.
    Shell {
        /// The command's words.
        words: Vec<Argument>,
    },
    /// Pauses.
    Sleep {
        /// How many units.
        amount: Argument,
        /// Microseconds of a unit.
        unit_us: u64,
    },
    /// Goes on where `condition` is true, else at the command `otherwise`, which is the next branch of its kind.
    If {
        /// The condition.
        condition: Expr,
        /// Index of the command.
        otherwise: usize,
    },
    /// Come to from the branch before it, goes to `end`; come to because no branch was taken yet, as [`Action::If`].
    Elif {
        /// The condition.
        condition: Expr,
        /// Index of the command.
        otherwise: usize,
        /// Index of the `\endif`.
        end: usize,
    },
    /// Come to from the branch before it, goes to `end`.
    Else {
        /// Index of the `\endif`.
        end: usize,
    },
    /// Nothing by itself.
    Endif,
    /// Begins to send statements without waiting for answers.
    StartPipeline,
    /// A synchronisation point within a pipeline.
    SyncPipeline,
    /// Waits for all answers.
    EndPipeline,
}

/// A command of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// What it does.
    pub action: Action,
    /// Its first line, for reports.
    pub line: String,
    /// The number of that line, from 1.
    pub number: usize,
}

impl Command {
    /// The name of a backslash command.
    pub fn name(&self) -> &'static str {
        match &self.action {
            Action::Sql(_) => "SQL",
            Action::Set { .. } => "set",
            Action::SetShell { .. } => "setshell",
            Action::Shell { .. } => "shell",
            Action::Sleep { .. } => "sleep",
            Action::If { .. } => "if",
            Action::Elif { .. } => "elif",
            Action::Else { .. } => "else",
            Action::Endif => "endif",
            Action::StartPipeline => "startpipeline",
            Action::SyncPipeline => "syncpipeline",
            Action::EndPipeline => "endpipeline",
        }
    }
}

/// A script.
#[derive(Debug, Clone, PartialEq)]
pub struct Script {
    /// What messages and reports call it: a file's name, `<builtin: TPC-B (sort of)>`.
    pub name: String,
    /// Its commands, in order.
    pub commands: Vec<Command>,
}

/// What is wrong with a script, in pgbench's words and form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct SyntaxError {
    /// What the script is called.
    pub script: String,
    /// From 1; `None` for what concerns the script as a whole.
    pub line: Option<usize>,
    /// What is wrong.
    pub message: String,
    /// The line itself and the byte of it that the mistake was found at, where it is shown.
    pub shown: Option<(String, Option<usize>)>,
}

impl SyntaxError {
    fn text(&self) -> String {
        let mut text = match self.line {
            Some(line) => format!("{}:{line}: {}", self.script, self.message),
            None => self.message.clone(),
        };
        if let Some((line, at)) = &self.shown {
            text.push('\n');
            text.push_str(line);
            if let Some(at) = at {
                let column = line.get(..*at).map_or(*at, |front| front.chars().count());
                text.push_str(&format!("\n{}^ error found here", " ".repeat(column)));
            }
        }
        text
    }
}

impl Script {
    /// Reads a script. Names of variables are taken up in `names`, which all scripts of a run share.
    ///
    /// # Errors
    /// The first mistake.
    pub fn parse(name: &str, text: &str, names: &mut Names) -> Result<Script, SyntaxError> {
        let mut reader = commands::Reader { script: name, text, names, commands: Vec::new() };
        let mut at = 0;
        loop {
            let (statement, taken, end) = sql::take(&text[at..]);
            if !statement.is_empty() {
                reader.push_sql(statement, at, at + taken);
            }
            at += taken;
            match end {
                End::Semicolon => {}
                End::Backslash => at = reader.backslash(at)?,
                End::Text => break,
            }
        }
        let mut commands = reader.commands;
        link(&mut commands).map_err(|(at, message)| SyntaxError {
            script: name.to_owned(),
            line: None,
            message: format!("condition error in script \"{name}\" command {}: {message}", at + 1),
            shown: None,
        })?;
        if commands.is_empty() {
            return Err(SyntaxError {
                script: name.to_owned(),
                line: None,
                message: format!("empty command list for script \"{name}\""),
                shown: None,
            });
        }
        Ok(Script { name: name.to_owned(), commands })
    }
}

/// One `\if` that is open.
struct Open {
    /// The branch whose `otherwise` is not known yet.
    branch: Option<usize>,
    /// Those that go to the `\endif`.
    ends: Vec<usize>,
    has_else: bool,
}

/// Fills in where conditions lead.
fn link(commands: &mut [Command]) -> Result<(), (usize, &'static str)> {
    let mut open: Vec<Open> = Vec::new();
    for at in 0..commands.len() {
        match &commands[at].action {
            Action::If { .. } => open.push(Open { branch: Some(at), ends: Vec::new(), has_else: false }),
            Action::Elif { .. } => {
                let Some(last) = open.last_mut() else { return Err((at, "\\elif without matching \\if")) };
                if last.has_else {
                    return Err((at, "\\elif after \\else"));
                }
                let before = last.branch.replace(at);
                last.ends.push(at);
                set_otherwise(commands, before, at);
            }
            Action::Else { .. } => {
                let Some(last) = open.last_mut() else { return Err((at, "\\else without matching \\if")) };
                if std::mem::replace(&mut last.has_else, true) {
                    return Err((at, "\\else after \\else"));
                }
                let before = last.branch.take();
                last.ends.push(at);
                set_otherwise(commands, before, at);
            }
            Action::Endif => {
                let Some(last) = open.pop() else { return Err((at, "\\endif without matching \\if")) };
                set_otherwise(commands, last.branch, at);
                for from in last.ends {
                    if let Action::Elif { end, .. } | Action::Else { end } = &mut commands[from].action {
                        *end = at;
                    }
                }
            }
            _ => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err((commands.len(), "\\if without matching \\endif")) }
}

fn set_otherwise(commands: &mut [Command], branch: Option<usize>, to: usize) {
    let Some(command) = branch.and_then(|at| commands.get_mut(at)) else { return };
    if let Action::If { otherwise, .. } | Action::Elif { otherwise, .. } = &mut command.action {
        *otherwise = to;
    }
}

/// Where a script goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Index of the command; the number of commands at the end.
    pub at: usize,
    /// It was come to because no branch was taken so far.
    is_searching: bool,
}

impl Script {
    /// Where it begins.
    pub const START: Place = Place { at: 0, is_searching: false };

    /// Carries out conditions from `place` on, up to the next command that is none. The place behind a command is
    /// [`Place::behind`].
    ///
    /// # Errors
    /// The command whose condition cannot be evaluated, and why.
    pub fn resolve(&self, mut place: Place, scope: &mut Scope<'_>) -> Result<Place, (usize, String)> {
        while let Some(command) = self.commands.get(place.at) {
            let at = place.at;
            let (condition, otherwise) = match &command.action {
                Action::Elif { end, .. } | Action::Else { end } if !place.is_searching => {
                    place = Place { at: *end, is_searching: false };
                    continue;
                }
                Action::If { condition, otherwise } | Action::Elif { condition, otherwise, .. } => {
                    (condition, *otherwise)
                }
                Action::Else { .. } | Action::Endif => {
                    place = place.behind();
                    continue;
                }
                _ => break,
            };
            let is_true = scope.value(condition).and_then(|value| value.is_true());
            place = match is_true.map_err(|what| (at, what))? {
                true => place.behind(),
                false => Place { at: otherwise, is_searching: true },
            };
        }
        place.is_searching = false;
        Ok(place)
    }

    /// Values of variables before anything is set.
    pub fn no_values(names: &Names) -> Vec<Option<Value>> {
        vec![None; names.len()]
    }
}

impl Place {
    /// The place after the command here.
    #[must_use]
    pub fn behind(self) -> Place {
        Place { at: self.at + 1, is_searching: false }
    }
}
