//! A library that makes any server one that never flushes: fsync and its like do nothing and succeed.

use std::io;
use std::path::{Path, PathBuf};

use crate::compiled::compiled;

/// Compiles it into `folder`; for `LD_PRELOAD`.
///
/// # Errors
/// There is no `cc`, or it refuses.
pub fn library(folder: &Path) -> io::Result<PathBuf> {
    compiled(folder, "no_flush.so", include_str!("no_flush.c"), &["-shared", "-fPIC"])
}
