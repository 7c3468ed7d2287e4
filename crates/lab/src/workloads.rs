//! Workloads by the names that studies and the command line use: built-in ones, the built-in smacks, or the path of
//! a file (`.sql`, `.smack`).
//!
//! A name is resolved once, when a study is read or a bench is asked for: what was read then is what all of its runs
//! run, whatever becomes of the file meanwhile.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use smack::program::DataDir;
use smack::smacks::{self, Smack};
use workload::sqlfile::SqlFile;
use workload::{Workload, files};

use crate::error::Error;

/// The built-in smacks: their rows are generated when they are first wanted.
const SMACKS: [&str; 2] = ["select-key", "update-select"];

/// A workload as it was read, with what tells it from another one of the same name.
#[derive(Clone)]
pub struct Resolved {
    workload: Held,
    content_sha256: Option<String>,
}

#[derive(Clone)]
enum Held {
    BuiltIn(&'static dyn Workload),
    Read(Arc<dyn Workload + Send + Sync>),
}

impl Resolved {
    /// SHA-256 of the workload's file and of the data files that it names, hexadecimal; `None` for what is built in.
    pub fn content_sha256(&self) -> Option<&str> {
        self.content_sha256.as_deref()
    }

    /// Whether the workload came with this plimsoll.
    pub(crate) fn is_built_in(&self) -> bool {
        self.content_sha256.is_none()
    }

    /// Names of its options.
    pub(crate) fn option_names(&self) -> BTreeSet<String> {
        self.options().iter().map(|option| option.name.to_string()).collect()
    }
}

impl Deref for Resolved {
    type Target = dyn Workload;

    fn deref(&self) -> &Self::Target {
        match &self.workload {
            Held::BuiltIn(workload) => *workload,
            Held::Read(workload) => workload.as_ref(),
        }
    }
}

impl std::fmt::Debug for Resolved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name(), self.content_sha256().unwrap_or("built in"))
    }
}

/// The same name and the same content.
impl PartialEq for Resolved {
    fn eq(&self, other: &Resolved) -> bool {
        self.name() == other.name() && self.content_sha256 == other.content_sha256
    }
}

impl Eq for Resolved {}

/// The hash of the content: it stands for the workload in a study's fingerprint.
impl Serialize for Resolved {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.content_sha256.serialize(serializer)
    }
}

/// Names of all built-in workloads.
pub fn names() -> Vec<&'static str> {
    workload::all().iter().map(|workload| workload.name()).chain(SMACKS).collect()
}

/// All built-in workloads. Smacks whose rows cannot be kept on this machine are left out.
pub fn all() -> Vec<Resolved> {
    names().into_iter().filter_map(|name| resolve(name).ok()).collect()
}

/// The workload of that name, read now.
///
/// # Errors
/// There is none, its file cannot be understood, or a smack's rows cannot be written.
pub fn resolve(name: &str) -> Result<Resolved, Error> {
    if let Some(found) = workload::find(name) {
        return Ok(Resolved { workload: Held::BuiltIn(found), content_sha256: None });
    }
    let smack = SMACKS.iter().find(|smack| smack.replace('-', "_") == name.replace('-', "_"));
    match (smack, extension(name)) {
        (Some(smack), _) => built_in_smack(smack),
        (None, "sql") => sql_file(name),
        (None, "smack") => smack_file(name),
        (None, _) => Err(unknown(name)),
    }
}

/// Whether a name that is no built-in workload's is the path of a file.
pub(crate) fn is_path(name: &str) -> bool {
    matches!(extension(name), "sql" | "smack")
}

fn extension(name: &str) -> &str {
    Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

fn unknown(name: &str) -> Error {
    let hint = match wire::spelling::nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`plimsoll workloads` lists them; a path ending in .sql or .smack names a file".to_owned(),
    };
    Error::Usage(format!("there is no workload `{name}`: {hint}"))
}

fn refused(name: &str, why: &dyn std::fmt::Display) -> Error {
    Error::Usage(format!("workload `{name}`: {why}"))
}

/// The built-in smacks by the folder of their rows. To understand them takes 90,000 rows each; a study names them often.
static BUILT_IN_SMACKS: Mutex<BTreeMap<PathBuf, Vec<Arc<Smack>>>> = Mutex::new(BTreeMap::new());

fn built_in_smack(name: &str) -> Result<Resolved, Error> {
    let path = sandbox::Home::find()?.path().join("smack-data");
    let mut known = BUILT_IN_SMACKS.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains_key(&path) {
        let data = DataDir { path: path.clone(), allow_shell: false };
        let all = smacks::built_in(&data).map_err(|error| refused(name, &error))?;
        known.insert(path.clone(), all.into_iter().map(Arc::new).collect());
    }
    let found = known[&path].iter().find(|smack| smack.name() == name);
    let found = found.ok_or_else(|| unknown(name))?.clone();
    Ok(Resolved { workload: Held::Read(found), content_sha256: None })
}

fn read(name: &str) -> Result<String, Error> {
    files::read_text(Path::new(name), &files::WORKLOAD).map_err(|error| refused(name, &error))
}

fn sql_file(name: &str) -> Result<Resolved, Error> {
    let text = read(name)?;
    let read = SqlFile::parse(name, &text).map_err(|error| refused(name, &error))?;
    let hash = Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Resolved { workload: Held::Read(Arc::new(read)), content_sha256: Some(hash) })
}

fn smack_file(name: &str) -> Result<Resolved, Error> {
    let text = read(name)?;
    let path = Path::new(name);
    // Data files are named in the file as seen from where it stands.
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let data = DataDir { path: folder.unwrap_or(Path::new(".")).to_owned(), allow_shell: false };
    let stem = path.file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy());
    let read = Smack::new(&stem, Cow::Owned(text), &data).map_err(|error| refused(name, &error))?;
    let hash = read.content_sha256().to_owned();
    Ok(Resolved { workload: Held::Read(Arc::new(read)), content_sha256: Some(hash) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_too_large_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let large = |name: &str, limit: &files::Limit| {
            let path = dir.path().join(name);
            std::fs::File::create(&path).unwrap().set_len((limit.mib_max << 20) + 1).unwrap();
            path
        };
        for name in ["w.sql", "w.smack"] {
            let path = large(name, &files::WORKLOAD);
            let error = resolve(path.to_str().unwrap()).unwrap_err().to_string();
            assert!(error.contains("larger than 16 MiB") && error.contains("in a data file"), "{error}");
        }
        let error = crate::study::read(&large("s.toml", &files::STUDY)).unwrap_err().to_string();
        assert!(error.contains("larger than 1 MiB") && error.contains("several studies"), "{error}");
    }

    #[test]
    fn built_in_smacks_are_understood_once() {
        let [first, again] = [(); 2].map(|()| resolve("select-key").unwrap());
        let (Held::Read(first), Held::Read(again)) = (&first.workload, &again.workload) else {
            panic!("smacks are read from their text");
        };
        assert!(Arc::ptr_eq(first, again));
    }
}
