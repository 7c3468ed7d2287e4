//! Servers that are on the machine already.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::inspect;
use crate::record::write_atomically;
use crate::{Build, Error, Home, Origin};

/// What is remembered of a binary, as long as it does not change: asking and hashing takes tenths of a second.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Remembered {
    size: u64,
    modified_ns: i64,
    inode: u64,
    build: Build,
}

/// What is remembered of binaries, by their path.
struct Memory {
    path: PathBuf,
    known: BTreeMap<PathBuf, Remembered>,
    is_changed: bool,
}

impl Memory {
    fn open(home: &Home) -> Memory {
        let path = home.path().join("installed.json");
        let known = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice(&text).ok());
        Memory { path, known: known.unwrap_or_default(), is_changed: false }
    }

    /// The build of a server binary; `None` where it does not run here.
    fn build(&mut self, server: &Path, origin: &Origin, label: Option<&str>) -> Result<Option<Build>, Error> {
        let Ok(meta) = std::fs::metadata(server) else { return Ok(None) };
        let modified_ns = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        let known = self.known.get(server).filter(|r| {
            (r.size, r.modified_ns, r.inode) == (meta.len(), modified_ns, meta.ino())
                && r.build.files.server == server
                && r.build.origin == *origin
        });
        if let Some(known) = known {
            return Ok(Some(Build { label: label.map(str::to_owned), ..known.build.clone() }));
        }
        // A binary that does not run here is not an installed server; `missing_libraries` is for fetched ones.
        let Ok(found) = inspect::inspect(server) else { return Ok(None) };
        let build = Build {
            flavor: found.flavor,
            version: found.version,
            label: label.map(str::to_owned),
            identity: inspect::identity(&inspect::sha256_file(server)?, origin),
            origin: origin.clone(),
            archive_sha256: None,
            facts: BTreeMap::new(),
            files: found.files,
        };
        let remembered =
            Remembered { size: meta.len(), modified_ns, inode: meta.ino(), build: build.clone() };
        self.known.insert(server.to_owned(), remembered);
        self.is_changed = true;
        Ok(Some(build))
    }

    fn keep(self) -> Result<(), Error> {
        if !self.is_changed {
            return Ok(());
        }
        let text = serde_json::to_vec(&self.known).map_err(|e| Error::io("write", &self.path, e.into()))?;
        write_atomically(&self.path, &text)
    }
}

/// Looks where packages put servers, and in PATH.
pub(crate) fn find(home: &Home) -> Result<Vec<Build>, Error> {
    let mut memory = Memory::open(home);
    let mut builds = Vec::new();
    for server in candidates() {
        builds.extend(memory.build(&server, &Origin::Installed(server.clone()), None)?);
    }
    memory.keep()?;
    Ok(builds)
}

/// Builds that stay in a directory of the user's, as their binaries are now. One that `make` has given another version
/// is not what its name says any more, and is left out until it is taken again.
pub(crate) fn refreshed(home: &Home, recorded: Vec<Build>) -> Result<Vec<Build>, Error> {
    let mut memory = Memory::open(home);
    let mut builds = Vec::new();
    for old in recorded {
        let now = memory.build(&old.files.server, &old.origin, old.label.as_deref())?;
        builds.extend(now.filter(|now| now.name() == old.name()));
    }
    memory.keep()?;
    Ok(builds)
}

fn candidates() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> =
        ["/usr/sbin", "/usr/libexec", "/usr/local/mysql/bin", "/usr/local/pgsql/bin"]
            .iter()
            .map(PathBuf::from)
            .collect();
    // Debian: /usr/lib/postgresql/15/bin; Red Hat: /usr/pgsql-15/bin.
    dirs.extend(children("/usr/lib/postgresql").map(|dir| dir.join("bin")));
    dirs.extend(
        children("/usr").filter(|d| d.to_string_lossy().contains("/pgsql-")).map(|dir| dir.join("bin")),
    );
    if let Some(path) = std::env::var_os("PATH") {
        dirs.extend(std::env::split_paths(&path).filter(|dir| dir.is_absolute()));
    }
    let mut found: Vec<PathBuf> = dirs
        .iter()
        .flat_map(|dir| ["mariadbd", "mysqld", "postgres"].map(|name| dir.join(name)))
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.dedup();
    found
}

fn children(dir: &str) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(Path::new(dir)).into_iter().flatten().flatten().map(|entry| entry.path())
}
