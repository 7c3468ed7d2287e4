//! The server that is switched, by a control connection of our own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use telemetry::gates::{self, Finding};
use wire::blocking::Client;
use wire::{Protocol, Target};

use crate::error::Error;
use crate::intervene::variable::{Assignment, Effect, effect};
use crate::provision::connect;
use crate::study::Change;

/// Values of variables, as the server reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Readings(pub(crate) BTreeMap<String, String>);

impl Readings {
    /// What is not as it is here, in words.
    pub(crate) fn differing<'a>(&'a self, now: &'a Readings) -> impl Iterator<Item = String> + 'a {
        let differing = self.0.iter().filter(|(name, value)| now.0.get(*name) != Some(value));
        differing.map(|(name, value)| {
            let is = now.0.get(name).map_or("not there", String::as_str);
            format!("`{name}` is {is} where it was to be {value}")
        })
    }
}

/// PostgreSQL's processes read the configuration one after the other.
const TAKES_EFFECT_IN: Duration = Duration::from_secs(2);

pub(crate) struct Server {
    target: Target,
    client: Client,
    variables: BTreeSet<String>,
    /// What they were before anything was switched.
    pub(crate) found: Readings,
    /// Of PostgreSQL: the variables that its `ALTER SYSTEM` had set before.
    configured: BTreeSet<String>,
}

impl Server {
    /// Connects, and looks at all variables that these changes are of.
    pub(crate) fn open(target: &Target, changes: &[&Change]) -> Result<Server, Error> {
        let mut server = Server {
            target: target.clone(),
            client: connect(target)?,
            variables: changes.iter().flat_map(|change| variables(change)).collect(),
            found: Readings::default(),
            configured: BTreeSet::new(),
        };
        server.check()?;
        server.found = server.read()?;
        if let Some(missing) = server.variables.iter().find(|name| !server.found.0.contains_key(*name)) {
            return Err(Error::Run(format!("[[intervene]]: the server has no variable `{missing}`")));
        }
        Ok(server)
    }

    /// Refuses variables that do not change for the sessions of the load, which are connected before.
    fn check(&mut self) -> Result<(), Error> {
        match self.target.protocol {
            Protocol::Mysql => {
                for name in self.variables.clone() {
                    // Error 1238: it is one of the whole server. Any other error is told when it is read.
                    if self.client.query_value(&format!("SELECT @@SESSION.{name}")).is_ok() {
                        return Err(Error::Run(format!(
                            "[[intervene]]: `{name}` has a value for each session, and those of the load keep theirs \
                             whatever is set for the server: compare it by `settings` in [axes], in runs of their own"
                        )));
                    }
                }
            }
            Protocol::Postgres => {
                let sql = format!(
                    "SELECT name, context, coalesce(sourcefile, '') FROM pg_settings WHERE name IN ({})",
                    self.list()
                );
                for row in self.rows(&sql)? {
                    let [name, context, file] = row.as_slice() else { continue };
                    let why = match context.as_str() {
                        "internal" => "cannot be changed at all",
                        "postmaster" => "takes effect when the server is started",
                        "backend" | "superuser-backend" => "takes effect for sessions that connect later",
                        _ => "",
                    };
                    if !why.is_empty() {
                        return Err(Error::Run(format!(
                            "[[intervene]]: `{name}` {why}: compare it by `settings` in [axes], in runs of their own"
                        )));
                    }
                    if file.ends_with("postgresql.auto.conf") {
                        self.configured.insert(name.clone());
                    }
                }
            }
        }
        Ok(())
    }

    fn list(&self) -> String {
        let quoted: Vec<String> =
            self.variables.iter().map(|name| format!("'{}'", name.replace('\'', "''"))).collect();
        if quoted.is_empty() { "''".to_owned() } else { quoted.join(", ") }
    }

    /// What the variables are now.
    pub(crate) fn read(&mut self) -> Result<Readings, Error> {
        if self.variables.is_empty() {
            return Ok(Readings::default());
        }
        let sql = match self.target.protocol {
            Protocol::Mysql => format!("SHOW GLOBAL VARIABLES WHERE variable_name IN ({})", self.list()),
            Protocol::Postgres => {
                format!("SELECT name, current_setting(name) FROM pg_settings WHERE name IN ({})", self.list())
            }
        };
        let rows = self.rows(&sql)?;
        let pair = |row: Vec<String>| Some((row.first()?.to_lowercase(), row.get(1)?.clone()));
        Ok(Readings(rows.into_iter().filter_map(pair).collect()))
    }

    /// Reads until they are as wanted, or have had time enough.
    pub(crate) fn read_until(&mut self, is_so: impl Fn(&Readings) -> bool) -> Result<Readings, Error> {
        let began = Instant::now();
        loop {
            let readings = self.read()?;
            if is_so(&readings) || began.elapsed() > TAKES_EFFECT_IN {
                return Ok(readings);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Switches a state on and off again; what the variables were in it.
    pub(crate) fn try_out(&mut self, name: &str, change: &Change) -> Result<Readings, Error> {
        self.switch_on(change)?;
        let mut wanted = BTreeMap::new();
        for set in assignments(on_of(change)).chain(settings_of(change)) {
            wanted.insert(set.name, set.value);
        }
        let wanted: Vec<(String, String)> =
            wanted.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
        let look = |readings: &Readings| {
            let reported: Vec<(String, String)> = readings.0.clone().into_iter().collect();
            gates::settings(&wanted, &reported)
        };
        let is_on = |readings: &Readings| wanted.is_empty() || look(readings).finding == Finding::Held;
        let on = self.read_until(is_on)?;
        if !is_on(&on) {
            return Err(Error::Run(format!(
                "[[intervene]] `{name}`: the server did not take what it was asked for ({}): ask for a value that it accepts",
                look(&on).detail
            )));
        }
        self.switch_off(change)?;
        let is_looked_at = !variables(change).is_empty();
        let off = self.read_until(|readings| !is_looked_at || *readings != on)?;
        if is_looked_at && off == on {
            return Err(Error::Run(format!(
                "[[intervene]] `{name}`: switching it off changed none of its variables, which are {}",
                on.0.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join(", ")
            )));
        }
        Ok(on)
    }

    pub(crate) fn switch_on(&mut self, change: &Change) -> Result<(), Error> {
        let statements = self.statements_on(change);
        self.send(&statements)
    }

    pub(crate) fn switch_off(&mut self, change: &Change) -> Result<(), Error> {
        let statements = self.statements_off(change);
        self.send(&statements)
    }

    /// What switches a change on.
    pub(crate) fn statements_on(&self, change: &Change) -> Vec<String> {
        match change {
            Change::Sql { on, .. } => on.clone(),
            Change::Settings(settings) => {
                let set = settings.iter().map(|(name, value)| self.set(name, value));
                self.with_reload(set.collect())
            }
        }
    }

    /// What takes it back: variables get the values that they had.
    pub(crate) fn statements_off(&self, change: &Change) -> Vec<String> {
        match change {
            Change::Sql { off, .. } => off.clone(),
            Change::Settings(_) => self.statements_back(change),
        }
    }

    /// Variables that a change has set get the values that they had.
    pub(crate) fn give_back(&mut self, change: &Change) -> Result<(), Error> {
        let statements = self.statements_back(change);
        self.send(&statements)
    }

    /// What does so; none where it sets no variable.
    pub(crate) fn statements_back(&self, change: &Change) -> Vec<String> {
        let names = variables(change);
        if names.is_empty() {
            return Vec::new();
        }
        let back = names.iter().filter_map(|name| {
            let before = self.found.0.get(name)?;
            let is_reset = self.target.protocol == Protocol::Postgres && !self.configured.contains(name);
            Some(if is_reset { format!("ALTER SYSTEM RESET {name}") } else { self.set(name, before) })
        });
        self.with_reload(back.collect())
    }

    fn set(&self, name: &str, value: &str) -> String {
        let is_number = value.parse::<f64>().is_ok_and(f64::is_finite);
        let value = if is_number { value.to_owned() } else { format!("'{}'", value.replace('\'', "''")) };
        match self.target.protocol {
            Protocol::Mysql => format!("SET GLOBAL {name} = {value}"),
            Protocol::Postgres => format!("ALTER SYSTEM SET {name} = {value}"),
        }
    }

    fn with_reload(&self, mut statements: Vec<String>) -> Vec<String> {
        if self.target.protocol == Protocol::Postgres {
            statements.push("SELECT pg_reload_conf()".to_owned());
        }
        statements
    }

    fn send(&mut self, statements: &[String]) -> Result<(), Error> {
        for sql in statements {
            self.ask(sql, |client| client.query_sets(sql).map(drop))?;
        }
        Ok(())
    }

    fn rows(&mut self, sql: &str) -> Result<Vec<Vec<String>>, Error> {
        let sets = self.ask(sql, |client| client.query_sets(sql))?;
        let text = |cell: &Option<Vec<u8>>| {
            String::from_utf8_lossy(cell.as_deref().unwrap_or_default()).into_owned()
        };
        Ok(sets.iter().flat_map(|set| &set.rows).map(|row| row.iter().map(text).collect()).collect())
    }

    /// Asks; once more by a new connection where the old one is gone, as servers close those that rest for long.
    fn ask<T>(&mut self, sql: &str, ask: impl Fn(&mut Client) -> Result<T, wire::Error>) -> Result<T, Error> {
        let answer = match ask(&mut self.client) {
            Err(wire::Error::Io(_)) => {
                self.client = connect(&self.target)?;
                ask(&mut self.client)
            }
            answer => answer,
        };
        answer.map_err(|error| Error::Run(format!("[[intervene]]: {}: {error}", wire::mask::prose(sql))))
    }
}

/// Statements without passwords, for the record.
pub(crate) fn shown(statements: &[String]) -> Vec<String> {
    statements.iter().map(|sql| wire::mask::prose(sql)).collect()
}

/// The variables that a change is of.
pub(crate) fn variables(change: &Change) -> BTreeSet<String> {
    let off: &[String] = match change {
        Change::Sql { off, .. } => off,
        Change::Settings(_) => &[],
    };
    let all = assignments(on_of(change)).chain(assignments(off)).chain(settings_of(change));
    all.map(|assignment| assignment.name.to_lowercase()).collect()
}

fn on_of(change: &Change) -> &[String] {
    match change {
        Change::Sql { on, .. } => on,
        Change::Settings(_) => &[],
    }
}

fn settings_of(change: &Change) -> impl Iterator<Item = Assignment> + '_ {
    let settings = match change {
        Change::Sql { .. } => None,
        Change::Settings(settings) => Some(settings),
    };
    let all = settings.into_iter().flatten();
    all.map(|(name, value)| Assignment { name: name.clone(), value: Some(value.clone()) })
}

fn assignments(statements: &[String]) -> impl Iterator<Item = Assignment> + '_ {
    statements.iter().flat_map(|sql| match effect(sql) {
        Effect::Global(set) | Effect::Configured(set) => set,
        Effect::Reload | Effect::Session | Effect::Other => Vec::new(),
    })
}
