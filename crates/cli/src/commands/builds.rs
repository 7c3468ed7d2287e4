//! `plimsoll builds`.

use sandbox::{Build, Home, builds};

use crate::args::BuildsCommand;
use crate::commands::print;
use crate::exit::{End, Failure};
use crate::show::bytes;

pub(crate) fn builds(command: &BuildsCommand) -> Result<End, Failure> {
    let home = Home::find()?;
    let BuildsCommand::Remove { builds: names } = command;
    let fetched = builds::fetched(&home)?;
    // All are looked up before the first is removed: a mistyped name removes nothing.
    let chosen = names.iter().map(|name| choose(&fetched, name)).collect::<Result<Vec<&Build>, Failure>>()?;
    for build in chosen {
        let freed = builds::remove(&home, build)?;
        print(&format!("removed {}, {}\n", build.name(), bytes(freed)))?;
    }
    Ok(End::Done)
}

/// By its whole name: `mysql` meaning the newest is for running one, not for removing it.
fn choose<'a>(fetched: &'a [Build], name: &str) -> Result<&'a Build, Failure> {
    if let Some(build) = fetched.iter().find(|build| build.name() == name) {
        return Ok(build);
    }
    let here: Vec<String> = fetched.iter().map(Build::name).collect();
    let here =
        if here.is_empty() { "none is fetched".to_owned() } else { format!("fetched: {}", here.join(", ")) };
    Err(Failure::Usage(format!("no fetched build is named {name}: give its whole name ({here})")))
}
