//! What each command does.

mod audit;
mod bench;
mod bisect;
mod build;
mod builds;
mod bundle;
mod calibrate;
mod changes;
mod doctor;
mod env;
mod fetch;
mod fleet;
mod hdr;
mod history;
mod hub;
mod line;
mod man;
mod out;
mod pgbench;
mod prompt;
mod report;
mod rerun;
mod run;
mod sandbox;
mod servers;
mod snapshots;
mod study;
mod super_smack;
mod sysbench;
mod workloads;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use clap::{CommandFactory, Parser};
use lab::StopSwitch;

use crate::args::{Cli, Command};
use crate::argv;
use crate::exit::{End, Failure, output};
use crate::show::bar::Bar;
use crate::show::terminal;

/// Reads the command line and does what it says.
pub(crate) fn dispatch(given: Vec<OsString>) -> Result<End, Failure> {
    let given = by_own_name(given);
    let line = without_secrets(&given);
    let cli = Cli::try_parse_from(given).map_err(Failure::Flags)?;
    match cli.command {
        Command::Run(args) => run::run(&args, line),
        Command::New { file } => study::new(&file),
        Command::Study => study::reference(),
        Command::Fleet(args) => fleet::fleet(&args, line),
        Command::Report(args) => report::report(&args),
        Command::Bisect(args) => bisect::bisect(&args),
        Command::History(args) => history::history(&args),
        Command::Changes(args) => changes::changes(&args),
        Command::Bundle(args) => bundle::bundle(&args),
        Command::Verify(args) => bundle::verify(&args),
        Command::Hub(args) => hub::hub(args),
        Command::Submit(args) => hub::submit(&args),
        Command::Rerun(args) => rerun::rerun(&args, &line),
        Command::Bench(args) => bench::bench(&args),
        Command::Agent { endpoint } => {
            let (mut told, mut say) = (io::stdin().lock(), io::stdout().lock());
            telemetry::agent::serve(&endpoint, env!("CARGO_PKG_VERSION"), &mut told, &mut say)
                .map_err(output)?;
            Ok(End::Done)
        }
        Command::LoadClient => Ok(lab::clients::serve().map(|()| End::Done)?),
        Command::Line(args) => line::line(&args, line),
        Command::Workloads(args) => workloads::workloads(&args),
        Command::Servers(args) => servers::servers(&args),
        Command::Fetch(args) => fetch::fetch(&args),
        Command::Sandbox(args) => sandbox::sandbox(args.command),
        Command::Build(args) => build::build(&args),
        Command::Builds(args) => builds::builds(&args.command),
        Command::Snapshots(args) => snapshots::snapshots(&args.command),
        Command::Audit(args) => audit::audit(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Sysbench { arguments } => sysbench::sysbench(&arguments, &line),
        Command::Pgbench { arguments } => pgbench::pgbench(&arguments),
        Command::SuperSmack(args) => super_smack::super_smack(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "plimsoll", &mut script);
            print_bytes(&script)
        }
        Command::Man { dir } => man::man(dir.as_deref()),
    }
}

/// Called as `sysbench`, `pgbench` or `super-smack` (by a link of that name), the command is what the name says.
fn by_own_name(mut given: Vec<OsString>) -> Vec<OsString> {
    let name = given.first().and_then(|word| Path::new(word).file_name()).map(OsString::from);
    if let Some(name) =
        name.filter(|name| ["sysbench", "pgbench", "super-smack"].iter().any(|own| name == *own))
    {
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
            let word = argv::without_password(&word.to_string_lossy());
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

/// A text for people on standard output: what it has from others cannot draw, be it read through a pipe.
pub(crate) fn print(text: &str) -> Result<End, Failure> {
    print_bytes(wire::shown(text).as_bytes())
}

/// A text for programs on standard output.
pub(crate) fn print_data(text: &str) -> Result<End, Failure> {
    print_bytes(text.as_bytes())
}

fn print_bytes(bytes: &[u8]) -> Result<End, Failure> {
    let mut out = terminal::output();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(output)?;
    Ok(End::Done)
}

/// After the second signal the process ends within this time, whatever it is in the middle of.
const LEAVE_WITHIN: Duration = Duration::from_secs(10);
/// A script that has not come back so long after the first signal is not waited for.
const SCRIPT_WITHIN: Duration = Duration::from_secs(5);

/// A switch that Ctrl-C, SIGTERM and SIGHUP turn: once for a graceful end, again for a quick one within
/// [`LEAVE_WITHIN`], a third time for the end at once.
pub(crate) fn stop_on_signals() -> Result<StopSwitch, Failure> {
    on_signals(|presses| match presses {
        1 => tell("stopping: transactions in flight may finish. Ctrl-C again stops at once"),
        2 => {
            tell(
                "stopping at once, and leaving within 10 s: servers of ours are ended, others left. Ctrl-C again leaves",
            );
            std::thread::spawn(|| {
                std::thread::sleep(LEAVE_WITHIN);
                leave("left without waiting any longer");
            });
        }
        _ => leave("left at once"),
    })
}

/// The same for a command that runs a user's script on a server of the user's: the second signal leaves at once, and so
/// does the first where the script does not come back.
pub(crate) fn stop_on_signals_of_script() -> Result<StopSwitch, Failure> {
    on_signals(|presses| match presses {
        1 => {
            tell("stopping: events in flight may finish. Ctrl-C again leaves at once");
            std::thread::spawn(|| {
                let mut stuck = script::Stuck::default();
                while stuck.look() < SCRIPT_WITHIN {
                    std::thread::sleep(Duration::from_millis(100));
                }
                leave("left: the script computes or sleeps on its own and cannot be stopped");
            });
        }
        _ => leave("left at once"),
    })
}

/// Runs a command that does in this one's place what was asked for: signals that would end this process are for it. The
/// first tells it to end, another one that it must.
pub(crate) fn relayed(mut command: std::process::Command) -> io::Result<std::process::ExitStatus> {
    let group = Arc::new(AtomicI32::new(0));
    let of_handler = group.clone();
    let relay = move |presses| {
        let group = of_handler.load(Ordering::Relaxed);
        let signal = if presses == 1 { libc::SIGINT } else { libc::SIGTERM };
        if group > 0 {
            // SAFETY: kill takes no pointers, and the group is that of the child below, which is not reaped before it ends.
            unsafe { libc::kill(-group, signal) };
        }
    };
    on_signals(relay).map_err(|_| io::Error::other("Ctrl-C cannot be taken over"))?;
    let mut child = command.stdin(std::process::Stdio::null()).process_group(0).spawn()?;
    group.store(child.id() as i32, Ordering::Relaxed);
    let status = child.wait();
    group.store(0, Ordering::Relaxed);
    status
}

fn on_signals(pressed: impl Fn(u32) + Send + 'static) -> Result<StopSwitch, Failure> {
    let stop = StopSwitch::default();
    let turned = stop.clone();
    ctrlc::set_handler(move || pressed(turned.press()))
        .map_err(|error| Failure::Other(anyhow::Error::new(error).context("taking over Ctrl-C")))?;
    Ok(stop)
}

/// Says something of the end on standard error. The live view shows by itself how the switch stands.
fn tell(text: &str) {
    if !crate::show::is_drawing() {
        // Whoever asks for the end may have closed it.
        let _ = writeln!(io::stderr(), "\n{text}");
    }
}

/// Ends the process without waiting for anything: not for threads that compute, nor for an output that nobody reads.
fn leave(text: &str) -> ! {
    crate::show::restore();
    let _ = writeln!(io::stderr(), "\n{text}");
    // SAFETY: takes nothing, and does not return. `exit` would flush C's buffers, whose lock a script may hold.
    unsafe { libc::_exit(crate::exit::class_code(lab::Class::Interrupted)) }
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
        let line =
            ["plimsoll", "bench", "x", "--server", "mysql://root@h/d?password=geheim"].map(OsString::from);
        assert_eq!(without_secrets(&line), "plimsoll bench x --server 'mysql://root@h/d?password=***'");
        assert_eq!(shell_word("it's"), "'it'\\''s'");
        assert_eq!(shell_word(""), "''");
    }
}
