//! Looking at what somebody submitted, in a process of its own: the same program as a child without rights, without
//! network, with little memory and time. It reads the bundle from its standard input and says what it found.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use report::bundle::{Listing, Opened, listing, verify};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
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
            Ok(Verified { figures: proof.figures, listing: listable(&listing)?, report })
        });
    match found {
        Ok(verified) => Found::Verified(Box::new(verified)),
        Err(why) => Found::Refused(why),
    }
}

/// What a hub keeps of a bundle at most, beside its files: each page about it reads that.
const LISTED_BYTES_MAX: usize = 2 << 20;
/// Points of histories, and marks of runs: tables have them.
const ROWS_BYTES_MAX: usize = 16 << 20;
/// Names that an index of PostgreSQL has to take.
const NAME_MAX: usize = 300;

/// The listing with texts that any page, feed and database can have; or why a hub cannot list so much.
fn listable(found: &Listing) -> Result<Listing, String> {
    let words = |error: serde_json::Error| error.to_string();
    let mut value = serde_json::to_value(found).map_err(words)?;
    clean(&mut value);
    let listing: Listing = serde_json::from_value(value).map_err(words)?;
    let whole = serde_json::to_vec(&listing).map_err(words)?.len();
    let rows = serde_json::to_vec(&(&listing.points, &listing.marks)).map_err(words)?.len();
    if rows > ROWS_BYTES_MAX || whole.saturating_sub(rows) > LISTED_BYTES_MAX {
        return Err(format!(
            "a hub cannot list so much: {} KiB of cells, claims and words ({} KiB are taken), {} KiB of points and runs ({} \
             KiB). Split the study",
            whole.saturating_sub(rows) >> 10,
            LISTED_BYTES_MAX >> 10,
            rows >> 10,
            ROWS_BYTES_MAX >> 10
        ));
    }
    let servers = listing.cells.iter().map(|cell| ("server", &cell.server));
    let hosts = listing.hosts.iter().map(|host| ("machine's fingerprint", &host.fingerprint));
    let metrics = listing.points.iter().map(|point| ("metric", &point.metric));
    let claims = listing.claims.iter().map(|claim| ("claim's machine", &claim.host));
    let all = servers.chain(hosts).chain(metrics).chain(claims).chain([("study", &listing.study)]);
    let too_long: Option<&str> =
        all.filter(|(_, name)| name.chars().count() > NAME_MAX).map(|(what, _)| what).next();
    match too_long {
        Some(what) => Err(format!("the name of a {what} has more than {NAME_MAX} letters")),
        None => Ok(listing),
    }
}

/// Replaces what no text has: control characters, which XML and PostgreSQL refuse, and those that turn the direction of a
/// line, by which a name may look like another.
fn clean(value: &mut Value) {
    let is_foul = |c: char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            || matches!(c, '\u{fffe}' | '\u{ffff}')
    };
    let cleaned = |text: &str| text.replace(is_foul, "\u{fffd}");
    match value {
        Value::String(text) if text.contains(is_foul) => *text = cleaned(text),
        Value::Array(all) => all.iter_mut().for_each(clean),
        Value::Object(all) => {
            all.values_mut().for_each(clean);
            if all.keys().any(|key| key.contains(is_foul)) {
                *all = std::mem::take(all).into_iter().map(|(key, value)| (cleaned(&key), value)).collect();
            }
        }
        _ => {}
    }
}

/// What reading a bundle asks of the system once the child has begun: memory, its pipes, time, chance, and its own end.
const NEEDED: [libc::c_long; 25] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_futex,
    libc::SYS_getrandom,
    libc::SYS_clock_gettime,
    libc::SYS_gettimeofday,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_restart_syscall,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Whoever takes the child over by a bundle has the rights of the hub's user where that is not root: every other call of the
/// system fails from here on.
fn only_what_is_needed() -> std::io::Result<()> {
    let fail = |error: seccompiler::BackendError| std::io::Error::other(error.to_string());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = NEEDED.iter().map(|call| (*call, vec![])).collect();
    // Not to the hub and everything else of this user: to itself.
    let itself =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, std::process::id().into());
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![itself.map_err(fail)?]).map_err(fail)?]);
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(fail)?;
    let other = SeccompAction::Errno(libc::EPERM as u32);
    let filter = SeccompFilter::new(rules, other, SeccompAction::Allow, arch).map_err(fail)?;
    let program = BpfProgram::try_from(filter).map_err(fail)?;
    seccompiler::apply_filter(&program).map_err(|error| std::io::Error::other(error.to_string()))
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
    limit(libc::RLIMIT_NOFILE, 0)?;
    limit(libc::RLIMIT_NPROC, 0)?;
    only_what_is_needed()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn texts_that_no_page_and_no_database_can_have_are_replaced() {
        let mut value =
            serde_json::json!({"a\u{0}": ["x\u{1}y\nz", {"k": "a\u{202e}b"}], "b": 1, "c": "ümlaut"});
        clean(&mut value);
        let expected =
            serde_json::json!({"a\u{fffd}": ["x\u{fffd}y\nz", {"k": "a\u{fffd}b"}], "b": 1, "c": "ümlaut"});
        assert_eq!(value, expected);
    }

    /// What a process that gave up its rights may still do, in a line each.
    #[test]
    #[ignore = "gives up the rights of its process: run by the test below"]
    fn tries_what_a_child_may_not() {
        let own = std::env::current_exe().unwrap();
        let folder = PathBuf::from(std::env::var("PLIMSOLL_TEST_FOLDER").unwrap());
        give_up_rights(4 << 30, 60).unwrap();
        let tried = |what: &str, is_refused: bool| {
            println!("{what}: {}", if is_refused { "refused" } else { "DONE" })
        };
        tried("open", std::fs::File::open(own).is_err());
        tried("create", std::fs::write(folder.join("new"), b"x").is_err());
        tried("remove", std::fs::remove_file(folder.join("there")).is_err());
        tried("rename", std::fs::rename(folder.join("there"), folder.join("away")).is_err());
        tried("socket", std::net::TcpListener::bind("127.0.0.1:0").is_err());
        tried("process", Command::new("/bin/true").spawn().is_err());
        // SAFETY: asks whether a signal could be sent, and sends none.
        tried("signal", unsafe { libc::kill(libc::getppid(), 0) } != 0);
        tried("thread", std::thread::Builder::new().spawn(|| ()).is_err());
    }

    #[test]
    fn a_child_has_no_rights_beyond_its_pipes() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        std::fs::write(folder.path().join("there"), b"x").unwrap();
        let said = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "check::tests::tries_what_a_child_may_not", "--nocapture"])
            .env("PLIMSOLL_TEST_FOLDER", folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&said.stdout).into_owned();
        for what in ["open", "create", "remove", "rename", "socket", "process", "signal", "thread"] {
            assert!(text.contains(&format!("{what}: refused")), "{what}: {text}");
        }
        assert!(folder.path().join("there").exists() && !folder.path().join("new").exists());
    }

    #[test]
    fn a_look_that_takes_too_long_is_ended() {
        let bounds = Bounds { unpacked_bytes_max: 1 << 20, patience: Duration::from_millis(200) };
        let began = Instant::now();
        // A program that neither reads nor says anything.
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("idle");
        std::fs::write(&program, "#!/bin/sh\nexec sleep 60\n").unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let refused = check(&program, &vec![0; 1 << 20], &bounds).unwrap_err();
        assert!(refused.to_string().contains("could not be looked at"), "{refused}");
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
