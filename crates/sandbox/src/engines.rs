//! Storage engines as an axis: which ones a build has, told before anything is loaded.

use crate::build::{Build, Flavor};
use crate::settings::Settings;
use crate::{Error, builds, settings};

/// Engines that every server of the MySQL family has.
const EVERYWHERE: [&str; 5] = ["innodb", "myisam", "memory", "csv", "mrg_myisam"];

/// Those that [`settings_for`] has an answer for.
const TOLD: [&str; 4] = ["heap", "aria", "rocksdb", "tokudb"];

/// Why no build of the flavour has the engine; `None`: some may.
pub fn refusal(flavor: Flavor, engine: &str) -> Option<&'static str> {
    let engine = engine.to_ascii_lowercase();
    match flavor {
        Flavor::Postgres if !["heap", "unlogged"].contains(&engine.as_str()) => {
            Some("PostgreSQL's tables are `heap` or `unlogged`")
        }
        Flavor::Mysql | Flavor::Percona if engine == "aria" => Some("Aria is MariaDB's"),
        _ => None,
    }
}

/// Refuses an engine that the build cannot have, and says what must be loaded for one that it can.
pub(crate) fn settings_for(build: &Build, engine: &str) -> Result<Settings, Error> {
    let refuse = |why: &str| {
        Err(Error::Unsupported { what: format!("engine {engine} on {build}"), why: why.to_owned() })
    };
    let name = engine.to_ascii_lowercase();
    if let Some(why) = refusal(build.flavor, engine) {
        return refuse(why);
    }
    let is_mariadb = build.flavor == Flavor::Mariadb;
    match name.as_str() {
        "rocksdb" | "tokudb" => {
            let library = format!("ha_{name}.so");
            let has_plugin = build.files.plugins.as_ref().is_some_and(|dir| dir.join(&library).is_file());
            if has_plugin {
                return Ok([("plugin_load_add".to_owned(), format!("ha_{name}"))].into());
            }
            refuse(&match (&build.origin, name.as_str()) {
                (crate::Origin::Installed(_), "rocksdb") if is_mariadb => {
                    "its plugin is not installed: apt-get install mariadb-plugin-rocksdb".to_owned()
                }
                _ => format!(
                    "the build has no plugin {library}, and plugins work only with the build they were made for"
                ),
            })
        }
        // The server decides; `check_running` asks it.
        _ => Ok(Settings::new()),
    }
}

/// Asks a running server of the MySQL family whether it has the engine.
pub(crate) fn check_running(build: &Build, target: &wire::Target, engine: &str) -> Result<(), Error> {
    if build.flavor == Flavor::Postgres {
        return Ok(());
    }
    let fail = |source| Error::Wire { build: build.name(), source };
    let mut client = wire::blocking::Client::connect(target).map_err(fail)?;
    let sets = client.query_sets("SHOW ENGINES").map_err(fail)?;
    client.close();
    let rows = || {
        sets.iter().flat_map(|set| (0..set.rows.len()).map(move |row| (set.text(row, 0), set.text(row, 1))))
    };
    let is_same = |name: &str| {
        name.eq_ignore_ascii_case(engine) || (name == "MEMORY" && engine.eq_ignore_ascii_case("heap"))
    };
    let has = rows().any(|(name, support)| {
        name.is_some_and(is_same)
            && support.is_some_and(|s| s.eq_ignore_ascii_case("YES") || s.eq_ignore_ascii_case("DEFAULT"))
    });
    if has {
        return Ok(());
    }
    let names: Vec<&str> = rows().filter(|(_, s)| s != &Some("NO")).filter_map(|(name, _)| name).collect();
    Err(Error::Unsupported {
        what: format!("engine {engine} on {build}"),
        why: format!("it has {}", names.join(", ")),
    })
}

/// Whether a build could run an engine, told without starting it: the message says what is missing.
pub fn check(build: &Build, engine: &str) -> Result<(), Error> {
    let missing = builds::missing_libraries(build)?;
    if !missing.is_empty() {
        return Err(Error::Libraries { build: build.name(), missing });
    }
    settings_for(build, engine)?;
    let name = engine.to_ascii_lowercase();
    let is_told = EVERYWHERE.contains(&name.as_str()) || TOLD.contains(&name.as_str());
    if build.flavor == Flavor::Postgres || is_told {
        return Ok(());
    }
    let plugins = settings::known::plugins(build)?;
    if plugins.contains(&name) {
        return Ok(());
    }
    let known = EVERYWHERE.iter().chain(&TOLD).copied().chain(plugins.iter().map(String::as_str));
    let why = match wire::spelling::nearest(&name, known) {
        Some(near) => format!("it has no such engine; is it {near}?"),
        None => "it has no such engine (SHOW ENGINES lists those of a server that runs)".to_owned(),
    };
    Err(Error::Unsupported { what: format!("engine {engine} on {build}"), why })
}
