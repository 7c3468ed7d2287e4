//! The course of a coroutine: resume it, do what it asks of servers, resume it with the answer.

use std::sync::Arc;

use load::Recorder;
use mlua::{Lua, Table, Thread, Value};

use crate::error::Error;
use crate::ffi;
use crate::host::{self, Host, Open, Problem};
use crate::lookout::{Lookout, Post};
use crate::resume::{Answer, Wants, resume};
use crate::state::State;
use crate::symbols::{SessionSymbols, enter};

/// Numbers of the rarer requests; sql.lua and session.lua name the same ones.
mod request {
    pub(super) const CONNECT: i64 = 1;
    pub(super) const DISCONNECT: i64 = 2;
    pub(super) const RECONNECT: i64 = 3;
    pub(super) const QUERY: i64 = 4;
    pub(super) const PREPARE: i64 = 5;
    pub(super) const BIND: i64 = 6;
    pub(super) const CLOSE: i64 = 8;
    pub(super) const NEXT_RESULT: i64 = 9;
    pub(super) const RESTART: i64 = 21;
}

/// Where a coroutine stopped and waits for the engine's decision.
#[derive(Debug)]
pub enum Stopped {
    /// It wants to know whether there is another event: the one before has ended.
    WantsEvent,
    /// An ignorable SQL error: the event is to be run again.
    Restarts {
        /// Error number or SQLSTATE.
        code: String,
        /// The server's words.
        text: String,
    },
    /// It has ended.
    Ended,
}

/// A script's session: its Lua state, its coroutine, its connections.
pub struct Course<O: Open> {
    /// Connections and results.
    pub host: Host<O>,
    /// Random numbers and counters.
    pub symbols: SessionSymbols,
    thread: Thread,
    state: State,
    /// Who looks whether the script blocks, and where this thread says that it runs.
    lookout: Option<(Arc<Lookout>, Arc<Post>)>,
}

impl<O: Open> Course<O> {
    /// A course through the native function `main` of a state.
    ///
    /// # Errors
    /// Out of memory.
    pub fn new(state: State, main: &str, host: Host<O>, symbols: SessionSymbols) -> Result<Course<O>, Error> {
        Ok(Course { thread: state.coroutine(main)?, state, host, symbols, lookout: None })
    }

    /// Begins anew with another native function in the same state.
    ///
    /// # Errors
    /// Out of memory.
    pub fn begin(&mut self, main: &str) -> Result<(), Error> {
        self.thread = self.state.coroutine(main)?;
        Ok(())
    }

    /// Lets somebody look whether the script blocks its thread.
    pub fn watched_by(mut self, lookout: &Arc<Lookout>) -> Course<O> {
        self.lookout = Some((lookout.clone(), lookout.post()));
        self
    }

    /// The Lua state.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Lua's state.
    pub fn lua(&self) -> &Lua {
        &self.state.lua
    }

    /// Runs until the coroutine stops for a decision. `answer` is what it was waiting for.
    ///
    /// # Errors
    /// The script's own error.
    pub async fn advance(
        &mut self,
        mut answer: Answer,
        recorder: Option<&Recorder>,
    ) -> Result<Stopped, Error> {
        loop {
            let host = O::blocking(&mut self.host);
            if let Some((_, post)) = &self.lookout {
                post.enter();
            }
            let (lua, thread) = (&self.state.lua, &self.thread);
            let wants =
                enter(&mut self.symbols, || ffi::enter(host, recorder, || resume(lua, thread, answer)));
            if let Some((lookout, post)) = &self.lookout
                && let Some(slept_ms) = post.leave()
            {
                lookout.tell(slept_ms, self.state.last_c_function().as_deref());
            }
            answer = match wants? {
                Wants::Event => return Ok(Stopped::WantsEvent),
                Wants::Execute(connection, statement) => {
                    let done = self.host.execute(connection, statement, recorder).await;
                    answered(lua, done)?
                }
                Wants::Request(request::RESTART, a, b, c) => {
                    let number = index(&a);
                    let code = if number == 0 { crate::error::text_of(&b) } else { number.to_string() };
                    return Ok(Stopped::Restarts { code, text: crate::error::text_of(&c) });
                }
                Wants::Request(operation, a, b, _) => self.control(operation, &a, &b, recorder).await?,
                Wants::Nothing => return Ok(Stopped::Ended),
                Wants::Stray => {
                    return Err(Error::Script(
                        "the script yields outside of a coroutine of its own".to_owned(),
                    ));
                }
            };
        }
    }

    async fn control(
        &mut self,
        operation: i64,
        a: &Value,
        b: &Value,
        recorder: Option<&Recorder>,
    ) -> Result<Answer, Error> {
        let done: Result<usize, Problem> = match operation {
            request::QUERY => {
                let done = match b.as_string() {
                    Some(text) => self.host.query(index(a), &text.to_string_lossy(), recorder).await,
                    None => Err(not_text()),
                };
                return answered(self.lua(), done);
            }
            request::CONNECT => {
                let driver = a.as_string().map(|s| s.to_string_lossy()).unwrap_or_default();
                self.host.connect(&driver).await
            }
            request::DISCONNECT => {
                self.host.disconnect(index(a)).await;
                Ok(0)
            }
            request::RECONNECT => self.host.reopen(index(a)).await.map(|()| index(a)),
            request::PREPARE => {
                let text = b.as_string().map(|s| s.to_string_lossy()).unwrap_or_default();
                self.symbols.skip(self.host.name_draws(index(a)));
                self.host.prepare(index(a), &text).await
            }
            request::BIND => {
                let (statement, addresses) = binding(b)?;
                // SAFETY: the Lua side passes addresses of parameters that its statement object keeps alive.
                unsafe { self.host.bind(index(a), statement, &addresses).await }.map(|()| 0)
            }
            request::CLOSE => {
                self.host.close_statement(index(a), index(b)).await;
                Ok(0)
            }
            request::NEXT_RESULT => {
                let next = self.host.next_result(index(a));
                return match next {
                    Some(answer) => answered(self.lua(), Ok(answer)),
                    None => Ok(Answer::Nothing),
                };
            }
            other => return Err(Error::Script(format!("the glue asked for the unknown request {other}"))),
        };
        match done {
            Ok(id) => Ok(Answer::Id(id)),
            Err(problem) => described(self.lua(), &problem),
        }
    }
}

fn index(value: &Value) -> usize {
    match value {
        Value::Integer(number) => usize::try_from(*number).unwrap_or(usize::MAX),
        Value::Number(number) if *number >= 0.0 => *number as usize,
        _ => usize::MAX,
    }
}

fn not_text() -> Problem {
    Problem {
        number: 0,
        state: "HY000".into(),
        text: "query() takes a string".into(),
        is_ignorable: false,
        wants_reconnect: false,
    }
}

/// The statement and the addresses of its parameters.
fn binding(value: &Value) -> Result<(usize, Vec<usize>), Error> {
    let Value::Table(table) = value else {
        return Err(Error::Script("bind_param() takes parameters of bind_create()".into()));
    };
    let statement = table.get::<usize>("statement").map_err(Error::lua)?;
    let addresses = table
        .sequence_values::<f64>()
        .map(|address| address.map(|a| a as usize))
        .collect::<Result<Vec<usize>, _>>()
        .map_err(Error::lua)?;
    Ok((statement, addresses))
}

fn answered(lua: &Lua, done: Result<host::Answer, Problem>) -> Result<Answer, Error> {
    match done {
        Ok(answer) => Ok(Answer::Done(answer.rows, answer.fields, answer.handle)),
        Err(problem) => described(lua, &problem),
    }
}

#[cold]
fn described(lua: &Lua, problem: &Problem) -> Result<Answer, Error> {
    let make = || -> mlua::Result<Table> {
        let table = lua.create_table()?;
        table.set("sql_errno", problem.number)?;
        table.set("sql_state", problem.state.as_str())?;
        table.set("sql_errmsg", problem.text.as_str())?;
        table.set("ignorable", problem.is_ignorable)?;
        table.set("reconnect", problem.wants_reconnect)?;
        Ok(table)
    };
    make().map(Answer::Problem).map_err(Error::lua)
}
