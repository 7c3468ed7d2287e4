//! `hub` and `submit`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueHint};
use hub::{Place, Scope};

use super::duration;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll hub token add ada
  plimsoll hub serve --listen 127.0.0.1:8030
docs/hub.md shows a proxy with TLS in front.")]
pub(crate) struct HubArgs {
    #[command(subcommand)]
    pub(crate) command: HubCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HubCommand {
    /// Serve it
    Serve(ServeArgs),
    /// Make, list and revoke tokens
    #[command(after_help = "Examples:\n  plimsoll hub token add ada\n  plimsoll hub token revoke robot")]
    Token(TokenArgs),
    /// Write the whole hub as static pages
    Export(ExportArgs),
    /// Measure claims of new submissions again, on this machine, as the hub asks for it
    Worker(WorkerArgs),
    /// Look at a bundle on standard input (the hub's own child)
    #[command(hide = true)]
    Check(CheckArgs),
}

/// Where a hub keeps things.
#[derive(Debug, Args)]
pub(crate) struct HubPlaceArgs {
    /// sqlite:FILE or postgres://USER@HOST/DATABASE (encrypted and checked with ?sslmode=verify-full; a password by PGPASSWORD)
    #[arg(long, value_name = "URL", default_value = "sqlite:hub.db")]
    pub(crate) db: Place,
    /// Bundles go into this directory (default: hub-bundles beside the file of SQLite; with PostgreSQL into the database)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) bundles: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  plimsoll hub serve --listen 127.0.0.1:8030")]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) place: HubPlaceArgs,
    /// Where it listens; 0 as the port takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8030")]
    pub(crate) listen: SocketAddr,
    /// How the world calls it, for the feed (default: where it listens)
    #[arg(long, value_name = "URL")]
    pub(crate) root: Option<String>,
    /// Largest bundle, in MiB
    #[arg(long, value_name = "MIB", allow_hyphen_values = true, default_value_t = 64)]
    pub(crate) bundle_max: u64,
    /// Most that a bundle may unpack to, in MiB
    #[arg(long, value_name = "MIB", allow_hyphen_values = true, default_value_t = 512)]
    pub(crate) unpacked_max: u64,
    /// Time for looking at one bundle
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "120s", value_parser = duration)]
    pub(crate) patience: Duration,
    /// Submissions of one token in an hour, refused ones included
    #[arg(long, value_name = "N", allow_hyphen_values = true, default_value_t = 60)]
    pub(crate) rate: usize,
    /// Of this share of new submissions, from 0 to 1, a worker measures a claim again (see `plimsoll hub worker`)
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, default_value = "0", value_parser = share)]
    pub(crate) remeasure: f64,
}

#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make one and show it, this once
    #[command(after_help = "Example:\n  plimsoll hub token add ada")]
    Add {
        /// Whose it is
        name: String,
        /// What it is for: submit, moderate, measure
        #[arg(long, value_name = "SCOPE", value_delimiter = ',', default_value = "submit", value_parser = scope)]
        scope: Vec<Scope>,
        /// It does nothing after so long
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = duration)]
        expires: Option<Duration>,
        #[command(flatten)]
        place: HubPlaceArgs,
    },
    /// List them, without themselves
    #[command(after_help = "Example:\n  plimsoll hub token list")]
    List {
        #[command(flatten)]
        place: HubPlaceArgs,
    },
    /// From now on it does nothing
    #[command(after_help = "Example:\n  plimsoll hub token revoke robot")]
    Revoke {
        /// Whose it is
        name: String,
        #[command(flatten)]
        place: HubPlaceArgs,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  plimsoll hub export site --base /results")]
pub(crate) struct ExportArgs {
    /// The directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// Where it will stand on its web space: /results
    #[arg(long, value_name = "PATH", default_value = "")]
    pub(crate) base: String,
    #[command(flatten)]
    pub(crate) place: HubPlaceArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  plimsoll hub worker --hub https://hub.example.org --budget 20m
The token, one to measure with, is taken from PLIMSOLL_HUB_TOKEN, or from a file. The hub draws the claim; it is measured where \
the study is plain data (see `plimsoll rerun --untrusted`), and the hub shows what came of it. A worker that ends gives its work \
back.")]
pub(crate) struct WorkerArgs {
    /// The hub
    #[arg(long, value_name = "URL")]
    pub(crate) hub: String,
    /// A file with the token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
    /// For measuring one claim
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "20m", value_parser = duration)]
    pub(crate) budget: Duration,
    /// End after one claim, or where there is none to measure
    #[arg(long)]
    pub(crate) once: bool,
    /// Between two questions for work
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "60s", value_parser = duration)]
    pub(crate) pause: Duration,
    /// What was measured stays here, in a folder for each claim
    #[arg(long, value_name = "DIR", default_value = "plimsoll-worker", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Bytes
    #[arg(long)]
    pub(crate) unpacked_max: u64,
    #[arg(long)]
    pub(crate) seconds_max: u64,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  plimsoll submit quickstart.plimsoll --to https://hub.example.org
The token is taken from PLIMSOLL_HUB_TOKEN, or from a file.")]
pub(crate) struct SubmitArgs {
    /// The bundle
    #[arg(value_name = "FILE.plimsoll", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// The hub
    #[arg(long, value_name = "URL")]
    pub(crate) to: String,
    /// A file with the token
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) token_file: Option<PathBuf>,
}

fn scope(text: &str) -> Result<Scope, String> {
    Scope::of_word(text).ok_or_else(|| "submit, moderate or measure".to_owned())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is a number from 0 (none) to 1 (all)".to_owned())
}
