//! The OLTP test of sysbench before 1.0: the built-in one of 0.4 and the script of 0.5, with their statements,
//! schema and distributions, for studies that used them.

mod data;
mod distribution;
mod mix;

use std::sync::Arc;
use std::time::Duration;

use super::Single;
use super::drawn::{Drawn, Own};
use crate::engine::DrawnWorkload;
use crate::engine::sums::{Sum, Wanted};
use crate::loader::TableLoad;
use crate::options::{DATA_SEED, ENGINE, Options, PS_MODE, TABLE_OPTIONS, ps_mode};
use crate::{Dialect, Given, OptionError, OptionSpec};
use distribution::Rows;
use mix::{Mode, Transaction};

/// Which generation of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Built in, one table, 21 statements in a transaction.
    V04,
    /// oltp.lua, several tables, 20 statements in a transaction.
    V05,
}

const MODES: &[&str] = &["complex", "simple", "nontrx"];
const NONTRX: &[&str] = &["select", "update_key", "update_nokey", "insert", "delete"];
const DISTRIBUTIONS: &[&str] = &["special", "gaussian", "uniform"];

const COUNT_MAX: u64 = 1_000_000;
const US_MAX: u64 = 3_600_000_000;

const OPTIONS_04: &[OptionSpec] = &[
    OptionSpec::word(
        "test_mode",
        "complex",
        MODES,
        "complex transactions, one point select, or one statement",
    ),
    OptionSpec::word("nontrx_mode", "select", NONTRX, "the statement of test_mode nontrx"),
    OptionSpec::switch("read_only", "off", "on: only the reads of a complex transaction"),
    OptionSpec::switch("skip_trx", "off", "on: no BEGIN and COMMIT (nor LOCK TABLES)"),
    OptionSpec::count("range_size", "100", 1, COUNT_MAX, "rows of a range select"),
    OptionSpec::count("point_selects", "10", 0, COUNT_MAX, "point selects in a transaction"),
    OptionSpec::count("simple_ranges", "1", 0, COUNT_MAX, "simple range selects in a transaction"),
    OptionSpec::count("sum_ranges", "1", 0, COUNT_MAX, "SELECT SUM() over a range in a transaction"),
    OptionSpec::count("order_ranges", "1", 0, COUNT_MAX, "range selects with ORDER BY in a transaction"),
    OptionSpec::count("distinct_ranges", "1", 0, COUNT_MAX, "range selects with DISTINCT in a transaction"),
    OptionSpec::count("index_updates", "1", 0, COUNT_MAX, "updates of the indexed column in a transaction"),
    OptionSpec::count("non_index_updates", "1", 0, COUNT_MAX, "updates of the other column in a transaction"),
    OptionSpec::count("connect_delay", "0", 0, US_MAX, "microseconds to wait after connecting (0.4: 10000)"),
    OptionSpec::count("user_delay_min", "0", 0, US_MAX, "least microseconds to think after a statement"),
    OptionSpec::count("user_delay_max", "0", 0, US_MAX, "most microseconds to think after a statement"),
    OptionSpec::text("table_name", "sbtest", "the table"),
    OptionSpec::count("table_size", "10000", 1, 2_000_000_000, "rows"),
    OptionSpec::word("dist_type", "special", DISTRIBUTIONS, "distribution of row numbers"),
    OptionSpec::count("dist_iter", "12", 1, 1000, "uniform numbers averaged for gaussian and special"),
    OptionSpec::count("dist_pct", "1", 1, 100, "special: percent of the rows that are hot"),
    OptionSpec::count("dist_res", "75", 1, 99, "special: percent of the draws that go to hot rows"),
    PS_MODE,
    ENGINE,
    OptionSpec::count("myisam_max_rows", "1000000", 1, u64::MAX >> 1, "MAX_ROWS of MyISAM tables"),
    TABLE_OPTIONS,
];

const OPTIONS_05: &[OptionSpec] = &[
    OptionSpec::count("tables", "1", 1, 100_000, "tables; each transaction uses one of them"),
    OptionSpec::switch("read_only", "off", "on: only the reads of a transaction"),
    OptionSpec::switch("skip_trx", "off", "on: no BEGIN and COMMIT (nor LOCK TABLES)"),
    OptionSpec::count("range_size", "100", 1, COUNT_MAX, "rows of a range select"),
    OptionSpec::count("point_selects", "10", 0, COUNT_MAX, "point selects in a transaction"),
    OptionSpec::count("simple_ranges", "1", 0, COUNT_MAX, "simple range selects in a transaction"),
    OptionSpec::count("sum_ranges", "1", 0, COUNT_MAX, "SELECT SUM() over a range in a transaction"),
    OptionSpec::count("order_ranges", "1", 0, COUNT_MAX, "range selects with ORDER BY in a transaction"),
    OptionSpec::count("distinct_ranges", "1", 0, COUNT_MAX, "range selects with DISTINCT in a transaction"),
    OptionSpec::count("index_updates", "1", 0, COUNT_MAX, "updates of the indexed column in a transaction"),
    OptionSpec::count("non_index_updates", "1", 0, COUNT_MAX, "updates of the other column in a transaction"),
    OptionSpec::count("table_size", "10000", 1, 2_000_000_000, "rows of each table"),
    OptionSpec::word("dist_type", "special", DISTRIBUTIONS, "distribution of row numbers"),
    OptionSpec::count("dist_iter", "12", 1, 1000, "uniform numbers averaged for gaussian and special"),
    OptionSpec::count("dist_pct", "1", 1, 100, "special: percent of the rows that are hot"),
    OptionSpec::count("dist_res", "75", 1, 99, "special: percent of the draws that go to hot rows"),
    ps_mode("disable", "auto: prepared statements in place of text"),
    ENGINE,
    TABLE_OPTIONS,
    DATA_SEED,
];

const DESCRIPTION_04: &str = "\
The OLTP test of sysbench 0.4 (2004 to 2012), natively: one table sbtest(id, k, c, pad) whose rows all have k = 0, \
an empty c and the same pad; row numbers by the old `special` distribution, where three quarters of the draws fall \
on the central 1 % of the rows.

complex: BEGIN, 10 point selects, a simple, a SUM, an ORDER BY and a DISTINCT range of 100 rows, an update of k, an \
update of c, an update of k of the row that is then deleted and inserted anew, COMMIT: 14 reads, 5 writes, 2 others. \
simple: one point select. nontrx: one statement of `nontrx_mode`. Tables of engines without transactions are locked \
with LOCK TABLES in place of BEGIN. sysbench's max-requests is `--transactions`, its max-time `--time`. An insert \
test begins with an empty table, as the original truncates it.";

const DESCRIPTION_05: &str = "\
oltp.lua of sysbench 0.5 (the version that distributions packaged until 2017), natively: tables sbtest1 to sbtestN \
with random k, c and pad; a transaction uses one of them: BEGIN, 10 point selects, four ranges of 100 rows, an update \
of k, an update of c, a delete and an insert of the same row, COMMIT: 14 reads, 4 writes, 2 others, sent as text. Row \
numbers by the old `special` distribution; ranges may end behind the last row.";

pub(super) const OLTP_04: Single = Single {
    name: "oltp_04",
    summary: "sysbench 0.4's OLTP test: complex (14 reads, 5 writes), simple or nontrx",
    description: DESCRIPTION_04,
    options: OPTIONS_04,
    transactions: &[],
    configure: |given, dialect| Ok(Box::new(configured(Form::V04, given, dialect)?)),
};

pub(super) const OLTP_05: Single = Single {
    name: "oltp_05",
    summary: "sysbench 0.5's oltp.lua: 14 reads and 4 writes on one of several tables, as text",
    description: DESCRIPTION_05,
    options: OPTIONS_05,
    transactions: &[],
    configure: |given, dialect| Ok(Box::new(configured(Form::V05, given, dialect)?)),
};

fn configured(form: Form, given: &Given, dialect: Dialect) -> Result<Drawn<Transaction>, OptionError> {
    let of_form = if form == Form::V04 { &OLTP_04 } else { &OLTP_05 };
    let options = Options::for_server(of_form.name, of_form.options, given, &dialect)?;
    let (mode, tables) = match form {
        Form::V04 => (
            Mode::of(options.text("test_mode"), options.text("nontrx_mode")),
            vec![options.text("table_name").to_owned()],
        ),
        Form::V05 => (
            Mode::Complex,
            (1..=options.count("tables")).map(|number| format!("sbtest{number}")).collect::<Vec<_>>(),
        ),
    };
    let is_transactional = dialect.is_transactional(options.text("mysql_storage_engine"));
    let draw = Transaction::new(form, mode, &options, is_transactional, Rows::of(&options), tables.len());
    let classes = draw.classes(&dialect, &tables);
    let workload = DrawnWorkload {
        tables,
        is_prepared: options.is_prepared(),
        is_atomic: is_transactional,
        // As in the members of oltp_*: a lost race of two delete and insert pairs on PostgreSQL.
        retryable: &["23505"],
        connect_pause: Duration::from_micros(given_count(&options, "connect_delay")),
        ..DrawnWorkload::new(draw, dialect, classes)
    };
    Ok(Drawn { options, workload: Arc::new(workload) })
}

impl Drawn<Transaction> {
    /// Rows of a table after its load. The insert test wants an empty one.
    fn loaded_rows(&self) -> u64 {
        if self.workload.draw.mode == Mode::Insert { 0 } else { self.options.count("table_size") }
    }
}

/// 0 where this generation has no such option.
fn given_count(options: &Options, name: &str) -> u64 {
    options.all().get(name).map_or(0, |_| options.count(name))
}

impl Own for Drawn<Transaction> {
    fn key(&self) -> String {
        data::key(self)
    }

    fn bytes_on_disk(&self) -> u64 {
        (self.workload.tables.len() as u64).saturating_mul(self.loaded_rows().saturating_mul(265) + 400_000)
    }

    fn tables(&self) -> Vec<TableLoad<'_>> {
        data::tables(self)
    }

    fn sums(&self) -> Vec<Sum> {
        let tables = &self.workload.tables;
        let mut sums = vec![Sum::of_rows("rows", tables, Wanted::Rows)];
        if self.workload.draw.mode == Mode::UpdateKey {
            sums.push(Sum::of("SUM(k)", "sum of k", tables, Wanted::K));
        }
        sums
    }

    fn table_shown(&self) -> &str {
        match self.workload.draw.form {
            Form::V04 => self.options.text("table_name"),
            Form::V05 => "sbtestN",
        }
    }

    fn bound_to_one_process(&self) -> Option<String> {
        (self.workload.draw.mode == Mode::Delete).then(|| {
            "sessions of this workload share the place that the next deleted row is taken from, as those of sysbench 0.4 and \
             0.5 do, and must live in one process"
                .to_owned()
        })
    }
}

/// What is drawn, for the test of all workloads.
#[cfg(test)]
pub(super) fn drawn(name: &str, given: &Given, dialect: Dialect) -> u64 {
    let form = if name == OLTP_04.name { Form::V04 } else { Form::V05 };
    crate::engine::seen::checksum(&configured(form, given, dialect).expect("good options").workload)
}

#[cfg(test)]
mod tests;
