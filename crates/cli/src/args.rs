//! The command line: each flag is defined once, here; help, completions and man page follow from it.

mod fleet;
mod hub;
mod on_server;
mod sandboxes;
mod series;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};

pub(crate) use fleet::{ClientNodesArgs, FleetArgs, FleetCommand, FleetStudy, PartArgs, Scheduler};
pub(crate) use hub::{
    ExportArgs, HubArgs, HubCommand, HubPlaceArgs, ServeArgs, SubmitArgs, TokenCommand, WorkerArgs,
};
pub(crate) use on_server::{ArrivalsArg, BenchArgs, LineArgs, OnServerArgs};
pub(crate) use sandboxes::{DeployArgs, EnvFormat, Named, SandboxArgs, SandboxCommand};
pub(crate) use series::{
    BisectArgs, BuildArgs, ChangesArgs, DecisionArgs, HistoryArgs, HistoryCommand, HistorySeriesArgs, METRICS,
};

const EXIT_CODES: &str = "Exit codes:
  0  done
  1  a run failed, a verdict asked for as a gate was not met, too few runs count for a verdict, or a bundle does not
     verify
  2  the command line or the study file is wrong
  3  a server could not be had or started
  4  interrupted; the command of a study goes on from there";

const SERVERS: &str = "SERVER is one of
  mariadb, mysql@8.0, postgres@16   a build: the newest installed one that matches, else the newest fetchable
  NAME                              a sandbox deployed with `plimsoll sandbox deploy`
  mysql://user:password@host:port/db?socket=/path
  postgres://user:password@host:port/db            a server that runs elsewhere
    other hosts over TLS where they offer it; ?tls=disabled|required|verify-ca|verify-full&tls-ca=FILE
    &tls-cert=FILE&tls-key=FILE (or what libpq and MySQL call them); without tls-ca the system's authorities
Passwords need not stand in the URL, where `ps` shows them for a moment and shell histories for ever: --password-file,
PLIMSOLL_PASSWORD, MYSQL_PWD or PGPASSWORD, ~/.my.cnf or ~/.pgpass";

/// A password that does not stand on the command line.
#[derive(Debug, Args)]
pub(crate) struct PasswordArgs {
    /// The password for URLs that name none: the first line of this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    password_file: Option<PathBuf>,
}

impl PasswordArgs {
    /// Reads the file.
    pub(crate) fn read(&self) -> Result<(), lab::Error> {
        self.password_file.as_deref().map_or(Ok(()), lab::servers::use_password_file)
    }
}

/// Measures how much load a database server carries, at what latency, and whether a difference is real.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, after_help = EXIT_CODES, max_term_width = 110)]
#[command(after_long_help = format!("{SERVERS}\n\n{EXIT_CODES}\n\nExample:\n  plimsoll run studies/quickstart.toml --quick"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a study, or go on with an unfinished one
    Run(RunArgs),
    /// Write a commented study to start from
    #[command(after_help = "Example:\n  plimsoll new mine.toml")]
    New {
        /// The file, which must not be there yet
        #[arg(value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
        file: PathBuf,
    },
    /// Say everything that a study file can hold
    #[command(after_help = "Example:\n  plimsoll study")]
    #[command(after_long_help = format!("{}\nExample:\n  plimsoll study", lab::study::reference::text()))]
    Study,
    /// Write the report of recorded studies
    Report(ReportArgs),
    /// Watch, and end, what a scheduler makes on many nodes
    Fleet(FleetArgs),
    /// Find the build or commit that made a server slower
    Bisect(BisectArgs),
    /// Show recorded figures over builds and time, and where their level changed
    History(HistoryArgs),
    /// Find where the level of a series changed
    Changes(ChangesArgs),
    /// Seal a recorded study into one file that proves its own figures
    Bundle(BundleArgs),
    /// Compute a bundle's figures anew and hold them against what it says
    Verify(VerifyArgs),
    /// Measure a bundle's study here, and say of each of its claims whether it is reproduced
    Rerun(RerunArgs),
    /// Serve a hub: bundles of a team or of everybody, shown and compared
    Hub(HubArgs),
    /// Send a bundle to a hub
    Submit(SubmitArgs),
    /// Run one workload on one server
    Bench(BenchArgs),
    /// Say what this machine and the server on it do, for a plimsoll elsewhere: what `--agent` starts by ssh. Only reads
    #[command(name = telemetry::agent::COMMAND, hide = true)]
    Agent {
        /// The server's port, or its socket
        endpoint: String,
    },
    /// A client process of a load: started by plimsoll itself
    #[command(name = lab::clients::COMMAND, hide = true)]
    LoadClient,
    /// Find the highest rate at which a server keeps a promise
    Line(LineArgs),
    /// List workloads, their options and statements
    Workloads(WorkloadsArgs),
    /// List builds: installed, fetched and fetchable
    Servers(ServersArgs),
    /// Fetch builds
    Fetch(FetchArgs),
    /// Build a server from source
    Build(BuildArgs),
    /// Remove fetched builds
    Builds(BuildsArgs),
    /// Make and use private instances of servers
    Sandbox(SandboxArgs),
    /// List or remove kept data directories
    Snapshots(SnapshotsArgs),
    /// Kill a server under load, again and again, and count what is lost
    Audit(AuditArgs),
    /// Say what this machine can and cannot measure, and why
    Doctor(DoctorArgs),
    /// Measure a server against itself: which differences this machine can tell, and how often it errs
    Calibrate(CalibrateArgs),
    /// Run sysbench's command line: its scripts, options and output, on Plimsoll's engine
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Sysbench {
        /// As sysbench takes them: [options] [script|test] [command]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<String>,
    },
    /// Run pgbench's command line: its scripts, options and output, on Plimsoll's engine
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Pgbench {
        /// As pgbench takes them: [options] [database]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENTS")]
        arguments: Vec<String>,
    },
    /// Run a Super Smack file
    #[command(name = "super-smack")]
    SuperSmack(SuperSmackArgs),
    /// Print shell completions
    #[command(after_help = "Example:\n  plimsoll completions bash > plimsoll.bash && . ./plimsoll.bash")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(after_help = "Example:\n  plimsoll man | man -l -")]
    Man {
        /// Write a page for each command into this directory instead
        #[arg(long, value_hint = ValueHint::DirPath)]
        dir: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll run studies/quickstart.toml
  plimsoll run studies/quickstart.toml --quick
  plimsoll run studies/quickstart.toml --only server=postgres --only workload=oltp_read_only
  plimsoll run upgrade.toml --gate not-slower
  plimsoll run studies/quickstart.toml --block 1/2 --results half
  plimsoll run studies/quickstart.toml --on slurm --nodes 8 --time-limit 2h
The same command goes on with what is unfinished, and tries failed runs again. A study asks for \
its verdicts itself with gate = \"p95:not-slower\", or a list of them, in its [compare].")]
pub(crate) struct RunArgs {
    /// The study file
    #[arg(value_name = "STUDY.toml", value_hint = ValueHint::FilePath)]
    pub(crate) study: PathBuf,
    /// Where results go: results.db, logs and the report
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// Use the study's [quick] settings: a first look without verdicts
    #[arg(long)]
    pub(crate) quick: bool,
    /// Make only the runs with this value on this axis (repeatable: values of one axis are alternatives, axes hold
    /// together); the others stay unfinished
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) only: Vec<(String, String)>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Show the plan and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// End with 1 unless every comparison of the study is not-slower, faster or equivalent; p99:not-slower asks for
    /// one metric only (repeatable). Stands in for `gate` in the study's [compare]
    #[arg(long, value_name = "VERDICT")]
    pub(crate) gate: Vec<stats::Gate>,
    /// Write how the gates stand as JUnit
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) junit: Option<PathBuf>,
    /// Write a summary with the gates in Markdown, for example to "$GITHUB_STEP_SUMMARY"
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) summary: Option<PathBuf>,
    /// Serve the latest values as Prometheus text while the study runs, for example on 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) metrics: Option<std::net::SocketAddr>,
    /// Begin anew although there is an earlier one (what is recorded stays)
    #[arg(long)]
    pub(crate) new: bool,
    #[command(flatten)]
    pub(crate) password: PasswordArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll super-smack select-key 10 10000 --server mariadb
  plimsoll super-smack -d pg my.smack 4 500
select-key and update-select are built in; anything else is a path, and no file means standard input. Without --server \
the clients of the file say where to connect.
A file is code: it says which servers are logged in to, sends them any statement, and writes the files it names into the \
data directory; with --allow-shell it runs programs with your rights. Run only what you have read or trust.")]
pub(crate) struct SuperSmackArgs {
    /// The server's protocol
    #[arg(short = 'd', value_enum, default_value_t = SmackDriver::Mysql)]
    pub(crate) driver: SmackDriver,
    /// Where data files are kept (default: smack-data in plimsoll's home)
    #[arg(short = 'D', value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) data: Option<PathBuf>,
    /// A build, a sandbox or a URL to use instead of what the file's clients name
    #[arg(long, value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// Count every query and only the time of the load, instead of the original's way with its quirks
    #[arg(long)]
    pub(crate) fixed: bool,
    /// Let the shell commands in the file run: read them first
    #[arg(long)]
    pub(crate) allow_shell: bool,
    /// Storage engine of the tables that are created (MySQL, MariaDB)
    #[arg(long, value_name = "ENGINE")]
    pub(crate) engine: Option<String>,
    /// Seed of the dictionaries' draws
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    pub(crate) seed: u64,
    /// The file, then its arguments $1, $2, ... (usually clients and rounds)
    #[arg(value_name = "FILE ARGUMENTS")]
    pub(crate) words: Vec<String>,
    #[command(flatten)]
    pub(crate) password: PasswordArgs,
}

/// Super Smack's names of the protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SmackDriver {
    /// MySQL, MariaDB, Percona Server
    Mysql,
    /// PostgreSQL
    Pg,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll report
  plimsoll report quickstart --html report.html
  plimsoll report laptop.db server.db --md -
  plimsoll report quickstart.plimsoll --md -
  plimsoll report quickstart --gate not-slower --gate p95:equivalent
Without an output, the HTML report is written beside the results.")]
pub(crate) struct ReportArgs {
    /// Names of studies, study files, results files, or bundles (default: all studies in --results)
    #[arg(value_name = "STUDY|RESULTS.db|FILE.plimsoll")]
    pub(crate) what: Vec<String>,
    /// Where the results are
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// Write one HTML file that needs nothing else
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Write JSON (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
    /// Write tables as CSV files into this directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) csv: Option<PathBuf>,
    /// Write Markdown (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) md: Option<PathBuf>,
    /// End with 1 unless every comparison is not-slower, faster or equivalent; p99:not-slower asks for one metric
    /// only (repeatable). What is undecided is not met. Without it each study's own `gate` holds
    #[arg(long, value_name = "VERDICT")]
    pub(crate) gate: Vec<stats::Gate>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  plimsoll bundle quickstart -o quickstart.plimsoll
The file holds all that was measured, the figures, and a checksum of everything. Passwords are never recorded; names of \
people, hosts and homes are replaced, and what was replaced is listed.
PLIMSOLL_KEY_PASSPHRASE opens a key that is protected by a passphrase.")]
pub(crate) struct BundleArgs {
    /// The study: its name, or its file
    #[arg(value_name = "STUDY")]
    pub(crate) study: String,
    /// Where the results are
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// The bundle (default: the study's name with .plimsoll, here)
    #[arg(short, long, value_name = "FILE.plimsoll", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// Sign it with this SSH key, as `ssh-keygen -Y sign -n plimsoll-bundle` does
    #[arg(long, value_name = "KEY", value_hint = ValueHint::FilePath)]
    pub(crate) sign: Option<PathBuf>,
    /// Names of machines may travel
    #[arg(long)]
    pub(crate) host_names: bool,
    /// Leave out the response times of each class of statement in each second: no figure comes from them, and of a large bundle
    /// they are the most
    #[arg(long)]
    pub(crate) slim: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  plimsoll verify quickstart.plimsoll
Ends with 1 where the bundle does not verify.")]
pub(crate) struct VerifyArgs {
    /// The bundle
    #[arg(value_name = "FILE.plimsoll", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Write the findings as JSON (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:
  plimsoll rerun quickstart.plimsoll --budget 20m
  plimsoll rerun quickstart.plimsoll --untrusted
The same order, seeds, settings and builds, which are fetched where they are missing. A claim is reproduced where the ratio \
measured here is the published one up to the study's margin, by the interval of the ratio of the two. The same command goes \
on with what is unfinished.")]
pub(crate) struct RerunArgs {
    /// The bundle
    #[arg(value_name = "FILE.plimsoll", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// End after this time, with what was measured until then
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, value_parser = measured)]
    pub(crate) budget: Option<Duration>,
    /// Make only the runs with this value on this axis (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) only: Vec<(String, String)>,
    /// Make only the runs of this claim, by its identity: what a hub shows, and the JSON
    #[arg(long, value_name = "ID")]
    pub(crate) claim: Option<String>,
    /// It is a stranger's: measure it only where it is plain data, and end within the budget (20m unless given)
    #[arg(long)]
    pub(crate) untrusted: bool,
    /// Where results go: results.db, logs and the report of both machines
    #[arg(long, value_name = "DIR", default_value = "plimsoll-rerun", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// Write the claims as JSON (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plimsoll workloads\n  plimsoll workloads oltp_read_write --server postgres"
)]
pub(crate) struct WorkloadsArgs {
    /// Show one of them in full: a name, or the path of a .sql or .smack file
    pub(crate) name: Option<String>,
    /// Statements as this flavour gets them
    #[arg(long, value_name = "FLAVOR", default_value = "mysql", value_parser = flavor)]
    pub(crate) server: sandbox::Flavor,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plimsoll servers\n  plimsoll servers postgres@18\n  plimsoll servers --fetched --json"
)]
pub(crate) struct ServersArgs {
    /// Only these (default: all)
    #[arg(value_name = "FLAVOR[@VERSION]")]
    pub(crate) which: Vec<String>,
    /// Only those that are installed on this machine
    #[arg(long)]
    pub(crate) installed: bool,
    /// Only those that were fetched; with --installed, both
    #[arg(long)]
    pub(crate) fetched: bool,
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll fetch mariadb@11.4 postgres@18
  plimsoll fetch --archive mysql-8.4.3-linux-glibc2.28-x86_64.tar.xz --as mysql@8.4.3")]
pub(crate) struct FetchArgs {
    /// Builds: flavor[@version]
    #[arg(value_name = "SERVER", required_unless_present = "archive")]
    pub(crate) servers: Vec<String>,
    /// An archive or an unpacked directory on this machine
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath, conflicts_with = "servers")]
    pub(crate) archive: Option<PathBuf>,
    /// Its name; without, the server binary is asked
    #[arg(long = "as", value_name = "flavor@version", requires = "archive")]
    pub(crate) named: Option<String>,
    /// Replaces scheme and host of vendor URLs (file:// works too)
    #[arg(long, value_name = "URL")]
    pub(crate) mirror: Option<String>,
    /// Fetch again what is there
    #[arg(long)]
    pub(crate) again: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  plimsoll snapshots list\n  plimsoll snapshots prune --max 5G --dry-run")]
pub(crate) struct SnapshotsArgs {
    #[command(subcommand)]
    pub(crate) command: SnapshotsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotsCommand {
    /// List kept data directories
    #[command(after_help = "Example:\n  plimsoll snapshots list")]
    List {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove kept data directories, those longest unused first
    #[command(
        after_help = "Examples:\n  plimsoll snapshots prune --max 5G --dry-run\n  plimsoll snapshots prune --all"
    )]
    #[command(group(clap::ArgGroup::new("limit").required(true)))]
    Prune {
        /// Keep so many bytes (500M, 5G)
        #[arg(long, value_name = "SIZE", allow_hyphen_values = true, value_parser = size, group = "limit")]
        max: Option<u64>,
        /// Keep none
        #[arg(long, group = "limit")]
        all: bool,
        /// Say which ones, and remove nothing
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plimsoll builds remove mysql@8.0.33")]
pub(crate) struct BuildsArgs {
    #[command(subcommand)]
    pub(crate) command: BuildsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BuildsCommand {
    /// Remove fetched builds that no sandbox uses; `plimsoll servers` lists them
    #[command(after_help = "Example:\n  plimsoll builds remove mysql@8.0.33")]
    Remove {
        /// Builds: flavor@version[+label]
        #[arg(value_name = "BUILD", required = true)]
        builds: Vec<String>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll calibrate
  plimsoll calibrate postgres --budget 10m --json -
Two equal servers live side by side and are loaded in turns, life after life. What it finds is kept for this machine and
added to by the next calibration; doctor, `run --dry-run` and reports show it.")]
pub(crate) struct CalibrateArgs {
    /// The build: mariadb, postgres@16 (default: the newest that is here, MariaDB first)
    #[arg(value_name = "SERVER")]
    pub(crate) server: Option<String>,
    /// How long it may take; five lives, some two minutes, are made in any case
    #[arg(long, value_name = "DURATION", default_value = "20m", allow_hyphen_values = true, value_parser = measured)]
    pub(crate) budget: Duration,
    /// Seed of the work and of the order (default: drawn, and shown)
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,
    /// Write what is known as one JSON object (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plimsoll doctor")]
pub(crate) struct DoctorArgs {
    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Where data directories would be (default: Plimsoll's own place)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) datadir: Option<PathBuf>,
    /// Measure the storage again although it is known
    #[arg(long)]
    pub(crate) refresh: bool,
    /// Say of what is good, too, what it means
    #[arg(long)]
    pub(crate) long: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll audit mariadb --profile fast
  plimsoll audit postgres@18 --set synchronous_commit=off --rounds 10 --json -
  plimsoll audit mysql@8.0.33 --only process-crash
Sessions commit numbered transactions and note outside of the server which were acknowledged. Then its processes are
killed, or the power of its disk is cut, which takes what was not flushed (needs root and /dev/fuse); it is started
again, and what is left is compared with the notes. Ends with 1 when something was lost that the settings promise to keep.")]
pub(crate) struct AuditArgs {
    /// The build: mariadb, mysql@8.0, postgres@16
    #[arg(value_name = "SERVER")]
    pub(crate) server: String,
    /// Durability to start from
    #[arg(long, value_name = "NAME", value_parser = profile)]
    pub(crate) profile: Option<sandbox::Profile>,
    /// A server variable (repeatable)
    #[arg(long, value_name = "variable=value", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
    /// An environment variable of the server, as LD_PRELOAD=/usr/lib/libjemalloc.so (repeatable)
    #[arg(long, value_name = "NAME=value", value_parser = key_value)]
    pub(crate) env: Vec<(String, String)>,
    /// How it goes down (default: both ways)
    #[arg(long, value_enum)]
    pub(crate) only: Option<AuditKind>,
    /// How often, each way
    #[arg(long, value_name = "N", default_value_t = 5, allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Sessions that commit
    #[arg(long, value_name = "N", default_value_t = 8, allow_hyphen_values = true, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) sessions: u32,
    /// Seed of the moments and the work (default: drawn, and shown)
    #[arg(long, allow_hyphen_values = true)]
    pub(crate) seed: Option<u64>,
    /// Where findings are kept: reports of studies in the same place say what the audit found
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// Write the findings as one JSON object (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

/// How an audited server goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AuditKind {
    /// SIGKILL for its processes
    ProcessCrash,
    /// What was not flushed to the disk is gone, or some of it
    PowerCut,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("write it as key=value".into()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    lab::study::units::duration(text)
        .map_err(|why| format!("{why}; write a number with its unit: 10s, 1m30s, 500ms"))
}

/// A length of time that something is measured for.
fn measured(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("nothing can be measured in no time: write for example 10s".into()),
        some => Ok(some),
    }
}

fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= load::RATE_MAX_TPS => Ok(rate),
        _ => Err(format!(
            "a rate is a number of transactions per second above 0 and at most {:.0}, one for each nanosecond of the \
             clock",
            load::RATE_MAX_TPS
        )),
    }
}

fn profile(text: &str) -> Result<sandbox::Profile, String> {
    text.parse().map_err(|error: sandbox::Error| error.to_string())
}

fn replicas(text: &str) -> Result<lab::study::ReplicasChoice, String> {
    lab::study::ReplicasChoice::of_word(text)
}

fn logging(text: &str) -> Result<sandbox::Logging, String> {
    text.parse().map_err(|error: sandbox::Error| error.to_string())
}

fn cpus(text: &str) -> Result<sandbox::Cpus, String> {
    sandbox::Cpus::parse(text).and_then(sandbox::cpus::usable_here).map_err(|error| error.to_string())
}

fn flavor(text: &str) -> Result<sandbox::Flavor, String> {
    sandbox::Flavor::ALL
        .into_iter()
        .find(|flavor| flavor.name() == text)
        .ok_or_else(|| "one of mysql, mariadb, percona, postgres".into())
}

fn size(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let unit = match text[digits..].trim_end_matches("iB").trim_end_matches('B') {
        "" => Some(1),
        "k" | "K" => Some(1u64 << 10),
        "M" => Some(1 << 20),
        "G" => Some(1 << 30),
        "T" => Some(1 << 40),
        _ => None,
    };
    let number = text[..digits].parse::<u64>().ok();
    number
        .zip(unit)
        .and_then(|(n, unit)| n.checked_mul(unit))
        .ok_or_else(|| "a size is bytes, or a number with its unit: 500M, 5G; 0 keeps none".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        fn check(command: &clap::Command, path: &str) {
            // Commands that speak the language of another tool have its help.
            if command.is_disable_help_flag_set() || command.is_hide_set() {
                return;
            }
            let path = format!("{path} {}", command.get_name());
            let has_children = command.get_subcommands().any(|child| child.get_name() != "help");
            let help = [command.get_after_help(), command.get_after_long_help()];
            let text: String = help.into_iter().flatten().map(ToString::to_string).collect();
            assert!(text.contains("Example"), "{path} has no example");
            if has_children {
                command.get_subcommands().for_each(|child| check(child, &path));
            }
        }
        check(&Cli::command(), "");
    }

    /// Else clap takes `-5` for a flag that it does not know, and says nothing of what is allowed.
    #[test]
    fn negative_numbers_reach_those_who_say_what_is_allowed() {
        fn check(command: &clap::Command, path: &str) {
            let path = format!("{path} {}", command.get_name());
            let numbers = ["N", "SIZE", "DURATION", "SHARE", "MIB", "TPS", "LIST", "TIME"];
            for arg in command.get_arguments().filter(|arg| arg.get_long().is_some()) {
                let names = arg.get_value_names().unwrap_or_default();
                let is_number = names.iter().any(|name| numbers.contains(&name.as_str()));
                assert!(!is_number || arg.is_allow_hyphen_values_set(), "{path} {arg}");
            }
            command.get_subcommands().for_each(|child| check(child, &path));
        }
        check(&Cli::command(), "");
    }

    #[test]
    fn values_are_read_with_their_units() {
        assert_eq!(size("5G"), Ok(5 << 30));
        assert_eq!(size("0"), Ok(0));
        assert!(size("5 parsecs").is_err());
        assert_eq!(key_value("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(key_value("=b").is_err());
        assert!(measured("0s").is_err() && duration("0s").is_ok());
        assert!(rate("0").is_err());
        assert!(rate("inf").is_err());
    }
}
