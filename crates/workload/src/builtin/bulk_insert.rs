//! `bulk_insert`: multi-row INSERTs as large as one statement sensibly gets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use load::{AnySession, Completion, Failure, Recorder, Session, SessionFactory};
use wire::Target;

use super::Single;
use super::schema::{Key, Schema, Table};
use crate::control::Control;
use crate::engine::link::{Link, LinkPlan};
use crate::engine::sums::{self, Sum, Wanted};
use crate::engine::tally::{Change, SessionTally, Tally};
use crate::loader::{self, LoadPlan};
use crate::options::{ENGINE, Options, TABLE_OPTIONS};
use crate::random::digits;
use crate::{
    Baseline, Check, Configured, Dialect, Error, Given, LoadAt, LoadReport, Needs, OptionError, OptionSpec,
    Progress, Ran, StatementDoc,
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::count("tables", "16", 1, 100_000, "tables; session i inserts into table i, counted round"),
    OptionSpec::count("statement_bytes", "524288", 100, 16_000_000, "length of one INSERT"),
    ENGINE,
    TABLE_OPTIONS,
];

const DESCRIPTION: &str = "\
As sysbench's bulk_insert: rows (n, n) into tables sbtestN (id primary key, k), in INSERT statements of \
512 KiB without a transaction around them. A transaction is one such statement here; sysbench counts \
each of its rows as an event, so its rate is that of the rows. A session that finds rows goes on after \
the highest id. Sessions that share a table (more sessions than `tables`) share its numbering.";

pub(super) const WORKLOAD: Single = Single {
    name: "bulk_insert",
    summary: "multi-row inserts of 512 KiB into a table for each session",
    description: DESCRIPTION,
    options: OPTIONS,
    transactions: &[],
    configure,
};

fn configure(given: &Given, dialect: Dialect) -> Result<Box<dyn Configured>, OptionError> {
    let options = Options::for_server("bulk_insert", OPTIONS, given, &dialect)?;
    let tables = options.count("tables");
    Ok(Box::new(ConfiguredBulk {
        tables,
        statement_bytes: options.count("statement_bytes") as usize,
        next_ids: (0..tables).map(|_| AtomicU64::new(1)).collect(),
        tally: Arc::default(),
        options,
        dialect,
    }))
}

#[derive(Debug)]
struct ConfiguredBulk {
    options: Options,
    dialect: Dialect,
    tables: u64,
    statement_bytes: usize,
    /// The next free id of each table.
    next_ids: Arc<[AtomicU64]>,
    tally: Arc<Tally>,
}

impl ConfiguredBulk {
    fn names(&self) -> impl Iterator<Item = String> {
        (1..=self.tables).map(|number| format!("sbtest{number}"))
    }

    fn sums(&self) -> [Sum; 1] {
        [Sum::of_rows("rows of all tables", self.names(), Wanted::Rows)]
    }
}

impl Configured for ConfiguredBulk {
    fn options(&self) -> BTreeMap<String, String> {
        self.options.all().clone()
    }

    fn statement_classes(&self) -> Vec<String> {
        vec!["bulk_insert".to_owned()]
    }

    fn statements(&self) -> Vec<StatementDoc> {
        vec![StatementDoc {
            class: "bulk_insert".to_owned(),
            sql: "INSERT INTO sbtestN VALUES (n, n), (n+1, n+1), ...".to_owned(),
            per_transaction: "1".to_owned(),
            parameters: format!("consecutive numbers, as many as fit {} bytes", self.statement_bytes),
        }]
    }

    fn dataset_key(&self) -> String {
        format!(
            "bulk_insert v1 tables={} engine={} create_table_options={}",
            self.tables,
            self.options.text("mysql_storage_engine"),
            self.options.text("create_table_options")
        )
    }

    fn data_bytes(&self) -> u64 {
        // Empty tables; what a run will add is not known before.
        self.tables * 200_000
    }

    fn needs(&self, sessions: u32) -> Needs {
        Needs { connections: sessions, ..Needs::default() }
    }

    fn load(&self, at: &LoadAt, progress: &(dyn Fn(Progress) + Sync)) -> Result<LoadReport, Error> {
        let schema = Schema::of(&self.options, &self.dialect);
        let columns = "id INTEGER NOT NULL, k INTEGER DEFAULT '0' NOT NULL";
        let tables = self.names().map(|name| {
            let (name, key) = (name.as_str(), Key::Primary("id"));
            schema.table(Table { name, columns, key, after: Vec::new(), rows: 0 }, |_, _| ())
        });
        loader::load(at, &self.dialect, LoadPlan { tables: tables.collect() }, progress)
    }

    fn rows_by_table(&self) -> Result<Vec<(String, u64)>, Error> {
        Ok(self.names().map(|table| (table, 0)).collect())
    }

    fn baseline(&self, target: &Target, counted: &BTreeMap<String, u64>) -> Result<Baseline, Error> {
        sums::baseline(target, &self.sums(), &self.tally, counted)
    }

    fn one_process_only(&self, sessions: u32) -> Option<String> {
        (u64::from(sessions) > self.tables).then(|| {
            format!(
                "sessions of bulk_insert that share a table share its numbering: with {} tables, {sessions} sessions must \
                 live in one process; -o tables={sessions} gives each its own",
                self.tables
            )
        })
    }

    fn tally(&self) -> Option<&Tally> {
        Some(&self.tally)
    }

    fn check(&self, target: &Target, before: &Baseline, _ran: &Ran) -> Result<Vec<Check>, Error> {
        let mut control = Control::connect(target, "check the tables after the run")?;
        sums::check(&mut control, &self.sums(), before, &self.tally)
    }

    fn sessions(&self, target: &Target, _seed: u64) -> Box<dyn SessionFactory> {
        let link = LinkPlan {
            target: target.clone(),
            dialect: self.dialect.clone(),
            setup: Vec::new(),
            retryable: &[],
        };
        Box::new(Factory {
            link: Arc::new(link),
            statement_bytes: self.statement_bytes,
            next_ids: Arc::clone(&self.next_ids),
            tally: Arc::clone(&self.tally),
        })
    }
}

#[derive(Debug)]
struct Factory {
    link: Arc<LinkPlan>,
    statement_bytes: usize,
    next_ids: Arc<[AtomicU64]>,
    tally: Arc<Tally>,
}

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        vec!["bulk_insert".to_owned()]
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        Box::new(BulkSession {
            table: index as usize % self.next_ids.len(),
            link: Link::new(Arc::clone(&self.link)),
            statement_bytes: self.statement_bytes,
            next_ids: Arc::clone(&self.next_ids),
            tally: SessionTally::new(Arc::clone(&self.tally)),
            sql: Vec::new(),
            rows: 0,
        })
    }
}

struct BulkSession {
    table: usize,
    link: Link,
    statement_bytes: usize,
    next_ids: Arc<[AtomicU64]>,
    tally: SessionTally,
    sql: Vec<u8>,
    rows: i64,
}

/// Appends `(n, n)` rows from `first` on as long as the statement stays within `limit`; gives their number.
fn fill(sql: &mut Vec<u8>, first: u64, limit: usize) -> u64 {
    let mut rows = 0;
    loop {
        let before = sql.len();
        if rows > 0 {
            sql.extend_from_slice(b", ");
        }
        sql.push(b'(');
        digits(first + rows, sql);
        sql.extend_from_slice(b", ");
        digits(first + rows, sql);
        sql.push(b')');
        if sql.len() > limit && rows > 0 {
            sql.truncate(before);
            return rows;
        }
        rows += 1;
    }
}

impl Session for BulkSession {
    async fn open(&mut self) -> Result<(), Failure> {
        self.link.open().await?;
        let mut highest = 0;
        let sql = format!("SELECT MAX(id) FROM sbtest{}", self.table + 1);
        let asked = self
            .link
            .connection()?
            .query_rows(&sql, &mut |row| {
                highest = row.text(0).and_then(|text| text.parse().ok()).unwrap_or(0)
            })
            .await;
        asked.map_err(|error| self.link.failure(&error))?;
        self.next_ids[self.table].fetch_max(highest + 1, Ordering::Relaxed);
        Ok(())
    }

    fn draw(&mut self) {
        self.sql.clear();
        self.sql.extend_from_slice(format!("INSERT INTO sbtest{} VALUES ", self.table + 1).as_bytes());
        let head = self.sql.len();
        let next = &self.next_ids[self.table];
        let mut first = next.load(Ordering::Relaxed);
        loop {
            let rows = fill(&mut self.sql, first, self.statement_bytes);
            // Another session of the same table may have taken them meanwhile.
            match next.compare_exchange(first, first + rows, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => {
                    self.rows = rows as i64;
                    return;
                }
                Err(taken) => first = taken,
            }
            self.sql.truncate(head);
        }
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        let change = Change { rows: self.rows, k: 0 };
        self.tally.sending(change);
        // Digits, commas and brackets.
        let sql = std::str::from_utf8(&self.sql).unwrap_or_default();
        let sent = self.link.text(sql).await;
        match sent {
            Ok(done) => {
                recorder.lap(0, done.kind());
                self.tally.sent(change);
                Ok(Completion::Committed)
            }
            Err(failure) => {
                self.tally.failed(failure.connection_lost);
                Err(failure)
            }
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        self.link.recover().await
    }

    async fn close(&mut self) {
        self.link.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_filled_to_its_limit_and_not_beyond() {
        let mut sql = b"INSERT INTO t VALUES ".to_vec();
        let rows = fill(&mut sql, 9, 41);
        assert_eq!(
            (rows, String::from_utf8_lossy(&sql).as_ref()),
            (2, "INSERT INTO t VALUES (9, 9), (10, 10)")
        );
        // One row goes in however long it is.
        let mut sql = Vec::new();
        assert_eq!(fill(&mut sql, 123_456, 5), 1);
    }
}
