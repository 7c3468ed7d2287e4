use super::*;
use crate::engine::{Draw, seen};
use crate::{Configured, Flavor, Version};

fn fixed(name: &str, flavor: Flavor, given: &[(&str, &str)]) -> Drawn<Transaction> {
    let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let form = if name == OLTP_04.name { Form::V04 } else { Form::V05 };
    let dialect = Dialect { flavor, version: Version::default(), engine: None };
    configured(form, &given, dialect).expect("good options")
}

/// Reads, writes and others of a transaction, by the statements' first words.
fn counts(of: &Drawn<Transaction>) -> (usize, usize, usize) {
    let mut memory = of.workload.draw.memory(1, 0);
    let names: Vec<&str> =
        seen::transaction(&of.workload, &mut memory).iter().map(|(name, _)| *name).collect();
    let of_kind =
        |wanted: &[&str]| names.iter().filter(|name| wanted.iter().any(|w| name.contains(w))).count();
    (
        of_kind(&["select", "range"]),
        of_kind(&["update", "delete", "insert"]),
        of_kind(&["begin", "commit", "lock"]),
    )
}

#[test]
fn transactions_have_the_statements_of_their_generation() {
    assert_eq!(counts(&fixed("oltp_04", Flavor::Mysql, &[])), (14, 5, 2));
    assert_eq!(counts(&fixed("oltp_05", Flavor::Mysql, &[("tables", "25")])), (14, 4, 2));
    assert_eq!(counts(&fixed("oltp_04", Flavor::Postgres, &[("read_only", "on")])), (14, 0, 2));
    assert_eq!(counts(&fixed("oltp_04", Flavor::Mysql, &[("skip_trx", "on")])), (14, 5, 0));
    assert_eq!(counts(&fixed("oltp_04", Flavor::Mysql, &[("test_mode", "simple")])), (1, 0, 0));
    let more = [("point_selects", "0"), ("sum_ranges", "3"), ("index_updates", "2")];
    assert_eq!(counts(&fixed("oltp_04", Flavor::Mysql, &more)), (6, 6, 2));
    for (mode, expect) in
        [("select", (1, 0, 0)), ("update_key", (0, 1, 0)), ("insert", (0, 1, 0)), ("delete", (0, 1, 0))]
    {
        let given = [("test_mode", "nontrx"), ("nontrx_mode", mode)];
        assert_eq!(counts(&fixed("oltp_04", Flavor::Postgres, &given)), expect, "{mode}");
    }
}

#[test]
fn the_extra_update_delete_and_insert_are_of_one_row() {
    let of = fixed("oltp_04", Flavor::Mysql, &[("table_size", "1000000")]);
    let transaction = seen::transaction(&of.workload, &mut of.workload.draw.memory(9, 0));
    let names: Vec<&str> = transaction.iter().map(|(name, _)| *name).collect();
    assert_eq!(
        names[15..],
        ["index_update", "non_index_update", "extra_update", "delete", "insert", "commit"]
    );
    let row = &transaction[17].1[0];
    assert_eq!((&transaction[18].1[0], &transaction[19].1[0]), (row, row));
    let c = &transaction[16].1[0];
    assert_eq!((c.split('-').count(), c.len() <= 120), (10, true));
}

#[test]
fn engines_without_transactions_are_locked() {
    let of = fixed("oltp_04", Flavor::Mysql, &[("mysql_storage_engine", "myisam")]);
    let docs = of.statements();
    assert_eq!(docs[0].sql, "LOCK TABLES sbtest WRITE");
    assert_eq!(docs.last().expect("statements").sql, "UNLOCK TABLES");
    assert!(!of.workload.is_atomic);
    let reading = fixed("oltp_04", Flavor::Mysql, &[("mysql_storage_engine", "myisam"), ("read_only", "on")]);
    assert_eq!(reading.statements()[0].sql, "LOCK TABLES sbtest READ");
    assert_eq!(counts(&of), (14, 5, 2));
}

#[test]
fn ranges_end_within_the_table_in_04_only() {
    let check = |name: &str, wanted: bool| {
        let of = fixed(name, Flavor::Mysql, &[("table_size", "150"), ("dist_type", "uniform")]);
        let mut memory = of.workload.draw.memory(5, 0);
        let mut longest = 0;
        for _ in 0..200 {
            for (name, values) in seen::transaction(&of.workload, &mut memory) {
                let Some(last) = values.get(1).filter(|_| name.ends_with("range")) else { continue };
                let (first, last): (u64, u64) = (values[0].parse().unwrap(), last.parse().unwrap());
                let rows = last - first + 1;
                assert_eq!(
                    rows,
                    if of.workload.draw.form == Form::V04 && name == "distinct_range" { 101 } else { 100 },
                    "{name}"
                );
                longest = longest.max(last);
            }
        }
        assert_eq!(longest <= 150, wanted, "{name}: {longest}");
    };
    check("oltp_04", true);
    check("oltp_05", false);
}

#[test]
fn deletes_step_through_all_rows() {
    let of = fixed(
        "oltp_04",
        Flavor::Mysql,
        &[("test_mode", "nontrx"), ("nontrx_mode", "delete"), ("table_size", "1000")],
    );
    let mut memory = of.workload.draw.memory(1, 0);
    let rows: std::collections::BTreeSet<String> =
        (0..1000).map(|_| seen::transaction(&of.workload, &mut memory)[0].1[0].clone()).collect();
    assert_eq!(rows.len(), 1000);
}

#[test]
fn rows_and_schema_are_the_old_ones() {
    let of = fixed("oltp_04", Flavor::Mysql, &[("mysql_storage_engine", "myisam")]);
    let line = |of: &Drawn<Transaction>, row| {
        let mut out = Vec::new();
        data::push_row(of, 1, row, &mut out);
        String::from_utf8(out).expect("ASCII")
    };
    assert_eq!(line(&of, 9), "10\t0\t \tqqqqqqqqqqwwwwwwwwwweeeeeeeeeerrrrrrrrrrtttttttttt\n");
    assert!(of.tables()[0].create[0].ends_with("ENGINE = myisam MAX_ROWS=1000000"));
    let new = fixed("oltp_05", Flavor::Postgres, &[]);
    let fields = line(&new, 0);
    let lengths: Vec<usize> = fields.trim_end().split('\t').map(str::len).collect();
    assert_eq!((lengths[0], lengths[2], lengths[3]), (1, 119, 59));
    assert_ne!(of.dataset_key(), new.dataset_key());
    let inserts = fixed("oltp_04", Flavor::Mysql, &[("test_mode", "nontrx"), ("nontrx_mode", "insert")]);
    assert_eq!(inserts.loaded_rows(), 0);
}
