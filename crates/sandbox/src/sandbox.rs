//! A private instance of a build.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{Build, Error, Home, OnProgress, Settings, Spec};

/// What a sandbox is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Being deployed.
    Deploying,
    /// Its server answers or is starting.
    Running,
    /// There, but its server is not running.
    Stopped,
}

/// A sandbox as seen from outside.
#[derive(Debug, Clone)]
pub struct Status {
    /// Name.
    pub name: String,
    /// `flavor@version[+label]`.
    pub build: String,
    /// What it is doing.
    pub state: State,
    /// Process id of the server.
    pub pid: Option<u32>,
    /// Unix socket.
    pub socket: PathBuf,
    /// Port on 127.0.0.1, when it has one.
    pub port: Option<u16>,
    /// Data directory.
    pub datadir: PathBuf,
    /// Uid of the server process.
    pub uid: u32,
    /// Whether it belongs to a run (destroyed with it) rather than to the user.
    pub of_run: bool,
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

/// A private instance of a build. One deployed with [`crate::Life::Run`] is destroyed when dropped.
#[derive(Debug)]
pub struct Sandbox {
    build: Build,
    dir: PathBuf,
}

impl Sandbox {
    /// Makes the data directory (or restores the snapshot), starts the server and waits until it answers. On failure
    /// nothing is left.
    pub fn deploy(home: &Home, spec: &Spec, progress: OnProgress<'_>) -> Result<Sandbox, Error> {
        let _ = (home, progress);
        Err(Error::NoSandbox { name: spec.name.clone() })
    }

    /// A sandbox deployed before, by name.
    pub fn open(home: &Home, name: &str) -> Result<Sandbox, Error> {
        let _ = home;
        Err(Error::NoSandbox { name: name.to_owned() })
    }

    /// All sandboxes of a home, by name.
    pub fn list(home: &Home) -> Result<Vec<Status>, Error> {
        let _ = home;
        Ok(Vec::new())
    }

    /// Its name.
    pub fn name(&self) -> &str {
        ""
    }

    /// Its build.
    pub fn build(&self) -> &Build {
        &self.build
    }

    /// Its data directory.
    pub fn datadir(&self) -> &Path {
        &self.dir
    }

    /// Its error log.
    pub fn log_path(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Starts the server and waits until it answers; nothing to do when it runs.
    pub fn start(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Stops it gracefully, and by force after `patience`.
    pub fn stop(&mut self, patience: Duration) -> Result<StopReport, Error> {
        Ok(StopReport { took: patience, killed: false })
    }

    /// Stop and start.
    pub fn restart(&mut self) -> Result<StopReport, Error> {
        let report = self.stop(Duration::from_secs(60))?;
        self.start()?;
        Ok(report)
    }

    /// Ends the server at once with SIGKILL, as a crash would.
    pub fn kill(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Stops the server and removes everything of the sandbox.
    pub fn destroy(self) -> Result<(), Error> {
        Ok(())
    }

    /// What it is doing.
    pub fn status(&self) -> Result<Status, Error> {
        Err(Error::Interrupted)
    }

    /// How to connect as the administrator over the socket; `None` for no database (PostgreSQL: `postgres`).
    pub fn target(&self, database: Option<&str>) -> wire::Target {
        let _ = database;
        unreachable!()
    }

    /// The same over TCP, when it has a port.
    pub fn tcp_target(&self, database: Option<&str>) -> Option<wire::Target> {
        let _ = database;
        None
    }

    /// Process id of the server, while it runs.
    pub fn pid(&self) -> Option<u32> {
        None
    }

    /// The last lines of its log.
    pub fn log_tail(&self, lines: usize) -> Vec<String> {
        let _ = lines;
        Vec::new()
    }

    /// Connection settings for other tools: MYSQL_UNIX_PORT, MYSQL_HOST, MYSQL_TCP_PORT, MYSQL_USER; PGHOST, PGPORT,
    /// PGUSER, PGDATABASE.
    pub fn env_vars(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The settings it is started with, paths and ports apart.
    pub fn settings(&self) -> Settings {
        Settings::new()
    }

    /// All variables as the running server reports them.
    pub fn reported_settings(&self) -> Result<Settings, Error> {
        Ok(Settings::new())
    }
}

/// Finds what crashed plimsolls left in this home (sandboxes of runs whose process is gone, half-made ones, partial
/// downloads and snapshots), ends their servers and removes them. Returns their names.
pub fn leftovers(home: &Home) -> Result<Vec<String>, Error> {
    let _ = home;
    Ok(Vec::new())
}
