//! When transactions arrive in open loop: a schedule for each worker, computed ahead of time and never adjusted
//! to how fast the server answers. How many were due by some time is computed, not walked through: a backlog may be of
//! any size.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::histogram::Total;
use crate::plan::Arrivals;
use crate::poisson::{self, Poisson};
use crate::rng::Rng;
use crate::time::Moment;

/// A worker's part of the whole arrival process.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Share {
    /// Arrivals per second of this worker.
    pub(crate) rate_tps: f64,
    /// Where between two arrivals the first one falls, 0 to 1: workers interleave instead of arriving together.
    pub(crate) offset: f64,
    pub(crate) arrivals: Arrivals,
    /// So many arrivals in the measured phase, where their number is fixed.
    pub(crate) count: Option<u64>,
}

/// The arrival process as such: where the arrivals lie, and how many lie before a time.
#[derive(Debug, Clone)]
enum Process {
    Constant,
    Poisson(Poisson),
}

/// The arrivals of one worker.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    start: Moment,
    share: Share,
    process: Process,
    /// Where the Poisson process is being taken from.
    walk: Option<poisson::Walk>,
    /// The next arrival that nobody has taken.
    next: Moment,
    taken: u64,
    /// No arrival at or after this time.
    end: Option<Moment>,
    /// No more arrivals than this.
    limit: u64,
    /// Arrivals before this one (by number) belong to the warm-up of a fixed number of transactions.
    counted_from: u64,
}

/// A transaction that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) intended: Moment,
    /// One of the fixed number of transactions, where there is one.
    pub(crate) is_counted: bool,
}

const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

impl Schedule {
    pub(crate) fn new(start: Moment, share: Share, mut rng: Rng) -> Schedule {
        let (process, walk) = match share.arrivals {
            Arrivals::Constant => (Process::Constant, None),
            Arrivals::Poisson => {
                let process = Poisson::new(share.rate_tps, rng.next());
                (Process::Poisson(process), Some(poisson::Walk::default()))
            }
        };
        let mut schedule = Schedule {
            start,
            share,
            process,
            walk,
            next: start,
            taken: 0,
            end: None,
            limit: u64::MAX,
            counted_from: 0,
        };
        schedule.place();
        schedule
    }

    /// No arrivals from then on.
    pub(crate) fn end_at(&mut self, end: Moment) {
        self.end = Some(self.end.map_or(end, |known| known.min(end)));
    }

    /// So many arrivals from `measured` on, and none after them; those before do not count.
    pub(crate) fn count_from(&mut self, measured: Moment, arrivals: u64) {
        self.counted_from = self.before(measured);
        self.limit = self.counted_from.saturating_add(arrivals);
    }

    /// One of the fixed number came to nothing: another one takes its place.
    pub(crate) fn give_back(&mut self) {
        self.limit = self.limit.saturating_add(1);
    }

    /// Whether the fixed number of arrivals has been taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.taken >= self.limit
    }

    /// The next arrival that nobody has taken, if there will be one.
    #[inline]
    pub(crate) fn next(&self) -> Option<Moment> {
        (self.end.is_none_or(|end| self.next < end) && !self.is_exhausted()).then_some(self.next)
    }

    /// Takes the next arrival if it is due.
    #[inline]
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<Arrival> {
        let intended = self.next().filter(|due| *due <= now)?;
        let is_counted = self.taken >= self.counted_from;
        self.taken += 1;
        self.place();
        Some(Arrival { intended, is_counted })
    }

    /// How many were due before `now` and have not been taken.
    pub(crate) fn due(&self, now: Moment) -> u64 {
        let until = self.end.map_or(now, |end| now.min(end));
        self.before(until).min(self.limit).saturating_sub(self.taken)
    }

    /// Arrivals of a span, taken or not.
    pub(crate) fn between(&self, from: Moment, until: Moment) -> u64 {
        let until = self.end.map_or(until, |end| until.min(end));
        self.before(until).min(self.limit).saturating_sub(self.before(from).min(self.limit))
    }

    /// How long those that were due since `measured` and have not been taken have waited by `now`: in a thousand slices
    /// of the time in which they arrived, each counted at its younger end, so that no wait is overstated.
    pub(crate) fn waits(&self, measured: Moment, now: Moment, waited: &mut Total) {
        const SLICES: u32 = 1_000;
        let Some(next) = self.next().filter(|next| *next < now) else { return };
        let from = next.max(measured);
        let until = self.end.map_or(now, |end| now.min(end)).max(from);
        let mut passed = if next >= measured { self.taken } else { self.before(measured).max(self.taken) };
        for slice in 1..=SLICES {
            let at = from + (until - from).mul_f64(f64::from(slice) / f64::from(SLICES));
            let by_now = self.before(at).min(self.limit);
            waited.record_many(now.nanos_since(at), by_now.saturating_sub(passed));
            passed = passed.max(by_now);
        }
    }

    /// All arrivals before a time, taken or not.
    fn before(&self, when: Moment) -> u64 {
        let passed_s = (when - self.start).as_secs_f64();
        match &self.process {
            Process::Poisson(process) => process.before(passed_s),
            Process::Constant => {
                // What rounding may be off by is mended by looking at the arrivals themselves.
                let mut count = (passed_s * self.share.rate_tps - self.share.offset).ceil().max(0.0) as u64;
                while count > 0 && self.constant(count - 1) >= when {
                    count -= 1;
                }
                while self.constant(count) < when {
                    count += 1;
                }
                count
            }
        }
    }

    fn constant(&self, number: u64) -> Moment {
        self.at((number as f64 + self.share.offset) / self.share.rate_tps)
    }

    fn at(&self, seconds: f64) -> Moment {
        // A rate so small that the time does not fit: never.
        self.start + Duration::try_from_secs_f64(seconds).unwrap_or(NEVER).min(NEVER)
    }

    fn place(&mut self) {
        self.next = match (&self.process, &mut self.walk) {
            (Process::Poisson(process), Some(walk)) => {
                let seconds = walk.next(process);
                self.at(seconds)
            }
            _ => self.constant(self.taken),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(share: Share, seconds: u64) -> (Moment, Vec<Moment>) {
        let start = Moment::now();
        let mut schedule = Schedule::new(start, share, Rng::new(7, 1));
        let until = start + Duration::from_secs(seconds);
        (start, std::iter::from_fn(|| Some(schedule.take_due(until)?.intended)).collect())
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let share = Share { rate_tps: 3.0, offset: 0.0, arrivals: Arrivals::Constant, count: None };
        let (start, at) = taken(share, 1_000);
        assert_eq!(at.len(), 3_001);
        for (k, at) in at.iter().enumerate() {
            let wanted = k as f64 / 3.0;
            assert!(((*at - start).as_secs_f64() - wanted).abs() < 1e-6);
        }
    }

    #[test]
    fn workers_interleave() {
        let share = |offset| Share { rate_tps: 10.0, offset, arrivals: Arrivals::Constant, count: None };
        let (start, first) = taken(share(0.0), 1);
        let (other_start, second) = taken(share(0.5), 1);
        assert_eq!((first[1] - start).as_millis(), 100);
        assert_eq!((second[0] - other_start).as_millis(), 50);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_exponential_gaps() {
        let share = Share { rate_tps: 100.0, offset: 0.0, arrivals: Arrivals::Poisson, count: None };
        let (start, at) = taken(share, 1_000);
        let n = at.len() as f64;
        assert!((n - 100_000.0).abs() < 4.0 * 100_000f64.sqrt(), "{n}");
        let gaps: Vec<f64> = at.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64()).collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((variance.sqrt() / mean - 1.0).abs() < 0.02, "coefficient of variation");
        assert!(at[0] > start);
    }

    #[test]
    fn what_is_not_taken_stays_due() {
        let start = Moment::now();
        let share = Share { rate_tps: 1_000.0, offset: 0.0, arrivals: Arrivals::Constant, count: None };
        let mut schedule = Schedule::new(start, share, Rng::new(1, 1));
        schedule.end_at(start + Duration::from_secs(2));
        let later = start + Duration::from_secs(60);
        assert_eq!(schedule.due(start), 0);
        assert_eq!(schedule.due(start + Duration::from_millis(1)), 1);
        assert_eq!(schedule.due(later), 2_000);
        assert_eq!(schedule.take_due(later), Some(Arrival { intended: start, is_counted: true }));
        assert_eq!(schedule.due(later), 1_999);
        while schedule.take_due(later).is_some() {}
        assert_eq!((schedule.next(), schedule.due(later)), (None, 0));
    }

    #[test]
    fn a_backlog_is_what_walking_through_it_counts() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            for rate_tps in [0.3, 7.0, 100.0, 33_333.3] {
                let start = Moment::now();
                let share = Share { rate_tps, offset: 0.3, arrivals, count: None };
                let schedule = Schedule::new(start, share, Rng::new(3, 5));
                let mut walked = schedule.clone();
                let mut count = 0;
                for slice in 1..=40u64 {
                    let until = start + Duration::from_millis(slice * 137);
                    while walked.next().is_some_and(|next| next < until) {
                        walked.take_due(until);
                        count += 1;
                    }
                    assert_eq!(schedule.due(until), count, "{arrivals:?} {rate_tps} {slice}");
                }
            }
        }
    }

    #[test]
    fn the_largest_backlog_is_counted_in_no_time() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let began = Moment::now();
            let share = Share { rate_tps: crate::plan::RATE_MAX_TPS, offset: 0.0, arrivals, count: None };
            let mut schedule = Schedule::new(began, share, Rng::new(3, 5));
            let due = schedule.due(began + Duration::from_secs(1_000)) as f64;
            assert!((due / 1e12 - 1.0).abs() < 1e-5, "{due}");
            schedule.end_at(began + Duration::from_secs(2));
            let due = schedule.due(began + Duration::from_secs(1_000)) as f64;
            assert!((due / 2e9 - 1.0).abs() < 1e-3, "{due}");
            assert!(schedule.take_due(began + Duration::from_millis(1)).is_some());
            assert!(Moment::now() - began < Duration::from_secs(10), "walked through");
        }
    }

    #[test]
    fn a_fixed_number_arrives_after_the_warm_up() {
        for arrivals in [Arrivals::Constant, Arrivals::Poisson] {
            let start = Moment::now();
            let share = Share { rate_tps: 100.0, offset: 0.5, arrivals, count: None };
            let mut schedule = Schedule::new(start, share, Rng::new(9, 1));
            let measured = start + Duration::from_secs(2);
            schedule.count_from(measured, 50);
            let later = start + Duration::from_secs(60);
            let all: Vec<Arrival> = std::iter::from_fn(|| schedule.take_due(later)).collect();
            let (counted, before): (Vec<Arrival>, Vec<Arrival>) =
                all.into_iter().partition(|arrival| arrival.is_counted);
            assert_eq!(counted.len(), 50);
            assert!(before.len() > 150 && before.iter().all(|arrival| arrival.intended < measured));
            assert!(counted.iter().all(|arrival| arrival.intended >= measured));
            assert_eq!((schedule.due(later), schedule.is_exhausted()), (0, true));
            schedule.give_back();
            assert_eq!((schedule.due(later), schedule.is_exhausted()), (1, false));
            assert_eq!(schedule.between(measured, later), 51);
            let mut waited = Total::default();
            schedule.waits(measured, later, &mut waited);
            let waited = waited.to_histogram();
            let exact = later - schedule.next().unwrap();
            assert_eq!(waited.len(), 1);
            assert!(
                waited.max_ms() <= exact.as_secs_f64() * 1e3
                    && waited.max_ms() > 0.99 * exact.as_secs_f64() * 1e3
            );
        }
    }
}
