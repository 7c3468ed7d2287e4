//! `cargo xtask slurm`: a command on a Slurm of its own, whose nodes are this machine several times. It is there for the
//! command, and ends with it.

use std::process::Command;

use anyhow::{Context, Result, anyhow};
use clap::Parser;
use testkit::slurm::Cluster;

#[derive(Parser)]
#[command(
    after_help = "Example:\n  cargo xtask slurm target/release/plimsoll run studies/quickstart.toml --on slurm --nodes 2"
)]
struct Arguments {
    /// Nodes: n1, n2 ...
    #[arg(long, default_value_t = 2)]
    nodes: usize,
    /// All that is measured only sleeps: nodes do not wait for each other
    #[arg(long)]
    asleep: bool,
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

pub(crate) fn run(words: &[&str]) -> Result<bool> {
    // As they are: words of the command are not for us to change.
    let words = std::iter::once("cargo xtask slurm").chain(words.iter().copied());
    let Arguments { nodes, asleep, command } = Arguments::parse_from(words);
    let dir = tempfile::tempdir()?;
    let cluster = Cluster::try_start(dir.path(), nodes, !asleep)
        .map_err(|why| anyhow!("there can be no Slurm here: {why}"))?;
    // Ctrl-C is the command's, which cancels its jobs; the cluster is taken down after it.
    // SAFETY: SIG_IGN is a valid disposition; no handler of ours is replaced.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
    let mut child = cluster.command(&command[0]);
    let status = with_interrupts(&mut child).args(&command[1..]).status();
    let status = status.with_context(|| format!("running {}", command[0]))?;
    Ok(status.success())
}

/// A child that hears Ctrl-C again.
fn with_interrupts(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt;
    // SAFETY: signal is async-signal-safe, and SIG_DFL a valid disposition.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_DFL);
            Ok(())
        })
    }
}
