//! `plimsoll line`.

use std::io::Write;
use std::time::Duration;

use lab::bench::Data;
use lab::line::{EndedBy, Found, Line, Promise, Request};
use lab::plan::draw_seed;
use lab::{Error, Event, servers};
use sandbox::Home;

use crate::args::LineArgs;
use crate::commands::bench::workload_options;
use crate::commands::out::Out;
use crate::commands::stop_on_signals;
use crate::exit::{End, Failure, output};
use crate::show::terminal::{self, tell};
use crate::show::{Plain, number};

pub(crate) fn line(args: &LineArgs, command: String) -> Result<End, Failure> {
    args.password.read()?;
    let request = request(args, command)?;
    lab::line::check(&request)?;
    if args.seed.is_none() {
        tell!("seed {}", request.seed);
    }
    let home = Home::find()?;
    let stop = stop_on_signals()?;
    let mut json = args.json.as_deref().map(Out::create).transpose()?;
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let plain = Plain::without_runs();
    let found = lab::line::line(&home, &request, &|event: Event<'_>| plain.event(&event), &stop);
    plain.clear();
    let found = found?;
    if let Some(json) = &mut json {
        for line in found.json() {
            json.write(&format!("{line}\n"))?;
        }
    }
    if !to_stdout {
        write_table(&found)?;
    }
    if let Some(json) = json {
        json.finish()?;
    }
    Ok(if found.is_done() { End::Done } else { End::RunFailed })
}

/// Where the budget is not said: for one search, and for what is held longer than a minute.
const BUDGET: Duration = Duration::from_secs(600);
const HOLD: Duration = Duration::from_secs(60);
/// Of the budget, where the hold is not said.
const HOLD_PART: u32 = 5;

fn request(args: &LineArgs, command: String) -> Result<Request, Failure> {
    let workload = lab::workloads::resolve(&args.workload)?;
    let server = servers::parse_argument(&args.server)?;
    let is_own = matches!(server, servers::Server::Selector(_));
    if !is_own && (!args.set.is_empty() || args.profile.is_some()) {
        return Err(Error::Usage(
            "--set and --profile shape a sandbox of line's own (--server flavor@version); this server runs already"
                .into(),
        )
        .into());
    }
    let options = workload_options(&workload, &args.options)?;
    let promises = args.promise.iter().map(|text| Promise::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let hold = args.hold.unwrap_or_else(|| args.budget.map_or(HOLD, |budget| HOLD.min(budget / HOLD_PART)));
    let budget = args.budget.unwrap_or(BUDGET + hold.saturating_sub(HOLD));
    Ok(Request {
        workload,
        options,
        server,
        promises,
        budget,
        hold,
        sessions_max: args.sessions_max,
        workers: args.workers.map(usize::from),
        settings: args.set.iter().cloned().collect(),
        profile: args.profile,
        data: Data::Any,
        seed: args.seed.unwrap_or_else(draw_seed),
        results: args.results.clone(),
        new: args.new,
        command,
    })
}

fn write_table(found: &Found) -> Result<(), Failure> {
    let mut out = terminal::output();
    let (sessions, peak_tps) = found.peak;
    let mut text = format!(
        "{} on {}: {} probes in {:.0} s; peak of the closed loop {} TPS at {sessions} sessions\n{:>20} {:>10} {:>21} {:>9}  held\n",
        found.workload,
        found.server,
        found.probes.len(),
        found.seconds_total,
        number(peak_tps),
        "promise",
        "line TPS",
        "95 % interval",
        "of peak",
    );
    for line in &found.lines {
        text += &row(line, peak_tps);
        text += "\n";
    }
    let mut told: Vec<&String> = Vec::new();
    for warning in found.lines.iter().flat_map(|line| &line.warnings) {
        if !told.contains(&warning) {
            text += &format!("- {warning}\n");
            told.push(warning);
        }
    }
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(output)
}

fn row(line: &Line, peak_tps: f64) -> String {
    let shown = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), number);
    let interval = match (line.low, line.high) {
        (None, None) => "-".to_owned(),
        (low, high) => format!("[{}, {}]", shown(low), shown(high)),
    };
    let share =
        line.line_tps.map_or_else(|| "-".to_owned(), |rate| format!("{:.0} %", 100.0 * rate / peak_tps));
    let held = match line.confirmation {
        None => "not held".to_owned(),
        Some(hold) => {
            let p99 = hold.p99_ms.map_or_else(String::new, |p99| format!(", p99 {} ms", number(p99)));
            format!("{} {:.0} s{p99}", if hold.held { "for" } else { "not for" }, hold.seconds)
        }
    };
    let ended = match line.ended_by {
        EndedBy::Promise => String::new(),
        by => format!("  ended by {}", by.word()),
    };
    let rate = line.line_tps.map_or_else(|| "none".to_owned(), number);
    format!("{:>20} {rate:>10} {interval:>21} {share:>9}  {held}{ended}", line.promise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_row_with_what_is_known_of_it() {
        let mut line = Line {
            promise: "p99 < 20ms".into(),
            line_tps: Some(6100.0),
            low: Some(5900.0),
            high: Some(6300.0),
            ended_by: EndedBy::Promise,
            confirmation: Some(lab::line::Confirmation { seconds: 60.0, held: true, p99_ms: Some(18.0) }),
            warnings: Vec::new(),
        };
        let shown = row(&line, 10_000.0);
        assert!(shown.contains("[5,900, 6,300]") && shown.contains("61 %"), "{shown}");
        assert!(shown.ends_with("for 60 s, p99 18.0 ms"), "{shown}");
        (line.line_tps, line.low, line.confirmation) = (None, None, None);
        line.ended_by = EndedBy::Budget;
        let shown = row(&line, 10_000.0);
        assert!(shown.contains("none") && shown.ends_with("not held  ended by budget"), "{shown}");
    }
}
