//! 10,000 sessions in one process against the fake server in another: memory by session, errors, start-up.

use std::time::Duration;

use anyhow::{Result, ensure};
use load::{Event, Length, LoadPlan, Stop};

use super::fake::FakeServer;
use super::lab::{closed, resident_kib};
use super::told;

const SESSIONS: u32 = 10_000;
const KIB_MAX: f64 = 32.0;
const CONNECT_S_MAX: f64 = 10.0;

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    ensure!(arguments.is_empty(), "ten-thousand-sessions takes no arguments");
    // Each session waits half a second for its answer: 20,000 statements a second over all.
    let server = FakeServer::start(&["--latency", "fixed:500000"])?;
    let step = closed(SESSIONS, 2, Length::Time(Duration::from_secs(10)));
    let plan = LoadPlan { steps: vec![step], ..LoadPlan::default() };
    let resident_kib = || resident_kib(std::process::id());
    let before_kib = resident_kib()?;
    let mut peak_kib = before_kib;
    let mut observer = |event: Event<'_>| {
        if matches!(event, Event::Interval { .. }) {
            peak_kib = peak_kib.max(resident_kib().unwrap_or(u64::MAX));
        }
    };
    let result = load::run(&plan, &server.factory(), &mut observer, &Stop::new())?;
    server.stop()?;
    let step = &result.steps[0];
    let each_kib = (peak_kib - before_kib) as f64 / f64::from(SESSIONS);
    let failed = step.outcomes.failed() + step.errors.values().map(|tally| tally.count).sum::<u64>();
    println!("sessions        {SESSIONS}, on {} workers", step.client.workers);
    println!("memory each     {each_kib:.1} KiB (at most {KIB_MAX})");
    println!("start-up        {:.2} s (under {CONNECT_S_MAX})", step.connect_s);
    println!("errors          {failed} (none)");
    println!("transactions    {} in {:.1} s", step.outcomes.committed, step.duration_s);
    println!(
        "response p50    {:.1} ms, p99 {:.1} ms",
        step.latency.response.quantile_ms(0.5),
        step.latency.response.quantile_ms(0.99)
    );
    let is_reached = each_kib <= KIB_MAX
        && step.connect_s < CONNECT_S_MAX
        && failed == 0
        && step.ended_by.is_none()
        && step.outcomes.committed > u64::from(SESSIONS);
    told(is_reached)
}
