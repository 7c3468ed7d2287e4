//! Places for data directories.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::limits::Limits;

/// A named place for data directories.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// Its name in reports: `nvme`.
    pub name: String,
    /// The directory under which sandboxes make their data directories; `None` is the home, `tmpfs` is one mounted
    /// for the sandbox.
    #[serde(default)]
    pub datadir: Option<PathBuf>,
    /// Limits that make it slower than it is.
    #[serde(default)]
    pub limits: Limits,
}

/// What a place is made of, for the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFacts {
    /// File system: `ext4`.
    pub filesystem: String,
    /// Mount point.
    pub mount: PathBuf,
    /// Mount options.
    pub options: String,
    /// Device as the mount names it.
    pub device: String,
    /// I/O scheduler of the device, where it has one.
    pub scheduler: Option<String>,
    /// Whether it spins, where known.
    pub rotational: Option<bool>,
}
