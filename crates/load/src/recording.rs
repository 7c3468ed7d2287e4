//! What one worker has counted: the interval that is being filled, and the sums of the step.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use wire::StatementKind;

use crate::histogram::{Counts, Total};
use crate::result::{ErrorTally, Outcomes};
use crate::session::{Completion, Failure};
use crate::time::Moment;
use crate::tuning::{Trick, is_on};

/// Different error codes that are told apart; the rest is tallied under [`OTHER_CODES`].
const CODES_MAX: usize = 200;
const OTHER_CODES: &str = "(other codes)";
/// Notes that are counted together.
const NOTES_MAX: usize = 16;

/// When the phases of a step begin and end. The same for all workers, so that their intervals align.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
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

    /// See [`Moment::on_clock`].
    pub(crate) fn on_clock(self, more_ns: i64) -> Timeline {
        Timeline {
            start: self.start.on_clock(more_ns),
            measured: self.measured.on_clock(more_ns),
            end: self.end.map(|end| end.on_clock(more_ns)),
        }
    }

    fn clip(&self, boundary: Moment) -> Moment {
        self.end.map_or(boundary, |end| boundary.min(end))
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// What a worker counted in one interval. Goes to the coordinator and comes back empty.
#[derive(Debug, Default, Serialize, Deserialize)]
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
    /// When its first and its last transaction were committed.
    pub(crate) commits: Option<(Moment, Moment)>,
    /// Since when the one that has waited longest at its end has waited.
    pub(crate) waiting_since: Option<Moment>,
    pub(crate) response: Counts,
    /// Only in open loop, where it differs.
    pub(crate) service: Option<Counts>,
    /// Response and service times of transactions that belong to the warm-up and ended in the measured phase: shown
    /// with the interval, no part of the step's figures.
    pub(crate) earlier: Option<Box<[Counts; 2]>>,
    pub(crate) classes: Vec<Counts>,
    /// Such transactions by class: they count, their response times do not.
    pub(crate) earlier_by_class: BTreeMap<usize, u64>,
}

impl IntervalData {
    pub(crate) fn new(classes: usize) -> IntervalData {
        let classes = (0..classes).map(|_| Counts::default()).collect();
        IntervalData { classes, ..IntervalData::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.outcomes = Outcomes::default();
        self.reads = 0;
        self.writes = 0;
        self.other = 0;
        self.retries = 0;
        self.reconnects = 0;
        self.commits = None;
        self.waiting_since = None;
        self.earlier = None;
        self.response.clear();
        if let Some(service) = &mut self.service {
            service.clear();
        }
        self.classes.iter_mut().for_each(Counts::clear);
        self.earlier_by_class.clear();
    }
}

/// The phase of a step, as far as recording it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
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
    Statement { class: u32, kind: StatementKind, took_ns: u64 },
    Transaction { class: u32, response_ns: u64 },
    Committed { response_ns: u64 },
}

/// What belongs to the measured phase and stands in none of its intervals: what ended in the drain or never, and how long
/// failures took.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Beside {
    pub(crate) response: Counts,
    pub(crate) service: Counts,
    /// Response times by class of transaction.
    pub(crate) classes: BTreeMap<usize, Counts>,
    /// Response times of transactions that failed, in the measured phase or after it.
    pub(crate) failed: Counts,
    /// What never ended, by the time that it had waited.
    pub(crate) unended: Total,
}

/// A worker's recording.
///
/// Histograms and counters are many lines of memory, which have left the caches from one answer to the next. So
/// what happens most is noted in few lines, and counted some notes at a time: hence the order of the fields, too.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Recording {
    pub(crate) phase: Phase,
    pub(crate) is_open_loop: bool,
    /// How many of `notes` are yet to be counted.
    noted: u32,
    /// Latencies of transactions that were to begin before this are no part of the step's figures.
    counted_from: Moment,
    last_commit: Moment,
    /// In the present interval, or since the end of the measured phase.
    first_commit: Option<Moment>,
    /// All transactions of the step.
    pub(crate) whole: Outcomes,
    notes: [Note; NOTES_MAX],
    current: Box<IntervalData>,
    /// Ended after the measured phase.
    pub(crate) drained: u64,
    pub(crate) beside: Beside,
    pub(crate) errors: BTreeMap<String, ErrorTally>,
}

impl Recording {
    pub(crate) fn new(classes: usize) -> Recording {
        Recording {
            phase: Phase::Off,
            is_open_loop: false,
            noted: 0,
            counted_from: Moment::START,
            last_commit: Moment::START,
            whole: Outcomes::default(),
            notes: [Note::Committed { response_ns: 0 }; NOTES_MAX],
            current: Box::new(IntervalData::new(classes)),
            first_commit: None,
            drained: 0,
            beside: Beside::default(),
            errors: BTreeMap::new(),
        }
    }

    /// A step begins, with the interval `second`.
    pub(crate) fn begin(&mut self, is_open_loop: bool, second: i64) {
        self.noted = 0;
        self.current.clear();
        self.current.second = second;
        self.current.service = is_open_loop.then(|| self.current.service.take().unwrap_or_default());
        self.phase = Phase::Warmup;
        self.counted_from = Moment::START;
        self.first_commit = None;
        self.beside = Beside::default();
        self.is_open_loop = is_open_loop;
        self.whole = Outcomes::default();
        self.drained = 0;
        self.errors.clear();
    }

    /// The measured phase begins: what was to begin before it is no part of the step's latency.
    pub(crate) fn begin_measured(&mut self, at: Moment) {
        self.phase = Phase::Measured;
        self.counted_from = at;
    }

    /// The measured phase is over, and its last interval told.
    pub(crate) fn begin_drain(&mut self) {
        self.phase = Phase::Drain;
        self.first_commit = None;
    }

    /// The first transaction that was committed after the measured phase.
    pub(crate) fn first_drained(&self) -> Option<Moment> {
        self.first_commit.filter(|_| self.phase == Phase::Drain)
    }

    /// A transaction that will not end in this step has waited so long; it belongs to the step's figures if it was
    /// `intended` in the measured phase.
    pub(crate) fn unended(&mut self, intended: Moment, now: Moment) {
        if intended >= self.counted_from {
            self.beside.unended.record_many(now.nanos_since(intended), 1);
        }
    }

    #[inline(always)]
    fn committed_at(&mut self, at: Moment) {
        self.last_commit = at;
        if self.first_commit.is_none() {
            self.first_commit = Some(at);
        }
    }

    /// The present interval is over: answers it and goes on with the next one in `fresh`.
    pub(crate) fn turn_over(&mut self, fresh: Box<IntervalData>) -> Box<IntervalData> {
        self.count_notes();
        let mut full = std::mem::replace(&mut self.current, fresh);
        full.commits = self.first_commit.take().map(|first| (first, self.last_commit));
        self.current.second = full.second + 1;
        if self.is_open_loop && self.current.service.is_none() {
            self.current.service = Some(Counts::default());
        }
        full
    }

    #[inline(always)]
    fn is_filling(&self) -> bool {
        matches!(self.phase, Phase::Warmup | Phase::Measured)
    }

    #[inline(always)]
    fn note(&mut self, note: Note) {
        self.notes[self.noted as usize % NOTES_MAX] = note;
        self.noted += 1;
        if self.noted as usize == NOTES_MAX || !is_on(Trick::Notes) {
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
                        StatementKind::Read => current.reads += 1,
                        StatementKind::Write => current.writes += 1,
                        StatementKind::Other => current.other += 1,
                    }
                }
                Note::Transaction { class, response_ns } => {
                    current.classes[class as usize].record(response_ns);
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
    pub(crate) fn statement(&mut self, class: usize, kind: StatementKind, is_counted: bool, took_ns: u64) {
        if !self.is_filling() || !is_counted {
            return;
        }
        self.note(Note::Statement { class: class as u32, kind, took_ns });
    }

    /// A transaction of a class that has response times of its own ended, beside what [`Recording::completed`] notes.
    pub(crate) fn transaction(&mut self, class: usize, ended: &Ended) {
        if !ended.is_counted {
            return;
        }
        let response_ns = ended.end.nanos_since(ended.intended);
        let is_of_step = ended.intended >= self.counted_from;
        match self.phase {
            Phase::Warmup | Phase::Measured if is_of_step => {
                self.note(Note::Transaction { class: class as u32, response_ns });
            }
            Phase::Warmup | Phase::Measured => {
                *self.current.earlier_by_class.entry(class).or_default() += 1;
            }
            Phase::Drain if is_of_step => {
                self.beside.classes.entry(class).or_default().record(response_ns);
            }
            Phase::Drain | Phase::Off => {}
        }
    }

    /// A transaction was confirmed, rolled back or declined.
    #[inline(always)]
    pub(crate) fn completed(&mut self, how: Completion, ended: &Ended) {
        let is_plain = how == Completion::Committed
            && ended.is_counted
            && !self.is_open_loop
            && ended.intended >= self.counted_from;
        if how == Completion::Committed {
            self.committed_at(ended.end);
        }
        if is_plain && self.is_filling() {
            self.whole.committed += 1;
            self.note(Note::Committed { response_ns: ended.end.nanos_since(ended.intended) });
        } else {
            self.completed_otherwise(how, ended);
        }
    }

    #[inline(never)]
    fn completed_otherwise(&mut self, how: Completion, ended: &Ended) {
        self.count(ended, |outcomes| match how {
            Completion::Committed => outcomes.committed += 1,
            Completion::RolledBack => outcomes.rolled_back += 1,
            Completion::Skipped => outcomes.skipped += 1,
            Completion::Finished => {}
        });
        if matches!(how, Completion::Committed | Completion::RolledBack) && ended.is_counted {
            self.latency(ended);
        }
    }

    /// A transaction failed for good.
    pub(crate) fn failed(&mut self, failure: &Failure, ended: &Ended) {
        self.count(ended, |outcomes| *outcomes.of_failure(failure.class) += 1);
        let is_of_step = matches!(self.phase, Phase::Measured | Phase::Drain);
        if is_of_step && ended.is_counted && ended.intended >= self.counted_from {
            self.beside.failed.record(ended.end.nanos_since(ended.intended));
        }
    }

    fn count(&mut self, ended: &Ended, add: impl Fn(&mut Outcomes)) {
        add(&mut self.whole);
        if self.phase == Phase::Drain {
            self.drained += 1;
        }
        if self.is_filling() && ended.is_counted {
            add(&mut self.current.outcomes);
        }
    }

    /// Response and service time of a transaction that was committed or rolled back.
    fn latency(&mut self, ended: &Ended) {
        let response_ns = ended.end.nanos_since(ended.intended);
        let service_ns = ended.end.nanos_since(ended.start);
        let is_of_step = ended.intended >= self.counted_from;
        match self.phase {
            Phase::Off => {}
            Phase::Drain if is_of_step => {
                self.beside.response.record(response_ns);
                if self.is_open_loop {
                    self.beside.service.record(service_ns);
                }
            }
            Phase::Drain => {}
            Phase::Warmup | Phase::Measured => {
                let current = &mut *self.current;
                let (response, service) = match &mut current.earlier {
                    _ if is_of_step => (&mut current.response, current.service.as_mut()),
                    earlier => {
                        let [response, service] = &mut **earlier.get_or_insert_default();
                        (response, Some(service).filter(|_| self.is_open_loop))
                    }
                };
                response.record(response_ns);
                if let Some(service) = service {
                    service.record(service_ns);
                }
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
        if self.phase != Phase::Measured {
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
    fn classes_of_transactions_have_response_times_of_what_was_to_begin_in_the_phase() {
        let start = Moment::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let ended = |intended_ms, end_ms| Ended {
            intended: at(intended_ms),
            start: at(end_ms - 1),
            end: at(end_ms),
            is_counted: true,
        };
        let mut recording = Recording::new(2);
        recording.begin(true, 0);
        recording.begin_measured(at(1000));
        recording.transaction(1, &ended(900, 1100));
        recording.transaction(1, &ended(1000, 1250));
        let full = recording.turn_over(Box::new(IntervalData::new(2)));
        let class = full.classes[1].to_histogram();
        // From the intended start, not from when a session was free.
        assert_eq!((class.len(), class.max_ms()), (1, 250.0));
        assert_eq!(full.earlier_by_class.get(&1), Some(&1));
        recording.begin_drain();
        recording.transaction(1, &ended(900, 2100));
        recording.transaction(1, &ended(1500, 2100));
        let late = recording.beside.classes[&1].to_histogram();
        assert_eq!((late.len(), late.max_ms()), (1, 600.0));
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
            recording.statement(1, StatementKind::Write, true, took_ms * 1_000_000);
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
