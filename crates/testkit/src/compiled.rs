//! Compiling the C of this room: the workspace needs a C compiler anyway.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles `source` into `folder`, as `name`, with more arguments of cc.
pub(crate) fn compiled<A: AsRef<OsStr>>(
    folder: &Path,
    name: &str,
    source: &str,
    arguments: &[A],
) -> io::Result<PathBuf> {
    let output = folder.join(name);
    let text = output.with_extension("c");
    std::fs::write(&text, source)?;
    let said =
        Command::new("cc").args(["-O1", "-o"]).args([&output, &text]).args(arguments).arg("-ldl").output()?;
    if !said.status.success() {
        return Err(io::Error::other(format!("cc: {}", String::from_utf8_lossy(&said.stderr))));
    }
    Ok(output)
}
