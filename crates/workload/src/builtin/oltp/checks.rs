//! Whether the tables are what the counted outcomes imply.

use wire::Target;

use super::mix::Member;
use super::options::Settings;
use super::{ConfiguredOltp, data};
use crate::control::Control;
use crate::engine::tally::Tally;
use crate::{Baseline, Check, Error};

/// What sessions had changed before the run, so that a `Configured` may be used for several.
const TALLY_ROWS: &str = "changed rows";
const TALLY_K: &str = "changed k";
const TALLY_DOUBT: [&str; 4] = ["doubt rows low", "doubt rows high", "doubt k low", "doubt k high"];

fn sum_of_k(settings: &Settings, control: &mut Control) -> Result<i128, Error> {
    let mut sum = 0;
    for table in settings.tables() {
        sum += control.number("adding up k", &format!("SELECT SUM(k) FROM {table}"))?;
    }
    Ok(sum)
}

fn tallied(tally: &Tally) -> Vec<(&'static str, i128)> {
    let totals = tally.totals();
    vec![
        (TALLY_ROWS, i128::from(totals.sure.rows)),
        (TALLY_K, i128::from(totals.sure.k)),
        (TALLY_DOUBT[0], i128::from(totals.doubt_low.rows)),
        (TALLY_DOUBT[1], i128::from(totals.doubt_high.rows)),
        (TALLY_DOUBT[2], i128::from(totals.doubt_low.k)),
        (TALLY_DOUBT[3], i128::from(totals.doubt_high.k)),
    ]
}

pub(super) fn baseline(of: &ConfiguredOltp, target: &Target) -> Result<Baseline, Error> {
    let (settings, tally) = (&of.settings, &of.workload.tally);
    let mut control = Control::connect(target, "count rows before the run")?;
    let mut baseline = Baseline::default();
    for (table, rows) in settings.tables().iter().zip(data::count_rows(settings, &mut control)?) {
        baseline.figures.insert(format!("rows of {table}"), rows);
    }
    if of.member == Member::UpdateIndex {
        baseline.figures.insert("sum of k".to_owned(), sum_of_k(settings, &mut control)?);
    }
    baseline.figures.extend(tallied(tally).into_iter().map(|(name, value)| (name.to_owned(), value)));
    Ok(baseline)
}

pub(super) fn check(of: &ConfiguredOltp, target: &Target, before: &Baseline) -> Result<Vec<Check>, Error> {
    let (settings, tally) = (&of.settings, &of.workload.tally);
    let mut control = Control::connect(target, "check the tables after the run")?;
    let was = |name: &str| before.figures.get(name).copied().unwrap_or(0);
    let now = tallied(tally);
    let since = |name: &str| now.iter().find(|(n, _)| *n == name).map_or(0, |(_, value)| *value) - was(name);
    let rows = data::count_rows(settings, &mut control)?;
    let named = settings.tables().into_iter().map(|table| format!("rows of {table}"));
    let mut checks = Vec::new();
    // Without a unique key (secondary=on) two sessions that take the same id at once may both insert it: PostgreSQL's
    // second DELETE waits for the first and then finds nothing. Then what was changed says how many rows there are.
    if of.member.keeps_rows() && settings.is_atomic() && !settings.options.switch("secondary") {
        for (name, found) in named.zip(rows) {
            checks.push(Check::between(name.clone(), found, was(&name), was(&name)));
        }
    } else {
        let base: i128 = named.map(|name| was(&name)).sum::<i128>() + since(TALLY_ROWS);
        let (low, high) = (base + since(TALLY_DOUBT[0]), base + since(TALLY_DOUBT[1]));
        checks.push(Check::between("rows of all tables", rows.iter().sum(), low, high));
    }
    if of.member == Member::UpdateIndex {
        let base = was("sum of k") + since(TALLY_K);
        let (low, high) = (base + since(TALLY_DOUBT[2]), base + since(TALLY_DOUBT[3]));
        checks.push(Check::between("sum of k", sum_of_k(settings, &mut control)?, low, high));
    }
    Ok(checks)
}
