//! `plimsoll new`: a study to start from.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use sandbox::{Flavor, Home};

use crate::error::Error;

/// The study; `SERVER` stands for one that this machine has.
const STUDY: &str = include_str!("new.toml");

/// Writes a commented study that runs on this machine: its server is one whose build is here, where there is one.
///
/// # Errors
/// The name is not one of a study file, or there is such a file already, or it cannot be written.
pub fn write_new(home: &Home, path: &Path) -> Result<(), Error> {
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Err(Error::Usage(format!("study files end in .toml: {}.toml", path.display())));
    }
    let text = STUDY.replace("THIS_FILE", &path.display().to_string()).replace("SERVER", server(home)?);
    // Half of one would be in the way of the next try.
    let write =
        |mut file: File| file.write_all(text.as_bytes()).inspect_err(|_| drop(std::fs::remove_file(path)));
    File::create_new(path).and_then(write).map_err(|cause| match cause.kind() {
        std::io::ErrorKind::AlreadyExists => Error::Usage(format!(
            "{} is there already, and is left as it is: choose another name, or remove it first",
            path.display()
        )),
        _ => Error::Usage(format!("cannot write {}: {cause}", path.display())),
    })
}

/// A flavour that has a build here, else one that can be fetched.
fn server(home: &Home) -> Result<&'static str, Error> {
    let builds = sandbox::builds::installed(home)?;
    let is_here = |flavor: &Flavor| builds.iter().any(|build| build.flavor == *flavor);
    let flavor = Flavor::ALL.into_iter().find(is_here).unwrap_or(Flavor::Mariadb);
    Ok(flavor.name())
}
