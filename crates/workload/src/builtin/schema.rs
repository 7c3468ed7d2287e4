//! Tables as data: what makes CREATE TABLE, the rows and the indexes of the built-in workloads.

use crate::Dialect;
use crate::loader::TableLoad;
use crate::options::Options;

/// How tables are made on one kind of server.
#[derive(Debug)]
pub(super) struct Schema {
    pub(super) dialect: Dialect,
    /// What follows the columns of CREATE TABLE.
    pub(super) suffix: String,
}

/// A table.
pub(super) struct Table<'a> {
    pub(super) name: &'a str,
    /// Name and type of each column.
    pub(super) columns: &'a [(&'a str, &'a str)],
    pub(super) key: Key<'a>,
    /// Indexes, and what else is to be done once the rows are there.
    pub(super) after: Vec<String>,
    pub(super) rows: u64,
}

/// The key that rows are found by, with its columns.
#[derive(Debug, Clone, Copy)]
pub(super) enum Key<'a> {
    None,
    Primary(&'a str),
    /// An index of this name in place of the primary key.
    Index(&'a str, &'a str),
}

impl Schema {
    /// With [`crate::options::ENGINE`] and [`crate::options::TABLE_OPTIONS`].
    pub(super) fn of(options: &Options, dialect: &Dialect) -> Schema {
        let (engine, more) = (options.text("mysql_storage_engine"), options.text("create_table_options"));
        Schema { suffix: dialect.table_options(engine, more), dialect: dialect.clone() }
    }

    /// The table with its rows, as [`TableLoad::push_row`] writes them. Its key stands in CREATE TABLE on InnoDB, which
    /// stores rows in it, and is built from the rows on PostgreSQL.
    pub(super) fn table<'a>(
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
        let definitions: Vec<String> = columns.iter().map(|(name, kind)| format!("{name} {kind}")).collect();
        let (definitions, inline) = (definitions.join(", "), inline.unwrap_or_default());
        TableLoad {
            name: name.to_owned(),
            create: vec![format!("CREATE TABLE {name} ({definitions}{inline}){}", self.suffix)],
            columns: columns.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
            rows,
            push_row: Box::new(push_row),
            after: later.into_iter().chain(after).collect(),
        }
    }
}
