//! The figures of one load level, folded from what is stored: histograms become percentiles here and are dropped,
//! because a study holds tens of thousands of them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Serialize, Serializer};
use store::{ClientUsage, ErrorTally, LatencyUnit, Outcomes, Second, SecondResponse, Stalls, Step, Unended};

/// A distribution of times in milliseconds. A percentile of too few values ([`stats::quantile_needs`]) is absent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Latency {
    /// How many times it holds.
    pub count: u64,
    /// What they are times of: `transactions`.
    pub noun: &'static str,
    pub min: f64,
    pub mean: f64,
    pub p50: Option<f64>,
    pub p90: Option<f64>,
    pub p95: Option<f64>,
    pub p99: Option<f64>,
    pub p999: Option<f64>,
    pub max: f64,
}

/// The percentiles of a [`Latency`] by the names of the JSON.
const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.50), ("p90", 0.90), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)];

/// The rank of a percentile by its name, with or without unit (`p99`, `p99_ms`).
pub(crate) fn quantile_of(metric: &str) -> Option<f64> {
    let name = metric.strip_suffix("_ms").unwrap_or(metric);
    QUANTILES.iter().find(|(known, _)| *known == name).map(|(_, quantile)| *quantile)
}

impl Latency {
    /// `None` where nothing was recorded.
    pub fn of(histogram: &Histogram<u64>, noun: &'static str) -> Option<Self> {
        if histogram.is_empty() {
            return None;
        }
        let at = |quantile: f64| {
            let is_enough = histogram.len() >= stats::quantile_needs(quantile);
            is_enough.then(|| LatencyUnit::to_ms(histogram.value_at_quantile(quantile) as f64))
        };
        Some(Self {
            count: histogram.len(),
            noun,
            min: LatencyUnit::to_ms(histogram.min() as f64),
            mean: LatencyUnit::to_ms(histogram.mean()),
            p50: at(0.50),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: LatencyUnit::to_ms(histogram.max() as f64),
        })
    }

    /// By the name of the JSON.
    pub fn by_name(&self, name: &str) -> Option<f64> {
        match name {
            "min" => Some(self.min),
            "mean" | "avg" => Some(self.mean),
            "p50" => self.p50,
            "p90" => self.p90,
            "p95" => self.p95,
            "p99" => self.p99,
            "p999" => self.p999,
            "max" => Some(self.max),
            _ => None,
        }
    }

    /// The percentiles that are absent, with the reason: `needs 1000 transactions, there are 412`.
    pub fn absent(&self) -> BTreeMap<&'static str, String> {
        let few = QUANTILES.into_iter().filter(|(name, _)| self.by_name(name).is_none());
        few.map(|(name, quantile)| {
            let needed = stats::quantile_needs(quantile);
            let are = if self.count == 1 { "is" } else { "are" };
            (name, format!("needs {needed} {}, there {are} {}", self.noun, self.count))
        })
        .collect()
    }
}

/// As in the JSON: what is absent is null, and says why.
impl Serialize for Latency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = serde_json::json!({
            "count": self.count, "min": self.min, "mean": self.mean, "p50": self.p50, "p90": self.p90,
            "p95": self.p95, "p99": self.p99, "p999": self.p999, "max": self.max, "absent": self.absent(),
        });
        fields.serialize(serializer)
    }
}

/// One statement class.
#[derive(Debug, Clone, PartialEq)]
pub struct StatementFigures {
    /// `point_select`.
    pub name: String,
    /// How many.
    pub count: u64,
    /// From send to complete answer.
    pub latency: Option<Latency>,
}

/// One second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct IntervalFigures {
    /// 1 for the first second of the measured phase; 0 and below are warm-up.
    pub second: i64,
    /// Its length.
    pub duration_s: f64,
    /// See [`Step::whole`].
    pub is_whole: bool,
    /// Committed per second.
    pub tps: f64,
    /// Statements per second.
    pub qps: f64,
    /// Response time.
    pub latency: Option<SecondResponse>,
    /// Transactions that failed in it.
    pub errors: u64,
    /// Scheduled and not started at its end.
    pub backlog: u64,
}

/// One load level.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFigures {
    pub sessions: u32,
    pub rate_tps: Option<f64>,
    pub arrivals: Option<String>,
    pub offset_s: f64,
    pub warmup_s: f64,
    pub duration_s: f64,
    pub connect_s: f64,
    pub outcomes: Outcomes,
    pub reads: u64,
    pub writes: u64,
    pub other: u64,
    pub retries: u64,
    pub in_flight_at_end: u64,
    pub backlog_at_end: u64,
    /// Committed transactions per second of the measured phase.
    pub tps: f64,
    /// Best whole second.
    pub tps_max: f64,
    /// Worst whole second.
    pub tps_min: f64,
    /// Statements per second.
    pub qps: f64,
    pub response: Option<Latency>,
    /// The same as `response` in closed loop.
    pub service: Option<Latency>,
    pub by_statement: Vec<StatementFigures>,
    pub errors: BTreeMap<String, ErrorTally>,
    pub intervals: Vec<IntervalFigures>,
    pub client: ClientUsage,
    pub ended_by: Option<String>,
    /// Of transactions that failed.
    pub failed: Option<Latency>,
    pub unended: Option<Unended>,
    pub stalls: Option<Stalls>,
}

const TRANSACTIONS: &str = "transactions";

impl StepFigures {
    /// Folds a stored step.
    pub fn of(step: &Step) -> Self {
        let per_second =
            |count: u64| if step.duration_s > 0.0 { count as f64 / step.duration_s } else { 0.0 };
        let is_whole = step.whole();
        let intervals: Vec<IntervalFigures> =
            step.seconds.iter().map(|second| interval(second, is_whole(second))).collect();
        let tps = per_second(step.outcomes.committed);
        let whole = || intervals.iter().filter(|i| i.is_whole).map(|i| i.tps);
        let response = Latency::of(&step.response, TRANSACTIONS);
        Self {
            sessions: step.sessions,
            rate_tps: step.rate_tps,
            arrivals: step.arrivals.clone(),
            offset_s: step.offset_s,
            warmup_s: step.warmup_s,
            duration_s: step.duration_s,
            connect_s: step.connect_s,
            outcomes: step.outcomes,
            reads: step.reads,
            writes: step.writes,
            other: step.other,
            retries: step.retries,
            in_flight_at_end: step.in_flight_at_end,
            backlog_at_end: step.backlog_at_end,
            tps,
            // A step shorter than a second has no whole second: its mean is all there is.
            tps_max: whole().reduce(f64::max).unwrap_or(tps),
            tps_min: whole().reduce(f64::min).unwrap_or(tps),
            qps: per_second(step.reads + step.writes + step.other),
            response,
            service: step.service.as_ref().map_or(response, |times| Latency::of(times, TRANSACTIONS)),
            by_statement: step
                .by_statement
                .iter()
                .map(|statement| StatementFigures {
                    name: statement.name.clone(),
                    count: statement.count,
                    latency: Latency::of(&statement.latency, "statements"),
                })
                .collect(),
            errors: step.errors.clone(),
            intervals,
            client: step.client.clone(),
            ended_by: step.ended_by.clone(),
            failed: step.failed.as_ref().and_then(|times| Latency::of(times, "failed transactions")),
            unended: step.unended,
            stalls: step.stalls,
        }
    }

    /// Statements of the measured phase.
    pub fn statements(&self) -> u64 {
        self.reads + self.writes + self.other
    }

    /// Share of the started transactions that failed.
    pub fn failed_share(&self) -> f64 {
        let started = self.outcomes.started();
        if started == 0 { 0.0 } else { self.outcomes.failed() as f64 / started as f64 }
    }

    /// A metric by the name that `[compare]` uses: `tps`, `qps`, `tps_min`, `tps_max`, or a response time in ms.
    pub fn metric(&self, name: &str) -> Option<f64> {
        match name {
            "tps" => Some(self.tps),
            "qps" => Some(self.qps),
            "tps_max" => Some(self.tps_max),
            "tps_min" => Some(self.tps_min),
            _ => self.response?.by_name(name.strip_suffix("_ms").unwrap_or(name)),
        }
    }

    /// TPS of the whole seconds of the measured phase.
    pub fn seconds(&self) -> Vec<f64> {
        self.intervals.iter().filter(|i| i.is_whole).map(|i| i.tps).collect()
    }
}

impl IntervalFigures {
    /// A percentile of the response time; `None` where too few transactions ended in that second for it.
    pub fn percentile(&self, name: &str) -> Option<f64> {
        let response = self.latency?;
        let figure = match name {
            "p50" => response.p50,
            "p95" => response.p95,
            "p99" => response.p99,
            _ => return None,
        };
        (response.count >= stats::quantile_needs(quantile_of(name)?)).then_some(figure)
    }
}

fn interval(second: &Second, is_whole: bool) -> IntervalFigures {
    let per_second =
        |count: u64| if second.duration_s > 0.0 { count as f64 / second.duration_s } else { 0.0 };
    IntervalFigures {
        second: second.second,
        duration_s: second.duration_s,
        is_whole,
        tps: per_second(second.committed),
        qps: per_second(second.statements),
        latency: second.response,
        errors: second.failed,
        backlog: second.backlog,
    }
}
