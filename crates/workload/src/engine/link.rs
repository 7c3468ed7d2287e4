//! A session's connection: opening it on the executor, transaction brackets, errors in the engine's words.

use std::sync::Arc;
use std::time::Duration;

use load::net::Socket;
use load::{Failure, FailureClass};
use wire::{Abandoned, Connection, Done, Target};

use crate::Dialect;

/// What all sessions of a run share about their connections.
#[derive(Debug)]
pub(crate) struct LinkPlan {
    /// The server.
    pub(crate) target: Target,
    /// Its kind.
    pub(crate) dialect: Dialect,
    /// Statements that each new connection runs first.
    pub(crate) setup: Vec<String>,
    /// Error codes, beyond deadlocks and their like, after which the same transaction may be tried again.
    pub(crate) retryable: &'static [&'static str],
}

/// The connection of one session.
pub(crate) struct Link {
    plan: Arc<LinkPlan>,
    connection: Option<Connection<Socket>>,
    /// BEGIN was sent and neither COMMIT nor ROLLBACK was answered.
    in_transaction: bool,
}

/// The failure of a session that was asked to run without a connection.
#[cold]
fn not_connected() -> Failure {
    Failure {
        class: FailureClass::Connection,
        code: "not connected".to_owned(),
        text: "the session has no connection".to_owned(),
        retryable: false,
        connection_lost: true,
        fatal: false,
    }
}

/// How long a request to cancel a statement that timed out may take.
const CANCEL_LIMIT: Duration = Duration::from_secs(2);

/// Tells the server to stop what a session's last statement left there. It would go on with a statement that nobody waits
/// for, and be slower for all others. Where it cannot be told, the next connection will show that.
///
/// `abandoned`: of the session's last connection, most often none.
pub async fn cancel(abandoned: Option<Abandoned>, target: &Target) {
    if let Some(abandoned) = abandoned {
        // Boxed: it is rare, and would be part of every session's memory otherwise.
        Box::pin(send_cancel(&abandoned, target)).await;
    }
}

#[cold]
async fn send_cancel(abandoned: &Abandoned, target: &Target) {
    let limit = CANCEL_LIMIT.min(target.connect_timeout);
    if let Ok(socket) = load::net::connect(&target.endpoint, limit).await {
        let target = Target { connect_timeout: limit, ..target.clone() };
        let _ = abandoned.cancel(socket, &target).await;
    }
}

impl Link {
    /// Not connected yet.
    pub(crate) fn new(plan: Arc<LinkPlan>) -> Link {
        Link { plan, connection: None, in_transaction: false }
    }

    /// Connects anew; an old connection is dropped.
    ///
    /// # Errors
    /// Connecting, logging in or a set-up statement failed.
    pub(crate) async fn open(&mut self) -> Result<(), Failure> {
        self.in_transaction = false;
        let plan = Arc::clone(&self.plan);
        let abandoned = self.connection.take().and_then(|connection| connection.abandoned());
        cancel(abandoned, &plan.target).await;
        let socket = load::net::connect(&plan.target.endpoint, plan.target.connect_timeout)
            .await
            .map_err(|error| self.failure(&wire::Error::Io(error)))?;
        let mut connection =
            Connection::open(socket, &plan.target).await.map_err(|error| self.failure(&error))?;
        for sql in &plan.setup {
            connection.query(sql).await.map_err(|error| self.failure(&error))?;
        }
        self.connection = Some(connection);
        Ok(())
    }

    /// The open connection.
    ///
    /// # Errors
    /// There is none; the engine opens one after this.
    #[inline]
    pub(crate) fn connection(&mut self) -> Result<&mut Connection<Socket>, Failure> {
        self.connection.as_mut().ok_or_else(not_connected)
    }

    /// What an error means for the transaction.
    #[cold]
    pub(crate) fn failure(&self, error: &wire::Error) -> Failure {
        self.plan.dialect.failure(error, self.plan.retryable)
    }

    /// [`Link::failure`] of an error that is not needed any more: dropping it is code that the hot path must not carry.
    #[cold]
    #[inline(never)]
    pub(crate) fn failed(&self, error: wire::Error) -> Failure {
        self.failure(&error)
    }

    /// BEGIN is about to be sent: from here on only an answered COMMIT or ROLLBACK makes the session clean.
    #[inline]
    pub(crate) fn begins(&mut self) {
        self.in_transaction = true;
    }

    /// COMMIT or ROLLBACK was answered.
    #[inline]
    pub(crate) fn ended(&mut self) {
        self.in_transaction = false;
    }

    /// BEGIN, by the text protocol: MySQL does not prepare it.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub(crate) async fn begin(&mut self) -> Result<Done, Failure> {
        self.begins();
        self.text("BEGIN").await
    }

    /// COMMIT.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub(crate) async fn commit(&mut self) -> Result<Done, Failure> {
        let done = self.text("COMMIT").await?;
        self.ended();
        Ok(done)
    }

    /// Whether a transaction is open.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// ROLLBACK.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) async fn rollback(&mut self) -> Result<Done, Failure> {
        let done = self.text("ROLLBACK").await?;
        self.ended();
        Ok(done)
    }

    /// A statement by the text protocol, rows skipped.
    ///
    /// # Errors
    /// Those of the server.
    #[inline]
    pub(crate) async fn text(&mut self, sql: &str) -> Result<Done, Failure> {
        let connection = self.connection()?;
        let answered = match connection.start_query(sql) {
            Ok(started) => connection.finish(None, started).await,
            Err(error) => Err(error),
        };
        answered.map_err(|error| self.failed(error))
    }

    /// Ends what a failed transaction left open.
    ///
    /// # Errors
    /// Those of the server.
    pub(crate) async fn recover(&mut self) -> Result<(), Failure> {
        if self.in_transaction {
            self.rollback().await?;
        }
        Ok(())
    }

    /// Says good-bye.
    pub(crate) async fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }
}
