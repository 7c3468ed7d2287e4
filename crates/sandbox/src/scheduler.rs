//! The I/O scheduler of the disk under a directory, set for as long as a server is measured on it.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, storage};

/// What a disk had before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Before {
    file: PathBuf,
    scheduler: String,
}

/// Whether the disk under `path` has this scheduler and lets it be set.
///
/// # Errors
/// It has not, with those that it has; or the kernel does not let us write it.
pub fn check(path: &Path, wanted: &str) -> Result<(), Error> {
    let file = file_of(path, wanted)?;
    let line = fs::read_to_string(&file).map_err(|e| Error::io("read", &file, e))?;
    let known: Vec<&str> = line.split_whitespace().map(|name| name.trim_matches(['[', ']'])).collect();
    if !known.contains(&wanted) {
        return Err(refusal(path, wanted, &format!("its disk has {}", known.join(", "))));
    }
    if let Err(error) = fs::OpenOptions::new().write(true).open(&file) {
        return Err(refusal(path, wanted, &format!("{} cannot be written ({error})", file.display())));
    }
    Ok(())
}

/// What the disk has now, to be written down before it is changed; `None` where it has the wanted one.
pub(crate) fn before(path: &Path, wanted: &str) -> Result<Option<Before>, Error> {
    check(path, wanted)?;
    let file = file_of(path, wanted)?;
    let scheduler = chosen(&file)?;
    Ok((scheduler != wanted).then_some(Before { file, scheduler }))
}

impl Before {
    /// Sets another one and reads it back.
    pub(crate) fn change(&self, wanted: &str) -> Result<(), Error> {
        fs::write(&self.file, wanted).map_err(|e| Error::io("set the I/O scheduler in", &self.file, e))?;
        let now = chosen(&self.file)?;
        if now == wanted {
            return Ok(());
        }
        Err(Error::Unsupported {
            what: format!("the I/O scheduler {wanted}"),
            why: format!("{} says {now} after it was set", self.file.display()),
        })
    }

    pub(crate) fn restore(&self) -> Result<(), Error> {
        self.change(&self.scheduler)
    }
}

fn chosen(file: &Path) -> Result<String, Error> {
    let line = fs::read_to_string(file).map_err(|e| Error::io("read", file, e))?;
    Ok(storage::chosen(line.trim()))
}

fn file_of(path: &Path, wanted: &str) -> Result<PathBuf, Error> {
    let facts = storage::facts(path)?;
    // Of an image the disk that holds it: the loop device in between orders nothing.
    let number = facts.image.map_or(facts.number, |image| image.number);
    let file = Path::new("/sys/dev/block").join(number).join("queue/scheduler");
    let why = "its file system has no disk with a scheduler";
    if file.exists() { Ok(file) } else { Err(refusal(path, wanted, why)) }
}

fn refusal(path: &Path, wanted: &str, why: &str) -> Error {
    Error::Unsupported {
        what: format!("the I/O scheduler {wanted} for {}", path.display()),
        why: format!("{why}: choose one of those that it has, as root, or leave `scheduler` out"),
    }
}
