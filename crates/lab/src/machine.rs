//! One plimsoll measures on a machine, one runs studies into a results directory.

use std::path::Path;
use std::time::{Duration, Instant};

use sandbox::Home;
use sandbox::lock::{FileLock, Holder, Readers, Tried, try_lock, try_lock_machine};

use crate::awake::Awake;
use crate::error::Error;
use crate::observe::{Event, Observer};
use crate::stop::StopSwitch;
use crate::study::MachineWishes;

/// How long others are waited for.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// This user's own, and root's, before this one refuses.
    own: Duration,
    /// Another user's, who could hold the lock for ever, before this one goes on beside it.
    foreign: Duration,
}

const PATIENCE: Patience = Patience { own: Duration::from_secs(3600), foreign: Duration::from_secs(600) };

/// The machine, while this process measures on it.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Before the lock, so that the next one to measure finds the machine as it was.
    _awake: Option<Awake>,
    _lock: Option<FileLock>,
    /// Why it may not be alone, for whoever reads the results.
    pub(crate) doubt: Option<String>,
}

/// Waits until no other plimsoll measures on this machine.
pub(crate) fn take_machine(observer: Observer<'_>, stop: &StopSwitch) -> Result<Machine, Error> {
    let machine = take(&try_lock_machine, PATIENCE, observer, stop)?;
    if let Some(doubt) = &machine.doubt {
        observer(Event::Warning(doubt));
    }
    Ok(machine)
}

/// Takes the machine, removes what crashed plimsolls left in `home`, and has cpus, governor and turbo as they are wished;
/// `None` leaves them as they are. What could not be had is told as a warning.
pub(crate) fn take_for_measuring(
    home: &Home,
    wishes: Option<&MachineWishes>,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Machine, Error> {
    let machine = take_machine(observer, stop)?;
    let cleaned = sandbox::leftovers(home)?;
    if !cleaned.is_empty() {
        observer(Event::Cleaned(&cleaned));
    }
    let awake = wishes.map(Awake::hold);
    awake.iter().flat_map(|awake| &awake.doubts).for_each(|doubt| observer(Event::Warning(doubt)));
    Ok(Machine { _awake: awake, ..machine })
}

/// The longest that a block waits for a machine that others use.
const QUIET_WAIT_MAX: Duration = Duration::from_secs(60);

/// How long a block waits at most: a block on a busy machine may have to be made again, so waiting longer than it takes
/// costs more than what it could save. `block_length` is what its runs measure and warm up, where that is known.
pub(crate) fn quiet_wait(block_length: Option<Duration>) -> Duration {
    block_length.map_or(QUIET_WAIT_MAX, |length| length.min(QUIET_WAIT_MAX))
}

/// Waits, before a block, while others take more of the cpus than a run could bear, and then goes on: what the neighbours
/// do then, the gates of each run judge.
pub(crate) fn wait_until_quiet(block: u32, patience: Duration, observer: Observer<'_>, stop: &StopSwitch) {
    let began = Instant::now();
    let shown = crate::study::units::show(patience);
    let mut told = false;
    while let Some(share) = telemetry::taken_by_others(Duration::from_millis(500)) {
        let is_quiet = share <= telemetry::gates::TAKEN_SHARE_MAX;
        if is_quiet || stop.is_requested() {
            return;
        }
        let percent = 100.0 * share;
        if began.elapsed() >= patience {
            observer(Event::Warning(&format!(
                "block {block} begins on a busy machine: others use {percent:.0} % of its cpus, after a wait of {shown}"
            )));
            return;
        }
        if !told {
            observer(Event::Doing(&format!(
                "waiting for a quiet machine, at most {shown}: others use {percent:.0} % of its cpus"
            )));
            told = true;
        }
    }
}

/// Whether a holder is obeyed to the end: any user can take the lock, and could keep it.
fn is_foreign(holder: Option<&Holder>) -> bool {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let me = unsafe { libc::geteuid() };
    holder.is_none_or(|holder| holder.uid != me && holder.uid != 0)
}

fn take(
    ask: &dyn Fn() -> Result<Tried, sandbox::Error>,
    patience: Patience,
    observer: Observer<'_>,
    stop: &StopSwitch,
) -> Result<Machine, Error> {
    let begin = Instant::now();
    let mut told: Option<Option<u32>> = None;
    // One and the same other user's process, since it was first seen: between two of our own there is a moment in which
    // nobody can be seen.
    let mut foreign_since: Option<(Option<u32>, Instant)> = None;
    loop {
        let holder = match ask() {
            Ok(Tried::Taken(lock)) => return Ok(Machine { _awake: None, _lock: Some(lock), doubt: None }),
            Ok(Tried::Held(holder)) => holder,
            Err(error) => {
                let doubt =
                    format!("whether another plimsoll measures on this machine is not known: {error}");
                return Ok(Machine { _awake: None, _lock: None, doubt: Some(doubt) });
            }
        };
        let foreign = is_foreign(holder.as_ref());
        let pid = holder.as_ref().map(|holder| holder.pid);
        foreign_since = match foreign_since {
            _ if !foreign => None,
            Some(known) if known.0 == pid => Some(known),
            _ => Some((pid, Instant::now())),
        };
        if let Some(waited) =
            foreign_since.map(|(_, since)| since.elapsed()).filter(|w| *w >= patience.foreign)
        {
            let who = holder.map_or("a process that cannot be seen from here".to_owned(), |h| h.to_string());
            let doubt = format!(
                "another user's process still holds this machine's measuring lock after {} s ({who}); this one \
                 measured beside it: compare no figure with it before that process has ended",
                waited.as_secs()
            );
            return Ok(Machine { _awake: None, _lock: None, doubt: Some(doubt) });
        }
        if begin.elapsed() >= patience.own {
            return Err(sandbox::Error::Busy { what: "this machine".to_owned(), holder }.into());
        }
        if told != Some(pid) {
            let goes_on_after = foreign.then_some(patience.foreign);
            observer(Event::Waiting { holder: holder.as_ref(), goes_on_after });
            told = Some(pid);
        }
        if stop.is_requested() {
            return Err(Error::Interrupted);
        }
        std::thread::sleep(Duration::from_millis(200).min(patience.foreign));
    }
}

/// A results directory, while this process runs a study into it: who holds it knows that runs which stand
/// as begun were left by a plimsoll that is gone. The directory exists.
pub(crate) fn take_results(directory: &Path) -> Result<FileLock, Error> {
    match try_lock(&directory.join("results.lock"), Readers::Owner)? {
        Tried::Taken(lock) => Ok(lock),
        Tried::Held(holder) => {
            let who = holder.map_or("one that cannot be seen from here".to_owned(), |h| h.to_string());
            Err(Error::Run(format!(
                "another plimsoll ({who}) runs into {}: wait until it ends, or choose another --results",
                directory.display()
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn a_block_is_not_waited_for_longer_than_it_takes() {
        let seconds = Duration::from_secs;
        assert_eq!(quiet_wait(Some(seconds(4))), seconds(4));
        assert_eq!(quiet_wait(Some(seconds(600))), seconds(60));
        assert_eq!(quiet_wait(None), seconds(60));
    }

    const SHORT: Patience = Patience { own: Duration::from_millis(50), foreign: Duration::from_millis(20) };

    fn held_by(uid: Option<u32>) -> Tried {
        let of = |uid| Holder { pid: 7, uid, user: None, command: "plimsoll run".into(), age: None };
        Tried::Held(uid.map(of))
    }

    /// What comes of a lock that somebody never gives back, and what was told.
    fn wait_for(uid: Option<u32>) -> (Result<Machine, Error>, Vec<String>) {
        let told = Mutex::new(Vec::new());
        let observer = |event: Event<'_>| told.lock().unwrap().push(format!("{event:?}"));
        let taken = take(&|| Ok(held_by(uid)), SHORT, &observer, &StopSwitch::default());
        (taken, told.into_inner().unwrap())
    }

    #[test]
    fn our_own_and_roots_are_waited_for_and_then_we_refuse() {
        // SAFETY: geteuid has no preconditions and cannot fail.
        for uid in [unsafe { libc::geteuid() }, 0] {
            let (taken, told) = wait_for(Some(uid));
            let error = taken.unwrap_err().to_string();
            assert!(error.contains("in use by another plimsoll (pid 7, `plimsoll run`"), "{error}");
            assert_eq!(told.len(), 1, "{told:?}");
        }
    }

    #[test]
    fn a_foreign_lock_is_told_and_not_obeyed_without_end() {
        for uid in [Some(4242), None] {
            let (taken, told) = wait_for(uid);
            let doubt = taken.unwrap().doubt.unwrap();
            assert!(doubt.contains("another user's process still holds"), "{doubt}");
            assert!(told.len() == 1 && told[0].contains("goes_on_after: Some"), "{told:?}");
        }
    }

    #[test]
    fn the_user_can_give_up_while_waiting() {
        let stop = StopSwitch::default();
        stop.press();
        let patience = Patience { own: Duration::from_secs(3600), foreign: Duration::from_secs(3600) };
        let taken = take(&|| Ok(held_by(Some(0))), patience, &|_| (), &stop);
        assert!(matches!(taken, Err(Error::Interrupted)));
    }

    #[test]
    fn a_lock_that_cannot_be_had_is_a_doubt_and_no_end() {
        let ask =
            || Err(sandbox::Error::io("take the lock", "/x", std::io::ErrorKind::PermissionDenied.into()));
        let machine = take(&ask, SHORT, &|_| (), &StopSwitch::default()).unwrap();
        assert!(machine.doubt.unwrap().contains("is not known: could not take the lock /x"));
    }

    #[test]
    fn a_results_directory_is_one_plimsolls() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take_results(dir.path()).unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(
            &std::fs::metadata(dir.path().join("results.lock")).unwrap(),
        );
        assert_eq!(mode & 0o077, 0, "another user could keep it: {mode:o}");
        let error = take_results(dir.path()).unwrap_err().to_string();
        assert!(error.contains(&format!("(pid {},", std::process::id())), "{error}");
        assert!(error.contains("choose another --results"), "{error}");
        drop(lock);
        take_results(dir.path()).unwrap();
    }
}
