//! Sessions on real sockets: a thread that answers, hangs up, stays silent or reads slowly.

use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use load::net::{self, Socket};
use load::{
    AnySession, Completion, Event, Failure, FailureClass, Length, LoadError, LoadPlan, LoadResult, Pacing,
    Recorder, Session, SessionFactory, Step, Stop, run,
};
use wire::{Endpoint, StatementKind, Transport};

/// Writes `request` and reads as many bytes back; `unnoted` times more in each transaction, without a lap.
struct Echo {
    endpoint: Endpoint,
    request: usize,
    limit: Duration,
    unnoted: usize,
    socket: Option<Socket>,
}

struct Factory {
    endpoint: Endpoint,
    request: usize,
    limit: Duration,
    unnoted: usize,
}

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        vec!["echo".into()]
    }

    fn session(&self, _index: u32) -> Box<dyn AnySession> {
        let &Factory { ref endpoint, request, limit, unnoted } = self;
        Box::new(Echo { endpoint: endpoint.clone(), request, limit, unnoted, socket: None })
    }
}

fn lost(error: &io::Error) -> Failure {
    Failure {
        class: FailureClass::Connection,
        code: format!("{:?}", error.kind()),
        text: error.to_string(),
        retryable: false,
        connection_lost: true,
        fatal: false,
    }
}

impl Echo {
    async fn exchange(&mut self) -> io::Result<()> {
        let socket = self.socket.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        socket.set_limit(self.limit);
        let request = vec![7; self.request];
        let (mut sent, mut buffer, mut received) = (0, vec![0; 4096], 0);
        while received < request.len() {
            // The peer echoes while it reads: both directions must go on.
            if sent < request.len() {
                let step = poll_fn(|cx| {
                    if let std::task::Poll::Ready(done) = socket.poll_write(cx, &request[sent..]) {
                        return std::task::Poll::Ready(done.map(|sent| (sent, 0)));
                    }
                    socket.poll_read(cx, &mut buffer).map_ok(|received| (0, received))
                });
                let (more_sent, more_received) = step.await?;
                sent += more_sent;
                received += more_received;
                continue;
            }
            match poll_fn(|cx| socket.poll_read(cx, &mut buffer)).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => received += more,
            }
        }
        Ok(())
    }
}

impl Session for Echo {
    async fn open(&mut self) -> Result<(), Failure> {
        self.socket = None;
        let opened = net::connect(&self.endpoint, Duration::from_secs(5)).await;
        self.socket = Some(opened.map_err(|error| lost(&error))?);
        Ok(())
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        self.exchange().await.map_err(|error| lost(&error))?;
        recorder.lap(0, StatementKind::Read);
        for _ in 0..self.unnoted {
            self.exchange().await.map_err(|error| lost(&error))?;
        }
        Ok(Completion::Committed)
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&mut self) {}
}

/// Serves each connection on a thread of its own, until the test's process ends.
fn serve<S: Read + Write + Send + 'static>(
    mut accept: impl FnMut() -> io::Result<S> + Send + 'static,
    talk: impl Fn(S) + Clone + Send + 'static,
) {
    std::thread::spawn(move || {
        while let Ok(stream) = accept() {
            let talk = talk.clone();
            std::thread::spawn(move || talk(stream));
        }
    });
}

fn echo(mut stream: impl Read + Write) {
    let mut buffer = [0; 3000];
    while let Ok(got @ 1..) = stream.read(&mut buffer) {
        if stream.write_all(&buffer[..got]).is_err() {
            return;
        }
    }
}

/// A socket's path; the file goes with it.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn unix(name: &str) -> (Place, UnixListener) {
    let path = std::env::temp_dir().join(format!("load-test-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    (Place(path), listener)
}

fn transactions(count: u64, sessions: u32) -> LoadPlan {
    let length = Length::Transactions { count, at_most: Some(Duration::from_secs(60)) };
    let step = Step { sessions, warmup: Duration::ZERO, length, pacing: Pacing::Closed };
    LoadPlan { steps: vec![step], workers: Some(2), ..LoadPlan::default() }
}

fn drive(
    plan: &LoadPlan,
    endpoint: Endpoint,
    request: usize,
    limit: Duration,
) -> Result<LoadResult, LoadError> {
    run(plan, &Factory { endpoint, request, limit, unnoted: 0 }, &mut |_| {}, &Stop::new())
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn every_request_is_answered_on_a_unix_socket() {
    let (path, listener) = unix("echo");
    serve(move || listener.accept().map(|(stream, _)| stream), echo);
    let result = drive(&transactions(2_000, 8), Endpoint::Unix(path.0.clone()), 100, LONG).unwrap();
    let step = &result.steps[0];
    assert_eq!((step.outcomes.committed, step.outcomes.failed(), step.in_flight_at_end), (2_000, 0, 0));
    assert!(step.client.cpu_user_s + step.client.cpu_sys_s > 0.0);
}

#[test]
fn requests_larger_than_any_buffer_pass() {
    let (path, listener) = unix("large");
    serve(move || listener.accept().map(|(stream, _)| stream), echo);
    let result = drive(&transactions(10, 3), Endpoint::Unix(path.0.clone()), 3 << 20, LONG).unwrap();
    assert_eq!(result.steps[0].outcomes.committed, 10);
}

#[test]
fn tcp_by_name() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    serve(move || listener.accept().map(|(stream, _)| stream), echo);
    let endpoint = Endpoint::Tcp { host: "localhost".into(), port };
    let result = drive(&transactions(500, 4), endpoint, 64, LONG).unwrap();
    assert_eq!(result.steps[0].outcomes.committed, 500);
}

#[test]
fn a_peer_that_hangs_up_costs_a_transaction_and_a_reconnection() {
    let (path, listener) = unix("hangup");
    // Each connection lives for ten requests.
    let talk = |mut stream: std::os::unix::net::UnixStream| {
        let mut buffer = [0; 10];
        for _ in 0..10 {
            if stream.read_exact(&mut buffer).and_then(|()| stream.write_all(&buffer)).is_err() {
                return;
            }
        }
    };
    serve(move || listener.accept().map(|(stream, _)| stream), talk);
    let result = drive(&transactions(110, 1), Endpoint::Unix(path.0.clone()), 10, LONG).unwrap();
    let step = &result.steps[0];
    assert_eq!((step.outcomes.committed, step.outcomes.connection), (100, 10));
    assert!(step.reconnects >= 9, "{}", step.reconnects);
}

#[test]
fn a_silent_peer_ends_in_outcomes_not_in_a_hang() {
    let (path, listener) = unix("silent");
    serve(move || listener.accept().map(|(stream, _)| stream), fall_silent);
    let began = Instant::now();
    let plan = transactions(4, 2);
    let result = drive(&plan, Endpoint::Unix(path.0.clone()), 10, Duration::from_millis(100)).unwrap();
    let step = &result.steps[0];
    assert_eq!((step.outcomes.connection, step.errors["TimedOut"].count), (4, 4));
    assert!(began.elapsed() < LONG);
}

/// Hears something and never answers.
fn fall_silent(mut stream: impl Read) {
    let _ = stream.read(&mut [0; 1]);
    std::thread::sleep(LONG);
}

/// Answers each byte after a nap.
fn nap(mut stream: impl Read + Write) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        std::thread::sleep(NAP);
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

const NAP: Duration = Duration::from_millis(20);

#[test]
fn what_a_session_alone_on_its_worker_waits_for_is_part_of_its_transaction() {
    let (path, listener) = unix("nap");
    serve(move || listener.accept().map(|(stream, _)| stream), nap);
    let factory = Factory { endpoint: Endpoint::Unix(path.0.clone()), request: 1, limit: LONG, unnoted: 1 };
    let result = run(&transactions(12, 1), &factory, &mut |_| {}, &Stop::new()).unwrap();
    let step = &result.steps[0];
    assert_eq!(step.outcomes.committed, 12);
    let (statement, transaction) = (&step.by_statement[0].latency, &step.latency.response);
    let nap_ms = NAP.as_secs_f64() * 1e3;
    assert!(statement.min_ms() >= nap_ms, "{}", statement.min_ms());
    assert!(transaction.min_ms() >= 2.0 * nap_ms, "{}", transaction.min_ms());
}

#[test]
fn a_session_alone_on_its_worker_leaves_the_thread_to_what_is_due() {
    let (path, listener) = unix("due");
    serve(move || listener.accept().map(|(stream, _)| stream), fall_silent);
    let length = Length::Time(Duration::from_millis(200));
    let step = Step { sessions: 1, warmup: Duration::ZERO, length, pacing: Pacing::Closed };
    let plan = LoadPlan { steps: vec![step], drain: Duration::from_millis(100), ..LoadPlan::default() };
    let began = Instant::now();
    let mut seconds = 0;
    let factory = Factory { endpoint: Endpoint::Unix(path.0.clone()), request: 1, limit: LONG, unnoted: 0 };
    let mut count = |event: Event<'_>| seconds += u32::from(matches!(event, Event::Interval { .. }));
    let result = run(&plan, &factory, &mut count, &Stop::new()).unwrap();
    let step = &result.steps[0];
    assert_eq!((seconds, step.in_flight_at_end, step.outcomes.total()), (1, 1, 0));
    assert!(began.elapsed() < LONG, "the end of the step was served by its timer, not by an answer");
}

#[test]
fn nobody_listens() {
    let (path, listener) = unix("gone");
    drop(listener);
    let plan = LoadPlan { connect_limit: Duration::from_millis(200), ..transactions(1, 2) };
    let error = drive(&plan, Endpoint::Unix(path.0.clone()), 1, LONG).unwrap_err();
    let LoadError::Connect { connected, sessions, code, .. } = error else { panic!("{error}") };
    assert_eq!((connected, sessions, code.as_str()), (0, 2, "ConnectionRefused"));
}

#[test]
fn a_path_too_long_for_a_socket_is_refused_with_words() {
    let path = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
    let plan = LoadPlan { connect_limit: Duration::from_millis(100), ..transactions(1, 1) };
    let error = drive(&plan, Endpoint::Unix(path), 1, LONG).unwrap_err().to_string();
    assert!(error.contains("108 bytes"), "{error}");
}
