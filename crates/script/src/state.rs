//! A Lua state for one session (or command), with the sysbench API in it and the script run once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, LightUserData, Lua, MultiValue, Table, Thread, Value};

use crate::error::Error;
use crate::host::Results;
use crate::symbols;

/// The version that scripts see.
pub const VERSION: &str = "1.0.20";

/// A value of an option as Lua sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum OptionValue {
    /// No value.
    Nil,
    /// `on` or `off`.
    Bool(bool),
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<String>),
}

/// Everything that is the same for all states of a run.
#[derive(Debug)]
pub struct Program {
    /// Name as given, for messages.
    pub name: String,
    /// File, where there is one.
    pub path: Option<PathBuf>,
    /// Bytecode of the script.
    pub chunk: Vec<u8>,
    /// The command (`run`, `prepare`, ...), where there is one.
    pub command: Option<String>,
    /// The command line.
    pub arguments: Vec<String>,
    /// `package.path`.
    pub lua_path: String,
    /// `package.cpath`.
    pub lua_cpath: Option<String>,
    /// Options, by name with underscores. Empty while the script's own options are not known yet.
    pub options: BTreeMap<String, OptionValue>,
}

/// What marks a yield as a request to the engine. Its address is the mark; the content does not matter.
static MARK: u8 = 0;

/// The address that marks requests.
pub fn mark() -> LightUserData {
    LightUserData((&raw const MARK).cast_mut().cast::<c_void>())
}

/// A state with the script loaded.
pub struct State {
    /// The state. Last to go: everything else refers to it.
    pub lua: Lua,
    native: Table,
}

const GLUE: [(&str, &str); 3] = [
    ("=sysbench.lua", include_str!("lua/sysbench.lua")),
    ("=sysbench/sql.lua", include_str!("lua/sql.lua")),
    ("=sysbench/session.lua", include_str!("lua/session.lua")),
];

/// C functions that would wait for a server inside C.
const BLOCKING_SYMBOLS: [&str; 18] = [
    "db_create",
    "db_destroy",
    "db_connection_create",
    "db_connection_close",
    "db_connection_reconnect",
    "db_connection_free",
    "db_query",
    "db_prepare",
    "db_bind_param",
    "db_bind_result",
    "db_execute",
    "db_fetch_row",
    "db_free_results",
    "db_close",
    "db_bulk_insert_init",
    "db_bulk_insert_next",
    "db_bulk_insert_done",
    "db_next_result",
];

/// The glue and the script as bytecode: compiled once, loaded into each of thousands of states.
#[derive(Debug, Clone)]
pub struct Bytecode {
    glue: Arc<[Vec<u8>]>,
}

impl Bytecode {
    /// Compiles the glue.
    ///
    /// # Errors
    /// LuaJIT cannot be started.
    pub fn compile() -> Result<Bytecode, Error> {
        let lua = Lua::new();
        let glue = GLUE
            .iter()
            .map(|(name, source)| {
                let chunk = lua.load(*source).set_name(*name).into_function()?;
                Ok(chunk.dump(false))
            })
            .collect::<Result<Vec<_>, mlua::Error>>()
            .map_err(Error::lua)?;
        Ok(Bytecode { glue: glue.into() })
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// A syntax error, with file and line.
    pub fn script(name: &str, source: &[u8]) -> Result<Vec<u8>, Error> {
        // A `#!` line is for the shell.
        let source = match source.strip_prefix(b"#") {
            Some(rest) => {
                let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
                &rest[end..]
            }
            None => source,
        };
        let chunk_name = if name.starts_with(['@', '=']) { name.to_owned() } else { format!("@{name}") };
        let lua = Lua::new();
        let chunk = lua.load(source).set_name(chunk_name).into_function().map_err(Error::lua)?;
        Ok(chunk.dump(false))
    }
}

/// What Lua functions of a state call back into.
pub struct Callbacks {
    /// Rows that scripts fetch.
    pub results: Rc<RefCell<Results>>,
    /// Renders an interval as the default report does.
    pub format_interval: Rc<dyn Fn(&Table) -> mlua::Result<String>>,
    /// Renders the script's options for `help`.
    pub print_test_options: Rc<dyn Fn() -> String>,
    /// A fatal SQL error was met: query, number, state, text.
    pub alert: Rc<dyn Fn(Option<String>, u32, String, String)>,
}

impl Default for Callbacks {
    fn default() -> Callbacks {
        Callbacks {
            results: Rc::default(),
            format_interval: Rc::new(|_| Ok(String::new())),
            print_test_options: Rc::new(String::new),
            alert: Rc::new(|_, _, _, _| {}),
        }
    }
}

impl State {
    /// Makes a state and runs the script in it (its file scope: definitions).
    ///
    /// # Errors
    /// The script's own errors, with traceback.
    pub fn new(program: &Program, bytecode: &Bytecode, tid: u32, callbacks: Callbacks) -> Result<State, Error> {
        // SAFETY: scripts use FFI, which is unsafe by nature; they are the user's own programs.
        let lua = unsafe { Lua::unsafe_new() };
        let native = native(&lua, program, tid, callbacks).map_err(Error::lua)?;
        let state = State { lua, native };
        state.fill(program, bytecode).map_err(Error::lua)?;
        Ok(state)
    }

    fn fill(&self, program: &Program, bytecode: &Bytecode) -> mlua::Result<()> {
        let lua = &self.lua;
        let package: Table = lua.globals().get("package")?;
        package.set("path", program.lua_path.as_str())?;
        if let Some(path) = &program.lua_cpath {
            package.set("cpath", path.as_str())?;
        }
        for glue in bytecode.glue.iter() {
            let chunk = lua.load(glue.as_slice()).set_mode(mlua::chunk::ChunkMode::Binary).into_function()?;
            chunk.call::<()>(&self.native)?;
        }
        let script = lua.load(program.chunk.as_slice()).set_mode(mlua::chunk::ChunkMode::Binary).into_function()?;
        let describe: Function = self.native.get("describe")?;
        let xpcall: Function = lua.globals().get("xpcall")?;
        let (ok, problem): (bool, Value) = xpcall.call((script, describe))?;
        if !ok {
            return Err(mlua::Error::RuntimeError(crate::error::text_of(&problem)));
        }
        let options: Table = self.native.get("opt")?;
        for (name, value) in &program.options {
            options.set(name.as_str(), self.validated(name, value)?)?;
        }
        Ok(())
    }

    fn validated(&self, name: &str, value: &OptionValue) -> mlua::Result<Value> {
        let lua = &self.lua;
        let value = match value {
            OptionValue::Nil => Value::Nil,
            OptionValue::Bool(on) => Value::Boolean(*on),
            OptionValue::Number(number) => Value::Number(*number),
            OptionValue::Text(text) => Value::String(lua.create_string(text)?),
            OptionValue::List(items) => Value::Table(lua.create_sequence_from(items.iter().map(String::as_str))?),
        };
        let validate: Function = self.native.get("validate_option")?;
        validate.call((name, value))
    }

    /// A function of the native table.
    ///
    /// # Errors
    /// It is missing, which would be a fault of the glue.
    pub fn native(&self, name: &str) -> Result<Function, Error> {
        self.native.get(name).map_err(Error::lua)
    }

    /// A coroutine that runs a function of the native table.
    ///
    /// # Errors
    /// Out of memory.
    pub fn coroutine(&self, name: &str) -> Result<Thread, Error> {
        self.lua.create_thread(self.native(name)?).map_err(Error::lua)
    }

    /// Whether the script defines a global function.
    pub fn defines(&self, name: &str) -> bool {
        matches!(self.lua.globals().raw_get::<Value>(name), Ok(Value::Function(_)))
    }
}

fn native(lua: &Lua, program: &Program, tid: u32, callbacks: Callbacks) -> mlua::Result<Table> {
    let native = lua.create_table()?;
    native.set("tid", tid)?;
    native.set("version", VERSION)?;
    native.set("version_string", format!("sysbench {VERSION} (Plimsoll {})", env!("CARGO_PKG_VERSION")))?;
    native.set("opt", lua.create_table()?)?;
    native.set("argv", lua.create_sequence_from(program.arguments.iter().map(String::as_str))?)?;
    native.set("command", program.command.as_deref())?;
    let path = program.path.as_ref().map(|path| path.display().to_string());
    native.set("script_path", path.unwrap_or_else(|| program.name.clone()))?;
    native.set("script_name", program.name.as_str())?;
    native.set("mark", mark())?;
    native.set("blocking_symbols", lua.create_sequence_from(BLOCKING_SYMBOLS)?)?;
    let (addresses, prototypes) = (lua.create_table()?, lua.create_table()?);
    for (name, address, prototype) in symbols::table() {
        addresses.set(name, LightUserData(address.cast_mut()))?;
        prototypes.set(name, prototype)?;
    }
    native.set("symbols", addresses)?;
    native.set("prototypes", prototypes)?;
    let results = callbacks.results.clone();
    let fetch = lua.create_function(move |lua, (id, handle, row, fields): (usize, usize, usize, usize)| {
        let results = results.borrow();
        let Some(cells) = results.row(id, handle, row) else { return Ok(None) };
        let values = lua.create_table_with_capacity(fields, 0)?;
        for (at, cell) in cells.iter().enumerate() {
            if let Some(bytes) = cell {
                values.raw_set(at + 1, lua.create_string(bytes)?)?;
            }
        }
        Ok(Some(values))
    })?;
    native.set("fetch_row", fetch)?;
    let results = callbacks.results.clone();
    let free = lua.create_function(move |_, (id, handle): (usize, usize)| {
        results.borrow_mut().free(id, handle);
        Ok(())
    })?;
    native.set("free_result", free)?;
    let results = callbacks.results;
    let more = lua.create_function(move |_, id: usize| {
        Ok(results.borrow().more.get(id).copied().unwrap_or(false))
    })?;
    native.set("more_results", more)?;
    let format = callbacks.format_interval;
    native.set("format_interval", lua.create_function(move |_, stat: Table| format(&stat))?)?;
    let print = callbacks.print_test_options;
    native.set("print_test_options", lua.create_function(move |_, ()| Ok(print()))?)?;
    let alert = callbacks.alert;
    let alert = lua.create_function(
        move |_, (query, number, state, text): (Option<String>, u32, String, String)| {
            alert(query, number, state, text);
            Ok(())
        },
    )?;
    native.set("alert", alert)?;
    Ok(native)
}

/// What a coroutine wants after a resume.
#[derive(Debug)]
pub enum Wants {
    /// It has ended.
    Nothing,
    /// A request with its arguments.
    Request(i64, Value, Value, Value),
    /// It yielded without the mark, as only a script's own bare `coroutine.yield` does.
    Stray,
}

/// Resumes a coroutine with an answer.
///
/// # Errors
/// The script's own error, with traceback.
pub fn resume(thread: &Thread, answer: MultiValue) -> Result<Wants, Error> {
    let (first, operation, a, b, c): (Value, Value, Value, Value, Value) =
        thread.resume(answer).map_err(Error::lua)?;
    match (first, operation) {
        (Value::LightUserData(found), operation) if found == mark() => {
            let operation = operation.as_i64().or_else(|| operation.as_f64().map(|n| n as i64)).unwrap_or(0);
            Ok(Wants::Request(operation, a, b, c))
        }
        _ if thread.status() == mlua::thread::ThreadStatus::Resumable => Ok(Wants::Stray),
        _ => Ok(Wants::Nothing),
    }
}
