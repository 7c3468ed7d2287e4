//! Builds from source: a commit of a clone, made by a recipe.
//!
//! A recipe is code. It runs under an uid without rights (root's builds), cannot gain any, and has no network, not even a
//! loopback that is up, unless it is allowed one. It works in an export of the commit, never in the user's checkout. What
//! it installs stays under `sources/` in the home, where it was told to install it, and is known by its commit, its recipe
//! and what else went into it; so the same is never built twice.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::{fetch, git, inspect};
use crate::record::{self, Lock};
use crate::{Build, Error, Home, OnProgress, Origin, Progress};

mod cache;
mod facts;
mod log;
mod recipe;

use recipe::PATH;
pub use recipe::Recipe;

/// The uid under which root's recipes run: next to those of sandboxes and of what is asked.
const BUILD_UID: u32 = 64_991;
/// How long to wait for another plimsoll that builds the same.
const PATIENCE: Duration = Duration::from_secs(7200);
/// Installed builds from source that are kept; the ones that were used longest ago go.
const KEPT_BYTES: u64 = 30 << 30;

#[derive(Debug, Clone)]
pub struct SourceRequest {
    /// A git clone, or a directory of sources.
    pub from: PathBuf,
    /// A commit of the clone, by any name that git knows; `None` for the checkout as it stands.
    pub reference: Option<String>,
    /// How; `None` for what the sources look like.
    pub recipe: Option<Recipe>,
    /// Compilers at once.
    pub jobs: usize,
    /// Whether the recipe may use the network.
    pub has_network: bool,
}

impl SourceRequest {
    /// Whether the sources, the commit and the recipe's programs are there: what can be said at once, before anybody waits
    /// for the machine.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn check(&self) -> Result<(), Error> {
        git::asked(&self.from, self.reference.as_deref())?;
        self.recipe()?.check_needs()
    }

    /// The recipe that was named, or the one for what the sources look like.
    fn recipe(&self) -> Result<Recipe, Error> {
        if let Some(recipe) = &self.recipe {
            return Ok(recipe.clone());
        }
        Recipe::of(&self.from, &|path| git::has(&self.from, self.reference.as_deref(), path))
    }

    /// What would be built, without a copy of the sources.
    fn asked(&self) -> Result<(git::Export, Recipe, Identity), Error> {
        let export = git::described(&self.from, self.reference.as_deref())?;
        let recipe = self.recipe()?;
        let identity = identity(&export, &recipe);
        Ok((export, recipe, identity))
    }
}

/// The build that was made of a request before, if it is still there: nobody has to wait for it.
///
/// # Errors
/// The request is wrong.
pub fn made(home: &Home, request: &SourceRequest) -> Result<Option<Build>, Error> {
    let (.., identity) = request.asked()?;
    Ok(there(home, &home.path().join("sources").join(&identity.key)))
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "one exists, for as long as a command")]
pub enum Made {
    Build(Build),
    /// It does not build, which is a finding about the commit.
    Broken {
        commit: String,
        /// What failed: configure, build, install.
        step: &'static str,
        /// The log's last lines.
        log: String,
        log_file: PathBuf,
    },
}

/// What makes a build from source this one.
struct Identity {
    commit: String,
    is_dirty: bool,
    /// Hash of all that goes in.
    key: String,
}

/// Builds what was asked for, unless it is there. `is_stopped` is asked again and again.
///
/// # Errors
/// The request is wrong, or something failed that says nothing of the commit.
pub fn make(
    home: &Home,
    request: &SourceRequest,
    progress: OnProgress<'_>,
    is_stopped: &dyn Fn() -> bool,
) -> Result<Made, Error> {
    let sources = home.path().join("sources");
    create_open(&sources)?;
    let (export, recipe, identity) = request.asked()?;
    let dir = sources.join(&identity.key);
    let _lock = Lock::take(&sources, PATIENCE)?
        .ok_or_else(|| Error::Busy { what: "building from source".to_owned(), holder: None })?;
    if let Some(build) = there(home, &dir) {
        return Ok(Made::Build(build));
    }
    recipe.check_needs()?;
    let work = Work::new(&sources)?;
    git::write(&request.from, request.reference.as_deref(), &export, &work.path.join("source"))?;
    create_open(&dir)?;
    let prefix = dir.join("prefix");
    let _ = fs::remove_dir_all(&prefix);
    create_open(&prefix)?;
    work.hand_over(&prefix)?;
    let cache = cache::of_recipe(&sources, &recipe)?;
    let log_file = dir.join("build.log");
    // What an earlier try said is over.
    let _ = fs::remove_file(&log_file);
    let runner = Runner {
        recipe: &recipe,
        work: &work,
        prefix: &prefix,
        cache,
        log_file: &log_file,
        request,
        is_stopped,
    };
    for (step, script) in
        [("configure", &recipe.configure), ("build", &recipe.build), ("install", &recipe.install)]
    {
        if script.is_empty() {
            continue;
        }
        progress(Progress::Step(format!(
            "{step} of {} by the recipe {}",
            short(&identity.commit),
            recipe.name
        )));
        let status = runner.run(script).map_err(|e| runner.not_run(e))?;
        let Some(status) = status else { return Err(Error::Interrupted) };
        if !status.success() {
            // Half of an installation is of no use to anybody; the log is.
            let _ = fs::remove_dir_all(&prefix);
            let log = log::why(&log_file);
            return Ok(Made::Broken { commit: identity.commit, step, log, log_file });
        }
    }
    let build = take(home, &prefix, &recipe, &identity, &runner)?;
    evict(home, &sources, &build);
    Ok(Made::Build(build))
}

fn unsupported(what: String, why: String) -> Error {
    Error::Unsupported { what, why }
}

fn short(commit: &str) -> &str {
    commit.get(..10).unwrap_or(commit)
}

fn identity(export: &git::Export, recipe: &Recipe) -> Identity {
    let mut hasher = Sha256::new();
    for part in [
        export.commit.as_str(),
        export.dirt.as_deref().unwrap_or_default(),
        &recipe.text,
        &facts::compiler(recipe),
    ] {
        hasher.update(part);
        hasher.update([0]);
    }
    let key = inspect::hex(&hasher.finalize())[..16].to_owned();
    Identity { commit: export.commit.clone(), is_dirty: export.dirt.is_some(), key }
}

/// A directory that others may enter.
fn create_open(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir)
        .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o755)))
        .map_err(|e| Error::io("create", dir, e))
}

/// Where a build happens; gone when it is over.
struct Work {
    path: PathBuf,
}

impl Work {
    fn new(sources: &Path) -> Result<Work, Error> {
        let work = Work { path: sources.join(format!(".work-{}-{}", std::process::id(), record::serial())) };
        for part in ["source", "build", "home"] {
            create_open(&work.path.join(part))?;
        }
        fs::set_permissions(&work.path, fs::Permissions::from_mode(0o755))
            .map_err(|e| Error::io("open up", &work.path, e))?;
        Ok(work)
    }

    /// Gives everything that the recipe writes to its uid.
    fn hand_over(&self, prefix: &Path) -> Result<(), Error> {
        if record::is_root() {
            for dir in ["source", "build", "home"].map(|part| self.path.join(part)) {
                own(&dir, BUILD_UID)?;
            }
            own(prefix, BUILD_UID)?;
        }
        Ok(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // What stays is removed by the next `leftovers`.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Gives a tree to a uid, links themselves and not where they lead.
fn own(dir: &Path, uid: u32) -> Result<(), Error> {
    let fail = |e| Error::io("give away", dir, e);
    std::os::unix::fs::lchown(dir, Some(uid), Some(uid)).map_err(fail)?;
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_type().map_err(fail)?.is_dir() {
            own(&entry.path(), uid)?;
        } else {
            std::os::unix::fs::lchown(entry.path(), Some(uid), Some(uid)).map_err(fail)?;
        }
    }
    Ok(())
}

struct Runner<'a> {
    recipe: &'a Recipe,
    work: &'a Work,
    prefix: &'a Path,
    /// What ccache is told, where it is there.
    cache: Option<cache::Cache>,
    log_file: &'a Path,
    request: &'a SourceRequest,
    is_stopped: &'a dyn Fn() -> bool,
}

impl Runner<'_> {
    fn environment(&self) -> BTreeMap<String, String> {
        let at = |part: &str| self.work.path.join(part).display().to_string();
        let mut all = BTreeMap::from([
            ("PATH".to_owned(), PATH.to_owned()),
            ("LC_ALL".to_owned(), "C".to_owned()),
            ("HOME".to_owned(), at("home")),
            ("TMPDIR".to_owned(), at("home")),
            ("SOURCE".to_owned(), at("source")),
            ("BUILD".to_owned(), at("build")),
            ("PREFIX".to_owned(), self.prefix.display().to_string()),
            ("JOBS".to_owned(), self.request.jobs.to_string()),
        ]);
        if let Some(cache) = &self.cache {
            all.extend(cache.environment(&self.work.path));
        }
        all.extend(self.recipe.env.clone());
        all
    }

    /// Why a script could not be started.
    fn not_run(&self, error: std::io::Error) -> Error {
        let is_forbidden = error.kind() == std::io::ErrorKind::PermissionDenied;
        if is_forbidden && !self.request.has_network && !record::is_root() {
            let why = "this system lets only root make a network namespace, in which a recipe has no network: build as root, or \
                       allow it the network (plimsoll build --network)";
            return unsupported(format!("the recipe {}", self.recipe.name), why.to_owned());
        }
        Error::io("run the recipe in", &self.work.path, error)
    }

    /// One script; `None` when it was stopped.
    fn run(&self, script: &str) -> std::io::Result<Option<ExitStatus>> {
        let log = File::options().create(true).append(true).open(self.log_file)?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-euc", script])
            .env_clear()
            .envs(self.environment())
            .current_dir(self.work.path.join("build"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let is_root = record::is_root();
        let has_network = self.request.has_network;
        // SAFETY: neither has preconditions, and neither can fail.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        let map = |id: u32| CString::new(format!("{id} {id} 1"));
        let (uid_map, gid_map) = (map(uid)?, map(gid)?);
        let give_up_rights = move || {
            let check = |rc: libc::c_int| if rc < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
            // SAFETY: only memory of this closure is pointed to, and all are async-signal-safe.
            unsafe {
                libc::setsid();
                libc::umask(0o022);
                libc::setpriority(libc::PRIO_PROCESS, 0, 10);
                if !has_network && is_root {
                    check(libc::unshare(libc::CLONE_NEWNET))?;
                } else if !has_network {
                    check(libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET))?;
                    for (path, text) in [
                        (c"/proc/self/setgroups", c"deny"),
                        (c"/proc/self/uid_map", uid_map.as_c_str()),
                        (c"/proc/self/gid_map", gid_map.as_c_str()),
                    ] {
                        let file = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                        check(file)?;
                        check(libc::write(file, text.as_ptr().cast(), text.count_bytes()) as libc::c_int)?;
                        libc::close(file);
                    }
                }
                if is_root {
                    check(libc::setgroups(0, std::ptr::null()))?;
                    check(libc::setresgid(BUILD_UID, BUILD_UID, BUILD_UID))?;
                    check(libc::setresuid(BUILD_UID, BUILD_UID, BUILD_UID))?;
                }
                check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
            }
        };
        // SAFETY: the closure makes only async-signal-safe calls.
        unsafe { command.pre_exec(give_up_rights) };
        let mut child = command.spawn()?;
        loop {
            if let Some(status) = child.try_wait()? {
                // What it left running in its group would go on beside measurements.
                end_group(child.id());
                return Ok(Some(status));
            }
            if (self.is_stopped)() {
                end_group(child.id());
                child.wait()?;
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn end_group(leader: u32) {
    // SAFETY: kill takes no pointers; the group is that of a child which this process started.
    unsafe { libc::kill(-(leader as i32), libc::SIGKILL) };
}

/// The build whose files are in this directory, if it is complete.
fn there(home: &Home, dir: &Path) -> Option<Build> {
    let name = fs::read_to_string(dir.join("name")).ok()?;
    let build = super::read_record(&home.builds().join(name.trim()))?;
    // What was used last goes last.
    let _ = File::options()
        .append(true)
        .open(dir.join("name"))
        .and_then(|file| file.set_modified(std::time::SystemTime::now()));
    (build.files.server.starts_with(dir) && build.files.server.is_file()).then_some(build)
}

/// Makes what was installed a build.
fn take(
    home: &Home,
    prefix: &Path,
    recipe: &Recipe,
    identity: &Identity,
    runner: &Runner<'_>,
) -> Result<Build, Error> {
    if record::is_root() {
        own(prefix, 0)?;
    }
    fetch::without_stray_links(prefix, prefix)?;
    let server = match &recipe.server {
        Some(place) => Some(prefix.join(place)).filter(|path| path.is_file()),
        None => inspect::server_in(prefix),
    };
    let server = server.ok_or_else(|| {
        let why = "no server was installed under PREFIX: `server` in the recipe says where it is below it";
        unsupported(format!("the recipe {}", recipe.name), why.to_owned())
    })?;
    let found = inspect::inspect(&server)?;
    let origin = Origin::Source(format!("commit {}, recipe {}", identity.commit, recipe.name));
    let mut label = short(&identity.commit).to_owned();
    if identity.is_dirty {
        label.push_str("-dirty");
    }
    let mut build = Build {
        flavor: found.flavor,
        version: found.version,
        label: Some(label),
        identity: inspect::identity(&inspect::sha256_file(&server)?, &origin),
        origin,
        archive_sha256: None,
        facts: facts::facts(recipe, identity, runner, &server),
        files: found.files,
    };
    if super::read_record(&home.builds().join(build.name())).is_some_and(|other| other.files != build.files) {
        // The same commit by another recipe, or another dirt.
        build.label = build.label.map(|label| format!("{label}-{}", &identity.key[..4]));
    }
    let place = home.builds().join(build.name());
    create_open(&place)?;
    fetch::write_record(&place, &build)?;
    let dir = prefix.parent().unwrap_or(prefix);
    record::write_atomically(&dir.join("name"), build.name().as_bytes())?;
    Ok(build)
}

/// Removes what was used longest ago while there is more than is kept. What sandboxes use stays, and so does the newest.
fn evict(home: &Home, sources: &Path, newest: &Build) {
    let Ok(entries) = fs::read_dir(sources) else { return };
    let dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    let mut all: Vec<(std::time::SystemTime, &PathBuf, u64)> = Vec::new();
    for dir in &dirs {
        match fs::metadata(dir.join("name")).and_then(|meta| meta.modified()) {
            Ok(used) => all.push((used, dir, crate::storage::bytes_below(dir))),
            // Nothing else is being built now: it was interrupted, and is of no use.
            Err(_) => drop(fs::remove_dir_all(dir.join("prefix"))),
        }
    }
    all.sort();
    let mut bytes: u64 = all.iter().map(|(.., bytes)| bytes).sum();
    for (_, dir, size) in all {
        if bytes <= KEPT_BYTES {
            break;
        }
        if let Some(build) = there(home, dir).filter(|build| build.name() != newest.name())
            && super::remove(home, &build).is_ok()
        {
            bytes -= size;
        }
    }
    cache::evict(sources);
}

/// Where the files of a build from source are.
pub(crate) fn dir_of(home: &Home, build: &Build) -> Option<PathBuf> {
    let sources = home.path().join("sources");
    let below = build.files.server.strip_prefix(&sources).ok()?;
    Some(sources.join(below.components().next()?))
}
