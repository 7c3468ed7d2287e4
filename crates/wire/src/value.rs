//! What goes into a statement and what comes back.

/// A parameter of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// A signed integer.
    Int(i64),
    Double(f64),
    /// Text or bytes, in the connection's character set.
    Bytes(&'a [u8]),
}

/// The declared type of a parameter. It decides the width on the wire, once, when the statement is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamType {
    /// 32-bit integer (MySQL LONG, PostgreSQL int4).
    Int,
    /// 64-bit integer (MySQL LONGLONG, PostgreSQL int8).
    BigInt,
    /// Double (MySQL DOUBLE, PostgreSQL float8).
    Double,
    /// Text (MySQL VAR_STRING, PostgreSQL left to the server: oid 0, text format).
    Text,
}

/// The declared types of a statement's parameters, inside of the statement where they are few: a session's statements
/// then lie side by side in memory.
#[derive(Debug, Clone)]
pub(crate) enum Params {
    Few { count: u8, types: [ParamType; Params::FEW] },
    Many(Box<[ParamType]>),
}

impl Params {
    const FEW: usize = 22;

    pub(crate) fn new(params: &[ParamType]) -> Params {
        if params.len() > Params::FEW {
            return Params::Many(params.into());
        }
        let mut types = [ParamType::Int; Params::FEW];
        types[..params.len()].copy_from_slice(params);
        Params::Few { count: params.len() as u8, types }
    }
}

impl std::ops::Deref for Params {
    type Target = [ParamType];

    #[inline]
    fn deref(&self) -> &[ParamType] {
        match self {
            Params::Few { count, types } => &types[..usize::from(*count)],
            Params::Many(params) => params,
        }
    }
}

/// How the statement counts, as sysbench counts it: a result set is a read, affected rows a write, else other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatementKind {
    /// It returned a result set.
    Read,
    /// It changed at least one row.
    Write,
    /// Neither: BEGIN, COMMIT, an UPDATE that matched nothing.
    Other,
}

/// How a statement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    /// Rows changed, as the server counts them.
    pub affected_rows: u64,
    /// Rows returned.
    pub rows: u64,
    /// Whether there was a result set, be it empty.
    pub has_result_set: bool,
    /// MySQL: the first id that AUTO_INCREMENT made; 0 otherwise.
    pub last_insert_id: u64,
    /// MySQL: number of warnings; 0 on PostgreSQL.
    pub warnings: u16,
}

impl Done {
    /// Read, write or other.
    pub fn kind(&self) -> StatementKind {
        if self.has_result_set {
            StatementKind::Read
        } else if self.affected_rows > 0 {
            StatementKind::Write
        } else {
            StatementKind::Other
        }
    }
}

/// Where a column's text lies within a row's bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

/// Appends a chunk of rows; `false`: that was the last one.
pub type RowSource<'a> = &'a mut dyn FnMut(&mut Vec<u8>) -> bool;

/// One row of a result, borrowed from the connection's buffer while it is being read.
///
/// Values are text as the server would print them; MySQL's binary results are rendered that way.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    bytes: &'a [u8],
    cells: &'a [Option<Cell>],
}

impl<'a> Row<'a> {
    /// A row over `bytes`; a `None` cell is SQL NULL.
    pub fn new(bytes: &'a [u8], cells: &'a [Option<Cell>]) -> Row<'a> {
        Row { bytes, cells }
    }

    /// Number of columns.
    pub fn len(&self) -> usize {
        self.cells.len()
    }

    /// Whether the row has no column (PostgreSQL's `SELECT` without a list).
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    /// The text of column `index`, counted from 0; `None` for SQL NULL and past the last column.
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        let cell = (*self.cells.get(index)?)?;
        self.bytes.get(cell.start as usize..cell.end as usize)
    }

    /// The column as UTF-8 text, `None` where it is NULL or is not UTF-8.
    pub fn text(&self, index: usize) -> Option<&'a str> {
        std::str::from_utf8(self.get(index)?).ok()
    }

    /// A copy that outlives the buffer.
    pub fn to_owned_row(&self) -> Vec<Option<Vec<u8>>> {
        (0..self.len()).map(|i| self.get(i).map(<[u8]>::to_vec)).collect()
    }
}

/// A whole result in memory: for control work, not for load.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResultSet {
    /// Column names; empty for a statement without a result set.
    pub columns: Vec<String>,
    /// Rows; `None` is SQL NULL.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
    /// How the statement ended.
    pub done: Done,
}

impl ResultSet {
    /// The value at `row`, `column` as text; `None` for NULL, for what is not UTF-8 and outside of the result.
    pub fn text(&self, row: usize, column: usize) -> Option<&str> {
        std::str::from_utf8(self.rows.get(row)?.get(column)?.as_deref()?).ok()
    }
}

/// What the server said about itself when the session began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerInfo {
    /// The version as the server sends it: `8.0.33`, `5.5.5-10.11.6-MariaDB-1`, `18.6`.
    pub version: String,
    /// MySQL's thread id, PostgreSQL's process id.
    pub connection_id: u32,
    /// The TLS version and cipher suite in use; `None` on an unencrypted connection.
    pub tls: Option<String>,
    /// The password's proof holds for this TLS connection only (PostgreSQL's SCRAM-SHA-256-PLUS).
    pub has_channel_binding: bool,
}
