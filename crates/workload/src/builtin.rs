//! The built-in workloads.

mod bulk_insert;
mod catalogue;
mod dbstress;
mod drawn;
mod oltp;
pub(crate) mod schema;
mod sysbench_0x;
mod tpcb;
mod tpcc;

use std::sync::LazyLock;

use crate::{Configured, Dialect, Given, OptionError, OptionSpec, Workload};

type Configure = fn(&Given, Dialect) -> Result<Box<dyn Configured>, OptionError>;

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

    fn configure(&self, given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError> {
        (self.configure)(given, dialect)
    }
}

/// All built-in workloads, in the order in which a list shows them.
pub fn all() -> &'static [&'static dyn Workload] {
    static ALL: LazyLock<Vec<&'static dyn Workload>> = LazyLock::new(|| {
        let singles: [&dyn Workload; 7] = [
            &bulk_insert::WORKLOAD,
            &sysbench_0x::OLTP_04,
            &sysbench_0x::OLTP_05,
            &dbstress::WORKLOAD,
            &catalogue::WORKLOAD,
            &tpcb::WORKLOAD,
            &tpcc::WORKLOAD,
        ];
        oltp_members().chain(singles).collect()
    });
    &ALL
}

/// The members of sysbench's OLTP family, by the names that its scripts have.
pub fn oltp_members() -> impl Iterator<Item = &'static dyn Workload> {
    oltp::MEMBERS.iter().map(|workload| workload as &dyn Workload)
}

#[cfg(test)]
mod tests;
