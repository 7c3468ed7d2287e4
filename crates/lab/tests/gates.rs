//! One fault for each gate, injected for real where a test can do so, and caught on the way that a study's runs take:
//! samplers on a server, gates at the end. What cannot be injected (a cpu that throttles) is in `telemetry`'s own tests
//! as recorded figures; settings that a server changes are in those of the command line.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use lab::watch::Watch;
use lab::{Attach, Hook, Part, RunContext};
use sandbox::{Flavor, Limits, Sandbox};
use store::{ClientUsage, Finding, Gate, Outcomes, Second, Step};
use wire::Target;
use wire::blocking::Client;

/// A run in the eyes of its hooks.
struct Watched {
    began: Instant,
    hooks: Vec<Box<dyn Hook>>,
}

impl Watched {
    fn new(context: &RunContext) -> Watched {
        Watched { began: context.began, hooks: Watch::default().attach(context, &|_| ()) }
    }

    /// Looks, and leaves the samplers time to do so.
    fn tick(&mut self) {
        for hook in &mut self.hooks {
            hook.event(&load::Event::Connected { step: 0, sessions: 1, took: Duration::ZERO });
        }
        std::thread::sleep(Duration::from_millis(150));
    }

    fn now_s(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The gate of that name after a run whose measured phase began at `from_s` and ends now.
    fn gate(self, name: &str, from_s: f64) -> Gate {
        // A sample belongs to the second that it ends, with half a second of tolerance.
        let step = step(from_s - 0.5, self.now_s() - from_s + 0.5, &[100; 12], 0);
        self.gate_of(name, &[step])
    }

    fn gate_of(self, name: &str, steps: &[Step]) -> Gate {
        let part = Part { steps, slices: None };
        let found = self.hooks.into_iter().flat_map(|hook| hook.finish(&[part]));
        let gates: Vec<Gate> = found.flat_map(|found| found.gates).collect();
        let found = gates.iter().find(|gate| gate.name == name);
        found.unwrap_or_else(|| panic!("no {name} among {gates:?}")).clone()
    }
}

#[track_caller]
fn caught(gate: &Gate) {
    assert!(gate.is_tripped() && !gate.detail.is_empty() && !gate.remedy.is_empty(), "{gate:?}");
}

#[track_caller]
fn held(gate: &Gate) {
    assert_eq!(gate.finding, Finding::Held, "{gate:?}");
}

/// A step with so many committed transactions in each second.
fn step(offset_s: f64, duration_s: f64, per_second: &[u64], failed: u64) -> Step {
    let histogram = || Histogram::new_with_bounds(1, 1_000_000, 3).unwrap();
    let seconds = per_second.iter().enumerate().map(|(index, committed)| Second {
        second: index as i64 + 1,
        duration_s: 1.0,
        committed: *committed,
        failed: 0,
        statements: 0,
        backlog: 0,
        response: None,
    });
    let outcomes = Outcomes { committed: per_second.iter().sum(), deadlock: failed, ..Outcomes::default() };
    Step {
        sessions: 1,
        rate_tps: None,
        arrivals: None,
        offset_s,
        warmup_s: 0.0,
        duration_s,
        connect_s: 0.0,
        outcomes,
        outcomes_whole: outcomes,
        reads: 0,
        writes: 0,
        other: 0,
        retries: 0,
        in_flight_at_end: 0,
        backlog_at_end: 0,
        drained: 0,
        response: histogram(),
        service: None,
        by_statement: vec![],
        errors: [].into(),
        seconds: seconds.collect(),
        intervals: vec![],
        client: ClientUsage::default(),
        ended_by: None,
        arrivals_offered: None,
        failed: None,
        unended: None,
        stalls: None,
    }
}

fn context(target: Target, flavor: Flavor) -> RunContext {
    RunContext {
        client_pids: Vec::new(),
        replicas: Vec::new(),
        target,
        flavor,
        server_pid: None,
        datadir: None,
        log_file: None,
        is_ours: false,
        limits: Limits::default(),
        began: Instant::now(),
        canary_ratio: None,
        is_cold: false,
        only_reads: false,
        is_sliced: false,
    }
}

fn context_of(server: &Sandbox, is_cold: bool) -> RunContext {
    RunContext {
        server_pid: server.pid(),
        datadir: Some(server.datadir().to_owned()),
        is_ours: true,
        is_cold,
        ..context(server.target(None), server.build().flavor)
    }
}

/// A server that is not there: what the load itself says is judged all the same.
fn nobody() -> RunContext {
    context(Target::parse("mysql://root@127.0.0.1:1/x").unwrap(), Flavor::Mariadb)
}

/// Processes that go when the test does.
struct Processes(Vec<Child>);

impl Processes {
    fn of_shell(count: usize, script: &str) -> Processes {
        let start = |_| Command::new("sh").args(["-c", script]).stdin(Stdio::null()).spawn().unwrap();
        Processes((0..count).map(start).collect())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn throughput_that_halves_is_not_steady() {
    let of = |per_second: &[u64]| {
        let steps = [step(0.0, per_second.len() as f64, per_second, 0)];
        Watched::new(&nobody()).gate_of("not_steady", &steps)
    };
    let wobble = |level: u64, second: u64| level + (second * 7) % 5;
    held(&of(&(0..20).map(|second| wobble(1000, second)).collect::<Vec<_>>()));
    let halved = |second| wobble(if second < 10 { 1000 } else { 500 }, second);
    caught(&of(&(0..20).map(halved).collect::<Vec<_>>()));
    let falling: Vec<u64> = (0..20).map(|second| wobble(1000 - 30 * second, second)).collect();
    caught(&of(&falling));
}

#[test]
fn transactions_that_fail_are_counted_against_a_share() {
    let of = |failed| Watched::new(&nobody()).gate_of("errors", &[step(0.0, 12.0, &[100; 12], failed)]);
    held(&of(12));
    caught(&of(13));
}

#[test]
fn processes_that_burn_the_cpu_are_noise() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    // Stands in for a server that does nothing.
    let idle = Processes::of_shell(1, "exec sleep 600");
    let context = RunContext { server_pid: Some(idle.0[0].id()), ..nobody() };
    let mut watched = Watched::new(&context);
    let _burners = Processes::of_shell(cpus, "while :; do :; done");
    let from_s = watched.now_s();
    while watched.now_s() < from_s + 2.0 {
        watched.tick();
    }
    let gate = watched.gate("noisy_host", from_s);
    caught(&gate);
    assert!(gate.detail.contains("other processes took"), "{gate:?}");
}

#[test]
fn a_checkpoint_age_that_runs_to_its_limit_is_debt() {
    let small_log = |spec: &mut sandbox::Spec| {
        spec.settings.insert("innodb_log_file_size".to_owned(), (4 << 20).to_string());
        spec.settings.insert("innodb_adaptive_flushing".to_owned(), "OFF".to_owned());
        // MariaDB 11 heeds this one even so: from a tenth of the log on it may write everything back within a second.
        spec.settings.insert("innodb_adaptive_flushing_lwm".to_owned(), "70".to_owned());
    };
    let Some(server) = sandbox::testing::server_with("mariadb", small_log) else { return };
    let mut client = Client::connect(&server.target(None)).unwrap();
    client.query("CREATE DATABASE d").unwrap();
    client.query("CREATE TABLE d.t (a int AUTO_INCREMENT PRIMARY KEY, b longblob) ENGINE=InnoDB").unwrap();
    let mut status = |name: &str| -> f64 {
        let mut value = 0.0;
        client
            .query_rows(&format!("SHOW GLOBAL STATUS LIKE '{name}'"), &mut |row| {
                value = row.text(1).unwrap().parse().unwrap();
            })
            .unwrap();
        value
    };
    // Short of where the server begins to write for its life, which differs between versions; each row is some 58 KB of log.
    let limit = status("Innodb_checkpoint_max_age");
    let rows = (0.75 * limit / 58e3) as usize;
    let mut watched = Watched::new(&context_of(&server, false));
    let from_s = watched.now_s();
    let at_start = status("Innodb_checkpoint_age");
    watched.tick();
    let mut writer = Client::connect(&server.target(Some("d"))).unwrap();
    for look in 0..11 {
        for _ in rows * look / 11..rows * (look + 1) / 11 {
            writer.query("INSERT INTO t (b) VALUES (repeat('x', 57000))").unwrap();
        }
        watched.tick();
    }
    let grown = status("Innodb_checkpoint_age") - at_start;
    let gate = watched.gate("debt_growing", from_s);
    caught(&gate);
    assert!(gate.detail.contains("checkpoint age"), "{gate:?} {grown} of {limit}");
}

#[test]
fn files_that_are_in_the_page_cache_are_not_cold() {
    let Some(mut server) = sandbox::testing::server("postgres") else { return };
    let mut client = Client::connect(&server.target(None)).unwrap();
    client
        .query("CREATE TABLE t AS SELECT g AS a, repeat('x', 100) AS b FROM generate_series(1, 100000) g")
        .unwrap();
    client.query("CHECKPOINT").unwrap();
    client.close();
    // Declared cold, and nobody emptied the page cache after the table was written through it.
    let gate = Watched::new(&context_of(&server, true)).gate("cache_state", 0.0);
    caught(&gate);
    if server.storage_facts().unwrap().filesystem == "tmpfs" {
        testkit::not_tested("a cold page cache", "data directories are in memory here");
        return;
    }
    server.restart_cold().unwrap();
    let gate = Watched::new(&context_of(&server, true)).gate("cache_state", 0.0);
    held(&gate);
    // Somebody reads the files meanwhile: a backup, say.
    let read = Command::new("grep").args(["-rq", "no such text"]).arg(server.datadir()).status().unwrap();
    assert_eq!(read.code(), Some(1));
    caught(&Watched::new(&context_of(&server, true)).gate("cache_state", 0.0));
}

#[test]
fn a_buffer_that_is_still_filling_is_not_warm() {
    ["mysql@8.0", "mariadb"].into_iter().for_each(a_filling_buffer_is_not_warm);
}

fn a_filling_buffer_is_not_warm(selector: &str) {
    let Some(mut server) = sandbox::testing::server(selector) else { return };
    let mut client = Client::connect(&server.target(None)).unwrap();
    client.query("CREATE DATABASE d").unwrap();
    // Statistics that the server takes by itself would ask for more pages than the load does.
    let options = "ENGINE=InnoDB CHARSET=latin1 STATS_AUTO_RECALC=0";
    client.query(&format!("CREATE TABLE d.t (a int PRIMARY KEY, b char(250)) {options}")).unwrap();
    let rows: Vec<String> = (0..2000).map(|a| format!("({a}, 'x')")).collect();
    client.query(&format!("INSERT INTO d.t VALUES {}", rows.join(","))).unwrap();
    for power in 0..6 {
        client.query(&format!("INSERT INTO d.t SELECT a + {}, b FROM d.t", 2000 << power)).unwrap();
    }
    client.query("ANALYZE TABLE d.t").unwrap();
    client.close();
    server.stop().unwrap();
    server.start().unwrap();
    let mut client = Client::connect(&server.target(Some("d"))).unwrap();
    // About 55 rows a page, and pages in an order that no read-ahead foresees.
    let mut read_pages = |from: u64, count: u64| {
        for page in from..from + count {
            client.query(&format!("SELECT b FROM t WHERE a = {}", page * 911 % 2200 * 55)).unwrap();
        }
    };
    let mut watched = Watched::new(&context_of(&server, false));
    let from_s = watched.now_s();
    for look in 0..12 {
        // A third of the phase reads what is new, the rest what is there.
        read_pages(if look < 4 { 300 * look } else { 0 }, 300);
        watched.tick();
    }
    let gate = watched.gate("cache_state", from_s);
    caught(&gate);
    assert!(gate.detail.contains("declared warm"), "{gate:?}");
}

#[test]
fn a_server_that_was_started_again_is_another_one() {
    let Some(mut server) = sandbox::testing::server("postgres") else { return };
    let mut watched = Watched::new(&context_of(&server, false));
    let from_s = watched.now_s();
    watched.tick();
    // Its uptime tells the lives apart when they differ by more than it is exact to.
    std::thread::sleep(Duration::from_secs(4));
    watched.tick();
    server.kill().unwrap();
    watched.tick();
    server.start().unwrap();
    // The sampler connects again by itself, some seconds later.
    for _ in 0..6 {
        std::thread::sleep(Duration::from_secs(1));
        watched.tick();
    }
    caught(&watched.gate("server_restarted", from_s));
}

/// A session whose work is all the client's.
struct Spinning;

impl load::Session for Spinning {
    async fn open(&mut self) -> Result<(), load::Failure> {
        Ok(())
    }

    async fn transaction(&mut self, _recorder: &load::Recorder) -> Result<load::Completion, load::Failure> {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        Ok(load::Completion::Committed)
    }

    async fn recover(&mut self) -> Result<(), load::Failure> {
        Ok(())
    }

    async fn close(&mut self) {}
}

struct Spinners;

impl load::SessionFactory for Spinners {
    fn statement_classes(&self) -> Vec<String> {
        Vec::new()
    }

    fn session(&self, _index: u32) -> Box<dyn load::AnySession> {
        Box::new(Spinning)
    }
}

#[test]
fn a_client_that_uses_all_of_its_cpu_sets_the_limit() {
    let step = load::Step {
        sessions: 2,
        warmup: Duration::ZERO,
        length: load::Length::Time(Duration::from_secs(1)),
        pacing: load::Pacing::Closed,
    };
    // Ahead of what else the machine does, where that is permitted.
    let plan = load::LoadPlan {
        steps: vec![step],
        workers: Some(1),
        raise_priority: true,
        ..load::LoadPlan::default()
    };
    let result = load::run(&plan, &Spinners, &mut |_| (), &load::Stop::default()).unwrap();
    let client = &result.steps[0].client;
    if client.cpu_share < 0.5 {
        let why = format!("the machine was busy and gave it {:.2} of a cpu", client.cpu_share);
        testkit::not_tested("the gate client_bound on a client that sets the limit", why);
        return;
    }
    assert!(client.is_bound, "{client:?}");
    let gate = telemetry::gates::client_bound(&telemetry::gates::ClientLoad {
        cpu_share: client.cpu_share,
        run_queue_share: client.run_queue_share,
        schedule_lag_p99_ms: client.schedule_lag_p99_ms,
        is_bound: client.is_bound,
    });
    assert!(gate.is_tripped() && !gate.remedy.is_empty(), "{gate:?}");
}
