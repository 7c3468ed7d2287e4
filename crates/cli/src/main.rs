//! The `plimsoll` command: flags, live view, exit codes.
//!
//! Never here: measuring, planning, statistics; they are asked for and shown.

// What is told goes by way of `show::terminal`, so that texts of others cannot draw.
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod argv;
mod commands;
mod exit;
mod show;

use std::process::ExitCode;

fn main() -> ExitCode {
    let given: Vec<_> = std::env::args_os().collect();
    argv::mask_passwords();
    exit::code_of(commands::dispatch(given))
}
