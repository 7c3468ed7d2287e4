//! Libraries that a server is started with before its own (LD_PRELOAD): memory allocators by their names, and what was
//! really preloaded, for the record.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::Error;

/// The variable of the loader's.
pub const VARIABLE: &str = "LD_PRELOAD";

/// Memory allocators: what people call one, its files from the newest on, and the package of Debian's that has it.
pub const ALLOCATORS: [(&str, &[&str], &str); 3] = [
    ("jemalloc", &["libjemalloc.so.2", "libjemalloc.so.1"], "libjemalloc2"),
    ("tcmalloc", &["libtcmalloc_minimal.so.4", "libtcmalloc.so.4"], "libtcmalloc-minimal4"),
    ("mimalloc", &["libmimalloc.so.3", "libmimalloc.so.2"], "libmimalloc2.0"),
];

/// Where distributions put libraries.
const PLACES: [&str; 5] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib", "/usr/lib"];

/// The library that a study's `preload` names: an allocator, or a path.
///
/// # Errors
/// It is not on this machine, or no name that is known.
pub fn find(name: &str) -> Result<PathBuf, Error> {
    find_in(name, &PLACES)
}

fn find_in(name: &str, places: &[&str]) -> Result<PathBuf, Error> {
    let refuse = |why: String| Err(Error::Unsupported { what: format!("preload \"{name}\""), why });
    if name.contains('/') {
        let path = PathBuf::from(name);
        return if path.is_file() { Ok(path) } else { refuse("there is no such file".to_owned()) };
    }
    let Some((_, files, package)) = ALLOCATORS.iter().find(|(known, ..)| *known == name) else {
        let known: Vec<&str> = ALLOCATORS.iter().map(|(known, ..)| *known).collect();
        return refuse(format!("{}, or the path of a library", known.join(", ")));
    };
    let all = files.iter().flat_map(|file| places.iter().map(move |place| Path::new(place).join(file)));
    match all.into_iter().find(|path| path.is_file()) {
        Some(path) => Ok(path),
        None => refuse(format!("{} is not on this machine (apt-get install {package})", files[0])),
    }
}

/// Libraries that LD_PRELOAD names by their path.
pub(crate) fn named(env: &BTreeMap<String, String>) -> impl Iterator<Item = &Path> {
    let list = env.get(VARIABLE).map(String::as_str).unwrap_or_default();
    list.split([':', ' ']).filter(|entry| entry.contains('/')).map(Path::new)
}

/// What is worth recording of a server's environment: its variables, and which file each preloaded library is, as two
/// versions of one have the same name.
pub fn facts(env: &BTreeMap<String, String>) -> Vec<(String, String)> {
    let variables = env.iter().map(|(name, value)| (format!("server env {name}"), value.clone()));
    let libraries = named(env).map(|library| {
        let real = library.canonicalize().unwrap_or_else(|_| library.to_owned());
        let hash = std::fs::read(&real).map_or_else(
            |error| error.to_string(),
            |bytes| Sha256::digest(&bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect(),
        );
        (format!("preloaded {}", library.display()), format!("{} sha256 {hash}", real.display()))
    });
    variables.chain(libraries).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocators_are_found_by_name_or_the_package_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().to_str().unwrap();
        let why = |name: &str| find_in(name, &[place]).unwrap_err().to_string();
        assert!(why("jemalloc").contains("apt-get install libjemalloc2"), "{}", why("jemalloc"));
        assert!(why("hoard").contains("jemalloc, tcmalloc, mimalloc, or the path"), "{}", why("hoard"));
        assert!(why("/nowhere/lib.so").contains("there is no such file"));
        let library = dir.path().join("libjemalloc.so.1");
        std::fs::write(&library, "x").unwrap();
        assert_eq!(find_in("jemalloc", &[place]).unwrap(), library);
        let newer = dir.path().join("libjemalloc.so.2");
        std::os::unix::fs::symlink(&library, &newer).unwrap();
        assert_eq!(find_in("jemalloc", &["/nowhere", place]).unwrap(), newer);

        let env = BTreeMap::from([(VARIABLE.to_owned(), format!("{}:libodd.so", newer.display()))]);
        let facts = facts(&env);
        assert_eq!(facts.len(), 2, "{facts:?}");
        assert_eq!(facts[1].0, format!("preloaded {}", newer.display()));
        // The file itself, and the hash of "x".
        assert!(facts[1].1.ends_with("libjemalloc.so.1 sha256 2d711642b726b044"), "{facts:?}");
    }
}
