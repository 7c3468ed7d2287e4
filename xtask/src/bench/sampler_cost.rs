//! What all samplers together cost beside 256 busy sessions, by their own clocks: at most 2 % of one core.

use std::time::{Duration, Instant};

use anyhow::Result;
use load::{Event, Length, LoadPlan, Stop};
use sandbox::{Home, Sandbox, Spec, builds};
use telemetry::{Config, Sampler, Telemetry};

use super::lab::{FAMILIES, closed, configured, each_server, load_at};

const SESSIONS: u32 = 256;
const SHARE_MAX: f64 = 0.02;

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    #[arg(default_values = FAMILIES)]
    servers: Vec<String>,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { servers, seconds } = crate::asked("bench sampler-cost", arguments);
    each_server(&servers, |home, selector| Ok(judge(selector, &one_server(home, selector, seconds)?)))
}

fn one_server(home: &Home, selector: &str, seconds: u64) -> Result<Telemetry> {
    let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
    let mut spec = Spec::new(format!("sampler-cost-{}", std::process::id()), build);
    spec.settings.insert("max_connections".to_owned(), (SESSIONS + 20).to_string());
    let server = Sandbox::deploy(home, &spec, &|_| ())?;
    let target = server.target(Some("cost"));
    workload::create_database(&target)?;
    let configured = configured(&target, "oltp_read_write", &[("table_size", "10000")])?;
    configured.load(&load_at(&target, 2), &|_| ())?;
    let step = closed(SESSIONS, 2, Length::Time(Duration::from_secs(seconds)));
    let plan = LoadPlan { steps: vec![step], ..LoadPlan::default() };
    let factory = configured.sessions(&target, 1);
    let sampler = Sampler::start(&Config {
        client_pids: Vec::new(),
        epoch: Instant::now(),
        server_pid: server.pid(),
        datadir: Some(server.datadir().to_owned()),
        target: Some(target.clone()),
        replicas: Vec::new(),
        metrics: None,
        agent: None,
    });
    let mut on_event = |event: Event<'_>| {
        if matches!(event, Event::Interval { .. }) {
            sampler.tick();
        }
    };
    let result = load::run(&plan, factory.as_ref(), &mut on_event, &Stop::new());
    let seen = sampler.stop().0;
    server.destroy()?;
    result?;
    Ok(seen)
}

fn judge(selector: &str, seen: &Telemetry) -> bool {
    println!(
        "{selector}, {SESSIONS} sessions of oltp_read_write, a pass a second for {:.0} s",
        seen.duration_s
    );
    for cost in &seen.costs {
        println!(
            "  {:8} {:6.2} ms cpu a pass, {:6.2} ms by the clock ({:.1} at most), {} passes",
            cost.sampler,
            1e3 * cost.cpu_s / f64::from(cost.passes.max(1)),
            cost.pass_ms_mean,
            cost.pass_ms_max,
            cost.passes
        );
    }
    let share = seen.cost_share();
    println!("  together {:.2} % of one core (at most {:.0} %)", 100.0 * share, 100.0 * SHARE_MAX);
    share <= SHARE_MAX
}
