//! Slow-downs of known size, planted into the answers of real servers: by `LD_PRELOAD`, or as a build of its own.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::compiled::compiled;
use crate::elf::with_library;

/// What each answer of a server to a client costs more; a server answers each statement, and BEGIN and COMMIT, once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slow {
    /// Microseconds of cpu.
    pub cpu_us: u32,
    /// Microseconds asleep; the kernel's wake-up comes on top.
    pub sleep_us: u32,
    /// Microseconds of cpu under a lock that all sessions share.
    pub lock_us: u32,
    /// A write with fsync at each so-many-th answer of a session, to a file of its own in the data directory; 0 is never.
    pub fsync_every: u32,
}

impl Slow {
    /// The environment of a server that preloads `library`: for `env` of a study or of a sandbox.
    pub fn env(&self, library: &Path) -> [(String, String); 5] {
        let pair = |name: &str, value: u32| (format!("PLIMSOLL_SLOW_{name}"), value.to_string());
        [
            ("LD_PRELOAD".to_owned(), library.display().to_string()),
            pair("CPU_US", self.cpu_us),
            pair("SLEEP_US", self.sleep_us),
            pair("LOCK_US", self.lock_us),
            pair("FSYNC_EVERY", self.fsync_every),
        ]
    }
}

/// Compiles the library into `folder`, with `slow` as what it does where the environment says nothing else.
///
/// # Errors
/// There is no `cc`, or it refuses.
pub fn library(folder: &Path, slow: &Slow) -> io::Result<PathBuf> {
    let settings = [
        format!("-DCPU_US={}", slow.cpu_us),
        format!("-DSLEEP_US={}", slow.sleep_us),
        format!("-DLOCK_US={}", slow.lock_us),
        format!("-DFSYNC_EVERY={}", slow.fsync_every),
    ];
    let flags = ["-shared", "-fPIC", "-pthread"].map(str::to_owned);
    compiled(folder, "slow.so", include_str!("slow.c"), &[&flags[..], &settings].concat())
}

/// Makes `into`, which must not be there, a directory of a server that is slow by itself: what `plimsoll fetch --archive
/// INTO --as flavor@version+LABEL` takes. It holds a copy of `server` that needs the library, without debug information, and links to
/// all else below `base`. Nothing tells it from a commit that made the server slower: no environment, another binary, another identity.
///
/// # Errors
/// `server` does not lie below `base` or is no x86-64 program with shared libraries, `into` cannot be made, or there is no
/// `cc`.
pub fn build(base: &Path, server: &Path, into: &Path, slow: &Slow) -> io::Result<()> {
    let base = base.canonicalize()?;
    let server = server.canonicalize()?;
    let below = server
        .strip_prefix(&base)
        .map_err(|_| io::Error::other(format!("{} is not below {}", server.display(), base.display())))?;
    make_passable(into)?;
    let library = library(into, slow)?;
    let (mut from, mut to) = (base.clone(), into.to_owned());
    let mut names = below.iter().peekable();
    while let Some(name) = names.next() {
        for entry in fs::read_dir(&from)? {
            let entry = entry?;
            if entry.file_name() != name {
                symlink(entry.path(), to.join(entry.file_name()))?;
            }
        }
        from.push(name);
        to.push(name);
        if names.peek().is_some() {
            make_passable(&to)?;
        }
    }
    // Dozens of copies with the debug information of a server would fill a disk.
    let said = Command::new("strip").arg("--strip-debug").arg("-o").args([&to, &server]).output()?;
    if !said.status.success() {
        return Err(io::Error::other(format!("strip: {}", String::from_utf8_lossy(&said.stderr))));
    }
    let program = with_library(&fs::read(&to)?, &library)
        .ok_or_else(|| io::Error::other(format!("{} is no program that can be changed", server.display())))?;
    fs::write(&to, program)?;
    fs::set_permissions(&to, fs::Permissions::from_mode(0o755))
}

/// A directory that the unprivileged uids of servers may enter, whatever the umask is.
fn make_passable(dir: &Path) -> io::Result<()> {
    fs::create_dir(dir)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755))
}
