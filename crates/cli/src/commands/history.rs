//! `plimsoll history`.

use std::path::Path;
use std::time::SystemTime;

use ::report::history::{self, History, HistoryQuery};
use store::{ChangeDecision, ChangeState, Store};

use crate::args::{DecisionArgs, HistoryArgs, HistoryCommand, HistorySeriesArgs, METRICS};
use crate::commands::out::Out;
use crate::commands::print;
use crate::commands::report::failed;
use crate::exit::{End, Failure};
use crate::show::terminal::tell;
use crate::show::{Align, Table, number};

pub(crate) fn history(args: &HistoryArgs) -> Result<End, Failure> {
    match &args.decision {
        Some(HistoryCommand::Accept(decision)) => return decide(decision, ChangeState::Accepted),
        Some(HistoryCommand::Ignore(decision)) => return decide(decision, ChangeState::Ignored),
        None => {}
    }
    let history = load(&args.series)?;
    let mut is_written = false;
    let mut put = |path: &Option<std::path::PathBuf>, text: &dyn Fn() -> Result<String, Failure>| {
        let Some(path) = path else { return Ok(()) };
        is_written = true;
        write(path, &text()?)
    };
    put(&args.json, &|| Ok(format!("{}\n", history.json())))?;
    put(&args.html, &|| history::html(&history).map_err(failed))?;
    put(&args.otava, &|| history::otava(&history).map_err(failed))?;
    put(&args.bencher, &|| Ok(format!("{}\n", history::bencher(&history))))?;
    put(&args.github, &|| Ok(format!("{}\n", history::github_action(&history).map_err(failed)?)))?;
    put(&args.junit, &|| Ok(history::junit(&history)))?;
    if is_written { Ok(End::Done) } else { print(&text(&history)) }
}

fn load(args: &HistorySeriesArgs) -> Result<History, Failure> {
    let files = if args.files.is_empty() { vec![args.results.clone()] } else { args.files.clone() };
    let since = args.since.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    let query = HistoryQuery {
        study: args.study.clone(),
        metrics: args.metric.clone(),
        since_ms: since.map(|since| since.as_millis() as i64),
    };
    History::load(&files, &query).map_err(failed)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    Out::create(path)?.end(text)?;
    if path.as_os_str() != "-" {
        tell!("wrote {}", path.display());
    }
    Ok(())
}

fn text(history: &History) -> String {
    if history.series.is_empty() {
        return "no runs that count\n".to_owned();
    }
    let mut text = String::new();
    for series in &history.series {
        text.push_str(&format!("{} · {}\n", series.label(), series.metric));
        let mut table = Table::new(&[
            ("  measured", Align::Left),
            ("build", Align::Left),
            ("value", Align::Right),
            ("interval", Align::Right),
            ("runs", Align::Right),
            ("change", Align::Left),
        ]);
        for (at, point) in series.points.iter().enumerate() {
            let change = series.changes.iter().find(|found| found.change.index == at);
            let change = change.map(|found| {
                let size = 100.0 * (found.change.ratio - 1.0);
                let (low, high) = (100.0 * (found.change.low - 1.0), 100.0 * (found.change.high - 1.0));
                let why = found.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
                format!("{size:+.1} % ({low:+.1} to {high:+.1} %), {} {}{why}", found.state, found.id)
            });
            table.row([
                format!("  {}", history::time(point.at_ms)),
                point.build.clone(),
                number(point.value),
                format!("{} to {}", number(point.low), number(point.high)),
                point.runs.len().to_string(),
                change.unwrap_or_default(),
            ]);
        }
        text.push_str(&table.text());
        text.push('\n');
    }
    text
}

/// Keeps what is said of a change in the results file that it is found in.
fn decide(args: &DecisionArgs, state: ChangeState) -> Result<End, Failure> {
    let query = HistoryQuery {
        metrics: METRICS.iter().map(|name| (*name).to_owned()).collect(),
        ..HistoryQuery::default()
    };
    // Changes are adjusted for all series that are looked at together, so each metric is looked at as `history` does.
    let mut known = Vec::new();
    for metric in query.metrics.clone() {
        let query = HistoryQuery { metrics: vec![metric], ..query.clone() };
        let history = History::load(std::slice::from_ref(&args.results), &query).map_err(failed)?;
        if let Some((series, change)) = history.change(&args.id) {
            let decided = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let decision = ChangeDecision {
                series: series.id.clone(),
                at_ms: series.points[change.change.index].at_ms,
                state,
                why: args.why.clone(),
                decided_at_ms: decided.as_millis() as i64,
            };
            let is_file = args.results.is_file();
            let folder =
                if is_file { args.results.parent().unwrap_or(Path::new(".")) } else { &args.results };
            Store::open(folder)?.add_change_decision(&decision)?;
            return print(&format!("{} {}: {}\n", state.word(), args.id, args.why));
        }
        known
            .extend(history.series.iter().flat_map(|series| &series.changes).map(|change| change.id.clone()));
    }
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    Err(Failure::Usage(format!("no change {}: `plimsoll history` names them ({known})", args.id)))
}
