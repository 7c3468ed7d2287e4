//! What a transaction of each member consists of.

use wire::ParamType;

use super::options::Settings;
use crate::Flavor;
use crate::engine::ids::NewIds;
use crate::engine::{Draw, Program, StatementClass};
use crate::random::{Rng, digit_groups};

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

impl Member {
    /// Whether a whole transaction leaves as many rows as it found.
    pub(super) fn keeps_rows(self) -> bool {
        !matches!(self, Member::Insert | Member::Delete)
    }

    fn has_brackets(self) -> bool {
        matches!(self, Member::ReadOnly | Member::ReadWrite | Member::WriteOnly)
    }
}

/// How the parameters of statements are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parameters {
    /// None: BEGIN or COMMIT, and no table either.
    Bracket,
    Id,
    /// first id, last id
    Range,
    /// a new c, id
    TextAndId,
    /// id, for the delete and the insert that follows
    DeleteInsert,
    /// what a new row needs
    NewRow,
    /// so many values of k
    Points(u64),
    /// so many pairs of values of k
    Ranges(u64),
}

/// Like statements of a transaction: they use the same table.
#[derive(Debug)]
struct Group {
    parameters: Parameters,
    /// The first of its classes.
    class: usize,
    times: u64,
}

/// The transaction of one configured member.
#[derive(Debug)]
pub(super) struct Mix {
    groups: Vec<Group>,
    range_size: u64,
    delta: u64,
    new_row_id: NewRowId,
    pub(super) member: Member,
    pub(super) settings: Settings,
}

/// The id of a row that is inserted alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewRowId {
    /// Not named, so that the server numbers it.
    Omitted,
    /// 0, which the server replaces.
    Zero,
    /// A unique one: no AUTO_INCREMENT.
    Drawn,
}

impl NewRowId {
    fn of(settings: &Settings) -> NewRowId {
        match (settings.is_auto_inc, settings.dialect.flavor) {
            (false, _) => NewRowId::Drawn,
            (true, Flavor::Postgres) => NewRowId::Omitted,
            (true, _) => NewRowId::Zero,
        }
    }
}

const ROWS: &str = "rows 1 to table_size by rand_type";

/// Statements before they have a place: how they are drawn, how often, their classes.
type Part = (Parameters, u64, Vec<StatementClass>);

impl Mix {
    /// With the statements of a transaction.
    pub(super) fn new(member: Member, settings: Settings) -> (Mix, Vec<StatementClass>) {
        let mut parts = parts(member, &settings);
        if member.has_brackets() && !settings.options.switch("skip_trx") {
            parts.insert(0, (Parameters::Bracket, 1, vec![StatementClass::begin("1")]));
            parts.push((Parameters::Bracket, 1, vec![StatementClass::commit("1")]));
        }
        let (mut groups, mut classes) = (Vec::new(), Vec::new());
        for (parameters, times, of_part) in parts.into_iter().filter(|(_, times, _)| *times > 0) {
            groups.push(Group { parameters, class: classes.len(), times });
            classes.extend(of_part);
        }
        let mix = Mix {
            groups,
            range_size: settings.options.count("range_size"),
            delta: if member == Member::RandomRanges { settings.options.count("delta") } else { 0 },
            new_row_id: NewRowId::of(&settings),
            member,
            settings,
        };
        (mix, classes)
    }

    /// The parameters of a whole row, and its insert.
    fn draw_row(&self, id: Option<i64>, rng: &mut Rng, class: usize, table: usize, program: &mut Program) {
        if let Some(id) = id {
            program.signed(id);
        }
        program.int(self.settings.rows.sample(rng));
        program.text(|out| digit_groups(rng, 10, out));
        program.text(|out| digit_groups(rng, 5, out));
        program.push(class, table);
    }

    fn draw_statements(&self, group: &Group, table: usize, memory: &mut Memory, program: &mut Program) {
        let Memory { rng, ids } = memory;
        match group.parameters {
            Parameters::Bracket => {}
            Parameters::Id => program.int(self.settings.rows.sample(rng)),
            Parameters::Range => {
                let first = self.settings.rows.sample(rng);
                program.int(first);
                program.int(first + self.range_size - 1);
            }
            Parameters::TextAndId => {
                program.text(|out| digit_groups(rng, 10, out));
                program.int(self.settings.rows.sample(rng));
            }
            Parameters::DeleteInsert => {
                let id = self.settings.rows.sample(rng);
                program.int(id);
                program.push(group.class, table);
                return self.draw_row(Some(id as i64), rng, group.class + 1, table, program);
            }
            Parameters::NewRow => {
                let id = match self.new_row_id {
                    NewRowId::Omitted => None,
                    NewRowId::Zero => Some(0),
                    NewRowId::Drawn => Some(ids.next()),
                };
                return self.draw_row(id, rng, group.class, table, program);
            }
            Parameters::Points(points) => {
                (0..points).for_each(|_| program.int(self.settings.rows.sample(rng)))
            }
            Parameters::Ranges(ranges) => {
                for _ in 0..ranges {
                    let first = self.settings.rows.sample(rng);
                    program.int(first);
                    program.int(first + self.delta);
                }
            }
        }
        program.push(group.class, table);
    }
}

/// What a session draws from.
#[derive(Debug)]
pub(super) struct Memory {
    rng: Rng,
    ids: NewIds,
}

impl Draw for Mix {
    type Memory = Memory;

    fn memory(&self, seed: u64, session: u32) -> Memory {
        Memory {
            rng: Rng::stream(seed, u64::from(session)),
            ids: NewIds::new(self.settings.table_size, seed),
        }
    }

    fn draw(&self, memory: &mut Memory, program: &mut Program) {
        for group in &self.groups {
            let table = match group.parameters {
                Parameters::Bracket => 0,
                _ => memory.rng.uniform(0, self.settings.tables - 1) as usize,
            };
            for _ in 0..group.times {
                self.draw_statements(group, table, memory, program);
            }
        }
    }
}

fn parts(member: Member, settings: &Settings) -> Vec<Part> {
    match member {
        Member::ReadOnly => reads(settings),
        Member::ReadWrite => reads(settings).into_iter().chain(writes(settings)).collect(),
        Member::WriteOnly => writes(settings),
        Member::PointSelect => vec![point_selects(settings, 1)],
        Member::UpdateIndex => vec![index_updates(settings)],
        Member::UpdateNonIndex => vec![non_index_updates(settings)],
        Member::Delete => vec![(Parameters::Id, 1, vec![delete(settings, 1)])],
        Member::Insert => vec![insert_alone(settings)],
        Member::RandomPoints => vec![random_points(settings)],
        Member::RandomRanges => vec![random_ranges(settings)],
    }
}

fn point_selects(settings: &Settings, times: u64) -> Part {
    let class = StatementClass::work(
        "point_select",
        "SELECT c FROM {table} WHERE id=?",
        &[int_type(settings)],
        times.to_string(),
        ROWS,
    );
    (Parameters::Id, times, vec![class])
}

fn reads(settings: &Settings) -> Vec<Part> {
    let mut parts = vec![point_selects(settings, settings.options.count("point_selects"))];
    if !settings.options.switch("range_selects") {
        return parts;
    }
    let id = int_type(settings);
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
    parts.extend(ranges.map(|(option, name, sql)| {
        let times = settings.options.count(option);
        let what = "first row by rand_type, last = first + range_size - 1";
        let class = StatementClass::work(name, sql, &[id, id], times.to_string(), what);
        (Parameters::Range, times, vec![class])
    }));
    parts
}

fn index_updates(settings: &Settings) -> Part {
    let times = settings.options.count("index_updates");
    let class = StatementClass::work(
        "index_update",
        "UPDATE {table} SET k=k+1 WHERE id=?",
        &[int_type(settings)],
        times.to_string(),
        ROWS,
    );
    (Parameters::Id, times, vec![class.changing(0, 1)])
}

fn non_index_updates(settings: &Settings) -> Part {
    let times = settings.options.count("non_index_updates");
    let class = StatementClass::work(
        "non_index_update",
        "UPDATE {table} SET c=? WHERE id=?",
        &[ParamType::Text, int_type(settings)],
        times.to_string(),
        "a new c; rows by rand_type",
    );
    (Parameters::TextAndId, times, vec![class])
}

fn delete(settings: &Settings, times: u64) -> StatementClass {
    let sql = "DELETE FROM {table} WHERE id=?";
    StatementClass::work("delete", sql, &[int_type(settings)], times.to_string(), ROWS).changing(-1, 0)
}

fn writes(settings: &Settings) -> Vec<Part> {
    let id = int_type(settings);
    let pairs = settings.options.count("delete_inserts");
    let insert = StatementClass::work(
        "insert",
        "INSERT INTO {table} (id, k, c, pad) VALUES (?, ?, ?, ?)",
        &[id, id, ParamType::Text, ParamType::Text],
        pairs.to_string(),
        "the deleted id; k by rand_type; a new c and pad",
    );
    let of_pair = vec![delete(settings, pairs), insert.changing(1, 0)];
    vec![index_updates(settings), non_index_updates(settings), (Parameters::DeleteInsert, pairs, of_pair)]
}

fn insert_alone(settings: &Settings) -> Part {
    let id = int_type(settings);
    let (sql, params): (_, &[ParamType]) = match NewRowId::of(settings) {
        NewRowId::Omitted => {
            ("INSERT INTO {table} (k, c, pad) VALUES (?, ?, ?)", &[id, ParamType::Text, ParamType::Text])
        }
        NewRowId::Zero | NewRowId::Drawn => (
            "INSERT INTO {table} (id, k, c, pad) VALUES (?, ?, ?, ?)",
            &[id, id, ParamType::Text, ParamType::Text],
        ),
    };
    let what = "id 0 (the server numbers it), or a unique one where auto_inc is off; k by rand_type; a new c and pad";
    // As text, as sysbench sends it.
    let class = StatementClass::work("insert", sql, params, "1", what).never_prepared();
    (Parameters::NewRow, 1, vec![class.changing(1, 0)])
}

fn random_points(settings: &Settings) -> Part {
    let points = settings.options.count("random_points");
    let marks = vec!["?"; points as usize].join(", ");
    let sql = format!("SELECT id, k, c, pad FROM {{table}} WHERE k IN ({marks})");
    let params = vec![int_type(settings); points as usize];
    let what = "values 1 to table_size by rand_type";
    (Parameters::Points(points), 1, vec![StatementClass::work("random_points", sql, &params, "1", what)])
}

fn random_ranges(settings: &Settings) -> Part {
    let ranges = settings.options.count("number_of_ranges");
    let marks = vec!["k BETWEEN ? AND ?"; ranges as usize].join(" OR ");
    let sql = format!("SELECT count(k) FROM {{table}} WHERE {marks}");
    let params = vec![int_type(settings); 2 * ranges as usize];
    let what = "first value 1 to table_size by rand_type, last = first + delta";
    (Parameters::Ranges(ranges), 1, vec![StatementClass::work("random_ranges", sql, &params, "1", what)])
}

fn int_type(settings: &Settings) -> ParamType {
    if settings.has_wide_parameters() { ParamType::BigInt } else { ParamType::Int }
}
