//! Fills tables with generated rows: streamed over several connections, one table in ranges where that is faster,
//! secondary indexes and statistics afterwards. Used by every workload that has data.

mod stand_in;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use wire::{Done, ParamType, Target};

use self::stand_in::StandIn;
use crate::control::{Control, STATEMENT_LIMIT, statement_error};
use crate::{Dialect, Error, Flavor, LoadAt, LoadMethod, LoadPart, LoadReport, Progress};

/// Text handed to the connection at a time.
const CHUNK_BYTES: usize = 256 * 1024;
/// Text that is made into parameters at a time; it stays in the first cache.
const BULK_BYTES: usize = 16 * 1024;
/// A multi-row INSERT; under the smallest default of `max_allowed_packet` (1 MiB, MySQL 5.5).
const INSERT_BYTES: usize = 512 * 1024;
/// Rows of one statement on servers that keep undo for all of them.
const RANGE_ROWS_MAX: u64 = 2_000_000;
/// How often progress is told at most.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// Appends a row, given its number, to a text.
pub type PushRow<'a> = Box<dyn Fn(u64, &mut Vec<u8>) + Send + Sync + 'a>;

/// One table to be filled.
pub struct TableLoad<'a> {
    /// Its name, quoted where it needs quotes.
    pub name: String,
    /// CREATE TABLE and what else must come before the rows. Where there is nothing the table is there already
    /// and stays.
    pub create: Vec<String>,
    /// The columns of a row, joined by commas.
    pub columns: String,
    /// Number of rows.
    pub rows: u64,
    /// Appends row `n`, counted from 0, as one line of tab-separated text (`\N` for NULL, backslash escapes,
    /// newline at the end), or as several lines where the rows of a table come in groups. Called from several threads, in any order of ranges.
    pub push_row: PushRow<'a>,
    /// Indexes and constraints, when the rows are there.
    pub after: Vec<String>,
}

/// All tables of a workload. They are dropped in reverse order and created in order.
pub struct LoadPlan<'a> {
    pub tables: Vec<TableLoad<'a>>,
}

/// Rows of one table that travel in one statement.
#[derive(Debug)]
struct Range {
    table: usize,
    first: u64,
    rows: u64,
    /// The whole table at once.
    is_whole: bool,
}

/// What the loading threads share.
struct Shared<'a> {
    at: &'a LoadAt,
    hints: &'a Refused,
    dialect: &'a Dialect,
    plan: &'a LoadPlan<'a>,
    /// By table.
    stand_ins: &'a [Option<StandIn>],
    portions: Vec<Vec<Range>>,
    next: AtomicUsize,
    rows: AtomicU64,
    rows_total: u64,
    bytes: AtomicU64,
    /// Why rows travel by INSERT; set by the first thread that is refused.
    refusal: Mutex<Option<String>>,
    failed: AtomicBool,
    told: Mutex<Instant>,
    progress: &'a (dyn Fn(Progress) + Sync),
}

/// Replaces the tables and fills them.
///
/// # Errors
/// The server refused something that no fallback covers, or a connection was lost.
pub fn load(
    at: &LoadAt,
    dialect: &Dialect,
    plan: LoadPlan<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LoadReport, Error> {
    // What a stop interrupts fails in one way or another, none of which is what happened.
    fill(at, dialect, plan, progress)
        .map_err(|error| if at.stop.is_requested() { Error::Stopped } else { error })
}

fn fill(
    at: &LoadAt,
    dialect: &Dialect,
    plan: LoadPlan<'_>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<LoadReport, Error> {
    let started = Instant::now();
    let connections = at.connections.max(1);
    let hints = Refused::default();
    let stand_ins = create_tables(at, &hints, &plan, connections, progress)?;
    let portions = cut(&plan, connections, dialect, &stand_ins);
    let shared = Shared {
        at,
        hints: &hints,
        dialect,
        plan: &plan,
        stand_ins: &stand_ins,
        rows_total: plan.tables.iter().map(|table| table.rows).sum(),
        next: AtomicUsize::new(0),
        rows: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        refusal: Mutex::new(None),
        failed: AtomicBool::new(false),
        told: Mutex::new(started),
        progress,
        portions,
    };
    let loaded = in_parallel(connections.min(shared.portions.len()), &|_| load_portions(&shared));
    // Threads that stop in the middle of their portion have met no error.
    let loaded = loaded.and_then(|()| if at.stop.is_requested() { Err(Error::Stopped) } else { Ok(()) });
    let loaded = loaded.and_then(|()| each_stand_in(at, &hints, &stand_ins, StandIn::take_place));
    if loaded.is_err() {
        // The load's own error is the one to tell. Also when it was stopped.
        let at = LoadAt { stop: load::Stop::new(), ..at.clone() };
        let _ = each_stand_in(&at, &hints, &stand_ins, StandIn::drop);
    }
    loaded?;
    let rows_time = started.elapsed();
    let after: Vec<&[String]> = plan.tables.iter().map(|table| table.after.as_slice()).collect();
    let started = Instant::now();
    run_by_table(at, &hints, LoadPart::Indexes, "building an index", &after, progress)?;
    let indexes_time = started.elapsed();
    let started = Instant::now();
    let analyze: Vec<[String; 1]> = plan.tables.iter().map(|table| [dialect.analyze(&table.name)]).collect();
    let analyze: Vec<&[String]> = analyze.iter().map(<[String; 1]>::as_slice).collect();
    run_by_table(at, &hints, LoadPart::Analyze, "analyzing a table", &analyze, progress)?;
    let Shared { refusal, rows, bytes, .. } = shared;
    let refusal = refusal.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(LoadReport {
        rows: rows.into_inner(),
        bytes_sent: bytes.into_inner(),
        rows_time,
        indexes_time,
        analyze_time: started.elapsed(),
        notes: refusal.iter().cloned().chain(hints.into_notes()).collect(),
        method: refusal.map_or(LoadMethod::Stream, |why| LoadMethod::Inserts { why }),
        connections,
    })
}

/// Whether each table is there with exactly so many rows.
///
/// # Errors
/// No connection.
pub fn is_loaded(target: &Target, tables: impl IntoIterator<Item = (String, u64)>) -> Result<bool, Error> {
    let mut control = match Control::connect(target, "look for loaded tables") {
        Ok(control) => control,
        Err(Error::Connect { source, .. })
            if Dialect::of_server(target.protocol, "").is_missing_table(&source) =>
        {
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    for (table, rows) in tables {
        if control.rows_of(&table)? != Some(rows) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// How many rows of a table are there; `None`: the table is not.
///
/// # Errors
/// No connection.
pub fn rows_there(target: &Target, table: &str) -> Result<Option<u64>, Error> {
    Control::connect(target, "count the rows that are there")?.rows_of(table)
}

/// What a server need not do for us: what it refuses is left out, and told once.
#[derive(Default)]
struct Refused {
    told: Mutex<BTreeSet<String>>,
}

impl Refused {
    fn connect(&self, at: &LoadAt) -> Result<Control, Error> {
        if at.stop.is_requested() {
            return Err(Error::Stopped);
        }
        let mut control = Control::connect_until(&at.target, "load rows", &at.stop)?;
        control.client().set_statement_timeout(STATEMENT_LIMIT);
        for sql in control.dialect().syntax().load_hints {
            self.optional(control.run("preparing a connection for loading", sql))?;
        }
        Ok(control)
    }

    /// Takes a refusal for an answer. A lost connection, or any other failure, is one.
    fn optional(&self, ran: Result<Done, Error>) -> Result<(), Error> {
        match ran {
            Err(Error::Statement { sql, source: wire::Error::Server(error), .. }) => {
                let note = format!(
                    "the server refuses {sql:?} ({}: {}): left out, the tables are the same without it",
                    error.code(),
                    error.text
                );
                self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(note);
                Ok(())
            }
            other => other.map(drop),
        }
    }

    fn into_notes(self) -> impl Iterator<Item = String> {
        self.told.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter()
    }
}

/// Makes the tables anew, and stand-ins for those that are more than one connection's share: by table.
fn create_tables(
    at: &LoadAt,
    hints: &Refused,
    plan: &LoadPlan<'_>,
    connections: usize,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Vec<Option<StandIn>>, Error> {
    let mut control = hints.connect(at)?;
    for table in plan.tables.iter().rev().filter(|table| !table.create.is_empty()) {
        control.run("dropping an old table", &format!("DROP TABLE IF EXISTS {}", table.name))?;
    }
    let total = plan.tables.len() as u64;
    for (done, table) in (1..).zip(&plan.tables) {
        for sql in &table.create {
            control.run("creating a table", sql)?;
        }
        progress(Progress { part: LoadPart::Tables, done, total });
    }
    let share = share_of(plan, connections);
    let has_one = |table: &TableLoad<'_>| at.is_own_server && table.rows > share && !table.create.is_empty();
    plan.tables
        .iter()
        .map(|table| match has_one(table) {
            true => StandIn::make(&mut control, &table.name, table.rows),
            false => Ok(None),
        })
        .collect()
}

fn each_stand_in(
    at: &LoadAt,
    hints: &Refused,
    stand_ins: &[Option<StandIn>],
    act: fn(&StandIn, &mut Control) -> Result<(), Error>,
) -> Result<(), Error> {
    stand_ins.iter().flatten().try_for_each(|stand_in| act(stand_in, &mut hints.connect(at)?))
}

/// The rows of a connection, if all get as many.
fn share_of(plan: &LoadPlan<'_>, connections: usize) -> u64 {
    let total: u64 = plan.tables.iter().map(|table| table.rows).sum();
    total.div_ceil(connections as u64).max(1)
}

/// Cuts the tables into portions, each for one connection: ranges of one table that are loaded one after another.
fn cut(
    plan: &LoadPlan<'_>,
    connections: usize,
    dialect: &Dialect,
    stand_ins: &[Option<StandIn>],
) -> Vec<Vec<Range>> {
    let splits_tables = dialect.splits_tables();
    let share = share_of(plan, connections);
    let mut portions = Vec::new();
    for (table, load) in plan.tables.iter().enumerate() {
        let has_stand_in = stand_ins.get(table).is_some_and(Option::is_some);
        let is_split = splits_tables || has_stand_in;
        // A range is at most a connection's fair share, or one large table would be left to one connection.
        let fair = if is_split { share } else { u64::MAX };
        let longest = if dialect.flavor == Flavor::Postgres { fair } else { fair.min(RANGE_ROWS_MAX) };
        let mut pieces = load.rows.div_ceil(longest);
        if has_stand_in {
            // Connections that end together.
            pieces = pieces.next_multiple_of(connections as u64);
        }
        let mut first = 0;
        let mut ranges = Vec::new();
        for piece in 1..=pieces {
            let end = (u128::from(load.rows) * u128::from(piece) / u128::from(pieces)) as u64;
            ranges.push(Range { table, first, rows: end - first, is_whole: pieces == 1 });
            first = end;
        }
        if is_split {
            portions.extend(ranges.into_iter().map(|range| vec![range]));
        } else if !ranges.is_empty() {
            portions.push(ranges);
        }
    }
    if !splits_tables {
        // The longest first, so that the connections end together. The sort is stable: equal tables stay in order.
        portions.sort_by_key(|ranges| std::cmp::Reverse(ranges.iter().map(|range| range.rows).sum::<u64>()));
    }
    portions
}

/// Runs `work` on so many threads and gives the first error.
fn in_parallel(threads: usize, work: &(dyn Fn(usize) -> Result<(), Error> + Sync)) -> Result<(), Error> {
    thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|index| scope.spawn(move || work(index))).collect();
        let mut first = Ok(());
        for handle in handles {
            match handle.join() {
                Ok(result) => first = first.and(result),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        first
    })
}

/// Takes portions until there are none left.
fn load_portions(shared: &Shared<'_>) -> Result<(), Error> {
    let result = (|| {
        let mut control = shared.hints.connect(shared.at)?;
        while !shared.is_over() {
            let Some(ranges) = shared.portions.get(shared.next.fetch_add(1, Ordering::Relaxed)) else {
                break;
            };
            let has_bulk = takes_bulk(shared, &mut control, ranges)?;
            for range in ranges {
                if has_bulk {
                    bulk_range(shared, &mut control, range)?;
                } else {
                    load_range(shared, &mut control, range)?;
                }
            }
        }
        Ok(())
    })();
    if result.is_err() {
        shared.failed.store(true, Ordering::Relaxed);
    }
    result
}

/// Whether the table of these ranges is filled by bulk execution: parameters in place of text take the server two thirds
/// of the time of LOAD DATA (1.5 s of cpu and 2.2 s for a million rows, MariaDB 10.11). Not where the engine builds its
/// indexes at the end of a statement, as MyISAM does, for bulk execution is many statements.
fn takes_bulk(shared: &Shared<'_>, control: &mut Control, ranges: &[Range]) -> Result<bool, Error> {
    let Some(range) = ranges.first().filter(|_| control.client().has_bulk()) else { return Ok(false) };
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.TABLES \
         WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = {} AND ENGINE = 'InnoDB'",
        name_literal(shared.dialect, &shared.plan.tables[range.table].name)
    );
    // A server that does not say has none of InnoDB's ways.
    match control.number("asking for a table's engine", &sql) {
        Err(Error::Statement { source: wire::Error::Server(_), .. } | Error::Answer { .. }) => Ok(false),
        found => Ok(found? == 1),
    }
}

/// A table's name without its quotes, as a text of SQL.
fn name_literal(dialect: &Dialect, table: &str) -> String {
    let mut literal = Vec::new();
    dialect.push_literal(table.trim_matches('`').as_bytes(), &mut literal);
    String::from_utf8_lossy(&literal).into_owned()
}

/// The rows as parameters of an INSERT that is executed for many of them at once.
fn bulk_range(shared: &Shared<'_>, control: &mut Control, range: &Range) -> Result<(), Error> {
    let table = &shared.plan.tables[range.table];
    let columns = table.columns.split(',').count();
    let sql = format!(
        "INSERT INTO {} ({}) VALUES (?{})",
        shared.into(range),
        table.columns,
        ",?".repeat(columns - 1)
    );
    // The text is ASCII and needs no conversion.
    control.run("preparing a connection for loading", "SET NAMES binary")?;
    control.run("loading rows", "BEGIN")?;
    let failed = |source| statement_error("loading rows", &sql, source);
    let statement = control.client().prepare(&sql, &vec![ParamType::Text; columns]).map_err(failed)?;
    let mut row = range.first;
    let end = range.first + range.rows;
    let (mut lines, mut text) = (Vec::new(), Vec::new());
    let inserted = control.client().execute_bulk(&statement, &mut |rows| {
        let first = row;
        lines.clear();
        while row < end && lines.len() < BULK_BYTES {
            (table.push_row)(row, &mut lines);
            row += 1;
        }
        for line in lines.split_inclusive(|&byte| byte == b'\n') {
            each_field(line, &mut text, &mut |field| rows.push(field));
        }
        shared.sent(row - first, lines.len());
        row < end && !shared.is_over()
    });
    inserted.map_err(|source| {
        // What this range has counted was not kept.
        shared.rows.fetch_sub(row - range.first, Ordering::Relaxed);
        failed(source)
    })?;
    control.run("loading rows", "COMMIT")?;
    control.client().close_statement(statement).map_err(failed)
}

fn load_range(shared: &Shared<'_>, control: &mut Control, range: &Range) -> Result<(), Error> {
    let is_refused = shared.refusal.lock().unwrap_or_else(PoisonError::into_inner).is_some();
    if is_refused {
        return insert_range(shared, control, range);
    }
    match stream_range(shared, control, range) {
        Err(Error::Statement { source, .. }) if shared.dialect.refuses_local_infile(&source) => {
            let why = format!(
                "the server refuses LOAD DATA LOCAL ({source}); rows were sent as multi-row INSERTs, which is \
                 slower: SET GLOBAL local_infile = ON allows the stream"
            );
            *shared.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
            insert_range(shared, control, range)
        }
        other => other,
    }
}

/// LOAD DATA LOCAL or COPY.
fn stream_range(shared: &Shared<'_>, control: &mut Control, range: &Range) -> Result<(), Error> {
    let table = &shared.plan.tables[range.table];
    let mut sql = shared.dialect.bulk_load(shared.into(range), &table.columns);
    // Rows of a table emptied in the same transaction need no log where wal_level is minimal, and are frozen
    // at once, which VACUUM then does not have to do (PostgreSQL manual, COPY).
    // A partitioned table takes no FREEZE.
    let is_partitioned = table.create.iter().any(|sql| sql.contains(" PARTITION BY "));
    let is_frozen = range.is_whole && shared.dialect.flavor == Flavor::Postgres && !is_partitioned;
    if is_frozen {
        sql.push_str(" WITH (FREEZE)");
        control.run("emptying a table", &format!("BEGIN; TRUNCATE {}", table.name))?;
    }
    let mut row = range.first;
    let end = range.first + range.rows;
    let streamed = control.client().load_rows(&sql, &mut |out| {
        let (start, first) = (out.len(), row);
        while row < end && out.len() - start < CHUNK_BYTES {
            (table.push_row)(row, out);
            row += 1;
        }
        shared.sent(row - first, out.len() - start);
        row < end && !shared.is_over()
    });
    streamed.map_err(|source| {
        // What this range has counted was not kept.
        shared.rows.fetch_sub(row - range.first, Ordering::Relaxed);
        statement_error("loading rows", &sql, source)
    })?;
    if is_frozen {
        control.run("ending the load of a table", "COMMIT")?;
    }
    Ok(())
}

/// The same rows as multi-row INSERTs.
fn insert_range(shared: &Shared<'_>, control: &mut Control, range: &Range) -> Result<(), Error> {
    let table = &shared.plan.tables[range.table];
    let head = format!("INSERT INTO {} ({}) VALUES ", shared.into(range), table.columns);
    let (mut sql, mut line) = (head.clone().into_bytes(), Vec::new());
    let mut unsent = 0;
    for row in range.first..range.first + range.rows {
        line.clear();
        (table.push_row)(row, &mut line);
        if unsent > 0 {
            sql.push(b',');
        }
        for (number, line) in line.split_inclusive(|&byte| byte == b'\n').enumerate() {
            if number > 0 {
                sql.push(b',');
            }
            push_tuple(shared.dialect, line, &mut sql);
        }
        unsent += 1;
        if sql.len() < INSERT_BYTES && row + 1 < range.first + range.rows {
            continue;
        }
        if shared.is_over() {
            return Ok(());
        }
        control.run("loading rows", &String::from_utf8_lossy(&sql))?;
        shared.sent(unsent, sql.len());
        sql.truncate(head.len());
        unsent = 0;
    }
    Ok(())
}

/// Turns a line of tab-separated text into `('a',NULL,'b')`.
fn push_tuple(dialect: &Dialect, line: &[u8], out: &mut Vec<u8>) {
    let mut mark = b'(';
    each_field(line, &mut Vec::new(), &mut |field| {
        out.push(mark);
        mark = b',';
        match field {
            Some(text) => dialect.push_literal(text, out),
            None => out.extend_from_slice(b"NULL"),
        }
    });
    out.push(b')');
}

/// Shows each field of a line of tab-separated text without its escapes; `None` is NULL. `text` is scratch.
fn each_field(line: &[u8], text: &mut Vec<u8>, show: &mut dyn FnMut(Option<&[u8]>)) {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    for field in line.split(|&byte| byte == b'\t') {
        if field == b"\\N" {
            show(None);
        } else if !field.contains(&b'\\') {
            show(Some(field));
        } else {
            text.clear();
            let mut bytes = field.iter().copied();
            while let Some(byte) = bytes.next() {
                text.push(match byte {
                    b'\\' => match bytes.next() {
                        Some(b't') => b'\t',
                        Some(b'n') => b'\n',
                        Some(other) => other,
                        None => b'\\',
                    },
                    other => other,
                });
            }
            show(Some(text));
        }
    }
}

impl Shared<'_> {
    /// Another thread failed, or the user stopped it.
    fn is_over(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.at.stop.is_requested()
    }

    /// What the rows of a range are inserted into.
    fn into(&self, range: &Range) -> &str {
        let stand_in = self.stand_ins.get(range.table).and_then(Option::as_ref);
        stand_in.map_or(&self.plan.tables[range.table].name, StandIn::name)
    }

    /// Counts rows on their way and tells the progress now and then.
    fn sent(&self, rows: u64, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let done = self.rows.fetch_add(rows, Ordering::Relaxed) + rows;
        let Ok(mut told) = self.told.try_lock() else { return };
        if done == self.rows_total || told.elapsed() >= PROGRESS_EVERY {
            *told = Instant::now();
            (self.progress)(Progress { part: LoadPart::Rows, done, total: self.rows_total });
        }
    }
}

/// Runs each table's statements in order, different tables on different connections.
fn run_by_table(
    at: &LoadAt,
    hints: &Refused,
    part: LoadPart,
    doing: &str,
    statements: &[&[String]],
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), Error> {
    let busy: Vec<&[String]> = statements.iter().copied().filter(|list| !list.is_empty()).collect();
    let (next, done) = (AtomicUsize::new(0), AtomicU64::new(0));
    in_parallel(at.connections.max(1).min(busy.len()), &|_| {
        let mut control = hints.connect(at)?;
        while let Some(list) = busy.get(next.fetch_add(1, Ordering::Relaxed)) {
            for sql in *list {
                match part {
                    // Statistics make a table neither another one nor unusable.
                    LoadPart::Analyze => hints.optional(control.run(doing, sql))?,
                    _ => drop(control.run(doing, sql)?),
                }
            }
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            progress(Progress { part, done, total: busy.len() as u64 });
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    fn dialect(flavor: Flavor) -> Dialect {
        Dialect { flavor, version: Version::parse("11.4.5"), engine: None }
    }

    fn table(rows: u64) -> TableLoad<'static> {
        TableLoad {
            name: "t".to_owned(),
            create: Vec::new(),
            columns: "a".to_owned(),
            rows,
            push_row: Box::new(|_, _| ()),
            after: Vec::new(),
        }
    }

    #[test]
    fn ranges_cover_every_row_once() {
        for rows in [&[1_000_000_u64][..], &[10, 10, 10], &[0, 5, 10_000_000], &[1]] {
            for connections in [1, 2, 3, 16] {
                for flavor in [Flavor::Mariadb, Flavor::Mysql, Flavor::Postgres] {
                    let plan = LoadPlan { tables: rows.iter().map(|&n| table(n)).collect() };
                    let portions = cut(&plan, connections, &dialect(flavor), &[]);
                    let ranges: Vec<&Range> = portions.iter().flatten().collect();
                    for (index, &wanted) in rows.iter().enumerate() {
                        let mut next = 0;
                        for range in ranges.iter().filter(|range| range.table == index) {
                            assert_eq!(range.first, next);
                            next += range.rows;
                        }
                        assert_eq!(next, wanted, "{rows:?} on {connections}");
                    }
                    assert!(ranges.iter().all(|range| range.rows > 0));
                }
            }
        }
    }

    #[test]
    fn a_table_that_is_not_split_is_one_portion_and_long_ones_come_first() {
        let plan = LoadPlan { tables: vec![table(10), table(5_000_000), table(30)] };
        let tables_of = |flavor| -> Vec<Vec<usize>> {
            let portions = cut(&plan, 2, &dialect(flavor), &[]);
            portions.iter().map(|ranges| ranges.iter().map(|range| range.table).collect()).collect()
        };
        // Three ranges, for the undo of no more than two million rows at once.
        assert_eq!(tables_of(Flavor::Mariadb), [vec![1, 1, 1], vec![2], vec![0]]);
        assert_eq!(tables_of(Flavor::Mysql), [vec![0], vec![1], vec![1], vec![1], vec![2]]);
    }

    #[test]
    fn connections_share_a_table_with_a_stand_in_evenly() {
        let plan = LoadPlan { tables: vec![table(10_000_000), table(10)] };
        let stand_ins = [Some(StandIn::default()), None];
        let portions = cut(&plan, 2, &dialect(Flavor::Mariadb), &stand_ins);
        let rows: Vec<u64> =
            portions.iter().map(|ranges| ranges.iter().map(|range| range.rows).sum()).collect();
        assert_eq!(rows.len(), 7);
        assert_eq!((rows[..6].iter().sum(), rows[6]), (10_000_000, 10));
        assert!(rows[..6].iter().all(|&rows| (1_666_666..=1_666_667).contains(&rows)), "{rows:?}");
    }

    #[test]
    fn lines_become_tuples() {
        let mut out = Vec::new();
        push_tuple(&dialect(Flavor::Mysql), b"1\t\\N\tit's\ta\\tb\\\\c\n", &mut out);
        assert_eq!(String::from_utf8_lossy(&out), "('1',NULL,'it''s','a\tb\\\\c')");
    }

    #[test]
    fn the_first_error_is_given() {
        let result = in_parallel(3, &|index| {
            if index == 1 { Err(Error::Unsupported("one".to_owned())) } else { Ok(()) }
        });
        assert_eq!(result.map_err(|error| error.to_string()), Err("one".to_owned()));
    }
}
