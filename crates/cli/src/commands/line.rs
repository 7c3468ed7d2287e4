//! `plimsoll line`.

use std::io::Write;

use lab::Event;
use lab::line::{Asked, EndedBy, Found, Promise, Request};
use sandbox::Home;
use store::Line;

use crate::args::LineArgs;
use crate::commands::bench::{on_server, watch};
use crate::commands::fleet::Start;
use crate::commands::out::Out;
use crate::commands::stop_on_signals;
use crate::exit::{End, Failure, output};
use crate::show::terminal::{self, tell};
use crate::show::{Plain, number};

pub(crate) fn line(args: &LineArgs, command: String) -> Result<End, Failure> {
    args.on.password.read()?;
    let mut request = request(args, command)?;
    request.asked.check()?;
    request.on.client_hosts = match super::fleet::client_hosts(&args.on)? {
        Start::Here(hosts) => hosts,
        Start::OnNode(end) => return Ok(end),
    };
    if args.on.seed.is_none() {
        tell!("seed {}", request.on.seed);
    }
    let home = Home::find()?;
    let stop = stop_on_signals()?;
    let mut json = args.json.as_deref().map(Out::create).transpose()?;
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let plain = Plain::without_runs();
    let attach = watch(&args.on, &request.on)?;
    let found = lab::line::line(&home, &request, &attach, &|event: Event<'_>| plain.event(&event), &stop);
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

fn request(args: &LineArgs, command: String) -> Result<Request, Failure> {
    let on = on_server(&args.on, false, "--set, --profile and --replicas shape a sandbox of line's own")?;
    let promises =
        args.promise.iter().map(|text| Promise::read(text)).collect::<Result<Vec<_>, _>>()?.concat();
    Ok(Request {
        on,
        asked: Asked::new(promises, args.budget, args.hold, args.sessions_max),
        results: args.results.clone(),
        new: args.new,
        command,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

fn write_table(found: &Found) -> Result<(), Failure> {
    let mut out = terminal::output();
    let (sessions, peak_tps) = found.peak();
    let width = found.lines().iter().map(|line| line.promise.chars().count()).fold(PROMISE_WIDTH, usize::max);
    let mut text = format!(
        "{} on {}: {} in {:.0} s; peak of the closed loop {} TPS at {}\n{:>width$} {:>10} {:>21} {:>9}  held\n",
        found.workload,
        found.server,
        store::counted(found.search.tried().len(), "probe"),
        found.seconds_total(),
        number(peak_tps),
        store::counted(sessions, "session"),
        "promise",
        "line TPS",
        "95 % interval",
        "of peak",
    );
    for line in found.lines() {
        text += &row(line, peak_tps, width);
        text += "\n";
    }
    text += &all_kept(found.lines()).map_or_else(String::new, |all| format!("- {all}\n"));
    let mut told: Vec<&String> = Vec::new();
    for warning in found.lines().iter().flat_map(|line| &line.warnings).chain(&found.warnings) {
        if !told.contains(&warning) {
            text += &format!("- {warning}\n");
            told.push(warning);
        }
    }
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(output)
}

/// Up to which rate all promises are kept, where they are about different things and each has a line; of a curve of limits
/// that is the strictest one's.
fn all_kept(lines: &[Line]) -> Option<String> {
    let about = |line: &Line| line.promise.split('<').next().unwrap_or_default().trim().to_owned();
    let first = about(lines.first()?);
    if lines.iter().all(|line| about(line) == first) {
        return None;
    }
    let rates =
        lines.iter().map(|line| line.line_tps.map(|rate| (rate, line))).collect::<Option<Vec<_>>>()?;
    let (rate, line) = rates.into_iter().min_by(|(a, _), (b, _)| a.total_cmp(b))?;
    let promises = lines.len();
    Some(format!(
        "all {promises} promises are kept up to {} transactions/s: {} breaks first",
        number(rate),
        line.promise
    ))
}

/// Of the promises' column, where none is wider.
const PROMISE_WIDTH: usize = 20;

fn row(line: &Line, peak_tps: f64, width: usize) -> String {
    let shown = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), number);
    let interval = match (line.low, line.high) {
        (None, None) => "-".to_owned(),
        (low, high) => format!("[{}, {}]", shown(low), shown(high)),
    };
    let share =
        line.line_tps.map_or_else(|| "-".to_owned(), |rate| format!("{:.0} %", 100.0 * rate / peak_tps));
    let held = match line.hold {
        None => "not held".to_owned(),
        Some(hold) => {
            let p99 = hold.p99_ms.map_or_else(String::new, |p99| format!(", p99 {} ms", number(p99)));
            format!("{} {:.0} s{p99}", if hold.held { "for" } else { "not for" }, hold.seconds)
        }
    };
    let ended = match line.ended_by.as_str() {
        by if by == EndedBy::Promise.word() => String::new(),
        by => format!("  ended by {by}"),
    };
    let rate = line.line_tps.map_or_else(|| "none".to_owned(), number);
    format!("{:>width$} {rate:>10} {interval:>21} {share:>9}  {held}{ended}", line.promise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_different_promises_is_the_lowest_of_their_lines() {
        let line = |promise: &str, line_tps| Line {
            promise: promise.into(),
            allowed: 0.1,
            limit_ms: None,
            line_tps,
            middle_tps: line_tps,
            low: None,
            high: None,
            ended_by: EndedBy::Promise.word().to_owned(),
            hold: None,
            warnings: Vec::new(),
        };
        let pair = [line("p90 of payment < 5s", Some(900.0)), line("p90 of delivery < 5s", Some(700.0))];
        let told = all_kept(&pair).unwrap();
        assert!(told.contains("up to 700") && told.contains("p90 of delivery < 5s breaks first"), "{told}");
        assert_eq!(all_kept(&[line("p99 < 5ms", Some(1.0)), line("p99 < 20ms", Some(2.0))]), None, "a curve");
        assert_eq!(
            all_kept(&[line("p99 < 5ms", Some(1.0)), line("errors < 1%", None)]),
            None,
            "one is not known"
        );
    }

    #[test]
    fn a_line_is_a_row_with_what_is_known_of_it() {
        let mut line = Line {
            promise: "p99 < 20ms".into(),
            allowed: 0.01,
            limit_ms: Some(20.0),
            line_tps: Some(6100.0),
            middle_tps: Some(6150.0),
            low: Some(5900.0),
            high: Some(6300.0),
            ended_by: EndedBy::Promise.word().to_owned(),
            hold: Some(store::LineHold { seconds: 60.0, held: true, p99_ms: Some(18.0) }),
            warnings: Vec::new(),
        };
        let shown = row(&line, 10_000.0, PROMISE_WIDTH);
        assert!(shown.contains("[5,900, 6,300]") && shown.contains("61 %"), "{shown}");
        assert!(shown.ends_with("for 60 s, p99 18.0 ms"), "{shown}");
        (line.line_tps, line.low, line.hold) = (None, None, None);
        line.ended_by = EndedBy::Budget.word().to_owned();
        let shown = row(&line, 10_000.0, PROMISE_WIDTH);
        assert!(shown.contains("none") && shown.ends_with("not held  ended by budget"), "{shown}");
    }
}
