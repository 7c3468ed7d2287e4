//! The workload files that came with a published study.

use std::fs;
use std::path::Path;

use store::bundle::{Member, WorkloadFiles, sha256};

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
) -> Result<Unpacked, Error> {
    let folder = results.join(FOLDER);
    let mut unpacked = Unpacked::new();
    for workload in workloads {
        let mut places = Elsewhere::new();
        for file in &workload.files {
            let name = file.member.rsplit('/').next().unwrap_or_default();
            let found = members.iter().find(|(member, _)| *member == file.member);
            let Some((_, bytes)) = found.filter(|_| store::is_file_name(name)) else {
                let what =
                    format!("the bundle has no file {:?} of workload {}", file.member, workload.workload);
                return Err(Error::Usage(what));
            };
            let path = folder.join(format!("{}-{name}", &sha256(bytes)[..16]));
            let written = fs::create_dir_all(&folder).and_then(|()| report::write_file(&path, bytes));
            written.map_err(|error| Error::Usage(format!("cannot write {}: {error}", path.display())))?;
            places.insert(file.path.clone(), path);
        }
        unpacked.insert(workload.workload.clone(), places);
    }
    Ok(unpacked)
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
