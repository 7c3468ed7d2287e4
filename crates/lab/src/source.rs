//! Builds from source, while nothing is measured on this machine.

use std::path::Path;

use sandbox::builds::source::{Made, Recipe, SourceRequest, made, make};
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
    // What is there takes no cpu, and no compiler.
    if let Some(build) = made(home, request)? {
        return Ok(Made::Build(build));
    }
    request.check()?;
    let _machine = take_machine(observer, stop)?;
    Ok(make(home, request, progress, &|| stop.is_requested())?)
}

/// What is asked for where nobody says more than the commit: all cpus, no network.
pub(crate) fn request_of(from: &Path, commit: &str, recipe: Option<Recipe>) -> SourceRequest {
    SourceRequest {
        from: from.to_owned(),
        reference: Some(commit.to_owned()),
        recipe,
        jobs: std::thread::available_parallelism().map_or(1, usize::from),
        has_network: false,
    }
}

/// Tells the steps of a build.
pub(crate) fn steps(observer: Observer<'_>) -> impl Fn(Progress) {
    move |progress| {
        if let Progress::Step(text) = progress {
            observer(Event::Doing(&text));
        }
    }
}

/// Builds a server of a study, which has the machine already: before its first run, as all of them.
pub(crate) fn of_study(
    home: &Home,
    source: &SourceChoice,
    commit: &str,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Made, Error> {
    let recipe = source.recipe.as_deref().map(Recipe::find).transpose()?;
    let request = request_of(&source.clone, commit, recipe);
    Ok(make(home, &request, &steps(observer), &|| stop.is_requested())?)
}
