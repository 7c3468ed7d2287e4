//! What a cell asks of a server and of the load.

use std::collections::{BTreeMap, BTreeSet};

use sandbox::cpus::Assignment;
use sandbox::{Build, CpuRequest, Cpus, Flavor, Limits, Spec, Storage, replication};
use store::{Axis, ServerFacts};

use crate::error::Error;
use crate::plan::{Cell, Plan, PlannedRun};
use crate::study::{AXES, Arrivals, Body, CpusChoice, Ladder, Length, Load, SettingsChoice, Study};
use crate::subject::sandbox_name;

/// What can be controlled of a server.
pub(crate) struct Controlled<'a> {
    pub(crate) flavor: Flavor,
    pub(crate) life: Life<'a>,
}

/// Who starts a server.
pub(crate) enum Life<'a> {
    /// Plimsoll, for each run.
    Own(&'a Build),
    /// Plimsoll, once its build has been fetched or made.
    ToFetch,
    /// Somebody else.
    Foreign,
}

/// What a reader has to know of the settings of each cell's server, by server and name of the set: that they change
/// nothing there, or that those of some family are for none of the study's servers.
pub(crate) struct SettingsNotes {
    by_set: BTreeMap<(usize, String), String>,
    of_study: Vec<String>,
}

impl SettingsNotes {
    pub(crate) fn of(
        study: &Study,
        load: &Load,
        plan: &Plan,
        servers: &[Controlled<'_>],
    ) -> Result<SettingsNotes, Error> {
        let mut by_set = BTreeMap::new();
        let mut of_study = unheeded_options(study, plan, servers);
        let mut seen = BTreeSet::new();
        for cell in &plan.cells {
            let label = &cell.settings.label;
            for family in cell.settings.by_flavor.keys() {
                if !servers.iter().any(|server| families(server.flavor).contains(&family.as_str())) {
                    of_study.insert(format!(
                        "{}: `{family}` of the settings `{label}` is for servers that this study does not have",
                        study.position(&format!("settings/{label}"))
                    ));
                }
            }
            let server = &servers[cell.server];
            let is_named = !label.is_empty() && label != crate::plan::DEFAULT_SETTINGS;
            if !is_named || !seen.insert((cell.server, label.clone())) {
                continue;
            }
            let settings = &cell.settings;
            let asks_nothing = settings.profile.is_none()
                && settings.logging.is_none()
                && settings_for(settings, server.flavor).is_empty();
            let changes_nothing = asks_nothing || is_as_default(cell, load, plan, server)?;
            if changes_nothing {
                let name = &plan.servers[cell.server].name;
                let text = format!(
                    "the settings `{label}` change nothing on {name}: its cells are those of the defaults once more \
                     (leave them out with an [[exclude]] of server and settings)"
                );
                by_set.insert((cell.server, label.clone()), text);
            }
        }
        Ok(SettingsNotes { by_set, of_study: of_study.into_iter().collect() })
    }

    /// What is to be said of a cell.
    pub(crate) fn of_cell(&self, cell: &Cell) -> Option<&String> {
        self.by_set.get(&(cell.server, cell.settings.label.clone()))
    }

    /// Everything, for the plan.
    pub(crate) fn all(&self) -> impl Iterator<Item = &String> {
        self.of_study.iter().chain(self.by_set.values())
    }
}

/// Whether a server with a cell's settings runs as it does without them.
fn is_as_default(cell: &Cell, load: &Load, plan: &Plan, server: &Controlled<'_>) -> Result<bool, Error> {
    let Life::Own(build) = server.life else { return Ok(false) };
    // What the server does anyway is worth its name where it is held against something else: a profile always, variables
    // beside another set; unless the defaults are measured too.
    let others = || plan.cells.iter().filter(|other| other.server == cell.server);
    let has_defaults = others().any(|other| other.settings.label == crate::plan::DEFAULT_SETTINGS);
    let has_variables = !cell.settings.set.is_empty() || !cell.settings.by_flavor.is_empty();
    let is_alone = others().all(|other| other.settings.label == cell.settings.label);
    let is_worth_its_name = !has_variables || !is_alone;
    if !has_defaults && is_worth_its_name {
        return Ok(false);
    }
    let asked = sandbox_spec(build, cell, load)?;
    let plain = Cell { settings: SettingsChoice::default(), ..cell.clone() };
    Ok(asked.effective_settings() == sandbox_spec(build, &plain, load)?.effective_settings())
}

/// A line for each option that a server does not heed, where no other server of the study does, or where the study varies
/// it: a study of both families may have options that are for one of them.
fn unheeded_options(study: &Study, plan: &Plan, servers: &[Controlled<'_>]) -> BTreeSet<String> {
    let unheeded = |cell: &Cell| -> BTreeSet<String> {
        let flavor = servers[cell.server].flavor;
        crate::workloads::unheeded(&cell.workload, &cell.options, flavor)
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    let heeded: BTreeSet<&String> = plan
        .cells
        .iter()
        .flat_map(|cell| {
            let unheeded = unheeded(cell);
            cell.options.keys().filter(move |name| !unheeded.contains(*name))
        })
        .collect();
    let notes = plan.cells.iter().flat_map(|cell| {
        let name_of_server = &plan.servers[cell.server].name;
        let is_told =
            |name: &String| !heeded.contains(name) || cell.option_axes.iter().any(|(axis, _)| axis == name);
        unheeded(cell)
            .into_iter()
            .filter(is_told)
            .map(move |name| {
                let position = study.position(&format!("option/{name}/{}", cell.options[&name]));
                format!("{position}: the option `{name}` changes nothing on {name_of_server}")
            })
            .collect::<Vec<_>>()
    });
    notes.collect()
}

/// The server that is loaded.
pub(crate) fn sandbox_spec(build: &Build, cell: &Cell, load: &Load) -> Result<Spec, Error> {
    let mut spec = server_spec("run", build, cell, load)?;
    if !cell.replicas().is_empty() {
        replication::make_primary(&mut spec);
    }
    Ok(spec)
}

/// Its replica of that number, from 1.
pub(crate) fn replica_spec(build: &Build, cell: &Cell, load: &Load, number: u32) -> Result<Spec, Error> {
    let mut spec = server_spec("replica", build, cell, load)?;
    replication::make_replica(&mut spec, number);
    Ok(spec)
}

fn server_spec(what: &str, build: &Build, cell: &Cell, load: &Load) -> Result<Spec, Error> {
    let mut spec = Spec::new(sandbox_name(what), build.clone());
    spec.settings = settings_for(&cell.settings, build.flavor);
    spec.profile = cell.settings.profile.as_deref().map(str::parse).transpose()?;
    spec.logging = cell.settings.logging.as_deref().map(str::parse).transpose()?;
    spec.engine.clone_from(&cell.engine);
    if let Some(isolation) = &cell.isolation {
        spec.isolation = isolation.parse()?;
    }
    if let Some(charset) = &cell.charset {
        charset_settings(build.flavor, charset, &mut spec.settings)?;
    }
    if let Some(storage) = cell.storage.as_ref() {
        spec.storage = Some(Storage {
            name: storage.label.clone(),
            datadir: storage.datadir.clone(),
            limits: Limits {
                memory_bytes: storage.memory_bytes,
                read_iops: storage.read_iops,
                write_iops: storage.write_iops,
                read_bytes_per_s: storage.read_bytes_s,
                write_bytes_per_s: storage.write_bytes_s,
            },
            scheduler: storage.scheduler.clone(),
        });
    }
    spec.cpus = assignment(cell, load)?.server;
    if let Some(env) = &cell.env {
        spec.env = env.set.clone();
        let preload = env.preload.iter().map(|name| sandbox::preload::find(name));
        let preload = preload.collect::<Result<Vec<_>, _>>()?;
        if !preload.is_empty() {
            let list: Vec<String> = preload.iter().map(|path| path.display().to_string()).collect();
            spec.env.insert(sandbox::preload::VARIABLE.to_owned(), list.join(":"));
        }
    }
    Ok(spec)
}

/// Variables for every server first, then those of the protocol's family, then those of the flavour itself.
fn settings_for(choice: &SettingsChoice, flavor: Flavor) -> BTreeMap<String, String> {
    let mut settings = choice.set.clone();
    for family in families(flavor) {
        settings.extend(choice.by_flavor.get(*family).cloned().unwrap_or_default());
    }
    settings
}

/// The tables of settings that hold for a flavour.
pub(crate) fn families(flavor: Flavor) -> &'static [&'static str] {
    match flavor {
        Flavor::Postgres => &["postgres"],
        Flavor::Mysql => &["mysql"],
        Flavor::Mariadb => &["mysql", "mariadb"],
        Flavor::Percona => &["mysql", "percona"],
    }
}

/// `utf8mb4` or `utf8mb4/utf8mb4_bin`.
fn charset_settings(
    flavor: Flavor,
    charset: &str,
    settings: &mut BTreeMap<String, String>,
) -> Result<(), Error> {
    if flavor == Flavor::Postgres {
        return utf8_alone(charset).map_err(|why| Error::Usage(format!("charset `{charset}`: {why}")));
    }
    let (charset, collation) = match charset.split_once('/') {
        Some((charset, collation)) => (charset, Some(collation)),
        None => (charset, None),
    };
    settings.insert("character_set_server".into(), charset.to_owned());
    if let Some(collation) = collation {
        settings.insert("collation_server".into(), collation.to_owned());
    }
    Ok(())
}

/// Sandboxes of PostgreSQL are UTF8 with the C collation: the byte order that a `_bin` collation has.
pub(crate) fn utf8_alone(charset: &str) -> Result<(), &'static str> {
    let is_utf8 = charset.to_lowercase().starts_with("utf8");
    if is_utf8 { Ok(()) } else { Err("sandboxes of PostgreSQL are UTF8") }
}

/// Cpus of server and client, with what is to be said about them.
pub(crate) fn assignment(cell: &Cell, load: &Load) -> Result<Assignment, Error> {
    let server = cell.cpus.as_ref().map(cpu_request);
    let client = load.client_cpus.clone().map(CpuRequest::List);
    Ok(sandbox::cpus::assign(server.as_ref(), client.as_ref())?)
}

pub(crate) fn cpu_request(choice: &CpusChoice) -> CpuRequest {
    let usable = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    match choice {
        CpusChoice::Count(count) => CpuRequest::Count(*count),
        CpusChoice::List(list) => CpuRequest::List(list.clone()),
        CpusChoice::Half => CpuRequest::Count((usable / 2).max(1)),
        CpusChoice::All => CpuRequest::Count(usable),
    }
}

/// A study that says nothing of the client's cpus gives it those that none of its servers gets, the same ones in every
/// cell; where the largest server takes all, they share.
pub(crate) fn with_client_apart(mut body: Body) -> Result<Body, Error> {
    if body.load.client_cpus.is_none() && !body.axes.cpus.is_empty() {
        let servers: Vec<CpuRequest> = body.axes.cpus.iter().map(cpu_request).collect();
        body.load.client_cpus = sandbox::cpus::rest(&servers)?.map(|cpus| cpus.to_string());
    }
    Ok(body)
}

/// What is known of the server before it starts.
pub(crate) fn server_facts(build: Option<&Build>, cell: &Cell, load: &Load) -> ServerFacts {
    let engine = cell.engine.clone().unwrap_or_default();
    // An impossible assignment has been refused before the first run.
    let assigned = assignment(cell, load).ok();
    let shown = |cpus: Option<&Cpus>| cpus.map(Cpus::to_string).unwrap_or_default();
    let mut storage = BTreeMap::new();
    if let Some(place) = &cell.storage {
        storage.insert("name".to_owned(), place.label.clone());
        if let Some(path) = place.datadir.as_ref().filter(|_| place.made.is_none()) {
            storage.insert("path".to_owned(), path.display().to_string());
        }
        if let Some(made) = &place.made {
            storage.insert("made for the study".to_owned(), made_text(made));
        }
    }
    ServerFacts {
        engine: build.map_or(engine.clone(), |build| build.engine_label(&engine)),
        isolation: cell.isolation.clone().unwrap_or_default(),
        cpus: shown(assigned.as_ref().and_then(|assigned| assigned.server.as_ref())),
        client_cpus: shown(assigned.as_ref().and_then(|assigned| assigned.client.as_ref())),
        storage,
        ..ServerFacts::default()
    }
}

/// `xfs, noatime, 8192 MiB`.
fn made_text(made: &sandbox::FilesystemWish) -> String {
    let size = format!("{} MiB", made.size_bytes >> 20);
    let name = made.filesystem.name();
    [&[name.to_owned()], made.options.as_slice(), &[size]].concat().join(", ")
}

pub(crate) fn load_plan(body: &Body, cell: &Cell, planned: &PlannedRun) -> Result<load::LoadPlan, Error> {
    let load = &body.load;
    let pacing = match load.rate_tps {
        None => load::Pacing::Closed,
        Some(rate_tps) => load::Pacing::Open {
            rate_tps,
            arrivals: match load.arrivals {
                Arrivals::Constant => load::Arrivals::Constant,
                Arrivals::Poisson => load::Arrivals::Poisson,
            },
        },
    };
    let length = engine_length(cell.length.unwrap_or(load.length));
    let steps = planned
        .levels
        .iter()
        .map(|&sessions| load::Step { sessions, warmup: load.warmup, length, pacing })
        .collect();
    let client = assignment(cell, load)?.client;
    let cpus = client.map_or_else(Vec::new, |cpus| cpus.0.into_iter().map(|cpu| cpu as usize).collect());
    let defaults = load::LoadPlan::default();
    Ok(load::LoadPlan {
        steps,
        workers: load.workers,
        cpus,
        think_time: load.think_time,
        ramp: load.ramp,
        retry: load::RetryPolicy {
            retries_max: load.retries_max,
            backoff: load.backoff,
            backoff_max: defaults.retry.backoff_max.max(load.backoff),
        },
        drain: load.drain,
        seed: planned.seed,
        raise_priority: true,
        ..defaults
    })
}

fn engine_length(length: Length) -> load::Length {
    match length {
        Length::Time(length) => load::Length::Time(length),
        Length::Transactions(count) => load::Length::Transactions { count, at_most: None },
    }
}

/// What runs before the first level, with the sessions of the largest one: the sooner caches are full.
pub(crate) fn priming_plan(body: &Body, plan: &load::LoadPlan) -> Option<load::LoadPlan> {
    let length = engine_length(body.load.prime?);
    let largest = plan.steps.iter().max_by_key(|step| step.sessions)?;
    let step = load::Step { warmup: std::time::Duration::ZERO, length, ..*largest };
    // Another seed: the measured phase shall not repeat what the priming has just drawn.
    Some(load::LoadPlan { steps: vec![step], seed: plan.seed ^ 0x5052_494d, ..plan.clone() })
}

/// All axes of the study with their values, selectors resolved, in the order in which reports show them.
pub(crate) fn axes(body: &Body, plan: &Plan) -> Vec<Axis> {
    let axes = &body.axes;
    let mut all = Vec::new();
    let mut put = |name: &str, values: Vec<serde_json::Value>| {
        if !values.is_empty() {
            all.push(Axis { name: name.to_owned(), values });
        }
    };
    // The others are of replicas.
    let servers = plan.servers.iter().take(axes.server.len());
    put("server", servers.map(|server| server.name.clone().into()).collect());
    for name in AXES.into_iter().filter(|name| !["server", "sessions", "climb"].contains(name)) {
        let values = crate::study::axis_values(axes, name);
        put(name, values.into_iter().filter_map(|names| names.into_iter().next()).map(Into::into).collect());
    }
    for (name, values) in &axes.options {
        put(name, values.iter().map(|value| value.clone().into()).collect());
    }
    let levels = axes.ladder.levels().iter().map(|&level| level.into()).collect();
    put(if matches!(axes.ladder, Ladder::Climb(_)) { "climb" } else { "sessions" }, levels);
    all
}
