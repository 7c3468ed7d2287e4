//! Runs that other command lines made (`plimsoll sysbench`), as records: the same types as those of `run` and `bench`,
//! so that the report treats them alike.

use std::collections::BTreeMap;
use std::path::Path;

use load::LoadResult;
use store::{Key, LatencyUnit, RunEnd, RunStart, ServerFacts, Status, Store, Study, StudyId, WorkloadFacts};
use wire::Target;

use crate::described::{describe, engine_of, reported_settings};
use crate::error::Error;
use crate::judge;
use crate::on_server::add_options;
use crate::progress::Detail;
use crate::recording::Recording;
use crate::subject::attached_name;
use crate::watch;

/// What such a command line has run.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    pub workload: &'a str,
    /// Every option with its value, without secrets.
    pub options: &'a BTreeMap<String, String>,
    /// The options that the user gave and that change what is measured: they tell cells apart, as axes do.
    pub given: &'a BTreeMap<String, String>,
    /// The server that is described; `None` where there was none.
    pub target: Option<&'a Target>,
    pub planned: &'a load::Step,
    pub load: &'a LoadResult,
    /// Of everything random.
    pub seed: u64,
    /// When it began, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// Why it failed, if it did.
    pub error: Option<&'a str>,
}

/// A run as begun and as ended.
#[derive(Debug, Clone)]
pub struct Record {
    pub start: RunStart,
    pub end: RunEnd,
}

/// Watches machine, server and client while such a command line runs its load, as `run` and `bench` do.
pub struct Onlooker {
    recording: Recording<'static>,
    is_watched: bool,
    is_kept: bool,
}

impl Onlooker {
    /// The load begins. Of a run that is kept everything is watched; of another only seconds are counted, since samplers
    /// ask the server something too.
    pub fn began(is_kept: bool) -> Onlooker {
        let detail = if is_kept { Detail::Held } else { Detail::Dropped };
        let recording = Recording::new(RunEnd::new(Status::Failed, 0), detail);
        Onlooker { recording, is_watched: false, is_kept }
    }

    /// To be called with everything that the load tells, and the server that it uses, which is known when its sessions
    /// are connected.
    pub fn event(&mut self, event: &load::Event<'_>, target: Option<&Target>) {
        if matches!(event, load::Event::Connected { .. }) && !self.is_watched && self.is_kept {
            self.recording.hooks.push(watch::onlooker(self.recording.began, target));
            self.is_watched = true;
        }
        // What is held or dropped meets no disk.
        let _ = self.recording.event(event);
    }
}

/// The record of a run that `onlooker` has watched. Asks the server what it is and how it is set; a server that is gone
/// leaves that empty.
pub fn record(ran: &Ran<'_>, onlooker: Onlooker) -> Record {
    let mut recording = onlooker.recording;
    recording.end.server = server_facts(ran);
    recording.end.workload = WorkloadFacts {
        name: ran.workload.to_owned(),
        options: ran.options.clone(),
        data_from: "kept".to_owned(),
        ..WorkloadFacts::default()
    };
    let mut key = Key::from([("workload".to_owned(), ran.workload.into())]);
    if !recording.end.server.name.is_empty() {
        key.insert("server".to_owned(), recording.end.server.name.clone().into());
    }
    add_options(&mut key, ran.given);
    let start = RunStart::new(key, vec![ran.planned.sessions], ran.seed, ran.started_at_ms);
    recording.load_ended(std::slice::from_ref(ran.planned), ran.load);
    recording.end.warnings = judge::waits(ran.load);
    // A script that uses no server has nothing but the client to be bound by.
    let mut why = "there was no server";
    if ran.target.is_some() {
        recording.judge_load(std::slice::from_ref(ran.load));
        why = "not looked at in runs of another tool's command line";
    }
    let told = recording.look();
    recording.end.warnings.extend(told);
    let ended = match ran.error {
        Some(error) => Err((Status::Failed, error)),
        None if ran.load.interrupted => Err((Status::Interrupted, "stopped by the user")),
        None => Ok(()),
    };
    recording.end.error = ended.err().map(|(_, error)| error.to_owned());
    // There is one run to a life here.
    let mut ends = recording.close(ended.map_err(|(status, _)| status), false, why);
    Record { start, end: ends.swap_remove(0) }
}

fn server_facts(ran: &Ran<'_>) -> ServerFacts {
    let mut server = ServerFacts::default();
    if let Some(target) = ran.target
        && let Ok((name, flavor)) = attached_name(target)
    {
        server.name = name;
        server.engine = engine_of(flavor, ran.options);
        if let Ok(settings) = reported_settings(target) {
            describe(&mut server, &settings);
            server.version_text =
                settings.get("version").or(settings.get("server_version")).cloned().unwrap_or_default();
            server.settings = settings;
        }
    }
    server
}

/// The study that gathers the runs of a tool in a results file.
#[derive(Debug, Clone, Copy)]
pub struct Gathering<'a> {
    /// Its name, which `plimsoll report` takes: `sysbench`.
    pub name: &'a str,
    /// One line.
    pub title: &'a str,
    /// What a reader wants to know from it.
    pub question: &'a str,
    /// The command line, without secrets.
    pub command: &'a str,
    pub version: &'a str,
    /// The same command line goes on with a run that failed or was interrupted; otherwise it makes another.
    pub goes_on: bool,
}

/// Adds a run to the results in `folder`. The same command line again is another repeat of the same cell.
///
/// # Errors
/// The results file cannot be written.
pub fn keep(folder: &Path, gathering: &Gathering<'_>, record: &Record) -> Result<(), Error> {
    let mut store = Store::open(folder)?;
    let (study, start) = study_of(&mut store, gathering, record.start.clone())?;
    store.record_run(study, &start, &record.end)?;
    // There is no plan that more runs could be missing from.
    Ok(store.set_study_state(study, "complete")?)
}

/// The study that gathers such runs, begun where there is none, and `start` as the next run of it.
pub(crate) fn study_of(
    store: &mut Store,
    gathering: &Gathering<'_>,
    mut start: RunStart,
) -> Result<(StudyId, RunStart), Error> {
    let known = store.studies()?.into_iter().rev().find(|known| known.study.name == gathering.name);
    let study = match known {
        Some(known) => {
            store.add_command(known.id, start.started_at_ms, gathering.command)?;
            known.id
        }
        None => store.add_study(&study_row(gathering, &start))?,
    };
    store.interrupt_running(study)?;
    start.host = store.add_host(&crate::host::facts())?;
    let heads = store.run_heads(study)?;
    let before = heads.iter().filter(|head| {
        // What was interrupted or failed is the same repeat, tried again.
        let is_again = matches!(head.status, Status::Interrupted | Status::Failed) && gathering.goes_on;
        head.start.key == start.key && head.start.levels == start.levels && !is_again
    });
    start.repeat = before.count() as u32 + 1;
    start.block = start.repeat;
    start.index = heads.len() as u32;
    start.position = start.index + 1;
    Ok((study, start))
}

/// A study without a plan: its cells are what was run.
fn study_row(gathering: &Gathering<'_>, start: &RunStart) -> Study {
    Study {
        name: gathering.name.to_owned(),
        title: gathering.title.to_owned(),
        question: gathering.question.to_owned(),
        fingerprint: gathering.name.to_owned(),
        seed: start.seed,
        plimsoll_version: gathering.version.to_owned(),
        command: gathering.command.to_owned(),
        created_at_ms: start.started_at_ms,
        ..Study::default()
    }
}

/// The line of JSON, as `bench` prints it.
pub fn line(record: &Record) -> serde_json::Value {
    report::bench_lines(&record.start, &record.end, None).into_iter().next().unwrap_or_default()
}

/// A percentile of a step's response times in milliseconds; `None` where it has too few transactions for one.
pub fn percentile_ms(step: &store::Step, percent: f64) -> Option<f64> {
    let quantile = percent / 100.0;
    let is_enough = step.response.len() >= stats::quantile_needs(quantile);
    is_enough.then(|| LatencyUnit::to_ms(step.response.value_at_quantile(quantile) as f64))
}
