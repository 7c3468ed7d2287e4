//! What each command does.

mod audit;
mod bench;
mod doctor;
mod env;
mod fetch;
mod hdr;
mod prompt;
mod report;
mod run;
mod sandbox;
mod servers;
mod snapshots;
mod super_smack;
mod sysbench;
mod workloads;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use clap::{CommandFactory, Parser};
use lab::StopSwitch;

use crate::args::{Cli, Command};
use crate::argv;
use crate::exit::{End, Failure, output};
use crate::show::bar::Bar;

/// Reads the command line and does what it says.
pub(crate) fn dispatch(given: Vec<OsString>) -> Result<End, Failure> {
    let given = by_own_name(given);
    let line = without_secrets(&given);
    let cli = Cli::try_parse_from(given).map_err(Failure::Flags)?;
    match cli.command {
        Command::Run(args) => run::run(&args, line),
        Command::Report(args) => report::report(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Workloads(args) => workloads::workloads(&args),
        Command::Servers(args) => servers::servers(&args),
        Command::Fetch(args) => fetch::fetch(&args),
        Command::Sandbox(args) => sandbox::sandbox(args.command),
        Command::Snapshots(args) => snapshots::snapshots(&args.command),
        Command::Audit(args) => audit::audit(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Sysbench { arguments } => sysbench::sysbench(&arguments, &line),
        Command::SuperSmack(args) => super_smack::super_smack(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
            print_bytes(&script)
        }
        Command::Man { dir: Some(dir) } => {
            clap_mangen::generate_to(Cli::command(), &dir).map_err(|error| {
                Failure::Other(anyhow::Error::new(error).context(format!("writing to {}", dir.display())))
            })?;
            Ok(End::Done)
        }
        Command::Man { dir: None } => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page).map_err(output)?;
            print_bytes(&page)
        }
    }
}

/// Called as `sysbench` or `super-smack` (by a link of that name), the command is what the name says.
fn by_own_name(mut given: Vec<OsString>) -> Vec<OsString> {
    let name = given.first().and_then(|word| Path::new(word).file_name()).map(OsString::from);
    if let Some(name) = name.filter(|name| name == "sysbench" || name == "super-smack") {
        given.insert(1, name);
    }
    given
}

/// The command line as the results file keeps it.
fn without_secrets(given: &[OsString]) -> String {
    let words: Vec<String> = given
        .iter()
        .enumerate()
        .map(|(at, word)| {
            let word = lab::study::mask_passwords(&argv::without_password(&word.to_string_lossy()));
            if at == 0 { "plimsoll".to_owned() } else { shell_word(&word) }
        })
        .collect();
    words.join(" ")
}

/// A word as a shell reads it back.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./_-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Standard output, buffered and flushed, in one go.
pub(crate) fn print(text: &str) -> Result<End, Failure> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<End, Failure> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(output)?;
    Ok(End::Done)
}

/// A file, or standard output for `-`.
pub(crate) fn sink(path: &Path) -> Result<Box<dyn Write>, Failure> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdout()));
    }
    match File::create(path) {
        Ok(file) => Ok(Box::new(BufWriter::new(file))),
        Err(error) => Err(Failure::Usage(format!("cannot write {}: {error}", path.display()))),
    }
}

/// A switch that Ctrl-C, SIGTERM and SIGHUP turn: once for a graceful end, again for a quick one, a third time for
/// the end at once.
pub(crate) fn stop_on_signals() -> Result<StopSwitch, Failure> {
    let stop = StopSwitch::new();
    let turned = stop.clone();
    // The live view shows by itself how the switch stands.
    let tell = |text: &str| {
        if !crate::show::is_drawing() {
            eprintln!("\n{text}");
        }
    };
    ctrlc::set_handler(move || match turned.press() {
        1 => tell("stopping: transactions in flight may finish. Ctrl-C again ends the server now"),
        2 => tell("ending the server now. Ctrl-C again leaves at once"),
        _ => {
            crate::show::restore();
            std::process::exit(crate::exit::class_code(lab::Class::Interrupted));
        }
    })
    .map_err(|error| Failure::Other(anyhow::Error::new(error).context("taking over Ctrl-C")))?;
    Ok(stop)
}

/// Tells fetches and deploys on standard error, on a terminal with a bar.
pub(crate) fn told() -> impl Fn(::sandbox::Progress) + Sync {
    let bar = Bar::default();
    move |progress| match progress {
        ::sandbox::Progress::Step(text) => bar.step(&text),
        ::sandbox::Progress::Bytes { done, total } => bar.bytes(done, total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_kept_without_passwords_and_can_be_pasted() {
        let line = ["/usr/bin/plimsoll", "bench", "x", "--server", "mysql://root:geheim@h/d?socket=/a b"];
        let line: Vec<OsString> = line.iter().map(OsString::from).collect();
        assert_eq!(without_secrets(&line), "plimsoll bench x --server 'mysql://root:***@h/d?socket=/a b'");
        let line = ["sysbench", "--mysql-password=geheim", "x.lua", "run"].map(OsString::from);
        assert_eq!(without_secrets(&line), "plimsoll '--mysql-password=***' x.lua run");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
