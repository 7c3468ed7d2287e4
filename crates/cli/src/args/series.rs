//! Flags of the commands about builds of a server over time: `build`, `history` and `changes`.

use std::path::PathBuf;
use std::time::SystemTime;

use clap::{Args, Subcommand, ValueHint};

/// Metrics that a history can be of.
pub(crate) use report::history::METRICS;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll build --from ~/postgres --ref REL_17_2
  plimsoll build --from ~/server --ref 11.4 --recipe mariadb --jobs 8
  plimsoll build --from ~/mine --recipe mine.toml
A recipe is a TOML file with scripts: configure, build and install (into $PREFIX, from $SOURCE), needs, env and server (where the \
binary is below $PREFIX). It is code: run only what you have read or trust. It runs without rights and without network, in an \
export of the commit; the checkout stays as it is.")]
pub(crate) struct BuildArgs {
    /// A git clone, or a directory of sources
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) from: PathBuf,
    /// The commit, by any name that git knows (default: the checkout as it stands, with what is not committed)
    #[arg(long = "ref", value_name = "COMMIT")]
    pub(crate) reference: Option<String>,
    /// postgres, postgres-meson, mariadb, mysql, or a recipe of one's own (default: by what the sources look like)
    #[arg(long, value_name = "NAME|FILE.toml", value_hint = ValueHint::FilePath)]
    pub(crate) recipe: Option<String>,
    /// Compilers at once (default: one for each cpu)
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: Option<u16>,
    /// Let the recipe use the network
    #[arg(long)]
    pub(crate) network: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll bisect studies/quickstart.toml --good mysql@5.5.34 --bad mysql@8.0.33
  plimsoll bisect nightly.toml --from ~/postgres --good REL_17_1 --bad REL_17_2 --json -
The study says what is measured: the first of its workloads, settings and session counts. The search goes on where it was \
interrupted; --new begins anew.")]
pub(crate) struct BisectArgs {
    /// The study file
    #[arg(value_name = "STUDY.toml", value_hint = ValueHint::FilePath)]
    pub(crate) study: PathBuf,
    /// The last one known to be good: a build, or a commit of the clone
    #[arg(long, value_name = "REF|BUILD")]
    pub(crate) good: String,
    /// One known to be bad
    #[arg(long, value_name = "REF|BUILD")]
    pub(crate) bad: String,
    /// The clone that the commits are of (default: the working directory, where they are no builds)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) from: Option<PathBuf>,
    /// How commits are built: postgres, postgres-meson, mariadb, mysql, or a recipe of one's own
    #[arg(long, value_name = "NAME|FILE.toml", value_hint = ValueHint::FilePath)]
    pub(crate) recipe: Option<String>,
    /// What is compared: tps, mean, p50, p95, p99 ...
    #[arg(long, value_name = "METRIC", default_value = "tps", value_parser = metric)]
    pub(crate) metric: String,
    /// A smaller difference does not matter: 0.02 is 2 %
    #[arg(long, value_name = "SHARE", allow_hyphen_values = true, default_value = "0.02", value_parser = share)]
    pub(crate) margin: f64,
    /// Use the study's [quick] settings
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where what was found out is kept
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// Begin anew although there is an earlier search
    #[arg(long)]
    pub(crate) new: bool,
    /// Write JSON (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  plimsoll history
  plimsoll history --study quickstart --metric tps --metric p95 --html history.html
  plimsoll history laptop.db --since 2026-01-01 --otava history.csv
A series is one metric of a cell; another machine and a study that measures something else are other series."
)]
pub(crate) struct HistoryArgs {
    #[command(subcommand)]
    pub(crate) decision: Option<HistoryCommand>,
    #[command(flatten)]
    pub(crate) series: HistorySeriesArgs,
    /// Write one HTML file that needs nothing else
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Write JSON (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
    /// Write the CSV that Otava (Hunter) reads
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) otava: Option<PathBuf>,
    /// Write the newest points in Bencher Metric Format
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) bencher: Option<PathBuf>,
    /// Write the newest points for github-action-benchmark
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) github: Option<PathBuf>,
    /// Write JUnit: a test for each series, which fails where a change for the worse is new
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) junit: Option<PathBuf>,
}

/// Which series of a history.
#[derive(Debug, Args)]
pub(crate) struct HistorySeriesArgs {
    /// Results files (default: the one in --results)
    #[arg(value_name = "RESULTS.db")]
    pub(crate) files: Vec<PathBuf>,
    /// Where the results are
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
    /// Only this study
    #[arg(long, value_name = "NAME")]
    pub(crate) study: Option<String>,
    /// tps, qps, mean, p50, p95, p99 ... (repeatable)
    #[arg(long, value_name = "METRIC", default_value = "tps", value_parser = metric)]
    pub(crate) metric: Vec<String>,
    /// Only runs from this day on: 2026-11-24, or 2026-11-24T18:00:00Z
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = day)]
    pub(crate) since: Option<SystemTime>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum HistoryCommand {
    /// Keep that a change is known and wanted, or lived with
    #[command(after_help = "Example:\n  plimsoll history accept 1f0c9a2b --why 'checksums are on'")]
    Accept(DecisionArgs),
    /// Keep that a change is none: the machine, a neighbour, a mistake
    #[command(after_help = "Example:\n  plimsoll history ignore 1f0c9a2b --why 'the host was moved'")]
    Ignore(DecisionArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DecisionArgs {
    /// The change, as `plimsoll history` names it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// The reason, for whoever asks later
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: String,
    /// Where the results are
    #[arg(long, value_name = "DIR", default_value = "plimsoll-results", value_hint = ValueHint::DirPath)]
    pub(crate) results: PathBuf,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  plimsoll changes nightly.csv
  plimsoll changes nightly.csv --metric tps --json -
A file is a column of numbers, or a table with a line of names as Otava (Hunter) reads it: metrics beside columns such as \
time, commit and branch. What is found is the index of the first point of the new level, from 0.")]
pub(crate) struct ChangesArgs {
    /// The series (`-` for standard input), oldest point first
    #[arg(value_name = "FILE.csv", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
    /// Only this metric (default: all, searched together)
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Option<String>,
    /// Write JSON (`-` for standard output)
    #[arg(long, value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub(crate) json: Option<PathBuf>,
}

fn metric(text: &str) -> Result<String, String> {
    let known = METRICS.iter().find(|known| **known == text).map(|known| (*known).to_owned());
    known.ok_or_else(|| format!("one of {}", METRICS.join(", ")))
}

fn day(text: &str) -> Result<SystemTime, String> {
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    humantime::parse_rfc3339_weak(&whole)
        .map_err(|_| "write it as 2026-11-24, or 2026-11-24T18:00:00Z".into())
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
    share.ok_or_else(|| "a share between 0 and 1: 0.02 is 2 %".into())
}
