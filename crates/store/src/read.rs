//! Reading back: for resuming, and for reports.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row};
use serde::de::DeserializeOwned;

use crate::codec::{PackedHistogram, histogram_from_bytes, points_from_bytes};
use crate::error::Error;
use crate::gate::Gate;
use crate::open::Store;
use crate::run::{
    ErrorTally, HotLock, Interval, Outcomes, Purpose, Run, RunEnd, RunHead, RunStart, Series, Stalls,
    Statement, Status, Step, Unended,
};
use crate::study::{
    Build, BuildId, Canary, Host, HostId, Look, Probe, Reference, RunId, Study, StudyId, StudyRecord,
};

pub(crate) type Sql<T> = rusqlite::Result<T>;

pub(crate) fn damaged<E: Into<Box<dyn std::error::Error + Send + Sync>>>(error: E) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, error.into())
}

pub(crate) fn json<T: DeserializeOwned>(row: &Row<'_>, column: &str) -> Sql<T> {
    let text: String = row.get(column)?;
    serde_json::from_str(&text).map_err(|error| damaged(format!("{column}: {error}")))
}

/// More than any run counts (2 years at 10 million a second), and small enough for thousands of them to be added up.
const COUNT_MAX: u64 = 1_000_000_000_000_000;

fn count(row: &Row<'_>, column: &str) -> Sql<u64> {
    let count: i64 = row.get(column)?;
    let possible = u64::try_from(count).ok().filter(|count| *count <= COUNT_MAX);
    possible.ok_or_else(|| damaged(format!("{column}: {count} is no count")))
}

/// A seed: all bits of it, as SQLite's signed integer.
fn seed(row: &Row<'_>) -> Sql<u64> {
    row.get::<_, i64>("seed").map(|seed| seed as u64)
}

fn histogram(row: &Row<'_>, column: &str) -> Sql<hdrhistogram::Histogram<u64>> {
    let bytes: Vec<u8> = row.get(column)?;
    histogram_from_bytes(&bytes).map_err(|error| damaged(format!("{column}: {error}")))
}

/// A histogram as it is stored, looked at and left packed.
fn packed(bytes: Vec<u8>) -> Sql<PackedHistogram> {
    histogram_from_bytes(&bytes).map_err(damaged)?;
    Ok(PackedHistogram(bytes))
}

fn maybe_histogram(row: &Row<'_>, column: &str) -> Sql<Option<hdrhistogram::Histogram<u64>>> {
    let bytes: Option<Vec<u8>> = row.get(column)?;
    bytes.map(|bytes| histogram_from_bytes(&bytes)).transpose().map_err(damaged)
}

const HEAD: &str = "SELECT run.*, cell.key, cell.study_id FROM run JOIN cell ON cell.id = run.cell_id";

impl Store {
    /// All studies, oldest first.
    pub fn studies(&self) -> Result<Vec<StudyRecord>, Error> {
        self.read("the studies", || {
            let mut studies = self.rows("SELECT * FROM study ORDER BY id", &[], |row| {
                Ok(StudyRecord {
                    id: StudyId(row.get("id")?),
                    study: study(row)?,
                    state: row.get("state")?,
                    ended_at_ms: row.get("ended_at_ms")?,
                    notes: vec![],
                    commands: vec![],
                })
            })?;
            for record in &mut studies {
                record.notes = self.lines(record.id, "note")?;
                record.commands = self.lines(record.id, "command")?;
            }
            Ok(studies)
        })
    }

    fn lines(&self, study: StudyId, kind: &str) -> Sql<Vec<(i64, String)>> {
        let sql = "SELECT at_ms, text FROM note WHERE study_id=? AND kind=? ORDER BY id";
        self.rows(sql, &[&study.0, &kind], |row| Ok((row.get(0)?, row.get(1)?)))
    }

    /// All runs of a study in the order in which they began, without what they gave.
    pub fn run_heads(&self, study: StudyId) -> Result<Vec<RunHead>, Error> {
        self.read("the runs", || {
            self.rows(&format!("{HEAD} WHERE cell.study_id=? ORDER BY run.id"), &[&study.0], head)
        })
    }

    /// One run with everything it gave.
    pub fn run(&self, id: RunId) -> Result<Run, Error> {
        let run = self.read("a run", || {
            let found = self
                .connection
                .prepare_cached(&format!("{HEAD} WHERE run.id=?"))?
                .query_row([id.0], |row| Ok((head(row)?, end(row)?)))
                .optional()?;
            let Some((head, mut end)) = found else { return Ok(None) };
            if let Some(end) = &mut end {
                end.steps = self.steps(id)?;
                end.series = self.series(id)?;
                end.hot_locks = self.hot_locks(id)?;
            }
            Ok(Some(Run { head, end }))
        })?;
        run.ok_or_else(|| Error::Absent { path: self.path.clone(), what: "run", id: id.0 })
    }

    /// File of a run's whole server log, within the results directory; `None` while it runs, empty where none was kept.
    pub fn log_file(&self, run: RunId) -> Result<Option<String>, Error> {
        self.read("a run's log", || {
            let sql = "SELECT log_file FROM run WHERE id=?";
            Ok(self.connection.query_row(sql, [run.0], |row| row.get(0)).optional()?.flatten())
        })
    }

    /// The seconds of a run's step (`ordinal` from 0) in full. [`Store::run`] leaves them in the file.
    pub fn intervals(&self, run: RunId, ordinal: usize) -> Result<Vec<Interval>, Error> {
        self.read("seconds of a run", || {
            let place: [&dyn rusqlite::ToSql; 2] = [&run.0, &(ordinal as i64)];
            let of_step = "step_id=(SELECT id FROM step WHERE run_id=? AND ordinal=?)";
            let sql = format!("SELECT * FROM interval WHERE {of_step} ORDER BY second");
            let mut intervals = self.rows(&sql, &place, interval)?;
            let mut by_second: BTreeMap<i64, BTreeMap<u32, PackedHistogram>> = BTreeMap::new();
            let sql = format!("SELECT * FROM interval_statement WHERE {of_step}");
            for (second, ordinal, latency) in self.rows(&sql, &place, |row| {
                Ok((row.get("second")?, row.get("ordinal")?, PackedHistogram(row.get("latency")?)))
            })? {
                by_second.entry(second).or_default().insert(ordinal, latency);
            }
            for interval in &mut intervals {
                interval.by_statement = by_second.remove(&interval.second).unwrap_or_default();
            }
            Ok(intervals)
        })
    }

    /// All machines of the file: what they are called, and their fingerprints.
    pub fn hosts(&self) -> Result<Vec<(String, String)>, Error> {
        self.read("the machines", || {
            self.rows("SELECT name, fingerprint FROM host ORDER BY id", &[], |row| {
                Ok((row.get("name")?, row.get("fingerprint")?))
            })
        })
    }

    pub fn host(&self, id: HostId) -> Result<Host, Error> {
        self.one("host", "SELECT * FROM host WHERE id=?", id.0, |row| {
            Ok(Host {
                name: row.get("name")?,
                fingerprint: row.get("fingerprint")?,
                boot_id: row.get("boot_id")?,
                kernel: row.get("kernel")?,
                os: row.get("os")?,
                arch: row.get("arch")?,
                cpu_model: row.get("cpu_model")?,
                cpus: row.get("cpus")?,
                memory_bytes: count(row, "memory_bytes")?,
                facts: json(row, "facts")?,
            })
        })
    }

    pub fn build(&self, id: BuildId) -> Result<Build, Error> {
        self.one("build", "SELECT * FROM build WHERE id=?", id.0, |row| {
            Ok(Build {
                flavor: row.get("flavor")?,
                version: row.get("version")?,
                label: row.get("label")?,
                identity: row.get("identity")?,
                origin: row.get("origin")?,
                facts: json(row, "facts")?,
            })
        })
    }

    /// Probes of a study, oldest first.
    pub fn probes(&self, study: StudyId) -> Result<Vec<(HostId, Probe)>, Error> {
        self.read("the probes", || {
            let sql = "SELECT host_id, probe FROM probe WHERE study_id=? ORDER BY id";
            self.rows(sql, &[&study.0], |row| Ok((HostId(row.get("host_id")?), json(row, "probe")?)))
        })
    }

    /// Canaries of a study, oldest first.
    pub fn canaries(&self, study: StudyId) -> Result<Vec<(HostId, Canary)>, Error> {
        self.read("the canaries", || {
            let sql = "SELECT host_id, canary FROM canary WHERE study_id=? ORDER BY id";
            self.rows(sql, &[&study.0], |row| Ok((HostId(row.get("host_id")?), json(row, "canary")?)))
        })
    }

    /// The looks at a study's verdicts, in order.
    pub fn looks(&self, study: StudyId) -> Result<Vec<Look>, Error> {
        self.read("the looks", || {
            let sql = "SELECT at_ms, block, decided, open FROM look WHERE study_id=? ORDER BY id";
            self.rows(sql, &[&study.0], |row| {
                Ok(Look { at_ms: row.get(0)?, block: row.get(1)?, decided: row.get(2)?, open: row.get(3)? })
            })
        })
    }

    /// Published figures that a study names.
    pub fn references(&self, study: StudyId) -> Result<Vec<Reference>, Error> {
        self.read("the published figures", || {
            let sql = "SELECT reference FROM reference WHERE study_id=? ORDER BY id";
            self.rows(sql, &[&study.0], |row| json(row, "reference"))
        })
    }

    fn steps(&self, run: RunId) -> Sql<Vec<Step>> {
        let mut steps =
            // One whose figures never came belongs to a run that broke off in it.
            self.rows("SELECT * FROM step WHERE run_id=? AND client<>'' ORDER BY ordinal", &[&run.0], |row| {
                Ok((row.get::<_, i64>("id")?, step(row)?))
            })?;
        for (id, step) in &mut steps {
            step.by_statement =
                self.rows("SELECT * FROM statement WHERE step_id=? ORDER BY ordinal", &[id], |row| {
                    Ok(Statement {
                        name: row.get("name")?,
                        count: count(row, "count")?,
                        latency: histogram(row, "latency")?,
                    })
                })?;
            step.errors = self
                .rows("SELECT * FROM error WHERE step_id=?", &[id], |row| {
                    Ok((row.get("code")?, ErrorTally { count: count(row, "count")?, text: row.get("text")? }))
                })?
                .into_iter()
                .collect();
            step.seconds =
                self.rows("SELECT * FROM interval WHERE step_id=? ORDER BY second", &[id], |row| {
                    let interval = interval(row)?;
                    Ok(interval.figures(&interval.response.unpacked().map_err(damaged)?))
                })?;
        }
        Ok(steps.into_iter().map(|(_, step)| step).collect())
    }

    fn series(&self, run: RunId) -> Sql<Vec<Series>> {
        let sql = "SELECT * FROM series WHERE run_id=? ORDER BY source, name, instance, id";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query([run.0])?;
        // One after the other, because all points of a long run at once would take gigabytes.
        let mut whole: Vec<(i64, Series)> = Vec::new();
        while let Some(row) = rows.next()? {
            let bytes: Vec<u8> = row.get("points")?;
            let part = Series {
                source: row.get("source")?,
                name: row.get("name")?,
                instance: row.get("instance")?,
                unit: row.get("unit")?,
                points: points_from_bytes(&bytes).map_err(damaged)?,
            };
            let is_it = |known: &Series| {
                (&known.source, &known.name, &known.instance) == (&part.source, &part.name, &part.instance)
            };
            match whole.last_mut() {
                Some((_, known)) if is_it(known) => known.points.extend(part.points),
                _ => {
                    whole.last_mut().into_iter().for_each(|(_, known)| thin(&mut known.points));
                    whole.push((row.get("id")?, part));
                }
            }
        }
        whole.last_mut().into_iter().for_each(|(_, known)| thin(&mut known.points));
        // In the order in which they first appeared.
        whole.sort_by_key(|(first, _)| *first);
        Ok(whole.into_iter().map(|(_, series)| series).collect())
    }

    fn hot_locks(&self, run: RunId) -> Sql<Vec<HotLock>> {
        self.rows("SELECT * FROM hot_lock WHERE run_id=? ORDER BY id", &[&run.0], |row| {
            let source: String = row.get("source")?;
            let low: Option<f64> = row.get("wait_low_s")?;
            let high: Option<f64> = row.get("wait_high_s")?;
            Ok(HotLock {
                sessions: row.get("sessions")?,
                source: serde_json::from_value(source.into()).map_err(damaged)?,
                lock: row.get("lock")?,
                caller: row.get("caller")?,
                count: row.get::<_, Option<i64>>("count")?.map(|count| count as u64),
                wait_total_s: row.get("wait_total_s")?,
                wait_interval_s: low.zip(high),
                observed_s: row.get("observed_s")?,
            })
        })
    }

    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        values: &[&dyn rusqlite::ToSql],
        map: impl FnMut(&Row<'_>) -> Sql<T>,
    ) -> Sql<Vec<T>> {
        self.connection.prepare_cached(sql)?.query_map(values, map)?.collect()
    }

    fn one<T>(
        &self,
        what: &'static str,
        sql: &str,
        id: i64,
        map: impl FnOnce(&Row<'_>) -> Sql<T>,
    ) -> Result<T, Error> {
        self.read(what, || self.connection.prepare_cached(sql)?.query_row([id], map).optional())?
            .ok_or_else(|| Error::Absent { path: self.path.clone(), what, id })
    }

    pub(crate) fn read<T>(&self, what: &'static str, work: impl FnOnce() -> Sql<T>) -> Result<T, Error> {
        work().map_err(|source| match source {
            rusqlite::Error::FromSqlConversionFailure(_, _, reason) => {
                Error::Damaged { path: self.path.clone(), what: what.to_owned(), reason: reason.to_string() }
            }
            source => self.sqlite(what, source),
        })
    }
}

/// Points of a series beyond which its mean over spans of equal counts is read instead: more than an hour of seconds is
/// read as it was sampled.
const POINTS_MAX: usize = 4096;

fn thin(points: &mut Vec<(f64, f64)>) {
    if points.len() <= POINTS_MAX {
        return;
    }
    let span = points.len().div_ceil(POINTS_MAX);
    let mean = |span: &[(f64, f64)]| {
        let sum: f64 = span.iter().map(|(_, value)| value).sum();
        (span.last().map_or(0.0, |(t, _)| *t), sum / span.len() as f64)
    };
    *points = points.chunks(span).map(mean).collect();
}

fn study(row: &Row<'_>) -> Sql<Study> {
    Ok(Study {
        name: row.get("name")?,
        title: row.get("title")?,
        question: row.get("question")?,
        file_path: row.get("file_path")?,
        file_text: row.get("file_text")?,
        file_sha256: row.get("file_sha256")?,
        fingerprint: row.get("fingerprint")?,
        plan: json(row, "plan")?,
        axes: json(row, "axes")?,
        comparisons: json(row, "comparisons")?,
        blocks: row.get("blocks")?,
        runs: row.get("runs")?,
        is_quick: row.get("is_quick")?,
        seed: seed(row)?,
        plimsoll_version: row.get("plimsoll_version")?,
        command: row.get("command")?,
        created_at_ms: row.get("created_at_ms")?,
    })
}

fn head(row: &Row<'_>) -> Sql<RunHead> {
    Ok(RunHead {
        id: RunId(row.get("id")?),
        study: StudyId(row.get("study_id")?),
        start: RunStart {
            index: row.get("plan_index")?,
            key: json(row, "key")?,
            levels: json(row, "levels")?,
            is_climb: row.get("is_climb")?,
            block: row.get("block")?,
            repeat: row.get("repeat")?,
            position: row.get("position")?,
            purpose: match row.get::<_, String>("purpose")?.as_str() {
                "measure" => Purpose::Measure,
                "locks" => Purpose::Locks,
                other => return Err(damaged(format!("purpose {other}"))),
            },
            seed: seed(row)?,
            host: HostId(row.get("host_id")?),
            build: row.get::<_, Option<i64>>("build_id")?.map(BuildId),
            started_at_ms: row.get("started_at_ms")?,
        },
        attempt: row.get("attempt")?,
        status: status(row)?,
        error: row.get("error")?,
        ended_at_ms: row.get("ended_at_ms")?,
    })
}

fn status(row: &Row<'_>) -> Sql<Status> {
    let text: String = row.get("status")?;
    serde_json::from_value(text.into()).map_err(damaged)
}

/// The part of a run's end that stands in its own row.
fn end(row: &Row<'_>) -> Sql<Option<RunEnd>> {
    let Some(ended_at_ms) = row.get::<_, Option<i64>>("ended_at_ms")? else { return Ok(None) };
    let status = status(row)?;
    let mut gates: Vec<Gate> = json(row, "gates")?;
    // Earlier versions did not write that a study lets a fault pass; but a run that is done has no other.
    for gate in gates.iter_mut().filter(|gate| status == Status::Done && gate.excludes()) {
        gate.is_allowed = true;
    }
    Ok(Some(RunEnd {
        status,
        error: row.get("error")?,
        log_tail: row.get("log_tail")?,
        log_file: row.get("log_file")?,
        ended_at_ms,
        server: json(row, "server")?,
        workload: json(row, "workload")?,
        phases: json(row, "phases")?,
        warnings: json(row, "warnings")?,
        gates,
        checks: json(row, "checks")?,
        steps: vec![],
        series: vec![],
        hot_locks: vec![],
        facts: json(row, "facts")?,
        duel: row.get::<_, Option<String>>("duel")?.map(|_| json(row, "duel")).transpose()?,
        interventions: match row.get::<_, Option<String>>("interventions")? {
            Some(_) => json(row, "interventions")?,
            None => Vec::new(),
        },
        line: row.get::<_, Option<i64>>("line_id")?.map(crate::line::LineId),
    }))
}

fn outcomes(row: &Row<'_>) -> Sql<Outcomes> {
    Ok(Outcomes {
        committed: count(row, "committed")?,
        rolled_back: count(row, "rolled_back")?,
        deadlock: count(row, "deadlock")?,
        serialization: count(row, "serialization")?,
        lock_timeout: count(row, "lock_timeout")?,
        constraint: count(row, "constraint_")?,
        connection: count(row, "connection")?,
        other: count(row, "other_failed")?,
        skipped: count(row, "skipped")?,
    })
}

fn step(row: &Row<'_>) -> Sql<Step> {
    Ok(Step {
        sessions: row.get("sessions")?,
        rate_tps: row.get("rate_tps")?,
        arrivals: row.get("arrivals")?,
        offset_s: row.get("offset_s")?,
        warmup_s: row.get("warmup_s")?,
        duration_s: row.get("duration_s")?,
        connect_s: row.get("connect_s")?,
        outcomes: outcomes(row)?,
        outcomes_whole: json(row, "outcomes_whole")?,
        reads: count(row, "reads")?,
        writes: count(row, "writes")?,
        other: count(row, "other")?,
        retries: count(row, "retries")?,
        in_flight_at_end: count(row, "in_flight_at_end")?,
        backlog_at_end: count(row, "backlog_at_end")?,
        drained: count(row, "drained")?,
        response: histogram(row, "response")?,
        service: maybe_histogram(row, "service")?,
        by_statement: vec![],
        errors: Default::default(),
        seconds: vec![],
        intervals: vec![],
        client: json(row, "client")?,
        ended_by: row.get("ended_by")?,
        arrivals_offered: row.get::<_, Option<i64>>("arrivals_offered")?.map(|arrivals| arrivals as u64),
        failed: maybe_histogram(row, "failed")?,
        unended: row
            .get::<_, Option<i64>>("unended")?
            .zip(row.get::<_, Option<f64>>("unended_from_ms")?)
            .map(|(transactions, from_ms)| Unended { transactions: transactions as u64, from_ms }),
        stalls: row
            .get::<_, Option<u32>>("stalled_s")?
            .zip(row.get::<_, Option<f64>>("freeze_s")?)
            .map(|(seconds, longest_s)| Stalls { seconds, longest_s }),
    })
}

fn interval(row: &Row<'_>) -> Sql<Interval> {
    Ok(Interval {
        second: row.get("second")?,
        duration_s: row.get("duration_s")?,
        outcomes: outcomes(row)?,
        reads: count(row, "reads")?,
        writes: count(row, "writes")?,
        other: count(row, "other")?,
        retries: count(row, "retries")?,
        backlog: count(row, "backlog")?,
        response: packed(row.get("response")?)?,
        service: row.get::<_, Option<Vec<u8>>>("service")?.map(packed).transpose()?,
        by_statement: BTreeMap::new(),
    })
}
