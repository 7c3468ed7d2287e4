//! The engine as a whole on a simulated clock: sessions sleep instead of talking to a server, and minutes of load
//! pass in milliseconds.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use load::{
    AnySession, Arrivals, Clock, Completion, Event, Failure, FailureClass, IntervalResult, Length, LoadError,
    LoadPlan, LoadResult, Pacing, Recorder, RetryPolicy, Session, SessionFactory, Step, Stop, run_with_clock,
    time,
};
use wire::StatementKind;

const MS: Duration = Duration::from_millis(1);

/// What a scripted transaction does.
enum Act {
    Take(Duration),
    Fail(FailureClass),
    Lose,
    Fatal,
    Hang,
    Skip,
    Finish,
    Panic,
}

type Script = dyn Fn(u32, u64) -> Act + Sync;

/// Runs `script(session, attempt)`.
struct Scripted {
    index: u32,
    script: &'static Script,
    attempts: Rc<Cell<u64>>,
    opens: u32,
    refuse: fn(u32) -> bool,
    started: time::Moment,
}

fn failure(class: FailureClass) -> Failure {
    Failure {
        class,
        code: format!("{class:?}"),
        text: "as the script says".into(),
        retryable: class == FailureClass::Deadlock,
        connection_lost: class == FailureClass::Connection,
        fatal: false,
    }
}

impl Session for Scripted {
    async fn open(&mut self) -> Result<(), Failure> {
        time::sleep(MS).await;
        self.opens += 1;
        if (self.refuse)(self.opens) { Err(failure(FailureClass::Connection)) } else { Ok(()) }
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let attempt = self.attempts.replace(self.attempts.get() + 1);
        let _ = self.started;
        match (self.script)(self.index, attempt) {
            Act::Take(duration) => {
                time::sleep(duration).await;
                recorder.lap(0, StatementKind::Read);
                Ok(Completion::Committed)
            }
            Act::Fail(class) => {
                time::sleep(MS).await;
                Err(failure(class))
            }
            Act::Lose => Err(failure(FailureClass::Connection)),
            Act::Fatal => Err(Failure { fatal: true, ..failure(FailureClass::Other) }),
            Act::Hang => std::future::pending().await,
            Act::Skip => Ok(Completion::Skipped),
            Act::Finish => Ok(Completion::Finished),
            Act::Panic => panic!("as the script says"),
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    async fn close(&mut self) {}
}

struct Factory {
    script: &'static Script,
    refuse: fn(u32) -> bool,
    made: AtomicU32,
}

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        vec!["sleep".into()]
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        self.made.fetch_add(1, Ordering::Relaxed);
        Box::new(Scripted {
            index,
            script: self.script,
            attempts: Rc::default(),
            opens: 0,
            refuse: self.refuse,
            started: time::now(),
        })
    }
}

fn step(sessions: u32, seconds: u64) -> Step {
    Step {
        sessions,
        warmup: Duration::ZERO,
        length: Length::Time(Duration::from_secs(seconds)),
        pacing: Pacing::Closed,
    }
}

fn open(rate_tps: f64, arrivals: Arrivals) -> Pacing {
    Pacing::Open { rate_tps, arrivals }
}

fn plan(steps: Vec<Step>, workers: usize) -> LoadPlan {
    LoadPlan { steps, workers: Some(workers), ..LoadPlan::default() }
}

fn run(plan: &LoadPlan, script: &'static Script) -> LoadResult {
    try_run(plan, script, |_| false, &Stop::new(), &mut |_| {}).unwrap()
}

/// The result, and the seconds of all steps.
fn run_seconds(plan: &LoadPlan, script: &'static Script) -> (LoadResult, Vec<IntervalResult>) {
    let mut seconds = Vec::new();
    let mut observer = |event: Event<'_>| {
        if let Event::Interval { interval, .. } = event {
            seconds.push(interval.clone());
        }
    };
    let result = try_run(plan, script, |_| false, &Stop::new(), &mut observer).unwrap();
    (result, seconds)
}

fn try_run(
    plan: &LoadPlan,
    script: &'static Script,
    refuse: fn(u32) -> bool,
    stop: &Stop,
    observer: &mut dyn FnMut(Event<'_>),
) -> Result<LoadResult, LoadError> {
    let factory = Factory { script, refuse, made: AtomicU32::new(0) };
    run_with_clock(plan, &factory, observer, stop, Clock::Simulated)
}

#[test]
fn closed_loop_counts_every_second() {
    for workers in [1, 2, 3] {
        let (result, intervals) = run_seconds(&plan(vec![step(4, 10)], workers), &|_, _| Act::Take(10 * MS));
        let step = &result.steps[0];
        // 100 a second and session; the one that ends with the phase is in flight.
        assert_eq!((step.outcomes.committed, step.in_flight_at_end), (4 * 999, 4), "{workers} workers");
        assert_eq!((step.drained, step.outcomes_whole.committed), (4, 4_000));
        assert_eq!(step.duration_s, 10.0);
        let seconds: Vec<_> = intervals.iter().map(|i| (i.second, i.outcomes.committed)).collect();
        let expected: Vec<_> = (1..=10).map(|s| (s, if s == 1 { 396 } else { 400 })).collect();
        assert_eq!(seconds, expected);
        assert_eq!(
            (step.latency.response.min_ns(), step.latency.response.max_ns()),
            (10_000_000, 10_000_000)
        );
        assert_eq!((step.reads, step.by_statement[0].count), (3_996, 3_996));
        assert_eq!(intervals.iter().map(|i| i.latency.response.len()).sum::<u64>(), 3_996);
        assert!(step.ended_by.is_none() && step.latency.service.is_none());
    }
}

#[test]
fn warm_up_is_seen_and_not_counted() {
    let steps = vec![Step { warmup: 1_500 * MS, ..step(1, 2) }];
    let (result, intervals) = run_seconds(&plan(steps, 1), &|_, _| Act::Take(10 * MS));
    let step = &result.steps[0];
    let seconds: Vec<_> = intervals.iter().map(|i| (i.second, i.duration_s)).collect();
    assert_eq!(seconds, [(-1, 0.5), (0, 1.0), (1, 1.0), (2, 1.0)]);
    assert_eq!((step.outcomes.committed, step.outcomes_whole.committed), (200, 350));
}

#[test]
fn the_number_of_transactions_is_exact() {
    for (sessions, workers, count) in [(1, 1, 1), (7, 3, 1_000), (64, 2, 100), (3, 3, 0), (5, 2, 5_000)] {
        let length = Length::Transactions { count, at_most: None };
        let steps = vec![Step { length, ..step(sessions, 1) }];
        let script: &'static Script = &|session, _| Act::Take(MS * (1 + session % 5));
        let (result, intervals) = run_seconds(&plan(steps, workers), script);
        let step = &result.steps[0];
        assert_eq!(step.outcomes.committed, count, "{sessions} sessions, {workers} workers");
        assert_eq!((step.outcomes_whole.committed, step.in_flight_at_end), (count, 0));
        assert_eq!(intervals.iter().map(|i| i.outcomes.committed).sum::<u64>(), count);
    }
}

#[test]
fn a_number_of_transactions_after_a_warm_up() {
    let length = Length::Transactions { count: 500, at_most: None };
    let steps = vec![Step { warmup: 2_000 * MS, length, ..step(10, 1) }];
    // One worker: simulated clocks of several do not advance together.
    let result = run(&plan(steps, 1), &|session, _| Act::Take(MS * (7 + session)));
    let step = &result.steps[0];
    assert_eq!((step.outcomes.committed, step.reads), (500, 500));
    assert!(step.outcomes_whole.committed > 500);
    assert!(step.duration_s > 0.5 && step.duration_s < 0.8, "{}", step.duration_s);
}

#[test]
fn too_many_transactions_end_with_the_clock() {
    let length = Length::Transactions { count: 1_000_000, at_most: Some(Duration::from_secs(2)) };
    let result = run(&plan(vec![Step { length, ..step(2, 1) }], 2), &|_, _| Act::Take(10 * MS));
    let step = &result.steps[0];
    assert_eq!((step.outcomes.committed, step.duration_s, step.in_flight_at_end), (398, 2.0, 2));
}

#[test]
fn think_time_is_between_transactions() {
    let plan = LoadPlan { think_time: 90 * MS, ..plan(vec![step(1, 10)], 1) };
    let result = run(&plan, &|_, _| Act::Take(10 * MS));
    assert_eq!(result.steps[0].outcomes.committed, 100);
    assert_eq!(result.steps[0].latency.response.max_ns(), 10_000_000);
}

#[test]
fn open_loop_keeps_its_rate_and_interleaves_workers() {
    for workers in [1, 2] {
        let steps = vec![Step { pacing: open(200.0, Arrivals::Constant), ..step(4, 10) }];
        let (result, intervals) = run_seconds(&plan(steps, workers), &|_, _| Act::Take(3 * MS));
        let step = &result.steps[0];
        assert_eq!(step.outcomes_whole.committed, 2_000);
        assert_eq!((step.latency.response.max_ms(), step.backlog_at_end), (3.0, 0));
        assert_eq!(intervals.len(), 10);
    }
}

#[test]
fn a_stall_in_open_loop_shows_in_response_time_alone() {
    // One session, 100 arrivals a second; the transaction of second 5 takes one second.
    let steps = vec![Step { pacing: open(100.0, Arrivals::Constant), ..step(1, 20) }];
    let script: &'static Script = &|_, n| Act::Take(if n == 500 { 1_000 * MS } else { 5 * MS });
    let (result, intervals) = run_seconds(&plan(steps, 1), script);
    let step = &result.steps[0];
    let service = step.latency.service.as_ref().unwrap();
    assert!(service.quantile_ms(0.99) <= 5.01, "{}", service.quantile_ms(0.99));
    // Lindley's recursion by hand: behind the stall each arrival waits 5 ms less than the one before it.
    let mut truth = Vec::new();
    let (mut free_at, mut n) = (0, 0);
    while n < 2_000u64 {
        let arrival = n * 10;
        free_at = arrival.max(free_at) + if n == 500 { 1_000 } else { 5 };
        truth.push(free_at - arrival);
        n += 1;
    }
    truth.sort_unstable();
    for q in [0.5, 0.9, 0.95, 0.99, 0.999] {
        let exact = truth[(q * 2_000f64).ceil() as usize - 1] as f64;
        let got = step.latency.response.quantile_ms(q);
        assert!((got / exact - 1.0).abs() < 0.002, "p{q}: {got} against {exact}");
    }
    assert!(step.latency.response.quantile_ms(0.99) > 800.0);
    let backlog = intervals.iter().map(|i| i.backlog).max().unwrap();
    assert_eq!(backlog, 99);
}

#[test]
fn a_stall_at_the_end_of_an_open_loop_counts_in_full() {
    // 500 arrivals a second for 10 s; whatever begins in the last 1.5 s is answered when these are over.
    static BEGAN: std::sync::OnceLock<time::Moment> = std::sync::OnceLock::new();
    let script: &'static Script = &|_, _| {
        let at = time::now() - *BEGAN.get_or_init(time::now);
        let stall_end = 10_000 * MS;
        Act::Take(if at >= 8_500 * MS && at < stall_end { stall_end - at } else { MS })
    };
    let steps = vec![Step { pacing: open(500.0, Arrivals::Constant), ..step(4, 10) }];
    let result = run(&plan(steps, 1), script);
    let step = &result.steps[0];
    assert!(step.backlog_at_end > 700, "{}", step.backlog_at_end);
    assert_eq!((step.arrivals, step.latency.response.len(), step.unended.len()), (Some(5_000), 5_000, 0));
    let p99_ms = step.latency.response.quantile_ms(0.99);
    assert!((1_400.0..1_520.0).contains(&p99_ms), "{p99_ms}");
    assert!(!step.is_at_least(0.99));
    assert!((1.4..1.6).contains(&step.stalls.longest_s), "{:?}", step.stalls);
    assert_eq!(step.stalls.seconds, 1);
}

#[test]
fn what_never_ends_counts_as_at_least_the_time_that_it_waited() {
    // Nothing is answered after 9 s.
    static BEGAN: std::sync::OnceLock<time::Moment> = std::sync::OnceLock::new();
    let script: &'static Script = &|_, _| {
        let at = time::now() - *BEGAN.get_or_init(time::now);
        if at < 9_000 * MS { Act::Take(MS) } else { Act::Hang }
    };
    for pacing in [open(100.0, Arrivals::Constant), Pacing::Closed] {
        let steps = vec![Step { pacing, ..step(4, 10) }];
        let plan = LoadPlan { drain: Duration::from_secs(3), ..plan(steps, 1) };
        let result = run(&plan, script);
        let step = &result.steps[0];
        let unended = if pacing == Pacing::Closed { 4 } else { 100 };
        assert_eq!(step.unended.len(), unended, "{pacing:?}");
        assert_eq!(step.latency.response.len(), step.outcomes.committed + unended);
        // The first of them has waited for the last second and the drain.
        assert!(
            (3_900.0..4_100.0).contains(&step.latency.response.max_ms()),
            "{}",
            step.latency.response.max_ms()
        );
        assert!(step.is_at_least(0.9999) && !step.is_at_least(0.5));
        assert!((3.9..4.1).contains(&step.stalls.longest_s), "{:?}", step.stalls);
        if pacing != Pacing::Closed {
            assert!(step.is_at_least(0.95) && step.latency.response.quantile_ms(0.95) > 3_000.0);
            break;
        }
    }
}

#[test]
fn a_transaction_counts_where_it_was_to_begin() {
    // Ten transactions of 0.7 s: the one that the warm-up began is none of the step's, the one in flight is.
    let steps = vec![Step { warmup: 1_000 * MS, ..step(1, 7) }];
    let (result, intervals) = run_seconds(&plan(steps, 1), &|_, _| Act::Take(700 * MS));
    let step = &result.steps[0];
    assert_eq!((step.outcomes.committed, step.in_flight_at_end), (10, 1));
    assert_eq!((step.latency.response.len(), step.latency.response.max_ms()), (10, 700.0));
    assert_eq!(intervals.iter().map(|i| i.latency.response.len()).sum::<u64>(), 11);
}

#[test]
fn a_freeze_is_found_wherever_it_lies_and_idleness_is_none() {
    static BEGAN: std::sync::OnceLock<time::Moment> = std::sync::OnceLock::new();
    let script: &'static Script = &|_, _| {
        let at = time::now() - *BEGAN.get_or_init(time::now);
        let frozen = 3_400 * MS..6_500 * MS;
        Act::Take(if frozen.contains(&at) { frozen.end - at } else { 10 * MS })
    };
    let result = run(&plan(vec![step(4, 12)], 1), script);
    let stalls = result.steps[0].stalls;
    assert_eq!(stalls.seconds, 2);
    assert!((3.09..3.12).contains(&stalls.longest_s), "{stalls:?}");
    // A transaction every 3 s at a rate, or with think time: nobody waits.
    let steps = vec![Step { pacing: open(0.3, Arrivals::Constant), ..step(1, 30) }];
    let quiet = run(&plan(steps, 1), &|_, _| Act::Take(MS)).steps[0].stalls;
    assert_eq!((quiet.seconds, quiet.longest_s < 0.002), (0, true), "{quiet:?}");
    let plan = LoadPlan { think_time: 2_500 * MS, ..plan(vec![step(1, 30)], 1) };
    let quiet = run(&plan, &|_, _| Act::Take(MS)).steps[0].stalls;
    assert_eq!((quiet.seconds, quiet.longest_s < 0.002), (0, true), "{quiet:?}");
}

#[test]
fn a_hopeless_backlog_is_not_begun() {
    // Ten times what can be served: the rest of 10 s would take 90 s.
    let steps = vec![Step { pacing: open(1_000.0, Arrivals::Poisson), ..step(1, 10) }];
    let result = run(&plan(steps, 1), &|_, _| Act::Take(10 * MS));
    let step = &result.steps[0];
    assert!(step.drained <= 1, "{}", step.drained);
    let arrivals = step.arrivals.unwrap();
    assert_eq!(step.latency.response.len(), arrivals);
    assert!(step.unended.len() > 8_000 && step.is_at_least(0.5));
    // Its waits are those of arrivals from 1 s on: up to 9 s, none longer than it was.
    assert!((8_500.0..9_100.0).contains(&step.unended.max_ms()), "{}", step.unended.max_ms());
}

#[test]
fn a_backlog_is_drained_or_censored_and_never_forgotten() {
    // Twice as many arrivals as one session can serve: 10 s leave 1,000 of 2,000 waiting.
    for (drain_s, expect_drained) in [(60, true), (2, false)] {
        let steps = vec![Step { pacing: open(200.0, Arrivals::Constant), ..step(1, 10) }];
        let plan = LoadPlan { drain: Duration::from_secs(drain_s), ..plan(steps, 1) };
        let result = run(&plan, &|_, _| Act::Take(10 * MS));
        let step = &result.steps[0];
        let all = step.outcomes.committed + step.in_flight_at_end + step.backlog_at_end;
        assert_eq!(all, 2_000);
        assert_eq!(step.in_flight_at_end, 1);
        if expect_drained {
            assert_eq!((step.drained, step.outcomes.skipped), (step.backlog_at_end + 1, 0));
        } else {
            assert!(step.outcomes.skipped > 700);
            let known = step.outcomes_whole.total();
            assert!(known == 2_000 || known == 1_999, "{known}: the one that was cut off is in flight");
        }
    }
}

#[test]
fn poisson_arrivals_come_at_the_rate() {
    let steps = vec![Step { pacing: open(500.0, Arrivals::Poisson), ..step(50, 100) }];
    let result = run(&plan(steps, 2), &|_, _| Act::Take(MS));
    let committed = result.steps[0].outcomes.committed as f64;
    assert!((committed - 50_000.0).abs() < 5.0 * 50_000f64.sqrt(), "{committed}");
}

#[test]
fn open_loop_with_a_number_of_transactions() {
    // Also after a warm-up, with fewer transactions than workers, and with more arrivals than can be served.
    for (count, warmup_s, took, workers) in
        [(300, 0, 1, 1), (300, 0, 1, 2), (300, 2, 1, 1), (300, 2, 1, 3), (1, 1, 1, 3), (300, 1, 100, 2)]
    {
        let length = Length::Transactions { count, at_most: None };
        let warmup = Duration::from_secs(warmup_s);
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let steps = vec![Step { length, warmup, pacing: open(100.0, arrivals), ..step(4, 1) }];
            let script: &'static Script =
                if took == 1 { &|_, _| Act::Take(MS) } else { &|_, _| Act::Take(100 * MS) };
            let result = run(&plan(steps, workers), script);
            let step = &result.steps[0];
            let case = format!("{count} after {warmup_s} s, {took} ms, {workers} workers, {arrivals:?}");
            assert_eq!((step.outcomes.committed, step.outcomes.skipped), (count, 0), "{case}");
            assert_eq!((step.in_flight_at_end, step.backlog_at_end), (0, 0), "{case}");
            let expected_s = count as f64 * if took == 1 { 0.01 } else { 0.025 };
            let is_about = (step.duration_s / expected_s - 1.0).abs() < 0.5;
            assert!(count == 1 || is_about, "{case}: {} s", step.duration_s);
        }
    }
}

#[test]
fn sessions_that_finish_in_open_loop_leave_their_number_to_the_others() {
    let length = Length::Transactions { count: 200, at_most: None };
    let steps = vec![Step { length, pacing: open(100.0, Arrivals::Constant), ..step(4, 1) }];
    let script: &'static Script =
        &|session, n| if session == 0 && n == 5 { Act::Finish } else { Act::Take(MS) };
    assert_eq!(run(&plan(steps, 2), script).steps[0].outcomes.committed, 200);
}

#[test]
fn a_rate_beyond_all_measure_ends_on_time_and_is_counted() {
    for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
        let steps = vec![Step { pacing: open(load::RATE_MAX_TPS, arrivals), ..step(2, 5) }];
        let began = std::time::Instant::now();
        let result = run(&plan(steps, 1), &|_, _| Act::Take(10 * MS));
        assert!(began.elapsed() < Duration::from_secs(20), "walked through");
        let step = &result.steps[0];
        let all = (step.outcomes.committed + step.in_flight_at_end + step.backlog_at_end) as f64;
        assert!((all / 5e9 - 1.0).abs() < 1e-3, "{all}");
    }
}

#[test]
fn retries_are_apart_from_outcomes() {
    // Every third attempt is a deadlock, and the one after it succeeds.
    let length = Length::Transactions { count: 100, at_most: None };
    let steps = vec![Step { length, ..step(1, 1) }];
    let script: &'static Script =
        &|_, n| if n % 3 == 0 { Act::Fail(FailureClass::Deadlock) } else { Act::Take(MS) };
    let result = run(&plan(steps, 1), script);
    let step = &result.steps[0];
    assert_eq!((step.outcomes.committed, step.outcomes.deadlock, step.retries), (100, 0, 50));
    assert_eq!(step.errors["Deadlock"].count, 50);
    assert_eq!(step.latency.response.len(), 100);
}

#[test]
fn a_retry_has_a_limit_and_an_outcome() {
    let length = Length::Transactions { count: 10, at_most: None };
    let steps = vec![Step { length, ..step(2, 1) }];
    let retry = RetryPolicy { retries_max: 3, backoff: MS, backoff_max: 4 * MS };
    let plan = LoadPlan { retry, ..plan(steps, 1) };
    let result = run(&plan, &|_, _| Act::Fail(FailureClass::Deadlock));
    let step = &result.steps[0];
    assert_eq!((step.outcomes.deadlock, step.outcomes.committed, step.retries), (10, 0, 30));
    assert_eq!((step.errors["Deadlock"].count, step.latency.response.len(), step.failed.len()), (40, 0, 10));
}

#[test]
fn what_may_not_be_retried_is_an_outcome_at_once() {
    let length = Length::Transactions { count: 10, at_most: None };
    let steps = vec![Step { length, ..step(2, 1) }];
    let result = run(&plan(steps, 1), &|_, _| Act::Fail(FailureClass::Constraint));
    assert_eq!((result.steps[0].outcomes.constraint, result.steps[0].retries), (10, 0));
}

#[test]
fn a_lost_connection_is_counted_and_opened_again() {
    let script: &'static Script = &|_, n| if n % 100 == 99 { Act::Lose } else { Act::Take(10 * MS) };
    let result = run(&plan(vec![step(1, 10)], 1), script);
    let step = &result.steps[0];
    assert_eq!((step.outcomes.connection, step.reconnects), (10, 10));
    assert_eq!(step.errors["Connection"].count, 10);
    assert!(step.outcomes.committed > 980);
}

#[test]
fn a_server_that_refuses_for_good_ends_the_step_with_the_reason() {
    let plan = LoadPlan { silence_limit: Duration::from_secs(5), ..plan(vec![step(3, 600)], 2) };
    let script: &'static Script = &|_, n| if n == 100 { Act::Lose } else { Act::Take(10 * MS) };
    let result = try_run(&plan, script, |opens| opens > 1, &Stop::new(), &mut |_| {}).unwrap();
    let step = &result.steps[0];
    let reason = step.ended_by.as_deref().unwrap();
    assert!(reason.contains("all 3 sessions lost") && reason.contains("as the script says"), "{reason}");
    assert_eq!((step.outcomes.committed, step.outcomes.connection), (300, 3));
    // Workers on clocks of their own see the end at different times; real ones within 50 ms.
    assert!(step.duration_s >= 5.0);
}

#[test]
fn a_server_that_refuses_from_the_start_is_an_error() {
    let plan = LoadPlan { connect_limit: Duration::from_secs(3), ..plan(vec![step(3, 1)], 1) };
    let error = try_run(&plan, &|_, _| Act::Hang, |_| true, &Stop::new(), &mut |_| {}).unwrap_err();
    let LoadError::Connect { connected, sessions, code, .. } = error else { panic!("{error}") };
    assert_eq!((connected, sessions, code.as_str()), (0, 3, "Connection"));
}

#[test]
fn a_slow_server_is_waited_for() {
    // Refused five times, then let in.
    let plan = plan(vec![step(40, 1)], 2);
    let result = try_run(&plan, &|_, _| Act::Take(MS), |opens| opens < 6, &Stop::new(), &mut |_| {}).unwrap();
    assert_eq!(result.steps[0].outcomes.committed, 40 * 999);
}

#[test]
fn a_fatal_failure_ends_the_run_with_the_reason() {
    let script: &'static Script =
        &|session, n| if session == 1 && n == 150 { Act::Fatal } else { Act::Take(10 * MS) };
    let result = run(&plan(vec![step(2, 60), step(4, 60)], 1), script);
    assert_eq!(result.steps.len(), 1);
    let step = &result.steps[0];
    assert_eq!(step.ended_by.as_deref(), Some("Other: as the script says"));
    assert_eq!((step.outcomes.other, step.outcomes_whole.other), (1, 1));
    assert!(step.duration_s < 1.7, "{}", step.duration_s);
}

#[test]
fn a_session_that_hangs_does_not_hang_the_run() {
    let script: &'static Script =
        &|session, n| if session == 0 && n == 3 { Act::Hang } else { Act::Take(10 * MS) };
    let result = run(&plan(vec![step(2, 5), step(2, 5)], 1), script);
    let [first, second] = &result.steps[..] else { panic!() };
    assert_eq!((first.in_flight_at_end, first.drained), (2, 1));
    assert_eq!(first.outcomes_whole.total(), 3 + 500);
    // It was made anew for the next step, where it hangs again.
    assert_eq!(second.outcomes_whole.total(), 3 + 500);
}

#[test]
fn sessions_that_always_decline_starve_nobody() {
    let script: &'static Script = &|session, n| {
        if session == 0 && n < 10_000 { Act::Skip } else { Act::Take(10 * MS) }
    };
    let result = run(&plan(vec![step(2, 2)], 1), script);
    let step = &result.steps[0];
    assert_eq!((step.outcomes.skipped, step.outcomes.committed), (10_000, 398));
    // What is declined has no latency; the two in flight at the end have theirs.
    assert_eq!(step.latency.response.len(), 400);
}

#[test]
fn a_ladder_adds_and_removes_sessions() {
    let result =
        run(&plan(vec![step(1, 2), step(5, 2), step(2, 2), step(6, 2)], 2), &|_, _| Act::Take(10 * MS));
    let committed: Vec<_> = result.steps.iter().map(|s| (s.sessions, s.outcomes_whole.committed)).collect();
    assert_eq!(committed, [(1, 200), (5, 1_000), (2, 400), (6, 1_200)]);
}

#[test]
fn connections_are_opened_over_the_ramp() {
    let plan = LoadPlan { ramp: Duration::from_secs(30), ..plan(vec![step(300, 1)], 1) };
    let result = run(&plan, &|_, _| Act::Take(MS));
    assert_eq!(result.steps[0].outcomes.committed, 300 * 999);
}

#[test]
fn finished_sessions_leave_and_the_last_one_ends_the_step() {
    let script: &'static Script =
        &|session, n| if n == 10 + u64::from(session) { Act::Finish } else { Act::Take(10 * MS) };
    let length = Length::Transactions { count: u64::MAX, at_most: None };
    for workers in [1, 2] {
        let result = run(&plan(vec![Step { length, ..step(3, 1) }], workers), script);
        let ended = &result.steps[0];
        assert_eq!((ended.outcomes.committed, ended.outcomes.total()), (10 + 11 + 12, 33), "{workers}");
        assert!((ended.duration_s - 0.12).abs() < 1e-3, "{}", ended.duration_s);
        let result = run(&plan(vec![step(3, 60)], workers), script);
        assert_eq!(result.steps[0].outcomes.committed, 33);
        assert!(result.steps[0].duration_s < 0.2);
    }
}

#[test]
fn stop_keeps_what_was_measured() {
    let stop = Stop::new();
    let asked = stop.clone();
    let mut told = 0;
    let mut observer = |event: Event<'_>| {
        if let Event::Interval { interval, .. } = event {
            told += interval.outcomes.committed;
            if interval.second == 2 {
                asked.request();
            }
        }
    };
    let plan = plan(vec![step(2, 100_000), step(2, 5)], 1);
    let result = try_run(&plan, &|_, _| Act::Take(10 * MS), |_| false, &stop, &mut observer).unwrap();
    assert!(result.interrupted);
    assert_eq!(result.steps.len(), 1);
    let step = &result.steps[0];
    assert!(step.outcomes.committed >= 398 && step.ended_by.is_none());
    assert_eq!(step.outcomes.committed, told);
    assert_eq!(step.outcomes.committed + step.drained, step.outcomes_whole.committed);
}

#[test]
fn stop_begins_nothing_of_a_backlog() {
    let stop = Stop::new();
    let asked = stop.clone();
    let mut observer = |event: Event<'_>| {
        if matches!(event, Event::Interval { interval, .. } if interval.second == 2) {
            asked.request();
        }
    };
    let plan = plan(vec![Step { pacing: open(200.0, Arrivals::Constant), ..step(1, 100_000) }], 1);
    let result = try_run(&plan, &|_, _| Act::Take(10 * MS), |_| false, &stop, &mut observer).unwrap();
    let step = &result.steps[0];
    assert!(result.interrupted && step.drained <= 1 && step.backlog_at_end > 100, "{step:?}");
}

#[test]
fn a_panic_in_a_session_is_a_reason_not_a_hang() {
    let script: &'static Script = &|session, n| {
        if session == 0 && n == 20 { Act::Panic } else { Act::Take(10 * MS) }
    };
    let result = run(&plan(vec![step(2, 5)], 2), script);
    let reason = result.steps[0].ended_by.as_deref().unwrap();
    assert!(reason.contains("panicked: as the script says"), "{reason}");
}

#[test]
fn impossible_plans_are_refused() {
    for bad in [
        plan(vec![], 1),
        plan(vec![step(1, 1)], 0),
        plan(vec![step(0, 1)], 1),
        plan(vec![step(1, 0)], 1),
        plan(vec![Step { pacing: open(0.0, Arrivals::Constant), ..step(1, 1) }], 1),
        plan(vec![Step { pacing: open(f64::NAN, Arrivals::Poisson), ..step(1, 1) }], 1),
        plan(vec![Step { pacing: open(f64::INFINITY, Arrivals::Poisson), ..step(1, 1) }], 1),
        plan(vec![Step { pacing: open(1e12, Arrivals::Constant), ..step(1, 1) }], 1),
    ] {
        let refused = try_run(&bad, &|_, _| Act::Hang, |_| false, &Stop::new(), &mut |_| {});
        assert!(matches!(refused, Err(LoadError::Plan(_))), "{bad:?}");
    }
}
