//! `-o key=value` options: what a workload declares and how given text becomes values.

use std::borrow::Cow;

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
    Word(Cow<'static, [Cow<'static, str>]>),
    /// Any text.
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
}
