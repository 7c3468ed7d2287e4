//! TPC-C with ten warehouses: how long the load takes, and whether the consistency conditions hold after a run
//! with 64 sessions.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use load::{Length, LoadPlan, Pacing, Step, Stop};
use sandbox::{Home, Sandbox, Spec, builds};
use wire::blocking::Client;
use workload::{Dialect, LoadAt, Ran};

const LOAD_S_MAX: f64 = 60.0;
const SESSIONS: u32 = 64;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let servers = if arguments.is_empty() { &["mariadb", "postgres"][..] } else { arguments };
    let home = Home::find()?;
    let mut is_reached = true;
    for selector in servers {
        is_reached &= one_server(&home, selector).with_context(|| (*selector).to_owned())?;
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
}

fn one_server(home: &Home, selector: &str) -> Result<bool> {
    let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
    let mut spec = Spec::new(format!("tpcc-{}", std::process::id()), build);
    spec.buffer_bytes = Some(2 << 30);
    let server = Sandbox::deploy(home, &spec, &|_| ())?;
    let target = server.target(Some("tpcc"));
    workload::create_database(&target)?;
    let client = Client::connect(&target)?;
    let dialect = Dialect::of_server(target.protocol, &client.server().version);
    client.close();
    let options = BTreeMap::from([("warehouses".to_owned(), "10".to_owned())]);
    let configured = workload::find("tpcc").context("the workload")?.configure(&options, dialect)?;

    let connections = thread::available_parallelism().map_or(2, usize::from);
    let started = Instant::now();
    configured.load(&LoadAt { target: target.clone(), connections }, &|_| ())?;
    let load_s = started.elapsed().as_secs_f64();

    let before = configured.baseline(&target)?;
    let step = Step {
        sessions: SESSIONS,
        warmup: Duration::from_secs(2),
        length: Length::Time(Duration::from_secs(20)),
        pacing: Pacing::Closed,
    };
    let plan = LoadPlan { steps: vec![step], ..LoadPlan::default() };
    let result = load::run(&plan, &*configured.sessions(&target, 1), &mut |_| (), &Stop::new())?;
    let checks = configured.check(&target, &before, &Ran::of(&result))?;
    server.destroy()?;

    println!("{selector}: load with conditions 1 to 12 {load_s:.1} s (under {LOAD_S_MAX})");
    for figure in configured.figures(&result.steps[0]) {
        let limit = figure.limit.map_or(String::new(), |limit| format!(" (at most {limit})"));
        println!("  {:20} {:.1} {}{limit}", figure.name, figure.value, figure.unit);
    }
    let broken: Vec<_> = checks.iter().filter(|check| !check.passed).collect();
    println!("  {} checks after {SESSIONS} sessions, {} do not hold", checks.len(), broken.len());
    for check in &broken {
        println!("    {}: expected {}, found {}", check.name, check.expected, check.found);
    }
    Ok(load_s < LOAD_S_MAX && broken.is_empty())
}
