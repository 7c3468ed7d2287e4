//! What one worker has counted: the interval that is being filled, and the sums of the step.

use std::collections::BTreeMap;
use std::time::Duration;

use wire::StatementKind;

use crate::histogram::Counts;
use crate::result::{ErrorTally, Outcomes};
use crate::session::{Completion, Failure};
use crate::time::Moment;

/// Different error codes that are told apart; the rest is tallied under [`OTHER_CODES`].
const CODES_MAX: usize = 200;
const OTHER_CODES: &str = "(other codes)";
/// Notes that are counted together.
const NOTES_MAX: usize = 16;

/// When the phases of a step begin and end. The same for all workers, so that their intervals align.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timeline {
    /// The warm-up begins.
    pub(crate) start: Moment,
    /// The measured phase begins.
    pub(crate) measured: Moment,
    /// It ends, if by the clock.
    pub(crate) end: Option<Moment>,
}

impl Timeline {
    /// The interval that the warm-up begins with, and when it ends. Intervals are aligned to the beginning of
    /// the measured phase, whose first second is number 1.
    pub(crate) fn first_interval(&self) -> (i64, Moment) {
        let warmup = self.measured - self.start;
        let rest = Duration::from_nanos(warmup.subsec_nanos().into());
        let whole = warmup.as_secs() as i64;
        match (warmup.is_zero(), rest.is_zero()) {
            (true, _) => (1, self.clip(self.start + SECOND)),
            (false, true) => (1 - whole, self.clip(self.start + SECOND)),
            (false, false) => (-whole, self.clip(self.start + rest)),
        }
    }

    /// When the interval after one that ended at `boundary` ends.
    pub(crate) fn after(&self, boundary: Moment) -> Moment {
        self.clip(boundary + SECOND)
    }

    fn clip(&self, boundary: Moment) -> Moment {
        self.end.map_or(boundary, |end| boundary.min(end))
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// What a worker counted in one interval. Goes to the coordinator and comes back empty.
#[derive(Debug)]
pub(crate) struct IntervalData {
    pub(crate) second: i64,
    pub(crate) duration: Duration,
    pub(crate) outcomes: Outcomes,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) other: u64,
    pub(crate) retries: u64,
    pub(crate) reconnects: u64,
    pub(crate) connected: u32,
    pub(crate) backlog: u64,
    pub(crate) in_flight: u32,
    pub(crate) response: Counts,
    /// Only in open loop, where it differs.
    pub(crate) service: Option<Counts>,
    pub(crate) classes: Vec<Counts>,
}

impl IntervalData {
    pub(crate) fn new(classes: usize) -> IntervalData {
        IntervalData {
            second: 0,
            duration: Duration::ZERO,
            outcomes: Outcomes::default(),
            reads: 0,
            writes: 0,
            other: 0,
            retries: 0,
            reconnects: 0,
            connected: 0,
            backlog: 0,
            in_flight: 0,
            response: Counts::new(),
            service: None,
            classes: (0..classes).map(|_| Counts::new()).collect(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.outcomes = Outcomes::default();
        self.reads = 0;
        self.writes = 0;
        self.other = 0;
        self.retries = 0;
        self.reconnects = 0;
        self.response.clear();
        if let Some(service) = &mut self.service {
            service.clear();
        }
        self.classes.iter_mut().for_each(Counts::clear);
    }
}

/// Where the recording stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Between steps.
    Off,
    /// Intervals are filled, the step's figures not yet.
    Warmup,
    /// The figures.
    Measured,
    /// Only outcomes are counted, for the consistency checks.
    Drain,
}

/// One transaction that has ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) intended: Moment,
    pub(crate) start: Moment,
    pub(crate) end: Moment,
    pub(crate) is_counted: bool,
}

/// What happens with nearly every answer, to be counted in the interval it was noted in.
#[derive(Debug, Clone, Copy)]
enum Note {
    Statement { class: u32, kind: Option<StatementKind>, took_ns: u64 },
    Committed { response_ns: u64 },
}

/// A worker's recording.
///
/// Histograms and counters are many lines of memory, which have left the caches from one answer to the next. So
/// what happens most is noted in few lines, and counted some notes at a time: hence the order of the fields, too.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Recording {
    pub(crate) stage: Stage,
    pub(crate) is_open_loop: bool,
    /// How many of `notes` are yet to be counted.
    noted: u32,
    /// All transactions of the step.
    pub(crate) whole: Outcomes,
    notes: [Note; NOTES_MAX],
    current: Box<IntervalData>,
    /// Ended after the measured phase.
    pub(crate) drained: u64,
    pub(crate) errors: BTreeMap<String, ErrorTally>,
}

impl Recording {
    pub(crate) fn new(classes: usize) -> Recording {
        Recording {
            stage: Stage::Off,
            is_open_loop: false,
            noted: 0,
            whole: Outcomes::default(),
            notes: [Note::Committed { response_ns: 0 }; NOTES_MAX],
            current: Box::new(IntervalData::new(classes)),
            drained: 0,
            errors: BTreeMap::new(),
        }
    }

    /// A step begins, with the interval `second`.
    pub(crate) fn begin(&mut self, is_open_loop: bool, second: i64) {
        self.noted = 0;
        self.current.clear();
        self.current.second = second;
        self.current.service = is_open_loop.then(|| self.current.service.take().unwrap_or_else(Counts::new));
        self.stage = Stage::Warmup;
        self.is_open_loop = is_open_loop;
        self.whole = Outcomes::default();
        self.drained = 0;
        self.errors.clear();
    }

    /// The present interval is over: answers it and goes on with the next one in `fresh`.
    pub(crate) fn turn_over(&mut self, fresh: Box<IntervalData>) -> Box<IntervalData> {
        self.count_notes();
        let full = std::mem::replace(&mut self.current, fresh);
        self.current.second = full.second + 1;
        if self.is_open_loop && self.current.service.is_none() {
            self.current.service = Some(Counts::new());
        }
        full
    }

    #[inline(always)]
    fn is_filling(&self) -> bool {
        matches!(self.stage, Stage::Warmup | Stage::Measured)
    }

    #[inline(always)]
    fn note(&mut self, note: Note) {
        self.notes[self.noted as usize % NOTES_MAX] = note;
        self.noted += 1;
        if self.noted as usize == NOTES_MAX {
            self.count_notes();
        }
    }

    #[inline(never)]
    fn count_notes(&mut self) {
        let current = &mut *self.current;
        for note in &self.notes[..self.noted as usize] {
            match *note {
                Note::Statement { class, kind, took_ns } => {
                    current.classes[class as usize].record(took_ns);
                    match kind {
                        Some(StatementKind::Read) => current.reads += 1,
                        Some(StatementKind::Write) => current.writes += 1,
                        Some(StatementKind::Other) => current.other += 1,
                        None => {}
                    }
                }
                Note::Committed { response_ns } => {
                    current.outcomes.committed += 1;
                    current.response.record(response_ns);
                }
            }
        }
        self.noted = 0;
    }

    #[inline(always)]
    pub(crate) fn statement(
        &mut self,
        class: usize,
        kind: Option<StatementKind>,
        is_counted: bool,
        took_ns: u64,
    ) {
        if !self.is_filling() || !is_counted {
            return;
        }
        self.note(Note::Statement { class: class as u32, kind, took_ns });
    }

    /// A transaction was confirmed, rolled back or declined.
    #[inline(always)]
    pub(crate) fn completed(&mut self, how: Completion, ended: &Ended) {
        let is_plain = how == Completion::Committed && ended.is_counted && !self.is_open_loop;
        if is_plain && self.is_filling() {
            self.whole.committed += 1;
            self.note(Note::Committed { response_ns: ended.end.nanos_since(ended.intended) });
        } else {
            self.completed_otherwise(how, ended);
        }
    }

    #[inline(never)]
    fn completed_otherwise(&mut self, how: Completion, ended: &Ended) {
        self.count(ended, how != Completion::Skipped, |outcomes| match how {
            Completion::Committed => outcomes.committed += 1,
            Completion::RolledBack => outcomes.rolled_back += 1,
            Completion::Skipped => outcomes.skipped += 1,
            Completion::Finished => {}
        });
    }

    /// A transaction failed for good.
    pub(crate) fn failed(&mut self, failure: &Failure, ended: &Ended) {
        self.count(ended, true, |outcomes| *outcomes.of_failure(failure.class) += 1);
    }

    fn count(&mut self, ended: &Ended, has_latency: bool, add: impl Fn(&mut Outcomes)) {
        add(&mut self.whole);
        if self.stage == Stage::Drain {
            self.drained += 1;
        }
        if !self.is_filling() || !ended.is_counted {
            return;
        }
        let current = &mut *self.current;
        add(&mut current.outcomes);
        if has_latency {
            current.response.record(ended.end.nanos_since(ended.intended));
            if let Some(service) = &mut current.service {
                service.record(ended.end.nanos_since(ended.start));
            }
        }
    }

    /// A session has its connection back.
    pub(crate) fn reconnected(&mut self) {
        if self.is_filling() {
            self.current.reconnects += 1;
        }
    }

    /// A transaction is tried again.
    pub(crate) fn retry(&mut self) {
        if self.is_filling() {
            self.current.retries += 1;
        }
    }

    /// Something went wrong, be it tried again or not.
    pub(crate) fn error(&mut self, failure: &Failure) {
        if self.stage != Stage::Measured {
            return;
        }
        let is_known = self.errors.contains_key(&failure.code);
        let code =
            if is_known || self.errors.len() < CODES_MAX { failure.code.as_str() } else { OTHER_CODES };
        if !self.errors.contains_key(code) {
            self.errors.insert(code.to_owned(), ErrorTally { count: 0, text: failure.text.clone() });
        }
        if let Some(tally) = self.errors.get_mut(code) {
            tally.count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_align_to_the_measured_phase() {
        let start = Moment::now();
        let check = |warmup_ms: u64, length_ms: u64, expect: &[(i64, u64)]| {
            let measured = start + Duration::from_millis(warmup_ms);
            let end = measured + Duration::from_millis(length_ms);
            let timeline = Timeline { start, measured, end: Some(end) };
            let (mut second, mut boundary) = timeline.first_interval();
            let mut seen = Vec::new();
            loop {
                seen.push((second, (boundary - start).as_millis() as u64));
                if boundary >= end {
                    break;
                }
                second += 1;
                boundary = timeline.after(boundary);
            }
            assert_eq!(seen, expect);
        };
        check(0, 2_500, &[(1, 1_000), (2, 2_000), (3, 2_500)]);
        check(2_000, 1_000, &[(-1, 1_000), (0, 2_000), (1, 3_000)]);
        check(1_500, 2_000, &[(-1, 500), (0, 1_500), (1, 2_500), (2, 3_500)]);
        check(200, 300, &[(0, 200), (1, 500)]);
    }

    #[test]
    fn what_was_noted_is_counted_in_its_own_interval() {
        let start = Moment::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut recording = Recording::new(2);
        recording.begin(false, 1);
        // No multiple of what is counted together.
        let transactions = NOTES_MAX as u64 + 3;
        for took_ms in 1..=transactions {
            recording.statement(1, Some(StatementKind::Write), true, took_ms * 1_000_000);
            let ended = Ended { intended: start, start, end: at(took_ms), is_counted: took_ms > 1 };
            recording.completed(Completion::Committed, &ended);
        }
        recording.completed(
            Completion::RolledBack,
            &Ended { intended: start, start, end: at(100), is_counted: true },
        );
        let full = recording.turn_over(Box::new(IntervalData::new(2)));
        assert_eq!((full.second, full.writes, full.reads), (1, transactions, 0));
        assert_eq!((full.outcomes.committed, full.outcomes.rolled_back), (transactions - 1, 1));
        assert_eq!((recording.whole.committed, recording.whole.rolled_back), (transactions, 1));
        let (classes, response) = (full.classes[1].to_histogram(), full.response.to_histogram());
        assert_eq!(
            (full.classes[0].to_histogram().len(), classes.len(), response.len()),
            (0, transactions, transactions)
        );
        assert_eq!(
            (classes.max_ms(), response.min_ms(), response.max_ms()),
            (transactions as f64, 2.0, 100.0)
        );
        let next = recording.turn_over(Box::new(IntervalData::new(2)));
        assert_eq!((next.second, next.writes, next.outcomes.total()), (2, 0, 0));
    }
}
