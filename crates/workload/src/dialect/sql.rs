//! How the statements of a workload are spelled on each family of servers.

use std::fmt::Write as _;

use super::{Dialect, Flavor};

/// How statements mark their parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placeholder {
    /// `?`
    Question,
    /// `$1`, `$2` ...
    Dollar,
}

/// Isolation levels of the SQL standard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// A mode of LOCK TABLES.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TableLock {
    /// Others may read.
    Read,
    /// Nobody else.
    Write,
}

/// What a family's SQL looks like.
#[derive(Debug)]
pub struct Syntax {
    /// Parameters of prepared statements.
    pub placeholder: Placeholder,
    /// Around identifiers that need it.
    pub identifier_quote: char,
    /// Whether a backslash escapes inside string literals.
    pub backslash_escapes: bool,
    /// A 32-bit column that numbers its rows by itself.
    pub auto_int: &'static str,
    /// A 64-bit column that numbers its rows by itself.
    pub auto_bigint: &'static str,
    /// A point in time with microseconds where the server has them.
    pub timestamp: &'static str,
    /// Whether CREATE TABLE takes an ENGINE clause.
    pub has_engines: bool,
    /// Bulk load of tab-separated text; `{table}` and `{columns}` are filled in.
    pub bulk_load: &'static str,
    /// Statistics for the planner (and what makes a fresh table fit to be read); `{table}` is filled in.
    pub analyze: &'static str,
    /// What makes a load faster when a connection sets it before. A server that refuses one of them does without.
    pub load_hints: &'static [&'static str],
    /// LOCK TABLES for reading and for writing; `{tables}` is filled in where a lock takes a list.
    pub unlock_tables: &'static str,
}

static MYSQL: Syntax = Syntax {
    placeholder: Placeholder::Question,
    identifier_quote: '`',
    backslash_escapes: true,
    auto_int: "INTEGER NOT NULL AUTO_INCREMENT",
    auto_bigint: "BIGINT NOT NULL AUTO_INCREMENT",
    timestamp: "DATETIME",
    has_engines: true,
    bulk_load: "LOAD DATA LOCAL INFILE 'plimsoll' INTO TABLE {table} CHARACTER SET binary ({columns})",
    analyze: "ANALYZE TABLE {table}",
    // Not unique_checks = 0: MariaDB takes it as a wish for its own bulk insert, which took twice the cpu (rows in
    // order of their primary key, 10.11). From 8.0.27 on MySQL sorts a new index in a buffer of the session (Reference
    // Manual, "Configuring Memory for Online DDL Operations"); before, and in MariaDB, which passes over comments
    // of such versions, in one of the server.
    // The second says the first again where its comment is passed over, because a statement cannot be nothing.
    load_hints: &[
        "SET SESSION foreign_key_checks = 0",
        "SET SESSION foreign_key_checks = 0 /*!80027 , innodb_ddl_buffer_size = 67108864 */",
    ],
    unlock_tables: "UNLOCK TABLES",
};

static POSTGRES: Syntax = Syntax {
    placeholder: Placeholder::Dollar,
    identifier_quote: '"',
    backslash_escapes: false,
    auto_int: "SERIAL",
    auto_bigint: "BIGSERIAL",
    timestamp: "TIMESTAMP",
    has_engines: false,
    bulk_load: "COPY {table} ({columns}) FROM STDIN",
    analyze: "VACUUM ANALYZE {table}",
    // The load is over when the last index is there, and a crash means loading anew; nothing waits for each commit.
    load_hints: &["SET synchronous_commit = off", "SET maintenance_work_mem = '256MB'"],
    unlock_tables: "COMMIT",
};

impl Dialect {
    /// The spelling of this family.
    pub fn syntax(&self) -> &'static Syntax {
        match self.flavor {
            Flavor::Postgres => &POSTGRES,
            Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => &MYSQL,
        }
    }

    /// Turns each `?` of a workload's statement into this family's placeholder. The statements of workloads have
    /// no `?` in their literals.
    pub fn placeholders(&self, sql: &str) -> String {
        if self.syntax().placeholder == Placeholder::Question {
            return sql.to_owned();
        }
        let mut out = String::with_capacity(sql.len() + 8);
        let mut number = 0;
        for part in sql.split_inclusive('?') {
            match part.strip_suffix('?') {
                Some(text) => {
                    number += 1;
                    // Writing to a String cannot fail.
                    let _ = write!(out, "{text}${number}");
                }
                None => out.push_str(part),
            }
        }
        out
    }

    pub fn quote(&self, identifier: &str) -> String {
        let quote = self.syntax().identifier_quote;
        let doubled = identifier.replace(quote, &format!("{quote}{quote}"));
        format!("{quote}{doubled}{quote}")
    }

    /// Appends a string literal.
    pub fn push_literal(&self, text: &[u8], out: &mut Vec<u8>) {
        out.push(b'\'');
        for &byte in text {
            if byte == b'\'' || (byte == b'\\' && self.syntax().backslash_escapes) {
                out.push(byte);
            }
            out.push(byte);
        }
        out.push(b'\'');
    }

    /// What follows the columns of CREATE TABLE: the engine, where there are engines, and the user's own options.
    pub fn table_options(&self, engine: &str, options: &str) -> String {
        let mut out = String::new();
        if self.syntax().has_engines && !engine.is_empty() {
            out.push_str(" ENGINE = ");
            out.push_str(engine);
        }
        if !options.is_empty() {
            out.push(' ');
            out.push_str(options);
        }
        out
    }

    /// Whether tables of this engine take part in transactions.
    pub fn is_transactional(&self, engine: &str) -> bool {
        const WITHOUT: &[&str] =
            &["myisam", "aria", "memory", "heap", "csv", "archive", "blackhole", "merge"];
        !self.syntax().has_engines || !WITHOUT.contains(&engine.to_ascii_lowercase().as_str())
    }

    /// The bulk load of a table: rows as lines of tab-separated text, `\N` for NULL, backslash escapes; both
    /// families read this form without further options. The text must be ASCII, which needs no conversion to any
    /// table's character set.
    pub fn bulk_load(&self, table: &str, columns: &str) -> String {
        self.syntax().bulk_load.replace("{table}", table).replace("{columns}", columns)
    }

    /// Statistics of a table.
    pub fn analyze(&self, table: &str) -> String {
        self.syntax().analyze.replace("{table}", table)
    }

    /// The statements that switch the redo log of the whole server off and on again, where it has such a switch: MySQL
    /// from 8.0.21 on. Off, a crash loses every table of the server.
    pub fn redo_log_switch(&self) -> Option<[&'static str; 2]> {
        let version = (self.version.major, self.version.minor, self.version.patch);
        let has_switch = matches!(self.flavor, Flavor::Mysql | Flavor::Percona) && version >= (8, 0, 21);
        has_switch
            .then_some(["ALTER INSTANCE DISABLE INNODB REDO_LOG", "ALTER INSTANCE ENABLE INNODB REDO_LOG"])
    }

    /// Whether connections that load different ranges of one table help each other. A table of a million rows took
    /// MySQL 8.0 1.4 s over two connections and 2.2 s over one (2 cpus); MariaDB 10.11 took 3.1 s over two, which wait
    /// for each other at every split of a page and burn the cpus meanwhile, and 2.3 s over one. Its latches are those
    /// of 10.6.
    ///
    /// A large table with AUTO_INCREMENT gets a stand-in there, which several connections do fill (`loader/stand_in.rs`).
    ///
    /// No time is won by building an index while the last rows arrive (`CREATE INDEX` does not lock): ten million rows,
    /// the index begun after six, took 95.6 s against 84.8 s, for both want the same disk and buffer pool.
    pub fn splits_tables(&self) -> bool {
        self.flavor != Flavor::Mariadb || (self.version.major, self.version.minor) < (10, 6)
    }

    /// Makes the generator of a self-numbering column go on after `last`. MySQL's follows by itself.
    pub fn continue_numbering(&self, table: &str, column: &str, last: u64) -> Option<String> {
        (self.flavor == Flavor::Postgres)
            .then(|| format!("SELECT setval(pg_get_serial_sequence('{table}', '{column}'), {last})"))
    }

    /// The isolation level of all following transactions of a session.
    pub fn set_isolation(&self, level: Isolation) -> String {
        let name = match level {
            Isolation::ReadUncommitted => "READ UNCOMMITTED",
            Isolation::ReadCommitted => "READ COMMITTED",
            Isolation::RepeatableRead => "REPEATABLE READ",
            Isolation::Serializable => "SERIALIZABLE",
        };
        match self.flavor {
            Flavor::Postgres => format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {name}"),
            _ => format!("SET SESSION TRANSACTION ISOLATION LEVEL {name}"),
        }
    }

    /// Locks tables for what engines without transactions use in their place. On PostgreSQL the lock begins a
    /// transaction, which [`Syntax::unlock_tables`] ends.
    pub fn lock_tables(&self, tables: &[&str], lock: TableLock) -> String {
        if self.flavor == Flavor::Postgres {
            let mode = if lock == TableLock::Read { "SHARE" } else { "EXCLUSIVE" };
            return format!("BEGIN; LOCK TABLE {} IN {mode} MODE", tables.join(", "));
        }
        let mode = if lock == TableLock::Read { "READ" } else { "WRITE" };
        let each: Vec<String> = tables.iter().map(|table| format!("{table} {mode}")).collect();
        format!("LOCK TABLES {}", each.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Version;

    fn dialect(flavor: Flavor) -> Dialect {
        Dialect { flavor, version: Version::default(), engine: None }
    }

    #[test]
    fn placeholders_are_numbered_on_postgres_only() {
        let sql = "UPDATE t SET a=? WHERE b BETWEEN ? AND ?";
        assert_eq!(dialect(Flavor::Mysql).placeholders(sql), sql);
        assert_eq!(
            dialect(Flavor::Postgres).placeholders(sql),
            "UPDATE t SET a=$1 WHERE b BETWEEN $2 AND $3"
        );
        assert_eq!(dialect(Flavor::Postgres).placeholders("COMMIT"), "COMMIT");
    }

    #[test]
    fn identifiers_and_literals_are_quoted() {
        assert_eq!(dialect(Flavor::Mysql).quote("a`b"), "`a``b`");
        assert_eq!(dialect(Flavor::Postgres).quote("a\"b"), "\"a\"\"b\"");
        let literal = |flavor, text: &[u8]| {
            let mut out = Vec::new();
            dialect(flavor).push_literal(text, &mut out);
            String::from_utf8(out).expect("text")
        };
        assert_eq!(literal(Flavor::Mysql, b"it's \\ here"), "'it''s \\\\ here'");
        assert_eq!(literal(Flavor::Postgres, b"it's \\ here"), "'it''s \\ here'");
    }

    #[test]
    fn the_redo_log_has_a_switch_in_mysql_8_only() {
        let has_switch = |flavor, version| {
            Dialect { flavor, version: Version::parse(version), engine: None }.redo_log_switch().is_some()
        };
        assert!(has_switch(Flavor::Mysql, "8.0.33") && has_switch(Flavor::Percona, "8.0.21"));
        assert!(!has_switch(Flavor::Mysql, "8.0.20") && !has_switch(Flavor::Mysql, "5.6.14"));
        assert!(!has_switch(Flavor::Mariadb, "10.11.5") && !has_switch(Flavor::Postgres, "18.6"));
    }

    #[test]
    fn engines_exist_in_one_family_only() {
        assert_eq!(
            dialect(Flavor::Mariadb).table_options("innodb", "MAX_ROWS=5"),
            " ENGINE = innodb MAX_ROWS=5"
        );
        assert_eq!(
            dialect(Flavor::Postgres).table_options("innodb", "WITH (fillfactor=90)"),
            " WITH (fillfactor=90)"
        );
        assert!(!dialect(Flavor::Mysql).is_transactional("MyISAM"));
        assert!(dialect(Flavor::Mysql).is_transactional("InnoDB"));
        assert!(dialect(Flavor::Postgres).is_transactional("MyISAM"));
    }
}
