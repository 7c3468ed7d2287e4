//! What can be seen of which server: the table in docs/telemetry.md against real servers of every era. Everything that
//! a gate, a drain or a chart reads is made to happen, and must then be seen or stand in the table as not seen.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sandbox::{Flavor, Sandbox};
use telemetry::drain::{Terms, drain};
use telemetry::{Config, Sampler, Telemetry};
use wire::blocking::Client;

/// Of the samplers, under the names of the results file.
const FIGURES: [&str; 24] = [
    "checkpoint_age_bytes",
    "checkpoint_age_limit_bytes",
    "dirty_bytes",
    "buffer_bytes",
    "buffer_data_bytes",
    "history_list_length",
    "dead_tuples",
    "live_tuples",
    "buffer_reads",
    "buffer_read_requests",
    "started_unix_s",
    "rows_read",
    "rows_inserted",
    "rows_updated",
    "rows_deleted",
    "commits",
    "log_bytes",
    "log_writes",
    "log_syncs",
    "pages_written",
    "row_lock_waits",
    "row_lock_wait",
    "row_lock_waiting",
    "deadlocks",
];

const ENGINES: [&str; 6] = ["InnoDB", "MyISAM", "MEMORY", "Aria", "heap", "unlogged"];

type Seen = BTreeMap<String, bool>;

/// What the table says of one build; `None` where it may be seen or not: what purge has done shortens the history list of some
/// versions only after so many of its batches, be they before the drain's end or after it.
type Documented = BTreeMap<String, Option<bool>>;

/// The columns of the table by build (`mysql@5.5.9`).
fn documented() -> BTreeMap<String, Documented> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/telemetry.md");
    let text = std::fs::read_to_string(path).unwrap();
    let table = text.split_once("\n| seen |").expect("docs/telemetry.md has the table").1;
    let mut lines = table.lines().take_while(|line| !line.is_empty());
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let builds: Vec<String> =
        cells(lines.next().unwrap()).into_iter().filter(|cell| !cell.is_empty()).collect();
    let mut columns: BTreeMap<String, Documented> =
        builds.iter().map(|build| (build.clone(), Documented::new())).collect();
    for line in lines.skip(1) {
        let row = cells(line);
        let what = row[1].trim_matches('`');
        for (build, cell) in builds.iter().zip(&row[2..]) {
            let is_seen = match cell.as_str() {
                "yes" => Some(true),
                "–" => Some(false),
                "at times" => None,
                _ => panic!("`{cell}` for {what} of {build}"),
            };
            columns.get_mut(build).unwrap().insert(what.to_owned(), is_seen);
        }
    }
    columns
}

#[test]
fn what_is_seen_of_every_era_is_what_the_table_says() {
    let documented = documented();
    let mut wrong = Vec::new();
    for selector in sandbox::testing::chosen_builds() {
        let Some(mut server) = sandbox::testing::server(selector) else { return };
        let seen = look(&mut server);
        let column = documented.get(selector).unwrap_or_else(|| panic!("no column for {selector}"));
        for (what, is_seen) in &seen {
            if column.get(what).is_none_or(|said| said.is_some_and(|said| said != *is_seen)) {
                wrong.push(format!("{selector}: {what} is {}", if *is_seen { "yes" } else { "–" }));
            }
        }
        wrong.extend(
            column
                .keys()
                .filter(|what| !seen.contains_key(*what))
                .map(|what| format!("nobody looks at {what}")),
        );
    }
    assert!(wrong.is_empty(), "docs/telemetry.md says otherwise:\n{}", wrong.join("\n"));
}

fn look(server: &mut Sandbox) -> Seen {
    let is_postgres = server.build().flavor == Flavor::Postgres;
    let mut root = Client::connect(&server.target(None)).unwrap();
    if !is_postgres {
        root.query("CREATE DATABASE seen").unwrap();
        // Thousands of commits in a moment.
        root.query("SET GLOBAL innodb_flush_log_at_trx_commit = 0").unwrap();
    }
    let database = (!is_postgres).then_some("seen");
    let mut seen = Seen::new();
    let sampler = sampler(server, database);
    let paid = work(server, database, &sampler);
    let first = sampler.stop().0;
    server.restart().unwrap();
    let second = read_all(server, database);
    for name in FIGURES {
        seen.insert(name.to_owned(), moved(&first, name) || moved(&second, name));
    }
    let debts = [
        ("dirty pages", "dirty_bytes"),
        ("history list", "history_list_length"),
        ("dead tuples", "dead_tuples"),
    ];
    for ((name, figure), is_paid) in debts.into_iter().zip(paid) {
        seen.insert(format!("drain: {name}"), is_paid && moved(&first, figure));
    }
    seen.extend(engines(server));
    seen
}

fn sampler(server: &Sandbox, database: Option<&str>) -> Sampler {
    let sampler = Sampler::start(&Config {
        client_pids: Vec::new(),
        epoch: Instant::now(),
        server_pid: server.pid(),
        datadir: None,
        target: Some(server.target(database)),
        replicas: Vec::new(),
        metrics: None,
        agent: None,
    });
    tick(&sampler);
    sampler
}

/// Looks, and waits until the look is over.
fn tick(sampler: &Sampler) {
    // PostgreSQL's sessions report their counters no more often than once a second, before 15 twice.
    std::thread::sleep(Duration::from_millis(1100));
    sampler.tick();
    std::thread::sleep(Duration::from_millis(300));
}

fn moved(seen: &Telemetry, name: &str) -> bool {
    let Some(track) = seen.track("server", name) else { return false };
    let values: Vec<f64> =
        track.points.iter().map(|(_, value)| *value).filter(|value| value.is_finite()).collect();
    match track.kind {
        telemetry::Kind::Counter => values.last() > values.first(),
        telemetry::Kind::Gauge => values.iter().any(|value| *value > 0.0),
    }
}

/// Whether draining left nothing of dirty pages, the history list, dead rows.
type Paid = [bool; 3];

/// Everything that a figure counts; then the debt is paid.
fn work(server: &Sandbox, database: Option<&str>, sampler: &Sampler) -> Paid {
    let target = server.target(database);
    let is_postgres = database.is_none();
    let connect = || Client::connect(&target).unwrap();
    let mut client = connect();
    let options = if is_postgres { "WITH (autovacuum_enabled = off)" } else { "ENGINE = InnoDB" };
    client.query(&format!("CREATE TABLE t (a int PRIMARY KEY, b char(250)) {options}")).unwrap();
    let rows: Vec<String> = (0..2000).map(|a| format!("({a}, 'x')")).collect();
    client.query(&format!("INSERT INTO t VALUES {}", rows.join(","))).unwrap();
    for power in 0..4 {
        client.query(&format!("INSERT INTO t SELECT a + {}, b FROM t", 2000 << power)).unwrap();
    }
    tick(sampler);
    // A reader that stays keeps what it may still read.
    let mut reader = connect();
    let isolation = "TRANSACTION ISOLATION LEVEL REPEATABLE READ";
    match is_postgres {
        true => reader.query(&format!("BEGIN {isolation}")).map(|_| ()).unwrap(),
        false => {
            reader.query(&format!("SET SESSION {isolation}")).unwrap();
            reader.query("START TRANSACTION WITH CONSISTENT SNAPSHOT").unwrap();
        }
    }
    reader.query("SELECT count(*) FROM t").unwrap();
    for a in 0..1500 {
        client.query(&format!("UPDATE t SET b = 'y' WHERE a = {a}")).unwrap();
    }
    client.query("DELETE FROM t WHERE a >= 31000").unwrap();
    tick(sampler);
    contend(&mut client, &mut connect(), sampler);
    reader.query("COMMIT").unwrap();
    client.close();
    reader.close();
    tick(sampler);
    let terms = Terms {
        limit: Duration::from_secs(60),
        is_ours: true,
        is_cold: false,
        only_reads: false,
        datadir: None,
        told: &|_| (),
    };
    let first = drain(&target, &terms).unwrap();
    tick(sampler);
    let again = drain(&target, &terms).unwrap();
    assert!(!first.is_unfinished && !again.is_unfinished, "{}: {first:?}, {again:?}", server.build());
    let figure = |debt: &str, name: &str| -> Option<f64> {
        let rest = debt.split_once(&format!("{name} "))?.1;
        rest.split([',', ' ']).next()?.parse().ok()
    };
    // Purge that goes on after a drain makes pages dirty again, so that what counts is what the next one leaves. PostgreSQL's
    // says only what it found.
    let debt = if is_postgres { &again.found } else { &again.left };
    // 1 % of a buffer of 128 MiB; a list and rows that are worth no wait.
    let is_paid = |(name, few): (&str, f64)| figure(debt, name).is_some_and(|left| left <= few);
    [("dirty pages", 81.0), ("history list", 1000.0), ("dead tuples", 1000.0)].map(is_paid)
}

/// A lock that is waited for, and two sessions that wait for each other.
fn contend(one: &mut Client, other: &mut Client, sampler: &Sampler) {
    let update = |a: u32| format!("UPDATE t SET b = 'z' WHERE a = {a}");
    one.query("BEGIN").unwrap();
    one.query(&update(1)).unwrap();
    other.query("BEGIN").unwrap();
    other.query(&update(2)).unwrap();
    let both = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.query(&update(1)).is_ok());
        tick(sampler);
        let mine = one.query(&update(2)).is_ok();
        // The victim's locks go when it ends, and the other one goes on.
        let _ = one.query("ROLLBACK");
        [mine, waiting.join().unwrap()]
    });
    let _ = other.query("ROLLBACK");
    assert!(both.contains(&false), "one of two sessions that wait for each other is given up");
}

/// After a start nothing is in the buffer.
fn read_all(server: &Sandbox, database: Option<&str>) -> Telemetry {
    let sampler = sampler(server, database);
    let mut client = Client::connect(&server.target(database)).unwrap();
    client.query("SELECT sum(length(b)) FROM t").unwrap();
    tick(&sampler);
    client.close();
    tick(&sampler);
    sampler.stop().0
}

/// What the build is said to have is what the running server has.
fn engines(server: &Sandbox) -> Seen {
    let build = server.build();
    let mut there = Vec::new();
    if build.flavor != Flavor::Postgres {
        let sets = Client::connect(&server.target(None)).unwrap().query_sets("SHOW ENGINES").unwrap();
        for (row, _) in sets[0].rows.iter().enumerate() {
            if matches!(sets[0].text(row, 1), Some("YES" | "DEFAULT")) {
                there.push(sets[0].text(row, 0).unwrap().to_owned());
            }
        }
    }
    ENGINES
        .iter()
        .map(|engine| {
            let is_said = sandbox::engines::check(build, engine).is_ok();
            if build.flavor != Flavor::Postgres && *engine != "heap" {
                // One that is not known beforehand is left to the server: `unlogged`.
                let is_there = there.iter().any(|name| name.eq_ignore_ascii_case(engine));
                assert!(is_said || !is_there, "{build} has {engine}");
                return (format!("engine {engine}"), is_there);
            }
            (format!("engine {engine}"), is_said)
        })
        .collect()
}
