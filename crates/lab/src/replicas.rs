//! Replicas of a run's server: made when its tables are there, watched while it is loaded, and waited for after its load.

use std::time::{Duration, Instant};

use sandbox::replication::{self, Mode};
use sandbox::{Sandbox, Spec, snapshot};
use store::RunEnd;
use telemetry::Telemetry;
use telemetry::gates::three_digits;
use telemetry::replication::{Replica, Replication, Standing};
use wire::Target;

use crate::error::Error;
use crate::observe::{Event, Phase};
use crate::provision::{DATABASE, Failed, LOG_LINES, Made, Wanted, make_room, own, tell};
use crate::stop::StopSwitch;

/// What replicas a run's server gets.
#[derive(Debug, Clone)]
pub(crate) struct ReplicaOrder {
    pub(crate) mode: Mode,
    /// One for each, in the order of their numbers.
    pub(crate) specs: Vec<Spec>,
}

/// Servers that follow a run's server. They go when this is dropped.
pub(crate) struct Replicas {
    mode: Mode,
    all: Vec<Following>,
}

struct Following {
    sandbox: Sandbox,
    /// It began with a copy of the primary's files, and did not load the tables by itself.
    is_copied: bool,
    /// It has all that the load changed.
    has_caught_up: bool,
}

/// How long replicas may take until they follow.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long they are waited for between two slices, or phases.
const REST_MAX: Duration = Duration::from_secs(5);
/// What is to be said where that was not long enough.
pub(crate) const LATE: &str = "a replica had not caught up 5 s after its primary's turn, and worked on while others were loaded: \
                               lower the rate, or leave the replicas or the `pairing` out";
/// How long they are waited for after a load, at least.
const CATCH_UP_MIN: Duration = Duration::from_secs(60);

/// Makes the replicas of a primary with loaded tables, and waits until they follow it.
pub(crate) fn begin(
    primary: &mut Sandbox,
    made: &Made,
    order: &ReplicaOrder,
    wanted: &Wanted<'_>,
    phase: &mut dyn FnMut(Phase),
) -> Result<Replicas, Failed> {
    let around = wanted.around;
    let builds: Vec<_> = order.specs.iter().map(|spec| &spec.build).collect();
    let password = replication::prepare(primary, &builds)?;
    let numbered = || order.specs.iter().zip(1..);
    let is_copied = |spec: &Spec, primary: &Sandbox| replication::is_copied(primary.build(), &spec.build);
    let mut all: Vec<(u32, Following)> = Vec::new();
    if numbered().any(|(spec, _)| is_copied(spec, primary)) {
        around.stop.set_server(None);
        if primary.stop()?.killed {
            let why = "it did not stop by itself, so that its files cannot be copied for replicas";
            return Err(Error::Server(format!("{}: {why}", primary.build())).into());
        }
        for (spec, number) in numbered().filter(|(spec, _)| is_copied(spec, primary)) {
            let mut spec = spec.clone();
            make_room(&mut spec, &*made.configured, wanted.sessions_max);
            spec.snapshot = Some(snapshot::of_stopped(primary, &spec.build));
            spec.follows = Some(replication::source(primary, &password, number)?);
            let sandbox =
                Sandbox::deploy(wanted.order.home, &spec, &|progress| tell(around.observer, progress))?;
            all.push((number, Following { sandbox, is_copied: true, has_caught_up: false }));
        }
        primary.start()?;
    }
    for (spec, number) in numbered().filter(|(spec, _)| !is_copied(spec, primary)) {
        let loaded = own(spec.clone(), wanted, phase)?.into_sandbox();
        let following = |sandbox| (number, Following { sandbox, is_copied: false, has_caught_up: false });
        all.extend(loaded.map(following));
        phase(Phase::Replicate);
    }
    around.stop.set_server(primary.pid());
    all.sort_by_key(|(number, _)| *number);
    let replicas = Replicas { mode: order.mode, all: all.into_iter().map(|(_, replica)| replica).collect() };
    if let Some(position) = replication::open(primary, order.mode, replicas.count())? {
        for (replica, number) in replicas.all.iter().zip(1..) {
            let source = replication::source(primary, &password, number)?;
            replication::follow(&replica.sandbox, &source, &position, order.mode)?;
        }
    }
    (around.observer)(Event::Doing("waiting until the replicas follow"));
    replicas.wait_until_following(&primary.target(None), around.stop)?;
    replication::hold(primary, order.mode)?;
    Ok(replicas)
}

impl Replicas {
    fn count(&self) -> u32 {
        self.all.len() as u32
    }

    /// For the samplers. They are called by their numbers.
    pub(crate) fn watched(&self) -> Vec<Replica> {
        let watched = |(replica, number): (&Following, u32)| Replica {
            name: number.to_string(),
            pid: replica.sandbox.pid(),
            target: replica.sandbox.target(None),
        };
        self.all.iter().zip(1..).map(watched).collect()
    }

    /// Their processes.
    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.all.iter().filter_map(|replica| replica.sandbox.pid())
    }

    /// Those that have all that the load changed, by name, to be looked at.
    pub(crate) fn caught_up(&self) -> impl Iterator<Item = (String, Target)> {
        let caught_up = self.all.iter().zip(1..).filter(|(replica, _)| replica.has_caught_up);
        caught_up
            .map(|(replica, number)| (format!("replica {number}"), replica.sandbox.target(Some(DATABASE))))
    }

    /// What they are, for the record.
    pub(crate) fn facts(&self) -> Vec<(String, String)> {
        let one = |(replica, number): (&Following, u32)| {
            let build = replica.sandbox.build();
            let from = if replica.is_copied { "copied from the primary" } else { "loaded by itself" };
            (
                format!("replica {number}"),
                format!("{build}, {}, {from}, build {}", self.mode.name(), build.identity),
            )
        };
        self.all.iter().zip(1..).map(one).collect()
    }

    /// After a restart of the primary.
    pub(crate) fn go_on(&self, primary: &Sandbox, stop: &StopSwitch) -> Result<(), Error> {
        replication::open(primary, self.mode, self.count())?;
        self.wait_until_following(&primary.target(None), stop).map_err(|failed| failed.error)?;
        Ok(replication::hold(primary, self.mode)?)
    }

    fn wait_until_following(&self, primary: &Target, stop: &StopSwitch) -> Result<(), Failed> {
        let until = Instant::now() + PATIENCE;
        let mut replication = self.open(primary)?;
        loop {
            let standings = replication.look(0.0).map_err(|error| self.unanswered(&error))?;
            let late = standings.iter().position(|standing| !standing.is_following);
            let Some(at) = late else { break };
            if stop.is_requested() {
                return Err(Error::Interrupted.into());
            }
            if standings[at].has_stopped || Instant::now() >= until {
                return Err(self.failed(at, &standings[at], "does not follow its primary"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        replication.close();
        Ok(())
    }

    fn open(&self, primary: &Target) -> Result<Replication, Failed> {
        Replication::open(primary, &self.watched()).map_err(|error| self.unanswered(&error))
    }

    /// One of the servers does not answer; a replica that is gone is the reason, whatever was seen of it.
    fn unanswered(&self, error: &wire::Error) -> Failed {
        let gone = self.all.iter().position(|replica| replica.sandbox.pid().is_none());
        let Some(at) = gone else {
            return Error::Server(format!("replication cannot be looked at: {error}")).into();
        };
        let sandbox = &self.all[at].sandbox;
        let text = format!("replica {} ({}) ended while it followed its primary", at + 1, sandbox.build());
        Failed { error: Error::Server(text), log_tail: sandbox.log_tail(LOG_LINES).join("\n").into() }
    }

    /// What is wrong with the replica at that place, with the end of its log.
    fn failed(&self, at: usize, standing: &Standing, what: &str) -> Failed {
        let sandbox = &self.all[at].sandbox;
        let said = standing.trouble.as_ref().map_or_else(String::new, |trouble| format!(": {trouble}"));
        let error = Error::Server(format!("replica {} ({}) {what}{said}", at + 1, sandbox.build()));
        Failed { error, log_tail: sandbox.log_tail(LOG_LINES).join("\n").into() }
    }

    /// Waits until they have applied all that was committed until now: how long each took, `None` where it has not in
    /// `limit`, and how many bytes of log it was behind. `each_second` is called meanwhile.
    fn catch_up(
        &self,
        primary: &Target,
        limit: Duration,
        stop: &StopSwitch,
        each_second: &mut dyn FnMut(),
    ) -> Result<Vec<(Option<Duration>, u64)>, Failed> {
        let mut replication = self.open(primary)?;
        let began = Instant::now();
        let first = replication.look(0.0).map_err(|error| self.unanswered(&error))?;
        let mark = replication.mark().map_err(|error| self.unanswered(&error))?;
        let mut all: Vec<(Option<Duration>, u64)> = first.iter().map(|it| (None, it.lag_bytes)).collect();
        let mut seconds = 0;
        loop {
            let looked = replication.look(began.elapsed().as_secs_f64());
            let waited = began.elapsed();
            let standings = match looked {
                Ok(standings) => standings,
                // A busy server may not answer in time; one that is gone cannot be asked anew.
                Err(_) if waited < limit => {
                    replication = self.open(primary)?;
                    continue;
                }
                Err(error) => return Err(self.unanswered(&error)),
            };
            for (at, standing) in standings.iter().enumerate() {
                if standing.has_stopped {
                    return Err(self.failed(at, standing, "stopped following its primary"));
                }
                if all[at].0.is_none() && standing.applied_bytes >= mark {
                    all[at].0 = Some(waited);
                }
            }
            if all.iter().all(|(took, _)| took.is_some()) || waited >= limit {
                break;
            }
            if stop.is_requested() {
                return Err(Error::Interrupted.into());
            }
            if waited.as_secs() > seconds {
                seconds = waited.as_secs();
                each_second();
            }
            // To one in a hundred.
            std::thread::sleep((waited / 100).clamp(Duration::from_millis(2), Duration::from_millis(100)));
        }
        replication.close();
        Ok(all)
    }

    /// Between two slices of a duel, or two phases: what was committed is applied before others are loaded. False where it
    /// was not in [`REST_MAX`] and nobody wants to leave; what is wrong then is told when the load is over ([`Replicas::owe`]).
    pub(crate) fn rest(&self, primary: &Target, stop: &StopSwitch) -> bool {
        let waited = self.catch_up(primary, REST_MAX, stop, &mut || ());
        stop.is_requested() || waited.is_ok_and(|all| all.iter().all(|(took, _)| took.is_some()))
    }

    /// Before a load: what came before it is not its.
    pub(crate) fn settle(&self, primary: &Target, stop: &StopSwitch) -> Result<(), Failed> {
        let waited = self.catch_up(primary, CATCH_UP_MIN, stop, &mut || ())?;
        match waited.iter().position(|(took, _)| took.is_none()) {
            None => Ok(()),
            Some(at) => Err(Error::Run(format!(
                "replica {} had not caught up {} s after the priming: prime for less time",
                at + 1,
                CATCH_UP_MIN.as_secs()
            ))
            .into()),
        }
    }

    /// After a load of so many seconds: what the replicas still owe is recorded, with the time that it took them. What is to
    /// be said of it.
    pub(crate) fn owe(
        &mut self,
        primary: (&Sandbox, &Target),
        load_s: f64,
        stop: &StopSwitch,
        end: &mut RunEnd,
        each_second: &mut dyn FnMut(),
    ) -> Result<Vec<String>, Failed> {
        // One that needs longer than the load took works at less than half of its speed.
        let limit = CATCH_UP_MIN.max(Duration::from_secs_f64(load_s));
        let (sandbox, target) = primary;
        let owed = self.catch_up(target, limit, stop, each_second)?;
        let mut told = Vec::new();
        for (at, (took, bytes)) in owed.into_iter().enumerate() {
            let name = at + 1;
            self.all[at].has_caught_up = took.is_some();
            let behind = format!("{} MB behind at the end of the load", three_digits(1e-6 * bytes as f64));
            let then = match took {
                Some(took) => {
                    let took_s = format!("{:.3}", took.as_secs_f64());
                    end.facts.insert(format!("{}/{name}", store::CAUGHT_UP_S), took_s.clone());
                    format!("caught up {took_s} s after it")
                }
                None => {
                    told.push(format!(
                        "replica {name} had not caught up {:.0} s after the load, and its tables were not looked at: lower \
                         the rate, or let it apply in parallel",
                        limit.as_secs_f64()
                    ));
                    format!("not caught up {:.0} s after it", limit.as_secs_f64())
                }
            };
            end.facts.insert(format!("debt/replica {name}"), format!("{behind}, {then}"));
        }
        if let Some((waited, went_on)) = replication::waited(sandbox, self.mode)? {
            let text = format!(
                "{} waited for a replica, {went_on} went on without",
                store::counted(waited, "commit")
            );
            end.facts.insert("semi-synchronous".to_owned(), text);
            if went_on > 0 {
                told.push(format!(
                    "{} did not wait for a replica (none answered in time), so that these figures are in part those of \
                     asynchronous replication: raise the timeout of semi-synchronous replication, or lower the load",
                    store::counted(went_on, "commit")
                ));
            }
        }
        Ok(told)
    }

    /// Ends and removes them.
    pub(crate) fn destroy(self) -> Result<(), Error> {
        let destroyed: Vec<Result<(), sandbox::Error>> =
            self.all.into_iter().map(|replica| replica.sandbox.destroy()).collect();
        destroyed.into_iter().collect::<Result<(), _>>().map_err(Error::from)
    }
}

/// A lag that grows by more than this share of the time, and by a second at least, is one of a replica that is too slow.
const GROWTH_SHARE_MAX: f64 = 0.1;

/// Replicas that fell behind for as long as a level went on.
pub(crate) fn left_behind(seen: &Telemetry, steps: &[store::Step]) -> Vec<String> {
    let mut told = Vec::new();
    for track in seen.tracks.iter().filter(|track| track.source == "replica" && track.name == "lag") {
        for step in steps {
            let lags = track.shown_between(step.offset_s, step.offset_s + step.duration_s);
            let fifth = lags.len() / 5;
            let first = stats::mean(&lags[..fifth]);
            let last = stats::mean(&lags[lags.len() - fifth..]);
            let Some((first, last)) = first.zip(last) else { continue };
            if last - first > (GROWTH_SHARE_MAX * step.duration_s).max(1.0) {
                told.push(format!(
                    "replica {} cannot keep up with {}: its lag grew from {} to {} s, and what is measured is a primary that \
                     runs away from it (lower the rate, or let it apply in parallel)",
                    track.instance,
                    store::counted(step.sessions, "session"),
                    three_digits(first),
                    three_digits(last)
                ));
            }
        }
    }
    told
}
