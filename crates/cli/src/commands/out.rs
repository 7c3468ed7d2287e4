//! Where a command writes what it was asked for: standard output, or a file that is whole or not there.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ::report::NewFile;

use crate::exit::{Failure, output};
use crate::show::terminal;

/// A file of results in the making, or standard output for `-`.
pub(crate) struct Out {
    path: PathBuf,
    /// `None`: standard output.
    file: Option<NewFile>,
}

impl Out {
    /// Begins it, so that what cannot be written is known before anything is measured for it.
    pub(crate) fn create(path: &Path) -> Result<Out, Failure> {
        let file = match path.as_os_str() == "-" {
            true => None,
            false => Some(
                NewFile::create(path)
                    .map_err(|error| Failure::Usage(format!("cannot write {}: {error}", path.display())))?,
            ),
        };
        Ok(Out { path: path.to_owned(), file })
    }

    /// Adds to it. Standard output gets it at once.
    pub(crate) fn write(&mut self, text: &str) -> Result<(), Failure> {
        match &mut self.file {
            None => {
                let mut out = terminal::output();
                out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(output)
            }
            Some(file) => file.write_all(text.as_bytes()).map_err(|error| not_written(&self.path, error)),
        }
    }

    /// Adds the last of it, and puts the file in its place.
    pub(crate) fn end(mut self, text: &str) -> Result<(), Failure> {
        self.write(text)?;
        self.finish()
    }

    /// Puts the file in its place.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        let Some(file) = self.file else { return Ok(()) };
        file.finish().map_err(|error| not_written(&self.path, error))
    }
}

/// A file that could not be written, with its name.
pub(crate) fn not_written(path: &Path, error: io::Error) -> Failure {
    Failure::Other(anyhow::Error::new(error).context(format!("{} could not be written", path.display())))
}
