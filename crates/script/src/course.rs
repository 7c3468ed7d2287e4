//! The course of a script: resume it, do what it asks of servers, resume it with the answer.

use std::sync::Arc;

use load::{Recorder, Stop};
use mlua::{Function, Lua, Value};

use crate::error::{Error, text_of};
use crate::fiber::{Answer, Fiber, Surroundings, Wants};
use crate::host::{self, Host, Open, Problem};
use crate::lookout::{self, Lookout, Post};
use crate::state::State;
use crate::symbols::{SessionSymbols, enter};

/// Where a script stopped and waits for the engine's decision.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It wants to know whether there is another event: the one before has ended.
    WantsEvent,
    /// An ignorable SQL error: the event is to be run again.
    Restarts {
        /// Error number or SQLSTATE.
        code: String,
        /// The server's words.
        text: String,
    },
    Ended,
}

/// A script's session: its Lua state, the stack it runs on, its connections.
pub(crate) struct Course<O: Open> {
    /// Connections and results.
    pub host: Host<O>,
    /// Random numbers and counters.
    pub symbols: SessionSymbols,
    // Goes before the state that runs on it.
    fiber: Fiber,
    state: State,
    /// Where this thread says that it is in a script: a course stays on one thread.
    post: Arc<Post>,
    /// Ends a course that is no session's between two of its requests, where somebody asks for it.
    stop: Option<Stop>,
    /// Who looks whether the script blocks.
    lookout: Option<Arc<Lookout>>,
}

impl<O: Open> Drop for Course<O> {
    fn drop(&mut self) {
        if self.fiber.is_waiting() {
            self.state.abandon();
        }
    }
}

impl<O: Open> Course<O> {
    /// A course through the native function `main` of a state.
    ///
    /// # Errors
    /// Out of memory.
    pub(crate) fn new(
        state: State,
        main: &str,
        host: Host<O>,
        symbols: SessionSymbols,
    ) -> Result<Course<O>, Error> {
        Ok(Course {
            fiber: fiber(&state, &host, main)?,
            state,
            host,
            symbols,
            post: lookout::post(),
            stop: None,
            lookout: None,
        })
    }

    /// Begins anew with another native function in the same state.
    ///
    /// # Errors
    /// Out of memory, or the last one has not ended.
    pub(crate) fn begin(&mut self, main: &str) -> Result<(), Error> {
        if self.fiber.is_waiting() {
            return Err(Error::Script("the script has not come to its end".into()));
        }
        self.fiber = fiber(&self.state, &self.host, main)?;
        Ok(())
    }

    /// Ends the course, with [`Error::Stopped`], at its first request after somebody has asked for the end; `None`: never.
    pub(crate) fn stopped_by(&mut self, stop: Option<Stop>) {
        self.stop = stop;
    }

    /// Lets somebody look whether the script blocks its thread.
    pub(crate) fn watched_by(mut self, lookout: &Arc<Lookout>) -> Course<O> {
        self.post = lookout.post();
        self.lookout = Some(lookout.clone());
        self
    }

    /// The Lua state.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Lua's state.
    pub(crate) fn lua(&self) -> &Lua {
        &self.state.lua
    }

    /// Runs until the script stops for a decision. `answer` is what it was waiting for.
    ///
    /// # Errors
    /// The script's own error.
    pub(crate) async fn advance(
        &mut self,
        mut answer: Answer,
        recorder: Option<&Recorder>,
    ) -> Result<Stopped, Error> {
        loop {
            self.post.enter();
            let fiber = &mut self.fiber;
            let wants = enter(&mut self.symbols, || fiber.resume(answer));
            if let Some(slept_ms) = self.post.leave()
                && let Some(lookout) = &self.lookout
            {
                lookout.tell(slept_ms, self.fiber.last_c_function().as_deref());
            }
            let wants = wants?;
            if self.stop.as_ref().is_some_and(Stop::is_requested) && !matches!(wants, Wants::Nothing) {
                return Err(Error::Stopped);
            }
            answer = match wants {
                Wants::Event => return Ok(Stopped::WantsEvent),
                Wants::Execute(connection, statement) => {
                    answered(self.host.execute(connection, statement, recorder).await)
                }
                Wants::Restart(code, text) => return Ok(Stopped::Restarts { code, text }),
                Wants::Nothing => return Ok(Stopped::Ended),
                rarer => self.control(rarer, recorder).await,
            };
        }
    }

    /// Sees to what events do not consist of.
    async fn control(&mut self, wants: Wants, recorder: Option<&Recorder>) -> Answer {
        let done = match wants {
            Wants::Query(connection, text) => {
                // SAFETY: the script waits for this.
                let text = unsafe { text.get() };
                return answered(self.host.query(connection, &text, recorder).await);
            }
            Wants::NextResult(connection) => {
                return self.host.next_result(connection).map_or(Answer::Nothing, |next| answered(Ok(next)));
            }
            Wants::Connect(driver) => self.host.connect(&driver).await,
            Wants::Disconnect(connection) => {
                self.host.disconnect(connection).await;
                Ok(0)
            }
            Wants::Reconnect(connection) => self.host.reopen(connection).await.map(|()| connection),
            Wants::Prepare(connection, text) => {
                self.symbols.skip(self.host.name_draws(connection));
                self.host.prepare(connection, &text).await
            }
            Wants::Bind(connection, statement, addresses) => {
                // SAFETY: the Lua side passes addresses of parameters that its statement object keeps alive.
                unsafe { self.host.bind(connection, statement, &addresses).await }.map(|()| 0)
            }
            Wants::Close(connection, statement) => {
                self.host.close_statement(connection, statement).await;
                Ok(0)
            }
            // `advance` sees to these.
            Wants::Nothing | Wants::Event | Wants::Execute(..) | Wants::Restart(..) => Ok(0),
        };
        done.map_or_else(Answer::from, Answer::Id)
    }
}

/// A native function of a state, on a stack of its own.
fn fiber<O: Open>(state: &State, host: &Host<O>, main: &str) -> Result<Fiber, Error> {
    let (main, protected): (Function, Function) = (state.native(main)?, state.native("pcall")?);
    let surroundings = Surroundings { results: host.results(), driver: host.databases().driver.clone() };
    Fiber::new(surroundings, move || match protected.call::<(bool, Value)>(main) {
        Ok((true, _)) => Ok(()),
        Ok((false, problem)) => Err(Error::Script(text_of(&problem))),
        Err(error) => Err(Error::lua(error)),
    })
}

fn answered(done: Result<host::Answer, Problem>) -> Answer {
    done.map_or_else(Answer::from, Answer::Done)
}
