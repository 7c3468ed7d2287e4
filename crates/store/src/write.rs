//! Writing: each call is one transaction, on the disk when it returns.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
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
    /// Records a planned study.
    pub fn add_study(&mut self, study: &Study) -> Result<StudyId, Error> {
        self.transaction("the study", |sql| {
            sql.execute(
                "INSERT INTO study (name, title, question, file_path, file_text, file_sha256,
                 fingerprint, state, plan, axes, comparisons, blocks, runs, is_quick, seed, plimsoll_version, command, created_at_ms)
                 VALUES (?,?,?,?,?,?,?,'planned',?,?,?,?,?,?,?,?,?,?)",
                params![
                    study.name,
                    study.title,
                    study.question,
                    study.file_path,
                    study.file_text,
                    study.file_sha256,
                    study.fingerprint,
                    to_json(&study.plan)?,
                    to_json(&study.axes)?,
                    to_json(&study.comparisons)?,
                    study.blocks,
                    study.runs,
                    study.is_quick,
                    study.seed as i64,
                    study.plimsoll_version,
                    study.command,
                    study.created_at_ms
                ],
            )?;
            Ok(StudyId(sql.last_insert_rowid()))
        })
    }

    /// Records how the study as a whole stands.
    pub fn set_study_state(&mut self, study: StudyId, state: &str) -> Result<(), Error> {
        self.transaction("the study's state", |sql| {
            sql.execute("UPDATE study SET state=? WHERE id=?", params![state, study.0])?;
            Ok(())
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
            sql.execute("INSERT INTO note (study_id, at_ms, kind, text) VALUES (?,?,?,?)", values)?;
            Ok(())
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
            sql.execute("INSERT INTO probe (study_id, host_id, probe) VALUES (?,?,?)", values)?;
            Ok(())
        })
    }

    /// Records a canary.
    pub fn add_canary(&mut self, study: StudyId, host: HostId, canary: &Canary) -> Result<(), Error> {
        self.transaction("a canary", |sql| {
            let values = params![study.0, host.0, to_json(canary)?];
            sql.execute("INSERT INTO canary (study_id, host_id, canary) VALUES (?,?,?)", values)?;
            Ok(())
        })
    }

    /// Records that the verdicts of a study were looked at.
    pub fn add_look(&mut self, study: StudyId, look: &Look) -> Result<(), Error> {
        self.transaction("a look", |sql| {
            let values = params![study.0, look.at_ms, look.block, look.decided, look.open];
            sql.execute(
                "INSERT INTO look (study_id, at_ms, block, decided, open) VALUES (?,?,?,?,?)",
                values,
            )?;
            Ok(())
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
            )?;
            Ok(())
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

/// The row of a machine, made if these facts have none.
pub(crate) fn host_row(sql: &Connection, host: &Host) -> Sql<HostId> {
    let facts = to_json(&host.facts)?;
    let values = params![
        host.name,
        host.fingerprint,
        host.boot_id,
        host.kernel,
        host.os,
        host.arch,
        host.cpu_model,
        host.cpus,
        host.memory_bytes as i64,
        facts
    ];
    let known = sql
        .query_row(
            "SELECT id FROM host WHERE name=? AND fingerprint=? AND boot_id=? AND kernel=? AND os=?
             AND arch=? AND cpu_model=? AND cpus=? AND memory_bytes=? AND facts=?",
            values,
            |row| row.get(0),
        )
        .optional()?;
    if let Some(id) = known {
        return Ok(HostId(id));
    }
    sql.execute(
        "INSERT INTO host (name, fingerprint, boot_id, kernel, os, arch, cpu_model, cpus, memory_bytes,
         facts) VALUES (?,?,?,?,?,?,?,?,?,?)",
        values,
    )?;
    Ok(HostId(sql.last_insert_rowid()))
}

/// The row of a build, made if these facts have none.
pub(crate) fn build_row(sql: &Connection, build: &Build) -> Sql<BuildId> {
    let facts = to_json(&build.facts)?;
    let values = params![build.flavor, build.version, build.label, build.identity, build.origin, facts];
    let known = sql
        .query_row(
            "SELECT id FROM build WHERE flavor=? AND version=? AND label=? AND identity=? AND origin=?
             AND facts=?",
            values,
            |row| row.get(0),
        )
        .optional()?;
    if let Some(id) = known {
        return Ok(BuildId(id));
    }
    sql.execute(
        "INSERT INTO build (flavor, version, label, identity, origin, facts) VALUES (?,?,?,?,?,?)",
        values,
    )?;
    Ok(BuildId(sql.last_insert_rowid()))
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
    sql.execute(
        "INSERT INTO run (cell_id, host_id, build_id, plan_index, levels, is_climb, block, repeat, position, purpose,
         attempt, seed, started_at_ms, status) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
        params![
            cell,
            start.host.0,
            start.build.map(|build| build.0),
            start.index,
            levels,
            start.is_climb,
            start.block,
            start.repeat,
            start.position,
            purpose,
            attempt,
            start.seed as i64,
            start.started_at_ms,
            Status::Running.as_str()
        ],
    )?;
    Ok(RunId(sql.last_insert_rowid()))
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

fn outcome_columns(outcomes: &Outcomes) -> [i64; 9] {
    [
        outcomes.committed,
        outcomes.rolled_back,
        outcomes.deadlock,
        outcomes.serialization,
        outcomes.lock_timeout,
        outcomes.constraint,
        outcomes.connection,
        outcomes.other,
        outcomes.skipped,
    ]
    .map(|count| count as i64)
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
    let [
        committed,
        rolled_back,
        deadlock,
        serialization,
        lock_timeout,
        constraint,
        connection,
        other,
        skipped,
    ] = outcome_columns(&step.outcomes);
    let service = step.service.as_ref().map(histogram_to_bytes).transpose().map_err(wrap)?;
    let id = begun_step(sql, run, ordinal, step.sessions)?;
    sql.execute(
        "UPDATE step SET rate_tps=?, arrivals=?, offset_s=?, warmup_s=?, duration_s=?, connect_s=?, committed=?,
         rolled_back=?, deadlock=?, serialization=?, lock_timeout=?, constraint_=?, connection=?, other_failed=?,
         skipped=?, outcomes_whole=?, reads=?, writes=?, other=?, retries=?, in_flight_at_end=?, backlog_at_end=?,
         drained=?, response=?, service=?, client=?, ended_by=?, arrivals_offered=?, failed=?, unended=?,
         unended_from_ms=?, stalled_s=?, freeze_s=? WHERE id=?",
        params![
            step.rate_tps,
            step.arrivals,
            step.offset_s,
            step.warmup_s,
            step.duration_s,
            step.connect_s,
            committed,
            rolled_back,
            deadlock,
            serialization,
            lock_timeout,
            constraint,
            connection,
            other,
            skipped,
            to_json(&step.outcomes_whole)?,
            step.reads as i64,
            step.writes as i64,
            step.other as i64,
            step.retries as i64,
            step.in_flight_at_end as i64,
            step.backlog_at_end as i64,
            step.drained as i64,
            histogram_to_bytes(&step.response).map_err(wrap)?,
            service,
            to_json(&step.client)?,
            step.ended_by,
            step.arrivals_offered.map(|arrivals| arrivals as i64),
            step.failed.as_ref().map(histogram_to_bytes).transpose().map_err(wrap)?,
            step.unended.map(|unended| unended.transactions as i64),
            step.unended.map(|unended| unended.from_ms),
            step.stalls.map(|stalls| stalls.seconds),
            step.stalls.map(|stalls| stalls.longest_s),
            id
        ],
    )?;
    for (ordinal, statement) in step.by_statement.iter().enumerate() {
        sql.execute(
            "INSERT INTO statement (step_id, ordinal, name, count, latency) VALUES (?,?,?,?,?)",
            params![
                id,
                ordinal as i64,
                statement.name,
                statement.count as i64,
                histogram_to_bytes(&statement.latency).map_err(wrap)?
            ],
        )?;
    }
    for (code, tally) in &step.errors {
        sql.execute(
            "INSERT INTO error (step_id, code, count, text) VALUES (?,?,?,?)",
            params![id, code, tally.count as i64, tally.text],
        )?;
    }
    step.intervals.iter().try_for_each(|interval| insert_interval(sql, id, interval))
}

fn insert_interval(sql: &Connection, step: i64, interval: &Interval) -> Sql<()> {
    let [
        committed,
        rolled_back,
        deadlock,
        serialization,
        lock_timeout,
        constraint,
        connection,
        other,
        skipped,
    ] = outcome_columns(&interval.outcomes);
    sql.prepare_cached(
        "INSERT INTO interval (step_id, second, duration_s, committed, rolled_back, deadlock, serialization,
         lock_timeout, constraint_, connection, other_failed, skipped, reads, writes, other, retries, backlog,
         response, service) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    )?
    .execute(params![
        step,
        interval.second,
        interval.duration_s,
        committed,
        rolled_back,
        deadlock,
        serialization,
        lock_timeout,
        constraint,
        connection,
        other,
        skipped,
        interval.reads as i64,
        interval.writes as i64,
        interval.other as i64,
        interval.retries as i64,
        interval.backlog as i64,
        interval.response.bytes(),
        interval.service.as_ref().map(PackedHistogram::bytes)
    ])?;
    for (ordinal, latency) in &interval.by_statement {
        sql.prepare_cached(
            "INSERT INTO interval_statement (step_id, second, ordinal, latency) VALUES (?,?,?,?)",
        )?
        .execute(params![step, interval.second, ordinal, latency.bytes()])?;
    }
    Ok(())
}

fn insert_series(sql: &Connection, run: RunId, all: &[Series]) -> Sql<()> {
    for series in all {
        sql.prepare_cached(
            "INSERT INTO series (run_id, source, name, instance, unit, points) VALUES (?,?,?,?,?,?)",
        )?
        .execute(params![
            run.0,
            series.source,
            series.name,
            series.instance,
            series.unit,
            points_to_bytes(&series.points).map_err(wrap)?
        ])?;
    }
    Ok(())
}

fn insert_telemetry(sql: &Connection, run: RunId, end: &RunEnd) -> Sql<()> {
    insert_series(sql, run, &end.series)?;
    for lock in &end.hot_locks {
        let source = to_json(&lock.source)?;
        sql.execute(
            "INSERT INTO hot_lock (run_id, sessions, source, lock, caller, count, wait_total_s, wait_low_s,
             wait_high_s, observed_s) VALUES (?,?,?,?,?,?,?,?,?,?)",
            params![
                run.0,
                lock.sessions,
                source.trim_matches('"'),
                lock.lock,
                lock.caller,
                lock.count.map(|count| count as i64),
                lock.wait_total_s,
                lock.wait_interval_s.map(|interval| interval.0),
                lock.wait_interval_s.map(|interval| interval.1),
                lock.observed_s
            ],
        )?;
    }
    Ok(())
}
