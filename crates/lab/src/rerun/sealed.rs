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

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str, member: &str) -> (Vec<WorkloadFiles>, Vec<Member>) {
        let files = vec![WorkloadFile { path: path.to_owned(), member: member.to_owned() }];
        let index = vec![WorkloadFiles { workload: path.to_owned(), files, is_changed: false }];
        (index, vec![(member.to_owned(), b"SELECT 1;".to_vec())])
    }

    /// Whatever a bundle calls them, files are written into the one folder, and what a study calls them leads there.
    #[test]
    fn no_name_of_a_bundle_leads_out_of_the_results() {
        let dir = tempfile::tempdir().unwrap();
        let results = dir.path().join("r");
        for (path, member) in [
            ("/etc/passwd", "workloads/1-passwd"),
            ("../../x.sql", "workloads/../../x.sql"),
            ("a/x.sql", "/x.sql"),
        ] {
            let (index, members) = of(path, member);
            let unpacked = unpack(&index, &members, &results, "s").unwrap();
            let place = &unpacked[path][path];
            assert_eq!(place.parent(), Some(&*results.join(FOLDER)), "{member}");
            assert_eq!(fs::read(place).unwrap(), b"SELECT 1;");
            assert_eq!(unpacked_before(&results, "s"), unpacked, "what was written is found again");
        }
        for member in ["workloads/..", "workloads/", "", "."] {
            let (index, members) = of("x.sql", member);
            let error = unpack(&index, &members, &results, "s").unwrap_err().to_string();
            assert!(error.contains("the bundle has no file"), "{member}: {error}");
        }
        let (index, _) = of("x.sql", "workloads/1-x.sql");
        assert!(unpack(&index, &[], &results, "s").is_err());
        assert_eq!(unpacked_before(&results, "other"), Unpacked::new());
        let beside: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(beside, ["r"]);
    }
}
