//! A benchmark from its options to its exit code.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use load::time::Moment;
use load::{Event, Length, LoadPlan, Pacing, RetryPolicy, Step, Stop};
use pgscript::random::Random;
use pgscript::{Names, Script, Value};
use wire::Target;
use wire::blocking::Client;
use wire::files::{self, WORKLOAD};
use workload::Dialect;
use workload::scripted::Plan;

use crate::figures::{Counts, Figures};
use crate::initialise::connect;
use crate::log::{self, Form};
use crate::options::{Chosen, Run, Source};
use crate::report::{Told, report};
use crate::session::{Clients, Pace, Shared};
use crate::{ABORTED, Refusal, tell, write};

/// Between two looks at whether the reading of a script shall end.
const STOP_LOOK: Duration = Duration::from_millis(50);

/// Tables that only a built-in script needs.
struct Tables {
    scale: u64,
    partitions: Option<(String, u64)>,
}

pub(crate) fn run(target: &Target, run: &Run, out: &mut dyn Write, stop: &Stop) -> Result<u8, Refusal> {
    let scripts = read_scripts(&run.scripts, stop)?;
    let seed = seed(run.seed.as_deref())?;
    let mut control = connect(target, stop)?;
    let version = control.server().version.clone();
    write(out, &format!("pgbench (Plimsoll {}, server {version})\n", env!("CARGO_PKG_VERSION")))?;
    let has_builtin = run.scripts.iter().any(|script| matches!(script.source, Source::Builtin(_)));
    let tables = match has_builtin {
        true => look_at_tables(&mut control, run).map_err(|refusal| refusal.or_interrupted(stop))?,
        false => Tables { scale: run.scale.unwrap_or(1), partitions: None },
    };
    let dialect = Dialect::of_server(target.protocol, &version);
    let shared = shared(run, (target, dialect), scripts, &tables, seed, stop)?;
    if run.vacuums {
        vacuum(&mut control, run.vacuums_all);
    }
    drop(control);
    create_logs(run)?;
    let (mut connected_s, mut progress) = (0.0, Progress::new(run));
    let plan = load_plan(run, target, seed);
    let mut observer = |event: Event<'_>| match event {
        Event::Connected { took, .. } => connected_s = took.as_secs_f64(),
        Event::Interval { .. } => progress.tick(&shared),
        Event::Warning(text) => tell(&format!("pgbench: warning: {text}")),
        _ => {}
    };
    let ran = load::run(&plan, &Clients(Arc::clone(&shared)), &mut observer, stop);
    let ended = Moment::now();
    ran.map_err(|error| {
        tell(&format!("pgbench: error: {error}"));
        Refusal::new("could not create connection for client")
    })?;
    let mut figures = Figures::new(&shared.plan.scripts);
    for thread in &shared.figures {
        figures.merge(&thread.lock().unwrap_or_else(PoisonError::into_inner));
    }
    if run.exits_on_abort && figures.aborted > 0 {
        tell("pgbench: error: Run was aborted due to an error in a client");
        return Ok(ABORTED);
    }
    let took = shared.began.get().map_or(Duration::ZERO, |began| ended - *began);
    let told = Told {
        run,
        scripts: &shared.plan.scripts,
        weights: &shared.weights,
        scale: tables.scale,
        partitions: tables.partitions,
        took_s: took.as_secs_f64(),
        connected_s,
    };
    write(out, &report(&told, &figures))?;
    if figures.aborted > 0 {
        tell("pgbench: error: Run was aborted; the above results are incomplete.");
        return Ok(ABORTED);
    }
    Ok(0)
}

/// The scripts, and the names of their variables.
fn read_scripts(chosen: &[Chosen], stop: &Stop) -> Result<(Vec<Script>, Names), Refusal> {
    let mut names = Names::default();
    let one = |chosen: &Chosen| {
        let (name, text) = match &chosen.source {
            Source::Builtin(script) => (script.description.to_owned(), script.text.to_owned()),
            Source::File(path) => (path.clone(), read_file(path, stop)?),
        };
        Script::parse(&name, &text, &mut names).map_err(|error| Refusal::new(error.to_string()))
    };
    let scripts = chosen.iter().map(one).collect::<Result<_, _>>()?;
    Ok((scripts, names))
}

/// A script, of which no more is read than of other workloads. What it is read from (a pipe, a terminal) may keep
/// silent for ever, hence by a thread that can be left behind.
fn read_file(path: &str, stop: &Stop) -> Result<String, Refusal> {
    let (sender, receiver) = mpsc::channel();
    let of_thread = path.to_owned();
    std::thread::spawn(move || {
        // Nobody waits any more where this fails.
        let _ = sender.send(match of_thread.as_str() {
            "-" => files::read_text_from(std::io::stdin(), &WORKLOAD),
            path => File::open(path).and_then(|file| files::read_text_from(file, &WORKLOAD)),
        });
    });
    let read = loop {
        match receiver.recv_timeout(STOP_LOOK) {
            Ok(read) => break read,
            Err(RecvTimeoutError::Timeout) if !stop.is_requested() => {}
            Err(_) => return Err(Refusal::interrupted()),
        }
    };
    read.map_err(|error| {
        let could_not = match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => "could not open file",
            _ => "could not read file",
        };
        let text = error.to_string();
        let why = text.split(" (os error").next().unwrap_or_default();
        Refusal::new(format!("{could_not} \"{path}\": {why}"))
    })
}

/// The seed that all randomness comes from; one that was asked for is told.
fn seed(asked: Option<&str>) -> Result<u64, Refusal> {
    let now_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    // As hard to guess as a time and a process number: nothing here is a secret.
    let drawn = Random::new(now_us ^ (u64::from(std::process::id()) << 40)).bits();
    let seed = match asked {
        None | Some("time") => now_us,
        Some("rand") => drawn,
        Some(text) => {
            text.parse::<u64>().or_else(|_| text.parse::<i64>().map(|seed| seed as u64)).map_err(|_| {
                Refusal {
                    text: format!("unrecognized random seed option \"{text}\""),
                    more: Some("detail: Expecting an unsigned integer, \"time\" or \"rand\".".to_owned()),
                }
            })?
        }
    };
    if asked.is_some() {
        tell(&format!("pgbench: setting random seed to {seed}"));
    }
    Ok(seed)
}

fn look_at_tables(control: &mut Client, run: &Run) -> Result<Tables, Refusal> {
    let counted = control.query_value("select count(*) from pgbench_branches").map_err(|error| Refusal {
        text: match &error {
            wire::Error::Server(server) => {
                format!("could not count number of branches: ERROR:  {}", server.text)
            }
            other => format!("could not count number of branches: {other}"),
        },
        more: Some("hint: Perhaps you need to do initialization (\"pgbench -i\") in database".to_owned()),
    })?;
    let scale = counted.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    if scale == 0 {
        return Err(Refusal::new(format!("invalid count(*) from pgbench_branches: \"{scale}\"")));
    }
    if run.scale.is_some_and(|asked| asked != scale) {
        tell(&format!(
            "pgbench: warning: scale option ignored, using count from pgbench_branches table ({scale})"
        ));
    }
    // Servers before version 10 have no such catalogue.
    let sql = "select case p.partstrat when 'h' then 'hash' else 'range' end, \
               (select count(*) from pg_inherits i where i.inhparent = c.oid) \
               from pg_class c join pg_partitioned_table p on p.partrelid = c.oid \
               where c.oid = 'pgbench_accounts'::regclass";
    let partitions = control.query_sets(sql).ok().and_then(|sets| {
        let set = sets.first()?;
        Some((set.text(0, 0)?.to_owned(), set.text(0, 1)?.parse::<u64>().ok()?))
    });
    Ok(Tables { scale, partitions })
}

/// What is not there is not vacuumed.
fn vacuum(control: &mut Client, all: bool) {
    tell("starting vacuum...");
    let mut statements =
        vec!["vacuum pgbench_branches", "vacuum pgbench_tellers", "truncate pgbench_history"];
    if all {
        statements.push("vacuum analyze pgbench_accounts");
    }
    for sql in statements {
        if let Err(wire::Error::Server(error)) = control.query(sql) {
            tell(&format!(
                "pgbench: error: ERROR:  {}\npgbench: detail: (ignoring this error and continuing anyway)",
                error.text
            ));
        }
    }
    tell("end.");
}

fn create_logs(run: &Run) -> Result<(), Refusal> {
    for thread in 0..if run.has_log { run.threads } else { 0 } {
        let path = log::path(&run.log_prefix, thread);
        File::create(&path).map_err(|error| {
            Refusal::new(format!("could not open logfile \"{}\": {error}", path.display()))
        })?;
    }
    Ok(())
}

/// Randomness is dealt out in pgbench's order, so that a seed means the same to both.
fn shared(
    run: &Run,
    (target, dialect): (&Target, Dialect),
    (scripts, mut names): (Vec<Script>, Names),
    tables: &Tables,
    seed: u64,
    stop: &Stop,
) -> Result<Arc<Shared>, Refusal> {
    let mut base = Random::new(seed);
    let randoms: Vec<Random> = (0..run.clients).map(|_| Random::new(base.bits())).collect();
    let mut defined: Vec<(usize, Value)> = Vec::new();
    for (name, value) in &run.defined {
        if !Names::is_valid(name) {
            return Err(Refusal::new(format!("defined variable: invalid variable name: \"{name}\"")));
        }
        defined.push((names.slot(name), Value::Text(value.as_str().into())));
    }
    // What the command line defines stands; the others are pgbench's own.
    let mut undefined = |name: &str| {
        let slot = names.slot(name);
        Some(slot).filter(|slot| defined.iter().all(|(known, _)| known != slot))
    };
    let [scale, client_id] = ["scale", "client_id"].map(&mut undefined);
    let [default_seed, random_seed] = ["default_seed", "random_seed"].map(&mut undefined);
    let own = [
        scale.map(|slot| (slot, tables.scale as i64)),
        default_seed.map(|slot| (slot, base.bits() as i64)),
        random_seed.map(|slot| (slot, seed as i64)),
    ];
    defined.extend(own.into_iter().flatten().map(|(slot, value)| (slot, Value::Int(value))));
    let mut variables = Script::no_values(&names);
    defined.into_iter().for_each(|(slot, value)| variables[slot] = Some(value));
    let mut dealt = || [Random::new(base.bits()), Random::new(base.bits()), Random::new(base.bits())];
    let thread_randoms = (0..run.threads).map(|_| dealt()).collect();
    let figures = (0..run.threads).map(|_| Arc::new(Mutex::new(Figures::new(&scripts)))).collect();
    let form = Form {
        interval_s: run.aggregate_s,
        has_lag: run.rate_tps.is_some(),
        has_retries: run.tries_max != 1,
        details_failures: run.details_failures,
    };
    Ok(Arc::new(Shared {
        dialect,
        plan: Arc::new(Plan {
            scripts,
            names,
            mode: run.mode,
            allows_shell: run.allows_shell,
            target: target.clone(),
        }),
        weights: run.scripts.iter().map(|script| script.weight).collect(),
        pace: Pace {
            transactions: run.duration_s.is_none().then_some(run.transactions),
            duration: run.duration_s.map(Duration::from_secs),
            throttle_us: run.rate_tps.map(|rate| 1e6 / rate * run.threads as f64),
            latency_limit: run.latency_limit_ms.map(|limit| Duration::from_secs_f64(limit / 1000.0)),
            tries_max: run.tries_max,
        },
        threads: run.threads,
        variables,
        client_id,
        randoms,
        thread_randoms,
        figures,
        began: OnceLock::new(),
        is_reconnecting: run.is_reconnecting,
        times_commands: run.reports_commands,
        log: run.has_log.then(|| (run.log_prefix.clone(), form)),
        sampling_rate: run.sampling_rate,
        tells_errors: run.tells_errors,
        exits_on_abort: run.exits_on_abort.then(|| stop.clone()),
    }))
}

/// Clients end by themselves: by their count or by the clock, with the transaction that they are in.
fn load_plan(run: &Run, target: &Target, seed: u64) -> LoadPlan {
    LoadPlan {
        steps: vec![Step {
            sessions: run.clients,
            warmup: Duration::ZERO,
            length: Length::Transactions { count: u64::MAX, at_most: None },
            pacing: Pacing::Closed,
        }],
        workers: Some(run.threads),
        retry: RetryPolicy { retries_max: 0, backoff: Duration::ZERO, backoff_max: Duration::ZERO },
        connect_limit: Duration::ZERO,
        silence_limit: target.statement_timeout,
        seed,
        ..LoadPlan::default()
    }
}

/// Lines of `-P`.
struct Progress {
    every_s: Option<u64>,
    has_timestamps: bool,
    has_lag: bool,
    has_skipped: bool,
    has_retries: bool,
    seconds: u64,
    last: (Option<Moment>, Counts),
}

impl Progress {
    fn new(run: &Run) -> Progress {
        Progress {
            every_s: run.progress_s,
            has_timestamps: run.has_timestamps,
            has_lag: run.rate_tps.is_some(),
            has_skipped: run.latency_limit_ms.is_some() && run.rate_tps.is_some(),
            has_retries: run.tries_max != 1,
            seconds: 0,
            last: (None, Counts::default()),
        }
    }

    /// A second has passed.
    fn tick(&mut self, shared: &Shared) {
        self.seconds += 1;
        let Some(every_s) = self.every_s else { return };
        let Some(began) = shared.began.get().filter(|_| self.seconds.is_multiple_of(every_s)) else { return };
        let now = Moment::now();
        let mut counts = Counts::default();
        for thread in &shared.figures {
            counts.merge(&thread.lock().unwrap_or_else(PoisonError::into_inner).all());
        }
        let since = counts.since(&self.last.1);
        let took_s = (now - self.last.0.unwrap_or(*began)).as_secs_f64();
        self.last = (Some(now), counts);
        tell(&self.line(&since, took_s, (now - *began).as_secs_f64()));
    }

    fn line(&self, since: &Counts, took_s: f64, at_s: f64) -> String {
        let at = match self.has_timestamps {
            true => {
                let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                format!("{}.{:03}", unix.as_secs(), unix.subsec_millis())
            }
            false => format!("{at_s:.1}"),
        };
        let tps = if took_s > 0.0 { since.done() as f64 / took_s } else { 0.0 };
        let (mean, deviation) = (since.latency.mean() / 1000.0, since.latency.deviation() / 1000.0);
        let mut line = format!(
            "progress: {at} s, {tps:.1} tps, lat {mean:.3} ms stddev {deviation:.3}, {} failed",
            since.failed()
        );
        if self.has_lag {
            line.push_str(&format!(", lag {:.3} ms", since.lag.mean() / 1000.0));
        }
        if self.has_skipped {
            line.push_str(&format!(", {} skipped", since.skipped));
        }
        if self.has_retries {
            line.push_str(&format!(", {} retried, {} retries", since.retried, since.retries));
        }
        line
    }
}
