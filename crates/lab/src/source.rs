//! Builds from source, while nothing is measured on this machine.

use sandbox::builds::source::{Made, SourceRequest, make};
use sandbox::{Home, OnProgress};

use crate::error::Error;
use crate::machine::take_machine;
use crate::observe::Observer;
use crate::stop::StopSwitch;

/// Builds a commit. Compilers take every cpu there is, so it waits for whoever measures, and whoever wants to measure
/// waits for it.
pub fn build(
    home: &Home,
    request: &SourceRequest,
    progress: OnProgress<'_>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Made, Error> {
    let _machine = take_machine(observer, stop)?;
    Ok(make(home, request, progress, &|| stop.is_requested())?)
}
