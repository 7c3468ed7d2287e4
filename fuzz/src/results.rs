//! Results files: one value of a whole one is replaced behind the store's back, and everything is read.

use std::cell::RefCell;
use std::collections::BTreeSet;

use rusqlite::Connection;
use rusqlite::types::Value;
use store::{AuditKind, AuditPromise, AuditRound, AuditStart, FILE_NAME, HostId, Store};
use tempfile::TempDir;

#[path = "../../crates/store/tests/common/mod.rs"]
mod common;

/// A results file with something in every table, and a second way in.
struct Scene {
    store: Store,
    other: Connection,
    /// Table and column of every value.
    columns: Vec<(String, String)>,
    _place: TempDir,
}

thread_local! {
    static SCENE: RefCell<Scene> = RefCell::new(Scene::new());
}

impl Scene {
    fn new() -> Scene {
        let place = crate::place();
        fill(&mut Store::open(place.path()).expect("a results file"));
        let path = place.path().join(FILE_NAME);
        let other = Connection::open(&path).expect("a results file");
        // Nothing has to survive a crash here.
        other
            .execute_batch(
                "PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY; PRAGMA foreign_keys = OFF;",
            )
            .expect("settings of SQLite");
        let columns = columns(&other).expect("a schema");
        other.execute_batch("ATTACH ':memory:' AS kept").expect("memory");
        let tables: BTreeSet<&String> = columns.iter().map(|(table, _)| table).collect();
        for table in tables {
            let keep = format!("CREATE TABLE kept.{table} AS SELECT * FROM main.{table}");
            other.execute_batch(&keep).expect("a copy of what is there");
        }
        Scene { store: Store::open_read_only(&path).expect("our own file"), other, columns, _place: place }
    }

    /// Everything that a report reads. The report itself takes a thousand times longer.
    fn read(&self) {
        for study in self.store.studies().unwrap_or_default() {
            for head in self.store.run_heads(study.id).unwrap_or_default() {
                let Ok(run) = self.store.run(head.id) else { continue };
                std::hint::black_box(&run);
                let intervals = self.store.intervals(head.id, 0).unwrap_or_default();
                for packed in intervals.iter().flat_map(|interval| interval.by_statement.values()) {
                    let _ = std::hint::black_box(packed.unpacked());
                }
            }
        }
        let _ = std::hint::black_box(self.store.audits());
    }
}

fn columns(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let sql = "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c \
               WHERE m.type = 'table' ORDER BY m.name, c.cid";
    connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn fill(store: &mut Store) {
    let study = store.add_study(&common::study("fuzzed")).expect("a study");
    let host = store.add_host(&common::host()).expect("a host");
    let build = store.add_build(&common::build()).expect("a build");
    store.add_note(study, 5, "a note").expect("a note");
    store.record_run(study, &common::start(host, Some(build), 1), &common::end(3)).expect("a run");
    fill_audit(store, host, build);
}

fn fill_audit(store: &mut Store, host: HostId, build: store::BuildId) {
    let promise =
        |kind| AuditPromise { kind, text: "nothing is lost".to_owned(), may_lose: false, may_corrupt: false };
    let start = AuditStart {
        server: "mariadb@11.4.5".to_owned(),
        engine: "InnoDB".to_owned(),
        profile: None,
        settings: [].into(),
        deciding: [].into(),
        class: "full".to_owned(),
        promises: vec![promise(AuditKind::ProcessCrash), promise(AuditKind::PowerCut)],
        sessions: 8,
        seed: 1,
        started_at_ms: 1_795_000_000_000,
        plimsoll_version: "0.1.0".to_owned(),
    };
    let round = AuditRound {
        number: 1,
        ran_s: 1.0,
        acknowledged: 1000,
        lost: 3,
        lost_window_s: 0.5,
        partial: 0,
        invented: 0,
        broken: vec![],
        recovery_s: Some(0.2),
        failure: None,
        unflushed: None,
        unflushed_bytes: 0,
        dropped_bytes: 0,
    };
    let id = store.begin_audit(host, build, &start).expect("an audit");
    store.add_audit_round(id, AuditKind::ProcessCrash, &round).expect("a round");
    store.add_audit_gap(id, AuditKind::PowerCut, "a power cut needs root").expect("a gap");
}

/// The first byte chooses the column, the second its type, the rest is it. A type that the schema refuses stays out:
/// SQLite itself checks it.
pub fn results_files(data: &[u8]) {
    let [which, kind, rest @ ..] = data else { return };
    let bytes = || {
        let mut eight = [0; 8];
        let count = rest.len().min(8);
        eight[..count].copy_from_slice(&rest[..count]);
        eight
    };
    let value = match kind % 5 {
        0 => Value::Text(String::from_utf8_lossy(rest).into_owned()),
        1 => Value::Blob(rest.to_vec()),
        2 => Value::Integer(i64::from_le_bytes(bytes())),
        3 => Value::Real(f64::from_le_bytes(bytes())),
        _ => Value::Null,
    };
    SCENE.with_borrow(|scene| {
        let (table, column) = &scene.columns[usize::from(*which) % scene.columns.len()];
        let change = format!("UPDATE main.{table} SET {column} = ?1");
        if scene.other.execute(&change, [&value]).is_ok() {
            scene.read();
        }
        let back = format!(
            "BEGIN; DELETE FROM main.{table}; INSERT INTO main.{table} SELECT * FROM kept.{table}; COMMIT"
        );
        scene.other.execute_batch(&back).expect("what was there before");
    });
}
