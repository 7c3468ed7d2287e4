//! Claims that a hub has measured again: leases on both databases, a worker with a child that is none, and one that measures.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::common::{plimsoll, run, servers_are_there};
use super::{Hub, address, bundle, sqlite};

/// Asks and answers as a worker does.
fn said(hub: &Hub, path: &str, token: &str, body: &Value) -> (u16, Value) {
    let (status, _, text) = hub.ask("POST", path, token, body.to_string().as_bytes());
    (status, serde_json::from_str(&text).unwrap_or_default())
}

fn leased(hub: &Hub, token: &str) -> Option<Value> {
    let (status, said) = said(hub, "/api/v1/remeasurements/lease", token, &json!({}));
    assert_eq!(status, 200, "{said}");
    said.get("job").filter(|job| !job.is_null()).cloned()
}

fn report(job: &Value, end: &str, here: Value) -> Value {
    let host = json!({"fingerprint": "0123456789abcdef", "cpu_model": "a worker's cpu", "cpus": 2, "memory_bytes": 1,
                      "kernel": "Linux", "os": "Debian", "arch": "x86_64"});
    json!({"lease": job["lease"], "end": end, "reason": "", "here": here, "host": host, "plimsoll": "0"})
}

fn way(job: &Value, what: &str) -> String {
    format!("/api/v1/remeasurements/{}/{what}", job["id"].as_str().unwrap())
}

fn newest(hub: &Hub, bundle: &str) -> Value {
    hub.json(&format!("/api/v1/bundles/{bundle}"))["remeasured"][0].clone()
}

/// `alter` changes the database behind the hub's back: time passes.
fn work_is_given_out_once(dir: &Path, db: &str, alter: &dyn Fn(&str)) {
    let hubs = [Hub::start(db, &["--remeasure", "1"]), Hub::start(db, &[])];
    let hub = &hubs[0];
    let (token, keeper) = (hub.token("ada", &[]), hub.token("eve", &["--scope", "moderate"]));
    let worker = hub.token("robot", &["--scope", "measure"]);
    assert!(leased(hub, &worker).is_none());
    let (_, bytes) = bundle(dir, "m1", 1);
    assert_eq!(hub.submit(&token, &bytes).0, 201);
    let id = store::bundle::sha256(&bytes);
    assert_eq!(
        (&newest(hub, &id)["says"], &newest(hub, &id)["asked_by"]),
        (&"waiting".into(), &"policy".into())
    );
    assert!(hub.page("/").contains("to be re-measured here"));
    // Who may submit or hide may not measure, and the other way round.
    for other in [&token, &keeper] {
        assert_eq!(said(hub, "/api/v1/remeasurements/lease", other, &json!({})).0, 403);
    }
    assert_eq!(hub.submit(&worker, &bytes).0, 403);

    let all = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for at in 0..8 {
            let (all, hub, worker) = (&all, &hubs[at % 2], &worker);
            scope.spawn(move || all.lock().unwrap().extend(leased(hub, worker)));
        }
    });
    let all = all.into_inner().unwrap();
    let [job] = all.as_slice() else { panic!("eight workers at two hubs got {all:?}") };
    assert_eq!(job["bundle"], id.as_str());
    assert_eq!(newest(hub, &id)["state"], "leased");
    assert_eq!(said(hub, &way(job, "renew"), &worker, job).0, 200);

    // A lease that is over is somebody else's; until then it can be renewed.
    alter("UPDATE remeasurement SET lease_until_ms = 1");
    assert_eq!(said(hub, &way(job, "renew"), &worker, job).0, 200);
    assert!(leased(hub, &worker).is_none());
    alter("UPDATE remeasurement SET lease_until_ms = 1");
    let second = leased(hub, &worker).unwrap();
    assert_eq!((&second["id"], &second["claim"]), (&job["id"], &job["claim"]), "the draw stays");
    assert_eq!(said(hub, &way(job, "renew"), &worker, job).0, 409);
    let far = json!({"ratio": 9.0, "low": 8.5, "high": 9.5});
    assert_eq!(said(hub, &way(job, "end"), &worker, &report(job, "done", far.clone())).0, 409);
    // Given back, it does not count as an attempt; the third worker that is lost is the last.
    assert_eq!(said(hub, &way(job, "end"), &worker, &report(&second, "waiting", Value::Null)).0, 200);
    for _ in 0..2 {
        assert!(leased(hub, &worker).is_some());
        alter("UPDATE remeasurement SET lease_until_ms = 1");
    }
    assert!(leased(hub, &worker).is_none());
    let lost = newest(hub, &id);
    assert_eq!((&lost["state"], &lost["says"]), (&"failed".into(), &"could not be".into()), "{lost}");
    assert!(hub.page("/").contains("3 workers began with it"));

    // A moderator asks again, once; what is said twice counts once.
    let ask = format!("/api/v1/bundles/{id}/remeasurements");
    assert_eq!(said(hub, &ask, &token, &json!({})).0, 403);
    assert_eq!(said(hub, &ask, &keeper, &json!({})).0, 201);
    assert_eq!(said(hub, &ask, &keeper, &json!({})).0, 400);
    let job = leased(hub, &worker).unwrap();
    for wrong in
        [json!({"ratio": 1.0, "low": 2.0, "high": 3.0}), json!({"ratio": -1.0, "low": -2.0, "high": 1.0})]
    {
        assert_eq!(said(hub, &way(&job, "end"), &worker, &report(&job, "done", wrong)).0, 400);
    }
    assert_eq!(said(hub, &way(&job, "end"), &worker, &report(&job, "done", far)).0, 200);
    let before = hub.json(&format!("/api/v1/bundles/{id}"))["remeasured"].clone();
    let again = report(&job, "failed", Value::Null);
    assert_eq!(said(&hubs[1], &way(&job, "end"), &worker, &again).0, 200);
    assert_eq!(hub.json(&format!("/api/v1/bundles/{id}"))["remeasured"], before);
    let found = &before[0];
    assert_eq!((&found["says"], &found["asked_by"]), (&"disagrees".into(), &"moderator".into()), "{found}");
    assert_eq!((before.as_array().unwrap().len(), &found["host"]["cpus"]), (2, &2.into()));
    let ratio = 9.0 / found["published"]["ratio"].as_f64().unwrap();
    assert!((found["between"]["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9, "{found}");
    let claim = format!("/claim/{}", found["claim"].as_str().unwrap());
    for path in ["/", "/search", &format!("/bundle/{id}"), &claim] {
        let page = hub.page(path);
        assert!(
            page.contains(">disagrees</strong>") && page.contains("a worker&#x27;s cpu"),
            "{path}: {page}"
        );
    }
    let feed = hub.page("/feed.atom");
    assert!(feed.contains("Re-measured here: disagrees, ") && feed.contains("a worker&#x27;s cpu"), "{feed}");
    // Who reads the feed is told so.
    let ended = found["ended_at"].as_str().unwrap();
    assert_eq!(feed.matches(&format!("<updated>{ended}</updated>")).count(), 2, "{feed}");
    let of_claim = hub.json(&format!("/api/v1/claims/{}", found["claim"].as_str().unwrap()));
    assert_eq!(of_claim["remeasured"][0], *found);

    let site = dir.join("site");
    let mut args = vec!["hub", "export", site.to_str().unwrap(), "--db", db];
    let bundles = dir.join("hub-bundles").display().to_string();
    if db.starts_with("sqlite") {
        args.extend(["--bundles", &bundles]);
    }
    run(&args).expect(0, &[]);
    let pages = ["".to_owned(), format!("bundle/{id}/"), format!("{}/", &claim[1..])];
    for page in pages.map(|page| format!("{page}index.html")) {
        assert!(std::fs::read_to_string(site.join(&page)).unwrap().contains(">disagrees</strong>"), "{page}");
    }

    // What is hidden is not measured.
    assert_eq!(said(hub, &ask, &keeper, &json!({})).0, 201);
    assert_eq!(hub.ask("DELETE", &format!("/api/v1/bundles/{id}"), &keeper, &[]).0, 204);
    assert!(leased(hub, &worker).is_none());
    assert_eq!(said(hub, &ask, &keeper, &json!({})).0, 404);
    assert!(!hub.page("/feed.atom").contains("Re-measured"));
}

#[test]
fn work_is_given_out_once_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let database = dir.path().join("hub.db");
    let alter = |sql: &str| {
        let connection = rusqlite::Connection::open(&database).unwrap();
        connection.busy_timeout(Duration::from_secs(10)).unwrap();
        connection.execute(sql, []).unwrap();
    };
    work_is_given_out_once(dir.path(), &sqlite(dir.path()), &alter);
}

#[test]
fn work_is_given_out_once_on_postgresql() {
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let dir = tempfile::tempdir().unwrap();
    let alter = |sql: &str| {
        let mut admin = wire::blocking::Client::connect(&server.target(None)).unwrap();
        admin.query(sql).unwrap();
    };
    work_is_given_out_once(dir.path(), &address(&server), &alter);
}

/// A program that looks at bundles as this one does, and measures as `rerun` says.
fn child(dir: &Path, rerun: &str) -> PathBuf {
    let path = dir.join("child");
    let real = plimsoll().get_program().to_str().unwrap().to_owned();
    let text = format!(
        "#!/bin/sh\nif [ \"$1\" = hub ]; then exec {real} \"$@\"; fi\necho \"$@\" > {0}.new && mv {0}.new {0}\n[ -z \"$PLIMSOLL_HUB_TOKEN\" ] || exit 9\n\
         {rerun}\n",
        dir.join("asked").display()
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_worker_says_what_its_child_found() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&sqlite(dir.path()), &["--remeasure", "1"]);
    let (token, keeper) = (hub.token("ada", &[]), hub.token("eve", &["--scope", "moderate"]));
    let worker = hub.token("robot", &["--scope", "measure"]);
    let (_, bytes) = bundle(dir.path(), "m1", 1);
    assert_eq!(hub.submit(&token, &bytes).0, 201);
    let id = store::bundle::sha256(&bytes);
    let mut machine = super::recorded::host("secret-name", "Linux 6.1");
    (machine.cpu_model, machine.fingerprint) = ("a worker's cpu".to_owned(), "f1".to_owned());
    let work = |rerun: &str, is_stopped: &dyn Fn() -> bool| {
        let work = hub::Work {
            hub: hub.url(),
            token: worker.clone(),
            program: child(dir.path(), rerun),
            results: dir.path().join("worker"),
            budget: Duration::from_secs(60),
            is_once: true,
            pause: Duration::from_millis(10),
            host: machine.clone(),
            version: "0".to_owned(),
        };
        hub::work(&work, is_stopped, &|_| {}).unwrap()
    };

    // Asked to end, it ends its child and gives the work back.
    let began = Instant::now();
    assert_eq!(work("exec sleep 600", &|| dir.path().join("asked").exists()), 0);
    assert!(began.elapsed() < Duration::from_secs(500));
    assert_eq!(newest(&hub, &id)["state"], "waiting");
    let asked = std::fs::read_to_string(dir.path().join("asked")).unwrap();
    let claim = newest(&hub, &id)["claim"].as_str().unwrap().to_owned();
    assert!(asked.contains(&format!("--untrusted --claim {claim} --json - --budget 60s")), "{asked}");

    let here = |ratio: f64| {
        let claim =
            json!({"id": claim, "here": {"ratio": ratio, "low": ratio * 0.999, "high": ratio * 1.001}});
        format!("echo '{}'", json!({"schema": 2, "claims": [claim]}))
    };
    let refused =
        json!({"schema": 2, "claims": [], "refused": [{"what": "env <b>e</b>", "why": "not plain"}]});
    let nothing = json!({"schema": 2, "claims": [{"id": claim, "here": null}]});
    let published = hub.json(&format!("/api/v1/bundles/{id}"))["claims"].clone();
    let published = published.as_array().unwrap().iter().find(|one| one["id"] == claim.as_str()).unwrap();
    let ratio = published["ratio"].as_f64().unwrap();
    for (rerun, state, says, reason) in [
        (here(ratio), "done", "", ""),
        (here(ratio * 3.0), "done", "disagrees", ""),
        (format!("echo '{nothing}'"), "done", "undecided", "too few runs"),
        (format!("echo '{nothing}'; exit 1"), "failed", "could not be", "its runs failed"),
        (format!("echo '{refused}'; exit 2"), "refused", "could not be", "env <b>e</b>: not plain"),
        (
            "echo 'error: /root/secret' >&2; exit 3".to_owned(),
            "failed",
            "could not be",
            "a server that it needs",
        ),
        ("kill -9 $$".to_owned(), "failed", "could not be", "did not come to an end"),
    ] {
        assert_eq!(work(&rerun, &|| false), 1, "{rerun}");
        let found = newest(&hub, &id);
        assert_eq!(found["state"], state, "{rerun}: {found}");
        assert!(found["says"].as_str().unwrap().contains(says), "{rerun}: {found}");
        assert!(found["reason"].as_str().unwrap().contains(reason), "{rerun}: {found}");
        let of_claim = format!("/claim/{claim}");
        let shown = if reason.is_empty() { says } else { reason };
        for path in [&of_claim, "/feed.atom"] {
            let page = hub.page(path);
            assert!(
                page.contains(&shown.replace('<', "&lt;").replace('>', "&gt;").replace('/', "&#x2f;")),
                "{rerun}: {path}: {page}"
            );
        }
        for path in ["/".to_owned(), format!("/bundle/{id}"), of_claim, format!("/api/v1/bundles/{id}")] {
            let page = hub.page(&path);
            let is_json = path.starts_with("/api");
            assert!(!page.contains("secret") && (is_json || !page.contains("<b>e")), "{rerun}: {path}");
        }
        // The claim is drawn anew: until it is this one.
        let ask = format!("/api/v1/bundles/{id}/remeasurements");
        assert_eq!(said(&hub, &ask, &keeper, &json!({})).0, 201);
        let database = rusqlite::Connection::open(dir.path().join("hub.db")).unwrap();
        let same = "UPDATE remeasurement SET claim_id = ?1, claim = ?2 WHERE state = 'waiting'";
        database.execute(same, [&claim, &published.to_string()]).unwrap();
    }
    // Nobody's token.
    let mut command = plimsoll();
    command.args(["hub", "worker", "--once", "--hub", &hub.url()]).env("PLIMSOLL_HUB_TOKEN", &token);
    super::common::Done::of(command.output().unwrap()).expect(1, &["not one to measure with"]);
    run(&["hub", "worker", "--hub", &hub.url(), "--once"]).expect(2, &["PLIMSOLL_HUB_TOKEN"]);
    run(&["hub", "serve", "--remeasure", "2"]).expect(2, &["a number from 0"]);
}

/// The whole way, on real servers: submitted, drawn, measured by a child, shown.
#[test]
fn a_submission_is_measured_again() {
    if !servers_are_there() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).display().to_string();
    let text = "title = \"tiny\"\nquestion = \"Does it run?\"\n[axes]\nserver = [\"postgres\", { server = \"postgres\", \
                label = \"again\" }]\nworkload = \"oltp_point_select\"\n[options]\ntable_size = 1000\n[load]\n\
                warmup = \"100ms\"\nduration = \"500ms\"\nblocks = 2\ngates = \"warn\"\n[compare]\naxis = \"server\"\n\
                base = \"postgres\"\nmetrics = [\"tps\"]\n";
    std::fs::write(at("tiny.toml"), text).unwrap();
    run(&["run", &at("tiny.toml"), "--results", &at("r")]).expect(0, &[]);
    run(&["bundle", "tiny", "--results", &at("r"), "-o", &at("t.plimsoll")]).expect(0, &[]);
    let hub = Hub::start(&sqlite(dir.path()), &["--remeasure", "1"]);
    let (token, worker) = (hub.token("ada", &[]), hub.token("robot", &["--scope", "measure"]));
    let bytes = std::fs::read(at("t.plimsoll")).unwrap();
    assert_eq!(hub.submit(&token, &bytes).0, 201);
    let id = store::bundle::sha256(&bytes);
    let mut command = plimsoll();
    command.args(["hub", "worker", "--once", "--hub", &hub.url(), "--results", &at("worker")]);
    let done = super::common::Done::of(command.env("PLIMSOLL_HUB_TOKEN", &worker).output().unwrap());
    let said = done.expect(0, &["measured here: "]);
    let found = newest(&hub, &id);
    assert_eq!(found["state"], "done", "{found} {}", said.err);
    assert!(found["here"]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0), "{found}");
    assert_eq!(found["is_same_host"], true, "{found}");
    let page = hub.page(&format!("/bundle/{id}"));
    assert!(page.contains("the machine of the bundle"), "{page}");
}
