//! Developer commands: `cargo xtask COMMAND`. Never here: anything that a user of Plimsoll needs.

mod bench;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask bench NAME [ARGUMENTS]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["bench", name, ref rest @ ..] => bench::run(name, rest),
        _ => {
            eprintln!("{USAGE}\n\n{}", bench::list());
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
