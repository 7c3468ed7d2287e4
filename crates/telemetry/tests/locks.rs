//! Hot locks of real servers: a lock that is certainly fought over must be on the list, with what its source can tell.

use std::time::Duration;

use telemetry::locks::performance_schema::{self, Observation};
use telemetry::locks::wait_events;
use telemetry::locks::{LockTable, Source};
use wire::Target;
use wire::blocking::Client;

/// Several sessions that update one row, for a second.
fn fight_over_one_row(target: &Target) {
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                let mut client = Client::connect(target).unwrap();
                let began = std::time::Instant::now();
                while began.elapsed() < Duration::from_millis(1500) {
                    client.query("UPDATE fought SET b = b + 1 WHERE a = 1").unwrap();
                }
            });
        }
    });
}

fn prepare(target: &Target) {
    let mut client = Client::connect(target).unwrap();
    client.query("CREATE TABLE fought (a int PRIMARY KEY, b int)").unwrap();
    client.query("INSERT INTO fought VALUES (1, 0)").unwrap();
}

fn waited_s(table: &LockTable, part: &str) -> f64 {
    table.waits.iter().filter(|wait| wait.lock.contains(part)).map(|wait| wait.wait_s).sum()
}

#[test]
fn instruments_of_mariadb_count_and_are_emptied_at_the_start() {
    let settings = performance_schema::settings(true, (10, 11));
    let server = sandbox::testing::server_with("mariadb", |spec| {
        spec.settings.extend(settings.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    });
    let Some(server) = server else { return };
    Client::connect(&server.target(None)).unwrap().query("CREATE DATABASE locks").unwrap();
    let target = server.target(Some("locks"));
    prepare(&target);
    fight_over_one_row(&target);
    let observation = Observation::start(&target).unwrap();
    let table = observation.stop();
    let idle: u64 = table.waits.iter().filter_map(|wait| wait.count).sum();
    let observation = Observation::start(&target).unwrap();
    fight_over_one_row(&target);
    let table = observation.stop();
    let busy: u64 = table.waits.iter().filter_map(|wait| wait.count).sum();
    assert_eq!(table.source, Source::PerformanceSchema);
    assert!(busy > 10 * idle.max(100), "{busy} against {idle}: {:?}", table.missing);
    assert!(table.waits.windows(2).all(|pair| pair[0].wait_s >= pair[1].wait_s));
    assert!(table.waits[0].average_us().unwrap() > 0.0 && table.waits[0].interval_s.is_none());
}

#[test]
fn a_server_without_instruments_says_what_to_do() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let table = Observation::start(&server.target(None)).unwrap_err();
    assert!(table.missing[0].why.contains("performance_schema=ON"), "{table:?}");
}

#[test]
fn wait_events_of_postgres_show_the_row_that_is_fought_over() {
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let target = server.target(None);
    prepare(&target);
    let sampler = wait_events::start(&target, Duration::from_millis(5));
    fight_over_one_row(&target);
    let table = sampler.stop();
    assert!(table.missing.is_empty() && table.observed_s > 1.0, "{table:?}");
    // Five of six sessions wait for the row at any time: for its lock, or for who holds it.
    let waited = waited_s(&table, "Lock/");
    assert!(waited > 0.5 * table.observed_s, "{waited}: {table:?}");
    assert!(table.waits.iter().all(|wait| wait.count.is_none() && wait.interval_s.is_some()));
}
