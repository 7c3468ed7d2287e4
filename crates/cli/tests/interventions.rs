//! Interventions in studies, end to end on real servers: what is switched, found, told, and taken back.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use common::{Done, Running, plimsoll, servers_are_there, signal, wait_until};
use store::{Finding, RunEnd, Status, Store};

fn study(dir: &Path, server: &str, workload: &str, rest: &str) -> String {
    let path = dir.join("interventions.toml");
    let text = format!(
        "title = \"t\"\nquestion = \"q\"\n[axes]\nserver = \"{server}\"\nworkload = \"{workload}\"\nsessions = 2\n[options]\n\
         table_size = 1000\n[load]\nwarmup = \"200ms\"\nblocks = 1\nseed = 1\ngates = \"warn\"\n{rest}\n"
    );
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn run(study: &str, results: &Path) -> Done {
    Done::of(plimsoll().args(["run", study, "--results"]).arg(results).output().unwrap())
}

fn ends(results: &Path) -> Vec<RunEnd> {
    let store = Store::open_read_only(results).unwrap();
    let study = store.studies().unwrap().pop().unwrap();
    let heads = store.run_heads(study.id).unwrap();
    heads.iter().filter_map(|head| store.run(head.id).unwrap().end).collect()
}

fn json(results: &Path) -> serde_json::Value {
    let out = plimsoll().args(["report", "--json", "-", "--results"]).arg(results).output().unwrap();
    serde_json::from_slice(&out.stdout).unwrap()
}

/// PostgreSQL waits 20 ms before each commit: whatever the machine does, that is found.
#[test]
fn a_delay_that_is_switched_on_in_one_life_is_found_in_it() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let delay = "duration = \"2s\"\n[[intervene]]\nname = \"delay\"\nsettings = { commit_delay = 20000, commit_siblings = 0 }";
    let done = run(&study(dir.path(), "postgres", "oltp_update_index", delay), &results);
    assert_eq!(done.code, Some(0), "{}", done.err);

    let ends = ends(&results);
    assert_eq!(ends.len(), 2);
    for (side, end) in ends.iter().enumerate() {
        assert_eq!(end.status, Status::Done, "{:?}", end.error);
        let [of] = end.interventions.as_slice() else { panic!("{:?}", end.interventions) };
        assert_eq!(of.name, ["none", "delay"][side]);
        assert_eq!(of.readings["commit_delay"], ["0", "20000"][side]);
        let duel = end.duel.as_ref().unwrap();
        assert_eq!((duel.sides, duel.side), (2, side as u32));
        let counted = duel.slices.iter().filter(|slice| slice.is_counted);
        assert_eq!(counted.map(|slice| slice.committed).sum::<u64>(), end.steps[0].outcomes.committed);
        let gate =
            |name: &str| end.gates.iter().filter(|gate| gate.name == name).map(|gate| gate.finding).collect();
        let held: Vec<Finding> = gate("intervention");
        assert_eq!(held, [Finding::Held], "{:?}", end.gates);
        assert_eq!(gate("consistency"), [Finding::Held]);
        assert_eq!(gate("stalls").len(), 1, "each state answers for itself");
    }
    // The phases of both lie between each other's.
    let mut spans: Vec<(f64, f64)> = Vec::new();
    for slice in ends.iter().flat_map(|end| end.duel.iter().flat_map(|duel| &duel.slices)) {
        spans.push((slice.at_s, slice.at_s + slice.duration_s));
    }
    spans.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{spans:?}");

    let report = json(&results);
    let compared = report["comparisons"].as_array().unwrap();
    let tps = compared.iter().find(|one| one["metric"] == "tps").unwrap();
    assert_eq!((&tps["axis"], &tps["other"]["intervene"]), (&"intervene".into(), &"delay".into()));
    assert!(tps["ratio"].as_f64().unwrap() < 0.6, "{tps}");
    let with =
        report["cells"].as_array().unwrap().iter().find(|cell| cell["key"]["intervene"] == "delay").unwrap();
    let told = &with["runs"][0]["interventions"][0];
    assert_eq!(told["readings"]["commit_delay"], "20000");
    assert!(told["phases"].as_array().unwrap().len() >= 2, "{told}");
    assert!(done.out.contains("With delay the server has ×"), "{}", done.out);
}

/// A server that is not ours is left as it was found, by whatever the run ends.
#[test]
fn a_server_gets_back_what_was_switched_even_when_the_run_is_stopped() {
    let Some(server) = sandbox::testing::server("mariadb") else { return };
    let url = format!("mysql://root@localhost/?socket={}", server.socket().display());
    let log = || {
        let mut client = wire::blocking::Client::connect(&server.target(None)).unwrap();
        client.query_value("SELECT @@GLOBAL.general_log").unwrap().unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let results = dir.path().join("results");
    let switched = "duration = \"60s\"\nphase = \"2s\"\n[[intervene]]\nname = \"log\"\non = \"SET GLOBAL general_log = ON\"\noff = \
                    \"SET GLOBAL general_log = OFF\"";
    let file = study(dir.path(), &url, "oltp_read_only", switched);
    let mut command = plimsoll();
    let told = dir.path().join("told");
    command.args(["run", &file, "--results"]).arg(&results).stdout(Stdio::null());
    command.stderr(std::fs::File::create(&told).unwrap());
    let mut child = Running(command.spawn().unwrap());
    // The log is on in a phase of it, not for the moment in which everything is tried out.
    wait_until(Duration::from_secs(300), "a phase with the log", || {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none(), "{}", std::fs::read_to_string(&told).unwrap());
        log() == "1" && {
            std::thread::sleep(Duration::from_millis(700));
            log() == "1"
        }
    });
    signal(child.id(), "INT");
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert_eq!(log(), "0");
    assert!(ends(&results).iter().all(|end| end.status == Status::Interrupted));

    // At a moment, once.
    let results = dir.path().join("once");
    let once = "duration = \"4s\"\n[[intervene]]\nname = \"log\"\nat = \"2s\"\nsql = \"SET GLOBAL general_log = ON\"";
    let done = run(&study(dir.path(), &url, "oltp_read_only", once), &results);
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(log(), "0");
    let [end] = ends(&results).try_into().unwrap();
    let [came] = end.interventions.as_slice() else { panic!("{:?}", end.interventions) };
    let at_s = came.at_s.unwrap() - end.steps[0].offset_s;
    assert!((1.9..3.0).contains(&at_s), "{at_s}");
    assert_eq!(came.readings["general_log"], "ON");
    let told = &json(&results)["cells"][0]["runs"][0]["interventions"][0];
    assert!(
        told["tps_before"].as_f64().unwrap() > 0.0 && told["tps_after"].as_f64().unwrap() > 0.0,
        "{told}"
    );

    // What would change nothing for the sessions of the load is no intervention.
    let session = "duration = \"2s\"\n[[intervene]]\nname = \"x\"\nsettings = { sort_buffer_size = 100000 }";
    let done = run(&study(dir.path(), &url, "oltp_read_only", session), &dir.path().join("session"));
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(done.err.contains("`sort_buffer_size` has a value for each session"), "{}", done.err);
}
