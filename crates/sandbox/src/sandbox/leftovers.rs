//! Finding and removing what crashed plimsolls left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use rustix::process::Signal;

use super::check_name;
use crate::process;
use crate::record::{self, Lock, Record, serial};
use crate::server::postgres;
use crate::{Error, Flavor, Home};

/// Finds what crashed plimsolls left in this home (sandboxes of runs whose process is gone, half-made ones), ends their
/// servers and removes them, with the file systems that they ran on. Returns their names.
pub fn leftovers(home: &Home) -> Result<Vec<String>, Error> {
    remove_half_made(&home.builds());
    remove_half_made(&home.snapshots());
    remove_half_made(&home.path().join("sources"));
    let entries = fs::read_dir(home.sandboxes()).into_iter().flatten();
    let mut removed = Vec::new();
    for dir in entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()) {
        let Some(name) = dir.file_name().and_then(|n| n.to_str()).map(str::to_owned) else { continue };
        let is_passing = name.starts_with(".new-") || name.starts_with(".gone-");
        if !is_passing && check_name(&name).is_err() {
            continue;
        }
        if is_passing && is_younger_than(&dir, Duration::from_secs(10)) {
            // Another plimsoll may be between making it and locking it.
            continue;
        }
        let record = Record::read(&dir).ok();
        let may_be_left = is_passing || record.as_ref().is_some_and(|r| r.of_run || !r.ready);
        if !may_be_left {
            continue;
        }
        // Whoever looks after it holds its lock.
        let Some(_lock) = Lock::of_leftover(&dir)? else { continue };
        match &record {
            Some(record) => {
                end_all_of(record, None);
                remove_all_of(record, &dir)?;
            }
            None => remove_dir(&dir)?,
        }
        removed.push(name);
    }
    // After the servers that ran on them.
    removed.extend(crate::filesystem::leftovers(home)?);
    Ok(removed)
}

/// Removes half-made builds and snapshots, and where servers were compiled, whose makers are gone. What cannot be removed
/// now is tried again next time.
fn remove_half_made(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let rest = [".new-", ".work-"].iter().find_map(|prefix| name.strip_prefix(prefix));
        let maker = rest.and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        if name.starts_with(".gone-") || maker.is_some_and(|pid| !process::is_alive(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_younger_than(dir: &Path, age: Duration) -> bool {
    let modified = fs::metadata(dir).and_then(|meta| meta.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|elapsed| elapsed < age))
}

/// Ends a server whose data go with it, so there is nothing to stop gracefully; PostgreSQL is asked first, since only it
/// puts away its shared memory.
pub(super) fn end_all_of(record: &Record, mut child: Option<&mut Child>) {
    let (dir, family) = (&record.datadir, record.family());
    if record.build.flavor == Flavor::Postgres {
        let segments: Vec<PathBuf> =
            family.living().iter().flat_map(|&pid| process::shared_memory_of(pid)).collect();
        if let Some(pid) = family.head() {
            family.signal(pid, Signal::QUIT);
            process::wait_gone(&family, Some(pid), child.as_deref_mut(), Duration::from_secs(5));
        }
        process::kill_all_of(&family, child);
        postgres::remove_shared_memory(dir);
        // A backend that is told to quit between making a segment and writing it down leaves it.
        let of_uid = record.ids.map(|ids| record::shared_memory_of_uid(ids.uid)).unwrap_or_default();
        for segment in segments.into_iter().chain(of_uid) {
            // Mostly the server has put it away.
            let _ = fs::remove_file(segment);
        }
    } else {
        process::kill_all_of(&family, child);
    }
}

/// Removes everything of a sandbox whose processes are gone: control groups, what is outside, its directory.
pub(super) fn remove_all_of(record: &Record, dir: &Path) -> Result<(), Error> {
    for group in &record.cgroups {
        crate::limits::remove_group(group)?;
    }
    if let Some(before) = record.scheduler_before.as_ref().filter(|_| !record.is_copy) {
        before.restore()?;
    }
    for outside in record.outside.iter().filter(|_| !record.is_copy) {
        remove_dir(outside)?;
    }
    remove_dir(dir)
}

/// Renames first, so that nobody takes a half-removed directory for a whole one.
fn remove_dir(dir: &Path) -> Result<(), Error> {
    let parent = dir.parent().unwrap_or(Path::new("/"));
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or("x");
    let gone: PathBuf = if name.starts_with(".gone-") {
        dir.to_owned()
    } else {
        let gone = parent.join(format!(".gone-{name}-{}", serial()));
        match fs::rename(dir, &gone) {
            Ok(()) => gone,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            // A directory in another's parent (storage place) may not be renamed by us: remove it where it is.
            Err(_) => dir.to_owned(),
        }
    };
    match fs::remove_dir_all(&gone) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("remove", &gone, e)),
        _ => Ok(()),
    }
}
