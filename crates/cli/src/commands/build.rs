//! `plimsoll build`.

use lab::Event;
use sandbox::Home;
use sandbox::builds::source::{Made, Recipe, SourceRequest};

use crate::args::BuildArgs;
use crate::commands::{print, stop_on_signals, told};
use crate::exit::{End, Failure};
use crate::show::Plain;
use crate::show::terminal::tell;

pub(crate) fn build(args: &BuildArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let request = SourceRequest {
        from: args.from.clone(),
        reference: args.reference.clone(),
        recipe: args.recipe.as_deref().map(Recipe::find).transpose()?,
        jobs: args.jobs.map_or(cpus, usize::from),
        has_network: args.network,
    };
    let stop = stop_on_signals()?;
    let plain = Plain::new();
    let made = lab::source::build(&home, &request, &told(), &|event: Event<'_>| plain.event(&event), &stop);
    plain.finish();
    match made? {
        Made::Build(build) => print(&format!("{}\n", build.name())),
        Made::Broken { commit, step, log, log_file } => {
            tell!("{commit} does not build: {step} failed. The last lines of {}:\n{log}", log_file.display());
            Ok(End::RunFailed)
        }
    }
}
