//! What the tests against real servers share.
#![allow(dead_code, reason = "each test file is a program of its own and uses a part of this")]

use std::collections::BTreeMap;
use std::time::Duration;

use load::{Length, LoadPlan, LoadResult, Pacing, RetryPolicy, Step, Stop};
use wire::Target;
use wire::blocking::Client;
use workload::{Configured, Dialect, LoadAt, Ran};

/// The servers that every workload must run on.
pub(crate) const SERVERS: [&str; 2] = ["mariadb", "postgres"];

/// Options from pairs.
pub(crate) fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A database of its own on a server, so that tests do not see each other's tables.
pub(crate) fn database(sandbox: &sandbox::Sandbox, name: &str) -> Target {
    let target = sandbox.target(Some(name));
    workload::create_database(&target).expect("the database is created");
    target
}

/// The workload for the server behind `target`.
pub(crate) fn configure(name: &str, pairs: &[(&str, &str)], target: &Target) -> Box<dyn Configured> {
    let client = Client::connect(target).expect("the server answers");
    let dialect = Dialect::of_server(target.protocol, &client.server().version);
    client.close();
    let workload = workload::find(name).expect("a built-in workload");
    workload.configure(&given(pairs), dialect).expect("good options")
}

/// Loads on two connections.
pub(crate) fn load_tables(configured: &dyn Configured, target: &Target) -> workload::LoadReport {
    let at = LoadAt { target: target.clone(), connections: 2, is_own_server: true, stop: load::Stop::new() };
    let report = configured.load(&at, &|_| ()).expect("the load succeeds");
    assert!(configured.is_loaded(target).expect("the tables can be counted"), "not loaded after a load");
    report
}

/// Runs so many transactions over so many sessions.
pub(crate) fn run(
    configured: &dyn Configured,
    target: &Target,
    sessions: u32,
    transactions: u64,
    seed: u64,
) -> LoadResult {
    let plan = LoadPlan {
        steps: vec![Step {
            sessions,
            warmup: Duration::ZERO,
            length: Length::Transactions { count: transactions, at_most: Some(Duration::from_secs(120)) },
            pacing: Pacing::Closed,
        }],
        workers: Some(1),
        // However often two sessions meet: what is asked for is committed.
        retry: RetryPolicy { retries_max: 1_000, ..RetryPolicy::default() },
        ..LoadPlan::default()
    };
    let factory = configured.sessions(target, seed);
    load::run(&plan, &*factory, &mut |_| (), &Stop::new()).expect("the load runs")
}

/// Runs and lets the workload check its tables.
pub(crate) fn run_and_check(
    configured: &dyn Configured,
    target: &Target,
    sessions: u32,
    transactions: u64,
    seed: u64,
) -> LoadResult {
    let before = configured.baseline(target, &BTreeMap::new()).expect("a baseline");
    let result = run(configured, target, sessions, transactions, seed);
    let checks = configured.check(target, &before, &Ran::of(&result)).expect("checks");
    assert!(!checks.is_empty(), "no checks");
    for check in checks {
        assert!(check.passed, "{}: expected {}, found {}", check.name, check.expected, check.found);
    }
    let step = &result.steps[0];
    assert_eq!(step.ended_by, None);
    result
}
