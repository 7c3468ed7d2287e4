//! Flags of studies that are made in parts: by hand, or by a scheduler on many nodes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use lab::fleet::Wishes;
use lab::study_run::Part;

/// What gives nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    /// Array jobs by Slurm's commands
    Slurm,
    /// Shown with --dry-run, as manifests to apply by hand
    Kubernetes,
}

/// How `run` shares a study out.
#[derive(Debug, Args)]
pub(crate) struct PartArgs {
    /// Make only these blocks: 2/3 for the second of three shares, or 1,4-6. `plimsoll report a.db b.db` puts parts together
    #[arg(long, value_name = "K/N|LIST", conflicts_with_all = ["on", "only"])]
    pub(crate) block: Option<Part>,
    /// Make each block on a node of its own, by a scheduler (a study says so with [fleet] on = "slurm")
    #[arg(long, value_enum, value_name = "SCHEDULER")]
    pub(crate) on: Option<Scheduler>,
    /// Nodes at the same time (default: as many as the scheduler gives)
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) nodes: Option<u32>,
    /// The scheduler's partition
    #[arg(long, value_name = "NAME")]
    pub(crate) partition: Option<String>,
    /// Features that nodes must have, in the scheduler's words
    #[arg(long, value_name = "FEATURES")]
    pub(crate) constraint: Option<String>,
    /// A block that takes longer is ended, and made again
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = super::duration)]
    pub(crate) time_limit: Option<Duration>,
    /// How long a node that nothing is known of measures a server against itself before its first block; 0s: it does not
    /// (default: 3m)
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = super::duration)]
    pub(crate) calibrate: Option<Duration>,
    /// A node on which the study's blocks tell no difference below this is set aside: 0.05 is 5 % (default: the margin of
    /// [compare])
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, value_parser = noise)]
    pub(crate) noise_max: Option<f64>,
    /// Nodes for the clients of each block (clients in [load]), beside the one of its server
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) client_nodes: Option<u32>,
    /// Ctrl-C leaves the jobs running; `plimsoll fleet attach` watches them again
    #[arg(long)]
    pub(crate) leave_jobs: bool,
    /// Image of the manifests for Kubernetes
    #[arg(long, value_name = "IMAGE", default_value = "plimsoll:latest")]
    pub(crate) image: String,
}

/// What gives nodes to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ClientScheduler {
    /// A job of as many nodes, one for the server and what measures it
    Slurm,
}

/// Where `bench` and `line` have their clients.
#[derive(Debug, Args)]
pub(crate) struct ClientNodesArgs {
    /// Have the clients on nodes of their own, and the server and what measures it on another one
    #[arg(long, value_enum, value_name = "SCHEDULER")]
    pub(crate) on: Option<ClientScheduler>,
    /// Nodes in all: one for the server, clients take turns on the others (default: one for each client)
    #[arg(long, value_name = "N", requires = "on", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    pub(crate) nodes: Option<u32>,
    /// The scheduler's partition
    #[arg(long, value_name = "NAME", requires = "on")]
    pub(crate) partition: Option<String>,
    /// Features that nodes must have, in the scheduler's words
    #[arg(long, value_name = "FEATURES", requires = "on")]
    pub(crate) constraint: Option<String>,
    /// Everything that takes longer is ended by the scheduler
    #[arg(long, value_name = "DURATION", requires = "on", allow_hyphen_values = true, value_parser = super::duration)]
    pub(crate) time_limit: Option<Duration>,
}

impl ClientNodesArgs {
    pub(crate) fn wishes(&self) -> Wishes {
        Wishes {
            partition: self.partition.clone(),
            constraint: self.constraint.clone(),
            time_limit: self.time_limit,
            ..Wishes::default()
        }
    }
}

fn noise(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(noise) if noise > 0.0 && noise < 1.0 => Ok(noise),
        _ => Err("a share above 0 and below 1: 0.05 is 5 %".into()),
    }
}

impl PartArgs {
    /// What is wished of nodes: these flags, and the study's words where they say nothing.
    pub(crate) fn wishes(&self, study: &Wishes) -> Wishes {
        let own = Wishes {
            is_on: self.on.is_some(),
            nodes: self.nodes,
            partition: self.partition.clone(),
            constraint: self.constraint.clone(),
            time_limit: self.time_limit,
            calibrate: self.calibrate,
            client_nodes: self.client_nodes,
            noise_max: self.noise_max,
        };
        own.or(study)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll fleet status quickstart
  plimsoll fleet attach quickstart
  plimsoll fleet cancel quickstart
`plimsoll run STUDY.toml --on slurm` begins a fleet; whoever began it may go away meanwhile.")]
pub(crate) struct FleetArgs {
    #[command(subcommand)]
    pub(crate) command: FleetCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Watch a study that a fleet makes, take over its results, and have lost blocks made again
    #[command(after_help = "Example:\n  plimsoll fleet attach quickstart")]
    Attach {
        #[command(flatten)]
        which: FleetStudy,
        /// Ctrl-C leaves the jobs running
        #[arg(long)]
        leave_jobs: bool,
    },
    /// Say which block is where
    #[command(after_help = "Example:\n  plimsoll fleet status quickstart")]
    Status(FleetStudy),
    /// Cancel the jobs of a study; what was recorded stays
    #[command(after_help = "Example:\n  plimsoll fleet cancel quickstart")]
    Cancel(FleetStudy),
    /// Make one block: what the scheduler runs on a node
    #[command(hide = true)]
    Task { desk: PathBuf },
    /// Say what this node sees: run on nodes before anything is measured
    #[command(hide = true)]
    Look { desk: PathBuf },
}

#[derive(Debug, Args)]
pub(crate) struct FleetStudy {
    /// Its name, or its file
    #[arg(value_name = "STUDY", value_hint = ValueHint::FilePath)]
    pub(crate) study: PathBuf,
    /// Where the results are
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
}

impl FleetStudy {
    /// The study's name.
    pub(crate) fn name(&self) -> String {
        let is_file = self.study.extension().is_some_and(|extension| extension == "toml");
        let name = if is_file { self.study.file_stem() } else { Some(self.study.as_os_str()) };
        name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }
}
