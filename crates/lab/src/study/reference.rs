//! Every key of a study file, for `plimsoll help study` and docs/study-file.md. Tests hold it against the parser: each
//! key that the parser asks for stands here and nothing else does, each example is accepted, each default is the one
//! that holds without the key.

use std::fmt::Write as _;
use std::sync::LazyLock;

use serde::Deserialize;

/// A table of a study file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// As it stands in the file, or as a value of an axis.
    pub name: String,
    pub about: String,
    pub keys: Vec<Key>,
}

/// A key of a study file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Key {
    /// The key with a value.
    pub example: String,
    /// What stands there.
    pub kind: String,
    /// Its value where the key is left out, as it would be written; empty where there is none.
    #[serde(default)]
    pub default: String,
    pub about: String,
}

impl Key {
    /// What its example begins with.
    pub fn name(&self) -> &str {
        self.example.split(' ').next().unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Reference {
    section: Vec<Section>,
}

/// All tables of a study file.
pub static SECTIONS: LazyLock<Vec<Section>> = LazyLock::new(|| {
    let read = toml::from_str::<Reference>(include_str!("reference.toml"));
    read.expect("the tests read reference.toml").section
});

const HEAD: &str = "A study is a TOML file: what is measured, how, and what is compared. `plimsoll new FILE.toml` writes one to \
                    start from, `plimsoll run FILE.toml --dry-run` checks it and shows what would be run.";
const EXCLUDES: &str = "[[exclude]] has the names of axes as keys, with a value or a list of them: cells where each of \
                        them has one of these values are left out. [options] has the options of the workloads as keys; \
                        `plimsoll workloads NAME` lists them with their defaults and what they allow.";

/// For a terminal.
pub fn text() -> String {
    let mut text = format!("{HEAD}\n");
    for section in &*SECTIONS {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n{}: {}\n", section.name, section.about);
        for key in &section.keys {
            let default =
                if key.default.is_empty() { String::new() } else { format!("; default {}", key.default) };
            let _ = writeln!(
                text,
                "  {:<18} {} ({}{default})\n{:21}{}",
                key.name(),
                key.about,
                key.kind,
                "",
                key.example
            );
        }
    }
    let _ = write!(text, "\n{EXCLUDES}\n");
    text
}

/// For docs/study-file.md.
pub fn markdown() -> String {
    let mut text = format!(
        "# The study file\n\n<!-- Made from crates/lab/src/study/reference.toml by the tests beside it: UPDATE_DOCS=1 cargo test -p lab@0.1.0 -->\n\n{HEAD}\n"
    );
    for section in &*SECTIONS {
        let _ = write!(
            text,
            "\n## {}\n\n{}\n\n| key | what stands there | default | what for | example |\n|---|---|---|---|---|\n",
            section.name, section.about
        );
        for key in &section.keys {
            let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
            let _ = writeln!(
                text,
                "| `{}` | {} | {default} | {} | `{}` |",
                key.name(),
                key.kind,
                key.about,
                key.example
            );
        }
    }
    let _ = write!(text, "\n## [[exclude]] and [options]\n\n{EXCLUDES}\n");
    text
}

#[cfg(test)]
mod tests;
