//! Ids of new rows where the server does not number them.

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

impl NewIds {
    pub(crate) fn new(table_size: u64, seed: u64) -> NewIds {
        NewIds { table_size, seed }
    }

    pub(crate) fn next(&mut self) -> i64 {
        loop {
            let number = NEXT_ID.fetch_add(1, Ordering::Relaxed).wrapping_add(self.seed) as u32;
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

    #[test]
    fn new_ids_never_repeat_and_avoid_loaded_rows() {
        let mut ids = NewIds::new(1_000_000_000, 3);
        let drawn: HashSet<i64> = (0..100_000).map(|_| ids.next()).collect();
        assert_eq!(drawn.len(), 100_000);
        assert!(drawn.iter().all(|id| !(1..=1_000_000_000).contains(id) && i32::try_from(*id).is_ok()));
    }
}
