//! Samplers against real servers: every counter that the report draws must come, and faults must be seen.

use std::time::{Duration, Instant};

use sandbox::Sandbox;
use telemetry::drain::{Terms, drain};
use telemetry::{Config, Sampler, Telemetry, gates};
use wire::blocking::Client;

fn watch(server: &Sandbox, database: Option<&str>, work: impl FnOnce(&Sampler)) -> Telemetry {
    let sampler = Sampler::start(&Config {
        client_pids: Vec::new(),
        epoch: Instant::now(),
        server_pid: server.pid(),
        datadir: Some(server.datadir().to_owned()),
        target: Some(server.target(database)),
        replicas: Vec::new(),
        metrics: None,
        agent: None,
    });
    has_sampled(&sampler);
    work(&sampler);
    sampler.stop().0
}

/// Returns when the first look at the server is over: it happens on a thread of its own, and what is done before it is not
/// in the counters' growth.
fn has_sampled(sampler: &Sampler) {
    let limit = Instant::now() + Duration::from_secs(30);
    while !sampler.take_shown().iter().any(|track| track.source == "server") {
        assert!(Instant::now() < limit, "the server's counters were not read within 30 s");
        std::thread::sleep(Duration::from_millis(5));
    }
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
        client_pids: Vec::new(),
        epoch: Instant::now(),
        server_pid: server.pid(),
        datadir: None,
        target: Some(server.target(None)),
        replicas: Vec::new(),
        metrics: None,
        agent: None,
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
    let seen = sampler.stop().0;
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
        client_pids: Vec::new(),
        epoch: Instant::now(),
        server_pid: None,
        datadir: None,
        target: Some(target.clone()),
        replicas: Vec::new(),
        metrics: None,
        agent: None,
    })
    .stop()
    .0;
    assert!(
        refused.missing.iter().any(|m| m.what == "server counters" && m.why.contains("1045")),
        "{:?}",
        refused.missing
    );
    target.password = wire::Secret::new("secret");
    let allowed = Sampler::start(&Config {
        client_pids: Vec::new(),
        epoch: Instant::now(),
        server_pid: None,
        datadir: None,
        target: Some(target),
        replicas: Vec::new(),
        metrics: None,
        agent: None,
    })
    .stop()
    .0;
    assert!(allowed.track("server", "statements").is_some(), "{:?}", allowed.missing);
}

fn terms(limit: Duration, is_ours: bool) -> Terms<'static> {
    Terms { limit, is_ours, is_cold: false, only_reads: false, datadir: None, told: &|_| () }
}

#[test]
fn purge_is_waited_for() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let patient = terms(Duration::from_secs(60), true);
    let drained = drain(&server.target(None), &patient).unwrap();
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
    let drained = drain(&target, &terms(Duration::from_millis(300), true)).unwrap();
    assert!(drained.is_unfinished, "{drained:?}");
    reader.query("COMMIT").unwrap();
    assert!(!drain(&target, &patient).unwrap().is_unfinished);
}

#[test]
fn dirty_pages_are_written_and_settings_are_as_before() {
    for name in ["mariadb"] {
        let Some(server) = sandbox::testing::server(name) else { return };
        let mut client = Client::connect(&server.target(None)).unwrap();
        client.query("CREATE DATABASE d").unwrap();
        client.query("CREATE TABLE d.t (a int PRIMARY KEY, b char(250)) ENGINE=InnoDB").unwrap();
        let rows: Vec<String> = (0..2000).map(|a| format!("({a}, 'x')")).collect();
        client.query(&format!("INSERT INTO d.t VALUES {}", rows.join(","))).unwrap();
        for power in 0..6 {
            client.query(&format!("INSERT INTO d.t SELECT a + {}, b FROM d.t", 2000 << power)).unwrap();
        }
        let mut limit = || -> [String; 5] {
            let mut value =
                |name: &str| client.query_value(&format!("SELECT @@GLOBAL.{name}")).unwrap().unwrap();
            [
                value("innodb_max_dirty_pages_pct"),
                value("innodb_max_dirty_pages_pct_lwm"),
                value("innodb_io_capacity"),
                value("innodb_io_capacity_max"),
                value("innodb_purge_rseg_truncate_frequency"),
            ]
        };
        let before = limit();
        let drained = drain(&server.target(None), &terms(Duration::from_secs(60), true)).unwrap();
        assert!(!drained.is_unfinished, "{name}: {drained:?}");
        let dirty = |text: &str| text.rsplit(' ').next().unwrap().parse::<u32>().unwrap();
        // 1 % of a buffer of 128 MiB.
        assert!(dirty(&drained.found) > 81 && dirty(&drained.left) <= 81, "{name}: {drained:?}");
        assert_eq!(limit(), before, "{name}");
        // Nothing is left that a run of readers would meet.
        let told = std::cell::Cell::new(0);
        let count = |_: &str| told.set(told.get() + 1);
        let dir = Some(server.datadir());
        let readers =
            Terms { only_reads: true, datadir: dir, told: &count, ..terms(Duration::from_secs(60), true) };
        let drained = drain(&server.target(None), &readers).unwrap();
        assert_eq!(told.get(), 0, "{drained:?}");
        drain(&server.target(None), &Terms { only_reads: false, ..readers }).unwrap();
        assert_eq!(told.get(), 1, "the operating system is waited for, and that is told");
    }
}

#[test]
fn dead_rows_are_vacuumed_on_our_own_server_only() {
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let target = server.target(None);
    let mut client = Client::connect(&target).unwrap();
    client.query("CREATE TABLE t (a int) WITH (autovacuum_enabled = off)").unwrap();
    client.query("INSERT INTO t SELECT generate_series(1, 5000)").unwrap();
    client.query("UPDATE t SET a = -a").unwrap();
    // Counters are reported when a session ends, and arrive some time later.
    client.close();
    let found = |is_ours| drain(&target, &terms(Duration::from_secs(60), is_ours)).unwrap().found;
    let wait_for = |dead: &str| {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !found(false).starts_with(dead) {
            assert!(Instant::now() < deadline, "{}", found(false));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    wait_for("dead tuples 5000,");
    found(true);
    wait_for("dead tuples 0,");
}

#[test]
fn a_server_on_this_machine_is_found_by_its_address() {
    for flavor in ["mariadb", "postgres"] {
        let with_port = |spec: &mut sandbox::Spec| spec.listen = sandbox::Listen::FreePort;
        let Some(server) = sandbox::testing::server_with(flavor, with_port) else { return };
        let expected = telemetry::LocalServer {
            pid: server.pid().expect("it runs"),
            datadir: Some(server.datadir().canonicalize().unwrap()),
        };
        for target in [server.target(None), server.tcp_target(None).unwrap()] {
            let found = telemetry::local_server(&target).unwrap_or_else(|| panic!("{:?}", target.endpoint));
            assert_eq!(found, expected, "{:?}", target.endpoint);
        }
    }
}
