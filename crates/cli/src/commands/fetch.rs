//! `plimsoll fetch`.

use sandbox::builds::{self, FetchOptions};
use sandbox::{Home, Selector};

use crate::args::FetchArgs;
use crate::commands::{print, told};
use crate::exit::{End, Failure};

pub(crate) fn fetch(args: &FetchArgs) -> Result<End, Failure> {
    let home = Home::find()?;
    if let Some(archive) = &args.archive {
        if !archive.exists() {
            return Err(Failure::Usage(format!("there is no file {}", archive.display())));
        }
        let named = args.named.as_deref().map(str::parse::<Selector>).transpose()?;
        let build = builds::fetch_archive(&home, archive, named.as_ref(), &told())?;
        return print(&format!("{}\n", build.name()));
    }
    let selectors =
        args.servers.iter().map(|text| text.parse::<Selector>()).collect::<Result<Vec<Selector>, _>>()?;
    let options = FetchOptions { mirror: args.mirror.clone(), again: args.again };
    for selector in &selectors {
        let build = builds::fetch(&home, selector, &options, &told())?;
        print(&format!("{}\n", build.name()))?;
    }
    Ok(End::Done)
}
