//! MySQL and MariaDB: the performance schema's instruments of mutexes and rw-locks.
//!
//! It counts every acquisition, uncontended ones too, and costs 10 to 20 % of throughput: never in a timed run.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::blocking::Client;
use wire::{Error, Target};

use super::{LockTable, LockWait, Source};
use crate::sampler::Missing;

/// Variables that a server must be started with for its locks to be counted; `version` as (major, minor). 5.5 knows no
/// instruments by name: there all of them are on.
pub fn settings(is_mariadb: bool, version: (u32, u32)) -> Vec<(&'static str, &'static str)> {
    let mut settings = vec![("performance_schema", "ON")];
    if is_mariadb || version >= (5, 6) {
        settings.push(("performance_schema_instrument", "wait/synch/%=ON"));
    }
    settings.push(("performance_schema_events_waits_history_long_size", "100000"));
    settings
}

#[derive(Debug)]
pub struct Observation {
    client: Client,
    began: Instant,
    stop: Arc<AtomicBool>,
    callers: JoinHandle<Result<Callers, Error>>,
    missing: Vec<Missing>,
}

/// Samples of lock and source: how often a wait worth speaking of was seen there.
type Callers = HashMap<(String, String), u64>;

impl Observation {
    /// Switches what can be switched at run time, empties the summary and begins.
    ///
    /// # Errors
    /// The performance schema is off, or may not be read; the table says so instead.
    pub fn start(target: &Target) -> Result<Observation, LockTable> {
        let refuse = |why: String| LockTable::nothing(Source::PerformanceSchema, "lock instruments", why);
        let mut client = Client::connect(target).map_err(|error| refuse(error.to_string()))?;
        let is_on =
            client.query_value("SELECT @@performance_schema").map_err(|error| refuse(error.to_string()))?;
        if is_on.as_deref() != Some("1") {
            return Err(refuse(
                "performance_schema is off: start the server with performance_schema=ON".to_owned(),
            ));
        }
        let mut missing = Vec::new();
        for (what, sql) in [
            (
                "instruments switched on at run time",
                "UPDATE performance_schema.setup_instruments SET enabled = 'YES', timed = 'YES' \
                 WHERE name LIKE 'wait/synch/%' AND enabled = 'NO'",
            ),
            (
                "callers of locks",
                "UPDATE performance_schema.setup_consumers SET enabled = 'YES' \
                 WHERE name IN ('events_waits_current', 'events_waits_history', 'events_waits_history_long', \
                 'global_instrumentation', 'thread_instrumentation')",
            ),
        ] {
            if let Err(error) = client.query(sql) {
                missing.push(Missing::new(what, error.to_string()));
            }
        }
        client
            .query("TRUNCATE TABLE performance_schema.events_waits_summary_global_by_event_name")
            .map_err(|error| refuse(error.to_string()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let (flag, target) = (Arc::clone(&stop), target.clone());
        let callers = std::thread::spawn(move || sample_callers(&target, &flag));
        Ok(Observation { client, began: Instant::now(), stop, callers, missing })
    }

    /// Ends the observation and reads the summary.
    pub fn stop(mut self) -> LockTable {
        self.stop.store(true, Ordering::Relaxed);
        let observed_s = self.began.elapsed().as_secs_f64();
        let summary = read_summary(&mut self.client);
        let callers = match self.callers.join() {
            Ok(Ok(callers)) => callers,
            Ok(Err(error)) => {
                self.missing.push(Missing::new("callers of locks", error.to_string()));
                Callers::new()
            }
            Err(_) => Callers::new(),
        };
        self.client.close();
        match summary {
            Ok(mut waits) => {
                for wait in &mut waits {
                    wait.caller = most_frequent(&callers, &wait.lock);
                }
                LockTable { source: Source::PerformanceSchema, observed_s, waits, missing: self.missing }
                    .sorted()
            }
            Err(error) => {
                LockTable::nothing(Source::PerformanceSchema, "lock instruments", error.to_string())
            }
        }
    }
}

/// Name without the part that all have in common: `mutex/sql/LOCK_open`.
fn short(name: &str) -> &str {
    name.strip_prefix("wait/synch/").unwrap_or(name)
}

fn read_summary(client: &mut Client) -> Result<Vec<LockWait>, Error> {
    let mut waits = Vec::new();
    client.query_rows(
        "SELECT event_name, count_star, sum_timer_wait / 1e12 \
         FROM performance_schema.events_waits_summary_global_by_event_name \
         WHERE event_name LIKE 'wait/synch/%' AND event_name NOT LIKE '%/cond/%' AND count_star > 0",
        &mut |row| {
            let number = |i: usize| row.text(i).and_then(|v| v.parse::<f64>().ok()).unwrap_or(0.0);
            let Some(name) = row.text(0) else { return };
            waits.push(LockWait {
                lock: short(name).to_owned(),
                is_lock: true,
                caller: String::new(),
                count: Some(number(1) as u64),
                wait_s: number(2),
                interval_s: None,
            });
        },
    )?;
    Ok(waits)
}

/// Waits of more than 5 us only: an uncontended acquisition has a caller, but nobody waited there.
fn sample_callers(target: &Target, stop: &AtomicBool) -> Result<Callers, Error> {
    let mut client = Client::connect(target)?;
    let mut callers = Callers::new();
    while !stop.load(Ordering::Relaxed) {
        client.query_rows(
            "SELECT event_name, source, count(*) FROM performance_schema.events_waits_history_long \
             WHERE event_name LIKE 'wait/synch/%' AND timer_wait > 5000000 AND source <> '' GROUP BY 1, 2",
            &mut |row| {
                let (Some(name), Some(source)) = (row.text(0), row.text(1)) else { return };
                let seen = row.text(2).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
                *callers.entry((short(name).to_owned(), source.to_owned())).or_default() += seen;
            },
        )?;
        // The history holds 100,000 waits; looking more often would only cost more.
        for _ in 0..10 {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    client.close();
    Ok(callers)
}

fn most_frequent(callers: &Callers, lock: &str) -> String {
    let of_lock = callers.iter().filter(|((name, _), _)| name == lock);
    let best = of_lock.max_by(|a, b| a.1.cmp(b.1).then_with(|| b.0.1.cmp(&a.0.1)));
    best.map(|((_, source), _)| source.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_servers_are_not_given_what_they_do_not_know() {
        assert!(!settings(false, (5, 5)).iter().any(|s| s.0 == "performance_schema_instrument"));
        assert!(settings(false, (5, 6)).iter().any(|s| s.0 == "performance_schema_instrument"));
        assert!(settings(true, (10, 1)).iter().any(|s| s.0 == "performance_schema_instrument"));
    }

    #[test]
    fn the_most_frequent_caller_is_named() {
        let mut callers = Callers::new();
        callers.insert(("mutex/sql/LOCK_open".into(), "sql_base.cc:2803".into()), 9);
        callers.insert(("mutex/sql/LOCK_open".into(), "sql_base.cc:1500".into()), 3);
        assert_eq!(most_frequent(&callers, "mutex/sql/LOCK_open"), "sql_base.cc:2803");
        assert_eq!(most_frequent(&callers, "mutex/sql/LOCK_x"), "");
    }
}
