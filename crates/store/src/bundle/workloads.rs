//! Which members of a bundle a workload is made of, and what its files hash to, as plans have it.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{INDEX, Member, WORKLOADS};

/// The files that a workload was read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadFiles {
    pub workload: String,
    /// In the order in which the hash takes them.
    pub files: Vec<WorkloadFile>,
    /// What is private was replaced in them or in their names, so that they do not hash to what the plan says.
    pub is_changed: bool,
}

/// A file of a workload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadFile {
    pub path: String,
    /// The member that has its bytes.
    pub member: String,
}

impl WorkloadFiles {
    /// Paths and bytes; `None` where a member is not there.
    pub fn content<'a>(&'a self, members: &'a [Member]) -> Option<Vec<(&'a str, &'a [u8])>> {
        let of = |file: &'a WorkloadFile| {
            let (_, bytes) = members.iter().find(|(name, _)| *name == file.member)?;
            Some((file.path.as_str(), bytes.as_slice()))
        };
        self.files.iter().map(of).collect()
    }
}

/// Begins the names of workloads of scripts in pgbench's language, and sets off the file that makes their tables:
/// `pgbench:a.sql@3,b.sql;init=tables.sql`.
pub const PGBENCH: &str = "pgbench:";
/// See [`PGBENCH`].
pub const PGBENCH_INIT: &str = ";init=";

/// SHA-256 of a workload's files, hexadecimal: what a plan keeps of it. The names of scripts of pgbench's are part of what
/// they do, those of data files lead to what a smack loads.
pub fn content_sha256<B: AsRef<[u8]>>(workload: &str, files: &[(&str, B)]) -> String {
    let mut hash = Sha256::new();
    let mut add = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    if let Some(list) = workload.strip_prefix(PGBENCH) {
        let scripts = files.len() - usize::from(list.contains(PGBENCH_INIT)).min(files.len());
        for (at, (path, bytes)) in files.iter().enumerate() {
            if at < scripts {
                add(path.as_bytes());
            }
            add(bytes.as_ref());
        }
    } else if workload.ends_with(".smack") {
        for (at, (path, bytes)) in files.iter().enumerate() {
            let (path, bytes) = (if at == 0 { "" } else { *path }, bytes.as_ref());
            hash.update(format!("{path} {}\n", bytes.len()));
            hash.update(bytes);
        }
    } else {
        files.iter().for_each(|(_, bytes)| add(bytes.as_ref()));
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Gives the files of workloads names that a bundle can have, each its own. The same file of two workloads is one member.
#[derive(Debug, Default)]
pub struct NamedWorkloads {
    pub index: Vec<WorkloadFiles>,
    pub members: Vec<Member>,
}

impl NamedWorkloads {
    /// Takes a workload with its files.
    pub fn add(&mut self, workload: &str, files: Vec<(String, Vec<u8>)>) {
        let mut named = Vec::new();
        for (path, bytes) in files {
            let plain = plain_name(&path);
            let known = self.members.iter().find(|(member, known)| {
                *known == bytes && member.split_once('-').is_some_and(|(_, name)| *name == plain)
            });
            let member = match known {
                Some((member, _)) => member.clone(),
                None => {
                    let member = format!("{WORKLOADS}{}-{plain}", self.members.len() + 1);
                    self.members.push((member.clone(), bytes));
                    member
                }
            };
            named.push(WorkloadFile { path, member });
        }
        self.index.push(WorkloadFiles { workload: workload.to_owned(), files: named, is_changed: false });
    }
}

/// Its end tells a name better than its beginning.
const NAME_CHARS: usize = 60;

/// The last part of a path in letters that a member's name may have.
fn plain_name(path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let all: Vec<char> = last.chars().map(plain).collect();
    all[all.len().saturating_sub(NAME_CHARS)..].iter().collect()
}

/// What stands in a bundle's index; `None`: it has none, as bundles before it had none.
///
/// # Errors
/// It cannot be read.
pub fn index_of(members: &[Member]) -> Result<Option<Vec<WorkloadFiles>>, super::BundleError> {
    let Some((_, bytes)) = members.iter().find(|(name, _)| name == INDEX) else { return Ok(None) };
    serde_json::from_slice(bytes)
        .map(Some)
        .map_err(|error| super::BundleError::refused(format!("{INDEX} cannot be read: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_a_name_of_its_own_that_a_bundle_can_have() {
        let text = |path: &str, text: &str| (path.to_owned(), text.as_bytes().to_vec());
        let mut named = NamedWorkloads::default();
        named.add("a/x.sql", vec![text("a/x.sql", "SELECT 1;")]);
        named.add("b/x.sql", vec![text("b/x.sql", "SELECT 2;")]);
        let odd = format!("c/Größe und {}.sql", "n".repeat(200));
        named.add(&odd, vec![text(&odd, "SELECT 3;")]);
        let both = "pgbench:a/x.sql@3,b/x.sql";
        named.add(both, vec![text("a/x.sql", "SELECT 1;"), text("b/x.sql", "SELECT 2;")]);
        named.add(".sql", vec![text(".sql", "SELECT 4;")]);
        let members = named.members;
        assert_eq!(members.len(), 4, "{:?}", named.index);
        super::super::pack(&members).unwrap();
        for found in &named.index {
            assert_eq!(found.content(&members).unwrap().len(), found.files.len());
        }
        assert_eq!(named.index[3].files[1].member, "workloads/2-x.sql");
    }

    /// Plans keep these: they mean the same for ever.
    #[test]
    fn hashes_are_those_of_plans() {
        let begins =
            |workload: &str, files: &[(&str, &str)]| content_sha256(workload, files)[..12].to_owned();
        assert_eq!(begins("x.sql", &[("x.sql", "SELECT 1;")]), begins("y.sql", &[("y.sql", "SELECT 1;")]));
        let smack = [("x.smack", "one"), ("d.dat", "1,2")];
        let mut hash = Sha256::new();
        hash.update(" 3\noned.dat 3\n1,2");
        let known: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(content_sha256("a/x.smack", &smack), known);
        let scripts = [("a.sql", "SELECT 1;"), ("t.sql", "CREATE TABLE t ();")];
        assert_ne!(begins("pgbench:a.sql;init=t.sql", &scripts), begins("pgbench:a.sql,t.sql", &scripts));
    }
}
