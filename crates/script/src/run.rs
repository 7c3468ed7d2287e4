//! `plimsoll sysbench [options] [test] [command]`: finds the test, runs the command, prints what sysbench prints.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use load::{LoadResult, Stop};
use mlua::Value;

use crate::course::{Course, Stopped};
use crate::error::Error;
use crate::host::{Blocking, Databases, Host};
use crate::options::{self, Compat, Declared, Kind, Section, Values, Words};
use crate::session::{ScriptSessions, alert};
use crate::settings;
use crate::state::{Bytecode, Callbacks, OptionValue, Program, State, VERSION};
use crate::symbols::{SessionSymbols, enter};
use crate::watch::Watch;

/// How a call ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The exit code as sysbench's: 0, or 1 when something failed.
    pub exit_code: i32,
    /// The result of a `run`, for JSON, histograms and the store.
    pub result: Option<Finished>,
}

/// A finished `run`.
#[derive(Debug)]
pub struct Finished {
    /// What the load engine measured.
    pub load: LoadResult,
    /// Name of the test.
    pub test: String,
    /// All options in force, without passwords.
    pub options: BTreeMap<String, String>,
    /// Seed in force.
    pub seed: u32,
    /// The servers.
    pub targets: Vec<wire::Target>,
}

const NOT_OURS: [(&str, &str); 5] = [
    ("cpu", "stress-ng --cpu, or the canary of `plimsoll doctor`"),
    ("memory", "stress-ng --vm, or sysbench itself"),
    ("threads", "stress-ng --mutex, or sysbench itself"),
    ("mutex", "stress-ng --mutex, or sysbench itself"),
    ("fileio", "fio, or the storage probe of `plimsoll doctor`"),
];

const OLTP_MODULES: &str = "/usr/share/sysbench/?.lua;/usr/local/share/sysbench/?.lua";

/// Runs a command line (without the program's name).
///
/// # Errors
/// Whatever ends it; the caller prints the message and exits with 1.
pub fn run(arguments: &[String], out: &mut (dyn Write + Send), stop: &Stop) -> Result<Outcome, Error> {
    let words = options::words(arguments)?;
    let compat = compat(&words)?;
    let asks = |name: &str| {
        words.options.iter().any(|(n, v)| {
            n == name && v.as_deref().is_none_or(|v| options::switch(v) == Some(true))
        })
    };
    if asks("version") {
        say(out, &format!("{}\n", version()))?;
        return Ok(Outcome::default());
    }
    let Some(name) = words.positional.first() else {
        say(out, &help(compat)?)?;
        let exit_code = i32::from(!asks("help"));
        return Ok(Outcome { exit_code, result: None });
    };
    if words.options.iter().any(|(n, v)| n == "db-driver" && v.as_deref() == Some("help")) {
        say(out, DRIVERS)?;
        return Ok(Outcome::default());
    }
    if let Some((_, instead)) = NOT_OURS.iter().find(|(n, _)| n == name) {
        return Err(Error::Usage(format!(
            "the built-in test '{name}' is not part of Plimsoll, which measures database servers; use {instead}"
        )));
    }
    let test = Test::load(name, &words, arguments, compat)?;
    test.command(out, stop, asks("help"))
}

const DRIVERS: &str = "Compiled-in database drivers:\n  mysql - MySQL driver\n  pgsql - PostgreSQL driver\n\n";

/// `sysbench 1.0.20 (...)`.
pub fn version() -> String {
    format!("sysbench {VERSION} (Plimsoll {}, LuaJIT 2.1)", env!("CARGO_PKG_VERSION"))
}

fn compat(words: &Words) -> Result<Compat, Error> {
    match words.options.iter().rev().find(|(name, _)| name == "compat").and_then(|(_, value)| value.as_deref()) {
        None | Some("1.0") => Ok(Compat::V1_0),
        Some("master") => Ok(Compat::Master),
        Some(other) => Err(Error::Usage(format!("invalid value for --compat: '{other}' (1.0, master)"))),
    }
}

fn say(out: &mut dyn Write, text: &str) -> Result<(), Error> {
    flush_lua();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|source| Error::File { path: "standard output".into(), source })
}

/// What scripts have printed goes through C's own buffer: it comes out before anything of ours.
pub(crate) fn flush_lua() {
    // SAFETY: a null stream means all of them.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

fn help(compat: Compat) -> Result<String, Error> {
    let values = Values::new(options::built_in(compat), &[])?;
    let section = |section| {
        options::help_of(values.section(section), |option| option.default.clone())
    };
    Ok(format!(
        "Usage:\n  sysbench [options]... [testname] [command]\n\nCommands implemented by most tests: prepare run cleanup \
         help\n\nGeneral options:\n{}\nPseudo-Random Numbers Generator options:\n{}\nLog options:\n{}\nGeneral database \
         options:\n\n{}\n\n{DRIVERS}mysql options:\n{}\npgsql options:\n{}\nPlimsoll's options:\n{}\nTests: a path or a \
         module name of a Lua script (see LUA_PATH); the native workloads of `plimsoll workloads`.\n\nSee 'sysbench \
         <testname> help' for a list of options for each test.\n\n",
        section(Section::General),
        section(Section::Random),
        section(Section::Log),
        section(Section::Database),
        section(Section::Mysql),
        section(Section::Pgsql),
        section(Section::Plimsoll),
    ))
}

/// A script with its options, ready for its commands.
struct Test {
    program: Program,
    bytecode: Bytecode,
    values: Values,
    compat: Compat,
    databases: Databases,
}

impl Test {
    fn load(name: &str, words: &Words, arguments: &[String], compat: Compat) -> Result<Test, Error> {
        let lua_path = lua_path(name);
        let (path, source) = find(name, &lua_path)?;
        let shown = path.as_ref().map_or_else(|| name.to_owned(), |path| path.display().to_string());
        let bytecode = Bytecode::compile()?;
        let mut program = Program {
            name: short_name(name),
            chunk: Bytecode::script(&shown, &source)?,
            path,
            command: words.positional.get(1).cloned(),
            arguments: arguments.to_vec(),
            lua_path,
            lua_cpath: std::env::var("LUA_CPATH").ok(),
            options: BTreeMap::new(),
        };
        // The first execution only tells which options the script declares.
        let mut declared = options::built_in(compat);
        let own = declared_options(&program, &bytecode)?;
        declared.retain(|option| !own.iter().any(|o| options::key(&o.name) == option.name));
        declared.extend(own);
        let values = Values::new(declared, &words.options)?;
        program.options = values.all().map(|(option, value)| (lua_name(option), lua_value(option, value))).collect();
        let databases = settings::databases(&values)?;
        Ok(Test { program, bytecode, values, compat, databases })
    }

    fn command(mut self, out: &mut (dyn Write + Send), stop: &Stop, wants_help: bool) -> Result<Outcome, Error> {
        let command = match self.program.command.clone() {
            _ if wants_help => "help".to_owned(),
            Some(command) => command,
            // A script run by its path alone (`#!`) runs.
            None if self.values.count("threads") > 0 => "run".to_owned(),
            None => "help".to_owned(),
        };
        say(out, &format!("{}\n\n", version()))?;
        match command.as_str() {
            "run" if !self.overrides("run")? => {
                let finished = self.run(out, stop)?;
                let failed = finished.load.steps.iter().find_map(|step| step.ended_by.clone());
                if let Some(reason) = failed {
                    eprintln!("FATAL: {reason}");
                    return Ok(Outcome { exit_code: 1, result: Some(finished) });
                }
                Ok(Outcome { exit_code: 0, result: Some(finished) })
            }
            "help" if !self.overrides("help")? => {
                say(out, &self.own_help())?;
                Ok(Outcome::default())
            }
            other => {
                self.script_command(other)?;
                Ok(Outcome::default())
            }
        }
    }

    fn overrides(&mut self, command: &str) -> Result<bool, Error> {
        let state = State::new(&self.program, &self.bytecode, 0, Callbacks::default())?;
        if command == "run" {
            let globals = state.lua.globals();
            let commands: Option<mlua::Table> = globals
                .get::<mlua::Table>("sysbench")
                .and_then(|s| s.get::<mlua::Table>("cmdline"))
                .and_then(|c| c.get("commands"))
                .ok();
            return Ok(commands.is_some_and(|c| c.contains_key(command).unwrap_or(false)));
        }
        Ok(state.defines(command))
    }

    fn own_help(&self) -> String {
        let own = self.values.section(Section::Script);
        let text = options::help_of(own, |option| option.default.clone());
        if text.is_empty() {
            return format!("{} has no options of its own.\n", self.program.name);
        }
        format!("{} options:\n{text}\n", file_name(&self.program.name))
    }

    /// prepare, cleanup, the script's own commands; in as many threads as asked for where the script says so.
    fn script_command(&self, name: &str) -> Result<(), Error> {
        let threads = settings::threads(&self.values)?;
        let generators = settings::generators(&self.values, threads);
        let random = settings::random(&self.values)?;
        let state = self.command_state(0)?;
        let is_defined: bool = self.ask(&state, "command_defined", name)?;
        if !is_defined {
            return Err(Error::Usage(format!(
                "The '{}' test does not implement the '{name}' command.",
                file_name(&self.program.name)
            )));
        }
        let is_parallel: bool = self.ask(&state, "command_parallel", name)?;
        drop(state);
        if !is_parallel || threads == 1 {
            return self.one_command(name, 0, SessionSymbols::new(random, generators.sessions[0].clone()));
        }
        let failures: Mutex<Vec<Error>> = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for (tid, rng) in generators.sessions.into_iter().enumerate() {
                let failures = &failures;
                scope.spawn(move || {
                    let symbols = SessionSymbols::new(random, rng);
                    if let Err(error) = self.one_command(name, tid as u32, symbols) {
                        failures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(error);
                    }
                });
            }
        });
        failures.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().next().map_or(Ok(()), Err)
    }

    fn command_state(&self, tid: u32) -> Result<State, Error> {
        let callbacks = Callbacks { print_test_options: self.printer(), ..Callbacks::default() };
        State::new(&self.program, &self.bytecode, tid, callbacks)
    }

    fn printer(&self) -> Rc<dyn Fn() -> String> {
        let text = self.own_help();
        Rc::new(move || text.clone())
    }

    fn ask<T: mlua::FromLua>(&self, state: &State, function: &str, name: &str) -> Result<T, Error> {
        let lookup = || -> mlua::Result<T> {
            let sysbench: mlua::Table = state.lua.globals().get("sysbench")?;
            let cmdline: mlua::Table = sysbench.get("cmdline")?;
            cmdline.get::<mlua::Function>(function)?.call(name)
        };
        lookup().map_err(Error::lua)
    }

    fn one_command(&self, name: &str, tid: u32, mut symbols: SessionSymbols) -> Result<(), Error> {
        let host = Host::new(Blocking, Arc::new(self.databases.clone()), tid);
        let callbacks = Callbacks {
            results: host.results(),
            print_test_options: self.printer(),
            alert: alert(self.databases.driver),
            ..Callbacks::default()
        };
        let state = enter(&mut symbols, || State::new(&self.program, &self.bytecode, tid, callbacks))?;
        let name = Value::String(state.lua.create_string(name).map_err(Error::lua)?);
        let mut course = Course::new(state, "command", host, symbols)?;
        let stopped = now_or_never(course.advance(name, None));
        now_or_never(course.host.close());
        match stopped? {
            Stopped::Ended => Ok(()),
            Stopped::WantsEvent => Err(Error::Script("a command cannot wait for events".into())),
            Stopped::Restarts { text, .. } => Err(Error::Script(text)),
        }
    }

    fn run(self, out: &mut (dyn Write + Send), stop: &Stop) -> Result<Finished, Error> {
        let threads = settings::threads(&self.values)?;
        let generators = settings::generators(&self.values, threads);
        let form = settings::form(&self.values, self.compat)?;
        let plan = settings::plan(&self.values)?;
        let random = settings::random(&self.values)?;
        say(out, &self.banner(threads, generators.seed))?;
        let program = Arc::new(self.program);
        let tallies = Arc::new(Mutex::new(Vec::new()));
        let sessions = ScriptSessions {
            program: program.clone(),
            bytecode: self.bytecode.clone(),
            databases: Arc::new(self.databases.clone()),
            random,
            generators: generators.sessions,
            draws_per_event: u32::from(!form.percentiles.is_empty()),
            tallies: tallies.clone(),
        };
        // A state of its own for report hooks, as in sysbench.
        let mut watch = Watch::new(&program, &self.bytecode, &self.values, form, out)?;
        let load = load::run(&plan, &sessions, &mut |event| watch.on(event), stop)?;
        let tallies = std::mem::take(&mut *tallies.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        watch.finish(&load, &tallies)?;
        let options = self.values.all().filter(|(option, _)| !option.name.contains("password"));
        Ok(Finished {
            load,
            test: program.name.clone(),
            options: options.map(|(o, v)| (o.name.clone(), v.unwrap_or_default().to_owned())).collect(),
            seed: generators.seed,
            targets: self.databases.targets,
        })
    }

    fn banner(&self, threads: u32, seed: u32) -> String {
        let mut text = format!("Running the test with following options:\nNumber of threads: {threads}\n");
        let warmup = self.values.count("warmup-time");
        if warmup > 0 {
            text.push_str(&format!("Warmup time: {warmup}s\n"));
        }
        let rate = self.values.count("rate");
        if rate > 0 {
            text.push_str(&format!("Target transaction rate: {rate}/sec\n"));
        }
        let interval = self.values.count("report-interval");
        if interval > 0 {
            text.push_str(&format!("Report intermediate results every {interval} second(s)\n"));
        }
        let checkpoints = self.values.list("report-checkpoints");
        if !checkpoints.is_empty() {
            text.push_str(&format!("Report checkpoint(s) at {} seconds\n", checkpoints.join(", ")));
        }
        if self.values.is_on("debug") {
            text.push_str("Debug mode enabled.\n");
        }
        if self.values.is_on("validate") {
            text.push_str("Additional request validation enabled.\n");
        }
        match self.values.count("rand-seed") {
            0 => text.push_str("Initializing random number generator from current time\n"),
            _ => text.push_str(&format!("Initializing random number generator from seed ({seed}).\n")),
        }
        if self.values.text("forced-shutdown") != "off" {
            text.push_str(&format!(
                "Forcing shutdown in {} seconds\n",
                self.values.count("time") + self.values.count("forced-shutdown")
            ));
        }
        text.push_str("\n\nInitializing worker threads...\n\n");
        text
    }
}

/// A future over blocking sockets is ready when it is first asked.
fn now_or_never<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(done) = future.as_mut().poll(&mut context) {
            return done;
        }
    }
}

fn declared_options(program: &Program, bytecode: &Bytecode) -> Result<Vec<Declared>, Error> {
    let state = State::new(program, bytecode, 0, Callbacks::default())?;
    let list: mlua::Table = state.native("declared_options")?.call(()).map_err(Error::lua)?;
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
        .map_err(Error::lua)
}

fn lua_name(option: &Declared) -> String {
    option.name.replace('-', "_")
}

fn lua_value(option: &Declared, value: Option<&str>) -> OptionValue {
    let Some(value) = value else { return OptionValue::Nil };
    match option.kind {
        Kind::Bool => OptionValue::Bool(options::switch(value).unwrap_or(false)),
        Kind::Int => value
            .parse::<f64>()
            .ok()
            .or_else(|| options::size(value).map(|n| n as f64))
            .map_or(OptionValue::Nil, OptionValue::Number),
        Kind::Size => options::size(value).map_or(OptionValue::Nil, |n| OptionValue::Number(n as f64)),
        Kind::Double => value.parse().map_or(OptionValue::Nil, OptionValue::Number),
        Kind::Text | Kind::File => OptionValue::Text(value.to_owned()),
        Kind::List => OptionValue::List(
            value.split(',').map(str::trim).filter(|i| !i.is_empty()).map(str::to_owned).collect(),
        ),
    }
}

/// `package.path`: the user's LUA_PATH (`;;` stands for the default), the script's own folder, sysbench's.
fn lua_path(name: &str) -> String {
    let folder = Path::new(name).parent().filter(|p| !p.as_os_str().is_empty());
    let own = folder.map(|folder| format!("{}/?.lua;", folder.display())).unwrap_or_default();
    let home = std::env::var("HOME").map(|home| format!("{home}/.luarocks/share/lua/5.1/?.lua;")).unwrap_or_default();
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
        std::fs::read(path).map_err(|source| Error::File { path: path.display().to_string(), source })
    };
    if name == "-" {
        let mut source = Vec::new();
        std::io::stdin()
            .read_to_end(&mut source)
            .map_err(|source| Error::File { path: "standard input".into(), source })?;
        return Ok((None, source));
    }
    let path = Path::new(name);
    if path.is_file() {
        return Ok((Some(path.to_owned()), read(path)?));
    }
    let module = name.strip_suffix(".lua").unwrap_or(name);
    for template in lua_path.split(';').filter(|t| !t.is_empty()) {
        let candidate = PathBuf::from(template.replace('?', &module.replace('.', "/")));
        if candidate.is_file() {
            return Ok((Some(candidate.clone()), read(&candidate)?));
        }
    }
    Err(Error::NotFound {
        name: name.to_owned(),
        hint: " (looked in LUA_PATH, the current folder and sysbench's folder)".into(),
    })
}

fn short_name(name: &str) -> String {
    if name == "-" { "stdin".into() } else { name.to_owned() }
}

fn file_name(name: &str) -> String {
    Path::new(name).file_name().map_or_else(|| name.to_owned(), |n| n.to_string_lossy().into_owned())
}
