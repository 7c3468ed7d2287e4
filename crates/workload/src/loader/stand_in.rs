//! A stand-in takes the rows of a large table of MariaDB over several connections, then the table's place.
//!
//! InnoDB of MariaDB 10.6 and later writes each number of an AUTO_INCREMENT column to the root page of the primary key
//! and latches it for that, so that connections that fill one such table wait for each other at every row. The stand-in
//! is the same table without AUTO_INCREMENT, with one partition, whose rows change places with those of the empty table
//! at the end (`ALTER TABLE ... EXCHANGE PARTITION`), which moves no row.
//!
//! Measured on 2 cpus (10.11), rows alone over one connection and over two: a million 4.5 s and 3.0 s, two million 8.7 s
//! and 6.0 s, ten million 43 s and 31 s. On an older machine, where one connection took 2 s for a million, two took
//! from a third less to a third more.

use super::name_literal;
use crate::control::Control;
use crate::{Dialect, Error, Flavor};

/// For fewer rows the stand-in's four statements take longer than it saves.
const ROWS_MIN: u64 = 300_000;

/// A table that rows are loaded into in place of another, which is there and empty.
#[derive(Debug, Default)]
pub(super) struct StandIn {
    table: String,
    name: String,
    key: String,
    key_type: String,
}

impl StandIn {
    /// A stand-in for a table that so many rows are loaded into, made anew; `None` where it would save nothing or cannot
    /// take the table's place.
    ///
    /// # Errors
    /// The server refused to say what the table is like.
    pub(super) fn make(control: &mut Control, table: &str, rows: u64) -> Result<Option<StandIn>, Error> {
        if !helps(control.dialect()) || rows < ROWS_MIN {
            return Ok(None);
        }
        let stand_in = match StandIn::find(control, table) {
            Err(Error::Statement { source: wire::Error::Server(_), .. }) => None,
            found => found?,
        };
        let Some(stand_in) = stand_in else { return Ok(None) };
        // A server may be without partitions or refuse them for this table; it is loaded directly then.
        match stand_in.create(control) {
            Ok(()) => Ok(Some(stand_in)),
            Err(Error::Statement { source: wire::Error::Server(_), .. }) => {
                stand_in.drop(control)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// What the rows are inserted into.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Looks at an InnoDB table whose one unique key is an AUTO_INCREMENT column, which no foreign key touches.
    fn find(control: &mut Control, table: &str) -> Result<Option<StandIn>, Error> {
        let literal = name_literal(control.dialect(), table);
        let this = format!("TABLE_SCHEMA = DATABASE() AND TABLE_NAME = {literal}");
        let sql = format!(
            "SELECT COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS WHERE {this} AND EXTRA = 'auto_increment' \
             AND COLUMN_KEY = 'PRI' AND (SELECT COUNT(*) FROM information_schema.STATISTICS WHERE {this} \
             AND NON_UNIQUE = 0) = 1 AND EXISTS (SELECT * FROM information_schema.TABLES WHERE {this} \
             AND ENGINE = 'InnoDB' AND CREATE_OPTIONS NOT LIKE '%partitioned%') AND NOT EXISTS (SELECT * FROM \
             information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = DATABASE() AND REFERENCED_TABLE_NAME IS NOT NULL \
             AND {literal} IN (TABLE_NAME, REFERENCED_TABLE_NAME))"
        );
        let found = control.rows("looking at a table", &sql)?;
        let (Some(key), Some(key_type)) = (found.text(0, 0), found.text(0, 1)) else { return Ok(None) };
        let quote = |name: &str| control.dialect().quote(name);
        Ok(Some(StandIn {
            table: table.to_owned(),
            name: quote(&format!("plimsoll_{}", table.trim_matches('`'))),
            key: quote(key),
            key_type: key_type.to_owned(),
        }))
    }

    fn create(&self, control: &mut Control) -> Result<(), Error> {
        let StandIn { table, name, key, key_type } = self;
        self.drop(control)?;
        for sql in [
            format!("CREATE TABLE {name} LIKE {table}"),
            format!("ALTER TABLE {name} MODIFY {key} {key_type} NOT NULL"),
            format!("ALTER TABLE {name} PARTITION BY KEY ({key}) PARTITIONS 1"),
        ] {
            control.run("creating a stand-in", &sql)?;
        }
        Ok(())
    }

    /// The table has the rows, and the stand-in is gone. AUTO_INCREMENT goes on after the greatest number by itself.
    ///
    /// # Errors
    /// The server refused it.
    pub(super) fn take_place(&self, control: &mut Control) -> Result<(), Error> {
        let sql = format!("ALTER TABLE {} EXCHANGE PARTITION p0 WITH TABLE {}", self.name, self.table);
        control.run("exchanging a table and its stand-in", &sql)?;
        self.drop(control)
    }

    /// Drops what is left of it.
    ///
    /// # Errors
    /// The server refused it.
    pub(super) fn drop(&self, control: &mut Control) -> Result<(), Error> {
        control.run("dropping a stand-in", &format!("DROP TABLE IF EXISTS {}", self.name)).map(drop)
    }
}

/// Whether rows of one table wait for each other at the root page.
fn helps(dialect: &Dialect) -> bool {
    dialect.flavor == Flavor::Mariadb && !dialect.splits_tables()
}
