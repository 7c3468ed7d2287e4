//! The command line's values as the engine wants them: servers, distributions, the load plan.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use load::{Arrivals, Length, LoadPlan, Pacing, RetryPolicy, Step};
use wire::{Endpoint, Protocol, Secret, Target, TlsClient, TlsMode};
use workload::random::{DistributionKind, GlibcRandom, Rng};

use crate::error::Error;
use crate::host::{Databases, Ignored};
use crate::options::{Compat, Values, switch};
use crate::output::Form;
use crate::symbols::{self, RandomSettings};

/// Restarts of one event before it counts as failed. sysbench restarts for ever, which hides a workload that
/// cannot make progress.
const RESTARTS_MAX: u32 = 10_000;

/// Servers, driver and what to ignore.
///
/// # Errors
/// An option that is not supported, a number that is none.
pub(crate) fn databases(values: &Values) -> Result<Databases, Error> {
    let (mut mysql, mut pgsql) = (mysql_targets(values)?, pgsql_targets(values)?);
    // As libmysqlclient and libpq do, whose environment and files the original reads; of the servers in use only.
    let used = if values.text("db-driver") == "pgsql" { &mut pgsql } else { &mut mysql };
    for target in used {
        wire::passwords::complete(target).map_err(|error| Error::Usage(error.to_string()))?;
    }
    let is_emulated = match values.text("db-ps-mode") {
        "auto" => false,
        "disable" => true,
        other => {
            return Err(Error::Usage(format!("invalid value for --db-ps-mode: '{other}' (auto, disable)")));
        }
    };
    let mut ignored = Ignored::default();
    for item in values.list("mysql-ignore-errors") {
        match item.parse() {
            _ if item == "all" => ignored.all = true,
            Ok(number) => ignored.numbers.push(number),
            Err(_) => {
                return Err(Error::Usage(format!("--mysql-ignore-errors: '{item}' is no error number")));
            }
        }
    }
    let is_debugged = values.is_on("db-debug") || values.is_on("mysql-debug");
    Ok(Databases {
        mysql,
        pgsql,
        ignored,
        driver: values.text("db-driver").to_owned(),
        is_emulated,
        is_debugged,
        is_used: Arc::default(),
        is_dry: values.is_on("mysql-dry-run"),
        counters: Arc::default(),
    })
}

fn target(protocol: Protocol, endpoint: Endpoint, values: &Values, prefix: &str) -> Target {
    let text = |name: &str| values.text(&format!("{prefix}-{name}")).to_owned();
    Target {
        password: Secret::new(text("password")),
        database: Some(text("db")).filter(|db| !db.is_empty()),
        connect_timeout: Duration::from_secs(values.count("thread-init-timeout").max(1)),
        // sysbench waits for a statement for ever; a silent server must end in an error all the same.
        statement_timeout: Duration::from_secs(3600),
        ..Target::new(protocol, endpoint, text("user"))
    }
}

fn ports(values: &Values, name: &str) -> Result<Vec<u16>, Error> {
    values
        .list(name)
        .iter()
        .map(|text| text.parse().map_err(|_| Error::Usage(format!("--{name}: '{text}' is no port"))))
        .collect()
}

fn mysql_targets(values: &Values) -> Result<Vec<Target>, Error> {
    let tls = match values.text("mysql-ssl").to_ascii_lowercase().as_str() {
        "disabled" => TlsMode::Disabled,
        "preferred" => TlsMode::Preferred,
        "required" => TlsMode::Required,
        "verify_ca" => TlsMode::VerifyCa,
        "verify_identity" => TlsMode::VerifyFull,
        other => match switch(other) {
            Some(true) => TlsMode::Required,
            Some(false) => TlsMode::Disabled,
            None => return Err(Error::Usage(format!("invalid value for --mysql-ssl: '{other}'"))),
        },
    };
    let (tls_ca, tls_client) = mysql_certificates(values, tls);
    let sockets = values.list("mysql-socket");
    let hosts = values.list("mysql-host");
    let ports = ports(values, "mysql-port")?;
    let mut endpoints: Vec<Endpoint> =
        sockets.iter().map(|path| Endpoint::Unix(PathBuf::from(path))).collect();
    if endpoints.is_empty() {
        for host in &hosts {
            // libmysqlclient takes `localhost` to mean the socket, unless a port says otherwise.
            if host == "localhost" && !values.is_given("mysql-port") {
                let path =
                    std::env::var("MYSQL_UNIX_PORT").unwrap_or_else(|_| "/run/mysqld/mysqld.sock".into());
                endpoints.push(Endpoint::Unix(PathBuf::from(path)));
                continue;
            }
            endpoints.extend(ports.iter().map(|port| Endpoint::Tcp { host: host.clone(), port: *port }));
        }
    }
    if endpoints.is_empty() {
        return Err(Error::Usage("--mysql-host and --mysql-socket are both empty".into()));
    }
    let with = |endpoint| Target {
        tls,
        tls_ca: tls_ca.clone(),
        tls_client: tls_client.clone(),
        is_compressed: values.is_on("mysql-compression"),
        ..target(Protocol::Mysql, endpoint, values, "mysql")
    };
    Ok(endpoints.into_iter().map(with).collect())
}

/// The authority's file, and the client's own. Where the options say nothing, sysbench 1.0 takes `cacert.pem`,
/// `client-cert.pem` and `client-key.pem` of the current directory; here each is taken where it exists.
fn mysql_certificates(values: &Values, tls: TlsMode) -> (Option<PathBuf>, TlsClient) {
    if tls == TlsMode::Disabled {
        return (None, TlsClient::default());
    }
    let given = |name: &str| values.get(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let there = |name: &str| Some(PathBuf::from(name)).filter(|path| path.is_file());
    let (mut certificate, mut key) = (given("mysql-ssl-cert"), given("mysql-ssl-key"));
    if certificate.is_none() && key.is_none() {
        (certificate, key) = (there("client-cert.pem"), there("client-key.pem"));
        if certificate.is_none() || key.is_none() {
            (certificate, key) = (None, None);
        }
    }
    let ciphers = values.text("mysql-ssl-cipher").to_owned();
    let ca = given("mysql-ssl-ca").or_else(|| there("cacert.pem"));
    (ca, TlsClient { certificate, key, ciphers })
}

/// As libpq finds them: `PGSSLROOTCERT`, `PGSSLCERT` and `PGSSLKEY`, else the files of `~/.postgresql` that exist.
fn pgsql_certificates(tls: TlsMode) -> (Option<PathBuf>, TlsClient) {
    if tls == TlsMode::Disabled {
        return (None, TlsClient::default());
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".postgresql"));
    let find = |variable: &str, name: &str| {
        let named = std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from);
        named.or_else(|| home.as_ref().map(|home| home.join(name)).filter(|path| path.is_file()))
    };
    let certificate = find("PGSSLCERT", "postgresql.crt");
    let key = certificate.as_ref().and_then(|_| find("PGSSLKEY", "postgresql.key"));
    (find("PGSSLROOTCERT", "root.crt"), TlsClient { certificate, key, ciphers: String::new() })
}

fn pgsql_targets(values: &Values) -> Result<Vec<Target>, Error> {
    let tls = match values.text("pgsql-sslmode") {
        "disable" => TlsMode::Disabled,
        "allow" | "prefer" => TlsMode::Preferred,
        "require" => TlsMode::Required,
        "verify-ca" => TlsMode::VerifyCa,
        "verify-full" => TlsMode::VerifyFull,
        other => return Err(Error::Usage(format!("invalid value for --pgsql-sslmode: '{other}'"))),
    };
    let (tls_ca, tls_client) = pgsql_certificates(tls);
    let ports = ports(values, "pgsql-port")?;
    let mut targets = Vec::new();
    for host in values.list("pgsql-host") {
        for port in &ports {
            let endpoint = if host.starts_with('/') {
                Endpoint::Unix(PathBuf::from(&host).join(format!(".s.PGSQL.{port}")))
            } else {
                Endpoint::Tcp { host: host.clone(), port: *port }
            };
            targets.push(Target {
                tls,
                tls_ca: tls_ca.clone(),
                tls_client: tls_client.clone(),
                ..target(Protocol::Postgres, endpoint, values, "pgsql")
            });
        }
    }
    if targets.is_empty() {
        return Err(Error::Usage("--pgsql-host is empty".into()));
    }
    Ok(targets)
}

/// Distributions behind `sysbench.rand`.
///
/// # Errors
/// An unknown `--rand-type` or a parameter without a meaning.
pub(crate) fn random(values: &Values) -> Result<RandomSettings, Error> {
    let special = DistributionKind::Special {
        iterations: values.count("rand-spec-iter") as u32,
        hot_pct: values.real("rand-spec-pct"),
        draws_pct: values.real("rand-spec-res"),
    };
    let pareto = DistributionKind::Pareto { h: values.real("rand-pareto-h") };
    let zipfian = DistributionKind::Zipfian { exponent: values.real("rand-zipfian-exp") };
    let default = match values.text("rand-type") {
        "uniform" => DistributionKind::Uniform,
        "gaussian" => DistributionKind::Gaussian,
        "special" => special,
        "pareto" => pareto,
        "zipfian" => zipfian,
        other => {
            return Err(Error::Script(format!("Invalid random numbers distribution: {other}.")));
        }
    };
    for kind in [default, special, pareto, zipfian] {
        kind.over(1, 1000).map_err(|error| Error::Usage(format!("--{error}")))?;
    }
    Ok(RandomSettings { default, special, pareto, zipfian })
}

/// The generators of a run. As in sysbench, `run` seeds libc's generator and each thread takes four numbers of it.
/// Commands draw as the first thread does; sysbench seeds them, and its unique numbers, from the clock whatever the
/// seed.
#[derive(Debug)]
pub(crate) struct Generators {
    /// One for each session; at least one.
    pub sessions: Vec<Rng>,
    /// The seed in force.
    pub seed: u32,
}

/// The seed in force: 0 takes the clock's seconds.
pub(crate) fn seed(values: &Values) -> u32 {
    match values.count("rand-seed") {
        0 => std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(1, |d| d.as_secs() as u32),
        given => given as u32,
    }
}

/// Seeds everything.
pub(crate) fn generators(values: &Values, sessions: u32) -> Generators {
    let seed = seed(values);
    let mut source = GlibcRandom::new(seed);
    symbols::seed_unique(seed, !seed);
    Generators { sessions: (0..sessions.max(1)).map(|_| Rng::from_glibc(&mut source)).collect(), seed }
}

/// Sessions asked for.
///
/// # Errors
/// None, or far too many.
pub(crate) fn threads(values: &Values) -> Result<u32, Error> {
    u32::try_from(values.count("threads"))
        .ok()
        .filter(|n| (1..=100_000).contains(n))
        .ok_or_else(|| Error::Script(format!("Invalid value for --threads: {}.\n", values.text("threads"))))
}

/// `--report-checkpoints`: seconds of the run, in order.
///
/// # Errors
/// Something that is no number.
pub(crate) fn checkpoints(values: &Values) -> Result<Vec<u64>, Error> {
    let refused = |text: &String| Error::Script(format!("Invalid value for --report-checkpoints: '{text}'"));
    let parsed: Result<Vec<u64>, Error> = values
        .list("report-checkpoints")
        .iter()
        .map(|text| text.parse().map_err(|_| refused(text)))
        .collect();
    parsed.map(|mut seconds| {
        seconds.sort_unstable();
        seconds.dedup();
        seconds
    })
}

/// What is wrong with the general options is said before anything else.
///
/// # Errors
/// A value without a meaning.
pub(crate) fn check(values: &Values, compat: Compat) -> Result<(), Error> {
    form(values, compat)?;
    checkpoints(values)?;
    random(values).map(drop)
}

/// The load plan of `run`.
///
/// # Errors
/// Values that do not fit together.
pub(crate) fn plan(values: &Values) -> Result<LoadPlan, Error> {
    let time = match values.text("time").parse::<i64>() {
        Ok(seconds) if seconds > 0 => Some(Duration::from_secs(seconds as u64)),
        _ => None,
    };
    let events = values.count("events");
    // Where neither limit is given the run ends with Ctrl-C.
    let for_ever = Duration::from_secs(10 * 365 * 86_400);
    let length = match (events, time) {
        (0, time) => Length::Time(time.unwrap_or(for_ever)),
        (count, at_most) => Length::Transactions { count, at_most },
    };
    let rate = values.count("rate");
    let pacing = match rate {
        0 => Pacing::Closed,
        rate if rate as f64 > load::RATE_MAX_TPS => {
            return Err(Error::Usage(format!(
                "invalid value for --rate: {rate} (at most {:.0} events per second)",
                load::RATE_MAX_TPS
            )));
        }
        rate => Pacing::Open { rate_tps: rate as f64, arrivals: Arrivals::Poisson },
    };
    let sessions = threads(values)?;
    let forced = match values.text("forced-shutdown") {
        "off" => None,
        text => {
            let seconds = text.parse::<u64>().map_err(|_| {
                Error::Usage(format!("invalid value for --forced-shutdown: '{text}' (seconds, or off)"))
            })?;
            Some(Duration::from_secs(seconds))
        }
    };
    let workers = match values.count("workers") {
        _ if values.is_on("thread-per-session") => Some(sessions as usize),
        0 => None,
        workers => Some(workers as usize),
    };
    Ok(LoadPlan {
        steps: vec![Step {
            sessions,
            warmup: Duration::from_secs(values.count("warmup-time")),
            length,
            pacing,
        }],
        workers,
        retry: RetryPolicy {
            retries_max: RESTARTS_MAX,
            backoff: Duration::ZERO,
            backoff_max: Duration::ZERO,
        },
        // Without a forced shutdown sysbench waits for events in flight; an hour bounds a server that is gone.
        // What a rate has queued up is not worked off after the end, as in sysbench.
        drain: forced.unwrap_or(Duration::from_secs(if rate > 0 { 1 } else { 3600 })),
        connect_limit: Duration::from_secs(values.count("thread-init-timeout").max(1)),
        // A session with a thread of its own may wait for a server without telling anybody.
        silence_limit: Duration::from_secs(if values.is_on("thread-per-session") { 86_400 } else { 60 }),
        seed: values.count("rand-seed"),
        ..LoadPlan::default()
    })
}

/// How reports look.
///
/// # Errors
/// A percentile outside of 0 to 100.
pub(crate) fn form(values: &Values, compat: Compat) -> Result<Form, Error> {
    let mut percentiles = Vec::new();
    for text in values.list("percentile") {
        match text.parse::<f64>() {
            Ok(0.0) => {}
            Ok(percent) if percent > 0.0 && percent <= 100.0 => percentiles.push(percent),
            _ => {
                return Err(Error::Script(format!("Invalid value for --percentile: {text}")));
            }
        }
    }
    Ok(Form { compat, percentiles, has_rate: values.count("rate") > 0, threads: threads(values)? })
}
