//! What a run and a report say of a server: engine, settings, and what its data directory stands on; and of a run, when it is
//! over.

use std::collections::BTreeMap;
use std::time::Duration;

use store::{LineFound, RunEnd, ServerFacts};
use wire::Protocol;

use crate::error::Error;
use crate::judge;
use crate::observe::{Phase, RunSummary};
use crate::provision::connect;

/// What the data directory stands on, as reports print it.
pub(crate) fn of_storage(facts: &sandbox::storage::StorageFacts) -> Vec<(String, String)> {
    let mut all = vec![
        ("filesystem".to_owned(), facts.filesystem.clone()),
        ("mount".to_owned(), facts.mount.display().to_string()),
        ("options".to_owned(), facts.options.clone()),
        ("device".to_owned(), facts.device.clone()),
    ];
    // An image's own device orders nothing.
    let scheduler = facts.image.as_ref().map_or(&facts.scheduler, |image| &image.scheduler);
    all.extend(scheduler.clone().map(|scheduler| ("scheduler".to_owned(), scheduler)));
    if let Some(image) = &facts.image {
        let through = if image.direct_io { "direct I/O" } else { "its page cache" };
        all.push((
            "image".to_owned(),
            format!("on {} of {}, through {through}", image.filesystem, image.device),
        ));
    }
    all
}

/// The engine of the workload's tables, in the spelling of its makers.
pub(crate) fn engine_of(flavor: sandbox::Flavor, options: &BTreeMap<String, String>) -> String {
    if flavor == sandbox::Flavor::Postgres {
        return "heap".to_owned();
    }
    let given = options.get("mysql_storage_engine").map_or("InnoDB", String::as_str);
    let known = ["InnoDB", "MyISAM", "Aria", "MEMORY", "RocksDB"];
    known.into_iter().find(|name| name.eq_ignore_ascii_case(given)).unwrap_or(given).to_owned()
}

/// All variables as an attached server reports them.
pub(crate) fn reported_settings(target: &wire::Target) -> Result<BTreeMap<String, String>, Error> {
    let sql = match target.protocol {
        Protocol::Mysql => "SHOW GLOBAL VARIABLES",
        Protocol::Postgres => "SELECT name, setting FROM pg_settings",
    };
    let sets = connect(target)?
        .query_sets(sql)
        .map_err(|error| Error::Run(format!("reading the server's settings failed: {error}")))?;
    let text = |cell: Option<&Option<Vec<u8>>>| {
        cell.and_then(Option::as_ref)
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .unwrap_or_default()
    };
    Ok(sets.iter().flat_map(|set| &set.rows).map(|row| (text(row.first()), text(row.get(1)))).collect())
}

/// What reports show of a server apart from the list of its settings.
pub(crate) fn describe(facts: &mut ServerFacts, reported: &BTreeMap<String, String>) {
    let first =
        |names: &[&str]| names.iter().find_map(|name| reported.get(*name)).cloned().unwrap_or_default();
    if facts.isolation.is_empty() {
        let level = first(&["transaction_isolation", "tx_isolation", "default_transaction_isolation"]);
        facts.isolation = level.to_lowercase().replace([' ', '_'], "-");
    }
    if facts.charset.is_empty() {
        facts.charset = first(&["character_set_server", "server_encoding"]);
    }
    if facts.collation.is_empty() {
        facts.collation = first(&["collation_server", "lc_collate"]);
    }
}

/// How a run ended, for people.
pub(crate) fn summary(end: &RunEnd, found: Option<&LineFound>, took: Duration) -> RunSummary {
    let length = |phase: &store::Phase| Duration::from_secs_f64(phase.duration_s);
    RunSummary {
        status: end.status,
        error: end.error.clone(),
        tripped: judge::tripped(end),
        log_tail: end.log_tail.clone(),
        steps: end.steps.iter().map(headline).collect(),
        lines: found.iter().flat_map(|found| &found.lines).map(|l| (l.promise.clone(), l.line_tps)).collect(),
        warnings: end.warnings.clone(),
        took,
        drained: end.phases.iter().filter(|phase| phase.name == Phase::Drain.name()).map(length).sum(),
    }
}

/// Sessions, TPS and p95 of a level.
fn headline(step: &store::Step) -> (u32, f64, Option<f64>) {
    let tps = if step.duration_s > 0.0 { step.outcomes.committed as f64 / step.duration_s } else { 0.0 };
    (step.sessions, tps, crate::kept::percentile_ms(step, 95.0))
}
