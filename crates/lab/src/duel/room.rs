//! Whether the servers of a duel can be alive at the same time.

use std::fs;

use sandbox::Spec;

use crate::provision::Place;

/// What a server takes beside its buffers: code, connections, caches of tables, the operating system's of its files.
const BESIDE_BYTES: u64 = 400 << 20;
/// Variables that say how large a server's buffers are.
const BUFFERS: [&str; 5] = [
    "innodb_buffer_pool_size",
    "key_buffer_size",
    "aria_pagecache_buffer_size",
    "rocksdb_block_cache_size",
    "shared_buffers",
];
/// Of PostgreSQL's plain numbers.
const PAGE_BYTES: u64 = 8192;

/// Why these, with the replicas of those that have some, cannot live together, if they cannot.
pub(crate) fn together(places: &[&Place<'_>], replicas: &[&Spec]) -> Result<(), String> {
    if places.iter().any(|place| matches!(place, Place::Absent(_))) {
        return Err("one side has no server".to_owned());
    }
    for (at, one) in places.iter().enumerate() {
        let is_same = |other: &&Place<'_>| match (one, other) {
            (Place::Deployed(one), Place::Deployed(other)) => one.datadir() == other.datadir(),
            (Place::Attached(one), Place::Attached(other)) => one.endpoint == other.endpoint,
            _ => false,
        };
        if places[..at].iter().any(is_same) {
            return Err("two sides are the same running server, of which only one can be loaded".to_owned());
        }
    }
    let own =
        places.iter().filter_map(|place| if let Place::Own(spec) = place { Some(&**spec) } else { None });
    memory_for(&own.chain(replicas.iter().copied()).collect::<Vec<_>>())
}

/// Why these servers would not have memory enough at the same time, if they would not.
pub(crate) fn memory_for(specs: &[&Spec]) -> Result<(), String> {
    let wanted: u64 = specs.iter().map(|spec| wanted_bytes(spec)).sum();
    match available_bytes() {
        Some(available) if available < wanted => Err(format!(
            "{} servers at once would take about {} MB of memory, and {} MB are available",
            specs.len(),
            wanted >> 20,
            available >> 20
        )),
        _ => Ok(()),
    }
}

fn wanted_bytes(spec: &Spec) -> u64 {
    let settings = spec.effective_settings();
    let buffers = BUFFERS.iter().filter_map(|name| {
        let value = settings.get(*name)?;
        let unit = if *name == "shared_buffers" { PAGE_BYTES } else { 1 };
        size_bytes(value, unit)
    });
    BESIDE_BYTES + buffers.sum::<u64>()
}

/// `1G`, `128MB`, or a plain number of `unit` bytes.
fn size_bytes(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim().trim_matches('\'');
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim().to_ascii_lowercase().trim_end_matches('b') {
        "" if text.len() == digits => unit,
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        "t" => 1 << 40,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// What the kernel thinks could be had without swapping.
fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_servers_read_them() {
        assert_eq!(size_bytes("134217728", 1), Some(128 << 20));
        assert_eq!(size_bytes("1G", 1), Some(1 << 30));
        assert_eq!(size_bytes("16MB", PAGE_BYTES), Some(16 << 20));
        assert_eq!(size_bytes("'512kB'", PAGE_BYTES), Some(512 << 10));
        assert_eq!(size_bytes("16384", PAGE_BYTES), Some(128 << 20));
        assert_eq!(size_bytes("ON", 1), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
