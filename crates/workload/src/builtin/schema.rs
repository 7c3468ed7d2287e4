//! Tables as data: what makes CREATE TABLE, the rows and the indexes of the built-in workloads.

use crate::Dialect;
use crate::loader::TableLoad;
use crate::options::Options;
use crate::random::digits;

/// How tables are made on one kind of server.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) dialect: Dialect,
    /// What follows the columns of CREATE TABLE.
    pub(crate) suffix: String,
}

/// A table.
pub(crate) struct Table<'a> {
    pub(crate) name: &'a str,
    /// Name and type of each column, as CREATE TABLE has them.
    pub(crate) columns: &'a str,
    pub(crate) key: Key<'a>,
    /// Indexes, and what else is to be done once the rows are there.
    pub(crate) after: Vec<String>,
    pub(crate) rows: u64,
}

/// The key that rows are found by, with its columns.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Key<'a> {
    None,
    Primary(&'a str),
    /// An index of this name in place of the primary key.
    Index(&'a str, &'a str),
}

impl Schema {
    /// With [`crate::options::ENGINE`] and [`crate::options::TABLE_OPTIONS`].
    pub(crate) fn of(options: &Options, dialect: &Dialect) -> Schema {
        let (engine, more) = (options.text("mysql_storage_engine"), options.text("create_table_options"));
        Schema { suffix: dialect.table_options(engine, more), dialect: dialect.clone() }
    }

    /// The table with its rows, as [`TableLoad::push_row`] writes them. Its key stands in CREATE TABLE on InnoDB, which
    /// stores rows in it, and is built from the rows on PostgreSQL.
    pub(crate) fn table<'a>(
        &self,
        table: Table<'_>,
        push_row: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'a,
    ) -> TableLoad<'a> {
        let Table { name, columns, key, after, rows } = table;
        let (inline, later) = match (key, self.dialect.syntax().has_engines) {
            (Key::None, _) => (None, None),
            (Key::Primary(of), true) => (Some(format!(", PRIMARY KEY ({of})")), None),
            (Key::Primary(of), false) => (None, Some(format!("ALTER TABLE {name} ADD PRIMARY KEY ({of})"))),
            (Key::Index(index, of), true) => (Some(format!(", KEY {index} ({of})")), None),
            (Key::Index(index, of), false) => (None, Some(format!("CREATE INDEX {index} ON {name} ({of})"))),
        };
        let inline = inline.unwrap_or_default();
        let names: Vec<&str> = columns.split(", ").filter_map(|column| column.split(' ').next()).collect();
        TableLoad {
            name: name.to_owned(),
            create: vec![format!("CREATE TABLE {name} ({columns}{inline}){}", self.suffix)],
            columns: names.join(", "),
            rows,
            push_row: Box::new(push_row),
            after: later.into_iter().chain(after).collect(),
        }
    }

    /// A table of TPC-B, whose key counts its rows: `per_branch` of them for each of `branches`, each with its branch unless
    /// it is one, and with what `rest` has of it.
    pub(crate) fn balances<'a>(
        &self,
        name: &str,
        key: &str,
        columns: &str,
        (branches, per_branch): (u64, u64),
        rest: &'static [u8],
    ) -> TableLoad<'a> {
        let columns = &format!("{key} INTEGER NOT NULL, {columns}");
        let (key, rows) = (Key::Primary(key), branches * per_branch);
        self.table(Table { name, columns, key, after: Vec::new(), rows }, move |row, out| {
            let branch = [row / per_branch + 1];
            numbers(&[row + 1], out);
            numbers(if per_branch > 1 { &branch } else { &[] }, out);
            out.extend_from_slice(rest);
        })
    }
}

/// Numbers of a row with a tab after each.
pub(crate) fn numbers(all: &[u64], out: &mut Vec<u8>) {
    for &number in all {
        digits(number, out);
        out.push(b'\t');
    }
}
