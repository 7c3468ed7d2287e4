//! The `plimsoll` command: flags, live view, exit codes.
//!
//! Never here: measuring, planning, statistics; they are asked for and shown.

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
