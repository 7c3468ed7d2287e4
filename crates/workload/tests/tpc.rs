//! TPC-B and TPC-C on real servers.

mod support;

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use support::{SERVERS, configure, database, load_tables, run_and_check};

#[test]
fn tpcb_keeps_its_balances() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "tpcb");
        for pairs in
            [&[][..], &[("variant", "simple_update")], &[("variant", "select_only")], &[("home", "on")]]
        {
            let mut all = vec![("scale", "1")];
            all.extend_from_slice(pairs);
            let configured = configure("tpcb", &all, &target);
            load_tables(&*configured, &target);
            let step = run_and_check(&*configured, &target, 4, 400, 1).steps.remove(0);
            assert_eq!(step.outcomes.committed, 400, "{selector} {pairs:?}: {:?}", step.errors);
        }
    }
}

#[test]
fn tpcc_keeps_its_conditions() {
    for selector in SERVERS {
        let Some(sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "tpcc");
        let configured = configure("tpcc", &[("warehouses", "1")], &target);
        load_tables(&*configured, &target);
        for (mode, sessions) in [("auto", 8), ("disable", 2)] {
            let configured = configure("tpcc", &[("warehouses", "1"), ("db_ps_mode", mode)], &target);
            let step = run_and_check(&*configured, &target, sessions, 600, 3).steps.remove(0);
            assert_eq!(
                step.outcomes.committed + step.outcomes.rolled_back,
                600,
                "{selector}: {:?}",
                step.errors
            );
            let count = |name: &str| step.by_statement.iter().find(|c| c.name == name).map_or(0, |c| c.count);
            assert_eq!(count("new_order_rolled_back"), step.outcomes.rolled_back);
            for (kind, least) in [
                ("new_order", 200),
                ("payment", 200),
                ("order_status", 10),
                ("delivery", 10),
                ("stock_level", 10),
            ] {
                assert!(count(kind) > least, "{kind}: {}", count(kind));
            }
            let figures = configured.figures(&step);
            assert!(figures.iter().any(|figure| figure.name == "NOPM" && figure.value > 0.0), "{figures:?}");
            assert!(
                figures
                    .iter()
                    .any(|figure| figure.name == "p90 stock_level" && figure.limit == Some(20_000.0))
            );
        }
    }
}

/// Waits for a second of the load of which that is true: transactions committed, and those that lost their connection.
/// False where it does not come.
fn until(seconds: &mpsc::Receiver<(u64, u64)>, is_it: impl Fn((u64, u64)) -> bool) -> bool {
    std::iter::from_fn(|| seconds.recv_timeout(Duration::from_secs(120)).ok()).any(is_it)
}

#[test]
fn tpcc_conditions_hold_after_the_server_was_killed() {
    for selector in SERVERS {
        let Some(mut sandbox) = sandbox::testing::server(selector) else { continue };
        let target = database(&sandbox, "killed");
        let configured = configure("tpcc", &[("warehouses", "1")], &target);
        load_tables(&*configured, &target);
        let before = configured.baseline(&target, &BTreeMap::new()).expect("a baseline");
        let plan = load::LoadPlan {
            steps: vec![load::Step {
                sessions: 8,
                warmup: Duration::ZERO,
                length: load::Length::Time(Duration::from_secs(600)),
                pacing: load::Pacing::Closed,
            }],
            workers: Some(1),
            silence_limit: Duration::from_secs(60),
            ..load::LoadPlan::default()
        };
        let stop = load::Stop::new();
        let result = std::thread::scope(|scope| {
            let (tell, seconds) = mpsc::channel();
            let (configured, target, plan, stop) = (&configured, &target, &plan, &stop);
            let run = scope.spawn(move || {
                let factory = configured.sessions(target, 1);
                let mut observer = |event: load::Event<'_>| {
                    if let load::Event::Interval { interval, .. } = event {
                        // Nobody listens any more once the server has been seen to work again.
                        let _ = tell.send((interval.outcomes.committed, interval.outcomes.connection));
                    }
                };
                load::run(plan, &*factory, &mut observer, stop).expect("the load runs")
            });
            let has_begun = until(&seconds, |(committed, _)| committed > 0);
            let is_killed = sandbox.kill();
            let is_started = sandbox.start();
            let was_lost = until(&seconds, |(_, lost)| lost > 0);
            let goes_on = until(&seconds, |(committed, lost)| committed > 0 && lost == 0);
            stop.request();
            let result = run.join().expect("the run ends");
            is_killed.expect("the server is killed");
            is_started.expect("the server recovers");
            assert!(
                has_begun && was_lost && goes_on,
                "begun {has_begun}, lost {was_lost}, goes on {goes_on}"
            );
            result
        });
        let step = &result.steps[0];
        assert!(step.outcomes_whole.connection > 0, "the sessions noticed: {:?}", step.outcomes_whole);
        let checks = configured.check(&target, &before, &workload::Ran::of(&result)).expect("checks");
        for check in checks {
            assert!(
                check.passed,
                "{selector}: {}: expected {}, found {}",
                check.name, check.expected, check.found
            );
        }
    }
}
