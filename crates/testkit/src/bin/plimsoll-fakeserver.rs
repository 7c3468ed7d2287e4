//! A fake MySQL server with injected latency. Serves until its standard input ends.

use std::process::ExitCode;

use testkit::latency_server::{Options, Shape, Stall, serve};

const USAGE: &str = "usage: plimsoll-fakeserver --socket PATH [--log FILE] [--seed N] \
[--latency none|fixed:MICROSECONDS|lognormal:MEDIAN_MICROSECONDS:SIGMA] [--stall EVERY_MS:LASTS_MS[:COUNT]] \
[--wait asleep|awake] [--processes N]

Speaks MySQL on a unix socket, answers SELECTs and prepared statements late, and writes a log of when each request
arrived and its answer left. With `--processes` several share the socket, with logs named FILE, FILE.1, ...
With `--wait awake` it takes a cpu and never sleeps. Ends, and writes the log, when standard input does.";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match parse(&arguments) {
        Ok(options) => options,
        Err(text) => {
            eprintln!("{text}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match serve(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll-fakeserver: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let (mut socket, mut log, mut latency, mut stall, mut seed) = (None, None, Shape::None, None, 1);
    let (mut never_sleeps, mut processes) = (false, 1);
    for pair in arguments.chunks(2) {
        let [name, value] = pair else { return Err(format!("{}: a value is missing", pair[0])) };
        match name.as_str() {
            "--socket" => socket = Some(value.into()),
            "--log" => log = Some(value.into()),
            "--latency" => latency = Shape::parse(value).map_err(|error| error.to_string())?,
            "--stall" => stall = Some(Stall::parse(value).map_err(|error| error.to_string())?),
            "--seed" => seed = value.parse().map_err(|_| format!("--seed {value}: not a number"))?,
            "--processes" => {
                processes = value.parse().map_err(|_| format!("--processes {value}: not a number"))?;
            }
            "--wait" if ["asleep", "awake"].contains(&value.as_str()) => never_sleeps = value == "awake",
            _ => return Err(format!("{name} {value}: unknown")),
        }
    }
    let socket = socket.ok_or("--socket is missing")?;
    Ok(Options { socket, log, latency, stall, seed, never_sleeps, processes })
}
