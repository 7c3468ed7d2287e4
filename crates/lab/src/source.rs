//! Builds from source, while nothing is measured on this machine.

use sandbox::builds::source::{Made, Recipe, SourceRequest, make};
use sandbox::{Home, OnProgress, Progress};

use crate::error::Error;
use crate::machine::take_machine;
use crate::observe::{Event, Observer};
use crate::stop::StopSwitch;
use crate::study::SourceChoice;

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

/// Builds a server of a study, which has the machine already: before its first run, as all of them.
pub(crate) fn of_study(
    home: &Home,
    source: &SourceChoice,
    commit: &str,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Made, Error> {
    let request = SourceRequest {
        from: source.clone.clone(),
        reference: Some(commit.to_owned()),
        recipe: source.recipe.as_deref().map(Recipe::find).transpose()?,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        has_network: false,
    };
    let progress = |progress| {
        if let Progress::Step(text) = progress {
            observer(Event::Doing(&text));
        }
    };
    Ok(make(home, &request, &progress, &|| stop.is_requested())?)
}
