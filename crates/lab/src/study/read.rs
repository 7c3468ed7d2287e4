//! Typed reading of TOML tables that remembers what was asked for, so that what is left over is a typo.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use wire::spelling::nearest;

use super::problem::{Problem, one_of};
use super::units;

/// A value and where it stands in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct At<T> {
    pub value: T,
    /// Its bytes in the file.
    pub span: Range<usize>,
}

impl<T> At<T> {
    /// Another value at the same place.
    pub(crate) fn with<U>(&self, value: U) -> At<U> {
        At { value, span: self.span.clone() }
    }
}

/// Collects problems while a file is read.
#[derive(Debug, Default)]
pub(super) struct Problems(pub(super) Vec<Problem>);

impl Problems {
    pub(super) fn add(&mut self, span: &Range<usize>, message: impl Into<String>, label: impl Into<String>) {
        self.0.push(Problem { message: message.into(), span: span.clone(), label: label.into(), help: None });
    }

    pub(super) fn add_help(
        &mut self,
        span: &Range<usize>,
        message: impl Into<String>,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        let problem = Problem {
            message: message.into(),
            span: span.clone(),
            label: label.into(),
            help: Some(help.into()),
        };
        self.0.push(problem);
    }
}

/// One value that is being read.
#[derive(Clone, Copy)]
pub(super) struct Item<'t> {
    pub(super) value: &'t Spanned<DeValue<'t>>,
}

impl<'t> Item<'t> {
    pub(super) fn span(&self) -> Range<usize> {
        self.value.span()
    }

    pub(super) fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    fn wrong(&self, problems: &mut Problems, wanted: &str) {
        let got = match self.value.get_ref().type_str() {
            "integer" => "an integer",
            "array" => "a list",
            "table" => "a table",
            "string" => "a string",
            "float" => "a number with a fraction",
            "boolean" => "true or false",
            _ => "a date or time",
        };
        problems.add(&self.span(), format!("{wanted} is needed here"), format!("this is {got}"));
    }

    pub(super) fn text(&self, problems: &mut Problems) -> Option<At<String>> {
        match self.value.get_ref().as_str() {
            Some(text) => Some(At { value: text.to_owned(), span: self.span() }),
            None => {
                self.wrong(problems, "a string");
                None
            }
        }
    }

    pub(super) fn truth(&self, problems: &mut Problems) -> Option<At<bool>> {
        let value = self.value.get_ref().as_bool();
        if value.is_none() {
            self.wrong(problems, "true or false");
        }
        value.map(|value| At { value, span: self.span() })
    }

    pub(super) fn integer(&self) -> Option<i64> {
        let number = self.value.get_ref().as_integer()?;
        i64::from_str_radix(&number.as_str().replace('_', ""), number.radix()).ok()
    }

    pub(super) fn count<N: TryFrom<i64>>(&self, problems: &mut Problems, least: i64) -> Option<At<N>> {
        let Some(number) = self.integer() else {
            match self.value.get_ref().as_integer() {
                Some(number) => {
                    let message = format!("{} is not possible here", number.as_str());
                    problems.add(&self.span(), message, "too large");
                }
                None => self.wrong(problems, "a whole number"),
            }
            return None;
        };
        let fits = (number >= least).then(|| N::try_from(number).ok()).flatten();
        if fits.is_none() {
            let label = if number < least { format!("less than {least}") } else { "too large".into() };
            problems.add(&self.span(), format!("{number} is not possible here"), label);
        }
        fits.map(|value| At { value, span: self.span() })
    }

    /// A whole number within bounds that are named.
    pub(super) fn count_within<N>(&self, problems: &mut Problems, least: u32, most: N) -> Option<At<N>>
    where
        N: Copy + Display + Into<i128> + TryFrom<i64>,
    {
        if let Some(number) = self.integer().filter(|number| i128::from(*number) > most.into()) {
            let message = format!("{number} is not possible here");
            problems.add(&self.span(), message, format!("at most {most}"));
            return None;
        }
        self.count(problems, i64::from(least))
    }

    pub(super) fn number(&self, problems: &mut Problems) -> Option<At<f64>> {
        let value = self.value.get_ref();
        let number = match value.as_float() {
            Some(float) => float.as_str().replace('_', "").parse::<f64>().ok().filter(|f| f.is_finite()),
            None => self.integer().map(|integer| integer as f64),
        };
        if number.is_none() {
            self.wrong(problems, "a number");
        }
        number.map(|value| At { value, span: self.span() })
    }

    pub(super) fn duration(&self, problems: &mut Problems) -> Option<At<Duration>> {
        let Some(text) = self.value.get_ref().as_str() else {
            let help = "write a number with its unit in quotes: \"10s\", \"1m30s\", \"500ms\"";
            problems.add_help(&self.span(), "a duration needs its unit", "which unit?", help);
            return None;
        };
        match units::duration(text) {
            Ok(value) => Some(At { value, span: self.span() }),
            Err(why) => {
                problems.add_help(
                    &self.span(),
                    format!("`{text}` is not a duration"),
                    why,
                    "write a number with its unit: \"10s\", \"1m30s\", \"500ms\"",
                );
                None
            }
        }
    }

    /// A scalar as the text that a server variable or a workload option gets.
    pub(super) fn scalar(&self, problems: &mut Problems) -> Option<At<String>> {
        let value = self.value.get_ref();
        let text = if let Some(text) = value.as_str() {
            text.to_owned()
        } else if let Some(integer) = self.integer() {
            integer.to_string()
        } else if let Some(float) = value.as_float() {
            float.as_str().replace('_', "")
        } else if let Some(flag) = value.as_bool() {
            if flag { "on".to_owned() } else { "off".to_owned() }
        } else {
            self.wrong(problems, "a single value");
            return None;
        };
        Some(At { value: text, span: self.span() })
    }

    /// The members of a list; a single value counts as a list of one. An empty list is refused.
    pub(super) fn list(&self, problems: &mut Problems) -> Vec<Item<'t>> {
        match self.value.get_ref().as_array() {
            None => vec![*self],
            Some(array) if array.is_empty() => {
                let help = "give at least one value, or leave the key out";
                problems.add_help(&self.span(), "an empty list leaves nothing to measure", "empty", help);
                Vec::new()
            }
            Some(array) => array.iter().map(|value| Item { value }).collect(),
        }
    }

    pub(super) fn table(&self, problems: &mut Problems, name: impl Into<String>) -> Option<Table<'t>> {
        match self.value.get_ref().as_table() {
            Some(table) => Some(Table::new(table, self.span(), name)),
            None => {
                self.wrong(problems, "a table");
                None
            }
        }
    }

    /// A table of scalars, as for settings, options and environment.
    pub(super) fn scalars(&self, problems: &mut Problems) -> BTreeMap<String, At<String>> {
        self.pairs(problems, "").into_iter().map(|(key, value)| (key.value, value)).collect()
    }

    /// The same, with the place of each key.
    pub(super) fn pairs(&self, problems: &mut Problems, name: &str) -> Vec<(At<String>, At<String>)> {
        let table = self.table(problems, name);
        let entries = table.iter().flat_map(Table::entries);
        entries.filter_map(|(key, item)| Some((key, item.scalar(problems)?))).collect()
    }
}

/// A table whose known keys are asked for one by one.
pub(super) struct Table<'t> {
    table: &'t DeTable<'t>,
    span: Range<usize>,
    name: String,
    asked: Vec<&'static str>,
}

impl<'t> Table<'t> {
    pub(super) fn new(table: &'t DeTable<'t>, span: Range<usize>, name: impl Into<String>) -> Table<'t> {
        Table { table, span, name: name.into(), asked: Vec::new() }
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The value of a key, where it is given.
    pub(super) fn get(&mut self, key: &'static str) -> Option<Item<'t>> {
        self.asked.push(key);
        self.table.get(key).map(|value| Item { value })
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.get(key).is_some()
    }

    /// Where a key (not its value) stands.
    pub(super) fn key_span(&self, key: &str) -> Range<usize> {
        self.table.get_key_value(key).map_or(self.span.clone(), |(key, _)| key.span())
    }

    pub(super) fn need(
        &mut self,
        key: &'static str,
        problems: &mut Problems,
        example: &str,
    ) -> Option<Item<'t>> {
        let found = self.get(key);
        if found.is_none() {
            let message = if self.name.is_empty() {
                format!("`{key}` is missing")
            } else {
                format!("`{key}` is missing in {}", self.name)
            };
            let head = self.span.start..self.span.end.min(self.span.start + 1);
            problems.add_help(&head, message, "needed here", format!("for example: {example}"));
        }
        found
    }

    /// All keys and values in the order of the file.
    pub(super) fn entries(&self) -> Vec<(At<String>, Item<'t>)> {
        let mut all: Vec<_> = self
            .table
            .iter()
            .map(|(key, value)| (At { value: key.get_ref().to_string(), span: key.span() }, Item { value }))
            .collect();
        all.sort_by_key(|(key, _)| key.span.start);
        all
    }

    /// Refuses every key that was never asked for.
    pub(super) fn finish(self, problems: &mut Problems) {
        for (key, _) in self.entries() {
            if self.asked.contains(&key.value.as_str()) {
                continue;
            }
            let place = if self.name.is_empty() { "a study file".to_owned() } else { self.name.clone() };
            let help = match nearest(&key.value, self.asked.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", self.asked.join(", ")),
            };
            problems.add_help(
                &key.span,
                format!("unknown key `{}`", key.value),
                format!("not a key of {place}"),
                help,
            );
        }
    }
}

/// Refuses a word that is not one of those allowed.
pub(super) fn word(
    problems: &mut Problems,
    given: &At<String>,
    what: &str,
    allowed: impl IntoIterator<Item = &'static str> + Clone,
) -> bool {
    if allowed.clone().into_iter().any(|name| name == given.value) {
        return true;
    }
    let help = match nearest(&given.value, allowed.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("allowed: {}", one_of(allowed)),
    };
    problems.add_help(&given.span, format!("`{}` is not {what}", given.value), "unknown", help);
    false
}
