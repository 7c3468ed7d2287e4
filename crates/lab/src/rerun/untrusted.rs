//! What a stranger's study may ask of this machine: plain data, and not too much of it. What names a file, a program, a
//! place or a server of this machine's is refused with the reason, before anything is opened, fetched or started.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use workload::OptionKind;

use super::variables;
use crate::error::Error;
use crate::plan::{Cell, cells};
use crate::provision::dialect_of_flavor;
use crate::servers::{self, Server};
use crate::study::{Axes, Body, EnvChoice, Ladder, Load, SettingsChoice, StorageChoice, Study};
use crate::study_run::run_length;
use crate::workloads;

/// What is not measured for a stranger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub what: String,
    pub why: String,
    /// The budget that it would take, where nothing else is wrong with it.
    pub needs: Option<Duration>,
}

impl Refusal {
    pub fn json(&self) -> Value {
        // Rounded up: who has so many seconds has enough.
        let needs_s = self.needs.map(|needs| needs.as_secs_f64().ceil() as u64);
        json!({"what": self.what, "why": self.why, "needs_budget_s": needs_s})
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.what, self.why)
    }
}

/// How much a stranger's study may take of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All of its measurements.
    pub budget: Duration,
    /// One size that it gives a server.
    pub bytes_max: u64,
}

impl Bounds {
    /// Those of this machine.
    pub fn here(budget: Duration) -> Bounds {
        Bounds { budget, bytes_max: (crate::host::facts().memory_bytes / 2).min(8 << 30) }
    }
}

/// Each may have to be fetched.
const SERVERS_MAX: usize = 8;
const SESSIONS_MAX: u32 = 1000;
const WORKERS_MAX: usize = 64;
/// Files of a dataset, and statements of a transaction, which the client keeps for each session.
const COUNTED: &str = "tables point_selects simple_ranges sum_ranges order_ranges distinct_ranges index_updates \
                       non_index_updates delete_inserts";
const COUNT_MAX: u64 = 1000;
/// A dataset on disk, with indexes.
const DATA_BYTES_MAX: u64 = 4 << 30;

/// What a study's text names that only its author's machine has: looked for before the text is read as a study, which opens
/// the files that workloads are.
///
/// # Errors
/// It is no TOML.
pub(super) fn files_named(text: &str) -> Result<Vec<Refusal>, Error> {
    let bytes_max = wire::files::STUDY.mib_max << 20;
    if text.len() as u64 > bytes_max {
        let why = format!("it has more than {bytes_max} bytes");
        return Ok(vec![refusal("the study".to_owned(), why)]);
    }
    let root = DeTable::parse(text)
        .map_err(|error| Error::Usage(format!("the study is not valid TOML: {}", error.message())))?;
    let mut found = BTreeSet::new();
    root.get_ref().iter().for_each(|(key, value)| look(key.get_ref(), value, &mut found));
    let why = "a workload file or script of its author's: only built-in workloads are measured for strangers";
    Ok(found.into_iter().map(|name| refusal(format!("workload {name}"), why)).collect())
}

/// Names of workloads below a key, wherever it stands.
fn look(key: &str, value: &Spanned<DeValue<'_>>, found: &mut BTreeSet<String>) {
    match value.get_ref() {
        DeValue::Table(table) => table.iter().for_each(|(key, value)| look(key.get_ref(), value, found)),
        DeValue::Array(items) => items.iter().for_each(|item| look(key, item, found)),
        DeValue::String(name) => match key {
            "workload" if !workloads::is_of_catalogue(name) => drop(found.insert(name.to_string())),
            "pgbench" | "init" => drop(found.insert(name.to_string())),
            _ => {}
        },
        _ => {}
    }
}

/// What of a study is more than plain data, or more than this machine gives. `study` names no file.
///
/// Every field is named: a new one is judged here before this compiles.
pub(super) fn refusals(study: &Study, body: &Body, bounds: &Bounds) -> Vec<Refusal> {
    let Body { axes, options: _, load, line: _, machine: _, compare: _, excludes: _, timed } = body;
    let Axes {
        server: _,
        workload: _,
        options: _,
        settings,
        engine,
        storage,
        cpus: _,
        isolation: _,
        charset,
        env,
        replicas,
        intervene,
        ladder: _,
    } = axes;
    let mut all = of_servers(body);
    all.extend(of_cells(body));
    for SettingsChoice { label: _, profile: _, logging: _, set, by_flavor } in settings {
        for (name, value) in by_flavor.values().chain([set]).flatten() {
            if let Some(why) = variables::why_not(name, value, bounds.bytes_max) {
                all.push(refusal(format!("setting {name}"), why));
            }
        }
    }
    for place in storage {
        let StorageChoice {
            label,
            datadir,
            made,
            scheduler,
            read_iops: _,
            write_iops: _,
            read_bytes_s: _,
            write_bytes_s: _,
            memory_bytes: _,
        } = place;
        let what = || format!("storage {label}");
        if datadir.is_some() {
            all.push(refusal(what(), "a place on its author's machine"));
        }
        if made.is_some() || scheduler.is_some() {
            all.push(refusal(what(), "it would mount a file system, or change a disk's scheduler"));
        }
    }
    let timed = timed.iter().map(|change| &change.name);
    for name in intervene.iter().map(|intervention| &intervention.name).chain(timed) {
        all.push(refusal(
            format!("intervention {name}"),
            "it changes a server that runs by its author's statements",
        ));
    }
    for EnvChoice { label, set, preload } in env {
        if !set.is_empty() || !preload.is_empty() {
            let why = "it gives the server process an environment or libraries of its author's";
            all.push(refusal(format!("env {label}"), why));
        }
    }
    for choice in replicas.iter().filter(|choice| !choice.servers.is_empty()) {
        let why = "it would start several servers for each run, with a port and accounts";
        all.push(refusal(format!("replicas {}", choice.label), why));
    }
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    for (axis, values) in [("engine", engine), ("charset", charset)] {
        for value in values.iter().filter(|value| !value.split('/').all(plain) || value.len() > 80) {
            all.push(refusal(format!("{axis} {value}"), "not a plain name"));
        }
    }
    all.extend(of_load(load, bounds));
    all.extend(of_length(study, body, bounds));
    all.sort_by(|one, other| one.what.cmp(&other.what));
    all.dedup();
    all
}

fn refusal(what: String, why: impl Into<String>) -> Refusal {
    Refusal { what: wire::mask::prose(&wire::shown(&what)), why: why.into(), needs: None }
}

fn of_servers(body: &Body) -> Vec<Refusal> {
    let mut all = Vec::new();
    for choice in &body.axes.server {
        let why = match servers::parse(&choice.server) {
            _ if choice.source.is_some() => "a build from source: its recipe is code",
            Ok(Server::Selector(_)) => continue,
            Ok(Server::Url(_)) => "a server that runs elsewhere: only builds are measured for strangers",
            Ok(Server::Sandbox(_)) => "a sandbox of its author's: only builds are measured for strangers",
            Err(_) => "no server",
        };
        all.push(refusal(format!("server {}", wire::mask::value(&choice.server)), why));
    }
    let count = body.axes.server.len();
    if count > SERVERS_MAX {
        let why = format!("at most {SERVERS_MAX} builds are fetched for a stranger");
        all.push(refusal(format!("{count} servers"), why));
    }
    all
}

/// Options that are texts, and the size of the data.
fn of_cells(body: &Body) -> Vec<Refusal> {
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for cell in cells(body) {
        let choice = &body.axes.server[cell.server];
        let Ok(Server::Selector(selector)) = servers::parse(&choice.server) else { continue };
        if !seen.insert(format!("{} {} {:?}", selector.flavor, cell.workload_label, cell.options)) {
            continue;
        }
        let name = cell.workload.name().to_owned();
        if !cell.workload.is_built_in() {
            all.push(refusal(format!("workload {name}"), "not a built-in workload"));
            continue;
        }
        all.extend(of_options(&cell));
        match data_bytes(&cell, selector.flavor) {
            Err(why) => all.push(refusal(format!("workload {name}"), why)),
            Ok(bytes) if bytes > DATA_BYTES_MAX => {
                let why = format!(
                    "about {} MiB of data; at most {} MiB are loaded for a stranger",
                    bytes >> 20,
                    DATA_BYTES_MAX >> 20
                );
                all.push(refusal(format!("data of {name}"), why));
            }
            Ok(_) => {}
        }
    }
    all
}

fn of_options(cell: &Cell) -> Vec<Refusal> {
    let mut all = Vec::new();
    let name = cell.workload.name();
    for option in cell.workload.options() {
        let Some(value) = cell.options.get(&*option.name) else { continue };
        if option.kind == OptionKind::Text {
            let why = "a text of its author's: numbers, switches and known words are taken";
            all.push(refusal(format!("option {} of {name}", option.name), why));
        }
        let count =
            option.canonical(value).ok().and_then(|value| value.parse::<u64>().ok()).unwrap_or_default();
        if COUNTED.split(' ').any(|name| name == option.name) && count > COUNT_MAX {
            let why = format!("at most {COUNT_MAX} for a stranger");
            all.push(refusal(format!("{} {count} of {name}", option.name), why));
        }
    }
    all
}

fn data_bytes(cell: &Cell, flavor: sandbox::Flavor) -> Result<u64, String> {
    let known: BTreeMap<String, String> = {
        let names = cell.workload.option_names();
        cell.options
            .iter()
            .filter(|(name, _)| names.contains(*name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    let configured = cell.workload.configure(&known, dialect_of_flavor(flavor, "", cell.engine.as_deref()));
    configured.map(|configured| configured.data_bytes()).map_err(|error| error.to_string())
}

fn of_load(load: &Load, bounds: &Bounds) -> Vec<Refusal> {
    let Load {
        warmup,
        length: _,
        pairing: _,
        blocks: _,
        until: _,
        think_time,
        rate_tps: _,
        arrivals: _,
        retries_max: _,
        backoff,
        workers,
        seed: _,
        client_cpus: _,
        ramp,
        drain,
        // In time or transactions: what it is part of ends with the budget.
        prime: _,
        is_cold: _,
        is_lenient: _,
        hot_locks: _,
        clients,
        // Phases share the level's length.
        phase: _,
    } = load;
    let mut all = Vec::new();
    if let Some(workers) = workers.filter(|workers| *workers > WORKERS_MAX) {
        let why = format!("at most {WORKERS_MAX} are started for a stranger");
        all.push(refusal(format!("{workers} workers"), why));
    }
    if *clients > 1 {
        all.push(refusal(format!("{clients} clients"), "one process loads for a stranger"));
    }
    let shown = crate::study::units::show;
    let durations = [
        ("think_time", think_time),
        ("backoff", backoff),
        ("ramp", ramp),
        ("drain", drain),
        ("warmup", warmup),
    ];
    for (name, duration) in durations.into_iter().filter(|(_, duration)| **duration > bounds.budget) {
        let why = format!("longer than all that there is for it, {}", shown(bounds.budget));
        let refused = refusal(format!("{name} of {}", shown(*duration)), why);
        all.push(Refusal { needs: Some(*duration), ..refused });
    }
    all
}

/// Sessions, and whether a verdict fits into the time that there is.
fn of_length(study: &Study, body: &Body, bounds: &Bounds) -> Vec<Refusal> {
    let mut all = Vec::new();
    let most = body.axes.ladder.levels().iter().copied().max().unwrap_or(1);
    if most > SESSIONS_MAX {
        let why = format!("at most {SESSIONS_MAX} are opened for a stranger");
        all.push(refusal(format!("{most} sessions"), why));
    }
    // A comparison has two sides, and below so many blocks no verdict.
    let blocks = body.load.blocks.min(stats::Rules::default().blocks_min as u32);
    let least = run_length(body).map(|run| run.saturating_mul(2 * blocks));
    if let Some(least) = least.filter(|least| *least > bounds.budget) {
        let levels = if matches!(body.axes.ladder, Ladder::Climb(_)) { " of all levels" } else { "" };
        let shown = crate::study::units::show;
        let why = format!(
            "two sides in {blocks} blocks{levels} take at least {}, and there are {}",
            shown(least),
            shown(bounds.budget)
        );
        let refused = refusal(format!("the runs of {}", study.name), why);
        all.push(Refusal { needs: Some(least), ..refused });
    }
    all
}
