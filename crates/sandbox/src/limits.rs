//! Limits through control groups.

use serde::{Deserialize, Serialize};

/// Limits on what a server may use. Everything `None` is unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
