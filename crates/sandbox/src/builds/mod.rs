//! Finding and fetching builds.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Build, Error, Flavor, Home, OnProgress, Selector};

/// A build that could be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetchable {
    /// Whose server.
    pub flavor: Flavor,
    /// Version.
    pub version: String,
    /// Label, where the catalogue gives one.
    pub label: Option<String>,
    /// Where from, for people: a Maven coordinate or a URL.
    pub source: String,
}

impl Fetchable {
    /// `flavor@version[+label]`.
    pub fn name(&self) -> String {
        match &self.label {
            Some(label) => format!("{}@{}+{label}", self.flavor, self.version),
            None => format!("{}@{}", self.flavor, self.version),
        }
    }
}

/// A shared library that a build needs and the machine lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingLibrary {
    /// `libaio.so.1`.
    pub library: String,
    /// The Debian package that has it, where known.
    pub package: Option<String>,
}

impl fmt::Display for MissingLibrary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.package {
            Some(package) => write!(f, "{} (apt-get install {package})", self.library),
            None => write!(f, "{}", self.library),
        }
    }
}

/// Ways to fetch that are not the catalogue's own.
#[derive(Debug, Clone, Default)]
pub struct FetchOptions {
    /// Replaces scheme and host of vendor URLs; `file:///srv/mirror` works too.
    pub mirror: Option<String>,
    /// Fetch again even when it is there.
    pub again: bool,
}

/// Where a selector led, decided once when a study is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolved {
    /// On this machine.
    Here(Build),
    /// To be fetched.
    Away(Fetchable),
}

/// Builds installed on this machine (packages, PATH), newest first within each flavour.
pub fn installed(home: &Home) -> Result<Vec<Build>, Error> {
    let _ = home;
    Ok(Vec::new())
}

/// Builds fetched into the home, newest first within each flavour.
pub fn fetched(home: &Home) -> Result<Vec<Build>, Error> {
    let _ = home;
    Ok(Vec::new())
}

/// Builds that the catalogue can fetch, newest first within each flavour.
pub fn fetchable(home: &Home) -> Result<Vec<Fetchable>, Error> {
    let _ = home;
    Ok(Vec::new())
}

/// What a selector means now: the newest installed build that matches, else the newest fetched or fetchable one.
/// Touches no network.
pub fn find(home: &Home, selector: &Selector) -> Result<Resolved, Error> {
    let _ = home;
    Err(Error::NoBuild { selector: selector.to_string(), detail: String::new() })
}

/// [`find`], and fetches when it is not here yet.
pub fn resolve(home: &Home, selector: &Selector, progress: OnProgress<'_>) -> Result<Build, Error> {
    match find(home, selector)? {
        Resolved::Here(build) => Ok(build),
        Resolved::Away(_) => fetch(home, selector, &FetchOptions::default(), progress),
    }
}

/// Fetches the newest catalogue entry that matches, verifies and unpacks it; returns at once when it is there.
pub fn fetch(
    home: &Home,
    selector: &Selector,
    options: &FetchOptions,
    progress: OnProgress<'_>,
) -> Result<Build, Error> {
    let _ = (home, options, progress);
    Err(Error::NoBuild { selector: selector.to_string(), detail: String::new() })
}

/// Unpacks an archive, or takes a directory as it is (unpacked, or a source tree after `make`); `named` overrides
/// the name found by asking the server binary.
pub fn fetch_archive(
    home: &Home,
    path: &Path,
    named: Option<&Selector>,
    progress: OnProgress<'_>,
) -> Result<Build, Error> {
    let _ = (home, named, progress);
    Err(Error::Archive { path: path.to_owned(), why: String::new() })
}

/// Shared libraries the build needs and would not find.
pub fn missing_libraries(build: &Build) -> Result<Vec<MissingLibrary>, Error> {
    let _ = build;
    Ok(Vec::new())
}
