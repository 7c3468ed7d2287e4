//! Tables and rows of the old forms.

use super::{ConfiguredOld, Form};
use crate::loader::{self, LoadPlan, TableLoad};
use crate::random::{Rng, SplitMix64, digit_groups, digits};
use crate::{Error, LoadAt, LoadReport, Progress};

/// Changes with anything that changes the bytes of generated rows.
const GENERATOR_VERSION: u32 = 1;
/// The pad of every row that 0.4 loads.
const PAD: &[u8] = b"qqqqqqqqqqwwwwwwwwwweeeeeeeeeerrrrrrrrrrtttttttttt";

pub(super) fn key(of: &ConfiguredOld) -> String {
    let options = &of.options;
    let names: &[&str] = match of.form {
        Form::V04 => &["table_name", "mysql_storage_engine", "create_table_options"],
        Form::V05 => &[
            "tables",
            "mysql_storage_engine",
            "create_table_options",
            "data_seed",
            "dist_type",
            "dist_iter",
            "dist_pct",
            "dist_res",
        ],
    };
    let form = if of.form == Form::V04 { "0.4" } else { "0.5" };
    let mut key = format!("sysbench {form} v{GENERATOR_VERSION} rows={}", of.loaded_rows());
    for name in names {
        key.push_str(&format!(" {name}={}", options.text(name)));
    }
    if is_myisam(of) && of.form == Form::V04 {
        key.push_str(&format!(" myisam_max_rows={}", options.text("myisam_max_rows")));
    }
    key
}

fn is_myisam(of: &ConfiguredOld) -> bool {
    of.options.text("mysql_storage_engine").eq_ignore_ascii_case("myisam")
}

/// The statement without the index on k, which waits until the rows are there.
pub(super) fn create_table(of: &ConfiguredOld, table: &str) -> String {
    let dialect = &of.workload.dialect;
    let syntax = dialect.syntax();
    let int = if syntax.has_engines { "INTEGER UNSIGNED" } else { "INTEGER" };
    let id = if syntax.has_engines { "INTEGER UNSIGNED NOT NULL AUTO_INCREMENT" } else { syntax.auto_int };
    let key = if syntax.has_engines { ", PRIMARY KEY (id)" } else { "" };
    let mut suffix = of.options.table_suffix(dialect);
    if syntax.has_engines && is_myisam(of) && of.form == Form::V04 {
        suffix.push_str(&format!(" MAX_ROWS={}", of.options.text("myisam_max_rows")));
    }
    format!(
        "CREATE TABLE {table} (id {id}, k {int} DEFAULT '0' NOT NULL, c CHAR(120) DEFAULT '' NOT NULL, \
         pad CHAR(60) DEFAULT '' NOT NULL{key}){suffix}"
    )
}

fn after_rows(of: &ConfiguredOld, table: &str, number: usize) -> Vec<String> {
    let dialect = &of.workload.dialect;
    let mut statements = Vec::new();
    if !dialect.syntax().has_engines {
        statements.push(format!("ALTER TABLE {table} ADD PRIMARY KEY (id)"));
        if of.loaded_rows() > 0 {
            statements.extend(dialect.continue_numbering(table, "id", of.loaded_rows()));
        }
    }
    statements.push(match of.form {
        Form::V04 => format!("CREATE INDEX k ON {table} (k)"),
        Form::V05 => format!("CREATE INDEX k_{number} ON {table} (k)"),
    });
    statements
}

/// Row `row` (from 0) of a table.
pub(super) fn push_row(of: &ConfiguredOld, table_seed: u64, row: u64, out: &mut Vec<u8>) {
    digits(row + 1, out);
    match of.form {
        Form::V04 => {
            out.extend_from_slice(b"\t0\t \t");
            out.extend_from_slice(PAD);
        }
        Form::V05 => {
            let mut rng = Rng::stream(table_seed, row);
            out.push(b'\t');
            digits(of.workload.draw.sample_row(&mut rng), out);
            out.push(b'\t');
            digit_groups(&mut rng, 10, out);
            out.push(b'\t');
            digit_groups(&mut rng, 5, out);
        }
    }
    out.push(b'\n');
}

pub(super) fn load(
    of: &ConfiguredOld,
    at: &LoadAt,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LoadReport, Error> {
    let seed = if of.form == Form::V05 { of.options.count("data_seed") } else { 0 };
    let tables = of.workload.tables.iter().zip(1_usize..).map(|(name, number)| {
        let table_seed = SplitMix64::new(seed ^ ((number as u64) << 40)).next();
        TableLoad {
            name: name.clone(),
            create: vec![create_table(of, name)],
            columns: "id, k, c, pad".to_owned(),
            rows: of.loaded_rows(),
            push_row: Box::new(move |row, out: &mut Vec<u8>| push_row(of, table_seed, row, out)),
            after: after_rows(of, name, number),
        }
    });
    loader::load(at, &of.workload.dialect, LoadPlan { tables: tables.collect() }, progress)
}
