//! The built-in workloads.

mod bulk_insert;
mod catalogue;
mod dbstress;
mod drawn;
mod oltp;
mod schema;
mod sysbench_0x;
mod tpcb;
mod tpcc;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::{Configured, Dialect, OptionError, OptionSpec, Workload};

type Configure = fn(&BTreeMap<String, String>, Dialect) -> Result<Box<dyn Configured>, OptionError>;

/// A workload that is no member of a family: what its file declares as `WORKLOAD`.
struct Single {
    name: &'static str,
    summary: &'static str,
    description: &'static str,
    options: &'static [OptionSpec],
    /// Classes of transactions, where there are several.
    transactions: &'static [&'static str],
    configure: Configure,
}

impl Workload for Single {
    fn name(&self) -> &str {
        self.name
    }

    fn summary(&self) -> &str {
        self.summary
    }

    fn description(&self) -> &str {
        self.description
    }

    fn options(&self) -> &[OptionSpec] {
        self.options
    }

    fn transaction_classes(&self) -> Vec<String> {
        self.transactions.iter().map(|&name| name.to_owned()).collect()
    }

    fn configure(
        &self,
        given: &BTreeMap<String, String>,
        dialect: Dialect,
    ) -> Result<Box<dyn Configured>, OptionError> {
        (self.configure)(given, dialect)
    }
}

/// All built-in workloads, in the order in which a list shows them.
pub fn all() -> &'static [&'static dyn Workload] {
    static ALL: LazyLock<Vec<&'static dyn Workload>> = LazyLock::new(|| {
        let mut all: Vec<&'static dyn Workload> = Vec::new();
        all.extend(oltp_members());
        all.push(&bulk_insert::WORKLOAD);
        all.extend([&sysbench_0x::OLTP_04 as &dyn Workload, &sysbench_0x::OLTP_05]);
        all.push(&dbstress::WORKLOAD);
        all.push(&catalogue::WORKLOAD);
        all.push(&tpcb::WORKLOAD);
        all.push(&tpcc::WORKLOAD);
        all
    });
    &ALL
}

/// The members of sysbench's OLTP family, by the names that its scripts have.
pub fn oltp_members() -> impl Iterator<Item = &'static dyn Workload> {
    oltp::MEMBERS.iter().map(|workload| workload as &dyn Workload)
}

#[cfg(test)]
mod tests;
