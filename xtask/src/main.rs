//! Developer commands: `cargo xtask COMMAND`. Never here: anything that a user of Plimsoll needs.

mod bench;
mod cram;
mod fuzz;
mod studies;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask bench NAME [ARGUMENTS]\n       cargo xtask studies [NAME...] [--quick | --full] [--keep DIR]\n       \
                     cargo xtask cram [DIRECTORY]\n       cargo xtask fuzz [TARGET...] [--runs N]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["bench", name, ref rest @ ..] => bench::run(name, rest),
        ["studies", ref rest @ ..] => studies::run(rest),
        ["cram", ref rest @ ..] => cram::run(rest),
        ["fuzz", ref rest @ ..] => fuzz::run(rest),
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
