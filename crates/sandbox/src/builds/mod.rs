//! Finding and fetching builds.

use std::fmt;
use std::path::Path;

mod ask;
mod beneath;
mod catalogue;
mod download;
mod fetch;
mod git;
pub mod handed;
mod inspect;
mod installed;
mod libraries;
mod maven;
pub mod source;
pub(crate) mod unpack;

pub(crate) use ask::ask;
pub use git::{commit_of, range as commits_of_range, subject as commit_subject};
pub(crate) use inspect::{library_path, system_tables};

use serde::{Deserialize, Serialize};

use crate::build::Version;
use crate::{Build, Error, Flavor, Home, OnProgress, Origin, Progress, Selector, record};

/// A build that could be fetched.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fetchable {
    pub flavor: Flavor,
    pub version: String,
    /// Label, where the catalogue gives one.
    pub label: Option<String>,
    /// Where from, for people: a Maven coordinate or a URL.
    pub source: String,
}

impl Fetchable {
    /// `flavor@version[+label]`.
    pub fn name(&self) -> String {
        crate::build::name(self.flavor, &self.version, self.label.as_deref())
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
    Here(Build),
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
        .filter_map(|entry| read_record(&entry.path()))
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

/// The build of a directory under `builds/`, with its files in the home where it is now.
fn read_record(dir: &Path) -> Option<Build> {
    let mut build: Build = serde_json::from_slice(&std::fs::read(dir.join(RECORD)).ok()?).ok()?;
    let name = build.name();
    if let Some(home) = record::home_of(dir).filter(|_| build.is_in_a_home()) {
        build.files.each_path(&mut |path| *path = record::here(path, home, &["builds", &name]));
    }
    Some(build)
}

/// Refuses, as root, a build that others could exchange: they would have root start what they like.
pub(crate) fn check_place(build: &Build) -> Result<(), Error> {
    ask::check_place(&build.files.server, build.is_in_a_home())
}

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
        (Some(build), Some(away)) if Version::of(&away.version) > build.numbers() => Ok(Resolved::Away(away)),
        (Some(build), _) => Ok(Resolved::Here(build)),
        (None, Some(away)) => Ok(Resolved::Away(away)),
        (None, None) => Err(no_build(home, selector)),
    }
}

/// What there is instead, and how to get one.
fn no_build(home: &Home, selector: &Selector) -> Error {
    let of_flavor = |flavor: Flavor| flavor == selector.flavor;
    let here = [installed(home), fetched(home)].into_iter().flatten().flatten();
    let here: Vec<String> = here.filter(|b| of_flavor(b.flavor)).map(|b| b.name()).collect();
    let away = fetchable(home).unwrap_or_default();
    let away: Vec<Fetchable> =
        away.into_iter().filter(|f| of_flavor(f.flavor) && !here.contains(&f.name())).collect();
    Error::NoBuild {
        selector: selector.to_string(),
        detail: instead(selector.flavor, &here, &away, maven::is_here()),
    }
}

/// What there is of the flavour, and what would bring more. Of what can be fetched, newest first, each series is named
/// once.
fn instead(flavor: Flavor, here: &[String], away: &[Fetchable], has_mvn: bool) -> String {
    let mut series: Vec<Version> = Vec::new();
    let mut newest: Vec<String> = Vec::new();
    for one in away {
        let Version(major, minor, ..) = Version::of(&one.version);
        let is_one_number = flavor == Flavor::Postgres && major >= 10;
        let of = Version(major, if is_one_number { 0 } else { minor }, 0, 0);
        if !series.contains(&of) {
            series.push(of);
            newest.push(one.name());
        }
    }
    let mut parts = vec![match here {
        [] => format!("no {flavor} is on this machine"),
        here => format!("on this machine are {}", here.join(", ")),
    }];
    if !newest.is_empty() {
        parts.push(format!("`plimsoll fetch` can get {}", newest.join(", ")));
    }
    parts.push(format!("`plimsoll servers {flavor}` lists them all"));
    parts.push("another is taken from its archive with `plimsoll fetch --archive FILE`".to_owned());
    if !has_mvn {
        parts.push("with Maven's client `mvn` installed more can be fetched".to_owned());
    }
    match flavor {
        Flavor::Mariadb if here.is_empty() => parts.push("Debian has the package mariadb-server".to_owned()),
        Flavor::Postgres if here.is_empty() => parts.push("Debian has the package postgresql".to_owned()),
        _ => {}
    }
    parts.join("; ")
}

/// Whether the selector asks for something of this name, its label or another: what lists are narrowed by.
pub fn is_asked(selector: &Selector, flavor: Flavor, version: &str, label: Option<&str>) -> bool {
    let label = if selector.label.is_none() { None } else { label };
    is_match(selector, flavor, version, label)
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
    let meta = std::fs::metadata(path).map_err(|e| Error::io("open", path, e))?;
    if meta.is_dir() {
        fetch::directory(home, path, named)
    } else if !meta.is_file() {
        // A device or a pipe may have no end.
        let why = "it is neither a file nor a directory".to_owned();
        Err(Error::Archive { path: path.to_owned(), why })
    } else {
        fetch::archive(home, path, named, progress)
    }
}

/// Removes a fetched build; of a directory of the user's, which stays, only the record. Returns the bytes that it freed.
///
/// # Errors
/// A sandbox needs it: that is named.
pub fn remove(home: &Home, build: &Build) -> Result<u64, Error> {
    let name = build.name();
    let dir = home.builds().join(&name);
    let users: Vec<String> =
        record::all(home).filter(|user| user.build.name() == name).map(|user| user.name).collect();
    if !users.is_empty() {
        return Err(Error::Unsupported {
            what: format!("removing {name}"),
            why: format!("sandboxes use it ({}): destroy them first", users.join(", ")),
        });
    }
    let bytes = crate::storage::bytes_below(&dir);
    // Renamed first, so that nobody takes half of it for a build.
    let gone = home.builds().join(format!(".gone-{}", record::serial()));
    std::fs::rename(&dir, &gone).map_err(|e| Error::io("remove", &dir, e))?;
    std::fs::remove_dir_all(&gone).map_err(|e| Error::io("remove", &gone, e))?;
    let Some(made) = source::dir_of(home, build) else { return Ok(bytes) };
    let bytes = bytes + crate::storage::bytes_below(&made);
    std::fs::remove_dir_all(&made).map_err(|e| Error::io("remove", &made, e))?;
    Ok(bytes)
}

/// Options with which a client program of the MySQL family speaks to a sandbox, which offers TLS only where it was
/// asked to. `version` is what the program says to `--version`, or its build's name.
///
/// MariaDB's clients of 11.4 and later take nothing but TLS with a certificate that they can verify, unless they are told
/// otherwise; all of MariaDB's know the option, and none of MySQL's since 8.0 (which verify nothing by themselves).
pub fn client_options(version: &str) -> &'static [&'static str] {
    let is_mariadb = version.to_ascii_lowercase().contains("mariadb");
    if is_mariadb { &["--skip-ssl-verify-server-cert"] } else { &[] }
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
    fn what_is_there_instead_is_named_with_what_can_be_fetched() {
        let away = |flavor: Flavor, versions: &[&str]| -> Vec<Fetchable> {
            let one = |version: &&str| Fetchable {
                flavor,
                version: (*version).to_owned(),
                label: None,
                source: String::new(),
            };
            versions.iter().map(one).collect()
        };
        let here = ["mysql@8.0.33".to_owned()];
        let text = instead(Flavor::Mysql, &here, &away(Flavor::Mysql, &["8.4.3", "8.0.40", "8.0.39"]), true);
        assert_eq!(
            text,
            "on this machine are mysql@8.0.33; `plimsoll fetch` can get mysql@8.4.3, mysql@8.0.40; `plimsoll servers \
             mysql` lists them all; another is taken from its archive with `plimsoll fetch --archive FILE`"
        );
        let all = away(Flavor::Postgres, &["18.6", "18.4", "9.6.24", "9.6.16"]);
        let text = instead(Flavor::Postgres, &[], &all, false);
        assert!(text.contains(
            "no postgres is on this machine; `plimsoll fetch` can get postgres@18.6, postgres@9.6.24;"
        ));
        assert!(text.contains("`mvn`") && text.contains("package postgresql"), "{text}");
    }

    #[test]
    fn lists_are_narrowed_to_a_flavor_with_its_labels() {
        let selector: Selector = "mysql@8.0".parse().unwrap();
        assert!(is_asked(&selector, Flavor::Mysql, "8.0.33", None));
        assert!(is_asked(&selector, Flavor::Mysql, "8.0.33", Some("gcc14")));
        assert!(!is_asked(&selector, Flavor::Mysql, "8.4.3", None));
        assert!(!is_asked(&"mysql+gcc14".parse().unwrap(), Flavor::Mysql, "8.0.33", None));
    }

    #[test]
    fn clients_of_mariadb_are_told_that_a_sandbox_has_no_certificate() {
        for version in ["mariadb@11.4.5", "mysql  Ver 15.1 Distrib 10.11.6-MariaDB, for debian-linux-gnu"] {
            assert_eq!(client_options(version), ["--skip-ssl-verify-server-cert"], "{version}");
        }
        for version in ["mysql@8.0.33", "mysql  Ver 8.0.33 for Linux on x86_64 (Source distribution)"] {
            assert!(client_options(version).is_empty(), "{version}");
        }
    }

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
