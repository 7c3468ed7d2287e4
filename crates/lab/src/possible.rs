//! What is refused of a study before its first run: cells that no server of theirs can be, each shown where the study asks
//! for it.

use std::collections::BTreeSet;
use std::path::PathBuf;

use sandbox::{Build, CpuRequest, Flavor, Home, Logging, Spec, Storage, replication};
use workload::{Dialect, OptionError};

use crate::cells::{Controlled, Life, cpu_request, replica_spec, sandbox_spec, utf8_alone};
use crate::checks::{self, Shortage};
use crate::duel::room::memory_for;
use crate::error::Error;
use crate::plan::{Cell, Plan};
use crate::provision::{Data, copies_of, dialect_of_flavor, kept_or_room, place_of};
use crate::study::{Body, Load, StorageChoice, Study};

/// Refuses what is not possible. Builds that are here are asked whether they take what their servers are to be given; of
/// those that are not, only what holds for all of their flavour is known.
///
/// # Errors
/// The first cell that no server can be.
pub(crate) fn check(
    home: &Home,
    study: &Study,
    load: &Load,
    plan: &Plan,
    servers: &[Controlled<'_>],
) -> Result<(), Error> {
    if let Some(list) = &load.client_cpus
        && servers.iter().any(|server| !matches!(server.life, Life::Foreign))
    {
        let assigned = sandbox::cpus::assign(None, Some(&CpuRequest::List(list.clone())));
        assigned.map_err(|error| {
            let help = "name cpus that it may use, as in client_cpus = \"0-3\", or leave it out";
            study.refuse("client_cpus", error.to_string(), "not on this machine", help)
        })?;
    }
    let mut checked = BTreeSet::new();
    let body = study.body(plan.quick);
    for cell in &plan.cells {
        let look = Look { study, load, plan, cell, server: &servers[cell.server], servers };
        look.interventions(&body)?;
        match look.server.life {
            Life::Foreign => look.foreign()?,
            Life::Own(build) => {
                look.of_flavor()?;
                look.of_build(build, &mut checked)?;
                look.of_replicas(build, &mut checked)?;
            }
            Life::ToFetch => look.of_flavor()?,
        }
    }
    tables(home, study, load, plan, servers)
}

/// A cell that is looked at.
struct Look<'a> {
    study: &'a Study,
    load: &'a Load,
    plan: &'a Plan,
    cell: &'a Cell,
    server: &'a Controlled<'a>,
    /// All of the plan, those of replicas among them.
    servers: &'a [Controlled<'a>],
}

impl Look<'_> {
    fn refuse(&self, axis: &str, value: &str, why: &str) -> Error {
        self.refuse_at(&format!("{axis}/{value}"), axis, value, why)
    }

    /// `place` is where the value stands.
    fn refuse_at(&self, place: &str, axis: &str, value: &str, why: &str) -> Error {
        let server = &self.plan.servers[self.cell.server];
        let message = format!("{axis} `{value}` is not possible on {}: {why}", server.name);
        let help = format!(
            "write another value, or leave those cells out: [[exclude]] with server = \"{}\" and {axis} = \"{value}\"",
            server.selector
        );
        self.study.refuse(place, message, "not possible there", &help)
    }

    /// What is changed of it while it runs has to be said in its words.
    fn interventions(&self, body: &Body) -> Result<(), Error> {
        let flavor = self.server.flavor;
        let own = body.axes.intervene.iter().filter(|it| self.cell.intervene.as_ref() == Some(&it.name));
        let own = own.map(|it| (&it.name, &it.change));
        let mut all = own.chain(body.timed.iter().map(|timed| (&timed.name, &timed.change)));
        let Some((name, _)) = all.find(|(_, change)| change.of(flavor).is_none()) else { return Ok(()) };
        let server = &self.plan.servers[self.cell.server].name;
        let help = format!("say it in the words of {flavor} ({flavor} = {{ .. }}), or leave {server} out");
        let message = format!("[[intervene]] `{name}` says nothing of {server}");
        Err(self.study.refuse(&format!("intervene/{name}"), message, "in none of its words", &help))
    }

    /// What a server of that flavour on this machine can never be.
    fn of_flavor(&self) -> Result<(), Error> {
        let (cell, flavor) = (self.cell, self.server.flavor);
        if let Some(engine) = &cell.engine
            && let Some(why) = sandbox::engines::refusal(flavor, engine)
        {
            return Err(self.refuse("engine", engine, why));
        }
        if let Some(charset) = cell.charset.as_ref().filter(|_| flavor == Flavor::Postgres) {
            utf8_alone(charset).map_err(|why| self.refuse("charset", charset, why))?;
        }
        if let Some(logging) = &cell.settings.logging
            && let Err(error) = logging.parse::<Logging>().and_then(|logging| logging.check(flavor))
        {
            let label = &cell.settings.label;
            let why = format!("logging {logging}: {}", why(&error));
            return Err(self.refuse_at(&format!("settings/{label}/logging"), "settings", label, &why));
        }
        if let Some(cpus) = &cell.cpus {
            let assigned = sandbox::cpus::assign(Some(&cpu_request(cpus)), None);
            assigned.map_err(|error| self.refuse("cpus", &cpus.label(), &why(&error)))?;
        }
        let storage = cell.storage.as_ref().filter(|storage| storage.made.is_none());
        if let Some((storage, dir)) = storage.and_then(|storage| Some((storage, storage.datadir.clone()?))) {
            let checked = Storage::at(&*storage.label, dir).check();
            checked.map_err(|error| self.refuse("storage", &storage.label, &error.to_string()))?;
        }
        if let Some(env) = &cell.env {
            let preload = env.preload.iter().try_for_each(|name| sandbox::preload::find(name).map(drop));
            let checked = preload.and_then(|()| sandbox::check_env(&env.set));
            checked.map_err(|error| self.refuse("env", &env.label, &error.to_string()))?;
        }
        if let Some(replicas) = cell.replicas.as_ref().filter(|replicas| !replicas.servers.is_empty())
            && let Some(why) = replicas.mode.refusal(flavor)
        {
            return Err(self.refuse("replicas", &replicas.label, why));
        }
        Ok(())
    }

    /// What the replicas of a server of this build cannot be.
    fn of_replicas(&self, build: &Build, checked: &mut BTreeSet<String>) -> Result<(), Error> {
        let cell = self.cell;
        let Some(replicas) = cell.replicas.as_ref().filter(|replicas| !replicas.servers.is_empty()) else {
            return Ok(());
        };
        let primary = sandbox_spec(build, cell, self.load)?;
        let workload = &cell.workload_label;
        let asked = format!("{} replicas {} {:?} {workload}", cell.server, replicas.label, primary.settings);
        if !checked.insert(asked) {
            return Ok(());
        }
        let refuse = |why: &str| Err(self.refuse("replicas", &replicas.label, why));
        if let Some(why) = replication::refused_primary(&primary, replicas.mode) {
            return refuse(&why);
        }
        let mut specs: Vec<Spec> = Vec::new();
        for (server, number) in replicas.servers.iter().zip(1..) {
            let index = server.as_ref().and_then(|server| self.plan.replica_server(server));
            let replica = match index.map(|index| &self.servers[index].life) {
                None => build,
                Some(Life::Own(replica)) => *replica,
                // Nothing is known of it before it is fetched; its run says what is wrong then.
                Some(Life::ToFetch | Life::Foreign) => continue,
            };
            if let Some(why) =
                replication::refusal(build, replica).or_else(|| replication::lacks(replica, replicas.mode))
            {
                return refuse(&why);
            }
            if !replication::is_copied(build, replica) && !cell.workload.is_built_in() {
                return refuse(&format!(
                    "a replica of another version ({replica}) loads the tables by itself, and nobody knows whether a \
                     workload of one's own loads the same ones twice"
                ));
            }
            let spec = replica_spec(replica, cell, self.load, number)?;
            if let Err(error) = spec.check().and_then(|()| spec.check_start()) {
                return refuse(&why(&error));
            }
            specs.push(spec);
        }
        memory_for(&specs.iter().chain([&primary]).collect::<Vec<_>>()).or_else(|why| refuse(&why))
    }

    /// What its own program, or what came with it, says to it.
    fn of_build(&self, build: &Build, checked: &mut BTreeSet<String>) -> Result<(), Error> {
        let cell = self.cell;
        let spec = sandbox_spec(build, cell, self.load)?;
        // Many cells ask the same of a server, and the answer takes its program a tenth of a second.
        let asked = format!("{} {:?} {:?}", cell.server, spec.settings, spec.engine);
        if !checked.insert(asked) {
            return Ok(());
        }
        if let Some(engine) = &spec.engine {
            sandbox::engines::check(build, engine).map_err(|error| match error.is_usage() {
                true => self.refuse("engine", engine, &why(&error)),
                false => error.into(),
            })?;
        }
        match spec.check().and_then(|()| spec.check_start()) {
            Err(sandbox::Error::Setting { build, name, is_value, why }) => {
                let settings = &cell.settings;
                let is_of_charset = ["character_set_server", "collation_server"].contains(&name.as_str());
                if let Some(charset) = cell.charset.as_ref().filter(|_| is_of_charset) {
                    return Err(self.refuse("charset", charset, &why));
                }
                let (label, selector) = (&settings.label, &self.plan.servers[cell.server].selector);
                let help = format!(
                    "write what {build} takes, or leave these cells out with an [[exclude]] of server = \"{selector}\" \
                     and settings = \"{label}\""
                );
                let message = format!("settings `{label}` are not possible on {build}: {name}: {why}");
                let (part, mark) = if is_value { ("value", "this value") } else { ("name", "this name") };
                let place = format!("settings/{label}/{name}/{part}");
                Err(self.study.refuse(&place, message, mark, &help))
            }
            other => Ok(other?),
        }
    }

    /// A server that runs already is as it is.
    fn foreign(&self) -> Result<(), Error> {
        let cell = self.cell;
        let why = "Plimsoll did not start this server and cannot change it";
        let settings = &cell.settings;
        if settings.profile.is_some()
            || settings.logging.is_some()
            || !settings.set.is_empty()
            || !settings.by_flavor.is_empty()
        {
            return Err(self.refuse("settings", &settings.label, why));
        }
        let is_ours = |storage: &&StorageChoice| {
            storage.datadir.is_some() || storage.made.is_some() || storage.scheduler.is_some()
        };
        if let Some(storage) = cell.storage.as_ref().filter(is_ours) {
            return Err(self.refuse("storage", &storage.label, why));
        }
        if let Some(cpus) = &cell.cpus {
            return Err(self.refuse("cpus", &cpus.label(), why));
        }
        if let Some(env) = cell.env.as_ref().filter(|env| !env.set.is_empty() || !env.preload.is_empty()) {
            return Err(self.refuse("env", &env.label, why));
        }
        if let Some(replicas) = cell.replicas.as_ref().filter(|replicas| !replicas.servers.is_empty()) {
            return Err(self.refuse("replicas", &replicas.label, why));
        }
        if let Some(isolation) = &cell.isolation {
            return Err(self.refuse("isolation", isolation, why));
        }
        if let Some(charset) = &cell.charset {
            return Err(self.refuse("charset", charset, why));
        }
        Ok(())
    }
}

/// Why, without what: that is said already.
fn why(error: &sandbox::Error) -> String {
    match error {
        sandbox::Error::Unsupported { why, .. } => why.clone(),
        other => other.to_string(),
    }
}

/// Refuses options that do not go together, and tables that no disk of theirs has room for. Of servers that are not ours
/// nothing is known before they are asked.
fn tables(
    home: &Home,
    study: &Study,
    load: &Load,
    plan: &Plan,
    servers: &[Controlled<'_>],
) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for cell in &plan.cells {
        let (server, pinned) = (&servers[cell.server], &plan.servers[cell.server]);
        let place = cell.storage.as_ref().map(|storage| &storage.label);
        let kind = format!(
            "{} {} {:?} {:?} {place:?} {} {}",
            cell.server,
            cell.workload_label,
            cell.options,
            cell.engine,
            cell.settings.label,
            cell.replicas().len()
        );
        if !seen.insert(kind) {
            continue;
        }
        let version = match server.life {
            Life::Foreign => continue,
            Life::Own(build) => build.version.as_str(),
            Life::ToFetch => pinned.build_name.split(['@', '+']).nth(1).unwrap_or_default(),
        };
        let dialect = dialect_of_flavor(server.flavor, version, cell.engine.as_deref());
        let configured = match cell.workload.configure(&cell.options, dialect.clone()) {
            Ok(configured) => configured,
            Err(error) => return Err(refused_option(study, cell, &error)),
        };
        let shortage = match server.life {
            Life::Own(build) if cell.storage.as_ref().is_none_or(|storage| storage.made.is_none()) => {
                let beside = cell.replicas().len() as u64;
                kept_or_room(home, &sandbox_spec(build, cell, load)?, &*configured, Data::Any, beside)?.err()
            }
            _ => room(home, cell, &*configured),
        };
        if let Some(Shortage { message, remedy }) = shortage {
            let option = largest(cell, &dialect, configured.data_bytes());
            let place = option.unwrap_or_else(|| format!("workload/{}", cell.workload_label));
            return Err(study.refuse(&place, message, "too large", &remedy));
        }
    }
    Ok(())
}

/// Whether there is room for tables where no server of theirs can have left any yet.
fn room(home: &Home, cell: &Cell, configured: &dyn workload::Configured) -> Option<Shortage> {
    let (storage, beside) = (cell.storage.as_ref(), cell.replicas().len() as u64);
    if let Some(made) = storage.and_then(|storage| storage.made.as_ref()) {
        let what = format!("a file system of {}", checks::megabytes(made.size_bytes));
        return checks::shortage_of(&what, made.size_bytes, configured.data_bytes(), 1 + beside);
    }
    let datadir: Option<PathBuf> = storage.and_then(|storage| storage.datadir.clone());
    let copies = copies_of(configured, Data::Any) + beside;
    checks::shortage(&place_of(home, datadir.as_deref()), configured.data_bytes(), copies)
}

/// Where the option stands without which the tables would be smallest.
fn largest(cell: &Cell, dialect: &Dialect, bytes: u64) -> Option<String> {
    let without = |name: &String| {
        let mut others = cell.options.clone();
        others.remove(name);
        Some(cell.workload.configure(&others, dialect.clone()).ok()?.data_bytes())
    };
    let sized = cell.options.iter().filter_map(|(name, value)| Some((without(name)?, name, value)));
    let smallest = sized.filter(|(left, ..)| *left < bytes).min_by_key(|(left, ..)| *left);
    smallest.map(|(_, name, value)| format!("option/{name}/{value}"))
}

fn refused_option(study: &Study, cell: &Cell, error: &OptionError) -> Error {
    let (OptionError::Unknown { name, .. } | OptionError::Invalid { name, .. }) = error;
    let given = cell.options.get(name).map(|value| format!("option/{name}/{value}"));
    let place = given.unwrap_or_else(|| format!("workload/{}", cell.workload_label));
    let help = format!("see `plimsoll workloads {}`", cell.workload.name());
    study.refuse(&place, error.to_string(), "not possible", &help)
}
