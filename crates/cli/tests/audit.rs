//! `audit` against real servers: what full durability keeps, and what relaxed settings lose.

mod common;

use common::{run, servers_are_there};
use serde_json::Value;

fn audit(arguments: &[&str]) -> Value {
    let all =
        [&["audit", "--rounds", "2", "--sessions", "4", "--seed", "3", "--json", "-"], arguments].concat();
    serde_json::from_str(&run(&all).expect(0, &[]).out).unwrap()
}

#[test]
fn nothing_acknowledged_is_lost_at_full_durability() {
    if !servers_are_there() {
        return;
    }
    let report = audit(&["postgres"]);
    assert_eq!(report["durability"], "full");
    let kinds = report["kinds"].as_array().unwrap();
    assert_eq!(kinds.len(), 2);
    for kind in kinds {
        // Where there is no root there is no power cut, and a reason.
        if kind["not_done"].is_string() {
            assert_eq!(kind["kind"], "power-cut");
            continue;
        }
        assert_eq!(kind["verdict"], "held", "{kind}");
        for round in kind["rounds"].as_array().unwrap() {
            assert!(round["acknowledged"].as_u64().unwrap() > 0 && round["lost"] == 0, "{round}");
        }
    }
}

#[test]
fn a_lazy_log_survives_its_process_and_not_the_power() {
    if !servers_are_there() {
        return;
    }
    let report = audit(&["mariadb", "--profile", "fast"]);
    assert_eq!(report["durability"], "process-crash");
    assert_eq!(report["kinds"][0]["verdict"], "held");
    if report["kinds"][1]["not_done"].is_null() {
        assert_eq!(report["kinds"][1]["verdict"], "held-with-loss", "{report}");
    }
}

#[test]
fn a_running_server_is_not_audited() {
    run(&["audit", "mysql://root@127.0.0.1/x"]).expect(2, &["name a build"]);
}
