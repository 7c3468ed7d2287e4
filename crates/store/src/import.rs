//! Runs of another results file taken into this one: each once, however often that is asked for.
//!
//! A run is known again by what it is: its study's plan, its cell, load levels, block and purpose, the machine that made
//! it, its seed and the millisecond at which it began. Nothing that is recorded here changes, but for the number of an attempt:
//! attempts count in the order in which they began, in whatever order they come.

use std::collections::BTreeMap;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::Error;
use crate::open::Store;
use crate::read::Sql;
use crate::run::{Run, RunHead, Status};
use crate::study::{Build, BuildId, Host, HostId, RunId, Study, StudyId};
use crate::write::{build_row, host_row, insert_run, to_json};

/// What came of an import.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Imported {
    pub runs: usize,
    /// Runs that were here before.
    pub known: usize,
}

/// A run that is to be copied.
struct Coming {
    run: Run,
    host: Host,
    build: Option<Build>,
    log_file: String,
}

impl Store {
    /// Takes over the runs of a study of another results file, with its probes, canaries and notes, in one transaction. Runs
    /// that have not ended yet stay where they are. A run that comes is an attempt among those of the same cell, levels, block
    /// and purpose that are here, in the order in which they began. `log_file` says where a log of the other file will be found from here.
    ///
    /// # Errors
    /// One of the files cannot be read or written; nothing is taken over then.
    pub fn import(
        &mut self,
        study: StudyId,
        from: &Store,
        its_study: StudyId,
        log_file: &dyn Fn(&str) -> String,
    ) -> Result<Imported, Error> {
        let mut hosts: BTreeMap<HostId, Host> = BTreeMap::new();
        let mut coming = Vec::new();
        let mut imported = Imported::default();
        for head in from.run_heads(its_study)? {
            if head.status == Status::Running {
                continue;
            }
            let host = from.host(head.start.host)?;
            hosts.insert(head.start.host, host.clone());
            if self.has_run(study, &head, &host)? {
                imported.known += 1;
                continue;
            }
            let build = head.start.build.map(|build| from.build(build)).transpose()?;
            let run = from.run(head.id)?;
            let file = run.end.as_ref().map_or("", |end| end.log_file.as_str());
            let log_file = if file.is_empty() { String::new() } else { log_file(file) };
            coming.push(Coming { run, host, build, log_file });
        }
        let beside = from.beside(its_study, &mut hosts)?;
        imported.runs = coming.len();
        let source = &from.connection;
        self.transaction("runs of another results file", |sql| {
            for coming in &coming {
                take_over(sql, source, study, coming)?;
            }
            beside.iter().try_for_each(|row| row.insert(sql, study))
        })?;
        Ok(imported)
    }

    /// Whether this run, made by this machine, is recorded for the study.
    fn has_run(&self, study: StudyId, head: &RunHead, host: &Host) -> Result<bool, Error> {
        let start = &head.start;
        self.read("the runs", || {
            let known: Option<i64> = self
                .connection
                .prepare_cached(
                    "SELECT run.id FROM run JOIN cell ON cell.id = run.cell_id JOIN host ON host.id = run.host_id
                     WHERE cell.study_id=? AND cell.key=? AND run.levels=? AND run.block=? AND run.purpose=?
                     AND run.seed=? AND run.started_at_ms=? AND host.name=? AND host.fingerprint=?",
                )?
                .query_row(
                    params![
                        study.0,
                        to_json(&start.key)?,
                        to_json(&start.levels)?,
                        start.block,
                        crate::write::purpose_text(start.purpose),
                        start.seed as i64,
                        start.started_at_ms,
                        host.name,
                        host.fingerprint
                    ],
                    |row| row.get(0),
                )
                .optional()?;
            Ok(known.is_some())
        })
    }

    /// What stands beside a study's runs: probes, canaries, notes.
    fn beside(&self, study: StudyId, hosts: &mut BTreeMap<HostId, Host>) -> Result<Vec<Beside>, Error> {
        let mut rows = Vec::new();
        let mut of_host = |id: HostId, table: &'static str, text: String| -> Result<Beside, Error> {
            let host = match hosts.get(&id) {
                Some(host) => host.clone(),
                None => self.host(id)?,
            };
            hosts.insert(id, host.clone());
            Ok(Beside::OfHost { table, host: Box::new(host), text })
        };
        let json = |text: Sql<String>| self.read("what was measured beside the runs", || text);
        for (id, probe) in self.probes(study)? {
            rows.push(of_host(id, "probe", json(to_json(&probe))?)?);
        }
        for (id, canary) in self.canaries(study)? {
            rows.push(of_host(id, "canary", json(to_json(&canary))?)?);
        }
        let record = self.studies()?.into_iter().find(|record| record.id == study);
        for (at_ms, text) in record.into_iter().flat_map(|record| record.notes) {
            rows.push(Beside::Note { at_ms, text });
        }
        Ok(rows)
    }
}

/// A row that is no run.
enum Beside {
    /// A row of `probe` or `canary`, whose column is named as the table is.
    OfHost { table: &'static str, host: Box<Host>, text: String },
    /// A row of `note`.
    Note { at_ms: i64, text: String },
}

impl Beside {
    fn insert(&self, sql: &Connection, study: StudyId) -> Sql<()> {
        match self {
            Beside::OfHost { table, host, text } => {
                let host = host_row(sql, host)?;
                let known = format!("SELECT 1 FROM {table} WHERE study_id=? AND host_id=? AND {table}=?");
                let values = params![study.0, host.0, text];
                if sql.prepare(&known)?.exists(values)? {
                    return Ok(());
                }
                sql.execute(
                    &format!("INSERT INTO {table} (study_id, host_id, {table}) VALUES (?,?,?)"),
                    values,
                )?;
            }
            Beside::Note { at_ms, text } => {
                let values = params![study.0, at_ms, text];
                let known = "SELECT 1 FROM note WHERE study_id=? AND at_ms=? AND kind='note' AND text=?";
                if !sql.prepare(known)?.exists(values)? {
                    sql.execute(
                        "INSERT INTO note (study_id, at_ms, kind, text) VALUES (?,?,'note',?)",
                        values,
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Columns of `run` that are copied as they are; the others say where it stands in a file.
const RUN_COLUMNS: &str = "status, ended_at_ms, error, log_tail, server, workload, phases, warnings, gates, checks, facts, duel, interventions";

/// Numbers the attempts that this one is among. A task that a scheduler took for lost may go on, and tell of itself when
/// the block has been made elsewhere: the later one counts all the same.
fn order_attempts(sql: &Connection, run: RunId) -> Sql<()> {
    let mut attempts = sql.prepare_cached(
        "SELECT run.id FROM run JOIN run AS one USING (cell_id, levels, block, purpose) WHERE one.id=?
         ORDER BY run.started_at_ms, run.attempt",
    )?;
    let ids: Vec<i64> =
        attempts.query_map([run.0], |row| row.get(0))?.collect::<std::result::Result<_, _>>()?;
    // No two may have one number, not for a moment either.
    for sign in [-1, 1] {
        for (id, attempt) in ids.iter().zip(1i64..) {
            sql.prepare_cached("UPDATE run SET attempt=? WHERE id=?")?.execute([sign * attempt, *id])?;
        }
    }
    Ok(())
}

/// Copies one run with all that belongs to it, to the letter.
fn take_over(sql: &Connection, source: &Connection, study: StudyId, coming: &Coming) -> Sql<()> {
    let host: HostId = host_row(sql, &coming.host)?;
    let build: Option<BuildId> = coming.build.as_ref().map(|build| build_row(sql, build)).transpose()?;
    let mut start = coming.run.head.start.clone();
    (start.host, start.build) = (host, build);
    let run = insert_run(sql, study, &start)?;
    order_attempts(sql, run)?;
    let from = coming.run.head.id;
    let columns: Vec<&str> = RUN_COLUMNS.split(", ").collect();
    let mut values: Vec<Value> = source
        .prepare_cached(&format!("SELECT {RUN_COLUMNS} FROM run WHERE id=?"))?
        .query_row([from.0], |row| (0..columns.len()).map(|at| row.get(at)).collect())?;
    let set: Vec<String> = columns.iter().map(|column| format!("{column}=?")).collect();
    values.push(if coming.run.end.is_some() { coming.log_file.clone().into() } else { Value::Null });
    values.push(run.0.into());
    let update = format!("UPDATE run SET {}, log_file=? WHERE id=?", set.join(", "));
    sql.prepare_cached(&update)?.execute(rusqlite::params_from_iter(values))?;
    let line: Option<i64> =
        source.query_row("SELECT line_id FROM run WHERE id=?", [from.0], |row| row.get(0))?;
    if let Some(line) = line {
        let line = take_line(sql, source, line)?;
        sql.execute("UPDATE run SET line_id=? WHERE id=?", [line, run.0])?;
    }
    for table in ["series", "hot_lock"] {
        copy(sql, source, table, ("run_id", from.0, run.0))?;
    }
    for (old, new) in copy(sql, source, "step", ("run_id", from.0, run.0))? {
        for table in ["statement", "error", "interval", "interval_statement"] {
            copy(sql, source, table, ("step_id", old, new))?;
        }
    }
    Ok(())
}

/// Copies the search for load lines that a run was: once, although several runs may have gone on with it. It is over here:
/// another machine does not go on with it.
fn take_line(sql: &Connection, source: &Connection, line: i64) -> Sql<i64> {
    let (start, found): (String, Option<String>) =
        source.query_row("SELECT start, found FROM line_search WHERE id=?", [line], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
    let known: Option<i64> = sql
        .query_row("SELECT id FROM line_search WHERE start=? AND is_over=1", [&start], |row| row.get(0))
        .optional()?;
    let new = match known {
        Some(known) => {
            // It may have gone on since.
            sql.execute("DELETE FROM line_probe WHERE line_id=?", [known])?;
            sql.execute("UPDATE line_search SET found=? WHERE id=?", params![found, known])?;
            known
        }
        None => {
            let values = params![start, found];
            sql.execute("INSERT INTO line_search (start, is_over, found) VALUES (?,1,?)", values)?;
            sql.last_insert_rowid()
        }
    };
    copy(sql, source, "line_probe", ("line_id", line, new))?;
    Ok(new)
}

/// Copies the rows of `table` that belong to the row `old` of what `column` names, to the row `new`. The old and new `id`
/// of each row, where the table has such a column: new ones are drawn.
fn copy(
    sql: &Connection,
    source: &Connection,
    table: &str,
    (column, old, new): (&str, i64, i64),
) -> Sql<Vec<(i64, i64)>> {
    let mut select = source.prepare_cached(&format!("SELECT * FROM {table} WHERE {column}=?"))?;
    let names: Vec<String> = select.column_names().into_iter().map(str::to_owned).collect();
    let kept: Vec<usize> = (0..names.len()).filter(|at| names[*at] != "id").collect();
    let columns: Vec<&str> = kept.iter().map(|at| names[*at].as_str()).collect();
    let marks = vec!["?"; kept.len()].join(",");
    let insert = format!("INSERT INTO {table} ({}) VALUES ({marks})", columns.join(", "));
    let mut ids = Vec::new();
    let mut rows = select.query([old])?;
    while let Some(row) = rows.next()? {
        let value =
            |at: &usize| -> Sql<Value> { if names[*at] == column { Ok(new.into()) } else { row.get(*at) } };
        let values = kept.iter().map(value).collect::<Sql<Vec<Value>>>()?;
        sql.prepare_cached(&insert)?.execute(rusqlite::params_from_iter(values))?;
        if let Some(at) = names.iter().position(|name| name == "id") {
            ids.push((row.get(at)?, sql.last_insert_rowid()));
        }
    }
    Ok(ids)
}

impl Study {
    /// Whether two rows of `study` are of one plan: the same meaning, seed and servers, so that a block of one is the same
    /// block in the other. When it was planned, by which command, and whether it has grown since does not matter.
    pub fn is_same_plan(&self, other: &Study) -> bool {
        let of = |study: &Study| {
            let servers = study.plan.get("servers").cloned();
            (
                study.name.clone(),
                study.is_quick,
                study.fingerprint.clone(),
                study.seed,
                study.axes.clone(),
                servers,
            )
        };
        of(self) == of(other)
    }
}

/// A run that two files may both have: what tells it from all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunIdentity(String);

impl RunIdentity {
    /// Of a run of this study, made by this machine.
    pub fn of(study: &Study, head: &RunHead, host: &Host) -> RunIdentity {
        let start = &head.start;
        let text = serde_json::json!([
            study.name,
            study.is_quick,
            study.seed,
            start.key,
            start.levels,
            start.block,
            start.purpose,
            start.seed,
            start.started_at_ms,
            host.name,
            host.fingerprint
        ]);
        RunIdentity(text.to_string())
    }
}
