//! A script with its options: its life as in sysbench, one global Lua state and one for each session.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use load::Stop;
use mlua::Value;
use wire::Target;
use wire::files;

use crate::course::{Course, Stopped};
use crate::error::Error;
use crate::fiber::Answer;
use crate::host::{Blocking, Databases, Host, now_or_never};
use crate::lookout::Lookout;
use crate::options::{self, Compat, Declared, Kind, Section, Values, Words};
use crate::run::{Around, Finished, Outcome, banner, flush_lua, is_forced, notice, say};
use crate::session::ScriptSessions;
use crate::settings::{self, Generators};
use crate::state::{Bytecode, OptionValue, Program, State};
use crate::symbols::{RandomSettings, SessionSymbols};
use crate::watch::{Hooks, Watch};

const OLTP_MODULES: &str = "/usr/share/sysbench/?.lua;/usr/local/share/sysbench/?.lua";

/// A script, loaded, ready for its commands.
pub(crate) struct Script {
    program: Arc<Program>,
    bytecode: Bytecode,
    values: Values,
    compat: Compat,
    databases: Arc<Databases>,
    random: RandomSettings,
    generators: Generators,
    /// The state that has run the file scope: `init`, `done`, commands and the cumulative report run in it.
    global: Course<Blocking>,
}

impl Script {
    /// Finds a script, runs its file scope and, if there is a command, checks the options that it declares. `None`
    /// where there is no command: then its file scope was all.
    ///
    /// # Errors
    /// No such script, its own errors, unknown options.
    pub(crate) fn load(
        name: &str,
        command: Option<&str>,
        words: &Words,
        arguments: &[String],
        compat: Compat,
        stop: &Stop,
    ) -> Result<Option<Script>, Error> {
        let lua_path = lua_path(name);
        let (path, source) = find(name, &lua_path)?;
        let shown = path.as_ref().map_or_else(|| name.to_owned(), |path| path.display().to_string());
        let bytecode = Bytecode::compile()?;
        let program = Program {
            name: if name == "-" { "stdin".into() } else { name.to_owned() },
            chunk: Bytecode::script(&shown, &source)?,
            path,
            command: command.map(str::to_owned),
            arguments: arguments.to_vec(),
            lua_path,
            lua_cpath: std::env::var("LUA_CPATH").ok(),
            options: BTreeMap::new(),
            exports_options: false,
        };
        // The options of sysbench itself decide how the file scope may connect; the script's own are known after it.
        let values = Values::known(options::built_in(compat), &words.options)?;
        let databases = Arc::new(settings::databases(&values)?);
        let random = settings::random(&values)?;
        let generators = settings::generators(&values, settings::threads(&values)?);
        let symbols = SessionSymbols::new(random, generators.sessions[0].clone(), databases.counters.clone());
        let program = Arc::new(program);
        let mut global = course(&program, &bytecode, &databases, 0, "load_only", symbols, print_nothing())?;
        global.stopped_by(Some(stop.clone()));
        run_blocking(&mut global)?;
        if command.is_none() {
            return Ok(None);
        }
        let own = declared_options(global.state())?;
        let exports_options = own.is_none();
        let own = own.unwrap_or_default();
        let mut declared = options::built_in(compat);
        declared.retain(|option| !own.iter().any(|o| options::key(&o.name) == option.name));
        declared.extend(own);
        let values = Values::new(declared, &words.options, exports_options)?;
        let options =
            values.all().map(|(option, value)| (lua_name(option), lua_value(option, value))).collect();
        let program = Arc::new(Program { options, exports_options, ..Program::clone(&program) });
        global.state().fill_options(&program)?;
        let text = values.help_of(Section::Script);
        global.state().set_native("test_options", text)?;
        Ok(Some(Script { program, bytecode, values, compat, databases, random, generators, global }))
    }

    /// Runs a command.
    ///
    /// # Errors
    /// The script's own, or those of the load engine.
    pub(crate) fn command(mut self, command: &str, around: Around<'_>) -> Result<Outcome, Error> {
        if self.ask("command_defined", command)? {
            self.own_command(command, around.out, around.stop)?;
            return Ok(Outcome::default());
        }
        match command {
            "run" => self.run(around),
            "prepare" | "cleanup" | "help" if self.global.state().defines(command) => {
                self.call_global(command)?;
                Ok(Outcome::default())
            }
            "help" if !self.program.exports_options => {
                say(
                    around.out,
                    &format!("{} options:\n{}\n", self.file_name(), self.values.help_of(Section::Script)),
                )?;
                Ok(Outcome::default())
            }
            "prepare" | "cleanup" | "help" => Err(Error::Usage(format!(
                "'{}' test does not implement the '{command}' command.",
                self.file_name()
            ))),
            other => Err(Error::Usage(format!("Unknown command: {other}"))),
        }
    }

    fn file_name(&self) -> String {
        let name = &self.program.name;
        Path::new(name).file_name().map_or_else(|| name.clone(), |n| n.to_string_lossy().into_owned())
    }

    fn ask(&self, function: &str, name: &str) -> Result<bool, Error> {
        let lookup = || -> mlua::Result<bool> {
            let sysbench: mlua::Table = self.global.lua().globals().get("sysbench")?;
            let cmdline: mlua::Table = sysbench.get("cmdline")?;
            cmdline.get::<mlua::Function>(function)?.call(name)
        };
        lookup().map_err(Error::lua)
    }

    fn call_global(&mut self, name: &str) -> Result<(), Error> {
        self.global.state().set_native("wanted", name)?;
        self.global.begin("call_global")?;
        run_blocking(&mut self.global)
    }

    /// A command of the script's table, in as many threads as asked for where the script says so.
    fn own_command(&mut self, name: &str, out: &mut (dyn Write + Send), stop: &Stop) -> Result<(), Error> {
        let threads = settings::threads(&self.values)?;
        if threads == 1 || !self.ask("command_parallel", name)? {
            self.global.state().set_native("wanted", name)?;
            self.global.begin("command")?;
            return run_blocking(&mut self.global);
        }
        notice(out, "Initializing worker threads...\n\n")?;
        let failures: Mutex<Vec<Error>> = Mutex::new(Vec::new());
        let (program, bytecode, databases, random) =
            (&self.program, &self.bytecode, &self.databases, self.random);
        let text = self.values.help_of(Section::Script);
        std::thread::scope(|scope| {
            for (tid, rng) in self.generators.sessions.iter().cloned().enumerate() {
                let (failures, text) = (&failures, text.clone());
                scope.spawn(move || {
                    let symbols = SessionSymbols::new(random, rng, databases.counters.clone());
                    let attempt = || -> Result<(), Error> {
                        let main = "load_and_command";
                        let mut course =
                            course(program, bytecode, databases, tid as u32, main, symbols, text)?;
                        course.stopped_by(Some(stop.clone()));
                        course.state().set_native("wanted", name)?;
                        let ran = run_blocking(&mut course);
                        now_or_never(course.host.close());
                        ran
                    };
                    if let Err(error) = attempt() {
                        failures.lock().unwrap_or_else(PoisonError::into_inner).push(error);
                    }
                });
            }
        });
        let failures = failures.into_inner().unwrap_or_else(PoisonError::into_inner);
        failures.into_iter().next().map_or(Ok(()), Err)
    }

    fn run(mut self, around: Around<'_>) -> Result<Outcome, Error> {
        let Around { out, stop, onlooker } = around;
        let threads = settings::threads(&self.values)?;
        let form = settings::form(&self.values, self.compat)?;
        let plan = settings::plan(&self.values)?;
        self.call_global("init")?;
        if !self.global.state().defines("event") {
            return Err(Error::Script(format!("cannot find the event() function in {}", self.file_name())));
        }
        notice(out, &banner(&self.values, threads, self.generators.seed))?;
        let (percentiles, started_at_ms) = (form.percentiles.clone(), load::time::unix_ms());
        let sessions = ScriptSessions {
            program: self.program.clone(),
            bytecode: self.bytecode.clone(),
            databases: self.databases.clone(),
            random: self.random,
            generators: std::mem::take(&mut self.generators.sessions),
            draws_per_event: u32::from(!form.percentiles.is_empty()),
            tallies: Arc::default(),
            problem: Arc::default(),
            lookout: (!self.values.is_on("thread-per-session")).then(|| Arc::new(Lookout::new(threads))),
        };
        let hooks = self.hooks()?;
        let is_used = self.databases.is_used.clone();
        let hooks = Hooks { global: &mut self.global, intermediate: hooks.0, has_cumulative: hooks.1 };
        let counters = self.databases.counters.clone();
        let mut watch = Watch::new(&self.values, form, is_used, counters, Some(hooks), out)?;
        onlooker.began(&shown(&self.values));
        let (databases, driver) = (self.databases.clone(), self.values.text("db-driver"));
        let mut on = |event: load::Event<'_>| {
            onlooker.event(&event, used(&databases, driver));
            watch.on(event);
        };
        let ran = std::thread::scope(|scope| {
            if let Some(lookout) = sessions.lookout.clone() {
                scope.spawn(move || lookout.watch());
            }
            let ran = load::run(&plan, &sessions, &mut on, stop);
            if let Some(lookout) = &sessions.lookout {
                lookout.end();
            }
            ran
        });
        let problem = sessions.problem.lock().unwrap_or_else(PoisonError::into_inner).take();
        let load = match (ran, &problem) {
            (Ok(load), _) => load,
            (Err(_), Some(problem)) => return Err(Error::Script(problem.clone())),
            (Err(error), None) => return Err(error.into()),
        };
        let problem = problem.or_else(|| load.steps.iter().find_map(|step| step.ended_by.clone()));
        let is_forced = is_forced(&self.values, &load);
        if problem.is_none() {
            let tallies =
                std::mem::take(&mut *sessions.tallies.lock().unwrap_or_else(PoisonError::into_inner));
            watch.finish(&load, &tallies)?;
            drop(watch);
            // The end of a run that was stopped is an end.
            self.global.stopped_by(None);
            self.call_global("done")?;
            self.global.state().native("end_json")?.call::<()>(()).map_err(Error::lua)?;
            flush_lua();
        }
        Ok(Outcome::of_run(Finished {
            load,
            test: self.file_name(),
            is_native: false,
            statements: load::SessionFactory::statement_classes(&sessions),
            options: shown(&self.values),
            given: given(&self.values),
            seed: self.generators.seed,
            targets: used(&self.databases, self.values.text("db-driver")).to_vec(),
            planned: plan.steps[0],
            started_at_ms,
            percentiles,
            error: problem,
            is_forced,
        }))
    }

    /// A state for intermediate reports, if the script has a hook for them, and whether it has a cumulative one.
    fn hooks(&self) -> Result<(Option<Course<Blocking>>, bool), Error> {
        let has = |name: &str| -> mlua::Result<bool> {
            let sysbench: mlua::Table = self.global.lua().globals().get("sysbench")?;
            sysbench.get::<mlua::Table>("hooks")?.get::<Value>(name).map(|hook| hook.is_function())
        };
        let has_intermediate = has("report_intermediate").map_err(Error::lua)?;
        let has_cumulative = has("report_cumulative").map_err(Error::lua)?;
        if !has_intermediate {
            return Ok((None, has_cumulative));
        }
        let symbols = SessionSymbols::new(
            self.random,
            workload::random::Rng::stream(u64::from(self.generators.seed), 0),
            self.databases.counters.clone(),
        );
        let text = self.values.help_of(Section::Script);
        let mut course = course(&self.program, &self.bytecode, &self.databases, 0, "load", symbols, text)?;
        run_blocking(&mut course)?;
        Ok((Some(course), has_cumulative))
    }
}

/// The servers of a test, as soon as it has asked for one.
fn used<'a>(databases: &'a Databases, driver: &str) -> &'a [Target] {
    if databases.is_used.load(Ordering::Relaxed) { databases.targets(driver) } else { &[] }
}

/// Options in force, without passwords.
pub(crate) fn shown(values: &Values) -> BTreeMap<String, String> {
    let is_shown = |name: &str| {
        !name.contains("password")
            && !["help", "version"].contains(&name)
            && options::ALIASES.iter().all(|(alias, _)| *alias != name)
    };
    let options = values.all().filter(|(option, _)| is_shown(&option.name));
    options.map(|(option, value)| (option.name.clone(), value.unwrap_or_default().to_owned())).collect()
}

/// Options that the user gave and that change what is measured: those of the test itself, its random numbers, and how
/// it is driven. Sessions are told apart anyway.
pub(crate) fn given(values: &Values) -> BTreeMap<String, String> {
    let is_of_load = |option: &Declared| match option.section {
        Section::Script => true,
        Section::Random => option.name != "rand-seed",
        _ => ["rate", "db-ps-mode", "mysql-ssl", "pgsql-sslmode"].contains(&option.name.as_str()),
    };
    values
        .all()
        .filter(|(option, _)| values.is_given(&option.name) && is_of_load(option))
        .map(|(option, value)| (option.name.replace('-', "_"), value.unwrap_or_default().to_owned()))
        .collect()
}

fn print_nothing() -> String {
    String::new()
}

fn course(
    program: &Arc<Program>,
    bytecode: &Bytecode,
    databases: &Arc<Databases>,
    tid: u32,
    main: &str,
    symbols: SessionSymbols,
    test_options: String,
) -> Result<Course<Blocking>, Error> {
    let host = Host::new(Blocking, databases.clone(), tid);
    let state = State::new(program, bytecode, tid, &host.results())?;
    state.set_native("test_options", test_options)?;
    Course::new(state, main, host, symbols)
}

/// Runs a course over blocking sockets to its end.
pub(crate) fn run_blocking(course: &mut Course<Blocking>) -> Result<(), Error> {
    match now_or_never(course.advance(Answer::Nothing, None))? {
        Stopped::Ended => Ok(()),
        Stopped::WantsEvent => Err(Error::Script("only thread_run() can ask for events".into())),
        Stopped::Restarts { text, .. } => Err(Error::Script(text)),
    }
}

/// What the script declares; `None` if it has no table of options.
fn declared_options(state: &State) -> Result<Option<Vec<Declared>>, Error> {
    let list: Option<mlua::Table> = state.native("declared_options")?.call(()).map_err(|error| {
        Error::Script(format!(
            "`sysbench.cmdline.read_cmdline_options' function failed: {}",
            Error::lua(error)
        ))
    })?;
    let Some(list) = list else { return Ok(None) };
    let declared = |table: mlua::Table| -> mlua::Result<Declared> {
        Ok(Declared {
            name: table.get("name")?,
            help: table.get("help")?,
            default: table.get("default")?,
            kind: match table.get::<u32>("kind")? {
                1 => Kind::Bool,
                2 => Kind::Int,
                3 => Kind::Size,
                4 => Kind::Double,
                6 => Kind::List,
                7 => Kind::File,
                _ => Kind::Text,
            },
            section: Section::Script,
        })
    };
    list.sequence_values::<mlua::Table>()
        .map(|table| table.and_then(declared))
        .collect::<mlua::Result<Vec<_>>>()
        .map(Some)
        .map_err(Error::lua)
}

fn lua_name(option: &Declared) -> String {
    option.name.replace('-', "_")
}

fn lua_value(option: &Declared, value: Option<&str>) -> OptionValue {
    let list = |value: &str| -> Vec<String> {
        value.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
    };
    let value = value.unwrap_or_default();
    // Where Plimsoll takes more than sysbench, scripts see what they know as long as it is enough.
    match option.name.as_str() {
        "percentile" => {
            let first = list(value).first().and_then(|percent| percent.parse().ok());
            return OptionValue::Number(first.unwrap_or(0.0));
        }
        "mysql-ssl" if let Some(is_on) = options::switch(value) => return OptionValue::Bool(is_on),
        "pgsql-host" if !value.contains(',') => return OptionValue::Text(value.to_owned()),
        "pgsql-port" if let Ok(port) = value.parse() => return OptionValue::Number(port),
        _ => {}
    }
    match option.kind {
        // As in sysbench, a switch without a default is on.
        Kind::Bool => OptionValue::Bool(value.is_empty() || options::switch(value).unwrap_or(false)),
        Kind::Int | Kind::Size => {
            let number = value.parse::<f64>().ok().or_else(|| options::size(value).map(|n| n as f64));
            OptionValue::Number(number.unwrap_or(0.0))
        }
        Kind::Double => OptionValue::Number(value.parse().unwrap_or(0.0)),
        Kind::Text => OptionValue::Text(value.to_owned()),
        Kind::File => OptionValue::Nil,
        Kind::List => OptionValue::List(list(value)),
    }
}

/// `package.path`: the user's LUA_PATH (`;;` stands for the default), the script's own folder, sysbench's.
fn lua_path(name: &str) -> String {
    let folder = Path::new(name).parent().filter(|p| !p.as_os_str().is_empty());
    let own = folder.map(|folder| format!("{}/?.lua;", folder.display())).unwrap_or_default();
    let home = std::env::var("HOME")
        .map(|home| format!("{home}/.luarocks/share/lua/5.1/?.lua;"))
        .unwrap_or_default();
    let default = format!("./?.lua;./?/init.lua;./src/lua/?.lua;{own}{home}{OLTP_MODULES}");
    match std::env::var("LUA_PATH") {
        Ok(given) if given.contains(";;") => given.replacen(";;", &format!(";{default};"), 1),
        Ok(given) if !given.is_empty() => format!("{given};{default}"),
        _ => default,
    }
}

/// A script by path, from standard input (`-`), or by module name.
fn find(name: &str, lua_path: &str) -> Result<(Option<PathBuf>, Vec<u8>), Error> {
    let read = |path: &Path| {
        files::read(path, &files::WORKLOAD)
            .map_err(|source| Error::File { path: path.display().to_string(), source })
    };
    if name == "-" {
        let source = files::read_from(std::io::stdin(), &files::WORKLOAD)
            .map_err(|source| Error::File { path: "standard input".into(), source })?;
        return Ok((None, source));
    }
    let path = Path::new(name);
    if path.exists() && !path.is_dir() {
        return Ok((Some(path.to_owned()), read(path)?));
    }
    let module = name.strip_suffix(".lua").unwrap_or(name);
    for template in lua_path.split(';').filter(|t| !t.is_empty()) {
        let candidate = PathBuf::from(template.replace('?', &module.replace('.', "/")));
        if candidate.is_file() {
            return Ok((Some(candidate.clone()), read(&candidate)?));
        }
    }
    Err(Error::NotFound { name: name.to_owned() })
}
