//! Looking at what somebody submitted, in a process of its own: the same program as a child without rights, without
//! network, with little memory and time. It reads the bundle from its standard input and says what it found.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use report::bundle::{Listing, Opened, listing, verify};
use serde::{Deserialize, Serialize};
use store::bundle::Limits;

use crate::error::Error;

/// What the child says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Found {
    /// Why it is not taken.
    Refused(String),
    Verified(Box<Verified>),
}

/// A bundle that verifies.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Verified {
    pub(crate) figures: usize,
    pub(crate) listing: Listing,
    /// Its report as a page.
    pub(crate) report: String,
}

/// What a look at a bundle may cost.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) unpacked_bytes_max: u64,
    pub(crate) patience: Duration,
}

/// Memory of the child beyond what is unpacked: the report with its charts, and this program.
const MEMORY_BYTES: u64 = 1 << 30;
/// What the child says at most.
const SAID_BYTES_MAX: u64 = 256 << 20;
/// The uid under which root's child looks: next to that under which programs of builds are asked.
const CHECKING_UID: u32 = 64_991;

/// Looks at a bundle by a child of `program`, which calls [`check_in_child`].
pub(crate) fn check(program: &Path, bytes: &[u8], bounds: &Bounds) -> Result<Found, Error> {
    let inside = |what: &str, error: &dyn std::fmt::Display| Error::Inside(format!("{what}: {error}"));
    let mut child = Command::new(program)
        .args(["hub", "check", "--unpacked-max", &bounds.unpacked_bytes_max.to_string()])
        .args(["--seconds-max", &bounds.patience.as_secs().max(1).to_string()])
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| inside("the bundle cannot be looked at", &error))?;
    let (to, from) = (child.stdin.take(), child.stdout.take());
    let (Some(mut to), Some(from)) = (to, from) else {
        return Err(Error::Inside("a child without pipes".to_owned()));
    };
    let listener = std::thread::spawn(move || {
        let mut said = Vec::new();
        from.take(SAID_BYTES_MAX).read_to_end(&mut said).map(|_| said)
    });
    std::thread::scope(|scope| {
        // A child that ends early closes the pipe: what it said tells why.
        scope.spawn(move || drop(to.write_all(bytes)));
        let deadline = Instant::now() + bounds.patience;
        while !listener.is_finished() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        // It is over, or it has had its time.
        drop(child.kill());
        drop(child.wait());
    });
    let refused = || {
        Error::Refused(format!(
            "the bundle could not be looked at within {} s and the memory that there is for it",
            bounds.patience.as_secs()
        ))
    };
    let said = listener.join().map_err(|_| refused())?.map_err(|_| refused())?;
    serde_json::from_slice(&said).map_err(|_| refused())
}

/// The child's part: gives up its rights, reads a bundle from standard input and writes what it found to standard output.
///
/// # Errors
/// The system does not let it give up its rights, or a pipe is broken.
pub fn check_in_child(unpacked_bytes_max: u64, seconds_max: u64) -> Result<(), Error> {
    give_up_rights(unpacked_bytes_max.saturating_mul(3) + MEMORY_BYTES, seconds_max)
        .map_err(|source| Error::File { what: "giving up rights".to_owned(), source })?;
    let pipe = |source| Error::File { what: "a pipe of the hub".to_owned(), source };
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(pipe)?;
    let limits = Limits { packed_bytes_max: bytes.len() as u64, unpacked_bytes_max };
    let found = looked_at(&bytes, &limits);
    let mut out = std::io::stdout().lock();
    out.write_all(&serde_json::to_vec(&found)?).and_then(|()| out.flush()).map_err(pipe)
}

fn looked_at(bytes: &[u8], limits: &Limits) -> Found {
    let proof = verify(bytes, limits);
    if let Some(why) = proof.refused {
        return Found::Refused(format!("it does not verify: {why}"));
    }
    if let Some(first) = proof.different.first() {
        return Found::Refused(format!(
            "it does not verify: {} figures are not those of what was measured; {}: {} is stored, {} comes out",
            proof.different.len(),
            first.where_,
            first.stored,
            first.recomputed
        ));
    }
    let found = Opened::new(bytes, Path::new("results.db"), limits)
        .map_err(|error| error.to_string())
        .and_then(|opened| listing(&opened).map_err(|error| error.to_string()))
        .and_then(|(listing, report)| {
            let report = report::html(&report).map_err(|error| error.to_string())?;
            Ok(Verified { figures: proof.figures, listing, report })
        });
    match found {
        Ok(verified) => Found::Verified(Box::new(verified)),
        Err(why) => Found::Refused(why),
    }
}

fn give_up_rights(memory_bytes: u64, seconds_max: u64) -> std::io::Result<()> {
    let check = |rc: libc::c_int| if rc < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
    let limit = |what, most: u64| {
        let both = libc::rlimit { rlim_cur: most, rlim_max: most };
        // SAFETY: the structure lives for the call.
        check(unsafe { libc::setrlimit(what, &raw const both) })
    };
    limit(libc::RLIMIT_AS, memory_bytes)?;
    limit(libc::RLIMIT_CPU, seconds_max)?;
    limit(libc::RLIMIT_CORE, 0)?;
    limit(libc::RLIMIT_FSIZE, 0)?;
    // SAFETY: none takes memory that is not static.
    unsafe {
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0))?;
        if libc::geteuid() == 0 {
            // A network of its own has no other side. Where the system does not let us, there is still no right to anything.
            libc::unshare(libc::CLONE_NEWNET);
            check(libc::setgroups(0, std::ptr::null()))?;
            check(libc::setresgid(CHECKING_UID, CHECKING_UID, CHECKING_UID))?;
            check(libc::setresuid(CHECKING_UID, CHECKING_UID, CHECKING_UID))?;
        }
        check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
    }
    // No more files, no processes: what is open is all there will be. Threads count as processes; none is needed.
    limit(libc::RLIMIT_NOFILE, 8)?;
    limit(libc::RLIMIT_NPROC, 0)
}
