//! A script's session on the load engine: one event is one transaction.

use std::sync::{Arc, Mutex};

use load::{Completion, Failure, FailureClass, Recorder, Session};
use workload::random::Rng;

use crate::course::{Course, Stopped};
use crate::fiber::Answer;
use crate::host::{Blocking, Databases, Host, OnEngine, Open};
use crate::lookout::Lookout;
use crate::output::{level, tell};
use crate::state::{Bytecode, Program, State};
use crate::symbols::{RandomSettings, SessionSymbols};

/// What one session did, for the fairness lines of the final report.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Tally {
    /// Events completed.
    pub events: u64,
    /// Time in events, in seconds.
    pub execution_s: f64,
    /// Statements before the first event and after the last: reads, writes, others.
    pub late: [u64; 3],
}

/// The sessions of a run.
pub(crate) struct ScriptSessions {
    pub program: Arc<Program>,
    /// Compiled glue.
    pub bytecode: Bytecode,
    /// Servers.
    pub databases: Arc<Databases>,
    /// Random numbers.
    pub random: RandomSettings,
    /// One generator for each session, in order.
    pub generators: Vec<Rng>,
    /// Numbers that sysbench draws at the end of each event: one for its histogram, unless percentiles are off.
    pub draws_per_event: u32,
    /// Where sessions leave their tallies.
    pub tallies: Arc<Mutex<Vec<Tally>>>,
    /// The first error that ended a session, in the script's words.
    pub problem: Arc<Mutex<Option<String>>>,
    /// Who looks for scripts that block; none where each session has a thread of its own, and may.
    pub lookout: Option<Arc<Lookout>>,
}

impl load::SessionFactory for ScriptSessions {
    /// Scripts do not name their statements; they are told apart as sysbench does.
    fn statement_classes(&self) -> Vec<String> {
        vec!["read".into(), "write".into(), "other".into()]
    }

    fn session(&self, index: u32) -> Box<dyn load::AnySession> {
        if self.lookout.is_none() {
            Box::new(self.made(index, Blocking))
        } else {
            Box::new(self.made(index, OnEngine))
        }
    }
}

impl ScriptSessions {
    fn made<O: Open>(&self, index: u32, opener: O) -> ScriptSession<O> {
        ScriptSession {
            opener,
            lookout: self.lookout.clone(),
            program: self.program.clone(),
            bytecode: self.bytecode.clone(),
            databases: self.databases.clone(),
            random: self.random,
            rng: self
                .generators
                .get(index as usize)
                .cloned()
                .unwrap_or_else(|| Rng::stream(0, u64::from(index))),
            index,
            draws_per_event: self.draws_per_event,
            course: None,
            is_ended: false,
            tally: Tally::default(),
            tallies: self.tallies.clone(),
            problem: self.problem.clone(),
        }
    }
}

struct ScriptSession<O: Open> {
    opener: O,
    lookout: Option<Arc<Lookout>>,
    program: Arc<Program>,
    bytecode: Bytecode,
    databases: Arc<Databases>,
    random: RandomSettings,
    rng: Rng,
    index: u32,
    draws_per_event: u32,
    course: Option<Course<O>>,
    is_ended: bool,
    tally: Tally,
    tallies: Arc<Mutex<Vec<Tally>>>,
    problem: Arc<Mutex<Option<String>>>,
}

impl<O: Open + Copy> ScriptSession<O> {
    fn course(&mut self) -> Result<Course<O>, crate::Error> {
        let host = Host::new(self.opener, self.databases.clone(), self.index);
        let symbols = SessionSymbols::new(self.random, self.rng.clone(), self.databases.counters.clone());
        let state = State::new(&self.program, &self.bytecode, self.index, &host.results())?;
        let course = Course::new(state, "main", host, symbols)?;
        Ok(match &self.lookout {
            Some(lookout) => course.watched_by(lookout),
            None => course,
        })
    }

    /// The end of the run, with the script's words kept as they are.
    fn fatal(&self, error: crate::Error) -> Failure {
        let text = error.to_string();
        let mut problem = self.problem.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        problem.get_or_insert_with(|| text.clone());
        Failure {
            class: FailureClass::Other,
            code: "script".into(),
            text,
            retryable: false,
            connection_lost: false,
            fatal: true,
        }
    }
}

impl<O: Open + Copy> Session for ScriptSession<O> {
    /// Runs the script's file scope and its `thread_init`. Called once: scripts look after their connections.
    async fn open(&mut self) -> Result<(), Failure> {
        if self.course.is_some() {
            return Ok(());
        }
        let mut course = self.course().map_err(|error| self.fatal(error))?;
        match course.advance(Answer::Nothing, None).await.map_err(|error| self.fatal(error))? {
            Stopped::WantsEvent => {}
            Stopped::Ended => self.is_ended = true,
            Stopped::Restarts { text, .. } => return Err(self.fatal(crate::Error::Script(text))),
        }
        self.course = Some(course);
        Ok(())
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let Some(course) = &mut self.course else { return Ok(Completion::Finished) };
        if self.is_ended {
            return Ok(Completion::Finished);
        }
        let stopped = match course.advance(Answer::Flag(true), Some(recorder)).await {
            Ok(stopped) => stopped,
            Err(error) => return Err(self.fatal(error)),
        };
        match stopped {
            Stopped::WantsEvent => {
                self.tally.execution_s += recorder.finish().as_secs_f64();
                course.symbols.skip(self.draws_per_event);
                self.tally.events += 1;
                Ok(Completion::Committed)
            }
            // An event that makes the script stop does not count, as in sysbench.
            Stopped::Ended => {
                self.is_ended = true;
                Ok(Completion::Finished)
            }
            Stopped::Restarts { code, text } => Err(Failure {
                class: workload::class_of_code(&code),
                code,
                text,
                retryable: true,
                connection_lost: false,
                fatal: false,
            }),
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Tells the script that there are no more events, so that its `thread_done` runs.
    async fn close(&mut self) {
        let Some(mut course) = self.course.take() else { return };
        if !self.is_ended
            && let Err(error) = course.advance(Answer::Flag(false), None).await
        {
            tell(level::FATAL, &error.to_string());
        }
        self.tally.late = course.host.unrecorded;
        course.host.close().await;
    }
}

impl<O: Open> Drop for ScriptSession<O> {
    fn drop(&mut self) {
        self.tallies.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(self.tally);
    }
}
