//! Hot locks side by side: how long each was waited for, along the ladder and between servers.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use store::LockSource;

use crate::load::{label, label_or};
use crate::model::StudyReport;

/// Rows of a table: what comes after them is not hot.
const ROWS_MAX: usize = 12;

/// Locks on the heap, which sampling finds and no symbol names; the passes' own tables have their addresses.
const NAMELESS: &str = "allocated, without a name";

/// Locks of one source, by cell and session count.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LockTable {
    /// Where the figures come from, in words.
    pub(crate) source: &'static str,
    /// Cell and sessions of each column.
    pub(crate) columns: Vec<(String, u32)>,
    /// The lock, and seconds that all threads together waited for it in each second; `None` where the column's pass
    /// did not see it.
    pub(crate) rows: Vec<(String, Vec<Option<f64>>)>,
}

/// The word of the report.
pub(crate) fn source_text(source: LockSource) -> &'static str {
    match source {
        LockSource::PerformanceSchema => "performance_schema",
        LockSource::WaitEvents => "wait events, sampled",
        LockSource::Futex => "futex, sampled",
        LockSource::Perf => "perf",
    }
}

/// One pass at one level: label, sessions, its locks.
fn passes(study: &StudyReport) -> Vec<(String, u32, Vec<&store::HotLock>)> {
    let mut passes: Vec<(String, u32, Vec<&store::HotLock>)> = Vec::new();
    for run in &study.runs {
        let Some(end) = &run.end else { continue };
        let name = label_or(&run.head.start.key, &study.varying, &["sessions"], &end.server.name);
        let mut levels: BTreeMap<u32, Vec<&store::HotLock>> = BTreeMap::new();
        for lock in &end.hot_locks {
            levels.entry(lock.sessions).or_default().push(lock);
        }
        for (sessions, locks) in levels {
            // A later pass of the same cell stands for the earlier one.
            passes.retain(|(known, level, _)| (known, *level) != (&name, sessions));
            passes.push((name.clone(), sessions, locks));
        }
    }
    let place = |name: &str| {
        study.points.iter().position(|point| label(&point.identity, &study.varying, &["sessions"]) == name)
    };
    passes.sort_by_cached_key(|(name, sessions, _)| (place(name), name.clone(), *sessions));
    passes
}

/// A table for each source that there are figures of, the hottest lock first.
pub(crate) fn tables(study: &StudyReport) -> Vec<LockTable> {
    let passes = passes(study);
    let sources =
        [LockSource::PerformanceSchema, LockSource::WaitEvents, LockSource::Futex, LockSource::Perf];
    sources.into_iter().filter_map(|source| table(&passes, source)).collect()
}

fn table(passes: &[(String, u32, Vec<&store::HotLock>)], source: LockSource) -> Option<LockTable> {
    let of_source: Vec<(&str, u32, BTreeMap<&str, f64>)> = passes
        .iter()
        .filter_map(|(label, sessions, locks)| {
            let mut waited: BTreeMap<&str, f64> = BTreeMap::new();
            for lock in locks.iter().filter(|lock| lock.source == source && lock.observed_s > 0.0) {
                // Callers of one lock are one lock here, and an address is the same lock in no other server.
                let name = if lock.lock.starts_with("allocated at ") { NAMELESS } else { &lock.lock };
                *waited.entry(name).or_default() += lock.wait_total_s / lock.observed_s;
            }
            (!waited.is_empty()).then_some((label.as_str(), *sessions, waited))
        })
        .collect();
    let mut names: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, waited) in of_source.iter().flat_map(|(_, _, waited)| waited) {
        let most = names.entry(name).or_default();
        *most = waited.max(*most);
    }
    let mut names: Vec<(&str, f64)> = names.into_iter().collect();
    names.sort_by(|a, b| b.1.total_cmp(&a.1));
    names.truncate(ROWS_MAX);
    (!names.is_empty()).then(|| LockTable {
        source: source_text(source),
        columns: of_source.iter().map(|(label, sessions, _)| ((*label).to_owned(), *sessions)).collect(),
        rows: names
            .into_iter()
            .map(|(name, _)| {
                let values = of_source.iter().map(|(_, _, waited)| waited.get(name).copied());
                (name.to_owned(), values.collect())
            })
            .collect(),
    })
}

/// The tables for JSON: seconds waited in each second, by lock, in the order of the columns.
pub(crate) fn json_tables(study: &StudyReport) -> Vec<Value> {
    let of = |table: LockTable| {
        let column = |(label, sessions)| json!({"label": label, "sessions": sessions});
        let row = |(lock, values)| json!({"lock": lock, "waited_share": values});
        json!({"columns": table.columns.into_iter().map(column).collect::<Value>(),
               "rows": table.rows.into_iter().map(row).collect::<Value>(), "source": table.source})
    };
    tables(study).into_iter().map(of).collect()
}

/// Every line of every pass.
pub(crate) fn json_lines(study: &StudyReport) -> Vec<Value> {
    passes(study)
        .iter()
        .flat_map(|(label, sessions, locks)| {
            locks.iter().map(move |lock| {
                json!({
                    "label": label, "sessions": sessions, "source": lock.source, "lock": lock.lock,
                    "caller": lock.caller, "count": lock.count, "wait_total_s": lock.wait_total_s,
                    "wait_interval_s": lock.wait_interval_s, "observed_s": lock.observed_s,
                })
            })
        })
        .collect()
}
