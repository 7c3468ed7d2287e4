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

/// Looks where packages put servers, and in PATH.
pub(crate) fn find(home: &Home) -> Result<Vec<Build>, Error> {
    let memory_path = home.path().join("installed.json");
    let mut memory: BTreeMap<PathBuf, Remembered> = std::fs::read(&memory_path)
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok())
        .unwrap_or_default();
    let mut builds = Vec::new();
    let mut is_changed = false;
    for server in candidates() {
        let Ok(meta) = std::fs::metadata(&server) else { continue };
        let modified_ns = meta.mtime() * 1_000_000_000 + meta.mtime_nsec();
        let known = memory.get(&server).filter(|r| {
            (r.size, r.modified_ns, r.inode) == (meta.len(), modified_ns, meta.ino())
                && r.build.files.server == server
        });
        if let Some(known) = known {
            builds.push(known.build.clone());
            continue;
        }
        // A binary that does not run here is not an installed server; `missing_libraries` is for fetched ones.
        let Ok(found) = inspect::inspect(&server) else { continue };
        let origin = Origin::Installed(server.clone());
        let identity = inspect::identity(&inspect::sha256_file(&server)?, &origin);
        let build = Build {
            flavor: found.flavor,
            version: found.version,
            label: None,
            identity,
            origin,
            archive_sha256: None,
            files: found.files,
        };
        let remembered =
            Remembered { size: meta.len(), modified_ns, inode: meta.ino(), build: build.clone() };
        memory.insert(server, remembered);
        builds.push(build);
        is_changed = true;
    }
    if is_changed {
        let text = serde_json::to_vec(&memory).map_err(|e| Error::io("write", &memory_path, e.into()))?;
        write_atomically(&memory_path, &text)?;
    }
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
