//! Lives of servers with the figures of their slices, as a series to draw studies from: what shows how often verdicts
//! err on real servers and real machines.
//!
//! The file (`*.jsonl.gz`): a line of JSON for each life, each line a gzip member of its own, so that `zcat` reads the
//! file, a life is added without touching the others, and a writer that was killed costs at most the life that it was
//! writing. A line has the fields of [`Life`]; unknown fields are ignored, so that later ones can be added.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::Error;

/// A life of a thousand slices has some 50 kB.
const LINE_BYTES_MAX: u64 = 1 << 22;

/// One life of a server in a duel of two equal ones.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Life {
    /// `flavor@version`.
    pub server: String,
    /// Identity of the build.
    pub build: String,
    pub workload: String,
    pub sessions: u32,
    /// A neighbour loaded the machine in bursts meanwhile.
    pub neighbour: bool,
    /// What the two lives of a duel have in common, and no others: milliseconds since 1970 at its start.
    pub duel: i64,
    /// Which of the two: 0 or 1. The same one has the same settings file, port and place in the plan in every duel.
    pub side: u8,
    /// Milliseconds since 1970.
    pub started_at_ms: i64,
    /// No gate found a fault of the measurement. Lives with one are recorded, too.
    pub is_valid: bool,
    /// In the order of time.
    pub slices: Vec<Slice>,
}

/// A slice of load: an array in JSON, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "Row", into = "Row")]
pub struct Slice {
    /// Seconds from the start of the life.
    pub at_s: f64,
    /// Its length in seconds.
    pub length_s: f64,
    /// Transactions committed in it.
    pub committed: u64,
    /// Median and 95th percentile of response times in ms, where they are known.
    pub p50_ms: Option<f64>,
    pub p95_ms: Option<f64>,
}

/// [`Slice`]'s array.
type Row = (f64, f64, u64, Option<f64>, Option<f64>);

impl Slice {
    /// Committed transactions per second.
    pub fn tps(&self) -> f64 {
        self.committed as f64 / self.length_s
    }
}

impl From<Row> for Slice {
    fn from((at_s, length_s, committed, p50_ms, p95_ms): Row) -> Slice {
        Slice { at_s, length_s, committed, p50_ms, p95_ms }
    }
}

impl From<Slice> for Row {
    fn from(slice: Slice) -> Row {
        // A millisecond of time and a microsecond of latency are more than a slice can tell.
        let round = |value: f64| (value * 1e3).round() / 1e3;
        (
            round(slice.at_s),
            round(slice.length_s),
            slice.committed,
            slice.p50_ms.map(round),
            slice.p95_ms.map(round),
        )
    }
}

/// The lives of a file in the order in which they were added, and whether its end was cut off by a writer that was
/// killed.
///
/// # Errors
/// The file cannot be read, or a whole line in it is no life.
pub fn read(path: &Path) -> Result<(Vec<Life>, bool), Error> {
    let bytes = std::fs::read(path).map_err(|error| failed(path, &error))?;
    let (lives, whole) = parse(&bytes).map_err(|what| failed(path, &what))?;
    Ok((lives, whole < bytes.len()))
}

/// Adds lives, whole or not at all, after the whole ones that are there; the file is made where there is none.
///
/// # Errors
/// The file is no file of lives, or cannot be written.
pub fn add(path: &Path, lives: &[Life]) -> Result<(), Error> {
    let mut members = Vec::new();
    for life in lives {
        let mut encoder = GzEncoder::new(&mut members, Compression::best());
        let line = serde_json::to_string(life).map_err(|error| failed(path, &error))? + "\n";
        encoder.write_all(line.as_bytes()).map_err(|error| failed(path, &error))?;
        encoder.finish().map_err(|error| failed(path, &error))?;
    }
    let add = |file: &mut File| -> std::io::Result<Result<(), String>> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let whole = match parse(&bytes) {
            Ok((_, whole)) => whole as u64,
            Err(what) => return Ok(Err(what)),
        };
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        file.write_all(&members)?;
        file.sync_all()?;
        Ok(Ok(()))
    };
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .and_then(|mut file| add(&mut file))
        .map_err(|error| failed(path, &error))?
        .map_err(|what| failed(path, &what))
}

/// The lives, and how many bytes hold them.
fn parse(bytes: &[u8]) -> Result<(Vec<Life>, usize), String> {
    let (mut lives, mut whole) = (Vec::new(), 0);
    while whole < bytes.len() {
        let mut decoder = GzDecoder::new(&bytes[whole..]);
        let mut line = String::new();
        match decoder.by_ref().take(LINE_BYTES_MAX + 1).read_to_string(&mut line) {
            Ok(length) if length as u64 > LINE_BYTES_MAX => {
                return Err(format!("life {} unpacks to more than {LINE_BYTES_MAX} bytes", lives.len() + 1));
            }
            Ok(_) => {}
            // Its writer was killed; what is not gzip at all is somebody else's.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(format!("life {}: {error}", lives.len() + 1)),
        }
        let life =
            serde_json::from_str(&line).map_err(|error| format!("life {}: {error}", lives.len() + 1))?;
        lives.push(life);
        whole = bytes.len() - decoder.into_inner().len();
    }
    Ok((lives, whole))
}

fn failed(path: &Path, what: &dyn std::fmt::Display) -> Error {
    Error::Lives { path: path.to_owned(), what: what.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(side: u8) -> Life {
        let slice = |k: u32| Slice {
            at_s: f64::from(2 * k),
            length_s: 1.0,
            committed: 1000 + u64::from(k),
            p50_ms: Some(0.125),
            p95_ms: None,
        };
        Life {
            server: "mariadb@11.4.5".into(),
            build: "0123".into(),
            workload: "oltp_read_write".into(),
            sessions: 8,
            neighbour: true,
            duel: 7,
            side,
            started_at_ms: 9,
            is_valid: true,
            slices: (0..20).map(slice).collect(),
        }
    }

    #[test]
    fn lives_are_added_and_read_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lives.jsonl.gz");
        add(&path, &[life(0), life(1)]).unwrap();
        add(&path, &[life(1)]).unwrap();
        assert_eq!(read(&path).unwrap(), (vec![life(0), life(1), life(1)], false));
        assert_eq!(life(0).slices[3].tps(), 1003.0);
    }

    /// Cut at any byte, the file has the lives before it, and goes on from there.
    #[test]
    fn a_writer_that_was_killed_costs_the_life_that_it_was_writing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lives.jsonl.gz");
        add(&path, &[life(0)]).unwrap();
        let first = std::fs::read(&path).unwrap().len();
        add(&path, &[life(1)]).unwrap();
        let both = std::fs::read(&path).unwrap();
        for cut in first + 1..both.len() {
            std::fs::write(&path, &both[..cut]).unwrap();
            assert_eq!(read(&path).unwrap(), (vec![life(0)], true), "cut at {cut}");
        }
        add(&path, &[life(1)]).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), both);
    }

    #[test]
    fn a_file_of_something_else_is_refused_and_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notes.txt");
        std::fs::write(&path, "my notes, which are no lives of servers").unwrap();
        let error = add(&path, &[life(0)]).unwrap_err().to_string();
        assert!(error.contains("notes.txt") && error.contains("life 1"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "my notes, which are no lives of servers");
        assert!(read(&folder.path().join("absent")).is_err());
    }
}
