//! Samplers and gates attached to a run, the canary and the storage probe: what `telemetry` gives, in the words of the
//! results file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use telemetry::agent::Agent;
use telemetry::gates::{self, ColdStart, Debt, DeviceLimit, Noise, UnseenDebt, three_digits};
use telemetry::metrics::Metrics;
use telemetry::residency::Residency;
use telemetry::{Config, Kind, Sampler, Telemetry, Track, canary, drain, per_transaction, probe};
use wire::Protocol;

use crate::hooks::{Attach, Found, Hook, Part, RunContext};
use crate::judge::stored;
use crate::stalled::{self, LogMarks};

/// Watches every run: lets the server pay its debt first, then samplers once a second, gates at the end.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    /// Where to show the latest values while a run goes on.
    pub metrics: Option<Metrics>,
    /// On the machine that an attached server is on.
    pub agent: Option<Agent>,
}

/// A server that has not paid its debt by then is measured as it is, and the run says so.
pub(crate) const DRAIN_LIMIT: Duration = Duration::from_secs(30);

impl Attach for Watch {
    fn attach(&self, context: &RunContext, told: &dyn Fn(&str)) -> Vec<Box<dyn Hook>> {
        let terms = drain::Terms {
            limit: DRAIN_LIMIT,
            is_ours: context.is_ours,
            is_cold: context.is_cold,
            only_reads: context.only_reads,
            datadir: context.datadir.as_deref(),
            told,
        };
        let drained = drain::drain(&context.target, &terms).map_err(|error| error.to_string());
        let sampler = Sampler::start(&Config {
            epoch: context.began,
            server_pid: context.server_pid,
            client_pids: context.client_pids.clone(),
            datadir: context.datadir.clone(),
            target: Some(context.target.clone()),
            replicas: context.replicas.clone(),
            metrics: self.metrics.clone(),
            agent: self.agent.clone(),
        });
        vec![Box::new(Watching {
            sampler,
            known: Known {
                canary_ratio: context.canary_ratio,
                resident: context.is_cold.then(|| resident(context)),
                limits: context.limits,
                protocol: Some(context.target.protocol),
                drained: Some(drained),
            },
            metrics: self.metrics.clone(),
            began: context.began,
            slices: context.is_sliced.then(Vec::new),
            log: context.log_file.clone().map(LogMarks::new),
        })]
    }
}

/// The process of a server that we only have an address of, and its data directory; `None` where it cannot be seen.
pub(crate) fn process_of(target: &wire::Target) -> (Option<u32>, Option<PathBuf>) {
    telemetry::local_server(target).map_or((None, None), |local| (Some(local.pid), local.datadir))
}

/// Watches the machine and, where there is one, a server that is measured as it is: its debt is not waited for.
/// `began` is zero of all times in series.
pub(crate) fn onlooker(began: Instant, target: Option<&wire::Target>) -> Box<dyn Hook> {
    let (server_pid, datadir) = target.map_or((None, None), process_of);
    let sampler = Sampler::start(&Config {
        epoch: began,
        server_pid,
        client_pids: Vec::new(),
        datadir,
        target: target.cloned(),
        replicas: Vec::new(),
        metrics: None,
        agent: None,
    });
    Box::new(Watching {
        sampler,
        known: Known { protocol: target.map(|target| target.protocol), ..Known::default() },
        metrics: None,
        began,
        slices: None,
        log: None,
    })
}

/// The data files in the page cache, now; or why that cannot be seen.
fn resident(context: &RunContext) -> Result<Residency, String> {
    let Some(datadir) = &context.datadir else {
        return Err("the data files of a server that runs elsewhere cannot be looked at".to_owned());
    };
    Residency::of_data(datadir)
        .map_err(|error| format!("the page cache of the data files cannot be looked at: {error}"))
}

struct Watching {
    sampler: Sampler,
    known: Known,
    metrics: Option<Metrics>,
    began: Instant,
    /// Of a load in slices: from and to of each, in seconds since the run began. What was done between those of a run is not
    /// the run's.
    slices: Option<Vec<(f64, f64)>>,
    log: Option<LogMarks>,
}

/// What is known of a run before its load.
#[derive(Default)]
struct Known {
    canary_ratio: Option<f64>,
    /// What the page cache held before a load that is declared cold; `None` for a warm one.
    resident: Option<Result<Residency, String>>,
    limits: sandbox::Limits,
    /// Of the server; `None` where there is none.
    protocol: Option<Protocol>,
    /// `None` where nobody waited.
    drained: Option<Result<drain::Drained, String>>,
}

impl Watching {
    /// What the load says about its last second, beside what the samplers see.
    fn show(&self, sessions: Option<u32>, interval: Option<&load::IntervalResult>) {
        let Some(metrics) = &self.metrics else { return };
        let gauge =
            |name: &str, unit: &str, value: f64| metrics.set(("load", name, unit), "", Kind::Gauge, value);
        if let Some(sessions) = sessions {
            gauge("sessions", "sessions", f64::from(sessions));
        }
        if let Some(interval) = interval {
            gauge(
                "tps",
                "transactions a second",
                interval.outcomes.committed as f64 / interval.duration_s.max(1e-9),
            );
            gauge("errors", "transactions", interval.outcomes.failed() as f64);
            let p99 = interval.latency.response.to_hdr().value_at_quantile(0.99);
            gauge("response_p99", "ms", store::LatencyUnit::to_ms(p99 as f64));
        }
    }
}

impl Hook for Watching {
    fn event(&mut self, event: &load::Event<'_>) {
        if let Some(log) = &mut self.log {
            log.mark(self.began.elapsed().as_secs_f64());
        }
        match event {
            load::Event::Interval { interval, .. } => {
                self.sampler.tick();
                self.show(None, Some(interval));
            }
            load::Event::StepStarted { step, .. } => {
                self.sampler.edge(0.0);
                self.sampler.edge(step.warmup.as_secs_f64());
                self.sampler.tick();
                self.show(Some(step.sessions), None);
                if let Some(slices) = &mut self.slices {
                    let from = (self.began.elapsed() + step.warmup).as_secs_f64();
                    slices.push((from, from));
                }
            }
            load::Event::Connected { .. } => self.sampler.tick(),
            load::Event::StepEnded { result, .. } => {
                self.sampler.edge(0.0);
                if let Some((from, to)) = self.slices.as_mut().and_then(|slices| slices.last_mut()) {
                    *to = *from + result.duration_s;
                }
            }
            load::Event::Warning(_) => {}
        }
    }

    fn take_series(&mut self) -> Vec<store::Series> {
        self.sampler.take_shown().iter().map(series).collect()
    }

    fn finish(self: Box<Self>, parts: &[Part<'_>]) -> Vec<Found> {
        let Watching { sampler, known, slices, metrics, mut log, began } = *self;
        if let Some(log) = &mut log {
            log.mark(began.elapsed().as_secs_f64());
        }
        let (whole, shown) = sampler.stop();
        if let Some(metrics) = &metrics {
            metrics.clear();
        }
        let found = |part: &Part<'_>| match (&slices, part.slices) {
            (Some(windows), Some(is_slice)) => {
                let own = windows.iter().zip(is_slice).filter(|(_, is_slice)| **is_slice);
                let own: Vec<(f64, f64)> = own.map(|(window, _)| *window).collect();
                known.found(&whole.spliced(&own), &shown, part.steps)
            }
            _ => {
                let mut found = known.found(&whole, &shown, part.steps);
                found.facts.extend(stalled::facts(&whole, part.steps, log.as_ref()));
                found
            }
        };
        parts.iter().map(found).collect()
    }
}

impl Known {
    fn found(&self, seen: &Telemetry, shown: &[Track], steps: &[store::Step]) -> Found {
        let mut facts = facts(seen, steps, self.protocol);
        let mut warnings = Vec::new();
        match &self.drained {
            Some(Ok(drained)) => {
                let left = if drained.left.is_empty() { "nothing" } else { &drained.left };
                let (took, system) = (drained.took.as_secs_f64(), drained.system_took.as_secs_f64());
                facts.push((
                    "drained".to_owned(),
                    format!(
                        "in {took:.1} s before the load ({system:.1} s of them by the operating system): {}; left: {left}",
                        drained.found
                    ),
                ));
                if drained.is_unfinished {
                    warnings.push(format!(
                        "the server began with debt of an earlier run ({}): give it time, or measure a fresh sandbox",
                        drained.left
                    ));
                }
            }
            Some(Err(error)) => facts.push(("not measured/debt before the load".to_owned(), error.clone())),
            None => {}
        }
        warnings.extend(inherited_debts(seen, steps, self.protocol));
        warnings.extend(crate::replicas::left_behind(seen, steps));
        Found {
            series: shown.iter().map(series).collect(),
            hot_locks: Vec::new(),
            gates: judge(seen, steps, self),
            warnings,
            facts,
        }
    }
}

/// Of a track whose points are what is shown.
fn series(track: &Track) -> store::Series {
    store::Series {
        source: track.source.to_owned(),
        name: track.name.to_owned(),
        instance: track.instance.clone(),
        unit: track.shown_unit(),
        points: track.points.clone(),
    }
}

/// Figures per transaction of each step, the samplers' own cost, and what could not be measured.
fn facts(seen: &Telemetry, steps: &[store::Step], protocol: Option<Protocol>) -> Vec<(String, String)> {
    let mut facts = Vec::new();
    for step in steps {
        let to = step.offset_s + step.duration_s;
        for figure in per_transaction(seen, step.offset_s, to, step.outcomes.committed) {
            let unit = if figure.unit.is_empty() { String::new() } else { format!(" {}", figure.unit) };
            let name = format!("per_transaction/{}/{}", step.sessions, figure.name);
            facts.push((name, format!("{}{unit}", three_digits(figure.value))));
        }
        if let Some(stability) = stats::stability(&tps(step)) {
            let text = format!(
                "max {:.2} x avg, worst second {:.2} x avg, cv {:.1} %",
                stability.max_over_avg,
                stability.min_over_avg,
                100.0 * stability.cv
            );
            facts.push((format!("stability/{}", step.sessions), text));
        }
    }
    for debt in debts_of_run(seen, steps, protocol) {
        let text = format!("{} to {} {}", three_digits(debt.start), three_digits(debt.end), debt.unit);
        facts.push((format!("debt/{}", debt.name), text));
    }
    for cost in &seen.costs {
        let text = format!(
            "{:.2} ms cpu a pass, {:.1} ms at most by the clock",
            1e3 * cost.cpu_s / f64::from(cost.passes.max(1)),
            cost.pass_ms_max
        );
        facts.push((format!("sampler_cost/{}", cost.sampler), text));
    }
    if seen.duration_s >= 1.0 {
        facts
            .push(("sampler_cost_share".to_owned(), format!("{:.2} % of a core", 100.0 * seen.cost_share())));
    }
    facts.extend(seen.missing.iter().map(|m| (format!("not measured/{}", m.what), m.why.clone())));
    facts
}

/// TPS of the whole seconds of the measured phase.
fn tps(step: &store::Step) -> Vec<f64> {
    step.whole_seconds().map(|second| second.committed as f64 / second.duration_s).collect()
}

/// p95 of the same seconds in ms; `None` where one of them has too few transactions for it.
fn p95_ms(step: &store::Step) -> Option<Vec<f64>> {
    let of = |second: &store::Second| {
        let response = second.response.as_ref()?;
        (response.count >= stats::quantile_needs(0.95)).then_some(response.p95)
    };
    step.whole_seconds().map(of).collect()
}

/// Percentiles wander more than throughput does without meaning anything.
const P95_STEADY: stats::SteadyRules =
    stats::SteadyRules { slope_share_min: 0.30, level_share_min: 0.40, ..stats::SteadyRules::DEFAULT };

/// Every gate that the samplers serve, of each level.
fn judge(seen: &Telemetry, steps: &[store::Step], known: &Known) -> Vec<store::Gate> {
    let Known { canary_ratio, resident, limits, protocol, .. } = known;
    let (canary_ratio, protocol) = (*canary_ratio, *protocol);
    let mut found = Vec::new();
    for step in steps {
        let level = (steps.len() > 1).then_some(step.sessions);
        let window = (step.offset_s, step.offset_s + step.duration_s);
        let between = |source: &str, name: &str| {
            seen.track(source, name).map(|t| t.shown_between(window.0, window.1)).unwrap_or_default()
        };
        let grown =
            |name: &str| seen.track("host", name).and_then(|track| track.increase(window.0, window.1));
        let steady = stats::steadiness(&tps(step), &stats::SteadyRules::default());
        let p95 = p95_ms(step).map(|p95_ms| stats::steadiness(&p95_ms, &P95_STEADY));
        let failed = step.outcomes.failed();
        let of_step = [
            gates::not_steady(&steady, p95.as_ref()),
            gates::debt_growing(&debts(seen, window, protocol)),
            gates::noisy_host(&noise(seen, window, canary_ratio)),
            gates::swapping(grown("swapped_in"), grown("swapped_out")),
            gates::errors(failed, step.outcomes.started(), 0.01),
            gates::cpu_frequency(&between("host", "cpu_frequency_mhz"), grown("throttled")),
        ];
        let warm = resident.is_none().then(|| {
            let of = |name: &str| between("server", name);
            gates::cache_warm(&of("buffer_reads"), &of("buffer_read_requests"), &of("buffer_data_bytes"))
        });
        let limited = device_limits(limits, seen, window);
        let of_place = (!limited.is_empty()).then(|| gates::storage_limit(&limited));
        found.extend(of_step.into_iter().chain(warm).chain(of_place).map(|gate| stored(&gate, level)));
    }
    if let (Some(files), Some(first)) = (resident, steps.first()) {
        let load_began_s = first.offset_s - first.warmup_s;
        let sampled = seen.track("server", "buffer_data_bytes").and_then(|track| track.points.first());
        let buffer_bytes = sampled.filter(|(t, _)| *t < load_began_s + 0.2).map(|(_, bytes)| *bytes);
        found.push(stored(&gates::cache_cold(&ColdStart { files: files.clone(), buffer_bytes }), None));
    }
    let started = seen.track("process", "started");
    found.push(stored(&gates::server_restarted(started, seen.track("server", "started_unix_s")), None));
    found
}

/// The limits on the device under the data directory, each with what went through it.
fn device_limits(limits: &sandbox::Limits, seen: &Telemetry, (from, to): (f64, f64)) -> Vec<DeviceLimit> {
    let limit = |what: &'static str, track: &str, allowed: Option<u64>| {
        let grown = seen.track("device", track).and_then(|track| track.increase(from, to));
        let seen = grown.map(|grown| grown / (to - from).max(1e-9));
        Some(DeviceLimit { what, allowed: allowed? as f64, seen })
    };
    [
        limit("bytes read", "read_bytes", limits.read_bytes_per_s),
        limit("bytes written", "written_bytes", limits.write_bytes_per_s),
        limit("reads", "reads", limits.read_iops),
        limit("writes", "writes", limits.write_iops),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Where a server begins to pay for a debt that it has no own limit of: transactions that purge is behind.
const HISTORY_LIMIT: f64 = 500_000.0;

/// The debts that a server of this protocol has; each that could not be seen with the reason. Without a server there are
/// none.
fn debts(
    seen: &Telemetry,
    (from, to): (f64, f64),
    protocol: Option<Protocol>,
) -> Vec<Result<Debt, UnseenDebt>> {
    let values =
        |name: &str| seen.track("server", name).map(|t| t.shown_between(from, to)).unwrap_or_default();
    let last = |name: &str| values(name).last().copied();
    let debt = |name: &'static str, unit: &'static str, factor: f64, series: &str, limit: Option<f64>| {
        let debt = Debt::of(name, unit, factor, &values(series), limit);
        // Where it has no series at all, the sampler may know why.
        let why = seen.missing.iter().find(|missing| missing.what.contains(name));
        let why = why.or_else(|| seen.missing.iter().find(|missing| missing.what == "server counters"));
        debt.map_err(|unseen| match why.filter(|_| seen.track("server", series).is_none()) {
            Some(missing) => UnseenDebt { why: format!("was not sampled ({})", missing.why), ..unseen },
            None => unseen,
        })
    };
    let mb = 1e-6;
    match protocol {
        None => Vec::new(),
        Some(Protocol::Mysql) => {
            let age_limit = last("checkpoint_age_limit_bytes").map(|b| b * mb);
            let pages_limit = last("buffer_bytes").map(|b| 0.9 * b * mb);
            vec![
                debt("checkpoint age", "MB", mb, "checkpoint_age_bytes", age_limit),
                debt("dirty pages", "MB", mb, "dirty_bytes", pages_limit),
                debt("history list", "transactions", 1.0, "history_list_length", Some(HISTORY_LIMIT)),
            ]
        }
        // PostgreSQL starts a checkpoint by itself well before its limit, so its age is no debt that grows unseen.
        Some(Protocol::Postgres) => {
            let dead_limit = last("live_tuples").map(|rows| (0.4 * rows).max(10_000.0));
            vec![debt("dead tuples", "rows", 1.0, "dead_tuples", dead_limit)]
        }
    }
}

/// From the first step's beginning to the last one's end.
fn debts_of_run(seen: &Telemetry, steps: &[store::Step], protocol: Option<Protocol>) -> Vec<Debt> {
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return Vec::new() };
    debts(seen, (first.offset_s, last.offset_s + last.duration_s), protocol).into_iter().flatten().collect()
}

/// A climb's levels follow each other in one server life, as a load does that grows, and what one puts off is there for
/// the next: growth is judged within each level, and a level that began deep in debt is told.
fn inherited_debts(seen: &Telemetry, steps: &[store::Step], protocol: Option<Protocol>) -> Vec<String> {
    let of = |step: &store::Step| -> Vec<Debt> {
        let window = (step.offset_s, step.offset_s + step.duration_s);
        debts(seen, window, protocol).into_iter().flatten().collect()
    };
    let Some((first, rest)) = steps.split_first() else { return Vec::new() };
    let at_first = of(first);
    let mut told = Vec::new();
    for step in rest {
        for debt in of(step).iter().filter(|debt| debt.start > 0.5 * debt.limit) {
            let before = at_first.iter().find(|known| known.name == debt.name).map_or(0.0, |d| d.start);
            if before < 0.25 * debt.limit {
                told.push(format!(
                    "{} began with {} of {:.0} {} that earlier levels of the climb left (limit {:.0}): \
                     measure that level in runs of its own (sessions instead of climb) to see it without",
                    store::counted(step.sessions, "session"),
                    debt.name,
                    debt.start,
                    debt.unit,
                    debt.limit
                ));
            }
        }
    }
    told
}

fn noise(seen: &Telemetry, (from, to): (f64, f64), canary_ratio: Option<f64>) -> Noise {
    let cpu = |source: &str, names: &[&str]| -> Option<f64> {
        names.iter().map(|name| seen.track(source, name)?.increase(from, to)).sum()
    };
    // Affinity and quota of this process, which its children have too; what is elsewhere has others.
    let here = std::thread::available_parallelism().map_or(f64::INFINITY, |n| n.get() as f64);
    let cpus = if seen.is_elsewhere { f64::INFINITY } else { here };
    let allowed_s = (to - from).max(0.0) * cpus;
    let replicas_s: f64 = seen
        .tracks
        .iter()
        .filter(|track| track.source == "replica" && track.name.starts_with("cpu_"))
        .filter_map(|track| track.increase(from, to))
        .sum();
    // Without the server's own figure (an attached server on this machine) everything would look foreign.
    let own_s = cpu("process", &["cpu_user", "cpu_system"])
        .zip(if seen.is_elsewhere { Some(0.0) } else { cpu("client", &["cpu_user", "cpu_system"]) })
        .map(|(server_s, client_s)| server_s + client_s + replicas_s);
    Noise {
        there_s: cpu("host", &["cpu_there"]).map_or(allowed_s, |there_s| there_s.min(allowed_s)),
        busy_s: cpu("host", &["cpu_busy"]),
        low_priority_s: cpu("host", &["cpu_low_priority"]).unwrap_or(0.0),
        own_s,
        stolen_s: cpu("host", &["cpu_steal"]).unwrap_or(0.0),
        busiest: seen.busiest_foreign.clone(),
        canary_ratio,
    }
}

fn quantity(name: &str, value: Option<f64>, unit: &str) -> Option<store::Quantity> {
    Some(store::Quantity { name: name.to_owned(), value: value?, unit: unit.to_owned() })
}

/// Where the canary looks at the disk: label of a place, and its directory.
pub(crate) type Places = BTreeMap<String, PathBuf>;

/// Runs the canary in all places, and says how fast the machine is at each against the study's other canaries.
pub(crate) fn canary(
    places: &Places,
    block: u32,
    when: &str,
    others: &[store::Canary],
) -> (store::Canary, BTreeMap<String, f64>) {
    let dirs: Vec<&Path> = places.values().map(PathBuf::as_path).collect();
    let results = canary::canary(&dirs, canary::CanaryLength::default());
    let measured_at_ms = load::time::unix_ms();
    let mut figures = Vec::new();
    let mut ratios = BTreeMap::new();
    for (place, result) in places.keys().zip(&results) {
        let disk = if place == "default" { "disk_syncs".to_owned() } else { format!("disk_syncs/{place}") };
        if figures.is_empty() {
            figures.push(quantity("cpu_loops", Some(result.cpu_loops_per_s), "1/s"));
        }
        figures.push(quantity(&disk, result.disk_syncs_per_s, "1/s"));
        let of = |canary: &store::Canary, name: &str| {
            canary.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
        };
        let others = others.iter().filter_map(|other| {
            let cpu_loops_per_s = of(other, "cpu_loops")?;
            Some(canary::CanaryResult { cpu_loops_per_s, disk_syncs_per_s: of(other, &disk) })
        });
        let ratio = canary::ratio_to_others(result, &others.collect::<Vec<_>>());
        ratios.extend(ratio.map(|ratio| (place.clone(), ratio)));
    }
    let figures = figures.into_iter().flatten().collect();
    (store::Canary { block, when: when.to_owned(), measured_at_ms, figures }, ratios)
}

/// What the device under `dir` can do, kept in `cache` by device.
///
/// # Errors
/// The directory cannot be written.
pub fn storage_probe(place: &str, dir: &Path, cache: &Path, refresh: bool) -> std::io::Result<store::Probe> {
    // The home's own; any other place is there, or its study was refused.
    std::fs::create_dir_all(dir)?;
    let options =
        probe::ProbeOptions { cache: Some(cache.to_owned()), refresh, ..probe::ProbeOptions::default() };
    let result = probe::probe(dir, &options)?;
    let figures = [
        quantity("sequential_write", result.sequential_write_mb_s, "MB/s"),
        quantity("sequential_read", result.sequential_read_mb_s, "MB/s"),
        quantity("random_read_4k", result.random_read_iops, "1/s"),
        quantity("random_write_4k", result.random_write_iops, "1/s"),
        quantity("append_sync_p50", result.append_sync_us_p50, "us"),
        quantity("append_sync_p99", result.append_sync_us_p99, "us"),
    ];
    let mut facts: BTreeMap<String, String> = result.facts.into_iter().collect();
    facts.insert("device".to_owned(), result.device);
    if !result.notes.is_empty() {
        facts.insert("notes".to_owned(), result.notes.join("; "));
    }
    Ok(store::Probe {
        place: place.to_owned(),
        path: dir.display().to_string(),
        facts,
        tool: result.tool,
        measured_at_ms: i64::try_from(result.measured_at_s).unwrap_or(0) * 1000,
        figures: figures.into_iter().flatten().collect(),
    })
}

/// What stands in for the probe of a place that is mounted for each sandbox.
pub(crate) fn memory_probe(place: &str) -> store::Probe {
    let why = "memory, mounted for each sandbox: there is no device to probe, and a sync costs nothing";
    store::Probe {
        place: place.to_owned(),
        path: "tmpfs".to_owned(),
        facts: [("filesystem".to_owned(), "tmpfs".to_owned()), ("notes".to_owned(), why.to_owned())].into(),
        tool: "not probed".to_owned(),
        measured_at_ms: load::time::unix_ms(),
        figures: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown() {
        assert_eq!(three_digits(1234.5), "1234");
        assert_eq!(three_digits(12.345), "12.3");
        assert_eq!(three_digits(0.012_345), "0.0123");
        assert_eq!(three_digits(0.0), "0");
    }

    #[test]
    fn the_slower_canary_is_told_against_the_others() {
        let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let places = [("default", &dir), ("nvme", &other)];
        let places = places.map(|(label, dir)| (label.to_owned(), dir.path().to_owned())).into();
        let (first, ratios) = canary(&places, 1, "before", &[]);
        assert_eq!(ratios, BTreeMap::new());
        let names: Vec<&str> = first.figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["cpu_loops", "disk_syncs", "disk_syncs/nvme"]);
        let (_, ratios) = canary(&places, 1, "after", &[first]);
        assert!(ratios["default"] > 0.0 && ratios["nvme"] > 0.0);
    }
}
