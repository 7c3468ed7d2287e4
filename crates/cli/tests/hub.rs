//! `hub` and `submit`: a real hub, real bundles, both databases.

#[path = "../../report/tests/common/browser.rs"]
mod browser;
mod common;
#[path = "hub/listed.rs"]
mod listed;
#[path = "hub/reader.rs"]
mod reader;
#[path = "../../report/tests/common/mod.rs"]
mod recorded;
#[path = "hub/remeasure.rs"]
mod remeasure;
#[path = "hub/submitters.rs"]
mod submitters;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use common::{plimsoll, run};
use serde_json::Value;

/// A hub on a port of its own.
struct Hub {
    process: Child,
    address: String,
    db: String,
}

impl Hub {
    fn start(db: &str, more: &[&str]) -> Hub {
        Self::start_with(db, more, |command| command)
    }

    fn start_with(db: &str, more: &[&str], set: impl FnOnce(&mut Command) -> &mut Command) -> Hub {
        let mut command = plimsoll();
        set(command.args(["hub", "serve", "--listen", "127.0.0.1:0", "--db", db]).args(more));
        let mut process = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let line = lines.next().expect("a line with the address").unwrap();
        // What it says later must have a reader.
        std::thread::spawn(move || lines.for_each(drop));
        let address = line.split("http://").nth(1).unwrap().split(',').next().unwrap().to_owned();
        Hub { process, address, db: db.to_owned() }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn token(&self, name: &str, more: &[&str]) -> String {
        let args = [&["hub", "token", "add", name, "--db", &self.db], more].concat();
        run(&args).expect(0, &[]).out.trim().to_owned()
    }

    /// Status, headers and body.
    fn ask(&self, method: &str, path: &str, token: &str, body: &[u8]) -> (u16, String, String) {
        self.ask_with(method, path, &format!("Authorization: Bearer {token}"), body)
    }

    fn ask_with(&self, method: &str, path: &str, header: &str, body: &[u8]) -> (u16, String, String) {
        asked(&self.address, method, path, header, body).expect("an answer")
    }

    fn page(&self, path: &str) -> String {
        let (status, head, body) = self.ask("GET", path, "", &[]);
        assert_eq!(status, 200, "{path}: {body}");
        assert!(head.to_lowercase().contains("content-security-policy"), "{path}: {head}");
        body
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.page(path)).unwrap()
    }

    fn submit(&self, token: &str, bytes: &[u8]) -> (u16, String) {
        let (status, _, body) = self.ask("POST", "/api/v1/bundles", token, bytes);
        (status, body)
    }
}

/// Status, headers and body; `None` where whoever is asked is gone.
fn asked(
    address: &str,
    method: &str,
    path: &str,
    header: &str,
    body: &[u8],
) -> Option<(u16, String, String)> {
    let mut stream = TcpStream::connect(address).ok()?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: hub\r\nConnection: close\r\n{header}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // A refused body is not read to its end.
    drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, head.to_owned(), body.to_owned()))
}

impl Drop for Hub {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// A bundle of the synthetic ladder on a machine of its own.
fn bundle(dir: &Path, machine: &str, seed: u64) -> (PathBuf, Vec<u8>) {
    bundle_of(dir, machine, seed, seed)
}

/// One of several of a machine.
fn bundle_of(dir: &Path, machine: &str, fingerprint: u64, seed: u64) -> (PathBuf, Vec<u8>) {
    let place = dir.join(format!("{machine}-{seed}"));
    let mut store = store::Store::open(&place).unwrap();
    let mut host = recorded::host(machine, "Linux 6.1");
    host.fingerprint = format!("{fingerprint:016x}");
    recorded::add_ladder(&mut store, &host, 6, 3, seed);
    drop(store);
    (place.join("b.plimsoll"), sealed(&place, &[]))
}

/// What `bundle` makes of the ladder in a results directory.
fn sealed(place: &Path, more: &[&str]) -> Vec<u8> {
    let file = place.join("b.plimsoll");
    let args = ["bundle", "quickstart", "--results", place.to_str().unwrap(), "-o", file.to_str().unwrap()];
    run(&[&args, more].concat()).expect(0, &[]);
    std::fs::read(&file).unwrap()
}

/// What `plimsoll submit` says.
fn submitted(to: &str, token: &str, file: &Path) -> String {
    let mut submit = plimsoll();
    submit.args(["submit", file.to_str().unwrap(), "--to", to]).env("PLIMSOLL_HUB_TOKEN", token);
    let said = submit.output().unwrap();
    [said.stdout, said.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat()
}

fn sqlite(dir: &Path) -> String {
    format!("sqlite:{}", dir.join("hub.db").display())
}

/// By its socket, so that nothing else reaches it.
fn address(server: &sandbox::Sandbox) -> String {
    let vars: std::collections::BTreeMap<_, _> = server.env_vars().into_iter().collect();
    format!(
        "postgres://{}@/{}?host={}&port={}",
        vars["PGUSER"],
        vars["PGDATABASE"],
        vars["PGHOST"].replace('/', "%2F"),
        vars["PGPORT"]
    )
}

/// What every hub must do, on whatever database, with bundles in a directory or in that.
fn a_hub_takes_shows_and_compares(dir: &Path, db: &str, bundles: Option<&Path>) {
    let keeping: Vec<&str> =
        bundles.iter().flat_map(|folder| ["--bundles", folder.to_str().unwrap()]).collect();
    let hub = Hub::start(db, &keeping);
    let token = hub.token("ada", &[]);
    let (file, bytes) = bundle(dir, "m1", 1);
    let id = store::bundle::sha256(&bytes);
    let said = submitted(&hub.url(), &token, &file);
    assert!(said.contains(&format!("/bundle/{id}")) && !said.contains("before"), "{said}");
    // The same again is known, by whichever way, and under whatever seal.
    assert_eq!(hub.submit(&token, &bytes).0, 409);
    let resealed = sealed(file.parent().unwrap(), &["--host-names"]);
    assert_ne!(resealed, bytes);
    let (status, body) = hub.submit(&token, &resealed);
    assert!(status == 409 && body.contains(&format!("\"path\":\"/bundle/{id}\"")), "{status} {body}");
    let said = submitted(&hub.url(), &token, &file);
    assert!(said.contains(&format!("/bundle/{id} (it was there before)")), "{said}");
    let database = rusqlite::Connection::open(file.with_file_name("results.db")).unwrap();
    database.execute("UPDATE host SET fingerprint = 'another machine'", []).unwrap();
    drop(database);
    let (status, body) = hub.submit(&token, &sealed(file.parent().unwrap(), &[]));
    assert!(status == 422 && body.contains("names another machine"), "{status} {body}");
    // Another machine of the same submitter proves nothing.
    let (_, own) = bundle(dir, "m4", 4);
    assert_eq!(hub.submit(&token, &own).0, 201);
    let counted = |id: &str| {
        let standing = hub.json(&format!("/api/v1/bundles/{id}"))["claims"][0]["standing"].clone();
        let counts = ["reproduced", "contradicted", "undecided"].map(|name| standing[name].as_u64().unwrap());
        (
            standing["submitters"].as_u64().unwrap(),
            standing["hosts"].as_u64().unwrap(),
            counts.iter().sum::<u64>(),
        )
    };
    assert_eq!(counted(&id), (1, 2, 0));
    let bob = hub.token("bob", &[]);
    let (file_of_bob, second) = bundle(dir, "m2", 2);
    let (status, body) = hub.submit(&bob, &second);
    assert_eq!(status, 201, "{body}");
    assert_eq!(counted(&id), (2, 3, 1));
    let other = store::bundle::sha256(&second);

    assert!(hub.page("/").contains(&format!("/bundle/{id}")));
    let shown = hub.json(&format!("/api/v1/bundles/{id}"));
    assert!(shown["figures"].as_u64().unwrap() > 1000);
    let claim = shown["claims"][0]["id"].as_str().unwrap();
    let measured = hub.json(&format!("/api/v1/claims/{claim}"));
    assert_eq!(measured["measured"][0]["standing"], "first");
    assert_eq!(measured["measured"][1]["is_same_submitter"], true, "{measured}");
    assert_eq!(measured["measured"][2]["is_same_submitter"], false, "{measured}");
    assert!(measured["measured"][1]["between"]["ratio"].as_f64().is_some_and(|ratio| ratio > 0.5));
    let compared = hub.json(&format!("/api/v1/compare?with={id}&with={other}"));
    assert!(compared["claims"][0]["columns"][1]["between"]["ratio"].is_number());
    // Throughputs of two machines never stand in one table.
    for group in compared["cells"].as_array().unwrap() {
        let bundles: Vec<_> = group["rows"].as_array().unwrap().iter().map(|row| &row["bundle"]).collect();
        assert!(bundles.len() > 1 && bundles.windows(2).all(|pair| pair[0] == pair[1]), "{group}");
    }
    let host = shown["hosts"][0]["fingerprint"].as_str().unwrap().replace(' ', "%20");
    for path in [
        format!("/bundle/{id}"),
        format!("/claim/{claim}"),
        format!("/compare?with={id}&with={other}"),
        format!("/host/{host}"),
        "/server/mariadb@11.4.5".to_owned(),
        "/places".to_owned(),
        "/history".to_owned(),
        "/search?q=mariadb+ladder".to_owned(),
        "/submit".to_owned(),
    ] {
        let page = hub.page(&path);
        assert!(page.contains("<h1") && !page.contains("<script"), "{path}");
    }
    let (_, head, report) = hub.ask("GET", &format!("/bundle/{id}/report"), "", &[]);
    assert!(
        head.contains("sandbox allow-scripts") && report.to_lowercase().contains("<!doctype html"),
        "{head}"
    );
    let found = hub.json("/api/v1/bundles?q=no_such_word");
    assert_eq!(found["bundles"], serde_json::json!([]));
    assert_eq!(
        hub.json("/api/v1/bundles?q=%25")["bundles"],
        serde_json::json!([]),
        "% is a letter like others"
    );
    let feed = hub.page("/feed.atom");
    assert!(feed.contains(&format!("urn:sha256:{id}")) && feed.contains(&hub.address), "{feed}");
    what_cannot_be_asked_is_answered(&hub);

    // Who may submit may not hide.
    let hide = format!("/api/v1/bundles/{other}?why=wrong");
    assert_eq!(hub.ask("DELETE", &hide, &token, &[]).0, 403);
    let keeper = hub.token("eve", &["--scope", "moderate"]);
    assert_eq!(hub.submit(&keeper, &bytes).0, 403);
    assert_eq!(hub.ask("DELETE", &hide, &keeper, &[]).0, 204);
    assert_eq!(hub.ask("GET", &format!("/bundle/{other}"), "", &[]).0, 404);
    assert_eq!(hub.ask("GET", &format!("/bundle/{other}/file"), "", &[]).0, 404);
    assert_eq!(hub.json(&format!("/api/v1/claims/{claim}"))["standing"]["bundles"], 2);
    let (status, body) = hub.submit(&bob, &second);
    assert!(status == 410 && body.contains("a moderator hid it"), "{status} {body}");
    let (status, body) = hub.submit(&bob, &sealed(file_of_bob.parent().unwrap(), &["--host-names"]));
    assert!(status == 410 && body.contains("a moderator hid them"), "under another seal: {status} {body}");
    a_hidden_forgery_stands_in_nobodys_way(&hub, dir, [&token, &keeper]);

    run(&["hub", "token", "revoke", "ada", "--db", db]).expect(0, &[]);
    let (status, body) = hub.submit(&token, &second);
    assert!(status == 403 && body.contains("revoked"), "{status} {body}");
    assert!(run(&["hub", "token", "list", "--db", db]).expect(0, &[]).out.contains("revoked"));

    let site = dir.join("site");
    let args = ["hub", "export", site.to_str().unwrap(), "--base", "/results", "--db", db];
    run(&[&args, &keeping[..]].concat()).expect(0, &[]);
    assert_eq!(std::fs::read(site.join(format!("bundle/{id}/file.plimsoll"))).unwrap(), bytes);
    let front = std::fs::read_to_string(site.join("index.html")).unwrap();
    assert!(front.contains(&format!("results/bundle/{id}")) && !front.contains("<form action"), "{front}");
    assert!(front.contains("http-equiv=\"Content-Security-Policy\""), "{front}");
    each_link_of_a_site_leads_somewhere(&site, "/results");
    // What is hidden is gone from the next one, and nothing else is replaced.
    assert_eq!(hub.ask("DELETE", &format!("/api/v1/bundles/{id}?why=%00"), &keeper, &[]).0, 204);
    // One that was killed between its renames has left what was there under another name.
    std::fs::rename(&site, dir.join(".site.old")).unwrap();
    assert!(run(&[&args, &keeping[..]].concat()).expect(0, &[]).out.contains(": 2 bundles\n"));
    assert!(!site.join(format!("bundle/{id}")).exists() && site.join("index.html").is_file());
    std::fs::remove_file(site.join(".plimsoll-export")).unwrap();
    run(&[&args, &keeping[..]].concat()).expect(2, &["something else than an export"]);
    let left = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with('.')).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// Somebody seals another's runs as those of another machine before they do; a moderator hides that.
fn a_hidden_forgery_stands_in_nobodys_way(hub: &Hub, dir: &Path, [token, keeper]: [&str; 2]) {
    let (file, right) = bundle(dir, "m3", 3);
    let place = file.parent().unwrap();
    let database = rusqlite::Connection::open(place.join("results.db")).unwrap();
    database.execute("UPDATE host SET fingerprint = 'another machine'", []).unwrap();
    drop(database);
    let forged = sealed(place, &[]);
    let thief = hub.token("thief", &[]);
    assert_eq!(hub.submit(&thief, &forged).0, 201);
    let (status, body) = hub.submit(token, &right);
    assert!(status == 422 && body.contains("names another machine"), "{status} {body}");
    let hide = format!("/api/v1/bundles/{}?why=forged", store::bundle::sha256(&forged));
    assert_eq!(hub.ask("DELETE", &hide, keeper, &[]).0, 204);
    // Whoever was hidden does not get them in as they are, and the owner does.
    assert_eq!(hub.submit(&thief, &right).0, 410);
    let (status, body) = hub.submit(token, &right);
    assert_eq!(status, 201, "{body}");
}

/// A NUL, which PostgreSQL has in no text; what is no number; what nobody measured.
fn what_cannot_be_asked_is_answered(hub: &Hub) {
    for (method, path, status) in [
        ("GET", "/search?q=%00", 200),
        ("GET", "/api/v1/servers/%00", 404),
        ("GET", "/api/v1/hosts/%00", 404),
        ("GET", "/api/v1/claims/%00", 404),
        ("GET", "/api/v1/history/%00/tps?q=%00", 404),
        ("GET", "/api/v1/history/unknown/tps", 404),
        ("GET", "/history/unknown/tps", 404),
        ("GET", "/history?flavour=unknown", 404),
        ("GET", "/history?flavour=mariadb", 200),
        ("GET", "/nothing", 404),
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/claim/%00", 404),
        ("GET", "/search?page=abc", 400),
        ("POST", "/search", 405),
        ("GET", "/api/v1/history/mariadb/%00", 404),
        ("GET", "/api/v1/history/mariadb/foo", 404),
        ("GET", "/history/mariadb/foo", 404),
        ("GET", "/api/v1/bundles?page=abc", 400),
        ("GET", "/api/v1/servers/%ff", 400),
        ("POST", "/api/v1/front", 405),
    ] {
        let (found, head, body) = hub.ask(method, path, "", &[]);
        assert_eq!(found, status, "{method} {path}: {body}");
        let error = serde_json::from_str::<Value>(&body).unwrap_or_default()["error"].clone();
        let is_json = head.contains("content-type: application/json") && error.is_string();
        let is_page =
            head.contains("content-type: text/html") && body.contains("<h1") && body.contains("<nav");
        let is_right = if path.starts_with("/api/") { is_json } else { is_page };
        assert!(is_right || status == 200, "{method} {path}: {head} {body}");
    }
    for path in ["/history/unknown/tps", "/api/v1/history/unknown/tps"] {
        let (_, _, body) = hub.ask("GET", path, "", &[]);
        assert!(body.contains("unknown") && body.contains("of mariadb"), "{path}: {body}");
    }
    assert_eq!(hub.json("/api/v1/bundles?q=%00")["bundles"], serde_json::json!([]));
}

/// Every page of an export, and every address in it.
fn each_link_of_a_site_leads_somewhere(site: &Path, base: &str) {
    let (mut folders, mut links) = (vec![site.to_owned()], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            if entry.path().is_dir() {
                folders.push(entry.path());
            }
            if entry.file_name() != "index.html" {
                continue;
            }
            let page = std::fs::read_to_string(entry.path()).unwrap();
            for rest in [" href=\"", " src=\""].iter().flat_map(|name| page.split(name).skip(1)) {
                let link = rest.split('"').next().unwrap().replace("&#x2f;", "/");
                let Some(way) = link.strip_prefix(base) else {
                    assert!(link.starts_with('#'), "{link} in {}", entry.path().display());
                    continue;
                };
                let name = percent_decoded(way.trim_start_matches('/'));
                let path = site.join(&name);
                assert!(
                    path.is_file() || path.join("index.html").is_file(),
                    "{link} in {}",
                    entry.path().display()
                );
                links += 1;
            }
        }
    }
    assert!(links > 100, "{links}");
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digits = [*high, *low];
                bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap());
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_hub_on_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let bundles = dir.path().join("hub-bundles");
    a_hub_takes_shows_and_compares(dir.path(), &sqlite(dir.path()), Some(&bundles));
}

#[test]
fn a_hub_on_postgresql() {
    let Some(server) = sandbox::testing::server("postgres") else { return };
    let dir = tempfile::tempdir().unwrap();
    a_hub_takes_shows_and_compares(dir.path(), &address(&server), None);
}

/// From the oldest version that a hub may have to the newest; those in between with all builds only.
#[test]
fn a_hub_on_each_postgresql() {
    let chosen = sandbox::testing::chosen_builds();
    let versions: &[u32] = match chosen.len() {
        0 => return,
        _ if std::env::var("PLIMSOLL_TEST_BUILDS").is_ok_and(|asked| asked == "all") => {
            &[12, 13, 14, 15, 16, 17, 18]
        }
        _ => &[12, 18],
    };
    for version in versions {
        let Some(server) = sandbox::testing::server(&format!("postgres@{version}")) else { return };
        let dir = tempfile::tempdir().unwrap();
        // Hubs of one machine may share a directory.
        let folder = dir.path().join("shared");
        a_hub_takes_shows_and_compares(dir.path(), &address(&server), (version % 2 == 0).then_some(&folder));
    }
}

/// A hub's words about a database that it cannot have.
fn refused(url: &str, password: &str) -> String {
    let mut command = plimsoll();
    command.args(["hub", "token", "list", "--db", url]).env("PGPASSWORD", password);
    let said = common::Done::of(command.output().unwrap()).expect(1, &[]);
    assert!(password.is_empty() || !said.err.contains(password), "{}", said.err);
    said.err
}

#[test]
fn the_way_to_postgresql_is_encrypted_and_its_server_is_checked() {
    let with = |is_encrypted| {
        sandbox::testing::server_with("postgres", |spec| {
            spec.listen = sandbox::Listen::FreePort;
            spec.tls = is_encrypted;
        })
    };
    let (Some(server), Some(open)) = (with(true), with(false)) else { return };
    let of = |server: &sandbox::Sandbox, more: &str| {
        let target = server.tcp_target(None).unwrap();
        let url = format!("postgres://{}@{}/postgres?{more}", target.user, target.endpoint);
        (url, target.password.reveal().to_owned())
    };
    let file = |path: Option<PathBuf>| path.unwrap().display().to_string();
    let (ca, other) = (file(server.tls_ca()), file(server.tls_client().unwrap().certificate));
    let mut admin = wire::blocking::Client::connect(&server.target(None)).unwrap();
    for (mode, is_encrypted) in [
        ("sslmode=disable".to_owned(), "false"),
        ("sslmode=require".to_owned(), "true"),
        (format!("sslmode=verify-ca&sslrootcert={ca}"), "true"),
        (format!("sslmode=verify-full&sslrootcert={ca}"), "true"),
    ] {
        let (url, password) = of(&server, &mode);
        let hub = Hub::start_with(&url, &[], |command| command.env("PGPASSWORD", &password));
        assert_eq!(hub.json("/api/v1/front")["bundles"], 0);
        let seen = "SELECT CAST(bool_and(ssl) AS text) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                    WHERE application_name = 'plimsoll hub'";
        assert_eq!(admin.query_value(seen).unwrap().unwrap(), is_encrypted, "{mode}");
        drop(hub);
        common::wait_until(std::time::Duration::from_secs(60), "the hub's sessions to end", || {
            let left =
                "SELECT CAST(count(*) AS text) FROM pg_stat_activity WHERE application_name = 'plimsoll hub'";
            admin.query_value(left).unwrap().unwrap() == "0"
        });
    }

    for (server, mode, says) in [
        (&open, "sslmode=require".to_owned(), "does not support TLS"),
        (&open, format!("sslmode=verify-full&sslrootcert={ca}"), "does not support TLS"),
        (&server, format!("sslmode=verify-ca&sslrootcert={other}"), "does not come from the authority"),
        (&server, "sslmode=verify-ca&sslrootcert=/no/ca.pem".to_owned(), "/no/ca.pem"),
    ] {
        let (url, password) = of(server, &mode);
        let said = refused(&url, &password);
        assert!(said.contains(says) && said.contains("127.0.0.1"), "{mode}: {said}");
    }
    let (url, _) = of(&server, "sslmode=require");
    assert!(refused(&url, "").contains("password"));
    run(&["hub", "token", "list", "--db", "postgres://h/x?sslmode=perhaps"]).expect(2, &["perhaps"]);
}

#[test]
fn what_is_not_a_sound_bundle_is_refused_and_nothing_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let db = sqlite(dir.path());
    let hub = Hub::start(&db, &["--bundle-max", "1", "--unpacked-max", "16", "--rate", "10000"]);
    let token = hub.token("ada", &[]);
    let (_, bytes) = bundle(dir.path(), "m1", 1);
    let members = store::bundle::unpack(&bytes, &Default::default()).unwrap();
    let forged = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut members = members.clone();
        change(&mut members.iter_mut().find(|(known, _)| known == name).unwrap().1);
        let manifest: store::bundle::Manifest = serde_json::from_slice(&members[0].1).unwrap();
        let new = store::bundle::Manifest::new(&manifest.study, manifest.author, &members[1..], vec![]);
        members[0].1 = new.bytes();
        store::bundle::pack(&members).unwrap()
    };
    let faster = forged("figures.json", &|bytes| {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let at = text.find("\"median\": ").unwrap() + "\"median\": ".len();
        bytes[at] = if bytes[at] == b'9' { b'8' } else { b'9' };
    });
    let bomb = forged("study.toml", &|bytes| bytes.resize(40 << 20, b' '));
    let newer = forged("results.db", &|bytes| bytes[60..64].copy_from_slice(&99_u32.to_be_bytes()));
    let mut deep = members.clone();
    deep[0].1 = format!("{{\"format\": 1, \"x\": {}", "[".repeat(100_000)).into_bytes();
    let deep = store::bundle::pack(&deep).unwrap();
    let mut turned = bytes.clone();
    turned[bytes.len() / 2] ^= 1;
    for (name, bytes, status, says) in [
        ("nothing", Vec::new(), 422, "cut short"),
        ("text", b"GET / HTTP/1.1".to_vec(), 422, "no bundle"),
        ("cut", bytes[..bytes.len() / 2].to_vec(), 422, "no seal"),
        ("turned", turned, 422, "changed after it was sealed"),
        ("forged", faster, 422, "figures are not those of what was measured"),
        ("bomb", bomb, 422, "unpacks to more than"),
        ("newer", newer, 422, "knows up to"),
        ("deep", deep, 422, "cannot be read"),
        ("large", vec![0; 2 << 20], 413, "larger than"),
    ] {
        let (found, body) = hub.submit(&token, &bytes);
        assert!(found == status && body.contains(says), "{name}: {found} {body}");
    }
    assert_eq!(hub.submit("no-token", &bytes).0, 403);
    let late = hub.token("late", &["--expires", "1ms"]);
    std::thread::sleep(std::time::Duration::from_millis(5));
    assert!(hub.submit(&late, &bytes).1.contains("expired"));
    assert_eq!(hub.json("/api/v1/front")["bundles"], 0);
    assert_eq!(std::fs::read_dir(dir.path().join("hub-bundles")).unwrap().count(), 0);
    for path in
        ["/bundle/..%2F..%2Fetc%2Fpasswd/file", "/bundle/x", "/claim/x", "/host/x", "/server/x", "/nothing"]
    {
        assert_eq!(hub.ask("GET", path, "", &[]).0, 404, "{path}");
    }
    // A refusal is heard, however much was to be sent.
    let large = dir.path().join("large.plimsoll");
    std::fs::write(&large, vec![0; 30 << 20]).unwrap();
    for (token, says) in [("no-token", "does not know this token"), (&token, "larger than")] {
        let said = submitted(&hub.url(), token, &large);
        assert!(said.contains(says), "{said}");
        let (_, body) = hub.submit(token, &vec![0; 30 << 20]);
        assert!(body.contains(says), "{body}");
    }
    so_many_bundles_arrive_at_once(&hub, &token);
    run(&["hub", "token", "add", "never", "--expires", "0s", "--db", &db]).expect(2, &["expired"]);
    run(&["submit", "/no/file", "--to", &hub.url()]).expect(2, &["PLIMSOLL_HUB_TOKEN"]);
    let mut insecure = plimsoll();
    let file = dir.path().join("m1-1/b.plimsoll");
    insecure.args(["submit", file.to_str().unwrap(), "--to", "http://127.0.0.1.example.org"]);
    let said = insecure.env("PLIMSOLL_HUB_TOKEN", "t").output().unwrap();
    assert!(String::from_utf8_lossy(&said.stderr).contains("https:// only"));
}

/// A place is taken before a bundle is read: whoever finds none is told so, and sends nothing.
fn so_many_bundles_arrive_at_once(hub: &Hub, token: &str) {
    let begun = || {
        let mut stream = TcpStream::connect(&hub.address).unwrap();
        let head = format!(
            "POST /api/v1/bundles HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer {token}\r\nExpect: 100-continue\r\n\
             Content-Length: 1000\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut said = [0; 12];
        stream.read_exact(&mut said).unwrap();
        (stream, String::from_utf8_lossy(&said).into_owned())
    };
    let all: Vec<_> = (0..17).map(|_| begun()).collect();
    let (last, others) = all.split_last().unwrap();
    assert!(others.iter().all(|(_, said)| said == "HTTP/1.1 100"), "{others:?}");
    assert_eq!(last.1, "HTTP/1.1 429");
    drop(all);
    common::wait_until(std::time::Duration::from_secs(30), "their places to be free", || {
        begun().1 == "HTTP/1.1 100"
    });
}

#[test]
fn a_token_may_submit_so_often_in_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&sqlite(dir.path()), &["--rate", "2"]);
    let token = hub.token("ada", &[]);
    let found = [0, 1, 2].map(|at| hub.submit(&token, &[at]).0);
    assert_eq!(found, [422, 422, 429]);
}

/// What a browser sends for the form of `/submit`: its fields in their order.
fn sent_by_form(hub: &Hub, fields: &[(&str, &[u8])]) -> (u16, String) {
    const BOUNDARY: &str = "----geckoformboundary7f1c9d04a2";
    let mut body = Vec::new();
    for (name, value) in fields {
        let file = "; filename=\"b.plimsoll\"\r\nContent-Type: application/octet-stream";
        let file = if *name == "bundle" { file } else { "" };
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n");
        body.extend([head.as_bytes(), value, b"\r\n"].concat());
    }
    body.extend(format!("--{BOUNDARY}--\r\n").as_bytes());
    let header = format!("Content-Type: multipart/form-data; boundary={BOUNDARY}");
    let (status, _, page) = hub.ask_with("POST", "/submit", &header, &body);
    (status, page)
}

#[test]
fn a_bundle_is_submitted_by_the_form() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&sqlite(dir.path()), &["--bundle-max", "1"]);
    let token = hub.token("ada", &[]);
    let (_, bytes) = bundle(dir.path(), "m1", 1);
    let form = hub.page("/submit");
    let fields: Vec<&str> =
        form.split(" name=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert!(fields.ends_with(&["token", "bundle"]), "the token comes first: {fields:?}");

    let (token, right) = (token.as_bytes(), bytes.as_slice());
    let turned = [&right[..right.len() / 2], b"?", &right[right.len() / 2 + 1..]].concat();
    let large = vec![0; 2 << 20];
    for (name, fields, status, says) in [
        ("no token", vec![("token", &b""[..]), ("bundle", right)], 403, "does not know this token"),
        ("another", vec![("token", b"<b>x</b>"), ("bundle", right)], 403, "does not know this token"),
        ("long", vec![("token", &large[..300]), ("bundle", right)], 403, "does not know this token"),
        ("the bundle first", vec![("bundle", right), ("token", token)], 403, "a token is asked for"),
        ("nothing", vec![], 403, "a token is asked for"),
        ("no bundle", vec![("token", token)], 400, "the form has no bundle"),
        ("no file chosen", vec![("token", token), ("bundle", b"")], 422, "cut short"),
        ("turned", vec![("token", token), ("bundle", &turned)], 422, "changed after it was sealed"),
        ("large", vec![("token", token), ("bundle", &large)], 413, "larger than"),
    ] {
        let (found, page) = sent_by_form(&hub, &fields);
        assert!(found == status && page.contains(says), "{name}: {found} {page}");
        assert!(page.contains("<h1") && !page.contains("<b>x"), "{name}: {page}");
    }
    assert_eq!(hub.json("/api/v1/front")["bundles"], 0);

    let id = store::bundle::sha256(&bytes);
    for (status, says) in [(201, "It verifies"), (409, "is here already")] {
        let (found, page) = sent_by_form(&hub, &[("token", token), ("bundle", right)]);
        assert!(found == status && page.contains(says) && page.contains(&id), "{found} {page}");
    }
    assert!(hub.page(&format!("/bundle/{id}")).contains("<h1"));
    assert_eq!(hub.json("/api/v1/front")["bundles"], 1);
    // Without end, and without anything that a form has: it is not read on.
    let mut stream = TcpStream::connect(&hub.address).unwrap();
    stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
    let head = "POST /submit HTTP/1.1\r\nHost: hub\r\nContent-Type: multipart/form-data; boundary=x\r\n\
                Content-Length: 1000000000\r\n\r\n";
    stream.write_all(&[head.as_bytes(), &vec![b'-'; 200 << 10]].concat()).unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, *b"HTTP/1.1 400");
    // The end is missing.
    let cut = hub.ask_with("POST", "/submit", "Content-Type: multipart/form-data; boundary=x", b"--x\r\n");
    assert_eq!(cut.0, 400, "{}", cut.2);
}

#[test]
fn a_browser_submits_by_the_form() {
    let Some(mut browser) = browser::Browser::start("the hub's form in a browser") else { return };
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&sqlite(dir.path()), &[]);
    let token = hub.token("ada", &[]);
    let (file, bytes) = bundle(dir.path(), "m1", 1);
    browser.open(&format!("{}/submit", hub.url()), 1280);
    browser.value(&format!("document.getElementById('token').value = '{token}'"));
    let field = serde_json::json!({"expression": "document.getElementById('bundle')"});
    let field = browser.ask("Runtime.evaluate", field)["result"]["objectId"].clone();
    browser.ask("DOM.setFileInputFiles", serde_json::json!({"files": [file], "objectId": field}));
    browser.value("document.querySelector('form.submit button').click()");
    browser.wait("the answer", |message| message["method"] == "Page.loadEventFired");
    let text = browser.value("document.querySelector('main').innerText");
    assert!(text.as_str().unwrap().contains("It verifies"), "{text}");
    browser.value("document.querySelector('main a').click()");
    browser.wait("the bundle's page", |message| message["method"] == "Page.loadEventFired");
    let shown = format!("/bundle/{}", store::bundle::sha256(&bytes));
    assert_eq!(browser.value("location.pathname"), shown.as_str());
    assert_eq!(browser.complaints(), Vec::<&Value>::new());
}

/// A hostile title and names are texts on every page.
#[test]
fn markup_of_a_submitter_stays_text() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&sqlite(dir.path()), &[]);
    let token = hub.token("ada", &[]);
    // Markup, a template, and what neither XML nor a line of text can have.
    let hostile =
        "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7*7777 }}\u{1}\u{202e}\u{fffe}";
    let place = dir.path().join("r");
    let mut store = store::Store::open(&place).unwrap();
    let mut machine = recorded::host("m1", "Linux");
    machine.cpu_model = hostile.to_owned();
    recorded::add_ladder(&mut store, &machine, 5, 3, 1);
    drop(store);
    let database = rusqlite::Connection::open(place.join("results.db")).unwrap();
    database.execute("UPDATE study SET title = ?1, question = ?1", [hostile]).unwrap();
    drop(database);
    let file = dir.path().join("b.plimsoll");
    run(&["bundle", "quickstart", "--results", place.to_str().unwrap(), "-o", file.to_str().unwrap()])
        .expect(0, &[]);
    let bytes = std::fs::read(&file).unwrap();
    let (status, body) = hub.submit(&token, &bytes);
    assert_eq!(status, 201, "{body}");
    let id = store::bundle::sha256(&bytes);
    let claim = hub.json(&format!("/api/v1/bundles/{id}"))["claims"][0]["id"].as_str().unwrap().to_owned();
    for path in
        ["/", "/search", "/places", "/feed.atom", &format!("/bundle/{id}"), &format!("/claim/{claim}")]
    {
        let page = hub.page(path);
        for markup in ["<script", "<img", "54439", "\u{1}", "\u{202e}", "\u{fffe}"] {
            assert!(!page.contains(markup), "{markup} in {path}");
        }
    }
    assert!(hub.page(&format!("/bundle/{id}")).contains("&lt;script&gt;"));
}

/// Each way that the description names answers with what it promises, and each way of the JSON is named.
#[test]
fn the_json_is_as_its_description_says() {
    let dir = tempfile::tempdir().unwrap();
    let hub = Hub::start(&sqlite(dir.path()), &["--remeasure", "1"]);
    let token = hub.token("ada", &[]);
    let (_, bytes) = bundle(dir.path(), "m1", 1);
    assert_eq!(hub.submit(&token, &bytes).0, 201);
    let id = store::bundle::sha256(&bytes);
    let shown = hub.json(&format!("/api/v1/bundles/{id}"));
    let api = hub.json("/api/v1/openapi.json");
    let mut asked = 0;
    for (path, ways) in api["paths"].as_object().unwrap() {
        let Some(get) = ways.get("get") else { continue };
        let schema = &get["responses"]["200"]["content"]["application/json"]["schema"];
        let path = path
            .replace("/bundles/{id}", &format!("/bundles/{id}"))
            .replace("/claims/{id}", &format!("/claims/{}", shown["claims"][0]["id"].as_str().unwrap()))
            .replace("/hosts/{id}", &format!("/hosts/{}", shown["hosts"][0]["fingerprint"].as_str().unwrap()))
            .replace("{name}", "mariadb@11.4.5")
            .replace("{flavor}/{metric}", "mariadb/tps")
            .replace(' ', "%20")
            .replace("/compare", &format!("/compare?with={id}"));
        fits(&api, schema, &hub.json(&path), &path);
        asked += 1;
    }
    assert_eq!(asked, 10);
    let source = include_str!("../../hub/src/serve.rs");
    for way in source.lines().filter_map(|line| line.trim().strip_prefix(".route(\"/api/")) {
        let way = format!("/api/{}", way.split('"').next().unwrap());
        assert!(api["paths"].get(&way).is_some(), "{way} is not described");
    }
}

fn fits(api: &Value, schema: &Value, value: &Value, place: &str) {
    if let Some(name) = schema["$ref"].as_str() {
        return fits(api, &api["components"]["schemas"][name.rsplit('/').next().unwrap()], value, place);
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let is_of = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        _ => value.is_null(),
    };
    assert!(kinds.iter().any(is_of), "{place}: {kinds:?} is promised, found {value}");
    for name in schema["required"].as_array().into_iter().flatten() {
        assert!(value.get(name.as_str().unwrap()).is_some(), "{place} lacks {name}");
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = value.get(name) {
            fits(api, schema, value, &format!("{place}.{name}"));
        }
    }
    for value in value.as_array().into_iter().flatten().filter(|_| schema.get("items").is_some()) {
        fits(api, &schema["items"], value, &format!("{place}[]"));
    }
}
