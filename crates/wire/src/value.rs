//! What goes into a statement and what comes back.

/// A parameter of a prepared statement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// A signed integer.
    Int(i64),
    /// A double.
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
