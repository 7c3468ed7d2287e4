//! Developer commands: `cargo xtask COMMAND`. Never here: anything that a user of Plimsoll needs.

mod bench;
mod cram;
mod fuzz;
mod scripts;
mod slurm;
mod studies;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

const USAGE: &str = "usage: cargo xtask bench NAME [ARGUMENTS]\n       cargo xtask studies [NAME...] [--quick | --full] [--keep DIR]\n       \
                     cargo xtask cram [DIRECTORY]\n       cargo xtask scripts DIRECTORY\n       cargo xtask fuzz [TARGET...] [--runs N]\n       cargo xtask slurm [--nodes N] [--asleep] COMMAND...";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["bench", name, ref rest @ ..] => bench::run(name, rest),
        ["studies", ref rest @ ..] => studies::run(rest),
        ["cram", ref rest @ ..] => cram::run(rest),
        ["scripts", ref rest @ ..] => scripts::run(rest),
        ["fuzz", ref rest @ ..] => fuzz::run(rest),
        ["slurm", ref rest @ ..] => slurm::run(rest),
        _ => {
            eprintln!("{USAGE}\n\n{}\nstudies: {}", bench::list(), studies::list());
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// The words behind a command, read as it declares them (`rows=5` for `--rows=5`, too). What does not fit is told, and ends
/// with 2.
fn asked<T: clap::Parser>(command: &str, words: &[&str]) -> T {
    T::parse_from(line(command, words))
}

/// Changes what the words name.
fn update<T: clap::Parser>(asked: &mut T, command: &str, words: &[&str]) {
    asked.update_from(line(command, words));
}

fn line(command: &str, words: &[&str]) -> impl Iterator<Item = String> {
    let is_bare =
        |word: &str| word.split_once('=').is_some_and(|(name, _)| name.chars().all(char::is_alphabetic));
    let words =
        words.iter().map(move |word| if is_bare(word) { format!("--{word}") } else { (*word).to_owned() });
    std::iter::once(format!("cargo xtask {command}")).chain(words.collect::<Vec<_>>())
}

/// The work tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Compiles a program of the work tree as this one was, and answers where it is.
fn compiled(package: &str, program: &str, more: &[&str]) -> Result<PathBuf> {
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--release", "--package", package])
        .args(more)
        .current_dir(root())
        .status()
        .context("running cargo")?;
    ensure!(built.success(), "{program} does not build");
    Ok(std::env::current_exe()?.with_file_name(program))
}

/// The plimsoll of the work tree.
fn plimsoll() -> Result<PathBuf> {
    compiled("cli", "plimsoll", &[])
}
