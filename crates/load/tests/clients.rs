//! Loads on several clients, which live in threads here: what they give is what one process gives.

use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use load::clients::{Client, Process, Ran, Serving, run_on_clients, serve};
use load::{
    AnySession, Arrivals, Clock, Completion, Event, Failure, FailureClass, IntervalResult, Length, LoadError,
    LoadPlan, LoadResult, Pacing, Recorder, Session, SessionFactory, Step, Stop, run_with_clock, time,
};
use wire::StatementKind;

/// Each attempt takes a time of its own, some fail, some are rolled back.
struct Varied {
    index: u32,
    attempt: u64,
}

impl Session for Varied {
    async fn open(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        self.attempt += 1;
        let draw = (u64::from(self.index) * 7_919 + self.attempt * 104_729) % 1_000;
        time::sleep(Duration::from_micros(3_000 + 17 * draw)).await;
        recorder.lap((draw % 2) as usize, StatementKind::Read);
        match draw {
            0..20 => Err(Failure {
                class: FailureClass::Deadlock,
                code: "1213".into(),
                text: "as drawn".into(),
                retryable: draw.is_multiple_of(2),
                connection_lost: false,
                fatal: false,
            }),
            20..40 => Ok(Completion::RolledBack),
            _ => Ok(Completion::Committed),
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&mut self) {}
}

struct Factory;

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        vec!["even".into(), "odd".into()]
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        Box::new(Varied { index, attempt: 0 })
    }
}

/// A thread instead of a process: its end of the line is what can be taken from it.
struct Thread(UnixStream);

impl Process for Thread {
    fn kill(&self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }

    fn how_it_ended(&self) -> String {
        "the line is dead".into()
    }
}

/// Dies when it has said so many bytes.
struct Mortal {
    stream: UnixStream,
    left: usize,
}

impl Write for Mortal {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.left < bytes.len() {
            self.stream.shutdown(Shutdown::Both)?;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.left -= bytes.len();
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn client(at: usize, stream: UnixStream) -> Client {
    let clone = || stream.try_clone().unwrap();
    Client {
        name: format!("client {}", at + 1),
        orders: Box::new(clone()),
        answers: Box::new(BufReader::new(clone())),
        process: Box::new(Thread(clone())),
        host: None,
    }
}

/// Runs the plan on so many clients; the second of them says at most `bytes_max` bytes.
fn on_clients(
    plan: &LoadPlan,
    count: usize,
    bytes_max: usize,
    clock: Clock,
    observer: &mut dyn FnMut(Event<'_>),
    stop: &Stop,
) -> Result<Ran, LoadError> {
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..count).map(|_| UnixStream::pair().unwrap()).unzip();
    std::thread::scope(|scope| {
        for (at, stream) in theirs.into_iter().enumerate() {
            scope.spawn(move || {
                let mut orders = BufReader::new(stream.try_clone().unwrap());
                let left = if at == 1 { bytes_max } else { usize::MAX };
                let farewell = || format!("so long from {at}");
                let serving = Serving { factory: &Factory, farewell: &farewell, abandoned: &|| () };
                let _ = serve(&serving, &mut orders, &mut Mortal { stream, left });
            });
        }
        let mut clients: Vec<Client> =
            ours.into_iter().enumerate().map(|(at, stream)| client(at, stream)).collect();
        let classes = Factory.statement_classes();
        run_on_clients(plan, classes, &mut clients, observer, stop, clock)
    })
}

fn step(sessions: u32, pacing: Pacing) -> Step {
    let warmup = Duration::from_millis(1_500);
    Step { sessions, warmup, length: Length::Time(Duration::from_secs(5)), pacing }
}

fn plan(steps: Vec<Step>, workers: usize) -> LoadPlan {
    LoadPlan { steps, workers: Some(workers), seed: 11, ..LoadPlan::default() }
}

type Told = Vec<(usize, IntervalResult)>;

fn note(told: &mut Told) -> impl FnMut(Event<'_>) {
    |event: Event<'_>| {
        if let Event::Interval { step, interval } = event {
            told.push((step, interval.clone()));
        }
    }
}

/// What does not depend on where the sessions live.
fn without_client(mut result: LoadResult) -> LoadResult {
    for step in &mut result.steps {
        (step.client, step.connect_s) = Default::default();
        step.clients.clear();
    }
    result
}

#[test]
fn several_clients_give_what_one_process_gives() {
    let open = |rate_tps, arrivals| Pacing::Open { rate_tps, arrivals };
    let climbs = [
        vec![step(9, Pacing::Closed), step(4, Pacing::Closed), step(17, Pacing::Closed)],
        vec![step(12, open(300.0, Arrivals::Poisson)), step(5, open(900.0, Arrivals::Poisson))],
        vec![step(8, open(250.0, Arrivals::Constant))],
    ];
    for steps in climbs {
        for (clients, each) in [(4, 1), (2, 2)] {
            let (mut here, mut there) = (Told::new(), Told::new());
            let one = plan(steps.clone(), clients * each);
            let one =
                run_with_clock(&one, &Factory, &mut note(&mut here), &Stop::new(), Clock::Simulated).unwrap();
            let several = plan(steps.clone(), each);
            let simulated = Clock::Simulated;
            let ran =
                on_clients(&several, clients, usize::MAX, simulated, &mut note(&mut there), &Stop::new());
            let ran = ran.unwrap();
            assert!(one.steps[0].outcomes.committed > 500 && one.steps[0].errors["1213"].count > 5);
            let clocks: Vec<_> =
                ran.result.steps[0].clients.iter().filter_map(|client| client.clock).collect();
            assert_eq!(clocks.len(), clients);
            assert!(clocks.iter().all(|clock| clock.offset_ns.unsigned_abs() <= clock.within_ns));
            assert_eq!(ran.result.steps[0].client.workers as usize, clients * each);
            assert_eq!(without_client(ran.result), without_client(one), "{clients} clients, {steps:?}");
            assert_eq!(there, here);
            assert_eq!(ran.farewells[1].as_deref(), Some("so long from 1"));
        }
    }
}

#[test]
fn a_fixed_number_of_transactions_is_shared_out_exactly() {
    for (pacing, clients) in
        [(Pacing::Closed, 3), (Pacing::Open { rate_tps: 500.0, arrivals: Arrivals::Poisson }, 4)]
    {
        let length = Length::Transactions { count: 1_001, at_most: None };
        let plan = plan(vec![Step { length, ..step(7, pacing) }], 1);
        let ran =
            on_clients(&plan, clients, usize::MAX, Clock::Simulated, &mut |_| (), &Stop::new()).unwrap();
        assert_eq!(ran.result.steps[0].outcomes.total(), 1_001, "{pacing:?}");
    }
}

#[test]
fn a_client_that_dies_ends_the_load_and_is_named() {
    // After it has agreed on the clock, and in the middle of its intervals.
    for (bytes, has_begun) in [(300, false), (2_500, true)] {
        // The others do not go on for ten minutes.
        let long = Step { length: Length::Time(Duration::from_secs(600)), ..step(8, Pacing::Closed) };
        let plan = plan(vec![long], 1);
        let ran = on_clients(&plan, 3, bytes, Clock::Monotonic, &mut |_| (), &Stop::new());
        let reason = match ran {
            Ok(ran) => {
                assert_eq!(ran.farewells.iter().filter(|said| said.is_none()).count(), 1);
                assert!(has_begun);
                ran.result.steps[0].ended_by.clone().unwrap_or_default()
            }
            Err(error) => {
                assert!(!has_begun);
                error.to_string()
            }
        };
        assert!(reason.contains("client 2 was lost: the line is dead"), "{reason}");
    }
}

#[test]
fn a_client_that_falls_silent_is_ended() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let plan =
        LoadPlan { client_silence: Duration::from_millis(100), ..plan(vec![step(2, Pacing::Closed)], 1) };
    let heard = AtomicU64::new(0);
    let began = Instant::now();
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            heard.store(all.len() as u64, Ordering::Relaxed);
        });
        let mut clients = vec![client(0, ours)];
        let classes = Factory.statement_classes();
        run_on_clients(&plan, classes, &mut clients, &mut |_| (), &Stop::new(), Clock::Monotonic)
    });
    assert!(ran.unwrap_err().to_string().contains("client 1"));
    assert!(heard.load(Ordering::Relaxed) > 0 && began.elapsed() < Duration::from_secs(10));
}

#[test]
fn the_user_stops_all_clients() {
    let stop = Stop::new();
    let mut observer = |event: Event<'_>| {
        if matches!(event, Event::StepStarted { .. }) {
            stop.request();
        }
    };
    let long = Step { length: Length::Time(Duration::from_secs(600)), ..step(4, Pacing::Closed) };
    let ran =
        on_clients(&plan(vec![long], 1), 2, usize::MAX, Clock::Monotonic, &mut observer, &stop).unwrap();
    assert!(ran.result.interrupted && ran.result.steps[0].ended_by.is_none());
    assert!(ran.farewells.iter().all(Option::is_some));
}

#[test]
fn fewer_sessions_than_clients_are_refused() {
    let error = on_clients(
        &plan(vec![step(2, Pacing::Closed)], 1),
        3,
        usize::MAX,
        Clock::Simulated,
        &mut |_| (),
        &Stop::new(),
    );
    assert!(error.unwrap_err().to_string().contains("2 sessions for 3 clients"));
}
