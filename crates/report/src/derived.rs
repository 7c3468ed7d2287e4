//! Figures of a cell that the load's own record does not hold: what a transaction cost, what the device gave of what
//! it can, and the workload's own headline.

use crate::model::{Point, RunView, StudyReport};
use crate::text::value_text;

/// What a cell took from its device, beside what the device did alone.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DeviceUse {
    pub(crate) place: String,
    pub(crate) written_mb_per_s: f64,
    /// Of the probe's sequential writing.
    pub(crate) share_of_sequential: Option<f64>,
    pub(crate) flushes_per_s: Option<f64>,
    /// Flushes per second over those that one writer with one append at a time can do: above 1, commits share.
    pub(crate) share_of_syncs: Option<f64>,
    /// Transactions per second for each MB/s that the device writes sequentially.
    pub(crate) tps_per_mb_per_s: Option<f64>,
}

pub(crate) fn device_use(study: &StudyReport, point: &Point) -> Option<DeviceUse> {
    let tps = point.tps?.median;
    let written_kb = per_transaction(study, point, "device_written")?;
    let run = study.counted(point).map(|(run, _)| run).next()?;
    let place = place_of(run);
    let is_mine = |(host, probe): &&(usize, store::Probe)| *host == run.host && probe.place == place;
    // The newest of several.
    let probe = study.probes.iter().rev().find(is_mine).map(|(_, probe)| probe);
    let figure = |name: &str| {
        let found = probe?.figures.iter().find(|figure| figure.name == name)?;
        (found.value > 0.0).then_some(found.value)
    };
    let written_mb_per_s = written_kb * tps / 1000.0;
    let flushes_per_s = per_transaction(study, point, "device_flushes").map(|flushes| flushes * tps);
    let syncs_per_s = figure("append_sync_p50").or_else(|| figure("fsync")).map(|us| 1e6 / us);
    Some(DeviceUse {
        written_mb_per_s,
        share_of_sequential: figure("sequential_write").map(|most| written_mb_per_s / most),
        share_of_syncs: flushes_per_s.zip(syncs_per_s).map(|(flushes, most)| flushes / most),
        flushes_per_s,
        tps_per_mb_per_s: figure("sequential_write").map(|most| tps / most),
        place,
    })
}

fn place_of(run: &RunView) -> String {
    let storage = run.end.as_ref().and_then(|end| end.server.storage.get("name")).cloned();
    let from_key = run.head.start.key.get("storage").map(value_text);
    storage.filter(|name| !name.is_empty()).or(from_key).unwrap_or_else(|| "default".to_owned())
}

/// Runs keep what a transaction cost as facts: `per_transaction/<sessions>/<name>` = `<value> <unit>`.
pub(crate) const PER_TRANSACTION: &str = "per_transaction/";

/// Median over the counted runs.
pub(crate) fn per_transaction(study: &StudyReport, point: &Point, name: &str) -> Option<f64> {
    let values: Vec<f64> =
        study.counted(point).filter_map(|(run, _)| per_transaction_of(run, point.sessions, name)).collect();
    stats::median(&values)
}

/// Of one run.
pub(crate) fn per_transaction_of(run: &RunView, sessions: u32, name: &str) -> Option<f64> {
    let text = run.end.as_ref()?.facts.get(&format!("{PER_TRANSACTION}{sessions}/{name}"))?;
    text.split(' ').next()?.parse().ok()
}

/// The workload's own headline over the counted runs: name, unit, median.
pub(crate) fn headline(study: &StudyReport, point: &Point) -> Option<(String, String, f64)> {
    // A climb's headline covers all its levels: it belongs to no single one.
    if point.is_climb {
        return None;
    }
    let found: Vec<&(String, String, f64)> =
        study.counted(point).filter_map(|(run, _)| run.end.as_ref()?.workload.headline.as_ref()).collect();
    let (name, unit, _) = found.first()?;
    let values: Vec<f64> = found.iter().map(|(_, _, value)| *value).collect();
    Some((name.clone(), unit.clone(), stats::median(&values)?))
}
