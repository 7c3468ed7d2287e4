//! Bare names: the native workloads, with sysbench's command line and reports around them.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use wire::blocking::Client;
use wire::{Protocol, Target};
use workload::{Configured, Dialect, LoadAt, OptionKind, Workload};

use crate::error::Error;
use crate::options::{self, Compat, Declared, Kind, Section, Values, Words};
use crate::output::{level, tell};
use crate::run::{Around, Finished, Outcome, banner, is_forced, notice, say};
use crate::script::{given, shown};
use crate::settings;
use crate::watch::Watch;

/// What only scripts can do.
const FOR_SCRIPTS: [&str; 3] = ["db-ps-mode", "mysql-ignore-errors", "thread-per-session"];

/// A native workload with the command line's options.
pub(crate) struct Native {
    workload: &'static dyn Workload,
    values: Values,
    compat: Compat,
}

impl Native {
    /// Checks the options.
    ///
    /// # Errors
    /// An unknown option.
    pub(crate) fn new(
        workload: &'static dyn Workload,
        words: &Words,
        compat: Compat,
    ) -> Result<Native, Error> {
        let mut declared = options::built_in(compat);
        for spec in workload.options() {
            if declared.iter().all(|option| option.name != options::key(&spec.name)) {
                declared.push(Declared {
                    name: spec.name.to_string(),
                    help: spec.help.to_string(),
                    default: Some(spec.default.to_string()),
                    kind: if spec.kind == OptionKind::Switch { Kind::Bool } else { Kind::Text },
                    section: Section::Script,
                });
            }
        }
        let values = Values::new(declared, &words.options, false)?;
        if let Some(name) = FOR_SCRIPTS.iter().find(|name| values.is_given(name)) {
            return Err(Error::Usage(format!(
                "--{name} is for scripts, and {} without .lua is the native workload; give the script's path",
                workload.name()
            )));
        }
        Ok(Native { workload, values, compat })
    }

    /// Runs a command.
    ///
    /// # Errors
    /// No server, a refused statement, an unknown command.
    pub(crate) fn command(&self, command: &str, around: Around<'_>) -> Result<Outcome, Error> {
        let name = self.workload.name();
        notice(
            around.out,
            &format!(
                "{name} runs as Plimsoll's native workload (the path of a script, or {name}.lua, runs it in Lua)\n\n"
            ),
        )?;
        match command {
            "help" => {
                let list = self.values.help_of(Section::Script);
                say(around.out, &format!("{name} options:\n{list}\n"))?;
            }
            "prepare" => self.prepare(around)?,
            "prewarm" => self.prewarm(around.out)?,
            "cleanup" => self.cleanup(around.out)?,
            "run" => return self.run(around),
            other => {
                return Err(Error::Usage(format!(
                    "Unknown command: {other} (native workloads have prepare, prewarm, run, cleanup and help)"
                )));
            }
        }
        Ok(Outcome::default())
    }

    fn target(&self) -> Result<Target, Error> {
        let driver = self.values.text("db-driver");
        let databases = settings::databases(&self.values)?;
        match databases.targets(driver) {
            [] => Err(Error::Script(format!("invalid database driver name: '{driver}'"))),
            [target] => Ok(target.clone()),
            _ => Err(Error::Usage(
                "native workloads use one server; give the script's path for several".into(),
            )),
        }
    }

    fn configured(&self, target: &Target) -> Result<Box<dyn Configured>, Error> {
        let client = Client::connect(target).map_err(|error| Error::Workload(error.to_string()))?;
        let dialect = Dialect::of_server(target.protocol, &client.server().version);
        client.close();
        let mut given = BTreeMap::new();
        for spec in self.workload.options() {
            // sysbench's own options have sysbench's own defaults, which differ (rand-type).
            let is_built_in = spec.name.starts_with("rand_");
            if is_built_in || self.values.is_given(&spec.name) {
                given.insert(spec.name.to_string(), self.values.text(&spec.name).to_owned());
            }
        }
        self.workload.configure(&given, dialect).map_err(|error| Error::Usage(error.to_string()))
    }

    fn prepare(&self, around: Around<'_>) -> Result<(), Error> {
        let Around { out, stop, onlooker } = around;
        let target = self.target()?;
        let connections = settings::threads(&self.values)? as usize;
        let configured = self.configured(&target)?;
        onlooker.loading(&target, configured.data_bytes()).map_err(Error::Workload)?;
        notice(out, "Creating and filling the tables...\n")?;
        let at = LoadAt { target: target.clone(), connections, is_own_server: false, stop: stop.clone() };
        let report = configured.load(&at, &|_| ()).map_err(|error| Error::Workload(error.to_string()))?;
        report.notes.iter().for_each(|note| tell(level::WARNING, note));
        notice(out, &format!("{} rows are in place\n", report.rows))
    }

    /// The commands of the sysbench family, whose tables are sbtest1 up to as many as the options say.
    fn wants_sbtest(&self, command: &str) -> Result<(), Error> {
        let name = self.workload.name();
        if ["oltp_", "select_random_", "bulk_insert"].iter().any(|family| name.starts_with(family)) {
            return Ok(());
        }
        Err(Error::Usage(format!("'{name}' test does not implement the '{command}' command.")))
    }

    /// Reads every table once by its primary key and once by its secondary index, in as many connections as
    /// sessions, so that they are in the server's memory. sysbench has this for MySQL only.
    fn prewarm(&self, out: &mut (dyn Write + Send)) -> Result<(), Error> {
        self.wants_sbtest("prewarm")?;
        let target = self.target()?;
        let tables = self.values.count("tables").max(1);
        for table in 1..=tables {
            notice(out, &format!("Prewarming table sbtest{table}\n"))?;
        }
        let next = AtomicU64::new(1);
        let connections = u64::from(settings::threads(&self.values)?).min(tables);
        std::thread::scope(|scope| {
            let readers: Vec<_> =
                (0..connections).map(|_| scope.spawn(|| read_tables(&target, &next, tables))).collect();
            readers.into_iter().try_for_each(|reader| match reader.join() {
                Ok(read) => read.map_err(|error| Error::Workload(error.to_string())),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
    }

    /// Drops the tables.
    fn cleanup(&self, out: &mut (dyn Write + Send)) -> Result<(), Error> {
        self.wants_sbtest("cleanup")?;
        let target = self.target()?;
        let mut client = Client::connect(&target).map_err(|error| Error::Workload(error.to_string()))?;
        for table in 1..=self.values.count("tables").max(1) {
            notice(out, &format!("Dropping table 'sbtest{table}'...\n"))?;
            client
                .query(&format!("DROP TABLE IF EXISTS sbtest{table}"))
                .map_err(|error| Error::Workload(error.to_string()))?;
        }
        client.close();
        Ok(())
    }

    fn run(&self, around: Around<'_>) -> Result<Outcome, Error> {
        let Around { out, stop, onlooker } = around;
        let target = self.target()?;
        let configured = self.configured(&target)?;
        let threads = settings::threads(&self.values)?;
        let form = settings::form(&self.values, self.compat)?;
        let plan = settings::plan(&self.values)?;
        let seed = settings::seed(&self.values);
        notice(out, &banner(&self.values, threads, seed))?;
        let (percentiles, started_at_ms) = (form.percentiles.clone(), load::time::unix_ms());
        let sessions = configured.sessions(&target, u64::from(seed));
        let mut watch =
            Watch::new(&self.values, form, Arc::new(AtomicBool::new(true)), Arc::default(), None, out)?;
        let mut options = shown(&self.values);
        options.extend(configured.options());
        onlooker.began(&options);
        let targets = [target];
        let mut on = |event: load::Event<'_>| {
            onlooker.event(&event, &targets);
            watch.on(event);
        };
        let load = load::run(&plan, &*sessions, &mut on, stop)?;
        let error = load.steps.iter().find_map(|step| step.ended_by.clone());
        let is_forced = is_forced(&self.values, &load);
        if error.is_none() {
            watch.finish(&load, &[])?;
        }
        Ok(Outcome::of_run(Finished {
            load,
            test: self.workload.name().to_owned(),
            is_native: true,
            statements: sessions.statement_classes(),
            options,
            given: given(&self.values),
            seed,
            targets: targets.to_vec(),
            planned: plan.steps[0],
            started_at_ms,
            percentiles,
            error,
            is_forced,
        }))
    }
}

/// Reads tables until all have been taken.
fn read_tables(target: &Target, next: &AtomicU64, tables: u64) -> Result<(), wire::Error> {
    let mut client = Client::connect(target)?;
    loop {
        let table = next.fetch_add(1, Ordering::Relaxed);
        if table > tables {
            client.close();
            return Ok(());
        }
        let analyze = match target.protocol {
            Protocol::Mysql => "ANALYZE TABLE",
            Protocol::Postgres => "ANALYZE",
        };
        client.query(&format!("{analyze} sbtest{table}"))?;
        client.query(&format!("SELECT AVG(LENGTH(c)) FROM sbtest{table}"))?;
        client.query(&format!("SELECT COUNT(k) FROM sbtest{table} WHERE k >= 0"))?;
    }
}
