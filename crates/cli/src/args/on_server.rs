//! Flags of what measures one workload on one server: `bench` and `line`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};

use super::{
    ClientNodesArgs, PasswordArgs, SERVERS, cpus, duration, key_value, measured, profile, rate, replicas,
};

/// A workload on a server, whatever is measured of it.
#[derive(Debug, Args)]
pub(crate) struct OnServerArgs {
    /// The workload: a name (`plimsoll workloads` lists them), or the path of a .sql or .smack file
    pub(crate) workload: String,
    /// The server
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: String,
    /// Worker threads of the client (default: one for two cpus)
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: Option<u16>,
    /// Processes that the sessions are shared out to, where one has too few files or cpus; --workers is then of each
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=i64::from(lab::clients::CLIENTS_MAX)))]
    pub(crate) clients: u32,
    #[command(flatten)]
    pub(crate) client_nodes: ClientNodesArgs,
    /// Look at the machine of a server that runs elsewhere, by ssh and the plimsoll there
    #[arg(long, value_name = "[USER@]HOST[:PROGRAM]")]
    pub(crate) agent: Option<String>,
    /// An option of the workload (repeatable)
    #[arg(short = 'o', long = "option", value_name = "key=value", value_parser = key_value)]
    pub(crate) options: Vec<(String, String)>,
    /// A server variable of the sandbox (repeatable)
    #[arg(long, value_name = "variable=value", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
    /// Durability of the sandbox
    #[arg(long, value_name = "NAME", value_parser = profile)]
    pub(crate) profile: Option<sandbox::Profile>,
    /// Servers that follow the sandbox, on the same machine: none, async, semi-sync, sync, or how many asynchronous ones
    #[arg(long, value_name = "MODE|N", default_value = "none", allow_hyphen_values = true, value_parser = replicas)]
    pub(crate) replicas: lab::study::ReplicasChoice,
    /// Seed of everything random (default: drawn, and shown)
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,
    #[command(flatten)]
    pub(crate) password: PasswordArgs,
}

#[derive(Debug, Args)]
#[command(after_long_help = format!("{SERVERS}\n\n{BENCH_EXAMPLES}"), after_help = BENCH_EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) on: OnServerArgs,
    /// Session counts, measured one after the other
    #[arg(long, value_name = "N,N,..", value_delimiter = ',', default_value = "1", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sessions: Vec<u32>,
    /// How long to measure
    #[arg(long, value_name = "DURATION", default_value = "10s", allow_hyphen_values = true, value_parser = measured, conflicts_with = "transactions")]
    pub(crate) time: Duration,
    /// Measure so many transactions instead
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) transactions: Option<u64>,
    /// Run before, not recorded
    #[arg(long, value_name = "DURATION", default_value = "2s", allow_hyphen_values = true, value_parser = duration)]
    pub(crate) warmup: Duration,
    /// Open loop: transactions arrive at this rate, whether or not the server keeps up
    #[arg(long, value_name = "TPS", allow_hyphen_values = true, value_parser = rate)]
    pub(crate) rate: Option<f64>,
    /// How the arrivals of an open loop are spread
    #[arg(long, value_enum, default_value_t = ArrivalsArg::Poisson, requires = "rate")]
    pub(crate) arrivals: ArrivalsArg,
    /// Cpus of the sandbox, as in 0-3,8
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, value_parser = cpus)]
    pub(crate) cpus: Option<sandbox::Cpus>,
    /// The tables are there: run on them as they are
    #[arg(long, conflicts_with = "fresh")]
    pub(crate) keep: bool,
    /// Load the tables anew, ignoring snapshots
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Write one JSON object a line for each session count (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
    /// Write an HdrHistogram interval log of the response times
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) hdr: Option<PathBuf>,
}

const BENCH_EXAMPLES: &str = "Examples:
  plimsoll bench oltp_read_write --server mariadb --sessions 1,8,64
  plimsoll bench oltp_point_select --server postgres@18 --rate 5000 --time 30s --json -
  plimsoll bench studies/workloads/bank.sql --server postgres -o accounts=100000
  plimsoll bench oltp_read_only --server 'mysql://root@localhost/sbtest?socket=/run/mysqld/mysqld.sock' --keep
  plimsoll bench oltp_point_select --server mariadb --sessions 64 --clients 4
A build gets a sandbox of its own, which is destroyed at the end. On a named sandbox or a URL, missing tables are
loaded into the database named (created if absent) and stay there.";

#[derive(Debug, Args)]
#[command(after_long_help = format!("{SERVERS}\n\n{LINE_EXAMPLES}"), after_help = LINE_EXAMPLES)]
pub(crate) struct LineArgs {
    #[command(flatten)]
    pub(crate) on: OnServerArgs,
    /// What it is to keep: 'p99 < 20ms', 'p90 of new_order < 5s', 'errors < 0.1%', or tpcc for TPC-C's five (repeatable)
    #[arg(long, value_name = "PROMISE", required = true)]
    pub(crate) promise: Vec<String>,
    /// Time for climb, probes and holds together (default: 10m, and what --hold has beyond 1m)
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = measured)]
    pub(crate) budget: Option<Duration>,
    /// How long the line is held to confirm it (default: 1m, and no more than a fifth of --budget)
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = measured)]
    pub(crate) hold: Option<Duration>,
    /// No more sessions than this
    #[arg(long, value_name = "N", default_value = "256", allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) sessions_max: u32,
    /// Directory of the results: an interrupted search goes on with the probes that are there
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// Begin anew although there is an unfinished search for the same
    #[arg(long)]
    pub(crate) new: bool,
    /// Write one JSON object a line for each promise (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

const LINE_EXAMPLES: &str = "Examples:
  plimsoll line oltp_read_write --server postgres@18 --promise 'p99 < 20ms' --promise 'errors < 0.1%'
  plimsoll line oltp_point_select --server mariadb --promise 'p99 < 5ms' --budget 2m --json -
  plimsoll line tpcc --server mariadb --promise tpcc --sessions-max 500
A build gets a sandbox of its own, which is destroyed at the end. Loading the tables is not part of the budget.";

/// How arrivals are spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ArrivalsArg {
    /// At equal distances
    Constant,
    /// As independent users arrive
    Poisson,
}
