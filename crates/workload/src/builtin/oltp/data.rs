//! Tables and rows of the family.

use super::options::Settings;
use crate::builtin::schema::{Key, Schema, Table};
use crate::loader::TableLoad;
use crate::random::{Rng, SplitMix64, digit_groups, digits};

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
    [&of_data, of_distribution].iter().for_each(|names| key.push_str(&settings.options.key_of(names)));
    key
}

/// About 260 bytes a row with primary key and k on both InnoDB and PostgreSQL (measured with a million rows:
/// 248 and 256), and what an empty table takes.
pub(super) fn bytes_on_disk(settings: &Settings) -> u64 {
    settings.tables.saturating_mul(settings.table_size.saturating_mul(265).saturating_add(400_000))
}

/// Columns of every table of the family, and of those before sysbench 1.0.
pub(in crate::builtin) const C_AND_PAD: &str =
    "c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL";

/// Appends row `row` (from 0) of a table as a line of tab-separated text.
pub(in crate::builtin) fn sbtest_row(rng: &mut Rng, row: u64, k: u64, out: &mut Vec<u8>) {
    digits(row + 1, out);
    out.push(b'\t');
    digits(k, out);
    out.push(b'\t');
    digit_groups(rng, 10, out);
    out.push(b'\t');
    digit_groups(rng, 5, out);
    out.push(b'\n');
}

/// The row depends on nothing but seed, table and row.
fn push_row(settings: &Settings, table_seed: u64, row: u64, out: &mut Vec<u8>) {
    let mut rng = Rng::stream(table_seed, row);
    let k = settings.rows.sample(&mut rng);
    sbtest_row(&mut rng, row, k, out);
}

pub(super) fn tables(settings: &Settings) -> Vec<TableLoad<'_>> {
    let schema = Schema::of(&settings.options, &settings.dialect);
    let syntax = schema.dialect.syntax();
    let is_wide = settings.is_wide();
    let id = match (settings.is_auto_inc, is_wide) {
        (false, false) => "INTEGER NOT NULL",
        (false, true) => "BIGINT NOT NULL",
        (true, false) if settings.is_redshift => "INTEGER IDENTITY(1,1)",
        (true, true) if settings.is_redshift => "BIGINT IDENTITY(1,1)",
        (true, false) => syntax.auto_int,
        (true, true) => syntax.auto_bigint,
    };
    let k = if is_wide { "BIGINT DEFAULT '0' NOT NULL" } else { "INTEGER DEFAULT '0' NOT NULL" };
    let (rows, columns) = (settings.table_size, format!("id {id}, k {k}, {C_AND_PAD}"));
    let table = |number: u64| {
        let (name, index) = (format!("sbtest{number}"), format!("xid{number}"));
        let key = match (settings.options.switch("secondary"), syntax.has_engines) {
            (false, _) => Key::Primary("id"),
            (true, true) => Key::Index("xid", "id"),
            // There the names of indexes are those of the whole schema.
            (true, false) => Key::Index(&index, "id"),
        };
        let mut after = Vec::new();
        if !syntax.has_engines && settings.is_auto_inc && !settings.is_redshift {
            after.extend(settings.dialect.continue_numbering(&name, "id", rows));
        }
        if settings.options.switch("create_secondary") && !settings.is_redshift {
            after.push(format!("CREATE INDEX k_{number} ON {name} (k)"));
        }
        let table_seed = SplitMix64::new(settings.data_seed ^ (number << 40)).next();
        schema.table(Table { name: &name, columns: &columns, key, after, rows }, move |row, out| {
            push_row(settings, table_seed, row, out)
        })
    };
    (1..=settings.tables).map(table).collect()
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
            tables(&mysql)[0].create[0],
            "CREATE TABLE sbtest1 (id INTEGER NOT NULL AUTO_INCREMENT, k INTEGER DEFAULT '0' NOT NULL, \
             c CHAR(120) DEFAULT '' NOT NULL, pad CHAR(60) DEFAULT '' NOT NULL, PRIMARY KEY (id)) ENGINE = myisam"
        );
        assert_eq!(tables(&mysql)[0].after, ["CREATE INDEX k_1 ON sbtest1 (k)"]);
        let wide = settings(Flavor::Postgres, &[("table_size", "3G"), ("create_secondary", "off")]);
        assert!(tables(&wide)[0].create[0].starts_with("CREATE TABLE sbtest1 (id BIGSERIAL, k BIGINT "));
        assert_eq!(
            tables(&wide)[0].after,
            [
                "ALTER TABLE sbtest1 ADD PRIMARY KEY (id)",
                "SELECT setval(pg_get_serial_sequence('sbtest1', 'id'), 3000000000)"
            ]
        );
        let secondary = settings(Flavor::Mariadb, &[("secondary", "on"), ("auto_inc", "off")]);
        assert!(
            tables(&secondary)[0].create[0].contains("id INTEGER NOT NULL, ")
                && tables(&secondary)[0].create[0].contains("KEY xid (id)")
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
