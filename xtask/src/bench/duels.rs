//! Duels of a build with itself, for the proof of verdicts: as they are, or with one side slowed down by a known amount.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use lab::duel::{Life, Request, Side, duel};
use lab::{Event, StopSwitch, watch::Watch, workloads};
use sandbox::{Build, Home, Selector};
use testkit::neighbour::{Bursts, Neighbour};

pub(super) const WORKLOAD: &str = "oltp_read_write";
pub(super) const SESSIONS: u32 = 8;
/// 25 MB: everything stays in memory.
const ROWS: u32 = 100_000;

/// The newest build of a flavour, fetched where it is missing.
pub(super) fn build(home: &Home, selector: &str) -> Result<Build> {
    let selector: Selector = selector.parse()?;
    Ok(lab::servers::obtain(home, &selector, &tell)?)
}

/// Duels of `build` with itself, named a and b; `env` is b's environment.
pub(super) fn request(
    build: &Build,
    env: BTreeMap<String, String>,
    slices: u32,
    lives: u32,
    seed: u64,
) -> Result<Request> {
    let b = Side { env, ..Side::new("b", build.clone()) };
    Ok(Request {
        sides: vec![Side::new("a", build.clone()), b],
        workload: workloads::resolve(WORKLOAD)?,
        options: BTreeMap::from([("table_size".to_owned(), ROWS.to_string())]),
        sessions: SESSIONS,
        lives,
        slices,
        warmup: Duration::from_secs(1),
        pacing: load::Pacing::Closed,
        seed,
    })
}

/// Makes them, life by life.
pub(super) fn make(
    home: &Home,
    request: &Request,
    done: &mut dyn FnMut(Life) -> ControlFlow<()>,
) -> Result<()> {
    Ok(duel(home, request, &Watch::default(), &tell, &StopSwitch::default(), done)?)
}

pub(super) fn tell(event: Event<'_>) {
    if let Event::Warning(text) = event {
        eprintln!("{text}");
    }
}

/// The neighbour of the published figures, for as long as it is kept.
pub(super) fn neighbour(folder: &Path) -> Result<Neighbour> {
    Ok(Neighbour::start(folder, &Bursts::new(now_ms() as u64, Duration::from_secs(24 * 3600)))?)
}

pub(super) fn now_ms() -> i64 {
    load::time::unix_ms()
}
