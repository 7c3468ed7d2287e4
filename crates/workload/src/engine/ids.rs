//! Ids of new rows where the server does not number them: numbers that no other session of the load has, in whatever
//! process it lives.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::permute;

/// 32-bit numbers in a scattered order without repetition over all sessions of the process, none of them that of a loaded
/// row, as sysbench's.
#[derive(Debug)]
pub(crate) struct NewIds {
    table_size: u64,
    seed: u64,
}

/// Sessions share the sequence, or their ids would meet.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);
/// So far apart are the numbers that this process takes: the processes of one load take them in turn.
static STEP: AtomicU64 = AtomicU64::new(1);

/// The first number that nobody has had. Of numbers taken in turn with other processes, those before it may be theirs.
pub fn passed() -> u64 {
    NEXT_ID.load(Ordering::Relaxed)
}

/// From now on this process takes every `of`th number, beginning with the `at`th (from 0) from `first` on.
pub fn take_in_turn(first: u64, at: u64, of: u64) {
    STEP.store(of.max(1), Ordering::Relaxed);
    NEXT_ID.store(first + at, Ordering::Relaxed);
}

/// Other processes have had the numbers before `passed`.
pub fn skip_to(passed: u64) {
    NEXT_ID.fetch_max(passed, Ordering::Relaxed);
}

impl NewIds {
    pub(crate) fn new(table_size: u64, seed: u64) -> NewIds {
        NewIds { table_size, seed }
    }

    pub(crate) fn next(&mut self) -> i64 {
        loop {
            let step = STEP.load(Ordering::Relaxed);
            let number = NEXT_ID.fetch_add(step, Ordering::Relaxed).wrapping_add(self.seed) as u32;
            let id = i64::from(permute(permute(number) ^ 0x5bd1_e995)) - (1 << 31);
            if id > self.table_size as i64 || id < 1 {
                return id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Of all processes, which a test has only one of: what one takes after the other.
    #[test]
    fn processes_in_turn_never_meet() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let first = passed();
        let mut all = HashSet::new();
        let mut last = first;
        for at in 0..3 {
            take_in_turn(first, at, 3);
            let mut ids = NewIds::new(1_000, 3);
            assert!((0..500 * (at + 1)).all(|_| all.insert(ids.next())), "process {at}");
            last = last.max(passed());
        }
        take_in_turn(last, 0, 1);
        let mut ids = NewIds::new(1_000, 3);
        assert!((0..500).all(|_| all.insert(ids.next())), "the next load");
    }

    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn new_ids_never_repeat_and_avoid_loaded_rows() {
        let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut ids = NewIds::new(1_000_000_000, 3);
        let drawn: HashSet<i64> = (0..100_000).map(|_| ids.next()).collect();
        assert_eq!(drawn.len(), 100_000);
        assert!(drawn.iter().all(|id| !(1..=1_000_000_000).contains(id) && i32::try_from(*id).is_ok()));
    }
}
