//! What a transaction of each member consists of.

use std::ops::Range;

use wire::ParamType;

use super::options::Settings;
use crate::random::{Rng, digit_groups};
use crate::statements::Template;
use crate::tally::Change;
use crate::{Flavor, StatementDoc};

/// Which member of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    ReadOnly,
    ReadWrite,
    WriteOnly,
    PointSelect,
    UpdateIndex,
    UpdateNonIndex,
    Insert,
    Delete,
    RandomPoints,
    RandomRanges,
}

/// How the parameters of a statement are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Draw {
    /// id
    Id,
    /// first id, last id
    Range,
    /// a new c, id
    TextAndId,
    /// id; the insert that follows takes the same one
    DeleteInsert,
    /// what a new row needs
    NewRow,
    /// values of k
    Points(u32),
    /// pairs of values of k
    Ranges(u32),
}

/// Like statements of a transaction: they use the same table.
#[derive(Debug)]
struct Group {
    draw: Draw,
    template: u32,
    times: u64,
}

/// A statement that was drawn: which one, on which table, with which parameters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Op {
    pub(super) template: u32,
    pub(super) table: u32,
    /// Its place in the transaction.
    pub(super) index: u32,
    /// Of the statement, in the figures.
    pub(super) class: u16,
    /// It may change what is tallied: [`Mix::effect`].
    pub(super) is_tallied: bool,
    first: u32,
    count: u32,
}

/// A parameter that was drawn.
#[derive(Debug, Clone, Copy)]
enum Drawn {
    Int(i64),
    Text { start: u32, length: u32 },
}

/// Most statements have so many parameters at most: every value that could be is written to the stack.
const VALUES_FEW: usize = 4;
/// Statements with more parameters than this pay for an allocation.
const VALUES_INLINE: usize = 24;

/// So many statements are drawn at once where transactions are small: drawing runs through code and memory that no other
/// part of a statement's way needs, and that has left the caches by the next time.
const OPS_AHEAD: usize = 16;

/// Transactions that were drawn. Their buffers are kept.
#[derive(Debug, Default)]
pub(super) struct Program {
    /// Of all of them.
    ops: Vec<Op>,
    /// Where each begins and ends in `ops`.
    transactions: Vec<Range<usize>>,
    /// How many of them were run.
    run: usize,
    /// The one that is to run.
    present: Range<usize>,
    params: Vec<Drawn>,
    text: Vec<u8>,
}

impl Program {
    /// Goes on to the next transaction. False: one has to be drawn.
    #[inline]
    fn advance(&mut self) -> bool {
        let Some(next) = self.transactions.get(self.run) else { return false };
        self.present = next.clone();
        self.run += 1;
        true
    }

    /// Statements of the transactions that are complete.
    fn drawn(&self) -> usize {
        self.transactions.last().map_or(0, |last| last.end)
    }

    /// A statement of the present transaction.
    #[inline]
    pub(super) fn op(&self, index: usize) -> Option<Op> {
        self.ops[self.present.clone()].get(index).copied()
    }

    /// Lends the parameters of a statement.
    #[inline(always)]
    pub(super) fn with_values<R>(&self, op: Op, mut lend: impl FnMut(&[wire::Value<'_>]) -> R) -> R {
        match op.count as usize {
            0..=VALUES_FEW => self.lend_array::<VALUES_FEW, R>(op, lend),
            _ => self.with_many_values(op, &mut lend),
        }
    }

    /// Out of line, because of its frame.
    #[inline(never)]
    fn with_many_values<R>(&self, op: Op, lend: &mut dyn FnMut(&[wire::Value<'_>]) -> R) -> R {
        let count = op.count as usize;
        if count <= VALUES_INLINE {
            return self.lend_array::<VALUES_INLINE, R>(op, lend);
        }
        let values: Vec<_> = (0..count).map(|index| self.value(op, index)).collect();
        lend(&values)
    }

    #[inline(always)]
    fn lend_array<const N: usize, R>(&self, op: Op, lend: impl FnOnce(&[wire::Value<'_>]) -> R) -> R {
        let mut values = [wire::Value::Null; N];
        let values = &mut values[..op.count as usize];
        for (index, value) in values.iter_mut().enumerate() {
            *value = self.value(op, index);
        }
        lend(values)
    }

    /// Parameter `index` of a statement.
    #[inline]
    pub(super) fn value(&self, op: Op, index: usize) -> wire::Value<'_> {
        match self.params[op.first as usize + index] {
            Drawn::Int(number) => wire::Value::Int(number),
            Drawn::Text { start, length } => {
                wire::Value::Bytes(&self.text[start as usize..(start + length) as usize])
            }
        }
    }

    fn clear(&mut self) {
        self.ops.clear();
        self.transactions.clear();
        self.run = 0;
        self.params.clear();
        self.text.clear();
    }

    fn int(&mut self, number: u64) {
        self.params.push(Drawn::Int(number as i64));
    }

    fn groups(&mut self, rng: &mut Rng, groups: usize) {
        let start = self.text.len();
        digit_groups(rng, groups, &mut self.text);
        self.params.push(Drawn::Text { start: start as u32, length: (self.text.len() - start) as u32 });
    }
}

/// A statement class with all that is known about it.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    template: Template,
    per_transaction: u64,
    parameters: &'static str,
    /// What one execution may change at most.
    effect: Change,
}

/// The transaction of one configured member.
#[derive(Debug)]
pub(super) struct Mix {
    kinds: Vec<Kind>,
    groups: Vec<Group>,
    /// BEGIN and COMMIT around it.
    pub(super) is_transaction: bool,
    pub(super) member: Member,
    is_atomic: bool,
    range_size: u64,
    delta: u64,
    /// Numbers of rows of one's own are drawn for the insert (no AUTO_INCREMENT).
    draws_new_ids: bool,
    /// The insert leaves the id to the server by not naming it.
    omits_id: bool,
    tables: u64,
}

const ROWS: &str = "rows 1 to table_size by rand_type";

impl Mix {
    pub(super) fn new(member: Member, settings: &Settings) -> Mix {
        let mut mix = Mix {
            kinds: Vec::new(),
            groups: Vec::new(),
            is_transaction: matches!(member, Member::ReadOnly | Member::ReadWrite | Member::WriteOnly)
                && !settings.options.switch("skip_trx"),
            member,
            is_atomic: settings.dialect.is_transactional(&settings.engine)
                && !settings.options.switch("skip_trx"),
            range_size: settings.options.count("range_size"),
            delta: if member == Member::RandomRanges { settings.options.count("delta") } else { 0 },
            draws_new_ids: !settings.is_auto_inc,
            omits_id: settings.is_auto_inc && settings.dialect.flavor == Flavor::Postgres,
            tables: settings.tables,
        };
        match member {
            Member::ReadOnly => mix.add_reads(settings),
            Member::ReadWrite => {
                mix.add_reads(settings);
                mix.add_writes(settings);
            }
            Member::WriteOnly => mix.add_writes(settings),
            Member::PointSelect => mix.add_point_selects(settings, 1),
            Member::UpdateIndex => mix.add_index_updates(settings),
            Member::UpdateNonIndex => mix.add_non_index_updates(settings),
            Member::Delete => {
                let delete = mix.add_delete(settings, 1);
                mix.groups.push(Group { draw: Draw::Id, template: delete, times: 1 });
            }
            Member::Insert => mix.add_insert_alone(settings),
            Member::RandomPoints => mix.add_random_points(settings),
            Member::RandomRanges => mix.add_random_ranges(settings),
        }
        mix
    }

    /// Adds a statement class; its index is that of its template.
    fn kind(
        &mut self,
        name: &'static str,
        sql: &str,
        params: &[ParamType],
        per_transaction: u64,
        parameters: &'static str,
    ) -> u32 {
        let index = self.kinds.len();
        self.kinds.push(Kind {
            name,
            // BEGIN comes first among the classes where there is one.
            template: Template::new(index + usize::from(self.is_transaction), sql, params),
            per_transaction,
            parameters,
            effect: Change::default(),
        });
        index as u32
    }

    fn add_point_selects(&mut self, settings: &Settings, times: u64) {
        let id = int_type(settings);
        let template = self.kind("point_select", "SELECT c FROM {table} WHERE id=?", &[id], times, ROWS);
        self.groups.push(Group { draw: Draw::Id, template, times });
    }

    fn add_reads(&mut self, settings: &Settings) {
        let options = &settings.options;
        let id = int_type(settings);
        if options.count("point_selects") > 0 {
            self.add_point_selects(settings, options.count("point_selects"));
        }
        if !options.switch("range_selects") {
            return;
        }
        let ranges = [
            ("simple_ranges", "simple_range", "SELECT c FROM {table} WHERE id BETWEEN ? AND ?"),
            ("sum_ranges", "sum_range", "SELECT SUM(k) FROM {table} WHERE id BETWEEN ? AND ?"),
            ("order_ranges", "order_range", "SELECT c FROM {table} WHERE id BETWEEN ? AND ? ORDER BY c"),
            (
                "distinct_ranges",
                "distinct_range",
                "SELECT DISTINCT c FROM {table} WHERE id BETWEEN ? AND ? ORDER BY c",
            ),
        ];
        for (option, name, sql) in ranges {
            let times = options.count(option);
            if times > 0 {
                let what = "first row by rand_type, last = first + range_size - 1";
                let template = self.kind(name, sql, &[id, id], times, what);
                self.groups.push(Group { draw: Draw::Range, template, times });
            }
        }
    }

    fn add_index_updates(&mut self, settings: &Settings) {
        let times = settings.options.count("index_updates");
        if times > 0 {
            let sql = "UPDATE {table} SET k=k+1 WHERE id=?";
            let template = self.kind("index_update", sql, &[int_type(settings)], times, ROWS);
            self.kinds[template as usize].effect = Change { rows: 0, k: 1 };
            self.groups.push(Group { draw: Draw::Id, template, times });
        }
    }

    fn add_non_index_updates(&mut self, settings: &Settings) {
        let times = settings.options.count("non_index_updates");
        if times > 0 {
            let sql = "UPDATE {table} SET c=? WHERE id=?";
            let params = [ParamType::Text, int_type(settings)];
            let template = self.kind("non_index_update", sql, &params, times, "a new c; rows by rand_type");
            self.groups.push(Group { draw: Draw::TextAndId, template, times });
        }
    }

    fn add_delete(&mut self, settings: &Settings, times: u64) -> u32 {
        let sql = "DELETE FROM {table} WHERE id=?";
        let template = self.kind("delete", sql, &[int_type(settings)], times, ROWS);
        self.kinds[template as usize].effect = Change { rows: -1, k: 0 };
        template
    }

    fn add_writes(&mut self, settings: &Settings) {
        self.add_index_updates(settings);
        self.add_non_index_updates(settings);
        let times = settings.options.count("delete_inserts");
        if times == 0 {
            return;
        }
        let id = int_type(settings);
        let template = self.add_delete(settings, times);
        let insert = self.kind(
            "insert",
            "INSERT INTO {table} (id, k, c, pad) VALUES (?, ?, ?, ?)",
            &[id, id, ParamType::Text, ParamType::Text],
            times,
            "the deleted id; k by rand_type; a new c and pad",
        );
        self.kinds[insert as usize].effect = Change { rows: 1, k: 0 };
        self.groups.push(Group { draw: Draw::DeleteInsert, template, times });
    }

    fn add_insert_alone(&mut self, settings: &Settings) {
        let id = int_type(settings);
        let (sql, params): (_, &[ParamType]) = if self.omits_id {
            ("INSERT INTO {table} (k, c, pad) VALUES (?, ?, ?)", &[id, ParamType::Text, ParamType::Text])
        } else {
            (
                "INSERT INTO {table} (id, k, c, pad) VALUES (?, ?, ?, ?)",
                &[id, id, ParamType::Text, ParamType::Text],
            )
        };
        let what = "id 0 (the server numbers it), or a unique one where auto_inc is off; k by rand_type; a new c and pad";
        let template = self.kind("insert", sql, params, 1, what);
        let kind = &mut self.kinds[template as usize];
        kind.effect = Change { rows: 1, k: 0 };
        // As sysbench does.
        kind.template.is_text = true;
        self.groups.push(Group { draw: Draw::NewRow, template, times: 1 });
    }

    fn add_random_points(&mut self, settings: &Settings) {
        let points = settings.options.count("random_points") as u32;
        let marks = vec!["?"; points as usize].join(", ");
        let sql = format!("SELECT id, k, c, pad FROM {{table}} WHERE k IN ({marks})");
        let params = vec![int_type(settings); points as usize];
        let template = self.kind("random_points", &sql, &params, 1, "values 1 to table_size by rand_type");
        self.groups.push(Group { draw: Draw::Points(points), template, times: 1 });
    }

    fn add_random_ranges(&mut self, settings: &Settings) {
        let ranges = settings.options.count("number_of_ranges") as u32;
        let marks = vec!["k BETWEEN ? AND ?"; ranges as usize].join(" OR ");
        let sql = format!("SELECT count(k) FROM {{table}} WHERE {marks}");
        let params = vec![int_type(settings); 2 * ranges as usize];
        let what = "first value 1 to table_size by rand_type, last = first + delta";
        let template = self.kind("random_ranges", &sql, &params, 1, what);
        self.groups.push(Group { draw: Draw::Ranges(ranges), template, times: 1 });
    }

    /// Makes the next transaction the present one. `new_id` gives numbers for rows where the server does not.
    #[inline]
    pub(super) fn next(
        &self,
        settings: &Settings,
        rng: &mut Rng,
        new_id: &mut dyn FnMut() -> i64,
        program: &mut Program,
    ) {
        if !program.advance() {
            self.draw_ahead(settings, rng, new_id, program);
        }
    }

    #[inline(never)]
    fn draw_ahead(
        &self,
        settings: &Settings,
        rng: &mut Rng,
        new_id: &mut dyn FnMut() -> i64,
        program: &mut Program,
    ) {
        program.clear();
        loop {
            let begin = program.drawn();
            self.draw(settings, rng, new_id, program);
            let end = program.ops.len();
            program.transactions.push(begin..end);
            if end + (end - begin) > OPS_AHEAD || begin == end {
                break;
            }
        }
        program.advance();
    }

    /// Makes a statement of the parameters pushed since `first`.
    fn push(&self, template: u32, table: u32, first: usize, program: &mut Program) {
        let kind = &self.kinds[template as usize];
        program.ops.push(Op {
            template,
            table,
            index: (program.ops.len() - program.drawn()) as u32,
            class: kind.template.class as u16,
            is_tallied: kind.effect != Change::default(),
            first: first as u32,
            count: (program.params.len() - first) as u32,
        });
    }

    /// Draws one transaction more.
    fn draw(
        &self,
        settings: &Settings,
        rng: &mut Rng,
        new_id: &mut dyn FnMut() -> i64,
        program: &mut Program,
    ) {
        for group in &self.groups {
            let table = rng.uniform(0, self.tables - 1) as u32;
            for _ in 0..group.times {
                let first = program.params.len();
                match group.draw {
                    Draw::Id => program.int(settings.rows.sample(rng)),
                    Draw::Range => {
                        let start = settings.rows.sample(rng);
                        program.int(start);
                        program.int(start + self.range_size - 1);
                    }
                    Draw::TextAndId => {
                        program.groups(rng, 10);
                        program.int(settings.rows.sample(rng));
                    }
                    Draw::DeleteInsert => {
                        let id = settings.rows.sample(rng);
                        program.int(id);
                        self.push(group.template, table, first, program);
                        self.draw_row(Some(id as i64), settings, rng, group.template + 1, table, program);
                        continue;
                    }
                    Draw::NewRow => {
                        let id = (!self.omits_id).then(|| if self.draws_new_ids { new_id() } else { 0 });
                        self.draw_row(id, settings, rng, group.template, table, program);
                        continue;
                    }
                    Draw::Points(points) => (0..points).for_each(|_| program.int(settings.rows.sample(rng))),
                    Draw::Ranges(ranges) => {
                        for _ in 0..ranges {
                            let start = settings.rows.sample(rng);
                            program.int(start);
                            program.int(start + self.delta);
                        }
                    }
                }
                self.push(group.template, table, first, program);
            }
        }
    }

    fn draw_row(
        &self,
        id: Option<i64>,
        settings: &Settings,
        rng: &mut Rng,
        template: u32,
        table: u32,
        program: &mut Program,
    ) {
        let first = program.params.len();
        program.params.extend(id.map(Drawn::Int));
        program.int(settings.rows.sample(rng));
        program.groups(rng, 10);
        program.groups(rng, 5);
        self.push(template, table, first, program);
    }

    /// What one execution of a template may change at most.
    #[inline]
    pub(super) fn effect(&self, template: u32) -> Change {
        self.kinds[template as usize].effect
    }

    /// The class of COMMIT.
    pub(super) fn commit_class(&self) -> usize {
        self.kinds.len() + 1
    }

    /// All statements that are prepared.
    pub(super) fn templates(&self) -> Vec<Template> {
        self.kinds.iter().map(|kind| kind.template.clone()).collect()
    }

    /// Names of the classes.
    pub(super) fn classes(&self) -> Vec<String> {
        let names = self.kinds.iter().map(|kind| kind.name.to_owned());
        if self.is_transaction {
            ["begin".to_owned()].into_iter().chain(names).chain(["commit".to_owned()]).collect()
        } else {
            names.collect()
        }
    }

    /// Whether a transaction happens as a whole or not at all on the tables' engine.
    pub(super) fn is_atomic(&self) -> bool {
        self.is_atomic
    }

    /// Whether what a statement changes is permanent only with the COMMIT.
    #[inline]
    pub(super) fn is_held_until_commit(&self) -> bool {
        self.is_transaction && self.is_atomic
    }

    /// Whether a whole transaction leaves as many rows as it found.
    pub(super) fn keeps_rows(&self) -> bool {
        !matches!(self.member, Member::Insert | Member::Delete)
    }

    pub(super) fn documentation(&self, settings: &Settings) -> Vec<StatementDoc> {
        let bracket = |class: &str, sql: &str| StatementDoc {
            class: class.to_owned(),
            sql: sql.to_owned(),
            per_transaction: "1".to_owned(),
            parameters: String::new(),
        };
        let own = self.kinds.iter().map(|kind| StatementDoc {
            class: kind.name.to_owned(),
            sql: settings.dialect.placeholders(&kind.template.sql.replace("{table}", "sbtestN")),
            per_transaction: kind.per_transaction.to_string(),
            parameters: kind.parameters.to_owned(),
        });
        if self.is_transaction {
            [bracket("begin", "BEGIN")].into_iter().chain(own).chain([bracket("commit", "COMMIT")]).collect()
        } else {
            own.collect()
        }
    }
}

fn int_type(settings: &Settings) -> ParamType {
    if settings.has_wide_parameters() { ParamType::BigInt } else { ParamType::Int }
}
