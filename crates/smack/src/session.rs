//! One instance of a client on the load engine: its part of `main`, with one round of the barrel as a transaction.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use load::net::Socket;
use load::time::Moment;
use load::{Completion, Failure, Recorder, Session};
use wire::{Connection, Target};
use workload::Dialect;
use workload::cancel;
use workload::random::Rng;

use crate::dictionary::Position;
use crate::program::{Barrel, CompiledShot, escape};
use crate::statement::Escape;

/// What an instance does, in order, between `create_threads` and `collect_threads`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Order {
    /// Fire the barrel for so many rounds; `None`: until the load engine ends the step.
    Unload {
        rounds: Option<u64>,
    },
    /// Run a statement.
    Query(String),
    /// Pause.
    Sleep(Duration),
    Print(String),
}

/// Figures of one statistics group of one instance, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupFigures {
    /// Queries.
    pub count: u64,
    /// Time of the last one.
    pub last_ns: u64,
    /// Longest.
    pub max_ns: u64,
    /// Shortest.
    pub min_ns: u64,
}

impl GroupFigures {
    fn note(&mut self, took_ns: u64) {
        self.min_ns = if self.count == 0 { took_ns } else { self.min_ns.min(took_ns) };
        self.max_ns = self.max_ns.max(took_ns);
        self.last_ns = took_ns;
        self.count += 1;
    }
}

#[derive(Debug, Clone, Default)]
pub struct Instance {
    /// Which one; the last is the controller of the original.
    pub index: u32,
    /// Time to connect.
    pub connect_ns: u64,
    pub groups: Vec<GroupFigures>,
    /// Start of the first and end of the last query.
    pub span: Option<(Moment, Moment)>,
}

/// Where the text of `print` and of reports goes; lines of several clients do not mix.
#[derive(Clone)]
pub struct Printer(Arc<Mutex<dyn Write + Send>>);

impl Printer {
    /// Prints to `out`.
    pub fn new(out: impl Write + Send + 'static) -> Printer {
        Printer(Arc::new(Mutex::new(out)))
    }

    /// Prints at once. A reader that has gone away is no reason to stop a measurement.
    pub fn text(&self, text: &str) {
        let mut out = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl std::fmt::Debug for Printer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Printer")
    }
}

/// Everything the instances of a client share.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    /// What they fire.
    pub barrel: Barrel,
    /// What they do.
    pub orders: Arc<[Order]>,
    /// Where they connect.
    pub target: Target,
    /// The server's dialect.
    pub dialect: Dialect,
    /// Seed of the draws.
    pub seed: u64,
    /// Where `print` goes.
    pub print: Printer,
    /// Where instances leave their figures when they end.
    pub figures: Arc<Mutex<Vec<Instance>>>,
}

impl load::SessionFactory for Shared {
    fn statement_classes(&self) -> Vec<String> {
        self.barrel.groups.to_vec()
    }

    fn session(&self, index: u32) -> Box<dyn load::AnySession> {
        Box::new(SmackSession {
            connection: None,
            at: 0,
            rounds_done: 0,
            positions: vec![Position::default(); self.barrel.dictionaries.len()],
            random: Rng::stream(self.seed, u64::from(index)),
            escape: escape(&self.dialect),
            sql: String::new(),
            figures: Instance {
                index,
                groups: vec![GroupFigures::default(); self.barrel.groups.len()],
                ..Instance::default()
            },
            shared: self.clone(),
        })
    }
}

struct SmackSession {
    shared: Shared,
    connection: Option<Connection<Socket>>,
    at: usize,
    rounds_done: u64,
    positions: Vec<Position>,
    random: Rng,
    escape: Escape,
    sql: String,
    figures: Instance,
}

impl SmackSession {
    async fn round(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        let barrel = self.shared.barrel.clone();
        for shot in barrel.shots.iter() {
            match *shot {
                CompiledShot::Sleep { seconds } => {
                    load::time::sleep(Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0))).await;
                }
                CompiledShot::Fire { count, query } => {
                    let query = &barrel.queries[query];
                    for _ in 0..count {
                        query.fill(
                            &barrel.dictionaries,
                            &mut self.positions,
                            &mut self.random,
                            self.escape,
                            &mut self.sql,
                        );
                        self.fire(query.group, recorder).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn fire(&mut self, group: usize, recorder: &Recorder) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else { return Err(not_connected()) };
        let start = recorder.now();
        let done = connection.query(&self.sql).await;
        let end = recorder.now();
        match done {
            Ok(done) => {
                recorder.statement(group, done.kind(), start, end);
                self.figures.groups[group].note(end.nanos_since(start));
                let first = self.figures.span.map_or(start, |(first, _)| first);
                self.figures.span = Some((first, end));
                Ok(())
            }
            Err(error) => Err(self.shared.dialect.failure(&error, &[])),
        }
    }
}

impl Session for SmackSession {
    async fn open(&mut self) -> Result<(), Failure> {
        let abandoned = self.connection.take().and_then(|connection| connection.abandoned());
        cancel(abandoned, &self.shared.target).await;
        let start = load::time::now();
        let target = &self.shared.target;
        let opened = match load::net::connect(&target.endpoint, target.connect_timeout).await {
            Ok(socket) => Connection::open(socket, target).await,
            Err(error) => Err(wire::Error::Io(error)),
        };
        self.connection = Some(opened.map_err(|error| self.shared.dialect.failure(&error, &[]))?);
        if self.figures.connect_ns == 0 {
            self.figures.connect_ns = load::time::now().nanos_since(start);
        }
        Ok(())
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let orders = self.shared.orders.clone();
        while let Some(order) = orders.get(self.at) {
            match order {
                Order::Unload { rounds } if rounds.is_none_or(|rounds| self.rounds_done < rounds) => {
                    self.rounds_done += 1;
                    self.round(recorder).await?;
                    return Ok(Completion::Committed);
                }
                Order::Unload { .. } => self.rounds_done = 0,
                Order::Query(sql) => {
                    let Some(connection) = &mut self.connection else { return Err(not_connected()) };
                    connection.query(sql).await.map_err(|error| self.shared.dialect.failure(&error, &[]))?;
                }
                Order::Sleep(pause) => load::time::sleep(*pause).await,
                Order::Print(text) => self.shared.print.text(text),
            }
            self.at += 1;
        }
        Ok(Completion::Finished)
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }
}

/// An instance leaves its figures however it ends.
impl Drop for SmackSession {
    fn drop(&mut self) {
        let figures = std::mem::take(&mut self.figures);
        self.shared.figures.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(figures);
    }
}

fn not_connected() -> Failure {
    Failure {
        class: load::FailureClass::Connection,
        code: "closed".into(),
        text: "the client is not connected".into(),
        retryable: false,
        connection_lost: true,
        fatal: false,
    }
}
