//! A client of pgbench's on the load engine: it chooses scripts, waits for its schedule, tries again, counts.

use std::cell::RefCell;
use std::fs::OpenOptions;
use std::rc::{Rc, Weak};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use load::time::{self, Moment};
use load::{Completion, Failure, Recorder, Session};
use pgscript::random::Random;
use pgscript::{Action, Value};
use wire::StatementKind;
use workload::Dialect;
use workload::scripted::{Abort, Cause, Client, Plan, Watch};

use crate::figures::Figures;
use crate::log::{self, Ended, Entry, Form, Log};
use crate::tell;

/// How long and how fast clients run.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// Of each client; `None`: until the time is over.
    pub(crate) transactions: Option<u64>,
    pub(crate) duration: Option<Duration>,
    /// Microseconds between two arrivals at one thread.
    pub(crate) throttle_us: Option<f64>,
    pub(crate) latency_limit: Option<Duration>,
    /// 0 for as many as it takes.
    pub(crate) tries_max: u32,
}

/// What all clients share.
pub(crate) struct Shared {
    pub(crate) plan: Arc<Plan>,
    pub(crate) dialect: Dialect,
    pub(crate) weights: Vec<u64>,
    pub(crate) pace: Pace,
    pub(crate) threads: usize,
    /// Before anything is set: those of `-D` and the special ones, but for `client_id`.
    pub(crate) variables: Vec<Option<Value>>,
    /// Where `client_id` stands, unless it was given.
    pub(crate) client_id: Option<usize>,
    /// By client.
    pub(crate) randoms: Vec<Random>,
    /// By thread: for choosing a script, for the schedule, for sampling the log.
    pub(crate) thread_randoms: Vec<[Random; 3]>,
    /// By thread.
    pub(crate) figures: Vec<Arc<Mutex<Figures>>>,
    pub(crate) began: OnceLock<Moment>,
    pub(crate) is_reconnecting: bool,
    pub(crate) times_commands: bool,
    pub(crate) log: Option<(String, Form)>,
    pub(crate) sampling_rate: f64,
    pub(crate) tells_errors: bool,
    pub(crate) exits_on_abort: Option<load::Stop>,
}

/// What the clients of one thread share.
struct Thread {
    randoms: RefCell<[Random; 3]>,
    /// When the next transaction of the schedule is due.
    due: RefCell<Option<Moment>>,
    log: Option<RefCell<Log>>,
    figures: Arc<Mutex<Figures>>,
}

thread_local! {
    /// Weak: the clients hold it, so that the log is whole when the last of them is gone.
    static THREAD: RefCell<Weak<Thread>> = const { RefCell::new(Weak::new()) };
}

impl Shared {
    fn thread(&self, number: usize) -> Rc<Thread> {
        THREAD.with_borrow_mut(|known| {
            known.upgrade().unwrap_or_else(|| {
                let made = Rc::new(Thread {
                    randoms: RefCell::new(self.thread_randoms[number].clone()),
                    due: RefCell::new(None),
                    log: self.log.as_ref().and_then(|(prefix, form)| {
                        // It was created before the run, and that failed where it can fail.
                        let file = OpenOptions::new().append(true).open(log::path(prefix, number)).ok()?;
                        Some(RefCell::new(Log::new(file, *form)))
                    }),
                    figures: Arc::clone(&self.figures[number]),
                });
                *known = Rc::downgrade(&made);
                made
            })
        })
    }
}

impl load::SessionFactory for Clients {
    fn statement_classes(&self) -> Vec<String> {
        Vec::new()
    }

    fn session(&self, index: u32) -> Box<dyn load::AnySession> {
        let shared = &self.0;
        let mut variables = shared.variables.clone();
        if let Some(slot) = shared.client_id {
            variables[slot] = Some(Value::Int(i64::from(index)));
        }
        let random = shared.randoms[index as usize].clone();
        Box::new(PgSession {
            client: Client::new(Arc::clone(&shared.plan), variables, random),
            thread: shared.thread(index as usize % shared.threads),
            shared: Arc::clone(shared),
            index,
            number: 0,
        })
    }
}

/// The factory: sessions keep what they share.
pub(crate) struct Clients(pub(crate) Arc<Shared>);

struct PgSession {
    shared: Arc<Shared>,
    thread: Rc<Thread>,
    client: Client,
    index: u32,
    /// Transactions so far, however they ended.
    number: u64,
}

/// One transaction.
struct Turn {
    script: usize,
    /// When it should begin.
    scheduled: Moment,
    began: Moment,
    tries: u32,
}

impl Session for PgSession {
    async fn open(&mut self) -> Result<(), Failure> {
        if self.shared.is_reconnecting {
            return Ok(());
        }
        self.connect().await.map_err(|error| self.shared.dialect.failure(&error, &[]))
    }

    async fn transaction(&mut self, _recorder: &Recorder) -> Result<Completion, Failure> {
        match self.one().await {
            Some(completion) => Ok(completion),
            None => {
                self.client.close().await;
                Ok(Completion::Finished)
            }
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&mut self) {
        self.client.close().await;
    }
}

/// Times commands for `-r`.
struct Clock<'a> {
    thread: &'a Thread,
    script: usize,
    mark: Option<Moment>,
}

impl Watch for Clock<'_> {
    fn ended(&mut self, command: usize, _kind: Option<StatementKind>) {
        let Some(mark) = &mut self.mark else { return };
        let now = time::now();
        let took_s = (now - *mark).as_secs_f64();
        *mark = now;
        let mut figures = lock(&self.thread.figures);
        if let Some(figures) = figures.commands[self.script].get_mut(command) {
            figures.took_s.add(took_s);
        }
    }

    fn debug(&mut self, command: usize, text: &str) {
        tell(&format!("debug(script={},command={}): {text}", self.script, command + 1));
    }
}

fn lock(figures: &Mutex<Figures>) -> std::sync::MutexGuard<'_, Figures> {
    figures.lock().unwrap_or_else(PoisonError::into_inner)
}

fn micros(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1000.0
}

impl PgSession {
    async fn connect(&mut self) -> Result<(), wire::Error> {
        let start = time::now();
        self.client.open().await?;
        lock(&self.thread.figures).connecting.add((time::now() - start).as_secs_f64());
        Ok(())
    }

    /// Runs one transaction; `None`: this client has no more to do.
    async fn one(&mut self) -> Option<Completion> {
        let shared = Arc::clone(&self.shared);
        let began = *shared.began.get_or_init(time::now);
        let end = shared.pace.duration.map(|duration| began + duration);
        if self.has_finished(end) {
            return None;
        }
        let script = self.choose();
        let scheduled = match shared.pace.throttle_us {
            Some(throttle_us) => self.wait_for_turn(script, throttle_us, began, end).await?,
            None => time::now(),
        };
        if shared.is_reconnecting
            && !self.client.is_open()
            && let Err(error) = self.connect().await
        {
            tell(&format!("pgbench: error: {error}"));
            return self.abort(&format!("client {} aborted while establishing connection", self.index));
        }
        let now = time::now();
        let began = if shared.pace.throttle_us.is_some() { now } else { scheduled };
        let turn = Turn { script, scheduled, began, tries: 0 };
        let completion = self.try_until_done(turn).await?;
        if shared.is_reconnecting {
            self.client.close().await;
        }
        Some(completion)
    }

    fn has_finished(&self, end: Option<Moment>) -> bool {
        match end {
            Some(end) => time::now() >= end,
            None => self.shared.pace.transactions.is_some_and(|most| self.number >= most),
        }
    }

    fn choose(&self) -> usize {
        let weights = &self.shared.weights;
        if weights.len() == 1 {
            return 0;
        }
        let total: u64 = weights.iter().sum();
        let mut ticket = self.thread.randoms.borrow_mut()[0].up_to(total.saturating_sub(1));
        for (script, weight) in weights.iter().enumerate() {
            if ticket < *weight {
                return script;
            }
            ticket -= weight;
        }
        0
    }

    /// Takes the thread's next place in the schedule and waits for it. With a latency limit, places that are past it are
    /// skipped and counted.
    async fn wait_for_turn(
        &mut self,
        script: usize,
        throttle_us: f64,
        began: Moment,
        end: Option<Moment>,
    ) -> Option<Moment> {
        let thread = Rc::clone(&self.thread);
        let next = || {
            let wait_us = thread.randoms.borrow_mut()[1].poisson(throttle_us);
            let mut due = thread.due.borrow_mut();
            let next = due.unwrap_or(began) + Duration::from_micros(wait_us.max(0) as u64);
            *due = Some(next);
            next
        };
        let mut scheduled = next();
        if let Some(limit) = self.shared.pace.latency_limit {
            while scheduled + limit < time::now() && !self.has_finished(end) {
                self.skip(script);
                scheduled = next();
            }
            if self.has_finished(end) {
                return None;
            }
        }
        if end.is_some_and(|end| scheduled > end) {
            return None;
        }
        time::sleep_until(scheduled).await;
        Some(scheduled)
    }

    fn skip(&mut self, script: usize) {
        {
            let mut figures = lock(&self.thread.figures);
            figures.scripts[script].skipped += 1;
            figures.scripts[script].late += 1;
        }
        self.log(script, Ended::Skipped, 0.0, 0.0, 0);
        self.number += 1;
    }

    fn log(&self, script: usize, ended: Ended, latency_us: f64, lag_us: f64, tries: u32) {
        let Some(log) = &self.thread.log else { return };
        let rate = self.shared.sampling_rate;
        if rate > 0.0 && self.thread.randoms.borrow_mut()[2].unit() > rate {
            return;
        }
        let (client, number) = (self.index, self.number);
        log.borrow_mut().note(&Entry { client, number, script, ended, latency_us, lag_us, tries });
    }

    async fn try_until_done(&mut self, mut turn: Turn) -> Option<Completion> {
        let random = self.client.random.clone();
        loop {
            turn.tries += 1;
            let thread = Rc::clone(&self.thread);
            let mark = self.shared.times_commands.then(time::now);
            let mut clock = Clock { thread: &thread, script: turn.script, mark };
            let ran = match self.client.begin(turn.script, &mut clock) {
                Ok(place) => self.client.run(turn.script, place, &mut clock).await,
                Err(abort) => Err(abort),
            };
            let abort = match ran {
                Ok(()) => return Some(self.done(&turn)),
                Err(abort) => abort,
            };
            let Some(ended) = retryable(&abort) else { return self.aborted(turn.script, &abort) };
            if let Err(error) = self.client.recover().await {
                let abort = Abort { command: abort.command, cause: Cause::Sql(error) };
                return self.aborted(turn.script, &abort);
            }
            let again = self.may_try_again(&turn);
            self.count_failure(&turn, &abort, ended, again);
            if !again {
                return Some(Completion::RolledBack);
            }
            // The same transaction once more.
            self.client.random = random.clone();
        }
    }

    fn may_try_again(&self, turn: &Turn) -> bool {
        let pace = &self.shared.pace;
        let is_too_late = pace.latency_limit.is_some_and(|limit| time::now() - turn.scheduled > limit);
        let is_over = match (pace.duration, self.shared.began.get()) {
            (Some(duration), Some(began)) => time::now() >= *began + duration,
            _ => false,
        };
        (pace.tries_max == 0 || turn.tries < pace.tries_max) && !is_too_late && !is_over
    }

    fn done(&mut self, turn: &Turn) -> Completion {
        let now = time::now();
        let latency_us = micros(now - turn.scheduled);
        let lag_us = micros(turn.began - turn.scheduled);
        {
            let mut figures = lock(&self.thread.figures);
            let counts = &mut figures.scripts[turn.script];
            counts.latency.add(latency_us);
            if self.shared.pace.throttle_us.is_some() {
                counts.lag.add(lag_us);
            }
            let limit = self.shared.pace.latency_limit;
            counts.late += u64::from(limit.is_some_and(|limit| latency_us > micros(limit)));
            counts.retried += u64::from(turn.tries > 1);
            counts.retries += u64::from(turn.tries - 1);
        }
        self.log(turn.script, Ended::Done, latency_us, lag_us, turn.tries);
        self.number += 1;
        Completion::Committed
    }

    fn count_failure(&mut self, turn: &Turn, abort: &Abort, ended: Ended, again: bool) {
        if self.shared.tells_errors
            && let Some(error) = abort.server()
        {
            let what =
                if again { "repeats the transaction after the error" } else { "ends the failed transaction" };
            tell(&format!(
                "pgbench: client {} got an error in command {} (SQL) of script {}; ERROR:  {}",
                self.index, abort.command, turn.script, error.text
            ));
            tell(&format!(
                "pgbench: client {} {what} (try {}/{})",
                self.index, turn.tries, self.shared.pace.tries_max
            ));
        }
        let latency = time::now() - turn.scheduled;
        {
            let mut figures = lock(&self.thread.figures);
            if let Some(command) = figures.commands[turn.script].get_mut(abort.command) {
                if again {
                    command.retries += 1;
                } else {
                    command.failures += 1;
                }
            }
            if again {
                return;
            }
            let counts = &mut figures.scripts[turn.script];
            match ended {
                Ended::Deadlock => counts.deadlock += 1,
                _ => counts.serialization += 1,
            }
            counts.retried += u64::from(turn.tries > 1);
            counts.retries += u64::from(turn.tries - 1);
        }
        self.log(turn.script, ended, micros(latency), micros(turn.began - turn.scheduled), turn.tries);
        self.number += 1;
    }

    /// Tells why, and that this client is over.
    fn aborted(&mut self, script: usize, abort: &Abort) -> Option<Completion> {
        let (client, command) = (self.index, abort.command);
        let name = || {
            let commands = &self.shared.plan.scripts[script].commands;
            match commands.get(command).map(|command| (&command.action, command.name())) {
                Some((Action::Sql(sql), _)) if matches!(abort.cause, Cause::Meta { .. }) => {
                    if sql.store.as_ref().is_some_and(|store| store.of_all) { "aset" } else { "gset" }
                }
                found => found.map_or("", |(_, name)| name),
            }
        };
        let text = match &abort.cause {
            Cause::Sql(wire::Error::Server(error)) => format!(
                "client {client} script {script} aborted in command {command} query 0: ERROR:  {}",
                error.text
            ),
            Cause::Sql(error) => format!(
                "client {client} aborted in command {command} ({}) of script {script}; {error}",
                name()
            ),
            Cause::Meta { detail, what } => {
                if let Some(detail) = detail {
                    tell(&format!("pgbench: error: {detail}"));
                }
                format!(
                    "client {client} aborted in command {command} ({}) of script {script}; {what}",
                    name()
                )
            }
            Cause::Result(what) => format!("client {client} script {script} command {command} {what}"),
            Cause::End(what) => format!("client {client} aborted: {what}"),
        };
        self.abort(&text)
    }

    fn abort(&mut self, text: &str) -> Option<Completion> {
        tell(&format!("pgbench: error: {text}"));
        lock(&self.thread.figures).aborted += 1;
        if let Some(stop) = &self.shared.exits_on_abort {
            stop.request();
        }
        None
    }
}

/// Whether the error is one after which the transaction may be tried again or counted as failed.
fn retryable(abort: &Abort) -> Option<Ended> {
    match abort.server()?.state() {
        "40001" => Some(Ended::Serialization),
        "40P01" => Some(Ended::Deadlock),
        _ => None,
    }
}
