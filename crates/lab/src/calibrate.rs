//! `plimsoll calibrate`: duels of a server with itself, and what they say of this machine: how much of a spread arises at
//! which level, which difference can be told in which time, and how often a verdict was one where there is nothing.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

pub use report::calibration::{Summary, TIMES, summary};
use sandbox::{Home, builds};
use serde::{Deserialize, Serialize};
use store::{Calibrations, EqualLife};

use crate::duel::{self, Life, SLICE, SLICE_WARMUP, Side};
use crate::error::Error;
use crate::hooks::Attach;
use crate::observe::Observer;
use crate::plan::Plan;
use crate::servers::{self, Server};
use crate::stop::StopSwitch;
use crate::study::{Body, Length, Pairing, Study};

/// What is calibrated with: the mix of reads and writes that most studies ask about, at a load that keeps a server busy.
const WORKLOAD: &str = "oltp_read_write";
const SESSIONS: u32 = 8;
/// Slices of each side in a life.
const SLICES: u32 = 10;
const WARMUP: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub struct Request {
    /// As on the command line: a build. `None`: the newest MariaDB, else PostgreSQL.
    pub server: Option<String>,
    /// No life is begun that would not end within it, but the first five are made anyway.
    pub budget: Duration,
    pub seed: u64,
}

/// Where calibrations are kept.
fn folder(home: &Home) -> std::path::PathBuf {
    home.path().join("calibrations")
}

/// All that was found of a machine, as it is kept.
pub fn of_host(home: &Home, fingerprint: &str) -> Vec<Calibrations> {
    Calibrations::of_host(&folder(home), fingerprint)
}

/// What is known of this machine.
pub fn known(home: &Home) -> Vec<Summary> {
    let all = Calibrations::of_host(&folder(home), &crate::host::facts().fingerprint);
    all.iter().map(summary).collect()
}

/// What a study has for telling a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Precision {
    pub blocks: usize,
    /// Pairs of slices of a block, at best.
    pub pairs: usize,
    /// It may end whenever it is decided.
    pub is_watched: bool,
}

impl Precision {
    pub(crate) fn of(body: &Body, plan: &Plan) -> Precision {
        let pairs = match body.load.length {
            Length::Time(length) => duel::slices_in(length) as usize,
            Length::Transactions(_) => SLICES as usize,
        };
        Precision { blocks: plan.blocks() as usize, pairs, is_watched: body.load.until.is_some() }
    }

    /// The smallest difference that it tells on a machine of which that was found.
    pub fn told_by(&self, found: &Summary) -> Option<f64> {
        found.told_by(self.blocks, self.pairs, self.is_watched)
    }
}

/// Which difference a study can tell on this machine, by what is known of its servers, and whether its margin is below
/// that. `None` where nothing is known, or nothing is compared.
pub(crate) fn note(home: &Home, study: &Study, body: &Body, plan: &Plan) -> Option<String> {
    let compare = body.compare.as_ref()?;
    let known = known(home);
    let is_asked = |found: &&Summary| plan.servers.iter().any(|server| server.build_name == found.server);
    let of_study: Vec<&Summary> = known.iter().filter(is_asked).collect();
    let all: Vec<&Summary> = if of_study.is_empty() { known.iter().collect() } else { of_study };
    let planned = Precision::of(body, plan);
    let budget = body.load.until.and_then(|until| until.budget);
    // Cells are measured in turns, each pair of them a duel at best.
    let duels = (plan.cells.len() / 2).max(1) as f64;
    let told = |found: &&Summary| {
        let in_budget = budget.map(|budget| found.blocks_in(budget.as_secs_f64() / duels, planned.pairs));
        let blocks = in_budget.map_or(Some(usize::MAX), |blocks| blocks)?.min(planned.blocks);
        let difference = Precision { blocks, ..planned }.told_by(found)?;
        Some((difference, blocks, found.server.clone()))
    };
    let (difference, blocks, server) =
        all.iter().filter_map(told).max_by(|(a, ..), (b, ..)| a.total_cmp(b))?;
    let at_best = if body.load.pairing == Pairing::Duel { "" } else { ", if it had duels" };
    let percent = difference * 100.0;
    let tell = if blocks == 1 { "tells" } else { "tell" };
    let mut text = format!(
        "{} of this study {tell} a difference of {percent:.1} % on this machine{at_best}, as quiet as it was \
         when it was calibrated (with {server} and {WORKLOAD}; found 4 times in 5)",
        store::counted(blocks, "block")
    );
    if compare.margin < difference {
        text.push_str(&format!(
            "; its margin of {:.1} % ({}) is below that, and most comparisons with it will stay undecided: raise \
             `margin`, `blocks` or `budget`",
            compare.margin * 100.0,
            study.position("margin")
        ));
    }
    Some(text)
}

/// Makes duels of a server with itself for as long as the budget lasts, and adds them to what is known of this machine. Each
/// life is kept the moment it ends.
///
/// # Errors
/// The server cannot be had, or no life of it was one that counts; or the user wanted it to end.
pub fn calibrate(
    home: &Home,
    request: &Request,
    attach: &dyn Attach,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Summary, Error> {
    let build = build(home, request, observer)?;
    let (server, host) = (build.name(), crate::host::facts().fingerprint);
    let pair_s = 2.0 * (SLICE + SLICE_WARMUP).as_secs_f64();
    let before = Calibrations::of_host(&folder(home), &host).into_iter().find(|made| {
        (&made.server, &made.build, made.pair_s) == (&server, &build.identity, pair_s)
            && (made.workload.as_str(), made.sessions) == (WORKLOAD, SESSIONS)
    });
    let mut made =
        before.unwrap_or_else(|| Calibrations::new(&server, &build.identity, WORKLOAD, SESSIONS, pair_s));
    let calibration = made.lives.last().map_or(1, |life| life.calibration + 1);
    made.wakeup_us = telemetry::wake_ups().map(|late| (late.p50_us, late.p99_us));
    let began = Instant::now();
    let (mut counted, mut longest, mut last_error) = (0, Duration::ZERO, None);
    let mut kept = Ok(());
    let duels = duel::Request {
        sides: vec![Side::new("a", build.clone()), Side::new("b", build)],
        workload: crate::workloads::resolve(WORKLOAD)?,
        options: BTreeMap::from([("table_size".to_owned(), "10000".to_owned())]),
        sessions: SESSIONS,
        lives: 1000,
        slices: SLICES,
        warmup: WARMUP,
        pacing: load::Pacing::Closed,
        seed: request.seed,
    };
    duel::duel(home, &duels, attach, observer, stop, &mut |life| {
        longest = longest.max(life.took);
        match equal_life(&life, calibration) {
            Some(found) => {
                counted += 1;
                made.lives.push(found);
                kept = made.write(&folder(home), &host);
            }
            None => {
                last_error = life.sides.iter().find_map(|side| side.end.error.clone()).or(last_error.take())
            }
        }
        let is_over = began.elapsed() + longest > request.budget && life.number >= 5;
        if is_over || kept.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    kept.map_err(|error| Error::Run(format!("the calibration cannot be kept: {error}")))?;
    if counted == 0 {
        let why = last_error.unwrap_or_else(|| "no side says why".to_owned());
        return Err(Error::Run(format!("no life of {server} counts: {why}")));
    }
    Ok(summary(&made))
}

/// What is kept of a life that counts.
fn equal_life(life: &Life, calibration: u32) -> Option<EqualLife> {
    let [a, b] = life.sides.as_slice() else { return None };
    let tps = [a.slices_tps(), b.slices_tps()];
    let is_whole = life.is_valid() && tps.iter().all(|tps| !tps.is_empty());
    let at_ms = load::time::unix_ms();
    is_whole.then_some(EqualLife { tps, took_s: life.took.as_secs_f64(), at_ms, calibration })
}

fn build(home: &Home, request: &Request, observer: Observer<'_>) -> Result<sandbox::Build, Error> {
    let selector = match &request.server {
        Some(given) => match servers::parse_argument(given)? {
            Server::Selector(selector) => selector,
            _ => {
                return Err(Error::Usage(
                    "two equal servers are started to calibrate: name a build (mariadb, postgres@16), not a server \
                     that runs"
                        .to_owned(),
                ));
            }
        },
        None => {
            let is_here = |name: &str| {
                let selector = name.parse().ok()?;
                matches!(builds::find(home, &selector), Ok(builds::Resolved::Here(_))).then_some(selector)
            };
            ["mariadb", "postgres", "mysql", "percona"].iter().find_map(|name| is_here(name)).ok_or_else(
                || {
                    Error::Usage(
                        "no server is on this machine: name one (plimsoll calibrate mariadb)".to_owned(),
                    )
                },
            )?
        }
    };
    servers::obtain(home, &selector, observer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_below_what_the_machine_tells_is_named_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        let note_for = |margin: &str| {
            let text = format!(
                "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = [\"mariadb\", \"postgres\"]\nworkload = \"tpcb\"\n\
                 [load]\npairing = \"duel\"\nblocks = 10\n[compare]\naxis = \"server\"\nbase = \"mariadb\"\n\
                 margin = {margin}\n"
            );
            let study = crate::study::parse(std::path::Path::new("s.toml"), &text).unwrap();
            let body = study.body(false);
            let plan = Plan::new(&body, false, 1, Vec::new());
            note(&home, &study, &body, &plan)
        };
        assert_eq!(note_for("0.05"), None, "nothing is known yet");
        store::testing::calibrations(20, 1.0)
            .write(&folder(&home), &crate::host::facts().fingerprint)
            .unwrap();
        let fine = note_for("0.9").unwrap();
        assert!(fine.starts_with("10 blocks of this study tell a difference of "), "{fine}");
        assert!(!fine.contains("below"), "{fine}");
        let short = note_for("0.0001").unwrap();
        assert!(short.contains("its margin of 0.0 % (s.toml:12:1) is below that"), "{short}");
        assert!(short.contains("raise `margin`, `blocks` or `budget`"), "{short}");
    }
}
