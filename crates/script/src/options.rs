//! sysbench's command line: options by section, their kinds and defaults, `--name=value`, config files.

use std::collections::BTreeMap;
use std::path::Path;

use wire::files;

use crate::error::Error;

/// What an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `on` or `off`.
    Bool,
    /// A whole number.
    Int,
    /// A whole number with a suffix K, M, G, T (powers of 1024).
    Size,
    /// A number.
    Double,
    Text,
    /// Texts joined by commas.
    List,
    /// A file name.
    File,
}

impl Kind {
    /// As the list of options calls it.
    fn named(word: &str) -> Kind {
        match word {
            "bool" => Kind::Bool,
            "int" => Kind::Int,
            "size" => Kind::Size,
            "double" => Kind::Double,
            "list" => Kind::List,
            "file" => Kind::File,
            _ => Kind::Text,
        }
    }
}

/// An option as declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Declared {
    /// Name, as in help (`table_size`, `db-driver`).
    pub name: String,
    /// What it does.
    pub help: String,
    /// Default as text; `None` where there is none.
    pub default: Option<String>,
    /// What it takes.
    pub kind: Kind,
    /// Section of the help.
    pub section: Section,
}

/// Sections of the help, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Section {
    /// General options.
    General,
    /// Random numbers.
    Random,
    Log,
    Database,
    /// MySQL.
    Mysql,
    /// PostgreSQL.
    Pgsql,
    /// Plimsoll's own additions.
    Plimsoll,
    /// The script's.
    Script,
}

impl Section {
    /// As the list of options calls it.
    fn named(word: &str) -> Section {
        match word {
            "general" => Section::General,
            "random" => Section::Random,
            "log" => Section::Log,
            "database" => Section::Database,
            "mysql" => Section::Mysql,
            "pgsql" => Section::Pgsql,
            _ => Section::Plimsoll,
        }
    }
}

/// Which release's defaults and report to follow where the two differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Compat {
    /// 1.0.20.
    #[default]
    V1_0,
    /// The development version.
    Master,
}

/// The options that there are without a script: of each section a line with its name, then a line for each option with its
/// name, kind, default (`-` for none, `""` for an empty one) and help.
const OPTIONS: &str = include_str!("options.txt");

/// Names of 0.5 and what they are called now.
pub(crate) const ALIASES: [(&str, &str); 4] =
    [("tx-rate", "rate"), ("max-requests", "events"), ("max-time", "time"), ("num-threads", "threads")];

/// All options that there are without a script.
pub(crate) fn built_in(compat: Compat) -> Vec<Declared> {
    let mut section = Section::General;
    let mut all = Vec::new();
    for line in OPTIONS.lines() {
        match line.strip_prefix("  ") {
            Some(row) => all.extend(declared(section, row, compat)),
            None => section = Section::named(line),
        }
    }
    all
}

fn declared(section: Section, row: &str, compat: Compat) -> Option<Declared> {
    let (name, rest) = row.split_once(' ')?;
    let (kind, rest) = rest.trim_start().split_once(' ')?;
    let (default, help) = rest.trim_start().split_once(' ')?;
    let default = match (compat, name, default) {
        (Compat::Master, "rand-type", _) => Some("uniform"),
        (.., "-") => None,
        (.., default) => Some(default.trim_matches('"')),
    };
    Some(Declared {
        name: name.to_owned(),
        help: help.trim_start().to_owned(),
        default: default.map(str::to_owned),
        kind: Kind::named(kind),
        section,
    })
}

/// The words of a command line, sorted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Words {
    /// `--name=value`, in order; a bare `--name` has no value.
    pub options: Vec<Given>,
    /// Test name and command.
    pub positional: Vec<String>,
}

/// `-` and `_` are the same.
pub(crate) fn key(name: &str) -> String {
    name.replace('_', "-")
}

/// Sorts words; a config file's options come before those of the command line, which win.
///
/// # Errors
/// An unreadable config file or a word that is neither.
pub(crate) fn words(arguments: &[String]) -> Result<Words, Error> {
    let mut words = Words::default();
    for argument in arguments {
        if let Some(test) = argument.strip_prefix("--test=") {
            eprintln!(
                "WARNING: the --test option is deprecated. You can pass a script name or path on the command line without \
                 any options."
            );
            words.positional.insert(0, test.to_owned());
            continue;
        }
        match argument.strip_prefix("--") {
            Some(option) => match option.split_once('=') {
                Some((name, value)) => words.options.push((key(name), Some(value.to_owned()))),
                None => words.options.push((key(option), None)),
            },
            None if argument.starts_with('-') && argument.len() > 1 => {
                return Err(Error::Usage(format!("invalid option: {argument} (options are --name=value)")));
            }
            None => words.positional.push(argument.clone()),
        }
    }
    if let Some(surplus) = words.positional.get(2) {
        return Err(Error::Usage(format!("Unrecognized command line argument: {surplus}")));
    }
    let config = words.options.iter().rev().find(|(name, _)| name == "config-file");
    if let Some((_, Some(path))) = config.cloned() {
        let mut first = config_file(&path)?;
        first.append(&mut words.options);
        words.options = first;
    }
    Ok(words)
}

/// An option with its value, `-` for `_` in its name.
pub(crate) type Given = (String, Option<String>);

fn config_file(path: &str) -> Result<Vec<Given>, Error> {
    let text = files::read_text(Path::new(path), &files::OPTIONS)
        .map_err(|source| Error::File { path: path.to_owned(), source })?;
    Ok(text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| match line.trim_start_matches("--").split_once('=') {
            Some((name, value)) => (key(name.trim()), Some(value.trim().to_owned())),
            None => (key(line.trim_start_matches("--")), None),
        })
        .collect())
}

/// Options with their values.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values {
    declared: BTreeMap<String, Declared>,
    /// Keys as declared: help keeps that order.
    order: Vec<String>,
    given: BTreeMap<String, String>,
}

impl Values {
    /// Checks what was given against what is declared. `takes_any`: unknown options are texts, as for scripts that
    /// declare none.
    ///
    /// # Errors
    /// An unknown option, with the nearest name; a value of the wrong kind.
    pub(crate) fn new(declared: Vec<Declared>, given: &[Given], takes_any: bool) -> Result<Values, Error> {
        let mut values = Values::of(declared);
        for (name, value) in given {
            if values.declared.contains_key(name) {
                values.set(name, value)?;
            } else if takes_any {
                let free = Declared {
                    name: name.clone(),
                    help: String::new(),
                    default: None,
                    kind: Kind::Text,
                    section: Section::Script,
                };
                values.declared.insert(name.clone(), free);
                values.given.insert(name.clone(), value.clone().unwrap_or_default());
            } else {
                let known = values.declared.keys().map(String::as_str);
                let hint = wire::spelling::nearest(name, known)
                    .map(|n| format!("; did you mean --{n}?"))
                    .unwrap_or_default();
                let given = value.as_ref().map(|value| format!("={value}")).unwrap_or_default();
                return Err(Error::Usage(format!("invalid option: --{name}{given}{hint}")));
            }
        }
        Ok(values)
    }

    /// The values of what is declared; unknown options are left for later.
    ///
    /// # Errors
    /// A value of the wrong kind.
    pub(crate) fn known(declared: Vec<Declared>, given: &[Given]) -> Result<Values, Error> {
        let mut values = Values::of(declared);
        for (name, value) in given.iter().filter(|(name, _)| name != "test") {
            if values.declared.contains_key(name) {
                values.set(name, value)?;
            }
        }
        Ok(values)
    }

    fn of(declared: Vec<Declared>) -> Values {
        let order = declared.iter().map(|d| key(&d.name)).collect();
        let declared = declared.into_iter().map(|d| (key(&d.name), d)).collect();
        Values { declared, order, given: BTreeMap::new() }
    }

    fn set(&mut self, name: &str, value: &Option<String>) -> Result<(), Error> {
        let option = &self.declared[name];
        let value = match (value, option.kind) {
            (Some(value), _) => value.clone(),
            (None, Kind::Bool) => "on".into(),
            (None, _) if option.name == "mysql-ssl" => "on".into(),
            (None, _) => return Err(Error::Usage(format!("option --{name} wants a value: --{name}=VALUE"))),
        };
        check(option, &value)?;
        let name = ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, real)| real);
        self.given.insert(name.to_owned(), value);
        Ok(())
    }

    /// The option list of a section as sysbench's help prints it.
    pub(crate) fn help_of(&self, section: Section) -> String {
        let declared = self.order.iter().filter_map(|key| self.declared.get(key));
        let shown: Vec<(String, &Declared)> = declared
            .filter(|option| option.section == section)
            .map(|option| {
                let suffix = match option.kind {
                    Kind::Bool => "[=on|off]",
                    Kind::Int | Kind::Double => "=N",
                    Kind::Size => "=SIZE",
                    Kind::Text => "=STRING",
                    Kind::List => "=[LIST,...]",
                    Kind::File => "=FILENAME",
                };
                (format!("--{}{suffix}", option.name), option)
            })
            .collect();
        let width = shown.iter().map(|(left, _)| left.len()).max().unwrap_or(0);
        let mut text = String::new();
        for (left, option) in shown {
            let default = match &option.default {
                Some(default)
                    if !default.is_empty() || option.kind == Kind::Text || option.kind == Kind::List =>
                {
                    format!(" [{default}]")
                }
                _ => String::new(),
            };
            text.push_str(&format!("  {left:width$} {}{default}\n", option.help));
        }
        text
    }

    /// All options with the value in force.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Declared, Option<&str>)> {
        self.declared.values().map(|option| (option, self.get(&option.name)))
    }

    /// The value in force.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let name = key(name);
        match self.given.get(&name) {
            Some(value) => Some(value),
            None => self.declared.get(&name)?.default.as_deref(),
        }
    }

    /// Whether the user gave it.
    pub(crate) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(&key(name))
    }

    /// A switch.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.get(name).and_then(switch).unwrap_or(false)
    }

    /// A whole number; 0 where there is none.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.get(name).and_then(size).unwrap_or(0)
    }

    /// A number; 0 where there is none.
    pub(crate) fn real(&self, name: &str) -> f64 {
        self.get(name).and_then(|text| text.parse().ok()).unwrap_or(0.0)
    }

    /// Text; empty where there is none.
    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        self.text(name).split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    }
}

fn check(option: &Declared, value: &str) -> Result<(), Error> {
    let fits = match option.kind {
        Kind::Bool => switch(value).is_some(),
        Kind::Int => value.parse::<i64>().is_ok() || size(value).is_some(),
        Kind::Size => size(value).is_some(),
        Kind::Double => value.parse::<f64>().is_ok(),
        Kind::Text | Kind::List | Kind::File => true,
    };
    if fits {
        return Ok(());
    }
    if option.kind == Kind::Bool {
        // Word for word as sysbench says it.
        return Err(Error::Usage(format!("invalid option: --{}={value}", key(&option.name))));
    }
    let wants = match option.kind {
        Kind::Int => "a whole number",
        Kind::Size => "a whole number with an optional suffix K, M, G or T",
        _ => "a number",
    };
    Err(Error::Usage(format!("Invalid value for the '{}' option: '{value}' (it takes {wants})", option.name)))
}

/// `on`, `off` and the words that mean them.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "on" | "true" | "1" | "yes" => Some(true),
        "off" | "false" | "0" | "no" => Some(false),
        _ => None,
    }
}

/// A whole number with a suffix for powers of 1024.
pub(crate) fn size(text: &str) -> Option<u64> {
    let (digits, shift) = match text.chars().last()?.to_ascii_uppercase() {
        'K' => (&text[..text.len() - 1], 10),
        'M' => (&text[..text.len() - 1], 20),
        'G' => (&text[..text.len() - 1], 30),
        'T' => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(arguments: &[&str]) -> Result<Values, Error> {
        let arguments: Vec<String> = arguments.iter().map(|a| (*a).to_owned()).collect();
        Values::new(built_in(Compat::V1_0), &words(&arguments)?.options, false)
    }

    #[test]
    fn each_line_of_the_list_is_an_option() {
        let all = built_in(Compat::V1_0);
        assert_eq!(all.len(), OPTIONS.lines().filter(|line| line.starts_with(' ')).count());
        for option in &all {
            assert!(
                option.default.as_ref().is_none_or(|default| check(option, default).is_ok()),
                "{option:?}"
            );
        }
    }

    #[test]
    fn options_have_defaults_and_aliases() {
        let values = values(&["--num-threads=4", "--time=0", "--histogram", "--mysql_user=root"]).unwrap();
        assert_eq!((values.count("threads"), values.count("time"), values.count("events")), (4, 0, 0));
        assert!(values.is_on("histogram") && !values.is_on("debug"));
        assert_eq!((values.text("mysql-user"), values.text("rand-type")), ("root", "special"));
    }

    #[test]
    fn mistakes_name_what_is_meant() {
        let message = |arguments: &[&str]| values(arguments).unwrap_err().to_string();
        assert_eq!(message(&["--thread=4"]), "invalid option: --thread=4; did you mean --threads?");
        assert!(message(&["--threads=four"]).contains("whole number"));
        assert!(message(&["--threads"]).contains("wants a value"));
        assert!(message(&["-t"]).contains("options are --name=value"));
    }

    #[test]
    fn config_files_yield_to_the_command_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# a comment\nthreads=7\n\nevents = 5\n").unwrap();
        let config = format!("--config-file={}", file.path().display());
        let values = values(&["--events=6", &config]).unwrap();
        assert_eq!((values.count("threads"), values.count("events")), (7, 6));
    }

    #[test]
    fn sizes() {
        assert_eq!(
            (size("64K"), size("2g"), size("12"), size("x")),
            (Some(65_536), Some(1 << 31), Some(12), None)
        );
    }
}
