//! `plimsoll sysbench [options] [test] [command]`: finds the test, runs the command, prints what sysbench prints.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::path::Path;

use load::{LoadResult, Stop};

use crate::error::Error;
use crate::native::Native;
use crate::options::{self, ALIASES, Compat, Section, Values, Words};
use crate::output::{is_told, level, set_verbosity, tell};
use crate::script::Script;
use crate::settings;
use crate::state::VERSION;

/// Looks on while a `run` goes on, on the load's own thread.
pub trait Onlooker {
    /// Tables of about so many bytes are about to be loaded.
    ///
    /// # Errors
    /// Why they should not be: there is no room for them.
    fn loading(&mut self, _target: &wire::Target, _data_bytes: u64) -> Result<(), String> {
        Ok(())
    }

    /// The load begins with these options in force (passwords left out): sessions connect now.
    fn began(&mut self, options: &BTreeMap<String, String>);

    /// What the load tells. `targets`: the servers that the test uses; a script may turn out to use none.
    fn event(&mut self, event: &load::Event<'_>, targets: &[wire::Target]);
}

/// Nobody.
impl Onlooker for () {
    fn began(&mut self, _options: &BTreeMap<String, String>) {}

    fn event(&mut self, _event: &load::Event<'_>, _targets: &[wire::Target]) {}
}

/// How a call ended.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The exit code as sysbench's: 0; 1 when something failed, which has been told; 2 after a forced shutdown; 4 where
    /// the user stopped a script before or after its load.
    pub exit_code: i32,
    /// The result of a `run`, for JSON, histograms and the store.
    pub result: Option<Finished>,
}

impl Outcome {
    /// Of a run that has ended, well or not; says why not.
    pub(crate) fn of_run(finished: Finished) -> Outcome {
        if let Some(error) = &finished.error {
            tell_end(error);
        }
        let exit_code = match &finished.error {
            Some(_) => 1,
            None if finished.is_forced => 2,
            None => 0,
        };
        Outcome { exit_code, result: Some(finished) }
    }
}

const STOPPED: i32 = 4;

/// Whom a call tells what, and who may end it.
pub(crate) struct Around<'a> {
    pub(crate) out: &'a mut (dyn Write + Send),
    pub(crate) stop: &'a Stop,
    pub(crate) onlooker: &'a mut dyn Onlooker,
}

/// Tells what ended a command.
fn tell_end(error: &str) {
    tell(level::FATAL, error);
    if error.starts_with("`thread_init'") {
        tell(level::FATAL, "Thread initialization failed!");
    }
}

/// A finished `run`.
#[derive(Debug)]
pub struct Finished {
    /// What the load engine measured.
    pub load: LoadResult,
    /// Name of the test.
    pub test: String,
    /// Whether it ran as a native workload instead of a script.
    pub is_native: bool,
    /// Names of the statement classes.
    pub statements: Vec<String>,
    /// All options in force, without passwords.
    pub options: BTreeMap<String, String>,
    /// Those that the user gave and that change what is measured.
    pub given: BTreeMap<String, String>,
    /// Seed in force.
    pub seed: u32,
    /// The servers; empty for a script that uses none.
    pub targets: Vec<wire::Target>,
    /// The level as it was planned.
    pub planned: load::Step,
    /// When it began, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// Percentiles asked for.
    pub percentiles: Vec<f64>,
    /// Why it failed, if it did.
    pub error: Option<String>,
    /// Events were cut off: `--forced-shutdown`.
    pub is_forced: bool,
}

const NOT_OURS: [(&str, &str); 5] = [
    ("cpu", "stress-ng --cpu, or the canary of `plimsoll doctor`"),
    ("memory", "stress-ng --vm, or sysbench itself"),
    ("threads", "stress-ng --mutex, or sysbench itself"),
    ("mutex", "stress-ng --mutex, or sysbench itself"),
    ("fileio", "fio, or the storage probe of `plimsoll doctor`"),
];

/// Runs a command line (without the program's name) and tells what went wrong.
pub fn run(
    arguments: &[String],
    out: &mut (dyn Write + Send),
    stop: &Stop,
    onlooker: &mut dyn Onlooker,
) -> Outcome {
    let outcome = attempt(arguments, Around { out, stop, onlooker }).unwrap_or_else(|error| {
        flush_lua();
        match &error {
            Error::Usage(text) => eprintln!("{}", wire::shown(text)),
            other => tell_end(&other.to_string()),
        }
        let exit_code = if matches!(error, Error::Stopped) { STOPPED } else { 1 };
        Outcome { exit_code, result: None }
    });
    flush_lua();
    outcome
}

fn attempt(arguments: &[String], around: Around<'_>) -> Result<Outcome, Error> {
    let words = options::words(arguments)?;
    let compat = compat(&words)?;
    let values = Values::known(options::built_in(compat), &words.options)?;
    if values.is_on("help") {
        say(around.out, &help(compat)?)?;
        return Ok(Outcome::default());
    }
    if values.is_on("version") {
        say(around.out, &format!("sysbench {VERSION}\n"))?;
        return Ok(Outcome::default());
    }
    for (alias, real) in ALIASES {
        if words.options.iter().any(|(name, _)| name == alias) {
            say(around.out, &format!("WARNING: --{alias} is deprecated, use --{real} instead\n"))?;
        }
    }
    let verbosity = if values.is_on("debug") { 5 } else { values.count("verbosity") };
    if verbosity > 5 {
        return Err(Error::Usage(format!("Invalid value for verbosity: {verbosity} (0 to 5)")));
    }
    set_verbosity(verbosity as u8);
    settings::check(&values, compat)?;
    notice(around.out, &format!("{}\n\n", version()))?;
    let name = words.positional.first().map_or("-", String::as_str);
    if words.positional.is_empty() && std::io::stdin().is_terminal() {
        say(around.out, &help(compat)?)?;
        return Ok(Outcome { exit_code: 1, result: None });
    }
    if values.text("db-driver") == "help" {
        say(around.out, DRIVERS)?;
        return Ok(Outcome::default());
    }
    let command = words.positional.get(1).map(String::as_str);
    if let Some((_, instead)) = NOT_OURS.iter().find(|(n, _)| *n == name) {
        command.ok_or_else(|| wants_command(name))?;
        Values::new(options::built_in(compat), &words.options, false)?;
        return Err(Error::Usage(format!(
            "the built-in test '{name}' is not part of Plimsoll, which measures database servers; use {instead}"
        )));
    }
    if !name.ends_with(".lua")
        && !Path::new(name).is_file()
        && let Some(workload) = workload::find(name)
    {
        let command = command.ok_or_else(|| wants_command(name))?;
        return Native::new(workload, &words, compat)?.command(command, around);
    }
    // A script from standard input has no commands, whatever the command line says: its file scope is all.
    let command = command.filter(|_| name != "-");
    match (Script::load(name, command, &words, arguments, compat, around.stop)?, command) {
        (Some(script), Some(command)) => script.command(command, around),
        _ => Ok(Outcome::default()),
    }
}

fn wants_command(name: &str) -> Error {
    Error::Usage(format!("The '{name}' test requires a command argument. See 'sysbench {name} help'"))
}

const DRIVERS: &str =
    "Compiled-in database drivers:\n  mysql - MySQL driver\n  pgsql - PostgreSQL driver\n\n";

/// The first line: `sysbench 1.0.20 (...)`.
pub fn version() -> String {
    format!("sysbench {VERSION} (Plimsoll {}, LuaJIT 2.1)", env!("CARGO_PKG_VERSION"))
}

fn compat(words: &Words) -> Result<Compat, Error> {
    match words
        .options
        .iter()
        .rev()
        .find(|(name, _)| name == "compat")
        .and_then(|(_, value)| value.as_deref())
    {
        None | Some("1.0") => Ok(Compat::V1_0),
        Some("master") => Ok(Compat::Master),
        Some(other) => Err(Error::Usage(format!("invalid value for --compat: '{other}' (1.0, master)"))),
    }
}

/// Says something whatever the verbosity.
pub(crate) fn say(out: &mut dyn Write, text: &str) -> Result<(), Error> {
    flush_lua();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|source| Error::File { path: "standard output".into(), source })
}

/// Says something that belongs to reports.
pub(crate) fn notice(out: &mut dyn Write, text: &str) -> Result<(), Error> {
    if is_told(level::NOTICE) { say(out, text) } else { Ok(()) }
}

/// Whether `--forced-shutdown` has cut off events; says so.
pub(crate) fn is_forced(values: &Values, load: &LoadResult) -> bool {
    let is_cut = load.steps.iter().any(|step| step.in_flight_at_end > step.drained);
    let is_forced = is_cut && values.text("forced-shutdown") != "off";
    if is_forced {
        tell(level::FATAL, "The --max-time limit has expired, forcing shutdown...");
    }
    is_forced
}

/// What scripts have printed goes through C's own buffer: it comes out before anything of ours.
pub(crate) fn flush_lua() {
    // SAFETY: a null stream means all of them.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

fn help(compat: Compat) -> Result<String, Error> {
    let values = Values::known(options::built_in(compat), &[])?;
    Ok(format!(
        "Usage:\n  sysbench [options]... [testname] [command]\n\nCommands implemented by most tests: prepare run cleanup \
         help\n\nGeneral options:\n{}\nPseudo-Random Numbers Generator options:\n{}\nLog options:\n{}\nGeneral database \
         options:\n\n{}\n\n{DRIVERS}mysql options:\n{}\npgsql options:\n{}\nPlimsoll's options:\n{}\nTests: a path or a \
         module name of a Lua script (see LUA_PATH); the native workloads of `plimsoll workloads`.\nA script is code: \
         it reads and writes files and runs programs with your rights. Run only what you have read or trust.\n\nSee 'sysbench \
         <testname> help' for a list of options for each test.\n\n",
        values.help_of(Section::General),
        values.help_of(Section::Random),
        values.help_of(Section::Log),
        values.help_of(Section::Database),
        values.help_of(Section::Mysql),
        values.help_of(Section::Pgsql),
        values.help_of(Section::Plimsoll),
    ))
}

/// What `run` says before it begins.
pub(crate) fn banner(values: &Values, threads: u32, seed: u32) -> String {
    let mut text = format!("Running the test with following options:\nNumber of threads: {threads}\n");
    let warmup = values.count("warmup-time");
    if warmup > 0 {
        text.push_str(&format!("Warmup time: {warmup}s\n"));
    }
    let rate = values.count("rate");
    if rate > 0 {
        text.push_str(&format!("Target transaction rate: {rate}/sec\n"));
    }
    let interval = values.count("report-interval");
    if interval > 0 {
        text.push_str(&format!("Report intermediate results every {interval} second(s)\n"));
    }
    let checkpoints = settings::checkpoints(values).unwrap_or_default();
    if !checkpoints.is_empty() {
        let list: Vec<String> = checkpoints.iter().map(u64::to_string).collect();
        text.push_str(&format!("Report checkpoint(s) at {} seconds\n", list.join(", ")));
    }
    if values.is_on("debug") {
        text.push_str("Debug mode enabled.\n\n");
    }
    if values.is_on("validate") {
        text.push_str("Validation checks: on.\n\n");
    }
    match values.count("rand-seed") {
        0 => text.push_str("Initializing random number generator from current time\n"),
        _ => text.push_str(&format!("Initializing random number generator from seed ({seed}).\n")),
    }
    if values.text("forced-shutdown") != "off" {
        text.push_str(&format!(
            "Forcing shutdown in {} seconds\n",
            values.count("time") + values.count("forced-shutdown")
        ));
    }
    text.push_str("\n\nInitializing worker threads...\n\n");
    text
}
