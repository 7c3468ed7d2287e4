//! The fake server as a child process, and sessions that run one prepared SELECT on it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use load::net::{self, Socket};
use load::{AnySession, Completion, Failure, FailureClass, Recorder, Session, SessionFactory};
use testkit::latency_server::{Exchange, log_of, read_log};
use wire::{Connection, Endpoint, ParamType, Protocol, Statement, Target, Value};

/// A running fake server.
pub(super) struct FakeServer {
    child: Child,
    /// Closed to end it.
    stdin: Option<ChildStdin>,
    directory: tempfile::TempDir,
}

impl FakeServer {
    /// Builds and starts it with the arguments of `plimsoll-fakeserver`.
    pub(super) fn start(arguments: &[&str]) -> Result<FakeServer> {
        const NAME: &str = "plimsoll-fakeserver";
        FakeServer::start_program(&crate::compiled("testkit", NAME, &["--bin", NAME])?, arguments)
    }

    /// The same of this program.
    pub(super) fn start_program(program: &Path, arguments: &[&str]) -> Result<FakeServer> {
        let directory = tempfile::tempdir()?;
        let mut child = Command::new(program)
            .arg("--socket")
            .arg(directory.path().join("server.sock"))
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("no standard output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        if line.trim() != "ready" {
            bail!("the fake server did not start: {line:?}");
        }
        let stdin = child.stdin.take();
        Ok(FakeServer { child, stdin, directory })
    }

    /// As [`FakeServer::start`], with a log.
    pub(super) fn start_logged(log: &std::path::Path, arguments: &[&str]) -> Result<FakeServer> {
        let log = log.to_str().context("the log's path is not text")?;
        FakeServer::start(&[&["--log", log], arguments].concat())
    }

    pub(super) fn factory(&self) -> FakeSessions {
        FakeSessions { socket: self.directory.path().join("server.sock") }
    }

    /// Where it listens, for the command.
    pub(super) fn url(&self) -> String {
        format!(
            "mysql://root@localhost/sbtest?socket={}",
            self.directory.path().join("server.sock").display()
        )
    }

    /// Ends it and waits until its log is written.
    pub(super) fn stop(mut self) -> Result<()> {
        drop(self.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "the fake server ended with {status}");
        Ok(())
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        // After `stop` there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Stops the server and reads what it wrote, in order of arrival.
pub(super) fn exchanges(server: FakeServer, log: &std::path::Path) -> Result<Vec<Exchange>> {
    server.stop()?;
    let mut exchanges = Vec::new();
    for process in 0.. {
        match log_of(log, process) {
            path if process == 0 || path.exists() => exchanges.extend(read_log(&path)?),
            _ => break,
        }
    }
    exchanges.sort_by_key(|exchange| exchange.arrived_ns);
    Ok(exchanges)
}

/// Makes sessions on a fake server.
pub(super) struct FakeSessions {
    socket: PathBuf,
}

impl SessionFactory for FakeSessions {
    fn statement_classes(&self) -> Vec<String> {
        vec!["point_select".into()]
    }

    fn session(&self, _index: u32) -> Box<dyn AnySession> {
        let endpoint = Endpoint::Unix(self.socket.clone());
        let target = Target {
            database: Some("sbtest".into()),
            connect_timeout: Duration::from_secs(20),
            ..Target::new(Protocol::Mysql, endpoint, "root")
        };
        Box::new(FakeSession { target, open: None, id: 0 })
    }
}

struct FakeSession {
    target: Target,
    open: Option<(Connection<Socket>, Statement)>,
    id: i64,
}

fn failure(error: &wire::Error) -> Failure {
    Failure {
        class: FailureClass::Connection,
        code: "wire".into(),
        text: error.to_string(),
        retryable: false,
        connection_lost: error.is_fatal(),
        fatal: !error.is_fatal(),
    }
}

impl Session for FakeSession {
    async fn open(&mut self) -> Result<(), Failure> {
        self.open = None;
        let opened = async {
            let socket = net::connect(&self.target.endpoint, self.target.connect_timeout).await?;
            let mut connection = Connection::open(socket, &self.target).await?;
            let statement = connection.prepare("SELECT c FROM sbtest1 WHERE id=?", &[ParamType::Int]).await?;
            Ok((connection, statement))
        };
        self.open = Some(opened.await.map_err(|error: wire::Error| failure(&error))?);
        Ok(())
    }

    fn draw(&mut self) {
        self.id = self.id % 10_000 + 1;
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let Some((connection, statement)) = &mut self.open else { return Ok(Completion::Skipped) };
        let done = connection.execute(statement, &[Value::Int(self.id)]).await;
        let done = done.map_err(|error| failure(&error))?;
        recorder.lap(0, done.kind());
        Ok(Completion::Committed)
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&mut self) {
        if let Some((connection, _)) = self.open.take() {
            connection.close().await;
        }
    }
}
