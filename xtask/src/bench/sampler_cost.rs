//! What all samplers together cost beside 256 busy sessions, by their own clocks: at most 2 % of one core.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use load::{Event, Length, LoadPlan, Pacing, Step, Stop};
use sandbox::{Home, Sandbox, Spec, builds};
use telemetry::{Config, Sampler, Telemetry};
use workload::{Dialect, LoadAt};

const SESSIONS: u32 = 256;
const SHARE_MAX: f64 = 0.02;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let (mut servers, mut seconds) = (Vec::new(), 20);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("seconds", text)) => seconds = text.parse().context("seconds")?,
            None => servers.push(*argument),
            Some(_) => bail!("sampler-cost takes [seconds=N] [SERVER ...]"),
        }
    }
    if servers.is_empty() {
        servers = vec!["mariadb", "postgres"];
    }
    let home = Home::find()?;
    let mut is_reached = true;
    for selector in servers {
        let seen = one_server(&home, selector, Duration::from_secs(seconds)).context(selector.to_owned())?;
        is_reached &= judge(selector, &seen);
    }
    println!("{}", if is_reached { "reached" } else { "NOT reached" });
    Ok(is_reached)
}

fn one_server(home: &Home, selector: &str, length: Duration) -> Result<Telemetry> {
    let build = builds::resolve(home, &selector.parse()?, &|_| ())?;
    let mut spec = Spec::new(format!("sampler-cost-{}", std::process::id()), build);
    spec.settings.insert("max_connections".to_owned(), (SESSIONS + 20).to_string());
    let server = Sandbox::deploy(home, &spec, &|_| ())?;
    let target = server.target(Some("cost"));
    workload::create_database(&target)?;
    let version = wire::blocking::Client::connect(&target)?.server().version.clone();
    let options = BTreeMap::from([("table_size".to_owned(), "10000".to_owned())]);
    let configured = workload::find("oltp_read_write")
        .context("the workload")?
        .configure(&options, Dialect::of_server(target.protocol, &version))?;
    configured.load(
        &LoadAt { target: target.clone(), connections: 2, is_own_server: true, stop: load::Stop::new() },
        &|_| (),
    )?;
    let step = Step {
        sessions: SESSIONS,
        warmup: Duration::from_secs(2),
        length: Length::Time(length),
        pacing: Pacing::Closed,
    };
    let plan = LoadPlan { steps: vec![step], ..LoadPlan::default() };
    let factory = configured.sessions(&target, 1);
    let sampler = Sampler::start(&Config {
        client_pids: Vec::new(),
        epoch: Instant::now(),
        server_pid: server.pid(),
        datadir: Some(server.datadir().to_owned()),
        target: Some(target.clone()),
        metrics: None,
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
