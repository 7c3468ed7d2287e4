//! The ways by which rows get into a server: the same rows on all of them.

mod support;

use support::{configure, database, load_tables};
use wire::Target;
use wire::blocking::Client;
use workload::{Configured, Error, LoadAt, LoadMethod};

/// A checksum over all columns, computed by a server of the MySQL family: the same on all its versions and engines.
fn contents(target: &Target) -> String {
    let mut client = Client::connect(target).expect("the server answers");
    let sql = "SELECT SUM(CRC32(CONCAT_WS('/', id, k, c, pad))) FROM sbtest1";
    client.query_value(sql).expect("a checksum").expect("not NULL")
}

fn oltp(target: &Target, engine: &str) -> Box<dyn Configured> {
    configure("oltp_read_write", &[("table_size", "20k"), ("mysql_storage_engine", engine)], target)
}

#[test]
fn parameters_and_files_bring_the_same_rows_to_mariadb() {
    let Some(sandbox) = sandbox::testing::server("mariadb") else { return };
    let target = database(&sandbox, "ways");
    let mut client = Client::connect(&target).expect("the server answers");
    assert!(client.has_bulk(), "MariaDB {} executes in bulk", client.server().version);
    // How many files the server has read, over all connections.
    let mut files = || -> u64 {
        let mut value = 0;
        client
            .query_rows("SHOW GLOBAL STATUS LIKE 'Com_load'", &mut |row| {
                value = row.text(1).and_then(|text| text.parse().ok()).unwrap_or(0);
            })
            .expect("a status");
        value
    };
    let mut loaded = |engine: &str| {
        let before = files();
        assert_eq!(load_tables(&*oltp(&target, engine), &target).method, LoadMethod::Stream);
        (files() - before, contents(&target))
    };
    let (read, by_parameters) = loaded("innodb");
    assert_eq!(read, 0, "no file");
    let (read, by_files) = loaded("myisam");
    assert!(read > 0, "MyISAM is loaded from a file");
    assert_eq!(by_parameters, by_files);
}

#[test]
fn a_key_that_is_there_twice_fails_the_load() {
    let Some(sandbox) = sandbox::testing::server("mariadb") else { return };
    let target = database(&sandbox, "twice");
    let client = Client::connect(&target).expect("the server answers");
    let dialect = workload::Dialect::of_server(target.protocol, &client.server().version);
    let plan = workload::loader::LoadPlan {
        tables: vec![workload::loader::TableLoad {
            name: "t".to_owned(),
            create: vec!["CREATE TABLE t (id INTEGER PRIMARY KEY, note TEXT) ENGINE = InnoDB".to_owned()],
            columns: "id, note".to_owned(),
            rows: 50_000,
            // The last row has the first one's key.
            push_row: Box::new(|row, out| {
                out.extend_from_slice(format!("{}\t\\N\n", row % 49_999).as_bytes());
            }),
            after: Vec::new(),
        }],
    };
    let at = LoadAt { target: target.clone(), connections: 2, is_own_server: true, stop: load::Stop::new() };
    let failed = workload::loader::load(&at, &dialect, plan, &|_| ());
    assert!(
        matches!(&failed, Err(Error::Statement { source: wire::Error::Server(e), .. }) if e.number == 1062),
        "{failed:?}"
    );
    let mut client = Client::connect(&target).expect("the server answers");
    let rows = client.query_value("SELECT COUNT(*) FROM t").expect("a count");
    assert_eq!(rows.as_deref(), Some("0"), "half a range is not kept");
}

/// Enough rows that a table of MariaDB with AUTO_INCREMENT gets a stand-in.
const LARGE_ROWS: u64 = 300_000;

/// Loads a table `t` of two columns over two connections.
fn load_large(
    target: &Target,
    is_own_server: bool,
    create: &str,
    key_of: impl Fn(u64) -> u64 + Send + Sync,
) -> Result<workload::LoadReport, Error> {
    let client = Client::connect(target).expect("the server answers");
    let dialect = workload::Dialect::of_server(target.protocol, &client.server().version);
    let plan = workload::loader::LoadPlan {
        tables: vec![workload::loader::TableLoad {
            name: "t".to_owned(),
            create: vec![create.to_owned()],
            columns: "id, n".to_owned(),
            rows: LARGE_ROWS,
            push_row: Box::new(move |row, out| {
                out.extend_from_slice(format!("{}\t{row}\n", key_of(row)).as_bytes());
            }),
            after: vec!["CREATE INDEX n_of_t ON t (n)".to_owned()],
        }],
    };
    workload::loader::load(
        &LoadAt { target: target.clone(), connections: 2, is_own_server, stop: load::Stop::new() },
        &dialect,
        plan,
        &|_| (),
    )
}

/// How many tables the server has altered.
fn alterations(target: &Target) -> String {
    let mut client = Client::connect(target).expect("the server answers");
    let sql =
        "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'COM_ALTER_TABLE'";
    client.query_value(sql).expect("a status").expect("a value")
}

#[test]
fn a_large_table_of_mariadb_is_filled_through_a_stand_in_that_leaves_nothing() {
    let Some(sandbox) = sandbox::testing::server("mariadb") else { return };
    let target = database(&sandbox, "large");
    let mut client = Client::connect(&target).expect("the server answers");
    // What a load that was killed has left.
    client.query("CREATE TABLE plimsoll_t (nothing INTEGER)").expect("a table");
    let before = alterations(&target);
    let with_numbers =
        "CREATE TABLE t (id BIGINT NOT NULL AUTO_INCREMENT, n INTEGER, PRIMARY KEY (id)) ENGINE = InnoDB";
    let loaded = load_large(&target, true, with_numbers, |row| row + 1).expect("the load succeeds");
    assert_eq!(loaded.rows, LARGE_ROWS);
    assert_ne!(alterations(&target), before, "a stand-in was made");
    let mut client = Client::connect(&target).expect("the server answers");
    let mut value = |sql: &str| client.query_value(sql).expect(sql);
    assert_eq!(value("SHOW TABLES").as_deref(), Some("t"));
    assert_eq!(
        value("SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE()").as_deref(),
        Some("1")
    );
    let sums =
        format!("{LARGE_ROWS}/{}/{}", LARGE_ROWS * (LARGE_ROWS + 1) / 2, LARGE_ROWS * (LARGE_ROWS - 1) / 2);
    assert_eq!(
        value("SELECT CONCAT_WS('/', COUNT(*), SUM(id), SUM(n)) FROM t FORCE INDEX (PRIMARY)"),
        Some(sums)
    );
    assert_eq!(
        value("SELECT COUNT(*) FROM t FORCE INDEX (n_of_t) WHERE n >= 0"),
        Some(LARGE_ROWS.to_string())
    );
    assert_eq!(value("SELECT CREATE_OPTIONS FROM information_schema.TABLES WHERE TABLE_NAME = 't' AND TABLE_SCHEMA = DATABASE()").as_deref(), Some(""));
    value("INSERT INTO t (n) VALUES (7)");
    assert_eq!(value("SELECT MAX(id) FROM t"), Some((LARGE_ROWS + 1).to_string()), "its numbers go on");

    // Tables that no stand-in can take the place of are loaded without one.
    for other in [
        "CREATE TABLE t (id BIGINT NOT NULL, n INTEGER, PRIMARY KEY (id)) ENGINE = InnoDB",
        "CREATE TABLE t (id BIGINT NOT NULL AUTO_INCREMENT, n INTEGER, PRIMARY KEY (id), UNIQUE (n)) ENGINE = InnoDB",
        "CREATE TABLE t (id BIGINT NOT NULL AUTO_INCREMENT, n INTEGER, PRIMARY KEY (id)) ENGINE = InnoDB \
         PARTITION BY HASH (id) PARTITIONS 2",
    ] {
        let before = alterations(&target);
        assert_eq!(
            load_large(&target, true, other, |row| row + 1).expect("the load succeeds").rows,
            LARGE_ROWS
        );
        assert_eq!(alterations(&target), before, "{other}");
    }

    // A server of somebody else's gets no table that nobody asked for.
    let before = alterations(&target);
    let loaded = load_large(&target, false, with_numbers, |row| row + 1).expect("the load succeeds");
    assert_eq!((loaded.rows, alterations(&target)), (LARGE_ROWS, before));

    // The last row has the first one's key.
    let failed = load_large(&target, true, with_numbers, |row| row % (LARGE_ROWS - 1) + 1);
    assert!(
        matches!(&failed, Err(Error::Statement { source: wire::Error::Server(e), .. }) if e.number == 1062),
        "{failed:?}"
    );
    let mut client = Client::connect(&target).expect("the server answers");
    let mut value = |sql: &str| client.query_value(sql).expect(sql);
    assert_eq!(value("SHOW TABLES LIKE 'plimsoll%'"), None, "the stand-in is gone");
    assert_eq!(value("SELECT COUNT(*) FROM t").as_deref(), Some("0"), "half a table is not kept");
}

/// Each build of the MySQL family: its own way of loading, without the redo log where that can be switched off; the rows
/// outlive a crash right after.
#[test]
fn chosen_builds_keep_what_was_loaded_without_a_redo_log() {
    let mut checksums: Vec<(&str, String)> = Vec::new();
    for selector in sandbox::testing::chosen_builds() {
        if selector.starts_with("postgres") {
            continue;
        }
        let Some(mut sandbox) = sandbox::testing::server(selector) else { return };
        let target = database(&sandbox, "redo");
        let configured = oltp(&target, "innodb");
        let at =
            LoadAt { target: target.clone(), connections: 2, is_own_server: true, stop: load::Stop::new() };
        let is_on = |when: &str| {
            let mut client = Client::connect(&target).expect("the server answers");
            let mut state = None;
            client
                .query_rows("SHOW GLOBAL STATUS LIKE 'Innodb_redo_log_enabled'", &mut |row| {
                    state = row.text(1).map(str::to_owned);
                })
                .expect("a status");
            // Servers without the switch have no such status.
            assert!(state.as_deref().is_none_or(|state| state == "ON"), "{selector} {when}: {state:?}");
        };
        let failed = workload::without_redo_log(&target, || -> Result<(), Error> {
            Err(Error::Unsupported("a load".to_owned()))
        });
        assert_eq!(
            failed.expect_err("it failed").to_string(),
            Error::Unsupported("a load".into()).to_string()
        );
        is_on("after a failed load");
        workload::without_redo_log(&target, || configured.load(&at, &|_| ())).expect("the load succeeds");
        is_on("after a load");
        sandbox.kill().expect("the server is killed");
        sandbox.start().expect("the server recovers");
        assert!(configured.is_loaded(&target).expect("the tables can be counted"), "{selector}");
        checksums.push((selector, contents(&target)));
    }
    for (selector, checksum) in &checksums {
        assert_eq!(*checksum, checksums[0].1, "{selector} against {}", checksums[0].0);
    }
}

#[test]
fn a_load_ends_when_it_is_stopped_and_so_does_what_the_server_is_at() {
    for selector in ["postgres", "mariadb"] {
        let Some(sandbox) = sandbox::testing::server(selector) else { return };
        let target = database(&sandbox, "stopped");
        let client = Client::connect(&target).expect("the server answers");
        let dialect = workload::Dialect::of_server(target.protocol, &client.server().version);
        // Far more rows than anybody would wait for; and an index that takes as long as we like.
        let sleep = if selector == "postgres" { "SELECT pg_sleep(300)" } else { "SELECT SLEEP(300)" };
        for (rows, after) in [(4_000_000_000, Vec::new()), (10, vec![sleep.to_owned()])] {
            let stop = load::Stop::new();
            let at =
                LoadAt { target: target.clone(), connections: 2, is_own_server: true, stop: stop.clone() };
            let plan = workload::loader::LoadPlan {
                tables: vec![workload::loader::TableLoad {
                    name: "t".to_owned(),
                    create: vec!["CREATE TABLE t (id BIGINT NOT NULL, n INTEGER)".to_owned()],
                    columns: "id, n".to_owned(),
                    rows,
                    push_row: Box::new(|row, out| out.extend_from_slice(format!("{row}\t1\n").as_bytes())),
                    after,
                }],
            };
            let stopper = std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_secs(1));
                stop.request();
                std::time::Instant::now()
            });
            let failed = workload::loader::load(&at, &dialect, plan, &|_| ());
            let took = stopper.join().expect("no panic").elapsed();
            assert!(matches!(failed, Err(Error::Stopped)), "{selector}: {failed:?}");
            assert!(
                took < std::time::Duration::from_secs(30),
                "{selector}: ended {took:?} after it was stopped"
            );
            // Nothing goes on in the server.
            let mut client = Client::connect(&target).expect("the server answers");
            let going_on = match selector {
                "postgres" => {
                    "SELECT COUNT(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep%' AND state = 'active' \
                               AND pid <> pg_backend_pid()"
                }
                _ => {
                    "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%SLEEP(300)%' \
                      AND ID <> CONNECTION_ID()"
                }
            };
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
            while client.query_value(going_on).expect("a count").as_deref() != Some("0") {
                assert!(std::time::Instant::now() < deadline, "{selector}: the server goes on");
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}
