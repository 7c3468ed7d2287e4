//! dbSTRESS-like: objects with their history, after D. Kravtchuk's db_STRESS. His SQL and schema were not to be
//! found; what is known of them and what is reconstructed is told in [`DESCRIPTION`].

use std::sync::Arc;

use load::StepResult;
use wire::ParamType;

use super::Single;
use super::drawn::{Drawn, Own};
use super::schema::{Key, Schema, Table};
use crate::engine::sums::{Sum, Wanted};
use crate::engine::{Draw, DrawnWorkload, Program, StatementClass};
use crate::loader::TableLoad;
use crate::options::{DATA_SEED, ENGINE, Options, PS_MODE, TABLE_OPTIONS};
use crate::random::{Rng, digit_groups, digits};
use crate::{Dialect, Figure, Flavor, Given, OptionError, OptionSpec};

const TARGETS: &[&str] = &["same", "random"];

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::count("dbsize", "1000000", 1, 9_999_999_999, "objects; each has 20 rows of history"),
    OptionSpec::count("rw", "0", 0, 1_000_000, "0: read-only; n: one WRITE after each n READs"),
    OptionSpec::word(
        "write_target",
        "same",
        TARGETS,
        "same: a WRITE changes the object that the last READ read; random: any object",
    ),
    OptionSpec::count("history_partitions", "0", 0, 8192, "partitions of history by key; 0: none"),
    OptionSpec::switch(
        "history_primary_key",
        "off",
        "on: (ref_object, horder) is a primary key, not an index",
    ),
    PS_MODE,
    ENGINE,
    TABLE_OPTIONS,
    DATA_SEED,
];

const DESCRIPTION: &str = "\
Objects with their history, after db_STRESS of Dimitri Kravtchuk (dimitrik.free.fr, reports of 2007 to 2009).

Known from the reports: the scenarios Read-Only (RW=0) and Read+Write (RW=1), the knobs dbsize, think time and \
partitions of HISTORY, sessions of 1, 2, 4 ... 256 in one sequence, random or same objects written, TPS as the \
figure, and that the index of HISTORY is the hot spot of writes.

RECONSTRUCTED here, because neither the program nor its SQL is public: the columns, the texts of SEL1, SEL2 and \
WRITE, 10 zones, 100 sections, 1000 stats and 20 rows of history for each object. Compare its figures with each \
other, not with the reports'.

A READ is SEL1 and SEL2 of one random object; a WRITE deletes, inserts and updates rows of history in a \
transaction. Each is a transaction in the figures: TPS = reads + writes. Both also have a latency class of their \
own (READ, WRITE). Think time is the study's `think_time`; active sessions are those that are not thinking.";

/// Rows of history of one object.
const HISTORY_ROWS: u64 = 20;
const ZONES: u64 = 10;
const SECTIONS: u64 = 100;
const STATS: u64 = 1000;

pub(super) const WORKLOAD: Single = Single {
    name: "dbstress",
    summary: "objects with their history, read and rewritten (dbSTRESS-like, reconstructed)",
    description: DESCRIPTION,
    options: OPTIONS,
    transactions: &[READ, WRITE],
    configure: |given, dialect| Ok(Box::new(configured(given, dialect)?)),
};

fn configured(given: &Given, dialect: Dialect) -> Result<Drawn<Stress>, OptionError> {
    let options = Options::for_server("dbstress", OPTIONS, given, &dialect)?;
    let partitions = options.count("history_partitions");
    if partitions > 0 && dialect.flavor == Flavor::Postgres && dialect.version.major < 11 {
        return Err(OptionError::Invalid {
            name: "history_partitions".to_owned(),
            value: partitions.to_string(),
            allowed: "PostgreSQL has partitions by hash from version 11 on".to_owned(),
        });
    }
    let stress = Stress {
        objects: options.count("dbsize"),
        reads_per_write: options.count("rw"),
        is_same_object: options.text("write_target") == "same",
    };
    let classes = classes(&stress);
    let workload = DrawnWorkload {
        transactions: match stress.reads_per_write {
            0 => vec![READ.to_owned()],
            _ => vec![READ.to_owned(), WRITE.to_owned()],
        },
        is_prepared: options.is_prepared(),
        is_atomic: dialect.is_transactional(options.text("mysql_storage_engine")),
        // Two sessions that rewrite one object under PostgreSQL's primary key: the second one lost the race.
        retryable: &["23505"],
        ..DrawnWorkload::new(stress, dialect, classes)
    };
    Ok(Drawn { options, workload: Arc::new(workload) })
}

/// Classes of transactions.
const READ: &str = "READ";
const WRITE: &str = "WRITE";

/// Indices of the statement classes.
const SEL1: usize = 0;
const SEL2: usize = 1;
const BEGIN: usize = 2;
const DELETE: usize = 3;
const INSERT: usize = 4;
const UPDATE: usize = 5;
const COMMIT: usize = 6;

fn classes(stress: &Stress) -> Vec<StatementClass> {
    use ParamType::{Int, Text};
    let writes = stress.reads_per_write;
    let reading =
        if writes == 0 { "1".to_owned() } else { format!("1, {writes} of {} transactions", writes + 1) };
    let mut classes = vec![
        StatementClass::work(
            "sel1",
            "SELECT o.ref, o.name, o.note, s.ref, s.name, z.ref, z.name FROM object o \
             JOIN section s ON s.ref = o.ref_section JOIN zone z ON z.ref = s.ref_zone WHERE o.ref = ?",
            &[Text],
            reading.clone(),
            "an object, uniform over dbsize",
        ),
        StatementClass::work(
            "sel2",
            "SELECT h.horder, h.ref_stat, t.name, h.begin_date, h.end_date, h.note FROM history h \
             JOIN stat t ON t.ref = h.ref_stat WHERE h.ref_object = ? ORDER BY h.horder",
            &[Text],
            reading,
            "the same object: about 20 rows",
        ),
    ];
    if writes == 0 {
        return classes;
    }
    let writing = format!("1 of {} transactions", writes + 1);
    let target =
        if stress.is_same_object { "the object of the last READ" } else { "an object, uniform over dbsize" };
    classes.extend([
        StatementClass::begin(&writing),
        StatementClass::work(
            "delete",
            "DELETE FROM history WHERE ref_object = ? AND horder = ?",
            &[Text, Int],
            writing.clone(),
            target,
        )
        .changing(-1, 0),
        StatementClass::work(
            "insert",
            "INSERT INTO history (ref_object, horder, ref_stat, begin_date, end_date, note) \
             VALUES (?, ?, ?, ?, ?, ?)",
            &[Text, Int, Text, Text, Text, Text],
            writing.clone(),
            "the same object and horder 20; new values",
        )
        .changing(1, 0),
        StatementClass::work(
            "update",
            "UPDATE history SET ref_stat = ?, begin_date = ?, end_date = ?, note = ? \
             WHERE ref_object = ? AND horder = ?",
            &[Text, Text, Text, Text, Text, Int],
            writing.clone(),
            "new values; the same object, horder 1",
        ),
        StatementClass::commit(&writing),
    ]);
    classes
}

/// What a session remembers.
#[derive(Debug)]
struct Memory {
    rng: Rng,
    /// Transactions drawn so far.
    turn: u64,
    /// Of the last READ, or the last one that was drawn.
    object: u64,
}

/// Draws READs and WRITEs.
#[derive(Debug)]
struct Stress {
    objects: u64,
    reads_per_write: u64,
    is_same_object: bool,
}

impl Draw for Stress {
    type Memory = Memory;

    fn memory(&self, seed: u64, session: u32) -> Memory {
        Memory { rng: Rng::stream(seed, u64::from(session)), turn: 0, object: 0 }
    }

    fn draw(&self, memory: &mut Memory, program: &mut Program) {
        let cycle = self.reads_per_write + 1;
        let is_write = self.reads_per_write > 0 && memory.turn % cycle == self.reads_per_write;
        memory.turn += 1;
        if !is_write || !self.is_same_object {
            memory.object = memory.rng.uniform(1, self.objects);
        }
        let object = memory.object;
        if !is_write {
            for class in [SEL1, SEL2] {
                program.text(|out| padded(object, 10, out));
                program.push(class, 0);
            }
            program.class(0);
            return;
        }
        program.push(BEGIN, 0);
        program.text(|out| padded(object, 10, out));
        program.int(HISTORY_ROWS);
        program.push(DELETE, 0);
        program.text(|out| padded(object, 10, out));
        program.int(HISTORY_ROWS);
        new_values(&mut memory.rng, program);
        program.push(INSERT, 0);
        new_values(&mut memory.rng, program);
        program.text(|out| padded(object, 10, out));
        program.int(1);
        program.push(UPDATE, 0);
        program.push(COMMIT, 0);
        program.class(1);
    }
}

fn new_values(rng: &mut Rng, program: &mut Program) {
    program.text(|out| stat(rng, out));
    program.text(|out| date(rng, out));
    program.text(|out| date(rng, out));
    program.text(|out| note(rng, out));
}

/// A number with leading zeros.
fn padded(number: u64, width: usize, out: &mut Vec<u8>) {
    let start = out.len();
    digits(number, out);
    let length = out.len() - start;
    if length < width {
        out.splice(start..start, std::iter::repeat_n(b'0', width - length));
    }
}

fn stat(rng: &mut Rng, out: &mut Vec<u8>) {
    padded(rng.uniform(0, STATS - 1), 3, out);
}

/// Year, month, day, hour and minute in twelve digits.
fn date(rng: &mut Rng, out: &mut Vec<u8>) {
    padded(rng.uniform(1990, 2009), 4, out);
    padded(rng.uniform(1, 12), 2, out);
    padded(rng.uniform(1, 28), 2, out);
    padded(rng.uniform(0, 23), 2, out);
    padded(rng.uniform(0, 59), 2, out);
}

/// 95 characters.
fn note(rng: &mut Rng, out: &mut Vec<u8>) {
    digit_groups(rng, 8, out);
}

/// A name of 35 characters.
fn name(rng: &mut Rng, out: &mut Vec<u8>) {
    digit_groups(rng, 3, out);
}

/// Changes with anything that changes the bytes of generated rows. 2: PostgreSQL builds the primary key from the rows.
const GENERATOR_VERSION: u32 = 2;

impl Drawn<Stress> {
    /// A table of the reference data or of objects, all of which have names and notes.
    fn table<'a>(
        &self,
        name: &str,
        columns: &str,
        rows: u64,
        push_row: impl Fn(&mut Rng, u64, &mut Vec<u8>) + Send + Sync + 'a,
    ) -> TableLoad<'a> {
        let seed = self.options.count("data_seed") ^ (name.len() as u64) << 40;
        let columns = &format!("{columns}, name CHAR(40) NOT NULL, note CHAR(100) NOT NULL");
        Schema::of(&self.options, &self.workload.dialect).table(
            Table { name, columns, key: Key::Primary("ref"), after: Vec::new(), rows },
            move |row, out| push_row(&mut Rng::stream(seed, row), row, out),
        )
    }

    fn history(&self) -> TableLoad<'_> {
        let is_postgres = self.workload.dialect.flavor == Flavor::Postgres;
        let partitions = self.options.count("history_partitions");
        let mut schema = Schema::of(&self.options, &self.workload.dialect);
        match (partitions, is_postgres) {
            (0, _) => {}
            // PostgreSQL's storage options belong to the partitions, which have none here.
            (_, true) => schema.suffix = " PARTITION BY HASH (ref_object)".to_owned(),
            (count, false) => {
                schema.suffix.push_str(&format!(" PARTITION BY KEY (ref_object) PARTITIONS {count}"));
            }
        }
        const ORDER: &str = "ref_object, horder";
        let (key, index) = match self.options.switch("history_primary_key") {
            true => (Key::Primary(ORDER), None),
            false => (Key::None, Some(format!("CREATE INDEX history_object ON history ({ORDER})"))),
        };
        let history = Table {
            name: "history",
            columns: "ref_object CHAR(10) NOT NULL, horder INTEGER NOT NULL, ref_stat CHAR(3) NOT NULL, \
                      begin_date CHAR(12) NOT NULL, end_date CHAR(12) NOT NULL, note CHAR(100) NOT NULL",
            key,
            after: index.into_iter().collect(),
            rows: self.workload.draw.objects * HISTORY_ROWS,
        };
        let seed = self.options.count("data_seed") ^ 0x4849_5354;
        let mut history =
            schema.table(history, move |row, out| history_row(&mut Rng::stream(seed, row), row, out));
        if is_postgres {
            history.create.extend((0..partitions).map(|number| {
                format!(
                    "CREATE TABLE history_{number} PARTITION OF history \
                     FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
                )
            }));
        }
        history
    }
}

impl Own for Drawn<Stress> {
    fn key(&self) -> String {
        let names = [
            "dbsize",
            "history_partitions",
            "history_primary_key",
            "mysql_storage_engine",
            "create_table_options",
            "data_seed",
        ];
        format!("dbstress v{GENERATOR_VERSION}{}", self.options.key_of(&names))
    }

    fn bytes_on_disk(&self) -> u64 {
        // 20 rows of history of about 190 bytes with their index, and the object itself.
        self.workload.draw.objects.saturating_mul(20 * 230 + 250).saturating_add(1_000_000)
    }

    fn tables(&self) -> Vec<TableLoad<'_>> {
        let named = |rng: &mut Rng, out: &mut Vec<u8>| {
            out.push(b'\t');
            name(rng, out);
            out.push(b'\t');
            note(rng, out);
            out.push(b'\n');
        };
        vec![
            self.table("zone", "ref CHAR(2) NOT NULL", ZONES, move |rng, row, out| {
                padded(row, 2, out);
                named(rng, out);
            }),
            self.table(
                "section",
                "ref CHAR(2) NOT NULL, ref_zone CHAR(2) NOT NULL",
                SECTIONS,
                move |rng, row, out| {
                    padded(row, 2, out);
                    out.push(b'\t');
                    padded(row % ZONES, 2, out);
                    named(rng, out);
                },
            ),
            self.table("stat", "ref CHAR(3) NOT NULL", STATS, move |rng, row, out| {
                padded(row, 3, out);
                named(rng, out);
            }),
            self.table(
                "object",
                "ref CHAR(10) NOT NULL, ref_section CHAR(2) NOT NULL",
                self.workload.draw.objects,
                move |rng, row, out| {
                    padded(row + 1, 10, out);
                    out.push(b'\t');
                    padded(row % SECTIONS, 2, out);
                    named(rng, out);
                },
            ),
            self.history(),
        ]
    }

    fn sums(&self) -> Vec<Sum> {
        vec![
            Sum::of_rows("rows of history", ["history"], Wanted::Rows),
            Sum::of_rows("rows of object", ["object"], Wanted::Exactly(self.workload.draw.objects)),
        ]
    }

    fn own_figures(&self, step: &StepResult) -> Vec<Figure> {
        let of = |class: &str, name: &str| {
            let count =
                step.by_statement.iter().find(|found| found.name == class).map(|found| found.count)?;
            (step.duration_s > 0.0).then(|| Figure {
                name: name.to_owned(),
                value: count as f64 / step.duration_s,
                unit: "1/s".to_owned(),
                limit: None,
            })
        };
        [of("sel1", "READ"), of("commit", "WRITE")].into_iter().flatten().collect()
    }
}

fn history_row(rng: &mut Rng, row: u64, out: &mut Vec<u8>) {
    padded(row / HISTORY_ROWS + 1, 10, out);
    out.push(b'\t');
    digits(row % HISTORY_ROWS + 1, out);
    out.push(b'\t');
    stat(rng, out);
    out.push(b'\t');
    date(rng, out);
    out.push(b'\t');
    date(rng, out);
    out.push(b'\t');
    note(rng, out);
    out.push(b'\n');
}

/// What is drawn, for the test of all workloads.
#[cfg(test)]
pub(super) fn drawn(given: &Given, dialect: Dialect) -> u64 {
    crate::engine::seen::checksum(&configured(given, dialect).expect("good options").workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;
    use crate::engine::seen;

    fn stress(flavor: Flavor, major: u16, given: &[(&str, &str)]) -> Result<Drawn<Stress>, OptionError> {
        let given = given.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let version = Version { major, ..Version::default() };
        configured(&given, Dialect { flavor, version, engine: None })
    }

    #[test]
    fn one_write_follows_each_n_reads_on_the_same_object() {
        let stress = stress(Flavor::Mysql, 8, &[("rw", "3"), ("dbsize", "1000")]).expect("good options");
        let mut memory = stress.workload.draw.memory(1, 0);
        let mut kinds = Vec::new();
        let mut last_read = String::new();
        for _ in 0..8 {
            let transaction = seen::transaction(&stress.workload, &mut memory);
            let names: Vec<&str> = transaction.iter().map(|(name, _)| *name).collect();
            let object =
                transaction.iter().find_map(|(_, values)| values.first()).expect("an object").clone();
            if names.len() == 2 {
                assert_eq!(names, ["sel1", "sel2"]);
                last_read = object;
                kinds.push('r');
            } else {
                assert_eq!(names, ["begin", "delete", "insert", "update", "commit"]);
                assert_eq!(object, last_read);
                assert_eq!(transaction[1].1[1], "20");
                assert_eq!(transaction[3].1[4..], [last_read.clone(), "1".to_owned()]);
                kinds.push('w');
            }
        }
        assert_eq!(kinds.iter().collect::<String>(), "rrrwrrrw");
    }

    #[test]
    fn read_only_never_writes_and_random_targets_differ() {
        let reads = stress(Flavor::Postgres, 16, &[("dbsize", "100")]).expect("good options");
        let mut memory = reads.workload.draw.memory(3, 0);
        assert!((0..50).all(|_| seen::transaction(&reads.workload, &mut memory).len() == 2));
        let random =
            stress(Flavor::Postgres, 16, &[("rw", "1"), ("write_target", "random")]).expect("options");
        let mut memory = random.workload.draw.memory(3, 0);
        let read = seen::transaction(&random.workload, &mut memory)[0].1[0].clone();
        assert_ne!(seen::transaction(&random.workload, &mut memory)[1].1[0], read);
    }

    #[test]
    fn rows_are_as_documented() {
        let stress = stress(Flavor::Mysql, 8, &[("dbsize", "50")]).expect("good options");
        let tables = stress.tables();
        let rows: Vec<(&str, u64)> = tables.iter().map(|table| (table.name.as_str(), table.rows)).collect();
        assert_eq!(rows, [("zone", 10), ("section", 100), ("stat", 1000), ("object", 50), ("history", 1000)]);
        let line = |table: usize, row: u64| {
            let mut out = Vec::new();
            (tables[table].push_row)(row, &mut out);
            String::from_utf8(out).expect("ASCII").trim_end().to_owned()
        };
        let object = line(3, 49);
        assert!(object.starts_with("0000000050\t49\t"), "{object}");
        let fields = line(4, 999);
        let fields: Vec<&str> = fields.split('\t').collect();
        assert_eq!((fields[0], fields[1], fields.len()), ("0000000050", "20", 6));
        assert_eq!((fields[2].len(), fields[3].len(), fields[4].len()), (3, 12, 12));
        assert!(fields[5].len() <= 100);
        assert_eq!(line(4, 999), line(4, 999));
    }

    #[test]
    fn partitions_and_keys_reach_the_schema() {
        let given = [("history_partitions", "4"), ("history_primary_key", "on"), ("dbsize", "10")];
        let mysql = stress(Flavor::Mysql, 8, &given).expect("good options");
        let create = &mysql.tables()[4].create;
        assert!(create[0].ends_with(
            "PRIMARY KEY (ref_object, horder)) ENGINE = innodb PARTITION BY KEY (ref_object) PARTITIONS 4"
        ));
        let postgres = stress(Flavor::Postgres, 16, &given).expect("good options");
        assert_eq!(postgres.tables()[4].create.len(), 5);
        assert!(stress(Flavor::Postgres, 9, &given).is_err());
    }
}
