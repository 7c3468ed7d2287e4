//! Recipes: how a server is built. A small TOML file of scripts.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::unsupported;
use crate::Error;

const RECIPES: [(&str, &str); 4] = [
    ("postgres", include_str!("../recipes/postgres.toml")),
    ("postgres-meson", include_str!("../recipes/postgres-meson.toml")),
    ("mariadb", include_str!("../recipes/mariadb.toml")),
    ("mysql", include_str!("../recipes/mysql.toml")),
];

/// How a server is built. Scripts are run by `sh -eu` with `SOURCE`, `BUILD` (an empty directory, where they begin),
/// `PREFIX` and `JOBS` in their environment.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recipe {
    /// Programs and headers (`openssl/ssl.h`) that must be there, each with the Debian package that has it.
    #[serde(default)]
    pub needs: BTreeMap<String, String>,
    #[serde(default)]
    pub configure: String,
    #[serde(default)]
    pub build: String,
    /// Puts the server under `PREFIX`.
    pub install: String,
    /// More of the environment: CFLAGS, CC ...
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where below `PREFIX` the server binary is; found by itself where it has one of the usual places.
    #[serde(default)]
    pub server: Option<String>,
    /// What messages and records call it.
    #[serde(skip)]
    pub name: String,
    /// Its file, to the letter.
    #[serde(skip)]
    pub(super) text: String,
}

impl Recipe {
    /// One of Plimsoll's own, or a file's.
    pub fn find(name: &str) -> Result<Recipe, Error> {
        let own = RECIPES.iter().find(|(known, _)| *known == name);
        let text = match own {
            Some((_, text)) => (*text).to_owned(),
            None => wire::files::read_text(Path::new(name), &wire::files::RECIPE).map_err(|error| {
                let known: Vec<&str> = RECIPES.iter().map(|(known, _)| *known).collect();
                let why = format!("{error}; it is a TOML file, or one of {}", known.join(", "));
                unsupported(format!("the recipe {name}"), why)
            })?,
        };
        let mut recipe: Recipe = toml::from_str(&text)
            .map_err(|error| unsupported(format!("the recipe {name}"), error.to_string()))?;
        recipe.name = Path::new(name).file_stem().unwrap_or_default().to_string_lossy().into_owned();
        recipe.text = text;
        Ok(recipe)
    }

    /// Its file, to the letter.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The one for what a source tree holds.
    ///
    /// # Errors
    /// It is nothing that is known.
    pub fn of_source(source: &Path) -> Result<Recipe, Error> {
        Recipe::of(source, &|path| source.join(path).exists())
    }

    /// The same of sources that have the files for which `is_in` says so.
    pub(super) fn of(source: &Path, is_in: &dyn Fn(&str) -> bool) -> Result<Recipe, Error> {
        let name = match () {
            () if is_in("src/backend/postmaster") => "postgres",
            () if is_in("sql/CMakeLists.txt") && is_in("storage/maria") => "mariadb",
            () if is_in("sql/CMakeLists.txt") => "mysql",
            () => {
                let why = "it is no source of PostgreSQL, MariaDB or MySQL: say how it is built with --recipe FILE.toml";
                return Err(unsupported(source.display().to_string(), why.to_owned()));
            }
        };
        Recipe::find(name)
    }

    /// Programs and headers that it needs and the machine lacks.
    pub(super) fn check_needs(&self) -> Result<(), Error> {
        let is_there = |needed: &str| match needed.ends_with(".h") {
            true => is_header(needed),
            false => PATH.split(':').any(|dir| Path::new(dir).join(needed).is_file()),
        };
        let missing: Vec<(&str, &str)> = self
            .needs
            .iter()
            .filter(|(needed, _)| !is_there(needed))
            .map(|(needed, package)| (needed.as_str(), package.as_str()))
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        let needed: Vec<&str> = missing.iter().map(|(needed, _)| *needed).collect();
        let packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
        let why =
            format!("{} not on this machine: apt-get install {}", needed.join(", "), packages.join(" "));
        Err(unsupported(format!("the recipe {} needs", self.name), why))
    }
}

/// What recipes find programs in.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whether the compiler finds a header by itself.
fn is_header(name: &str) -> bool {
    let own =
        ["/usr/local/include", "/usr/include"].into_iter().any(|dir| Path::new(dir).join(name).is_file());
    // Debian keeps those that differ between architectures in a folder for each: x86_64-linux-gnu.
    let of_architectures = || std::fs::read_dir("/usr/include").into_iter().flatten().flatten();
    own || of_architectures()
        .filter(|entry| entry.file_name().to_string_lossy().contains("-linux-"))
        .any(|entry| entry.path().join(name).is_file())
}
