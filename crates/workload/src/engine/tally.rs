//! What sessions changed in their tables, counted apart from the engine's outcomes: the checks need rows, not
//! transactions. Counting costs nothing shared while a session runs; it adds its own sums when it is dropped.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};

/// Net change of the figures that the checks look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Change {
    /// Rows inserted less rows deleted.
    pub(crate) rows: i64,
    /// Sum that UPDATEs added to `k`.
    pub(crate) k: i64,
}

impl Change {
    #[inline]
    pub(crate) fn is_none(self) -> bool {
        self == Change::default()
    }

    #[inline]
    pub(crate) fn times(self, rows: u64) -> Change {
        Change { rows: self.rows * rows as i64, k: self.k * rows as i64 }
    }

    fn add(&mut self, other: Change) {
        self.rows += other.rows;
        self.k += other.k;
    }
}

/// All changes: those that are sure, and the limits of what lost connections leave open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Confirmed by the server.
    pub(crate) sure: Change,
    /// The least that changes in doubt may add.
    pub(crate) doubt_low: Change,
    /// The most that changes in doubt may add.
    pub(crate) doubt_high: Change,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.sure.add(other.sure);
        self.doubt_low.add(other.doubt_low);
        self.doubt_high.add(other.doubt_high);
    }

    /// The least and the most that one figure may have changed since `before`.
    pub(crate) fn since(&self, before: &Totals, of: fn(Change) -> i64) -> (i128, i128) {
        let grown = |part: fn(&Totals) -> Change| i128::from(of(part(self))) - i128::from(of(part(before)));
        let sure = grown(|totals| totals.sure);
        (sure + grown(|totals| totals.doubt_low), sure + grown(|totals| totals.doubt_high))
    }

    fn doubt(&mut self, change: Change) {
        self.doubt_low.add(Change { rows: change.rows.min(0), k: change.k.min(0) });
        self.doubt_high.add(Change { rows: change.rows.max(0), k: change.k.max(0) });
    }
}

/// Where the sessions of a configured workload add what they changed.
#[derive(Debug, Default)]
pub struct Tally {
    totals: Mutex<Totals>,
}

impl Tally {
    /// Everything that sessions dropped so far have changed.
    pub(crate) fn totals(&self) -> Totals {
        *self.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The same, and forgets it.
    pub fn take(&self) -> Totals {
        std::mem::take(&mut *self.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// Adds what sessions of another process have changed.
    pub fn add(&self, theirs: &Totals) {
        self.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner).add(theirs);
    }
}

/// One session's count.
#[derive(Debug)]
pub(crate) struct SessionTally {
    shared: std::sync::Arc<Tally>,
    mine: Totals,
    /// Done in the transaction that is open.
    open: Change,
    /// On its way to be made permanent: a COMMIT, or a statement without a transaction.
    in_flight: Change,
}

impl SessionTally {
    /// Nothing changed yet.
    pub(crate) fn new(shared: std::sync::Arc<Tally>) -> SessionTally {
        SessionTally {
            shared,
            mine: Totals::default(),
            open: Change::default(),
            in_flight: Change::default(),
        }
    }

    /// A transaction begins; what an earlier one left open was rolled back.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.open = Change::default();
    }

    /// A statement inside the transaction changed this.
    #[inline]
    pub(crate) fn changed(&mut self, change: Change) {
        self.open.add(change);
    }

    /// COMMIT is about to be sent.
    #[inline]
    pub(crate) fn committing(&mut self) {
        self.in_flight = std::mem::take(&mut self.open);
    }

    /// A statement outside of transactions is about to be sent that may change as much as this.
    #[inline]
    pub(crate) fn sending(&mut self, at_most: Change) {
        self.in_flight = at_most;
    }

    /// COMMIT was confirmed.
    #[inline]
    pub(crate) fn committed(&mut self) {
        self.mine.sure.add(std::mem::take(&mut self.in_flight));
    }

    /// The statement outside of transactions was confirmed and changed this.
    #[inline]
    pub(crate) fn sent(&mut self, change: Change) {
        self.in_flight = Change::default();
        self.mine.sure.add(change);
    }

    /// Something failed. Where the connection was lost, what was in flight may have happened.
    #[cold]
    pub(crate) fn failed(&mut self, connection_lost: bool) {
        let change = std::mem::take(&mut self.in_flight);
        self.open = Change::default();
        if connection_lost {
            self.mine.doubt(change);
        }
    }
}

impl Drop for SessionTally {
    fn drop(&mut self) {
        // A session may be dropped in the middle of an exchange.
        self.failed(true);
        self.shared.add(&self.mine);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    const INSERT: Change = Change { rows: 1, k: 0 };

    #[test]
    fn only_confirmed_changes_are_sure() {
        let shared = Arc::new(Tally::default());
        let mut session = SessionTally::new(Arc::clone(&shared));
        session.begin();
        session.changed(INSERT);
        session.committing();
        session.committed();
        // Rolled back: never counted.
        session.begin();
        session.changed(INSERT);
        session.failed(false);
        // A statement of its own that changed nothing.
        session.sending(INSERT);
        session.sent(Change::default());
        // Lost before COMMIT was sent: the server rolls it back.
        session.begin();
        session.changed(INSERT);
        session.failed(true);
        drop(session);
        assert_eq!(shared.totals(), Totals { sure: INSERT, ..Totals::default() });
    }

    #[test]
    fn what_was_in_flight_is_in_doubt() {
        let shared = Arc::new(Tally::default());
        let mut session = SessionTally::new(Arc::clone(&shared));
        session.sending(INSERT);
        drop(session);
        let mut session = SessionTally::new(Arc::clone(&shared));
        session.sending(Change { rows: -1, k: 0 });
        session.failed(true);
        drop(session);
        let totals = shared.totals();
        assert_eq!((totals.doubt_low.rows, totals.doubt_high.rows, totals.sure.rows), (-1, 1, 0));
    }
}
