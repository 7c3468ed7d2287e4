//! Results files: one value of a whole one is replaced behind the store's back, and everything is read.

use std::cell::RefCell;
use std::hint::black_box;

use hdrhistogram::Histogram;
use rusqlite::Connection;
use rusqlite::types::Value;
use store::{
    AuditKind, AuditPromise, AuditRound, AuditStart, BuildId, Canary, HostId, PackedHistogram, Probe,
    Quantity, Reference, RunEnd, Store, StudyId,
};

use crate::common;

/// What a results file holds with something in every table, in memory: nothing is left of a change that is taken back.
struct Scene {
    store: Store,
    /// Table and column of every value.
    columns: Vec<(String, String)>,
    study: StudyId,
    host: HostId,
    build: BuildId,
}

thread_local! {
    static SCENE: RefCell<Scene> = RefCell::new(Scene::new());
}

impl Scene {
    fn new() -> Scene {
        let place = crate::place();
        let mut file = Store::open(place.path()).expect("a results file");
        let study = file.add_study(&common::study("fuzzed")).expect("a study");
        let host = file.add_host(&common::host()).expect("a host");
        let build = file.add_build(&common::build()).expect("a build");
        fill(&mut file, study, host, build);
        let store = store::testing::in_memory(&file).expect("memory");
        let connection = store::testing::connection(&store);
        let columns = columns(connection).expect("a schema");
        connection.set_prepared_statement_cache_capacity(2 * columns.len());
        Scene { store, columns, study, host, build }
    }

    /// Everything that a report reads, except for what has nothing to do with the table that was changed. The report
    /// itself takes a thousand times longer.
    fn read(&self, table: &str) {
        match table {
            "study" | "note" => drop(black_box(self.store.studies())),
            "host" => drop(black_box(self.store.host(self.host))),
            "build" => drop(black_box(self.store.build(self.build))),
            "probe" => drop(black_box(self.store.probes(self.study))),
            "canary" => drop(black_box(self.store.canaries(self.study))),
            "reference" => drop(black_box(self.store.references(self.study))),
            "audit" | "audit_round" | "audit_gap" => drop(black_box(self.store.audits())),
            _ => self.read_runs(),
        }
    }

    fn read_runs(&self) {
        for head in self.store.run_heads(self.study).unwrap_or_default() {
            let _ = black_box(self.store.run(head.id));
            let intervals = self.store.intervals(head.id, 0).unwrap_or_default();
            for packed in intervals.iter().flat_map(|interval| interval.by_statement.values()) {
                let _ = black_box(packed.unpacked());
            }
        }
    }

    /// Sets a column of every row, reads, and takes the change back.
    fn change(&self, table: &str, column: &str, value: &Value) -> rusqlite::Result<()> {
        let connection = store::testing::connection(&self.store);
        connection.prepare_cached("SAVEPOINT fuzzed")?.execute([])?;
        let change = format!("UPDATE {table} SET {column} = ?1");
        if connection.prepare_cached(&change)?.execute([value]).is_ok() {
            self.read(table);
        }
        connection.prepare_cached("ROLLBACK TO fuzzed")?.execute([])?;
        connection.prepare_cached("RELEASE fuzzed")?.execute([]).map(drop)
    }
}

fn columns(connection: &Connection) -> rusqlite::Result<Vec<(String, String)>> {
    let sql = "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c \
               WHERE m.type = 'table' ORDER BY m.name, c.cid";
    connection.prepare(sql)?.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}

fn fill(file: &mut Store, study: StudyId, host: HostId, build: BuildId) {
    file.add_note(study, 5, "a note").expect("a note");
    let figures = vec![Quantity { name: "fsync".to_owned(), value: 1234.5, unit: "1/s".to_owned() }];
    let probe = Probe {
        place: "default".to_owned(),
        path: "/var/lib/plimsoll".to_owned(),
        facts: [("scheduler".to_owned(), "none".to_owned())].into(),
        tool: "fio 3.33".to_owned(),
        measured_at_ms: 7,
        figures: figures.clone(),
    };
    file.add_probe(study, host, &probe).expect("a probe");
    let canary = Canary { block: 1, when: "before".to_owned(), measured_at_ms: 8, figures };
    file.add_canary(study, host, &canary).expect("a canary");
    let reference = Reference {
        series: "MySQL 5.1.33, table log".to_owned(),
        source: "Maxia 2009".to_owned(),
        year: 2009,
        machine: "8 cores".to_owned(),
        metric: "tps".to_owned(),
        unit: "1/s".to_owned(),
        key: [("sessions".to_owned(), 8.into())].into(),
        value: 512.0,
    };
    file.add_references(study, &[reference]).expect("a published figure");
    file.record_run(study, &common::start(host, Some(build), 1), &end()).expect("a run");
    fill_audit(file, host, build);
}

/// A run with everything in it once. Its histograms are small: each is read again with each input, and only one of them
/// is what was changed.
fn end() -> RunEnd {
    let mut end = common::end(0);
    let mut small = Histogram::new_with_bounds(1, 1000, 1).expect("bounds");
    small.record_n(12, 3).expect("within bounds");
    for step in &mut end.steps {
        step.response = small.clone();
        step.service = Some(small.clone());
        step.failed = Some(small.clone());
        step.by_statement.truncate(1);
        step.by_statement.iter_mut().for_each(|statement| statement.latency = small.clone());
        for interval in &mut step.intervals {
            interval.response = PackedHistogram::of(&small);
            interval.service = Some(PackedHistogram::of(&small));
            interval.by_statement = [(0, PackedHistogram::of(&small))].into();
        }
    }
    end
}

fn fill_audit(file: &mut Store, host: HostId, build: BuildId) {
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
        doubt: None,
    };
    let round = AuditRound {
        number: 1,
        ran_s: 1.0,
        acknowledged: 1000,
        lost: 3,
        lost_window_s: 0.5,
        recovery_s: Some(0.2),
        ..AuditRound::default()
    };
    let id = file.begin_audit(host, build, &start).expect("an audit");
    file.add_audit_round(id, AuditKind::ProcessCrash, &round).expect("a round");
    file.add_audit_gap(id, AuditKind::PowerCut, "a power cut needs root").expect("a gap");
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
        scene.change(table, column, &value).expect("SQLite, which has memory");
    });
}
