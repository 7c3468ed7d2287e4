//! The whole hub as static pages, for any web space.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::db::{Db, Place};
use crate::error::Error;
use crate::files::{BUNDLE, Keeping, REPORT};
use crate::pages::{self, Pages, in_folder};
use crate::query::{self, Part};

/// The file by which a directory is known as an export, which the next one replaces.
const MARKER: &str = ".plimsoll-export";

/// Writes every page into a new directory, which then takes the place of `folder`: what was hidden since the last export is
/// gone. What one that was killed has left beside its place is put back or removed first. `base` is where it will stand on
/// its web space (`/results`, or nothing for its root). Returns how many bundles there are.
///
/// # Errors
/// The database cannot be had, a file cannot be written, or `folder` has something else than an export.
pub fn export(place: &Place, keeping: &Keeping, folder: &Path, base: &str) -> Result<usize, Error> {
    let fail = |source| Error::File { what: folder.display().to_string(), source };
    let folder = if folder.exists() { folder.canonicalize() } else { std::path::absolute(folder) };
    let folder = folder.map_err(fail)?;
    let _turn = turn(&folder)?;
    let (new, old) = (beside(&folder, "new"), beside(&folder, "old"));
    tidy(&folder, &new, &old)?;
    let db = Db::open(place)?;
    let site =
        Site { db: &db, keeping, pages: Pages::new(base.trim_end_matches('/'), true)?, folder: new.clone() };
    let written = site.write_all().and_then(|bundles| exchange(&folder, &new, &old).map(|()| bundles));
    if written.is_err() {
        // Half a site is no use to anybody.
        drop(remove(&new));
    }
    written
}

/// Exports into one directory's folders wait for each other: what stands beside them is of one that was killed.
fn turn(folder: &Path) -> Result<File, Error> {
    let parent = folder.parent().unwrap_or(folder);
    let fail = |source| Error::File { what: parent.display().to_string(), source };
    std::fs::create_dir_all(parent).map_err(fail)?;
    let parent_of_all = File::open(parent).map_err(fail)?;
    // SAFETY: the descriptor is open for the call; the lock goes with it.
    match unsafe { libc::flock(parent_of_all.as_raw_fd(), libc::LOCK_EX) } {
        0 => Ok(parent_of_all),
        _ => Err(fail(std::io::Error::last_os_error())),
    }
}

/// Ends what an export that was killed had begun: between its two renames the place is empty, and what was there has
/// another name.
fn tidy(folder: &Path, new: &Path, old: &Path) -> Result<(), Error> {
    [folder, new, old].into_iter().try_for_each(refuse_other)?;
    if !folder.exists() && old.join(MARKER).is_file() {
        std::fs::rename(old, folder)
            .map_err(|source| Error::File { what: old.display().to_string(), source })?;
    }
    remove(new)?;
    remove(old)
}

/// Removes an export, if there is one; its marker last, so that what a kill leaves of it is still known.
fn remove(folder: &Path) -> Result<(), Error> {
    let fail = |source| Error::File { what: folder.display().to_string(), source };
    if !folder.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_name() == MARKER {
            continue;
        }
        let is_folder = entry.file_type().map_err(fail)?.is_dir();
        let path = entry.path();
        if is_folder { std::fs::remove_dir_all(path) } else { std::fs::remove_file(path) }.map_err(fail)?;
    }
    std::fs::remove_dir_all(folder).map_err(fail)
}

/// Nothing but an export is replaced.
fn refuse_other(folder: &Path) -> Result<(), Error> {
    let fail = |source| Error::File { what: folder.display().to_string(), source };
    if !folder.exists() || folder.join(MARKER).is_file() {
        return Ok(());
    }
    match std::fs::read_dir(folder).map_err(fail)?.next() {
        None => Ok(()),
        Some(_) => Err(Error::Wrong(format!(
            "{} has something else than an export of a hub: empty it, or name another directory",
            folder.display()
        ))),
    }
}

/// A name in the same directory, so that it can be renamed.
fn beside(folder: &Path, what: &str) -> PathBuf {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    folder.with_file_name(format!(".{name}.{what}"))
}

fn exchange(folder: &Path, new: &Path, old: &Path) -> Result<(), Error> {
    let fail = |source| Error::File { what: folder.display().to_string(), source };
    if !folder.exists() {
        return std::fs::rename(new, folder).map_err(fail);
    }
    std::fs::rename(folder, old).map_err(fail)?;
    if let Err(source) = std::fs::rename(new, folder) {
        // As it was.
        drop(std::fs::rename(old, folder));
        return Err(fail(source));
    }
    remove(old)
}

/// Pages on their way into a directory.
struct Site<'a> {
    db: &'a Db,
    keeping: &'a Keeping,
    pages: Pages,
    folder: PathBuf,
}

impl Site<'_> {
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let path = self.folder.join(name);
        let fail = |source| Error::File { what: path.display().to_string(), source };
        std::fs::create_dir_all(path.parent().unwrap_or(&self.folder)).map_err(fail)?;
        std::fs::write(&path, bytes).map_err(fail)
    }

    fn page(&self, way: &str, template: &str, title: &str, value: &Value) -> Result<(), Error> {
        let name = Path::new(way).join("index.html");
        self.write(&name.to_string_lossy(), self.pages.page(template, title, value)?.as_bytes())
    }

    fn write_all(&self) -> Result<usize, Error> {
        self.write(MARKER, b"The next `plimsoll hub export` replaces this directory.\n")?;
        self.write("hub.css", pages::css().as_bytes())?;
        self.write("charts.js", report::chart_script().as_bytes())?;
        self.page("", "front.html", "Results", &self.db.with(query::front)?)?;
        self.places()?;
        self.histories()?;
        self.bundles()
    }

    fn places(&self) -> Result<(), Error> {
        let places = self.db.with(|sql| query::places(sql, Part::All))?;
        self.page("places", "places.html", "Servers and machines", &places)?;
        for server in places["servers"].as_array().into_iter().flatten() {
            let name = server["server"].as_str().unwrap_or_default();
            let value = self.db.with(|sql| query::server(sql, name, Part::All))?;
            self.page(&format!("server/{}", in_folder(name)), "server.html", name, &value)?;
        }
        for host in places["hosts"].as_array().into_iter().flatten() {
            let name = host["fingerprint"].as_str().unwrap_or_default();
            let value = self.db.with(|sql| query::host(sql, name, Part::All))?;
            self.page(&format!("host/{}", in_folder(name)), "host.html", name, &value)?;
        }
        Ok(())
    }

    fn histories(&self) -> Result<(), Error> {
        let flavors = self.db.with(query::flavors)?;
        let made = |flavor: &str, metric: &str| {
            let found = self.db.with(|sql| query::history(sql, flavor, metric, "", Part::All))?;
            Ok::<Value, Error>(pages::history(&found, flavor, metric, &flavors))
        };
        let first = made(flavors.first().map_or("", String::as_str), "tps")?;
        self.page("history", pages::HISTORY, "History", &first)?;
        for flavor in &flavors {
            for metric in query::METRICS {
                let way = format!("history/{}/{metric}", in_folder(flavor));
                self.page(&way, pages::HISTORY, "History", &made(flavor, metric)?)?;
            }
        }
        Ok(())
    }

    /// All bundles with their files and claims, and the list of them.
    fn bundles(&self) -> Result<usize, Error> {
        let (mut page, mut all) = (Some(1), Vec::new());
        while let Some(number) = page {
            let mut found = self.db.with(|sql| query::search(sql, "", number))?;
            for head in found["bundles"].as_array().into_iter().flatten() {
                self.bundle(head["id"].as_str().unwrap_or_default())?;
            }
            if let Value::Array(heads) = found["bundles"].take() {
                all.extend(heads);
            }
            page = found["next"].as_i64();
        }
        let bundles = all.len();
        let list = json!({"words": "", "bundles": all, "next": null});
        self.page("search", "search.html", "All results", &list)?;
        Ok(bundles)
    }

    fn bundle(&self, id: &str) -> Result<(), Error> {
        let value = self.db.with(|sql| query::bundle(sql, id))?;
        let title = value["title"].as_str().unwrap_or("Bundle");
        self.page(&format!("bundle/{id}"), "bundle.html", title, &value)?;
        for (kind, name) in [(REPORT, "report.html"), (BUNDLE, "file.plimsoll")] {
            let bytes = self.db.with(|sql| self.keeping.read(sql, id, kind))?;
            self.write(&format!("bundle/{id}/{name}"), &bytes)?;
        }
        for claim in value["claims"].as_array().into_iter().flatten() {
            let id = claim["id"].as_str().unwrap_or_default();
            let value = self.db.with(|sql| query::claim(sql, id, Part::All))?;
            self.page(&format!("claim/{id}"), "claim.html", "Claim", &value)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(folder: &Path, word: &str) {
        std::fs::create_dir_all(folder.join("bundle")).unwrap();
        std::fs::write(folder.join(MARKER), b"").unwrap();
        std::fs::write(folder.join("index.html"), word).unwrap();
    }

    #[test]
    fn what_a_killed_export_has_left_is_put_back_or_removed() {
        let dir = tempfile::tempdir().unwrap();
        let names = || {
            let entries = std::fs::read_dir(dir.path()).unwrap().flatten();
            let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let folder = dir.path().join("site");
        let (new, old) = (beside(&folder, "new"), beside(&folder, "old"));
        let word = || std::fs::read_to_string(folder.join("index.html")).unwrap();
        // Killed between its renames: what was there is there again.
        site(&old, "before");
        site(&new, "after");
        tidy(&folder, &new, &old).unwrap();
        assert_eq!((word().as_str(), names()), ("before", vec!["site".to_owned()]));
        // Killed while it wrote, and while it removed what was there.
        site(&new, "half");
        site(&old, "long ago");
        std::fs::remove_file(old.join("index.html")).unwrap();
        tidy(&folder, &new, &old).unwrap();
        assert_eq!((word().as_str(), names()), ("before", vec!["site".to_owned()]));
        // What is no export is somebody's.
        site(&old, "another's");
        std::fs::remove_file(old.join(MARKER)).unwrap();
        assert!(tidy(&folder, &new, &old).unwrap_err().to_string().contains("something else"));
        assert!(old.join("index.html").is_file());
    }

    #[test]
    fn an_export_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let (place, folder) = (Place::Sqlite(dir.path().join("hub.db")), dir.path().join("sites/site"));
        let keeping = Keeping::Directory(dir.path().join("bundles"));
        assert_eq!(export(&place, &keeping, &folder, "").unwrap(), 0);
        // As a kill between the renames leaves it.
        std::fs::rename(&folder, beside(&folder, "old")).unwrap();
        site(&beside(&folder, "new"), "whole, and not there");
        assert_eq!(export(&place, &keeping, &folder, "").unwrap(), 0);
        let left: Vec<_> = std::fs::read_dir(dir.path().join("sites")).unwrap().flatten().collect();
        assert!(left.len() == 1 && folder.join("index.html").is_file(), "{left:?}");
    }
}
