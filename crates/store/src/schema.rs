//! The schema and the way from any older version to it.
//!
//! `PRAGMA user_version` counts the migrations that a file has seen. A migration is never edited once a release
//! has written files with it; a change is a new entry at the end.

use rusqlite::Connection;

/// "Plms": tells our files from other SQLite files (`PRAGMA application_id`).
pub(crate) const APPLICATION_ID: i64 = 0x506c_6d73;

/// Each entry takes a file from version `index` to `index + 1`.
pub(crate) const MIGRATIONS: &[&str] = &[V1, V2, V3, V4, V5, V6, V7, V8, V9, V10, V11];

/// Counts are integers, durations REAL seconds, times milliseconds since 1970, seeds the bits of a u64.
/// Histograms are HdrHistogram V2 payloads, deflated; their values count units of 100 ns.
const V1: &str = "
CREATE TABLE study (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, title TEXT NOT NULL, question TEXT NOT NULL,
  file_path TEXT NOT NULL, file_text TEXT NOT NULL, file_sha256 TEXT NOT NULL, fingerprint TEXT NOT NULL,
  state TEXT NOT NULL,
  plan TEXT NOT NULL, axes TEXT NOT NULL, comparisons TEXT NOT NULL,
  blocks INTEGER NOT NULL, runs INTEGER NOT NULL, is_quick INTEGER NOT NULL, seed INTEGER NOT NULL,
  plimsoll_version TEXT NOT NULL, command TEXT NOT NULL, created_at_ms INTEGER NOT NULL
) STRICT;
CREATE TABLE note (
  id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES study(id), at_ms INTEGER NOT NULL,
  kind TEXT NOT NULL, -- note, command
  text TEXT NOT NULL
) STRICT;
CREATE TABLE host (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, fingerprint TEXT NOT NULL, boot_id TEXT NOT NULL,
  kernel TEXT NOT NULL, os TEXT NOT NULL, arch TEXT NOT NULL, cpu_model TEXT NOT NULL, cpus INTEGER NOT NULL,
  memory_bytes INTEGER NOT NULL, facts TEXT NOT NULL
) STRICT;
CREATE TABLE build (
  id INTEGER PRIMARY KEY, flavor TEXT NOT NULL, version TEXT NOT NULL, label TEXT NOT NULL,
  identity TEXT NOT NULL, origin TEXT NOT NULL, facts TEXT NOT NULL
) STRICT;
CREATE TABLE cell (
  id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES study(id),
  key TEXT NOT NULL, -- JSON with its names sorted: equal keys are equal texts
  UNIQUE (study_id, key)
) STRICT;
CREATE TABLE run (
  id INTEGER PRIMARY KEY, cell_id INTEGER NOT NULL REFERENCES cell(id),
  host_id INTEGER NOT NULL REFERENCES host(id), build_id INTEGER REFERENCES build(id),
  plan_index INTEGER NOT NULL, levels TEXT NOT NULL, is_climb INTEGER NOT NULL, block INTEGER NOT NULL, repeat INTEGER NOT NULL,
  position INTEGER NOT NULL, purpose TEXT NOT NULL, attempt INTEGER NOT NULL, seed INTEGER NOT NULL,
  started_at_ms INTEGER NOT NULL, status TEXT NOT NULL,
  ended_at_ms INTEGER, error TEXT, log_tail TEXT, log_file TEXT,
  server TEXT, workload TEXT, phases TEXT, warnings TEXT, gates TEXT, checks TEXT, facts TEXT,
  UNIQUE (cell_id, levels, block, purpose, attempt)
) STRICT;
CREATE TABLE step (
  id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run(id), ordinal INTEGER NOT NULL,
  sessions INTEGER NOT NULL, rate_tps REAL, arrivals TEXT, offset_s REAL NOT NULL, warmup_s REAL NOT NULL,
  duration_s REAL NOT NULL, connect_s REAL NOT NULL,
  committed INTEGER NOT NULL, rolled_back INTEGER NOT NULL, deadlock INTEGER NOT NULL,
  serialization INTEGER NOT NULL, lock_timeout INTEGER NOT NULL, constraint_ INTEGER NOT NULL,
  connection INTEGER NOT NULL, other_failed INTEGER NOT NULL, skipped INTEGER NOT NULL,
  outcomes_whole TEXT NOT NULL,
  reads INTEGER NOT NULL, writes INTEGER NOT NULL, other INTEGER NOT NULL, retries INTEGER NOT NULL,
  in_flight_at_end INTEGER NOT NULL, backlog_at_end INTEGER NOT NULL, drained INTEGER NOT NULL,
  response BLOB NOT NULL, service BLOB, client TEXT NOT NULL, ended_by TEXT,
  UNIQUE (run_id, ordinal)
) STRICT;
CREATE TABLE statement (
  step_id INTEGER NOT NULL REFERENCES step(id), ordinal INTEGER NOT NULL, name TEXT NOT NULL,
  count INTEGER NOT NULL, latency BLOB NOT NULL, PRIMARY KEY (step_id, ordinal)
) STRICT, WITHOUT ROWID;
CREATE TABLE error (
  step_id INTEGER NOT NULL REFERENCES step(id), code TEXT NOT NULL, count INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (step_id, code)
) STRICT, WITHOUT ROWID;
CREATE TABLE interval (
  step_id INTEGER NOT NULL REFERENCES step(id), second INTEGER NOT NULL, duration_s REAL NOT NULL,
  committed INTEGER NOT NULL, rolled_back INTEGER NOT NULL, deadlock INTEGER NOT NULL,
  serialization INTEGER NOT NULL, lock_timeout INTEGER NOT NULL, constraint_ INTEGER NOT NULL,
  connection INTEGER NOT NULL, other_failed INTEGER NOT NULL, skipped INTEGER NOT NULL,
  reads INTEGER NOT NULL, writes INTEGER NOT NULL, other INTEGER NOT NULL, retries INTEGER NOT NULL,
  backlog INTEGER NOT NULL, response BLOB NOT NULL, service BLOB, PRIMARY KEY (step_id, second)
) STRICT, WITHOUT ROWID;
CREATE TABLE series (
  id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run(id), source TEXT NOT NULL, name TEXT NOT NULL,
  instance TEXT NOT NULL, unit TEXT NOT NULL,
  points BLOB NOT NULL -- deflated: all times, then all values, each a little-endian f64
) STRICT;
CREATE INDEX series_run ON series(run_id);
CREATE TABLE hot_lock (
  id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run(id), sessions INTEGER NOT NULL,
  source TEXT NOT NULL, lock TEXT NOT NULL, caller TEXT NOT NULL, count INTEGER, wait_total_s REAL NOT NULL,
  wait_low_s REAL, wait_high_s REAL, observed_s REAL NOT NULL
) STRICT;
CREATE INDEX hot_lock_run ON hot_lock(run_id);
CREATE TABLE probe (
  id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES study(id),
  host_id INTEGER NOT NULL REFERENCES host(id), probe TEXT NOT NULL
) STRICT;
CREATE TABLE canary (
  id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES study(id),
  host_id INTEGER NOT NULL REFERENCES host(id), canary TEXT NOT NULL
) STRICT;
CREATE TABLE reference (
  id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES study(id), reference TEXT NOT NULL
) STRICT;
";

/// Durability audits.
const V2: &str = "
CREATE TABLE audit (
  id INTEGER PRIMARY KEY, host_id INTEGER NOT NULL REFERENCES host(id),
  build_id INTEGER NOT NULL REFERENCES build(id), start TEXT NOT NULL
) STRICT;
CREATE TABLE audit_round (
  audit_id INTEGER NOT NULL REFERENCES audit(id), kind TEXT NOT NULL, number INTEGER NOT NULL, round TEXT NOT NULL,
  PRIMARY KEY (audit_id, kind, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE audit_gap (
  audit_id INTEGER NOT NULL REFERENCES audit(id), kind TEXT NOT NULL, why TEXT NOT NULL,
  PRIMARY KEY (audit_id, kind)
) STRICT, WITHOUT ROWID;
";

/// Response times by second and class of statement.
const V3: &str = "
CREATE TABLE interval_statement (
  step_id INTEGER NOT NULL REFERENCES step(id), second INTEGER NOT NULL,
  ordinal INTEGER NOT NULL, -- of the statement
  latency BLOB NOT NULL, PRIMARY KEY (step_id, second, ordinal)
) STRICT, WITHOUT ROWID;
";

/// What an open loop was offered, transactions that failed or never ended, and times without a commit. NULL: recorded
/// before these were measured.
const V4: &str = "
ALTER TABLE step ADD COLUMN arrivals_offered INTEGER;
ALTER TABLE step ADD COLUMN failed BLOB;
ALTER TABLE step ADD COLUMN unended INTEGER;
ALTER TABLE step ADD COLUMN unended_from_ms REAL;
ALTER TABLE step ADD COLUMN stalled_s INTEGER;
ALTER TABLE step ADD COLUMN freeze_s REAL;
";

/// Inspections of verdicts that may be watched.
const V5: &str = "
CREATE TABLE look (
  id INTEGER PRIMARY KEY, study_id INTEGER NOT NULL REFERENCES study(id), at_ms INTEGER NOT NULL,
  block INTEGER NOT NULL, decided INTEGER NOT NULL, open INTEGER NOT NULL
) STRICT;
";

const V6: &str = "
ALTER TABLE run ADD COLUMN duel TEXT;
";

/// What people said of changes of level in a history.
const V7: &str = "
CREATE TABLE change_decision (
  id INTEGER PRIMARY KEY, series TEXT NOT NULL, at_ms INTEGER NOT NULL,
  state TEXT NOT NULL, -- accepted, ignored
  why TEXT NOT NULL, decided_at_ms INTEGER NOT NULL
) STRICT;
";

/// Searches for load lines.
const V8: &str = "
CREATE TABLE line_search (
  id INTEGER PRIMARY KEY, start TEXT NOT NULL, is_over INTEGER NOT NULL
) STRICT;
CREATE TABLE line_probe (
  line_id INTEGER NOT NULL REFERENCES line_search(id), number INTEGER NOT NULL, probe TEXT NOT NULL,
  PRIMARY KEY (line_id, number)
) STRICT, WITHOUT ROWID;
";

/// What searches for load lines found, and the runs of studies that are such searches.
const V9: &str = "
ALTER TABLE line_search ADD COLUMN found TEXT;
ALTER TABLE run ADD COLUMN line_id INTEGER; -- of line_search
";

/// What was changed of a server while it was loaded.
const V10: &str = "
ALTER TABLE run ADD COLUMN interventions TEXT;
";

/// When a study that may be watched was first over without its verdicts having ended it.
const V11: &str = "
ALTER TABLE study ADD COLUMN ended_at_ms INTEGER;
";

/// Brings `connection` from version `from` to the end of `migrations`, all or nothing.
pub(crate) fn migrate(connection: &mut Connection, from: usize, migrations: &[&str]) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have migrated while this one waited for the lock.
    let now: usize =
        transaction.query_row("PRAGMA user_version", [], |row| row.get::<_, i64>(0))?.max(0) as usize;
    for sql in migrations.iter().skip(now.max(from)) {
        transaction.execute_batch(sql)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", migrations.len() as i64)?;
    transaction.commit()
}
