//! Results with everything that a bundle can have: a duel, a line, an intervention, an audit, logs, workload files,
//! calibrations, an author, and a key that signs. The key is of these tests alone.

use std::collections::BTreeMap;
use std::path::Path;

use report::bundle::Bundling;
use store::bundle::{NamedWorkloads, SigningKey, content_sha256};
use store::*;

use super::{add_runs_of_ladder, host, ladder_study};

pub(crate) const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
QyNTUxOQAAACCy1TM43cY+UGdNtMTTplokieNcXzhLMEldEFG1V8frLwAAAJijyMcBo8jH
AQAAAAtzc2gtZWQyNTUxOQAAACCy1TM43cY+UGdNtMTTplokieNcXzhLMEldEFG1V8frLw
AAAEBSS4kqB1RkG0kaNczAepfgW0EmgK3Rn75qYrgOAThglbLVMzjdxj5QZ020xNOmWiSJ
41xfOEswSV0QUbVXx+svAAAAEHRlc3Qgb2YgcGxpbXNvbGwBAgMEBQ==
-----END OPENSSH PRIVATE KEY-----
";

pub(crate) const AUTHOR: &str = "[author]\nname = \"Ada Lovelace\"\ncontact = \"ada@example.org\"\nlicence = \
                                 \"CC-BY-4.0\"\ndisclaimer = \"On one laptop.\"\nkeywords = [\"oltp\", \"upgrade\"]\n";

/// A workload of two scripts, as a plan names it, with its files.
const SCRIPTS: &str = "pgbench:a/x.sql@3,b/x.sql;init=t.sql";
const FILES: [(&str, &str); 3] = [
    ("a/x.sql", "SELECT 1;\n"),
    ("b/x.sql", "\\set n random(1, 9)\nSELECT :n;\n"),
    ("t.sql", "CREATE TABLE t (n int);\n"),
];

pub(crate) fn machine() -> Host {
    let mut machine = host("bench1", "Linux 6.1.0-30-amd64");
    for (name, value) in [(CLOUD, "aws"), (INSTANCE_TYPE, "m7i.large"), (PRICE, "0.10 USD/h")] {
        machine.facts.insert(name.to_owned(), value.to_owned());
    }
    machine
}

pub(crate) fn results(directory: &Path) -> Store {
    let mut store = Store::open(directory).unwrap();
    let mut study = ladder_study(2);
    study.file_text.push_str(AUTHOR);
    let hash = content_sha256(SCRIPTS, &FILES);
    study.plan["workloads"] = serde_json::json!({ SCRIPTS: hash });
    let change = |end: &mut RunEnd, block: u32, server: &str, workload: &str, sessions: u32| {
        if (block, workload, sessions) == (1, "oltp_read_only", 8) {
            let slice = |committed: u64, is_counted: bool| Slice {
                at_s: 1.0,
                duration_s: 1.0,
                committed,
                taken_share: Some(0.01),
                is_counted,
            };
            let slices = vec![slice(end.steps[0].outcomes.committed, true), slice(7, false)];
            end.duel = Some(Duel { sides: 2, side: u32::from(server.starts_with("postgres")), slices });
        }
        if (block, server, workload, sessions) == (2, "postgres@18.6", "oltp_read_write", 64) {
            end.interventions.push(Intervention {
                name: "drop_index".to_owned(),
                on: vec!["DROP INDEX k".to_owned()],
                off: Vec::new(),
                readings: BTreeMap::new(),
                at_s: Some(1.0),
                took_s: Some(0.1),
            });
        }
    };
    let id = add_runs_of_ladder(&mut store, &study, &machine(), 2, 1, &change);
    let host = store.add_host(&machine()).unwrap();
    let facts = [("filesystem", "ext4"), ("mount options", "rw,relatime"), ("device", "nvme0n1")];
    let probe = Probe {
        place: "disk".to_owned(),
        path: "/var/lib/plimsoll".to_owned(),
        facts: facts.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        tool: "built-in".to_owned(),
        measured_at_ms: 1_795_000_000_000,
        figures: vec![],
    };
    store.add_probe(id, host, &probe).unwrap();
    store.end_study(id, 1_700_000_000_000).unwrap();
    add_line(&mut store);
    add_audit(&mut store, host);
    store
}

fn add_line(store: &mut Store) {
    let command = "plimsoll line oltp_read_only".to_owned();
    let begun = LineStart { fingerprint: "x".to_owned(), command, started_at_ms: 7, seed: 3 };
    let search = store.begin_line(&begun).unwrap();
    let total = LineCount { transactions: 1000, over: 2 };
    let probe = LineProbe {
        purpose: "refine".to_owned(),
        rate: 900.0,
        sessions: 32,
        tps: 900.0,
        seconds: 30.0,
        p50_ms: Some(2.0),
        p95_ms: Some(6.0),
        p99_ms: Some(12.0),
        spreads: [Some((1.9, 2.1)), None, Some((11.0, 13.0))],
        is_overloaded: false,
        limited_by: None,
        focus: 0,
        seen: vec![LineSeen { seconds: vec![total; 3], total }],
        took_s: 33.0,
        error: None,
        broken: vec![None],
        unmet: vec![],
    };
    store.add_line_probe(search, 0, &probe).unwrap();
    let line = Line {
        promise: "p99 < 20ms".to_owned(),
        allowed: 0.01,
        limit_ms: Some(20.0),
        line_tps: Some(1000.0),
        middle_tps: Some(1010.0),
        low: Some(970.0),
        high: Some(1040.0),
        ended_by: "promise".to_owned(),
        hold: Some(LineHold { seconds: 60.0, held: true, p99_ms: Some(18.0) }),
        warnings: vec![],
    };
    store.finish_line(search, &LineFound { lines: vec![line], seconds_total: 120.0 }).unwrap();
}

/// Kills of MariaDB's server that lost nothing; nobody cut its power.
fn add_audit(store: &mut Store, host: HostId) {
    let build = store.add_build(&super::build("mariadb", "11.4.5")).unwrap();
    let promise =
        |kind| AuditPromise { kind, text: "nothing is lost".to_owned(), may_lose: false, may_corrupt: false };
    let start = AuditStart {
        server: "mariadb@11.4.5".to_owned(),
        engine: "InnoDB".to_owned(),
        profile: None,
        settings: [].into(),
        deciding: [("innodb_flush_log_at_trx_commit".to_owned(), "1".to_owned())].into(),
        class: "full".to_owned(),
        promises: vec![promise(AuditKind::ProcessCrash), promise(AuditKind::PowerCut)],
        sessions: 8,
        seed: 1,
        started_at_ms: 1_795_000_000_000,
        plimsoll_version: "0.1.0".to_owned(),
        doubt: None,
    };
    let id = store.begin_audit(host, build, &start).unwrap();
    let round = AuditRound {
        number: 1,
        ran_s: 1.0,
        acknowledged: 1000,
        recovery_s: Some(0.2),
        ..AuditRound::default()
    };
    store.add_audit_round(id, AuditKind::ProcessCrash, &round).unwrap();
    store.add_audit_gap(id, AuditKind::PowerCut, "a power cut needs root").unwrap();
}

/// Twenty lives of two equal servers.
pub(crate) fn calibrations() -> Calibrations {
    let mut made = Calibrations::new("mariadb@11.4.5", "b", "oltp_read_write", 8, 2.2);
    for life in 0..20_u32 {
        let noise =
            |at: u32| 1.0 + 0.03 * f64::from(at * 7 % 5) - 0.06 + 0.004 * f64::from(life * 5 % 7) - 0.012;
        let side = |shift: u32| (0..8).map(|at| 1000.0 * noise(at + shift)).collect();
        made.lives.push(EqualLife {
            tps: [side(0), side(1)],
            took_s: 30.0,
            at_ms: 1_795_000_000_000 + i64::from(life),
            calibration: 1 + life / 16,
        });
    }
    made.wakeup_us = Some((30.0, 90.0));
    made
}

/// What goes with them.
pub(crate) fn bundling(key: Option<&SigningKey>) -> Bundling<'_> {
    let mut workloads = NamedWorkloads::default();
    let files = FILES.map(|(path, text)| (path.to_owned(), text.as_bytes().to_vec()));
    workloads.add(SCRIPTS, files.to_vec());
    Bundling {
        key,
        workloads,
        calibrations: [(machine().fingerprint, vec![calibrations()])].into(),
        logs: vec![("r1.txt".to_owned(), "ready for connections\n".to_owned())],
        ..Bundling::default()
    }
}

/// The key that signs, written where it can be read.
pub(crate) fn key(directory: &Path) -> SigningKey {
    let path = directory.join("key");
    std::fs::write(&path, KEY).unwrap();
    SigningKey::read(&path, None).unwrap()
}
