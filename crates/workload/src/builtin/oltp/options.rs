//! The family's options, with sysbench's names and defaults.

use std::sync::LazyLock;

use super::mix::Member;
use crate::dialect::Isolation;
use crate::options::{DATA_SEED, ENGINE, Options, PS_MODE, RANDOM_OPTIONS, TABLE_OPTIONS, distribution_kind};
use crate::random::Distribution;
use crate::{Dialect, Given, OptionError, OptionSpec};

const COUNT_MAX: u64 = 1_000_000;

const VARIANTS: &[&str] = &["", "redshift"];
const ISOLATIONS: &[&str] = &["", "read-uncommitted", "read-committed", "repeatable-read", "serializable"];

const COMMON: [OptionSpec; 22] = [
    OptionSpec::count("tables", "1", 1, COUNT_MAX, "number of tables"),
    OptionSpec::count("table_size", "10000", 1, u64::MAX >> 2, "rows of each table"),
    OptionSpec::count("range_size", "100", 1, u64::MAX >> 2, "rows of a range select"),
    OptionSpec::count(
        "point_selects",
        "10",
        0,
        COUNT_MAX,
        "point selects in a transaction (oltp_point_select: always 1)",
    ),
    OptionSpec::count("simple_ranges", "1", 0, COUNT_MAX, "simple range selects in a transaction"),
    OptionSpec::count("sum_ranges", "1", 0, COUNT_MAX, "SELECT SUM() over a range in a transaction"),
    OptionSpec::count("order_ranges", "1", 0, COUNT_MAX, "range selects with ORDER BY in a transaction"),
    OptionSpec::count("distinct_ranges", "1", 0, COUNT_MAX, "range selects with DISTINCT in a transaction"),
    OptionSpec::count("index_updates", "1", 0, COUNT_MAX, "updates of the indexed column in a transaction"),
    OptionSpec::count("non_index_updates", "1", 0, COUNT_MAX, "updates of the other column in a transaction"),
    OptionSpec::count("delete_inserts", "1", 0, COUNT_MAX, "pairs of delete and insert in a transaction"),
    OptionSpec::switch("range_selects", "on", "off: no range selects at all"),
    OptionSpec::switch("auto_inc", "on", "id numbers itself"),
    TABLE_OPTIONS,
    OptionSpec::switch("skip_trx", "off", "on: no BEGIN and COMMIT, each statement for itself"),
    OptionSpec::switch("secondary", "off", "on: a secondary index on id in place of the primary key"),
    OptionSpec::switch("create_secondary", "on", "the index on k"),
    OptionSpec::count("reconnect", "0", 0, u64::MAX, "connect anew after so many transactions; 0: never"),
    ENGINE,
    OptionSpec::word("pgsql_variant", "", VARIANTS, "redshift: no SERIAL, no secondary index")
        .only(wire::Protocol::Postgres),
    PS_MODE,
    OptionSpec::word(
        "isolation",
        "",
        ISOLATIONS,
        "isolation level of each session; nothing: as the server has it",
    ),
];

static PLAIN: LazyLock<Vec<OptionSpec>> = LazyLock::new(|| specs_with(&[]));
static POINTS: LazyLock<Vec<OptionSpec>> = LazyLock::new(|| {
    specs_with(&[OptionSpec::count("random_points", "10", 1, 10_000, "values of k in one select")])
});
static RANGES: LazyLock<Vec<OptionSpec>> = LazyLock::new(|| {
    specs_with(&[
        OptionSpec::count("number_of_ranges", "10", 1, 5_000, "ranges of k in one select"),
        OptionSpec::count("delta", "5", 0, u64::MAX >> 2, "width of each range"),
    ])
});

fn specs_with(own: &[OptionSpec]) -> Vec<OptionSpec> {
    COMMON.iter().chain(own).chain(&RANDOM_OPTIONS).chain([&DATA_SEED]).cloned().collect()
}

pub(super) fn specs(member: Member) -> &'static [OptionSpec] {
    match member {
        Member::RandomPoints => &POINTS,
        Member::RandomRanges => &RANGES,
        _ => &PLAIN,
    }
}

/// The options as values.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) options: Options,
    pub(super) dialect: Dialect,
    pub(super) tables: u64,
    pub(super) table_size: u64,
    pub(super) engine: String,
    pub(super) is_prepared: bool,
    pub(super) is_auto_inc: bool,
    pub(super) is_redshift: bool,
    pub(super) data_seed: u64,
    /// Over the row numbers of a table.
    pub(super) rows: Distribution,
    isolation: Option<Isolation>,
}

impl Settings {
    pub(super) fn read(
        workload: &str,
        member: Member,
        given: &Given,
        dialect: Dialect,
    ) -> Result<Settings, OptionError> {
        let options = Options::for_server(workload, specs(member), given, &dialect)?;
        let table_size = options.count("table_size");
        let rows = distribution_kind(&options).over(1, table_size).map_err(|error| OptionError::Invalid {
            name: error.name.to_owned(),
            value: error.value.to_string(),
            allowed: error.allowed.to_owned(),
        })?;
        let isolation = match options.text("isolation") {
            "read-uncommitted" => Some(Isolation::ReadUncommitted),
            "read-committed" => Some(Isolation::ReadCommitted),
            "repeatable-read" => Some(Isolation::RepeatableRead),
            "serializable" => Some(Isolation::Serializable),
            _ => None,
        };
        Ok(Settings {
            tables: options.count("tables"),
            table_size,
            engine: options.text("mysql_storage_engine").to_owned(),
            is_prepared: options.is_prepared(),
            is_auto_inc: options.switch("auto_inc"),
            is_redshift: options.text("pgsql_variant") == "redshift",
            data_seed: options.count("data_seed"),
            rows,
            isolation,
            options,
            dialect,
        })
    }

    /// Names of the tables.
    pub(super) fn tables(&self) -> Vec<String> {
        (1..=self.tables).map(|number| format!("sbtest{number}")).collect()
    }

    /// Whether the columns of row numbers need 64 bits.
    pub(super) fn is_wide(&self) -> bool {
        self.table_size > i32::MAX as u64
    }

    /// Whether parameters may: the end of a range can lie past the last row.
    pub(super) fn has_wide_parameters(&self) -> bool {
        let beyond = self.options.count("range_size")
            + self.options.all().get("delta").map_or(0, |_| self.options.count("delta"));
        self.table_size + beyond > i32::MAX as u64
    }

    /// Whether a transaction happens as a whole or not at all.
    pub(super) fn is_atomic(&self) -> bool {
        self.dialect.is_transactional(&self.engine) && !self.options.switch("skip_trx")
    }

    /// Statements of each new connection.
    pub(super) fn session_setup(&self) -> Vec<String> {
        self.isolation.map(|level| self.dialect.set_isolation(level)).into_iter().collect()
    }
}
