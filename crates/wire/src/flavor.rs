//! Whose server it is.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Protocol;

/// Whose server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavor {
    /// Oracle's MySQL.
    Mysql,
    /// MariaDB.
    Mariadb,
    /// Percona Server for MySQL.
    Percona,
    /// PostgreSQL.
    Postgres,
}

impl Flavor {
    /// All of them.
    pub const ALL: [Flavor; 4] = [Flavor::Mysql, Flavor::Mariadb, Flavor::Percona, Flavor::Postgres];

    /// The name in selectors: `mysql`, `mariadb`, `percona`, `postgres`.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::Mysql => "mysql",
            Flavor::Mariadb => "mariadb",
            Flavor::Percona => "percona",
            Flavor::Postgres => "postgres",
        }
    }

    /// The protocol it speaks.
    pub fn protocol(self) -> Protocol {
        match self {
            Flavor::Postgres => Protocol::Postgres,
            Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => Protocol::Mysql,
        }
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
