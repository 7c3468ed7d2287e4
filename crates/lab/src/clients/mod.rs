//! Client processes for one server, on this machine or on nodes of a job of Slurm: this binary again (`plimsoll
//! load-client`), fed through its standard input. What they are told, the password of the server included, goes through that
//! pipe and stands in no command line and no environment. A client whose input ends ends itself, so that none outlives this
//! process however it ends.

mod hosts;
mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use load::clients::{Client, Process, Ran, receive, send};
use load::{LoadError, LoadPlan, LoadResult, Stop};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use store::Gate;
use wire::{Endpoint, Protocol, Secret, Target, TlsClient, TlsMode};
use workload::{Configured, Dialect, Totals, ids};

pub use self::hosts::Hosts;
pub use self::serve::serve;
use crate::duel::crowd::Span;
use crate::error::Error;
use crate::provision::{Provisioned, dialect_of, introduce};
use crate::run::Order;
use crate::workloads::Elsewhere;

/// The command of a client process; nobody calls it by hand.
pub const COMMAND: &str = "load-client";
/// More than any machine has use for.
pub const CLIENTS_MAX: u32 = 1024;

/// A process that was told to end, or whose answers have ended, is killed after this long.
const END_WITHIN: Duration = Duration::from_secs(2);
/// As much of what a client says on standard error is kept.
const LAST_WORDS_BYTES: usize = 2_000;
/// Numbers that clients which were lost may have taken since.
const IDS_LOST: u64 = 1 << 26;

/// What a client is told first.
#[derive(Serialize, Deserialize)]
struct Setup {
    /// Of this binary: a client of another one would not do the same.
    version: String,
    /// What [`crate::workloads::resolve_from`] takes.
    workload: String,
    elsewhere: Elsewhere,
    /// What it meant when it was read.
    content_sha256: Option<String>,
    options: BTreeMap<String, String>,
    dialect: Dialect,
    #[serde(with = "SentTarget")]
    target: Target,
    /// Which of how many, from 0.
    client: u64,
    clients: u64,
}

/// What it answers.
#[derive(Serialize, Deserialize)]
enum Ready {
    Yes,
    No { why: String },
}

/// What begins a load; then [`load::clients`] has the word.
#[derive(Serialize, Deserialize)]
struct Begin {
    /// Of the sessions.
    seed: u64,
    /// See [`ids::take_in_turn`].
    first_id: u64,
}

/// What a client says when its load is over.
#[derive(Serialize, Deserialize)]
struct Farewell {
    changed: Option<Totals>,
    ids_passed: u64,
    /// From the load's beginning to its end; `None` where that cannot be seen.
    span: Option<Span>,
}

/// A [`Target`] on its way through the pipe, the only place where its password stands in the open. What is new in it, or in
/// what it is made of, does not compile until it is here.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Target")]
struct SentTarget {
    #[serde(with = "SentProtocol")]
    protocol: Protocol,
    #[serde(with = "SentEndpoint")]
    endpoint: Endpoint,
    user: String,
    #[serde(serialize_with = "revealed", deserialize_with = "secret")]
    password: Secret,
    database: Option<String>,
    #[serde(with = "SentTls")]
    tls: TlsMode,
    tls_ca: Option<PathBuf>,
    #[serde(with = "SentTlsClient")]
    tls_client: TlsClient,
    is_compressed: bool,
    connect_timeout: Duration,
    statement_timeout: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Protocol")]
enum SentProtocol {
    Mysql,
    Postgres,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Endpoint")]
enum SentEndpoint {
    Unix(PathBuf),
    Tcp { host: String, port: u16 },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TlsMode")]
enum SentTls {
    Disabled,
    Preferred,
    Required,
    VerifyCa,
    VerifyFull,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TlsClient")]
struct SentTlsClient {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    ciphers: String,
}

fn revealed<S: Serializer>(password: &Secret, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(password.reveal())
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
    String::deserialize(deserializer).map(Secret::new)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses what cannot be shared out.
///
/// # Errors
/// With the remedy.
pub(crate) fn check(clients: u32, sessions: &[u32], configured: &dyn Configured) -> Result<(), Error> {
    if clients < 2 {
        return Ok(());
    }
    let most = sessions.iter().max().copied().unwrap_or(clients);
    match configured.one_process_only(most) {
        Some(why) => Err(Error::Usage(format!("{clients} clients: {why}, or leave the clients out"))),
        None => Ok(()),
    }
}

/// The client processes of a run, one load after another.
pub(crate) struct Clients {
    clients: Vec<Client>,
    processes: Vec<Arc<Running>>,
    classes: Vec<String>,
    hosts: Hosts,
    /// What each saw of its machine since [`Clients::take_gates`] was called.
    spans: Vec<Option<Span>>,
    is_one_lost: bool,
}

impl Clients {
    /// Starts those that the order is for; `None` where this process has the sessions itself.
    ///
    /// # Errors
    /// One could not be started, or does not know the workload any more.
    pub(crate) fn start(order: &Order<'_>, server: &Provisioned<'_>) -> Result<Option<Clients>, Error> {
        if order.clients < 2 {
            return Ok(None);
        }
        let dialect = match server.sandbox() {
            Some(sandbox) => dialect_of(sandbox.build(), order.engine),
            None => {
                let engine = order.engine.map(str::to_owned);
                Dialect { engine, ..introduce(&server.target)?.1 }
            }
        };
        let target = order.client_hosts.target(server)?;
        let mut all = Clients {
            clients: Vec::new(),
            processes: Vec::new(),
            classes: server.made.configured.statement_classes(),
            hosts: order.client_hosts.clone(),
            spans: Vec::new(),
            is_one_lost: false,
        };
        for client in 0..order.clients {
            let setup = Setup {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                workload: order.workload.given().to_owned(),
                elsewhere: order.workload.elsewhere().clone(),
                content_sha256: order.workload.content_sha256().map(str::to_owned),
                options: order.options.clone(),
                dialect: dialect.clone(),
                target: target.clone(),
                client: client.into(),
                clients: order.clients.into(),
            };
            all.add(&setup)?;
        }
        for client in &mut all.clients {
            match receive::<Ready>(&mut client.answers) {
                Ok(Some(Ready::Yes)) => {}
                Ok(Some(Ready::No { why })) => return Err(Error::Run(format!("{}: {why}", client.name))),
                Ok(None) | Err(_) => {
                    let why = client.process.how_it_ended();
                    return Err(Error::Run(format!("{} was lost before its load: {why}", client.name)));
                }
            }
        }
        Ok(Some(all))
    }

    fn add(&mut self, setup: &Setup) -> Result<(), Error> {
        let cannot = |error: std::io::Error| Error::Run(format!("starting a client process failed: {error}"));
        let mut command = self.hosts.launch(setup.client)?;
        // Signals of the terminal are this process's.
        let mut child = command
            .arg(COMMAND)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(cannot)?;
        let name = match &self.hosts {
            Hosts::This => {
                format!("client {} of {} (process {})", setup.client + 1, setup.clients, child.id())
            }
            Hosts::Nodes(allocation) => {
                let node = allocation.node(setup.client);
                format!("client {} of {} on {node}", setup.client + 1, setup.clients)
            }
        };
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let words = Arc::new(Mutex::new(VecDeque::new()));
        let heard = words.clone();
        let listener = stderr.map(|stderr| std::thread::spawn(move || hear_out(stderr, &heard)));
        let process = Arc::new(Running {
            pid: child.id(),
            child: Mutex::new(child),
            words,
            listener: Mutex::new(listener),
        });
        self.processes.push(process.clone());
        let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
            return Err(Error::Run(format!("{name} has no pipes")));
        };
        // One that is gone already is found out when it is to answer.
        let _ = send(setup, &mut stdin);
        let answers = Box::new(BufReader::with_capacity(1 << 16, stdout));
        self.clients.push(Client {
            name,
            orders: Box::new(stdin),
            answers,
            process: Box::new(Handle(process)),
            host: self.hosts.of(setup.client).map(str::to_owned),
        });
        Ok(())
    }

    /// Of those whose use of this machine is not what others take of it.
    pub(crate) fn pids(&self) -> Vec<u32> {
        match self.hosts {
            Hosts::This => self.processes.iter().map(|process| process.pid).collect(),
            Hosts::Nodes(_) => Vec::new(),
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.processes.len() as u32
    }

    /// A load ended because a client did.
    pub(crate) fn is_one_lost(&self) -> bool {
        self.is_one_lost
    }

    /// Runs a load as [`load::run`] does, with fewer sessions than there are clients on as many of them. What the sessions
    /// changed is added to the workload's own count.
    pub(crate) fn run(
        &mut self,
        plan: &LoadPlan,
        seed: u64,
        configured: &dyn Configured,
        observer: &mut dyn FnMut(load::Event<'_>),
        stop: &Stop,
    ) -> Result<LoadResult, LoadError> {
        let first_id = ids::passed();
        let least = plan.steps.iter().map(|step| step.sessions as usize).min().unwrap_or(1).max(1);
        let busy = least.min(self.clients.len());
        let clients = &mut self.clients[..busy];
        for client in clients.iter_mut() {
            let _ = send(&Begin { seed, first_id }, &mut client.orders);
        }
        let (classes, clock) = (self.classes.clone(), load::Clock::Monotonic);
        let ran = load::clients::run_on_clients(plan, classes, clients, observer, stop, clock);
        self.is_one_lost = match &ran {
            Ok(ran) => ran.farewells.iter().any(Option::is_none),
            Err(error) => matches!(error, LoadError::Worker(_)),
        };
        let Ran { result, farewells } = ran.inspect_err(|_| ids::skip_to(first_id + IDS_LOST))?;
        self.spans.resize(self.clients.len(), None);
        for (farewell, known) in farewells.into_iter().zip(&mut self.spans) {
            let said = farewell.and_then(|text| serde_json::from_str::<Farewell>(&text).ok());
            let Some(Farewell { changed, ids_passed, span }) = said else {
                ids::skip_to(first_id + IDS_LOST);
                continue;
            };
            ids::skip_to(ids_passed);
            *known = span.map(|span| known.map_or(span, |known| known.and(&span)));
            if let (Some(tally), Some(changed)) = (configured.tally(), changed) {
                tally.add(&changed);
            }
        }
        Ok(result)
    }

    /// What the machines of the clients say of the loads since the last call; nothing where that is this machine.
    pub(crate) fn take_gates(&mut self) -> Vec<Gate> {
        self.hosts.gates(&std::mem::take(&mut self.spans))
    }

    /// What a reader should know of them after a load.
    pub(crate) fn facts(&self, result: &LoadResult) -> Vec<(String, String)> {
        let clocks = || result.steps.iter().flat_map(|step| &step.clients).filter_map(|client| client.clock);
        let offsets = clocks().map(|clock| clock.offset_ns as f64 / 1e3);
        let low = offsets.clone().fold(f64::INFINITY, f64::min);
        let high = offsets.fold(f64::NEG_INFINITY, f64::max);
        let within = clocks().map(|clock| clock.within_ns).max().unwrap_or(0) as f64 / 1e3;
        let lag_ms = result.steps.iter().map(|step| step.client.start_lag_ms).fold(0.0, f64::max);
        vec![
            (
                "clients".to_owned(),
                format!("{} processes{}", self.clients.len(), self.hosts.named(self.clients.len())),
            ),
            (
                "client_clocks".to_owned(),
                format!("offsets from {low:+.0} to {high:+.0} us, each known within {within:.0} us"),
            ),
            (
                "client_starts".to_owned(),
                format!("the last one began {lag_ms:.2} ms after the instant agreed on, at most"),
            ),
        ]
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // Their inputs end, and so do they.
        self.clients.clear();
        self.processes.iter().for_each(|process| {
            process.end();
        });
    }
}

/// Keeps the end of what a client says on standard error.
fn hear_out(mut from: impl Read, words: &Mutex<VecDeque<u8>>) {
    let mut some = [0; 1024];
    while let Ok(read @ 1..) = from.read(&mut some) {
        let mut words = lock(words);
        words.extend(&some[..read]);
        let surplus = words.len().saturating_sub(LAST_WORDS_BYTES);
        words.drain(..surplus);
    }
}

/// A process of ours.
struct Running {
    pid: u32,
    child: Mutex<Child>,
    words: Arc<Mutex<VecDeque<u8>>>,
    listener: Mutex<Option<JoinHandle<()>>>,
}

impl Running {
    /// Waits for its end, and brings it about where it does not come.
    fn end(&self) -> Option<ExitStatus> {
        let limit = Instant::now() + END_WITHIN;
        loop {
            if let Ok(Some(status)) = lock(&self.child).try_wait() {
                return Some(status);
            }
            if Instant::now() >= limit {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let mut child = lock(&self.child);
        // One that ended meanwhile is not reaped yet: its id is nobody else's.
        let _ = child.kill();
        child.wait().ok()
    }
}

struct Handle(Arc<Running>);

impl Process for Handle {
    fn kill(&self) {
        let _ = lock(&self.0.child).kill();
    }

    fn how_it_ended(&self) -> String {
        let status = self.0.end();
        if let Some(listener) = lock(&self.0.listener).take() {
            let _ = listener.join();
        }
        let how = match status {
            Some(status) => match (status.signal(), status.code()) {
                (Some(9), _) => {
                    "killed by signal 9; the kernel does that, too, when memory runs out (dmesg tells)"
                        .to_owned()
                }
                (Some(signal), _) => format!("killed by signal {signal}"),
                (None, code) => format!("ended with code {}", code.unwrap_or_default()),
            },
            None => "nothing is known of its end".to_owned(),
        };
        let words: Vec<u8> = lock(&self.0.words).iter().copied().collect();
        let words = wire::shown(String::from_utf8_lossy(&words).trim()).into_owned();
        if words.is_empty() { how } else { format!("{how}; its last words: {words}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_goes_through_the_pipe_whole() {
        let urls = [
            "mysql://u:p%40ss@db.example:3307/shop?tls=required",
            "postgres://u:geheim@localhost/d?socket=/run/x/.s.PGSQL.5432",
        ];
        for url in urls {
            let target = Target::parse(url).unwrap();
            let sent = SentTarget::serialize(&target, serde_json::value::Serializer).unwrap();
            let back = SentTarget::deserialize(sent).unwrap();
            assert_eq!(format!("{back:?}"), format!("{target:?}"));
            assert_eq!(back.password.reveal(), target.password.reveal());
        }
    }
}
