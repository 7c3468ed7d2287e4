//! From a release or a user's archive to a build under `builds/`, whole or not at all.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::beneath::Root;
use super::catalogue::{Place, Release};
use super::{FetchOptions, RECORD, ask, download, inspect, libraries, maven, unpack};
use crate::build::Version;
use crate::record::{Lock, write_atomically};
use crate::{Build, Error, Home, OnProgress, Origin, Progress, Selector, record};

/// How long to wait for another plimsoll that fetches the same build.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Fetches a release unless it is there.
pub(crate) fn release(
    home: &Home,
    release: &Release,
    options: &FetchOptions,
    progress: OnProgress<'_>,
) -> Result<Build, Error> {
    let name = release.fetchable().name();
    let dir = home.downloads().join(&name);
    fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
    let _lock = Lock::take(&dir, PATIENCE)?
        .ok_or_else(|| Error::Busy { what: format!("the download of {name}"), holder: None })?;
    if !options.again
        && let Some(build) = there(home, &name)
    {
        return Ok(build);
    }
    let (archive, origin) = match &release.from {
        Place::Maven(coordinate) => {
            // What an interrupted mvn left is of unknown state, and mvn keeps its own copy.
            let copies = dir.join("maven");
            let _ = fs::remove_dir_all(&copies);
            fs::create_dir(&copies).map_err(|e| Error::io("create", &copies, e))?;
            progress(Progress::Step(format!("fetching {name} (maven {coordinate})")));
            (maven::copy(coordinate, &copies)?, Origin::Maven(coordinate.clone()))
        }
        Place::Url(url) => {
            let from =
                options.mirror.as_ref().map_or_else(|| url.clone(), |mirror| download::mirrored(url, mirror));
            progress(Progress::Step(format!("fetching {name} ({from})")));
            (download::get(&from, &dir, progress)?, Origin::Url(url.clone()))
        }
    };
    let sha256 = inspect::sha256_file(&archive)?;
    if let Some(expected) = &release.sha256
        && !expected.eq_ignore_ascii_case(&sha256)
    {
        // Neither used nor taken up again.
        let _ = fs::remove_file(&archive);
        return Err(Error::Checksum { what: name, expected: expected.clone(), found: sha256 });
    }
    let named = Selector {
        flavor: release.flavor,
        version: Some(release.version.clone()),
        label: release.label.clone(),
    };
    progress(Progress::Step(format!("unpacking {name}")));
    let unpacked = unpack_into_place(home, &archive, Some(&named), &release.take, origin, sha256, progress);
    let build = unpacked.map_err(|error| match error {
        // Known by its name rather than by a folder that is gone by now.
        Error::Libraries { missing, .. } => Error::Libraries { build: name.clone(), missing },
        other => other,
    })?;
    // The build is what counts; the archive can be had again.
    let _ = fs::remove_dir_all(&dir);
    Ok(build)
}

/// Takes a user's archive.
pub(crate) fn archive(
    home: &Home,
    path: &Path,
    named: Option<&Selector>,
    progress: OnProgress<'_>,
) -> Result<Build, Error> {
    let path = path.canonicalize().map_err(|e| Error::io("find", path, e))?;
    progress(Progress::Step(format!("unpacking {}", path.display())));
    let sha256 = inspect::sha256_file(&path)?;
    // Jars of the kinds the catalogue knows are taken apart in the same way.
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let take = super::catalogue::takes_for_jar(name)?;
    unpack_into_place(home, &path, named, &take, Origin::Archive(path.clone()), sha256, progress)
}

/// Takes a user's directory as it is, where it is.
pub(crate) fn directory(home: &Home, path: &Path, named: Option<&Selector>) -> Result<Build, Error> {
    let path = path.canonicalize().map_err(|e| Error::io("find", path, e))?;
    let server = inspect::server_in(&path).ok_or_else(|| no_server(&path))?;
    ask::check_place(&server, false)?;
    let found = inspect::inspect(&server)?;
    let mut build = build_of(found, named, Origin::Directory(path.clone()), &path)?;
    build.archive_sha256 = None;
    let dir = home.builds().join(build.name());
    refuse_other(&dir, &build)?;
    fs::create_dir_all(&dir).map_err(|e| Error::io("create", &dir, e))?;
    write_record(&dir, &build)?;
    Ok(build)
}

fn no_server(path: &Path) -> Error {
    Error::Archive {
        path: path.to_owned(),
        why: "no server is in it (bin/mariadbd, bin/mysqld, sql/mysqld, bin/postgres, ...)".to_owned(),
    }
}

/// The build of that name, if it is complete.
fn there(home: &Home, name: &str) -> Option<Build> {
    super::read_record(&home.builds().join(name)).filter(|build| build.files.server.is_file())
}

/// A name that already belongs to something else.
fn refuse_other(dir: &Path, build: &Build) -> Result<(), Error> {
    let Some(there) = super::read_record(dir) else { return Ok(()) };
    if there.origin == build.origin {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: format!("a second build named {}", build.name()),
        why: format!(
            "there is one from {} already; give this one a label: --as {}+LABEL",
            there.origin,
            build.name()
        ),
    })
}

fn unpack_into_place(
    home: &Home,
    archive: &Path,
    named: Option<&Selector>,
    take: &[super::catalogue::Take],
    origin: Origin,
    sha256: String,
    progress: OnProgress<'_>,
) -> Result<Build, Error> {
    let builds = home.builds();
    let new = Passing::new_in(&builds)?;
    unpack::unpack(archive, take, &new.path, progress)?;
    let root = root_of(&new.path).ok_or_else(|| no_server(archive))?;
    check_whole(archive, &root)?;
    unpack::repair(&root)?;
    supply_libraries(home, &root)?;
    let server = inspect::server_in(&root).ok_or_else(|| no_server(archive))?;
    let found = inspect::inspect(&server)?;
    if let Some(named) = named
        && (named.flavor != found.flavor
            || named.version.as_ref().is_some_and(|v| Version::of(v) != Version::of(&found.version)))
    {
        let said = format!("it holds {}@{}, not {named}", found.flavor, found.version);
        return Err(Error::Archive { path: archive.to_owned(), why: said });
    }
    let mut build = build_of(found, named, origin, archive)?;
    build.archive_sha256 = Some(sha256);
    let place = builds.join(build.name());
    refuse_other(&place, &build)?;
    // Out of the way first: a directory that is there without being wanted is half-made, or fetched again.
    let _ = Passing { path: builds.join(format!(".gone-{}", crate::record::serial())) }.take_over(&place);
    // The record makes it a build, so it is complete when it comes into place.
    build.files.each_path(&mut |path| {
        if let Ok(relative) = path.strip_prefix(&root) {
            *path = place.join(relative);
        }
    });
    write_record_in(&root, &place, &build)?;
    fs::rename(&root, &place).map_err(|e| Error::io("put in place", &place, e))?;
    Ok(build)
}

/// What holds for the folder of a build that did for the whole archive: its links stay in it, now that it becomes a
/// folder by itself. A record of a build is for us to write.
fn check_whole(archive: &Path, root: &Path) -> Result<(), Error> {
    match without_stray_links(archive, root)?.remove(Path::new(RECORD)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(Error::io("look through", root, e)),
        _ => Ok(()),
    }
}

/// A folder whose links stay in it; `from` is named where one does not.
pub(super) fn without_stray_links(from: &Path, root: &Path) -> Result<Root, Error> {
    let fail = |e| Error::io("look through", root, e);
    let below = Root::open(root).map_err(fail)?;
    let Some((name, target)) = below.stray_link().map_err(fail)? else { return Ok(below) };
    let (name, target) = (name.to_string_lossy(), target.to_string_lossy());
    let why = format!("its link {name} points outside of its folder ({target})");
    Err(Error::Archive { path: from.to_owned(), why })
}

/// A directory that goes when it is not needed any more, also on failure.
pub(super) struct Passing {
    pub(super) path: PathBuf,
}

impl Passing {
    /// A new one among the builds, where nobody could exchange what is run out of it.
    pub(super) fn new_in(builds: &Path) -> Result<Passing, Error> {
        fs::create_dir_all(builds).map_err(|e| Error::io("create", builds, e))?;
        let path = builds.join(format!(".new-{}-{}", std::process::id(), record::serial()));
        fs::create_dir(&path).map_err(|e| Error::io("create", &path, e))?;
        let passing = Passing { path };
        // Other uids run what is in it, whatever the umask is.
        fs::set_permissions(&passing.path, fs::Permissions::from_mode(0o755))
            .map_err(|e| Error::io("open up", &passing.path, e))?;
        ask::check_place(&passing.path, true)?;
        Ok(passing)
    }

    /// Moves a directory here, to go.
    fn take_over(self, from: &Path) -> std::io::Result<()> {
        fs::rename(from, &self.path)
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        // What stays is removed by the next `leftovers`.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The folder that holds the build: vendors wrap theirs in one or two.
fn root_of(dir: &Path) -> Option<PathBuf> {
    let mut root = dir.to_owned();
    for _ in 0..4 {
        if inspect::server_in(&root).is_some() {
            return Some(root);
        }
        let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
        let mut folders = fs::read_dir(&root).ok()?.flatten().filter(is_folder).map(|entry| entry.path());
        root = folders.next()?;
        if folders.next().is_some() {
            return None;
        }
    }
    None
}

fn build_of(
    found: inspect::Found,
    named: Option<&Selector>,
    origin: Origin,
    path: &Path,
) -> Result<Build, Error> {
    let sha256 = inspect::sha256_file(&found.files.server)?;
    if let Some(named) = named
        && named.flavor != found.flavor
    {
        let why = format!("it holds {}@{}, not {named}", found.flavor, found.version);
        return Err(Error::Archive { path: path.to_owned(), why });
    }
    Ok(Build {
        flavor: found.flavor,
        version: found.version,
        label: named.and_then(|n| n.label.clone()),
        identity: inspect::identity(&sha256, &origin),
        origin,
        archive_sha256: None,
        facts: std::collections::BTreeMap::new(),
        files: found.files,
    })
}

pub(crate) fn write_record(dir: &Path, build: &Build) -> Result<(), Error> {
    write_record_in(dir, dir, build)
}

/// Writes the record into `dir`, which is to be at `place`: what lies in the home is written down from there on.
fn write_record_in(dir: &Path, place: &Path, build: &Build) -> Result<(), Error> {
    let path = dir.join(RECORD);
    let mut build = build.clone();
    if let Some(home) = record::home_of(place).filter(|_| build.is_in_a_home()) {
        build.files.each_path(&mut |path| *path = record::from_home(path, home));
    }
    let text = serde_json::to_vec_pretty(&build).map_err(|e| Error::io("write", &path, e.into()))?;
    write_atomically(&path, &text)
}

/// Copies libraries that the build needs and the machine lacks from other fetched builds that ship them. What is still
/// missing after that is told when the build is to be started.
fn supply_libraries(home: &Home, root: &Path) -> Result<(), Error> {
    let Some(server) = inspect::server_in(root) else { return Ok(()) };
    let missing = libraries::missing(&inspect::files_around(&server))?;
    if missing.is_empty() {
        return Ok(());
    }
    let others = super::fetched(home)?;
    let below = Root::open(root).map_err(|e| Error::io("open", root, e))?;
    for library in missing {
        let Some(from) = libraries::supplier(&library.library, others.iter().map(|b| &b.files)) else {
            continue;
        };
        let copy = || -> std::io::Result<()> {
            let mut to = below.create(&Path::new("libs").join(&library.library))?;
            std::io::copy(&mut fs::File::open(&from)?, &mut to)?;
            to.set_permissions(fs::Permissions::from_mode(0o755))
        };
        copy().map_err(|e| Error::io("copy", &from, e))?;
    }
    Ok(())
}
