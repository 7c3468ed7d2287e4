//! The set of samplers of one run. They tick when the load's second ends, so that their series share its time axis;
//! each measures its own cost.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{JoinHandle, spawn};
use std::time::Instant;

use wire::Target;

use crate::agent::{self, Agent};
use crate::foreign::{Foreign, ForeignProcess};
use crate::host::HostSampler;
use crate::metrics::Metrics;
use crate::process::ProcessSampler;
use crate::replication::{Replica, Replication};
use crate::server::ServerSampler;
use crate::track::{Track, Tracks};

/// Something that could not be measured, and why. Never an error of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub what: String,
    /// Why, with what to do about it.
    pub why: String,
}

impl Missing {
    pub fn new(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { what: what.into(), why: why.into() }
    }
}

#[derive(Debug, Clone)]
pub struct Config {
    /// Zero of all times in series: the start of the run.
    pub epoch: Instant,
    /// The server's process; `None` for an attached server elsewhere.
    pub server_pid: Option<u32>,
    /// Processes that apply the load together with this one.
    pub client_pids: Vec<u32>,
    /// The server's data directory: decides which device is watched.
    pub datadir: Option<PathBuf>,
    /// Where to ask the server's counters.
    pub target: Option<Target>,
    /// The server's replicas, which are on this machine, too.
    pub replicas: Vec<Replica>,
    /// Where to show the latest values while the run goes on.
    pub metrics: Option<Metrics>,
    /// Looks at host and server process on the machine that the server is on, where that is another one.
    pub agent: Option<Agent>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cost {
    /// `host`, `process`, `client`, `server`, `replica`.
    pub sampler: &'static str,
    pub passes: u32,
    /// CPU seconds of this process spent on them.
    pub cpu_s: f64,
    /// Longest pass by the clock, in ms; for `server` that includes the server's time to answer.
    pub pass_ms_max: f64,
    /// Mean pass by the clock, in ms.
    pub pass_ms_mean: f64,
}

/// Everything that was sampled.
#[derive(Debug, Default, Clone)]
pub struct Telemetry {
    /// Series, raw.
    pub tracks: Vec<Track>,
    pub costs: Vec<Cost>,
    /// What could not be measured.
    pub missing: Vec<Missing>,
    /// From the first to the last sample, in seconds.
    pub duration_s: f64,
    /// The process beside server and client that used most cpu meanwhile; `None` where none did to speak of, or the
    /// server's process is not known.
    pub busiest_foreign: Option<ForeignProcess>,
    /// Host and server process are another machine's than the client's.
    pub is_elsewhere: bool,
}

impl Telemetry {
    /// The track of a source and name; of several instances, the one without a name, else the first.
    pub fn track(&self, source: &str, name: &str) -> Option<&Track> {
        let mut of_name = self.tracks.iter().filter(|t| t.source == source && t.name == name);
        let first = of_name.clone().next()?;
        Some(of_name.find(|t| t.instance.is_empty()).unwrap_or(first))
    }

    /// What was seen in the windows alone, as one span ([`Track::spliced`]).
    #[must_use]
    pub fn spliced(&self, windows: &[(f64, f64)]) -> Telemetry {
        let tracks = self.tracks.iter().map(|track| track.spliced(windows)).collect();
        Telemetry { tracks, ..self.clone() }
    }

    /// CPU of all samplers together, as a share of one core.
    pub fn cost_share(&self) -> f64 {
        self.costs.iter().map(|c| c.cpu_s).sum::<f64>() / self.duration_s.max(1e-9)
    }
}

/// Samplers at work, on two threads: a server that answers slowly must not delay the look at the machine. Replicas have a
/// third one.
#[derive(Debug)]
pub struct Sampler {
    ticks: Vec<Sender<f64>>,
    threads: Vec<JoinHandle<Telemetry>>,
    /// Of each thread. A sampler holds them while it takes a sample.
    tracks: Vec<Arc<Mutex<Tracks>>>,
    epoch: Instant,
}

fn lock(tracks: &Mutex<Tracks>) -> MutexGuard<'_, Tracks> {
    tracks.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Sampler {
    /// Starts them and takes a first sample.
    pub fn start(config: &Config) -> Self {
        let (ticks, threads, tracks) = (Vec::new(), Vec::new(), Vec::new());
        let mut sampler = Self { ticks, threads, tracks, epoch: config.epoch };
        let system = config.clone();
        match config.agent.clone() {
            None => sampler.begin(move |ticks, tracks| sample_system(&system, ticks, tracks)),
            Some(agent) => {
                sampler.begin(move |ticks, tracks| sample_client(&system, ticks, tracks));
                sampler.begin(move |ticks, tracks| sample_elsewhere(&agent, ticks, tracks));
            }
        }
        if let Some(target) = config.target.clone() {
            let metrics = config.metrics.clone();
            sampler.begin(move |ticks, tracks| sample_server(&target, metrics.as_ref(), ticks, tracks));
        }
        if let Some(target) = config.target.clone().filter(|_| !config.replicas.is_empty()) {
            let (replicas, metrics) = (config.replicas.clone(), config.metrics.clone());
            sampler.begin(move |ticks, tracks| {
                sample_replicas(&target, &replicas, metrics.as_ref(), ticks, tracks)
            });
        }
        sampler.tick();
        sampler
    }

    fn begin(&mut self, sample: impl FnOnce(&Receiver<f64>, &Mutex<Tracks>) -> Telemetry + Send + 'static) {
        let (sender, receiver) = channel();
        let tracks = Arc::new(Mutex::new(Tracks::default()));
        self.ticks.push(sender);
        self.tracks.push(tracks.clone());
        self.threads.push(spawn(move || sample(&receiver, &tracks)));
    }

    /// A level begins or ends in `seconds` from now.
    pub fn edge(&self, seconds: f64) {
        let t = self.epoch.elapsed().as_secs_f64() + seconds;
        self.tracks.iter().for_each(|tracks| lock(tracks).edge(t));
    }

    /// What the tracks have shown since the last call, to be kept elsewhere: tracks with the values that charts show.
    pub fn take_shown(&self) -> Vec<Track> {
        self.tracks.iter().flat_map(|tracks| lock(tracks).take_shown()).collect()
    }

    /// Takes a sample now. Returns at once; a sampler that is still busy with an earlier tick skips to the latest.
    pub fn tick(&self) {
        let t = self.epoch.elapsed().as_secs_f64();
        for sender in &self.ticks {
            // A sampler that has ended has nothing more to say.
            let _ = sender.send(t);
        }
    }

    /// Takes a last sample and collects everything, with what [`Sampler::take_shown`] has not given yet.
    pub fn stop(self) -> (Telemetry, Vec<Track>) {
        self.tick();
        drop(self.ticks);
        let mut all = Telemetry::default();
        for thread in self.threads {
            let Ok(part) = thread.join() else {
                all.missing.push(Missing::new("a sampler", "it panicked; its series are lost"));
                continue;
            };
            all.costs.extend(part.costs);
            all.missing.extend(part.missing);
            all.duration_s = all.duration_s.max(part.duration_s);
            all.busiest_foreign = all.busiest_foreign.or(part.busiest_foreign);
            all.is_elsewhere |= part.is_elsewhere;
        }
        let mut rest = Vec::new();
        for tracks in self.tracks {
            let mut tracks = std::mem::take(&mut *lock(&tracks));
            rest.extend(tracks.take_shown());
            all.tracks.extend(tracks.into_vec());
        }
        (all, rest)
    }
}

/// Ticks as they come, the latest of those waiting; ends when the sender is dropped.
fn latest(ticks: &Receiver<f64>) -> Option<f64> {
    let mut t = ticks.recv().ok()?;
    while let Ok(later) = ticks.try_recv() {
        t = later;
    }
    Some(t)
}

/// Adds up the cost of passes.
#[derive(Debug)]
struct Meter {
    sampler: &'static str,
    passes: u32,
    cpu_s: f64,
    wall_s: f64,
    wall_max_s: f64,
}

impl Meter {
    fn new(sampler: &'static str) -> Self {
        Self { sampler, passes: 0, cpu_s: 0.0, wall_s: 0.0, wall_max_s: 0.0 }
    }

    fn measure(&mut self, pass: impl FnOnce()) {
        let (cpu, wall) = (thread_cpu_s(), Instant::now());
        pass();
        let took = wall.elapsed().as_secs_f64();
        self.passes += 1;
        self.cpu_s += thread_cpu_s() - cpu;
        self.wall_s += took;
        self.wall_max_s = self.wall_max_s.max(took);
    }

    fn cost(&self) -> Cost {
        Cost {
            sampler: self.sampler,
            passes: self.passes,
            cpu_s: self.cpu_s,
            pass_ms_max: 1e3 * self.wall_max_s,
            pass_ms_mean: 1e3 * self.wall_s / f64::from(self.passes.max(1)),
        }
    }
}

/// The samplers of a machine, a server's process tree and its replicas'.
pub(crate) struct System {
    host: HostSampler,
    server: Option<ProcessSampler>,
    replicas: Vec<ProcessSampler>,
    foreign: Option<Foreign>,
    missing: Vec<Missing>,
    meters: [Meter; 2],
}

impl System {
    pub(crate) fn new(server_pid: Option<u32>, datadir: Option<&Path>, replicas: &[Replica]) -> System {
        let (host, mut missing) = HostSampler::new(datadir, server_pid);
        let server = server_pid.map(|pid| {
            let (sampler, lacks) = ProcessSampler::server(pid);
            missing.extend(lacks);
            sampler
        });
        if server.is_none() {
            let why = "the server's process is not known: it runs elsewhere or is not ours";
            missing.push(Missing::new("cpu, memory and switches of the server", why));
        }
        let of_replica = |replica: &Replica| Some(ProcessSampler::replica(replica.pid?, &replica.name));
        let pids = server_pid.into_iter().chain(replicas.iter().filter_map(|replica| replica.pid));
        System {
            host,
            server,
            replicas: replicas.iter().filter_map(of_replica).collect(),
            foreign: server_pid.map(|_| Foreign::look(&pids.collect::<Vec<_>>())),
            missing,
            meters: [Meter::new("host"), Meter::new("process")],
        }
    }

    pub(crate) fn sample(&mut self, t: f64, tracks: &mut Tracks) {
        let System { host, server, replicas, meters, .. } = self;
        meters[0].measure(|| host.sample(t, tracks));
        for process in server.iter_mut().chain(replicas) {
            meters[1].measure(|| process.sample(t, tracks));
        }
    }

    /// All but the tracks.
    pub(crate) fn end(self) -> Telemetry {
        Telemetry {
            costs: self.meters.iter().filter(|meter| meter.passes > 0).map(Meter::cost).collect(),
            missing: self.missing,
            busiest_foreign: self.foreign.and_then(Foreign::busiest),
            ..Telemetry::default()
        }
    }
}

/// What the threads return has no tracks: these are shared.
fn sample_system(config: &Config, ticks: &Receiver<f64>, tracks: &Mutex<Tracks>) -> Telemetry {
    let mut system = System::new(config.server_pid, config.datadir.as_deref(), &config.replicas);
    let of_client = sample_client_with(config, ticks, tracks, |t, tracks| system.sample(t, tracks));
    let seen = system.end();
    let costs = [seen.costs, of_client.costs].concat();
    Telemetry { duration_s: of_client.duration_s, costs, ..seen }
}

fn sample_client(config: &Config, ticks: &Receiver<f64>, tracks: &Mutex<Tracks>) -> Telemetry {
    sample_client_with(config, ticks, tracks, |_, _| ())
}

/// This process, and what else is sampled before it.
fn sample_client_with(
    config: &Config,
    ticks: &Receiver<f64>,
    tracks: &Mutex<Tracks>,
    mut before: impl FnMut(f64, &mut Tracks),
) -> Telemetry {
    let mut client = ProcessSampler::client(&config.client_pids);
    let mut meter = Meter::new("client");
    let mut span: Option<(f64, f64)> = None;
    while let Some(t) = latest(ticks) {
        span = Some((span.map_or(t, |s| s.0), t));
        let mut tracks = lock(tracks);
        before(t, &mut tracks);
        meter.measure(|| client.sample(t, &mut tracks));
        if let Some(metrics) = &config.metrics {
            metrics.set_all(tracks.as_slice());
        }
    }
    Telemetry {
        costs: vec![meter.cost()],
        duration_s: span.map_or(0.0, |s| s.1 - s.0),
        ..Telemetry::default()
    }
}

/// Host and server process as the agent there sees them.
fn sample_elsewhere(agent: &Agent, ticks: &Receiver<f64>, tracks: &Mutex<Tracks>) -> Telemetry {
    let lost = |why: String| Telemetry {
        missing: vec![Missing::new("host and process of the server from then on", why)],
        is_elsewhere: true,
        ..Telemetry::default()
    };
    let mut open = match agent::Open::start(agent) {
        Ok(open) => open,
        Err(why) => return lost(why),
    };
    while let Some(t) = latest(ticks) {
        if let Err(why) = open.sample(t, tracks) {
            return lost(format!("its agent {why}"));
        }
    }
    open.end().unwrap_or_else(|why| lost(format!("its agent {why}")))
}

fn sample_server(
    target: &Target,
    metrics: Option<&Metrics>,
    ticks: &Receiver<f64>,
    tracks: &Mutex<Tracks>,
) -> Telemetry {
    let mut sampler = ServerSampler::new(target);
    let mut meter = Meter::new("server");
    let mut span: Option<(f64, f64)> = None;
    while let Some(t) = latest(ticks) {
        span = Some((span.map_or(t, |s| s.0), t));
        let mut tracks = lock(tracks);
        meter.measure(|| sampler.sample(t, &mut tracks));
        if let Some(metrics) = metrics {
            metrics.set_all(tracks.as_slice());
        }
    }
    let missing = std::mem::take(&mut sampler.missing);
    sampler.close();
    Telemetry {
        tracks: Vec::new(),
        costs: vec![meter.cost()],
        missing,
        duration_s: span.map_or(0.0, |s| s.1 - s.0),
        ..Telemetry::default()
    }
}

fn sample_replicas(
    primary: &Target,
    replicas: &[Replica],
    metrics: Option<&Metrics>,
    ticks: &Receiver<f64>,
    tracks: &Mutex<Tracks>,
) -> Telemetry {
    let mut replication = None;
    let mut meter = Meter::new("replica");
    let mut span: Option<(f64, f64)> = None;
    let mut why: Option<String> = None;
    while let Some(t) = latest(ticks) {
        span = Some((span.map_or(t, |s| s.0), t));
        let mut tracks = lock(tracks);
        meter.measure(|| {
            let looked = match replication.take() {
                Some(open) => Ok(open),
                None => Replication::open(primary, replicas),
            };
            let looked = looked.and_then(|mut open| Ok((open.look(t)?, open)));
            match looked {
                Ok((all, open)) => {
                    for (replica, standing) in replicas.iter().zip(all) {
                        let name = replica.name.as_str();
                        tracks.gauge(t, "replica", "lag", name, "s", standing.lag_s);
                        tracks.gauge(t, "replica", "lag_bytes", name, "B", standing.lag_bytes as f64);
                    }
                    replication = Some(open);
                }
                Err(error) => why = Some(error.to_string()),
            }
        });
        if let Some(metrics) = metrics {
            metrics.set_all(tracks.as_slice());
        }
    }
    if let Some(open) = replication {
        open.close();
    }
    Telemetry {
        costs: vec![meter.cost()],
        missing: why.map(|why| Missing::new("lag of replicas in some seconds", why)).into_iter().collect(),
        duration_s: span.map_or(0.0, |s| s.1 - s.0),
        ..Telemetry::default()
    }
}

/// CPU time of the calling thread in seconds (CLOCK_THREAD_CPUTIME_ID).
fn thread_cpu_s() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the length of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ticks_give_series_costs_and_reasons() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = Metrics::default();
        let config = Config {
            epoch: Instant::now(),
            server_pid: Some(std::process::id()),
            client_pids: Vec::new(),
            datadir: Some(dir.path().to_owned()),
            target: Some(Target::parse("mysql://root@127.0.0.1:1/x").unwrap()),
            replicas: Vec::new(),
            metrics: Some(metrics.clone()),
            agent: None,
        };
        let sampler = Sampler::start(&config);
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(30));
            sampler.tick();
        }
        let (telemetry, shown) = sampler.stop();
        // Rates need more time between two samples.
        assert!(shown.iter().any(|track| track.kind == crate::Kind::Gauge && track.points.len() >= 2));
        let busy = telemetry.track("process", "cpu_user").unwrap();
        assert!(busy.points.len() >= 2 && busy.points.windows(2).all(|w| w[0].0 < w[1].0));
        assert!(telemetry.costs.iter().any(|c| c.sampler == "host" && c.passes >= 2 && c.cpu_s > 0.0));
        assert!(telemetry.missing.iter().any(|m| m.what == "server counters"), "{:?}", telemetry.missing);
        assert!(telemetry.cost_share() > 0.0);
        assert!(metrics.text().contains("plimsoll_process_cpu_user_seconds_total"));
    }

    #[test]
    fn nothing_to_sample_is_said() {
        let config = Config {
            epoch: Instant::now(),
            server_pid: None,
            client_pids: Vec::new(),
            datadir: None,
            target: None,
            replicas: Vec::new(),
            metrics: None,
            agent: None,
        };
        let (telemetry, _) = Sampler::start(&config).stop();
        assert!(telemetry.missing.iter().any(|m| m.what.starts_with("cpu, memory")));
        assert!(telemetry.track("process", "cpu_user").is_none());
    }
}
