//! When transactions arrive in open loop: a schedule for each worker, computed ahead of time and never adjusted
//! to how fast the server answers.

use std::time::Duration;

use crate::plan::Arrivals;
use crate::rng::Rng;
use crate::time::Moment;

/// A worker's part of the whole arrival process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share {
    /// Arrivals per second of this worker.
    pub(crate) rate_tps: f64,
    /// Where between two arrivals the first one falls, 0 to 1: workers interleave instead of arriving together.
    pub(crate) offset: f64,
    pub(crate) arrivals: Arrivals,
}

/// One pass over the arrivals.
#[derive(Debug, Clone)]
struct Cursor {
    start: Moment,
    share: Share,
    rng: Rng,
    /// In units of 1 / rate.
    position: f64,
    next: Moment,
    passed: u64,
}

impl Cursor {
    fn advance(&mut self) {
        self.position += match self.share.arrivals {
            Arrivals::Constant => 1.0,
            Arrivals::Poisson => self.rng.exponential(),
        };
        self.passed += 1;
        self.place();
    }

    fn place(&mut self) {
        // A rate so small that the time does not fit: never.
        let seconds = self.position / self.share.rate_tps;
        let offset = Duration::try_from_secs_f64(seconds).unwrap_or(NEVER);
        self.next = self.start + offset.min(NEVER);
    }
}

const NEVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The arrivals of one worker.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    /// At the next arrival that nobody has taken.
    taking: Cursor,
    /// At the next arrival that was not due when somebody last asked: the backlog is what lies between.
    counting: Cursor,
    /// No arrival at or after this time.
    end: Option<Moment>,
}

impl Schedule {
    pub(crate) fn new(start: Moment, share: Share, rng: Rng) -> Schedule {
        let mut cursor = Cursor { start, share, rng, position: share.offset, next: start, passed: 0 };
        if share.arrivals == Arrivals::Poisson {
            cursor.position = cursor.rng.exponential();
        }
        cursor.place();
        Schedule { taking: cursor.clone(), counting: cursor, end: None }
    }

    /// No arrivals from then on.
    pub(crate) fn end_at(&mut self, end: Moment) {
        self.end = Some(self.end.map_or(end, |known| known.min(end)));
    }

    /// The next arrival that nobody has taken, if there will be one.
    #[inline]
    pub(crate) fn next(&self) -> Option<Moment> {
        self.end.is_none_or(|end| self.taking.next < end).then_some(self.taking.next)
    }

    /// Takes the next arrival if it is due.
    #[inline]
    pub(crate) fn take_due(&mut self, now: Moment) -> Option<Moment> {
        let due = self.next().filter(|due| *due <= now)?;
        self.taking.advance();
        Some(due)
    }

    /// How many were due before `now` and have not been taken. Asked with times that do not go back.
    pub(crate) fn due(&mut self, now: Moment) -> u64 {
        while self.counting.next < now && self.end.is_none_or(|end| self.counting.next < end) {
            self.counting.advance();
        }
        self.counting.passed.saturating_sub(self.taking.passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(share: Share, seconds: u64) -> (Moment, Vec<Moment>) {
        let start = Moment::now();
        let mut schedule = Schedule::new(start, share, Rng::new(7, 1));
        let until = start + Duration::from_secs(seconds);
        (start, std::iter::from_fn(|| schedule.take_due(until)).collect())
    }

    #[test]
    fn constant_arrivals_do_not_drift() {
        let share = Share { rate_tps: 3.0, offset: 0.0, arrivals: Arrivals::Constant };
        let (start, at) = taken(share, 1_000);
        assert_eq!(at.len(), 3_001);
        for (k, at) in at.iter().enumerate() {
            let wanted = k as f64 / 3.0;
            assert!(((*at - start).as_secs_f64() - wanted).abs() < 1e-6);
        }
    }

    #[test]
    fn workers_interleave() {
        let share = |offset| Share { rate_tps: 10.0, offset, arrivals: Arrivals::Constant };
        let (start, first) = taken(share(0.0), 1);
        let (other_start, second) = taken(share(0.5), 1);
        assert_eq!((first[1] - start).as_millis(), 100);
        assert_eq!((second[0] - other_start).as_millis(), 50);
    }

    #[test]
    fn poisson_arrivals_have_the_rate_and_the_spread_of_exponential_gaps() {
        let share = Share { rate_tps: 100.0, offset: 0.0, arrivals: Arrivals::Poisson };
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
        let share = Share { rate_tps: 1_000.0, offset: 0.0, arrivals: Arrivals::Constant };
        let mut schedule = Schedule::new(start, share, Rng::new(1, 1));
        schedule.end_at(start + Duration::from_secs(2));
        let later = start + Duration::from_secs(60);
        assert_eq!(schedule.due(start), 0);
        assert_eq!(schedule.due(start + Duration::from_millis(1)), 1);
        assert_eq!(schedule.due(later), 2_000);
        assert_eq!(schedule.take_due(later), Some(start));
        assert_eq!(schedule.due(later), 1_999);
        while schedule.take_due(later).is_some() {}
        assert_eq!((schedule.next(), schedule.due(later)), (None, 0));
    }
}
