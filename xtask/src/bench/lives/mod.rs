//! How often verdicts err on real servers: lives of equal servers, two alive at a time, recorded once (`record`), and
//! studies drawn from the record life by life (`replay`), judged by the code that judges every study.

mod record;
mod replay;

use std::path::PathBuf;

use anyhow::Result;
use clap::ArgAction;
use clap::builder::BoolishValueParser;

#[derive(clap::Parser)]
enum Asked {
    Record {
        #[arg(long)]
        minutes: f64,
        /// `on` or `off`.
        #[arg(long, action = ArgAction::Set)]
        #[arg(value_parser = BoolishValueParser::new(), hide_possible_values = true)]
        neighbour: bool,
        #[arg(long, default_value = KEPT)]
        file: PathBuf,
    },
    Replay {
        #[arg(long, default_value_t = 10_000)]
        studies: u64,
        #[arg(long, default_value = KEPT)]
        file: PathBuf,
    },
}

/// The record that is kept in the repository.
const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/lives.jsonl.gz");

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    match crate::asked("bench lives", arguments) {
        Asked::Record { minutes, neighbour, file } => record::run(&file, minutes, neighbour),
        Asked::Replay { studies, file } => replay::run(&file, studies),
    }
}
