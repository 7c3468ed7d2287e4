//! The built-in workloads.

mod bulk_insert;
mod catalogue;
mod dbstress;
mod oltp;
mod sysbench_0x;
mod tpcb;
mod tpcc;

use std::sync::LazyLock;

use crate::Workload;

/// All built-in workloads, in the order in which a list shows them.
pub fn all() -> &'static [&'static dyn Workload] {
    static ALL: LazyLock<Vec<&'static dyn Workload>> = LazyLock::new(|| {
        let mut all: Vec<&'static dyn Workload> = Vec::new();
        all.extend(oltp_members());
        all.push(&bulk_insert::BulkInsert);
        all.extend(sysbench_0x::MEMBERS.iter().map(|workload| workload as &dyn Workload));
        all.push(&dbstress::DbStress);
        all.push(&catalogue::Catalogue);
        all.push(&tpcb::Tpcb);
        all.push(&tpcc::Tpcc);
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
