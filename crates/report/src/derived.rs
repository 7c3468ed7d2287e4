//! Figures of a cell over its runs that the load's own record does not hold: what a transaction cost, what the device gave
//! of what it can, statements by class, the client's own cost, and the workload's own headline.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::model::{Point, RunView, StudyReport};
use crate::order::distinct;
use crate::text::value_text;

/// What a cell took from its device, beside what the device did alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
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
    let written_kb = per_transaction(study, point, "device_written")?.0;
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
    let flushes_per_s = per_transaction(study, point, "device_flushes").map(|(flushes, _)| flushes * tps);
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

/// Median over the counted runs, with its unit.
pub(crate) fn per_transaction(study: &StudyReport, point: &Point, name: &str) -> Option<(f64, String)> {
    let found = study.counted(point).filter_map(|(run, _)| figure_of_run(run, point.sessions, name));
    let (values, units): (Vec<f64>, Vec<&str>) = found.unzip();
    stats::median(&values).zip(units.first()).map(|(value, unit)| (value, (*unit).to_owned()))
}

/// Medians over the counted runs of all that is known, with their units.
pub(crate) fn all_per_transaction(study: &StudyReport, point: &Point) -> BTreeMap<String, (f64, String)> {
    let prefix = format!("{PER_TRANSACTION}{}/", point.sessions);
    let mut values: BTreeMap<&str, (Vec<f64>, &str)> = BTreeMap::new();
    for (name, text) in
        study.counted(point).filter_map(|(run, _)| run.end.as_ref()).flat_map(|end| &end.facts)
    {
        let Some((name, (value, unit))) = name.strip_prefix(&prefix).zip(figure(text)) else { continue };
        values.entry(name).or_insert_with(|| (Vec::new(), unit)).0.push(value);
    }
    let median = |(name, (values, unit)): (&str, (Vec<f64>, &str))| {
        Some((name.to_owned(), (stats::median(&values)?, unit.to_owned())))
    };
    values.into_iter().filter_map(median).collect()
}

/// `1.5 us`.
fn figure(text: &str) -> Option<(f64, &str)> {
    let (value, unit) = text.split_once(' ').unwrap_or((text, ""));
    Some((value.parse().ok()?, unit))
}

fn figure_of_run<'a>(run: &'a RunView, sessions: u32, name: &str) -> Option<(f64, &'a str)> {
    figure(run.end.as_ref()?.facts.get(&format!("{PER_TRANSACTION}{sessions}/{name}"))?)
}

/// Of one run.
pub(crate) fn per_transaction_of(run: &RunView, sessions: u32, name: &str) -> Option<f64> {
    Some(figure_of_run(run, sessions, name)?.0)
}

/// A class of statements over the counted runs of a point: medians. A percentile that some run is too short for is absent:
/// it is no median over the others.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct StatementClass {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) per_second: Option<f64>,
    pub(crate) mean_ms: Option<f64>,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p95_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    pub(crate) max_ms: Option<f64>,
}

pub(crate) fn statements(study: &StudyReport, point: &Point) -> Vec<StatementClass> {
    let all =
        || study.counted(point).flat_map(|(_, step)| step.by_statement.iter().map(move |of| (step, of)));
    let names = distinct(all().map(|(_, statement)| statement.name.as_str()));
    let class = |name: &str| {
        let runs = || all().filter(|(_, statement)| statement.name == name);
        let rates: Vec<f64> =
            runs().map(|(step, statement)| statement.count as f64 / step.duration_s.max(1e-9)).collect();
        let median = |of: &dyn Fn(crate::Latency) -> Option<f64>| {
            let values: Option<Vec<f64>> =
                runs().filter_map(|(_, statement)| statement.latency).map(of).collect();
            stats::median(&values?)
        };
        StatementClass {
            name: name.to_owned(),
            per_second: stats::median(&rates),
            mean_ms: median(&|l| Some(l.mean)),
            p50_ms: median(&|l| l.p50),
            p95_ms: median(&|l| l.p95),
            p99_ms: median(&|l| l.p99),
            max_ms: median(&|l| Some(l.max)),
        }
    };
    names.into_iter().map(class).collect()
}

/// The client's own cost: medians over the counted runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClientCost {
    pub(crate) cpu_share: f64,
    pub(crate) run_queue_share: f64,
    pub(crate) schedule_lag_p99_ms: f64,
    pub(crate) cpu_us_per_statement: f64,
}

pub(crate) fn client_cost(study: &StudyReport, point: &Point) -> Option<ClientCost> {
    let of = |figure: &dyn Fn(&crate::StepFigures) -> f64| {
        let values: Vec<f64> = study.counted(point).map(|(_, step)| figure(step)).collect();
        stats::median(&values)
    };
    Some(ClientCost {
        cpu_share: of(&|step| step.client.cpu_share)?,
        run_queue_share: of(&|step| step.client.run_queue_share)?,
        schedule_lag_p99_ms: of(&|step| step.client.schedule_lag_p99_ms)?,
        cpu_us_per_statement: of(&|step| {
            (step.client.cpu_user_s + step.client.cpu_sys_s) * 1e6 / (step.statements().max(1) as f64)
        })?,
    })
}

/// Mean share of transactions that failed, over the counted runs.
pub(crate) fn failed_share(study: &StudyReport, point: &Point) -> Option<f64> {
    stats::mean(&study.counted(point).map(|(_, step)| step.failed_share()).collect::<Vec<f64>>())
}

/// Sessions that throughput and latency imply, over the real ones (Little's law): median over the counted runs. Think time
/// is not known here and makes it smaller; open loop has no fixed number of sessions in the system.
pub(crate) fn little(study: &StudyReport, point: &Point) -> Option<f64> {
    let of = |step: &crate::StepFigures| {
        if step.rate_tps.is_some() || step.duration_s <= 0.0 {
            return None;
        }
        let ended = step.outcomes.started() as f64 / step.duration_s;
        let check = stats::little(f64::from(step.sessions), ended, step.response?.mean / 1000.0, 0.0, 0.05)?;
        Some(check.ratio)
    };
    stats::median(&study.counted(point).filter_map(|(_, step)| of(step)).collect::<Vec<f64>>())
}

/// Spread of each figure of the machine's own canaries over the study: coefficients of variation, by name.
pub(crate) fn canary_spreads(study: &StudyReport) -> BTreeMap<&str, f64> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for figure in study.canaries.iter().flat_map(|(_, canary)| &canary.figures) {
        values.entry(&figure.name).or_default().push(figure.value);
    }
    let spread = |(name, values): (_, Vec<f64>)| Some((name, stats::coefficient_of_variation(&values)?));
    values.into_iter().filter_map(spread).collect()
}

/// All of these for the JSON of a cell.
pub(crate) fn json_of_point(study: &StudyReport, point: &Point) -> Map<String, Value> {
    let per_transaction: Map<String, Value> = all_per_transaction(study, point)
        .into_iter()
        .map(|(name, (median, unit))| (name, json!({"median": median, "unit": unit})))
        .collect();
    let headline = headline(study, point);
    let classes = statements(study, point).into_iter();
    let fields = [
        ("per_transaction", Value::Object(per_transaction)),
        ("by_statement", classes.map(|class| (class.name.clone(), json!(class))).collect()),
        ("client", json!(client_cost(study, point))),
        ("device", json!(device_use(study, point))),
        ("failed_share", json!(failed_share(study, point))),
        ("little", json!(little(study, point))),
        (
            "headline",
            headline.map(|(name, unit, value)| json!({"name": name, "unit": unit, "value": value})).into(),
        ),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
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
