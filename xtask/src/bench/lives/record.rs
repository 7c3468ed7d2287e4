//! Recording: duels of MariaDB with itself and of PostgreSQL with itself, in turns. Each duel is added to the file the
//! moment that it ends, so that a recording can be ended at any time, and go on another day.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use lab::duel::{self, SideLife};
use sandbox::Home;
use store::lives::{self, Life, Slice};

use crate::bench::duels;
use crate::bench::lab::FAMILIES;

/// Slices of each side in a life: many, because lives cost some seconds each before their first slice.
const SLICES: u32 = 30;
/// Duels that fail one after the other before it gives up.
const FAILURES_MAX: u32 = 3;

pub(super) fn run(file: &Path, minutes: f64, neighbour: bool) -> Result<bool> {
    let home = Home::find()?;
    let builds = FAMILIES.map(|server| duels::build(&home, server));
    let folder = tempfile::tempdir()?;
    let at_work = neighbour.then(|| duels::neighbour(folder.path())).transpose()?;
    let until = Instant::now() + Duration::from_secs_f64(minutes * 60.0);
    let (mut recorded, mut failures) = (0, 0);
    for build in builds.iter().cycle() {
        if Instant::now() >= until {
            break;
        }
        let build = match build {
            Ok(build) => build,
            Err(error) => bail!("{error:#}"),
        };
        let request = duels::request(build, BTreeMap::new(), SLICES, 1, duels::now_ms() as u64)?;
        let mut made = Vec::new();
        duels::make(&home, &request, &mut |life| {
            made.push(life);
            ControlFlow::Continue(())
        })?;
        for life in &made {
            let server = format!("{}@{}", build.flavor, build.version);
            let sides = of_duel(life, &server, &build.identity, neighbour);
            if sides.is_empty() {
                failures += 1;
                let why = life.sides.iter().find_map(|side| side.end.error.as_deref());
                eprintln!("{server}: a duel that gave nothing: {}", why.unwrap_or("no side says why"));
                if failures == FAILURES_MAX {
                    bail!("{failures} duels in a row gave nothing");
                }
                continue;
            }
            failures = 0;
            lives::add(file, &sides)?;
            recorded += 1;
            let ratio =
                life.log_ratio(0, 1).map_or("not valid".to_owned(), |log| format!("{:.3}", log.exp()));
            println!("{server}: duel {recorded} in {:.0} s, b / a {ratio}", life.took.as_secs_f64());
        }
    }
    if let Some(neighbour) = at_work {
        println!("the neighbour had {} bursts", neighbour.stop()?.len());
    }
    println!("{recorded} duels added to {}", file.display());
    Ok(recorded > 0)
}

/// Both lives of a duel; none where one of them has no slices.
fn of_duel(duel: &duel::Life, server: &str, build: &str, neighbour: bool) -> Vec<Life> {
    let Some(at) = duel.sides.iter().map(|side| side.start.started_at_ms).min() else { return vec![] };
    let lives: Vec<Life> = (0u8..)
        .zip(&duel.sides)
        .map(|(side, life)| Life {
            server: server.to_owned(),
            build: build.to_owned(),
            workload: duels::WORKLOAD.to_owned(),
            sessions: duels::SESSIONS,
            neighbour,
            duel: at,
            side,
            started_at_ms: life.start.started_at_ms,
            is_valid: life.end.status == store::Status::Done,
            slices: slices(life),
        })
        .collect();
    if lives.iter().any(|life| life.slices.is_empty()) { vec![] } else { lives }
}

/// Those that count. The intervals of the one step are its slices, in their order.
fn slices(life: &SideLife) -> Vec<Slice> {
    let Some(duel) = &life.end.duel else { return vec![] };
    let seconds = life.end.steps.iter().flat_map(|step| &step.seconds).filter(|second| second.second >= 1);
    let latencies: Vec<_> = seconds.map(|second| second.response).collect();
    let counted: Vec<_> = duel.slices.iter().filter(|slice| slice.is_counted).collect();
    counted
        .iter()
        .enumerate()
        .map(|(at, slice)| {
            let response = latencies.get(at).filter(|_| latencies.len() == counted.len()).copied().flatten();
            Slice {
                at_s: slice.at_s,
                length_s: slice.duration_s,
                committed: slice.committed,
                p50_ms: response.map(|response| response.p50),
                p95_ms: response.map(|response| response.p95),
            }
        })
        .collect()
}
