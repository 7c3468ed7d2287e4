//! Loaded data directories kept for reuse.
//!
//! `snapshots/KEY/` holds `data/`, a copy of a data directory taken after a clean stop, and `snapshot.json`. It is made
//! beside its place and renamed when whole, so one that is there is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::record::{Lock, serial, write_atomically};
use crate::settings::known::NAMES;
use crate::{Build, Error, Flavor, Home, OnProgress, Progress, Sandbox, Spec, copy};

/// The format of snapshots, part of every key: another one makes all older snapshots unknown.
const FORMAT: &str = "plimsoll-snapshot-1";

/// A kept data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its key, see [`key`].
    pub key: String,
    /// `flavor@version[+label]` of the build that wrote it.
    pub build: String,
    /// Identity of that build: no other may read it.
    pub identity: String,
    /// What was loaded, as the workload names it.
    pub dataset: String,
    /// Bytes of its files.
    pub bytes: u64,
    pub taken_at: SystemTime,
    pub used_at: SystemTime,
    pub dir: PathBuf,
}

/// `snapshot.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    format: String,
    key: String,
    build: String,
    identity: String,
    flavor: Flavor,
    version: String,
    dataset: String,
    bytes: u64,
    taken_at_s: u64,
}

/// What was removed to stay within the limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    pub keys: Vec<String>,
    /// Bytes freed.
    pub bytes: u64,
}

/// Whether a setting leaves the data as they are.
pub fn is_harmless(setting: &str) -> bool {
    NAMES.harmless.iter().any(|name| name == setting)
}

/// The key of a dataset on a sandbox: a hash over the build's identity, every effective setting that is not on the
/// documented list of harmless ones, and the dataset's own key.
pub fn key(spec: &Spec, dataset: &str) -> String {
    let mut hasher = Sha256::new();
    let mut part = |text: &str| {
        hasher.update((text.len() as u64).to_le_bytes());
        hasher.update(text.as_bytes());
    };
    part(FORMAT);
    part(&spec.build.identity);
    for (name, value) in spec.effective_settings().iter().filter(|(name, _)| !is_harmless(name)) {
        part(name);
        part(value);
    }
    part(dataset);
    hasher.finalize().iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// The snapshot of that key, if there is a complete one.
pub fn find(home: &Home, key: &str) -> Result<Option<Snapshot>, Error> {
    Ok(read(&home.snapshots().join(key)).filter(|s| s.key == key))
}

/// Reads a snapshot's directory; `None` when it is not a complete one.
fn read(dir: &Path) -> Option<Snapshot> {
    let stored: Stored = serde_json::from_slice(&fs::read(dir.join("snapshot.json")).ok()?).ok()?;
    let is_whole = stored.format == FORMAT && dir.join("data").is_dir();
    let used_at =
        fs::metadata(dir.join("snapshot.json")).and_then(|m| m.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    is_whole.then(|| Snapshot {
        key: stored.key,
        build: stored.build,
        identity: stored.identity,
        dataset: stored.dataset,
        bytes: stored.bytes,
        taken_at: SystemTime::UNIX_EPOCH + Duration::from_secs(stored.taken_at_s),
        used_at,
        dir: dir.to_owned(),
    })
}

/// Keeps the data directory of a sandbox: stops it cleanly, copies, renames into place, starts it again when it ran. The
/// caller has drained purge before. Then snapshots beyond `limit_bytes` are evicted, least recently used first, but not
/// the new one. Where the new one alone is beyond the limit it is not kept: `None`.
pub fn save(
    home: &Home,
    sandbox: &mut Sandbox,
    key: &str,
    dataset: &str,
    limit_bytes: u64,
    progress: OnProgress<'_>,
) -> Result<Option<Snapshot>, Error> {
    let is_running = sandbox.pid().is_some();
    if is_running {
        progress(Progress::Step(format!("stopping {} for a snapshot", sandbox.build())));
        if sandbox.stop()?.killed {
            sandbox.start()?;
            return Err(Error::Start {
                build: sandbox.build().name(),
                why: "it did not stop by itself, so its data cannot be kept as a snapshot".to_owned(),
                log: sandbox.log_tail(10).join("\n"),
            });
        }
    }
    let kept = keep(home, sandbox, key, dataset, limit_bytes, progress);
    if is_running {
        sandbox.start()?;
    }
    kept
}

fn keep(
    home: &Home,
    sandbox: &Sandbox,
    key: &str,
    dataset: &str,
    limit_bytes: u64,
    progress: OnProgress<'_>,
) -> Result<Option<Snapshot>, Error> {
    let snapshots = home.snapshots();
    fs::create_dir_all(&snapshots).map_err(|e| Error::io("create", &snapshots, e))?;
    let place = snapshots.join(key);
    if let Some(there) = read(&place) {
        return Ok(Some(there));
    }
    let bytes = crate::storage::bytes_below(sandbox.datadir());
    if bytes > limit_bytes {
        return Ok(None);
    }
    // Room is made before the copy, so that the limit holds at every moment.
    prune(home, limit_bytes - bytes)?;
    let free = crate::storage::free_bytes(&snapshots)?;
    if free < bytes + bytes / 10 {
        return Err(Error::io("keep a snapshot in", &snapshots, std::io::ErrorKind::StorageFull.into()));
    }
    let new = snapshots.join(format!(".new-{}-{}", std::process::id(), serial()));
    fs::create_dir(&new).map_err(|e| Error::io("create", &new, e))?;
    let fill = || -> Result<(), Error> {
        let _lock = Lock::take(&new, Duration::ZERO)?;
        progress(Progress::Step(format!("keeping a snapshot of {dataset}")));
        let bytes = copy::tree(sandbox.datadir(), &new.join("data"), None, progress)?;
        let stored = Stored {
            format: FORMAT.to_owned(),
            key: key.to_owned(),
            build: sandbox.build().name(),
            identity: sandbox.build().identity.clone(),
            flavor: sandbox.build().flavor,
            version: sandbox.build().version.clone(),
            dataset: dataset.to_owned(),
            bytes,
            taken_at_s: SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        };
        let text = serde_json::to_vec_pretty(&stored).map_err(|e| Error::io("write", &new, e.into()))?;
        write_atomically(&new.join("snapshot.json"), &text)?;
        // What is in place must be on disk before it is trusted after a power cut.
        crate::storage::sync_filesystem(&new)?;
        match fs::rename(&new, &place) {
            // Another plimsoll kept the same one meanwhile.
            Err(_) if read(&place).is_some() => Ok(()),
            other => other.map_err(|e| Error::io("put in place", &place, e)),
        }
    };
    let filled = fill();
    // Gone when it was renamed; else half-made.
    let _ = fs::remove_dir_all(&new);
    filled?;
    Ok(read(&place))
}

/// The data directory of a sandbox that is stopped, for another one of a build that can read it: a replica's.
pub fn of_stopped(sandbox: &Sandbox, reader: &Build) -> Snapshot {
    Snapshot {
        key: String::new(),
        build: sandbox.build().name(),
        identity: reader.identity.clone(),
        dataset: format!("the primary ({})", sandbox.build()),
        bytes: crate::storage::bytes_below(sandbox.datadir()),
        taken_at: SystemTime::now(),
        used_at: SystemTime::now(),
        // Data directories are called as those of snapshots are.
        dir: sandbox.datadir().parent().unwrap_or(sandbox.datadir()).to_owned(),
    }
}

/// Copies a snapshot to where a sandbox's data directory is to be, which does not exist yet, and marks it as used.
pub(crate) fn restore(
    snapshot: &Snapshot,
    datadir: &Path,
    ids: Option<crate::process::Ids>,
    progress: OnProgress<'_>,
) -> Result<(), Error> {
    let record = snapshot.dir.join("snapshot.json");
    // Its time of change is its time of use. That another plimsoll evicts it now shows as a missing file.
    if let Ok(file) = fs::File::options().append(true).open(&record) {
        let _ = file.set_modified(SystemTime::now());
    }
    progress(Progress::Step(format!("restoring the snapshot of {}", snapshot.dataset)));
    copy::tree(&snapshot.dir.join("data"), datadir, ids, progress)?;
    Ok(())
}

/// All complete snapshots, most recently used first.
pub fn list(home: &Home) -> Result<Vec<Snapshot>, Error> {
    let Ok(entries) = fs::read_dir(home.snapshots()) else { return Ok(Vec::new()) };
    let is_named = |path: &PathBuf| !path.file_name().is_some_and(|n| n.to_string_lossy().starts_with('.'));
    let mut all: Vec<Snapshot> =
        entries.flatten().map(|e| e.path()).filter(is_named).filter_map(|path| read(&path)).collect();
    all.sort_by_key(|s| std::cmp::Reverse(s.used_at));
    Ok(all)
}

/// What [`prune`] would remove.
pub fn beyond(home: &Home, limit_bytes: u64) -> Result<Vec<Snapshot>, Error> {
    let mut left: u64 = 0;
    let mut beyond = list(home)?;
    beyond.retain(|snapshot| {
        let is_kept = left + snapshot.bytes <= limit_bytes;
        left += if is_kept { snapshot.bytes } else { 0 };
        !is_kept
    });
    Ok(beyond)
}

/// Removes least recently used snapshots until at most `limit_bytes` are left.
pub fn prune(home: &Home, limit_bytes: u64) -> Result<Pruned, Error> {
    let mut pruned = Pruned::default();
    for snapshot in beyond(home, limit_bytes)? {
        remove(&snapshot)?;
        pruned.bytes += snapshot.bytes;
        pruned.keys.push(snapshot.key);
    }
    Ok(pruned)
}

pub fn remove(snapshot: &Snapshot) -> Result<(), Error> {
    let gone = snapshot.dir.with_file_name(format!(".gone-{}", serial()));
    match fs::rename(&snapshot.dir, &gone) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|e| Error::io("remove", &snapshot.dir, e))?,
    }
    fs::remove_dir_all(&gone).map_err(|e| Error::io("remove", &gone, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(home: &Home, key: &str, bytes: u64, used_s: u64) {
        let dir = home.snapshots().join(key);
        fs::create_dir_all(dir.join("data")).unwrap();
        let stored = Stored {
            format: FORMAT.to_owned(),
            key: key.to_owned(),
            build: "mysql@8.0.33".to_owned(),
            identity: "x".to_owned(),
            flavor: Flavor::Mysql,
            version: "8.0.33".to_owned(),
            dataset: "d".to_owned(),
            bytes,
            taken_at_s: 1,
        };
        let path = dir.join("snapshot.json");
        fs::write(&path, serde_json::to_vec(&stored).unwrap()).unwrap();
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(used_s)).unwrap();
    }

    #[test]
    fn the_least_recently_used_go_first_and_half_made_ones_are_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path()).unwrap();
        made(&home, "old", 100, 10);
        made(&home, "new", 100, 30);
        made(&home, "mid", 100, 20);
        fs::create_dir_all(home.snapshots().join("half")).unwrap();
        made(&home, ".new-1-1", 100, 99);
        let keys = |home: &Home| list(home).unwrap().into_iter().map(|s| s.key).collect::<Vec<_>>();
        assert_eq!(keys(&home), ["new", "mid", "old"]);
        assert!(find(&home, "half").unwrap().is_none());
        let named = beyond(&home, 250).unwrap();
        assert_eq!(named.iter().map(|s| s.key.as_str()).collect::<Vec<_>>(), ["old"]);
        assert_eq!(keys(&home), ["new", "mid", "old"], "to name them removes nothing");
        assert_eq!(prune(&home, 250).unwrap(), Pruned { keys: vec!["old".into()], bytes: 100 });
        assert_eq!(keys(&home), ["new", "mid"]);
        assert_eq!(prune(&home, 0).unwrap().bytes, 200);
        assert!(keys(&home).is_empty());
    }

    #[test]
    fn harmless_settings_are_each_named_once() {
        let mut sorted = NAMES.harmless.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), NAMES.harmless.len());
        assert!(is_harmless("shared_buffers") && !is_harmless("innodb_page_size"));
        assert!(
            !is_harmless("log_bin")
                && !is_harmless("innodb_log_file_size")
                && !is_harmless("character_set_server")
        );
    }
}
