//! Checks the plan, starts the workers and lets the coordinator run the steps.

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, mpsc};
use std::thread::Scope;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::coordinator::Coordinator;
use crate::hands::{Hands, Link};
use crate::memory;
use crate::plan::{Length, LoadPlan, Pacing, RATE_MAX_TPS, Step};
use crate::result::{IntervalResult, LoadResult, StepResult};
use crate::session::SessionFactory;
use crate::state::{Rules, Shared};
use crate::time::Clock;
use crate::usage;
use crate::worker::{self, Report, WorkerSetup};

/// Descriptors that a process needs beside its sessions: files, epoll, results, a server's log.
const DESCRIPTORS_BESIDE: u64 = 64;

/// What happens while the load runs, in order. Observers are called on the coordinator's thread.
#[derive(Debug)]
pub enum Event<'a> {
    /// All sessions of a step are connected.
    Connected {
        /// Index of the step in the plan.
        step: usize,
        sessions: u32,
        /// How long it took.
        took: Duration,
    },
    /// A step begins with its warm-up.
    StepStarted {
        /// Index of the step in the plan.
        index: usize,
        step: &'a Step,
    },
    /// A second has passed and all workers have told about it.
    Interval {
        /// Index of the step in the plan.
        step: usize,
        /// What happened in it.
        interval: &'a IntervalResult,
    },
    /// A step is over, drained and counted.
    StepEnded {
        /// Index of the step in the plan.
        step: usize,
        result: &'a StepResult,
    },
    /// Something the user should know, with a remedy.
    Warning(&'a str),
}

/// Asks a run to stop: transactions in flight may finish within the drain limit, what was measured is kept.
/// Clones share the flag. [`Stop::request`] only stores to an atomic, so signal handlers may call it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Not stopped.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Stops the run at the next look (within 0.1 s).
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether somebody asked.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The flag itself, for connections that wait by themselves.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// Why there is no result at all. Whatever happens after the first step began is in the result instead.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The plan cannot be run.
    #[error("the load plan is impossible: {0}")]
    Plan(String),
    /// The sessions of the first step could not be connected.
    #[error("{connected} of {sessions} sessions could be opened, then: {text}")]
    Connect {
        /// Sessions that were.
        connected: u32,
        /// Sessions wanted.
        sessions: u32,
        /// What the field calls the error by.
        code: String,
        /// The error.
        text: String,
    },
    /// A worker thread ended before the load began.
    #[error("{0}")]
    Worker(String),
    /// The machine refused something (threads, epoll, descriptors).
    #[error("{what}: {source}")]
    System {
        /// What was wanted.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

/// Runs a load. Returns when all steps are done, one of them ended early for a reason that later steps would
/// share, or `stop` was requested.
pub fn run(
    plan: &LoadPlan,
    factory: &dyn SessionFactory,
    observer: &mut dyn FnMut(Event<'_>),
    stop: &Stop,
) -> Result<LoadResult, LoadError> {
    run_with_clock(plan, factory, observer, stop, Clock::Monotonic)
}

/// [`run`] by another clock: with [`Clock::Simulated`] and sessions that only sleep, in no time.
pub fn run_with_clock(
    plan: &LoadPlan,
    factory: &dyn SessionFactory,
    observer: &mut dyn FnMut(Event<'_>),
    stop: &Stop,
    clock: Clock,
) -> Result<LoadResult, LoadError> {
    let most = check(plan)?;
    let (workers, cpus, are_shared) = workers_of(plan);
    let workers = workers.clamp(1, most.max(1) as usize);
    let post = |worker| Post { worker, cpu: cpu_of(worker, workers, &cpus, !are_shared) };
    let posts = (0..workers).map(post).collect();
    let team = Team { client: 0, workers, posts, ..Team::of(plan, clock) };
    let lacking = lacking_descriptors(&team, most.into());
    let lacking =
        lacking.map_err(|source| LoadError::System { what: "reading the limit of open files", source })?;
    if let Some(why) = lacking {
        return Err(LoadError::Plan(why));
    }
    let classes = factory.statement_classes();
    let shared = Arc::new(Shared::new(stop.clone()));
    let (reports, reported) = mpsc::channel();
    memory::grow_in_huge_pages();
    std::thread::scope(|scope| {
        let links = man(scope, &team, &shared, factory, &reports)?;
        let coordinator = Coordinator::new(plan, Hands::Own(links), reported, shared, classes, clock);
        // The links are dropped with the coordinator: that is what tells the workers to end.
        coordinator.climb(observer)
    })
}

/// The workers of one process, and what all workers of the load are alike in.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Team {
    /// Which of the processes, from 0.
    pub(crate) client: usize,
    /// Workers of all processes together.
    pub(crate) workers: usize,
    /// Those of this one.
    pub(crate) posts: Vec<Post>,
    pub(crate) raise_priority: bool,
    pub(crate) clock: Clock,
    pub(crate) rules: Rules,
    pub(crate) connect_limit: Duration,
    pub(crate) seed: u64,
}

/// A worker's place.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Post {
    /// Its number among all workers of the load.
    pub(crate) worker: usize,
    /// What it is pinned to.
    pub(crate) cpu: Option<usize>,
}

impl Team {
    /// Nobody yet, to work by this plan.
    pub(crate) fn of(plan: &LoadPlan, clock: Clock) -> Team {
        Team {
            client: 0,
            workers: 0,
            posts: Vec::new(),
            raise_priority: plan.raise_priority,
            clock,
            rules: Rules { retry: plan.retry, think_time: plan.think_time, drain: plan.drain },
            connect_limit: plan.connect_limit,
            seed: plan.seed,
        }
    }
}

/// Starts the workers of a team; they end when their links are dropped.
pub(crate) fn man<'scope>(
    scope: &'scope Scope<'scope, '_>,
    team: &Team,
    shared: &Arc<Shared>,
    factory: &'scope dyn SessionFactory,
    reports: &Sender<Report>,
) -> Result<Vec<Link>, LoadError> {
    let classes = factory.statement_classes().len();
    let mut links = Vec::with_capacity(team.posts.len());
    for &Post { worker, cpu } in &team.posts {
        let (commands, commanded) = mpsc::channel();
        let (spares, spared) = mpsc::channel();
        let setup = WorkerSetup {
            worker,
            workers: team.workers,
            cpu,
            raise_priority: team.raise_priority,
            clock: team.clock,
            rules: team.rules.clone(),
            connect_limit: team.connect_limit,
            seed: team.seed,
            classes,
            shared: shared.clone(),
            reports: reports.clone(),
            spares: spared,
            commands: commanded,
        };
        let reports = reports.clone();
        std::thread::Builder::new()
            .name(format!("load-{worker}"))
            .spawn_scoped(scope, move || {
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| worker::work(setup, factory)));
                let reason = match outcome {
                    Ok(Ok(())) => return,
                    Ok(Err(error)) => format!("worker {worker} failed: {error}"),
                    Err(panic) => format!("worker {worker} panicked: {}", words_of(&*panic)),
                };
                let _ = reports.send(Report::Lost { reason });
            })
            .map_err(|source| LoadError::System { what: "starting a worker thread", source })?;
        links.push(Link { commands, spares });
    }
    Ok(links)
}

/// Makes room for the descriptors of so many sessions in this process; why that is not possible, if it is not.
pub(crate) fn lacking_descriptors(team: &Team, sessions: u64) -> io::Result<Option<String>> {
    let wanted = sessions + DESCRIPTORS_BESIDE;
    let descriptors = usage::raise_descriptors(wanted)?;
    let is_lacking = team.clock == Clock::Monotonic && descriptors < wanted;
    Ok(is_lacking.then(|| {
        format!(
            "{sessions} sessions in one process need {wanted} open files and it may have {descriptors}: raise the limit \
             (ulimit -n {wanted}), ask for fewer sessions, or spread them over more client processes"
        )
    }))
}

/// How many workers the plan is for, the cpus that they may use, and whether a server may need those, too.
pub(crate) fn workers_of(plan: &LoadPlan) -> (usize, Vec<usize>, bool) {
    let are_shared = plan.cpus.is_empty();
    let cpus = if are_shared { usage::allowed_cpus() } else { plan.cpus.clone() };
    (plan.workers.unwrap_or_else(|| workers_for(cpus.len(), are_shared)), cpus, are_shared)
}

/// How many workers where nobody has said: one for each cpu of the client's own. On cpus that a server may need, too,
/// half as many: the server uses most of them, and fewer workers find more answers at each look, which costs both sides
/// less.
fn workers_for(cpus: usize, are_shared: bool) -> usize {
    if are_shared { cpus.div_ceil(2) } else { cpus }
}

/// Which cpu a worker is pinned to. Without cpus of its own the client shares those of the server, and the
/// scheduler knows better than a fixed choice where there is room, unless every cpu gets its worker.
pub(crate) fn cpu_of(worker: usize, workers: usize, cpus: &[usize], are_chosen: bool) -> Option<usize> {
    (are_chosen || workers >= cpus.len()).then(|| cpus.get(worker % cpus.len().max(1)).copied()).flatten()
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no words)")
}

/// Refuses plans that cannot be run; answers the largest number of sessions.
pub(crate) fn check(plan: &LoadPlan) -> Result<u32, LoadError> {
    let refuse = |text: String| Err(LoadError::Plan(text));
    if plan.steps.is_empty() {
        return refuse("there is no step".into());
    }
    if plan.workers == Some(0) {
        return refuse("0 workers: at least one must drive the sessions".into());
    }
    for (at, step) in plan.steps.iter().enumerate() {
        if step.sessions == 0 {
            return refuse(format!("step {}: 0 sessions", at + 1));
        }
        if let Pacing::Open { rate_tps, .. } = step.pacing
            && !(rate_tps > 0.0 && rate_tps <= RATE_MAX_TPS)
        {
            return refuse(format!(
                "step {}: a rate of {rate_tps} transactions per second; it must be above 0 and at most {RATE_MAX_TPS}",
                at + 1
            ));
        }
        if step.length == Length::Time(Duration::ZERO) {
            return refuse(format!("step {}: a measured phase of no length", at + 1));
        }
    }
    Ok(plan.steps.iter().map(|step| step.sessions).max().unwrap_or(0))
}
