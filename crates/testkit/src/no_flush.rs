//! A library that makes any server one that never flushes: fsync and its like do nothing and succeed.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles it (a C compiler is there: the workspace needs one) into `folder`; for `LD_PRELOAD`.
///
/// # Errors
/// There is no `cc`, or it refuses.
pub fn library(folder: &Path) -> io::Result<PathBuf> {
    let (source, library) = (folder.join("no_flush.c"), folder.join("no_flush.so"));
    std::fs::write(&source, include_str!("no_flush.c"))?;
    let arguments = ["-shared", "-fPIC", "-O1", "-o"];
    let output = Command::new("cc").args(arguments).args([&library, &source]).arg("-ldl").output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("cc: {}", String::from_utf8_lossy(&output.stderr))));
    }
    Ok(library)
}
