//! Every build of the catalogue that Plimsoll promises to run, for real: fetched, deployed, asked, stopped, restarted
//! with its data, destroyed. `PLIMSOLL_TEST_BUILDS=eras` runs one of each flavour and era, `=all` every one.

use sandbox::{Sandbox, testing};

/// One of each flavour and era.
const ERAS: [&str; 8] = [
    "mysql@5.5.34",
    "mysql@5.6.14",
    "mysql@8.0.33",
    "mariadb@10.1.23",
    "mariadb@11.4.5",
    "postgres@9.6.24",
    "postgres@15",
    "postgres@18.6",
];

/// The others.
const OTHERS: [&str; 6] = [
    "mysql@5.5.9",
    "mariadb@10.2.11",
    "mariadb@10.11.5",
    "mariadb@10.11",
    "postgres@12.22",
    "postgres@17.11",
];

fn chosen() -> Vec<&'static str> {
    match std::env::var("PLIMSOLL_TEST_BUILDS").as_deref() {
        Ok("all") => ERAS.into_iter().chain(OTHERS).collect(),
        Ok("eras") => ERAS.to_vec(),
        _ => {
            eprintln!("NOT TESTED: fetched builds; PLIMSOLL_TEST_BUILDS=eras or =all fetches and runs them");
            Vec::new()
        }
    }
}

fn query(server: &Sandbox, database: Option<&str>, sql: &str) -> Option<String> {
    let mut client = wire::blocking::Client::connect(&server.target(database)).unwrap();
    client.query_value(sql).unwrap_or_else(|e| panic!("{}: {sql}: {e}", server.build()))
}

#[test]
fn every_build_lives_keeps_its_data_and_goes() {
    for selector in chosen() {
        let begin = std::time::Instant::now();
        let Some(mut server) = testing::server(selector) else { return };
        let name = server.build().name();
        let deployed_s = begin.elapsed().as_secs_f64();
        assert_eq!(query(&server, None, "SELECT 40 + 2").as_deref(), Some("42"), "{name}");
        query(&server, None, "CREATE DATABASE sbtest");
        query(&server, Some("sbtest"), "CREATE TABLE t (a INTEGER NOT NULL PRIMARY KEY, b VARCHAR(20))");
        query(&server, Some("sbtest"), "INSERT INTO t VALUES (1, 'one'), (2, 'two')");
        let reported = server.reported_settings().unwrap();
        assert_eq!(reported["max_connections"], server.settings()["max_connections"], "{name}");
        let (dir, stop) = (server.dir().to_owned(), server.restart().unwrap());
        assert!(!stop.killed, "{name} had to be killed");
        assert_eq!(query(&server, Some("sbtest"), "SELECT COUNT(*) FROM t").as_deref(), Some("2"), "{name}");
        let pid = server.pid().unwrap();
        server.destroy().unwrap();
        assert!(
            !dir.exists() && !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "{name} left something"
        );
        eprintln!("{name}: deployed in {deployed_s:.2} s, stopped in {:.2} s", stop.took.as_secs_f64());
    }
}

#[test]
fn all_builds_run_at_once() {
    let servers: Vec<Sandbox> = chosen().into_iter().filter_map(testing::server).collect();
    for server in &servers {
        assert_eq!(query(server, None, "SELECT 40 + 2").as_deref(), Some("42"), "{}", server.build());
    }
    let pids: Vec<u32> = servers.iter().filter_map(Sandbox::pid).collect();
    assert_eq!(pids.len(), servers.len());
    for server in servers {
        server.destroy().unwrap();
    }
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
