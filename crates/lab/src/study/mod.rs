//! Study files: parsing, checking, and what is said about a bad one.

mod axes;
mod compare;
mod draft;
mod intervene;
mod line;
mod load;
mod model;
mod parse;
mod problem;
mod read;
pub mod reference;
mod replicas;
mod source;
#[cfg(test)]
mod tests;
pub mod units;

pub(crate) use compare::{AXES, axis_values, position_on_axis};
pub use draft::write_new;
pub(crate) use intervene::PHASES_MIN;
pub use model::{
    Arrivals, Axes, Body, Change, Changes, Compare, CpusChoice, EnvChoice, Exclude, Idle, Intervention,
    Ladder, Length, Load, MachineWishes, Pairing, Primary, Quick, ReplicasChoice, ServerChoice,
    SettingsChoice, StorageChoice, Study, Timed, Turbo, Until, WorkloadChoice,
};
pub use parse::parse;
pub(crate) use parse::parse_with;
pub use problem::{Problem, StudyError, one_of};
pub use source::SourceChoice;
pub(crate) use source::expand;

use std::path::Path;

use crate::error::Error;

/// Reads and checks a study file.
pub fn read(path: &Path) -> Result<Study, Error> {
    let bytes = wire::files::read(path, &wire::files::STUDY).map_err(|cause| {
        let hint = if path.extension().is_none() { " (study files end in .toml)" } else { "" };
        Error::Usage(format!("cannot read the study file {}: {cause}{hint}", path.display()))
    })?;
    let text = String::from_utf8(bytes).map_err(|cause| {
        Error::Usage(format!(
            "the study file {} is not UTF-8 text (byte {})",
            path.display(),
            cause.utf8_error().valid_up_to()
        ))
    })?;
    let mut study = parse(path, &text).map_err(|problems| Error::Study(Box::new(problems)))?;
    expand(&mut study)?;
    Ok(study)
}
