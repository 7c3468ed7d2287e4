//! Where the data directories of a study are made, and how fast these places and the machine are.

use std::collections::BTreeMap;

use store::Store;

use super::Work;
use crate::error::Error;
use crate::observe::Event;
use crate::plan::Cell;
use crate::run::Around;
use crate::watch::Places;

/// Label of the place of a cell's data directories.
pub(super) fn place_of(cell: &Cell) -> &str {
    cell.storage.as_ref().map_or("default", |storage| storage.label.as_str())
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
    pub(super) fn probe(&self, store: &mut Store, around: Around<'_>) -> Result<(), Error> {
        let known = store.probes(self.id)?;
        for (label, dir) in self.places() {
            if known.iter().any(|(_, probe)| probe.place == label) {
                continue;
            }
            if dir.as_os_str() == "tmpfs" {
                store.add_probe(self.id, self.host, &crate::watch::memory_probe(&label))?;
                continue;
            }
            (around.observer)(Event::Doing(&format!("probing the storage under {}", dir.display())));
            let cache = self.home.path().join("probes");
            match crate::watch::storage_probe(&label, &dir, &cache, false) {
                Ok(probe) => store.add_probe(self.id, self.host, &probe)?,
                Err(error) => {
                    let text = format!("{}: the storage could not be probed: {error}", dir.display());
                    (around.observer)(Event::Warning(&text));
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
