//! Where builds, sandboxes and snapshots live.

use std::path::{Path, PathBuf};

use crate::Error;

/// The directory that holds everything Plimsoll keeps: `builds/`, `sandboxes/`, `snapshots/`, `filesystems/`,
/// `downloads/` and the
/// user's own `catalogue.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// `$PLIMSOLL_HOME`; else `/var/lib/plimsoll` for root, whose servers run under another uid and could not enter
    /// root's own home; else `$XDG_DATA_HOME/plimsoll` or `~/.local/share/plimsoll`. Created where missing.
    pub fn find() -> Result<Home, Error> {
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        // SAFETY: geteuid has no preconditions and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let root = match var("PLIMSOLL_HOME") {
            Some(path) => path,
            None if is_root => PathBuf::from("/var/lib/plimsoll"),
            None => match (var("XDG_DATA_HOME"), var("HOME")) {
                (Some(data), _) => data.join("plimsoll"),
                (None, Some(home)) => home.join(".local/share/plimsoll"),
                (None, None) => return Err(Error::NoHome),
            },
        };
        Home::at(root)
    }

    /// A home at a given place, created where missing.
    pub fn at(root: impl Into<PathBuf>) -> Result<Home, Error> {
        let root: PathBuf = root.into();
        std::fs::create_dir_all(&root).map_err(|e| Error::io("create the home directory", &root, e))?;
        let root = root.canonicalize().map_err(|e| Error::io("find the home directory", &root, e))?;
        Ok(Home { root })
    }

    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Unpacked builds, one directory each, named `flavor@version[+label]`.
    pub fn builds(&self) -> PathBuf {
        self.root.join("builds")
    }

    /// Sandboxes, one directory each.
    pub fn sandboxes(&self) -> PathBuf {
        self.root.join("sandboxes")
    }

    /// Snapshots, one directory each, named by key.
    pub fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    /// File systems that are made for studies, one directory each.
    pub fn filesystems(&self) -> PathBuf {
        self.root.join("filesystems")
    }

    /// Archives on their way in.
    pub fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// The user's additions to the catalogue.
    pub fn catalogue(&self) -> PathBuf {
        self.root.join("catalogue.toml")
    }
}
