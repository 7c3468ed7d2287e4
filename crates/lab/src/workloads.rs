//! Workloads by the names that studies and the command line use: built-in ones, the built-in smacks, or the path of
//! a file (`.sql`, `.smack`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use smack::program::DataDir;
use smack::smacks::{self, Smack};
use workload::Workload;
use workload::sqlfile::SqlFile;

use crate::error::Error;
use crate::study::nearest;

/// The built-in smacks: their rows are generated when they are first wanted.
const SMACKS: [&str; 2] = ["select-key", "update-select"];

/// Names of all built-in workloads.
pub fn names() -> Vec<&'static str> {
    workload::all().iter().map(|workload| workload.name()).chain(SMACKS).collect()
}

/// All built-in workloads. Smacks whose rows cannot be kept on this machine are left out.
pub fn all() -> Vec<&'static dyn Workload> {
    let smacks = SMACKS.iter().filter_map(|name| find(name).ok());
    workload::all().iter().copied().chain(smacks).collect()
}

/// Names of the options that a workload has; empty for an unknown one.
pub fn option_names(name: &str) -> BTreeSet<String> {
    find(name)
        .map(|workload| workload.options().iter().map(|option| option.name.to_string()).collect())
        .unwrap_or_default()
}

/// The workload of that name.
///
/// # Errors
/// There is none, its file cannot be understood, or a smack's rows cannot be written.
pub fn find(name: &str) -> Result<&'static dyn Workload, Error> {
    if let Some(found) = workload::find(name) {
        return Ok(found);
    }
    let smack = SMACKS.iter().find(|smack| smack.replace('-', "_") == name.replace('-', "_"));
    let kept = match (smack, extension(name)) {
        (Some(smack), _) => Kept::BuiltIn(smack),
        (None, "sql" | "smack") => Kept::File,
        (None, _) => return Err(unknown(name)),
    };
    // Workloads live as long as the process: a study asks for the same one with every run.
    static KNOWN: Mutex<BTreeMap<String, &'static dyn Workload>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(name) {
        return Ok(*found);
    }
    let read = match kept {
        Kept::BuiltIn(smack) => built_in_smack(smack)?,
        Kept::File => file(name)?,
    };
    known.insert(name.to_owned(), read);
    Ok(read)
}

/// Where a workload comes from that is not compiled in.
enum Kept<'a> {
    BuiltIn(&'a str),
    File,
}

fn extension(name: &str) -> &str {
    Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default()
}

fn unknown(name: &str) -> Error {
    let hint = match nearest(name, names()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`plimsoll workloads` lists them; a path ending in .sql or .smack names a file".to_owned(),
    };
    Error::Usage(format!("there is no workload `{name}`: {hint}"))
}

fn built_in_smack(name: &str) -> Result<&'static dyn Workload, Error> {
    let data = DataDir { path: sandbox::Home::find()?.path().join("smack-data"), allow_shell: false };
    let all = smacks::built_in(&data).map_err(|error| Error::Usage(format!("workload `{name}`: {error}")))?;
    let found: Option<Smack> = all.into_iter().find(|smack| smack.name() == name);
    let found = found.ok_or_else(|| unknown(name))?;
    Ok(Box::leak(Box::new(found)))
}

fn file(name: &str) -> Result<&'static dyn Workload, Error> {
    let refuse = |why: String| Error::Usage(format!("workload `{name}`: {why}"));
    let path = Path::new(name);
    if extension(name) == "sql" {
        let read = SqlFile::read(path).map_err(|error| refuse(error.to_string()))?;
        return Ok(Box::leak(Box::new(read)));
    }
    let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
    // Data files are named in the file as seen from where it stands.
    let data = DataDir {
        path: path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
            .to_owned(),
        allow_shell: false,
    };
    let stem = path.file_stem().map_or_else(|| name.into(), |stem| stem.to_string_lossy());
    let read = Smack::new(&stem, Cow::Owned(text), &data).map_err(|error| refuse(error.to_string()))?;
    Ok(Box::leak(Box::new(read)))
}
