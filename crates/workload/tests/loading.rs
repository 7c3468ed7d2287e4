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
    let at = LoadAt { target: target.clone(), connections: 2 };
    let failed = workload::loader::load(&at, &dialect, plan, &|_| ());
    assert!(
        matches!(&failed, Err(Error::Statement { source: wire::Error::Server(e), .. }) if e.number == 1062),
        "{failed:?}"
    );
    let mut client = Client::connect(&target).expect("the server answers");
    let rows = client.query_value("SELECT COUNT(*) FROM t").expect("a count");
    assert_eq!(rows.as_deref(), Some("0"), "half a range is not kept");
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
        let at = LoadAt { target: target.clone(), connections: 2 };
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
