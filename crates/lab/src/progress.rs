//! What a run tells second by second: the figures that reports show stay in memory, histograms and series leave it in
//! batches, so that a run of a week needs no more of it than its figures do.

use store::{Interval, RunId, Second, Series, Store};

use crate::record;

/// Seconds that are recorded together. Shorter runs are recorded when they end: nothing is written beside a server that
/// is measured for less than that.
const BATCH: usize = 60;

/// What becomes of histograms and series.
pub enum Detail<'a> {
    /// Nobody wants them.
    Dropped,
    /// They stay in memory until the run is recorded as a whole.
    Held,
    /// They are recorded while the run goes on.
    Recorded(&'a mut Store, RunId),
}

#[derive(Debug, Default)]
pub struct Level {
    sessions: u32,
    /// What reports show of each second.
    pub(crate) seconds: Vec<Second>,
    /// The seconds in full that are not recorded yet.
    pub(crate) intervals: Vec<Interval>,
}

/// The run so far.
pub struct Progress<'a> {
    detail: Detail<'a>,
    levels: Vec<Level>,
    /// Parts of series that are not recorded yet.
    pub(crate) series: Vec<Series>,
    /// Seconds since the last batch.
    waiting: usize,
}

impl<'a> Progress<'a> {
    pub fn new(detail: Detail<'a>) -> Progress<'a> {
        Progress { detail, levels: Vec::new(), series: Vec::new(), waiting: 0 }
    }

    /// Takes what the load tells. Once enough has gathered it is passed on, with the parts of series that `series` gives,
    /// what the samplers have seen since the last time; true when that was done.
    ///
    /// # Errors
    /// As those of [`Progress::pass_on`].
    pub fn event(
        &mut self,
        event: &load::Event<'_>,
        series: impl FnOnce() -> Vec<Series>,
    ) -> Result<bool, store::Error> {
        self.gather(event);
        let is_due = self.waiting >= BATCH;
        if is_due {
            self.pass_on(series())?;
        }
        Ok(is_due)
    }

    fn gather(&mut self, event: &load::Event<'_>) {
        match event {
            load::Event::StepStarted { index, step } => {
                self.levels.resize_with(index + 1, Level::default);
                self.levels[*index].sessions = step.sessions;
            }
            load::Event::Interval { step, interval } => {
                let Some(level) = self.levels.get_mut(*step) else { return };
                let (interval, second) = record::interval(interval);
                level.seconds.push(second);
                if !matches!(self.detail, Detail::Dropped) {
                    level.intervals.push(interval);
                }
                self.waiting += 1;
            }
            _ => {}
        }
    }

    /// The levels of a run that is over, as they are recorded. `offsets_s`: from the run's start to the measured phase of
    /// each.
    pub fn steps(
        &mut self,
        planned: &[load::Step],
        result: &load::LoadResult,
        offsets_s: &[f64],
    ) -> Vec<store::Step> {
        // A level whose sessions could not be connected never began.
        let mut levels = std::mem::take(&mut self.levels).into_iter();
        let both = planned.iter().zip(&result.steps).enumerate();
        both.map(|(index, (planned, step))| {
            let offset_s = offsets_s.get(index).copied().unwrap_or_default();
            record::step(planned, step, levels.next().unwrap_or_default(), offset_s)
        })
        .collect()
    }

    /// Makes levels of their slices: `parts` has for each which of those that there were are its own. Seconds of the measured
    /// phases follow each other, and only the first warm-up is kept. Nothing of them may have been recorded yet.
    pub(crate) fn splice(&mut self, parts: &[Vec<bool>]) {
        let mut slices: Vec<Option<Level>> = std::mem::take(&mut self.levels).into_iter().map(Some).collect();
        let mut own = |part: &Vec<bool>| {
            let both = slices.iter_mut().zip(part);
            spliced(both.filter(|(_, is_own)| **is_own).filter_map(|(slice, _)| slice.take()))
        };
        self.levels = parts.iter().map(&mut own).collect();
    }

    /// Passes on what has gathered, with the parts of series that the samplers have seen since the last time.
    ///
    /// # Errors
    /// It could not be recorded (a full disk). Nothing is lost: it is tried again with the next batch, and when the run
    /// ends.
    pub(crate) fn pass_on(&mut self, series: Vec<Series>) -> Result<(), store::Error> {
        self.waiting = 0;
        match &mut self.detail {
            Detail::Dropped => {}
            Detail::Held => append(&mut self.series, series),
            Detail::Recorded(store, run) => {
                append(&mut self.series, series);
                for (ordinal, level) in self.levels.iter_mut().enumerate() {
                    if !level.intervals.is_empty() {
                        store.add_intervals(*run, (ordinal, level.sessions), &level.intervals)?;
                        level.intervals.clear();
                    }
                }
                store.add_series(*run, &self.series)?;
                self.series.clear();
            }
        }
        Ok(())
    }
}

/// One level of its slices.
fn spliced(slices: impl Iterator<Item = Level>) -> Level {
    let mut all = Level::default();
    let mut before = 0;
    for (at, level) in slices.enumerate() {
        all.sessions = level.sessions;
        let is_kept = |second: i64| at == 0 || second >= 1;
        let seconds = level.seconds.into_iter().filter(|second| is_kept(second.second));
        all.seconds.extend(seconds.map(|second| Second { second: before + second.second, ..second }));
        let intervals = level.intervals.into_iter().filter(|interval| is_kept(interval.second));
        let later = |interval: Interval| Interval { second: before + interval.second, ..interval };
        all.intervals.extend(intervals.map(later));
        before = all.seconds.last().map_or(0, |second| second.second.max(0));
    }
    all
}

/// Adds parts of series to those of the same name.
pub(crate) fn append(all: &mut Vec<Series>, parts: Vec<Series>) {
    for part in parts {
        let is_it = |known: &&mut Series| {
            (&known.source, &known.name, &known.instance) == (&part.source, &part.name, &part.instance)
        };
        match all.iter_mut().find(is_it) {
            Some(known) => known.points.extend(part.points),
            None => all.push(part),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second has passed: whether what gathered was passed on.
    fn second(progress: &mut Progress<'_>, second: i64) -> bool {
        let interval = load::IntervalResult { second, duration_s: 1.0, ..load::IntervalResult::default() };
        progress.event(&load::Event::Interval { step: 0, interval: &interval }, || part(1.0)).unwrap()
    }

    fn begun(detail: Detail<'_>) -> Progress<'_> {
        let mut progress = Progress::new(detail);
        let step = load::Step {
            sessions: 8,
            warmup: std::time::Duration::ZERO,
            length: load::Length::Time(std::time::Duration::from_secs(100)),
            pacing: load::Pacing::Closed,
        };
        assert!(!progress.event(&load::Event::StepStarted { index: 0, step: &step }, Vec::new).unwrap());
        progress
    }

    fn part(t: f64) -> Vec<Series> {
        let text = str::to_owned;
        let series = Series {
            source: text("host"),
            name: text("run_queue"),
            instance: String::new(),
            unit: String::new(),
            points: vec![(t, 1.0)],
        };
        vec![series]
    }

    #[test]
    fn what_nobody_wants_leaves_figures_alone() {
        let mut progress = begun(Detail::Dropped);
        for at in 1..BATCH as i64 {
            assert!(!second(&mut progress, at));
        }
        assert!(second(&mut progress, BATCH as i64));
        assert_eq!((progress.waiting, progress.series.len()), (0, 0));
        assert_eq!((progress.levels[0].seconds.len(), progress.levels[0].intervals.len()), (BATCH, 0));
    }

    #[test]
    fn what_is_held_is_joined() {
        let mut progress = begun(Detail::Held);
        second(&mut progress, 1);
        progress.pass_on(part(1.0)).unwrap();
        progress.pass_on(part(2.0)).unwrap();
        assert_eq!(progress.series.len(), 1);
        assert_eq!(progress.series[0].points, [(1.0, 1.0), (2.0, 1.0)]);
        assert_eq!(progress.levels[0].intervals.len(), 1);
    }

    #[test]
    fn slices_become_one_level_whose_seconds_follow_each_other() {
        let mut progress = begun(Detail::Held);
        let step = load::Step {
            sessions: 8,
            warmup: std::time::Duration::from_millis(100),
            length: load::Length::Time(std::time::Duration::from_secs(2)),
            pacing: load::Pacing::Closed,
        };
        for index in 0..3 {
            progress.event(&load::Event::StepStarted { index, step: &step }, Vec::new).unwrap();
            for second in 0..=2 {
                let interval =
                    load::IntervalResult { second, duration_s: 1.0, ..load::IntervalResult::default() };
                let event = load::Event::Interval { step: index, interval: &interval };
                progress.event(&event, Vec::new).unwrap();
            }
        }
        progress.splice(&[vec![true; 3]]);
        let seconds: Vec<i64> = progress.levels[0].seconds.iter().map(|second| second.second).collect();
        assert_eq!((progress.levels.len(), seconds), (1, vec![0, 1, 2, 3, 4, 5, 6]));
        assert_eq!(progress.levels[0].intervals.last().map(|interval| interval.second), Some(6));
    }

    #[test]
    fn what_could_not_be_recorded_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(folder.path()).unwrap();
        // There is no such run, as there is no room on a full disk.
        let mut progress = begun(Detail::Recorded(&mut store, RunId(7)));
        second(&mut progress, 1);
        assert!(progress.pass_on(part(1.0)).is_err());
        second(&mut progress, 2);
        assert!(progress.pass_on(part(2.0)).is_err());
        assert_eq!((progress.levels[0].intervals.len(), progress.series[0].points.len()), (2, 2));
    }
}
