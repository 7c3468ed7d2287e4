//! TPC-B and TPC-C on real servers.

mod support;

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
