//! One study out of a results file, as a results file of its own, and the way back.

use std::collections::BTreeSet;
use std::path::Path;

use rusqlite::config::DbConfig;
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, MAIN_DB, OptionalExtension, params, params_from_iter};

use super::private::{Eraser, LeftOut, Private};
use super::{BundleError, Member, sha256};
use crate::error::Error;
use crate::open::Store;
use crate::read::{Sql, damaged};
use crate::schema::{MIGRATIONS, migrate};
use crate::study::StudyId;

/// Which rows of a table belong to a study (`?1`), by the column that leads to it.
const WAYS: [(&str, &str); 6] = [
    ("study_id", "study_id = ?1"),
    ("cell_id", "cell_id IN (SELECT id FROM main.cell WHERE study_id = ?1)"),
    ("run_id", "run_id IN (SELECT id FROM temp.run)"),
    ("step_id", "step_id IN (SELECT id FROM temp.step)"),
    ("audit_id", "audit_id IN (SELECT id FROM temp.audit)"),
    ("host_id", "host_id IN (SELECT id FROM temp.host)"),
];

/// Builds that ran; an audit speaks for a build by its identity.
const BUILDS: &str = "SELECT id FROM main.build WHERE identity IN (SELECT identity FROM main.build WHERE id IN \
                      (SELECT build_id FROM temp.run))";

/// The tables in an order in which each finds what it leads to, and what is taken of those that [`WAYS`] do not tell.
const FIRST: [(&str, &str); 5] = [
    ("study", "id = ?1"),
    ("cell", "study_id = ?1"),
    ("run", "cell_id IN (SELECT id FROM main.cell WHERE study_id = ?1)"),
    ("audit", ""),
    ("host", ""),
];

fn condition(table: &str, columns: &[String]) -> Option<String> {
    match table {
        "study" => Some("id = ?1".to_owned()),
        "build" => Some(format!("id IN ({BUILDS})")),
        "audit" => Some(format!("build_id IN ({BUILDS})")),
        // No study leads to these: searches for lines are the results file's, decisions a series'.
        "line_search" | "line_probe" => Some("1".to_owned()),
        "change_decision" => Some("series IN (SELECT value FROM json_each(?2))".to_owned()),
        "host" => Some(
            "id IN (SELECT host_id FROM main.run WHERE id IN (SELECT id FROM temp.run)
             UNION SELECT host_id FROM main.probe WHERE study_id = ?1
             UNION SELECT host_id FROM main.canary WHERE study_id = ?1
             UNION SELECT host_id FROM temp.audit)"
                .to_owned(),
        ),
        _ => {
            let way = WAYS.iter().find(|(column, _)| columns.iter().any(|name| name == column));
            way.map(|(_, condition)| (*condition).to_owned())
        }
    }
}

/// Tables in the order of extraction.
fn tables(connection: &Connection) -> Sql<Vec<String>> {
    let sql = "SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name";
    let all: Vec<String> = connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect::<Sql<_>>()?;
    let mut ordered: Vec<String> = FIRST.iter().map(|(name, _)| (*name).to_owned()).collect();
    ordered.push("step".to_owned());
    ordered.extend(
        all.into_iter().filter(|name| !FIRST.iter().any(|(first, _)| first == name) && name != "step"),
    );
    Ok(ordered)
}

fn columns(connection: &Connection, table: &str) -> Sql<Vec<String>> {
    connection
        .prepare("SELECT name FROM pragma_table_info(?1, 'main') ORDER BY cid")?
        .query_map([table], |row| row.get(0))?
        .collect()
}

/// What a slim bundle lacks.
const CLASS_SECONDS: &str = "response times of a class of statement in a second";

/// What stands in the place of bytes that were not searched.
const UNSEARCHED: &str = "as it is";

/// What is to travel with a study.
#[derive(Debug)]
pub struct Extraction<'a> {
    /// What must not.
    pub private: &'a Private,
    /// Series of a history whose decisions do.
    pub series: &'a BTreeSet<String>,
    /// Files beside the results.
    pub members: Vec<Member>,
    /// Files that should be among them and are not.
    pub absent: Vec<LeftOut>,
    /// Without the response times by second and class of statement: no figure comes from them, and of a large study they
    /// are the most.
    pub is_slim: bool,
}

/// What of a results file travels.
#[derive(Debug)]
pub struct Extracted {
    /// A results file.
    pub results: Vec<u8>,
    pub members: Vec<Member>,
    pub left_out: Vec<LeftOut>,
}

impl Store {
    /// A results file with this study alone, every attempt of every run in it, audits of the builds that ran, what was
    /// decided of changes of the series named and the searches for load lines; and what was replaced because it must not
    /// travel, also in those of the members that are text in UTF-8: of the others it is told that they were not searched.
    /// Rows keep their numbers: the same store gives the same bytes.
    ///
    /// # Errors
    /// There is no such study, or the file cannot be read.
    pub fn extract(&self, study: StudyId, of: Extraction<'_>) -> Result<Extracted, Error> {
        let Extraction { private, series, members, mut absent, is_slim } = of;
        let mut eraser = Eraser::new(private);
        let (bytes, slimmed) = self.read("a study to be bundled", || {
            let mut out = Connection::open_in_memory()?;
            migrate(&mut out, 0, MIGRATIONS)?;
            out.execute_batch("PRAGMA foreign_keys = OFF")?;
            self.copy(study, series, &mut out, &mut eraser)?;
            let slimmed = if is_slim { out.execute("DELETE FROM interval_statement", [])? } else { 0 };
            out.execute_batch("VACUUM")?;
            Ok((out.serialize(MAIN_DB)?.to_vec(), slimmed as u64))
        })?;
        if slimmed > 0 {
            absent.push(LeftOut { what: CLASS_SECONDS.to_owned(), instead: String::new(), times: slimmed });
        }
        // A file is called after somebody, too.
        let mut unsearched = Vec::new();
        let mut searched = |(name, bytes): Member| {
            let name = eraser.text(&name);
            let bytes = match String::from_utf8(bytes) {
                Ok(text) => eraser.text(&text).into_bytes(),
                Err(error) => {
                    let what =
                        format!("{name} is no text in UTF-8: what is private was not looked for in it");
                    unsearched.push(LeftOut { what, instead: UNSEARCHED.to_owned(), times: 1 });
                    error.into_bytes()
                }
            };
            (name, bytes)
        };
        let members = members.into_iter().map(&mut searched).collect();
        let absent: Vec<LeftOut> =
            absent.into_iter().map(|it| LeftOut { what: eraser.text(&it.what), ..it }).collect();
        Ok(Extracted { results: bytes, members, left_out: [eraser.left_out(), absent, unsearched].concat() })
    }

    fn copy(
        &self,
        study: StudyId,
        series: &BTreeSet<String>,
        out: &mut Connection,
        eraser: &mut Eraser,
    ) -> Sql<()> {
        let ids = serde_json::to_string(series).map_err(damaged)?;
        let chosen = (study, &*ids);
        // The rows of the study are gathered in temporary tables, which a file opened for reading may have too.
        let source = &self.connection;
        source.execute_batch("PRAGMA temp_store = MEMORY")?;
        let tables = tables(source)?;
        for table in &tables {
            let sql = format!("CREATE TABLE temp.{table} AS SELECT * FROM main.{table} WHERE 0");
            source.execute_batch(&sql)?;
        }
        let copied = tables.iter().try_for_each(|table| copy_table(source, chosen, table, out, eraser));
        for table in &tables {
            source.execute_batch(&format!("DROP TABLE temp.{table}"))?;
        }
        copied
    }

    /// Opens the results file of a bundle, from memory. It may be anybody's: it must have exactly the tables of ours, and
    /// SQLite must find it whole.
    ///
    /// # Errors
    /// It is none, is of a newer schema, or has anything in it that ours have not.
    pub fn of_bundle(bytes: &[u8], name: &Path) -> Result<Store, BundleError> {
        let fail = |source| BundleError::from(crate::open::sqlite(name, "the file", source));
        let mut connection = Connection::open_in_memory().map_err(fail)?;
        connection.deserialize_read_exact(MAIN_DB, bytes, bytes.len(), false).map_err(fail)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true).map_err(fail)?;
        // Whoever looks at somebody's bundle may be without files.
        connection.execute_batch("PRAGMA temp_store = MEMORY").map_err(fail)?;
        connection
            .execute_batch("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;")
            .map_err(fail)?;
        let mut store = Store { connection, path: name.to_owned() };
        let version = store.version()?;
        if version == 0 {
            return Err(BundleError::refused("its results are empty"));
        }
        if schema(&store.connection).map_err(fail)? != schema_of(version).map_err(fail)? {
            return Err(BundleError::refused("its results have other tables than plimsoll's"));
        }
        let whole: String =
            store.connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(fail)?;
        if whole != "ok" {
            return Err(BundleError::refused(format!("its results are damaged: {whole}")));
        }
        let stray: Option<String> = store
            .connection
            .query_row("PRAGMA foreign_key_check", [], |row| row.get(0))
            .optional()
            .map_err(fail)?;
        if let Some(table) = stray {
            return Err(BundleError::refused(format!("its results are damaged: {table} leads to nothing")));
        }
        if version < MIGRATIONS.len() {
            migrate(&mut store.connection, version, MIGRATIONS).map_err(fail)?;
        }
        Ok(store)
    }
}

fn copy_table(
    source: &Connection,
    (study, series): (StudyId, &str),
    table: &str,
    out: &mut Connection,
    eraser: &mut Eraser,
) -> Sql<()> {
    let names = columns(source, table)?;
    let condition = condition(table, &names)
        .ok_or_else(|| damaged(format!("nothing leads from a study to the table {table}")))?;
    let sql = format!("INSERT INTO temp.{table} SELECT * FROM main.{table} WHERE {condition}");
    let mut gather = source.prepare(&sql)?;
    match gather.parameter_count() {
        0 => gather.execute([])?,
        1 => gather.execute([study.0])?,
        _ => gather.execute(params![study.0, series])?,
    };
    copy_rows(source, table, &names, out, eraser)
}

fn copy_rows(
    source: &Connection,
    table: &str,
    names: &[String],
    out: &mut Connection,
    eraser: &mut Eraser,
) -> Sql<()> {
    let marks = vec!["?"; names.len()].join(",");
    let transaction = out.transaction()?;
    {
        let mut insert = transaction.prepare(&format!("INSERT INTO {table} VALUES ({marks})"))?;
        // By all their values up to what tells rows apart: ids come first in each table.
        let order = (1..=names.len().min(4)).map(|at| at.to_string()).collect::<Vec<_>>().join(",");
        let mut select = source.prepare(&format!("SELECT * FROM temp.{table} ORDER BY {order}"))?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let mut values = Vec::with_capacity(names.len());
            for at in 0..names.len() {
                values.push(match row.get_ref(at)? {
                    ValueRef::Text(text) => {
                        let text = std::str::from_utf8(text).map_err(damaged)?;
                        Value::Text(eraser.text(text))
                    }
                    other => Value::try_from(other).map_err(damaged)?,
                });
            }
            if table == "study" {
                checksum_again(names, row, &mut values)?;
            }
            insert.execute(params_from_iter(values))?;
        }
    }
    transaction.commit()
}

/// The checksum of a study file from which something was left out is that of what is left.
fn checksum_again(names: &[String], row: &rusqlite::Row<'_>, values: &mut [Value]) -> Sql<()> {
    let at = |name: &str| names.iter().position(|known| known == name).unwrap_or_default();
    let (text, sum) = (at("file_text"), at("file_sha256"));
    let before: String = row.get(text)?;
    if let Value::Text(after) = &values[text]
        && *after != before
    {
        values[sum] = Value::Text(sha256(after.as_bytes()));
    }
    Ok(())
}

fn schema(connection: &Connection) -> Sql<Vec<(String, String, Option<String>)>> {
    connection
        .prepare("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

fn schema_of(version: usize) -> Sql<Vec<(String, String, Option<String>)>> {
    let mut model = Connection::open_in_memory()?;
    migrate(&mut model, 0, &MIGRATIONS[..version])?;
    schema(&model)
}
