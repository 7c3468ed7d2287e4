//! What the server writes down: one fixed-size record for each delayed answer.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Bytes of a record: connection, padding, arrival, departure; little-endian.
const RECORD: usize = 24;

/// One delayed exchange, as the server saw it. Times are CLOCK_MONOTONIC in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// Number of the connection, from 0.
    pub connection: u32,
    /// When the request had been read.
    pub arrived_ns: u64,
    /// When the answer was handed to the kernel.
    pub left_ns: u64,
}

impl Exchange {
    /// The time that the server took, in ns.
    pub fn service_ns(&self) -> u64 {
        self.left_ns.saturating_sub(self.arrived_ns)
    }
}

/// Writes all exchanges at once: writing while serving would disturb what is measured.
pub(super) fn write_log(path: &Path, exchanges: &[Exchange]) -> io::Result<()> {
    let mut out = io::BufWriter::new(fs::File::create(path)?);
    for exchange in exchanges {
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(&exchange.connection.to_le_bytes());
        record[8..16].copy_from_slice(&exchange.arrived_ns.to_le_bytes());
        record[16..].copy_from_slice(&exchange.left_ns.to_le_bytes());
        out.write_all(&record)?;
    }
    out.flush()
}

/// Reads a log, in the order in which answers left.
pub fn read_log(path: &Path) -> io::Result<Vec<Exchange>> {
    let bytes = fs::read(path)?;
    if bytes.len() % RECORD != 0 {
        let text = format!("{}: {} bytes are not whole records", path.display(), bytes.len());
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Ok(bytes
        .chunks_exact(RECORD)
        .map(|record| Exchange {
            connection: number(&record[..4]) as u32,
            arrived_ns: number(&record[8..16]),
            left_ns: number(&record[16..]),
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_survives_the_disk() {
        let path = std::env::temp_dir().join(format!("testkit-log-{}", std::process::id()));
        let exchanges: Vec<Exchange> = (0..100u32)
            .map(|n| Exchange {
                connection: n,
                arrived_ns: u64::from(n) << 40,
                left_ns: u64::MAX - u64::from(n),
            })
            .collect();
        write_log(&path, &exchanges).unwrap();
        let back = read_log(&path);
        fs::remove_file(&path).unwrap();
        assert_eq!(back.unwrap(), exchanges);
    }
}
