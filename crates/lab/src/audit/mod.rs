//! The durability audit: what is left of acknowledged transactions when the server's process is killed, and when the
//! power goes.
//!
//! Sessions commit numbered transactions and note each acknowledged one outside of the server. At a random moment the
//! server gets SIGKILL, or its disk is cut off ([`power`]); then it is started again on what is left, and the ledger is
//! compared with the notes: acknowledged transactions that are gone, transactions of which a part is there, and sums
//! that no longer agree.
//!
//! What it does not prove: that nothing can be lost. It finds losses that happen within its rounds. A power cut here
//! loses what the operating system had not yet handed to the device; a device that itself forgets what it was handed
//! (a volatile cache without flushes) is not imitated.

mod ledger;
pub mod power;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sandbox::{Durability, Home, Profile, Sandbox, Selector, Spec, Storage};
use serde::Serialize;

use self::ledger::{Findings, Ledger};
use self::power::{PowerDisk, PrivateMounts};
use crate::bench::{next_number, take_machine};
use crate::error::Error;
use crate::observe::{Event, Observer};
use crate::stop::StopSwitch;

/// How the server goes down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// SIGKILL for all of its processes; the machine stays.
    ProcessCrash,
    /// Everything is gone that was not handed to the device.
    PowerCut,
}

impl Kind {
    /// The word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            Kind::ProcessCrash => "process-crash",
            Kind::PowerCut => "power-cut",
        }
    }
}

/// What to audit.
#[derive(Debug, Clone)]
pub struct Request {
    /// The build.
    pub server: Selector,
    /// Durability level to start from.
    pub profile: Option<Profile>,
    /// Variables over it.
    pub settings: BTreeMap<String, String>,
    /// How it goes down.
    pub kinds: Vec<Kind>,
    /// How often, of each kind.
    pub rounds: u32,
    /// Sessions that commit.
    pub sessions: u32,
    /// Decides the moments and all that is random.
    pub seed: u64,
}

/// One time that the server went down.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Round {
    /// From 1.
    pub number: u32,
    /// How long the sessions had been committing.
    pub ran_s: f64,
    /// Transactions acknowledged before it went down, over all rounds until now.
    pub acknowledged: u64,
    /// Of them gone.
    pub lost: u64,
    /// How long before the end the oldest lost one had been acknowledged.
    pub lost_window_s: f64,
    /// Transactions of which only a part is there.
    pub partial: u64,
    /// Transactions that nobody ever sent.
    pub invented: u64,
    /// Sums that must agree and do not.
    pub broken: Vec<String>,
    /// From start to the first answer; `None` where the server did not come up again.
    pub recovery_s: Option<f64>,
    /// Why it did not, with its last lines.
    pub failure: Option<String>,
}

impl Round {
    fn is_consistent(&self) -> bool {
        self.partial == 0 && self.invented == 0 && self.broken.is_empty() && self.failure.is_none()
    }
}

/// What the settings promise, held against what was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing was lost that the settings promise to keep.
    Held,
    /// Held, and the loss that the settings permit was seen.
    HeldWithLoss,
    /// Something was lost that the settings promise to keep.
    Contradicted,
}

impl Verdict {
    /// As shown.
    pub fn word(self) -> &'static str {
        match self {
            Verdict::Held => "held",
            Verdict::HeldWithLoss => "held, with the loss that the settings permit",
            Verdict::Contradicted => "CONTRADICTED",
        }
    }
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
    /// Why it could not be done, where it could not.
    pub not_done: Option<String>,
}

/// The whole audit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Version of this format.
    pub schema: u32,
    /// `flavor@version[+label]`.
    pub server: String,
    /// Identity of the build.
    pub build: String,
    /// Profile asked for.
    pub profile: Option<String>,
    /// Variables asked for.
    pub settings: BTreeMap<String, String>,
    /// Class that the settings promise: full, process-crash, lossy, corruptible.
    pub durability: String,
    /// Sessions.
    pub sessions: u32,
    /// Seed.
    pub seed: u64,
    /// By kind.
    pub kinds: Vec<KindReport>,
}

impl Report {
    /// Something was lost that the settings promise to keep.
    pub fn is_contradicted(&self) -> bool {
        self.kinds.iter().any(|kind| kind.verdict == Some(Verdict::Contradicted))
    }
}

/// Audits a build. `mounts` are needed for power cuts only, and must have been entered before the process had threads.
///
/// # Errors
/// The build cannot be had, or a fresh sandbox of it does not start. What happens to it later is in the report.
pub fn audit(
    home: &Home,
    request: &Request,
    mounts: &io::Result<PrivateMounts>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Report, Error> {
    let _machine = take_machine(observer, stop)?;
    let cleaned = sandbox::leftovers(home)?;
    if !cleaned.is_empty() {
        observer(Event::Cleaned(&cleaned));
    }
    let build = crate::servers::obtain(home, &request.server, observer)?;
    let mut spec = Spec::new(String::new(), build);
    spec.profile = request.profile;
    spec.settings = request.settings.clone();
    spec.sessions = request.sessions;
    // Little to recover and to copy: what is audited is the last second.
    spec.buffer_bytes = Some(64 << 20);
    let durability = spec.durability();
    let mut kinds = Vec::new();
    for &kind in &request.kinds {
        if stop.is_requested() {
            return Err(Error::Interrupted);
        }
        let rounds = match kind {
            Kind::ProcessCrash => process_crashes(home, &spec, request, observer, stop).map(Ok),
            Kind::PowerCut => power_cuts(home, &spec, request, mounts, observer, stop),
        }?;
        let (rounds, not_done) = match rounds {
            Ok(rounds) => (rounds, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let verdict = (!rounds.is_empty()).then(|| judge(durability, kind, &rounds));
        kinds.push(KindReport {
            kind,
            rounds,
            promise: promise(durability, kind).to_owned(),
            verdict,
            not_done,
        });
    }
    Ok(Report {
        schema: 1,
        server: spec.build.name(),
        build: spec.build.identity.clone(),
        profile: request.profile.map(|profile| profile.name().to_owned()),
        settings: request.settings.clone(),
        durability: durability.name().to_owned(),
        sessions: request.sessions,
        seed: request.seed,
        kinds,
    })
}

fn promise(durability: Durability, kind: Kind) -> &'static str {
    match (durability, kind) {
        (Durability::Full, _) | (Durability::ProcessCrash, Kind::ProcessCrash) => "nothing is lost",
        (Durability::ProcessCrash, Kind::PowerCut) | (Durability::Lossy, _) => {
            "the last second or so may be lost, the rest is consistent"
        }
        (Durability::Corruptible, Kind::ProcessCrash) => "the last second or so may be lost",
        (Durability::Corruptible, Kind::PowerCut) => "nothing is promised: the data may be corrupt",
    }
}

fn judge(durability: Durability, kind: Kind, rounds: &[Round]) -> Verdict {
    let lost = rounds.iter().any(|round| round.lost > 0);
    let is_consistent = rounds.iter().all(Round::is_consistent);
    let (may_lose, may_corrupt) = match (durability, kind) {
        (Durability::Full, _) | (Durability::ProcessCrash, Kind::ProcessCrash) => (false, false),
        (Durability::ProcessCrash, Kind::PowerCut)
        | (Durability::Lossy, _)
        | (Durability::Corruptible, Kind::ProcessCrash) => (true, false),
        (Durability::Corruptible, Kind::PowerCut) => (true, true),
    };
    if (lost && !may_lose) || (!is_consistent && !may_corrupt) {
        Verdict::Contradicted
    } else if lost || !is_consistent {
        Verdict::HeldWithLoss
    } else {
        Verdict::Held
    }
}

fn named(spec: &Spec, what: &str) -> Spec {
    Spec { name: format!("audit-{what}-{}-{}", std::process::id(), next_number()), ..spec.clone() }
}

fn process_crashes(
    home: &Home,
    spec: &Spec,
    request: &Request,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Vec<Round>, Error> {
    let mut server = Sandbox::deploy(home, &named(spec, "crash"), &|_| ())?;
    let mut ledger = Ledger::create(&server, request.sessions, request.seed)?;
    let mut rounds = Vec::new();
    for number in 1..=request.rounds {
        if stop.is_requested() {
            break;
        }
        let work = ledger.start(&server);
        let ran = work.wait_for_a_random_moment(stop);
        // Noted before the signal: what is acknowledged while it is on its way may be gone.
        let noted = work.noted();
        server.kill()?;
        work.end();
        let round = restart(&mut server, &mut ledger, number, ran, &noted);
        tell(observer, Kind::ProcessCrash, request.rounds, &round);
        let is_over = round.failure.is_some();
        rounds.push(round);
        if is_over {
            break;
        }
    }
    server.destroy()?;
    Ok(rounds)
}

/// Rounds, or why there are none: no root, no loop devices.
fn power_cuts(
    home: &Home,
    spec: &Spec,
    request: &Request,
    mounts: &io::Result<PrivateMounts>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Result<Vec<Round>, String>, Error> {
    let mounts = match mounts {
        Ok(mounts) => mounts,
        Err(why) => return Ok(Err(why.to_string())),
    };
    match PowerDisk::create(&home.path().join("audit"), mounts) {
        Ok(mut disk) => cut_rounds(home, spec, request, &mut disk, observer, stop).map(Ok),
        Err(why) => Ok(Err(why.to_string())),
    }
}

fn cut_rounds(
    home: &Home,
    spec: &Spec,
    request: &Request,
    disk: &mut PowerDisk,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Vec<Round>, Error> {
    let mut spec = named(spec, "power");
    let datadir: PathBuf = disk.path().to_owned();
    spec.storage =
        Some(Storage { name: "audit".into(), datadir: Some(datadir), limits: sandbox::Limits::default() });
    let mut server = Sandbox::deploy(home, &spec, &|_| ())?;
    let mut ledger = Ledger::create(&server, request.sessions, request.seed ^ 0x5eed)?;
    let failed = |error: io::Error| Error::Run(format!("the power cut could not be made: {error}"));
    disk.settle().map_err(failed)?;
    let mut rounds = Vec::new();
    for number in 1..=request.rounds {
        if stop.is_requested() {
            break;
        }
        let work = ledger.start(&server);
        let ran = work.wait_for_a_random_moment(stop);
        let noted = work.noted();
        let cut = disk.cut();
        server.kill()?;
        work.end();
        cut.and_then(|()| disk.restore()).map_err(failed)?;
        let round = restart(&mut server, &mut ledger, number, ran, &noted);
        tell(observer, Kind::PowerCut, request.rounds, &round);
        let is_over = round.failure.is_some();
        rounds.push(round);
        if is_over {
            break;
        }
    }
    server.destroy()?;
    Ok(rounds)
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
    let mut round = Round {
        number,
        ran_s: ran.as_secs_f64(),
        acknowledged: noted.total(),
        lost: 0,
        lost_window_s: 0.0,
        partial: 0,
        invented: 0,
        broken: Vec::new(),
        recovery_s: None,
        failure: None,
    };
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

    fn round(lost: u64, partial: u64) -> Round {
        Round {
            number: 1,
            ran_s: 1.0,
            acknowledged: 100,
            lost,
            lost_window_s: 0.0,
            partial,
            invented: 0,
            broken: Vec::new(),
            recovery_s: Some(0.1),
            failure: None,
        }
    }

    #[test]
    fn losses_are_held_against_what_the_settings_promise() {
        use Verdict::{Contradicted, Held, HeldWithLoss};
        let check = |durability, kind, lost, partial, want| {
            assert_eq!(
                judge(durability, kind, &[round(0, 0), round(lost, partial)]),
                want,
                "{durability:?} {kind:?}"
            );
        };
        check(Durability::Full, Kind::ProcessCrash, 0, 0, Held);
        check(Durability::Full, Kind::PowerCut, 1, 0, Contradicted);
        check(Durability::ProcessCrash, Kind::ProcessCrash, 1, 0, Contradicted);
        check(Durability::ProcessCrash, Kind::PowerCut, 1, 0, HeldWithLoss);
        check(Durability::Lossy, Kind::ProcessCrash, 50, 0, HeldWithLoss);
        check(Durability::Lossy, Kind::PowerCut, 50, 1, Contradicted);
        check(Durability::Corruptible, Kind::PowerCut, 50, 1, HeldWithLoss);
        check(Durability::Corruptible, Kind::ProcessCrash, 0, 1, Contradicted);
    }
}
