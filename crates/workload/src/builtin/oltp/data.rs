//! Tables and rows of the family.

use super::options::Settings;
use crate::control::Control;
use crate::loader::{self, LoadPlan, TableLoad};
use crate::random::{Rng, SplitMix64, digit_groups, digits};
use crate::{Error, LoadAt, LoadReport, Progress};

/// Changes with anything that changes the bytes of generated rows.
const GENERATOR_VERSION: u32 = 1;

/// What decides the tables' contents.
pub(super) fn key(settings: &Settings) -> String {
    let mut key = format!("sbtest v{GENERATOR_VERSION}");
    let of_data = [
        "tables",
        "table_size",
        "auto_inc",
        "create_table_options",
        "secondary",
        "create_secondary",
        "mysql_storage_engine",
        "pgsql_variant",
        "data_seed",
        "rand_type",
    ];
    // The parameters of a distribution matter only where it is the one in use.
    let of_distribution: &[&str] = match settings.options.text("rand_type") {
        "special" => &["rand_spec_iter", "rand_spec_pct", "rand_spec_res"],
        "pareto" => &["rand_pareto_h"],
        "zipfian" => &["rand_zipfian_exp"],
        _ => &[],
    };
    for name in of_data.iter().chain(of_distribution) {
        key.push_str(&format!(" {name}={}", settings.options.text(name)));
    }
    key
}

/// About 260 bytes a row with primary key and k on both InnoDB and PostgreSQL (measured with a million rows:
/// 248 and 256), and what an empty table takes.
pub(super) fn bytes_on_disk(settings: &Settings) -> u64 {
    settings.tables.saturating_mul(settings.table_size.saturating_mul(265).saturating_add(400_000))
}

/// The CREATE TABLE without indexes that can wait until the rows are there.
fn create_table(settings: &Settings, table: &str) -> String {
    let syntax = settings.dialect.syntax();
    let int = if settings.is_wide() { "BIGINT" } else { "INTEGER" };
    let id = match (settings.is_auto_inc, settings.is_wide()) {
        (false, _) => format!("{int} NOT NULL"),
        (true, _) if settings.is_redshift => format!("{int} IDENTITY(1,1)"),
        (true, false) => syntax.auto_int.to_owned(),
        (true, true) => syntax.auto_bigint.to_owned(),
    };
    // InnoDB keeps its rows in the primary key, so it has to be there first; in a heap it is built faster from
    // the rows.
    let key = match (syntax.has_engines, settings.options.switch("secondary")) {
        (true, false) => ", PRIMARY KEY (id)",
        (true, true) => ", KEY xid (id)",
        (false, _) => "",
    };
    format!(
        "CREATE TABLE {table} (id {id}, k {int} DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
         pad CHAR(60) DEFAULT '' NOT NULL{key}){}",
        settings.dialect.table_options(&settings.engine, settings.options.text("create_table_options"))
    )
}

/// Statements on a table when its rows are there.
fn after_rows(settings: &Settings, number: u64) -> Vec<String> {
    let table = format!("sbtest{number}");
    let mut statements = Vec::new();
    if !settings.dialect.syntax().has_engines {
        statements.push(if settings.options.switch("secondary") {
            format!("CREATE INDEX xid{number} ON {table} (id)")
        } else {
            format!("ALTER TABLE {table} ADD PRIMARY KEY (id)")
        });
        if settings.is_auto_inc && !settings.is_redshift {
            statements.extend(settings.dialect.continue_numbering(&table, "id", settings.table_size));
        }
    }
    if settings.options.switch("create_secondary") && !settings.is_redshift {
        statements.push(format!("CREATE INDEX k_{number} ON {table} (k)"));
    }
    statements
}

/// Appends row `row` (from 0) of a table as a line of tab-separated text. It depends on nothing but seed, table
/// and row.
fn push_row(settings: &Settings, table_seed: u64, row: u64, out: &mut Vec<u8>) {
    let mut rng = Rng::stream(table_seed, row);
    digits(row + 1, out);
    out.push(b'\t');
    digits(settings.rows.sample(&mut rng), out);
    out.push(b'\t');
    digit_groups(&mut rng, 10, out);
    out.push(b'\t');
    digit_groups(&mut rng, 5, out);
    out.push(b'\n');
}

pub(super) fn load(
    settings: &Settings,
    at: &LoadAt,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LoadReport, Error> {
    let tables = (1..=settings.tables).map(|number| {
        let table_seed = SplitMix64::new(settings.data_seed ^ (number << 40)).next();
        let name = format!("sbtest{number}");
        TableLoad {
            create: vec![create_table(settings, &name)],
            columns: "id, k, c, pad".to_owned(),
            rows: settings.table_size,
            push_row: Box::new(move |row, out: &mut Vec<u8>| push_row(settings, table_seed, row, out)),
            after: after_rows(settings, number),
            name,
        }
    });
    loader::load(at, &settings.dialect, LoadPlan { tables: tables.collect() }, progress)
}

/// Rows of each table, in order.
pub(super) fn count_rows(settings: &Settings, control: &mut Control) -> Result<Vec<i128>, Error> {
    let count = |table: String| control.number("counting rows", &format!("SELECT COUNT(*) FROM {table}"));
    settings.tables().into_iter().map(count).collect()
}

#[cfg(test)]
mod tests {
    use super::super::mix::Member;
    use super::*;
    use crate::{Dialect, Flavor, Version};
    use std::collections::BTreeMap;

    fn settings(flavor: Flavor, given: &[(&str, &str)]) -> Settings {
        let given: BTreeMap<String, String> =
            given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let dialect = Dialect { flavor, version: Version::default(), engine: None };
        Settings::read("oltp_read_write", Member::ReadWrite, &given, dialect).expect("good options")
    }

    #[test]
    fn a_row_depends_on_its_number_alone() {
        let settings = settings(Flavor::Mariadb, &[("table_size", "1000")]);
        let line = |row| {
            let mut out = Vec::new();
            push_row(&settings, 7, row, &mut out);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(line(5), line(5));
        assert_ne!(line(5), line(6));
        let row = line(999);
        let fields: Vec<&str> = row.trim_end().split('\t').collect();
        assert_eq!((fields[0], fields[2].len(), fields[3].len(), fields.len()), ("1000", 119, 59, 4));
        assert!((1..=1000).contains(&fields[1].parse::<u64>().expect("k")));
    }

    #[test]
    fn schema_follows_dialect_and_options() {
        let mysql = settings(Flavor::Mysql, &[("mysql_storage_engine", "myisam")]);
        assert_eq!(
            create_table(&mysql, "sbtest1"),
            "CREATE TABLE sbtest1 (id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, \
             c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE = myisam"
        );
        assert_eq!(after_rows(&mysql, 1), ["CREATE INDEX k_1 ON sbtest1 (k)"]);
        let wide = settings(Flavor::Postgres, &[("table_size", "3G"), ("create_secondary", "off")]);
        assert!(create_table(&wide, "sbtest1").starts_with("CREATE TABLE sbtest1 (id BIGSERIAL, k BIGINT "));
        assert_eq!(
            after_rows(&wide, 1),
            [
                "ALTER TABLE sbtest1 ADD PRIMARY KEY (id)",
                "SELECT setval(pg_get_serial_sequence('sbtest1', 'id'), 3000000000)"
            ]
        );
        let secondary = settings(Flavor::Mariadb, &[("secondary", "on"), ("auto_inc", "off")]);
        assert!(
            create_table(&secondary, "t").contains("id INTEGER NOT NULL, ")
                && create_table(&secondary, "t").contains("KEY xid (id)")
        );
    }

    #[test]
    fn the_key_names_what_decides_the_bytes_and_nothing_else() {
        let key_of = |given: &[(&str, &str)]| key(&settings(Flavor::Mariadb, given));
        let base = key_of(&[]);
        for (name, value) in
            [("tables", "2"), ("table_size", "5"), ("rand_type", "special"), ("data_seed", "1")]
        {
            assert_ne!(key_of(&[(name, value)]), base, "{name}");
        }
        for (name, value) in [("point_selects", "2"), ("skip_trx", "on"), ("rand_pareto_h", "0.3")] {
            assert_eq!(key_of(&[(name, value)]), base, "{name}");
        }
        assert_ne!(
            key_of(&[("rand_type", "pareto")]),
            key_of(&[("rand_type", "pareto"), ("rand_pareto_h", "0.3")])
        );
    }
}
