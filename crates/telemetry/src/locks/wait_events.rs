//! PostgreSQL: wait events of sessions that are not idle, sampled from `pg_stat_activity` (PostgreSQL documentation,
//! "Monitoring Database Activity", wait events; since 9.6).

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use wire::blocking::Client;
use wire::{Error, Target};

use super::{LockSampler, LockTable, LockWait, Sampled, Source};

/// Samples every `period`, or less often where the server takes longer to answer.
pub fn start(target: &Target, period: Duration) -> LockSampler {
    let (target, what) = (target.clone(), "wait events");
    LockSampler::start(Source::WaitEvents, what, move |stop| {
        sample(&target, period, stop)
            .unwrap_or_else(|error| LockTable::nothing(Source::WaitEvents, what, error.to_string()))
    })
}

/// Each statement outside of a transaction sees a new snapshot of the activity, so none has to be cleared.
const SQL: &str = "SELECT coalesce(wait_event_type, 'CPU'), coalesce(wait_event, 'running'), count(*) \
                   FROM pg_stat_activity \
                   WHERE state = 'active' AND pid <> pg_backend_pid() AND datname IS NOT NULL GROUP BY 1, 2";

fn sample(target: &Target, period: Duration, stop: &AtomicBool) -> Result<LockTable, Error> {
    let mut client = Client::connect(target)?;
    let mut sampled: Sampled<String> = Sampled::new();
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        let seconds = (began - last).as_secs_f64();
        last = began;
        sampled.advance(seconds);
        client.query_rows(SQL, &mut |row| {
            let (Some(kind), Some(event)) = (row.text(0), row.text(1)) else { return };
            let sessions = row.text(2).and_then(|n| n.parse::<f64>().ok()).unwrap_or(0.0);
            sampled.waiting(format!("{kind}/{event}"), sessions, seconds);
        })?;
        std::thread::sleep(period.saturating_sub(began.elapsed()).max(Duration::from_millis(1)));
    }
    client.close();
    let observed_s = sampled.observed_s;
    let waits = sampled
        .into_waits()
        .into_iter()
        // Working is not waiting for a lock, and waiting for the client is its business.
        .filter(|(name, ..)| !name.starts_with("CPU/") && !name.starts_with("Client/"))
        .map(|(lock, wait_s, interval)| LockWait::sampled(lock, true, wait_s, interval))
        .collect();
    Ok(LockTable { source: Source::WaitEvents, observed_s, waits, missing: Vec::new() }.sorted())
}
