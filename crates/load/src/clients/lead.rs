//! The leader: agrees on a clock with each client, tells them what to do, and listens.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;

use super::{Answer, Client, ClockAgreement, Line, Order, receive};
use crate::coordinator::Coordinator;
use crate::hands::Hands;
use crate::plan::LoadPlan;
use crate::result::LoadResult;
use crate::run::{Event, LoadError, Post, Stop, Team, check, cpu_of, workers_of};
use crate::state::Shared;
use crate::time::{Clock, Moment};
use crate::worker::Report;

/// Questions about the clock: the one that was answered fastest tells most.
const CLOCK_QUESTIONS: u32 = 8;
/// Clients that answer slower than this even at their fastest cannot be told to begin together.
const CLOCK_WITHIN_MAX: Duration = Duration::from_millis(50);
/// How often the leader looks whether clients must be told to halt, and whether they are alive.
const LOOK: Duration = Duration::from_millis(20);

/// What a load on clients gave.
#[derive(Debug, Clone)]
pub struct Ran {
    pub result: LoadResult,
    /// By client: what it had to say at the end ([`super::Serving::farewell`]); `None`: it was lost.
    pub farewells: Vec<Option<String>>,
}

/// [`crate::run`] with sessions that live in these processes, each of which calls [`super::serve`]. `classes`: those of
/// the factory that they have.
///
/// # Errors
/// As those of [`crate::run`]; a client that is lost before the first step begins, or is too far away to begin with the
/// others. A client that is lost later ends the step with that reason.
pub fn run_on_clients(
    plan: &LoadPlan,
    classes: Vec<String>,
    clients: &mut [Client],
    observer: &mut dyn FnMut(Event<'_>),
    stop: &Stop,
    clock: Clock,
) -> Result<Ran, LoadError> {
    let most = check(plan)?;
    let count = clients.len();
    if let Some(step) = plan.steps.iter().find(|step| (step.sessions as usize) < count) {
        return Err(LoadError::Plan(format!(
            "{} sessions for {count} clients: each client needs at least one",
            step.sessions
        )));
    }
    let are_elsewhere = clients.iter().all(|client| client.host.is_some());
    let teams = teams(plan, (count, are_elsewhere), most, clock);
    let shared = Arc::new(Shared::new(stop.clone()));
    let (mut lines, mut voices) = (Vec::new(), Vec::new());
    for client in clients {
        let Client { name, orders, answers, process, host } = client;
        lines.push(Line {
            name,
            host: host.as_deref(),
            orders: Mutex::new(&mut **orders),
            process: &**process,
            heard: AtomicU64::new(Moment::now().nanos_since(Moment::START)),
            is_halted: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            clock: OnceLock::new(),
        });
        voices.push(&mut **answers);
    }
    let lines = &lines[..];
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (shared, is_over) = (&shared, &is_over);
        scope.spawn(move || watch(lines, shared, plan.client_silence, is_over));
        let lead = || {
            muster(lines, &mut voices, &teams, most)?;
            let (reports, reported) = mpsc::channel();
            let listeners: Vec<_> = lines
                .iter()
                .zip(voices)
                .map(|(line, voice)| {
                    let reports = reports.clone();
                    scope.spawn(move || listen(line, voice, &reports, shared))
                })
                .collect();
            drop(reports);
            let workers = teams.iter().map(|team| team.posts.len()).sum();
            let hands = Hands::Clients { lines, workers };
            let coordinator = Coordinator::new(plan, hands, reported, shared.clone(), classes, clock);
            let result = coordinator.climb(observer);
            lines.iter().for_each(|line| line.order(&Order::End));
            let farewells = listeners.into_iter().map(|listener| listener.join().unwrap_or(None)).collect();
            let mut result = result?;
            for step in &mut result.steps {
                for (usage, line) in step.clients.iter_mut().zip(lines) {
                    usage.clock = line.clock.get().copied();
                    usage.host = line.host.map(str::to_owned);
                }
            }
            Ok(Ran { result, farewells })
        };
        let ran = lead();
        is_over.store(true, Ordering::Release);
        ran
    })
}

/// The workers of each client. On machines of their own, taken to be like this one, each has a worker for each cpu, and the
/// scheduler there places them.
fn teams(plan: &LoadPlan, (clients, are_elsewhere): (usize, bool), sessions: u32, clock: Clock) -> Vec<Team> {
    let (together, cpus, are_shared) = workers_of(plan);
    let usual = if are_elsewhere { cpus.len() } else { together.div_ceil(clients) };
    let each = plan.workers.unwrap_or(usual).clamp(1, sessions as usize / clients);
    let workers = each * clients;
    let cpu = |worker| cpu_of(worker, workers, &cpus, !are_shared);
    let post = |worker| Post { worker, cpu: if are_elsewhere { None } else { cpu(worker) } };
    let team = |client| Team {
        client,
        workers,
        posts: (client..workers).step_by(clients).map(post).collect(),
        ..Team::of(plan, clock)
    };
    (0..clients).map(team).collect()
}

/// Agrees on the clock and has each client make its workers.
fn muster(
    lines: &[Line<'_>],
    voices: &mut [&mut (dyn BufRead + Send + 'static)],
    teams: &[Team],
    sessions: u32,
) -> Result<(), LoadError> {
    for (line, voice) in lines.iter().zip(&mut *voices) {
        agree(line, &mut **voice)?;
    }
    for (line, team) in lines.iter().zip(teams) {
        let sessions = u64::from(sessions).div_ceil(lines.len() as u64);
        line.order(&Order::Team { team: team.clone(), sessions });
    }
    for (line, voice) in lines.iter().zip(voices) {
        match hear(line, &mut **voice)? {
            Answer::Team { refusal: None } => {}
            Answer::Team { refusal: Some(why) } => {
                return Err(LoadError::Plan(format!("{}: {why}", line.name)));
            }
            _ => return Err(LoadError::Worker(format!("{} answered out of turn", line.name))),
        }
    }
    Ok(())
}

fn hear(line: &Line<'_>, voice: &mut dyn BufRead) -> Result<Answer, LoadError> {
    loop {
        match receive(voice) {
            Ok(Some(Answer::Alive)) => line.note_heard(),
            Ok(Some(answer)) => {
                line.note_heard();
                return Ok(answer);
            }
            Ok(None) | Err(_) => return Err(LoadError::Worker(lost(line))),
        }
    }
}

/// What is said of a client that is gone.
fn lost(line: &Line<'_>) -> String {
    line.is_gone.store(true, Ordering::Relaxed);
    format!("{} was lost: {}", line.name, line.process.how_it_ended())
}

/// How far the client's clock agrees with ours: its answer lies between question and arrival.
fn agree(line: &Line<'_>, voice: &mut dyn BufRead) -> Result<(), LoadError> {
    let mut best: Option<ClockAgreement> = None;
    for _ in 0..CLOCK_QUESTIONS {
        let asked = Moment::now();
        line.order(&Order::Clock);
        let Answer::Clock { now: theirs } = hear(line, voice)? else {
            return Err(LoadError::Worker(format!("{} answered out of turn", line.name)));
        };
        let took_ns = Moment::now().nanos_since(asked);
        let middle = asked + Duration::from_nanos(took_ns / 2);
        let offset_ns = theirs.nanos_since(middle) as i64 - middle.nanos_since(theirs) as i64;
        let told = ClockAgreement { offset_ns, within_ns: took_ns.div_ceil(2) };
        if best.is_none_or(|best| told.within_ns < best.within_ns) {
            best = Some(told);
        }
    }
    let best = best.unwrap_or(ClockAgreement { offset_ns: 0, within_ns: 0 });
    if best.within_ns > CLOCK_WITHIN_MAX.as_nanos() as u64 {
        return Err(LoadError::Plan(format!(
            "{} took {:.0} ms to answer at its fastest, so what its clock shows is not known well enough to begin together: \
             it gets no cpu, or the way to it is too slow",
            line.name,
            2.0 * best.within_ns as f64 / 1e6
        )));
    }
    line.clock.get_or_init(|| best);
    Ok(())
}

/// Passes on what a client tells, until it takes its leave.
fn listen(
    line: &Line<'_>,
    voice: &mut dyn BufRead,
    reports: &mpsc::Sender<Report>,
    shared: &Shared,
) -> Option<String> {
    loop {
        let answer = receive(voice);
        line.note_heard();
        match answer {
            Ok(Some(Answer::Report(report))) => {
                // The coordinator is gone only when the load is over.
                let _ = reports.send(report.on_clock(-line.clock_more_ns()));
            }
            Ok(Some(Answer::Ending { reason })) => shared.end_with(reason),
            Ok(Some(Answer::Refusal { text })) => shared.set_last_refusal(text),
            Ok(Some(Answer::Farewell { text })) => {
                line.is_gone.store(true, Ordering::Relaxed);
                return Some(text);
            }
            Ok(Some(Answer::Alive | Answer::Clock { .. } | Answer::Team { .. })) => {}
            Ok(None) | Err(_) => {
                let _ = reports.send(Report::Lost { reason: lost(line) });
                return None;
            }
        }
    }
}

/// Tells clients to halt as soon as the load must, and ends one that has fallen silent: those who listen to it then know.
fn watch(lines: &[Line<'_>], shared: &Shared, silence_max: Duration, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Acquire) {
        let now_ns = Moment::now().nanos_since(Moment::START);
        for line in lines.iter().filter(|line| !line.is_gone.load(Ordering::Relaxed)) {
            let silent_ns = now_ns.saturating_sub(line.heard.load(Ordering::Relaxed));
            if silent_ns > silence_max.as_nanos() as u64 {
                line.is_gone.store(true, Ordering::Relaxed);
                shared.end_with(format!(
                    "{} told nothing for {:.0} s and was ended: it was stopped, or got no cpu",
                    line.name,
                    silence_max.as_secs_f64()
                ));
                line.process.kill();
            } else if shared.must_halt() && !line.is_halted.swap(true, Ordering::Relaxed) {
                line.order(&Order::Halt { reason: shared.reason() });
            }
        }
        std::thread::sleep(LOOK);
    }
}
