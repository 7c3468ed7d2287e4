//! Finding and fetching builds.

use std::fmt;
use std::path::Path;

mod catalogue;
mod download;
mod fetch;
mod inspect;
mod installed;
mod libraries;
mod maven;
mod unpack;

pub(crate) use inspect::{library_path, system_tables};

use serde::{Deserialize, Serialize};

use crate::{Build, Error, Flavor, Home, OnProgress, Origin, Progress, Selector};

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
#[expect(clippy::large_enum_variant, reason = "a handful exist, each for as long as a plan")]
pub enum Resolved {
    /// On this machine.
    Here(Build),
    /// To be fetched.
    Away(Fetchable),
}

/// Builds installed on this machine (packages, PATH), newest first within each flavour.
pub fn installed(home: &Home) -> Result<Vec<Build>, Error> {
    let mut builds = installed::find(home)?;
    sort(&mut builds);
    Ok(builds)
}

/// Builds fetched into the home, newest first within each flavour.
pub fn fetched(home: &Home) -> Result<Vec<Build>, Error> {
    let Ok(entries) = std::fs::read_dir(home.builds()) else { return Ok(Vec::new()) };
    let mut builds: Vec<Build> = entries
        .flatten()
        // A directory without a readable record is half-made or not ours: never a build.
        .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path().join(RECORD)).ok()?).ok())
        .filter(|build: &Build| build.files.server.is_file())
        .collect();
    let is_theirs = |build: &Build| matches!(build.origin, Origin::Directory(_));
    if builds.iter().any(is_theirs) {
        // `make` may have replaced the binary since, and another binary is another build.
        let (theirs, mut ours): (Vec<Build>, Vec<Build>) = builds.into_iter().partition(is_theirs);
        ours.extend(installed::refreshed(home, theirs)?);
        builds = ours;
    }
    sort(&mut builds);
    Ok(builds)
}

/// The file that makes a directory under `builds/` a build.
const RECORD: &str = "plimsoll-build.json";

fn sort(builds: &mut [Build]) {
    builds.sort_by(|a, b| (a.flavor, b.numbers(), &a.label).cmp(&(b.flavor, a.numbers(), &b.label)));
}

/// Whether a build of this flavour, version and label is what the selector asks for.
fn is_match(selector: &Selector, flavor: Flavor, version: &str, label: Option<&str>) -> bool {
    let parts = |text: &str| text.split(['.', '-']).map(str::to_owned).collect::<Vec<_>>();
    let is_version =
        selector.version.as_ref().is_none_or(|wanted| parts(version).starts_with(&parts(wanted)));
    selector.flavor == flavor && is_version && selector.label.as_deref() == label
}

/// Builds that the catalogues can fetch, newest first within each flavour; Maven's only where `mvn` is here.
pub fn fetchable(home: &Home) -> Result<Vec<Fetchable>, Error> {
    Ok(catalogue::releases(home)?.iter().map(catalogue::Release::fetchable).collect())
}

/// What a selector means now: the newest installed build that matches, else the newest fetched or fetchable one.
/// Touches no network.
pub fn find(home: &Home, selector: &Selector) -> Result<Resolved, Error> {
    let here = |build: &Build| is_match(selector, build.flavor, &build.version, build.label.as_deref());
    if let Some(build) = installed(home)?.into_iter().find(here) {
        return Ok(Resolved::Here(build));
    }
    let fetched = fetched(home)?.into_iter().find(here);
    let away = catalogue::find(home, selector)?.map(|release| release.fetchable());
    match (fetched, away) {
        (Some(build), Some(away)) if crate::build::Version::of(&away.version) > build.numbers() => {
            Ok(Resolved::Away(away))
        }
        (Some(build), _) => Ok(Resolved::Here(build)),
        (None, Some(away)) => Ok(Resolved::Away(away)),
        (None, None) => Err(no_build(home, selector)),
    }
}

/// What there is instead, and how to get one.
fn no_build(home: &Home, selector: &Selector) -> Error {
    let mut names: Vec<String> = Vec::new();
    let here = [installed(home), fetched(home)].into_iter().flatten().flatten();
    names.extend(here.filter(|b| b.flavor == selector.flavor).map(|b| b.name()));
    let there_is =
        if names.is_empty() { "none is here".to_owned() } else { format!("here: {}", names.join(", ")) };
    let detail = format!(
        "{there_is}. Install one (apt-get install mariadb-server or postgresql), install Maven's client `mvn` so that \
         one can be fetched, or give an archive: plimsoll fetch --archive FILE. `plimsoll servers` lists what there is"
    );
    Error::NoBuild { selector: selector.to_string(), detail }
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
    let release = catalogue::find(home, selector)?.ok_or_else(|| no_build(home, selector))?;
    let first = fetch::release(home, &release, options, progress);
    let missing = match &first {
        Ok(build) => missing_libraries(build)?,
        // Without them it could not even be asked for its version.
        Err(Error::Libraries { missing, .. }) => missing.clone(),
        Err(_) => return first,
    };
    // Another build may ship what this one lacks; one that nobody asked for comes with a checksum.
    let supplies = |r: &catalogue::Release| {
        r.sha256.is_some() && missing.iter().any(|m| r.supplies.contains(&m.library))
    };
    let Some(supplier) = catalogue::releases(home)?.into_iter().rfind(supplies) else { return first };
    if selector.flavor == Flavor::Postgres || supplier.fetchable().name() == release.fetchable().name() {
        return first;
    }
    let names: Vec<&str> = missing.iter().map(|m| m.library.as_str()).collect();
    progress(Progress::Step(format!(
        "{} lacks {} here, {} ships it",
        release.fetchable().name(),
        names.join(", "),
        supplier.fetchable().name()
    )));
    fetch::release(home, &supplier, &FetchOptions::default(), progress)?;
    fetch::release(home, &release, &FetchOptions { again: true, ..options.clone() }, progress)
}

/// Unpacks an archive, or takes a directory as it is (unpacked, or a source tree after `make`); `named` overrides
/// the label, and must agree with what the server binary says of its flavour and version.
pub fn fetch_archive(
    home: &Home,
    path: &Path,
    named: Option<&Selector>,
    progress: OnProgress<'_>,
) -> Result<Build, Error> {
    if path.is_dir() {
        fetch::directory(home, path, named)
    } else {
        fetch::archive(home, path, named, progress)
    }
}

/// Removes a fetched build.
pub fn remove(home: &Home, build: &Build) -> Result<(), Error> {
    let dir = home.builds().join(build.name());
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &dir, e)),
        _ => Ok(()),
    }
}

/// The build's own client program, when it has one that can run here: those of old builds want libraries that newer
/// distributions lack.
pub fn client(build: &Build) -> Result<Option<std::path::PathBuf>, Error> {
    let Some(client) = &build.files.client else { return Ok(None) };
    // It is started without the build's own libraries in its way.
    let bare = crate::build::Files { libraries: Vec::new(), ..build.files.clone() };
    let missing = libraries::missing_for(client, &bare)?;
    Ok(missing.is_empty().then(|| client.clone()))
}

/// Shared libraries the build needs and would not find.
pub fn missing_libraries(build: &Build) -> Result<Vec<MissingLibrary>, Error> {
    libraries::missing(&build.files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_by_leading_parts_and_exact_label() {
        let check = |selector: &str, version: &str, label: Option<&str>, expected: bool| {
            let selector: Selector = selector.parse().unwrap();
            assert_eq!(is_match(&selector, Flavor::Mysql, version, label), expected, "{selector} {version}");
        };
        check("mysql", "8.0.33", None, true);
        check("mysql@8", "8.0.33", None, true);
        check("mysql@8.0.3", "8.0.33", None, false);
        check("mysql@8.0.33", "8.0.33", None, true);
        check("mysql@8.0.33", "8.0.33", Some("gcc14"), false);
        check("mysql@8.0+gcc14", "8.0.33", Some("gcc14"), true);
        check("mariadb", "8.0.33", None, false);
    }
}
