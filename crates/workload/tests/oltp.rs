//! The OLTP family on real servers.

mod support;

use std::collections::BTreeMap;

use support::{SERVERS, configure, database, load_tables, run, run_and_check};
use wire::blocking::Client;
use workload::LoadMethod;

const MEMBERS: [&str; 11] = [
    "oltp_read_only",
    "oltp_read_write",
    "oltp_write_only",
    "oltp_point_select",
    "oltp_update_index",
    "oltp_update_non_index",
    "oltp_insert",
    "oltp_delete",
    "select_random_points",
    "select_random_ranges",
    "bulk_insert",
];

#[test]
fn every_member_runs_and_leaves_what_its_outcomes_imply() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        for name in MEMBERS {
            let target = database(&sandbox, &format!("t_{name}"));
            let configured = configure(
                name,
                if name == "bulk_insert" { &[("tables", "3")] } else { &[("tables", "2")] },
                &target,
            );
            load_tables(&*configured, &target);
            let transactions = if name == "bulk_insert" { 8 } else { 400 };
            let result = run_and_check(&*configured, &target, 4, transactions, 1);
            let step = &result.steps[0];
            assert_eq!(step.outcomes.committed, transactions, "{name} on {selector}: {:?}", step.errors);
            let classes: Vec<&str> = step.by_statement.iter().map(|class| class.name.as_str()).collect();
            let documented: Vec<String> = configured.statements().into_iter().map(|doc| doc.class).collect();
            assert_eq!(classes, documented, "{name}");
        }
    }
}

#[test]
fn options_change_the_transaction() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "options");
        let statements = |pairs: &[(&str, &str)]| {
            let mut all = vec![("table_size", "500")];
            all.extend_from_slice(pairs);
            let configured = configure("oltp_read_write", &all, &target);
            load_tables(&*configured, &target);
            // One session: it meets no other, so that no transaction is sent twice.
            let step = run_and_check(&*configured, &target, 1, 100, 3).steps.remove(0);
            assert_eq!(step.outcomes.committed, 100, "{pairs:?}: {:?}", step.errors);
            (step.reads / 100, (step.writes + step.other) / 100)
        };
        assert_eq!(statements(&[]), (14, 6));
        assert_eq!(statements(&[("db_ps_mode", "disable")]), (14, 6));
        assert_eq!(statements(&[("skip_trx", "on")]), (14, 4));
        assert_eq!(statements(&[("range_selects", "off"), ("point_selects", "3")]), (3, 6));
        assert_eq!(
            statements(&[("simple_ranges", "2"), ("delete_inserts", "2"), ("index_updates", "0")]),
            (15, 7)
        );
        assert_eq!(statements(&[("secondary", "on"), ("create_secondary", "off")]), (14, 6));
        assert_eq!(statements(&[("auto_inc", "off"), ("reconnect", "7")]), (14, 6));
        assert_eq!(statements(&[("isolation", "read-committed"), ("rand_type", "zipfian")]), (14, 6));
        // More statements than a session keeps prepared.
        assert_eq!(statements(&[("tables", "80"), ("table_size", "10")]), (14, 6));
    }
}

/// A checksum over all columns, computed by the server.
fn contents(target: &wire::Target) -> String {
    let mut client = Client::connect(target).expect("the server answers");
    let sql = match target.protocol {
        wire::Protocol::Mysql => "SELECT SUM(CRC32(CONCAT_WS('/', id, k, c, pad))) FROM sbtest1",
        wire::Protocol::Postgres => {
            "SELECT SUM(hashtext(CONCAT_WS('/', id, k, c, pad))::bigint) FROM sbtest1"
        }
    };
    client.query_value(sql).expect("a checksum").expect("not NULL")
}

#[test]
fn rows_do_not_depend_on_the_number_of_connections() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "rows");
        let loaded = |connections, seed| {
            let configured =
                configure("oltp_read_write", &[("table_size", "5001"), ("data_seed", seed)], &target);
            let at = workload::LoadAt {
                target: target.clone(),
                connections,
                is_own_server: true,
                stop: load::Stop::new(),
            };
            let report = configured.load(&at, &|_| ()).expect("the load succeeds");
            assert_eq!((report.rows, &report.method), (5001, &LoadMethod::Stream), "{:?}", report.notes);
            contents(&target)
        };
        let one = loaded(1, "5");
        assert_eq!(loaded(3, "5"), one);
        assert_ne!(loaded(1, "6"), one);
    }
}

#[test]
fn inserts_where_the_server_refuses_local_files() {
    let Some(sandbox) = sandbox::testing::server("mariadb") else { return };
    let target = database(&sandbox, "refused");
    // InnoDB tables of a MariaDB are loaded without local files.
    let options = [("table_size", "20k"), ("mysql_storage_engine", "myisam")];
    let configured = configure("oltp_read_write", &options, &target);
    load_tables(&*configured, &target);
    let streamed = contents(&target);
    let mut client = Client::connect(&target).expect("the server answers");
    client.query("SET GLOBAL local_infile = OFF").expect("the administrator may");
    let report = load_tables(&*configured, &target);
    assert!(
        matches!(&report.method, LoadMethod::Inserts { why } if why.contains("local_infile")),
        "{report:?}"
    );
    assert_eq!((report.rows, contents(&target)), (20_000, streamed));
}

#[test]
fn inserts_number_themselves_after_the_load() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        for pairs in [&[("table_size", "100")][..], &[("table_size", "100"), ("auto_inc", "off")]] {
            let target = database(&sandbox, "numbering");
            let configured = configure("oltp_insert", pairs, &target);
            load_tables(&*configured, &target);
            let result = run_and_check(&*configured, &target, 3, 60, 9);
            assert_eq!(result.steps[0].outcomes.committed, 60, "{:?}", result.steps[0].errors);
        }
    }
}

#[test]
fn rows_that_were_counted_are_not_counted_again() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "counted");
        let configured = configure("oltp_read_only", &[("tables", "2"), ("table_size", "100")], &target);
        load_tables(&*configured, &target);
        // A number that no count of these tables gives.
        let counted = BTreeMap::from([("sbtest1".to_owned(), 7)]);
        let before = configured.baseline(&target, &counted).expect("a baseline");
        let rows = BTreeMap::from([("rows of sbtest1".to_owned(), 7), ("rows of sbtest2".to_owned(), 100)]);
        assert_eq!(before.figures, rows, "{selector}");
    }
}

#[test]
fn the_same_seed_gives_the_same_transactions() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "seeds");
        let after = |seed| {
            let configured = configure("oltp_write_only", &[("table_size", "1000")], &target);
            load_tables(&*configured, &target);
            let result = run(&*configured, &target, 1, 50, seed);
            assert_eq!(result.steps[0].outcomes.committed, 50);
            contents(&target)
        };
        let first = after(1);
        assert_eq!(after(1), first);
        assert_ne!(after(2), first);
    }
}
