//! `plimsoll man`.

use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;

use super::out::not_written;
use super::print_bytes;
use crate::args::Cli;
use crate::exit::{End, Failure, output};

/// The page of plimsoll itself, on standard output; or a page for each command, each whole or not there, into `dir`.
pub(crate) fn man(dir: Option<&Path>) -> Result<End, Failure> {
    let Some(dir) = dir else { return print_bytes(&page(Cli::command()).map_err(output)?.1) };
    std::fs::create_dir_all(dir)
        .map_err(|error| Failure::Usage(format!("--dir {}: {error}", dir.display())))?;
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    for command in with_children(&root) {
        let (name, bytes) = page(command.clone()).map_err(output)?;
        let path = dir.join(name);
        ::report::write_file(&path, &bytes).map_err(|error| not_written(&path, error))?;
    }
    Ok(End::Done)
}

/// A command that is shown, and all below it.
fn with_children(command: &Command) -> Vec<&Command> {
    let children = command.get_subcommands().filter(|child| !child.is_hide_set());
    std::iter::once(command).chain(children.flat_map(with_children)).collect()
}

/// The name of a command's page, and what is in it.
fn page(command: Command) -> std::io::Result<(String, Vec<u8>)> {
    let man = Man::new(command);
    let mut bytes = Vec::new();
    man.render(&mut bytes)?;
    Ok((man.get_filename(), bytes))
}
