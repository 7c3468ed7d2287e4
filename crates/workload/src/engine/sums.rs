//! What the tables of a workload must hold after a run, as numbers: counts of rows and sums of columns.

use std::collections::BTreeMap;
use std::fmt::Display;

use wire::Target;

use super::tally::{Change, Tally};
use crate::control::Control;
use crate::{Baseline, Check, Error};

/// The expression that counts rows.
const ROWS: &str = "COUNT(*)";

/// A whole number that the tables have.
#[derive(Debug)]
pub(crate) struct Sum {
    pub(crate) name: String,
    /// An expression over the rows of the tables.
    pub(crate) what: String,
    /// Each gives a part of it.
    pub(crate) tables: Vec<String>,
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
        Sum::of(ROWS, name, tables, wanted)
    }

    /// An expression over the rows of these tables.
    pub(crate) fn of(
        what: &str,
        name: impl Into<String>,
        tables: impl IntoIterator<Item = impl Display>,
        wanted: Wanted,
    ) -> Sum {
        let tables = tables.into_iter().map(|table| table.to_string()).collect();
        Sum { name: name.into(), what: what.to_owned(), tables, wanted }
    }

    fn found(&self, control: &mut Control, counted: &BTreeMap<String, u64>) -> Result<i128, Error> {
        let doing = format!("looking for the {}", self.name);
        let of = |table: &String| match counted.get(table) {
            Some(&rows) if self.what == ROWS => Ok(i128::from(rows)),
            _ => control.number(&doing, &format!("SELECT {} FROM {table}", self.what)),
        };
        self.tables.iter().map(of).sum()
    }
}

/// The sums before a run, with what sessions have changed before it.
pub(crate) fn baseline(
    target: &Target,
    sums: &[Sum],
    tally: &Tally,
    counted: &BTreeMap<String, u64>,
) -> Result<Baseline, Error> {
    let mut control = Control::connect(target, "count rows before the run")?;
    let compared = sums.iter().filter(|sum| !matches!(sum.wanted, Wanted::Exactly(_)));
    let figures = compared.map(|sum| Ok((sum.name.clone(), sum.found(&mut control, counted)?)));
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
        Ok(Check::between(&sum.name, sum.found(control, &BTreeMap::new())?, low, high))
    };
    sums.iter().map(check).collect()
}
