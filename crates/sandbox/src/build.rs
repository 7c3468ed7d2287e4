//! What a build is and how one is named.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub use wire::Flavor;

use crate::Error;

/// What a user asks for: `flavor[@version][+label]`. A version matches by its leading parts: `postgres@16` is any 16.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Selector {
    pub flavor: Flavor,
    /// Leading parts of the version; `None` for the newest.
    pub version: Option<String>,
    /// Tells two builds of one version apart; `None` matches only builds without a label.
    pub label: Option<String>,
}

impl FromStr for Selector {
    type Err = Error;

    fn from_str(text: &str) -> Result<Selector, Error> {
        let refuse = |why: &str| Error::Selector { text: text.to_owned(), why: why.to_owned() };
        let (rest, label) = match text.split_once('+') {
            Some((rest, label)) => (rest, Some(label)),
            None => (text, None),
        };
        let (flavor, version) = match rest.split_once('@') {
            Some((flavor, version)) => (flavor, Some(version)),
            None => (rest, None),
        };
        let flavor = Flavor::ALL
            .into_iter()
            .find(|f| f.name() == flavor)
            .ok_or_else(|| refuse("the flavour is one of mysql, mariadb, percona, postgres"))?;
        if let Some(version) = version {
            let numeric = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
            if !version.split(['.', '-']).all(numeric) {
                return Err(refuse("a version is numbers with dots, such as 10.11 or 8.0.33"));
            }
        }
        if let Some(label) = label {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            if label.is_empty() || label.len() > 40 || label.starts_with('.') || !label.bytes().all(plain) {
                return Err(refuse(
                    "a label is up to 40 letters, digits, '.', '_' and '-', and does not begin with '.'",
                ));
            }
        }
        Ok(Selector { flavor, version: version.map(str::to_owned), label: label.map(str::to_owned) })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.flavor)?;
        if let Some(version) = &self.version {
            write!(f, "@{version}")?;
        }
        if let Some(label) = &self.label {
            write!(f, "+{label}")?;
        }
        Ok(())
    }
}

/// The numbers of a version, for ordering and for what a version can do; missing parts count as 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u32, pub u32, pub u32, pub u32);

impl Version {
    /// Reads `8.0.33-25` as (8, 0, 33, 25); anything after the numbers is ignored.
    pub fn of(text: &str) -> Version {
        let mut parts = text.split(['.', '-']).map_while(|p| p.parse::<u32>().ok());
        let mut next = || parts.next().unwrap_or(0);
        Version(next(), next(), next(), next())
    }
}

/// Where a build came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind", content = "from")]
pub enum Origin {
    /// Installed on this machine, by a package or by hand; the path of its server binary.
    Installed(PathBuf),
    /// Maven coordinate.
    Maven(String),
    Url(String),
    Archive(PathBuf),
    /// A directory given by the user: unpacked, or a source tree after `make`.
    Directory(PathBuf),
    /// Built from source: the commit and the recipe, in words.
    Source(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::Installed(path) => write!(f, "installed ({})", path.display()),
            Origin::Maven(coordinate) => write!(f, "maven {coordinate}"),
            Origin::Url(url) => f.write_str(url),
            Origin::Archive(path) => write!(f, "archive {}", path.display()),
            Origin::Directory(path) => write!(f, "directory {}", path.display()),
            Origin::Source(what) => write!(f, "source: {what}"),
        }
    }
}

/// The unpacked binaries of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    pub flavor: Flavor,
    /// Full version as the server reports it, numbers only: `10.11.19`, `8.0.33`, `15.18`.
    pub version: String,
    /// Tells two builds of one version apart (compiler, commit, nightly).
    pub label: Option<String>,
    /// SHA-256 over the server binary and where it came from, in hex.
    pub identity: String,
    pub origin: Origin,
    /// SHA-256 of the archive it was unpacked from, in hex.
    pub archive_sha256: Option<String>,
    /// How it was built, where Plimsoll built it: commit, compiler, flags, recipe.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub facts: BTreeMap<String, String>,
    pub files: Files,
}

/// The files of a build that matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// `mysqld`, `mariadbd` or `postgres`.
    pub server: PathBuf,
    /// `--basedir` of the MySQL family, the installation's root for PostgreSQL.
    pub base: PathBuf,
    /// Directory of the SQL files that make the system tables (MySQL up to 5.7 and MariaDB).
    pub share: Option<PathBuf>,
    /// Directory of the error messages, `english/errmsg.sys` below it (MySQL family).
    pub messages: Option<PathBuf>,
    /// Where plugins are, when the build has a directory of them.
    pub plugins: Option<PathBuf>,
    /// `initdb` (PostgreSQL only).
    pub initdb: Option<PathBuf>,
    /// The build's own client (`mysql`, `mariadb`, `psql`), when it has one.
    pub client: Option<PathBuf>,
    /// Directories to add to the loader's search path.
    pub libraries: Vec<PathBuf>,
}

impl Files {
    pub(crate) fn each_path(&mut self, change: &mut dyn FnMut(&mut PathBuf)) {
        let Files { server, base, share, messages, plugins, initdb, client, libraries } = self;
        let optional = [share, messages, plugins, initdb, client].into_iter().flatten();
        [server, base].into_iter().chain(optional).chain(libraries).for_each(change);
    }
}

pub(crate) fn name(flavor: Flavor, version: &str, label: Option<&str>) -> String {
    let label = label.map_or_else(String::new, |label| format!("+{label}"));
    format!("{flavor}@{version}{label}")
}

impl Build {
    /// Whether its files lie in a home of Plimsoll's, rather than where a package or its owner has put them.
    pub(crate) fn is_in_a_home(&self) -> bool {
        !matches!(self.origin, Origin::Installed(_) | Origin::Directory(_))
    }

    /// `flavor@version[+label]`.
    pub fn name(&self) -> String {
        name(self.flavor, &self.version, self.label.as_deref())
    }

    pub fn numbers(&self) -> Version {
        Version::of(&self.version)
    }

    /// What runs behind `ENGINE=InnoDB`: MariaDB 10.1 calls Percona's XtraDB so.
    pub fn engine_label(&self, engine: &str) -> String {
        let xtradb = self.flavor == Flavor::Percona
            || (self.flavor == Flavor::Mariadb && self.numbers() < Version(10, 2, 0, 0));
        if engine.eq_ignore_ascii_case("innodb") && xtradb {
            "InnoDB (Percona XtraDB)".to_owned()
        } else {
            engine.to_owned()
        }
    }
}

impl fmt::Display for Build {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}
