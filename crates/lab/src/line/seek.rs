//! A search on the server of a run, kept probe by probe.

use std::path::Path;
use std::time::{Duration, Instant};

use load::{Arrivals, LoadPlan, LoadResult, Pacing};
use stats::line::{Next, Purpose, Search};
use store::{LineFound, LineId, LineProbe, LineStart, Store};
use telemetry::drain;
use workload::Ran;

use super::found::{self, Seeking};
use super::probe::{Tried, Wanted, probe};
use super::promise::within_budget;
use super::{Asked, Debt, Promise};
use crate::clients::Clients;
use crate::error::Error;
use crate::observe::Event;
use crate::progress::{Detail, Progress};
use crate::provision::Provisioned;
use crate::recording::Recording;
use crate::replicas;
use crate::run::{Around, add, only_reads, run_load};
use crate::watch::DRAIN_LIMIT;

/// A run that is a search.
pub(crate) struct LineOrder<'a> {
    pub(crate) asked: &'a Asked,
    pub(crate) results: &'a Path,
    /// Of the same search, whichever run makes it: what an interrupted one is found again by.
    pub(crate) fingerprint: String,
    /// The command line, without secrets.
    pub(crate) command: &'a str,
    /// Begin anew although there is an unfinished one.
    pub(crate) is_new: bool,
    /// What searches of earlier lives found, where there were some.
    pub(crate) earlier: Option<Earlier>,
    pub(crate) seed: u64,
}

/// What is known of a cell by searches of its earlier lives: where the next one begins, which so has most of its time for
/// rates near the line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Earlier {
    /// Transactions per second that the first promise's line had; the middle of several.
    pub(crate) line_tps: f64,
    /// Sessions at the peak of the closed loop.
    pub(crate) peak_sessions: u32,
}

/// What a search came to on this server.
pub(crate) struct Sought {
    /// The level that stands for it.
    pub(crate) result: LoadResult,
    /// What all of it did to the tables.
    pub(crate) ran: Ran,
    pub(crate) found: LineFound,
}

/// Servers that may die under the search.
pub(super) const DEATHS_MAX: usize = 3;
/// A level of the climb that is no faster than the best before it by this factor has reached the peak.
const CLIMB_GAIN: f64 = 1.03;
/// Where all was known before this server's life: so long the line is held on it.
const HELD_AGAIN: Duration = Duration::from_secs(5);

/// Whether a run of this search ended with a server that did not last, and another life is to go on with it.
pub(crate) fn goes_on(order: &LineOrder<'_>) -> Result<bool, Error> {
    let known = Store::open(order.results)?.last_line(&order.fingerprint)?;
    let is_lost = |probe: &LineProbe| probe.error.is_some();
    Ok(known.is_some_and(|known| {
        let deaths = known.probes.iter().filter(|probe| is_lost(probe)).count();
        !known.is_over && known.probes.last().is_some_and(is_lost) && deaths < DEATHS_MAX
    }))
}

/// Where the probes are kept.
struct Book {
    store: Store,
    id: LineId,
    seed: u64,
    /// Those that are there already.
    probes: Vec<LineProbe>,
    count: usize,
}

impl Book {
    /// Finds the unfinished search for the same, or begins one.
    fn open(order: &LineOrder<'_>, around: Around<'_>) -> Result<Book, Error> {
        // A connection of its own: the run's is in use where its seconds are recorded.
        let mut store = Store::open(order.results)?;
        let known = store.last_line(&order.fingerprint)?;
        if let Some(known) = known.filter(|known| !known.is_over && !order.is_new) {
            let count = known.probes.len();
            if count > 0 {
                let text = format!("going on after {count} probes of an unfinished search");
                (around.observer)(Event::Doing(&text));
            }
            return Ok(Book { store, id: known.id, seed: known.start.seed, probes: known.probes, count });
        }
        let start = LineStart {
            fingerprint: order.fingerprint.clone(),
            command: order.command.to_owned(),
            started_at_ms: load::time::unix_ms(),
            seed: order.seed,
        };
        let id = store.begin_line(&start)?;
        Ok(Book { store, id, seed: order.seed, probes: Vec::new(), count: 0 })
    }

    fn add(&mut self, probe: &LineProbe) -> Result<(), Error> {
        self.store.add_line_probe(self.id, self.count, probe)?;
        self.count += 1;
        Ok(())
    }
}

/// How well a level stands for the whole search.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
enum Rank {
    /// The closed loop at so many transactions per second: of a server that keeps no promise there is nothing else.
    Climb(f64),
    Tried,
    Kept,
    Held,
    /// The first promise's line, held.
    Line,
}

/// A search on a server.
struct Searching<'a, 'b> {
    order: &'a LineOrder<'a>,
    /// Worker threads, cpus, retries of all probes.
    base: &'a LoadPlan,
    server: &'a Provisioned<'b>,
    /// The processes that have the sessions; `None`: this one.
    clients: Option<&'a mut Clients>,
    around: Around<'a>,
    result: LoadResult,
    ran: Ran,
    rank: Option<Rank>,
    /// Of the last probe's time, what other sides of a duel had of it.
    of_others: Duration,
    drains: Drains,
}

/// The debt that was paid before rates.
#[derive(Debug, Default)]
struct Drains {
    count: usize,
    unfinished: usize,
    took: Duration,
}

/// Searches on `server`, and leaves in `recording` the level that stands for the search, and which search it is.
///
/// # Errors
/// The server was lost (the probe says so in the results file), the promises cannot be searched for at its peak, a client
/// process was lost, or the user stopped it. `lost` is what was found all the same, where no further server is to be tried.
pub(crate) fn seek(
    order: &LineOrder<'_>,
    base: &LoadPlan,
    (server, clients): (&Provisioned<'_>, Option<&mut Clients>),
    recording: &mut Recording<'_>,
    around: Around<'_>,
    lost: &mut Option<LineFound>,
) -> Result<Sought, Error> {
    let mut book = Book::open(order, around)?;
    recording.end.line = Some(book.id);
    let (ran, result) = (Ran::default(), LoadResult::default());
    let (rank, of_others, drains) = (None, Duration::ZERO, Drains::default());
    let mut on = Searching { order, base, server, clients, around, result, ran, rank, of_others, drains };
    let mut seeking = on.climbed(&mut book, recording)?;
    let promises = seeking.searched();
    let mut search = begun(&seeking, &promises, order.earlier);
    while let Next::Probe { rate, seconds, focus, purpose } = search.next() {
        take_turn(around);
        let rate = on.at_the_same_depth(&search, (rate, seconds, focus, purpose));
        let wanted = Wanted {
            held: (purpose == Purpose::Hold).then_some(focus),
            ..on.wanted(rate, Duration::from_secs_f64(seconds), purpose, book.seed, book.count)
        };
        let began = Instant::now();
        let tried = on.drained(recording).and_then(|drained| {
            let (mut tried, steps) = on.probe(&promises, wanted, recording)?;
            tried.took += drained;
            Ok((tried, steps))
        });
        let took = began.elapsed().saturating_sub(on.of_others);
        pass_turn((around, server), recording);
        let kept = match &tried {
            Ok((tried, steps)) => {
                let seen = (tried, steps.first());
                found::kept((rate, focus), &wanted, &promises, order.asked.sessions_max, seen)
            }
            // No word about the server: there is no probe to keep.
            Err(Error::Interrupted | Error::Usage(_) | Error::Run(_)) => {
                return Err(tried.err().unwrap_or(Error::Interrupted));
            }
            Err(error) => found::lost((rate, focus), &wanted, took, error),
        };
        book.add(&kept)?;
        let searched = found::searched(&kept);
        let is_kept = searched.as_ref().is_some_and(|probe| {
            focus == 0 && !probe.is_overloaded && probe.seen[0].total.share() <= promises[0].allowed()
        });
        match searched {
            Some(probe) => search.record(probe),
            None => search.spend(kept.took_s),
        }
        (around.observer)(Event::Doing(&found::told(&kept, &search, &promises)));
        seeking.probes.push(kept);
        match tried {
            Ok((tried, steps)) => {
                let rank = match purpose {
                    Purpose::Hold if is_kept => Rank::Line,
                    Purpose::Hold => Rank::Held,
                    _ if is_kept => Rank::Kept,
                    _ => Rank::Tried,
                };
                on.stand(rank, tried, steps, recording);
            }
            Err(error) => {
                *lost = (seeking.deaths() >= DEATHS_MAX).then(|| seeking.found(Some(&search)));
                return Err(error);
            }
        }
    }
    let found = seeking.found(Some(&search).filter(|_| !promises.is_empty()));
    if on.rank.is_none() {
        on.hold_again(&seeking, &found, &promises, &mut book, recording)?;
    }
    if let Some(seat) = around.seat {
        seat.rest();
    }
    Ok(Sought { result: on.result, ran: on.ran, found })
}

impl<'a> Searching<'a, '_> {
    fn wanted(&self, rate: f64, length: Duration, purpose: Purpose, seed: u64, number: usize) -> Wanted {
        let asked = self.order.asked;
        let is_in_turns = self.around.seat.is_some() && purpose != Purpose::Hold;
        let (parts, length, part_warmup) =
            if is_in_turns { asked.turns(length) } else { (1, length, Duration::ZERO) };
        Wanted {
            pacing: Pacing::Open { rate_tps: rate, arrivals: Arrivals::Poisson },
            // Each client has at least one.
            sessions: asked.sessions(rate).max(self.clients.as_ref().map_or(1, |clients| clients.count())),
            warmup: asked.warmup(),
            length,
            parts,
            part_warmup,
            purpose,
            held: None,
            seed: seed ^ ((number as u64) << 32),
        }
    }

    /// In a duel, where both are near their lines, the other sides of a round try the same fraction of their own
    /// estimates: what the machine does to one it does to the others.
    fn at_the_same_depth(&self, search: &Search, next: (f64, f64, usize, Purpose)) -> f64 {
        let (rate, seconds, focus, purpose) = next;
        match (self.around.seat, search.estimate(focus)) {
            (Some(seat), Some(estimate)) if purpose == Purpose::Refine => {
                let (turns, ..) = self.order.asked.turns(Duration::from_secs_f64(seconds));
                seat.depth(focus, rate / estimate, turns) * estimate
            }
            _ => rate,
        }
    }

    /// Tries a rate; gives with it the level as it is recorded.
    fn probe(
        &mut self,
        promises: &[Promise],
        wanted: Wanted,
        recording: &mut Recording<'_>,
    ) -> Result<(Tried, Vec<store::Step>), Error> {
        let (around, server, clients) = (self.around, self.server, &mut self.clients);
        let (observer, began) = (around.observer, recording.began);
        let mut progress = Progress::new(Detail::Held);
        let (mut offset_s, of_others) = (None, &mut self.of_others);
        *of_others = Duration::ZERO;
        let told = &mut |event: &load::Event<'_>| {
            if matches!(event, load::Event::StepStarted { index, .. } if *index > 0) {
                let passed = Instant::now();
                pass_turn((around, server), recording);
                take_turn(around);
                *of_others += passed.elapsed();
            }
            recording.hooks.iter_mut().for_each(|hook| hook.event(event));
            // Nothing leaves the memory before the run ends: it cannot fail.
            let _ = progress.event(event, Vec::new);
            match *event {
                load::Event::StepStarted { index: 0, step } => {
                    offset_s = Some((began.elapsed() + step.warmup).as_secs_f64());
                    let length = Some(wanted.warmup + wanted.length);
                    observer(Event::StepStarted { sessions: step.sessions, length });
                }
                load::Event::Interval { interval, .. } => {
                    observer(Event::Interval { sessions: wanted.sessions, interval });
                }
                load::Event::Warning(text) => observer(Event::Warning(text)),
                load::Event::StepStarted { .. }
                | load::Event::Connected { .. }
                | load::Event::StepEnded { .. } => {}
            }
        };
        let names = server.made.configured.statement_classes();
        let run = &mut |plan: &LoadPlan, told: &mut dyn FnMut(load::Event<'_>), stop: &load::Stop| {
            run_load(plan, wanted.seed, server, clients.as_deref_mut(), told, stop)
        };
        let tried = probe((run, &names), self.base, promises, wanted, told, around.stop);
        let mut tried = tried.map_err(|error| match (&self.clients, error) {
            // A fault of the measurement, and not how the server behaves.
            (Some(clients), Error::Server(text)) if clients.is_one_lost() => Error::Run(text),
            (_, error) => error,
        })?;
        tried.took = tried.took.saturating_sub(self.of_others);
        self.ran = add(self.ran, tried.ran);
        progress.splice(&[vec![true; wanted.parts as usize]]);
        let result = LoadResult { steps: vec![tried.step.clone()], interrupted: false };
        let steps = progress.steps(&[wanted.step()], &result, offset_s.as_slice());
        Ok((tried, steps))
    }

    /// Before a rate: where the debt of those before it is not to count, the server pays it. Gives how long that took.
    fn drained(&mut self, recording: &mut Recording<'_>) -> Result<Duration, Error> {
        // A probe that does not begin, as the server is lost while it pays, waits for no other side.
        self.of_others = Duration::ZERO;
        if self.order.asked.debt == Debt::Counted {
            return Ok(Duration::ZERO);
        }
        let (server, observer) = (self.server, self.around.observer);
        let terms = drain::Terms {
            limit: DRAIN_LIMIT,
            is_ours: server.sandbox().is_some(),
            is_cold: false,
            only_reads: only_reads(&server.made.configured.statements()),
            datadir: server.sandbox().map(|sandbox| sandbox.datadir()),
            told: &|text| observer(Event::Doing(text)),
        };
        let drained =
            drain::drain(&server.target, &terms).map_err(|error| Error::Server(error.to_string()))?;
        let Drains { count, unfinished, took } = &mut self.drains;
        *count += 1;
        *unfinished += usize::from(drained.is_unfinished);
        *took += drained.took;
        let text = format!(
            "before {count} rates, {:.1} s in all; not to its end before {unfinished} of them",
            took.as_secs_f64()
        );
        recording.end.facts.insert("drained/between rates".to_owned(), text);
        Ok(drained.took)
    }

    /// The level stands for the search, unless a better one does.
    fn stand(&mut self, rank: Rank, tried: Tried, steps: Vec<store::Step>, recording: &mut Recording<'_>) {
        if self.rank.is_none_or(|known| known <= rank) {
            self.rank = Some(rank);
            self.result = LoadResult { steps: vec![tried.step], interrupted: false };
            recording.end.steps = steps;
        }
    }

    /// The climb, made now or taken from an unfinished search with the probes after it.
    fn climbed(&mut self, book: &mut Book, recording: &mut Recording<'_>) -> Result<Seeking<'a>, Error> {
        let mut kept = std::mem::take(&mut book.probes).into_iter();
        let climb = match kept.next() {
            Some(climb) => climb,
            None => {
                let climb = self.climb(recording)?;
                book.add(&climb)?;
                climb
            }
        };
        let asked = self.order.asked;
        let seeking = Seeking { asked, climb, probes: kept.collect() };
        within_budget(&seeking.searched(), asked.budget, seeking.climb.rate, ", its peak,")?;
        Ok(seeking)
    }

    /// Session counts 1, 2, 4 .. in a closed loop, until more of them are no faster; only that of the peak, where earlier lives
    /// had one. All promises had a line there, so that one session breaks none.
    fn climb(&mut self, recording: &mut Recording<'_>) -> Result<LineProbe, Error> {
        let asked = self.order.asked;
        let mut peak: Option<LineProbe> = None;
        let mut broken = vec![None; asked.promises.len()];
        let mut seen = vec![0; asked.promises.len()];
        let (mut best, mut since, mut took_s) = (0.0f64, 0, 0.0);
        let length = asked.climb_level();
        let (first, last) = match self.order.earlier {
            Some(Earlier { peak_sessions, .. }) => (peak_sessions, peak_sessions),
            None => (1, asked.sessions_max),
        };
        let mut sessions = first;
        while sessions <= last && since < 2 {
            let wanted = Wanted {
                pacing: Pacing::Closed,
                sessions,
                warmup: length / 4,
                length,
                parts: 1,
                part_warmup: Duration::ZERO,
                purpose: Purpose::Hold,
                held: None,
                seed: self.order.seed ^ u64::from(sessions),
            };
            take_turn(self.around);
            let began = Instant::now();
            let tried = self.probe(&[], wanted, recording);
            took_s += began.elapsed().as_secs_f64();
            pass_turn((self.around, self.server), recording);
            let (tried, steps) = tried?;
            let tps = found::tps(&tried.step);
            since = if tps > CLIMB_GAIN * best { 0 } else { since + 1 };
            best = best.max(tps);
            for (seen, promise) in seen.iter_mut().zip(&asked.promises) {
                *seen += promise.of_step(&tried.step).transactions;
            }
            if sessions == 1 {
                broken =
                    asked.promises.iter().map(|promise| found::broken_alone(promise, &tried.step)).collect();
            }
            if peak.as_ref().is_none_or(|peak| tps > peak.rate) {
                peak = Some(found::kept((tps, 0), &wanted, &[], asked.sessions_max, (&tried, steps.first())));
            }
            self.stand(Rank::Climb(tps), tried, steps, recording);
            sessions *= 2;
        }
        let Some(peak) = peak.filter(|peak| peak.rate > 0.0) else {
            return Err(Error::Run(
                "no transaction was committed in the climb: `plimsoll bench` shows why".into(),
            ));
        };
        // A class that the workload's options leave out, or that is rare, says neither that its promise is kept nor that it is not.
        let mut unmet = Vec::new();
        for (at, (promise, seen)) in asked.promises.iter().zip(seen).enumerate() {
            if seen == 0 {
                unmet.push(at);
                broken[at] = Some(format!(
                    "{} was not looked at: the climb met no such transaction in {took_s:.0} s; a larger budget (--budget, \
                     budget) makes it longer",
                    promise.text
                ));
            }
        }
        Ok(LineProbe { purpose: "climb".into(), took_s, broken, unmet, ..peak })
    }

    /// A search that was over before this server's life has nothing of it yet.
    fn hold_again(
        &mut self,
        seeking: &Seeking<'_>,
        found: &LineFound,
        promises: &[Promise],
        book: &mut Book,
        recording: &mut Recording<'_>,
    ) -> Result<(), Error> {
        let line = found.lines.iter().find_map(|line| line.line_tps);
        let rate = line.unwrap_or(seeking.climb.rate);
        let mut wanted = self.wanted(rate, HELD_AGAIN, Purpose::Hold, book.seed, book.count);
        if line.is_none() {
            (wanted.pacing, wanted.sessions) = (Pacing::Closed, seeking.climb.sessions);
        }
        take_turn(self.around);
        let tried = self.probe(promises, wanted, recording);
        pass_turn((self.around, self.server), recording);
        let (tried, steps) = tried?;
        self.stand(Rank::Held, tried, steps, recording);
        Ok(())
    }
}

/// In a duel one server is loaded at a time.
fn take_turn(around: Around<'_>) {
    if let Some(seat) = around.seat {
        seat.take(&|| around.stop.is_requested());
    }
}

/// The next probe, or another side's, begins when the replicas have nothing left to do.
fn pass_turn((around, server): (Around<'_>, &Provisioned<'_>), recording: &mut Recording<'_>) {
    if !server.replicas_rest(around.stop) && recording.end.warn(replicas::LATE.to_owned()) {
        (around.observer)(Event::Warning(replicas::LATE));
    }
    if let Some(seat) = around.seat {
        seat.pass();
    }
}

/// The search after the probes that there are.
fn begun(seeking: &Seeking<'_>, promises: &[Promise], earlier: Option<Earlier>) -> Search {
    let lost = seeking.probes.iter().filter(|probe| probe.error.is_some());
    let spent_s = seeking.climb.took_s + lost.map(|probe| probe.took_s).sum::<f64>();
    let probes = seeking.probes.iter().filter_map(found::searched).collect();
    let start_tps = earlier.map(|earlier| earlier.line_tps);
    Search::new(seeking.asked.rules(promises, seeking.climb.rate, start_tps), probes, spent_s)
}
