//! Resumes a coroutine and reads what it wants, by Lua's own C interface: each statement of a script passes through
//! here, and numbers go to and fro as they are.

use mlua::{Lua, Table, Thread, Value, ffi, lua_State};

use crate::error::{Error, text_of};
use crate::state::mark;

/// What a coroutine wants after a resume.
#[derive(Debug)]
pub enum Wants {
    /// It has ended.
    Nothing,
    /// To know whether there is another event.
    Event,
    /// A prepared statement executed: connection and statement.
    Execute(usize, usize),
    /// Something rarer: the request's number and its arguments.
    Request(i64, Value, Value, Value),
    /// It yielded without the mark, as only a script's own bare `coroutine.yield` does.
    Stray,
}

/// What a coroutine is resumed with.
#[derive(Debug)]
pub enum Answer {
    /// nil
    Nothing,
    /// A boolean.
    Flag(bool),
    /// The number of a connection or a statement.
    Id(usize),
    /// A statement's rows, fields and the number of its kept result.
    Done(u64, usize, usize),
    /// nil and a description of what went wrong.
    Problem(Table),
}

/// The two requests that events consist of; sql.lua and session.lua name the same numbers.
const EXECUTE: i64 = 7;
const MORE: i64 = 20;

/// Resumes a coroutine with an answer.
///
/// # Errors
/// The script's own error, with traceback.
pub fn resume(lua: &Lua, thread: &Thread, answer: Answer) -> Result<Wants, Error> {
    let state = thread.state();
    // SAFETY: `thread` keeps the coroutine alive, and nothing else runs in its Lua state. A coroutine's stack has
    // room for twenty values (LUA_MINSTACK) beside what it holds; here are at most three. lua_resume is a protected
    // call: errors come back as a status. A coroutine that has yielded holds what it yielded, which is read below
    // and dropped here; one that has not begun holds its function, which must stay; an ended one holds nothing and
    // is refused by Lua.
    let status = unsafe {
        if ffi::lua_status(state) == ffi::LUA_YIELD {
            ffi::lua_settop(state, 0);
        }
        let given = match answer {
            Answer::Nothing => 0,
            Answer::Flag(flag) => {
                ffi::lua_pushboolean(state, flag.into());
                1
            }
            Answer::Id(id) => {
                ffi::lua_pushnumber(state, id as f64);
                1
            }
            Answer::Done(rows, fields, handle) => {
                ffi::lua_pushnumber(state, rows as f64);
                ffi::lua_pushnumber(state, fields as f64);
                ffi::lua_pushnumber(state, handle as f64);
                3
            }
            Answer::Problem(table) => {
                ffi::lua_pushnil(state);
                lua.exec_raw::<()>(table, |main| ffi::lua_xmove(main, state, 1)).map_err(Error::lua)?;
                2
            }
        };
        let mut left = 0;
        ffi::lua_resume(state, std::ptr::null_mut(), given, &mut left)
    };
    match status {
        ffi::LUA_OK => Ok(Wants::Nothing),
        ffi::LUA_YIELD => wanted(lua, state),
        _ => {
            // SAFETY: a failed coroutine's stack ends with the error.
            let error = unsafe { lua.exec_raw::<Value>((), |main| ffi::lua_xmove(state, main, 1)) };
            Err(Error::Script(text_of(&error.map_err(Error::lua)?)))
        }
    }
}

/// Reads what a coroutine has yielded: the mark, the number of a request, its arguments.
fn wanted(lua: &Lua, state: *mut lua_State) -> Result<Wants, Error> {
    // SAFETY: positions beyond the top read as nil, 0 or null; nothing here raises an error.
    unsafe {
        if ffi::lua_touserdata(state, 1) != mark().0 {
            return Ok(Wants::Stray);
        }
        // Numbers that are none of ours become the greatest, which no connection has.
        let index = |at| match ffi::lua_type(state, at) {
            ffi::LUA_TNUMBER => ffi::lua_tonumber(state, at) as usize,
            _ => usize::MAX,
        };
        match ffi::lua_tonumber(state, 2) as i64 {
            MORE => Ok(Wants::Event),
            EXECUTE => Ok(Wants::Execute(index(3), index(4))),
            operation => {
                ffi::lua_settop(state, 5);
                let taken = lua.exec_raw::<(Value, Value, Value)>((), |main| ffi::lua_xmove(state, main, 3));
                let (a, b, c) = taken.map_err(Error::lua)?;
                Ok(Wants::Request(operation, a, b, c))
            }
        }
    }
}
