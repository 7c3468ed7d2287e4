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

/// A worker's recording.
#[derive(Debug)]
pub(crate) struct Recording {
    pub(crate) current: Box<IntervalData>,
    pub(crate) stage: Stage,
    pub(crate) is_open_loop: bool,
    /// All transactions of the step.
    pub(crate) whole: Outcomes,
    /// Ended after the measured phase.
    pub(crate) drained: u64,
    pub(crate) errors: BTreeMap<String, ErrorTally>,
}

impl Recording {
    pub(crate) fn new(classes: usize) -> Recording {
        Recording {
            current: Box::new(IntervalData::new(classes)),
            stage: Stage::Off,
            is_open_loop: false,
            whole: Outcomes::default(),
            drained: 0,
            errors: BTreeMap::new(),
        }
    }

    /// A step begins.
    pub(crate) fn begin(&mut self, is_open_loop: bool) {
        self.current.clear();
        self.current.service = is_open_loop.then(|| self.current.service.take().unwrap_or_else(Counts::new));
        self.stage = Stage::Warmup;
        self.is_open_loop = is_open_loop;
        self.whole = Outcomes::default();
        self.drained = 0;
        self.errors.clear();
    }

    fn is_filling(&self) -> bool {
        matches!(self.stage, Stage::Warmup | Stage::Measured)
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
        let current = &mut *self.current;
        current.classes[class].record(took_ns);
        match kind {
            Some(StatementKind::Read) => current.reads += 1,
            Some(StatementKind::Write) => current.writes += 1,
            Some(StatementKind::Other) => current.other += 1,
            None => {}
        }
    }

    /// A transaction was confirmed, rolled back or declined.
    #[inline(always)]
    pub(crate) fn completed(&mut self, how: Completion, ended: &Ended) {
        self.note(ended, how != Completion::Skipped, |outcomes| match how {
            Completion::Committed => outcomes.committed += 1,
            Completion::RolledBack => outcomes.rolled_back += 1,
            Completion::Skipped => outcomes.skipped += 1,
            Completion::Finished => {}
        });
    }

    /// A transaction failed for good.
    pub(crate) fn failed(&mut self, failure: &Failure, ended: &Ended) {
        self.note(ended, true, |outcomes| *outcomes.of_failure(failure.class) += 1);
    }

    #[inline(always)]
    fn note(&mut self, ended: &Ended, has_latency: bool, count: impl Fn(&mut Outcomes)) {
        count(&mut self.whole);
        if self.stage == Stage::Drain {
            self.drained += 1;
        }
        if !self.is_filling() || !ended.is_counted {
            return;
        }
        let current = &mut *self.current;
        count(&mut current.outcomes);
        if has_latency {
            current.response.record(ended.end.nanos_since(ended.intended));
            if let Some(service) = &mut current.service {
                service.record(ended.end.nanos_since(ended.start));
            }
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
}
