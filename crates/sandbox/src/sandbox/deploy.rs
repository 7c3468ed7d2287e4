//! From a spec to a server that answers, with nothing left behind on failure.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::IFlags;

use super::{Sandbox, check_new_name};
use crate::build::Version;
use crate::process::Ids;
use crate::record::{self, Lock, Record};
use crate::server::{self, postgres};
use crate::{
    Error, Flavor, Home, Life, Listen, OnProgress, Progress, Spec, Storage, builds, engines, limits, preload,
    replication, scheduler, settings, snapshot, storage, tls,
};

/// Longest path of a unix socket (`sun_path`, with its closing zero).
const SOCKET_PATH_MAX: usize = 107;

pub(super) fn deploy(home: &Home, spec: &Spec, progress: OnProgress<'_>) -> Result<Sandbox, Error> {
    check_new_name(&spec.name)?;
    spec.check()?;
    check_passable(home, spec)?;
    let mut sandbox = claim(home, spec)?;
    match sandbox.fill(spec, progress) {
        Ok(()) => {
            if spec.life == Life::ByHand {
                sandbox.lock = None;
            }
            Ok(sandbox)
        }
        Err(error) => {
            // The first error is the one to tell; what this leaves is found by the next start.
            let _ = sandbox.remove();
            Err(error)
        }
    }
}

impl Spec {
    /// Refuses what the build cannot be: libraries that are missing, an engine, a snapshot of another build, logging,
    /// environment and settings that it does not have. Starts no server; asks the program for its variables when some
    /// are to be set.
    pub fn check(&self) -> Result<(), Error> {
        builds::check_place(&self.build)?;
        let missing = builds::missing_libraries(&self.build)?;
        if !missing.is_empty() {
            return Err(Error::Libraries { build: self.build.name(), missing });
        }
        if let Some(engine) = &self.engine {
            engines::check(&self.build, engine)?;
        }
        if let Some(snapshot) = self.snapshot.as_ref().filter(|s| s.identity != self.build.identity) {
            return Err(Error::Unsupported {
                what: format!("a snapshot of {} under {}", snapshot.build, self.build),
                why: "a data directory belongs to the build that wrote it: load the data anew".to_owned(),
            });
        }
        self.logging.map_or(Ok(()), |logging| logging.check(self.build.flavor))?;
        check_env(&self.env)?;
        self.storage.as_ref().map_or(Ok(()), Storage::check)?;
        settings::known::check(&self.build, &self.settings)
    }

    /// Refuses settings with which no server comes up, as far as that is known without trying.
    ///
    /// # Errors
    /// Names the variable.
    pub fn check_start(&self) -> Result<(), Error> {
        settings::known::check_start(&self.build, &self.settings)
    }
}

/// Refuses an environment that a server cannot have. The loader passes over a library that is not there with a line in
/// the log, and the server would be measured without.
///
/// # Errors
/// Names the variable.
pub fn check_env(env: &BTreeMap<String, String>) -> Result<(), Error> {
    let refuse = |what: String, why: &str| Err(Error::Unsupported { what, why: why.to_owned() });
    if let Some(name) = env.keys().find(|name| name.is_empty() || name.contains(['=', '\0'])) {
        return refuse(format!("env \"{name}\""), "that is no name of a variable");
    }
    match preload::named(env).find(|library| !library.is_file()) {
        None => Ok(()),
        Some(library) => refuse(
            format!("env LD_PRELOAD={}", library.display()),
            "there is no such file (apt-get install libjemalloc2, for example)",
        ),
    }
}

/// Another uid must be able to reach builds and data.
fn check_passable(home: &Home, spec: &Spec) -> Result<(), Error> {
    if !record::is_root() {
        return Ok(());
    }
    let places = [home.path(), spec.build.files.server.as_path()];
    let storage = spec.storage.as_ref().map(|s| s.place()).transpose()?.flatten();
    for place in places.into_iter().chain(storage.as_deref()) {
        for dir in place.ancestors().skip(usize::from(place.is_file())) {
            let Ok(meta) = fs::metadata(dir) else { continue };
            let mode = meta.permissions().mode();
            if mode & 0o001 != 0 {
                continue;
            }
            // The home is ours to open; anything above it, or elsewhere, is not.
            let is_ours = dir == home.path();
            let opened =
                is_ours && fs::set_permissions(dir, fs::Permissions::from_mode(mode | 0o011)).is_ok();
            if !opened {
                return Err(Error::Unsupported {
                    what: format!("{} under an unprivileged uid", place.display()),
                    why: format!(
                        "{} is closed to other users (mode {:o}); set PLIMSOLL_HOME to a place that is not, such as \
                         /var/lib/plimsoll",
                        dir.display(),
                        mode & 0o7777
                    ),
                });
            }
        }
    }
    Ok(())
}

/// Takes the name: makes the sandbox's directory with its record under another name and renames it into place, which
/// only one of two plimsolls can.
fn claim(home: &Home, spec: &Spec) -> Result<Sandbox, Error> {
    let sandboxes = home.sandboxes();
    fs::create_dir_all(&sandboxes).map_err(|e| Error::io("create", &sandboxes, e))?;
    spread(&sandboxes);
    let dir = sandboxes.join(&spec.name);
    if dir.exists() {
        return Err(exists(home, &spec.name));
    }
    let serial = record::serial();
    let new = sandboxes.join(format!(".new-{}-{serial}", std::process::id()));
    make_dir(&new, 0o711, None)?;
    let claimed = || -> Result<Sandbox, Error> {
        let lock = Lock::take(&new, Duration::ZERO)?
            .ok_or_else(|| Error::Busy { what: format!("the sandbox {}", spec.name), holder: None })?;
        let record = plan(home, spec, &dir, &new)?;
        record.write(&new)?;
        rename_to_free_name(&new, &dir).map_err(|e| match e.raw_os_error() {
            Some(libc::EEXIST | libc::ENOTEMPTY) => exists(home, &spec.name),
            _ => Error::io("create", &dir, e),
        })?;
        Ok(Sandbox { record, dir: dir.clone(), child: None, lock: Some(lock), is_destroyed: false })
    };
    claimed().inspect_err(|_| {
        // The first error is the one to tell.
        let _ = fs::remove_dir_all(&new);
    })
}

/// Has ext4 put each directory below this one into a block group of its own (chattr(1), T). It gives a file no inode
/// that was deleted within the last minutes and walks past every such inode of the group: in the group where the last
/// sandboxes were destroyed a PostgreSQL's 1,300 files took 1.6 s, elsewhere 0.3 s. Other file systems refuse, and do
/// not need it.
fn spread(dir: &Path) {
    let Ok(dir) = fs::File::open(dir) else { return };
    if let Ok(flags) = rustix::fs::ioctl_getflags(&dir)
        && !flags.contains(IFlags::TOPDIR)
    {
        let _ = rustix::fs::ioctl_setflags(&dir, flags | IFlags::TOPDIR);
    }
}

fn exists(home: &Home, name: &str) -> Error {
    let state = Sandbox::open(home, name).and_then(|s| s.status()).map_or("being made", |s| s.state.name());
    Error::Exists { name: name.to_owned(), state: state.to_owned() }
}

/// rename(2) that never replaces.
fn rename_to_free_name(from: &Path, to: &Path) -> std::io::Result<()> {
    use std::os::unix::ffi::OsStrExt;
    let from = std::ffi::CString::new(from.as_os_str().as_bytes())?;
    let to = std::ffi::CString::new(to.as_os_str().as_bytes())?;
    // SAFETY: both are valid C strings.
    let rc = unsafe {
        libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), libc::RENAME_NOREPLACE)
    };
    if rc == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The record of what is about to be made.
fn plan(home: &Home, spec: &Spec, dir: &Path, new: &Path) -> Result<Record, Error> {
    let mut ids = record::free_ids(home, &spec.name)?;
    if spec.build.flavor == Flavor::Postgres && ids.is_some() && !postgres::can_show_passwd(new) {
        // initdb insists on a user with a name.
        ids = record::ids_of_user("postgres").or_else(|| record::ids_of_user("plimsoll"));
        if ids.is_none() {
            return Err(Error::Unsupported {
                what: format!("{} as root in this container", spec.build),
                why: "initdb needs a user with a name: useradd --system plimsoll".to_owned(),
            });
        }
    }
    let port = match spec.listen {
        Listen::SocketOnly => None,
        Listen::Port(port) => Some(port),
        Listen::FreePort => Some(free_port(home, &spec.name, Ipv4Addr::LOCALHOST.into())?),
        Listen::At(address) => Some(free_port(home, &spec.name, address)?),
    };
    let address = match spec.listen {
        Listen::At(address) => Some(address),
        Listen::SocketOnly | Listen::Port(_) | Listen::FreePort => None,
    };
    let mut outside = Vec::new();
    let place = spec.storage.as_ref().map(|s| s.place()).transpose()?.flatten();
    let datadir = match place {
        None => dir.join("data"),
        Some(place) => {
            let own = place.join(format!("plimsoll-{}-{}", spec.name, record::serial()));
            outside.push(own.clone());
            own.join("data")
        }
    };
    // The longest name a socket can have: `.s.PGSQL.65535`, and PostgreSQL's lock file beside it.
    let own_run_dir = dir.join("run");
    let run_dir = if own_run_dir.as_os_str().len() + "/.s.PGSQL.65535.lock".len() <= SOCKET_PATH_MAX {
        own_run_dir
    } else {
        let short = PathBuf::from(format!("/tmp/plimsoll-{}-{}", std::process::id(), record::serial()));
        outside.push(short.clone());
        short
    };
    Ok(Record {
        schema: Record::schema(),
        name: spec.name.clone(),
        build: spec.build.clone(),
        settings: spec.effective_settings(),
        profile: spec.profile,
        logging: spec.logging,
        isolation: spec.isolation,
        durability: spec.durability(),
        ids,
        of_run: spec.life == Life::Run,
        ready: false,
        port,
        address,
        password: if port.is_some() { random_password()? } else { String::new() },
        datadir,
        run_dir,
        cpus: spec.cpus.clone(),
        env: spec.env.clone(),
        tls: spec.tls,
        storage: spec.storage.as_ref().map(|s| s.name.clone()),
        limits: spec.storage.as_ref().map(|s| s.limits).unwrap_or_default(),
        outside,
        cgroups: Vec::new(),
        scheduler_before: None,
        home: Some(home.path().to_owned()),
        is_copy: false,
    })
}

/// Ports for sandboxes: below those that the kernel gives to outgoing connections (32768 and up), one of which could
/// take the port of a sandbox that is stopped for a while.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A port that no sandbox of this home has, running or not, and that nobody listens on.
fn free_port(home: &Home, name: &str, address: IpAddr) -> Result<u16, Error> {
    let taken: Vec<u16> = record::all(home).filter_map(|record| record.port).collect();
    let count = u32::from(PORTS.end - PORTS.start);
    // Each name begins elsewhere, so that two that are deployed at once do not meet.
    let begin = record::hash(home, name) % count;
    (0..count)
        .map(|i| PORTS.start + ((begin + i) % count) as u16)
        .find(|port| !taken.contains(port) && TcpListener::bind((address, *port)).is_ok())
        .ok_or_else(|| Error::Busy {
            what: "every port for sandboxes (20000 to 31999)".to_owned(),
            holder: None,
        })
}

/// Whether a port can be listened on, told before the server tries.
pub(super) fn check_port(record: &Record, port: u16) -> Result<(), Error> {
    let address = record.address();
    TcpListener::bind((address, port)).map(|_| ()).map_err(|e| Error::Start {
        build: record.build.name(),
        why: format!("port {port} on {address} cannot be used ({e}): choose another --port"),
        log: String::new(),
    })
}

/// An administrator of the MySQL family that comes from `host`, in the place of one that there may be.
fn administrator(host: &str, password: &str, is_modern: bool) -> Vec<String> {
    let mut statements = if is_modern {
        vec![format!("DROP USER IF EXISTS 'root'@'{host}'")]
    } else {
        vec![
            format!("DELETE FROM mysql.user WHERE User = 'root' AND Host = '{host}'"),
            "FLUSH PRIVILEGES".to_owned(),
        ]
    };
    statements.push(format!("CREATE USER 'root'@'{host}' IDENTIFIED BY '{password}'"));
    statements.push(format!("GRANT ALL PRIVILEGES ON *.* TO 'root'@'{host}' WITH GRANT OPTION"));
    statements
}

/// 128 random bits in hex.
pub(crate) fn random_password() -> Result<String, Error> {
    use std::io::Read;
    let mut bytes = [0u8; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|e| Error::io("read", "/dev/urandom", e))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// A directory that must not be there yet, with the mode given whatever the umask is.
pub(super) fn make_dir(path: &Path, mode: u32, ids: Option<Ids>) -> Result<(), Error> {
    fs::DirBuilder::new().mode(mode).create(path).map_err(|e| Error::io("create", path, e))?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| Error::io("open up", path, e))?;
    if let Some(Ids { uid, gid }) = ids {
        chown(path, Some(uid), Some(gid)).map_err(|e| Error::io("give away", path, e))?;
    }
    Ok(())
}

impl Sandbox {
    /// Directories, data, first start.
    fn fill(&mut self, spec: &Spec, progress: OnProgress<'_>) -> Result<(), Error> {
        if let Some(port) = self.record.port {
            check_port(&self.record, port)?;
        }
        for outside in &self.record.outside {
            if *outside == self.record.run_dir {
                make_dir(outside, 0o700, self.record.ids)?;
                continue;
            }
            make_dir(outside, 0o711, None).map_err(|error| Error::Unsupported {
                what: format!(
                    "{} cannot hold data directories",
                    outside.parent().unwrap_or(outside).display()
                ),
                why: format!("{error}: name another directory"),
            })?;
        }
        let mut own = vec![self.dir.join("tmp")];
        if spec.snapshot.is_none() {
            own.push(self.record.datadir.clone());
        }
        if self.record.tls {
            own.push(self.dir.join("tls"));
        }
        if !self.record.outside.contains(&self.record.run_dir) {
            own.push(self.record.run_dir.clone());
        }
        for path in own {
            make_dir(&path, 0o700, self.record.ids)?;
        }
        if self.record.tls {
            tls::make(&self.dir.join("tls"), self.record.ids)?;
        }
        if self.record.address.is_some() && self.record.build.flavor == Flavor::Postgres {
            postgres::write_rules(&self.record, &self.dir)?;
        }
        match &spec.snapshot {
            Some(snapshot) => {
                snapshot::restore(snapshot, &self.record.datadir, self.record.ids, progress)?;
                if let Some(source) = &spec.follows {
                    replication::adopt(&self.record, source)?;
                }
            }
            None => {
                progress(Progress::Step(format!("initialising {}", self.record.build)));
                server::init(&self.record, &self.dir)?;
            }
        }
        if let Some(wanted) = spec.storage.as_ref().and_then(|storage| storage.scheduler.as_deref()) {
            self.record.scheduler_before = scheduler::before(&self.record.datadir, wanted)?;
            self.record.write(&self.dir)?;
            self.record.scheduler_before.iter().try_for_each(|before| before.change(wanted))?;
        }
        self.limit()?;
        if self.record.limits.memory_bytes.is_some() {
            // Pages that were read or written until now are charged to us: the server would use them for nothing.
            storage::evict(&self.record.datadir)?;
        }
        progress(Progress::Step(format!("starting {}", self.record.build)));
        self.start()?;
        self.check_preloaded()?;
        if let Some(engine) = &spec.engine {
            engines::check_running(&self.record.build, &self.target(None), engine)?;
        }
        self.set_password()?;
        self.record.ready = true;
        self.record.write(&self.dir)?;
        Ok(())
    }

    /// A library of another architecture, or one that the server's uid may not read, is passed over like a missing one.
    fn check_preloaded(&self) -> Result<(), Error> {
        let maps = self.pid().map(|pid| fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default());
        let maps = maps.unwrap_or_default();
        for library in preload::named(&self.record.env) {
            let real = library.canonicalize().map_err(|e| Error::io("find", library, e))?;
            if !maps.contains(&*real.to_string_lossy()) {
                return Err(Error::Unsupported {
                    what: format!("env LD_PRELOAD={}", library.display()),
                    why: format!("{} runs without it: {}", self.record.build, self.log_tail(3).join("; ")),
                });
            }
        }
        Ok(())
    }

    /// Control groups, made after the data so that making them is not slowed, and written down before anything else
    /// can fail.
    fn limit(&mut self) -> Result<(), Error> {
        let limits = self.record.limits;
        if limits.is_none() {
            return Ok(());
        }
        let mut groups = Vec::new();
        let made = limits::make(&limits, &self.record.name, &self.record.datadir, &mut groups);
        self.record.cgroups = groups;
        self.record.write(&self.dir)?;
        made?;
        limits::prove(&limits, &self.record.cgroups, &self.record.datadir)
    }

    /// An administrator over TCP, with a password: any local user can reach a port.
    fn set_password(&self) -> Result<(), Error> {
        if self.record.port.is_none() {
            return Ok(());
        }
        let password = &self.record.password;
        let statements = match self.record.build.flavor {
            Flavor::Postgres => vec![format!("ALTER USER postgres PASSWORD '{password}'")],
            Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => {
                // A snapshot may hold the user of the sandbox that it was taken from.
                let modern = if self.record.build.flavor == Flavor::Mariadb {
                    Version(10, 1, 3, 0)
                } else {
                    Version(5, 7, 8, 0)
                };
                let is_modern = self.record.build.numbers() >= modern;
                let from = ["127.0.0.1", "%"];
                let from = if self.record.address.is_some() { &from[..] } else { &from[..1] };
                from.iter().flat_map(|host| administrator(host, password, is_modern)).collect()
            }
        };
        self.tell(&statements)
    }

    /// Runs statements as the administrator, in one session, and not into a log of statements: a password may be in them.
    pub(crate) fn tell(&self, statements: &[String]) -> Result<(), Error> {
        let quiet: &[&str] = match self.record.build.flavor {
            Flavor::Postgres => &[
                "SET log_statement = 'none'",
                "SET log_min_duration_statement = -1",
                "SET log_duration = off",
            ],
            Flavor::Mysql | Flavor::Mariadb | Flavor::Percona => {
                &["SET SESSION sql_log_off = 1", "SET SESSION long_query_time = 3600"]
            }
        };
        let fail = |source| Error::Wire { build: self.record.build.name(), source };
        let mut client = wire::blocking::Client::connect(&self.target(None)).map_err(fail)?;
        for statement in quiet.iter().copied().chain(statements.iter().map(String::as_str)) {
            client.query(statement).map_err(fail)?;
        }
        client.close();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ext4_is_told_to_spread_sandboxes_and_other_file_systems_may_refuse() {
        let dir = tempfile::tempdir().unwrap();
        spread(dir.path());
        spread(dir.path());
        let is_ext4 = rustix::fs::statfs(dir.path()).unwrap().f_type == 0xef53;
        let flags = rustix::fs::ioctl_getflags(fs::File::open(dir.path()).unwrap());
        // One that lies over ext4 may hand it through.
        assert!(!is_ext4 || flags.unwrap().contains(IFlags::TOPDIR));
        spread(Path::new("/nonexistent"));
    }
}
