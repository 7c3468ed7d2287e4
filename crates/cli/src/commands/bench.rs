//! `plimsoll bench`.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Mutex, PoisonError};

use lab::bench::{Data, Level, Request, lines};
use lab::clients::Hosts;
use lab::plan::draw_seed;
use lab::servers::{self, Server};
use lab::watch::Watch;
use lab::{Error, Event, OnServer};
use sandbox::Home;
use serde_json::Value;
use store::Status;
use telemetry::agent::Agent;

use crate::args::{ArrivalsArg, BenchArgs, OnServerArgs};
use crate::commands::fleet::Start;
use crate::commands::hdr::HdrLog;
use crate::commands::out::Out;
use crate::commands::stop_on_signals;
use crate::exit::{End, Failure, output};
use crate::show::terminal::{self, tell};
use crate::show::{Plain, number};

pub(crate) fn bench(args: &BenchArgs) -> Result<End, Failure> {
    args.on.password.read()?;
    let mut request = request(args)?;
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
    let hdr = Mutex::new(args.hdr.as_deref().map(HdrLog::create).transpose()?);
    let to_stdout = args.json.as_ref().is_some_and(|path| path.as_os_str() == "-");
    let pacing = offered(&request.pacing);
    let mut failure: Option<Failure> = None;
    let mut failed_class = None;
    let mut table = Table::default();
    let plain = Plain::without_runs();
    let mut done = |level: Level| {
        plain.clear();
        let written = write_level(&level, json.as_mut(), to_stdout, pacing.as_deref(), &mut table);
        if let Err(error) = written {
            failure.get_or_insert(error);
        }
        if let Some(class) = level.failure {
            failed_class.get_or_insert(class);
        }
    };
    let attach = watch(&args.on, &request.on)?;
    let ended = lab::bench::bench(
        &home,
        &request,
        &attach,
        &|event: Event<'_>| {
            if let (Event::Interval { sessions, interval }, Some(hdr)) =
                (&event, &mut *hdr.lock().unwrap_or_else(PoisonError::into_inner))
            {
                hdr.add(*sessions, interval);
            }
            plain.event(&event);
        },
        &stop,
        &mut done,
    );
    plain.clear();
    if let Some(failure) = failure {
        return Err(failure);
    }
    for note in &table.footnotes {
        writeln!(terminal::output(), "{note}").map_err(output)?;
    }
    if let Some(json) = json {
        json.finish()?;
    }
    if let Some(hdr) = hdr.into_inner().unwrap_or_else(PoisonError::into_inner) {
        hdr.finish()?;
    }
    ended?;
    match failed_class {
        None => Ok(End::Done),
        // Each failed level has said why.
        Some(lab::Class::Server) => Err(Failure::Told(lab::Class::Server)),
        Some(lab::Class::Usage) => Err(Failure::Told(lab::Class::Usage)),
        Some(lab::Class::Run | lab::Class::Interrupted) => Ok(End::RunFailed),
    }
}

fn request(args: &BenchArgs) -> Result<Request, Failure> {
    let on = on_server(
        &args.on,
        args.cpus.is_some(),
        "--set, --profile, --replicas and --cpus shape a sandbox of bench's own",
    )?;
    if args.keep && matches!(on.server, Server::Selector(_)) {
        return Err(Error::Usage(
            "--keep is for a named sandbox or a URL: a sandbox of bench's own begins without tables".into(),
        )
        .into());
    }
    let pacing = match args.rate {
        None => load::Pacing::Closed,
        Some(rate_tps) => load::Pacing::Open {
            rate_tps,
            arrivals: match args.arrivals {
                ArrivalsArg::Constant => load::Arrivals::Constant,
                ArrivalsArg::Poisson => load::Arrivals::Poisson,
            },
        },
    };
    let length = match args.transactions {
        Some(count) => load::Length::Transactions { count, at_most: None },
        None => load::Length::Time(args.time),
    };
    let data = match (args.keep, args.fresh) {
        (true, _) => Data::Keep,
        (_, true) => Data::Fresh,
        _ => Data::Any,
    };
    Ok(Request {
        on,
        sessions: args.sessions.clone(),
        length,
        warmup: args.warmup,
        pacing,
        cpus: args.cpus.clone(),
        data,
    })
}

/// What the flags say of workload and server. `is_shaped`: there are more of those that `only_own` is about, which are for
/// a sandbox of the command's own.
pub(crate) fn on_server(args: &OnServerArgs, is_shaped: bool, only_own: &str) -> Result<OnServer, Error> {
    let workload = lab::workloads::resolve(&args.workload)?;
    let server = servers::parse_argument(&args.server)?;
    let is_own = matches!(server, Server::Selector(_));
    let is_shaped =
        is_shaped || !args.set.is_empty() || args.profile.is_some() || !args.replicas.servers.is_empty();
    if !is_own && is_shaped {
        let why = format!("{only_own} (--server flavor@version); this server runs already");
        return Err(Error::Usage(why));
    }
    Ok(OnServer {
        options: workload_options(&workload, &args.options)?,
        workload,
        server,
        workers: args.workers.map(usize::from),
        clients: args.clients,
        client_hosts: Hosts::This,
        settings: args.set.iter().cloned().collect(),
        profile: args.profile,
        replicas: args.replicas.clone(),
        seed: args.seed.unwrap_or_else(draw_seed),
    })
}

/// Samplers, and the agent where one is asked for.
pub(crate) fn watch(args: &OnServerArgs, on: &OnServer) -> Result<Watch, Failure> {
    let Some(place) = &args.agent else { return Ok(Watch::default()) };
    let Server::Url(target) = &on.server else {
        return Err(Failure::Usage(
            "--agent is for a server that runs elsewhere (--server URL): this one is on this machine".into(),
        ));
    };
    let agent = Agent::by_ssh(place, target);
    agent.check().map_err(Error::Server)?;
    Ok(Watch { agent: Some(agent), ..Watch::default() })
}

/// The options given, if the workload has them.
fn workload_options(
    workload: &lab::workloads::Resolved,
    given: &[(String, String)],
) -> Result<BTreeMap<String, String>, Error> {
    let mut options = BTreeMap::new();
    for (key, value) in given {
        let key = key.replace('-', "_");
        if !workload.options().iter().any(|option| option.name == key) {
            let names: Vec<&str> = workload.options().iter().map(|option| option.name.as_ref()).collect();
            let hint = match wire::spelling::nearest(&key, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("it has {}", names.join(", ")),
            };
            return Err(Error::Usage(format!("{} has no option `{key}`: {hint}", workload.name())));
        }
        options.insert(key, value.clone());
    }
    Ok(options)
}

/// Of an open loop, what it offers.
fn offered(pacing: &load::Pacing) -> Option<String> {
    match pacing {
        load::Pacing::Closed => None,
        load::Pacing::Open { rate_tps, arrivals } => {
            let arrivals = match arrivals {
                load::Arrivals::Constant => "constant",
                load::Arrivals::Poisson => "poisson",
            };
            Some(format!("{} transactions/s offered, {arrivals} arrivals", number(*rate_tps)))
        }
    }
}

/// What of the table for people is written already, and what is to stand below it.
#[derive(Debug, Default)]
struct Table {
    has_heading: bool,
    footnotes: Vec<String>,
}

/// One session count has ended: its line of JSON, its row for people.
fn write_level(
    level: &Level,
    json: Option<&mut Out>,
    to_stdout: bool,
    pacing: Option<&str>,
    table: &mut Table,
) -> Result<(), Failure> {
    let lines = lines(level);
    if let Some(json) = json {
        for line in &lines {
            json.write(&format!("{line}\n"))?;
        }
    }
    let sessions = level.start.levels.first().copied().unwrap_or_default();
    let sessions = store::counted(sessions, "session");
    if let Some(waited) = lab::bench::waited(level) {
        tell!("{sessions}: {waited}");
    }
    if let Some(error) = level.end.error.as_ref().filter(|_| level.is_begun) {
        let what = if level.end.status == Status::Invalid { "invalid" } else { "error" };
        tell!("{what}: {sessions}: {error}");
    }
    if to_stdout || !level.is_begun {
        return Ok(());
    }
    let mut out = terminal::output();
    if !table.has_heading {
        let name = &level.end.server.name;
        let pacing = pacing.map_or_else(String::new, |pacing| format!(", {pacing}"));
        writeln!(out, "{} on {name}{pacing}, seed {}", level.end.workload.name, level.start.seed)
            .map_err(output)?;
        writeln!(
            out,
            "{:>8} {:>12} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "sessions", "TPS", "QPS", "mean ms", "p50 ms", "p95 ms", "p99 ms", "errors"
        )
        .map_err(output)?;
        table.has_heading = true;
    }
    for line in &lines {
        writeln!(out, "{}", row(line)).map_err(output)?;
        table.footnotes.extend(absent(line).map(|why| format!("- at {sessions}: {why}")));
        table.footnotes.extend(owed(line).map(|owed| format!("- at {sessions}: {owed}")));
    }
    out.flush().map_err(output)
}

/// The columns of the row that have no figure, and why.
fn absent(line: &Value) -> Option<String> {
    let absent = line["latency_ms"]["absent"].as_object()?;
    let told: Vec<String> = ["p50", "p95", "p99"]
        .into_iter()
        .filter_map(|name| Some(format!("{name} {}", absent.get(name)?.as_str()?)))
        .collect();
    (!told.is_empty()).then(|| told.join("; "))
}

/// What replicas still had to apply at the end of the load.
fn owed(line: &Value) -> impl Iterator<Item = String> {
    let replicas = line["replicas"].as_array().cloned().unwrap_or_default();
    replicas.into_iter().filter_map(|replica| {
        Some(format!("replica {} was {}", replica["replica"].as_u64()?, replica["debt"].as_str()?))
    })
}

/// A line of JSON as a row of the table.
fn row(line: &Value) -> String {
    let figure = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), number);
    // From the shortest wait of a transaction that never ended on, a percentile is a lower bound.
    let bound_ms = line["unended"]["from_ms"].as_f64().filter(|_| line["unended"]["transactions"] != 0);
    let latency = |name: &str| {
        let value = &line["latency_ms"][name];
        let is_bound = value.as_f64().zip(bound_ms).is_some_and(|(value, bound)| value >= bound);
        format!("{}{}", if is_bound { ">=" } else { "" }, figure(value))
    };
    let failed: u64 = ["deadlock", "serialization", "lock_timeout", "constraint", "connection", "other"]
        .iter()
        .filter_map(|class| line["outcomes"][class].as_u64())
        .sum();
    let status = match line["status"].as_str() {
        Some("done") | None => String::new(),
        Some(status) => format!("  {status}"),
    };
    let freeze = match line["stalls"]["longest_s"].as_f64() {
        Some(longest_s) if longest_s >= 1.0 => format!("  {longest_s:.1} s without a commit"),
        _ => String::new(),
    };
    // The freeze says of stalls what is to be said.
    let is_mark = |(name, gate): &(&String, &Value)| {
        gate["kind"] == "server" && gate["finding"] == "tripped" && *name != "stalls"
    };
    let marks: Vec<&str> = line["gates"]
        .as_object()
        .map(|gates| gates.iter().filter(is_mark).map(|(name, _)| name.as_str()).collect())
        .unwrap_or_default();
    let marks = if marks.is_empty() { String::new() } else { format!("  {}", marks.join(", ")) };
    format!(
        "{:>8} {:>12} {:>12} {:>9} {:>9} {:>9} {:>9} {:>9}{status}{marks}{freeze}",
        line["sessions"].as_u64().unwrap_or_default(),
        figure(&line["tps"]),
        figure(&line["qps"]),
        latency("mean"),
        latency("p50"),
        latency("p95"),
        latency("p99"),
        failed
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_level_is_a_row_too() {
        let line = serde_json::json!({"sessions": 64, "status": "failed", "tps": null, "latency_ms": null, "outcomes": {}});
        assert!(row(&line).trim_start().starts_with("64 "));
        assert!(row(&line).ends_with("failed"));
    }

    #[test]
    fn a_percentile_of_too_few_is_a_dash_with_a_footnote() {
        let line = serde_json::json!({
            "sessions": 4, "status": "done", "tps": 10.0, "outcomes": {},
            "latency_ms": {"mean": 90.0, "p50": 3.0, "p95": 250.0, "p99": null,
                           "absent": {"p99": "needs 1000 transactions, there are 412", "p999": "needs more"}},
        });
        assert!(row(&line).contains("250         -         0"), "{}", row(&line));
        assert_eq!(absent(&line).unwrap(), "p99 needs 1000 transactions, there are 412");
    }

    #[test]
    fn lower_bounds_and_freezes_are_told_in_the_row() {
        let line = serde_json::json!({
            "sessions": 4, "status": "done", "tps": 10.0, "outcomes": {},
            "latency_ms": {"mean": 90.0, "p50": 3.0, "p95": 250.0, "p99": 1500.0},
            "unended": {"transactions": 3, "from_ms": 250.0}, "stalls": {"seconds": 1, "longest_s": 1.54},
            "gates": {"errors": {"kind": "server", "finding": "tripped"},
                      "stalls": {"kind": "server", "finding": "tripped"},
                      "not_steady": {"kind": "server", "finding": "not_checked"}},
        });
        let row = row(&line);
        assert!(row.contains(">=250") && row.contains(">=1,500") && !row.contains(">=3"), "{row}");
        assert!(row.ends_with("  0  errors  1.5 s without a commit"), "{row}");
    }
}
