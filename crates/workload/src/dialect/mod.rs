//! Everything that differs between servers, as data.

mod errors;
mod sql;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use errors::class_of_code;
pub use wire::Flavor;

pub(crate) use sql::{Isolation, TableLock};

/// A server's version, as far as behaviour depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Version {
    /// 10 of 10.11.5; 18 of PostgreSQL 18.6.
    pub major: u16,
    /// 11 of 10.11.5; 6 of PostgreSQL 18.6.
    pub minor: u16,
    /// 5 of 10.11.5; 0 on PostgreSQL from 10 on.
    pub patch: u16,
}

/// One kind of server: what the statements of a workload are written for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dialect {
    /// Which family.
    pub flavor: Flavor,
    pub version: Version,
    /// Storage engine asked for (MySQL family); `None`: what the workload's own option says.
    pub engine: Option<String>,
}

impl Dialect {
    /// The dialect of a server that introduced itself with this version text (`ServerInfo`).
    /// `10.11.5-MariaDB-log`, `8.0.33`, `8.0.36-28` with "Percona" in `version_comment` cannot be told from MySQL
    /// by the text alone: callers that know say so by setting `flavor`.
    pub fn of_server(protocol: wire::Protocol, version_text: &str) -> Dialect {
        // MariaDB 10.x sends "5.5.5-10.11.5-MariaDB" so that old replicas accept it.
        let text = version_text.strip_prefix("5.5.5-").unwrap_or(version_text);
        let lower = text.to_ascii_lowercase();
        let flavor = match protocol {
            wire::Protocol::Postgres => Flavor::Postgres,
            wire::Protocol::Mysql if lower.contains("mariadb") => Flavor::Mariadb,
            wire::Protocol::Mysql if lower.contains("percona") => Flavor::Percona,
            wire::Protocol::Mysql => Flavor::Mysql,
        };
        Dialect { flavor, version: Version::parse(text), engine: None }
    }

    /// Which protocol these servers speak.
    pub fn protocol(&self) -> wire::Protocol {
        self.flavor.protocol()
    }
}

impl Version {
    /// The leading numbers of a version text; what is missing is 0.
    pub fn parse(text: &str) -> Version {
        let mut numbers =
            text.split(|c: char| !c.is_ascii_digit()).take(3).map(|part| part.parse::<u16>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        Version { major: next(), minor: next(), patch: next() }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_by_their_version_texts() {
        let check = |protocol, text: &str, flavor, version: (u16, u16, u16)| {
            let dialect = Dialect::of_server(protocol, text);
            let found = (dialect.version.major, dialect.version.minor, dialect.version.patch);
            assert_eq!((dialect.flavor, found), (flavor, version), "{text}");
        };
        use wire::Protocol::{Mysql, Postgres};
        check(Mysql, "5.5.5-10.11.19-MariaDB-0+deb12u1", Flavor::Mariadb, (10, 11, 19));
        check(Mysql, "11.4.5-MariaDB-log", Flavor::Mariadb, (11, 4, 5));
        check(Mysql, "5.6.14", Flavor::Mysql, (5, 6, 14));
        check(Mysql, "8.0.33", Flavor::Mysql, (8, 0, 33));
        check(Postgres, "15.18 (Debian 15.18-0+deb12u1)", Flavor::Postgres, (15, 18, 0));
        check(Postgres, "9.6.24", Flavor::Postgres, (9, 6, 24));
        check(Postgres, "18beta1", Flavor::Postgres, (18, 0, 0));
    }
}
