//! A session of the family: draws a transaction, then sends it.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use load::{AnySession, Completion, Failure, Recorder, Session, SessionFactory};
use wire::{Done, Started, StatementKind};

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
            is_transaction: self.mix.is_transaction,
            is_held: self.mix.is_held_until_commit(),
            transactions: 0,
            transactions_max: if self.settings.reconnect > 0 { self.settings.reconnect } else { u64::MAX },
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
    /// BEGIN and COMMIT around the statements. This and the next are the mix's: kept where the session has them at hand.
    is_transaction: bool,
    /// What statements change is permanent only with the COMMIT.
    is_held: bool,
    /// Since the connection was opened.
    transactions: u64,
    /// After so many the connection is opened anew.
    transactions_max: u64,
}

/// What comes next in a transaction.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// A new connection, after so many transactions.
    Reopening,
    /// BEGIN.
    Begin,
    /// A statement of the program.
    Op(Op),
    /// COMMIT.
    Commit,
    /// Nothing: the transaction is over.
    Over,
}

impl OltpSession {
    #[inline]
    fn first(&self) -> Part {
        match (self.transactions >= self.transactions_max, self.is_transaction) {
            (true, _) => Part::Reopening,
            (false, true) => Part::Begin,
            (false, false) => self.op_or_end(0),
        }
    }

    #[inline(always)]
    fn op_or_end(&self, index: usize) -> Part {
        match self.program.op(index) {
            Some(op) => Part::Op(op),
            None if self.is_transaction => Part::Commit,
            None => Part::Over,
        }
    }

    /// Sends a statement of the program. `None`: it has to be prepared first, or there is no connection.
    #[inline(always)]
    fn start_op(&mut self, op: Op) -> Option<Result<Started, wire::Error>> {
        let OltpSession { link, statements, program, .. } = self;
        let (template, table) = (op.template as usize, op.table as usize);
        if !statements.is_ready(template, table) {
            return None;
        }
        if op.is_tallied && !self.is_held {
            self.tally.sending(self.mix.effect(op.template));
        }
        let connection = link.open_connection()?;
        Some(program.with_values(op, |values| statements.start(connection, template, table, values)))
    }

    /// Sends BEGIN or COMMIT. `None`: something else has to be done.
    #[inline(never)]
    fn start_bracket(&mut self, part: Part) -> Option<Result<Started, wire::Error>> {
        match part {
            Part::Begin => {
                self.tally.begin();
                self.link.start_begin()
            }
            Part::Commit => {
                self.tally.committing();
                self.link.start_commit()
            }
            _ => None,
        }
    }

    /// Looks for the answer. `None`: it has to be waited for in another way.
    #[inline(always)]
    fn poll_answer(
        &mut self,
        part: &Part,
        started: &Started,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Done, wire::Error>>> {
        let OltpSession { link, statements, .. } = self;
        let Some(connection) = link.open_connection() else { return Poll::Ready(None) };
        let statement = match part {
            Part::Op(op) => statements.find(op.template as usize, op.table as usize),
            _ => None,
        };
        connection.poll_finish(statement, started, cx)
    }

    /// Does a part by whatever it takes, waiting included.
    async fn work_off(&mut self, part: Part, started: Option<Started>) -> Result<Done, Failure> {
        let op = match part {
            Part::Op(op) => Some(op),
            Part::Reopening => {
                self.link.close().await;
                self.open().await?;
                return Ok(Done::default());
            }
            _ => None,
        };
        self.link.connection()?;
        let started = match (started, op) {
            (Some(started), _) => Some(Ok(started)),
            (None, Some(op)) => {
                let (template, table) = (op.template as usize, op.table as usize);
                let prepared = self.statements.prepare(self.link.connection()?, template, table).await;
                prepared.map_err(|error| self.link.failed(error))?;
                self.start_op(op)
            }
            (None, None) => self.start_bracket(part),
        };
        let started = started.transpose().map_err(|error| self.link.failed(error))?;
        let Some(started) = started else { return Ok(Done::default()) };
        let OltpSession { link, statements, .. } = self;
        let connection = link.connection()?;
        let answered = match op {
            Some(op) => statements.finish(connection, op.template as usize, op.table as usize, started).await,
            None => connection.finish(None, started).await,
        };
        answered.map_err(|error| link.failed(error))
    }

    /// A part is done: notes it; what comes next.
    #[inline(always)]
    fn answered(&mut self, part: &Part, done: &Done, recorder: &Recorder) -> Part {
        let Part::Op(op) = part else { return self.bracket_answered(part, done, recorder) };
        recorder.lap(op.class as usize, done.kind());
        if op.is_tallied {
            // Each statement names one row: affected or not.
            let is_changed = done.affected_rows > 0;
            let changed = if is_changed { self.mix.effect(op.template) } else { Change::default() };
            if self.is_held {
                self.tally.changed(changed);
            } else {
                self.tally.sent(changed);
            }
        }
        self.op_or_end(op.index as usize + 1)
    }

    #[inline(never)]
    fn bracket_answered(&mut self, part: &Part, done: &Done, recorder: &Recorder) -> Part {
        match part {
            Part::Reopening => {
                // In the transaction's latency, as in sysbench, but no statement's.
                recorder.restart();
                self.first()
            }
            Part::Begin => {
                recorder.lap(0, done.kind());
                self.op_or_end(0)
            }
            Part::Commit => {
                self.link.committed();
                self.tally.committed();
                recorder.lap(self.mix.commit_class(), StatementKind::Other);
                Part::Over
            }
            Part::Op(_) | Part::Over => Part::Over,
        }
    }
}

/// What goes about a part in another way gives the session back with the outcome.
type Slow<'a> = Pin<Box<dyn Future<Output = (&'a mut OltpSession, Result<Done, Failure>)> + 'a>>;

/// A transaction under way.
///
/// A future of its own and no `async fn`: futures within futures are walked through one by one, down and up again, at each
/// answer, through code and memory that have left the caches while the session waited.
struct Transaction<'s, 'r> {
    /// Until `slow` has it.
    session: Option<&'s mut OltpSession>,
    recorder: &'r Recorder,
    part: Part,
    /// The part has been sent.
    started: Option<Started>,
    slow: Option<Slow<'s>>,
}

impl Future for Transaction<'_, '_> {
    type Output = Result<Completion, Failure>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            let this = &mut *self;
            let Some(session) = &mut this.session else {
                ready!(this.poll_slow(cx))?;
                continue;
            };
            let Some(started) = &this.started else {
                let started = match this.part {
                    Part::Op(op) => session.start_op(op),
                    Part::Over => return Poll::Ready(Ok(session.over())),
                    part => session.start_bracket(part),
                };
                match started {
                    Some(Ok(started)) => {
                        this.started = Some(started);
                        if let Some(connection) = session.link.open_connection() {
                            ready!(connection.poll_readable(cx));
                        }
                    }
                    Some(Err(error)) => return Poll::Ready(Err(session.failed_by(error))),
                    None => this.go_slowly(),
                }
                continue;
            };
            match ready!(session.poll_answer(&this.part, started, cx)) {
                Some(Ok(done)) => {
                    this.started = None;
                    this.part = session.answered(&this.part, &done, this.recorder);
                }
                Some(Err(error)) => return Poll::Ready(Err(session.failed_by(error))),
                None => this.go_slowly(),
            }
        }
    }
}

impl Transaction<'_, '_> {
    /// Boxed and out of line: it is rare.
    #[cold]
    #[inline(never)]
    fn go_slowly(&mut self) {
        let (part, started) = (self.part, self.started.take());
        if let Some(session) = self.session.take() {
            self.slow = Some(Box::pin(async move {
                let outcome = session.work_off(part, started).await;
                (session, outcome)
            }));
        }
    }

    #[cold]
    #[inline(never)]
    fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let Some(slow) = &mut self.slow else { return Poll::Pending };
        let (session, outcome) = ready!(slow.as_mut().poll(cx));
        self.slow = None;
        let outcome = match outcome {
            Ok(done) => {
                self.part = session.answered(&self.part, &done, self.recorder);
                Ok(())
            }
            Err(failure) => Err(session.failed(failure)),
        };
        self.session = Some(session);
        Poll::Ready(outcome)
    }
}

impl OltpSession {
    #[inline]
    fn over(&mut self) -> Completion {
        self.transactions += 1;
        Completion::Committed
    }

    #[cold]
    #[inline(never)]
    fn failed_by(&mut self, error: wire::Error) -> Failure {
        let failure = self.link.failed(error);
        self.failed(failure)
    }

    #[cold]
    #[inline(never)]
    fn failed(&mut self, failure: Failure) -> Failure {
        self.tally.failed(failure.connection_lost);
        failure
    }
}

impl Session for OltpSession {
    async fn open(&mut self) -> Result<(), Failure> {
        self.transactions = 0;
        self.link.open().await?;
        let opened = self.statements.open(self.link.connection()?).await;
        opened.map_err(|error| self.link.failure(&error))
    }

    #[inline]
    fn prepare(&mut self) {
        let OltpSession { mix, settings, rng, ids, program, .. } = self;
        mix.next(settings, rng, &mut || ids.next(), program);
    }

    #[inline]
    fn transaction(&mut self, recorder: &Recorder) -> impl Future<Output = Result<Completion, Failure>> {
        let part = self.first();
        Transaction { session: Some(self), recorder, part, started: None, slow: None }
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
