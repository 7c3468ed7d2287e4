//! A private instance of a build.

mod deploy;
mod leftovers;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

pub use deploy::check_env;
pub(crate) use deploy::random_password;
pub use leftovers::leftovers;

use crate::build::Version;
use crate::process;
use crate::record::{Lock, Record};
use crate::server::{self, mysql, postgres, probe};
use crate::{Build, Durability, Error, Flavor, Home, OnProgress, Settings, Spec};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    Deploying,
    /// Its server answers or is starting.
    Running,
    /// There, but its server is not running.
    Stopped,
}

impl State {
    /// `deploying`, `running`, `stopped`.
    pub fn name(self) -> &'static str {
        match self {
            State::Deploying => "deploying",
            State::Running => "running",
            State::Stopped => "stopped",
        }
    }
}

/// A sandbox as seen from outside.
#[derive(Debug, Clone)]
pub struct Status {
    pub name: String,
    /// `flavor@version[+label]`.
    pub build: String,
    pub state: State,
    /// Process id of the server.
    pub pid: Option<u32>,
    /// Unix socket.
    pub socket: PathBuf,
    /// Port on 127.0.0.1, when it has one.
    pub port: Option<u16>,
    pub datadir: PathBuf,
    /// Uid of the server process; `None` is that of whoever starts it.
    pub uid: Option<u32>,
    /// Whether it belongs to a run (destroyed with it) rather than to the user.
    pub of_run: bool,
    /// What a crash may lose under its settings.
    pub durability: Durability,
    /// Size of the data directory in bytes.
    pub data_bytes: u64,
}

/// How a stop went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopReport {
    /// How long until the process was gone.
    pub took: Duration,
    /// Whether it had to be killed because it did not end in time.
    pub killed: bool,
}

/// How long a server may take until it answers; old versions write their logs full of zeros first.
const START_PATIENCE: Duration = Duration::from_secs(180);
/// How often a server that starts is looked for its socket.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// How long a graceful stop may take before force.
const STOP_PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait for another plimsoll that works on the same sandbox.
const LOCK_PATIENCE: Duration = Duration::from_secs(30);

/// A private instance of a build. One deployed with [`crate::Life::Run`] is destroyed when dropped.
#[derive(Debug)]
pub struct Sandbox {
    record: Record,
    dir: PathBuf,
    child: Option<Child>,
    /// Held for the whole life of a run's sandbox, by which others know that it is looked after.
    lock: Option<Lock>,
    is_destroyed: bool,
}

impl Sandbox {
    /// Makes the data directory (or restores the snapshot), starts the server and waits until it answers. On failure
    /// nothing is left.
    pub fn deploy(home: &Home, spec: &Spec, progress: OnProgress<'_>) -> Result<Sandbox, Error> {
        deploy::deploy(home, spec, progress)
    }

    /// A sandbox deployed before, by name.
    pub fn open(home: &Home, name: &str) -> Result<Sandbox, Error> {
        check_name(name)?;
        let dir = home.sandboxes().join(name);
        if !dir.is_dir() {
            return Err(Error::NoSandbox { name: name.to_owned() });
        }
        let record = Record::read(&dir)?;
        Ok(Sandbox { record, dir, child: None, lock: None, is_destroyed: false })
    }

    /// All sandboxes of a home, by name.
    pub fn list(home: &Home) -> Result<Vec<Status>, Error> {
        let Ok(entries) = std::fs::read_dir(home.sandboxes()) else { return Ok(Vec::new()) };
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok())
            .filter(|name| check_name(name).is_ok())
            .collect();
        names.sort();
        // One that is destroyed while we look is not there any more.
        names
            .iter()
            .filter_map(|name| Sandbox::open(home, name).ok())
            .map(|sandbox| sandbox.status())
            .collect()
    }

    pub fn name(&self) -> &str {
        &self.record.name
    }

    pub fn build(&self) -> &Build {
        &self.record.build
    }

    pub fn datadir(&self) -> &Path {
        &self.record.datadir
    }

    /// Its own directory: record, log, scratch.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    pub fn socket(&self) -> PathBuf {
        match self.record.build.flavor {
            Flavor::Postgres => {
                self.record.run_dir.join(format!(".s.PGSQL.{}", postgres::socket_port(&self.record)))
            }
            Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => self.record.run_dir.join(mysql::SOCKET),
        }
    }

    /// Starts the server and waits until it answers; nothing to do when it runs.
    pub fn start(&mut self) -> Result<(), Error> {
        let _lock = self.hold()?;
        self.record.check_own()?;
        if self.pid().is_some() {
            return self.wait_until_ready();
        }
        if let Some(port) = self.record.port {
            deploy::check_port(&self.record, port)?;
        }
        // A socket that a crashed server left would look like a live one to nobody, but PostgreSQL and MySQL differ in
        // whether they take its place.
        let _ = std::fs::remove_file(self.socket());
        let launch = server::launch(&self.record, &self.dir)?;
        let child = process::spawn(launch)
            .map_err(|e| self.start_error(format!("its program cannot be run ({e})")))?;
        self.child = Some(child);
        let ready = self.wait_until_ready();
        if ready.is_err() {
            process::kill_all_of(&self.record.family(), self.child.as_mut());
            self.child = None;
        }
        ready
    }

    fn wait_until_ready(&mut self) -> Result<(), Error> {
        let deadline = Instant::now() + START_PATIENCE;
        let mut pause = Duration::from_millis(1);
        let (socket, target) = (self.socket(), self.target(None));
        let build = &self.record.build;
        let tells_in_file = build.flavor == Flavor::Postgres && build.numbers() >= Version(10, 0, 0, 0);
        loop {
            let is_worth_asking = !tells_in_file || probe::postgres_says_ready(&self.record.datadir);
            if is_worth_asking && probe::answers(&target, &socket) {
                return Ok(());
            }
            let ended = match self.child.as_mut() {
                Some(child) => {
                    child.try_wait().ok().flatten().map(|status| format!("it ended with {status}"))
                }
                None => self.pid().is_none().then(|| "it ended".to_owned()),
            };
            if let Some(why) = ended {
                return Err(self.start_error(why));
            }
            if Instant::now() >= deadline {
                return Err(
                    self.start_error(format!("it did not answer within {} s", START_PATIENCE.as_secs()))
                );
            }
            // To look for a socket costs the server nothing; one that is there and refuses is asked less often.
            let longest = if socket.exists() { process::PAUSE_MAX } else { LOOK_EVERY };
            std::thread::sleep(pause.min(longest));
            pause = (pause * 3 / 2).min(process::PAUSE_MAX);
        }
    }

    fn start_error(&self, why: String) -> Error {
        let log = self.log_tail(20).join("\n");
        let cause = server::cause_in(&log).map_or_else(String::new, |cause| format!(": {cause}"));
        let why = format!("{why}{cause}{}", server::out_of_space(&self.record.datadir, &log));
        Error::Start { build: self.record.build.name(), why, log }
    }

    /// Stops the server gracefully, and by force after `patience`. Nothing to do when it does not run.
    pub fn stop_within(&mut self, patience: Duration) -> Result<StopReport, Error> {
        let _lock = self.hold()?;
        let begin = Instant::now();
        let mut killed = false;
        if let Some(pid) = self.pid() {
            let family = self.record.family();
            family.signal(pid, server::stop_signal(self.record.build.flavor));
            if !process::wait_gone(&family, Some(pid), self.child.as_mut(), patience) {
                killed = true;
                process::kill_all_of(&family, self.child.as_mut());
            }
        }
        self.reap();
        Ok(StopReport { took: begin.elapsed(), killed })
    }

    /// [`Sandbox::stop_within`] two minutes.
    pub fn stop(&mut self) -> Result<StopReport, Error> {
        self.stop_within(STOP_PATIENCE)
    }

    pub fn restart(&mut self) -> Result<StopReport, Error> {
        let report = self.stop()?;
        self.start()?;
        Ok(report)
    }

    /// Stops it, empties the page cache, and starts it: a cold start. Returns whether the whole machine's cache was
    /// emptied (root only) or just that of the data directory's files.
    pub fn restart_cold(&mut self) -> Result<bool, Error> {
        self.stop()?;
        let is_all = crate::storage::drop_caches(&self.record.datadir)?;
        self.start()?;
        Ok(is_all)
    }

    /// What its data directory's place is made of.
    pub fn storage_facts(&self) -> Result<crate::storage::StorageFacts, Error> {
        crate::storage::facts(&self.record.datadir)
    }

    /// Variables of the server's process that were asked for.
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.record.env
    }

    pub fn limits(&self) -> &crate::Limits {
        &self.record.limits
    }

    /// Ends the server at once with SIGKILL, as a crash would.
    pub fn kill(&mut self) -> Result<(), Error> {
        let _lock = self.hold()?;
        process::kill_all_of(&self.record.family(), self.child.as_mut());
        self.reap();
        Ok(())
    }

    fn reap(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It has ended; waiting only removes the zombie.
            let _ = child.wait();
        }
    }

    /// Ends the server and removes everything of the sandbox.
    pub fn destroy(mut self) -> Result<(), Error> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), Error> {
        if self.is_destroyed {
            return Ok(());
        }
        let _lock = self.hold()?;
        leftovers::end_all_of(&self.record, self.child.as_mut());
        self.reap();
        leftovers::remove_all_of(&self.record, &self.dir)?;
        self.is_destroyed = true;
        Ok(())
    }

    /// The lock that keeps other processes from working on it at the same time; a run's sandbox holds it anyway.
    fn hold(&self) -> Result<Option<Lock>, Error> {
        if self.lock.is_some() {
            return Ok(None);
        }
        let gone = || Error::NoSandbox { name: self.record.name.clone() };
        if !self.dir.is_dir() {
            return Err(gone());
        }
        let lock = Lock::take(&self.dir, LOCK_PATIENCE)?
            .ok_or_else(|| Error::Busy { what: format!("the sandbox {}", self.record.name), holder: None })?;
        // It may have been destroyed while we waited.
        if !self.dir.join("sandbox.json").is_file() { Err(gone()) } else { Ok(Some(lock)) }
    }

    /// What it is doing.
    pub fn status(&self) -> Result<Status, Error> {
        let pid = self.pid();
        let state = match pid {
            _ if !self.record.ready => State::Deploying,
            Some(_) => State::Running,
            None => State::Stopped,
        };
        Ok(Status {
            name: self.record.name.clone(),
            build: self.record.build.name(),
            state,
            pid,
            socket: self.socket(),
            port: self.record.port,
            datadir: self.record.datadir.clone(),
            uid: self.record.ids.map(|ids| ids.uid),
            of_run: self.record.of_run,
            durability: self.durability(),
            data_bytes: crate::storage::bytes_below(&self.record.datadir),
        })
    }

    /// How to connect as the administrator over the socket; `None` for no database (PostgreSQL: `postgres`).
    pub fn target(&self, database: Option<&str>) -> wire::Target {
        let is_postgres = self.record.build.flavor == Flavor::Postgres;
        wire::Target {
            protocol: self.record.build.flavor.protocol(),
            endpoint: wire::Endpoint::Unix(self.socket()),
            user: if is_postgres { "postgres" } else { "root" }.to_owned(),
            password: wire::Secret::default(),
            database: database.map(str::to_owned).or_else(|| is_postgres.then(|| "postgres".to_owned())),
            tls: wire::TlsMode::Disabled,
            tls_ca: None,
            tls_client: wire::TlsClient::default(),
            is_compressed: false,
            connect_timeout: Duration::from_secs(10),
            statement_timeout: Duration::from_secs(300),
        }
    }

    /// The same over TCP, when it has a port; over TLS when the sandbox offers it.
    pub fn tcp_target(&self, database: Option<&str>) -> Option<wire::Target> {
        let endpoint =
            wire::Endpoint::Tcp { host: self.record.address().to_string(), port: self.record.port? };
        let password = wire::Secret::new(self.record.password.clone());
        let tls = if self.record.tls { wire::TlsMode::VerifyCa } else { wire::TlsMode::Disabled };
        Some(wire::Target { endpoint, password, tls, tls_ca: self.tls_ca(), ..self.target(database) })
    }

    /// PEM file of the authority that signed the server's certificate, when it offers TLS.
    pub fn tls_ca(&self) -> Option<PathBuf> {
        self.record.tls.then(|| self.dir.join("tls/ca.pem"))
    }

    /// A certificate of the same authority for users that have to show one; it names `plimsoll` (CN).
    pub fn tls_client(&self) -> Option<wire::TlsClient> {
        let file = |name: &str| Some(self.dir.join("tls").join(name));
        self.record.tls.then(|| wire::TlsClient {
            certificate: file("client.pem"),
            key: file("client.key"),
            ciphers: String::new(),
        })
    }

    /// The first value that the administrator is answered.
    pub(crate) fn ask(&self, sql: &str) -> Result<Option<String>, Error> {
        self.ask_column(sql, 0)
    }

    /// The value of a column, from 0, of the first row that the administrator is answered.
    pub(crate) fn ask_column(&self, sql: &str, column: usize) -> Result<Option<String>, Error> {
        let fail = |source| Error::Wire { build: self.record.build.name(), source };
        let mut client = wire::blocking::Client::connect(&self.target(None)).map_err(fail)?;
        let sets = client.query_sets(sql).map_err(fail)?;
        client.close();
        Ok(sets.first().and_then(|set| set.text(0, column)).map(str::to_owned))
    }

    /// Port on 127.0.0.1, when it has one.
    pub fn port(&self) -> Option<u16> {
        self.record.port
    }

    /// Process id of the server, while it runs.
    pub fn pid(&self) -> Option<u32> {
        if let Some(child) = &self.child {
            return Some(child.id()).filter(|&pid| process::is_alive(pid));
        }
        self.record.family().head()
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> Vec<String> {
        process::tail(&self.log_path(), lines)
    }

    /// Connection settings for other tools: MYSQL_UNIX_PORT, MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_USER; PGHOST, PGPORT,
    /// PGUSER, PGDATABASE.
    pub fn env_vars(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: String| (name.to_owned(), value);
        if self.record.build.flavor == Flavor::Postgres {
            return vec![
                pair("PGHOST", self.record.run_dir.display().to_string()),
                pair("PGPORT", postgres::socket_port(&self.record).to_string()),
                pair("PGUSER", "postgres".to_owned()),
                pair("PGDATABASE", "postgres".to_owned()),
            ];
        }
        let mut vars = vec![
            pair("MYSQL_UNIX_PORT", self.socket().display().to_string()),
            // Clients take this name for "over the socket".
            pair("MYSQL_HOST", "localhost".to_owned()),
            pair("MYSQL_USER", "root".to_owned()),
        ];
        vars.extend(self.record.port.map(|port| pair("MYSQL_TCP_PORT", port.to_string())));
        vars
    }

    /// The settings it is started with, paths and ports apart.
    pub fn settings(&self) -> &Settings {
        &self.record.settings
    }

    /// What a crash may lose under its settings, in the place of its data.
    pub fn durability(&self) -> Durability {
        let is_in_memory = self.storage_facts().is_ok_and(|facts| facts.is_in_memory());
        if is_in_memory { Durability::Volatile } else { self.record.durability }
    }

    /// The settings that decide [`Sandbox::durability`], in one notation.
    pub fn deciding_settings(&self) -> Settings {
        crate::settings::defaults::deciding(self.record.build.flavor, &self.record.settings)
    }

    /// All variables as the running server reports them; PostgreSQL's with their units as `SHOW` gives them.
    pub fn reported_settings(&self) -> Result<Settings, Error> {
        crate::settings::reported(&self.record.build, &self.target(None))
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if self.record.of_run && self.lock.is_some() {
            // Nobody is left to tell; what remains is found by the next start's `leftovers`.
            let _ = self.remove();
        }
    }
}

/// What people call a flavour, without case and separators.
const SPELLINGS: [(&str, Flavor); 11] = [
    ("mysql", Flavor::Mysql),
    ("mysqld", Flavor::Mysql),
    ("mysqlserver", Flavor::Mysql),
    ("mariadb", Flavor::Mariadb),
    ("mariadbd", Flavor::Mariadb),
    ("mariadbserver", Flavor::Mariadb),
    ("percona", Flavor::Percona),
    ("perconaserver", Flavor::Percona),
    ("postgres", Flavor::Postgres),
    ("postgresql", Flavor::Postgres),
    ("pgsql", Flavor::Postgres),
];

/// A name for a new sandbox: one that `--server` takes for a flavour could not be reached by it, and one that readers
/// take for a flavour would be read wrongly.
pub(crate) fn check_new_name(name: &str) -> Result<(), Error> {
    check_name(name)?;
    let plain: String =
        name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let Some((_, flavor)) = SPELLINGS.iter().find(|(spelling, _)| *spelling == plain) else { return Ok(()) };
    let flavor = flavor.name();
    let why = match name == flavor {
        true => format!("that is the name of a flavour, and `--server {name}` means its builds"),
        false => format!("that is a name of the flavour {flavor}, whose builds `--server {flavor}` means"),
    };
    let why = format!("{why}: choose another --name");
    Err(Error::Unsupported { what: format!("a sandbox named {name}"), why })
}

/// A name that is a plain file name and short enough for a socket's path.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    let begins_well = name.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
    if begins_well && name.len() <= 40 && name.bytes().all(plain) {
        Ok(())
    } else {
        Err(Error::Name { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flavours_name_is_no_name_for_a_new_sandbox() {
        for name in [
            "mysql",
            "mariadb",
            "percona",
            "postgres",
            "MySQL",
            "MariaDB",
            "mysqld",
            "PostgreSQL",
            "Percona-Server",
        ] {
            let error = check_new_name(name).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains("choose another --name"), "{error}");
            // One that is there already can still be stopped and destroyed.
            assert!(check_name(name).is_ok());
        }
        for name in ["mariadb-10", "MySQL-8.0", "mysql2", "pg"] {
            assert!(check_new_name(name).is_ok(), "{name}");
        }
        for name in ["mariadb@10.11", "mariadb@", "a+b"] {
            assert!(check_new_name(name).is_err(), "{name}");
        }
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["a", "pg15", "run-1.mariadb_10"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "a".repeat(41);
        for name in ["", ".", "..", "a/b", "../a", "-a", ".hidden", "a b", "a\0", "ä", &long] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
