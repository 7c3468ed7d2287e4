//! How often verdicts err on real servers: lives of equal servers, two alive at a time, recorded once (`record`), and
//! studies drawn from the record life by life (`replay`), judged by the code that judges every study. And what the length
//! of a duel's turns costs (`turns`).

mod drawn;
mod record;
mod replay;
mod turns;

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ArgAction;
use clap::builder::BoolishValueParser;

pub(super) use self::drawn::{Drawn, Kind, Pairing};

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
    Turns {
        #[arg(long, default_value = KEPT)]
        file: PathBuf,
    },
}

/// The record that is kept in the repository.
pub(super) const KEPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/lives.jsonl.gz");

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    match crate::asked("bench lives", arguments) {
        Asked::Record { minutes, neighbour, file } => record::run(&file, minutes, neighbour),
        Asked::Replay { studies, file } => replay::run(&file, studies),
        Asked::Turns { file } => turns::run(&file),
    }
}

/// The kinds of lives of a record that studies can be drawn from, after a line of each.
pub(super) fn recorded(file: &Path) -> Result<Vec<Kind>> {
    let (lives, is_cut) = store::lives::read(file)?;
    let slices = lives.iter().flat_map(|life| &life.slices);
    let hours = slices.map(|slice| slice.length_s).sum::<f64>() / 3600.0;
    let lost = lives.iter().filter(|life| !life.is_valid).count();
    println!("{}: {} lives ({lost} not valid), {hours:.2} hours of slices", file.display(), lives.len());
    if is_cut {
        println!("its last life is cut off and left out");
    }
    drawn::told(drawn::kinds(&lives))
}
