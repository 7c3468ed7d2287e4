//! How a build from source was made, as reports say it: compiler, flags, allocator.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::process::Command;

use super::recipe::{PATH, Recipe};
use super::{Identity, Runner};
use crate::builds::beneath::Root;
use crate::builds::libraries;

/// What a report says of it. `server` is the program that came out.
pub(super) fn facts(
    recipe: &Recipe,
    identity: &Identity,
    runner: &Runner<'_>,
    server: &Path,
) -> BTreeMap<String, String> {
    let mut flags = flags_of(&runner.work.path.join("build"));
    if flags.is_empty() {
        let environment = runner.environment();
        let named = ["CFLAGS", "CXXFLAGS", "LDFLAGS", "CC", "CXX"].into_iter();
        flags = named.filter_map(|name| Some(format!("{name}={}", environment.get(name)?))).collect();
    }
    BTreeMap::from([
        ("commit".to_owned(), identity.commit.clone()),
        ("dirty".to_owned(), if identity.is_dirty { "yes" } else { "no" }.to_owned()),
        ("compiler".to_owned(), compiler(recipe)),
        ("flags".to_owned(), if flags.is_empty() { "the recipe's".to_owned() } else { flags.join("; ") }),
        ("allocator".to_owned(), libraries::allocator_of(server).to_owned()),
        ("recipe".to_owned(), recipe.text.clone()),
        ("network".to_owned(), if runner.request.has_network { "allowed" } else { "none" }.to_owned()),
    ])
}

/// The C compiler's name and version: the recipe's, where it names a program of the system's.
pub(super) fn compiler(recipe: &Recipe) -> String {
    let named = recipe.env.get("CC").map(String::as_str).unwrap_or_default();
    let is_program = |name: &str| {
        !name.is_empty()
            && PATH.split(':').any(|dir| !name.contains('/') && Path::new(dir).join(name).is_file())
    };
    let program = if is_program(named) { named } else { "cc" };
    let said = Command::new(program).arg("--version").env("PATH", PATH).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    said.lines().next().unwrap_or_default().to_owned()
}

/// Reads flags out of a file of a build system's.
type Reader = fn(&str) -> Vec<String>;

/// The flags that the build system settled on: what cmake, meson or autoconf noted in the directory of the build. It is
/// the recipe's, so nothing there is followed anywhere else, or read without end.
fn flags_of(build: &Path) -> Vec<String> {
    let Ok(below) = Root::open(build) else { return vec![] };
    let text = |name: &str| {
        let mut text = Vec::new();
        below.read(Path::new(name)).ok()?.take(8 << 20).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    };
    let kinds: [(&str, Reader); 3] = [
        ("CMakeCache.txt", of_cmake),
        ("meson-info/intro-buildoptions.json", of_meson),
        ("config.log", of_autoconf),
    ];
    let mut flags = vec![];
    for (name, read) in kinds {
        if flags.is_empty() {
            flags = text(name).map(|text| read(&text)).unwrap_or_default();
        }
    }
    flags.iter().map(|flag| flag.chars().filter(|c| !c.is_control()).take(400).collect()).collect()
}

fn of_cmake(cache: &str) -> Vec<String> {
    let value = |wanted: &str| {
        let mut lines = cache.lines().filter_map(|line| line.split_once(':'));
        let (_, rest) = lines.find(|(name, _)| *name == wanted)?;
        rest.split_once('=').map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    };
    let kind = value("CMAKE_BUILD_TYPE").unwrap_or_default();
    let of_kind = |name: &str| format!("{name}_{}", kind.to_uppercase());
    [
        "CMAKE_C_FLAGS".to_owned(),
        "CMAKE_CXX_FLAGS".to_owned(),
        of_kind("CMAKE_C_FLAGS"),
        of_kind("CMAKE_CXX_FLAGS"),
    ]
    .iter()
    .map(String::as_str)
    .chain(["CMAKE_BUILD_TYPE"])
    .filter_map(|name| Some(format!("{name}={}", value(name)?)))
    .collect()
}

fn of_meson(options: &str) -> Vec<String> {
    let options: Vec<serde_json::Value> = serde_json::from_str(options).unwrap_or_default();
    let value = |wanted: &str| {
        let option = options.iter().find(|option| option["name"] == wanted)?;
        let text = match &option["value"] {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(words) => {
                words.iter().filter_map(|word| word.as_str()).collect::<Vec<_>>().join(" ")
            }
            other => other.to_string(),
        };
        Some(format!("{wanted}={text}")).filter(|_| !text.is_empty())
    };
    ["buildtype", "optimization", "debug", "c_args", "cpp_args"].into_iter().filter_map(value).collect()
}

fn of_autoconf(log: &str) -> Vec<String> {
    let is_flags =
        |line: &&str| ["CFLAGS='", "CXXFLAGS='", "LDFLAGS='"].iter().any(|name| line.starts_with(name));
    let unquoted = log.lines().filter(is_flags).map(|line| line.replace('\'', ""));
    unquoted.filter(|flags| !flags.ends_with('=')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_from_what_each_build_system_notes() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        assert_eq!(flags_of(dir.path()), Vec::<String>::new());
        let log = "CFLAGS='-O1'x\nCC='gcc'\nCFLAGS='-Wall -O2 -g'\nLDFLAGS=''\n";
        std::fs::write(at("config.log"), log.split_once('\n').unwrap().1).unwrap();
        assert_eq!(flags_of(dir.path()), ["CFLAGS=-Wall -O2 -g"]);
        std::fs::create_dir(at("meson-info")).unwrap();
        let options = r#"[{"name": "buildtype", "value": "debugoptimized"}, {"name": "debug", "value": true},
            {"name": "c_args", "value": ["-O3", "-g"]}, {"name": "cpp_args", "value": []}]"#;
        std::fs::write(at("meson-info/intro-buildoptions.json"), options).unwrap();
        assert_eq!(flags_of(dir.path()), ["buildtype=debugoptimized", "debug=true", "c_args=-O3 -g"]);
        let cache = "// a comment\nCMAKE_BUILD_TYPE:STRING=RelWithDebInfo\nCMAKE_C_FLAGS:STRING=\n\
                     CMAKE_CXX_FLAGS_RELWITHDEBINFO:STRING=-O2 -g -DNDEBUG\n";
        std::fs::write(at("CMakeCache.txt"), cache).unwrap();
        let wanted = ["CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 -g -DNDEBUG", "CMAKE_BUILD_TYPE=RelWithDebInfo"];
        assert_eq!(flags_of(dir.path()), wanted);
        // A recipe may have put a link in its place, to what only root reads.
        std::fs::remove_file(at("CMakeCache.txt")).unwrap();
        std::fs::write(at("secret"), cache).unwrap();
        std::os::unix::fs::symlink(at("secret"), at("CMakeCache.txt")).unwrap();
        assert_eq!(flags_of(dir.path())[0], "buildtype=debugoptimized");
    }
}
