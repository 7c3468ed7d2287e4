//! `plimsoll sysbench`: the script room's command line, and what it gives beyond sysbench's output.

use std::collections::BTreeMap;
use std::path::Path;

use lab::kept::{self, Gathering, Ran, Record};
use script::Finished;
use serde_json::{Value, json};

use crate::commands::hdr::HdrLog;
use crate::commands::out::Out;
use crate::commands::stop_on_signals_of_script;
use crate::exit::{End, Failure};
use crate::show::terminal::tell;

/// The study that `--results` gathers runs in.
const STUDY: &str = "sysbench";

pub(crate) fn sysbench(arguments: &[String], line: &str) -> Result<End, Failure> {
    let stop = stop_on_signals_of_script()?;
    // What failed has been told, in sysbench's form.
    let mut looking = Looking::default();
    let outcome = script::run(arguments, &mut std::io::stdout(), stop.load(), &mut looking);
    if let Some(finished) = &outcome.result {
        keep(finished, looking, line)?;
    }
    Ok(match u8::try_from(outcome.exit_code) {
        Ok(0) => End::Done,
        Ok(code) => End::OfTool(code),
        Err(_) => End::RunFailed,
    })
}

/// What a run is watched by.
#[derive(Default)]
struct Looking {
    onlooker: Option<kept::Onlooker>,
    hdr: Option<Result<HdrLog, Failure>>,
    sessions: u32,
}

impl script::Onlooker for Looking {
    fn loading(&mut self, target: &wire::Target, data_bytes: u64) -> Result<(), String> {
        lab::checks::room(target, data_bytes).map_err(|error| error.to_string())
    }

    fn began(&mut self, options: &BTreeMap<String, String>) {
        self.onlooker = Some(kept::Onlooker::began(file_option(options, "results").is_some()));
        self.hdr = file_option(options, "hdr").map(HdrLog::create);
    }

    fn event(&mut self, event: &load::Event<'_>, targets: &[wire::Target]) {
        if let Some(onlooker) = &mut self.onlooker {
            onlooker.event(event, targets.first());
        }
        match (event, &mut self.hdr) {
            (load::Event::StepStarted { step, .. }, _) => self.sessions = step.sessions,
            (load::Event::Interval { interval, .. }, Some(Ok(hdr))) => hdr.add(self.sessions, interval),
            _ => {}
        }
    }
}

/// The file that an option names.
fn file_option<'a>(options: &'a BTreeMap<String, String>, name: &str) -> Option<&'a Path> {
    options.get(name).filter(|path| !path.is_empty()).map(Path::new)
}

/// `--json`, `--hdr` and `--results`.
fn keep(finished: &Finished, looking: Looking, line: &str) -> Result<(), Failure> {
    let file = |name: &str| file_option(&finished.options, name);
    if let Some(hdr) = looking.hdr {
        hdr?.finish()?;
    }
    let (json, results) = (file("json"), file("results"));
    if json.is_none() && results.is_none() {
        return Ok(());
    }
    let Some(onlooker) = looking.onlooker else { return Ok(()) };
    let record = record(finished, onlooker);
    if let Some(path) = json {
        Out::create(path)?.end(&format!("{}\n", as_json(finished, &record)))?;
    }
    if let Some(folder) = results {
        let gathering = Gathering {
            name: STUDY,
            title: "sysbench",
            question: "What did the runs of sysbench's command line measure?",
            command: line,
            version: env!("CARGO_PKG_VERSION"),
            goes_on: false,
        };
        kept::keep(folder, &gathering, &record)?;
        if let Some(warning) = kept_as_invalid(folder, &record.end) {
            tell!("{warning}");
        }
    }
    Ok(())
}

/// What has to be known of a run that was kept and that no report will count.
fn kept_as_invalid(folder: &Path, end: &store::RunEnd) -> Option<String> {
    let file = folder.join(store::FILE_NAME);
    let why = end.error.as_deref().unwrap_or("no reason recorded");
    (end.status == store::Status::Invalid).then(|| {
        format!("warning: the run is kept in {} as invalid, and counts in no average: {why}", file.display())
    })
}

fn record(finished: &Finished, onlooker: kept::Onlooker) -> Record {
    let ran = Ran {
        workload: &finished.test,
        options: &finished.options,
        given: &finished.given,
        target: finished.targets.first(),
        planned: &finished.planned,
        load: &finished.load,
        seed: u64::from(finished.seed),
        started_at_ms: finished.started_at_ms,
        error: finished.error.as_deref(),
    };
    kept::record(&ran, onlooker)
}

/// The line of `bench`, with what sysbench's command line has beside it.
fn as_json(finished: &Finished, record: &Record) -> Value {
    let mut line = kept::line(record);
    line["native"] = json!(finished.is_native);
    line["percentiles_ms"] = record.end.steps.first().map_or(Value::Null, |step| {
        let value = |percent: &f64| (percent.to_string(), json!(kept::percentile_ms(step, *percent)));
        finished.percentiles.iter().map(value).collect::<serde_json::Map<_, _>>().into()
    });
    line
}

#[cfg(test)]
mod tests {
    use store::{RunEnd, Status};

    use super::*;

    #[test]
    fn a_run_that_is_kept_and_will_not_count_is_told_with_its_reason() {
        let end = |status| RunEnd {
            error: Some("other processes used 52 % of the machine (stop what else runs)".to_owned()),
            ..RunEnd::new(status, 0)
        };
        let told = kept_as_invalid(Path::new("runs"), &end(Status::Invalid)).unwrap();
        assert!(told.contains("runs/results.db as invalid") && told.contains("52 %"), "{told}");
        assert_eq!(kept_as_invalid(Path::new("runs"), &end(Status::Done)), None);
    }
}
