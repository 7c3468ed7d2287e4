//! Limits through control groups.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Limits on what a server may use. Everything `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Memory, page cache included, in bytes.
    pub memory_bytes: Option<u64>,
    /// Reads a second on the data directory's device.
    pub read_iops: Option<u64>,
    /// Writes a second on the data directory's device.
    pub write_iops: Option<u64>,
    /// Bytes read a second from the data directory's device.
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written a second to the data directory's device.
    pub write_bytes_per_s: Option<u64>,
}

impl Limits {
    /// Whether nothing is limited.
    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }
}

/// Removes a control group whose processes are gone.
pub(crate) fn remove_group(group: &Path) -> Result<(), Error> {
    // The kernel lets go of ended processes a moment after their parent saw them end.
    for _ in 0..100 {
        match std::fs::remove_dir(group) {
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
                std::thread::sleep(std::time::Duration::from_millis(10))
            }
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::io("remove", group, e)),
            _ => return Ok(()),
        }
    }
    Err(Error::io("remove", group, std::io::Error::from_raw_os_error(libc::EBUSY)))
}
