//! A Lua state for one session (or command), with the sysbench API in it and the script run once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use mlua::{Function, LightUserData, Lua, Table, Value};

use crate::error::Error;
use crate::host::Results;
use crate::{ffi, fiber, histogram, symbols};

/// The version that scripts see.
pub(crate) const VERSION: &str = "1.0.20";

/// A value of an option as Lua sees it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OptionValue {
    Nil,
    /// `on` or `off`.
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<String>),
}

/// Everything that is the same for all states of a run.
#[derive(Debug, Clone)]
pub(crate) struct Program {
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
    /// The script declares no options, as those of old: they are globals too.
    pub exports_options: bool,
}

/// A state with the script loaded.
pub(crate) struct State {
    pub lua: Lua,
    native: Table,
    /// The handle that collects garbage when it goes, after everything that refers to the state.
    owner: Option<Lua>,
}

const GLUE: [(&str, &str); 6] = [
    ("=sysbench.lua", include_str!("lua/sysbench.lua")),
    // The name that messages of sysbench show.
    ("=[string \"sysbench.cmdline.lua\"]", include_str!("lua/cmdline.lua")),
    ("=sysbench/reports.lua", include_str!("lua/reports.lua")),
    ("=sysbench/sql.lua", include_str!("lua/sql.lua")),
    ("=sysbench/session.lua", include_str!("lua/session.lua")),
    ("=sysbench/legacy.lua", include_str!("lua/legacy.lua")),
];

/// Declares what scripts reach through FFI; loaded into a state when its script first looks there.
const FFI_GLUE: (&str, &str) = ("=sysbench/ffi.lua", include_str!("lua/ffi.lua"));

/// The glue and the script as bytecode: compiled once, loaded into each of thousands of states.
#[derive(Debug, Clone)]
pub(crate) struct Bytecode {
    glue: Arc<[Vec<u8>]>,
    ffi: Arc<[u8]>,
}

impl Bytecode {
    /// Compiles the glue.
    ///
    /// # Errors
    /// LuaJIT cannot be started.
    pub(crate) fn compile() -> Result<Bytecode, Error> {
        let lua = Lua::new();
        let compile = |(name, source): &(&str, &str)| -> Result<Vec<u8>, Error> {
            let chunk = lua.load(*source).set_name(*name).into_function().map_err(Error::lua)?;
            Ok(chunk.dump(false))
        };
        let glue = GLUE.iter().map(compile).collect::<Result<Vec<_>, Error>>()?;
        Ok(Bytecode { glue: glue.into(), ffi: compile(&FFI_GLUE)?.into() })
    }

    /// Compiles a script.
    ///
    /// # Errors
    /// A syntax error, with file and line.
    pub(crate) fn script(name: &str, source: &[u8]) -> Result<Vec<u8>, Error> {
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

impl State {
    /// Makes a state with the script loaded and not yet run: its file scope runs on the first fiber, where it may
    /// wait for servers. Scripts fetch rows from `results`.
    ///
    /// # Errors
    /// The glue's own, and out of memory.
    pub(crate) fn new(
        program: &Arc<Program>,
        bytecode: &Bytecode,
        tid: u32,
        results: &Rc<RefCell<Results>>,
    ) -> Result<State, Error> {
        // SAFETY: scripts use FFI, which is unsafe by nature; they are the user's own programs.
        let lua = unsafe { Lua::unsafe_new() };
        let native = native(&lua, program, tid, results).map_err(Error::lua)?;
        let state = State { lua: lua.clone(), native, owner: Some(lua) };
        state.load(program, bytecode).map_err(Error::lua)?;
        Ok(state)
    }

    /// Leaves the state as it is for good, with a script that never comes back from what it waits for. Such a script may
    /// have stopped within a loop that LuaJIT compiled, and there a collection of garbage never ends: LuaJIT puts its last
    /// step off until the loop is left.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(self.owner.take());
    }

    fn load(&self, program: &Arc<Program>, bytecode: &Bytecode) -> mlua::Result<()> {
        let lua = &self.lua;
        let package: Table = lua.globals().get("package")?;
        package.set("path", program.lua_path.as_str())?;
        if let Some(path) = &program.lua_cpath {
            package.set("cpath", path.as_str())?;
        }
        let (native, glue) = (self.native.clone(), bytecode.ffi.clone());
        let declare = lua.create_function(move |lua, proxy: Table| {
            let (addresses, prototypes): (Table, _) = (native.get("symbols")?, lua.create_table()?);
            for (name, address, prototype) in
                symbols::table().into_iter().chain(ffi::table()).chain(histogram::table())
            {
                addresses.set(name, LightUserData(address.cast_mut()))?;
                prototypes.set(name, prototype)?;
            }
            native.set("prototypes", prototypes)?;
            let chunk = lua.load(&*glue).set_mode(mlua::chunk::ChunkMode::Binary).into_function()?;
            chunk.call::<()>((&native, proxy))
        })?;
        self.native.set("declare_ffi", declare)?;
        for glue in bytecode.glue.iter() {
            let chunk = lua.load(glue.as_slice()).set_mode(mlua::chunk::ChunkMode::Binary).into_function()?;
            chunk.call::<()>(&self.native)?;
        }
        let script =
            lua.load(program.chunk.as_slice()).set_mode(mlua::chunk::ChunkMode::Binary).into_function()?;
        self.native.set("script", script)?;
        let (native, program) = (self.native.clone(), program.clone());
        // The table belongs to this state, which the function does not outlive.
        let fill = lua.create_function(move |lua, ()| fill_options(lua, &native, &program))?;
        self.native.set("fill_options", fill)
    }

    /// Sets `sysbench.opt` (and, for scripts that declare no options, globals of the same names).
    ///
    /// # Errors
    /// A validation function of the script refuses a value.
    pub(crate) fn fill_options(&self, program: &Program) -> Result<(), Error> {
        fill_options(&self.lua, &self.native, program).map_err(Error::lua)
    }

    /// A function of the native table.
    ///
    /// # Errors
    /// It is missing, which would be a fault of the glue.
    pub(crate) fn native(&self, name: &str) -> Result<Function, Error> {
        self.native.get(name).map_err(Error::lua)
    }

    /// Hands a value to the glue.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn set_native(&self, name: &str, value: impl mlua::IntoLua) -> Result<(), Error> {
        self.native.set(name, value).map_err(Error::lua)
    }

    /// Whether the script defines a global function.
    pub(crate) fn defines(&self, name: &str) -> bool {
        matches!(self.lua.globals().raw_get::<Value>(name), Ok(Value::Function(_)))
    }
}

fn fill_options(lua: &Lua, native: &Table, program: &Program) -> mlua::Result<()> {
    let options: Table = native.get("opt")?;
    let validate: Function = native.get("validate_option")?;
    let globals = lua.globals();
    for (name, value) in &program.options {
        let value: Value = validate.call((name.as_str(), lua_value(lua, value)?))?;
        if program.exports_options && globals.raw_get::<Value>(name.as_str())?.is_nil() {
            globals.raw_set(name.as_str(), value.clone())?;
        }
        options.set(name.as_str(), value)?;
    }
    Ok(())
}

fn lua_value(lua: &Lua, value: &OptionValue) -> mlua::Result<Value> {
    Ok(match value {
        OptionValue::Nil => Value::Nil,
        OptionValue::Bool(on) => Value::Boolean(*on),
        OptionValue::Number(number) => Value::Number(*number),
        OptionValue::Text(text) => Value::String(lua.create_string(text)?),
        OptionValue::List(items) => Value::Table(lua.create_sequence_from(items.iter().map(String::as_str))?),
    })
}

/// What went wrong with the last request, as the glue reads it.
fn described(lua: &Lua) -> mlua::Result<Option<Table>> {
    let Some(problem) = fiber::problem() else { return Ok(None) };
    let table = lua.create_table()?;
    table.set("sql_errno", problem.number)?;
    table.set("sql_state", problem.state)?;
    table.set("sql_errmsg", problem.text)?;
    table.set("ignorable", problem.is_ignorable)?;
    table.set("reconnect", problem.wants_reconnect)?;
    Ok(Some(table))
}

fn native(
    lua: &Lua,
    program: &Arc<Program>,
    tid: u32,
    results: &Rc<RefCell<Results>>,
) -> mlua::Result<Table> {
    let native = lua.create_table()?;
    native.set("tid", tid)?;
    native.set("version", VERSION)?;
    native.set("version_string", format!("sysbench {VERSION}"))?;
    native.set("opt", lua.create_table()?)?;
    let argv = lua.create_sequence_from(program.arguments.iter().map(String::as_str))?;
    argv.raw_set(0, "sysbench")?;
    native.set("argv", argv)?;
    native.set("command", program.command.as_deref())?;
    let path = program.path.as_ref().map(|path| path.display().to_string());
    native.set("script_path", path.unwrap_or_else(|| program.name.clone()))?;
    native.set("script_name", program.name.as_str())?;
    // The glue draws by these; the others wait for a script that looks at FFI.
    let addresses = lua.create_table()?;
    for (name, address) in
        symbols::table().into_iter().map(|(name, address, _)| (name, address)).chain(fiber::table())
    {
        addresses.set(name, LightUserData(address.cast_mut()))?;
    }
    native.set("request", lua.create_table_from(fiber::REQUESTS)?)?;
    native.set("problem", lua.create_function(|lua, ()| described(lua))?)?;
    native.set("symbols", addresses)?;
    let rows = results.clone();
    let fetch = lua.create_function(move |lua, (id, handle, row, fields): (usize, f64, usize, usize)| {
        let rows = rows.borrow();
        let Some(cells) = rows.row(id, handle as usize, row) else { return Ok(None) };
        let values = lua.create_table_with_capacity(fields, 0)?;
        for (at, cell) in cells.iter().enumerate() {
            if let Some(bytes) = cell {
                values.raw_set(at + 1, lua.create_string(bytes)?)?;
            }
        }
        Ok(Some(values))
    })?;
    native.set("fetch_row", fetch)?;
    let rows = results.clone();
    // A result of a prepared statement has no rows: its handle is the largest number, which is a double in Lua.
    let free = lua.create_function(move |_, (id, handle): (usize, f64)| {
        rows.borrow_mut().free(id, handle as usize);
        Ok(())
    })?;
    native.set("free_result", free)?;
    let rows = results.clone();
    let more =
        lua.create_function(move |_, id: usize| Ok(rows.borrow().more.get(id).copied().unwrap_or(false)))?;
    native.set("more_results", more)?;
    let say = lua.create_function(|_, (level, text): (u8, String)| {
        crate::output::tell(level, &text);
        Ok(())
    })?;
    native.set("say", say)?;
    Ok(native)
}
