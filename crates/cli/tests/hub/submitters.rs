//! Sixteen submitters at two hubs of one database, while a hub and the database are killed: what was acknowledged is
//! listed, whole, and once.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Hub, address, asked, bundle, common, sqlite};

const SUBMITTERS: usize = 16;
const PATIENCE: Duration = Duration::from_secs(240);

/// Asks one hub and the other until it is told that the bundle is there, as a patient submitter does.
fn submit_until_acknowledged(hubs: &[&str], token: &str, bytes: &[u8]) {
    let until = Instant::now() + PATIENCE;
    let header = format!("Authorization: Bearer {token}");
    for hub in hubs.iter().cycle() {
        let answer = asked(hub, "POST", "/api/v1/bundles", &header, bytes);
        match answer.map(|(status, ..)| status) {
            Some(201 | 409) => return,
            None | Some(429 | 503) => std::thread::sleep(Duration::from_millis(100)),
            Some(other) => panic!("{other}"),
        }
        assert!(Instant::now() < until, "nobody took it");
    }
}

fn nothing_acknowledged_is_lost(dir: &Path, db: &str, kill_database: Option<&mut dyn FnMut()>) {
    let more = ["--rate", "10000"];
    // Both find an empty database.
    let hubs = std::thread::scope(|scope| {
        [0, 1].map(|_| scope.spawn(|| Hub::start(db, &more))).map(|hub| hub.join().unwrap())
    });
    let [mut first, second] = hubs;
    let token = second.token("ada", &[]);
    let all: Vec<Vec<u8>> = (0..SUBMITTERS).map(|at| bundle(dir, &format!("m{at}"), at as u64).1).collect();
    let addresses = [first.address.clone(), second.address.clone()];
    let acknowledged = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for at in 0..SUBMITTERS {
            let (acknowledged, all, token) = (&acknowledged, &all, &token);
            let hubs = [&*addresses[at % 2], &*addresses[(at + 1) % 2]];
            scope.spawn(move || {
                // Its own, and its neighbour's, who does the same.
                for bytes in [&all[at], &all[(at + 1) % SUBMITTERS]] {
                    submit_until_acknowledged(&hubs, token, bytes);
                    acknowledged.lock().unwrap().push(store::bundle::sha256(bytes));
                }
            });
        }
        // In the middle of it, each time.
        let wait_for = |count: usize| {
            let so_many = || acknowledged.lock().unwrap().len();
            common::wait_until(PATIENCE, "bundles to be taken", || so_many() >= count);
            assert!(so_many() < 2 * SUBMITTERS, "all was over before anything was killed");
        };
        wait_for(2);
        // SIGKILL, which a hub cannot see coming.
        first.process.kill().unwrap();
        if let Some(kill_database) = kill_database {
            wait_for(6);
            kill_database();
        }
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    assert_eq!(acknowledged.len(), 2 * SUBMITTERS);
    let listed = second.json("/api/v1/bundles");
    let ids = listed["bundles"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned());
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    let mut expected: Vec<String> = all.iter().map(|bytes| store::bundle::sha256(bytes)).collect();
    expected.sort();
    assert_eq!(ids, expected, "each once, and nothing else");
    assert_eq!(second.json("/api/v1/front")["bundles"], SUBMITTERS);
    for id in ids {
        let shown = second.json(&format!("/api/v1/bundles/{id}"));
        assert_eq!(&shown["id"], id.as_str());
        for kind in ["report", "file"] {
            let (status, _, _) = second.ask("GET", &format!("/bundle/{id}/{kind}"), "", &[]);
            assert_eq!(status, 200, "nothing is listed half");
        }
        let counted = |claim: &Value| claim["standing"]["bundles"] == SUBMITTERS;
        assert!(shown["claims"].as_array().unwrap().iter().all(counted), "each counts, and once");
    }
}

#[test]
fn nothing_is_lost_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    nothing_acknowledged_is_lost(dir.path(), &sqlite(dir.path()), None);
}

#[test]
fn nothing_is_lost_on_postgresql() {
    let Some(mut server) = sandbox::testing::server("postgres") else { return };
    let dir = tempfile::tempdir().unwrap();
    let db = address(&server);
    let mut kill = || {
        server.kill().unwrap();
        server.start().unwrap();
    };
    nothing_acknowledged_is_lost(dir.path(), &db, Some(&mut kill));
}
