//! Where the data directories of a study are made, and how fast these places and the machine are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use sandbox::{Home, MadeFilesystem};
use store::Store;

use super::Work;
use crate::error::Error;
use crate::observe::{Event, Observer};
use crate::plan::{Cell, Plan, PlannedRun};
use crate::provision::tell;
use crate::stop::StopSwitch;
use crate::study::{Body, Pairing, StorageChoice, Study};
use crate::watch::Places;

/// Label of the place of a cell's data directories.
pub(super) fn place_of(cell: &Cell) -> &str {
    cell.storage.as_ref().map_or("default", |storage| storage.label.as_str())
}

/// The file systems that are made for a study, as long as they are mounted.
pub(super) struct Made {
    filesystems: Vec<MadeFilesystem>,
    /// What a reader has to know of them.
    pub(super) doubts: Vec<String>,
}

impl Made {
    /// Unmounts and removes them.
    pub(super) fn close(self, observer: Observer<'_>) {
        for filesystem in self.filesystems {
            if let Err(error) = filesystem.close() {
                observer(Event::Warning(&format!(
                    "a file system of this study is left, and removed by the next plimsoll that measures: {error}"
                )));
            }
        }
    }
}

/// Refuses file systems that this machine cannot make, and schedulers that its disks do not have or that servers which live at
/// the same time would need at once.
pub(super) fn check(home: &Home, study: &Study, body: &Body, plan: &Plan) -> Result<(), Error> {
    let refuse = |place: &StorageChoice, error: sandbox::Error| {
        study.refuse(
            &format!("storage/{}", place.label),
            error.to_string(),
            "not possible on this machine",
            "see docs/study-file.md, \"a place\"",
        )
    };
    // Many cells share a place.
    let places = plan.cells.iter().filter_map(|cell| cell.storage.as_ref());
    let places: BTreeMap<&str, &StorageChoice> = places.map(|place| (place.label.as_str(), place)).collect();
    for place in places.values() {
        if let Some(made) = &place.made {
            sandbox::filesystem::check(made).map_err(|error| refuse(place, error))?;
        }
        if let Some(scheduler) = &place.scheduler {
            let on = place.made.as_ref().and_then(|made| made.on.as_deref()).or(place.datadir.as_deref());
            sandbox::scheduler::check(on.unwrap_or(home.path()), scheduler)
                .map_err(|error| refuse(place, error))?;
        }
    }
    let is_duel = body.load.pairing == Pairing::Duel
        && body.compare.as_ref().is_some_and(|compare| compare.axis == "storage");
    if is_duel && body.axes.storage.iter().any(|place| place.scheduler.is_some()) {
        let message = "servers of a duel live at the same time, and a disk has one I/O scheduler";
        return Err(study.refuse(
            "pairing",
            message.to_owned(),
            "not with `scheduler`",
            "leave `pairing` out",
        ));
    }
    Ok(())
}

/// Makes the file systems of the places that the chosen runs use, and tells the plan where they are.
pub(super) fn make(
    home: &Home,
    plan: &mut Plan,
    chosen: &[PlannedRun],
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Made, Error> {
    let mut made = Made { filesystems: Vec::new(), doubts: Vec::new() };
    let mut mounted: BTreeMap<String, PathBuf> = BTreeMap::new();
    let used: BTreeSet<usize> = chosen.iter().map(|run| run.cell).collect();
    for index in used {
        let Some(place) = plan.cells[index].storage.as_mut() else { continue };
        let Some(wish) = &place.made else { continue };
        let path = match mounted.get(&place.label) {
            Some(path) => path.clone(),
            None => {
                let told = |progress| tell(observer, progress);
                let filesystem =
                    MadeFilesystem::make(home, &place.label, wish, &told, &|| stop.is_requested())?;
                made.doubts.extend(unseen(&place.label, &filesystem.unseen));
                mounted.insert(place.label.clone(), filesystem.path());
                made.filesystems.push(filesystem);
                mounted[&place.label].clone()
            }
        };
        place.datadir = Some(path);
    }
    Ok(made)
}

fn unseen(label: &str, options: &[String]) -> Option<String> {
    (!options.is_empty()).then(|| {
        format!(
            "storage `{label}`: mounted with {}, which the kernel does not show among the mount's options: look whether \
             it is in force",
            options.join(", ")
        )
    })
}

impl Work<'_> {
    /// Where the study's data directories are made.
    fn places(&self) -> Places {
        let of_cell = |cell: &Cell| {
            let dir = cell.storage.as_ref().and_then(|storage| storage.datadir.clone());
            (place_of(cell).to_owned(), dir.unwrap_or_else(|| self.home.sandboxes()))
        };
        self.plan.cells.iter().map(of_cell).collect()
    }

    /// Records what each place for data directories can do by itself. A place that cannot be probed is a warning: its
    /// runs will say more.
    pub(super) fn probe(&self, store: &mut Store) -> Result<(), Error> {
        let known = store.probes(self.id)?;
        for (label, dir) in self.places() {
            if known.iter().any(|(_, probe)| probe.place == label) {
                continue;
            }
            if dir.as_os_str() == "tmpfs" {
                store.add_probe(self.id, self.host, &crate::watch::memory_probe(&label))?;
                continue;
            }
            (self.around.observer)(Event::Doing(&format!("probing the storage under {}", dir.display())));
            let cache = self.home.path().join("probes");
            match crate::watch::storage_probe(&label, &dir, &cache, false) {
                Ok(probe) => store.add_probe(self.id, self.host, &probe)?,
                Err(error) => {
                    let text = format!("{}: the storage could not be probed: {error}", dir.display());
                    (self.around.observer)(Event::Warning(&text));
                }
            }
        }
        Ok(())
    }

    /// Runs the canary and records it; how fast the machine is, by place, against the study's other canaries.
    pub(super) fn canary(
        &self,
        store: &mut Store,
        block: u32,
        when: &str,
    ) -> Result<BTreeMap<String, f64>, Error> {
        let others: Vec<store::Canary> = store
            .canaries(self.id)?
            .into_iter()
            .filter(|(host, _)| *host == self.host)
            .map(|(_, c)| c)
            .collect();
        let mut places = self.places();
        // A place in memory is mounted for each sandbox.
        places.retain(|_, dir| dir.as_os_str() != "tmpfs");
        if places.is_empty() {
            places.insert("default".to_owned(), self.home.sandboxes());
        }
        let (canary, ratios) = crate::watch::canary(&places, block, when, &others);
        store.add_canary(self.id, self.host, &canary)?;
        Ok(ratios)
    }
}
