//! `plimsoll line`: the highest rate at which a server keeps its promises.
//!
//! A short closed-loop climb finds the peak, then [`stats::line::Search`] says which rates are tried; each is a step of
//! Poisson arrivals on the same server, drained before the next.

mod found;
mod life;
pub mod probe;
mod promise;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use load::{Arrivals, Pacing};
use sandbox::lock::FileLock;
use sandbox::{Home, Profile};
use sha2::{Digest, Sha256};
use stats::line::{Next, Purpose, Rules, Search};
use store::{LineId, LineProbe, LineStart, Store};

use self::found::Seeking;
use self::life::Life;
use self::probe::{REST, Wanted};
use self::promise::{rounded, within_budget};
use crate::error::Error;
use crate::hooks::NoHooks;
use crate::machine::{take_machine, take_results};
use crate::observe::{Event, Observer};
use crate::provision::Data;
use crate::run::Around;
use crate::servers::Server;
use crate::stop::StopSwitch;
use crate::subject::Subject;
use crate::workloads::Resolved;

pub use self::found::{Confirmation, EndedBy, Found, Line, Rate};
pub use self::promise::Promise;

/// What `line` is asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// The workload.
    pub workload: Resolved,
    /// Its options.
    pub options: BTreeMap<String, String>,
    /// The server.
    pub server: Server,
    /// What it is to keep; at least one.
    pub promises: Vec<Promise>,
    /// For climb, probes and confirmations together; provisioning is beside it.
    pub budget: Duration,
    /// How long a line is held.
    pub hold: Duration,
    /// No more sessions than this.
    pub sessions_max: u32,
    /// Worker threads.
    pub workers: Option<usize>,
    /// Variables of a sandbox of its own.
    pub settings: BTreeMap<String, String>,
    /// Durability level of a sandbox of its own.
    pub profile: Option<Profile>,
    /// About tables.
    pub data: Data,
    /// Of everything random.
    pub seed: u64,
    /// Directory of the results: probes are kept there, and a search that was interrupted goes on after the last.
    pub results: PathBuf,
    /// Begin anew although there is an unfinished one.
    pub new: bool,
    /// The command line, without secrets.
    pub command: String,
}

/// Before each probe; with a short budget a hundredth of it.
const WARMUP_S: (f64, f64) = (0.5, 2.0);
/// Half of the interval that is good enough, relative to the rate.
const PRECISION: f64 = 0.025;
/// Each level of the climb; with a short budget a sixtieth of it. A quarter as long before it.
const CLIMB_S: (f64, f64) = (0.5, 2.0);
/// A level that is no faster than the best before it by this factor has reached the peak.
const CLIMB_GAIN: f64 = 1.03;
/// The first rate, as a share of the peak: queues are short there, and most lines are not far.
const START: f64 = 0.7;
/// Rates that are tried, as shares of the peak.
const FLOOR: f64 = 0.01;
const CEILING: f64 = 20.0;
/// Servers that may die under the search.
const DEATHS_MAX: usize = 3;
/// What a sandbox can do at most, for a promise that is refused before one is started.
const RATE_HOPED_TPS: f64 = 10_000.0;
/// The budget is for the climb, a bracket, some probes near the line and the hold.
const BUDGET_MIN: Duration = Duration::from_secs(20);
/// Of sessions beyond those that Little's law asks for.
const HEADROOM: f64 = 1.5;
const SESSIONS_MIN: u32 = 4;
/// Of the time that a session takes for an error promise, which has no limit of its own.
const LIMIT_UNKNOWN: Duration = Duration::from_millis(100);

/// Refuses what cannot be searched for, before a server is started.
///
/// # Errors
/// The budget is too short.
pub fn check(request: &Request) -> Result<(), Error> {
    if request.budget < BUDGET_MIN || request.hold > request.budget / 2 {
        let needed = BUDGET_MIN.max(request.hold * 2);
        return Err(Error::Usage(format!(
            "a search with a hold of {} takes at least {}: give it --budget {}, or a shorter --hold",
            rounded(request.hold.as_secs_f64()),
            rounded(needed.as_secs_f64()),
            rounded(needed.as_secs_f64())
        )));
    }
    within_budget(&request.promises, request.budget, RATE_HOPED_TPS, ", which is a fast server's rate,")
}

/// Searches for the line of each promise.
///
/// # Errors
/// Nothing could be searched for: the request is wrong, there is no such server, or the user stopped it.
pub fn line(
    home: &Home,
    request: &Request,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Found, Error> {
    check(request)?;
    let machine = take_machine(observer, stop)?;
    let cleaned = sandbox::leftovers(home)?;
    if !cleaned.is_empty() {
        observer(Event::Cleaned(&cleaned));
    }
    let subject = Subject::find(home, &request.server, observer)?;
    let mut book = Book::open(request, &subject, observer)?;
    let around = Around { stop, observer, attach: &NoHooks, seat: None };
    let mut life = Life::begin(home, request, &subject, around)?;
    let mut seeking = match climbed(&mut life, request, &mut book, around) {
        Ok(seeking) => seeking,
        Err(error) => {
            life.bury(around);
            return Err(error);
        }
    };
    seeking.warnings.extend(machine.doubt.clone());
    let promises = seeking.searched();
    let mut search = begun(&seeking, &promises);
    while let Next::Probe { rate, seconds, focus, purpose } = search.next() {
        let wanted = Wanted {
            pacing: Pacing::Open { rate_tps: rate, arrivals: Arrivals::Poisson },
            sessions: sessions(request, rate),
            warmup: warmup(request),
            length: Duration::from_secs_f64(seconds),
            purpose,
            seed: book.seed ^ ((seeking.probes.len() as u64 + 1) << 32),
            workers: request.workers,
        };
        let began = Instant::now();
        let kept = match life.probe(&promises, wanted, around) {
            Ok(tried) => found::kept((rate, focus), &wanted, &promises, request.sessions_max, &tried),
            Err(error @ (Error::Interrupted | Error::Usage(_))) => {
                life.bury(around);
                return Err(error);
            }
            Err(error) => found::lost((rate, focus), &wanted, began.elapsed(), &error),
        };
        book.add(&kept)?;
        match found::searched(&kept) {
            Some(probe) => search.record(probe),
            None => search.spend(kept.took_s),
        }
        observer(Event::Doing(&told(&kept, &search, &promises)));
        let is_lost = kept.error.is_some();
        seeking.probes.push(kept);
        if seeking.deaths() >= DEATHS_MAX {
            life.bury(around);
            book.finish()?;
            return Ok(seeking.found(&subject, Some(&search), Vec::new()));
        }
        if is_lost && life.is_over() {
            life.bury(around);
            life = Life::begin(home, request, &subject, around)?;
        }
    }
    let wrong = life.end(around)?;
    book.finish()?;
    Ok(seeking.found(&subject, Some(&search).filter(|_| !promises.is_empty()), wrong))
}

/// The climb, made now or taken from an unfinished search with the probes after it.
fn climbed<'a>(
    life: &mut Life<'_>,
    request: &'a Request,
    book: &mut Book,
    around: Around<'_>,
) -> Result<Seeking<'a>, Error> {
    let mut kept = std::mem::take(&mut book.probes).into_iter();
    let climb = match kept.next() {
        Some(climb) => climb,
        None => {
            let climb = climb(life, request, around)?;
            book.add(&climb)?;
            climb
        }
    };
    let seeking = Seeking { request, climb, probes: kept.collect(), warnings: Vec::new() };
    within_budget(&seeking.searched(), request.budget, seeking.climb.rate, ", its peak,")?;
    Ok(seeking)
}

/// The search after the probes that there are.
fn begun(seeking: &Seeking<'_>, promises: &[Promise]) -> Search {
    let lost = seeking.probes.iter().filter(|probe| probe.error.is_some());
    let spent_s = seeking.climb.took_s + lost.map(|probe| probe.took_s).sum::<f64>();
    let probes = seeking.probes.iter().filter_map(found::searched).collect();
    Search::new(rules(seeking.request, promises, seeking.climb.rate), probes, spent_s)
}

/// Where the probes are kept.
struct Book {
    store: Store,
    id: LineId,
    seed: u64,
    /// Those that are there already.
    probes: Vec<LineProbe>,
    count: usize,
    _results: FileLock,
}

impl Book {
    /// Finds the unfinished search for the same, or begins one.
    fn open(request: &Request, subject: &Subject, observer: Observer<'_>) -> Result<Book, Error> {
        let mut store = Store::open(&request.results)?;
        let results = take_results(&request.results)?;
        let fingerprint = fingerprint(request, subject);
        let known =
            store.line_searches()?.into_iter().rev().find(|known| known.start.fingerprint == fingerprint);
        if let Some(known) = known.filter(|known| !known.is_over && !request.new) {
            let count = known.probes.len();
            if count > 0 {
                observer(Event::Doing(&format!("going on after {count} probes of an unfinished search")));
            }
            let seed = known.start.seed;
            return Ok(Book { store, id: known.id, seed, probes: known.probes, count, _results: results });
        }
        let start = LineStart {
            fingerprint,
            command: request.command.clone(),
            started_at_ms: load::time::unix_ms(),
            seed: request.seed,
        };
        let id = store.begin_line(&start)?;
        Ok(Book { store, id, seed: request.seed, probes: Vec::new(), count: 0, _results: results })
    }

    fn add(&mut self, probe: &LineProbe) -> Result<(), Error> {
        self.store.add_line_probe(self.id, self.count, probe)?;
        self.count += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Error> {
        Ok(self.store.finish_line(self.id)?)
    }
}

/// What two searches have to have in common for one to go on with the other.
fn fingerprint(request: &Request, subject: &Subject) -> String {
    let promises: Vec<&str> = request.promises.iter().map(|promise| promise.text.as_str()).collect();
    let asked = format!(
        "{}\n{:?}\n{}\n{:?}\n{:?}\n{:?} {:?}\n{} {:?}\n{:?} {:?}",
        subject.name(),
        subject.build().map(|build| &build.identity),
        request.workload.name(),
        request.workload.content_sha256(),
        request.options,
        promises,
        request.budget,
        request.sessions_max,
        request.hold,
        request.settings,
        request.profile,
    );
    let hash = Sha256::digest(asked.as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn warmup(request: &Request) -> Duration {
    Duration::from_secs_f64((request.budget.as_secs_f64() / 100.0).clamp(WARMUP_S.0, WARMUP_S.1))
}

fn rules(request: &Request, promises: &[Promise], peak_tps: f64) -> Rules {
    Rules {
        allowed: promises.iter().map(Promise::allowed).collect(),
        budget_s: request.budget.as_secs_f64(),
        hold_s: request.hold.as_secs_f64(),
        warmup_s: warmup(request).as_secs_f64(),
        rest_s: 2.0 * REST.as_secs_f64(),
        precision: PRECISION,
        start: START * peak_tps,
        floor: FLOOR * peak_tps,
        ceiling: CEILING * peak_tps,
    }
}

/// So many as are busy when all transactions take as long as the longest limit lets them (Little's law), and half as
/// many again: with all of them busy, whoever arrives breaks the promise wherever he waits.
fn sessions(request: &Request, rate_tps: f64) -> u32 {
    let limit = request.promises.iter().filter_map(Promise::limit).max().unwrap_or(LIMIT_UNKNOWN);
    let needed = (HEADROOM * rate_tps * limit.as_secs_f64()).ceil();
    (needed.min(f64::from(u32::MAX)) as u32).max(SESSIONS_MIN).min(request.sessions_max)
}

/// Session counts 1, 2, 4 .. in a closed loop, until more of them are no faster.
fn climb(life: &mut Life<'_>, request: &Request, around: Around<'_>) -> Result<LineProbe, Error> {
    let began = Instant::now();
    let mut peak: Option<LineProbe> = None;
    let mut broken = Vec::new();
    let (mut best, mut since) = (0.0f64, 0);
    let part_s = request.budget.as_secs_f64() / 60.0;
    let length = Duration::from_secs_f64(part_s.clamp(CLIMB_S.0, CLIMB_S.1));
    let mut sessions = 1;
    while sessions <= request.sessions_max && since < 2 {
        let wanted = Wanted {
            pacing: Pacing::Closed,
            sessions,
            warmup: length / 4,
            length,
            purpose: Purpose::Hold,
            seed: request.seed ^ u64::from(sessions),
            workers: request.workers,
        };
        let tried = life.probe(&[], wanted, around)?;
        let tps = found::tps(&tried.step);
        since = if tps > CLIMB_GAIN * best { 0 } else { since + 1 };
        best = best.max(tps);
        if sessions == 1 {
            broken =
                request.promises.iter().map(|promise| found::broken_alone(promise, &tried.step)).collect();
        }
        if peak.as_ref().is_none_or(|peak| tps > peak.rate) {
            peak = Some(found::kept((tps, 0), &wanted, &[], request.sessions_max, &tried));
        }
        sessions *= 2;
    }
    let Some(peak) = peak.filter(|peak| peak.rate > 0.0) else {
        return Err(Error::Run(
            "no transaction was committed in the climb: `plimsoll bench` shows why".into(),
        ));
    };
    Ok(LineProbe { purpose: "climb".into(), took_s: began.elapsed().as_secs_f64(), broken, ..peak })
}

/// A probe in a line, with what is known of the lines after it.
fn told(rate: &LineProbe, search: &Search, promises: &[Promise]) -> String {
    let shown = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), |rate| format!("{rate:.0}"));
    let lines: Vec<String> = search
        .answers()
        .iter()
        .zip(promises)
        .map(|(answer, promise)| format!("{}: {} to {}", promise.text, shown(answer.low), shown(answer.high)))
        .collect();
    if let Some(error) = &rate.error {
        return format!("the server was lost at {:.0}/s offered: {error}", rate.rate);
    }
    let purpose = if rate.purpose == "hold" { "held" } else { "tried" };
    let p99 = rate.p99_ms.map_or_else(String::new, |p99| format!(", p99 {p99:.1} ms"));
    format!("{purpose} {:.0}/s for {:.0} s{p99}; line of {}", rate.rate, rate.seconds, lines.join("; "))
}
