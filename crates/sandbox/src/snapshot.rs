//! Loaded data directories kept for reuse.

use std::time::SystemTime;

use crate::{Error, Home, OnProgress, Sandbox, Spec};

/// A kept data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its key, see [`key`].
    pub key: String,
    /// `flavor@version[+label]` of the build that wrote it.
    pub build: String,
    /// What was loaded, as the workload names it.
    pub dataset: String,
    /// Size on disk.
    pub bytes: u64,
    /// When it was taken.
    pub taken_at: SystemTime,
    /// When it was last used.
    pub used_at: SystemTime,
}

/// What was removed to stay within the limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Keys.
    pub keys: Vec<String>,
    /// Bytes freed.
    pub bytes: u64,
}

/// The key of a dataset on a sandbox: a hash over the build's identity, every setting that is not on the documented
/// harmless list, and the dataset's own key.
pub fn key(spec: &Spec, dataset: &str) -> String {
    let _ = (spec, dataset);
    String::new()
}

/// The snapshot of that key, if there is a complete one.
pub fn find(home: &Home, key: &str) -> Result<Option<Snapshot>, Error> {
    Ok(list(home)?.into_iter().find(|s| s.key == key))
}

/// Keeps the data directory of a running sandbox: stops it cleanly, copies, renames into place, starts it again when
/// `restart`. The caller has drained purge before. Snapshots beyond `limit_bytes` are evicted, least recently used
/// first.
pub fn save(
    home: &Home,
    sandbox: &mut Sandbox,
    key: &str,
    dataset: &str,
    limit_bytes: u64,
    restart: bool,
    progress: OnProgress<'_>,
) -> Result<Snapshot, Error> {
    let _ = (home, sandbox, key, dataset, limit_bytes, restart, progress);
    Err(Error::Interrupted)
}

/// All complete snapshots, most recently used first.
pub fn list(home: &Home) -> Result<Vec<Snapshot>, Error> {
    let _ = home;
    Ok(Vec::new())
}

/// Removes least recently used snapshots until at most `limit_bytes` are left, and any half-made one.
pub fn prune(home: &Home, limit_bytes: u64) -> Result<Pruned, Error> {
    let _ = (home, limit_bytes);
    Ok(Pruned::default())
}
