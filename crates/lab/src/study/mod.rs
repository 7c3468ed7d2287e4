//! Study files: parsing, checking, and what is said about a bad one.

mod axes;
mod compare;
mod load;
mod model;
mod parse;
mod problem;
mod read;
#[cfg(test)]
mod tests;
pub mod units;

pub(crate) use compare::{axis_values, position_on_axis};
pub use model::{
    Arrivals, Axes, Body, Compare, CpusChoice, EnvChoice, Exclude, Ladder, Length, Load, Quick, ServerChoice,
    SettingsChoice, StorageChoice, Study, WorkloadChoice,
};
pub use parse::parse;
pub use problem::{Problem, StudyError, nearest, one_of};

use std::path::Path;

use crate::error::Error;

/// Reads and checks a study file.
pub fn read(path: &Path) -> Result<Study, Error> {
    let bytes = std::fs::read(path).map_err(|cause| {
        let hint = if path.extension().is_none() { " (study files end in .toml)" } else { "" };
        Error::Usage(format!("cannot read the study file {}: {cause}{hint}", path.display()))
    })?;
    let text = String::from_utf8(bytes).map_err(|cause| {
        Error::Usage(format!(
            "the study file {} is not UTF-8 text (byte {})",
            path.display(),
            cause.utf8_error().valid_up_to()
        ))
    })?;
    parse(path, &text).map_err(|problems| Error::Study(Box::new(problems)))
}

/// A text without the passwords of the URLs in it: `mysql://user:***@host`.
pub fn mask_passwords(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked.push_str(before);
        let authority_end =
            after.find(|c: char| c.is_whitespace() || "/?#\"'".contains(c)).unwrap_or(after.len());
        // A password may hold an `@` that was not escaped: the host begins after the last one.
        match after[..authority_end].rfind('@') {
            Some(host) => {
                match after[..host].find(':') {
                    Some(colon) => {
                        masked.push_str(&after[..colon]);
                        masked.push_str(":***");
                    }
                    None => masked.push_str(&after[..host]),
                }
                rest = &after[host..];
            }
            None => rest = after,
        }
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod mask_tests {
    use super::mask_passwords;

    #[test]
    fn passwords_in_urls_are_masked() {
        for (given, shown) in [
            ("mysql://root:geheim@h:1/db", "mysql://root:***@h:1/db"),
            ("a = \"postgres://u:p@ss@h/d\" # x://y", "a = \"postgres://u:***@h/d\" # x://y"),
            ("mysql://root@h/db", "mysql://root@h/db"),
            ("http://example.org/a:b@c", "http://example.org/a:b@c"),
            ("no url", "no url"),
        ] {
            assert_eq!(mask_passwords(given), shown);
        }
    }
}
