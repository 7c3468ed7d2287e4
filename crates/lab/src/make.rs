//! Makes the runs of `run` and `bench`: told when they begin and end, and kept where there is a study that they are of.

use store::{RunStart, Store, StudyId};

use crate::error::Error;
use crate::observe::{Event, RunLabel};
use crate::progress::Detail;
use crate::provision::Place;
use crate::run::{Around, Ended, Order, run};

/// A run that is to be made.
pub(crate) struct Making<'a> {
    pub(crate) start: RunStart,
    /// For people.
    pub(crate) label: RunLabel,
    pub(crate) order: Order<'a>,
    pub(crate) place: Place<'a>,
}

/// Makes a run, and records it in `study` while and when it goes on.
///
/// # Errors
/// It could not be recorded. A run that fails is no error: it is what is answered.
pub(crate) fn make(
    making: Making<'_>,
    study: Option<(&mut Store, StudyId)>,
    around: Around<'_>,
) -> Result<Ended, Error> {
    let Making { start, label, order, place } = making;
    (around.observer)(Event::RunStarted(&label));
    let ended = match study {
        None => run(&order, place, around, Detail::Dropped),
        Some((store, study)) => {
            let id = store.begin_run(study, &start)?;
            let ended = run(&order, place, around, Detail::Recorded(store, id));
            store.finish_run(id, &ended.end)?;
            ended
        }
    };
    (around.observer)(Event::RunEnded { label: &label, summary: &ended.summary });
    Ok(ended)
}
