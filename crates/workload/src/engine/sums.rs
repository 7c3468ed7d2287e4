//! What the tables of a workload must hold after a run, as numbers: counts of rows and sums of columns.

use std::fmt::Display;

use wire::Target;

use super::tally::{Change, Tally};
use crate::control::Control;
use crate::{Baseline, Check, Error};

/// A whole number that the tables have.
#[derive(Debug)]
pub(crate) struct Sum {
    pub(crate) name: String,
    /// Each gives a part of it.
    pub(crate) queries: Vec<String>,
    pub(crate) wanted: Wanted,
}

/// What a sum must be after a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    Exactly(u64),
    /// What it was before.
    Unchanged,
    /// What it was, and the rows that sessions have added or taken.
    Rows,
    /// What it was, and what sessions have added to `k`.
    K,
}

impl Sum {
    /// The rows of these tables.
    pub(crate) fn of_rows(
        name: impl Into<String>,
        tables: impl IntoIterator<Item = impl Display>,
        wanted: Wanted,
    ) -> Sum {
        Sum::of("COUNT(*)", name, tables, wanted)
    }

    /// An expression over the rows of these tables.
    pub(crate) fn of(
        what: &str,
        name: impl Into<String>,
        tables: impl IntoIterator<Item = impl Display>,
        wanted: Wanted,
    ) -> Sum {
        let queries = tables.into_iter().map(|table| format!("SELECT {what} FROM {table}")).collect();
        Sum { name: name.into(), queries, wanted }
    }

    fn found(&self, control: &mut Control) -> Result<i128, Error> {
        let doing = format!("looking for the {}", self.name);
        self.queries.iter().map(|sql| control.number(&doing, sql)).sum()
    }
}

/// The sums before a run, with what sessions have changed before it.
pub(crate) fn baseline(target: &Target, sums: &[Sum], tally: &Tally) -> Result<Baseline, Error> {
    let mut control = Control::connect(target, "count rows before the run")?;
    let compared = sums.iter().filter(|sum| !matches!(sum.wanted, Wanted::Exactly(_)));
    let figures = compared.map(|sum| Ok((sum.name.clone(), sum.found(&mut control)?)));
    Ok(Baseline { figures: figures.collect::<Result<_, Error>>()?, changed: tally.totals() })
}

/// Whether the sums are what they must be.
pub(crate) fn check(
    control: &mut Control,
    sums: &[Sum],
    before: &Baseline,
    tally: &Tally,
) -> Result<Vec<Check>, Error> {
    let totals = tally.totals();
    let check = |sum: &Sum| {
        let was = before.figures.get(&sum.name).copied().unwrap_or(0);
        let since = |of: fn(Change) -> i64| {
            let (least, most) = totals.since(&before.changed, of);
            (was + least, was + most)
        };
        let (low, high) = match sum.wanted {
            Wanted::Exactly(wanted) => (i128::from(wanted), i128::from(wanted)),
            Wanted::Unchanged => (was, was),
            Wanted::Rows => since(|change| change.rows),
            Wanted::K => since(|change| change.k),
        };
        Ok(Check::between(&sum.name, sum.found(control)?, low, high))
    };
    sums.iter().map(check).collect()
}
