//! `plimsoll pgbench` for the tests of this room.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(pgbench::run(&arguments, &mut std::io::stdout(), |_, _| Ok(()), &load::Stop::new()))
}
