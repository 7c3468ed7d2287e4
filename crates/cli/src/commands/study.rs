//! `plimsoll new` and `plimsoll study`.

use std::path::Path;

use sandbox::Home;

use crate::commands::print;
use crate::exit::{End, Failure};

pub(crate) fn new(path: &Path) -> Result<End, Failure> {
    lab::study::write_new(&Home::find()?, path)?;
    let path = path.display();
    print(&format!("wrote {path}; a first look, in about a minute:\n  plimsoll run {path} --quick\n"))
}

pub(crate) fn reference() -> Result<End, Failure> {
    print(&lab::study::reference::text())
}
