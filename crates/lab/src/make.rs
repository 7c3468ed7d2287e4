//! Makes the runs of `run` and `bench`: told when they begin and end, and kept where there is a study that they are of.

use std::collections::BTreeMap;
use std::panic::resume_unwind;

use store::{RunStart, Store, StudyId};

use crate::described::summary;
use crate::duel;
use crate::duel::turns::{Seat, Turns};
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
            finish_line(store, &ended)?;
            ended
        }
    };
    (around.observer)(Event::RunEnded { label: &label, summary: &ended.summary });
    Ok(ended)
}

/// Makes runs that are the sides of a duel: their servers are alive at the same time, and the load goes to them in turns.
/// They are recorded together when all have ended, so that whoever kills this process loses the whole duel and never a
/// side of it.
///
/// # Errors
/// They could not be recorded.
pub(crate) fn make_together(
    mut makings: Vec<Making<'_>>,
    slices: u32,
    mut study: Option<(&mut Store, StudyId)>,
    seed: u64,
    around: Around<'_>,
) -> Result<Vec<Ended>, Error> {
    tell_against(&mut makings);
    for making in &mut makings {
        let load = &mut making.order.load;
        if making.order.line.is_none() {
            load.steps = duel::slices(load.steps[0], slices);
            load.enough = load::Stop::new();
        }
    }
    // A search ends by itself, long before so many turns.
    let is_search = makings.iter().any(|making| making.order.line.is_some());
    let turns = Turns::new(makings.len(), if is_search { SEARCH_TURNS_MAX } else { slices }, seed);
    let mut ids = Vec::new();
    for making in &makings {
        (around.observer)(Event::RunStarted(&making.label));
        if let Some((store, study)) = &mut study {
            ids.push(store.begin_run(*study, &making.start)?);
        }
    }
    let detail = || if study.is_some() { Detail::Held } else { Detail::Dropped };
    let (labels, ended): (Vec<RunLabel>, Vec<Ended>) = std::thread::scope(|scope| {
        let turns = &turns;
        let sides: Vec<_> = makings
            .into_iter()
            .enumerate()
            .map(|(side, making)| {
                let detail = detail();
                let seat = turns.seat(side);
                (making.label.clone(), scope.spawn(move || one_side(making, &seat, detail, around)))
            })
            .collect();
        sides
            .into_iter()
            .map(|(label, side)| (label, side.join().unwrap_or_else(|panic| resume_unwind(panic))))
            .unzip()
    });
    if let Some((store, _)) = &mut study {
        let ends = ended.iter().map(|ended| &ended.end);
        store.finish_runs(&ids.into_iter().zip(ends).collect::<Vec<_>>())?;
        ended.iter().try_for_each(|ended| finish_line(store, ended))?;
    }
    for (label, ended) in labels.iter().zip(&ended) {
        (around.observer)(Event::RunEnded { label, summary: &ended.summary });
    }
    Ok(ended)
}

/// Makes the runs of one life of a server, which is switched between their states.
/// They are recorded together when the life is over: none of them is there without the others.
///
/// # Errors
/// They could not be recorded.
pub(crate) fn make_life(
    mut makings: Vec<Making<'_>>,
    mut study: Option<(&mut Store, StudyId)>,
    around: Around<'_>,
) -> Result<Vec<Ended>, Error> {
    tell_against(&mut makings);
    let mut ids = Vec::new();
    for making in &makings {
        (around.observer)(Event::RunStarted(&making.label));
        if let Some((store, study)) = &mut study {
            ids.push(store.begin_run(*study, &making.start)?);
        }
    }
    let labels: Vec<RunLabel> = makings.iter().map(|making| making.label.clone()).collect();
    let detail = if study.is_some() { Detail::Held } else { Detail::Dropped };
    let Making { order, place, .. } = makings.swap_remove(0);
    let Ended { end, others, summary: own, failure, result, found } = run(&order, place, around, detail);
    let took = own.took;
    let mut all = vec![Ended { end, others: Vec::new(), summary: own, failure, result, found }];
    all.extend(others.into_iter().map(|end| {
        let summary = summary(&end, None, took);
        Ended { end, others: Vec::new(), summary, failure, result: None, found: None }
    }));
    if let Some((store, _)) = &mut study {
        let ends = all.iter().map(|ended| &ended.end);
        store.finish_runs(&ids.into_iter().zip(ends).collect::<Vec<_>>())?;
    }
    for (label, ended) in labels.iter().zip(&all) {
        (around.observer)(Event::RunEnded { label, summary: &ended.summary });
    }
    Ok(all)
}

/// Each label says what the others have in place of its own value.
fn tell_against(makings: &mut [Making<'_>]) {
    let keys: Vec<_> = makings.iter().map(|making| making.label.key.clone()).collect();
    for (side, making) in makings.iter_mut().enumerate() {
        let others = keys.iter().enumerate().filter(|(at, _)| *at != side);
        making.label.against = others.map(|(_, key)| difference(key, &keys[side])).collect();
    }
}

/// Turns that a search may take.
const SEARCH_TURNS_MAX: u32 = 100_000;

/// A search whose run came to its end is over, and so is one whose servers did not last; any other is gone on with.
fn finish_line(store: &mut Store, ended: &Ended) -> Result<(), Error> {
    let (Some(line), Some(found)) = (ended.end.line, &ended.found) else { return Ok(()) };
    let is_over = ended.failure.is_none() || found.lines.iter().any(|line| line.ended_by == "server");
    if is_over {
        store.finish_line(line, found)?;
    }
    Ok(())
}

/// The values of a key that another one does not have.
fn difference(key: &BTreeMap<String, String>, other: &BTreeMap<String, String>) -> String {
    let differing = key.iter().filter(|(axis, value)| other.get(*axis) != Some(value));
    differing.map(|(_, value)| value.as_str()).collect::<Vec<_>>().join(" ")
}

fn one_side(making: Making<'_>, seat: &Seat<'_>, detail: Detail<'_>, around: Around<'_>) -> Ended {
    let side = seat.side() as usize;
    let stop = around.stop.of_side(side);
    // All do the same at about the same time: what one of them does is enough to be shown.
    let told = |event: Event<'_>| {
        if side == 0 || matches!(event, Event::Interval { .. } | Event::Warning(_)) {
            (around.observer)(event);
        }
    };
    let around = Around { stop: &stop, observer: &told, attach: around.attach, seat: Some(seat) };
    let ended = run(&making.order, making.place, around, detail);
    if ended.failure.is_some() {
        seat.fail();
    }
    ended
}
