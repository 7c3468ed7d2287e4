//! Samplers against real servers: every counter that the report draws must come, and faults must be seen.

use std::time::{Duration, Instant};

use sandbox::Sandbox;
use telemetry::{Config, Sampler, Telemetry, gates};
use wire::blocking::Client;

fn watch(server: &Sandbox, database: Option<&str>, work: impl FnOnce(&Sampler)) -> Telemetry {
    let sampler = Sampler::start(&Config {
        epoch: Instant::now(),
        server_pid: server.pid(),
        datadir: Some(server.datadir().to_owned()),
        target: Some(server.target(database)),
        metrics: None,
    });
    work(&sampler);
    sampler.stop()
}

/// Inserts rows one by one, a tick after each hundred.
fn write_rows(server: &Sandbox, database: Option<&str>, sampler: &Sampler) {
    let mut client = Client::connect(&server.target(database)).unwrap();
    client.query("CREATE TABLE t (a int PRIMARY KEY, b text)").unwrap();
    for i in 0..400 {
        client.query(&format!("INSERT INTO t VALUES ({i}, 'some text to be logged')")).unwrap();
        if i % 100 == 99 {
            // PostgreSQL's sessions report their counters no more often than this.
            std::thread::sleep(Duration::from_millis(400));
            client.query("SELECT 1").unwrap();
            sampler.tick();
        }
    }
    std::thread::sleep(Duration::from_millis(1100));
    // Enough work to show in clock ticks of 10 ms.
    for _ in 0..10 {
        client.query("SELECT count(*) FROM t x, t y WHERE x.a < y.a AND y.b <> x.b").unwrap();
    }
    std::thread::sleep(Duration::from_millis(1100));
}

fn grew(seen: &Telemetry, source: &str, name: &str) -> f64 {
    let track = seen.track(source, name).unwrap_or_else(|| panic!("no {source}/{name}: {:?}", seen.missing));
    let points = &track.points;
    points[points.len() - 1].1 - points[0].1
}

fn check_common(seen: &Telemetry) {
    assert!(seen.missing.iter().all(|m| !m.what.contains("counters")), "{:?}", seen.missing);
    assert!(grew(seen, "server", "rows_inserted") >= 400.0);
    assert!(grew(seen, "server", "log_bytes") > 10_000.0);
    assert!(grew(seen, "process", "cpu_user") + grew(seen, "process", "cpu_system") > 0.0);
    assert!(grew(seen, "process", "context_switches_voluntary") > 100.0);
    assert!(seen.track("process", "rss_bytes").unwrap().points[0].1 > 1e6);
    for name in ["sessions_connected", "checkpoint_age_bytes", "row_lock_waiting", "buffer_read_requests"] {
        assert!(seen.track("server", name).is_some(), "no {name}");
    }
    let gate =
        gates::server_restarted(seen.track("process", "started"), seen.track("server", "started_unix_s"));
    assert_eq!(gate.finding, gates::Finding::Held, "{gate:?}");
}

#[test]
fn counters_of_mariadb() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    Client::connect(&server.target(None)).unwrap().query("CREATE DATABASE watched").unwrap();
    let seen = watch(&server, Some("watched"), |sampler| write_rows(&server, Some("watched"), sampler));
    check_common(&seen);
    for name in
        ["dirty_bytes", "buffer_bytes", "history_list_length", "row_lock_waits", "checkpoint_age_limit_bytes"]
    {
        assert!(seen.track("server", name).is_some(), "no {name}: {:?}", seen.missing);
    }
}

#[test]
fn counters_of_postgres() {
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let seen = watch(&server, None, |sampler| write_rows(&server, None, sampler));
    check_common(&seen);
    for name in ["dead_tuples", "live_tuples", "pages_written", "log_syncs", "checkpoints_timed"] {
        assert!(seen.track("server", name).is_some(), "no {name}: {:?}", seen.missing);
    }
}

#[test]
fn a_server_killed_and_started_again_is_seen_by_its_own_clock() {
    let Some(mut server) = sandbox::testing::server("mariadb") else { return };
    let sampler = Sampler::start(&Config {
        epoch: Instant::now(),
        server_pid: server.pid(),
        datadir: None,
        target: Some(server.target(None)),
        metrics: None,
    });
    // The server tells its uptime in seconds: let it become old enough to tell the lives apart.
    for _ in 0..5 {
        std::thread::sleep(Duration::from_secs(1));
        sampler.tick();
    }
    server.kill().unwrap();
    sampler.tick();
    server.start().unwrap();
    for _ in 0..7 {
        std::thread::sleep(Duration::from_secs(1));
        sampler.tick();
    }
    let seen = sampler.stop();
    let gate =
        gates::server_restarted(seen.track("process", "started"), seen.track("server", "started_unix_s"));
    assert_eq!(gate.finding, gates::Finding::Tripped, "{gate:?} {:?}", seen.missing);
    assert!(seen.missing.iter().any(|m| m.what.contains("some seconds")), "{:?}", seen.missing);
}

#[test]
fn a_user_without_privileges_gets_less_with_a_reason() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let mut admin = Client::connect(&server.target(None)).unwrap();
    admin.query("CREATE USER watcher@localhost IDENTIFIED BY 'secret'").unwrap();
    let mut target = server.target(None);
    target.user = "watcher".to_owned();
    target.password = wire::Secret::new("wrong");
    let refused = Sampler::start(&Config {
        epoch: Instant::now(),
        server_pid: None,
        datadir: None,
        target: Some(target.clone()),
        metrics: None,
    })
    .stop();
    assert!(
        refused.missing.iter().any(|m| m.what == "server counters" && m.why.contains("1045")),
        "{:?}",
        refused.missing
    );
    target.password = wire::Secret::new("secret");
    let allowed = Sampler::start(&Config {
        epoch: Instant::now(),
        server_pid: None,
        datadir: None,
        target: Some(target),
        metrics: None,
    })
    .stop();
    assert!(allowed.track("server", "statements").is_some(), "{:?}", allowed.missing);
}

#[test]
fn debt_is_drained_before_a_run() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let drained = telemetry::drain::drain(&server.target(None), Duration::from_secs(20)).unwrap();
    assert!(!drained.is_unfinished && drained.left.starts_with("history list"), "{drained:?}");
    // A reader that stays keeps purge from working.
    let target = server.target(Some("test"));
    let mut admin = Client::connect(&server.target(None)).unwrap();
    admin.query("CREATE DATABASE IF NOT EXISTS test").unwrap();
    let mut client = Client::connect(&target).unwrap();
    client.query("CREATE TABLE t (a int PRIMARY KEY)").unwrap();
    client.query("INSERT INTO t VALUES (1)").unwrap();
    let mut reader = Client::connect(&target).unwrap();
    reader.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ").unwrap();
    reader.query("START TRANSACTION WITH CONSISTENT SNAPSHOT").unwrap();
    reader.query("SELECT * FROM t").unwrap();
    for _ in 0..3000 {
        client.query("UPDATE t SET a = -a").unwrap();
    }
    let drained = telemetry::drain::drain(&target, Duration::from_millis(300)).unwrap();
    assert!(drained.is_unfinished, "{drained:?}");
    reader.query("COMMIT").unwrap();
    assert!(!telemetry::drain::drain(&target, Duration::from_secs(30)).unwrap().is_unfinished);
}
