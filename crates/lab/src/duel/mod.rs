//! Duels: the servers of a comparison are alive at the same time, and the load goes to them in turns, in slices of half a
//! second. What disturbs the machine for longer than a slice disturbs all of them alike.
//!
//! A study has duels with `pairing = "duel"`; [`duel`] makes them without a study file.

pub(crate) mod crowd;
mod quiet;
pub(crate) mod room;
pub(crate) mod turns;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use sandbox::{Build, Home, Profile, Spec};
use store::{RunEnd, RunStart, Slice, Status};

use crate::asked::Asked;
use crate::error::{Class, Error};
use crate::hooks::Attach;
use crate::machine::take_for_measuring;
use crate::make::{Making, make_together};
use crate::observe::{Observer, RunLabel};
use crate::on_server::key;
use crate::plan::mix;
use crate::provision::Place;
use crate::run::{Around, Order};
use crate::stop::{SIDES_MAX, StopSwitch};
use crate::study::MachineWishes;
use crate::subject::sandbox_name;
use crate::workloads::Resolved;

/// Length of the measured phase of a slice. A machine's speed changes from second to second, so the nearer two slices lie
/// the more of it cancels; and a neighbour's bursts disturb fewer short slices than long ones. Shorter ones would pay more
/// for their warm-up, and cut more transactions of a slow server at their edges.
pub const SLICE: Duration = Duration::from_millis(500);
/// Before the measured phase of each slice but the first: the caches of the processor are another server's.
pub const SLICE_WARMUP: Duration = Duration::from_millis(100);

/// Slices of each server that is loaded for so long: at least two, one before and one after another's.
pub fn slices_in(length: Duration) -> u32 {
    (length.as_secs_f64() / SLICE.as_secs_f64()).round().max(2.0) as u32
}

/// The steps of a load whose one level is measured in slices: as many as there may be, should others disturb some of them.
pub(crate) fn slices(level: load::Step, slices: u32) -> Vec<load::Step> {
    in_parts(level, slices * turns::ROUNDS_FACTOR, SLICE, SLICE_WARMUP)
}

/// A level in so many parts of this length: the first after the level's own warm-up, each other one after `warmup`.
pub(crate) fn in_parts(level: load::Step, parts: u32, length: Duration, warmup: Duration) -> Vec<load::Step> {
    let part = |at: u32| load::Step {
        warmup: if at == 0 { level.warmup } else { warmup },
        length: load::Length::Time(length),
        ..level
    };
    (0..parts).map(part).collect()
}

/// One of the servers that are compared.
#[derive(Debug, Clone)]
pub struct Side {
    /// What the run's record calls it; sides of one build need names that tell them apart.
    pub name: String,
    pub build: Build,
    /// Variables of its sandboxes.
    pub settings: BTreeMap<String, String>,
    /// Durability level of its sandboxes.
    pub profile: Option<Profile>,
    /// Environment of the server process.
    pub env: BTreeMap<String, String>,
}

impl Side {
    /// A build as it comes.
    pub fn new(name: impl Into<String>, build: Build) -> Side {
        Side { name: name.into(), build, settings: BTreeMap::new(), profile: None, env: BTreeMap::new() }
    }
}

/// Duels that are asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// Two or more.
    pub sides: Vec<Side>,
    pub workload: Resolved,
    pub options: BTreeMap<String, String>,
    /// Sessions of each side.
    pub sessions: u32,
    /// At most so many lives.
    pub lives: u32,
    /// Slices of each side in a life.
    pub slices: u32,
    /// Before the first slice of each side.
    pub warmup: Duration,
    pub pacing: load::Pacing,
    /// Of everything random.
    pub seed: u64,
}

/// One server in one life.
#[derive(Debug)]
pub struct SideLife {
    /// As begun: its key has the side's name as `server`, its block is the life's number.
    pub start: RunStart,
    /// As ended, for the results file; [`RunEnd::duel`] has its slices.
    pub end: RunEnd,
    /// What kind of failure it was, if it was one.
    pub failure: Option<Class>,
}

impl SideLife {
    /// Committed transactions per second in each slice that counts.
    pub fn slices_tps(&self) -> Vec<f64> {
        let slices = self.end.duel.iter().flat_map(|duel| &duel.slices);
        slices.filter(|slice| slice.is_counted).map(Slice::tps).collect()
    }

    /// Committed transactions per second over all slices; `None` where nothing was measured.
    pub fn tps(&self) -> Option<f64> {
        let step = self.end.steps.first().filter(|step| step.duration_s > 0.0)?;
        Some(step.outcomes.committed as f64 / step.duration_s)
    }
}

/// One life of all servers, side by side.
#[derive(Debug)]
pub struct Life {
    /// From 1.
    pub number: u32,
    /// In the order of the request.
    pub sides: Vec<SideLife>,
    /// From the first server's start to the last one's end.
    pub took: Duration,
}

impl Life {
    /// Every side came to its end, and no gate found a fault of the measurement.
    pub fn is_valid(&self) -> bool {
        self.sides.iter().all(|side| side.end.status == Status::Done)
    }

    /// The logarithm of the throughput of side `other` over that of side `base`; `None` where the life does not count or
    /// one of them committed nothing.
    pub fn log_ratio(&self, base: usize, other: usize) -> Option<f64> {
        let tps = |side: usize| self.sides.get(side)?.tps().filter(|tps| *tps > 0.0);
        self.is_valid().then_some(())?;
        Some((tps(other)? / tps(base)?).ln())
    }
}

/// Makes duels, life by life: each is handed to `done` the moment it ends, which says whether another one is wanted. Takes
/// the machine's lock. A life that fails is no error: it is in what `done` gets.
///
/// # Errors
/// Fewer than two sides, no slice, or sides that cannot live together; or the user wanted it to end.
pub fn duel(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
    done: &mut dyn FnMut(Life) -> ControlFlow<()>,
) -> Result<(), Error> {
    if !(2..=SIDES_MAX).contains(&request.sides.len()) || request.slices < 2 {
        return Err(Error::Usage(format!(
            "a duel has 2 to {SIDES_MAX} servers and at least 2 slices for each, this one {} and {}",
            request.sides.len(),
            request.slices
        )));
    }
    let machine = take_for_measuring(home, Some(&MachineWishes::default()), observer, stop)?;
    let notes: Vec<String> = machine.doubt.iter().cloned().collect();
    for number in 1..=request.lives {
        let began = std::time::Instant::now();
        let seed = mix(request.seed ^ u64::from(number)) >> 11;
        let makings: Vec<Making<'_>> = (0..request.sides.len())
            .map(|side| making(home, request, (number, side), seed, &notes))
            .collect();
        let places: Vec<&Place<'_>> = makings.iter().map(|making| &making.place).collect();
        room::together(&places, &[]).map_err(Error::Run)?;
        let starts: Vec<RunStart> = makings.iter().map(|making| making.start.clone()).collect();
        let around = Around { stop, observer, attach, seat: None };
        let ended = make_together(makings, request.slices, None, seed, around)?;
        let sides = starts.into_iter().zip(ended);
        let sides = sides.map(|(start, ended)| SideLife { start, end: ended.end, failure: ended.failure });
        let life = Life { number, sides: sides.collect(), took: began.elapsed() };
        if done(life).is_break() {
            break;
        }
        if stop.is_requested() {
            return Err(Error::Interrupted);
        }
    }
    Ok(())
}

/// One side of a life.
fn making<'a>(
    home: &'a Home,
    request: &'a Request,
    (number, side): (u32, usize),
    seed: u64,
    notes: &[String],
) -> Making<'a> {
    let Side { name, build, settings, profile, env } = &request.sides[side];
    let spec = Spec {
        settings: settings.clone(),
        profile: *profile,
        env: env.clone(),
        ..Spec::new(sandbox_name("duel"), build.clone())
    };
    let index = (number - 1) * request.sides.len() as u32 + side as u32;
    let level = load::Step {
        sessions: request.sessions,
        warmup: request.warmup,
        length: load::Length::Time(SLICE),
        pacing: request.pacing,
    };
    let load = load::LoadPlan { steps: vec![level], seed, raise_priority: true, ..load::LoadPlan::default() };
    let order = Order {
        asked: Asked::of(&spec),
        notes: notes.to_vec(),
        ..Order::new(home, (name.clone(), build.flavor), (&request.workload, &request.options), load)
    };
    let start = RunStart {
        index,
        block: number,
        repeat: number,
        position: side as u32 + 1,
        ..RunStart::new(key(name, &request.workload), vec![request.sessions], seed, load::time::unix_ms())
    };
    let label = RunLabel::of(&start, request.lives as usize * request.sides.len(), request.lives);
    Making { start, label, order, place: Place::Own(Box::new(spec)) }
}
