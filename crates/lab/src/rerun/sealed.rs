//! The workload files that came with a published study.

use std::fs;
use std::path::{Path, PathBuf};

use store::bundle::{Member, WorkloadFile, WorkloadFiles, sha256};

use crate::error::Error;
use crate::plan::{Plan, StoredPlan};
use crate::workloads::{Elsewhere, Unpacked};

/// The folder within the results directory.
pub const FOLDER: &str = "workloads";

/// Writes them below the results directory, each named by what is in it, so that another bundle's are never in its place.
///
/// # Errors
/// A member is missing or its name is no file's, or the directory cannot be written.
pub(super) fn unpack(
    workloads: &[WorkloadFiles],
    members: &[Member],
    results: &Path,
    study: &str,
) -> Result<Unpacked, Error> {
    let folder = results.join(FOLDER);
    let mut unpacked = Unpacked::new();
    let mut index = workloads.to_vec();
    for workload in &mut index {
        let mut places = Elsewhere::new();
        for file in &mut workload.files {
            let name = file.member.rsplit('/').next().unwrap_or_default();
            let found = members.iter().find(|(member, _)| *member == file.member);
            let Some((_, bytes)) = found.filter(|_| store::is_file_name(name)) else {
                let what =
                    format!("the bundle has no file {:?} of workload {}", file.member, workload.workload);
                return Err(Error::Usage(what));
            };
            let name = format!("{}-{name}", &sha256(bytes)[..16]);
            let path = folder.join(&name);
            write(&path, bytes)?;
            places.insert(file.path.clone(), path);
            file.member = name;
        }
        unpacked.insert(workload.workload.clone(), places);
    }
    if !index.is_empty() {
        let text = serde_json::to_vec(&index).map_err(|error| Error::Run(error.to_string()))?;
        write(&index_of(results, study), &text)?;
    }
    Ok(unpacked)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
    folder
        .and_then(|()| report::write_file(path, bytes))
        .map_err(|error| Error::Usage(format!("cannot write {}: {error}", path.display())))
}

/// What leads from a study's names to the files, as the index of a bundle does.
fn index_of(results: &Path, study: &str) -> PathBuf {
    results.join(FOLDER).join(format!("{study}.json"))
}

/// Where the files are that a study was measured again with, so that it can be sealed with them. None where it was not.
pub fn unpacked_before(results: &Path, study: &str) -> Unpacked {
    let text = fs::read(index_of(results, study)).unwrap_or_default();
    let known: Vec<WorkloadFiles> = serde_json::from_slice(&text).unwrap_or_default();
    let place = |file: WorkloadFile| {
        store::is_file_name(&file.member).then(|| (file.path, results.join(FOLDER).join(file.member)))
    };
    known.into_iter().map(|it| (it.workload, it.files.into_iter().filter_map(place).collect())).collect()
}

/// Refuses to measure other workloads than the published ones. Where something private was replaced in a sealed file, the
/// plan gets the hash of what is left.
pub(super) fn agree(own: &Plan, stored: &mut StoredPlan, workloads: &[WorkloadFiles]) -> Result<(), Error> {
    for (name, hash) in &own.workloads {
        let published = stored.workloads.get(name);
        let is_changed = workloads.iter().any(|it| it.workload == *name && it.is_changed);
        if published.is_some_and(|published| published != hash) && !is_changed {
            return Err(Error::Usage(format!(
                "workload `{name}` is not what was measured: the bundle does not have its files, and those that are here \
                 under this name are others; bring the published ones here"
            )));
        }
    }
    stored.workloads.clone_from(&own.workloads);
    Ok(())
}
