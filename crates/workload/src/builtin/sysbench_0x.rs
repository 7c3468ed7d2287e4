//! The OLTP test of sysbench before 1.0: the built-in one of 0.4 and the script of 0.5, with their statements,
//! schema and distributions, for studies that used them.

mod data;
mod distribution;
mod mix;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use load::SessionFactory;
use wire::Target;

use crate::control::Control;
use crate::engine::tally::Tally;
use crate::engine::{self, DrawnWorkload};
use crate::options::{DATA_SEED, ENGINE, Options, PS_MODE, TABLE_OPTIONS, ps_mode};
use crate::{
    Baseline, Check, Configured, Dialect, Error, LoadAt, LoadReport, Needs, OptionError, OptionSpec,
    Progress, Ran, StatementDoc, Workload,
};
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

/// A generation of the test as a workload.
#[derive(Debug)]
pub(crate) struct OldOltp {
    form: Form,
    name: &'static str,
    summary: &'static str,
}

/// Both generations.
pub(crate) static MEMBERS: [OldOltp; 2] = [
    OldOltp {
        form: Form::V04,
        name: "oltp_04",
        summary: "sysbench 0.4's OLTP test: complex (14 reads, 5 writes), simple or nontrx",
    },
    OldOltp {
        form: Form::V05,
        name: "oltp_05",
        summary: "sysbench 0.5's oltp.lua: 14 reads and 4 writes on one of several tables, as text",
    },
];

const MODES: &[Cow<'static, str>] =
    &[Cow::Borrowed("complex"), Cow::Borrowed("simple"), Cow::Borrowed("nontrx")];
const NONTRX: &[Cow<'static, str>] = &[
    Cow::Borrowed("select"),
    Cow::Borrowed("update_key"),
    Cow::Borrowed("update_nokey"),
    Cow::Borrowed("insert"),
    Cow::Borrowed("delete"),
];
const DISTRIBUTIONS: &[Cow<'static, str>] =
    &[Cow::Borrowed("special"), Cow::Borrowed("gaussian"), Cow::Borrowed("uniform")];

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

impl Workload for OldOltp {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn description(&self) -> &str {
        match self.form {
            Form::V04 => DESCRIPTION_04,
            Form::V05 => DESCRIPTION_05,
        }
    }

    fn options(&self) -> &[OptionSpec] {
        match self.form {
            Form::V04 => OPTIONS_04,
            Form::V05 => OPTIONS_05,
        }
    }

    fn configure(
        &self,
        given: &BTreeMap<String, String>,
        dialect: Dialect,
    ) -> Result<Box<dyn Configured>, OptionError> {
        Ok(Box::new(self.fixed(given, dialect)?))
    }
}

impl OldOltp {
    fn fixed(
        &self,
        given: &BTreeMap<String, String>,
        dialect: Dialect,
    ) -> Result<ConfiguredOld, OptionError> {
        let options = Options::for_server(self.name, self.options(), given, &dialect)?;
        let mode = match self.form {
            Form::V04 => Mode::of(options.text("test_mode"), options.text("nontrx_mode")),
            Form::V05 => Mode::Complex,
        };
        let tables = match self.form {
            Form::V04 => vec![options.text("table_name").to_owned()],
            Form::V05 => (1..=options.count("tables")).map(|number| format!("sbtest{number}")).collect(),
        };
        let is_transactional = dialect.is_transactional(options.text("mysql_storage_engine"));
        let draw =
            Transaction::new(self.form, mode, &options, is_transactional, Rows::of(&options), tables.len());
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
        Ok(ConfiguredOld { form: self.form, mode, options, workload: Arc::new(workload) })
    }
}

/// 0 where this generation has no such option.
fn given_count(options: &Options, name: &str) -> u64 {
    options.all().get(name).map_or(0, |_| options.count(name))
}

/// A generation with its options fixed.
#[derive(Debug)]
struct ConfiguredOld {
    form: Form,
    mode: Mode,
    options: Options,
    workload: Arc<DrawnWorkload<Transaction>>,
}

/// Change of the rows and of the sum of k by sessions before the run: sure, least and most.
const TALLIED: [&str; 6] =
    ["changed rows", "doubt rows low", "doubt rows high", "changed k", "doubt k low", "doubt k high"];

impl ConfiguredOld {
    /// Rows of a table after its load. The insert test wants an empty one.
    fn loaded_rows(&self) -> u64 {
        if self.mode == Mode::Insert { 0 } else { self.options.count("table_size") }
    }

    fn tallied(&self) -> [i128; 6] {
        let totals = self.workload.tally.totals();
        [
            totals.sure.rows,
            totals.doubt_low.rows,
            totals.doubt_high.rows,
            totals.sure.k,
            totals.doubt_low.k,
            totals.doubt_high.k,
        ]
        .map(i128::from)
    }

    fn sum(&self, control: &mut Control, what: &str) -> Result<i128, Error> {
        let mut sum = 0;
        for table in &self.workload.tables {
            sum += control.number("looking at the tables", &format!("SELECT {what} FROM {table}"))?;
        }
        Ok(sum)
    }
}

impl Configured for ConfiguredOld {
    fn options(&self) -> BTreeMap<String, String> {
        self.options.all().clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        self.workload.class_names()
    }

    fn statements(&self) -> Vec<StatementDoc> {
        let table = match self.form {
            Form::V04 => self.options.text("table_name"),
            Form::V05 => "sbtestN",
        };
        self.workload.documentation(table)
    }

    fn dataset_key(&self) -> String {
        data::key(self)
    }

    fn data_bytes(&self) -> u64 {
        (self.workload.tables.len() as u64).saturating_mul(self.loaded_rows().saturating_mul(265) + 400_000)
    }

    fn needs(&self, sessions: u32) -> Needs {
        self.workload.needs(sessions)
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error> {
        data::load(self, at, progress)
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error> {
        let rows = self.loaded_rows();
        Ok(self.workload.tables.iter().map(|table| (table.clone(), rows)).collect())
    }

    fn baseline(&self, target: &Target) -> Result<Baseline, Error> {
        let mut control = Control::connect(target, "count rows before the run")?;
        let mut figures = BTreeMap::from([("rows".to_owned(), self.sum(&mut control, "COUNT(*)")?)]);
        if self.mode == Mode::UpdateKey {
            figures.insert("sum of k".to_owned(), self.sum(&mut control, "SUM(k)")?);
        }
        figures.extend(TALLIED.map(str::to_owned).into_iter().zip(self.tallied()));
        Ok(Baseline { figures })
    }

    fn one_process_only(&self, _sessions: u32) -> Option<String> {
        (self.mode == Mode::Delete).then(|| {
            "sessions of this workload share the place that the next deleted row is taken from, as those of sysbench 0.4 and \
             0.5 do, and must live in one process"
                .to_owned()
        })
    }

    fn tally(&self) -> Option<&Tally> {
        Some(&self.workload.tally)
    }

    fn check(&self, target: &Target, before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, Error> {
        let mut control = Control::connect(target, "check the tables after the run")?;
        let was = |name: &str| before.figures.get(name).copied().unwrap_or(0);
        let now = self.tallied();
        let since = |at: usize| now[at] - was(TALLIED[at]);
        let rows = self.sum(&mut control, "COUNT(*)")?;
        let base = was("rows") + since(0);
        let mut checks = vec![Check::between("rows", rows, base + since(1), base + since(2))];
        if self.mode == Mode::UpdateKey {
            let base = was("sum of k") + since(3);
            let found = self.sum(&mut control, "SUM(k)")?;
            checks.push(Check::between("sum of k", found, base + since(4), base + since(5)));
        }
        Ok(checks)
    }

    fn sessions(&self, target: &Target, seed: u64) -> Box<dyn SessionFactory> {
        engine::sessions(&self.workload, target, seed)
    }
}

/// What is drawn, for the test of all workloads.
#[cfg(test)]
pub(super) fn drawn(name: &str, given: &BTreeMap<String, String>, dialect: Dialect) -> u64 {
    let member = MEMBERS.iter().find(|member| member.name == name).expect("a member");
    engine::seen::checksum(&member.fixed(given, dialect).expect("good options").workload)
}

#[cfg(test)]
mod tests;
