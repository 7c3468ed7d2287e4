//! The client: workers of its own, which do what the leader says.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Answer, Order, receive, send};
use crate::hands::Link;
use crate::memory;
use crate::recording::IntervalData;
use crate::run::{Stop, Team, lacking_descriptors, man};
use crate::session::SessionFactory;
use crate::state::{Shared, StepShared};
use crate::time::Moment;
use crate::usage::ProcessCpu;
use crate::worker::{Command, Report};

/// How often a client looks whether it has something to tell by itself, and after how many looks it says that it is alive.
const LOOK: Duration = Duration::from_millis(50);
const LOOKS_ALIVE: u32 = 10;

/// What a client serves a load with.
pub struct Serving<'a> {
    /// Makes its sessions.
    pub factory: &'a dyn SessionFactory,
    /// What there is to say when all sessions are gone.
    pub farewell: &'a dyn Fn() -> String,
    /// The leader is gone: nobody wants the load any more. A process ends itself here.
    pub abandoned: &'a (dyn Fn() + Sync),
}

/// Serves one load: does what the leader says until that is over.
///
/// # Errors
/// The leader is gone and [`Serving::abandoned`] came back, or the workers could not be started.
pub fn serve(
    serving: &Serving<'_>,
    orders: &mut dyn BufRead,
    answers: &mut (dyn Write + Send),
) -> io::Result<()> {
    let (team, sessions) = loop {
        match receive(orders)? {
            Some(Order::Clock) => send(&Answer::Clock { now: Moment::now() }, answers)?,
            Some(Order::Team { team, sessions }) => break (team, sessions),
            // The load came to nothing before it had workers.
            Some(Order::End) => break (Team::default(), 0),
            Some(Order::Halt { .. }) => {}
            Some(_) => return Err(io::Error::other("an order came before there were workers")),
            None => return Err(left(serving.abandoned)),
        }
    };
    let refusal = lacking_descriptors(&team, sessions)?;
    send(&Answer::Team { refusal }, answers)?;
    memory::grow_in_huge_pages();
    let voice = Voice {
        answers: Mutex::new(answers),
        shared: Arc::new(Shared::new(Stop::new())),
        told: Mutex::default(),
        step: Mutex::new(None),
        abandoned: serving.abandoned,
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (reports, reported) = channel();
        let links = man(scope, &team, &voice.shared, serving.factory, &reports);
        drop(reports);
        let links = links.map_err(|error| io::Error::other(error.to_string()))?;
        let spares: Vec<_> = links.iter().map(|link| link.spares.clone()).collect();
        let (voice, team, is_over) = (&voice, &team, &is_over);
        let relay = scope.spawn(move || voice.relay(team, &reported, &spares));
        scope.spawn(move || voice.keep_alive(is_over));
        // The workers end with their links.
        let obeyed = voice.obey(orders, links);
        let relayed = relay.join().unwrap_or_else(|_| Err(io::Error::other("the relay panicked")));
        is_over.store(true, Ordering::Release);
        obeyed.and(relayed)
    })?;
    let text = (serving.farewell)();
    voice.say(&Answer::Farewell { text })
}

fn left(abandoned: &dyn Fn()) -> io::Error {
    abandoned();
    io::ErrorKind::BrokenPipe.into()
}

/// A client while it serves.
struct Voice<'a> {
    answers: Mutex<&'a mut (dyn Write + Send)>,
    shared: Arc<Shared>,
    /// What the leader knows: why the load ends, and why a connection could not be opened.
    told: Mutex<(Option<String>, Option<String>)>,
    /// What the workers share in the present step.
    step: Mutex<Option<Arc<StepShared>>>,
    abandoned: &'a (dyn Fn() + Sync),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Voice<'_> {
    fn say(&self, answer: &Answer) -> io::Result<()> {
        send(answer, &mut **lock(&self.answers)).map_err(|_| self.left())
    }

    /// The leader is gone: a step that is under way ends.
    fn left(&self) -> io::Error {
        self.shared.stop.request();
        left(self.abandoned)
    }

    /// Passes the leader's orders on.
    fn obey(&self, orders: &mut dyn BufRead, links: Vec<Link>) -> io::Result<()> {
        loop {
            match receive(orders)? {
                Some(Order::Connect { sessions, ramp }) => {
                    links.iter().for_each(|link| link.command(Command::Connect { sessions, ramp }));
                }
                Some(Order::Begin { timeline, quota, shares }) => {
                    let shared = Arc::new(StepShared::new(quota, links.len() as u32));
                    *lock(&self.step) = Some(shared.clone());
                    for (link, share) in links.iter().zip(shares) {
                        link.command(Command::Begin { timeline, shared: shared.clone(), share });
                    }
                }
                Some(Order::Halt { reason: Some(reason) }) => self.shared.end_with(reason),
                Some(Order::Halt { reason: None }) => self.shared.stop.request(),
                Some(Order::Clock) => self.say(&Answer::Clock { now: Moment::now() })?,
                Some(Order::End) => {
                    // A load that ends in the middle of a step: another client was lost.
                    self.shared.stop.request();
                    return Ok(());
                }
                Some(Order::Team { .. }) => return Err(io::Error::other("a second set of workers")),
                None => return Err(self.left()),
            }
        }
    }

    /// Passes on what the workers tell.
    fn relay(
        &self,
        team: &Team,
        reported: &Receiver<Report>,
        spares: &[Sender<Box<IntervalData>>],
    ) -> io::Result<()> {
        let clients = team.workers / team.posts.len().max(1);
        let mut ready = Vec::new();
        let mut done = 0;
        for report in reported {
            self.tell_news()?;
            match report {
                Report::Interval { worker, data } => {
                    let report = Answer::Report(Report::Interval { worker, data });
                    self.say(&report)?;
                    if let Answer::Report(Report::Interval { mut data, .. }) = report {
                        data.clear();
                        let _ = spares[worker / clients].send(data);
                    }
                }
                Report::Connected { .. } => {
                    ready.push(report);
                    if ready.len() == team.posts.len() {
                        // All that the sessions allocate is there, and none of them is running.
                        memory::gather();
                        ready.drain(..).try_for_each(|report| self.say(&Answer::Report(report)))?;
                    }
                }
                Report::Done { .. } => {
                    done += 1;
                    if done == team.posts.len() {
                        done = 0;
                        self.tell_cpu(team.client)?;
                    }
                    self.say(&Answer::Report(report))?;
                }
                Report::Lost { .. } | Report::Warning(_) | Report::Cpu { .. } => {
                    self.say(&Answer::Report(report))?;
                }
            }
        }
        Ok(())
    }

    /// What the process used in the measured phase.
    fn tell_cpu(&self, client: usize) -> io::Result<()> {
        let used = lock(&self.step).as_ref().and_then(|step| step.used());
        let report = |used: ProcessCpu| self.say(&Answer::Report(Report::Cpu { client, used }));
        used.map_or(Ok(()), report)
    }

    /// Tells what sessions have met that concerns all clients.
    fn tell_news(&self) -> io::Result<()> {
        let mut told = lock(&self.told);
        let (reason, refusal) = (self.shared.reason(), self.shared.last_refusal());
        if let Some(reason) = reason.clone().filter(|_| told.0 != reason) {
            self.say(&Answer::Ending { reason })?;
        }
        if let Some(text) = refusal.clone().filter(|_| told.1 != refusal) {
            self.say(&Answer::Refusal { text })?;
        }
        *told = (reason, refusal);
        Ok(())
    }

    fn keep_alive(&self, is_over: &AtomicBool) {
        for look in 0u32.. {
            if is_over.load(Ordering::Acquire) || self.tell_news().is_err() {
                return;
            }
            if look.is_multiple_of(LOOKS_ALIVE) && self.say(&Answer::Alive).is_err() {
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}
