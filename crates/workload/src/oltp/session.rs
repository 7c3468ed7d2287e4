//! A session of the family: draws a transaction, then sends it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use load::{AnySession, Completion, Failure, Recorder, Session, SessionFactory};
use wire::{Done, StatementKind};

use super::mix::{Mix, Op, Program};
use super::options::Settings;
use crate::link::{Link, LinkPlan};
use crate::random::Rng;
use crate::statements::{StatementPlan, Statements};
use crate::tally::{Change, SessionTally, Tally};

/// Makes the sessions of a run.
#[derive(Debug)]
pub(super) struct Factory {
    pub(super) settings: Arc<Settings>,
    pub(super) mix: Arc<Mix>,
    pub(super) link: Arc<LinkPlan>,
    pub(super) statements: Arc<StatementPlan>,
    pub(super) tally: Arc<Tally>,
    pub(super) seed: u64,
}

impl SessionFactory for Factory {
    fn statement_classes(&self) -> Vec<String> {
        self.mix.classes()
    }

    fn session(&self, index: u32) -> Box<dyn AnySession> {
        Box::new(OltpSession {
            rng: Rng::stream(self.seed, u64::from(index)),
            ids: NewIds::new(self.settings.table_size, self.seed),
            link: Link::new(Arc::clone(&self.link)),
            statements: Statements::new(Arc::clone(&self.statements)),
            settings: Arc::clone(&self.settings),
            mix: Arc::clone(&self.mix),
            program: Program::default(),
            tally: SessionTally::new(Arc::clone(&self.tally)),
            transactions: 0,
        })
    }
}

struct OltpSession {
    rng: Rng,
    ids: NewIds,
    link: Link,
    statements: Statements,
    settings: Arc<Settings>,
    mix: Arc<Mix>,
    program: Program,
    tally: SessionTally,
    /// Since the connection was opened.
    transactions: u64,
}

impl OltpSession {
    /// One statement on the wire, nothing else.
    #[inline]
    async fn send(&mut self, op: Op) -> Result<Done, Failure> {
        let OltpSession { link, statements, program, .. } = self;
        let (template, table) = (op.template as usize, op.table as usize);
        let connection = link.connection()?;
        if !statements.is_ready(template, table) {
            let prepared = statements.prepare_late(connection, template, table).await;
            prepared.map_err(|error| link.failed(error))?;
        }
        let connection = link.connection()?;
        let started = program.with_values(op, |values| statements.start(connection, template, table, values));
        let done = match started {
            Ok(started) => statements.finish(connection, template, table, started).await,
            Err(error) => Err(error),
        };
        done.map_err(|error| link.failed(error))
    }

    async fn statements_of_transaction(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        for index in 0..self.program.ops.len() {
            let op = self.program.ops[index];
            let effect = self.mix.effect(op.template);
            let is_held = self.mix.is_held_until_commit();
            let is_watched = effect != Change::default();
            if !is_held && is_watched {
                self.tally.sending(effect);
            }
            let done = self.send(op).await?;
            recorder.lap(self.mix.class(op.template), done.kind());
            if !is_watched {
                continue;
            }
            // Each statement names one row: affected or not.
            let changed = if done.affected_rows > 0 { effect } else { Change::default() };
            if is_held {
                self.tally.changed(changed);
            } else {
                self.tally.sent(changed);
            }
        }
        Ok(())
    }

    /// A new connection in place of the old one. Boxed, and out of line: it is rare, and would make the session's future
    /// and every statement's stack frame larger.
    #[cold]
    #[inline(never)]
    fn reopen(&mut self) -> Pin<Box<dyn Future<Output = Result<(), Failure>> + '_>> {
        Box::pin(async {
            self.link.close().await;
            self.open().await
        })
    }

    async fn attempt(&mut self, recorder: &Recorder) -> Result<(), Failure> {
        if self.settings.reconnect > 0 && self.transactions >= self.settings.reconnect {
            // In the transaction's latency, as in sysbench, but no statement's.
            self.reopen().await?;
            recorder.restart();
        }
        let is_transaction = self.mix.is_transaction;
        if is_transaction {
            self.tally.begin();
            let done = self.link.begin().await?;
            recorder.lap(0, done.kind());
        }
        self.statements_of_transaction(recorder).await?;
        if is_transaction {
            self.tally.committing();
            self.link.commit().await?;
            self.tally.committed();
            recorder.lap(self.mix.commit_class(), StatementKind::Other);
        }
        Ok(())
    }
}

impl Session for OltpSession {
    async fn open(&mut self) -> Result<(), Failure> {
        self.transactions = 0;
        self.link.open().await?;
        let opened = self.statements.open(self.link.connection()?).await;
        opened.map_err(|error| self.link.failure(&error))
    }

    fn prepare(&mut self) {
        let OltpSession { mix, settings, rng, ids, program, .. } = self;
        mix.draw(settings, rng, &mut || ids.next(), program);
    }

    async fn transaction(&mut self, recorder: &Recorder) -> Result<Completion, Failure> {
        match self.attempt(recorder).await {
            Ok(()) => {
                self.transactions += 1;
                Ok(Completion::Committed)
            }
            Err(failure) => {
                self.tally.failed(failure.connection_lost);
                Err(failure)
            }
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        self.link.recover().await
    }

    async fn close(&mut self) {
        self.link.close().await;
    }
}

/// Ids for inserts where the server does not number the rows: 32-bit numbers in a scattered order without
/// repetition over all sessions of the process, none of them that of a loaded row. Quadratic residues modulo the
/// prime 4294967291 = 3 mod 4 give the permutation (J. Preshing, "How to generate a sequence of unique random
/// integers", 2012), as in sysbench.
#[derive(Debug)]
struct NewIds {
    table_size: u64,
    seed: u64,
}

/// Sessions share the sequence, or their ids would meet.
static NEXT_ID: AtomicU64 = AtomicU64::new(0);

impl NewIds {
    fn new(table_size: u64, seed: u64) -> NewIds {
        NewIds { table_size, seed }
    }

    fn next(&mut self) -> i64 {
        loop {
            let number = NEXT_ID.fetch_add(1, Ordering::Relaxed).wrapping_add(self.seed) as u32;
            let id = i64::from(permute(permute(number) ^ 0x5bd1_e995)) - (1 << 31);
            if id > self.table_size as i64 || id < 1 {
                return id;
            }
        }
    }
}

/// A permutation of all 32-bit numbers.
fn permute(number: u32) -> u32 {
    const PRIME: u64 = 4_294_967_291;
    let number = u64::from(number);
    if number >= PRIME {
        // The five numbers past the prime stay where they are.
        return number as u32;
    }
    let residue = number * number % PRIME;
    (if number <= PRIME / 2 { residue } else { PRIME - residue }) as u32
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

    #[test]
    fn the_permutation_has_no_collision_at_its_seams() {
        let seams =
            [0, 1, 2_147_483_645, 2_147_483_646, 2_147_483_647, 4_294_967_290, 4_294_967_291, u32::MAX];
        let images: HashSet<u32> = seams.iter().map(|&n| permute(n)).collect();
        assert_eq!(images.len(), seams.len());
    }
}
