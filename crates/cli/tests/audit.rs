//! `audit` against real servers: what full durability keeps, what relaxed settings lose, and that a server that only
//! says that it flushes is found.

mod common;

use common::{run, servers_are_there, tiny_study};
use serde_json::Value;

fn audit(arguments: &[&str]) -> Value {
    audit_ending(0, arguments)
}

/// An audit of two rounds, its exit code and its findings.
fn audit_ending(code: i32, arguments: &[&str]) -> Value {
    let results = tempfile::tempdir().unwrap();
    let place = results.path().to_str().unwrap();
    let fixed =
        ["audit", "--rounds", "2", "--sessions", "4", "--seed", "3", "--json", "-", "--results", place];
    let report = serde_json::from_str(&run(&[&fixed, arguments].concat()).expect(code, &[]).out).unwrap();
    // What was found is in the results file, round by round.
    let kept = store::Store::open_read_only(results.path()).unwrap().audits().unwrap();
    assert_eq!(kept.len(), 1);
    let rounds = |report: &Value| -> usize {
        report["kinds"].as_array().unwrap().iter().map(|kind| kind["rounds"].as_array().unwrap().len()).sum()
    };
    assert_eq!(kept[0].rounds.len(), rounds(&report));
    report
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
        assert_eq!(kind["verdict"], "consistent", "{kind}");
        // Two rounds say little, and that is said: 1 - 0.05^(1/2).
        assert!((kind["broken_share_at_most"].as_f64().unwrap() - 0.7764).abs() < 1e-4, "{kind}");
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
    // A power cut in the moment after the log was written, as somebody's `sync` or an idle machine brings about, takes
    // nothing: what it may take shows in one of a few audits.
    let shows_loss = |_: i32| {
        let report = audit(&["mariadb", "--profile", "fast"]);
        assert_eq!(report["durability"], "process-crash");
        assert_eq!(report["kinds"][0]["verdict"], "consistent");
        let power_cut = &report["kinds"][1];
        let is_contradicted = power_cut["verdict"] == "contradicted";
        assert!(!is_contradicted, "{report}");
        // Where there is no root there is no power cut.
        power_cut["not_done"].is_string() || power_cut["verdict"] == "consistent-with-loss"
    };
    assert!((0..4).any(shows_loss));
}

/// Rounds of a power cut, or `None` where there is no power to cut.
fn power_cut(report: &Value) -> Option<&Vec<Value>> {
    let kind = &report["kinds"][0];
    assert_eq!(kind["kind"], "power-cut");
    match kind["not_done"].as_str() {
        Some(why) => {
            testkit::not_tested("power cuts of an audit by the command", why);
            None
        }
        None => kind["rounds"].as_array(),
    }
}

#[test]
fn a_server_that_never_flushes_is_found() {
    if !servers_are_there() {
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    // The server's user must be able to read it.
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open_to_all).unwrap();
    let library = testkit::no_flush::library(folder.path()).unwrap();
    let preload = format!("LD_PRELOAD={}", library.display());
    for server in ["postgres", "mariadb"] {
        let arguments = [server, "--profile", "safest", "--only", "power-cut", "--env", &preload];
        let fixed = ["audit", "--rounds", "2", "--sessions", "4", "--seed", "3", "--json", "-"];
        let results = tempfile::tempdir().unwrap();
        let place = ["--results", results.path().to_str().unwrap()];
        let done = run(&[&fixed[..], &arguments, &place].concat());
        let report: Value = serde_json::from_str(&done.out).unwrap();
        assert_eq!(report["durability"], "full", "by its settings");
        let Some(rounds) = power_cut(&report) else { return };
        assert_eq!(report["kinds"][0]["verdict"], "contradicted", "{server}: {report}");
        done.expect(1, &[]);
        // It may have lost so much that it does not come up again.
        let is_found = |round: &Value| round["lost"].as_u64().unwrap() > 0 || round["failure"].is_string();
        assert!(is_found(&rounds[0]), "{server}: {}", rounds[0]);
        assert_eq!(rounds[0]["unflushed"], "dropped");
    }
}

#[test]
fn servers_that_are_told_not_to_flush_lose_what_they_confirmed() {
    if !servers_are_there() {
        return;
    }
    for (server, setting) in [
        ("postgres", "fsync=off"),
        ("mariadb", "innodb_flush_log_at_trx_commit=0"),
        ("mysql@8.0", "innodb_flush_log_at_trx_commit=2"),
    ] {
        let report = audit(&[server, "--set", setting, "--only", "power-cut"]);
        let Some(rounds) = power_cut(&report) else { return };
        assert_ne!(report["durability"], "full", "{server}");
        assert_eq!(report["kinds"][0]["verdict"], "consistent-with-loss", "{server}: {report}");
        let is_found = |round: &Value| round["lost"].as_u64().unwrap() > 0 || round["failure"].is_string();
        assert!(rounds.iter().any(is_found), "{server}: {rounds:?}");
    }
}

#[test]
fn a_running_server_is_not_audited() {
    run(&["audit", "mysql://root@127.0.0.1/x"]).expect(2, &["name a build"]);
}

#[test]
fn a_report_says_what_an_audit_of_the_same_settings_found() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let place = results.to_str().unwrap();
    let study = tiny_study(dir.path(), "kept", "\"mariadb\"", "1", 1);
    // Invalid runs of a busy machine are runs too; only a failed one ends with 1.
    run(&["run", &study, "--results", place]).expect(0, &[]);
    let said = || -> Value {
        let out = run(&["report", "--results", place, "--json", "-"]).expect(0, &[]).out;
        let report: Value = serde_json::from_str(&out).unwrap();
        report["studies"][0]["durability"][0].clone()
    };
    let before = said();
    assert_eq!(before["finding"], "not_audited", "{before}");
    let command = before["text"].as_str().unwrap().split('`').nth(1).unwrap().to_owned();
    // The very command that the report names, with fewer rounds.
    let arguments: Vec<&str> = command.split(' ').skip(1).collect();
    let short = ["--rounds", "1", "--sessions", "2", "--only", "process-crash"];
    run(&[&arguments[..], &short].concat()).expect(0, &[]);
    let after = said();
    assert_eq!(after["finding"], "partly_checked", "{after}");
    assert!(after["text"].as_str().unwrap().contains("power cut: not checked"), "{after}");
}
