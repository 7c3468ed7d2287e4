//! What a transaction of each form and mode consists of.

use std::sync::atomic::{AtomicU64, Ordering};

use wire::ParamType;

use super::distribution::Rows;
use super::{Form, given_count};
use crate::dialect::TableLock;
use crate::engine::{Draw, Program, Role, StatementClass};
use crate::options::Options;
use crate::random::{Rng, digit_groups, digits};
use crate::{Dialect, Flavor};

/// Modes of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Complex,
    Simple,
    Select,
    UpdateKey,
    UpdateNoKey,
    Insert,
    Delete,
}

impl Mode {
    pub(super) fn of(test_mode: &str, nontrx_mode: &str) -> Mode {
        match (test_mode, nontrx_mode) {
            ("simple", _) => Mode::Simple,
            ("nontrx", "update_key") => Mode::UpdateKey,
            ("nontrx", "update_nokey") => Mode::UpdateNoKey,
            ("nontrx", "insert") => Mode::Insert,
            ("nontrx", "delete") => Mode::Delete,
            ("nontrx", _) => Mode::Select,
            _ => Mode::Complex,
        }
    }
}

/// The pad of every row that 0.4 inserts in a transaction.
const PAD_OF_INSERTS: &str = "aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy";
/// 0.4 steps through the rows to delete with this (2^31 - 1).
const DELETE_STEP: u64 = 2_147_483_647;

/// Statements of one sort within a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Begin,
    Point,
    Range(&'static str),
    Distinct,
    IndexUpdate,
    TextUpdate,
    /// 0.4: an update of k, a delete and an insert of one row; 0.5: without the update.
    Replace,
    Commit,
    /// The one statement of nontrx.
    Alone,
}

/// How often each part occurs, and the class that it begins with.
#[derive(Debug)]
struct Step {
    part: Part,
    times: u64,
    class: usize,
}

/// Draws the transactions.
#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) form: Form,
    pub(super) mode: Mode,
    rows: Rows,
    range_size: u64,
    tables: usize,
    is_read_only: bool,
    is_locking: bool,
    /// A pause of random length after each statement, from and to.
    pause_us: Option<(u64, u64)>,
    steps: Vec<Step>,
    /// Rows deleted so far in nontrx delete, over all sessions.
    deleted: AtomicU64,
}

impl Transaction {
    pub(super) fn new(
        form: Form,
        mode: Mode,
        options: &Options,
        is_transactional: bool,
        rows: Rows,
        tables: usize,
    ) -> Transaction {
        let mut transaction = Transaction {
            form,
            mode,
            rows,
            range_size: options.count("range_size"),
            tables,
            is_read_only: options.switch("read_only"),
            is_locking: !is_transactional,
            pause_us: {
                let longest = given_count(options, "user_delay_max");
                (longest > 0).then(|| (given_count(options, "user_delay_min").min(longest), longest))
            },
            steps: Vec::new(),
            deleted: AtomicU64::new(0),
        };
        let mut class = 0;
        for (part, times) in transaction.parts(options) {
            if times > 0 {
                transaction.steps.push(Step { part, times, class });
                class += transaction.classes_of(part);
            }
        }
        transaction
    }

    fn parts(&self, options: &Options) -> Vec<(Part, u64)> {
        match self.mode {
            Mode::Complex => {}
            Mode::Simple => return vec![(Part::Point, 1)],
            _ => return vec![(Part::Alone, 1)],
        }
        let of = |name: &str| options.count(name);
        let bracket = u64::from(!options.switch("skip_trx"));
        let writes = |times: u64| if self.is_read_only { 0 } else { times };
        vec![
            (Part::Begin, bracket),
            (Part::Point, of("point_selects")),
            (Part::Range("simple_range"), of("simple_ranges")),
            (Part::Range("sum_range"), of("sum_ranges")),
            (Part::Range("order_range"), of("order_ranges")),
            (Part::Distinct, of("distinct_ranges")),
            (Part::IndexUpdate, writes(of("index_updates"))),
            (Part::TextUpdate, writes(of("non_index_updates"))),
            (Part::Replace, writes(1)),
            (Part::Commit, bracket),
        ]
    }

    fn classes_of(&self, part: Part) -> usize {
        match (part, self.form) {
            (Part::Replace, Form::V04) => 3,
            (Part::Replace, Form::V05) => 2,
            _ => 1,
        }
    }

    /// The statement classes, in the order of the steps.
    pub(super) fn classes(&self, dialect: &Dialect, tables: &[String]) -> Vec<StatementClass> {
        self.steps.iter().flat_map(|step| self.classes_of_step(step, dialect, tables)).collect()
    }

    fn classes_of_step(&self, step: &Step, dialect: &Dialect, tables: &[String]) -> Vec<StatementClass> {
        use ParamType::{Int, Text};
        const ROWS: &str = "rows 1 to table_size by dist_type";
        const RANGES: &str = "first row by dist_type, range_size rows";
        let times = step.times.to_string();
        let class = |name, sql: &str, params: &[ParamType], what| {
            StatementClass::work(name, sql, params, &*times, what)
        };
        let one = |name, sql: &str, params: &[ParamType], what| vec![class(name, sql, params, what)];
        let between = "FROM {table} WHERE id BETWEEN ? AND ?";
        match step.part {
            Part::Begin if self.is_locking => {
                let lock = if self.is_read_only { TableLock::Read } else { TableLock::Write };
                let names: Vec<&str> = tables.iter().map(String::as_str).collect();
                vec![StatementClass::bracket(Role::Lock, "lock", dialect.lock_tables(&names, lock), "1")]
            }
            Part::Begin => vec![StatementClass::begin("1")],
            Part::Commit if self.is_locking => {
                vec![StatementClass::bracket(Role::Unlock, "unlock", dialect.syntax().unlock_tables, "1")]
            }
            Part::Commit => vec![StatementClass::commit("1")],
            Part::Point => one("point_select", "SELECT c FROM {table} WHERE id=?", &[Int], ROWS),
            Part::Range("sum_range") => {
                one("sum_range", &format!("SELECT SUM(k) {between}"), &[Int, Int], RANGES)
            }
            Part::Range("order_range") => {
                one("order_range", &format!("SELECT c {between} ORDER BY c"), &[Int, Int], RANGES)
            }
            Part::Range(name) => one(name, &format!("SELECT c {between}"), &[Int, Int], RANGES),
            Part::Distinct => {
                one("distinct_range", &format!("SELECT DISTINCT c {between} ORDER BY c"), &[Int, Int], RANGES)
            }
            Part::IndexUpdate => one("index_update", "UPDATE {table} SET k=k+1 WHERE id=?", &[Int], ROWS),
            Part::TextUpdate => one(
                "non_index_update",
                "UPDATE {table} SET c=? WHERE id=?",
                &[Text, Int],
                "a new c; rows by dist_type",
            ),
            Part::Replace => self.replace(&times),
            Part::Alone => match self.mode {
                Mode::UpdateKey => {
                    vec![
                        class("update_key", "UPDATE {table} SET k=k+1 WHERE id=?", &[Int], ROWS)
                            .changing(0, 1),
                    ]
                }
                Mode::UpdateNoKey => one(
                    "update_nokey",
                    "UPDATE {table} SET c=? WHERE id=?",
                    &[Text, Int],
                    "a new c; rows by dist_type",
                ),
                Mode::Insert => {
                    let what = "the server numbers the row";
                    vec![class("insert", insert_alone(dialect), &[], what).changing(1, 0)]
                }
                Mode::Delete => {
                    let what = "rows in steps of 2^31 - 1";
                    vec![class("delete", "DELETE FROM {table} WHERE id=?", &[Int], what).changing(-1, 0)]
                }
                _ => one("select", "SELECT pad FROM {table} WHERE id=?", &[Int], ROWS),
            },
        }
    }

    fn replace(&self, times: &str) -> Vec<StatementClass> {
        use ParamType::{Int, Text};
        let delete = StatementClass::work(
            "delete",
            "DELETE FROM {table} WHERE id=?",
            &[Int],
            times,
            "a row by dist_type",
        )
        .changing(-1, 0);
        match self.form {
            Form::V04 => vec![
                StatementClass::work(
                    "extra_update",
                    "UPDATE {table} SET k=k+1 WHERE id=?",
                    &[Int],
                    times,
                    "the row that is deleted next",
                ),
                delete,
                StatementClass::work(
                    "insert",
                    format!("INSERT INTO {{table}} (id, k, c, pad) VALUES (?, 0, ' ', '{PAD_OF_INSERTS}')"),
                    &[Int],
                    times,
                    "the deleted row's id",
                )
                .changing(1, 0),
            ],
            Form::V05 => vec![
                delete,
                StatementClass::work(
                    "insert",
                    "INSERT INTO {table} (id, k, c, pad) VALUES (?, ?, ?, ?)",
                    &[Int, Int, Text, Text],
                    times,
                    "the deleted row's id; k by dist_type; a new c and pad",
                )
                .changing(1, 0),
            ],
        }
    }

    /// A row number, for the k of a loaded row.
    pub(super) fn sample_row(&self, rng: &mut Rng) -> u64 {
        self.rows.sample(rng)
    }

    /// First and last row of a range. 0.4 keeps it within the table, 0.5 does not.
    fn range(&self, rng: &mut Rng, more: u64) -> (u64, u64) {
        let mut first = self.rows.sample(rng);
        if self.form == Form::V04 && first + self.range_size > self.rows.rows() {
            first = self.rows.rows().saturating_sub(self.range_size).max(1);
        }
        (first, first + self.range_size - 1 + more)
    }

    /// A new value of c.
    fn text(&self, rng: &mut Rng, out: &mut Vec<u8>) {
        if self.form == Form::V05 {
            return digit_groups(rng, 10, out);
        }
        // Ten numbers of 31 bits, as rand() gives them.
        for number in 0..10 {
            if number > 0 {
                out.push(b'-');
            }
            digits(rng.uniform(0, DELETE_STEP), out);
        }
    }

    fn draw_replace(&self, rng: &mut Rng, class: usize, table: usize, program: &mut Program) {
        let id = self.rows.sample(rng);
        for before in 0..self.classes_of(Part::Replace) - 1 {
            program.int(id);
            program.push(class + before, table);
        }
        program.int(id);
        if self.form == Form::V05 {
            program.int(self.rows.sample(rng));
            program.text(|out| digit_groups(rng, 10, out));
            program.text(|out| digit_groups(rng, 5, out));
        }
        program.push(class + self.classes_of(Part::Replace) - 1, table);
    }

    fn draw_alone(&self, rng: &mut Rng, program: &mut Program) {
        match self.mode {
            Mode::Insert => {}
            Mode::Delete => {
                let number = self.deleted.fetch_add(1, Ordering::Relaxed);
                program.int(number.wrapping_mul(DELETE_STEP) % self.rows.rows() + 1);
            }
            Mode::UpdateNoKey => {
                program.text(|out| self.text(rng, out));
                program.int(self.rows.sample(rng));
            }
            _ => program.int(self.rows.sample(rng)),
        }
    }
}

/// 0.4 gives NULL for the id, which PostgreSQL does not number.
fn insert_alone(dialect: &Dialect) -> &'static str {
    match dialect.flavor {
        Flavor::Postgres => {
            "INSERT INTO {table} (k, c, pad) VALUES (0, ' ', 'aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy')"
        }
        _ => {
            "INSERT INTO {table} VALUES (NULL, 0, ' ', 'aaaaaaaaaaffffffffffrrrrrrrrrreeeeeeeeeeyyyyyyyyyy')"
        }
    }
}

impl Draw for Transaction {
    type Memory = Rng;

    fn memory(&self, seed: u64, session: u32) -> Rng {
        Rng::stream(seed, u64::from(session))
    }

    fn draw(&self, rng: &mut Rng, program: &mut Program) {
        let table = rng.uniform(0, self.tables as u64 - 1) as usize;
        for step in &self.steps {
            for _ in 0..step.times {
                match step.part {
                    Part::Begin | Part::Commit => {}
                    Part::Point | Part::IndexUpdate => program.int(self.rows.sample(rng)),
                    Part::Range(_) | Part::Distinct => {
                        // 0.4's DISTINCT takes one row more.
                        let more = u64::from(step.part == Part::Distinct && self.form == Form::V04);
                        let (first, last) = self.range(rng, more);
                        program.int(first);
                        program.int(last);
                    }
                    Part::TextUpdate => {
                        program.text(|out| self.text(rng, out));
                        program.int(self.rows.sample(rng));
                    }
                    Part::Replace => {
                        self.draw_replace(rng, step.class, table, program);
                        continue;
                    }
                    Part::Alone => self.draw_alone(rng, program),
                }
                program.push(step.class, table);
            }
        }
        if let Some((shortest, longest)) = self.pause_us {
            program.pause_after_each(|| rng.uniform(shortest, longest));
        }
    }
}
