//! Plain data that a workload takes and gives around a run: how to load, what was loaded, what must hold after.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Totals;

/// Where and how to load.
#[derive(Debug, Clone)]
pub struct LoadAt {
    /// The server and an existing database.
    pub target: wire::Target,
    /// Connections that stream rows at once; at least 1.
    pub connections: usize,
    /// The server is a run's own and holds nothing else: tables of the loader's own may be made beside those wanted.
    pub is_own_server: bool,
    /// Ends the load at once: what the server is at is cancelled, and what was loaded until then stays.
    pub stop: load::Stop,
}

/// The parts of a load, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadPart {
    /// Creating tables.
    Tables,
    /// Streaming rows.
    Rows,
    /// Building secondary indexes.
    Indexes,
    /// VACUUM ANALYZE or ANALYZE TABLE.
    Analyze,
}

/// How far a load is. Sent from loader threads, a few times a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What it is at.
    pub part: LoadPart,
    /// Units finished of this part: rows while streaming, tables otherwise.
    pub done: u64,
    /// Units of this part.
    pub total: u64,
}

/// How the rows travelled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadMethod {
    /// LOAD DATA LOCAL INFILE, MariaDB's bulk execution, or COPY FROM STDIN.
    Stream,
    /// Multi-row INSERT statements, because the server refused the stream.
    Inserts {
        /// The refusal and its remedy, for the report.
        why: String,
    },
    /// Statements of the workload itself (a user's SQL file).
    Statements,
    /// The workload has no data.
    Nothing,
}

/// What a load did.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadReport {
    /// Rows, over all tables.
    pub rows: u64,
    /// Bytes of rows sent.
    pub bytes_sent: u64,
    /// Creating and filling tables.
    pub rows_time: Duration,
    /// Secondary indexes.
    pub indexes_time: Duration,
    /// Statistics (and vacuum).
    pub analyze_time: Duration,
    /// How.
    pub method: LoadMethod,
    /// Connections used.
    pub connections: usize,
    /// Remarks for the report (what the server did not allow).
    pub notes: Vec<String>,
}

/// Figures of the tables before a run, by name (`rows sbtest1`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Baseline {
    /// Exact sums and counts.
    pub figures: BTreeMap<String, i128>,
    /// What sessions had changed before.
    pub changed: Totals,
}

/// What ran between baseline and check: all steps with warm-up and drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ran {
    /// Confirmed by the server.
    pub committed: u64,
    /// Rolled back on purpose.
    pub rolled_back: u64,
    /// Known to have failed.
    pub failed: u64,
    /// Ended with a lost connection, or still running when the engine let go: they may or may not have committed.
    pub in_doubt: u64,
}

impl Ran {
    /// Adds up the whole steps of a load's result.
    pub fn of(result: &load::LoadResult) -> Ran {
        let mut ran = Ran::default();
        for step in &result.steps {
            let whole = &step.outcomes_whole;
            ran.committed += whole.committed;
            ran.rolled_back += whole.rolled_back;
            ran.failed +=
                whole.deadlock + whole.serialization + whole.lock_timeout + whole.constraint + whole.other;
            ran.in_doubt += whole.connection + step.in_flight_at_end.saturating_sub(step.drained);
        }
        ran
    }
}

/// One consistency check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What must hold (`rows of sbtest1`).
    pub name: String,
    /// Whether it holds.
    pub passed: bool,
    /// What the outcomes imply.
    pub expected: String,
    /// What the tables have.
    pub found: String,
}

impl Check {
    /// The figure must be `low`, or lie between the two where lost connections leave doubt.
    pub fn between(name: impl Into<String>, found: i128, low: i128, high: i128) -> Check {
        let expected = if low == high {
            low.to_string()
        } else {
            format!("{low} to {high} (lost connections leave doubt)")
        };
        Check { name: name.into(), passed: (low..=high).contains(&found), expected, found: found.to_string() }
    }
}

/// A statement of a workload, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementDoc {
    /// Its class in the figures.
    pub class: String,
    /// The text as sent, `?`/`$1` for parameters.
    pub sql: String,
    /// How often in one transaction ("10", "1 in 20 transactions").
    pub per_transaction: String,
    /// What its parameters are drawn from.
    pub parameters: String,
}

impl StatementDoc {
    /// Whether it changes and locks nothing, as far as its text tells: reads, and what frames a transaction.
    pub fn only_reads(&self) -> bool {
        let words = self.sql.to_ascii_uppercase();
        let first = words.split(|c: char| !c.is_ascii_alphabetic()).find(|word| !word.is_empty());
        let locks =
            words.contains(" FOR UPDATE") || words.contains(" IN SHARE MODE") || words.contains(" INTO ");
        match first {
            Some("SELECT" | "VALUES" | "SHOW") => !locks,
            Some("BEGIN" | "START" | "COMMIT" | "ROLLBACK") => true,
            _ => false,
        }
    }
}

/// What a run will ask of the server, to be compared with its limits before the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Connections, control work not included.
    pub connections: u32,
    /// Prepared statements over all sessions (`max_prepared_stmt_count`).
    pub prepared_statements: u64,
}

/// A figure of the workload's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Its name (`NOPM`, `p90 new_order`).
    pub name: String,
    pub value: f64,
    /// Its unit (`1/min`, `ms`).
    pub unit: String,
    /// The limit that the specification sets, where it sets one.
    pub limit: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_change_or_lock_are_no_reads() {
        let only_reads = |sql: &str| {
            let (class, per_transaction, parameters) = Default::default();
            StatementDoc { class, sql: sql.to_owned(), per_transaction, parameters }.only_reads()
        };
        for sql in ["SELECT c FROM sbtest1 WHERE id=?", "(select 1)", "BEGIN", "COMMIT", "START TRANSACTION"]
        {
            assert!(only_reads(sql), "{sql}");
        }
        for sql in [
            "UPDATE t SET a = 1",
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM t LOCK IN SHARE MODE",
            "SELECT a INTO OUTFILE '/tmp/x' FROM t",
            "CALL p()",
            "WITH w AS (DELETE FROM t RETURNING a) SELECT * FROM w",
            "",
        ] {
            assert!(!only_reads(sql), "{sql}");
        }
    }
}
