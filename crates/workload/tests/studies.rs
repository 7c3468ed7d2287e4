//! The workloads of the published studies on real servers: everything that they send is understood, and the tables
//! are afterwards what the outcomes imply.

mod support;

use support::{SERVERS, configure, database, load_tables, run_and_check};

/// Runs a configuration on both servers with four sessions; gives reads, writes and others of a transaction on average.
fn check(name: &str, pairs: &[(&str, &str)], transactions: u64) -> Vec<(f64, f64, f64)> {
    check_with(name, pairs, 4, transactions)
}

/// As [`check`], with one session alone: no deadlock makes it send a transaction again, so that the statements of one
/// can be counted exactly.
fn check_alone(name: &str, pairs: &[(&str, &str)], transactions: u64) -> Vec<(f64, f64, f64)> {
    check_with(name, pairs, 1, transactions)
}

fn check_with(name: &str, pairs: &[(&str, &str)], sessions: u32, transactions: u64) -> Vec<(f64, f64, f64)> {
    let mut all = Vec::new();
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "studies");
        let configured = configure(name, pairs, &target);
        load_tables(&*configured, &target);
        let step = run_and_check(&*configured, &target, sessions, transactions, 1).steps.remove(0);
        assert_eq!(
            step.outcomes.committed, transactions,
            "{name} {pairs:?} on {selector}: {:?}",
            step.errors
        );
        let each = |count: u64| count as f64 / transactions as f64;
        all.push((each(step.reads), each(step.writes), each(step.other)));
    }
    all
}

#[test]
fn dbstress_reads_and_writes() {
    let small = ("dbsize", "2000");
    assert!(check("dbstress", &[small], 400).iter().all(|found| *found == (2.0, 0.0, 0.0)));
    for pairs in [
        &[small, ("rw", "1")][..],
        &[small, ("rw", "3"), ("write_target", "random"), ("db_ps_mode", "disable")],
        &[small, ("rw", "1"), ("history_partitions", "8"), ("history_primary_key", "on")],
    ] {
        let reads = if pairs[1].1 == "1" { 1.0 } else { 1.5 };
        for found in check("dbstress", pairs, 400) {
            assert!((found.0 - reads).abs() < 0.05 && found.1 > 0.5, "{pairs:?}: {found:?}");
        }
    }
}

#[test]
fn old_sysbench_transactions() {
    let size = ("table_size", "5000");
    check("oltp_04", &[size], 200);
    check("oltp_05", &[size, ("tables", "3")], 200);
    assert!(check_alone("oltp_04", &[size], 200).iter().all(|found| *found == (14.0, 5.0, 2.0)));
    assert!(
        check_alone("oltp_05", &[size, ("tables", "3")], 200).iter().all(|found| *found == (14.0, 4.0, 2.0))
    );
    assert!(
        check("oltp_04", &[size, ("read_only", "on")], 200).iter().all(|found| *found == (14.0, 0.0, 2.0))
    );
    assert!(
        check("oltp_04", &[size, ("test_mode", "simple")], 200).iter().all(|found| *found == (1.0, 0.0, 0.0))
    );
    for mode in ["select", "update_key", "update_nokey", "insert", "delete"] {
        check("oltp_04", &[size, ("test_mode", "nontrx"), ("nontrx_mode", mode)], 200);
    }
}

#[test]
fn old_sysbench_on_an_engine_without_transactions() {
    let Some(sandbox) = sandbox::testing::server("mariadb") else { return };
    let target = database(&sandbox, "locked");
    let pairs = [("table_size", "2000"), ("mysql_storage_engine", "myisam"), ("user_delay_max", "50")];
    let configured = configure("oltp_04", &pairs, &target);
    load_tables(&*configured, &target);
    let step = run_and_check(&*configured, &target, 4, 100, 1).steps.remove(0);
    assert_eq!((step.outcomes.committed, step.reads), (100, 1400), "{:?}", step.errors);
    assert!(step.by_statement.iter().any(|class| class.name == "lock" && class.count == 100));
}

#[test]
fn the_catalogue_answers() {
    let found = check("catalogue", &[("scale", "0.005")], 300);
    assert!(found.iter().all(|found| *found == (1.0, 0.0, 0.0)), "{found:?}");
}
