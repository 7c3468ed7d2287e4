//! The durability audit: what is left of acknowledged transactions when the server's process is killed, and when the
//! power goes.
//!
//! Sessions commit numbered transactions and note each acknowledged one outside of the server. At a random moment the
//! server gets SIGKILL, or its disk is cut off ([`power`]); then it is started again on what is left, and the ledger is
//! compared with the notes: acknowledged transactions that are gone, transactions of which a part is there, and sums
//! that no longer agree.
//!
//! What it does not prove: that nothing can be lost. It finds losses that happen within its rounds, and says how likely
//! a loss can still be when none was found.

mod disk;
mod ledger;
pub mod power;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandbox::{Build, Durability, Flavor, Home, Profile, Sandbox, Selector, Settings, Spec, Storage};
use serde::Serialize;
pub use stats::binomial::CONFIDENCE;
use store::{AuditId, AuditPromise, AuditStart, Store};
pub use store::{
    AuditKind as Kind, AuditRound as Round, AuditUnflushed as Unflushed, AuditVerdict as Verdict,
};

use self::ledger::{Findings, Ledger};
use self::power::{PowerDisk, PrivateMounts};
use crate::error::Error;
use crate::machine::take_for_measuring;
use crate::observe::{Event, Observer};
use crate::record;
use crate::stop::StopSwitch;
use crate::subject::sandbox_name;

#[derive(Debug, Clone)]
pub struct Request {
    pub server: Selector,
    /// Durability level to start from.
    pub profile: Option<Profile>,
    /// Variables over it.
    pub settings: BTreeMap<String, String>,
    /// Environment of the server's processes.
    pub env: BTreeMap<String, String>,
    /// How it goes down.
    pub kinds: Vec<Kind>,
    /// How often, of each kind.
    pub rounds: u32,
    /// Sessions that commit.
    pub sessions: u32,
    /// Decides the moments and all that is random.
    pub seed: u64,
    pub results: PathBuf,
    pub version: String,
}

/// All rounds of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindReport {
    /// How the server went down.
    pub kind: Kind,
    /// Each time.
    pub rounds: Vec<Round>,
    /// What the settings promise for it.
    pub promise: String,
    /// Held against what was found; `None` without a round.
    pub verdict: Option<Verdict>,
    /// Rounds that broke the promise.
    pub broken_rounds: u64,
    /// The largest share of such crashes that may break the promise and is still consistent with these rounds, at a
    /// confidence of [`CONFIDENCE`]; `None` without a round, or where nothing is promised.
    pub broken_share_at_most: Option<f64>,
    /// Why it could not be done, where it could not.
    pub not_done: Option<String>,
}

impl KindReport {
    fn new(promise: AuditPromise, rounds: Vec<Round>, not_done: Option<String>) -> KindReport {
        let broken_rounds = rounds.iter().filter(|round| promise.is_broken_by(round)).count() as u64;
        let bound = || stats::binomial::upper_bound(broken_rounds, rounds.len() as u64, CONFIDENCE);
        KindReport {
            kind: promise.kind,
            verdict: Verdict::of(&promise, &rounds),
            broken_rounds,
            broken_share_at_most: (promise.can_be_broken() && !rounds.is_empty()).then(bound),
            rounds,
            promise: promise.text,
            not_done,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of this format.
    pub schema: u32,
    /// `flavor@version[+label]`.
    pub server: String,
    /// Identity of the build.
    pub build: String,
    pub profile: Option<String>,
    /// Variables asked for.
    pub settings: BTreeMap<String, String>,
    /// Class that the settings promise: full, process-crash, lossy, corruptible.
    pub durability: String,
    pub sessions: u32,
    pub seed: u64,
    pub kinds: Vec<KindReport>,
    /// Why it may not have had the machine to itself.
    pub doubt: Option<String>,
}

impl Report {
    /// Something was lost that the settings promise to keep.
    pub fn is_contradicted(&self) -> bool {
        self.kinds.iter().any(|kind| kind.verdict == Some(Verdict::Contradicted))
    }
}

/// Where an audit is kept: each round is there the moment it is over.
struct Kept {
    store: Store,
    id: AuditId,
}

impl Kept {
    fn begin(request: &Request, spec: &Spec, doubt: Option<String>) -> Result<Kept, Error> {
        let mut store = Store::open(&request.results)?;
        let host = store.add_host(&crate::host::facts())?;
        let build = store.add_build(&record::build(&spec.build))?;
        let engine = if spec.build.flavor == Flavor::Postgres { "heap" } else { "InnoDB" };
        let durability = spec.durability();
        let start = AuditStart {
            server: spec.build.name(),
            engine: engine.to_owned(),
            profile: request.profile.map(|profile| profile.name().to_owned()),
            settings: request.settings.clone(),
            deciding: deciding(spec),
            class: durability.name().to_owned(),
            promises: [Kind::ProcessCrash, Kind::PowerCut].map(|kind| promise(durability, kind)).to_vec(),
            sessions: request.sessions,
            seed: request.seed,
            started_at_ms: load::time::unix_ms(),
            plimsoll_version: request.version.clone(),
            doubt,
        };
        let id = store.begin_audit(host, build, &start)?;
        Ok(Kept { store, id })
    }
}

/// What decides, with the environment: what a preloaded library does to a server it does not do to the others.
fn deciding(spec: &Spec) -> Settings {
    let env = spec.env.iter().map(|(name, value)| (format!("env {name}"), value.clone()));
    spec.deciding_settings().into_iter().chain(env).collect()
}

/// Audits a build. `mounts` are needed for power cuts only, and must have been entered before the process had threads.
///
/// # Errors
/// The build cannot be had, a fresh sandbox of it does not start, or results cannot be kept. What happens to the server
/// later is in the report.
pub fn audit(
    home: &Home,
    request: &Request,
    mounts: &io::Result<PrivateMounts>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Report, Error> {
    let machine = take_for_measuring(home, None, observer, stop)?;
    let build = crate::servers::obtain(home, &request.server, observer)?;
    let mut spec = Spec::new(String::new(), build);
    spec.profile = request.profile;
    spec.settings = request.settings.clone();
    spec.env = request.env.clone();
    spec.sessions = request.sessions;
    // Little to recover and to copy: what is audited is the last second.
    spec.buffer_bytes = Some(64 << 20);
    let durability = spec.durability();
    let kept = Kept::begin(request, &spec, machine.doubt.clone())?;
    let mut auditing = Auditing { home, request, spec: &spec, kept, observer, stop };
    let mut kinds = Vec::new();
    for &kind in &request.kinds {
        if stop.is_requested() {
            return Err(Error::Interrupted);
        }
        let rounds = match kind {
            Kind::ProcessCrash => auditing.process_crashes().map(Ok),
            Kind::PowerCut => auditing.power_cuts(mounts),
        }?;
        let (rounds, not_done) = match rounds {
            Ok(rounds) => (rounds, None),
            Err(why) => {
                auditing.kept.store.add_audit_gap(auditing.kept.id, kind, &why)?;
                (Vec::new(), Some(why))
            }
        };
        let promise = promise(durability, kind);
        kinds.push(KindReport::new(promise, rounds, not_done));
    }
    Ok(Report {
        schema: 2,
        server: spec.build.name(),
        build: spec.build.identity.clone(),
        profile: request.profile.map(|profile| profile.name().to_owned()),
        settings: request.settings.clone(),
        durability: durability.name().to_owned(),
        sessions: request.sessions,
        seed: request.seed,
        kinds,
        doubt: machine.doubt.clone(),
    })
}

/// The command line that audits a build with these deciding settings: by profile where one has them, else by variable.
pub(crate) fn command(build: &Build, deciding: &Settings) -> String {
    let of = |profile| {
        let spec = Spec { profile, ..Spec::new(String::new(), build.clone()) };
        spec.deciding_settings()
    };
    let name = build.name();
    let profiles = [None, Some(Profile::Safest), Some(Profile::Fast), Some(Profile::Unsafe)];
    if let Some(profile) = profiles.into_iter().find(|profile| of(*profile) == *deciding) {
        let profile = profile.map_or_else(String::new, |profile| format!(" --profile {}", profile.name()));
        return format!("plimsoll audit {name}{profile}");
    }
    let plain = of(None);
    let differing: String = deciding
        .iter()
        .filter(|(name, value)| plain.get(*name) != Some(*value))
        .map(|(name, value)| format!(" --set {name}={value}"))
        .collect();
    format!("plimsoll audit {name}{differing}")
}

fn promise(durability: Durability, kind: Kind) -> AuditPromise {
    let (text, may_lose, may_corrupt) = match (durability, kind) {
        (Durability::Full, _) | (Durability::ProcessCrash, Kind::ProcessCrash) => {
            ("nothing is lost", false, false)
        }
        (Durability::ProcessCrash, Kind::PowerCut) | (Durability::Lossy, _) => {
            ("the last second or so may be lost, the rest is consistent", true, false)
        }
        (Durability::Corruptible, Kind::ProcessCrash) => ("the last second or so may be lost", true, false),
        (Durability::Corruptible, Kind::PowerCut) => {
            ("nothing is promised: the data may be corrupt", true, true)
        }
        (Durability::Volatile, Kind::ProcessCrash) => ("what the settings say", true, false),
        (Durability::Volatile, Kind::PowerCut) => ("nothing is promised: everything is lost", true, true),
    };
    AuditPromise { kind, text: text.to_owned(), may_lose, may_corrupt }
}

fn named(spec: &Spec, what: &str) -> Spec {
    Spec { name: sandbox_name(&format!("audit-{what}")), ..spec.clone() }
}

struct Auditing<'a> {
    home: &'a Home,
    request: &'a Request,
    spec: &'a Spec,
    kept: Kept,
    observer: Observer<'a>,
    stop: &'a StopSwitch,
}

impl Auditing<'_> {
    fn process_crashes(&mut self) -> Result<Vec<Round>, Error> {
        let mut server = Sandbox::deploy(self.home, &named(self.spec, "crash"), &|_| ())?;
        let mut ledger = made_for_good(&mut server, self.request, 0)?;
        let stop = self.stop;
        let rounds = self.rounds(Kind::ProcessCrash, |number| {
            let work = ledger.start(&server);
            let ran = work.wait_for_a_random_moment(stop);
            server.kill()?;
            // Whatever a session was told it was told by a server that still lived.
            let noted = work.end();
            Ok(restart(&mut server, &mut ledger, number, ran, &noted))
        })?;
        server.destroy()?;
        Ok(rounds)
    }

    /// Makes rounds until one fails, and keeps each.
    fn rounds(
        &mut self,
        kind: Kind,
        mut make: impl FnMut(u32) -> Result<Round, Error>,
    ) -> Result<Vec<Round>, Error> {
        let mut rounds: Vec<Round> = Vec::new();
        for number in 1..=self.request.rounds {
            if self.stop.is_requested() || rounds.last().is_some_and(|round| round.failure.is_some()) {
                break;
            }
            let round = make(number)?;
            tell(self.observer, kind, self.request.rounds, &round);
            self.kept.store.add_audit_round(self.kept.id, kind, &round)?;
            rounds.push(round);
        }
        Ok(rounds)
    }

    /// Rounds, or why there are none: no root, no FUSE, no loop devices.
    fn power_cuts(
        &mut self,
        mounts: &io::Result<PrivateMounts>,
    ) -> Result<Result<Vec<Round>, String>, Error> {
        let mounts = match mounts {
            Ok(mounts) => mounts,
            Err(why) => return Ok(Err(why.to_string())),
        };
        match PowerDisk::create(&self.home.path().join("audit"), self.request.seed, mounts) {
            Ok(mut disk) => self.cut_rounds(&mut disk).map(Ok),
            Err(why) => Ok(Err(why.to_string())),
        }
    }

    fn cut_rounds(&mut self, disk: &mut PowerDisk) -> Result<Vec<Round>, Error> {
        let mut spec = named(self.spec, "power");
        spec.storage = Some(Storage::at("audit", disk.path().to_owned()));
        let mut server = Sandbox::deploy(self.home, &spec, &|_| ())?;
        let mut ledger = made_for_good(&mut server, self.request, 0x5eed)?;
        let failed = |error: io::Error| Error::Run(format!("the power cut could not be made: {error}"));
        disk.settle().map_err(failed)?;
        let stop = self.stop;
        let rounds = self.rounds(Kind::PowerCut, |number| {
            let work = ledger.start(&server);
            let ran = work.wait_for_a_random_moment(stop);
            // What the server confirms from now on it confirms without power.
            let noted = work.noted();
            // By turns: what loses most, and what leaves most behind that belongs together.
            let unflushed = if number % 2 == 1 { Unflushed::Dropped } else { Unflushed::Torn };
            let cut = disk.cut(unflushed);
            server.kill()?;
            work.end();
            let cut = cut.and_then(|cut| disk.restore().map(|()| cut)).map_err(failed)?;
            let mut round = restart(&mut server, &mut ledger, number, ran, &noted);
            round.unflushed = Some(unflushed);
            (round.unflushed_bytes, round.dropped_bytes) = (cut.unflushed_bytes, cut.dropped_bytes);
            Ok(round)
        })?;
        server.destroy()?;
        Ok(rounds)
    }
}

/// A ledger whose empty tables no crash can take: a clean stop writes everything, whatever the settings leave
/// unwritten.
fn made_for_good(server: &mut Sandbox, request: &Request, salt: u64) -> Result<Ledger, Error> {
    let ledger = Ledger::create(server, request.sessions, request.seed ^ salt)?;
    server.stop()?;
    server.start()?;
    Ok(ledger)
}

/// Starts the server on what is left, and looks.
fn restart(
    server: &mut Sandbox,
    ledger: &mut Ledger,
    number: u32,
    ran: Duration,
    noted: &ledger::Noted,
) -> Round {
    let began = Instant::now();
    let mut round =
        Round { number, ran_s: ran.as_secs_f64(), acknowledged: noted.in_round(), ..Round::default() };
    let started = server.start();
    if let Err(error) = started {
        round.failure = Some(format!("it did not start again: {error}"));
        return round;
    }
    round.recovery_s = Some(began.elapsed().as_secs_f64());
    match ledger.verify(server, noted) {
        Ok(Findings { lost, lost_window_s, partial, invented, broken }) => {
            Round { lost, lost_window_s, partial, invented, broken, ..round }
        }
        Err(error) => Round { failure: Some(format!("the ledger could not be read: {error}")), ..round },
    }
}

fn tell(observer: Observer<'_>, kind: Kind, of: u32, round: &Round) {
    let found = match &round.failure {
        Some(failure) => failure.lines().next().unwrap_or_default().to_owned(),
        None => format!(
            "{} acknowledged, {} lost{}, {} partial, {}",
            round.acknowledged,
            round.lost,
            if round.lost > 0 { format!(" (the last {:.3} s)", round.lost_window_s) } else { String::new() },
            round.partial,
            if round.broken.is_empty() { "sums agree".to_owned() } else { round.broken.join("; ") }
        ),
    };
    observer(Event::Doing(&format!("{} {}/{of}: {found}", kind.word(), round.number)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_follow_the_class() {
        let of = |durability, kind| {
            let promise = promise(durability, kind);
            (promise.may_lose, promise.may_corrupt)
        };
        assert_eq!(of(Durability::Full, Kind::PowerCut), (false, false));
        assert_eq!(of(Durability::ProcessCrash, Kind::ProcessCrash), (false, false));
        assert_eq!(of(Durability::ProcessCrash, Kind::PowerCut), (true, false));
        assert_eq!(of(Durability::Lossy, Kind::ProcessCrash), (true, false));
        assert_eq!(of(Durability::Corruptible, Kind::ProcessCrash), (true, false));
        assert_eq!(of(Durability::Corruptible, Kind::PowerCut), (true, true));
    }
}
