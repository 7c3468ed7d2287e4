//! A session that runs drawn transactions: each step of the program in turn, and nothing between two of them that the
//! server would have to wait for.

use std::sync::Arc;
use std::time::Duration;

use load::{AnySession, Completion, Failure, FailureClass, Recorder, Session, SessionFactory};
use wire::Done;

use super::link::{Link, LinkPlan};
use super::program::{DrawnStatement, Program, Step};
use super::statements::{StatementPlan, Statements};
use super::tally::{Change, SessionTally};
use super::{Draw, DrawnWorkload, Role};

/// Makes the sessions of a run.
pub(super) struct Factory<D> {
    pub(super) workload: Arc<DrawnWorkload<D>>,
    pub(super) link: Arc<LinkPlan>,
    pub(super) statements: Arc<StatementPlan>,
    pub(super) seed: u64,
}

impl<D: Draw> SessionFactory for Factory<D> {
    fn statement_classes(&self) -> Vec<String> {
        self.workload.class_names()
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        Box::new(Runner {
            memory: self.workload.draw.memory(self.seed, index),
            link: Link::new(Arc::clone(&self.link)),
            statements: Statements::new(Arc::clone(&self.statements)),
            program: Program::default(),
            tally: SessionTally::new(Arc::clone(&self.workload.tally)),
            is_held: false,
            is_locked: false,
            transactions: 0,
            workload: Arc::clone(&self.workload),
        })
    }
}

struct Runner<D: Draw> {
    workload: Arc<DrawnWorkload<D>>,
    memory: D::Memory,
    link: Link,
    statements: Statements,
    program: Program,
    tally: SessionTally,
    /// What statements change is permanent only with the COMMIT.
    is_held: bool,
    /// LOCK TABLES was sent and UNLOCK TABLES was not answered.
    is_locked: bool,
    /// Since the connection was opened.
    transactions: u64,
}

#[cold]
fn mistaken(what: &str) -> Failure {
    Failure {
        class: FailureClass::Other,
        code: "expression".to_owned(),
        text: what.to_owned(),
        retryable: false,
        connection_lost: false,
        fatal: true,
    }
}

impl<D: Draw> Runner<D> {
    /// The present transaction, from its first statement to the confirmed end.
    async fn run(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        if let Some(what) = self.program.present_mistake() {
            return Err(mistaken(what));
        }
        if self.workload.reconnect > 0 && self.transactions >= self.workload.reconnect {
            // In the transaction's latency, as in sysbench, but no statement's. Boxed, as all that is rare: it would be part
            // of every session's memory otherwise.
            Box::pin(self.reopen()).await?;
            recorder.restart();
        }
        self.is_held = false;
        let mut completion = Completion::Committed;
        for index in self.program.present() {
            match self.program.step(index) {
                Step::Statement(statement) => {
                    let class = &self.workload.classes[statement.class as usize];
                    let (role, change) = (class.role, class.change);
                    self.sending(role, change);
                    let done = self.send(statement).await?;
                    recorder.lap(statement.class as usize, done.kind());
                    self.answered(role, change, &done);
                    completion = match role {
                        Role::Rollback => Completion::RolledBack,
                        _ => Completion::Committed,
                    };
                }
                Step::Pause { us } => {
                    load::time::sleep(Duration::from_micros(us)).await;
                    recorder.restart();
                }
            }
        }
        if self.link.is_in_transaction() {
            // One that begins and does not end leaves nothing behind for the next.
            Box::pin(self.link.rollback()).await?;
            completion = Completion::RolledBack;
        }
        if let Some(class) = self.program.present_class() {
            recorder.transaction(self.workload.classes.len() + class);
        }
        self.transactions += 1;
        Ok(completion)
    }

    /// One statement on the wire, nothing else.
    async fn send(&mut self, statement: DrawnStatement) -> Result<Done, Failure> {
        let (class, table) = (statement.class as usize, statement.table as usize);
        if !self.statements.is_ready(class, table) {
            Box::pin(self.prepare_late(class, table)).await?;
        }
        let Runner { link, statements, program, .. } = self;
        let connection = link.connection()?;
        let started =
            program.with_values(statement, |values| statements.start(connection, class, table, values));
        let answered = match started {
            Ok(started) => statements.finish(connection, class, table, started).await,
            Err(error) => Err(error),
        };
        answered.map_err(|error| link.failed(error))
    }

    #[cold]
    async fn prepare_late(&mut self, class: usize, table: usize) -> Result<(), Failure> {
        let prepared = self.statements.prepare(self.link.connection()?, class, table).await;
        prepared.map_err(|error| self.link.failed(error))
    }

    /// A statement is about to be sent.
    #[inline]
    fn sending(&mut self, role: Role, change: Change) {
        match role {
            Role::Work if self.is_held || change.is_none() => {}
            Role::Work => self.tally.sending(change),
            Role::Begin => {
                self.is_held = self.workload.is_atomic;
                self.tally.begin();
                self.link.begins();
            }
            Role::Commit if self.is_held => self.tally.committing(),
            Role::Lock => self.is_locked = true,
            Role::Commit | Role::Rollback | Role::Unlock => {}
        }
    }

    /// A statement was confirmed.
    #[inline]
    fn answered(&mut self, role: Role, change: Change, done: &Done) {
        match role {
            Role::Work if change.is_none() => {}
            Role::Work if self.is_held => self.tally.changed(change.times(done.affected_rows)),
            Role::Work => self.tally.sent(change.times(done.affected_rows)),
            Role::Begin | Role::Lock => {}
            Role::Commit => {
                self.link.ended();
                if self.is_held {
                    self.tally.committed();
                }
                self.is_held = false;
            }
            Role::Rollback => {
                self.link.ended();
                self.tally.begin();
                self.is_held = false;
            }
            Role::Unlock => self.is_locked = false,
        }
    }

    async fn reopen(&mut self) -> Result<(), Failure> {
        self.link.close().await;
        self.open().await
    }
}

impl<D: Draw> Session for Runner<D> {
    async fn open(&mut self) -> Result<(), Failure> {
        self.is_locked = false;
        self.transactions = 0;
        self.link.open().await?;
        let opened = self.statements.open(self.link.connection()?).await;
        opened.map_err(|error| self.link.failure(&error))?;
        if !self.workload.connect_pause.is_zero() {
            load::time::sleep(self.workload.connect_pause).await;
        }
        Ok(())
    }

    #[inline]
    fn draw(&mut self) {
        let Runner { workload, memory, program, .. } = self;
        program.advance(|program| workload.draw.draw(memory, program));
    }

    #[inline]
    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let result = self.run(recorder).await;
        if let Err(failure) = &result {
            self.tally.failed(failure.connection_lost);
        }
        result
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.is_locked) {
            self.link.text(self.workload.dialect.syntax().unlock_tables).await?;
        }
        self.link.recover().await
    }

    async fn close(&mut self) {
        self.link.close().await;
    }
}
