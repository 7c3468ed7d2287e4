//! A study and runs with something in every field.
#![allow(dead_code)] // each test file uses its share

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use store::*;

pub(crate) fn study(name: &str) -> Study {
    Study {
        name: name.to_owned(),
        title: "Which server reads faster?".to_owned(),
        question: "Does MariaDB 11.4 read faster than 10.11?".to_owned(),
        file_path: "studies/versions.toml".to_owned(),
        file_text: "title = 'Which'\n# a comment\n".to_owned(),
        file_sha256: "00ff".to_owned(),
        fingerprint: "abcd".to_owned(),
        plan: serde_json::json!({"runs": [1, 2, 3]}),
        axes: vec![Axis { name: "sessions".to_owned(), values: vec![1.into(), 8.into()] }],
        comparisons: vec![Comparison {
            axis: "server".to_owned(),
            base: "mariadb@10.11.14".into(),
            metrics: vec!["tps".to_owned()],
            margin: 0.05,
            primary: None,
            is_watched: false,
        }],
        blocks: 5,
        runs: 20,
        is_quick: false,
        seed: u64::MAX - 1,
        plimsoll_version: "0.1.0".to_owned(),
        command: "plimsoll run studies/versions.toml".to_owned(),
        created_at_ms: 1_795_000_000_000,
    }
}

pub(crate) fn host() -> Host {
    Host {
        name: "bench1".to_owned(),
        fingerprint: "f1".to_owned(),
        boot_id: "b1".to_owned(),
        kernel: "Linux 6.1.0".to_owned(),
        os: "Debian GNU/Linux 12".to_owned(),
        arch: "x86_64".to_owned(),
        cpu_model: "A cpu".to_owned(),
        cpus: 2,
        memory_bytes: 4 << 30,
        facts: BTreeMap::from([("governor".to_owned(), "performance".to_owned())]),
    }
}

pub(crate) fn build() -> Build {
    Build {
        flavor: "mariadb".to_owned(),
        version: "11.4.5".to_owned(),
        label: "gcc14".to_owned(),
        identity: "1234".to_owned(),
        origin: "archive".to_owned(),
        facts: BTreeMap::new(),
    }
}

pub(crate) fn start(host: HostId, build: Option<BuildId>, block: u32) -> RunStart {
    RunStart {
        index: block,
        block,
        repeat: block,
        host,
        build,
        ..RunStart::new(
            Key::from([("server".to_owned(), "mariadb@11.4.5".into()), ("cpus".to_owned(), 2.into())]),
            vec![8],
            u64::MAX,
            1_795_000_000_000 + i64::from(block),
        )
    }
}

fn histogram(values: u64) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 36_000_000_000, 3).unwrap();
    for value in 0..values {
        histogram.record(1 + value * 977 % 1_000_003).unwrap();
    }
    histogram
}

/// `seconds` decides how much there is to write.
pub(crate) fn end(seconds: i64) -> RunEnd {
    let outcomes =
        Outcomes { committed: 5000, deadlock: 2, skipped: 1, constraint: 7, ..Outcomes::default() };
    RunEnd {
        status: Status::Done,
        error: None,
        log_tail: "ready for connections".to_owned(),
        log_file: "logs/1.log".to_owned(),
        ended_at_ms: 1_795_000_100_000,
        server: ServerFacts {
            name: "mariadb@11.4.5".to_owned(),
            settings: BTreeMap::from([("innodb_flush_log_at_trx_commit".to_owned(), "1".to_owned())]),
            durability_class: "full".to_owned(),
            ..ServerFacts::default()
        },
        workload: WorkloadFacts {
            name: "oltp_read_only".to_owned(),
            options: BTreeMap::from([("tables".to_owned(), "1".to_owned())]),
            headline: Some(("NOPM".to_owned(), "1/min".to_owned(), 12.5)),
            ..WorkloadFacts::default()
        },
        phases: vec![Phase { name: "load".to_owned(), duration_s: 1.25 }],
        warnings: vec!["the client used 92 % of its cpu".to_owned()],
        gates: vec![Gate {
            name: "client_bound".to_owned(),
            finding: Finding::Held,
            level: None,
            detail: "31 %".to_owned(),
            remedy: String::new(),
            is_allowed: false,
        }],
        checks: vec![Check {
            name: "rows".to_owned(),
            is_ok: true,
            expected: "10000".to_owned(),
            found: "10000".to_owned(),
        }],
        steps: vec![step(seconds, outcomes)],
        series: vec![Series {
            source: "host".to_owned(),
            name: "cpu_user_share".to_owned(),
            instance: "cpu0".to_owned(),
            unit: "share".to_owned(),
            points: vec![(0.5, 0.25), (1.5, 0.75)],
        }],
        hot_locks: vec![HotLock {
            sessions: 8,
            source: LockSource::Futex,
            lock: "LOCK_open".to_owned(),
            caller: "open_table".to_owned(),
            count: None,
            wait_total_s: 52.5,
            wait_interval_s: Some((51.0, 54.0)),
            observed_s: 60.0,
        }],
        facts: BTreeMap::from([("limited".to_owned(), "no".to_owned())]),
        line: None,
        interventions: vec![Intervention {
            name: "log".to_owned(),
            on: vec!["SET GLOBAL general_log = ON".to_owned()],
            off: vec!["SET GLOBAL general_log = OFF".to_owned()],
            readings: BTreeMap::from([("general_log".to_owned(), "ON".to_owned())]),
            at_s: None,
            took_s: Some(0.25),
        }],
        duel: Some(Duel {
            sides: 2,
            side: 1,
            slices: vec![Slice {
                at_s: 0.5,
                duration_s: 1.0,
                committed: 1000,
                taken_share: Some(0.02),
                is_counted: true,
            }],
        }),
    }
}

fn step(seconds: i64, outcomes: Outcomes) -> Step {
    let response = histogram(500);
    let intervals: Vec<Interval> = (-1..seconds)
        .map(|second| Interval {
            second,
            duration_s: 1.0,
            outcomes,
            reads: 7000,
            writes: 0,
            other: 1000,
            retries: 0,
            backlog: 3,
            response: PackedHistogram::of(&response),
            service: None,
            // None ended of the second class in this second.
            by_statement: BTreeMap::from([(0, PackedHistogram::of(&histogram(400)))]),
        })
        .collect();
    Step {
        sessions: 8,
        rate_tps: Some(100.0),
        arrivals: Some("poisson".to_owned()),
        offset_s: 3.5,
        warmup_s: 2.0,
        duration_s: 10.0,
        connect_s: 0.01,
        outcomes,
        outcomes_whole: Outcomes { committed: 6000, ..outcomes },
        reads: 70_000,
        writes: 0,
        other: 10_000,
        retries: 2,
        in_flight_at_end: 8,
        backlog_at_end: 3,
        drained: 11,
        response: histogram(5000),
        service: Some(histogram(4000)),
        by_statement: vec![
            Statement { name: "point_select".to_owned(), count: 50_000, latency: histogram(500) },
            Statement { name: "commit".to_owned(), count: 5_000, latency: histogram(50) },
        ],
        errors: BTreeMap::from([(
            "1213".to_owned(),
            ErrorTally { count: 4, text: "Deadlock found".to_owned() },
        )]),
        seconds: intervals.iter().map(|interval| interval.figures(&response)).collect(),
        intervals,
        client: ClientUsage { workers: 1, cpu_share: 0.31, ..ClientUsage::default() },
        ended_by: None,
        arrivals_offered: Some(12),
        failed: None,
        unended: Some(store::Unended { transactions: 0, from_ms: 0.0 }),
        stalls: Some(store::Stalls { seconds: 1, longest_s: 1.25 }),
    }
}

/// As the store gives it: the seconds in full stay in the file until somebody asks for them.
pub(crate) fn read_back(mut end: RunEnd) -> RunEnd {
    end.steps.iter_mut().for_each(|step| step.intervals.clear());
    end
}
