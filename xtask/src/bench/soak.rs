//! Memory of a run of a week: the engine by a simulated clock, what it tells recorded as a study does, and as many series
//! as the samplers of a MariaDB server have. Nothing is drawn; afterwards the run is read back as a report reads it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use lab::progress::{Detail, Progress};
use load::{
    AnySession, Clock, Completion, Event, Failure, Length, LoadPlan, Recorder, Session, SessionFactory, Stop,
    time,
};
use store::{Key, RunEnd, RunStart, Series, Status, Store, Study};
use telemetry::Tracks;
use wire::StatementKind;

use super::lab::{closed, resident_kib};
use super::told;

const SESSIONS: u32 = 8;
/// As many as oltp_read_write has.
const CLASSES: usize = 11;
/// More than the samplers of any server have here.
const SERIES: usize = 200;
const MB_MAX: f64 = 200.0;
/// The simulated clock waits for the observer, as a second waits for the next one: so far it may be ahead.
const AHEAD_S: i64 = 3;

#[derive(clap::Parser)]
struct Asked {
    #[arg(long, default_value_t = 7)]
    days: u64,
}

pub(super) fn run(arguments: &[&str]) -> Result<bool> {
    let Asked { days } = crate::asked("bench soak", arguments);
    let folder = tempfile::tempdir()?;
    let mut store = Store::open(folder.path())?;
    let id = begin(&mut store)?;
    let before_mb = resident_mb()?;
    let mut progress = Progress::new(Detail::Recorded(&mut store, id));
    let (mut peak_mb, mut after_an_hour_mb) = (before_mb, 0.0f64);
    let mut tracks = Tracks::default();
    let seen = Arc::new(AtomicI64::new(0));
    let mut failed = None;
    let mut observer = |event: Event<'_>| {
        if let Event::Interval { interval, .. } = event {
            sample(&mut tracks, interval.second);
        }
        let passed_on = progress.event(&event, || tracks.take_shown().into_iter().map(series).collect());
        let Event::Interval { interval, .. } = event else { return };
        match passed_on {
            Ok(false) => {}
            Ok(true) => {
                peak_mb = peak_mb.max(resident_mb().unwrap_or(f64::INFINITY));
                if interval.second <= 3600 {
                    after_an_hour_mb = peak_mb;
                }
            }
            Err(error) => {
                failed.get_or_insert(error);
            }
        }
        seen.store(interval.second, Ordering::Relaxed);
    };
    let step = closed(SESSIONS, 0, Length::Time(Duration::from_secs(days * 86_400)));
    let plan = LoadPlan { steps: vec![step], workers: Some(1), ..LoadPlan::default() };
    let factory = Factory { seen: seen.clone() };
    let result = load::run_with_clock(&plan, &factory, &mut observer, &Stop::new(), Clock::Simulated)?;
    if let Some(error) = failed {
        return Err(error.into());
    }
    let steps = progress.steps(&plan.steps, &result, &[0.0]);
    let rest = tracks.take_shown().into_iter().map(series).collect();
    drop((progress, tracks));
    store.finish_run(id, &RunEnd { steps, series: rest, ..RunEnd::new(Status::Done, 0) })?;
    peak_mb = peak_mb.max(resident_mb()?);
    let read = store.run(id)?.end.context("it was recorded")?;
    let read_mb = resident_mb()?;
    let seconds = read.steps[0].seconds.len() as u64;
    let per_day_mb = (peak_mb - after_an_hour_mb) / days as f64;
    println!("{days} days, {seconds} seconds recorded, {} transactions", result.steps[0].outcomes.committed);
    println!("at its start      {before_mb:.1} MB resident");
    println!("after an hour     {after_an_hour_mb:.1} MB");
    println!("at most           {peak_mb:.1} MB (below {MB_MAX:.0}), {per_day_mb:.1} MB more a day");
    println!("read back as well {read_mb:.1} MB");
    let is_reached = peak_mb < MB_MAX && seconds == days * 86_400;
    told(is_reached)
}

fn begin(store: &mut Store) -> Result<store::RunId> {
    let study = store.add_study(&Study {
        name: "soak".to_owned(),
        title: String::new(),
        question: String::new(),
        file_path: String::new(),
        file_text: String::new(),
        file_sha256: String::new(),
        fingerprint: "soak".to_owned(),
        plan: serde_json::Value::Null,
        axes: Vec::new(),
        comparisons: Vec::new(),
        blocks: 1,
        runs: 1,
        is_quick: false,
        seed: 1,
        plimsoll_version: String::new(),
        command: String::new(),
        created_at_ms: 0,
    })?;
    let host = store.add_host(&lab::host::facts())?;
    let start = RunStart { host, ..RunStart::new(Key::new(), vec![SESSIONS], 1, 0) };
    Ok(store.begin_run(study, &start)?)
}

fn resident_mb() -> Result<f64> {
    Ok(resident_kib(std::process::id())? as f64 * 1024e-6)
}

/// A second of the samplers: half of them counters.
fn sample(tracks: &mut Tracks, second: i64) {
    let t = second as f64;
    for number in 0..SERIES {
        let instance = number.to_string();
        let value = t * number as f64 + f64::from(second as i32 % 7);
        if number % 2 == 0 {
            tracks.counter(t, "server", "made_up", &instance, "B", value);
        } else {
            tracks.gauge(t, "server", "made_up", &instance, "B", value);
        }
    }
}

fn series(track: telemetry::Track) -> Series {
    Series {
        source: track.source.to_owned(),
        name: track.name.to_owned(),
        unit: track.shown_unit(),
        instance: track.instance,
        points: track.points,
    }
}

struct Factory {
    seen: Arc<AtomicI64>,
}

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        (0..CLASSES).map(|class| format!("class {class}")).collect()
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        let began = time::now();
        Box::new(Sleeping { seen: self.seen.clone(), began, state: u64::from(index) + 1 })
    }
}

/// Its statements take from 1 to 30 ms.
struct Sleeping {
    seen: Arc<AtomicI64>,
    began: time::Moment,
    state: u64,
}

impl Session for Sleeping {
    async fn open(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        while (time::now() - self.began).as_secs() as i64 > self.seen.load(Ordering::Relaxed) + AHEAD_S {
            std::thread::sleep(Duration::from_micros(50));
        }
        for class in 0..CLASSES {
            // Knuth's constants of a linear congruential generator: any noise serves.
            self.state =
                self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            time::sleep(Duration::from_micros(1_000 + (self.state >> 33) % 29_000)).await;
            recorder.lap(class, StatementKind::Read);
        }
        Ok(Completion::Committed)
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&mut self) {}
}
