//! Tables and rows of the old forms.

use super::Form;
use super::mix::Transaction;
use crate::builtin::drawn::Drawn;
use crate::builtin::oltp::{C_AND_PAD, sbtest_row};
use crate::builtin::schema::{Key, Schema, Table};
use crate::loader::TableLoad;
use crate::random::{Rng, SplitMix64, digits};

/// Changes with anything that changes the bytes of generated rows.
const GENERATOR_VERSION: u32 = 1;
/// The pad of every row that 0.4 loads.
const PAD: &[u8] = b"qqqqqqqqqqwwwwwwwwwweeeeeeeeeerrrrrrrrrrtttttttttt";

pub(super) fn key(of: &Drawn<Transaction>) -> String {
    let options = &of.options;
    let names: &[&str] = match of.workload.draw.form {
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
    let form = if of.workload.draw.form == Form::V04 { "0.4" } else { "0.5" };
    let (rows, options_of_data) = (of.loaded_rows(), options.key_of(names));
    let mut key = format!("sysbench {form} v{GENERATOR_VERSION} rows={rows}{options_of_data}");
    if is_myisam(of) && of.workload.draw.form == Form::V04 {
        key.push_str(&format!(" myisam_max_rows={}", options.text("myisam_max_rows")));
    }
    key
}

fn is_myisam(of: &Drawn<Transaction>) -> bool {
    of.options.text("mysql_storage_engine").eq_ignore_ascii_case("myisam")
}

/// Row `row` (from 0) of a table.
pub(super) fn push_row(of: &Drawn<Transaction>, table_seed: u64, row: u64, out: &mut Vec<u8>) {
    match of.workload.draw.form {
        Form::V04 => {
            digits(row + 1, out);
            out.extend_from_slice(b"\t0\t \t");
            out.extend_from_slice(PAD);
            out.push(b'\n');
        }
        Form::V05 => {
            let mut rng = Rng::stream(table_seed, row);
            let k = of.workload.draw.sample_row(&mut rng);
            sbtest_row(&mut rng, row, k, out);
        }
    }
}

pub(super) fn tables(of: &Drawn<Transaction>) -> Vec<TableLoad<'_>> {
    let (form, mut schema) = (of.workload.draw.form, Schema::of(&of.options, &of.workload.dialect));
    let syntax = schema.dialect.syntax();
    let seed = if form == Form::V05 { of.options.count("data_seed") } else { 0 };
    if syntax.has_engines && is_myisam(of) && form == Form::V04 {
        schema.suffix.push_str(&format!(" MAX_ROWS={}", of.options.text("myisam_max_rows")));
    }
    let (id, k) = match syntax.has_engines {
        true => ("INTEGER UNSIGNED NOT NULL AUTO_INCREMENT", "INTEGER UNSIGNED DEFAULT '0' NOT NULL"),
        false => (syntax.auto_int, "INTEGER DEFAULT '0' NOT NULL"),
    };
    let (rows, columns) = (of.loaded_rows(), format!("id {id}, k {k}, {C_AND_PAD}"));
    let table = |(name, number): (&String, u64)| {
        let mut after = Vec::new();
        if !syntax.has_engines && rows > 0 {
            after.extend(schema.dialect.continue_numbering(name, "id", rows));
        }
        after.push(match form {
            Form::V04 => format!("CREATE INDEX k ON {name} (k)"),
            Form::V05 => format!("CREATE INDEX k_{number} ON {name} (k)"),
        });
        let table_seed = SplitMix64::new(seed ^ (number << 40)).next();
        let (columns, key) = (columns.as_str(), Key::Primary("id"));
        schema.table(Table { name, columns, key, after, rows }, move |row, out| {
            push_row(of, table_seed, row, out)
        })
    };
    of.workload.tables.iter().zip(1..).map(table).collect()
}
