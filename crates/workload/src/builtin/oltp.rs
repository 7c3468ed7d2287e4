//! The sysbench OLTP family: the same statements, mix, schema and distributions as sysbench's scripts, natively.
//!
//! Every member is a row of [`MEMBERS`]; what a transaction of it consists of stands in [`mix`].

mod data;
mod mix;
mod options;

use std::sync::Arc;

use super::drawn::{Drawn, Own};
use crate::engine::DrawnWorkload;
use crate::engine::sums::{Sum, Wanted};
use crate::loader::TableLoad;
use crate::{Configured, Dialect, Given, OptionError, OptionSpec, Workload};
pub(super) use data::{C_AND_PAD, sbtest_row};
use mix::{Member, Mix};
use options::Settings;

/// One workload of the family.
#[derive(Debug)]
pub(crate) struct Oltp {
    member: Member,
    name: &'static str,
    summary: &'static str,
}

const fn member(member: Member, name: &'static str, summary: &'static str) -> Oltp {
    Oltp { member, name, summary }
}

/// All of them.
pub(crate) static MEMBERS: [Oltp; 10] = [
    member(Member::ReadOnly, "oltp_read_only", "10 point selects and 4 range selects in one transaction"),
    member(
        Member::ReadWrite,
        "oltp_read_write",
        "the reads of oltp_read_only and the writes of oltp_write_only in one transaction",
    ),
    member(
        Member::WriteOnly,
        "oltp_write_only",
        "two updates, a delete and an insert of the same row in one transaction",
    ),
    member(Member::PointSelect, "oltp_point_select", "one select by primary key, no transaction"),
    member(Member::UpdateIndex, "oltp_update_index", "one update of an indexed column by primary key"),
    member(
        Member::UpdateNonIndex,
        "oltp_update_non_index",
        "one update of a column without index by primary key",
    ),
    member(Member::Insert, "oltp_insert", "one insert"),
    member(Member::Delete, "oltp_delete", "one delete by primary key"),
    member(
        Member::RandomPoints,
        "select_random_points",
        "one select of 10 random values of the secondary index",
    ),
    member(
        Member::RandomRanges,
        "select_random_ranges",
        "one count over 10 small ranges of the secondary index",
    ),
];

const DESCRIPTION: &str = "\
The workload of the same name in sysbench 1.0, natively: the same schema, statements, mix and distributions, \
measured without a thread for each session.

Tables sbtest1 to sbtestN (`tables`) of `table_size` rows: id (primary key), k (random, index k_N), c (10 groups \
of 11 digits joined by dashes), pad (5 groups). A table is drawn for each group of like statements, row numbers \
by `rand_type`. The rows of a table depend on `data_seed` and the row's number alone, so loading with more \
connections gives the same table.

Differences from sysbench, on purpose: `rand_type` is uniform as in sysbench 1.1 (1.0.20: special); row counts \
may exceed 32 bits, and id and k are BIGINT then; BEGIN and COMMIT are never prepared, because MySQL cannot.";

impl Workload for Oltp {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn description(&self) -> &str {
        DESCRIPTION
    }

    fn options(&self) -> &[OptionSpec] {
        options::specs(self.member)
    }

    fn configure(&self, given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError> {
        Ok(Box::new(self.configured(given, dialect)?))
    }
}

impl Oltp {
    fn configured(&self, given: &Given, dialect: Dialect) -> Result<Drawn<Mix>, OptionError> {
        let settings = Settings::read(self.name, self.member, given, dialect)?;
        let (options, dialect) = (settings.options.clone(), settings.dialect.clone());
        let (is_prepared, is_atomic) = (settings.is_prepared, settings.is_atomic());
        let (tables, setup) = (settings.tables(), settings.session_setup());
        let (mix, classes) = Mix::new(self.member, settings);
        let workload = DrawnWorkload {
            tables,
            is_prepared,
            is_atomic,
            setup,
            // After a lost race of two delete/insert pairs for the same row PostgreSQL reports a duplicate key,
            // where InnoDB's locks make the second one wait. sysbench ignores and restarts it as well.
            retryable: &["23505"],
            reconnect: options.count("reconnect"),
            ..DrawnWorkload::new(mix, dialect, classes)
        };
        Ok(Drawn { options, workload: Arc::new(workload) })
    }
}

impl Own for Drawn<Mix> {
    fn key(&self) -> String {
        data::key(&self.workload.draw.settings)
    }

    fn bytes_on_disk(&self) -> u64 {
        data::bytes_on_disk(&self.workload.draw.settings)
    }

    fn tables(&self) -> Vec<TableLoad<'_>> {
        data::tables(&self.workload.draw.settings)
    }

    fn sums(&self) -> Vec<Sum> {
        let (Mix { member, settings, .. }, tables) = (&self.workload.draw, &self.workload.tables);
        // Without a unique key (secondary=on) two sessions that take the same id at once may both insert it: PostgreSQL's
        // second DELETE waits for the first and then finds nothing. Then what was changed says how many rows there are.
        let keeps_rows = member.keeps_rows() && settings.is_atomic() && !settings.options.switch("secondary");
        let mut sums: Vec<Sum> = match keeps_rows {
            true => tables
                .iter()
                .map(|table| Sum::of_rows(format!("rows of {table}"), [table], Wanted::Unchanged))
                .collect(),
            false => vec![Sum::of_rows("rows of all tables", tables, Wanted::Rows)],
        };
        if *member == Member::UpdateIndex {
            sums.push(Sum::of("SUM(k)", "sum of k", tables, Wanted::K));
        }
        sums
    }

    fn table_shown(&self) -> &str {
        "sbtestN"
    }
}

/// What is drawn, for the test of all workloads.
#[cfg(test)]
pub(super) fn drawn(name: &str, given: &Given, dialect: Dialect) -> u64 {
    let member = MEMBERS.iter().find(|member| member.name == name).expect("a member");
    crate::engine::seen::checksum(&member.configured(given, dialect).expect("good options").workload)
}
