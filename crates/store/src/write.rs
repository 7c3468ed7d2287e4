//! Writing: each call is one transaction, on the disk when it returns.

use rusqlite::{
    Connection, OptionalExtension, ToSql, Transaction, TransactionBehavior, params, params_from_iter,
};
use serde::Serialize;

use crate::codec::{PackedHistogram, histogram_to_bytes, points_to_bytes};
use crate::error::Error;
use crate::open::Store;
use crate::run::{Interval, Outcomes, Purpose, RunEnd, RunStart, Series, Status, Step};
use crate::schema::MIGRATIONS;
use crate::study::{Build, BuildId, Canary, Host, HostId, Look, Probe, Reference, RunId, Study, StudyId};

/// Within a transaction everything is a SQLite error; what JSON or a histogram says is wrapped into one.
type Sql<T> = rusqlite::Result<T>;

fn wrap<E: Into<Box<dyn std::error::Error + Send + Sync>>>(error: E) -> rusqlite::Error {
    rusqlite::Error::ToSqlConversionFailure(error.into())
}

pub(crate) fn to_json<T: Serialize + ?Sized>(value: &T) -> Sql<String> {
    serde_json::to_string(value).map_err(wrap)
}

impl Store {
    pub fn add_study(&mut self, study: &Study) -> Result<StudyId, Error> {
        self.transaction("the study", |sql| {
            let columns: &Columns<'_> = &[
                ("name", &study.name),
                ("title", &study.title),
                ("question", &study.question),
                ("file_path", &study.file_path),
                ("file_text", &study.file_text),
                ("file_sha256", &study.file_sha256),
                ("fingerprint", &study.fingerprint),
                ("state", &"planned"),
                ("plan", &to_json(&study.plan)?),
                ("axes", &to_json(&study.axes)?),
                ("comparisons", &to_json(&study.comparisons)?),
                ("blocks", &study.blocks),
                ("runs", &study.runs),
                ("is_quick", &study.is_quick),
                ("seed", &(study.seed as i64)),
                ("plimsoll_version", &study.plimsoll_version),
                ("command", &study.command),
                ("created_at_ms", &study.created_at_ms),
            ];
            insert(sql, "study", columns).map(StudyId)
        })
    }

    /// Records that a study is over by its blocks or its budget, or is not to have a last look any more, unless it was so
    /// before.
    pub fn end_study(&mut self, study: StudyId, at_ms: i64) -> Result<(), Error> {
        self.transaction("the study's end", |sql| {
            let first = "UPDATE study SET ended_at_ms=? WHERE id=? AND ended_at_ms IS NULL";
            sql.execute(first, params![at_ms, study.0]).map(drop)
        })
    }

    /// Records how the study as a whole stands.
    pub fn set_study_state(&mut self, study: StudyId, state: &str) -> Result<(), Error> {
        self.transaction("the study's state", |sql| {
            sql.execute("UPDATE study SET state=? WHERE id=?", params![state, study.0]).map(drop)
        })
    }

    /// Records what a reader has to know about the study as a whole.
    pub fn add_note(&mut self, study: StudyId, at_ms: i64, text: &str) -> Result<(), Error> {
        self.add_line(study, at_ms, "note", text)
    }

    /// Records a command line, without secrets, that resumes a study.
    pub fn add_command(&mut self, study: StudyId, at_ms: i64, command: &str) -> Result<(), Error> {
        self.add_line(study, at_ms, "command", command)
    }

    fn add_line(&mut self, study: StudyId, at_ms: i64, kind: &str, text: &str) -> Result<(), Error> {
        self.transaction("a note", |sql| {
            let values = params![study.0, at_ms, kind, text];
            sql.execute("INSERT INTO note (study_id, at_ms, kind, text) VALUES (?,?,?,?)", values).map(drop)
        })
    }

    /// Records the machine; the same facts give the same row.
    pub fn add_host(&mut self, host: &Host) -> Result<HostId, Error> {
        self.transaction("the host", |sql| host_row(sql, host))
    }

    /// Records a build; the same facts give the same row.
    pub fn add_build(&mut self, build: &Build) -> Result<BuildId, Error> {
        self.transaction("the build", |sql| build_row(sql, build))
    }

    /// Records what a device can do by itself.
    pub fn add_probe(&mut self, study: StudyId, host: HostId, probe: &Probe) -> Result<(), Error> {
        self.transaction("a probe", |sql| {
            let values = params![study.0, host.0, to_json(probe)?];
            sql.execute("INSERT INTO probe (study_id, host_id, probe) VALUES (?,?,?)", values).map(drop)
        })
    }

    pub fn add_canary(&mut self, study: StudyId, host: HostId, canary: &Canary) -> Result<(), Error> {
        self.transaction("a canary", |sql| {
            let values = params![study.0, host.0, to_json(canary)?];
            sql.execute("INSERT INTO canary (study_id, host_id, canary) VALUES (?,?,?)", values).map(drop)
        })
    }

    /// Records that the verdicts of a study were looked at.
    pub fn add_look(&mut self, study: StudyId, look: &Look) -> Result<(), Error> {
        self.transaction("a look", |sql| {
            let values = params![study.0, look.at_ms, look.block, look.decided, look.open];
            sql.execute("INSERT INTO look (study_id, at_ms, block, decided, open) VALUES (?,?,?,?,?)", values)
                .map(drop)
        })
    }

    /// Gives a study more blocks: its plan, of which the one before is the beginning, with the comparisons as they are
    /// judged from now on. Nothing that was measured changes.
    pub fn grow_study(&mut self, study: StudyId, grown: &Study) -> Result<(), Error> {
        self.transaction("a study's growth", |sql| {
            sql.execute(
                "UPDATE study SET plan=?, blocks=?, runs=?, comparisons=? WHERE id=? AND blocks<=?",
                params![
                    to_json(&grown.plan)?,
                    grown.blocks,
                    grown.runs,
                    to_json(&grown.comparisons)?,
                    study.0,
                    grown.blocks
                ],
            )
            .map(drop)
        })
    }

    /// Records the published figures that a study names.
    pub fn add_references(&mut self, study: StudyId, references: &[Reference]) -> Result<(), Error> {
        self.transaction("the published figures", |sql| {
            for reference in references {
                let values = params![study.0, to_json(reference)?];
                sql.execute("INSERT INTO reference (study_id, reference) VALUES (?,?)", values)?;
            }
            Ok(())
        })
    }

    /// Records that a run begins. Its attempt is one more than the last of the same cell, levels, block and
    /// purpose: an earlier one stays as it is.
    pub fn begin_run(&mut self, study: StudyId, start: &RunStart) -> Result<RunId, Error> {
        self.transaction("the start of a run", |sql| insert_run(sql, study, start))
    }

    /// Records seconds of a run that goes on, of its step `ordinal` (from 0), in one transaction: they need not be kept
    /// in memory until it ends, and outlive a process that is killed.
    pub fn add_intervals(
        &mut self,
        run: RunId,
        (ordinal, sessions): (usize, u32),
        intervals: &[Interval],
    ) -> Result<(), Error> {
        self.check_running(run)?;
        self.transaction("seconds of a run", |sql| {
            let step = begun_step(sql, run, ordinal, sessions)?;
            intervals.iter().try_for_each(|interval| insert_interval(sql, step, interval))
        })
    }

    /// Records the next part of telemetry series of a run that goes on. Parts of one series are read as one.
    pub fn add_series(&mut self, run: RunId, series: &[Series]) -> Result<(), Error> {
        self.check_running(run)?;
        self.transaction("series of a run", |sql| insert_series(sql, run, series))
    }

    /// Records everything else that a run gave, in one transaction. A run that is recorded already is an error and
    /// stays as it is.
    pub fn finish_run(&mut self, run: RunId, end: &RunEnd) -> Result<(), Error> {
        self.check_running(run)?;
        self.transaction("a run", |sql| insert_end(sql, run, end))
    }

    /// [`Store::finish_run`] for runs that belong together: all of them are recorded, or none.
    ///
    /// # Errors
    /// As there.
    pub fn finish_runs(&mut self, runs: &[(RunId, &RunEnd)]) -> Result<(), Error> {
        for (run, _) in runs {
            self.check_running(*run)?;
        }
        self.transaction("runs", |sql| runs.iter().try_for_each(|(run, end)| insert_end(sql, *run, end)))
    }

    fn check_running(&self, run: RunId) -> Result<(), Error> {
        let status: Option<String> = self
            .connection
            .query_row("SELECT status FROM run WHERE id=?", [run.0], |row| row.get(0))
            .optional()
            .map_err(|source| self.sqlite("reading a run", source))?;
        match status {
            None => Err(Error::Absent { path: self.path.clone(), what: "run", id: run.0 }),
            Some(status) if status != Status::Running.as_str() => Err(Error::Recorded { run: run.0, status }),
            Some(_) => Ok(()),
        }
    }

    /// [`Store::begin_run`] and [`Store::finish_run`] in one transaction, for a run that ended before it could
    /// begin (its server could not be had).
    pub fn record_run(&mut self, study: StudyId, start: &RunStart, end: &RunEnd) -> Result<RunId, Error> {
        self.transaction("a run", |sql| {
            let run = insert_run(sql, study, start)?;
            insert_end(sql, run, end)?;
            Ok(run)
        })
    }

    /// Marks the runs of a study that are still `running` as interrupted: for a plimsoll that holds the lock of
    /// the results directory and therefore knows that nobody runs them. Returns how many there were.
    pub fn interrupt_running(&mut self, study: StudyId) -> Result<usize, Error> {
        self.transaction("interrupted runs", |sql| {
            sql.execute(
                "UPDATE run SET status='interrupted', error='plimsoll ended before this run did'
                 WHERE status='running' AND cell_id IN (SELECT id FROM cell WHERE study_id=?)",
                [study.0],
            )
        })
    }

    pub(crate) fn transaction<T>(
        &mut self,
        what: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> Sql<T>,
    ) -> Result<T, Error> {
        let fail = |source| crate::open::sqlite(&self.path, what, source);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(fail)?;
        // Read within the transaction, so that it holds until the commit.
        let schema: i64 = transaction.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(fail)?;
        let known = MIGRATIONS.len() as i64;
        if schema != known {
            let how = format!("its schema is now {schema}, and was {known}");
            return Err(Error::Changed { path: self.path.clone(), how });
        }
        let value = work(&transaction).map_err(fail)?;
        transaction.commit().map_err(fail)?;
        Ok(value)
    }
}

pub(crate) fn purpose_text(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Measure => "measure",
        Purpose::Locks => "locks",
    }
}

type Columns<'a> = [(&'a str, &'a dyn ToSql)];

/// Adds a row, and tells its number.
fn insert(sql: &Connection, table: &str, columns: &Columns<'_>) -> Sql<i64> {
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let marks = vec!["?"; names.len()].join(",");
    let values = params_from_iter(columns.iter().map(|(_, value)| value));
    sql.prepare_cached(&format!("INSERT INTO {table} ({}) VALUES ({marks})", names.join(",")))?
        .execute(values)?;
    Ok(sql.last_insert_rowid())
}

/// The number of the row with these values, which is added if there is none.
fn insert_once(sql: &Connection, table: &str, columns: &Columns<'_>) -> Sql<i64> {
    let are: Vec<String> = columns.iter().map(|(name, _)| format!("{name}=?")).collect();
    let values = params_from_iter(columns.iter().map(|(_, value)| value));
    let find = format!("SELECT id FROM {table} WHERE {}", are.join(" AND "));
    match sql.query_row(&find, values, |row| row.get(0)).optional()? {
        Some(id) => Ok(id),
        None => insert(sql, table, columns),
    }
}

/// The row of a machine, made if these facts have none.
pub(crate) fn host_row(sql: &Connection, host: &Host) -> Sql<HostId> {
    let columns: &Columns<'_> = &[
        ("name", &host.name),
        ("fingerprint", &host.fingerprint),
        ("boot_id", &host.boot_id),
        ("kernel", &host.kernel),
        ("os", &host.os),
        ("arch", &host.arch),
        ("cpu_model", &host.cpu_model),
        ("cpus", &host.cpus),
        ("memory_bytes", &(host.memory_bytes as i64)),
        ("facts", &to_json(&host.facts)?),
    ];
    insert_once(sql, "host", columns).map(HostId)
}

/// The row of a build, made if these facts have none.
pub(crate) fn build_row(sql: &Connection, build: &Build) -> Sql<BuildId> {
    let columns: &Columns<'_> = &[
        ("flavor", &build.flavor),
        ("version", &build.version),
        ("label", &build.label),
        ("identity", &build.identity),
        ("origin", &build.origin),
        ("facts", &to_json(&build.facts)?),
    ];
    insert_once(sql, "build", columns).map(BuildId)
}

pub(crate) fn insert_run(sql: &Connection, study: StudyId, start: &RunStart) -> Sql<RunId> {
    let key = to_json(&start.key)?;
    sql.execute("INSERT OR IGNORE INTO cell (study_id, key) VALUES (?,?)", params![study.0, key])?;
    let cell: i64 =
        sql.query_row("SELECT id FROM cell WHERE study_id=? AND key=?", params![study.0, key], |row| {
            row.get(0)
        })?;
    let levels = to_json(&start.levels)?;
    let purpose = purpose_text(start.purpose);
    let attempt: i64 = sql.query_row(
        "SELECT coalesce(max(attempt), 0) + 1 FROM run WHERE cell_id=? AND levels=? AND block=? AND purpose=?",
        params![cell, levels, start.block, purpose],
        |row| row.get(0),
    )?;
    let columns: &Columns<'_> = &[
        ("cell_id", &cell),
        ("host_id", &start.host.0),
        ("build_id", &start.build.map(|build| build.0)),
        ("plan_index", &start.index),
        ("levels", &levels),
        ("is_climb", &start.is_climb),
        ("block", &start.block),
        ("repeat", &start.repeat),
        ("position", &start.position),
        ("purpose", &purpose),
        ("attempt", &attempt),
        ("seed", &(start.seed as i64)),
        ("started_at_ms", &start.started_at_ms),
        ("status", &Status::Running.as_str()),
    ];
    insert(sql, "run", columns).map(RunId)
}

fn insert_end(sql: &Connection, run: RunId, end: &RunEnd) -> Sql<()> {
    sql.execute(
        "UPDATE run SET status=?, error=?, log_tail=?, log_file=?, ended_at_ms=?, server=?, workload=?, phases=?,
         warnings=?, gates=?, checks=?, facts=?, duel=?, interventions=?, line_id=? WHERE id=? AND status='running'",
        params![
            end.status.as_str(),
            end.error,
            end.log_tail,
            end.log_file,
            end.ended_at_ms,
            to_json(&end.server)?,
            to_json(&end.workload)?,
            to_json(&end.phases)?,
            to_json(&end.warnings)?,
            to_json(&end.gates)?,
            to_json(&end.checks)?,
            to_json(&end.facts)?,
            end.duel.as_ref().map(to_json).transpose()?,
            (!end.interventions.is_empty()).then(|| to_json(&end.interventions)).transpose()?,
            end.line.map(|line| line.0),
            run.0
        ],
    )?;
    for (ordinal, step) in end.steps.iter().enumerate() {
        insert_step(sql, run, ordinal, step)?;
    }
    insert_telemetry(sql, run, end)
}

fn outcome_columns(outcomes: &Outcomes) -> [(&'static str, i64); 9] {
    [
        ("committed", outcomes.committed),
        ("rolled_back", outcomes.rolled_back),
        ("deadlock", outcomes.deadlock),
        ("serialization", outcomes.serialization),
        ("lock_timeout", outcomes.lock_timeout),
        ("constraint_", outcomes.constraint),
        ("connection", outcomes.connection),
        ("other_failed", outcomes.other),
        ("skipped", outcomes.skipped),
    ]
    .map(|(name, count)| (name, count as i64))
}

fn of_outcomes<'a>(columns: &'a [(&'static str, i64)]) -> impl Iterator<Item = (&'a str, &'a dyn ToSql)> {
    columns.iter().map(|(name, count)| (*name, count as &dyn ToSql))
}

/// The row of a step, made if it is not there: its figures follow when the run ends ([`insert_step`]), and until then its
/// `client` is empty.
fn begun_step(sql: &Connection, run: RunId, ordinal: usize, sessions: u32) -> Sql<i64> {
    let known = sql
        .prepare_cached("SELECT id FROM step WHERE run_id=? AND ordinal=?")?
        .query_row(params![run.0, ordinal as i64], |row| row.get(0))
        .optional()?;
    if let Some(id) = known {
        return Ok(id);
    }
    sql.execute(
        "INSERT INTO step (run_id, ordinal, sessions, offset_s, warmup_s, duration_s, connect_s, committed, rolled_back,
         deadlock, serialization, lock_timeout, constraint_, connection, other_failed, skipped, outcomes_whole, reads,
         writes, other, retries, in_flight_at_end, backlog_at_end, drained, response, client)
         VALUES (?,?,?,0,0,0,0,0,0,0,0,0,0,0,0,0,'',0,0,0,0,0,0,0,x'','')",
        params![run.0, ordinal as i64, sessions],
    )?;
    Ok(sql.last_insert_rowid())
}

fn insert_step(sql: &Connection, run: RunId, ordinal: usize, step: &Step) -> Sql<()> {
    let packed = |histogram: &Option<_>| histogram.as_ref().map(histogram_to_bytes).transpose().map_err(wrap);
    let id = begun_step(sql, run, ordinal, step.sessions)?;
    let outcomes = outcome_columns(&step.outcomes);
    let columns: &Columns<'_> = &[
        ("rate_tps", &step.rate_tps),
        ("arrivals", &step.arrivals),
        ("offset_s", &step.offset_s),
        ("warmup_s", &step.warmup_s),
        ("duration_s", &step.duration_s),
        ("connect_s", &step.connect_s),
        ("outcomes_whole", &to_json(&step.outcomes_whole)?),
        ("reads", &(step.reads as i64)),
        ("writes", &(step.writes as i64)),
        ("other", &(step.other as i64)),
        ("retries", &(step.retries as i64)),
        ("in_flight_at_end", &(step.in_flight_at_end as i64)),
        ("backlog_at_end", &(step.backlog_at_end as i64)),
        ("drained", &(step.drained as i64)),
        ("response", &histogram_to_bytes(&step.response).map_err(wrap)?),
        ("service", &packed(&step.service)?),
        ("client", &to_json(&step.client)?),
        ("ended_by", &step.ended_by),
        ("arrivals_offered", &step.arrivals_offered.map(|arrivals| arrivals as i64)),
        ("failed", &packed(&step.failed)?),
        ("unended", &step.unended.map(|unended| unended.transactions as i64)),
        ("unended_from_ms", &step.unended.map(|unended| unended.from_ms)),
        ("stalled_s", &step.stalls.map(|stalls| stalls.seconds)),
        ("freeze_s", &step.stalls.map(|stalls| stalls.longest_s)),
    ];
    let columns = columns.iter().copied().chain(of_outcomes(&outcomes));
    let (names, mut values): (Vec<String>, Vec<&dyn ToSql>) =
        columns.map(|(name, value)| (format!("{name}=?"), value)).unzip();
    values.push(&id);
    sql.execute(&format!("UPDATE step SET {} WHERE id=?", names.join(",")), &*values)?;
    for (ordinal, statement) in step.by_statement.iter().enumerate() {
        let columns: &Columns<'_> = &[
            ("step_id", &id),
            ("ordinal", &(ordinal as i64)),
            ("name", &statement.name),
            ("count", &(statement.count as i64)),
            ("latency", &histogram_to_bytes(&statement.latency).map_err(wrap)?),
        ];
        insert(sql, "statement", columns)?;
    }
    for (code, tally) in &step.errors {
        let count = tally.count as i64;
        insert(sql, "error", &[("step_id", &id), ("code", code), ("count", &count), ("text", &tally.text)])?;
    }
    step.intervals.iter().try_for_each(|interval| insert_interval(sql, id, interval))
}

fn insert_interval(sql: &Connection, step: i64, interval: &Interval) -> Sql<()> {
    let outcomes = outcome_columns(&interval.outcomes);
    let columns: &Columns<'_> = &[
        ("step_id", &step),
        ("second", &interval.second),
        ("duration_s", &interval.duration_s),
        ("reads", &(interval.reads as i64)),
        ("writes", &(interval.writes as i64)),
        ("other", &(interval.other as i64)),
        ("retries", &(interval.retries as i64)),
        ("backlog", &(interval.backlog as i64)),
        ("response", &interval.response.bytes()),
        ("service", &interval.service.as_ref().map(PackedHistogram::bytes)),
    ];
    insert(sql, "interval", &columns.iter().copied().chain(of_outcomes(&outcomes)).collect::<Vec<_>>())?;
    for (ordinal, latency) in &interval.by_statement {
        let columns: &Columns<'_> = &[
            ("step_id", &step),
            ("second", &interval.second),
            ("ordinal", ordinal),
            ("latency", &latency.bytes()),
        ];
        insert(sql, "interval_statement", columns)?;
    }
    Ok(())
}

fn insert_series(sql: &Connection, run: RunId, all: &[Series]) -> Sql<()> {
    for series in all {
        let columns: &Columns<'_> = &[
            ("run_id", &run.0),
            ("source", &series.source),
            ("name", &series.name),
            ("instance", &series.instance),
            ("unit", &series.unit),
            ("points", &points_to_bytes(&series.points).map_err(wrap)?),
        ];
        insert(sql, "series", columns)?;
    }
    Ok(())
}

fn insert_telemetry(sql: &Connection, run: RunId, end: &RunEnd) -> Sql<()> {
    insert_series(sql, run, &end.series)?;
    for lock in &end.hot_locks {
        let source = to_json(&lock.source)?;
        let columns: &Columns<'_> = &[
            ("run_id", &run.0),
            ("sessions", &lock.sessions),
            ("source", &source.trim_matches('"')),
            ("lock", &lock.lock),
            ("caller", &lock.caller),
            ("count", &lock.count.map(|count| count as i64)),
            ("wait_total_s", &lock.wait_total_s),
            ("wait_low_s", &lock.wait_interval_s.map(|interval| interval.0)),
            ("wait_high_s", &lock.wait_interval_s.map(|interval| interval.1)),
            ("observed_s", &lock.observed_s),
        ];
        insert(sql, "hot_lock", columns)?;
    }
    Ok(())
}
