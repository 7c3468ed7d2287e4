//! What the controller of a fleet and its tasks tell each other: files in a directory that all of them see.
//!
//! `RESULTS/fleet/STUDY-ID/` holds `fleet.json` and `study.json` (by the controller, before the first task), `log/` (what
//! tasks print), and for each try of a block a results directory of its own in `tasks/`, with `started.json` and, from the
//! moment that its task ends, `ended.json`. Each is written beside, and renamed: it is whole or not there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sandbox::builds::handed;
use sandbox::{Build, Home};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::StudyId;

use super::{Bound, Wishes};
use crate::error::Error;

/// What a fleet is for: enough to take it up again, and for its tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Fleet {
    /// Row of the study in the results file.
    pub study: i64,
    pub name: String,
    /// The study file, absolute.
    pub study_file: PathBuf,
    pub quick: bool,
    /// Plimsoll that controls it; tasks must be of the same version.
    pub version: String,
    /// What all of its jobs are called.
    pub jobs: String,
    pub nodes: Option<u32>,
    pub partition: Option<String>,
    pub constraint: Option<String>,
    pub time_limit_s: Option<u64>,
    #[serde(default)]
    pub calibrate_s: Option<u64>,
    #[serde(default)]
    pub client_nodes: Option<u32>,
    #[serde(default)]
    pub noise_max: Option<f64>,
    /// What follows from it for this study; `None`: nodes are taken as they are.
    #[serde(default)]
    pub bound: Option<Bound>,
    /// Builds of its servers, each with its identity.
    #[serde(default)]
    pub builds: Vec<(String, String)>,
}

impl Fleet {
    pub fn wishes(&self) -> Wishes {
        Wishes {
            is_on: true,
            nodes: self.nodes,
            partition: self.partition.clone(),
            constraint: self.constraint.clone(),
            time_limit: self.time_limit_s.map(Duration::from_secs),
            calibrate: self.calibrate_s.map(Duration::from_secs),
            client_nodes: self.client_nodes,
            noise_max: self.noise_max,
        }
    }
}

/// A try of a block has begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub block: u32,
    /// The array's job, and how often Slurm had begun this task before.
    pub job: u64,
    pub restart: u32,
    /// As Slurm calls it.
    pub node: String,
    /// Milliseconds since 1970, by the node's clock.
    pub at_ms: i64,
}

/// A try of a block has ended by itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Runs that ended well, were called invalid, and failed.
    pub done: usize,
    pub invalid: usize,
    pub failed: usize,
    /// Somebody stopped it: the rest of the block is to be made.
    pub is_interrupted: bool,
    /// Why it could not be made, where that is no matter of one node: it is not tried again.
    pub refused: Option<String>,
    /// Why it could not be made here.
    pub error: Option<String>,
    /// Why it was not begun: this node is too noisy.
    #[serde(default)]
    pub set_aside: Option<String>,
}

impl Ended {
    /// All of its runs came to an end, good or bad.
    pub fn is_whole(&self) -> bool {
        !self.is_interrupted && self.refused.is_none() && self.error.is_none() && self.set_aside.is_none()
    }
}

/// A try of a block, as its directory tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Try {
    pub dir: PathBuf,
    pub started: Started,
    pub ended: Option<Ended>,
}

/// The directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desk(PathBuf);

impl Desk {
    /// Of a study in a results directory; it may not be there yet.
    pub fn of(results: &Path, name: &str, study: StudyId) -> Desk {
        Desk(results.join("fleet").join(format!("{name}-{}", study.0)))
    }

    /// At this place.
    pub fn at(dir: &Path) -> Desk {
        Desk(dir.to_owned())
    }

    /// The newest fleet of a study of that name.
    ///
    /// # Errors
    /// There is none.
    pub fn newest(results: &Path, name: &str) -> Result<(Desk, Fleet), Error> {
        let entries = std::fs::read_dir(results.join("fleet")).into_iter().flatten().flatten();
        let fleets = entries.filter_map(|entry| {
            let desk = Desk(entry.path());
            let fleet = desk.fleet().ok()?;
            (fleet.name == name).then_some((desk, fleet))
        });
        fleets.max_by_key(|(_, fleet)| fleet.study).ok_or_else(|| {
            Error::Usage(format!(
                "no fleet has worked on `{name}` in {}: `plimsoll run STUDY.toml --on slurm` begins one, --results says \
                 where",
                results.display()
            ))
        })
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Where the results directories of tries are.
    pub fn tasks(&self) -> PathBuf {
        self.0.join("tasks")
    }

    /// Where the output of tasks goes.
    pub fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Where builds lie for nodes that lack them.
    pub fn builds(&self) -> PathBuf {
        self.0.join("builds")
    }

    /// Packs builds for nodes that lack them; those that are packed already stay as they are. Names of those that a node
    /// must have by itself.
    ///
    /// # Errors
    /// One cannot be packed.
    pub(super) fn pack(&self, home: &Home, builds: &[&Build]) -> Result<Vec<String>, Error> {
        let dir = self.builds();
        std::fs::create_dir_all(&dir).map_err(|error| cannot("make", &dir, &error))?;
        let mut by_itself = Vec::new();
        for build in builds {
            let about = dir.join(format!("{}.json", build.name()));
            if about.exists() {
                continue;
            }
            match handed::pack(home, build, &dir)? {
                Some(packed) => write(&about, &packed)?,
                None => by_itself.push(build.name()),
            }
        }
        Ok(by_itself)
    }

    /// Takes packed builds that this machine's home lacks.
    ///
    /// # Errors
    /// One cannot be read or unpacked.
    pub(super) fn take(&self, home: &Home) -> Result<(), Error> {
        let dir = self.builds();
        let files = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
        for about in files.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
            handed::take(home, &read(&about)?, &dir)?;
        }
        Ok(())
    }

    /// # Errors
    /// It is not there, or of another version's form.
    pub fn fleet(&self) -> Result<Fleet, Error> {
        read(&self.0.join("fleet.json"))
    }

    /// # Errors
    /// It is not there.
    pub fn study(&self) -> Result<store::Study, Error> {
        read(&self.0.join("study.json"))
    }

    /// Prepares the directory.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open(&self, fleet: &Fleet, study: &store::Study) -> Result<(), Error> {
        for dir in [self.tasks(), self.log()] {
            std::fs::create_dir_all(&dir).map_err(|error| cannot("make", &dir, &error))?;
        }
        write(&self.0.join("study.json"), study)?;
        write(&self.0.join("fleet.json"), fleet)
    }

    /// All tries, in the order in which they began.
    pub fn tries(&self) -> Vec<Try> {
        let entries = std::fs::read_dir(self.tasks()).into_iter().flatten().flatten();
        let of = |dir: PathBuf| {
            let started = read(&dir.join("started.json")).ok()?;
            let ended = read(&dir.join("ended.json")).ok();
            Some(Try { dir, started, ended })
        };
        let mut tries: Vec<Try> = entries.filter_map(|entry| of(entry.path())).collect();
        tries.sort_by_key(|one| (one.started.block, one.started.job, one.started.restart));
        tries
    }

    /// A try begins: its results directory.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn begin(&self, started: &Started) -> Result<PathBuf, Error> {
        let dir = self.tasks().join(format!("{:05}-{}.{}", started.block, started.job, started.restart));
        std::fs::create_dir_all(&dir).map_err(|error| cannot("make", &dir, &error))?;
        write(&dir.join("started.json"), started)?;
        Ok(dir)
    }

    /// A try ends.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn end(dir: &Path, ended: &Ended) -> Result<(), Error> {
        write(&dir.join("ended.json"), ended)
    }
}

fn cannot(what: &str, path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::Run(format!("cannot {what} {}: {error}", path.display()))
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, Error> {
    let bytes = std::fs::read(path).map_err(|error| cannot("read", path, &error))?;
    serde_json::from_slice(&bytes).map_err(|error| cannot("read", path, &error))
}

fn write<T: Serialize>(path: &Path, value: &T) -> Result<(), Error> {
    use std::io::Write;
    let text = serde_json::to_vec_pretty(value).map_err(|error| cannot("write", path, &error))?;
    let beside = path.with_extension("new");
    let written = std::fs::File::create(&beside)
        .and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all()))
        .and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|error| cannot("write", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started(block: u32, job: u64, restart: u32) -> Started {
        Started { block, job, restart, node: "n1".to_owned(), at_ms: 5 }
    }

    #[test]
    fn tries_are_found_in_their_order_and_half_written_ones_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let desk = Desk::at(dir.path());
        let later = desk.begin(&started(2, 9, 1)).unwrap();
        desk.begin(&started(2, 9, 0)).unwrap();
        desk.begin(&started(2, 10, 0)).unwrap();
        desk.begin(&started(1, 9, 0)).unwrap();
        std::fs::create_dir_all(desk.tasks().join("00007-1.0")).unwrap();
        std::fs::write(later.join("ended.new"), "{\"done\":").unwrap();
        let order: Vec<(u32, u64, u32)> = desk
            .tries()
            .iter()
            .map(|one| (one.started.block, one.started.job, one.started.restart))
            .collect();
        assert_eq!(order, [(1, 9, 0), (2, 9, 0), (2, 9, 1), (2, 10, 0)]);
        assert!(desk.tries().iter().all(|one| one.ended.is_none()));
        let ended = Ended { done: 3, ..Ended::default() };
        Desk::end(&later, &ended).unwrap();
        assert_eq!(desk.tries()[2].ended, Some(ended));
    }
}
