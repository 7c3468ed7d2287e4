//! The end of `cargo test --workspace`, which runs packages in the order of their names: the list of what was not
//! tested on this machine, once and with its reasons. No harness, which would swallow it.

use std::process::ExitCode;

fn main() -> ExitCode {
    // Somebody asks for the names of tests; this is none.
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let entries = match testkit::of_this_run() {
        Ok(entries) => entries,
        Err(error) => {
            eprintln!("what was not tested cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    if entries.is_empty() {
        println!("nothing was left out");
        return ExitCode::SUCCESS;
    }
    println!("\n{:=<100}\nNOT TESTED on this machine, {} in all:\n", "", entries.len());
    for (what, why) in &entries {
        println!("  * {what}\n      {why}");
    }
    println!("{:=<100}", "");
    ExitCode::SUCCESS
}
