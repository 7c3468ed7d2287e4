//! Carries out `main`: each initialised client walks through it on its own, ignoring lines that name others, so
//! that several kinds of clients run at the same time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use load::{Length, LoadPlan, Pacing, RetryPolicy, Step, Stop};
use wire::{Endpoint, Protocol, Secret, Target};
use workload::Dialect;

use crate::arguments::argument;
use crate::error::Error;
use crate::program::{DataDir, Definitions};
use crate::report::{Report, Timing};
use crate::session::{Order, Printer, Shared};
use crate::syntax::{Client, ConnectFigure, Expression, GroupFigure, Method, Statement};
use crate::{parse, table};

/// What the command line says.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which protocol (`-d`).
    pub protocol: Protocol,
    /// Data directory (`-D`) and permission for shell commands.
    pub data: DataDir,
    /// `$1`, `$2`, ...
    pub arguments: Vec<String>,
    /// Faithful or fixed.
    pub timing: Timing,
    /// A server to use instead of those that the clients of the file name.
    pub server: Option<Target>,
    /// Seed of the draws.
    pub seed: u64,
    /// Worker threads; `None`: one for two cpus.
    pub workers: Option<usize>,
    /// Appended to CREATE TABLE statements (an engine clause); empty for none.
    pub create_suffix: String,
    /// Whether a server has room for so many bytes of rows, else why not.
    pub room: fn(&Target, u64) -> Result<(), String>,
}

/// Runs a file; `name` is used in messages. Reports of clients are printed and returned, in the order in which
/// they ended.
///
/// # Errors
/// The first mistake in the file, or the first client that failed.
pub fn run(
    name: &str,
    source: &str,
    options: &Options,
    print: &Printer,
    stop: &Stop,
) -> Result<Vec<Report>, Error> {
    let script = parse::parse(source).map_err(|error| error.in_file(name, source))?;
    if let Some(server) = &options.server {
        workload::create_database(server)?;
    }
    let definitions = Definitions::build(&script, &options.data, &mut |found, so_far| {
        let Some(client) = so_far.client(&found.client) else { return Ok(()) };
        let target = target(client, options);
        if options.server.is_none() {
            // Where it may not be created, the connection to it fails next, and says more than this does.
            let _ = workload::create_database(&target);
        }
        let how = table::How { suffix: &options.create_suffix, anew: false, stop, room: options.room };
        table::make(found, &target, &options.data, &how).map(drop)
    })?;
    let everything = Everything { definitions: &definitions, options, print, stop };
    let mut variables = BTreeMap::new();
    let reports = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let mut controllers = Vec::new();
        for (at, statement) in script.main.iter().enumerate() {
            match statement {
                Statement::Assign { name, value } => {
                    let value = everything.value(value, &variables, &reports)?;
                    variables.insert(name.clone(), value);
                }
                Statement::Call { client, method: Method::Init, .. } => {
                    let Some(client) = definitions.client(client) else { continue };
                    let (rest, variables) = (&script.main[at + 1..], variables.clone());
                    let (everything, reports) = (&everything, &reports);
                    controllers.push(scope.spawn(move || {
                        let mut controller = Controller::new(everything, client, variables, reports)?;
                        controller.walk(rest)
                    }));
                }
                Statement::Call { .. } => {}
            }
        }
        for controller in controllers {
            controller
                .join()
                .map_err(|_| Error::Main { line: None, message: "a client's thread panicked".into() })??;
        }
        Ok::<(), Error>(())
    })?;
    Ok(reports.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// Where a client of the file connects, or the server of the command line with the client's database. What the file does
/// not name comes from the variables that `plimsoll sandbox env` prints.
pub fn target(client: &Client, options: &Options) -> Target {
    let database = (!client.db.is_empty()).then(|| client.db.clone());
    if let Some(server) = &options.server {
        return Target { database: server.database.clone().or(database), ..server.clone() };
    }
    let text = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let local = client.host.is_empty() || client.host == "localhost";
    let port = client.port.unwrap_or(options.protocol.default_port());
    let endpoint = match options.protocol {
        _ if !local => Endpoint::Tcp { host: client.host.clone(), port },
        _ if !client.socket.is_empty() => Endpoint::Unix(PathBuf::from(&client.socket)),
        Protocol::Mysql => Endpoint::Unix(PathBuf::from(
            text("MYSQL_UNIX_PORT").unwrap_or_else(|| "/var/run/mysqld/mysqld.sock".into()),
        )),
        Protocol::Postgres => {
            let directory = text("PGHOST").unwrap_or_else(|| "/var/run/postgresql".into());
            let port = text("PGPORT").and_then(|p| p.parse().ok()).unwrap_or(port);
            Endpoint::Unix(PathBuf::from(directory).join(format!(".s.PGSQL.{port}")))
        }
    };
    let (variable, administrator) = match options.protocol {
        Protocol::Mysql => ("MYSQL_USER", "root"),
        Protocol::Postgres => ("PGUSER", "postgres"),
    };
    let user = if client.user.is_empty() {
        text(variable).unwrap_or_else(|| administrator.to_owned())
    } else {
        client.user.clone()
    };
    let mut target = Target {
        password: Secret::new(client.pass.clone()),
        database,
        statement_timeout: Duration::from_secs(3600),
        ..Target::new(options.protocol, endpoint, user)
    };
    // As the original does, whose client libraries look there. A password that cannot be used shows itself in the log-in.
    let _ = wire::passwords::complete(&mut target);
    target
}

struct Everything<'a> {
    definitions: &'a Definitions,
    options: &'a Options,
    print: &'a Printer,
    stop: &'a Stop,
}

impl Everything<'_> {
    fn value(
        &self,
        expression: &Expression,
        variables: &BTreeMap<String, String>,
        reports: &Mutex<Vec<Report>>,
    ) -> Result<String, Error> {
        let figure = |client: &str, take: &dyn Fn(&Report) -> Option<f64>| {
            let reports = reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            reports.iter().rev().find(|r| r.client == client).and_then(take).unwrap_or(0.0).to_string()
        };
        Ok(match expression {
            Expression::Number(number) => number.to_string(),
            Expression::Text(text) => text.clone(),
            Expression::Argument(number) => argument(*number, &self.options.arguments)?.to_owned(),
            Expression::Variable(name) => variables.get(name).cloned().unwrap_or_default(),
            Expression::Concat(left, right) => {
                self.value(left, variables, reports)? + &self.value(right, variables, reports)?
            }
            Expression::Connect(client, which) => figure(client, &|report| {
                Some(match which {
                    ConnectFigure::Max => report.connect_max_ms,
                    ConnectFigure::Min => report.connect_min_ms,
                    ConnectFigure::Avg => report.connect_avg_ms,
                })
            }),
            Expression::Group(client, group, which) => figure(client, &|report| {
                let group = report.groups.get(group)?;
                Some(match which {
                    GroupFigure::NumQueries => group.num_queries as f64,
                    GroupFigure::MaxTime => group.max_time_ms,
                    GroupFigure::MinTime => group.min_time_ms,
                    GroupFigure::QPerS => group.q_per_s,
                })
            }),
        })
    }
}

/// One client's course through `main`.
struct Controller<'a> {
    everything: &'a Everything<'a>,
    client: &'a Client,
    shared: Shared,
    variables: BTreeMap<String, String>,
    reports: &'a Mutex<Vec<Report>>,
    rounds: u64,
    /// Instances and the clock, once `create_threads` was met.
    started: Option<(u32, Instant)>,
    orders: Vec<Order>,
    connected: bool,
}

impl<'a> Controller<'a> {
    fn new(
        everything: &'a Everything<'a>,
        client: &'a Client,
        variables: BTreeMap<String, String>,
        reports: &'a Mutex<Vec<Report>>,
    ) -> Result<Controller<'a>, Error> {
        let options = everything.options;
        let target = target(client, options);
        let fault = |source| Error::Server { client: client.name.clone(), source };
        let probe = wire::blocking::Client::connect(&target).map_err(fault)?;
        let shared = Shared {
            barrel: everything.definitions.barrel(client)?,
            orders: Vec::new().into(),
            dialect: Dialect::of_server(target.protocol, &probe.server().version),
            target,
            seed: options.seed,
            print: everything.print.clone(),
            figures: Arc::default(),
        };
        Ok(Controller {
            everything,
            client,
            shared,
            variables,
            reports,
            rounds: 1,
            started: None,
            orders: Vec::new(),
            connected: false,
        })
    }

    fn walk(&mut self, statements: &[Statement]) -> Result<(), Error> {
        for statement in statements {
            match statement {
                Statement::Assign { name, value } => {
                    let value = self.everything.value(value, &self.variables, self.reports)?;
                    self.variables.insert(name.clone(), value);
                }
                Statement::Call { client, method, arguments, place } if *client == self.client.name => {
                    let values = arguments
                        .iter()
                        .map(|value| self.everything.value(value, &self.variables, self.reports))
                        .collect::<Result<Vec<String>, Error>>()?;
                    self.call(*method, &values).map_err(|error| match error {
                        Error::Main { message, .. } => Error::Main { line: Some(place.line), message },
                        other => other,
                    })?;
                }
                Statement::Call { .. } => {}
            }
        }
        if self.started.is_some() || !self.orders.is_empty() {
            self.collect()?;
        }
        Ok(())
    }

    fn call(&mut self, method: Method, values: &[String]) -> Result<(), Error> {
        let value = |index: usize| values.get(index).map(String::as_str).unwrap_or_default();
        let whole = |index: usize| {
            let text = value(index);
            let wrong = |why| Error::Main { line: None, message: format!("this is `{text}`, and {why}") };
            method.number(index, text).map_err(wrong)
        };
        match method {
            Method::Init => {}
            Method::SetNumRounds => self.rounds = whole(0)?,
            Method::CreateThreads => {
                // No more than a hundred thousand.
                self.started = Some((whole(0)? as u32, Instant::now()));
            }
            Method::Connect => self.connected = true,
            Method::UnloadQueryBarrel => {
                if !self.connected {
                    let message = format!("client {} fires before connect()", self.client.name);
                    return Err(Error::Main { line: None, message });
                }
                self.orders.push(Order::Unload { rounds: Some(self.rounds) });
            }
            Method::CollectThreads => self.collect()?,
            // Closing belongs to the end of an instance; nothing is left open afterwards.
            Method::Disconnect => self.connected = false,
            Method::Print => self.orders_or(Order::Print(value(0).to_owned()))?,
            Method::Sleep => {
                let pause = Duration::from_secs(whole(0)?) + Duration::from_millis(whole(1)?);
                self.orders_or(Order::Sleep(pause))?;
            }
            Method::Query => self.orders_or(Order::Query(value(0).to_owned()))?,
            Method::RunSaveResult => self.save(value(0), value(1))?,
        }
        Ok(())
    }

    /// Between `create_threads` and `collect_threads` each instance does it, otherwise the controller, now.
    fn orders_or(&mut self, order: Order) -> Result<(), Error> {
        if self.started.is_some() {
            self.orders.push(order);
            return Ok(());
        }
        match order {
            Order::Print(text) => self.everything.print.text(&text),
            Order::Sleep(pause) => std::thread::sleep(pause),
            Order::Query(sql) => {
                let mut client = self.connection()?;
                client.query(&sql).map_err(|source| self.server_error(source))?;
            }
            Order::Unload { .. } => self.orders.push(order),
        }
        Ok(())
    }

    fn connection(&self) -> Result<wire::blocking::Client, Error> {
        wire::blocking::Client::connect(&self.shared.target).map_err(|source| self.server_error(source))
    }

    fn server_error(&self, source: wire::Error) -> Error {
        Error::Server { client: self.client.name.clone(), source }
    }

    fn save(&mut self, query: &str, file: &str) -> Result<(), Error> {
        let Some(query) = self.everything.definitions.queries.iter().find(|q| q.name == query) else {
            return Err(Error::Main { line: None, message: format!("no query \"{query}\"") });
        };
        let mut client = self.connection()?;
        let mut text = String::new();
        client
            .query_rows(&query.text, &mut |row| {
                let values: Vec<_> = (0..row.len())
                    .map(|i| row.get(i).map_or("NULL".into(), String::from_utf8_lossy))
                    .collect();
                text.push_str(&values.join("\t"));
                text.push('\n');
            })
            .map_err(|source| self.server_error(source))?;
        if file == "-" {
            self.everything.print.text(&text);
            return Ok(());
        }
        let path = self.everything.options.data.file(file)?;
        std::fs::write(&path, text).map_err(|source| Error::File { path, source })
    }

    /// Runs what the instances were told, waits for them, prints the report.
    fn collect(&mut self) -> Result<(), Error> {
        let (sessions, since) = self.started.take().unwrap_or((1, Instant::now()));
        self.shared.orders = std::mem::take(&mut self.orders).into();
        let plan = LoadPlan {
            steps: vec![Step {
                sessions,
                warmup: Duration::ZERO,
                length: Length::Transactions { count: u64::MAX, at_most: None },
                pacing: Pacing::Closed,
            }],
            workers: self.everything.options.workers,
            retry: RetryPolicy { retries_max: 0, backoff: Duration::ZERO, backoff_max: Duration::ZERO },
            connect_limit: Duration::from_secs(60),
            silence_limit: self.shared.target.statement_timeout,
            seed: self.everything.options.seed,
            ..LoadPlan::default()
        };
        let result = load::run(&plan, &self.shared, &mut |_| {}, self.everything.stop)?;
        let wall = since.elapsed();
        let figures = std::mem::take(
            &mut *self.shared.figures.lock().unwrap_or_else(std::sync::PoisonError::into_inner),
        );
        let timing = self.everything.options.timing;
        let report = Report::new(&self.client.name, &self.shared.barrel.groups, &figures, wall, timing);
        self.everything.print.text(&report.text());
        self.reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(report);
        let failed: u64 = result.steps.iter().flat_map(|s| s.errors.values()).map(|e| e.count).sum();
        let first = result.steps.iter().flat_map(|s| s.errors.iter()).next();
        match first {
            Some((code, tally)) => Err(Error::Queries {
                client: self.client.name.clone(),
                count: failed,
                text: format!("{code}: {}", tally.text),
            }),
            None => Ok(()),
        }
    }
}
