//! Benchmarks: each is a command, prints what it measured beside what is asked for, and ends with 1 when the
//! figure was not reached.

mod bisect_live;
mod bisect_search;
mod change_points;
mod client;
mod client_cost;
mod deploy;
mod duels;
mod fake;
mod fleet_kills;
mod fleet_speed;
mod hub;
mod lab;
mod line_search;
mod live_lines;
mod live_verdicts;
mod lives;
mod load_speed;
mod looking;
mod many_clients;
mod measurement_error;
mod oltp_cost;
mod pgbench_cost;
mod power;
mod pull_requests;
mod quickstart;
mod real_source;
mod sampler_cost;
mod soak;
mod statement_mix;
mod sync_mount;
pub(crate) mod sysbench;
mod sysbench_scripts;
mod ten_thousand_sessions;
mod tpcc;
mod tricks;
mod verdicts;
mod whole_study;

use anyhow::{Result, bail};

/// Name, what it measures, and its body, which answers whether the figure was reached.
type Benchmark = (&'static str, &'static str, fn(&[&str]) -> Result<bool>);

const ALL: &[Benchmark] = &[
    ("client-cost", "client cpu of oltp_point_select beside sysbench and the floor", client_cost::run),
    (
        "oltp-cost",
        "client cpu of oltp_read_write on both protocols beside sysbench and a floor",
        oltp_cost::run,
    ),
    ("tricks", "what each of the engine's tricks earns, with and without it in turns", tricks::run),
    ("pgbench-cost", "transactions and client cpu of plimsoll pgbench beside pgbench", pgbench_cost::run),
    ("load-speed", "loading a million rows against sysbench's prepare, and from a snapshot", load_speed::run),
    ("deploy", "a server from nothing, and from a snapshot, against the same by hand", deploy::run),
    ("statement-mix", "statements of each workload against those of sysbench's scripts", statement_mix::run),
    (
        "sysbench-scripts",
        "sysbench's scripts by path: client cpu beside sysbench, and the start of 5,000 sessions",
        sysbench_scripts::run,
    ),
    (
        "measurement-error",
        "reported percentiles against the truth of a fake server's log",
        measurement_error::run,
    ),
    ("sampler-cost", "what all samplers cost beside 256 busy sessions", sampler_cost::run),
    (
        "ten-thousand-sessions",
        "memory, errors and start-up of 10,000 sessions in one process",
        ten_thousand_sessions::run,
    ),
    (
        "many-clients",
        "100,000 sessions of five client processes, and four clients against one",
        many_clients::run,
    ),
    (
        "fleet-kills",
        "random kills of all that makes a study on a Slurm: no run lost or doubled, the same verdicts",
        fleet_kills::run,
    ),
    ("fleet-speed", "a study on eight nodes of a Slurm here, against one of them", fleet_speed::run),
    (
        "verdicts",
        "false verdicts of simulated studies that are watched, and blocks to a verdict",
        verdicts::run,
    ),
    (
        "live-verdicts",
        "watched studies of real servers: equal ones, and one with a planted slow-down",
        live_verdicts::run,
    ),
    (
        "lives",
        "record lives of equal servers in duels, and replay studies drawn from them: false verdicts",
        lives::run,
    ),
    ("power", "what a minute of duels tells, against a minute of interleaved runs", power::run),
    (
        "quickstart",
        "the quickstart again and again: its time, and the share of its questions that it decides",
        quickstart::run,
    ),
    (
        "bisect-search",
        "bisections drawn from recorded lives: how often the guilty build is found",
        bisect_search::run,
    ),
    (
        "bisect-live",
        "64 labelled builds of a server, slower from a secret one on: found, and for which cause",
        bisect_live::run,
    ),
    (
        "pull-requests",
        "checks of pull requests drawn from recorded lives: false alarms, and slow ones stopped",
        pull_requests::run,
    ),
    (
        "change-points",
        "false alarms of quiet series, and steps of twice the noise found in their place",
        change_points::run,
    ),
    (
        "line-search",
        "searches for load lines whose truth is known, simulated and in real time",
        line_search::run,
    ),
    (
        "live-lines",
        "load lines of real servers: how they scatter, and what they tell of equal and slower ones",
        live_lines::run,
    ),
    (
        "sync-mount",
        "a file system mounted with `sync` beside one without: the verdict that finds it",
        sync_mount::run,
    ),
    ("hub", "a hub's pages at 10,000 bundles, one by one and with 200 readers a second", hub::run),
    (
        "real-source",
        "PostgreSQL from its sources: built, loaded, and the slow one of twelve commits found",
        real_source::run,
    ),
    ("soak", "memory of a run of a week, by a simulated clock", soak::run),
    ("tpcc", "loading ten warehouses, and the conditions after 64 sessions and after a kill", tpcc::run),
];

/// Runs the benchmark of this name.
pub(crate) fn run(name: &str, arguments: &[&str]) -> Result<bool> {
    match ALL.iter().find(|(known, ..)| *known == name) {
        Some((.., body)) => body(arguments),
        None => bail!("no benchmark {name:?}\n\n{}", list()),
    }
}

/// The names, with what they measure.
pub(crate) fn list() -> String {
    let lines: Vec<String> = ALL.iter().map(|(name, what, _)| format!("  {name:24} {what}")).collect();
    format!("benchmarks:\n{}", lines.join("\n"))
}

/// The last line of a benchmark, and how it ends.
fn told(is_reached: bool) -> Result<bool> {
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
}
