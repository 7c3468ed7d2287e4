//! Synthetic results: two servers over a ladder with a known difference, an invalid and a failed run, a climb, lock
//! passes, telemetry, published figures. The same seed gives the same file.
#![allow(dead_code)] // each test file uses its share

pub(crate) mod full;

use std::collections::BTreeMap;
use std::path::Path;

use hdrhistogram::Histogram;
use store::*;

/// A small generator of its own: the snapshots must not change with a library.
pub(crate) struct Noise(u64);

impl Noise {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Around 1, with about this relative spread.
    pub(crate) fn around(&mut self, spread: f64) -> f64 {
        1.0 + spread * (self.unit() + self.unit() + self.unit() - 1.5) * 2.0
    }
}

const START_MS: i64 = 1_795_000_000_000;

pub(crate) fn host(name: &str, kernel: &str) -> Host {
    Host {
        name: name.to_owned(),
        fingerprint: format!("fingerprint of {name}"),
        boot_id: "b1".to_owned(),
        kernel: kernel.to_owned(),
        os: "Debian GNU/Linux 12".to_owned(),
        arch: "x86_64".to_owned(),
        cpu_model: "Example CPU @ 3.00GHz".to_owned(),
        cpus: 2,
        memory_bytes: 8 << 30,
        facts: BTreeMap::from([
            ("governor".to_owned(), "performance".to_owned()),
            ("virtualisation".to_owned(), "kvm".to_owned()),
        ]),
    }
}

pub(crate) fn build(flavor: &str, version: &str) -> Build {
    Build {
        flavor: flavor.to_owned(),
        version: version.to_owned(),
        label: String::new(),
        identity: format!("identity-of-{flavor}-{version}"),
        origin: format!("installed: /usr/sbin/{flavor}"),
        facts: BTreeMap::from([("compiler".to_owned(), "gcc 12.2".to_owned())]),
    }
}

/// Throughput along an axis against one value of it.
pub(crate) fn compared(axis: &str, base: &str) -> Comparison {
    Comparison {
        axis: axis.to_owned(),
        base: base.into(),
        metrics: vec!["tps".to_owned()],
        margin: 0.05,
        primary: None,
        is_watched: false,
    }
}

pub(crate) fn study(
    name: &str,
    axes: Vec<Axis>,
    comparisons: Vec<Comparison>,
    blocks: u32,
    runs: u32,
) -> Study {
    Study {
        name: name.to_owned(),
        title: "MariaDB and PostgreSQL over a ladder of sessions".to_owned(),
        question: "Does PostgreSQL 18 carry more read-only and read-write transactions than MariaDB 11.4?".to_owned(),
        file_path: format!("studies/{name}.toml"),
        file_text: "title = \"MariaDB and PostgreSQL\" # <script>alert('study')</script>\n[axes]\nsessions = [1, 8, 64]\n"
            .to_owned(),
        file_sha256: "ab".repeat(32),
        fingerprint: "cd".repeat(32),
        plan: serde_json::json!({"order": "random", "runs": runs}),
        axes,
        comparisons,
        blocks,
        runs,
        is_quick: false,
        seed: 42,
        plimsoll_version: "0.1.0".to_owned(),
        command: format!("plimsoll run studies/{name}.toml"),
        created_at_ms: START_MS,
    }
}

fn axis(name: &str, values: &[&str]) -> Axis {
    Axis { name: name.to_owned(), values: values.iter().map(|value| (*value).into()).collect() }
}

fn histogram(noise: &mut Noise, count: u64, mean_ms: f64) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 36_000_000_000, 3).unwrap();
    let draws = count.clamp(1, 400);
    for draw in 0..draws.min(count) {
        let tail = if noise.unit() > 0.98 { 4.0 } else { 1.0 };
        let ms = mean_ms * tail * (0.4 - 0.6 * (1.0 - noise.unit()).ln());
        histogram
            .record_n(((ms * 10_000.0) as u64).max(1), count / draws + u64::from(draw < count % draws))
            .unwrap();
    }
    histogram
}

pub(crate) struct Level {
    pub(crate) sessions: u32,
    pub(crate) tps: f64,
    pub(crate) offset_s: f64,
    pub(crate) seconds: i64,
}

pub(crate) fn step(noise: &mut Noise, level: &Level, writes: bool) -> Step {
    let mean_ms = f64::from(level.sessions) / level.tps * 1000.0;
    let (mut intervals, mut seconds) = (Vec::new(), Vec::new());
    let mut committed = 0;
    let deadlock = if writes && level.sessions > 8 { 7 } else { 0 };
    // A level's response times are those of its seconds.
    let mut responses = Histogram::<u64>::new_with_bounds(1, 36_000_000_000, 3).unwrap();
    for second in -1..=level.seconds {
        let tps = level.tps * noise.around(0.05) * if second < 1 { 0.7 } else { 1.0 };
        let deadlock = if second == 1 { deadlock } else { 0 };
        let outcomes = Outcomes { committed: tps as u64, deadlock, ..Outcomes::default() };
        committed += if second >= 1 { outcomes.committed } else { 0 };
        let response = histogram(noise, outcomes.committed, mean_ms);
        if second >= 1 {
            responses.add(&response).unwrap();
        }
        let interval = Interval {
            second,
            duration_s: 1.0,
            outcomes,
            reads: outcomes.committed * 14,
            writes: if writes { outcomes.committed * 4 } else { 0 },
            other: outcomes.committed * 2,
            retries: deadlock,
            backlog: 0,
            response: store::PackedHistogram::of(&response),
            service: None,
            by_statement: BTreeMap::new(),
        };
        seconds.push(interval.figures(&response));
        intervals.push(interval);
    }
    let outcomes = Outcomes { committed, deadlock, ..Outcomes::default() };
    let error = ErrorTally { count: 9, text: "Deadlock found when trying to get lock".to_owned() };
    let errors = if deadlock > 0 { BTreeMap::from([("1213".to_owned(), error)]) } else { BTreeMap::new() };
    Step {
        sessions: level.sessions,
        rate_tps: None,
        arrivals: None,
        offset_s: level.offset_s,
        warmup_s: 2.0,
        duration_s: level.seconds as f64,
        connect_s: 0.01,
        outcomes,
        outcomes_whole: Outcomes { committed: committed + 100, ..outcomes },
        reads: committed * 14,
        writes: if writes { committed * 4 } else { 0 },
        other: committed * 2,
        retries: deadlock,
        in_flight_at_end: u64::from(level.sessions),
        backlog_at_end: 0,
        drained: u64::from(level.sessions),
        response: responses,
        service: None,
        by_statement: [("point_select", 17, 0.06), ("simple_range", 1, 0.1), ("commit", 2, 0.2)]
            .into_iter()
            .map(|(name, each, share)| Statement {
                name: name.to_owned(),
                count: committed * each,
                latency: histogram(noise, committed, mean_ms * share),
            })
            .collect(),
        errors,
        seconds,
        intervals,
        client: ClientUsage {
            workers: 1,
            cpu_user_s: 1.2,
            cpu_sys_s: 1.9,
            cpu_share: 0.31,
            run_queue_share: 0.02,
            schedule_lag_p99_ms: 0.12,
            is_bound: false,
            ..ClientUsage::default()
        },
        ended_by: None,
        arrivals_offered: None,
        failed: None,
        unended: None,
        stalls: None,
    }
}

pub(crate) fn end(server: &str, workload: &str, steps: Vec<Step>) -> RunEnd {
    let is_postgres = server.starts_with("postgres");
    let settings: &[(&str, &str)] = if is_postgres {
        &[
            ("fsync", "on"),
            ("synchronous_commit", "on"),
            ("shared_buffers", "1GB"),
            ("max_connections", "100"),
        ]
    } else {
        &[
            ("innodb_flush_log_at_trx_commit", "1"),
            ("innodb_buffer_pool_size", "1073741824"),
            ("max_connections", "100"),
        ]
    };
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let last_s = steps.last().map_or(10.0, |step| step.offset_s + step.duration_s);
    RunEnd {
        status: Status::Done,
        error: None,
        log_tail: String::new(),
        log_file: "logs/run.log".to_owned(),
        ended_at_ms: START_MS + 60_000,
        server: ServerFacts {
            name: server.to_owned(),
            version_text: format!("{server} as the server says"),
            settings: map(settings),
            settings_asked: map(&settings[..1]),
            command: "mariadbd --no-defaults --datadir=/data".to_owned(),
            engine: if is_postgres { "heap".to_owned() } else { "InnoDB".to_owned() },
            durability_class: "full".to_owned(),
            durability_why: "fsync at each commit".to_owned(),
            deciding: map(&settings[..1]),
            audit_command: format!("plimsoll audit {server}"),
            isolation: "REPEATABLE READ".to_owned(),
            charset: if is_postgres { "UTF8".to_owned() } else { "utf8mb4".to_owned() },
            collation: "C".to_owned(),
            cpus: String::new(),
            client_cpus: "0-1".to_owned(),
            storage: map(&[("name", "default"), ("file system", "ext4")]),
        },
        workload: WorkloadFacts {
            name: workload.to_owned(),
            options: map(&[("tables", "1"), ("table_size", "10000")]),
            dataset_key: "oltp/1".to_owned(),
            data_from: "snapshot".to_owned(),
            data_bytes: Some(12_345_678),
            headline: None,
        },
        phases: vec![
            Phase { name: "provision".to_owned(), duration_s: 1.1 },
            Phase { name: "measure".to_owned(), duration_s: last_s },
        ],
        warnings: vec![],
        gates: gates(),
        checks: vec![Check {
            name: "rows of sbtest1".to_owned(),
            is_ok: true,
            expected: "10000".to_owned(),
            found: "10000".to_owned(),
        }],
        steps,
        series: telemetry(last_s),
        hot_locks: vec![],
        facts: BTreeMap::new(),
        duel: None,
        interventions: Vec::new(),
        line: None,
    }
}

/// All that a run answers for: it was too short to be steady or not, the rest held.
fn gates() -> Vec<Gate> {
    let of = |name: &str| {
        let (finding, detail) = match name {
            "client_bound" => (Finding::Held, "the busiest worker used 31 % of its cpu"),
            "not_steady" => (Finding::NotChecked, "3 whole seconds, 10 are needed"),
            "cpu_frequency" => (Finding::NotChecked, "the kernel shows no frequency here"),
            _ => (Finding::Held, "nothing was wrong"),
        };
        Gate {
            name: name.to_owned(),
            finding,
            level: None,
            detail: detail.to_owned(),
            remedy: String::new(),
            is_allowed: false,
        }
    };
    GATES_OF_EVERY_RUN.into_iter().map(of).collect()
}

fn telemetry(last_s: f64) -> Vec<Series> {
    let series = |source: &str, name: &str, unit: &str, of: &dyn Fn(f64) -> f64| Series {
        source: source.to_owned(),
        name: name.to_owned(),
        instance: String::new(),
        unit: unit.to_owned(),
        points: (0..=last_s as u32).map(|at| (f64::from(at), of(f64::from(at)))).collect(),
    };
    vec![
        series("host", "cpu_user", "share", &|at| 0.6 + 0.1 * (at / 3.0).sin()),
        series("host", "cpu_system", "share", &|at| 0.2 + 0.05 * (at / 2.0).cos()),
        series("server", "dirty_pages", "pages", &|at| 100.0 * at),
        series("device", "write_bytes", "B/s", &|at| 4e6 + 1e6 * (at / 4.0).sin()),
    ]
}

/// What a server of the synthetic world carries.
fn carries(server: &str, workload: &str, sessions: u32) -> f64 {
    let n = f64::from(sessions);
    let ceiling = if workload == "oltp_read_only" { 1400.0 } else { 520.0 };
    let base = ceiling * n / (n + 3.0);
    match (server.starts_with("postgres"), workload) {
        (true, "oltp_read_only") => base * 1.25,
        (true, _) => base * if sessions > 8 { 0.8 } else { 1.01 },
        _ => base,
    }
}

pub(crate) const SERVERS: [&str; 2] = ["mariadb@11.4.5", "postgres@18.6"];

/// A ladder of separate runs: 2 servers, 2 workloads, 3 levels.
pub(crate) fn ladder(directory: &Path, blocks: u32, seconds: i64) -> Store {
    let mut store = Store::open(directory).unwrap();
    add_ladder(&mut store, &host("bench1", "Linux 6.1.0-30-amd64"), blocks, seconds, 1);
    store
}

/// The same, but that no run counts of mariadb, oltp_read_only, 8 sessions.
pub(crate) fn ladder_with_gap(directory: &Path, blocks: u32, seconds: i64) -> Store {
    let mut store = Store::open(directory).unwrap();
    let machine = host("bench1", "Linux 6.1.0-30-amd64");
    let spoil = |end: &mut RunEnd, _block, server: &str, workload: &str, sessions| {
        if (server, workload, sessions) == (SERVERS[0], "oltp_read_only", 8) {
            end.status = Status::Invalid;
            end.error = Some("noisy_host: 30 % of the cpu was taken".to_owned());
        }
    };
    add_runs_of_ladder(&mut store, &ladder_study(blocks), &machine, seconds, 1, &spoil);
    store
}

/// The same, recorded with another study file.
pub(crate) fn ladder_of(directory: &Path, blocks: u32, seconds: i64, file_text: &str) -> Store {
    let mut store = Store::open(directory).unwrap();
    let study = Study { file_text: file_text.to_owned(), ..ladder_study(blocks) };
    add_runs_of_ladder(&mut store, &study, &host("bench1", "Linux 6.1.0-30-amd64"), seconds, 1, &spoil);
    store
}

pub(crate) fn add_ladder(store: &mut Store, machine: &Host, blocks: u32, seconds: i64, seed: u64) -> StudyId {
    add_runs_of_ladder(store, &ladder_study(blocks), machine, seconds, seed, &spoil)
}

fn ladder_study(blocks: u32) -> Study {
    let axes = vec![
        axis("server", &SERVERS),
        axis("workload", &["oltp_read_only", "oltp_read_write"]),
        Axis { name: "sessions".to_owned(), values: vec![1.into(), 8.into(), 64.into()] },
    ];
    let comparisons = vec![Comparison {
        axis: "server".to_owned(),
        base: SERVERS[0].into(),
        metrics: vec!["tps".to_owned(), "p95".to_owned()],
        margin: 0.05,
        primary: None,
        is_watched: false,
    }];
    study("quickstart", axes, comparisons, blocks, blocks * 12)
}

fn add_runs_of_ladder(
    store: &mut Store,
    study: &Study,
    machine: &Host,
    seconds: i64,
    seed: u64,
    spoil: &dyn Fn(&mut RunEnd, u32, &str, &str, u32),
) -> StudyId {
    let study_id = store.add_study(study).unwrap();
    let host_id = store.add_host(machine).unwrap();
    let mut noise = Noise(seed);
    let mut index = 0;
    for block in 1..=study.blocks {
        for server in SERVERS {
            let (flavor, version) = server.split_once('@').unwrap();
            let build_id = store.add_build(&build(flavor, version)).unwrap();
            for workload in ["oltp_read_only", "oltp_read_write"] {
                for sessions in [1, 8, 64] {
                    let run_start = RunStart {
                        index,
                        block,
                        repeat: block,
                        position: index % 12 + 1,
                        host: host_id,
                        build: Some(build_id),
                        ..RunStart::new(
                            Key::from([
                                ("server".to_owned(), server.into()),
                                ("workload".to_owned(), workload.into()),
                            ]),
                            vec![sessions],
                            u64::from(index) + 1000,
                            START_MS + i64::from(index) * 60_000,
                        )
                    };
                    index += 1;
                    let tps = carries(server, workload, sessions) * noise.around(0.02);
                    let level = Level { sessions, tps, offset_s: 3.5, seconds };
                    let steps = vec![step(&mut noise, &level, workload.ends_with("write"))];
                    let mut run_end = end(server, workload, steps);
                    spoil(&mut run_end, block, server, workload, sessions);
                    store.record_run(study_id, &run_start, &run_end).unwrap();
                }
            }
        }
    }
    add_surroundings(store, study_id, host_id);
    study_id
}

/// A ladder whose runs are as `change` makes them.
pub(crate) fn ladder_changed(
    directory: &Path,
    change: &dyn Fn(&mut RunEnd, u32, &str, &str, u32),
) -> (Store, StudyId) {
    let mut store = Store::open(directory).unwrap();
    let machine = host("bench1", "6.1.0");
    let study = ladder_study(6);
    let id = add_runs_of_ladder(&mut store, &study, &machine, 4, 7, change);
    (store, id)
}

/// One run invalid, one failed, one with a warning.
fn spoil(end: &mut RunEnd, block: u32, server: &str, workload: &str, sessions: u32) {
    match (block, server, workload, sessions) {
        (2, "mariadb@11.4.5", "oltp_read_only", 64) => {
            end.status = Status::Invalid;
            end.error = Some("client_bound: the client used 97 % of its cpu".to_owned());
            end.gates[0].finding = Finding::Tripped;
            end.gates[0].remedy = "add --workers or lower --rate".to_owned();
        }
        (3, "postgres@18.6", "oltp_read_write", 1) => {
            end.status = Status::Failed;
            end.error = Some("the server did not start: <b>could not bind</b>".to_owned());
            end.log_tail = "FATAL: could not create lock file </script><script>alert(1)</script>".to_owned();
            end.steps.clear();
            end.series.clear();
        }
        (1, "postgres@18.6", "oltp_read_write", 64) => {
            end.warnings.push("the host was noisy: steal 3 %; measure again".to_owned());
        }
        _ => {}
    }
}

fn add_surroundings(store: &mut Store, study_id: StudyId, host_id: HostId) {
    let quantity =
        |name: &str, value: f64, unit: &str| Quantity { name: name.to_owned(), value, unit: unit.to_owned() };
    let probe = Probe {
        place: "default".to_owned(),
        path: "/var/lib/plimsoll".to_owned(),
        facts: BTreeMap::from([("device".to_owned(), "vda (virtio)".to_owned())]),
        tool: "fio 3.33".to_owned(),
        measured_at_ms: START_MS,
        figures: vec![
            quantity("sequential_write", 812.0, "MB/s"),
            quantity("random_read_4k", 41_000.0, "1/s"),
            quantity("fsync", 59.0, "us"),
        ],
    };
    store.add_probe(study_id, host_id, &probe).unwrap();
    for (block, when, loops) in [(1, "before", 101.0), (1, "after", 99.0), (2, "before", 92.0)] {
        let canary = Canary {
            block,
            when: when.to_owned(),
            measured_at_ms: START_MS,
            figures: vec![quantity("cpu", loops, "loops/s"), quantity("fsync", 60.0, "us")],
        };
        store.add_canary(study_id, host_id, &canary).unwrap();
    }
    store
        .add_note(study_id, START_MS + 5, "mariadb@11.4.5 with engine RocksDB was left out: no plugin")
        .unwrap();
    let reference = |sessions: u32, value: f64| Reference {
        series: "MySQL 5.1.33".to_owned(),
        source: "Maxia, The Data Charmer, 2009".to_owned(),
        year: 2009,
        machine: "8 cores E5450, 32 GB".to_owned(),
        metric: "tps".to_owned(),
        unit: "1/s".to_owned(),
        key: Key::from([
            ("workload".to_owned(), "oltp_read_only".into()),
            ("sessions".to_owned(), sessions.into()),
        ]),
        value,
    };
    store.add_references(study_id, &[reference(8, 700.0), reference(64, 900.0)]).unwrap();
}

/// A climb: 3 levels in one server life, with lock passes.
pub(crate) fn add_climb(store: &mut Store, blocks: u32, seconds: i64) -> StudyId {
    let axes = vec![
        axis("server", &SERVERS),
        Axis { name: "climb".to_owned(), values: vec![1.into(), 4.into(), 16.into(), 64.into()] },
    ];
    let comparisons = vec![compared("server", SERVERS[0])];
    let study_id = store.add_study(&study("stress", axes, comparisons, blocks, blocks * 2)).unwrap();
    let host_id = store.add_host(&host("bench1", "Linux 6.1.0-30-amd64")).unwrap();
    let mut noise = Noise(7);
    let mut index = 0;
    for block in 1..=blocks {
        for server in SERVERS {
            for purpose in [Purpose::Measure, Purpose::Locks] {
                if purpose == Purpose::Locks && block > 1 {
                    continue;
                }
                let run_start = RunStart {
                    index,
                    is_climb: true,
                    block,
                    repeat: block,
                    purpose,
                    host: host_id,
                    ..RunStart::new(
                        Key::from([
                            ("server".to_owned(), server.into()),
                            ("workload".to_owned(), "dbstress".into()),
                        ]),
                        vec![1, 4, 16, 64],
                        5,
                        START_MS + i64::from(index) * 60_000,
                    )
                };
                index += 1;
                let mut steps = Vec::new();
                for (at, sessions) in [1_u32, 4, 16, 64].into_iter().enumerate() {
                    let tps = carries(server, "oltp_read_only", sessions) * noise.around(0.02);
                    let offset_s = 2.0 + at as f64 * (seconds + 2) as f64;
                    steps.push(step(&mut noise, &Level { sessions, tps, offset_s, seconds }, true));
                }
                let mut run_end = end(server, "dbstress", steps);
                if purpose == Purpose::Locks {
                    run_end.hot_locks = locks();
                }
                store.record_run(study_id, &run_start, &run_end).unwrap();
            }
        }
    }
    study_id
}

fn locks() -> Vec<HotLock> {
    let lock = |sessions: u32, lock: &str, count: Option<u64>, wait_total_s: f64| HotLock {
        sessions,
        source: if count.is_some() { LockSource::PerformanceSchema } else { LockSource::Futex },
        lock: lock.to_owned(),
        caller: "open_table".to_owned(),
        count,
        wait_total_s,
        wait_interval_s: count.is_none().then_some((wait_total_s * 0.9, wait_total_s * 1.1)),
        observed_s: 10.0,
    };
    vec![
        lock(16, "LOCK_open", Some(33_792), 8.8),
        lock(16, "buf_pool_mutex", Some(6_357), 1.2),
        lock(64, "LOCK_open", Some(48_526), 26.3),
        lock(64, "THR_LOCK::mutex <odd>", None, 2.5),
    ]
}

/// One night of a study that measures one cell on the newest build: three runs around `tps`.
pub(crate) fn add_night(store: &mut Store, machine: &Host, night: i64, label: &str, tps: f64) -> StudyId {
    let server = format!("mariadb@11.4.5+{label}");
    let axes = vec![
        axis("server", &[&server]),
        axis("workload", &["oltp_read_only"]),
        Axis { name: "sessions".to_owned(), values: vec![8.into()] },
    ];
    let plan = Study {
        file_text: format!(
            "title = \"Night {night}\"\n[axes]\nserver = \"{server}\"\nworkload = \"oltp_read_only\"\n"
        ),
        ..study("nightly", axes, vec![], 3, 3)
    };
    let study_id = store.add_study(&plan).unwrap();
    let host_id = store.add_host(machine).unwrap();
    let built =
        Build { label: label.to_owned(), identity: format!("id-{label}"), ..build("mariadb", "11.4.5") };
    let build_id = store.add_build(&built).unwrap();
    let mut noise = Noise(night as u64 + 99);
    for block in 1..=3 {
        let run_start = RunStart {
            index: block - 1,
            block,
            repeat: block,
            host: host_id,
            build: Some(build_id),
            ..RunStart::new(
                Key::from([
                    ("server".to_owned(), server.as_str().into()),
                    ("workload".to_owned(), "oltp_read_only".into()),
                ]),
                vec![8],
                5,
                START_MS + night * 86_400_000 + i64::from(block) * 60_000,
            )
        };
        let level = Level { sessions: 8, tps: tps * noise.around(0.01), offset_s: 1.0, seconds: 2 };
        let steps = vec![step(&mut noise, &level, false)];
        store.record_run(study_id, &run_start, &end(&server, "oltp_read_only", steps)).unwrap();
    }
    study_id
}

/// Twenty nights, of which those from the eleventh on are slower by a tenth.
pub(crate) fn nights(directory: &Path) -> Store {
    let mut store = Store::open(directory).unwrap();
    let machine = host("bench1", "Linux 6.1.0-30-amd64");
    for night in 0..20 {
        add_night(&mut store, &machine, night, &format!("c{night}"), if night < 10 { 1000.0 } else { 900.0 });
    }
    store
}
