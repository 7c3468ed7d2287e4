//! How much earlier than a timer is due the thread is to be woken.

use std::cell::Cell;
use std::time::Duration;

use crate::time::Moment;

/// No timer is aimed earlier than this: a machine whose wake-ups are later than that is late, and says so.
const HEAD_START_MAX_NS: u64 = 200_000;
/// By how much one wake-up changes the head start of the next.
const HEAD_START_STEP_NS: u64 = 1_000;

/// How much earlier than a timer's time the thread is to be woken, since it takes as long to get going: from the
/// kernel's timer through a processor that slept to the code here, in most cases 30 to 100 us. Learnt from the wake-ups
/// themselves: a late one raises it by three steps, one in time lowers it by one, so that three in four are in time.
#[derive(Debug)]
pub(super) struct HeadStart {
    learnt_ns: Cell<u64>,
    /// The timer that was last asked for, and when the thread is to be woken for it.
    aim: Cell<(Moment, Moment)>,
}

impl HeadStart {
    pub(super) fn new() -> HeadStart {
        HeadStart { learnt_ns: Cell::new(0), aim: Cell::new((Moment::START, Moment::START)) }
    }

    /// When to wake the thread for a timer. At most an eighth of the time until then is given away: where arrivals
    /// follow each other closely, the thread would otherwise never sleep, and take a cpu that the server may need.
    pub(super) fn before(&self, due: Moment, now: Moment) -> Moment {
        let (aimed_at, until) = self.aim.get();
        if aimed_at == due {
            return until;
        }
        let head_start_ns = self.learnt_ns.get().min(due.nanos_since(now) / 8);
        let until = due - Duration::from_nanos(head_start_ns);
        self.aim.set((due, until));
        until
    }

    /// Takes in that a thread which was to be woken at some time was awake `late_ns` later.
    pub(super) fn learn(&self, late_ns: u64) {
        let now_ns = self.learnt_ns.get();
        let next_ns = if late_ns > now_ns {
            now_ns + 3 * HEAD_START_STEP_NS
        } else {
            now_ns.saturating_sub(HEAD_START_STEP_NS)
        };
        self.learnt_ns.set(next_ns.min(HEAD_START_MAX_NS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_start_settles_where_three_in_four_wake_ups_are_in_time() {
        let head_start = HeadStart::new();
        let late = |n: u64| if n % 4 == 3 { 90_000 } else { 60_000 };
        (0..1_000).for_each(|n| head_start.learn(late(n)));
        assert!((58_000..=66_000).contains(&head_start.learnt_ns.get()), "{head_start:?}");
        (0..1_000).for_each(|n| head_start.learn(1_000_000 + n));
        assert_eq!(head_start.learnt_ns.get(), HEAD_START_MAX_NS);
        (0..1_000).for_each(|_| head_start.learn(0));
        assert_eq!(head_start.learnt_ns.get(), 0);
    }

    #[test]
    fn a_head_start_never_keeps_the_thread_from_sleeping() {
        let head_start = HeadStart::new();
        (0..100).for_each(|_| head_start.learn(1_000_000));
        let micros = |n: u64| Moment::START + Duration::from_micros(n);
        // Far: what was learnt. The aim stays while the thread is woken by answers in between.
        assert_eq!(head_start.before(micros(10_000), micros(0)), micros(9_800));
        assert_eq!(head_start.before(micros(10_000), micros(9_900)), micros(9_800));
        // Near: an eighth.
        assert_eq!(head_start.before(micros(10_080), micros(10_000)), micros(10_070));
        // Over.
        assert_eq!(head_start.before(micros(10_100), micros(10_200)), micros(10_100));
    }
}
