//! TPC-C with ten warehouses: how long the load takes, and whether the consistency conditions hold after a run
//! with 64 sessions, and after another in which the server was killed and recovered.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use load::{Event, Length, LoadPlan, LoadResult, Stop};
use sandbox::{Durability, Home, Sandbox, Spec, builds};
use wire::Target;
use workload::{Check, Configured, Ran};

use super::lab::{closed, configured, load_at, on_both_families};

const LOAD_S_MAX: f64 = 60.0;
const SESSIONS: u32 = 64;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    on_both_families(arguments, one_server)
}

fn one_server(home: &Home, selector: &str) -> Result<bool> {
    let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
    let mut spec = Spec::new(format!("tpcc-{}", std::process::id()), build);
    spec.buffer_bytes = Some(2 << 30);
    ensure!(spec.durability() == Durability::Full, "a killed server must keep what it confirmed");
    let mut server = Sandbox::deploy(home, &spec, &|_| ())?;
    let target = server.target(Some("tpcc"));
    workload::create_database(&target)?;
    let configured = configured(&target, "tpcc", &[("warehouses", "10")])?;

    let connections = thread::available_parallelism().map_or(2, usize::from);
    let at = load_at(&target, connections);
    let started = Instant::now();
    let report = workload::without_redo_log(&target, || configured.load(&at, &|_| ()))?;
    let load_s = started.elapsed().as_secs_f64();
    println!(
        "{selector}: load with conditions 1 to 12 {load_s:.1} s (rows {:.1} s, indexes {:.1} s, statistics {:.1} s; \
         under {LOAD_S_MAX})",
        report.rows_time.as_secs_f64(),
        report.indexes_time.as_secs_f64(),
        report.analyze_time.as_secs_f64()
    );

    let before = configured.baseline(&target, &BTreeMap::new())?;
    let plan = LoadPlan {
        steps: vec![closed(SESSIONS, 2, Length::Time(Duration::from_secs(20)))],
        ..LoadPlan::default()
    };
    let result = load::run(&plan, &*configured.sessions(&target, 1), &mut |_| (), &Stop::new())?;
    for figure in configured.figures(&result.steps[0]) {
        let limit = figure.limit.map_or(String::new(), |limit| format!(" (at most {limit})"));
        println!("  {:20} {:.1} {}{limit}", figure.name, figure.value, figure.unit);
    }
    let checks = configured.check(&target, &before, &Ran::of(&result))?;
    let holds = show(&format!("after {SESSIONS} sessions"), &checks);

    let before = configured.baseline(&target, &BTreeMap::new())?;
    let result = killed_in_between(&mut server, &*configured, &target)?;
    let checks = configured.check(&target, &before, &Ran::of(&result))?;
    let lost = result.steps[0].outcomes_whole.connection;
    let holds_after_kill = show(&format!("after a kill that {lost} sessions noticed, and recovery"), &checks);
    server.destroy()?;
    Ok(load_s < LOAD_S_MAX && holds && holds_after_kill)
}

/// Prints how many checks hold, and those that do not.
fn show(when: &str, checks: &[Check]) -> bool {
    let broken: Vec<_> = checks.iter().filter(|check| !check.passed).collect();
    println!("  {} checks {when}: {} do not hold", checks.len(), broken.len());
    for check in &broken {
        println!("    {}: expected {}, found {}", check.name, check.expected, check.found);
    }
    !checks.is_empty() && broken.is_empty()
}

/// A run in the middle of which the server is killed and started again; the sessions go on when it is back.
fn killed_in_between(
    server: &mut Sandbox,
    configured: &dyn Configured,
    target: &Target,
) -> Result<LoadResult> {
    let plan = LoadPlan {
        steps: vec![closed(SESSIONS, 2, Length::Time(Duration::from_secs(600)))],
        silence_limit: Duration::from_secs(60),
        ..LoadPlan::default()
    };
    let stop = Stop::new();
    thread::scope(|scope| {
        let (tell, seconds) = mpsc::channel();
        let (plan, stop_run) = (&plan, &stop);
        let run = scope.spawn(move || {
            let mut observer = |event: Event<'_>| {
                if let Event::Interval { interval, .. } = event {
                    // Nobody listens any more once the server has been seen to work again.
                    let _ = tell.send((interval.outcomes.committed, interval.outcomes.connection));
                }
            };
            load::run(plan, &*configured.sessions(target, 2), &mut observer, stop_run)
        });
        let until = |is_it: fn((u64, u64)) -> bool| {
            std::iter::from_fn(|| seconds.recv_timeout(Duration::from_secs(120)).ok()).any(is_it)
        };
        let has_begun = until(|(committed, _)| committed > 0);
        thread::sleep(Duration::from_secs(3));
        let is_killed = server.kill();
        let is_started = server.start();
        let was_lost = until(|(_, lost)| lost > 0);
        let goes_on = until(|(committed, lost)| committed > 0 && lost == 0);
        stop.request();
        let result = run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        is_killed?;
        is_started?;
        ensure!(has_begun && was_lost && goes_on, "begun {has_begun}, lost {was_lost}, goes on {goes_on}");
        Ok(result?)
    })
}
