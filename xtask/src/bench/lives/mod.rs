//! How often verdicts err on real servers: lives of equal servers, two alive at a time, recorded once (`record`), and
//! studies drawn from the record life by life (`replay`), judged by the code that judges every study.

mod record;
mod replay;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

const USAGE: &str = "usage: cargo xtask bench lives record --minutes N --neighbour on|off [--file FILE]\n       \
                     cargo xtask bench lives replay [--studies N] [--file FILE]";

/// The record that is kept in the repository.
fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/lives.jsonl.gz")
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Some((command, mut rest)) = arguments.split_first() else { bail!(USAGE) };
    let (mut minutes, mut studies, mut neighbour, mut file) = (None, 10_000, None, kept());
    while let [name, value, more @ ..] = rest {
        match *name {
            "--minutes" => minutes = Some(value.parse::<f64>().context(USAGE)?),
            "--studies" => studies = value.parse::<u64>().context(USAGE)?,
            "--neighbour" if ["on", "off"].contains(value) => neighbour = Some(*value == "on"),
            "--file" => file = PathBuf::from(value),
            _ => bail!(USAGE),
        }
        rest = more;
    }
    match (*command, minutes, neighbour, rest) {
        ("record", Some(minutes), Some(neighbour), []) => record::run(&file, minutes, neighbour),
        ("replay", None, None, []) => replay::run(&file, studies),
        _ => bail!(USAGE),
    }
}
