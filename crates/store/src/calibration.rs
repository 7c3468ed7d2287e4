//! What a machine was found to tell of a server measured against itself. Kept by machine and server beside the builds, and
//! not with any study: one JSON file each, `FINGERPRINT/SERVER.json`.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The version of the files; others are passed over.
const SCHEMA: u32 = 1;

/// One life of two equal servers side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EqualLife {
    /// Committed transactions per second of each slice, in order, of either side.
    pub tps: [Vec<f64>; 2],
    /// From the first server's start to the last one's end, in seconds.
    pub took_s: f64,
    /// Milliseconds since 1970.
    pub at_ms: i64,
    /// Which calibration made it: lives of one calibration follow each other.
    pub calibration: u32,
}

/// All that was found for a server on a machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibrations {
    schema: u32,
    /// `flavor@version`.
    pub server: String,
    /// Identity of the build; lives of another one are not added to these.
    pub build: String,
    pub workload: String,
    pub sessions: u32,
    /// Seconds of a life for each pair of slices.
    pub pair_s: f64,
    /// In the order of time; those that a fault of the measurement cost are not among them.
    pub lives: Vec<EqualLife>,
    /// How late wake-ups were in the last one, in microseconds: median and 99th percentile.
    pub wakeup_us: Option<(f64, f64)>,
}

impl Calibrations {
    /// None made yet.
    pub fn new(server: &str, build: &str, workload: &str, sessions: u32, pair_s: f64) -> Calibrations {
        Calibrations {
            schema: SCHEMA,
            server: server.to_owned(),
            build: build.to_owned(),
            workload: workload.to_owned(),
            sessions,
            pair_s,
            lives: Vec::new(),
            wakeup_us: None,
        }
    }

    /// Those of a machine, by server; files that cannot be read or are of another version are passed over.
    pub fn of_host(folder: &Path, fingerprint: &str) -> Vec<Calibrations> {
        // It is told by a results file, which may be somebody else's.
        let folder = crate::is_file_name(fingerprint).then(|| folder.join(fingerprint));
        let Some(Ok(entries)) = folder.map(fs::read_dir) else { return Vec::new() };
        let read = |path: &Path| serde_json::from_slice::<Calibrations>(&fs::read(path).ok()?).ok();
        let mut all: Vec<Calibrations> = entries
            .flatten()
            .filter_map(|entry| read(&entry.path()))
            .filter(|found| found.schema == SCHEMA)
            .collect();
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
    }

    /// Writes them, whole or not at all, in the place of those before.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn write(&self, folder: &Path, fingerprint: &str) -> io::Result<()> {
        let folder = folder.join(fingerprint);
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{}.json", self.server));
        let new = folder.join(format!(".new-{}", std::process::id()));
        fs::write(&new, serde_json::to_vec(self)?)?;
        fs::rename(new, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_by_machine() {
        let dir = tempfile::tempdir().unwrap();
        let mut made = Calibrations::new("mariadb@11.4.5", "b", "oltp_read_write", 8, 2.2);
        made.lives.push(EqualLife {
            tps: [vec![1.0, 2.0], vec![3.0]],
            took_s: 9.5,
            at_ms: 7,
            calibration: 1,
        });
        made.wakeup_us = Some((30.0, 90.0));
        made.write(dir.path(), "one").unwrap();
        made.write(dir.path(), "one").unwrap();
        assert_eq!(Calibrations::of_host(dir.path(), "one"), [made]);
        let elsewhere = dir.path().join("one").display().to_string();
        for path in [elsewhere.as_str(), "one/", "one/../one", ".", "..", "", "a\0b"] {
            assert_eq!(Calibrations::of_host(dir.path(), path), [], "{path:?} is no machine");
        }
        assert_eq!(Calibrations::of_host(dir.path(), "other"), []);
        fs::write(dir.path().join("one/odd.json"), "{}").unwrap();
        assert_eq!(Calibrations::of_host(dir.path(), "one").len(), 1);
    }
}
