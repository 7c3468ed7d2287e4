//! Changes that come at a moment of a run, once.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use wire::Target;

use crate::error::Error;
use crate::intervene::server::{Server, shown};
use crate::intervene::unsaid;
use crate::study::{Change, Timed};

/// A change of a server that comes at a moment of its run.
#[derive(Debug, Clone)]
pub(crate) struct Moment {
    name: String,
    /// From the start of the measured phase.
    at: Duration,
    change: Change,
}

impl Moment {
    /// Of a study's change, on a server of that flavour.
    ///
    /// # Errors
    /// It says nothing of that flavour.
    pub(crate) fn of(timed: &Timed, flavor: sandbox::Flavor) -> Result<Moment, Error> {
        let change = timed.change.of(flavor).cloned().ok_or_else(|| unsaid(&timed.name, flavor))?;
        Ok(Moment { name: timed.name.clone(), at: timed.at, change })
    }
}

/// Changes of a run, on their way.
pub(crate) struct Coming {
    changes: Vec<Moment>,
    /// Zero of all times in the record.
    began: Instant,
    /// Before the load begins.
    server: Option<Server>,
    /// Meanwhile; whoever drops the sender ends its waiting.
    at_work: Option<(Sender<()>, JoinHandle<Worked>)>,
}

/// What has come of them.
struct Worked {
    server: Server,
    came: Vec<store::Intervention>,
    ended: Result<(), Error>,
}

impl Coming {
    /// Looks whether the server has what they change.
    pub(crate) fn open(changes: &[Moment], target: &Target, began: Instant) -> Result<Coming, Error> {
        let mut changes = changes.to_vec();
        changes.sort_by_key(|change| change.at);
        let all: Vec<&Change> = changes.iter().map(|change| &change.change).collect();
        let server = Server::open(target, &all)?;
        Ok(Coming { changes, began, server: Some(server), at_work: None })
    }

    /// The level begins, its measured phase after so long a warm-up.
    pub(crate) fn begin(&mut self, warmup: Duration) {
        let Some(server) = self.server.take() else { return };
        let (changes, began, start) = (self.changes.clone(), self.began, Instant::now() + warmup);
        let (stop, stopped) = channel();
        let work = std::thread::spawn(move || work(server, &changes, (began, start), &stopped));
        self.at_work = Some((stop, work));
    }

    /// The load is over: the server's variables get back what they were. What came, whether all went well, and what could
    /// not be taken back, for people.
    pub(crate) fn end(&mut self, is_own: bool) -> (Vec<store::Intervention>, Result<(), Error>, Vec<String>) {
        let Some((stop, work)) = self.at_work.take() else { return (Vec::new(), Ok(()), Vec::new()) };
        drop(stop);
        let Ok(Worked { mut server, came, ended }) = work.join() else {
            return (
                Vec::new(),
                Err(Error::Run("the [[intervene]] of this run panicked".into())),
                Vec::new(),
            );
        };
        let mut told = Vec::new();
        let begun = came.len() + usize::from(ended.is_err());
        for change in self.changes.iter().take(begun).rev() {
            if let Err(error) = server.give_back(&change.change) {
                let back = server.statements_back(&change.change).join("; ");
                told.push(format!(
                    "`{}` could not be taken back: {error}; do it by hand: {back}",
                    change.name
                ));
            } else if !is_own && server.statements_back(&change.change).is_empty() {
                told.push(format!(
                    "`{}` stays as it is: it sets no variable that could get its value back",
                    change.name
                ));
            }
        }
        (came, ended, told)
    }
}

impl Drop for Coming {
    /// Also where the run ended in a panic.
    fn drop(&mut self) {
        let _ = self.end(true);
    }
}

fn work(
    mut server: Server,
    changes: &[Moment],
    (began, start): (Instant, Instant),
    stopped: &Receiver<()>,
) -> Worked {
    let mut came = Vec::new();
    for change in changes {
        let left = (start + change.at).saturating_duration_since(Instant::now());
        if stopped.recv_timeout(left) != Err(RecvTimeoutError::Timeout) {
            return Worked { server, came, ended: Ok(()) };
        }
        let at = Instant::now();
        let done = server.switch_on(&change.change).and_then(|()| server.read());
        let readings = match done {
            Ok(readings) => readings.0,
            Err(error) => return Worked { server, came, ended: Err(error) },
        };
        came.push(store::Intervention {
            name: change.name.clone(),
            on: shown(&server.statements_on(&change.change)),
            off: Vec::new(),
            readings,
            at_s: Some((at - began).as_secs_f64()),
            took_s: Some(at.elapsed().as_secs_f64()),
        });
    }
    Worked { server, came, ended: Ok(()) }
}
