//! `-o key=value` options: what a workload declares and how given text becomes values.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::random::DistributionKind;
use crate::{Dialect, Given, OptionError};

/// What values an option takes.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionKind {
    /// A whole number from `min` to `max`; the suffixes k, M, G (powers of 1000) are understood.
    Count {
        /// Smallest.
        min: u64,
        /// Largest.
        max: u64,
    },
    /// A number.
    Real {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// `on` or `off` (also true/false, yes/no, 1/0).
    Switch,
    /// One of these words.
    Word(&'static [&'static str]),
    Text,
}

/// One option of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct OptionSpec {
    /// Its key; `-` and `_` are the same to the user.
    pub name: Cow<'static, str>,
    /// The default as the user would write it.
    pub default: Cow<'static, str>,
    /// Allowed values.
    pub kind: OptionKind,
    /// One line of help.
    pub help: Cow<'static, str>,
    /// The servers that heed it; `None`: all.
    pub protocol: Option<wire::Protocol>,
}

impl OptionSpec {
    const fn new(
        name: &'static str,
        default: &'static str,
        kind: OptionKind,
        help: &'static str,
    ) -> OptionSpec {
        OptionSpec {
            name: Cow::Borrowed(name),
            default: Cow::Borrowed(default),
            kind,
            help: Cow::Borrowed(help),
            protocol: None,
        }
    }

    /// The same for servers of one protocol, which the others do not heed.
    pub const fn only(mut self, protocol: wire::Protocol) -> OptionSpec {
        self.protocol = Some(protocol);
        self
    }

    /// A whole number.
    pub const fn count(
        name: &'static str,
        default: &'static str,
        min: u64,
        max: u64,
        help: &'static str,
    ) -> OptionSpec {
        OptionSpec::new(name, default, OptionKind::Count { min, max }, help)
    }

    /// A number.
    pub const fn real(
        name: &'static str,
        default: &'static str,
        min: f64,
        max: f64,
        help: &'static str,
    ) -> OptionSpec {
        OptionSpec::new(name, default, OptionKind::Real { min, max }, help)
    }

    /// `on` or `off`.
    pub const fn switch(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
        OptionSpec::new(name, default, OptionKind::Switch, help)
    }

    /// One of some words.
    pub const fn word(
        name: &'static str,
        default: &'static str,
        words: &'static [&'static str],
        help: &'static str,
    ) -> OptionSpec {
        OptionSpec::new(name, default, OptionKind::Word(words), help)
    }

    pub const fn text(name: &'static str, default: &'static str, help: &'static str) -> OptionSpec {
        OptionSpec::new(name, default, OptionKind::Text, help)
    }

    /// The value in its one canonical spelling.
    ///
    /// # Errors
    /// What is allowed instead, as a part of a sentence ("wants a whole number from 1 to 10").
    pub fn canonical(&self, value: &str) -> Result<String, String> {
        match &self.kind {
            OptionKind::Count { min, max } => {
                let parsed = parse_count(value).filter(|n| (min..=max).contains(&n));
                parsed.map(|n| n.to_string()).ok_or_else(|| {
                    if *max == u64::MAX {
                        format!("wants a whole number from {min} up (10000, 10k, 1M)")
                    } else {
                        format!("wants a whole number from {min} to {max}")
                    }
                })
            }
            OptionKind::Real { min, max } => value
                .parse::<f64>()
                .ok()
                .filter(|x| x >= min && x <= max)
                .map(|x| x.to_string())
                .ok_or_else(|| format!("wants a number from {min} to {max}")),
            OptionKind::Switch => match value.to_ascii_lowercase().as_str() {
                "on" | "true" | "yes" | "1" => Ok("on".to_owned()),
                "off" | "false" | "no" | "0" => Ok("off".to_owned()),
                _ => Err("wants on or off".to_owned()),
            },
            OptionKind::Word(words) => words
                .iter()
                .find(|word| word.eq_ignore_ascii_case(value))
                .map(|word| (*word).to_owned())
                .ok_or_else(|| {
                    let named: Vec<&str> =
                        words.iter().map(|word| if word.is_empty() { "(nothing)" } else { *word }).collect();
                    format!("wants one of {}", named.join(", "))
                }),
            OptionKind::Text => Ok(value.to_owned()),
        }
    }
}

/// `10000`, `10k`, `1.5M`; `None` where it is no whole number.
fn parse_count(text: &str) -> Option<u64> {
    let text = text.trim().replace('_', "");
    let (digits, unit) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 1_000),
        'm' | 'M' => (&text[..text.len() - 1], 1_000_000),
        'g' | 'G' => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text.as_str(), 1),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let scaled = digits.parse::<f64>().ok()? * unit as f64;
    (scaled >= 0.0 && scaled.fract() == 0.0 && scaled < 2_f64.powi(53)).then_some(scaled as u64)
}

const PS_MODES: &[&str] = &["auto", "disable"];

/// `db_ps_mode` of workloads that prepare their statements unless they are told not to.
pub(crate) const PS_MODE: OptionSpec =
    ps_mode("auto", "disable: text protocol in place of prepared statements");
/// The engine of the tables.
pub(crate) const ENGINE: OptionSpec =
    OptionSpec::text("mysql_storage_engine", "innodb", "storage engine (MySQL family)")
        .only(wire::Protocol::Mysql);
/// What stands at the end of each CREATE TABLE.
pub(crate) const TABLE_OPTIONS: OptionSpec =
    OptionSpec::text("create_table_options", "", "appended to CREATE TABLE");
/// The seed of the data, of which a run's seed is independent.
pub(crate) const DATA_SEED: OptionSpec =
    OptionSpec::count("data_seed", "42", 0, u64::MAX, "seed of the generated rows");

/// `db_ps_mode` with another default.
pub(crate) const fn ps_mode(default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec::word("db_ps_mode", default, PS_MODES, help)
}

/// Options with their values: what was given, and defaults for the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    values: BTreeMap<String, String>,
}

impl Options {
    /// [`Options::parse`] for a workload with the option `mysql_storage_engine`: where it was not given, the engine
    /// that the study or the command line chose for the server takes its place.
    ///
    /// # Errors
    /// As [`Options::parse`].
    pub(crate) fn for_server(
        workload: &str,
        specs: &[OptionSpec],
        given: &Given,
        dialect: &Dialect,
    ) -> Result<Options, OptionError> {
        let mut options = Options::parse(workload, specs, given)?;
        if let Some(engine) =
            dialect.engine.as_deref().filter(|_| !given.contains_key("mysql_storage_engine"))
        {
            options.set("mysql_storage_engine", engine);
        }
        Ok(options)
    }

    /// Whether statements are prepared, by [`PS_MODE`].
    pub(crate) fn is_prepared(&self) -> bool {
        self.text("db_ps_mode") == "auto"
    }

    /// These options with their values, for the key of a dataset.
    pub(crate) fn key_of(&self, names: &[&str]) -> String {
        names.iter().map(|name| format!(" {name}={}", self.text(name))).collect()
    }

    /// Checks what was given against what the workload declares.
    ///
    /// # Errors
    /// An unknown key or a value that the key does not allow.
    pub(crate) fn parse(workload: &str, specs: &[OptionSpec], given: &Given) -> Result<Options, OptionError> {
        let mut values: BTreeMap<String, String> =
            specs.iter().map(|spec| (spec.name.to_string(), spec.default.to_string())).collect();
        for (key, value) in given {
            let name = key.replace('-', "_");
            let Some(spec) = specs.iter().find(|spec| spec.name == name) else {
                let known: Vec<&str> = specs.iter().map(|spec| spec.name.as_ref()).collect();
                return Err(OptionError::Unknown {
                    workload: workload.to_owned(),
                    name: key.clone(),
                    known: known.join(", "),
                });
            };
            let value = spec.canonical(value).map_err(|allowed| OptionError::Invalid {
                name: name.clone(),
                value: value.clone(),
                allowed,
            })?;
            values.insert(name, value);
        }
        Ok(Options { values })
    }

    /// Every option with its value.
    pub(crate) fn all(&self) -> &BTreeMap<String, String> {
        &self.values
    }

    /// The value of an option that the workload declares; asking for another is a mistake of the program.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.values.get(name) {
            Some(value) => value,
            None => panic!("the workload does not declare the option {name}"),
        }
    }

    /// A whole number.
    pub(crate) fn count(&self, name: &str) -> u64 {
        parse_count(self.text(name)).unwrap_or_else(|| panic!("the option {name} is not a whole number"))
    }

    /// A number.
    pub(crate) fn real(&self, name: &str) -> f64 {
        self.text(name).parse().unwrap_or_else(|_| panic!("the option {name} is not a number"))
    }

    /// `on` or `off`.
    pub(crate) fn switch(&self, name: &str) -> bool {
        self.text(name) == "on"
    }

    /// Sets what another option or the server decides (the engine of a study's axis).
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), value.to_owned());
    }
}

/// The words of `rand_type`.
const RAND_TYPES: &[&str] = &["uniform", "gaussian", "special", "pareto", "zipfian"];

/// The options of a distribution. `rand_type` is `uniform`, as in sysbench since 1.1 (its 1.0 had `special`).
pub(crate) const RANDOM_OPTIONS: [OptionSpec; 6] = [
    OptionSpec::word(
        "rand_type",
        "uniform",
        RAND_TYPES,
        "distribution of row numbers (sysbench 1.0's default was special)",
    ),
    OptionSpec::count(
        "rand_spec_iter",
        "12",
        1,
        10_000,
        "special: uniform numbers averaged for spread-out draws",
    ),
    OptionSpec::real("rand_spec_pct", "1", 0.0, 100.0, "special: percent of the rows that are special"),
    OptionSpec::real(
        "rand_spec_res",
        "75",
        0.0,
        99.999,
        "special: percent of the draws that go to special rows",
    ),
    OptionSpec::real(
        "rand_pareto_h",
        "0.2",
        1e-6,
        0.999_999,
        "pareto: share of the rows that gets share 1-h of the draws",
    ),
    OptionSpec::real("rand_zipfian_exp", "0.8", 1e-6, 100.0, "zipfian: exponent"),
];

/// The distribution that [`RANDOM_OPTIONS`] ask for.
pub(crate) fn distribution_kind(options: &Options) -> DistributionKind {
    match options.text("rand_type") {
        "gaussian" => DistributionKind::Gaussian,
        "special" => DistributionKind::Special {
            iterations: options.count("rand_spec_iter") as u32,
            hot_pct: options.real("rand_spec_pct"),
            draws_pct: options.real("rand_spec_res"),
        },
        "pareto" => DistributionKind::Pareto { h: options.real("rand_pareto_h") },
        "zipfian" => DistributionKind::Zipfian { exponent: options.real("rand_zipfian_exp") },
        _ => DistributionKind::Uniform,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPECS: &[OptionSpec] = &[
        OptionSpec::count("table_size", "10000", 1, u64::MAX, ""),
        OptionSpec::switch("skip_trx", "off", ""),
        OptionSpec::word("mode", "a", &["a", "b"], ""),
        OptionSpec::real("share", "0.5", 0.0, 1.0, ""),
    ];

    fn parse(key: &str, value: &str) -> Result<Options, OptionError> {
        Options::parse("w", SPECS, &BTreeMap::from([(key.to_owned(), value.to_owned())]))
    }

    #[test]
    fn values_become_canonical() {
        assert_eq!(parse("table-size", "1M").map(|o| o.count("table_size")), Ok(1_000_000));
        assert_eq!(parse("table_size", "2.5k").map(|o| o.count("table_size")), Ok(2500));
        assert_eq!(parse("table_size", "5000000000").map(|o| o.count("table_size")), Ok(5_000_000_000));
        assert_eq!(parse("skip_trx", "1").map(|o| o.switch("skip_trx")), Ok(true));
        assert_eq!(parse("mode", "B").map(|o| o.text("mode").to_owned()), Ok("b".to_owned()));
        assert_eq!(parse("share", "0.25").map(|o| o.real("share")), Ok(0.25));
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        for (key, value, says) in [
            ("table_size", "0", "from 1 up"),
            ("table_size", "1.5", "whole number"),
            ("table_size", "-3", "whole number"),
            ("skip_trx", "maybe", "on or off"),
            ("mode", "c", "one of a, b"),
            ("share", "2", "from 0 to 1"),
            ("share", "NaN", "from 0 to 1"),
            ("tabel_size", "1", "it has: table_size, skip_trx"),
        ] {
            let text = parse(key, value).expect_err(key).to_string();
            assert!(text.contains(says) && text.contains(key), "{text}");
        }
    }
}
