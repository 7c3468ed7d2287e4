//! What others took of the machine during a slice: neighbours meet the sides of a duel in different slices, and different
//! servers suffer from them differently, so that a slice that they disturbed says nothing of the servers.

use serde::{Deserialize, Serialize};
use telemetry::CpuTime;
use telemetry::gates::Noise;

use crate::duel::quiet::Used;

/// A slice in which others took more of the cpu that server and client wanted is disturbed. Two cpus, one of them used by
/// a neighbour for the fifth part of a slice: 0.1.
pub(crate) const DISTURBED_SHARE_MIN: f64 = 0.1;

/// The cpus at a moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    cpu: CpuTime,
    /// Used by this process and the duel's servers.
    own_s: f64,
}

impl Look {
    /// Now; `None` where the cpus or one of the servers cannot be seen.
    pub(crate) fn now(server_pids: &[u32]) -> Option<Look> {
        let cpu = CpuTime::now(server_pids)?;
        let servers = server_pids.iter().map(|pid| Some(Used::of(*pid)?.cpu_s));
        let own = std::iter::once(Some(Used::of_this_process()?.cpu_s));
        Some(Look { cpu, own_s: own.chain(servers).sum::<Option<f64>>()? })
    }

    /// What was done between an earlier look and this one.
    pub(crate) fn since(&self, before: &Look) -> Span {
        Span { cpu: self.cpu.since(&before.cpu), own_s: (self.own_s - before.own_s).max(0.0) }
    }

    /// What others took since then, as a share of what this process and the servers wanted.
    pub(crate) fn taken_share(&self, before: &Look) -> Option<f64> {
        self.since(before).noise().taken_share()
    }
}

/// What the cpus did between two looks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) cpu: CpuTime,
    /// Used by this process and the duel's servers.
    pub(crate) own_s: f64,
}

impl Span {
    /// Both, one after the other.
    pub(crate) fn and(&self, later: &Span) -> Span {
        Span { cpu: self.cpu.and(&later.cpu), own_s: self.own_s + later.own_s }
    }

    pub(crate) fn noise(&self) -> Noise {
        Noise {
            there_s: self.cpu.there_s,
            busy_s: Some(self.cpu.busy_s),
            low_priority_s: self.cpu.low_priority_s,
            own_s: Some(self.own_s),
            stolen_s: self.cpu.stolen_s,
            busiest: None,
            canary_ratio: None,
        }
    }
}

/// What is known of a slice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Taken {
    /// What others took of the cpu that was wanted; `None` where it was not seen.
    pub(crate) share: Option<f64>,
    /// It is part of the run's figures.
    pub(crate) is_counted: bool,
}

impl Taken {
    /// A slice of which nothing is known counts.
    pub(crate) const UNSEEN: Taken = Taken { share: None, is_counted: true };

    fn is_disturbed(share: Option<f64>) -> bool {
        share.is_some_and(|share| share >= DISTURBED_SHARE_MIN)
    }
}

/// Slices that nobody disturbed.
pub(crate) fn quiet(shares: &[Option<f64>]) -> usize {
    shares.iter().filter(|share| !Taken::is_disturbed(**share)).count()
}

/// Whether a duel has what it needs, at the end of a round in which each side had a slice: by side, the shares so far.
/// `wanted` quiet slices of each side; after as many rounds without a single quiet one of a side more would not help.
pub(crate) fn is_enough(by_side: &[&[Option<f64>]], wanted: usize) -> bool {
    let rounds = by_side.iter().map(|shares| shares.len()).min().unwrap_or(0);
    let quiet: Vec<usize> = by_side.iter().map(|shares| quiet(shares)).collect();
    rounds >= wanted && (quiet.iter().all(|quiet| *quiet >= wanted) || quiet.contains(&0))
}

/// Which slices count: the quiet ones, where every side has at least half of what was wanted, and two. Else all of them,
/// and the gate `noisy_host` says what they are worth.
pub(crate) fn counted(by_side: &[&[Option<f64>]], side: usize, wanted: usize) -> Vec<Taken> {
    let least = wanted.div_ceil(2).max(2);
    let is_quiet_enough = by_side.iter().all(|shares| quiet(shares) >= least);
    let taken = |share: &Option<f64>| Taken {
        share: *share,
        is_counted: !(is_quiet_enough && Taken::is_disturbed(*share)),
    };
    by_side[side].iter().map(taken).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: Option<f64> = Some(0.02);
    const NOISY: Option<f64> = Some(0.4);

    #[test]
    fn a_quiet_duel_has_enough_after_what_was_wanted() {
        assert!(!is_enough(&[&[QUIET, QUIET], &[QUIET, QUIET]], 3));
        assert!(is_enough(&[&[QUIET; 3], &[None; 3]], 3), "what cannot be seen is not waited for");
    }

    #[test]
    fn disturbed_slices_are_made_again_and_left_out() {
        let (one, other) = ([QUIET, NOISY, QUIET], [QUIET, QUIET, QUIET]);
        assert!(!is_enough(&[&one, &other], 3));
        let (one, other) = ([QUIET, NOISY, QUIET, QUIET], [QUIET; 4]);
        assert!(is_enough(&[&one, &other], 3));
        let of_one = counted(&[&one, &other], 0, 3);
        assert_eq!(
            of_one.iter().map(|taken| taken.is_counted).collect::<Vec<_>>(),
            [true, false, true, true]
        );
        assert!(counted(&[&one, &other], 1, 3).iter().all(|taken| taken.is_counted));
    }

    #[test]
    fn where_nothing_is_quiet_all_counts_and_nobody_waits() {
        let (one, other) = ([NOISY; 3], [NOISY, QUIET, NOISY]);
        assert!(is_enough(&[&one, &other], 3), "a side without a quiet slice gets no second chance");
        assert!(counted(&[&one, &other], 1, 3).iter().all(|taken| taken.is_counted));
        assert!(!is_enough(&[&[NOISY, NOISY, QUIET], &other], 3));
    }

    #[test]
    fn a_machine_without_others_is_quiet() {
        let before = Look::now(&[]).unwrap();
        let began = std::time::Instant::now();
        while began.elapsed().as_millis() < 50 {
            std::hint::black_box(began.elapsed());
        }
        let share = Look::now(&[]).unwrap().taken_share(&before).unwrap();
        assert!((0.0..=1.0).contains(&share), "{share}");
    }
}
